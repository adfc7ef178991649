//! Stores whose calls block, behind the asynchronous contract.
//!
//! A store's core lives on worker threads. What changes or reads a collection goes through one
//! thread, its *lane*, in the order of the calls: so a read sees every transaction submitted before
//! it and none after, without locks or snapshots. Where the environment has no threads (in
//! simulation) every call is done before it returns.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use bstr::BString;
use bytes::Bytes;
use env::{LocalFuture, Workers};
use types::bufferlist::BufferList;
use types::hobject::GhObject;

use crate::kv::{Kv, storage};
use crate::{
    CollId, Fsck, FsckOptions, Listing, ObjectStat, ObjectStore, OmapPage, PoolOptions, PoolStatfs,
    Statfs, StoreCounter, StoreError, Transaction,
};

/// Reads of a store, blocking. As in [`ObjectStore`].
#[allow(missing_docs, reason = "the contract's own functions under the same names")]
pub(crate) trait Core: Send + Sync + 'static {
    fn collections(&self) -> Result<Vec<CollId>, StoreError>;
    fn collection_bits(&self, cid: &CollId) -> Result<u32, StoreError>;
    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> Result<Listing, StoreError>;
    fn stat(&self, cid: &CollId, oid: &GhObject) -> Result<ObjectStat, StoreError>;
    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> Result<BufferList, StoreError>;
    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Range<u64>>, StoreError>;
    fn getattr(&self, cid: &CollId, oid: &GhObject, name: &[u8]) -> Result<Bytes, StoreError>;
    fn getattrs(&self, cid: &CollId, oid: &GhObject) -> Result<Vec<(BString, Bytes)>, StoreError>;
    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> Result<Bytes, StoreError>;
    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> Result<Vec<(BString, Bytes)>, StoreError>;
    fn omap_range(
        &self,
        cid: &CollId,
        oid: &GhObject,
        page: &PageWanted,
    ) -> Result<OmapPage, StoreError>;
    fn statfs(&self) -> Result<Statfs, StoreError>;
    fn pool_statfs(&self) -> Option<PoolStatfs> {
        None
    }
    fn fsck(&self, options: FsckOptions) -> Result<Fsck, StoreError>;
    /// Its database.
    fn kv(&self) -> &dyn Kv;
    /// [`ObjectStore::compact`]: a database that is compacted as a whole may take as much room again.
    fn compact(&self) -> Result<(), StoreError> {
        let space = self.statfs()?;
        if space.available < space.omap_allocated + space.internal_metadata {
            return Err(StoreError::NoSpace);
        }
        self.kv().compact().map_err(storage)
    }
}

/// The arguments of [`ObjectStore::omap_range`].
#[derive(Debug, Clone)]
pub(crate) struct PageWanted {
    pub(crate) from: Vec<u8>,
    pub(crate) after: bool,
    pub(crate) max_entries: usize,
    pub(crate) max_bytes: usize,
}

impl PageWanted {
    /// Adds an entry to a page; whether there may be more on it.
    pub(crate) fn add(
        &self,
        page: &mut OmapPage,
        bytes: &mut usize,
        key: &[u8],
        value: &[u8],
    ) -> bool {
        *bytes += key.len() + value.len();
        let full = page.entries.len() >= self.max_entries;
        if full || (*bytes > self.max_bytes && !page.entries.is_empty()) {
            page.more = true;
            return false;
        }
        page.entries.push((key.into(), Bytes::copy_from_slice(value)));
        true
    }
}

/// What differs from one such store to the next.
pub(crate) trait Backend: 'static {
    /// Its reads.
    type Core: Core;
    /// Whether names, collections and what there is of everything are in the core's memory, changed when a
    /// transaction is submitted: then there must be one lane for all else, or the store must order across
    /// lanes.
    const NAMES_IN_MEMORY: bool = false;
    /// The core and its lanes, until the store is closed.
    fn lanes(&self) -> &Lanes<Self::Core>;
    /// [`ObjectStore::submit`].
    fn submit(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>>;
    /// [`ObjectStore::set_pool_options`].
    fn set_pool_options(&self, _pool: u64, _options: &PoolOptions) {}
    /// [`ObjectStore::stop_when_full`].
    fn stop_when_full(&self);
    /// [`ObjectStore::counters`].
    fn counters(&self) -> Vec<StoreCounter>;
    /// [`ObjectStore::close`].
    fn close(&self) -> LocalFuture<Result<(), StoreError>>;
}

/// A core with the threads that call it.
pub(crate) struct Lanes<C> {
    core: RefCell<Option<Arc<C>>>,
    lanes: Vec<Workers>,
}

impl<C: Send + Sync + 'static> Lanes<C> {
    /// At least one lane, each of one thread or inline.
    pub(crate) fn new(core: Arc<C>, lanes: Vec<Workers>) -> Lanes<C> {
        Lanes { core: RefCell::new(Some(core)), lanes }
    }

    /// The core, unless closed.
    pub(crate) fn core(&self) -> Option<Arc<C>> {
        self.core.borrow().clone()
    }

    /// Takes the core away: later calls find the store closed.
    pub(crate) fn take(&self) -> Option<Arc<C>> {
        self.core.borrow_mut().take()
    }

    /// All lanes.
    pub(crate) fn all(&self) -> &[Workers] {
        &self.lanes
    }

    /// Number of a collection's lane.
    pub(crate) fn lane_of(&self, cid: &CollId) -> usize {
        let Some(pg) = cid.spg() else { return 0 };
        let mixed = (pg.pgid.pool as u32).wrapping_mul(31).wrapping_add(pg.pgid.seed);
        mixed as usize % self.lanes.len()
    }

    /// Runs a job on a lane, after what was handed to it before.
    pub(crate) fn run<T: Send + 'static>(
        &self,
        lane: usize,
        job: impl FnOnce(&C) -> Result<T, StoreError> + Send + 'static,
    ) -> LocalFuture<Result<T, StoreError>> {
        let Some(core) = self.core() else {
            return Box::pin(std::future::ready(Err(StoreError::Closed)));
        };
        Box::pin(self.lanes[lane].run(move || {
            let result = job(&core);
            // Before the result is told: who closes waits for the last reference.
            drop(core);
            result
        }))
    }

    /// Runs a job beside the lanes, on a thread that is there as long as the job.
    fn run_apart<T: Send + 'static>(
        &self,
        name: &str,
        job: impl FnOnce(&C) -> Result<T, StoreError> + Send + 'static,
    ) -> LocalFuture<Result<T, StoreError>> {
        let Some(core) = self.core() else {
            return Box::pin(std::future::ready(Err(StoreError::Closed)));
        };
        let threads = self.lanes[0].thread_count().min(1);
        let apart = match Workers::start(name, threads) {
            Ok(apart) => apart,
            Err(e) => return Box::pin(std::future::ready(Err(e.into()))),
        };
        Box::pin(async move {
            apart
                .run(move || {
                    let result = job(&core);
                    drop(core);
                    result
                })
                .await
        })
    }
}

/// A blocking store as an [`ObjectStore`]. Dropping it without [`ObjectStore::close`] is a crash as far
/// as what it stands on is concerned.
pub struct Blocking<B>(pub(crate) B);

#[allow(private_bounds, reason = "what a backend is stays inside")]
impl<B: Backend> Blocking<B> {
    fn on<T: Send + 'static>(
        &self,
        cid: &CollId,
        oid: &GhObject,
        job: impl FnOnce(&B::Core, &CollId, &GhObject) -> Result<T, StoreError> + Send + 'static,
    ) -> LocalFuture<Result<T, StoreError>> {
        let lanes = self.0.lanes();
        let (cid, oid) = (*cid, oid.clone());
        lanes.run(lanes.lane_of(&cid), move |core| job(core, &cid, &oid))
    }

    /// What is about names and sums only: at once, if the core keeps them in memory.
    fn names<T: Send + 'static>(
        &self,
        cid: Option<&CollId>,
        job: impl FnOnce(&B::Core) -> Result<T, StoreError> + Send + 'static,
    ) -> LocalFuture<Result<T, StoreError>> {
        let lanes = self.0.lanes();
        if B::NAMES_IN_MEMORY {
            let result = match lanes.core() {
                Some(core) => job(&core),
                None => Err(StoreError::Closed),
            };
            return Box::pin(std::future::ready(result));
        }
        lanes.run(cid.map_or(0, |cid| lanes.lane_of(cid)), job)
    }
}

impl<B> std::fmt::Debug for Blocking<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Blocking")
    }
}

#[allow(private_bounds, reason = "what a backend is stays inside")]
impl<B: Backend> ObjectStore for Blocking<B> {
    fn submit(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>> {
        self.0.submit(t)
    }

    fn collections(&self) -> LocalFuture<Result<Vec<CollId>, StoreError>> {
        self.names(None, |core| core.collections())
    }

    fn collection_bits(&self, cid: &CollId) -> LocalFuture<Result<u32, StoreError>> {
        let wanted = *cid;
        self.names(Some(cid), move |core| core.collection_bits(&wanted))
    }

    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> LocalFuture<Result<Listing, StoreError>> {
        let (wanted, start, end) = (*cid, start.clone(), end.clone());
        self.names(Some(cid), move |core| core.list(&wanted, &start, &end, max))
    }

    fn stat(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<ObjectStat, StoreError>> {
        self.on(cid, oid, |core, cid, oid| core.stat(cid, oid))
    }

    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<BufferList, StoreError>> {
        self.on(cid, oid, move |core, cid, oid| core.read(cid, oid, offset, len))
    }

    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<Vec<Range<u64>>, StoreError>> {
        self.on(cid, oid, move |core, cid, oid| core.extents(cid, oid, offset, len))
    }

    fn getattr(
        &self,
        cid: &CollId,
        oid: &GhObject,
        name: &[u8],
    ) -> LocalFuture<Result<Bytes, StoreError>> {
        let name = name.to_vec();
        self.on(cid, oid, move |core, cid, oid| core.getattr(cid, oid, &name))
    }

    fn getattrs(
        &self,
        cid: &CollId,
        oid: &GhObject,
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>> {
        self.on(cid, oid, |core, cid, oid| core.getattrs(cid, oid))
    }

    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<Bytes, StoreError>> {
        self.on(cid, oid, |core, cid, oid| core.omap_header(cid, oid))
    }

    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>> {
        let keys = keys.to_vec();
        self.on(cid, oid, move |core, cid, oid| core.omap_values(cid, oid, &keys))
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
        let from = from.to_vec();
        let page = PageWanted { from, after, max_entries, max_bytes };
        self.on(cid, oid, move |core, cid, oid| core.omap_range(cid, oid, &page))
    }

    fn statfs(&self) -> LocalFuture<Result<Statfs, StoreError>> {
        self.names(None, |core| core.statfs())
    }

    fn pool_statfs(&self) -> LocalFuture<Result<Option<PoolStatfs>, StoreError>> {
        self.0.lanes().run(0, |core| Ok(core.pool_statfs()))
    }

    fn set_pool_options(&self, pool: u64, options: &PoolOptions) {
        self.0.set_pool_options(pool, options);
    }

    fn stop_when_full(&self) {
        self.0.stop_when_full();
    }

    fn counters(&self) -> Vec<StoreCounter> {
        self.0.counters()
    }

    fn fsck(&self, options: FsckOptions) -> LocalFuture<Result<Fsck, StoreError>> {
        // Behind all that is queued anywhere.
        let (done, others) = std::sync::mpsc::channel();
        for lane in &self.0.lanes().all()[1..] {
            let done = done.clone();
            drop(lane.run(move || {
                // Nobody hears it if this store is closed.
                let _ = done.send(());
            }));
        }
        drop(done);
        self.0.lanes().run(0, move |core| {
            others.iter().for_each(drop);
            core.fsck(options)
        })
    }

    fn compact(&self) -> LocalFuture<Result<(), StoreError>> {
        self.0.lanes().run_apart("compact", |core| core.compact())
    }

    fn close(&self) -> LocalFuture<Result<(), StoreError>> {
        self.0.close()
    }
}
