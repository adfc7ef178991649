//! A small durable key-value database: the monitor's.
//!
//! Blocking: its users are rare and small. Keys are bytes in their natural order; whoever wants
//! Ceph's prefix and key joins them ([`joined_key`]).

mod redb_kv;

use core::fmt;
use std::collections::BTreeMap;

use std::cell::RefCell;
use std::ops::Bound;

use bytes::Bytes;

pub use redb_kv::RedbKv;

/// Ordered keys and values with durable, atomic batches.
pub trait Kv {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError>;
    /// Up to `max` entries with `start <= key < end`, in order. An empty `end` is no limit.
    fn range(&self, start: &[u8], end: &[u8], max: usize) -> Result<Vec<(Bytes, Bytes)>, KvError>;
    /// The last entry with `start <= key < end`. An empty `end` is no limit.
    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<(Bytes, Bytes)>, KvError>;
    /// Applies a batch, in the order of its operations; durable and whole when this returns, and
    /// on an error not there at all, then or after a crash.
    fn commit(&self, batch: KvBatch) -> Result<(), KvError>;
    /// Applies a batch whole; durable with the next [`Kv::commit`] at the latest. For what can be
    /// made again from what is durable.
    fn commit_later(&self, batch: KvBatch) -> Result<(), KvError> {
        self.commit(batch)
    }
    /// Bytes the database takes on its device.
    fn stored_bytes(&self) -> Result<u64, KvError>;
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
    /// What the file holds is no database, or a damaged one.
    Corrupt(String),
}

impl fmt::Display for KvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KvError::Storage(what) => write!(f, "database storage: {what}"),
            KvError::Corrupt(what) => write!(f, "database damaged: {what}"),
        }
    }
}

impl std::error::Error for KvError {}

/// A database that is gone with its owner: for tests.
#[derive(Debug, Default)]
pub struct MemKv {
    map: RefCell<BTreeMap<Bytes, Bytes>>,
}

impl MemKv {
    /// An empty one.
    pub fn new() -> MemKv {
        MemKv::default()
    }
}

/// `start..end` with an empty end meaning no limit.
fn bounds<'a>(start: &'a [u8], end: &'a [u8]) -> (Bound<&'a [u8]>, Bound<&'a [u8]>) {
    let end = if end.is_empty() {
        Bound::Unbounded
    } else {
        Bound::Excluded(end)
    };
    (Bound::Included(start), end)
}

/// Whether nothing can lie in `start..end`.
fn is_empty_range(start: &[u8], end: &[u8]) -> bool {
    !end.is_empty() && start >= end
}

impl Kv for MemKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        Ok(self.map.borrow().get(key).cloned())
    }

    fn range(&self, start: &[u8], end: &[u8], max: usize) -> Result<Vec<(Bytes, Bytes)>, KvError> {
        if is_empty_range(start, end) {
            return Ok(Vec::new());
        }
        let map = self.map.borrow();
        let entries = map.range::<[u8], _>(bounds(start, end)).take(max);
        Ok(entries.map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn last(&self, start: &[u8], end: &[u8]) -> Result<Option<(Bytes, Bytes)>, KvError> {
        if is_empty_range(start, end) {
            return Ok(None);
        }
        let map = self.map.borrow();
        let entry = map.range::<[u8], _>(bounds(start, end)).next_back();
        Ok(entry.map(|(k, v)| (k.clone(), v.clone())))
    }

    fn commit(&self, batch: KvBatch) -> Result<(), KvError> {
        let mut map = self.map.borrow_mut();
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
        Ok(self
            .map
            .borrow()
            .iter()
            .map(|(k, v)| (k.len() + v.len()) as u64)
            .sum())
    }
}
