//! A message as the messenger carries it: header and three opaque segments.

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

use crate::bufferlist::BufferList;

/// Default priority of a message.
pub const PRIORITY_DEFAULT: u16 = 127;
/// Priority of messages of the peering protocol and of replies between OSDs.
pub const PRIORITY_HIGH: u16 = 196;
/// Highest priority.
pub const PRIORITY_HIGHEST: u16 = 255;
/// Priority of client operations (osd_client_op_priority).
pub const PRIORITY_CLIENT_OP: u16 = 63;

/// Wire: ceph_msg_header2, 41 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MsgHeader {
    /// Number on this session and direction, from 1; the messenger fills it in.
    pub seq: u64,
    /// The request's number; a reply copies it.
    pub tid: u64,
    /// The message type.
    pub kind: u16,
    /// Higher goes first.
    pub priority: u16,
    /// Version of the front's encoding.
    pub version: u16,
    /// Oldest version a reader must know.
    pub compat_version: u16,
    /// Where in a page the receiver should put the data's first byte, so that what is long in it
    /// begins a page (`Message::get_data_off`, `Transaction::get_data_alignment`).
    pub data_off: u16,
    /// Highest sequence number received from the peer; the messenger fills it in.
    pub ack_seq: u64,
    /// 3 as 16.2 sends it: front and data are checksummed.
    pub flags: u8,
}

impl MsgHeader {
    /// Bytes of the encoding.
    pub const LEN: usize = 41;
}

impl Denc for MsgHeader {
    fn encode(&self, w: &mut Writer) {
        w.u64(self.seq);
        w.u64(self.tid);
        w.u16(self.kind);
        w.u16(self.priority);
        w.u16(self.version);
        w.u32(0); // data_pre_padding_len
        w.u16(self.data_off);
        w.u64(self.ack_seq);
        w.u8(self.flags);
        w.u16(self.compat_version);
        w.u16(0); // reserved
    }
    fn decode(r: &mut Reader<'_>) -> Result<MsgHeader, Error> {
        let mut h = MsgHeader {
            seq: r.u64()?,
            tid: r.u64()?,
            kind: r.u16()?,
            priority: r.u16()?,
            version: r.u16()?,
            ..MsgHeader::default()
        };
        r.u32()?;
        h.data_off = r.u16()?;
        h.ack_seq = r.u64()?;
        h.flags = r.u8()?;
        h.compat_version = r.u16()?;
        r.u16()?;
        Ok(h)
    }
}

/// A message: what its sender encoded, not yet understood.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RawMessage {
    /// Type, versions, tid.
    pub header: MsgHeader,
    /// The encoded body.
    pub front: Bytes,
    /// Rarely used second part.
    pub middle: Bytes,
    /// The payload, by reference.
    pub data: BufferList,
}

impl RawMessage {
    /// Bytes of all segments but the header.
    pub fn payload_len(&self) -> usize {
        self.front.len() + self.middle.len() + self.data.len()
    }

    /// The same message with another tid.
    pub fn with_tid(mut self, tid: u64) -> RawMessage {
        self.header.tid = tid;
        self
    }

    /// The same message with another priority.
    pub fn with_priority(mut self, priority: u16) -> RawMessage {
        self.header.priority = priority;
        self
    }
}
