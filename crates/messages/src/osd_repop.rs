//! A write on its way from the primary to a replica (112), and "it is durable here" (113).

use bytes::Bytes;
use denc::{Error, Reader, Writer};
use types::message::PRIORITY_HIGH;
use types::{BufferList, EVersion, Epoch, HObject, MsgHeader, OsdReqId, PgShard, SpgId};

use crate::Message;

/// Type 112, version 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDRepOp {
    /// The primary's map.
    pub map_epoch: Epoch,
    /// First epoch of the interval.
    pub min_epoch: Epoch,
    /// The client's operation.
    pub reqid: OsdReqId,
    /// The PG, with the replica's shard.
    pub pgid: SpgId,
    /// The object.
    pub poid: HObject,
    /// Message flags of the answers wanted; bit 7 is ours (docs/recovery.md, "Answers together").
    pub acks_wanted: u8,
    /// Version of the write.
    pub version: EVersion,
    /// Encoded vector of pg_log_entry_t.
    pub log_entries: Bytes,
    /// Encoded pg_stat_t, envelope included.
    pub pg_stats: Bytes,
    /// Trim the log up to this.
    pub pg_trim_to: EVersion,
    /// A temporary object that begins.
    pub new_temp_oid: HObject,
    /// A temporary object that ends.
    pub discard_temp_oid: HObject,
    /// The primary.
    pub from: PgShard,
    /// Encoded pg_hit_set_history_t, if it changed.
    pub updated_hit_set_history: Option<Bytes>,
    /// Everything up to this is durable on all.
    pub min_last_complete_ondisk: EVersion,
    /// The encoded ObjectStore transaction.
    pub transaction: BufferList,
}

fn skip_trace(r: &mut Reader<'_>) -> Result<(), Error> {
    r.slice(24).map(|_| ())
}

impl Message for MOSDRepOp {
    const TYPE: u16 = 112;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    const ROOM: usize = 1024;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.map_epoch);
        w.u32(self.min_epoch);
        w.zeros(24); // trace
        w.put(&self.reqid);
        w.put(&self.pgid);
        w.put(&self.poid);
        w.u8(self.acks_wanted);
        w.put(&self.version);
        w.blob(&self.log_entries);
        w.raw(&self.pg_stats);
        w.put(&self.pg_trim_to);
        w.put(&self.new_temp_oid);
        w.put(&self.discard_temp_oid);
        w.put(&self.from);
        w.bool(self.updated_hit_set_history.is_some());
        if let Some(history) = &self.updated_hit_set_history {
            w.raw(history);
        }
        w.put(&self.min_last_complete_ondisk);
    }

    fn payload(&self) -> BufferList {
        self.transaction.clone()
    }

    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, data: &Bytes) -> Result<Self, Error> {
        if header.version < Self::VERSION {
            let version = u8::try_from(header.version).unwrap_or(0);
            return Err(Error::TooOld { what: "MOSDRepOp", version, oldest: 3 });
        }
        let (map_epoch, min_epoch) = (r.u32()?, r.u32()?);
        skip_trace(r)?;
        Ok(MOSDRepOp {
            map_epoch,
            min_epoch,
            reqid: r.get()?,
            pgid: r.get()?,
            poid: r.get()?,
            acks_wanted: r.u8()?,
            version: r.get()?,
            log_entries: r.blob()?,
            pg_stats: r.raw_envelope()?,
            pg_trim_to: r.get()?,
            new_temp_oid: r.get()?,
            discard_temp_oid: r.get()?,
            from: r.get()?,
            updated_hit_set_history: if r.bool()? { Some(r.raw_envelope()?) } else { None },
            min_last_complete_ondisk: r.get()?,
            transaction: data.clone().into(),
        })
    }
}

/// Type 113.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDRepOpReply {
    /// The replica's map.
    pub map_epoch: Epoch,
    /// First epoch of the interval.
    pub min_epoch: Epoch,
    /// The client's operation.
    pub reqid: OsdReqId,
    /// The PG, with the primary's shard.
    pub pgid: SpgId,
    /// Message flag: what has been reached (on disk); bit 7 is ours (docs/recovery.md, "Statistics on the copies").
    pub ack_type: u8,
    /// 0 or a negative errno.
    pub result: i32,
    /// The replica has everything up to this.
    pub last_complete_ondisk: EVersion,
    /// The replica.
    pub from: PgShard,
}

impl Message for MOSDRepOpReply {
    const TYPE: u16 = 113;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = PRIORITY_HIGH;
    const ROOM: usize = 192;

    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.map_epoch);
        w.u32(self.min_epoch);
        w.zeros(24); // trace
        w.put(&self.reqid);
        w.put(&self.pgid);
        w.u8(self.ack_type);
        w.i32(self.result);
        w.put(&self.last_complete_ondisk);
        w.put(&self.from);
    }

    fn decode_front(r: &mut Reader<'_>, _: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let (map_epoch, min_epoch) = (r.u32()?, r.u32()?);
        skip_trace(r)?;
        Ok(MOSDRepOpReply {
            map_epoch,
            min_epoch,
            reqid: r.get()?,
            pgid: r.get()?,
            ack_type: r.u8()?,
            result: r.i32()?,
            last_complete_ondisk: r.get()?,
            from: r.get()?,
        })
    }
}
