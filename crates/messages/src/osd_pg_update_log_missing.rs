//! Log entries without a change of objects: errors, lost objects (114), and the answer (115).

use bytes::Bytes;
use denc::{Error, Reader, Writer};
use types::osd::PgLogEntry;
use types::{EVersion, Epoch, MsgHeader, SpgId};

use crate::Message;

/// Type 114.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGUpdateLogMissing {
    /// The primary's map.
    pub map_epoch: Epoch,
    /// Epoch of the interval.
    pub min_epoch: Epoch,
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// The primary's shard.
    pub from: i8,
    /// The primary's number for it.
    pub rep_tid: u64,
    /// The entries.
    pub entries: Vec<PgLogEntry>,
    /// Trim the log to here.
    pub pg_trim_to: EVersion,
    /// No entry up to here will be undone.
    pub pg_roll_forward_to: EVersion,
}

impl Message for MOSDPGUpdateLogMissing {
    const TYPE: u16 = 114;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.map_epoch);
        w.put(&self.pgid);
        w.i8(self.from);
        w.u64(self.rep_tid);
        w.put(&self.entries);
        w.u32(self.min_epoch);
        w.put(&self.pg_trim_to);
        w.put(&self.pg_roll_forward_to);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let v = header.version;
        let map_epoch = r.u32()?;
        Ok(MOSDPGUpdateLogMissing {
            map_epoch,
            pgid: r.get()?,
            from: r.i8()?,
            rep_tid: r.u64()?,
            entries: r.get()?,
            min_epoch: if v >= 2 { r.u32()? } else { map_epoch },
            pg_trim_to: if v >= 3 { r.get()? } else { EVersion::ZERO },
            pg_roll_forward_to: if v >= 3 { r.get()? } else { EVersion::ZERO },
        })
    }
}

/// Type 115.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGUpdateLogMissingReply {
    /// The replica's map.
    pub map_epoch: Epoch,
    /// Epoch of the interval.
    pub min_epoch: Epoch,
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// The replica's shard.
    pub from: i8,
    /// The primary's number for it.
    pub rep_tid: u64,
    /// The replica has no object missing up to here.
    pub last_complete_ondisk: EVersion,
}

impl Message for MOSDPGUpdateLogMissingReply {
    const TYPE: u16 = 115;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.map_epoch);
        w.put(&self.pgid);
        w.i8(self.from);
        w.u64(self.rep_tid);
        w.u32(self.min_epoch);
        w.put(&self.last_complete_ondisk);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let v = header.version;
        let map_epoch = r.u32()?;
        Ok(MOSDPGUpdateLogMissingReply {
            map_epoch,
            pgid: r.get()?,
            from: r.i8()?,
            rep_tid: r.u64()?,
            min_epoch: if v >= 2 { r.u32()? } else { map_epoch },
            last_complete_ondisk: if v >= 3 { r.get()? } else { EVersion::ZERO },
        })
    }
}
