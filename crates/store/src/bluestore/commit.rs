//! Rounds: what makes transactions durable, many at a time (Ceph's `_kv_sync_thread`).
//!
//! 1. All data that waits for new places is written, and the device is flushed (this also covers the
//!    deferred writes made since the last round).
//! 2. One batch with the changes of all these transactions, and the end of the deferred records
//!    just flushed, goes into the database and its log is synced. Now they are durable.
//! 3. Their deferred writes are made in place, at leisure.
//!
//! What a transaction freed is given out again when its round is over and no deferred record as old
//! as it is left: replayed after a crash, such a record must not hit another's data.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use device::Piece;

use super::format::{BLOCK_LEN, deferred_key};
use super::pending::Turn;
use super::txn::Write;
use super::{Core, State};
use crate::StoreError;
use crate::kv::{KvBatch, storage};

/// Deferred transactions that may wait while others commit (Ceph's bluestore_deferred_batch_ops).
const DEFERRED_MAX: usize = 64;

/// A transaction that has been applied and is not durable.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) seq: u64,
    pub(super) batch: KvBatch,
    pub(super) direct: Vec<Write>,
    pub(super) deferred: Vec<Write>,
    pub(super) freed: Vec<Range<u64>>,
}

/// What has been applied and is not finished. Bound: the transactions that are waited for, and
/// [`DEFERRED_MAX`].
#[derive(Debug, Default)]
pub(super) struct Unfinished {
    /// To be made durable by the next round.
    pending: Vec<Pending>,
    /// Durable; to be written in place.
    deferred: VecDeque<(u64, Vec<Write>)>,
    /// Written in place; covered by the next flush of the device.
    written: Vec<u64>,
    /// Deferred records that the database has or is about to have.
    records: BTreeSet<u64>,
    /// Freed and not yet given out again.
    freed: VecDeque<(u64, Vec<Range<u64>>)>,
}

impl Unfinished {
    pub(super) fn add(&mut self, pending: Pending) {
        if !pending.deferred.is_empty() {
            self.records.insert(pending.seq);
        }
        self.pending.push(pending);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.deferred.is_empty() && self.written.is_empty()
    }

    /// Whether deferred writes should be made now.
    pub(super) fn deferred_is_due(&self) -> bool {
        !self.deferred.is_empty() && (self.pending.is_empty() || self.deferred.len() > DEFERRED_MAX)
    }
}

/// A write's bytes for the device.
fn pieces(write: Write) -> Vec<Piece> {
    let shares = write.shares.into_iter().filter(|(_, n)| *n > 0).collect();
    vec![Piece::shared(write.data, shares)]
}

impl Core {
    /// Makes all that has been applied durable.
    pub(super) fn commit(&self) -> Result<(), StoreError> {
        let _round = self.round();
        self.run_round().map_err(|e| self.latch(e))
    }

    fn run_round(&self) -> Result<(), StoreError> {
        let (pending, written) = {
            let mut state = self.state();
            if let Some(e) = &state.failed {
                return Err(e.clone());
            }
            let unfinished = &mut state.unfinished;
            (std::mem::take(&mut unfinished.pending), std::mem::take(&mut unfinished.written))
        };
        if pending.is_empty() && written.is_empty() {
            return Ok(());
        }
        let mut batch = KvBatch::new();
        let (mut places, mut deferred, mut freed) = (Vec::new(), Vec::new(), Vec::new());
        let mut last = 0;
        let mut wrote = !written.is_empty();
        for p in pending {
            last = p.seq;
            for write in p.direct {
                places.push((p.seq, write.offset, write.data.len() as u64));
                self.device.write(write.offset, pieces(write))?;
                wrote = true;
            }
            batch.append(p.batch);
            if !p.deferred.is_empty() {
                deferred.push((p.seq, p.deferred));
            }
            freed.push((p.seq, p.freed));
        }
        if wrote {
            self.device.sync()?;
        }
        for seq in &written {
            batch.delete(deferred_key(*seq));
        }
        if !batch.is_empty() {
            self.kv.commit(batch.clone()).map_err(storage)?;
        }
        let mut state = self.state();
        let state = &mut *state;
        state.keys.settle(last, &batch);
        for (seq, offset, len) in places {
            state.blocks.settle(Turn { seq, is_deferred: false }, offset, len);
        }
        let unfinished = &mut state.unfinished;
        for seq in &written {
            unfinished.records.remove(seq);
        }
        unfinished.deferred.extend(deferred);
        unfinished.freed.extend(freed);
        self.give_out(state);
        Ok(())
    }

    /// Makes deferred writes in place if there are enough of them, or nothing else to do.
    pub(super) fn write_deferred_if_due(&self) -> Result<(), StoreError> {
        let _round = self.round();
        let is_due = self.state().unfinished.deferred_is_due();
        match is_due {
            true => self.write_deferred().map_err(|e| self.latch(e)),
            false => Ok(()),
        }
    }

    fn write_deferred(&self) -> Result<(), StoreError> {
        let deferred = std::mem::take(&mut self.state().unfinished.deferred);
        // Of a block that is written several times the last is enough.
        let mut latest: BTreeMap<u64, usize> = BTreeMap::new();
        let writes: Vec<(u64, &Write)> = deferred
            .iter()
            .flat_map(|(seq, writes)| writes.iter().map(|write| (*seq, write)))
            .collect();
        let blocks = |write: &Write| {
            let offset = write.offset;
            (0..write.data.len() as u64 / BLOCK_LEN).map(move |n| offset + n * BLOCK_LEN)
        };
        for (index, (_, write)) in writes.iter().enumerate() {
            latest.extend(blocks(write).map(|at| (at, index)));
        }
        for (index, (_, write)) in writes.iter().enumerate() {
            if blocks(write).any(|at| latest[&at] == index) {
                self.device.write(write.offset, pieces((*write).clone()))?;
                self.deferred_writes.fetch_add(1, Ordering::Relaxed);
            }
        }
        let mut state = self.state();
        for (seq, write) in &writes {
            let len = write.data.len() as u64;
            state.blocks.settle(Turn { seq: *seq, is_deferred: true }, write.offset, len);
        }
        let seqs = deferred.iter().map(|(seq, _)| *seq);
        state.unfinished.written.extend(seqs);
        Ok(())
    }

    /// Finishes all there is: afterwards nothing is deferred and all that was freed is free.
    pub(super) fn drain(&self) -> Result<(), StoreError> {
        let _round = self.round();
        while !self.state().unfinished.is_empty() {
            self.run_round().map_err(|e| self.latch(e))?;
            self.write_deferred().map_err(|e| self.latch(e))?;
        }
        Ok(())
    }

    /// Nothing is acknowledged any more.
    pub(super) fn latch(&self, e: StoreError) -> StoreError {
        self.state().failed.get_or_insert(StoreError::Latched);
        e
    }

    /// Makes the deferred writes that a crash left, in the order of their transactions. A unit that a
    /// later transaction freed is left alone: the database, open by now, may have taken it.
    pub(super) fn replay(
        &self,
        records: Vec<(Bytes, super::format::Deferred)>,
    ) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        let mut batch = KvBatch::new();
        for (key, record) in records {
            for (offset, data) in record.writes {
                if !self.alloc().is_used(offset) {
                    continue;
                }
                self.device.write(offset, vec![Piece::new(data, device::WriteCause::Data)])?;
            }
            batch.delete(key);
        }
        self.device.sync()?;
        self.kv.commit(batch).map_err(storage)
    }
}

impl Core {
    /// Gives out again what was freed before the oldest deferred record that is left.
    fn give_out(&self, state: &mut State) {
        let unfinished = &mut state.unfinished;
        let oldest = unfinished.records.first().copied().unwrap_or(u64::MAX);
        let mut alloc = self.alloc();
        while let Some((_, runs)) = unfinished.freed.pop_front_if(|(seq, _)| *seq < oldest) {
            runs.iter().for_each(|run| alloc.release(run));
        }
    }
}
