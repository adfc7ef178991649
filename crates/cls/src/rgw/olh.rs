//! The OLH of a versioned name (object logical head): which version is the current one, and the
//! log by which gateways bring the head object after it.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::entry::{DirEntry, FLAG_VER_MARKER};
use super::index;
use super::key::{self, ObjKey};
use crate::{ObjectContext, argument};

/// Epochs of one reply of the log.
const LOG_MAX: usize = 1000;

/// The head shall point to the version.
pub const LINK_OLH: u8 = 1;
/// There is no version any more.
pub const UNLINK_OLH: u8 = 2;
/// The version's object shall go.
pub const REMOVE_INSTANCE: u8 = 3;

/// A step of the log. Wire: rgw_bucket_olh_log_entry v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct OlhLogEntry {
    /// Epoch of the change.
    pub epoch: u64,
    /// What to do. Wire: OLHLogOp.
    pub op: u8,
    /// Tag of the change.
    pub op_tag: BString,
    /// The version.
    pub key: ObjKey,
    /// Whether it is a delete marker.
    pub delete_marker: bool,
}

/// Steps by the OLH's epoch.
pub type OlhLog = BTreeMap<u64, Vec<OlhLogEntry>>;

/// An OLH. Wire: rgw_bucket_olh_entry v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct OlhEntry {
    /// The current version.
    pub key: ObjKey,
    /// Whether it is a delete marker.
    pub delete_marker: bool,
    /// Counts changes; other zones may set it.
    pub epoch: u64,
    /// Steps that the head has not taken yet.
    pub pending_log: OlhLog,
    /// Tag of the head object it belongs to.
    pub tag: BString,
    /// Whether there is a version.
    pub exists: bool,
    /// Whether the head is to go.
    pub pending_removal: bool,
}

/// The first epoch of an OLH; entries from before it get 1.
const FIRST_EPOCH: u64 = 2;

impl OlhEntry {
    /// Moves on to an epoch, the next one if 0; whether the OLH has not come further already.
    pub(super) fn start_modify(&mut self, candidate: u64) -> bool {
        if candidate == 0 {
            let next = self.epoch.wrapping_add(1);
            self.epoch = if self.epoch == 0 { FIRST_EPOCH } else { next };
            return true;
        }
        let is_new = candidate >= self.epoch;
        if is_new {
            self.epoch = candidate;
        }
        is_new
    }

    /// Adds a step to the log of its present epoch.
    pub(super) fn log(&mut self, op: u8, op_tag: &BString, key: &ObjKey, delete_marker: bool) {
        self.log_at(self.epoch, op, op_tag, key, delete_marker);
    }

    /// The same for a change of another epoch, the present one if 0.
    pub(super) fn log_at(
        &mut self,
        epoch: u64,
        op: u8,
        op_tag: &BString,
        key: &ObjKey,
        delete_marker: bool,
    ) {
        let epoch = if epoch == 0 { self.epoch } else { epoch };
        let (op_tag, key) = (op_tag.clone(), key.clone());
        let step = OlhLogEntry { epoch, op, op_tag, key, delete_marker };
        self.pending_log.entry(self.epoch).or_default().push(step);
    }
}

/// Argument of `bucket_read_olh_log`. Wire: rgw_cls_read_olh_log_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ReadLogOp {
    /// The name.
    pub olh: ObjKey,
    /// After this epoch.
    pub ver_marker: u64,
    /// Tag of the head.
    pub olh_tag: BString,
}

/// Reply of `bucket_read_olh_log`. Wire: rgw_cls_read_olh_log_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ReadLogRet {
    /// The steps.
    pub log: OlhLog,
    /// Whether there are more.
    pub is_truncated: bool,
}

/// Argument of `bucket_trim_olh_log`. Wire: rgw_cls_trim_olh_log_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct TrimLogOp {
    /// The name.
    pub olh: ObjKey,
    /// Up to and with this epoch.
    pub ver: u64,
    /// Tag of the head.
    pub olh_tag: BString,
}

/// Argument of `bucket_clear_olh`. Wire: rgw_cls_bucket_clear_olh_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ClearOp {
    /// The name.
    pub key: ObjKey,
    /// Tag of the head.
    pub olh_tag: BString,
}

/// The OLH of a head, and its key. That of another head is `ECANCELED`.
async fn load(
    ctx: &mut dyn ObjectContext,
    object: &ObjKey,
    tag: &BString,
) -> Result<(BString, OlhEntry), Errno> {
    if !object.instance.is_empty() {
        return Err(Errno::EINVAL);
    }
    let olh_key = key::olh_key(&object.name);
    let olh: OlhEntry = index::read(ctx, &olh_key).await?.unwrap_or_default();
    if olh.tag == *tag { Ok((olh_key, olh)) } else { Err(Errno::ECANCELED) }
}

pub(super) async fn read_log(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ReadLogOp = argument(input)?;
    let (_, mut olh) = load(ctx, &op.olh, &op.olh_tag).await?;
    let after = (op.ver_marker.checked_add(1)).map(|first| olh.pending_log.split_off(&first));
    let mut log = after.unwrap_or_default();
    let rest = log.keys().nth(LOG_MAX).copied();
    let is_truncated = rest.map(|rest| log.split_off(&rest)).is_some();
    Ok(ReadLogRet { log, is_truncated }.to_bytes())
}

pub(super) async fn trim_log(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: TrimLogOp = argument(input)?;
    let (olh_key, mut olh) = load(ctx, &op.olh, &op.olh_tag).await?;
    olh.pending_log.retain(|epoch, _| *epoch > op.ver);
    index::write(ctx, olh_key, &olh).await
}

pub(super) async fn clear(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: ClearOp = argument(input)?;
    let (olh_key, _) = load(ctx, &op.key, &op.olh_tag).await?;
    ctx.omap_rm(&olh_key).await?;
    // The plain entry goes as well, if it only says that there are versions.
    match index::read::<DirEntry>(ctx, &op.key.name).await? {
        Some(plain) if plain.flags & FLAG_VER_MARKER != 0 => ctx.omap_rm(&op.key.name).await,
        _ => Ok(()),
    }
}
