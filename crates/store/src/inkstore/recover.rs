//! Making a store and putting one together again: superblock, checkpoint, log.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use device::{BlockDevice, Piece, WriteCause};
use env::AlignedBuf;
use types::hobject::GhObject;

use super::Core;
use super::alloc::Allocator;
use super::checkpoint::{Manifest, Run, write_superblock};
use super::entries::load_entry;
use super::fold::Folds;
use super::format::{
    BATCH_HEADER_LEN, BLOCK_LEN, BatchHeader, Cursor, DataHash, Extent, Malformed,
    PAGE_PAYLOAD_LEN, PageHeader, SUPERBLOCK_SLOTS, Superblock, damaged, data_crc, extents,
};
use super::log::{Log, Pending, Unchecked};
use super::onode::{BlockPtr, PatchSource};
use super::read::read_blocks;
use super::rec::{KeySlots, Rec, RecReader};
use super::state::{Slot, State};
use super::write::omap_reference;
use crate::object_store::OBJECT_LEN_MAX;
use crate::{CollId, StoreError};

/// How to make a store.
#[derive(Debug, Clone, Copy)]
pub struct MkfsOptions {
    /// Tells this store's blocks from any other's: random.
    pub uuid: [u8; 16],
    /// Length of the log in bytes; by default 1/64 of the device, at most 256 MiB.
    pub log_len: Option<u64>,
}

/// Smallest device in bytes.
const DEVICE_LEN_MIN: u64 = 1 << 20;
/// Bytes of log or run read at once.
const READ_LEN: u64 = 1 << 20;

pub(super) async fn mkfs(device: &BlockDevice, options: MkfsOptions) -> Result<(), StoreError> {
    let device_len = device.len() / BLOCK_LEN * BLOCK_LEN;
    if device_len < DEVICE_LEN_MIN || device_len / BLOCK_LEN > u64::from(u32::MAX) {
        return damaged("device smaller than 1 MiB or larger than 16 TiB");
    }
    let usual = (device_len / 64).max((device_len / 16).min(4 << 20)).min(256 << 20);
    let log_len = options.log_len.unwrap_or(usual).next_multiple_of(BLOCK_LEN);
    let superblock = Superblock {
        uuid: options.uuid,
        seq: 1,
        device_len,
        log_align: device.block_len().max(512),
        log_block: SUPERBLOCK_SLOTS,
        log_len,
        epoch: 1,
        epoch_seq: 1,
        replay_seq: 1,
        replay_pos: 0,
        checkpoint_id: 0,
        manifest_block: 0,
    };
    if !superblock.is_sane(device_len) {
        return damaged("log does not fit the device");
    }
    // All slots at once: an older store's superblock must not survive.
    let mut slots = AlignedBuf::zeroed((SUPERBLOCK_SLOTS * BLOCK_LEN) as usize);
    for copy in 0..2 {
        let at = superblock.offset() + copy * BLOCK_LEN;
        slots.copy_from_slice_at(at as usize, &superblock.encode());
    }
    device.write(0, vec![Piece::new(slots.freeze(), WriteCause::Superblock)]).await?;
    device.sync().await?;
    Ok(())
}

pub(super) async fn mount(device: &BlockDevice) -> Result<Core, StoreError> {
    // What a killed process left in a cache must not vanish after it has been read.
    device.sync().await?;
    let mut superblock = newest_superblock(device).await?;
    if device.block_len() > superblock.log_align {
        let (store_len, device_len) = (superblock.log_align, device.block_len());
        return Err(StoreError::Sectors { store_len, device_len });
    }
    // A device that has grown is taken as it is now; nothing on it refers to what has come to it.
    let device_blocks = (device.len() / BLOCK_LEN).min(u32::MAX.into()) as u32;
    let mut state = State::new();
    state.space.replaying = true;
    let manifest = load_checkpoint(device, &superblock, device_blocks, &mut state).await?;
    let replayed = replay(device, &superblock, device_blocks, &mut state).await?;

    let mut alloc = Allocator::new(device_blocks);
    let log_end = superblock.log_block as u32 + (superblock.log_len / BLOCK_LEN) as u32;
    let first = SUPERBLOCK_SLOTS as u32;
    let before_log = superblock.log_block as u32 - first;
    for (start, len) in [(first, before_log), (log_end, device_blocks - log_end)] {
        alloc.release_extent(Extent { start, len });
    }
    let spilled = replayed.spilled.iter().flat_map(|(_, extents)| extents);
    let metadata =
        manifest.runs.iter().flat_map(|r| &r.extents).chain(&manifest.own).chain(spilled);
    let mut overlaps = false;
    for extent in metadata {
        (extent.start..extent.end()).for_each(|block| overlaps |= !alloc.take(block));
    }
    state.recount(device_blocks, |block| overlaps |= !alloc.take(block));
    if overlaps {
        return damaged("two owners of one block");
    }

    let log = Log {
        start: superblock.log_block * BLOCK_LEN,
        len: superblock.log_len,
        align: superblock.log_align.into(),
        epoch: superblock.epoch + 1,
        next_seq: replayed.next_seq,
        next_pos: replayed.next_pos,
        tail_pos: superblock.replay_pos,
        durable_seq: replayed.next_seq - 1,
    };
    let device_len = u64::from(device_blocks) * BLOCK_LEN;
    if device_len != superblock.device_len {
        tracing::info!(
            from = superblock.device_len,
            to = device_len,
            ?device,
            "the device has grown"
        );
    }
    // From here on batches of an earlier life with these numbers are not ours. Blocks beyond the length that the
    // superblock had are given out only when this one, which says that they are there, is durable.
    superblock.seq += 1;
    superblock.device_len = device_len;
    superblock.epoch = log.epoch;
    superblock.epoch_seq = log.next_seq;
    write_superblock(device, &superblock).await?;

    let folds = Folds::left_in(&state);
    let mut pending = Pending::default();
    state.drop_handles();
    pending.recs.reset();
    Ok(Core {
        superblock,
        state,
        alloc,
        device_blocks,
        log,
        pending,
        resolved: None,
        found: Default::default(),
        inflight: BTreeMap::new(),
        cache: Default::default(),
        manifest_blocks: manifest.blocks(),
        manifest,
        spilled: replayed.spilled,
        checkpointing: false,
        coming: Default::default(),
        unchecked: replayed.unchecked,
        frozen_at: None,
        estimate_frozen: 0,
        checkpoint_asked: 0,
        checkpoints_begun: 0,
        base_asked: false,
        base_begun: 0,
        checkpoints_done: 0,
        readers: BTreeSet::new(),
        next_reader: 1,
        quarantine: VecDeque::new(),
        discards: Default::default(),
        folds,
        failed: None,
        stops_when_full: false,
        closing: false,
        committing: true,
        folding: true,
    })
}

async fn newest_superblock(device: &BlockDevice) -> Result<Superblock, StoreError> {
    if device.len() < DEVICE_LEN_MIN {
        return damaged("device smaller than 1 MiB");
    }
    let mut newest: Option<Superblock> = None;
    let mut unreadable = None;
    for slot in 0..SUPERBLOCK_SLOTS {
        // One bad block must not hide the others.
        let decoded = match device.read(slot * BLOCK_LEN, BLOCK_LEN as usize).await {
            Ok(bytes) => Superblock::decode(&bytes)?,
            Err(e) => {
                unreadable = Some(e);
                None
            }
        };
        if let Some(found) = decoded
            && newest.as_ref().is_none_or(|n| found.seq > n.seq)
        {
            newest = Some(found);
        }
    }
    match (newest, unreadable) {
        (Some(s), _) if s.is_sane(device.len()) => Ok(s),
        (Some(s), _) if s.device_len > device.len() => {
            Err(StoreError::Shrunk { store_len: s.device_len, device_len: device.len() })
        }
        (Some(_), _) => damaged("superblock does not fit the device"),
        (None, Some(e)) => Err(e.into()),
        (None, None) => damaged("no superblock"),
    }
}

/// Reads what the mount cannot do without: an error says where that is.
async fn read_at(
    device: &BlockDevice,
    device_offset: u64,
    len: u64,
) -> Result<AlignedBuf, StoreError> {
    let read = device.read(device_offset, len as usize).await;
    read.map_err(|e| StoreError::Unreadable { device_offset, error: e.into() })
}

/// Reads the manifest and its runs into the state.
async fn load_checkpoint(
    device: &BlockDevice,
    superblock: &Superblock,
    device_blocks: u32,
    state: &mut State,
) -> Result<Manifest, StoreError> {
    if superblock.manifest_block == 0 {
        return Ok(Manifest::default());
    }
    let (uuid, id) = (&superblock.uuid, superblock.checkpoint_id);
    let mut payload = Vec::new();
    let mut own: Vec<Extent> = Vec::new();
    let (mut next, mut index) = (superblock.manifest_block, 0);
    while next != 0 {
        let Some(block) = u32::try_from(next).ok().filter(|&b| b < device_blocks) else {
            return damaged("manifest outside the device");
        };
        let page = read_at(device, next * BLOCK_LEN, BLOCK_LEN).await?;
        let Some((header, bytes)) = PageHeader::open(uuid, &page, id, index) else {
            return Err(StoreError::Checksum { device_offset: next * BLOCK_LEN });
        };
        payload.extend_from_slice(bytes);
        own.push(Extent { start: block, len: 1 });
        next = header.next;
        index += 1;
    }
    let mut manifest = Manifest::decode(&payload, id, device_blocks)?;
    manifest.own = own;
    for (cid, bits) in &manifest.colls {
        state.make_collection(*cid, *bits);
    }
    for run in &manifest.runs {
        load_run(device, uuid, run, device_blocks, state).await?;
    }
    let listed: BTreeSet<CollId> = manifest.colls.iter().map(|(cid, _)| *cid).collect();
    state.colls.retain(|cid, coll| listed.contains(cid) || !coll.objects.is_empty());
    if state.colls.len() != listed.len() {
        return damaged("objects of a collection that does not exist");
    }
    state.mark_clean();
    Ok(manifest)
}

async fn load_run(
    device: &BlockDevice,
    uuid: &[u8; 16],
    run: &Run,
    device_blocks: u32,
    state: &mut State,
) -> Result<(), StoreError> {
    // Bytes of the stream not yet made up to a whole entry.
    let mut stream: Vec<u8> = Vec::new();
    let mut index = 0;
    for piece in run.extents.iter().flat_map(slices) {
        let bytes = read_at(device, piece.offset(), u64::from(piece.len) * BLOCK_LEN).await?;
        for (i, page) in bytes.chunks_exact(BLOCK_LEN as usize).enumerate() {
            let Some((_, payload)) = PageHeader::open(uuid, page, run.id, index) else {
                let device_offset = piece.offset() + i as u64 * BLOCK_LEN;
                return Err(StoreError::Checksum { device_offset });
            };
            stream.extend_from_slice(payload);
            index += 1;
        }
        let mut used = 0;
        while let Some(len) = whole_entry(&stream[used..])? {
            let entry = &stream[used + len.0..used + len.0 + len.1];
            load_entry(state, entry, device_blocks)?;
            used += len.0 + len.1;
        }
        stream.drain(..used);
    }
    if stream.is_empty() { Ok(()) } else { damaged("a run ends within an entry") }
}

/// Lengths of the prefix and the body of the entry at the start, if all of it is there.
fn whole_entry(stream: &[u8]) -> Result<Option<(usize, usize)>, Malformed> {
    let prefix = stream.iter().take(10).position(|b| *b < 0x80);
    let Some(prefix) = prefix.map(|p| p + 1) else {
        return if stream.len() >= 10 { Err(Malformed) } else { Ok(None) };
    };
    let len = Cursor::new(stream).len()?;
    Ok((len <= stream.len() - prefix).then_some((prefix, len)))
}

/// Extents cut to what is read at once.
fn slices(extent: &Extent) -> impl Iterator<Item = Extent> + use<> {
    let (mut start, end) = (extent.start, extent.end());
    std::iter::from_fn(move || {
        let len = (end - start).min((READ_LEN / BLOCK_LEN) as u32);
        let slice = Extent { start, len };
        start += len;
        (len > 0).then_some(slice)
    })
}

/// What was acknowledged may be taken for what was not finished, by a read that is not what is there.
const UNSTEADY: &str = "the device reads something else each time";

/// What a replay came to.
struct Replayed {
    next_seq: u64,
    next_pos: u64,
    unchecked: Unchecked,
    spilled: Vec<(u64, Vec<Extent>)>,
}

/// A batch whose checksum is good.
struct FoundBatch {
    header: BatchHeader,
    end: u64,
    payload: Vec<u8>,
    spilled: Vec<Extent>,
}

/// Applies the batches behind the checkpoint, as far as the log goes.
async fn replay(
    device: &BlockDevice,
    superblock: &Superblock,
    device_blocks: u32,
    state: &mut State,
) -> Result<Replayed, StoreError> {
    let mut scan = Scan {
        device,
        superblock,
        window: Bytes::new(),
        window_at: 0,
        bad: 0..0,
        start: Ok(None),
        device_blocks,
    };
    scan.start = scan.read_start().await;
    let mut replay = Replay::default();
    let mut out = Replayed {
        next_seq: superblock.replay_seq,
        next_pos: superblock.replay_pos,
        unchecked: Unchecked::default(),
        spilled: Vec::new(),
    };
    let mut found = scan.batch(out.next_pos, out.next_seq).await?;
    while let Some(batch) = found {
        let next = scan.batch(batch.end, out.next_seq + 1).await?;
        // A later batch says that this one was synced. Without one this may be the last, and
        // its data may not have reached the device: then it was not acknowledged. What a mount
        // before has found to be there may have been given up and used again since.
        let synced = next.as_ref().is_some_and(|n| n.header.durable >= out.next_seq);
        let found_good = out.next_seq < superblock.epoch_seq;
        if !synced && !found_good && !data_is_there(device, &batch, device_blocks).await? {
            if data_is_there(device, &batch, device_blocks).await? {
                return damaged(UNSTEADY);
            }
            break;
        }
        replay.apply(state, &batch.payload, device_blocks)?;
        if !batch.spilled.is_empty() {
            out.spilled.push((out.next_seq, batch.spilled));
        }
        out.unchecked.add(batch.header.transactions, &batch.payload);
        out.next_seq += 1;
        out.next_pos = batch.end;
        found = next;
    }
    if !scan.is_steady().await? {
        return damaged(UNSTEADY);
    }
    if out.next_seq < superblock.epoch_seq || scan.is_followed(out.next_pos, out.next_seq).await? {
        return damaged("a batch in the middle of the log");
    }
    Ok(out)
}

/// Whether every block that the batch wrote holds what it should. One that cannot be read is no reason to forget what may
/// have been acknowledged, nor to refuse the store: its readers are told. The others are then compared by their checksums.
async fn data_is_there(
    device: &BlockDevice,
    batch: &FoundBatch,
    device_blocks: u32,
) -> Result<bool, StoreError> {
    let (mut hash, mut all_read) = (DataHash::default(), true);
    let mut reader = RecReader::new(&batch.payload, device_blocks);
    while let Some(rec) = reader.next()? {
        let Rec::Write { ptrs, .. } = rec else { continue };
        for adjacent in ptrs.chunk_by(|a, b| a.block + 1 == b.block) {
            let pieces = match what_can_be_read(device, adjacent).await {
                Err(StoreError::Checksum { .. }) => return Ok(false),
                pieces => pieces?,
            };
            for piece in pieces {
                match piece {
                    Some(blocks) => hash.add(&blocks),
                    None => all_read = false,
                }
            }
        }
    }
    let hashed = all_read && batch.header.data_hash != 0;
    Ok(!hashed || hash.sealed() == batch.header.data_hash)
}

/// Adjacent blocks, verified, in pieces; nothing in the place of one that cannot be read.
async fn what_can_be_read(
    device: &BlockDevice,
    ptrs: &[BlockPtr],
) -> Result<Vec<Option<Bytes>>, StoreError> {
    match read_blocks(device, ptrs).await {
        Err(StoreError::Device(_)) => {}
        all => return Ok(vec![Some(all?)]),
    }
    let mut blocks = Vec::with_capacity(ptrs.len());
    for ptr in ptrs {
        blocks.push(match read_blocks(device, std::slice::from_ref(ptr)).await {
            Err(StoreError::Device(error)) => {
                let device_offset = u64::from(ptr.block) * BLOCK_LEN;
                tracing::warn!(device_offset, %error, ?device, "data of the last batch is unreadable");
                None
            }
            block => Some(block?),
        });
    }
    Ok(blocks)
}

/// Reads the log.
struct Scan<'a> {
    device: &'a BlockDevice,
    superblock: &'a Superblock,
    window: Bytes,
    /// Device offset of the window.
    window_at: u64,
    /// Part of the device of which some cannot be read.
    bad: Range<u64>,
    /// What is at the ring's start says it is this batch; an error if it cannot be read.
    start: Result<Option<BatchHeader>, StoreError>,
    device_blocks: u32,
}

impl Scan<'_> {
    /// `len` bytes at a place of the log, less at the end of the ring.
    async fn bytes(&mut self, pos: u64, len: u64) -> Result<Bytes, StoreError> {
        let start = self.superblock.log_block * BLOCK_LEN;
        let log_len = self.superblock.log_len;
        let at = start + pos % log_len;
        let len = len.min(start + log_len - at);
        let window_end = self.window_at + self.window.len() as u64;
        if at < self.window_at || at + len > window_end {
            let aligned = |len: u64| {
                let len = len.next_multiple_of(self.superblock.log_align.into());
                len.min(start + log_len - at)
            };
            let (least, want) = (aligned(len), aligned(len.max(READ_LEN)));
            // A device may try long before it says that it cannot: not again for each sector in front.
            let want = if self.bad.contains(&at) { least } else { want };
            let mut read = read_at(self.device, at, want).await;
            if read.is_err() && want > least {
                self.bad = at..at + want;
                // What is not asked for may be nobody's.
                read = read_at(self.device, at, least).await;
            }
            self.window = read?.freeze();
            self.window_at = at;
        }
        let from = (at - self.window_at) as usize;
        Ok(self.window.slice(from..from + len as usize))
    }

    async fn read_start(&mut self) -> Result<Option<BatchHeader>, StoreError> {
        Ok(BatchHeader::decode(&self.bytes(0, BATCH_HEADER_LEN as u64).await?))
    }

    /// The most of the ring that a batch takes.
    fn batch_max(&self) -> u64 {
        self.superblock.log_len / 4
    }

    /// The batch with this number, at `pos` or, if it did not fit there, at the ring's start. One
    /// that a mount dropped may still be at the other of the two: the one of the later life counts.
    async fn batch(&mut self, pos: u64, seq: u64) -> Result<Option<FoundBatch>, StoreError> {
        let wrapped = pos.next_multiple_of(self.superblock.log_len);
        let start = match &self.start {
            // Not where a batch may be that belongs here.
            Err(_) if wrapped - pos >= self.batch_max() => None,
            start => start.clone()?,
        };
        let at_start = start.is_some_and(|h| h.seq == seq && h.pos == wrapped);
        let mut newest: Option<FoundBatch> = None;
        for pos in [Some(pos), at_start.then_some(wrapped)].into_iter().flatten() {
            let Some((header, payload)) = self.valid_at(pos).await? else { continue };
            let newer = newest.as_ref().is_none_or(|n| n.header.epoch < header.epoch);
            if header.seq != seq || header.pos != pos || !self.epoch_fits(&header) || !newer {
                continue;
            }
            let stored = (BATCH_HEADER_LEN as u64 + u64::from(header.payload_len))
                .next_multiple_of(self.superblock.log_align.into());
            newest = Some(FoundBatch { header, end: pos + stored, payload, spilled: Vec::new() });
        }
        let Some(mut batch) = newest else { return Ok(None) };
        let whole = !batch.header.spilled || self.unspill(&mut batch).await?;
        Ok(whole.then_some(batch))
    }

    fn epoch_fits(&self, header: &BatchHeader) -> bool {
        let s = self.superblock;
        match header.seq < s.epoch_seq {
            true => header.epoch < s.epoch,
            false => header.epoch == s.epoch,
        }
    }

    /// Whatever whole batch is at a place. What somebody has written into an xattr may begin like one: none of the log's
    /// is elsewhere than it says, or longer than the log places.
    async fn valid_at(&mut self, pos: u64) -> Result<Option<(BatchHeader, Vec<u8>)>, StoreError> {
        let bytes = self.bytes(pos, BATCH_HEADER_LEN as u64).await?;
        let Some(header) = BatchHeader::decode(&bytes) else { return Ok(None) };
        let len = BATCH_HEADER_LEN as u64 + u64::from(header.payload_len);
        let log_len = self.superblock.log_len;
        if header.pos % log_len != pos % log_len || len > self.batch_max() {
            return Ok(None);
        }
        let bytes = self.bytes(pos, len).await?;
        let whole = bytes.len() as u64 == len && BatchHeader::verify(&self.superblock.uuid, &bytes);
        Ok(whole.then(|| (header, bytes[BATCH_HEADER_LEN..].to_vec())))
    }

    /// Replaces the spill record by the payload. False if that is not there.
    async fn unspill(&mut self, batch: &mut FoundBatch) -> Result<bool, StoreError> {
        let c = &mut Cursor::new(&batch.payload);
        let (len, crc) = (c.len()?, c.u32()?);
        let places = extents(c, self.device_blocks)?;
        let mut payload = Vec::new();
        for piece in places.iter().flat_map(slices) {
            let bytes = read_at(self.device, piece.offset(), u64::from(piece.len) * BLOCK_LEN);
            payload.extend_from_slice(&bytes.await?);
        }
        if len > payload.len() {
            return Err(Malformed.into());
        }
        payload.truncate(len);
        let good = data_crc(&payload) == crc;
        batch.payload = payload;
        batch.spilled = places;
        Ok(good)
    }

    /// Whether the places where a batch was looked for and not found read the same once more.
    async fn is_steady(&mut self) -> Result<bool, StoreError> {
        let again = read_at(self.device, self.window_at, self.window.len() as u64).await?;
        if again[..] != self.window[..] {
            return Ok(false);
        }
        self.window = Bytes::new();
        Ok(self.read_start().await == self.start)
    }

    /// Whether the place where the log seems to end is followed by a batch that was written when
    /// the one missing there was durable: then the log is damaged, not ended. One of a later life than the
    /// newest superblock's is behind a superblock that was durable before it, and has been lost since.
    async fn is_followed(&mut self, pos: u64, seq: u64) -> Result<bool, StoreError> {
        let align = u64::from(self.superblock.log_align);
        let mut at = pos;
        // The missing batch is at most so long, and may have been at the start of the ring.
        let room = self.batch_max();
        while at < pos + room {
            let found = match self.valid_at(at).await {
                // Nobody needs what is there: that one batch is, is told by any.
                Err(StoreError::Unreadable { .. }) => None,
                found => found?,
            };
            if let Some((header, _)) = found {
                let later = header.seq > seq && header.durable >= seq;
                let of_this_life = header.epoch == self.superblock.epoch;
                let of_a_later_life = header.epoch > self.superblock.epoch;
                if of_a_later_life || later && header.pos >= pos && of_this_life {
                    return Ok(true);
                }
            }
            at += align;
        }
        Ok(false)
    }
}

/// Applies records to the state.
#[derive(Default)]
struct Replay {
    /// By handle.
    names: Vec<(CollId, GhObject)>,
    slots: Vec<KeySlots>,
    /// Where the object was found last, and its uid.
    places: Vec<(Slot, u64)>,
}

impl Replay {
    fn apply(
        &mut self,
        state: &mut State,
        payload: &[u8],
        device_blocks: u32,
    ) -> Result<(), StoreError> {
        let mut reader = RecReader::new(payload, device_blocks);
        let mut selected = None;
        while let Some(rec) = reader.next()? {
            self.step(state, rec, &mut selected)?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        state: &mut State,
        rec: Rec<'_>,
        selected: &mut Option<usize>,
    ) -> Result<(), Malformed> {
        match rec {
            Rec::Reset => {
                *self = Replay::default();
                *selected = None;
                return Ok(());
            }
            Rec::Select(handle) => {
                *selected = Some(handle as usize).filter(|&h| h < self.names.len());
                return selected.map(|_| ()).ok_or(Malformed);
            }
            Rec::Open(cid, oid) => {
                self.names.push((cid, oid));
                self.slots.push(KeySlots::default());
                self.places.push((0, 0));
                *selected = Some(self.names.len() - 1);
                return Ok(());
            }
            Rec::MakeCollection { cid, bits } | Rec::SetBits { cid, bits } => {
                state.make_collection(cid, bits);
                return Ok(());
            }
            Rec::RemoveCollection { cid } => {
                state.remove_collection(&cid);
                return Ok(());
            }
            Rec::Split { cid, bits, rem, to_cid } => {
                state.split(&cid, bits, rem, &to_cid);
                *self = Replay::default();
                *selected = None;
                return Ok(());
            }
            Rec::Merge { cid, to_cid, bits } => {
                state.merge(&cid, &to_cid, bits);
                *self = Replay::default();
                *selected = None;
                return Ok(());
            }
            _ => {}
        }
        let handle = selected.ok_or(Malformed)?;
        let (cid, oid) = &self.names[handle];
        match rec {
            Rec::Create => return state.create(cid, oid).map(|_| ()).ok_or(Malformed),
            Rec::Remove => {
                state.remove(cid, oid);
                return Ok(());
            }
            Rec::Clone { to } => {
                state.clone_object(cid, oid, &to);
                return Ok(());
            }
            Rec::CloneRange { to, offset, len, to_offset } => {
                in_bounds(offset, len)?;
                in_bounds(to_offset, len)?;
                state.clone_range(cid, oid, &to, (offset, len, to_offset));
                return Ok(());
            }
            Rec::Rename { to_cid, to } => {
                state.rename((cid, oid), (&to_cid, &to));
                self.names[handle] = (to_cid, to);
                return Ok(());
            }
            _ => {}
        }
        // An onode with that uid is still the same object under the same name.
        let place = &mut self.places[handle];
        if state.onode(place.0).is_none_or(|o| o.uid != place.1) {
            let slot = state.lookup(cid, oid).ok_or(Malformed)?;
            *place = (slot, state.onode(slot).map_or(0, |o| o.uid));
        }
        let (onode, space) = state.change(place.0).ok_or(Malformed)?;
        let slots = &mut self.slots[handle];
        match rec {
            Rec::Write { first, ptrs, size } => {
                in_bounds(first.saturating_mul(BLOCK_LEN), 0)?;
                in_bounds(size, 0)?;
                onode.write_blocks(first, &ptrs, space);
                onode.grow_to(size);
            }
            Rec::Patch { offset, data } => {
                let len = data.len() as u64;
                in_bounds(offset, len)?;
                if len == 0 || offset % BLOCK_LEN + len > BLOCK_LEN {
                    return Err(Malformed);
                }
                let source = PatchSource::Bytes(Bytes::copy_from_slice(data));
                onode.patch(offset, source, len as u32, space);
                onode.grow_to(offset + len);
            }
            Rec::Zero { offset, len } => {
                in_bounds(offset, len)?;
                onode.punch(offset..offset + len, space);
                onode.grow_to(offset + len);
            }
            Rec::Truncate { size } => {
                in_bounds(size, 0)?;
                onode.truncate(size, space);
            }
            Rec::SetAttr { name, value } => {
                let value = value.resolve(onode.attrs.get(name))?;
                onode.set_attr(name, &value, space);
            }
            Rec::RmAttr { name } => onode.rm_attr(name, space),
            Rec::RmAttrs => onode.rm_attrs(space),
            Rec::OmapSet { key, value } => {
                let key = key.resolve(slots)?;
                let place = onode.omap_mut().map.find(key.as_slice().into());
                let value = value.resolve(omap_reference(onode, place))?;
                onode.omap_set(place, key.as_slice().into(), &value, space);
            }
            Rec::OmapRm { key } => {
                let key = key.resolve(slots)?;
                onode.omap_rm(key.as_slice().into(), space);
            }
            Rec::OmapRmRange { first, last } => onode.omap_rm_range(first, last, space),
            Rec::OmapClear => onode.omap_clear(space),
            Rec::OmapHeader { value } => {
                let header = value.resolve(Some(&onode.omap_mut().header))?;
                onode.omap_set_header(header, space);
            }
            Rec::Hint(hint) => {
                onode.set_hint(hint);
                onode.dirty.head = true;
            }
            // All others are handled above.
            _ => return Err(Malformed),
        }
        Ok(())
    }
}

fn in_bounds(offset: u64, len: u64) -> Result<(), Malformed> {
    match offset.checked_add(len) {
        Some(end) if end <= OBJECT_LEN_MAX.next_multiple_of(BLOCK_LEN) => Ok(()),
        _ => Err(Malformed),
    }
}

/// A run's payload must hold at least one byte an entry, or the index would not fit its type.
const _: () = assert!(PAGE_PAYLOAD_LEN < u16::MAX as usize);

/// A pointer is two numbers: memory per TB of data follows from its size.
const _: () = assert!(size_of::<BlockPtr>() == 8);

#[cfg(test)]
mod tests;
