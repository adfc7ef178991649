//! Backfill: copying all objects, in order, to members of the up set whose logs do not reach ours.
//!
//! A target begins empty beyond its `last_backfill` (it removes what it has there when it is
//! activated, or when it is told to: `backfill_scan.rs`), so only the primary's side has to be listed. Writes meanwhile:
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
//!
//! A batch that is broken off (a slot was lost, a push failed) is kept and gone on with: the targets
//! have some of its objects, which nobody would remove there if they were removed here meanwhile.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use command::Formatter;
use maps::osdmap::osdmap_flags;
use messages::{BackfillOp, MOSDPGBackfill, Message};
use types::hobject::NO_GEN;
use types::osd::pg_state;
use types::{EVersion, GhObject, HObject, OsdId, PgShard};

use super::Pg;
use crate::ops::LockKind;

/// Where a PG's backfill is.
#[derive(Default)]
pub struct Backfill {
    /// The last object of the batch; `None` before the first.
    batch_end: RefCell<Option<HObject>>,
    /// Objects of the batch that have not been pushed.
    pending: RefCell<BTreeSet<HObject>>,
    /// Those of them that are being pushed; bounded by the OSD's recovery slots.
    moving: RefCell<BTreeSet<HObject>>,
    /// Objects written while a batch is listed.
    touched: RefCell<Option<BTreeSet<HObject>>>,
    /// Targets have nothing beyond where they are.
    emptied: Cell<bool>,
    /// What a target has of a part: where that ends, and the objects (`backfill_scan.rs`). Bound:
    /// osd_backfill_scan_max of the target.
    digest: RefCell<Option<(HObject, BTreeMap<HObject, EVersion>)>>,
}

impl Backfill {
    pub(super) fn reset(&self) {
        *self.batch_end.borrow_mut() = None;
        self.pending.borrow_mut().clear();
        self.moving.borrow_mut().clear();
        *self.touched.borrow_mut() = None;
        self.emptied.set(false);
        *self.digest.borrow_mut() = None;
    }

    pub(super) fn set_digest(&self, end: HObject, objects: BTreeMap<HObject, EVersion>) {
        *self.digest.borrow_mut() = Some((end, objects));
    }

    pub(super) fn take_digest(&self) -> Option<(HObject, BTreeMap<HObject, EVersion>)> {
        self.digest.borrow_mut().take()
    }

    /// The end of a batch that was listed and that not all targets, the last of which is at `from`,
    /// have been told to have.
    fn unfinished(&self, from: &HObject) -> Option<HObject> {
        self.batch_end.borrow().clone().filter(|end| end > from)
    }

    /// Whether a target that is behind the object has it nevertheless. Notes that it is written.
    pub(super) fn has_passed(&self, oid: &HObject) -> bool {
        if let Some(touched) = &mut *self.touched.borrow_mut() {
            touched.insert(oid.clone());
        }
        // A write of a head may read its clones, and that of a clone changes the head: all or none.
        let of_object = oid.with_snap(0)..=oid.head();
        self.batch_end.borrow().as_ref().is_some_and(|end| oid <= end)
            && self.pending.borrow().range(of_object).next().is_none()
    }
}

impl Backfill {
    /// A write of this object, or that made this clone, of which the log entry alone was sent: the target
    /// gets it as it is then.
    pub(super) fn add_written(&self, oid: &HObject) {
        if let Some(touched) = &mut *self.touched.borrow_mut() {
            touched.insert(oid.clone());
        }
        if self.batch_end.borrow().as_ref().is_some_and(|end| oid <= end) {
            self.pending.borrow_mut().insert(oid.clone());
        }
    }

    /// The batch, in the words of a query.
    pub(super) fn dump(&self, f: &mut Formatter) {
        let (pending, end) = (self.pending.borrow(), self.batch_end.borrow().clone());
        let begin = pending.first().cloned().unwrap_or_else(HObject::min);
        f.dump_stream("last_backfill_started", &begin);
        f.object("backfill_info", |f| {
            f.dump_stream("begin", &begin);
            f.dump_stream("end", end.unwrap_or_else(HObject::min));
            f.array("objects", |f| {
                pending.iter().for_each(|oid| f.object("object", |f| f.dump_stream("object", oid)));
            });
        });
        // Targets are not listed: what they have beyond their last_backfill is removed.
        f.array("peer_backfill_info", |_| {});
        f.array("backfills_in_flight", |f| {
            self.moving.borrow().iter().for_each(|oid| f.dump_stream("object", oid));
        });
    }

    fn next_pending(&self) -> Option<HObject> {
        let (pending, moving) = (self.pending.borrow(), self.moving.borrow());
        pending.iter().find(|oid| !moving.contains(*oid)).cloned()
    }
}

/// Where the target is that is least far.
fn first_of(targets: &[(PgShard, HObject)]) -> Option<HObject> {
    targets.iter().map(|(_, last)| last.clone()).min()
}

impl Pg {
    fn targets(&self) -> Rc<Vec<(PgShard, HObject)>> {
        let core = self.core.borrow();
        let targets = core
            .acting_backfill
            .iter()
            .filter(|s| **s != core.whoami)
            .filter_map(|s| Some((*s, core.peer_info.get(s)?.last_backfill.clone())))
            .filter(|(_, last)| !last.is_max())
            .collect();
        Rc::new(targets)
    }

    /// Whether somebody is to be backfilled and the cluster's flags allow it: norebalance only
    /// keeps what is misplaced.
    pub(super) fn may_backfill(&self) -> bool {
        let flags = self.map.borrow().flags;
        let held = flags & osdmap_flags::NOBACKFILL != 0
            || (flags & osdmap_flags::NOREBALANCE != 0
                && self.state_bits() & pg_state::DEGRADED == 0);
        !held && !self.targets().is_empty()
    }

    /// Copies batch after batch until every target has all (`true`), a slot is lost or something
    /// fails. What the targets have stays, and is not copied again.
    pub(super) async fn backfill(self: &Rc<Pg>, generation: u64) -> bool {
        let state = &self.recovery.backfill;
        let mut done = false;
        while self.may_backfill() {
            let targets = self.targets();
            let Some(from) = first_of(&targets) else { break };
            if !state.emptied.get() {
                if !self.empty_targets(&targets, generation).await {
                    break;
                }
                state.emptied.set(true);
            }
            let end = match state.unfinished(&from) {
                Some(end) => end,
                None => match self.list_batch(&from, generation).await {
                    Some(end) => end,
                    None => break,
                },
            };
            let copied = self.copy_batch(&targets, generation).await;
            if generation != self.generation.get() {
                return false;
            }
            if !copied {
                break;
            }
            if !self.advance_backfill(&targets, &end).await {
                break;
            }
            if generation != self.generation.get() {
                return false;
            }
            done = self.targets().is_empty();
        }
        if generation == self.generation.get() {
            let from = first_of(&self.targets());
            if from.is_none_or(|from| state.unfinished(&from).is_none()) {
                // Nothing is listed any more: writes of what the targets lack are log entries alone.
                state.reset();
            }
        }
        done
    }

    /// Pushes what is pending, as many objects at a time as the OSD has slots for. `false` if a slot
    /// of the PG's was lost or an object could not be pushed.
    async fn copy_batch(
        self: &Rc<Pg>,
        targets: &Rc<Vec<(PgShard, HObject)>>,
        generation: u64,
    ) -> bool {
        let state = &self.recovery.backfill;
        let alive = || generation == self.generation.get();
        let failed = Rc::new(Cell::new(false));
        let slots = self.host.recovery_slots().clone();
        while alive() && !failed.get() && self.is_reserved() {
            let Some(oid) = state.next_pending() else {
                if state.moving.borrow().is_empty() {
                    return true;
                }
                self.recovery.changed.notified().await;
                continue;
            };
            let slot = slots.acquire(1).await;
            let place = self.await_turn(&oid).await;
            // It may have gone meanwhile, with the interval.
            if !alive() || !state.pending.borrow().contains(&oid) {
                continue;
            }
            state.moving.borrow_mut().insert(oid.clone());
            let (pg, targets, failed) = (self.clone(), targets.clone(), failed.clone());
            self.host.env().go(async move {
                let pushed = pg.push_to_targets(&oid, &targets, generation).await;
                drop(place);
                pg.rest(slot);
                if generation == pg.generation.get() {
                    pg.recovery.backfill.moving.borrow_mut().remove(&oid);
                    failed.set(failed.get() || !pushed);
                    pg.recovery.changed.notify_all();
                }
            });
        }
        // What is under way goes to its end: it is of this batch.
        let idle = || state.moving.borrow().is_empty();
        self.recovery.changed.until(|| !alive() || idle()).await;
        false
    }

    /// Makes the next objects above `from` pending; the last of them (or the end of all).
    async fn list_batch(&self, from: &HObject, generation: u64) -> Option<HObject> {
        let state = &self.recovery.backfill;
        *state.touched.borrow_mut() = Some(BTreeSet::new());
        let start =
            if from.is_min() { self.goid(&self.pgid.pgid.first_object()) } else { self.goid(from) };
        let scan = self.host.recovery_limits().scan;
        let listed = self.host.store().list(&self.cid, &start, &GhObject::max(), scan).await;
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
            .filter(|o| {
                !o.is_pgmeta() && o.generation == NO_GEN && !o.hobj.is_temp() && o.hobj > *from
            })
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
            for target in &behind {
                if generation != self.generation.get() || !self.push(oid, *target).await {
                    return false;
                }
            }
        }
        if generation != self.generation.get() {
            return false;
        }
        self.recovery.backfill.pending.borrow_mut().remove(oid);
        for target in behind {
            self.count_at_target(target, 1);
        }
        drop(guard);
        true
    }

    /// A target has so many objects more. Of its statistics that number alone is kept while it is backfilled.
    pub(super) fn count_at_target(&self, target: PgShard, more: i64) {
        if let Some(info) = self.core.borrow_mut().peer_info.get_mut(&target)
            && info.is_incomplete()
        {
            info.stats.stats.sum.num_objects += more;
        }
    }

    /// Tells the targets how far they are. The last word counts once they have it durable.
    async fn advance_backfill(&self, targets: &[(PgShard, HObject)], end: &HObject) -> bool {
        let (map_epoch, _) = self.epochs();
        let generation = self.generation.get();
        let op = if end.is_max() { BackfillOp::Finish } else { BackfillOp::Progress };
        for (target, last) in targets {
            if last >= end {
                continue;
            }
            let mut stats = self.core.borrow().info.stats.clone();
            if let Some(info) = self.core.borrow().peer_info.get(target)
                && !end.is_max()
            {
                stats.stats.sum.num_objects = info.stats.stats.sum.num_objects;
            }
            let message = MOSDPGBackfill {
                op,
                map_epoch,
                // As in questions: `backfill_scan.rs`.
                query_epoch: map_epoch,
                pgid: self.pgid_at(*target),
                last_backfill: end.clone(),
                stats,
            };
            let acknowledged =
                end.is_max().then(|| self.recovery.expect_answer(*target, HObject::max()));
            self.host.send_osd(target.osd, message.encode());
            if let Some(acknowledged) = acknowledged
                && (acknowledged.await.is_err() || generation != self.generation.get())
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
        if m.op == BackfillOp::Progress {
            self.stop_backfill_if_full(from);
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
