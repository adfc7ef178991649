//! How even the data lies: Ceph's score, 0 (even) to 1, the mean over PGs, objects and bytes of
//! what the fuller OSDs have too much, of each root from which rules take
//! (`Module.calc_eval` and `Eval.calc_stats` in `src/pybind/mgr/balancer` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use maps::osdmap::WEIGHT_IN;
use maps::pgmap::PgMap;
use maps::{OsdMap, PgPool};
use types::{OsdId, PgId};

/// The error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26), for x of 0 and more.
fn erf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = series.into_iter().fold(0.0, |sum, a| (sum + a) * t);
    1.0 - sum * (-x * x).exp()
}

/// What is counted, in this order.
const METRICS: [&str; 3] = ["pgs", "objects", "bytes"];

/// PGs, objects and bytes.
type Amounts = [u64; 3];
/// Of each OSD.
type Counts = BTreeMap<OsdId, Amounts>;

/// How one of the three lies on a root's OSDs.
#[derive(Debug, Default, Clone, PartialEq)]
struct Stats {
    max: u64,
    min: u64,
    average: f64,
    deviation: f64,
    /// What share of the root should be on OSDs that have too much.
    fuller: f64,
    score: f64,
}

impl Stats {
    /// `shares`: what part each OSD should have.
    fn of(metric: usize, counts: &Counts, shares: &BTreeMap<OsdId, f64>) -> Option<Stats> {
        let amount = |osd: &OsdId| counts.get(osd).map_or(0, |amounts| amounts[metric]);
        let total: u64 = shares.keys().map(amount).sum();
        if total == 0 {
            return None;
        }
        let num = shares.len().max(1) as f64;
        let average = total as f64 / num;
        let (mut sum, mut fuller, mut squares) = (0.0, 0.0, 0.0);
        for (osd, share) in shares {
            let adjusted = amount(osd) as f64 / share / num;
            if adjusted > average {
                sum += share * erf((adjusted - average) / average / std::f64::consts::SQRT_2);
                fuller += share;
            }
            squares += (average - adjusted).powi(2);
        }
        Some(Stats {
            max: shares.keys().map(amount).max().unwrap_or(0),
            min: shares.keys().map(amount).min().unwrap_or(0),
            average,
            deviation: (squares / f64::max(num - 1.0, 1.0)).sqrt(),
            fuller,
            score: sum / f64::max(fuller, 1.0),
        })
    }
}

/// What lies below a root.
#[derive(Debug, Default)]
struct Root {
    shares: BTreeMap<OsdId, f64>,
    counts: Counts,
    total: Amounts,
}

/// What a pool has.
#[derive(Debug, Default)]
struct Pool {
    counts: Counts,
    total: Amounts,
}

/// How even the data of some pools lies.
#[derive(Debug, Default)]
pub(crate) struct Eval {
    roots: BTreeMap<String, Root>,
    pools: BTreeMap<String, Pool>,
}

fn add(to: &mut Amounts, amounts: Amounts) {
    to.iter_mut().zip(amounts).for_each(|(to, n)| *to += n);
}

impl Root {
    fn of(map: &OsdMap, take: i32) -> Root {
        let weight = |(osd, weight): (OsdId, f32)| {
            (osd, f64::from(weight) * f64::from(map.weight(osd)) / f64::from(WEIGHT_IN))
        };
        let weights = map.crush.device_weights_under(take).0.into_iter().map(weight);
        let weights: Vec<_> =
            weights.filter(|(osd, weight)| map.exists(*osd) && *weight > 0.0).collect();
        let sum: f64 = weights.iter().map(|(_, weight)| weight).sum();
        let shares: BTreeMap<OsdId, f64> =
            weights.into_iter().map(|(osd, weight)| (osd, weight / sum)).collect();
        let counts = shares.keys().map(|osd| (*osd, Amounts::default())).collect();
        Root { shares, counts, total: Amounts::default() }
    }

    fn stats(&self, metric: usize) -> Option<Stats> {
        Stats::of(metric, &self.counts, &self.shares)
    }
}

/// The buckets that a pool's rule takes.
fn takes<'a>(map: &'a OsdMap, pool: &PgPool) -> impl Iterator<Item = i32> + use<'a> {
    let rule = map.crush.rule(i32::from(pool.crush_rule));
    let steps = rule.map(|rule| &rule.steps[..]).unwrap_or_default();
    steps.iter().filter(|step| step.op == crush::op::TAKE).map(|step| step.arg1)
}

impl Eval {
    /// Of these pools together, by their placement in `map`.
    pub(crate) fn of(map: &OsdMap, pgs: &PgMap, pools: &BTreeSet<i64>) -> Eval {
        let mut eval = Eval::default();
        for (id, pool) in map.pools.iter().filter(|(id, _)| pools.contains(id)) {
            let roots: Vec<String> = takes(map, pool)
                .filter_map(|take| {
                    let name = map.crush.name_of(take)?.to_owned();
                    eval.roots.entry(name.clone()).or_insert_with(|| Root::of(map, take));
                    Some(name)
                })
                .collect();
            let name = map.pool_names.get(id).cloned().unwrap_or_default();
            let counted = eval.pools.entry(name).or_default();
            let Ok(id) = u64::try_from(*id) else { continue };
            for pgid in (0..pool.pg_num).map(|seed| PgId::new(id, seed)) {
                let sum = pgs.pg_stat.get(&pgid).map(|stat| &stat.stats.sum);
                let count = |n: Option<i64>| n.and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
                let amounts =
                    [1, count(sum.map(|sum| sum.num_objects)), count(sum.map(|sum| sum.num_bytes))];
                for osd in map.pg_to_up_acting(pgid).up.into_iter().filter(|osd| map.exists(*osd)) {
                    add(counted.counts.entry(osd).or_default(), amounts);
                    // It counts for the first of the pool's roots that it is below.
                    let below = |name: &&String| eval.roots[*name].shares.contains_key(&osd);
                    let Some(name) = roots.iter().find(below) else { continue };
                    let Some(root) = eval.roots.get_mut(name) else { continue };
                    add(root.counts.entry(osd).or_default(), amounts);
                    add(&mut root.total, amounts);
                    add(&mut counted.total, amounts);
                }
            }
        }
        eval
    }

    /// The mean of all roots' scores.
    pub(crate) fn score(&self) -> f64 {
        let of_root = |root: &Root| {
            (0..METRICS.len())
                .filter_map(|metric| root.stats(metric))
                .map(|stats| stats.score)
                .sum::<f64>()
        };
        // The sum of nothing is -0.
        let sum = self.roots.values().map(of_root).fold(0.0, |sum, score| sum + score);
        sum / (METRICS.len() * self.roots.len()).max(1) as f64
    }

    /// All that it comes from, in the form in which Python prints dictionaries.
    pub(crate) fn text(&self) -> String {
        let roots = |value: &dyn Fn(&Root) -> String| dict(&self.roots, |_, root| value(root));
        let pools = |value: &dyn Fn(&Pool) -> String| dict(&self.pools, |_, pool| value(pool));
        let whole = |n: u64, _: u64| n.to_string();
        let whole_float = |n: u64, _: u64| float(n as f64);
        let part = |n: u64, total: u64| float(n as f64 / total.max(1) as f64);
        let stats = |root: &Root, show: &dyn Fn(Option<Stats>) -> String| {
            by_metric(|metric| show(root.stats(metric)))
        };
        [
            ("target_by_root", roots(&|root| dict_of_osds(&root.shares, |share| float(*share)))),
            ("actual_by_pool", pools(&|pool| by_osd(&pool.counts, &pool.total, part))),
            ("actual_by_root", roots(&|root| by_osd(&root.counts, &root.total, part))),
            ("count_by_pool", pools(&|pool| by_osd(&pool.counts, &pool.total, whole))),
            ("count_by_root", roots(&|root| by_osd(&root.counts, &root.total, whole_float))),
            ("total_by_pool", pools(&|pool| by_metric(|metric| pool.total[metric].to_string()))),
            ("total_by_root", roots(&|root| by_metric(|metric| root.total[metric].to_string()))),
            ("stats_by_root", roots(&|root| stats(root, &stats_text))),
            // Ceph's module computes none.
            ("score_by_pool", "{}".to_owned()),
            ("score_by_root", roots(&|root| stats(root, &score_text))),
        ]
        .map(|(name, text)| format!("{name} {text}\n"))
        .concat()
    }
}

fn stats_text(stats: Option<Stats>) -> String {
    let Some(Stats { max, min, average, deviation, fuller, score }) = stats else {
        return "{'max': 0, 'min': 0, 'avg': 0, 'stddev': 0, 'sum_weight': 0, 'score': 0}"
            .to_owned();
    };
    let [max, min] = [max, min].map(|n| float(n as f64));
    let [average, deviation, fuller, score] = [average, deviation, fuller, score].map(float);
    format!(
        "{{'max': {max}, 'min': {min}, 'avg': {average}, 'stddev': {deviation}, 'sum_weight': {fuller}, 'score': {score}}}"
    )
}

fn score_text(stats: Option<Stats>) -> String {
    stats.map_or("0".to_owned(), |stats| float(stats.score))
}

/// A dictionary with names for keys.
fn dict<T>(of: &BTreeMap<String, T>, value: impl Fn(&String, &T) -> String) -> String {
    let pair = |(name, of): (&String, &T)| format!("{}: {}", quoted(name), value(name, of));
    format!("{{{}}}", of.iter().map(pair).collect::<Vec<_>>().join(", "))
}

fn dict_of_osds<T>(of: &BTreeMap<OsdId, T>, value: impl Fn(&T) -> String) -> String {
    let pair = |(osd, of): (&OsdId, &T)| format!("{osd}: {}", value(of));
    format!("{{{}}}", of.iter().map(pair).collect::<Vec<_>>().join(", "))
}

fn by_metric(value: impl Fn(usize) -> String) -> String {
    let pair = |(metric, name): (usize, &&str)| format!("'{name}': {}", value(metric));
    format!("{{{}}}", METRICS.iter().enumerate().map(pair).collect::<Vec<_>>().join(", "))
}

fn by_osd(counts: &Counts, total: &Amounts, value: impl Fn(u64, u64) -> String) -> String {
    by_metric(|metric| dict_of_osds(counts, |amounts| value(amounts[metric], total[metric])))
}

fn quoted(name: &str) -> String {
    format!("'{}'", name.replace('\\', "\\\\").replace('\'', "\\'"))
}

/// A number as Python prints it.
fn float(n: f64) -> String {
    if n != 0.0 && n.abs() < 1e-4 {
        let text = format!("{n:e}");
        let (mantissa, exponent) = text.split_once("e-").unwrap_or((&text, "0"));
        return format!("{mantissa}e-{exponent:0>2}");
    }
    format!("{n:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_function_is_right() {
        for (x, y) in [(0.0, 0.0), (0.5, 0.520_499_878), (1.0, 0.842_700_793), (2.5, 0.999_593_048)]
        {
            assert!((erf(x) - y).abs() < 2e-7, "erf({x}) = {}", erf(x));
        }
    }

    /// `balancer eval` of a cluster without pools said -0.000000.
    #[test]
    fn nothing_is_even() {
        let eval = Eval::of(&OsdMap::default(), &PgMap::default(), &BTreeSet::new());
        assert_eq!(format!("{:.6}", eval.score()), "0.000000");
        assert!(eval.text().starts_with("target_by_root {}\nactual_by_pool {}\n"));
    }

    #[test]
    fn even_is_nought_and_uneven_is_more() {
        let of = |counts: &[(OsdId, Amounts)]| {
            let shares = BTreeMap::from([(0, 0.5), (1, 0.5)]);
            let root =
                Root { shares, counts: counts.iter().copied().collect(), total: [16, 0, 1600] };
            Eval { roots: [("default".to_owned(), root)].into(), pools: BTreeMap::new() }
        };
        assert!(of(&[(0, [8, 0, 800]), (1, [8, 0, 800])]).score() < 1e-6);
        // All on one of two: half the weight has twice the average. There are no objects.
        let uneven = of(&[(0, [16, 0, 1600])]);
        assert!((uneven.score() - 0.5 * 0.682_689_492 * 2.0 / 3.0).abs() < 1e-6);
        // `balancer eval-verbose` was not there.
        let text = uneven.text();
        let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        assert_eq!(line("target_by_root "), "{'default': {0: 0.5, 1: 0.5}}");
        assert_eq!(
            line("actual_by_root "),
            "{'default': {'pgs': {0: 1.0}, 'objects': {0: 0.0}, 'bytes': {0: 1.0}}}"
        );
        assert!(
            line("stats_by_root ").starts_with(
                "{'default': {'pgs': {'max': 16.0, 'min': 0.0, 'avg': 8.0, 'stddev': 11.313708498984761, 'sum_weight': 0.5, 'score': 0.341344"
            ),
            "{text}"
        );
        assert!(line("score_by_root ").contains("'objects': 0, 'bytes': 0.341344"), "{text}");
    }

    #[test]
    fn numbers_are_those_of_python() {
        let texts = [1.0, 0.25, 0.0001, 0.000_052, 0.0, 1.0 / 3.0].map(float);
        assert_eq!(texts, ["1.0", "0.25", "0.0001", "5.2e-05", "0.0", "0.3333333333333333"]);
    }
}
