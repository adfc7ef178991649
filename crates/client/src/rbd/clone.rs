//! Clones: images whose unwritten parts are a snapshot of another (`src/librbd/image/
//! CloneRequest.cc`, `src/librbd/operation/FlattenRequest.cc` at v16.2).
//!
//! The first kind is known by `rbd_children` in the clone's pool and its snapshot is protected;
//! the second by the parent's header, which counts its children. A clone of a protected snapshot
//! is of the first kind, which all clients understand; else of the second, which needs clients of
//! 13.2 or later and needs no protection. So is one from or to a namespace: children of the first
//! kind are looked for outside of those.

use cls::rbd::features::operation::CLONE_CHILD;
use cls::rbd::snapshot::{ChildImageSpec, SnapshotInfo};
use denc::Denc;
use futures_util::future::LocalBoxFuture;
use types::Errno;

use super::create::{CreateOptions, claim_name, plan, write_header};
use super::header::{Header, ParentImageSpec};
use super::image::{Image, OpenOptions, View};
use super::journal::OpChange;
use super::names::{self, features};
use super::progress::{OnProgress, Progress, many, unwatched};
use super::remove::forget;
use super::write::OBJECTS_AT_A_TIME;
use crate::{ClientError, IoCtx, Operation};

fn child_spec(io: &IoCtx, id: &str) -> ChildImageSpec {
    ChildImageSpec {
        pool_id: io.pool_id(),
        image_id: id.into(),
        pool_namespace: io.namespace().to_owned(),
    }
}

fn io_of(io: &IoCtx, spec: &ParentImageSpec) -> IoCtx {
    io.in_pool(spec.pool_id, &spec.pool_namespace)
}

/// Makes a clone of a snapshot: EINVAL when the parent has no layering, ENOENT, EEXIST.
pub async fn clone(
    parent_io: &IoCtx,
    parent: &str,
    snap: &str,
    io: &IoCtx,
    name: &str,
    options: &CreateOptions,
) -> Result<(), ClientError> {
    let open = OpenOptions { snap: Some(snap.to_owned()), read_only: true };
    let from = Image::open(parent_io, parent, &open).await?;
    let view = from.0.view();
    let (size, protected) = match view.header.snap_named(snap) {
        Some(info) => (info.size, info.protected),
        None => return Err(Errno::ENOENT.into()),
    };
    if !view.header.has(features::LAYERING) || options.features & features::LAYERING == 0 {
        return Err(Errno::EINVAL.into());
    }
    let spec = ParentImageSpec {
        pool_id: parent_io.pool_id(),
        pool_namespace: parent_io.namespace().to_owned(),
        image_id: from.0.id.as_str().into(),
        snap_id: from.0.snap,
    };
    from.close().await?;
    let new = plan(io, size, options).await?;
    claim_name(io, name, &new.id).await?;
    let made = async {
        write_header(io, &new).await?;
        let attach = Operation::new().rbd_write("parent_attach", |w| {
            w.put(&spec);
            w.u64(size);
            w.bool(false);
        });
        io.operate(names::header(&new.id), attach).await?;
        if protected && spec.pool_namespace.is_empty() && io.namespace().is_empty() {
            let add = Operation::new().child("add_child", &spec, &new.id);
            io.operate(names::CHILDREN, add).await?;
            // Who lifted the protection meanwhile may not have seen this child.
            let after = Header::read(parent_io, &names::header_of(&spec)).await;
            let is_protected =
                |after: &Header| after.snaps.get(&spec.snap_id).is_some_and(|snap| snap.protected);
            if !after.as_ref().is_ok_and(is_protected) {
                let remove = Operation::new().child("remove_child", &spec, &new.id);
                io.operate(names::CHILDREN, remove).await?;
                return Err(after.err().unwrap_or(Errno::EINVAL.into()));
            }
        } else {
            let child = Operation::new().rbd_write("op_features_set", |w| {
                w.u64(CLONE_CHILD);
                w.u64(CLONE_CHILD);
            });
            io.operate(names::header(&new.id), child).await?;
            let add = Operation::new().rbd_write("child_attach", |w| {
                w.u64(spec.snap_id);
                w.put(&child_spec(io, &new.id));
            });
            parent_io.operate(names::header_of(&spec), add).await?;
        }
        Ok(())
    };
    if let Err(error) = made.await {
        let _ = forget(io, name, &new.id).await;
        return Err(error);
    }
    Ok(())
}

/// Tells a parent that an image is its child no more.
pub(crate) async fn detach_from_parent(
    image: &Image,
    spec: &ParentImageSpec,
) -> Result<(), ClientError> {
    let (io, id) = (&image.0.io, &image.0.id);
    let first_kind = Operation::new().child("remove_child", spec, id);
    match io.operate(names::CHILDREN, first_kind).await {
        Ok(_) => return Ok(()),
        Err(ClientError::Errno(Errno::ENOENT)) => {}
        Err(error) => return Err(error),
    }
    let detach = Operation::new().rbd_write("child_detach", |w| {
        w.u64(spec.snap_id);
        w.put(&child_spec(io, id));
    });
    match io_of(io, spec).operate(names::header_of(spec), detach).await {
        Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => {}
        Err(error) => return Err(error),
    }
    tell_parent(io, spec).await?;
    match remove_unused(io_of(io, spec), spec).await {
        Ok(()) | Err(ClientError::Errno(Errno::ENOENT | Errno::EBUSY)) => {}
        // The child is none any more, whatever becomes of the parent.
        Err(error) => tracing::warn!(
            "snapshot {} of {} stays in the trash: {error}",
            spec.snap_id,
            spec.image_id
        ),
    }
    Ok(())
}

/// Who removes a snapshot that has clones puts it into its image's trash; it goes with the last of them.
fn remove_unused(io: IoCtx, spec: &ParentImageSpec) -> LocalBoxFuture<'_, Result<(), ClientError>> {
    Box::pin(async move {
        let ask = Operation::new().rbd("snapshot_get", |w| w.u64(spec.snap_id));
        let snap: SnapshotInfo = io.operate(names::header_of(spec), ask).await?.decode(0)?;
        if !snap.namespace.is_trash() || snap.child_count > 0 {
            return Ok(());
        }
        let (id, options) = (spec.image_id.to_string(), OpenOptions::default());
        let parent = Image::open_id(&io, String::new(), id, &options).await?;
        let removed = parent.snap_remove_by_id(spec.snap_id).await;
        removed.and(parent.close().await)
    })
}

async fn tell_parent(io: &IoCtx, spec: &ParentImageSpec) -> Result<(), ClientError> {
    let update = super::watcher::header_update();
    match io_of(io, spec).notify(names::header_of(spec), update, super::watcher::PATIENCE).await {
        Ok(_) | Err(ClientError::Errno(Errno::ENOENT | Errno::ETIMEDOUT)) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Image {
    /// Copies what is still the parent's and parts from it. EINVAL when there is no parent.
    /// Writes go on meanwhile.
    pub async fn flatten(&self) -> Result<(), ClientError> {
        self.flatten_with(&unwatched).await
    }

    /// The same, told how far it has come.
    pub async fn flatten_with(&self, tell: OnProgress<'_>) -> Result<(), ClientError> {
        let _turn = self.0.begin_change().await?;
        if self.0.view().header.parent.is_none() {
            return Err(Errno::EINVAL.into());
        }
        self.0.journaled(OpChange::Flatten, self.flatten_in_turn(tell, false)).await?;
        self.0.header_changed().await
    }

    /// With the turn for changes held; `alone` when no writers are let in meanwhile.
    pub(crate) async fn flatten_in_turn(
        &self,
        tell: OnProgress<'_>,
        alone: bool,
    ) -> Result<(), ClientError> {
        let view = self.0.view();
        let Some(parent) = view.header.parent.clone() else { return Err(Errno::EINVAL.into()) };
        let deep = view.header.has(features::DEEP_FLATTEN);
        // What snapshots see beyond the head's overlap was copied when the head was cut.
        let objects = view.header.layout.objects(view.overlap);
        let copies = (0..objects).map(|object| self.fill(object, deep, alone));
        let progress = Progress::new(tell, objects);
        many(copies, OBJECTS_AT_A_TIME, || progress.step()).await?;
        self.0.locked_op(Operation::new().rbd_write("parent_detach", |_| ())).await?;
        let after = Header::read(&self.0.io, &self.0.header_oid).await?;
        if after.snaps.values().all(|snap| snap.overlap.is_none()) {
            detach_from_parent(self, &parent.spec).await?;
        }
        self.0.refresh().await
    }

    /// Gives an object the parent's bytes, if it is not there.
    async fn fill(&self, object: u64, deep: bool, alone: bool) -> Result<(), ClientError> {
        let (_inside, view, map) = match alone {
            true => (None, self.0.view(), self.0.lock.object_map()),
            false => {
                let (inside, view, map) = self.0.enter_write().await?;
                (Some(inside), view, map)
            }
        };
        let below = deep && !view.header.snapc.snaps.is_empty();
        let prefix = view.prefix(object, view.overlap);
        // One that is there need not be kept from its writers; it may come while they are waited for.
        if prefix == 0 || is_there(&view, object).await? {
            return Ok(());
        }
        let _using = self.0.objects.enter(object, true).await;
        if is_there(&view, object).await? {
            return Ok(());
        }
        let data = self.parent_data(&view, object, prefix).await?;
        if data.is_empty() {
            return Ok(());
        }
        if let Some(map) = &map {
            self.0.map_updated(map, map.ensure_exists(object).await).await?;
        }
        if below {
            return self.copy_below(&view, object, &data).await;
        }
        let copy = Operation::new().copy_up(&data);
        view.write.operate(view.header.data_object(object), copy).await.map(drop)
    }
}

async fn is_there(view: &View, object: u64) -> Result<bool, ClientError> {
    match view.write.stat(view.header.data_object(object)).await {
        Ok(_) => Ok(true),
        Err(ClientError::Errno(Errno::ENOENT)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a snapshot has clones of the first kind, in any pool: those are in its namespace.
pub(crate) async fn has_children(io: &IoCtx, spec: &ParentImageSpec) -> Result<bool, ClientError> {
    let client = io.client();
    client.wait_for_latest_osdmap().await?;
    let pools: Vec<i64> = client.osdmap().pools.keys().copied().collect();
    for pool in pools {
        let there = IoCtx::new(client.clone(), pool).with_namespace(spec.pool_namespace.clone());
        let ask = Operation::new().rbd("get_children", |w| {
            w.i64(spec.pool_id);
            w.put(&spec.image_id);
            w.u64(spec.snap_id);
        });
        match there.operate(names::CHILDREN, ask).await {
            Ok(outcome) => {
                let children: std::collections::BTreeSet<String> =
                    Denc::from_bytes(&outcome.output(0)?)?;
                if !children.is_empty() {
                    return Ok(true);
                }
            }
            // No clones here, or a pool of another kind.
            Err(ClientError::Errno(Errno::ENOENT | Errno::EOPNOTSUPP)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}
