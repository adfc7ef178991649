//! copy-get and copy-from: an object is read piece by piece by the primary of its copy
//! (`do_copy_get`, `start_copy`, `finish_copyfrom` in `src/osd/PrimaryLogPG.cc`).
//!
//! Ceph writes the pieces to a temporary object and renames it. Here they are collected first: a
//! copy is one transaction. What is held is bounded: by the largest object, and with names and
//! values, and with what the ops before it hold, by `Limits::held`.

use std::collections::BTreeMap;
use std::mem::replace;
use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::bufferlist::BufferList;
use types::osd::object_info;
use types::osd::ops::{self, AssertVerArgs, copy_from_flags, message_flags};
use types::osd::{ObjectCopyCursor, ObjectCopyData, OsdOp};
use types::{Errno, HObject, NOSNAP, ObjectLocator, OsdReqId, UTime};

use super::execute::write_snapc;
use super::object_context::Found;
use super::op_context::{AttrChange, OpContext, Step, Stop, kb};
use super::pg::{Limits, Pg, RemoteRead};
use super::write::stored_attr;

/// Flags of copy-from2 that are known.
const COPY_FROM_FLAGS: u8 = 0x3f;
/// Requests of the source that a copy takes along.
const REQIDS_MAX: usize = 10;
/// Omap entries of one page asked of the store.
const OMAP_PAGE_MAX: usize = 1024;

fn set_reqids(data: &mut ObjectCopyData, reqids: Vec<(OsdReqId, u64, i32)>) {
    for (position, (reqid, user_version, code)) in (0_u32..).zip(reqids) {
        data.reqids.push((reqid, user_version));
        if code != 0 {
            data.reqid_return_codes.insert(position, code);
        }
    }
}

/// The output of copy-get where there is no object: the requests that removed it.
pub(super) fn absent_reply(pg: &Rc<dyn Pg>, oid: &HObject) -> Bytes {
    let mut data = ObjectCopyData::default();
    set_reqids(&mut data, pg.object_reqids(oid, REQIDS_MAX));
    data.to_bytes()
}

impl OpContext {
    pub(super) async fn op_copy_get(&mut self, op: &mut OsdOp) -> Step {
        self.num_read += 1;
        let mut r = Reader::new(&op.indata);
        let mut cursor: ObjectCopyCursor = r.get().map_err(|_| Errno::EINVAL)?;
        let max = r.u64().map_err(|_| Errno::EINVAL)?;
        let oi = self.obc.obs.borrow().oi.clone();
        if cursor.data_offset > oi.size {
            return Err(Errno::EINVAL.into());
        }
        let mut reply = ObjectCopyData {
            size: oi.size,
            mtime: oi.mtime,
            truncate_seq: oi.truncate_seq,
            truncate_size: oi.truncate_size,
            ..ObjectCopyData::default()
        };
        {
            let ssc = self.obc.ssc.borrow();
            match oi.soid.snap {
                NOSNAP => reply.snap_seq = ssc.snapset.seq,
                clone => {
                    let snaps = ssc.snapset.clone_snaps.get(&clone);
                    reply.snaps = snaps.cloned().unwrap_or_default();
                }
            }
        }
        if oi.is_data_digest() {
            reply.flags |= ObjectCopyData::FLAG_DATA_DIGEST;
            reply.data_digest = oi.data_digest;
        }
        if oi.is_omap_digest() {
            reply.flags |= ObjectCopyData::FLAG_OMAP_DIGEST;
            reply.omap_digest = oi.omap_digest;
        }
        if !cursor.attr_complete {
            reply.attrs = self.user_attrs().await?;
            cursor.attr_complete = true;
        }
        let mut left = max.min(self.limits.object_size);
        if left > 0 && !cursor.data_complete {
            let len = left.min(oi.size - cursor.data_offset);
            if len > 0 {
                reply.data = self.read_data(cursor.data_offset, len).await?.to_contiguous();
            }
            left -= len;
            cursor.data_offset += len;
            cursor.data_complete = cursor.data_offset == oi.size;
        }
        if !oi.is_omap() {
            cursor.omap_complete = true;
        } else if left > 0 && !cursor.omap_complete {
            self.copy_omap(&mut cursor, left, &mut reply).await?;
        }
        if cursor.is_complete() {
            set_reqids(&mut reply, self.pg.object_reqids(&oi.soid, REQIDS_MAX));
        }
        reply.cursor = cursor;
        op.outdata.push(reply.to_bytes());
        Ok(0)
    }

    async fn copy_omap(
        &self,
        cursor: &mut ObjectCopyCursor,
        left: u64,
        reply: &mut ObjectCopyData,
    ) -> Result<(), Errno> {
        let store = self.pg.store().clone();
        let errno = |e: store::StoreError| Errno(e.errno());
        if cursor.omap_offset.is_empty() {
            reply.omap_header = store.omap_header(&self.coll, &self.goid).await.map_err(errno)?;
        }
        let max_bytes = usize::try_from(left).unwrap_or(usize::MAX);
        let from = &cursor.omap_offset;
        let page = store
            .omap_range(&self.coll, &self.goid, from, true, OMAP_PAGE_MAX, max_bytes)
            .await
            .map_err(errno)?;
        if let Some((last, _)) = page.entries.last() {
            cursor.omap_offset = last.clone();
            reply.omap_data = page.entries.to_bytes();
        }
        cursor.omap_complete = !page.more;
        Ok(())
    }

    pub(super) async fn op_copy_from(&mut self, op: &OsdOp) -> Step {
        self.num_write += 1;
        let args = op.args.copy_from();
        let is_second = op.code == ops::COPY_FROM2;
        if is_second && args.flags & !COPY_FROM_FLAGS != 0 {
            return Err(Errno::EINVAL.into());
        }
        let mut r = Reader::new(&op.indata);
        let mut parse = || {
            let (name, locator): (BString, ObjectLocator) = (r.get()?, r.get()?);
            let truncate = is_second && args.flags & copy_from_flags::TRUNCATE_SEQ != 0;
            let truncate = if truncate { Some((u64::from(r.u32()?), r.u64()?)) } else { None };
            Ok::<_, Error>((name, locator, truncate))
        };
        let (name, locator, truncate) = parse().map_err(|_| Errno::EINVAL)?;
        if HObject::new(name.clone(), &locator, args.snapid) == self.obs.oi.soid {
            return Err(Errno::EINVAL.into());
        }
        let mut source = Source {
            read: RemoteRead {
                name,
                locator,
                snap: args.snapid,
                ops: Vec::new(),
                flags: source_flags(args.flags),
            },
            op_flags: args.src_fadvise_flags,
            user_version: args.src_version,
            object: ObjectCopyData::default(),
            data: BufferList::new(),
            omap: BTreeMap::new(),
            bytes: 0,
            room: self.limits.held.saturating_sub(self.held + self.data_len()),
            limits: self.limits.clone(),
        };
        let head = HObject::new(source.read.name.clone(), &source.read.locator, NOSNAP);
        if head == *self.guard.head() {
            self.fetch_clone(&mut source).await?;
        } else {
            self.guard.lend(source.fetch(&self.pg)).await.map_err(Stop::NoSource)?;
            // It took a while: of a snapshot that was removed meanwhile nobody would trim the clone.
            // One that was taken meanwhile comes after this write: that what a clone for it differs
            // in is to be noted was decided before.
            if let Some(snapc) = write_snapc(&self.pg, &self.request) {
                self.snapc.snaps.retain(|snap| snapc.snaps.contains(snap));
            }
        }
        let has_omap = !source.omap.is_empty() || !source.object.omap_header.is_empty();
        if has_omap && self.pool.is_erasure() {
            return Err(Stop::NoSource(Errno::EOPNOTSUPP));
        }
        self.install_copy(source, op.flags, truncate);
        Ok(0)
    }

    /// Reads a clone of this very object, whose lock this vector already holds.
    async fn fetch_clone(&mut self, source: &mut Source) -> Result<(), Stop> {
        let pg = self.pg.clone();
        let raw_clone = source.read.flags & message_flags::MAP_SNAP_CLONE != 0;
        let clone = match self.guard.find(&pg, source.read.snap, raw_clone).await? {
            Found::Object(clone) if clone.obs.borrow().is_visible() => clone,
            Found::Missing(oid) => return Err(Stop::Blocked(oid)),
            Found::Object(_) | Found::Absent => return Err(Stop::NoSource(Errno::ENOENT)),
        };
        let version = clone.obs.borrow().oi.user_version;
        match source.user_version {
            0 => source.user_version = version,
            wanted if wanted < version => return Err(Stop::NoSource(Errno::ERANGE)),
            wanted if wanted > version => return Err(Stop::NoSource(Errno::EOVERFLOW)),
            _ => {}
        }
        let goid = Rc::new(self.pg.goid(&clone.oid()));
        let head = (replace(&mut self.obc, clone), replace(&mut self.goid, goid));
        let mut cursor = ObjectCopyCursor::default();
        let mut result = Ok(());
        while result.is_ok() && !cursor.is_complete() {
            let mut get = OsdOp::new(ops::COPY_GET);
            get.indata = (cursor.clone(), self.limits.copy_chunk).to_bytes();
            result = match self.op_copy_get(&mut get).await {
                Ok(_) => source
                    .take_output(&get.outdata.to_contiguous(), &mut cursor)
                    .map_err(Stop::NoSource),
                Err(Stop::Errno(errno)) => Err(Stop::NoSource(errno)),
                Err(stop) => Err(stop),
            };
        }
        (self.obc, self.goid) = head;
        result
    }

    fn install_copy(&mut self, source: Source, flags: u32, truncate: Option<(u64, u64)>) {
        let Source { object, data, omap, user_version, bytes, .. } = source;
        self.held += bytes;
        if self.obs.exists {
            self.t.remove(&self.coll, &self.goid);
        } else {
            self.stats.num_objects += 1;
            self.obs.exists = true;
        }
        let (coll, goid) = (self.coll, self.goid.clone());
        self.t.touch(&coll, &goid);
        if !data.is_empty() {
            self.t.add_fadvise_flags(flags);
            self.t.write_list(&coll, &goid, 0, &data);
        }
        self.attr_changes.push(AttrChange::Clear);
        for (name, value) in object.attrs {
            self.t.setattr(&coll, &goid, stored_attr(&name), value.clone());
            self.attr_changes.push(AttrChange::One(name, Some(value)));
        }
        let has_omap = !omap.is_empty() || !object.omap_header.is_empty();
        if !object.omap_header.is_empty() {
            self.t.omap_setheader(&coll, &goid, object.omap_header);
        }
        if !omap.is_empty() {
            self.t.omap_setkeys(&coll, &goid, omap);
        }

        let old_size = self.obs.oi.size;
        let size = data.len() as u64;
        self.mark_modified(0, old_size);
        self.mark_data_dirty(0, old_size.max(size));
        // Also where the copy has none: there may be one that goes.
        self.clean.mark_omap_dirty();
        self.set_size(size);
        // A copy is the same version of the object to clients.
        self.user_at_version = user_version;
        let oi = &mut self.obs.oi;
        oi.user_version = user_version;
        match object.flags & ObjectCopyData::FLAG_DATA_DIGEST {
            0 => oi.clear_data_digest(),
            _ => oi.set_data_digest(object.data_digest),
        }
        match object.flags & ObjectCopyData::FLAG_OMAP_DIGEST {
            0 => oi.clear_omap_digest(),
            _ => oi.set_omap_digest(object.omap_digest),
        }
        let (seq, truncate_size) = truncate.unwrap_or((object.truncate_seq, object.truncate_size));
        oi.truncate_seq = seq;
        oi.truncate_size = truncate_size;
        oi.mtime = object.mtime;
        self.mtime = UTime::ZERO;
        if oi.is_whiteout() {
            oi.clear_flag(object_info::FLAG_WHITEOUT);
            self.stats.num_whiteouts -= 1;
        }
        if has_omap {
            oi.set_flag(object_info::FLAG_OMAP);
        } else {
            oi.clear_flag(object_info::FLAG_OMAP);
        }
        for (position, (reqid, user_version)) in (0_u32..).zip(object.reqids) {
            let code = object.reqid_return_codes.get(&position).copied().unwrap_or(0);
            self.extra_reqids.push((reqid, user_version, code));
        }
        self.stats.num_wr += 1;
        self.stats.num_wr_kb += kb(size);
    }
}

fn source_flags(copy_flags: u8) -> u32 {
    [
        (copy_from_flags::FLUSH, message_flags::FLUSH),
        (copy_from_flags::IGNORE_CACHE, message_flags::IGNORE_CACHE),
        (copy_from_flags::IGNORE_OVERLAY, message_flags::IGNORE_OVERLAY),
        (copy_from_flags::MAP_SNAP_CLONE, message_flags::MAP_SNAP_CLONE),
        (copy_from_flags::RWORDERED, message_flags::RWORDERED),
    ]
    .into_iter()
    .filter(|(copy_flag, _)| copy_flags & copy_flag != 0)
    .fold(0, |flags, (_, flag)| flags | flag)
}

/// The source of a copy, as far as it has been read.
struct Source {
    read: RemoteRead,
    op_flags: u32,
    /// The version copied; 0 until the first piece tells.
    user_version: u64,
    object: ObjectCopyData,
    data: BufferList,
    omap: BTreeMap<BString, Bytes>,
    /// Of its names and values, of xattrs and of omap.
    bytes: u64,
    /// Bytes it may have in all.
    room: u64,
    limits: Rc<Limits>,
}

impl Source {
    /// Reads it all. A source that changes meanwhile is `ERANGE`.
    async fn fetch(&mut self, pg: &Rc<dyn Pg>) -> Result<(), Errno> {
        let mut cursor = ObjectCopyCursor::default();
        while !cursor.is_complete() {
            let mut w = Writer::new();
            w.put(&cursor);
            w.u64(self.limits.copy_chunk);
            let mut get = OsdOp::new(ops::COPY_GET);
            get.indata = w.into_bytes();
            get.flags = self.op_flags;
            let mut read = self.read.clone();
            if self.user_version != 0 {
                let version = AssertVerArgs { unused: 0, version: self.user_version };
                read.ops.push(OsdOp::with(ops::ASSERT_VER, version, Bytes::new()));
            }
            read.ops.push(get);
            let reply = pg.read_remote(read).await?;
            if let Some(errno) = Errno::from_result(reply.result) {
                return Err(errno);
            }
            let (_, output) = reply.ops.into_iter().next_back().ok_or(Errno::EIO)?;
            if self.user_version == 0 {
                self.user_version = reply.user_version;
            }
            self.take_output(&output, &mut cursor)?;
        }
        Ok(())
    }

    /// Takes the output of a copy-get and moves the cursor.
    fn take_output(&mut self, output: &Bytes, cursor: &mut ObjectCopyCursor) -> Result<(), Errno> {
        let piece = ObjectCopyData::from_bytes(output).map_err(|_| Errno::EIO)?;
        if piece.cursor == *cursor {
            return Err(Errno::EIO); // it would never end
        }
        *cursor = piece.cursor.clone();
        self.take(piece)
    }

    fn take(&mut self, mut piece: ObjectCopyData) -> Result<(), Errno> {
        self.data.push(core::mem::take(&mut piece.data));
        let pair = |(name, value): (&BString, &Bytes)| (name.len() + value.len()) as u64;
        self.bytes += piece.attrs.iter().map(pair).sum::<u64>();
        self.bytes += piece.omap_header.len() as u64;
        if !piece.omap_data.is_empty() {
            let entries: BTreeMap<BString, Bytes> =
                BTreeMap::from_bytes(&piece.omap_data).map_err(|_| Errno::EIO)?;
            self.bytes += entries.iter().map(pair).sum::<u64>();
            self.omap.extend(entries);
        }
        let data = self.data.len() as u64;
        if data > self.limits.object_size || data + self.bytes > self.room {
            return Err(Errno::EFBIG);
        }
        if piece.attrs.is_empty() {
            piece.attrs = core::mem::take(&mut self.object.attrs);
        }
        if piece.omap_header.is_empty() {
            piece.omap_header = core::mem::take(&mut self.object.omap_header);
        }
        self.object = piece;
        Ok(())
    }
}
