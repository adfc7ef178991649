//! Parts of class `fifo`.
//!
//! ```text
//! 0        512
//! | header |  magic pre_size header_size data_size index reserved | mtime | data | magic ...
//! ```
//!
//! The five numbers are u64, `reserved` a u32; the time is in an envelope. `magic` is the part's
//! own, random one.

use bytes::{Buf, Bytes, BytesMut};
use denc::{Denc, Writer};
use types::{Errno, UTime};

use super::{
    ENTRY_OVERHEAD, GetPartInfoOp, GetPartInfoReply, InitPartOp, ListPartOp, ListPartReply,
    PART_HEADER_LEN, PartHeader, PartListEntry, PushPartOp, TrimPartOp,
};
use crate::{ObjectContext, Output, argument, stored};

/// Bytes of the numbers before an entry.
pub(super) const PRE_HEADER_LEN: u64 = 5 * 8 + 4;
/// Entries of one listing.
const LIST_MAX: i32 = 512;
/// Bytes of entries read at once.
const READ_LEN: u64 = 128 << 10;

/// An entry's own header. Wire: rados::cls::fifo::entry_header v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
struct EntryHeader {
    mtime: UTime,
}

async fn load(ctx: &mut dyn ObjectContext) -> Result<PartHeader, Errno> {
    stored(&ctx.read(0, PART_HEADER_LEN).await?)
}

async fn store(ctx: &mut dyn ObjectContext, header: &PartHeader) -> Result<(), Errno> {
    ctx.write(0, header.to_bytes()).await
}

pub(super) async fn init(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: InitPartOp = argument(input)?;
    match ctx.stat().await {
        Ok(stat) if stat.size > 0 => {
            let is_same = load(ctx).await?.params == op.params;
            return if is_same { Ok(()) } else { Err(Errno::EEXIST) };
        }
        Ok(_) | Err(Errno::ENOENT) => {}
        Err(e) => return Err(e),
    }
    let mut magic = [0; 8];
    ctx.fill_random(&mut magic);
    let header = PartHeader {
        params: op.params,
        magic: u64::from_le_bytes(magic),
        min_ofs: PART_HEADER_LEN,
        next_ofs: PART_HEADER_LEN,
        max_time: ctx.now(),
        ..PartHeader::default()
    };
    store(ctx, &header).await
}

/// Appends entries until the part is full; the result is how many.
pub(super) async fn push(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Output, Errno> {
    let op: PushPartOp = argument(input)?;
    let mut header = load(ctx).await?;
    let overhead = op.data_bufs.len() as u64 * ENTRY_OVERHEAD;
    if op.total_len.saturating_add(overhead) > header.params.max_part_size {
        return Err(Errno::EINVAL);
    }
    if header.is_full() {
        return Err(Errno::ERANGE);
    }
    if op.data_bufs.iter().map(|data| data.len() as u64).sum::<u64>() != op.total_len {
        return Err(Errno::EINVAL);
    }
    let mtime = ctx.now();
    let entry_header = EntryHeader { mtime }.to_bytes();
    let write_ofs = header.next_ofs;
    let mut w = Writer::new();
    let mut count = 0;
    for data in &op.data_bufs {
        if header.is_full() {
            break;
        }
        w.u64(header.magic);
        w.u64(PRE_HEADER_LEN);
        w.u64(entry_header.len() as u64);
        w.u64(data.len() as u64);
        w.u64(header.max_index);
        w.u32(0);
        w.raw(&entry_header);
        w.raw(data);
        header.last_ofs = header.next_ofs;
        let end = write_ofs.checked_add(w.len() as u64);
        header.next_ofs = end.ok_or(Errno::EIO)?;
        header.max_index = header.max_index.wrapping_add(1);
        count += 1;
    }
    if count == 0 {
        return Err(Errno::EFAULT);
    }
    header.max_time = mtime;
    ctx.write(write_ofs, w.into_bytes()).await?;
    store(ctx, &header).await?;
    Ok(Output { result: count, data: Bytes::new() })
}

/// Removes the entries up to one; a full part of which none is left goes altogether.
pub(super) async fn trim(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: TrimPartOp = argument(input)?;
    let mut header = load(ctx).await?;
    if op.ofs < header.min_ofs || op.exclusive && op.ofs == header.min_ofs {
        return Ok(());
    }
    if op.ofs >= header.next_ofs {
        if header.is_full() {
            return ctx.remove().await;
        }
        header.min_ofs = header.next_ofs;
        header.min_index = header.max_index;
    } else {
        let mut reader = Reader::new(&header, op.ofs);
        let found = reader.entry(ctx, op.exclusive).await?;
        let (min_ofs, min_index) = match op.exclusive {
            true => (op.ofs, found.index),
            false => (reader.ofs, found.index.wrapping_add(1)),
        };
        header.min_ofs = min_ofs;
        header.min_index = min_index;
    }
    store(ctx, &header).await
}

pub(super) async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ListPartOp = argument(input)?;
    let header = load(ctx).await?;
    let mut reader = Reader::new(&header, op.ofs);
    if op.ofs >= header.min_ofs && !reader.is_at_end() {
        reader.entry(ctx, false).await?;
    }
    let mut reply = ListPartReply::default();
    for _ in 0..op.max_entries.min(LIST_MAX) {
        if reader.is_at_end() {
            break;
        }
        reply.entries.push(reader.entry(ctx, false).await?.entry);
    }
    reply.more = !reader.is_at_end();
    reply.full_part = header.is_full();
    Ok(reply.to_bytes())
}

pub(super) async fn info(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let GetPartInfoOp {} = argument(input)?;
    Ok(GetPartInfoReply { header: load(ctx).await? }.to_bytes())
}

struct Found {
    index: u64,
    entry: PartListEntry,
}

/// Reads entries one after the other.
struct Reader<'a> {
    header: &'a PartHeader,
    /// Where the next entry is.
    ofs: u64,
    /// What was read from there on.
    buffer: BytesMut,
}

impl<'a> Reader<'a> {
    fn new(header: &'a PartHeader, ofs: u64) -> Reader<'a> {
        Reader { header, ofs: ofs.max(header.min_ofs), buffer: BytesMut::new() }
    }

    fn is_at_end(&self) -> bool {
        self.ofs >= self.header.next_ofs
    }

    /// The next `len` bytes; `ERANGE` where there are fewer.
    async fn take(&mut self, ctx: &mut dyn ObjectContext, len: u64) -> Result<Bytes, Errno> {
        if self.buffer.len() as u64 <= len {
            let left = self.header.next_ofs.saturating_sub(self.ofs);
            if len > left {
                return Err(Errno::ERANGE);
            }
            let have = self.buffer.len() as u64;
            let wanted = len.max(READ_LEN).min(left) - have;
            if wanted > 0 {
                self.buffer.extend_from_slice(&ctx.read(self.ofs + have, wanted).await?);
            }
        }
        if (self.buffer.len() as u64) < len {
            return Err(Errno::ERANGE);
        }
        self.ofs += len;
        Ok(self.buffer.split_to(len as usize).freeze())
    }

    /// The next entry, or what stands before it alone.
    async fn entry(
        &mut self,
        ctx: &mut dyn ObjectContext,
        numbers_only: bool,
    ) -> Result<Found, Errno> {
        let ofs = self.ofs;
        let mut numbers = self.take(ctx, PRE_HEADER_LEN).await?;
        if numbers.get_u64_le() != self.header.magic {
            return Err(Errno::ERANGE);
        }
        let (pre_len, header_len) = (numbers.get_u64_le(), numbers.get_u64_le());
        let (data_len, index) = (numbers.get_u64_le(), numbers.get_u64_le());
        let mut entry = PartListEntry { ofs, ..PartListEntry::default() };
        if !numbers_only {
            let more = pre_len.checked_sub(PRE_HEADER_LEN).ok_or(Errno::EIO)?;
            self.take(ctx, more).await?;
            let header: EntryHeader = stored(&self.take(ctx, header_len).await?)?;
            entry.mtime = header.mtime;
            entry.data = self.take(ctx, data_len).await?;
        }
        Ok(Found { index, entry })
    }
}
