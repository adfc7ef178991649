//! An OSD that stops says so: down (74) at a clean stop, dead (123) when its process ended.

use denc::Denc;
use types::{AddrVec, Epoch, OsdId, Uuid};

use crate::PaxosHeader;

/// Type 74.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDMarkMeDown {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// Who.
    pub target_osd: OsdId,
    /// Its addresses.
    pub target_addrs: AddrVec,
    /// Its map.
    pub epoch: Epoch,
    /// Whether it waits for the answer (the same message, sent back).
    pub request_ack: bool,
}
message!(MOSDMarkMeDown, 74, 3 / 3);

/// Type 123.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDMarkMeDead {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// Who.
    pub target_osd: OsdId,
    /// Its map.
    pub epoch: Epoch,
}
message!(MOSDMarkMeDead, 123, 1 / 1);
