//! The log: a ring of batches, and what waits to go into the next one.

use bytes::Bytes;
use device::{Piece, WriteCause};
use env::sync::Sender;
use env::{AlignedBuf, JoinHandle};

use super::format::{BATCH_HEADER_LEN, BLOCK_LEN, BatchHeader, DataHash, Extent, Put, put_extents};
use super::rec::{RecWriter, Share, Shares};
use crate::StoreError;

/// The first batch number behind which the checkpoint under way will cut the log is that after
/// this one, which ends at this place once it has one.
pub(super) type FrozenAt = Option<(u64, Option<u64>)>;

/// Where the log stands.
#[derive(Debug, Clone)]
pub(super) struct Log {
    /// Byte offset of the ring on the device, and its length.
    pub(super) start: u64,
    pub(super) len: u64,
    pub(super) align: u64,
    pub(super) epoch: u64,
    /// The next batch and the first place it may have.
    pub(super) next_seq: u64,
    pub(super) next_pos: u64,
    /// Everything from here on may be needed by a replay.
    pub(super) tail_pos: u64,
    pub(super) durable_seq: u64,
}

impl Log {
    /// Bytes a batch with this payload takes.
    pub(super) fn stored_len(&self, payload_len: usize) -> u64 {
        ((BATCH_HEADER_LEN + payload_len) as u64).next_multiple_of(self.align)
    }

    /// The place of a batch of `len` stored bytes: it never crosses the end of the ring, and leaves
    /// `keep` bytes of it free. `None` when the log is too full.
    fn place(&self, len: u64, keep: u64) -> Option<u64> {
        let room = self.len - self.next_pos % self.len;
        let pos = if len <= room { self.next_pos } else { self.next_pos + room };
        (pos + len - self.tail_pos <= self.len - keep).then_some(pos)
    }

    /// [`Log::place`] such that there is always a way on. A checkpoint makes room, but it needs the
    /// batch it begins with in the log, so room for that one is kept at all times:
    ///
    /// 1. A checkpoint begins with the next batch once the log is half full ([`Log::is_long`]).
    /// 2. The batch a checkpoint begins with may use all that is left; there is room for it by 3.
    /// 3. Without a checkpoint, room for one more batch is kept. There was room for two by 1 and 4.
    /// 4. Behind the place `frozen` where the present checkpoint began, only so much is written that
    ///    room for two is left when all before is given up.
    pub(super) fn place_batch(&self, len: u64, seq: u64, frozen: FrozenAt) -> Option<u64> {
        match frozen {
            Some((first, _)) if first == seq => self.place(len, 0),
            Some((_, Some(end))) => {
                let pos = self.place(len, 0)?;
                (pos + len - end <= self.len - 2 * self.batch_max()).then_some(pos)
            }
            _ => self.place(len, self.batch_max()),
        }
    }

    /// The most of the ring a batch takes, with what it leaves at the ring's end.
    fn batch_max(&self) -> u64 {
        self.len / 4
    }

    /// Whether a checkpoint should begin.
    pub(super) fn is_long(&self) -> bool {
        self.used() > self.len - 2 * self.batch_max()
    }

    /// Where on the device a place in the log is.
    pub(super) fn offset(&self, pos: u64) -> u64 {
        self.start + pos % self.len
    }

    /// Bytes of the ring that a replay may need.
    pub(super) fn used(&self) -> u64 {
        self.next_pos - self.tail_pos
    }

    /// Payloads longer than this are spilled. Twice this, header and alignment fit `batch_max`.
    pub(super) fn payload_max(&self) -> usize {
        (self.len / 16) as usize
    }
}

/// What batches hold that no checkpoint does.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Unchecked {
    pub(super) transactions: u64,
    /// Of their records.
    pub(super) bytes: u64,
}

impl Unchecked {
    /// One batch more.
    pub(super) fn add(&mut self, transactions: u32, payload: &[u8]) {
        self.transactions += u64::from(transactions);
        self.bytes += payload.len() as u64;
    }
}

/// What the next batch consists of so far. Bound: the callers' (an OSD admits a limited number of
/// bytes in flight).
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) recs: RecWriter,
    /// Blocks to be written, in the order of submission.
    pub(super) data: Vec<(u32, Bytes)>,
    /// Of all blocks, those under way already too.
    pub(super) data_hash: DataHash,
    /// Long writes under way already.
    pub(super) early: Vec<JoinHandle<std::io::Result<()>>>,
    /// First blocks of what is in [`super::Core::inflight`] for this batch.
    pub(super) inflight: Vec<u32>,
    /// Blocks that are free once the batch is durable.
    pub(super) freed: Vec<u32>,
    /// Blocks that may be this batch's own: free once the batch behind it is durable. Until that one
    /// vouches for this one, mount compares them with what this one says they hold.
    pub(super) freed_again: Vec<u32>,
    pub(super) waiters: Vec<Sender<Result<(), StoreError>>>,
    pub(super) transactions: u32,
}

/// A batch on its way to the device.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) payload: Vec<u8>,
    pub(super) shares: Shares,
    pub(super) data: Vec<(u32, Bytes)>,
    pub(super) data_hash: DataHash,
    pub(super) early: Vec<JoinHandle<std::io::Result<()>>>,
    pub(super) inflight: Vec<u32>,
    pub(super) freed: Vec<u32>,
    pub(super) freed_again: Vec<u32>,
    pub(super) waiters: Vec<Sender<Result<(), StoreError>>>,
    pub(super) transactions: u32,
}

impl Pending {
    pub(super) fn is_empty(&self) -> bool {
        self.transactions == 0
    }

    /// Closes the batch.
    pub(super) fn take(&mut self) -> Batch {
        let (payload, shares) = self.recs.take();
        Batch {
            payload,
            shares,
            data: std::mem::take(&mut self.data),
            data_hash: std::mem::take(&mut self.data_hash),
            early: std::mem::take(&mut self.early),
            inflight: std::mem::take(&mut self.inflight),
            freed: std::mem::take(&mut self.freed),
            freed_again: std::mem::take(&mut self.freed_again),
            waiters: std::mem::take(&mut self.waiters),
            transactions: std::mem::take(&mut self.transactions),
        }
    }
}

impl Shares {
    /// The ledger's shares of `stored` bytes of log of which `total` are header and payload.
    fn causes(&self, total: u64, stored: u64) -> Vec<(WriteCause, u64)> {
        let of = |share: Share| self.0[share as usize];
        let (onode, omap, pg_log) = (of(Share::Onode), of(Share::Omap), of(Share::PgLog));
        vec![
            (WriteCause::Onode, onode),
            (WriteCause::Omap, omap),
            (WriteCause::PgLog, pg_log),
            (WriteCause::Journal, total - onode - omap - pg_log),
            (WriteCause::Padding, stored - total),
        ]
    }
}

/// The bytes of a batch for its place in the log.
pub(super) fn seal(
    header: &BatchHeader,
    uuid: &[u8; 16],
    payload: &[u8],
    shares: &Shares,
    stored: u64,
) -> Piece {
    let total = BATCH_HEADER_LEN + payload.len();
    let mut buf = AlignedBuf::scratch(stored as usize);
    buf[BATCH_HEADER_LEN..total].copy_from_slice(payload);
    buf[total..].fill(0);
    header.seal(uuid, &mut buf[..total]);
    Piece::shared(buf.freeze(), shares.causes(total as u64, stored))
}

/// A payload too long for the log: written to blocks of its own; the log says where.
///
/// ```text
/// varint length | u32 crc32c | extents
/// ```
pub(super) fn spill_record(payload: &[u8], crc: u32, extents: &[Extent]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + 8 * extents.len());
    out.put_varint(payload.len() as u64);
    out.put_bytes(&crc.to_le_bytes());
    put_extents(&mut out, extents);
    out
}

/// Writes of adjacent blocks joined: start and pieces of each.
pub(super) fn join_writes(
    mut data: Vec<(u32, Bytes)>,
    cause: WriteCause,
) -> Vec<(u64, Vec<Piece>)> {
    data.sort_by_key(|(block, _)| *block);
    let mut out: Vec<(u64, Vec<Piece>)> = Vec::new();
    let mut end = u64::MAX;
    for (block, bytes) in data {
        let offset = u64::from(block) * BLOCK_LEN;
        let len = bytes.len() as u64;
        let piece = Piece::new(bytes, cause);
        match out.last_mut() {
            Some((_, pieces)) if end == offset => pieces.push(piece),
            _ => out.push((offset, vec![piece])),
        }
        end = offset + len;
    }
    out
}
