//! One object: where its data is, what lies over it, xattrs, omap. Changes in memory only; the
//! caller logs them.
//!
//! Data is a table of 4 KiB blocks, each a place on the device with its checksum or a hole, and
//! *patches*: byte ranges that lie over the blocks because a write covered a block only in part.
//! A patch never crosses a block boundary. Bytes of a block behind the object's size are zero.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use bstr::BStr;
use bytes::Bytes;
use smallvec::SmallVec;
use types::ahead;
use types::hobject::GhObject;

use super::attrs::Attrs;
use super::changed_keys::ChangedKeys;
use super::chunk_set::ChunkSet;
use super::chunk_table::ChunkTable;
use super::format::BLOCK_LEN;
use super::kept::Kept;
use super::key_map::{KeyMap, Place};
use super::name::Name;
use super::space::Space;
use super::state::Key;
use crate::CollId;

/// Blocks whose pointers are kept and checkpointed together (64 KiB of data, 128 B of memory).
pub(super) const CHUNK_BLOCKS: u64 = 16;

/// Where a block is and what it must contain. Block 0 (a superblock) stands for a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct BlockPtr {
    pub(super) block: u32,
    pub(super) crc: u32,
}

impl BlockPtr {
    pub(super) const HOLE: BlockPtr = BlockPtr { block: 0, crc: 0 };

    pub(super) fn is_hole(self) -> bool {
        self.block == 0
    }
}

pub(super) type Chunk = [BlockPtr; CHUNK_BLOCKS as usize];

/// Bytes lying over a block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Patch {
    pub(super) len: u32,
    pub(super) source: PatchSource,
}

/// Pieces of an object, each with where it begins; mostly one, of a block.
pub(super) type Pieces = SmallVec<[(u64, Patch); 1]>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PatchSource {
    Bytes(Bytes),
    Zeros,
    /// Bytes of another block from `skip` on: a copy of a range that is not aligned.
    Block {
        ptr: BlockPtr,
        skip: u32,
    },
}

impl Patch {
    /// The part of the patch `from..to`, relative to its start.
    fn part(&self, from: u64, to: u64) -> Patch {
        let source = match &self.source {
            PatchSource::Bytes(b) => PatchSource::Bytes(b.slice(from as usize..to as usize)),
            PatchSource::Zeros => PatchSource::Zeros,
            PatchSource::Block { ptr, skip } => {
                PatchSource::Block { ptr: *ptr, skip: skip + from as u32 }
            }
        };
        Patch { len: (to - from) as u32, source }
    }

    /// Bytes of metadata it takes.
    pub(super) fn cost(&self) -> usize {
        match &self.source {
            PatchSource::Bytes(b) => b.len() + 8,
            PatchSource::Zeros => 8,
            PatchSource::Block { .. } => 20,
        }
    }
}

/// What changed since the last checkpoint began.
#[derive(Debug, Clone, Default)]
pub(super) struct Dirty {
    /// The object is among those that the next checkpoint looks at.
    pub(super) listed: bool,
    /// Everything: older checkpoints hold nothing of this object that still counts.
    pub(super) fresh: bool,
    /// Size, hint, xattrs, patches, omap header.
    pub(super) head: bool,
    pub(super) chunks: ChunkSet,
    /// Keys in older checkpoints are gone.
    pub(super) omap_cleared: bool,
    pub(super) omap: ChangedKeys,
}

impl Dirty {
    /// The chunks that a checkpoint needs.
    pub(super) fn chunks_of(&self, onode: &Onode) -> ChunkSet {
        if !self.fresh {
            return self.chunks.clone();
        }
        let mut all = ChunkSet::default();
        onode.chunks.iter().for_each(|(number, _)| all.insert(number));
        all
    }
}

/// An expectation given by the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AllocHint {
    pub(super) object_size: u64,
    pub(super) write_size: u64,
    pub(super) flags: u32,
}

/// Keys that the log refers to when it writes the next one (see `rec.rs`).
pub(super) const KEY_SLOTS: usize = 4;

#[derive(Debug, Clone, Default)]
pub(super) struct Omap {
    pub(super) map: KeyMap,
    pub(super) header: Bytes,
}

#[derive(Debug, Clone, Default)]
struct Patches {
    by_offset: BTreeMap<u64, Patch>,
    /// Metadata bytes of all of them.
    bytes: usize,
}

static NO_PATCHES: BTreeMap<u64, Patch> = BTreeMap::new();

/// What each write of an object needs stands in front: two or three lines of the processor's caches. What few
/// objects have is elsewhere: a million small objects are a million of these.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Onode {
    pub(super) cid: CollId,
    pub(super) oid: Rc<GhObject>,
    /// Generation and number under which the log knows the object.
    pub(super) handle: (u64, u32),
    /// State generation ([`super::state::State::generation`]) of the last change that mattered to a
    /// checkpoint: not after a checkpoint's own means that `dirty` is as it was when that began.
    pub(super) generation: u64,
    pub(super) size: u64,
    chunks: ChunkTable,
    pub(super) attrs: Attrs,
    pub(super) dirty: Dirty,
    /// What the checkpoint that is being written needs of the chunks, if it has not come to the object.
    pub(super) kept: Option<Box<Kept>>,
    /// `None`: there are none.
    patches: Option<Box<Patches>>,
    /// `None`: empty, and there is nothing about it that a checkpoint would have to say.
    omap: Option<Box<Omap>>,
    /// Never used twice in a run of the process.
    pub(super) uid: u64,
    /// `None`: all 0.
    hint: Option<Box<AllocHint>>,
}

/// Memory an object takes follows from its size (docs/format-inkstore.md).
const _: () = assert!(size_of::<Onode>() == 192);

impl Onode {
    pub(super) fn new(cid: CollId, oid: Rc<GhObject>, uid: u64) -> Onode {
        Onode {
            cid,
            oid,
            uid,
            size: 0,
            chunks: ChunkTable::default(),
            patches: None,
            attrs: Attrs::default(),
            omap: None,
            hint: None,
            handle: (0, 0),
            dirty: Dirty { fresh: true, ..Dirty::default() },
            kept: None,
            generation: 0,
        }
    }

    /// Its place in the order of all objects.
    pub(super) fn key(&self) -> Key {
        (self.cid, Name::new(self.oid.clone()))
    }

    pub(super) fn ptr(&self, block: u64) -> BlockPtr {
        self.chunks.ptr(block)
    }

    pub(super) fn chunks(&self) -> &ChunkTable {
        &self.chunks
    }

    pub(super) fn patches(&self) -> &BTreeMap<u64, Patch> {
        self.patches.as_ref().map_or(&NO_PATCHES, |patches| &patches.by_offset)
    }

    /// Metadata bytes of all patches.
    pub(super) fn patch_bytes(&self) -> usize {
        self.patches.as_ref().map_or(0, |patches| patches.bytes)
    }

    pub(super) fn omap(&self) -> Option<&Omap> {
        self.omap.as_deref()
    }

    pub(super) fn omap_mut(&mut self) -> &mut Omap {
        self.omap.get_or_insert_default()
    }

    /// Asks for what a checkpoint will want of it, behind its pointers ([`ahead::fetch`]).
    pub(super) fn fetch(&self) {
        self.attrs.fetch();
        self.hint.as_deref().inspect(|hint| ahead::fetch(*hint));
    }

    pub(super) fn hint(&self) -> AllocHint {
        self.hint.as_deref().copied().unwrap_or_default()
    }

    pub(super) fn set_hint(&mut self, hint: AllocHint) {
        self.hint = (hint != AllocHint::default()).then(|| Box::new(hint));
    }

    /// The patches of one block.
    pub(super) fn patches_of(&self, block: u64) -> impl Iterator<Item = (u64, &Patch)> {
        let start = block * BLOCK_LEN;
        self.patches().range(start..start + BLOCK_LEN).map(|(&at, patch)| (at, patch))
    }

    /// The blocks that patches lie over.
    pub(super) fn patched_blocks(&self) -> Vec<u64> {
        let mut blocks: Vec<u64> = self.patches().keys().map(|at| at / BLOCK_LEN).collect();
        blocks.dedup();
        blocks
    }

    /// Metadata bytes of the patches of one block.
    pub(super) fn patch_cost(&self, block: u64) -> usize {
        self.patches_of(block).map(|(_, p)| p.cost()).sum()
    }

    /// Sets a pointer without counting references.
    pub(super) fn set_ptr_uncounted(&mut self, block: u64, ptr: BlockPtr) -> BlockPtr {
        self.chunks.set(block, ptr)
    }

    fn set_ptr(&mut self, block: u64, ptr: BlockPtr, space: &mut Space) {
        if let Some(kept) = &mut self.kept {
            kept.note((block / CHUNK_BLOCKS) as u32, &self.chunks);
        }
        let old = self.set_ptr_uncounted(block, ptr);
        if !old.is_hole() {
            space.drop_ref(old.block);
        }
        let changed = !old.is_hole() || !ptr.is_hole();
        if changed && !self.dirty.fresh {
            self.dirty.chunks.insert((block / CHUNK_BLOCKS) as u32);
        }
    }

    /// New contents for whole blocks; the pointers are to blocks just allocated.
    pub(super) fn write_blocks(&mut self, first: u64, ptrs: &[BlockPtr], space: &mut Space) {
        let end = first + ptrs.len() as u64;
        self.drop_patches(first * BLOCK_LEN..end * BLOCK_LEN, space);
        for (block, &ptr) in (first..).zip(ptrs) {
            self.set_ptr(block, ptr, space);
            space.add_new(ptr.block);
        }
    }

    pub(super) fn grow_to(&mut self, size: u64) {
        if size > self.size {
            self.size = size;
            self.dirty.head = true;
        }
    }

    /// Lays bytes over a part of one block.
    pub(super) fn patch(&mut self, offset: u64, source: PatchSource, len: u32, space: &mut Space) {
        self.drop_patches(offset..offset + u64::from(len), space);
        self.insert_patch(offset, Patch { len, source }, space);
    }

    fn insert_patch(&mut self, offset: u64, patch: Patch, space: &mut Space) {
        debug_assert!(offset % BLOCK_LEN + u64::from(patch.len) <= BLOCK_LEN && patch.len > 0);
        if let PatchSource::Block { ptr, .. } = patch.source {
            space.add_shared(ptr.block);
        }
        space.grow_patches(patch.cost(), 0);
        self.insert_patch_uncounted(offset, patch);
        self.dirty.head = true;
    }

    /// Inserts a patch as it was, without counting.
    pub(super) fn insert_patch_uncounted(&mut self, offset: u64, patch: Patch) {
        let patches = self.patches.get_or_insert_default();
        patches.bytes += patch.cost();
        patches.by_offset.insert(offset, patch);
    }

    pub(super) fn clear_patches_uncounted(&mut self) {
        self.patches = None;
    }

    /// Removes what patches say about a range.
    fn drop_patches(&mut self, range: Range<u64>, space: &mut Space) {
        if self.patches.is_none() || range.is_empty() {
            return;
        }
        // The first may begin before the range, in the same block.
        let from = range.start / BLOCK_LEN * BLOCK_LEN;
        let hit: Vec<u64> = self
            .patches()
            .range(from..range.end)
            .filter(|(at, p)| **at + u64::from(p.len) > range.start)
            .map(|(&at, _)| at)
            .collect();
        for at in hit {
            let Some(old) = self.take_patch(at) else { continue };
            let end = at + u64::from(old.len);
            if at < range.start {
                self.insert_patch(at, old.part(0, range.start - at), space);
            }
            if end > range.end {
                let rest = old.part(range.end - at, end - at);
                self.insert_patch(range.end, rest, space);
            }
            // The parts took references of their own, so the whole gives its one back last.
            if let PatchSource::Block { ptr, .. } = old.source {
                space.drop_ref(ptr.block);
            }
            space.grow_patches(0, old.cost());
            self.dirty.head = true;
        }
    }

    fn take_patch(&mut self, at: u64) -> Option<Patch> {
        let patches = self.patches.as_mut()?;
        let old = patches.by_offset.remove(&at)?;
        patches.bytes -= old.cost();
        if patches.by_offset.is_empty() {
            self.patches = None;
        }
        Some(old)
    }

    /// Makes a range read as zeros; does not change the size.
    pub(super) fn punch(&mut self, range: Range<u64>, space: &mut Space) {
        if range.is_empty() {
            return;
        }
        self.drop_patches(range.clone(), space);
        let full = range.start.div_ceil(BLOCK_LEN)..range.end / BLOCK_LEN;
        let chunks = (full.start / CHUNK_BLOCKS) as u32..full.end.div_ceil(CHUNK_BLOCKS) as u32;
        if full.start < full.end {
            let within = self.chunks.from(chunks.start).take_while(|(n, _)| *n < chunks.end);
            let numbers: Vec<u32> = within.map(|(n, _)| n).collect();
            // From the last: what lies behind a chunk that goes is moved.
            for number in numbers.into_iter().rev() {
                let first = u64::from(number) * CHUNK_BLOCKS;
                for block in first.max(full.start)..(first + CHUNK_BLOCKS).min(full.end) {
                    self.set_ptr(block, BlockPtr::HOLE, space);
                }
            }
        }
        for edge in edges(&range) {
            if !self.ptr(edge.start / BLOCK_LEN).is_hole() {
                let len = (edge.end - edge.start) as u32;
                self.insert_patch(edge.start, Patch { len, source: PatchSource::Zeros }, space);
            }
        }
    }

    pub(super) fn truncate(&mut self, size: u64, space: &mut Space) {
        if size < self.size {
            // To the end of the last block: what lies there is zero, and whole blocks go.
            self.punch(size..self.size.next_multiple_of(BLOCK_LEN), space);
        }
        if size != self.size {
            self.size = size;
            self.dirty.head = true;
        }
    }

    /// Becomes a copy of another object's data, xattrs and omap. What it had is gone before.
    pub(super) fn copy_all(&mut self, from: &Onode, space: &mut Space) {
        self.size = from.size;
        self.chunks = from.chunks.clone();
        self.patches = from.patches.clone();
        self.attrs = from.attrs.clone();
        self.omap = from.omap.clone();
        self.hint = from.hint.clone();
        self.dirty.fresh = true;
        for ptr in self.pointers() {
            space.add_shared(ptr.block);
        }
        space.grow_omap(self.omap_cost(), 0);
        space.grow_attrs(self.attrs.cost(), 0);
        space.grow_patches(self.patch_bytes(), 0);
    }

    /// Every pointer, as often as it counts.
    pub(super) fn pointers(&self) -> impl Iterator<Item = BlockPtr> {
        let blocks = self.chunks.iter().flat_map(|(_, chunk)| chunk).filter(|p| !p.is_hole());
        blocks.chain(self.patches().values().filter_map(|p| match p.source {
            PatchSource::Block { ptr, .. } => Some(ptr),
            _ => None,
        }))
    }

    /// The pieces that `len` bytes from `offset` on consist of, none crossing a block boundary of
    /// this object. Bytes that are zero because there is nothing are `Zeros`.
    pub(super) fn pieces(&self, offset: u64, len: u64) -> Pieces {
        let end = (offset + len).min(self.size.max(offset));
        let mut out = Pieces::new();
        let mut at = offset;
        while at < end {
            let block = at / BLOCK_LEN;
            let block_end = ((block + 1) * BLOCK_LEN).min(end);
            let base = self.ptr(block);
            let under = |at: u64, to: u64| {
                let source = match base.is_hole() {
                    true => PatchSource::Zeros,
                    false => PatchSource::Block { ptr: base, skip: (at % BLOCK_LEN) as u32 },
                };
                (at, Patch { len: (to - at) as u32, source })
            };
            for (start, patch) in self.patches_of(block) {
                let patch_end = start + u64::from(patch.len);
                if patch_end <= at || start >= block_end {
                    continue;
                }
                if start > at {
                    out.push(under(at, start));
                }
                let (from, to) = (start.max(at), patch_end.min(block_end));
                out.push((from, patch.part(from - start, to - start)));
                at = to;
            }
            if at < block_end {
                out.push(under(at, block_end));
                at = block_end;
            }
        }
        out
    }

    /// Puts pieces of an object (see [`Onode::pieces`]) at other offsets: `shift` is added.
    pub(super) fn put_pieces(&mut self, pieces: Pieces, shift: i64, space: &mut Space) {
        // Held until all are placed: what is overwritten on the way may be their source.
        let block_of = |p: &Patch| match p.source {
            PatchSource::Block { ptr, .. } => Some(ptr.block),
            _ => None,
        };
        let held: Vec<u32> = pieces.iter().filter_map(|(_, p)| block_of(p)).collect();
        held.iter().for_each(|&block| space.add_shared(block));
        for (at, piece) in pieces {
            let at = at.wrapping_add_signed(shift);
            let whole = u64::from(piece.len) == BLOCK_LEN && at.is_multiple_of(BLOCK_LEN);
            if let (true, PatchSource::Block { ptr, .. }) = (whole, &piece.source) {
                // A whole block on a whole block: shared, not laid over.
                space.add_shared(ptr.block);
                self.drop_patches(at..at + BLOCK_LEN, space);
                self.set_ptr(at / BLOCK_LEN, *ptr, space);
                continue;
            }
            // Cut at this object's block boundaries.
            let (mut from, len) = (0, u64::from(piece.len));
            while from < len {
                let room = BLOCK_LEN - (at + from) % BLOCK_LEN;
                let to = len.min(from + room);
                let part = piece.part(from, to);
                let range = at + from..at + to;
                match part.source {
                    PatchSource::Zeros => self.punch(range, space),
                    _ => {
                        self.drop_patches(range.clone(), space);
                        self.insert_patch(range.start, part, space);
                    }
                }
                from = to;
            }
        }
        held.iter().for_each(|&block| space.drop_ref(block));
    }

    pub(super) fn set_attr(&mut self, name: &[u8], value: &[u8], space: &mut Space) {
        let added = name.len() + value.len();
        let removed = self.attrs.set(name, value).map_or(0, |old_len| name.len() + old_len);
        space.grow_attrs(added, removed);
        self.dirty.head = true;
    }

    pub(super) fn rm_attr(&mut self, name: &[u8], space: &mut Space) {
        if let Some(old_len) = self.attrs.remove(name) {
            space.grow_attrs(0, name.len() + old_len);
            self.dirty.head = true;
        }
    }

    pub(super) fn rm_attrs(&mut self, space: &mut Space) {
        space.grow_attrs(0, self.attrs.cost());
        self.attrs.clear();
        self.dirty.head = true;
    }

    /// Sets the value of a key at the place that [`KeyMap::find`] gave for it.
    pub(super) fn omap_set(&mut self, place: Place, key: &BStr, value: &[u8], space: &mut Space) {
        let added = key.len() + value.len();
        if !self.dirty.fresh {
            let before = self.omap.as_ref().and_then(|omap| omap.map.at_or_before(place));
            self.dirty.omap.note_set(key, before.map(|(key, _)| key));
        }
        let packs = self.packs();
        let old = self.omap_mut().map.put(place, key, value, packs);
        space.grow_omap(added, old.map_or(0, |old_len| key.len() + old_len));
    }

    /// Whether its omap keys are many, much alike, and hardly looked at: a PG's log.
    pub(super) fn packs(&self) -> bool {
        self.oid.is_pgmeta()
    }

    pub(super) fn omap_rm(&mut self, key: &BStr, space: &mut Space) {
        if let Some(omap) = &mut self.omap
            && let Some((key, old)) = omap.map.remove(key)
        {
            space.grow_omap(0, key.len() + old.len());
            if !self.dirty.fresh {
                self.dirty.omap.note_removed(BStr::new(&key));
            }
        }
    }

    pub(super) fn omap_rm_range(&mut self, first: &BStr, last: &BStr, space: &mut Space) {
        let Some(omap) = &mut self.omap else { return };
        let Some(removed) = omap.map.remove_range(first, last) else { return };
        space.grow_omap(0, removed);
        if !self.dirty.fresh {
            self.dirty.omap.note_range_removed(first, last);
        }
    }

    pub(super) fn omap_clear(&mut self, space: &mut Space) {
        space.grow_omap(0, self.omap_cost());
        self.omap = None;
        self.dirty.omap.clear();
        self.dirty.omap_cleared = true;
        self.dirty.head = true;
    }

    pub(super) fn omap_set_header(&mut self, header: Bytes, space: &mut Space) {
        let omap = self.omap_mut();
        space.grow_omap(header.len(), omap.header.len());
        omap.header = header;
        self.dirty.head = true;
    }

    /// Gives back everything it takes, before it goes.
    pub(super) fn release(&mut self, space: &mut Space) {
        let pointers: Vec<u32> = self.pointers().map(|p| p.block).collect();
        for block in pointers {
            space.drop_ref(block);
        }
        space.grow_omap(0, self.omap_cost());
        space.grow_attrs(0, self.attrs.cost());
        space.grow_patches(0, self.patch_bytes());
        self.chunks.clear();
        self.patches = None;
    }

    pub(super) fn omap_cost(&self) -> usize {
        let Some(omap) = &self.omap else { return 0 };
        let entries: usize = omap.map.iter().map(|(k, v)| k.len() + v.len()).sum();
        entries + omap.header.len()
    }

    pub(super) fn attr_cost(&self) -> usize {
        self.attrs.cost() + self.patch_bytes()
    }
}

/// The parts of a range that cover a block only partly: none, one or two.
pub(super) fn edges(range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let (start, end) = (range.start, range.end);
    let (head_end, tail_start) =
        (start.next_multiple_of(BLOCK_LEN).min(end), end / BLOCK_LEN * BLOCK_LEN);
    let head = start..head_end;
    let tail = tail_start.max(head_end)..end;
    let head = (!start.is_multiple_of(BLOCK_LEN)).then_some(head);
    [head, Some(tail)].into_iter().flatten().filter(|r| !r.is_empty())
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;

    use super::*;

    /// When patches are folded depends on the sum, and nothing else would show that it is wrong.
    #[test]
    fn patches_count_what_they_take() {
        let (mut choices, mut space) = (Choices::new(8), Space::default());
        let mut onode = Onode::new(CollId::Meta, Rc::default(), 1);
        let (mut some, mut none) = (0, 0);
        for _ in 0..2000 {
            let offset = choices.below(3 * BLOCK_LEN);
            let len = 1 + choices.below(BLOCK_LEN - offset % BLOCK_LEN);
            match choices.below(4) {
                0 => onode.punch(0..choices.below(4 * BLOCK_LEN), &mut space),
                1 => onode.patch(offset, PatchSource::Zeros, len as u32, &mut space),
                _ => {
                    let bytes = PatchSource::Bytes(vec![7; len as usize].into());
                    onode.patch(offset, bytes, len as u32, &mut space);
                }
            }
            let sum: usize = onode.patches().values().map(Patch::cost).sum();
            assert_eq!((onode.patch_bytes(), onode.attr_cost()), (sum, sum));
            *(if sum > 0 { &mut some } else { &mut none }) += 1;
        }
        assert!(some > 100 && none > 100);
    }

    #[test]
    fn a_hint_is_the_last_one_given() {
        let mut onode = Onode::new(CollId::Meta, Rc::default(), 1);
        let given = AllocHint { object_size: 1 << 22, write_size: 4096, flags: 1 };
        for hint in [given, AllocHint::default(), AllocHint { flags: 2, ..given }] {
            onode.set_hint(hint);
            assert_eq!(onode.hint(), hint);
        }
    }
}
