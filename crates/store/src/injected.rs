//! A store whose objects can be made unreadable, for tests of what is above it: Ceph's
//! `injectdataerr` and `injectmdataerr`. An object is readable again once it is removed or
//! replaced.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use env::LocalFuture;
use types::bufferlist::BufferList;
use types::hobject::GhObject;

use crate::{
    CollId, Fsck, FsckOptions, Listing, ObjectStat, ObjectStore, OmapPage, Op, PoolOptions,
    PoolStatfs, Statfs, StoreCounter, StoreError, Transaction,
};

/// What reading an unreadable object gives.
const UNREADABLE: StoreError = StoreError::Checksum { device_offset: u64::MAX };

/// A store with unreadable objects. Their number is bounded by who injects them.
pub struct InjectedErrors {
    inner: Rc<dyn ObjectStore>,
    data: RefCell<BTreeSet<GhObject>>,
    metadata: RefCell<BTreeSet<GhObject>>,
}

impl InjectedErrors {
    /// Over another store; nothing is unreadable yet.
    pub fn new(inner: Rc<dyn ObjectStore>) -> InjectedErrors {
        InjectedErrors { inner, data: RefCell::default(), metadata: RefCell::default() }
    }

    /// Makes the content of an object unreadable.
    pub fn inject_data_error(&self, oid: GhObject) {
        self.data.borrow_mut().insert(oid);
    }

    /// Makes the size of an object unreadable.
    pub fn inject_metadata_error(&self, oid: GhObject) {
        self.metadata.borrow_mut().insert(oid);
    }

    fn heal(&self, t: &Transaction) {
        let (mut data, mut metadata) = (self.data.borrow_mut(), self.metadata.borrow_mut());
        if data.is_empty() && metadata.is_empty() {
            return;
        }
        for op in t.ops() {
            let (Op::Remove { oid, .. } | Op::CollMoveRename { to: oid, .. }) = op else {
                continue;
            };
            let oid = &t.objects()[*oid as usize];
            data.remove(oid);
            metadata.remove(oid);
        }
    }
}

impl ObjectStore for InjectedErrors {
    fn submit(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>> {
        self.heal(&t);
        self.inner.submit(t)
    }

    fn collections(&self) -> LocalFuture<Result<Vec<CollId>, StoreError>> {
        self.inner.collections()
    }

    fn collection_bits(&self, cid: &CollId) -> LocalFuture<Result<u32, StoreError>> {
        self.inner.collection_bits(cid)
    }

    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> LocalFuture<Result<Listing, StoreError>> {
        self.inner.list(cid, start, end, max)
    }

    fn stat(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<ObjectStat, StoreError>> {
        if self.metadata.borrow().contains(oid) {
            return Box::pin(std::future::ready(Err(UNREADABLE)));
        }
        self.inner.stat(cid, oid)
    }

    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<BufferList, StoreError>> {
        if self.data.borrow().contains(oid) {
            return Box::pin(std::future::ready(Err(UNREADABLE)));
        }
        self.inner.read(cid, oid, offset, len)
    }

    fn read_device(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<BufferList, StoreError>> {
        if self.data.borrow().contains(oid) {
            return Box::pin(std::future::ready(Err(UNREADABLE)));
        }
        self.inner.read_device(cid, oid, offset, len)
    }

    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<Vec<Range<u64>>, StoreError>> {
        self.inner.extents(cid, oid, offset, len)
    }

    fn getattr(
        &self,
        cid: &CollId,
        oid: &GhObject,
        name: &[u8],
    ) -> LocalFuture<Result<Bytes, StoreError>> {
        self.inner.getattr(cid, oid, name)
    }

    fn getattrs(
        &self,
        cid: &CollId,
        oid: &GhObject,
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>> {
        self.inner.getattrs(cid, oid)
    }

    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<Bytes, StoreError>> {
        self.inner.omap_header(cid, oid)
    }

    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>> {
        self.inner.omap_values(cid, oid, keys)
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
        self.inner.omap_range(cid, oid, from, after, max_entries, max_bytes)
    }

    fn statfs(&self) -> LocalFuture<Result<Statfs, StoreError>> {
        self.inner.statfs()
    }

    fn pool_statfs(&self) -> LocalFuture<Result<Option<PoolStatfs>, StoreError>> {
        self.inner.pool_statfs()
    }

    fn set_pool_options(&self, pool: u64, options: &PoolOptions) {
        self.inner.set_pool_options(pool, options);
    }

    fn stop_when_full(&self) {
        self.inner.stop_when_full();
    }

    fn counters(&self) -> Vec<StoreCounter> {
        self.inner.counters()
    }

    fn fsck(&self, options: FsckOptions) -> LocalFuture<Result<Fsck, StoreError>> {
        self.inner.fsck(options)
    }

    fn compact(&self) -> LocalFuture<Result<(), StoreError>> {
        self.inner.compact()
    }

    fn close(&self) -> LocalFuture<Result<(), StoreError>> {
        self.inner.close()
    }
}
