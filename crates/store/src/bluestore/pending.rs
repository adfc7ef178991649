//! What has been applied and is not yet on the device or in the database, as reads must see it.
//!
//! [`Keys`] are changes laid over the database until a round has committed them, [`Blocks`] the
//! device's blocks that are still to be written. Entries carry the number of their transaction: a
//! round takes away what nobody has changed since.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use super::format::BLOCK_LEN;
use crate::kv::{Direction, Kv, KvBatch, KvError, KvOp};

/// Keys changed since the last commit. Bound: the transactions of two rounds.
#[derive(Debug, Default)]
pub(super) struct Keys {
    changed: BTreeMap<Bytes, (u64, Option<Bytes>)>,
}

impl Keys {
    /// Lays a transaction's changes over those there are. It has no range deletions.
    pub(super) fn add(&mut self, seq: u64, batch: &KvBatch) {
        for op in &batch.ops {
            match op {
                KvOp::Put(key, value) => {
                    self.changed.insert(key.clone(), (seq, Some(value.clone())));
                }
                KvOp::Delete(key) | KvOp::DeleteRange(key, _) => {
                    self.changed.insert(key.clone(), (seq, None));
                }
            }
        }
    }

    /// Forgets a batch that the database has: what no transaction after `seq` changed.
    pub(super) fn settle(&mut self, seq: u64, batch: &KvBatch) {
        for op in &batch.ops {
            let (KvOp::Put(key, _) | KvOp::Delete(key) | KvOp::DeleteRange(key, _)) = op;
            if self.changed.get(key).is_some_and(|(at, _)| *at <= seq) {
                self.changed.remove(key);
            }
        }
    }

    /// What a key is, if it was changed.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<Bytes>> {
        self.changed.get(key).map(|(_, value)| value.clone())
    }

    /// The changes in `start..end`, in order. An empty end is no limit.
    pub(super) fn range(&self, start: &[u8], end: &[u8]) -> Vec<(Bytes, Option<Bytes>)> {
        if !end.is_empty() && start >= end {
            return Vec::new();
        }
        let end = match end.is_empty() {
            true => Bound::Unbounded,
            false => Bound::Excluded(end),
        };
        self.changed
            .range::<[u8], _>((Bound::Included(start), end))
            .map(|(key, (_, value))| (key.clone(), value.clone()))
            .collect()
    }
}

/// Shows the entries of `start..end` with `changes` (in order, within the range) laid over.
pub(super) fn scan_over(
    kv: &dyn Kv,
    changes: Vec<(Bytes, Option<Bytes>)>,
    start: &[u8],
    end: &[u8],
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), KvError> {
    let mut changes = changes.into_iter().peekable();
    let mut on = true;
    kv.scan(start, end, Direction::Forwards, &mut |key, value| {
        // Changed keys up to this one come first; a change of this very key takes its place.
        while let Some((changed, new)) = changes.next_if(|(changed, _)| &changed[..] <= key) {
            let is_same = changed == key;
            if let Some(new) = new {
                on = visit(&changed, &new);
            }
            if is_same || !on {
                return on;
            }
        }
        on = visit(key, value);
        on
    })?;
    for (key, value) in changes {
        if !on {
            break;
        }
        if let Some(value) = value {
            on = visit(&key, &value);
        }
    }
    Ok(())
}

/// When a block is written: by which transaction, and whether in place after it is durable. One
/// transaction may write a block both ways, to a new unit and once more into that, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) seq: u64,
    pub(super) is_deferred: bool,
}

/// Blocks that are to be written, by number. Bound: as [`Keys`], and the deferred writes.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    waiting: BTreeMap<u64, (Turn, Bytes)>,
}

impl Blocks {
    /// Adds whole blocks at a device offset.
    pub(super) fn add(&mut self, turn: Turn, offset: u64, data: &Bytes) {
        for n in 0..data.len() as u64 / BLOCK_LEN {
            let piece = data.slice((n * BLOCK_LEN) as usize..((n + 1) * BLOCK_LEN) as usize);
            self.waiting.insert(offset / BLOCK_LEN + n, (turn, piece));
        }
    }

    /// Forgets blocks that the device has, unless they are written again after `turn`.
    pub(super) fn settle(&mut self, turn: Turn, offset: u64, len: u64) {
        for n in offset / BLOCK_LEN..(offset + len) / BLOCK_LEN {
            if self.waiting.get(&n).is_some_and(|(at, _)| *at <= turn) {
                self.waiting.remove(&n);
            }
        }
    }

    /// Those within `offset..offset + len`, by device offset.
    pub(super) fn within(&self, offset: u64, len: u64) -> Vec<(u64, Bytes)> {
        self.waiting
            .range(offset / BLOCK_LEN..(offset + len).div_ceil(BLOCK_LEN))
            .map(|(n, (_, data))| (n * BLOCK_LEN, data.clone()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::MemKv;

    #[test]
    fn a_scan_shows_the_changes_and_stops_when_told() {
        let kv = MemKv::new();
        let mut batch = KvBatch::new();
        for key in ["b", "d", "f"] {
            batch.put(key, "old");
        }
        kv.commit(batch).unwrap();
        let mut keys = Keys::default();
        let mut batch = KvBatch::new();
        batch.put("a", "1").delete("b").put("d", "2").put("e", "3").put("g", "4");
        keys.add(1, &batch);
        for max in 1..7 {
            let mut seen = Vec::new();
            scan_over(&kv, keys.range(b"a", b"h"), b"a", b"h", &mut |key, value| {
                seen.push(format!("{}{}", key[0] as char, value[0] as char));
                seen.len() < max
            })
            .unwrap();
            let all = ["a1", "d2", "e3", "fo", "g4"];
            assert_eq!(seen, all[..max.min(5)], "{max}");
        }
        let mut later = KvBatch::new();
        later.put("a", "9");
        keys.add(2, &later);
        keys.settle(1, &batch);
        assert_eq!(keys.get(b"a"), Some(Some("9".into())));
        assert_eq!(keys.range(b"", b"").len(), 1);
    }
}
