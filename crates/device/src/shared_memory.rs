//! A device in memory for threads: as [`crate::memory`], it shows every image a power loss could
//! leave, at any moment of whatever its threads do.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use env::{AlignedBuf, SharedBlockFile};

use crate::memory::{Choices, Pages, State, Unsynced};

/// A device of some size in memory; pages never written are zeros and take none.
pub struct SharedMemoryFile {
    len: u64,
    block_len: u32,
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
}

/// Called when a write or sync has taken effect.
type Hook = Box<dyn FnMut(&SharedMemoryFile) + Send>;

impl SharedMemoryFile {
    /// A device of zeros.
    pub fn new(len: u64, block_len: u32) -> Arc<SharedMemoryFile> {
        SharedMemoryFile::of(len, block_len, Pages::default())
    }

    fn of(len: u64, block_len: u32, pages: Pages) -> Arc<SharedMemoryFile> {
        Arc::new(SharedMemoryFile {
            len,
            block_len,
            state: Mutex::new(State::of(pages)),
            hook: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `hook` after every write and sync, from the thread that made it.
    pub fn set_hook(&self, hook: impl FnMut(&SharedMemoryFile) + Send + 'static) {
        let mut place = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Box::new(hook));
    }

    /// Bytes written so far: the device's own counter.
    pub fn bytes_written(&self) -> u64 {
        self.state().bytes_written
    }

    /// What a power loss now could leave; see [`crate::memory::MemoryFile::crash_image`].
    pub fn crash_image(&self, choices: &mut Choices) -> Arc<SharedMemoryFile> {
        let pages = self.state().crashed(choices);
        SharedMemoryFile::of(self.len, self.block_len, pages)
    }

    /// A device with what is readable now (a process that died, the machine going on).
    pub fn kill_image(&self) -> Arc<SharedMemoryFile> {
        let pages = self.state().current.clone();
        SharedMemoryFile::of(self.len, self.block_len, pages)
    }

    /// Flips bits of the byte at `offset`, for good.
    pub fn rot(&self, offset: u64, bits: u8) {
        self.state().rot(offset, bits);
    }

    /// Offsets of the 4 KiB pages that hold anything.
    pub fn written_pages(&self) -> Vec<u64> {
        self.state().written_pages()
    }

    fn run_hook(&self) {
        let mut place = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hook) = &mut *place {
            hook(self);
        }
    }

    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        let block = u64::from(self.block_len);
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if inside && offset.is_multiple_of(block) && len.is_multiple_of(block) {
            Ok(())
        } else {
            Err(io::ErrorKind::InvalidInput.into())
        }
    }
}

impl SharedBlockFile for SharedMemoryFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn block_len(&self) -> u32 {
        self.block_len
    }

    fn read_at(&self, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        self.check(offset, len as u64)?;
        let mut buf = AlignedBuf::scratch(len);
        self.state().current.read(offset, &mut buf);
        Ok(buf)
    }

    fn write_at(&self, offset: u64, bufs: Vec<Bytes>) -> io::Result<()> {
        let data = bufs.concat();
        self.check(offset, data.len() as u64)?;
        let id = self.state().write(offset, data.into());
        self.run_hook();
        // The next sync covers what has returned.
        self.state().complete(id);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        {
            let mut state = self.state();
            let completed = |w: &Unsynced| w.completed.then_some(w.id);
            let ids: Vec<u64> = state.unsynced.iter().filter_map(completed).collect();
            state.settle(&ids);
        }
        self.run_hook();
        Ok(())
    }
}
