//! Slots for recovery (150) and backfill (99), asked for, granted and released between OSDs.

use denc::{Denc, Error, Reader, Writer};
use types::{Epoch, PgId, SpgId};

use crate::Message;

/// `kind` of [`MRecoveryReserve`]: request 0, grant 1, release 2, revoke 3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MRecoveryReserve {
    /// The PG.
    pub pgid: SpgId,
    /// The sender's map.
    pub query_epoch: Epoch,
    /// 0 request, 1 grant, 2 release, 3 revoke.
    pub kind: u32,
    /// Higher goes first.
    pub priority: u32,
}

impl Message for MRecoveryReserve {
    const TYPE: u16 = 150;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 2;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.pgid.pgid);
        w.u32(self.query_epoch);
        w.u32(self.kind);
        w.i8(self.pgid.shard);
        w.u32(self.priority);
    }
    fn decode_front(
        r: &mut Reader<'_>,
        _: &types::MsgHeader,
        _: &bytes::Bytes,
    ) -> Result<Self, Error> {
        let (pgid, query_epoch, kind): (PgId, Epoch, u32) = (r.get()?, r.u32()?, r.u32()?);
        Ok(MRecoveryReserve {
            pgid: SpgId { pgid, shard: r.i8()? },
            query_epoch,
            kind,
            priority: r.u32()?,
        })
    }
}

/// Type 99.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MBackfillReserve {
    /// The PG.
    pub pgid: SpgId,
    /// The sender's map.
    pub query_epoch: Epoch,
    /// 0 request, 1 grant, 2 reject, 3 release, 4 revoke (too full), 5 revoke.
    pub kind: u32,
    /// Higher goes first.
    pub priority: u32,
    /// Bytes the primary has.
    pub primary_num_bytes: i64,
    /// Bytes the target has already.
    pub shard_num_bytes: i64,
}

impl Message for MBackfillReserve {
    const TYPE: u16 = 99;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.pgid.pgid);
        w.u32(self.query_epoch);
        w.u32(self.kind);
        w.u32(self.priority);
        w.i8(self.pgid.shard);
        w.i64(self.primary_num_bytes);
        w.i64(self.shard_num_bytes);
    }
    fn decode_front(
        r: &mut Reader<'_>,
        _: &types::MsgHeader,
        _: &bytes::Bytes,
    ) -> Result<Self, Error> {
        let (pgid, query_epoch, kind, priority): (PgId, Epoch, u32, u32) =
            (r.get()?, r.u32()?, r.u32()?, r.u32()?);
        Ok(MBackfillReserve {
            pgid: SpgId { pgid, shard: r.i8()? },
            query_epoch,
            kind,
            priority,
            primary_num_bytes: r.i64()?,
            shard_num_bytes: r.i64()?,
        })
    }
}

/// A version of a PG's log below which all may forget (86).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGTrim {
    /// The sender's map.
    pub epoch: Epoch,
    /// The PG.
    pub pgid: SpgId,
    /// Trim up to this.
    pub trim_to: types::EVersion,
}

impl Message for MOSDPGTrim {
    const TYPE: u16 = 86;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 2;
    fn encode_front(&self, w: &mut Writer) {
        w.u32(self.epoch);
        w.put(&self.pgid.pgid);
        self.trim_to.encode(w);
        w.i8(self.pgid.shard);
    }
    fn decode_front(
        r: &mut Reader<'_>,
        _: &types::MsgHeader,
        _: &bytes::Bytes,
    ) -> Result<Self, Error> {
        let (epoch, pgid, trim_to): (Epoch, PgId, types::EVersion) = (r.u32()?, r.get()?, r.get()?);
        Ok(MOSDPGTrim { epoch, pgid: SpgId { pgid, shard: r.i8()? }, trim_to })
    }
}
