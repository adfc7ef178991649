//! A parent's links to its clones: of the first kind in the pool's object `rbd_children`, of the
//! second kind in the parent's header (`src/cls/rbd/cls_rbd.cc` at v16.2).

use std::collections::BTreeSet;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::Errno;

use super::features::operation;
use super::header::set_operations;
use super::keys::{self, arguments};
use super::snapshot::{ChildImageSpec, Snap};
use super::snapshots;
use crate::ObjectContext;
use crate::argument;

/// The key of a parent in `rbd_children`: pool, image and snapshot as they are encoded.
fn parent_key(r: &mut Reader<'_>) -> Result<Bytes, Error> {
    let (pool, image, snap) = (r.u64()?, r.get::<BString>()?, r.u64()?);
    let mut w = Writer::new();
    w.u64(pool);
    w.put(&image);
    w.u64(snap);
    Ok(w.into_bytes())
}

pub(super) async fn add_child(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (key, child) = arguments(input, |r| Ok((parent_key(r)?, r.get::<BString>()?)))?;
    let mut children: BTreeSet<BString> = keys::find(ctx, &key).await?.unwrap_or_default();
    if !children.insert(child) {
        return Err(Errno::EEXIST);
    }
    keys::write(ctx, &key, &children).await
}

pub(super) async fn remove_child(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (key, child) = arguments(input, |r| Ok((parent_key(r)?, r.get::<BString>()?)))?;
    let mut children: BTreeSet<BString> = keys::read(ctx, &key).await?;
    if !children.remove(&child) {
        return Err(Errno::ENOENT);
    }
    if children.is_empty() {
        return ctx.omap_rm(&key).await;
    }
    keys::write(ctx, &key, &children).await
}

pub(super) async fn get_children(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let key = arguments(input, parent_key)?;
    let children: BTreeSet<BString> = keys::read(ctx, &key).await?;
    Ok(children.to_bytes())
}

fn children_key(snap_id: u64) -> BString {
    keys::number_key("snap_children_", snap_id)
}

async fn children_of(
    ctx: &mut dyn ObjectContext,
    snap_id: u64,
) -> Result<BTreeSet<ChildImageSpec>, Errno> {
    Ok(keys::find(ctx, &children_key(snap_id)).await?.unwrap_or_default())
}

pub(super) async fn child_attach(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (id, child): (u64, ChildImageSpec) = argument(input)?;
    let snap = snapshots::read(ctx, id).await?;
    if snap.namespace.is_trash() {
        return Err(Errno::ENOENT);
    }
    let mut children = children_of(ctx, id).await?;
    if !children.insert(child) {
        return Err(Errno::EEXIST);
    }
    keys::write(ctx, &children_key(id), &children).await?;
    let child_count = snap.child_count.wrapping_add(1);
    snapshots::write(ctx, Snap { child_count, ..snap }).await?;
    set_operations(ctx, operation::CLONE_PARENT, operation::CLONE_PARENT).await
}

pub(super) async fn child_detach(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (id, child): (u64, ChildImageSpec) = argument(input)?;
    let snap = snapshots::read(ctx, id).await?;
    let mut children = children_of(ctx, id).await?;
    if snap.child_count as usize != children.len() {
        return Err(Errno::EINVAL);
    }
    if !children.remove(&child) {
        return Err(Errno::ENOENT);
    }
    if children.is_empty() {
        keys::remove(ctx, &children_key(id)).await?;
    } else {
        keys::write(ctx, &children_key(id), &children).await?;
    }
    let child_count = snap.child_count - 1;
    snapshots::write(ctx, Snap { child_count, ..snap }).await?;
    if child_count > 0 {
        return Ok(());
    }
    let others = snapshots::all(ctx).await?;
    if others.iter().any(|snap| snap.id != id && snap.child_count > 0) {
        return Ok(());
    }
    set_operations(ctx, 0, operation::CLONE_PARENT).await
}

pub(super) async fn children_list(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let id: u64 = argument(input)?;
    snapshots::read(ctx, id).await?;
    let children: BTreeSet<ChildImageSpec> = keys::read(ctx, &children_key(id)).await?;
    Ok(children.to_bytes())
}
