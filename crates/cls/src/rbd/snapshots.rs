//! Snapshots in the image's header: keys `snapshot_ID` (`src/cls/rbd/cls_rbd.cc` at v16.2).

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::{Errno, Uuid};

use super::features::{self, MAXSNAP, NOSNAP, PROTECTED, UNPROTECTED, operation};
use super::header::{require, set_operations};
use super::keys::{self, arguments, check_exists, optional};
use super::old_format;
use super::snapshot::{Parent, Snap, SnapshotInfo, SnapshotNamespace};
use crate::argument;
use crate::{ObjectContext, stored};

const PREFIX: &str = "snapshot_";

/// One snapshot; `ENOENT` if there is none of that id.
pub(super) async fn read(ctx: &mut dyn ObjectContext, id: u64) -> Result<Snap, Errno> {
    keys::read(ctx, &keys::number_key(PREFIX, id)).await
}

/// All snapshots, oldest first.
pub(super) async fn all(ctx: &mut dyn ObjectContext) -> Result<Vec<Snap>, Errno> {
    let records = keys::list_all(ctx, PREFIX.as_bytes()).await?;
    records.iter().map(|(_, record)| stored(record)).collect()
}

/// The ids of all snapshots, oldest first.
pub(super) async fn ids(ctx: &mut dyn ObjectContext) -> Result<Vec<u64>, Errno> {
    let records = keys::list_all(ctx, PREFIX.as_bytes()).await?;
    let id = |(digits, _): &(BString, Bytes)| keys::key_number(b"", digits);
    records.iter().map(|record| id(record).ok_or(Errno::EIO)).collect()
}

/// Stores a snapshot. A record of the form before release 14 has the whole parent: it moves to
/// the image's own key, and the record keeps the overlap.
pub(super) async fn write(ctx: &mut dyn ObjectContext, mut snap: Snap) -> Result<(), Errno> {
    if snap.parent.exists() {
        let parent = keys::find::<Parent>(ctx, b"parent").await?.unwrap_or_default();
        if !parent.exists() {
            let spec = snap.parent.spec.clone();
            let parent = Parent { spec, head_overlap: None };
            keys::write(ctx, b"parent", &parent).await?;
        }
        snap.parent_overlap = snap.parent.head_overlap;
        snap.parent = Parent::default();
    }
    keys::write(ctx, &keys::number_key(PREFIX, snap.id), &snap).await
}

pub(super) async fn get_protection_status(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let id: u64 = argument(input)?;
    check_exists(ctx).await?;
    if id == NOSNAP {
        return Err(Errno::EINVAL);
    }
    let status = read(ctx, id).await?.protection_status;
    if status > PROTECTED {
        return Err(Errno::EIO);
    }
    Ok(status.to_bytes())
}

pub(super) async fn set_protection_status(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let (id, protection_status): (u64, u8) = argument(input)?;
    check_exists(ctx).await?;
    require(ctx, features::LAYERING).await?;
    if id == NOSNAP || protection_status > PROTECTED {
        return Err(Errno::EINVAL);
    }
    let snap = read(ctx, id).await?;
    write(ctx, Snap { protection_status, ..snap }).await
}

/// The snapshot an argument names; the image itself is none.
async fn named(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Snap, Errno> {
    let id: u64 = argument(input)?;
    if id == NOSNAP {
        return Err(Errno::EINVAL);
    }
    read(ctx, id).await
}

pub(super) async fn get_snapshot_name(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    Ok(named(ctx, input).await?.name.to_bytes())
}

pub(super) async fn get_snapshot_timestamp(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    Ok(named(ctx, input).await?.timestamp.to_bytes())
}

pub(super) async fn get(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let snap = named(ctx, input).await?;
    let info = SnapshotInfo {
        id: snap.id,
        namespace: snap.namespace,
        name: snap.name,
        image_size: snap.image_size,
        timestamp: snap.timestamp,
        child_count: snap.child_count,
    };
    Ok(info.to_bytes())
}

pub(super) async fn add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (name, id, namespace) = arguments(input, |r| {
        let (name, id) = (r.get::<BString>()?, r.u64()?);
        Ok((name, id, optional::<SnapshotNamespace>(r)?.unwrap_or_default()))
    })?;
    if matches!(namespace, SnapshotNamespace::Unknown(_)) || id > MAXSNAP {
        return Err(Errno::EINVAL);
    }
    // A client that lost a race has an id that is too low.
    let seq: u64 = keys::read(ctx, b"snap_seq").await?;
    if id < seq {
        return Err(Errno::ESTALE);
    }
    let image_size = keys::read(ctx, b"size").await?;
    let flags = keys::find(ctx, b"flags").await?.unwrap_or(0);
    let limit = keys::find(ctx, b"snap_limit").await?.unwrap_or(u64::MAX);
    for (count, old) in (1..).zip(all(ctx).await?) {
        if count >= limit {
            return Err(Errno::EDQUOT);
        }
        if old.id == id || old.name == name && old.namespace == namespace {
            return Err(Errno::EEXIST);
        }
    }
    // The snapshot lies on the parent that the image has now.
    let parent = keys::find::<Parent>(ctx, b"parent").await?.unwrap_or_default();
    if namespace.is_trash() {
        set_operations(ctx, operation::SNAP_TRASH, operation::SNAP_TRASH).await?;
    }
    keys::write(ctx, b"snap_seq", &id).await?;
    let snap = Snap {
        id,
        name,
        image_size,
        parent,
        flags,
        timestamp: ctx.now(),
        namespace,
        ..Snap::default()
    };
    write(ctx, snap).await
}

pub(super) async fn rename(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (id, name): (u64, BString) = argument(input)?;
    let is_users = |snap: &Snap| snap.namespace == SnapshotNamespace::User;
    if all(ctx).await?.iter().any(|snap| is_users(snap) && snap.name == name) {
        return Err(Errno::EEXIST);
    }
    let snap = read(ctx, id).await?;
    if !is_users(&snap) {
        return Err(Errno::EINVAL);
    }
    write(ctx, Snap { name, ..snap }).await
}

pub(super) async fn remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let id: u64 = argument(input)?;
    let snap = read(ctx, id).await?;
    if snap.protection_status != UNPROTECTED || snap.child_count > 0 {
        return Err(Errno::EBUSY);
    }
    keys::remove(ctx, &keys::number_key(PREFIX, id)).await?;

    let mut others = all(ctx).await?;
    others.retain(|snap| snap.id != id);
    let has_child_snaps = others.iter().any(Snap::has_parent);
    let has_trash_snaps = others.iter().any(|snap| snap.namespace.is_trash());
    let parent = keys::find::<Parent>(ctx, b"parent").await?.unwrap_or_default();
    let is_head_child = parent.exists() && parent.head_overlap.is_some();
    if parent.exists() && !is_head_child && !has_child_snaps {
        keys::remove(ctx, b"parent").await?;
    }
    let mut unused = 0;
    if !has_child_snaps && !is_head_child {
        unused |= operation::CLONE_CHILD;
    }
    if !has_trash_snaps {
        unused |= operation::SNAP_TRASH;
    }
    if unused != 0 {
        set_operations(ctx, 0, unused).await?;
    }
    Ok(())
}

pub(super) async fn trash_add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let id: u64 = argument(input)?;
    let snap = read(ctx, id).await?;
    if snap.protection_status != UNPROTECTED {
        return Err(Errno::EBUSY);
    }
    if snap.namespace.is_trash() {
        return Err(Errno::EEXIST);
    }
    set_operations(ctx, operation::SNAP_TRASH, operation::SNAP_TRASH).await?;
    let namespace = SnapshotNamespace::Trash {
        original_name: snap.name.clone(),
        original_kind: snap.namespace.kind(),
    };
    let name = random_uuid(ctx).to_string().into();
    write(ctx, Snap { name, namespace, ..snap }).await
}

/// A random id.
pub(super) fn random_uuid(ctx: &dyn ObjectContext) -> Uuid {
    let mut bytes = [0; 16];
    ctx.fill_random(&mut bytes);
    Uuid::from_random(bytes)
}

pub(super) async fn get_limit(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    let limit = keys::find(ctx, b"snap_limit").await?.unwrap_or(u64::MAX);
    Ok(limit.to_bytes())
}

pub(super) async fn set_limit(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let limit: u64 = argument(input)?;
    if limit == u64::MAX {
        return ctx.omap_rm(b"snap_limit").await;
    }
    let count = match old_format::Header::read(ctx).await {
        Ok(header) => header.snaps.len(),
        Err(Errno::EINVAL) => ids(ctx).await?.len(),
        Err(errno) => return Err(errno),
    };
    if limit < count as u64 {
        return Err(Errno::ERANGE);
    }
    keys::write(ctx, b"snap_limit", &limit).await
}
