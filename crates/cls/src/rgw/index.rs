//! Changes of a bucket index: made, prepared before an object is written, completed after.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::Errno;

use super::bilog::{self, LogEntry};
use super::entry::{
    DirEntry, EntryMeta, EntryVer, FLAG_VER, FLAG_VER_MARKER, ModifyOp, PendingInfo, STATE_PENDING,
};
use super::header::{CategoryStats, DirHeader};
use super::key::{self, ObjKey};
use crate::{ObjectContext, argument, stored};

/// Argument of `bucket_set_tag_timeout`. Wire: rgw_cls_tag_timeout_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct TagTimeoutOp {
    /// Seconds, 0 for the default.
    pub tag_timeout: u64,
}

/// Argument of `bucket_update_stats`. Wire: rgw_cls_bucket_update_stats_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct UpdateStatsOp {
    /// Whether to replace the sums, not add to them.
    pub absolute: bool,
    /// Sums by category.
    pub stats: BTreeMap<u8, CategoryStats>,
}

/// Argument of `bucket_prepare_op`. Wire: rgw_cls_obj_prepare_op v7.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 7, compat = 5, oldest = 5)]
pub struct PrepareOp {
    /// What is about to happen.
    pub op: ModifyOp,
    /// Tag of the change.
    pub tag: BString,
    /// Locator of the object's head.
    pub locator: BString,
    /// Whether the change is to be logged.
    pub log_op: bool,
    /// The object.
    pub key: ObjKey,
    /// Flags of the log entry.
    #[denc(since = 6)]
    pub bilog_flags: u16,
    /// Zones the change has gone through.
    #[denc(since = 7)]
    pub zones_trace: Vec<BString>,
}

/// Argument of `bucket_complete_op`. Wire: rgw_cls_obj_complete_op v9.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompleteOp {
    /// What has happened.
    pub op: ModifyOp,
    /// The object.
    pub key: ObjKey,
    /// Locator of the object's head.
    pub locator: BString,
    /// Version of the object's head.
    pub ver: EntryVer,
    /// What listings show.
    pub meta: EntryMeta,
    /// Tag of the change, as it was prepared; empty if it was not.
    pub tag: BString,
    /// Whether the change is to be logged.
    pub log_op: bool,
    /// Flags of the log entry.
    pub bilog_flags: u16,
    /// Entries to remove besides, as those of an upload's parts.
    pub remove_objs: Vec<ObjKey>,
    /// Zones the change has gone through.
    pub zones_trace: Vec<BString>,
}

impl Denc for CompleteOp {
    fn encode(&self, w: &mut Writer) {
        w.envelope(9, 7, |w| {
            w.put(&self.op);
            w.u64(self.ver.epoch);
            w.put(&self.meta);
            w.put(&self.tag);
            w.put(&self.locator);
            w.put(&self.remove_objs);
            w.put(&self.ver);
            w.bool(self.log_op);
            w.put(&self.key);
            w.u16(self.bilog_flags);
            w.put(&self.zones_trace);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<CompleteOp, Error> {
        r.envelope("CompleteOp", 9, 7, |r, v| {
            let mut op = CompleteOp { op: r.get()?, ..CompleteOp::default() };
            r.u64()?; // the version, before it had a pool
            op.meta = r.get()?;
            op.tag = r.get()?;
            op.locator = r.get()?;
            op.remove_objs = r.get()?;
            op.ver = r.get()?;
            op.log_op = r.bool()?;
            op.key = r.get()?;
            if v >= 8 {
                op.bilog_flags = r.u16()?;
            }
            if v >= 9 {
                op.zones_trace = r.get()?;
            }
            Ok(op)
        })
    }
}

/// An entry's value; `None` where there is none.
pub(super) async fn read<T: Denc>(
    ctx: &mut dyn ObjectContext,
    index_key: &[u8],
) -> Result<Option<T>, Errno> {
    match ctx.omap_val(index_key).await {
        Err(Errno::ENOENT) => Ok(None),
        other => stored(&other?).map(Some),
    }
}

/// Writes a value under a key.
pub(super) async fn write(
    ctx: &mut dyn ObjectContext,
    index_key: BString,
    value: &impl Denc,
) -> Result<(), Errno> {
    ctx.omap_set(BTreeMap::from([(index_key, value.to_bytes())])).await
}

/// Where the entry of an object is, and the entry. Where the plain entry only says that there are
/// versions, the null version's is taken (or, if `or_marker` and there is one, the null delete
/// marker's), and its key given even if it is not there.
pub(super) async fn read_entry(
    ctx: &mut dyn ObjectContext,
    object: &ObjKey,
    or_marker: bool,
) -> Result<(BString, Option<DirEntry>), Errno> {
    let index_key = key::entry_key(object);
    let entry: Option<DirEntry> = read(ctx, &index_key).await?;
    let has_versions = entry.as_ref().is_some_and(|entry| entry.flags & FLAG_VER_MARKER != 0);
    if !object.instance.is_empty() || !has_versions {
        return Ok((index_key, entry));
    }
    if or_marker {
        let marker_key = key::delete_marker_key(object);
        // One that cannot be read counts as none.
        if let Ok(Some(marker)) = read(ctx, &marker_key).await {
            return Ok((marker_key, Some(marker)));
        }
    }
    let null_key = key::instance_key(object);
    let entry = read(ctx, &null_key).await?;
    Ok((null_key, entry))
}

pub(super) async fn init(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<(), Errno> {
    if !ctx.omap_header().await?.is_empty() {
        return Err(Errno::EINVAL);
    }
    DirHeader::default().store(ctx).await
}

pub(super) async fn set_tag_timeout(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let op: TagTimeoutOp = argument(input)?;
    let mut header = DirHeader::load(ctx).await?;
    header.tag_timeout = op.tag_timeout;
    header.store(ctx).await
}

pub(super) async fn update_stats(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: UpdateStatsOp = argument(input)?;
    let mut header = DirHeader::load(ctx).await?;
    for (category, stats) in op.stats {
        let sums = header.stats_of(category);
        if op.absolute {
            *sums = stats;
        } else {
            sums.add_stats(&stats);
        }
    }
    header.store(ctx).await
}

pub(super) async fn prepare(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: PrepareOp = argument(input)?;
    if op.tag.is_empty() {
        return Err(Errno::EINVAL);
    }
    let (index_key, entry) = read_entry(ctx, &op.key, false).await?;
    let mut entry = entry.unwrap_or_else(|| DirEntry {
        key: op.key,
        locator: op.locator,
        ..DirEntry::default()
    });
    let info = PendingInfo { state: STATE_PENDING, timestamp: ctx.now(), op: op.op };
    entry.add_pending(op.tag, info);
    write(ctx, index_key, &entry).await
}

pub(super) async fn complete(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let mut op: CompleteOp = argument(input)?;
    let mut header = DirHeader::load(ctx).await.map_err(|_| Errno::EINVAL)?;
    let (index_key, found) = read_entry(ctx, &op.key, false).await?;
    let on_disk = found.is_some();
    let mut entry = found.unwrap_or_else(|| DirEntry {
        key: op.key.clone(),
        ver: op.ver.clone(),
        meta: op.meta.clone(),
        locator: op.locator.clone(),
        ..DirEntry::default()
    });
    entry.index_ver = header.ver;
    // It may have been a delete marker.
    entry.flags &= FLAG_VER;
    if !op.tag.is_empty() && !entry.take_pending(&op.tag) {
        return Err(Errno::EINVAL);
    }
    let is_old =
        op.ver.pool == entry.ver.pool && op.ver.epoch != 0 && op.ver.epoch <= entry.ver.epoch;
    if is_old {
        op.op = ModifyOp::CANCEL;
    }
    let is_logged = op.log_op && !header.syncstopped;
    entry.ver = op.ver.clone();
    let changed = match op.op {
        ModifyOp::CANCEL => {
            cancel(ctx, &op, index_key, &entry).await?;
            false
        }
        ModifyOp::DEL => {
            header.unaccount(&entry);
            entry.meta = op.meta.clone();
            if on_disk {
                remove(ctx, index_key, &mut entry).await?;
            }
            on_disk
        }
        ModifyOp::ADD => {
            header.unaccount(&entry);
            header.stats_of(op.meta.category).add(&op.meta);
            entry.meta = op.meta.clone();
            entry.key = op.key.clone();
            entry.exists = true;
            entry.tag = op.tag.clone();
            write(ctx, index_key, &entry).await?;
            true
        }
        _ => true,
    };
    if is_logged && changed {
        let log_entry = LogEntry {
            tag: op.tag,
            bilog_flags: op.bilog_flags,
            zones_trace: op.zones_trace,
            ..LogEntry::of(op.op, op.key, &entry, header.ver)
        };
        bilog::append(ctx, &mut header, log_entry).await?;
    }
    for object in op.remove_objs {
        remove_besides(ctx, &mut header, object, is_logged).await?;
    }
    header.store(ctx).await
}

/// Takes back what was prepared: the entry goes with the last change under way of an object that
/// is not there (a removal has won the race).
async fn cancel(
    ctx: &mut dyn ObjectContext,
    op: &CompleteOp,
    index_key: BString,
    entry: &DirEntry,
) -> Result<(), Errno> {
    if op.tag.is_empty() {
        Ok(())
    } else if !entry.exists && entry.pending.is_empty() {
        ctx.omap_rm(&index_key).await
    } else {
        write(ctx, index_key, entry).await
    }
}

/// The object is gone; the entry stays while other changes are under way.
async fn remove(
    ctx: &mut dyn ObjectContext,
    index_key: BString,
    entry: &mut DirEntry,
) -> Result<(), Errno> {
    if entry.pending.is_empty() {
        return ctx.omap_rm(&index_key).await;
    }
    entry.exists = false;
    write(ctx, index_key, entry).await
}

/// An upload's parts go when it is complete, which it is even if one of them has no entry.
async fn remove_besides(
    ctx: &mut dyn ObjectContext,
    header: &mut DirHeader,
    object: ObjKey,
    is_logged: bool,
) -> Result<(), Errno> {
    let Ok((index_key, Some(entry))) = read_entry(ctx, &object, false).await else {
        return Ok(());
    };
    header.unaccount(&entry);
    if is_logged {
        header.ver = header.ver.wrapping_add(1);
        let log_entry = LogEntry {
            tag: BString::default(),
            ..LogEntry::of(ModifyOp::DEL, object, &entry, header.ver)
        };
        bilog::append(ctx, header, log_entry).await?;
    }
    ctx.omap_rm(&index_key).await
}
