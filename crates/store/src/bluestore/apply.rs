//! What each operation does to onodes, extents and keys.

use bytes::BytesMut;
use types::hobject::GhObject;

use super::format::{Cnode, ENTRY_KEY_AT, Onode, entry_key, header_key, tail_key};
use super::read::read;
use super::txn::Txn;
use super::write;
use crate::check::split_moves;
use crate::{CollId, Op, StoreError, Transaction};

/// Applies a checked transaction's operations, in order.
pub(super) fn apply(txn: &mut Txn<'_>, t: &Transaction) -> Result<(), StoreError> {
    let ops = t.ops();
    let mut at = 0;
    while at < ops.len() {
        let mut step = Step { txn, t };
        let joined = continued(&ops[at..]);
        if joined > 1 {
            step.write_joined(&ops[at..at + joined])?;
        } else {
            step.step(&ops[at])?;
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
            Op::Write {
                cid,
                oid,
                offset,
                data,
            } => {
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

struct Step<'a, 'b> {
    txn: &'a mut Txn<'b>,
    t: &'a Transaction,
}

impl Step<'_, '_> {
    fn cid(&self, index: u32) -> CollId {
        self.t.collections()[index as usize]
    }

    fn oid(&self, index: u32) -> GhObject {
        self.t.objects()[index as usize].clone()
    }

    /// Changes an object that exists.
    fn change(
        &mut self,
        (cid, oid): (u32, u32),
        change: impl FnOnce(&mut Txn<'_>, &mut Onode) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (cid, oid) = (self.cid(cid), self.oid(oid));
        if let Some(mut onode) = self.txn.onode(&cid, &oid)? {
            change(self.txn, &mut onode)?;
            self.txn.set_onode(&cid, &oid, Some(onode));
        }
        Ok(())
    }

    /// Changes an object, which is made if there is none.
    fn make(
        &mut self,
        (cid, oid): (u32, u32),
        change: impl FnOnce(&mut Txn<'_>, &mut Onode) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (cid, oid) = (self.cid(cid), self.oid(oid));
        let mut onode = match self.txn.onode(&cid, &oid)? {
            Some(onode) => onode,
            None => Onode {
                nid: self.txn.new_id(),
                ..Onode::default()
            },
        };
        change(self.txn, &mut onode)?;
        self.txn.set_onode(&cid, &oid, Some(onode));
        Ok(())
    }

    fn write_joined(&mut self, ops: &[Op]) -> Result<(), StoreError> {
        let Some(&Op::Write {
            cid, oid, offset, ..
        }) = ops.first()
        else {
            return Ok(());
        };
        let mut whole = BytesMut::new();
        for op in ops {
            if let Op::Write { data, .. } = op {
                whole.extend_from_slice(data);
            }
        }
        let whole = whole.freeze();
        self.make((cid, oid), |txn, onode| {
            write::write(txn, onode, offset, &whole)
        })
    }

    fn step(&mut self, op: &Op) -> Result<(), StoreError> {
        match op {
            Op::Nop | Op::CollHint { .. } => Ok(()),
            &Op::Touch { cid, oid } | &Op::Create { cid, oid } => {
                self.make((cid, oid), |_, _| Ok(()))
            }
            Op::Write {
                cid,
                oid,
                offset,
                data,
            } => self.make((*cid, *oid), |txn, onode| match data.is_empty() {
                true => Ok(()),
                false => write::write(txn, onode, *offset, data),
            }),
            &Op::Zero {
                cid,
                oid,
                offset,
                len,
            } => self.make((cid, oid), |txn, onode| {
                write::zero(txn, onode, offset, len)
            }),
            &Op::Truncate { cid, oid, size } => {
                self.change((cid, oid), |txn, onode| write::truncate(txn, onode, size))
            }
            &Op::Remove { cid, oid } => {
                let (cid, oid) = (self.cid(cid), self.oid(oid));
                self.remove(&cid, &oid)
            }
            Op::SetAttr {
                cid,
                oid,
                name,
                value,
            } => self.change((*cid, *oid), |_, onode| {
                onode.attrs.insert(name.clone(), value.clone());
                Ok(())
            }),
            Op::SetAttrs { cid, oid, attrs } => self.change((*cid, *oid), |_, onode| {
                let given = attrs.iter().map(|(k, v)| (k.clone(), v.clone()));
                onode.attrs.extend(given);
                Ok(())
            }),
            Op::RmAttr { cid, oid, name } => self.change((*cid, *oid), |_, onode| {
                onode.attrs.remove(name);
                Ok(())
            }),
            &Op::RmAttrs { cid, oid } => self.change((cid, oid), |_, onode| {
                onode.attrs.clear();
                Ok(())
            }),
            &Op::Clone { cid, oid, to } => {
                let (cid, oid, to) = (self.cid(cid), self.oid(oid), self.oid(to));
                self.clone(&cid, &oid, &to)
            }
            &Op::CloneRange {
                cid,
                oid,
                to,
                offset,
                len,
                to_offset,
            } => {
                let (coll, from) = (self.cid(cid), self.oid(oid));
                let from = self.txn.onode(&coll, &from)?.ok_or(StoreError::NoObject)?;
                let data = read(self.txn, &from, offset, len)?;
                self.make((cid, to), |txn, onode| match data.is_empty() {
                    true => Ok(()),
                    false => write::write(txn, onode, to_offset, &data),
                })
            }
            &Op::MkColl { cid, bits } | &Op::CollSetBits { cid, bits } => {
                self.txn.set_cnode(&self.cid(cid), Some(Cnode { bits }));
                Ok(())
            }
            &Op::RmColl { cid } => {
                self.txn.set_cnode(&self.cid(cid), None);
                Ok(())
            }
            &Op::CollMoveRename {
                cid,
                oid,
                to_cid,
                to,
            } => {
                let (cid, to_cid) = (self.cid(cid), self.cid(to_cid));
                self.rename((&cid, &self.oid(oid)), (&to_cid, &self.oid(to)))
            }
            &Op::TryRename { cid, oid, to } => {
                let cid = self.cid(cid);
                self.rename((&cid, &self.oid(oid)), (&cid, &self.oid(to)))
            }
            &Op::SetAllocHint {
                cid,
                oid,
                object_size,
                write_size,
                flags,
            } => self.change((cid, oid), |_, onode| {
                onode.expected_object_size = object_size;
                onode.expected_write_size = write_size;
                onode.alloc_hint_flags = flags;
                Ok(())
            }),
            &Op::SplitCollection {
                cid,
                bits,
                rem,
                to_cid,
            } => {
                let (cid, to_cid) = (self.cid(cid), self.cid(to_cid));
                self.move_objects(&cid, &to_cid, |oid| split_moves(oid, bits, rem))?;
                self.txn.set_cnode(&cid, Some(Cnode { bits }));
                self.txn.set_cnode(&to_cid, Some(Cnode { bits }));
                Ok(())
            }
            &Op::MergeCollection { cid, to_cid, bits } => {
                let (cid, to_cid) = (self.cid(cid), self.cid(to_cid));
                self.move_objects(&cid, &to_cid, |_| true)?;
                self.txn.set_cnode(&cid, None);
                self.txn.set_cnode(&to_cid, Some(Cnode { bits }));
                Ok(())
            }
            Op::OmapClear { .. }
            | Op::OmapSetKeys { .. }
            | Op::OmapRmKeys { .. }
            | Op::OmapRmKeyRange { .. }
            | Op::OmapSetHeader { .. } => self.omap(op),
        }
    }

    fn omap(&mut self, op: &Op) -> Result<(), StoreError> {
        match op {
            &Op::OmapClear { cid, oid } => self.change((cid, oid), clear_omap),
            Op::OmapSetKeys { cid, oid, entries } => self.change((*cid, *oid), |txn, onode| {
                let omap = omap_of(txn, onode);
                for (key, value) in entries {
                    txn.put(entry_key(omap, key), value.clone());
                }
                Ok(())
            }),
            Op::OmapRmKeys { cid, oid, keys } => self.change((*cid, *oid), |txn, onode| {
                for key in keys.iter().filter(|_| onode.omap_head != 0) {
                    txn.delete(entry_key(onode.omap_head, key));
                }
                Ok(())
            }),
            Op::OmapRmKeyRange {
                cid,
                oid,
                first,
                last,
            } => self.change((*cid, *oid), |txn, onode| {
                let omap = onode.omap_head;
                if omap == 0 || first >= last {
                    return Ok(());
                }
                txn.delete_range(&entry_key(omap, first), &entry_key(omap, last))
            }),
            Op::OmapSetHeader { cid, oid, header } => self.change((*cid, *oid), |txn, onode| {
                let omap = omap_of(txn, onode);
                txn.put(header_key(omap), header.clone());
                Ok(())
            }),
            _ => Ok(()),
        }
    }

    fn remove(&mut self, cid: &CollId, oid: &GhObject) -> Result<(), StoreError> {
        let Some(mut onode) = self.txn.onode(cid, oid)? else {
            return Ok(());
        };
        write::truncate(self.txn, &mut onode, 0)?;
        clear_omap(self.txn, &mut onode)?;
        self.txn.set_onode(cid, oid, None);
        Ok(())
    }

    /// Moves the objects of a collection for which `moves` holds; those of their names go.
    fn move_objects(
        &mut self,
        cid: &CollId,
        to_cid: &CollId,
        moves: impl Fn(&GhObject) -> bool,
    ) -> Result<(), StoreError> {
        for oid in self.txn.objects(cid)? {
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
        let Some(onode) = self.txn.onode(cid, oid)? else {
            return Ok(());
        };
        self.remove(to_cid, to)?;
        self.txn.set_onode(cid, oid, None);
        self.txn.set_onode(to_cid, to, Some(onode));
        Ok(())
    }

    /// Shares all data, copies xattrs and omap.
    fn clone(&mut self, cid: &CollId, oid: &GhObject, to: &GhObject) -> Result<(), StoreError> {
        if oid == to {
            return Ok(());
        }
        self.remove(cid, to)?;
        let from = self.txn.onode(cid, oid)?.ok_or(StoreError::NoObject)?;
        let mut copy = Onode {
            nid: self.txn.new_id(),
            omap_head: 0,
            ..from.clone()
        };
        write::share(self.txn, &from, &copy)?;
        if from.omap_head != 0 {
            let (source, target) = (from.omap_head, omap_of(self.txn, &mut copy));
            for key in self.txn.keys(&header_key(source), &tail_key(source))? {
                let Some(value) = self.txn.get(&key)? else {
                    continue;
                };
                let copied = match key.get(ENTRY_KEY_AT - 1) {
                    Some(b'-') => header_key(target),
                    _ => entry_key(target, &key[ENTRY_KEY_AT..]),
                };
                self.txn.put(copied, value);
            }
        }
        self.txn.set_onode(cid, to, Some(copy));
        Ok(())
    }
}

/// The number of an object's omap, given if it has none.
fn omap_of(txn: &mut Txn<'_>, onode: &mut Onode) -> u64 {
    if onode.omap_head == 0 {
        onode.omap_head = txn.new_id();
    }
    onode.omap_head
}

fn clear_omap(txn: &mut Txn<'_>, onode: &mut Onode) -> Result<(), StoreError> {
    let omap = std::mem::take(&mut onode.omap_head);
    if omap == 0 {
        return Ok(());
    }
    txn.delete_range(&header_key(omap), &tail_key(omap))
}
