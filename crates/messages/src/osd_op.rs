//! A client's operation on one object or PG (42): several ops that happen together or not at all.
//! The ops' inputs are slices of the message's payload.

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::message::PRIORITY_CLIENT_OP;
use types::osd::ops::{OsdOp, WireOp};
use types::{
    BufferList, EntityName, Epoch, HObject, MsgHeader, ObjectLocator, OsdReqId, SnapId, SpgId,
    UTime,
};

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

    /// The request, by which it is known again: the one that it names, else the sender's of that number, in
    /// the sender's incarnation (`MOSDOp::get_reqid` of `src/messages/MOSDOp.h`).
    pub fn request_id(&self, sender: EntityName, tid: u64) -> OsdReqId {
        let named = OsdReqId { inc: 0, ..self.reqid } != OsdReqId::default();
        if named { self.reqid } else { OsdReqId { name: sender, tid, inc: self.client_inc } }
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

    fn of(ops: Vec<OsdOp>) -> MOSDOp {
        MOSDOp {
            pgid: SpgId::default(),
            hash: 0,
            epoch: 1,
            flags: 0,
            reqid: OsdReqId::default(),
            client_inc: 0,
            mtime: UTime::ZERO,
            locator: ObjectLocator::default(),
            object: "o".into(),
            ops,
            snapid: 0,
            snap_seq: 0,
            snaps: Vec::new(),
            retry_attempt: 0,
            features: 0,
        }
    }

    /// An MDS, other than clients, says its incarnation in the request's name, and no more. That was taken for the
    /// name of all its requests: the second one that wrote to a placement group was answered with what became
    /// of the first.
    #[test]
    fn an_incarnation_alone_names_no_request() {
        let sender = EntityName::new(types::entity::MDS, 4);
        let message = |reqid| MOSDOp { reqid, client_inc: 5, ..of(Vec::new()) };
        let own = OsdReqId { name: sender, tid: 9, inc: 5 };
        let alone = OsdReqId { inc: 5, ..OsdReqId::default() };
        assert_eq!(message(alone).request_id(sender, 9), own);
        assert_eq!(message(OsdReqId::default()).request_id(sender, 9), own);
        let other = OsdReqId { name: EntityName::client(1), tid: 2, inc: 0 };
        assert_eq!(message(other).request_id(sender, 9), other);
    }

    /// More than 4096 ops were taken for nonsense: the OSD ended the session, and librados sent them again in the next one,
    /// for ever. Ceph takes as many as the message can count.
    #[test]
    fn a_message_has_as_many_ops_as_it_can_count() {
        let message = of(vec![OsdOp::new(ops::STAT); usize::from(u16::MAX)]);
        let mut raw = message.encode();
        assert_eq!(MOSDOp::decode(&raw).unwrap(), message);
        raw.front.truncate(raw.front.len() / 2);
        assert!(matches!(MOSDOp::decode(&raw), Err(Error::Truncated { .. })));
    }
}
