//! The missing set: which objects a PG should have, by its log, and has not (or has in an older
//! version). Kept for the PG itself and, on the primary, for each peer.
//!
//! Semantics of `pg_missing_set` (`src/osd/osd_types.h` at v16.2). Size is bounded by the log: an
//! entry beyond the log's tail makes a backfill instead.

use std::collections::{BTreeMap, BTreeSet};

use types::osd::{ObjectCleanRegions, PgLogEntry, PgMissing, PgMissingItem};
use types::{EVersion, HObject};

/// Objects to recover, by name and by the version needed.
#[derive(Debug, Clone, Default)]
pub struct Missing {
    items: BTreeMap<HObject, PgMissingItem>,
    by_version: BTreeMap<(EVersion, HObject), ()>,
    /// Changed since last written.
    dirty: BTreeSet<HObject>,
}

impl Missing {
    /// From the wire or the store: nothing is dirty.
    pub fn from_wire(wire: PgMissing) -> Missing {
        let mut missing = Missing::default();
        for (oid, item) in wire.items() {
            missing.by_version.insert((item.need, oid.clone()), ());
            missing.items.insert(oid.clone(), item.clone());
        }
        missing
    }

    /// As messages carry it.
    pub fn to_wire(&self) -> PgMissing {
        let mut wire = PgMissing::new();
        for (oid, item) in &self.items {
            wire.add(oid.clone(), item.clone());
        }
        wire
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Whether the object is missing.
    pub fn contains(&self, oid: &HObject) -> bool {
        self.items.contains_key(oid)
    }

    /// What is missing of the object.
    pub fn get(&self, oid: &HObject) -> Option<&PgMissingItem> {
        self.items.get(oid)
    }

    /// All of it, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&HObject, &PgMissingItem)> {
        self.items.iter()
    }

    /// From `from` on, in the order of names.
    pub fn range_from(&self, from: &HObject) -> impl Iterator<Item = (&HObject, &PgMissingItem)> {
        self.items.range(from.clone()..)
    }

    /// All of it, oldest version needed first.
    pub fn in_version_order(&self) -> impl Iterator<Item = &HObject> {
        self.by_version.keys().map(|(_, oid)| oid)
    }

    /// The oldest version needed.
    pub fn oldest_need(&self) -> Option<EVersion> {
        self.by_version.keys().next().map(|(version, _)| *version)
    }

    /// Needs `need`, has `have`.
    pub fn add(&mut self, oid: &HObject, need: EVersion, have: EVersion, delete: bool) {
        self.put(oid, item(need, have, delete));
    }

    /// A log entry that the holder of this set has not applied.
    pub fn add_next_event(&mut self, e: &PgLogEntry) {
        if e.is_error() || (env::mutant("omit-missing") && e.version.version.is_multiple_of(4)) {
            return;
        }
        let delete = e.is_delete();
        let new = match self.items.get(&e.soid) {
            _ if e.prior_version.is_zero() || e.is_clone() => {
                item(e.version, EVersion::ZERO, delete)
            }
            // What was deleted in between has nothing in common with what comes after.
            Some(known) if delete || known.is_delete || e.is_lost_revert() => {
                item(e.version, known.have, delete)
            }
            Some(known) => {
                let mut clean_regions = known.clean_regions.clone();
                clean_regions.merge(&e.clean_regions);
                PgMissingItem { need: e.version, have: known.have, is_delete: false, clean_regions }
            }
            None if e.is_lost_revert() => item(e.version, e.extras().reverting_to, delete),
            None if delete => item(e.version, e.prior_version, delete),
            None => PgMissingItem {
                need: e.version,
                have: e.prior_version,
                is_delete: false,
                clean_regions: e.clean_regions.clone(),
            },
        };
        self.put(&e.soid, new);
    }

    /// Needs another version than thought.
    pub fn revise_need(&mut self, oid: &HObject, need: EVersion, delete: bool) {
        let have = self.items.get(oid).map_or(EVersion::ZERO, |i| i.have);
        self.put(oid, item(need, have, delete));
    }

    /// Has another version than thought.
    pub fn revise_have(&mut self, oid: &HObject, have: EVersion) {
        if let Some(known) = self.items.get_mut(oid) {
            known.have = have;
            known.clean_regions = ObjectCleanRegions::fully_dirty();
            self.dirty.insert(oid.clone());
        }
    }

    /// The object is not missing any more.
    pub fn remove(&mut self, oid: &HObject) -> bool {
        let Some(old) = self.items.remove(oid) else { return false };
        self.by_version.remove(&(old.need, oid.clone()));
        self.dirty.insert(oid.clone());
        true
    }

    /// The holder got version `version`.
    pub fn got(&mut self, oid: &HObject, version: EVersion) -> bool {
        match self.items.get(oid) {
            Some(known) if known.need <= version => self.remove(oid),
            _ => false,
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.dirty.extend(std::mem::take(&mut self.items).into_keys());
        self.by_version.clear();
    }

    /// Forgets the objects for which `keep` is false (a split).
    pub fn retain(&mut self, mut keep: impl FnMut(&HObject) -> bool) {
        let gone: Vec<HObject> = self.items.keys().filter(|o| !keep(o)).cloned().collect();
        for oid in gone {
            self.remove(&oid);
        }
    }

    fn put(&mut self, oid: &HObject, new: PgMissingItem) {
        let need = new.need;
        if let Some(old) = self.items.insert(oid.clone(), new) {
            self.by_version.remove(&(old.need, oid.clone()));
        }
        self.by_version.insert((need, oid.clone()), ());
        self.dirty.insert(oid.clone());
    }

    /// What changed since the last call: the object and what is missing of it now.
    pub fn take_dirty(&mut self) -> Vec<(HObject, Option<PgMissingItem>)> {
        std::mem::take(&mut self.dirty)
            .into_iter()
            .map(|oid| {
                let now = self.items.get(&oid).cloned();
                (oid, now)
            })
            .collect()
    }

    /// Whether something has to be written.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }
}

/// Nothing of the old version can be kept when recovering.
fn item(need: EVersion, have: EVersion, delete: bool) -> PgMissingItem {
    PgMissingItem::fully_dirty(need, have, delete)
}
