//! Folding: a block with many patches over it is written anew, whole, in the background.

use std::rc::Rc;

use bytes::Bytes;

use super::format::BLOCK_LEN;
use super::read::{ReadGuard, Source, gather};
use super::{Core, Inner};

/// A block to fold, as it was when the read of its contents began.
struct Fold {
    slot: super::state::Slot,
    uid: u64,
    data_version: u64,
    block: u64,
    sources: Vec<Source>,
}

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
            let Some(fold) = fold else { continue };
            let guard = ReadGuard::begin(self);
            let Fold {
                slot,
                uid,
                data_version,
                block,
                sources,
            } = fold;
            let data = gather(&self.device, sources).await;
            drop(guard);
            // Unreadable: the patches stay, and so does the error for who reads the block.
            let Ok(data) = data else { continue };
            let mut contents = data.to_contiguous().to_vec();
            contents.resize(BLOCK_LEN as usize, 0);
            let mut core = self.core.borrow_mut();
            if core.finish_fold(slot, uid, data_version, block, contents.into()) {
                drop(core);
                self.work.notify_all();
            }
        }
    }
}

impl Core {
    fn next_fold(&mut self) -> Option<Fold> {
        let (cid, oid, uid, block) = self.to_fold.pop_front()?;
        let slot = self.state.lookup(&cid, &oid)?;
        let onode = self.state.onode(slot).filter(|o| o.uid == uid)?;
        if onode.patch_cost(block) == 0 {
            return None;
        }
        let start = block * BLOCK_LEN;
        let len = BLOCK_LEN.min(onode.size.saturating_sub(start));
        let sources = self.sources(onode, start, len);
        Some(Fold {
            slot,
            uid,
            data_version: onode.data_version,
            block,
            sources,
        })
    }

    /// Puts the folded block in place, if the object's data has not changed since. True if there
    /// is something to commit.
    fn finish_fold(
        &mut self,
        slot: super::state::Slot,
        uid: u64,
        data_version: u64,
        block: u64,
        contents: Bytes,
    ) -> bool {
        let Some(onode) = self.state.onode(slot).filter(|o| o.uid == uid) else {
            return false;
        };
        if onode.data_version != data_version {
            self.to_fold
                .push_back((onode.cid, onode.oid.clone(), uid, block));
            return false;
        }
        if self.failed.is_some() || self.closing || self.alloc.free() < 8 {
            return false;
        }
        self.select(slot);
        self.write_whole(slot, &[(block, contents)], 0);
        self.pending.transactions += 1;
        let freed = std::mem::take(&mut self.state.space.freed);
        self.pending.freed.extend(freed);
        true
    }
}
