//! A PG takes the objects of others into itself (`PeeringState::merge_from` in
//! `src/osd/PeeringState.cc` at v16.2).
//!
//! All that take part have been clean and have served nothing since the map that announced the
//! merge, and their primaries have told the monitor at which versions they are: the map that makes
//! the merge says those. A copy that is at others, or that lacks a part, is not what it should be:
//! its result counts for nothing and is filled again by backfill.

use maps::pool::PgMergeMeta;
use types::{HObject, PgId};

use super::Peering;
use crate::pg::log::Undo;

impl Peering {
    /// Whether this copy has all that it should have, as far as it knows.
    fn is_whole(&self) -> bool {
        let info = &self.info;
        info.last_complete == info.last_update
            && self.missing.is_empty()
            && !info.is_incomplete()
            && info.history.epoch_created != 0
            && info.last_epoch_started != 0
    }

    /// Prepares a PG for a merge: its log goes, but for the requests it knows of.
    fn retire(&mut self) -> Vec<Undo> {
        let undo = self.log.retire(self.settings.dups_tracked);
        self.info.log_tail = self.log.tail();
        undo
    }

    /// Makes this PG what it and `sources` were; `None` is one of which no copy is here. `meta` is
    /// what the pool's new map says of the merge.
    ///
    /// Returns what is to be done with what was kept to undo entries: this PG's, then each
    /// source's.
    pub fn merge_from(
        &mut self,
        sources: &mut [(PgId, Option<&mut Peering>)],
        meta: &PgMergeMeta,
    ) -> (Vec<Undo>, Vec<Vec<Undo>>) {
        // Of a map that skips others it is not known which merge it tells of.
        let told = meta.source_pgid != PgId::default();
        let mut whole = self.is_whole();
        if told {
            whole &= self.pgid.pgid == meta.source_pgid.parent()
                && self.info.last_update == meta.target_version;
        }
        let mine = self.retire();
        let mut theirs = Vec::new();
        for (pgid, source) in sources.iter_mut() {
            let Some(source) = source else {
                whole = false;
                theirs.push(Vec::new());
                continue;
            };
            whole &= source.is_whole();
            if told {
                whole &= *pgid == meta.source_pgid
                    && source.info.last_update == meta.source_version;
            }
            theirs.push(source.retire());
            let (info, other) = (&mut self.info, &source.info);
            info.stats.stats.sum.add(&other.stats.stats.sum);
            info.stats.stats_invalid |= other.stats.stats_invalid;
            info.last_update = info.last_update.max(other.last_update);
            info.last_user_version = info.last_user_version.max(other.last_user_version);
            // A snapshot of which one of them has clones left has to be trimmed.
            info.purged_snaps = info.purged_snaps.intersection(&other.purged_snaps);
            // They were mapped alike when they became quiet.
            if self.past_intervals.is_empty() {
                self.past_intervals = source.past_intervals.clone();
            }
        }
        let logs: Vec<&super::Log> =
            sources.iter().filter_map(|(_, source)| source.as_ref().map(|s| &s.log)).collect();
        let at = self.info.last_update;
        self.log.merge_from(&logs, at);
        self.missing.clear();
        self.info.last_complete = at;
        self.info.log_tail = at;
        if !whole {
            tracing::warn!("pg {}: a merge without all of it: it will be backfilled", self.pgid);
            self.info.last_backfill = HObject::min();
        }
        self.mark_dirty_big_info();
        (mine, theirs)
    }
}
