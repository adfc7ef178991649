//! The epoll reactor: readiness for sockets, a few threads for files.
//!
//! For machines whose kernel or container refuses io_uring. Sockets are non-blocking and
//! registered once, edge-triggered: a call that would block clears the direction's flag and waits
//! for the next edge.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{poll_fn, ready};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::file::Opened;
use super::file_pool::{FilePool, PooledFile};
use super::socket::{self, RawAddr};
use super::{Reactor, checked, silence_bell};
use crate::{AlignedBuf, BlockFile, Listener, LocalFuture, Stream};

/// Events taken per system call.
const EVENTS: usize = 256;
/// Key of the bell; sources count from 0.
const BELL: u64 = u64::MAX;
/// Buffers in one system call.
const IOVECS_MAX: usize = 64;

/// The epoll instance and who waits on what.
pub(super) struct Epoll {
    fd: OwnedFd,
    bell: Arc<OwnedFd>,
    /// Bound: one entry per open socket. Keys are never reused.
    sources: RefCell<BTreeMap<u64, Rc<Readiness>>>,
    next_key: Cell<u64>,
    files: Rc<FilePool>,
}

#[derive(Default)]
struct Readiness {
    read: Direction,
    write: Direction,
}

struct Direction {
    ready: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Default for Direction {
    fn default() -> Self {
        Direction { ready: Cell::new(true), waker: RefCell::default() }
    }
}

impl Direction {
    fn rise(&self) {
        self.ready.set(true);
        let waker = self.waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Repeats `call` until it does not say that it would block.
    async fn when_ready<T>(&self, mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
        poll_fn(move |cx| {
            while self.ready.get() {
                match call() {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.ready.set(false);
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    other => return Poll::Ready(other),
                }
            }
            self.waker.replace(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await
    }
}

/// A registered socket.
struct Source {
    epoll: Rc<Epoll>,
    key: u64,
    readiness: Rc<Readiness>,
    fd: OwnedFd,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.epoll.sources.borrow_mut().remove(&self.key);
        // Closing takes it out of the epoll set only where nobody else has the same open file.
        let (epoll, fd) = (self.epoll.fd.as_raw_fd(), self.fd.as_raw_fd());
        // SAFETY: a removal has no event; the descriptors are open.
        unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, std::ptr::null_mut()) };
    }
}

impl Epoll {
    pub(super) fn new(bell: Arc<OwnedFd>) -> io::Result<Rc<Epoll>> {
        // SAFETY: no memory is passed.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor is new and ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let epoll = Epoll {
            fd,
            bell,
            sources: RefCell::default(),
            next_key: Cell::new(0),
            files: FilePool::new(),
        };
        epoll.add(&epoll.bell, libc::EPOLLIN, BELL)?;
        Ok(Rc::new(epoll))
    }

    fn add(&self, fd: &OwnedFd, events: libc::c_int, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: events.cast_unsigned(), u64: key };
        let (epoll, fd) = (self.fd.as_raw_fd(), fd.as_raw_fd());
        // SAFETY: the event is valid for the call, which does not keep it.
        checked(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) })?;
        Ok(())
    }

    fn register(self: Rc<Self>, fd: OwnedFd) -> io::Result<Source> {
        let key = self.next_key.get();
        let events = libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.add(&fd, events, key)?;
        self.next_key.set(key + 1);
        let readiness = Rc::new(Readiness::default());
        self.sources.borrow_mut().insert(key, readiness.clone());
        Ok(Source { epoll: self, key, readiness, fd })
    }
}

impl Reactor for Epoll {
    fn turn(&self, wait: Option<Duration>) -> io::Result<()> {
        // Rounded up: waking before a deadline would only spin.
        let millis = wait.map_or(-1, |wait| {
            libc::c_int::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
        });
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS];
        let room = EVENTS as libc::c_int;
        // SAFETY: there is room for the number of events given.
        let count = checked(unsafe {
            libc::epoll_wait(self.fd.as_raw_fd(), events.as_mut_ptr(), room, millis)
        });
        let count = match count {
            Ok(count) => count as usize,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        };
        for event in &events[..count] {
            let (bits, key) = (event.events.cast_signed(), event.u64);
            if key == BELL {
                silence_bell(&self.bell);
                continue;
            }
            let Some(readiness) = self.sources.borrow().get(&key).cloned() else { continue };
            let ended = libc::EPOLLERR | libc::EPOLLHUP;
            if bits & (libc::EPOLLIN | libc::EPOLLRDHUP | ended) != 0 {
                readiness.read.rise();
            }
            if bits & (libc::EPOLLOUT | ended) != 0 {
                readiness.write.rise();
            }
        }
        Ok(())
    }

    fn socket_flags(&self) -> libc::c_int {
        libc::SOCK_NONBLOCK
    }

    fn listener(self: Rc<Self>, fd: OwnedFd) -> io::Result<Rc<dyn Listener>> {
        Ok(Rc::new(EpollListener(Rc::new(self.register(fd)?))))
    }

    fn stream(self: Rc<Self>, fd: OwnedFd) -> io::Result<Rc<dyn Stream>> {
        Ok(EpollStream::connected(self.register(fd)?))
    }

    fn connect(self: Rc<Self>, addr: RawAddr) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        Box::pin(connect(self, addr))
    }

    fn block_file(self: Rc<Self>, file: Opened) -> Rc<dyn BlockFile> {
        Rc::new(PooledFile::new(self.files.clone(), file))
    }

    fn readable(self: Rc<Self>, fd: Rc<dyn AsRawFd>) -> LocalFuture<io::Result<()>> {
        Box::pin(async move {
            // A source closes its descriptor to leave the epoll set: one of its own.
            // SAFETY: `fd` is open; no memory is passed.
            let own = checked(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 0) })?;
            // SAFETY: the descriptor is new and ours.
            let source = self.register(unsafe { OwnedFd::from_raw_fd(own) })?;
            source.readiness.read.when_ready(|| has_input(&source.fd)).await
        })
    }
}

/// Whether there is something to read now, without taking it.
fn has_input(fd: &OwnedFd) -> io::Result<()> {
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry is given.
    match checked(unsafe { libc::poll(&mut poll, 1, 0) })? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

async fn connect(epoll: Rc<Epoll>, addr: RawAddr) -> io::Result<Rc<dyn Stream>> {
    let fd = socket::stream(addr.family(), libc::SOCK_NONBLOCK)?;
    // SAFETY: `addr` holds a valid address of the length it says.
    let begun = checked(unsafe { libc::connect(fd.as_raw_fd(), addr.as_ptr(), addr.len()) });
    let source = match begun {
        Ok(_) => epoll.register(fd)?,
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            let source = epoll.register(fd)?;
            // The first edge is the end of the attempt.
            source.readiness.write.ready.set(false);
            source.readiness.write.when_ready(|| socket::take_error(&source.fd)).await?;
            source
        }
        Err(error) => return Err(error),
    };
    Ok(EpollStream::connected(source))
}

struct EpollListener(Rc<Source>);

impl Listener for EpollListener {
    fn accept(&self) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        let source = self.0.clone();
        Box::pin(async move {
            let accept = || {
                let (none, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
                let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
                let raw = source.fd.as_raw_fd();
                // SAFETY: no memory is passed.
                let fd = checked(unsafe { libc::accept4(raw, none, no_len, flags) })?;
                // SAFETY: the descriptor is new and ours.
                Ok(unsafe { OwnedFd::from_raw_fd(fd) })
            };
            let fd = source.readiness.read.when_ready(accept).await?;
            socket::set_no_delay(&fd);
            Ok(EpollStream::connected(source.epoll.clone().register(fd)?))
        })
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        socket::local_addr(&self.0.fd)
    }
}

struct EpollStream {
    source: Rc<Source>,
    peer: Option<SocketAddr>,
}

impl EpollStream {
    fn connected(source: Source) -> Rc<dyn Stream> {
        let peer = socket::peer_addr(&source.fd);
        Rc::new(EpollStream { source: Rc::new(source), peer })
    }
}

impl Stream for EpollStream {
    fn recv(&self, mut buf: BytesMut) -> LocalFuture<(io::Result<usize>, BytesMut)> {
        if buf.capacity() == buf.len() {
            return Box::pin(ready((Err(io::ErrorKind::InvalidInput.into()), buf)));
        }
        let source = self.source.clone();
        Box::pin(async move {
            let receive = || {
                let spare = buf.spare_capacity_mut();
                let (at, len) = (spare.as_mut_ptr().cast(), spare.len());
                // SAFETY: the spare capacity is valid for writes of its length.
                let got = unsafe { libc::recv(source.fd.as_raw_fd(), at, len, 0) };
                let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
                // SAFETY: the kernel has written this many bytes behind the buffer's length.
                unsafe { buf.set_len(buf.len() + got) };
                Ok(got)
            };
            let received = source.readiness.read.when_ready(receive).await;
            (received, buf)
        })
    }

    fn recv_into(
        &self,
        mut buf: AlignedBuf,
        range: Range<usize>,
    ) -> LocalFuture<(io::Result<usize>, AlignedBuf)> {
        if range.is_empty() || range.end > buf.len() {
            return Box::pin(ready((Err(io::ErrorKind::InvalidInput.into()), buf)));
        }
        let source = self.source.clone();
        Box::pin(async move {
            let receive = || {
                let room = &mut buf[range.clone()];
                let (at, len) = (room.as_mut_ptr().cast(), room.len());
                // SAFETY: the room is valid for writes of its length.
                let got = unsafe { libc::recv(source.fd.as_raw_fd(), at, len, 0) };
                usize::try_from(got).map_err(|_| io::Error::last_os_error())
            };
            let received = source.readiness.read.when_ready(receive).await;
            (received, buf)
        })
    }

    fn send(&self, bufs: Vec<Bytes>) -> LocalFuture<io::Result<()>> {
        let source = self.source.clone();
        Box::pin(async move {
            let mut rest: &[Bytes] = &bufs;
            // Bytes of the first buffer already sent.
            let mut begun = 0;
            loop {
                while rest.first().is_some_and(|buf| buf.len() == begun) {
                    rest = &rest[1..];
                    begun = 0;
                }
                if rest.is_empty() {
                    return Ok(());
                }
                let mut sent = source
                    .readiness
                    .write
                    .when_ready(|| send_some(&source.fd, rest, begun))
                    .await?;
                while sent > 0 {
                    let step = sent.min(rest[0].len() - begun);
                    begun += step;
                    sent -= step;
                    if begun == rest[0].len() {
                        rest = &rest[1..];
                        begun = 0;
                    }
                }
            }
        })
    }

    fn close(&self) {
        socket::shutdown(&self.source.fd);
    }

    fn keep_alive(&self, idle: Duration) -> io::Result<()> {
        self.peer.map_or(Ok(()), |_| socket::keep_alive(&self.source.fd, idle))
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        socket::local_addr(&self.source.fd)
    }
}

/// Sends what the socket takes of `bufs`, from byte `begun` of the first on.
fn send_some(fd: &OwnedFd, bufs: &[Bytes], begun: usize) -> io::Result<usize> {
    let mut iovecs = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; IOVECS_MAX];
    let count = bufs.len().min(IOVECS_MAX);
    for (index, buf) in bufs[..count].iter().enumerate() {
        let part = if index == 0 { &buf[begun..] } else { &buf[..] };
        iovecs[index].iov_base = part.as_ptr().cast_mut().cast();
        iovecs[index].iov_len = part.len();
    }
    // SAFETY: an all-zero message header is valid (no address, no control data).
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = iovecs.as_mut_ptr();
    header.msg_iovlen = count;
    // SAFETY: header, vectors and buffers are valid for the call, which only reads the buffers.
    let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &header, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}
