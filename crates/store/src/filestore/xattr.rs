//! A file's own attributes: the system calls.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::null_mut;

/// What the names of objects' xattrs begin with on their files.
pub(super) const PREFIX: &[u8] = b"user.ceph.";
/// Of our own notes.
pub(super) const ID: &[u8] = b"user.loligo.id";
pub(super) const GUARD: &[u8] = b"user.loligo.seq";

fn c_name(name: &[u8]) -> io::Result<CString> {
    CString::new(name).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn length(got: isize) -> io::Result<usize> {
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

/// An attribute, if there is one.
pub(super) fn get(file: &File, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let (name, fd) = (c_name(name)?, file.as_raw_fd());
    loop {
        // SAFETY: a length of 0 writes nothing.
        let len = length(unsafe { libc::fgetxattr(fd, name.as_ptr(), null_mut(), 0) });
        let len = match len {
            Err(e) if e.raw_os_error() == Some(libc::ENODATA) => return Ok(None),
            len => len?,
        };
        let mut value = vec![0; len];
        // SAFETY: the buffer is as long as told.
        let got = unsafe { libc::fgetxattr(fd, name.as_ptr(), value.as_mut_ptr().cast(), len) };
        match length(got) {
            Ok(got) => {
                value.truncate(got);
                return Ok(Some(value));
            }
            Err(e) if e.raw_os_error() == Some(libc::ERANGE) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Sets an attribute.
pub(super) fn set(file: &File, name: &[u8], value: &[u8]) -> io::Result<()> {
    let name = c_name(name)?;
    // SAFETY: the buffer is as long as told.
    let done = unsafe {
        libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    length(done as isize).map(|_| ())
}

/// Removes an attribute, if there is one.
pub(super) fn remove(file: &File, name: &[u8]) -> io::Result<()> {
    let name = c_name(name)?;
    // SAFETY: no memory but the name is passed.
    match length(unsafe { libc::fremovexattr(file.as_raw_fd(), name.as_ptr()) } as isize) {
        Err(e) if e.raw_os_error() != Some(libc::ENODATA) => Err(e),
        _ => Ok(()),
    }
}

/// Names of all attributes of objects, without [`PREFIX`].
pub(super) fn names(file: &File) -> io::Result<Vec<Vec<u8>>> {
    let fd = file.as_raw_fd();
    loop {
        // SAFETY: a length of 0 writes nothing.
        let len = length(unsafe { libc::flistxattr(fd, null_mut(), 0) })?;
        let mut list = vec![0_u8; len];
        // SAFETY: the buffer is as long as told.
        match length(unsafe { libc::flistxattr(fd, list.as_mut_ptr().cast(), len) }) {
            Ok(got) => {
                list.truncate(got);
                let names = list.split(|&b| b == 0).filter_map(|n| n.strip_prefix(PREFIX));
                return Ok(names.map(<[u8]>::to_vec).collect());
            }
            Err(e) if e.raw_os_error() == Some(libc::ERANGE) => {}
            Err(e) => return Err(e),
        }
    }
}

/// How much a file system takes: most inline attributes, longest value (Ceph's
/// filestore_max_inline_xattrs and _xattr_size, by file system).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InlineXattrs {
    /// Most attributes.
    pub count: usize,
    /// Bytes of the longest value.
    pub len: usize,
}

/// A file system that FileStore knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystemKind {
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
    /// ext4, tmpfs and what else there is.
    Other,
}

/// Which file system a file is on, and its size and free space in bytes.
pub(super) fn file_system(file: &File) -> io::Result<(FileSystemKind, u64, u64)> {
    const XFS: i64 = 0x5846_5342;
    const BTRFS: i64 = 0x9123_683e;
    // SAFETY: all zeros is a value of this plain struct.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: the place is one for the call to fill.
    length(unsafe { libc::fstatfs(file.as_raw_fd(), &raw mut stat) } as isize)?;
    let kind = match stat.f_type {
        XFS => FileSystemKind::Xfs,
        BTRFS => FileSystemKind::Btrfs,
        _ => FileSystemKind::Other,
    };
    let block = stat.f_bsize.unsigned_abs();
    Ok((kind, stat.f_blocks * block, stat.f_bavail * block))
}

/// Makes everything on the file's file system durable.
pub(super) fn sync_file_system(file: &File) -> io::Result<()> {
    // SAFETY: no memory is passed.
    length(unsafe { libc::syncfs(file.as_raw_fd()) } as isize).map(|_| ())
}

/// Gives a range of a file back: it reads as zeros. False if the file system cannot.
pub(super) fn punch(file: &File, offset: u64, len: u64) -> io::Result<bool> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // SAFETY: no memory is passed.
    let done =
        unsafe { libc::fallocate(file.as_raw_fd(), mode, offset.cast_signed(), len.cast_signed()) };
    match length(done as isize) {
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
        done => done.map(|_| true),
    }
}

/// The ranges of a file that hold data, as the file system knows them.
pub(super) fn data_ranges(file: &File, end: u64) -> io::Result<Vec<std::ops::Range<u64>>> {
    let seek = |at: u64, whence| {
        // SAFETY: no memory is passed.
        let found = unsafe { libc::lseek(file.as_raw_fd(), at.cast_signed(), whence) };
        match length(found as isize) {
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            found => found.map(|at| Some(at as u64)),
        }
    };
    let (mut at, mut ranges) = (0, Vec::new());
    while at < end {
        let Some(from) = seek(at, libc::SEEK_DATA)?.filter(|from| *from < end) else { break };
        let to = seek(from, libc::SEEK_HOLE)?.unwrap_or(end).min(end);
        ranges.push(from..to);
        at = to;
    }
    Ok(ranges)
}
