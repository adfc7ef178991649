//! The peering states that PGs of this OSD have been in since it started, for
//! `dump_pg_recovery_stats` (`PGRecoveryStats` in `src/osd/PG.h` at v16.2). A state that is gone
//! through within one step, without waiting for anything, is not seen.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

/// What is counted of one state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateCount {
    /// PGs that came to it.
    pub entered: u64,
    /// PGs that left it.
    pub left: u64,
    /// Steps (messages, maps) that were taken in it by those that left.
    pub steps: u64,
    /// How long those that left were in it, in all.
    pub total: Duration,
    /// The shortest stay.
    pub min: Duration,
    /// The longest stay.
    pub max: Duration,
}

/// By state name; as many as there are states.
#[derive(Debug, Default)]
pub struct StateTimes(RefCell<BTreeMap<&'static str, StateCount>>);

impl StateTimes {
    /// A PG came to a state.
    pub(crate) fn enter(&self, state: &'static str) {
        self.0.borrow_mut().entry(state).or_default().entered += 1;
    }

    /// A PG left a state after so many steps in it.
    pub(crate) fn leave(&self, state: &'static str, stayed: Duration, steps: u64) {
        let mut states = self.0.borrow_mut();
        let count = states.entry(state).or_default();
        count.min = if count.left == 0 { stayed } else { count.min.min(stayed) };
        count.max = count.max.max(stayed);
        count.left += 1;
        count.steps += steps;
        count.total += stayed;
    }

    /// All counts.
    pub(crate) fn counts(&self) -> BTreeMap<&'static str, StateCount> {
        self.0.borrow().clone()
    }

    /// Counts from zero.
    pub(crate) fn reset(&self) {
        self.0.borrow_mut().clear();
    }
}
