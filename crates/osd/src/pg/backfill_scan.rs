//! What a backfill's target has beyond where it is. A target of ours has nothing there: it removes that when it is
//! activated. Ceph's keeps it for its primary to compare, and what the primary does not have is to be removed.
//! So a primary asks, and has a target removed whatever it has; and a target answers, of a primary of Ceph's as well.

use std::collections::BTreeMap;

use denc::Denc;
use messages::{MOSDPGBackfillRemove, MOSDPGScan, Message, ScanOp};
use store::{StoreError, Transaction};
use types::hobject::NO_GEN;
use types::osd::ObjectInfo;
use types::{EVersion, GhObject, HObject, PgShard};

use super::Pg;
use crate::ops::object_context::OI_ATTR;

/// Objects of a part of a PG, with their versions.
type Objects = BTreeMap<HObject, EVersion>;

impl Pg {
    /// As the primary: has targets remove what they have beyond where they are. `false` if one does not say, or
    /// something else has begun.
    pub(super) async fn empty_targets(
        &self,
        targets: &[(PgShard, HObject)],
        generation: u64,
    ) -> bool {
        let state = &self.recovery.backfill;
        for (target, last) in targets {
            let mut begin = last.clone();
            while !begin.is_max() {
                let (map_epoch, _) = self.epochs();
                let question = MOSDPGScan {
                    op: ScanOp::GetDigest,
                    map_epoch,
                    // Not the beginning of this interval: a copy made in it counts it from the epoch that it was
                    // made in, and Ceph's does not answer what it takes for older. Backfill stood still for ever.
                    query_epoch: map_epoch,
                    from: self.whoami(),
                    pgid: self.pgid_at(*target),
                    begin: begin.clone(),
                    end: HObject::max(),
                    objects: Objects::new(),
                };
                let answered = self.recovery.expect_answer(*target, HObject::min());
                self.host.send_osd(target.osd, question.encode());
                if answered.await.is_err() || generation != self.generation.get() {
                    return false;
                }
                let Some((end, objects)) = state.take_digest() else { return false };
                if end <= begin {
                    tracing::error!(pg = %self.pgid, %target, "a list of objects without an end");
                    return false;
                }
                let objects: Vec<_> = objects.into_iter().filter(|(oid, _)| oid > last).collect();
                if !objects.is_empty() {
                    let pgid = self.pgid_at(*target);
                    let message = MOSDPGBackfillRemove { pgid, map_epoch, objects };
                    self.host.send_osd(target.osd, Message::encode(&message));
                }
                begin = end;
            }
        }
        true
    }

    /// What is here is asked for, or what a target has is told.
    pub fn on_scan(&self, m: MOSDPGScan) {
        if m.map_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        if m.op == ScanOp::Digest {
            if let Some(from) = self.recovery.awaited(m.from.osd, &HObject::min()) {
                self.recovery.backfill.set_digest(m.end, m.objects);
                self.answer_push(from, HObject::min());
            }
            return;
        }
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(async move {
            let ended = || generation != pg.generation.get();
            pg.recovery.changed.until(|| ended() || !pg.recovery.emptying.get()).await;
            let listed = pg.objects_from(&m.begin).await;
            if generation != pg.generation.get() {
                return;
            }
            let (objects, end) = match listed {
                Ok(listed) => listed,
                Err(e) => return pg.host.store_failed(&e),
            };
            let answer = MOSDPGScan {
                op: ScanOp::Digest,
                map_epoch: pg.epochs().0,
                query_epoch: m.query_epoch,
                from: pg.whoami(),
                pgid: pg.pgid_at(m.from),
                begin: m.begin,
                end,
                objects,
            };
            pg.host.send_osd(m.from.osd, answer.encode());
        });
    }

    /// Some objects from one on, and which comes next.
    async fn objects_from(&self, begin: &HObject) -> Result<(Objects, HObject), StoreError> {
        let start = if begin.is_min() { GhObject::min() } else { self.goid(begin) };
        let scan = self.host.recovery_limits().scan;
        let listing = self.host.store().list(&self.cid, &start, &GhObject::max(), scan).await?;
        let mut objects = Objects::new();
        let is_object =
            |o: &GhObject| !o.is_pgmeta() && o.generation == NO_GEN && !o.hobj.is_temp();
        for oid in listing.objects.into_iter().filter(is_object) {
            let info = match self.host.store().getattr(&self.cid, &oid, OI_ATTR).await {
                Err(StoreError::NoObject) => continue,
                info => info.ok().and_then(|info| ObjectInfo::from_bytes(&info).ok()),
            };
            // One that cannot be read is as old as can be.
            objects.insert(oid.hobj, info.map_or(EVersion::ZERO, |info| info.version));
        }
        let end = if listing.next.is_max() { HObject::max() } else { listing.next.hobj };
        Ok((objects, end))
    }

    /// As a target: what the primary does not have. In the order of its messages: an object may come again.
    pub fn on_backfill_remove(&self, m: &MOSDPGBackfillRemove) {
        let mut t = Transaction::new();
        let removed: Vec<HObject> = {
            let core = self.core.borrow();
            if m.map_epoch < core.last_peering_reset {
                return;
            }
            let is_behind = |oid: &&HObject| **oid > core.info.last_backfill;
            m.objects.iter().map(|(oid, _)| oid).filter(is_behind).cloned().collect()
        };
        for oid in &removed {
            self.contexts.forget(oid);
            // One that is gone is no error.
            t.touch(&self.cid, &self.goid(oid));
            t.remove(&self.cid, &self.goid(oid));
        }
        let (pg, committed) = (self.rc(), self.host.store().submit(t));
        self.host.env().go(async move {
            match committed.await {
                Ok(()) => pg.unmap_snaps(&removed).await,
                Err(e) => pg.host.store_failed(&e),
            }
        });
    }
}
