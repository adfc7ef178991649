//! Files: one that is written grows at its end, one that is read does not change.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use bytes::Bytes;
use device::WriteCause;

use super::format::{BLOCK_LEN, Extent, Fnode, Op, Role, extents_len, join, pieces};
use super::frames::{self, ALIGN, FRAME_LEN_MAX, Frame, Scan, seed_of};
use super::{ALLOC_LEN, BlueFs, FsError, State, normal};

/// Bytes that a writer keeps before it writes them.
const BUFFER_LEN: usize = 512 << 10;
/// Most that a write-ahead log takes at once.
const LOG_PIECE_LEN_MAX: u64 = 1 << 20;

/// Where write-ahead logs may be, in order.
const LOG_ROLES: &[Role] = &[Role::Wal, Role::Db, Role::Main];
/// Where all else may be.
const ROLES: &[Role] = &[Role::Db, Role::Main];

/// Where a file's bytes are.
#[derive(Debug, Clone, Default)]
pub(super) struct Map {
    pub(super) extents: Vec<Extent>,
    /// Bytes that can be read.
    pub(super) size: u64,
    /// Bytes of the extents that are written.
    end: u64,
}

/// A file, for those that have it open.
#[derive(Debug)]
pub(super) struct File {
    ino: u64,
    framed: bool,
    map: RwLock<Map>,
}

impl File {
    pub(super) fn map(&self) -> RwLockReadGuard<'_, Map> {
        self.map.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_map<T>(&self, change: impl FnOnce(&mut Map) -> T) -> T {
        change(&mut self.map.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl BlueFs {
    /// A file as the log has it; a write-ahead log is read to find its end.
    pub(super) fn loaded(&self, fnode: &Fnode) -> Result<File, FsError> {
        let extents = fnode.extents.clone();
        let (size, end) = match fnode.framed {
            false => (fnode.size, fnode.size),
            true => {
                let found = self.scan(&extents, fnode.ino, extents_len(&extents))?;
                if found.end < fnode.size {
                    return Err(FsError::Corrupt("a write-ahead log lacks what was durable"));
                }
                (found.size, found.end)
            }
        };
        Ok(File {
            ino: fnode.ino,
            framed: fnode.framed,
            map: RwLock::new(Map { extents, size, end }),
        })
    }

    fn scan(&self, extents: &[Extent], ino: u64, len: u64) -> Result<Scan, FsError> {
        let read = |range: std::ops::Range<u64>| {
            self.read_extents(extents, range.start, range.end - range.start)
        };
        frames::scan(&read, len, seed_of(self.seed, ino))
    }

    /// Makes an empty file, in place of what has the path, and opens it.
    pub(super) fn create(
        self: &Arc<BlueFs>,
        path: &[u8],
        framed: bool,
        cause: WriteCause,
    ) -> Result<Writer, FsError> {
        let path = normal(path);
        let parent = match path.iter().rposition(|b| *b == b'/') {
            Some(slash) => &path[..slash],
            None => b"",
        };
        if !self.is_dir(parent) {
            return Err(FsError::NotFound);
        }
        let mut state = self.state();
        let ino = state.names.next_ino;
        let fnode = Fnode { ino, framed, ..Fnode::default() };
        let file = Arc::new(File { ino, framed, map: RwLock::default() });
        self.change(&mut state, Op::File(fnode))?;
        self.change(&mut state, Op::Link(path, ino))?;
        state.files.insert(ino, file.clone());
        let written = match (framed, cause) {
            (true, _) => Some(&self.counts.files_written_wal),
            (_, WriteCause::DatabaseFlush | WriteCause::DatabaseCompaction) => {
                Some(&self.counts.files_written_sst)
            }
            _ => None,
        };
        if let Some(counter) = written {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Writer { fs: self.clone(), file, cause, inner: Mutex::default() })
    }

    /// Opens a file for reading what it has now.
    pub(super) fn open(self: &Arc<BlueFs>, path: &[u8]) -> Result<Reader, FsError> {
        let file = self.file(path)?;
        let mut reader = Reader { fs: self.clone(), file, frames: None };
        let map = reader.file.map().clone();
        if reader.file.framed {
            let whole = map.end.next_multiple_of(BLOCK_LEN);
            let found = self.scan(&map.extents, reader.file.ino, whole)?;
            if found.size < map.size {
                return Err(FsError::Corrupt("a write-ahead log was damaged"));
            }
            reader.frames = Some(found.frames);
        }
        Ok(reader)
    }

    /// Puts what a file is into the log's next record.
    fn note(&self, state: &mut State, file: &File, size: u64) -> Result<(), FsError> {
        // One that has been removed stays so.
        if !state.files.contains_key(&file.ino) {
            return Ok(());
        }
        let fnode =
            Fnode { ino: file.ino, framed: file.framed, size, extents: file.map().extents.clone() };
        self.change(state, Op::File(fnode))
    }
}

/// What a writer has in hand.
#[derive(Debug, Default)]
struct Inner {
    /// Appended, not written.
    buffer: Vec<u8>,
    /// What the last block that was written has; empty if it is full.
    tail: Vec<u8>,
    /// Bytes written.
    end: u64,
    /// Of them durable.
    synced: u64,
    /// Bytes appended.
    size: u64,
    /// Devices written since the last flush.
    dirty: BTreeSet<Role>,
    /// The size in the log.
    noted: u64,
    /// What went wrong: nothing can follow it.
    failed: Option<FsError>,
}

/// A file open for writing.
pub(super) struct Writer {
    fs: Arc<BlueFs>,
    file: Arc<File>,
    cause: WriteCause,
    inner: Mutex<Inner>,
}

impl Writer {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, inner: &mut Inner, result: Result<(), FsError>) -> Result<(), FsError> {
        if let Err(e) = &result {
            inner.failed.get_or_insert_with(|| e.clone());
        }
        result
    }

    /// Bytes appended so far.
    pub(super) fn size(&self) -> u64 {
        self.inner().size
    }

    /// Appends bytes; they may be lost until a sync.
    pub(super) fn append(&self, data: &[u8]) -> Result<(), FsError> {
        let mut inner = self.inner();
        if let Some(e) = &inner.failed {
            return Err(e.clone());
        }
        inner.size += data.len() as u64;
        inner.buffer.extend_from_slice(data);
        if inner.buffer.len() < BUFFER_LEN {
            return Ok(());
        }
        let result = self.write_out(&mut inner, false);
        self.keep(&mut inner, result)
    }

    /// Makes all that was appended durable.
    pub(super) fn sync(&self) -> Result<(), FsError> {
        let mut inner = self.inner();
        if let Some(e) = &inner.failed {
            return Err(e.clone());
        }
        let result = self.sync_inner(&mut inner);
        self.keep(&mut inner, result)
    }

    fn sync_inner(&self, inner: &mut Inner) -> Result<(), FsError> {
        self.write_out(inner, true)?;
        let dirty = std::mem::take(&mut inner.dirty);
        self.fs.sync_devices(&dirty)?;
        inner.synced = inner.end;
        if !self.file.framed && inner.noted != inner.end {
            let mut state = self.fs.state();
            self.fs.note(&mut state, &self.file, inner.end)?;
            self.fs.write_log(&mut state)?;
            inner.noted = inner.end;
        }
        Ok(())
    }

    /// Writes what is in the buffer: to the last byte, or whole blocks.
    fn write_out(&self, inner: &mut Inner, whole: bool) -> Result<(), FsError> {
        if inner.buffer.is_empty() {
            return Ok(());
        }
        let start = inner.end - inner.tail.len() as u64;
        let (mut out, taken) = match self.file.framed {
            true => self.framed(inner, start),
            false => {
                let all = inner.tail.len() + inner.buffer.len();
                let kept = if whole { 0 } else { all % BLOCK_LEN as usize };
                let taken = inner.buffer.len().saturating_sub(kept);
                if taken == 0 {
                    return Ok(());
                }
                let mut out = inner.tail.clone();
                out.extend_from_slice(&inner.buffer[..taken]);
                (out, taken)
            }
        };
        let len = out.len();
        let new_end = start + len as u64;
        out.resize(len.next_multiple_of(BLOCK_LEN as usize), 0);
        self.reserve(inner, start + out.len() as u64)?;
        let tail_at = len / BLOCK_LEN as usize * BLOCK_LEN as usize;
        let tail = out[tail_at..len].to_vec();
        if self.file.framed {
            let padding = out.len() as u64 - (new_end - inner.end);
            self.fs.counts.wal_padding.fetch_add(padding, Ordering::Relaxed);
        }
        let out = Bytes::from(out);
        let extents = self.file.map().extents.clone();
        let written = self.fs.write_extents(&extents, start, &out, self.cause)?;
        inner.dirty.extend(written);
        (inner.end, inner.tail) = (new_end, tail);
        inner.buffer.drain(..taken);
        self.file.change_map(|map| {
            map.size += taken as u64;
            map.end = new_end;
        });
        Ok(())
    }

    /// The last block's bytes and the buffer in frames; how many of the buffer's are in them.
    fn framed(&self, inner: &Inner, start: u64) -> (Vec<u8>, usize) {
        let seed = seed_of(self.fs.seed, self.file.ino);
        let mut out = inner.tail.clone();
        for payload in inner.buffer.chunks(FRAME_LEN_MAX) {
            out.resize(out.len().next_multiple_of(ALIGN as usize), 0);
            let header = frames::header(seed, start + out.len() as u64, inner.synced, payload);
            out.extend_from_slice(&header);
            out.extend_from_slice(payload);
        }
        (out, inner.buffer.len())
    }

    /// Takes space so that the file has `len` bytes of it.
    fn reserve(&self, inner: &Inner, len: u64) -> Result<(), FsError> {
        let have = extents_len(&self.file.map().extents);
        if len <= have {
            return Ok(());
        }
        let (roles, least) = match self.file.framed {
            true => (LOG_ROLES, self.fs.log_piece_len()),
            false => (ROLES, 0),
        };
        let wanted = len - have;
        let more = (least > wanted).then(|| self.fs.lend(roles, least).ok()).flatten();
        let extents = match more {
            Some(extents) => extents,
            None => self.fs.lend_for_file(roles, wanted, self.cause)?,
        };
        self.file.change_map(|map| extents.iter().for_each(|e| join(&mut map.extents, *e)));
        if self.file.framed {
            // Frames are only ever where the log says that this file is: none that a crash left
            // can be taken for a later file's.
            let mut state = self.fs.state();
            self.fs.note(&mut state, &self.file, inner.synced)?;
            self.fs.write_log(&mut state)?;
        }
        Ok(())
    }
}

impl BlueFs {
    /// How much a write-ahead log takes at once.
    fn log_piece_len(&self) -> u64 {
        let len = self.first().device.len() / 256;
        len.clamp(ALLOC_LEN, LOG_PIECE_LEN_MAX) / ALLOC_LEN * ALLOC_LEN
    }
}

/// A file open for reading.
pub(super) struct Reader {
    fs: Arc<BlueFs>,
    file: Arc<File>,
    /// Of a write-ahead log.
    frames: Option<Vec<Frame>>,
}

impl Reader {
    /// Reads bytes; fewer only at the end of the file.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> Result<usize, FsError> {
        match &self.frames {
            Some(frames) => self.read_frames(frames, offset, out),
            None => {
                let size = self.file.map().size;
                let len = (out.len() as u64).min(size.saturating_sub(offset)) as usize;
                self.read_file(offset, &mut out[..len])?;
                Ok(len)
            }
        }
    }

    fn read_frames(&self, frames: &[Frame], offset: u64, out: &mut [u8]) -> Result<usize, FsError> {
        let end = offset.saturating_add(out.len() as u64);
        let first = frames.partition_point(|f| f.logical + f.len <= offset);
        let within = frames[first..].iter().take_while(|f| f.logical < end);
        let within: Vec<&Frame> = within.collect();
        let (Some(first), Some(last)) = (within.first(), within.last()) else { return Ok(0) };
        // One read for all of them.
        let start = first.at;
        let mut span = vec![0; (last.at + last.len - start) as usize];
        self.read_file(start, &mut span)?;
        let mut done = 0;
        for frame in &within {
            let (from, to) = (frame.logical.max(offset), (frame.logical + frame.len).min(end));
            let at = (frame.at - start + (from - frame.logical)) as usize;
            let len = (to - from) as usize;
            out[done..done + len].copy_from_slice(&span[at..at + len]);
            done += len;
        }
        Ok(done)
    }

    /// Fills `out` with the file's bytes as they lie.
    fn read_file(&self, offset: u64, out: &mut [u8]) -> Result<(), FsError> {
        if out.is_empty() {
            return Ok(());
        }
        let end = offset + out.len() as u64;
        let from = offset / BLOCK_LEN * BLOCK_LEN;
        let len = end.next_multiple_of(BLOCK_LEN) - from;
        let pieces = pieces(&self.file.map().extents, from, len);
        let pieces = pieces.ok_or(FsError::Corrupt("a file is longer than its extents"))?;
        let mut at = from;
        for piece in pieces {
            let place = self.fs.place(piece.role)?;
            let data = place.device.read(piece.offset, piece.len as usize)?;
            let (first, last) = (at.max(offset), (at + piece.len).min(end));
            out[(first - offset) as usize..(last - offset) as usize]
                .copy_from_slice(&data[(first - at) as usize..(last - at) as usize]);
            at += piece.len;
        }
        Ok(())
    }
}
