//! The manager's order to recover or backfill some PGs first (151).

use denc::Denc;
use types::{SpgId, Uuid};

/// Type 151.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDForceRecovery {
    /// The cluster.
    pub fsid: Uuid,
    /// The PGs.
    pub forced_pgs: Vec<SpgId>,
    /// `OFR_*`.
    pub options: u8,
}
message!(MOSDForceRecovery, 151, 2 / 2);

impl MOSDForceRecovery {
    /// In `options`: recovery.
    pub const OFR_RECOVERY: u8 = 1;
    /// In `options`: backfill.
    pub const OFR_BACKFILL: u8 = 2;
    /// In `options`: no more.
    pub const OFR_CANCEL: u8 = 4;
}
