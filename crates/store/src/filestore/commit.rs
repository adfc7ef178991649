//! `commit_op_seq`: up to which entry of the journal the files are durable.
//!
//! Two copies, 4096 bytes apart, the newer counts:
//!
//! ```text
//! "LOLIFSEQ", u32 crc32c of what follows, uuid[16], u64 entry, u64 mounts, u64 generation
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::StoreError;

const MAGIC: &[u8; 8] = b"LOLIFSEQ";
const LEN: usize = 8 + 4 + 16 + 8 + 8 + 8;
const COPY_AT: u64 = 4096;

/// The file and what it says.
#[derive(Debug)]
pub(super) struct CommitFile {
    file: File,
    pub(super) uuid: [u8; 16],
    /// The last entry that is durable in the files.
    pub(super) seq: u64,
    /// How often the store has been mounted.
    pub(super) mounts: u64,
    /// +1 each time it is written.
    pub(super) generation: u64,
    /// Bytes written. Who reads them does not wait for a sync.
    pub(super) written: Arc<AtomicU64>,
}

fn number(bytes: &[u8]) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(out)
}

fn checked(bytes: &[u8; LEN]) -> bool {
    let crc = types::crc::crc32c(u32::MAX, &bytes[12..]);
    bytes[..8] == *MAGIC && bytes[8..12] == crc.to_le_bytes()
}

impl CommitFile {
    /// Makes the file of a store that has no entries. Its generation.
    pub(super) fn create(path: &Path, uuid: [u8; 16]) -> io::Result<u64> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).open(path)?;
        let mut commit =
            CommitFile { file, uuid, seq: 0, mounts: 0, generation: 0, written: Arc::default() };
        commit.write(0)?;
        Ok(commit.generation)
    }

    pub(super) fn open(path: &Path) -> Result<CommitFile, StoreError> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        let file = file.map_err(|_| StoreError::Format("no filestore here: run --mkfs"))?;
        let mut newer: Option<[u8; LEN]> = None;
        for at in [0, COPY_AT] {
            let mut bytes = [0; LEN];
            let read = file.read_exact_at(&mut bytes, at);
            let generation = |bytes: &[u8; LEN]| number(&bytes[44..]);
            if read.is_ok()
                && checked(&bytes)
                && newer.is_none_or(|old| generation(&old) < generation(&bytes))
            {
                newer = Some(bytes);
            }
        }
        let bytes = newer.ok_or(StoreError::Format("commit_op_seq"))?;
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&bytes[12..28]);
        Ok(CommitFile {
            file,
            uuid,
            seq: number(&bytes[28..]),
            mounts: number(&bytes[36..]),
            generation: number(&bytes[44..]),
            written: Arc::default(),
        })
    }

    /// Says that the files are durable up to an entry.
    pub(super) fn write(&mut self, seq: u64) -> io::Result<()> {
        self.generation += 1;
        let mut bytes = Vec::with_capacity(LEN);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.uuid);
        for n in [seq, self.mounts, self.generation] {
            bytes.extend_from_slice(&n.to_le_bytes());
        }
        let crc = types::crc::crc32c(u32::MAX, &bytes[12..]);
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        self.file.write_all_at(&bytes, self.generation % 2 * COPY_AT)?;
        self.file.sync_data()?;
        self.written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.seq = seq;
        Ok(())
    }
}
