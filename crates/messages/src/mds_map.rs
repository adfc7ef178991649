//! The metadata servers of one file system (21), and what an MDS says of whom it hands
//! directories to (0x20a).

use std::collections::BTreeSet;

use bytes::Bytes;
use denc::Denc;
use maps::mdsmap::Rank;
use types::{Epoch, Uuid};

use crate::PaxosHeader;

/// Type 21.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MMDSMap {
    /// The cluster.
    pub fsid: Uuid,
    /// The map's epoch.
    pub epoch: Epoch,
    /// The map, encoded.
    pub map: Bytes,
    /// Name of the file system; empty: the map has it.
    pub fs_name: String,
}
message!(MMDSMap, 21, 2 / 1);

/// Type 0x20a.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MMDSLoadTargets {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The MDS.
    pub gid: u64,
    /// Ranks it may hand directories to.
    pub targets: BTreeSet<Rank>,
}
message!(MMDSLoadTargets, 0x20a, 1 / 1);
