//! How many PGs pools should have, by what they hold of the space that their rule reaches and by
//! what their owners expect them to hold; pools whose `pg_autoscale_mode` is `on` are given them
//! (`src/pybind/mgr/pg_autoscaler` at v16.2).
//!
//! Each tree of OSDs has `mon_target_pg_per_osd` PGs for each OSD to give away. Pools get the share
//! that they use, at least `pg_num_min` (32); pools with the flag `bulk` share what is left evenly,
//! those that use more than that first. A pool is changed when it is off by a factor of 3.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use maps::pgmap::PgMap;
use maps::pool::{PoolOpts, pool_flags, pool_opts};
use maps::{HealthCheckMap, OsdMap, PgPool, Severity};
use serde_json::json;
use types::OsdId;

use crate::commands::osd::short_number;
use crate::daemon::Mgr;
use crate::progress;

/// Fewest PGs a pool is thought to need, unless it says otherwise.
const PG_NUM_MIN: u64 = 32;
/// A pool is left alone until it is off by this factor.
const THRESHOLD: f64 = 3.0;
/// `pg_autoscale_mode` in words.
const MODES: [&str; 3] = ["off", "warn", "on"];
/// The module's options in the configuration database.
pub(crate) const NOAUTOSCALE: &str = "mgr/pg_autoscaler/noautoscale";
const SLEEP_INTERVAL: &str = "mgr/pg_autoscaler/sleep_interval";
const LOOK_AT_OPTIONS: Duration = Duration::from_secs(1);

/// What is known of a pool, and what it should be.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: i64,
    pub(crate) name: String,
    pub(crate) logical_used: u64,
    /// Only if no ratio is wanted.
    pub(crate) target_bytes: i64,
    /// Bytes on devices for each byte stored.
    pub(crate) rate: f64,
    pub(crate) capacity: u64,
    pub(crate) target_ratio: f64,
    pub(crate) effective_ratio: f64,
    pub(crate) capacity_ratio: f64,
    pub(crate) actual_ratio: f64,
    pub(crate) bias: f64,
    pub(crate) pg_num: u32,
    pub(crate) ideal: u64,
    pub(crate) wanted: u64,
    pub(crate) mode: &'static str,
    /// Its number of PGs is far from what it should be.
    pub(crate) off: bool,
    pub(crate) bulk: bool,
    pub(crate) root: i32,
    /// Both a ratio and a size are expected of it.
    pub(crate) both_targets: bool,
}

impl Row {
    pub(crate) fn would_adjust(&self) -> bool {
        self.off && self.mode == "on"
    }

    pub(crate) fn raw_used(&self) -> f64 {
        self.logical_used as f64 * self.rate
    }
}

/// What the calculation needs of a pool.
#[derive(Debug, Clone)]
struct Pool {
    row: Row,
    osds: BTreeSet<OsdId>,
    size: f64,
    min: u64,
    max: u64,
}

/// OSDs that some pools share.
#[derive(Debug, Default)]
struct Tree {
    roots: BTreeSet<i32>,
    osds: BTreeSet<OsdId>,
    capacity: u64,
    pools: u32,
    served: u32,
    pgs_left: f64,
    target_ratio: f64,
    target_bytes: f64,
}

fn opt(opts: &PoolOpts, name: &str) -> Option<f64> {
    let (key, _) = pool_opts::by_name(name)?;
    opts.double(key).or_else(|| opts.int(key).map(|n| n as f64))
}

/// The power of two nearest to a number.
fn nearest_power_of_two(n: f64) -> u64 {
    let n = n.max(1.0) as u64;
    let above = n.next_power_of_two();
    let below = above / 2;
    if below > 0 && above - n > n - below { below } else { above }
}

/// The bucket that a pool's rule takes first.
fn root_of(map: &OsdMap, pool: &PgPool) -> i32 {
    let rule = map.crush.rule(i32::from(pool.crush_rule));
    let take = rule.and_then(|rule| rule.steps.iter().find(|step| step.op == crush::op::TAKE));
    take.map_or(0, |step| step.arg1)
}

/// The OSDs whose space a pool is measured by: those below what its rule takes first. One that
/// takes from several trees does not tie these together: the pools of both would be left alone.
fn osds_of(map: &OsdMap, pool: &PgPool) -> BTreeSet<OsdId> {
    match map.crush.rule(i32::from(pool.crush_rule)) {
        Some(_) => map.crush.devices_under(root_of(map, pool)).into_iter().collect(),
        None => BTreeSet::new(),
    }
}

fn pool_of(map: &OsdMap, pgs: &PgMap, id: i64, pool: &PgPool) -> Pool {
    let option = |name| opt(&pool.opts, name);
    let target_ratio = option("target_size_ratio").unwrap_or(0.0);
    let bytes = option("target_size_bytes").unwrap_or(0.0) as i64;
    let row = Row {
        id,
        name: map.pool_names.get(&id).cloned().unwrap_or_default(),
        logical_used: pgs.digest.pool_stored(map, id),
        target_bytes: if target_ratio > 0.0 { 0 } else { bytes },
        rate: f64::from(map.pool_raw_used_rate(pool)),
        capacity: 0,
        target_ratio,
        effective_ratio: 0.0,
        capacity_ratio: 0.0,
        actual_ratio: 0.0,
        bias: option("pg_autoscale_bias").unwrap_or(1.0),
        pg_num: pool.pg_num_target,
        ideal: 0,
        wanted: 0,
        mode: MODES.get(usize::from(pool.pg_autoscale_mode)).copied().unwrap_or("off"),
        off: false,
        bulk: pool.has_flag(pool_flags::BULK),
        root: root_of(map, pool),
        both_targets: target_ratio > 0.0 && bytes > 0,
    };
    Pool {
        row,
        osds: osds_of(map, pool),
        size: f64::from(pool.size),
        min: option("pg_num_min").map_or(PG_NUM_MIN, |n| n as u64),
        max: option("pg_num_max").map_or(u64::MAX, |n| n as u64),
    }
}

/// The trees, which of them each pool is in, and roots that share OSDs with others: pools there are
/// left alone.
fn trees(
    pools: &[Pool],
    capacity_of: impl Fn(OsdId) -> u64,
    per_osd: f64,
) -> (Vec<Tree>, Vec<usize>, BTreeSet<i32>) {
    let (mut trees, mut places, mut overlapping) =
        (Vec::<Tree>::new(), Vec::new(), BTreeSet::new());
    for pool in pools {
        let shares = |tree: &Tree| !tree.osds.is_disjoint(&pool.osds);
        let at = trees.iter().position(shares).unwrap_or_else(|| {
            trees.push(Tree::default());
            trees.len() - 1
        });
        let tree = &mut trees[at];
        if tree.roots.iter().any(|root| *root != pool.row.root) {
            overlapping.extend(tree.roots.iter().copied());
            overlapping.insert(pool.row.root);
        }
        tree.roots.insert(pool.row.root);
        tree.osds.extend(pool.osds.iter().copied());
        tree.pools += 1;
        if pool.row.target_ratio > 0.0 {
            tree.target_ratio += pool.row.target_ratio;
        } else {
            tree.target_bytes += pool.row.target_bytes as f64 * pool.row.rate;
        }
        places.push(at);
    }
    for tree in &mut trees {
        tree.capacity = tree.osds.iter().map(|osd| capacity_of(*osd)).sum();
        tree.pgs_left = tree.osds.len() as f64 * per_osd;
    }
    (trees, places, overlapping)
}

/// What pools expect of their tree, as shares of it.
fn shares(row: &mut Row, tree: &Tree) {
    let capacity = tree.capacity as f64;
    row.capacity = tree.capacity;
    row.actual_ratio = row.raw_used() / capacity;
    let used = row.logical_used.max(u64::try_from(row.target_bytes).unwrap_or(0));
    row.effective_ratio = row.target_ratio;
    if tree.target_ratio > 0.0 {
        row.effective_ratio /= tree.target_ratio;
    }
    row.effective_ratio *= 1.0 - (tree.target_bytes / capacity).min(1.0);
    row.capacity_ratio = (used as f64 * row.rate / capacity).max(row.effective_ratio);
}

/// Gives a pool its share of the PGs that its tree has left.
fn settle(pool: &mut Pool, tree: &mut Tree, ratio: f64, takes: bool) {
    let used = ratio * tree.pgs_left;
    if takes {
        tree.pgs_left -= used.trunc();
        tree.served += 1;
    }
    let target = used / pool.size.max(1.0) * pool.row.bias;
    let row = &mut pool.row;
    row.ideal = target as u64;
    row.wanted = nearest_power_of_two(target).max(pool.min).min(pool.max);
    let (now, then) = (f64::from(row.pg_num), row.wanted as f64);
    let far = then > now * THRESHOLD || then < now / THRESHOLD;
    row.off = far && (0.0..=1.0).contains(&ratio);
}

fn calculate(mut pools: Vec<Pool>, capacity_of: impl Fn(OsdId) -> u64, per_osd: f64) -> Vec<Row> {
    let (mut trees, places, overlapping) = trees(&pools, capacity_of, per_osd);
    let mut order = Vec::new();
    let (mut bulk, mut even) = (Vec::new(), Vec::new());
    for (i, pool) in pools.iter_mut().enumerate() {
        let tree = &mut trees[places[i]];
        if tree.capacity == 0 || overlapping.contains(&pool.row.root) {
            continue;
        }
        shares(&mut pool.row, tree);
        if pool.row.bulk {
            bulk.push(i);
            continue;
        }
        let ratio = pool.row.capacity_ratio;
        settle(pool, tree, ratio, true);
        order.push(i);
    }
    let rest = |tree: &Tree| 1.0 / f64::from(tree.pools.saturating_sub(tree.served).max(1));
    for i in bulk {
        let (pool, tree) = (&mut pools[i], &mut trees[places[i]]);
        if pool.row.capacity_ratio <= rest(tree) {
            even.push(i);
            continue;
        }
        let ratio = pool.row.capacity_ratio;
        settle(pool, tree, ratio, true);
        order.push(i);
    }
    for i in even {
        let (pool, tree) = (&mut pools[i], &mut trees[places[i]]);
        let ratio = rest(tree);
        settle(pool, tree, ratio, false);
        order.push(i);
    }
    order.into_iter().map(|i| pools[i].row.clone()).collect()
}

/// All pools, those first that are not `bulk`. Pools of trees without space or with several roots
/// are left out.
pub(crate) fn rows(mgr: &Mgr, map: &OsdMap, pgs: &PgMap) -> Vec<Row> {
    let pools = map.pools.iter().map(|(id, pool)| pool_of(map, pgs, *id, pool)).collect();
    let total = |osd: OsdId| pgs.osd_stat.get(&osd).map_or(0, |stat| stat.statfs.total);
    calculate(pools, total, mgr.config.float("mon_target_pg_per_osd"))
}

/// Whether all pools have been taken out of it.
pub(crate) fn is_off(mgr: &Mgr) -> bool {
    mgr.config.bool(NOAUTOSCALE)
}

/// Findings: pools that only want to be told (`warn`), targets that contradict each other or are
/// more than there is room for.
///
/// Ceph 16.2 warns of every pool in that mode, even of one that has what it should have; here only
/// of those that would be changed if the mode were `on`.
pub(crate) fn health(mgr: &Mgr, map: &OsdMap, pgs: &PgMap, checks: &mut HealthCheckMap) {
    let tells = |pool: &PgPool| {
        pool.pg_autoscale_mode == 1 || opt(&pool.opts, "target_size_bytes").is_some()
    };
    if !map.pools.values().any(tells) || is_off(mgr) {
        return;
    }
    health_of(&rows(mgr, map, pgs), checks);
}

fn health_of(rows: &[Row], checks: &mut HealthCheckMap) {
    let (mut few, mut many, mut both) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        if row.both_targets {
            both.push(format!("Pool {} has target_size_bytes and target_size_ratio set", row.name));
        }
        if row.mode != "warn" || !row.off {
            continue;
        }
        let text = format!(
            "Pool {} has {} placement groups, should have {}",
            row.name, row.pg_num, row.wanted
        );
        if row.wanted > u64::from(row.pg_num) { few.push(text) } else { many.push(text) }
    }
    let found = [
        ("POOL_TOO_FEW_PGS", few, "pools have too few placement groups"),
        ("POOL_TOO_MANY_PGS", many, "pools have too many placement groups"),
        (
            "POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO",
            both,
            "pools have both target_size_bytes and target_size_ratio set",
        ),
        (
            "POOL_TARGET_SIZE_BYTES_OVERCOMMITTED",
            overcommitted(rows),
            "subtrees have overcommitted pool target_size_bytes",
        ),
    ];
    for (code, detail, text) in found {
        if !detail.is_empty() {
            let count = detail.len();
            let check = checks.add(code, Severity::Warn, format!("{count} {text}"), count as i64);
            check.detail = detail;
        }
    }
}

/// Of each root whose pools hold, or are expected to hold, more than its OSDs do: which, and by how
/// much.
fn overcommitted(rows: &[Row]) -> Vec<String> {
    // As Python prints them.
    let list = |rows: &[&Row]| {
        let names: Vec<String> = rows.iter().map(|row| format!("'{}'", row.name)).collect();
        format!("[{}]", names.join(", "))
    };
    let mut by_root: BTreeMap<i32, Vec<&Row>> = BTreeMap::new();
    rows.iter().for_each(|row| by_root.entry(row.root).or_default().push(row));
    let over = by_root.into_values().filter_map(|mut rows| {
        rows.sort_by_key(|row| row.id);
        let expected = |row: &Row| row.target_bytes.max(0) as f64 * row.rate;
        let targeted: Vec<&Row> = rows.iter().copied().filter(|row| row.target_bytes > 0).collect();
        let total: f64 = rows.iter().map(|row| expected(row).max(row.raw_used())).sum();
        let capacity = rows.first()?.capacity as f64;
        if targeted.is_empty() || total <= capacity {
            return None;
        }
        let bytes = targeted.iter().copied().map(expected).sum::<f64>() as u64;
        Some(format!(
            "Pools {} overcommit available storage by {:.3}x due to target_size_bytes {} on pools {}",
            list(&rows),
            total / capacity,
            short_number(bytes, 5, 1024),
            list(&targeted)
        ))
    });
    over.collect()
}

/// A pool on its way to another number of PGs: an event of `ceph progress`.
struct Change {
    event: String,
    from: u32,
    to: u32,
    /// The map that says so has come.
    seen: bool,
}

/// The changes that this manager has had made, by pool.
type Changes = BTreeMap<i64, Change>;

impl Change {
    fn tell(&self, mgr: &Mgr, pool: i64, progress: f64) {
        let how = if self.from < self.to { "increasing" } else { "decreasing" };
        let (from, to) = (self.from, self.to);
        let text = format!("PG autoscaler {how} pool {pool} PGs from {from} to {to}");
        progress::update(mgr, &self.event, &text, json!([["pool", pool]]), progress);
    }

    /// How far it has come, 0 to 1; `None`: it is over, or another one is under way instead.
    fn look(&mut self, pool: Option<&PgPool>) -> Option<f64> {
        let pool = pool?;
        self.seen |= pool.pg_num_target == self.to;
        if !self.seen {
            return Some(0.0);
        }
        let part = |pg_num: u32| f64::from(pg_num.abs_diff(self.from));
        (pool.pg_num != pool.pg_num_target).then(|| part(pool.pg_num) / part(self.to).max(1.0))
    }
}

/// Tells of changes how far they have come.
fn follow(mgr: &Mgr, changes: &mut Changes) {
    let map = mgr.osdmaps.current();
    changes.retain(|id, change| {
        let progress = change.look(map.pool(*id));
        match progress {
            Some(progress) => change.tell(mgr, *id, progress),
            None => progress::end(mgr, &change.event, None),
        }
        progress.is_some()
    });
}

/// Changes pools until the manager stops. The pause between two looks may be changed during it.
pub(crate) async fn run(mgr: Rc<Mgr>) {
    let mut looked = mgr.env.now();
    let mut changes = Changes::new();
    while !mgr.stopped.get() {
        mgr.env.sleep(LOOK_AT_OPTIONS).await;
        if mgr.active.get() {
            follow(&mgr, &mut changes);
        } else {
            changes.clear();
        }
        let pause = mgr.config.duration(SLEEP_INTERVAL).max(Duration::from_secs(1));
        if !mgr.active.get() || mgr.env.now() < looked + pause {
            continue;
        }
        looked = mgr.env.now();
        if !mgr.stopped.get() && !is_off(&mgr) {
            adjust(&mgr, &mut changes).await;
        }
    }
}

async fn adjust(mgr: &Mgr, changes: &mut Changes) {
    let map = mgr.osdmaps.current();
    // The map of what was asked for a look ago has come, or somebody asked for something else right away.
    changes.values_mut().for_each(|change| change.seen = true);
    let rows = {
        let cluster = mgr.cluster.borrow();
        if !cluster.ready {
            return;
        }
        rows(mgr, &map, &cluster.pg_map)
    };
    for row in rows.iter().filter(|row| row.would_adjust()) {
        tracing::info!("pool {}: pg_num {} -> {}", row.name, row.pg_num, row.wanted);
        let command = serde_json::json!({
            "prefix": "osd pool set", "pool": row.name, "var": "pg_num",
            "val": row.wanted.to_string(),
        });
        match mgr.monc.command(vec![command.to_string()], Bytes::new()).await {
            Ok(answer) if answer.rc == 0 => {
                let from = map.pool(row.id).map_or(row.pg_num, |pool| pool.pg_num);
                let to = u32::try_from(row.wanted).unwrap_or(u32::MAX);
                let event = changes
                    .remove(&row.id)
                    .map_or_else(|| progress::new_id(mgr), |before| before.event);
                let change = Change { event, from, to, seen: false };
                change.tell(mgr, row.id, 0.0);
                changes.insert(row.id, change);
            }
            Ok(answer) => tracing::warn!("pool {}: {}", row.name, answer.outs),
            Err(error) => tracing::warn!("pool {}: {error}", row.name),
        }
    }
}

/// Takes all pools out of it, or lets them in: the flag, the default of new pools, each pool.
pub(crate) async fn set_off(mgr: &Mgr, off: bool) -> Result<(), String> {
    let mode = if off { "off" } else { "on" };
    let set = mgr.set_option(NOAUTOSCALE, Some(off.to_string())).await;
    set.map_err(|refused| refused.outs)?;
    let config = |who: &str, name: &str, value: &str| serde_json::json!({"prefix": "config set", "who": who, "name": name, "value": value});
    let mut commands = vec![config("global", "osd_pool_default_pg_autoscale_mode", mode)];
    let names: BTreeMap<i64, String> = mgr.osdmaps.current().pool_names.clone();
    commands.extend(names.values().map(|name| {
        serde_json::json!({
            "prefix": "osd pool set", "pool": name, "var": "pg_autoscale_mode", "val": mode,
        })
    }));
    for command in commands {
        match mgr.monc.command(vec![command.to_string()], Bytes::new()).await {
            Ok(answer) if answer.rc == 0 => {}
            Ok(answer) => return Err(answer.outs),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERABYTE: u64 = 1 << 40;

    fn pool(name: &str, pg_num: u32, stored: u64) -> Pool {
        let row = Row {
            id: 1,
            name: name.to_owned(),
            logical_used: stored,
            target_bytes: 0,
            rate: 3.0,
            capacity: 0,
            target_ratio: 0.0,
            effective_ratio: 0.0,
            capacity_ratio: 0.0,
            actual_ratio: 0.0,
            bias: 1.0,
            pg_num,
            ideal: 0,
            wanted: 0,
            mode: "on",
            off: false,
            bulk: false,
            root: -1,
            both_targets: false,
        };
        Pool { row, osds: (0..10).collect(), size: 3.0, min: PG_NUM_MIN, max: u64::MAX }
    }

    /// What the autoscaler did was no event of `ceph progress`.
    #[test]
    fn a_change_is_followed_until_the_pool_has_its_pgs() {
        let mut change = Change { event: String::new(), from: 32, to: 128, seen: false };
        let mut at = |pg_num, pg_num_target| {
            let pool = PgPool { pg_num, pg_num_target, ..PgPool::default() };
            change.look(Some(&pool))
        };
        // The map from before it was asked for: that is not the end.
        assert_eq!(at(32, 32), Some(0.0));
        assert_eq!(at(32, 128), Some(0.0));
        assert_eq!(at(56, 128), Some(0.25));
        assert_eq!(at(128, 128), None);
        assert_eq!(Change { event: String::new(), from: 32, to: 128, seen: true }.look(None), None);
        let mut fewer = Change { event: String::new(), from: 128, to: 32, seen: true };
        let pool = PgPool { pg_num: 80, pg_num_target: 32, ..PgPool::default() };
        assert_eq!(fewer.look(Some(&pool)), Some(0.5));
    }

    /// A pool of buckets' indexes, of which all is in omap, had as few PGs as an empty one: of what pools hold only
    /// the objects' data counted.
    #[test]
    fn what_is_in_omap_counts() {
        let pool = PgPool { kind: 1, size: 3, ..PgPool::default() };
        let map = OsdMap { pools: [(1, pool.clone())].into(), ..OsdMap::default() };
        let mut pgs = PgMap::default();
        let mut stat = types::osd::PoolStat::default();
        (stat.stats.sum.num_bytes, stat.stats.sum.num_omap_bytes) = (1000, 200);
        (stat.store_stats.data_stored, stat.store_stats.omap_allocated) = (3000, 900);
        pgs.digest.pg_pool_sum.insert(1, stat);
        pgs.digest.osd_sum.num_osds = 3;
        let used = |pgs: &PgMap| pool_of(&map, pgs, 1, &pool).row.logical_used;
        assert_eq!(used(&pgs), 1200);
        // Told by each store for each pool, as `ceph df` has it.
        let sum = &mut pgs.digest.osd_sum;
        (sum.num_per_pool_osds, sum.num_per_pool_omap_osds) = (3, 3);
        assert_eq!(used(&pgs), 1300);
    }

    /// On 10 OSDs of 1 TB, 100 PGs each: (wanted, whether it is off).
    fn wanted(pools: Vec<Pool>) -> Vec<(String, u64, bool)> {
        let rows = calculate(pools, |_| TERABYTE, 100.0);
        rows.into_iter().map(|row| (row.name.clone(), row.wanted, row.would_adjust())).collect()
    }

    fn of(name: &str, wanted: u64, off: bool) -> (String, u64, bool) {
        (name.to_owned(), wanted, off)
    }

    #[test]
    fn pools_get_what_they_use_of_the_space() {
        let warn = |mut pool: Pool| {
            pool.row.mode = "warn";
            pool
        };
        let pools = vec![
            pool("small", 8, 0),
            pool("enough", 16, 0),
            pool("half", 32, TERABYTE * 5 / 3),
            warn(pool("many", 512, 0)),
        ];
        let expected = [
            of("small", 32, true),
            // Twice as many would be better, but that is no reason.
            of("enough", 32, false),
            // Half of 1000 copies.
            of("half", 128, true),
            of("many", 32, false),
        ];
        assert_eq!(wanted(pools), expected);
    }

    #[test]
    fn what_is_expected_counts_like_what_is_there() {
        let mut ratio = pool("ratio", 32, 0);
        ratio.row.target_ratio = 0.5;
        assert_eq!(wanted(vec![ratio.clone()]), [of("ratio", 256, true)]);
        // Ratios are relative to each other.
        let other =
            Pool { row: Row { name: "other".into(), ..ratio.row.clone() }, ..ratio.clone() };
        let both = wanted(vec![ratio, other]);
        assert_eq!(both, [of("ratio", 128, true), of("other", 64, false)]);
        let mut bytes = pool("bytes", 32, 0);
        bytes.row.target_bytes = (TERABYTE * 5 / 3) as i64;
        assert_eq!(wanted(vec![bytes]), [of("bytes", 128, true)]);
    }

    #[test]
    fn bulk_pools_share_what_is_left() {
        let bulk = |name: &str| {
            let mut pool = pool(name, 32, 0);
            pool.row.bulk = true;
            pool
        };
        let pools = vec![bulk("a"), pool("half", 128, TERABYTE * 5 / 3), bulk("b")];
        let expected = [of("half", 128, false), of("a", 64, false), of("b", 64, false)];
        assert_eq!(wanted(pools), expected);
        let bounded = Pool { max: 48, ..bulk("a") };
        assert_eq!(wanted(vec![bounded]), [of("a", 48, false)]);
    }

    #[test]
    fn roots_that_share_osds_are_left_alone() {
        let mut other = pool("other", 8, 0);
        other.row.root = -5;
        assert_eq!(wanted(vec![pool("one", 8, 0), other.clone()]), []);
        other.osds = (10..20).collect();
        let expected = [of("one", 32, true), of("other", 32, true)];
        assert_eq!(wanted(vec![pool("one", 8, 0), other]), expected);
    }

    /// A pool that has a copy on fast OSDs and others on slow ones tied both trees together, and the
    /// autoscaler left all their pools alone.
    #[test]
    fn a_rule_that_takes_twice_counts_where_it_takes_first() {
        use crush::{Rule, Step, op};
        let mut crush = crush::CrushMap::fresh();
        for osd in 0..4 {
            let root = if osd < 2 { "fast" } else { "slow" };
            let location = [("root", root.to_owned()), ("host", format!("h{osd}"))];
            let location = location.map(|(k, v)| (k.to_owned(), v)).into();
            crush.insert_item(osd, 0x1_0000, &format!("osd.{osd}"), &location).unwrap();
        }
        let roots = ["fast", "slow"].map(|root| crush.id_of(root).unwrap());
        let host = crush.type_id("host").unwrap();
        let mut add = |name: &str, takes: &[i32]| {
            let each = takes.iter().flat_map(|root| {
                let leaf = Step::new(op::CHOOSELEAF_FIRSTN, 1, host);
                [Step::new(op::TAKE, *root, 0), leaf, Step::new(op::EMIT, 0, 0)]
            });
            let (kind, steps) = (crush::RULE_REPLICATED, each.collect());
            let rule = Rule { ruleset: 0, kind, min_size: 1, max_size: 10, steps };
            u8::try_from(crush.add_rule(name, rule).unwrap()).unwrap()
        };
        let rules = [add("both", &roots), add("slow", &roots[1..]), 77];
        let map = OsdMap { crush: std::sync::Arc::new(crush), ..OsdMap::default() };
        let osds = rules.map(|crush_rule| {
            let pool = PgPool { crush_rule, ..PgPool::default() };
            osds_of(&map, &pool).into_iter().collect::<Vec<_>>()
        });
        assert_eq!(osds, [vec![0, 1], vec![2, 3], vec![]]);
    }

    #[test]
    fn pools_that_want_to_be_told_are() {
        let mut pools = vec![pool("few", 8, 0), pool("many", 512, 0), pool("fine", 32, 0)];
        pools.iter_mut().for_each(|pool| pool.row.mode = "warn");
        let mut checks = HealthCheckMap::default();
        health_of(&calculate(pools, |_| TERABYTE, 100.0), &mut checks);
        let few = "Pool few has 8 placement groups, should have 32";
        assert_eq!(checks.checks["POOL_TOO_FEW_PGS"].detail, [few]);
        assert_eq!(
            checks.checks["POOL_TOO_MANY_PGS"].summary,
            "1 pools have too many placement groups"
        );
    }
    /// Nobody was warned of pools that are expected to hold more than there is.
    #[test]
    fn expectations_beyond_the_space_are_a_finding() {
        let of = |id: i64, name: &str, stored: u64, target: u64| {
            let mut pool = pool(name, 32, stored);
            (pool.row.id, pool.row.target_bytes) = (id, target as i64);
            pool
        };
        let found = |pools: Vec<Pool>| {
            let mut checks = HealthCheckMap::default();
            health_of(&calculate(pools, |_| TERABYTE, 100.0), &mut checks);
            checks.checks.remove("POOL_TARGET_SIZE_BYTES_OVERCOMMITTED")
        };
        assert_eq!(found(vec![of(1, "a", 0, TERABYTE), of(2, "b", 0, TERABYTE * 7 / 3)]), None);
        // What is there without being expected is not the operator's mistake.
        assert_eq!(found(vec![of(1, "a", TERABYTE * 4, 0)]), None);
        let check = found(vec![of(1, "a", TERABYTE, 0), of(2, "b", 0, TERABYTE * 4)]).unwrap();
        assert_eq!(check.summary, "1 subtrees have overcommitted pool target_size_bytes");
        let text = "Pools ['a', 'b'] overcommit available storage by 1.500x due to target_size_bytes \
                    12.0T on pools ['b']";
        assert_eq!(check.detail, [text]);
    }
}
