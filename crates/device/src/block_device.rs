//! A device with its ledger.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bytes::Bytes;
use env::{AlignedBuf, BlockFile, Env, OpenBlock, Until};

use crate::{DeviceError, Ledger, WriteCause};

/// Bytes to write and why. `causes` tells how many of the bytes are there for which cause.
#[derive(Debug, Clone)]
pub struct Piece {
    /// The bytes; a multiple of the device's block length.
    pub bytes: Bytes,
    /// Shares of the causes; they add up to the length of `bytes`.
    pub causes: Causes,
}

/// Shares of causes in a piece.
#[derive(Debug, Clone)]
pub enum Causes {
    /// All for one cause.
    One(WriteCause),
    /// Bytes for each.
    Shares(Vec<(WriteCause, u64)>),
}

impl Piece {
    /// Bytes written for one cause.
    pub fn new(bytes: Bytes, cause: WriteCause) -> Piece {
        Piece { bytes, causes: Causes::One(cause) }
    }

    /// Bytes written for several.
    pub fn shared(bytes: Bytes, shares: Vec<(WriteCause, u64)>) -> Piece {
        Piece { bytes, causes: Causes::Shares(shares) }
    }
}

/// A device open for reading and writing in blocks. A clone is another handle to it.
///
/// A failed write or sync latches it: every later write and sync fails at once, because nobody
/// knows any more what an earlier write left behind.
#[derive(Clone)]
pub struct BlockDevice {
    inner: Rc<Inner>,
}

struct Inner {
    file: Rc<dyn BlockFile>,
    /// What it was opened as.
    path: Option<PathBuf>,
    ledger: Ledger,
    failed: Cell<Option<DeviceError>>,
}

impl core::fmt::Debug for BlockDevice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let len = self.len();
        match &self.inner.path {
            Some(path) => write!(f, "BlockDevice({}, {len} bytes)", path.display()),
            None => write!(f, "BlockDevice({len} bytes)"),
        }
    }
}

impl BlockDevice {
    /// A device on a file that is open.
    pub fn new(file: Rc<dyn BlockFile>) -> BlockDevice {
        BlockDevice::with(file, None)
    }

    pub(crate) fn named(file: Rc<dyn BlockFile>, path: &Path) -> BlockDevice {
        BlockDevice::with(file, Some(path.to_path_buf()))
    }

    fn with(file: Rc<dyn BlockFile>, path: Option<PathBuf>) -> BlockDevice {
        let inner = Inner { file, path, ledger: Ledger::default(), failed: Cell::new(None) };
        BlockDevice { inner: Rc::new(inner) }
    }

    /// Opens a file or block device.
    pub fn open(env: &Env, path: &Path, options: OpenBlock) -> io::Result<BlockDevice> {
        Ok(BlockDevice::named(env.open_block(path, options)?, path))
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "a device is never empty")]
    pub fn len(&self) -> u64 {
        self.inner.file.len()
    }

    /// Smallest unit of I/O in bytes.
    pub fn block_len(&self) -> u32 {
        self.inner.file.block_len()
    }

    /// What was written why.
    pub fn ledger(&self) -> &Ledger {
        &self.inner.ledger
    }

    /// The error that latched the device, if one did.
    pub fn failure(&self) -> Option<DeviceError> {
        self.inner.failed.get()
    }

    /// Reads `len` bytes. A failed read latches nothing.
    pub fn read(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Future<Output = io::Result<AlignedBuf>> + 'static {
        self.inner.ledger.on_read(len as u64);
        self.inner.file.read_at(offset, len)
    }

    /// Writes the pieces one behind the other. Submitted when called, not when first polled.
    ///
    /// # Panics
    /// If the shares of a piece do not add up to its length: the ledger would be wrong.
    pub fn write(
        &self,
        offset: u64,
        pieces: Vec<Piece>,
    ) -> impl Future<Output = io::Result<()>> + 'static {
        self.write_until(Until::Written, offset, pieces)
    }

    /// As [`BlockDevice::write`]; one that is written until it is durable counts as a sync, too.
    ///
    /// # Panics
    /// As there.
    pub fn write_until(
        &self,
        until: Until,
        offset: u64,
        pieces: Vec<Piece>,
    ) -> impl Future<Output = io::Result<()>> + 'static {
        let inner = self.inner.clone();
        let task = self.admit().map(|()| {
            inner.ledger.on_write();
            if until == Until::Durable {
                inner.ledger.on_sync();
            }
            for piece in &pieces {
                inner.ledger.on_piece(piece);
            }
            let bufs = pieces.into_iter().map(|piece| piece.bytes).collect();
            inner.file.write_until(until, offset, bufs)
        });
        async move { inner.latch(task?.await) }
    }

    /// Makes all writes that have completed durable.
    pub fn sync(&self) -> impl Future<Output = io::Result<()>> + 'static {
        let inner = self.inner.clone();
        let task = self.admit().map(|()| {
            inner.ledger.on_sync();
            inner.file.sync()
        });
        async move { inner.latch(task?.await) }
    }

    /// Gives space back. Best effort: errors do not latch.
    pub fn discard(&self, offset: u64, len: u64) -> impl Future<Output = io::Result<()>> + 'static {
        let task = self.admit().map(|()| {
            self.inner.ledger.on_discard(len);
            self.inner.file.discard(offset, len)
        });
        async move { task?.await }
    }

    fn admit(&self) -> io::Result<()> {
        match self.inner.failed.get() {
            Some(first) => Err(first.into()),
            None => Ok(()),
        }
    }
}

impl Inner {
    fn latch(&self, result: io::Result<()>) -> io::Result<()> {
        if let Err(e) = &result {
            self.failed.set(Some(self.failed.get().unwrap_or(e.into())));
        }
        result
    }
}
