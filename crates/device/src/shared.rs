//! A device with its ledger, for threads that may block: the same as [`crate::BlockDevice`] but that
//! calls return when they are done and may come from any thread.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use env::{AlignedBuf, Env, OpenBlock, SharedBlockFile};

use crate::{DeviceError, Ledger, Piece};

/// A device that threads share. A clone is another handle to it.
///
/// A failed write or sync latches it: every later write and sync fails at once.
#[derive(Clone)]
pub struct SharedDevice {
    inner: Arc<Inner>,
}

struct Inner {
    file: Arc<dyn SharedBlockFile>,
    ledger: Ledger,
    failed: Mutex<Option<DeviceError>>,
}

impl core::fmt::Debug for SharedDevice {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "SharedDevice({} bytes)", self.len())
    }
}

impl SharedDevice {
    /// A device on a file that is open.
    pub fn new(file: Arc<dyn SharedBlockFile>) -> SharedDevice {
        let inner = Inner { file, ledger: Ledger::default(), failed: Mutex::new(None) };
        SharedDevice { inner: Arc::new(inner) }
    }

    /// Opens a file or block device.
    pub fn open(env: &Env, path: &Path, options: OpenBlock) -> io::Result<SharedDevice> {
        Ok(SharedDevice::new(env.open_shared_block(path, options)?))
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

    /// Reads `len` bytes. A failed read latches nothing.
    pub fn read(&self, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        self.inner.ledger.on_read(len as u64);
        self.inner.file.read_at(offset, len)
    }

    /// Writes the pieces one behind the other.
    ///
    /// # Panics
    /// If the shares of a piece do not add up to its length: the ledger would be wrong.
    pub fn write(&self, offset: u64, pieces: Vec<Piece>) -> io::Result<()> {
        self.admit()?;
        self.inner.ledger.on_write();
        for piece in &pieces {
            self.inner.ledger.on_piece(piece);
        }
        let bufs = pieces.into_iter().map(|piece| piece.bytes).collect();
        self.latch(self.inner.file.write_at(offset, bufs))
    }

    /// Makes all writes that have returned durable.
    pub fn sync(&self) -> io::Result<()> {
        self.admit()?;
        self.inner.ledger.on_sync();
        self.latch(self.inner.file.sync())
    }

    fn admit(&self) -> io::Result<()> {
        match *self.failed() {
            Some(first) => Err(first.into()),
            None => Ok(()),
        }
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Option<DeviceError>> {
        self.inner.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latch(&self, result: io::Result<()>) -> io::Result<()> {
        if let Err(e) = &result {
            self.failed().get_or_insert(e.into());
        }
        result
    }
}
