//! How full the OSD is: measured against the map's ratios, or as an operator injected it
//! (`OSDService::recalc_full_state`, `_check_inject_full`, `src/osd/OSD.cc` at v16.2).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use ::maps::OsdMap;
use ::maps::osdmap::osd_state;
use messages::{MOSDFull, Message, PaxosHeader};

use super::Osd;
use super::session::Session;

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

/// What may be written before the device has to be measured anew, and who waits for room.
#[derive(Default)]
pub(crate) struct Room {
    /// Bytes until the next step at the earliest.
    left: Cell<u64>,
    measuring: Cell<bool>,
    /// Clients whose ops were dropped because nothing may be written. One of each connection.
    dropped: RefCell<Vec<Weak<Session>>>,
}

impl Room {
    /// Counts what goes to the store; whether it is time to measure.
    pub(super) fn take(&self, bytes: u64) -> bool {
        let left = self.left.get().saturating_sub(bytes);
        self.left.set(left);
        left == 0 && !self.measuring.replace(true)
    }

    pub(super) fn drops(&self, session: &Rc<Session>) {
        let mut dropped = self.dropped.borrow_mut();
        if !dropped.iter().any(|known| std::ptr::eq(known.as_ptr(), Rc::as_ptr(session))) {
            dropped.push(Rc::downgrade(session));
        }
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
        if let Ok(statfs) = self.store.statfs().await {
            self.statfs.set(statfs);
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
        if self.fullness() < Fullness::Failsafe {
            // No map need ever say that it was full: without a new connection they would wait for ever.
            for session in self.room.dropped.take().iter().filter_map(Weak::upgrade) {
                session.con.mark_down();
            }
        }
    }

    /// How full we are, or pretend to be.
    fn fullness(&self) -> Fullness {
        let measured = || {
            let map = self.current_map();
            Fullness::measured(self.used_ratio(), &map, self.failsafe_ratio.get())
        };
        self.injected_fullness.step().unwrap_or_else(measured)
    }

    /// Whether the next write must be refused.
    pub(super) fn refuses_writes(&self) -> bool {
        self.injected_fullness.hits(Fullness::Failsafe)
            || self.used_ratio() >= self.failsafe_ratio.get()
    }

    /// Pretends to be so full for `count` writes (negative: until told otherwise).
    pub(crate) fn pretend_fullness(&self, step: Fullness, count: i64) {
        self.injected_fullness.step.set(step);
        self.injected_fullness
            .left
            .set(if step == Fullness::None { 0 } else { count });
        self.tell_fullness();
    }

    /// Tells the monitor when we are fuller, or less full, than the map says.
    pub(super) fn tell_fullness(&self) {
        if !self.is_active() {
            return;
        }
        let map = self.current_map();
        let state = self.fullness().state_bit();
        let all = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;
        if map.state(self.whoami) & all != state {
            let message = MOSDFull {
                paxos: PaxosHeader::default(),
                map_epoch: map.epoch,
                state,
            };
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
            Fullness::measured(
                0.5,
                &OsdMap {
                    full_ratio: 0.0,
                    ..map
                },
                0.97
            ),
            Fullness::None
        );
    }
}
