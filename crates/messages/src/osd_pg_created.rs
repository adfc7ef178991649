//! A primary tells the monitor that a new PG exists (116).

use denc::Denc;
use types::PgId;

use crate::PaxosHeader;

/// Type 116.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGCreated {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The PG.
    pub pgid: PgId,
}
message!(MOSDPGCreated, 116, 1 / 1);
