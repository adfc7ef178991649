//! The contract every backend keeps and the suite checks.

use std::collections::BTreeMap;
use std::ops::Range;

use bstr::BString;
use bytes::Bytes;
use env::LocalFuture;
use types::bufferlist::BufferList;
use types::hobject::GhObject;

use crate::{CollId, PoolOptions, StoreError, Transaction};

/// Largest logical size of an object in bytes (Ceph's stores: 4 GiB of 32-bit lengths).
pub const OBJECT_LEN_MAX: u64 = u32::MAX as u64;

/// A store of objects in collections. One thread; share it as `Rc<dyn ObjectStore>`.
///
/// Order: transactions take effect in the order of the calls to [`ObjectStore::submit`], and
/// become durable in that order: after a crash the store holds the effects of a prefix of them
/// that includes every one whose future completed. A transaction is there whole or not at all.
/// A read sees every transaction submitted before the read was called and none after.
pub trait ObjectStore {
    /// Applies a transaction. Its effect is visible to later reads when this returns; the future
    /// completes when it is durable, or with the reason why it was refused (then it has had no
    /// effect), or why the store stopped.
    ///
    /// Operations on a missing object: touch, create, write, zero create it; remove, truncate,
    /// rmattrs, omap_clear, set_alloc_hint, try_rename and coll_move_rename do nothing; clone and
    /// clone_range (source missing), setattr(s), rmattr and the other omap operations make the
    /// transaction fail with `NoObject`. Removing an xattr or a key that is not there is fine.
    /// A missing collection always fails it, but for merge's source.
    fn submit(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>>;

    /// All collections, in order.
    fn collections(&self) -> LocalFuture<Result<Vec<CollId>, StoreError>>;
    /// How many bits of the object hash all objects of the collection share (mkcoll's `bits`).
    fn collection_bits(&self, cid: &CollId) -> LocalFuture<Result<u32, StoreError>>;
    /// Up to `max` objects with `start <= object < end`, in Ceph's order.
    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> LocalFuture<Result<Listing, StoreError>>;

    /// Size of an object. `NoObject` tells that it does not exist.
    fn stat(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<ObjectStat, StoreError>>;
    /// The bytes of `offset..offset + len` that lie before the end of the object; holes read as
    /// zeros. A `len` of 0 reads to the end, as in Ceph's ObjectStore.
    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<BufferList, StoreError>>;
    /// As [`ObjectStore::read`], but what a cache holds does not count: for scrubs, which ask what the
    /// device holds.
    fn read_device(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<BufferList, StoreError>> {
        self.read(cid, oid, offset, len)
    }
    /// Which byte ranges of `offset..offset + len` hold written data, in order, not touching each
    /// other (Ceph's fiemap). Holes may be reported as data, data never as a hole.
    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> LocalFuture<Result<Vec<Range<u64>>, StoreError>>;

    /// One xattr.
    fn getattr(
        &self,
        cid: &CollId,
        oid: &GhObject,
        name: &[u8],
    ) -> LocalFuture<Result<Bytes, StoreError>>;
    /// All xattrs, in the order of their names.
    fn getattrs(
        &self,
        cid: &CollId,
        oid: &GhObject,
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>>;

    /// The omap header, empty if never set.
    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> LocalFuture<Result<Bytes, StoreError>>;
    /// Those of `keys` that exist, with their values.
    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> LocalFuture<Result<Vec<(BString, Bytes)>, StoreError>>;
    /// Keys from `from` on (above it if `after`), at most `max_entries` and, but for the first,
    /// `max_bytes` of keys and values.
    fn omap_range(
        &self,
        cid: &CollId,
        oid: &GhObject,
        from: &[u8],
        after: bool,
        max_entries: usize,
        max_bytes: usize,
    ) -> LocalFuture<Result<OmapPage, StoreError>>;

    /// Space. `Latched` from a store that stopped: one that failed after its answers (it applies or
    /// syncs later) has nobody else to tell, so its owner is to ask from time to time.
    fn statfs(&self) -> LocalFuture<Result<Statfs, StoreError>>;
    /// What the objects of each pool take, by the pool's number; a pool that is not there takes
    /// nothing. `None` from a store that does not know, as Ceph's stores but BlueStore. Of omaps
    /// nothing is told.
    fn pool_statfs(&self) -> LocalFuture<Result<Option<PoolStatfs>, StoreError>> {
        Box::pin(std::future::ready(Ok(None)))
    }
    /// What a pool wants from now on, in place of what was told of it before. Kept in memory only:
    /// told anew after each mount. A store that can do nothing of it lets it be.
    fn set_pool_options(&self, _pool: u64, _options: &PoolOptions) {}
    /// From now on a transaction that finds no room stops the store: what is submitted after it is
    /// refused with `Latched`, whether it would fit or not. For owners whose transactions build on
    /// each other, as an OSD's do (the next entry of a PG's log must not be there without this one).
    fn stop_when_full(&self);
    /// What the store asked of its device, by cause; empty if it has none. Numbers only grow.
    fn counters(&self) -> Vec<StoreCounter> {
        Vec::new()
    }
    /// Compares what the store knows of itself with itself, beyond what reads show; nothing where
    /// there is nothing to compare. Meant for a store at rest.
    fn fsck(&self, _options: FsckOptions) -> LocalFuture<Result<Fsck, StoreError>> {
        Box::pin(std::future::ready(Ok(Fsck::default())))
    }
    /// Writes what the store knows anew in its shortest form; completes when it is durable.
    /// Nothing to do where there is but one form; `NoSpace` where it would need more room than there is.
    fn compact(&self) -> LocalFuture<Result<(), StoreError>>;
    /// Makes everything durable and lets the device go. Later calls fail with `Closed`.
    fn close(&self) -> LocalFuture<Result<(), StoreError>>;
}

/// What [`ObjectStore::stat`] knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectStat {
    /// Logical length in bytes.
    pub size: u64,
}

/// What [`ObjectStore::fsck`] is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FsckOptions {
    /// Read all data, too.
    pub deep: bool,
    /// Put right what can be.
    pub repair: bool,
}

/// What [`ObjectStore::fsck`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fsck {
    /// What is wrong, a line each; at most [`Fsck::ERRORS_MAX`].
    pub errors: Vec<String>,
    /// How much of it is right now.
    pub repaired: u64,
}

impl Fsck {
    /// Lines that are kept.
    pub const ERRORS_MAX: usize = 1000;

    /// Notes something wrong.
    pub fn error(&mut self, line: impl Into<String>) {
        if self.errors.len() < Fsck::ERRORS_MAX {
            self.errors.push(line.into());
        }
    }
}

/// One number of [`ObjectStore::counters`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreCounter {
    /// Its name: `written_data`, `writes`...
    pub name: String,
    /// Whether it counts bytes.
    pub is_bytes: bool,
    /// Its value.
    pub value: u64,
}

/// Part of a collection's listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// In order.
    pub objects: Vec<GhObject>,
    /// Where to go on: the first object not listed, or the `end` of the call if that was all.
    pub next: GhObject,
}

/// Part of an omap.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OmapPage {
    /// In the order of the keys.
    pub entries: Vec<(BString, Bytes)>,
    /// Whether there are keys after these.
    pub more: bool,
}

/// Space that the objects of pools take, by the pools' numbers. Bound: the pools of the cluster.
pub type PoolStatfs = BTreeMap<u64, Statfs>;

/// Space in bytes. Fields as in Ceph's store_statfs_t.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statfs {
    /// Size of the device.
    pub total: u64,
    /// What writes may still take.
    pub available: u64,
    /// Kept free so that removals and checkpoints always work.
    pub internally_reserved: u64,
    /// Device bytes taken by object data.
    pub allocated: u64,
    /// Logical bytes of object data (holes not counted, clones counted each).
    pub data_stored: u64,
    /// Bytes that compressed data takes.
    pub data_compressed: u64,
    /// Device bytes taken by them.
    pub data_compressed_allocated: u64,
    /// Logical bytes of object data that are compressed.
    pub data_compressed_original: u64,
    /// Bytes taken by omap keys and values.
    pub omap_allocated: u64,
    /// Bytes taken by other metadata.
    pub internal_metadata: u64,
}
