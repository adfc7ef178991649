//! Walks pools to the number of PGs that somebody wants: `pg_num` splits in steps while all PGs are
//! active, then `pgp_num` moves the new PGs, not more at a time than may be misplaced. The way back:
//! `pgp_num` puts PGs where those are that they merge into, then the last PG goes, one at a time
//! (`DaemonServer::adjust_pgs` in `src/mgr/DaemonServer.cc` at v16.2).

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use maps::{OsdMap, PgPool};
use types::PgId;
use types::osd::{PgStat, pg_state};

use crate::daemon::Mgr;

/// Between two looks (mgr_tick_period).
const TICK: Duration = Duration::from_secs(2);

/// PGs that `pgp_num` may be ahead of merges however few a pool has.
const AHEAD_OF_MERGES: u32 = 8;

/// What a pool's PGs are like.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pgs {
    /// PGs that have reported.
    known: u32,
    /// Objects of the pool.
    objects: u64,
    /// All that have are active or at least have peered.
    peered: bool,
    /// Of all copies of the cluster, those in the wrong place.
    misplaced: f64,
    /// Some PG of the cluster is not active.
    inactive: bool,
    /// Some object of the cluster has too few copies.
    degraded: bool,
    /// The last PG and the one it merges into are clean and on the same OSDs.
    mergeable: bool,
}

/// Bounds of a step.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// mgr_max_pg_num_change.
    change: u32,
    /// target_max_misplaced_ratio.
    misplaced: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    PgNum(u32),
    PgpNum(u32),
}

/// How far `pgp_num` may be ahead of merges: PGs that have not merged would lie on few OSDs, more than
/// one may hold. Who sets a `pgp_num` of his own is left to it.
fn nearest_to_merges(pool: &PgPool, bounds: Bounds) -> u32 {
    if pool.pgp_num_target != pool.pg_num_target || pool.pgp_num_target >= pool.pg_num {
        return 0;
    }
    let ahead = (f64::from(pool.pg_num) * bounds.misplaced) as u32;
    pool.pg_num.saturating_sub(ahead.max(AHEAD_OF_MERGES))
}

/// The next steps of a pool that may be taken now.
fn next_steps(pool: &PgPool, pgs: Pgs, bounds: Bounds) -> Vec<Step> {
    let mut steps = Vec::new();
    if pgs.known < pool.pg_num {
        return steps;
    }
    let gap = pool.pg_num.saturating_sub(pool.pgp_num);
    if pool.pg_num_target > pool.pg_num && pgs.peered && gap < bounds.change {
        let add = (bounds.change - gap).min(pool.pg_num_target - pool.pg_num);
        return vec![Step::PgNum(pool.pg_num + add)];
    }
    let fewer = pool.pg_num - 1;
    let merges = pool.pg_num_target < pool.pg_num;
    if merges && pool.pg_num_pending == pool.pg_num && pool.pgp_num <= fewer && pgs.mergeable {
        steps.push(Step::PgNum(fewer));
    }
    let target = pool.pgp_num_target.min(pool.pg_num_pending);
    if target == pool.pgp_num || pgs.misplaced > bounds.misplaced {
        return steps;
    }
    // What is lost is made anew first: it would have to wait behind what only moves.
    if pgs.inactive || pgs.degraded {
        return steps;
    }
    // As many as the room for misplaced copies lets move, at least one; half of it at a time, as
    // objects need not lie as evenly over PGs as is assumed. What holds next to nothing moves nothing.
    let room = (bounds.misplaced - pgs.misplaced).min(bounds.misplaced / 2.0).max(0.0);
    let most = ((room * f64::from(pool.pg_num)) as u32).clamp(1, bounds.change);
    let leaps = target > pool.pgp_num && pgs.objects <= u64::from(target);
    let next = if leaps {
        target
    } else if target > pool.pgp_num {
        target.min(pool.pgp_num + most)
    } else {
        let next = target.max(pool.pgp_num - most.min(pool.pgp_num - 1));
        next.max(nearest_to_merges(pool, bounds)).min(pool.pgp_num)
    };
    if next != pool.pgp_num {
        steps.push(Step::PgpNum(next));
    }
    steps
}

/// Whether the last PG of a pool can merge, by what its and the other's primary have told and where
/// the map puts them.
fn mergeable(map: &OsdMap, stats: &BTreeMap<PgId, PgStat>, id: i64, pool: &PgPool) -> bool {
    let Some(last) = pool.pg_num.checked_sub(1).filter(|last| *last > 0) else { return false };
    let source = PgId::new(id as u64, last);
    let target = source.parent();
    let excepted =
        |pgid: &PgId| map.pg_upmap.contains_key(pgid) || map.pg_upmap_items.contains_key(pgid);
    let clean = pg_state::ACTIVE | pg_state::CLEAN;
    let place = |pgid: &PgId| {
        let stat = stats.get(pgid)?;
        let acting = map.pg_to_up_acting(*pgid).acting;
        (stat.state & clean == clean && stat.acting == acting).then_some(acting)
    };
    match (place(&source), place(&target)) {
        (Some(a), Some(b)) => a == b && !excepted(&source) && !excepted(&target),
        _ => false,
    }
}

/// Exceptions from CRUSH that stand in the way of a pool's next merge.
fn in_the_way(map: &OsdMap, id: i64, pool: &PgPool) -> Vec<(&'static str, PgId)> {
    if pool.pg_num_target >= pool.pg_num || pool.pgp_num >= pool.pg_num {
        return Vec::new();
    }
    let source = PgId::new(id as u64, pool.pg_num - 1);
    let mut found = Vec::new();
    for pgid in [source, source.parent()] {
        if map.pg_upmap.contains_key(&pgid) {
            found.push(("osd rm-pg-upmap", pgid));
        }
        if map.pg_upmap_items.contains_key(&pgid) {
            found.push(("osd rm-pg-upmap-items", pgid));
        }
    }
    found
}

/// Looks again and again: when there is news of PGs, and from time to time.
pub(crate) async fn run(mgr: Rc<Mgr>) {
    let mut acted = 0;
    while !mgr.stopped.get() {
        let _ = mgr.env.timeout(TICK, mgr.pgs_told.notified()).await;
        let map = mgr.osdmaps.current();
        // What was done last is to be seen in the map before something else is.
        if mgr.active.get() && map.epoch > acted && look(&mgr, &map).await {
            acted = map.epoch;
        }
    }
}

/// Whether something was done.
async fn look(mgr: &Mgr, map: &OsdMap) -> bool {
    let bounds = Bounds {
        change: mgr.config.uint("mgr_max_pg_num_change").clamp(1, 65536) as u32,
        misplaced: mgr.config.float("target_max_misplaced_ratio"),
    };
    let mut commands = Vec::new();
    {
        let cluster = mgr.cluster.borrow();
        let sum = &cluster.pg_map.digest.pg_sum.stats.sum;
        let misplaced = sum.num_objects_misplaced as f64 / (sum.num_object_copies.max(1)) as f64;
        let stats = &cluster.pg_map.pg_stat;
        let inactive = stats.values().any(|s| s.state & pg_state::ACTIVE == 0);
        for (id, pool) in &map.pools {
            if pool.pg_num_target == pool.pg_num && pool.pgp_num_target == pool.pgp_num {
                continue;
            }
            let of_pool = || stats.iter().filter(|(pg, _)| pg.pool_id() == *id);
            let ready = pg_state::ACTIVE | pg_state::PEERED;
            let pgs = Pgs {
                known: of_pool().count() as u32,
                objects: of_pool().map(|(_, s)| s.stats.sum.num_objects.max(0) as u64).sum(),
                peered: of_pool().all(|(_, s)| s.state & ready != 0),
                misplaced,
                inactive,
                degraded: sum.num_objects_degraded > 0,
                mergeable: pool.pg_num_target < pool.pg_num && mergeable(map, stats, *id, pool),
            };
            let Some(name) = map.pool_names.get(id) else { continue };
            for (prefix, pgid) in in_the_way(map, *id, pool) {
                commands.push(serde_json::json!({ "prefix": prefix, "pgid": pgid.to_string() }));
            }
            for step in next_steps(pool, pgs, bounds) {
                let (var, n) = match step {
                    Step::PgNum(n) => ("pg_num_actual", n),
                    Step::PgpNum(n) => ("pgp_num_actual", n),
                };
                commands.push(serde_json::json!({
                    "prefix": "osd pool set", "pool": name, "var": var, "val": n.to_string(),
                }));
            }
        }
    }
    for command in &commands {
        tracing::info!("{command}");
        match mgr.monc.command(vec![command.to_string()], Bytes::new()).await {
            Ok(answer) if answer.rc == 0 => {}
            Ok(answer) => tracing::warn!("{command}: {}", answer.outs),
            Err(error) => tracing::warn!("{command}: {error}"),
        }
    }
    !commands.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { change: 16, misplaced: 0.05 };

    fn pool(pg_num: u32, pgp_num: u32, target: u32) -> PgPool {
        PgPool {
            pg_num,
            pg_num_pending: pg_num,
            pgp_num,
            pg_num_target: target,
            pgp_num_target: target,
            ..PgPool::default()
        }
    }

    fn pgs(known: u32) -> Pgs {
        Pgs {
            known,
            objects: 1000,
            peered: true,
            misplaced: 0.0,
            inactive: false,
            degraded: false,
            mergeable: true,
        }
    }

    #[test]
    fn pg_num_goes_first_in_bounded_steps() {
        assert_eq!(next_steps(&pool(8, 8, 64), pgs(8), BOUNDS), [Step::PgNum(24)]);
        // No more before the new ones have been placed.
        assert_eq!(next_steps(&pool(24, 8, 64), pgs(24), BOUNDS), [Step::PgpNum(9)]);
        assert_eq!(next_steps(&pool(24, 20, 64), pgs(24), BOUNDS), [Step::PgNum(36)]);
        assert_eq!(next_steps(&pool(64, 64, 64), pgs(64), BOUNDS), []);
    }

    #[test]
    fn nothing_moves_while_pgs_are_unknown_or_too_much_is_misplaced() {
        assert_eq!(next_steps(&pool(24, 8, 64), pgs(23), BOUNDS), []);
        let busy = Pgs { misplaced: 0.06, ..pgs(64) };
        assert_eq!(next_steps(&pool(64, 60, 64), busy, BOUNDS), []);
        let inactive = Pgs { inactive: true, ..pgs(64) };
        assert_eq!(next_steps(&pool(64, 60, 64), inactive, BOUNDS), []);
        let peering = Pgs { peered: false, ..pgs(8) };
        assert_eq!(next_steps(&pool(8, 8, 64), peering, BOUNDS), []);
    }

    /// `pgp_num` went on while copies were missing: objects moved that recovery had to wait behind.
    #[test]
    fn nothing_moves_while_copies_are_missing() {
        let degraded = Pgs { degraded: true, ..pgs(64) };
        assert_eq!(next_steps(&pool(64, 60, 64), degraded, BOUNDS), []);
        assert_eq!(next_steps(&pool(64, 60, 8), degraded, BOUNDS), [Step::PgNum(63)]);
        // A PG splits where it is.
        let few = Pgs { known: 8, ..degraded };
        assert_eq!(next_steps(&pool(8, 8, 64), few, BOUNDS), [Step::PgNum(24)]);
    }

    #[test]
    fn pgp_num_also_goes_down() {
        let shrink = PgPool { pgp_num_target: 1, ..pool(64, 8, 64) };
        assert_eq!(next_steps(&shrink, pgs(64), BOUNDS), [Step::PgpNum(7)]);
    }

    /// `pgp_num` of a pool without objects went to the end at once, far ahead of the merges: 60 PGs lay
    /// where 4 were to be.
    #[test]
    fn pgp_num_stays_near_the_merges() {
        let busy = Pgs { mergeable: false, objects: 0, ..pgs(64) };
        let pgp_num = |pgp_num, bounds| next_steps(&pool(64, pgp_num, 4), busy, bounds);
        assert_eq!(pgp_num(57, BOUNDS), [Step::PgpNum(56)]);
        assert_eq!(pgp_num(56, BOUNDS), []);
        // Where it is farther already it waits: what has moved does not move back to go there again.
        assert_eq!(pgp_num(30, BOUNDS), []);
        let bold = Bounds { misplaced: 0.5, ..BOUNDS };
        assert_eq!(pgp_num(64, bold), [Step::PgpNum(48)]);
        assert_eq!(pgp_num(40, bold), [Step::PgpNum(32)]);
        // A pgp_num that somebody has set is reached.
        let own = PgPool { pgp_num_target: 2, ..pool(64, 56, 4) };
        assert_eq!(next_steps(&own, busy, BOUNDS), [Step::PgpNum(55)]);
    }

    /// A pool of 64 PGs without objects took a minute to place them.
    #[test]
    fn where_there_is_nothing_to_move_pgp_num_grows_at_once() {
        let few = |objects| Pgs { objects, ..pgs(64) };
        assert_eq!(next_steps(&pool(64, 8, 64), few(64), BOUNDS), [Step::PgpNum(64)]);
        assert_eq!(next_steps(&pool(64, 8, 64), few(65), BOUNDS), [Step::PgpNum(9)]);
    }

    #[test]
    fn the_last_pg_merges_once_it_lies_with_the_other() {
        // First the places, then the PGs, one at a time.
        assert_eq!(next_steps(&pool(64, 64, 8), pgs(64), BOUNDS), [Step::PgpNum(63)]);
        let both = [Step::PgNum(63), Step::PgpNum(59)];
        assert_eq!(next_steps(&pool(64, 60, 8), pgs(64), BOUNDS), both);
        let apart = Pgs { mergeable: false, ..pgs(64) };
        assert_eq!(next_steps(&pool(64, 8, 8), apart, BOUNDS), []);
        assert_eq!(next_steps(&pool(64, 8, 8), pgs(64), BOUNDS), [Step::PgNum(63)]);
        let announced = PgPool { pg_num_pending: 63, ..pool(64, 8, 8) };
        assert_eq!(next_steps(&announced, pgs(64), BOUNDS), []);
        // What has been announced is not made impossible.
        let grow = PgPool { pg_num_pending: 63, pgp_num: 62, pgp_num_target: 64, ..pool(64, 0, 8) };
        assert_eq!(next_steps(&grow, pgs(64), BOUNDS), [Step::PgpNum(63)]);
        assert_eq!(next_steps(&pool(8, 8, 8), pgs(8), BOUNDS), []);
    }
}
