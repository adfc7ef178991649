//! Objects on their way to others: what is read of them, chunk by chunk, and what is awaited of who
//! gets them (`recovery.rs` says which objects, and when).
//!
//! ```text
//!   Push ->, <- PushReply when it is durable there; RecoveryDelete ->, <- RecoveryDeleteReply
//!   <- Pull, Push ->: the primary lacks it and asks for one chunk after the other
//! ```

use std::collections::BTreeMap;

use bstr::BString;
use bytes::{Bytes, BytesMut};
use denc::Denc;
use env::sync::oneshot;
use messages::{
    MOSDPGPull, MOSDPGPush, MOSDPGPushReply, MOSDPGRecoveryDelete, MOSDPGRecoveryDeleteReply,
    Message,
};
use store::StoreError;
use types::osd::{ObjectInfo, ObjectRecoveryInfo, ObjectRecoveryProgress, PushOp, SnapSet};
use types::{EVersion, HObject, IntervalSet, PgShard};

use super::{Pg, extents};
use crate::ops::object_context::{OI_ATTR, SS_ATTR};

/// What is read of an object to push a chunk of it.
struct Chunk {
    op: PushOp,
    complete: bool,
}

impl Pg {
    pub(super) async fn delete_there(&self, oid: &HObject, need: EVersion, peer: PgShard) -> bool {
        let (map_epoch, min_epoch) = self.epochs();
        let (done, answered) = oneshot();
        self.recovery.pushes.borrow_mut().insert((peer, oid.clone()), done);
        let message = MOSDPGRecoveryDelete {
            from: self.whoami(),
            pgid: self.pgid_at(peer),
            map_epoch,
            min_epoch,
            cost: 0,
            objects: vec![(oid.clone(), need)],
        };
        self.host.send_osd(peer.osd, Message::encode(&message));
        answered.await.is_ok()
    }

    /// Pushes what the peer lacks of an object; the caller holds its lock. An object that does not
    /// exist is removed there.
    pub(super) async fn push(&self, oid: &HObject, peer: PgShard) -> bool {
        let (mut info, mut progress) = {
            let core = self.core.borrow();
            let item = core.peer_missing.get(&peer).and_then(|missing| missing.get(oid));
            extents::wanted(oid, EVersion::ZERO, item)
        };
        let generation = self.generation.get();
        if oid.is_snap() {
            info.clone_subset = self.clone_sources(oid, peer).await;
        }
        loop {
            let chunk = self.read_chunk(oid, &info, &progress).await;
            // Read in an interval that has ended: the next one's lock on the object is not ours, and what is
            // not there may have gone to another PG with a split.
            if generation != self.generation.get() {
                return false;
            }
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(StoreError::NoObject) => {
                    return self.delete_there(oid, EVersion::ZERO, peer).await;
                }
                Err(e) => {
                    tracing::error!(pg = %self.pgid, %oid, "cannot read to push: {e}");
                    self.repair_own(oid).await;
                    return false;
                }
            };
            let (map_epoch, min_epoch) = self.epochs();
            let (done, answered) = oneshot();
            self.recovery.pushes.borrow_mut().insert((peer, oid.clone()), done);
            progress = chunk.op.after_progress.clone();
            let bytes = chunk.op.data.len() as u64;
            let message = MOSDPGPush {
                from: self.whoami(),
                pgid: self.pgid_at(peer),
                map_epoch,
                min_epoch,
                pushes: vec![chunk.op],
                is_repair: self.scrub.is_repairing(),
                cost: bytes,
            };
            self.host.send_osd(peer.osd, Message::encode(&message));
            if answered.await.is_err() {
                return false;
            }
            self.host.counters().count_recovered(bytes, chunk.complete);
            let mut core = self.core.borrow_mut();
            let sum = &mut core.info.stats.stats.sum;
            sum.num_bytes_recovered += bytes as i64;
            if chunk.complete {
                sum.num_objects_recovered += 1;
                return true;
            }
        }
    }

    /// What a peer that is brought up by log can make of a clone out of what it has.
    async fn clone_sources(&self, oid: &HObject, peer: PgShard) -> BTreeMap<HObject, IntervalSet> {
        let ss = self.snapset_of(oid, None).await;
        let size = ss.clone_size.get(&oid.snap).copied().unwrap_or(0);
        let core = self.core.borrow();
        let (Some(info), Some(missing)) = (core.peer_info.get(&peer), core.peer_missing.get(&peer))
        else {
            return BTreeMap::new();
        };
        let has = |oid: &HObject| *oid <= info.last_backfill && !missing.contains(oid);
        // Backfill moves several objects of a kind at a time: their neighbours may not be there.
        if *oid > info.last_backfill {
            return BTreeMap::new();
        }
        extents::shared(oid, &ss, size, has)
    }

    /// Our copy cannot be read: it is fetched from another before it is pushed on. If nobody has it, it is unfound
    /// when it cannot be read a second time, either.
    pub(super) async fn repair_own(&self, oid: &HObject) {
        let generation = self.generation.get();
        let version = self.own_version(oid).await;
        if generation == self.generation.get()
            && !self.repair_unreadable(oid, version)
            && !self.recovery.unreadable.borrow_mut().insert(oid.clone())
        {
            self.lose_own(oid, version);
        }
    }

    /// The version that our copy says it has; zero if that cannot be read.
    pub(super) async fn own_version(&self, oid: &HObject) -> EVersion {
        let attr = self.host.store().getattr(&self.cid, &self.goid(oid), OI_ATTR).await;
        let oi = attr.ok().and_then(|bytes| ObjectInfo::from_bytes(&bytes).ok());
        oi.map_or(EVersion::ZERO, |oi| oi.version)
    }

    /// Reads the next chunk of what `info` asks for. A size that is not known yet is ours.
    async fn read_chunk(
        &self,
        oid: &HObject,
        info: &ObjectRecoveryInfo,
        progress: &ObjectRecoveryProgress,
    ) -> Result<Chunk, StoreError> {
        let limits = self.host.recovery_limits();
        let store = self.host.store();
        let goid = self.goid(oid);
        let size = store.stat(&self.cid, &goid).await?.size;
        let mut attrset: BTreeMap<_, _> =
            store.getattrs(&self.cid, &goid).await?.into_iter().collect();
        let attr = attrset.get(&BString::from(OI_ATTR)).ok_or(StoreError::NoAttr)?;
        // Nobody is given a damaged copy for a good one.
        let oi = ObjectInfo::from_bytes(attr).map_err(|_| StoreError::Format("object info"))?;
        // Each chunk says what it is of: the last one makes the object known.
        let ss = self.snapset_of(oid, attrset.get(&BString::from(SS_ATTR))).await;
        let mut omap_header = Bytes::new();
        if !progress.first {
            attrset.clear();
        } else if !progress.omap_complete {
            omap_header = store.omap_header(&self.cid, &goid).await?;
        }
        let whole = if size == 0 { IntervalSet::new() } else { IntervalSet::of(0, size) };
        let mut copy_subset = info.copy_subset.intersection(&whole);
        for shared in info.clone_subset.values() {
            copy_subset.subtract(shared);
        }
        let (ranges, data_to) =
            extents::next_ranges(&copy_subset, progress.data_recovered_to, limits.chunk);
        let mut included = IntervalSet::new();
        let mut data = BytesMut::new();
        for (offset, len) in ranges {
            data.extend_from_slice(
                &store.read(&self.cid, &goid, offset, len).await?.to_contiguous(),
            );
            included.insert(offset, len);
        }
        let data_complete = copy_subset.range_end().is_none_or(|end| data_to >= end);
        let mut after = ObjectRecoveryProgress {
            first: false,
            data_complete,
            data_recovered_to: data_to,
            omap_recovered_to: progress.omap_recovered_to.clone(),
            omap_complete: progress.omap_complete,
        };
        let mut omap_entries = BTreeMap::new();
        if !progress.omap_complete {
            let left = (limits.chunk as usize).saturating_sub(data.len()).max(64 << 10);
            let page = store
                .omap_range(
                    &self.cid,
                    &goid,
                    &progress.omap_recovered_to,
                    !progress.omap_recovered_to.is_empty(),
                    limits.omap_entries,
                    left,
                )
                .await?;
            if let Some((last, _)) = page.entries.last() {
                after.omap_recovered_to = last.clone();
            }
            after.omap_complete = !page.more;
            omap_entries = page.entries.into_iter().collect();
        }
        let complete = after.data_complete && after.omap_complete;
        let version = oi.version;
        Ok(Chunk {
            op: PushOp {
                soid: oid.clone(),
                version,
                data: data.freeze(),
                data_included: included,
                omap_header,
                omap_entries,
                attrset,
                recovery_info: ObjectRecoveryInfo {
                    soid: oid.clone(),
                    version,
                    size,
                    oi,
                    ss,
                    copy_subset,
                    clone_subset: info.clone_subset.clone(),
                    object_exist: info.object_exist,
                },
                after_progress: after,
                before_progress: progress.clone(),
            },
            complete,
        })
    }

    /// The snap set an object belongs to, empty if its head is not here.
    pub(super) async fn snapset_of(&self, oid: &HObject, attr: Option<&Bytes>) -> SnapSet {
        let bytes = match attr {
            Some(bytes) => Some(bytes.clone()),
            None if oid.is_snap() => {
                let head = self.goid(&oid.head());
                self.host.store().getattr(&self.cid, &head, SS_ATTR).await.ok()
            }
            None => None,
        };
        bytes.and_then(|b| SnapSet::from_bytes(&b).ok()).unwrap_or_default()
    }

    /// A peer has a chunk durable.
    pub fn on_push_reply(&self, m: MOSDPGPushReply) {
        if m.map_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        for reply in m.replies {
            self.answer_push(m.from, reply.soid);
        }
    }

    pub(super) fn answer_push(&self, from: PgShard, oid: HObject) {
        let waiting = self.recovery.pushes.borrow_mut().remove(&(from, oid));
        if let Some(done) = waiting {
            done.send(());
        }
    }

    /// The primary wants objects.
    pub fn on_pull(&self, m: MOSDPGPull) {
        if m.map_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(async move {
            let mut pushes = Vec::new();
            for pull in m.pulls {
                let (info, progress) = (&pull.recovery_info, &pull.recovery_progress);
                let chunk = pg.read_chunk(&pull.soid, info, progress).await;
                pushes.push(match chunk {
                    Ok(chunk) => chunk.op,
                    // A push without a version says that it is not here, whichever chunk was asked for.
                    Err(_) => PushOp { soid: pull.soid, ..PushOp::default() },
                });
            }
            if generation != pg.generation.get() {
                return;
            }
            let (map_epoch, min_epoch) = pg.epochs();
            let message = MOSDPGPush {
                from: pg.whoami(),
                pgid: pg.pgid_at(m.from),
                map_epoch,
                min_epoch,
                pushes,
                is_repair: false,
                cost: 0,
            };
            pg.host.send_osd(m.from.osd, Message::encode(&message));
        });
    }

    /// A peer has removed objects.
    pub fn on_recovery_delete_reply(&self, m: MOSDPGRecoveryDeleteReply) {
        if m.map_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        for (oid, _) in m.objects {
            self.answer_push(m.from, oid);
        }
    }
}
