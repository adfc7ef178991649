//! Garbage collection before its queue (class `rgw_gc`): chains of objects to remove, in omap by
//! tag and by the time when their readers are surely done.
//!
//! ```text
//! 0_ tag              the chain
//! 1_ sec.nsec         the same
//! ```

use bstr::BString;
use bytes::Bytes;
use core::time::Duration;
use denc::{Denc, Error, Reader, Writer};
use types::{Errno, UTime};

use super::index;
use super::key::ObjKey;
use crate::{ObjectContext, argument, stored};

const NAME_PREFIX: &str = "0_";
const TIME_PREFIX: &str = "1_";
/// Entries of one listing, if the caller does not care.
const LIST_DEFAULT: u32 = 128;

/// An object to remove. Wire: cls_rgw_obj v2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Obj {
    /// Pool.
    pub pool: BString,
    /// Name, in the pool, and instance.
    pub key: ObjKey,
    /// Locator.
    pub loc: BString,
}

impl Denc for Obj {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.pool);
            w.put(&self.key.name);
            w.put(&self.loc);
            w.put(&self.key);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Obj, Error> {
        r.envelope("Obj", 2, 1, |r, v| {
            let pool = r.get()?;
            let mut key = ObjKey::of_name(r.get::<BString>()?);
            let loc = r.get()?;
            if v >= 2 {
                key = r.get()?;
            }
            Ok(Obj { pool, key, loc })
        })
    }
}

/// The objects of one S3 object. Wire: cls_rgw_obj_chain v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjChain {
    /// The objects.
    pub objs: Vec<Obj>,
}

/// An entry. Wire: cls_rgw_gc_obj_info v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjInfo {
    /// Its tag.
    pub tag: BString,
    /// What to remove.
    pub chain: ObjChain,
    /// When.
    pub time: UTime,
}

/// Argument of `gc_set_entry`. Wire: cls_rgw_gc_set_entry_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct SetEntryOp {
    /// From now.
    pub expiration_secs: u32,
    /// What; its time is set here.
    pub info: ObjInfo,
}

/// Argument of `gc_defer_entry`. Wire: cls_rgw_gc_defer_entry_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct DeferEntryOp {
    /// From now.
    pub expiration_secs: u32,
    /// Which.
    pub tag: BString,
}

/// Argument of `gc_list`. Wire: cls_rgw_gc_list_op v2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListOp {
    /// After this key, the first of the times if empty.
    pub marker: BString,
    /// At most this many, 0 for 128.
    pub max: u32,
    /// Only those whose time has come. Version 1 means so.
    pub expired_only: bool,
}

impl Default for ListOp {
    fn default() -> ListOp {
        ListOp { marker: BString::default(), max: 0, expired_only: true }
    }
}

impl Denc for ListOp {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.marker);
            w.u32(self.max);
            w.bool(self.expired_only);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<ListOp, Error> {
        r.envelope("gc ListOp", 2, 1, |r, v| {
            let (marker, max) = (r.get()?, r.u32()?);
            let expired_only = if v >= 2 { r.bool()? } else { true };
            Ok(ListOp { marker, max, expired_only })
        })
    }
}

/// Reply of `gc_list`. Wire: cls_rgw_gc_list_ret v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1, oldest = 2)]
pub struct ListRet {
    /// In the order of their times.
    pub entries: Vec<ObjInfo>,
    /// Where to go on, if there are more.
    pub next_marker: BString,
    /// Whether there are more.
    pub truncated: bool,
}

/// Argument of `gc_remove`. Wire: cls_rgw_gc_remove_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct RemoveOp {
    /// Which.
    pub tags: Vec<BString>,
}

fn name_key(tag: &[u8]) -> BString {
    [NAME_PREFIX.as_bytes(), tag].concat().into()
}

fn time_key(time: UTime) -> BString {
    format!("{TIME_PREFIX}{:011}.{:09}", time.sec, time.nsec).into()
}

async fn read(ctx: &mut dyn ObjectContext, tag: &[u8]) -> Result<Option<ObjInfo>, Errno> {
    index::read(ctx, &name_key(tag)).await
}

/// Writes an entry for its new time. Two of one nanosecond share the time's key: the later wins.
async fn update(
    ctx: &mut dyn ObjectContext,
    expiration_secs: u32,
    mut info: ObjInfo,
) -> Result<(), Errno> {
    // One that cannot be read is overwritten.
    if let Ok(Some(old)) = read(ctx, &info.tag).await {
        match ctx.omap_rm(&time_key(old.time)).await {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno),
        }
    }
    info.time = ctx.now().plus(Duration::from_secs(expiration_secs.into()));
    index::write(ctx, name_key(&info.tag), &info).await?;
    index::write(ctx, time_key(info.time), &info).await
}

pub(super) async fn set_entry(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: SetEntryOp = argument(input)?;
    update(ctx, op.expiration_secs, op.info).await
}

pub(super) async fn defer_entry(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: DeferEntryOp = argument(input)?;
    let info = read(ctx, &op.tag).await?.ok_or(Errno::ENOENT)?;
    update(ctx, op.expiration_secs, info).await
}

pub(super) async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ListOp = argument(input)?;
    let after = if op.marker.is_empty() { TIME_PREFIX.into() } else { op.marker };
    let end = op.expired_only.then(|| time_key(ctx.now()));
    let max = if op.max == 0 { LIST_DEFAULT } else { op.max };
    let (vals, truncated) = ctx.omap_vals(&after, b"", max.into()).await?;
    let mut ret = ListRet { truncated, ..ListRet::default() };
    for (key, value) in vals {
        let is_past_end = end.as_ref().is_some_and(|end| key >= *end);
        if is_past_end || !key.starts_with(TIME_PREFIX.as_bytes()) {
            ret.truncated = false;
            break;
        }
        ret.entries.push(stored(&value)?);
        ret.next_marker = key;
    }
    if !ret.truncated {
        ret.next_marker.clear();
    }
    Ok(ret.to_bytes())
}

pub(super) async fn remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: RemoveOp = argument(input)?;
    for tag in op.tags {
        let Some(info) = read(ctx, &tag).await? else { continue };
        for key in [time_key(info.time), name_key(&tag)] {
            match ctx.omap_rm(&key).await {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}
