//! Streams between daemons of one process: no socket, no system call, and values instead of bytes.
//!
//! Two OSDs of one process that talk through a socket have the kernel copy each payload out of and into
//! the memory that both see, and what they say encoded, checksummed, checked and decoded on the way. A stream
//! of this file carries bytes, so that whoever knows nothing of it (a handshake) works over it, and it is
//! a [`Passage`], too: what is handed to it is what comes out of it. Its ends may be in different threads.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};

use crate::{AlignedBuf, Listener, LocalFuture, Passage, Stream};

/// Bytes under way in one direction; above that a sender waits.
const BYTES_MAX: usize = 256 << 10;
/// Connections that a listener has not taken; more are refused.
const BACKLOG: usize = 512;

/// What tasks of several threads wait for changes of.
#[derive(Default)]
struct Watched<T>(Mutex<(T, Vec<Waker>)>);

impl<T> Watched<T> {
    fn lock(&self) -> MutexGuard<'_, (T, Vec<Waker>)> {
        // No code that can panic runs under the lock, so a poisoned one is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it and wakes all that wait.
    fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut guard = self.lock();
        let result = change(&mut guard.0);
        let waiting = std::mem::take(&mut guard.1);
        drop(guard);
        waiting.into_iter().for_each(Waker::wake);
        result
    }

    /// Waits until `change` has something to do, and wakes all that wait for what it did.
    async fn when<R>(&self, mut change: impl FnMut(&mut T) -> Option<R>) -> R {
        poll_fn(|cx| {
            let mut guard = self.lock();
            let (value, waiting) = &mut *guard;
            let Some(result) = change(value) else {
                if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                    waiting.push(cx.waker().clone());
                }
                return Poll::Pending;
            };
            let waiting = std::mem::take(waiting);
            drop(guard);
            waiting.into_iter().for_each(Waker::wake);
            Poll::Ready(result)
        })
        .await
    }
}

/// Who listens in one process, by address. Clones are the same.
#[derive(Default, Clone)]
pub struct Within(Arc<Mutex<HashMap<SocketAddr, Weak<Backlog>>>>);

type Backlog = Watched<Waiting>;

/// Connections that their listener has not taken.
#[derive(Default)]
struct Waiting {
    /// Each with where it comes from.
    streams: VecDeque<(Ways, IpAddr)>,
    /// The listener is.
    gone: bool,
}

impl Within {
    fn lock(&self) -> MutexGuard<'_, HashMap<SocketAddr, Weak<Backlog>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes connections of this process to `addr`, until the listener goes.
    pub fn listen(&self, addr: SocketAddr) -> Rc<dyn Listener> {
        let backlog = Arc::new(Backlog::default());
        self.lock().insert(addr, Arc::downgrade(&backlog));
        Rc::new(WithinListener { addr, backlog })
    }

    /// A connection from `ip` to `addr`, if somebody of this process listens there.
    pub fn connect(&self, ip: IpAddr, addr: SocketAddr) -> Option<io::Result<Rc<dyn Stream>>> {
        let backlog = self.lock().get(&addr)?.upgrade()?;
        let (there, back) = (Arc::new(Way::default()), Arc::new(Way::default()));
        let theirs = (Ways { out: back.clone(), come: there.clone() }, ip);
        let waits = backlog.change(|waiting| {
            let waits = waiting.streams.len() < BACKLOG && !waiting.gone;
            if waits {
                waiting.streams.push_back(theirs);
            }
            waits
        });
        if !waits {
            return Some(Err(io::ErrorKind::ConnectionRefused.into()));
        }
        let ways = Ways { out: there, come: back };
        Some(Ok(Rc::new(End { ways, peer: addr, local: SocketAddr::new(ip, 0) })))
    }
}

impl core::fmt::Debug for Within {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

struct WithinListener {
    addr: SocketAddr,
    backlog: Arc<Backlog>,
}

impl Drop for WithinListener {
    fn drop(&mut self) {
        let left = self.backlog.change(|waiting| {
            waiting.gone = true;
            std::mem::take(&mut waiting.streams)
        });
        left.iter().for_each(|(ways, _)| ways.close());
    }
}

impl Listener for WithinListener {
    fn accept(&self) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        let (addr, backlog) = (self.addr, self.backlog.clone());
        Box::pin(async move {
            let (ways, ip) = backlog.when(|waiting| waiting.streams.pop_front()).await;
            let stream: Rc<dyn Stream> =
                Rc::new(End { ways, peer: SocketAddr::new(ip, 0), local: addr });
            Ok(stream)
        })
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some(self.addr)
    }
}

/// One direction.
type Way = Watched<UnderWay>;

#[derive(Default)]
struct UnderWay {
    bytes: VecDeque<Bytes>,
    len: usize,
    /// At most one: the next is handed over when it has been taken.
    value: Option<Box<dyn Any + Send>>,
    closed: bool,
}

impl UnderWay {
    /// Gives `to` what has come, up to `room` bytes, and says how many.
    fn take(&mut self, room: usize, to: &mut impl FnMut(&[u8])) -> usize {
        let mut taken = 0;
        while taken < room
            && let Some(first) = self.bytes.front_mut()
        {
            let len = first.len().min(room - taken);
            to(&first[..len]);
            first.advance(len);
            taken += len;
            if first.is_empty() {
                self.bytes.pop_front();
            }
        }
        self.len -= taken;
        taken
    }
}

impl Way {
    async fn put(&self, bytes: Vec<Bytes>) -> io::Result<()> {
        for mut piece in bytes {
            while !piece.is_empty() {
                self.when(|way| {
                    if way.closed {
                        return Some(Err(io::ErrorKind::BrokenPipe.into()));
                    }
                    let room = BYTES_MAX - way.len;
                    (room > 0).then(|| {
                        let part = piece.split_to(piece.len().min(room));
                        way.len += part.len();
                        way.bytes.push_back(part);
                        io::Result::Ok(())
                    })
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Gives `to` what comes, up to `room` bytes, and says how many: none if the way is closed.
    async fn take(&self, room: usize, mut to: impl FnMut(&[u8])) -> io::Result<usize> {
        if room == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.when(|way| (way.closed || way.len > 0).then(|| Ok(way.take(room, &mut to)))).await
    }

    async fn hand(&self, value: Box<dyn Any + Send>) -> io::Result<()> {
        let mut value = Some(value);
        self.when(|way| {
            if way.closed {
                return Some(Err(io::ErrorKind::BrokenPipe.into()));
            }
            way.value.is_none().then(|| {
                way.value = value.take();
                Ok(())
            })
        })
        .await
    }

    async fn receive(&self) -> Option<Box<dyn Any + Send>> {
        self.when(|way| (way.closed || way.value.is_some()).then(|| way.value.take())).await
    }
}

/// The two directions, as one end sees them.
#[derive(Clone)]
struct Ways {
    out: Arc<Way>,
    come: Arc<Way>,
}

impl Ways {
    fn close(&self) {
        self.out.change(|way| way.closed = true);
        self.come.change(|way| way.closed = true);
    }
}

/// One end of a stream.
struct End {
    ways: Ways,
    peer: SocketAddr,
    local: SocketAddr,
}

impl Drop for End {
    fn drop(&mut self) {
        self.close();
    }
}

impl Stream for End {
    fn recv(&self, mut buf: BytesMut) -> LocalFuture<(io::Result<usize>, BytesMut)> {
        let come = self.ways.come.clone();
        Box::pin(async move {
            let room = buf.capacity() - buf.len();
            let taken = come.take(room, |bytes| buf.extend_from_slice(bytes)).await;
            (taken, buf)
        })
    }

    fn recv_into(
        &self,
        mut buf: AlignedBuf,
        range: Range<usize>,
    ) -> LocalFuture<(io::Result<usize>, AlignedBuf)> {
        let come = self.ways.come.clone();
        Box::pin(async move {
            let room = if range.end > buf.len() { 0 } else { range.len() };
            let mut at = range.start;
            let taken = come
                .take(room, |bytes| {
                    buf.copy_from_slice_at(at, bytes);
                    at += bytes.len();
                })
                .await;
            (taken, buf)
        })
    }

    fn send(&self, bufs: Vec<Bytes>) -> LocalFuture<io::Result<()>> {
        let out = self.ways.out.clone();
        Box::pin(async move { out.put(bufs).await })
    }

    fn close(&self) {
        self.ways.close();
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    fn passage(&self) -> Option<Rc<dyn Passage>> {
        Some(Rc::new(self.ways.clone()))
    }
}

impl Passage for Ways {
    fn hand(&self, value: Box<dyn Any + Send>) -> LocalFuture<io::Result<()>> {
        let out = self.out.clone();
        Box::pin(async move { out.hand(value).await })
    }

    fn receive(&self) -> LocalFuture<Option<Box<dyn Any + Send>>> {
        let come = self.come.clone();
        Box::pin(async move { come.receive().await })
    }
}
