//! Reading data: from what is on its way, from the device with its checksums verified, from
//! patches. What is read is settled when the read is called; blocks freed meanwhile are kept until
//! it is done.

use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use device::BlockDevice;
use env::LocalFuture;
use futures_util::future::join_all;
use smallvec::{SmallVec, smallvec};
use types::bufferlist::BufferList;
use types::hobject::GhObject;
use types::page_sums::PageSums;

use super::cache::KEPT_READ_MAX;
use super::format::{BLOCK_LEN, data_crcs};
use super::onode::{BlockPtr, CHUNK_BLOCKS, Onode, PatchSource};
use super::{Core, Inner, ready};
use crate::{CollId, StoreError};

/// Where a piece of a read comes from.
#[derive(Debug)]
pub(super) enum Source {
    Bytes(Bytes),
    Zeros(usize),
    /// A part of a block that is kept.
    Kept {
        ptr: BlockPtr,
        block: Bytes,
        skip: usize,
        len: usize,
    },
    /// Bytes of blocks that lie one behind the other on the device.
    Device {
        ptrs: SmallVec<[BlockPtr; 2]>,
        skip: usize,
        len: usize,
    },
}

/// What a read consists of, in order; mostly of one piece.
pub(super) type Sources = SmallVec<[Source; 1]>;

/// A read that has begun: keeps the blocks it needs from being reused.
pub(super) struct ReadGuard {
    core: Rc<Inner>,
    id: u64,
}

impl Drop for ReadGuard {
    fn drop(&mut self) {
        self.core.core.borrow_mut().end_read(self.id);
        self.core.notify_discards();
    }
}

impl ReadGuard {
    pub(super) fn begin(inner: &Rc<Inner>) -> ReadGuard {
        let id = inner.core.borrow_mut().begin_read();
        ReadGuard { core: inner.clone(), id }
    }
}

impl Core {
    /// What a range of an object consists of; with `cached` also from blocks that are kept.
    fn sources(&self, onode: &Onode, offset: u64, len: u64, cached: bool) -> Sources {
        let mut out = Sources::new();
        for (_, piece) in onode.pieces(offset, len) {
            let len = piece.len as usize;
            match piece.source {
                PatchSource::Bytes(bytes) => out.push(Source::Bytes(bytes)),
                PatchSource::Zeros => match out.last_mut() {
                    Some(Source::Zeros(zeros)) => *zeros += len,
                    _ => out.push(Source::Zeros(len)),
                },
                PatchSource::Block { ptr, skip } if cached => {
                    self.push_kept(&mut out, ptr, skip, len)
                }
                PatchSource::Block { ptr, skip } => self.push_block(&mut out, ptr, skip, len),
            }
        }
        out
    }

    fn push_kept(&self, out: &mut Sources, ptr: BlockPtr, skip: u32, len: usize) {
        match self.cache.borrow_mut().find(ptr) {
            Some(block) => {
                out.push(Source::Kept { ptr, block: block.clone(), skip: skip as usize, len })
            }
            None => self.push_block(out, ptr, skip, len),
        }
    }

    pub(super) fn push_block(&self, out: &mut Sources, ptr: BlockPtr, skip: u32, len: usize) {
        if let Some((&first, bytes)) = self.inflight.range(..=ptr.block).next_back() {
            let at = (ptr.block - first) as usize * BLOCK_LEN as usize;
            if at < bytes.len() {
                let at = at + skip as usize;
                out.push(Source::Bytes(bytes.slice(at..at + len)));
                return;
            }
        }
        if let Some(Source::Device { ptrs, skip: before, len: had }) = out.last_mut()
            && skip == 0
            && (*before + *had).is_multiple_of(BLOCK_LEN as usize)
            && ptrs.last().is_some_and(|last| last.block + 1 == ptr.block)
        {
            ptrs.push(ptr);
            *had += len;
            return;
        }
        out.push(Source::Device { ptrs: smallvec![ptr], skip: skip as usize, len });
    }
}

/// Reads adjacent blocks and verifies each.
pub(super) async fn read_blocks(
    device: &BlockDevice,
    ptrs: &[BlockPtr],
) -> Result<Bytes, StoreError> {
    let Some(first) = ptrs.first() else { return Ok(Bytes::new()) };
    let offset = u64::from(first.block) * BLOCK_LEN;
    let data = device.read(offset, ptrs.len() * BLOCK_LEN as usize).await?;
    for (ptr, crc) in ptrs.iter().zip(data_crcs(&data)) {
        if crc != ptr.crc && !env::mutant("no-checksum") {
            return Err(StoreError::Checksum { device_offset: u64::from(ptr.block) * BLOCK_LEN });
        }
    }
    Ok(data.freeze())
}

/// A part of blocks, with their checksums for who sends it on.
fn part_of(blocks: &Bytes, ptrs: &[BlockPtr], skip: usize, len: usize) -> BufferList {
    let sums = PageSums::of(blocks.clone(), ptrs.iter().map(|ptr| ptr.crc));
    BufferList::from(blocks.slice(skip..skip + len)).with_sums(sums)
}

fn zeros(len: usize) -> Bytes {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    if len <= ZEROS.len() { Bytes::from_static(&ZEROS[..len]) } else { vec![0; len].into() }
}

impl Inner {
    /// Reads the sources and joins them; with `keep` what comes from the device stays in the cache.
    /// Needs a [`ReadGuard`] for as long as it takes.
    pub(super) async fn gather(
        &self,
        mut sources: Sources,
        keep: bool,
    ) -> Result<BufferList, StoreError> {
        if sources.len() == 1
            && let Some(only) = sources.pop()
        {
            return self.piece(only, keep).await;
        }
        let pieces = join_all(sources.into_iter().map(|source| self.piece(source, keep)));
        let mut out = BufferList::new();
        for piece in pieces.await {
            out.append(&piece?);
        }
        Ok(out)
    }

    async fn piece(&self, source: Source, keep: bool) -> Result<BufferList, StoreError> {
        Ok(match source {
            Source::Bytes(bytes) => bytes.into(),
            Source::Zeros(len) => zeros(len).into(),
            Source::Kept { ptr, block, skip, len } => part_of(&block, &[ptr], skip, len),
            Source::Device { ptrs, skip, len } => {
                let data = read_blocks(&self.device, &ptrs).await?;
                if keep {
                    self.keep(&ptrs, &data);
                }
                part_of(&data, &ptrs, skip, len)
            }
        })
    }

    /// Blocks of a longer read are copied: a slice would keep all of it in memory.
    fn keep(&self, ptrs: &[BlockPtr], data: &Bytes) {
        let core = self.core.borrow();
        let mut cache = core.cache.borrow_mut();
        for (&ptr, block) in ptrs.iter().zip(data.chunks_exact(BLOCK_LEN as usize)) {
            let alone = ptrs.len() == 1;
            cache.keep(ptr, if alone { data.clone() } else { Bytes::copy_from_slice(block) });
        }
    }

    /// With `cached` from blocks that are kept, too, and what is read is kept.
    pub(super) fn read(
        self: &Rc<Inner>,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
        cached: bool,
    ) -> LocalFuture<Result<BufferList, StoreError>> {
        let (sources, keep, ahead) = {
            let core = self.core.borrow();
            let sources = core.readable().and_then(|()| {
                let onode = core.state.find(cid, oid)?;
                let left = onode.size.saturating_sub(offset);
                let len = if len == 0 { left } else { len.min(left) };
                let keep = cached && len <= KEPT_READ_MAX;
                let ahead = match cached {
                    true => {
                        let mut cache = core.cache.borrow_mut();
                        cache.ahead_of(onode.uid, offset..offset + len, onode.size)
                    }
                    false => None,
                };
                let ahead = ahead.map(|r| core.sources(onode, r.start, r.end - r.start, true));
                Ok((core.sources(onode, offset, len, cached), keep, ahead))
            });
            match sources {
                Ok(sources) => sources,
                Err(e) => return ready(Err(e)),
            }
        };
        if let Some(sources) = ahead {
            self.fetch(sources);
        }
        let guard = ReadGuard::begin(self);
        let inner = self.clone();
        Box::pin(async move {
            let data = inner.gather(sources, keep).await;
            drop(guard);
            data
        })
    }

    /// Reads blocks into the cache for a read that will come.
    fn fetch(self: &Rc<Inner>, sources: Sources) {
        let (inner, guard) = (self.clone(), ReadGuard::begin(self));
        self.env.go(async move {
            // Who wants what cannot be read will be told by a read of its own.
            let _ = inner.gather(sources, true).await;
            drop(guard);
        });
    }
}

/// Ranges that hold data.
pub(super) fn extents(onode: &Onode, offset: u64, len: u64) -> Vec<Range<u64>> {
    let end = offset.saturating_add(len).min(onode.size);
    let mut found: Vec<Range<u64>> = Vec::new();
    if offset >= end {
        return found;
    }
    let first = (offset / BLOCK_LEN / CHUNK_BLOCKS) as u32;
    for (number, chunk) in onode.chunks().from(first) {
        let base = u64::from(number) * CHUNK_BLOCKS;
        if base * BLOCK_LEN >= end {
            break;
        }
        let blocks = (base..).zip(chunk.iter()).filter(|(_, ptr)| !ptr.is_hole());
        found.extend(blocks.map(|(block, _)| block * BLOCK_LEN..(block + 1) * BLOCK_LEN));
    }
    let from = offset / BLOCK_LEN * BLOCK_LEN;
    let data = onode.patches().range(from..end).filter(|(_, p)| p.source != PatchSource::Zeros);
    found.extend(data.map(|(&at, p)| at..at + u64::from(p.len)));
    found.sort_by_key(|r| r.start);
    let mut out: Vec<Range<u64>> = Vec::new();
    for range in found {
        let range = range.start.max(offset)..range.end.min(end);
        if range.is_empty() {
            continue;
        }
        match out.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}
