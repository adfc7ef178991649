//! Exceptions from CRUSH (`pg_upmap_items`) that even out how many PGs of a pool each OSD has: the
//! purpose of `OSDMap::calc_pg_upmaps` in `src/osd/OSDMap.cc` at v16.2, reached by moving one copy
//! at a time from the OSD with most too many to one with too few.
//!
//! A copy only goes where the pool's rule could have put it: below the same root and class, and
//! apart from the PG's other copies as the rule keeps them apart.

use std::collections::{BTreeMap, BTreeSet};

use maps::osdmap::WEIGHT_IN;
use maps::{OsdMap, PgPool};
use types::{OsdId, PgId};

/// The exceptions of a PG as they shall be; none: all that it has go.
pub(crate) type Changes = BTreeMap<PgId, Vec<(OsdId, OsdId)>>;

/// What a rule demands of the places of a PG's copies.
struct Places {
    /// Types of buckets below which all choices stay, from the root down.
    outer: Vec<i32>,
    /// Type of bucket that holds one copy each; 0 is the device itself.
    apart: i32,
}

impl Places {
    /// `None`: a rule that takes from several roots; its pools are left alone.
    fn of(map: &OsdMap, pool: &PgPool) -> Option<Places> {
        use crush::op;
        let rule = map.crush.rule(i32::from(pool.crush_rule))?;
        let takes = rule.steps.iter().filter(|step| step.op == op::TAKE).count();
        let choose =
            [op::CHOOSE_FIRSTN, op::CHOOSE_INDEP, op::CHOOSELEAF_FIRSTN, op::CHOOSELEAF_INDEP];
        let mut chosen: Vec<_> =
            rule.steps.iter().filter(|step| choose.contains(&step.op)).collect();
        // `choose host` before `choose 1 osd` is what `chooseleaf host` says in one step. Several
        // OSDs of a host hold a copy each: theirs stay in that host.
        if chosen.len() > 1 && chosen.last().is_some_and(|step| (step.arg1, step.arg2) == (1, 0)) {
            chosen.pop();
        }
        let apart = chosen.pop()?.arg2;
        let outer = chosen.into_iter().map(|step| step.arg2).collect();
        (takes == 1).then_some(Places { outer, apart })
    }

    fn bucket(map: &OsdMap, osd: OsdId, kind: i32) -> Option<i32> {
        if kind == 0 { Some(osd) } else { map.crush.parent_of_type(osd, kind) }
    }

    /// Whether `to` may hold the copy that `from` has.
    fn allow(&self, map: &OsdMap, up: &[OsdId], from: OsdId, to: OsdId) -> bool {
        let same = |kind: &i32| Places::bucket(map, from, *kind) == Places::bucket(map, to, *kind);
        let place = Places::bucket(map, to, self.apart);
        let others = up.iter().filter(|osd| **osd != from);
        !up.contains(&to)
            && place.is_some()
            && self.outer.iter().all(same)
            && others.into_iter().all(|osd| Places::bucket(map, *osd, self.apart) != place)
    }
}

/// PGs that each OSD should have of a pool: its share of the rule's weight.
pub(crate) fn targets(map: &OsdMap, pool: &PgPool) -> BTreeMap<OsdId, f64> {
    let weight = |(osd, share): (OsdId, f32)| {
        let reweight = f64::from(map.weight(osd)) / f64::from(WEIGHT_IN);
        let usable = map.exists(osd) && map.is_up(osd);
        (osd, if usable { f64::from(share) * reweight } else { 0.0 })
    };
    let weights: BTreeMap<OsdId, f64> =
        map.crush.rule_weights(i32::from(pool.crush_rule)).into_iter().map(weight).collect();
    let sum: f64 = weights.values().sum();
    let copies = f64::from(pool.pg_num) * f64::from(pool.size);
    let share = |(osd, weight): (OsdId, f64)| (osd, weight / sum * copies);
    if sum > 0.0 {
        weights.into_iter().filter(|(_, w)| *w > 0.0).map(share).collect()
    } else {
        BTreeMap::new()
    }
}

/// One pool under way.
struct Pool<'a> {
    map: &'a OsdMap,
    places: Places,
    /// By which the monitors judge: what these do not allow they take away at once, and it would
    /// be done again and again.
    demands: crush::Demands,
    /// Copies of a PG.
    size: i32,
    up: BTreeMap<PgId, Vec<OsdId>>,
    items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// PGs more than the OSD should have.
    excess: BTreeMap<OsdId, f64>,
}

impl Pool<'_> {
    /// Moves one copy; the PG it belongs to, or `None` when nothing helps.
    fn step(&mut self, max_deviation: f64) -> Option<PgId> {
        let mut by_excess: Vec<(OsdId, f64)> = self.excess.iter().map(|(o, e)| (*o, *e)).collect();
        by_excess.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let worst = by_excess.iter().map(|(_, e)| e.abs()).fold(0.0, f64::max);
        if worst <= max_deviation {
            return None;
        }
        for &(from, more) in by_excess.iter().filter(|(_, e)| *e > 0.0) {
            for &(to, less) in by_excess.iter().rev().filter(|(_, e)| *e < 0.0) {
                // Else the two would only change places.
                if more - less <= 1.0 {
                    break;
                }
                if let Some(pgid) = self.move_one(from, to) {
                    return Some(pgid);
                }
            }
        }
        None
    }

    fn move_one(&mut self, from: OsdId, to: OsdId) -> Option<PgId> {
        let moved = |up: &[OsdId]| {
            up.iter().map(|osd| if *osd == from { to } else { *osd }).collect::<Vec<_>>()
        };
        let is_in = |osd| self.map.weight(osd) > 0;
        let fits = |(_, up): &(&PgId, &Vec<OsdId>)| {
            up.contains(&from)
                && self.places.allow(self.map, up, from, to)
                && self.demands.allow(self.size, &moved(up), is_in)
        };
        let pgid = *self.up.iter().find(fits)?.0;
        let items = self.items.entry(pgid).or_default();
        match items.iter_mut().find(|(_, moved_to)| *moved_to == from) {
            Some(item) => item.1 = to,
            None => items.push((from, to)),
        }
        items.retain(|(a, b)| a != b);
        for osd in self.up.get_mut(&pgid)?.iter_mut().filter(|osd| **osd == from) {
            *osd = to;
        }
        *self.excess.entry(from).or_default() -= 1.0;
        *self.excess.entry(to).or_default() += 1.0;
        Some(pgid)
    }
}

/// At most `max` moves in the pools that bring every OSD nearer to its share, until none is more
/// than `max_deviation` PGs off.
pub(crate) fn optimize(
    map: &OsdMap,
    pools: &BTreeSet<i64>,
    max_deviation: f64,
    max: usize,
) -> Changes {
    let mut changes = Changes::new();
    let mut left = max;
    for (id, pool) in map.pools.iter().filter(|(id, _)| pools.contains(id)) {
        let Some(mut work) = Pool::new(map, *id, pool) else { continue };
        while left > 0 {
            let Some(pgid) = work.step(max_deviation) else { break };
            changes.insert(pgid, work.items.get(&pgid).cloned().unwrap_or_default());
            left -= 1;
        }
    }
    changes
}

impl<'a> Pool<'a> {
    fn new(map: &'a OsdMap, id: i64, pool: &PgPool) -> Option<Pool<'a>> {
        // Its number of PGs is about to change: what is moved now would move again.
        if pool.pg_num != pool.pg_num_target {
            return None;
        }
        let places = Places::of(map, pool)?;
        let demands = crush::Demands::of(&map.crush, i32::from(pool.crush_rule))?;
        let mut excess: BTreeMap<OsdId, f64> =
            targets(map, pool).into_iter().map(|(osd, n)| (osd, -n)).collect();
        let (mut up, mut items) = (BTreeMap::new(), BTreeMap::new());
        for seed in 0..pool.pg_num {
            let pgid = PgId::new(u64::try_from(id).ok()?, seed);
            let osds = map.pg_to_up_acting(pgid).up;
            for osd in osds.iter().filter(|osd| map.exists(**osd)) {
                *excess.entry(*osd).or_default() += 1.0;
            }
            // A whole other mapping is somebody's decision.
            if !map.pg_upmap.contains_key(&pgid) && osds.len() == pool.size as usize {
                up.insert(pgid, osds);
            }
            if let Some(present) = map.pg_upmap_items.get(&pgid) {
                items.insert(pgid, present.clone());
            }
        }
        Some(Pool { map, places, demands, size: i32::from(pool.size), up, items, excess })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use maps::osdmap::osd_state;

    /// `hosts` hosts with `each` OSDs; one pool of three copies on different hosts.
    fn cluster(hosts: i32, each: i32, pg_num: u32) -> OsdMap {
        let mut crush = crush::CrushMap::fresh();
        for osd in 0..hosts * each {
            let host = format!("h{}", osd / each);
            let location = [("root", "default"), ("host", host.as_str())];
            let location = location.map(|(k, v)| (k.to_owned(), v.to_owned()));
            crush.insert_item(osd, 0x1_0000, &format!("osd.{osd}"), &location.into()).unwrap();
        }
        let rule = crush
            .add_simple_rule("r", "default", "host", "", true, crush::RULE_REPLICATED)
            .unwrap();
        let mut map = OsdMap { epoch: 1, crush: Arc::new(crush), ..OsdMap::default() };
        map.set_max_osd(hosts * each);
        for osd in 0..(hosts * each) as usize {
            map.osd_state[osd] = osd_state::EXISTS | osd_state::UP;
            map.osd_weight[osd] = WEIGHT_IN;
        }
        let pool = PgPool {
            kind: 1,
            size: 3,
            min_size: 2,
            crush_rule: u8::try_from(rule).unwrap(),
            pg_num,
            pgp_num: pg_num,
            pg_num_target: pg_num,
            pgp_num_target: pg_num,
            ..PgPool::default()
        };
        map.pools.insert(1, pool);
        map
    }

    fn counts(map: &OsdMap) -> BTreeMap<OsdId, u32> {
        let mut counts = BTreeMap::new();
        for seed in 0..map.pools[&1].pg_num {
            for osd in map.pg_to_up_acting(PgId::new(1, seed)).up {
                *counts.entry(osd).or_default() += 1;
            }
        }
        counts
    }

    #[test]
    fn every_osd_gets_its_share_and_copies_stay_on_different_hosts() {
        let mut map = cluster(5, 2, 128);
        let spread = |map: &OsdMap| {
            let counts = counts(map);
            counts.values().max().unwrap() - counts.values().min().unwrap()
        };
        assert!(spread(&map) > 4, "{:?}", counts(&map));
        let changes = optimize(&map, &[1].into(), 1.0, 1000);
        assert!(!changes.is_empty());
        for (pgid, items) in changes {
            map.pg_upmap_items.insert(pgid, items);
        }
        assert!(spread(&map) <= 2, "{:?}", counts(&map));
        for seed in 0..128 {
            let up = map.pg_to_up_acting(PgId::new(1, seed)).up;
            let hosts: BTreeSet<i32> = up.iter().map(|osd| osd / 2).collect();
            assert_eq!((up.len(), hosts.len()), (3, 3), "pg 1.{seed:x} {up:?}");
        }
        // Nothing is left to do, and nothing is done.
        assert!(optimize(&map, &[1].into(), 1.0, 1000).is_empty());
    }

    /// `choose 4 host`, `choose 2 osd` was read as `chooseleaf host`: copies went to a fifth host, the
    /// monitors took the exception away at once, and the next round made it anew, for ever.
    #[test]
    fn where_a_host_holds_several_copies_they_stay_on_so_many_hosts() {
        use crush::{Rule, Step, op};
        let mut map = cluster(5, 3, 64);
        let crush = Arc::make_mut(&mut map.crush);
        let (root, host) = (crush.id_of("default").unwrap(), crush.type_id("host").unwrap());
        let steps = vec![
            Step::new(op::TAKE, root, 0),
            Step::new(op::CHOOSE_INDEP, 4, host),
            Step::new(op::CHOOSE_INDEP, 2, 0),
            Step::new(op::EMIT, 0, 0),
        ];
        let rule = Rule { ruleset: 1, kind: crush::RULE_ERASURE, min_size: 1, max_size: 8, steps };
        let rule = crush.add_rule("pairs", rule).unwrap();
        let pool = map.pools.get_mut(&1).unwrap();
        (pool.kind, pool.size, pool.min_size) = (3, 8, 6);
        pool.crush_rule = u8::try_from(rule).unwrap();
        let changes = optimize(&map, &[1].into(), 1.0, 1000);
        assert!(!changes.is_empty());
        let demands = crush::Demands::of(&map.crush, rule).unwrap();
        for (pgid, items) in changes {
            map.pg_upmap_items.insert(pgid, items);
            let osds = map.pg_to_raw_upmap(pgid);
            let hosts: BTreeSet<i32> = osds.iter().map(|osd| osd / 3).collect();
            assert!(demands.allow(8, &osds, |osd| map.weight(osd) > 0), "pg {pgid} {osds:?}");
            assert_eq!(hosts.len(), 4, "pg {pgid} {osds:?}");
        }
        assert!(optimize(&map, &[1].into(), 1.0, 1000).is_empty());
    }

    #[test]
    fn no_more_is_moved_than_asked_for() {
        let map = cluster(5, 2, 128);
        assert!(optimize(&map, &[1].into(), 1.0, 3).len() <= 3);
        assert!(optimize(&map, &BTreeSet::new(), 1.0, 3).is_empty());
    }
}
