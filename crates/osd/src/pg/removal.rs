//! Objects that are not to be here any more: divergent ones, those above a backfill's bound, and all
//! of a copy that goes.

use std::rc::Rc;

use store::{StoreError, Transaction};
use types::{GhObject, HObject};

use super::Pg;

/// What became of a copy that was to be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deleted {
    /// It is gone.
    All,
    /// Some of its objects are in its collection still, and no PG.
    Stopped,
    /// The store fails.
    Failed,
}

/// Objects removed at a time.
const REMOVE_BATCH: usize = 64;

impl Pg {
    /// Takes the rows of divergent clones out of the snap mapper. A row that survives its clone is
    /// found and dropped when its snapshot is trimmed; a clone that has been recovered meanwhile
    /// keeps its own.
    pub(super) async fn unmap_snaps(&self, removed: &[HObject]) {
        for oid in removed.iter().filter(|o| o.is_snap()) {
            let goid = self.goid(oid);
            let is_gone = async {
                let found = self.host.store().stat(&self.cid, &goid).await;
                matches!(found, Err(StoreError::NoObject))
            };
            // A row that cannot be read or removed is one that survives.
            let _ = self.host.snap_mapper().remove_of_gone(oid, is_gone).await;
        }
    }

    /// Removes all objects, batch by batch. `false` if something else has begun meanwhile.
    pub(crate) async fn remove_objects(&self, above: &HObject, generation: u64) -> bool {
        let start = if above.is_min() { GhObject::min() } else { self.goid(above) };
        loop {
            let store = self.host.store();
            let listed = store.list(&self.cid, &start, &GhObject::max(), REMOVE_BATCH).await;
            if self.generation.get() != generation {
                return false;
            }
            let objects = match listed {
                Ok(listing) => listing.objects,
                Err(e) => {
                    self.host.store_failed(&e);
                    return false;
                }
            };
            let objects: Vec<GhObject> =
                objects.into_iter().filter(|o| !o.is_pgmeta() && o.hobj > *above).collect();
            if objects.is_empty() {
                return true;
            }
            let mut t = Transaction::new();
            for oid in &objects {
                t.remove(&self.cid, oid);
                // The rows of a shard's clones are those of another shard's here too.
                if oid.hobj.is_snap() && !self.host.has_other_shard(self.pgid) {
                    let rows = self.host.snap_mapper().remove(&oid.hobj, &mut t).await;
                    if let Err(e) = rows {
                        self.host.store_failed(&e);
                        return false;
                    }
                }
            }
            if self.generation.get() != generation {
                return false;
            }
            if let Err(e) = store.submit(t).await {
                self.host.store_failed(&e);
                return false;
            }
        }
    }

    /// The PG has come back: what is left of the copy stays.
    pub(crate) fn stop_deletion(&self) {
        self.deletion_stopped.set(true);
        self.generation.set(self.generation.get() + 1);
    }

    /// How many bits of objects' hashes those of the collection share.
    pub(crate) fn collection_bits(&self) -> u32 {
        self.pgid.pgid.split_bits(self.pool().pg_num)
    }

    /// Takes the copy away: objects, then the collection.
    pub(crate) async fn delete(self: &Rc<Pg>) -> Deleted {
        self.deleting.set(true);
        self.on_interval_change();
        // It may have been stopped before it has begun.
        if !self.deletion_stopped.get() && self.delete_all().await {
            return Deleted::All;
        }
        if !self.deletion_stopped.get() {
            return Deleted::Failed;
        }
        // Without its info it is no copy: it is removed when the OSD starts, if nobody makes one of it.
        let mut t = Transaction::new();
        t.remove(&self.cid, &self.pgmeta);
        match self.host.store().submit(t).await {
            Ok(()) => Deleted::Stopped,
            Err(_) => Deleted::Failed,
        }
    }

    async fn delete_all(self: &Rc<Pg>) -> bool {
        let generation = self.generation.get();
        // What is left of it after a crash must not pass for a whole copy.
        let mut t = Transaction::new();
        {
            let mut core = self.core.borrow_mut();
            core.info.last_backfill = HObject::min();
            core.mark_dirty_info();
        }
        self.write_dirty(&mut t);
        if self.host.store().submit(t).await.is_err() {
            return false;
        }
        if !self.remove_objects(&HObject::min(), generation).await {
            return false;
        }
        let mut t = Transaction::new();
        t.remove(&self.cid, &self.pgmeta);
        t.rmcoll(&self.cid);
        self.host.store().submit(t).await.is_ok()
    }

    /// Takes away what is left of a copy whose deletion was stopped.
    pub(crate) async fn delete_rest(&self) -> bool {
        if !self.remove_objects(&HObject::min(), self.generation.get()).await {
            return false;
        }
        let mut t = Transaction::new();
        t.rmcoll(&self.cid);
        self.host.store().submit(t).await.is_ok()
    }
}
