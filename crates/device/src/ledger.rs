//! The byte ledger.

use std::cell::Cell;

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
}

impl WriteCause {
    /// All causes, in the order of their numbers.
    pub const ALL: [WriteCause; 12] = [
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
        }
    }
}

/// Bytes and calls since the device was opened.
#[derive(Debug, Default)]
pub struct Ledger {
    written: [Cell<u64>; WriteCause::ALL.len()],
    writes: Cell<u64>,
    read: Cell<u64>,
    reads: Cell<u64>,
    syncs: Cell<u64>,
    discarded: Cell<u64>,
}

fn add(cell: &Cell<u64>, n: u64) {
    cell.set(cell.get() + n);
}

impl Ledger {
    /// Bytes submitted for one cause.
    pub fn written(&self, cause: WriteCause) -> u64 {
        self.written[cause as usize].get()
    }

    /// Bytes submitted for all causes: what the device was asked to write.
    pub fn written_total(&self) -> u64 {
        self.written.iter().map(Cell::get).sum()
    }

    /// Write calls.
    pub fn writes(&self) -> u64 {
        self.writes.get()
    }

    /// Bytes asked to be read.
    pub fn read(&self) -> u64 {
        self.read.get()
    }

    /// Read calls.
    pub fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Sync calls.
    pub fn syncs(&self) -> u64 {
        self.syncs.get()
    }

    /// Bytes given back.
    pub fn discarded(&self) -> u64 {
        self.discarded.get()
    }

    pub(crate) fn on_write(&self) {
        add(&self.writes, 1);
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
