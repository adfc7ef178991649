//! An OSD's state of fullness changed (75).

use denc::Denc;
use types::Epoch;

use crate::PaxosHeader;

/// Type 75.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MOSDFull {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// The full, backfillfull and nearfull bits of osd_state.
    pub state: u32,
}
message!(MOSDFull, 75, 1 / 1);
