//! Snapshots for mirroring, on the primary image, and the end of an image's mirroring
//! (`src/librbd/mirror/snapshot/{CreatePrimary,SetImageState,UnlinkPeer}Request.cc` at v16.2).
//!
//! ```text
//! snapshot .mirror.primary.GLOBAL_ID.UUID, incomplete
//! rbd_mirror_snapshot.ID.SNAP.N:  envelope(1,1) u32 objects | envelope(1,1) name, u64 features,
//!                                 u64 snapshot limit, snapshots, metadata: cut into objects
//! the snapshot is complete; then the peers' oldest ones go, so that each has a few only
//! ```

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use cls::rbd::features::PROTECTED;
use cls::rbd::mirror_status::{MirrorImage, MirrorPeer, direction, image_state};
use cls::rbd::snapshot::{MirrorSnapshot, SnapshotInfo, SnapshotNamespace, mirror_snapshot_state};
use denc::Writer;
use futures_util::future::LocalBoxFuture;
use types::osd::ops::{self, OsdOp};
use types::osd::{ObjListWatchResponse, WatchItem};
use types::{Errno, SnapId};

use super::image::Image;
use super::journal;
use super::names::features;
use super::pool::{MIRRORING, mirror_image};
use super::watcher::PATIENCE;
use crate::{ClientError, IoCtx, Operation};

/// Mode of mirroring by snapshots.
pub const BY_SNAPSHOT: u8 = 1;
/// Mirror snapshots that a peer may have (`rbd_mirroring_max_mirroring_snapshots`).
const SNAPS_MAX: usize = 3;
/// Features that follow from others or from what an image goes through
/// (`RBD_FEATURES_IMPLICIT_ENABLE`).
const IMPLICIT: u64 = features::STRIPINGV2
    | features::DATA_POOL
    | features::FAST_DIFF
    | features::OPERATIONS
    | features::MIGRATING
    | features::NON_PRIMARY;
/// Bytes of one object of an image's state (`rbd_default_order` 22).
const STATE_OBJECT: usize = 1 << 22;
/// What watchers of the pool's mirroring are told: an image has another state.
const IMAGE_UPDATED: u32 = 1;
/// Metadata of an image read at a time.
const METADATA_MAX: u64 = 1024;

fn state_object(id: &str, snap: SnapId, index: usize) -> String {
    format!("rbd_mirror_snapshot.{id}.{snap}.{index}")
}

impl Image {
    /// All snapshots with what they are for, oldest first.
    pub(crate) async fn snap_infos(&self) -> Result<BTreeMap<SnapId, SnapshotInfo>, ClientError> {
        let mut all = BTreeMap::new();
        for id in self.0.view().header.snaps.keys() {
            let ask = Operation::new().rbd("snapshot_get", |w| w.u64(*id));
            let info: SnapshotInfo =
                self.0.io.operate(self.0.header_oid.clone(), ask).await?.decode(0)?;
            all.insert(*id, info);
        }
        Ok(all)
    }

    /// Whether the image is mirrored by snapshots and its primary copy is here.
    pub async fn is_mirror_primary(&self) -> Result<bool, ClientError> {
        let newest = self.snap_infos().await?.into_values().rev().find_map(|info| {
            if let SnapshotNamespace::Mirror(mirror) = info.namespace { Some(mirror) } else { None }
        });
        Ok(newest.is_some_and(|m| m.state == mirror_snapshot_state::PRIMARY))
    }

    /// Takes a mirror snapshot of a primary image; its id. EINVAL when the image is not mirrored
    /// by snapshots, is not primary, or the pool has no peer to send to.
    pub fn mirror_snapshot(&self) -> LocalBoxFuture<'_, Result<SnapId, ClientError>> {
        Box::pin(async move {
            let io = &self.0.io;
            let mirrored = mirror_image(io, &self.0.id).await?;
            let Some(mirrored) =
                mirrored.filter(|m| m.mode == BY_SNAPSHOT && m.state == image_state::ENABLED)
            else {
                return Err(Errno::EINVAL.into());
            };
            if !self.is_mirror_primary().await? {
                return Err(Errno::EINVAL.into());
            }
            let peers = peers_to_send_to(io).await?;
            if peers.is_empty() {
                return Err(Errno::EINVAL.into());
            }
            let mut random = [0; 16];
            io.client().env().fill_random(&mut random);
            let unique = types::Uuid::from_random(random);
            let name = format!(".mirror.primary.{}.{unique}", mirrored.global_image_id);
            let namespace = SnapshotNamespace::Mirror(MirrorSnapshot {
                state: mirror_snapshot_state::PRIMARY,
                mirror_peer_uuids: peers.clone(),
                ..MirrorSnapshot::default()
            });
            let id = {
                let _turn = self.0.begin_change().await?;
                let id = self.snap_create_in_turn(&name, &namespace).await?;
                self.write_state(id).await?;
                self.set_complete(id).await?;
                id
            };
            self.0.header_changed().await?;
            // What is left over goes the next time.
            if let Err(error) = self.unlink_old(&peers).await {
                tracing::warn!("old mirror snapshots of {} stay: {error}", self.0.id);
            }
            Ok(id)
        })
    }

    async fn set_complete(&self, id: SnapId) -> Result<(), ClientError> {
        let complete = Operation::new().rbd_write("mirror_image_snapshot_set_copy_progress", |w| {
            w.u64(id);
            w.bool(true);
            w.u64(0);
        });
        self.0.header_op(complete).await
    }

    /// What a copy of the image should be like beside its content.
    async fn write_state(&self, id: SnapId) -> Result<(), ClientError> {
        let header = &self.0.header_oid;
        let ask = Operation::new().rbd("snapshot_get_limit", |_| ());
        let limit: u64 = self.0.io.operate(header.clone(), ask).await?.decode(0)?;
        let metadata = self.metadata().await?;
        let infos = self.snap_infos().await?;
        let view = self.0.view();
        let users: Vec<_> = infos
            .iter()
            .filter(|(_, info)| info.namespace == SnapshotNamespace::User)
            .map(|(id, info)| (*id, info, view.header.snaps.get(id).is_some_and(|s| s.protected)))
            .collect();
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.put(&self.0.name);
            w.u64(view.header.features & !IMPLICIT);
            w.u64(limit);
            w.u32(users.len() as u32);
            for (id, info, protected) in &users {
                w.u64(*id);
                w.envelope(1, 1, |w| {
                    w.put(&info.namespace);
                    w.put(&info.name);
                    w.u8(if *protected { PROTECTED } else { 0 });
                });
            }
            w.put(&metadata);
        });
        let state = w.into_bytes();
        // The header of the state is 10 bytes long.
        let objects = 1 + (10 + state.len()) / STATE_OBJECT;
        let mut w = Writer::new();
        w.envelope(1, 1, |w| w.u32(objects as u32));
        w.raw(&state);
        let all = w.into_bytes();
        for index in (0..objects).rev() {
            let from = (index * STATE_OBJECT).min(all.len());
            let part = all.slice(from..all.len().min(from + STATE_OBJECT));
            self.0.io.write_full(state_object(&self.0.id, id, index), part).await?;
        }
        Ok(())
    }

    async fn metadata(&self) -> Result<BTreeMap<BString, Bytes>, ClientError> {
        let (mut all, mut after) = (BTreeMap::new(), BString::default());
        loop {
            let ask = Operation::new().rbd("metadata_list", |w| {
                w.put(&after);
                w.u64(METADATA_MAX);
            });
            let page: BTreeMap<BString, Bytes> =
                self.0.io.operate(self.0.header_oid.clone(), ask).await?.decode(0)?;
            let Some(last) = page.keys().next_back().cloned() else { return Ok(all) };
            after = last;
            all.extend(page);
        }
    }

    /// Takes peers off snapshots they need no more, and removes those that no peer needs.
    async fn unlink_old(&self, peers: &BTreeSet<BString>) -> Result<(), ClientError> {
        for peer in peers {
            while let Some((id, last)) = superfluous(&self.snap_infos().await?, peer) {
                if last {
                    self.remove_mirror_snap(id).await?;
                } else {
                    let unlink =
                        Operation::new().rbd_write("mirror_image_snapshot_unlink_peer", |w| {
                            w.u64(id);
                            w.put(peer);
                        });
                    self.0.header_op(unlink).await?;
                    self.0.header_changed().await?;
                }
                self.0.refresh().await?;
            }
        }
        Ok(())
    }

    async fn remove_mirror_snap(&self, id: SnapId) -> Result<(), ClientError> {
        self.snap_remove_by_id(id).await?;
        self.remove_mirror_state(id).await
    }

    /// What `write_state` has written for a snapshot, if it has.
    pub(crate) async fn remove_mirror_state(&self, id: SnapId) -> Result<(), ClientError> {
        for index in 0.. {
            match self.0.io.remove(state_object(&self.0.id, id, index)).await {
                Ok(()) => {}
                Err(ClientError::Errno(Errno::ENOENT)) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Image {
    /// How the image is mirrored; EINVAL when it is a copy of another cluster's.
    pub(crate) async fn mirrored_from_here(&self) -> Result<Option<MirrorImage>, ClientError> {
        let (io, id) = (&self.0.io, &self.0.id);
        let Some(mirrored) = mirror_image(io, id).await? else { return Ok(None) };
        let is_primary = if mirrored.state == image_state::DISABLING {
            // Whose it was has been seen by who began it.
            true
        } else if mirrored.mode == BY_SNAPSHOT {
            self.is_mirror_primary().await?
        } else {
            journal::is_owned_here(io, id).await?
        };
        if is_primary { Ok(Some(mirrored)) } else { Err(Errno::EINVAL.into()) }
    }

    /// Those that mirror it hear that it is taken out (`src/librbd/mirror/DisableRequest.cc`).
    pub(crate) async fn begin_mirror_end(&self, mirrored: &MirrorImage) -> Result<(), ClientError> {
        let ending = MirrorImage { state: image_state::DISABLING, ..mirrored.clone() };
        let set = Operation::new().rbd_write("mirror_image_set", |w| {
            w.put(&self.0.id);
            w.put(&ending);
        });
        self.0.io.operate(MIRRORING, set).await?;
        self.tell_mirrors(&ending).await;
        Ok(())
    }

    /// The end of that, with its snapshots for mirroring gone.
    pub(crate) async fn end_mirror(&self, mirrored: &MirrorImage) -> Result<(), ClientError> {
        let remove = Operation::new().rbd_write("mirror_image_remove", |w| w.put(&self.0.id));
        match self.0.io.operate(MIRRORING, remove).await {
            Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => {}
            Err(error) => return Err(error),
        }
        self.tell_mirrors(&MirrorImage { state: image_state::DISABLED, ..mirrored.clone() }).await;
        Ok(())
    }

    /// Who does not answer sees it later. (`src/librbd/mirroring_watcher/Types.cc`: envelope(1,1) | u32 op |
    /// u32 state, id, global id)
    async fn tell_mirrors(&self, mirrored: &MirrorImage) {
        let mut w = Writer::new();
        w.envelope(1, 1, |w| {
            w.u32(IMAGE_UPDATED);
            w.u32(mirrored.state.into());
            w.put(&self.0.id);
            w.put(&mirrored.global_image_id);
        });
        match self.0.io.notify(MIRRORING, w.into_bytes(), PATIENCE).await {
            Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => {}
            Err(error) => tracing::warn!("mirrors of {} were not told: {error}", self.0.id),
        }
    }
}

/// Who watches what is mirrored of a pool.
pub(crate) async fn mirrors(io: &IoCtx) -> Result<Vec<WatchItem>, ClientError> {
    let ask = Operation::new().op(OsdOp::new(ops::LIST_WATCHERS));
    match io.operate(MIRRORING, ask).await {
        Err(ClientError::Errno(Errno::ENOENT)) => Ok(Vec::new()),
        watchers => Ok(watchers?.decode::<ObjListWatchResponse>(0)?.entries),
    }
}

/// The snapshot that a peer shall be taken off, and whether no other peer needs it.
fn superfluous(infos: &BTreeMap<SnapId, SnapshotInfo>, peer: &BString) -> Option<(SnapId, bool)> {
    // Only those since the last promotion count.
    let mut linked: Vec<(SnapId, &MirrorSnapshot)> = Vec::new();
    for (id, info) in infos {
        let SnapshotNamespace::Mirror(mirror) = &info.namespace else { continue };
        if mirror.state != mirror_snapshot_state::PRIMARY {
            linked.clear();
        } else if mirror.mirror_peer_uuids.is_empty() || mirror.mirror_peer_uuids.contains(peer) {
            linked.push((*id, mirror));
        }
    }
    let newest = linked.last()?.0;
    let others = |m: &MirrorSnapshot| m.mirror_peer_uuids.iter().any(|p| p != peer);
    let broken = linked
        .iter()
        .find(|(id, m)| *id != newest && (m.mirror_peer_uuids.is_empty() || !m.complete));
    if let Some((id, m)) = broken {
        return Some((*id, !others(m)));
    }
    if linked.len() <= SNAPS_MAX {
        return None;
    }
    // The newest before those that are kept: older ones may be in the middle of a copy.
    let (id, m) = linked[SNAPS_MAX - 1];
    Some((id, !others(m)))
}

async fn peers_to_send_to(io: &IoCtx) -> Result<BTreeSet<BString>, ClientError> {
    let pool = io.clone().with_namespace("");
    let ask = Operation::new().rbd("mirror_peer_list", |_| ());
    let peers: Vec<MirrorPeer> = match pool.operate(MIRRORING, ask).await {
        Err(ClientError::Errno(Errno::ENOENT)) => Vec::new(),
        outcome => outcome?.decode(0)?,
    };
    let sends = peers.into_iter().filter(|peer| peer.direction != direction::RX);
    Ok(sends.map(|peer| peer.uuid).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snap(peers: &[&str], complete: bool, state: u8) -> SnapshotInfo {
        SnapshotInfo {
            namespace: SnapshotNamespace::Mirror(MirrorSnapshot {
                state,
                complete,
                mirror_peer_uuids: peers.iter().map(|p| BString::from(*p)).collect(),
                ..MirrorSnapshot::default()
            }),
            ..SnapshotInfo::default()
        }
    }

    #[test]
    fn a_peer_keeps_three_snapshots() {
        let p = BString::from("p");
        let of = |n: u64| (1..=n).map(|id| (id, snap(&["p"], true, 0))).collect();
        assert_eq!(superfluous(&of(3), &p), None);
        assert_eq!(superfluous(&of(4), &p), Some((3, true)));
        let shared = (1..=4).map(|id| (id, snap(&["p", "q"], true, 0))).collect();
        assert_eq!(superfluous(&shared, &p), Some((3, false)));
    }

    #[test]
    fn what_was_left_half_done_goes_first_and_a_promotion_starts_anew() {
        let p = BString::from("p");
        let mut snaps: BTreeMap<u64, _> =
            [(1, snap(&[], true, 0)), (2, snap(&["p"], true, 0))].into();
        assert_eq!(superfluous(&snaps, &p), Some((1, true)));
        snaps.insert(3, snap(&["p"], true, mirror_snapshot_state::NON_PRIMARY_DEMOTED));
        snaps.insert(4, snap(&["p"], true, 0));
        assert_eq!(superfluous(&snaps, &p), None);
    }
}
