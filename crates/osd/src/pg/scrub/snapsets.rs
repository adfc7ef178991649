//! Checks that clones, heads, their infos and snap sets fit each other, and counts anew what the
//! PG's statistics should be (`scrub_snapshot_metadata` in `src/osd/PrimaryLogScrub.cc` at v16.2).
//! Pure.

use std::collections::BTreeMap;

use bstr::BStr;
use bytes::Bytes;
use denc::Denc;
use types::osd::scrub_errors::{InconsistentSnapset, snapset_error as e};
use types::osd::{ObjectInfo, ObjectStatSum, ScrubObject, SnapSet};
use types::{HObject, SnapId, SpgId};

use crate::ops::object_context::{OI_ATTR, SS_ATTR};

/// What comes of the check of a range.
#[derive(Debug, Default)]
pub struct Checked {
    /// Objects, bytes and flags counted.
    pub stats: ObjectStatSum,
    /// Errors found.
    pub errors: u32,
    /// What to keep for `list-inconsistent-snapset`.
    pub objects: Vec<(HObject, InconsistentSnapset)>,
    /// Lines for the cluster log.
    pub log: Vec<String>,
}

/// The head whose clones are being looked at.
struct Head {
    oid: HObject,
    snapset: Option<SnapSet>,
    /// Clones of the snap set that have not been seen, oldest first.
    expected: Vec<SnapId>,
    told: InconsistentSnapset,
    clone_errors: u32,
    missing: u32,
}

struct Check<'a> {
    mode: &'a str,
    pgid: SpgId,
    stored_size: &'a dyn Fn(u64) -> u64,
    head: Option<Head>,
    out: Checked,
}

/// Checks whole objects: with a head, all its clones must be in `objects`. `stored_size` tells how
/// many bytes a copy, or a shard, of an object of so many has.
pub fn check(
    mode: &str,
    pgid: SpgId,
    hit_set_namespace: &[u8],
    stored_size: &dyn Fn(u64) -> u64,
    objects: &BTreeMap<HObject, ScrubObject>,
) -> Checked {
    let mut check = Check { mode, pgid, stored_size, head: None, out: Checked::default() };
    // Clones sort before their head.
    for (oid, object) in objects.iter().rev() {
        check.object(oid, object, hit_set_namespace);
    }
    check.end_head();
    check.out
}

impl Check<'_> {
    fn error(&mut self, oid: &HObject, text: impl std::fmt::Display) {
        self.out.errors += 1;
        self.out.log.push(format!("{} {} {oid} : {text}", self.mode, self.pgid));
    }

    fn object(&mut self, oid: &HObject, object: &ScrubObject, hit_sets: &[u8]) {
        let mut told = InconsistentSnapset { object: oid.into(), ..Default::default() };
        let mut stat = ObjectStatSum { num_objects: 1, ..ObjectStatSum::default() };
        let is_hit_set = oid.namespace == hit_sets;
        stat.num_objects_hit_set_archive += i64::from(is_hit_set);
        stat.num_object_clones += i64::from(oid.is_snap());
        let oi = match object.attrs.get(BStr::new(OI_ATTR)) {
            None => {
                self.error(oid, "no '_' attr");
                told.errors |= e::INFO_MISSING;
                None
            }
            Some(bytes) => match ObjectInfo::from_bytes(bytes) {
                Ok(oi) => Some(oi),
                Err(why) => {
                    self.error(oid, format_args!("can't decode '_' attr {why}"));
                    told.errors |= e::INFO_CORRUPTED | e::INFO_MISSING;
                    None
                }
            },
        };
        if let Some(oi) = &oi {
            let expected = (self.stored_size)(oi.size);
            if expected != object.size {
                let text = format!(
                    "on disk size ({}) does not match object info size ({}) adjusted for ondisk \
                     to ({})",
                    object.size, oi.size, expected
                );
                self.error(oid, text);
                told.errors |= e::SIZE_MISMATCH;
            }
            if !oid.is_snap() {
                stat.num_bytes += oi.size as i64;
            }
            if is_hit_set {
                stat.num_bytes_hit_set_archive += oi.size as i64;
            }
            stat.num_objects_dirty += i64::from(oi.is_dirty());
            stat.num_whiteouts += i64::from(oi.is_whiteout());
            stat.num_objects_omap += i64::from(oi.is_omap());
            stat.num_objects_pinned += i64::from(oi.is_cache_pinned());
            stat.num_objects_manifest += i64::from(oi.has_manifest());
        }
        if !oid.is_snap() {
            self.end_head();
            self.begin_head(oid, object, told);
        } else if !self.clone(oid, oi.as_ref(), told, &mut stat) {
            return;
        }
        self.out.stats.add(&stat);
    }

    fn begin_head(&mut self, oid: &HObject, object: &ScrubObject, mut told: InconsistentSnapset) {
        let mut snapset = None;
        match object.attrs.get(BStr::new(SS_ATTR)) {
            None => {
                self.error(oid, "no 'snapset' attr");
                told.errors |= e::SNAPSET_MISSING;
            }
            Some(bytes) => match SnapSet::from_bytes(bytes) {
                Ok(set) => {
                    told.snapset = Bytes::clone(bytes);
                    snapset = Some(set);
                }
                Err(why) => {
                    self.error(oid, format_args!("can't decode 'snapset' attr {why}"));
                    told.errors |= e::SNAPSET_CORRUPTED;
                }
            },
        }
        let expected = snapset.as_ref().map(|set| set.clones.clone()).unwrap_or_default();
        if !expected.is_empty() && snapset.as_ref().is_some_and(|set| set.seq == 0) {
            self.error(oid, "snaps.seq not set");
            told.errors |= e::SNAP_ERROR;
        }
        let oid = oid.clone();
        self.head = Some(Head { oid, snapset, expected, told, clone_errors: 0, missing: 0 });
    }

    /// Clones newer than `target`, or all, that have not been seen are missing.
    fn pass_clones(&mut self, target: Option<SnapId>) {
        while let Some(head) = &mut self.head
            && let Some(&next) = head.expected.last()
            && target.is_none_or(|target| next > target)
        {
            head.expected.pop();
            head.missing += 1;
            head.told.errors |= e::CLONE_MISSING;
            head.told.missing.push(next);
            let (oid, clone) = (head.oid.clone(), head.oid.with_snap(next));
            self.error(&oid, format_args!("expected clone {clone} 1 missing"));
        }
    }

    fn end_head(&mut self) {
        self.pass_clones(None);
        let Some(head) = self.head.take() else { return };
        if head.missing > 0 {
            let (mode, pgid, oid) = (self.mode, self.pgid, &head.oid);
            self.out.log.push(format!("{mode} {pgid} {oid} : {} missing clone(s)", head.missing));
        }
        if head.told.errors != 0 || head.clone_errors > 0 {
            self.out.objects.push((head.oid, head.told));
        }
    }

    /// A clone; `false` if it should not be there.
    fn clone(
        &mut self,
        oid: &HObject,
        oi: Option<&ObjectInfo>,
        mut told: InconsistentSnapset,
        stat: &mut ObjectStatSum,
    ) -> bool {
        let of_head = self.head.as_ref().is_some_and(|head| head.oid == oid.head());
        if of_head {
            self.pass_clones(Some(oid.snap));
        } else {
            self.end_head();
        }
        let is_expected =
            of_head && self.head.as_ref().and_then(|h| h.expected.last()) == Some(&oid.snap);
        if !is_expected {
            let unreadable = self.head.as_ref().is_some_and(|head| head.snapset.is_none());
            self.error(
                oid,
                match unreadable {
                    true => "clone ignored due to missing snapset",
                    false => "is an unexpected clone",
                },
            );
            told.errors |= e::HEADLESS_CLONE;
            self.out.objects.push((oid.clone(), told));
            if let Some(head) = &mut self.head {
                head.clone_errors += 1;
                head.told.errors |= e::EXTRA_CLONES;
                head.told.clones.push(oid.snap);
            }
            return false;
        }
        let snapset = match &mut self.head {
            Some(head) => {
                head.expected.pop();
                head.snapset.clone().unwrap_or_default()
            }
            None => SnapSet::default(),
        };
        match (snapset.clone_size.get(&oid.snap), snapset.clone_overlap.get(&oid.snap)) {
            (None, _) => {
                self.error(oid, "is missing in clone_size");
                told.errors |= e::SIZE_MISMATCH;
            }
            (Some(&size), overlap) => {
                if let Some(oi) = oi.filter(|oi| oi.size != size) {
                    self.error(oid, format_args!("size {} != clone_size {size}", oi.size));
                    told.errors |= e::SIZE_MISMATCH;
                }
                match overlap {
                    None => {
                        self.error(oid, "is missing in clone_overlap");
                        told.errors |= e::SIZE_MISMATCH;
                    }
                    Some(overlap) if overlap.size() > size => {
                        self.error(oid, "bad interval_set in clone_overlap");
                        told.errors |= e::SIZE_MISMATCH;
                    }
                    Some(_) => stat.num_bytes += snapset.clone_bytes(oid.snap) as i64,
                }
            }
        }
        if told.errors != 0 {
            self.out.objects.push((oid.clone(), told));
            if let Some(head) = &mut self.head {
                head.clone_errors += 1;
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use types::{IntervalSet, NOSNAP, ObjectLocator};

    use super::*;

    fn oid(snap: SnapId) -> HObject {
        HObject::new("o", &ObjectLocator::default(), snap)
    }

    fn object(oid: &HObject, size: u64, set: Option<&SnapSet>) -> ScrubObject {
        let oi = ObjectInfo { size, ..ObjectInfo::new(oid.clone()) };
        let mut object = ScrubObject { size, ..ScrubObject::default() };
        object.attrs.insert(OI_ATTR.into(), oi.to_bytes());
        if let Some(set) = set {
            object.attrs.insert(SS_ATTR.into(), set.to_bytes());
        }
        object
    }

    fn set(clones: &[SnapId]) -> SnapSet {
        let mut set = SnapSet { seq: 9, clones: clones.to_vec(), ..SnapSet::default() };
        for &clone in clones {
            set.clone_size.insert(clone, 10);
            set.clone_overlap.insert(clone, IntervalSet::of(0, 4));
        }
        set
    }

    fn run(clones: &[(SnapId, u64)], set: Option<&SnapSet>) -> Checked {
        let mut objects = BTreeMap::new();
        for &(snap, size) in clones {
            let set = (snap == NOSNAP).then_some(set).flatten();
            objects.insert(oid(snap), object(&oid(snap), size, set));
        }
        check("scrub", SpgId::default(), b".ceph-internal", &|size| size, &objects)
    }

    #[test]
    fn what_fits_is_counted() {
        let found = run(&[(2, 10), (4, 10), (NOSNAP, 100)], Some(&set(&[2, 4])));
        assert_eq!(found.errors, 0, "{:?}", found.log);
        let s = found.stats;
        assert_eq!((s.num_objects, s.num_object_clones, s.num_bytes), (3, 2, 100 + 6 + 6));
    }

    #[test]
    fn missing_clones() {
        let found = run(&[(4, 10), (NOSNAP, 1)], Some(&set(&[2, 4, 6])));
        assert_eq!(found.errors, 2);
        let (_, told) = &found.objects[0];
        assert_eq!((told.errors, &told.missing[..]), (e::CLONE_MISSING, &[6, 2][..]));
    }

    #[test]
    fn clones_too_many() {
        let found = run(&[(2, 10), (3, 10), (NOSNAP, 1)], Some(&set(&[2])));
        assert_eq!(found.errors, 1);
        assert_eq!(found.objects[0].1.errors, e::HEADLESS_CLONE);
        assert_eq!(found.objects[1].1.clones, [3]);
        // Without a head, and with one whose snap set is gone.
        assert_eq!(run(&[(2, 10)], None).objects[0].1.errors, e::HEADLESS_CLONE);
        let found = run(&[(2, 10), (NOSNAP, 1)], None);
        assert_eq!(found.errors, 2);
        assert!(found.log[1].contains("clone ignored due to missing snapset"));
    }

    #[test]
    fn sizes() {
        let found = run(&[(2, 11), (NOSNAP, 1)], Some(&set(&[2])));
        assert_eq!((found.errors, found.objects[0].1.errors), (1, e::SIZE_MISMATCH));
        let mut bad = set(&[2]);
        bad.clone_overlap.insert(2, IntervalSet::of(0, 40));
        assert_eq!(run(&[(2, 10), (NOSNAP, 1)], Some(&bad)).errors, 1);
    }
}
