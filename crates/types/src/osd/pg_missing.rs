//! Objects that a member of a PG should have and has not.

use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};

use super::clean_regions::ObjectCleanRegions;
use super::pg_log::PgLogEntry;
use crate::hobject::HObject;
use crate::version::EVersion;

/// Wire: pg_missing_item in its octopus form: 0'0, the largest version, need, have, u8 flags,
/// clean regions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgMissingItem {
    /// The version it should have.
    pub need: EVersion,
    /// The version it has, 0'0 for none.
    pub have: EVersion,
    /// Whether `need` is its deletion.
    pub is_delete: bool,
    /// What of `have` is as in `need`.
    pub clean_regions: ObjectCleanRegions,
}

impl PgMissingItem {
    /// Nothing of `have` can be kept.
    pub fn fully_dirty(need: EVersion, have: EVersion, is_delete: bool) -> PgMissingItem {
        PgMissingItem { need, have, is_delete, clean_regions: ObjectCleanRegions::fully_dirty() }
    }
}

impl Denc for PgMissingItem {
    fn encode(&self, w: &mut Writer) {
        w.put(&EVersion::ZERO);
        w.put(&EVersion::MAX);
        w.put(&self.need);
        w.put(&self.have);
        w.bool(self.is_delete);
        w.put(&self.clean_regions);
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgMissingItem, Error> {
        let first: EVersion = r.get()?;
        let second: EVersion = r.get()?;
        if second == EVersion::MAX {
            return Ok(PgMissingItem {
                need: r.get()?,
                have: r.get()?,
                is_delete: r.u8()? == 1,
                clean_regions: r.get()?,
            });
        }
        // The forms of luminous and of before it.
        if first.is_zero() {
            let have = r.get()?;
            return Ok(PgMissingItem::fully_dirty(second, have, r.u8()? == 1));
        }
        Ok(PgMissingItem::fully_dirty(first, second, false))
    }
}

/// Wire: pg_missing_t v5/c2. Keeps an index by version for recovery in the order of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgMissing {
    missing: BTreeMap<HObject, PgMissingItem>,
    by_version: BTreeMap<u64, HObject>,
    /// Whether deletions are in it too (always, since luminous).
    pub may_include_deletes: bool,
}

impl PgMissing {
    /// An empty set.
    pub fn new() -> PgMissing {
        PgMissing { may_include_deletes: true, ..PgMissing::default() }
    }

    /// The items by object.
    pub fn items(&self) -> &BTreeMap<HObject, PgMissingItem> {
        &self.missing
    }

    /// The objects by `need.version`.
    pub fn by_version(&self) -> &BTreeMap<u64, HObject> {
        &self.by_version
    }

    /// Objects in it.
    pub fn len(&self) -> usize {
        self.missing.len()
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty()
    }

    /// The item of an object.
    pub fn get(&self, oid: &HObject) -> Option<&PgMissingItem> {
        self.missing.get(oid)
    }

    /// Whether the object is missing.
    pub fn is_missing(&self, oid: &HObject) -> bool {
        self.missing.contains_key(oid)
    }

    /// Whether the object is missing at `version` or before.
    pub fn is_missing_version(&self, oid: &HObject, version: EVersion) -> bool {
        self.missing.get(oid).is_some_and(|item| item.need <= version)
    }

    /// The old version there is of a missing object; 0'0 for none.
    pub fn have_old(&self, oid: &HObject) -> EVersion {
        self.missing.get(oid).map_or(EVersion::ZERO, |item| item.have)
    }

    /// The smallest version needed.
    pub fn oldest_need(&self) -> EVersion {
        let oldest = self.by_version.values().next().and_then(|oid| self.missing.get(oid));
        oldest.map_or(EVersion::ZERO, |item| item.need)
    }

    /// Adds or replaces an object.
    pub fn add(&mut self, oid: HObject, item: PgMissingItem) {
        self.remove(&oid);
        self.by_version.insert(item.need.version, oid.clone());
        self.missing.insert(oid, item);
    }

    /// Takes an object out.
    pub fn remove(&mut self, oid: &HObject) -> Option<PgMissingItem> {
        let item = self.missing.remove(oid)?;
        self.by_version.remove(&item.need.version);
        Some(item)
    }

    /// Takes an object out that has been recovered at `version`, if that is new enough.
    pub fn got(&mut self, oid: &HObject, version: EVersion) {
        if self.is_missing_version(oid, version) {
            self.remove(oid);
        }
    }

    /// Changes what an object needs; one that was not missing had nothing.
    pub fn revise_need(&mut self, oid: HObject, need: EVersion, is_delete: bool) {
        let have = self.have_old(&oid);
        self.add(oid, PgMissingItem::fully_dirty(need, have, is_delete));
    }

    /// Changes which version of a missing object there is.
    pub fn revise_have(&mut self, oid: &HObject, have: EVersion) {
        if let Some(item) = self.missing.get_mut(oid) {
            item.have = have;
        }
    }

    /// All of a missing object has to be copied.
    pub fn mark_fully_dirty(&mut self, oid: &HObject) {
        if let Some(item) = self.missing.get_mut(oid) {
            item.clean_regions.mark_fully_dirty();
        }
    }

    /// A log entry came that this member has not applied.
    pub fn add_next_event(&mut self, entry: &PgLogEntry) {
        let had = self.remove(&entry.soid);
        let is_delete = entry.is_delete();
        let item = match had {
            // A new object.
            _ if entry.prior_version.is_zero() || entry.is_clone() => {
                PgMissingItem::fully_dirty(entry.version, EVersion::ZERO, is_delete)
            }
            // Already missing: have stays.
            Some(mut item) => {
                item.need = entry.version;
                item.is_delete = is_delete;
                if entry.is_lost_revert() {
                    item.clean_regions.mark_fully_dirty();
                } else {
                    item.clean_regions.merge(&entry.clean_regions);
                }
                item
            }
            None if entry.is_lost_revert() => {
                PgMissingItem::fully_dirty(entry.version, entry.extras().reverting_to, is_delete)
            }
            None => PgMissingItem {
                need: entry.version,
                have: entry.prior_version,
                is_delete,
                clean_regions: entry.clean_regions.clone(),
            },
        };
        self.add(entry.soid.clone(), item);
    }

    /// Moves the objects that `moves` names to a new set: the PG splits.
    pub fn split_off(&mut self, mut moves: impl FnMut(&HObject) -> bool) -> PgMissing {
        let mut child =
            PgMissing { may_include_deletes: self.may_include_deletes, ..PgMissing::default() };
        let gone: Vec<HObject> = self.missing.keys().filter(|oid| moves(oid)).cloned().collect();
        for oid in gone {
            if let Some(item) = self.remove(&oid) {
                child.add(oid, item);
            }
        }
        child
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.missing.clear();
        self.by_version.clear();
    }
}

impl Denc for PgMissing {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 2, |w| {
            w.put(&self.missing);
            w.bool(self.may_include_deletes);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgMissing, Error> {
        r.envelope("PgMissing", 5, 4, |r, _| {
            let missing: BTreeMap<HObject, PgMissingItem> = r.get()?;
            let may_include_deletes = r.bool()?;
            let by_version =
                missing.iter().map(|(oid, item)| (item.need.version, oid.clone())).collect();
            Ok(PgMissing { missing, by_version, may_include_deletes })
        })
    }
}
