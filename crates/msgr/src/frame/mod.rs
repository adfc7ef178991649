//! Frames of messenger v2.1 revision 1: bytes to segments and back. Pure; no I/O.
//!
//! ```text
//! preamble (32)   u8 tag | u8 segments | 4 x { u32 len, u16 align } | u8 flags | u8 0 | u32 crc
//! crc mode        preamble | seg 0 | crc | seg 1..3 | u8 late status, 3 x u32 crc
//! secure mode     preamble + 48 bytes of seg 0 | tag | rest of seg 0 | tag | seg 1..3, late | tag
//! ```
//!
//! Facts: src/msg/async/frames_v2.{h,cc} at v16.2; checked against frames of the real tools in
//! `tests/golden`.

mod read;
mod secure;
mod write;

use core::fmt;

pub use read::{Frame, FrameReader};
pub use secure::{GcmStream, SECRET_LEN, rx_tx_streams};
pub use write::{FrameWriter, Segment, SendBatch};

/// Frame tags.
pub mod tag {
    #![allow(missing_docs, reason = "the names are Ceph's")]
    pub const HELLO: u8 = 1;
    pub const AUTH_REQUEST: u8 = 2;
    pub const AUTH_BAD_METHOD: u8 = 3;
    pub const AUTH_REPLY_MORE: u8 = 4;
    pub const AUTH_REQUEST_MORE: u8 = 5;
    pub const AUTH_DONE: u8 = 6;
    pub const AUTH_SIGNATURE: u8 = 7;
    pub const CLIENT_IDENT: u8 = 8;
    pub const SERVER_IDENT: u8 = 9;
    pub const IDENT_MISSING_FEATURES: u8 = 10;
    pub const SESSION_RECONNECT: u8 = 11;
    pub const SESSION_RESET: u8 = 12;
    pub const SESSION_RETRY: u8 = 13;
    pub const SESSION_RETRY_GLOBAL: u8 = 14;
    pub const SESSION_RECONNECT_OK: u8 = 15;
    pub const WAIT: u8 = 16;
    pub const MESSAGE: u8 = 17;
    pub const KEEPALIVE2: u8 = 18;
    pub const KEEPALIVE2_ACK: u8 = 19;
    pub const ACK: u8 = 20;
}

/// Bytes of a preamble.
pub const PREAMBLE_LEN: usize = 32;
/// Segments of a frame.
pub const SEGMENTS_MAX: usize = 4;
/// Bytes of segment 0 that travel with the preamble in secure mode.
pub const INLINE_LEN: usize = 48;
/// Bytes of the epilogue in crc mode.
pub const EPILOGUE_LEN: usize = 13;
/// Late status of a frame that is complete (low nibble).
pub const LATE_COMPLETE: u8 = 0xe;
/// Late status of a frame its sender gave up.
pub const LATE_ABORTED: u8 = 0x1;

/// Longest segment of a control frame (an authorizer with a long ticket is a few kB).
pub const CONTROL_SEGMENT_MAX: u32 = 1 << 20;
/// Longest segment before the peer is authenticated.
pub const STRANGER_SEGMENT_MAX: u32 = 64 << 10;
/// Longest front: a full map of a large cluster.
pub const FRONT_MAX: u32 = 128 << 20;
/// Longest middle segment.
pub const MIDDLE_MAX: u32 = 16 << 20;
/// Longest data segment: as long as librados sends one. What an OSD does not take (`osd_max_write_size` is
/// 90 MB) it answers; whoever has their connection closed sends the same again, for ever.
pub const DATA_MAX: u32 = i32::MAX as u32;

/// What is wrong with a frame. The sender is at fault; the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// The preamble's crc does not fit.
    PreambleCrc,
    /// The crc of a segment does not fit.
    SegmentCrc {
        /// Which one.
        segment: usize,
    },
    /// No or too many segments.
    Segments {
        /// How many.
        count: u8,
    },
    /// A segment is longer than frames of this tag may have.
    TooLong {
        /// Tag of the frame.
        tag: u8,
        /// Length of the segment.
        len: u32,
    },
    /// The late status is neither complete nor aborted.
    LateStatus {
        /// The byte.
        status: u8,
    },
    /// A record does not open: wrong key, wrong order, or damaged.
    Sealed,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FrameError::PreambleCrc => f.write_str("wrong crc of a preamble"),
            FrameError::SegmentCrc { segment } => write!(f, "wrong crc of segment {segment}"),
            FrameError::Segments { count } => write!(f, "a frame of {count} segments"),
            FrameError::TooLong { tag, len } => write!(f, "segment of {len} bytes in tag {tag}"),
            FrameError::LateStatus { status } => write!(f, "late status {status:#x}"),
            FrameError::Sealed => f.write_str("a secure record does not open"),
        }
    }
}

impl std::error::Error for FrameError {}

/// What a preamble says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preamble {
    /// Tag of the frame.
    pub tag: u8,
    /// Number of segments, 1..=4.
    pub segments: usize,
    /// Their lengths; 0 beyond `segments`.
    pub lens: [u32; SEGMENTS_MAX],
}

impl Preamble {
    /// Checks and reads 32 bytes. `authenticated` decides which lengths are allowed.
    pub fn decode(bytes: &[u8; PREAMBLE_LEN], authenticated: bool) -> Result<Preamble, FrameError> {
        let u32_at = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if u32_at(28) != crc(0, &bytes[..28]) {
            return Err(FrameError::PreambleCrc);
        }
        let (tag, count) = (bytes[0], bytes[1]);
        let segments = usize::from(count);
        if segments == 0 || segments > SEGMENTS_MAX {
            return Err(FrameError::Segments { count });
        }
        let mut lens = [0; SEGMENTS_MAX];
        for (i, len) in lens.iter_mut().enumerate().take(segments) {
            *len = u32_at(2 + i * 6);
            let max = match (tag, i) {
                _ if !authenticated => STRANGER_SEGMENT_MAX,
                (tag::MESSAGE, 1) => FRONT_MAX,
                (tag::MESSAGE, 2) => MIDDLE_MAX,
                (tag::MESSAGE, 3) => DATA_MAX,
                _ => CONTROL_SEGMENT_MAX,
            };
            if *len > max {
                return Err(FrameError::TooLong { tag, len: *len });
            }
        }
        Ok(Preamble { tag, segments, lens })
    }

    /// The 32 bytes.
    pub fn encode(&self) -> [u8; PREAMBLE_LEN] {
        let mut bytes = [0; PREAMBLE_LEN];
        bytes[0] = self.tag;
        bytes[1] = self.segments as u8;
        for i in 0..self.segments {
            let align: u16 = if self.tag == tag::MESSAGE && i == 3 { 4096 } else { 8 };
            bytes[2 + i * 6..6 + i * 6].copy_from_slice(&self.lens[i].to_le_bytes());
            bytes[6 + i * 6..8 + i * 6].copy_from_slice(&align.to_le_bytes());
        }
        let crc = crc(0, &bytes[..28]);
        bytes[28..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Bytes of all segments.
    pub fn payload_len(&self) -> usize {
        self.lens.iter().map(|len| *len as usize).sum()
    }
}

/// Start value of segment crcs.
pub(crate) const CRC_START: u32 = u32::MAX;

/// crc32c without final inversion.
pub(crate) fn crc(start: u32, bytes: &[u8]) -> u32 {
    types::crc::crc32c(start, bytes)
}

/// `len` rounded up to whole cipher blocks.
pub(crate) fn padded(len: usize) -> usize {
    len.next_multiple_of(16)
}
