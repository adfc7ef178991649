//! Live migration: what has been prepared is executed, committed or aborted
//! (`src/librbd/api/Migration.cc` at v16.2).
//!
//! ```text
//! prepared:  source  its name is gone, it waits in the trash; its header points to the destination
//!            dest    has the name, the size, the snapshots; what it lacks is read from the source
//! executed:  dest    has all the content
//! committed: source  is removed, dest is an image like any other
//! aborted:   dest    is removed, source has its name again
//! ```
//! Here: sources of format 2 of this cluster that are in no group and not mirrored (EOPNOTSUPP).

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use cls::rbd::snapshot::MigrationSpec;
use types::osd::ObjListSnapResponse;
use types::osd::ops::{self, OsdOp};
use types::snap::{NOSNAP, SNAPDIR};
use types::{Errno, SnapContext, SnapId};

use super::header::Header;
use super::image::{Image, View};
use super::names::{self, features};
use super::object_map::{EXISTS, NONEXISTENT};
use super::progress::{OnProgress, Progress, many};
use super::remove::{forget, remove_open};
use super::trash::{forget_entry, restore};
use crate::{ClientError, IoCtx, Operation};

/// Header types of the two images.
const SOURCE: u8 = 1;
/// Objects copied at a time: each is held in memory.
const COPIES_AT_A_TIME: usize = 8;

/// How far a migration is. Wire: cls::rbd::MigrationState.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationState {
    /// It failed.
    Error,
    /// Being prepared.
    Preparing,
    /// May be executed.
    Prepared,
    /// Being executed.
    Executing,
    /// May be committed.
    Executed,
    /// Being aborted.
    Aborting,
}

const STATES: [MigrationState; 6] = [
    MigrationState::Error,
    MigrationState::Preparing,
    MigrationState::Prepared,
    MigrationState::Executing,
    MigrationState::Executed,
    MigrationState::Aborting,
];

/// One of the two images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationEnd {
    /// Pool.
    pub pool: i64,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Id; empty for images of format 1.
    pub id: String,
}

/// A migration under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migration {
    /// Where the content comes from.
    pub source: MigrationEnd,
    /// Where it goes.
    pub dest: MigrationEnd,
    /// How far it is.
    pub state: MigrationState,
}

impl MigrationEnd {
    fn of_spec(spec: &MigrationSpec) -> MigrationEnd {
        MigrationEnd {
            pool: spec.pool_id,
            namespace: spec.pool_namespace.to_string(),
            name: spec.image_name.to_string(),
            id: spec.image_id.to_string(),
        }
    }

    fn io(&self, io: &IoCtx) -> IoCtx {
        IoCtx::new(io.client().clone(), self.pool).with_namespace(self.namespace.as_str())
    }

    async fn set_state(&self, io: &IoCtx, state: MigrationState) -> Result<(), ClientError> {
        let number = STATES.iter().position(|s| *s == state).unwrap_or(0) as u8;
        let set = Operation::new().rbd_write("migration_set_state", |w| {
            w.u8(number);
            w.put(&String::new());
        });
        self.io(io).operate(names::header(&self.id), set).await.map(drop)
    }

    async fn end_migration(&self, io: &IoCtx) -> Result<(), ClientError> {
        let remove = Operation::new().rbd_write("migration_remove", |_| ());
        match self.io(io).operate(names::header(&self.id), remove).await {
            Err(ClientError::Errno(Errno::ENOENT)) => Ok(()),
            other => other.map(drop),
        }
    }

    async fn open(&self, io: &IoCtx, read_only: bool) -> Result<Image, ClientError> {
        Image::open_migrating(&self.io(io), self.name.clone(), self.id.clone(), read_only).await
    }
}

async fn spec_of(io: &IoCtx, id: &str) -> Result<MigrationSpec, ClientError> {
    let ask = Operation::new().rbd("migration_get", |_| ());
    io.operate(names::header(id), ask).await?.decode(0)
}

/// The migration and what the destination's header says of it.
async fn read(io: &IoCtx, name: &str) -> Result<(Migration, MigrationSpec), ClientError> {
    let id = super::pool::image_id(io, name).await?;
    let own = spec_of(io, &id).await?;
    let here = MigrationEnd {
        pool: io.pool_id(),
        namespace: io.namespace().to_string(),
        name: name.to_owned(),
        id,
    };
    let there = MigrationEnd::of_spec(&own);
    let state = |spec: &MigrationSpec| {
        STATES.get(usize::from(spec.state)).copied().unwrap_or(MigrationState::Error)
    };
    if own.header_type == SOURCE {
        let spec = spec_of(&there.io(io), &there.id).await?;
        return Ok((Migration { source: here, dest: there, state: state(&own) }, spec));
    }
    // The source's header decides; one of format 1 has its own, under its name.
    let state = match there.id.as_str() {
        "" => state(&own),
        id => state(&spec_of(&there.io(io), id).await?),
    };
    Ok((Migration { source: there, dest: here, state }, own))
}

/// The migration of an image: ENOENT when there is no image, EINVAL when it is not migrating.
pub async fn migration(io: &IoCtx, name: &str) -> Result<Migration, ClientError> {
    Ok(read(io, name).await?.0)
}

/// The same, if this crate may deal with it.
async fn ours(io: &IoCtx, name: &str) -> Result<(Migration, MigrationSpec), ClientError> {
    let (migration, spec) = read(io, name).await?;
    if migration.source.id.is_empty() || !spec.source_spec.is_empty() || spec.mirroring {
        return Err(Errno::EOPNOTSUPP.into());
    }
    for end in [&migration.source, &migration.dest] {
        let ask = Operation::new().rbd("image_group_get", |_| ());
        let group: cls::rbd::GroupSpec =
            end.io(io).operate(names::header(&end.id), ask).await?.decode(0)?;
        if group.pool_id != -1 {
            return Err(Errno::EOPNOTSUPP.into());
        }
    }
    Ok((migration, spec))
}

/// Copies the content: EINVAL when the migration is not prepared. May be repeated after a failure.
pub async fn migration_execute(
    io: &IoCtx,
    name: &str,
    tell: OnProgress<'_>,
) -> Result<(), ClientError> {
    let (migration, spec) = ours(io, name).await?;
    if !matches!(migration.state, MigrationState::Prepared | MigrationState::Executing) {
        return Err(Errno::EINVAL.into());
    }
    for end in [&migration.source, &migration.dest] {
        end.set_state(io, MigrationState::Executing).await?;
    }
    let dest = migration.dest.open(io, false).await?;
    let copied = copy(io, &migration, &spec, &dest, tell).await;
    let closed = dest.close().await;
    copied.and(closed)?;
    for end in [&migration.source, &migration.dest] {
        end.set_state(io, MigrationState::Executed).await?;
    }
    Ok(())
}

/// Ends a migration that has been executed: EINVAL when it has not, EBUSY when somebody has the source open
/// or a snapshot of it has clones. Cut off later, it leaves the source in the trash: `rbd trash rm`.
pub async fn migration_commit(
    io: &IoCtx,
    name: &str,
    tell: OnProgress<'_>,
) -> Result<(), ClientError> {
    let (migration, _) = ours(io, name).await?;
    if migration.state != MigrationState::Executed {
        return Err(Errno::EINVAL.into());
    }
    let source = migration.source.open(io, false).await?;
    let removed = async {
        make_removable(&source).await?;
        // Before the source goes, the destination must not look for it any more.
        migration.dest.end_migration(io).await?;
        tell_openers(io, &migration.dest).await?;
        // What a removal that is cut off leaves is an image of the trash like any other.
        migration.source.end_migration(io).await?;
        remove_all(&source, tell).await
    };
    let removed = removed.await;
    let _ = source.close().await;
    removed?;
    let (id, source) = (&migration.source.id, migration.source.io(io));
    forget(&source, &migration.source.name, id).await.or_else(only_stale)?;
    forget_entry(&source, id).await
}

/// Takes a migration back: what has been written since goes with the destination. EBUSY when somebody has
/// that open or a snapshot of it has clones.
pub async fn migration_abort(
    io: &IoCtx,
    name: &str,
    tell: OnProgress<'_>,
) -> Result<(), ClientError> {
    let (migration, _) = ours(io, name).await?;
    let (source, dest) = (&migration.source, &migration.dest);
    match dest.open(io, false).await {
        Err(ClientError::Errno(Errno::ENOENT)) => {}
        image => {
            let image = image?;
            let removed = async {
                make_removable(&image).await?;
                for end in [source, dest] {
                    end.set_state(io, MigrationState::Aborting).await?;
                }
                remove_all(&image, tell).await
            };
            let removed = removed.await;
            let _ = image.close().await;
            removed?;
            forget(&dest.io(io), &dest.name, &dest.id).await?;
        }
    }
    restore(&source.io(io), &source.id, &source.name).await?;
    source.end_migration(io).await?;
    tell_openers(io, source).await
}

/// The name of a source may belong to its destination.
fn only_stale(error: ClientError) -> Result<(), ClientError> {
    if error == ClientError::Errno(Errno::ESTALE) { Ok(()) } else { Err(error) }
}

async fn tell_openers(io: &IoCtx, end: &MigrationEnd) -> Result<(), ClientError> {
    let update = super::watcher::header_update();
    let header = names::header(&end.id);
    match end.io(io).notify(header, update, super::watcher::PATIENCE).await {
        Ok(_) | Err(ClientError::Errno(Errno::ENOENT | Errno::ETIMEDOUT)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sees that nothing will keep an image from being removed, before anything of it is.
async fn make_removable(image: &Image) -> Result<(), ClientError> {
    if image.is_open_elsewhere().await? {
        return Err(Errno::EBUSY.into());
    }
    image.snap_unprotect_all().await
}

/// Snapshots and content.
async fn remove_all(image: &Image, tell: OnProgress<'_>) -> Result<(), ClientError> {
    for snap in image.snapshots() {
        image.snap_remove_by_id(snap.id).await?;
    }
    remove_open(image, tell).await
}

/// The source at a time, and the destination's snapshot that shall show it (`NOSNAP`: the head).
struct Version {
    source: Image,
    shown_by: SnapId,
    /// The destination's snapshot before that. An object whose head has seen it has this version.
    seq: SnapId,
}

async fn copy(
    io: &IoCtx,
    migration: &Migration,
    spec: &MigrationSpec,
    dest: &Image,
    tell: OnProgress<'_>,
) -> Result<(), ClientError> {
    let source_io = migration.source.io(io);
    let header = Header::read(&source_io, &names::header(&migration.source.id)).await?;
    let seqs: BTreeMap<SnapId, SnapId> =
        spec.snap_seqs.iter().map(|(from, to)| (*from, *to)).collect();
    let (mut versions, mut seq) = (Vec::new(), 0);
    for from in header.snaps.keys() {
        let shown_by = *seqs.get(from).ok_or(ClientError::Errno(Errno::EOPNOTSUPP))?;
        // A snapshot of the destination may have been removed meanwhile.
        if dest.0.view().header.snaps.contains_key(&shown_by) {
            let source = migration_version(&source_io, migration, &header, *from).await?;
            versions.push(Version { source, shown_by, seq });
        }
        seq = shown_by;
    }
    let source = migration_version(&source_io, migration, &header, NOSNAP).await?;
    versions.push(Version { source, shown_by: NOSNAP, seq });
    let view = dest.0.view();
    if !view.header.has(features::EXCLUSIVE_LOCK) && dest.0.watchers().await?.entries.len() > 1 {
        // Without a lock the copies of others could meet ours.
        return Err(Errno::EBUSY.into());
    }
    let largest = versions.iter().map(|v| v.source.size()).max().unwrap_or(0);
    let objects = view.header.layout.objects(largest);
    let progress = Progress::new(tell, objects);
    // Those that have begun go on to their ends: cut off, they would leave old versions in heads, too.
    let copies = (0..objects).map(|object| copy_object(dest, &versions, object));
    many(copies, COPIES_AT_A_TIME, || progress.step()).await
}

async fn migration_version(
    io: &IoCtx,
    migration: &Migration,
    header: &Header,
    snap: SnapId,
) -> Result<Image, ClientError> {
    let (name, id) = (migration.source.name.clone(), migration.source.id.clone());
    Image::with_header(io, name, id, header.clone(), snap, true, 0).await
}

/// The bytes of an object of the destination as the source has them.
async fn content(view: &View, source: &Image, object: u64) -> Result<Bytes, ClientError> {
    let layout = &view.header.layout;
    let size = source.size();
    let mut data = BytesMut::new();
    for range in layout.image_ranges(object, 0..layout.object_size()) {
        let end = range.end.min(size);
        let start = range.start.min(end);
        if start < end {
            for piece in source.read(start, end - start).await?.pieces() {
                data.extend_from_slice(piece);
            }
        }
        data.resize(data.len() + (range.end - range.start - (end - start)) as usize, 0);
    }
    let used = data.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
    data.truncate(used);
    Ok(data.freeze())
}

/// The newest snapshot that an object's head has seen; `None` if there is no object.
async fn seen_by(view: &View, oid: String) -> Result<Option<SnapId>, ClientError> {
    let ask = Operation::new().op(OsdOp::new(ops::LIST_SNAPS));
    match view.write.clone().with_snap_read(SNAPDIR).operate(oid, ask).await {
        Err(ClientError::Errno(Errno::ENOENT)) => Ok(None),
        listed => Ok(Some(listed?.decode::<ObjListSnapResponse>(0)?.seq)),
    }
}

/// Copies an object with its history, oldest first. One that has seen the last snapshot is done:
/// somebody has written to it, and with that has copied it. One that has not may have been left by
/// a copy that was cut off: that goes on.
async fn copy_object(dest: &Image, versions: &[Version], object: u64) -> Result<(), ClientError> {
    let (_inside, view, map) = dest.0.enter_write().await?;
    let _using = dest.0.objects.enter(object, true).await;
    let oid = view.header.data_object(object);
    if object >= view.header.layout.objects(view.size) && view.header.snaps.is_empty() {
        return Ok(());
    }
    // What the head has; nobody knows that of versions whose snapshots are gone.
    let (mut before, mut left) = (Some(Bytes::new()), versions);
    let seen = seen_by(&view, oid.clone()).await?;
    if let Some(seen) = seen {
        let has = versions.partition_point(|version| version.seq <= seen);
        left = &versions[has..];
        before = match versions[..has].last() {
            _ if left.is_empty() => return Ok(()),
            Some(version) => Some(content(&view, &version.source, object).await?),
            None => None,
        };
    }
    let mut contents = Vec::new();
    for version in left {
        contents.push((version, content(&view, &version.source, object).await?));
    }
    if seen.is_none() && contents.iter().all(|(_, data)| data.is_empty()) {
        return Ok(());
    }
    let head_size = view.header.layout.objects(view.size);
    if let Some(map) = map.filter(|_| object < head_size) {
        map.ensure_exists(object).await?;
    }
    for (version, data) in contents {
        let shown_by = version.shown_by;
        if shown_by != NOSNAP && !data.is_empty() && view.header.object_map_valid(shown_by) {
            let update =
                Operation::new().object_map_update(object..object + 1, EXISTS, Some(NONEXISTENT));
            let map = names::object_map(&dest.0.id, shown_by);
            match dest.0.io.operate(map, update).await {
                Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => {}
                Err(error) => return Err(error),
            }
        }
        if before.as_ref() == Some(&data) {
            continue;
        }
        // Written before the snapshot that shows it was taken.
        let older = |id: &&SnapId| shown_by == NOSNAP || **id < shown_by;
        let snaps: Vec<SnapId> = view.header.snapc.snaps.iter().filter(older).copied().collect();
        let seq = match shown_by {
            NOSNAP => view.header.snapc.seq,
            _ => version.seq,
        };
        let write = view.write.clone().with_snap_context(SnapContext { seq, snaps });
        write.operate(oid.clone(), Operation::new().write_full(data.clone())).await?;
        before = Some(data);
    }
    Ok(())
}
