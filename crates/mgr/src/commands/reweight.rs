//! `osd [test-]reweight-by-utilization`, `osd [test-]reweight-by-pg`: weights that would bring
//! overfull OSDs nearer to the average, and what they would move (`src/mon/PGMap.cc`,
//! `OSDMap::summarize_mapping_stats` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use command::{CommandMap, CommandReply, Formatter, format_g};
use config::Config;
use maps::OsdMap;
use maps::osdmap::WEIGHT_IN;
use maps::pgmap::PgMap;
use types::{OsdId, PgId};

use super::{EINVAL, ENOENT};
use crate::daemon::Mgr;

const EDOM: i32 = 33;
/// Digits of numbers in text, as C++ streams have them.
const DIGITS: usize = 6;

/// What is asked for.
struct Wish {
    /// Percent of the average above which an OSD is overloaded.
    oload: i64,
    max_change: f64,
    max_osds: usize,
    by_pg: bool,
    pools: Option<BTreeSet<i64>>,
    no_increasing: bool,
}

/// What comes of it.
struct Plan {
    average: f64,
    overload: f64,
    /// OSD to (weight, new weight), 16.16, in the order in which they were chosen.
    changes: Vec<(OsdId, u32, u32)>,
}

fn as_float(weight: u32) -> f64 {
    f64::from(weight) / f64::from(WEIGHT_IN)
}

fn crush_weight(map: &OsdMap, osd: OsdId) -> f64 {
    f64::from(map.crush.weight_of(osd).unwrap_or(0)) / 65536.0
}

fn pgs_by_osd(pgs: &PgMap, map: &OsdMap, wish: &Wish) -> BTreeMap<OsdId, u64> {
    let mut counts = BTreeMap::new();
    for (pgid, stat) in &pgs.pg_stat {
        if wish.pools.as_ref().is_some_and(|pools| !pools.contains(&pgid.pool_id())) {
            continue;
        }
        for osd in stat.acting.iter().filter(|osd| map.exists(**osd)) {
            if crush_weight(map, *osd) > 0.0 {
                *counts.entry(*osd).or_default() += 1;
            }
        }
    }
    counts
}

/// The average, and each OSD's share of it; the text of a refusal.
fn utilizations(
    mgr: &Mgr,
    pgs: &PgMap,
    map: &OsdMap,
    wish: &Wish,
) -> Result<(f64, Vec<(OsdId, f64)>), String> {
    if wish.by_pg {
        let counts = pgs_by_osd(pgs, map, wish);
        let copies: u64 = counts.values().sum();
        let min = mgr.config.uint("mon_reweight_min_pgs_per_osd");
        if counts.is_empty() || copies / (counts.len() as u64) < min {
            let osds = counts.len();
            return Err(format!(
                "Refusing to reweight: we only have {copies} PGs across {osds} osds!\n"
            ));
        }
        let weights: f64 = counts.keys().map(|osd| crush_weight(map, *osd)).sum();
        let each = counts.iter().map(|(osd, n)| (*osd, *n as f64 / crush_weight(map, *osd)));
        return Ok((copies as f64 / weights, each.collect()));
    }
    let sum = &pgs.digest.osd_sum.statfs;
    let osds = pgs.osd_stat.len().max(1) as u64;
    let min = mgr.config.uint("mon_reweight_min_bytes_per_osd");
    if sum.total / osds < min {
        let kb = sum.kb();
        return Err(format!("Refusing to reweight: we only have {kb} kb across all osds!\n"));
    }
    if sum.used_raw() / osds < min {
        let kb = sum.kb_used_raw();
        return Err(format!("Refusing to reweight: we only have {kb} kb used across all osds!\n"));
    }
    let share = |used: u64, total: u64| used as f64 / total.max(1) as f64;
    let each = pgs
        .osd_stat
        .iter()
        .map(|(osd, stat)| (*osd, share(stat.statfs.used_raw(), stat.statfs.total)));
    Ok((share(sum.used_raw(), sum.total), each.collect()))
}

impl Plan {
    fn new(mgr: &Mgr, pgs: &PgMap, map: &OsdMap, wish: &Wish) -> Result<Plan, String> {
        let (average, mut each) = utilizations(mgr, pgs, map, wish)?;
        let overload = average * wish.oload as f64 / 100.0;
        each.sort_by(|(_, a), (_, b)| (b - average).abs().total_cmp(&(a - average).abs()));
        let max_change = (wish.max_change * f64::from(WEIGHT_IN)) as u32;
        let mut changes = Vec::new();
        for (osd, utilization) in each {
            let weight = map.weight(osd);
            if weight == 0 || utilization <= 0.0 {
                continue;
            }
            let ideal = (average / utilization * f64::from(weight)) as u32;
            if utilization >= overload {
                let new = ideal.max(weight.saturating_sub(max_change));
                changes.push((osd, weight, new));
            } else if !wish.no_increasing && utilization <= average {
                let new = ideal.min(weight.saturating_add(max_change)).min(WEIGHT_IN);
                if new > weight {
                    changes.push((osd, weight, new));
                }
            }
            if changes.len() >= wish.max_osds {
                break;
            }
        }
        Ok(Plan { average, overload, changes })
    }
}

/// How PGs lie before and after a change of weights.
struct Moves {
    total: u64,
    moved: u64,
    /// OSDs that are up and in, with their PGs before and after.
    osds: Vec<(OsdId, u64, u64)>,
}

impl Moves {
    fn new(map: &OsdMap, plan: &Plan, pools: Option<&BTreeSet<i64>>) -> Moves {
        let mut next = map.clone();
        for (osd, _, new) in &plan.changes {
            if let Some(weight) =
                usize::try_from(*osd).ok().and_then(|i| next.osd_weight.get_mut(i))
            {
                *weight = *new;
            }
        }
        let (mut total, mut moved) = (0, 0);
        let mut before: BTreeMap<OsdId, u64> = BTreeMap::new();
        let mut after: BTreeMap<OsdId, u64> = BTreeMap::new();
        for (id, pool) in &map.pools {
            if pools.is_some_and(|pools| !pools.contains(id)) {
                continue;
            }
            for seed in 0..pool.pg_num {
                let pgid = PgId::new(*id as u64, seed);
                total += u64::from(pool.size);
                let (old, new) = (map.pg_to_up_acting(pgid).up, next.pg_to_up_acting(pgid).up);
                old.iter().for_each(|osd| *before.entry(*osd).or_default() += 1);
                new.iter().for_each(|osd| *after.entry(*osd).or_default() += 1);
                moved += if pool.is_erasure() {
                    old.iter().zip(&new).filter(|(a, b)| a != b).count() as u64
                } else {
                    old.iter().filter(|osd| !new.contains(osd)).count() as u64
                };
            }
        }
        let count = |counts: &BTreeMap<OsdId, u64>, osd| counts.get(&osd).copied().unwrap_or(0);
        let osds = map
            .up_osds()
            .filter(|osd| map.is_in(*osd))
            .map(|osd| (osd, count(&before, osd), count(&after, osd)))
            .collect();
        Moves { total, moved, osds }
    }

    fn average(&self) -> f32 {
        self.total as f32 / self.osds.len().max(1) as f32
    }

    fn deviation(&self, of: impl Fn(&(OsdId, u64, u64)) -> u64) -> f32 {
        let average = self.average();
        let squares: f32 = self.osds.iter().map(|osd| (of(osd) as f32 - average).powi(2)).sum();
        (squares / self.osds.len().max(1) as f32).sqrt()
    }

    fn expected_deviation(&self) -> f32 {
        let share = 1.0 - 1.0 / self.osds.len().max(1) as f64;
        (f64::from(self.average()) * share).sqrt() as f32
    }

    /// The OSDs with fewest and most PGs, the first of each.
    fn extremes(&self) -> Option<[(&'static str, (OsdId, u64, u64)); 2]> {
        let min = self.osds.iter().min_by_key(|(_, before, _)| *before)?;
        let max = self.osds.iter().rev().max_by_key(|(_, before, _)| *before)?;
        Some([("min", *min), ("max", *max)])
    }

    fn text(&self) -> String {
        let g = |value: f32| format_g(f64::from(value), DIGITS);
        let average = self.average();
        let percent = self.moved as f32 * 100.0 / self.total.max(1) as f32;
        let mut out = format!("moved {} / {} ({}%)\n", self.moved, self.total, g(percent));
        out += &format!("avg {}\n", g(average));
        out += &format!(
            "stddev {} -> {} (expected baseline {})\n",
            g(self.deviation(|osd| osd.1)),
            g(self.deviation(|osd| osd.2)),
            g(self.expected_deviation())
        );
        for (word, (osd, before, after)) in self.extremes().into_iter().flatten() {
            out += &format!(
                "{word} osd.{osd} with {before} -> {after} pgs ({} -> {} * mean)\n",
                g(before as f32 / average),
                g(after as f32 / average)
            );
        }
        out
    }

    fn dump(&self, f: &mut Formatter) {
        f.object("utilization", |f| {
            f.dump_unsigned("moved_pgs", self.moved);
            f.dump_unsigned("total_pgs", self.total);
            f.dump_float("avg_pgs", self.average().into());
            f.dump_float("std_dev", self.deviation(|osd| osd.1).into());
            f.dump_float("expected_baseline_std_dev", self.expected_deviation().into());
            f.dump_float("new_std_dev", self.deviation(|osd| osd.2).into());
            for (word, (osd, before, after)) in self.extremes().into_iter().flatten() {
                f.dump_int(&format!("{word}_osd"), osd);
                f.dump_unsigned(&format!("{word}_osd_pgs"), before);
                f.dump_unsigned(&format!("new_{word}_osd_pgs"), after);
            }
        });
    }
}

fn wish_of(map: &CommandMap, osdmap: &OsdMap, config: &Config) -> Result<Wish, CommandReply> {
    let bad = |error: command::BadArgument| CommandReply::error(EINVAL, error.to_string());
    let oload = map.opt_int("oload").map_err(bad)?.unwrap_or(120);
    if oload <= 100 {
        let text = "You must give a percentage higher than 100. The reweighting threshold will \
            be calculated as <average-utilization> times <input-percentage>. For example, an \
            argument of 200 would reweight OSDs which are twice as utilized as the average OSD.\n\
            FAILED reweight-by-pg";
        return Err(CommandReply::error(EINVAL, text));
    }
    let max_change = map.opt_float("max_change").map_err(bad)?;
    let max_change = max_change.unwrap_or_else(|| config.float("mon_reweight_max_change"));
    if max_change <= 0.0 {
        return Err(CommandReply::error(
            EINVAL,
            format!("max_change {max_change} must be positive"),
        ));
    }
    let max_osds = map.opt_int("max_osds").map_err(bad)?;
    let max_osds = max_osds.unwrap_or_else(|| config.int("mon_reweight_max_osds"));
    let max_osds = usize::try_from(max_osds).ok().filter(|n| *n > 0).ok_or_else(|| {
        CommandReply::error(EINVAL, format!("max_osds {max_osds} must be positive"))
    })?;
    let mut pools = BTreeSet::new();
    for name in map.strings("pools").map_err(bad)? {
        let missing = || CommandReply::error(ENOENT, format!("pool '{name}' does not exist"));
        pools.insert(osdmap.lookup_pool(&name).ok_or_else(missing)?);
    }
    Ok(Wish {
        oload,
        max_change,
        max_osds,
        by_pg: map.prefix().ends_with("by-pg"),
        pools: (!pools.is_empty()).then_some(pools),
        no_increasing: map.contains("no_increasing"),
    })
}

/// Answers the four commands; those without `test-` have the monitors set the weights.
pub(super) async fn run(mgr: &Mgr, map: &CommandMap) -> CommandReply {
    let osdmap = mgr.osdmaps.current();
    let wish = match wish_of(map, &osdmap, &mgr.config) {
        Ok(wish) => wish,
        Err(reply) => return reply,
    };
    let plan = {
        let cluster = mgr.cluster.borrow();
        Plan::new(mgr, &cluster.pg_map, &osdmap, &wish)
    };
    let plan = match plan {
        Ok(plan) => plan,
        Err(text) => return CommandReply::error(EDOM, format!("{text}FAILED reweight-by-pg")),
    };
    let moves = Moves::new(&osdmap, &plan, wish.pools.as_ref());
    let outb: Bytes = if map.format().is_plain() {
        text_of(&wish, &plan, &moves).into()
    } else {
        let mut f = Formatter::new(map.format());
        f.object("reweight_by_utilization", |f| dump(f, &wish, &plan, &moves));
        f.finish().into()
    };
    if plan.changes.is_empty() || map.prefix().starts_with("osd test-") {
        return CommandReply { rc: 0, outs: "no change".to_owned(), outb };
    }
    let weights: BTreeMap<String, String> =
        plan.changes.iter().map(|(osd, _, new)| (osd.to_string(), new.to_string())).collect();
    let command = serde_json::json!({
        "prefix": "osd reweightn",
        "weights": serde_json::to_string(&weights).unwrap_or_default(),
    });
    match mgr.monc.command(vec![command.to_string()], Bytes::new()).await {
        Ok(answer) => CommandReply { rc: answer.rc, outs: answer.outs, outb },
        Err(error) => CommandReply::error(super::EAGAIN, error.to_string()),
    }
}

fn text_of(wish: &Wish, plan: &Plan, moves: &Moves) -> String {
    let mut out = format!("{}\n", moves.text());
    out += &format!("oload {}\n", wish.oload);
    out += &format!("max_change {}\n", format_g(wish.max_change, DIGITS));
    out += &format!("max_change_osds {}\n", wish.max_osds);
    out += &format!("average_utilization {:.4}\n", plan.average);
    out += &format!("overload_utilization {:.4}\n", plan.overload);
    for (osd, old, new) in &plan.changes {
        out += &format!("osd.{osd} weight {:.4} -> {:.4}\n", as_float(*old), as_float(*new));
    }
    out
}

fn dump(f: &mut Formatter, wish: &Wish, plan: &Plan, moves: &Moves) {
    f.dump_int("overload_min", wish.oload);
    f.dump_float("max_change", wish.max_change);
    f.dump_unsigned("max_change_osds", wish.max_osds as u64);
    f.dump_float("average_utilization", plan.average);
    f.dump_float("overload_utilization", plan.overload);
    f.array("reweights", |f| {
        for (osd, old, new) in &plan.changes {
            f.object("osd", |f| {
                f.dump_int("osd", *osd);
                f.dump_float("weight", as_float(*old));
                f.dump_float("new_weight", as_float(*new));
            });
        }
    });
    moves.dump(f);
}

#[cfg(test)]
mod tests {
    use config::Source;

    use super::*;

    /// `mon_reweight_max_change` and `mon_reweight_max_osds` had no effect.
    #[test]
    fn who_says_no_bounds_gets_those_that_are_set() {
        let config = Config::new("mgr", "x");
        let bounds = |config: &Config, command: &str| {
            let map = CommandMap::parse(&[command.to_owned()]).unwrap();
            let wish = wish_of(&map, &OsdMap::default(), config);
            wish.map(|wish| (wish.max_change, wish.max_osds)).map_err(|refused| refused.outs)
        };
        let plain = r#"{"prefix": "osd reweight-by-utilization"}"#;
        assert_eq!(bounds(&config, plain), Ok((0.05, 4)));
        config.set("mon_reweight_max_change", "0.2", Source::Mon).unwrap();
        config.set("mon_reweight_max_osds", "7", Source::Mon).unwrap();
        assert_eq!(bounds(&config, plain), Ok((0.2, 7)));
        let said = r#"{"prefix": "osd reweight-by-pg", "max_change": 0.1, "max_osds": 2}"#;
        assert_eq!(bounds(&config, said), Ok((0.1, 2)));
        config.set("mon_reweight_max_osds", "0", Source::Mon).unwrap();
        assert_eq!(bounds(&config, plain), Err("max_osds 0 must be positive".to_owned()));
    }
}
