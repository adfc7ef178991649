//! What a PG reports of itself: state bits, counts of copies that are not where they should be.

use types::osd::{PgStat, pg_state};
use types::{PgShard, UTime};

use super::Pg;
use super::peering::State;
use super::reserve::{Phase, Purpose};

/// When the PG was last seen in a state.
#[derive(Debug, Default, Clone)]
pub struct Stamps {
    state: u64,
    seq: u64,
    /// Since when it is what it is.
    last_change: UTime,
    last_became_active: UTime,
    last_became_peered: UTime,
    last_active: UTime,
    last_peered: UTime,
    last_clean: UTime,
    last_undegraded: UTime,
    last_fullsized: UTime,
}

impl Stamps {
    /// Since when it is in its state.
    pub(super) fn entered(&self) -> UTime {
        self.last_change
    }
}

impl Pg {
    fn wall(&self) -> UTime {
        UTime::from_duration(self.host.env().wall_clock())
    }

    /// `active+clean`, as bits.
    pub fn state_bits(&self) -> u64 {
        let core = self.core.borrow();
        let mut bits = 0;
        let now = self.now();
        match core.state() {
            State::Down => bits |= pg_state::DOWN,
            State::Incomplete => bits |= pg_state::INCOMPLETE,
            State::Active { all: false, .. } => bits |= pg_state::ACTIVATING,
            State::Active { clean, .. } => {
                bits |= if core.is_active() { pg_state::ACTIVE } else { pg_state::PEERED };
                if *clean {
                    bits |= pg_state::CLEAN;
                }
                if core.pending_merge().is_some() {
                    bits |= pg_state::PREMERGE;
                }
                if core.wait_until(now).is_some() {
                    bits |= pg_state::WAIT;
                } else if now >= core.readable_until() {
                    bits |= pg_state::LAGGY;
                }
            }
            _ if core.is_peering() => bits |= pg_state::PEERING,
            _ => {}
        }
        if matches!(core.state(), State::Down | State::Incomplete) {
            bits &= !pg_state::PEERING;
        }
        // Both as `PeeringState` has them (`src/osd/PeeringState.cc` at v16.2): a PG that has not come
        // to act cannot act with too few.
        let acts = matches!(core.state(), State::Active { .. });
        if acts && core.acting_len() < core.mapping.size as usize {
            bits |= pg_state::UNDERSIZED;
        }
        let is_new = core.info.history.last_epoch_started == 0 && !core.is_activated();
        if core.is_primary() && is_new {
            bits |= pg_state::CREATING;
        }
        if core.mapping.acting != core.mapping.up {
            bits |= pg_state::REMAPPED;
        }
        if let State::Active { all: true, clean: false, .. } = core.state() {
            let missing = !core.missing.is_empty()
                || core
                    .acting_backfill
                    .iter()
                    .any(|s| core.peer_missing.get(s).is_some_and(|m| !m.is_empty()));
            let backfill = core
                .acting_backfill
                .iter()
                .any(|s| core.peer_info.get(s).is_some_and(|i| i.is_incomplete()));
            if missing && self.recovery.unfound_len() > 0 && self.recovery.active_len() == 0 {
                bits |= pg_state::RECOVERY_UNFOUND;
            } else if missing {
                bits |= match self.reservations.phase() {
                    Phase::Working(Purpose::Recovery) => pg_state::RECOVERING,
                    Phase::TooFull(Purpose::Recovery) => pg_state::RECOVERY_TOOFULL,
                    _ => pg_state::RECOVERY_WAIT,
                };
            } else if backfill {
                bits |= match self.reservations.phase() {
                    Phase::Working(Purpose::Backfill) => pg_state::BACKFILLING,
                    Phase::TooFull(_) => pg_state::BACKFILL_TOOFULL,
                    _ => pg_state::BACKFILL_WAIT,
                };
            }
            bits |= self.reservations.state_bits();
        }
        if core.is_primary() {
            bits |= self.scrub.state_bits(core.info.stats.stats.sum.num_scrub_errors);
        }
        drop(core);
        if self.degraded().0 > 0 {
            bits |= pg_state::DEGRADED;
        }
        if self.snap_trimming.get() {
            bits |= pg_state::SNAPTRIM;
        }
        bits
    }

    /// (degraded, misplaced, missing on the primary) copies.
    fn degraded(&self) -> (i64, i64, i64) {
        let core = self.core.borrow();
        if !matches!(core.state(), State::Active { .. }) && !core.is_peering() {
            return (0, 0, 0);
        }
        let objects = core.info.stats.stats.sum.num_objects;
        let size = i64::from(core.mapping.size);
        let mut here = vec![(objects - core.missing.len() as i64).max(0)];
        let mut misplaced = 0;
        for s in core.acting_backfill.iter().filter(|s| **s != core.whoami) {
            let missing = core.peer_missing.get(s).map_or(0, |m| m.len() as i64);
            let behind = core.peer_info.get(s).is_some_and(|i| i.is_incomplete());
            if behind {
                let done = (self.recovery.backfill.copied() as i64).min(objects);
                if core.acting_len() >= core.mapping.size as usize {
                    misplaced += objects - done;
                    continue;
                }
                here.push(done);
            } else {
                here.push((objects - missing).max(0));
            }
        }
        if core.is_peering() {
            here = vec![objects; core.acting_len()];
        }
        let copies: i64 = here.iter().take(size as usize).sum();
        let degraded = (objects * size - copies).max(0);
        (degraded, misplaced, core.missing.len() as i64)
    }

    /// Notes since when the PG is in its state.
    pub(crate) fn update_stamps(&self) {
        if !self.core.borrow().is_primary() {
            return;
        }
        let bits = self.state_bits();
        let now = self.wall();
        let mut s = self.stamps.borrow_mut();
        if s.state != bits {
            let gained = bits & !s.state;
            s.last_change = now;
            if gained & pg_state::ACTIVE != 0 {
                s.last_became_active = now;
            }
            if gained & (pg_state::ACTIVE | pg_state::PEERED) != 0 {
                s.last_became_peered = now;
            }
            s.state = bits;
            drop(s);
            self.host.pg_state_changed();
        }
    }

    /// What the primary reports; `None` on a replica.
    pub fn stat(&self) -> Option<PgStat> {
        if !self.core.borrow().is_primary() || self.deleting.get() {
            return None;
        }
        self.update_stamps();
        let now = self.wall();
        let bits = self.state_bits();
        let (degraded, misplaced, missing_here) = self.degraded();
        let mut stamps = self.stamps.borrow_mut();
        stamps.seq += 1;
        if bits & pg_state::ACTIVE != 0 {
            stamps.last_active = now;
        }
        if bits & (pg_state::ACTIVE | pg_state::PEERED) != 0 {
            stamps.last_peered = now;
        }
        if bits & pg_state::CLEAN != 0 {
            stamps.last_clean = now;
        }
        if bits & pg_state::DEGRADED == 0 {
            stamps.last_undegraded = now;
        }
        if bits & pg_state::UNDERSIZED == 0 {
            stamps.last_fullsized = now;
        }
        let core = self.core.borrow();
        let info = &core.info;
        let mut st = info.stats.clone();
        st.version = info.last_update;
        st.reported_seq = stamps.seq;
        st.reported_epoch = core.epoch;
        st.state = bits;
        st.last_fresh = now;
        st.last_unstale = now;
        st.last_change = stamps.last_change;
        st.last_active = stamps.last_active;
        st.last_peered = stamps.last_peered;
        st.last_clean = stamps.last_clean;
        st.last_undegraded = stamps.last_undegraded;
        st.last_fullsized = stamps.last_fullsized;
        st.last_became_active = stamps.last_became_active;
        st.last_became_peered = stamps.last_became_peered;
        st.log_start = info.log_tail;
        st.ondisk_log_start = info.log_tail;
        st.log_size = core.log.len() as i64;
        st.ondisk_log_size = st.log_size;
        st.created = info.history.epoch_created;
        st.last_epoch_clean = info.history.last_epoch_clean;
        st.last_scrub = info.history.last_scrub;
        st.last_scrub_stamp = info.history.last_scrub_stamp;
        st.last_deep_scrub = info.history.last_deep_scrub;
        st.last_deep_scrub_stamp = info.history.last_deep_scrub_stamp;
        st.last_clean_scrub_stamp = info.history.last_clean_scrub_stamp;
        st.up = core.mapping.up.clone();
        st.acting = core.mapping.acting.clone();
        st.up_primary = core.mapping.up_primary;
        st.acting_primary = core.mapping.acting_primary;
        st.mapping_epoch = info.history.same_interval_since;
        st.blocked_by = core.prior().blocked_by.keys().copied().collect();
        st.purged_snaps = info.purged_snaps.clone();
        let sum = &mut st.stats.sum;
        sum.num_object_copies = sum.num_objects * i64::from(core.mapping.size);
        sum.num_objects_degraded = degraded;
        sum.num_objects_misplaced = misplaced;
        sum.num_objects_missing_on_primary = missing_here;
        sum.num_objects_unfound = self.recovery.unfound_len() as i64;
        if bits & (pg_state::ACTIVE | pg_state::PEERED) != 0 {
            let mut complete = vec![core.whoami];
            complete.retain(|_| core.missing.is_empty());
            let peers = core.acting_backfill.iter().filter(|s| **s != core.whoami);
            complete.extend(peers.filter(|s| {
                core.peer_missing.get(s).is_none_or(|m| m.is_empty())
                    && core.peer_info.get(s).is_some_and(|i| !i.is_incomplete())
            }));
            let complete: Vec<PgShard> = complete;
            st.avail_no_missing = if bits & pg_state::CLEAN != 0 { Vec::new() } else { complete };
        }
        drop(core);
        st.snaptrimq_len = u32::try_from(self.snaps_to_trim().size()).unwrap_or(u32::MAX);
        Some(st)
    }
}
