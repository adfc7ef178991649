//! Groups: their images, their snapshots, and an image's link to its group
//! (`src/cls/rbd/cls_rbd.cc` at v16.2). Their directory is as the images'.

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::features::operation;
use super::group_spec::{
    GROUP_SNAPSHOT_INCOMPLETE, GroupImageSpec, GroupImageStatus, GroupSnapshot, GroupSpec,
    IMAGE_PREFIX,
};
use super::header::set_operations;
use super::keys;
use crate::{ObjectContext, argument, stored};

const SNAP_PREFIX: &[u8] = b"snapshot_";
const GROUP_REF: &[u8] = b"rbd_group_ref";

pub(super) async fn image_set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let status: GroupImageStatus = argument(input)?;
    keys::write(ctx, &status.spec.key(), &status.state).await
}

pub(super) async fn image_remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let spec: GroupImageSpec = argument(input)?;
    ctx.omap_rm(&spec.key()).await
}

pub(super) async fn image_list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let (after, max): (GroupImageSpec, u64) = argument(input)?;
    let after = after.key();
    let after = after.strip_prefix(IMAGE_PREFIX).unwrap_or_default();
    let mut images = Vec::new();
    for (name, state) in keys::list(ctx, IMAGE_PREFIX, after, max).await? {
        images.push(GroupImageStatus {
            spec: GroupImageSpec::from_key(&keys::key(IMAGE_PREFIX, &name))?,
            state: stored(&state)?,
        });
    }
    Ok(images.to_bytes())
}

pub(super) async fn image_group_add(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let group: GroupSpec = argument(input)?;
    if let Some(old) = keys::find_raw(ctx, GROUP_REF).await? {
        let is_same = argument::<GroupSpec>(&old)? == group;
        return if is_same { Ok(()) } else { Err(Errno::EEXIST) };
    }
    set_operations(ctx, operation::GROUP, operation::GROUP).await?;
    keys::write(ctx, GROUP_REF, &group).await
}

pub(super) async fn image_group_remove(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let group: GroupSpec = argument(input)?;
    let old = ctx.omap_val(GROUP_REF).await?;
    if argument::<GroupSpec>(&old)? != group {
        return Err(Errno::EBADF);
    }
    ctx.omap_rm(GROUP_REF).await?;
    set_operations(ctx, 0, operation::GROUP).await
}

pub(super) async fn image_group_get(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<Bytes, Errno> {
    let group = match keys::find_raw(ctx, GROUP_REF).await? {
        Some(group) => argument(&group)?,
        None => GroupSpec::default(),
    };
    Ok(group.to_bytes())
}

pub(super) async fn snap_set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let snap: GroupSnapshot = argument(input)?;
    if snap.name.is_empty() || snap.id.is_empty() {
        return Err(Errno::EINVAL);
    }
    for (_, other) in keys::list_all(ctx, SNAP_PREFIX).await? {
        let other: GroupSnapshot = stored(&other)?;
        if other.name == snap.name && other.id != snap.id {
            return Err(Errno::EEXIST);
        }
    }
    let key = keys::key(SNAP_PREFIX, &snap.id);
    let is_new = snap.state == GROUP_SNAPSHOT_INCOMPLETE;
    if is_new && keys::find_raw(ctx, &key).await?.is_some() {
        return Err(Errno::EEXIST);
    }
    keys::write(ctx, &key, &snap).await
}

pub(super) async fn snap_remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let id: BString = argument(input)?;
    ctx.omap_rm(&keys::key(SNAP_PREFIX, &id)).await
}

pub(super) async fn snap_get_by_id(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let id: BString = argument(input)?;
    let snap: GroupSnapshot = keys::read(ctx, &keys::key(SNAP_PREFIX, &id)).await?;
    Ok(snap.to_bytes())
}

pub(super) async fn snap_list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let (after, max): (GroupSnapshot, u64) = argument(input)?;
    let found = keys::list(ctx, SNAP_PREFIX, &after.id, max).await?;
    let snaps: Vec<GroupSnapshot> =
        found.iter().map(|(_, snap)| stored(snap)).collect::<Result<_, _>>()?;
    Ok(snaps.to_bytes())
}
