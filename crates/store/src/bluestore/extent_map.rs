//! Where an object's bytes are: extents that point into blobs, in shards of [`SHARD_LEN`] logical
//! bytes (Ceph's `ExtentMap`, whose shards have no fixed span). Pure: nothing here reads or writes.
//!
//! A blob is a piece of data with its place on the device and its checksums; it lies within one
//! shard. Extents of a shard do not overlap; what none maps reads as zeros. A blob's allocation
//! units that no extent refers to are given back at once ([`Shard::release`]).

use super::compression::{Algorithm, Compressed};
use super::format::BLOCK_LEN;
use crate::varint::{Input, put_varint};

/// Logical bytes of a shard: a multiple of every allocation unit.
pub(super) const SHARD_LEN: u64 = 256 << 10;

/// Part of an object's extent map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Shard {
    pub(super) blobs: Vec<Blob>,
    /// In order, not overlapping, offsets within the shard.
    pub(super) extents: Vec<Extent>,
}

/// Logical bytes that lie in a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// From the start of the shard.
    pub(super) offset: u64,
    /// Above 0.
    pub(super) len: u64,
    /// Index in [`Shard::blobs`].
    pub(super) blob: usize,
    /// From the start of the blob's bytes.
    pub(super) blob_offset: u64,
}

impl Extent {
    pub(super) fn end(&self) -> u64 {
        self.offset + self.len
    }
}

/// A run of the device that a blob has, or had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Physical {
    /// `None`: given back.
    pub(super) offset: Option<u64>,
    /// Whole allocation units.
    pub(super) len: u64,
}

/// A piece of data.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Blob {
    pub(super) physical: Vec<Physical>,
    /// crc32c of each stored block.
    pub(super) checksums: Vec<u32>,
    /// Number of the shared blob that counts its references, 0 if only this object has it.
    pub(super) shared: u64,
    /// What it holds, if that is not the data itself.
    pub(super) compressed: Option<Compressed>,
}

impl Blob {
    /// Bytes of the device.
    pub(super) fn len(&self) -> u64 {
        self.physical.iter().map(|p| p.len).sum()
    }

    /// Bytes of data: what extents can point to.
    pub(super) fn data_len(&self) -> u64 {
        self.compressed.map_or_else(|| self.len(), |c| c.len)
    }

    /// Where a byte of what is stored is, and how many follow it there.
    pub(super) fn place(&self, offset: u64) -> Option<(u64, u64)> {
        let mut at = 0;
        for p in &self.physical {
            if offset < at + p.len {
                return Some((p.offset? + (offset - at), at + p.len - offset));
            }
            at += p.len;
        }
        None
    }

    /// Whether small writes may go into it.
    pub(super) fn is_mutable(&self) -> bool {
        self.shared == 0 && self.compressed.is_none()
    }
}

impl Shard {
    /// Bytes that extents map.
    pub(super) fn stored(&self) -> u64 {
        self.extents.iter().map(|e| e.len).sum()
    }

    /// Bytes that are mapped from `end`, where the object ends, to the end of its block.
    pub(super) fn behind_end(&self, end: u64) -> u64 {
        let to = end.next_multiple_of(BLOCK_LEN);
        let mapped = |e: &Extent| e.end().min(to).saturating_sub(e.offset.max(end));
        self.extents.iter().map(mapped).sum()
    }

    /// What there is of compressed data: bytes stored, bytes of units that they take, bytes that
    /// extents map there.
    pub(super) fn compressed(&self) -> [u64; 3] {
        let mut sums = [0; 3];
        for blob in &self.blobs {
            if let Some(compressed) = blob.compressed {
                sums[0] += compressed.stored_len;
                sums[1] += blob.len();
            }
        }
        for e in &self.extents {
            if self.blobs[e.blob].compressed.is_some() {
                sums[2] += e.len;
            }
        }
        sums
    }

    /// Makes `from..to` map nothing.
    pub(super) fn punch(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let mut kept = Vec::with_capacity(self.extents.len() + 1);
        for e in &self.extents {
            if e.end() <= from || e.offset >= to {
                kept.push(*e);
                continue;
            }
            if e.offset < from {
                kept.push(Extent { len: from - e.offset, ..*e });
            }
            if e.end() > to {
                kept.push(Extent {
                    offset: to,
                    len: e.end() - to,
                    blob_offset: e.blob_offset + (to - e.offset),
                    ..*e
                });
            }
        }
        self.extents = kept;
    }

    /// Maps an extent in place of what was there.
    pub(super) fn map(&mut self, extent: Extent) {
        self.punch(extent.offset, extent.end());
        let at = self.extents.partition_point(|e| e.offset < extent.offset);
        self.extents.insert(at, extent);
        // What continues its neighbour becomes one with it.
        self.extents.dedup_by(|next, last| {
            let joins = last.blob == next.blob
                && last.end() == next.offset
                && last.blob_offset + last.len == next.blob_offset;
            if joins {
                last.len += next.len;
            }
            joins
        });
    }

    /// Gives up allocation units that no extent refers to, and blobs that have none left. Shows
    /// each: device offset, length, number of the shared blob.
    pub(super) fn release(&mut self, unit: u64, mut released: impl FnMut(u64, u64, u64)) {
        for (index, blob) in self.blobs.iter_mut().enumerate() {
            let len = blob.len();
            let mut used = vec![false; (len / unit) as usize];
            for e in self.extents.iter().filter(|e| e.blob == index) {
                // Any part of compressed data needs all that is stored.
                if blob.compressed.is_some() {
                    used.fill(true);
                    break;
                }
                let units = e.blob_offset / unit..(e.blob_offset + e.len).div_ceil(unit);
                for n in units {
                    if let Some(place) = used.get_mut(n as usize) {
                        *place = true;
                    }
                }
            }
            let mut physical: Vec<Physical> = Vec::new();
            let mut at = 0;
            for p in &blob.physical {
                for n in 0..p.len / unit {
                    let offset = p.offset.map(|o| o + n * unit);
                    let kept = offset.filter(|_| used[((at / unit) + n) as usize]);
                    if let (Some(offset), None) = (offset, kept) {
                        released(offset, unit, blob.shared);
                    }
                    match physical.last_mut() {
                        Some(last)
                            if last.offset.map(|o| o + last.len) == kept
                                && last.offset.is_some() == kept.is_some() =>
                        {
                            last.len += unit;
                        }
                        _ => physical.push(Physical { offset: kept, len: unit }),
                    }
                }
                at += p.len;
            }
            blob.physical = physical;
        }
        let gone = |blob: &Blob| blob.physical.iter().all(|p| p.offset.is_none());
        if self.blobs.iter().any(gone) {
            let mut new_index = Vec::with_capacity(self.blobs.len());
            let mut kept = 0;
            for blob in &self.blobs {
                new_index.push(kept);
                kept += usize::from(!gone(blob));
            }
            self.blobs.retain(|blob| !gone(blob));
            for e in &mut self.extents {
                e.blob = new_index[e.blob];
            }
        }
    }

    /// The bytes of [`super::format::shard_key`]'s value.
    pub(super) fn encode(&self) -> Vec<u8> {
        // What has nothing compressed is as it always was.
        let has_compressed = self.blobs.iter().any(|blob| blob.compressed.is_some());
        let mut out = vec![if has_compressed { VERSION_COMPRESSED } else { VERSION }];
        put_varint(&mut out, self.blobs.len() as u64);
        for blob in &self.blobs {
            put_varint(&mut out, blob.shared);
            if has_compressed {
                put_varint(&mut out, blob.compressed.map_or(0, |c| c.algorithm as u64));
            }
            if let Some(compressed) = blob.compressed {
                put_varint(&mut out, compressed.stored_len);
                put_varint(&mut out, compressed.len);
            }
            put_varint(&mut out, blob.physical.len() as u64);
            for p in &blob.physical {
                put_varint(&mut out, p.offset.map_or(0, |o| o / BLOCK_LEN + 1));
                put_varint(&mut out, p.len / BLOCK_LEN);
            }
            put_varint(&mut out, blob.checksums.len() as u64);
            for crc in &blob.checksums {
                out.extend_from_slice(&crc.to_le_bytes());
            }
        }
        put_varint(&mut out, self.extents.len() as u64);
        let mut at = 0;
        for e in &self.extents {
            put_varint(&mut out, e.offset - at);
            put_varint(&mut out, e.len);
            put_varint(&mut out, e.blob as u64);
            put_varint(&mut out, e.blob_offset);
            at = e.end();
        }
        out
    }

    /// The shard of such bytes, if they are one's.
    pub(super) fn decode(bytes: &[u8]) -> Option<Shard> {
        let mut input = Input(bytes);
        let version = input.byte()?;
        if ![VERSION, VERSION_COMPRESSED].contains(&version) {
            return None;
        }
        let mut shard = Shard::default();
        for _ in 0..input.count()? {
            let mut blob = Blob { shared: input.varint()?, ..Blob::default() };
            if version == VERSION_COMPRESSED {
                blob.compressed = match input.varint()? {
                    0 => None,
                    n => Some(Compressed {
                        algorithm: Algorithm::numbered(n)?,
                        stored_len: input.varint()?,
                        len: input.varint()?,
                    }),
                };
            }
            for _ in 0..input.count()? {
                let offset = input.varint()?;
                let len = input.varint()?;
                if !(1..=SHARD_LEN / BLOCK_LEN).contains(&len) || offset > u64::MAX / BLOCK_LEN {
                    return None;
                }
                blob.physical.push(Physical {
                    offset: offset.checked_sub(1).map(|o| o * BLOCK_LEN),
                    len: len * BLOCK_LEN,
                });
            }
            for _ in 0..input.count()? {
                blob.checksums.push(u32::from_le_bytes(input.array()?));
            }
            if blob.checksums.len() as u64 * BLOCK_LEN > blob.len() {
                return None;
            }
            if let Some(compressed) = blob.compressed
                && (compressed.stored_len > blob.len() || compressed.len > SHARD_LEN)
            {
                return None;
            }
            shard.blobs.push(blob);
        }
        let mut at = 0_u64;
        for _ in 0..input.count()? {
            let extent = Extent {
                offset: at.checked_add(input.varint()?)?,
                len: input.varint()?,
                blob: usize::try_from(input.varint()?).ok()?,
                blob_offset: input.varint()?,
            };
            let blob = shard.blobs.get(extent.blob)?;
            let blob_end = extent.blob_offset.checked_add(extent.len)?;
            at = extent.offset.checked_add(extent.len)?;
            if extent.len == 0 || blob_end > blob.data_len() || at > SHARD_LEN {
                return None;
            }
            shard.extents.push(extent);
        }
        input.0.is_empty().then_some(shard)
    }
}

/// First byte of an encoded shard.
const VERSION: u8 = 1;
/// The same of one with compressed blobs.
const VERSION_COMPRESSED: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn two_blobs() -> Shard {
        let mut shard = Shard::default();
        for n in 0..2 {
            shard.blobs.push(Blob {
                physical: vec![Physical { offset: Some((n + 1) << 20), len: 65_536 }],
                checksums: vec![7; 16],
                ..Blob::default()
            });
        }
        shard.map(Extent { offset: 0, len: 65_536, blob: 0, blob_offset: 0 });
        shard.map(Extent { offset: 8192, len: 4096, blob: 1, blob_offset: 8192 });
        shard
    }

    #[test]
    fn what_is_mapped_twice_is_mapped_once() {
        let mut shard = two_blobs();
        assert_eq!(shard.stored(), 65_536);
        assert_eq!(shard.extents.len(), 3);
        shard.punch(0, 8192);
        let mut gone = Vec::new();
        shard.release(16_384, |offset, len, _| gone.push((offset, len)));
        // The first unit of the first blob still has 12288..16384; of the second only one is used.
        let second = 2 << 20;
        assert_eq!(gone, [16_384, 32_768, 49_152].map(|o| (second + o, 16_384)));
        shard.punch(8192, 12_288);
        gone.clear();
        shard.release(16_384, |offset, len, _| gone.push((offset, len)));
        assert_eq!(gone, [(second, 16_384)]);
        assert_eq!(shard.blobs.len(), 1);
        assert_eq!(Shard::decode(&shard.encode()), Some(shard));
    }

    /// The first has 20000 bytes stored that were 65536.
    fn compressed() -> Shard {
        let mut shard = two_blobs();
        shard.blobs[0].compressed =
            Some(Compressed { algorithm: Algorithm::Lz4, stored_len: 20_000, len: 65_536 });
        shard.blobs[0].physical[0].len = 20_480;
        shard.blobs[0].checksums.truncate(5);
        shard
    }

    #[test]
    fn compressed_data_is_kept_whole_as_long_as_any_of_it_is_mapped() {
        let mut shard = compressed();
        assert_eq!(shard.compressed(), [20_000, 20_480, 61_440]);
        shard.release(4096, |_, _, _| ());
        shard.punch(0, 61_440);
        let mut gone = 0;
        shard.release(4096, |_, len, _| gone += len);
        assert_eq!(gone, 4096, "the other's unit");
        assert_eq!(Shard::decode(&shard.encode()), Some(shard.clone()));
        shard.punch(0, 65_536);
        gone = 0;
        shard.release(4096, |_, len, _| gone += len);
        assert_eq!((gone, shard.blobs.len()), (20_480, 0));
    }

    #[test]
    fn damaged_bytes_are_no_shard_or_a_sound_one() {
        damage(&two_blobs().encode());
        damage(&compressed().encode());
    }

    fn damage(whole: &[u8]) {
        for cut in 0..whole.len() {
            assert_eq!(Shard::decode(&whole[..cut]), None);
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bad = whole.to_vec();
                bad[at] ^= 1 << bit;
                if let Some(mut shard) = Shard::decode(&bad) {
                    shard.release(4096, |_, _, _| ());
                }
            }
        }
    }
}
