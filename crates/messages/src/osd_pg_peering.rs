//! Peering: notify (130, 80), query (131), info (132), log (83), leases (133, 134), creation (120) and
//! removal (84).

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::message::PRIORITY_HIGH;
use types::osd::{
    PastIntervals, PgHistory, PgInfo, PgLease, PgLeaseAck, PgLog, PgMissing, PgNotify, PgQuery,
};
use types::{Epoch, MsgHeader, SpgId, UTime};

use crate::Message;

/// Type 130: the sender's state.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGNotify2 {
    /// The PG, with the receiver's shard.
    pub spgid: SpgId,
    /// The state.
    pub notify: PgNotify,
}
message!(MOSDPGNotify2, 130, 1 / 1, PRIORITY_HIGH);

/// Type 80: the sender's states of several PGs. 16.2 answers with it a query about a PG it does not
/// have.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGNotify {
    /// The sender's map.
    pub epoch: Epoch,
    /// The states; each names its PG.
    pub notifies: Vec<PgNotify>,
}
message!(MOSDPGNotify, 80, 7 / 6, PRIORITY_HIGH);

/// Type 131: asks for the receiver's state, log or missing objects.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGQuery2 {
    /// The PG, with the receiver's shard.
    pub spgid: SpgId,
    /// What it asks for.
    pub query: PgQuery,
}
message!(MOSDPGQuery2, 131, 1 / 1, PRIORITY_HIGH);

/// Type 132: the primary's state to replicas, when it goes active, and their answer.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGInfo2 {
    /// The PG, with the receiver's shard.
    pub spgid: SpgId,
    /// The sender's map.
    pub epoch_sent: Epoch,
    /// Epoch of the interval.
    pub min_epoch: Epoch,
    /// The sender's state.
    pub info: PgInfo,
    /// From the primary.
    pub lease: Option<PgLease>,
    /// From a replica.
    pub lease_ack: Option<PgLeaseAck>,
}
message!(MOSDPGInfo2, 132, 1 / 1, PRIORITY_HIGH);

/// Type 133: the PG may be read a while longer.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGLease {
    /// The sender's map.
    pub epoch: Epoch,
    /// The PG, with the receiver's shard.
    pub spgid: SpgId,
    /// The lease.
    pub lease: PgLease,
}
message!(MOSDPGLease, 133, 1 / 1);

/// Type 134: noted.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGLeaseAck {
    /// The sender's map.
    pub epoch: Epoch,
    /// The PG, with the receiver's shard.
    pub spgid: SpgId,
    /// The lease.
    pub lease_ack: PgLeaseAck,
}
message!(MOSDPGLeaseAck, 134, 1 / 1);

/// Type 83: the sender's log and missing objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGLog {
    /// The sender's map.
    pub epoch: Epoch,
    /// Epoch of the interval or of the query.
    pub query_epoch: Epoch,
    /// The receiver's shard.
    pub to: i8,
    /// The sender's shard.
    pub from: i8,
    /// The sender's state; names the PG.
    pub info: PgInfo,
    /// The log.
    pub log: PgLog,
    /// The sender's missing objects.
    pub missing: PgMissing,
    /// The sender's past intervals.
    pub past_intervals: PastIntervals,
    /// From the primary, to activate.
    pub lease: Option<PgLease>,
}

impl Message for MOSDPGLog {
    const TYPE: u16 = 83;
    const VERSION: u16 = 6;
    const COMPAT: u16 = 5;
    const PRIORITY: u16 = PRIORITY_HIGH;
    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.epoch);
        w.put(&self.info);
        w.put(&self.log);
        w.put(&self.missing);
        w.u32(self.query_epoch);
        w.put(&self.past_intervals);
        w.i8(self.to);
        w.i8(self.from);
        w.put(&self.lease);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        Ok(MOSDPGLog {
            epoch: r.u32()?,
            info: r.get()?,
            log: r.get()?,
            missing: r.get()?,
            query_epoch: r.u32()?,
            past_intervals: r.get()?,
            to: r.i8()?,
            from: r.i8()?,
            lease: if header.version >= 6 { r.get()? } else { None },
        })
    }
}

impl MOSDPGLog {
    /// The PG, with the receiver's shard.
    pub fn spgid(&self) -> SpgId {
        SpgId { pgid: self.info.pgid.pgid, shard: self.to }
    }
}

/// Type 84: PGs the receiver should not have.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGRemove {
    /// The sender's map.
    pub epoch: Epoch,
    /// The PGs.
    pub pgs: Vec<SpgId>,
}
message!(MOSDPGRemove, 84, 3 / 3);

/// Type 120: the monitor's order to create PGs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGCreate2 {
    /// The monitor's map.
    pub epoch: Epoch,
    /// PGs, epoch and time of their creation.
    pub pgs: BTreeMap<SpgId, (Epoch, UTime)>,
    /// Histories of those whose creation was long ago.
    pub pg_extra: BTreeMap<SpgId, (PgHistory, PastIntervals)>,
}

impl Message for MOSDPGCreate2 {
    const TYPE: u16 = 120;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.epoch);
        w.put(&self.pgs);
        w.put(&self.pg_extra);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        Ok(MOSDPGCreate2 {
            epoch: r.u32()?,
            pgs: r.get()?,
            pg_extra: if header.version >= 2 { r.get()? } else { BTreeMap::new() },
        })
    }
}
