//! Whose log is authoritative, and who should be acting: pure functions of what peers said.

use std::collections::{BTreeMap, BTreeSet};

use types::osd::PgInfo;
use types::{EVersion, OsdId, PgShard};

use super::intervals;
use super::view::Mapping;

/// Infos of all that were asked, the PG's own among them.
pub(super) type Infos = BTreeMap<PgShard, PgInfo>;

/// The OSD with the authoritative log (`find_best_info` in `src/osd/PeeringState.cc`): no
/// acknowledged write may be missing from it, so it must know of the newest activation that any
/// of them knows of; of those the newest log, then the longest, then the one with nothing missing,
/// then our own.
pub(super) fn find_best_info(infos: &Infos, whoami: PgShard) -> Option<PgShard> {
    let complete = || infos.values().filter(|i| !i.is_incomplete());
    let newest_started = complete()
        .map(|i| i.last_epoch_started.max(i.history.last_epoch_started))
        .max()
        .unwrap_or(0);
    // Whoever knows of that activation has at least the writes before it. An incomplete one knows
    // of it too: its last_update bounds what has to be there.
    let oldest_acceptable: EVersion = infos
        .values()
        .filter(|i| i.last_epoch_started >= newest_started)
        .map(|i| i.last_update)
        .min()?;
    let mut best: Option<(PgShard, &PgInfo)> = None;
    for (shard, info) in infos {
        if info.last_update < oldest_acceptable
            || info.last_epoch_started < newest_started
            || info.is_incomplete()
        {
            continue;
        }
        let Some((best_shard, best_info)) = best else {
            best = Some((*shard, info));
            continue;
        };
        let key = |shard: PgShard, i: &PgInfo| {
            let complete = i.last_complete == i.last_update;
            (i.last_update, std::cmp::Reverse(i.log_tail), complete, shard == whoami)
        };
        if key(*shard, info) > key(best_shard, best_info) {
            best = Some((*shard, info));
        }
    }
    best.map(|(shard, _)| shard)
}

/// Who should act, and who of the up set has to be backfilled first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Choice {
    /// In order; the first leads.
    pub want: Vec<OsdId>,
    /// Members of the up set that get all objects copied.
    pub backfill: BTreeSet<PgShard>,
    /// `want` and `backfill` together.
    pub acting_backfill: BTreeSet<PgShard>,
}

/// Chooses the acting set of a replicated PG (`calc_replicated_acting`): the up set's members
/// whose logs reach those of the authoritative one, topped up with others that have the data.
pub(super) fn choose_replicated(mapping: &Mapping, auth: PgShard, infos: &Infos) -> Choice {
    let auth_info = &infos[&auth];
    let oldest = auth_info.log_tail;
    let usable = |shard: &PgShard| {
        infos.get(shard).is_some_and(|i| !i.is_incomplete() && i.last_update >= oldest)
    };
    let up_primary = PgShard::replica(mapping.up_primary);
    let primary =
        if intervals::is_osd(mapping.up_primary) && usable(&up_primary) { up_primary } else { auth };
    let mut choice = Choice::default();
    choice.want.push(primary.osd);
    choice.acting_backfill.insert(primary);
    for shard in mapping.up.iter().copied().filter(|o| intervals::is_osd(*o)) {
        let shard = PgShard::replica(shard);
        if shard == primary {
            continue;
        }
        if usable(&shard) {
            choice.want.push(shard.osd);
        } else {
            choice.backfill.insert(shard);
        }
        choice.acting_backfill.insert(shard);
    }
    // Others with data: those acting now first, then the newest.
    let mut others: Vec<PgShard> = intervals::shards(&mapping.acting).into_iter().collect();
    others.sort_by_key(|s| mapping.acting.iter().position(|o| *o == s.osd));
    let mut strays: Vec<(&PgShard, &PgInfo)> =
        infos.iter().filter(|(s, _)| !others.contains(s)).collect();
    strays.sort_by_key(|(s, i)| (std::cmp::Reverse(i.last_update), **s));
    others.extend(strays.into_iter().map(|(s, _)| *s));
    for shard in others {
        if choice.want.len() >= mapping.size as usize {
            break;
        }
        if !choice.acting_backfill.contains(&shard) && usable(&shard) {
            choice.want.push(shard.osd);
            choice.acting_backfill.insert(shard);
        }
    }
    choice
}
