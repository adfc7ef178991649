//! What OSDs know of a PG's past, merged from all that tell (`pg_history_t::merge`).

use types::osd::PgHistory;

use super::Peering;

impl Peering {
    pub(super) fn update_history(&mut self, other: &PgHistory, now: core::time::Duration) {
        // Once active the question is settled; replicas may not have heard of that yet.
        if !matches!(self.state, super::State::Active { .. }) {
            self.leases.import(other, now);
        }
        if self.info.history.merge(other) {
            self.dirty_info = true;
            self.forget_clean_past();
        }
    }

    /// Once the current interval was clean, nothing before it matters.
    pub(super) fn forget_clean_past(&mut self) {
        let history = &self.info.history;
        if history.last_epoch_clean >= history.same_interval_since
            && !self.past_intervals.is_empty()
        {
            self.past_intervals.clear();
            self.dirty_big_info = true;
        }
    }
}
