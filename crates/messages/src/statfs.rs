//! The cluster's or a pool's space (13, 14).

use denc::Denc;
use types::Uuid;

use crate::PaxosHeader;

/// Type 13.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MStatfs {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// One pool, or all.
    pub data_pool: Option<i64>,
}
message!(MStatfs, 13, 2 / 1);

/// Type 14.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MStatfsReply {
    /// The cluster.
    pub fsid: Uuid,
    /// Version of the statistics.
    pub version: u64,
    /// KiB in all.
    pub kb: u64,
    /// KiB used.
    pub kb_used: u64,
    /// KiB free.
    pub kb_avail: u64,
    /// Objects.
    pub num_objects: u64,
}
message!(MStatfsReply, 14, 1 / 1);
