//! The store in memory, for tests and for measuring everything but a device.
//!
//! A transaction is durable at once, in the sense that nothing outlives the process; but one that has a
//! file ([`saved`]) is saved there when it is closed, as Ceph's MemStore (`src/os/memstore/MemStore.cc`
//! at v16.2).

mod object;
mod saved;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::path::Path;

use bstr::{BStr, BString};
use bytes::Bytes;
use env::LocalFuture;
use types::bufferlist::BufferList;
use types::hobject::GhObject;

pub(crate) use self::object::omap_page;
use self::object::{Object, PAGE_LEN};
use self::saved::Saved;
use crate::check::{Existing, check, split_moves};
use crate::{
    CollId, Listing, ObjectStat, ObjectStore, OmapPage, Op, Pairs, Statfs, StoreError, Transaction,
};

/// A store in memory, up to a number of bytes.
#[derive(Debug)]
pub struct MemStore {
    state: RefCell<State>,
}

#[derive(Debug)]
struct State {
    colls: BTreeMap<CollId, Collection>,
    limit: u64,
    /// Bytes of all objects ([`Object::allocated`]).
    used: u64,
    closed: bool,
    stops_when_full: bool,
    /// A transaction found no room, and was to be the last; or a file of what was could not be removed.
    stopped: bool,
    /// Where it is saved.
    saved: Option<Saved>,
}

#[derive(Debug, Default)]
struct Collection {
    bits: u32,
    objects: BTreeMap<GhObject, Object>,
}

fn ready<T: 'static>(value: T) -> LocalFuture<T> {
    Box::pin(std::future::ready(value))
}

impl MemStore {
    /// An empty store that takes up to `limit` bytes of data, xattrs and omap.
    pub fn new(limit: u64) -> MemStore {
        let state = State {
            colls: BTreeMap::new(),
            limit,
            used: 0,
            closed: false,
            stops_when_full: false,
            stopped: false,
            saved: None,
        };
        MemStore { state: RefCell::new(state) }
    }

    /// An empty one that is saved in a file when it is closed.
    pub fn make(path: &Path, limit: u64) -> MemStore {
        let store = MemStore::new(limit);
        store.state.borrow_mut().saved = Some(Saved::at(path));
        store
    }

    /// The one that was saved in a file, and will be again.
    pub fn open(path: &Path, limit: u64) -> Result<MemStore, StoreError> {
        let store = MemStore::new(limit);
        {
            let mut state = store.state.borrow_mut();
            let saved = Saved::load(path, &mut state)?;
            state.saved = Some(saved);
        }
        Ok(store)
    }

    /// What was saved stays until it is saved anew when it is closed: for who changes a store that
    /// nobody is served from, and may be ended in the middle of it.
    pub fn keep_saved(self) -> MemStore {
        if let Some(saved) = &mut self.state.borrow_mut().saved {
            saved.keep();
        }
        self
    }

    /// What is counted as used, and what the objects have.
    #[cfg(test)]
    fn counted(&self) -> (u64, u64) {
        let state = self.state.borrow();
        (state.used, state.all())
    }

    fn on<T: 'static>(
        &self,
        cid: &CollId,
        oid: &GhObject,
        f: impl FnOnce(&Object) -> Result<T, StoreError>,
    ) -> LocalFuture<Result<T, StoreError>> {
        let state = self.state.borrow();
        ready(
            state
                .coll(cid)
                .and_then(|c| c.objects.get(oid).ok_or(StoreError::NoObject))
                .and_then(f),
        )
    }
}

impl Existing for State {
    fn collection_len(&self, cid: &CollId) -> Option<usize> {
        self.colls.get(cid).map(|c| c.objects.len())
    }
    fn object_exists(&self, cid: &CollId, oid: &GhObject) -> bool {
        self.colls.get(cid).is_some_and(|c| c.objects.contains_key(oid))
    }
}

impl State {
    fn coll(&self, cid: &CollId) -> Result<&Collection, StoreError> {
        if self.closed {
            return Err(StoreError::Closed);
        }
        self.colls.get(cid).ok_or(StoreError::NoCollection(*cid))
    }

    fn all(&self) -> u64 {
        self.colls.values().flat_map(|c| c.objects.values()).map(Object::allocated).sum()
    }

    /// Bytes that the objects have which a transaction names.
    fn named(&self, t: &Transaction) -> u64 {
        let names: BTreeSet<&GhObject> = t.objects().iter().collect();
        let cids: BTreeSet<&CollId> = t.collections().iter().collect();
        let colls = cids.into_iter().filter_map(|cid| self.colls.get(cid));
        let objects = colls.flat_map(|coll| names.iter().filter_map(|oid| coll.objects.get(*oid)));
        objects.map(Object::allocated).sum()
    }

    /// The most bytes the transaction can add.
    fn growth(&self, t: &Transaction) -> u64 {
        let object = |cid: u32, oid: u32| {
            let coll = self.colls.get(&t.collections()[cid as usize])?;
            coll.objects.get(&t.objects()[oid as usize])
        };
        let of_pairs =
            |pairs: &Pairs| pairs.iter().map(|(k, v)| (k.len() + v.len()) as u64).sum::<u64>();
        let grows = |op: &Op| match op {
            Op::Write { cid, oid, offset, data } => match object(*cid, *oid) {
                Some(o) => o.missing_pages(*offset, data.len() as u64) * PAGE_LEN,
                None => Object::default().missing_pages(*offset, data.len() as u64) * PAGE_LEN,
            },
            Op::SetAttr { name, value, .. } => (name.len() + value.len()) as u64,
            Op::SetAttrs { attrs, .. } => of_pairs(attrs),
            Op::OmapSetKeys { entries, .. } => of_pairs(entries),
            Op::OmapSetHeader { header, .. } => header.len() as u64,
            Op::Clone { cid, oid, .. } | Op::CloneRange { cid, oid, .. } => {
                object(*cid, *oid).map_or(0, Object::allocated)
            }
            _ => 0,
        };
        t.ops().iter().map(grows).sum()
    }

    fn apply(&mut self, t: &Transaction, op: &Op) {
        let cid_at = |i: u32| t.collections()[i as usize];
        let oid_at = |i: u32| &t.objects()[i as usize];
        match op {
            Op::Nop | Op::CollHint { .. } | Op::SetAllocHint { .. } => {}
            Op::MkColl { cid, bits } => {
                let coll = Collection { bits: *bits, ..Collection::default() };
                self.colls.insert(cid_at(*cid), coll);
            }
            Op::RmColl { cid } => {
                self.colls.remove(&cid_at(*cid));
            }
            Op::CollSetBits { cid, bits } => {
                self.colls.entry(cid_at(*cid)).or_default().bits = *bits;
            }
            Op::SplitCollection { cid, bits, rem, to_cid } => {
                let from = self.colls.entry(cid_at(*cid)).or_default();
                from.bits = *bits;
                let all = std::mem::take(&mut from.objects);
                let (moved, kept) = all.into_iter().partition(|(o, _)| split_moves(o, *bits, *rem));
                from.objects = kept;
                let to = self.colls.entry(cid_at(*to_cid)).or_default();
                to.bits = *bits;
                to.objects.extend::<BTreeMap<_, _>>(moved);
            }
            Op::MergeCollection { cid, to_cid, bits } => {
                let from = self.colls.remove(&cid_at(*cid)).unwrap_or_default();
                let to = self.colls.entry(cid_at(*to_cid)).or_default();
                to.bits = *bits;
                to.objects.extend(from.objects);
            }
            Op::Remove { cid, oid } => {
                self.colls.entry(cid_at(*cid)).or_default().objects.remove(oid_at(*oid));
            }
            Op::TryRename { cid, oid, to } => self.rename(t, (*cid, *oid), (*cid, *to)),
            Op::CollMoveRename { cid, oid, to_cid, to } => {
                self.rename(t, (*cid, *oid), (*to_cid, *to));
            }
            Op::Clone { cid, oid, to } => {
                let objects = &mut self.colls.entry(cid_at(*cid)).or_default().objects;
                if let (true, Some(copy)) = (oid != to, objects.get(oid_at(*oid)).cloned()) {
                    objects.insert(oid_at(*to).clone(), copy);
                }
            }
            Op::CloneRange { cid, oid, to, offset, len, to_offset } => {
                let objects = &mut self.colls.entry(cid_at(*cid)).or_default().objects;
                let copied = objects.get(oid_at(*oid)).map(|o| o.read(*offset, *len));
                let to = objects.entry(oid_at(*to).clone()).or_default();
                if let Some(copied) = copied {
                    to.write(*to_offset, &copied);
                }
            }
            Op::Touch { cid, oid }
            | Op::Create { cid, oid }
            | Op::Write { cid, oid, .. }
            | Op::Zero { cid, oid, .. } => {
                let objects = &mut self.colls.entry(cid_at(*cid)).or_default().objects;
                objects.entry(oid_at(*oid).clone()).or_default().apply(op);
            }
            Op::Truncate { cid, oid, .. }
            | Op::SetAttr { cid, oid, .. }
            | Op::SetAttrs { cid, oid, .. }
            | Op::RmAttr { cid, oid, .. }
            | Op::RmAttrs { cid, oid }
            | Op::OmapClear { cid, oid }
            | Op::OmapSetKeys { cid, oid, .. }
            | Op::OmapRmKeys { cid, oid, .. }
            | Op::OmapRmKeyRange { cid, oid, .. }
            | Op::OmapSetHeader { cid, oid, .. } => {
                let objects = &mut self.colls.entry(cid_at(*cid)).or_default().objects;
                if let Some(object) = objects.get_mut(oid_at(*oid)) {
                    object.apply(op);
                }
            }
        }
    }

    fn rename(&mut self, t: &Transaction, from: (u32, u32), to: (u32, u32)) {
        let key =
            |(cid, oid): (u32, u32)| (t.collections()[cid as usize], &t.objects()[oid as usize]);
        let ((from_cid, from_oid), (to_cid, to_oid)) = (key(from), key(to));
        let moved = self.colls.entry(from_cid).or_default().objects.remove(from_oid);
        if let Some(object) = moved {
            self.colls.entry(to_cid).or_default().objects.insert(to_oid.clone(), object);
        }
    }
}

impl ObjectStore for MemStore {
    fn submit(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>> {
        let mut state = self.state.borrow_mut();
        if state.closed {
            return ready(Err(StoreError::Closed));
        }
        if state.stopped {
            return ready(Err(StoreError::Latched));
        }
        if let Err(e) = check(&t, &*state) {
            return ready(Err(e));
        }
        let growth = state.growth(&t);
        if growth > 0 && state.used + growth > state.limit {
            state.stopped = state.stops_when_full;
            return ready(Err(StoreError::NoSpace));
        }
        if let Some(saved) = &mut state.saved
            && let Err(e) = saved.outdate()
        {
            tracing::error!(error = %e, "cannot remove what the memstore saved");
            state.stopped = true;
            return ready(Err(e.into()));
        }
        let before = state.named(&t);
        for op in t.ops() {
            state.apply(&t, op);
        }
        // With or in front of whole collections go objects that the transaction does not name.
        let is_wide = |op: &Op| {
            matches!(
                op,
                Op::RmColl { .. } | Op::SplitCollection { .. } | Op::MergeCollection { .. }
            )
        };
        state.used = match t.ops().iter().any(is_wide) {
            true => state.all(),
            false => state.used + state.named(&t) - before,
        };
        ready(Ok(()))
    }

    fn collections(&self) -> LocalFuture<Result<Vec<CollId>, StoreError>> {
        let state = self.state.borrow();
        ready(match state.closed {
            true => Err(StoreError::Closed),
            false => Ok(state.colls.keys().copied().collect()),
        })
    }

    fn collection_bits(&self, cid: &CollId) -> LocalFuture<Result<u32, StoreError>> {
        ready(self.state.borrow().coll(cid).map(|c| c.bits))
    }

    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> LocalFuture<Result<Listing, StoreError>> {
        ready(self.state.borrow().coll(cid).map(|c| {
            if start >= end {
                return Listing { objects: Vec::new(), next: end.clone() };
            }
            let mut range = c.objects.range(start..end).map(|(oid, _)| oid);
            let objects: Vec<_> = range.by_ref().take(max).cloned().collect();
            let next = range.next().unwrap_or(end).clone();
            Listing { objects, next }
        }))
    }

    fn stat(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<ObjectStat, StoreError>> {
        self.on(cid, oid, |o| Ok(ObjectStat { size: o.size }))
    }

    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<BufferList, StoreError>> {
        self.on(cid, oid, |o| {
            let mut data = BufferList::new();
            data.push(o.read(offset, if len == 0 { u64::MAX } else { len }).into());
            Ok(data)
        })
    }

    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<Vec<Range<u64>>, StoreError>> {
        self.on(cid, oid, |o| Ok(o.extents(offset, len)))
    }

    fn getattr(
        &self,
        cid: &CollId,
        oid: &GhObject,
        name: &[u8],
    ) -> LocalFuture<Result<Bytes, StoreError>> {
        self.on(cid, oid, |o| o.attrs.get(bstr::BStr::new(name)).cloned().ok_or(StoreError::NoAttr))
    }

    fn getattrs(
        &self,
        cid: &CollId,
        oid: &GhObject,
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>> {
        self.on(cid, oid, |o| Ok(o.attrs.iter().map(|(k, v)| (k.clone(), v.clone())).collect()))
    }

    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<Bytes, StoreError>> {
        self.on(cid, oid, |o| Ok(o.omap_header.clone()))
    }

    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>> {
        self.on(cid, oid, |o| {
            Ok(keys.iter().filter_map(|k| Some((k.clone(), o.omap.get(k)?.clone()))).collect())
        })
    }

    fn omap_range(
        &self,
        cid: &CollId,
        oid: &GhObject,
        from: &[u8],
        after: bool,
        max_entries: usize,
        max_bytes: usize,
    ) -> LocalFuture<Result<OmapPage, StoreError>> {
        self.on(cid, oid, |o| {
            let from = BStr::new(from);
            let start = if after { Bound::Excluded(from) } else { Bound::Included(from) };
            let entries = o.omap.range::<BStr, _>((start, Bound::Unbounded));
            Ok(object::omap_page(entries, max_entries, max_bytes))
        })
    }

    fn statfs(&self) -> LocalFuture<Result<Statfs, StoreError>> {
        let state = self.state.borrow();
        if state.closed {
            return ready(Err(StoreError::Closed));
        }
        let used = state.used;
        let objects = || state.colls.values().flat_map(|c| c.objects.values());
        let stored = objects().map(|o| o.pages_len()).sum();
        ready(Ok(Statfs {
            total: state.limit,
            available: state.limit.saturating_sub(used),
            allocated: stored,
            data_stored: stored,
            omap_allocated: objects().map(|o| o.omap_len()).sum(),
            ..Statfs::default()
        }))
    }

    fn stop_when_full(&self) {
        self.state.borrow_mut().stops_when_full = true;
    }

    fn compact(&self) -> LocalFuture<Result<(), StoreError>> {
        ready(Ok(()))
    }

    fn close(&self) -> LocalFuture<Result<(), StoreError>> {
        let mut state = self.state.borrow_mut();
        state.closed = true;
        let saved = state.saved.take().map_or(Ok(()), |mut saved| saved.save(&state));
        ready(saved.map_err(|e| {
            tracing::error!(error = %e, "cannot save the memstore");
            e.into()
        }))
    }
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;

    use super::*;
    use crate::testing::{Dir, Model, Sizes, block_on, transaction};

    #[test]
    fn memory_counts_what_objects_have() {
        block_on(|_| async {
            for seed in 0..20 {
                let store = MemStore::new(1 << 30);
                let (mut model, mut choices) = (Model::default(), Choices::new(seed));
                for step in 0..200 {
                    let t = transaction(&mut choices, &model, Sizes::SMALL);
                    if model.apply(&t).is_ok() {
                        store.submit(t).await.unwrap();
                    }
                    let (used, have) = store.counted();
                    assert_eq!(used, have, "seed {seed}, step {step}");
                }
                assert!(store.counted().0 > 0);
            }
        });
    }

    #[test]
    fn one_that_was_saved_counts_them_too() {
        block_on(|_| async {
            let dir = Dir::new("memstore-counts");
            let path = dir.0.join("saved");
            assert_eq!(MemStore::make(&path, 1 << 20).close().await, Ok(()));
            let store = MemStore::open(&path, 16 << 20).unwrap();
            let (mut model, mut choices) = (Model::default(), Choices::new(9));
            for _ in 0..300 {
                let t = transaction(&mut choices, &model, Sizes::SMALL);
                if model.apply(&t).is_ok() {
                    store.submit(t).await.unwrap();
                }
            }
            store.close().await.unwrap();
            let (used, have) = MemStore::open(&path, 16 << 20).unwrap().counted();
            assert!(used > 0 && used == have, "{used} {have}");
        });
    }
}
