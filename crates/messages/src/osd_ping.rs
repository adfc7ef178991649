//! Heartbeats between OSDs (70).

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::{Epoch, MsgHeader, UTime, Uuid};

use crate::Message;

/// What a ping is. Numbers as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PingOp {
    /// You are marked down.
    YouDied,
    /// Are you there?
    Ping,
    /// I am.
    PingReply,
}

impl Denc for PingOp {
    fn encode(&self, w: &mut Writer) {
        w.u8(match self {
            PingOp::YouDied => 2,
            PingOp::Ping => 4,
            PingOp::PingReply => 5,
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u8()? {
            2 => Ok(PingOp::YouDied),
            4 => Ok(PingOp::Ping),
            5 => Ok(PingOp::PingReply),
            other => Err(Error::Invalid { what: "ping op", value: other.into() }),
        }
    }
}

/// A span of a monotonic clock. Wire: s32 seconds, s32 nanoseconds (of the same sign).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
pub struct SignedSpan {
    /// Whole seconds.
    pub sec: i32,
    /// The rest.
    pub nsec: i32,
}

/// Type 70.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDPing {
    /// The cluster.
    pub fsid: Uuid,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// Kind.
    pub op: PingOp,
    /// When the ping was sent (a reply repeats it).
    pub ping_stamp: UTime,
    /// Epoch in which the sender came up.
    pub up_from: Epoch,
    /// The pinger's monotonic clock (a reply repeats it).
    pub mono_ping_stamp: SignedSpan,
    /// The sender's monotonic clock.
    pub mono_send_stamp: SignedSpan,
    /// Upper bound of the difference of both clocks, if known.
    pub delta_ub: Option<SignedSpan>,
    /// Zeros that fill the message to a jumbo frame, so that a link which drops those shows.
    pub padding_len: u32,
}

/// A padding above this is not believed.
const PADDING_LEN_MAX: u32 = 64 << 10;

impl Message for MOSDPing {
    const TYPE: u16 = 70;
    const VERSION: u16 = 5;
    const COMPAT: u16 = 4;
    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.fsid);
        w.u32(self.map_epoch);
        w.put(&self.op);
        w.put(&self.ping_stamp);
        w.u32(self.padding_len);
        w.u32(self.up_from);
        w.put(&self.mono_ping_stamp);
        w.put(&self.mono_send_stamp);
        w.put(&self.delta_ub);
        w.zeros(self.padding_len as usize);
    }
    fn decode_front(r: &mut Reader<'_>, _: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        let (fsid, map_epoch, op, ping_stamp) = (r.get()?, r.u32()?, r.get()?, r.get()?);
        let padding_len = r.u32()?;
        if padding_len > PADDING_LEN_MAX {
            return Err(Error::Invalid { what: "ping padding", value: padding_len.into() });
        }
        let ping = MOSDPing {
            fsid,
            map_epoch,
            op,
            ping_stamp,
            up_from: r.u32()?,
            mono_ping_stamp: r.get()?,
            mono_send_stamp: r.get()?,
            delta_ub: r.get()?,
            padding_len,
        };
        r.slice(padding_len as usize)?;
        Ok(ping)
    }
}
