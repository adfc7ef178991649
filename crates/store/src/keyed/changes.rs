//! What a transaction changes, laid over the database.
//!
//! Whatever a transaction does to one key more than once reaches the database once: onodes that
//! every operation changes are kept decoded and encoded at the end (as Ceph's stores do). Dropping
//! it leaves no trace.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use denc::Denc;
use types::hobject::GhObject;

use super::keys::{Cnode, behind, cnode_key, object_of, onode_key, onodes_of};
use super::{Keys, Onode, decoded};
use crate::kv::KvBatch;
use crate::{CollId, StoreError};

/// Changes over a database.
pub(crate) struct Changes<'a, O> {
    base: &'a dyn Keys,
    /// By key; `None` deletes.
    writes: BTreeMap<Bytes, Option<Bytes>>,
    /// Onodes as they are now, by key, `None` if there is none (any more); and whether changed.
    onodes: BTreeMap<Bytes, (Option<O>, bool)>,
}

impl<'a, O: Onode> Changes<'a, O> {
    /// None yet.
    pub(crate) fn over(base: &'a dyn Keys) -> Changes<'a, O> {
        Changes { base, writes: BTreeMap::new(), onodes: BTreeMap::new() }
    }

    /// Whether nothing has been put or deleted; onodes count when settled.
    pub(crate) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        match self.writes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.base.get(key),
        }
    }

    pub(crate) fn put(&mut self, key: Bytes, value: impl Into<Bytes>) {
        self.writes.insert(key, Some(value.into()));
    }

    pub(crate) fn delete(&mut self, key: Bytes) {
        self.writes.insert(key, None);
    }

    /// Puts a value, or deletes the key of none.
    pub(crate) fn set(&mut self, key: Bytes, value: Option<Bytes>) {
        self.writes.insert(key, value);
    }

    /// Keys there are in `start..end`, in order.
    pub(crate) fn keys(&self, start: &[u8], end: &[u8]) -> Result<Vec<Bytes>, StoreError> {
        let mut found = BTreeMap::new();
        self.base.scan(start, end, &mut |key, _| {
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
    pub(crate) fn delete_range(&mut self, start: &[u8], end: &[u8]) -> Result<(), StoreError> {
        for key in self.keys(start, end)? {
            self.delete(key);
        }
        Ok(())
    }

    /// An object, if there is one.
    pub(crate) fn onode(&mut self, cid: &CollId, oid: &GhObject) -> Result<Option<O>, StoreError> {
        let key = onode_key(cid, oid);
        if let Some((onode, _)) = self.onodes.get(&key) {
            return Ok(onode.clone());
        }
        let onode = match self.get(&key)? {
            Some(value) => Some(decoded::<O>(&value, "an onode")?),
            None => None,
        };
        self.onodes.insert(key, (onode.clone(), false));
        Ok(onode)
    }

    /// Sets what an object is, or that it is not.
    pub(crate) fn set_onode(&mut self, cid: &CollId, oid: &GhObject, onode: Option<O>) {
        self.onodes.insert(onode_key(cid, oid), (onode, true));
    }

    pub(crate) fn set_cnode(&mut self, cid: &CollId, cnode: Option<Cnode>) {
        self.set(cnode_key(cid), cnode.map(|cnode| cnode.to_bytes()));
    }

    /// The objects of a collection.
    pub(crate) fn objects(&mut self, cid: &CollId) -> Result<Vec<GhObject>, StoreError> {
        self.settle();
        let start = onodes_of(cid);
        let keys = self.keys(&start, &behind(&start))?;
        let object = |key: &Bytes| object_of(key).ok_or(StoreError::Format("an onode's key"));
        keys.iter().map(object).collect()
    }

    /// Encodes the changed onodes into the changes.
    pub(crate) fn settle(&mut self) {
        for (key, (onode, changed)) in std::mem::take(&mut self.onodes) {
            if changed {
                self.set(key, onode.map(|onode| onode.to_bytes()));
            }
        }
    }

    /// Moves the changes into a batch for the database. `put` hears the letter of each key and
    /// how many bytes go into the batch for it.
    pub(crate) fn take_batch(&mut self, put: &mut dyn FnMut(u8, u64)) -> KvBatch {
        self.settle();
        let mut batch = KvBatch::new();
        for (key, value) in std::mem::take(&mut self.writes) {
            let len = key.len() + value.as_ref().map_or(0, Bytes::len);
            put(key.first().copied().unwrap_or(0), len as u64);
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            };
        }
        batch
    }
}
