//! An OSD's statistics for the manager (87) and the answer (88).

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::osd::{OsdStat, PgStat, StoreStatfs};
use types::{Epoch, MsgHeader, PgId, UTime, Uuid};

use crate::{Message, PaxosHeader};

/// Type 87.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct MPGStats {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// The OSD's own figures.
    pub osd_stat: OsdStat,
    /// The PGs it is primary of.
    pub pg_stat: BTreeMap<PgId, PgStat>,
    /// Its map.
    pub epoch: Epoch,
    /// Space by pool.
    pub pool_stat: BTreeMap<i64, StoreStatfs>,
}

impl Message for MPGStats {
    const TYPE: u16 = 87;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.put(&self.osd_stat);
        w.put(&self.pg_stat);
        w.u32(self.epoch);
        w.put(&UTime::ZERO);
        w.put(&self.pool_stat);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let mut stats = MPGStats {
            paxos: r.get()?,
            fsid: r.get()?,
            osd_stat: r.get()?,
            pg_stat: r.get()?,
            epoch: r.u32()?,
            pool_stat: BTreeMap::new(),
        };
        let _: UTime = r.get()?;
        if header.version >= 2 {
            stats.pool_stat = r.get()?;
        }
        Ok(stats)
    }
}

/// Type 88: what the manager has taken in.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MPGStatsAck {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// PG to (reported sequence, reported epoch).
    pub pg_stat: BTreeMap<PgId, (u64, Epoch)>,
}
message!(MPGStatsAck, 88, 1 / 1);
