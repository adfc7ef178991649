//! BlueFS's log: what there is, as changes, each record in blocks of its own.
//!
//! A record is written and flushed before the next, so after a crash the first place that holds none
//! is the end. The last record but one of a piece of log says where the next piece is. A log that
//! has grown long is written anew elsewhere, and the superblock points there.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use device::WriteCause;

use super::format::{
    BLOCK_LEN, Extent, Names, Op, Role, Superblock, extents_len, join, record, record_len,
    record_ops,
};
use super::{BlueFs, FsError, State};

/// A log is lengthened by so much.
const PIECE_LEN: u64 = 256 << 10;
/// Lengthened when less than this is left; a block of it is never used but for that.
const LEFT_MIN: u64 = 32 << 10;

/// Where the log's files may be: beside the superblock, or where there is room.
const ROLES: [Role; 2] = [Role::Db, Role::Main];

/// The log.
#[derive(Debug, Clone, Default)]
pub(super) struct Log {
    pub(super) extents: Vec<Extent>,
    /// Bytes of records.
    pub(super) len: u64,
    /// Number of the next record.
    next_seq: u64,
    /// The superblock's that points to it.
    version: u64,
}

impl BlueFs {
    /// Reads a log: itself, and what it says there is.
    pub(super) fn replay(&self, superblock: &Superblock) -> Result<(Log, Names), FsError> {
        let mut log = Log {
            extents: superblock.log.clone(),
            len: 0,
            next_seq: superblock.first_seq,
            version: superblock.version,
        };
        let mut names = Names::default();
        while let Some(ops) = self.record_at(&log, log.len, log.next_seq)? {
            for op in &ops.1 {
                if let Op::LogExtent(extent) = op {
                    join(&mut log.extents, *extent);
                }
                names.apply(op).ok_or(FsError::Corrupt("its log contradicts itself"))?;
            }
            log.len += ops.0;
            log.next_seq += 1;
        }
        if log.next_seq == superblock.first_seq {
            return Err(FsError::Corrupt("its log has no beginning"));
        }
        // A record is written when all before it are durable: one behind the end, with a later
        // number, means that the one between was damaged.
        for at in (log.len..extents_len(&log.extents)).step_by(BLOCK_LEN as usize) {
            let block = self.read_extents(&log.extents, at, BLOCK_LEN)?;
            if let Some((_, seq)) = record_len(&block)
                && seq > log.next_seq
                && self.record_at(&log, at, seq)?.is_some()
            {
                return Err(FsError::Corrupt("its log has a damaged middle"));
            }
        }
        Ok((log, names))
    }

    /// Length and operations of the record `seq` at a place, if it is there.
    fn record_at(&self, log: &Log, at: u64, seq: u64) -> Result<Option<(u64, Vec<Op>)>, FsError> {
        let there = extents_len(&log.extents);
        if at + BLOCK_LEN > there {
            return Ok(None);
        }
        let block = self.read_extents(&log.extents, at, BLOCK_LEN)?;
        let Some((len, found)) = record_len(&block) else { return Ok(None) };
        if found != seq || at + len > there {
            return Ok(None);
        }
        let bytes = self.read_extents(&log.extents, at, len)?;
        Ok(record_ops(self.seed, at, &bytes).map(|ops| (len, ops)))
    }

    /// Makes the pending changes durable, and gives back the space of what they removed.
    pub(super) fn write_log(&self, state: &mut State) -> Result<(), FsError> {
        if !state.pending.is_empty() {
            self.append_log(state)?;
        }
        self.sweep(state);
        Ok(())
    }

    fn append_log(&self, state: &mut State) -> Result<(), FsError> {
        if state.log.len > self.log_len_min && self.is_long(state) {
            // It may fail for lack of space in one piece; then the old one goes on.
            match self.rewrite_log(state) {
                Err(FsError::NoSpace) => {}
                result => return result,
            }
        }
        let log = &mut state.log;
        let len = record(self.seed, log.next_seq, log.len, &state.pending).len() as u64;
        let left = extents_len(&log.extents).saturating_sub(log.len + len);
        let mut added = Vec::new();
        if left < LEFT_MIN {
            match self.lend(&ROLES, PIECE_LEN + len) {
                Ok(extents) => added = extents,
                Err(e) if left < BLOCK_LEN => return Err(e),
                // There is a block left to try again.
                Err(_) => {}
            }
        }
        if !added.is_empty() {
            let ops: Vec<Op> = added.iter().map(|e| Op::LogExtent(*e)).collect();
            // On its own: of two records in one write a crash may leave the second alone.
            if let Err(e) = self.append_record(log, &ops) {
                if e == FsError::NoSpace {
                    self.give_back(&added);
                }
                return Err(e);
            }
            added.iter().for_each(|e| join(&mut log.extents, *e));
        }
        self.append_record(log, &state.pending)?;
        state.pending.clear();
        state.unlinked.append(&mut state.gone);
        Ok(())
    }

    /// Writes and flushes the next record.
    fn append_record(&self, log: &mut Log, ops: &[Op]) -> Result<(), FsError> {
        let bytes: Bytes = record(self.seed, log.next_seq, log.len, ops).into();
        let len = bytes.len() as u64;
        if log.len + len > extents_len(&log.extents) {
            return Err(FsError::NoSpace);
        }
        let written = self.write_extents(&log.extents, log.len, &bytes, WriteCause::FileSystem)?;
        self.sync_devices(&written)?;
        self.counts.logged_bytes.fetch_add(len, Ordering::Relaxed);
        log.next_seq += 1;
        log.len += len;
        Ok(())
    }

    /// Whether the log is four times as long as it need be.
    fn is_long(&self, state: &State) -> bool {
        let names = &state.names;
        let paths: usize = names.paths.keys().map(|path| path.len() + 40).sum();
        let extents: usize = names.files.values().map(|f| f.extents.len() * 10).sum();
        state.log.len > 4 * (paths + extents) as u64
    }

    /// Writes the log anew, as short as it can be, with the pending changes in it.
    pub(super) fn rewrite_log(&self, state: &mut State) -> Result<(), FsError> {
        let first_seq = state.log.next_seq + 1;
        let bytes: Bytes = record(self.seed, first_seq, 0, &state.names.ops()).into();
        let len = bytes.len() as u64;
        let extents = self.lend(&ROLES, len + PIECE_LEN)?;
        let log = Log { extents, len, next_seq: first_seq + 1, version: state.log.version + 1 };
        let superblock = Superblock {
            uuid: self.uuid,
            salt: self.salt,
            version: log.version,
            first_seq,
            device_lens: self.device_lens(),
            log: log.extents.clone(),
        };
        if superblock.to_block().is_none() {
            self.give_back(&log.extents);
            return Err(FsError::NoSpace);
        }
        let written = self.write_extents(&log.extents, 0, &bytes, WriteCause::FileSystem)?;
        self.sync_devices(&written)?;
        self.write_superblock(&superblock)?;
        self.counts.logged_bytes.fetch_add(len, Ordering::Relaxed);
        self.counts.log_compactions.fetch_add(1, Ordering::Relaxed);
        let old = std::mem::replace(&mut state.log, log);
        self.give_back(&old.extents);
        state.pending.clear();
        state.unlinked.append(&mut state.gone);
        self.sweep(state);
        Ok(())
    }

    /// Gives back what removed files had, once nobody reads them any more.
    fn sweep(&self, state: &mut State) {
        let mut freed: BTreeSet<Extent> = BTreeSet::new();
        state.unlinked.retain(|file| {
            let is_open = std::sync::Arc::strong_count(file) > 1;
            if !is_open {
                freed.extend(file.map().extents.iter());
            }
            is_open
        });
        for extent in freed {
            self.give_back(&[extent]);
        }
    }
}
