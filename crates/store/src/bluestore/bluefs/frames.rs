//! Frames: how a write-ahead log tells by itself where it ends.
//!
//! A log is synced with every commit. Were its size in BlueFS's own log, each commit would be two
//! writes and two flushes; so what is written at once is a frame, and the log ends where the next
//! frame is none. Frames begin at multiples of 8 bytes:
//!
//! ```text
//! "BFwl" | u32 crc32c of the rest | u64 place in the file | u64 synced | u32 length | u32 0 | bytes
//! ```
//!
//! `synced` is how far the file was durable when the frame was written. Behind the first place that
//! holds no frame there may be others, of writes that were under way when power failed; but one
//! that says more was durable than is found proves that something was damaged.

use std::ops::Range;

use bytes::Bytes;
use types::crc::crc32c;

use super::FsError;

/// Bytes before a frame's own.
pub(super) const HEADER_LEN: usize = 32;
/// Frames begin at multiples of this.
pub(super) const ALIGN: u64 = 8;
/// Most bytes in a frame.
pub(super) const FRAME_LEN_MAX: usize = 1 << 20;
const MAGIC: &[u8; 4] = b"BFwl";
/// Bytes read at once.
const WINDOW_LEN: u64 = 2 << 20;

/// Seed of the checksums of a file's frames.
pub(super) fn seed_of(seed: u32, ino: u64) -> u32 {
    crc32c(seed, &ino.to_le_bytes())
}

/// What comes before `payload` in a frame at `at`.
pub(super) fn header(seed: u32, at: u64, synced: u64, payload: &[u8]) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    header[..4].copy_from_slice(MAGIC);
    header[8..16].copy_from_slice(&at.to_le_bytes());
    header[16..24].copy_from_slice(&synced.to_le_bytes());
    header[24..28].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let crc = crc32c(crc32c(seed, &header[8..]), payload);
    header[4..8].copy_from_slice(&crc.to_le_bytes());
    header
}

/// A frame that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    /// Where its bytes are in what was appended to the file.
    pub(super) logical: u64,
    /// Where they are in the file.
    pub(super) at: u64,
    pub(super) len: u64,
}

/// A file's frames.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Scan {
    /// In order. Bound: the writes of one log, 24 bytes for each.
    pub(super) frames: Vec<Frame>,
    /// Behind the last one.
    pub(super) end: u64,
    /// Bytes in them.
    pub(super) size: u64,
}

/// Reads whole blocks of a file: a range of it.
pub(super) type ReadAt<'a> = &'a dyn Fn(Range<u64>) -> Result<Bytes, FsError>;

/// What has been read of a file.
struct Window<'a> {
    read: ReadAt<'a>,
    limit: u64,
    start: u64,
    bytes: Bytes,
}

impl Window<'_> {
    /// Bytes of the file; fewer if it ends.
    fn at(&mut self, at: u64, len: usize) -> Result<&[u8], FsError> {
        let end = at.saturating_add(len as u64).min(self.limit);
        if at >= end {
            return Ok(&[]);
        }
        let have = self.start..self.start + self.bytes.len() as u64;
        if !have.contains(&at) || have.end < end {
            let start = at / super::BLOCK_LEN * super::BLOCK_LEN;
            let stop = (start + WINDOW_LEN).max(end.next_multiple_of(super::BLOCK_LEN));
            (self.start, self.bytes) = (start, (self.read)(start..stop.min(self.limit))?);
        }
        let from = (at - self.start) as usize;
        Ok(&self.bytes[from..from + (end - at) as usize])
    }

    /// The frame at a place, if one is: how many bytes it has, and what was durable then.
    fn frame(&mut self, seed: u32, at: u64) -> Result<Option<(u64, u64)>, FsError> {
        let header = self.at(at, HEADER_LEN)?;
        if header.len() < HEADER_LEN || &header[..4] != MAGIC {
            return Ok(None);
        }
        let number = |from: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&header[from..from + 8]);
            u64::from_le_bytes(bytes)
        };
        let (place, synced, len) = (number(8), number(16), number(24) as u32 as usize);
        if place != at || len == 0 || len > FRAME_LEN_MAX {
            return Ok(None);
        }
        let whole = self.at(at, HEADER_LEN + len)?;
        let is_whole = whole.len() == HEADER_LEN + len
            && crc32c(seed, &whole[8..]).to_le_bytes() == whole[4..8];
        Ok(is_whole.then_some((len as u64, synced)))
    }
}

/// Finds the frames of a file of `limit` bytes (whole blocks).
pub(super) fn scan(read: ReadAt<'_>, limit: u64, seed: u32) -> Result<Scan, FsError> {
    let mut window = Window { read, limit, start: 0, bytes: Bytes::new() };
    let mut found = Scan::default();
    let mut at = 0;
    while let Some((len, _)) = window.frame(seed, at)? {
        let payload = at + HEADER_LEN as u64;
        found.frames.push(Frame { logical: found.size, at: payload, len });
        found.size += len;
        found.end = payload + len;
        at = found.end.next_multiple_of(ALIGN);
    }
    while at + HEADER_LEN as u64 <= limit {
        if let Some((_, synced)) = window.frame(seed, at)?
            && synced > found.end
        {
            return Err(FsError::Corrupt("a write-ahead log has a damaged middle"));
        }
        at += ALIGN;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(sync_every: usize) -> Vec<u8> {
        let (mut bytes, mut synced) = (Vec::new(), 0);
        for n in 0..20_usize {
            let payload = vec![n as u8; 1 + n * 700];
            let at = bytes.len() as u64;
            bytes.extend_from_slice(&header(5, at, synced, &payload));
            bytes.extend_from_slice(&payload);
            if n % sync_every == 0 {
                synced = bytes.len() as u64;
            }
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        bytes.resize(200_704, 0);
        bytes
    }

    fn scanned(bytes: &[u8], seed: u32) -> Result<Scan, FsError> {
        let read = |range: Range<u64>| {
            Ok(Bytes::copy_from_slice(&bytes[range.start as usize..range.end as usize]))
        };
        scan(&read, bytes.len() as u64, seed)
    }

    #[test]
    fn a_damaged_middle_is_an_error_and_a_lost_end_is_none() {
        let bytes = file(1);
        let whole = scanned(&bytes, 5).unwrap();
        assert_eq!(whole.frames.len(), 20);
        assert_eq!(scanned(&bytes, 6).unwrap(), Scan::default());
        for (n, frame) in whole.frames.iter().enumerate() {
            for at in [frame.at, frame.at - 20, frame.at + frame.len - 1] {
                let mut bad = bytes.clone();
                bad[at as usize] ^= 4;
                match scanned(&bad, 5) {
                    Err(FsError::Corrupt(_)) => assert!(n < 19),
                    // The last one may have been torn.
                    Ok(found) => assert_eq!((n, found.frames.len()), (19, 19)),
                    Err(e) => panic!("{e}"),
                }
            }
        }
        // Where nothing has been synced anything may be missing.
        let bytes = file(100);
        for frame in &whole.frames[2..] {
            let mut bad = bytes.clone();
            bad[frame.at as usize] ^= 4;
            let found = scanned(&bad, 5).unwrap();
            assert_eq!(
                found.end,
                whole.frames[found.frames.len() - 1].at + found.frames.last().unwrap().len
            );
            assert_eq!(found.size, frame.logical);
        }
    }
}
