//! The byte ledger.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Causes, Piece};

/// Why bytes are written to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum WriteCause {
    /// Object data in its final place.
    Data,
    /// Framing of the log: batch and transaction headers, and data that passes through it.
    Journal,
    /// Object metadata: names, sizes, extents, checksums, xattrs.
    Onode,
    /// Omap keys and values.
    Omap,
    /// Omap of placement groups' metadata objects: the pg log.
    PgLog,
    /// Which blocks are free.
    Allocator,
    /// Rewriting of metadata to keep it short.
    Compaction,
    /// State written so that the log can be cut.
    Checkpoint,
    /// Live data moved to make room.
    Clean,
    /// Zeros written to initialise.
    ZeroFill,
    /// Filling up to the device's blocks.
    Padding,
    /// The store's root.
    Superblock,
    /// What was there before, written again because a device's block holds it beside new data.
    Rewrite,
    /// A database's write-ahead log.
    DatabaseLog,
    /// A database's tables made of what its log holds.
    DatabaseFlush,
    /// A database's tables made of tables.
    DatabaseCompaction,
    /// Which tables a database has.
    DatabaseManifest,
    /// A database's other files.
    DatabaseOther,
    /// A file system's metadata.
    FileSystem,
}

impl WriteCause {
    /// All causes, in the order of their numbers.
    pub const ALL: [WriteCause; 19] = [
        WriteCause::Data,
        WriteCause::Journal,
        WriteCause::Onode,
        WriteCause::Omap,
        WriteCause::PgLog,
        WriteCause::Allocator,
        WriteCause::Compaction,
        WriteCause::Checkpoint,
        WriteCause::Clean,
        WriteCause::ZeroFill,
        WriteCause::Padding,
        WriteCause::Superblock,
        WriteCause::Rewrite,
        WriteCause::DatabaseLog,
        WriteCause::DatabaseFlush,
        WriteCause::DatabaseCompaction,
        WriteCause::DatabaseManifest,
        WriteCause::DatabaseOther,
        WriteCause::FileSystem,
    ];

    /// The name in counters.
    pub fn name(self) -> &'static str {
        match self {
            WriteCause::Data => "data",
            WriteCause::Journal => "journal",
            WriteCause::Onode => "onode",
            WriteCause::Omap => "omap",
            WriteCause::PgLog => "pg_log",
            WriteCause::Allocator => "allocator",
            WriteCause::Compaction => "compaction",
            WriteCause::Checkpoint => "checkpoint",
            WriteCause::Clean => "clean",
            WriteCause::ZeroFill => "zero_fill",
            WriteCause::Padding => "padding",
            WriteCause::Superblock => "superblock",
            WriteCause::Rewrite => "rewrite",
            WriteCause::DatabaseLog => "rocksdb_wal",
            WriteCause::DatabaseFlush => "rocksdb",
            WriteCause::DatabaseCompaction => "database_compaction",
            WriteCause::DatabaseManifest => "manifest",
            WriteCause::DatabaseOther => "other",
            WriteCause::FileSystem => "file_system",
        }
    }
}

/// Bytes and calls since the device was opened.
#[derive(Debug, Default)]
pub struct Ledger {
    written: [AtomicU64; WriteCause::ALL.len()],
    writes: AtomicU64,
    read: AtomicU64,
    reads: AtomicU64,
    syncs: AtomicU64,
    discarded: AtomicU64,
}

fn add(cell: &AtomicU64, n: u64) {
    cell.fetch_add(n, Ordering::Relaxed);
}

impl Ledger {
    /// Bytes submitted for one cause.
    pub fn written(&self, cause: WriteCause) -> u64 {
        self.written[cause as usize].load(Ordering::Relaxed)
    }

    /// Bytes submitted for all causes: what the device was asked to write.
    pub fn written_total(&self) -> u64 {
        self.written.iter().map(|n| n.load(Ordering::Relaxed)).sum()
    }

    /// Write calls.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Relaxed)
    }

    /// Bytes asked to be read.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Read calls.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Sync calls.
    pub fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// Bytes given back.
    pub fn discarded(&self) -> u64 {
        self.discarded.load(Ordering::Relaxed)
    }

    pub(crate) fn on_write(&self) {
        add(&self.writes, 1);
    }

    /// Counts a piece's bytes.
    ///
    /// # Panics
    /// If its shares do not add up to its length: the ledger would be wrong.
    pub(crate) fn on_piece(&self, piece: &Piece) {
        let len = piece.bytes.len() as u64;
        match &piece.causes {
            Causes::One(cause) => self.on_bytes(*cause, len),
            Causes::Shares(shares) => {
                let sum: u64 = shares.iter().map(|(_, n)| n).sum();
                assert_eq!(sum, len, "shares of a write: {shares:?}");
                for &(cause, n) in shares {
                    self.on_bytes(cause, n);
                }
            }
        }
    }

    pub(crate) fn on_bytes(&self, cause: WriteCause, len: u64) {
        add(&self.written[cause as usize], len);
    }

    pub(crate) fn on_read(&self, len: u64) {
        add(&self.reads, 1);
        add(&self.read, len);
    }

    pub(crate) fn on_sync(&self) {
        add(&self.syncs, 1);
    }

    pub(crate) fn on_discard(&self, len: u64) {
        add(&self.discarded, len);
    }
}
