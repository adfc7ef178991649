//! Scrub: slots (92), one chunk (93) and a replica's answer to it (117), and the order to scrub
//! (121).

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::osd::ScrubMap;
use types::{BufferList, EVersion, Epoch, HObject, MsgHeader, PgId, PgShard, SpgId, Uuid};

use crate::Message;

/// `kind` of [`MOSDScrubReserve`]. Wire: s32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScrubReserveOp {
    /// May I?
    Request,
    /// Yes.
    Grant,
    /// Done.
    Release,
    /// No.
    Reject,
}

impl Denc for ScrubReserveOp {
    fn encode(&self, w: &mut Writer) {
        w.i32(match self {
            ScrubReserveOp::Request => 0,
            ScrubReserveOp::Grant => 1,
            ScrubReserveOp::Release => 2,
            ScrubReserveOp::Reject => 3,
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u32()? {
            0 => Ok(ScrubReserveOp::Request),
            1 => Ok(ScrubReserveOp::Grant),
            2 => Ok(ScrubReserveOp::Release),
            3 => Ok(ScrubReserveOp::Reject),
            other => Err(Error::Invalid { what: "scrub reserve op", value: other.into() }),
        }
    }
}

/// Type 92: a replica's slot.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDScrubReserve {
    /// The PG.
    pub pgid: SpgId,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// What about it.
    pub kind: ScrubReserveOp,
    /// The sender.
    pub from: PgShard,
}
message!(MOSDScrubReserve, 92, 1 / 1);

/// Type 93: asks a replica what it has of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDRepScrub {
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// Not used: 0'0.
    pub scrub_from: EVersion,
    /// The replica must have applied this first.
    pub scrub_to: EVersion,
    /// The primary's map.
    pub map_epoch: Epoch,
    /// Start of the range.
    pub start: HObject,
    /// End of the range.
    pub end: HObject,
    /// Read content and omap too.
    pub deep: bool,
    /// Epoch of the interval.
    pub min_epoch: Epoch,
    /// A write may interrupt it.
    pub allow_preemption: bool,
    /// Priority of the work.
    pub priority: i32,
    /// Whether a client's op waits for it.
    pub high_priority: bool,
}

impl Message for MOSDRepScrub {
    const TYPE: u16 = 93;
    const VERSION: u16 = 9;
    const COMPAT: u16 = 6;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.pgid.pgid);
        w.put(&self.scrub_from);
        w.put(&self.scrub_to);
        w.u32(self.map_epoch);
        w.bool(true); // chunky
        w.put(&self.start);
        w.put(&self.end);
        w.bool(self.deep);
        w.i8(self.pgid.shard);
        w.u32(u32::MAX); // seed of digests
        w.u32(self.min_epoch);
        w.bool(self.allow_preemption);
        w.i32(self.priority);
        w.bool(self.high_priority);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let v = header.version;
        let pgid: PgId = r.get()?;
        let (scrub_from, scrub_to) = (r.get()?, r.get()?);
        let map_epoch = r.u32()?;
        r.bool()?;
        let (start, end) = (r.get()?, r.get()?);
        let deep = r.bool()?;
        let shard = r.i8()?;
        r.u32()?;
        Ok(MOSDRepScrub {
            pgid: SpgId { pgid, shard },
            scrub_from,
            scrub_to,
            map_epoch,
            start,
            end,
            deep,
            min_epoch: if v >= 7 { r.u32()? } else { map_epoch },
            allow_preemption: v >= 8 && r.bool()?,
            priority: if v >= 9 { r.i32()? } else { 0 },
            high_priority: v >= 9 && r.bool()?,
        })
    }
}

/// Type 117: what a replica has of a range; the map is the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDRepScrubMap {
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// The replica's map.
    pub map_epoch: Epoch,
    /// The replica.
    pub from: PgShard,
    /// A write came between: the map is not complete.
    pub preempted: bool,
    /// What it has.
    pub scrub_map: ScrubMap,
}

impl Message for MOSDRepScrubMap {
    const TYPE: u16 = 117;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.pgid);
        w.u32(self.map_epoch);
        w.put(&self.from);
        w.bool(self.preempted);
    }
    fn payload(&self) -> BufferList {
        self.scrub_map.to_bytes().into()
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, data: &Bytes) -> Result<Self, Error> {
        Ok(MOSDRepScrubMap {
            pgid: r.get()?,
            map_epoch: r.u32()?,
            from: r.get()?,
            preempted: header.version >= 2 && r.bool()?,
            scrub_map: ScrubMap::from_bytes(data)?,
        })
    }
}

/// Type 121: the manager's order to scrub.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDScrub2 {
    /// The cluster.
    pub fsid: Uuid,
    /// The sender's map.
    pub epoch: Epoch,
    /// The PGs.
    pub scrub_pgs: Vec<SpgId>,
    /// Repair what is wrong.
    pub repair: bool,
    /// Read content and omap too.
    pub deep: bool,
}
message!(MOSDScrub2, 121, 1 / 1);
