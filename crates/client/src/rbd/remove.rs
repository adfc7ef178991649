//! Removing images (`src/librbd/image/RemoveRequest.cc`, `PreRemoveRequest.cc` at v16.2).

use cls::rbd::GroupSpec;
use cls::rbd::snapshot::{SnapshotInfo, SnapshotNamespace};
use types::osd::WatchItem;
use types::{Errno, SnapId};

use super::clone::detach_from_parent;
use super::image::{Image, OpenOptions};
use super::journal;
use super::mirror::mirrors;
use super::names;
use super::progress::{OnProgress, unwatched};
use crate::{ClientError, IoCtx, Operation};

/// Removes an image with its content: ENOTEMPTY when it has snapshots, EBUSY when somebody has
/// it open, EMLINK when it belongs to a group, EINVAL when it is mirrored from elsewhere. One that
/// is mirrored from here goes there, too.
pub async fn remove(io: &IoCtx, name: &str) -> Result<(), ClientError> {
    remove_with(io, name, &unwatched).await
}

/// The same, told how far it has come.
pub async fn remove_with(io: &IoCtx, name: &str, tell: OnProgress<'_>) -> Result<(), ClientError> {
    let image = match Image::open(io, name, &OpenOptions::default()).await {
        Err(ClientError::Errno(Errno::ENOENT)) => return forget_rest(io, name).await,
        image => image?,
    };
    let removed = remove_open(&image, tell).await;
    let closed = image.close().await;
    removed?;
    // The header is gone, and the watch with it.
    let _ = closed;
    forget(io, name, &image.0.id).await
}

/// What there is beside name, header and map.
pub(crate) async fn remove_open(image: &Image, tell: OnProgress<'_>) -> Result<(), ClientError> {
    let mirrored = image.mirrored_from_here().await?;
    image.0.is_going.set(true);
    let turn = image.0.begin_change().await?;
    let snaps = image.snap_infos().await?;
    // Those of no user go with the image: of its mirroring, and in its trash without clones.
    let goes = |snap: &SnapshotInfo| match snap.namespace {
        SnapshotNamespace::Mirror(_) => mirrored.is_some(),
        SnapshotNamespace::Trash { .. } => snap.child_count == 0,
        _ => false,
    };
    if !snaps.values().all(goes) {
        return Err(Errno::ENOTEMPTY.into());
    }
    if image.is_open_elsewhere().await? {
        return Err(Errno::EBUSY.into());
    }
    let ask = Operation::new().rbd("image_group_get", |_| ());
    let outcome = image.0.io.operate(image.0.header_oid.clone(), ask).await?;
    if outcome.decode::<GroupSpec>(0)? != GroupSpec::default() {
        return Err(Errno::EMLINK.into());
    }
    if let Some(mirrored) = &mirrored {
        image.begin_mirror_end(mirrored).await?;
    }
    image.remove_snaps(snaps.keys()).await?;
    if let Some(mirrored) = &mirrored {
        image.end_mirror(mirrored).await?;
    }
    let blocked = image.0.block_writes().await;
    let view = image.0.view();
    image.trim_with(&view, 0, tell).await?;
    if let Some(spec) = &view.header.parent_spec {
        detach_from_parent(image, spec).await?;
    }
    drop((blocked, turn));
    Ok(())
}

impl Image {
    /// Whether others have it open. Those that mirror it close it when it is mirrored no more.
    pub(crate) async fn is_open_elsewhere(&self) -> Result<bool, ClientError> {
        let mut watchers = self.0.watchers().await?.entries;
        if watchers.len() > 1 {
            let mirrors = mirrors(&self.0.io).await?;
            let is_mirror =
                |own: &WatchItem| mirrors.iter().any(|m| (m.name, m.addr) == (own.name, own.addr));
            watchers.retain(|watcher| !is_mirror(watcher));
        }
        Ok(watchers.len() > 1)
    }

    /// With the turn for changes held.
    async fn remove_snaps(&self, snaps: impl Iterator<Item = &SnapId>) -> Result<(), ClientError> {
        for id in snaps {
            let snap = self.0.view().header.snaps.get(id).cloned().ok_or(Errno::ENOENT)?;
            self.snap_remove_in_turn(snap).await?;
            self.remove_mirror_state(*id).await?;
        }
        Ok(())
    }
}

/// A name whose image is gone: a removal was cut off. ENOENT if there is none, or an image whose parent is
/// gone.
async fn forget_rest(io: &IoCtx, name: &str) -> Result<(), ClientError> {
    let id = match super::pool::image_id(io, name).await {
        Err(ClientError::Errno(Errno::ENOENT)) => {
            let ask = Operation::new().rbd("dir_get_id", |w| w.put(&name.to_owned()));
            io.operate(names::DIRECTORY, ask).await?.decode(0)?
        }
        id => id?,
    };
    match io.stat(names::header(&id)).await {
        Err(ClientError::Errno(Errno::ENOENT)) => forget(io, name, &id).await,
        Err(error) => Err(error),
        Ok(_) => Err(Errno::ENOENT.into()),
    }
}

/// Takes an image's name, header, journal and map away; what is not there is no fault.
pub(crate) async fn forget(io: &IoCtx, name: &str, id: &str) -> Result<(), ClientError> {
    let gone = |result: Result<(), ClientError>| match result {
        Err(ClientError::Errno(Errno::ENOENT)) => Ok(()),
        other => other,
    };
    gone(io.remove(names::object_map(id, types::snap::NOSNAP)).await)?;
    journal::remove(io, id).await?;
    gone(io.remove(names::header(id)).await)?;
    let remove = Operation::new().rbd_write("dir_remove_image", |w| {
        w.put(&name.to_owned());
        w.put(&id.to_owned());
    });
    gone(io.operate(names::DIRECTORY, remove).await.map(drop))?;
    gone(io.remove(names::id_object(name)).await)
}
