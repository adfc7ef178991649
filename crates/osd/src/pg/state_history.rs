//! The peering states a PG has left, for `dump_pgstate_history` (`PGStateHistory` in
//! `src/osd/PGStateUtils.h` at v16.2).
//!
//! ```text
//! a state    Started/Primary/Active is in Started/Primary, which is in Started
//! a piece    begins when the PG is in no state and ends when it is in none again: `Reset`, or all that
//!            was below `Started`; its states stand in the order they were left in
//! ```
//! Other states that are gone through within one step, without waiting for anything, are not seen.

use std::collections::VecDeque;

use types::{Epoch, UTime};

/// Pieces kept, as in Ceph.
const PIECES_MAX: usize = 10;
/// States kept of one: the oldest go. A PG that recovers again and again is below `Started` for months.
const STAYS_MAX: usize = 32;

/// A state that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stay {
    /// Its name.
    pub state: &'static str,
    /// When the PG came to it.
    pub enter: UTime,
    /// When it left it.
    pub exit: UTime,
}

/// States from when the PG was in none to when it was in none again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The map at its end.
    pub epoch: Epoch,
    /// In the order they were left in.
    pub states: Vec<Stay>,
}

/// A PG's.
#[derive(Debug, Default)]
pub(crate) struct StateHistory {
    interval: Epoch,
    /// Where it is: each state in the one before.
    open: Vec<(&'static str, UTime)>,
    /// States left since it was in none. At most [`STAYS_MAX`].
    left: VecDeque<Stay>,
    /// At most [`PIECES_MAX`].
    pieces: VecDeque<Piece>,
}

impl StateHistory {
    /// The PG has taken a step, and is in this state of this interval. Where an interval begins, it has
    /// gone through `Reset`, and at first through `Initial`.
    pub(crate) fn step(
        &mut self,
        state: &'static str,
        interval: Epoch,
        epoch: Epoch,
        now: impl FnOnce() -> UTime,
    ) {
        let is_new = interval != self.interval;
        if !is_new && self.open.last().is_some_and(|(open, _)| *open == state) {
            return;
        }
        let now = now();
        self.interval = interval;
        if self.open.is_empty() {
            self.moved("Initial", epoch, now);
        }
        if is_new && state != "Initial" {
            self.moved("Reset", epoch, now);
        }
        self.moved(state, epoch, now);
    }

    fn moved(&mut self, to: &'static str, epoch: Epoch, now: UTime) {
        while let Some(&(state, enter)) = self.open.last() {
            if to.strip_prefix(state).is_some_and(|below| below.starts_with('/')) {
                break;
            }
            self.open.pop();
            if self.left.len() == STAYS_MAX {
                self.left.pop_front();
            }
            self.left.push_back(Stay { state, enter, exit: now });
        }
        if self.open.is_empty() && !self.left.is_empty() {
            if self.pieces.len() == PIECES_MAX {
                self.pieces.pop_front();
            }
            self.pieces.push_back(Piece { epoch, states: self.left.drain(..).collect() });
        }
        let ends = to.match_indices('/').map(|(at, _)| at).chain([to.len()]);
        for name in ends.map(|end| &to[..end]) {
            if self.open.last().is_none_or(|(state, _)| name.len() > state.len()) {
                self.open.push((name, now));
            }
        }
    }

    /// What is kept, oldest first.
    pub(crate) fn pieces(&self) -> Vec<Piece> {
        self.pieces.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(sec: u32) -> UTime {
        UTime { sec, nsec: 0 }
    }

    fn told(history: &StateHistory) -> Vec<(Epoch, Vec<(&'static str, u32, u32)>)> {
        let stay = |s: &Stay| (s.state, s.enter.sec, s.exit.sec);
        let piece = |p: &Piece| (p.epoch, p.states.iter().map(stay).collect());
        history.pieces().iter().map(piece).collect()
    }

    /// Each PG's history was an empty list. What a real OSD told of a PG that followed and was moved.
    #[test]
    fn states_are_told_as_they_were_left() {
        let mut h = StateHistory::default();
        h.moved("Initial", 36, at(1));
        h.moved("Reset", 36, at(2));
        h.moved("Started/Stray", 36, at(3));
        h.moved("Started/ReplicaActive/RepNotRecovering", 36, at(4));
        h.moved("Reset", 41, at(9));
        assert_eq!(
            told(&h),
            [
                (36, vec![("Initial", 1, 2)]),
                (36, vec![("Reset", 2, 3)]),
                (
                    41,
                    vec![
                        ("Started/Stray", 3, 4),
                        ("Started/ReplicaActive/RepNotRecovering", 4, 9),
                        ("Started/ReplicaActive", 4, 9),
                        ("Started", 3, 9),
                    ]
                ),
            ]
        );
    }

    /// An interval that begins and a state that is left for the same one are one step of ours: nothing was
    /// ever told of a PG that kept its place.
    #[test]
    fn an_interval_begins_with_a_reset() {
        let mut h = StateHistory::default();
        let mut step = |state, interval, epoch, sec| h.step(state, interval, epoch, || at(sec));
        step("Started/Stray", 10, 10, 1);
        step("Started/ReplicaActive", 10, 11, 2);
        step("Started/ReplicaActive", 10, 12, 3);
        step("Started/ReplicaActive", 15, 15, 5);
        assert_eq!(
            told(&h),
            [
                (10, vec![("Initial", 1, 1)]),
                (10, vec![("Reset", 1, 1)]),
                (
                    15,
                    vec![
                        ("Started/Stray", 1, 2),
                        ("Started/ReplicaActive", 2, 5),
                        ("Started", 1, 5)
                    ]
                ),
                (15, vec![("Reset", 5, 5)]),
            ]
        );
    }

    #[test]
    fn a_state_whose_name_begins_like_anothers_is_not_within_it() {
        let mut h = StateHistory::default();
        h.moved("Start", 1, at(1));
        h.moved("Started/Stray", 1, at(2));
        h.moved("Started/Stray", 1, at(3));
        assert_eq!(told(&h), [(1, vec![("Start", 1, 2)])]);
    }

    #[test]
    fn it_does_not_grow() {
        let mut h = StateHistory::default();
        for n in 0..1000 {
            h.moved("Started/Primary/Active/Recovering", 1, at(n));
            h.moved("Started/Primary/Active/Clean", 1, at(n));
        }
        h.moved("Reset", 2, at(1000));
        let states = &told(&h)[0].1;
        assert_eq!((states.len(), *states.last().unwrap()), (STAYS_MAX, ("Started", 0, 1000)));
        for n in 0..100 {
            h.moved("Started", n, at(n));
            h.moved("Reset", n, at(n));
        }
        assert_eq!(told(&h).len(), PIECES_MAX);
        assert_eq!(told(&h).last().unwrap().0, 99);
    }
}
