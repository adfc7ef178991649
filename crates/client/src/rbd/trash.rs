//! A pool's trash: images that have lost their name and wait to be removed
//! (`src/librbd/api/Trash.cc`, `src/librbd/trash/RemoveRequest.cc` at v16.2).

use std::collections::BTreeMap;

use cls::rbd::TrashImageSpec;
use types::Errno;

use super::create::{LIST_MAX, claim_name};
use super::image::{Image, OpenOptions};
use super::names;
use super::progress::{OnProgress, unwatched};
use super::remove::remove_open;
use crate::{ClientError, IoCtx, Operation};

/// The trash of a pool and namespace.
const TRASH: &str = "rbd_trash";
/// States of an image in it.
const NORMAL: u8 = 0;
const REMOVING: u8 = 2;
const RESTORING: u8 = 3;
/// Who put it there: a user, or a user who removed a parent of clones.
const BY_USER: u8 = 0;
const BY_USER_AS_PARENT: u8 = 4;

/// The images in the trash, by id.
pub async fn trash_list(io: &IoCtx) -> Result<BTreeMap<String, TrashImageSpec>, ClientError> {
    let (mut all, mut after) = (BTreeMap::new(), String::new());
    loop {
        let ask = Operation::new().rbd("trash_list", |w| {
            w.put(&after);
            w.u64(LIST_MAX);
        });
        let page: BTreeMap<String, TrashImageSpec> = match io.operate(TRASH, ask).await {
            Err(ClientError::Errno(Errno::ENOENT)) => return Ok(all),
            outcome => outcome?.decode(0)?,
        };
        let Some(last) = page.keys().next_back().cloned() else { return Ok(all) };
        after = last;
        all.extend(page);
    }
}

/// What the trash knows of an image; ENOENT.
pub async fn trash_get(io: &IoCtx, id: &str) -> Result<TrashImageSpec, ClientError> {
    let ask = Operation::new().rbd("trash_get", |w| w.put(&id.to_owned()));
    io.operate(TRASH, ask).await?.decode(0)
}

async fn set_state(io: &IoCtx, id: &str, from: u8, to: u8) -> Result<(), ClientError> {
    let set = Operation::new().rbd_write("trash_state_set", |w| {
        w.put(&id.to_owned());
        w.u8(to);
        w.u8(from);
    });
    io.operate(TRASH, set).await.map(drop)
}

/// Removes an image from the trash with its content: ENOENT, EPERM before its time unless
/// forced, EBUSY while it is restored or somebody has it open, ENOTEMPTY when it has snapshots,
/// EMLINK when it belongs to a group.
pub async fn trash_remove(
    io: &IoCtx,
    id: &str,
    force: bool,
    tell: OnProgress<'_>,
) -> Result<(), ClientError> {
    let spec = trash_get(io, id).await?;
    let now = types::UTime::from_duration(io.client().env().wall_clock());
    if now < spec.deferment_end_time && !force {
        return Err(Errno::EPERM.into());
    }
    if spec.state != NORMAL && spec.state != REMOVING {
        return Err(Errno::EBUSY.into());
    }
    set_state(io, id, NORMAL, REMOVING).await?;
    match remove_content(io, id, tell).await {
        Ok(()) => {}
        Err(error) => {
            let _ = set_state(io, id, REMOVING, NORMAL).await;
            return Err(error);
        }
    }
    forget_entry(io, id).await
}

/// Takes an image off the list; one that is not on it is no fault.
pub(crate) async fn forget_entry(io: &IoCtx, id: &str) -> Result<(), ClientError> {
    let remove = Operation::new().rbd_write("trash_remove", |w| w.put(&id.to_owned()));
    match io.operate(TRASH, remove).await {
        Err(ClientError::Errno(Errno::ENOENT)) => Ok(()),
        other => other.map(drop),
    }
}

/// Gives an image a name again; EEXIST when another image has it. May be repeated.
pub(crate) async fn restore(io: &IoCtx, id: &str, name: &str) -> Result<(), ClientError> {
    match set_state(io, id, NORMAL, RESTORING).await {
        // It is out of the trash already.
        Err(ClientError::Errno(Errno::ENOENT)) => return Ok(()),
        other => other?,
    }
    match claim_name(io, name, id).await {
        Ok(()) => forget_entry(io, id).await,
        Err(ClientError::Errno(Errno::EEXIST))
            if super::pool::image_id(io, name).await.is_ok_and(|own| own == id) =>
        {
            forget_entry(io, id).await
        }
        Err(error) => {
            let _ = set_state(io, id, RESTORING, NORMAL).await;
            Err(error)
        }
    }
}

/// Content, map and header; a header that is gone already is no fault.
async fn remove_content(io: &IoCtx, id: &str, tell: OnProgress<'_>) -> Result<(), ClientError> {
    let options = OpenOptions::default();
    match Image::open_id(io, String::new(), id.to_owned(), &options).await {
        Err(ClientError::Errno(Errno::ENOENT)) => {}
        image => {
            let image = image?;
            let removed = remove_open(&image, tell).await;
            let _ = image.close().await;
            removed?;
        }
    }
    super::journal::remove(io, id).await?;
    for oid in [names::object_map(id, types::snap::NOSNAP), names::header(id)] {
        match io.remove(oid).await {
            Ok(()) | Err(ClientError::Errno(Errno::ENOENT)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Removes what users put into the trash and whose time is over at `now` (seconds since 1970).
/// What cannot go yet (open, with snapshots, in a group) is left for the next time; the first such error is
/// told when nothing more can go.
pub async fn trash_purge(io: &IoCtx, now: u32) -> Result<(), ClientError> {
    let due = |spec: &TrashImageSpec| {
        matches!(spec.source, BY_USER | BY_USER_AS_PARENT) && spec.deferment_end_time.sec <= now
    };
    let all = trash_list(io).await?;
    let mut left: Vec<String> =
        all.into_iter().filter(|(_, spec)| due(spec)).map(|(id, _)| id).collect();
    loop {
        let (before, mut kept, mut first) = (left.len(), Vec::new(), Ok(()));
        for id in left {
            // It may have been taken out and put back, for longer, since the list was read.
            match trash_get(io, &id).await {
                Ok(spec) if due(&spec) => {}
                Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => continue,
                Err(error) => return Err(error),
            }
            match trash_remove(io, &id, true, &unwatched).await {
                Ok(()) | Err(ClientError::Errno(Errno::ENOENT)) => {}
                Err(
                    error @ ClientError::Errno(Errno::ENOTEMPTY | Errno::EBUSY | Errno::EMLINK),
                ) => {
                    first = first.and(Err(error));
                    kept.push(id);
                }
                Err(error) => return Err(error),
            }
        }
        if kept.is_empty() || kept.len() == before {
            return first;
        }
        // The removal of a clone may have freed its parent.
        left = kept;
    }
}
