//! Objects on their way between OSDs: recovery's pushes and pulls, and steps of copies.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;

use super::object_info::ObjectInfo;
use super::snap_set::SnapSet;
use crate::hobject::HObject;
use crate::interval_set::IntervalSet;
use crate::reqid::OsdReqId;
use crate::snap::SnapId;
use crate::time::UTime;
use crate::version::EVersion;

/// Wire: ObjectRecoveryInfo v3/c1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 3, compat = 1, oldest = 2)]
pub struct ObjectRecoveryInfo {
    /// The object.
    pub soid: HObject,
    /// The version to copy.
    pub version: EVersion,
    /// Bytes of content.
    pub size: u64,
    /// Its info.
    pub oi: ObjectInfo,
    /// Its snap set.
    pub ss: SnapSet,
    /// Ranges to copy.
    pub copy_subset: IntervalSet,
    /// Ranges to clone from objects the receiver has.
    pub clone_subset: BTreeMap<HObject, IntervalSet>,
    /// Whether the receiver has an older version to build on.
    #[denc(since = 3)]
    pub object_exist: bool,
}

/// Wire: ObjectRecoveryProgress v1.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjectRecoveryProgress {
    /// No piece yet.
    pub first: bool,
    /// The content is copied.
    pub data_complete: bool,
    /// Content up to here is.
    pub data_recovered_to: u64,
    /// Omap up to this key is.
    pub omap_recovered_to: BString,
    /// The omap is.
    pub omap_complete: bool,
}

impl Default for ObjectRecoveryProgress {
    fn default() -> ObjectRecoveryProgress {
        ObjectRecoveryProgress {
            first: true,
            data_complete: false,
            data_recovered_to: 0,
            omap_recovered_to: BString::default(),
            omap_complete: false,
        }
    }
}

impl ObjectRecoveryProgress {
    /// Whether all is copied.
    pub fn is_complete(&self, info: &ObjectRecoveryInfo) -> bool {
        let end = info.copy_subset.range_end().unwrap_or(0);
        self.data_recovered_to >= end && self.omap_complete
    }
}

/// A piece of an object. Wire: PushOp v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PushOp {
    /// The object.
    pub soid: HObject,
    /// Its version.
    pub version: EVersion,
    /// Content, the ranges of `data_included` joined.
    pub data: Bytes,
    /// Which ranges.
    pub data_included: IntervalSet,
    /// Omap header, in the first piece.
    pub omap_header: Bytes,
    /// Some of the omap.
    pub omap_entries: BTreeMap<BString, Bytes>,
    /// Attributes, in the first piece.
    pub attrset: BTreeMap<BString, Bytes>,
    /// What is copied.
    pub recovery_info: ObjectRecoveryInfo,
    /// How far after this piece.
    pub after_progress: ObjectRecoveryProgress,
    /// How far before it.
    pub before_progress: ObjectRecoveryProgress,
}

/// Wire: PushReplyOp v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PushReplyOp {
    /// The object whose piece is stored.
    pub soid: HObject,
}

/// Asks for a piece. Wire: PullOp v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PullOp {
    /// The object.
    pub soid: HObject,
    /// What to copy.
    pub recovery_info: ObjectRecoveryInfo,
    /// How far it is.
    pub recovery_progress: ObjectRecoveryProgress,
}

/// How far a copy is. Wire: object_copy_cursor_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjectCopyCursor {
    /// Attributes are copied.
    pub attr_complete: bool,
    /// Content up to here is.
    pub data_offset: u64,
    /// All content is.
    pub data_complete: bool,
    /// Omap up to this key is.
    pub omap_offset: BString,
    /// All omap is.
    pub omap_complete: bool,
}

impl ObjectCopyCursor {
    /// All copied.
    pub fn is_complete(&self) -> bool {
        self.attr_complete && self.data_complete && self.omap_complete
    }
}

/// What copy-get returns. Wire: object_copy_data_t v8/c5.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 8, compat = 5, oldest = 5)]
pub struct ObjectCopyData {
    /// Size of the object.
    pub size: u64,
    /// When changed.
    pub mtime: UTime,
    /// Attributes, in the first step.
    pub attrs: BTreeMap<BString, Bytes>,
    /// Content of this step.
    pub data: Bytes,
    /// Omap of this step: an encoded map.
    pub omap_data: Bytes,
    /// How far it is now.
    pub cursor: ObjectCopyCursor,
    /// Omap header.
    pub omap_header: Bytes,
    /// A clone's snapshots, newest first.
    pub snaps: Vec<SnapId>,
    /// A head's newest snapshot.
    pub snap_seq: SnapId,
    /// 1: `data_digest` holds, 2: `omap_digest` holds.
    pub flags: u32,
    /// CRC-32C of the content.
    pub data_digest: u32,
    /// CRC-32C of the omap.
    pub omap_digest: u32,
    /// The last requests and their user versions, newest first.
    #[denc(since = 6)]
    pub reqids: Vec<(OsdReqId, u64)>,
    /// Number of truncations.
    #[denc(since = 7)]
    pub truncate_seq: u64,
    /// Size of the last.
    #[denc(since = 7)]
    pub truncate_size: u64,
    /// Results of `reqids` that failed, by index.
    #[denc(since = 8)]
    pub reqid_return_codes: BTreeMap<u32, i32>,
}

impl ObjectCopyData {
    /// In `flags`: `data_digest` holds.
    pub const FLAG_DATA_DIGEST: u32 = 1;
    /// In `flags`: `omap_digest` holds.
    pub const FLAG_OMAP_DIGEST: u32 = 2;
}

impl Default for ObjectCopyData {
    fn default() -> ObjectCopyData {
        ObjectCopyData {
            size: u64::MAX,
            mtime: UTime::ZERO,
            attrs: BTreeMap::new(),
            data: Bytes::new(),
            omap_data: Bytes::new(),
            cursor: ObjectCopyCursor::default(),
            omap_header: Bytes::new(),
            snaps: Vec::new(),
            snap_seq: 0,
            flags: 0,
            data_digest: u32::MAX,
            omap_digest: u32::MAX,
            reqids: Vec::new(),
            truncate_seq: 0,
            truncate_size: 0,
            reqid_return_codes: BTreeMap::new(),
        }
    }
}
