//! Whose log is authoritative, and who should be acting: pure functions of what peers said.

use std::collections::{BTreeMap, BTreeSet};

use types::ids::OSD_NONE;
use types::osd::PgInfo;
use types::{EVersion, OsdId, PgShard};

use super::intervals;
use super::view::Mapping;
use crate::pg::backend::Redundancy;

/// Infos of all that were asked, the PG's own among them.
pub(super) type Infos = BTreeMap<PgShard, PgInfo>;

/// The OSD with the authoritative log (`find_best_info` in `src/osd/PeeringState.cc`): no
/// acknowledged write may be missing from it, so it must know of the newest activation that any
/// of them knows of; of those the newest log, then the longest, then the one with nothing missing,
/// then our own.
///
/// Of shards the *oldest* log: what one of them does not have was not acknowledged, and may be on
/// fewer shards than it takes to read it; the others undo it.
pub(super) fn find_best_info(
    infos: &Infos,
    whoami: PgShard,
    redundancy: Redundancy,
) -> Option<PgShard> {
    // What an incomplete one was told to be is no activation of its own; of others' it knows as anybody does.
    let started = |i: &PgInfo| if i.is_incomplete() { 0 } else { i.last_epoch_started };
    let newest_started =
        infos.values().map(|i| started(i).max(i.history.last_epoch_started)).max().unwrap_or(0);
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
            (std::cmp::Reverse(i.log_tail), complete, shard == whoami)
        };
        let newer = match redundancy {
            Redundancy::Copies => info.last_update.cmp(&best_info.last_update),
            Redundancy::Shards { .. } => best_info.last_update.cmp(&info.last_update),
        };
        if newer.then(key(*shard, info).cmp(&key(best_shard, best_info))).is_gt() {
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

/// Chooses the acting set of a PG (`choose_acting`): a `want` that makes objects whole, or `None`.
pub(super) fn choose(mapping: &Mapping, auth: PgShard, infos: &Infos) -> Option<Choice> {
    match mapping.redundancy {
        Redundancy::Copies => Some(choose_replicated(mapping, auth, infos)),
        Redundancy::Shards { .. } => {
            let choice = choose_shards(mapping, auth, infos);
            let have: Vec<PgShard> = choice
                .want
                .iter()
                .enumerate()
                .filter(|(_, osd)| intervals::is_osd(**osd))
                .map(|(at, osd)| mapping.redundancy.shard_at(at, *osd))
                .collect();
            mapping.redundancy.is_recoverable(&have).then_some(choice)
        }
    }
}

/// Whether a copy can be brought up by the authoritative log, or put back to it: their logs overlap.
fn is_usable(info: &PgInfo, auth: &PgInfo) -> bool {
    !info.is_incomplete() && info.last_update >= auth.log_tail && info.log_tail <= auth.last_update
}

/// Chooses the acting set of an erasure coded PG (`calc_ec_acting`): for each place the up set's
/// member if its log reaches the authoritative one, else who acts there now, else any other OSD
/// with that shard; else a hole.
fn choose_shards(mapping: &Mapping, auth: PgShard, infos: &Infos) -> Choice {
    let usable = |shard: &PgShard| infos.get(shard).is_some_and(|i| is_usable(i, &infos[&auth]));
    let mut choice = Choice::default();
    for at in 0..mapping.size as usize {
        let member = |set: &[OsdId]| {
            let osd = *set.get(at).filter(|osd| intervals::is_osd(**osd))?;
            Some(mapping.redundancy.shard_at(at, osd))
        };
        let up = member(&mapping.up);
        let chosen = match up.filter(&usable) {
            Some(up) => Some(up),
            None => {
                choice.backfill.extend(up);
                let place = mapping.redundancy.shard_at(at, 0).shard;
                member(&mapping.acting)
                    .filter(&usable)
                    .or_else(|| infos.keys().find(|s| s.shard == place && usable(s)).copied())
            }
        };
        choice.want.push(chosen.map_or(OSD_NONE, |s| s.osd));
        choice.acting_backfill.extend(chosen);
    }
    choice.acting_backfill.extend(&choice.backfill);
    choice
}

/// Chooses the acting set of a replicated PG (`calc_replicated_acting`): the up set's members
/// whose logs reach those of the authoritative one, topped up with others that have the data.
fn choose_replicated(mapping: &Mapping, auth: PgShard, infos: &Infos) -> Choice {
    let usable = |shard: &PgShard| infos.get(shard).is_some_and(|i| is_usable(i, &infos[&auth]));
    let primary = mapping.up_leader().filter(&usable).unwrap_or(auth);
    let mut choice = Choice::default();
    choice.want.push(primary.osd);
    choice.acting_backfill.insert(primary);
    for shard in mapping.up_shards() {
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
    let mut others: Vec<PgShard> = mapping.acting_shards().collect();
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
