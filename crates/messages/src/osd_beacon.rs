//! An OSD's sign of life to the monitors (79).

use denc::Denc;
use types::{Epoch, PgId, UTime};

use crate::PaxosHeader;

/// Type 79.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDBeacon {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// PGs the OSD is primary of.
    pub pgs: Vec<PgId>,
    /// Oldest map that one of them may still need.
    pub min_last_epoch_clean: Epoch,
    /// When it last looked for purged snapshots.
    pub last_purged_snaps_scrub: UTime,
    /// Seconds until the next one.
    pub osd_beacon_report_interval: i32,
}
message!(MOSDBeacon, 79, 3 / 1);
