//! Buffers in the form `sendmsg` and `pwritev` take, and what is left of them after a part.

use bytes::Bytes;

/// Buffers in one system call (UIO_MAXIOV).
pub(super) const IOVECS_MAX: usize = 1024;

/// Buffers and their kernel form.
pub(super) struct Vectored {
    _bufs: Vec<Bytes>,
    pub(super) iovecs: Vec<libc::iovec>,
    pub(super) header: libc::msghdr,
}

impl Vectored {
    pub(super) fn new(bufs: Vec<Bytes>) -> Box<Vectored> {
        let iovecs = bufs
            .iter()
            .filter(|buf| !buf.is_empty())
            .map(|buf| libc::iovec { iov_base: buf.as_ptr().cast_mut().cast(), iov_len: buf.len() })
            .collect();
        // SAFETY: an all-zero message header is valid (no address, no buffers, no control data).
        let header = unsafe { std::mem::zeroed() };
        Box::new(Vectored { _bufs: bufs, iovecs, header })
    }

    /// Forgets the first `done` bytes; whether anything is left.
    pub(super) fn advance(&mut self, mut done: usize) -> bool {
        let mut whole = 0;
        for iovec in &mut self.iovecs {
            if done < iovec.iov_len {
                // SAFETY: stays within the buffer, as `done` is less than its length.
                iovec.iov_base = unsafe { iovec.iov_base.cast::<u8>().add(done) }.cast();
                iovec.iov_len -= done;
                break;
            }
            done -= iovec.iov_len;
            whole += 1;
        }
        self.iovecs.drain(..whole);
        !self.iovecs.is_empty()
    }
}
