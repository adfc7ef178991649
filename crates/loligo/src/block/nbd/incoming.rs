//! What comes on a connection: as many bytes as are needed next, big-endian.

use std::io;
use std::rc::Rc;

use bytes::{Buf, Bytes, BytesMut};
use env::Stream;

/// Room for what a client may send ahead.
const READ_AHEAD: usize = 128 << 10;

/// The receiving half of a connection.
pub(super) struct Incoming {
    stream: Rc<dyn Stream>,
    buf: BytesMut,
}

impl Incoming {
    pub(super) fn new(stream: Rc<dyn Stream>) -> Incoming {
        Incoming { stream, buf: BytesMut::new() }
    }

    /// Waits until `len` bytes are there. UnexpectedEof with "closed" when the peer left between
    /// two messages.
    async fn need(&mut self, len: usize) -> io::Result<()> {
        while self.buf.len() < len {
            let missing = len - self.buf.len();
            self.buf.reserve(missing.max(READ_AHEAD));
            let (received, buf) = self.stream.recv(std::mem::take(&mut self.buf)).await;
            self.buf = buf;
            if received? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// The next bytes, without a copy.
    pub(super) async fn take(&mut self, len: usize) -> io::Result<Bytes> {
        self.need(len).await?;
        Ok(self.buf.split_to(len).freeze())
    }

    pub(super) async fn u64(&mut self) -> io::Result<u64> {
        self.need(8).await?;
        Ok(self.buf.get_u64())
    }

    pub(super) async fn u32(&mut self) -> io::Result<u32> {
        self.need(4).await?;
        Ok(self.buf.get_u32())
    }

    pub(super) async fn u16(&mut self) -> io::Result<u16> {
        self.need(2).await?;
        Ok(self.buf.get_u16())
    }
}
