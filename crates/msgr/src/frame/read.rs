//! The disassembler: from received bytes to frames, by slices of the receive buffer.
//!
//! A long data segment gets a buffer of its own, so that its bytes lie where direct I/O takes them:
//! [`FrameReader::lend`] gives it to who receives. Its checksum is taken piece by piece as they
//! come, while the processor's caches still hold them.

use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use denc::Denc;
use env::AlignedBuf;
use types::message::MsgHeader;
use types::page_sums::{PAGE, PageSums, Summing};

use super::secure::TAG_LEN;
use super::{
    CRC_START, EPILOGUE_LEN, FrameError, GcmStream, INLINE_LEN, LATE_ABORTED, LATE_COMPLETE,
    PREAMBLE_LEN, Preamble, SEGMENTS_MAX, crc, padded, tag,
};

/// Shortest data segment that gets a buffer of its own.
const LONG_MIN: usize = 64 << 10;
/// Bytes of a long segment received at a time: less than a second-level cache.
const LONG_STEP: usize = 256 << 10;
/// Place of the data segment.
const DATA: usize = 3;

/// A frame that was received whole and checked.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Its tag.
    pub tag: u8,
    /// How many segments it has.
    pub count: usize,
    /// The segments; empty beyond `count`.
    pub segments: [Bytes; SEGMENTS_MAX],
    /// What is known of the data segment.
    pub sums: Option<PageSums>,
}

impl PartialEq for Frame {
    fn eq(&self, other: &Frame) -> bool {
        (self.tag, self.count, &self.segments) == (other.tag, other.count, &other.segments)
    }
}

impl Eq for Frame {}

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
    pending: Option<Pending>,
}

/// A frame whose preamble was taken.
#[derive(Debug)]
struct Pending {
    preamble: Preamble,
    /// The part of segment 0 that came along in secure mode.
    inline: Bytes,
    /// What has come of a frame with a long data segment.
    long: Option<Long>,
}

/// A frame whose data segment has a buffer of its own.
#[derive(Debug)]
struct Long {
    /// The segments before it.
    segments: [Bytes; SEGMENTS_MAX],
    /// Where the data lies; empty while lent.
    buf: AlignedBuf,
    /// The segment's place in `buf`: where its sender asks for it within a page.
    start: usize,
    /// Up to where it has come.
    filled: usize,
    end: usize,
    /// Checksums of what has come.
    sums: Summing,
}

impl Long {
    /// Room for the data of a frame of which the segments before have come.
    fn new(p: &Preamble, segments: [Bytes; SEGMENTS_MAX]) -> Long {
        let start = page_offset(&segments[0]) % AlignedBuf::ALIGN;
        let len = p.lens[DATA] as usize;
        let end = start + len;
        Long {
            segments,
            buf: AlignedBuf::scratch(end),
            start,
            filled: start,
            end,
            sums: Summing::new(start, len, CRC_START),
        }
    }

    /// Takes over bytes that were received together with what comes before the data.
    fn take(&mut self, buf: &mut BytesMut) {
        let bytes = buf.split_to(buf.len().min(self.end - self.filled));
        self.buf.copy_from_slice_at(self.filled, &bytes);
        self.filled += bytes.len();
        self.sums.go_on(&self.buf[self.start..self.filled]);
    }
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
                    + (if p.segments > 1 { rest + EPILOGUE_LEN } else { 0 })
            }
            Some(_) => {
                let more = first.saturating_sub(INLINE_LEN);
                let rest: usize = p.lens[1..].iter().map(|len| padded(*len as usize)).sum();
                (if more > 0 { padded(more) + TAG_LEN } else { 0 })
                    + (if p.segments > 1 { rest + 16 + TAG_LEN } else { 0 })
            }
        }
    }

    /// Takes the next preamble off `buf` unless it was taken already; `None` if bytes are missing.
    pub fn preamble(&mut self, buf: &mut BytesMut) -> Result<Option<Preamble>, FrameError> {
        if let Some(pending) = &self.pending {
            return Ok(Some(pending.preamble));
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
        self.pending = Some(Pending { preamble, inline, long: None });
        Ok(Some(preamble))
    }

    /// Bytes that `buf` must hold for the next step to succeed.
    pub fn need(&self) -> usize {
        match &self.pending {
            None => self.head_len(),
            Some(Pending { preamble, .. }) if !self.is_long(preamble) => self.body_len(preamble),
            Some(Pending { long: Some(_), .. }) => EPILOGUE_LEN,
            Some(Pending { preamble, .. }) => {
                self.body_len(preamble) - preamble.lens[DATA] as usize - EPILOGUE_LEN
            }
        }
    }

    /// Whether the data of a frame gets a buffer of its own. (What is sealed is opened in place.)
    fn is_long(&self, p: &Preamble) -> bool {
        self.gcm.is_none() && p.tag == tag::MESSAGE && p.lens[DATA] as usize >= LONG_MIN
    }

    /// Where the next bytes of a long data segment belong, once all that was received has been
    /// looked at: to be filled from the range's start on, and given back.
    pub fn lend(&mut self) -> Option<(AlignedBuf, Range<usize>)> {
        let long = self.pending.as_mut()?.long.as_mut()?;
        if long.filled == long.end {
            return None;
        }
        let buf = core::mem::replace(&mut long.buf, AlignedBuf::scratch(0));
        Some((buf, long.filled..long.end.min(long.filled + LONG_STEP)))
    }

    /// Takes back what was lent, with `received` bytes more in it.
    pub fn give_back(&mut self, buf: AlignedBuf, received: usize) {
        let Some(long) = self.pending.as_mut().and_then(|p| p.long.as_mut()) else { return };
        long.filled += received;
        long.sums.go_on(&buf[long.start..long.filled]);
        long.buf = buf;
    }

    /// Whether a preamble was taken and its body is missing.
    pub fn awaits_body(&self) -> bool {
        self.pending.is_some()
    }

    /// Takes the body that belongs to the preamble taken; `None` if bytes are missing, and for a
    /// frame its sender aborted (call `preamble` again in that case: it is gone).
    pub fn body(&mut self, buf: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let need = self.need();
        let Some(pending) = &mut self.pending else { return Ok(None) };
        let p = pending.preamble;
        if let Some(long) = &mut pending.long {
            long.take(buf);
        }
        let unfilled = pending.long.as_ref().is_some_and(|l| l.filled < l.end);
        if unfilled || buf.len() < need {
            return Ok(None);
        }
        if self.is_long(&p) {
            return self.long_body(&p, buf.split_to(need).freeze(), buf);
        }
        let inline = self.pending.take().map(|p| p.inline).unwrap_or_default();
        let body = buf.split_to(need);
        match &mut self.gcm {
            None => crc_body(&p, body.freeze()),
            Some(gcm) => secure_body(&p, inline, body, gcm),
        }
    }

    /// A step with a frame of long data: `bytes` is what comes before the data, or what comes
    /// behind it.
    fn long_body(
        &mut self,
        p: &Preamble,
        bytes: Bytes,
        buf: &mut BytesMut,
    ) -> Result<Option<Frame>, FrameError> {
        let Some(pending) = &mut self.pending else { return Ok(None) };
        let Some(mut long) = pending.long.take() else {
            let segments = crc_segments(p, &bytes, DATA)?;
            pending.long = Some(Long::new(p, segments));
            return self.body(buf);
        };
        self.pending = None;
        let data = long.buf.freeze().slice(long.start..long.end);
        long.segments[DATA] = data.clone();
        let data_crc = Some(long.sums.whole());
        let frame = crc_frame(p, long.segments, &bytes, data_crc)?;
        Ok(frame.map(|f| Frame { sums: long.sums.finish(data), ..f }))
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

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn crc_body(p: &Preamble, body: Bytes) -> Result<Option<Frame>, FrameError> {
    let segments = crc_segments(p, &body, p.segments)?;
    let epilogue = if p.segments > 1 { body.len() - EPILOGUE_LEN } else { body.len() };
    let data = segments[DATA].clone();
    if p.tag != tag::MESSAGE || data.len() < PAGE {
        return crc_frame(p, segments, &body[epilogue..], None);
    }
    let mut sums = Summing::new(page_offset(&segments[0]), data.len(), CRC_START);
    sums.go_on(&data);
    let frame = crc_frame(p, segments, &body[epilogue..], Some(sums.whole()))?;
    Ok(frame.map(|f| Frame { sums: sums.finish(data), ..f }))
}

/// Where in a page the data of a message begins for its sender.
fn page_offset(header: &Bytes) -> usize {
    MsgHeader::from_bytes(header).map_or(0, |header| header.data_off.into())
}

/// The first `count` segments of a body; the first one's checksum comes with it.
fn crc_segments(
    p: &Preamble,
    body: &Bytes,
    count: usize,
) -> Result<[Bytes; SEGMENTS_MAX], FrameError> {
    let mut segments = [const { Bytes::new() }; SEGMENTS_MAX];
    let mut at = 0;
    let first = p.lens[0] as usize;
    if first > 0 {
        segments[0] = body.slice(..first);
        if u32_at(body, first) != crc(CRC_START, &segments[0]) {
            return Err(FrameError::SegmentCrc { segment: 0 });
        }
        at = first + 4;
    }
    for (segment, len) in segments.iter_mut().zip(p.lens).take(count).skip(1) {
        let end = at + len as usize;
        *segment = body.slice(at..end);
        at = end;
    }
    Ok(segments)
}

/// The frame of these segments, checked by its epilogue; `None` if its sender gave it up. The
/// checksum of the data may be known already.
fn crc_frame(
    p: &Preamble,
    segments: [Bytes; SEGMENTS_MAX],
    epilogue: &[u8],
    data_crc: Option<u32>,
) -> Result<Option<Frame>, FrameError> {
    if p.segments > 1 {
        if !complete(epilogue[0])? {
            return Ok(None);
        }
        for (i, bytes) in segments.iter().enumerate().take(p.segments).skip(1) {
            let sum = data_crc.filter(|_| i == DATA).unwrap_or_else(|| crc(CRC_START, bytes));
            if u32_at(epilogue, 1 + (i - 1) * 4) != sum {
                return Err(FrameError::SegmentCrc { segment: i });
            }
        }
    }
    Ok(Some(Frame { tag: p.tag, count: p.segments, segments, sums: None }))
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
    Ok(Some(Frame { tag: p.tag, count: p.segments, segments, sums: None }))
}
