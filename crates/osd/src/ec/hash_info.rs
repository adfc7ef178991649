//! The attribute `hinfo_key`: length and checksum of each shard's chunk, kept as long as an object
//! is only appended to (`ECUtil::HashInfo` at v16.2).

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::crc;
use types::osd::EcHashInfo;

/// The attribute's name.
pub const HINFO_KEY: &[u8] = b"hinfo_key";

/// The info of an object without data.
pub(super) fn fresh(shards: usize) -> EcHashInfo {
    EcHashInfo { total_chunk_size: 0, cumulative_shard_hashes: vec![u32::MAX; shards] }
}

/// What the attributes of an object tell. One whose info is lost, damaged or of another length is
/// as one that was overwritten: no hashes.
pub(super) fn of_attrs(
    attrs: &BTreeMap<BString, Bytes>,
    chunk_len: u64,
    shards: usize,
) -> EcHashInfo {
    let stored = attrs.get(HINFO_KEY).and_then(|bytes| EcHashInfo::from_bytes(bytes).ok());
    match stored {
        Some(info) if info.total_chunk_size == chunk_len && is_of(&info, shards) => info,
        None if chunk_len == 0 => fresh(shards),
        _ => EcHashInfo { total_chunk_size: chunk_len, cumulative_shard_hashes: Vec::new() },
    }
}

/// Whether the attributes of an object have a hash info that fits it.
pub fn is_sound(attrs: &BTreeMap<BString, Bytes>, chunk_len: u64, shards: usize) -> bool {
    let stored = attrs.get(HINFO_KEY).and_then(|bytes| EcHashInfo::from_bytes(bytes).ok());
    stored.is_some_and(|info| info.total_chunk_size == chunk_len && is_of(&info, shards))
}

fn is_of(info: &EcHashInfo, shards: usize) -> bool {
    info.cumulative_shard_hashes.is_empty() || info.cumulative_shard_hashes.len() == shards
}

/// The chunks, in the order of shards, come behind what there is.
pub(super) fn append(info: &mut EcHashInfo, chunks: &[Bytes]) {
    for (hash, chunk) in info.cumulative_shard_hashes.iter_mut().zip(chunks) {
        *hash = crc::crc32c(*hash, chunk);
    }
    info.total_chunk_size += chunks.first().map_or(0, |chunk| chunk.len() as u64);
}

/// The data is gone; one that had lost its hashes does not get them back.
pub(super) fn clear(info: &mut EcHashInfo) {
    info.total_chunk_size = 0;
    info.cumulative_shard_hashes.fill(u32::MAX);
}

/// The data was overwritten: the length alone is known.
pub(super) fn set_size_only(info: &mut EcHashInfo, chunk_len: u64) {
    info.total_chunk_size = chunk_len;
    info.cumulative_shard_hashes.clear();
}

/// Whether `data`, which a shard gave of its chunk where `len` bytes from `offset` on were asked for, is
/// what the hash info tells: it does not end before the chunk does. `check_hash`: a chunk that was read
/// whole has its checksum, too (`ECBackend::handle_sub_read`).
pub fn is_as_told(
    attrs: &BTreeMap<BString, Bytes>,
    shard: i8,
    (offset, len): (u64, u64),
    data: &[u8],
    check_hash: bool,
) -> bool {
    let stored = attrs.get(HINFO_KEY).and_then(|bytes| EcHashInfo::from_bytes(bytes).ok());
    let Some(info) = stored else { return true };
    let (found, chunk_len) = (data.len() as u64, info.total_chunk_size);
    if found < chunk_len.min(offset.saturating_add(len)).saturating_sub(offset) {
        return false;
    }
    let is_whole = offset == 0 && found == chunk_len;
    let hash = usize::try_from(shard).ok().and_then(|s| info.cumulative_shard_hashes.get(s));
    !(check_hash && is_whole) || hash.is_none_or(|&hash| hash == crc::crc32c(u32::MAX, data))
}

/// What the hash info says of a shard's chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// There is none, or it does not decode.
    Absent,
    /// The chunk has another length.
    Length,
    /// It has another checksum.
    Hash,
    /// Its length is right, and no checksum is known: the object was overwritten.
    Unknown,
    /// It is right.
    Good {
        /// The checksum of shard 0.
        first: u32,
    },
}

/// Judges a shard's whole chunk by its length and its CRC-32C from -1.
pub fn judge(attrs: &BTreeMap<BString, Bytes>, shard: usize, chunk_len: u64, crc: u32) -> Verdict {
    let stored = attrs.get(HINFO_KEY).and_then(|bytes| EcHashInfo::from_bytes(bytes).ok());
    let Some(info) = stored else { return Verdict::Absent };
    if info.total_chunk_size != chunk_len {
        return Verdict::Length;
    }
    let hashes = &info.cumulative_shard_hashes;
    match (hashes.first(), hashes.get(shard)) {
        (Some(&first), Some(&hash)) if hash == crc => Verdict::Good { first },
        (_, Some(_)) => Verdict::Hash,
        (_, None) => Verdict::Unknown,
    }
}
