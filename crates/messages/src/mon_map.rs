//! The map of monitors (4) and asking for it (5).

use bytes::Bytes;
use denc::Denc;

/// Type 4.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MMonMap {
    /// An encoded MonMap.
    pub monmap: Bytes,
}
message!(MMonMap, 4, 1 / 1);

/// Type 5: nothing but the header.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MMonGetMap {}
message!(MMonGetMap, 5, 1 / 1);
