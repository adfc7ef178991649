//! The balancer: evens out PGs over OSDs by exceptions from CRUSH, by itself once a minute or by
//! plans that an operator makes, looks at and executes (`src/pybind/mgr/balancer` at v16.2).
//!
//! Its settings are options of the configuration database as in Ceph: `mgr/balancer/active`,
//! `mode`, `pool_ids`, `sleep_interval`, `upmap_max_optimizations`, `upmap_max_deviation`. Of
//! Ceph's modes `upmap` and `none` do what they say; `crush-compat` optimizes nothing.

mod eval;
mod upmap;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use maps::OsdMap;
use maps::pgmap::PgMap;
use serde_json::json;
use types::OsdId;
use types::osd::pg_state;

pub(crate) use eval::Eval;
pub(crate) use upmap::Changes;

use crate::daemon::Mgr;
use crate::json;

/// Plans kept at most.
pub(crate) const PLANS_MAX: usize = 64;

/// What a plan leaves as it is, of what a change of the map may name.
const UNCHANGED: [&str; 22] = [
    "new_blocklist",
    "new_last_clean_interval",
    "new_lost",
    "new_pg_temp",
    "new_pg_upmap",
    "new_pool_names",
    "new_pools",
    "new_purged_snaps",
    "new_range_blocklist",
    "new_removed_snaps",
    "new_up_osds",
    "new_up_thru",
    "new_uuid",
    "new_weight",
    "new_xinfo",
    "old_blocklist",
    "old_erasure_code_profiles",
    "old_pg_upmap",
    "old_pools",
    "old_range_blocklist",
    "osd_state_xor",
    "primary_temp",
];

/// What somebody wants changed, and of which map.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) mode: String,
    pub(crate) map: Rc<OsdMap>,
    pub(crate) pools: BTreeSet<i64>,
    pub(crate) changes: Changes,
}

/// State of the balancer.
#[derive(Debug, Default)]
pub(crate) struct Balancer {
    /// At most [`PLANS_MAX`].
    pub(crate) plans: BTreeMap<String, Plan>,
    pub(crate) last_started: String,
    pub(crate) last_duration: String,
    pub(crate) result: String,
    pub(crate) nothing_to_do: bool,
    /// A round of its own is under way.
    pub(crate) busy: bool,
}

impl Balancer {
    /// What an optimization that began then (`env.now()`, seconds since 1970) came to.
    pub(crate) fn note(
        &mut self,
        plan: &Result<Plan, NoPlan>,
        (began, at): (Duration, u64),
        now: Duration,
    ) {
        let took = now.saturating_sub(began);
        let secs = took.as_secs();
        let (hours, minutes, micros) = (secs / 3600, secs / 60 % 60, took.subsec_micros());
        self.last_started = maps::ping_times::date_text(u32::try_from(at).unwrap_or(0));
        self.last_duration = format!("{hours}:{minutes:02}:{:02}.{micros:06}", secs % 60);
        self.nothing_to_do = matches!(plan, Err(NoPlan::Done(_)));
        self.result = match plan {
            Ok(_) => "Optimization plan created successfully".to_owned(),
            Err(why) => why.text().to_owned(),
        };
    }
}

/// `none`, `crush-compat` or `upmap`.
pub(crate) fn mode(mgr: &Mgr) -> String {
    mgr.config.str("mgr/balancer/mode")
}

/// Whether it acts by itself.
pub(crate) fn is_active(mgr: &Mgr) -> bool {
    mgr.config.bool("mgr/balancer/active")
}

/// The pools it is restricted to; empty: all.
pub(crate) fn pool_ids(mgr: &Mgr) -> BTreeSet<i64> {
    let text = mgr.config.str("mgr/balancer/pool_ids");
    text.split(',').filter_map(|id| id.trim().parse().ok()).collect()
}

/// Sets an option of the module, for this manager and the next.
pub(crate) async fn set_option(mgr: &Mgr, name: &str, value: &str) -> Result<(), String> {
    let set = mgr.set_option(&format!("mgr/balancer/{name}"), Some(value.to_owned())).await;
    set.map_err(|refused| refused.outs)
}

/// Why nothing may be moved now, as Ceph says it.
///
/// `is_ready`: whether the sums are complete; `max`: the largest share of copies in the wrong place
/// at which more is moved (`target_max_misplaced_ratio`).
fn not_now(is_ready: bool, pgs: &PgMap, max: f64) -> Option<String> {
    let (pgs, sum) = (&pgs.pg_stat, &pgs.digest.pg_sum.stats.sum);
    let total = pgs.len().max(1) as f64;
    let share = |holds: &dyn Fn(u64) -> bool| {
        pgs.values().filter(|pg| holds(pg.state)).count() as f64 / total
    };
    let unknown = share(&|state| state == 0);
    let inactive = share(&|state| state & pg_state::ACTIVE == 0);
    let copies = sum.num_object_copies.max(1) as f64;
    let degraded = sum.num_objects_degraded as f64 / copies;
    let misplaced = sum.num_objects_misplaced as f64 / copies;
    if !is_ready || unknown > 0.0 {
        Some(format!("Some PGs ({unknown:.6}) are unknown; try again later"))
    } else if degraded > 0.0 {
        Some(format!("Some objects ({degraded:.6}) are degraded; try again later"))
    } else if inactive > 0.0 {
        Some(format!("Some PGs ({inactive:.6}) are inactive; try again later"))
    } else if misplaced >= max {
        Some(format!("Too many objects ({misplaced:.6} > {max:.6}) are misplaced; try again later"))
    } else {
        None
    }
}

/// Why an optimization gives no plan.
pub(crate) enum NoPlan {
    /// The cluster is not in a state for it.
    NotNow(String),
    /// The mode does not optimize.
    Mode(String),
    /// There is nothing to optimize.
    NoPools(String),
    /// It is as even as it gets.
    Done(String),
}

impl NoPlan {
    /// As Ceph says it.
    pub(crate) fn text(&self) -> &str {
        match self {
            NoPlan::NotNow(why) | NoPlan::Mode(why) | NoPlan::NoPools(why) | NoPlan::Done(why) => {
                why
            }
        }
    }
}

/// A plan, and how long it took to think of one: see [`optimize`].
pub(crate) fn try_optimize(mgr: &Mgr, wanted: &BTreeSet<i64>) -> Result<Plan, NoPlan> {
    let began = (mgr.env.now(), mgr.env.wall_clock().as_secs());
    let plan = optimize(mgr, wanted);
    mgr.balancer.borrow_mut().note(&plan, began, mgr.env.now());
    plan
}

/// A plan for these pools (empty: all, or those the balancer is restricted to).
fn optimize(mgr: &Mgr, wanted: &BTreeSet<i64>) -> Result<Plan, NoPlan> {
    let map = mgr.osdmaps.current();
    let mode = mode(mgr);
    {
        let cluster = mgr.cluster.borrow();
        let max = mgr.config.float("target_max_misplaced_ratio");
        if let Some(why) = not_now(cluster.ready, &cluster.pg_map, max) {
            return Err(NoPlan::NotNow(why));
        }
    }
    match mode.as_str() {
        "upmap" => {}
        "none" => {
            let text = "Please do \"ceph balancer mode\" to choose a valid mode first";
            return Err(NoPlan::Mode(text.to_owned()));
        }
        other => return Err(NoPlan::Mode(format!("Mode {other} optimizes nothing here"))),
    }
    let mut pools = if wanted.is_empty() { pool_ids(mgr) } else { wanted.clone() };
    if pools.is_empty() {
        pools = map.pools.keys().copied().collect();
    }
    if pools.is_empty() {
        return Err(NoPlan::NoPools("No pools available".to_owned()));
    }
    // Where PGs are about to merge, exceptions only stand in the way.
    pools.retain(|id| map.pool(*id).is_some_and(|pool| pool.pg_num_target >= pool.pg_num));
    let max = mgr.config.uint("mgr/balancer/upmap_max_optimizations").min(1_000_000) as usize;
    let deviation = mgr.config.int("mgr/balancer/upmap_max_deviation").max(1) as f64;
    let changes = upmap::optimize(&map, &pools, deviation, max);
    if changes.is_empty() {
        return Err(NoPlan::Done(
            "Unable to find further optimization, or pool(s) pg_num is decreasing, or \
             distribution is already perfect"
                .to_owned(),
        ));
    }
    Ok(Plan { mode, map, pools, changes })
}

impl Plan {
    /// The map with the plan's changes.
    pub(crate) fn final_map(&self) -> OsdMap {
        let mut map = (*self.map).clone();
        for (pgid, items) in &self.changes {
            match items.is_empty() {
                true => map.pg_upmap_items.remove(pgid),
                false => map.pg_upmap_items.insert(*pgid, items.clone()),
            };
        }
        map
    }

    /// What an operator would type.
    pub(crate) fn text(&self) -> String {
        let mut out = format!(
            "# starting osdmap epoch {}\n# starting crush version {}\n# mode {}\n",
            self.map.epoch, self.map.crush_version, self.mode
        );
        for (pgid, items) in &self.changes {
            out += &match items.is_empty() {
                true => format!("ceph osd rm-pg-upmap-items {pgid}\n"),
                false => {
                    let pairs = items.iter().map(|(from, to)| format!(" {from} {to}"));
                    format!("ceph osd pg-upmap-items {pgid}{}\n", pairs.collect::<String>())
                }
            };
        }
        out
    }

    /// The change of the map that this is, as Ceph shows one (`OSDMap::Incremental::dump` in `src/osd/OSDMap.cc` at v16.2).
    pub(crate) fn increment(&self) -> String {
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for (pgid, items) in &self.changes {
            let pair = |(from, to): &(OsdId, OsdId)| json!({"from": from, "to": to});
            match items.is_empty() {
                true => old.push(json!(pgid.to_string())),
                false => new.push(json!({
                    "pgid": pgid.to_string(), "mappings": items.iter().map(pair).collect::<Vec<_>>(),
                })),
            }
        }
        let mut change = json!({
            "epoch": self.map.epoch + 1, "fsid": self.map.fsid.to_string(), "modified": "0.000000",
            "new_flags": -1, "new_pool_max": -1, "new_max_osd": -1, "new_require_osd_release": 255,
            "new_require_min_compat_client": 255, "new_last_up_change": "0.000000",
            "new_last_in_change": "0.000000", "erasure_code_profiles": {},
            "new_pg_upmap_items": new, "old_pg_upmap_items": old,
        });
        for ratio in ["new_full_ratio", "new_nearfull_ratio", "new_backfillfull_ratio"] {
            change[ratio] = json!(-1.0);
        }
        for unchanged in UNCHANGED {
            change[unchanged] = json!([]);
        }
        json::indented(&change)
    }

    /// Has the monitors carry it out; the first refusal ends it.
    pub(crate) async fn execute(&self, mgr: &Mgr) -> Result<(), (i32, String)> {
        for (pgid, items) in &self.changes {
            let pgid = pgid.to_string();
            let ids: Vec<i64> =
                items.iter().flat_map(|(a, b)| [i64::from(*a), i64::from(*b)]).collect();
            let command = match items.is_empty() {
                true => serde_json::json!({"prefix": "osd rm-pg-upmap-items", "pgid": pgid}),
                false => {
                    serde_json::json!({"prefix": "osd pg-upmap-items", "pgid": pgid, "id": ids})
                }
            };
            match mgr.monc.command(vec![command.to_string()], Bytes::new()).await {
                Ok(answer) if answer.rc == 0 => {}
                Ok(answer) => return Err((answer.rc, answer.outs)),
                Err(error) => return Err((-11, error.to_string())),
            }
        }
        Ok(())
    }
}

/// One round of its own accord.
async fn round(mgr: &Mgr) {
    let Ok(plan) = try_optimize(mgr, &BTreeSet::new()) else { return };
    mgr.balancer.borrow_mut().busy = true;
    if let Err((_, why)) = plan.execute(mgr).await {
        tracing::warn!("balancer: {why}");
    }
    mgr.balancer.borrow_mut().busy = false;
}

/// Balances until the manager stops.
pub(crate) async fn run(mgr: Rc<Mgr>) {
    while !mgr.stopped.get() {
        let pause = mgr.config.duration("mgr/balancer/sleep_interval").max(Duration::from_secs(1));
        let _ = mgr.env.timeout(pause, mgr.balance_now.notified()).await;
        if mgr.active.get() && !mgr.stopped.get() && is_active(&mgr) {
            round(&mgr).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use types::PgId;

    use super::*;

    /// `balancer dump` was not there.
    #[test]
    fn a_plan_is_a_change_of_the_map() {
        let map = Rc::new(OsdMap { epoch: 6, ..OsdMap::default() });
        let changes = [(PgId::new(2, 31), vec![(0, 2)]), (PgId::new(3, 0), Vec::new())].into();
        let plan = Plan { mode: "upmap".to_owned(), map, pools: BTreeSet::new(), changes };
        let shown: serde_json::Value = serde_json::from_str(&plan.increment()).unwrap();
        assert_eq!(shown["epoch"], 7);
        let moved = json!([{"mappings": [{"from": 0, "to": 2}], "pgid": "2.1f"}]);
        assert_eq!(shown["new_pg_upmap_items"], moved);
        assert_eq!(shown["old_pg_upmap_items"], json!(["3.0"]));
        assert_eq!(shown["new_weight"], json!([]));
    }

    /// `target_max_misplaced_ratio` counted for splits of PGs, but not for the balancer, which stopped at 5 %
    /// whatever was set.
    #[test]
    fn more_is_moved_up_to_the_share_that_is_set() {
        let mut pgs = PgMap::default();
        let sum = &mut pgs.digest.pg_sum.stats.sum;
        (sum.num_object_copies, sum.num_objects_misplaced) = (1000, 100);
        assert_eq!(not_now(true, &pgs, 0.2), None);
        let why = not_now(true, &pgs, 0.07).unwrap();
        let words = "Too many objects (0.100000 > 0.070000) are misplaced; try again later";
        assert_eq!(why, words);
    }

    /// `balancer status` said that no optimization was needed when PGs were degraded or the mode was `none`, and
    /// nothing at all of what an operator had optimized.
    #[test]
    fn the_last_optimization_is_told_whoever_asked_for_it() {
        let mut state = Balancer::default();
        let why = || "why".to_owned();
        let plan = Plan {
            mode: "upmap".to_owned(),
            map: Rc::default(),
            pools: BTreeSet::new(),
            changes: Changes::default(),
        };
        let results = [
            (Err(NoPlan::Done(why())), true, "why"),
            (Err(NoPlan::NotNow(why())), false, "why"),
            (Err(NoPlan::Mode(why())), false, "why"),
            (Err(NoPlan::NoPools(why())), false, "why"),
            (Ok(plan), false, "Optimization plan created successfully"),
        ];
        for (plan, nothing_to_do, result) in results {
            let began = (Duration::from_secs(100), 1_795_232_811);
            state.note(&plan, began, Duration::from_micros(3_763_000_007));
            assert_eq!((state.nothing_to_do, state.result.as_str()), (nothing_to_do, result));
        }
        assert_eq!(state.last_duration, "1:01:03.000007");
        assert_eq!(state.last_started, maps::ping_times::date_text(1_795_232_811));
    }
}
