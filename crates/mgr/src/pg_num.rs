//! Walks pools to the number of PGs that somebody wants: `pg_num` splits in steps while all PGs are
//! active, then `pgp_num` moves the new PGs, not more at a time than may be misplaced
//! (`DaemonServer::adjust_pgs` in `src/mgr/DaemonServer.cc` at v16.2).

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use maps::PgPool;
use types::osd::pg_state;

use crate::daemon::Mgr;

/// Between two looks (mgr_tick_period).
const TICK: Duration = Duration::from_secs(2);

/// What a pool's PGs are like.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Pgs {
    /// PGs that have reported.
    known: u32,
    /// All that have are active or at least have peered.
    peered: bool,
    /// Of all copies of the cluster, those in the wrong place.
    misplaced: f64,
    /// Some PG of the cluster is not active.
    inactive: bool,
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

/// The next step of a pool, if it may be taken now. Shrinking is left alone: PGs do not merge.
fn next_step(pool: &PgPool, pgs: Pgs, bounds: Bounds) -> Option<Step> {
    if pgs.known < pool.pg_num {
        return None;
    }
    let gap = pool.pg_num.saturating_sub(pool.pgp_num);
    if pool.pg_num_target > pool.pg_num && pgs.peered && gap < bounds.change {
        let add = (bounds.change - gap).min(pool.pg_num_target - pool.pg_num);
        return Some(Step::PgNum(pool.pg_num + add));
    }
    let target = pool.pgp_num_target.min(pool.pg_num);
    if target == pool.pgp_num || pgs.inactive || pgs.misplaced > bounds.misplaced {
        return None;
    }
    // As many as the room for misplaced copies lets move, at least one.
    let room = (bounds.misplaced - pgs.misplaced).max(0.0) * f64::from(pool.pg_num);
    let most = (room as u32).clamp(1, bounds.change);
    let next = if target > pool.pgp_num {
        target.min(pool.pgp_num + most)
    } else {
        target.max(pool.pgp_num - most.min(pool.pgp_num - 1))
    };
    Some(Step::PgpNum(next))
}

/// Looks again and again.
pub(crate) async fn run(mgr: Rc<Mgr>) {
    while !mgr.stopped.get() {
        mgr.env.sleep(TICK).await;
        if mgr.active.get() {
            look(&mgr).await;
        }
    }
}

async fn look(mgr: &Mgr) {
    let map = mgr.osdmaps.current();
    let bounds = Bounds {
        change: mgr.config.uint("mgr_max_pg_num_change").clamp(1, 65536) as u32,
        misplaced: mgr.config.float("target_max_misplaced_ratio"),
    };
    let mut steps = Vec::new();
    {
        let cluster = mgr.cluster.borrow();
        let sum = &cluster.pg_map.digest.pg_sum.stats.sum;
        let misplaced =
            sum.num_objects_misplaced as f64 / (sum.num_object_copies.max(1)) as f64;
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
                peered: of_pool().all(|(_, s)| s.state & ready != 0),
                misplaced,
                inactive,
            };
            let name = map.pool_names.get(id);
            if let (Some(step), Some(name)) = (next_step(pool, pgs, bounds), name) {
                steps.push((name.clone(), step));
            }
        }
    }
    for (pool, step) in steps {
        let (var, n) = match step {
            Step::PgNum(n) => ("pg_num_actual", n),
            Step::PgpNum(n) => ("pgp_num_actual", n),
        };
        tracing::info!("pool {pool}: {var} {n}");
        let command = serde_json::json!({
            "prefix": "osd pool set", "pool": pool, "var": var, "val": n.to_string(),
        });
        match mgr.monc.command(vec![command.to_string()], Bytes::new()).await {
            Ok(answer) if answer.rc == 0 => {}
            Ok(answer) => tracing::warn!("pool {pool}: {var} {n}: {}", answer.outs),
            Err(error) => tracing::warn!("pool {pool}: {var} {n}: {error:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { change: 16, misplaced: 0.05 };

    fn pool(pg_num: u32, pgp_num: u32, target: u32) -> PgPool {
        PgPool {
            pg_num,
            pgp_num,
            pg_num_target: target,
            pgp_num_target: target,
            ..PgPool::default()
        }
    }

    fn pgs(known: u32) -> Pgs {
        Pgs { known, peered: true, misplaced: 0.0, inactive: false }
    }

    #[test]
    fn pg_num_goes_first_in_bounded_steps() {
        assert_eq!(next_step(&pool(8, 8, 64), pgs(8), BOUNDS), Some(Step::PgNum(24)));
        // No more before the new ones have been placed.
        assert_eq!(next_step(&pool(24, 8, 64), pgs(24), BOUNDS), Some(Step::PgpNum(9)));
        assert_eq!(next_step(&pool(24, 20, 64), pgs(24), BOUNDS), Some(Step::PgNum(36)));
        assert_eq!(next_step(&pool(64, 64, 64), pgs(64), BOUNDS), None);
    }

    #[test]
    fn nothing_moves_while_pgs_are_unknown_or_too_much_is_misplaced() {
        assert_eq!(next_step(&pool(24, 8, 64), pgs(23), BOUNDS), None);
        let busy = Pgs { misplaced: 0.06, ..pgs(64) };
        assert_eq!(next_step(&pool(64, 60, 64), busy, BOUNDS), None);
        let inactive = Pgs { inactive: true, ..pgs(64) };
        assert_eq!(next_step(&pool(64, 60, 64), inactive, BOUNDS), None);
        let peering = Pgs { peered: false, ..pgs(8) };
        assert_eq!(next_step(&pool(8, 8, 64), peering, BOUNDS), None);
    }

    #[test]
    fn pgp_num_also_goes_down() {
        let shrink = PgPool { pgp_num_target: 1, ..pool(64, 8, 64) };
        assert_eq!(next_step(&shrink, pgs(64), BOUNDS), Some(Step::PgpNum(5)));
    }
}
