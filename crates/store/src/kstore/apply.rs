//! What each operation does to keys and values.

use bytes::{Bytes, BytesMut};
use types::hobject::GhObject;

use super::format::{Cnode, ENTRY_KEY_AT, Onode, entry_key, header_key, stripe_key, tail_key};
use super::txn::Txn;
use crate::check::split_moves;
use crate::{CollId, Op, StoreError, Transaction};

/// Applies a checked transaction's operations, in order.
pub(super) fn apply(txn: &mut Txn<'_>, t: &Transaction, stripe_len: u32) -> Result<(), StoreError> {
    for op in t.ops() {
        Step { txn, t, stripe_len }.step(op)?;
    }
    Ok(())
}

struct Step<'a, 'b> {
    txn: &'a mut Txn<'b>,
    t: &'a Transaction,
    /// Stripes of new objects.
    stripe_len: u32,
}

impl Step<'_, '_> {
    fn cid(&self, index: u32) -> CollId {
        self.t.collections()[index as usize]
    }

    fn oid(&self, index: u32) -> GhObject {
        self.t.objects()[index as usize].clone()
    }

    /// The object, made if there is none.
    fn made(&mut self, cid: &CollId, oid: &GhObject) -> Result<Onode, StoreError> {
        if let Some(onode) = self.txn.onode(cid, oid)? {
            return Ok(onode);
        }
        Ok(Onode {
            nid: self.txn.new_nid(),
            stripe_size: self.stripe_len,
            ..Onode::default()
        })
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
        let mut onode = self.made(&cid, &oid)?;
        change(self.txn, &mut onode)?;
        self.txn.set_onode(&cid, &oid, Some(onode));
        Ok(())
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
            } => self.make((*cid, *oid), |txn, onode| {
                txn.client_bytes += data.len() as u64;
                write(txn, onode, *offset, data)
            }),
            &Op::Zero {
                cid,
                oid,
                offset,
                len,
            } => self.make((cid, oid), |txn, onode| zero(txn, onode, offset, len)),
            &Op::Truncate { cid, oid, size } => {
                self.change((cid, oid), |txn, onode| truncate(txn, onode, size))
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
                onode
                    .attrs
                    .extend(attrs.iter().map(|(k, v)| (k.clone(), v.clone())));
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
                self.make((cid, to), |txn, onode| write(txn, onode, to_offset, &data))
            }
            &Op::MkColl { cid, bits } | &Op::CollSetBits { cid, bits } => {
                self.txn.set_cnode(&self.cid(cid), Some(Cnode { bits }));
                Ok(())
            }
            &Op::RmColl { cid } => {
                self.txn.set_cnode(&self.cid(cid), None);
                Ok(())
            }
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
                self.txn
                    .move_onodes(&cid, &to_cid, |oid| split_moves(oid, bits, rem))?;
                self.txn.set_cnode(&cid, Some(Cnode { bits }));
                self.txn.set_cnode(&to_cid, Some(Cnode { bits }));
                Ok(())
            }
            &Op::MergeCollection { cid, to_cid, bits } => {
                let (cid, to_cid) = (self.cid(cid), self.cid(to_cid));
                self.txn.move_onodes(&cid, &to_cid, |_| true)?;
                self.txn.set_cnode(&cid, None);
                self.txn.set_cnode(&to_cid, Some(Cnode { bits }));
                Ok(())
            }
        }
    }

    fn remove(&mut self, cid: &CollId, oid: &GhObject) -> Result<(), StoreError> {
        let Some(mut onode) = self.txn.onode(cid, oid)? else {
            return Ok(());
        };
        empty(self.txn, &mut onode)?;
        self.txn.set_onode(cid, oid, None);
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

    /// Copies all stripes and keys, as Ceph's KStore does: it shares nothing.
    fn clone(&mut self, cid: &CollId, oid: &GhObject, to: &GhObject) -> Result<(), StoreError> {
        if oid == to {
            return Ok(());
        }
        self.remove(cid, to)?;
        let from = self.txn.onode(cid, oid)?.ok_or(StoreError::NoObject)?;
        let mut copy = Onode {
            nid: self.txn.new_nid(),
            omap_head: 0,
            ..from.clone()
        };
        let offsets: Vec<u64> = from.present().collect();
        for offset in offsets {
            let data = self.txn.stripe(&from, offset)?;
            self.txn.put(stripe_key(copy.nid, offset), data);
        }
        self.txn.data_delta += copy.data_len() as i64;
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

/// Deletes all stripes and omap keys of an object.
pub(super) fn empty(txn: &mut Txn<'_>, onode: &mut Onode) -> Result<(), StoreError> {
    truncate(txn, onode, 0)?;
    clear_omap(txn, onode)
}

/// The number of an object's omap, given if it has none.
fn omap_of(txn: &mut Txn<'_>, onode: &mut Onode) -> u64 {
    if onode.omap_head == 0 {
        onode.omap_head = txn.new_nid();
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

/// The bytes of the range that lie before the end.
pub(super) fn read(
    txn: &Txn<'_>,
    onode: &Onode,
    offset: u64,
    len: u64,
) -> Result<Bytes, StoreError> {
    let stripe_len = u64::from(onode.stripe_size.max(1));
    let end = offset.saturating_add(len).min(onode.size);
    let mut out = BytesMut::new();
    let mut at = offset;
    while at < end {
        let stripe = at / stripe_len * stripe_len;
        let to = end.min(stripe + stripe_len);
        let data = txn.stripe(onode, stripe)?;
        let (from, until) = ((at - stripe) as usize, (to - stripe) as usize);
        let have = &data[from.min(data.len())..until.min(data.len())];
        out.extend_from_slice(have);
        out.resize(out.len() + (until - from - have.len()), 0);
        at = to;
    }
    Ok(out.freeze())
}

/// Says which stripes an object has after a change of it, and counts.
fn recount(txn: &mut Txn<'_>, before: u64, onode: &mut Onode, present: impl Fn(u64) -> bool) {
    onode.set_present(present);
    txn.data_delta += onode.data_len() as i64 - before as i64;
}

fn write(
    txn: &mut Txn<'_>,
    onode: &mut Onode,
    offset: u64,
    data: &Bytes,
) -> Result<(), StoreError> {
    if data.is_empty() {
        return Ok(());
    }
    let stripe_len = u64::from(onode.stripe_size.max(1));
    let end = offset + data.len() as u64;
    let before = onode.data_len();
    let old = onode.clone();
    let mut at = offset;
    while at < end {
        let stripe = at / stripe_len * stripe_len;
        let to = end.min(stripe + stripe_len);
        let piece = data.slice((at - offset) as usize..(to - offset) as usize);
        let (from, until) = ((at - stripe) as usize, (to - stripe) as usize);
        let whole = from == 0 && (until as u64 == stripe_len || to >= old.size);
        let value = if whole {
            piece
        } else {
            let mut value = BytesMut::from(&txn.stripe(&old, stripe)?[..]);
            if value.len() < until {
                value.resize(until, 0);
            }
            value[from..until].copy_from_slice(&piece);
            value.freeze()
        };
        txn.put(stripe_key(onode.nid, stripe), value);
        at = to;
    }
    onode.size = onode.size.max(end);
    let touched = offset / stripe_len..end.div_ceil(stripe_len);
    recount(txn, before, onode, |n| touched.contains(&n) || old.has(n));
    Ok(())
}

fn zero(txn: &mut Txn<'_>, onode: &mut Onode, offset: u64, len: u64) -> Result<(), StoreError> {
    if len == 0 {
        return Ok(());
    }
    let before = onode.data_len();
    let end = offset + len;
    let gone = punch(txn, onode, offset, end.min(onode.size))?;
    let old = onode.clone();
    onode.size = onode.size.max(end);
    recount(txn, before, onode, |n| old.has(n) && !gone.contains(&n));
    Ok(())
}

fn truncate(txn: &mut Txn<'_>, onode: &mut Onode, size: u64) -> Result<(), StoreError> {
    let before = onode.data_len();
    let gone = punch(txn, onode, size, onode.size)?;
    let old = onode.clone();
    onode.size = size;
    recount(txn, before, onode, |n| old.has(n) && !gone.contains(&n));
    Ok(())
}

/// Makes the range read as zeros: whole stripes go (their numbers are returned), others are
/// rewritten. What is behind the end of the object counts as zero already.
fn punch(
    txn: &mut Txn<'_>,
    onode: &Onode,
    offset: u64,
    end: u64,
) -> Result<std::ops::Range<u64>, StoreError> {
    let stripe_len = u64::from(onode.stripe_size.max(1));
    if offset >= end {
        return Ok(0..0);
    }
    // A stripe whose rest is cut off up to the end of the object goes whole, too.
    let whole_end = if end >= onode.size {
        end.div_ceil(stripe_len)
    } else {
        end / stripe_len
    };
    let whole = offset.div_ceil(stripe_len)..whole_end;
    for n in whole.clone().filter(|&n| onode.has(n)) {
        txn.delete(stripe_key(onode.nid, n * stripe_len));
    }
    let mut edges = vec![offset / stripe_len, (end - 1) / stripe_len];
    edges.dedup();
    for n in edges
        .into_iter()
        .filter(|n| !whole.contains(n) && onode.has(*n))
    {
        let stripe = n * stripe_len;
        let mut value = BytesMut::from(&txn.stripe(onode, stripe)?[..]);
        let from = (offset.max(stripe) - stripe) as usize;
        let until = (end.min(stripe + stripe_len) - stripe) as usize;
        if end >= onode.size && stripe + stripe_len >= end {
            value.truncate(from);
        } else {
            let until = until.min(value.len());
            value[from.min(until)..until].fill(0);
        }
        txn.put(stripe_key(onode.nid, stripe), value.freeze());
    }
    Ok(whole)
}
