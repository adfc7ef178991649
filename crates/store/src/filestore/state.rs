//! Names and sizes in memory, as transactions leave them when they are submitted: what checks and
//! listings ask. Bound: about 200 bytes an object.

use std::collections::BTreeMap;

use types::hobject::GhObject;

use crate::check::{Existing, split_moves};
use crate::{CollId, Listing, Op, StoreError, Transaction};

#[derive(Debug, Default)]
pub(super) struct Coll {
    pub(super) bits: u32,
    /// Sizes in bytes.
    pub(super) objects: BTreeMap<GhObject, u64>,
}

/// All names.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) colls: BTreeMap<CollId, Coll>,
    /// Sum of all sizes.
    pub(super) data: u64,
}

impl Existing for Names {
    fn collection_len(&self, cid: &CollId) -> Option<usize> {
        self.colls.get(cid).map(|c| c.objects.len())
    }
    fn object_exists(&self, cid: &CollId, oid: &GhObject) -> bool {
        self.colls.get(cid).is_some_and(|c| c.objects.contains_key(oid))
    }
}

impl Names {
    pub(super) fn coll(&self, cid: &CollId) -> Result<&Coll, StoreError> {
        self.colls.get(cid).ok_or(StoreError::NoCollection(*cid))
    }

    pub(super) fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> Result<Listing, StoreError> {
        let coll = self.coll(cid)?;
        if start >= end {
            return Ok(Listing { objects: Vec::new(), next: end.clone() });
        }
        let mut range = coll.objects.range(start..end).map(|(oid, _)| oid);
        let objects: Vec<_> = range.by_ref().take(max).cloned().collect();
        let next = range.next().unwrap_or(end).clone();
        Ok(Listing { objects, next })
    }

    fn size(&self, cid: &CollId, oid: &GhObject) -> u64 {
        let coll = self.colls.get(cid);
        coll.and_then(|c| c.objects.get(oid)).copied().unwrap_or(0)
    }

    /// The most bytes the transaction can add.
    pub(super) fn growth(&self, t: &Transaction) -> u64 {
        let size = |cid: u32, oid: u32| {
            self.size(&t.collections()[cid as usize], &t.objects()[oid as usize])
        };
        let grows = |op: &Op| match op {
            Op::Write { cid, oid, offset, data } => {
                (offset + data.len() as u64).saturating_sub(size(*cid, *oid))
            }
            Op::Zero { cid, oid, offset, len } => (offset + len).saturating_sub(size(*cid, *oid)),
            Op::Truncate { cid, oid, size: to } => to.saturating_sub(size(*cid, *oid)),
            Op::Clone { cid, oid, .. } => size(*cid, *oid),
            Op::CloneRange { cid, to, len, to_offset, .. } => {
                (to_offset + len).saturating_sub(size(*cid, *to))
            }
            _ => 0,
        };
        t.ops().iter().map(grows).sum()
    }

    /// Does what a checked transaction does to names and sizes. Operations that do nothing, because
    /// their object is not there, are taken out: applied again after a crash they would do something,
    /// to an object that came later.
    pub(super) fn apply(&mut self, t: &mut Transaction) {
        t.retain(|t, op| {
            let keep = self.does_something(t, op);
            self.step(t, op);
            keep
        });
    }

    fn does_something(&self, t: &Transaction, op: &Op) -> bool {
        match *op {
            Op::Truncate { cid, oid, .. }
            | Op::Remove { cid, oid }
            | Op::RmAttrs { cid, oid }
            | Op::OmapClear { cid, oid }
            | Op::TryRename { cid, oid, .. }
            | Op::CollMoveRename { cid, oid, .. } => {
                self.object_exists(&t.collections()[cid as usize], &t.objects()[oid as usize])
            }
            Op::Nop | Op::SetAllocHint { .. } | Op::CollHint { .. } => false,
            _ => true,
        }
    }

    fn put(&mut self, cid: &CollId, oid: &GhObject, size: u64) {
        if let Some(coll) = self.colls.get_mut(cid) {
            let old = coll.objects.insert(oid.clone(), size).unwrap_or(0);
            self.data = self.data - old + size;
        }
    }

    fn take(&mut self, cid: &CollId, oid: &GhObject) -> Option<u64> {
        let size = self.colls.get_mut(cid)?.objects.remove(oid)?;
        self.data -= size;
        Some(size)
    }

    fn move_one(&mut self, (cid, oid): (&CollId, &GhObject), (to_cid, to): (&CollId, &GhObject)) {
        if let Some(size) = self.take(cid, oid) {
            self.put(to_cid, to, size);
        }
    }

    fn move_all(&mut self, cid: &CollId, to: &CollId, moves: impl Fn(&GhObject) -> bool) {
        let objects = self.colls.get(cid).map(|c| c.objects.keys().cloned());
        let moved: Vec<_> = objects.into_iter().flatten().filter(|o| moves(o)).collect();
        for oid in moved {
            self.move_one((cid, &oid), (to, &oid));
        }
    }

    fn set_bits(&mut self, cid: &CollId, bits: u32) {
        self.colls.entry(*cid).or_default().bits = bits;
    }

    fn step(&mut self, t: &Transaction, op: &Op) {
        let c = |i: u32| t.collections()[i as usize];
        let o = |i: u32| &t.objects()[i as usize];
        match *op {
            Op::Touch { cid, oid } | Op::Create { cid, oid } => {
                let (cid, oid) = (c(cid), o(oid));
                self.put(&cid, oid, self.size(&cid, oid));
            }
            Op::Write { cid, oid, offset, ref data } => {
                let (cid, oid) = (c(cid), o(oid));
                let end = if data.is_empty() { 0 } else { offset + data.len() as u64 };
                self.put(&cid, oid, self.size(&cid, oid).max(end));
            }
            Op::Zero { cid, oid, offset, len } => {
                let (cid, oid) = (c(cid), o(oid));
                let end = if len == 0 { 0 } else { offset + len };
                self.put(&cid, oid, self.size(&cid, oid).max(end));
            }
            Op::Truncate { cid, oid, size } => {
                if self.object_exists(&c(cid), o(oid)) {
                    self.put(&c(cid), o(oid), size);
                }
            }
            Op::Remove { cid, oid } => {
                self.take(&c(cid), o(oid));
            }
            Op::Clone { cid, oid, to } => self.put(&c(cid), o(to), self.size(&c(cid), o(oid))),
            Op::CloneRange { cid, oid, to, offset, len, to_offset } => {
                let cid = c(cid);
                let copied = len.min(self.size(&cid, o(oid)).saturating_sub(offset));
                let end = if copied == 0 { 0 } else { to_offset + copied };
                self.put(&cid, o(to), self.size(&cid, o(to)).max(end));
            }
            Op::MkColl { cid, bits } | Op::CollSetBits { cid, bits } => {
                self.set_bits(&c(cid), bits)
            }
            Op::RmColl { cid } => {
                self.colls.remove(&c(cid));
            }
            Op::CollMoveRename { cid, oid, to_cid, to } => {
                self.move_one((&c(cid), o(oid)), (&c(to_cid), o(to)));
            }
            Op::TryRename { cid, oid, to } => {
                self.move_one((&c(cid), o(oid)), (&c(cid), o(to)));
            }
            Op::SplitCollection { cid, bits, rem, to_cid } => {
                self.move_all(&c(cid), &c(to_cid), |oid| split_moves(oid, bits, rem));
                self.set_bits(&c(cid), bits);
                self.set_bits(&c(to_cid), bits);
            }
            Op::MergeCollection { cid, to_cid, bits } => {
                self.move_all(&c(cid), &c(to_cid), |_| true);
                self.colls.remove(&c(cid));
                self.set_bits(&c(to_cid), bits);
            }
            Op::Nop
            | Op::SetAttr { .. }
            | Op::SetAttrs { .. }
            | Op::RmAttr { .. }
            | Op::RmAttrs { .. }
            | Op::OmapClear { .. }
            | Op::OmapSetKeys { .. }
            | Op::OmapRmKeys { .. }
            | Op::OmapRmKeyRange { .. }
            | Op::OmapSetHeader { .. }
            | Op::SetAllocHint { .. }
            | Op::CollHint { .. } => {}
        }
    }
}
