//! How full the OSD is: measured against the map's ratios, or as an operator injected it
//! (`OSDService::recalc_full_state`, `_check_inject_full`, `src/osd/OSD.cc` at v16.2).
//!
//! A full OSD says so to the monitor, and to those who lead its PGs: what they send meanwhile it
//! cannot refuse, and until a map comes (with monitors that are away: for long) that may be more than it has
//! room for. The message is the same, MOSDFull, which OSDs of Ceph pass over.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;

use ::maps::OsdMap;
use ::maps::osdmap::osd_state;
use messages::{MOSDFull, Message, PaxosHeader};
use types::OsdId;

use super::Osd;
use super::session::Session;
use crate::pg::host::Host;

/// Steps of fullness, each with what the ones before it bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Fullness {
    /// There is room.
    #[default]
    None,
    /// Operators are warned.
    Nearfull,
    /// No backfill comes here.
    Backfillfull,
    /// Clients stop writing.
    Full,
    /// Nothing is written.
    Failsafe,
}

impl Fullness {
    /// The step of that name in `injectfull`.
    pub fn parse(name: &str) -> Option<Fullness> {
        Some(match name {
            "none" => Fullness::None,
            "nearfull" => Fullness::Nearfull,
            "backfillfull" => Fullness::Backfillfull,
            "full" => Fullness::Full,
            "failsafe" => Fullness::Failsafe,
            _ => return None,
        })
    }

    /// The step at that share of the device in use.
    fn measured(used: f64, map: &OsdMap, failsafe_ratio: f64) -> Fullness {
        let above = |ratio: f32| ratio > 0.0 && used as f32 >= ratio;
        if used >= failsafe_ratio {
            Fullness::Failsafe
        } else if above(map.full_ratio) {
            Fullness::Full
        } else if above(map.backfillfull_ratio) {
            Fullness::Backfillfull
        } else if above(map.nearfull_ratio) {
            Fullness::Nearfull
        } else {
            Fullness::None
        }
    }

    /// The OSD's state bit in the map, which knows no failsafe.
    fn state_bit(self) -> u32 {
        match self {
            Fullness::None => 0,
            Fullness::Nearfull => osd_state::NEARFULL,
            Fullness::Backfillfull => osd_state::BACKFILLFULL,
            Fullness::Full | Fullness::Failsafe => osd_state::FULL,
        }
    }
}

/// Bytes between two measurements below which none is made for them alone.
const MEASURE_MIN: u64 = 1 << 20;
/// A peer that is full says so once a second; who has not for so long has died or has room.
const TOLD_LASTS: Duration = Duration::from_secs(5);

/// Why a client's op was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// This OSD is past `osd_failsafe_full_ratio`.
    Failsafe,
    /// This OSD, which takes part in the PG, is full.
    Full(OsdId),
}

/// What may be written before the device has to be measured anew, who is full, and who waits for
/// room.
#[derive(Default)]
pub(crate) struct Room {
    /// Bytes until the next step at the earliest.
    left: Cell<u64>,
    /// All bytes that ever went to the store, and those of them that the last measurement saw.
    written: Cell<u64>,
    seen: Cell<u64>,
    measuring: Cell<bool>,
    /// OSDs that are past the map's full ratio by their own word, whatever the map says of them, and
    /// when they said so (`env.now()`): this one and those in the PGs that it leads.
    full: RefCell<BTreeMap<OsdId, Duration>>,
    /// Clients whose ops were dropped. One of each connection and lack.
    dropped: RefCell<Vec<(Weak<Session>, Lack)>>,
}

impl Room {
    /// Counts what goes to the store; whether it is time to measure.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let left = self.left.get().saturating_sub(bytes);
        self.left.set(left);
        self.written.set(self.written.get() + bytes);
        left == 0 && !self.measuring.replace(true)
    }

    /// Bytes that no measurement has seen: they may be in the store's queue, before the next one.
    fn unseen(&self) -> u64 {
        self.written.get() - self.seen.get()
    }

    pub(super) fn drops(&self, session: &Rc<Session>, lack: Lack) {
        let known = |(other, why): &(Weak<Session>, Lack)| {
            std::ptr::eq(other.as_ptr(), Rc::as_ptr(session)) && *why == lack
        };
        let mut dropped = self.dropped.borrow_mut();
        if !dropped.iter().any(known) {
            dropped.push((Rc::downgrade(session), lack));
        }
    }

    pub(super) fn is_full(&self, osd: OsdId) -> bool {
        self.full.borrow().contains_key(&osd)
    }
}

/// What `injectfull` pretends.
#[derive(Debug, Default)]
pub(crate) struct InjectedFullness {
    step: Cell<Fullness>,
    /// How many writes still see it; negative for ever.
    left: Cell<i64>,
}

impl InjectedFullness {
    fn step(&self) -> Option<Fullness> {
        (self.left.get() != 0).then(|| self.step.get())
    }

    /// Whether a write is to see this step; each that does counts.
    fn hits(&self, step: Fullness) -> bool {
        let hit = self.step().is_some_and(|injected| injected >= step);
        if hit && self.left.get() > 0 {
            self.left.set(self.left.get() - 1);
        }
        hit
    }
}

impl Osd {
    /// Measures the device, tells the monitor what has changed, and lets those send again whose
    /// ops found no room when there is some. Once a second, and when so much has been written that
    /// the step may be another: a disk may be filled faster than that.
    pub(super) async fn measure_room(&self) {
        // The store answers behind what it was given.
        let written = self.room.written.get();
        match self.store.statfs().await {
            Ok(statfs) => {
                self.statfs.set(statfs);
                self.room.seen.set(written.max(self.room.seen.get()));
            }
            // It may have failed after all that was submitted had been answered.
            Err(e) => return self.store_failed(&e),
        }
        let map = self.current_map();
        let used = self.used_ratio();
        let ratios = [map.nearfull_ratio, map.backfillfull_ratio, map.full_ratio].map(f64::from);
        let next = ratios.into_iter().chain([self.failsafe_ratio.get()]).filter(|at| *at > used);
        let share = next.fold(1.0, f64::min) - used;
        let left = (share * self.statfs.get().total as f64) as u64;
        self.room.left.set(left.max(MEASURE_MIN));
        self.room.measuring.set(false);
        self.tell_fullness();
        let oldest = self.env.now().saturating_sub(TOLD_LASTS);
        self.room.full.borrow_mut().retain(|_, said| *said >= oldest);
        self.room_again();
    }

    /// A peer says how full it is.
    pub(super) fn on_peer_full(&self, peer: OsdId, m: &MOSDFull) {
        self.note_full(peer, m.state & osd_state::FULL != 0);
        self.room_again();
    }

    /// Whether it was known to be full before.
    fn note_full(&self, osd: OsdId, full: bool) -> bool {
        let mut known = self.room.full.borrow_mut();
        match full {
            true => known.insert(osd, self.env.now()),
            false => known.remove(&osd),
        }
        .is_some()
    }

    /// What waited for room that is there now goes on.
    fn room_again(&self) {
        let failsafe = self.fullness() >= Fullness::Failsafe;
        let lacks = |lack: Lack| match lack {
            Lack::Failsafe => failsafe,
            Lack::Full(osd) => self.room.is_full(osd),
        };
        // No map need ever say that it was full: without a new connection they would wait for ever.
        let mut over = Vec::new();
        self.room.dropped.borrow_mut().retain(|(session, lack)| {
            let waits = lacks(*lack);
            if !waits {
                over.extend(session.upgrade());
            }
            // Who is full for long sees clients come and go.
            waits && session.strong_count() > 0
        });
        over.iter().for_each(|session| self.end_client(&session.con));
        self.all_pgs().iter().for_each(|pg| pg.recover_if_room());
    }

    /// How full we are, or pretend to be.
    fn fullness(&self) -> Fullness {
        let measured = || {
            let map = self.current_map();
            Fullness::measured(self.used_ratio(), &map, self.failsafe_ratio.get())
        };
        self.injected_fullness.step().unwrap_or_else(measured)
    }

    /// Whether the next write must be refused. What no measurement has seen counts as if it took room: a
    /// burst would else be let in whole while the store is slow to say that it is full.
    pub(super) fn refuses_writes(&self) -> bool {
        let statfs = self.statfs.get();
        let unseen = self.room.unseen() as f64 / statfs.total.max(1) as f64;
        self.injected_fullness.hits(Fullness::Failsafe)
            || self.used_ratio() + unseen >= self.failsafe_ratio.get()
    }

    /// Pretends to be so full for `count` writes (negative: until told otherwise).
    pub(crate) fn pretend_fullness(&self, step: Fullness, count: i64) {
        self.injected_fullness.step.set(step);
        self.injected_fullness.left.set(if step == Fullness::None { 0 } else { count });
        self.tell_fullness();
    }

    /// Tells the monitor when we are fuller, or less full, than the map says, and those who lead our
    /// PGs while we are full.
    pub(super) fn tell_fullness(&self) {
        if !self.is_active() {
            return;
        }
        let map = self.current_map();
        let step = self.fullness();
        let state = step.state_bit();
        let is_full = step >= Fullness::Full;
        let was_full = self.note_full(self.whoami, is_full);
        if is_full || was_full {
            let leaders: BTreeSet<OsdId> =
                self.all_pgs().iter().filter_map(|pg| pg.leader()).collect();
            for leader in leaders.into_iter().filter(|leader| *leader != self.whoami) {
                let paxos = PaxosHeader::default();
                let message = MOSDFull { paxos, map_epoch: map.epoch, state };
                self.send_osd(leader, Message::encode(&message));
            }
        }
        let all = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;
        if map.state(self.whoami) & all != state {
            let message = MOSDFull { paxos: PaxosHeader::default(), map_epoch: map.epoch, state };
            self.monc.send(Message::encode(&message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_injected_step_lasts_for_so_many_writes() {
        let injected = InjectedFullness::default();
        assert!(!injected.hits(Fullness::Nearfull));
        injected.step.set(Fullness::Full);
        injected.left.set(2);
        assert!(!injected.hits(Fullness::Failsafe));
        assert!(injected.hits(Fullness::Full) && injected.hits(Fullness::Nearfull));
        assert!(!injected.hits(Fullness::Full) && injected.step().is_none());
        injected.left.set(-1);
        assert!((0..9).all(|_| injected.hits(Fullness::Full)));
    }

    #[test]
    fn the_device_is_measured_when_so_much_has_been_written() {
        let room = Room::default();
        room.left.set(10_000);
        assert!(!room.take(4096) && !room.take(4096));
        // Once, until it has been measured.
        assert!(room.take(4096) && !room.take(4096));
        room.left.set(1);
        room.measuring.set(false);
        assert!(room.take(1));
    }

    #[test]
    fn what_no_measurement_saw_is_known() {
        let room = Room::default();
        room.take(4096);
        assert_eq!(room.unseen(), 4096);
        let asked = room.written.get();
        room.take(100);
        room.seen.set(asked);
        assert_eq!(room.unseen(), 100);
    }

    #[test]
    fn steps_are_measured_with_the_maps_ratios() {
        let map = OsdMap {
            full_ratio: 0.95,
            backfillfull_ratio: 0.9,
            nearfull_ratio: 0.85,
            ..OsdMap::default()
        };
        let at = |used| Fullness::measured(used, &map, 0.97);
        assert_eq!(at(0.5), Fullness::None);
        assert_eq!(at(0.86), Fullness::Nearfull);
        assert_eq!(at(0.91), Fullness::Backfillfull);
        assert_eq!(at(0.96), Fullness::Full);
        assert_eq!(at(0.98), Fullness::Failsafe);
        // A ratio of 0 is one that is not set.
        assert_eq!(
            Fullness::measured(0.5, &OsdMap { full_ratio: 0.0, ..map }, 0.97),
            Fullness::None
        );
    }
}
