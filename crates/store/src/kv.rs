//! Durable key-value databases: the monitor's small one, and those that stores stand on.
//!
//! Blocking: the monitor's calls are rare and small, stores call from worker threads
//! ([`env::Workers`]). Keys are bytes in their natural order; whoever wants Ceph's prefix and key
//! joins them ([`joined_key`]). [`RedbKv`] is the monitor's, [`NativeKv`] RocksDB or LevelDB.

mod fitted;
mod level_log;
mod native;
mod redb_kv;
mod told;

use core::fmt;
use std::collections::BTreeMap;

use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

pub(crate) use fitted::need;
pub use fitted::{Fitted, fitted};
pub use native::{Engine, FileSystem, LevelDbOptions, NativeKv, RocksDbOptions};
pub use redb_kv::RedbKv;
pub(crate) use told::{storage, written_counters};

/// A database that worker threads share.
pub type SharedKv = Arc<dyn Kv + Send + Sync>;

/// Called with an entry; tells whether to go on.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> bool;

/// Ordered keys and values with durable, atomic batches.
pub trait Kv {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError>;
    /// Shows the entries with `start <= key < end`, in order or backwards, until `visit` has had
    /// enough. An empty `end` is no limit. `visit` must not call the database.
    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), KvError>;
    /// Applies a batch, in the order of its operations; durable and whole when this returns, and
    /// on an error not there at all, then or after a crash. An empty batch makes durable what
    /// [`Kv::commit_later`] applied.
    fn commit(&self, batch: KvBatch) -> Result<(), KvError>;
    /// Applies a batch whole; durable with the next [`Kv::commit`] at the latest, never without
    /// the batches before it.
    fn commit_later(&self, batch: KvBatch) -> Result<(), KvError> {
        self.commit(batch)
    }
    /// Bytes the database takes on its device.
    fn stored_bytes(&self) -> Result<u64, KvError>;
    /// About how many of its bytes are for keys with `start <= key < end` (an empty `end` is no limit),
    /// with what was deleted and is still there. Cheap enough to be asked now and then while writing.
    fn range_bytes(&self, start: &[u8], end: &[u8]) -> Result<u64, KvError> {
        let mut bytes = 0;
        self.scan(start, end, Direction::Forwards, &mut |key, value| {
            bytes += (key.len() + value.len()) as u64;
            true
        })?;
        Ok(bytes)
    }
    /// What the file system that its files are on has left; `None` if they are on none.
    fn file_system_free(&self) -> Result<Option<u64>, KvError> {
        Ok(None)
    }
    /// If much of it is hidden by deletions, begins to give that back. Returns at once, and may have to
    /// be called several times.
    fn reclaim(&self) {}
    /// Rewrites everything into its shortest form.
    fn compact(&self) -> Result<(), KvError> {
        Ok(())
    }
    /// What has been written since it was opened, and why. Zeros if it does not count.
    fn written(&self) -> KvWritten {
        KvWritten::default()
    }

    /// Up to `max` entries with `start <= key < end`, in order. An empty `end` is no limit.
    fn range(&self, start: &[u8], end: &[u8], max: usize) -> Result<Vec<(Bytes, Bytes)>, KvError> {
        let mut entries = Vec::new();
        if max > 0 {
            self.scan(start, end, Direction::Forwards, &mut |key, value| {
                entries.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
                entries.len() < max
            })?;
        }
        Ok(entries)
    }

    /// The last entry with `start <= key < end`. An empty `end` is no limit.
    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<(Bytes, Bytes)>, KvError> {
        let mut last = None;
        self.scan(start, end, Direction::Backwards, &mut |key, value| {
            last = Some((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            false
        })?;
        Ok(last)
    }
}

/// Which way [`Kv::scan`] goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the smallest key.
    Forwards,
    /// From the largest.
    Backwards,
}

/// Bytes a database wrote to its files by cause, and calls. Only grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KvWritten {
    /// Write-ahead log.
    pub wal: u64,
    /// Tables made of what the log holds.
    pub flush: u64,
    /// Tables made of tables.
    pub compaction: u64,
    /// Which tables there are.
    pub manifest: u64,
    /// Options, identity.
    pub other: u64,
    /// Bytes read.
    pub read: u64,
    /// Syncs of files.
    pub syncs: u64,
}

impl KvWritten {
    /// Bytes written for all causes.
    pub fn total(&self) -> u64 {
        self.wal + self.flush + self.compaction + self.manifest + self.other
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvOp {
    /// Sets a key.
    Put(Bytes, Bytes),
    /// Removes a key, if there.
    Delete(Bytes),
    /// Removes all keys with `start <= key < end`. An empty end is no limit.
    DeleteRange(Bytes, Bytes),
}

/// Changes that happen together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KvBatch {
    /// In order.
    pub ops: Vec<KvOp>,
}

impl KvBatch {
    /// No changes.
    pub fn new() -> KvBatch {
        KvBatch::default()
    }

    /// Sets a key.
    pub fn put(&mut self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> &mut KvBatch {
        self.ops.push(KvOp::Put(key.into(), value.into()));
        self
    }

    /// Removes a key.
    pub fn delete(&mut self, key: impl Into<Bytes>) -> &mut KvBatch {
        self.ops.push(KvOp::Delete(key.into()));
        self
    }

    /// Removes a range of keys.
    pub fn delete_range(&mut self, start: impl Into<Bytes>, end: impl Into<Bytes>) -> &mut KvBatch {
        self.ops.push(KvOp::DeleteRange(start.into(), end.into()));
        self
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// Appends another batch's changes.
    pub fn append(&mut self, other: KvBatch) {
        self.ops.extend(other.ops);
    }
}

/// Ceph's two-part key as one: the prefix, a zero byte, the key. Keys of one prefix are together
/// and in their own order.
pub fn joined_key(prefix: &str, key: &[u8]) -> Bytes {
    let mut joined = Vec::with_capacity(prefix.len() + 1 + key.len());
    joined.extend_from_slice(prefix.as_bytes());
    joined.push(0);
    joined.extend_from_slice(key);
    joined.into()
}

/// The range that holds all of [`joined_key`]'s keys of one prefix.
pub fn prefix_range(prefix: &str) -> (Bytes, Bytes) {
    let start = joined_key(prefix, b"");
    let mut end = start.to_vec();
    // The separator is zero, so the end of the range is the prefix followed by one.
    if let Some(last) = end.last_mut() {
        *last = 1;
    }
    (start, end.into())
}

/// The database could not do it. After a `Storage` error nothing is acknowledged any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvError {
    /// Reading or writing failed, now or earlier.
    Storage(String),
    /// The device is full.
    NoSpace(String),
    /// What the file holds is no database, or a damaged one.
    Corrupt(String),
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KvError::Storage(what) => write!(f, "database storage: {what}"),
            KvError::NoSpace(what) => write!(f, "database device full: {what}"),
            KvError::Corrupt(what) => write!(f, "database damaged: {what}"),
        }
    }
}

impl std::error::Error for KvError {}

/// A database that is gone with its owner: for tests and simulations.
#[derive(Debug, Default)]
pub struct MemKv {
    map: Mutex<BTreeMap<Bytes, Bytes>>,
}

impl MemKv {
    /// An empty one.
    pub fn new() -> MemKv {
        MemKv::default()
    }

    fn map(&self) -> MutexGuard<'_, BTreeMap<Bytes, Bytes>> {
        self.map.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// `start..end` with an empty end meaning no limit.
fn bounds<'a>(start: &'a [u8], end: &'a [u8]) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    let end = if end.is_empty() { Bound::Unbounded } else { Bound::Excluded(end) };
    (Bound::Included(start), end)
}

/// Whether nothing can lie in `start..end`.
fn is_empty_range(start: &[u8], end: &[u8]) -> bool {
    !end.is_empty() && start >= end
}

impl Kv for MemKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        Ok(self.map().get(key).cloned())
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        direction: Direction,
        visit: Visit<'_>,
    ) -> Result<(), KvError> {
        if is_empty_range(start, end) {
            return Ok(());
        }
        let map = self.map();
        let mut entries = map.range::<[u8], _>(bounds(start, end));
        while let Some((key, value)) = match direction {
            Direction::Forwards => entries.next(),
            Direction::Backwards => entries.next_back(),
        } {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, batch: KvBatch) -> Result<(), KvError> {
        let mut map = self.map();
        for op in batch.ops {
            match op {
                KvOp::Put(key, value) => {
                    map.insert(key, value);
                }
                KvOp::Delete(key) => {
                    map.remove(&key);
                }
                KvOp::DeleteRange(start, end) => {
                    map.retain(|k, _| *k < start || (!end.is_empty() && *k >= end));
                }
            }
        }
        Ok(())
    }

    fn stored_bytes(&self) -> Result<u64, KvError> {
        let map = self.map();
        Ok(map.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum())
    }
}
