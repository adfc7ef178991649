//! Reads of data.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::Core;
use super::bluefs::Role;
use super::extent_map::{Blob, SHARD_LEN, Shard};
use super::format::{BLOCK_LEN, Onode, Prefix};
use super::pending::scan_over;
use super::txn::Txn;
use super::write::checksums;
use crate::keyed::Keys;
use crate::keyed::keys::behind;
use crate::keyed::read::{Reads, push_extent};
use crate::kv::{Kv, storage};
use crate::room::TIGHT_SHARE;
use crate::{Fsck, FsckOptions, PoolStatfs, Statfs, StoreError};

/// A database that has less than this share of the device could give back little.
const DATABASE_SHARE: u64 = 8;

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

/// Bytes of a blob's data.
fn read_blob(txn: &Txn<'_>, blob: &Blob, offset: u64, len: u64) -> Result<Bytes, StoreError> {
    let Some(compressed) = blob.compressed else { return read_stored(txn, blob, offset, len) };
    let stored = read_stored(txn, blob, 0, compressed.stored_len)?;
    let data = compressed
        .algorithm
        .decompress(&stored, compressed.len as usize)
        .filter(|data| offset + len <= data.len() as u64)
        .ok_or(StoreError::Format("compressed data"))?;
    Ok(data.slice(offset as usize..(offset + len) as usize))
}

/// What a blob stores: whole blocks are read and compared with their checksums.
fn read_stored(txn: &Txn<'_>, blob: &Blob, offset: u64, len: u64) -> Result<Bytes, StoreError> {
    let (from, to) = (offset / BLOCK_LEN * BLOCK_LEN, (offset + len).next_multiple_of(BLOCK_LEN));
    let mut out = BytesMut::with_capacity((to - from) as usize);
    let mut at = from;
    while at < to {
        let (place, there) =
            blob.place(at).ok_or(StoreError::Format("an extent without a place"))?;
        let run = there.min(to - at);
        let data = txn.device_blocks(place, run)?;
        let expected = blob.checksums.get((at / BLOCK_LEN) as usize..);
        let expected = expected.unwrap_or_default();
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
        let mut known: BTreeMap<u64, Bytes> =
            self.state().blocks.within(offset, len).into_iter().collect();
        known.extend(own);
        let all = len / BLOCK_LEN;
        if known.len() as u64 == all {
            if let (1, Some(block)) = (all, known.get(&offset)) {
                return Ok(block.clone());
            }
            let mut out = BytesMut::with_capacity(len as usize);
            known.values().for_each(|block| out.extend_from_slice(block));
            return Ok(out.freeze());
        }
        let mut buf = self.device.read(offset, len as usize)?;
        for (at, block) in &known {
            buf.copy_from_slice_at((at - offset) as usize, block);
        }
        Ok(buf.freeze())
    }

    fn reading(&self) -> Txn<'_> {
        Txn::new(self, self.state().totals)
    }
}

impl Keys for Core {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
        let changed = self.state().keys.get(key);
        match changed {
            Some(value) => Ok(value),
            None => self.kv.get(key).map_err(storage),
        }
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        if !end.is_empty() && start >= end {
            return Ok(());
        }
        let changes = self.state().keys.range(start, end);
        scan_over(&*self.kv, changes, start, end, visit).map_err(storage)
    }
}

impl Reads for Core {
    type Onode = Onode;

    fn data(&self, onode: &Onode, offset: u64, len: u64) -> Result<Bytes, StoreError> {
        read(&self.reading(), onode, offset, len)
    }

    fn extents_of(
        &self,
        onode: &Onode,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Range<u64>>, StoreError> {
        let end = offset.saturating_add(len).min(onode.size);
        let txn = self.reading();
        let mut found = Vec::new();
        for index in txn.shards_from(onode.nid, (offset.min(onode.size) / SHARD_LEN) as u32)? {
            let base = u64::from(index) * SHARD_LEN;
            if base >= end {
                break;
            }
            for e in txn.shard(onode.nid, index)?.extents {
                let (from, to) = ((base + e.offset).max(offset), (base + e.end()).min(end));
                push_extent(&mut found, from, to);
            }
        }
        Ok(found)
    }

    fn check_all(&self, options: FsckOptions) -> Result<Fsck, StoreError> {
        self.compare_all(options)
    }

    fn space_of_pools(&self) -> Option<PoolStatfs> {
        let state = self.state();
        let pools = state.pools.iter();
        Some(pools.map(|(pool, space)| (*pool, space.statfs())).collect())
    }

    fn database(&self) -> &dyn Kv {
        &*self.kv
    }

    fn space(&self) -> Result<Statfs, StoreError> {
        if self.state().failed.is_some() {
            return Err(StoreError::Latched);
        }
        let metadata = match &self.bluefs {
            Some(fs) => fs.used_len(),
            None => self.kv.stored_bytes().map_err(storage)?,
        };
        let omap = Prefix::Omap.key();
        let omap = self.kv.range_bytes(&omap, &behind(&omap)).map_err(storage)?.min(metadata);
        self.look_at_kv()?;
        let reserved = self.reserve();
        let (stored, [compressed, compressed_allocated, compressed_original]) = {
            let totals = self.state().totals;
            (totals.stored, totals.compressed)
        };
        let alloc = self.alloc();
        let used = alloc.used_len();
        let free = alloc.data_len().saturating_sub(used + alloc.lent_len());
        // A device for the database counts, as in Ceph.
        let beside = self.bluefs.as_ref().map_or(0, |fs| fs.space_of(Role::Db).1);
        drop(alloc);
        let total = self.superblock.device_len + beside;
        let available = free.saturating_sub(reserved);
        if available < total / TIGHT_SHARE && metadata > total / DATABASE_SHARE {
            self.kv.reclaim();
        }
        Ok(Statfs {
            total,
            available,
            internally_reserved: reserved,
            allocated: used,
            data_stored: stored,
            data_compressed: compressed,
            data_compressed_allocated: compressed_allocated,
            data_compressed_original: compressed_original,
            omap_allocated: omap,
            internal_metadata: metadata - omap,
        })
    }
}
