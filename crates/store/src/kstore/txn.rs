//! A transaction being applied: its own changes laid over the database.
//!
//! Whatever a transaction does to one key more than once reaches the database once: stripes
//! written in pieces and onodes changed by every operation are put together here (Ceph's KStore
//! keeps pending stripes and writes each onode at the end, too). Dropping it leaves no trace.

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use types::hobject::GhObject;

use super::format::{Cnode, Onode, Prefix, behind, cnode_key, onode_key, onodes_of, stripe_key};
use super::{decoded, storage};
use crate::kv::{Direction, Kv, KvBatch};
use crate::{CollId, StoreError};

/// Changes over a database.
pub(super) struct Txn<'a> {
    kv: &'a dyn Kv,
    /// By key; `None` deletes.
    writes: BTreeMap<Bytes, Option<Bytes>>,
    /// Onodes as they are now, by key; `None` if there is none (any more). And whether changed.
    onodes: BTreeMap<Bytes, (Option<Onode>, bool)>,
    /// Largest number given out.
    pub(super) last_nid: u64,
    /// Bytes in stripes, more or less than before.
    pub(super) data_delta: i64,
    /// Bytes that clients wrote.
    pub(super) client_bytes: u64,
}

/// Bytes of a batch by prefix.
pub(super) type BatchBytes = [u64; Prefix::ALL.len()];

impl<'a> Txn<'a> {
    pub(super) fn new(kv: &'a dyn Kv, last_nid: u64) -> Txn<'a> {
        Txn {
            kv,
            writes: BTreeMap::new(),
            onodes: BTreeMap::new(),
            last_nid,
            data_delta: 0,
            client_bytes: 0,
        }
    }

    /// A number nobody has.
    pub(super) fn new_nid(&mut self) -> u64 {
        self.last_nid += 1;
        self.last_nid
    }

    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        match self.writes.get(key) {
            Some(value) => Ok(value.clone()),
            None => self.kv.get(key).map_err(storage),
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
        self.kv
            .scan(start, end, Direction::Forwards, &mut |key, _| {
                found.insert(Bytes::copy_from_slice(key), true);
                true
            })
            .map_err(storage)?;
        for (key, value) in self.writes.range::<[u8], _>((
            std::ops::Bound::Included(start),
            std::ops::Bound::Excluded(end),
        )) {
            found.insert(key.clone(), value.is_some());
        }
        Ok(found
            .into_iter()
            .filter(|(_, is)| *is)
            .map(|(k, _)| k)
            .collect())
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

    /// A stripe's bytes, empty if it is not there; may be shorter than a stripe, zeros follow.
    pub(super) fn stripe(&self, onode: &Onode, offset: u64) -> Result<Bytes, StoreError> {
        if !onode.has(offset / u64::from(onode.stripe_size.max(1))) {
            return Ok(Bytes::new());
        }
        match self.get(&stripe_key(onode.nid, offset))? {
            Some(value) => Ok(value),
            None => Err(StoreError::Format("a stripe is missing")),
        }
    }

    pub(super) fn set_cnode(&mut self, cid: &CollId, cnode: Option<Cnode>) {
        match cnode {
            Some(cnode) => self.put(cnode_key(cid), cnode.to_bytes()),
            None => self.delete(cnode_key(cid)),
        }
    }

    /// Moves the onodes of a collection for which `moves` holds.
    pub(super) fn move_onodes(
        &mut self,
        from: &CollId,
        to: &CollId,
        moves: impl Fn(&GhObject) -> bool,
    ) -> Result<(), StoreError> {
        self.settle();
        let start = onodes_of(from);
        for key in self.keys(&start, &behind(&start))? {
            let oid = super::format::object_of(&key).ok_or(StoreError::Format("an onode's key"))?;
            if !moves(&oid) {
                continue;
            }
            // What has its name there goes, with all it has.
            if let Some(value) = self.get(&onode_key(to, &oid))? {
                super::apply::empty(self, &mut decoded::<Onode>(&value, "an onode")?)?;
            }
            if let Some(value) = self.get(&key)? {
                self.put(onode_key(to, &oid), value);
            }
            self.delete(key);
        }
        Ok(())
    }

    /// Encodes the changed onodes into the changes.
    fn settle(&mut self) {
        for (key, (onode, changed)) in std::mem::take(&mut self.onodes) {
            if changed {
                self.writes.insert(key, onode.map(|onode| onode.to_bytes()));
            }
        }
    }

    /// The changes for the database, and how many bytes they are by prefix.
    pub(super) fn into_batch(mut self) -> (KvBatch, BatchBytes) {
        self.settle();
        let (mut batch, mut bytes) = (KvBatch::new(), BatchBytes::default());
        for (key, value) in self.writes {
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
