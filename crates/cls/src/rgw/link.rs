//! `bucket_link_olh` and `bucket_unlink_instance`: a version comes or goes, and another may become
//! the current one.

use bstr::{BStr, BString};
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::{Errno, UTime};

use super::bilog::{self, FLAG_VERSIONED_OP, LogEntry};
use super::entry::{EntryMeta, EntryVer, ModifyOp};
use super::header::DirHeader;
use super::index;
use super::key::{self, ObjKey};
use super::olh::{self, OlhEntry};
use super::version::{self, PLAIN_EPOCH, Version};
use crate::{ObjectContext, argument};

/// Argument of `bucket_link_olh`. Wire: rgw_cls_link_olh_op v5.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinkOp {
    /// The version.
    pub key: ObjKey,
    /// Tag of the head.
    pub olh_tag: BString,
    /// Whether the version is a delete marker, which comes into being here.
    pub delete_marker: bool,
    /// Tag of the change.
    pub op_tag: BString,
    /// What listings show, of a delete marker.
    pub meta: EntryMeta,
    /// Epoch of the change, 0 for the next one.
    pub olh_epoch: u64,
    /// Whether the change is to be logged.
    pub log_op: bool,
    /// Flags of the log entry.
    pub bilog_flags: u16,
    /// Nothing is done if the version is not older, unless zero.
    pub unmod_since: UTime,
    /// Whether nanoseconds count.
    pub high_precision_time: bool,
    /// Zones the change has gone through.
    pub zones_trace: Vec<BString>,
}

impl Denc for LinkOp {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 1, |w| {
            w.put(&self.key);
            w.put(&self.olh_tag);
            w.bool(self.delete_marker);
            w.put(&self.op_tag);
            w.put(&self.meta);
            w.u64(self.olh_epoch);
            w.bool(self.log_op);
            w.u16(self.bilog_flags);
            w.u64(self.unmod_since.sec.into());
            w.put(&self.unmod_since);
            w.bool(self.high_precision_time);
            w.put(&self.zones_trace);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<LinkOp, Error> {
        r.envelope("LinkOp", 5, 5, |r, _| {
            let mut op = LinkOp { key: r.get()?, olh_tag: r.get()?, ..LinkOp::default() };
            op.delete_marker = r.bool()?;
            op.op_tag = r.get()?;
            op.meta = r.get()?;
            op.olh_epoch = r.u64()?;
            op.log_op = r.bool()?;
            op.bilog_flags = r.u16()?;
            r.u64()?; // the time, before it had nanoseconds
            op.unmod_since = r.get()?;
            op.high_precision_time = r.bool()?;
            op.zones_trace = r.get()?;
            Ok(op)
        })
    }
}

/// Argument of `bucket_unlink_instance`. Wire: rgw_cls_unlink_instance_op v3.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 3, compat = 1)]
pub struct UnlinkOp {
    /// The version.
    pub key: ObjKey,
    /// Tag of the change.
    pub op_tag: BString,
    /// Epoch of the change, 0 for the next one.
    pub olh_epoch: u64,
    /// Whether the change is to be logged.
    pub log_op: bool,
    /// Flags of the log entry.
    pub bilog_flags: u16,
    /// Tag of the head.
    #[denc(since = 2)]
    pub olh_tag: BString,
    /// Zones the change has gone through.
    #[denc(since = 3)]
    pub zones_trace: Vec<BString>,
}

async fn load_olh(ctx: &mut dyn ObjectContext, name: &[u8]) -> Result<Option<OlhEntry>, Errno> {
    index::read(ctx, &key::olh_key(name)).await
}

async fn store_olh(ctx: &mut dyn ObjectContext, name: &[u8], olh: &OlhEntry) -> Result<(), Errno> {
    index::write(ctx, key::olh_key(name), olh).await
}

/// Logs the change of a version, unless the log is stopped.
async fn log(ctx: &mut dyn ObjectContext, entry: LogEntry) -> Result<(), Errno> {
    let mut header = DirHeader::load(ctx).await?;
    if header.syncstopped {
        return Ok(());
    }
    let bilog_flags = entry.bilog_flags | FLAG_VERSIONED_OP;
    let entry = LogEntry { bilog_flags, index_ver: header.ver, ..entry };
    bilog::append(ctx, &mut header, entry).await?;
    header.store(ctx).await
}

/// Whether the version is too young for the op to be done.
fn is_modified_since(op: &LinkOp, mut mtime: UTime) -> bool {
    let mut since = op.unmod_since;
    if since.is_zero() {
        return false;
    }
    if !op.high_precision_time {
        (mtime.nsec, since.nsec) = (0, 0);
    }
    mtime >= since
}

/// The null version and the null delete marker are one version with two entries: the new one
/// replaces the other. Whether an object goes with that.
async fn replace_null(ctx: &mut dyn ObjectContext, op: &LinkOp) -> Result<bool, Errno> {
    let mut other = Version::new(&op.key);
    let found = other.load(ctx, !op.delete_marker).await?;
    let is_marker = other.entry.is_delete_marker();
    if found && is_marker != op.delete_marker {
        other.unlink_list_entry(ctx).await?;
    }
    let removing = found && !is_marker && op.delete_marker;
    if !removing {
        other.unlink(ctx).await?;
    }
    Ok(removing)
}

/// Brings the OLH to the head of this tag and takes its current flag from the version that had it.
async fn take_over(
    ctx: &mut dyn ObjectContext,
    op: &LinkOp,
    olh: &mut OlhEntry,
    promote: bool,
) -> Result<(), Errno> {
    if op.olh_tag != olh.tag {
        if !olh.pending_removal {
            return Err(Errno::ECANCELED);
        }
        // The head was removed, and this is a new one.
        olh.tag = op.olh_tag.clone();
    }
    if promote && olh.exists && olh.key != op.key {
        Version::new(&olh.key).demote(ctx).await?;
    }
    olh.pending_removal = false;
    Ok(())
}

pub(super) async fn link(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: LinkOp = argument(input)?;
    let mut version = Version::new(&op.key);
    let existed = version.load(ctx, op.delete_marker).await?;
    if !existed && !op.delete_marker {
        return Err(Errno::ENOENT);
    }
    if existed && is_modified_since(&op, version.entry.meta.mtime) {
        return Ok(());
    }
    let found = load_olh(ctx, &op.key.name).await?;
    // A delete without a version id comes with a new random one; one marker on top is enough.
    if !existed && found.as_ref().is_some_and(|olh| olh.delete_marker) {
        return Err(Errno::ENOENT);
    }
    let removing = if op.key.instance.is_empty() {
        replace_null(ctx, &op).await?
    } else {
        existed && !version.entry.is_delete_marker() && op.delete_marker
    };
    if op.delete_marker {
        version.become_delete_marker(op.meta.clone());
    }
    let is_new = found.is_none();
    let mut olh = found.unwrap_or_default();
    let prev_epoch = olh.epoch;
    if !olh.start_modify(op.olh_epoch) {
        return version.write(ctx, op.olh_epoch, false).await;
    }
    // Of two changes of one epoch the version that sorts first wins, in every zone.
    let promote =
        olh.epoch > prev_epoch || olh.epoch == prev_epoch && olh.key.instance >= op.key.instance;
    if is_new {
        let is_hidden = op.key.instance.is_empty() && op.delete_marker;
        version::convert_plain(ctx, BStr::new(&op.key.name), promote, is_hidden).await?;
        olh.tag = op.olh_tag.clone();
        if op.key.instance.is_empty() {
            version.entry.versioned_epoch = PLAIN_EPOCH;
        }
    } else {
        take_over(ctx, &op, &mut olh, promote).await?;
    }
    olh.log(olh::LINK_OLH, &op.op_tag, &op.key, op.delete_marker);
    if removing {
        olh.log(olh::REMOVE_INSTANCE, &op.op_tag, &op.key, false);
    }
    if promote {
        olh.key = op.key.clone();
        olh.delete_marker = op.delete_marker;
    }
    olh.exists = true;
    store_olh(ctx, &op.key.name, &olh).await?;
    version.write(ctx, olh.epoch, promote).await?;
    if op.log_op { log(ctx, link_entry(op, version.entry.meta, olh.epoch)).await } else { Ok(()) }
}

/// What the log says of a link; only of a delete marker whose it is, as that has no head to look at.
fn link_entry(op: LinkOp, meta: EntryMeta, epoch: u64) -> LogEntry {
    let (owner, owner_display_name) = match op.delete_marker {
        true => (meta.owner, meta.owner_display_name),
        false => Default::default(),
    };
    LogEntry {
        object: op.key.name,
        instance: op.key.instance,
        timestamp: meta.mtime,
        ver: EntryVer { epoch, ..EntryVer::default() },
        op: if op.delete_marker { ModifyOp::LINK_OLH_DM } else { ModifyOp::LINK_OLH },
        tag: op.op_tag,
        bilog_flags: op.bilog_flags,
        owner,
        owner_display_name,
        zones_trace: op.zones_trace,
        ..LogEntry::default()
    }
}

/// The current version goes: the next one takes its place, if there is one.
async fn promote_next(
    ctx: &mut dyn ObjectContext,
    op_tag: &BString,
    version: &Version,
    olh: &mut OlhEntry,
) -> Result<(), Errno> {
    if let Some(key) = version.next(ctx).await? {
        let mut next = Version::new(&key);
        next.write(ctx, olh.epoch, true).await?;
        olh.delete_marker = next.entry.is_delete_marker();
        olh.log(olh::LINK_OLH, op_tag, &key, olh.delete_marker);
        olh.key = key;
    } else {
        // The name stays: resharding places the OLH by it.
        let key = ObjKey::of_name(olh.key.name.clone());
        olh.log(olh::UNLINK_OLH, op_tag, &key, false);
        olh.key = key;
        olh.delete_marker = false;
        olh.exists = false;
        olh.pending_removal = true;
    }
    Ok(())
}

pub(super) async fn unlink(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: UnlinkOp = argument(input)?;
    let key = op.key.without_null();
    let mut version = Version::new(&key);
    if !version.load(ctx, true).await? {
        // Someone was faster.
        return Ok(());
    }
    let is_marker = version.entry.is_delete_marker();
    let mut olh = match load_olh(ctx, &key.name).await? {
        Some(olh) => olh,
        None => {
            version::convert_plain(ctx, BStr::new(&key.name), true, false).await?;
            version.entry.versioned_epoch = PLAIN_EPOCH;
            OlhEntry { key: key.clone(), tag: op.olh_tag.clone(), ..OlhEntry::default() }
        }
    };
    if !olh.start_modify(op.olh_epoch) {
        version.unlink_list_entry(ctx).await?;
        if is_marker {
            return Ok(());
        }
        olh.log_at(op.olh_epoch, olh::REMOVE_INSTANCE, &op.op_tag, &op.key, false);
        return store_olh(ctx, &key.name, &olh).await;
    }
    if olh.key == key {
        promote_next(ctx, &op.op_tag, &version, &mut olh).await?;
    }
    if is_marker {
        // A delete marker has no object; its entry goes here.
        version.unlink(ctx).await?;
    } else {
        olh.log(olh::REMOVE_INSTANCE, &op.op_tag, &op.key, false);
    }
    version.unlink_list_entry(ctx).await?;
    store_olh(ctx, &key.name, &olh).await?;
    if !op.log_op {
        return Ok(());
    }
    let log_entry = LogEntry {
        object: op.key.name,
        instance: op.key.instance,
        timestamp: version.entry.meta.mtime,
        ver: EntryVer { epoch: olh.epoch, ..EntryVer::default() },
        op: ModifyOp::UNLINK_INSTANCE,
        tag: op.op_tag,
        bilog_flags: op.bilog_flags,
        zones_trace: op.zones_trace,
        ..LogEntry::default()
    };
    log(ctx, log_entry).await
}
