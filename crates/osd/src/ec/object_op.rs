//! A logical transaction sorted by object: what becomes of each, whatever the order of the ops was
//! (`PGTransaction` in `src/osd/PGTransaction.h` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use store::{CollId, Op, Transaction};
use types::{Errno, GhObject, HObject};

use super::extents::{Extents, zeros};

/// Where an object's content comes from before the op's own changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Init {
    /// It is what it was, if it was not deleted.
    None,
    /// It begins empty.
    Create,
    /// It is a copy of another as that was before the transaction.
    Clone(HObject),
}

/// What becomes of one object.
#[derive(Debug, Clone)]
pub(super) struct ObjectOp {
    pub(super) delete_first: bool,
    pub(super) init: Init,
    /// The smallest size it was cut to, and the last size it was set to.
    pub(super) truncate: Option<(u64, u64)>,
    pub(super) data: Extents,
    /// Attributes set, or removed (`None`).
    pub(super) attrs: BTreeMap<BString, Option<Bytes>>,
    /// The others are removed.
    pub(super) clear_attrs: bool,
    /// It was cut to nothing and written anew: it is deleted and made again, with the attributes
    /// it had.
    pub(super) keep_attrs: bool,
    /// object size, write size, flags.
    pub(super) alloc_hint: Option<(u64, u64, u32)>,
}

impl ObjectOp {
    fn new() -> ObjectOp {
        ObjectOp {
            delete_first: false,
            init: Init::None,
            truncate: None,
            data: Extents::default(),
            attrs: BTreeMap::new(),
            clear_attrs: false,
            keep_attrs: false,
            alloc_hint: None,
        }
    }

    /// Whether nothing of what it was is left in it.
    pub(super) fn is_fresh(&self) -> bool {
        self.init != Init::None
    }

    /// Whether it is gone after.
    pub(super) fn is_delete(&self) -> bool {
        self.delete_first && !self.is_fresh()
    }

    /// Whose content it begins with.
    pub(super) fn base<'a>(&'a self, oid: &'a HObject) -> Option<&'a HObject> {
        match &self.init {
            Init::Clone(source) => Some(source),
            Init::None if !self.delete_first => Some(oid),
            _ => None,
        }
    }

    fn truncate_to(&mut self, size: u64) {
        self.data.truncate(size);
        self.truncate = Some(match self.truncate {
            Some((least, _)) if size >= least => (least, size),
            _ => (size, size),
        });
    }

    /// An object cut to nothing is deleted and made again: that can be undone by a rename.
    fn normalize(&mut self) {
        if self.is_fresh() || self.delete_first {
            return;
        }
        if let Some((0, last)) = self.truncate {
            self.truncate = (last > 0).then_some((last, last));
            self.delete_first = true;
            self.init = Init::Create;
            self.keep_attrs = true;
        }
    }
}

/// A transaction by object.
pub(super) struct ObjectOps {
    pub(super) objects: BTreeMap<HObject, ObjectOp>,
    /// Ops on other collections (the snap mapper's rows), the same on every shard.
    pub(super) elsewhere: Transaction,
    pub(super) fadvise_flags: u32,
}

impl ObjectOps {
    /// Sorts a transaction. `exists` tells whether an object is there before it.
    pub(super) fn of(
        t: &Transaction,
        exists: &dyn Fn(&HObject) -> bool,
    ) -> Result<ObjectOps, Errno> {
        let mut ops = ObjectOps {
            objects: BTreeMap::new(),
            elsewhere: Transaction::new(),
            fadvise_flags: t.fadvise_flags(),
        };
        for op in t.ops() {
            ops.take(t, op, exists)?;
        }
        for op in ops.objects.values_mut() {
            op.normalize();
        }
        Ok(ops)
    }

    /// Objects in an order in which a copy is made before its source changes.
    pub(super) fn order(&self) -> Vec<&HObject> {
        let mut order = Vec::with_capacity(self.objects.len());
        let mut seen = BTreeSet::new();
        for oid in self.objects.keys() {
            self.visit(oid, &mut seen, &mut order);
        }
        order
    }

    fn visit<'a>(
        &'a self,
        oid: &'a HObject,
        seen: &mut BTreeSet<&'a HObject>,
        order: &mut Vec<&'a HObject>,
    ) {
        if !seen.insert(oid) {
            return;
        }
        for (other, op) in &self.objects {
            if matches!(&op.init, Init::Clone(source) if source == oid) {
                self.visit(other, seen, order);
            }
        }
        order.push(oid);
    }

    /// The op of an object that is changed; one that does not exist is made.
    fn change(&mut self, oid: &GhObject, exists: &dyn Fn(&HObject) -> bool) -> &mut ObjectOp {
        let op = self.objects.entry(oid.hobj.clone()).or_insert_with(ObjectOp::new);
        if !op.is_fresh() && (op.delete_first || !exists(&oid.hobj)) {
            op.init = Init::Create;
        }
        op
    }

    fn take(
        &mut self,
        t: &Transaction,
        op: &Op,
        exists: &dyn Fn(&HObject) -> bool,
    ) -> Result<(), Errno> {
        let coll = |cid: &u32| t.collections()[*cid as usize];
        let object = |oid: &u32| &t.objects()[*oid as usize];
        let is_here = |cid: &u32| matches!(coll(cid), CollId::Pg(_));
        match op {
            Op::Nop => {}
            Op::Touch { cid, oid } | Op::Create { cid, oid } if is_here(cid) => {
                self.change(object(oid), exists);
            }
            Op::Write { cid, oid, offset, data } if is_here(cid) => {
                self.change(object(oid), exists).data.insert(*offset, data.clone());
            }
            Op::Zero { cid, oid, offset, len } if is_here(cid) => {
                self.change(object(oid), exists).data.insert(*offset, zeros(*len));
            }
            Op::Truncate { cid, oid, size } if is_here(cid) => {
                self.change(object(oid), exists).truncate_to(*size);
            }
            Op::Remove { cid, oid } if is_here(cid) => self.remove(&object(oid).hobj, exists),
            Op::SetAttr { cid, oid, name, value } if is_here(cid) => {
                let op = self.change(object(oid), exists);
                op.attrs.insert(name.clone(), Some(value.clone()));
            }
            Op::SetAttrs { cid, oid, attrs } if is_here(cid) => {
                let op = self.change(object(oid), exists);
                let set = attrs.iter().map(|(name, value)| (name.into(), Some(value.clone())));
                op.attrs.extend(set);
            }
            Op::RmAttr { cid, oid, name } if is_here(cid) => {
                self.change(object(oid), exists).attrs.insert(name.clone(), None);
            }
            Op::RmAttrs { cid, oid } if is_here(cid) => {
                let op = self.change(object(oid), exists);
                op.attrs.clear();
                op.clear_attrs = true;
            }
            Op::Clone { cid, oid, to } if is_here(cid) => {
                let (source, target) = (object(oid).hobj.clone(), object(to).hobj.clone());
                if self.objects.contains_key(&source) {
                    // Of an object as it is in the middle of a transaction: nothing does that.
                    return Err(Errno::EOPNOTSUPP);
                }
                self.remove(&target, exists);
                self.objects.entry(target).or_insert_with(ObjectOp::new).init = Init::Clone(source);
            }
            Op::SetAllocHint { cid, oid, object_size, write_size, flags } if is_here(cid) => {
                let op = self.change(object(oid), exists);
                op.alloc_hint = Some((*object_size, *write_size, *flags));
            }
            Op::Touch { cid, oid } => {
                self.elsewhere.touch(&coll(cid), object(oid));
            }
            Op::OmapSetKeys { cid, oid, entries } if !is_here(cid) => {
                self.elsewhere.omap_setkeys(&coll(cid), object(oid), entries.clone());
            }
            Op::OmapRmKeys { cid, oid, keys } if !is_here(cid) => {
                self.elsewhere.omap_rmkeys(&coll(cid), object(oid), keys.clone());
            }
            // Shards have no omap; the rest no op of a client makes.
            _ => return Err(Errno::EOPNOTSUPP),
        }
        Ok(())
    }

    fn remove(&mut self, oid: &HObject, exists: &dyn Fn(&HObject) -> bool) {
        self.objects.remove(oid);
        if exists(oid) {
            let op = ObjectOp { delete_first: true, ..ObjectOp::new() };
            self.objects.insert(oid.clone(), op);
        }
    }
}
