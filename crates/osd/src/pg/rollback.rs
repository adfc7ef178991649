//! Undoing log entries on a shard: each entry of an erasure coded PG says how (`mod_desc`), and what
//! it needs for that is kept under a generation of the object until the entry cannot be undone any
//! more (`PGBackend::rollback` and `trim` in `src/osd/PGBackend.cc` at v16.2).
//!
//! | step | undone | no longer needed |
//! |---|---|---|
//! | `Append(size)` | truncated to the chunk of an object of `size` bytes | |
//! | `SetAttrs` | put back | |
//! | `Delete(g)`, `TryDelete(g)` | the object becomes what generation `g` is | generation `g` removed |
//! | `Create` | removed | |
//! | `RollbackExtents(g, ranges)` | ranges put back from generation `g`, which goes | generation `g` removed |
//! | `UpdateSnaps` | the snap mapper's rows put back, after the transaction | |

use std::rc::Rc;

use store::{CollId, Transaction};
use types::osd::PgLogEntry;
use types::osd::mod_desc::RollbackOp;
use types::{GhObject, HObject};

use super::Pg;

/// Where a shard keeps its objects.
pub(crate) struct ShardPlace<'a> {
    /// Its collection.
    pub(crate) cid: &'a CollId,
    /// Its number.
    pub(crate) shard: i8,
    /// Length of a chunk of an object of some length.
    pub(crate) chunk_len: &'a dyn Fn(u64) -> u64,
}

impl ShardPlace<'_> {
    fn object(&self, oid: &HObject) -> GhObject {
        GhObject { shard: self.shard, ..GhObject::from(oid.clone()) }
    }

    fn kept(&self, oid: &HObject, generation: u64) -> GhObject {
        GhObject { generation, ..self.object(oid) }
    }

    fn steps(e: &PgLogEntry) -> Vec<RollbackOp> {
        e.mod_desc.steps().unwrap_or_else(|error| {
            tracing::error!(oid = %e.soid, version = %e.version, "how to undo: {error}");
            Vec::new()
        })
    }

    /// Makes the object what it was before the entry. The entries above it have been undone.
    pub(crate) fn undo(&self, e: &PgLogEntry, t: &mut Transaction) {
        let (cid, oid) = (self.cid, self.object(&e.soid));
        for step in Self::steps(e).into_iter().rev() {
            match step {
                RollbackOp::Append(size) => {
                    t.truncate(cid, &oid, (self.chunk_len)(size));
                }
                RollbackOp::SetAttrs(attrs) => {
                    for (name, value) in attrs {
                        match value {
                            Some(value) => t.setattr(cid, &oid, name, value),
                            None => t.rmattr(cid, &oid, name),
                        };
                    }
                }
                RollbackOp::Delete(generation) => {
                    t.remove(cid, &oid);
                    t.coll_move_rename(cid, &self.kept(&e.soid, generation), cid, &oid);
                }
                RollbackOp::TryDelete(generation) => {
                    t.remove(cid, &oid);
                    t.try_rename(cid, &self.kept(&e.soid, generation), &oid);
                }
                RollbackOp::Create => {
                    t.remove(cid, &oid);
                }
                RollbackOp::RollbackExtents(generation, ranges) => {
                    let kept = self.kept(&e.soid, generation);
                    for (offset, len) in ranges {
                        t.clone_range(cid, &kept, &oid, offset, len, offset);
                    }
                    t.remove(cid, &kept);
                }
                RollbackOp::UpdateSnaps(_) => {}
            }
        }
    }

    /// Removes what was kept to undo the entry.
    pub(crate) fn trim(&self, e: &PgLogEntry, t: &mut Transaction) {
        for step in Self::steps(e) {
            match step {
                RollbackOp::Delete(generation)
                | RollbackOp::TryDelete(generation)
                | RollbackOp::RollbackExtents(generation, _) => {
                    t.remove(self.cid, &self.kept(&e.soid, generation));
                }
                _ => {}
            }
        }
    }
}

impl Pg {
    pub(super) fn undo_entry(&self, e: &PgLogEntry, t: &mut Transaction) {
        self.with_place(|place| place.undo(e, t));
    }

    pub(super) fn trim_entry(&self, e: &PgLogEntry, t: &mut Transaction) {
        self.with_place(|place| place.trim(e, t));
    }

    /// Makes the snap mapper know the snapshots of clones whose trimming has been undone.
    pub(super) async fn put_snaps_back(&self, undone: &[Rc<PgLogEntry>]) {
        for e in undone.iter().filter(|e| e.soid.is_snap()) {
            for step in ShardPlace::steps(e) {
                let RollbackOp::UpdateSnaps(snaps) = step else { continue };
                let mut t = Transaction::new();
                if self.host.snap_mapper().update(&e.soid, snaps, &mut t).await.is_ok()
                    && let Err(error) = self.host.store().submit(t).await
                {
                    self.host.store_failed(&error);
                    return;
                }
            }
        }
    }

    fn with_place(&self, f: impl FnOnce(ShardPlace<'_>)) {
        let codec = self.codec();
        let chunk_len = |size| codec.as_ref().map_or(size, |codec| codec.chunk_len(size));
        f(ShardPlace { cid: &self.cid, shard: self.pgid.shard, chunk_len: &chunk_len });
    }
}
