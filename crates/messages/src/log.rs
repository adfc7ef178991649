//! Entries of the cluster log (52, 53).

use denc::Denc;
use types::{AddrVec, AuthEntityName, EntityName, UTime, Uuid};

use crate::PaxosHeader;

/// One line of the cluster log. Wire: LogEntry v5.
#[derive(Debug, Clone, PartialEq, Denc)]
#[denc(v = 5, compat = 5, oldest = 5)]
pub struct LogEntry {
    /// Who logged, by name: `mon.a`.
    pub name: AuthEntityName,
    /// Who logged, by rank: `mon.0`.
    pub rank: EntityName,
    /// From where.
    pub addrs: AddrVec,
    /// When.
    pub stamp: UTime,
    /// The sender's count.
    pub seq: u64,
    /// 0 debug, 1 info, 2 security, 3 warning, 4 error.
    pub prio: u16,
    /// The text.
    pub msg: String,
    /// `cluster`, `audit`, ...
    pub channel: String,
}

/// Type 52: entries to a monitor, or from one to a subscriber of `log-*`.
#[derive(Debug, Clone, PartialEq, Default, Denc)]
pub struct MLog {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// In order.
    pub entries: Vec<LogEntry>,
}
message!(MLog, 52, 1 / 1);

/// Type 53.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MLogAck {
    /// The cluster.
    pub fsid: Uuid,
    /// Last sequence number taken.
    pub last: u64,
    /// Its channel.
    pub channel: String,
}
message!(MLogAck, 53, 1 / 1);
