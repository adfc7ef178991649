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
                whole &=
                    *pgid == meta.source_pgid && source.info.last_update == meta.source_version;
            }
            theirs.push(source.retire());
            self.inherit_leases(source);
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use types::osd::{LogOp, PastIntervals, PgInfo, PgLogEntry};
    use types::{EVersion, EntityName, NOSNAP, OsdReqId, PgShard};

    use super::*;
    use crate::pg::peering::{Mapping, MergeRole, Settings, is_new_interval};
    use crate::pg::persist::Keys;

    fn request(tid: u64) -> OsdReqId {
        OsdReqId { name: EntityName::client(1), tid, inc: 0 }
    }

    /// A clean PG with one write for each version; the request is the PG's number and the version.
    fn pg(seed: u32, versions: &[u64]) -> Peering {
        let pgid = PgId::new(1, seed).spg();
        let mut info = PgInfo::new(pgid);
        info.history.epoch_created = 1;
        info.history.last_epoch_started = 4;
        info.last_epoch_started = 4;
        let mut core = Peering::load(
            PgShard::replica(0),
            pgid,
            Settings { read_lease: Duration::from_secs(1), ..Settings::default() },
            Mapping::default(),
            5,
            info,
            PastIntervals::default(),
        );
        for version in versions {
            let soid = HObject {
                name: format!("{seed} {version}").into(),
                pool: 1,
                snap: NOSNAP,
                ..HObject::default()
            };
            core.log.add(&PgLogEntry {
                op: LogOp::MODIFY,
                soid,
                version: EVersion::new(5, *version),
                reqid: request(u64::from(seed) * 1000 + version),
                ..PgLogEntry::default()
            });
        }
        core.info.last_update = core.log.head();
        core.info.last_complete = core.log.head();
        core.info.stats.stats.sum.num_objects = versions.len() as i64;
        core
    }

    fn meta(source: u64, target: u64) -> PgMergeMeta {
        PgMergeMeta {
            source_pgid: PgId::new(1, 3),
            ready_epoch: 7,
            last_epoch_started: 6,
            last_epoch_clean: 6,
            source_version: EVersion::new(5, source),
            target_version: EVersion::new(5, target),
        }
    }

    fn merged(mut target: Peering, source: Option<&mut Peering>, meta: &PgMergeMeta) -> Peering {
        target.merge_from(&mut [(PgId::new(1, 3), source)], meta);
        target
    }

    #[test]
    fn requests_of_both_are_known_and_what_comes_next_is_newer() {
        let mut source = pg(3, &[1, 2, 7]);
        let target = merged(pg(1, &[1, 2, 3]), Some(&mut source), &meta(7, 3));
        assert!(!target.info.is_incomplete());
        assert_eq!(target.info.last_update, EVersion::new(5, 7));
        assert_eq!(target.info.log_tail, target.info.last_update);
        assert_eq!(target.log.head(), target.info.last_update);
        assert_eq!(target.info.stats.stats.sum.num_objects, 6);
        assert!(target.log.is_empty());
        for tid in [1001, 1002, 1003, 3001, 3002, 3007] {
            assert!(target.log.request(&request(tid)).is_some(), "{tid}");
        }
    }

    /// Both PGs have had a request of the same version: under one key, the second would have
    /// replaced the first, and a client that sends it again would have it done twice.
    #[test]
    fn requests_of_the_same_version_are_all_written() {
        let mut source = pg(3, &[1, 2]);
        let mut target = merged(pg(1, &[1, 2]), Some(&mut source), &meta(2, 2));
        let mut keys = Keys::default();
        keys.log(target.log.take_changes());
        let dups = keys.keys().filter(|key| key.starts_with(b"dup_")).count();
        assert_eq!(dups, 4);
    }

    #[test]
    fn a_copy_that_is_not_what_was_agreed_on_counts_for_nothing() {
        let whole = merged(pg(1, &[1]), Some(&mut pg(3, &[1, 2])), &meta(2, 1));
        assert!(!whole.info.is_incomplete());
        // It was away when the others wrote.
        let behind = merged(pg(1, &[1]), Some(&mut pg(3, &[1])), &meta(2, 1));
        assert!(behind.info.last_backfill.is_min());
        let behind = merged(pg(1, &[]), Some(&mut pg(3, &[1, 2])), &meta(2, 1));
        assert!(behind.info.last_backfill.is_min());
        let half = merged(pg(1, &[1]), None, &meta(2, 1));
        assert!(half.info.last_backfill.is_min());
        let mut lacking = pg(3, &[1, 2]);
        lacking.missing.add(&HObject::default(), EVersion::new(5, 2), EVersion::ZERO, false);
        let lacks = merged(pg(1, &[1]), Some(&mut lacking), &meta(2, 1));
        assert!(lacks.info.last_backfill.is_min() && lacks.missing.is_empty());
    }

    #[test]
    fn only_those_that_take_part_stop_to_serve() {
        let mapping =
            |pg_num, pg_num_pending| Mapping { pg_num, pg_num_pending, ..Mapping::default() };
        let pgid = |seed| PgId::new(1, seed);
        let announced = mapping(8, 7);
        assert_eq!(announced.pending_merge(pgid(7)), Some(MergeRole::Source));
        assert_eq!(announced.pending_merge(pgid(3)), Some(MergeRole::Target(pgid(7))));
        assert_eq!(announced.pending_merge(pgid(6)), None);
        let ends = |seed, old, new| is_new_interval(pgid(seed), &old, &new);
        let steps = [
            (mapping(8, 8), mapping(8, 7)),
            (mapping(8, 7), mapping(7, 7)),
            (mapping(8, 7), mapping(8, 8)),
        ];
        for (old, new) in steps {
            let ended: Vec<u32> =
                (0..8).filter(|seed| ends(*seed, old.clone(), new.clone())).collect();
            assert_eq!(ended, [3, 7]);
        }
        let split = |seed| ends(seed, mapping(4, 4), mapping(6, 6));
        assert_eq!((0..6).filter(|seed| split(*seed)).collect::<Vec<_>>(), [0, 1, 4, 5]);
    }
}
