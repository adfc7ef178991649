//! The bucket index log: what other zones replay, in omap behind the header's version.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::{Errno, UTime};

use super::entry::{DirEntry, EntryVer, ModifyOp, STATE_COMPLETE};
use super::header::DirHeader;
use super::key::ObjKey;
use super::{key, packed};
use crate::{ObjectContext, argument, stored};

/// Flag of entries about versions.
pub const FLAG_VERSIONED_OP: u16 = 0x1;

/// An entry. Wire: rgw_bi_log_entry v4.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogEntry {
    /// The key without its prefix.
    pub id: BString,
    /// Name of the object.
    pub object: BString,
    /// Its version.
    pub instance: BString,
    /// The object's mtime.
    pub timestamp: UTime,
    /// Version of its head.
    pub ver: EntryVer,
    /// What happened.
    pub op: ModifyOp,
    /// [`STATE_COMPLETE`].
    pub state: u8,
    /// The header's version.
    pub index_ver: u64,
    /// Tag of the change.
    pub tag: BString,
    /// [`FLAG_VERSIONED_OP`] or none.
    pub bilog_flags: u16,
    /// Owner, of a delete marker.
    pub owner: BString,
    /// Owner's name, of a delete marker.
    pub owner_display_name: BString,
    /// Zones the change has gone through.
    pub zones_trace: Vec<BString>,
}

impl Denc for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.put(&self.id);
            w.put(&self.object);
            w.put(&self.timestamp);
            w.put(&self.ver);
            w.put(&self.tag);
            w.put(&self.op);
            w.u8(self.state);
            packed::put(w, self.index_ver);
            w.put(&self.instance);
            w.u16(self.bilog_flags);
            w.put(&self.owner);
            w.put(&self.owner_display_name);
            w.put(&self.zones_trace);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<LogEntry, Error> {
        r.envelope("LogEntry", 4, 4, |r, _| {
            let mut e = LogEntry { id: r.get()?, object: r.get()?, ..LogEntry::default() };
            e.timestamp = r.get()?;
            e.ver = r.get()?;
            e.tag = r.get()?;
            e.op = r.get()?;
            e.state = r.u8()?;
            e.index_ver = packed::get(r)?;
            e.instance = r.get()?;
            e.bilog_flags = r.u16()?;
            e.owner = r.get()?;
            e.owner_display_name = r.get()?;
            e.zones_trace = r.get()?;
            Ok(e)
        })
    }
}

impl LogEntry {
    /// What happened to an object with that entry, at a version of the header.
    pub(super) fn of(op: ModifyOp, key: ObjKey, entry: &DirEntry, index_ver: u64) -> LogEntry {
        LogEntry {
            object: key.name,
            instance: key.instance,
            timestamp: entry.meta.mtime,
            ver: entry.ver.clone(),
            op,
            index_ver,
            tag: entry.tag.clone(),
            ..LogEntry::default()
        }
    }
}

/// Writes an entry of a change that is done: fills in id and index version, and keeps the
/// header's highest id, which the caller stores.
pub(super) async fn append(
    ctx: &mut dyn ObjectContext,
    header: &mut DirHeader,
    mut entry: LogEntry,
) -> Result<(), Errno> {
    entry.state = STATE_COMPLETE;
    entry.id = format!("{:011}.{}", header.ver, ctx.subop_version()).into();
    let bytes = entry.to_bytes();
    let log_key = key::log_key(&entry.id);
    if entry.id > header.max_marker {
        header.max_marker = entry.id;
    }
    ctx.omap_set(BTreeMap::from([(log_key, bytes)])).await
}

/// Argument of `bi_log_list`. Wire: cls_rgw_bi_log_list_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListOp {
    /// After this id.
    pub marker: BString,
    /// At most this many.
    pub max: u32,
}

/// Reply of `bi_log_list`. Wire: cls_rgw_bi_log_list_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListRet {
    /// In the order of their ids.
    pub entries: Vec<LogEntry>,
    /// Whether there are more.
    pub truncated: bool,
}

/// Argument of `bi_log_trim`. Wire: cls_rgw_bi_log_trim_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct TrimOp {
    /// Behind this id.
    pub start_marker: BString,
    /// Up to and with this id, or all.
    pub end_marker: BString,
}

pub(super) async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ListOp = argument(input)?;
    let after = key::log_key(&op.marker);
    let (vals, truncated) = ctx.omap_vals(&after, b"", op.max.into()).await?;
    let mut ret = ListRet { entries: Vec::new(), truncated };
    for (log_key, value) in vals {
        if log_key > key::LOG_END {
            ret.truncated = false;
            break;
        }
        ret.entries.push(stored(&value)?);
    }
    Ok(ret.to_bytes())
}

pub(super) async fn trim(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: TrimOp = argument(input)?;
    let after = key::log_key(&op.start_marker);
    let end = if op.end_marker.is_empty() {
        BString::from(key::LOG_END)
    } else {
        let mut end = key::log_key(&op.end_marker);
        end.push(0);
        end
    };
    let (keys, _) = ctx.omap_keys(&after, 1).await?;
    match keys.first() {
        Some(first) if end >= *first => ctx.omap_rm_range(first, &end).await,
        _ => Err(Errno::ENODATA),
    }
}

/// Writes an entry about the log itself. Unlike others' its `index_ver` stays 0.
async fn mark(ctx: &mut dyn ObjectContext, op: ModifyOp, stopped: bool) -> Result<(), Errno> {
    let mut header = DirHeader::load(ctx).await?;
    let entry = LogEntry { timestamp: ctx.now(), op, ..LogEntry::default() };
    append(ctx, &mut header, entry).await?;
    header.syncstopped = stopped;
    header.store(ctx).await
}

pub(super) async fn resync(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<(), Errno> {
    mark(ctx, ModifyOp::RESYNC, false).await
}

pub(super) async fn stop(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<(), Errno> {
    mark(ctx, ModifyOp::SYNCSTOP, true).await
}
