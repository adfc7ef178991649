//! The ring of class `queue` (`src/cls/queue/cls_queue_src.cc` at v16.2).
//!
//! ```text
//! 0              max_head_size                                   queue_size
//! | 0xDEAD len head |  ... 0xBEEF len data | 0xBEEF len data | ...  |
//! ```
//!
//! `len` is a u64. Entries follow each other without gaps; one that meets the end goes on at
//! `max_head_size`, be it in its `len`. A place is an offset and a generation, which counts how
//! often the ring has come round: a full ring and an empty one differ in nothing else.

use bstr::BString;
use bytes::{Buf, Bytes, BytesMut};
use denc::{Denc, Writer};
use types::Errno;

use super::{Entry, InitOp, ListOp, ListRet};
use crate::ObjectContext;

const HEAD_MAGIC: u16 = 0xDEAD;
const ENTRY_MAGIC: u16 = 0xBEEF;
/// What stands before an entry's data, and before the head: a magic number and a length.
pub(crate) const OVERHEAD_LEN: u64 = 2 + 8;
/// The head's size without the user's own data.
const HEAD_LEN: u64 = 1024;
/// Bytes of entries read at once.
const READ_LEN: u64 = 64 << 10;

/// A place in the ring. Wire: cls_queue_marker v1; in arguments and replies the text
/// `GENERATION/OFFSET`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Marker {
    /// How often the ring had come round.
    pub generation: u64,
    /// Where in the object.
    pub offset: u64,
}

impl Marker {
    /// As text.
    pub fn text(self) -> BString {
        format!("{}/{}", self.generation, self.offset).into()
    }

    /// Of text; what is none of ours counts as far as it is one, as C's `strtoull` has it.
    pub fn parse(text: &[u8]) -> Marker {
        let number = |text: &[u8]| {
            let len = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let value =
                core::str::from_utf8(&text[..len]).ok().and_then(|digits| digits.parse().ok());
            (value, len)
        };
        let (Some(generation), len) = number(text) else { return Marker::default() };
        match text.get(len) {
            Some(b'/') => {
                let offset = number(&text[len + 1..]).0.unwrap_or_default();
                Marker { generation, offset }
            }
            _ => Marker { generation, offset: 0 },
        }
    }
}

/// What the object begins with. Wire: cls_queue_head v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Head {
    /// Where entries begin.
    pub max_head_size: u64,
    /// The oldest entry.
    pub front: Marker,
    /// Where the next entry goes.
    pub tail: Marker,
    /// Where the ring ends, which is the room for entries with `max_head_size` added to it.
    pub queue_size: u64,
    /// Bytes `urgent_data` may have.
    pub max_urgent_data_size: u64,
    /// Data of whoever uses the queue.
    pub urgent_data: Bytes,
}

impl Head {
    /// Reads the head; an object that has none is `EINVAL`.
    pub async fn load(ctx: &mut dyn ObjectContext) -> Result<Head, Errno> {
        let start = ctx.read(0, HEAD_LEN).await?;
        let mut fields = &start[..];
        if fields.remaining() < OVERHEAD_LEN as usize || fields.get_u16_le() != HEAD_MAGIC {
            return Err(Errno::EINVAL);
        }
        let len = fields.get_u64_le();
        let mut bytes = BytesMut::from(fields);
        if let Some(rest @ 1..) = len.checked_sub(HEAD_LEN - OVERHEAD_LEN) {
            bytes.extend_from_slice(&ctx.read(HEAD_LEN, rest).await?);
        }
        let head = Head::from_bytes(&bytes.freeze()).map_err(|_| Errno::EINVAL)?;
        // Everything below computes with these.
        if head.used().is_none() { Err(Errno::EIO) } else { Ok(head) }
    }

    /// Writes the head; one for which there is no room is `EINVAL`.
    pub async fn store(&self, ctx: &mut dyn ObjectContext) -> Result<(), Errno> {
        let bytes = framed(HEAD_MAGIC, &self.to_bytes());
        if bytes.len() as u64 > self.max_head_size {
            return Err(Errno::EINVAL);
        }
        ctx.write(0, bytes).await
    }

    /// Bytes that entries may have.
    pub fn capacity(&self) -> u64 {
        self.queue_size.saturating_sub(self.max_head_size)
    }

    /// Bytes of the ring before a place since its first generation.
    fn distance(&self, place: Marker) -> Option<u128> {
        let inside = place.offset.checked_sub(self.max_head_size)?;
        let whole = u128::from(place.generation) * u128::from(self.capacity());
        (inside <= self.capacity()).then(|| whole + u128::from(inside))
    }

    /// Bytes between two places; `None` where the first is behind the second, or one not in the
    /// ring.
    fn between(&self, from: Marker, to: Marker) -> Option<u64> {
        let len = self.distance(to)?.checked_sub(self.distance(from)?)?;
        u64::try_from(len).ok().filter(|len| *len <= self.capacity())
    }

    /// Bytes of all entries; `None` of a head that makes no sense.
    fn used(&self) -> Option<u64> {
        self.queue_size.checked_sub(self.max_head_size)?;
        self.between(self.front, self.tail)
    }

    /// Bytes that are free.
    pub(crate) fn free(&self) -> u64 {
        self.capacity() - self.used().unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.front == self.tail
    }

    /// The place `len` bytes behind another, at most once round.
    fn behind(&self, place: Marker, len: u64) -> Marker {
        let room = self.queue_size.saturating_sub(place.offset);
        if len < room {
            return Marker { offset: place.offset + len, ..place };
        }
        let generation = place.generation.saturating_add(1);
        Marker { generation, offset: self.max_head_size.saturating_add(len - room) }
    }

    /// The ranges of the object that `len` bytes from a place on are in; the second is often empty.
    fn ranges(&self, place: Marker, len: u64) -> [(u64, u64); 2] {
        let first = len.min(self.queue_size.saturating_sub(place.offset));
        [(place.offset, first), (self.max_head_size, len - first)]
    }
}

fn framed(magic: u16, data: &Bytes) -> Bytes {
    let mut w = Writer::new();
    w.u16(magic);
    w.u64(data.len() as u64);
    w.raw(data);
    w.into_bytes()
}

/// Makes the ring; an object that has one is `EEXIST`.
pub(crate) async fn init(ctx: &mut dyn ObjectContext, op: InitOp) -> Result<(), Errno> {
    match Head::load(ctx).await {
        Ok(_) => return Err(Errno::EEXIST),
        Err(Errno::EINVAL) => {}
        Err(e) => return Err(e),
    }
    let max_head_size = HEAD_LEN.checked_add(op.max_urgent_data_size).ok_or(Errno::EINVAL)?;
    let start = Marker { generation: 0, offset: max_head_size };
    let head = Head {
        max_head_size,
        front: start,
        tail: start,
        queue_size: op.queue_size.checked_add(max_head_size).ok_or(Errno::EINVAL)?,
        max_urgent_data_size: op.max_urgent_data_size,
        urgent_data: op.urgent_data,
    };
    head.store(ctx).await
}

/// Appends entries; the caller stores the head. No room for one of them is `ENOSPC`, as a full
/// ring is for none.
pub(crate) async fn enqueue(
    ctx: &mut dyn ObjectContext,
    head: &mut Head,
    entries: &[Bytes],
) -> Result<(), Errno> {
    if head.free() == 0 {
        return Err(Errno::ENOSPC);
    }
    for data in entries {
        let mut bytes = framed(ENTRY_MAGIC, data);
        let len = bytes.len() as u64;
        // Looked at for each: in Ceph one that fills the ring lets the next be written over the oldest.
        if len > head.free() {
            return Err(Errno::ENOSPC);
        }
        for (offset, len) in head.ranges(head.tail, len) {
            if len > 0 {
                ctx.write(offset, bytes.split_to(len as usize)).await?;
            }
        }
        head.tail = head.behind(head.tail, len);
    }
    Ok(())
}

/// Entries from a place on. What is no entry there is `EINVAL`; one that goes on behind the tail
/// ends the listing.
pub(crate) async fn list(
    ctx: &mut dyn ObjectContext,
    head: &Head,
    op: &ListOp,
) -> Result<ListRet, Errno> {
    let mut ret = ListRet::default();
    let mut reader = Reader::new(head, Marker::parse(&op.start_marker))?;
    let mut next = head.tail;
    while !reader.is_at_end() {
        if ret.entries.len() as u64 >= op.max {
            next = reader.place;
            break;
        }
        let marker = reader.place.text();
        let Some(data) = reader.entry(ctx).await? else { break };
        ret.entries.push(Entry { data, marker });
    }
    ret.is_truncated = next != head.tail;
    ret.next_marker = next.text();
    Ok(ret)
}

/// Removes the entries before a place; the caller stores the head. A place that is not among the
/// entries is `EINVAL`: Ceph takes one behind the tail, and what is queued then is lost.
pub(crate) async fn remove(
    ctx: &mut dyn ObjectContext,
    head: &mut Head,
    end_marker: &BString,
) -> Result<(), Errno> {
    if head.is_empty() {
        return Ok(());
    }
    let end = Marker::parse(end_marker);
    let len = head.between(head.front, end).ok_or(Errno::EINVAL)?;
    head.between(end, head.tail).ok_or(Errno::EINVAL)?;
    for (offset, len) in head.ranges(head.front, len) {
        if len > 0 {
            ctx.zero(offset, len).await?;
        }
    }
    head.front = head.behind(head.front, len);
    Ok(())
}

/// Reads entries one after the other.
struct Reader<'a> {
    head: &'a Head,
    /// Where the next entry begins.
    place: Marker,
    /// What was read from there on.
    buffer: BytesMut,
    /// Where to read on, and how much there is.
    unread: Marker,
    unread_len: u64,
}

impl<'a> Reader<'a> {
    /// From a place on; offset 0 stands for the oldest entry.
    fn new(head: &'a Head, place: Marker) -> Result<Reader<'a>, Errno> {
        let place = if place.offset == 0 { head.front } else { place };
        let unread_len = if head.is_empty() { 0 } else { Reader::len_from(head, place)? };
        Ok(Reader { head, place, buffer: BytesMut::new(), unread: place, unread_len })
    }

    /// Bytes from a place to the tail. Ceph goes by the offset alone here.
    fn len_from(head: &Head, place: Marker) -> Result<u64, Errno> {
        let (front, tail, offset) = (head.front.offset, head.tail.offset, place.offset);
        let len = if tail > front || offset <= tail && offset < front {
            tail.checked_sub(offset)
        } else if offset >= front {
            head.queue_size.checked_sub(offset).map(|len| len + (tail - head.max_head_size))
        } else {
            Some(0)
        };
        len.ok_or(Errno::EINVAL)
    }

    fn is_at_end(&self) -> bool {
        self.unread_len == 0 && self.buffer.is_empty()
    }

    /// Reads until `len` bytes are there; whether there are as many.
    async fn fill(&mut self, ctx: &mut dyn ObjectContext, len: u64) -> Result<bool, Errno> {
        let missing = len.saturating_sub(self.buffer.len() as u64);
        if missing > self.unread_len {
            return Ok(false);
        }
        if missing == 0 {
            return Ok(true);
        }
        let read_len = missing.max(READ_LEN).min(self.unread_len);
        for (offset, len) in self.head.ranges(self.unread, read_len) {
            if len == 0 {
                continue;
            }
            let bytes = ctx.read(offset, len).await?;
            if bytes.len() as u64 != len {
                return Err(Errno::EIO);
            }
            self.buffer.extend_from_slice(&bytes);
        }
        self.unread = self.head.behind(self.unread, read_len);
        self.unread_len -= read_len;
        Ok(true)
    }

    /// The next entry; `None` where it is not whole.
    async fn entry(&mut self, ctx: &mut dyn ObjectContext) -> Result<Option<Bytes>, Errno> {
        if !self.fill(ctx, OVERHEAD_LEN).await? {
            return Ok(None);
        }
        let mut fields = &self.buffer[..];
        if fields.get_u16_le() != ENTRY_MAGIC {
            return Err(Errno::EINVAL);
        }
        let Some(len) = fields.get_u64_le().checked_add(OVERHEAD_LEN) else { return Ok(None) };
        if !self.fill(ctx, len).await? {
            return Ok(None);
        }
        let mut entry = self.buffer.split_to(len as usize);
        entry.advance(OVERHEAD_LEN as usize);
        self.place = self.head.behind(self.place, len);
        Ok(Some(entry.freeze()))
    }
}
