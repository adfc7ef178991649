//! Streams between daemons of one thread: no socket, no system call, and values instead of bytes.
//!
//! Two OSDs of one thread that talk through a socket have the kernel copy each payload out of and into
//! the memory that both see, and what they say encoded, checksummed, checked and decoded on the way. A stream
//! of this file carries bytes, so that whoever knows nothing of it (a handshake) works over it, and it is
//! a [`Passage`], too: what is handed to it is what comes out of it.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::rc::{Rc, Weak};

use bytes::{Buf, Bytes, BytesMut};

use crate::sync::Notify;
use crate::{AlignedBuf, Listener, LocalFuture, Passage, Stream};

/// Bytes under way in one direction; above that a sender waits.
const BYTES_MAX: usize = 256 << 10;
/// Connections that a listener has not taken; more are refused.
const BACKLOG: usize = 512;

/// Who listens in one thread, by address.
#[derive(Default)]
pub struct Within(RefCell<HashMap<SocketAddr, Weak<Backlog>>>);

#[derive(Default)]
struct Backlog {
    streams: RefCell<VecDeque<Rc<End>>>,
    came: Notify,
}

impl Within {
    /// Takes connections of this thread to `addr`, until the listener goes.
    pub fn listen(&self, addr: SocketAddr) -> Rc<dyn Listener> {
        let backlog = Rc::new(Backlog::default());
        self.0.borrow_mut().insert(addr, Rc::downgrade(&backlog));
        Rc::new(WithinListener { addr, backlog })
    }

    /// A connection to `addr`, if somebody of this thread listens there.
    pub fn connect(&self, addr: SocketAddr) -> Option<io::Result<Rc<dyn Stream>>> {
        let backlog = self.0.borrow().get(&addr)?.upgrade()?;
        let mut streams = backlog.streams.borrow_mut();
        if streams.len() >= BACKLOG {
            return Some(Err(io::ErrorKind::ConnectionRefused.into()));
        }
        let (there, back) = (Rc::new(Way::default()), Rc::new(Way::default()));
        let here = SocketAddr::new(addr.ip(), 0);
        streams.push_back(Rc::new(End { out: back.clone(), come: there.clone(), peer: here, local: addr }));
        backlog.came.notify_all();
        Some(Ok(Rc::new(End { out: there, come: back, peer: addr, local: here })))
    }
}

impl core::fmt::Debug for Within {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_set().entries(self.0.borrow().keys()).finish()
    }
}

struct WithinListener {
    addr: SocketAddr,
    backlog: Rc<Backlog>,
}

impl Listener for WithinListener {
    fn accept(&self) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        let backlog = self.backlog.clone();
        Box::pin(async move {
            loop {
                let next = backlog.streams.borrow_mut().pop_front();
                match next {
                    Some(stream) => return Ok(stream as Rc<dyn Stream>),
                    None => backlog.came.notified().await,
                }
            }
        })
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some(self.addr)
    }
}

/// One direction.
#[derive(Default)]
struct Way {
    bytes: RefCell<VecDeque<Bytes>>,
    len: Cell<usize>,
    /// At most one: the next is handed over when it has been taken.
    value: RefCell<Option<Box<dyn Any>>>,
    closed: Cell<bool>,
    /// Any of these has changed.
    changed: Notify,
}

impl Way {
    fn close(&self) {
        if !self.closed.replace(true) {
            self.changed.notify_all();
        }
    }

    async fn put(&self, bytes: Vec<Bytes>) -> io::Result<()> {
        for mut piece in bytes {
            while !piece.is_empty() {
                self.changed.until(|| self.closed.get() || self.len.get() < BYTES_MAX).await;
                if self.closed.get() {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                let part = piece.split_to(piece.len().min(BYTES_MAX - self.len.get()));
                self.len.set(self.len.get() + part.len());
                self.bytes.borrow_mut().push_back(part);
                self.changed.notify_all();
            }
        }
        Ok(())
    }

    /// Gives `to` what comes, up to `room` bytes, and says how many: none if the way is closed.
    async fn take(&self, room: usize, mut to: impl FnMut(&[u8])) -> io::Result<usize> {
        if room == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.changed.until(|| self.closed.get() || self.len.get() > 0).await;
        let mut taken = 0;
        let mut bytes = self.bytes.borrow_mut();
        while taken < room
            && let Some(first) = bytes.front_mut()
        {
            let len = first.len().min(room - taken);
            to(&first[..len]);
            first.advance(len);
            taken += len;
            if first.is_empty() {
                bytes.pop_front();
            }
        }
        drop(bytes);
        self.len.set(self.len.get() - taken);
        self.changed.notify_all();
        Ok(taken)
    }

    async fn hand(&self, value: Box<dyn Any>) -> io::Result<()> {
        self.changed.until(|| self.closed.get() || self.value.borrow().is_none()).await;
        if self.closed.get() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        *self.value.borrow_mut() = Some(value);
        self.changed.notify_all();
        Ok(())
    }

    async fn receive(&self) -> Option<Box<dyn Any>> {
        self.changed.until(|| self.closed.get() || self.value.borrow().is_some()).await;
        let value = self.value.borrow_mut().take();
        self.changed.notify_all();
        value
    }
}

/// One end of a stream.
struct End {
    out: Rc<Way>,
    come: Rc<Way>,
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
        let come = self.come.clone();
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
        let come = self.come.clone();
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
        let out = self.out.clone();
        Box::pin(async move { out.put(bufs).await })
    }

    fn close(&self) {
        self.out.close();
        self.come.close();
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    fn passage(&self) -> Option<Rc<dyn Passage>> {
        Some(Rc::new(Ways { out: self.out.clone(), come: self.come.clone() }))
    }
}

/// An end's ways for values; they close with the end.
struct Ways {
    out: Rc<Way>,
    come: Rc<Way>,
}

impl Passage for Ways {
    fn hand(&self, value: Box<dyn Any>) -> LocalFuture<io::Result<()>> {
        let out = self.out.clone();
        Box::pin(async move { out.hand(value).await })
    }

    fn receive(&self) -> LocalFuture<Option<Box<dyn Any>>> {
        let come = self.come.clone();
        Box::pin(async move { come.receive().await })
    }
}
