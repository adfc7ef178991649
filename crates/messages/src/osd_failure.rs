//! An OSD tells the monitor that another does not answer (72).

use denc::Denc;
use types::{AddrVec, Epoch, OsdId, Uuid};

use crate::PaxosHeader;

/// Flag: it failed (absent: it is alive after all).
pub const FAILURE_FAILED: u8 = 1;
/// Flag: its port refuses connections, so there is no need to wait for others to agree.
pub const FAILURE_IMMEDIATE: u8 = 2;

/// Type 72.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDFailure {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// Who failed.
    pub target_osd: OsdId,
    /// Its addresses, so that a report about an earlier run of it is known as such.
    pub target_addrs: AddrVec,
    /// The reporter's map.
    pub epoch: Epoch,
    /// [`FAILURE_FAILED`], [`FAILURE_IMMEDIATE`].
    pub flags: u8,
    /// Seconds since it last answered.
    pub failed_for: i32,
}
message!(MOSDFailure, 72, 4 / 4);
