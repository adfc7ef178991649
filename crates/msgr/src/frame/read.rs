//! The disassembler: from received bytes to frames, by slices of the receive buffer.

use bytes::{Buf, Bytes, BytesMut};

use super::secure::TAG_LEN;
use super::{
    CRC_START, EPILOGUE_LEN, FrameError, GcmStream, INLINE_LEN, LATE_ABORTED, LATE_COMPLETE,
    PREAMBLE_LEN, Preamble, SEGMENTS_MAX, crc, padded,
};

/// A frame that was received whole and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its tag.
    pub tag: u8,
    /// How many segments it has.
    pub count: usize,
    /// The segments; empty beyond `count`.
    pub segments: [Bytes; SEGMENTS_MAX],
}

impl Frame {
    /// The only segment of a control frame.
    pub fn payload(&self) -> &Bytes {
        &self.segments[0]
    }
}

/// Takes frames off the front of a buffer, in two steps: the preamble (so that the receiver can
/// wait for room before it takes the rest), then the body.
#[derive(Debug, Default)]
pub struct FrameReader {
    gcm: Option<GcmStream>,
    authenticated: bool,
    /// The preamble taken, with the part of segment 0 that came along in secure mode.
    pending: Option<(Preamble, Bytes)>,
}

impl FrameReader {
    /// A reader of a new connection: crc mode, tight limits.
    pub fn new() -> FrameReader {
        FrameReader::default()
    }

    /// The peer is authenticated: long segments may come, sealed if there is a stream.
    pub fn authenticated(&mut self, gcm: Option<GcmStream>) {
        self.authenticated = true;
        self.gcm = gcm;
    }

    /// Wire bytes of a preamble in this mode.
    fn head_len(&self) -> usize {
        match self.gcm {
            None => PREAMBLE_LEN,
            Some(_) => PREAMBLE_LEN + INLINE_LEN + TAG_LEN,
        }
    }

    /// Wire bytes behind the preamble.
    fn body_len(&self, p: &Preamble) -> usize {
        let first = p.lens[0] as usize;
        let rest: usize = p.lens[1..].iter().map(|len| *len as usize).sum();
        match self.gcm {
            None => {
                (if first > 0 { first + 4 } else { 0 })
                    + (if p.segments > 1 {
                        rest + EPILOGUE_LEN
                    } else {
                        0
                    })
            }
            Some(_) => {
                let more = first.saturating_sub(INLINE_LEN);
                let rest: usize = p.lens[1..].iter().map(|len| padded(*len as usize)).sum();
                (if more > 0 { padded(more) + TAG_LEN } else { 0 })
                    + (if p.segments > 1 {
                        rest + 16 + TAG_LEN
                    } else {
                        0
                    })
            }
        }
    }

    /// Takes the next preamble off `buf` unless it was taken already; `None` if bytes are missing.
    pub fn preamble(&mut self, buf: &mut BytesMut) -> Result<Option<Preamble>, FrameError> {
        if let Some((preamble, _)) = &self.pending {
            return Ok(Some(*preamble));
        }
        if buf.len() < self.head_len() {
            return Ok(None);
        }
        let mut bytes = [0; PREAMBLE_LEN];
        let inline = match &mut self.gcm {
            None => {
                bytes.copy_from_slice(&buf[..PREAMBLE_LEN]);
                buf.advance(PREAMBLE_LEN);
                Bytes::new()
            }
            Some(gcm) => {
                let mut head = buf.split_to(PREAMBLE_LEN + INLINE_LEN + TAG_LEN);
                gcm.open(&mut head)?;
                bytes.copy_from_slice(&head[..PREAMBLE_LEN]);
                head.freeze().slice(PREAMBLE_LEN..PREAMBLE_LEN + INLINE_LEN)
            }
        };
        let preamble = Preamble::decode(&bytes, self.authenticated)?;
        self.pending = Some((preamble, inline));
        Ok(Some(preamble))
    }

    /// Bytes that `buf` must hold for the next step to succeed.
    pub fn need(&self) -> usize {
        match &self.pending {
            None => self.head_len(),
            Some((preamble, _)) => self.body_len(preamble),
        }
    }

    /// Whether a preamble was taken and its body is missing.
    pub fn awaits_body(&self) -> bool {
        self.pending.is_some()
    }

    /// Takes the body that belongs to the preamble taken; `None` if bytes are missing, and for a
    /// frame its sender aborted (call `preamble` again in that case: it is gone).
    pub fn body(&mut self, buf: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let need = self.need();
        let Some((p, _)) = &self.pending else {
            return Ok(None);
        };
        if buf.len() < need {
            return Ok(None);
        }
        let p = *p;
        let inline = self
            .pending
            .take()
            .map(|(_, inline)| inline)
            .unwrap_or_default();
        let body = buf.split_to(need);
        match &mut self.gcm {
            None => crc_body(&p, body.freeze()),
            Some(gcm) => secure_body(&p, inline, body, gcm),
        }
    }

    /// The next whole frame, if there is one.
    pub fn next(&mut self, buf: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        loop {
            if self.preamble(buf)?.is_none() {
                return Ok(None);
            }
            match self.body(buf)? {
                Some(frame) => return Ok(Some(frame)),
                None if self.pending.is_some() => return Ok(None),
                None => {}
            }
        }
    }
}

/// Whether the sender finished the frame.
fn complete(status: u8) -> Result<bool, FrameError> {
    match status & 0xf {
        LATE_COMPLETE => Ok(true),
        LATE_ABORTED => Ok(false),
        _ => Err(FrameError::LateStatus { status }),
    }
}

fn crc_body(p: &Preamble, body: Bytes) -> Result<Option<Frame>, FrameError> {
    let u32_at =
        |at: usize| u32::from_le_bytes([body[at], body[at + 1], body[at + 2], body[at + 3]]);
    let mut segments = [const { Bytes::new() }; SEGMENTS_MAX];
    let mut at = 0;
    let first = p.lens[0] as usize;
    if first > 0 {
        segments[0] = body.slice(..first);
        if u32_at(first) != crc(CRC_START, &segments[0]) {
            return Err(FrameError::SegmentCrc { segment: 0 });
        }
        at = first + 4;
    }
    if p.segments > 1 {
        let epilogue = body.len() - EPILOGUE_LEN;
        if !complete(body[epilogue])? {
            return Ok(None);
        }
        for i in 1..p.segments {
            let len = p.lens[i] as usize;
            segments[i] = body.slice(at..at + len);
            at += len;
            if u32_at(epilogue + 1 + (i - 1) * 4) != crc(CRC_START, &segments[i]) {
                return Err(FrameError::SegmentCrc { segment: i });
            }
        }
    }
    Ok(Some(Frame {
        tag: p.tag,
        count: p.segments,
        segments,
    }))
}

fn secure_body(
    p: &Preamble,
    inline: Bytes,
    mut body: BytesMut,
    gcm: &mut GcmStream,
) -> Result<Option<Frame>, FrameError> {
    let mut segments = [const { Bytes::new() }; SEGMENTS_MAX];
    let first = p.lens[0] as usize;
    segments[0] = if first <= INLINE_LEN {
        inline.slice(..first)
    } else {
        let more = first - INLINE_LEN;
        let mut record = body.split_to(padded(more) + TAG_LEN);
        gcm.open(&mut record)?;
        let mut whole = BytesMut::with_capacity(first);
        whole.extend_from_slice(&inline);
        whole.extend_from_slice(&record[..more]);
        whole.freeze()
    };
    if p.segments > 1 {
        gcm.open(&mut body)?;
        let body = body.freeze();
        if !complete(body[body.len() - TAG_LEN - 16])? {
            return Ok(None);
        }
        let mut at = 0;
        for i in 1..p.segments {
            let len = p.lens[i] as usize;
            segments[i] = body.slice(at..at + len);
            at += padded(len);
        }
    }
    Ok(Some(Frame {
        tag: p.tag,
        count: p.segments,
        segments,
    }))
}
