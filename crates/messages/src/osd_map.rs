//! OSD maps and what changed between them (41).

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::Denc;
use types::{Epoch, IntervalSet, Uuid};

/// Type 41.
#[derive(Debug, Clone, PartialEq, Default, Denc)]
pub struct MOSDMap {
    /// The cluster.
    pub fsid: Uuid,
    /// Epoch to encoded incremental.
    pub incremental_maps: BTreeMap<Epoch, Bytes>,
    /// Epoch to encoded full map.
    pub maps: BTreeMap<Epoch, Bytes>,
    /// Oldest epoch the sender keeps.
    pub oldest_map: Epoch,
    /// Newest epoch the sender has.
    pub newest_map: Epoch,
    /// Snapshots removed in epochs that the receiver skips, by pool.
    pub gap_removed_snaps: BTreeMap<i64, IntervalSet>,
}
message!(MOSDMap, 41, 4 / 3);
