//! The PG as the op interpreter sees it.

use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use env::{Env, LocalFuture};
use futures_util::future::{Either, select};
use maps::PgPool;
use store::{CollId, ObjectStore};
use types::{
    EVersion, EntityAddr, EntityName, Epoch, Errno, GhObject, HObject, OsdReqId, SnapId, SpgId,
};

use super::Pg;
use crate::ops::{self, Limits, MissingObject, RemoteRead, RemoteReply};

impl ops::Pg for Pg {
    fn env(&self) -> &Env {
        self.host.env()
    }

    fn store(&self) -> &Rc<dyn ObjectStore> {
        self.host.store()
    }

    fn snap_mapper(&self) -> &ops::SnapMapper {
        self.host.snap_mapper()
    }

    fn coll(&self) -> CollId {
        self.cid
    }

    fn pgid(&self) -> SpgId {
        self.pgid
    }

    fn pool(&self) -> Rc<PgPool> {
        Pg::pool(self)
    }

    fn limits(&self) -> Rc<Limits> {
        self.host.limits()
    }

    fn last_update(&self) -> EVersion {
        self.core.borrow().info.last_update
    }

    fn interval_since(&self) -> Epoch {
        self.core.borrow().info.history.same_interval_since
    }

    fn is_snap_removed(&self, snap: SnapId) -> bool {
        let pool = self.pgid.pgid.pool_id();
        let queued = self
            .map
            .borrow()
            .removed_snaps_queue
            .get(&pool)
            .is_some_and(|removed| removed.contains(snap));
        queued || self.core.borrow().info.purged_snaps.contains(snap)
    }

    fn last_user_version(&self) -> u64 {
        self.core.borrow().info.last_user_version
    }

    fn read_shards(
        &self,
        oid: &HObject,
        offset: u64,
        len: u64,
    ) -> Option<LocalFuture<Result<Bytes, Errno>>> {
        if !self.is_erasure() {
            return None;
        }
        let (pg, oid) = (self.rc(), oid.clone());
        Some(Box::pin(async move { pg.read_stripes(&oid, offset, len).await }))
    }

    fn is_unreadable(&self, oid: &HObject) -> bool {
        self.core.borrow().missing.contains(oid) || !self.enough_have(oid)
    }

    fn is_degraded(&self, oid: &HObject) -> bool {
        let core = self.core.borrow();
        core.missing.contains(oid)
            || core
                .acting_backfill
                .iter()
                .any(|s| core.peer_missing.get(s).is_some_and(|missing| missing.contains(oid)))
            || self.recovery.is_backfilling(oid)
    }

    fn missing_from(&self, from: &HObject, max: usize) -> Vec<MissingObject> {
        let core = self.core.borrow();
        core.missing
            .range_from(from)
            .take(max)
            .map(|(oid, item)| MissingObject { oid: oid.clone(), is_delete: item.is_delete })
            .collect()
    }

    fn object_reqids(&self, oid: &HObject, max: usize) -> Vec<(OsdReqId, u64, i32)> {
        let core = self.core.borrow();
        core.log
            .of_object(oid)
            .filter(|e| e.reqid_is_indexed())
            .take(max)
            .map(|e| (e.reqid, e.user_version, e.return_code))
            .collect()
    }

    /// Ends with the interval: the op is run again then, and others wait for that.
    fn read_remote(&self, read: RemoteRead) -> LocalFuture<Result<RemoteReply, Errno>> {
        let (pg, generation) = (self.rc(), self.generation.get());
        Box::pin(async move {
            let ended = pg.interval_ended.until(|| generation != pg.generation.get());
            match select(pg.host.read_remote(read), pin!(ended)).await {
                Either::Left((reply, _)) => reply,
                Either::Right(_) => Err(Errno::EAGAIN),
            }
        })
    }

    fn scrub_results(&self) -> Option<GhObject> {
        self.scrub_results_object()
    }

    fn on_unreadable(&self, oid: &HObject, version: EVersion) -> bool {
        self.repair_unreadable(oid, version)
    }

    fn next_notify_id(&self) -> u64 {
        let n = self.notify_counter.get().wrapping_add(1);
        self.notify_counter.set(n);
        u64::from(self.epoch()) << 32 | u64::from(n)
    }

    fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        self.map.borrow().is_addr_blocklisted(addr)
    }

    fn on_watch_timeout(&self, oid: &HObject, cookie: u64, watcher: EntityName) {
        self.run_watch_timeout(oid.clone(), cookie, watcher);
    }
}
