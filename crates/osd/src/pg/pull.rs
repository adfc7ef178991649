//! Objects on their way to us: asked for as the primary, or pushed by it; each chunk is applied in one
//! transaction (`recovery.rs` says which objects, and when).
//!
//! ```text
//!   whole in one chunk:  written over what is here, what has not changed is kept
//!   several chunks:      a copy beside it takes its place at the end
//! ```

use std::collections::BTreeSet;

use env::sync::oneshot;
use messages::{
    MOSDPGPull, MOSDPGPush, MOSDPGPushReply, MOSDPGRecoveryDelete, MOSDPGRecoveryDeleteReply,
    Message,
};
use store::Transaction;
use types::osd::{ObjectRecoveryInfo, ObjectRecoveryProgress, PullOp, PushOp, PushReplyOp};
use types::{EVersion, HObject, PgShard};

use super::recovery::{Moved, Pull};
use super::{Pg, extents};

impl Pg {
    pub(super) async fn pull(&self, oid: &HObject, need: EVersion) -> Moved {
        let generation = self.generation.get();
        loop {
            let source = self.core.borrow().sources(oid, need).into_iter().next();
            let Some(from) = source else { return Moved::Unfound };
            let (done, arrived) = oneshot();
            let (info, progress) = extents::wanted(oid, need, self.core.borrow().missing.get(oid));
            let pull = Pull { from, need, info: info.clone(), older: false, done };
            self.recovery.pulls.borrow_mut().insert(oid.clone(), pull);
            self.send_pull(from, info, progress);
            match arrived.await {
                Ok(true) => return Moved::Done,
                // It was not there, in an interval that is over: the next one asks for itself what its members
                // lack.
                Ok(false) if generation != self.generation.get() => return Moved::Failed,
                // It is not there: ask the next.
                Ok(false) => {
                    let mut core = self.core.borrow_mut();
                    let missing = core.peer_missing.entry(from).or_default();
                    missing.add(oid, need, EVersion::ZERO, false);
                }
                // The source went down, or the interval ended.
                Err(_) => return Moved::Failed,
            }
        }
    }

    /// Gets a version of an object that is older than the one that is missing, to go back to it.
    pub(super) async fn fetch_older(
        &self,
        oid: &HObject,
        version: EVersion,
        from: PgShard,
    ) -> bool {
        let (done, arrived) = oneshot();
        let (info, progress) = extents::wanted(oid, version, None);
        let pull = Pull { from, need: version, info: info.clone(), older: true, done };
        self.recovery.pulls.borrow_mut().insert(oid.clone(), pull);
        self.send_pull(from, info, progress);
        arrived.await == Ok(true)
    }

    fn send_pull(
        &self,
        to: PgShard,
        recovery_info: ObjectRecoveryInfo,
        progress: ObjectRecoveryProgress,
    ) {
        let (map_epoch, min_epoch) = self.epochs();
        let pull =
            PullOp { soid: recovery_info.soid.clone(), recovery_info, recovery_progress: progress };
        let message = MOSDPGPull {
            from: self.whoami(),
            pgid: self.pgid_at(to),
            map_epoch,
            min_epoch,
            pulls: vec![pull],
            cost: self.host.recovery_limits().chunk,
        };
        self.host.send_osd(to.osd, Message::encode(&message));
    }

    /// Somebody pushes: the primary to us, or a source that we pull from.
    pub fn on_push(&self, m: MOSDPGPush) {
        if m.map_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(async move {
            let mut replies = Vec::new();
            for op in m.pushes {
                let soid = op.soid.clone();
                if !pg.take_push(m.from, op, m.is_repair, generation).await {
                    return;
                }
                replies.push(PushReplyOp { soid });
            }
            if generation != pg.generation.get() || pg.core.borrow().is_primary() {
                return;
            }
            let (map_epoch, min_epoch) = pg.epochs();
            let reply = MOSDPGPushReply {
                from: pg.whoami(),
                pgid: pg.pgid_at(m.from),
                map_epoch,
                min_epoch,
                replies,
                cost: 0,
            };
            pg.host.send_osd(m.from.osd, Message::encode(&reply));
        });
    }

    /// Applies a chunk, which the primary that sent it says is of a repair. `false` when it does not matter any more.
    pub(super) async fn take_push(
        &self,
        from: PgShard,
        op: PushOp,
        of_repair: bool,
        generation: u64,
    ) -> bool {
        let oid = op.soid.clone();
        let told: u64 = op.data_included.iter().map(|(_, len)| len).sum();
        let is_short = told != op.data.len() as u64;
        let pulling = self.core.borrow().is_primary();
        let repairs = if pulling { self.scrub.is_repairing() } else { of_repair };
        if pulling {
            let need = match self.recovery.pulls.borrow().get(&oid) {
                Some(pull) if pull.from == from => pull.need,
                _ => return false,
            };
            // Which version is needed is not known of an object that was found damaged here.
            let wrong = op.version.is_zero() || !need.is_zero() && op.version != need || is_short;
            if wrong {
                // Not there, not to be read to its end, or not in the version needed.
                if let Some(pull) = self.recovery.pulls.borrow_mut().remove(&oid) {
                    pull.done.send(false);
                }
                return true;
            }
        } else if is_short {
            tracing::warn!(%oid, %from, told, len = op.data.len(), "a push has not the data that it tells of");
            return false;
        }
        let complete = op.after_progress.data_complete && op.after_progress.omap_complete;
        let mut ss = op.recovery_info.ss.clone();
        if pulling && oid.is_snap() {
            ss = self.snapset_of(&oid, None).await;
            if generation != self.generation.get() {
                return false;
            }
        }
        let mut t = Transaction::new();
        if complete && oid.is_snap() {
            let snaps = ss.clone_snaps.get(&oid.snap).cloned().unwrap_or_default();
            let snaps: BTreeSet<u64> = snaps.into_iter().collect();
            if let Err(e) = self.host.snap_mapper().update(&oid, snaps, &mut t).await {
                self.host.store_failed(&e);
                return false;
            }
            if generation != self.generation.get() {
                return false;
            }
        }
        let target = self.goid(&oid);
        let whole = op.before_progress.first && complete;
        let temp_oid = oid.make_temp(format!("temp_recovering_{}_{}", self.pgid, oid));
        let into = if whole { target.clone() } else { self.goid(&temp_oid) };
        let info = &op.recovery_info;
        // A shard comes whole, whatever is there; Ceph's primaries leave the flag as it is by default.
        let keeps = info.object_exist && !self.is_erasure();
        if op.before_progress.first {
            if keeps {
                // What has not changed is kept.
                if !whole {
                    t.remove(&self.cid, &into);
                    t.clone_object(&self.cid, &target, &into);
                }
                if !op.before_progress.omap_complete {
                    t.omap_clear(&self.cid, &into);
                }
                t.rmattrs(&self.cid, &into);
            } else {
                t.remove(&self.cid, &into);
                t.touch(&self.cid, &into);
            }
            let size = self.codec().map_or(info.size, |codec| codec.chunk_len(info.size));
            t.truncate(&self.cid, &into, size);
            if !op.before_progress.omap_complete && (keeps || !op.omap_header.is_empty()) {
                t.omap_setheader(&self.cid, &into, op.omap_header.clone());
            }
            for (source, ranges) in &info.clone_subset {
                for (offset, len) in ranges.iter() {
                    let source = self.goid(source);
                    t.clone_range(&self.cid, &source, &into, offset, len, offset);
                }
            }
            t.setattrs(&self.cid, &into, op.attrset.clone());
            if !whole {
                self.recovery.temps.borrow_mut().insert(temp_oid.clone());
            }
        }
        let mut at = 0;
        for (offset, len) in op.data_included.iter() {
            let end = at + len as usize;
            t.write(&self.cid, &into, offset, op.data.slice(at..end));
            at = end;
        }
        if !op.omap_entries.is_empty() {
            t.omap_setkeys(&self.cid, &into, op.omap_entries.clone());
        }
        if complete {
            if !whole {
                t.remove(&self.cid, &target);
                t.coll_move_rename(&self.cid, &into, &self.cid, &target);
                self.recovery.temps.borrow_mut().remove(&temp_oid);
            }
            let version = if whole { op.version } else { op.recovery_info.version.max(op.version) };
            let older = self.recovery.pulls.borrow().get(&oid).is_some_and(|pull| pull.older);
            if pulling && older {
                let mut core = self.core.borrow_mut();
                core.missing.revise_have(&oid, version);
                core.mark_dirty_info();
            } else {
                let need = self.core.borrow().missing.get(&oid).map(|i| i.need);
                self.note_recovered(&oid, need.map_or(version, |need| need.max(version)));
            }
            self.contexts.forget(&oid);
            self.write_dirty(&mut t);
        }
        self.host.will_write(t.data_len() + t.metadata_bytes());
        let committed = self.host.store().submit(t);
        if let Err(e) = committed.await {
            self.host.store_failed(&e);
            return false;
        }
        if generation != self.generation.get() {
            return false;
        }
        if complete && repairs {
            self.host.counters().count_repaired();
        }
        if pulling {
            self.count_pulled(op.data.len() as u64, complete);
            if complete {
                if let Some(pull) = self.recovery.pulls.borrow_mut().remove(&oid) {
                    pull.done.send(true);
                }
            } else {
                let info = self.recovery.pulls.borrow().get(&oid).map(|p| p.info.clone());
                if let Some(info) = info
                    && from != self.whoami()
                {
                    self.send_pull(from, info, op.after_progress);
                }
            }
        }
        true
    }

    fn count_pulled(&self, bytes: u64, complete: bool) {
        self.host.counters().count_recovered(bytes, complete);
        let mut core = self.core.borrow_mut();
        let sum = &mut core.info.stats.stats.sum;
        sum.num_bytes_recovered += bytes as i64;
        sum.num_objects_recovered += i64::from(complete);
    }

    /// The object is here in the version needed: to be written with the same transaction.
    fn note_recovered(&self, oid: &HObject, version: EVersion) {
        let mut core = self.core.borrow_mut();
        core.missing.got(oid, version);
        core.update_last_complete();
        core.mark_dirty_info();
    }

    pub(super) async fn delete_here(&self, oid: &HObject, need: EVersion) -> Moved {
        let mut t = Transaction::new();
        t.remove(&self.cid, &self.goid(oid));
        self.note_recovered(oid, need);
        self.write_dirty(&mut t);
        self.contexts.forget(oid);
        let committed = self.host.store().submit(t);
        self.unmap_snaps(std::slice::from_ref(oid)).await;
        match committed.await {
            Ok(()) => Moved::Done,
            Err(e) => {
                self.host.store_failed(&e);
                Moved::Failed
            }
        }
    }

    /// The primary says that these objects are to be gone.
    pub fn on_recovery_delete(&self, m: MOSDPGRecoveryDelete) {
        if m.map_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(async move {
            for (oid, version) in &m.objects {
                // Who led before says nothing of the objects of now.
                let leads = pg.core.borrow().primary() == Some(m.from);
                if generation != pg.generation.get() || !leads {
                    return;
                }
                let need = pg.core.borrow().missing.get(oid).map_or(*version, |i| i.need);
                if pg.delete_here(oid, need).await != Moved::Done {
                    return;
                }
            }
            if generation != pg.generation.get() {
                return;
            }
            let (map_epoch, min_epoch) = pg.epochs();
            let reply = MOSDPGRecoveryDeleteReply {
                pgid: pg.pgid_at(m.from),
                map_epoch,
                min_epoch,
                objects: m.objects,
                from: pg.whoami(),
            };
            pg.host.send_osd(m.from.osd, Message::encode(&reply));
        });
    }

    /// Half-received objects of an interval that ended.
    pub(super) fn drop_temps(&self, t: &mut Transaction) {
        for oid in std::mem::take(&mut *self.recovery.temps.borrow_mut()) {
            t.remove(&self.cid, &self.goid(&oid));
        }
    }
}
