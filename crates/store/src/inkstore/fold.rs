//! Folding: a block with many patches over it is written anew, whole, in the background.
//!
//! The blocks underneath are read without holding anything up; the patches are taken as they are
//! when that is done, so a block that is written all the time is folded all the same.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;

use super::format::BLOCK_LEN;
use super::onode::{BlockPtr, Onode, PatchSource, Pieces};
use super::read::{ReadGuard, Sources};
use super::state::Slot;
use super::{Core, Inner};

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
                core.closing || core.failed.is_some() || !core.to_fold.is_empty()
            };
            self.folding.until(waiting).await;
            let fold = {
                let mut core = self.core.borrow_mut();
                if core.closing || core.failed.is_some() {
                    return;
                }
                core.next_fold()
            };
            let Some(Fold { slot, uid, block, sources }) = fold else { continue };
            let guard = ReadGuard::begin(self);
            let mut contents = Contents::new();
            for (ptr, sources) in sources {
                // Unreadable: the patches stay, and so does the error for who reads the block.
                if let Ok(data) = self.gather(sources, false).await {
                    contents.insert((ptr.block, ptr.crc), data.to_contiguous());
                }
            }
            let folded = self.core.borrow_mut().finish_fold(slot, uid, block, &contents);
            drop(guard);
            if folded {
                self.work.notify_all();
            }
        }
    }
}

/// The pieces of one block of an object.
fn pieces(onode: &Onode, block: u64) -> Pieces {
    let start = block * BLOCK_LEN;
    onode.pieces(start, BLOCK_LEN.min(onode.size.saturating_sub(start)))
}

impl Core {
    fn next_fold(&mut self) -> Option<Fold> {
        let ((uid, block), (cid, oid)) = self.to_fold.pop_first()?;
        let slot = self.state.lookup(&cid, &oid)?;
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
    fn finish_fold(&mut self, slot: Slot, uid: u64, block: u64, contents: &Contents) -> bool {
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
        if self.failed.is_some() || self.closing || self.alloc.free() < FREE_MIN {
            return false;
        }
        self.select(slot);
        self.write_whole(slot, &[(block, whole.into())], 0, None);
        self.pending.transactions += 1;
        self.free_later();
        true
    }
}

/// Blocks that folding leaves for others.
const FREE_MIN: u32 = 8;
