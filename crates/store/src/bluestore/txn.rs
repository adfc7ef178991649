//! A transaction being applied: its own changes laid over the store.
//!
//! Onodes, shards and shared blobs that operations change are kept decoded here and reach the
//! database once. Data is put into *direct* writes (to new places, before the metadata commits) or
//! *deferred* ones (in place, after). Dropping it leaves no trace but units taken from the
//! allocator, which [`Txn::took`] names.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use denc::Denc;
use device::WriteCause;

use super::Core;
use super::extent_map::{SHARD_LEN, Shard};
use super::format::{
    BLOCK_LEN, Deferred, Onode, Prefix, SharedBlob, Totals, deferred_key, shard_key, shard_of,
    shared_key,
};
use super::pools::{self, PoolSpace, Pools};
use crate::StoreError;
use crate::keyed::changes::Changes;
use crate::keyed::decoded;
use crate::keyed::keys::totals_key;
use crate::kv::KvBatch;

/// A decoded value and whether it has been changed; `None` if there is none.
type Cached<T> = (Option<T>, bool);

/// Bytes for the device, in place, with the causes of each part.
#[derive(Debug, Clone)]
pub(super) struct Write {
    pub(super) offset: u64,
    /// Whole blocks.
    pub(super) data: Bytes,
    pub(super) shares: Vec<(WriteCause, u64)>,
}

/// Changes over a store.
pub(super) struct Txn<'a> {
    pub(super) core: &'a Core,
    pub(super) changes: Changes<'a, Onode>,
    shards: BTreeMap<Bytes, Cached<Shard>>,
    shared: BTreeMap<u64, Cached<SharedBlob>>,
    totals: Totals,
    /// The pool of the operation that is being applied.
    pub(super) pool: u64,
    /// What pools take, of those that it changes.
    pools: Pools,
    /// Units taken, by device offset.
    pub(super) took: Vec<Range<u64>>,
    /// Units no object has any more.
    pub(super) freed: Vec<Range<u64>>,
    pub(super) direct: Vec<Write>,
    pub(super) deferred: Vec<Write>,
    /// Blocks of both, as reads of this transaction must see them.
    blocks: BTreeMap<u64, Bytes>,
}

/// Bytes of a batch by prefix.
pub(super) type BatchBytes = [u64; Prefix::ALL.len()];

impl<'a> Txn<'a> {
    pub(super) fn new(core: &'a Core, totals: Totals) -> Txn<'a> {
        Txn {
            core,
            changes: Changes::over(core),
            shards: BTreeMap::new(),
            shared: BTreeMap::new(),
            totals,
            pool: 0,
            pools: Pools::new(),
            took: Vec::new(),
            freed: Vec::new(),
            direct: Vec::new(),
            deferred: Vec::new(),
            blocks: BTreeMap::new(),
        }
    }

    /// The totals as this transaction leaves them.
    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// What pools take, of those that it has changed.
    pub(super) fn pools(&self) -> &Pools {
        &self.pools
    }

    fn space(&mut self) -> &mut PoolSpace {
        let known = || self.core.state().pools.get(&self.pool).copied().unwrap_or_default();
        self.pools.entry(self.pool).or_insert_with(known)
    }

    /// A number nobody has.
    pub(super) fn next_id(&mut self) -> u64 {
        self.totals.last_id += 1;
        self.totals.last_id
    }

    /// Part of an object's extent map; empty if it has none there.
    pub(super) fn shard(&self, nid: u64, index: u32) -> Result<Shard, StoreError> {
        let key = shard_key(nid, index);
        if let Some((shard, _)) = self.shards.get(&key) {
            return Ok(shard.clone().unwrap_or_default());
        }
        match self.changes.get(&key)? {
            Some(value) => Shard::decode(&value).ok_or(StoreError::Format("an extent map")),
            None => Ok(Shard::default()),
        }
    }

    /// Changes part of an object's extent map, and gives back what it no longer needs.
    pub(super) fn change_shard(
        &mut self,
        nid: u64,
        index: u32,
        change: impl FnOnce(&mut Txn<'_>, &mut Shard) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut shard = self.shard(nid, index)?;
        let (before, compressed) = (shard.stored(), shard.compressed());
        change(self, &mut shard)?;
        let mut gone = Vec::new();
        shard.release(self.core.unit(), |offset, len, shared| {
            gone.push((offset, len, shared));
        });
        for (offset, len, shared) in gone {
            self.give_back(offset, len, shared)?;
        }
        self.totals.stored = self.totals.stored + shard.stored() - before;
        let is = (shard.stored(), shard.compressed());
        self.space().change((before, compressed), is);
        for ((total, was), is) in
            self.totals.compressed.iter_mut().zip(compressed).zip(shard.compressed())
        {
            *total = (*total + is).saturating_sub(was);
        }
        let left = Some(shard).filter(|shard| !shard.extents.is_empty());
        self.shards.insert(shard_key(nid, index), (left, true));
        Ok(())
    }

    /// Bytes of an object's last block that are mapped and behind its end: extents are of whole
    /// blocks.
    pub(super) fn behind_end(&self, onode: &Onode) -> Result<u64, StoreError> {
        if onode.size.is_multiple_of(BLOCK_LEN) {
            return Ok(0);
        }
        let shard = self.shard(onode.nid, (onode.size / SHARD_LEN) as u32)?;
        Ok(shard.behind_end(onode.size % SHARD_LEN))
    }

    /// Counts them out of what the pool stores.
    pub(super) fn change_behind_ends(&mut self, was: u64, is: u64) {
        self.space().change_stored(is, was);
    }

    /// Changes an object's data, and what its pool stores with it.
    pub(super) fn keeping_count(
        &mut self,
        onode: &mut Onode,
        change: impl FnOnce(&mut Txn<'_>, &mut Onode) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let was = self.behind_end(onode)?;
        change(self, onode)?;
        let is = self.behind_end(onode)?;
        if was != is {
            self.change_behind_ends(was, is);
        }
        Ok(())
    }

    /// Numbers of an object's shards from `first` on.
    pub(super) fn shards_from(&self, nid: u64, first: u32) -> Result<Vec<u32>, StoreError> {
        let (start, end) = (shard_key(nid, first), shard_key(nid, u32::MAX));
        let mut there = std::collections::BTreeSet::new();
        there.extend(self.changes.keys(&start, &end)?);
        for (key, (shard, _)) in self.shards.range(start..end) {
            match shard {
                Some(_) => there.insert(key.clone()),
                None => there.remove(key),
            };
        }
        let number = |key: &Bytes| shard_of(key).ok_or(StoreError::Format("a shard's key"));
        there.iter().map(number).collect()
    }

    /// Drops one reference to a unit.
    fn give_back(&mut self, offset: u64, len: u64, shared: u64) -> Result<(), StoreError> {
        if shared != 0 {
            let mut blob = self.shared_blob(shared)?;
            let refs = blob.refs.get_mut(&offset);
            let refs = refs.ok_or(StoreError::Format("a shared blob lacks a reference"))?;
            *refs -= 1;
            let is_last = *refs == 0;
            if is_last {
                blob.refs.remove(&offset);
            }
            self.set_shared_blob(shared, blob);
            if !is_last {
                return Ok(());
            }
        }
        self.freed.push(offset..offset + len);
        let space = self.space();
        space.allocated = space.allocated.saturating_sub(len);
        Ok(())
    }

    pub(super) fn shared_blob(&mut self, sbid: u64) -> Result<SharedBlob, StoreError> {
        if let Some((blob, _)) = self.shared.get(&sbid) {
            return Ok(blob.clone().unwrap_or_default());
        }
        match self.changes.get(&shared_key(sbid))? {
            Some(value) => decoded(&value, "a shared blob"),
            None => Ok(SharedBlob::default()),
        }
    }

    pub(super) fn set_shared_blob(&mut self, sbid: u64, blob: SharedBlob) {
        let blob = Some(blob).filter(|blob| !blob.refs.is_empty());
        self.shared.insert(sbid, (blob, true));
    }

    /// Takes `len` bytes of the device.
    pub(super) fn allocate(&mut self, len: u64) -> Result<Vec<Range<u64>>, StoreError> {
        let runs = self.core.alloc().allocate(len);
        let runs = runs.ok_or(StoreError::NoSpace)?;
        self.took.extend(runs.iter().cloned());
        self.space().allocated += runs.iter().map(|run| run.end - run.start).sum::<u64>();
        Ok(runs)
    }

    /// Writes to a place that nothing refers to yet.
    pub(super) fn write_direct(&mut self, write: Write) {
        self.see(&write);
        self.direct.push(write);
    }

    /// Writes in place once this is durable.
    pub(super) fn write_deferred(&mut self, write: Write) {
        self.see(&write);
        self.deferred.push(write);
    }

    fn see(&mut self, write: &Write) {
        for n in 0..write.data.len() as u64 / BLOCK_LEN {
            let range = (n * BLOCK_LEN) as usize..((n + 1) * BLOCK_LEN) as usize;
            let block = write.data.slice(range);
            self.blocks.insert(write.offset + n * BLOCK_LEN, block);
        }
    }

    /// Whole blocks of the device, as this transaction sees them.
    pub(super) fn device_blocks(&self, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        let own = self.blocks.range(offset..offset + len);
        let own = own.map(|(at, data)| (*at, data.clone())).collect();
        self.core.device_blocks(offset, len, own)
    }

    /// The changes for the database, and how many bytes they are by prefix. `freelist` is what the
    /// allocator says of them, `before` and `pools` what the database has of totals and pools.
    pub(super) fn take_batch(
        &mut self,
        seq: u64,
        freelist: Vec<(Bytes, Bytes)>,
        before: Totals,
        pools: &Pools,
    ) -> (KvBatch, BatchBytes) {
        self.changes.settle();
        for (key, (shard, changed)) in std::mem::take(&mut self.shards) {
            if changed {
                let value = shard.map(|shard| Bytes::from(shard.encode()));
                self.changes.set(key, value);
            }
        }
        for (sbid, (blob, changed)) in std::mem::take(&mut self.shared) {
            if changed {
                let value = blob.map(|blob| blob.to_bytes());
                self.changes.set(shared_key(sbid), value);
            }
        }
        let is_changed = !self.changes.is_empty() || !self.deferred.is_empty();
        if is_changed && self.totals != before {
            self.changes.put(totals_key(), self.totals.to_bytes());
        }
        for (key, value) in pools::changes(pools, &self.pools) {
            self.changes.set(key, value);
        }
        for (key, value) in freelist {
            self.changes.put(key, value);
        }
        if !self.deferred.is_empty() {
            let mut record = Deferred::default();
            for write in &self.deferred {
                // Later writes of this transaction to the same blocks lie over earlier ones.
                for n in 0..write.data.len() as u64 / BLOCK_LEN {
                    let at = write.offset + n * BLOCK_LEN;
                    record.writes.insert(at, self.blocks[&at].clone());
                }
            }
            self.changes.put(deferred_key(seq), record.to_bytes());
        }
        let mut bytes = BatchBytes::default();
        let batch = self.changes.take_batch(&mut |letter, len| {
            if let Some(prefix) = Prefix::of(letter) {
                bytes[prefix as usize] += len;
            }
        });
        (batch, bytes)
    }
}
