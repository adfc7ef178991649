//! Class `version`: a version number and tag in an xattr, and conditions on them
//! (`src/cls/version/` at v16.2).

use base64::Engine as _;
use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument, stored};

const ATTR: &[u8] = b"ceph.objclass.version";

/// A version. Wire: obj_version v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjVersion {
    /// Grows with each change.
    pub ver: u64,
    /// Tells histories apart.
    pub tag: BString,
}

/// A condition on a version. Wire: obj_version_cond v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjVersionCond {
    /// What the object's version is compared with.
    pub ver: ObjVersion,
    /// 1 equal, 2 greater, 3 greater or equal, 4 less, 5 less or equal, 6 same tag, 7 other tag;
    /// anything else always holds.
    pub cond: u32,
}

/// Argument of `set`. Wire: cls_version_set_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct SetOp {
    /// The version from now on.
    pub objv: ObjVersion,
}

/// Argument of `inc` and `inc_conds`. Wire: cls_version_inc_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct IncOp {
    /// Not used.
    pub objv: ObjVersion,
    /// All must hold.
    pub conds: Vec<ObjVersionCond>,
}

/// Argument of `check_conds`. Wire: cls_version_check_op v1.
pub type CheckOp = IncOp;

/// Reply of `read`. Wire: cls_version_read_ret v1.
pub type ReadRet = SetOp;

/// The class.
pub const CLASS: Class = Class {
    name: "version",
    methods: &[
        method!("set", Flags::RD_WR, set),
        method!("inc", Flags::RD_WR, inc),
        method!("inc_conds", Flags::RD_WR, inc),
        method!("read", Flags::RD, read),
        method!("check_conds", Flags::RD, check),
    ],
    filters: &[],
};

impl ObjVersionCond {
    fn holds(&self, version: &ObjVersion) -> bool {
        match self.cond {
            1 => *version == self.ver,
            2 => version.ver > self.ver.ver,
            3 => version.ver >= self.ver.ver,
            4 => version.ver < self.ver.ver,
            5 => version.ver <= self.ver.ver,
            6 => version.tag == self.ver.tag,
            7 => version.tag != self.ver.tag,
            _ => true,
        }
    }
}

async fn store(ctx: &mut dyn ObjectContext, version: &ObjVersion) -> Result<(), Errno> {
    ctx.setxattr(ATTR, version.to_bytes()).await
}

async fn load(ctx: &mut dyn ObjectContext) -> Result<Option<ObjVersion>, Errno> {
    match ctx.getxattr(ATTR).await {
        Err(Errno::ENOENT | Errno::ENODATA) => Ok(None),
        other => stored(&other?).map(Some),
    }
}

/// Version 1 with a tag of 24 random base64 characters.
fn first_version(ctx: &dyn ObjectContext) -> ObjVersion {
    let mut random = [0; 18];
    ctx.fill_random(&mut random);
    let tag = base64::engine::general_purpose::STANDARD.encode(random);
    ObjVersion { ver: 1, tag: tag.into() }
}

async fn set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: SetOp = argument(input)?;
    store(ctx, &op.objv).await
}

async fn inc(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: IncOp = argument(input)?;
    let mut version = match load(ctx).await? {
        Some(version) => version,
        None => {
            let version = first_version(ctx);
            store(ctx, &version).await?;
            version
        }
    };
    if !op.conds.iter().all(|cond| cond.holds(&version)) {
        return Err(Errno::ECANCELED);
    }
    version.ver = version.ver.wrapping_add(1);
    store(ctx, &version).await
}

async fn check(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: CheckOp = argument(input)?;
    let version = load(ctx).await?.unwrap_or_default();
    if op.conds.iter().all(|cond| cond.holds(&version)) { Ok(()) } else { Err(Errno::ECANCELED) }
}

async fn read(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<Bytes, Errno> {
    Ok(ReadRet { objv: load(ctx).await?.unwrap_or_default() }.to_bytes())
}
