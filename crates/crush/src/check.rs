//! What a map that somebody else made must not have: whoever follows it would not come back.

use core::fmt;
use std::collections::BTreeMap;

use crate::{CrushMap, op};

/// Tries and counts beyond this help nobody; each PG would be tried so often.
const TRIES_MAX: u32 = 10_000;

/// Copies of a PG, at most (a pool's size is a u8).
const COPIES_MAX: i32 = 255;

/// Devices, at most.
const DEVICES_MAX: i32 = 1 << 20;

/// Lines of the tree, at most: buckets that are below several are shown below each.
const LINES_MAX: usize = 1 << 20;

/// Why a map is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endless {
    /// A bucket holds itself, perhaps with others between.
    Loop {
        /// The bucket.
        bucket: i32,
    },
    /// Buckets are below so many others that the tree has no end to speak of.
    Tree,
    /// A tunable or a step asks for too many tries.
    Tries {
        /// How many.
        got: u32,
    },
    /// More devices than any cluster has: each is listed.
    Devices {
        /// How many.
        got: i32,
    },
    /// A step chooses more than a PG can have.
    Count {
        /// How many.
        got: i32,
    },
}

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endless::Loop { bucket } => write!(f, "bucket {bucket} is below itself"),
            Endless::Tree => write!(f, "the tree has more than {LINES_MAX} places"),
            Endless::Tries { got } => write!(f, "{got} tries are more than {TRIES_MAX}"),
            Endless::Devices { got } => write!(f, "{got} devices are more than {DEVICES_MAX}"),
            Endless::Count { got } => write!(f, "choosing {got} is more than {COPIES_MAX}"),
        }
    }
}

impl std::error::Error for Endless {}

impl CrushMap {
    /// Whether everybody who follows the map comes to an end.
    pub fn check_ends(&self) -> Result<(), Endless> {
        if self.max_devices > DEVICES_MAX {
            return Err(Endless::Devices { got: self.max_devices });
        }
        let t = &self.tunables;
        let mut tries = vec![t.choose_total_tries, t.choose_local_tries];
        tries.push(t.choose_local_fallback_tries);
        for step in self.rules.iter().flatten().flat_map(|rule| &rule.steps) {
            match step.op {
                op::SET_CHOOSE_TRIES
                | op::SET_CHOOSELEAF_TRIES
                | op::SET_CHOOSE_LOCAL_TRIES
                | op::SET_CHOOSE_LOCAL_FALLBACK_TRIES => tries.extend(u32::try_from(step.arg1)),
                op::CHOOSE_FIRSTN
                | op::CHOOSE_INDEP
                | op::CHOOSELEAF_FIRSTN
                | op::CHOOSELEAF_INDEP
                    if step.arg1 > COPIES_MAX =>
                {
                    return Err(Endless::Count { got: step.arg1 });
                }
                _ => {}
            }
        }
        if let Some(got) = tries.into_iter().find(|tries| *tries > TRIES_MAX) {
            return Err(Endless::Tries { got });
        }
        let mut lines = BTreeMap::new();
        let mut sum = 0_usize;
        for bucket in self.each_bucket() {
            self.count_lines(bucket.id, &mut lines)?;
        }
        for root in self.roots(true) {
            sum = sum.saturating_add(lines.get(&root).copied().flatten().unwrap_or(0));
        }
        if sum > LINES_MAX { Err(Endless::Tree) } else { Ok(()) }
    }

    /// Lines of the tree below a bucket, and its own, into `lines`, where `None` marks the buckets on
    /// the way there. Not by recursion: a chain of buckets may be long.
    fn count_lines(
        &self,
        top: i32,
        lines: &mut BTreeMap<i32, Option<usize>>,
    ) -> Result<(), Endless> {
        let mut todo = vec![top];
        while let Some(id) = todo.last().copied() {
            let items = self.bucket(id).map_or(&[][..], |bucket| &bucket.items);
            match lines.get(&id) {
                Some(Some(_)) => {
                    todo.pop();
                }
                // All below it is counted.
                Some(None) => {
                    let below = |item: &i32| lines.get(item).copied().flatten().unwrap_or(1);
                    let count = items.iter().map(below).fold(1_usize, usize::saturating_add);
                    lines.insert(id, Some(count));
                    todo.pop();
                }
                None => {
                    lines.insert(id, None);
                    for item in items.iter().copied().filter(|item| *item < 0) {
                        match lines.get(&item) {
                            Some(None) => return Err(Endless::Loop { bucket: item }),
                            Some(Some(_)) => {}
                            None => todo.push(item),
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, RULE_REPLICATED, Step};

    /// Buckets 0 to `depth`, each twice in the next.
    fn doubled(depth: usize) -> CrushMap {
        let mut map = CrushMap::fresh();
        let mut below = map.add_bucket(Algorithm::Straw2, 1, &[(0, 0x1_0000)]);
        for _ in 0..depth {
            let left = map.add_bucket(Algorithm::Straw2, 2, &[(below, 0x1_0000)]);
            let right = map.add_bucket(Algorithm::Straw2, 2, &[(below, 0x1_0000)]);
            below = map.add_bucket(Algorithm::Straw2, 3, &[(left, 1), (right, 1)]);
        }
        map
    }

    #[test]
    fn what_has_no_end_is_found() {
        let mut map = doubled(3);
        assert_eq!(map.check_ends(), Ok(()), "a bucket may be linked below others");
        assert_eq!(doubled(40).check_ends(), Err(Endless::Tree));
        let (first, last) = (map.each_bucket().nth(1).unwrap().id, map.roots(true)[0]);
        map.bucket_mut(first).unwrap().items.push(last);
        assert!(matches!(map.check_ends(), Err(Endless::Loop { .. })));

        let mut map = doubled(1);
        map.tunables.choose_total_tries = u32::MAX;
        assert_eq!(map.check_ends(), Err(Endless::Tries { got: u32::MAX }));
        let mut map = doubled(1);
        map.max_devices = i32::MAX;
        assert_eq!(map.check_ends(), Err(Endless::Devices { got: i32::MAX }));
        let mut map = CrushMap::fresh();
        let id = map.add_simple_rule("r", "default", "", "", true, RULE_REPLICATED).unwrap();
        let step = |map: &mut CrushMap, op, arg1| {
            let rule = map.rules[usize::try_from(id).unwrap()].as_mut().unwrap();
            rule.steps.insert(0, Step::new(op, arg1, 0));
        };
        step(&mut map, op::SET_CHOOSE_TRIES, 10_000);
        step(&mut map, op::CHOOSE_INDEP, -1);
        assert_eq!(map.check_ends(), Ok(()));
        step(&mut map, op::CHOOSE_INDEP, i32::MAX);
        assert_eq!(map.check_ends(), Err(Endless::Count { got: i32::MAX }));
    }
}
