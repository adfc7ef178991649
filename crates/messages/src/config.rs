//! The monitors' configuration for one client or daemon (62), and asking for it (63).

use std::collections::BTreeMap;

use denc::Denc;
use types::AuthEntityName;

/// Type 62: options that differ from their defaults.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MConfig {
    /// Option to value.
    pub config: BTreeMap<String, String>,
}
message!(MConfig, 62, 1 / 1);

/// Type 63: asks for it without a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MGetConfig {
    /// Who asks.
    pub name: AuthEntityName,
    /// On which host.
    pub host: String,
    /// Device class of an OSD.
    pub device_class: String,
}
message!(MGetConfig, 63, 1 / 1);
