//! Recovery: pieces of objects (105), asked for (106) and acknowledged (107); deletions (118) and
//! their acknowledgement (119).

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::osd::{PullOp, PushOp, PushReplyOp};
use types::{EVersion, Epoch, HObject, MsgHeader, PgId, PgShard, SpgId};

use crate::Message;

/// Priority of recovery's messages: osd_recovery_op_priority.
const PRIORITY: u16 = 3;

/// Type 105.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGPush {
    /// The sender.
    pub from: PgShard,
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// Epoch of the interval.
    pub min_epoch: Epoch,
    /// The pieces.
    pub pushes: Vec<PushOp>,
    /// They replace damaged copies.
    pub is_repair: bool,
    /// Bytes that the receiver's throttle counts.
    pub cost: u64,
}

impl Message for MOSDPGPush {
    const TYPE: u16 = 105;
    const VERSION: u16 = 4;
    const COMPAT: u16 = 2;
    const PRIORITY: u16 = PRIORITY;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.pgid.pgid);
        w.u32(self.map_epoch);
        w.put(&self.pushes);
        w.u64(self.cost);
        w.i8(self.pgid.shard);
        w.put(&self.from);
        w.u32(self.min_epoch);
        w.bool(self.is_repair);
    }
    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let pgid: PgId = r.get()?;
        let map_epoch = r.u32()?;
        let (pushes, cost) = (r.get()?, r.u64()?);
        Ok(MOSDPGPush {
            pgid: SpgId { pgid, shard: r.i8()? },
            from: r.get()?,
            map_epoch,
            pushes,
            cost,
            min_epoch: if header.version >= 3 { r.u32()? } else { map_epoch },
            is_repair: header.version >= 4 && r.bool()?,
        })
    }
}

/// Type 107.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGPushReply {
    /// The sender.
    pub from: PgShard,
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// Epoch of the interval.
    pub min_epoch: Epoch,
    /// The objects whose pieces are stored.
    pub replies: Vec<PushReplyOp>,
    /// Bytes that the receiver's throttle counts.
    pub cost: u64,
}

/// Type 106.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGPull {
    /// The sender.
    pub from: PgShard,
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// Epoch of the interval.
    pub min_epoch: Epoch,
    /// What it wants.
    pub pulls: Vec<PullOp>,
    /// Bytes that the receiver's throttle counts.
    pub cost: u64,
}

/// The two have one layout but for their list.
macro_rules! with_list {
    ($name:ident $list:ident $kind:literal) => {
        impl Message for $name {
            const TYPE: u16 = $kind;
            const VERSION: u16 = 3;
            const COMPAT: u16 = 2;
            const PRIORITY: u16 = PRIORITY;
            fn encode_front(&self, w: &mut Writer) {
                w.put(&self.pgid.pgid);
                w.u32(self.map_epoch);
                w.put(&self.$list);
                w.u64(self.cost);
                w.i8(self.pgid.shard);
                w.put(&self.from);
                w.u32(self.min_epoch);
            }
            fn decode_front(
                r: &mut Reader<'_>,
                header: &MsgHeader,
                _: &Bytes,
            ) -> Result<Self, Error> {
                let pgid: PgId = r.get()?;
                let map_epoch = r.u32()?;
                let ($list, cost) = (r.get()?, r.u64()?);
                Ok($name {
                    pgid: SpgId { pgid, shard: r.i8()? },
                    from: r.get()?,
                    map_epoch,
                    $list,
                    cost,
                    min_epoch: if header.version >= 3 { r.u32()? } else { map_epoch },
                })
            }
        }
    };
}
with_list!(MOSDPGPushReply replies 107);
with_list!(MOSDPGPull pulls 106);

/// Type 118: objects to delete.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDPGRecoveryDelete {
    /// The sender.
    pub from: PgShard,
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// Epoch of the interval.
    pub min_epoch: Epoch,
    /// Bytes that the receiver's throttle counts.
    pub cost: u64,
    /// The objects and the versions of their deletions.
    pub objects: Vec<(HObject, EVersion)>,
}
message!(MOSDPGRecoveryDelete, 118, 2 / 1, PRIORITY);

/// Type 119: they are deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPGRecoveryDeleteReply {
    /// The sender.
    pub from: PgShard,
    /// The PG, with the receiver's shard.
    pub pgid: SpgId,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// Epoch of the interval.
    pub min_epoch: Epoch,
    /// The objects and the versions of their deletions.
    pub objects: Vec<(HObject, EVersion)>,
}

impl Message for MOSDPGRecoveryDeleteReply {
    const TYPE: u16 = 119;
    const VERSION: u16 = 2;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = PRIORITY;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.pgid.pgid);
        w.u32(self.map_epoch);
        w.u32(self.min_epoch);
        w.put(&self.objects);
        w.i8(self.pgid.shard);
        w.put(&self.from);
    }
    fn decode_front(r: &mut Reader<'_>, _: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let pgid: PgId = r.get()?;
        let (map_epoch, min_epoch) = (r.u32()?, r.u32()?);
        let objects = r.get()?;
        let pgid = SpgId { pgid, shard: r.i8()? };
        Ok(MOSDPGRecoveryDeleteReply { from: r.get()?, pgid, map_epoch, min_epoch, objects })
    }
}
