//! Trimming: taking a removed snapshot from a clone, and the clone with its last one
//! (`trim_object` in `src/osd/PrimaryLogPG.cc`).

use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use denc::Denc;
use store::Transaction;
use types::osd::{
    LogExtras, LogOp, ObjectCleanRegions, ObjectInfo, ObjectModDesc, ObjectStatSum, PgLogEntry,
    SnapSet,
};
use types::{EVersion, Errno, HObject, NOSNAP, SnapId};

use super::execute::Reply;
use super::finish::{Mutation, Pending, PendingWrite};
use super::object_context::{
    OI_ATTR, ObjectContext, ObjectGuard, ObjectState, SS_ATTR, SnapSetContext,
};
use super::pg::Pg;
use super::shared::Shared;
use super::snaps::clone_bytes;
use super::watch::Effects;

/// The trimming of one clone, waiting for its versions.
pub(super) struct Trim {
    pg: Rc<dyn Pg>,
    guard: ObjectGuard,
    head: Rc<ObjectContext>,
    clone: Rc<ObjectContext>,
    old_snaps: Vec<SnapId>,
    new_snaps: BTreeSet<SnapId>,
}

/// Takes `snap`, and any other removed snapshot, from the clone `oid`. The guard is a `Write` lock
/// of its object. `ENOENT` if there is no such clone any more: go on with the next. `EIO` if it is there, and its
/// head does not know of it: what is to become of it is not known before that is repaired.
pub async fn trim_object(
    pg: &Rc<dyn Pg>,
    guard: ObjectGuard,
    oid: &HObject,
    snap: SnapId,
) -> Result<PendingWrite, Errno> {
    let head = guard.head_context(pg).await?;
    let clone = guard.context(pg, oid.snap).await?;
    if !clone.obs.borrow().exists {
        return Err(Errno::ENOENT);
    }
    if !head.obs.borrow().exists {
        tracing::error!("{oid}: cannot trim, its head is gone");
        return Err(Errno::EIO);
    }
    let mut old_snaps = {
        let ssc = head.ssc.borrow();
        let set = &ssc.snapset;
        let snaps = set.clone_snaps.get(&oid.snap).cloned().unwrap_or_default();
        if snaps.is_empty() || set.seq == 0 || !set.clones.contains(&oid.snap) {
            tracing::error!("{oid}: cannot trim, snap set is inconsistent");
            return Err(Errno::EIO);
        }
        snaps
    };
    if !old_snaps.contains(&snap) {
        // Only the mapper says so: that row goes like others, or the clone would be found for ever.
        tracing::error!("{oid}: the snap mapper has a row of {snap}, which it does not serve");
        old_snaps.push(snap);
    }
    let is_kept = |&other: &SnapId| other != snap && !pg.is_snap_removed(other);
    let new_snaps = old_snaps.iter().copied().filter(is_kept).collect();
    let trim = Trim { pg: pg.clone(), guard, head, clone, old_snaps, new_snaps };
    Ok(PendingWrite { inner: Pending::Trim(Box::new(trim)) })
}

impl Trim {
    /// The clone and its head.
    pub(super) fn objects(&self) -> [HObject; 2] {
        [self.clone.oid(), self.head.oid()]
    }

    pub(super) fn finish(self, at: EVersion, last_user_version: u64) -> Mutation {
        let Trim { pg, guard, head, clone, old_snaps, new_snaps } = self;
        let coll = pg.coll();
        let mut at = at;
        let mut t = Transaction::new();
        let mut stats = ObjectStatSum::default();
        let mut entries = Vec::with_capacity(2);
        let mut set = head.ssc.borrow().snapset.clone();

        let oid = clone.oid();
        let goid = pg.goid(&oid);
        let old_oi = clone.obs.borrow().oi.clone();
        let snaps: Vec<SnapId> = new_snaps.iter().copied().collect();
        pg.snap_mapper().replace(&oid, &old_snaps, new_snaps.clone(), &mut t);
        if new_snaps.is_empty() {
            remove_clone(&mut set, oid.snap, &old_oi, &mut stats);
            t.remove(&coll, &goid);
            *clone.obs.borrow_mut() = Shared::new(ObjectState::absent(&oid));
            guard.remove_clone(oid.snap);
            entries.push(entry(LogOp::DELETE, &oid, at, old_oi.version, &snaps));
        } else {
            let kept = old_snaps.into_iter().filter(|snap| new_snaps.contains(snap)).collect();
            set.clone_snaps.insert(oid.snap, kept);
            let mut obs = clone.obs.borrow_mut();
            obs.oi.prior_version = old_oi.version;
            obs.oi.version = at;
            t.setattr(&coll, &goid, OI_ATTR, obs.oi.to_bytes());
            entries.push(entry(LogOp::MODIFY, &oid, at, old_oi.version, &snaps));
        }
        at.version += 1;

        let soid = head.oid();
        let head_goid = pg.goid(&soid);
        let mut obs = head.obs.borrow_mut();
        let prior = obs.oi.version;
        let mut effects = Effects::default();
        if set.clones.is_empty() && obs.oi.is_whiteout() && !obs.oi.is_cache_pinned() {
            count_removed(&obs.oi, &mut stats);
            // A whiteout can be watched.
            for &(cookie, watcher) in obs.oi.watchers.keys() {
                effects.disconnect(cookie, watcher, true);
            }
            t.remove(&coll, &head_goid);
            *obs = Shared::new(ObjectState::absent(&soid));
            *head.ssc.borrow_mut() = SnapSetContext::default();
            entries.push(entry(LogOp::DELETE, &soid, at, prior, &[]));
        } else {
            obs.oi.prior_version = prior;
            obs.oi.version = at;
            let info = (OI_ATTR, obs.oi.to_bytes());
            t.setattrs(&coll, &head_goid, [info, (SS_ATTR, set.to_bytes())]);
            *head.ssc.borrow_mut() = SnapSetContext { snapset: set, exists: true };
            entries.push(entry(LogOp::MODIFY, &soid, at, prior, &[]));
        }
        drop(obs);
        guard.submitted();
        Mutation {
            soid,
            transaction: t,
            entries,
            at_version: at,
            user_version: last_user_version,
            stats,
            guard,
            effects,
            reply: Reply::default(),
        }
    }
}

fn entry(op: LogOp, oid: &HObject, at: EVersion, prior: EVersion, snaps: &[SnapId]) -> PgLogEntry {
    let snaps = match oid.snap {
        NOSNAP => Bytes::new(),
        _ => snaps.to_vec().to_bytes(),
    };
    PgLogEntry {
        op,
        soid: oid.clone(),
        version: at,
        prior_version: prior,
        extras: LogExtras { snaps, ..LogExtras::default() }.boxed(),
        mod_desc: ObjectModDesc::unrollbackable(),
        clean_regions: ObjectCleanRegions::fully_dirty(),
        ..PgLogEntry::default()
    }
}

fn count_removed(oi: &ObjectInfo, stats: &mut ObjectStatSum) {
    stats.num_objects -= 1;
    stats.num_objects_dirty -= i64::from(oi.is_dirty());
    stats.num_objects_omap -= i64::from(oi.is_omap());
    stats.num_whiteouts -= i64::from(oi.is_whiteout());
    stats.num_objects_pinned -= i64::from(oi.is_cache_pinned());
    stats.num_objects_manifest -= i64::from(oi.has_manifest());
}

/// Takes a clone from the snap set; the next older one now shares with the next newer one (or the
/// head) what both shared with it.
fn remove_clone(set: &mut SnapSet, clone: SnapId, oi: &ObjectInfo, stats: &mut ObjectStatSum) {
    stats.num_bytes -= clone_bytes(set, clone);
    let index = set.clones.iter().position(|&c| c == clone);
    if let Some(older) = index.and_then(|i| i.checked_sub(1)).map(|i| set.clones[i]) {
        stats.num_bytes -= clone_bytes(set, older);
        let overlap = set.clone_overlap.get(&clone).cloned().unwrap_or_default();
        if let Some(older_overlap) = set.clone_overlap.get_mut(&older) {
            *older_overlap = older_overlap.intersection(&overlap);
        }
        stats.num_bytes += clone_bytes(set, older);
    }
    count_removed(oi, stats);
    stats.num_object_clones -= 1;
    set.clones.retain(|&c| c != clone);
    set.clone_overlap.remove(&clone);
    set.clone_size.remove(&clone);
    set.clone_snaps.remove(&clone);
}
