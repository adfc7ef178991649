//! How even the data lies: Ceph's score, 0 (even) to 1, the mean over PGs, objects and bytes of
//! what the fuller OSDs have too much (`Balancer.calc_stats` in `src/pybind/mgr/balancer` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use maps::OsdMap;
use maps::pgmap::PgMap;
use types::{OsdId, PgId};

use super::upmap::targets;

/// The error function, to 1.5e-7 (Abramowitz and Stegun, 7.1.26), for x of 0 and more.
fn erf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x);
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = series.into_iter().fold(0.0, |sum, a| (sum + a) * t);
    1.0 - sum * (-x * x).exp()
}

/// PGs, objects and bytes.
type Amounts = [f64; 3];

fn score(counts: &BTreeMap<OsdId, Amounts>, shares: &BTreeMap<OsdId, f64>) -> f64 {
    let num = shares.len().max(1) as f64;
    let mut scores = 0.0;
    for kind in 0..3 {
        let total: f64 = counts.values().map(|amounts| amounts[kind]).sum();
        let average = total / num;
        if total <= 0.0 {
            continue;
        }
        let (mut sum, mut weights) = (0.0, 0.0);
        for (osd, share) in shares {
            let amount = counts.get(osd).map_or(0.0, |amounts| amounts[kind]);
            let adjusted = amount / share / num;
            if adjusted > average {
                sum += share * erf((adjusted - average) / average / std::f64::consts::SQRT_2);
                weights += share;
            }
        }
        scores += sum / f64::max(weights, 1.0);
    }
    scores / 3.0
}

/// The score of these pools together, by their placement in `map`; pools of different rules are
/// scored by themselves and averaged.
pub(crate) fn evaluate(map: &OsdMap, pgs: &PgMap, pools: &BTreeSet<i64>) -> f64 {
    let mut by_rule: BTreeMap<u8, BTreeMap<OsdId, Amounts>> = BTreeMap::new();
    let mut shares: BTreeMap<u8, BTreeMap<OsdId, f64>> = BTreeMap::new();
    for (id, pool) in map.pools.iter().filter(|(id, _)| pools.contains(id)) {
        let counts = by_rule.entry(pool.crush_rule).or_default();
        for (osd, target) in targets(map, pool) {
            *shares.entry(pool.crush_rule).or_default().entry(osd).or_default() += target;
        }
        for seed in 0..pool.pg_num {
            let Ok(id) = u64::try_from(*id) else { continue };
            let pgid = PgId::new(id, seed);
            let sum = pgs.pg_stat.get(&pgid).map(|stat| &stat.stats.sum);
            let objects = sum.map_or(0, |sum| sum.num_objects) as f64;
            let bytes = sum.map_or(0, |sum| sum.num_bytes) as f64;
            for osd in map.pg_to_up_acting(pgid).up.into_iter().filter(|osd| map.exists(*osd)) {
                let amounts = counts.entry(osd).or_default();
                *amounts = [amounts[0] + 1.0, amounts[1] + objects, amounts[2] + bytes];
            }
        }
    }
    for shares in shares.values_mut() {
        let sum: f64 = shares.values().sum();
        shares.values_mut().for_each(|share| *share /= sum);
    }
    let scores = by_rule.iter().filter_map(|(rule, counts)| Some(score(counts, shares.get(rule)?)));
    let scores: Vec<f64> = scores.collect();
    // The sum of nothing is -0.
    scores.iter().fold(0.0, |sum, score| sum + score) / scores.len().max(1) as f64
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
        let score = evaluate(&OsdMap::default(), &PgMap::default(), &BTreeSet::new());
        assert_eq!(format!("{score:.6}"), "0.000000");
    }

    #[test]
    fn even_is_nought_and_uneven_is_more() {
        let shares: BTreeMap<OsdId, f64> = [(0, 0.5), (1, 0.5)].into();
        let even = [(0, [8.0, 80.0, 800.0]), (1, [8.0, 80.0, 800.0])].into();
        assert!(score(&even, &shares) < 1e-6);
        let uneven = [(0, [16.0, 160.0, 1600.0])].into();
        // All on one of two: half the weight has twice the average.
        let expected = 0.5 * 0.682_689_492;
        assert!((score(&uneven, &shares) - expected).abs() < 1e-6);
    }
}
