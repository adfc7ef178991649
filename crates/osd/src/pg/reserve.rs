//! Slots that a PG needs before it recovers or backfills: one of its own OSD's local reserver, one
//! of the remote reserver of each OSD that takes part. Names, priorities and messages are those of
//! `src/osd/PeeringState.cc` at v16.2.
//!
//! ```text
//! primary                                    each OSD that takes part, one after the other
//! local slot   (recovery_wait, backfill_wait)
//!   REQUEST, priority  --------------------> remote slot; backfill: room for the objects?
//!            <-------------------- GRANT     or REJECT (backfill_toofull, tried again later)
//! all are granted: recovering, backfilling
//!            <-- REVOKE                      its slot went to a higher priority, or it is full
//!   RELEASE  ------------------------------> when done, or when the own slot is lost
//! ```
//!
//! All PGs ask their own OSD first, then the others in the order of their numbers: there is no
//! circle of PGs that wait for each other. What clients wait for is recovered without a slot.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use maps::osdmap::osd_state;
use maps::pool::{PoolOpt, pool_opts};
use messages::{MBackfillReserve, MOSDForceRecovery, MRecoveryReserve, Message};
use types::osd::pg_state;
use types::{OsdId, PgShard};

use super::Pg;
use super::reserver::{Reservation, Stand};

/// Forced by an operator.
pub const RECOVERY_FORCED: u32 = 255;
/// Forced by an operator.
pub const BACKFILL_FORCED: u32 = 254;
const INACTIVE_BASE: u32 = 220;
const RECOVERY_BASE: u32 = 180;
const BACKFILL_DEGRADED_BASE: u32 = 140;
const BACKFILL_BASE: u32 = 100;
const POOL_PRIORITY_MAX: i64 = 10;

/// What slots are wanted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Objects that the log names.
    Recovery,
    /// All objects.
    Backfill,
}

/// What a PG does about what is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Phase {
    /// Nothing.
    #[default]
    Idle,
    /// Waits for the own OSD's slot.
    WaitLocal(Purpose),
    /// Waits for others' slots.
    WaitRemote(Purpose),
    /// Moves objects.
    Working(Purpose),
    /// An OSD that takes part is too full.
    TooFull(Purpose),
}

impl Phase {
    /// The state's name as Ceph prints it.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Idle => "Started/Primary/Active/NotRecovering",
            Phase::WaitLocal(Purpose::Recovery) => {
                "Started/Primary/Active/WaitLocalRecoveryReserved"
            }
            Phase::WaitRemote(Purpose::Recovery) => {
                "Started/Primary/Active/WaitRemoteRecoveryReserved"
            }
            Phase::Working(Purpose::Recovery) => "Started/Primary/Active/Recovering",
            Phase::WaitLocal(Purpose::Backfill) => {
                "Started/Primary/Active/WaitLocalBackfillReserved"
            }
            Phase::WaitRemote(Purpose::Backfill) => {
                "Started/Primary/Active/WaitRemoteBackfillReserved"
            }
            Phase::Working(Purpose::Backfill) => "Started/Primary/Active/Backfilling",
            Phase::TooFull(Purpose::Recovery) => "Started/Primary/Active/NotRecovering",
            Phase::TooFull(Purpose::Backfill) => "Started/Primary/Active/NotBackfilling",
        }
    }
}

/// What another OSD said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Awaited,
    Granted,
    Revoked,
    TooFull,
}

/// Reservations of one PG on one OSD.
#[derive(Default)]
pub struct Reservations {
    phase: Cell<Phase>,
    local: RefCell<Option<Reservation>>,
    /// What the others said, as primary.
    answers: RefCell<BTreeMap<PgShard, Answer>>,
    /// For another primary.
    remote: RefCell<Option<Reservation>>,
    /// `OFR_*`.
    forced: Cell<u8>,
}

impl Reservations {
    /// The interval ended: so did every OSD's part in it.
    pub(super) fn reset(&self) {
        self.phase.set(Phase::Idle);
        self.local.take();
        self.answers.borrow_mut().clear();
        self.remote.take();
    }

    /// What the PG does.
    pub fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// `forced_recovery`, `forced_backfill`.
    pub(super) fn state_bits(&self) -> u64 {
        let forced = self.forced.get();
        let mut bits = 0;
        if forced & MOSDForceRecovery::OFR_RECOVERY != 0 {
            bits |= pg_state::FORCED_RECOVERY;
        }
        if forced & MOSDForceRecovery::OFR_BACKFILL != 0 {
            bits |= pg_state::FORCED_BACKFILL;
        }
        bits
    }

    /// Nothing is left to be forced.
    pub(super) fn unforce(&self) {
        self.forced.set(0);
    }
}

/// How asking for slots ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserved {
    /// All are granted.
    Yes,
    /// A target has no room.
    TooFull,
    /// A slot was lost before all were there, or the interval ended.
    No,
}

/// What priorities depend on.
#[derive(Debug, Clone, Copy)]
struct Need {
    forced: bool,
    pool_priority: i64,
    size: u32,
    min_size: u32,
    acting: u32,
    /// Members of the acting set that lack nothing.
    complete: u32,
    degraded: bool,
}

/// `clamp_recovery_priority`: the pool's share, moved to begin with 0, stays within the kind's range.
fn clamp(priority: u32, pool: i64, base: u32) -> u32 {
    let most = match base {
        BACKFILL_BASE => BACKFILL_DEGRADED_BASE - 1,
        BACKFILL_DEGRADED_BASE => RECOVERY_BASE - 1,
        RECOVERY_BASE => INACTIVE_BASE - 1,
        _ => 253,
    };
    let pool = pool.clamp(-POOL_PRIORITY_MAX, POOL_PRIORITY_MAX) + POOL_PRIORITY_MAX;
    (i64::from(priority) + pool).clamp(0, i64::from(most)) as u32
}

fn priority(purpose: Purpose, need: &Need) -> u32 {
    let (base, more) = match purpose {
        Purpose::Recovery if need.forced => return RECOVERY_FORCED,
        Purpose::Backfill if need.forced => return BACKFILL_FORCED,
        Purpose::Recovery if need.degraded && need.complete < need.min_size => {
            (INACTIVE_BASE, need.min_size - need.complete)
        }
        Purpose::Recovery => (RECOVERY_BASE, 0),
        Purpose::Backfill if need.acting < need.min_size => {
            (INACTIVE_BASE, need.min_size - need.acting)
        }
        Purpose::Backfill if need.acting < need.size => {
            (BACKFILL_DEGRADED_BASE, need.size - need.acting)
        }
        Purpose::Backfill if need.degraded => (BACKFILL_DEGRADED_BASE, 0),
        Purpose::Backfill => (BACKFILL_BASE, 0),
    };
    clamp(base + more, need.pool_priority, base)
}

/// An OSD that has two shards of a PG, while they move, gives one slot for both.
fn one_on_each_osd(members: impl Iterator<Item = PgShard>) -> Vec<PgShard> {
    let mut first: BTreeMap<OsdId, PgShard> = BTreeMap::new();
    for member in members {
        first.entry(member.osd).or_insert(member);
    }
    first.into_values().collect()
}

fn clamp_u64(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// What a target needs for so many bytes of clients' data: of an erasure coded pool (data chunks,
/// bytes of a stripe's piece) its part of them, and a piece an object for what each is rounded up
/// (`PG::try_reserve_recovery_space`, `src/osd/PG.cc` at v16.2).
fn room_for(bytes: u64, objects: u64, code: Option<(u64, u64)>) -> u64 {
    match code {
        Some((k, piece)) => (bytes / k.max(1)).saturating_add(objects.saturating_mul(piece)),
        None => bytes,
    }
}

/// `kind` in MRecoveryReserve.
mod recovery_kind {
    pub(super) const REQUEST: u32 = 0;
    pub(super) const GRANT: u32 = 1;
    pub(super) const RELEASE: u32 = 2;
    pub(super) const REVOKE: u32 = 3;
}

/// `kind` in MBackfillReserve.
mod backfill_kind {
    pub(super) const REQUEST: u32 = 0;
    pub(super) const GRANT: u32 = 1;
    pub(super) const REJECT_TOOFULL: u32 = 2;
    pub(super) const RELEASE: u32 = 3;
    pub(super) const REVOKE_TOOFULL: u32 = 4;
    pub(super) const REVOKE: u32 = 5;
}

impl Pg {
    pub(super) fn enter(&self, phase: Phase) {
        if phase == Phase::Working(Purpose::Backfill) {
            self.recovery.while_backfilling.set(false);
        }
        if self.reservations.phase.replace(phase) != phase {
            self.update_stamps();
        }
    }

    fn priority_of(&self, purpose: Purpose) -> u32 {
        let degraded = self.state_bits() & pg_state::DEGRADED != 0;
        let forced = match purpose {
            Purpose::Recovery => MOSDForceRecovery::OFR_RECOVERY,
            Purpose::Backfill => MOSDForceRecovery::OFR_BACKFILL,
        };
        let pool_priority = match self.pool().opts.0.get(&pool_opts::RECOVERY_PRIORITY) {
            Some(PoolOpt::Int(priority)) => *priority,
            _ => 0,
        };
        let core = self.core.borrow();
        let complete = core.acting_backfill.iter().filter(|s| {
            let lacks = if **s == core.whoami {
                !core.missing.is_empty()
            } else {
                core.peer_missing.get(s).is_some_and(|m| !m.is_empty())
                    || core.peer_info.get(s).is_some_and(|i| i.is_incomplete())
            };
            !lacks
        });
        let need = Need {
            forced: self.reservations.forced.get() & forced != 0,
            pool_priority,
            size: core.mapping.size,
            min_size: core.mapping.min_size,
            acting: core.acting_len() as u32,
            complete: complete.count() as u32,
            degraded,
        };
        priority(purpose, &need)
    }

    /// One member on each of the OSDs that take part.
    fn partners(&self, purpose: Purpose) -> Vec<PgShard> {
        let core = self.core.borrow();
        let incomplete = |s: &&PgShard| core.peer_info.get(s).is_some_and(|i| i.is_incomplete());
        let others = core.acting_backfill.iter().filter(|s| **s != core.whoami);
        let those = others.filter(|s| purpose == Purpose::Recovery || incomplete(s));
        one_on_each_osd(those.copied())
    }

    /// How many members on an OSD are to be backfilled.
    fn targets_on(&self, osd: OsdId) -> usize {
        let core = self.core.borrow();
        let those = core.acting_backfill.iter().filter(|s| s.osd == osd && **s != core.whoami);
        those.filter(|s| core.peer_info.get(s).is_some_and(|i| i.is_incomplete())).count()
    }

    /// Waits for all slots. Whatever the answer, [`Pg::release`] has to follow.
    pub(super) async fn reserve_slots(&self, purpose: Purpose, generation: u64) -> Reserved {
        let alive = || generation == self.generation.get();
        if purpose == Purpose::Recovery && self.is_too_full_to_recover() {
            return Reserved::TooFull;
        }
        let changed = self.recovery.changed.clone();
        self.enter(Phase::WaitLocal(purpose));
        let priority = self.priority_of(purpose);
        let local = self.host.local_reserver().request(self.pgid, priority, changed.clone());
        self.reservations.local.replace(Some(local));
        changed.until(|| !alive() || self.local_stand() != Some(Stand::Waiting)).await;
        if !alive() || self.local_stand() != Some(Stand::Granted) {
            return Reserved::No;
        }
        self.enter(Phase::WaitRemote(purpose));
        for partner in self.partners(purpose) {
            self.reservations.answers.borrow_mut().insert(partner, Answer::Awaited);
            self.send_reservation(purpose, partner, recovery_kind::REQUEST, priority);
            let answer = || self.reservations.answers.borrow().get(&partner).copied();
            changed
                .until(|| {
                    !alive()
                        || answer() != Some(Answer::Awaited)
                        || self.local_stand() != Some(Stand::Granted)
                })
                .await;
            if !alive() {
                return Reserved::No;
            }
            match answer() {
                Some(Answer::Granted) if self.is_reserved() => {}
                Some(Answer::TooFull) => return Reserved::TooFull,
                _ => return Reserved::No,
            }
        }
        self.enter(Phase::Working(purpose));
        Reserved::Yes
    }

    /// Whether an OSD that takes part is full: recovery could fill it to the brim
    /// (`WaitLocalRecoveryReserved`, `src/osd/PeeringState.cc` at v16.2).
    pub(super) fn is_too_full_to_recover(&self) -> bool {
        let (core, map) = (self.core.borrow(), self.map.borrow());
        let is_full = |osd| self.host.is_full(osd) || map.state(osd) & osd_state::FULL != 0;
        core.acting_backfill.iter().any(|s| is_full(s.osd))
    }

    /// Recovery that waits for room looks again whether there is some.
    pub(crate) fn recover_if_room(&self) {
        if self.reservations.phase() == Phase::TooFull(Purpose::Recovery) {
            self.recovery.changed.notify_all();
        }
    }

    fn local_stand(&self) -> Option<Stand> {
        self.reservations.local.borrow().as_ref().map(Reservation::stand)
    }

    /// Whether no slot has been lost.
    pub(super) fn is_reserved(&self) -> bool {
        let answers = self.reservations.answers.borrow();
        self.local_stand() == Some(Stand::Granted)
            && answers.values().all(|a| *a == Answer::Granted)
    }

    /// Whether a slot was lost because a target is full.
    pub(super) fn is_revoked_as_full(&self) -> bool {
        self.reservations.answers.borrow().values().any(|a| *a == Answer::TooFull)
    }

    /// Gives all slots back.
    pub(super) fn release_slots(&self, purpose: Purpose) {
        self.reservations.local.take();
        let asked = std::mem::take(&mut *self.reservations.answers.borrow_mut());
        for partner in asked.into_keys() {
            match purpose {
                Purpose::Recovery => {
                    self.send_reservation(purpose, partner, recovery_kind::RELEASE, 0)
                }
                Purpose::Backfill => {
                    self.send_reservation(purpose, partner, backfill_kind::RELEASE, 0)
                }
            }
        }
    }

    fn send_reservation(&self, purpose: Purpose, to: PgShard, kind: u32, priority: u32) {
        let query_epoch = self.epoch();
        let pgid = self.pgid_at(to);
        let raw = match purpose {
            Purpose::Recovery => {
                Message::encode(&MRecoveryReserve { pgid, query_epoch, kind, priority })
            }
            Purpose::Backfill => {
                // An OSD that is asked once for two shards needs room for both.
                let shards = i64::try_from(self.targets_on(to.osd)).unwrap_or(1).max(1);
                let num_bytes = self.core.borrow().info.stats.stats.sum.num_bytes;
                Message::encode(&MBackfillReserve {
                    pgid,
                    query_epoch,
                    kind,
                    priority,
                    primary_num_bytes: num_bytes.saturating_mul(shards),
                    shard_num_bytes: 0,
                })
            }
        };
        self.host.send_osd(to.osd, raw);
    }

    fn note_answer(&self, from: OsdId, answer: Answer) {
        let mut answers = self.reservations.answers.borrow_mut();
        // Of each OSD one shard is asked.
        if let Some((_, known)) = answers.iter_mut().find(|(s, _)| s.osd == from) {
            *known = answer;
        }
        drop(answers);
        self.recovery.changed.notify_all();
    }

    /// MRecoveryReserve.
    pub fn on_recovery_reserve(&self, m: &MRecoveryReserve, from: OsdId) {
        if m.query_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        match m.kind {
            recovery_kind::REQUEST => {
                let Some(primary) = self.primary_on(from) else { return };
                self.reserve_for(Purpose::Recovery, primary, m.priority);
            }
            recovery_kind::GRANT => self.note_answer(from, Answer::Granted),
            recovery_kind::RELEASE => drop(self.reservations.remote.take()),
            recovery_kind::REVOKE => self.note_answer(from, Answer::Revoked),
            kind => tracing::warn!(pg = %self.pgid, "recovery reservation of kind {kind}"),
        }
    }

    /// MBackfillReserve.
    pub fn on_backfill_reserve(&self, m: &MBackfillReserve, from: OsdId) {
        if m.query_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        match m.kind {
            backfill_kind::REQUEST => {
                let Some(primary) = self.primary_on(from) else { return };
                let lacking = m.primary_num_bytes.saturating_sub(m.shard_num_bytes);
                let codec = self.codec();
                let code = codec.as_ref().map(|c| (c.k() as u64, c.chunk_len(1)));
                let objects = self.core.borrow().info.stats.stats.sum.num_objects;
                let more = room_for(clamp_u64(lacking), clamp_u64(objects), code);
                if self.host.is_backfill_full(more) {
                    let kind = backfill_kind::REJECT_TOOFULL;
                    self.send_reservation(Purpose::Backfill, primary, kind, m.priority);
                    return;
                }
                self.reserve_for(Purpose::Backfill, primary, m.priority);
            }
            backfill_kind::GRANT => self.note_answer(from, Answer::Granted),
            backfill_kind::RELEASE => drop(self.reservations.remote.take()),
            backfill_kind::REJECT_TOOFULL | backfill_kind::REVOKE_TOOFULL => {
                self.note_answer(from, Answer::TooFull);
            }
            backfill_kind::REVOKE => self.note_answer(from, Answer::Revoked),
            kind => tracing::warn!(pg = %self.pgid, "backfill reservation of kind {kind}"),
        }
    }

    fn primary_on(&self, osd: OsdId) -> Option<PgShard> {
        self.core.borrow().primary().filter(|primary| primary.osd == osd)
    }

    /// Takes a slot for another primary, and tells it when it has it and when it has lost it.
    fn reserve_for(&self, purpose: Purpose, primary: PgShard, priority: u32) {
        let changed = Rc::new(env::sync::Notify::default());
        let held = self.host.remote_reserver().request(self.pgid, priority, changed.clone());
        // An earlier one would be of a request that was given up.
        self.reservations.remote.replace(Some(held));
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(async move {
            let mut told = Stand::Waiting;
            loop {
                let stand = match &*pg.reservations.remote.borrow() {
                    Some(held) if generation == pg.generation.get() && held.tells(&changed) => {
                        held.stand()
                    }
                    _ => return,
                };
                let kind = match (stand, purpose) {
                    _ if stand == told => None,
                    (Stand::Granted, Purpose::Recovery) => Some(recovery_kind::GRANT),
                    (Stand::Granted, Purpose::Backfill) => Some(backfill_kind::GRANT),
                    (Stand::Preempted, Purpose::Recovery) => Some(recovery_kind::REVOKE),
                    (Stand::Preempted, Purpose::Backfill) => Some(backfill_kind::REVOKE),
                    (Stand::Waiting, _) => None,
                };
                if let Some(kind) = kind {
                    pg.send_reservation(purpose, primary, kind, priority);
                    told = stand;
                }
                changed.notified().await;
            }
        });
    }

    /// A backfill's target that has become too full tells the primary and frees its slot.
    pub(super) fn stop_backfill_if_full(&self, from: OsdId) {
        let Some(primary) = self.primary_on(from) else { return };
        if self.host.is_backfill_full(0) && self.reservations.remote.take().is_some() {
            self.send_reservation(Purpose::Backfill, primary, backfill_kind::REVOKE_TOOFULL, 0);
        }
    }

    /// `ceph pg force-recovery` and its like: `OFR_*`.
    pub fn force_recovery(&self, options: u8) {
        let core = self.core.borrow();
        if !core.is_primary() || core.is_clean() {
            return;
        }
        drop(core);
        let which = options & (MOSDForceRecovery::OFR_RECOVERY | MOSDForceRecovery::OFR_BACKFILL);
        let before = self.reservations.forced.get();
        let after = if options & MOSDForceRecovery::OFR_CANCEL != 0 {
            before & !which
        } else {
            before | which
        };
        self.reservations.forced.set(after);
        if before == after {
            return;
        }
        // The place in the queue is another now: it is asked for again.
        if let Some(local) = &*self.reservations.local.borrow()
            && local.stand() == Stand::Waiting
        {
            local.give_up();
        }
        self.update_stamps();
        self.recovery.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shards 1 and 2 of a PG changed places, and some writes had been missed: the slot that an OSD
    /// had given for one of its two shards kept the other waiting in its queue, and the PG was
    /// waiting for itself for ever (one of 24 merges of PGs with an OSD killed).
    #[test]
    fn an_osd_with_two_shards_is_asked_once() {
        let members = [(0, 1), (0, 2), (2, 1), (2, 2), (3, 0)];
        let asked = one_on_each_osd(members.iter().map(|(osd, shard)| PgShard::new(*osd, *shard)));
        assert_eq!(asked, [PgShard::new(0, 1), PgShard::new(2, 1), PgShard::new(3, 0)]);
    }

    /// The one slot that an OSD was asked for had counted one of its two shards' bytes, and the
    /// bytes of the whole object instead of a shard's part of them.
    #[test]
    fn room_is_for_the_shards_that_come() {
        let gib = 1 << 30;
        assert_eq!(room_for(gib, 100, None), gib);
        // Of 2+1 a shard has half, and may have a piece more of every object.
        assert_eq!(room_for(gib, 100, Some((2, 4096))), gib / 2 + 100 * 4096);
        assert_eq!(room_for(2 * gib, 100, Some((2, 4096))), gib + 100 * 4096);
        assert_eq!(clamp_u64(-5), 0);
    }

    /// A pool's share began with -10 here and with 0 in Ceph: an OSD beside real ones asked with 180 where they ask with
    /// 190, and lost its slots to them (`qa/standalone/osd/osd-backfill-prio.sh`).
    #[test]
    fn priorities_are_ceph_s() {
        let whole = Need {
            forced: false,
            pool_priority: 0,
            size: 3,
            min_size: 2,
            acting: 3,
            complete: 3,
            degraded: false,
        };
        let degraded = Need { degraded: true, acting: 2, complete: 2, ..whole };
        let inactive = Need { degraded: true, acting: 1, complete: 1, ..whole };
        let of =
            |need: &Need| (priority(Purpose::Recovery, need), priority(Purpose::Backfill, need));
        assert_eq!(of(&whole), (190, 110));
        assert_eq!(of(&degraded), (190, 151));
        assert_eq!(of(&Need { degraded: true, ..whole }), (190, 150));
        assert_eq!(of(&inactive), (231, 231));
        assert_eq!(of(&Need { forced: true, ..inactive }), (255, 254));
        // A pool's priority moves it within its kind.
        assert_eq!(of(&Need { pool_priority: 5, ..whole }), (195, 115));
        assert_eq!(of(&Need { pool_priority: -50, ..degraded }), (180, 141));
        assert_eq!(clamp(BACKFILL_BASE + 25, 10, BACKFILL_BASE), 139);
    }
}
