//! Findings of the manager: what PGs' states, pools' contents and daemons' own reports mean for
//! users (`PGMap::get_health_checks` in `src/mon/PGMap.cc`, `src/mgr/DaemonHealthMetric*` at
//! v16.2).

use std::collections::BTreeMap;
use std::time::Duration;

use command::ByteU;
use config::Config;
use maps::pgmap::PgMap;
use maps::ping_times::{self, Ping};
use maps::pool::pool_opts;
use maps::{HealthCheckMap, OsdMap, Severity};
use types::osd::{PgStat, pg_state};
use types::{OsdId, PgId, UTime};

use crate::daemons::Daemons;
use crate::text::{osd_vector, timespan};

/// What a PG's state means for clients, from least to most as they are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Consequence {
    Unavailable,
    Degraded,
    BackfillFull,
    Damaged,
    RecoveryFull,
}

/// One rule: a state, what it means, since when it has been so if it only counts once stuck, and
/// whether it is the state's absence that counts.
struct Rule {
    state: u64,
    means: Consequence,
    since: Option<fn(&PgStat) -> UTime>,
    absent: bool,
}

const fn at_once(state: u64, means: Consequence) -> Rule {
    Rule { state, means, since: None, absent: false }
}

/// By ascending bit, the order in which summaries count them.
const RULES: [Rule; 13] = [
    Rule {
        state: pg_state::ACTIVE,
        means: Consequence::Unavailable,
        since: Some(|pg| pg.last_active),
        absent: true,
    },
    at_once(pg_state::DOWN, Consequence::Unavailable),
    at_once(pg_state::RECOVERY_UNFOUND, Consequence::Damaged),
    at_once(pg_state::BACKFILL_UNFOUND, Consequence::Damaged),
    at_once(pg_state::DEGRADED, Consequence::Degraded),
    at_once(pg_state::INCONSISTENT, Consequence::Damaged),
    Rule {
        state: pg_state::PEERING,
        means: Consequence::Unavailable,
        since: Some(|pg| pg.last_active.max(pg.last_peered)),
        absent: false,
    },
    at_once(pg_state::INCOMPLETE, Consequence::Unavailable),
    Rule {
        state: pg_state::STALE,
        means: Consequence::Unavailable,
        since: Some(|pg| pg.last_unstale),
        absent: false,
    },
    at_once(pg_state::BACKFILL_TOOFULL, Consequence::BackfillFull),
    Rule {
        state: pg_state::UNDERSIZED,
        means: Consequence::Degraded,
        since: Some(|pg| pg.last_fullsized),
        absent: false,
    },
    at_once(pg_state::RECOVERY_TOOFULL, Consequence::RecoveryFull),
    at_once(pg_state::SNAPTRIM_ERROR, Consequence::Damaged),
];

impl Rule {
    fn name(&self) -> String {
        if self.absent { "inactive".to_owned() } else { pg_state::state_string(self.state) }
    }

    /// Whether it holds for the PG, and long enough.
    fn holds(&self, pg: &PgStat, cutoff: UTime) -> bool {
        if (pg.state & self.state != 0) == self.absent {
            return false;
        }
        let Some(since) = self.since.map(|since| since(pg)) else { return true };
        if since.is_zero() { pg.last_change < cutoff } else { since < cutoff }
    }
}

#[derive(Default)]
struct Causes {
    /// By rule: how many PGs.
    counts: BTreeMap<usize, i64>,
    details: BTreeMap<PgId, String>,
}

fn detail(rule: &Rule, pgid: PgId, pg: &PgStat, map: &OsdMap, now: UTime) -> String {
    let state = pg_state::state_string(pg.state);
    let acting = osd_vector(&pg.acting);
    let mut text = match rule.since.map(|since| since(pg)) {
        Some(since) => {
            let time = if since.is_zero() {
                "since forever".to_owned()
            } else {
                format!("for {}", timespan(now.since(since)))
            };
            let stuck = rule.name();
            format!(
                "pg {pgid} is stuck {stuck} {time}, current state {state}, last acting {acting}"
            )
        }
        None => {
            let mut text = format!("pg {pgid} is {state}, acting {acting}");
            let unfound = pg.stats.sum.num_objects_unfound;
            if unfound != 0 {
                text += &format!(", {unfound} unfound");
            }
            text
        }
    };
    if pg.state & pg_state::INCOMPLETE != 0
        && let Some(pool) = map.pool(pgid.pool_id()).filter(|pool| pool.min_size > 1)
    {
        text += &format!(
            " (reducing pool {} min_size from {} may help; search ceph.com/docs for \
             'incomplete')",
            pool_name(map, pgid.pool_id()),
            pool.min_size
        );
    }
    text
}

fn pool_name(map: &OsdMap, pool: i64) -> &str {
    map.pool_names.get(&pool).map_or("", String::as_str)
}

/// `20/60 objects degraded (33.333%)`.
fn share(part: i64, whole: i64, what: &str) -> String {
    let percent = part as f64 / whole as f64 * 100.0;
    format!("{part}/{whole} objects {what} ({percent:.3}%)")
}

/// What the PGs and their sums show.
pub(crate) fn of_pgs(pgs: &PgMap, map: &OsdMap, config: &Config, now: UTime) -> HealthCheckMap {
    let mut checks = HealthCheckMap::default();
    of_states(pgs, map, config, now, &mut checks);
    of_objects(pgs, map, config, &mut checks);
    of_scrubs(pgs, map, config, now, &mut checks);
    of_pg_counts(pgs, map, config, &mut checks);
    of_pools(pgs, map, config, &mut checks);
    of_stores(pgs, config, &mut checks);
    of_pings(pgs, map, config, now, &mut checks);
    checks
}

fn of_states(pgs: &PgMap, map: &OsdMap, config: &Config, now: UTime, checks: &mut HealthCheckMap) {
    let max = config.uint("mon_health_max_detail");
    let cutoff = now.minus(config.duration("mon_pg_stuck_threshold"));
    let mut found: BTreeMap<Consequence, Causes> = BTreeMap::new();
    for (pgid, pg) in &pgs.pg_stat {
        for (number, rule) in RULES.iter().enumerate() {
            if !rule.holds(pg, cutoff) {
                continue;
            }
            let causes = found.entry(rule.means).or_default();
            *causes.counts.entry(number).or_default() += 1;
            if causes.details.len() as u64 <= max {
                causes.details.insert(*pgid, detail(rule, *pgid, pg, map, now));
            }
        }
    }
    let sum = &pgs.digest.pg_sum.stats.sum;
    for (means, causes) in found {
        let (code, severity, text) = match means {
            Consequence::Unavailable => {
                ("PG_AVAILABILITY", Severity::Warn, "Reduced data availability")
            }
            Consequence::Degraded => ("PG_DEGRADED", Severity::Warn, "Degraded data redundancy"),
            Consequence::BackfillFull => (
                "PG_BACKFILL_FULL",
                Severity::Warn,
                "Low space hindering backfill (add storage if this doesn't resolve itself)",
            ),
            Consequence::Damaged => ("PG_DAMAGED", Severity::Err, "Possible data damage"),
            Consequence::RecoveryFull => {
                ("PG_RECOVERY_FULL", Severity::Err, "Full OSDs blocking recovery")
            }
        };
        let mut parts = Vec::new();
        if means == Consequence::Degraded
            && sum.num_objects_degraded != 0
            && sum.num_object_copies > 0
        {
            parts.push(share(sum.num_objects_degraded, sum.num_object_copies, "degraded"));
        }
        for (number, count) in &causes.counts {
            let pgs = if *count > 1 { "pgs" } else { "pg" };
            parts.push(format!("{count} {pgs} {}", RULES[*number].name()));
        }
        let count = causes.counts.values().sum();
        let check = checks.add(code, severity, format!("{text}: {}", parts.join(", ")), count);
        check.detail = causes.details.into_values().collect();
    }
}

fn of_objects(pgs: &PgMap, map: &OsdMap, config: &Config, checks: &mut HealthCheckMap) {
    let sum = &pgs.digest.pg_sum.stats.sum;
    let max = usize::try_from(config.uint("mon_health_max_detail")).unwrap_or(usize::MAX);
    if sum.num_scrub_errors != 0 {
        let text = format!("{} scrub errors", sum.num_scrub_errors);
        checks.add("OSD_SCRUB_ERRORS", Severity::Err, text, sum.num_scrub_errors);
    }
    if sum.num_large_omap_objects != 0 {
        let count = sum.num_large_omap_objects;
        let text = format!("{count} large omap objects");
        let check = checks.add("LARGE_OMAP_OBJECTS", Severity::Warn, text, count);
        for (id, pool) in &pgs.digest.pg_pool_sum {
            let count = pool.stats.sum.num_large_omap_objects;
            if count != 0 {
                let name = pool_name(map, i64::from(*id));
                check.detail.push(format!("{count} large objects found in pool '{name}'"));
            }
        }
        let hint = "Search the cluster log for 'Large omap object found' for more details.";
        check.detail.push(hint.to_owned());
    }
    if sum.num_objects_misplaced != 0
        && sum.num_object_copies > 0
        && config.bool("mon_warn_on_misplaced")
    {
        let text = share(sum.num_objects_misplaced, sum.num_object_copies, "misplaced");
        checks.add("OBJECT_MISPLACED", Severity::Warn, text, sum.num_objects_misplaced);
    }
    if sum.num_objects_unfound != 0 && sum.num_objects != 0 {
        let text = share(sum.num_objects_unfound, sum.num_objects, "unfound");
        let check = checks.add("OBJECT_UNFOUND", Severity::Warn, text, sum.num_objects_unfound);
        for (pgid, pg) in &pgs.pg_stat {
            let unfound = pg.stats.sum.num_objects_unfound;
            if unfound == 0 {
                continue;
            }
            check.detail.push(format!("pg {pgid} has {unfound} unfound objects"));
            if check.detail.len() > max {
                check.detail.push("(additional pgs left out for brevity)".to_owned());
                break;
            }
        }
    }
}

/// Placement groups that are late by more than a share of the interval, the pool's own or the cluster's.
fn of_scrubs(pgs: &PgMap, map: &OsdMap, config: &Config, now: UTime, checks: &mut HealthCheckMap) {
    let max = usize::try_from(config.uint("mon_health_max_detail")).unwrap_or(usize::MAX);
    let kinds: [(&str, &str, u32, &str, &str, fn(&PgStat) -> UTime); 2] = [
        (
            "PG_NOT_SCRUBBED",
            "scrubbed",
            pool_opts::SCRUB_MAX_INTERVAL,
            "osd_scrub_max_interval",
            "mon_warn_pg_not_scrubbed_ratio",
            |pg| pg.last_scrub_stamp,
        ),
        (
            "PG_NOT_DEEP_SCRUBBED",
            "deep-scrubbed",
            pool_opts::DEEP_SCRUB_INTERVAL,
            "osd_deep_scrub_interval",
            "mon_warn_pg_not_deep_scrubbed_ratio",
            |pg| pg.last_deep_scrub_stamp,
        ),
    ];
    for (code, word, of_pool, interval, ratio, stamp) in kinds {
        let ratio = config.float(ratio);
        if ratio <= 0.0 {
            continue;
        }
        // A time that is no `Duration` is so long that nothing is ever late.
        let cutoff = |interval: f64| {
            Duration::try_from_secs_f64(interval * (1.0 + ratio)).ok().map(|age| now.minus(age))
        };
        let of_cluster = config.float(interval);
        let cutoffs: BTreeMap<u64, Option<UTime>> = map
            .pools
            .iter()
            .map(|(id, pool)| {
                let own = pool.opts.double(of_pool).filter(|own| *own > 0.0);
                (*id as u64, cutoff(own.unwrap_or(of_cluster)))
            })
            .collect();
        let is_late = |pgid: &PgId, stamp: UTime| {
            cutoffs.get(&pgid.pool).is_some_and(|cutoff| cutoff.is_some_and(|c| stamp < c))
        };
        let late: Vec<(&PgId, UTime)> = pgs
            .pg_stat
            .iter()
            .filter(|(_, pg)| pg.state != 0)
            .map(|(pgid, pg)| (pgid, stamp(pg)))
            .filter(|(pgid, stamp)| is_late(pgid, *stamp))
            .collect();
        if late.is_empty() {
            continue;
        }
        let text = format!("{} pgs not {word} in time", late.len());
        let check = checks.add(code, Severity::Warn, text, late.len() as i64);
        for (pgid, stamp) in late.iter().take(max) {
            check.detail.push(format!("pg {pgid} not {word} since {stamp}"));
        }
        if late.len() > max {
            check.detail.push(format!("{} more pgs... ", late.len() - max));
        }
    }
}

fn of_pg_counts(pgs: &PgMap, map: &OsdMap, config: &Config, checks: &mut HealthCheckMap) {
    let num_in = map.num_in_osds() as u64;
    let up = u64::try_from(pgs.digest.pg_sum.up).unwrap_or(0).max(pgs.pg_stat.len() as u64);
    if let Some(per) = up.checked_div(num_in) {
        let min = config.uint("mon_pg_warn_min_per_osd");
        if min > 0 && !map.pools.is_empty() && per < min && per > 0 {
            let text = format!("too few PGs per OSD ({per} < min {min})");
            checks.add("TOO_FEW_PGS", Severity::Warn, text, (min - per) as i64);
        }
        let max = config.uint("mon_max_pg_per_osd");
        if max > 0 && per > max {
            let text = format!("too many PGs per OSD ({per} > max {max})");
            checks.add("TOO_MANY_PGS", Severity::Warn, text, (per - max) as i64);
        }
    }
    let (osds, wanted) = (map.num_osds() as u64, config.uint("osd_pool_default_size"));
    if config.bool("mon_warn_on_too_few_osds") && osds < wanted {
        let text = format!("OSD count {osds} < osd_pool_default_size {wanted}");
        checks.add("TOO_FEW_OSDS", Severity::Warn, text, (wanted - osds) as i64);
    }
}

fn of_pools(pgs: &PgMap, map: &OsdMap, config: &Config, checks: &mut HealthCheckMap) {
    let total = pgs.digest.pg_sum.stats.sum.num_objects;
    let average = if pgs.pg_stat.is_empty() { 0 } else { total / pgs.pg_stat.len() as i64 };
    let max_skew = config.float("mon_pg_warn_max_object_skew");
    let (mut smaller, mut many, mut no_app) = (Vec::new(), Vec::new(), Vec::new());
    for (id, stat) in &pgs.digest.pg_pool_sum {
        let Some(pool) = map.pool(i64::from(*id)) else { continue };
        let name = pool_name(map, i64::from(*id));
        let objects = stat.stats.sum.num_objects;
        if pool.pg_num_target > pool.pgp_num_target {
            let (pg, pgp) = (pool.pg_num_target, pool.pgp_num_target);
            smaller.push(format!("pool {name} pg_num {pg} > pgp_num {pgp}"));
        }
        if average > 0
            && total >= config.int("mon_pg_warn_min_objects")
            && objects >= config.int("mon_pg_warn_min_pool_objects")
        {
            let per_pg = objects / i64::from(pool.pg_num_target.max(1));
            let ratio = per_pg as f32 / average as f32;
            const AUTOSCALE_ON: u8 = 2;
            if max_skew > 0.0
                && f64::from(ratio) > max_skew
                && pool.pg_autoscale_mode != AUTOSCALE_ON
            {
                let ratio = command::format_stream_float(f64::from(ratio));
                many.push(format!(
                    "pool {name} objects per pg ({per_pg}) is more than {ratio} times cluster \
                     average ({average})"
                ));
            }
        }
        if objects != 0 && pool.application_metadata.is_empty() {
            no_app.push(format!("application not enabled on pool '{name}'"));
        }
    }
    let mut add = |code: &str, text: &str, detail: Vec<String>| {
        if !detail.is_empty() {
            let count = detail.len();
            let check = checks.add(code, Severity::Warn, format!("{count} {text}"), count as i64);
            check.detail = detail;
        }
    };
    add("SMALLER_PGP_NUM", "pools have pg_num > pgp_num", smaller);
    add("MANY_OBJECTS_PER_PG", "pools have many more objects per pg than average", many);
    if config.bool("mon_warn_on_pool_no_app") {
        add("POOL_APP_NOT_ENABLED", "pool(s) do not have an application enabled", no_app);
        if let Some(check) = checks.checks.get_mut("POOL_APP_NOT_ENABLED") {
            check.detail.push(
                "use 'ceph osd pool application enable <pool-name> <app-name>', where \
                 <app-name> is 'cephfs', 'rbd', 'rgw', or freeform for custom applications."
                    .to_owned(),
            );
        }
    }
    of_quotas(pgs, map, config, checks);
}

/// Pools whose content nears their quota. (Those that have reached it are the monitors' finding.)
fn of_quotas(pgs: &PgMap, map: &OsdMap, config: &Config, checks: &mut HealthCheckMap) {
    let threshold = |name: &str| config.int(name) as f32 / 100.0;
    let warn = threshold("mon_pool_quota_warn_threshold");
    let crit = threshold("mon_pool_quota_crit_threshold");
    let (mut full, mut near) = (Vec::new(), Vec::new());
    for (id, pool) in &map.pools {
        let Some(stat) = pgs.digest.pg_pool_sum.get(&(*id as i32)) else { continue };
        let name = pool_name(map, *id);
        let sum = &stat.stats.sum;
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        let quotas = [
            (
                count(sum.num_objects),
                pool.quota_max_objects,
                format!("{} objects (max {})", sum.num_objects, pool.quota_max_objects),
            ),
            (
                count(sum.num_bytes),
                pool.quota_max_bytes,
                format!("{} (max {})", ByteU(count(sum.num_bytes)), ByteU(pool.quota_max_bytes)),
            ),
        ];
        for (has, max, text) in quotas {
            if max == 0 || has >= max {
                continue;
            }
            let reaches = |share: f32| share > 0.0 && has as f32 >= max as f32 * share;
            let text = format!("pool '{name}' has {text}");
            if reaches(crit) {
                full.push(text);
            } else if reaches(warn) {
                near.push(text);
            }
        }
    }
    for (code, severity, word, detail) in [
        ("POOL_FULL", Severity::Err, "full", full),
        ("POOL_NEAR_FULL", Severity::Warn, "nearfull", near),
    ] {
        if !detail.is_empty() {
            let text = format!("{} pools {word}", detail.len());
            let count = detail.len() as i64;
            checks.add(code, severity, text, count).detail = detail;
        }
    }
}

fn of_stores(pgs: &PgMap, config: &Config, checks: &mut HealthCheckMap) {
    let limit = config.uint("mon_osd_warn_num_repaired");
    let repaired: Vec<String> = pgs
        .osd_stat
        .iter()
        .filter(|(_, stat)| stat.num_shards_repaired > limit)
        .map(|(osd, stat)| format!("osd.{osd} had {} reads repaired", stat.num_shards_repaired))
        .collect();
    if !repaired.is_empty() {
        let text = format!("Too many repaired reads on {} OSDs", repaired.len());
        let count = repaired.len() as i64;
        checks.add("OSD_TOO_MANY_REPAIRS", Severity::Warn, text, count).detail = repaired;
    }
    let mut alerts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (osd, of_osd) in &pgs.digest.osd_sum.os_alerts {
        for (code, text) in of_osd {
            alerts.entry(code).or_default().push(format!(" osd.{osd} {text}"));
        }
    }
    for (code, detail) in alerts {
        let text = format!("{} OSD(s) reporting {code}", detail.len());
        let count = detail.len() as i64;
        checks.add(code, Severity::Warn, text, count).detail = detail;
    }
}

/// Microseconds from which a heartbeat is slow.
pub(crate) fn slow_ping_us(config: &Config) -> u64 {
    ping_times::slow_threshold_us(
        config.float("mon_warn_on_slow_ping_time"),
        config.float("mon_warn_on_slow_ping_ratio"),
        config.float("osd_heartbeat_grace"),
    )
}

/// Where an OSD is, above its host and below the root: `dc1,rack1`.
fn parentage(map: &OsdMap, osd: OsdId) -> String {
    let mut places = map.crush.full_location(osd);
    places.retain(|(kind, _)| kind != "root" && kind != "host");
    places.sort();
    places.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(",")
}

fn of_pings(pgs: &PgMap, map: &OsdMap, config: &Config, now: UTime, checks: &mut HealthCheckMap) {
    const DETAIL_MAX: usize = 10;
    let threshold = slow_ping_us(config);
    if threshold == 0 {
        return;
    }
    // What was measured that many graces ago says nothing of now.
    let old = config.uint("osd_heartbeat_grace") * 60;
    let slow: Vec<Ping<'_>> = pgs
        .osd_stat
        .iter()
        .flat_map(|(osd, stat)| ping_times::pings_of(*osd, &stat.hb_pingtime))
        .filter(|p| u64::from(p.worst_us) > threshold)
        .filter(|p| u64::from(now.sec).saturating_sub(p.last_update.into()) <= old)
        .collect();
    for (code, interface, back) in
        [("OSD_SLOW_PING_TIME_BACK", "back", true), ("OSD_SLOW_PING_TIME_FRONT", "front", false)]
    {
        let mut slow: Vec<&Ping<'_>> = slow.iter().filter(|p| p.back == back).collect();
        slow.sort_by_key(|p| std::cmp::Reverse((p.worst_us, p.from, p.to)));
        let Some(longest) = slow.first() else { continue };
        let text = format!(
            "Slow OSD heartbeats on {interface} (longest {}ms)",
            ping_times::millis(longest.worst_us)
        );
        let check = checks.add(code, Severity::Warn, text, slow.len() as i64);
        let osd = |id: OsdId| {
            let down = if map.is_down(id) { " (down)" } else { "" };
            format!("osd.{id} [{}]{down}", parentage(map, id))
        };
        for p in slow.iter().take(DETAIL_MAX) {
            check.detail.push(format!(
                "Slow OSD heartbeats on {interface} from {} to {} {} msec{}",
                osd(p.from),
                osd(p.to),
                ping_times::millis(p.worst_us),
                if p.improving() { " possibly improving" } else { "" }
            ));
        }
        if slow.len() > DETAIL_MAX {
            check.detail.push(
                "Truncated long network list.  Use ceph daemon mgr.# dump_osd_network for more \
                 information"
                    .to_owned(),
            );
        }
    }
}

/// Kinds of daemons' own metrics.
const METRIC_SLOW_OPS: u8 = 0;
const METRIC_PENDING_CREATING_PGS: u8 = 1;

/// What daemons say of themselves.
pub(crate) fn of_daemons(daemons: &Daemons, checks: &mut HealthCheckMap) {
    let (mut slow, mut oldest, mut slow_who) = (0_u64, 0_u64, Vec::new());
    let (mut pending, mut pending_who) = (0_u64, Vec::new());
    for (key, daemon) in daemons.iter() {
        for metric in &daemon.health {
            let (low, high) = (metric.value & 0xffff_ffff, metric.value >> 32);
            match metric.kind {
                METRIC_SLOW_OPS if low != 0 => {
                    slow += low;
                    oldest = oldest.max(high);
                    slow_who.push(key.text());
                }
                METRIC_PENDING_CREATING_PGS if low != 0 => {
                    pending += low;
                    pending_who.push(key.text());
                }
                _ => {}
            }
        }
    }
    if slow > 0 {
        let who = match slow_who.as_slice() {
            [one] => format!("{one} has slow ops"),
            many => {
                let shown = many.iter().take(10).cloned().collect::<Vec<_>>().join(",");
                let more = if many.len() > 10 { "..." } else { "" };
                format!("daemons [{shown}]{more} have slow ops.")
            }
        };
        let text = format!("{slow} slow ops, oldest one blocked for {oldest} sec, {who}");
        checks.add("SLOW_OPS", Severity::Warn, text, slow_who.len() as i64);
    }
    if pending > 0 {
        let text = format!("{pending} PGs pending on creation");
        let check = checks.add("PENDING_CREATING_PGS", Severity::Warn, text, pending as i64);
        let who = pending_who.join(",");
        check.detail.push(format!("osds [{who}] have pending PGs."));
    }
}

#[cfg(test)]
mod tests {
    use maps::PgPool;
    use maps::pool::PoolOpt;
    use types::osd::osd_stat::Minutes;
    use types::osd::{OsdStat, PingTimes};

    use super::*;

    #[test]
    fn slow_heartbeats_are_a_finding() {
        let now = UTime { sec: 1_795_232_811, nsec: 0 };
        let ping = |back: u32, age: u32| PingTimes {
            last_update: now.sec - age,
            back_pingtime: Minutes([back, back + 1, back + 2]),
            back_last: back,
            front_pingtime: Minutes([9, 9, 9]),
            front_last: 9,
            ..PingTimes::default()
        };
        let config = Config::new("mgr", "x");
        let mut pgs = PgMap::default();
        // The default: a 20th of the grace of 20 s. What is an hour old does not count.
        let times = [(1, ping(1_118_001, 5)), (2, ping(900_000, 5)), (3, ping(7_000_000, 3600))];
        let stat = OsdStat { hb_pingtime: times.into(), ..OsdStat::default() };
        pgs.osd_stat.insert(0, stat);
        let mut checks = HealthCheckMap::default();
        of_pings(&pgs, &OsdMap::default(), &config, now, &mut checks);
        assert_eq!(checks.checks.len(), 1);
        let check = &checks.checks["OSD_SLOW_PING_TIME_BACK"];
        assert_eq!(check.summary, "Slow OSD heartbeats on back (longest 1118.003ms)");
        assert_eq!(check.detail.len(), 1);
        assert!(check.detail[0].ends_with(" 1118.003 msec possibly improving"), "{check:?}");
    }

    /// Pools' own intervals did not count: one that is scrubbed every two months was a warning from the second week
    /// on. And an interval of more seconds than a `Duration` holds ended the manager.
    #[test]
    fn scrubs_are_late_by_the_pool_s_own_interval() {
        const DAY: u32 = 86_400;
        let now = UTime { sec: 1_795_232_811, nsec: 0 };
        let config = Config::new("mgr", "x");
        let (mut map, mut pgs) = (OsdMap::default(), PgMap::default());
        for (pool, deep_interval) in [(1, None), (2, Some(60.0)), (3, Some(1.0))] {
            let mut p = PgPool::default();
            if let Some(days) = deep_interval {
                let value = PoolOpt::Double(days * f64::from(DAY));
                p.opts.0.insert(pool_opts::DEEP_SCRUB_INTERVAL, value);
            }
            map.pools.insert(pool, p);
            for (seed, age) in [(0, 1), (1, 5), (2, 30), (3, 200)] {
                let stamp = UTime { sec: now.sec - age * DAY, nsec: 0 };
                let pg = PgStat {
                    state: pg_state::ACTIVE,
                    last_scrub_stamp: now,
                    last_deep_scrub_stamp: stamp,
                    ..PgStat::default()
                };
                pgs.pg_stat.insert(PgId::new(pool as u64, seed), pg);
            }
        }
        // By default a week, and three quarters of it.
        let late = |config: &Config| {
            let mut checks = HealthCheckMap::default();
            of_scrubs(&pgs, &map, config, now, &mut checks);
            let check = checks.checks.remove("PG_NOT_DEEP_SCRUBBED");
            let named = |line: &String| line.split(' ').nth(1).unwrap_or_default().to_owned();
            check.map(|check| check.detail.iter().map(named).collect::<Vec<_>>())
        };
        assert_eq!(late(&config).unwrap(), ["1.2", "1.3", "2.3", "3.1", "3.2", "3.3"]);
        for long in ["1.5e19", "1e300"] {
            config.set("osd_deep_scrub_interval", long, config::Source::Override).unwrap();
            assert_eq!(late(&config).unwrap(), ["2.3", "3.1", "3.2", "3.3"]);
        }
    }
}
