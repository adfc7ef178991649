//! Objects that a member of a PG should have and has not.

use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};

use super::clean_regions::ObjectCleanRegions;
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

/// What a member lacks, as it is sent. Wire: pg_missing_t v5/c2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PgMissing {
    missing: BTreeMap<HObject, PgMissingItem>,
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

    /// Objects in it.
    pub fn len(&self) -> usize {
        self.missing.len()
    }

    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.missing.is_empty()
    }

    /// Takes out all others.
    pub fn retain(&mut self, mut stays: impl FnMut(&HObject) -> bool) {
        self.missing.retain(|oid, _| stays(oid));
    }

    /// Adds or replaces an object.
    pub fn add(&mut self, oid: HObject, item: PgMissingItem) {
        self.missing.insert(oid, item);
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
            Ok(PgMissing { missing: r.get()?, may_include_deletes: r.bool()? })
        })
    }
}
