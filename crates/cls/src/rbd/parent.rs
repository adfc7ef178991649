//! A clone's link to the snapshot it was made of (`src/cls/rbd/cls_rbd.cc` at v16.2).

use bytes::Bytes;
use denc::{Denc, Writer};
use types::Errno;

use super::features::{self, NOSNAP, operation};
use super::header::{require, set_operations};
use super::keys::{self, arguments, check_exists, optional};
use super::snapshot::{Parent, ParentImageSpec, Snap};
use super::snapshots;
use crate::ObjectContext;
use crate::argument;

async fn stored_parent(ctx: &mut dyn ObjectContext) -> Result<Parent, Errno> {
    Ok(keys::find(ctx, b"parent").await?.unwrap_or_default())
}

async fn attach(
    ctx: &mut dyn ObjectContext,
    mut parent: Parent,
    reattach: bool,
) -> Result<(), Errno> {
    check_exists(ctx).await?;
    require(ctx, features::LAYERING).await?;
    let overlap = parent.head_overlap.unwrap_or(0);
    if !parent.exists() || overlap == 0 {
        return Err(Errno::EINVAL);
    }
    // Snapshots may keep the image on the same parent; the head must have none.
    if let Some(old) = keys::find::<Parent>(ctx, b"parent").await?
        && !reattach
        && (old.head_overlap.is_some() || old.spec != parent.spec)
    {
        return Err(Errno::EEXIST);
    }
    let size: u64 = keys::read(ctx, b"size").await?;
    parent.head_overlap = Some(overlap.min(size));
    keys::write(ctx, b"parent", &parent).await
}

async fn detach(ctx: &mut dyn ObjectContext, legacy: bool) -> Result<(), Errno> {
    check_exists(ctx).await?;
    let bits = keys::find::<u64>(ctx, b"features").await?.unwrap_or(0);
    if bits & features::LAYERING == 0 {
        return Err(Errno::ENOEXEC);
    }
    let mut parent: Parent = keys::read(ctx, b"parent").await?;
    if legacy && !parent.spec.pool_namespace.is_empty() {
        return Err(Errno::EXDEV);
    }
    if parent.head_overlap.is_none() {
        return Err(Errno::ENOENT);
    }
    let mut has_child_snaps = false;
    for snap in snapshots::all(ctx).await? {
        if !snap.has_parent() {
            continue;
        }
        if bits & features::DEEP_FLATTEN == 0 {
            has_child_snaps = true;
            break;
        }
        let freed = Snap { parent: Parent::default(), parent_overlap: None, ..snap };
        snapshots::write(ctx, freed).await?;
    }
    if has_child_snaps {
        parent.head_overlap = None;
        return keys::write(ctx, b"parent", &parent).await;
    }
    keys::remove(ctx, b"parent").await?;
    set_operations(ctx, 0, operation::CLONE_CHILD).await
}

/// The parent of the image or of a snapshot, for clients before release 14.
pub(super) async fn get_parent(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let snap_id: u64 = argument(input)?;
    check_exists(ctx).await?;
    let mut parent = Parent::default();
    if require(ctx, features::LAYERING).await.is_ok() {
        parent = stored_parent(ctx).await?;
        if !parent.spec.pool_namespace.is_empty() {
            return Err(Errno::EXDEV);
        }
        if snap_id != NOSNAP {
            let snap = match snapshots::read(ctx, snap_id).await {
                Err(Errno::ENOENT) => Snap::default(),
                other => other?,
            };
            if snap.parent.exists() {
                parent = snap.parent;
            } else if snap.parent_overlap.is_some() {
                if !parent.exists() {
                    return Err(Errno::EINVAL);
                }
                parent.head_overlap = snap.parent_overlap;
            } else {
                parent = Parent::default();
            }
        }
    }
    let mut w = Writer::new();
    w.i64(parent.spec.pool_id);
    w.put(&parent.spec.image_id);
    w.u64(parent.spec.snap_id);
    w.u64(parent.head_overlap.unwrap_or(0));
    Ok(w.into_bytes())
}

pub(super) async fn set_parent(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let parent = arguments(input, |r| {
        Ok(Parent {
            spec: ParentImageSpec {
                pool_id: r.get()?,
                image_id: r.get()?,
                snap_id: r.get()?,
                ..ParentImageSpec::default()
            },
            head_overlap: Some(r.u64()?),
        })
    })?;
    attach(ctx, parent, false).await
}

pub(super) async fn remove_parent(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<(), Errno> {
    detach(ctx, true).await
}

pub(super) async fn get(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    check_exists(ctx).await?;
    let mut parent = Parent::default();
    if require(ctx, features::LAYERING).await.is_ok() {
        match keys::find(ctx, b"parent").await? {
            Some(found) => parent = found,
            None => {
                let snaps = snapshots::all(ctx).await?;
                if let Some(snap) = snaps.into_iter().rfind(|snap| snap.parent.exists()) {
                    parent = snap.parent;
                }
            }
        }
    }
    Ok(parent.spec.to_bytes())
}

pub(super) async fn overlap_get(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let snap_id: u64 = argument(input)?;
    let mut overlap = None;
    if require(ctx, features::LAYERING).await.is_ok() {
        overlap = if snap_id == NOSNAP {
            stored_parent(ctx).await?.head_overlap
        } else {
            let snap = snapshots::read(ctx, snap_id).await?;
            let old_form = snap.parent.exists().then_some(snap.parent.head_overlap);
            snap.parent_overlap.or(old_form.flatten())
        };
    }
    Ok(overlap.to_bytes())
}

pub(super) async fn parent_attach(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (parent, reattach) = arguments(input, |r| {
        let parent = Parent { spec: r.get()?, head_overlap: Some(r.u64()?) };
        Ok((parent, optional::<bool>(r)?.unwrap_or(false)))
    })?;
    attach(ctx, parent, reattach).await
}

pub(super) async fn parent_detach(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<(), Errno> {
    detach(ctx, false).await
}
