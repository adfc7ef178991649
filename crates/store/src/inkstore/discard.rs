//! Telling the device what is free, where that is wanted (`bdev_enable_discard`): an SSD need not
//! carry it along, and a file gives its space back.
//!
//! Blocks come here when their last reference is durably gone and no read uses them. Those in long
//! runs go to the device before the allocator gets them; single ones go to the allocator at once, to
//! be filled again. Nothing waits for a discard but `close`: none may reach a device that is another
//! store's by then.

use std::rc::Rc;

use super::format::{BLOCK_LEN, Extent};
use super::{Core, Inner};

/// What the device is yet to be told.
#[derive(Debug, Default)]
pub(super) struct Discards {
    /// Blocks of the shortest run, 0 if the device is told nothing.
    shortest: u32,
    /// Bound: runs of the device.
    waiting: Vec<Extent>,
    running: Vec<Extent>,
}

impl Discards {
    /// The device is told of runs of so many bytes and more, or of nothing.
    pub(super) fn set(&mut self, shortest: Option<u64>) {
        self.shortest = shortest.map_or(0, |bytes| bytes.div_ceil(BLOCK_LEN).max(1) as u32);
    }

    pub(super) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Blocks that are neither in use nor free.
    pub(super) fn blocks(&self) -> impl Iterator<Item = u32> {
        self.waiting.iter().chain(&self.running).flat_map(|e| e.start..e.end())
    }
}

impl Core {
    /// Gives blocks that nothing refers to back to the allocator, long runs by way of the device.
    pub(super) fn release(&mut self, mut blocks: Vec<u32>) {
        let cache = self.cache.get_mut();
        blocks.iter().for_each(|&block| cache.forget(block));
        // Where space is short it is wanted at once.
        let short = self.alloc.free() < self.device_blocks / 8;
        if self.discards.shortest == 0 || short {
            blocks.into_iter().for_each(|block| self.alloc.release(block));
            return;
        }
        blocks.sort_unstable();
        for run in blocks.chunk_by(|a, b| a + 1 == *b) {
            if run.len() < self.discards.shortest as usize {
                run.iter().for_each(|&block| self.alloc.release(block));
            } else {
                self.discards.waiting.push(Extent { start: run[0], len: run.len() as u32 });
            }
        }
    }
}

impl Inner {
    /// After blocks have been given back.
    pub(super) fn notify_discards(&self) {
        if !self.core.borrow().discards.waiting.is_empty() {
            self.discarding.notify_all();
        }
    }

    /// Tells the device what waits, until the store is closed or fails.
    pub(super) async fn discard_loop(self: Rc<Inner>) {
        loop {
            let wanted = || {
                let core = self.core.borrow();
                core.closing || core.failed.is_some() || !core.discards.waiting.is_empty()
            };
            self.discarding.until(wanted).await;
            let extents = {
                let core = &mut *self.core.borrow_mut();
                if core.closing || core.failed.is_some() {
                    return;
                }
                core.discards.running = std::mem::take(&mut core.discards.waiting);
                core.discards.running.clone()
            };
            for extent in &extents {
                let len = u64::from(extent.len) * BLOCK_LEN;
                if let Err(e) = self.device.discard(extent.offset(), len).await {
                    tracing::warn!(device = ?self.device, "discards fail and stop: {e}");
                    self.core.borrow_mut().discards.set(None);
                    break;
                }
            }
            let core = &mut *self.core.borrow_mut();
            for extent in std::mem::take(&mut core.discards.running) {
                core.alloc.release_extent(extent);
            }
            self.progress.notify_all();
        }
    }
}
