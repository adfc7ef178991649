//! Recovery by log: which objects of the missing sets move, and when; how one moves is in `pull.rs`
//! (to us), `push.rs` (to others) and `shard_recovery.rs` (erasure coded pools).
//!
//! ```text
//!   own missing:   Pull -> source, Push <- ..., again until complete; applied in one transaction
//!   peer missing:  Push -> peer, PushReply <- when durable there; RecoveryDelete for deletions
//! ```
//!
//! One task a PG and interval gets slots ([`super::reserve`]) and picks objects
//! ([`Pg::kick_recovery`]); one task an object moves it under the object's read lock, so writes wait
//! and reads go on. A head is recovered before its clones, since it holds the snap set. Objects that
//! ops wait for go first and need no slot.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use command::Formatter;
use env::sync::{Notify, Permit, Sender, oneshot};
use maps::osdmap::osdmap_flags;
use types::osd::{ObjectRecoveryInfo, PgLogEntry, PgMissingItem};
use types::{EVersion, HObject, IntervalSet, OsdId, PgShard};

use super::backfill::Backfill;
use super::peering::Peering;
use super::reserve::{Phase, Purpose, Reserved};
use super::{Pg, extents};
use crate::ops::LockKind;
use crate::osd::mclock::Class;

/// An object on its way to us.
pub(super) struct Pull {
    pub(super) from: PgShard,
    pub(super) need: EVersion,
    /// What of it, as the source is told with every chunk asked for.
    pub(super) info: ObjectRecoveryInfo,
    /// An older version than the one that is missing: it stays missing.
    pub(super) older: bool,
    /// Completed with whether the object is here.
    pub(super) done: Sender<bool>,
}

/// An object on its way from us: when the peer has the chunk durable.
type Pushes = BTreeMap<(PgShard, HObject), Sender<()>>;

/// Recovery of one PG in one interval.
#[derive(Default)]
pub struct Recovery {
    running: Cell<bool>,
    /// Objects being moved; bounded by osd_recovery_max_active and the ops that wait.
    active: RefCell<BTreeSet<HObject>>,
    pub(super) pulls: RefCell<BTreeMap<HObject, Pull>>,
    pub(super) pushes: RefCell<Pushes>,
    /// Nobody known has them. Asked for again when a peer tells more.
    pub(super) unfound: RefCell<BTreeSet<HObject>>,
    /// Could not be read here once, and nobody else has them. Bounded by the objects that are moved.
    pub(super) unreadable: RefCell<BTreeSet<HObject>>,
    /// What is missing was found to be damaged while the PG backfilled.
    pub(super) while_backfilling: Cell<bool>,
    /// Half-received objects.
    pub(super) temps: RefCell<BTreeSet<HObject>>,
    pub(super) changed: Rc<Notify>,
    /// As a target: what is beyond where it is is being removed. The PG serves meanwhile; the primary is told
    /// what is here, and so begins to push, when it is gone.
    pub(super) emptying: Cell<bool>,
    pub(super) backfill: Backfill,
}

impl Recovery {
    /// The interval ended.
    pub(super) fn reset(&self) {
        self.running.set(false);
        self.active.borrow_mut().clear();
        self.pulls.borrow_mut().clear();
        self.pushes.borrow_mut().clear();
        self.unfound.borrow_mut().clear();
        self.unreadable.borrow_mut().clear();
        self.while_backfilling.set(false);
        self.emptying.set(false);
        self.backfill.reset();
        self.changed.notify_all();
    }

    /// Whether a write of `oid` is to be sent whole to a follower, or its log entry alone.
    pub(super) fn should_send(&self, core: &Peering, to: PgShard, oid: &HObject) -> bool {
        let last_backfill = core.peer_info.get(&to).map(|i| &i.last_backfill);
        match last_backfill {
            Some(last) if oid > last => {
                self.backfill.has_passed(oid) && !env::mutant("backfill-blind")
            }
            _ => true,
        }
    }

    /// Backfill will bring what a write changed.
    pub(super) fn add_written(&self, entries: &[PgLogEntry]) {
        for e in entries {
            self.backfill.add_written(&e.soid);
        }
    }

    /// Whether backfill holds the object (its lock does).
    pub(super) fn is_backfilling(&self, _: &HObject) -> bool {
        false
    }

    /// Which member with this OSD an answer about an object is awaited from.
    pub(super) fn awaited(&self, osd: OsdId, oid: &HObject) -> Option<PgShard> {
        let pushes = self.pushes.borrow();
        pushes.keys().find(|(from, of)| from.osd == osd && of == oid).map(|(from, _)| *from)
    }

    /// A chunk of ours that we compute ourselves: it is taken as if we had pulled it from us.
    pub(super) fn expect_own(&self, oid: &HObject, whoami: PgShard, need: EVersion, first: bool) {
        if first {
            let (done, _) = oneshot();
            let info = ObjectRecoveryInfo::default();
            let pull = Pull { from: whoami, need, info, older: false, done };
            self.pulls.borrow_mut().insert(oid.clone(), pull);
        }
    }

    /// A place for a peer's answer about an object.
    pub(super) fn expect_answer(&self, from: PgShard, oid: HObject) -> env::sync::Receiver<()> {
        let (done, answered) = oneshot();
        self.pushes.borrow_mut().insert((from, oid), done);
        answered
    }

    /// Whether something is being moved.
    pub fn is_active(&self) -> bool {
        self.running.get() || !self.active.borrow().is_empty()
    }

    /// Number of objects being moved.
    pub fn active_len(&self) -> usize {
        self.active.borrow().len()
    }

    /// `recovery_progress` of a query but for the targets.
    pub(super) fn dump_progress(&self, f: &mut Formatter) {
        let pushes = self.pushes.borrow();
        let ended = || pushes.keys().filter(|(_, oid)| oid.is_max());
        f.array("waiting_on_backfill", |f| ended().for_each(|(s, _)| f.dump_stream("osd", s)));
        self.backfill.dump(f);
        f.array("recovering", |f| {
            self.active.borrow().iter().for_each(|oid| f.dump_stream("object", oid));
        });
        f.object("pg_backend", |f| {
            f.array("pull_from_peer", |f| {
                for (oid, pull) in &*self.pulls.borrow() {
                    f.object("pull", |f| {
                        f.dump_stream("pull_from", pull.from);
                        f.dump_stream("soid", oid);
                    });
                }
            });
            f.array("pushing", |f| {
                for (to, oid) in pushes.keys().filter(|(_, oid)| !oid.is_max()) {
                    f.object("push", |f| {
                        f.dump_stream("pushing_to", to);
                        f.dump_stream("soid", oid);
                    });
                }
            });
        });
    }

    /// Number of objects nobody has.
    pub fn unfound_len(&self) -> usize {
        self.unfound.borrow().len()
    }
}

/// How moving one object ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    Done,
    Unfound,
    Failed,
}

impl Pg {
    fn may_recover(&self) -> bool {
        let map = self.map.borrow();
        !map.has_flag(osdmap_flags::NORECOVER) && self.core.borrow().is_activated()
    }

    /// Starts recovery if there is something to recover.
    pub(crate) fn kick_recovery(&self) {
        let running = self.recovery.running.get();
        // What is on its way to us is not missing any more, and need not be durable yet: strays stay until then.
        let is_recovered = || {
            let core = self.core.borrow();
            core.is_activated() && core.is_recovered() && self.recovery.active.borrow().is_empty()
        };
        if !running && is_recovered() {
            self.step(|core, _, now, out| core.on_recovered(now, out));
            self.schedule_wake();
            return;
        }
        if !self.may_recover() || running {
            self.recovery.changed.notify_all();
            return;
        }
        self.recovery.running.set(true);
        self.host.env().go(run(self.rc(), self.generation.get()));
    }

    /// Gives a slot back, after osd_recovery_sleep: clients go first.
    pub(super) fn rest(&self, slot: impl Sized + 'static) {
        let sleep = self.host.recovery_limits().sleep;
        if sleep.is_zero() {
            return;
        }
        let env = self.host.env().clone();
        self.host.env().go(async move {
            env.sleep(sleep).await;
            drop(slot);
        });
    }

    /// Who is down in this map answers nothing that it was asked before, also if the next has it up again.
    pub(super) fn fail_pulls_from_down(&self, map: &maps::osdmap::OsdMap) {
        self.recovery.pulls.borrow_mut().retain(|_, pull| map.is_up(pull.from.osd));
        self.shards.forget_down(|osd| map.is_up(osd));
    }

    /// An op waits for the object.
    pub(super) fn recover_first(&self, oid: HObject) {
        let missing = {
            let core = self.core.borrow();
            core.missing.contains(&oid) || core.peer_missing.values().any(|m| m.contains(&oid))
        };
        if !missing {
            // It has been recovered between the check and now.
            let (pg, generation) = (self.rc(), self.generation.get());
            self.host.env().go(async move {
                if generation == pg.generation.get() {
                    pg.requeue_for(&oid);
                }
            });
            return;
        }
        // Whatever norecover says: that stops what nobody waits for.
        if self.core.borrow().is_activated() {
            self.start_object(oid, None);
        }
    }

    /// Moves an object. What clients wait for needs no slot of the OSD's, nor a place.
    fn start_object(&self, oid: HObject, slot: Option<(Permit, Permit)>) {
        if !self.recovery.active.borrow_mut().insert(oid.clone()) {
            return;
        }
        self.host.env().go(recover(self.rc(), oid, slot, self.generation.get()));
    }

    /// The next object to move that is not being moved.
    fn next_object(&self) -> Option<HObject> {
        let core = self.core.borrow();
        let active = self.recovery.active.borrow();
        let unfound = self.recovery.unfound.borrow();
        let awaits_head = |oid: &HObject| {
            // Nobody has what says which snapshots it serves.
            let is_unfound = |head| core.missing.contains(head) && unfound.contains(head);
            !unfound.is_empty() && oid.is_snap() && is_unfound(&oid.head())
        };
        let free =
            |oid: &&HObject| !active.contains(*oid) && !unfound.contains(*oid) && !awaits_head(oid);
        if let Some(oid) = core.missing.in_version_order().find(free) {
            return Some(oid.clone());
        }
        core.acting_backfill
            .iter()
            .filter_map(|s| core.peer_missing.get(s))
            .find_map(|missing| missing.in_version_order().find(free).cloned())
    }

    async fn move_object(self: &Rc<Pg>, oid: &HObject, generation: u64) -> Moved {
        // The snap set of a clone is in its head.
        if oid.is_snap() {
            let head = oid.head();
            let lacks_head = {
                let core = self.core.borrow();
                core.missing.contains(&head)
                    || core.peer_missing.values().any(|m| m.contains(&head))
            };
            if lacks_head && !self.recovery.unfound.borrow().contains(&head) {
                if !self.recovery.active.borrow().contains(&head) {
                    self.start_object(head.clone(), None);
                }
                while self.recovery.active.borrow().contains(&head) {
                    self.recovery.changed.notified().await;
                    if generation != self.generation.get() {
                        return Moved::Failed;
                    }
                }
            }
            // What is here of it may not know the clone.
            if self.core.borrow().missing.contains(&head) {
                return Moved::Failed;
            }
        }
        if self.is_erasure() {
            return self.move_shards(oid, generation).await;
        }
        let item = self.core.borrow().missing.get(oid).cloned();
        if let Some(item) = item {
            let moved = if item.is_delete {
                self.delete_here(oid, item.need).await
            } else {
                self.pull(oid, item.need).await
            };
            if moved != Moved::Done || generation != self.generation.get() {
                return moved;
            }
        }
        let peers: Vec<(PgShard, EVersion, bool)> = {
            let core = self.core.borrow();
            core.acting_backfill
                .iter()
                .filter_map(|s| Some((*s, core.peer_missing.get(s)?.get(oid)?)))
                .map(|(s, item)| (s, item.need, item.is_delete))
                .collect()
        };
        if peers.is_empty() {
            return Moved::Done;
        }
        let guard = self.contexts.lock(&oid.head(), LockKind::Read).await;
        for (peer, need, delete) in peers {
            if generation != self.generation.get() {
                return Moved::Failed;
            }
            let ok = if delete {
                self.delete_there(oid, need, peer).await
            } else {
                self.push(oid, peer).await
            };
            if !ok || generation != self.generation.get() {
                return Moved::Failed;
            }
            self.on_peer_has(oid, peer);
        }
        drop(guard);
        Moved::Done
    }

    pub(super) fn on_peer_has(&self, oid: &HObject, peer: PgShard) {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let Some(missing) = core.peer_missing.get_mut(&peer) else { return };
        missing.remove(oid);
        if missing.is_empty()
            && let Some(info) = core.peer_info.get_mut(&peer)
        {
            info.last_complete = info.last_update;
        }
    }

    pub(super) fn epochs(&self) -> (u32, u32) {
        let core = self.core.borrow();
        (core.epoch, core.last_peering_reset)
    }

    /// A peer told more of what it has: what was unfound may be found.
    pub(crate) fn retry_unfound(&self) {
        if !self.recovery.unfound.borrow().is_empty() {
            self.recovery.unfound.borrow_mut().clear();
            self.kick_recovery();
        }
    }
}

async fn recover(pg: Rc<Pg>, oid: HObject, slot: Option<(Permit, Permit)>, generation: u64) {
    if generation != pg.generation.get() {
        return;
    }
    let moved = pg.move_object(&oid, generation).await;
    if let Some((slot, place)) = slot {
        drop(place);
        pg.rest(slot);
    }
    if moved == Moved::Failed {
        // Not in a tight loop: the reason is a peer that is going down, or a bad disk. It counts as being
        // moved meanwhile, so that nobody else begins with it.
        pg.host.env().sleep(RETRY_PAUSE).await;
    }
    if generation != pg.generation.get() {
        return;
    }
    pg.recovery.active.borrow_mut().remove(&oid);
    match moved {
        Moved::Done => pg.requeue_for(&oid),
        Moved::Unfound => {
            pg.recovery.unfound.borrow_mut().insert(oid);
            pg.step(|core, _, now, out| core.discover_missing(now, out));
        }
        Moved::Failed => {
            if pg.waiting_for_object.borrow().contains_key(&oid) {
                pg.recover_first(oid);
            }
        }
    }
    pg.recovery.changed.notify_all();
    if !pg.recovery.running.get() {
        pg.kick_recovery();
    }
}

/// Pause before what failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Recovers, then backfills, each with the slots it needs, until there is nothing that can be done.
async fn run(pg: Rc<Pg>, generation: u64) {
    let alive = || generation == pg.generation.get();
    while alive() {
        pg.join_postponed();
        let Some(purpose) = pg.next_purpose() else { break };
        let reserved = pg.reserve_slots(purpose, generation).await;
        if !alive() {
            return;
        }
        let mut full = reserved == Reserved::TooFull;
        let mut done = false;
        if reserved == Reserved::Yes {
            done = match purpose {
                Purpose::Recovery => pg.recover_reserved(generation).await,
                Purpose::Backfill => pg.backfill(generation).await,
            };
            if !alive() {
                return;
            }
            full = pg.is_revoked_as_full();
        }
        let lost = !pg.is_reserved();
        pg.release_slots(purpose);
        let pause = match (full, done, lost) {
            (true, ..) => {
                pg.enter(Phase::TooFull(purpose));
                pg.host.recovery_limits().retry
            }
            // A slot was lost: back into the queue.
            (_, true, _) | (_, _, true) => Duration::ZERO,
            _ => RETRY_PAUSE,
        };
        if full && purpose == Purpose::Recovery {
            // A new map wakes it, or who is full no more (`recover_if_room`).
            let room = pg.recovery.changed.until(|| !alive() || !pg.is_too_full_to_recover());
            let _ = pg.host.env().timeout(pause, room).await;
        } else if !pause.is_zero() {
            pg.host.env().sleep(pause).await;
        }
    }
    if !alive() {
        return;
    }
    pg.recovery.running.set(false);
    pg.enter(Phase::Idle);
    pg.step(|core, _, now, out| core.on_recovered(now, out));
    pg.schedule_wake();
    if pg.core.borrow().is_recovered() {
        pg.reservations.unforce();
        pg.update_stamps();
    }
}

impl Pg {
    /// Those that waited with their backfill, since they alone had something, begin if that is over.
    fn join_postponed(&self) {
        // What is on its way to us is not missing any more, and need not be durable yet.
        if !self.recovery.active.borrow().is_empty() || self.next_object().is_some() {
            return;
        }
        let mut joined = false;
        self.step(|core, _, now, out| joined = core.join_postponed(now, out));
        if joined {
            self.recovery.backfill.reset();
        }
    }

    /// What slots are to be asked for; `None` if nothing can be done now.
    fn next_purpose(&self) -> Option<Purpose> {
        if !self.may_recover() {
            return None;
        }
        if self.next_object().is_some() || !self.recovery.active.borrow().is_empty() {
            return Some(Purpose::Recovery);
        }
        let all_found = self.recovery.unfound.borrow().is_empty();
        (all_found && self.may_backfill()).then_some(Purpose::Backfill)
    }

    /// Lets others have the disk before the object is moved, as osd_op_queue says, and clients the way.
    /// It is not locked meanwhile. The place is held until the object is there.
    pub(super) async fn await_turn(&self, oid: &HObject) -> Permit {
        let bytes = self.bytes_to_move(oid).await;
        let place = self.host.pace().place(bytes).await;
        self.host.turns().turn(Class::Recovery, bytes).await;
        place
    }

    /// About how much of an object is to be moved: what has changed of it.
    async fn bytes_to_move(&self, oid: &HObject) -> u64 {
        let size = match self.host.store().stat(&self.cid, &self.goid(oid)).await {
            Ok(stat) => stat.size,
            // Not here: as large as others are.
            Err(_) => {
                let sum = &self.core.borrow().info.stats.stats.sum;
                sum.num_bytes.max(0).unsigned_abs() / sum.num_objects.max(1).unsigned_abs()
            }
        };
        let core = self.core.borrow();
        let whole = IntervalSet::of(0, size.max(1));
        let changed = |item: &PgMissingItem| {
            let (info, _) = extents::wanted(oid, EVersion::ZERO, Some(item));
            info.copy_subset.intersection(&whole).size()
        };
        let own = core.missing.get(oid).map(&changed);
        let peers = core.acting_backfill.iter().filter_map(|s| core.peer_missing.get(s)?.get(oid));
        own.into_iter().chain(peers.map(&changed)).max().unwrap_or(size)
    }

    /// Recovers until nothing is missing that is to be found (`true`), or a slot is lost.
    async fn recover_reserved(self: &Rc<Pg>, generation: u64) -> bool {
        let alive = || generation == self.generation.get();
        let slots = self.host.recovery_slots().clone();
        while alive() && self.may_recover() && self.is_reserved() {
            if self.next_object().is_none() {
                if self.recovery.active.borrow().is_empty() {
                    return true;
                }
                self.recovery.changed.notified().await;
                continue;
            }
            let limits = self.host.recovery_limits();
            let mut slot = Some(slots.acquire(1).await);
            if !alive() || !self.is_reserved() {
                break;
            }
            // Other PGs have their turn after osd_recovery_max_single_start objects.
            for _ in 0..limits.single_start {
                let Some(slot) = slot.take().or_else(|| slots.try_acquire(1)) else { break };
                let Some(oid) = self.next_object() else { break };
                let place = self.await_turn(&oid).await;
                // What is next may be another one by now.
                if !alive() || !self.is_reserved() {
                    break;
                }
                let Some(oid) = self.next_object() else { break };
                self.start_object(oid, Some((slot, place)));
            }
        }
        // What is under way goes to its end with the slots it has.
        let idle = || self.recovery.active.borrow().is_empty();
        self.recovery.changed.until(|| !alive() || idle()).await;
        false
    }
}
