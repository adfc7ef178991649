//! The answer to a client's operation (43). Outputs travel as payload, by reference.

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::osd::ops::{OsdOp, WireOp, message_flags};
use types::{BufferList, EVersion, Epoch, MsgHeader, PgId};

use crate::Message;

/// Type 43, version 8. Ceph's redirects are not sent: no tiering here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDOpReply {
    /// The object.
    pub object: BString,
    /// The PG.
    pub pgid: PgId,
    /// The request's flags, with what has been reached.
    pub flags: u64,
    /// 0, a count, or a negative errno.
    pub result: i32,
    /// Version and user version, for clients that cannot read the two fields below.
    pub bad_replay_version: EVersion,
    /// The OSD's map.
    pub epoch: Epoch,
    /// The request's ops with `outdata` and `rval`.
    pub ops: Vec<OsdOp>,
    /// The request's.
    pub retry_attempt: i32,
    /// Version of the write, zero for reads.
    pub replay_version: EVersion,
    /// The object's version as users see it.
    pub user_version: u64,
}

/// The bits of `flags` that say what has been reached.
pub const REACHED: u64 =
    (message_flags::ACK | message_flags::ONNVRAM | message_flags::ONDISK) as u64;

impl Message for MOSDOpReply {
    const TYPE: u16 = 43;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 2;
    const ROOM: usize = 384;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.object);
        w.put(&self.pgid);
        w.u64(self.flags);
        w.i32(self.result);
        w.put(&self.bad_replay_version);
        w.u32(self.epoch);
        w.count(self.ops.len());
        self.ops.iter().for_each(|op| op.wire(op.outdata.len()).encode(w));
        w.i32(self.retry_attempt);
        self.ops.iter().for_each(|op| w.i32(op.rval));
        w.put(&self.replay_version);
        w.u64(self.user_version);
        w.u8(0); // no redirect
        w.zeros(24); // trace
    }

    fn payload(&self) -> BufferList {
        let mut all = BufferList::new();
        self.ops.iter().for_each(|op| all.append(&op.outdata));
        all
    }

    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, data: &Bytes) -> Result<Self, Error> {
        if header.version < Self::VERSION {
            let version = u8::try_from(header.version).unwrap_or(0);
            return Err(Error::TooOld { what: "MOSDOpReply", version, oldest: 8 });
        }
        let (object, pgid, flags, result, bad_replay_version, epoch) =
            (r.get()?, r.get()?, r.u64()?, r.i32()?, r.get()?, r.u32()?);
        let count = r.count(WireOp::LEN)?;
        let mut output = Reader::new(data);
        let mut ops = (0..count)
            .map(|_| {
                let wire: WireOp = r.get()?;
                let outdata = output.bytes(wire.payload_len as usize)?.into();
                let (code, flags, args) = (wire.code, wire.flags, wire.args);
                Ok(OsdOp { code, flags, args, outdata, ..OsdOp::default() })
            })
            .collect::<Result<Vec<_>, Error>>()?;
        let retry_attempt = r.i32()?;
        for op in &mut ops {
            op.rval = r.i32()?;
        }
        let (replay_version, user_version) = (r.get()?, r.u64()?);
        if r.bool()? {
            return Err(Error::Invalid { what: "redirect in MOSDOpReply", value: 1 });
        }
        Ok(MOSDOpReply {
            object,
            pgid,
            flags,
            result,
            bad_replay_version,
            epoch,
            ops,
            retry_attempt,
            replay_version,
            user_version,
        })
    }
}
