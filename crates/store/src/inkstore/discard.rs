//! Telling the device what is free, where that is wanted (`bdev_enable_discard`): an SSD need not
//! carry it along, and a file gives its space back.
//!
//! Blocks come here when their last reference is durably gone and no read uses them. Those in long
//! runs go to the device before the allocator gets them, a piece at a time; single ones go to the
//! allocator at once, to be filled again. Nothing waits for a discard but `close`: none may reach a
//! device that is another store's by then. Where blocks are wanted, those whose discard has not begun
//! go to the allocator without one: a device may be slower at it than clients fill what is left.

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
    /// What the device is being told: no more than a piece, as nobody else can have it meanwhile.
    running: Option<Extent>,
}

/// Longest piece in blocks, and which part of the device it is at most.
const PIECE_MAX: u32 = 64 << 8;
const PIECE_PART: u32 = 64;

impl Discards {
    /// The device is told of runs of so many bytes and more, or of nothing.
    pub(super) fn set(&mut self, shortest: Option<u64>) {
        self.shortest = shortest.map_or(0, |bytes| bytes.div_ceil(BLOCK_LEN).max(1) as u32);
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Blocks that are neither in use nor free.
    pub(super) fn blocks(&self) -> impl Iterator<Item = u32> {
        self.waiting.iter().chain(&self.running).flat_map(|e| e.start..e.end())
    }

    /// The next piece, at most `max` blocks or the shortest run.
    fn next(&mut self, max: u32) -> Option<Extent> {
        let run = self.waiting.last_mut()?;
        let len = max.max(self.shortest).min(run.len);
        let piece = Extent { start: run.start, len };
        *run = Extent { start: run.start + len, len: run.len - len };
        if run.len == 0 {
            self.waiting.pop();
        }
        Some(piece)
    }
}

impl Core {
    /// Gives blocks that nothing refers to back to the allocator, long runs by way of the device.
    pub(super) fn release(&mut self, mut blocks: Vec<u32>) {
        let cache = self.cache.get_mut();
        blocks.iter().for_each(|&block| cache.forget(block));
        if self.discards.shortest == 0 || self.is_short() {
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

    /// Whether what becomes free is wanted at once.
    pub(super) fn is_short(&self) -> bool {
        self.alloc.free() < self.device_blocks / 8
    }

    /// Gives the allocator what waits to be discarded.
    pub(super) fn forgo_discards(&mut self) {
        for extent in std::mem::take(&mut self.discards.waiting) {
            self.alloc.release_extent(extent);
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
            let piece = {
                let core = &mut *self.core.borrow_mut();
                if core.closing || core.failed.is_some() {
                    return;
                }
                let max = PIECE_MAX.min(core.device_blocks / PIECE_PART);
                core.discards.running = core.discards.next(max);
                core.discards.running
            };
            let Some(piece) = piece else { continue };
            let len = u64::from(piece.len) * BLOCK_LEN;
            let told = self.device.discard(piece.offset(), len).await;
            let core = &mut *self.core.borrow_mut();
            if let Err(e) = told {
                tracing::warn!(device = ?self.device, "discards fail and stop: {e}");
                core.discards.set(None);
                core.forgo_discards();
            }
            core.discards.running = None;
            core.alloc.release_extent(piece);
            self.progress.notify_all();
        }
    }
}
