//! A client's operation on one object or PG (42): several ops that happen together or not at all.
//! The ops' inputs are slices of the message's payload.

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::message::PRIORITY_CLIENT_OP;
use types::osd::ops::{OsdOp, WireOp};
use types::{BufferList, Epoch, HObject, MsgHeader, ObjectLocator, OsdReqId, SnapId, SpgId, UTime};

use crate::Message;

/// Three numbers of a tracer that no 16.2 package is built with.
const TRACE: [u64; 3] = [0; 3];

/// Type 42, version 8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MOSDOp {
    /// The PG, not the raw hash.
    pub pgid: SpgId,
    /// The object's hash (for a PG op: the PG's seed).
    pub hash: u32,
    /// The client's map.
    pub epoch: Epoch,
    /// `types::osd::ops::message_flags`.
    pub flags: u32,
    /// The operation's identity; zero from clients, who mean session, tid and `client_inc`.
    pub reqid: OsdReqId,
    /// The client's incarnation.
    pub client_inc: i32,
    /// The client's clock; zero for reads.
    pub mtime: UTime,
    /// Pool, namespace and key.
    pub locator: ObjectLocator,
    /// The object; empty for PG ops.
    pub object: BString,
    /// In order, at most 65535. A request uses `indata` only.
    pub ops: Vec<OsdOp>,
    /// What to read: NOSNAP, or a snapshot.
    pub snapid: SnapId,
    /// The snap context's newest snapshot.
    pub snap_seq: SnapId,
    /// Its snapshots, newest first.
    pub snaps: Vec<SnapId>,
    /// 0 the first time.
    pub retry_attempt: i32,
    /// The client's feature bits.
    pub features: u64,
}

impl MOSDOp {
    /// The object named, at `snapid`; its pool is that of the PG, whatever the locator says.
    pub fn hobject(&self) -> HObject {
        HObject {
            key: self.locator.key.clone(),
            name: self.object.clone(),
            snap: self.snapid,
            hash: self.hash,
            max: false,
            namespace: self.locator.namespace.clone(),
            pool: self.pgid.pgid.pool_id(),
        }
    }
}

impl Message for MOSDOp {
    const TYPE: u16 = 42;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 3;
    const PRIORITY: u16 = PRIORITY_CLIENT_OP;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.pgid);
        w.u32(self.hash);
        w.u32(self.epoch);
        w.u32(self.flags);
        w.put(&self.reqid);
        TRACE.iter().for_each(|n| w.u64(*n));
        w.i32(self.client_inc);
        w.put(&self.mtime);
        w.put(&self.locator);
        w.put(&self.object);
        w.u16(u16::try_from(self.ops.len()).expect("who builds a request bounds its ops"));
        self.ops.iter().for_each(|op| op.wire(op.indata.len()).encode(w));
        w.u64(self.snapid);
        w.u64(self.snap_seq);
        w.put(&self.snaps);
        w.i32(self.retry_attempt);
        w.u64(self.features);
    }

    fn payload(&self) -> BufferList {
        self.ops.iter().map(|op| op.indata.clone()).collect()
    }

    fn decode_front(r: &mut Reader<'_>, header: &MsgHeader, data: &Bytes) -> Result<Self, Error> {
        if header.version < Self::VERSION {
            let version = u8::try_from(header.version).unwrap_or(0);
            return Err(Error::TooOld { what: "MOSDOp", version, oldest: 8 });
        }
        let (pgid, hash, epoch, flags, reqid) = (r.get()?, r.u32()?, r.u32()?, r.u32()?, r.get()?);
        for _ in TRACE {
            r.u64()?;
        }
        let (client_inc, mtime, locator, object) = (r.i32()?, r.get()?, r.get()?, r.get()?);
        Ok(MOSDOp {
            pgid,
            hash,
            epoch,
            flags,
            reqid,
            client_inc,
            mtime,
            locator,
            object,
            ops: decode_ops(r, data)?,
            snapid: r.u64()?,
            snap_seq: r.u64()?,
            snaps: r.get()?,
            retry_attempt: r.i32()?,
            features: r.u64()?,
        })
    }
}

fn decode_ops(r: &mut Reader<'_>, data: &Bytes) -> Result<Vec<OsdOp>, Error> {
    let count = usize::from(r.u16()?);
    if count * WireOp::LEN > r.remaining() {
        return Err(Error::Truncated { need: count * WireOp::LEN, have: r.remaining() });
    }
    let mut input = Reader::new(data);
    (0..count)
        .map(|_| {
            let wire: WireOp = r.get()?;
            Ok(OsdOp {
                code: wire.code,
                flags: wire.flags,
                args: wire.args,
                indata: input.bytes(wire.payload_len as usize)?,
                ..OsdOp::default()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use types::osd::ops;

    use super::*;

    /// More than 4096 ops were taken for nonsense: the OSD ended the session, and librados sent them again in the next one,
    /// for ever. Ceph takes as many as the message can count.
    #[test]
    fn a_message_has_as_many_ops_as_it_can_count() {
        let message = MOSDOp {
            pgid: SpgId::default(),
            hash: 0,
            epoch: 1,
            flags: 0,
            reqid: OsdReqId::default(),
            client_inc: 0,
            mtime: UTime::ZERO,
            locator: ObjectLocator::default(),
            object: "o".into(),
            ops: vec![OsdOp::new(ops::STAT); usize::from(u16::MAX)],
            snapid: 0,
            snap_seq: 0,
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        };
        let mut raw = message.encode();
        assert_eq!(MOSDOp::decode(&raw).unwrap(), message);
        raw.front.truncate(raw.front.len() / 2);
        assert!(matches!(MOSDOp::decode(&raw), Err(Error::Truncated { .. })));
    }
}
