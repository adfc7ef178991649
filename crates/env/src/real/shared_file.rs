//! Block files with blocking I/O, for threads.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use bytes::Bytes;

use super::file::Opened;
use super::vectored::{IOVECS_MAX, Vectored};
use crate::{AlignedBuf, SharedBlockFile};

impl Opened {
    /// Writes the buffers one behind the other, in as many calls as it takes.
    pub(super) fn write_all_at(&self, offset: u64, bufs: Vec<Bytes>) -> io::Result<()> {
        let mut bufs = Vectored::new(bufs);
        let mut offset = offset;
        loop {
            let count = bufs.iovecs.len().min(IOVECS_MAX) as libc::c_int;
            let (raw, at) = (self.file.as_raw_fd(), offset.cast_signed());
            // SAFETY: the vectors point into the buffers that `bufs` owns, which are only read.
            let written = unsafe { libc::pwritev(raw, bufs.iovecs.as_ptr(), count, at) };
            let written = match usize::try_from(written) {
                Ok(0) if count > 0 => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => written,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => 0,
                    error => return Err(error),
                },
            };
            if !bufs.advance(written) {
                return Ok(());
            }
            offset += written as u64;
        }
    }
}

impl SharedBlockFile for Opened {
    fn len(&self) -> u64 {
        self.len
    }

    fn block_len(&self) -> u32 {
        self.block_len
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        self.check(offset, len as u64)?;
        let mut buf = AlignedBuf::scratch(len);
        self.file.read_exact_at(&mut buf, offset)?;
        Ok(buf)
    }

    fn write_at(&self, offset: u64, bufs: Vec<Bytes>) -> io::Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.check_write(offset, len)?;
        self.write_all_at(offset, self.fit(bufs))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
