//! The bytes on the device: superblock, log batches, checkpoint blocks, and the small integers all
//! of them are made of. Described in `docs/format-inkstore.md`; this file and `rec.rs` are its code.

use bstr::BString;
use denc::{Reader, Writer};
use twox_hash::XxHash3_64;
use types::crc::crc32c;
use types::hobject::{GhObject, HObject};
use types::page_sums::{self, PAGE, PAGE_SEED, PageSums};
use types::pg::{PgId, SpgId};

use crate::{CollId, StoreError};

/// Unit of allocation, of checksums and of copy-on-write, in bytes.
pub(super) const BLOCK_LEN: u64 = 4096;
/// First bytes of a superblock.
const MAGIC: &[u8; 8] = b"LOLIGINK";
/// Version of the whole format.
const VERSION: u32 = 1;
/// Superblock slots: blocks 0 to 3, two copies of each of the last two superblocks.
pub(super) const SUPERBLOCK_SLOTS: u64 = 4;
/// First bytes of a batch, "INKB".
const BATCH_MAGIC: u32 = 0x424b_4e49;
/// Length of a batch header.
pub(super) const BATCH_HEADER_LEN: usize = 64;
/// Seed of every crc32c that is not one of data.
const CRC_SEED: u32 = u32::MAX;
/// Length of a checkpoint block's header.
pub(super) const PAGE_HEADER_LEN: usize = 32;
/// Bytes of the checkpoint's stream in one block.
pub(super) const PAGE_PAYLOAD_LEN: usize = BLOCK_LEN as usize - PAGE_HEADER_LEN;

/// Checksum of a data block.
pub(super) fn data_crc(block: &[u8]) -> u32 {
    crc32c(CRC_SEED, block)
}

/// Those of data blocks one behind the other.
pub(super) fn data_crcs(blocks: &[u8]) -> impl Iterator<Item = u32> {
    const { assert!(BLOCK_LEN as usize == PAGE && CRC_SEED == PAGE_SEED) };
    page_sums::of_pages(blocks)
}

/// The same of one, if it is not known already.
pub(super) fn known_data_crc(block: &[u8], sums: Option<&PageSums>) -> u32 {
    let known = sums.and_then(|sums| sums.crc32c(CRC_SEED, block));
    known.unwrap_or_else(|| data_crc(block))
}

/// Of all data blocks that a batch wrote, in the order of its records: tells them from what was in their places before.
///
/// Their checksums do not. What holds its own crc32c (an OSD map; a superblock or a block of an extent tree of ext4; a page of
/// a database) leaves the same register whatever it says, so that all such blocks have one checksum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DataHash(u64);

impl DataHash {
    /// The next whole blocks.
    pub(super) fn add(&mut self, blocks: &[u8]) {
        for block in blocks.chunks_exact(BLOCK_LEN as usize) {
            self.0 = XxHash3_64::oneshot_with_seed(self.0, block);
        }
    }

    /// As a header has it: 0 there says that there is none.
    pub(super) fn sealed(self) -> u64 {
        self.0.max(1)
    }
}

/// What is damaged, as an error.
pub(super) fn damaged<T>(what: &'static str) -> Result<T, StoreError> {
    Err(StoreError::Format(what))
}

/// The root: where the checkpoint is and from where to replay the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Superblock {
    pub(super) uuid: [u8; 16],
    /// Grows with every superblock written; its parity says which two slots it goes to.
    pub(super) seq: u64,
    pub(super) device_len: u64,
    /// Log batches begin at multiples of this many bytes.
    pub(super) log_align: u32,
    /// First block of the log's ring.
    pub(super) log_block: u64,
    /// Length of the ring in bytes.
    pub(super) log_len: u64,
    /// Grows with every mount.
    pub(super) epoch: u64,
    /// First batch of this epoch.
    pub(super) epoch_seq: u64,
    /// First batch that the checkpoint does not contain, and its place in the log.
    pub(super) replay_seq: u64,
    pub(super) replay_pos: u64,
    pub(super) checkpoint_id: u64,
    /// First block of the manifest; 0: there is none, the checkpoint is empty.
    pub(super) manifest_block: u64,
}

impl Superblock {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(BLOCK_LEN as usize);
        w.raw(MAGIC);
        w.u32(0);
        w.u32(VERSION);
        w.raw(&self.uuid);
        w.u64(self.seq);
        w.u64(self.device_len);
        w.u32(BLOCK_LEN as u32);
        w.u32(self.log_align);
        w.u64(self.log_block);
        w.u64(self.log_len);
        w.u64(self.epoch);
        w.u64(self.epoch_seq);
        w.u64(self.replay_seq);
        w.u64(self.replay_pos);
        w.u64(self.checkpoint_id);
        w.u64(self.manifest_block);
        // Feature bits that a reader must know to read, and to write.
        w.u64(0);
        w.u64(0);
        w.zeros(BLOCK_LEN as usize - w.len());
        let mut bytes = w.into_vec();
        let crc = crc32c(CRC_SEED, &bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None` if this is no superblock or a torn one.
    pub(super) fn decode(bytes: &[u8]) -> Result<Option<Superblock>, StoreError> {
        if bytes.len() as u64 != BLOCK_LEN || &bytes[..8] != MAGIC {
            return Ok(None);
        }
        if bytes[8..12] != crc32c(CRC_SEED, &bytes[12..]).to_le_bytes() {
            return Ok(None);
        }
        let buf = bytes::Bytes::copy_from_slice(&bytes[12..]);
        let r = &mut Reader::new(&buf);
        Superblock::decode_fields(r)
            .or(damaged("superblock"))?
            .map_or_else(|| damaged("written by a later version of this store"), |s| Ok(Some(s)))
    }

    fn decode_fields(r: &mut Reader<'_>) -> Result<Option<Superblock>, denc::Error> {
        if r.u32()? != VERSION {
            return Ok(None);
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(r.slice(16)?);
        let (seq, device_len, block_len) = (r.u64()?, r.u64()?, r.u32()?);
        let superblock = Superblock {
            uuid,
            seq,
            device_len,
            log_align: r.u32()?,
            log_block: r.u64()?,
            log_len: r.u64()?,
            epoch: r.u64()?,
            epoch_seq: r.u64()?,
            replay_seq: r.u64()?,
            replay_pos: r.u64()?,
            checkpoint_id: r.u64()?,
            manifest_block: r.u64()?,
        };
        let features = r.u64()? | r.u64()?;
        if u64::from(block_len) != BLOCK_LEN || features != 0 {
            return Ok(None);
        }
        Ok(Some(superblock))
    }

    /// Where the two copies of this superblock go, in bytes.
    pub(super) fn offset(&self) -> u64 {
        self.seq % 2 * 2 * BLOCK_LEN
    }

    /// Checks that the numbers fit each other and the device.
    pub(super) fn is_sane(&self, device_len: u64) -> bool {
        let log_end = self.log_block.checked_add(self.log_len / BLOCK_LEN);
        self.device_len <= device_len
            && self.device_len / BLOCK_LEN <= u32::MAX.into()
            && self.log_align.is_power_of_two()
            && (512..=BLOCK_LEN as u32).contains(&self.log_align)
            && self.log_len.is_multiple_of(BLOCK_LEN)
            && self.log_len >= 16 * BLOCK_LEN
            && self.log_block >= SUPERBLOCK_SLOTS
            && log_end.is_some_and(|end| end <= self.device_len / BLOCK_LEN)
            && self.replay_pos.is_multiple_of(u64::from(self.log_align))
    }
}

/// What stands before the transactions of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BatchHeader {
    pub(super) seq: u64,
    /// Place in the log, which never wraps; its place in the ring is the remainder.
    pub(super) pos: u64,
    pub(super) epoch: u64,
    /// All batches up to this one were durable when this one was written.
    pub(super) durable: u64,
    pub(super) payload_len: u32,
    pub(super) transactions: u32,
    /// Whether the payload is a [`Spill`] that says where the real one is.
    pub(super) spilled: bool,
    /// [`DataHash`], 0 in batches that an earlier version wrote: those have data whose checksum is one of the two that
    /// it knew to tell nothing on the device before their record.
    pub(super) data_hash: u64,
}

impl BatchHeader {
    /// Fills in the header at the start of `batch`, which is as long as header and payload.
    pub(super) fn seal(&self, uuid: &[u8; 16], batch: &mut [u8]) {
        let mut w = Writer::with_capacity(BATCH_HEADER_LEN);
        w.u32(BATCH_MAGIC);
        w.u32(0);
        w.u64(self.seq);
        w.u64(self.pos);
        w.u64(self.epoch);
        w.u64(self.durable);
        w.u32(self.payload_len);
        w.u32(self.transactions);
        // Data blocks directly behind the payload: none are written so far.
        w.u32(0);
        w.u32(u32::from(self.spilled));
        w.u64(self.data_hash);
        batch[..BATCH_HEADER_LEN].copy_from_slice(w.as_slice());
        let crc = crc32c(crc32c(CRC_SEED, uuid), &batch[8..]);
        batch[4..8].copy_from_slice(&crc.to_le_bytes());
    }

    /// The header, if these bytes begin with one (its checksum is over the payload too: `verify`).
    pub(super) fn decode(bytes: &[u8]) -> Option<BatchHeader> {
        let u32_at = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        if u32_at(0)? != BATCH_MAGIC || u32_at(48)? != 0 || u32_at(52)? > 1 {
            return None;
        }
        Some(BatchHeader {
            seq: u64_at(8)?,
            pos: u64_at(16)?,
            epoch: u64_at(24)?,
            durable: u64_at(32)?,
            payload_len: u32_at(40)?,
            transactions: u32_at(44)?,
            spilled: u32_at(52)? == 1,
            data_hash: u64_at(56)?,
        })
    }

    /// Whether header and payload are what was written.
    pub(super) fn verify(uuid: &[u8; 16], batch: &[u8]) -> bool {
        batch.len() >= BATCH_HEADER_LEN
            && batch[4..8] == crc32c(crc32c(CRC_SEED, uuid), &batch[8..]).to_le_bytes()
    }
}

/// Header of a block of a checkpoint's stream (a run or the manifest).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHeader {
    /// Run id, or checkpoint id for a manifest.
    pub(super) stream: u64,
    /// Position in the stream.
    pub(super) index: u32,
    /// Offset in the payload of the first entry that begins here, [`NO_ENTRY`] if none does.
    pub(super) first_entry: u16,
    /// Bytes of the stream in this block.
    pub(super) used: u16,
    /// Manifest only: the next block of the chain, 0 at the end.
    pub(super) next: u64,
}

/// No entry begins in this block.
pub(super) const NO_ENTRY: u16 = u16::MAX;

impl PageHeader {
    /// Fills in the header of a block whose payload is there already.
    pub(super) fn seal(&self, uuid: &[u8; 16], block: &mut [u8]) {
        block[4..8].copy_from_slice(&self.index.to_le_bytes());
        block[8..16].copy_from_slice(&self.stream.to_le_bytes());
        block[16..18].copy_from_slice(&self.first_entry.to_le_bytes());
        block[18..20].copy_from_slice(&self.used.to_le_bytes());
        block[20..24].fill(0);
        block[24..32].copy_from_slice(&self.next.to_le_bytes());
        let crc = crc32c(crc32c(CRC_SEED, uuid), &block[4..]);
        block[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// The header and the payload, if the block is intact and is the one expected.
    pub(super) fn open<'a>(
        uuid: &[u8; 16],
        block: &'a [u8],
        stream: u64,
        index: u32,
    ) -> Option<(PageHeader, &'a [u8])> {
        let crc = crc32c(crc32c(CRC_SEED, uuid), &block[4..]);
        if block[..4] != crc.to_le_bytes() {
            return None;
        }
        let header = PageHeader {
            index: u32::from_le_bytes(block[4..8].try_into().ok()?),
            stream: u64::from_le_bytes(block[8..16].try_into().ok()?),
            first_entry: u16::from_le_bytes(block[16..18].try_into().ok()?),
            used: u16::from_le_bytes(block[18..20].try_into().ok()?),
            next: u64::from_le_bytes(block[24..32].try_into().ok()?),
        };
        let payload = block.get(PAGE_HEADER_LEN..PAGE_HEADER_LEN + header.used as usize)?;
        (header.stream == stream && header.index == index).then_some((header, payload))
    }
}

/// Appends the format's integers and names to a buffer.
pub(super) trait Put {
    fn put_u8(&mut self, v: u8);
    fn put_bytes(&mut self, bytes: &[u8]);

    /// Seven bits a byte, low ones first, the high bit says that more follow.
    #[inline]
    fn put_varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.put_u8(v as u8 | 0x80);
            v >>= 7;
        }
        self.put_u8(v as u8);
    }

    /// Small numbers of either sign as small varints.
    fn put_signed(&mut self, v: i64) {
        self.put_varint(((v << 1) ^ (v >> 63)) as u64);
    }

    fn put_blob(&mut self, bytes: &[u8]) {
        self.put_varint(bytes.len() as u64);
        self.put_bytes(bytes);
    }

    fn put_coll(&mut self, cid: &CollId) {
        let kind = match cid {
            CollId::Meta => 0,
            CollId::Pg(_) => 1,
            CollId::PgTemp(_) => 2,
        };
        self.put_u8(kind);
        if let Some(pg) = cid.spg() {
            self.put_varint(pg.pgid.pool);
            self.put_varint(pg.pgid.seed.into());
            self.put_u8(pg.shard as u8);
        }
    }

    fn put_object(&mut self, oid: &GhObject) {
        let h = &oid.hobj;
        // What most objects do not have costs one bit each.
        let flags = u8::from(oid.max)
            | u8::from(h.max) << 1
            | u8::from(oid.shard != -1) << 2
            | u8::from(oid.generation != u64::MAX) << 3
            | u8::from(!h.namespace.is_empty()) << 4
            | u8::from(!h.key.is_empty()) << 5;
        self.put_u8(flags);
        self.put_signed(h.pool);
        self.put_bytes(&h.hash.to_le_bytes());
        // The head (CEPH_NOSNAP, -2) becomes 0.
        self.put_varint(h.snap.wrapping_add(2));
        self.put_blob(&h.name);
        if flags & 4 != 0 {
            self.put_u8(oid.shard as u8);
        }
        if flags & 8 != 0 {
            self.put_varint(oid.generation);
        }
        if flags & 16 != 0 {
            self.put_blob(&h.namespace);
        }
        if flags & 32 != 0 {
            self.put_blob(&h.key);
        }
    }
}

impl Put for Vec<u8> {
    #[inline]
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    #[inline]
    fn put_bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Reads what [`Put`] wrote; every read past the end is an error.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    rest: &'a [u8],
}

/// The bytes are not what the format allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

impl From<Malformed> for StoreError {
    fn from(_: Malformed) -> StoreError {
        StoreError::Format("malformed metadata behind a good checksum")
    }
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (head, tail) = self.rest.split_at_checked(len).ok_or(Malformed)?;
        self.rest = tail;
        Ok(head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.bytes(1)?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.bytes(4)?.try_into().map_err(|_| Malformed)?))
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Malformed> {
        let mut v = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            v |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(v);
            }
        }
        Err(Malformed)
    }

    pub(super) fn varint_u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.varint()?).map_err(|_| Malformed)
    }

    pub(super) fn len(&mut self) -> Result<usize, Malformed> {
        usize::try_from(self.varint()?).map_err(|_| Malformed)
    }

    /// A count of things of at least one byte each.
    pub(super) fn count(&mut self) -> Result<usize, Malformed> {
        let n = self.len()?;
        if n > self.rest.len() { Err(Malformed) } else { Ok(n) }
    }

    pub(super) fn signed(&mut self) -> Result<i64, Malformed> {
        let v = self.varint()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    pub(super) fn blob(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.len()?;
        self.bytes(len)
    }

    pub(super) fn coll(&mut self) -> Result<CollId, Malformed> {
        let kind = self.u8()?;
        if kind == 0 {
            return Ok(CollId::Meta);
        }
        let pgid = PgId { pool: self.varint()?, seed: self.varint_u32()? };
        let pg = SpgId { pgid, shard: self.u8()? as i8 };
        match kind {
            1 => Ok(CollId::Pg(pg)),
            2 => Ok(CollId::PgTemp(pg)),
            _ => Err(Malformed),
        }
    }

    pub(super) fn object(&mut self) -> Result<GhObject, Malformed> {
        let flags = self.u8()?;
        if flags >= 64 {
            return Err(Malformed);
        }
        let pool = self.signed()?;
        let hash = self.u32()?;
        let snap = self.varint()?.wrapping_sub(2);
        let name = BString::from(self.blob()?);
        let shard = if flags & 4 != 0 { self.u8()? as i8 } else { -1 };
        let generation = if flags & 8 != 0 { self.varint()? } else { u64::MAX };
        let namespace =
            if flags & 16 != 0 { BString::from(self.blob()?) } else { BString::default() };
        let key = if flags & 32 != 0 { BString::from(self.blob()?) } else { BString::default() };
        let hobj = HObject { key, name, snap, hash, max: flags & 2 != 0, namespace, pool };
        Ok(GhObject { hobj, generation, shard, max: flags & 1 != 0 })
    }
}

/// Contiguous blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Extent {
    pub(super) fn offset(&self) -> u64 {
        u64::from(self.start) * BLOCK_LEN
    }

    pub(super) fn end(&self) -> u32 {
        self.start + self.len
    }
}

/// Extents as count, then (start relative to the last end, length) each.
pub(super) fn put_extents(out: &mut impl Put, extents: &[Extent]) {
    out.put_varint(extents.len() as u64);
    let mut last = 0;
    for e in extents {
        out.put_signed(i64::from(e.start) - last);
        out.put_varint(e.len.into());
        last = i64::from(e.end());
    }
}

/// Inverse of [`put_extents`]; every extent lies below `device_blocks`.
pub(super) fn extents(c: &mut Cursor<'_>, device_blocks: u32) -> Result<Vec<Extent>, Malformed> {
    let n = c.count()?;
    let mut last = 0_i64;
    let mut out = Vec::with_capacity(n);
    for _ in 0..n {
        let start = last.checked_add(c.signed()?).ok_or(Malformed)?;
        let start = u32::try_from(start).map_err(|_| Malformed)?;
        let len = c.varint_u32()?;
        let end = start.checked_add(len).filter(|&end| end <= device_blocks && len > 0);
        last = end.ok_or(Malformed)?.into();
        out.push(Extent { start, len });
    }
    Ok(out)
}
