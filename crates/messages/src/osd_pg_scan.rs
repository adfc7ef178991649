//! Backfill: what an OSD has of a range (94), how far it is (95), objects to remove (96).

use std::collections::BTreeMap;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::osd::PgStat;
use types::{BufferList, EVersion, Epoch, HObject, MsgHeader, PgId, PgShard, SpgId};

use crate::Message;

/// What a [`MOSDPGScan`] is. Wire: u32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanOp {
    /// What do you have?
    GetDigest,
    /// This.
    Digest,
}

impl Denc for ScanOp {
    fn encode(&self, w: &mut Writer) {
        w.u32(match self {
            ScanOp::GetDigest => 1,
            ScanOp::Digest => 2,
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u32()? {
            1 => Ok(ScanOp::GetDigest),
            2 => Ok(ScanOp::Digest),
            other => Err(Error::Invalid { what: "scan op", value: other.into() }),
        }
    }
}

/// Type 94; the objects are the payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGScan {
    /// Question or answer.
    pub op: ScanOp,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// Map of the interval.
    pub query_epoch: Epoch,
    /// The sender.
    pub from: PgShard,
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// Start of the range.
    pub begin: HObject,
    /// Its end; in a question not used.
    pub end: HObject,
    /// In an answer: the objects and their versions.
    pub objects: BTreeMap<HObject, EVersion>,
}

impl Message for MOSDPGScan {
    const TYPE: u16 = 94;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.op);
        w.u32(self.map_epoch);
        w.u32(self.query_epoch);
        w.put(&self.pgid.pgid);
        w.put(&self.begin);
        w.put(&self.end);
        w.put(&self.from);
        w.i8(self.pgid.shard);
    }
    fn payload(&self) -> BufferList {
        match self.op {
            ScanOp::GetDigest => BufferList::new(),
            ScanOp::Digest => self.objects.to_bytes().into(),
        }
    }
    fn decode_front(r: &mut Reader<'_>, _: &MsgHeader, data: &Bytes) -> Result<Self, Error> {
        let op = r.get()?;
        let (map_epoch, query_epoch) = (r.u32()?, r.u32()?);
        let pgid: PgId = r.get()?;
        let (begin, end, from) = (r.get()?, r.get()?, r.get()?);
        Ok(MOSDPGScan {
            op,
            map_epoch,
            query_epoch,
            from,
            pgid: SpgId { pgid, shard: r.i8()? },
            begin,
            end,
            objects: match op {
                ScanOp::GetDigest => BTreeMap::new(),
                ScanOp::Digest => Denc::from_bytes(data)?,
            },
        })
    }
}

/// What a [`MOSDPGBackfill`] is. Wire: u32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackfillOp {
    /// All before `last_backfill` is there.
    Progress,
    /// Everything is.
    Finish,
    /// Noted.
    FinishAck,
}

impl Denc for BackfillOp {
    fn encode(&self, w: &mut Writer) {
        w.u32(match self {
            BackfillOp::Progress => 2,
            BackfillOp::Finish => 3,
            BackfillOp::FinishAck => 4,
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u32()? {
            2 => Ok(BackfillOp::Progress),
            3 => Ok(BackfillOp::Finish),
            4 => Ok(BackfillOp::FinishAck),
            other => Err(Error::Invalid { what: "backfill op", value: other.into() }),
        }
    }
}

/// Type 95.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGBackfill {
    /// What it is.
    pub op: BackfillOp,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// Map of the interval.
    pub query_epoch: Epoch,
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// Objects before this are there.
    pub last_backfill: HObject,
    /// The PG's statistics up to there.
    pub stats: PgStat,
}

impl Message for MOSDPGBackfill {
    const TYPE: u16 = 95;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 3;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.op);
        w.u32(self.map_epoch);
        w.u32(self.query_epoch);
        w.put(&self.pgid.pgid);
        w.put(&self.last_backfill);
        w.put(&self.stats.stats); // all that v1 had
        w.put(&self.stats);
        w.i8(self.pgid.shard);
    }
    fn decode_front(r: &mut Reader<'_>, _: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let op = r.get()?;
        let (map_epoch, query_epoch) = (r.u32()?, r.u32()?);
        let pgid: PgId = r.get()?;
        let last_backfill = r.get()?;
        let _counts: types::osd::ObjectStatCollection = r.get()?;
        let stats = r.get()?;
        let pgid = SpgId { pgid, shard: r.i8()? };
        Ok(MOSDPGBackfill { op, map_epoch, query_epoch, pgid, last_backfill, stats })
    }
}

/// Type 96: objects that a backfill target has and should not.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGBackfillRemove {
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// The objects and their versions.
    pub objects: Vec<(HObject, EVersion)>,
}
message!(MOSDPGBackfillRemove, 96, 1 / 1);
