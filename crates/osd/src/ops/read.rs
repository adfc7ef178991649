//! Ops that read data: read, sparse-read, mapext, stat, cmpext, checksum.

use bytes::Bytes;
use denc::Writer;
use types::bufferlist::BufferList;
use types::osd::ops::{ChecksumArgs, ExtentArgs};
use types::{Errno, crc};

use super::op_context::{OpContext, Step, Stop};
use super::xxhash::{xxh32, xxh64};

/// Results of cmpext count down from here: -4095 - offset of the first byte that differs.
const MAX_ERRNO: i32 = 4095;

/// Checksums of small chunks that are computed before others get a turn: a few milliseconds.
const CHECKSUMS_AT_ONCE: u64 = 1 << 17;
/// Kinds of checksums in [`ChecksumArgs`].
const XXHASH32: u8 = 0;
const XXHASH64: u8 = 1;
const CRC32C: u8 = 2;

impl OpContext {
    /// The part of a read that lies in the object, and in the part of it that a truncation which
    /// has not arrived yet leaves. `None` when nothing does.
    fn readable(&self, extent: &ExtentArgs) -> Option<(u64, u64)> {
        let oi = &self.obs.oi;
        let mut size = oi.size;
        if oi.truncate_seq < u64::from(extent.truncate_seq)
            && extent.offset.saturating_add(extent.length) > extent.truncate_size
            && size > extent.truncate_size
        {
            size = extent.truncate_size;
        }
        let len = if extent.length == 0 { size } else { extent.length };
        let len = len.min(size.checked_sub(extent.offset).filter(|&left| left > 0)?);
        Some((extent.offset, len))
    }

    /// Reads as `CEPH_OSD_OP_READ` does.
    /// Data that cannot be read, or is not what the object info says, is fetched from another
    /// copy (`rep_repair_primary_object`): then the op is blocked, and tried again after that.
    pub(super) async fn read_extent(&mut self, extent: &ExtentArgs) -> Result<BufferList, Stop> {
        self.num_read += 1;
        let Some((offset, len)) = self.readable(extent) else {
            self.count_read(0);
            return Ok(BufferList::new());
        };
        let data = if len == 0 { BufferList::new() } else { self.read_data(offset, len).await? };
        if offset == 0 {
            self.check_digest(&data)?;
        }
        self.count_read(data.len());
        Ok(data)
    }

    /// Compares what was read from the object's begin on with the digest that is known of the
    /// object, if it is all of it.
    fn check_digest(&self, data: &BufferList) -> Result<(), Stop> {
        let oi = &self.obs.oi;
        if data.len() as u64 != oi.size || !oi.is_data_digest() {
            return Ok(());
        }
        let found = data.crc32c(u32::MAX);
        if found == oi.data_digest {
            return Ok(());
        }
        {
            let stored = self.obc.obs.borrow();
            if !stored.oi.is_data_digest() || stored.oi.data_digest != oi.data_digest {
                // This very vector wrote it, and the store has what was before: nothing is damaged.
                return Err(Errno::EIO.into());
            }
        }
        tracing::error!(
            "{} full-object read crc {found:#x} != expected {:#x} on {}",
            self.pg.pgid(),
            oi.data_digest,
            oi.soid
        );
        Err(self.unreadable())
    }

    /// Reads data as the pool's kind keeps it.
    pub(super) async fn read_data(&self, offset: u64, len: u64) -> Result<BufferList, Stop> {
        if let Some(read) = self.pg.read_shards(&self.goid.hobj, offset, len) {
            return Ok(BufferList::from(read.await?));
        }
        match self.pg.store().read(&self.coll, &self.goid, offset, len).await {
            Ok(data) => Ok(data),
            Err(e) if e.errno() == Errno::EIO.0 => Err(self.unreadable()),
            Err(e) => Err(e.into()),
        }
    }

    fn unreadable(&self) -> Stop {
        if self.pool.is_erasure() {
            // All shards have been tried.
            return Errno::EIO.into();
        }
        // The clone, where one is copied from.
        let stored = self.obc.obs.borrow();
        let oi = &stored.oi;
        match self.pg.on_unreadable(&oi.soid, oi.version) {
            true => Stop::Blocked(oi.soid.clone()),
            false => Errno::EIO.into(),
        }
    }

    pub(super) async fn op_read(&mut self, extent: &ExtentArgs, out: &mut BufferList) -> Step {
        *out = self.read_extent(extent).await?;
        Ok(0)
    }

    pub(super) async fn op_sparse_read(
        &mut self,
        extent: &ExtentArgs,
        out: &mut BufferList,
    ) -> Step {
        if extent.truncate_seq != 0 {
            return Err(Errno::EINVAL.into());
        }
        self.num_read += 1;
        self.need_stored()?;
        let store = self.pg.store().clone();
        let offset = extent.offset;
        let len = extent.length.min(self.obs.oi.size.saturating_sub(offset));
        let extents = match len {
            0 => Vec::new(),
            // Shards have holes of their own: all counts as data.
            _ if self.pool.is_erasure() => std::iter::once(offset..offset + len).collect(),
            _ => store.extents(&self.coll, &self.goid, offset, len).await?,
        };
        let mut w = Writer::new();
        w.count(extents.len());
        let mut data = BufferList::new();
        for range in &extents {
            let part = self.read_data(range.start, range.end - range.start).await?;
            w.u64(range.start);
            w.u64(part.len() as u64);
            data.append(&part);
        }
        // Without holes, as in Ceph: all bytes were read.
        if offset == 0 {
            self.check_digest(&data)?;
        }
        w.count(data.len());
        self.count_read(data.len());
        out.push(w.into_bytes());
        out.append(&data);
        Ok(0)
    }

    /// `ENOENT` unless there was an object before this vector, which only a vector that may write
    /// goes on without: extents are asked of the store, where shards are not.
    fn need_stored(&self) -> Result<(), Errno> {
        let is_stored = self.pool.is_erasure() || self.obc.obs.borrow().exists;
        if is_stored { Ok(()) } else { Err(Errno::ENOENT) }
    }

    pub(super) async fn op_mapext(&mut self, extent: &ExtentArgs, out: &mut BufferList) -> Step {
        self.num_read += 1;
        if self.pool.is_erasure() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.need_stored()?;
        let store = self.pg.store().clone();
        let left = self.obs.oi.size.saturating_sub(extent.offset);
        let len = if extent.length == 0 { left } else { extent.length.min(left) };
        let extents = match len {
            0 => Vec::new(),
            _ => store.extents(&self.coll, &self.goid, extent.offset, len).await?,
        };
        let mut w = Writer::new();
        w.count(extents.len());
        for range in extents {
            w.u64(range.start);
            w.u64(range.end - range.start);
        }
        self.count_read(w.len());
        out.push(w.into_bytes());
        Ok(0)
    }

    pub(super) fn op_stat(&mut self, out: &mut BufferList) -> Step {
        self.stats.num_rd += 1;
        self.need_visible()?;
        let mut w = Writer::with_capacity(16);
        w.u64(self.obs.oi.size);
        w.put(&self.obs.oi.mtime);
        out.push(w.into_bytes());
        Ok(0)
    }

    pub(super) async fn op_cmpext(&mut self, extent: &ExtentArgs, expected: &Bytes) -> Step {
        self.num_read += 1;
        let oi = &self.obs.oi;
        let mut size = oi.size;
        if oi.truncate_seq < u64::from(extent.truncate_seq)
            && extent.offset.saturating_add(extent.length) > extent.truncate_size
        {
            size = extent.truncate_size;
        }
        let length = extent.length.min(size.saturating_sub(extent.offset));
        let found = if length == 0 || !self.obc.obs.borrow().is_visible() {
            Bytes::new()
        } else {
            self.read_extent(&ExtentArgs { length, ..*extent }).await?.to_contiguous()
        };
        // What lies past the end counts as zeros.
        let differs = |(i, &byte): (usize, &u8)| byte != found.get(i).copied().unwrap_or(0);
        match expected.iter().enumerate().position(differs) {
            None => Ok(0),
            Some(at) => {
                let at = i32::try_from(at).unwrap_or(i32::MAX - MAX_ERRNO);
                Err(Errno(MAX_ERRNO + at).into())
            }
        }
    }

    pub(super) async fn op_checksum(
        &mut self,
        args: &ChecksumArgs,
        input: &Bytes,
        out: &mut BufferList,
    ) -> Step {
        self.num_read += 1;
        let chunk_size = u64::from(args.chunk_size);
        if chunk_size > 0 && (args.length == 0 || !args.length.is_multiple_of(chunk_size)) {
            return Err(Errno::EINVAL.into());
        }
        let size = self.obs.oi.size;
        let mut length = args.length;
        if args.offset == 0 && length == 0 {
            length = size;
        } else if args.offset >= size {
            return Ok(0);
        } else if args.offset.saturating_add(length) > size {
            length = size - args.offset;
            if chunk_size > 0 && !length.is_multiple_of(chunk_size) {
                return Err(Errno::EINVAL.into());
            }
        }
        let sum_len = match args.kind {
            XXHASH32 | CRC32C => 4,
            XXHASH64 => 8,
            _ => return Err(Errno::EINVAL.into()),
        };
        let mut init = [0; 8];
        init[..sum_len].copy_from_slice(input.get(..sum_len).ok_or(Errno::EINVAL)?);
        let init = u64::from_le_bytes(init);
        let count = length.checked_div(chunk_size).unwrap_or(u64::from(length > 0));
        let answer = count.saturating_mul(sum_len as u64);
        if answer > self.limits.held {
            return Err(Errno::EFBIG.into());
        }
        let data = if length == 0 {
            Bytes::new()
        } else {
            let extent = ExtentArgs { offset: args.offset, length, ..ExtentArgs::default() };
            self.read_extent(&extent).await?.to_contiguous()
        };
        if data.len() as u64 != length {
            return Err(Errno::EINVAL.into());
        }
        let chunk_size = if chunk_size == 0 { length } else { chunk_size };
        let mut w = Writer::new();
        w.count(count as usize);
        if chunk_size > 0 {
            for (n, chunk) in (1..).zip(data.chunks_exact(chunk_size as usize)) {
                if u64::is_multiple_of(n, CHECKSUMS_AT_ONCE) {
                    env::yield_now().await;
                }
                match args.kind {
                    XXHASH32 => w.u32(xxh32(chunk, init as u32)),
                    XXHASH64 => w.u64(xxh64(chunk, init)),
                    _ => w.u32(crc::crc32c(init as u32, chunk)),
                }
            }
        }
        out.push(w.into_bytes());
        Ok(0)
    }
}
