//! A PG's history as its members agree on it.

use denc::Denc;

use crate::ids::Epoch;
use crate::time::{Span, UTime};
use crate::version::EVersion;

/// Wire: pg_history_t v10/c4.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
#[denc(v = 10, compat = 4, oldest = 9)]
pub struct PgHistory {
    /// Epoch in which the PG was created.
    pub epoch_created: Epoch,
    /// Lower bound of the epoch in which it last went active.
    pub last_epoch_started: Epoch,
    /// Lower bound of the epoch in which it last was clean.
    pub last_epoch_clean: Epoch,
    /// When it was split off, or last split or merged.
    pub last_epoch_split: Epoch,
    /// Since when up, acting and their primaries are as now.
    pub same_interval_since: Epoch,
    /// Since when the up set is as now.
    pub same_up_since: Epoch,
    /// Since when the primary is as now.
    pub same_primary_since: Epoch,
    /// Version at the last scrub.
    pub last_scrub: EVersion,
    /// When that was.
    pub last_scrub_stamp: UTime,
    /// Version at the last deep scrub.
    pub last_deep_scrub: EVersion,
    /// When that was.
    pub last_deep_scrub_stamp: UTime,
    /// When a scrub last found no error.
    pub last_clean_scrub_stamp: UTime,
    /// When the pool was last full.
    pub last_epoch_marked_full: Epoch,
    /// First epoch of the interval of `last_epoch_started`.
    pub last_interval_started: Epoch,
    /// First epoch of the interval of `last_epoch_clean`.
    pub last_interval_clean: Epoch,
    /// When the pool was created.
    pub epoch_pool_created: Epoch,
    /// How long, from when this was sent, a former interval's primary may still serve reads.
    #[denc(since = 10)]
    pub prior_readable_until_ub: Span,
}

impl PgHistory {
    /// Takes over what another knows better; whether anything changed.
    pub fn merge(&mut self, other: &PgHistory) -> bool {
        fn raise<T: PartialOrd + Copy>(mine: &mut T, other: T, changed: &mut bool) {
            if *mine < other {
                *mine = other;
                *changed = true;
            }
        }
        // Not the same_*_since fields: those come from the map.
        let mut changed = false;
        raise(&mut self.epoch_created, other.epoch_created, &mut changed);
        raise(&mut self.epoch_pool_created, other.epoch_pool_created, &mut changed);
        raise(&mut self.last_epoch_started, other.last_epoch_started, &mut changed);
        raise(&mut self.last_interval_started, other.last_interval_started, &mut changed);
        raise(&mut self.last_interval_clean, other.last_interval_clean, &mut changed);
        raise(&mut self.last_epoch_clean, other.last_epoch_clean, &mut changed);
        raise(&mut self.last_epoch_split, other.last_epoch_split, &mut changed);
        raise(&mut self.last_epoch_marked_full, other.last_epoch_marked_full, &mut changed);
        raise(&mut self.last_scrub, other.last_scrub, &mut changed);
        raise(&mut self.last_scrub_stamp, other.last_scrub_stamp, &mut changed);
        raise(&mut self.last_deep_scrub, other.last_deep_scrub, &mut changed);
        raise(&mut self.last_deep_scrub_stamp, other.last_deep_scrub_stamp, &mut changed);
        raise(&mut self.last_clean_scrub_stamp, other.last_clean_scrub_stamp, &mut changed);
        changed
    }
}
