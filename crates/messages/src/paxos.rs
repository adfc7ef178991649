//! The head of every message of a monitor's service (src/messages/PaxosServiceMessage.h).

use denc::Denc;

/// In requests: what the sender has; in answers: the version to wait for. 18 bytes.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct PaxosHeader {
    /// Version of the service's state.
    pub version: u64,
    /// Rank of the monitor that forwarded it, -1 for none.
    pub session_mon: i16,
    /// That monitor's number for it.
    pub session_mon_tid: u64,
}

impl Default for PaxosHeader {
    fn default() -> PaxosHeader {
        PaxosHeader::at(0)
    }
}

impl PaxosHeader {
    /// Not forwarded, at `version`.
    pub fn at(version: u64) -> PaxosHeader {
        PaxosHeader { version, session_mon: -1, session_mon_tid: 0 }
    }
}
