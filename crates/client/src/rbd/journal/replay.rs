//! Bringing to its end what the last owner of the lock had begun (`src/librbd/journal/Replay.cc`
//! at v16.2).
//!
//! The journal is read twice: first for how the changes of the whole ended, for one that is known
//! to have failed is not made. Creations of snapshots and resizes are made where they stand between
//! the writes, the others where they ended, or at the end of the journal. Around each the position
//! is kept, so that a replay that dies is not repeated over it. What is there already is no fault.

use std::collections::BTreeMap;
use std::ops::Range;

use bstr::ByteSlice;
use cls::journal::ObjectPosition;
use cls::rbd::features::PROTECTED;
use cls::rbd::snapshot::SnapshotNamespace;
use denc::Denc;
use futures_util::future::join_all;
use types::Errno;

use super::commit::Commits;
use super::event::{Event, EventEntry, OpChange};
use super::header::Header;
use super::player::Player;
use crate::rbd::header::SnapInfo;
use crate::rbd::image::Image;
use crate::rbd::names;
use crate::rbd::progress::unwatched;
use crate::rbd::write::{Over, one_piece};
use crate::{ClientError, Operation};

/// Writes made side by side.
const BATCH_MAX: usize = 64;

/// With the lock just taken and nobody let in yet.
pub(crate) async fn replay(image: &Image, header: &Header) -> Result<(), ClientError> {
    let ends = ends_of_changes(header).await?;
    let Some(ends) = ends else { return Ok(()) };
    tracing::info!("the journal of {} is replayed", image.0.name);
    let position = header.position().await?;
    let mut player = Player::new(header, &position);
    let mut replay = Replay {
        image,
        header,
        commits: Commits::new(header.splay, position),
        batch: Vec::new(),
        begun: BTreeMap::new(),
    };
    while let Some((object_number, entry)) = player.next(header).await? {
        let at = ObjectPosition { object_number, tag_tid: entry.tag, entry_tid: entry.tid };
        let number = replay.commits.begin(at);
        let event = EventEntry::from_bytes(&entry.data)?.event;
        match event {
            Event::Op { tid, change } if change.takes_place_at_once() => {
                let result = ends.get(&(entry.tag, tid)).copied().unwrap_or(0);
                replay.change(&change, result).await?;
                replay.commits.done(number);
                replay.keep().await?;
            }
            Event::Op { tid, change } => {
                replay.begun.insert((entry.tag, tid), (number, change));
            }
            Event::OpFinish { tid, result } => {
                if let Some((begun, change)) = replay.begun.remove(&(entry.tag, tid)) {
                    replay.change(&change, result).await?;
                    replay.commits.done(begun);
                }
                replay.commits.done(number);
                replay.keep().await?;
            }
            Event::Flush | Event::DemotePromote | Event::Unknown(_) => replay.commits.done(number),
            event => replay.write(number, event).await?,
        }
    }
    for (number, change) in std::mem::take(&mut replay.begun).into_values() {
        replay.change(&change, 0).await?;
        replay.commits.done(number);
    }
    replay.write_batch().await?;
    replay.keep().await
}

/// How changes of the whole ended, by tag and number; `None` if there is nothing to replay.
async fn ends_of_changes(
    header: &Header,
) -> Result<Option<BTreeMap<(u64, u64), i32>>, ClientError> {
    let mut player = Player::new(header, &header.position().await?);
    let mut ends = None;
    while let Some((_, entry)) = player.next(header).await? {
        let ends = ends.get_or_insert_with(BTreeMap::new);
        if let Event::OpFinish { tid, result } = EventEntry::from_bytes(&entry.data)?.event {
            ends.insert((entry.tag, tid), result);
        }
    }
    Ok(ends)
}

struct Replay<'a> {
    image: &'a Image,
    header: &'a Header,
    commits: Commits,
    /// Writes that do not overlap: at most [`BATCH_MAX`].
    batch: Vec<(u64, Event)>,
    /// Changes whose end is not read yet; each client has a few under way at most.
    begun: BTreeMap<(u64, u64), (u64, OpChange)>,
}

fn range_of(event: &Event) -> Range<u64> {
    let (offset, len) = match event {
        Event::Write { offset, data } | Event::CompareAndWrite { offset, data, .. } => {
            (*offset, data.len() as u64)
        }
        Event::Discard { offset, len, .. } | Event::WriteSame { offset, len, .. } => {
            (*offset, *len)
        }
        _ => (0, 0),
    };
    offset..offset.saturating_add(len)
}

impl Replay<'_> {
    async fn keep(&mut self) -> Result<(), ClientError> {
        match self.commits.take_changed() {
            Some(position) => self.header.keep_position(&position).await,
            None => Ok(()),
        }
    }

    async fn write(&mut self, number: u64, event: Event) -> Result<(), ClientError> {
        let range = range_of(&event);
        let overlaps = self.batch.iter().any(|(_, other)| {
            let other = range_of(other);
            other.start < range.end && range.start < other.end
        });
        if overlaps || self.batch.len() == BATCH_MAX {
            self.write_batch().await?;
        }
        self.batch.push((number, event));
        Ok(())
    }

    async fn write_batch(&mut self) -> Result<(), ClientError> {
        let batch = std::mem::take(&mut self.batch);
        let writes = batch.iter().map(|(_, event)| self.apply(event));
        join_all(writes).await.into_iter().collect::<Result<(), ClientError>>()?;
        batch.iter().for_each(|(number, _)| self.commits.done(*number));
        Ok(())
    }

    /// Writes, as far as the image reaches.
    async fn apply(&self, event: &Event) -> Result<(), ClientError> {
        let inner = &self.image.0;
        let (view, map) = (inner.view(), inner.lock.object_map());
        let range = range_of(event);
        let len = range.end.min(view.size).saturating_sub(range.start);
        if len == 0 {
            return Ok(());
        }
        let (image, map, at) = (self.image, map.as_ref(), range.start);
        match event {
            Event::Write { data, .. } => {
                image.write_in(&view, map, at, &data.slice(..len as usize)).await
            }
            Event::Discard { granularity, .. } => {
                let over = Over::Zeros { granularity: u64::from(*granularity) };
                image.change_range_in(&view, map, at, len, &over).await
            }
            Event::WriteSame { pattern, .. } if !pattern.is_empty() => {
                image.change_range_in(&view, map, at, len, &Over::Pattern(pattern.clone())).await
            }
            Event::CompareAndWrite { expected, data, .. } => {
                match one_piece(&view, at, expected, data) {
                    // What it finds now may be what it has written: either way it is done.
                    Ok(piece) if len == data.len() as u64 => {
                        let (expected, data) = (expected.clone(), data.clone());
                        image.compare_in(&view, map, at, &piece, expected, data).await.map(drop)
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Makes a change of the whole, unless it is known to have failed.
    async fn change(&mut self, change: &OpChange, result: i32) -> Result<(), ClientError> {
        self.write_batch().await?;
        self.keep().await?;
        if result < 0 {
            return Ok(());
        }
        match make(self.image, change).await {
            // It was made before, or could not be made.
            Err(ClientError::Errno(
                errno @ (Errno::EEXIST
                | Errno::ENOENT
                | Errno::EBUSY
                | Errno::EINVAL
                | Errno::ERANGE),
            )) => {
                tracing::info!("{change:?} of {} is not repeated: {errno}", self.image.0.name);
                Ok(())
            }
            made => made,
        }
    }
}

async fn make(image: &Image, change: &OpChange) -> Result<(), ClientError> {
    let inner = &image.0;
    inner.refresh().await?;
    let text = |name: &bstr::BString| name.to_str().map(str::to_owned).map_err(|_| Errno::EINVAL);
    let snap_of = |name: &bstr::BString, namespace: &SnapshotNamespace| {
        find_snap(image, name, namespace).ok_or(Errno::ENOENT)
    };
    match change {
        OpChange::SnapCreate { name, namespace } => {
            if find_snap(image, name, namespace).is_some() {
                return Err(Errno::EEXIST.into());
            }
            image.snap_create_alone(&text(name)?, namespace).await.map(drop)
        }
        OpChange::SnapRemove { name, namespace } => {
            image.snap_remove_alone(&snap_of(name, namespace)?).await
        }
        OpChange::SnapRename { id, to, .. } => {
            let rename = Operation::new().rbd_write("snapshot_rename", |w| {
                w.u64(*id);
                w.put(to);
            });
            inner.locked_op(rename).await
        }
        OpChange::SnapProtect { name, namespace } => {
            let snap = snap_of(name, namespace)?;
            match snap.protected {
                true => Err(Errno::EBUSY.into()),
                false => image.set_protection(snap.id, PROTECTED).await,
            }
        }
        OpChange::SnapUnprotect { name, namespace } => {
            let snap = snap_of(name, namespace)?;
            match snap.protected {
                true => image.snap_unprotect_in_turn(&snap).await,
                false => Err(Errno::EINVAL.into()),
            }
        }
        OpChange::SnapRollback { name, namespace } => {
            image.snap_rollback_in_turn(&snap_of(name, namespace)?).await
        }
        OpChange::SnapLimit { limit } => {
            let set = Operation::new().rbd_write("snapshot_set_limit", |w| w.u64(*limit));
            inner.locked_op(set).await
        }
        OpChange::Rename { name } => rename(image, &text(name)?).await,
        OpChange::Resize { size } => image.resize_in_turn(*size).await,
        OpChange::Flatten => image.flatten_in_turn(&unwatched, true).await,
        OpChange::UpdateFeatures { features, enabled } => {
            let now = inner.view().header.features & features;
            match now == if *enabled { *features } else { 0 } {
                true => Ok(()),
                false => {
                    tracing::error!(
                        "the journal of {} says that features change; let `rbd` open it",
                        inner.name
                    );
                    Err(Errno::EOPNOTSUPP.into())
                }
            }
        }
        OpChange::MetadataSet { key, value } => {
            let all = BTreeMap::from([(key.clone(), value.clone())]);
            let set = Operation::new().rbd_write("metadata_set", |w| w.put(&all));
            inner.locked_op(set).await
        }
        OpChange::MetadataRemove { key } => {
            let remove = Operation::new().rbd_write("metadata_remove", |w| w.put(key));
            inner.locked_op(remove).await
        }
    }?;
    inner.refresh().await
}

fn find_snap(
    image: &Image,
    name: &bstr::BString,
    namespace: &SnapshotNamespace,
) -> Option<SnapInfo> {
    let is_user = *namespace == SnapshotNamespace::User;
    let view = image.0.view();
    let mut snaps = view.header.snaps.values();
    snaps.find(|snap| snap.name.as_bytes() == name.as_bytes() && snap.user == is_user).cloned()
}

/// Gives the image another name (`src/librbd/operation/RenameRequest.cc`); EEXIST.
async fn rename(image: &Image, to: &str) -> Result<(), ClientError> {
    let (io, id) = (&image.0.io, &image.0.id);
    let from = crate::rbd::image_name(io, id).await?;
    if from == to {
        return Err(Errno::EEXIST.into());
    }
    let claim = Operation::new().create(true).rbd_write("set_id", |w| w.put(id));
    io.operate(names::id_object(to), claim).await?;
    let rename = Operation::new().rbd_write("dir_rename_image", |w| {
        w.put(&from);
        w.put(&to.to_owned());
        w.put(id);
    });
    io.operate(names::DIRECTORY, rename).await?;
    io.remove(names::id_object(&from)).await
}
