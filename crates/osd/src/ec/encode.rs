//! A write as transactions of the shards, and the steps that undo it in its log entries
//! (`ECTransaction::generate_transactions` in `src/osd/ECTransaction.cc` at v16.2).
//!
//! | change | on each shard | undone by |
//! |---|---|---|
//! | delete | renamed to its generation | `Delete`: renamed back |
//! | create, clone | made | `Create`: removed |
//! | attributes | set, removed | `SetAttrs`: what they were |
//! | overwrite, cut | old part of the chunk copied to the generation | `RollbackExtents`: copied back |
//! | append | written | `Append`: cut |

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use store::{CollId, Transaction};
use types::hobject::NO_GEN;
use types::osd::{EcHashInfo, LogOp, ObjectModDesc, PgLogEntry, RollbackOp, SnapSet};
use types::{Errno, GhObject, HObject, PgId, SnapId, SpgId};

use super::Codec;
use super::extents::Extents;
use super::hash_info::{self, HINFO_KEY};
use super::object_op::{Init, ObjectOp, ObjectOps};
use super::plan::partial_stripes;
use crate::pg::backend::ObjectBefore;

/// What a chunk that only grows is like (CEPH_OSD_ALLOC_HINT_FLAG_SEQUENTIAL_WRITE, APPEND_ONLY).
const APPEND_HINT: u32 = 1 | 16;

/// Bytes by offset of each object that the write has read.
pub(super) type ReadBytes = BTreeMap<HObject, Vec<(u64, Bytes)>>;

/// What is the same for all objects of a write.
pub(super) struct Encoder<'a> {
    codec: &'a Codec,
    pgid: PgId,
    before: &'a BTreeMap<HObject, ObjectBefore>,
    read: &'a ReadBytes,
    /// One a shard.
    out: Vec<Transaction>,
}

/// The steps of undoing, and under which generation is kept what they need.
struct Undo<'a> {
    desc: &'a mut ObjectModDesc,
    generation: u64,
}

impl<'a> Encoder<'a> {
    pub(super) fn new(
        codec: &'a Codec,
        pgid: PgId,
        before: &'a BTreeMap<HObject, ObjectBefore>,
        read: &'a ReadBytes,
    ) -> Encoder<'a> {
        let out = vec![Transaction::new(); codec.shards()];
        Encoder { codec, pgid, before, read, out }
    }

    /// Encodes a whole transaction; the entries get their steps.
    pub(super) fn run(
        mut self,
        t: &Transaction,
        entries: &mut [PgLogEntry],
    ) -> Result<BTreeMap<i8, Transaction>, Errno> {
        let before = self.before;
        let exists = |oid: &HObject| before.get(oid).is_some_and(|b| b.exists);
        let ops = ObjectOps::of(t, &exists)?;
        for entry in entries.iter_mut() {
            entry.mod_desc = ObjectModDesc::default();
        }
        for oid in ops.order() {
            let entry = entries.iter_mut().find(|e| e.soid == *oid && e.op != LogOp::ERROR);
            let Some(entry) = entry else { return Err(Errno::EINVAL) };
            if let Some(snaps) = self.snaps_before(entry) {
                entry.mod_desc.push(&RollbackOp::UpdateSnaps(snaps));
            }
            let generation = entry.version.version;
            let undo = Undo { desc: &mut entry.mod_desc, generation };
            self.object(oid, &ops.objects[oid], undo)?;
        }
        let mut shards = BTreeMap::new();
        for (shard, mut out) in (0..).zip(self.out) {
            out.append(ops.elsewhere.clone());
            out.add_fadvise_flags(ops.fadvise_flags);
            shards.insert(shard, out);
        }
        Ok(shards)
    }

    /// Snapshots of a clone that loses some of them, or goes with the last.
    fn snaps_before(&self, entry: &PgLogEntry) -> Option<std::collections::BTreeSet<SnapId>> {
        if !matches!(entry.op, LogOp::MODIFY | LogOp::DELETE) || !entry.soid.is_snap() {
            return None;
        }
        let head = self.before.get(&entry.soid.head())?;
        let stored = head.attrs.get(&b"snapset"[..])?;
        let set = SnapSet::from_bytes(stored).ok()?;
        Some(set.clone_snaps.get(&entry.soid.snap)?.iter().copied().collect())
    }

    fn attrs_before(&self, oid: &HObject) -> BTreeMap<BString, Bytes> {
        let before = self.before.get(oid).filter(|b| b.exists);
        let mut attrs = before.map(|b| b.attrs.clone()).unwrap_or_default();
        attrs.remove(HINFO_KEY);
        attrs
    }

    fn hash_info(&self, oid: &HObject) -> EcHashInfo {
        let shards = self.codec.shards();
        match self.before.get(oid).filter(|b| b.exists) {
            Some(b) => hash_info::of_attrs(&b.attrs, self.codec.chunk_len_of(b.size), shards),
            None => hash_info::fresh(shards),
        }
    }

    /// Does something on every shard: its transaction, collection and number.
    fn each(&mut self, mut f: impl FnMut(&mut Transaction, &CollId, i8)) {
        for (shard, t) in (0..).zip(&mut self.out) {
            f(t, &CollId::Pg(SpgId { pgid: self.pgid, shard }), shard);
        }
    }

    fn object(&mut self, oid: &HObject, op: &ObjectOp, undo: Undo<'_>) -> Result<(), Errno> {
        let generation = undo.generation;
        let mut hinfo = self.hash_info(oid);
        let mut old_attrs: BTreeMap<BString, Option<Bytes>> = BTreeMap::new();
        old_attrs.insert(BString::from(HINFO_KEY), Some(hinfo.to_bytes()));
        // Attributes the object has when those of the op come.
        let mut attrs = self.attrs_before(oid);
        let mut changes = op.attrs.clone();

        if op.delete_first {
            old_attrs.extend(attrs.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
            if op.keep_attrs {
                for (name, value) in &attrs {
                    changes.entry(name.clone()).or_insert_with(|| Some(value.clone()));
                }
            }
            attrs.clear();
            changes.retain(|_, value| value.is_some());
            undo.desc.push(&RollbackOp::Delete(generation));
            self.each(|t, cid, shard| {
                t.coll_move_rename(cid, &at(oid, NO_GEN, shard), cid, &at(oid, generation, shard));
            });
            hash_info::clear(&mut hinfo);
        }
        if op.is_fresh() {
            undo.desc.push(&RollbackOp::Create);
        }
        match &op.init {
            Init::None => {}
            Init::Create => self.each(|t, cid, shard| {
                t.create(cid, &at(oid, NO_GEN, shard));
            }),
            Init::Clone(source) => {
                self.each(|t, cid, shard| {
                    t.clone_object(cid, &at(source, NO_GEN, shard), &at(oid, NO_GEN, shard));
                });
                hinfo = self.hash_info(source);
                attrs = self.attrs_before(source);
                if op.delete_first {
                    // What the op takes away may have come with the copy.
                    changes = op.attrs.clone();
                }
            }
        }
        if op.clear_attrs {
            for name in attrs.keys() {
                changes.entry(name.clone()).or_insert(None);
            }
        }
        self.set_attrs(oid, &changes, &attrs, &mut old_attrs);
        undo.desc.push(&RollbackOp::SetAttrs(old_attrs));
        if let Some((object_size, write_size, flags)) = op.alloc_hint {
            let (object_size, write_size) =
                (self.codec.chunk_len_of(object_size), self.codec.chunk_len_of(write_size));
            self.each(|t, cid, shard| {
                t.set_alloc_hint(cid, &at(oid, NO_GEN, shard), object_size, write_size, flags);
            });
        }
        self.data(oid, op, undo, &mut hinfo)?;
        if !op.is_delete() {
            let encoded = hinfo.to_bytes();
            self.each(|t, cid, shard| {
                t.setattr(cid, &at(oid, NO_GEN, shard), HINFO_KEY, encoded.clone());
            });
        }
        Ok(())
    }

    fn set_attrs(
        &mut self,
        oid: &HObject,
        changes: &BTreeMap<BString, Option<Bytes>>,
        attrs: &BTreeMap<BString, Bytes>,
        old_attrs: &mut BTreeMap<BString, Option<Bytes>>,
    ) {
        if changes.is_empty() {
            return;
        }
        let mut set = BTreeMap::new();
        for (name, value) in changes {
            old_attrs.entry(name.clone()).or_insert_with(|| attrs.get(name).cloned());
            match value {
                Some(value) => {
                    set.insert(name.clone(), value.clone());
                }
                None => self.each(|t, cid, shard| {
                    t.rmattr(cid, &at(oid, NO_GEN, shard), name.clone());
                }),
            }
        }
        self.each(|t, cid, shard| {
            t.setattrs(cid, &at(oid, NO_GEN, shard), set.clone());
        });
    }

    /// The data of one object: cuts, overwrites, appends.
    fn data(
        &mut self,
        oid: &HObject,
        op: &ObjectOp,
        undo: Undo<'_>,
        hinfo: &mut EcHashInfo,
    ) -> Result<(), Errno> {
        let Undo { desc, generation } = undo;
        let codec = self.codec;
        let (width, chunk) = (codec.width(), |at: u64| codec.chunk_offset(at));
        let old_end = hinfo.total_chunk_size / chunk(width) * width;
        let mut end = old_end;
        let mut append_after = old_end;
        let mut writes = self.read_stripes(oid, op, old_end)?;
        // Parts of the chunk kept under the generation: (offset, length).
        let mut kept: Vec<(u64, u64)> = Vec::new();
        let mut overwritten = false;

        if let Some((least, _)) = op.truncate
            && least < end
        {
            let stripe = least / width * width;
            end = least.next_multiple_of(width);
            if end != least {
                writes.truncate(least);
                writes.fill(least, end);
            }
            append_after = stripe;
            writes.truncate(end);
            let (cut, len) = (chunk(stripe), chunk(old_end - stripe));
            if !op.is_fresh() {
                kept.push((cut, len));
            }
            overwritten = true;
            let new_len = chunk(end);
            self.each(|t, cid, shard| {
                let (object, stash) = (at(oid, NO_GEN, shard), at(oid, generation, shard));
                if !op.is_fresh() {
                    t.touch(cid, &stash);
                    t.clone_range(cid, &object, &stash, cut, len, cut);
                }
                t.truncate(cid, &object, new_len);
            });
        }
        for (offset, data) in op.data.iter() {
            if offset > end {
                writes.fill(end, offset);
            }
            writes.insert(offset, data.clone());
            end = end.max((offset + data.len() as u64).next_multiple_of(width));
        }
        if let Some((_, last)) = op.truncate
            && last > end
        {
            let new_end = last.next_multiple_of(width);
            writes.fill(end, new_end);
            end = new_end;
        }
        // Whole stripes: what is not there of a stripe lies behind the object's end.
        let touched: Vec<(u64, u64)> = writes.ranges().collect();
        for (offset, len) in touched {
            writes.fill(offset / width * width, (offset + len).next_multiple_of(width));
        }

        for (offset, data) in writes.joined(0, append_after) {
            let (from, len) = (chunk(offset), chunk(data.len() as u64));
            overwritten = true;
            if !op.is_fresh() {
                let is_first = kept.is_empty();
                kept.push((from, len));
                self.each(|t, cid, shard| {
                    let (object, stash) = (at(oid, NO_GEN, shard), at(oid, generation, shard));
                    if is_first {
                        t.touch(cid, &stash);
                    }
                    t.clone_range(cid, &object, &stash, from, len, from);
                });
            }
            self.write(oid, offset, &data, hinfo);
        }
        let appended = writes.joined(append_after, u64::MAX);
        for (offset, data) in &appended {
            self.write(oid, *offset, data, hinfo);
        }
        if overwritten {
            hash_info::set_size_only(hinfo, chunk(end));
        }
        if !kept.is_empty() {
            desc.push(&RollbackOp::RollbackExtents(generation, kept));
        }
        if !appended.is_empty() {
            desc.push(&RollbackOp::Append(append_after));
        }
        Ok(())
    }

    /// The stripes that were read, as far as this op needs them.
    fn read_stripes(&self, oid: &HObject, op: &ObjectOp, old_end: u64) -> Result<Extents, Errno> {
        let mut writes = Extents::default();
        let Some(base) = op.base(oid) else { return Ok(writes) };
        let width = self.codec.width();
        for start in partial_stripes(op, width, old_end) {
            let pieces = self.read.get(base).map_or(&[][..], Vec::as_slice);
            let holds = |(at, data): &&(u64, Bytes)| {
                *at <= start && start + width <= *at + data.len() as u64
            };
            let Some((at, data)) = pieces.iter().find(holds) else {
                tracing::error!("{oid}: stripe at {start} was not read before it is changed");
                return Err(Errno::EIO);
            };
            let from = (start - at) as usize;
            writes.insert(start, data.slice(from..from + width as usize));
        }
        Ok(writes)
    }

    /// Writes whole stripes.
    fn write(&mut self, oid: &HObject, offset: u64, data: &[u8], hinfo: &mut EcHashInfo) {
        let chunks = self.codec.encode(data);
        let from = self.codec.chunk_offset(offset);
        let appends = from >= hinfo.total_chunk_size;
        if appends {
            hash_info::append(hinfo, &chunks);
        }
        self.each(|t, cid, shard| {
            let object = at(oid, NO_GEN, shard);
            if appends {
                t.set_alloc_hint(cid, &object, 0, 0, APPEND_HINT);
            }
            t.write(cid, &object, from, chunks[shard as usize].clone());
        });
    }
}

/// An object of a shard.
pub(super) fn at(oid: &HObject, generation: u64, shard: i8) -> GhObject {
    GhObject { hobj: oid.clone(), generation, shard, max: false }
}
