//! Submitting a transaction: checked, given its blocks, applied in memory and described to the log
//! in one go, without waiting for anything.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use bstr::BStr;
use bytes::Bytes;
use device::WriteCause;
use env::sync::oneshot;
use env::{AlignedBuf, LocalFuture};
use futures_util::future::join_all;
use smallvec::SmallVec;
use types::hobject::GhObject;
use types::page_sums::PageSums;

use super::format::{BLOCK_LEN, PAGE_PAYLOAD_LEN, known_data_crc};
use super::key_map::Place;
use super::log::join_writes;
use super::onode::{AllocHint, BlockPtr, Onode, PatchSource, edges};
use super::rec::Share;
use super::state::{Slot, State};
use super::{Core, Inner, ready};
use crate::check::{Existing, check};
use crate::transaction::SMALL_METADATA;
use crate::{CollId, CollIndex, ObjectIndex, Op, Pairs, StoreError, Transaction};

/// Up to this many bytes of a block are kept among the metadata instead of in a block.
pub(super) const INLINE_MAX: usize = 1024;
/// Up to this many bytes of patches an object keeps before they are folded.
pub(super) const PATCHES_MAX: usize = 16 << 10;
/// So many bytes of patches are kept in all, and [`INLINE_MAX`] more for each object, so that what is no longer than that may
/// stay where it is. With more of them a block is folded whenever a part of it is written. Small in tests, so that it comes to that.
pub(super) const PATCHES_IN_ALL_MAX: u64 = if cfg!(test) { 128 << 10 } else { 8 << 20 };
/// Transactions with at least this much data start writing it at once: there is nothing to gain
/// by joining it with others'.
const EARLY_WRITE_MIN: u64 = 128 << 10;

impl Inner {
    pub(super) fn submit(self: &Rc<Inner>, t: &Transaction) -> LocalFuture<Result<(), StoreError>> {
        let mut core = self.core.borrow_mut();
        if let Err(e) = core.admit(t) {
            let stops = e == StoreError::NoSpace && core.stops_when_full;
            drop(core);
            if stops {
                self.fail(std::io::ErrorKind::StorageFull.into());
            }
            return ready(Err(e));
        }
        let first_write = core.pending.data.len();
        core.resolved = None;
        for op in t.ops() {
            core.apply(t, op);
            if moves_objects(op) {
                core.resolved = None;
                core.found.clear();
            }
        }
        let (sender, receiver) = oneshot();
        core.pending.transactions += 1;
        core.pending.waiters.push(sender);
        core.free_later();
        if t.data_len() >= EARLY_WRITE_MIN {
            self.write_early(&mut core, first_write);
        }
        let (fold, behind) = (!core.folds.is_empty(), core.folds.behind());
        drop(core);
        self.work.notify_all();
        if fold {
            self.folding.notify_all();
        }
        let done = async move { receiver.await.unwrap_or(Err(StoreError::Closed)) };
        let Some(count) = behind else { return Box::pin(done) };
        let inner = Rc::downgrade(self);
        Box::pin(async move {
            let done = done.await;
            if let Some(inner) = inner.upgrade() {
                inner.folded(count).await;
            }
            done
        })
    }

    /// Starts writing the blocks queued since `from`.
    fn write_early(&self, core: &mut Core, from: usize) {
        let data = core.pending.data.split_off(from);
        let device = self.device.clone();
        let handle = self.env.spawn_with_handle(async move {
            let writes = join_writes(data, WriteCause::Data);
            let writes = writes.into_iter().map(|(offset, pieces)| device.write(offset, pieces));
            join_all(writes).await.into_iter().collect::<Result<(), _>>()
        });
        core.pending.early.push(handle);
    }
}

/// Objects as a transaction names them, and where they are.
pub(super) type Found = SmallVec<[((CollIndex, ObjectIndex), Slot); 4]>;

/// The state as a transaction's check asks it: what it finds is noted.
struct Seen<'a> {
    state: &'a State,
    found: RefCell<&'a mut Found>,
}

impl Existing for Seen<'_> {
    fn collection_len(&self, cid: &CollId) -> Option<usize> {
        self.state.collection_len(cid)
    }

    fn object_exists(&self, cid: &CollId, oid: &GhObject) -> bool {
        self.state.object_exists(cid, oid)
    }

    fn named_exists(&self, name: (CollIndex, ObjectIndex), cid: &CollId, oid: &GhObject) -> bool {
        let slot = self.state.lookup(cid, oid);
        self.found.borrow_mut().extend(slot.map(|slot| (name, slot)));
        slot.is_some()
    }
}

impl Core {
    /// Whether a transaction can be applied, in every respect. Notes where its objects were found.
    fn admit(&mut self, t: &Transaction) -> Result<(), StoreError> {
        if self.failed.is_some() {
            return Err(StoreError::Latched);
        }
        if self.closing {
            return Err(StoreError::Closed);
        }
        if self.is_short() {
            self.forgo_discards();
        }
        self.found.clear();
        let seen = Seen { state: &self.state, found: RefCell::new(&mut self.found) };
        check(t, &seen)?;
        let (blocks, metadata) = growth(t, &self.state);
        if blocks == 0 && metadata == 0 {
            return Ok(());
        }
        // What the store's owner notes for itself (an OSD: maps) may take half of what is kept beside a checkpoint: an
        // OSD that clients have filled must start, to let them remove something.
        let reserve = self.reserve_with(if t.is_of_owner() { 2 } else { 1 });
        if blocks > 0 && !self.are_free(blocks + self.spill_blocks(metadata)) {
            return Err(StoreError::NoSpace);
        }
        let used = self.used_blocks() + metadata.div_ceil(PAGE_PAYLOAD_LEN as u64) * 5 / 4;
        let total = u64::from(self.device_blocks);
        if used + blocks + reserve <= total {
            return Ok(());
        }
        // Near the end what is overwritten counts; and what comes with an overwrite (a pg log entry) may take as much as
        // the owner, what comes with a removal more.
        let more = blocks.saturating_sub(replaced_blocks(t, &self.state));
        let is_small = more == 0 && (metadata <= SMALL_METADATA || !t.notes_much());
        let kept = match is_small {
            true => self.reserve_with(if t.removes() { 8 } else { 2 }),
            false => reserve,
        };
        let fits = used + more + kept <= total;
        if fits { Ok(()) } else { Err(StoreError::NoSpace) }
    }

    /// Whether so many blocks are there at once beside what is kept for a checkpoint: those of overwritten data come
    /// back only when that is durable.
    fn are_free(&mut self, blocks: u64) -> bool {
        let kept = self.base_reserve();
        if u64::from(self.alloc.free()) < blocks + kept {
            self.forgo_discards();
        }
        u64::from(self.alloc.free()) >= blocks + kept
    }

    /// Whether a block can be written anew: as an overwrite, or beside one that is not given up.
    pub(super) fn admits_block(&mut self, given_up: bool) -> bool {
        let reserve = self.reserve_blocks();
        let fits = self.used_blocks() + 1 + reserve <= u64::from(self.device_blocks);
        self.are_free(1 + self.spill_blocks(0)) && (given_up || fits)
    }

    /// Blocks a batch may need for a long payload.
    fn spill_blocks(&self, metadata: u64) -> u64 {
        if metadata as usize > self.log.payload_max() / 2 { metadata / BLOCK_LEN + 2 } else { 2 }
    }

    /// Selects an object in the log, naming it if the log does not know it yet.
    pub(super) fn select(&mut self, slot: Slot) {
        let generation = self.state.handle_generation;
        let next = self.state.next_handle;
        let recs = &mut self.pending.recs;
        let Some(onode) = self.state.load(slot) else { return };
        if onode.handle.0 == generation {
            recs.select(onode.handle.1);
        } else {
            onode.handle = (generation, next);
            recs.open(next, &onode.cid, &onode.oid);
            self.state.next_handle += 1;
        }
    }

    /// The object, created and selected.
    fn ensure(&mut self, t: &Transaction, cid: CollIndex, oid: ObjectIndex) -> Option<Slot> {
        self.existing(t, cid, oid).or_else(|| {
            let (of, name) = (&t.collections()[cid as usize], &t.objects()[oid as usize]);
            let slot = self.state.create(of, name)?;
            self.select(slot);
            self.pending.recs.create();
            self.resolved = Some(((cid, oid), slot));
            Some(slot)
        })
    }

    /// The object, selected, if it exists.
    fn existing(&mut self, t: &Transaction, cid: CollIndex, oid: ObjectIndex) -> Option<Slot> {
        if let Some((of, slot)) = self.resolved
            && of == (cid, oid)
        {
            return Some(slot);
        }
        let found = self.found.iter().find(|(name, _)| *name == (cid, oid));
        let slot = match found {
            Some((_, slot)) => *slot,
            None => {
                let (of, name) = (&t.collections()[cid as usize], &t.objects()[oid as usize]);
                self.state.lookup(of, name)?
            }
        };
        self.select(slot);
        self.resolved = Some(((cid, oid), slot));
        Some(slot)
    }

    /// Applies one operation of an admitted transaction.
    fn apply(&mut self, t: &Transaction, op: &Op) {
        let cid = |i: u32| &t.collections()[i as usize];
        let oid = |i: u32| &t.objects()[i as usize];
        match *op {
            Op::Nop | Op::CollHint { .. } => {}
            Op::Touch { cid: c, oid: o } | Op::Create { cid: c, oid: o } => {
                self.ensure(t, c, o);
            }
            Op::Write { cid: c, oid: o, offset, ref data } => {
                if let Some(slot) = self.ensure(t, c, o) {
                    self.write(slot, offset, data, t.sums());
                }
            }
            Op::Zero { cid: c, oid: o, offset, len } => {
                if let Some(slot) = self.ensure(t, c, o)
                    && len > 0
                {
                    self.pending.recs.zero(offset, len);
                    if let Some((onode, space)) = self.state.change(slot) {
                        onode.punch(offset..offset + len, space);
                        onode.grow_to(offset + len);
                    }
                }
            }
            Op::Truncate { cid: c, oid: o, size } => {
                if let Some(slot) = self.existing(t, c, o) {
                    self.pending.recs.truncate(size);
                    if let Some((onode, space)) = self.state.change(slot) {
                        onode.truncate(size, space);
                    }
                }
            }
            Op::Remove { cid: c, oid: o } => {
                if self.existing(t, c, o).is_some() {
                    self.pending.recs.remove();
                    self.state.remove(cid(c), oid(o));
                }
            }
            Op::SetAttr { cid: c, oid: o, ref name, ref value } => {
                if let Some(slot) = self.existing(t, c, o) {
                    self.set_attr(slot, BStr::new(name), value);
                }
            }
            Op::SetAttrs { cid: c, oid: o, ref attrs } => {
                if let Some(slot) = self.existing(t, c, o) {
                    for (name, value) in attrs {
                        self.set_attr(slot, BStr::new(name), value);
                    }
                }
            }
            Op::RmAttr { cid: c, oid: o, ref name } => {
                if let Some(slot) = self.existing(t, c, o) {
                    self.pending.recs.rm_attr(BStr::new(name));
                    if let Some((onode, space)) = self.state.change(slot) {
                        onode.rm_attr(BStr::new(name), space);
                    }
                }
            }
            Op::RmAttrs { cid: c, oid: o } => {
                if let Some(slot) = self.existing(t, c, o) {
                    self.pending.recs.rm_attrs();
                    if let Some((onode, space)) = self.state.change(slot) {
                        onode.rm_attrs(space);
                    }
                }
            }
            Op::Clone { cid: c, oid: o, to } => {
                if o != to && self.existing(t, c, o).is_some() {
                    self.pending.recs.clone_to(oid(to));
                    self.state.clone_object(cid(c), oid(o), oid(to));
                }
            }
            Op::CloneRange { cid: c, oid: o, to, offset, len, to_offset } => {
                if self.existing(t, c, o).is_some() {
                    self.pending.recs.clone_range(oid(to), offset, len, to_offset);
                    self.state.clone_range(cid(c), oid(o), oid(to), (offset, len, to_offset));
                    self.fold_object(cid(c), oid(to));
                }
            }
            Op::CollMoveRename { cid: c, oid: o, to_cid, to } => {
                self.rename((cid(c), oid(o)), (cid(to_cid), oid(to)));
            }
            Op::TryRename { cid: c, oid: o, to } => {
                self.rename((cid(c), oid(o)), (cid(c), oid(to)));
            }
            Op::SetAllocHint { cid: c, oid: o, object_size, write_size, flags } => {
                if let Some(slot) = self.existing(t, c, o) {
                    let hint = AllocHint { object_size, write_size, flags };
                    if self.state.onode(slot).is_some_and(|o| o.hint() != hint) {
                        self.pending.recs.hint(&hint);
                        if let Some((onode, _)) = self.state.change(slot) {
                            onode.set_hint(hint);
                            onode.dirty.head = true;
                        }
                    }
                }
            }
            Op::MkColl { cid: c, bits } => {
                self.pending.recs.make_collection(cid(c), bits);
                self.state.make_collection(*cid(c), bits);
            }
            Op::RmColl { cid: c } => {
                self.pending.recs.remove_collection(cid(c));
                self.state.remove_collection(cid(c));
            }
            Op::CollSetBits { cid: c, bits } => {
                self.pending.recs.set_bits(cid(c), bits);
                self.state.make_collection(*cid(c), bits);
            }
            Op::SplitCollection { cid: c, bits, rem, to_cid } => {
                self.pending.recs.split(cid(c), bits, rem, cid(to_cid));
                self.state.split(cid(c), bits, rem, cid(to_cid));
                self.pending.recs.forget_handles();
            }
            Op::MergeCollection { cid: c, to_cid, bits } => {
                self.pending.recs.merge(cid(c), cid(to_cid), bits);
                self.state.merge(cid(c), cid(to_cid), bits);
                self.pending.recs.forget_handles();
            }
            Op::OmapClear { cid: c, oid: o } => {
                if let Some(slot) = self.existing(t, c, o) {
                    self.pending.recs.omap_clear(share(oid(o)));
                    if let Some((onode, space)) = self.state.change(slot) {
                        onode.omap_clear(space);
                    }
                }
            }
            Op::OmapSetKeys { cid: c, oid: o, ref entries } => {
                if let Some(slot) = self.existing(t, c, o) {
                    for (key, value) in entries {
                        self.omap_set(slot, share(oid(o)), BStr::new(key), value);
                    }
                }
            }
            Op::OmapRmKeys { cid: c, oid: o, ref keys } => {
                if let Some(slot) = self.existing(t, c, o) {
                    for key in keys {
                        let Some((onode, space)) = self.state.change(slot) else { break };
                        let key = BStr::new(key);
                        if onode.omap().is_some_and(|omap| omap.map.contains(key)) {
                            self.pending.recs.omap_rm(share(oid(o)), key);
                            onode.omap_rm(key, space);
                        }
                    }
                }
            }
            Op::OmapRmKeyRange { cid: c, oid: o, ref first, ref last } => {
                if let Some(slot) = self.existing(t, c, o) {
                    let (first, last) = (BStr::new(first), BStr::new(last));
                    self.pending.recs.omap_rm_range(share(oid(o)), first, last);
                    if let Some((onode, space)) = self.state.change(slot) {
                        onode.omap_rm_range(first, last, space);
                    }
                }
            }
            Op::OmapSetHeader { cid: c, oid: o, ref header } => {
                if let Some(slot) = self.existing(t, c, o)
                    && let Some((onode, space)) = self.state.change(slot)
                {
                    let old = &onode.omap_mut().header;
                    self.pending.recs.omap_header(share(oid(o)), header, old);
                    onode.omap_set_header(Bytes::copy_from_slice(header), space);
                }
            }
        }
    }

    fn rename(&mut self, from: (&CollId, &GhObject), to: (&CollId, &GhObject)) {
        if from == to {
            return;
        }
        if let Some(slot) = self.state.lookup(from.0, from.1) {
            self.select(slot);
            self.pending.recs.rename(to.0, to.1);
            self.state.rename(from, to);
        }
    }

    /// Values are copied: they are small, and a slice would keep a whole message in memory.
    fn set_attr(&mut self, slot: Slot, name: &BStr, value: &[u8]) {
        let Some((onode, space)) = self.state.change(slot) else { return };
        let old = onode.attrs.get(name);
        if old == Some(value) {
            return;
        }
        self.pending.recs.set_attr(name, value, old);
        onode.set_attr(name, value, space);
    }

    fn omap_set(&mut self, slot: Slot, share: Share, key: &BStr, value: &[u8]) {
        let Some((onode, space)) = self.state.change(slot) else { return };
        let place = onode.omap_mut().map.find(key);
        let reference = omap_reference(onode, place);
        self.pending.recs.omap_set(share, key, value, reference);
        onode.omap_set(place, key, value, space);
    }

    /// Writes data: whole blocks to new places, parts of blocks as patches, or as whole blocks if
    /// what else the block holds is known and there is enough of it.
    fn write(&mut self, slot: Slot, offset: u64, data: &Bytes, sums: Option<&PageSums>) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        let part =
            |r: &Range<u64>| data.slice((r.start - offset) as usize..(r.end - offset) as usize);
        // Blocks to be written, in order: number of the first and contents.
        let mut whole: SmallVec<[(u64, Bytes); 1]> = SmallVec::new();
        let mut parts: SmallVec<[Range<u64>; 2]> = SmallVec::new();
        let full = offset.next_multiple_of(BLOCK_LEN)..end / BLOCK_LEN * BLOCK_LEN;
        let Some(onode) = self.state.onode(slot) else { return };
        for edge in edges(&(offset..end)) {
            match compose(onode, &edge, &part(&edge)) {
                Some(block) => whole.push((edge.start / BLOCK_LEN, block)),
                None => parts.push(edge),
            }
        }
        if full.start < full.end {
            whole.push((full.start / BLOCK_LEN, part(&full)));
            whole.sort_by_key(|(block, _)| *block);
        }
        self.write_whole(slot, &whole, end, sums);
        for range in parts {
            self.patch(slot, range.start, &part(&range));
        }
    }

    /// Writes whole blocks; adjacent pieces share one record and, if they can, one extent.
    pub(super) fn write_whole(
        &mut self,
        slot: Slot,
        pieces: &[(u64, Bytes)],
        end: u64,
        sums: Option<&PageSums>,
    ) {
        let mut rest = pieces;
        while let Some((first, _)) = rest.first() {
            let mut next = *first;
            let joined = rest.iter().take_while(|(block, bytes)| {
                let fits = *block == next;
                next += bytes.len() as u64 / BLOCK_LEN;
                fits
            });
            let joined = joined.count();
            let run = &rest[..joined];
            rest = &rest[joined..];
            let ptrs = self.place(run.iter().map(|(_, bytes)| bytes), sums);
            let Some((onode, space)) = self.state.change(slot) else { return };
            let run_end = (first + ptrs.len() as u64) * BLOCK_LEN;
            let size = if onode.size < end.min(run_end) { end.min(run_end) } else { 0 };
            self.pending.recs.write(*first, &ptrs, size);
            onode.write_blocks(*first, &ptrs, space);
            onode.grow_to(size);
        }
    }

    /// Gives contents their places and queues them to be written.
    fn place<'a>(
        &mut self,
        contents: impl Iterator<Item = &'a Bytes> + Clone,
        sums: Option<&PageSums>,
    ) -> SmallVec<[BlockPtr; 4]> {
        let blocks = contents.clone().map(|b| b.len() as u64 / BLOCK_LEN).sum::<u64>();
        let extents = u32::try_from(blocks).ok().and_then(|n| self.alloc.allocate(n));
        // Admission counted the free blocks.
        let extents = extents.expect("blocks counted at admission are free");
        let mut ptrs = SmallVec::with_capacity(blocks as usize);
        let mut places = extents.into_iter();
        let mut place = places.next();
        for bytes in contents {
            let mut bytes = bytes.clone();
            while let (Some(extent), false) = (&mut place, bytes.is_empty()) {
                let len = u64::from(extent.len).min(bytes.len() as u64 / BLOCK_LEN) as u32;
                let written = bytes.split_to((u64::from(len) * BLOCK_LEN) as usize);
                for (i, block) in written.chunks_exact(BLOCK_LEN as usize).enumerate() {
                    let crc = known_data_crc(block, sums);
                    self.pending.data_hash.add(block);
                    ptrs.push(BlockPtr { block: extent.start + i as u32, crc });
                }
                let written = for_device(written);
                self.inflight.insert(extent.start, written.clone());
                self.pending.inflight.push(extent.start);
                self.pending.data.push((extent.start, written));
                extent.start += len;
                extent.len -= len;
                if extent.len == 0 {
                    place = places.next();
                }
            }
        }
        ptrs
    }

    fn patch(&mut self, slot: Slot, offset: u64, data: &[u8]) {
        self.pending.recs.patch(offset, data);
        let Some((onode, space)) = self.state.change(slot) else { return };
        let source = PatchSource::Bytes(Bytes::copy_from_slice(data));
        onode.patch(offset, source, data.len() as u32, space);
        onode.grow_to(offset + data.len() as u64);
        let block = offset / BLOCK_LEN;
        let kept_in_all = PATCHES_IN_ALL_MAX + space.objects * INLINE_MAX as u64;
        let many_in_all = space.patch_bytes > kept_in_all && onode.size > INLINE_MAX as u64;
        if onode.patch_cost(block) >= INLINE_MAX || many_in_all {
            self.folds.push(onode, block);
        } else if onode.patch_bytes() > PATCHES_MAX
            && let Some((&at, _)) = onode.patches().first_key_value()
        {
            self.folds.push(onode, at / BLOCK_LEN);
        }
    }

    /// Queues the blocks of an object that a copy of a range has patched.
    fn fold_object(&mut self, cid: &CollId, oid: &GhObject) {
        let Ok(onode) = self.state.find(cid, oid) else { return };
        if onode.patch_bytes() <= INLINE_MAX {
            return;
        }
        onode.patched_blocks().into_iter().for_each(|block| self.folds.push(onode, block));
    }
}

/// The same bytes where direct I/O takes them from. What is not there yet is copied now, while the
/// processor's caches have it, and what was received with it can be given up.
fn for_device(bytes: Bytes) -> Bytes {
    match (bytes.as_ptr() as usize).is_multiple_of(AlignedBuf::ALIGN) {
        true => bytes,
        false => AlignedBuf::copy_from_slice(&bytes).freeze(),
    }
}

/// Whether what a name stands for may be another object afterwards, or another be selected.
fn moves_objects(op: &Op) -> bool {
    matches!(
        op,
        Op::Remove { .. }
            | Op::Clone { .. }
            | Op::CloneRange { .. }
            | Op::CollMoveRename { .. }
            | Op::TryRename { .. }
            | Op::RmColl { .. }
            | Op::SplitCollection { .. }
            | Op::MergeCollection { .. }
    )
}

fn share(oid: &GhObject) -> Share {
    if oid.is_pgmeta() { Share::PgLog } else { Share::Omap }
}

/// What a new omap value is compared with: the old one or, for a new key, the value of the
/// greatest smaller key. Replay must come to the same.
pub(super) fn omap_reference(onode: &Onode, place: Place) -> Option<&[u8]> {
    onode.omap()?.map.at_or_before(place).map(|(_, value)| value)
}

/// The whole new contents of the block that `range` lies in, if they are known without reading the
/// device and a block is the right place for them.
fn compose(onode: &Onode, range: &Range<u64>, data: &[u8]) -> Option<Bytes> {
    let block = range.start / BLOCK_LEN;
    let start = block * BLOCK_LEN;
    let covers_all = range.start == start && range.end >= onode.size;
    if !covers_all && !onode.ptr(block).is_hole() {
        return None;
    }
    let mut total = data.len();
    let mut bytes = vec![0; BLOCK_LEN as usize];
    if !covers_all {
        for (at, patch) in onode.patches_of(block) {
            let place = (at - start) as usize..(at - start) as usize + patch.len as usize;
            match &patch.source {
                PatchSource::Bytes(b) => bytes[place].copy_from_slice(b),
                PatchSource::Zeros => bytes[place].fill(0),
                PatchSource::Block { .. } => return None,
            }
            total += patch.cost();
        }
    }
    if total < INLINE_MAX {
        return None;
    }
    let at = (range.start - start) as usize;
    bytes[at..at + data.len()].copy_from_slice(data);
    Some(bytes.into())
}

/// The most blocks and bytes of metadata a transaction can add.
fn growth(t: &Transaction, state: &State) -> (u64, u64) {
    let pairs =
        |pairs: &Pairs| pairs.iter().map(|(k, v)| (k.len() + v.len() + 16) as u64).sum::<u64>();
    let source = |cid: u32, oid: u32| {
        let slot = state.lookup(&t.collections()[cid as usize], &t.objects()[oid as usize])?;
        state.onode(slot)
    };
    let (mut blocks, mut metadata) = (0, 0);
    for op in t.ops() {
        match op {
            Op::Write { data, .. } if !data.is_empty() => {
                blocks += data.len() as u64 / BLOCK_LEN + 2;
                metadata += 64;
            }
            Op::Touch { .. } | Op::Create { .. } => metadata += 64,
            Op::SetAttr { name, value, .. } => metadata += (name.len() + value.len()) as u64,
            Op::SetAttrs { attrs, .. } => metadata += pairs(attrs),
            Op::OmapSetKeys { entries, .. } => metadata += pairs(entries),
            Op::OmapSetHeader { header, .. } => metadata += header.len() as u64,
            Op::Clone { cid, oid, .. } => {
                if let Some(onode) = source(*cid, *oid) {
                    let data = onode.chunks().len() * 200;
                    metadata += (data + onode.omap_cost() + onode.attr_cost()) as u64;
                }
            }
            Op::CloneRange { len, .. } => metadata += 64 + len / BLOCK_LEN * 40,
            _ => {}
        }
    }
    (blocks, metadata)
}

/// Blocks that the transaction's writes surely free.
fn replaced_blocks(t: &Transaction, state: &State) -> u64 {
    let mut replaced = 0;
    // What it copies before it writes over it stays, as the copy's.
    let mut copied: SmallVec<[(CollIndex, ObjectIndex); 2]> = SmallVec::new();
    for op in t.ops() {
        if let Op::Clone { cid, oid, .. } | Op::CloneRange { cid, oid, .. } = op {
            copied.push((*cid, *oid));
        }
        let Op::Write { cid, oid, offset, data } = op else { continue };
        if copied.contains(&(*cid, *oid)) {
            continue;
        }
        let (cid, oid) = (&t.collections()[*cid as usize], &t.objects()[*oid as usize]);
        let Some(onode) = state.lookup(cid, oid).and_then(|s| state.onode(s)) else { continue };
        let end = offset + data.len() as u64;
        let full = offset.div_ceil(BLOCK_LEN)..end / BLOCK_LEN;
        let own = |block: &u64| {
            let ptr = onode.ptr(*block);
            !ptr.is_hole() && !state.space.is_shared(ptr.block)
        };
        replaced += full.filter(own).count() as u64;
        // The blocks counted for edges that a part of a block does not need.
        replaced += u64::from(offset.is_multiple_of(BLOCK_LEN));
        replaced += u64::from(end.is_multiple_of(BLOCK_LEN));
    }
    replaced
}
