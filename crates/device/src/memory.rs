//! A device in memory that can show every image a power loss could leave.
//!
//! Writes take effect for reads at once. Until the next completed sync each is *unsynced*: after a
//! crash any subset of the unsynced writes may be there, each whole or torn at a block boundary,
//! in any order. [`MemoryFile::crash_image`] builds one such image from a seed.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use env::{AlignedBuf, BlockFile, LocalFuture, Until};

/// Unit in which memory is taken and a write may be torn.
const SECTOR_LEN: usize = 512;
pub(crate) const PAGE_LEN: usize = 4096;

/// A device of some size in memory; pages never written are zeros and take none.
pub struct MemoryFile {
    len: u64,
    block_len: u32,
    state: RefCell<State>,
    hook: RefCell<Option<Hook>>,
    in_hook: Cell<bool>,
    /// How often a call is polled before it completes.
    delay: Cell<u32>,
    this: Weak<MemoryFile>,
}

/// Called when a write or sync has taken effect.
type Hook = Box<dyn FnMut(&MemoryFile)>;

#[derive(Default)]
pub(crate) struct State {
    /// What is durable.
    pub(crate) synced: Pages,
    /// Not yet covered by a sync, in order.
    pub(crate) unsynced: Vec<Unsynced>,
    /// What reads see.
    pub(crate) current: Pages,
    next_id: u64,
    pub(crate) bytes_written: u64,
}

pub(crate) struct Unsynced {
    pub(crate) id: u64,
    offset: u64,
    data: Bytes,
    /// The write's future has completed: the next sync covers it.
    pub(crate) completed: bool,
}

impl State {
    pub(crate) fn write(&mut self, offset: u64, data: Bytes) -> u64 {
        self.current.write(offset, &data);
        self.next_id += 1;
        self.bytes_written += data.len() as u64;
        self.unsynced.push(Unsynced { id: self.next_id, offset, data, completed: false });
        self.next_id
    }

    pub(crate) fn complete(&mut self, id: u64) {
        if let Some(write) = self.unsynced.iter_mut().find(|w| w.id == id) {
            write.completed = true;
        }
    }

    /// Makes the writes with these ids durable.
    pub(crate) fn settle(&mut self, ids: &[u64]) {
        let synced = &mut self.synced;
        self.unsynced.retain(|w| {
            let covered = ids.contains(&w.id);
            if covered {
                synced.write(w.offset, &w.data);
            }
            !covered
        });
    }
}

impl State {
    /// Of pages, all durable.
    pub(crate) fn of(pages: Pages) -> State {
        State { synced: pages.clone(), current: pages, ..State::default() }
    }

    /// Flips bits of a byte, for good.
    pub(crate) fn rot(&mut self, offset: u64, bits: u8) {
        let mut byte = [0];
        self.current.read(offset, &mut byte);
        byte[0] ^= bits;
        self.current.write(offset, &byte);
        self.synced.write(offset, &byte);
    }

    /// Offsets of the pages that hold anything.
    pub(crate) fn written_pages(&self) -> Vec<u64> {
        let pages = self.current.0.keys();
        pages.map(|p| p * PAGE_LEN as u64).collect()
    }

    /// What a power loss now could leave.
    pub(crate) fn crashed(&self, choices: &mut Choices) -> Pages {
        let mut pages = self.synced.clone();
        let mut order: Vec<usize> = (0..self.unsynced.len()).collect();
        for i in (1..order.len()).rev() {
            order.swap(i, choices.below(i as u64 + 1) as usize);
        }
        // Sometimes all or nothing survives, most often a random part.
        let style = choices.below(8);
        for i in order {
            let Unsynced { offset, data, .. } = &self.unsynced[i];
            match (style, choices.below(3)) {
                (0, _) => {}
                (1, _) | (_, 0) => pages.write(*offset, data),
                (_, 1) => {}
                _ => {
                    let sectors = data.len() / SECTOR_LEN;
                    for s in 0..sectors {
                        if choices.below(2) == 0 {
                            let at = s * SECTOR_LEN;
                            pages.write(offset + at as u64, &data[at..at + SECTOR_LEN]);
                        }
                    }
                }
            }
        }
        pages
    }
}

#[derive(Default, Clone)]
pub(crate) struct Pages(BTreeMap<u64, Arc<Vec<u8>>>);

impl Pages {
    pub(crate) fn write(&mut self, mut offset: u64, mut data: &[u8]) {
        while !data.is_empty() {
            let from = (offset % PAGE_LEN as u64) as usize;
            let n = data.len().min(PAGE_LEN - from);
            if n == PAGE_LEN && data[..n].iter().all(|byte| *byte == 0) {
                // As if never written: zeros take no memory.
                self.0.remove(&(offset / PAGE_LEN as u64));
                offset += n as u64;
                data = &data[n..];
                continue;
            }
            let page = self.0.entry(offset / PAGE_LEN as u64);
            let page = page.or_insert_with(|| Arc::new(vec![0; PAGE_LEN]));
            Arc::make_mut(page)[from..from + n].copy_from_slice(&data[..n]);
            offset += n as u64;
            data = &data[n..];
        }
    }

    pub(crate) fn read(&self, mut offset: u64, mut out: &mut [u8]) {
        while !out.is_empty() {
            let from = (offset % PAGE_LEN as u64) as usize;
            let n = out.len().min(PAGE_LEN - from);
            match self.0.get(&(offset / PAGE_LEN as u64)) {
                Some(page) => out[..n].copy_from_slice(&page[from..from + n]),
                None => out[..n].fill(0),
            }
            offset += n as u64;
            out = &mut out[n..];
        }
    }
}

/// A small generator for choices in tests (splitmix64).
#[derive(Debug, Clone)]
pub struct Choices(u64);

impl Choices {
    /// Choices that follow from a seed.
    pub fn new(seed: u64) -> Choices {
        Choices(seed)
    }

    /// A number below `n` (`n` above 0).
    pub fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }
}

impl MemoryFile {
    /// A device of zeros.
    pub fn new(len: u64, block_len: u32) -> Rc<MemoryFile> {
        Rc::new_cyclic(|this| MemoryFile {
            len,
            block_len,
            state: RefCell::default(),
            hook: RefCell::default(),
            in_hook: Cell::new(false),
            delay: Cell::new(0),
            this: this.clone(),
        })
    }

    /// Lets every call be pending for `polls` polls, so that calls overlap.
    pub fn set_delay(&self, polls: u32) {
        self.delay.set(polls);
    }

    /// Calls `hook` after every write and sync.
    pub fn set_hook(&self, hook: impl FnMut(&MemoryFile) + 'static) {
        *self.hook.borrow_mut() = Some(Box::new(hook));
    }

    /// Bytes written so far: the device's own counter.
    pub fn bytes_written(&self) -> u64 {
        self.state.borrow().bytes_written
    }

    /// Writes since the last sync.
    pub fn unsynced(&self) -> usize {
        self.state.borrow().unsynced.len()
    }

    /// A device with what a power loss now could leave: all that was synced, and of the unsynced
    /// writes some, whole or torn, applied in some order. `Choices::new(0)` is no special case.
    pub fn crash_image(&self, choices: &mut Choices) -> Rc<MemoryFile> {
        let state = self.state.borrow();
        let pages = state.crashed(choices);
        MemoryFile::with_pages(self.len, self.block_len, pages)
    }

    /// A device with what is readable now (a process that died, the machine going on).
    pub fn kill_image(&self) -> Rc<MemoryFile> {
        MemoryFile::with_pages(self.len, self.block_len, self.state.borrow().current.clone())
    }

    /// As [`MemoryFile::kill_image`], on a device of another length.
    pub fn image_of_len(&self, len: u64) -> Rc<MemoryFile> {
        MemoryFile::with_pages(len, self.block_len, self.state.borrow().current.clone())
    }

    fn with_pages(len: u64, block_len: u32, pages: Pages) -> Rc<MemoryFile> {
        let file = MemoryFile::new(len, block_len);
        *file.state.borrow_mut() = State::of(pages);
        file
    }

    /// Flips bits of the byte at `offset`, for good.
    pub fn rot(&self, offset: u64, bits: u8) {
        self.state.borrow_mut().rot(offset, bits);
    }

    /// Offsets of the 4 KiB pages that hold anything.
    pub fn written_pages(&self) -> Vec<u64> {
        self.state.borrow().written_pages()
    }

    fn run_hook(&self) {
        if self.in_hook.replace(true) {
            return;
        }
        let hook = self.hook.borrow_mut().take();
        if let Some(mut hook) = hook {
            hook(self);
            *self.hook.borrow_mut() = Some(hook);
        }
        self.in_hook.set(false);
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

/// Completes after being polled `polls` times.
async fn pause(polls: u32) {
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl BlockFile for MemoryFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn block_len(&self) -> u32 {
        self.block_len
    }

    fn read_at(&self, offset: u64, len: usize) -> LocalFuture<io::Result<AlignedBuf>> {
        let (checked, this) = (self.check(offset, len as u64), self.this.upgrade());
        let delay = self.delay.get();
        Box::pin(async move {
            checked?;
            pause(delay).await;
            // Read late, as a slow device would.
            let mut buf = AlignedBuf::scratch(len);
            if let Some(this) = this {
                this.state.borrow().current.read(offset, &mut buf);
            }
            Ok(buf)
        })
    }

    fn write_until(
        &self,
        until: Until,
        offset: u64,
        bufs: Vec<Bytes>,
    ) -> LocalFuture<io::Result<()>> {
        let data = bufs.concat();
        let checked = self.check(offset, data.len() as u64);
        let (this, delay) = (self.this.upgrade(), self.delay.get());
        let mut id = 0;
        if checked.is_ok() {
            id = self.state.borrow_mut().write(offset, data.into());
            self.run_hook();
        }
        Box::pin(async move {
            checked?;
            pause(delay).await;
            if let Some(this) = this {
                match until {
                    Until::Written => this.state.borrow_mut().complete(id),
                    Until::Durable => {
                        this.state.borrow_mut().settle(&[id]);
                        this.run_hook();
                    }
                }
            }
            Ok(())
        })
    }

    fn sync(&self) -> LocalFuture<io::Result<()>> {
        let completed = |w: &Unsynced| w.completed.then_some(w.id);
        let ids: Vec<u64> = self.state.borrow().unsynced.iter().filter_map(completed).collect();
        let (this, delay) = (self.this.upgrade(), self.delay.get());
        Box::pin(async move {
            pause(delay).await;
            if let Some(this) = this {
                this.state.borrow_mut().settle(&ids);
                this.run_hook();
            }
            Ok(())
        })
    }

    fn discard(&self, offset: u64, len: u64) -> LocalFuture<io::Result<()>> {
        // What is discarded reads as anything: here as a pattern that no checksum will match.
        let from = offset.next_multiple_of(PAGE_LEN as u64);
        let to = (offset + len) / PAGE_LEN as u64 * PAGE_LEN as u64;
        if from < to {
            let state = &mut *self.state.borrow_mut();
            let id = state.write(from, vec![0xd5; (to - from) as usize].into());
            state.complete(id);
        }
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_write_that_ends_durable_is_so_alone() {
        let file = MemoryFile::new(1 << 20, 4096);
        let write = |until, offset, byte| {
            let done = file.write_until(until, offset, vec![vec![byte; 4096].into()]);
            done.now_or_never().unwrap().unwrap();
        };
        write(Until::Written, 4096, 1);
        write(Until::Durable, 0, 2);
        assert_eq!(file.unsynced(), 1);
        let images: Vec<Vec<u8>> = (0..20)
            .map(|seed| {
                let image = file.crash_image(&mut Choices::new(seed));
                let read = image.read_at(0, 8192).now_or_never().unwrap().unwrap();
                read.to_vec()
            })
            .collect();
        assert!(images.iter().all(|image| image[..4096] == [2; 4096]));
        assert!(images.iter().any(|image| image[4096..] == [0; 4096]));
    }
}
