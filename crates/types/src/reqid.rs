//! Which client request a write belongs to.

use core::fmt;

use denc::Denc;

use crate::entity::EntityName;

/// Wire: osd_reqid_t v2/c2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Denc)]
#[denc(v = 2, compat = 2)]
pub struct OsdReqId {
    /// The client.
    pub name: EntityName,
    /// Its request number.
    pub tid: u64,
    /// Incarnation of the client, 0 nowadays.
    pub inc: i32,
}

impl OsdReqId {
    /// Whether no request is named.
    pub fn is_blank(&self) -> bool {
        *self == OsdReqId::default()
    }
}

impl fmt::Display for OsdReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}:{}", self.name, self.inc, self.tid)
    }
}
