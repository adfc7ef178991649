//! Whether a rule could have put copies where an exception from CRUSH (`pg_upmap`) puts them:
//! `CrushWrapper::verify_upmap` in `src/crush/CrushWrapper.cc` at v16.2.

use std::collections::{BTreeMap, BTreeSet};

use crate::{CrushMap, op};

/// What a rule demands of the devices of a PG.
#[derive(Debug, Clone)]
pub struct Demands {
    demands: Vec<Demand>,
    /// Share of the rule's data, by device.
    weights: BTreeMap<i32, f32>,
}

#[derive(Debug, Clone)]
enum Demand {
    /// `chooseleaf`: devices by the bucket of which each holds one copy.
    Apart(BTreeMap<i32, i32>),
    /// `choose`: devices by bucket, and in how many buckets they are at most.
    Within(BTreeMap<i32, i32>, i32),
    /// `emit`: the next devices, a product of counts, are these.
    Below(BTreeSet<i32>, Vec<i32>),
}

impl Demands {
    /// `None`: there is no such rule.
    pub fn of(crush: &CrushMap, rule: i32) -> Option<Demands> {
        let steps = &crush.rule(rule)?.steps;
        let takes = steps.iter().filter(|step| step.op == op::TAKE).map(|step| step.arg1);
        let below: BTreeSet<i32> = takes.flat_map(|root| crush.subtree(root)).collect();
        // By bucket of a type that the rule can reach. Shadow buckets are others than their own.
        let buckets_of = |kind: i32| {
            let of_kind = |id: &i32| crush.bucket(*id).is_some_and(|b| i32::from(b.kind) == kind);
            let mut places = BTreeMap::new();
            for bucket in below.iter().copied().filter(of_kind) {
                for device in crush.devices_under(bucket) {
                    places.entry(device).or_insert(bucket);
                }
            }
            places
        };
        let (mut demands, mut root, mut counts) = (Vec::new(), None, BTreeMap::new());
        for step in steps {
            match step.op {
                op::TAKE => root = Some(step.arg1),
                op::CHOOSELEAF_FIRSTN | op::CHOOSELEAF_INDEP => {
                    counts.entry(step.arg2).or_insert(step.arg1);
                    if step.arg2 != 0 {
                        demands.push(Demand::Apart(buckets_of(step.arg2)));
                    }
                }
                op::CHOOSE_FIRSTN | op::CHOOSE_INDEP => {
                    counts.entry(step.arg2).or_insert(step.arg1);
                    if step.arg2 != 0 {
                        demands.push(Demand::Within(buckets_of(step.arg2), step.arg1));
                    }
                }
                op::EMIT => {
                    let counts = std::mem::take(&mut counts).into_values().collect();
                    if let Some(root) = root.take().filter(|root| *root < 0) {
                        demands.push(Demand::Below(crush.subtree(root), counts));
                    }
                }
                _ => {}
            }
        }
        Some(Demands { demands, weights: crush.rule_weights(rule) })
    }

    /// Whether these may be the devices of a PG with `size` copies. `is_in`: whether a device has a
    /// weight of its own, apart from CRUSH.
    pub fn allow(&self, size: i32, devices: &[i32], is_in: impl Fn(i32) -> bool) -> bool {
        // A count of 0 or less is so many less than there are copies.
        let count_of = |count: i32| if count <= 0 { count.saturating_add(size) } else { count };
        let mut emitted = 0;
        let steps = self.demands.iter().all(|demand| match demand {
            Demand::Apart(buckets) => {
                let mut taken = BTreeMap::new();
                let places = devices.iter().filter_map(|d| Some((buckets.get(d)?, d)));
                places.into_iter().all(|(bucket, d)| *taken.entry(bucket).or_insert(d) == d)
            }
            Demand::Within(buckets, count) => {
                let used: BTreeSet<_> = devices.iter().filter_map(|d| buckets.get(d)).collect();
                i32::try_from(used.len()).is_ok_and(|used| used <= count_of(*count))
            }
            Demand::Below(below, counts) => {
                let product = counts.iter().fold(1_i32, |n, c| n.saturating_mul(count_of(*c)));
                let next = devices.iter().skip(emitted);
                let count = usize::try_from(product).unwrap_or(0);
                emitted += count.min(devices.len());
                next.take(count).all(|device| below.contains(device))
            }
        });
        let weighs = |d: &i32| self.weights.get(d).is_some_and(|share| *share > 0.0) && is_in(*d);
        steps && devices.iter().all(weighs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RULE_ERASURE, RULE_REPLICATED, Rule, Step};

    /// Two racks of three hosts of two devices: device 0 is in host 0 in rack 0, device 11 in host 5.
    fn map() -> CrushMap {
        let mut crush = CrushMap::fresh();
        for osd in 0..12 {
            let location = [
                ("root", "default".to_owned()),
                ("rack", format!("r{}", osd / 6)),
                ("host", format!("h{}", osd / 2)),
            ];
            let location = location.map(|(k, v)| (k.to_owned(), v)).into();
            crush.insert_item(osd, 0x1_0000, &format!("osd.{osd}"), &location).unwrap();
        }
        crush
    }

    fn rule(crush: &mut CrushMap, steps: &[(u32, i32, i32)]) -> Demands {
        let root = crush.id_of("default").unwrap();
        let mut all = vec![Step::new(op::TAKE, root, 0)];
        all.extend(steps.iter().map(|(op, a, b)| Step::new(*op, *a, *b)));
        all.push(Step::new(op::EMIT, 0, 0));
        let rule = Rule { ruleset: 0, kind: RULE_ERASURE, min_size: 1, max_size: 10, steps: all };
        let id = crush.add_rule("test", rule).unwrap();
        Demands::of(crush, id).unwrap()
    }

    #[test]
    fn leaves_keep_apart_and_below_what_is_taken() {
        let mut crush = map();
        let id = crush.add_simple_rule("r", "r0", "host", "", true, RULE_REPLICATED).unwrap();
        let demands = Demands::of(&crush, id).unwrap();
        let allows = |devices: &[i32]| demands.allow(3, devices, |_| true);
        assert!(allows(&[0, 2, 4]) && allows(&[1, 5]));
        assert!(!allows(&[0, 1, 4]), "one host");
        assert!(!allows(&[0, 2, 6]), "another rack");
        assert!(!allows(&[0, 2, 99]), "nowhere");
        assert!(!demands.allow(3, &[0, 2, 4], |device| device != 4), "out");
        crush.adjust_item_weight(4, 0).unwrap();
        let demands = Demands::of(&crush, id).unwrap();
        assert!(!demands.allow(3, &[0, 2, 4], |_| true), "no weight");
        assert!(Demands::of(&crush, 77).is_none());
    }

    #[test]
    fn buckets_are_no_more_than_chosen() {
        let mut crush = map();
        let (rack, host) = (crush.type_id("rack").unwrap(), crush.type_id("host").unwrap());
        let pairs = rule(&mut crush, &[(op::CHOOSE_INDEP, 2, host), (op::CHOOSE_INDEP, 2, 0)]);
        let allows = |devices: &[i32]| pairs.allow(4, devices, |_| true);
        assert!(allows(&[0, 1, 2, 3]) && allows(&[0, 1, 10, 11]));
        assert!(!allows(&[0, 1, 2, 10]), "three hosts");
        crush.remove_rule(crush.rule_id("test").unwrap()).unwrap();
        let steps = [(op::CHOOSE_INDEP, 1, rack), (op::CHOOSELEAF_INDEP, 0, host)];
        let one_rack = rule(&mut crush, &steps);
        assert!(one_rack.allow(3, &[0, 2, 4], |_| true));
        assert!(!one_rack.allow(3, &[0, 2, 6], |_| true));
    }
}
