//! The pool's mirroring object, `rbd_mirroring`: mode, uuid and peers
//! (`src/cls/rbd/cls_rbd.cc` at v16.2).

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::keys::{self, arguments};
use super::mirror_status::{MirrorPeer, direction, mode};
use super::snapshots::random_uuid;
use crate::{ObjectContext, argument, stored};

const UUID: &[u8] = b"mirror_uuid";
const MODE: &[u8] = b"mirror_mode";
const PEER: &[u8] = b"mirror_peer_";

pub(super) async fn uuid_get(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    let uuid = ctx.omap_val(UUID).await?;
    Ok(uuid.to_bytes())
}

pub(super) async fn uuid_set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let uuid: BString = argument(input)?;
    let mode = keys::find::<u32>(ctx, MODE).await?.unwrap_or(mode::DISABLED);
    if uuid.is_empty() || mode != mode::DISABLED {
        return Err(Errno::EINVAL);
    }
    keys::write_raw(ctx, UUID, Vec::from(uuid).into()).await
}

pub(super) async fn mode_get(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(keys::read::<u32>(ctx, MODE).await?.to_bytes())
}

pub(super) async fn mode_set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    match argument(input)? {
        mode @ (mode::IMAGE | mode::POOL) => {
            if keys::find_raw(ctx, UUID).await?.is_none() {
                return Err(Errno::EINVAL);
            }
            keys::write(ctx, MODE, &mode).await
        }
        mode::DISABLED => {
            if !peers(ctx).await?.is_empty() {
                return Err(Errno::EBUSY);
            }
            keys::remove(ctx, MODE).await?;
            keys::remove(ctx, UUID).await
        }
        _ => Err(Errno::EINVAL),
    }
}

async fn peers(ctx: &mut dyn ObjectContext) -> Result<Vec<MirrorPeer>, Errno> {
    let found = keys::list_all(ctx, PEER).await?;
    found.iter().map(|(_, peer)| stored(peer)).collect()
}

async fn write_peer(ctx: &mut dyn ObjectContext, peer: &MirrorPeer) -> Result<(), Errno> {
    keys::write(ctx, &keys::key(PEER, &peer.uuid), peer).await
}

async fn need_mirroring(ctx: &mut dyn ObjectContext) -> Result<(), Errno> {
    match keys::find::<u32>(ctx, MODE).await? {
        None | Some(mode::DISABLED) => Err(Errno::EINVAL),
        Some(_) => Ok(()),
    }
}

/// A peer that reads from here says who it is; it becomes known if it was not.
pub(super) async fn peer_ping(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (site_name, mirror_uuid, way) =
        arguments(input, |r| Ok((r.get::<BString>()?, r.get::<BString>()?, r.u8()?)))?;
    if way != direction::TX {
        return Err(Errno::EINVAL);
    }
    need_mirroring(ctx).await?;
    if site_name.is_empty() || mirror_uuid.is_empty() {
        return Err(Errno::EINVAL);
    }
    let peers = peers(ctx).await?;
    let by_name = peers.iter().find(|peer| peer.site_name == site_name);
    let is_same =
        |peer: &MirrorPeer| peer.mirror_uuid.is_empty() || peer.mirror_uuid == mirror_uuid;
    let by_uuid = if by_name.is_some_and(is_same) {
        None
    } else {
        peers.iter().find(|peer| peer.mirror_uuid == mirror_uuid)
    };
    let mut peer = match (by_name, by_uuid) {
        // Two peers: the uuid decides, and the name stays the other's.
        (Some(_), Some(found)) => found.clone(),
        (None, Some(found)) => MirrorPeer { site_name, ..found.clone() },
        (Some(found), None) => MirrorPeer { mirror_uuid, ..found.clone() },
        (None, None) => MirrorPeer {
            uuid: random_uuid(ctx).to_string().into(),
            direction: direction::TX,
            site_name,
            mirror_uuid,
            ..MirrorPeer::default()
        },
    };
    if peer.direction == direction::RX {
        peer.direction = direction::RX_TX;
    }
    peer.last_seen = ctx.now();
    if !peer.is_valid() {
        return Err(Errno::EINVAL);
    }
    write_peer(ctx, &peer).await
}

pub(super) async fn peer_list(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(peers(ctx).await?.to_bytes())
}

pub(super) async fn peer_add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let new: MirrorPeer = argument(input)?;
    need_mirroring(ctx).await?;
    if !new.is_valid() {
        return Err(Errno::EINVAL);
    }
    let own = ctx.omap_val(UUID).await?;
    if new.uuid == own[..] || new.direction == direction::TX {
        return Err(Errno::EINVAL);
    }
    for peer in peers(ctx).await? {
        let has_mirror_uuid = !new.mirror_uuid.is_empty();
        if peer.uuid == new.uuid {
            return Err(Errno::ESTALE);
        } else if peer.site_name == new.site_name
            || has_mirror_uuid && peer.mirror_uuid == new.mirror_uuid
        {
            return Err(Errno::EEXIST);
        }
    }
    write_peer(ctx, &new).await
}

pub(super) async fn peer_remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let uuid: BString = argument(input)?;
    keys::remove(ctx, &keys::key(PEER, &uuid)).await
}

async fn read_peer(ctx: &mut dyn ObjectContext, uuid: &[u8]) -> Result<MirrorPeer, Errno> {
    keys::read(ctx, &keys::key(PEER, uuid)).await
}

pub(super) async fn peer_set_client(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let (uuid, client_name): (BString, BString) = argument(input)?;
    let peer = read_peer(ctx, &uuid).await?;
    write_peer(ctx, &MirrorPeer { client_name, ..peer }).await
}

pub(super) async fn peer_set_cluster(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let (uuid, site_name): (BString, BString) = argument(input)?;
    let mut found = None;
    for peer in peers(ctx).await? {
        if peer.uuid == uuid {
            found = Some(peer);
        } else if peer.site_name == site_name {
            return Err(Errno::EEXIST);
        }
    }
    let peer = found.ok_or(Errno::ENOENT)?;
    write_peer(ctx, &MirrorPeer { site_name, ..peer }).await
}

pub(super) async fn peer_set_direction(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let (uuid, direction) = arguments(input, |r| Ok((r.get::<BString>()?, r.u8()?)))?;
    let peer = read_peer(ctx, &uuid).await?;
    write_peer(ctx, &MirrorPeer { direction, ..peer }).await
}
