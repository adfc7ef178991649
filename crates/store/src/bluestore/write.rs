//! Writes, holes and clones: what they do to extents, blobs and the device.
//!
//! As Ceph's `_do_write` (`src/os/bluestore/BlueStore.cc` at v16.2): whole allocation units go to
//! new places; a part of a unit goes in place and deferred where this object alone has a blob there,
//! else to a new unit of which the rest is filled with zeros.

use std::ops::Range;
use std::sync::atomic::Ordering;

use bytes::{Bytes, BytesMut};
use device::WriteCause;
use types::crc::crc32c;
use types::page_sums::{self, PAGE, PAGE_SEED};

use super::compression::{Compression, Plan};
use super::extent_map::{Blob, Extent, Physical, SHARD_LEN, Shard};
use super::format::{BLOCK_LEN, CRC_SEED, Onode};
use super::read::read_shard;
use super::txn::{Txn, Write};
use crate::StoreError;

/// Largest blob (Ceph's bluestore_max_blob_size_ssd), where the unit is not larger.
const BLOB_LEN_MAX: u64 = 64 << 10;

/// Shard of a logical offset.
fn shard_at(offset: u64) -> u32 {
    (offset / SHARD_LEN) as u32
}

/// Checksums of blocks, the last of which may be a part of one.
pub(super) fn checksums(data: &[u8]) -> impl Iterator<Item = u32> {
    const { assert!(BLOCK_LEN as usize == PAGE && CRC_SEED == PAGE_SEED) };
    let (blocks, rest) = data.split_at(data.len() / PAGE * PAGE);
    let rest = (!rest.is_empty()).then(|| crc32c(CRC_SEED, rest));
    page_sums::of_pages(blocks).chain(rest)
}

/// Writes bytes, growing the object if need be.
pub(super) fn write(
    txn: &mut Txn<'_>,
    compression: Compression,
    onode: &mut Onode,
    offset: u64,
    data: &Bytes,
) -> Result<(), StoreError> {
    let end = offset + data.len() as u64;
    let unit = txn.core.unit();
    let plan = compression.plan(onode.alloc_hint_flags, unit, BLOB_LEN_MAX);
    let mut at = offset;
    while at < end {
        let shard = shard_at(at);
        let base = u64::from(shard) * SHARD_LEN;
        let to = end.min(base + SHARD_LEN);
        let piece = data.slice((at - offset) as usize..(to - offset) as usize);
        txn.change_shard(onode.nid, shard, |txn, shard| {
            write_shard(txn, shard, at - base, &piece, plan.as_ref())?;
            collect(txn, shard)
        })?;
        at = to;
    }
    onode.size = onode.size.max(end);
    Ok(())
}

/// Writes within a shard: parts of units at either end, whole ones between.
fn write_shard(
    txn: &mut Txn<'_>,
    shard: &mut Shard,
    offset: u64,
    data: &Bytes,
    plan: Option<&Plan>,
) -> Result<(), StoreError> {
    let unit = txn.core.unit();
    let end = offset + data.len() as u64;
    let part = |from: u64, to: u64| data.slice((from - offset) as usize..(to - offset) as usize);
    let (first, last) = (offset.next_multiple_of(unit), end / unit * unit);
    if first > last {
        return write_small(txn, shard, offset, data);
    }
    if offset < first {
        write_small(txn, shard, offset, &part(offset, first))?;
    }
    let mut at = first;
    while at < last {
        let most = plan.map_or(BLOB_LEN_MAX.max(unit), |plan| plan.blob_len);
        let to = last.min(at + most);
        if !write_compressed(txn, shard, at, &part(at, to), plan)? {
            write_units(txn, shard, at, &part(at, to))?;
        }
        at = to;
    }
    if last < end {
        write_small(txn, shard, last, &part(last, end))?;
    }
    Ok(())
}

/// Writes whole units to new places.
fn write_units(
    txn: &mut Txn<'_>,
    shard: &mut Shard,
    offset: u64,
    data: &Bytes,
) -> Result<(), StoreError> {
    let len = data.len() as u64;
    write_blob(txn, shard, offset..offset + len, data, len, Blob::default())
}

/// Writes whole units to new places, of which `filled` bytes are a blob's, and maps `range` to the
/// blob.
fn write_blob(
    txn: &mut Txn<'_>,
    shard: &mut Shard,
    range: Range<u64>,
    stored: &Bytes,
    filled: u64,
    mut blob: Blob,
) -> Result<(), StoreError> {
    blob.checksums = checksums(stored).collect();
    let mut at = 0;
    for run in txn.allocate(stored.len() as u64)? {
        let run_len = run.end - run.start;
        let own = filled.saturating_sub(at).min(run_len);
        txn.write_direct(Write {
            offset: run.start,
            data: stored.slice(at as usize..(at + run_len) as usize),
            shares: vec![(WriteCause::Data, own), (WriteCause::Padding, run_len - own)],
        });
        blob.physical.push(Physical { offset: Some(run.start), len: run_len });
        at += run_len;
    }
    shard.blobs.push(blob);
    let blob = shard.blobs.len() - 1;
    shard.map(Extent { offset: range.start, len: range.end - range.start, blob, blob_offset: 0 });
    Ok(())
}

/// Writes whole units, compressed, to fewer new ones; or nothing, if that does not pay.
fn write_compressed(
    txn: &mut Txn<'_>,
    shard: &mut Shard,
    offset: u64,
    data: &Bytes,
    plan: Option<&Plan>,
) -> Result<bool, StoreError> {
    let unit = txn.core.unit();
    let len = data.len() as u64;
    let Some(plan) = plan.filter(|_| len > unit) else { return Ok(false) };
    let Some((compressed, mut stored)) = plan.compress(data) else {
        txn.core.compression_counts.rejected.fetch_add(1, Ordering::Relaxed);
        return Ok(false);
    };
    txn.core.compression_counts.succeeded.fetch_add(1, Ordering::Relaxed);
    let stored_len = compressed.stored_len;
    stored.resize(stored_len.next_multiple_of(unit) as usize, 0);
    let blob = Blob { compressed: Some(compressed), ..Blob::default() };
    write_blob(txn, shard, offset..offset + len, &stored.into(), stored_len, blob)?;
    Ok(true)
}

/// Writes what is left of compressed blobs anew where it would take fewer units as it is than what
/// is stored (Ceph's garbage collection of blobs that were partly overwritten).
fn collect(txn: &mut Txn<'_>, shard: &mut Shard) -> Result<(), StoreError> {
    let unit = txn.core.unit();
    let mut wasteful = Vec::new();
    for (index, blob) in shard.blobs.iter().enumerate() {
        if blob.compressed.is_none() || blob.shared != 0 {
            continue;
        }
        let left: Vec<Extent> = shard.extents.iter().filter(|e| e.blob == index).copied().collect();
        let (mut units, mut behind) = (0, 0);
        for e in &left {
            let (first, last) = ((e.offset / unit).max(behind), e.end().div_ceil(unit));
            units += last.saturating_sub(first);
            behind = behind.max(last);
        }
        if units * unit < blob.len() {
            wasteful.extend(left);
        }
    }
    for e in wasteful {
        let data = read_shard(txn, shard, e.offset, e.end())?;
        write_shard(txn, shard, e.offset, &data, None)?;
        txn.core.compression_counts.merged.fetch_add(e.len, Ordering::Relaxed);
    }
    Ok(())
}

/// Writes a part of one unit.
fn write_small(
    txn: &mut Txn<'_>,
    shard: &mut Shard,
    offset: u64,
    data: &Bytes,
) -> Result<(), StoreError> {
    let unit = txn.core.unit();
    let (len, end) = (data.len() as u64, offset + data.len() as u64);
    let (from, to) = (offset / BLOCK_LEN * BLOCK_LEN, end.next_multiple_of(BLOCK_LEN));
    let was_mapped = shard.extents.iter().any(|e| e.end() > from && e.offset < to);
    let padding = (to - from) - len;
    let around = match was_mapped {
        true => WriteCause::Rewrite,
        false => WriteCause::ZeroFill,
    };
    let blocks = match padding {
        0 => data.clone(),
        _ => {
            let mut blocks = BytesMut::zeroed((to - from) as usize);
            if was_mapped {
                blocks.copy_from_slice(&read_shard(txn, shard, from, to)?);
            }
            let at = (offset - from) as usize;
            blocks[at..at + data.len()].copy_from_slice(data);
            blocks.freeze()
        }
    };
    let chunk = offset / unit * unit;
    let in_place = shard.extents.iter().find_map(|e| {
        let blob = &shard.blobs[e.blob];
        let base = e.offset.checked_sub(e.blob_offset)?;
        let here = e.end() > chunk && e.offset < chunk + unit;
        (here && blob.is_mutable()).then_some((e.blob, base))
    });
    if let Some((index, base)) = in_place {
        let blob = &mut shard.blobs[index];
        let (place, _) =
            blob.place(from - base).ok_or(StoreError::Format("an extent without a place"))?;
        let first = ((from - base) / BLOCK_LEN) as usize;
        for (n, crc) in checksums(&blocks).enumerate() {
            let slot = blob.checksums.get_mut(first + n);
            *slot.ok_or(StoreError::Format("a blob without checksums"))? = crc;
        }
        txn.write_deferred(Write {
            offset: place,
            data: blocks,
            shares: vec![(WriteCause::Data, len), (around, padding)],
        });
        shard.map(Extent { offset: from, len: to - from, blob: index, blob_offset: from - base });
        return Ok(());
    }
    let mut whole = BytesMut::zeroed(unit as usize);
    whole[(from - chunk) as usize..(to - chunk) as usize].copy_from_slice(&blocks);
    let whole = whole.freeze();
    let runs = txn.allocate(unit)?;
    let place = runs[0].start;
    shard.blobs.push(Blob {
        physical: vec![Physical { offset: Some(place), len: unit }],
        checksums: checksums(&whole).collect(),
        ..Blob::default()
    });
    txn.write_direct(Write {
        offset: place,
        data: whole,
        shares: vec![
            (WriteCause::Data, len),
            (around, padding),
            (WriteCause::ZeroFill, unit - (to - from)),
        ],
    });
    shard.map(Extent {
        offset: from,
        len: to - from,
        blob: shard.blobs.len() - 1,
        blob_offset: from - chunk,
    });
    Ok(())
}

/// Makes a range a hole, growing the object if need be.
pub(super) fn zero(
    txn: &mut Txn<'_>,
    onode: &mut Onode,
    offset: u64,
    len: u64,
) -> Result<(), StoreError> {
    if len == 0 {
        return Ok(());
    }
    punch(txn, onode, offset, offset + len)?;
    onode.size = onode.size.max(offset + len);
    Ok(())
}

/// Sets the size.
pub(super) fn truncate(txn: &mut Txn<'_>, onode: &mut Onode, size: u64) -> Result<(), StoreError> {
    punch(txn, onode, size, u64::MAX)?;
    onode.size = size;
    Ok(())
}

fn punch(txn: &mut Txn<'_>, onode: &Onode, offset: u64, end: u64) -> Result<(), StoreError> {
    // Nothing is mapped behind the largest object.
    let offset = offset.min(crate::OBJECT_LEN_MAX);
    for index in txn.shards_from(onode.nid, shard_at(offset))? {
        let base = u64::from(index) * SHARD_LEN;
        if base >= end {
            break;
        }
        let (from, to) = (offset.saturating_sub(base), (end - base).min(SHARD_LEN));
        txn.change_shard(onode.nid, index, |_, shard| {
            shard.punch(from, to);
            Ok(())
        })?;
    }
    Ok(())
}

/// Lets a new object have all that another has: blobs become shared, and are counted.
pub(super) fn share(txn: &mut Txn<'_>, from: &Onode, to: &Onode) -> Result<(), StoreError> {
    for index in txn.shards_from(from.nid, 0)? {
        let mut shard = txn.shard(from.nid, index)?;
        for blob in &mut shard.blobs {
            let unit = txn.core.unit();
            let is_new = blob.shared == 0;
            if is_new {
                blob.shared = txn.next_id();
            }
            let mut counted = txn.shared_blob(blob.shared)?;
            for p in &blob.physical {
                let Some(start) = p.offset else { continue };
                for n in 0..p.len / unit {
                    let refs = counted.refs.entry(start + n * unit).or_default();
                    *refs += if is_new { 2 } else { 1 };
                }
            }
            txn.set_shared_blob(blob.shared, counted);
        }
        let copy = shard.clone();
        txn.change_shard(from.nid, index, |_, theirs| {
            *theirs = shard;
            Ok(())
        })?;
        txn.change_shard(to.nid, index, |_, ours| {
            *ours = copy;
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_block_may_be_a_part_of_one() {
        let data: Vec<u8> = (0..2 * PAGE + 904).map(|n| n as u8).collect();
        for len in [0, 1, PAGE - 1, PAGE, PAGE + 1, data.len()] {
            let each = data[..len].chunks(PAGE).map(|block| crc32c(CRC_SEED, block));
            assert!(checksums(&data[..len]).eq(each), "{len} bytes");
        }
    }
}
