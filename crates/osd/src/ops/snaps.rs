//! Snapshots of an object: the clone a write makes, deletion that leaves a whiteout, rollback,
//! list-snaps (`make_writeable`, `_delete_oid`, `_rollback_to` in `src/osd/PrimaryLogPG.cc`).

use std::cell::RefCell;
use std::rc::Rc;

use denc::Denc;
use store::Transaction;
use types::bufferlist::BufferList;
use types::osd::object_info;
use types::osd::{
    CloneInfo, LogExtras, LogOp, ObjListSnapResponse, ObjectInfo, ObjectModDesc, PgLogEntry,
    SnapSet,
};
use types::{EVersion, Errno, HObject, IntervalSet, NOSNAP, SnapId};

use super::object_context::{Found, OI_ATTR, ObjectContext, ObjectState, SS_ATTR};
use super::op_context::{AttrChange, OpContext, Step, Stop};
use super::shared::Shared;

/// Bytes a clone has of its own: those its next newer neighbour (a clone or the head) has changed.
pub(super) fn clone_bytes(set: &SnapSet, clone: SnapId) -> i64 {
    let size = set.clone_size.get(&clone).copied().unwrap_or(0);
    let shared = set.clone_overlap.get(&clone).map_or(0, IntervalSet::size);
    size as i64 - shared as i64
}

/// A clone made by a write.
pub(super) struct NewClone {
    pub(super) snap: SnapId,
    pub(super) context: Rc<ObjectContext>,
    pub(super) entry: PgLogEntry,
}

impl OpContext {
    /// Deletes the object. With clones, or with snapshots it has not been cloned for, its head
    /// stays as a whiteout that holds the snap set.
    pub(super) fn delete(&mut self, no_whiteout: bool) -> Result<(), Errno> {
        let has_clones = !self.snapset.clones.is_empty()
            || self.snapc.snaps.first().is_some_and(|&newest| newest > self.snapset.seq);
        let whiteout = has_clones && !no_whiteout;
        if !self.obs.exists || (self.obs.oi.is_whiteout() && whiteout) {
            return Err(Errno::ENOENT);
        }
        if self.obc.obs.borrow().exists {
            self.t.remove(&self.coll, &self.goid);
        } else {
            // Made by this very vector: nothing of it is left to be logged.
            self.drop_changes();
            self.modify = false;
        }
        self.attr_changes.push(AttrChange::Clear);
        let size = self.obs.oi.size;
        if size > 0 {
            self.mark_modified(0, size);
            self.mark_data_dirty(0, size);
        }
        self.clean.mark_omap_dirty();
        self.stats.num_wr += 1;
        self.stats.num_bytes -= size as i64;
        self.obs.oi.size = 0;
        self.obs.oi.new_object();
        for (cookie, watcher) in core::mem::take(&mut self.obs.oi.watchers).into_keys() {
            self.effects.disconnect(cookie, watcher, true);
        }
        if whiteout {
            self.obs.oi.set_flag(object_info::FLAG_WHITEOUT);
            self.stats.num_whiteouts += 1;
            self.t.touch(&self.coll, &self.goid);
            return Ok(());
        }
        self.stats.num_objects -= 1;
        if self.obs.oi.is_whiteout() {
            self.stats.num_whiteouts -= 1;
            self.obs.oi.clear_flag(object_info::FLAG_WHITEOUT);
        }
        self.obs.exists = false;
        Ok(())
    }

    pub(super) fn op_delete(&mut self) -> Step {
        self.num_write += 1;
        self.delete(false)?;
        Ok(0)
    }

    /// Makes the head what it was at a snapshot.
    pub(super) async fn op_rollback(&mut self, snap: SnapId) -> Step {
        self.num_write += 1;
        if snap == NOSNAP {
            // The head is what it is, even if this vector makes it.
            self.modify |= self.obc.obs.borrow().exists;
            return Ok(0);
        }
        let pg = self.pg.clone();
        let clone = match self.guard.find(&pg, snap, false).await? {
            Found::Missing(oid) => return Err(Stop::Blocked(oid)),
            Found::Object(context) if context.obs.borrow().oi.is_whiteout() => None,
            Found::Object(context) if !context.obs.borrow().exists => None,
            Found::Object(context) => Some(context),
            Found::Absent => None,
        };
        let Some(clone) = clone else {
            // It did not exist at that snapshot.
            if !self.obc.obs.borrow().oi.watchers.is_empty() {
                return Err(Errno::EBUSY.into());
            }
            // Nothing to delete is fine.
            let _ = self.delete(false);
            return Ok(0);
        };
        let from = clone.obs.borrow().oi.clone();
        if from.soid.snap == NOSNAP {
            // The head has not changed since.
            self.modify = true;
            return Ok(0);
        }
        if pg.is_degraded(&from.soid) {
            return Err(Stop::Blocked(from.soid));
        }
        if self.obs.exists {
            self.t.remove(&self.coll, &self.goid);
        }
        let from_goid = self.pg.goid(&from.soid);
        self.t.clone_object(&self.coll, &from_goid, &self.goid);
        self.attr_changes.push(AttrChange::Unknown);
        // What is the same in that clone and in all newer ones up to the head need not count as
        // changed.
        let mut shared = self.snapset.clone_overlap.range(snap..).map(|(_, overlap)| overlap);
        let mut overlap = shared.next().cloned().unwrap_or_default();
        for newer in shared {
            overlap = overlap.intersection(newer);
        }
        let old_size = self.obs.oi.size;
        if old_size > 0 && self.tracks_modified {
            let mut changed = IntervalSet::of(0, old_size);
            changed.subtract(&overlap);
            self.modified.union_with(&changed);
        }
        if !self.obs.exists {
            self.stats.num_objects += 1;
            self.obs.exists = true;
            self.obs.oi.new_object();
        } else if self.obs.oi.is_whiteout() {
            self.obs.oi.clear_flag(object_info::FLAG_WHITEOUT);
            self.stats.num_whiteouts -= 1;
        }
        self.mark_data_dirty(0, old_size.max(from.size));
        self.clean.mark_omap_dirty();
        self.set_size(from.size);
        let oi = &mut self.obs.oi;
        match from.is_data_digest() {
            true => oi.set_data_digest(from.data_digest),
            false => oi.clear_data_digest(),
        }
        match from.is_omap_digest() {
            true => oi.set_omap_digest(from.omap_digest),
            false => oi.clear_omap_digest(),
        }
        match from.is_omap() {
            true => oi.set_flag(object_info::FLAG_OMAP),
            false => oi.clear_flag(object_info::FLAG_OMAP),
        }
        Ok(0)
    }

    /// The object's clones, oldest first, and the head last.
    pub(super) fn op_list_snaps(&mut self, out: &mut BufferList) -> Step {
        self.num_read += 1;
        let ssc = self.obc.ssc.borrow();
        let set = &ssc.snapset;
        let mut clones = Vec::with_capacity(set.clones.len() + 1);
        for &clone in &set.clones {
            let (Some(snaps), Some(overlap), Some(&size)) = (
                set.clone_snaps.get(&clone),
                set.clone_overlap.get(&clone),
                set.clone_size.get(&clone),
            ) else {
                tracing::error!("{}: snap set is inconsistent at clone {clone:x}", self.goid);
                return Err(Errno::EINVAL.into());
            };
            clones.push(CloneInfo {
                cloneid: clone,
                snaps: snaps.iter().rev().copied().collect(),
                overlap: overlap.iter().collect(),
                size,
            });
        }
        let head = self.obc.obs.borrow();
        if head.is_visible() {
            let size = head.oi.size;
            clones.push(CloneInfo { cloneid: NOSNAP, size, ..CloneInfo::default() });
        }
        let response = ObjListSnapResponse { clones, seq: set.seq };
        drop(head);
        drop(ssc);
        self.stats.num_rd += 1;
        out.push(response.to_bytes());
        Ok(0)
    }

    /// Before a write to the head: the clone for snapshots taken since the last write, its place
    /// in the snap set, and the statistics that follow. The transaction's clone operation must
    /// come before all other changes.
    pub(super) fn make_writeable(&mut self, at: &mut EVersion) -> Option<(Transaction, NewClone)> {
        self.update_flag_stats();
        let old = self.obc.obs.borrow().clone();
        let mut made = None;
        let needs_clone = old.is_visible()
            && !env::mutant("no-clone")
            && !self.cache_evict
            && self.snapc.snaps.first().is_some_and(|&newest| newest > self.snapset.seq);
        if needs_clone {
            made = Some(self.make_clone(&old, *at));
            at.version += 1;
        }
        if let Some((_, newest_overlap)) = self.snapset.clone_overlap.iter_mut().next_back() {
            let changed = self.modified.intersection(newest_overlap);
            self.stats.num_bytes += changed.size() as i64;
            newest_overlap.subtract(&changed);
        }
        if self.snapc.seq > self.snapset.seq {
            self.snapset.seq = self.snapc.seq;
        }
        made
    }

    /// Counts of dirty objects and objects with omap.
    fn update_flag_stats(&mut self) {
        let old = self.obc.obs.borrow();
        let was_dirty = old.oi.is_dirty();
        let new = &mut self.obs;
        if !new.exists {
            if was_dirty {
                new.oi.clear_flag(object_info::FLAG_DIRTY);
                self.stats.num_objects_dirty -= 1;
            }
        } else if self.undirty && was_dirty {
            new.oi.clear_flag(object_info::FLAG_DIRTY);
            self.stats.num_objects_dirty -= 1;
        } else if !was_dirty && !self.undirty {
            new.oi.set_flag(object_info::FLAG_DIRTY);
            self.stats.num_objects_dirty += 1;
        }
        let had_omap = old.exists && old.oi.is_omap();
        let has_omap = new.exists && new.oi.is_omap();
        self.stats.num_objects_omap += i64::from(has_omap) - i64::from(had_omap);
    }

    fn make_clone(&mut self, old: &ObjectState, at: EVersion) -> (Transaction, NewClone) {
        let snap = self.snapc.seq;
        let oid: HObject = old.oi.soid.with_snap(snap);
        let goid = self.pg.goid(&oid);
        let since = self.snapset.seq;
        let snaps: Vec<SnapId> =
            self.snapc.snaps.iter().copied().take_while(|&taken| taken > since).collect();

        let oi = clone_info(oid.clone(), &old.oi, at);
        let mut t = Transaction::new();
        t.clone_object(&self.coll, &self.goid, &goid);
        t.setattr(&self.coll, &goid, OI_ATTR, oi.to_bytes());
        t.rmattr(&self.coll, &goid, SS_ATTR);
        self.pg.snap_mapper().add(&oid, snaps.iter().copied().collect(), &mut t);

        self.stats.num_objects += 1;
        self.stats.num_objects_dirty += i64::from(oi.is_dirty());
        self.stats.num_objects_omap += i64::from(oi.is_omap());
        self.stats.num_object_clones += 1;

        self.snapset.clones.push(snap);
        self.snapset.clone_size.insert(snap, old.oi.size);
        self.snapset.clone_snaps.insert(snap, snaps.clone());
        self.snapset.clone_overlap.insert(snap, IntervalSet::of(0, old.oi.size));

        let entry = PgLogEntry {
            op: LogOp::CLONE,
            soid: oid,
            version: at,
            prior_version: old.oi.version,
            user_version: old.oi.user_version,
            mtime: self.obs.oi.mtime,
            extras: LogExtras { snaps: snaps.to_bytes(), ..LogExtras::default() }.boxed(),
            mod_desc: ObjectModDesc::unrollbackable(),
            ..PgLogEntry::default()
        };
        let context = Rc::new(ObjectContext {
            obs: RefCell::new(Shared::new(ObjectState { oi, exists: true })),
            ssc: self.obc.ssc.clone(),
            attrs: RefCell::new(self.obc.attrs.borrow().clone()),
        });
        (t, NewClone { snap, context, entry })
    }
}

/// The info of a clone of `head`.
fn clone_info(oid: HObject, head: &ObjectInfo, at: EVersion) -> ObjectInfo {
    let mut oi = ObjectInfo::new(oid);
    oi.version = at;
    oi.prior_version = head.version;
    oi.copy_user_bits(head);
    oi
}
