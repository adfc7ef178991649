//! Opening block files, and what both reactors need to know of one.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use super::checked;
use crate::{AlignedBuf, OpenBlock};

/// Unit of I/O where the kernel does not tell and nothing can be tried.
const BLOCK_LEN_DEFAULT: u32 = 4096;
/// Tries to lock a file, a tenth of a second apart: a process just killed may not be gone yet.
const LOCK_TRIES: u32 = 50;

/// An open block file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) file: File,
    pub(super) len: u64,
    pub(super) block_len: u32,
    /// What addresses of buffers are multiples of (1 when I/O is buffered).
    memory_align: usize,
    read_only: bool,
}

impl Opened {
    pub(super) fn open(path: &Path, options: OpenBlock) -> io::Result<Opened> {
        let create = options.create_len.is_some();
        let open = |flags| {
            let mut how = OpenOptions::new();
            how.read(true).write(!options.read_only).create(create && !options.read_only);
            how.custom_flags(flags).open(path)
        };
        let (mut file, direct) = match open(libc::O_DIRECT) {
            Ok(file) => (file, true),
            // The file system cannot: go through the page cache.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => (open(0)?, false),
            Err(error) => return Err(error),
        };
        if !options.read_only {
            lock(&file)?;
        }
        let kind = file.metadata()?.file_type();
        if kind.is_file()
            && !options.read_only
            && let Some(len) = options.create_len
            && file.metadata()?.len() < len
        {
            file.set_len(len)?;
        } else if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{}: neither a file nor a block device", path.display()),
            ));
        }
        let len = file.seek(SeekFrom::End(0))?;
        let untold = || (tried(&file), if direct { AlignedBuf::ALIGN } else { 1 });
        let (block_len, memory_align) =
            direct.then(|| told(&file)).flatten().unwrap_or_else(untold);
        Ok(Opened { file, len, block_len, memory_align, read_only: options.read_only })
    }

    /// Refuses a range that direct I/O or the file's end would.
    pub(super) fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        let block_len = u64::from(self.block_len);
        let end = offset.checked_add(len);
        if offset.is_multiple_of(block_len)
            && len.is_multiple_of(block_len)
            && end.is_some_and(|end| end <= self.len)
        {
            return Ok(());
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("range {offset}~{len} of a file of {} in blocks of {block_len}", self.len),
        ))
    }

    /// As [`Opened::check`], for what changes the file.
    pub(super) fn check_write(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.read_only {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        self.check(offset, len)
    }

    /// The same bytes in buffers that direct I/O takes: pieces that are odd in address or length
    /// are copied together, the others kept.
    pub(super) fn fit(&self, bufs: Vec<Bytes>) -> Vec<Bytes> {
        let block_len = self.block_len as usize;
        let fits = |buf: &Bytes| {
            buf.len().is_multiple_of(block_len)
                && (buf.as_ptr() as usize).is_multiple_of(self.memory_align)
        };
        if bufs.iter().all(|buf| fits(buf) && !buf.is_empty()) {
            return bufs;
        }
        let mut fitting = Vec::with_capacity(bufs.len());
        let mut odd: Vec<Bytes> = Vec::new();
        let mut odd_len = 0;
        for buf in bufs.into_iter().filter(|buf| !buf.is_empty()) {
            if odd_len == 0 && fits(&buf) {
                fitting.push(buf);
                continue;
            }
            odd_len += buf.len();
            odd.push(buf);
            if odd_len.is_multiple_of(block_len) {
                fitting.push(joined(&odd, odd_len));
                odd.clear();
                odd_len = 0;
            }
        }
        debug_assert_eq!(odd_len, 0, "the total was checked to be whole blocks");
        fitting
    }
}

impl Drop for Opened {
    /// No operation uses the file any more, yet the kernel may keep it open: an io_uring whose
    /// completions are deferred lets go of one when its thread next enters the kernel for it.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn joined(bufs: &[Bytes], len: usize) -> Bytes {
    let mut whole = AlignedBuf::scratch(len);
    let mut at = 0;
    for buf in bufs {
        whole.copy_from_slice_at(at, buf);
        at += buf.len();
    }
    whole.freeze()
}

/// Takes the file for this process alone, until it is closed.
pub(super) fn lock(file: &File) -> io::Result<()> {
    for _ in 1..LOCK_TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(100)),
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    file.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::WouldBlock, "another process has it open")
        }
        TryLockError::Error(error) => error,
    })
}

/// Unit of direct I/O and alignment of its memory, both in bytes, as the kernel tells them (of files: since 6.1).
fn told(file: &File) -> Option<(u32, usize)> {
    let mut stat = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: an empty path with AT_EMPTY_PATH names the descriptor itself; there is room for the
    // answer, and zeros are a valid one.
    let stat = unsafe {
        libc::statx(
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            stat.as_mut_ptr(),
        );
        stat.assume_init()
    };
    if stat.stx_mask & libc::STATX_DIOALIGN != 0 && stat.stx_dio_offset_align.is_power_of_two() {
        let block_len = stat.stx_dio_offset_align.clamp(512, BLOCK_LEN_DEFAULT);
        return Some((block_len, (stat.stx_dio_mem_align.max(1) as usize).min(AlignedBuf::ALIGN)));
    }
    let mut sector: libc::c_int = 0;
    // SAFETY: BLKSSZGET writes one int; on anything but a block device it fails.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), libc::BLKSSZGET, &mut sector) };
    match u32::try_from(sector) {
        Ok(sector @ (512 | 4096)) if checked(answer).is_ok() => Some((sector, sector as usize)),
        _ => None,
    }
}

/// The same of a file that holds something, by reading its second 512 bytes: what was made in such units is kept in them where
/// nothing is told. Of a hole anything may be read, so what is made anew there is made in the larger unit.
fn tried(file: &File) -> u32 {
    const SHORT: u32 = 512;
    let at = libc::off_t::from(SHORT);
    // SAFETY: no memory is passed. Nobody uses the descriptor's position.
    let data = unsafe { libc::lseek(file.as_raw_fd(), at, libc::SEEK_DATA) };
    let mut buf = AlignedBuf::scratch(SHORT as usize);
    match data == at && file.read_exact_at(&mut buf, SHORT.into()).is_ok() {
        true => SHORT,
        false => BLOCK_LEN_DEFAULT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a file system's sectors of 512 bytes only newer kernels tell. A store made under such a one did not open under an
    /// older one, where they were taken for 4096 bytes, nor when it had been copied to where there is no direct I/O.
    #[test]
    fn what_is_there_is_tried_where_nothing_is_told() {
        for dir in [std::env::temp_dir(), "/dev/shm".into()] {
            let path = dir.join(format!("env-{}-sectors", std::process::id()));
            let Ok(made) = File::create(&path) else { continue };
            made.set_len(1 << 20).unwrap();
            let options = OpenBlock::default();
            let opened = Opened::open(&path, options).unwrap();
            assert_eq!(tried(&opened.file), BLOCK_LEN_DEFAULT, "a hole in {dir:?}");
            let told_of = told(&opened.file);
            drop(opened);
            made.write_all_at(&[1; 8192], 0).unwrap();
            made.sync_all().unwrap();
            let opened = Opened::open(&path, options).unwrap();
            match told_of {
                Some((block_len, _)) => assert_eq!(tried(&opened.file), block_len, "{dir:?}"),
                None => assert_eq!(opened.block_len, 512, "{dir:?}"),
            }
            std::fs::remove_file(&path).unwrap();
        }
    }
}
