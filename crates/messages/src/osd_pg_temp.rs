//! A primary asks for another acting set while the up set lacks data (78).

use std::collections::BTreeMap;

use denc::Denc;
use types::{Epoch, OsdId, PgId};

use crate::PaxosHeader;

/// Type 78.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MOSDPGTemp {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// PG to the acting set wanted, empty for none.
    pub pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// Set it whatever the monitor thinks.
    pub forced: bool,
}
message!(MOSDPGTemp, 78, 2 / 1);
