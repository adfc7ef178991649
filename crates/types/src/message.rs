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

    /// The encoding. Bytes 22 to 26 are data_pre_padding_len, the last two are reserved.
    pub fn to_wire(&self) -> [u8; MsgHeader::LEN] {
        let mut wire = [0; MsgHeader::LEN];
        wire[..8].copy_from_slice(&self.seq.to_le_bytes());
        wire[8..16].copy_from_slice(&self.tid.to_le_bytes());
        wire[16..18].copy_from_slice(&self.kind.to_le_bytes());
        wire[18..20].copy_from_slice(&self.priority.to_le_bytes());
        wire[20..22].copy_from_slice(&self.version.to_le_bytes());
        wire[26..28].copy_from_slice(&self.data_off.to_le_bytes());
        wire[28..36].copy_from_slice(&self.ack_seq.to_le_bytes());
        wire[36] = self.flags;
        wire[37..39].copy_from_slice(&self.compat_version.to_le_bytes());
        wire
    }

    fn of_wire(wire: &[u8; MsgHeader::LEN]) -> MsgHeader {
        let u16_at = |at: usize| u16::from_le_bytes([wire[at], wire[at + 1]]);
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| wire[at + i]));
        MsgHeader {
            seq: u64_at(0),
            tid: u64_at(8),
            kind: u16_at(16),
            priority: u16_at(18),
            version: u16_at(20),
            data_off: u16_at(26),
            ack_seq: u64_at(28),
            flags: wire[36],
            compat_version: u16_at(37),
        }
    }
}

impl Denc for MsgHeader {
    fn encode(&self, w: &mut Writer) {
        w.raw(&self.to_wire());
    }
    fn decode(r: &mut Reader<'_>) -> Result<MsgHeader, Error> {
        let wire = r.slice(MsgHeader::LEN)?;
        Ok(MsgHeader::of_wire(wire.first_chunk().expect("so many were taken")))
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
