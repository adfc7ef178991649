//! Which versions of a map the monitors have (19, 20).

use denc::Denc;

/// Type 19.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MMonGetVersion {
    /// The asker's number for it.
    pub handle: u64,
    /// The map: `osdmap`, `mgrmap`, ...
    pub what: String,
}
message!(MMonGetVersion, 19, 1 / 1);

/// Type 20.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MMonGetVersionReply {
    /// The asker's number.
    pub handle: u64,
    /// Newest version.
    pub version: u64,
    /// Oldest version kept.
    pub oldest_version: u64,
}
message!(MMonGetVersionReply, 20, 2 / 2);
