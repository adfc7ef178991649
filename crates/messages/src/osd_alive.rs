//! An OSD asks the monitor to write down that it was up through an epoch (73).

use denc::Denc;
use types::Epoch;

use crate::PaxosHeader;

/// Type 73.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MOSDAlive {
    /// See [`PaxosHeader`]; version is the sender's map epoch.
    pub paxos: PaxosHeader,
    /// The `up_thru` wanted.
    pub want: Epoch,
}
message!(MOSDAlive, 73, 1 / 1);
