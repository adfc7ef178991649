//! Reads, and what exists.

use std::cell::RefCell;
use std::ops::Range;

use bstr::BString;
use bytes::Bytes;
use types::bufferlist::BufferList;
use types::hobject::GhObject;

use super::format::{
    Cnode, ENTRY_KEY_AT, Onode, Prefix, behind, cnode_key, entry_key, header_key, object_of,
    onode_key, onodes_of, tail_key,
};
use super::txn::Txn;
use super::{Core, apply, decoded, storage};
use crate::blocking::{self, PageWanted};
use crate::check::Existing;
use crate::kv::{Direction, Kv, KvError};
use crate::object_key::parse_collection_key;
use crate::{
    CollId, Fsck, FsckOptions, Listing, ObjectStat, OmapPage, Statfs, StoreError,
};

/// What exists, for the check of a transaction.
pub(super) struct View<'a> {
    kv: &'a dyn Kv,
    /// More objects than this in a collection need not be told apart: no transaction of so many
    /// operations removes them all.
    enough: usize,
    failed: RefCell<Option<KvError>>,
}

impl<'a> View<'a> {
    pub(super) fn new(kv: &'a dyn Kv, ops: usize) -> View<'a> {
        View {
            kv,
            enough: ops + 1,
            failed: RefCell::default(),
        }
    }

    /// Why the database could not tell, if it could not.
    pub(super) fn failure(&self) -> Result<(), StoreError> {
        match self.failed.take() {
            Some(e) => Err(storage(e)),
            None => Ok(()),
        }
    }

    fn there(&self, key: &[u8]) -> bool {
        match self.kv.get(key) {
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
        let scanned = self
            .kv
            .scan(&start, &behind(&start), Direction::Forwards, &mut |_, _| {
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

impl Core {
    fn cnode(&self, cid: &CollId) -> Result<Cnode, StoreError> {
        let value = self.kv.get(&cnode_key(cid)).map_err(storage)?;
        let value = value.ok_or(StoreError::NoCollection(*cid))?;
        decoded(&value, "a collection")
    }

    fn onode(&self, cid: &CollId, oid: &GhObject) -> Result<Onode, StoreError> {
        match self.kv.get(&onode_key(cid, oid)).map_err(storage)? {
            Some(value) => decoded(&value, "an onode"),
            None => {
                self.cnode(cid)?;
                Err(StoreError::NoObject)
            }
        }
    }
}

impl blocking::Core for Core {
    fn collections(&self) -> Result<Vec<CollId>, StoreError> {
        let start = Prefix::Collection.key();
        let mut found = Vec::new();
        self.kv
            .scan(
                &start,
                &behind(&start),
                Direction::Forwards,
                &mut |key, _| {
                    found.push(parse_collection_key(&key[start.len()..]));
                    true
                },
            )
            .map_err(storage)?;
        let found: Option<Vec<CollId>> = found.into_iter().collect();
        let mut found = found.ok_or(StoreError::Format("a collection's key"))?;
        found.sort_unstable();
        Ok(found)
    }

    fn collection_bits(&self, cid: &CollId) -> Result<u32, StoreError> {
        Ok(self.cnode(cid)?.bits)
    }

    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> Result<Listing, StoreError> {
        self.cnode(cid)?;
        let mut objects = Vec::new();
        let mut next = end.clone();
        if start < end {
            let limit = match end.is_max() {
                true => behind(&onodes_of(cid)),
                false => onode_key(cid, end),
            };
            let mut bad = false;
            self.kv
                .scan(
                    &onode_key(cid, start),
                    &limit,
                    Direction::Forwards,
                    &mut |key, _| {
                        match object_of(key) {
                            Some(oid) if objects.len() < max => objects.push(oid),
                            Some(oid) => {
                                next = oid;
                                return false;
                            }
                            None => bad = true,
                        }
                        !bad
                    },
                )
                .map_err(storage)?;
            if bad {
                return Err(StoreError::Format("an onode's key"));
            }
        }
        Ok(Listing { objects, next })
    }

    fn stat(&self, cid: &CollId, oid: &GhObject) -> Result<ObjectStat, StoreError> {
        Ok(ObjectStat {
            size: self.onode(cid, oid)?.size,
        })
    }

    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> Result<BufferList, StoreError> {
        let onode = self.onode(cid, oid)?;
        let len = if len == 0 { u64::MAX } else { len };
        let data = apply::read(&Txn::new(&*self.kv, 0), &onode, offset, len)?;
        let mut list = BufferList::new();
        list.push(data);
        Ok(list)
    }

    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Range<u64>>, StoreError> {
        let onode = self.onode(cid, oid)?;
        let stripe_len = u64::from(onode.stripe_size);
        let end = offset.saturating_add(len).min(onode.size);
        let mut found: Vec<Range<u64>> = Vec::new();
        for stripe in onode.present() {
            let (from, to) = (stripe.max(offset), (stripe + stripe_len).min(end));
            match found.last_mut() {
                _ if from >= to => {}
                Some(last) if last.end == from => last.end = to,
                _ => found.push(from..to),
            }
        }
        Ok(found)
    }

    fn getattr(&self, cid: &CollId, oid: &GhObject, name: &[u8]) -> Result<Bytes, StoreError> {
        let attrs = self.onode(cid, oid)?.attrs;
        attrs
            .get(bstr::BStr::new(name))
            .cloned()
            .ok_or(StoreError::NoAttr)
    }

    fn getattrs(&self, cid: &CollId, oid: &GhObject) -> Result<Vec<(BString, Bytes)>, StoreError> {
        Ok(self.onode(cid, oid)?.attrs.into_iter().collect())
    }

    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> Result<Bytes, StoreError> {
        match self.onode(cid, oid)?.omap_head {
            0 => Ok(Bytes::new()),
            omap => {
                let header = self.kv.get(&header_key(omap)).map_err(storage)?;
                Ok(header.unwrap_or_default())
            }
        }
    }

    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> Result<Vec<(BString, Bytes)>, StoreError> {
        let omap = self.onode(cid, oid)?.omap_head;
        let mut found = Vec::new();
        for key in keys.iter().filter(|_| omap != 0) {
            if let Some(value) = self.kv.get(&entry_key(omap, key)).map_err(storage)? {
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
        let omap = self.onode(cid, oid)?.omap_head;
        let (mut page, mut bytes) = (OmapPage::default(), 0);
        if omap == 0 {
            return Ok(page);
        }
        let from = entry_key(omap, &wanted.from);
        self.kv
            .scan(
                &from,
                &tail_key(omap),
                Direction::Forwards,
                &mut |key, value| {
                    let key = &key[ENTRY_KEY_AT..];
                    if wanted.after && key == wanted.from {
                        return true;
                    }
                    wanted.add(&mut page, &mut bytes, key, value)
                },
            )
            .map_err(storage)?;
        Ok(page)
    }

    fn fsck(&self, options: FsckOptions) -> Result<Fsck, StoreError> {
        self.check_keys(options)
    }

    fn statfs(&self) -> Result<Statfs, StoreError> {
        let data = self.totals().data;
        let stored = self.kv.stored_bytes().map_err(storage)?;
        Ok(Statfs {
            total: self.limit,
            available: self.limit.saturating_sub(data),
            allocated: data,
            data_stored: data,
            // Stripes that were replaced stay until the database compacts.
            internal_metadata: stored.saturating_sub(data),
            ..Statfs::default()
        })
    }
}
