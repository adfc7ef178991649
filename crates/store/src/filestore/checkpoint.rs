//! Snapshots of `current` on btrfs, as Ceph's FileStore takes them (`src/os/filestore/
//! BtrfsFileStoreBackend.cc` at v16.2).
//!
//! `current` is a subvolume, and each commit makes a snapshot of it, `snap_GENERATION`, while no
//! transaction is being applied: all of it up to one entry of the journal, and nothing of what comes
//! after. A mount throws `current` away and begins with the newest snapshot. So a transaction may be
//! applied before the journal has it: what a crash leaves of it is gone with `current`.
//!
//! A snapshot is there whole or not at all, and durable when the call returns: btrfs commits a
//! transaction of its own for it, with all data written before.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::xattr::{self, FileSystemKind};

const CURRENT: &str = "current";
const SNAPSHOT: &str = "snap_";
/// Snapshots that stay: the newest, and the one before it.
const KEPT: usize = 2;
/// Number of a subvolume's root (`BTRFS_FIRST_FREE_OBJECTID`).
const SUBVOLUME_ROOT: u64 = 256;

/// `struct btrfs_ioctl_vol_args` of linux/btrfs.h, and the calls that take it.
#[repr(C)]
struct VolArgs {
    fd: i64,
    name: [u8; 4088],
}

const _: () = assert!(size_of::<VolArgs>() == 4096);

const SNAP_CREATE: libc::c_ulong = 0x5000_9401;
const SUBVOL_CREATE: libc::c_ulong = 0x5000_940e;
const SNAP_DESTROY: libc::c_ulong = 0x5000_940f;

fn call(dir: &Path, request: libc::c_ulong, name: &str, source: Option<&File>) -> io::Result<()> {
    let folder = File::open(dir)?;
    let name = CString::new(name)?;
    let bytes = name.as_bytes_with_nul();
    let mut args =
        VolArgs { fd: source.map_or(0, |file| file.as_raw_fd().into()), name: [0; 4088] };
    args.name[..bytes.len()].copy_from_slice(bytes);
    // SAFETY: the struct is the one these calls read, its name ends in a zero byte, and both
    // descriptors are open.
    let rc = unsafe { libc::ioctl(folder.as_raw_fd(), request as _, &raw const args) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Generations of the snapshots there are, the newest last.
fn snapshots(dir: &Path) -> io::Result<Vec<u64>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let generation = name.to_str().and_then(|name| name.strip_prefix(SNAPSHOT));
        all.extend(generation.and_then(|n| n.parse::<u64>().ok()));
    }
    all.sort_unstable();
    Ok(all)
}

fn name_of(generation: u64) -> String {
    format!("{SNAPSHOT}{generation}")
}

fn remove(dir: &Path, name: &str) -> io::Result<()> {
    match call(dir, SNAP_DESTROY, name, None) {
        // Only root may; whoever else has to empty it first.
        Err(e) if e.raw_os_error() == Some(libc::EPERM) => fs::remove_dir_all(dir.join(name)),
        done => done,
    }
}

fn is_subvolume(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let (kind, _, _) = xattr::file_system(&file)?;
    Ok(kind == FileSystemKind::Btrfs && file.metadata()?.ino() == SUBVOLUME_ROOT)
}

/// Makes `current` of a new store, a subvolume where there are snapshots and they are `wanted`
/// (`filestore_btrfs_snap`). What an earlier store left goes, snapshots and files: a collection of the
/// same name would have them.
pub fn make_current(dir: &Path, wanted: bool) -> io::Result<()> {
    for generation in snapshots(dir)? {
        remove(dir, &name_of(generation))?;
    }
    let current = dir.join(CURRENT);
    if current.exists() {
        match is_subvolume(&current)? {
            true => remove(dir, CURRENT)?,
            false => fs::remove_dir_all(&current)?,
        }
    }
    let (kind, _, _) = xattr::file_system(&File::open(dir)?)?;
    if kind == FileSystemKind::Btrfs && wanted {
        return call(dir, SUBVOL_CREATE, CURRENT, None);
    }
    fs::create_dir_all(current)
}

/// Lets `current` be what the newest snapshot is, if there are any. To be called before anything in
/// it is opened. Cut off, it is done anew.
pub fn roll_back(dir: &Path) -> io::Result<()> {
    let Some(newest) = snapshots(dir)?.pop() else { return Ok(()) };
    if dir.join(CURRENT).exists() {
        remove(dir, CURRENT)?;
    }
    let source = File::open(dir.join(name_of(newest)))?;
    call(dir, SNAP_CREATE, CURRENT, Some(&source))
}

/// The snapshots of a store.
#[derive(Debug)]
pub(super) struct Checkpoints {
    dir: PathBuf,
}

impl Checkpoints {
    /// Of a new store in a folder: those of one whose `current` is a subvolume.
    pub(super) fn of_new(dir: &Path) -> io::Result<Option<Checkpoints>> {
        let is = is_subvolume(&dir.join(CURRENT))?;
        Ok(is.then(|| Checkpoints { dir: dir.to_owned() }))
    }

    /// Of a store that was rolled back; an error if they are gone: nothing says then how much of
    /// `current` is durable.
    pub(super) fn of(dir: &Path) -> io::Result<Option<Checkpoints>> {
        let found = Checkpoints::of_new(dir)?;
        if found.is_some() && snapshots(dir)?.is_empty() {
            let why = "current is a subvolume, but its snapshots (snap_*) are gone";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(found)
    }

    /// Makes `current` as it is durable, under a number larger than all before.
    pub(super) fn take(&self, generation: u64) -> io::Result<()> {
        let source = File::open(self.dir.join(CURRENT))?;
        call(&self.dir, SNAP_CREATE, &name_of(generation), Some(&source))
    }

    /// Lets old ones go.
    pub(super) fn forget_old(&self) -> io::Result<()> {
        let all = snapshots(&self.dir)?;
        for generation in &all[..all.len().saturating_sub(KEPT)] {
            remove(&self.dir, &name_of(*generation))?;
        }
        Ok(())
    }
}
