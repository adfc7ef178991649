//! Statistics of pools (58, 59).

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::osd::PoolStat;
use types::{MsgHeader, Uuid};

use crate::{Message, PaxosHeader};

/// Type 58.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MGetPoolStats {
    /// What the client has.
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// The pools' names.
    pub pools: Vec<String>,
}
message!(MGetPoolStats, 58, 1 / 1);

/// Type 59. Pools that do not exist are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MGetPoolStatsReply {
    /// Version of the answer.
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// Counts by name.
    pub pool_stats: BTreeMap<String, PoolStat>,
    /// Whether all OSDs count space by pool.
    pub per_pool: bool,
}

impl Message for MGetPoolStatsReply {
    const TYPE: u16 = 59;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.put(&self.pool_stats);
        w.bool(self.per_pool);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        Ok(MGetPoolStatsReply {
            paxos: r.get()?,
            fsid: r.get()?,
            pool_stats: r.get()?,
            per_pool: header.version >= 2 && r.bool()?,
        })
    }
}
