//! Snapshots of an image (`src/librbd/operation/Snapshot*Request.cc` at v16.2).

use cls::rbd::features::{PROTECTED, UNPROTECTED, UNPROTECTING};
use cls::rbd::snapshot::{SnapshotInfo, SnapshotNamespace};
use types::osd::ops::{OsdOp, ROLLBACK, SnapArgs};
use types::{Errno, SnapId};

use super::clone::{detach_from_parent, has_children};
use super::header::{ParentImageSpec, SnapInfo};
use super::image::{Image, View};
use super::journal::OpChange;
use super::names::{self, features};
use super::object_map::{self, EXISTS, NONEXISTENT, States};
use super::progress::many;
use super::write::OBJECTS_AT_A_TIME;
use crate::{ClientError, Operation};

/// Clones hold what is in the trash already, or is not a user's.
fn check_removable(snap: &SnapInfo) -> Result<(), Errno> {
    match snap.protected || snap.children > 0 && !snap.user {
        true => Err(Errno::EBUSY),
        false => Ok(()),
    }
}

impl Image {
    fn snap_named(&self, view: &View, name: &str) -> Result<SnapInfo, ClientError> {
        view.header.snap_named(name).cloned().ok_or(ClientError::Errno(Errno::ENOENT))
    }

    fn data_pool(&self, view: &View) -> i64 {
        view.write.pool_id()
    }

    /// Takes a snapshot; EEXIST. Writes that have returned are in it, those that begin after this
    /// has returned are not.
    pub async fn snap_create(&self, name: &str) -> Result<(), ClientError> {
        let _turn = self.0.begin_change().await?;
        if name.is_empty() || name.contains(['/', '@']) {
            return Err(Errno::EINVAL.into());
        }
        if self.0.view().header.snap_named(name).is_some() {
            return Err(Errno::EEXIST.into());
        }
        self.snap_create_in_turn(name, &SnapshotNamespace::User).await?;
        self.0.header_changed().await
    }

    /// With the turn for changes held; others are not told yet.
    pub(crate) async fn snap_create_in_turn(
        &self,
        name: &str,
        namespace: &SnapshotNamespace,
    ) -> Result<SnapId, ClientError> {
        let blocked = self.0.block_writes().await;
        let created = OpChange::SnapCreate { name: name.into(), namespace: namespace.clone() };
        let id = self.0.journaled(created, self.snap_create_alone(name, namespace)).await?;
        drop(blocked);
        Ok(id)
    }

    /// With writers kept out.
    pub(crate) async fn snap_create_alone(
        &self,
        name: &str,
        namespace: &SnapshotNamespace,
    ) -> Result<SnapId, ClientError> {
        let view = self.0.view();
        let client = self.0.io.client();
        let pool = self.data_pool(&view);
        let id = loop {
            let id = client.selfmanaged_snap_create(pool).await?;
            let add = Operation::new().rbd_write("snapshot_add", |w| {
                w.put(&name.to_owned());
                w.u64(id);
                w.put(namespace);
            });
            match self.0.locked_op(add).await {
                Ok(()) => break id,
                // Another has made one with a newer id.
                Err(ClientError::Errno(Errno::ESTALE)) => {
                    client.selfmanaged_snap_remove(pool, id).await?;
                }
                Err(error) => {
                    let _ = client.selfmanaged_snap_remove(pool, id).await;
                    return Err(error);
                }
            }
        };
        // Writers must learn of it, whatever fails from here on.
        self.0.outdate();
        if let Some(map) = self.0.lock.object_map() {
            let to = names::object_map(&self.0.id, id);
            map.snap_add(&to, view.header.has(features::FAST_DIFF)).await?;
        }
        self.0.refresh().await?;
        Ok(id)
    }

    /// Removes a snapshot: EBUSY when it is protected. One that has clones waits in the image's trash
    /// until the last of them goes.
    pub async fn snap_remove(&self, name: &str) -> Result<(), ClientError> {
        let _turn = self.0.begin_change().await?;
        let snap = self.snap_named(&self.0.view(), name)?;
        self.snap_remove_in_turn(snap).await
    }

    /// Removes any snapshot, not only a user's; ENOENT.
    pub(crate) async fn snap_remove_by_id(&self, id: SnapId) -> Result<(), ClientError> {
        let _turn = self.0.begin_change().await?;
        let snap = self.0.view().header.snaps.get(&id).cloned().ok_or(Errno::ENOENT)?;
        self.snap_remove_in_turn(snap).await
    }

    pub(crate) async fn snap_remove_in_turn(&self, snap: SnapInfo) -> Result<(), ClientError> {
        check_removable(&snap)?;
        let removed = match self.0.lock.journal() {
            None => None,
            Some(_) => Some(self.snap_namespace(snap.id).await?),
        };
        let (name, namespace) = (snap.name.as_str().into(), removed.unwrap_or_default());
        let removal = OpChange::SnapRemove { name, namespace };
        self.0.journaled(removal, self.snap_remove_alone(&snap)).await?;
        self.0.header_changed().await
    }

    /// What a snapshot is for.
    async fn snap_namespace(&self, id: SnapId) -> Result<SnapshotNamespace, ClientError> {
        let ask = Operation::new().rbd("snapshot_get", |w| w.u64(id));
        let header = self.0.header_oid.clone();
        let info: SnapshotInfo = self.0.io.operate(header, ask).await?.decode(0)?;
        Ok(info.namespace)
    }

    /// With the turn for changes held; others are not told yet.
    pub(crate) async fn snap_remove_alone(&self, snap: &SnapInfo) -> Result<(), ClientError> {
        let view = self.0.view();
        check_removable(snap)?;
        if snap.children > 0 {
            let add = Operation::new().rbd_write("snapshot_trash_add", |w| w.u64(snap.id));
            self.0.locked_op(add).await?;
            return self.0.refresh().await;
        }
        if view.header.has(features::OBJECT_MAP) {
            self.remove_map(&view, snap.id).await?;
        }
        let remove = Operation::new().rbd_write("snapshot_remove", |w| w.u64(snap.id));
        self.0.locked_op(remove).await?;
        self.0.refresh().await?;
        // The last one that saw the parent of a flattened image.
        let after = self.0.view();
        let sees = after.header.parent.is_some()
            || after.header.snaps.values().any(|s| s.overlap.is_some());
        if let (Some(spec), true, false) = (&view.header.parent_spec, snap.overlap.is_some(), sees)
        {
            detach_from_parent(self, spec).await?;
        }
        let pool = self.data_pool(&view);
        self.0.io.client().selfmanaged_snap_remove(pool, snap.id).await
    }

    /// Merges a snapshot's object map into the next newer one, and removes it.
    async fn remove_map(&self, view: &View, id: SnapId) -> Result<(), ClientError> {
        let io = &self.0.io;
        let oid = names::object_map(&self.0.id, id);
        if view.header.has(features::FAST_DIFF)
            && view.header.object_map_valid(id)
            && let Ok(states) = object_map::load(io, &oid).await
        {
            let newer = view.header.snaps.range(id + 1..).next();
            match (newer, self.0.lock.object_map()) {
                (Some((newer, _)), _) => {
                    let merge = object_map::snap_remove_op(Operation::new(), &states);
                    let to = names::object_map(&self.0.id, *newer);
                    match io.operate(to, merge).await {
                        Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => {}
                        Err(error) => return Err(error),
                    }
                }
                (None, Some(map)) => map.snap_remove(&states).await?,
                (None, None) => {}
            }
        }
        match io.remove(oid).await {
            Ok(()) | Err(ClientError::Errno(Errno::ENOENT)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn set_protection(&self, id: SnapId, status: u8) -> Result<(), ClientError> {
        let set = Operation::new().rbd_write("set_protection_status", |w| {
            w.u64(id);
            w.u8(status);
        });
        self.0.locked_op(set).await
    }

    /// Protects a snapshot from removal, for clones of the first kind; EBUSY when it is.
    pub async fn snap_protect(&self, name: &str) -> Result<(), ClientError> {
        let _turn = self.0.begin_change().await?;
        let view = self.0.view();
        let snap = self.snap_named(&view, name)?;
        if !view.header.has(features::LAYERING) {
            return Err(Errno::ENOSYS.into());
        }
        if snap.protected {
            return Err(Errno::EBUSY.into());
        }
        let protects =
            OpChange::SnapProtect { name: name.into(), namespace: SnapshotNamespace::User };
        self.0.journaled(protects, self.set_protection(snap.id, PROTECTED)).await?;
        self.0.refresh().await?;
        self.0.header_changed().await
    }

    /// Ends the protection: EBUSY while there are clones, EINVAL when there is no protection.
    pub async fn snap_unprotect(&self, name: &str) -> Result<(), ClientError> {
        let _turn = self.0.begin_change().await?;
        let snap = self.snap_named(&self.0.view(), name)?;
        if !snap.protected {
            return Err(Errno::EINVAL.into());
        }
        self.end_protection(snap).await
    }

    async fn end_protection(&self, snap: SnapInfo) -> Result<(), ClientError> {
        let (name, namespace) = (snap.name.as_str().into(), SnapshotNamespace::User);
        let ends = OpChange::SnapUnprotect { name, namespace };
        let ended = self.0.journaled(ends, self.snap_unprotect_in_turn(&snap)).await;
        self.0.header_changed().await?;
        ended
    }

    /// Takes the protection off all snapshots: EBUSY, before anything is changed, when one has clones.
    pub(crate) async fn snap_unprotect_all(&self) -> Result<(), ClientError> {
        let _turn = self.0.begin_change().await?;
        let snaps = self.snapshots();
        for snap in &snaps {
            if snap.children > 0
                || snap.protected && has_children(&self.0.io, &self.spec_of_snap(snap.id)).await?
            {
                return Err(Errno::EBUSY.into());
            }
        }
        for snap in snaps.into_iter().filter(|snap| snap.protected) {
            self.end_protection(snap).await?;
        }
        Ok(())
    }

    fn spec_of_snap(&self, snap_id: SnapId) -> ParentImageSpec {
        ParentImageSpec {
            pool_id: self.0.io.pool_id(),
            pool_namespace: self.0.io.namespace().to_owned(),
            image_id: self.0.id.as_str().into(),
            snap_id,
        }
    }

    /// With the turn for changes held; others are not told yet.
    pub(crate) async fn snap_unprotect_in_turn(&self, snap: &SnapInfo) -> Result<(), ClientError> {
        self.set_protection(snap.id, UNPROTECTING).await?;
        let children = has_children(&self.0.io, &self.spec_of_snap(snap.id)).await;
        let free = matches!(children, Ok(false));
        self.set_protection(snap.id, if free { UNPROTECTED } else { PROTECTED }).await?;
        self.0.refresh().await?;
        if children? { Err(Errno::EBUSY.into()) } else { Ok(()) }
    }

    /// Takes size and content back to a snapshot.
    pub async fn snap_rollback(&self, name: &str) -> Result<(), ClientError> {
        let _turn = self.0.begin_change().await?;
        let snap = self.snap_named(&self.0.view(), name)?;
        {
            // With a journal a write in between would be replayed before it.
            let _blocked = match self.0.lock.journal() {
                Some(_) => Some(self.0.block_writes().await),
                None => None,
            };
            let (name, namespace) = (name.into(), SnapshotNamespace::User);
            let back = OpChange::SnapRollback { name, namespace };
            self.0.journaled(back, self.snap_rollback_in_turn(&snap)).await?;
        }
        self.0.header_changed().await
    }

    /// With the turn for changes held; others are not told yet.
    pub(crate) async fn snap_rollback_in_turn(&self, snap: &SnapInfo) -> Result<(), ClientError> {
        if self.0.view().size < snap.size {
            self.resize_in_turn(snap.size).await?;
        }
        let blocked = self.0.block_writes().await;
        let view = self.0.view();
        let goal = self.merge_snap_map(&view, snap).await?;
        let objects = 0..view.header.layout.objects(view.size);
        let rolled = objects.map(|object| self.roll_back_object(&view, snap, object));
        many(rolled, OBJECTS_AT_A_TIME, || Ok(())).await?;
        if let (Some(map), Some(goal)) = (self.0.lock.object_map(), goal) {
            map.replace(goal).await?;
        }
        drop(blocked);
        if view.size > snap.size {
            self.resize_in_turn(snap.size).await?;
        }
        Ok(())
    }

    /// Makes the object map hold what either of head and snapshot has; gives what it shall be
    /// when all is done.
    async fn merge_snap_map(
        &self,
        view: &View,
        snap: &SnapInfo,
    ) -> Result<Option<States>, ClientError> {
        let Some(map) = self.0.lock.object_map() else { return Ok(None) };
        let now = map.states();
        let known = match view.header.object_map_valid(snap.id) {
            true => {
                let oid = names::object_map(&self.0.id, snap.id);
                object_map::load(&self.0.io, &oid).await.ok()
            }
            false => None,
        };
        // Without the snapshot's map anything may be there, which is always safe to say.
        let mut then = known.unwrap_or_else(|| States::new(now.len(), EXISTS));
        then.resize(now.len(), NONEXISTENT);
        let mut both = now;
        for object in 0..both.len() {
            let copied =
                view.prefix(object, snap.overlap.unwrap_or(0)) > view.prefix(object, view.overlap);
            if then.state(object) != NONEXISTENT || copied {
                then.set(object, EXISTS);
                both.set(object, EXISTS);
            }
        }
        map.replace(both).await?;
        Ok(Some(then))
    }

    async fn roll_back_object(
        &self,
        view: &View,
        snap: &SnapInfo,
        object: u64,
    ) -> Result<(), ClientError> {
        let oid = view.header.data_object(object);
        let back = OsdOp::with(ROLLBACK, SnapArgs { snapid: snap.id }, bytes::Bytes::new());
        match view.write.operate(oid.clone(), Operation::new().op(back)).await {
            Ok(_) | Err(ClientError::Errno(Errno::ENOENT)) => {}
            Err(error) => return Err(error),
        }
        // The snapshot sees more of the parent than the head does: copy what is not there.
        let prefix = view.prefix(object, snap.overlap.unwrap_or(0));
        if prefix > view.prefix(object, view.overlap) {
            let data = self.parent_data(view, object, prefix).await?;
            let copy = Operation::new().copy_up(&data);
            view.write.operate(oid, copy).await?;
        }
        Ok(())
    }
}
