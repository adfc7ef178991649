//! What the monitor tells the manager about itself (0x705).

use bytes::Bytes;
use denc::Denc;

/// Type 0x705: two JSON texts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MMgrDigest {
    /// `mon_status`.
    pub mon_status_json: Bytes,
    /// `health`.
    pub health_json: Bytes,
}
message!(MMgrDigest, 0x705, 1 / 1);
