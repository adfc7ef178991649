//! Mirrored images: which, their states at all sites, and the mirror daemons that replay them
//! (`src/cls/rbd/cls_rbd.cc` at v16.2). A state counts as up while the one who told it watches
//! the object.

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Writer};
use types::Errno;

use super::keys::{self, arguments};
use super::mirror_status::{
    Instance, MirrorImage, MirrorImageMap, MirrorImageSiteStatus, MirrorImageStatus, MirrorPeer,
    StoredSiteStatus, direction, image_state, status_state,
};
use super::snapshot::{Snap, SnapshotNamespace, mirror_snapshot_state};
use super::snapshots;
use crate::{ObjectContext, argument, stored};

const IMAGE: &[u8] = b"image_";
const GLOBAL: &[u8] = b"global_";
const STATUS: &[u8] = b"status_global_";
const REMOTE_STATUS: &[u8] = b"remote_status_global_";
const INSTANCE: &[u8] = b"instance_";
const MAP: &[u8] = b"image_map_";

fn remote_prefix(global_id: &[u8]) -> BString {
    [REMOTE_STATUS, global_id, b"_"].concat().into()
}

fn status_key(global_id: &[u8], mirror_uuid: &[u8]) -> BString {
    if mirror_uuid.is_empty() {
        keys::key(STATUS, global_id)
    } else {
        keys::key(&remote_prefix(global_id), mirror_uuid)
    }
}

fn watchers(ctx: &dyn ObjectContext) -> BTreeSet<Instance> {
    let watchers = ctx.watchers().into_iter();
    watchers.map(|(name, addr)| Instance::new(name, addr)).collect()
}

async fn image(ctx: &mut dyn ObjectContext, id: &[u8]) -> Result<MirrorImage, Errno> {
    keys::read(ctx, &keys::key(IMAGE, id)).await
}

/// Images after an id. Keys of image maps begin like an image's and are none.
async fn images(
    ctx: &mut dyn ObjectContext,
    after: &[u8],
    max: u64,
) -> Result<Vec<(BString, MirrorImage)>, Errno> {
    let found = keys::list(ctx, IMAGE, after, max).await?;
    found.into_iter().map(|(id, image)| Ok((id, stored(&image)?))).collect()
}

pub(super) async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let (after, max): (BString, u64) = argument(input)?;
    let images = images(ctx, &after, max).await?.into_iter();
    let ids: BTreeMap<BString, BString> =
        images.map(|(id, image)| (id, image.global_image_id)).collect();
    Ok(ids.to_bytes())
}

pub(super) async fn get_image_id(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let global_id: BString = argument(input)?;
    let id: BString = keys::read(ctx, &keys::key(GLOBAL, &global_id)).await?;
    Ok(id.to_bytes())
}

pub(super) async fn get(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let id: BString = argument(input)?;
    Ok(image(ctx, &id).await?.to_bytes())
}

pub(super) async fn set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (id, new): (BString, MirrorImage) = argument(input)?;
    let global_key = keys::key(GLOBAL, &new.global_image_id);
    match image(ctx, &id).await {
        Err(Errno::ENOENT) => {
            if keys::find::<BString>(ctx, &global_key).await?.is_some() {
                return Err(Errno::EEXIST);
            }
            // Someone else has just disabled it.
            if new.state == image_state::DISABLING {
                return Err(Errno::ENOENT);
            }
        }
        Err(errno) => return Err(errno),
        Ok(old) if old.global_image_id != new.global_image_id => return Err(Errno::EINVAL),
        Ok(_) => {}
    }
    keys::write(ctx, &keys::key(IMAGE, &id), &new).await?;
    keys::write(ctx, &global_key, &id).await
}

pub(super) async fn remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let id: BString = argument(input)?;
    let image = image(ctx, &id).await?;
    if image.state != image_state::DISABLING {
        return Err(Errno::EBUSY);
    }
    ctx.omap_rm(&keys::key(IMAGE, &id)).await?;
    keys::remove(ctx, &keys::key(GLOBAL, &image.global_image_id)).await?;
    remove_statuses(ctx, &image.global_image_id).await
}

pub(super) async fn status_set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (global_id, status): (BString, MirrorImageSiteStatus) = argument(input)?;
    // A daemon that has not heard yet that an image is mirrored no more leaves no status behind.
    let Ok(id) = keys::read::<BString>(ctx, &keys::key(GLOBAL, &global_id)).await else {
        return Ok(());
    };
    if !image(ctx, &id).await.is_ok_and(|image| image.state == image_state::ENABLED) {
        return Ok(());
    }
    let key = status_key(&global_id, &status.mirror_uuid);
    let (name, addr) = ctx.caller();
    let stored = StoredSiteStatus {
        origin: Instance::new(name, addr),
        status: MirrorImageSiteStatus {
            mirror_uuid: BString::default(), // it is in the key
            up: false,
            last_update: ctx.now(),
            ..status
        },
    };
    keys::write(ctx, &key, &stored).await
}

async fn remove_statuses(ctx: &mut dyn ObjectContext, global_id: &[u8]) -> Result<(), Errno> {
    let remote = remote_prefix(global_id);
    for (uuid, _) in keys::list_all(ctx, &remote).await? {
        keys::remove(ctx, &keys::key(&remote, &uuid)).await?;
    }
    keys::remove(ctx, &keys::key(STATUS, global_id)).await
}

pub(super) async fn status_remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let global_id: BString = argument(input)?;
    remove_statuses(ctx, &global_id).await
}

/// An image's state at all sites that have told one.
async fn status(
    ctx: &mut dyn ObjectContext,
    global_id: &[u8],
    watchers: &BTreeSet<Instance>,
) -> Result<MirrorImageStatus, Errno> {
    let mut found = Vec::new();
    if let Some(local) = keys::find_raw(ctx, &keys::key(STATUS, global_id)).await? {
        found.push((BString::default(), local));
    }
    found.extend(keys::list_all(ctx, &remote_prefix(global_id)).await?);
    let mut sites = Vec::new();
    for (mirror_uuid, site) in found {
        let site: StoredSiteStatus = stored(&site)?;
        sites.push(MirrorImageSiteStatus {
            mirror_uuid,
            up: watchers.contains(&site.origin),
            ..site.status
        });
    }
    Ok(MirrorImageStatus { sites })
}

pub(super) async fn status_get(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let global_id: BString = argument(input)?;
    let watchers = watchers(ctx);
    let status = status(ctx, &global_id, &watchers).await?;
    if status.sites.is_empty() {
        return Err(Errno::ENOENT);
    }
    Ok(status.to_bytes())
}

pub(super) async fn status_list(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let (after, max): (BString, u64) = argument(input)?;
    let watchers = watchers(ctx);
    let mut statuses: BTreeMap<BString, MirrorImageStatus> = BTreeMap::new();
    let images: BTreeMap<_, _> = images(ctx, &after, max).await?.into_iter().collect();
    for (id, image) in &images {
        if let Ok(status) = status(ctx, &image.global_image_id, &watchers).await
            && !status.sites.is_empty()
        {
            statuses.insert(id.clone(), status);
        }
    }
    let mut w = Writer::new();
    w.put(&images);
    w.put(&statuses);
    Ok(w.into_bytes())
}

/// One word for an image's states: of what is received the local one, of what is sent the worst
/// of the peers'.
fn summary(way: u8, peers: &BTreeSet<BString>, status: &MirrorImageStatus) -> u8 {
    let local = status.local().filter(|site| site.up).map(|site| site.state);
    if way == direction::RX {
        return local.unwrap_or(status_state::UNKNOWN);
    }
    let mut state = if way == direction::RX_TX { local } else { None };
    let mut silent = peers.len();
    for site in status.remote() {
        if peers.contains(&site.mirror_uuid) {
            silent = silent.saturating_sub(1);
        }
        let told = if site.up { site.state } else { status_state::UNKNOWN };
        state = Some(match state {
            _ if site.state == status_state::ERROR => status_state::ERROR,
            None => told,
            Some(status_state::ERROR) => status_state::ERROR,
            Some(state) => state.min(told),
        });
    }
    match state {
        Some(state) if silent == 0 => state,
        _ => status_state::UNKNOWN,
    }
}

pub(super) async fn status_get_summary(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let peers: Vec<MirrorPeer> = arguments(input, keys::optional)?.unwrap_or_default();
    let mut way = peers.first().map_or(direction::RX, |peer| peer.direction);
    let mut uuids = BTreeSet::new();
    for peer in peers {
        if peer.direction == direction::RX {
            continue;
        }
        uuids.insert(peer.mirror_uuid);
        if way != peer.direction {
            way = direction::RX_TX;
        }
    }
    let watchers = watchers(ctx);
    let mut counts: BTreeMap<u8, i32> = BTreeMap::new();
    for (_, image) in images(ctx, b"", u64::MAX).await? {
        let status = status(ctx, &image.global_image_id, &watchers).await?;
        *counts.entry(summary(way, &uuids, &status)).or_default() += 1;
    }
    Ok(counts.to_bytes())
}

pub(super) async fn status_remove_down(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<(), Errno> {
    let watchers = watchers(ctx);
    for prefix in [STATUS, REMOTE_STATUS] {
        for (id, status) in keys::list_all(ctx, prefix).await? {
            if !watchers.contains(&stored::<StoredSiteStatus>(&status)?.origin) {
                ctx.omap_rm(&keys::key(prefix, &id)).await?;
            }
        }
    }
    Ok(())
}

/// Who replays an image; `ESTALE` if it is gone.
async fn instance(
    ctx: &mut dyn ObjectContext,
    global_id: &[u8],
    watchers: &BTreeSet<Instance>,
) -> Result<Instance, Errno> {
    let status: StoredSiteStatus = keys::read(ctx, &keys::key(STATUS, global_id)).await?;
    if !watchers.contains(&status.origin) {
        return Err(Errno::ESTALE);
    }
    Ok(status.origin)
}

pub(super) async fn instance_get(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let global_id: BString = argument(input)?;
    let watchers = watchers(ctx);
    Ok(instance(ctx, &global_id, &watchers).await?.to_bytes())
}

pub(super) async fn instance_list(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let (after, max): (BString, u64) = argument(input)?;
    let watchers = watchers(ctx);
    let mut instances: BTreeMap<BString, Instance> = BTreeMap::new();
    for (id, image) in images(ctx, &after, u64::MAX).await? {
        if instances.len() as u64 == max {
            break;
        }
        if let Ok(instance) = instance(ctx, &image.global_image_id, &watchers).await {
            instances.insert(id, instance);
        }
    }
    Ok(instances.to_bytes())
}

pub(super) async fn instances_list(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    let found = keys::list_all(ctx, INSTANCE).await?;
    let ids: Vec<BString> = found.into_iter().map(|(id, _)| id).collect();
    Ok(ids.to_bytes())
}

pub(super) async fn instances_add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let id: BString = argument(input)?;
    keys::write_raw(ctx, &keys::key(INSTANCE, &id), Bytes::new()).await
}

pub(super) async fn instances_remove(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let id: BString = argument(input)?;
    ctx.omap_rm(&keys::key(INSTANCE, &id)).await
}

pub(super) async fn map_list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let (after, max): (BString, u64) = argument(input)?;
    let mut maps: BTreeMap<BString, MirrorImageMap> = BTreeMap::new();
    for (id, map) in keys::list(ctx, MAP, &after, max).await? {
        maps.insert(id, argument(&map)?);
    }
    Ok(maps.to_bytes())
}

pub(super) async fn map_update(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (global_id, map): (BString, MirrorImageMap) = argument(input)?;
    keys::write(ctx, &keys::key(MAP, &global_id), &map).await
}

pub(super) async fn map_remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let global_id: BString = argument(input)?;
    keys::remove(ctx, &keys::key(MAP, &global_id)).await
}

pub(super) async fn snapshot_unlink_peer(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let (id, peer): (u64, BString) = argument(input)?;
    let mut snap: Snap = snapshots::read(ctx, id).await?;
    let SnapshotNamespace::Mirror(mirror) = &mut snap.namespace else { return Err(Errno::EINVAL) };
    if !mirror.mirror_peer_uuids.remove(&peer) {
        return Err(Errno::ENOENT);
    }
    // A snapshot that no peer needs any more is to be removed, if there is a newer one.
    if mirror.mirror_peer_uuids.is_empty() {
        let is_mirror = |other: &Snap| matches!(other.namespace, SnapshotNamespace::Mirror(_));
        let snaps = snapshots::all(ctx).await?;
        if snaps.iter().any(|other| other.id > id && is_mirror(other)) {
            return Err(Errno::ERESTART);
        }
    }
    snapshots::write(ctx, snap).await
}

pub(super) async fn snapshot_set_copy_progress(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let (id, complete, copied): (u64, bool, u64) = argument(input)?;
    let mut snap: Snap = snapshots::read(ctx, id).await?;
    let SnapshotNamespace::Mirror(mirror) = &mut snap.namespace else { return Err(Errno::EINVAL) };
    mirror.complete = complete;
    if mirror.state >= mirror_snapshot_state::NON_PRIMARY {
        mirror.last_copied_object_number = copied;
    }
    snapshots::write(ctx, snap).await
}
