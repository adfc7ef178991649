//! What each operation does to onodes, data and keys.

use bytes::Bytes;
use types::hobject::GhObject;

use super::Onode;
use super::changes::Changes;
use super::keys::{Cnode, ENTRY_KEY_AT, entry_key, header_key, tail_key};
use crate::check::split_moves;
use crate::{CollId, Op, StoreError, Transaction};

/// A transaction of a backend: where the data of objects is.
pub(crate) trait Objects<'a> {
    /// What it keeps of an object.
    type Onode: Onode;
    /// What has been changed so far.
    fn changes(&mut self) -> &mut Changes<'a, Self::Onode>;
    /// The next operations are on objects of this collection, or of its pool.
    fn enter(&mut self, _cid: &CollId) {}
    /// A number nobody has: for an object, an omap, ...
    fn new_id(&mut self) -> u64;
    /// An object of no bytes.
    fn new_onode(&mut self) -> Self::Onode;
    /// The bytes of the range that lie before the end.
    fn read(&self, onode: &Self::Onode, offset: u64, len: u64) -> Result<Bytes, StoreError>;
    /// Bytes (at least one) from `offset` on, into an object of a collection.
    fn write(
        &mut self,
        cid: &CollId,
        onode: &mut Self::Onode,
        offset: u64,
        data: &Bytes,
    ) -> Result<(), StoreError>;
    /// Zeros; the object grows to the range's end.
    fn zero(&mut self, onode: &mut Self::Onode, offset: u64, len: u64) -> Result<(), StoreError>;
    /// Cuts or grows to `size`.
    fn truncate(&mut self, onode: &mut Self::Onode, size: u64) -> Result<(), StoreError>;
    /// An object with the same data, xattrs and hints, and no omap.
    fn copy(&mut self, from: &Self::Onode) -> Result<Self::Onode, StoreError>;
}

/// Applies a checked transaction's operations, in order.
pub(crate) fn apply<'a>(objects: &mut impl Objects<'a>, t: &Transaction) -> Result<(), StoreError> {
    let ops = t.ops();
    let mut at = 0;
    while at < ops.len() {
        let joined = continued(&ops[at..]);
        let mut step = Step { objects, t, of: std::marker::PhantomData };
        match joined {
            1 => step.step(&ops[at])?,
            _ => step.write_joined(&ops[at..at + joined])?,
        }
        at += joined;
    }
    Ok(())
}

/// How many operations from the first on are one write in pieces.
fn continued(ops: &[Op]) -> usize {
    let mut expected = None;
    let count = ops
        .iter()
        .take_while(|op| match op {
            Op::Write { cid, oid, offset, data } => {
                let goes_on = expected.is_none_or(|e| e == (*cid, *oid, *offset));
                // An overflow was refused by the check.
                expected = Some((*cid, *oid, offset.wrapping_add(data.len() as u64)));
                goes_on
            }
            _ => false,
        })
        .count();
    count.max(1)
}

struct Step<'s, 'a, T: Objects<'a>> {
    objects: &'s mut T,
    t: &'s Transaction,
    of: std::marker::PhantomData<&'a ()>,
}

impl<'a, T: Objects<'a>> Step<'_, 'a, T> {
    fn cid(&mut self, index: u32) -> CollId {
        let cid = self.t.collections()[index as usize];
        self.objects.enter(&cid);
        cid
    }

    fn oid(&self, index: u32) -> GhObject {
        self.t.objects()[index as usize].clone()
    }

    /// Changes an object that exists.
    fn change(
        &mut self,
        (cid, oid): (u32, u32),
        change: impl FnOnce(&mut T, &mut T::Onode) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (cid, oid) = (self.cid(cid), self.oid(oid));
        if let Some(mut onode) = self.objects.changes().onode(&cid, &oid)? {
            change(self.objects, &mut onode)?;
            self.objects.changes().set_onode(&cid, &oid, Some(onode));
        }
        Ok(())
    }

    /// Changes an object, which is made if there is none.
    fn make(
        &mut self,
        (cid, oid): (u32, u32),
        change: impl FnOnce(&mut T, &mut T::Onode) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (cid, oid) = (self.cid(cid), self.oid(oid));
        let mut onode = match self.objects.changes().onode(&cid, &oid)? {
            Some(onode) => onode,
            None => self.objects.new_onode(),
        };
        change(self.objects, &mut onode)?;
        self.objects.changes().set_onode(&cid, &oid, Some(onode));
        Ok(())
    }

    /// Changes the xattrs of an object that exists.
    fn change_attrs(
        &mut self,
        of: (u32, u32),
        change: impl FnOnce(&mut std::collections::BTreeMap<bstr::BString, Bytes>),
    ) -> Result<(), StoreError> {
        self.change(of, |_, onode| {
            change(onode.attrs());
            Ok(())
        })
    }

    fn write_joined(&mut self, ops: &[Op]) -> Result<(), StoreError> {
        let Some(&Op::Write { cid, oid, offset, .. }) = ops.first() else { return Ok(()) };
        let mut whole = bytes::BytesMut::new();
        for op in ops {
            if let Op::Write { data, .. } = op {
                whole.extend_from_slice(data);
            }
        }
        self.write((cid, oid), offset, &whole.freeze())
    }

    fn write(&mut self, of: (u32, u32), offset: u64, data: &Bytes) -> Result<(), StoreError> {
        let cid = self.cid(of.0);
        self.make(of, |objects, onode| match data.is_empty() {
            true => Ok(()),
            false => objects.write(&cid, onode, offset, data),
        })
    }

    fn step(&mut self, op: &Op) -> Result<(), StoreError> {
        match op {
            Op::Nop | Op::CollHint { .. } => Ok(()),
            &Op::Touch { cid, oid } | &Op::Create { cid, oid } => {
                self.make((cid, oid), |_, _| Ok(()))
            }
            Op::Write { cid, oid, offset, data } => self.write((*cid, *oid), *offset, data),
            &Op::Zero { cid, oid, offset, len } => {
                self.make((cid, oid), |objects, onode| objects.zero(onode, offset, len))
            }
            &Op::Truncate { cid, oid, size } => {
                self.change((cid, oid), |objects, onode| objects.truncate(onode, size))
            }
            &Op::Remove { cid, oid } => {
                let (cid, oid) = (self.cid(cid), self.oid(oid));
                self.remove(&cid, &oid)
            }
            Op::SetAttr { cid, oid, name, value } => self.change_attrs((*cid, *oid), |attrs| {
                attrs.insert(name.clone(), value.clone());
            }),
            Op::SetAttrs { cid, oid, attrs } => self.change_attrs((*cid, *oid), |there| {
                there.extend(attrs.iter().map(|(k, v)| (k.into(), v.clone())));
            }),
            Op::RmAttr { cid, oid, name } => self.change_attrs((*cid, *oid), |attrs| {
                attrs.remove(name);
            }),
            &Op::RmAttrs { cid, oid } => self.change_attrs((cid, oid), |attrs| attrs.clear()),
            &Op::Clone { cid, oid, to } => {
                let (cid, oid, to) = (self.cid(cid), self.oid(oid), self.oid(to));
                self.clone(&cid, &oid, &to)
            }
            &Op::CloneRange { cid, oid, to, offset, len, to_offset } => {
                let (coll, from) = (self.cid(cid), self.oid(oid));
                let from = self.objects.changes().onode(&coll, &from)?;
                let from = from.ok_or(StoreError::NoObject)?;
                let data = self.objects.read(&from, offset, len)?;
                self.write((cid, to), to_offset, &data)
            }
            &Op::MkColl { cid, bits } | &Op::CollSetBits { cid, bits } => {
                let cid = self.cid(cid);
                self.set_cnode(&cid, Some(Cnode { bits }));
                Ok(())
            }
            &Op::RmColl { cid } => {
                let cid = self.cid(cid);
                self.set_cnode(&cid, None);
                Ok(())
            }
            &Op::CollMoveRename { cid, oid, to_cid, to } => {
                let (cid, to_cid) = (self.cid(cid), self.cid(to_cid));
                self.rename((&cid, &self.oid(oid)), (&to_cid, &self.oid(to)))
            }
            &Op::TryRename { cid, oid, to } => {
                let cid = self.cid(cid);
                self.rename((&cid, &self.oid(oid)), (&cid, &self.oid(to)))
            }
            &Op::SetAllocHint { cid, oid, object_size, write_size, flags } => {
                self.change((cid, oid), |_, onode| {
                    onode.set_hint(object_size, write_size, flags);
                    Ok(())
                })
            }
            &Op::SplitCollection { cid, bits, rem, to_cid } => {
                let (cid, to_cid) = (self.cid(cid), self.cid(to_cid));
                self.move_objects(&cid, &to_cid, |oid| split_moves(oid, bits, rem))?;
                self.set_cnode(&cid, Some(Cnode { bits }));
                self.set_cnode(&to_cid, Some(Cnode { bits }));
                Ok(())
            }
            &Op::MergeCollection { cid, to_cid, bits } => {
                let (cid, to_cid) = (self.cid(cid), self.cid(to_cid));
                self.move_objects(&cid, &to_cid, |_| true)?;
                self.set_cnode(&cid, None);
                self.set_cnode(&to_cid, Some(Cnode { bits }));
                Ok(())
            }
            &Op::OmapClear { cid, oid } => self.change((cid, oid), clear_omap),
            Op::OmapSetKeys { cid, oid, entries } => self.change((*cid, *oid), |objects, onode| {
                let omap = omap_of(objects, onode);
                for (key, value) in entries {
                    objects.changes().put(entry_key(omap, key), value.clone());
                }
                Ok(())
            }),
            Op::OmapRmKeys { cid, oid, keys } => self.change((*cid, *oid), |objects, onode| {
                let omap = *onode.omap();
                for key in keys.iter().filter(|_| omap != 0) {
                    objects.changes().delete(entry_key(omap, key));
                }
                Ok(())
            }),
            Op::OmapRmKeyRange { cid, oid, first, last } => {
                self.change((*cid, *oid), |objects, onode| {
                    let omap = *onode.omap();
                    if omap == 0 || first >= last {
                        return Ok(());
                    }
                    let (first, last) = (entry_key(omap, first), entry_key(omap, last));
                    objects.changes().delete_range(&first, &last)
                })
            }
            Op::OmapSetHeader { cid, oid, header } => {
                self.change((*cid, *oid), |objects, onode| {
                    let omap = omap_of(objects, onode);
                    objects.changes().put(header_key(omap), header.clone());
                    Ok(())
                })
            }
        }
    }

    fn set_cnode(&mut self, cid: &CollId, cnode: Option<Cnode>) {
        self.objects.changes().set_cnode(cid, cnode);
    }

    fn remove(&mut self, cid: &CollId, oid: &GhObject) -> Result<(), StoreError> {
        let Some(mut onode) = self.objects.changes().onode(cid, oid)? else { return Ok(()) };
        self.objects.truncate(&mut onode, 0)?;
        clear_omap(self.objects, &mut onode)?;
        self.objects.changes().set_onode(cid, oid, None);
        Ok(())
    }

    /// Moves the objects of a collection for which `moves` holds; those of their names go.
    fn move_objects(
        &mut self,
        cid: &CollId,
        to_cid: &CollId,
        moves: impl Fn(&GhObject) -> bool,
    ) -> Result<(), StoreError> {
        for oid in self.objects.changes().objects(cid)? {
            if moves(&oid) {
                self.rename((cid, &oid), (to_cid, &oid))?;
            }
        }
        Ok(())
    }

    fn rename(
        &mut self,
        (cid, oid): (&CollId, &GhObject),
        (to_cid, to): (&CollId, &GhObject),
    ) -> Result<(), StoreError> {
        if (cid, oid) == (to_cid, to) {
            return Ok(());
        }
        let Some(onode) = self.objects.changes().onode(cid, oid)? else { return Ok(()) };
        self.remove(to_cid, to)?;
        self.objects.changes().set_onode(cid, oid, None);
        self.objects.changes().set_onode(to_cid, to, Some(onode));
        Ok(())
    }

    /// Data as the backend copies or shares it; xattrs and omap are copied.
    fn clone(&mut self, cid: &CollId, oid: &GhObject, to: &GhObject) -> Result<(), StoreError> {
        if oid == to {
            return Ok(());
        }
        self.remove(cid, to)?;
        let from = self.objects.changes().onode(cid, oid)?;
        let mut from = from.ok_or(StoreError::NoObject)?;
        let mut copy = self.objects.copy(&from)?;
        let source = *from.omap();
        if source != 0 {
            let target = omap_of(self.objects, &mut copy);
            let changes = self.objects.changes();
            for key in changes.keys(&header_key(source), &tail_key(source))? {
                let Some(value) = changes.get(&key)? else { continue };
                let copied = match key.get(ENTRY_KEY_AT - 1) {
                    Some(b'-') => header_key(target),
                    _ => entry_key(target, &key[ENTRY_KEY_AT..]),
                };
                changes.put(copied, value);
            }
        }
        self.objects.changes().set_onode(cid, to, Some(copy));
        Ok(())
    }
}

/// The number of an object's omap, given if it has none.
fn omap_of<'a, T: Objects<'a>>(objects: &mut T, onode: &mut T::Onode) -> u64 {
    if *onode.omap() == 0 {
        *onode.omap() = objects.new_id();
    }
    *onode.omap()
}

fn clear_omap<'a, T: Objects<'a>>(objects: &mut T, onode: &mut T::Onode) -> Result<(), StoreError> {
    let omap = std::mem::take(onode.omap());
    if omap == 0 {
        return Ok(());
    }
    objects.changes().delete_range(&header_key(omap), &tail_key(omap))
}
