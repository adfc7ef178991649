//! InkStore: objects on a file or block device, data written once to its final place.
//!
//! Data goes to free 4 KiB blocks and never through a journal first. Metadata lives in memory
//! ([`state`]); each transaction appends a delta of tens of bytes to a log ([`rec`], [`log`]) that is
//! written and synced once for all transactions that wait ([`commit`]), and from time to time the
//! changed part of the state is written as a sorted run ([`checkpoint`]) so that the log can be cut.
//! [`recover`] puts it together at mount. Format, crash argument and media assumptions:
//! `docs/format-inkstore.md`.

mod alloc;
mod attrs;
mod cache;
mod changed_keys;
mod checkpoint;
mod chunk_set;
mod chunk_table;
mod commit;
mod counters;
mod discard;
mod entries;
mod fold;
mod format;
mod fsck;
mod gathering;
mod kept;
mod key_map;
mod log;
mod name;
mod objects;
mod onode;
mod packed;
mod read;
mod rec;
mod recover;
mod space;
mod state;
mod write;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use bstr::{BStr, BString};
use bytes::Bytes;
use device::BlockDevice;
use env::sync::Notify;
use env::{Env, LocalFuture};
use types::bufferlist::BufferList;
use types::hobject::GhObject;

use self::alloc::Allocator;
use self::cache::Cache;
use self::checkpoint::Manifest;
use self::discard::Discards;
use self::fold::Folds;
use self::format::{BLOCK_LEN, Extent, Superblock};
use self::log::{FrozenAt, Log, Pending, Unchecked};
use self::state::{Slot, State};
use crate::Transaction;
use crate::memstore::omap_page;
use crate::{
    CollId, CollIndex, Fsck, FsckOptions, Listing, ObjectIndex, ObjectStat, ObjectStore, OmapPage,
    Statfs, StoreCounter, StoreError,
};

pub use self::fsck::FsckReport;
pub use self::recover::MkfsOptions;

/// A store on a device. Dropping it without [`ObjectStore::close`] is a crash as far as the device
/// is concerned: acknowledged transactions are there at the next mount, nothing else is promised.
pub struct InkStore {
    inner: Rc<Inner>,
}

struct Inner {
    env: Env,
    device: BlockDevice,
    core: RefCell<Core>,
    /// There is something to commit.
    work: Notify,
    /// A batch or a checkpoint is done, or some blocks are folded.
    progress: Notify,
    /// There is something to fold.
    folding: Notify,
    /// There is something to discard.
    discarding: Notify,
}

struct Core {
    superblock: Superblock,
    state: State,
    alloc: Allocator,
    device_blocks: u32,
    log: Log,
    pending: Pending,
    /// The object of the operation before, of the transaction being applied, which the log has
    /// selected. Operations that move or remove objects forget it.
    resolved: Option<((CollIndex, ObjectIndex), Slot)>,
    /// Where the transaction's check found its objects, until one of them moves.
    found: write::Found,
    /// Blocks written but not yet durable, by first block: reads take them from here.
    inflight: BTreeMap<u32, Bytes>,
    cache: RefCell<Cache>,
    /// The checkpoint on the device, and how many blocks it takes.
    manifest: Manifest,
    manifest_blocks: u64,
    /// Blocks of payloads that the log refers to, with their batch.
    spilled: Vec<(u64, Vec<Extent>)>,
    checkpointing: bool,
    coming: Coming,
    /// Since the last checkpoint began.
    unchecked: Unchecked,
    /// The last batch of the checkpoint under way, and where it ends once that is known.
    frozen_at: FrozenAt,
    /// [`space::Space::metadata_estimate`] when the last checkpoint began; 0 if none did since the mount.
    estimate_frozen: u64,
    /// Checkpoints asked for and begun, to be compared.
    checkpoint_asked: u64,
    checkpoints_begun: u64,
    /// Whether the next is to hold everything, and the last begun that does.
    base_asked: bool,
    base_begun: u64,
    checkpoints_done: u64,
    /// Reads under way, and blocks freed while earlier ones may still read them.
    readers: BTreeSet<u64>,
    next_reader: u64,
    quarantine: VecDeque<(u64, Vec<u32>)>,
    discards: Discards,
    folds: Folds,
    failed: Option<StoreError>,
    stops_when_full: bool,
    closing: bool,
    committing: bool,
    folding: bool,
}

impl fmt::Debug for InkStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "InkStore on {:?}", self.inner.device)
    }
}

fn ready<T: 'static>(value: T) -> LocalFuture<T> {
    Box::pin(std::future::ready(value))
}

impl InkStore {
    /// Makes an empty store; what the device held is lost.
    pub async fn mkfs(device: &BlockDevice, options: MkfsOptions) -> Result<(), StoreError> {
        recover::mkfs(device, options).await
    }

    /// Opens the store on a device.
    pub fn mount(env: Env, device: BlockDevice) -> LocalFuture<Result<InkStore, StoreError>> {
        Box::pin(async move {
            let mut core = recover::mount(&device).await?;
            // There may be no room for one more batch: so before any.
            let durable = core.log.durable_seq;
            let checkpoint = core.wants_checkpoint().then(|| core.begin_checkpoint(durable));
            let inner = Rc::new(Inner {
                env: env.clone(),
                device,
                core: RefCell::new(core),
                work: Notify::default(),
                progress: Notify::default(),
                folding: Notify::default(),
                discarding: Notify::default(),
            });
            if let Some(task) = checkpoint {
                env.go(checkpoint::run(inner.clone(), task));
            }
            env.go(inner.clone().commit_loop());
            env.go(inner.clone().fold_loop());
            env.go(inner.clone().discard_loop());
            Ok(InkStore { inner })
        })
    }

    /// The device with its ledger.
    pub fn device(&self) -> &BlockDevice {
        &self.inner.device
    }

    /// Writes a checkpoint now; completes when it is durable.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        self.inner.checkpoint(false).await
    }

    /// Keeps at most so many bytes of blocks that were read (0 unless told), and fetches some in front
    /// of readers that go through an object.
    pub fn set_cache_size(&self, bytes: u64) {
        self.inner.core.borrow().cache.borrow_mut().set_max(bytes);
    }

    /// Bytes of blocks that were read and are kept.
    pub fn cached(&self) -> u64 {
        self.inner.core.borrow().cache.borrow().len()
    }

    /// The device is told of runs of so many bytes and more that have become free (of none unless told).
    pub fn set_discard(&self, shortest: Option<u64>) {
        self.inner.core.borrow_mut().discards.set(shortest);
    }

    /// Compares all structures with each other, and with `read_data` every data block with its
    /// checksum. Waits for what is under way; meant for a store at rest.
    pub async fn fsck(&self, read_data: bool) -> Result<FsckReport, StoreError> {
        fsck::fsck(&self.inner, read_data).await
    }

    fn with<T: 'static>(
        &self,
        f: impl FnOnce(&mut Core) -> Result<T, StoreError>,
    ) -> LocalFuture<Result<T, StoreError>> {
        let mut core = self.inner.core.borrow_mut();
        ready(core.readable().and_then(|()| f(&mut core)))
    }
}

impl Drop for InkStore {
    fn drop(&mut self) {
        let mut core = self.inner.core.borrow_mut();
        core.closing = true;
        core.folds.clear();
        drop(core);
        self.inner.work.notify_all();
        self.inner.folding.notify_all();
        self.inner.discarding.notify_all();
    }
}

impl Core {
    fn readable(&self) -> Result<(), StoreError> {
        if self.closing { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Puts what has lost its last reference down to be freed when that is durable.
    fn free_later(&mut self) {
        for block in self.state.space.freed.drain(..) {
            let own = self.inflight.range(..=block).next_back().is_some_and(|(&first, bytes)| {
                u64::from(block - first) * BLOCK_LEN < bytes.len() as u64
            });
            let list = if own { &mut self.pending.freed_again } else { &mut self.pending.freed };
            list.push(block);
        }
    }

    /// Frees blocks whose last reference is durably gone, when no read can be using them.
    fn free_blocks(&mut self, blocks: Vec<u32>) {
        if blocks.is_empty() {
            return;
        }
        if self.readers.is_empty() {
            self.release(blocks);
        } else {
            self.quarantine.push_back((self.next_reader, blocks));
        }
    }

    fn begin_read(&mut self) -> u64 {
        let id = self.next_reader;
        self.next_reader += 1;
        self.readers.insert(id);
        id
    }

    fn end_read(&mut self, id: u64) {
        self.readers.remove(&id);
        let oldest = self.readers.first().copied().unwrap_or(u64::MAX);
        while self.quarantine.front().is_some_and(|(since, _)| *since <= oldest) {
            let Some((_, blocks)) = self.quarantine.pop_front() else { break };
            self.release(blocks);
        }
    }
}

impl Inner {
    /// Writes a checkpoint; with `base` one run that holds everything, or `NoSpace` if there was no room for it.
    async fn checkpoint(&self, base: bool) -> Result<(), StoreError> {
        let target = {
            let mut core = self.core.borrow_mut();
            if let Some(e) = &core.failed {
                return Err(e.clone());
            }
            // One that is running may have begun before the last transaction.
            core.checkpoint_asked = core.checkpoints_begun + 1;
            core.base_asked |= base;
            core.checkpoint_asked
        };
        self.work.notify_all();
        self.progress
            .until(|| {
                let core = self.core.borrow();
                core.checkpoints_done >= target || core.failed.is_some() || !core.committing
            })
            .await;
        let core = self.core.borrow();
        match &core.failed {
            _ if core.checkpoints_done >= target => match base && core.base_begun < target {
                true => Err(StoreError::NoSpace),
                false => Ok(()),
            },
            Some(e) => Err(e.clone()),
            None => Err(StoreError::Closed),
        }
    }
}

impl ObjectStore for InkStore {
    fn submit(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>> {
        self.inner.submit(&t)
    }

    fn collections(&self) -> LocalFuture<Result<Vec<CollId>, StoreError>> {
        self.with(|core| Ok(core.state.colls.keys().copied().collect()))
    }

    fn collection_bits(&self, cid: &CollId) -> LocalFuture<Result<u32, StoreError>> {
        self.with(|core| match core.state.colls.get(cid) {
            Some(coll) => Ok(coll.bits),
            None => Err(StoreError::NoCollection(*cid)),
        })
    }

    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> LocalFuture<Result<Listing, StoreError>> {
        self.with(|core| {
            let coll = core.state.colls.get_mut(cid).ok_or(StoreError::NoCollection(*cid))?;
            if start >= end {
                return Ok(Listing { objects: Vec::new(), next: end.clone() });
            }
            let mut range = coll.range(start, end);
            let objects: Vec<_> = range.by_ref().take(max).cloned().collect();
            Ok(Listing { objects, next: range.next().unwrap_or(end).clone() })
        })
    }

    fn stat(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<ObjectStat, StoreError>> {
        self.with(|core| Ok(ObjectStat { size: core.state.find(cid, oid)?.size }))
    }

    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<BufferList, StoreError>> {
        self.inner.read(cid, oid, offset, len, true)
    }

    fn read_device(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<BufferList, StoreError>> {
        self.inner.read(cid, oid, offset, len, false)
    }

    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<Vec<Range<u64>>, StoreError>> {
        self.with(|core| Ok(read::extents(core.state.find(cid, oid)?, offset, len)))
    }

    fn getattr(
        &self,
        cid: &CollId,
        oid: &GhObject,
        name: &[u8],
    ) -> LocalFuture<Result<Bytes, StoreError>> {
        self.with(|core| {
            let attrs = &core.state.find(cid, oid)?.attrs;
            let value = attrs.get(name).ok_or(StoreError::NoAttr)?;
            Ok(Bytes::copy_from_slice(value))
        })
    }

    fn getattrs(
        &self,
        cid: &CollId,
        oid: &GhObject,
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>> {
        self.with(|core| {
            let attrs = &core.state.find(cid, oid)?.attrs;
            let pairs = attrs.iter().map(|(k, v)| (BString::from(k), Bytes::copy_from_slice(v)));
            Ok(pairs.collect())
        })
    }

    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<Bytes, StoreError>> {
        self.with(|core| {
            let omap = core.state.find(cid, oid)?.omap();
            Ok(omap.map_or(Bytes::new(), |omap| omap.header.clone()))
        })
    }

    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>> {
        self.with(|core| {
            let Some(omap) = core.state.find(cid, oid)?.omap() else { return Ok(Vec::new()) };
            Ok(keys
                .iter()
                .filter_map(|k| Some((k.clone(), omap.map.get(BStr::new(k))?.into_owned())))
                .collect())
        })
    }

    fn omap_range(
        &self,
        cid: &CollId,
        oid: &GhObject,
        from: &[u8],
        after: bool,
        max_entries: usize,
        max_bytes: usize,
    ) -> LocalFuture<Result<OmapPage, StoreError>> {
        self.with(|core| {
            let omap = core.state.find(cid, oid)?.omap();
            let entries = omap.into_iter().flat_map(|omap| omap.map.from(BStr::new(from), after));
            Ok(omap_page(entries, max_entries, max_bytes))
        })
    }

    fn statfs(&self) -> LocalFuture<Result<Statfs, StoreError>> {
        self.with(|core| match core.failed {
            Some(_) => Err(StoreError::Latched),
            None => Ok(core.statfs()),
        })
    }

    fn stop_when_full(&self) {
        self.inner.core.borrow_mut().stops_when_full = true;
    }

    fn counters(&self) -> Vec<StoreCounter> {
        self.inner.counters()
    }

    /// Metadata is checked against itself, and data against its checksums; nothing can be repaired
    /// that a mount does not (free space is found anew by each).
    fn fsck(&self, options: FsckOptions) -> LocalFuture<Result<Fsck, StoreError>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            let errors = fsck::fsck(&inner, options.deep).await?.errors;
            Ok(Fsck { errors, ..Fsck::default() })
        })
    }

    /// Writes a checkpoint that holds everything: one sorted run instead of several and a log.
    fn compact(&self) -> LocalFuture<Result<(), StoreError>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            inner.core.borrow().readable()?;
            inner.checkpoint(true).await
        })
    }

    /// Commits what waits and writes a checkpoint, so that the next mount has nothing to replay.
    fn close(&self) -> LocalFuture<Result<(), StoreError>> {
        let inner = self.inner.clone();
        Box::pin(async move {
            inner.core.borrow().readable()?;
            let result = inner.checkpoint(false).await;
            inner.core.borrow_mut().closing = true;
            inner.work.notify_all();
            inner.folding.notify_all();
            inner.discarding.notify_all();
            // Afterwards no task holds the device any more.
            let busy = |core: &Core| {
                core.committing || core.checkpointing || core.folding || core.discards.is_running()
            };
            inner.progress.until(|| !busy(&inner.core.borrow())).await;
            result
        })
    }
}

/// What the checkpoint under way may take, in blocks: of a run that holds everything, or of another; the other is 0.
#[derive(Debug, Default)]
struct Coming {
    base: u64,
    delta: u64,
}

/// Blocks for so many bytes of a checkpoint, a quarter more, and some.
fn with_quarter(bytes: u64) -> u64 {
    let blocks = bytes / format::PAGE_PAYLOAD_LEN as u64;
    blocks + blocks / 4 + 64
}

impl Core {
    fn statfs(&self) -> Statfs {
        let bytes = |blocks: u64| blocks * BLOCK_LEN;
        let space = &self.state.space;
        let metadata = self.metadata_blocks();
        let total = bytes(self.device_blocks.into());
        let reserved = bytes(self.reserve_blocks());
        // Without what the checkpoint under way may add at most: that comes and goes.
        let used = bytes(self.used_with(0));
        Statfs {
            total,
            available: total.saturating_sub(used).saturating_sub(reserved),
            internally_reserved: reserved,
            allocated: bytes(space.blocks),
            data_stored: bytes(space.pointers),
            omap_allocated: space.omap_bytes,
            internal_metadata: bytes(metadata),
            ..Statfs::default()
        }
    }

    /// Blocks that hold neither data nor are free: superblocks, log, checkpoint.
    fn metadata_blocks(&self) -> u64 {
        format::SUPERBLOCK_SLOTS
            + self.log.len / BLOCK_LEN
            + self.manifest_blocks
            + self.spilled_blocks()
    }

    fn spilled_blocks(&self) -> u64 {
        let spilled = self.spilled.iter().flat_map(|(_, e)| e).map(|e| u64::from(e.len));
        spilled.sum()
    }

    /// Blocks that are not free, or will not be when all metadata stands in runs.
    fn used_blocks(&self) -> u64 {
        self.used_with(self.coming.delta)
    }

    /// The same, if so many blocks of runs are to come at least.
    fn used_with(&self, coming: u64) -> u64 {
        let all_runs = self.state.space.metadata_estimate() / format::PAGE_PAYLOAD_LEN as u64;
        let more = coming.max(all_runs.saturating_sub(self.manifest_blocks));
        self.state.space.blocks + self.metadata_blocks() + more
    }

    /// Blocks kept free so that a checkpoint of everything can be written beside the present one.
    fn base_reserve(&self) -> u64 {
        with_quarter(self.state.space.metadata_estimate()).max(self.coming.base)
    }

    /// The same, and that what is being replaced is not in the way: removals always work.
    fn reserve_blocks(&self) -> u64 {
        self.reserve_with(1)
    }

    /// Room for a checkpoint, and one part of so many of what is for overwrites.
    fn reserve_with(&self, parts: u64) -> u64 {
        self.base_reserve() + self.overwrite_blocks() / parts
    }

    /// About the most blocks that a run takes which begins now and holds what has changed: an object whose size has changed
    /// stands there with its xattrs and parts of blocks, and a block with its chunk; keys take what they took in
    /// the log.
    fn delta_blocks_max(&self) -> u64 {
        let Unchecked { transactions, bytes } = self.unchecked;
        let all = self.state.space.metadata_estimate() + bytes;
        with_quarter(all.min(bytes + transactions * 1024))
    }

    /// Whether the runs hold much that is gone, and may be written anew.
    fn is_mostly_gone(&self) -> bool {
        let needed = with_quarter(self.state.space.metadata_estimate());
        self.manifest_blocks > 2 * needed + 256
    }

    /// The most blocks that a base takes which begins now: by the estimate, or by what the runs take that it is to replace
    /// and the estimate has grown by since the last of them.
    fn base_blocks_max(&self) -> u64 {
        let estimate = self.state.space.metadata_estimate();
        let runs = self.manifest_blocks * format::PAGE_PAYLOAD_LEN as u64;
        let grown = estimate.saturating_sub(self.estimate_frozen);
        with_quarter(estimate.min(runs + grown))
    }

    /// The part of the reserve that overwrites may take for the time until what they replace is
    /// free.
    fn overwrite_blocks(&self) -> u64 {
        32 + (u64::from(self.device_blocks) / 64).min(16 * 256)
    }
}
