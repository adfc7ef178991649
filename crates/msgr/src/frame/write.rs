//! The assembler: from segments to wire bytes, many frames into one send.

use bytes::{BufMut, Bytes, BytesMut};
use types::bufferlist::crc32c_of;
use types::{BufferList, PageSums};

use super::secure::TAG_LEN;
use super::{
    CRC_START, EPILOGUE_LEN, GcmStream, INLINE_LEN, LATE_COMPLETE, PREAMBLE_LEN, Preamble,
    SEGMENTS_MAX, crc, padded,
};

/// Pieces shorter than this are copied behind each other; longer ones are sent from where they
/// lie. A copy of this many bytes costs about as much as an entry of a vectored send.
const COPY_MAX: usize = 2048;
/// Bytes that are made room for when what is copied needs more: a few messages without payload.
const TAIL_ROOM: usize = 4096;

/// Wire bytes gathered for one send call.
#[derive(Debug, Default)]
pub struct SendBatch {
    bufs: Vec<Bytes>,
    tail: BytesMut,
    len: usize,
}

impl SendBatch {
    /// Nothing yet.
    pub fn new() -> SendBatch {
        SendBatch::default()
    }

    /// Bytes gathered.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was gathered.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of buffers so far.
    pub fn buffers(&self) -> usize {
        self.bufs.len() + 1
    }

    /// Adds bytes by copying.
    pub fn copy(&mut self, bytes: &[u8]) {
        self.len += bytes.len();
        if self.tail.capacity() - self.tail.len() < bytes.len() {
            self.make_room(bytes.len());
        }
        self.tail.extend_from_slice(bytes);
    }

    #[cold]
    fn make_room(&mut self, len: usize) {
        self.tail.reserve(len.max(TAIL_ROOM));
    }

    /// Adds a shared buffer.
    fn share(&mut self, bytes: &Bytes) {
        if bytes.len() < COPY_MAX {
            return self.copy(bytes);
        }
        self.len += bytes.len();
        if !self.tail.is_empty() {
            self.bufs.push(self.tail.split().freeze());
        }
        self.bufs.push(bytes.clone());
    }

    /// The buffers to send, in order; the batch is empty again.
    pub fn take(&mut self) -> Vec<Bytes> {
        self.len = 0;
        if !self.tail.is_empty() {
            self.bufs.push(self.tail.split().freeze());
        }
        core::mem::take(&mut self.bufs)
    }

    /// All bytes in one piece (tests, transcripts).
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = self.bufs.concat();
        all.extend_from_slice(&self.tail);
        all
    }
}

/// A segment behind a frame's first one, by reference.
#[derive(Debug, Clone, Copy, Default)]
pub struct Segment<'a> {
    pieces: &'a [Bytes],
    sums: Option<&'a PageSums>,
}

impl<'a> From<&'a Bytes> for Segment<'a> {
    fn from(bytes: &'a Bytes) -> Segment<'a> {
        Segment { pieces: std::slice::from_ref(bytes), sums: None }
    }
}

impl<'a> From<&'a BufferList> for Segment<'a> {
    fn from(list: &'a BufferList) -> Segment<'a> {
        Segment { pieces: list.pieces(), sums: list.sums() }
    }
}

impl Segment<'_> {
    fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    fn crc(&self) -> u32 {
        crc32c_of(CRC_START, self.pieces, self.sums)
    }
}

/// Puts segments into frames.
#[derive(Debug, Default)]
pub struct FrameWriter {
    gcm: Option<GcmStream>,
}

impl FrameWriter {
    /// A writer in crc mode.
    pub fn new() -> FrameWriter {
        FrameWriter::default()
    }

    /// From now on frames are sealed, if there is a stream.
    pub fn authenticated(&mut self, gcm: Option<GcmStream>) {
        self.gcm = gcm;
    }

    /// Adds a frame of one segment.
    pub fn control(&mut self, tag: u8, payload: &[u8], out: &mut SendBatch) {
        self.frame(tag, payload, [Segment::default(); 3], out);
    }

    /// Adds a frame: its first segment, and the others by reference. Trailing empty segments are
    /// left off.
    pub fn frame(&mut self, tag: u8, first: &[u8], rest: [Segment<'_>; 3], out: &mut SendBatch) {
        let mut lens = [0; SEGMENTS_MAX];
        let mut count = 1;
        // Lengths are bounded by FRONT_MAX and the like, far below u32.
        lens[0] = first.len() as u32;
        for (i, segment) in rest.iter().enumerate() {
            lens[i + 1] = segment.len() as u32;
            if lens[i + 1] > 0 {
                count = i + 2;
            }
        }
        let preamble = Preamble { tag, segments: count, lens };
        match &mut self.gcm {
            None => crc_frame(&preamble, first, rest, out),
            Some(gcm) => secure_frame(&preamble, first, rest, gcm, out),
        }
    }
}

fn crc_frame(p: &Preamble, first: &[u8], rest: [Segment<'_>; 3], out: &mut SendBatch) {
    out.tail.reserve(256);
    out.copy(&p.encode());
    if !first.is_empty() {
        out.copy(first);
        out.copy(&crc(CRC_START, first).to_le_bytes());
    }
    if p.segments > 1 {
        let mut epilogue = [0; EPILOGUE_LEN];
        epilogue[0] = LATE_COMPLETE;
        for (i, segment) in rest.iter().enumerate().take(p.segments - 1) {
            epilogue[1 + i * 4..5 + i * 4].copy_from_slice(&segment.crc().to_le_bytes());
            segment.pieces.iter().for_each(|bytes| out.share(bytes));
        }
        out.copy(&epilogue);
    }
}

fn secure_frame(
    p: &Preamble,
    first: &[u8],
    rest: [Segment<'_>; 3],
    gcm: &mut GcmStream,
    out: &mut SendBatch,
) {
    let (inline, more) = first.split_at(first.len().min(INLINE_LEN));
    let mut head = [0; PREAMBLE_LEN + INLINE_LEN];
    head[..PREAMBLE_LEN].copy_from_slice(&p.encode());
    head[PREAMBLE_LEN..PREAMBLE_LEN + inline.len()].copy_from_slice(inline);
    let tag = gcm.seal(&mut head);
    out.copy(&head);
    out.copy(&tag);
    if !more.is_empty() {
        let mut record = more.to_vec();
        record.resize(padded(more.len()), 0);
        let tag = gcm.seal(&mut record);
        out.copy(&record);
        out.copy(&tag);
    }
    if p.segments > 1 {
        let len: usize = p.lens[1..].iter().map(|len| padded(*len as usize)).sum();
        let mut record = BytesMut::with_capacity(len + 16 + TAG_LEN);
        for segment in &rest[..p.segments - 1] {
            segment.pieces.iter().for_each(|bytes| record.put_slice(bytes));
            record.resize(padded(record.len()), 0);
        }
        record.put_u8(LATE_COMPLETE);
        record.resize(len + 16, 0);
        let tag = gcm.seal(&mut record);
        record.put_slice(&tag);
        out.share(&record.freeze());
    }
}
