//! Erasure coded pools: what objects are on shards. Pure: the PG does the I/O
//! (`crate::pg::backend`).
//!
//! * `object_op`: a logical transaction by object. * `extents`: bytes by offset. * `plan`: what a
//!   write reads first. * `encode`: what it writes on each shard, and how that is undone.
//! * `hash_info`: checksums of shards. This file: reads, and what was lost.

mod encode;
mod extents;
pub mod hash_info;
mod object_op;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use erasure::{BadProfile, Code, Profile, Stripes};
use store::Transaction;
use types::osd::PgLogEntry;
use types::{Errno, HObject, PgId};

use crate::pg::backend::{ObjectBefore, Ranges, ShardCodec, ShardReads};
use object_op::ObjectOps;

/// A pool's code and stripes.
#[derive(Debug, Clone)]
pub struct Codec {
    stripes: Stripes,
}

impl Codec {
    /// The codec of a pool: its profile, and its `stripe_width` in bytes.
    pub fn of(profile: &BTreeMap<String, String>, stripe_width: u64) -> Result<Codec, BadProfile> {
        let profile = Profile::of(profile)?;
        let k = profile.k as u64;
        let piece = usize::try_from(stripe_width / k).unwrap_or(0);
        if piece == 0
            || !stripe_width.is_multiple_of(k)
            || profile.chunk_len(piece * profile.k) != piece
        {
            let what = format!("stripe_width={stripe_width} does not fit k={k}");
            return Err(BadProfile::OutOfRange(what));
        }
        Ok(Codec { stripes: Stripes::new(Code::new(&profile), piece) })
    }

    /// Shards of an object: k + m.
    pub(crate) fn shards(&self) -> usize {
        self.stripes.code().k() + self.stripes.code().m()
    }

    fn width(&self) -> u64 {
        self.stripes.width()
    }

    fn piece(&self) -> u64 {
        self.stripes.width() / self.stripes.code().k() as u64
    }

    /// Where the stripe that begins at an object's offset begins in its chunks.
    pub(crate) fn chunk_offset(&self, offset: u64) -> u64 {
        self.stripes.chunk_offset(offset)
    }

    fn chunk_len_of(&self, size: u64) -> u64 {
        self.stripes.chunk_len(size)
    }

    fn encode(&self, data: &[u8]) -> Vec<Bytes> {
        self.stripes.encode(data).into_iter().map(Bytes::from).collect()
    }

    /// The data shards that hold a range.
    fn shards_of_range(&self, offset: u64, len: u64) -> BTreeSet<i8> {
        let (k, piece) = (self.stripes.code().k() as u64, self.piece());
        let (first, last) = (offset / piece, (offset + len.max(1) - 1) / piece);
        (first..=last).take(k as usize).map(|i| (i % k) as i8).collect()
    }

    fn to_indices(shards: &BTreeSet<i8>) -> BTreeSet<usize> {
        shards.iter().filter_map(|&s| usize::try_from(s).ok()).collect()
    }
}

/// Chunks filled up with zeros to the length of the longest, or `len` if that is more.
fn padded(chunks: &BTreeMap<i8, Bytes>, len: usize) -> BTreeMap<usize, Bytes> {
    let len = chunks.values().map(Bytes::len).max().unwrap_or(0).max(len);
    let pad = |chunk: &Bytes| {
        if chunk.len() == len {
            return chunk.clone();
        }
        let mut longer = chunk.to_vec();
        longer.resize(len, 0);
        Bytes::from(longer)
    };
    chunks.iter().filter_map(|(&s, c)| Some((usize::try_from(s).ok()?, pad(c)))).collect()
}

impl ShardCodec for Codec {
    fn k(&self) -> usize {
        self.stripes.code().k()
    }

    fn m(&self) -> usize {
        self.stripes.code().m()
    }

    fn stripe_width(&self) -> u64 {
        self.width()
    }

    fn chunk_len(&self, size: u64) -> u64 {
        self.chunk_len_of(size)
    }

    fn reads_of_write(
        &self,
        transaction: &Transaction,
        size: &dyn Fn(&HObject) -> u64,
    ) -> Result<BTreeMap<HObject, Ranges>, Errno> {
        // Whether an object is there does not matter: one that is not has nothing to read.
        let ops = ObjectOps::of(transaction, &|_| true)?;
        Ok(plan::reads_of_ops(&ops, self.width(), size))
    }

    fn encode_write(
        &self,
        pgid: PgId,
        transaction: &Transaction,
        before: &BTreeMap<HObject, ObjectBefore>,
        read: &BTreeMap<HObject, Vec<(u64, Bytes)>>,
        entries: &mut [PgLogEntry],
    ) -> Result<BTreeMap<i8, Transaction>, Errno> {
        encode::Encoder::new(self, pgid, before, read).run(transaction, entries)
    }

    fn plan_read(&self, offset: u64, len: u64, available: &BTreeSet<i8>) -> Option<ShardReads> {
        let (start, span) = self.stripes.stripe_range(offset, len.max(1));
        let wanted = self.shards_of_range(offset, len);
        let wanted = Self::to_indices(&wanted);
        let minimum =
            self.stripes.code().minimum_to_decode(&wanted, &Self::to_indices(available))?;
        Some(ShardReads {
            shards: minimum.into_iter().filter_map(|s| i8::try_from(s).ok()).collect(),
            offset: self.chunk_offset(start),
            len: self.chunk_len_of(span),
        })
    }

    fn decode_read(
        &self,
        offset: u64,
        len: u64,
        chunks: &BTreeMap<i8, Bytes>,
    ) -> Result<Bytes, Errno> {
        let (start, span) = self.stripes.stripe_range(offset, len.max(1));
        let chunk_len = usize::try_from(self.chunk_len_of(span)).map_err(|_| Errno::EFBIG)?;
        let chunks = padded(chunks, chunk_len);
        let wanted: Vec<usize> =
            Self::to_indices(&self.shards_of_range(offset, len)).into_iter().collect();
        let slices = chunks.iter().map(|(&s, c)| (s, c.as_ref())).collect();
        let decoded;
        let held: BTreeMap<usize, &[u8]> = if wanted.iter().all(|s| chunks.contains_key(s)) {
            slices
        } else {
            decoded = self.stripes.code().decode(&wanted, &slices).map_err(|e| {
                tracing::error!("cannot decode: {e}");
                Errno::EIO
            })?;
            decoded.iter().map(|(&s, c)| (s, c.as_slice())).collect()
        };
        let (k, piece) = (self.k() as u64, self.piece());
        let mut data = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let (index, within) = (at / piece, at % piece);
            let take = (piece - within).min(end - at);
            let from = ((index / k - start / self.width()) * piece + within) as usize;
            let chunk = held.get(&((index % k) as usize)).ok_or(Errno::EIO)?;
            data.extend_from_slice(chunk.get(from..from + take as usize).ok_or(Errno::EIO)?);
            at += take;
        }
        Ok(Bytes::from(data))
    }

    fn rebuild(
        &self,
        wanted: &BTreeSet<i8>,
        chunks: &BTreeMap<i8, Bytes>,
    ) -> Result<BTreeMap<i8, Bytes>, Errno> {
        let chunks = padded(chunks, 0);
        let slices = chunks.iter().map(|(&s, c)| (s, c.as_ref())).collect();
        let wanted: Vec<usize> = Self::to_indices(wanted).into_iter().collect();
        let found = self.stripes.code().decode(&wanted, &slices).map_err(|e| {
            tracing::error!("cannot rebuild: {e}");
            Errno::EIO
        })?;
        Ok(found.into_iter().map(|(s, c)| (s as i8, Bytes::from(c))).collect())
    }
}
