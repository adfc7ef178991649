//! The objects of a pool.

use std::collections::BTreeMap;
use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use types::osd::PgNlsResponse;
use types::osd::ops::{self, OsdOp, message_flags};
use types::snap::NOSNAP;
use types::{Errno, HObject, ObjectLocator, PgId, SnapContext, SnapId, UTime};

use crate::client::Client;
use crate::objecter::{Request, request_of};
use crate::operation::decode_stat;
use crate::target::Base;
use crate::{ClientError, Operation, Outcome};

/// The namespace that stands for all of them in listings.
const ALL_NAMESPACES: &[u8] = b"\x01";
/// Entries asked for by one listing op.
const LIST_MAX: u64 = 1024;

/// One object of a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectEntry {
    /// Namespace.
    pub namespace: BString,
    /// Name.
    pub name: BString,
    /// Placement key, empty for none.
    pub locator: BString,
}

/// A pool seen through one namespace, one placement key, one snapshot to read and one context to
/// write under.
#[derive(Debug, Clone)]
pub struct IoCtx {
    client: Client,
    locator: ObjectLocator,
    snap_read: SnapId,
    snapc: SnapContext,
    flags: u32,
}

impl IoCtx {
    pub(crate) fn new(client: Client, pool: i64) -> IoCtx {
        IoCtx {
            client,
            locator: ObjectLocator::pool(pool),
            snap_read: NOSNAP,
            snapc: SnapContext::default(),
            flags: 0,
        }
    }

    /// Another pool and namespace, with the flags of this one.
    pub(crate) fn in_pool(&self, pool: i64, namespace: &BString) -> IoCtx {
        let there = IoCtx::new(self.client.clone(), pool).with_namespace(namespace.clone());
        there.with_flags(self.flags)
    }

    /// The pool's id.
    pub fn pool_id(&self) -> i64 {
        self.locator.pool
    }

    /// The client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The same in a namespace.
    #[must_use]
    pub fn with_namespace(mut self, namespace: impl Into<BString>) -> IoCtx {
        self.locator.namespace = namespace.into();
        self
    }

    /// The same with all namespaces, for listing.
    #[must_use]
    pub fn with_all_namespaces(self) -> IoCtx {
        self.with_namespace(ALL_NAMESPACES)
    }

    /// The same placing objects by this key instead of their names.
    #[must_use]
    pub fn with_locator_key(mut self, key: impl Into<BString>) -> IoCtx {
        self.locator.key = key.into();
        self
    }

    /// The same reading from a snapshot.
    #[must_use]
    pub fn with_snap_read(mut self, snap: SnapId) -> IoCtx {
        self.snap_read = snap;
        self
    }

    /// The same writing under a context of self-managed snapshots.
    #[must_use]
    pub fn with_snap_context(mut self, snapc: SnapContext) -> IoCtx {
        self.snapc = snapc;
        self
    }

    /// The same with flags on every operation (`message_flags::FULL_TRY`, ...).
    #[must_use]
    pub fn with_flags(mut self, flags: u32) -> IoCtx {
        self.flags |= flags;
        self
    }

    pub(crate) fn base_of(&self, object: BString, flags: u32) -> Base {
        Base {
            object,
            locator: self.locator.clone(),
            flags: flags | self.flags,
            copy: 0,
            keeps_watch: false,
        }
    }

    /// The namespace.
    pub fn namespace(&self) -> &BString {
        &self.locator.namespace
    }

    /// Does ops on an object, all or none of them.
    pub async fn operate(
        &self,
        object: impl Into<BString>,
        operation: Operation,
    ) -> Result<Outcome, ClientError> {
        let flags = operation.message_flags() | self.flags;
        let is_write = flags & message_flags::WRITE != 0;
        if is_write && self.snap_read != NOSNAP {
            return Err(Errno::EROFS.into());
        }
        let base = self.base_of(object.into(), flags);
        let snapc = if is_write { self.snapc.clone() } else { SnapContext::default() };
        let request = request_of(base, operation, self.snap_read, snapc)?;
        self.client.objecter().submit(request).await
    }

    /// Writes at an offset; the object's version.
    pub async fn write(
        &self,
        object: impl Into<BString>,
        offset: u64,
        data: Bytes,
    ) -> Result<u64, ClientError> {
        Ok(self.operate(object, Operation::new().write(offset, data)).await?.version)
    }

    /// Replaces the content; the object's version.
    pub async fn write_full(
        &self,
        object: impl Into<BString>,
        data: Bytes,
    ) -> Result<u64, ClientError> {
        Ok(self.operate(object, Operation::new().write_full(data)).await?.version)
    }

    /// Writes at the end; the object's version.
    pub async fn append(
        &self,
        object: impl Into<BString>,
        data: Bytes,
    ) -> Result<u64, ClientError> {
        Ok(self.operate(object, Operation::new().append(data)).await?.version)
    }

    /// Reads up to `len` bytes, fewer at the end; 0 reads to the end.
    pub async fn read(
        &self,
        object: impl Into<BString>,
        offset: u64,
        len: u64,
    ) -> Result<Bytes, ClientError> {
        self.operate(object, Operation::new().read(offset, len)).await?.output(0)
    }

    /// Size and time of the last write.
    pub async fn stat(&self, object: impl Into<BString>) -> Result<(u64, UTime), ClientError> {
        let outcome = self.operate(object, Operation::new().stat()).await?;
        decode_stat(&outcome.output(0)?)
    }

    /// Removes; ENOENT.
    pub async fn remove(&self, object: impl Into<BString>) -> Result<(), ClientError> {
        self.operate(object, Operation::new().remove()).await.map(drop)
    }

    /// Cuts or grows.
    pub async fn truncate(&self, object: impl Into<BString>, size: u64) -> Result<(), ClientError> {
        self.operate(object, Operation::new().truncate(size)).await.map(drop)
    }

    /// Sets an attribute.
    pub async fn setxattr(
        &self,
        object: impl Into<BString>,
        name: &str,
        value: &[u8],
    ) -> Result<(), ClientError> {
        self.operate(object, Operation::new().setxattr(name, value)).await.map(drop)
    }

    /// An attribute; ENODATA.
    pub async fn getxattr(
        &self,
        object: impl Into<BString>,
        name: &str,
    ) -> Result<Bytes, ClientError> {
        self.operate(object, Operation::new().getxattr(name)).await?.output(0)
    }

    /// All attributes.
    pub async fn getxattrs(
        &self,
        object: impl Into<BString>,
    ) -> Result<BTreeMap<BString, Bytes>, ClientError> {
        self.operate(object, Operation::new().getxattrs()).await?.decode(0)
    }

    /// Removes an attribute.
    pub async fn rmxattr(&self, object: impl Into<BString>, name: &str) -> Result<(), ClientError> {
        self.operate(object, Operation::new().rmxattr(name)).await.map(drop)
    }

    /// Sets keys.
    pub async fn omap_set(
        &self,
        object: impl Into<BString>,
        values: &BTreeMap<BString, Bytes>,
    ) -> Result<(), ClientError> {
        self.operate(object, Operation::new().omap_set(values)).await.map(drop)
    }

    /// All keys and values, however many calls it takes.
    pub async fn omap_get(
        &self,
        object: impl Into<BString>,
    ) -> Result<BTreeMap<BString, Bytes>, ClientError> {
        let object = object.into();
        let (mut all, mut after) = (BTreeMap::new(), BString::default());
        loop {
            let ask = Operation::new().omap_get_vals(&after, LIST_MAX, &BString::default());
            let output = self.operate(object.clone(), ask).await?.output(0)?;
            let mut r = denc::Reader::new(&output);
            let page: BTreeMap<BString, Bytes> = r.get()?;
            let more = r.bool()?;
            let Some(last) = page.keys().next_back().cloned() else { return Ok(all) };
            after = last;
            all.extend(page);
            if !more {
                return Ok(all);
            }
        }
    }

    /// Calls a method of an object class that reads.
    pub async fn exec(
        &self,
        object: impl Into<BString>,
        class: &str,
        method: &str,
        input: &[u8],
    ) -> Result<Bytes, ClientError> {
        self.operate(object, Operation::new().exec(class, method, input)).await?.output(0)
    }

    /// Calls a method of an object class that writes.
    pub async fn exec_write(
        &self,
        object: impl Into<BString>,
        class: &str,
        method: &str,
        input: &[u8],
    ) -> Result<(), ClientError> {
        let call = Operation::new().exec(class, method, input).as_write();
        self.operate(object, call).await.map(drop)
    }

    /// Lists objects from a cursor on (the minimum at first): the entries and the next cursor,
    /// which is the maximum at the end. An empty page is not the end.
    pub async fn list_page(
        &self,
        cursor: &HObject,
    ) -> Result<(Vec<ObjectEntry>, HObject), ClientError> {
        let map = self.client.osdmap();
        let pool = map.pool(self.locator.pool).ok_or(ClientError::Errno(Errno::ENOENT))?;
        let pg = pool.raw_pg_to_pg(PgId::new(self.locator.pool as u64, cursor.hash));
        let mut w = denc::Writer::new();
        w.put(cursor);
        let args = ops::PglsArgs { count: LIST_MAX, start_epoch: map.epoch };
        let op = OsdOp::with(ops::PGNLS, args, w.into_bytes());
        let locator = ObjectLocator { hash: pg.seed.into(), ..self.locator.clone() };
        let flags = message_flags::READ | message_flags::PGOP | message_flags::IGNORE_OVERLAY;
        let flags = flags | self.flags;
        let base = Base { object: BString::default(), locator, flags, copy: 0, keeps_watch: false };
        let request =
            Request { base, ops: vec![op], snapid: self.snap_read, snapc: SnapContext::default() };
        let page: PgNlsResponse = self.client.objecter().submit(request).await?.decode(0)?;
        let entry = |e: types::osd::NlsEntry| ObjectEntry {
            namespace: e.namespace,
            name: e.name,
            locator: e.locator,
        };
        Ok((page.entries.into_iter().map(entry).collect(), page.handle))
    }

    /// All objects, in the order of placement.
    pub async fn list(&self) -> Result<Vec<ObjectEntry>, ClientError> {
        let (mut all, mut cursor) = (Vec::new(), HObject::min());
        while !cursor.is_max() {
            let (page, next) = self.list_page(&cursor).await?;
            all.extend(page);
            cursor = next;
        }
        Ok(all)
    }

    /// Waits until everything submitted before has been answered is up to the caller: operations
    /// on one object are done in the order of their calls.
    pub fn osdmap(&self) -> Rc<maps::OsdMap> {
        self.client.osdmap()
    }
}
