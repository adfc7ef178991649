//! The prior set: the OSDs that must be asked before a PG may go active, and whether those that
//! are up are enough to have seen every acknowledged write.

use std::collections::{BTreeMap, BTreeSet};

use types::osd::{PastIntervals, PgInfo};
use types::{Epoch, OsdId, PgShard};

use super::view::{ClusterView, Mapping};

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PriorSet {
    /// Ask these.
    pub probe: BTreeSet<PgShard>,
    /// Would be asked, but are down.
    pub down: BTreeSet<OsdId>,
    /// These (with the epoch they were declared lost in) stand in the way.
    pub blocked_by: BTreeMap<OsdId, Epoch>,
    /// Some past interval may have acknowledged writes that nobody who is up has seen.
    pub pg_down: bool,
}

impl PriorSet {
    /// Builds it (`PastIntervals::PriorSet` at v16.2). Any single copy of those that acted in an
    /// interval has all that was acknowledged in it; of shards it takes k.
    ///
    /// Who says that it has nothing of a PG that was active before got a new disk, and has seen nothing, though it is up
    /// (`infos`: what those that were asked have said, and the own); nor has who has not been filled since then. A real
    /// Ceph counts both. It may also be that it was not made before the interval ended: that shows where another member
    /// has a copy and did not activate either, as all do before something is acknowledged.
    pub fn build(
        past: &PastIntervals,
        last_epoch_started: Epoch,
        mapping: &Mapping,
        infos: &BTreeMap<PgShard, PgInfo>,
        view: &dyn ClusterView,
    ) -> PriorSet {
        let mut prior = PriorSet::default();
        prior.probe.extend(mapping.acting_shards());
        prior.probe.extend(mapping.up_shards());
        for shard in &past.all_participants {
            if view.is_up(shard.osd) {
                prior.probe.insert(*shard);
            } else {
                prior.down.insert(shard.osd);
            }
        }
        let has_nothing = |info: &PgInfo| info.last_epoch_started == 0 && info.is_empty();
        let is_emptied = |info: &PgInfo| has_nothing(info) || info.is_incomplete();
        let is_gone =
            |shard: &&PgShard| last_epoch_started > 0 && infos.get(shard).is_some_and(is_emptied);
        for interval in past.maybe_rw_back_to(last_epoch_started) {
            let mut survivors = BTreeSet::new();
            let mut blockers = BTreeMap::new();
            for shard in &interval.acting {
                let osd = shard.osd;
                if view.is_up(osd) {
                    survivors.insert(*shard);
                } else if view.exists(osd) {
                    let lost_at = view.lost_at(osd);
                    if lost_at > interval.first {
                        // The operator says: go on without.
                        survivors.insert(*shard);
                    } else {
                        blockers.insert(osd, lost_at);
                    }
                }
            }
            let mut enough = mapping.redundancy.is_recoverable(&survivors);
            let did_not_activate = |shard: &PgShard| {
                let started = infos.get(shard).map_or(0, |info| info.last_epoch_started);
                (1..interval.first).contains(&started)
            };
            if enough && !survivors.iter().any(did_not_activate) {
                let seen = survivors.iter().filter(|shard| !is_gone(shard));
                enough = mapping.redundancy.is_recoverable(seen);
            }
            if !enough && !blockers.is_empty() {
                prior.pg_down = true;
                prior.blocked_by.extend(blockers);
            }
        }
        prior
    }

    /// Whether a new map changes the answer.
    pub fn affected_by(&self, view: &dyn ClusterView) -> bool {
        self.probe.iter().any(|p| !view.is_up(p.osd))
            || self.down.iter().any(|osd| view.is_up(*osd))
            || self
                .blocked_by
                .iter()
                .any(|(osd, lost_at)| !view.exists(*osd) || view.lost_at(*osd) != *lost_at)
    }
}
