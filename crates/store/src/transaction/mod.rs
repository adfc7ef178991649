//! Transactions: an ordered list of changes that happen together or not at all.
//!
//! Collections and objects are named once, in two tables, and operations refer to them by index,
//! as on the wire: backends look each up once. Builders append; `wire` encodes.

mod key;
mod wire;

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{SHARED_MIN, Writer};
use env::AlignedBuf;
use types::bufferlist::BufferList;
use types::hobject::GhObject;
use types::page_sums::PageSums;

use crate::CollId;
pub use key::Key;
use wire::DataPlace;

/// Position in [`Transaction::collections`].
pub type CollIndex = u32;
/// Position in [`Transaction::objects`].
pub type ObjectIndex = u32;

/// Names and values, each name once.
pub type Pairs = Vec<(Key, Bytes)>;

/// One change. Semantics at the builder methods of [`Transaction`] and in
/// [`crate::ObjectStore::submit`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are the builders' arguments under the same names")]
pub enum Op {
    Nop,
    Touch {
        cid: CollIndex,
        oid: ObjectIndex,
    },
    Create {
        cid: CollIndex,
        oid: ObjectIndex,
    },
    Write {
        cid: CollIndex,
        oid: ObjectIndex,
        offset: u64,
        data: Bytes,
    },
    Zero {
        cid: CollIndex,
        oid: ObjectIndex,
        offset: u64,
        len: u64,
    },
    Truncate {
        cid: CollIndex,
        oid: ObjectIndex,
        size: u64,
    },
    Remove {
        cid: CollIndex,
        oid: ObjectIndex,
    },
    SetAttr {
        cid: CollIndex,
        oid: ObjectIndex,
        name: BString,
        value: Bytes,
    },
    SetAttrs {
        cid: CollIndex,
        oid: ObjectIndex,
        attrs: Pairs,
    },
    RmAttr {
        cid: CollIndex,
        oid: ObjectIndex,
        name: BString,
    },
    RmAttrs {
        cid: CollIndex,
        oid: ObjectIndex,
    },
    Clone {
        cid: CollIndex,
        oid: ObjectIndex,
        to: ObjectIndex,
    },
    CloneRange {
        cid: CollIndex,
        oid: ObjectIndex,
        to: ObjectIndex,
        offset: u64,
        len: u64,
        to_offset: u64,
    },
    MkColl {
        cid: CollIndex,
        bits: u32,
    },
    RmColl {
        cid: CollIndex,
    },
    OmapClear {
        cid: CollIndex,
        oid: ObjectIndex,
    },
    OmapSetKeys {
        cid: CollIndex,
        oid: ObjectIndex,
        entries: Pairs,
    },
    OmapRmKeys {
        cid: CollIndex,
        oid: ObjectIndex,
        keys: Vec<BString>,
    },
    OmapRmKeyRange {
        cid: CollIndex,
        oid: ObjectIndex,
        first: BString,
        last: BString,
    },
    OmapSetHeader {
        cid: CollIndex,
        oid: ObjectIndex,
        header: Bytes,
    },
    CollMoveRename {
        cid: CollIndex,
        oid: ObjectIndex,
        to_cid: CollIndex,
        to: ObjectIndex,
    },
    TryRename {
        cid: CollIndex,
        oid: ObjectIndex,
        to: ObjectIndex,
    },
    SetAllocHint {
        cid: CollIndex,
        oid: ObjectIndex,
        object_size: u64,
        write_size: u64,
        flags: u32,
    },
    CollHint {
        cid: CollIndex,
        kind: u32,
        hint: Bytes,
    },
    CollSetBits {
        cid: CollIndex,
        bits: u32,
    },
    SplitCollection {
        cid: CollIndex,
        bits: u32,
        rem: u32,
        to_cid: CollIndex,
    },
    MergeCollection {
        cid: CollIndex,
        to_cid: CollIndex,
        bits: u32,
    },
}

/// Bytes that an encoded operation usually takes with its xattrs or keys, and all names.
const ROOM: usize = 512;

/// So many bytes of metadata may come with a removal (the entry for a placement group's log): it must fit when
/// nothing else does.
pub(crate) const SMALL_METADATA: u64 = 64 << 10;

/// Tables up to this long are searched from the end; longer ones get an index.
const LINEAR_MAX: usize = 16;

/// A transaction under construction, or a decoded one.
#[derive(Debug, Clone, Default)]
pub struct Transaction {
    ops: Vec<Op>,
    colls: Vec<CollId>,
    objects: Vec<GhObject>,
    /// Positions in `objects`; filled once there are more than [`LINEAR_MAX`].
    object_index: BTreeMap<GhObject, ObjectIndex>,
    fadvise_flags: u32,
    /// Checksums known of data in it.
    sums: Option<PageSums>,
}

impl PartialEq for Transaction {
    fn eq(&self, other: &Transaction) -> bool {
        self.ops == other.ops
            && self.colls == other.colls
            && self.objects == other.objects
            && self.fadvise_flags == other.fadvise_flags
    }
}

impl Transaction {
    /// No changes.
    pub fn new() -> Transaction {
        Transaction::default()
    }

    /// Whether it puts more objects, xattrs and keys than it takes away: what makes a store's metadata
    /// grow. One that removes an object or a range does not, whatever little is noted with that.
    pub fn adds_metadata(&self) -> bool {
        if self.notes_much() {
            return true;
        }
        let (mut put, mut gone) = (0, 0);
        for op in &self.ops {
            match op {
                Op::Remove { .. } | Op::OmapClear { .. } | Op::OmapRmKeyRange { .. } => {
                    return false;
                }
                Op::SetAttrs { attrs, .. } => put += attrs.len(),
                Op::OmapSetKeys { entries, .. } => put += entries.len(),
                Op::Touch { .. }
                | Op::Create { .. }
                | Op::Clone { .. }
                | Op::SetAttr { .. }
                | Op::OmapSetHeader { .. } => put += 1,
                Op::OmapRmKeys { keys, .. } => gone += keys.len(),
                Op::RmAttr { .. } | Op::RmAttrs { .. } => gone += 1,
                _ => {}
            }
        }
        put > gone
    }

    /// Whether it is about nothing but what the store's owner notes for itself.
    pub(crate) fn is_of_owner(&self) -> bool {
        self.colls.iter().all(|cid| *cid == CollId::Meta)
    }

    /// Whether more metadata is in it than may come with a removal. Any write may trim a placement group's log, which
    /// is a range; a log that is written anew, without which an OSD could not go on, takes the place of what it was.
    pub(crate) fn notes_much(&self) -> bool {
        self.metadata_of(|oid| !oid.is_pgmeta()) > SMALL_METADATA
    }

    /// Whether something that is not a placement group's own is removed in it.
    pub(crate) fn removes(&self) -> bool {
        self.ops.iter().any(|op| match op {
            Op::Remove { oid, .. }
            | Op::Truncate { oid, .. }
            | Op::OmapRmKeys { oid, .. }
            | Op::OmapRmKeyRange { oid, .. }
            | Op::OmapClear { oid, .. } => !self.objects[*oid as usize].is_pgmeta(),
            _ => false,
        })
    }

    /// Bytes of xattrs and keys in it, with their values.
    pub fn metadata_bytes(&self) -> u64 {
        self.metadata_of(|_| true)
    }

    fn metadata_of(&self, counts: impl Fn(&GhObject) -> bool) -> u64 {
        let of = |pairs: &Pairs| pairs.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
        let bytes = self.ops.iter().map(|op| {
            let (oid, len) = match op {
                Op::SetAttr { oid, name, value, .. } => (oid, name.len() + value.len()),
                Op::SetAttrs { oid, attrs, .. } => (oid, of(attrs)),
                Op::OmapSetKeys { oid, entries, .. } => (oid, of(entries)),
                Op::OmapSetHeader { oid, header, .. } => (oid, header.len()),
                _ => return 0,
            };
            if counts(&self.objects[*oid as usize]) { len } else { 0 }
        });
        bytes.sum::<usize>() as u64
    }

    /// The changes in order.
    pub fn ops(&self) -> &[Op] {
        &self.ops
    }

    /// The collections the operations name.
    pub fn collections(&self) -> &[CollId] {
        &self.colls
    }

    /// The objects the operations name.
    pub fn objects(&self) -> &[GhObject] {
        &self.objects
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    /// The encoding. Data of [`SHARED_MIN`] bytes and more is in it by reference; else all is in one
    /// buffer, where the longest data of a page or more begins a page, as direct I/O takes it.
    pub fn encoded(&self) -> BufferList {
        self.encode_whole().0
    }

    /// The same; the data of the longest write is from now on that in the encoding, if it was copied
    /// there: nobody needs to copy it again, and what it was received with can be given up.
    pub fn encoded_and_shared(&mut self) -> BufferList {
        let (encoded, copied) = self.encode_whole();
        if let (Some(place), [all]) = (copied, encoded.pieces())
            && let Some(Op::Write { data, .. }) = self.ops.get_mut(place.number)
        {
            *data = all.slice(place.at..place.at + data.len());
            self.sums = encoded.sums().cloned();
        }
        encoded
    }

    /// The encoding, and where in it the data of the longest write is if that was copied there.
    fn encode_whole(&self) -> (BufferList, Option<DataPlace>) {
        const PAGE: usize = AlignedBuf::ALIGN;
        let copied = self.data_lens(0).filter(|len| *len < PAGE).sum::<usize>();
        let mut w = Writer::with_capacity(copied + ROOM + ROOM * self.ops.len()).sharing_from(PAGE);
        let longest = self.encode_to(&mut w);
        let list = w.into_pieces().collect::<BufferList>();
        if list.pieces().len() < 2 {
            return (list, None);
        }
        let list = list.with_sums(self.sums.clone());
        if list.pieces().iter().any(|piece| piece.len() >= SHARED_MIN) {
            return (list, None);
        }
        let copy = AlignedBuf::join(list.page_offset().into(), list.pieces());
        (list.copied_to(copy), longest)
    }

    /// Notes checksums that are known of data in it.
    pub fn set_sums(&mut self, sums: Option<PageSums>) {
        self.sums = sums;
    }

    /// Checksums that are known of data in it.
    pub(crate) fn sums(&self) -> Option<&PageSums> {
        self.sums.as_ref()
    }

    /// Bytes of object data in write operations.
    pub fn data_len(&self) -> u64 {
        self.data_len_from(0)
    }

    /// The same of the operations from that one on.
    pub fn data_len_from(&self, first: usize) -> u64 {
        self.data_lens(first).map(|len| len as u64).sum()
    }

    /// The same, of each write.
    fn data_lens(&self, first: usize) -> impl Iterator<Item = usize> {
        self.ops.iter().skip(first).filter_map(|op| match op {
            Op::Write { data, .. } => Some(data.len()),
            _ => None,
        })
    }

    /// CEPH_OSD_OP_FLAG_FADVISE_* given with the writes, or-ed.
    pub fn fadvise_flags(&self) -> u32 {
        self.fadvise_flags
    }

    /// Adds CEPH_OSD_OP_FLAG_FADVISE_* flags.
    pub fn add_fadvise_flags(&mut self, flags: u32) -> &mut Self {
        self.fadvise_flags |= flags;
        self
    }

    fn coll(&mut self, cid: &CollId) -> CollIndex {
        let found = self.colls.iter().rposition(|c| c == cid);
        let index = found.unwrap_or_else(|| {
            self.colls.push(*cid);
            self.colls.len() - 1
        });
        index as CollIndex
    }

    fn object(&mut self, oid: &GhObject) -> ObjectIndex {
        let found = if self.objects.len() <= LINEAR_MAX {
            self.objects.iter().rposition(|o| o == oid).map(|i| i as ObjectIndex)
        } else {
            self.object_index.get(oid).copied()
        };
        if let Some(index) = found {
            return index;
        }
        let index = self.objects.len() as ObjectIndex;
        self.objects.push(oid.clone());
        self.index_objects();
        index
    }

    /// Brings the index up to date with the table.
    fn index_objects(&mut self) {
        if self.objects.len() > LINEAR_MAX {
            for i in self.object_index.len()..self.objects.len() {
                self.object_index.insert(self.objects[i].clone(), i as ObjectIndex);
            }
        }
    }

    fn on(&mut self, cid: &CollId, oid: &GhObject) -> (CollIndex, ObjectIndex) {
        (self.coll(cid), self.object(oid))
    }

    fn push(&mut self, op: Op) -> &mut Self {
        self.ops.push(op);
        self
    }

    /// Makes sure the object exists.
    pub fn touch(&mut self, cid: &CollId, oid: &GhObject) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::Touch { cid, oid })
    }

    /// Creates an object that does not exist; on one that does, as touch.
    pub fn create(&mut self, cid: &CollId, oid: &GhObject) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::Create { cid, oid })
    }

    /// Writes at an offset, growing the object if need be. Writing nothing changes no size.
    pub fn write(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        data: impl Into<Bytes>,
    ) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::Write { cid, oid, offset, data: data.into() })
    }

    /// [`Transaction::write`] of data in pieces.
    pub fn write_list(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        data: &BufferList,
    ) -> &mut Self {
        let mut at = offset;
        if data.is_empty() {
            return self.write(cid, oid, offset, Bytes::new());
        }
        for piece in data.pieces() {
            self.write(cid, oid, at, piece.clone());
            at += piece.len() as u64;
        }
        self
    }

    /// Makes a range read as zeros, growing the object if need be; frees its space.
    pub fn zero(&mut self, cid: &CollId, oid: &GhObject, offset: u64, len: u64) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::Zero { cid, oid, offset, len })
    }

    /// Sets the size; what is cut off reads as zeros if the object grows again.
    pub fn truncate(&mut self, cid: &CollId, oid: &GhObject, size: u64) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::Truncate { cid, oid, size })
    }

    /// Removes the object with its xattrs and omap.
    pub fn remove(&mut self, cid: &CollId, oid: &GhObject) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::Remove { cid, oid })
    }

    /// Sets one xattr.
    pub fn setattr(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        name: impl Into<BString>,
        value: impl Into<Bytes>,
    ) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::SetAttr { cid, oid, name: name.into(), value: value.into() })
    }

    /// Sets xattrs; others stay.
    pub fn setattrs(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        attrs: impl IntoIterator<Item = (impl Into<Key>, Bytes)>,
    ) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        let attrs = attrs.into_iter().map(|(name, value)| (name.into(), value)).collect();
        self.push(Op::SetAttrs { cid, oid, attrs })
    }

    /// Removes one xattr.
    pub fn rmattr(&mut self, cid: &CollId, oid: &GhObject, name: impl Into<BString>) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::RmAttr { cid, oid, name: name.into() })
    }

    /// Removes all xattrs.
    pub fn rmattrs(&mut self, cid: &CollId, oid: &GhObject) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::RmAttrs { cid, oid })
    }

    /// Makes `to` a copy of `oid`: data, xattrs, omap and its header; what `to` was is gone.
    pub fn clone_object(&mut self, cid: &CollId, oid: &GhObject, to: &GhObject) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        let to = self.object(to);
        self.push(Op::Clone { cid, oid, to })
    }

    /// Copies a byte range of `oid` into `to` (created if missing), growing it if need be. What
    /// lies behind the end of `oid` is not copied.
    pub fn clone_range(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        to: &GhObject,
        offset: u64,
        len: u64,
        to_offset: u64,
    ) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        let to = self.object(to);
        self.push(Op::CloneRange { cid, oid, to, offset, len, to_offset })
    }

    /// Creates a collection whose objects share `bits` bits of their hash.
    pub fn mkcoll(&mut self, cid: &CollId, bits: u32) -> &mut Self {
        let cid = self.coll(cid);
        self.push(Op::MkColl { cid, bits })
    }

    /// Removes an empty collection.
    pub fn rmcoll(&mut self, cid: &CollId) -> &mut Self {
        let cid = self.coll(cid);
        self.push(Op::RmColl { cid })
    }

    /// Removes all omap keys and the header.
    pub fn omap_clear(&mut self, cid: &CollId, oid: &GhObject) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::OmapClear { cid, oid })
    }

    /// Sets omap keys; others stay.
    pub fn omap_setkeys(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        entries: impl IntoIterator<Item = (impl Into<Key>, Bytes)>,
    ) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value)).collect();
        self.push(Op::OmapSetKeys { cid, oid, entries })
    }

    /// Removes omap keys.
    pub fn omap_rmkeys(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        keys: impl IntoIterator<Item = BString>,
    ) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        let keys = keys.into_iter().collect();
        self.push(Op::OmapRmKeys { cid, oid, keys })
    }

    /// Removes the omap keys with `first <= key < last`.
    pub fn omap_rmkeyrange(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        first: impl Into<BString>,
        last: impl Into<BString>,
    ) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::OmapRmKeyRange { cid, oid, first: first.into(), last: last.into() })
    }

    /// Sets the omap header.
    pub fn omap_setheader(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        header: impl Into<Bytes>,
    ) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::OmapSetHeader { cid, oid, header: header.into() })
    }

    /// Moves an object to another collection and name; what was there is gone. Nothing happens
    /// if the object does not exist.
    pub fn coll_move_rename(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        to_cid: &CollId,
        to: &GhObject,
    ) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        let (to_cid, to) = self.on(to_cid, to);
        self.push(Op::CollMoveRename { cid, oid, to_cid, to })
    }

    /// Renames within a collection; nothing happens if the object does not exist.
    pub fn try_rename(&mut self, cid: &CollId, oid: &GhObject, to: &GhObject) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        let to = self.object(to);
        self.push(Op::TryRename { cid, oid, to })
    }

    /// What the client expects of the object (CEPH_OSD_ALLOC_HINT_FLAG_* in `flags`).
    pub fn set_alloc_hint(
        &mut self,
        cid: &CollId,
        oid: &GhObject,
        object_size: u64,
        write_size: u64,
        flags: u32,
    ) -> &mut Self {
        let (cid, oid) = self.on(cid, oid);
        self.push(Op::SetAllocHint { cid, oid, object_size, write_size, flags })
    }

    /// Moves the objects whose hash ends in `rem` (in `bits` bits) to the existing collection
    /// `to_cid`; both then share `bits` bits.
    pub fn split_collection(
        &mut self,
        cid: &CollId,
        bits: u32,
        rem: u32,
        to_cid: &CollId,
    ) -> &mut Self {
        let (cid, to_cid) = (self.coll(cid), self.coll(to_cid));
        self.push(Op::SplitCollection { cid, bits, rem, to_cid })
    }

    /// Moves all objects to `to_cid`, which then shares `bits` bits, and removes the collection.
    pub fn merge_collection(&mut self, cid: &CollId, to_cid: &CollId, bits: u32) -> &mut Self {
        let (cid, to_cid) = (self.coll(cid), self.coll(to_cid));
        self.push(Op::MergeCollection { cid, to_cid, bits })
    }

    /// Changes how many hash bits the collection's objects share.
    pub fn coll_set_bits(&mut self, cid: &CollId, bits: u32) -> &mut Self {
        let cid = self.coll(cid);
        self.push(Op::CollSetBits { cid, bits })
    }

    /// Tells what will come into the collection.
    pub fn coll_hint(&mut self, cid: &CollId, kind: u32, hint: impl Into<Bytes>) -> &mut Self {
        let cid = self.coll(cid);
        self.push(Op::CollHint { cid, kind, hint: hint.into() })
    }

    /// Takes the operations for which `keep` does not hold out, leaving a nop in their places.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&Transaction, &Op) -> bool) {
        for n in 0..self.ops.len() {
            let op = std::mem::replace(&mut self.ops[n], Op::Nop);
            if keep(self, &op) {
                self.ops[n] = op;
            }
        }
    }

    /// Appends another transaction's changes behind these.
    pub fn append(&mut self, other: Transaction) -> &mut Self {
        if self.ops.is_empty() && self.colls.is_empty() && self.objects.is_empty() {
            let flags = self.fadvise_flags;
            *self = other;
            self.fadvise_flags |= flags;
            return self;
        }
        let colls: Vec<CollIndex> = other.colls.iter().map(|c| self.coll(c)).collect();
        let objects: Vec<ObjectIndex> = other.objects.iter().map(|o| self.object(o)).collect();
        self.fadvise_flags |= other.fadvise_flags;
        for mut op in other.ops {
            op.renumber(&mut |cid| *cid = colls[*cid as usize], &mut |oid| {
                *oid = objects[*oid as usize]
            });
            self.ops.push(op);
        }
        self
    }
}

impl Op {
    /// The collection it is about; of two the one it takes from.
    pub(crate) fn collection(&self) -> Option<CollIndex> {
        let (mut first, mut op) = (None, self.clone());
        op.renumber(
            &mut |cid| {
                first.get_or_insert(*cid);
            },
            &mut |_| {},
        );
        first
    }

    /// Gives every index the operation holds to one of the two functions.
    fn renumber(
        &mut self,
        coll: &mut dyn FnMut(&mut CollIndex),
        object: &mut dyn FnMut(&mut ObjectIndex),
    ) {
        match self {
            Op::Nop => {}
            Op::Touch { cid, oid }
            | Op::Create { cid, oid }
            | Op::Write { cid, oid, .. }
            | Op::Zero { cid, oid, .. }
            | Op::Truncate { cid, oid, .. }
            | Op::Remove { cid, oid }
            | Op::SetAttr { cid, oid, .. }
            | Op::SetAttrs { cid, oid, .. }
            | Op::RmAttr { cid, oid, .. }
            | Op::RmAttrs { cid, oid }
            | Op::OmapClear { cid, oid }
            | Op::OmapSetKeys { cid, oid, .. }
            | Op::OmapRmKeys { cid, oid, .. }
            | Op::OmapRmKeyRange { cid, oid, .. }
            | Op::OmapSetHeader { cid, oid, .. }
            | Op::SetAllocHint { cid, oid, .. } => {
                coll(cid);
                object(oid);
            }
            Op::Clone { cid, oid, to }
            | Op::CloneRange { cid, oid, to, .. }
            | Op::TryRename { cid, oid, to } => {
                coll(cid);
                object(oid);
                object(to);
            }
            Op::MkColl { cid, .. }
            | Op::RmColl { cid }
            | Op::CollHint { cid, .. }
            | Op::CollSetBits { cid, .. } => coll(cid),
            Op::CollMoveRename { cid, oid, to_cid, to } => {
                coll(cid);
                object(oid);
                coll(to_cid);
                object(to);
            }
            Op::SplitCollection { cid, to_cid, .. } | Op::MergeCollection { cid, to_cid, .. } => {
                coll(cid);
                coll(to_cid);
            }
        }
    }
}
