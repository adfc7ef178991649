//! Group commit: one task that takes what waits, writes it, syncs once and tells all who wait.
//!
//! Alone, a transaction is taken at once; while a batch is on its way the next one fills up.
//! Batches are written one after the other, so only the last one can be torn.
//! How long it waits before it takes them: [`Gathering`].

use std::io;
use std::rc::Rc;
use std::time::Duration;

use device::{DeviceError, WriteCause};
use env::{LocalFuture, Until};
use futures_util::future::join_all;

use super::format::{BLOCK_LEN, BatchHeader, data_crc};
use super::gathering::{self, Gathering};
use super::log::{Batch, join_writes, seal, spill_record};
use super::{Core, Inner, checkpoint as checkpoints};
use crate::StoreError;

/// A batch that takes the device this long is worth a line in the log: who waits for it will ask.
const SLOW: Duration = Duration::from_millis(500);
/// Transactions after which a checkpoint begins: a mount replays not many more in a second.
const REPLAY_MAX: u64 = 200_000;
/// A batch of no more writes than this, the log's among them, has each written until it is durable:
/// the kernel flushes as they end, no thread of its own runs a sync, and nobody waits twice. With
/// more of them one sync for all is cheaper.
const DURABLE_WRITES_MAX: usize = 3;

impl Inner {
    /// Runs until the store is closed or fails.
    pub(super) async fn commit_loop(self: Rc<Inner>) {
        let mut gathering = Gathering::default();
        loop {
            self.work.until(|| self.core.borrow().has_work()).await;
            let full = self.fill_up(&gathering).await;
            if self.core.borrow().failed.is_some() {
                break;
            }
            let (batch, seq, checkpoint) = {
                let mut core = self.core.borrow_mut();
                if core.pending.is_empty() && !core.wants_checkpoint() {
                    // Closing, with nothing left to do.
                    break;
                }
                core.take_batch()
            };
            if let Some(task) = checkpoint {
                self.env.go(checkpoints::run(self.clone(), task));
            }
            let taken = batch.as_ref().map_or(0, |b| u64::from(b.transactions));
            let begun = self.env.now();
            if let Some(batch) = batch
                && let Err(e) = self.write_batch(batch, seq).await
            {
                self.fail(e.into());
                break;
            }
            gathering.after(gathering::Ended {
                seq,
                full,
                taken,
                waiting: u64::from(self.core.borrow().pending.transactions),
                took: self.env.now() - begun,
            });
        }
        self.core.borrow_mut().committing = false;
        self.progress.notify_all();
    }

    /// Waits until the next batch is as full as expected (true), or the time for that is over.
    async fn fill_up(&self, gathering: &Gathering) -> bool {
        let enough = || {
            let core = self.core.borrow();
            let full = u64::from(core.pending.transactions) >= gathering.transactions;
            full || core.must_go_on()
        };
        if enough() {
            return true;
        }
        let filled = self.env.timeout(gathering.time, self.work.until(enough)).await;
        filled.is_ok()
    }

    /// Writes a batch and makes it durable; then its transactions are acknowledged.
    async fn write_batch(&self, mut batch: Batch, seq: u64) -> io::Result<()> {
        let done = self.write_durably(&mut batch, seq).await;
        let waiters = std::mem::take(&mut batch.waiters);
        let answer = match &done {
            Ok(()) => Ok(()),
            Err(e) => Err(StoreError::Device(e.into())),
        };
        if done.is_ok() {
            self.core.borrow_mut().on_durable(batch, seq);
            self.notify_discards();
            self.progress.notify_all();
        }
        for waiter in waiters {
            waiter.send(answer.clone());
        }
        done
    }

    async fn write_durably(&self, batch: &mut Batch, seq: u64) -> io::Result<()> {
        let data = join_writes(std::mem::take(&mut batch.data), WriteCause::Data);
        let until = match data.len() < DURABLE_WRITES_MAX
            && batch.early.is_empty()
            && !self.must_spill(batch)
            && !env::mutant("skip-flush")
        {
            true => Until::Durable,
            false => Until::Written,
        };
        let mut writes: Vec<LocalFuture<io::Result<()>>> = Vec::new();
        for (offset, pieces) in data {
            writes.push(Box::pin(self.device.write_until(until, offset, pieces)));
        }
        let spilled = self.spill(batch, seq, &mut writes)?;
        let stored = self.core.borrow().log.stored_len(batch.payload.len());
        let pos = loop {
            {
                let core = self.core.borrow();
                if let Some(pos) = core.log.place_batch(stored, seq, core.frozen_at) {
                    break pos;
                }
            }
            // A checkpoint is running and will make room.
            self.progress.notified().await;
            if self.core.borrow().failed.is_some() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        };
        {
            let core = &mut *self.core.borrow_mut();
            let header = BatchHeader {
                seq,
                pos,
                epoch: core.log.epoch,
                durable: core.log.durable_seq,
                payload_len: batch.payload.len() as u32,
                transactions: batch.transactions,
                spilled,
                data_hash: batch.data_hash.sealed(),
            };
            let uuid = &core.superblock.uuid;
            let piece = seal(&header, uuid, &batch.payload, &batch.shares, stored);
            core.log.next_pos = pos + stored;
            if let Some((frozen, end)) = &mut core.frozen_at
                && *frozen == seq
            {
                *end = Some(core.log.next_pos);
            }
            let offset = core.log.offset(pos);
            writes.push(Box::pin(self.device.write_until(until, offset, vec![piece])));
        }
        let begun = self.env.now();
        let mut result = Ok(());
        for written in join_all(writes).await {
            result = result.and(written);
        }
        for early in std::mem::take(&mut batch.early) {
            result = result.and(early.await);
        }
        result?;
        if env::mutant("skip-flush") {
            return Ok(());
        }
        let written = self.env.now();
        let synced = match until {
            Until::Durable => Ok(()),
            Until::Written => self.device.sync().await,
        };
        let (write, sync) = (written - begun, self.env.now() - written);
        if write + sync >= SLOW {
            let transactions = batch.transactions;
            tracing::warn!(?write, ?sync, transactions, device = ?self.device, "the device is slow");
        }
        synced
    }

    /// Whether a batch's payload is too long for the log.
    fn must_spill(&self, batch: &Batch) -> bool {
        batch.payload.len() > self.core.borrow().log.payload_max()
    }

    /// Moves a payload that is too long for the log to blocks of its own.
    fn spill(
        &self,
        batch: &mut Batch,
        seq: u64,
        writes: &mut Vec<LocalFuture<io::Result<()>>>,
    ) -> io::Result<bool> {
        if !self.must_spill(batch) {
            return Ok(false);
        }
        let core = &mut *self.core.borrow_mut();
        let blocks = (batch.payload.len() as u64).div_ceil(BLOCK_LEN);
        let extents = u32::try_from(blocks).ok().and_then(|n| core.alloc.allocate(n));
        // Admission keeps blocks for this; without them nothing can be acknowledged any more.
        let extents = extents.ok_or(io::Error::from(io::ErrorKind::StorageFull))?;
        let payload = std::mem::take(&mut batch.payload);
        batch.payload = spill_record(&payload, data_crc(&payload), &extents);
        batch.shares = Default::default();
        let mut payload = payload;
        payload.resize((blocks * BLOCK_LEN) as usize, 0);
        let mut rest = bytes::Bytes::from(payload);
        for extent in &extents {
            let bytes = rest.split_to((u64::from(extent.len) * BLOCK_LEN) as usize);
            let piece = device::Piece::new(bytes, WriteCause::Journal);
            writes.push(Box::pin(self.device.write(extent.offset(), vec![piece])));
        }
        core.spilled.push((seq, extents.into_vec()));
        Ok(true)
    }

    /// Stops everything after a failed write or sync.
    pub(super) fn fail(&self, error: DeviceError) {
        let waiters = {
            let mut core = self.core.borrow_mut();
            if core.failed.is_none() {
                tracing::error!(%error, device = ?self.device, "the store stops: a write failed");
            }
            core.failed.get_or_insert(StoreError::Device(error));
            core.pending.take().waiters
        };
        for waiter in waiters {
            waiter.send(Err(StoreError::Latched));
        }
        self.work.notify_all();
        self.progress.notify_all();
    }
}

impl Core {
    fn has_work(&self) -> bool {
        !self.pending.is_empty() || self.must_go_on()
    }

    /// Whether there is something to do that is not a transaction's.
    fn must_go_on(&self) -> bool {
        self.failed.is_some() || self.closing || self.wants_checkpoint()
    }

    /// Whether a checkpoint should begin with the next batch.
    pub(super) fn wants_checkpoint(&self) -> bool {
        let asked = self.checkpoint_asked > self.checkpoints_begun;
        let long = self.log.is_long() || self.unchecked.transactions > REPLAY_MAX;
        let gone = || self.is_mostly_gone() && self.base_blocks_max() <= self.alloc.free().into();
        !self.checkpointing && (asked || long || gone())
    }

    /// Closes the batch that is being filled. If a checkpoint should begin, it begins here: the
    /// state in memory is the one after this batch.
    fn take_batch(&mut self) -> (Option<Batch>, u64, Option<checkpoints::Task>) {
        let mut seq = self.log.next_seq;
        let batch = (!self.pending.is_empty()).then(|| self.pending.take());
        if let Some(batch) = &batch {
            self.log.next_seq += 1;
            self.unchecked.add(batch.transactions, &batch.payload);
        } else {
            seq -= 1;
        }
        let checkpoint = self.wants_checkpoint().then(|| self.begin_checkpoint(seq));
        (batch, seq, checkpoint)
    }

    fn on_durable(&mut self, batch: Batch, seq: u64) {
        self.log.durable_seq = seq;
        for block in batch.inflight {
            self.inflight.remove(&block);
        }
        self.free_blocks(batch.freed);
        self.pending.freed.extend(batch.freed_again);
    }
}
