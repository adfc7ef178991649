//! Checkpoints: the changed part of the state as a sorted run, so that the log can be cut.
//!
//! A checkpoint begins at a batch boundary and holds the state exactly as it was then, although
//! transactions go on: an object that changes before it is written has its part of the checkpoint
//! put aside first (`State::change`). It is written in slices, never more than
//! [`SLICE_LEN`] at once. Every so often a run holds everything and the older ones go.
//!
//! An entry belongs to one object and one of its parts; parts are sorted: head, chunks, omap keys.

use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bstr::{BStr, BString};
use bytes::Bytes;
use device::{Piece, WriteCause};
use env::AlignedBuf;
use smallvec::SmallVec;
use types::hobject::GhObject;

use super::format::{
    BLOCK_LEN, Cursor, Extent, Malformed, NO_ENTRY, PAGE_HEADER_LEN, PAGE_PAYLOAD_LEN, PageHeader,
    Put, Superblock, extents, put_extents,
};
use super::changed_keys::ChangedKeys;
use super::kept::Kept;
use super::key_map::{KeyMap, Looked};
use super::onode::{AllocHint, BlockPtr, CHUNK_BLOCKS, Chunk, Dirty, Onode, Patch, PatchSource};
use super::rec::{Value, parse_runs, put_runs};
use super::state::{Key, State};
use super::{Core, Inner};
use crate::{CollId, StoreError};

/// Bytes of a run written at once. Small in tests, so that transactions come in between.
const SLICE_LEN: usize = if cfg!(test) { 4096 } else { 256 << 10 };
/// Pause between slices, unless the log is getting full.
const SLICE_PAUSE: Duration = Duration::from_millis(1);
/// About how many bytes of chunks or omap keys one entry holds.
const ENTRY_LEN: usize = 2048;
/// An omap is copied whole for a checkpoint that needs at least this part of it: one in so many
/// chunks.
const OMAP_SHARE: usize = 4;
/// Runs beside the base before a new base is written.
const RUNS_MAX: usize = 8;
/// Every so many blocks the index of a run names the first entry.
const INDEX_BLOCKS: u32 = 16;

const DEAD: u8 = 1;
const HEAD: u8 = 2;
const CHUNKS: u8 = 3;
const OMAP: u8 = 4;
const INDEX: u8 = 5;
const OMAP_RANGES: u8 = 6;

const FRESH: u8 = 1;
const OMAP_CLEARED: u8 = 2;

/// A sorted run on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) id: u64,
    /// Holds everything: older runs do not count.
    pub(super) base: bool,
    pub(super) extents: Vec<Extent>,
    /// Block of the run in which its index begins.
    pub(super) index_block: u32,
}

impl Run {
    pub(super) fn blocks(&self) -> u64 {
        self.extents.iter().map(|e| u64::from(e.len)).sum()
    }
}

/// What a checkpoint consists of.
#[derive(Debug, Clone, Default)]
pub(super) struct Manifest {
    pub(super) id: u64,
    pub(super) colls: Vec<(CollId, u32)>,
    /// The oldest, a base, first.
    pub(super) runs: Vec<Run>,
    /// Where the manifest itself is.
    pub(super) own: Vec<Extent>,
}

impl Manifest {
    /// Blocks of the manifest and all runs.
    pub(super) fn blocks(&self) -> u64 {
        let own: u64 = self.own.iter().map(|e| u64::from(e.len)).sum();
        own + self.runs.iter().map(Run::blocks).sum::<u64>()
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_varint(self.colls.len() as u64);
        for (cid, bits) in &self.colls {
            out.put_coll(cid);
            out.put_varint((*bits).into());
        }
        out.put_varint(self.runs.len() as u64);
        for run in &self.runs {
            out.put_varint(run.id);
            out.put_u8(run.base.into());
            out.put_varint(run.index_block.into());
            put_extents(&mut out, &run.extents);
        }
        out
    }

    pub(super) fn decode(bytes: &[u8], id: u64, device_blocks: u32) -> Result<Manifest, Malformed> {
        let c = &mut Cursor::new(bytes);
        let mut manifest = Manifest {
            id,
            ..Manifest::default()
        };
        for _ in 0..c.count()? {
            manifest.colls.push((c.coll()?, c.varint_u32()?));
        }
        for _ in 0..c.count()? {
            let (id, base, index_block) = (c.varint()?, c.u8()? != 0, c.varint_u32()?);
            manifest.runs.push(Run {
                id,
                base,
                index_block,
                extents: extents(c, device_blocks)?,
            });
        }
        Ok(manifest)
    }
}

/// A checkpoint that has begun.
#[derive(Debug)]
pub(super) struct Task {
    /// The last batch it contains.
    seq: u64,
    base: bool,
    colls: Vec<(CollId, u32)>,
}

impl Core {
    /// Freezes the state. `seq` is the last batch that is in it; the next one is still empty.
    pub(super) fn begin_checkpoint(&mut self, seq: u64) -> Task {
        let runs = &self.manifest.runs;
        let deltas: u64 = runs.iter().skip(1).map(Run::blocks).sum();
        let base_blocks = runs.first().map_or(0, Run::blocks);
        let base = runs.is_empty() || runs.len() > RUNS_MAX || deltas > base_blocks / 2 + 256;
        let state = &mut self.state;
        state.freeze(base);
        state.drop_handles();
        self.pending.recs.reset();
        self.checkpointing = true;
        self.unchecked = 0;
        self.checkpoints_begun += 1;
        // Where the batch ends is known when it has been placed.
        let pos = (seq == self.log.durable_seq).then_some(self.log.next_pos);
        self.frozen_at = Some((seq, pos));
        let colls = self
            .state
            .colls
            .iter()
            .map(|(cid, coll)| (*cid, coll.bits))
            .collect();
        Task { seq, base, colls }
    }
}

/// Writes a checkpoint.
pub(super) async fn run(inner: Rc<Inner>, task: Task) {
    if let Err(e) = write(&inner, task).await {
        inner.fail(e.kind());
    }
}

async fn write(inner: &Inner, task: Task) -> io::Result<()> {
    let (uuid, id) = {
        let core = inner.core.borrow();
        (core.superblock.uuid, core.superblock.checkpoint_id + 1)
    };
    let (mut writer, mut entries) = (RunWriter::new(uuid, id), Entries::default());
    loop {
        let more = {
            let state = &mut inner.core.borrow_mut().state;
            let mut more = true;
            while more && writer.ready_len() < SLICE_LEN {
                entries.clear();
                match state.next_frozen(&mut entries) {
                    Some(key) => writer.push(&key, &entries),
                    None => more = false,
                }
            }
            more
        };
        if !more {
            break;
        }
        writer.flush(inner).await?;
        let hurry = {
            let log = &inner.core.borrow().log;
            log.used() > log.len / 4 * 3
        };
        if !hurry {
            inner.env.sleep(SLICE_PAUSE).await;
        }
    }
    inner.core.borrow_mut().state.frozen = None;
    writer.finish();
    writer.flush(inner).await?;
    let run = Run {
        id,
        base: task.base,
        index_block: writer.index_block,
        extents: std::mem::take(&mut writer.extents),
    };
    let mut runs = match task.base {
        true => Vec::new(),
        false => inner.core.borrow().manifest.runs.clone(),
    };
    runs.push(run);
    let mut manifest = Manifest {
        id,
        colls: task.colls,
        runs,
        own: Vec::new(),
    };
    write_manifest(inner, &uuid, &mut manifest).await?;
    let pos = await_batch(inner, task.seq).await?;
    inner.device.sync().await?;
    let superblock = {
        let core = inner.core.borrow();
        Superblock {
            seq: core.superblock.seq + 1,
            replay_seq: task.seq + 1,
            replay_pos: pos,
            checkpoint_id: id,
            manifest_block: manifest.own.first().map_or(0, |e| e.start.into()),
            ..core.superblock.clone()
        }
    };
    write_superblock(&inner.device, &superblock).await?;
    inner
        .core
        .borrow_mut()
        .end_checkpoint(superblock, manifest, task.seq);
    inner.progress.notify_all();
    inner.work.notify_all();
    Ok(())
}

/// Waits until the last batch of the checkpoint is durable; where it ends.
async fn await_batch(inner: &Inner, seq: u64) -> io::Result<u64> {
    let reached = || {
        let core = inner.core.borrow();
        core.failed.is_some() || core.log.durable_seq >= seq
    };
    inner.progress.until(reached).await;
    let core = inner.core.borrow();
    match core.frozen_at {
        Some((_, Some(pos))) if core.log.durable_seq >= seq => Ok(pos),
        _ => Err(io::ErrorKind::BrokenPipe.into()),
    }
}

/// Writes both copies and makes them durable.
pub(super) async fn write_superblock(
    device: &device::BlockDevice,
    superblock: &Superblock,
) -> io::Result<()> {
    let one = superblock.encode();
    let both = AlignedBuf::copy_from_slice(&[&one[..], &one[..]].concat());
    let piece = Piece::new(both.freeze(), WriteCause::Superblock);
    device.write(superblock.offset(), vec![piece]).await?;
    device.sync().await
}

impl Core {
    fn end_checkpoint(&mut self, superblock: Superblock, manifest: Manifest, seq: u64) {
        self.manifest_blocks = manifest.blocks();
        let old = std::mem::replace(&mut self.manifest, manifest);
        let kept: BTreeSet<u64> = self.manifest.runs.iter().map(|r| r.id).collect();
        let gone = old.runs.into_iter().filter(|r| !kept.contains(&r.id));
        let mut free: Vec<Extent> = gone.flat_map(|r| r.extents).chain(old.own).collect();
        self.spilled.retain(|(batch, extents)| {
            if *batch <= seq {
                free.extend(extents);
            }
            *batch > seq
        });
        free.into_iter().for_each(|e| self.alloc.release_extent(e));
        self.log.tail_pos = superblock.replay_pos;
        self.superblock = superblock;
        self.frozen_at = None;
        self.checkpointing = false;
        self.checkpoints_done += 1;
    }
}

async fn write_manifest(inner: &Inner, uuid: &[u8; 16], manifest: &mut Manifest) -> io::Result<()> {
    let payload = manifest.encode();
    let count = payload.len().div_ceil(PAGE_PAYLOAD_LEN) as u32;
    manifest.own = allocate(inner, count)?;
    let places: Vec<u32> = manifest.own.iter().flat_map(|e| e.start..e.end()).collect();
    let mut pages = payload.chunks(PAGE_PAYLOAD_LEN).enumerate();
    for extent in &manifest.own {
        let mut buf = AlignedBuf::zeroed(extent.len as usize * BLOCK_LEN as usize);
        for block in buf.chunks_exact_mut(BLOCK_LEN as usize) {
            let Some((i, page)) = pages.next() else { break };
            block[PAGE_HEADER_LEN..PAGE_HEADER_LEN + page.len()].copy_from_slice(page);
            let next = places.get(i + 1).map_or(0, |&b| b.into());
            let header = PageHeader {
                stream: manifest.id,
                index: i as u32,
                first_entry: NO_ENTRY,
                used: page.len() as u16,
                next,
            };
            header.seal(uuid, block);
        }
        let piece = Piece::new(buf.freeze(), WriteCause::Checkpoint);
        inner.device.write(extent.offset(), vec![piece]).await?;
    }
    Ok(())
}

/// Blocks for a checkpoint: the reserve is there for them.
fn allocate(inner: &Inner, count: u32) -> io::Result<Vec<Extent>> {
    let extents = inner.core.borrow_mut().alloc.allocate(count);
    extents.ok_or(io::ErrorKind::StorageFull.into())
}

/// Cuts a run's entries into blocks.
struct RunWriter {
    uuid: [u8; 16],
    id: u64,
    /// Whole blocks, their headers not filled in.
    ready: Vec<u8>,
    block: Vec<u8>,
    first_entry: u16,
    next_index: u32,
    extents: Vec<Extent>,
    index: Vec<(u32, Key)>,
    index_block: u32,
}

impl RunWriter {
    fn new(uuid: [u8; 16], id: u64) -> RunWriter {
        RunWriter {
            uuid,
            id,
            ready: Vec::new(),
            block: vec![0; PAGE_HEADER_LEN],
            first_entry: NO_ENTRY,
            next_index: 0,
            extents: Vec::new(),
            index: Vec::new(),
            index_block: 0,
        }
    }

    fn ready_len(&self) -> usize {
        self.ready.len()
    }

    fn push(&mut self, key: &Key, entries: &Entries) {
        for entry in entries.iter() {
            let due = self
                .index
                .last()
                .is_none_or(|(at, _)| self.next_index >= at + INDEX_BLOCKS);
            if due && self.first_entry == NO_ENTRY {
                self.index.push((self.next_index, key.clone()));
            }
            self.push_entry(entry);
        }
    }

    fn push_entry(&mut self, entry: &[u8]) {
        if self.first_entry == NO_ENTRY {
            self.first_entry = (self.block.len() - PAGE_HEADER_LEN) as u16;
        }
        let mut len = Vec::with_capacity(4);
        len.put_varint(entry.len() as u64);
        self.append(&len);
        self.append(entry);
    }

    fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = BLOCK_LEN as usize - self.block.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_LEN as usize {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        let used = (self.block.len() - PAGE_HEADER_LEN) as u16;
        let (stream, index, first_entry) = (self.id, self.next_index, self.first_entry);
        let header = PageHeader {
            stream,
            index,
            first_entry,
            used,
            next: 0,
        };
        self.block.resize(BLOCK_LEN as usize, 0);
        header.seal(&self.uuid, &mut self.block);
        self.ready.extend_from_slice(&self.block);
        self.block.truncate(PAGE_HEADER_LEN);
        self.block.fill(0);
        self.first_entry = NO_ENTRY;
        self.next_index += 1;
    }

    /// Appends the index and fills up the last block.
    fn finish(&mut self) {
        self.index_block = self.next_index;
        let mut entry = vec![INDEX];
        entry.put_varint(self.index.len() as u64);
        for (block, (cid, name)) in &self.index {
            entry.put_varint((*block).into());
            entry.put_coll(cid);
            entry.put_object(&name.oid);
        }
        self.push_entry(&entry);
        if self.block.len() > PAGE_HEADER_LEN {
            self.end_block();
        }
    }

    /// Writes the whole blocks there are.
    async fn flush(&mut self, inner: &Inner) -> io::Result<()> {
        let ready = std::mem::take(&mut self.ready);
        let count = ready.len() / BLOCK_LEN as usize;
        if count == 0 {
            return Ok(());
        }
        let mut rest = AlignedBuf::copy_from_slice(&ready).freeze();
        for extent in allocate(inner, count as u32)? {
            let bytes: Bytes = rest.split_to(extent.len as usize * BLOCK_LEN as usize);
            let piece = Piece::new(bytes, WriteCause::Checkpoint);
            inner.device.write(extent.offset(), vec![piece]).await?;
            match self.extents.last_mut() {
                Some(last) if last.end() == extent.start => last.len += extent.len,
                _ => self.extents.push(extent),
            }
        }
        Ok(())
    }
}

/// Entries of a run, one behind the other.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Entries {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Entries {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The one that has not ended.
    fn open_len(&self) -> usize {
        self.bytes.len() - self.ends.last().unwrap_or(&0)
    }

    /// Begins one of an object; its contents are put behind.
    fn begin(&mut self, kind: u8, cid: &CollId, oid: &GhObject) -> &mut Vec<u8> {
        self.bytes.put_u8(kind);
        self.bytes.put_coll(cid);
        self.bytes.put_object(oid);
        &mut self.bytes
    }

    /// Ends what has been begun, if anything.
    fn end(&mut self) {
        if self.open_len() > 0 {
            self.ends.push(self.bytes.len());
        }
    }

    fn end_if_long(&mut self) {
        if self.open_len() >= ENTRY_LEN {
            self.end();
        }
    }

    /// The one of an object that is gone.
    pub(super) fn put_dead(&mut self, cid: &CollId, oid: &GhObject) {
        self.begin(DEAD, cid, oid);
        self.end();
    }

    /// Puts those of `other` behind.
    fn append(&mut self, other: &Entries) {
        let before = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| before + end));
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(&0).chain(&self.ends);
        begins.zip(&self.ends).map(|(&begin, &end)| &self.bytes[begin..end])
    }
}

/// What a checkpoint needs of an object that is about to change.
///
/// A PG's own object has thousands of keys, packed in memory, and all PGs' objects are changed as
/// soon as a checkpoint has begun: what they hold is copied as it is, and becomes entries when the
/// checkpoint comes to it.
///
/// Of its chunks the object itself keeps what changes ([`Kept`]), as long as it is there.
#[derive(Debug, Default)]
pub(super) struct Captured {
    head: Entries,
    chunks: Entries,
    /// Those of the omap, unless it is copied.
    omap_entries: Entries,
    omap: Option<OmapCopy>,
}

#[derive(Debug)]
struct OmapCopy {
    cid: CollId,
    oid: Rc<GhObject>,
    map: KeyMap,
    /// The keys that count, if not all do.
    keys: Option<ChangedKeys>,
}

impl Captured {
    pub(super) fn of(onode: &mut Onode, mut dirty: Dirty) -> Captured {
        let keys = std::mem::take(&mut dirty.omap);
        let mut captured = Captured::default();
        put_head(&mut captured.head, onode, &dirty);
        let needed = dirty.chunks_of(onode);
        if !needed.is_empty() {
            onode.kept = Some(Box::new(Kept::new(needed)));
        }
        let map = &onode.omap.map;
        if !dirty.fresh && map.chunks() > OMAP_SHARE * map.chunks_with(&keys) {
            put_omap(&mut captured.omap_entries, &onode.cid, &onode.oid, map, Some(&keys));
            return captured;
        }
        captured.omap = Some(OmapCopy {
            cid: onode.cid,
            oid: onode.oid.clone(),
            map: map.clone(),
            keys: (!dirty.fresh).then_some(keys),
        });
        captured
    }

    /// The object is about to go: what it keeps of its chunks is put here.
    pub(super) fn take_chunks(&mut self, onode: &mut Onode) {
        put_kept(&mut self.chunks, onode);
    }

    /// Its entries; `live` is the object of that name now, if there is one.
    pub(super) fn put(self, entries: &mut Entries, live: Option<&mut Onode>) {
        entries.append(&self.head);
        entries.append(&self.chunks);
        if let Some(onode) = live {
            put_kept(entries, onode);
        }
        entries.append(&self.omap_entries);
        if let Some(OmapCopy { cid, oid, map, keys }) = self.omap {
            put_omap(entries, &cid, &oid, &map, keys.as_ref());
        }
    }
}

/// The entries for the parts of an object that `dirty` names.
pub(super) fn put_entries(entries: &mut Entries, onode: &Onode, dirty: &Dirty) {
    put_head(entries, onode, dirty);
    put_chunks(entries, onode, Kept::new(dirty.chunks_of(onode)));
    let keys = (!dirty.fresh).then_some(&dirty.omap);
    put_omap(entries, &onode.cid, &onode.oid, &onode.omap.map, keys);
}

/// Those of the chunks that an object keeps for a checkpoint, which it need not any more.
fn put_kept(entries: &mut Entries, onode: &mut Onode) {
    if let Some(kept) = onode.kept.take() {
        put_chunks(entries, onode, *kept);
    }
}

fn put_chunks(entries: &mut Entries, onode: &Onode, kept: Kept) {
    kept.for_each(onode.chunks(), |number, chunk| {
        if entries.open_len() == 0 {
            entries.begin(CHUNKS, &onode.cid, &onode.oid);
        }
        put_chunk(&mut entries.bytes, number, chunk);
        entries.end_if_long();
    });
    entries.end();
}

/// Those of omap keys: of `keys`, or of all.
fn put_omap(
    entries: &mut Entries,
    cid: &CollId,
    oid: &GhObject,
    map: &KeyMap,
    keys: Option<&ChangedKeys>,
) {
    for (first, end) in keys.iter().flat_map(|keys| keys.iter()) {
        let Some(end) = end else { continue };
        if entries.open_len() == 0 {
            entries.begin(OMAP_RANGES, cid, oid);
        }
        entries.bytes.put_blob(first);
        entries.bytes.put_blob(end);
        entries.end_if_long();
    }
    entries.end();
    let (mut last_key, mut last_value) = (Vec::new(), Vec::new());
    let mut put = |key: &[u8], value: Option<&Bytes>| {
        if entries.open_len() == 0 {
            entries.begin(OMAP, cid, oid);
            (last_key.clear(), last_value.clear());
        }
        put_key(&mut entries.bytes, key, value, (&last_key, &last_value));
        (last_key.clear(), last_value.clear());
        last_key.extend_from_slice(key);
        last_value.extend_from_slice(value.map_or(b"", |v| v));
        entries.end_if_long();
    };
    match keys {
        None => map.iter().for_each(|(key, value)| put(&key, Some(&value))),
        Some(keys) => {
            let mut looked = Looked::default();
            for (first, end) in keys.iter() {
                let Some(end) = end else {
                    put(first, map.get_next(first, &mut looked));
                    continue;
                };
                let within = map.from(first, false).take_while(|(key, _)| BStr::new(&**key) < end);
                within.for_each(|(key, value)| put(&key, Some(&value)));
            }
        }
    }
    entries.end();
}

/// That of all but chunks and omap keys, if any of it changed.
fn put_head(entries: &mut Entries, onode: &Onode, dirty: &Dirty) {
    if !(dirty.fresh || dirty.head || dirty.omap_cleared) {
        return;
    }
    let out = entries.begin(HEAD, &onode.cid, &onode.oid);
    let flags = if dirty.fresh { FRESH } else { 0 };
    out.put_u8(flags | if dirty.omap_cleared { OMAP_CLEARED } else { 0 });
    out.put_varint(onode.size);
    out.put_varint(onode.hint.object_size);
    out.put_varint(onode.hint.write_size);
    out.put_varint(onode.hint.flags.into());
    out.put_blob(&onode.omap.header);
    out.put_varint(onode.attrs.len() as u64);
    for (name, value) in onode.attrs.iter() {
        out.put_blob(name);
        out.put_blob(value);
    }
    out.put_varint(onode.patches().len() as u64);
    for (&at, patch) in onode.patches() {
        out.put_varint(at);
        out.put_varint(patch.len.into());
        match &patch.source {
            PatchSource::Zeros => out.put_u8(0),
            PatchSource::Bytes(bytes) => {
                out.put_u8(1);
                out.put_bytes(bytes);
            }
            PatchSource::Block { ptr, skip } => {
                out.put_u8(2);
                out.put_varint(ptr.block.into());
                out.put_bytes(&ptr.crc.to_le_bytes());
                out.put_varint((*skip).into());
            }
        }
    }
    entries.end();
}

/// Number, which of the blocks are there, their places and checksums.
fn put_chunk(out: &mut Vec<u8>, number: u32, chunk: Option<&Chunk>) {
    out.put_varint(number.into());
    let blocks = chunk.map_or(&[][..], |c| &c[..]);
    let mask = (0..blocks.len())
        .filter(|&i| !blocks[i].is_hole())
        .fold(0_u16, |m, i| m | 1 << i);
    out.put_bytes(&mask.to_le_bytes());
    let there: SmallVec<[BlockPtr; CHUNK_BLOCKS as usize]> = blocks.iter().copied().filter(|p| !p.is_hole()).collect();
    put_runs(out, &there, 0);
}

/// Whether there is a value, and the key as what differs from the one before it in the entry; the
/// value likewise: the entries of a pg log are much alike.
fn put_key(out: &mut Vec<u8>, key: &[u8], value: Option<&Bytes>, last: (&[u8], &[u8])) {
    let shared = last.0.iter().zip(key).take_while(|(a, b)| a == b).count();
    out.put_varint((shared as u64) << 1 | u64::from(value.is_some()));
    out.put_blob(&key[shared..]);
    if let Some(value) = value {
        Value::put(out, value, Some(last.1));
    }
}

/// Applies one entry of a run to the state.
pub(super) fn load_entry(
    state: &mut State,
    entry: &[u8],
    device_blocks: u32,
) -> Result<(), StoreError> {
    let c = &mut Cursor::new(entry);
    let kind = c.u8()?;
    if kind == INDEX {
        return Ok(());
    }
    let (cid, oid) = (c.coll()?, c.object()?);
    if kind == DEAD {
        state.remove(&cid, &oid);
        return Ok(());
    }
    if kind == HEAD {
        let flags = c.clone().u8()?;
        if flags & FRESH != 0 {
            state.remove(&cid, &oid);
            // The manifest lists the collections that are left; others' entries are dead.
            state.make_collection_if_missing(cid);
            state.create(&cid, &oid);
        }
    }
    let slot = state.lookup(&cid, &oid).ok_or(Malformed)?;
    let onode = state.load(slot).ok_or(Malformed)?;
    match kind {
        HEAD => load_head(onode, c, device_blocks)?,
        CHUNKS => {
            while !c.is_empty() {
                load_chunk(onode, c, device_blocks)?;
            }
        }
        OMAP_RANGES => {
            while !c.is_empty() {
                let (first, end) = (c.blob()?, c.blob()?);
                onode.omap.map.remove_range(first.into(), end.into());
            }
        }
        OMAP => {
            let (mut last, mut last_value) = (BString::default(), Bytes::new());
            while !c.is_empty() {
                let tag = c.len()?;
                let mut key = last.get(..tag >> 1).ok_or(Malformed)?.to_vec();
                key.extend_from_slice(c.blob()?);
                let key = BString::from(key);
                if tag & 1 == 0 {
                    onode.omap.map.remove(BStr::new(&key));
                    last_value = Bytes::new();
                } else {
                    last_value = Value::parse(c)?.resolve(Some(&last_value))?;
                    let packs = onode.packs();
                    onode.omap.map.insert(BStr::new(&key), &last_value, packs);
                }
                last = key;
            }
        }
        _ => return Err(Malformed.into()),
    }
    Ok(())
}

fn load_head(onode: &mut Onode, c: &mut Cursor<'_>, device_blocks: u32) -> Result<(), Malformed> {
    if c.u8()? & OMAP_CLEARED != 0 {
        onode.omap.map.clear();
    }
    onode.size = c.varint()?;
    onode.hint = AllocHint {
        object_size: c.varint()?,
        write_size: c.varint()?,
        flags: c.varint_u32()?,
    };
    onode.omap.header = Bytes::copy_from_slice(c.blob()?);
    onode.attrs.clear();
    for _ in 0..c.count()? {
        let name = c.blob()?.into();
        onode.attrs.insert(name, c.blob()?.into());
    }
    onode.clear_patches_uncounted();
    for _ in 0..c.count()? {
        let (at, len) = (c.varint()?, c.varint_u32()?);
        let source = match c.u8()? {
            0 => PatchSource::Zeros,
            1 => PatchSource::Bytes(Bytes::copy_from_slice(c.bytes(len as usize)?)),
            2 => {
                let ptr = BlockPtr {
                    block: c.varint_u32()?,
                    crc: c.u32()?,
                };
                let skip = c.varint_u32()?;
                let fits = skip
                    .checked_add(len)
                    .is_some_and(|n| u64::from(n) <= BLOCK_LEN);
                if ptr.block >= device_blocks || !fits {
                    return Err(Malformed);
                }
                PatchSource::Block { ptr, skip }
            }
            _ => return Err(Malformed),
        };
        if len == 0 || at % BLOCK_LEN + u64::from(len) > BLOCK_LEN {
            return Err(Malformed);
        }
        onode.insert_patch_uncounted(at, Patch { len, source });
    }
    Ok(())
}

fn load_chunk(onode: &mut Onode, c: &mut Cursor<'_>, device_blocks: u32) -> Result<(), Malformed> {
    let number = c.varint_u32()?;
    let mask = c.bytes(2)?;
    let mask = u16::from_le_bytes([mask[0], mask[1]]);
    let (ptrs, _) = parse_runs(c, mask.count_ones() as usize, 0, device_blocks)?;
    let mut ptrs = ptrs.into_iter();
    for i in 0..CHUNK_BLOCKS {
        let there = mask >> i & 1 == 1;
        let ptr = if there {
            ptrs.next().ok_or(Malformed)?
        } else {
            BlockPtr::HOLE
        };
        onode.set_ptr_uncounted(u64::from(number) * CHUNK_BLOCKS + i, ptr);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;
    use types::SpgId;
    use types::hobject::HObject;

    use super::*;

    /// Writes at QD 128 took 100 ms instead of 18 when a checkpoint began: the next write to each PG
    /// made entries of the thousands of keys in its log, on all OSDs at once. They are copied as
    /// they are now, unless few of many are needed; what the checkpoint gets is what was there.
    #[test]
    fn what_changes_behind_the_beginning_is_copied_and_comes_as_it_was() {
        let pg: SpgId = "3.1".parse().unwrap();
        let (cid, oid) = (CollId::Pg(pg), pg.pgmeta());
        for (base, changed, copied) in [(false, 600, true), (true, 0, true), (false, 5, false)] {
            let mut state = State::new();
            state.make_collection(cid, 3);
            let slot = state.create(&cid, &oid).unwrap();
            let set = |state: &mut State, n: usize, value: &'static [u8]| {
                let (onode, space) = state.change(slot).unwrap();
                let key = format!("{n:020}");
                let place = onode.omap.map.find(key.as_str().into());
                onode.omap_set(place, key.as_str().into(), value, space);
            };
            (0..1000).for_each(|n| set(&mut state, n, b"first"));
            state.mark_clean();
            (0..changed).for_each(|n| set(&mut state, n, b"second"));
            let onode = state.onode(slot).unwrap();
            let dirty = Dirty { fresh: base, ..onode.dirty.clone() };
            let (mut expected, mut entries) = (Entries::default(), Entries::default());
            put_entries(&mut expected, onode, &dirty);
            let key = onode.key();
            state.freeze(base);
            set(&mut state, 2000, b"third");
            let (onode, space) = state.change(slot).unwrap();
            onode.omap_rm_range("0".into(), "00000000000000000100".into(), space);
            let captured = &state.frozen.as_ref().unwrap().captured[&key];
            assert_eq!(captured.omap.is_some(), copied, "{changed} keys, base {base}");
            assert_eq!((state.next_frozen(&mut entries), entries), (Some(key), expected));
            assert_eq!(state.next_frozen(&mut Entries::default()), None);
        }
    }

    /// A change of any kind; the same for the same choices and state.
    fn change(state: &mut State, cid: &CollId, choices: &mut Choices, blocks: &mut u32) {
        let names = ["a", "b", "c", "d", "e", "f"].map(|name| {
            GhObject::new(HObject { name: name.into(), pool: 3, snap: u64::MAX - 1, ..HObject::default() })
        });
        let mut any = || &names[choices.below(6) as usize];
        let (oid, other) = (any(), any());
        match choices.below(24) {
            0 => return state.remove(cid, oid),
            1 => return state.rename((cid, oid), (cid, other)),
            2 => return state.clone_object(cid, oid, other),
            3 => return state.clone_range(cid, oid, other, (choices.below(90) << 12, 9 << 12, 4 << 12)),
            _ => {}
        }
        let slot = state.create(cid, oid).unwrap();
        let (onode, space) = state.change(slot).unwrap();
        let block = choices.below(100);
        match choices.below(12) {
            0 => onode.punch(block << 12..(block + 30) << 12, space),
            1 => onode.truncate(block << 12, space),
            2 => onode.omap_clear(space),
            3 => onode.omap_rm(format!("{block:04}").as_str().into(), space),
            4..=6 => {
                let key = format!("{block:04}");
                let place = onode.omap.map.find(key.as_str().into());
                onode.omap_set(place, key.as_str().into(), b"value", space);
            }
            7 => onode.set_attr(b"_", &[block as u8], space),
            _ => {
                *blocks += 2;
                onode.write_blocks(block, &[*blocks, *blocks + 1].map(|block| BlockPtr { block, crc: block }), space);
                onode.grow_to((block + 2) << 12);
            }
        }
    }

    /// Nothing told when an object that had changed while a checkpoint was written, and was renamed
    /// before it was its turn, lost its data: that takes a crash right after that checkpoint.
    #[test]
    fn a_checkpoint_has_the_state_as_it_was_whatever_happens() {
        let cid = CollId::Pg("3.1".parse().unwrap());
        for seed in 0..3000 {
            let (mut choices, mut blocks) = (Choices::new(seed), 10);
            let (base, before, since) = (choices.below(2) == 0, choices.below(60), choices.below(60));
            let frozen = || {
                let (mut choices, mut blocks) = (Choices::new(seed + 1_000_000), 10);
                let mut state = State::new();
                state.make_collection(cid, 3);
                (0..before).for_each(|_| change(&mut state, &cid, &mut choices, &mut blocks));
                state.mark_clean();
                (0..since).for_each(|_| change(&mut state, &cid, &mut choices, &mut blocks));
                state.freeze(base);
                state
            };
            let (mut quiet, mut expected) = (frozen(), Vec::new());
            let mut entries = Entries::default();
            while let Some(key) = quiet.next_frozen(&mut entries) {
                expected.push((key, std::mem::take(&mut entries)));
            }
            let (mut busy, mut found) = (frozen(), Vec::new());
            blocks += 10_000;
            loop {
                (0..choices.below(8)).for_each(|_| change(&mut busy, &cid, &mut choices, &mut blocks));
                let Some(key) = busy.next_frozen(&mut entries) else { break };
                found.push((key, std::mem::take(&mut entries)));
            }
            assert_eq!(found, expected, "seed {seed}");
        }
    }
}
