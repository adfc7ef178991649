//! OSD maps on this OSD: objects `osdmap.N` and `inc_osdmap.N` of the meta collection, and a cache
//! of the newest ones (`osd_map_cache_size`, 50).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use denc::Denc;
use maps::OsdMap;
use store::{CollId, ObjectStore, StoreError, Transaction};
use types::{Epoch, GhObject, HObject};

/// Maps kept decoded, and encoded for sharing.
pub const CACHE_MAX: usize = 50;

/// An object of the meta collection.
pub fn meta_object(name: impl Into<bstr::BString>) -> GhObject {
    GhObject::from(HObject { name: name.into(), pool: -1, ..HObject::default() })
}

/// The object of a whole map.
pub(crate) fn full_object(epoch: Epoch) -> GhObject {
    meta_object(format!("osdmap.{epoch}"))
}

/// The object of the step that led to a map.
pub(crate) fn inc_object(epoch: Epoch) -> GhObject {
    meta_object(format!("inc_osdmap.{epoch}"))
}

/// See the module.
pub struct MapStore {
    store: Rc<dyn ObjectStore>,
    decoded: RefCell<BTreeMap<Epoch, Rc<OsdMap>>>,
    full: RefCell<BTreeMap<Epoch, Bytes>>,
    incremental: RefCell<BTreeMap<Epoch, Bytes>>,
}

fn shrink<T>(map: &mut BTreeMap<Epoch, T>, max: usize) {
    while map.len() > max {
        map.pop_first();
    }
}

impl MapStore {
    /// An empty cache.
    pub fn new(store: Rc<dyn ObjectStore>) -> MapStore {
        MapStore {
            store,
            decoded: RefCell::default(),
            full: RefCell::default(),
            incremental: RefCell::default(),
        }
    }

    /// Adds a map to a transaction and to the cache.
    pub fn put(&self, map: &Rc<OsdMap>, full: Bytes, inc: Option<Bytes>, t: &mut Transaction) {
        let epoch = map.epoch;
        let meta = CollId::Meta;
        let oid = full_object(epoch);
        t.remove(&meta, &oid);
        t.write(&meta, &oid, 0, full.clone());
        if let Some(inc) = inc {
            let oid = inc_object(epoch);
            t.remove(&meta, &oid);
            t.write(&meta, &oid, 0, inc.clone());
            self.incremental.borrow_mut().insert(epoch, inc);
        }
        self.full.borrow_mut().insert(epoch, full);
        self.decoded.borrow_mut().insert(epoch, map.clone());
        shrink(&mut self.incremental.borrow_mut(), CACHE_MAX);
        // The newest is what somebody far behind gets.
        shrink(&mut self.full.borrow_mut(), 1);
        shrink(&mut self.decoded.borrow_mut(), CACHE_MAX);
    }

    /// Forgets maps before `oldest`, at most some at a time.
    pub fn trim(&self, from: Epoch, oldest: Epoch, t: &mut Transaction) {
        for epoch in from..oldest {
            t.remove(&CollId::Meta, &full_object(epoch));
            t.remove(&CollId::Meta, &inc_object(epoch));
        }
    }

    /// A map in the cache.
    pub fn cached(&self, epoch: Epoch) -> Option<Rc<OsdMap>> {
        self.decoded.borrow().get(&epoch).cloned()
    }

    /// A map, read if need be.
    pub async fn load(&self, epoch: Epoch) -> Result<Option<Rc<OsdMap>>, StoreError> {
        if let Some(map) = self.cached(epoch) {
            return Ok(Some(map));
        }
        let bytes = match self.store.read(&CollId::Meta, &full_object(epoch), 0, 0).await {
            Err(StoreError::NoObject) => return Ok(None),
            bytes => bytes?.to_contiguous(),
        };
        let map = match OsdMap::from_bytes(&bytes) {
            Ok(map) => Rc::new(map),
            Err(e) => {
                tracing::error!("osdmap.{epoch} does not decode: {e}");
                return Ok(None);
            }
        };
        let mut decoded = self.decoded.borrow_mut();
        if decoded.first_key_value().is_none_or(|(first, _)| epoch > *first) {
            decoded.insert(epoch, map.clone());
            shrink(&mut decoded, CACHE_MAX);
        }
        Ok(Some(map))
    }

    /// The newest map's encoding, if it has been received since the start.
    pub fn newest_full(&self) -> Option<(Epoch, Bytes)> {
        self.full.borrow().last_key_value().map(|(e, b)| (*e, b.clone()))
    }

    /// The steps from `from` to `to`, if all of them are in the cache.
    pub fn steps(&self, from: Epoch, to: Epoch) -> Option<BTreeMap<Epoch, Bytes>> {
        let cache = self.incremental.borrow();
        (from..=to).map(|e| Some((e, cache.get(&e)?.clone()))).collect()
    }
}
