//! Class `refcount`: named references in an xattr; the object goes with the last one
//! (`src/cls/refcount/` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument, stored};

const ATTR: &[u8] = b"refcount";

/// The references of an object. Wire: obj_refcount v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct ObjRefcount {
    /// Tags that hold a reference; the value says nothing. The empty tag stands for the reference
    /// an object has before anyone counted.
    pub refs: BTreeMap<BString, bool>,
    /// Tags that have given theirs up.
    #[denc(since = 2)]
    pub retired_refs: BTreeSet<BString>,
}

/// Argument of `get` and `put`. Wire: cls_refcount_get_op and cls_refcount_put_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct RefOp {
    /// Whose reference.
    pub tag: BString,
    /// Whether an object that was never counted has one reference.
    pub implicit_ref: bool,
}

/// Argument of `set`. Wire: cls_refcount_set_op v1; also cls_refcount_read_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Refs {
    /// The tags.
    pub refs: Vec<BString>,
}

/// Argument of `read`. Wire: cls_refcount_read_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ReadOp {
    /// Whether an object that was never counted has one reference.
    pub implicit_ref: bool,
}

/// The class.
pub const CLASS: Class = Class {
    name: "refcount",
    methods: &[
        method!("get", Flags::RD_WR, get),
        method!("put", Flags::RD_WR, put),
        method!("set", Flags::RD_WR, set),
        method!("read", Flags::RD, read),
    ],
    filters: &[],
};

async fn load(ctx: &mut dyn ObjectContext, implicit_ref: bool) -> Result<ObjRefcount, Errno> {
    match ctx.getxattr(ATTR).await {
        Err(Errno::ENODATA) => {
            let mut count = ObjRefcount::default();
            if implicit_ref {
                count.refs.insert(BString::default(), true);
            }
            Ok(count)
        }
        other => stored(&other?),
    }
}

async fn store(ctx: &mut dyn ObjectContext, count: &ObjRefcount) -> Result<(), Errno> {
    ctx.setxattr(ATTR, count.to_bytes()).await
}

async fn get(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: RefOp = argument(input)?;
    let mut count = load(ctx, op.implicit_ref).await?;
    count.refs.insert(op.tag, true);
    store(ctx, &count).await
}

async fn put(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: RefOp = argument(input)?;
    let mut count = load(ctx, op.implicit_ref).await?;
    if count.refs.is_empty() {
        return Err(Errno::EINVAL);
    }
    let held = if count.refs.contains_key(&op.tag) {
        op.tag.clone()
    } else if op.implicit_ref && count.refs.contains_key(&BString::default()) {
        BString::default()
    } else {
        return Ok(());
    };
    if !count.retired_refs.insert(op.tag) {
        return Ok(());
    }
    count.refs.remove(&held);
    if count.refs.is_empty() { ctx.remove().await } else { store(ctx, &count).await }
}

async fn set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: Refs = argument(input)?;
    if op.refs.is_empty() {
        return ctx.remove().await;
    }
    let refs = op.refs.into_iter().map(|tag| (tag, true)).collect();
    store(ctx, &ObjRefcount { refs, ..ObjRefcount::default() }).await
}

async fn read(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ReadOp = argument(input)?;
    let count = load(ctx, op.implicit_ref).await?;
    Ok(Refs { refs: count.refs.into_keys().collect() }.to_bytes())
}
