//! The map of file systems, for the manager (45).

use denc::Denc;
use maps::FsMap;
use types::Epoch;

/// Type 45.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MFSMap {
    /// The map's number.
    pub epoch: Epoch,
    /// The map.
    pub fsmap: FsMap,
}
message!(MFSMap, 45, 1 / 1);
