//! Folding: a block with many patches over it is written anew, whole, in the background.
//!
//! The blocks underneath are read without holding anything up; the patches are taken as they are
//! when that is done, so a block that is written all the time is folded all the same. While more
//! wait to be folded than [`WAITING_MAX`], who writes waits for that, too.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::future::join_all;
use types::hobject::GhObject;

use super::format::BLOCK_LEN;
use super::onode::{BlockPtr, Onode, PatchSource, Pieces};
use super::read::{ReadGuard, Sources};
use super::state::{Slot, State};
use super::write::{INLINE_MAX, PATCHES_MAX};
use super::{Core, Inner};
use crate::CollId;

/// Blocks whose patches should be merged into them. Bound: one entry a patched block, and see
/// [`WAITING_MAX`].
#[derive(Debug, Default)]
pub(super) struct Folds {
    /// By uid of the object and block.
    waiting: BTreeMap<(u64, u64), (CollId, Rc<GhObject>)>,
    /// How many have come, and with how many of them all is done that could be.
    come: u64,
    done: u64,
}

impl Folds {
    /// Those that a store has at mount.
    pub(super) fn left_in(state: &State) -> Folds {
        let mut folds = Folds::default();
        for onode in state.onodes().filter(|onode| onode.patch_bytes() >= INLINE_MAX) {
            let many = onode.patch_bytes() > PATCHES_MAX;
            let blocks = onode.patched_blocks().into_iter();
            let due = blocks.filter(|&block| many || onode.patch_cost(block) >= INLINE_MAX);
            due.for_each(|block| folds.push(onode, block));
        }
        folds
    }

    pub(super) fn push(&mut self, onode: &Onode, block: u64) {
        let object = (onode.cid, onode.oid.clone());
        let new = self.waiting.insert((onode.uid, block), object).is_none();
        self.come += u64::from(new);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.done += self.waiting.len() as u64;
        self.waiting.clear();
    }

    /// If too many wait: how many must be done with ([`Inner::folded`]) before it is not too many. It
    /// never becomes less, so who began to wait first is the first to go on.
    pub(super) fn behind(&self) -> Option<u64> {
        let count = self.come.saturating_sub(WAITING_MAX);
        (self.done < count).then_some(count)
    }
}

/// A block to fold, and where what it consists of can be read.
struct Fold {
    slot: Slot,
    uid: u64,
    block: u64,
    sources: Vec<(BlockPtr, Sources)>,
}

/// Contents of blocks, by place and checksum.
type Contents = BTreeMap<(u32, u32), Bytes>;

impl Inner {
    /// Runs until the store is closed or fails.
    pub(super) async fn fold_loop(self: Rc<Inner>) {
        self.fold_until_closed().await;
        self.core.borrow_mut().folding = false;
        self.progress.notify_all();
    }

    async fn fold_until_closed(self: &Rc<Inner>) {
        loop {
            let waiting = || {
                let core = self.core.borrow();
                core.closing || core.failed.is_some() || !core.folds.is_empty()
            };
            self.folding.until(waiting).await;
            let folds = {
                let mut core = self.core.borrow_mut();
                if core.closing || core.failed.is_some() {
                    return;
                }
                core.next_folds()
            };
            let guard = ReadGuard::begin(self);
            let read = join_all(folds.into_iter().map(|fold| self.read_below(fold))).await;
            let mut folded = false;
            {
                let mut core = self.core.borrow_mut();
                for (fold, contents) in &read {
                    folded |= core.finish_fold(fold, contents);
                    core.folds.done += 1;
                }
            }
            drop(guard);
            if folded {
                self.work.notify_all();
            }
            self.progress.notify_all();
        }
    }

    async fn read_below(&self, mut fold: Fold) -> (Fold, Contents) {
        let mut contents = Contents::new();
        for (ptr, sources) in std::mem::take(&mut fold.sources) {
            // Unreadable: the patches stay, and so does the error for who reads the block.
            if let Ok(data) = self.gather(sources, false).await {
                contents.insert((ptr.block, ptr.crc), data.to_contiguous());
            }
        }
        (fold, contents)
    }

    /// Waits until so many blocks have been folded, or no more are.
    pub(super) async fn folded(&self, count: u64) {
        let enough = || {
            let core = self.core.borrow();
            core.folds.done >= count || core.failed.is_some() || !core.folding
        };
        self.progress.until(enough).await;
    }
}

/// The pieces of one block of an object.
fn pieces(onode: &Onode, block: u64) -> Pieces {
    let start = block * BLOCK_LEN;
    onode.pieces(start, BLOCK_LEN.min(onode.size.saturating_sub(start)))
}

impl Core {
    /// The next blocks to fold. With those that need it no more all is done.
    fn next_folds(&mut self) -> Vec<Fold> {
        let mut folds = Vec::new();
        while folds.len() < AT_ONCE
            && let Some(((uid, block), (cid, oid))) = self.folds.waiting.pop_first()
        {
            match self.fold_of(uid, block, &cid, &oid) {
                Some(fold) => folds.push(fold),
                None => self.folds.done += 1,
            }
        }
        folds
    }

    fn fold_of(&self, uid: u64, block: u64, cid: &CollId, oid: &GhObject) -> Option<Fold> {
        let slot = self.state.lookup(cid, oid)?;
        let onode = self.state.onode(slot).filter(|o| o.uid == uid)?;
        if onode.patch_cost(block) == 0 {
            return None;
        }
        let mut sources: Vec<(BlockPtr, Sources)> = Vec::new();
        for (_, piece) in pieces(onode, block) {
            let PatchSource::Block { ptr, .. } = piece.source else { continue };
            if sources.iter().all(|(have, _)| *have != ptr) {
                let mut whole = Sources::new();
                self.push_block(&mut whole, ptr, 0, BLOCK_LEN as usize);
                sources.push((ptr, whole));
            }
        }
        Some(Fold { slot, uid, block, sources })
    }

    /// Writes the block as it is now, if all it consists of has been read. True if there is
    /// something to commit.
    fn finish_fold(&mut self, fold: &Fold, contents: &Contents) -> bool {
        let &Fold { slot, uid, block, .. } = fold;
        let Some(onode) = self.state.onode(slot).filter(|o| o.uid == uid) else { return false };
        if onode.patch_cost(block) == 0 {
            return false;
        }
        let mut whole = Vec::with_capacity(BLOCK_LEN as usize);
        for (_, piece) in pieces(onode, block) {
            let len = piece.len as usize;
            match piece.source {
                PatchSource::Bytes(bytes) => whole.extend_from_slice(&bytes),
                PatchSource::Zeros => whole.resize(whole.len() + len, 0),
                PatchSource::Block { ptr, skip } => {
                    // Rewritten meanwhile, or unreadable: the next patch asks again.
                    let Some(bytes) = contents.get(&(ptr.block, ptr.crc)) else { return false };
                    whole.extend_from_slice(&bytes[skip as usize..skip as usize + len]);
                }
            }
        }
        whole.resize(BLOCK_LEN as usize, 0);
        let base = onode.ptr(block);
        let given_up = !base.is_hole() && !self.state.space.is_shared(base.block);
        // Without room the patches stay, which admission has counted.
        if self.failed.is_some() || self.closing || !self.admits_block(given_up) {
            return false;
        }
        self.select(slot);
        self.write_whole(slot, &[(block, whole.into())], 0, None);
        self.pending.transactions += 1;
        self.free_later();
        true
    }
}

/// Blocks folded at once: what is below them is read together, 128 KiB and what other blocks were
/// copied from.
const AT_ONCE: usize = 32;
/// With more blocks than this waiting to be folded, transactions are acknowledged as folding comes
/// along: each takes up to 4 KiB of memory and of a checkpoint more than once it is folded. Small in
/// tests, so that it comes to that.
const WAITING_MAX: u64 = if cfg!(test) { 48 } else { 1024 };

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;
    use std::time::Duration;

    use device::BlockDevice;
    use device::memory::MemoryFile;
    use env::{AlignedBuf, BlockFile, Env, LocalFuture, Until};

    use super::*;
    use crate::inkstore::write::PATCHES_IN_ALL_MAX;
    use crate::inkstore::{InkStore, MkfsOptions};
    use crate::testing::{block_on, numbered, pg};
    use crate::{ObjectStore, Transaction};

    /// A device on which a read takes its time.
    struct Slow {
        file: Rc<MemoryFile>,
        env: Env,
        read_time: Duration,
        /// Reads under way, and the most there were.
        reads: Rc<Cell<(usize, usize)>>,
    }

    impl BlockFile for Slow {
        fn len(&self) -> u64 {
            self.file.len()
        }
        fn block_len(&self) -> u32 {
            self.file.block_len()
        }
        fn read_at(&self, offset: u64, len: usize) -> LocalFuture<io::Result<AlignedBuf>> {
            let (now, most) = self.reads.get();
            self.reads.set((now + 1, most.max(now + 1)));
            let (time, read) = (self.env.sleep(self.read_time), self.file.read_at(offset, len));
            let reads = self.reads.clone();
            Box::pin(async move {
                time.await;
                let (now, most) = reads.get();
                reads.set((now - 1, most));
                read.await
            })
        }
        fn write_until(
            &self,
            until: Until,
            offset: u64,
            bufs: Vec<Bytes>,
        ) -> LocalFuture<io::Result<()>> {
            self.file.write_until(until, offset, bufs)
        }
        fn sync(&self) -> LocalFuture<io::Result<()>> {
            self.file.sync()
        }
        fn discard(&self, offset: u64, len: u64) -> LocalFuture<io::Result<()>> {
            self.file.discard(offset, len)
        }
    }

    /// A store of 16 MiB with an object of some blocks of ones.
    async fn made(env: &Env, blocks: u64) -> (Rc<MemoryFile>, InkStore) {
        let file = MemoryFile::new(16 << 20, 4096);
        let options = MkfsOptions { uuid: [7; 16], log_len: Some(256 << 10) };
        InkStore::mkfs(&BlockDevice::new(file.clone()), options).await.unwrap();
        let store = InkStore::mount(env.clone(), BlockDevice::new(file.clone())).await.unwrap();
        let mut t = Transaction::new();
        t.mkcoll(&pg(0), 0);
        t.write(&pg(0), &numbered(1), 0, vec![1; (blocks * BLOCK_LEN) as usize]);
        store.submit(t).await.unwrap();
        (file, store)
    }

    /// Twos over the start of a block.
    fn over(block: u64, len: usize) -> Transaction {
        let mut t = Transaction::new();
        t.write(&pg(0), &numbered(1), block * BLOCK_LEN, vec![2; len]);
        t
    }

    async fn check(store: &InkStore, blocks: u64, len: usize) {
        let data = store.read(&pg(0), &numbered(1), 0, 0).await.unwrap().to_contiguous();
        let mut expected = vec![1; BLOCK_LEN as usize];
        expected[..len].fill(2);
        assert_eq!(data.len() as u64, blocks * BLOCK_LEN);
        assert!(data.chunks_exact(BLOCK_LEN as usize).all(|block| block == expected));
    }

    fn patch_bytes(store: &InkStore) -> usize {
        store.inner.core.borrow().state.onodes().map(Onode::patch_bytes).sum()
    }

    async fn all_folded(store: &InkStore) {
        let come = store.inner.core.borrow().folds.come;
        store.inner.folded(come).await;
    }

    /// Writes of half blocks were acknowledged as fast as they came, and what was below them was read
    /// one block after the other: on a slow device what waited for that filled the memory.
    #[test]
    fn who_writes_parts_of_blocks_waits_for_folding() {
        block_on(|env| async move {
            const BLOCKS: u64 = 1024;
            const WRITERS: u64 = 16;
            let (file, store) = made(&env, BLOCKS).await;
            store.close().await.unwrap();
            let reads = Rc::new(Cell::default());
            let read_time = Duration::from_millis(10);
            let slow = Slow { file, env: env.clone(), read_time, reads: reads.clone() };
            let store =
                InkStore::mount(env.clone(), BlockDevice::new(Rc::new(slow))).await.unwrap();
            let most = Cell::new(0);
            let writers = (0..WRITERS).map(async |first| {
                for block in (first..BLOCKS).step_by(WRITERS as usize) {
                    store.submit(over(block, 2048)).await.unwrap();
                    most.set(most.get().max(patch_bytes(&store)));
                }
            });
            join_all(writers).await;
            let bound = (WAITING_MAX + WRITERS) as usize * (2048 + 8);
            assert!((bound / 2..=bound).contains(&most.get()), "{} bytes of patches", most.get());
            assert_eq!(reads.get().1, AT_ONCE);
            all_folded(&store).await;
            assert_eq!(patch_bytes(&store), 0);
            check(&store, BLOCKS, 2048).await;
            store.close().await.unwrap();
        });
    }

    /// What waited to be folded when a store stopped was folded no more unless it was written again.
    #[test]
    fn a_mount_folds_what_was_left() {
        block_on(|env| async move {
            let (file, store) = made(&env, 60).await;
            // Half a block; so much over one object that some of it is to go; a little.
            let parts = [(0..40, 1, 2048), (0..20, 2, 900), (0..1, 3, 900)];
            let mut t = Transaction::new();
            for (blocks, oid, len) in parts {
                for block in blocks {
                    let at = block * BLOCK_LEN;
                    t.write(&pg(0), &numbered(oid + 10), at, vec![1; BLOCK_LEN as usize]);
                    t.write(&pg(0), &numbered(oid + 10), at, vec![2; len]);
                }
            }
            let written = store.submit(t);
            assert_eq!(patch_bytes(&store), 40 * 2056 + 21 * 908);
            // As if it never came to that.
            store.inner.core.borrow_mut().folds.clear();
            written.await.unwrap();
            for close in [false, true] {
                let store = InkStore::mount(env.clone(), BlockDevice::new(file.kill_image()));
                let store = store.await.unwrap();
                all_folded(&store).await;
                assert_eq!(patch_bytes(&store), 908);
                let read = store.read(&pg(0), &numbered(11), 0, 4096).await.unwrap();
                assert_eq!(read.to_contiguous(), [[2; 2048], [1; 2048]].concat());
                assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
                if close {
                    store.close().await.unwrap();
                }
            }
        });
    }

    /// Folding a block that a clone has, too, takes one more. It took them from what is kept for
    /// checkpoints, and the store stopped when one began.
    #[test]
    fn folding_leaves_room_for_checkpoints() {
        block_on(|env| async move {
            const BLOCKS: u64 = 1800;
            let (file, store) = made(&env, BLOCKS).await;
            let mut t = Transaction::new();
            t.clone_object(&pg(0), &numbered(1), &numbered(2));
            store.submit(t).await.unwrap();
            let written: Vec<_> = (0..BLOCKS).map(|n| store.submit(over(n, 1024))).collect();
            for written in join_all(written).await {
                written.unwrap();
            }
            all_folded(&store).await;
            let left = patch_bytes(&store);
            let all = BLOCKS as usize * 1032;
            assert!((1..all).contains(&left), "some were folded, not all: {left}");
            {
                let core = store.inner.core.borrow();
                let used = core.used_blocks();
                assert!(used + core.reserve_blocks() <= u64::from(core.device_blocks));
            }
            store.checkpoint().await.unwrap();
            check(&store, BLOCKS, 1024).await;
            store.close().await.unwrap();
            let store = InkStore::mount(env.clone(), BlockDevice::new(file)).await.unwrap();
            check(&store, BLOCKS, 1024).await;
        });
    }

    /// Parts of blocks that were written once stayed in memory, each of them less than is folded: an image written at random in
    /// sectors of 512 bytes took gigabytes.
    #[test]
    fn patches_are_bounded_in_all() {
        block_on(|env| async move {
            const OBJECTS: u64 = 64;
            const SMALL: u64 = 500;
            let (file, store) = made(&env, 1).await;
            for n in 100..100 + SMALL {
                let mut t = Transaction::new();
                t.write(&pg(0), &numbered(n), 0, vec![3; 900]);
                store.submit(t).await.unwrap();
            }
            let bound = PATCHES_IN_ALL_MAX as usize + (1 + SMALL as usize) * INLINE_MAX;
            // The small ones alone are more than that.
            const { assert!(PATCHES_IN_ALL_MAX < SMALL * 900) };
            all_folded(&store).await;
            assert_eq!(patch_bytes(&store), SMALL as usize * 908, "what is small stays");
            for n in 2..2 + OBJECTS {
                let mut t = Transaction::new();
                t.write(&pg(0), &numbered(n), 0, vec![1; 16 * BLOCK_LEN as usize]);
                store.submit(t).await.unwrap();
                for block in 0..16 {
                    let mut t = Transaction::new();
                    t.write(&pg(0), &numbered(n), block * BLOCK_LEN, vec![2; 900]);
                    store.submit(t).await.unwrap();
                }
            }
            all_folded(&store).await;
            let left = patch_bytes(&store);
            let all = (SMALL + OBJECTS * 16) as usize * 908;
            let bound = bound + OBJECTS as usize * INLINE_MAX;
            assert!(left <= bound + 908 && bound < all, "{left} of {all}, {bound} at most");
            assert_eq!(store.inner.core.borrow().state.space.patch_bytes, left as u64);
            store.close().await.unwrap();
            let store = InkStore::mount(env.clone(), BlockDevice::new(file)).await.unwrap();
            assert_eq!(store.inner.core.borrow().state.space.patch_bytes, left as u64);
            assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
        });
    }
}
