//! A store whose metadata is not in memory, as those of Ceph's kinds: each read takes its time, and gives what was
//! there when it began. InkStore answers most at once, so nothing happens meanwhile.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use env::{Env, LocalFuture};
use store::{
    CollId, Fsck, FsckOptions, Listing, ObjectStat, ObjectStore, OmapPage, PoolOptions, PoolStatfs,
    Statfs, StoreCounter, StoreError, Transaction,
};
use types::GhObject;
use types::bufferlist::BufferList;

/// See the module.
pub(crate) struct SlowReads {
    inner: Rc<dyn ObjectStore>,
    env: Env,
    /// How long a read takes at most; zero: as long as the store takes.
    most: Rc<Cell<Duration>>,
}

impl SlowReads {
    pub(crate) fn new(inner: Rc<dyn ObjectStore>, env: Env, most: Rc<Cell<Duration>>) -> SlowReads {
        SlowReads { inner, env, most }
    }

    fn later<T: 'static>(&self, read: LocalFuture<T>) -> LocalFuture<T> {
        let most = self.most.get();
        if most.is_zero() {
            return read;
        }
        let pause = most.mul_f64((self.env.random_u64() >> 11) as f64 / (1_u64 << 53) as f64);
        let env = self.env.clone();
        Box::pin(async move {
            let found = read.await;
            env.sleep(pause).await;
            found
        })
    }
}

impl ObjectStore for SlowReads {
    fn submit(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>> {
        self.inner.submit(t)
    }

    fn collections(&self) -> LocalFuture<Result<Vec<CollId>, StoreError>> {
        self.later(self.inner.collections())
    }

    fn collection_bits(&self, cid: &CollId) -> LocalFuture<Result<u32, StoreError>> {
        self.later(self.inner.collection_bits(cid))
    }

    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> LocalFuture<Result<Listing, StoreError>> {
        self.later(self.inner.list(cid, start, end, max))
    }

    fn stat(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<ObjectStat, StoreError>> {
        self.later(self.inner.stat(cid, oid))
    }

    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<BufferList, StoreError>> {
        self.later(self.inner.read(cid, oid, offset, len))
    }

    fn read_device(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<BufferList, StoreError>> {
        self.later(self.inner.read_device(cid, oid, offset, len))
    }

    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<Vec<Range<u64>>, StoreError>> {
        self.later(self.inner.extents(cid, oid, offset, len))
    }

    fn getattr(
        &self,
        cid: &CollId,
        oid: &GhObject,
        name: &[u8],
    ) -> LocalFuture<Result<Bytes, StoreError>> {
        self.later(self.inner.getattr(cid, oid, name))
    }

    fn getattrs(
        &self,
        cid: &CollId,
        oid: &GhObject,
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>> {
        self.later(self.inner.getattrs(cid, oid))
    }

    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<Bytes, StoreError>> {
        self.later(self.inner.omap_header(cid, oid))
    }

    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>> {
        self.later(self.inner.omap_values(cid, oid, keys))
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
        self.later(self.inner.omap_range(cid, oid, from, after, max_entries, max_bytes))
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
