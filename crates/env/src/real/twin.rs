//! Two sockets for one address, so that processes of one host need no network between them.
//!
//! A stream over the loopback device is cut into segments, each of which is acknowledged and comes in
//! with an interrupt: 3.9 us of CPU for 5 KB and its answer where a unix socket takes 3.0 (four at a time;
//! 15 and 11 one by one; a program of the day). So who listens on an address listens on an abstract unix socket of its name,
//! too, and who connects to an address tries that first. Both ends tell the addresses they would have had.
//!
//! Such a name is known in one network namespace, and anybody may take it, which is not so with a port
//! that is bound: it is believed only if a process of the same user listens there. Else, and with
//! `LOLIGO_LOCAL=tcp`, all is as it was.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bytes::{Bytes, BytesMut};

use super::socket::{self, RawAddr};
use crate::{AlignedBuf, Listener, LocalFuture, Stream};

/// Whether twins are wanted.
pub(super) fn are_wanted() -> bool {
    std::env::var("LOLIGO_LOCAL").as_deref() != Ok("tcp")
}

fn name_of(addr: SocketAddr) -> RawAddr {
    RawAddr::from_abstract(&format!("loligo/{addr}"))
}

/// A listening twin of an address; none if somebody has the name.
pub(super) fn listen(addr: SocketAddr, flags: libc::c_int) -> Option<OwnedFd> {
    socket::listen(&name_of(addr), flags).ok()
}

/// A connection to the twin of an address; none if nobody of this user listens there.
pub(super) fn connect(addr: SocketAddr, flags: libc::c_int) -> Option<OwnedFd> {
    let fd = socket::connect_at_once(&name_of(addr), flags).ok()?;
    socket::peer_is_ours(&fd).then_some(fd)
}

/// The twin of who listens on an address.
pub(super) struct TwinListener {
    addr: SocketAddr,
    twin: Rc<dyn Listener>,
}

impl TwinListener {
    pub(super) fn new(addr: SocketAddr, twin: Rc<dyn Listener>) -> TwinListener {
        TwinListener { addr, twin }
    }
}

impl Listener for TwinListener {
    fn accept(&self) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        let (addr, accepting) = (self.addr, self.twin.accept());
        Box::pin(async move {
            let stream = accepting.await?;
            Ok(TwinStream::between(stream, SocketAddr::new(addr.ip(), 0), addr))
        })
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some(self.addr)
    }
}

/// A unix stream with the addresses that it stands for.
pub(super) struct TwinStream {
    stream: Rc<dyn Stream>,
    peer: SocketAddr,
    local: SocketAddr,
}

impl TwinStream {
    fn between(stream: Rc<dyn Stream>, peer: SocketAddr, local: SocketAddr) -> Rc<dyn Stream> {
        Rc::new(TwinStream { stream, peer, local })
    }

    /// The end that has connected.
    pub(super) fn to(addr: SocketAddr, stream: Rc<dyn Stream>) -> Rc<dyn Stream> {
        TwinStream::between(stream, addr, SocketAddr::new(addr.ip(), 0))
    }
}

impl Stream for TwinStream {
    fn recv(&self, buf: BytesMut) -> LocalFuture<(io::Result<usize>, BytesMut)> {
        self.stream.recv(buf)
    }

    fn recv_into(
        &self,
        buf: AlignedBuf,
        range: Range<usize>,
    ) -> LocalFuture<(io::Result<usize>, AlignedBuf)> {
        self.stream.recv_into(buf, range)
    }

    fn send(&self, bufs: Vec<Bytes>) -> LocalFuture<io::Result<()>> {
        self.stream.send(bufs)
    }

    fn close(&self) {
        self.stream.close();
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some(self.local)
    }
}
