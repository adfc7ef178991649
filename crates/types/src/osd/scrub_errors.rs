//! What scrub tells of objects that are not right, as `rados list-inconsistent-obj` and
//! `list-inconsistent-snapset` ask for it (`src/include/rados/rados_types.hpp`,
//! `src/common/scrub_types.h` at v16.2).

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

use super::scrub::ScrubObject;
use crate::hobject::HObject;
use crate::ids::Epoch;
use crate::pg::PgShard;
use crate::snap::SnapId;

/// What is wrong with one copy: bits of [`ShardReport::errors`] (`err_t`).
pub mod shard_error {
    /// It is not there.
    pub const MISSING: u64 = 1 << 1;
    /// Its metadata cannot be read.
    pub const STAT_ERROR: u64 = 1 << 2;
    /// Its content cannot be read.
    pub const READ_ERROR: u64 = 1 << 3;
    /// Its content is not what the chosen object info says.
    pub const DATA_DIGEST_MISMATCH_INFO: u64 = 1 << 9;
    /// Its omap is not what the chosen object info says.
    pub const OMAP_DIGEST_MISMATCH_INFO: u64 = 1 << 10;
    /// Its size is not what the chosen object info says.
    pub const SIZE_MISMATCH_INFO: u64 = 1 << 11;
    /// A chunk that its hash info does not fit.
    pub const EC_HASH_MISMATCH: u64 = 1 << 12;
    /// A chunk of the wrong size.
    pub const EC_SIZE_MISMATCH: u64 = 1 << 13;
    /// It has no object info.
    pub const INFO_MISSING: u64 = 1 << 14;
    /// Its object info does not decode.
    pub const INFO_CORRUPTED: u64 = 1 << 15;
    /// A head without a snap set.
    pub const SNAPSET_MISSING: u64 = 1 << 16;
    /// Its snap set does not decode.
    pub const SNAPSET_CORRUPTED: u64 = 1 << 17;
    /// Its size is not what its own object info says.
    pub const OBJ_SIZE_INFO_MISMATCH: u64 = 1 << 18;
    /// A chunk without hash info.
    pub const HINFO_MISSING: u64 = 1 << 19;
    /// Its hash info does not decode.
    pub const HINFO_CORRUPTED: u64 = 1 << 20;
    /// Those that any scrub finds.
    pub const SHALLOW: u64 = MISSING
        | STAT_ERROR
        | SIZE_MISMATCH_INFO
        | INFO_MISSING
        | INFO_CORRUPTED
        | SNAPSET_MISSING
        | SNAPSET_CORRUPTED
        | OBJ_SIZE_INFO_MISMATCH
        | HINFO_MISSING
        | HINFO_CORRUPTED;
    /// Those that only a deep scrub finds.
    pub const DEEP: u64 = READ_ERROR
        | DATA_DIGEST_MISMATCH_INFO
        | OMAP_DIGEST_MISMATCH_INFO
        | EC_HASH_MISMATCH
        | EC_SIZE_MISMATCH;
}

/// In what copies differ from the chosen one: bits of [`InconsistentObject::errors`]
/// (`obj_err_t`).
pub mod object_error {
    /// Object infos.
    pub const INFO_INCONSISTENCY: u64 = 1 << 1;
    /// Content.
    pub const DATA_DIGEST_MISMATCH: u64 = 1 << 4;
    /// Omap.
    pub const OMAP_DIGEST_MISMATCH: u64 = 1 << 5;
    /// Size.
    pub const SIZE_MISMATCH: u64 = 1 << 6;
    /// Value of an xattr.
    pub const ATTR_VALUE_MISMATCH: u64 = 1 << 7;
    /// Names of xattrs.
    pub const ATTR_NAME_MISMATCH: u64 = 1 << 8;
    /// Snap sets.
    pub const SNAPSET_INCONSISTENCY: u64 = 1 << 9;
    /// Hash infos.
    pub const HINFO_INCONSISTENCY: u64 = 1 << 10;
    /// Larger than any object may be.
    pub const SIZE_TOO_LARGE: u64 = 1 << 11;
    /// Those that any scrub finds.
    pub const SHALLOW: u64 = INFO_INCONSISTENCY
        | SIZE_MISMATCH
        | ATTR_VALUE_MISMATCH
        | ATTR_NAME_MISMATCH
        | SNAPSET_INCONSISTENCY
        | HINFO_INCONSISTENCY
        | SIZE_TOO_LARGE;
    /// Those that only a deep scrub finds.
    pub const DEEP: u64 = DATA_DIGEST_MISMATCH | OMAP_DIGEST_MISMATCH;
}

/// What is wrong with an object and its clones: bits of [`InconsistentSnapset::errors`].
pub mod snapset_error {
    /// A head without a snap set.
    pub const SNAPSET_MISSING: u64 = 1;
    /// A snap set that does not decode.
    pub const SNAPSET_CORRUPTED: u64 = 1 << 1;
    /// A clone of the snap set is not there.
    pub const CLONE_MISSING: u64 = 1 << 2;
    /// Clones, but no newest snapshot.
    pub const SNAP_ERROR: u64 = 1 << 3;
    /// A clone without a head.
    pub const HEADLESS_CLONE: u64 = 1 << 5;
    /// A size that is not the one recorded.
    pub const SIZE_MISMATCH: u64 = 1 << 6;
    /// No object info.
    pub const INFO_MISSING: u64 = 1 << 7;
    /// An object info that does not decode.
    pub const INFO_CORRUPTED: u64 = 1 << 8;
    /// Clones that the snap set does not name.
    pub const EXTRA_CLONES: u64 = 1 << 9;
}

/// The object meant. Wire: librados::object_id_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjectId {
    /// Name.
    pub name: BString,
    /// Namespace.
    pub namespace: BString,
    /// Locator key.
    pub locator: BString,
    /// Clone or head.
    pub snap: SnapId,
}

impl From<&HObject> for ObjectId {
    fn from(oid: &HObject) -> ObjectId {
        ObjectId {
            name: oid.name.clone(),
            namespace: oid.namespace.clone(),
            locator: oid.key.clone(),
            snap: oid.snap,
        }
    }
}

/// One copy of an inconsistent object. Wire: librados::shard_info_t v3/c3.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ShardReport {
    /// [`shard_error`] bits.
    pub errors: u64,
    /// Whether it is the primary's.
    pub primary: bool,
    /// Xattrs.
    pub attrs: BTreeMap<BString, Bytes>,
    /// Bytes of content.
    pub size: u64,
    /// Checksum of the omap, if a deep scrub took it.
    pub omap_digest: Option<u32>,
    /// Checksum of the content, if a deep scrub took it.
    pub data_digest: Option<u32>,
    /// Whether its object info was chosen.
    pub selected_oi: bool,
}

impl ShardReport {
    /// Takes over what the scrub found of the copy.
    pub fn describe(&mut self, object: &ScrubObject) {
        self.attrs = object.attrs.clone();
        self.size = object.size;
        self.omap_digest = object.omap_digest_present.then_some(object.omap_digest);
        self.data_digest = object.digest_present.then_some(object.digest);
    }

    /// Whether one of these errors is set.
    pub fn has(&self, errors: u64) -> bool {
        self.errors & errors != 0
    }
}

impl Denc for ShardReport {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 3, |w| {
            w.u64(self.errors);
            w.bool(self.primary);
            if self.has(shard_error::MISSING) {
                return;
            }
            w.put(&self.attrs);
            w.u64(self.size);
            w.bool(self.omap_digest.is_some());
            w.u32(self.omap_digest.unwrap_or(0));
            w.bool(self.data_digest.is_some());
            w.u32(self.data_digest.unwrap_or(0));
            w.bool(self.selected_oi);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<ShardReport, Error> {
        r.envelope("ShardReport", 3, 3, |r, _| {
            let mut report =
                ShardReport { errors: r.u64()?, primary: r.bool()?, ..Default::default() };
            if report.has(shard_error::MISSING) {
                return Ok(report);
            }
            report.attrs = r.get()?;
            report.size = r.u64()?;
            let mut digest = || Ok::<_, Error>((r.bool()?, r.u32()?));
            let (omap, data) = (digest()?, digest()?);
            report.omap_digest = omap.0.then_some(omap.1);
            report.data_digest = data.0.then_some(data.1);
            report.selected_oi = r.bool()?;
            Ok(report)
        })
    }
}

/// Which copy. Wire: librados::osd_shard_t v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Denc)]
#[denc(v = 1, compat = 1)]
pub struct OsdShard {
    /// The OSD.
    pub osd: i32,
    /// Its shard; -1 in a replicated pool.
    pub shard: i8,
}

impl From<PgShard> for OsdShard {
    fn from(s: PgShard) -> OsdShard {
        OsdShard { osd: s.osd, shard: s.shard }
    }
}

/// An object whose copies are not all right. Wire: librados::inconsistent_obj_t v2/c2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 2)]
pub struct InconsistentObject {
    /// [`object_error`] bits.
    pub errors: u64,
    /// Which object.
    pub object: ObjectId,
    /// The chosen copy's user version; 0 if none could be chosen.
    pub version: u64,
    /// Its copies.
    pub shards: BTreeMap<OsdShard, ShardReport>,
    /// All bits of all copies.
    pub union_errors: u64,
}

impl InconsistentObject {
    /// Adds a copy.
    pub fn add(&mut self, shard: PgShard, report: ShardReport) {
        self.union_errors |= report.errors;
        self.shards.insert(shard.into(), report);
    }
}

/// An object whose clones are not as its snap set says. Wire: librados::inconsistent_snapset_t
/// v2/c1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct InconsistentSnapset {
    /// [`snapset_error`] bits.
    pub errors: u64,
    /// The head or clone.
    pub object: ObjectId,
    /// Clones there should not be.
    pub clones: Vec<SnapId>,
    /// Clones there should be.
    pub missing: Vec<SnapId>,
    /// The snap set as stored.
    #[denc(since = 2)]
    pub snapset: Bytes,
}

/// Input of `CEPH_OSD_OP_SCRUBLS`. Wire: scrub_ls_arg_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ScrubLsArg {
    /// The interval the list was begun in; 0 to begin one.
    pub interval: Epoch,
    /// Not 0: snap sets, else objects.
    pub get_snapsets: u32,
    /// Begin behind this object's name...
    pub after_name: BString,
    /// ...namespace...
    pub after_namespace: BString,
    /// ...and snapshot.
    pub after_snap: SnapId,
    /// Entries at most.
    pub max_return: u64,
}

/// Output of `CEPH_OSD_OP_SCRUBLS`. Wire: scrub_ls_result_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ScrubLsResult {
    /// The interval.
    pub interval: Epoch,
    /// Each an [`InconsistentObject`] or an [`InconsistentSnapset`].
    pub entries: Vec<Bytes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let mut object = InconsistentObject {
            object: ObjectId { name: "o".into(), ..ObjectId::default() },
            version: 3,
            ..InconsistentObject::default()
        };
        let missing =
            ShardReport { errors: shard_error::MISSING, primary: true, ..Default::default() };
        let whole = ShardReport {
            errors: shard_error::READ_ERROR,
            size: 7,
            data_digest: Some(5),
            selected_oi: true,
            ..Default::default()
        };
        object.add(PgShard::replica(2), missing);
        object.add(PgShard::replica(0), whole);
        assert_eq!(object.union_errors, shard_error::MISSING | shard_error::READ_ERROR);
        assert_eq!(InconsistentObject::from_bytes_exact(&object.to_bytes()).unwrap(), object);
        let arg = ScrubLsArg { interval: 4, max_return: 32, ..ScrubLsArg::default() };
        assert_eq!(ScrubLsArg::from_bytes_exact(&arg.to_bytes()).unwrap(), arg);
        // A copy that is not there is told by its first two fields alone.
        assert_eq!(object.shards.values().last().unwrap().to_bytes().len(), 6 + 9);
    }
}
