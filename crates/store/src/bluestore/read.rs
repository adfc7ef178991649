//! Reads, and what exists.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;

use bstr::BString;
use bytes::{Bytes, BytesMut};
use types::bufferlist::BufferList;
use types::hobject::GhObject;

use super::extent_map::{Blob, SHARD_LEN, Shard};
use super::format::{
    BLOCK_LEN, Cnode, ENTRY_KEY_AT, Onode, Prefix, behind, cnode_key, entry_key, header_key,
    object_of, onode_key, onodes_of, tail_key,
};
use super::txn::Txn;
use super::write::checksums;
use super::{Core, decoded};
use crate::blocking::{self, PageWanted};
use crate::check::Existing;
use crate::object_key::parse_collection_key;
use crate::{CollId, Fsck, FsckOptions, Listing, ObjectStat, OmapPage, Statfs, StoreError};

/// What exists, for the check of a transaction.
pub(super) struct View<'a> {
    core: &'a Core,
    /// More objects than this in a collection need not be told apart: no transaction of so many
    /// operations removes them all.
    enough: usize,
    failed: RefCell<Option<StoreError>>,
}

impl<'a> View<'a> {
    pub(super) fn new(core: &'a Core, ops: usize) -> View<'a> {
        View {
            core,
            enough: ops + 1,
            failed: RefCell::default(),
        }
    }

    /// Why the database could not tell, if it could not.
    pub(super) fn failure(&self) -> Result<(), StoreError> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn there(&self, key: &[u8]) -> bool {
        match self.core.get(key) {
            Ok(value) => value.is_some(),
            Err(e) => {
                *self.failed.borrow_mut() = Some(e);
                false
            }
        }
    }
}

impl Existing for View<'_> {
    fn collection_len(&self, cid: &CollId) -> Option<usize> {
        if !self.collection_exists(cid) {
            return None;
        }
        let start = onodes_of(cid);
        let mut count = 0;
        let scanned = self.core.scan(&start, &behind(&start), &mut |_, _| {
            count += 1;
            count < self.enough
        });
        if let Err(e) = scanned {
            *self.failed.borrow_mut() = Some(e);
        }
        Some(count)
    }

    fn collection_exists(&self, cid: &CollId) -> bool {
        self.there(&cnode_key(cid))
    }

    fn object_exists(&self, cid: &CollId, oid: &GhObject) -> bool {
        self.there(&onode_key(cid, oid))
    }
}

/// The bytes of the range that lie before the end.
pub(super) fn read(
    txn: &Txn<'_>,
    onode: &Onode,
    offset: u64,
    len: u64,
) -> Result<Bytes, StoreError> {
    let end = offset.saturating_add(len).min(onode.size);
    let mut out = BytesMut::with_capacity(end.saturating_sub(offset) as usize);
    let mut at = offset;
    while at < end {
        let index = at / SHARD_LEN;
        let base = index * SHARD_LEN;
        let to = end.min(base + SHARD_LEN);
        let shard = txn.shard(onode.nid, index as u32)?;
        out.extend_from_slice(&read_shard(txn, &shard, at - base, to - base)?);
        at = to;
    }
    Ok(out.freeze())
}

/// Logical bytes `from..to` of a shard; zeros where nothing is mapped.
pub(super) fn read_shard(
    txn: &Txn<'_>,
    shard: &Shard,
    from: u64,
    to: u64,
) -> Result<Bytes, StoreError> {
    let mut out = BytesMut::zeroed((to - from) as usize);
    for e in &shard.extents {
        let (first, last) = (e.offset.max(from), e.end().min(to));
        if first >= last {
            continue;
        }
        let at = e.blob_offset + (first - e.offset);
        let data = read_blob(txn, &shard.blobs[e.blob], at, last - first)?;
        out[(first - from) as usize..(last - from) as usize].copy_from_slice(&data);
    }
    Ok(out.freeze())
}

/// Bytes of a blob: whole blocks are read and compared with their checksums.
fn read_blob(txn: &Txn<'_>, blob: &Blob, offset: u64, len: u64) -> Result<Bytes, StoreError> {
    let (from, to) = (
        offset / BLOCK_LEN * BLOCK_LEN,
        (offset + len).next_multiple_of(BLOCK_LEN),
    );
    let mut out = BytesMut::with_capacity((to - from) as usize);
    let mut at = from;
    while at < to {
        let (place, there) = blob
            .place(at)
            .ok_or(StoreError::Format("an extent without a place"))?;
        let run = there.min(to - at);
        let data = txn.device_blocks(place, run)?;
        let expected = &blob.checksums[(at / BLOCK_LEN) as usize..];
        for (n, crc) in checksums(&data).enumerate() {
            if expected.get(n) != Some(&crc) {
                let device_offset = place + n as u64 * BLOCK_LEN;
                return Err(StoreError::Checksum { device_offset });
            }
        }
        out.extend_from_slice(&data);
        at += run;
    }
    let (first, last) = (offset - from, offset - from + len);
    Ok(out.freeze().slice(first as usize..last as usize))
}

impl Core {
    /// Whole blocks of the device, with what is still to be written, and `own` on top.
    pub(super) fn device_blocks(
        &self,
        offset: u64,
        len: u64,
        own: BTreeMap<u64, Bytes>,
    ) -> Result<Bytes, StoreError> {
        let mut known: BTreeMap<u64, Bytes> = self
            .state()
            .blocks
            .within(offset, len)
            .into_iter()
            .collect();
        known.extend(own);
        let all = len / BLOCK_LEN;
        if known.len() as u64 == all {
            if let (1, Some(block)) = (all, known.get(&offset)) {
                return Ok(block.clone());
            }
            let mut out = BytesMut::with_capacity(len as usize);
            known
                .values()
                .for_each(|block| out.extend_from_slice(block));
            return Ok(out.freeze());
        }
        let mut buf = self.device.read(offset, len as usize)?;
        for (at, block) in &known {
            buf.copy_from_slice_at((at - offset) as usize, block);
        }
        Ok(buf.freeze())
    }

    fn cnode(&self, cid: &CollId) -> Result<Cnode, StoreError> {
        let value = self.get(&cnode_key(cid))?;
        decoded(
            &value.ok_or(StoreError::NoCollection(*cid))?,
            "a collection",
        )
    }

    fn onode(&self, cid: &CollId, oid: &GhObject) -> Result<Onode, StoreError> {
        match self.get(&onode_key(cid, oid))? {
            Some(value) => decoded(&value, "an onode"),
            None => {
                self.cnode(cid)?;
                Err(StoreError::NoObject)
            }
        }
    }

    fn reading(&self) -> Txn<'_> {
        Txn::new(self, self.state().totals)
    }
}

impl blocking::Core for Core {
    fn collections(&self) -> Result<Vec<CollId>, StoreError> {
        let start = Prefix::Collection.key();
        let mut found = Vec::new();
        self.scan(&start, &behind(&start), &mut |key, _| {
            found.push(parse_collection_key(&key[start.len()..]));
            true
        })?;
        let found: Option<Vec<CollId>> = found.into_iter().collect();
        let mut found = found.ok_or(StoreError::Format("a collection's key"))?;
        found.sort_unstable();
        Ok(found)
    }

    fn collection_bits(&self, cid: &CollId) -> Result<u32, StoreError> {
        Ok(self.cnode(cid)?.bits)
    }

    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> Result<Listing, StoreError> {
        self.cnode(cid)?;
        let mut objects = Vec::new();
        let mut next = end.clone();
        if start < end {
            let limit = match end.is_max() {
                true => behind(&onodes_of(cid)),
                false => onode_key(cid, end),
            };
            let mut bad = false;
            self.scan(&onode_key(cid, start), &limit, &mut |key, _| {
                match object_of(key) {
                    Some(oid) if objects.len() < max => objects.push(oid),
                    Some(oid) => {
                        next = oid;
                        return false;
                    }
                    None => bad = true,
                }
                !bad
            })?;
            if bad {
                return Err(StoreError::Format("an onode's key"));
            }
        }
        Ok(Listing { objects, next })
    }

    fn stat(&self, cid: &CollId, oid: &GhObject) -> Result<ObjectStat, StoreError> {
        Ok(ObjectStat {
            size: self.onode(cid, oid)?.size,
        })
    }

    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> Result<BufferList, StoreError> {
        let onode = self.onode(cid, oid)?;
        let len = if len == 0 { u64::MAX } else { len };
        let data = read(&self.reading(), &onode, offset, len)?;
        let mut list = BufferList::new();
        list.push(data);
        Ok(list)
    }

    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Range<u64>>, StoreError> {
        let onode = self.onode(cid, oid)?;
        let end = offset.saturating_add(len).min(onode.size);
        let txn = self.reading();
        let mut found: Vec<Range<u64>> = Vec::new();
        for index in txn.shards_from(onode.nid, (offset.min(onode.size) / SHARD_LEN) as u32)? {
            let base = u64::from(index) * SHARD_LEN;
            if base >= end {
                break;
            }
            for e in txn.shard(onode.nid, index)?.extents {
                let (from, to) = ((base + e.offset).max(offset), (base + e.end()).min(end));
                match found.last_mut() {
                    _ if from >= to => {}
                    Some(last) if last.end == from => last.end = to,
                    _ => found.push(from..to),
                }
            }
        }
        Ok(found)
    }

    fn getattr(&self, cid: &CollId, oid: &GhObject, name: &[u8]) -> Result<Bytes, StoreError> {
        let attrs = self.onode(cid, oid)?.attrs;
        attrs
            .get(bstr::BStr::new(name))
            .cloned()
            .ok_or(StoreError::NoAttr)
    }

    fn getattrs(&self, cid: &CollId, oid: &GhObject) -> Result<Vec<(BString, Bytes)>, StoreError> {
        Ok(self.onode(cid, oid)?.attrs.into_iter().collect())
    }

    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> Result<Bytes, StoreError> {
        match self.onode(cid, oid)?.omap_head {
            0 => Ok(Bytes::new()),
            omap => Ok(self.get(&header_key(omap))?.unwrap_or_default()),
        }
    }

    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> Result<Vec<(BString, Bytes)>, StoreError> {
        let omap = self.onode(cid, oid)?.omap_head;
        let mut found = Vec::new();
        for key in keys.iter().filter(|_| omap != 0) {
            if let Some(value) = self.get(&entry_key(omap, key))? {
                found.push((key.clone(), value));
            }
        }
        Ok(found)
    }

    fn omap_range(
        &self,
        cid: &CollId,
        oid: &GhObject,
        wanted: &PageWanted,
    ) -> Result<OmapPage, StoreError> {
        let omap = self.onode(cid, oid)?.omap_head;
        let (mut page, mut bytes) = (OmapPage::default(), 0);
        if omap == 0 {
            return Ok(page);
        }
        let from = entry_key(omap, &wanted.from);
        self.scan(&from, &tail_key(omap), &mut |key, value| {
            let key = &key[ENTRY_KEY_AT..];
            if wanted.after && key == wanted.from {
                return true;
            }
            wanted.add(&mut page, &mut bytes, key, value)
        })?;
        Ok(page)
    }

    fn fsck(&self, options: FsckOptions) -> Result<Fsck, StoreError> {
        self.check_all(options)
    }

    fn statfs(&self) -> Result<Statfs, StoreError> {
        let metadata = self.kv.stored_bytes().map_err(super::storage)?;
        let state = self.state();
        let (total, used) = (state.alloc.data_len(), state.alloc.used_len());
        let reserved = self.reserve();
        Ok(Statfs {
            total: self.superblock.device_len,
            available: total.saturating_sub(used).saturating_sub(reserved),
            internally_reserved: reserved,
            allocated: used,
            data_stored: state.totals.stored,
            internal_metadata: metadata,
            ..Statfs::default()
        })
    }
}
