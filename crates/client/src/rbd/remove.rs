//! Removing images (`src/librbd/image/RemoveRequest.cc`, `PreRemoveRequest.cc` at v16.2).

use cls::rbd::GroupSpec;
use types::Errno;

use super::clone::detach_from_parent;
use super::image::{Image, OpenOptions};
use super::journal;
use super::names;
use super::progress::{OnProgress, unwatched};
use crate::{ClientError, IoCtx, Operation};

/// Removes an image with its content: ENOTEMPTY when it has snapshots, EBUSY when somebody has
/// it open, EMLINK when it belongs to a group.
pub async fn remove(io: &IoCtx, name: &str) -> Result<(), ClientError> {
    remove_with(io, name, &unwatched).await
}

/// The same, told how far it has come.
pub async fn remove_with(io: &IoCtx, name: &str, tell: OnProgress<'_>) -> Result<(), ClientError> {
    let image = Image::open(io, name, &OpenOptions::default()).await?;
    let removed = remove_open(&image, tell).await;
    let closed = image.close().await;
    removed?;
    // The header is gone, and the watch with it.
    let _ = closed;
    forget(io, name, &image.0.id).await
}

/// What there is beside name, header and map.
pub(crate) async fn remove_open(image: &Image, tell: OnProgress<'_>) -> Result<(), ClientError> {
    image.0.is_going.set(true);
    let turn = image.0.begin_change().await?;
    let view = image.0.view();
    if !view.header.snapc.snaps.is_empty() {
        return Err(Errno::ENOTEMPTY.into());
    }
    if image.0.watchers().await?.entries.len() > 1 {
        return Err(Errno::EBUSY.into());
    }
    let ask = Operation::new().rbd("image_group_get", |_| ());
    let outcome = image.0.io.operate(image.0.header_oid.clone(), ask).await?;
    if outcome.decode::<GroupSpec>(0)? != GroupSpec::default() {
        return Err(Errno::EMLINK.into());
    }
    let blocked = image.0.block_writes().await;
    image.trim_with(&view, 0, tell).await?;
    if let Some(spec) = &view.header.parent_spec {
        detach_from_parent(image, spec).await?;
    }
    drop((blocked, turn));
    Ok(())
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
