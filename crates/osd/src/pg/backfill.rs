//! Backfill: copying all objects, in order, to members of the up set whose logs do not reach ours.
//!
//! A target begins empty beyond its `last_backfill` (it removes what it has there when it is
//! activated), so only the primary's side has to be listed. Writes meanwhile:
//!
//! ```text
//!     sent whole          |  whole unless pending     |  log entry alone
//!  -----------------------+---------------------------+------------------> objects in order
//!                   last_backfill                  batch end
//! ```
//!
//! A pending object is pushed under its read lock, which writers wait for; once pushed it is not
//! pending any more. Objects written while the batch is being listed are counted into it, and so
//! is the clone that a write makes of a pending object. A batch does not part an object's clones
//! from its head: the head decides what a write sends.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use maps::osdmap::osdmap_flags;
use messages::{BackfillOp, MOSDPGBackfill, Message};
use types::hobject::NO_GEN;
use types::{GhObject, HObject, OsdId, PgShard};

use super::Pg;
use crate::ops::LockKind;

/// Where a PG's backfill is.
#[derive(Default)]
pub struct Backfill {
    running: Cell<bool>,
    /// The last object of the batch; `None` before the first.
    batch_end: RefCell<Option<HObject>>,
    /// Objects of the batch that have not been pushed.
    pending: RefCell<BTreeSet<HObject>>,
    /// Objects written while a batch is listed.
    touched: RefCell<Option<BTreeSet<HObject>>>,
    /// Objects copied in this interval.
    copied: Cell<u64>,
}

impl Backfill {
    pub(super) fn reset(&self) {
        self.running.set(false);
        *self.batch_end.borrow_mut() = None;
        self.pending.borrow_mut().clear();
        *self.touched.borrow_mut() = None;
        self.copied.set(0);
    }

    /// Objects copied so far.
    pub(super) fn copied(&self) -> u64 {
        self.copied.get()
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.get()
    }

    /// Whether a target that is behind the object has it nevertheless. Notes that it is written.
    pub(super) fn has_passed(&self, oid: &HObject) -> bool {
        if let Some(touched) = &mut *self.touched.borrow_mut() {
            touched.insert(oid.clone());
        }
        self.batch_end.borrow().as_ref().is_some_and(|end| oid <= end)
            && !self.pending.borrow().contains(oid)
    }
}

impl Backfill {
    /// A write whose log entry alone was sent has made a clone: the target gets it with its head.
    pub(super) fn add_clone(&self, clone: &HObject) {
        if let Some(touched) = &mut *self.touched.borrow_mut() {
            touched.insert(clone.clone());
        }
        if self.batch_end.borrow().as_ref().is_some_and(|end| clone <= end) {
            self.pending.borrow_mut().insert(clone.clone());
        }
    }

    fn next_pending(&self) -> Option<HObject> {
        self.pending.borrow().first().cloned()
    }
}

impl Pg {
    fn targets(&self) -> Vec<(PgShard, HObject)> {
        let core = self.core.borrow();
        core.acting_backfill
            .iter()
            .filter(|s| **s != core.whoami)
            .filter_map(|s| Some((*s, core.peer_info.get(s)?.last_backfill.clone())))
            .filter(|(_, last)| !last.is_max())
            .collect()
    }

    /// Copies batch after batch until every target has all.
    pub(super) async fn backfill(self: &Rc<Pg>, generation: u64) {
        let state = &self.recovery.backfill;
        loop {
            let flags = osdmap_flags::NOBACKFILL | osdmap_flags::NOREBALANCE;
            let targets = self.targets();
            let Some(from) = targets.iter().map(|(_, last)| last.clone()).min() else { break };
            if self.map.borrow().flags & flags != 0 {
                break;
            }
            state.running.set(true);
            let Some(end) = self.list_batch(&from, generation).await else { break };
            while let Some(oid) = state.next_pending() {
                let slots = self.host.recovery_slots().clone();
                let slot = slots.acquire(1).await;
                let pushed = self.push_to_targets(&oid, &targets, generation).await;
                self.rest(slot);
                if !pushed {
                    state.running.set(false);
                    return;
                }
            }
            if generation != self.generation.get() {
                return;
            }
            if !self.advance_backfill(&targets, &end).await || generation != self.generation.get()
            {
                return;
            }
        }
        if generation == self.generation.get() {
            state.reset();
        }
    }

    /// Makes the next objects above `from` pending; the last of them (or the end of all).
    async fn list_batch(&self, from: &HObject, generation: u64) -> Option<HObject> {
        let state = &self.recovery.backfill;
        *state.touched.borrow_mut() = Some(BTreeSet::new());
        let start = if from.is_min() {
            self.goid(&self.pgid.pgid.first_object())
        } else {
            self.goid(&from)
        };
        let scan = self.host.recovery_limits().scan;
        let listed =
            self.host.store().list(&self.cid, &start, &GhObject::max(), scan).await;
        if generation != self.generation.get() {
            return None;
        }
        let listing = match listed {
            Ok(listing) => listing,
            Err(e) => {
                self.host.store_failed(&e);
                return None;
            }
        };
        let (mut objects, mut next) = (listing.objects, listing.next);
        let end = match objects.last() {
            Some(last) if !next.is_max() => last.hobj.head(),
            _ => HObject::max(),
        };
        // The rest of the last object's clones, and its head.
        while next.hobj <= end && !next.is_max() {
            let listed = self.host.store().list(&self.cid, &next, &GhObject::max(), scan).await;
            if generation != self.generation.get() {
                return None;
            }
            match listed {
                Ok(listing) => {
                    objects.extend(listing.objects.into_iter().filter(|o| o.hobj <= end));
                    next = listing.next;
                }
                Err(e) => {
                    self.host.store_failed(&e);
                    return None;
                }
            }
        }
        let mut pending: BTreeSet<HObject> = objects
            .into_iter()
            .filter(|o| !o.is_pgmeta() && o.generation == NO_GEN && !o.hobj.is_temp() && o.hobj > *from)
            .map(|o| o.hobj)
            .collect();
        let touched = state.touched.borrow_mut().take().unwrap_or_default();
        pending.extend(touched.into_iter().filter(|o| o > from && *o <= end));
        *state.pending.borrow_mut() = pending;
        *state.batch_end.borrow_mut() = Some(end.clone());
        Some(end)
    }

    async fn push_to_targets(
        self: &Rc<Pg>,
        oid: &HObject,
        targets: &[(PgShard, HObject)],
        generation: u64,
    ) -> bool {
        let guard = self.contexts.lock(&oid.head(), LockKind::Read).await;
        let behind = targets.iter().filter(|(_, last)| oid > last);
        let behind: Vec<PgShard> = behind.map(|(target, _)| *target).collect();
        if self.is_erasure() {
            if !self.backfill_shards(oid, &behind, generation).await {
                return false;
            }
        } else {
            for target in behind {
                if generation != self.generation.get() || !self.push(oid, target).await {
                    return false;
                }
            }
        }
        let state = &self.recovery.backfill;
        state.pending.borrow_mut().remove(oid);
        state.copied.set(state.copied.get() + 1);
        drop(guard);
        generation == self.generation.get()
    }

    /// Tells the targets how far they are. The last word counts once they have it durable.
    async fn advance_backfill(&self, targets: &[(PgShard, HObject)], end: &HObject) -> bool {
        let (map_epoch, query_epoch) = self.epochs();
        let op = if end.is_max() { BackfillOp::Finish } else { BackfillOp::Progress };
        for (target, last) in targets {
            if last >= end {
                continue;
            }
            let message = MOSDPGBackfill {
                op,
                map_epoch,
                query_epoch,
                pgid: self.pgid_at(*target),
                last_backfill: end.clone(),
                stats: self.core.borrow().info.stats.clone(),
            };
            let acknowledged =
                end.is_max().then(|| self.recovery.expect_answer(*target, HObject::max()));
            self.host.send_osd(target.osd, message.encode());
            if let Some(acknowledged) = acknowledged
                && acknowledged.await.is_err()
            {
                return false;
            }
            if let Some(info) = self.core.borrow_mut().peer_info.get_mut(target) {
                info.last_backfill = end.clone();
            }
        }
        true
    }

    /// As a target: how far the primary has come.
    pub fn on_backfill(&self, m: MOSDPGBackfill, from: OsdId) {
        // Not `query_epoch`, the beginning of the primary's interval: a copy made in this interval
        // counts it from the epoch that it was made in.
        if m.map_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        match m.op {
            BackfillOp::Progress | BackfillOp::Finish => {
                let mut t = store::Transaction::new();
                {
                    let mut core = self.core.borrow_mut();
                    core.info.last_backfill = m.last_backfill.clone();
                    core.info.stats = m.stats.clone();
                    core.mark_dirty_info();
                }
                self.write_dirty(&mut t);
                let (pg, committed) = (self.rc(), self.host.store().submit(t));
                self.host.env().go(async move {
                    if let Err(e) = committed.await {
                        pg.host.store_failed(&e);
                        return;
                    }
                    if m.op == BackfillOp::Finish {
                        let Some(primary) = pg.core.borrow().primary() else { return };
                        let ack = MOSDPGBackfill {
                            op: BackfillOp::FinishAck,
                            pgid: pg.pgid_at(primary),
                            ..m
                        };
                        pg.host.send_osd(from, ack.encode());
                    }
                });
            }
            BackfillOp::FinishAck => {
                if let Some(from) = self.recovery.awaited(from, &HObject::max()) {
                    self.answer_push(from, HObject::max());
                }
            }
        }
    }
}
