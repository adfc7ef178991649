//! What every front end does with a request for an image: `nbd` and `ublk` speak different
//! protocols, but mean the same reads and writes and answer with the same error numbers.

use bytes::Bytes;
use client::ClientError;
use client::rbd::Image;
use env::Env;
use types::{BufferList, Errno};

/// Bytes that the requests of one connection or device read or write at a time.
pub(super) const BYTES_MAX: u64 = 64 << 20;

/// A request.
#[derive(Debug)]
pub(super) enum Request {
    Read(u64, u64),
    Write(u64, Bytes),
    /// Offset and length: read as zeros, and give the space back.
    Discard(u64, u64),
    WriteZeroes(u64, u64),
    Flush,
}

impl Request {
    /// The offset, the bytes touched and whether they change.
    fn range(&self) -> (u64, u64, bool) {
        match self {
            Request::Read(offset, len) => (*offset, *len, false),
            Request::Write(offset, data) => (*offset, data.len() as u64, true),
            Request::Discard(offset, len) => (*offset, *len, false),
            Request::WriteZeroes(offset, len) => (*offset, *len, true),
            Request::Flush => (0, 0, false),
        }
    }
}

/// Does it; what was read. Behind the end writes find a full disk (ENOSPC), others EINVAL.
pub(super) async fn perform(image: &Image, request: Request) -> Result<BufferList, ClientError> {
    let (offset, len, writes) = request.range();
    if offset.checked_add(len).is_none_or(|end| end > image.size()) {
        return Err(if writes { Errno::ENOSPC } else { Errno::EINVAL }.into());
    }
    match request {
        Request::Read(offset, len) => return image.read(offset, len).await,
        Request::Write(offset, data) => image.write(offset, data).await?,
        Request::Discard(offset, len) => image.discard(offset, len).await?,
        Request::WriteZeroes(offset, len) => image.write_zeroes(offset, len).await?,
        // Whatever has been answered is durable already.
        Request::Flush => {}
    }
    Ok(BufferList::new())
}

/// The error's number, of those that both NBD and the kernel's block layer know.
pub(super) fn errno(error: &ClientError) -> i32 {
    match error {
        ClientError::Errno(Errno::EPERM | Errno::EROFS | Errno::EACCES) => libc::EPERM,
        ClientError::Errno(Errno::ENOMEM) => libc::ENOMEM,
        ClientError::Errno(Errno::EINVAL) => libc::EINVAL,
        ClientError::Errno(Errno::ENOSPC | Errno(libc::EDQUOT)) => libc::ENOSPC,
        ClientError::Errno(Errno::EOPNOTSUPP) => libc::EOPNOTSUPP,
        ClientError::Errno(Errno::ESHUTDOWN) | ClientError::Closed => libc::ESHUTDOWN,
        _ => libc::EIO,
    }
}

/// Logs each change of the size, with what it means to those who use the image through us.
pub(super) fn tell_of_resizes(env: &Env, image: &Image, means: &'static str) {
    let image = image.clone();
    env.go(async move {
        loop {
            image.resized().await;
            tracing::warn!("{} has {} bytes now; {means}", image.info().name, image.size());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_change_bytes_find_a_full_disk() {
        let write = Request::Write(5, Bytes::from_static(b"abc"));
        assert_eq!(write.range(), (5, 3, true));
        assert_eq!(Request::WriteZeroes(1, 2).range(), (1, 2, true));
        assert_eq!(Request::Discard(1, 2).range(), (1, 2, false));
        assert_eq!(Request::Read(u64::MAX, 2).range(), (u64::MAX, 2, false));
    }

    #[test]
    fn errors_become_numbers_of_the_protocols() {
        let number = |e: Errno| errno(&e.into());
        assert_eq!(number(Errno::EROFS), 1);
        assert_eq!(number(Errno::ENOSPC), 28);
        assert_eq!(number(Errno(122)), 28);
        assert_eq!(number(Errno::ENOENT), 5);
        assert_eq!(errno(&ClientError::Closed), 108);
    }
}
