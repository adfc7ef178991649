//! BlueFS: a small file system for a RocksDB, on devices and nothing else (Ceph's
//! `src/os/bluestore/BlueFS.cc` at v16.2). Format and crash argument: docs/format-bluefs.md.
//!
//! Files are appended to by one writer, renamed and removed; there is little else RocksDB wants. What
//! there is, is in memory, and in a log of changes on the device ([`log`]). Files have extents of up
//! to three devices ([`Role`]); each device's space is an [`Allocator`], and that of the main one is
//! BlueStore's: what files have is *lent*.
//!
//! Everything blocks and may be called from any thread: RocksDB has its own. Locks, in this order:
//! a writer's, [`State`], an allocator's or a file's map.

mod face;
mod file;
mod format;
mod frames;
mod log;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use device::{DeviceError, Piece, SharedDevice, WriteCause};

use self::file::File;
use self::format::{
    Extent, Names, Op, RESERVED_LEN, SUPERBLOCK_AT, Superblock, extents_len, is_label, label,
    pieces, seed,
};
use self::log::Log;
use super::alloc::Allocator;

pub(super) use self::face::{Mode, open_rocksdb};
pub(super) use self::format::Role;

use self::format::BLOCK_LEN;

/// Space is taken in multiples of this where a device's own unit is smaller (Ceph's
/// bluefs_shared_alloc_size).
const ALLOC_LEN: u64 = 64 << 10;

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FsError {
    /// There is no such file or directory.
    NotFound,
    /// It is there already, or in use.
    Exists,
    /// No device has room.
    NoSpace,
    /// A device failed, now or earlier.
    Device(DeviceError),
    /// What is there is not what was written.
    Corrupt(&'static str),
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FsError::NotFound => f.write_str("bluefs: not there"),
            FsError::Exists => f.write_str("bluefs: there already"),
            FsError::NoSpace => f.write_str("bluefs: no space left"),
            FsError::Device(error) => write!(f, "bluefs: the device failed: {error}"),
            FsError::Corrupt(what) => write!(f, "bluefs: {what}"),
        }
    }
}

impl std::error::Error for FsError {}

impl From<std::io::Error> for FsError {
    fn from(e: std::io::Error) -> FsError {
        FsError::Device(e.into())
    }
}

/// A device's space, which BlueStore may share.
pub(super) type SharedAllocator = Arc<Mutex<Allocator>>;

/// A device that BlueFS may use.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) device: SharedDevice,
    pub(super) space: SharedAllocator,
}

impl Place {
    /// A device that is BlueFS's alone.
    pub(super) fn own(device: SharedDevice) -> Place {
        let space = Allocator::new(device.len(), ALLOC_LEN, RESERVED_LEN);
        Place { device, space: Arc::new(Mutex::new(space)) }
    }

    fn space(&self) -> MutexGuard<'_, Allocator> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The devices by [`Role`]; the main one is always there.
pub(super) type Places = [Option<Place>; 3];

/// What changes. Bound: some hundred files of RocksDB's.
struct State {
    /// As the log has it, with `pending`.
    names: Names,
    /// Every file there is, by number.
    files: BTreeMap<u64, Arc<File>>,
    /// Changes that the log does not have yet.
    pending: Vec<Op>,
    /// Unlinked by `pending`.
    gone: Vec<Arc<File>>,
    /// Unlinked durably; perhaps still open.
    unlinked: Vec<Arc<File>>,
    log: Log,
    /// RocksDB's locks, by path.
    locks: BTreeSet<Vec<u8>>,
}

/// What Ceph's `perf dump` has in its section `bluefs`.
#[derive(Debug, Default)]
struct Counts {
    log_compactions: AtomicU64,
    /// Bytes of log records.
    logged_bytes: AtomicU64,
    files_written_wal: AtomicU64,
    files_written_sst: AtomicU64,
    /// Bytes to the main device while there is another.
    spilled_bytes: AtomicU64,
    /// Of the logs' bytes: what was there before, and zeros, to fill blocks.
    wal_padding: AtomicU64,
}

/// The file system, mounted.
pub(super) struct BlueFs {
    places: Places,
    uuid: [u8; 16],
    salt: u64,
    seed: u32,
    state: Mutex<State>,
    counts: Counts,
    /// A log longer than this, and than four times what there is, is written anew.
    log_len_min: u64,
    /// Bytes that tables of compactions leave to logs and flushes, while they can wait.
    kept_len: AtomicU64,
    /// Longest that a file waits for space.
    space_wait: Duration,
}

/// So long a file waits for space. A compaction can be done with tables that are not removed yet: something
/// reads them, or a flush that began before them has not ended, or the thread that removes them has no turn.
const SPACE_WAIT: Duration = Duration::from_secs(5);
/// Between two looks.
const SPACE_LOOK: Duration = Duration::from_millis(5);

/// A log at least so long is made short (Ceph's bluefs_log_compact_min_size is 16 MiB).
const LOG_LEN_MIN: u64 = 1 << 20;

impl BlueFs {
    /// Makes an empty one. `salt` is another each time.
    pub(super) fn mkfs(places: &Places, uuid: [u8; 16], salt: u64) -> Result<(), FsError> {
        for role in [Role::Wal, Role::Db] {
            if let Some(place) = &places[role as usize] {
                if place.device.len() < RESERVED_LEN + 4 * ALLOC_LEN {
                    return Err(FsError::NoSpace);
                }
                let piece = Piece::new(label(uuid, role).into(), WriteCause::Superblock);
                place.device.write(0, vec![piece])?;
                place.device.sync()?;
            }
        }
        let fs = BlueFs::of(places.clone(), uuid, salt);
        fs.state().names.next_ino = 1;
        // What the slots had belonged to another.
        for at in SUPERBLOCK_AT {
            let zeros = Piece::new(vec![0; BLOCK_LEN as usize].into(), WriteCause::Superblock);
            fs.first().device.write(at, vec![zeros])?;
        }
        fs.first().device.sync()?;
        let mut state = fs.state();
        fs.rewrite_log(&mut state)?;
        // Its space is the next mount's.
        let extents = state.log.extents.clone();
        fs.give_back(&extents);
        Ok(())
    }

    fn of(places: Places, uuid: [u8; 16], salt: u64) -> BlueFs {
        BlueFs {
            places,
            uuid,
            salt,
            seed: seed(uuid, salt),
            state: Mutex::new(State {
                names: Names::default(),
                files: BTreeMap::new(),
                pending: Vec::new(),
                gone: Vec::new(),
                unlinked: Vec::new(),
                log: Log::default(),
                locks: BTreeSet::new(),
            }),
            counts: Counts::default(),
            log_len_min: LOG_LEN_MIN,
            kept_len: AtomicU64::new(0),
            space_wait: SPACE_WAIT,
        }
    }

    /// Opens the one there is, and takes its files' space from the allocators.
    pub(super) fn mount(places: Places, uuid: [u8; 16]) -> Result<BlueFs, FsError> {
        for role in [Role::Wal, Role::Db] {
            if let Some(place) = &places[role as usize]
                && !is_label(&place.device.read(0, BLOCK_LEN as usize)?, uuid, role)
            {
                return Err(FsError::Corrupt(match role {
                    Role::Wal => "block.wal is not this OSD's",
                    _ => "block.db is not this OSD's",
                }));
            }
        }
        let mut fs = BlueFs::of(places, uuid, 0);
        let mut slots = Vec::new();
        for at in SUPERBLOCK_AT {
            let block = fs.first().device.read(at, BLOCK_LEN as usize)?;
            slots.push(Superblock::of_block(&block).filter(|s| s.uuid == uuid));
        }
        let superblock = slots.iter().flatten().max_by_key(|s| s.version).cloned();
        let superblock = superblock.ok_or(FsError::Corrupt(
            "no superblock (is block.db the one this OSD was made with?)",
        ))?;
        (fs.salt, fs.seed) = (superblock.salt, seed(uuid, superblock.salt));
        fs.load(&superblock)?;
        // What a process that died wrote and did not flush may have been read, here and by RocksDB: it
        // must not go with the power once something stands in space that it says is free.
        for place in fs.places.iter().flatten() {
            place.device.sync()?;
        }
        // Both slots say the same again.
        if slots.iter().any(|slot| slot.as_ref() != Some(&superblock)) {
            fs.write_superblock(&superblock)?;
        }
        Ok(fs)
    }

    /// Reads the log and the ends of the write-ahead logs.
    fn load(&self, superblock: &Superblock) -> Result<(), FsError> {
        let lens = self.device_lens();
        for role in Role::ALL {
            let (was, is) = (superblock.device_lens[role as usize], lens[role as usize]);
            if (was == 0) != (is == 0) || is < was {
                return Err(FsError::Corrupt(match role {
                    Role::Wal => "block.wal is not as when the OSD was made",
                    Role::Db => "block.db is not as when the OSD was made",
                    Role::Main => "block is shorter than when the OSD was made",
                }));
            }
        }
        let (log, names) = self.replay(superblock)?;
        self.lend_all(&log.extents)?;
        for fnode in names.files.values() {
            self.lend_all(&fnode.extents)?;
        }
        let mut files = BTreeMap::new();
        for (ino, fnode) in &names.files {
            files.insert(*ino, Arc::new(self.loaded(fnode)?));
        }
        let mut state = self.state();
        (state.log, state.names, state.files) = (log, names, files);
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn place(&self, role: Role) -> Result<&Place, FsError> {
        let place = self.places[role as usize].as_ref();
        place.ok_or(FsError::Corrupt("an extent of a device that is not there"))
    }

    /// Where the superblock is: the device that is most its own.
    fn first(&self) -> &Place {
        let [_, db, main] = &self.places;
        db.as_ref().or(main.as_ref()).expect("the main device is always there")
    }

    fn device_lens(&self) -> [u64; 3] {
        let len = |place: &Option<Place>| place.as_ref().map_or(0, |p| p.device.len());
        [0, 1, 2].map(|n| len(&self.places[n]))
    }

    /// Takes space that the log says is used.
    fn lend_all(&self, extents: &[Extent]) -> Result<(), FsError> {
        for e in extents {
            let lent = self.place(e.role)?.space().lend_at(&(e.offset..e.offset + e.len));
            lent.ok_or(FsError::Corrupt("space is used twice"))?;
        }
        Ok(())
    }

    fn give_back(&self, extents: &[Extent]) {
        for e in extents {
            if let Some(place) = &self.places[e.role as usize] {
                place.space().take_back(&(e.offset..e.offset + e.len));
            }
        }
    }

    /// Takes `len` bytes of the first of the devices that has them.
    fn lend(&self, roles: &[Role], len: u64) -> Result<Vec<Extent>, FsError> {
        for role in roles {
            let Some(place) = &self.places[*role as usize] else { continue };
            let runs = {
                let mut space = place.space();
                let lent = space.lend(len.next_multiple_of(ALLOC_LEN));
                // The last pieces of a full device.
                lent.or_else(|| space.lend(len))
            };
            let extent = |run: std::ops::Range<u64>| Extent {
                role: *role,
                offset: run.start,
                len: run.end - run.start,
            };
            if let Some(runs) = runs {
                return Ok(runs.into_iter().map(extent).collect());
            }
        }
        Err(FsError::NoSpace)
    }

    /// As [`BlueFs::lend`], for a file: what removed files had, or soon will have had, is waited for.
    fn lend_for_file(
        &self,
        roles: &[Role],
        len: u64,
        cause: WriteCause,
    ) -> Result<Vec<Extent>, FsError> {
        let kept = match cause {
            WriteCause::DatabaseCompaction => self.kept_len.load(Ordering::Relaxed),
            _ => 0,
        };
        let (since, mut has_looked) = (Instant::now(), false);
        loop {
            let is_last = has_looked && since.elapsed() >= self.space_wait;
            if is_last || kept == 0 || self.free_len() >= kept + len {
                match self.lend(roles, len) {
                    Err(FsError::NoSpace) if !is_last => {}
                    lent => return lent,
                }
            }
            let mut state = self.state();
            let had = state.gone.len();
            self.write_log(&mut state)?;
            drop(state);
            if had == 0 && has_looked {
                std::thread::sleep(SPACE_LOOK);
            }
            has_looked = true;
        }
    }

    /// Says what compactions leave to logs and flushes.
    pub(super) fn keep(&self, len: u64) {
        self.kept_len.store(len, Ordering::Relaxed);
    }

    /// Reads whole blocks of what extents hold, from `offset` on.
    fn read_extents(&self, extents: &[Extent], offset: u64, len: u64) -> Result<Bytes, FsError> {
        let pieces = pieces(extents, offset, len);
        let pieces = pieces.ok_or(FsError::Corrupt("a file is longer than its extents"))?;
        let mut out = BytesMut::with_capacity(len as usize);
        for p in pieces {
            let device = &self.place(p.role)?.device;
            out.extend_from_slice(&device.read(p.offset, p.len as usize)?);
        }
        Ok(out.freeze())
    }

    /// Writes whole blocks into extents, from `offset` on; the devices that were written.
    fn write_extents(
        &self,
        extents: &[Extent],
        offset: u64,
        data: &Bytes,
        cause: WriteCause,
    ) -> Result<BTreeSet<Role>, FsError> {
        let pieces = pieces(extents, offset, data.len() as u64);
        let pieces = pieces.ok_or(FsError::Corrupt("a write behind a file's extents"))?;
        let has_other = self.places[..2].iter().any(Option::is_some);
        let (mut written, mut at) = (BTreeSet::new(), 0);
        for p in pieces {
            let piece = data.slice(at..at + p.len as usize);
            let device = &self.place(p.role)?.device;
            device.write(p.offset, vec![Piece::new(piece, cause)])?;
            written.insert(p.role);
            if p.role == Role::Main && has_other {
                self.counts.spilled_bytes.fetch_add(p.len, Ordering::Relaxed);
            }
            at += p.len as usize;
        }
        Ok(written)
    }

    fn sync_devices(&self, roles: &BTreeSet<Role>) -> Result<(), FsError> {
        for role in roles {
            self.place(*role)?.device.sync()?;
        }
        Ok(())
    }

    fn write_superblock(&self, superblock: &Superblock) -> Result<(), FsError> {
        let block: Bytes = superblock.to_block().ok_or(FsError::NoSpace)?.into();
        let device = &self.first().device;
        for at in SUPERBLOCK_AT {
            let piece = Piece::new(block.clone(), WriteCause::Superblock);
            device.write(at, vec![piece])?;
            // One slot is always whole.
            device.sync()?;
        }
        Ok(())
    }

    /// Bytes that files and log have on a device, and that they may have there.
    pub(super) fn space_of(&self, role: Role) -> (u64, u64) {
        match &self.places[role as usize] {
            Some(place) => {
                let space = place.space();
                (space.lent_len(), space.data_len())
            }
            None => (0, 0),
        }
    }

    /// Devices there are besides the main one.
    pub(super) fn own_devices(&self) -> Vec<SharedDevice> {
        let own = self.places[..2].iter().flatten();
        own.map(|place| place.device.clone()).collect()
    }

    /// Names and values for `perf dump`.
    pub(super) fn counters(&self) -> Vec<(&'static str, bool, u64)> {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let (wal_used, wal_total) = self.space_of(Role::Wal);
        let (db_used, db_total) = self.space_of(Role::Db);
        let (slow_used, slow_total) = self.space_of(Role::Main);
        let (files, log_len) = {
            let state = self.state();
            (state.files.len() as u64, state.log.len)
        };
        vec![
            ("bluefs_db_total_bytes", true, db_total),
            ("bluefs_db_used_bytes", true, db_used),
            ("bluefs_wal_total_bytes", true, wal_total),
            ("bluefs_wal_used_bytes", true, wal_used),
            ("bluefs_slow_total_bytes", true, slow_total),
            ("bluefs_slow_used_bytes", true, slow_used),
            ("bluefs_num_files", false, files),
            ("bluefs_log_bytes", true, log_len),
            ("bluefs_log_compactions", false, load(&self.counts.log_compactions)),
            ("bluefs_logged_bytes", true, load(&self.counts.logged_bytes)),
            ("bluefs_files_written_wal", false, load(&self.counts.files_written_wal)),
            ("bluefs_files_written_sst", false, load(&self.counts.files_written_sst)),
            ("bluefs_bytes_written_slow", true, load(&self.counts.spilled_bytes)),
            ("bluefs_wal_padding", true, load(&self.counts.wal_padding)),
        ]
    }

    /// Bytes of all files' extents.
    pub(super) fn used_len(&self) -> u64 {
        let state = self.state();
        let files = state.files.values().map(|f| extents_len(&f.map().extents));
        files.sum::<u64>() + extents_len(&state.log.extents)
    }

    /// About how much of that is in no file: its log, and what is left of the files' last units.
    pub(super) fn overhead(&self) -> u64 {
        let state = self.state();
        extents_len(&state.log.extents) + state.files.len() as u64 * ALLOC_LEN / 2
    }

    /// Bytes that files may still have.
    pub(super) fn free_len(&self) -> u64 {
        let places = self.places[1..].iter().flatten();
        places.map(|place| place.space().free_len()).sum()
    }
}

/// A path as it is kept: parts between single slashes.
fn normal(path: &[u8]) -> Vec<u8> {
    let parts = path.split(|b| *b == b'/');
    let parts: Vec<&[u8]> = parts.filter(|p| !p.is_empty() && *p != b".").collect();
    parts.join(&b'/')
}

/// Changes of names.
impl BlueFs {
    fn change(&self, state: &mut State, op: Op) -> Result<(), FsError> {
        let (before, path) = match &op {
            Op::Link(path, _) | Op::Unlink(path) | Op::Rename(_, path) => {
                (state.names.paths.get(path).copied(), true)
            }
            _ => (None, false),
        };
        state
            .names
            .apply(&op)
            .ok_or(FsError::Corrupt("a change that contradicts what there is"))?;
        if let (Some(ino), true) = (before, path)
            && let Some(file) = state.files.remove(&ino)
        {
            state.gone.push(file);
        }
        state.pending.push(op);
        Ok(())
    }

    /// Whether there is a directory; the root always is.
    pub(super) fn is_dir(&self, path: &[u8]) -> bool {
        let path = normal(path);
        path.is_empty() || self.state().names.dirs.contains(&path)
    }

    /// Whether there is a file.
    pub(super) fn is_file(&self, path: &[u8]) -> bool {
        self.state().names.paths.contains_key(&normal(path))
    }

    /// Makes a directory; it may be there.
    pub(super) fn make_dir(&self, path: &[u8]) -> Result<(), FsError> {
        let path = normal(path);
        let mut state = self.state();
        if path.is_empty() || state.names.dirs.contains(&path) {
            return Ok(());
        }
        self.change(&mut state, Op::Dir(path))
    }

    /// Removes a directory, which must be empty.
    pub(super) fn remove_dir(&self, path: &[u8]) -> Result<(), FsError> {
        if !self.is_dir(path) {
            return Err(FsError::NotFound);
        }
        if !self.children(path)?.is_empty() {
            return Err(FsError::Exists);
        }
        self.change(&mut self.state(), Op::DirGone(normal(path)))
    }

    /// Names of what is in a directory.
    pub(super) fn children(&self, path: &[u8]) -> Result<Vec<Vec<u8>>, FsError> {
        if !self.is_dir(path) {
            return Err(FsError::NotFound);
        }
        let mut start = normal(path);
        if !start.is_empty() {
            start.push(b'/');
        }
        let state = self.state();
        let all = state.names.dirs.iter().chain(state.names.paths.keys());
        let within = all.filter_map(|p| p.strip_prefix(&start[..]));
        let direct = within.filter(|rest| !rest.is_empty() && !rest.contains(&b'/'));
        Ok(direct.map(<[u8]>::to_vec).collect())
    }

    /// Removes a file.
    pub(super) fn remove(&self, path: &[u8]) -> Result<(), FsError> {
        let path = normal(path);
        let mut state = self.state();
        if !state.names.paths.contains_key(&path) {
            return Err(FsError::NotFound);
        }
        self.change(&mut state, Op::Unlink(path))
    }

    /// Gives a file another path, in place of what is there.
    pub(super) fn rename(&self, from: &[u8], to: &[u8]) -> Result<(), FsError> {
        let (from, to) = (normal(from), normal(to));
        let mut state = self.state();
        if !state.names.paths.contains_key(&from) {
            return Err(FsError::NotFound);
        }
        if from == to {
            return Ok(());
        }
        self.change(&mut state, Op::Rename(from, to))
    }

    fn file(&self, path: &[u8]) -> Result<Arc<File>, FsError> {
        let state = self.state();
        let ino = state.names.paths.get(&normal(path)).ok_or(FsError::NotFound)?;
        state.files.get(ino).cloned().ok_or(FsError::NotFound)
    }

    /// Bytes of a file.
    pub(super) fn size(&self, path: &[u8]) -> Result<u64, FsError> {
        Ok(self.file(path)?.map().size)
    }

    /// Makes all changes of names durable.
    pub(super) fn sync_names(&self) -> Result<(), FsError> {
        self.write_log(&mut self.state())
    }

    /// Takes a lock.
    pub(super) fn lock(&self, path: &[u8]) -> Result<(), FsError> {
        match self.state().locks.insert(normal(path)) {
            true => Ok(()),
            false => Err(FsError::Exists),
        }
    }

    /// Gives a lock back.
    pub(super) fn unlock(&self, path: &[u8]) {
        self.state().locks.remove(&normal(path));
    }
}

#[cfg(test)]
mod tests;
