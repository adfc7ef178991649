//! What a class method may do to its object: `cls_cxx_*` of `src/objclass/objclass.h`.

use core::future::Future;
use core::pin::Pin;
use std::collections::BTreeMap;

use bstr::{BStr, BString};
use bytes::Bytes;
use types::{EntityAddr, EntityName, Errno, UTime};

/// A call under way; it borrows the context, so one runs at a time.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, Errno>> + 'a>>;

/// Size and mtime of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectStat {
    /// Bytes.
    pub size: u64,
    /// Time of the last write, as the client told it.
    pub mtime: UTime,
}

/// One object, as a class method sees it. Reads and stat of an object that does not exist are
/// `ENOENT`; omap of an object without one is empty.
pub trait ObjectContext {
    /// Size and mtime.
    fn stat(&mut self) -> Call<'_, ObjectStat>;
    /// Reads up to `len` bytes; 0 reads all.
    fn read(&mut self, offset: u64, len: u64) -> Call<'_, Bytes>;
    /// Writes `data`, creating the object if need be.
    fn write(&mut self, offset: u64, data: Bytes) -> Call<'_, ()>;
    /// Replaces the content.
    fn write_full(&mut self, data: Bytes) -> Call<'_, ()>;
    /// Creates the object; an existing one is `EEXIST` when `exclusive`.
    fn create(&mut self, exclusive: bool) -> Call<'_, ()>;
    /// Removes the object.
    fn remove(&mut self) -> Call<'_, ()>;
    /// Cuts or grows the object.
    fn truncate(&mut self, size: u64) -> Call<'_, ()>;
    /// Zeroes a range.
    fn zero(&mut self, offset: u64, len: u64) -> Call<'_, ()>;

    /// An xattr's value; `ENODATA` if there is none of that name.
    fn getxattr(&mut self, name: &[u8]) -> Call<'_, Bytes>;
    /// All xattrs.
    fn getxattrs(&mut self) -> Call<'_, BTreeMap<BString, Bytes>>;
    /// Sets an xattr.
    fn setxattr(&mut self, name: &[u8], value: Bytes) -> Call<'_, ()>;

    /// Omap keys after `after`, at most `max`, and whether there are more.
    fn omap_keys(&mut self, after: &[u8], max: u64) -> Call<'_, (Vec<BString>, bool)>;
    /// Omap keys with the prefix after `after` and their values, at most `max`, and whether there
    /// are more.
    fn omap_vals(
        &mut self,
        after: &[u8],
        prefix: &[u8],
        max: u64,
    ) -> Call<'_, (BTreeMap<BString, Bytes>, bool)>;
    /// The values of those of `keys` that are set.
    fn omap_vals_by_keys(&mut self, keys: Vec<BString>) -> Call<'_, BTreeMap<BString, Bytes>>;
    /// One key's value; `ENOENT` if it is not set.
    fn omap_val(&mut self, key: &[u8]) -> Call<'_, Bytes>;
    /// The omap header, empty if never set.
    fn omap_header(&mut self) -> Call<'_, Bytes>;
    /// Sets keys.
    fn omap_set(&mut self, vals: BTreeMap<BString, Bytes>) -> Call<'_, ()>;
    /// Sets the header.
    fn omap_set_header(&mut self, header: Bytes) -> Call<'_, ()>;
    /// Removes one key, set or not.
    fn omap_rm(&mut self, key: &[u8]) -> Call<'_, ()>;
    /// Removes the keys in `[first, end)`.
    fn omap_rm_range(&mut self, first: &[u8], end: &[u8]) -> Call<'_, ()>;
    /// Removes all keys and the header.
    fn omap_clear(&mut self) -> Call<'_, ()>;

    /// Runs a method of another class (or this one) on the same object.
    fn call<'a>(&'a mut self, class: &'a BStr, method: &'a BStr, input: Bytes) -> Call<'a, Bytes>;

    /// Who sent the op, and the address its connection comes from.
    fn caller(&self) -> (EntityName, EntityAddr);
    /// The OSD's wall clock.
    fn now(&self) -> UTime;
    /// Fills `buf` with random bytes.
    fn fill_random(&self, buf: &mut [u8]);
    /// The object's user version before this op.
    fn object_version(&self) -> u64;
    /// The last user version of the object's PG before this op.
    fn pg_version(&self) -> u64;
    /// Text that differs for each step of each op on this PG: `last user version.step`.
    fn subop_version(&self) -> String;
    /// The newest snapshot the object knows; `None` where there is no object, nor clones of one.
    fn snap_seq(&self) -> Option<u64>;
    /// The newest snapshot of the write's own snap context.
    fn snap_context_seq(&self) -> u64;
    /// Feature bits of the caller.
    fn client_features(&self) -> u64;
    /// Whether the object's pool is a cache of another or erasure coded without overwrites: what
    /// `cls_get_pool_stripe_width` gives, 0 for replicated pools.
    fn pool_stripe_width(&self) -> u64;
    /// Who watches the object, and from where; one entry for each watch.
    fn watchers(&self) -> Vec<(EntityName, EntityAddr)>;
    /// Name, locator key and namespace of the object.
    fn object_name(&self) -> (BString, BString, BString);
}
