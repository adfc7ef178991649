//! Both halves of a merge are quiet (122), told to the monitor.

use denc::Denc;
use types::{EVersion, Epoch, PgId};

use crate::PaxosHeader;

/// Type 122.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGReadyToMerge {
    /// The sender's map.
    pub paxos: PaxosHeader,
    /// The PG that goes.
    pub pgid: PgId,
    /// Its version.
    pub source_version: EVersion,
    /// The other's version.
    pub target_version: EVersion,
    /// Of both.
    pub last_epoch_started: Epoch,
    /// Of both.
    pub last_epoch_clean: Epoch,
    /// Whether they are ready; if not, the merge is off.
    pub ready: bool,
}
message!(MOSDPGReadyToMerge, 122, 1 / 0);
