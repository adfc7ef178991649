//! What a PG reports of itself: state bits, counts of copies that are not where they should be.

use types::ids::OSD_NONE;
use types::osd::{PgStat, pg_state};
use types::{PgShard, UTime};

use super::Pg;
use super::peering::State;
use super::reserve::{Phase, Purpose};

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
                bits |= match self.recovery.while_backfilling.get() {
                    true => pg_state::BACKFILL_UNFOUND,
                    false => pg_state::RECOVERY_UNFOUND,
                };
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
        if self.displaced().degraded > 0 {
            bits |= pg_state::DEGRADED;
        }
        if self.snap_trimming.get() {
            bits |= pg_state::SNAPTRIM;
        }
        if self.snap_trim_error.get() {
            bits |= pg_state::SNAPTRIM_ERROR;
        }
        bits
    }

    /// Copies that are not where they should be. None while the PG peers: it is not known then.
    fn displaced(&self) -> Displaced {
        let core = self.core.borrow();
        let mapping = &core.mapping;
        let State::Active { clean, .. } = core.state() else { return Displaced::default() };
        let is_whole = core.acting_len() >= mapping.size as usize;
        if *clean && is_whole && mapping.acting == mapping.up {
            return Displaced::default();
        }
        let objects = core.info.stats.stats.sum.num_objects.max(0);
        let missing = |shard: PgShard| {
            if shard == core.whoami {
                return core.missing.len() as i64;
            }
            let info = core.peer_info.get(&shard).filter(|i| i.is_incomplete());
            if core.backfill_targets.contains(&shard)
                && let Some(info) = info
            {
                let has = info.stats.stats.sum.num_objects;
                return (objects - has).clamp(0, objects);
            }
            match core.peer_missing.get(&shard) {
                // Its backfill is to come.
                _ if core.is_postponed(shard) => objects,
                Some(missing) => missing.len() as i64,
                None if core.acting_backfill.contains(&shard) => 0,
                None => objects,
            }
        };
        let up = mapping.up_shards().map(|s| (missing(s), s));
        let elsewhere = mapping.acting_shards().filter(|s| !mapping.is_up(*s));
        displaced(
            objects,
            mapping.size as usize,
            mapping.redundancy.is_erasure(),
            up.collect(),
            elsewhere.map(|s| (missing(s), s)).collect(),
        )
    }

    /// Notes since when the PG is in its state, and when it was last seen in others. In its info, which is
    /// kept and which the others get: whoever leads next, or starts again, goes on from there.
    pub(crate) fn update_stamps(&self) {
        if !self.core.borrow().is_primary() {
            return;
        }
        let bits = self.state_bits();
        if bits == self.core.borrow().info.stats.state {
            return;
        }
        let now = self.wall();
        {
            let st = &mut self.core.borrow_mut().info.stats;
            let (gained, lost) = (bits & !st.state, st.state & !bits);
            st.last_change = now;
            // Until just now, as far as is known.
            if lost & pg_state::ACTIVE != 0 {
                st.last_active = now;
            }
            if gained & pg_state::DEGRADED != 0 {
                st.last_undegraded = now;
            }
            if gained & pg_state::UNDERSIZED != 0 {
                st.last_fullsized = now;
            }
            if gained & pg_state::ACTIVE != 0 {
                st.last_became_active = now;
            }
            if gained & (pg_state::ACTIVE | pg_state::PEERED) != 0 {
                st.last_became_peered = now;
            }
            note_seen(st, bits, now);
        }
        self.host.pg_state_changed();
    }

    /// What the primary reports; `None` on a replica.
    pub fn stat(&self) -> Option<PgStat> {
        if !self.core.borrow().is_primary() || self.deleting.get() {
            return None;
        }
        self.update_stamps();
        let now = self.wall();
        let bits = self.state_bits();
        let displaced = self.displaced();
        note_seen(&mut self.core.borrow_mut().info.stats, bits, now);
        let core = self.core.borrow();
        let info = &core.info;
        let mut st = info.stats.clone();
        st.version = info.last_update;
        st.reported_epoch = core.epoch;
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
        st.blocked_by = core.blocked_by().into_iter().collect();
        st.purged_snaps = info.purged_snaps.intersection(&self.removed_snaps());
        let sum = &mut st.stats.sum;
        let copies = (core.mapping.size as usize).max(core.acting_len());
        sum.num_object_copies = sum.num_objects * copies as i64;
        sum.num_objects_degraded = displaced.degraded;
        sum.num_objects_misplaced = displaced.misplaced;
        sum.num_objects_missing_on_primary = core.missing.len() as i64;
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

/// Numbers of copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Displaced {
    /// There are too few.
    degraded: i64,
    /// There are enough, but not where they belong.
    misplaced: i64,
}

/// What is missing where a PG of so many objects is to be (`up`) is there in other places (`elsewhere`) or
/// nowhere (`PeeringState::update_calc_stats`, `src/osd/PeeringState.cc` at v16.2). Both lists tell how many
/// objects a member lacks.
fn displaced(
    objects: i64,
    size: usize,
    is_erasure: bool,
    mut up: Vec<(i64, PgShard)>,
    mut elsewhere: Vec<(i64, PgShard)>,
) -> Displaced {
    // Places that nobody has; those of copies are one, with all that is missing there.
    if is_erasure {
        for shard in (0..size).map(|at| i8::try_from(at).unwrap_or(i8::MAX)) {
            if !up.iter().any(|(_, s)| s.shard == shard) {
                up.push((objects, PgShard::new(OSD_NONE, shard)));
            }
        }
    } else if size > up.len() {
        up.push((objects * (size - up.len()) as i64, PgShard::replica(OSD_NONE)));
    }
    up.sort_unstable_by_key(|(missing, _)| *missing);
    elsewhere.sort_unstable_by_key(|(missing, _)| *missing);
    let mut found = Displaced::default();
    for (missing, member) in up.into_iter().rev() {
        // Who has it instead: the one with that shard, or whoever has most.
        let source = elsewhere.iter().position(|(_, s)| s.shard == member.shard);
        match source.map(|at| elsewhere.remove(at).0) {
            // Which objects both lack is not known: all that can.
            Some(lacking) if missing >= lacking => {
                found.misplaced += missing - lacking;
                found.degraded += lacking;
            }
            _ => found.degraded += missing,
        }
    }
    found.misplaced += elsewhere.iter().map(|(lacking, _)| (objects - lacking).max(0)).sum::<i64>();
    found
}

/// The PG is seen in a state (`PeeringState::prepare_stats_for_publish`, `src/osd/PeeringState.cc` at v16.2).
fn note_seen(st: &mut PgStat, bits: u64, now: UTime) {
    st.state = bits;
    st.reported_seq += 1;
    st.last_fresh = now;
    st.last_unstale = now;
    if bits & pg_state::ACTIVE != 0 {
        st.last_active = now;
    }
    if bits & (pg_state::ACTIVE | pg_state::PEERED) != 0 {
        st.last_peered = now;
    }
    if bits & pg_state::CLEAN != 0 {
        st.last_clean = now;
    }
    if bits & pg_state::DEGRADED == 0 {
        st.last_undegraded = now;
    }
    if bits & pg_state::UNDERSIZED == 0 {
        st.last_fullsized = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(size: usize, up: &[(i64, i32)], elsewhere: &[(i64, i32)]) -> (i64, i64) {
        let copies = |list: &[(i64, i32)]| {
            list.iter().map(|(missing, osd)| (*missing, PgShard::replica(*osd))).collect()
        };
        let found = displaced(10, size, false, copies(up), copies(elsewhere));
        (found.degraded, found.misplaced)
    }

    /// Of copies that are in place of others nothing was told, unless a backfill was to move them.
    #[test]
    fn copies_in_other_places_are_misplaced() {
        assert_eq!(count(2, &[(0, 0), (0, 1)], &[]), (0, 0));
        // One moves; three are there already.
        assert_eq!(count(2, &[(0, 0), (10, 2)], &[(0, 1)]), (0, 10));
        assert_eq!(count(2, &[(0, 0), (7, 2)], &[(0, 1)]), (0, 7));
        // Nobody has it instead.
        assert_eq!(count(3, &[(0, 0), (10, 2)], &[]), (20, 0));
        // Who has it instead lacks four of it.
        assert_eq!(count(2, &[(0, 0), (10, 2)], &[(4, 1)]), (4, 6));
        // The place is nobody's yet.
        assert_eq!(count(2, &[(0, 0)], &[(0, 1)]), (0, 10));
        // More than there are places.
        assert_eq!(count(1, &[(0, 0)], &[(0, 1)]), (0, 0));
        assert_eq!(count(1, &[(0, 0)], &[(0, 1), (0, 2)]), (0, 10));
    }

    #[test]
    fn shards_are_made_up_for_by_the_same_shard_alone() {
        let up = vec![(0, PgShard::new(0, 0)), (10, PgShard::new(3, 1)), (10, PgShard::new(4, 2))];
        let elsewhere = vec![(0, PgShard::new(1, 1))];
        let found = displaced(10, 3, true, up, elsewhere);
        assert_eq!(found, Displaced { degraded: 10, misplaced: 10 });
        let found = displaced(10, 3, true, vec![(0, PgShard::new(0, 0))], Vec::new());
        assert_eq!(found, Displaced { degraded: 20, misplaced: 0 });
    }
}
