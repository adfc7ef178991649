//! Methods on heads of S3 objects: guards of other ops in the same vector, and removal that keeps
//! xattrs.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::{Errno, UTime};

use crate::{ObjectContext, argument};

/// Argument of `obj_remove`. Wire: rgw_cls_obj_remove_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct RemoveOp {
    /// The xattrs whose names begin so stay, on an empty object.
    pub keep_attr_prefixes: Vec<BString>,
}

/// Argument of `obj_store_pg_ver`. Wire: rgw_cls_obj_store_pg_ver_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct StorePgVerOp {
    /// The xattr that takes the version.
    pub attr: BString,
}

/// Argument of `obj_check_attrs_prefix`. Wire: rgw_cls_obj_check_attrs_prefix v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct CheckAttrsPrefixOp {
    /// What names of xattrs begin with.
    pub check_prefix: BString,
    /// Whether such a one fails the op, or the lack of it.
    pub fail_if_exist: bool,
}

/// Argument of `obj_check_mtime`. Wire: rgw_cls_obj_check_mtime v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct CheckMtimeOp {
    /// What the object's mtime is compared with.
    pub mtime: UTime,
    /// What it must be. Wire: RGWCheckMTimeType: 0 equal, 1 before, 2 not after, 3 after, 4 not
    /// before.
    pub kind: u8,
    /// Whether nanoseconds count.
    #[denc(since = 2)]
    pub high_precision_time: bool,
}

/// The object's xattrs, none of one that is not there.
async fn attrs(ctx: &mut dyn ObjectContext) -> Result<BTreeMap<BString, Bytes>, Errno> {
    match ctx.getxattrs().await {
        Err(Errno::ENOENT) => Ok(BTreeMap::new()),
        other => other,
    }
}

pub(super) async fn remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: RemoveOp = argument(input)?;
    if op.keep_attr_prefixes.is_empty() {
        return ctx.remove().await;
    }
    let mut kept = attrs(ctx).await?;
    kept.retain(|name, _| op.keep_attr_prefixes.iter().any(|p| name.starts_with(p)));
    ctx.remove().await?;
    if kept.is_empty() {
        return Ok(());
    }
    ctx.create(false).await?;
    for (name, value) in kept {
        ctx.setxattr(&name, value).await?;
    }
    Ok(())
}

pub(super) async fn store_pg_ver(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: StorePgVerOp = argument(input)?;
    let version = ctx.pg_version();
    ctx.setxattr(&op.attr, version.to_bytes()).await
}

pub(super) async fn check_attrs_prefix(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let op: CheckAttrsPrefixOp = argument(input)?;
    if op.check_prefix.is_empty() {
        return Err(Errno::EINVAL);
    }
    let found = attrs(ctx).await?.keys().any(|name| name.starts_with(&op.check_prefix));
    if found == op.fail_if_exist { Err(Errno::ECANCELED) } else { Ok(()) }
}

pub(super) async fn check_mtime(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: CheckMtimeOp = argument(input)?;
    // An object that is not there is from the beginning of time.
    let mut mtime = match ctx.stat().await {
        Err(Errno::ENOENT) => UTime::ZERO,
        other => other?.mtime,
    };
    let mut wanted = op.mtime;
    if !op.high_precision_time {
        (mtime.nsec, wanted.nsec) = (0, 0);
    }
    let holds = match op.kind {
        0 => mtime == wanted,
        1 => mtime < wanted,
        2 => mtime <= wanted,
        3 => mtime > wanted,
        4 => mtime >= wanted,
        _ => return Err(Errno::EINVAL),
    };
    if holds { Ok(()) } else { Err(Errno::ECANCELED) }
}
