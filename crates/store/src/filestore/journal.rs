//! The write-ahead journal: a ring of entries in a file, a device or memory (tmpfs).
//!
//! ```text
//! blocks 0, 1  headers, the newer counts: "LOLIJRNL", u32 crc32c of what follows, u32 version 2,
//!              uuid[16], u64 length of the ring, u64 place and u64 number of the first entry that is
//!              needed, u64 epoch (+1 at each mount), u64 generation (+1 for each header), u64 bytes of
//!              the longest write of entries in this epoch, or more
//! the rest     the ring. An entry: u64 magic (of uuid, epoch and number), u64 number, u64 bytes of the payload,
//!              u64 number up to which all was durable when it was written, u32 crc32c of the payload,
//!              u32 crc32c of the 36 bytes before; the payload; zeros up to a multiple of 4096
//! ```
//!
//! Numbers follow each other. The first entry whose head or payload does not check ends the
//! journal: it was never answered. Unless a later entry says that it was durable: it comes from the
//! write behind the one that is damaged, so it begins no further on than a write is long; then it has rotted,
//! and what is behind it was answered and cannot be applied without it. Space is taken again only
//! after a header that no longer needs it is durable. After a mount has replayed and synced all there is,
//! it begins a new epoch: an entry of before that was torn in its middle must not follow a new one of
//! the same length.
//!
//! Version 1 had neither the longest write nor "durable"; it is read, and the next epoch is of version 2.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use env::AlignedBuf;

use crate::StoreError;

const MAGIC: &[u8; 8] = b"LOLIJRNL";
const VERSION: u32 = 2;
/// Unit of the journal (journal_block_size).
pub(super) const BLOCK_LEN: u64 = 4096;
const HEAD_LEN: usize = 40;
const HEAD_LEN_V1: usize = 32;
/// Longest write before the header says more. Small in tests, so that it comes to that.
const WRITE_MAX_FIRST: u64 = if cfg!(test) { 64 << 10 } else { 16 << 20 };
/// Bytes of the ring looked through at a time.
const SEARCH_LEN: u64 = 1 << 20;
/// Where the ring begins.
const RING_AT: u64 = 2 * BLOCK_LEN;
/// Smallest ring.
pub(super) const RING_MIN: u64 = 1 << 20;

/// An entry's number and what it holds.
pub(super) type Entry = (u64, Bytes);

/// An open journal.
pub(super) struct Journal {
    file: File,
    uuid: [u8; 16],
    ring_len: u64,
    /// Places count on for ever; modulo the ring's length they are in the ring.
    head: u64,
    tail: u64,
    next_seq: u64,
    epoch: u64,
    generation: u64,
    /// Bytes of an entry's head in this epoch.
    head_len: usize,
    /// No write of this epoch is longer.
    write_max: u64,
    /// Ends of entries that are still needed, by number.
    ends: VecDeque<(u64, u64)>,
    /// Who reads them does not wait for a write.
    pub(super) counts: Arc<Counts>,
}

/// What was written since the journal was opened.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Bytes of entries.
    pub(super) entries: AtomicU64,
    /// Bytes of headers.
    pub(super) headers: AtomicU64,
    /// Writes of entries.
    pub(super) writes: AtomicU64,
}

/// An entry's head, checked.
struct Head {
    seq: u64,
    len: u64,
    /// What was durable when it was written; 0 if it does not say.
    durable: u64,
    payload_crc: u32,
}

fn crc(bytes: &[u8]) -> u32 {
    types::crc::crc32c(u32::MAX, bytes)
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

fn aligned(len: u64) -> AlignedBuf {
    AlignedBuf::zeroed(len as usize)
}

/// Opens past the page cache where that can be done (not on tmpfs).
fn open(path: &Path, create: bool, direct: bool) -> io::Result<File> {
    let open = |flags: i32| {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).truncate(false);
        options.custom_flags(flags).open(path)
    };
    if direct {
        match open(libc::O_DIRECT) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
            opened => return opened,
        }
    }
    open(0)
}

impl Journal {
    /// Makes an empty journal of about `len` bytes, or as long as the device is.
    pub(super) fn create(
        path: &Path,
        uuid: [u8; 16],
        len: u64,
        next_seq: u64,
        direct: bool,
    ) -> Result<(), StoreError> {
        let file = open(path, true, direct)?;
        let kind = file.metadata()?.file_type();
        let len = if kind.is_block_device() {
            device_len(path)?
        } else {
            file.set_len(len / BLOCK_LEN * BLOCK_LEN)?;
            len
        };
        let ring_len = (len / BLOCK_LEN).saturating_sub(2) * BLOCK_LEN;
        if ring_len < RING_MIN {
            return Err(StoreError::Format("the journal is smaller than 1 MiB"));
        }
        let mut journal = Journal::new(file, uuid, ring_len, 0, next_seq);
        // Whatever an older journal left behind cannot check: its uuid is another one. One of the
        // same store could, so its epochs are not used again, and its headers and first entry go.
        if let Ok(Some(old)) = newer_header(&journal.file) {
            journal.epoch = u64::from_le_bytes(number(&old, 56)).wrapping_add(1);
        }
        journal.file.write_all_at(&aligned(RING_AT + BLOCK_LEN), 0)?;
        journal.write_header()?;
        Ok(())
    }

    fn new(file: File, uuid: [u8; 16], ring_len: u64, place: u64, next_seq: u64) -> Journal {
        Journal {
            file,
            uuid,
            ring_len,
            head: place,
            tail: place,
            next_seq,
            epoch: 1,
            generation: 0,
            head_len: HEAD_LEN,
            write_max: WRITE_MAX_FIRST,
            ends: VecDeque::new(),
            counts: Arc::default(),
        }
    }

    /// Opens a journal; what it holds behind entry `committed`, for `replay`, in order.
    pub(super) fn open(
        path: &Path,
        uuid: [u8; 16],
        committed: u64,
        direct: bool,
        mut replay: impl FnMut(u64, Bytes) -> Result<(), StoreError>,
    ) -> Result<Journal, StoreError> {
        let file = open(path, false, direct)?;
        let header = newer_header(&file)?.ok_or(StoreError::Format("the journal's header"))?;
        if header[16..32] != uuid {
            return Err(StoreError::Format("the journal of another store"));
        }
        let ring_len = u64::from_le_bytes(number(&header, 32));
        let place = u64::from_le_bytes(number(&header, 40));
        let seq = u64::from_le_bytes(number(&header, 48));
        if !(RING_MIN..1 << 50).contains(&ring_len) || !ring_len.is_multiple_of(BLOCK_LEN) {
            return Err(StoreError::Format("the journal's length"));
        }
        if seq > committed + 1 {
            return Err(StoreError::Format("the journal begins behind what is committed"));
        }
        let mut journal = Journal::new(file, uuid, ring_len, place, seq);
        journal.epoch = u64::from_le_bytes(number(&header, 56));
        journal.generation = u64::from_le_bytes(number(&header, 64));
        match u32::from_le_bytes(number(&header, 12)) {
            1 => journal.head_len = HEAD_LEN_V1,
            _ => journal.write_max = u64::from_le_bytes(number(&header, 72)),
        }
        while let Some((payload, end)) = journal.entry_at(journal.head)? {
            let seq = journal.next_seq;
            journal.ends.push_back((seq, end));
            journal.head = end;
            journal.next_seq += 1;
            if seq > committed {
                replay(seq, payload)?;
            }
        }
        if let Some(later) = journal.later_entry()? {
            let damaged = journal.next_seq;
            tracing::error!(damaged, later, "the journal holds later entries that were answered");
            return Err(StoreError::Format("a damaged entry in the middle of the journal"));
        }
        Ok(journal)
    }

    /// An entry that was written when the one missing at the journal's end was durable.
    fn later_entry(&self) -> io::Result<Option<u64>> {
        let missing = self.next_seq;
        let end =
            self.head + (self.ring_len - self.used()).min(self.write_max.saturating_add(BLOCK_LEN));
        let mut place = self.head;
        while place < end {
            let some = self.read(place, (end - place).min(SEARCH_LEN))?;
            let heads =
                some.chunks_exact(BLOCK_LEN as usize).filter_map(|block| self.head_of(block));
            let mut later = heads.filter(|head| head.seq > missing && head.durable >= missing);
            if let Some(head) = later.next() {
                return Ok(Some(head.seq));
            }
            place += some.len() as u64;
        }
        Ok(None)
    }

    /// The head that a block begins with, of whichever number.
    fn head_of(&self, block: &[u8]) -> Option<Head> {
        let u64_at = |at| u64::from_le_bytes(number(block, at));
        let u32_at = |at| u32::from_le_bytes(number(block, at));
        let crc_at = self.head_len - 4;
        let head = Head {
            seq: u64_at(8),
            len: u64_at(16),
            durable: if self.head_len == HEAD_LEN_V1 { 0 } else { u64_at(24) },
            payload_crc: u32_at(crc_at - 4),
        };
        let good = u64_at(0) == self.magic(head.seq) && crc(&block[..crc_at]) == u32_at(crc_at);
        good.then_some(head)
    }

    fn magic(&self, seq: u64) -> u64 {
        let half = u64::from_le_bytes(number(&self.uuid, 0));
        let mixed = seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.epoch.rotate_left(40);
        (half ^ mixed) | 1
    }

    /// Reads from the ring, over its end.
    fn read(&self, place: u64, len: u64) -> io::Result<AlignedBuf> {
        let mut buf = aligned(len);
        let at = place % self.ring_len;
        let first = len.min(self.ring_len - at) as usize;
        self.file.read_exact_at(&mut buf[..first], RING_AT + at)?;
        self.file.read_exact_at(&mut buf[first..], RING_AT)?;
        Ok(buf)
    }

    fn entry_at(&self, place: u64) -> Result<Option<(Bytes, u64)>, StoreError> {
        let block = self.read(place, BLOCK_LEN)?;
        let room = self.ring_len - (place - self.tail);
        let head = self.head_of(&block).filter(|h| h.seq == self.next_seq && h.len <= room);
        let Some(head) = head else { return Ok(None) };
        let whole = self.entry_len(head.len);
        if whole > room {
            return Ok(None);
        }
        let buf = self.read(place, whole)?;
        let payload = &buf[self.head_len..self.head_len + head.len as usize];
        if crc(payload) != head.payload_crc {
            return Ok(None);
        }
        Ok(Some((Bytes::copy_from_slice(payload), place + whole)))
    }

    fn entry_len(&self, payload: u64) -> u64 {
        (self.head_len as u64 + payload).next_multiple_of(BLOCK_LEN)
    }

    /// Bytes of the longest payload that can ever be written.
    pub(super) fn entry_max(&self) -> usize {
        self.ring_len as usize - self.head_len
    }

    /// Whether the entries fit now.
    pub(super) fn fits(&self, entries: &[Entry]) -> bool {
        let len: u64 = entries.iter().map(|(_, p)| self.entry_len(p.len() as u64)).sum();
        self.used() + len <= self.ring_len
    }

    /// Bytes of the ring in use.
    pub(super) fn used(&self) -> u64 {
        self.head - self.tail
    }

    /// Whether more than half of the ring is in use.
    pub(super) fn half_full(&self) -> bool {
        self.used() > self.ring_len / 2
    }

    /// The number of the next entry.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Writes entries in one go; they are durable when this returns. They must fit and follow.
    pub(super) fn write(&mut self, entries: &[Entry]) -> io::Result<()> {
        let len = entries.iter().map(|(_, p)| self.entry_len(p.len() as u64)).sum();
        if len > self.write_max {
            self.write_max = len;
            self.write_header()?;
        }
        let durable = self.next_seq - 1;
        let mut buf = aligned(len);
        let mut at = 0;
        for (seq, payload) in entries {
            assert_eq!(*seq, self.next_seq, "entries follow each other");
            let entry = &mut buf[at..];
            entry[..8].copy_from_slice(&self.magic(*seq).to_le_bytes());
            entry[8..16].copy_from_slice(&seq.to_le_bytes());
            entry[16..24].copy_from_slice(&(payload.len() as u64).to_le_bytes());
            entry[24..32].copy_from_slice(&durable.to_le_bytes());
            entry[32..36].copy_from_slice(&crc(payload).to_le_bytes());
            let head_crc = crc(&entry[..36]);
            entry[36..40].copy_from_slice(&head_crc.to_le_bytes());
            entry[HEAD_LEN..HEAD_LEN + payload.len()].copy_from_slice(payload);
            at += self.entry_len(payload.len() as u64) as usize;
            self.next_seq += 1;
            self.ends.push_back((*seq, self.head + at as u64));
        }
        let place = self.head % self.ring_len;
        let first = len.min(self.ring_len - place) as usize;
        self.file.write_all_at(&buf[..first], RING_AT + place)?;
        self.file.write_all_at(&buf[first..], RING_AT)?;
        self.file.sync_data()?;
        self.head += len;
        self.counts.entries.fetch_add(len, Ordering::Relaxed);
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Gives up the entries up to `committed`, also those that were never written.
    pub(super) fn trim(&mut self, committed: u64) -> io::Result<()> {
        let mut tail = self.tail;
        while let Some(&(seq, end)) = self.ends.front().filter(|(seq, _)| *seq <= committed) {
            debug_assert!(seq <= committed);
            tail = end;
            self.ends.pop_front();
        }
        let is_ahead = self.next_seq <= committed;
        if is_ahead {
            self.next_seq = committed + 1;
        }
        if tail != self.tail || is_ahead {
            self.tail = tail;
            self.write_header()?;
        }
        Ok(())
    }

    /// Says that nothing up to `committed` is needed any more: all of it is where it belongs.
    pub(super) fn begin_epoch(&mut self, committed: u64) -> io::Result<()> {
        self.next_seq = self.next_seq.max(committed + 1);
        self.ends.clear();
        self.tail = self.head;
        self.epoch += 1;
        self.head_len = HEAD_LEN;
        self.write_max = WRITE_MAX_FIRST;
        self.write_header()
    }

    fn write_header(&mut self) -> io::Result<()> {
        let mut header = aligned(BLOCK_LEN);
        let first = self.ends.front().map_or(self.next_seq, |(seq, _)| *seq);
        header[..8].copy_from_slice(MAGIC);
        header[12..16].copy_from_slice(&VERSION.to_le_bytes());
        header[16..32].copy_from_slice(&self.uuid);
        header[32..40].copy_from_slice(&self.ring_len.to_le_bytes());
        header[40..48].copy_from_slice(&self.tail.to_le_bytes());
        header[48..56].copy_from_slice(&first.to_le_bytes());
        self.generation += 1;
        header[56..64].copy_from_slice(&self.epoch.to_le_bytes());
        header[64..72].copy_from_slice(&self.generation.to_le_bytes());
        header[72..80].copy_from_slice(&self.write_max.to_le_bytes());
        let sum = crc(&header[12..]);
        header[8..12].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&header, self.generation % 2 * BLOCK_LEN)?;
        self.file.sync_data()?;
        self.counts.headers.fetch_add(BLOCK_LEN, Ordering::Relaxed);
        Ok(())
    }
}

/// The newer of the headers that check.
fn newer_header(file: &File) -> io::Result<Option<AlignedBuf>> {
    let mut newer: Option<AlignedBuf> = None;
    for at in [0, BLOCK_LEN] {
        let mut header = aligned(BLOCK_LEN);
        file.read_exact_at(&mut header, at)?;
        let good = header[..8] == *MAGIC
            && crc(&header[12..]) == u32::from_le_bytes(number(&header, 8))
            && (1..=VERSION).contains(&u32::from_le_bytes(number(&header, 12)));
        let generation = |header: &[u8]| u64::from_le_bytes(number(header, 64));
        if good && newer.as_ref().is_none_or(|old| generation(old) < generation(&header)) {
            newer = Some(header);
        }
    }
    Ok(newer)
}

/// Bytes of a block device.
fn device_len(path: &Path) -> io::Result<u64> {
    use std::io::{Seek, SeekFrom};
    File::open(path)?.seek(SeekFrom::End(0))
}
