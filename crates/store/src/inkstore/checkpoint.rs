//! Checkpoints: the changed part of the state as a sorted run, so that the log can be cut.
//!
//! A checkpoint begins at a batch boundary and holds the state exactly as it was then, although
//! transactions go on: an object that changes before it is written has its part of the checkpoint
//! put aside first (`State::change`). It is written in slices, never more than
//! [`SLICE_LEN`] at once. Every so often a run holds everything and the older ones go: where there is room for
//! it, since it only saves blocks once it is written.
//!
//! What stands in a run: `entries.rs`.

use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use device::{Piece, WriteCause};
use env::AlignedBuf;

use super::alloc::Extents;
use super::entries::{Entries, INDEX};
use super::format::{
    BLOCK_LEN, Cursor, Extent, Malformed, NO_ENTRY, PAGE_HEADER_LEN, PAGE_PAYLOAD_LEN, PageHeader,
    Put, Superblock, extents, put_extents,
};
use super::log::Unchecked;
use super::state::Key;
use super::{Coming, Core, Inner};
use crate::CollId;

/// Bytes of a run written at once. Small in tests, so that transactions come in between.
const SLICE_LEN: usize = if cfg!(test) { 4096 } else { 256 << 10 };
/// Pause between slices, unless the log is getting full.
const SLICE_PAUSE: Duration = Duration::from_millis(1);
/// Runs beside the base before a new base is written, if there is room for one.
const RUNS_MAX: usize = 8;
/// Every so many blocks the index of a run names the first entry.
const INDEX_BLOCKS: u32 = 16;

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
        let mut manifest = Manifest { id, ..Manifest::default() };
        for _ in 0..c.count()? {
            manifest.colls.push((c.coll()?, c.varint_u32()?));
        }
        for _ in 0..c.count()? {
            let (id, base, index_block) = (c.varint()?, c.u8()? != 0, c.varint_u32()?);
            manifest.runs.push(Run { id, base, index_block, extents: extents(c, device_blocks)? });
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
        let many = runs.len() > RUNS_MAX || deltas > base_blocks / 2 + 256;
        let asked = std::mem::take(&mut self.base_asked);
        let (free, most) = (u64::from(self.alloc.free()), self.base_blocks_max());
        let delta = self.delta_blocks_max();
        // Behind a delta there must be room for a base, and beside it for what comes meanwhile, which would be refused.
        // Where there is none for a base now, what removals leave takes little as a delta, and gives some.
        let meanwhile = 2 * (self.log.len / BLOCK_LEN + delta);
        let is_last = free < delta + meanwhile + self.reserve_blocks();
        let due = asked || many || self.is_mostly_gone() || is_last;
        let base = runs.is_empty() || due && most <= free;
        self.coming = match base {
            true => Coming { base: most, delta: 0 },
            false => Coming { base: 0, delta },
        };
        self.estimate_frozen = self.state.space.metadata_estimate();
        let state = &mut self.state;
        state.freeze(base);
        state.drop_handles();
        self.pending.recs.reset();
        self.checkpointing = true;
        self.unchecked = Unchecked::default();
        self.checkpoints_begun += 1;
        if base {
            self.base_begun = self.checkpoints_begun;
        }
        // Where the batch ends is known when it has been placed.
        let pos = (seq == self.log.durable_seq).then_some(self.log.next_pos);
        self.frozen_at = Some((seq, pos));
        let colls = self.state.colls.iter().map(|(cid, coll)| (*cid, coll.bits)).collect();
        Task { seq, base, colls }
    }
}

/// Writes a checkpoint. When it ends, whether it failed or not, it has let go of the device.
pub(super) async fn run(inner: Rc<Inner>, task: Task) {
    if let Err(e) = write(&inner, task).await {
        inner.core.borrow_mut().checkpointing = false;
        inner.fail(e.into());
    }
}

async fn write(inner: &Inner, task: Task) -> io::Result<()> {
    let (uuid, id) = {
        let core = inner.core.borrow();
        (core.superblock.uuid, core.superblock.checkpoint_id + 1)
    };
    let (mut writer, mut entries) = (RunWriter::new(uuid, id), Entries::default());
    loop {
        entries.clear();
        let next = inner.core.borrow_mut().state.next_frozen(&mut entries);
        let Some(key) = next else { break };
        writer.push(inner, &key, &entries).await?;
    }
    inner.core.borrow_mut().state.frozen = None;
    writer.finish(inner).await?;
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
    let mut manifest = Manifest { id, colls: task.colls, runs, own: Vec::new() };
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
    inner.core.borrow_mut().end_checkpoint(superblock, manifest, task.seq);
    inner.progress.notify_all();
    inner.work.notify_all();
    Ok(())
}

/// Lets others have the device between two slices, unless the log is getting full.
async fn pause(inner: &Inner) {
    let hurry = {
        let log = &inner.core.borrow().log;
        log.used() > log.len / 4 * 3
    };
    if !hurry {
        inner.env.sleep(SLICE_PAUSE).await;
    }
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
        self.coming = Coming::default();
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
    extents.map(Extents::into_vec).ok_or(io::ErrorKind::StorageFull.into())
}

/// Cuts a run's entries into blocks, and writes a slice of them whenever there is one: an object may be long.
struct RunWriter {
    uuid: [u8; 16],
    id: u64,
    /// Whole blocks: so many bytes of a slice.
    ready: AlignedBuf,
    ready_len: usize,
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
            ready: AlignedBuf::scratch(SLICE_LEN),
            ready_len: 0,
            block: vec![0; PAGE_HEADER_LEN],
            first_entry: NO_ENTRY,
            next_index: 0,
            extents: Vec::new(),
            index: Vec::new(),
            index_block: 0,
        }
    }

    async fn push(&mut self, inner: &Inner, key: &Key, entries: &Entries) -> io::Result<()> {
        for entry in entries.iter() {
            let due = self.index.last().is_none_or(|(at, _)| self.next_index >= at + INDEX_BLOCKS);
            if due && self.first_entry == NO_ENTRY {
                self.index.push((self.next_index, key.clone()));
            }
            self.push_entry(inner, entry).await?;
        }
        Ok(())
    }

    async fn push_entry(&mut self, inner: &Inner, entry: &[u8]) -> io::Result<()> {
        if self.first_entry == NO_ENTRY {
            self.first_entry = (self.block.len() - PAGE_HEADER_LEN) as u16;
        }
        let mut len = Vec::with_capacity(4);
        len.put_varint(entry.len() as u64);
        self.append(inner, &len).await?;
        self.append(inner, entry).await
    }

    async fn append(&mut self, inner: &Inner, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = BLOCK_LEN as usize - self.block.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK_LEN as usize {
                self.end_block();
            }
            if self.ready_len == SLICE_LEN {
                self.flush(inner).await?;
                pause(inner).await;
            }
        }
        Ok(())
    }

    fn end_block(&mut self) {
        let used = (self.block.len() - PAGE_HEADER_LEN) as u16;
        let (stream, index, first_entry) = (self.id, self.next_index, self.first_entry);
        let header = PageHeader { stream, index, first_entry, used, next: 0 };
        self.block.resize(BLOCK_LEN as usize, 0);
        header.seal(&self.uuid, &mut self.block);
        self.ready.copy_from_slice_at(self.ready_len, &self.block);
        self.ready_len += self.block.len();
        self.block.truncate(PAGE_HEADER_LEN);
        self.block.fill(0);
        self.first_entry = NO_ENTRY;
        self.next_index += 1;
    }

    /// Appends the index, fills up the last block and writes what is left.
    async fn finish(&mut self, inner: &Inner) -> io::Result<()> {
        self.index_block = self.next_index;
        let mut entry = vec![INDEX];
        entry.put_varint(self.index.len() as u64);
        for (block, (cid, name)) in &self.index {
            entry.put_varint((*block).into());
            entry.put_coll(cid);
            entry.put_object(&name.oid);
        }
        self.push_entry(inner, &entry).await?;
        if self.block.len() > PAGE_HEADER_LEN {
            self.end_block();
        }
        self.flush(inner).await
    }

    /// Writes the whole blocks there are.
    async fn flush(&mut self, inner: &Inner) -> io::Result<()> {
        if self.ready_len == 0 {
            return Ok(());
        }
        let mut ready = std::mem::replace(&mut self.ready, AlignedBuf::scratch(SLICE_LEN));
        ready.truncate(std::mem::take(&mut self.ready_len));
        let mut rest = ready.freeze();
        for extent in allocate(inner, (rest.len() / BLOCK_LEN as usize) as u32)? {
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

#[cfg(test)]
mod tests {
    use device::BlockDevice;
    use device::memory::MemoryFile;
    use env::Env;
    use futures_util::future::join_all;
    use types::hobject::{GhObject, HObject};

    use super::*;
    use crate::inkstore::{InkStore, MkfsOptions};
    use crate::testing::{block_on, numbered, pg};
    use crate::{ObjectStore, StoreError, Transaction};

    async fn made(env: &Env, len: u64, log_len: u64) -> (Rc<MemoryFile>, InkStore) {
        let file = MemoryFile::new(len, 4096);
        let device = BlockDevice::new(file.clone());
        let options = MkfsOptions { uuid: [7; 16], log_len: Some(log_len) };
        InkStore::mkfs(&device, options).await.unwrap();
        let store = InkStore::mount(env.clone(), device).await.unwrap();
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0);
        store.submit(t).await.unwrap();
        (file, store)
    }

    fn long_named(n: u64) -> GhObject {
        let name = format!("{n:02040}");
        GhObject::new(HObject { name: name.into(), pool: 3, ..HObject::default() })
    }

    /// A store full of objects with names of 2 KB had no room for its next checkpoint: names did not count in what is
    /// kept for it. The OSD went down and did not come up again.
    #[test]
    fn names_count_in_what_is_kept_for_a_checkpoint() {
        block_on(|env| async move {
            for data in [vec![], vec![1; 4096]] {
                let (file, store) = made(&env, 8 << 20, 256 << 10).await;
                let fill = async |store: &InkStore, from: u64| {
                    for n in from.. {
                        let mut t = Transaction::new();
                        t.touch(&pg(0), &long_named(n)).write(
                            &pg(0),
                            &long_named(n),
                            0,
                            data.clone(),
                        );
                        match store.submit(t).await {
                            Ok(()) => {}
                            Err(StoreError::NoSpace) => return n,
                            Err(e) => panic!("{n}: {e}"),
                        }
                    }
                    0
                };
                let objects = fill(&store, 0).await;
                assert!(objects > 300, "{objects}");
                for _ in 0..3 {
                    store.checkpoint().await.unwrap();
                }
                let device = BlockDevice::new(file.kill_image());
                let store = InkStore::mount(env.clone(), device).await.unwrap();
                for n in 0..objects {
                    let mut t = Transaction::new();
                    t.remove(&pg(0), &long_named(n));
                    store.submit(t).await.unwrap();
                }
                assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
                let again = fill(&store, 0).await;
                assert!(again > objects / 10 * 9, "{objects} {again}");
                assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
            }
        });
    }

    /// An object's entries were all made into blocks, and these copied, before the first was written: four times its omap.
    #[test]
    fn a_long_object_is_written_in_slices() {
        block_on(|env| async move {
            let (_, store) = made(&env, 32 << 20, 1 << 20).await;
            let mut t = Transaction::new();
            let keys = (0..2000_u64).map(|n| (format!("{n:020}"), Bytes::from(vec![n as u8; 200])));
            t.touch(&pg(0), &numbered(1)).omap_setkeys(&pg(0), &numbered(1), keys);
            store.submit(t).await.unwrap();
            let counts = || {
                let ledger = store.device().ledger();
                (ledger.writes(), ledger.written(WriteCause::Checkpoint))
            };
            let before = counts();
            store.checkpoint().await.unwrap();
            let (writes, written) = counts();
            let (writes, written) = (writes - before.0, written - before.1);
            assert!(written > 40_000, "{written}");
            assert!(writes * SLICE_LEN as u64 >= written, "{writes} writes of {written} bytes");
        });
    }

    /// A close waited for its own checkpoint only: one that another had asked for meanwhile was still being written
    /// when it had ended, and whoever opened the device next wrote beside it.
    #[test]
    fn a_close_waits_for_whatever_checkpoint_runs() {
        block_on(|env| async move {
            let (file, store) = made(&env, 16 << 20, 1 << 20).await;
            for n in 0..100 {
                let mut t = Transaction::new();
                t.touch(&pg(0), &long_named(n));
                store.submit(t).await.unwrap();
            }
            file.set_delay(3);
            let closed = env.spawn_with_handle(store.close());
            while !store.inner.core.borrow().checkpointing {
                env.sleep(Duration::from_micros(1)).await;
            }
            let compacted = env.spawn_with_handle(store.compact());
            closed.await.unwrap();
            let _ = compacted.await;
            let writes = store.device().ledger().writes();
            assert_eq!(store.inner.core.borrow().checkpoints_begun, 2);
            env.sleep(Duration::from_secs(10)).await;
            assert_eq!(store.device().ledger().writes(), writes);
        });
    }

    /// A base was begun whether there was room for it or not, and a store without stopped for good, though a base only
    /// saves blocks: removals would have gone on.
    #[test]
    fn without_room_for_a_base_there_are_deltas() {
        block_on(|env| async move {
            let (_, store) = made(&env, 16 << 20, 256 << 10).await;
            for n in 0..900 {
                let mut t = Transaction::new();
                t.touch(&pg(0), &long_named(n));
                store.submit(t).await.unwrap();
            }
            let runs = || store.inner.core.borrow().manifest.runs.len();
            while runs() < RUNS_MAX {
                let mut t = Transaction::new();
                t.setattr(&pg(0), &long_named(0), "n", runs().to_le_bytes().to_vec());
                store.submit(t).await.unwrap();
                store.checkpoint().await.unwrap();
            }
            // All but little of the room is gone.
            let taken = {
                let core = &mut *store.inner.core.borrow_mut();
                let count = core.alloc.free() - 300;
                core.alloc.allocate(count).unwrap()
            };
            let count = async |n: u64| {
                let mut t = Transaction::new();
                t.remove(&pg(0), &long_named(n));
                store.submit(t).await.unwrap();
                store.checkpoint().await.unwrap();
                runs()
            };
            let mut most = 0;
            for n in 0..20 {
                most = most.max(count(n).await);
            }
            assert!(most > RUNS_MAX + 10, "{most}");
            taken.into_iter().for_each(|e| store.inner.core.borrow_mut().alloc.release_extent(e));
            assert_eq!(count(20).await, 1);
            assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
        });
    }

    /// What a base under way is to write may be gone by now; its blocks are kept for it all the same.
    #[test]
    fn what_comes_beside_a_base_leaves_its_blocks() {
        block_on(|env| async move {
            let (file, store) = made(&env, 24 << 20, 256 << 10).await;
            for n in 0..60 {
                let mut t = Transaction::new();
                t.touch(&pg(0), &numbered(1)).omap_setkeys(
                    &pg(0),
                    &numbered(1),
                    [(format!("{n}"), Bytes::from(vec![n as u8; 100_000]))],
                );
                store.submit(t).await.unwrap();
            }
            file.set_delay(3);
            let compacted = env.spawn_with_handle(store.compact());
            while store.inner.core.borrow().coming.base == 0 {
                env.sleep(Duration::from_micros(1)).await;
            }
            let mut t = Transaction::new();
            t.remove(&pg(0), &numbered(1));
            store.submit(t).await.unwrap();
            // Handed over at once: all are admitted, or not, while it is being written.
            let written: Vec<_> = (2..30)
                .map(|n| {
                    let mut t = Transaction::new();
                    t.write(&pg(0), &numbered(n), 0, vec![1; 1 << 20]);
                    store.submit(t)
                })
                .collect();
            assert!(store.inner.core.borrow().coming.base > 0, "it is over");
            let written = join_all(written).await;
            assert_eq!(written.last(), Some(&Err(StoreError::NoSpace)));
            let fitted = written.iter().filter(|answer| answer.is_ok()).count();
            assert!(fitted > 1, "{fitted}");
            compacted.await.unwrap();
            store.checkpoint().await.unwrap();
        });
    }

    /// A base is begun while there is room for one, but not each time only because objects are small and many.
    #[test]
    fn small_objects_are_not_written_with_every_checkpoint() {
        block_on(|env| async move {
            let (_, store) = made(&env, 64 << 20, 1 << 20).await;
            let mut n = 0;
            while store.statfs().await.unwrap().available > 16 << 20 {
                let mut t = Transaction::new();
                t.write(&pg(0), &numbered(n), 0, vec![1; 4096]);
                t.setattr(&pg(0), &numbered(n), "_", vec![n as u8; 400]);
                store.submit(t).await.unwrap();
                n += 1;
            }
            let runs = store.inner.core.borrow().manifest_blocks * BLOCK_LEN;
            let written = store.device().ledger().written(WriteCause::Checkpoint);
            assert!(runs > 2 << 20 && written < 5 * runs, "{n} objects: {written} for {runs}");
        });
    }

    /// A compaction wrote a run more beside those that there were: what was asked to be written in its shortest form took
    /// more than before.
    #[test]
    fn a_compaction_leaves_one_run() {
        block_on(|env| async move {
            let (_, store) = made(&env, 16 << 20, 1 << 20).await;
            for n in 0..300 {
                let mut t = Transaction::new();
                t.touch(&pg(0), &long_named(n));
                store.submit(t).await.unwrap();
            }
            let runs = || store.inner.core.borrow().manifest.runs.len();
            let change = async |n: u64| {
                let mut t = Transaction::new();
                t.setattr(&pg(0), &long_named(n), "n", n.to_le_bytes().to_vec());
                store.submit(t).await.unwrap();
            };
            for n in 0..3 {
                change(n).await;
                store.checkpoint().await.unwrap();
            }
            assert!(runs() > 2, "{}", runs());
            store.compact().await.unwrap();
            assert_eq!(runs(), 1);
            change(3).await;
            store.checkpoint().await.unwrap();
            assert_eq!(runs(), 2, "it was asked for once");
            let taken = {
                let core = &mut *store.inner.core.borrow_mut();
                let count = core.alloc.free() - 100;
                core.alloc.allocate(count).unwrap()
            };
            assert_eq!(store.compact().await, Err(StoreError::NoSpace));
            taken.into_iter().for_each(|e| store.inner.core.borrow_mut().alloc.release_extent(e));
            store.compact().await.unwrap();
            assert_eq!(runs(), 1);
            assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
        });
    }
}
