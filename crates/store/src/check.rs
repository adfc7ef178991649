//! Whether a transaction can be applied at all, decided before anything changes.
//!
//! Backends apply operations one after the other; a transaction that fails must leave no trace.
//! So existence is checked first, over a view of the store with the effects of the earlier
//! operations laid over it. What can fail later (space) each backend checks for itself.

use smallvec::SmallVec;
use types::hobject::GhObject;

use crate::object_store::OBJECT_LEN_MAX;
use crate::{CollId, CollIndex, ObjectIndex, Op, StoreError, Transaction};

/// What exists now.
pub trait Existing {
    /// Number of objects of a collection, `None` if there is no such collection.
    fn collection_len(&self, cid: &CollId) -> Option<usize>;
    /// Whether there is such a collection: asked for every operation, the number for few.
    fn collection_exists(&self, cid: &CollId) -> bool {
        self.collection_len(cid).is_some()
    }
    /// Whether the object exists (false if the collection does not).
    fn object_exists(&self, cid: &CollId, oid: &GhObject) -> bool;
    /// The same of one that the transaction names with these numbers, for who wants to find it again.
    fn named_exists(&self, _name: (CollIndex, ObjectIndex), cid: &CollId, oid: &GhObject) -> bool {
        self.object_exists(cid, oid)
    }
}

/// Whether a split moves an object: the low `bits` of its hash are `rem`.
pub fn split_moves(oid: &GhObject, bits: u32, rem: u32) -> bool {
    let mask = if bits >= 32 { u32::MAX } else { (1 << bits) - 1 };
    oid.hobj.hash & mask == rem & mask
}

/// The reason why the transaction cannot be applied, if there is one: each backend refuses it with this before anything changes.
pub fn check(t: &Transaction, existing: &dyn Existing) -> Result<(), StoreError> {
    // Most transactions change objects of collections that exist: no view is needed for those.
    let mut view =
        View { t, existing, colls: Overlay::default(), objects: Overlay::default(), bulk: 0 };
    t.ops().iter().try_for_each(|op| view.step(op))
}

/// A collection as earlier operations leave it.
#[derive(Clone, Copy)]
struct Coll {
    exists: bool,
    /// Whether the objects that were there before the transaction count.
    counts_old: bool,
    /// Number of objects, but for those.
    len: i64,
}

/// What earlier operations made of a few things, in the order of the keys: those of a usual
/// transaction fit without an allocation.
struct Overlay<K, V>(SmallVec<[(K, V); 4]>);

impl<K, V> Default for Overlay<K, V> {
    fn default() -> Self {
        Overlay(SmallVec::new())
    }
}

impl<K: Ord + Copy, V: Copy> Overlay<K, V> {
    fn find(&self, key: K) -> Result<usize, usize> {
        self.0.binary_search_by_key(&key, |(k, _)| *k)
    }

    fn get(&self, key: K) -> Option<V> {
        self.find(key).ok().map(|at| self.0[at].1)
    }

    fn insert(&mut self, key: K, value: V) {
        match self.find(key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (key, value)),
        }
    }
}

struct View<'a> {
    t: &'a Transaction,
    existing: &'a dyn Existing,
    colls: Overlay<CollIndex, Coll>,
    objects: Overlay<(CollIndex, ObjectIndex), bool>,
    /// Operations of `t` before this one may have moved objects in bulk (splits and merges).
    bulk: usize,
}

impl View<'_> {
    fn coll(&mut self, cid: CollIndex) -> Coll {
        if let Some(coll) = self.colls.get(cid) {
            return coll;
        }
        let exists = self.existing.collection_exists(&self.t.collections()[cid as usize]);
        let coll = Coll { exists, counts_old: exists, len: 0 };
        self.colls.insert(cid, coll);
        coll
    }

    /// Number of objects of a collection as it is now.
    fn len(&mut self, cid: CollIndex) -> i64 {
        let coll = self.coll(cid);
        let old = match coll.counts_old {
            true => self.existing.collection_len(&self.t.collections()[cid as usize]),
            false => None,
        };
        coll.len + old.unwrap_or(0) as i64
    }

    fn need_coll(&mut self, cid: CollIndex) -> Result<(), StoreError> {
        match self.coll(cid).exists {
            true => Ok(()),
            false => Err(StoreError::NoCollection(self.t.collections()[cid as usize])),
        }
    }

    /// Whether an object exists, before this transaction or by bulk moves of it.
    fn base_exists(&self, cid: CollIndex, oid: ObjectIndex) -> bool {
        let colls = self.t.collections();
        let object = &self.t.objects()[oid as usize];
        if self.bulk == 0 {
            return self.existing.named_exists((cid, oid), &colls[cid as usize], object);
        }
        // Follow the object from each collection it may have been in through the bulk moves.
        (0..colls.len()).any(|from| {
            self.existing.object_exists(&colls[from], object)
                && self.moved(from as CollIndex, object) == cid
        })
    }

    /// Where the bulk moves so far take an object that began in `from`.
    fn moved(&self, from: CollIndex, object: &GhObject) -> CollIndex {
        self.t.ops()[..self.bulk].iter().fold(from, |at, op| match *op {
            Op::SplitCollection { cid, bits, rem, to_cid }
                if cid == at && split_moves(object, bits, rem) =>
            {
                to_cid
            }
            Op::MergeCollection { cid, to_cid, .. } if cid == at => to_cid,
            _ => at,
        })
    }

    fn exists(&mut self, cid: CollIndex, oid: ObjectIndex) -> bool {
        if let Some(exists) = self.objects.get((cid, oid)) {
            return exists;
        }
        let exists = self.base_exists(cid, oid);
        self.objects.insert((cid, oid), exists);
        exists
    }

    fn need(&mut self, cid: CollIndex, oid: ObjectIndex) -> Result<(), StoreError> {
        // An object that exists is in a collection that does.
        if self.exists(cid, oid) {
            return Ok(());
        }
        self.need_coll(cid)?;
        Err(StoreError::NoObject)
    }

    /// An object that is created unless it exists.
    fn make(&mut self, cid: CollIndex, oid: ObjectIndex) -> Result<(), StoreError> {
        if !self.exists(cid, oid) {
            self.need_coll(cid)?;
            self.set(cid, oid, true);
        }
        Ok(())
    }

    fn set(&mut self, cid: CollIndex, oid: ObjectIndex, exists: bool) {
        let before = self.exists(cid, oid);
        let mut coll = self.coll(cid);
        coll.len += i64::from(exists) - i64::from(before);
        self.colls.insert(cid, coll);
        self.objects.insert((cid, oid), exists);
    }

    fn step(&mut self, op: &Op) -> Result<(), StoreError> {
        match *op {
            Op::Nop => Ok(()),
            Op::Touch { cid, oid } | Op::Create { cid, oid } => self.make(cid, oid),
            Op::Write { cid, oid, offset, ref data } => {
                fits(offset, data.len() as u64)?;
                self.make(cid, oid)
            }
            Op::Zero { cid, oid, offset, len } => {
                fits(offset, len)?;
                self.make(cid, oid)
            }
            Op::Truncate { cid, size, .. } => {
                self.need_coll(cid)?;
                fits(size, 0)
            }
            Op::Remove { cid, oid } => {
                self.need_coll(cid)?;
                self.set(cid, oid, false);
                Ok(())
            }
            Op::RmAttrs { cid, .. } | Op::OmapClear { cid, .. } | Op::SetAllocHint { cid, .. } => {
                self.need_coll(cid)
            }
            Op::SetAttr { cid, oid, .. }
            | Op::SetAttrs { cid, oid, .. }
            | Op::RmAttr { cid, oid, .. }
            | Op::OmapSetKeys { cid, oid, .. }
            | Op::OmapRmKeys { cid, oid, .. }
            | Op::OmapRmKeyRange { cid, oid, .. }
            | Op::OmapSetHeader { cid, oid, .. } => self.need(cid, oid),
            Op::Clone { cid, oid, to } => {
                self.need(cid, oid)?;
                self.set(cid, to, true);
                Ok(())
            }
            Op::CloneRange { cid, oid, to, offset, len, to_offset } => {
                self.need(cid, oid)?;
                fits(offset, len)?;
                fits(to_offset, len)?;
                self.set(cid, to, true);
                Ok(())
            }
            Op::TryRename { cid, oid, to } => {
                self.need_coll(cid)?;
                self.rename(cid, oid, cid, to);
                Ok(())
            }
            Op::CollMoveRename { cid, oid, to_cid, to } => {
                self.need_coll(cid)?;
                self.need_coll(to_cid)?;
                self.rename(cid, oid, to_cid, to);
                Ok(())
            }
            Op::MkColl { cid, .. } => {
                if self.coll(cid).exists {
                    let cid = self.t.collections()[cid as usize];
                    return Err(StoreError::CollectionExists(cid));
                }
                self.colls.insert(cid, Coll { exists: true, counts_old: false, len: 0 });
                Ok(())
            }
            Op::RmColl { cid } => {
                self.need_coll(cid)?;
                if self.len(cid) != 0 {
                    return Err(StoreError::NotEmpty(self.t.collections()[cid as usize]));
                }
                self.colls.insert(cid, Coll { exists: false, counts_old: false, len: 0 });
                Ok(())
            }
            Op::CollHint { cid, .. } | Op::CollSetBits { cid, .. } => self.need_coll(cid),
            Op::SplitCollection { cid, to_cid, .. } => {
                self.need_coll(cid)?;
                self.need_coll(to_cid)?;
                self.bulk_move(op)
            }
            Op::MergeCollection { cid, to_cid, .. } => {
                self.need_coll(cid)?;
                self.need_coll(to_cid)?;
                self.bulk_move(op)
            }
        }
    }

    fn rename(&mut self, cid: CollIndex, oid: ObjectIndex, to_cid: CollIndex, to: ObjectIndex) {
        if (cid, oid) != (to_cid, to) && self.exists(cid, oid) {
            self.set(cid, oid, false);
            self.set(to_cid, to, true);
        }
    }

    /// Splits and merges move objects that the view does not list. The daemon sends them before
    /// any object operation of the transaction on these collections; those after are followed.
    fn bulk_move(&mut self, op: &Op) -> Result<(), StoreError> {
        let (Op::SplitCollection { cid, to_cid, .. } | Op::MergeCollection { cid, to_cid, .. }) =
            *op
        else {
            return Ok(());
        };
        let position = self.t.ops().iter().position(|o| core::ptr::eq(o, op)).unwrap_or(0);
        // Objects known to the view move with it.
        let known: Vec<_> = self.objects.0.to_vec();
        self.bulk = position + 1;
        for ((at, oid), exists) in known {
            let moves = match *op {
                Op::SplitCollection { bits, rem, .. } => {
                    split_moves(&self.t.objects()[oid as usize], bits, rem)
                }
                _ => true,
            };
            if at == cid && moves {
                self.objects.insert((cid, oid), false);
                let there = self.objects.get((to_cid, oid)).unwrap_or(false);
                self.objects.insert((to_cid, oid), exists || there);
            }
        }
        let moved = self.len(cid);
        let (mut from, mut to) = (self.coll(cid), self.coll(to_cid));
        // How many a split moves is not known here; neither is empty for a later rmcoll's purpose,
        // unless there was nothing to move.
        to.len += moved;
        if let Op::MergeCollection { .. } = op {
            from = Coll { exists: false, counts_old: false, len: 0 };
        }
        self.colls.insert(cid, from);
        self.colls.insert(to_cid, to);
        Ok(())
    }
}

fn fits(offset: u64, len: u64) -> Result<(), StoreError> {
    match offset.checked_add(len) {
        Some(end) if end <= OBJECT_LEN_MAX => Ok(()),
        _ => Err(StoreError::TooBig),
    }
}
