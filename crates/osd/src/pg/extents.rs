//! What of an object its receiver lacks: the ranges that log entries say have changed
//! (`ObjectCleanRegions`), less what it can clone from another clone or the head that it has
//! (`calc_head_subsets`, `calc_clone_subsets` in `src/osd/ReplicatedBackend.cc` at v16.2). Pure.

use std::collections::BTreeMap;

use types::osd::{ObjectRecoveryInfo, ObjectRecoveryProgress, PgMissingItem, SnapSet};
use types::{EVersion, HObject, IntervalSet, NOSNAP};

/// What is asked for of an object that a missing set says this of (`None`: all of it), and the
/// progress to begin with. The size is not known yet.
pub(super) fn wanted(
    oid: &HObject,
    version: EVersion,
    item: Option<&PgMissingItem>,
) -> (ObjectRecoveryInfo, ObjectRecoveryProgress) {
    let mut info = ObjectRecoveryInfo {
        soid: oid.clone(),
        version,
        size: u64::MAX,
        copy_subset: IntervalSet::of(0, i64::MAX as u64),
        ..ObjectRecoveryInfo::default()
    };
    let mut progress = ObjectRecoveryProgress::default();
    let has_old =
        |i: &&PgMissingItem| !i.have.is_zero() && !i.is_delete && i.clean_regions.object_is_exist();
    if let Some(item) = item.filter(has_old) {
        info.copy_subset = info.copy_subset.intersection(&item.clean_regions.dirty_regions());
        info.object_exist = true;
        progress.omap_complete = !item.clean_regions.omap_is_dirty();
    }
    (info, progress)
}

/// Which ranges of the clone `oid` are the same in another clone, or the head, of those that the
/// receiver has: the next newer one, else the next older one.
pub(super) fn shared(
    oid: &HObject,
    ss: &SnapSet,
    size: u64,
    has: impl Fn(&HObject) -> bool,
) -> BTreeMap<HObject, IntervalSet> {
    let Some(at) = ss.clones.iter().position(|clone| *clone == oid.snap) else {
        return BTreeMap::new();
    };
    let overlap = |clone: &u64| ss.clone_overlap.get(clone).cloned().unwrap_or_default();
    let named = |snap: u64| HObject { snap, ..oid.clone() };
    let whole = if size == 0 { IntervalSet::new() } else { IntervalSet::of(0, size) };
    let found = |source: HObject, same: IntervalSet| {
        let same = same.intersection(&whole);
        if same.is_empty() { BTreeMap::new() } else { BTreeMap::from([(source, same)]) }
    };
    let mut same = whole.clone();
    for newer in at..ss.clones.len() {
        same = same.intersection(&overlap(&ss.clones[newer]));
        let source = named(ss.clones.get(newer + 1).copied().unwrap_or(NOSNAP));
        if has(&source) {
            return found(source, same);
        }
    }
    let mut same = whole.clone();
    for older in (0..at).rev() {
        same = same.intersection(&overlap(&ss.clones[older]));
        let source = named(ss.clones[older]);
        if has(&source) {
            return found(source, same);
        }
    }
    BTreeMap::new()
}

/// The next ranges of `subset` from `from` on, `limit` bytes at most; and where they end.
pub(super) fn next_ranges(subset: &IntervalSet, from: u64, limit: u64) -> (Vec<(u64, u64)>, u64) {
    let (mut ranges, mut left, mut end) = (Vec::new(), limit, from);
    for (start, len) in subset.iter() {
        let (start, stop) = (start.max(from), start + len);
        if start >= stop {
            continue;
        }
        if left == 0 {
            break;
        }
        let len = (stop - start).min(left);
        ranges.push((start, len));
        left -= len;
        end = start + len;
    }
    (ranges, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(v: u64) -> EVersion {
        EVersion { epoch: 1, version: v }
    }

    #[test]
    fn what_changed_is_asked_for() {
        let oid = HObject { name: "o".into(), snap: NOSNAP, ..HObject::default() };
        let (all, progress) = wanted(&oid, version(9), None);
        assert!(!all.object_exist && all.copy_subset.contains(1 << 40) && !progress.omap_complete);
        let mut item = PgMissingItem { need: version(9), have: version(3), ..Default::default() };
        item.clean_regions.mark_data_region_dirty(4096, 4096);
        let (part, progress) = wanted(&oid, version(9), Some(&item));
        assert_eq!(part.copy_subset, IntervalSet::of(4096, 4096));
        assert!(part.object_exist && progress.omap_complete);
        item.clean_regions.mark_omap_dirty();
        assert!(!wanted(&oid, version(9), Some(&item)).1.omap_complete);
        item.have = EVersion::ZERO;
        assert!(!wanted(&oid, version(9), Some(&item)).0.object_exist, "there is nothing to keep");
    }

    #[test]
    fn clones_come_from_their_neighbours() {
        let ss = SnapSet {
            clones: vec![2, 5],
            clone_overlap: BTreeMap::from([
                (2, IntervalSet::of(0, 100)),
                (5, IntervalSet::of(50, 100)),
            ]),
            ..SnapSet::default()
        };
        let named = |snap| HObject { name: "o".into(), snap, ..HObject::default() };
        let of = |snap, has: &[u64]| {
            let has: Vec<HObject> = has.iter().map(|snap| named(*snap)).collect();
            shared(&named(snap), &ss, 120, |oid| has.contains(oid))
        };
        let from = |snap, start, len| BTreeMap::from([(named(snap), IntervalSet::of(start, len))]);
        assert_eq!(of(2, &[5, NOSNAP]), from(5, 0, 100));
        assert_eq!(of(2, &[NOSNAP]), from(NOSNAP, 50, 50), "what both steps left alone");
        assert_eq!(of(5, &[NOSNAP]), from(NOSNAP, 50, 70), "no more than the clone has");
        assert_eq!(of(5, &[2]), from(2, 0, 100));
        assert_eq!(of(5, &[]), BTreeMap::new());
        assert_eq!(of(7, &[2, 5]), BTreeMap::new(), "not a clone");
    }

    #[test]
    fn ranges_come_in_chunks() {
        let mut subset = IntervalSet::of(0, 10);
        subset.insert(20, 30);
        assert_eq!(next_ranges(&subset, 0, 15), (vec![(0, 10), (20, 5)], 25));
        assert_eq!(next_ranges(&subset, 25, 100), (vec![(25, 25)], 50));
        assert_eq!(next_ranges(&subset, 50, 100), (vec![], 50));
        assert_eq!(next_ranges(&subset, 0, 10), (vec![(0, 10)], 10));
    }
}
