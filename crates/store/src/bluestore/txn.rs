//! A transaction being applied: its own changes laid over the store.
//!
//! Onodes, shards and shared blobs that operations change are kept decoded here and reach the
//! database once. Data is put into *direct* writes (to new places, before the metadata commits) or
//! *deferred* ones (in place, after). Dropping it leaves no trace but units taken from the
//! allocator, which [`Txn::took`] names.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use bytes::Bytes;
use denc::Denc;
use device::WriteCause;
use types::hobject::GhObject;

use super::extent_map::Shard;
use super::format::{
    BLOCK_LEN, Cnode, Deferred, Onode, Prefix, SharedBlob, Totals, behind, cnode_key, deferred_key,
    object_of, onode_key, onodes_of, shard_key, shard_of, shared_key, totals_key,
};
use super::{Core, decoded};
use crate::kv::KvBatch;
use crate::{CollId, StoreError};

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
    /// By key; `None` deletes.
    writes: BTreeMap<Bytes, Option<Bytes>>,
    onodes: BTreeMap<Bytes, Cached<Onode>>,
    shards: BTreeMap<Bytes, Cached<Shard>>,
    shared: BTreeMap<u64, Cached<SharedBlob>>,
    totals: Totals,
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
            writes: BTreeMap::new(),
            onodes: BTreeMap::new(),
            shards: BTreeMap::new(),
            shared: BTreeMap::new(),
            totals,
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

    /// A number nobody has.
    pub(super) fn new_id(&mut self) -> u64 {
        self.totals.last_id += 1;
        self.totals.last_id
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        match self.writes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.core.get(key),
        }
    }

    pub(super) fn put(&mut self, key: Bytes, value: impl Into<Bytes>) {
        self.writes.insert(key, Some(value.into()));
    }

    pub(super) fn delete(&mut self, key: Bytes) {
        self.writes.insert(key, None);
    }

    /// Keys there are in `start..end`, in order.
    pub(super) fn keys(&self, start: &[u8], end: &[u8]) -> Result<Vec<Bytes>, StoreError> {
        let mut found = BTreeMap::new();
        self.core.scan(start, end, &mut |key, _| {
            found.insert(Bytes::copy_from_slice(key), true);
            true
        })?;
        let range = (Bound::Included(start), Bound::Excluded(end));
        for (key, value) in self.writes.range::<[u8], _>(range) {
            found.insert(key.clone(), value.is_some());
        }
        let there = found.into_iter().filter(|(_, is)| *is);
        Ok(there.map(|(key, _)| key).collect())
    }

    /// Deletes the keys there are in `start..end`.
    pub(super) fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<(), StoreError> {
        for key in self.keys(start, end)? {
            self.delete(key);
        }
        Ok(())
    }

    /// An object, if there is one.
    pub(super) fn onode(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
    ) -> Result<Option<Onode>, StoreError> {
        let key = onode_key(cid, oid);
        if let Some((onode, _)) = self.onodes.get(&key) {
            return Ok(onode.clone());
        }
        let onode = match self.get(&key)? {
            Some(value) => Some(decoded::<Onode>(&value, "an onode")?),
            None => None,
        };
        self.onodes.insert(key, (onode.clone(), false));
        Ok(onode)
    }

    /// Sets what an object is, or that it is not.
    pub(super) fn set_onode(&mut self, cid: &CollId, oid: &GhObject, onode: Option<Onode>) {
        self.onodes.insert(onode_key(cid, oid), (onode, true));
    }

    /// Part of an object's extent map; empty if it has none there.
    pub(super) fn shard(&self, nid: u64, index: u32) -> Result<Shard, StoreError> {
        let key = shard_key(nid, index);
        if let Some((shard, _)) = self.shards.get(&key) {
            return Ok(shard.clone().unwrap_or_default());
        }
        match self.get(&key)? {
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
        let before = shard.stored();
        change(self, &mut shard)?;
        let mut gone = Vec::new();
        shard.release(self.core.unit(), |offset, len, shared| {
            gone.push((offset, len, shared));
        });
        for (offset, len, shared) in gone {
            self.give_back(offset, len, shared)?;
        }
        self.totals.stored = self.totals.stored + shard.stored() - before;
        let left = Some(shard).filter(|shard| !shard.extents.is_empty());
        self.shards.insert(shard_key(nid, index), (left, true));
        Ok(())
    }

    /// Numbers of an object's shards from `first` on.
    pub(super) fn shards_from(&self, nid: u64, first: u32) -> Result<Vec<u32>, StoreError> {
        let (start, end) = (shard_key(nid, first), shard_key(nid, u32::MAX));
        let mut there = std::collections::BTreeSet::new();
        there.extend(self.keys(&start, &end)?);
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
        Ok(())
    }

    pub(super) fn shared_blob(&mut self, sbid: u64) -> Result<SharedBlob, StoreError> {
        if let Some((blob, _)) = self.shared.get(&sbid) {
            return Ok(blob.clone().unwrap_or_default());
        }
        match self.get(&shared_key(sbid))? {
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
        let runs = self.core.state().alloc.allocate(len);
        let runs = runs.ok_or(StoreError::NoSpace)?;
        self.took.extend(runs.iter().cloned());
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

    pub(super) fn set_cnode(&mut self, cid: &CollId, cnode: Option<Cnode>) {
        match cnode {
            Some(cnode) => self.put(cnode_key(cid), cnode.to_bytes()),
            None => self.delete(cnode_key(cid)),
        }
    }

    /// The objects of a collection.
    pub(super) fn objects(&mut self, cid: &CollId) -> Result<Vec<GhObject>, StoreError> {
        self.settle_onodes();
        let start = onodes_of(cid);
        let keys = self.keys(&start, &behind(&start))?;
        let object = |key: &Bytes| object_of(key).ok_or(StoreError::Format("an onode's key"));
        keys.iter().map(object).collect()
    }

    fn settle_onodes(&mut self) {
        for (key, (onode, changed)) in std::mem::take(&mut self.onodes) {
            if changed {
                self.writes.insert(key, onode.map(|onode| onode.to_bytes()));
            }
        }
    }

    /// The changes for the database, and how many bytes they are by prefix. `freelist` is what the
    /// allocator says of them, `before` the totals that the database has.
    pub(super) fn to_batch(
        &mut self,
        seq: u64,
        freelist: Vec<(Bytes, Bytes)>,
        before: Totals,
    ) -> (KvBatch, BatchBytes) {
        self.settle_onodes();
        for (key, (shard, changed)) in std::mem::take(&mut self.shards) {
            if changed {
                let value = shard.map(|shard| Bytes::from(shard.encode()));
                self.writes.insert(key, value);
            }
        }
        for (sbid, (blob, changed)) in std::mem::take(&mut self.shared) {
            if changed {
                let value = blob.map(|blob| blob.to_bytes());
                self.writes.insert(shared_key(sbid), value);
            }
        }
        let is_changed = !self.writes.is_empty() || !self.deferred.is_empty();
        if is_changed && self.totals != before {
            self.put(totals_key(), self.totals.to_bytes());
        }
        for (key, value) in freelist {
            self.put(key, value);
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
            self.put(deferred_key(seq), record.to_bytes());
        }
        let (mut batch, mut bytes) = (KvBatch::new(), BatchBytes::default());
        for (key, value) in std::mem::take(&mut self.writes) {
            let len = key.len() + value.as_ref().map_or(0, Bytes::len);
            if let Some(prefix) = Prefix::of(&key) {
                bytes[prefix as usize] += len as u64;
            }
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        (batch, bytes)
    }
}
