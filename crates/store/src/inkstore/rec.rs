//! Records of the log: what a transaction changed, as deltas of tens of bytes.
//!
//! A batch's payload is a row of records; a record is an opcode and its fields. Records work on the
//! *selected* object. An object is named once (`Open`, which gives
//! it the next handle) and selected by its handle from then on, until `Reset`.
//!
//! Values are written as differences: an xattr or omap value against the one it replaces, a new omap
//! key's value against that of the greatest smaller key (the pg log's previous entry). Keys are
//! written against one of the last four keys the log named for the object. Parsing needs no state;
//! [`Value::resolve`] and [`KeyRef::resolve`] do.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bstr::{BStr, BString};
use bytes::Bytes;
use types::hobject::GhObject;

use super::format::{Cursor, Malformed, Put};
use super::onode::{AllocHint, BlockPtr, KEY_SLOTS};
use crate::CollId;

const RESET: u8 = 1;
const SELECT: u8 = 2;
const OPEN: u8 = 3;
const CREATE: u8 = 4;
const WRITE: u8 = 5;
const PATCH: u8 = 6;
const ZERO: u8 = 7;
const TRUNCATE: u8 = 8;
const SET_ATTR: u8 = 9;
const RM_ATTR: u8 = 10;
const RM_ATTRS: u8 = 11;
const OMAP_SET: u8 = 12;
const OMAP_RM: u8 = 13;
const OMAP_RM_RANGE: u8 = 14;
const OMAP_CLEAR: u8 = 15;
const OMAP_HEADER: u8 = 16;
const REMOVE: u8 = 17;
const CLONE: u8 = 18;
const CLONE_RANGE: u8 = 19;
const RENAME: u8 = 20;
const HINT: u8 = 21;
const MAKE_COLLECTION: u8 = 22;
const REMOVE_COLLECTION: u8 = 23;
const SET_BITS: u8 = 24;
const SPLIT: u8 = 25;
const MERGE: u8 = 26;

/// A record as it stands in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Rec<'a> {
    /// Forget all handles.
    Reset,
    Select(u32),
    Open(CollId, GhObject),
    Create,
    /// Whole blocks; `size` is the least size afterwards.
    Write {
        first: u64,
        ptrs: Vec<BlockPtr>,
        size: u64,
    },
    /// Bytes over a part of a block; grows the object.
    Patch {
        offset: u64,
        data: &'a [u8],
    },
    /// Zeros; grows the object.
    Zero {
        offset: u64,
        len: u64,
    },
    Truncate {
        size: u64,
    },
    SetAttr {
        name: &'a BStr,
        value: Value<'a>,
    },
    RmAttr {
        name: &'a BStr,
    },
    RmAttrs,
    OmapSet {
        key: KeyRef<'a>,
        value: Value<'a>,
    },
    OmapRm {
        key: KeyRef<'a>,
    },
    OmapRmRange {
        first: &'a BStr,
        last: &'a BStr,
    },
    OmapClear,
    OmapHeader {
        value: Value<'a>,
    },
    Remove,
    /// The selected object is copied to this name in its collection.
    Clone {
        to: GhObject,
    },
    CloneRange {
        to: GhObject,
        offset: u64,
        len: u64,
        to_offset: u64,
    },
    Rename {
        to_cid: CollId,
        to: GhObject,
    },
    Hint(AllocHint),
    MakeCollection {
        cid: CollId,
        bits: u32,
    },
    RemoveCollection {
        cid: CollId,
    },
    SetBits {
        cid: CollId,
        bits: u32,
    },
    Split {
        cid: CollId,
        bits: u32,
        rem: u32,
        to_cid: CollId,
    },
    Merge {
        cid: CollId,
        to_cid: CollId,
        bits: u32,
    },
}

/// A value, whole or as what differs from one that both sides know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Whole(&'a [u8]),
    /// Length and edits: copy so many bytes from the same place of the old value, insert so many.
    Diff {
        len: usize,
        edits: &'a [u8],
    },
}

/// Runs of equal bytes shorter than this are not worth an edit of their own.
const COPY_MIN: usize = 4;
/// Values longer than this are not compared.
const DIFF_MAX: usize = 4096;

impl<'a> Value<'a> {
    /// Appends `value`, as a difference to `old` if that is shorter.
    pub(super) fn put(out: &mut Vec<u8>, value: &[u8], old: Option<&[u8]>) {
        let whole = |out: &mut Vec<u8>| {
            out.put_varint((value.len() as u64) << 1);
            out.put_bytes(value);
        };
        let Some(old) = old.filter(|o| !o.is_empty() && value.len() <= DIFF_MAX) else {
            return whole(out);
        };
        let start = out.len();
        out.put_varint((value.len() as u64) << 1 | 1);
        // The length of the edits is patched in: one byte up to 127, else two.
        let at = out.len();
        out.put_bytes(&[0, 0]);
        put_edits(out, value, old);
        let edits = out.len() - at - 2;
        if edits + 4 >= value.len() || edits >= 1 << 14 {
            out.truncate(start);
            return whole(out);
        }
        out[at] = edits as u8 & 0x7f | 0x80;
        out[at + 1] = (edits >> 7) as u8;
    }

    pub(super) fn parse(c: &mut Cursor<'a>) -> Result<Value<'a>, Malformed> {
        let tagged = c.len()?;
        if tagged & 1 == 0 {
            return Ok(Value::Whole(c.bytes(tagged >> 1)?));
        }
        Ok(Value::Diff { len: tagged >> 1, edits: c.blob()? })
    }

    /// The value itself, given the one it was written against.
    pub(super) fn resolve(&self, old: Option<&[u8]>) -> Result<Bytes, Malformed> {
        let (len, edits) = match *self {
            Value::Whole(bytes) => return Ok(Bytes::copy_from_slice(bytes)),
            Value::Diff { len, edits } => (len, edits),
        };
        let old = old.ok_or(Malformed)?;
        if len > DIFF_MAX {
            return Err(Malformed);
        }
        let mut value = Vec::with_capacity(len);
        let mut c = Cursor::new(edits);
        while !c.is_empty() {
            let copied = c.len()?;
            let from = value.len();
            value.extend_from_slice(old.get(from..from + copied.min(len)).ok_or(Malformed)?);
            let inserted = c.len()?;
            value.extend_from_slice(c.bytes(inserted)?);
            if value.len() > len {
                return Err(Malformed);
            }
        }
        if value.len() < len {
            // The rest is as it was.
            let rest = old.get(value.len()..len).ok_or(Malformed)?;
            value.extend_from_slice(rest);
        }
        Ok(value.into())
    }
}

/// Where two texts differ, as far as both go, eight bytes at a time: tells `found` the place of a word, and
/// what differs in it, the first byte lowest, until it breaks. A loop and no iterator, since a write comes
/// here for each of its values (as a chain of adapters it took 4,500 instructions a write more).
fn differing(
    a: &[u8],
    b: &[u8],
    mut found: impl FnMut(usize, u64) -> ControlFlow<usize>,
) -> ControlFlow<usize> {
    let common = a.len().min(b.len());
    let (words, rest) = a[..common].as_chunks::<8>();
    let (others, other_rest) = b[..common].as_chunks::<8>();
    for (n, (word, other)) in words.iter().zip(others).enumerate() {
        let differ = u64::from_le_bytes(*word) ^ u64::from_le_bytes(*other);
        if differ != 0 {
            found(n * 8, differ)?;
        }
    }
    let rest = rest.iter().zip(other_rest).rev();
    match rest.fold(0, |differ, (byte, other)| differ << 8 | u64::from(byte ^ other)) {
        0 => ControlFlow::Continue(()),
        differ => found(words.len() * 8, differ),
    }
}

/// How many bytes two texts begin with alike.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    let first =
        differing(a, b, |at, differ| ControlFlow::Break(at + differ.trailing_zeros() as usize / 8));
    first.break_value().unwrap_or(a.len().min(b.len()))
}

/// Edits on their way into a record.
struct Edits<'a> {
    out: &'a mut Vec<u8>,
    value: &'a [u8],
    /// Up to here the value is written.
    done: usize,
    /// The next piece to insert: it ends where the value is like the old one for [`COPY_MIN`] bytes.
    from: usize,
    to: usize,
}

impl Edits<'_> {
    /// These bytes differ; they are behind all before.
    fn add(&mut self, from: usize, to: usize) {
        if self.to == self.from || from >= self.to + COPY_MIN {
            self.put();
            self.from = from;
        }
        self.to = to;
    }

    fn put(&mut self) {
        let (copied, inserted) = (self.from - self.done, self.to - self.from);
        if inserted == 0 {
            return;
        }
        self.done = self.to;
        let piece = &self.value[self.from..];
        // Mostly a few bytes of a number, which are written as the word that begins with them.
        if let (..0x80, ..=8, Some(word)) = (copied, inserted, piece.first_chunk::<8>()) {
            self.out.extend_from_slice(&[copied as u8, inserted as u8]);
            let end = self.out.len() + inserted;
            self.out.extend_from_slice(word);
            self.out.truncate(end);
        } else {
            self.out.put_varint(copied as u64);
            self.out.put_blob(&piece[..inserted]);
        }
    }
}

/// Of a word that differs, all counts from the first to the last byte that does: values of the pg's own
/// object differ in a few numbers.
fn put_edits(out: &mut Vec<u8>, value: &[u8], old: &[u8]) {
    let mut edits = Edits { out, value, done: 0, from: 0, to: 0 };
    let _: ControlFlow<usize> = differing(value, old, |at, differ| {
        let first = differ.trailing_zeros() as usize / 8;
        edits.add(at + first, at + 8 - differ.leading_zeros() as usize / 8);
        ControlFlow::Continue(())
    });
    if value.len() > old.len() {
        edits.add(old.len(), value.len());
    }
    edits.put();
}

/// A key, as what differs from one of the last four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyRef<'a> {
    slot: usize,
    shared: usize,
    suffix: &'a [u8],
}

impl<'a> KeyRef<'a> {
    fn parse(c: &mut Cursor<'a>) -> Result<KeyRef<'a>, Malformed> {
        let tag = c.len()?;
        Ok(KeyRef { slot: tag % KEY_SLOTS, shared: tag / KEY_SLOTS, suffix: c.blob()? })
    }

    pub(super) fn resolve(&self, slots: &mut KeySlots) -> Result<BString, Malformed> {
        let mut key = slots.keys[self.slot].get(..self.shared).ok_or(Malformed)?.to_vec();
        key.extend_from_slice(self.suffix);
        slots.keys[self.slot] = BString::from(&key[..]);
        Ok(key.into())
    }
}

/// A slot from which a key differs in no more than its last few letters is not worth a look at others.
const NEARLY: usize = 4;

/// The keys last named for an object.
#[derive(Debug, Default, Clone)]
pub(super) struct KeySlots {
    keys: [BString; KEY_SLOTS],
}

impl KeySlots {
    /// The slot to write a key against, and how much they share: the first that has nearly all of it,
    /// else the best match; among equals the last slot, so that empty ones are used first for keys
    /// that resemble none.
    fn nearest(&self, key: &BStr) -> (usize, usize) {
        let mut best = (0, false, 0);
        for (slot, old) in self.keys.iter().enumerate() {
            let shared = common_prefix(old, key);
            if shared > 0 && shared + NEARLY >= key.len() {
                return (slot, shared);
            }
            best = best.max((shared, old.is_empty(), slot));
        }
        (best.2, best.0)
    }

    fn put(&mut self, out: &mut Vec<u8>, key: &BStr) {
        let (slot, shared) = self.nearest(key);
        out.put_varint((shared * KEY_SLOTS + slot) as u64);
        out.put_blob(&key[shared..]);
        let kept = &mut self.keys[slot];
        kept.truncate(shared);
        kept.extend_from_slice(&key[shared..]);
    }
}

/// Which metadata a record's bytes are, for the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    Onode,
    Omap,
    PgLog,
    /// Data that passes through the log.
    Inline,
}

/// Bytes of a batch by what they are.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Shares(pub(super) [u64; 4]);

/// Appends records.
#[derive(Debug, Default)]
pub(super) struct RecWriter {
    pub(super) out: Vec<u8>,
    pub(super) shares: Shares,
    last_block: i64,
    selected: Option<u32>,
    /// By handle.
    slots: BTreeMap<u32, KeySlots>,
}

impl RecWriter {
    /// Takes what was written; what follows belongs to another batch.
    pub(super) fn take(&mut self) -> (Vec<u8>, Shares) {
        self.last_block = 0;
        self.selected = None;
        (std::mem::take(&mut self.out), std::mem::take(&mut self.shares))
    }

    fn rec(&mut self, share: Share, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.out.len();
        write(&mut self.out);
        self.shares.0[share as usize] += (self.out.len() - before) as u64;
    }

    pub(super) fn reset(&mut self) {
        self.slots.clear();
        self.selected = None;
        self.rec(Share::Onode, |out| out.put_u8(RESET));
    }

    /// Forgets key slots and selection, as a reader does after a split or merge.
    pub(super) fn forget_handles(&mut self) {
        self.slots.clear();
        self.selected = None;
    }

    pub(super) fn select(&mut self, handle: u32) {
        if self.selected != Some(handle) {
            self.selected = Some(handle);
            self.rec(Share::Onode, |out| {
                out.put_u8(SELECT);
                out.put_varint(handle.into());
            });
        }
    }

    pub(super) fn open(&mut self, handle: u32, cid: &CollId, oid: &GhObject) {
        self.selected = Some(handle);
        self.rec(Share::Onode, |out| {
            out.put_u8(OPEN);
            out.put_coll(cid);
            out.put_object(oid);
        });
    }

    pub(super) fn create(&mut self) {
        self.rec(Share::Onode, |out| out.put_u8(CREATE));
    }

    pub(super) fn write(&mut self, first: u64, ptrs: &[BlockPtr], size: u64) {
        let mut last = self.last_block;
        self.rec(Share::Onode, |out| {
            out.put_u8(WRITE);
            out.put_varint(first);
            out.put_varint(size);
            out.put_varint(ptrs.len() as u64);
            last = put_runs(out, ptrs, last);
        });
        self.last_block = last;
    }

    pub(super) fn patch(&mut self, offset: u64, data: &[u8]) {
        self.rec(Share::Onode, |out| {
            out.put_u8(PATCH);
            out.put_varint(offset);
            out.put_varint(data.len() as u64);
        });
        self.rec(Share::Inline, |out| out.put_bytes(data));
    }

    pub(super) fn zero(&mut self, offset: u64, len: u64) {
        self.rec(Share::Onode, |out| {
            out.put_u8(ZERO);
            out.put_varint(offset);
            out.put_varint(len);
        });
    }

    pub(super) fn truncate(&mut self, size: u64) {
        self.rec(Share::Onode, |out| {
            out.put_u8(TRUNCATE);
            out.put_varint(size);
        });
    }

    pub(super) fn set_attr(&mut self, name: &BStr, value: &[u8], old: Option<&[u8]>) {
        self.rec(Share::Onode, |out| {
            out.put_u8(SET_ATTR);
            out.put_blob(name);
            Value::put(out, value, old);
        });
    }

    pub(super) fn rm_attr(&mut self, name: &BStr) {
        self.rec(Share::Onode, |out| {
            out.put_u8(RM_ATTR);
            out.put_blob(name);
        });
    }

    pub(super) fn rm_attrs(&mut self) {
        self.rec(Share::Onode, |out| out.put_u8(RM_ATTRS));
    }

    pub(super) fn omap_set(&mut self, share: Share, key: &BStr, value: &[u8], old: Option<&[u8]>) {
        self.rec_with_key(share, OMAP_SET, key);
        self.rec(share, |out| Value::put(out, value, old));
    }

    pub(super) fn omap_rm(&mut self, share: Share, key: &BStr) {
        self.rec_with_key(share, OMAP_RM, key);
    }

    /// Begins a record about a key of the selected object.
    fn rec_with_key(&mut self, share: Share, opcode: u8, key: &BStr) {
        let before = self.out.len();
        self.out.put_u8(opcode);
        match self.selected {
            Some(handle) => self.slots.entry(handle).or_default().put(&mut self.out, key),
            None => KeySlots::default().put(&mut self.out, key),
        }
        self.shares.0[share as usize] += (self.out.len() - before) as u64;
    }

    pub(super) fn omap_rm_range(&mut self, share: Share, first: &BStr, last: &BStr) {
        self.rec(share, |out| {
            out.put_u8(OMAP_RM_RANGE);
            out.put_blob(first);
            out.put_blob(last);
        });
    }

    pub(super) fn omap_clear(&mut self, share: Share) {
        self.rec(share, |out| out.put_u8(OMAP_CLEAR));
    }

    pub(super) fn omap_header(&mut self, share: Share, header: &[u8], old: &[u8]) {
        self.rec(share, |out| {
            out.put_u8(OMAP_HEADER);
            Value::put(out, header, Some(old));
        });
    }

    pub(super) fn remove(&mut self) {
        self.rec(Share::Onode, |out| out.put_u8(REMOVE));
    }

    pub(super) fn clone_to(&mut self, to: &GhObject) {
        self.rec(Share::Onode, |out| {
            out.put_u8(CLONE);
            out.put_object(to);
        });
    }

    pub(super) fn clone_range(&mut self, to: &GhObject, offset: u64, len: u64, to_offset: u64) {
        self.rec(Share::Onode, |out| {
            out.put_u8(CLONE_RANGE);
            out.put_object(to);
            [offset, len, to_offset].into_iter().for_each(|v| out.put_varint(v));
        });
    }

    pub(super) fn rename(&mut self, to_cid: &CollId, to: &GhObject) {
        self.rec(Share::Onode, |out| {
            out.put_u8(RENAME);
            out.put_coll(to_cid);
            out.put_object(to);
        });
    }

    pub(super) fn hint(&mut self, hint: &AllocHint) {
        self.rec(Share::Onode, |out| {
            out.put_u8(HINT);
            out.put_varint(hint.object_size);
            out.put_varint(hint.write_size);
            out.put_varint(hint.flags.into());
        });
    }

    pub(super) fn make_collection(&mut self, cid: &CollId, bits: u32) {
        self.coll(MAKE_COLLECTION, cid, &[bits], None);
    }

    pub(super) fn remove_collection(&mut self, cid: &CollId) {
        self.coll(REMOVE_COLLECTION, cid, &[], None);
    }

    pub(super) fn set_bits(&mut self, cid: &CollId, bits: u32) {
        self.coll(SET_BITS, cid, &[bits], None);
    }

    pub(super) fn split(&mut self, cid: &CollId, bits: u32, rem: u32, to_cid: &CollId) {
        self.coll(SPLIT, cid, &[bits, rem], Some(to_cid));
    }

    pub(super) fn merge(&mut self, cid: &CollId, to_cid: &CollId, bits: u32) {
        self.coll(MERGE, cid, &[bits], Some(to_cid));
    }

    fn coll(&mut self, opcode: u8, cid: &CollId, numbers: &[u32], to_cid: Option<&CollId>) {
        self.rec(Share::Onode, |out| {
            out.put_u8(opcode);
            out.put_coll(cid);
            numbers.iter().for_each(|&n| out.put_varint(n.into()));
            if let Some(to_cid) = to_cid {
                out.put_coll(to_cid);
            }
        });
    }
}

/// Appends the places of blocks as runs, then their checksums. Returns where the last one ends.
pub(super) fn put_runs(out: &mut Vec<u8>, ptrs: &[BlockPtr], mut last: i64) -> i64 {
    let mut rest = ptrs;
    while let Some(first) = rest.first() {
        let follows = |i: &usize| rest[*i].block.wrapping_sub(*i as u32) == first.block;
        let len = (0..rest.len()).take_while(follows).count();
        out.put_signed(i64::from(first.block) - last);
        out.put_varint(len as u64);
        last = i64::from(first.block) + len as i64;
        rest = &rest[len..];
    }
    for ptr in ptrs {
        out.put_bytes(&ptr.crc.to_le_bytes());
    }
    last
}

/// Reads what [`put_runs`] wrote for `count` blocks, each below `device_blocks` and no hole.
pub(super) fn parse_runs(
    c: &mut Cursor<'_>,
    count: usize,
    mut last: i64,
    device_blocks: u32,
) -> Result<(Vec<BlockPtr>, i64), Malformed> {
    let mut ptrs = Vec::with_capacity(count.min(4096));
    while ptrs.len() < count {
        let start = last.checked_add(c.signed()?).ok_or(Malformed)?;
        let start = u32::try_from(start).map_err(|_| Malformed)?;
        let len = c.varint_u32()?;
        let end = start.checked_add(len).filter(|&end| end <= device_blocks).ok_or(Malformed)?;
        if start == 0 || len == 0 || len as usize > count - ptrs.len() {
            return Err(Malformed);
        }
        ptrs.extend((start..end).map(|block| BlockPtr { block, crc: 0 }));
        last = end.into();
    }
    for ptr in &mut ptrs {
        ptr.crc = c.u32()?;
    }
    Ok((ptrs, last))
}

/// Reads the records of a batch.
#[derive(Debug)]
pub(super) struct RecReader<'a> {
    cursor: Cursor<'a>,
    last_block: i64,
    device_blocks: u32,
}

impl<'a> RecReader<'a> {
    pub(super) fn new(payload: &'a [u8], device_blocks: u32) -> RecReader<'a> {
        RecReader { cursor: Cursor::new(payload), last_block: 0, device_blocks }
    }

    /// The next record, `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Rec<'a>>, Malformed> {
        if self.cursor.is_empty() {
            return Ok(None);
        }
        let c = &mut self.cursor;
        Ok(Some(match c.u8()? {
            RESET => Rec::Reset,
            SELECT => Rec::Select(c.varint_u32()?),
            OPEN => Rec::Open(c.coll()?, c.object()?),
            CREATE => Rec::Create,
            WRITE => {
                let (first, size, count) = (c.varint()?, c.varint()?, c.count()?);
                let (ptrs, last) = parse_runs(c, count, self.last_block, self.device_blocks)?;
                self.last_block = last;
                Rec::Write { first, ptrs, size }
            }
            PATCH => Rec::Patch { offset: c.varint()?, data: c.blob()? },
            ZERO => Rec::Zero { offset: c.varint()?, len: c.varint()? },
            TRUNCATE => Rec::Truncate { size: c.varint()? },
            SET_ATTR => Rec::SetAttr { name: BStr::new(c.blob()?), value: Value::parse(c)? },
            RM_ATTR => Rec::RmAttr { name: BStr::new(c.blob()?) },
            RM_ATTRS => Rec::RmAttrs,
            OMAP_SET => Rec::OmapSet { key: KeyRef::parse(c)?, value: Value::parse(c)? },
            OMAP_RM => Rec::OmapRm { key: KeyRef::parse(c)? },
            OMAP_RM_RANGE => {
                Rec::OmapRmRange { first: BStr::new(c.blob()?), last: BStr::new(c.blob()?) }
            }
            OMAP_CLEAR => Rec::OmapClear,
            OMAP_HEADER => Rec::OmapHeader { value: Value::parse(c)? },
            REMOVE => Rec::Remove,
            CLONE => Rec::Clone { to: c.object()? },
            CLONE_RANGE => Rec::CloneRange {
                to: c.object()?,
                offset: c.varint()?,
                len: c.varint()?,
                to_offset: c.varint()?,
            },
            RENAME => Rec::Rename { to_cid: c.coll()?, to: c.object()? },
            HINT => Rec::Hint(AllocHint {
                object_size: c.varint()?,
                write_size: c.varint()?,
                flags: c.varint_u32()?,
            }),
            MAKE_COLLECTION => Rec::MakeCollection { cid: c.coll()?, bits: c.varint_u32()? },
            REMOVE_COLLECTION => Rec::RemoveCollection { cid: c.coll()? },
            SET_BITS => Rec::SetBits { cid: c.coll()?, bits: c.varint_u32()? },
            SPLIT => Rec::Split {
                cid: c.coll()?,
                bits: c.varint_u32()?,
                rem: c.varint_u32()?,
                to_cid: c.coll()?,
            },
            MERGE => {
                let (cid, bits) = (c.coll()?, c.varint_u32()?);
                Rec::Merge { cid, to_cid: c.coll()?, bits }
            }
            _ => return Err(Malformed),
        }))
    }
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;

    use super::*;

    #[test]
    fn differences_resolve() {
        let mut choices = Choices::new(3);
        for round in 0..20_000 {
            let old: Vec<u8> = (0..choices.below(300)).map(|_| choices.below(256) as u8).collect();
            let mut value = old.clone();
            for _ in 0..choices.below(6) {
                if !value.is_empty() {
                    let at = choices.below(value.len() as u64) as usize;
                    value[at] = choices.below(256) as u8;
                }
            }
            value.resize(choices.below(400).max(1) as usize, 9);
            let mut out = Vec::new();
            Value::put(&mut out, &value, Some(&old));
            assert!(out.len() <= value.len() + 2);
            let mut c = Cursor::new(&out);
            let parsed = Value::parse(&mut c).unwrap();
            assert!(c.is_empty());
            assert_eq!(parsed.resolve(Some(&old)).unwrap(), value, "round {round}");
        }
    }

    #[test]
    fn a_log_entry_costs_its_changes() {
        let mut old = vec![7; 220];
        let mut value = old.clone();
        old[20] = 1;
        value[20] = 2;
        value[200] = 3;
        let mut out = Vec::new();
        Value::put(&mut out, &value, Some(&old));
        assert!(out.len() <= 12, "{out:?}");
    }
}
