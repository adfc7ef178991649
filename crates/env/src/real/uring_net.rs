//! Sockets on io_uring.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use io_uring::opcode;
use io_uring::types::Fd;

use super::socket::{self, RawAddr};
use super::uring::{Held, Memory, Op, Uring, outcome};
use super::vectored::{IOVECS_MAX, Vectored};
use crate::{AlignedBuf, Listener, LocalFuture, Stream};

/// A listening socket.
pub(super) struct UringListener {
    uring: Rc<Uring>,
    fd: Rc<OwnedFd>,
}

impl UringListener {
    pub(super) fn new(uring: Rc<Uring>, fd: OwnedFd) -> UringListener {
        UringListener { uring, fd: Rc::new(fd) }
    }
}

impl Listener for UringListener {
    fn accept(&self) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        let raw = Fd(self.fd.as_raw_fd());
        let held = Held { _fd: self.fd.clone(), memory: Memory::Accept };
        let (none, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
        let entry = opcode::Accept::new(raw, none, no_len).flags(libc::SOCK_CLOEXEC).build();
        // SAFETY: no memory is given to the kernel; the descriptor is held.
        let op = unsafe { self.uring.start(held, |_| entry) };
        let uring = self.uring.clone();
        Box::pin(async move {
            let (result, _) = op.await;
            outcome(result)?;
            // SAFETY: accept's result is a new descriptor that only we know of.
            let fd = unsafe { OwnedFd::from_raw_fd(result) };
            socket::set_no_delay(&fd);
            Ok(UringStream::connected(uring, Rc::new(fd)))
        })
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        socket::local_addr(&self.fd)
    }
}

/// Connects `fd` to `addr`.
pub(super) async fn connect(
    uring: Rc<Uring>,
    fd: OwnedFd,
    addr: RawAddr,
) -> io::Result<Rc<dyn Stream>> {
    let fd = Rc::new(fd);
    let raw = Fd(fd.as_raw_fd());
    let held = Held { _fd: fd.clone(), memory: Memory::Connect(Box::new(addr)) };
    // SAFETY: the address is on the heap in the memory held.
    let op = unsafe {
        uring.start(held, |memory| match memory {
            Memory::Connect(addr) => opcode::Connect::new(raw, addr.as_ptr(), addr.len()).build(),
            _ => unreachable!("made above"),
        })
    };
    outcome(op.await.0)?;
    Ok(UringStream::connected(uring, fd))
}

/// A connected socket.
pub(super) struct UringStream {
    uring: Rc<Uring>,
    fd: Rc<OwnedFd>,
    peer: Option<SocketAddr>,
}

impl UringStream {
    pub(super) fn connected(uring: Rc<Uring>, fd: Rc<OwnedFd>) -> Rc<dyn Stream> {
        let peer = socket::peer_addr(&fd);
        Rc::new(UringStream { uring, fd, peer })
    }
}

fn start_send(uring: &Rc<Uring>, fd: &Rc<OwnedFd>, bufs: Box<Vectored>) -> Op {
    let raw = Fd(fd.as_raw_fd());
    let held = Held { _fd: fd.clone(), memory: Memory::Vectored(bufs) };
    // SAFETY: header, vectors and buffers are on the heap in the memory held.
    unsafe {
        uring.start(held, |memory| {
            let Memory::Vectored(bufs) = memory else { unreachable!("made above") };
            bufs.header.msg_iov = bufs.iovecs.as_mut_ptr();
            bufs.header.msg_iovlen = bufs.iovecs.len().min(IOVECS_MAX);
            let flags = (libc::MSG_NOSIGNAL | libc::MSG_WAITALL).cast_unsigned();
            opcode::SendMsg::new(raw, &bufs.header).flags(flags).build()
        })
    }
}

impl Stream for UringStream {
    fn recv(&self, buf: BytesMut) -> LocalFuture<(io::Result<usize>, BytesMut)> {
        if buf.capacity() == buf.len() {
            return Box::pin(std::future::ready((Err(io::ErrorKind::InvalidInput.into()), buf)));
        }
        let raw = Fd(self.fd.as_raw_fd());
        let held = Held { _fd: self.fd.clone(), memory: Memory::Recv(buf) };
        // SAFETY: the spare capacity is on the heap in the memory held.
        let op = unsafe {
            self.uring.start(held, |memory| {
                let Memory::Recv(buf) = memory else { unreachable!("made above") };
                let spare = buf.spare_capacity_mut();
                let len = u32::try_from(spare.len()).unwrap_or(u32::MAX);
                opcode::Recv::new(raw, spare.as_mut_ptr().cast(), len).build()
            })
        };
        Box::pin(async move {
            let (result, memory) = op.await;
            let Memory::Recv(mut buf) = memory else { unreachable!("given above") };
            let received = outcome(result);
            if let Ok(received) = received {
                // SAFETY: the kernel has written this many bytes behind the buffer's length.
                unsafe { buf.set_len(buf.len() + received) };
            }
            (received, buf)
        })
    }

    fn recv_into(
        &self,
        buf: AlignedBuf,
        range: Range<usize>,
    ) -> LocalFuture<(io::Result<usize>, AlignedBuf)> {
        if range.is_empty() || range.end > buf.len() {
            return Box::pin(std::future::ready((Err(io::ErrorKind::InvalidInput.into()), buf)));
        }
        let raw = Fd(self.fd.as_raw_fd());
        let held = Held { _fd: self.fd.clone(), memory: Memory::Read(buf) };
        // SAFETY: the buffer is on the heap in the memory held.
        let op = unsafe {
            self.uring.start(held, |memory| {
                let Memory::Read(buf) = memory else { unreachable!("made above") };
                let room = &mut buf[range];
                let len = u32::try_from(room.len()).unwrap_or(u32::MAX);
                // The kernel goes on until it is full: one completion instead of one a segment.
                opcode::Recv::new(raw, room.as_mut_ptr(), len).flags(libc::MSG_WAITALL).build()
            })
        };
        Box::pin(async move {
            let (result, memory) = op.await;
            let Memory::Read(buf) = memory else { unreachable!("given above") };
            (outcome(result), buf)
        })
    }

    fn send(&self, bufs: Vec<Bytes>) -> LocalFuture<io::Result<()>> {
        let bufs = Vectored::new(bufs);
        if bufs.iovecs.is_empty() {
            return Box::pin(std::future::ready(Ok(())));
        }
        let (uring, fd) = (self.uring.clone(), self.fd.clone());
        let mut op = start_send(&uring, &fd, bufs);
        Box::pin(async move {
            loop {
                let (result, memory) = op.await;
                let Memory::Vectored(mut bufs) = memory else { unreachable!("given above") };
                let sent = match outcome(result) {
                    Ok(sent) => sent,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => 0,
                    Err(error) => return Err(error),
                };
                if !bufs.advance(sent) {
                    return Ok(());
                }
                op = start_send(&uring, &fd, bufs);
            }
        })
    }

    fn close(&self) {
        socket::shutdown(&self.fd);
    }

    fn keep_alive(&self, idle: Duration) -> io::Result<()> {
        self.peer.map_or(Ok(()), |_| socket::keep_alive(&self.fd, idle))
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        socket::local_addr(&self.fd)
    }
}
