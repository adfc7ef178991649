//! Reads, and what exists.

use std::cell::RefCell;
use std::ops::Range;

use bstr::BString;
use bytes::Bytes;
use types::bufferlist::BufferList;
use types::hobject::GhObject;

use super::keys::{
    COLLECTION, Cnode, ENTRY_KEY_AT, behind, cnode_key, entry_key, header_key, object_of,
    onode_key, onodes_of, prefix, tail_key,
};
use super::{Keys, Onode, decoded};
use crate::blocking::{Core, PageWanted};
use crate::check::Existing;
use crate::kv::Kv;
use crate::object_key::parse_collection_key;
use crate::{
    CollId, Fsck, FsckOptions, Listing, ObjectStat, OmapPage, PoolStatfs, Statfs, StoreError,
};

/// What exists, for the check of a transaction.
pub(crate) struct View<'a> {
    keys: &'a dyn Keys,
    /// More objects than this in a collection need not be told apart: no transaction of so many
    /// operations removes them all.
    enough: usize,
    failed: RefCell<Option<StoreError>>,
}

impl<'a> View<'a> {
    pub(crate) fn new(keys: &'a dyn Keys, ops: usize) -> View<'a> {
        View { keys, enough: ops + 1, failed: RefCell::default() }
    }

    /// Why the database could not tell, if it could not.
    pub(crate) fn failure(&self) -> Result<(), StoreError> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn there(&self, key: &[u8]) -> bool {
        match self.keys.get(key) {
            Ok(value) => value.is_some(),
            Err(e) => {
                *self.failed.borrow_mut() = Some(e);
                false
            }
        }
    }
}

impl Existing for View<'_> {
    fn collection_len(&self, cid: &CollId) -> Option<usize> {
        if !self.collection_exists(cid) {
            return None;
        }
        let start = onodes_of(cid);
        let mut count = 0;
        let scanned = self.keys.scan(&start, &behind(&start), &mut |_, _| {
            count += 1;
            count < self.enough
        });
        if let Err(e) = scanned {
            *self.failed.borrow_mut() = Some(e);
        }
        Some(count)
    }

    fn collection_exists(&self, cid: &CollId) -> bool {
        self.there(&cnode_key(cid))
    }

    fn object_exists(&self, cid: &CollId, oid: &GhObject) -> bool {
        self.there(&onode_key(cid, oid))
    }
}

/// What a backend adds to the reads of keys, to be a [`Core`].
pub(crate) trait Reads: Keys + Send + Sync + 'static {
    /// What it keeps of an object.
    type Onode: Onode;
    /// The bytes of the range that lie before the end.
    fn data(&self, onode: &Self::Onode, offset: u64, len: u64) -> Result<Bytes, StoreError>;
    /// [`Core::extents`] of an object.
    fn extents_of(
        &self,
        onode: &Self::Onode,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Range<u64>>, StoreError>;
    /// [`Core::fsck`].
    fn check_all(&self, options: FsckOptions) -> Result<Fsck, StoreError>;
    /// [`Core::kv`].
    fn database(&self) -> &dyn Kv;
    /// [`Core::statfs`].
    fn space(&self) -> Result<Statfs, StoreError>;
    /// [`Core::pool_statfs`].
    fn space_of_pools(&self) -> Option<PoolStatfs> {
        None
    }
}

fn cnode(core: &impl Reads, cid: &CollId) -> Result<Cnode, StoreError> {
    let value = core.get(&cnode_key(cid))?;
    let value = value.ok_or(StoreError::NoCollection(*cid))?;
    decoded(&value, "a collection")
}

fn onode<R: Reads>(core: &R, cid: &CollId, oid: &GhObject) -> Result<R::Onode, StoreError> {
    match core.get(&onode_key(cid, oid))? {
        Some(value) => decoded(&value, "an onode"),
        None => {
            cnode(core, cid)?;
            Err(StoreError::NoObject)
        }
    }
}

/// Adds a range to ascending ones, joined to the last where they meet.
pub(crate) fn push_extent(found: &mut Vec<Range<u64>>, from: u64, to: u64) {
    match found.last_mut() {
        _ if from >= to => {}
        Some(last) if last.end == from => last.end = to,
        _ => found.push(from..to),
    }
}

impl<R: Reads> Core for R {
    fn collections(&self) -> Result<Vec<CollId>, StoreError> {
        let start = prefix(COLLECTION);
        let mut found = Vec::new();
        self.scan(&start, &behind(&start), &mut |key, _| {
            found.push(parse_collection_key(&key[start.len()..]));
            true
        })?;
        let found: Option<Vec<CollId>> = found.into_iter().collect();
        let mut found = found.ok_or(StoreError::Format("a collection's key"))?;
        found.sort_unstable();
        Ok(found)
    }

    fn collection_bits(&self, cid: &CollId) -> Result<u32, StoreError> {
        Ok(cnode(self, cid)?.bits)
    }

    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> Result<Listing, StoreError> {
        cnode(self, cid)?;
        let mut objects = Vec::new();
        let mut next = end.clone();
        if start < end {
            let limit = match end.is_max() {
                true => behind(&onodes_of(cid)),
                false => onode_key(cid, end),
            };
            let mut bad = false;
            self.scan(&onode_key(cid, start), &limit, &mut |key, _| {
                match object_of(key) {
                    Some(oid) if objects.len() < max => objects.push(oid),
                    Some(oid) => {
                        next = oid;
                        return false;
                    }
                    None => bad = true,
                }
                !bad
            })?;
            if bad {
                return Err(StoreError::Format("an onode's key"));
            }
        }
        Ok(Listing { objects, next })
    }

    fn stat(&self, cid: &CollId, oid: &GhObject) -> Result<ObjectStat, StoreError> {
        Ok(ObjectStat { size: onode(self, cid, oid)?.size() })
    }

    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> Result<BufferList, StoreError> {
        let onode = onode(self, cid, oid)?;
        let len = if len == 0 { u64::MAX } else { len };
        let mut list = BufferList::new();
        list.push(self.data(&onode, offset, len)?);
        Ok(list)
    }

    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Range<u64>>, StoreError> {
        self.extents_of(&onode(self, cid, oid)?, offset, len)
    }

    fn getattr(&self, cid: &CollId, oid: &GhObject, name: &[u8]) -> Result<Bytes, StoreError> {
        let value = onode(self, cid, oid)?.attrs().remove(bstr::BStr::new(name));
        value.ok_or(StoreError::NoAttr)
    }

    fn getattrs(&self, cid: &CollId, oid: &GhObject) -> Result<Vec<(BString, Bytes)>, StoreError> {
        let attrs = std::mem::take(onode(self, cid, oid)?.attrs());
        Ok(attrs.into_iter().collect())
    }

    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> Result<Bytes, StoreError> {
        match *onode(self, cid, oid)?.omap() {
            0 => Ok(Bytes::new()),
            omap => Ok(self.get(&header_key(omap))?.unwrap_or_default()),
        }
    }

    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> Result<Vec<(BString, Bytes)>, StoreError> {
        let omap = *onode(self, cid, oid)?.omap();
        let mut found = Vec::new();
        for key in keys.iter().filter(|_| omap != 0) {
            if let Some(value) = self.get(&entry_key(omap, key))? {
                found.push((key.clone(), value));
            }
        }
        Ok(found)
    }

    fn omap_range(
        &self,
        cid: &CollId,
        oid: &GhObject,
        wanted: &PageWanted,
    ) -> Result<OmapPage, StoreError> {
        let omap = *onode(self, cid, oid)?.omap();
        let (mut page, mut bytes) = (OmapPage::default(), 0);
        if omap == 0 {
            return Ok(page);
        }
        let from = entry_key(omap, &wanted.from);
        self.scan(&from, &tail_key(omap), &mut |key, value| {
            let key = &key[ENTRY_KEY_AT..];
            if wanted.after && key == wanted.from {
                return true;
            }
            wanted.add(&mut page, &mut bytes, key, value)
        })?;
        Ok(page)
    }

    fn fsck(&self, options: FsckOptions) -> Result<Fsck, StoreError> {
        self.check_all(options)
    }

    fn kv(&self) -> &dyn Kv {
        self.database()
    }

    fn statfs(&self) -> Result<Statfs, StoreError> {
        self.space()
    }

    fn pool_statfs(&self) -> Option<PoolStatfs> {
        self.space_of_pools()
    }
}
