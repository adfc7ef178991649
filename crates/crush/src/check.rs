//! What a map that somebody else made must not have: whoever follows it would not come back, or would
//! find other places than the rest. Ceph tries such a map in a process of its own (`CrushTester::test_with_fork`).

use core::fmt;
use std::collections::BTreeMap;

use crate::{Bucket, CrushMap, op};

/// Tries and counts beyond this help nobody; each PG would be tried so often.
const TRIES_MAX: u32 = 10_000;

/// Copies of a PG, at most (a pool's size is a u8).
const COPIES_MAX: i32 = 255;

/// Devices, at most.
const DEVICES_MAX: i32 = 1 << 20;

/// Lines of the tree, at most: buckets that are below several are shown below each.
const LINES_MAX: usize = 1 << 20;

/// Buckets one below the other, at most. Ceph's own have ten (CRUSH_MAX_DEPTH); edits go down by recursion.
const DEPTH_MAX: usize = 64;

/// Why a map is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfit {
    /// A bucket holds itself, perhaps with others between.
    Loop {
        /// The bucket.
        bucket: i32,
    },
    /// More buckets are one below the other than any cluster has.
    Deep {
        /// The first of them that is too high.
        bucket: i32,
    },
    /// A bucket has an item that is no bucket: unmodified clients read its type all the same.
    Item {
        /// The bucket.
        bucket: i32,
        /// Its item.
        item: i32,
    },
    /// A bucket has the type of devices: unmodified clients look for its weight among those.
    Device {
        /// The bucket.
        bucket: i32,
    },
    /// A bucket has no name, and no shadow of it can be made.
    Unnamed {
        /// The bucket.
        bucket: i32,
    },
    /// A bucket chooses by a hash that nobody has.
    Hash {
        /// The bucket.
        bucket: i32,
        /// The hash.
        got: u8,
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

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::Loop { bucket } => write!(f, "bucket {bucket} is below itself"),
            Unfit::Deep { bucket } => {
                write!(f, "more than {DEPTH_MAX} buckets are one below the other at {bucket}")
            }
            Unfit::Item { bucket, item } => {
                write!(f, "bucket {bucket} has the item {item}, which is not there")
            }
            Unfit::Device { bucket } => write!(f, "bucket {bucket} has type 0, which devices have"),
            Unfit::Unnamed { bucket } => write!(f, "bucket {bucket} has no name"),
            Unfit::Hash { bucket, got } => {
                write!(f, "bucket {bucket} has the hash {got}, and 0 (rjenkins1) alone is known")
            }
            Unfit::Tree => write!(f, "the tree has more than {LINES_MAX} places"),
            Unfit::Tries { got } => write!(f, "{got} tries are more than {TRIES_MAX}"),
            Unfit::Devices { got } => write!(f, "{got} devices are more than {DEVICES_MAX}"),
            Unfit::Count { got } => write!(f, "choosing {got} is more than {COPIES_MAX}"),
        }
    }
}

impl std::error::Error for Unfit {}

impl CrushMap {
    /// Whether everybody who follows the map comes to an end, and to the same one.
    pub fn check(&self) -> Result<(), Unfit> {
        if self.max_devices > DEVICES_MAX {
            return Err(Unfit::Devices { got: self.max_devices });
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
                    return Err(Unfit::Count { got: step.arg1 });
                }
                _ => {}
            }
        }
        if let Some(got) = tries.into_iter().find(|tries| *tries > TRIES_MAX) {
            return Err(Unfit::Tries { got });
        }
        for bucket in self.each_bucket() {
            self.check_bucket(bucket)?;
        }
        let mut below = BTreeMap::new();
        let mut sum = 0_usize;
        for bucket in self.each_bucket() {
            self.count_below(bucket.id, &mut below)?;
        }
        for root in self.roots(true) {
            sum = sum.saturating_add(below.get(&root).copied().flatten().map_or(0, |b| b.lines));
        }
        if sum > LINES_MAX { Err(Unfit::Tree) } else { Ok(()) }
    }

    fn check_bucket(&self, bucket: &Bucket) -> Result<(), Unfit> {
        let id = bucket.id;
        if bucket.kind == 0 {
            return Err(Unfit::Device { bucket: id });
        }
        if bucket.hash != 0 {
            return Err(Unfit::Hash { bucket: id, got: bucket.hash });
        }
        if self.name_of(id).is_none() {
            return Err(Unfit::Unnamed { bucket: id });
        }
        let absent = bucket.items.iter().find(|item| **item < 0 && self.bucket(**item).is_none());
        absent.map_or(Ok(()), |&item| Err(Unfit::Item { bucket: id, item }))
    }

    /// What is below a bucket, with itself, into `all`, where `None` marks the buckets on the way there.
    /// Not by recursion: a chain of buckets may be long.
    fn count_below(&self, top: i32, all: &mut BTreeMap<i32, Option<Below>>) -> Result<(), Unfit> {
        let mut todo = vec![top];
        while let Some(id) = todo.last().copied() {
            let items = self.bucket(id).map_or(&[][..], |bucket| &bucket.items);
            match all.get(&id) {
                Some(Some(_)) => {
                    todo.pop();
                }
                // All below it is counted.
                Some(None) => {
                    let mut sum = Below { lines: 1, depth: 1 };
                    for item in items {
                        let item = all.get(item).copied().flatten();
                        let item = item.unwrap_or(Below { lines: 1, depth: 0 });
                        sum.lines = sum.lines.saturating_add(item.lines);
                        sum.depth = sum.depth.max(item.depth + 1);
                    }
                    if sum.depth > DEPTH_MAX {
                        return Err(Unfit::Deep { bucket: id });
                    }
                    all.insert(id, Some(sum));
                    todo.pop();
                }
                None => {
                    all.insert(id, None);
                    for item in items.iter().copied().filter(|item| *item < 0) {
                        match all.get(&item) {
                            Some(None) => return Err(Unfit::Loop { bucket: item }),
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

/// What is below a bucket, with itself.
#[derive(Debug, Clone, Copy)]
struct Below {
    /// Lines of the tree.
    lines: usize,
    /// Buckets one below the other.
    depth: usize,
}

#[cfg(test)]
mod tests {
    use denc::Denc;

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
        let ids: Vec<i32> = map.each_bucket().map(|bucket| bucket.id).collect();
        for id in ids {
            map.names.entry(id).or_insert_with(|| format!("b{}", -id));
        }
        map
    }

    /// Who decoded a map had as many devices as it said: clients count them, and found others.
    #[test]
    fn devices_are_counted_by_who_decodes() {
        let mut map = CrushMap::fresh();
        let id = map.add_bucket(Algorithm::Straw2, 1, &[(4, 0x1_0000)]);
        map.names.insert(id, "h".to_owned());
        for (said, named) in [(0, None), (100, None), (0, Some(7))] {
            map.max_devices = said;
            map.names.extend(named.map(|osd| (osd, format!("osd.{osd}"))));
            let decoded = CrushMap::from_bytes_exact(&map.to_bytes()).unwrap();
            assert_eq!(decoded.max_devices, named.unwrap_or(4) + 1);
        }
    }

    /// Such maps were taken: the next edit went down a chain until its stack was full, clients went to a bucket that is not there, and
    /// shadow trees that have an unnamed bucket were gone with the next edit, under the rules that take them.
    #[test]
    fn what_nobody_can_follow_is_found() {
        let named = || {
            let mut map = CrushMap::fresh();
            let place = [("host", "h"), ("root", "default")];
            let place = place.map(|(kind, name)| (kind.to_owned(), name.to_owned())).into();
            map.insert_item(0, 0x1_0000, "osd.0", &place).unwrap();
            map
        };
        assert_eq!(named().check(), Ok(()));
        let changed = |change: &dyn Fn(&mut CrushMap)| {
            let mut map = named();
            change(&mut map);
            map.check().unwrap_err()
        };
        let host = named().id_of("h").unwrap();
        let absent = changed(&|map| map.bucket_mut(host).unwrap().items.push(-50));
        assert_eq!(absent, Unfit::Item { bucket: host, item: -50 });
        let device = changed(&|map| map.bucket_mut(host).unwrap().kind = 0);
        assert_eq!(device, Unfit::Device { bucket: host });
        let hash = changed(&|map| map.bucket_mut(host).unwrap().hash = 1);
        assert_eq!(hash, Unfit::Hash { bucket: host, got: 1 });
        let unnamed = changed(&|map| drop(map.names.remove(&host)));
        assert_eq!(unnamed, Unfit::Unnamed { bucket: host });
        let deep = changed(&|map| {
            let mut below = host;
            for n in 0..1000 {
                below = map.add_bucket(Algorithm::Straw2, 3, &[(below, 0x1_0000)]);
                map.names.insert(below, format!("b{n}"));
            }
        });
        assert!(matches!(deep, Unfit::Deep { .. }), "{deep}");
    }

    #[test]
    fn what_has_no_end_is_found() {
        let mut map = doubled(3);
        assert_eq!(map.check(), Ok(()), "a bucket may be linked below others");
        assert_eq!(doubled(30).check(), Err(Unfit::Tree));
        let (first, last) = (map.each_bucket().nth(1).unwrap().id, map.roots(true)[0]);
        map.bucket_mut(first).unwrap().items.push(last);
        assert!(matches!(map.check(), Err(Unfit::Loop { .. })));

        let mut map = doubled(1);
        map.tunables.choose_total_tries = u32::MAX;
        assert_eq!(map.check(), Err(Unfit::Tries { got: u32::MAX }));
        let mut map = doubled(1);
        map.max_devices = i32::MAX;
        assert_eq!(map.check(), Err(Unfit::Devices { got: i32::MAX }));
        let mut map = CrushMap::fresh();
        let id = map.add_simple_rule("r", "default", "", "", true, RULE_REPLICATED).unwrap();
        let step = |map: &mut CrushMap, op, arg1| {
            let rule = map.rules[usize::try_from(id).unwrap()].as_mut().unwrap();
            rule.steps.insert(0, Step::new(op, arg1, 0));
        };
        step(&mut map, op::SET_CHOOSE_TRIES, 10_000);
        step(&mut map, op::CHOOSE_INDEP, -1);
        assert_eq!(map.check(), Ok(()));
        step(&mut map, op::CHOOSE_INDEP, i32::MAX);
        assert_eq!(map.check(), Err(Unfit::Count { got: i32::MAX }));
    }
}
