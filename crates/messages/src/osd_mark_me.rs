//! An OSD that stops says so: down (74) at a clean stop, dead (123) when its process ended.

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::{AddrVec, Epoch, MsgHeader, OsdId, Uuid};

use crate::{Message, PaxosHeader};

/// Type 74.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDMarkMeDown {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// Who.
    pub target_osd: OsdId,
    /// Its addresses.
    pub target_addrs: AddrVec,
    /// Its map.
    pub epoch: Epoch,
    /// Whether it waits for the answer (the same message, sent back).
    pub request_ack: bool,
    /// Whether it is dead too: its process ends now.
    pub down_and_dead: bool,
}

impl Message for MOSDMarkMeDown {
    const TYPE: u16 = 74;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 3;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.i32(self.target_osd);
        w.put(&self.target_addrs);
        w.u32(self.epoch);
        w.bool(self.request_ack);
        w.bool(self.down_and_dead);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        Ok(MOSDMarkMeDown {
            paxos: r.get()?,
            fsid: r.get()?,
            target_osd: r.i32()?,
            target_addrs: r.get()?,
            epoch: r.u32()?,
            request_ack: r.bool()?,
            down_and_dead: header.version >= 4 && r.bool()?,
        })
    }
}

/// Type 123.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDMarkMeDead {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// Who.
    pub target_osd: OsdId,
    /// Its map.
    pub epoch: Epoch,
}
message!(MOSDMarkMeDead, 123, 1 / 1);
