//! Recovery by log: objects that the missing sets name are pulled to the primary and pushed to
//! its followers, in chunks: of an object whose old version is there only what has changed.
//!
//! ```text
//!   own missing:   Pull -> source, Push <- ..., again until complete; applied in one transaction
//!   peer missing:  Push -> peer, PushReply <- when durable there; RecoveryDelete for deletions
//! ```
//!
//! One task a PG and interval gets slots ([`super::reserve`]) and picks objects
//! ([`Pg::kick_recovery`]); one task an object moves it under the object's read lock, so writes wait and reads go on. A head is recovered before its
//! clones, since it holds the snap set. Objects that ops wait for go first and need no slot.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use bytes::{Bytes, BytesMut};
use command::Formatter;
use denc::Denc;
use env::sync::{Notify, Permit, Sender, oneshot};
use maps::osdmap::osdmap_flags;
use messages::{
    MOSDPGPull, MOSDPGPush, MOSDPGPushReply, MOSDPGRecoveryDelete, MOSDPGRecoveryDeleteReply,
    Message,
};
use store::{StoreError, Transaction};
use types::osd::{
    ObjectInfo, ObjectRecoveryInfo, ObjectRecoveryProgress, PullOp, PushOp, PushReplyOp, SnapSet,
};
use types::{EVersion, HObject, IntervalSet, OsdId, PgShard};

use super::Pg;
use super::backfill::Backfill;
use super::extents;
use super::peering::Peering;
use super::reserve::{Phase, Purpose, Reserved};
use crate::ops::LockKind;
use crate::ops::object_context::{OI_ATTR, SS_ATTR};
use crate::osd::mclock::Class;

/// An object on its way to us.
struct Pull {
    from: PgShard,
    need: EVersion,
    /// What of it, as the source is told with every chunk asked for.
    info: ObjectRecoveryInfo,
    /// An older version than the one that is missing: it stays missing.
    older: bool,
    /// Completed with whether the object is here.
    done: Sender<bool>,
}

/// An object on its way from us: when the peer has the chunk durable.
type Pushes = BTreeMap<(PgShard, HObject), Sender<()>>;

/// Recovery of one PG in one interval.
#[derive(Default)]
pub struct Recovery {
    running: Cell<bool>,
    /// Objects being moved; bounded by osd_recovery_max_active and the ops that wait.
    active: RefCell<BTreeSet<HObject>>,
    pulls: RefCell<BTreeMap<HObject, Pull>>,
    pushes: RefCell<Pushes>,
    /// Nobody known has them. Asked for again when a peer tells more.
    pub(super) unfound: RefCell<BTreeSet<HObject>>,
    /// Half-received objects.
    temps: RefCell<BTreeSet<HObject>>,
    pub(super) changed: Rc<Notify>,
    pub(super) backfill: Backfill,
}

impl Recovery {
    /// The interval ended.
    pub(super) fn reset(&self) {
        self.running.set(false);
        self.active.borrow_mut().clear();
        self.pulls.borrow_mut().clear();
        self.pushes.borrow_mut().clear();
        self.unfound.borrow_mut().clear();
        self.backfill.reset();
        self.changed.notify_all();
    }

    /// Whether a write of `oid` is to be sent whole to a follower, or its log entry alone.
    pub(super) fn should_send(&self, core: &Peering, to: PgShard, oid: &HObject) -> bool {
        let last_backfill = core.peer_info.get(&to).map(|i| &i.last_backfill);
        match last_backfill {
            Some(last) if oid > last => {
                self.backfill.has_passed(oid) && !env::mutant("backfill-blind")
            }
            _ => true,
        }
    }

    /// Backfill will bring this new clone.
    pub(super) fn add_clone(&self, clone: &HObject) {
        self.backfill.add_clone(clone);
    }

    /// Whether backfill holds the object (its lock does).
    pub(super) fn is_backfilling(&self, _: &HObject) -> bool {
        false
    }

    /// Which member with this OSD an answer about an object is awaited from.
    pub(super) fn awaited(&self, osd: OsdId, oid: &HObject) -> Option<PgShard> {
        let pushes = self.pushes.borrow();
        pushes.keys().find(|(from, of)| from.osd == osd && of == oid).map(|(from, _)| *from)
    }

    /// A chunk of ours that we compute ourselves: it is taken as if we had pulled it from us.
    pub(super) fn expect_own(&self, oid: &HObject, whoami: PgShard, need: EVersion, first: bool) {
        if first {
            let (done, _) = oneshot();
            let info = ObjectRecoveryInfo::default();
            let pull = Pull { from: whoami, need, info, older: false, done };
            self.pulls.borrow_mut().insert(oid.clone(), pull);
        }
    }

    /// A place for a peer's answer about an object.
    pub(super) fn expect_answer(&self, from: PgShard, oid: HObject) -> env::sync::Receiver<()> {
        let (done, answered) = oneshot();
        self.pushes.borrow_mut().insert((from, oid), done);
        answered
    }

    /// Whether something is being moved.
    pub fn is_active(&self) -> bool {
        self.running.get() || !self.active.borrow().is_empty()
    }

    /// Number of objects being moved.
    pub fn active_len(&self) -> usize {
        self.active.borrow().len()
    }

    /// `recovery_progress` of a query but for the targets.
    pub(super) fn dump_progress(&self, f: &mut Formatter) {
        let pushes = self.pushes.borrow();
        let ended = || pushes.keys().filter(|(_, oid)| oid.is_max());
        f.array("waiting_on_backfill", |f| ended().for_each(|(s, _)| f.dump_stream("osd", s)));
        self.backfill.dump(f);
        f.array("recovering", |f| {
            self.active.borrow().iter().for_each(|oid| f.dump_stream("object", oid));
        });
        f.object("pg_backend", |f| {
            f.array("pull_from_peer", |f| {
                for (oid, pull) in &*self.pulls.borrow() {
                    f.object("pull", |f| {
                        f.dump_stream("pull_from", pull.from);
                        f.dump_stream("soid", oid);
                    });
                }
            });
            f.array("pushing", |f| {
                for (to, oid) in pushes.keys().filter(|(_, oid)| !oid.is_max()) {
                    f.object("push", |f| {
                        f.dump_stream("pushing_to", to);
                        f.dump_stream("soid", oid);
                    });
                }
            });
        });
    }

    /// Number of objects nobody has.
    pub fn unfound_len(&self) -> usize {
        self.unfound.borrow().len()
    }

}

/// How moving one object ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Moved {
    Done,
    Unfound,
    Failed,
}

/// What is read of an object to push a chunk of it.
struct Chunk {
    op: PushOp,
    complete: bool,
}

impl Pg {
    fn may_recover(&self) -> bool {
        let map = self.map.borrow();
        !map.has_flag(osdmap_flags::NORECOVER) && self.core.borrow().is_activated()
    }

    /// Starts recovery if there is something to recover.
    pub(crate) fn kick_recovery(&self) {
        self.fail_pulls_from_down();
        if !self.may_recover() || self.recovery.running.get() {
            self.recovery.changed.notify_all();
            return;
        }
        if self.core.borrow().is_recovered() {
            self.step(|core, _, now, out| core.on_recovered(now, out));
            return;
        }
        self.recovery.running.set(true);
        self.host.env().go(run(self.rc(), self.generation.get()));
    }

    /// Gives a slot back, after osd_recovery_sleep: clients go first.
    pub(super) fn rest(&self, slot: impl Sized + 'static) {
        let sleep = self.host.recovery_limits().sleep;
        if sleep.is_zero() {
            return;
        }
        let env = self.host.env().clone();
        self.host.env().go(async move {
            env.sleep(sleep).await;
            drop(slot);
        });
    }

    fn fail_pulls_from_down(&self) {
        let map = self.map.borrow().clone();
        self.recovery.pulls.borrow_mut().retain(|_, pull| map.is_up(pull.from.osd));
        self.shards.forget_down(|osd| map.is_up(osd));
    }

    /// An op waits for the object.
    pub(super) fn recover_first(&self, oid: HObject) {
        let missing = {
            let core = self.core.borrow();
            core.missing.contains(&oid) || core.peer_missing.values().any(|m| m.contains(&oid))
        };
        if !missing {
            // It has been recovered between the check and now.
            let (pg, generation) = (self.rc(), self.generation.get());
            self.host.env().go(async move {
                if generation == pg.generation.get() {
                    pg.requeue_for(&oid);
                }
            });
            return;
        }
        if self.may_recover() {
            self.start_object(oid, None);
        }
    }

    /// Moves an object. What clients wait for needs no slot of the OSD's.
    fn start_object(&self, oid: HObject, slot: Option<Permit>) {
        if !self.recovery.active.borrow_mut().insert(oid.clone()) {
            return;
        }
        self.host.env().go(recover(self.rc(), oid, slot, self.generation.get()));
    }

    /// The next object to move that is not being moved.
    fn next_object(&self) -> Option<HObject> {
        let core = self.core.borrow();
        let active = self.recovery.active.borrow();
        let unfound = self.recovery.unfound.borrow();
        let free = |oid: &&HObject| !active.contains(*oid) && !unfound.contains(*oid);
        if let Some(oid) = core.missing.in_version_order().find(free) {
            return Some(oid.clone());
        }
        core.acting_backfill
            .iter()
            .filter_map(|s| core.peer_missing.get(s))
            .find_map(|missing| missing.in_version_order().find(free).cloned())
    }

    async fn move_object(self: &Rc<Pg>, oid: &HObject, generation: u64) -> Moved {
        // The snap set of a clone is in its head.
        if oid.is_snap() {
            let head = oid.head();
            let lacks_head = {
                let core = self.core.borrow();
                core.missing.contains(&head)
                    || core.peer_missing.values().any(|m| m.contains(&head))
            };
            if lacks_head {
                if !self.recovery.active.borrow().contains(&head) {
                    self.start_object(head.clone(), None);
                }
                while self.recovery.active.borrow().contains(&head) {
                    self.recovery.changed.notified().await;
                    if generation != self.generation.get() {
                        return Moved::Failed;
                    }
                }
            }
        }
        if self.is_erasure() {
            return self.move_shards(oid, generation).await;
        }
        let item = self.core.borrow().missing.get(oid).cloned();
        if let Some(item) = item {
            let moved = if item.is_delete {
                self.delete_here(oid, item.need).await
            } else {
                self.pull(oid, item.need).await
            };
            if moved != Moved::Done || generation != self.generation.get() {
                return moved;
            }
        }
        let peers: Vec<(PgShard, EVersion, bool)> = {
            let core = self.core.borrow();
            core.acting_backfill
                .iter()
                .filter_map(|s| Some((*s, core.peer_missing.get(s)?.get(oid)?)))
                .map(|(s, item)| (s, item.need, item.is_delete))
                .collect()
        };
        if peers.is_empty() {
            return Moved::Done;
        }
        let guard = self.contexts.lock(&oid.head(), LockKind::Read).await;
        for (peer, need, delete) in peers {
            if generation != self.generation.get() {
                return Moved::Failed;
            }
            let ok = if delete {
                self.delete_there(oid, need, peer).await
            } else {
                self.push(oid, peer).await
            };
            if !ok || generation != self.generation.get() {
                return Moved::Failed;
            }
            self.on_peer_has(oid, peer);
        }
        drop(guard);
        Moved::Done
    }

    pub(super) fn on_peer_has(&self, oid: &HObject, peer: PgShard) {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let Some(missing) = core.peer_missing.get_mut(&peer) else { return };
        missing.remove(oid);
        if missing.is_empty()
            && let Some(info) = core.peer_info.get_mut(&peer)
        {
            info.last_complete = info.last_update;
        }
    }

    pub(super) async fn delete_here(&self, oid: &HObject, need: EVersion) -> Moved {
        let mut t = Transaction::new();
        t.remove(&self.cid, &self.goid(oid));
        self.note_recovered(oid, need);
        self.write_dirty(&mut t);
        self.contexts.forget(oid);
        let committed = self.host.store().submit(t);
        self.unmap_snaps(std::slice::from_ref(oid)).await;
        match committed.await {
            Ok(()) => Moved::Done,
            Err(e) => {
                self.host.store_failed(&e);
                Moved::Failed
            }
        }
    }

    /// The object is here in the version needed: to be written with the same transaction.
    fn note_recovered(&self, oid: &HObject, version: EVersion) {
        let mut core = self.core.borrow_mut();
        core.missing.got(oid, version);
        core.update_last_complete();
        core.mark_dirty_info();
    }

    async fn pull(&self, oid: &HObject, need: EVersion) -> Moved {
        loop {
            let source = self.core.borrow().sources(oid, need).into_iter().next();
            let Some(from) = source else { return Moved::Unfound };
            let (done, arrived) = oneshot();
            let (info, progress) = extents::wanted(oid, need, self.core.borrow().missing.get(oid));
            let pull = Pull { from, need, info: info.clone(), older: false, done };
            self.recovery.pulls.borrow_mut().insert(oid.clone(), pull);
            self.send_pull(from, info, progress);
            match arrived.await {
                Ok(true) => return Moved::Done,
                // It is not there: ask the next.
                Ok(false) => {
                    let mut core = self.core.borrow_mut();
                    let missing = core.peer_missing.entry(from).or_default();
                    missing.add(oid, need, EVersion::ZERO, false);
                }
                // The source went down, or the interval ended.
                Err(_) => return Moved::Failed,
            }
        }
    }

    /// Gets a version of an object that is older than the one that is missing, to go back to it.
    pub(super) async fn fetch_older(&self, oid: &HObject, version: EVersion, from: PgShard) -> bool {
        let (done, arrived) = oneshot();
        let (info, progress) = extents::wanted(oid, version, None);
        let pull = Pull { from, need: version, info: info.clone(), older: true, done };
        self.recovery.pulls.borrow_mut().insert(oid.clone(), pull);
        self.send_pull(from, info, progress);
        arrived.await == Ok(true)
    }

    fn send_pull(
        &self,
        to: PgShard,
        recovery_info: ObjectRecoveryInfo,
        progress: ObjectRecoveryProgress,
    ) {
        let (map_epoch, min_epoch) = self.epochs();
        let pull = PullOp {
            soid: recovery_info.soid.clone(),
            recovery_info,
            recovery_progress: progress,
        };
        let message = MOSDPGPull {
            from: self.whoami(),
            pgid: self.pgid_at(to),
            map_epoch,
            min_epoch,
            pulls: vec![pull],
            cost: self.host.recovery_limits().chunk,
        };
        self.host.send_osd(to.osd, Message::encode(&message));
    }

    pub(super) fn epochs(&self) -> (u32, u32) {
        let core = self.core.borrow();
        (core.epoch, core.last_peering_reset)
    }

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
        if oid.is_snap() {
            info.clone_subset = self.clone_sources(oid, peer).await;
        }
        loop {
            let chunk = match self.read_chunk(oid, &info, &progress).await {
                Ok(chunk) => chunk,
                Err(StoreError::NoObject) => {
                    return self.delete_there(oid, EVersion::ZERO, peer).await;
                }
                Err(e) => {
                    tracing::error!(pg = %self.pgid, %oid, "cannot read to push: {e:?}");
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
                is_repair: false,
                cost: bytes,
            };
            self.host.send_osd(peer.osd, Message::encode(&message));
            if answered.await.is_err() {
                return false;
            }
            self.host.counters().count_recovered(bytes);
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
        let (Some(info), Some(missing)) =
            (core.peer_info.get(&peer), core.peer_missing.get(&peer))
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

    /// Our copy cannot be read: it is fetched from another before it is pushed on.
    async fn repair_own(&self, oid: &HObject) {
        let store = self.host.store();
        let attr = store.getattr(&self.cid, &self.goid(oid), OI_ATTR).await;
        if let Ok(oi) = attr.map_err(|_| ()).and_then(|b| ObjectInfo::from_bytes(&b).map_err(|_| ())) {
            self.repair_unreadable(oid, oi.version);
        }
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
        let mut attrset = BTreeMap::new();
        let mut omap_header = Bytes::new();
        let (mut oi, mut ss) = (ObjectInfo::default(), SnapSet::default());
        if progress.first {
            attrset = store.getattrs(&self.cid, &goid).await?.into_iter().collect();
            if !progress.omap_complete {
                omap_header = store.omap_header(&self.cid, &goid).await?;
            }
            if let Some(bytes) = attrset.get(&BString::from(OI_ATTR)) {
                oi = ObjectInfo::from_bytes(bytes).unwrap_or_default();
            }
            ss = self.snapset_of(oid, attrset.get(&BString::from(SS_ATTR))).await;
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
            data.extend_from_slice(&store.read(&self.cid, &goid, offset, len).await?.to_contiguous());
            included.insert(offset, len);
        }
        let data_complete = copy_subset.range_end().is_none_or(|end| data_to >= end);
        let mut after = ObjectRecoveryProgress {
            first: false,
            data_complete,
            data_recovered_to: data_to,
            omap_recovered_to: progress.omap_recovered_to.clone(),
            omap_complete: progress.omap_complete,
            ..ObjectRecoveryProgress::default()
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

    /// Somebody pushes: the primary to us, or a source that we pull from.
    pub fn on_push(&self, m: MOSDPGPush) {
        if m.map_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(async move {
            let mut replies = Vec::new();
            for op in m.pushes {
                let soid = op.soid.clone();
                if !pg.take_push(m.from, op, generation).await {
                    return;
                }
                replies.push(PushReplyOp { soid });
            }
            if generation != pg.generation.get() || pg.core.borrow().is_primary() {
                return;
            }
            let (map_epoch, min_epoch) = pg.epochs();
            let reply = MOSDPGPushReply {
                from: pg.whoami(),
                pgid: pg.pgid_at(m.from),
                map_epoch,
                min_epoch,
                replies,
                cost: 0,
            };
            pg.host.send_osd(m.from.osd, Message::encode(&reply));
        });
    }

    /// Applies a chunk. `false` when it does not matter any more.
    pub(super) async fn take_push(&self, from: PgShard, op: PushOp, generation: u64) -> bool {
        let oid = op.soid.clone();
        let pulling = self.core.borrow().is_primary();
        if pulling {
            let need = match self.recovery.pulls.borrow().get(&oid) {
                Some(pull) if pull.from == from => pull.need,
                _ => return false,
            };
            if op.before_progress.first && op.version != need {
                // Not there, or not in the version needed.
                if let Some(pull) = self.recovery.pulls.borrow_mut().remove(&oid) {
                    pull.done.send(false);
                }
                return true;
            }
        }
        let complete = op.after_progress.data_complete && op.after_progress.omap_complete;
        let mut ss = op.recovery_info.ss.clone();
        if pulling && oid.is_snap() {
            ss = self.snapset_of(&oid, None).await;
            if generation != self.generation.get() {
                return false;
            }
        }
        let mut t = Transaction::new();
        if complete && oid.is_snap() {
            let snaps = ss.clone_snaps.get(&oid.snap).cloned().unwrap_or_default();
            let snaps: BTreeSet<u64> = snaps.into_iter().collect();
            if let Err(e) = self.host.snap_mapper().update(&oid, snaps, &mut t).await {
                self.host.store_failed(&e);
                return false;
            }
            if generation != self.generation.get() {
                return false;
            }
        }
        let target = self.goid(&oid);
        let whole = op.before_progress.first && complete;
        let temp_oid = oid.make_temp(format!("temp_recovering_{}_{}", self.pgid, oid));
        let into = if whole { target.clone() } else { self.goid(&temp_oid) };
        let info = &op.recovery_info;
        if op.before_progress.first {
            if info.object_exist {
                // What has not changed is kept.
                if !whole {
                    t.remove(&self.cid, &into);
                    t.clone_object(&self.cid, &target, &into);
                }
                if !op.before_progress.omap_complete {
                    t.omap_clear(&self.cid, &into);
                }
                t.rmattrs(&self.cid, &into);
            } else {
                t.remove(&self.cid, &into);
                t.touch(&self.cid, &into);
            }
            let size = self.codec().map_or(info.size, |codec| codec.chunk_len(info.size));
            t.truncate(&self.cid, &into, size);
            if !op.before_progress.omap_complete
                && (info.object_exist || !op.omap_header.is_empty())
            {
                t.omap_setheader(&self.cid, &into, op.omap_header.clone());
            }
            for (source, ranges) in &info.clone_subset {
                for (offset, len) in ranges.iter() {
                    let source = self.goid(source);
                    t.clone_range(&self.cid, &source, &into, offset, len, offset);
                }
            }
            t.setattrs(&self.cid, &into, op.attrset.clone());
            if !whole {
                self.recovery.temps.borrow_mut().insert(temp_oid.clone());
            }
        }
        let mut at = 0;
        for (offset, len) in op.data_included.iter() {
            let end = (at + len as usize).min(op.data.len());
            t.write(&self.cid, &into, offset, op.data.slice(at..end));
            at = end;
        }
        if !op.omap_entries.is_empty() {
            t.omap_setkeys(&self.cid, &into, op.omap_entries.clone());
        }
        if complete {
            if !whole {
                t.remove(&self.cid, &target);
                t.coll_move_rename(&self.cid, &into, &self.cid, &target);
                self.recovery.temps.borrow_mut().remove(&temp_oid);
            }
            let version =
                if whole { op.version } else { op.recovery_info.version.max(op.version) };
            let older = self.recovery.pulls.borrow().get(&oid).is_some_and(|pull| pull.older);
            if pulling && older {
                let mut core = self.core.borrow_mut();
                core.missing.revise_have(&oid, version);
                core.mark_dirty_info();
            } else {
                let need = self.core.borrow().missing.get(&oid).map(|i| i.need);
                self.note_recovered(&oid, need.map_or(version, |need| need.max(version)));
            }
            self.contexts.forget(&oid);
            self.write_dirty(&mut t);
        }
        let committed = self.host.store().submit(t);
        if let Err(e) = committed.await {
            self.host.store_failed(&e);
            return false;
        }
        if generation != self.generation.get() {
            return false;
        }
        if pulling {
            self.count_pulled(op.data.len() as u64, complete);
            if complete {
                if let Some(pull) = self.recovery.pulls.borrow_mut().remove(&oid) {
                    pull.done.send(true);
                }
            } else {
                let info = self.recovery.pulls.borrow().get(&oid).map(|p| p.info.clone());
                if let Some(info) = info
                    && from != self.whoami()
                {
                    self.send_pull(from, info, op.after_progress);
                }
            }
        }
        true
    }

    fn count_pulled(&self, bytes: u64, complete: bool) {
        self.host.counters().count_recovered(bytes);
        let mut core = self.core.borrow_mut();
        let sum = &mut core.info.stats.stats.sum;
        sum.num_bytes_recovered += bytes as i64;
        sum.num_objects_recovered += i64::from(complete);
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
                    // A push without a version says that it is not here.
                    Err(_) => PushOp {
                        soid: pull.soid,
                        before_progress: pull.recovery_progress,
                        ..PushOp::default()
                    },
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

    /// The primary says that these objects are to be gone.
    pub fn on_recovery_delete(&self, m: MOSDPGRecoveryDelete) {
        if m.map_epoch < self.core.borrow().last_peering_reset {
            return;
        }
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(async move {
            for (oid, version) in &m.objects {
                let need = pg.core.borrow().missing.get(oid).map_or(*version, |i| i.need);
                if pg.delete_here(oid, need).await != Moved::Done {
                    return;
                }
            }
            if generation != pg.generation.get() {
                return;
            }
            let (map_epoch, min_epoch) = pg.epochs();
            let reply = MOSDPGRecoveryDeleteReply {
                pgid: pg.pgid_at(m.from),
                map_epoch,
                min_epoch,
                objects: m.objects,
                from: pg.whoami(),
            };
            pg.host.send_osd(m.from.osd, Message::encode(&reply));
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

    /// A peer told more of what it has: what was unfound may be found.
    pub(crate) fn retry_unfound(&self) {
        if !self.recovery.unfound.borrow().is_empty() {
            self.recovery.unfound.borrow_mut().clear();
            self.kick_recovery();
        }
    }

    /// Half-received objects of an interval that ended.
    pub(super) fn drop_temps(&self, t: &mut Transaction) {
        for oid in std::mem::take(&mut *self.recovery.temps.borrow_mut()) {
            t.remove(&self.cid, &self.goid(&oid));
        }
    }
}

async fn recover(pg: Rc<Pg>, oid: HObject, slot: Option<Permit>, generation: u64) {
    if generation != pg.generation.get() {
        return;
    }
    let moved = pg.move_object(&oid, generation).await;
    if let Some(slot) = slot {
        pg.rest(slot);
    }
    if generation != pg.generation.get() {
        return;
    }
    pg.recovery.active.borrow_mut().remove(&oid);
    match moved {
        Moved::Done => pg.requeue_for(&oid),
        Moved::Unfound => {
            pg.recovery.unfound.borrow_mut().insert(oid);
            pg.step(|core, _, now, out| core.discover_missing(now, out));
        }
        Moved::Failed => {
            // Not in a tight loop: the reason is a peer that is going down, or a bad disk.
            pg.host.env().sleep(RETRY_PAUSE).await;
        }
    }
    pg.recovery.changed.notify_all();
    if !pg.recovery.running.get() {
        pg.kick_recovery();
    }
}

/// Pause before what failed is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Recovers, then backfills, each with the slots it needs, until there is nothing that can be done.
async fn run(pg: Rc<Pg>, generation: u64) {
    let alive = || generation == pg.generation.get();
    while alive()
        && let Some(purpose) = pg.next_purpose()
    {
        let reserved = pg.reserve_slots(purpose, generation).await;
        if !alive() {
            return;
        }
        let mut full = reserved == Reserved::TooFull;
        let mut done = false;
        if reserved == Reserved::Yes {
            done = match purpose {
                Purpose::Recovery => pg.recover_reserved(generation).await,
                Purpose::Backfill => pg.backfill(generation).await,
            };
            if !alive() {
                return;
            }
            full = pg.is_revoked_as_full();
        }
        let lost = !pg.is_reserved();
        pg.release_slots(purpose);
        let pause = match (full, done, lost) {
            (true, ..) => {
                pg.enter(Phase::TooFull);
                pg.host.recovery_limits().retry
            }
            // A slot was lost: back into the queue.
            (_, true, _) | (_, _, true) => Duration::ZERO,
            _ => RETRY_PAUSE,
        };
        if !pause.is_zero() {
            pg.host.env().sleep(pause).await;
        }
    }
    if !alive() {
        return;
    }
    pg.recovery.running.set(false);
    pg.enter(Phase::Idle);
    pg.step(|core, _, now, out| core.on_recovered(now, out));
    if pg.core.borrow().is_recovered() {
        pg.reservations.unforce();
        pg.update_stamps();
    }
}

impl Pg {
    /// What slots are to be asked for; `None` if nothing can be done now.
    fn next_purpose(&self) -> Option<Purpose> {
        if !self.may_recover() {
            return None;
        }
        if self.next_object().is_some() || !self.recovery.active.borrow().is_empty() {
            return Some(Purpose::Recovery);
        }
        let all_found = self.recovery.unfound.borrow().is_empty();
        (all_found && self.may_backfill()).then_some(Purpose::Backfill)
    }

    /// Lets others have the disk before the object is moved, as osd_op_queue says. It is not locked
    /// meanwhile.
    pub(super) async fn await_turn(&self, oid: &HObject) {
        let turns = self.host.turns();
        if !turns.are_given() {
            return;
        }
        let bytes = match self.host.store().stat(&self.cid, &self.goid(oid)).await {
            Ok(stat) => stat.size,
            // Not here: as large as others are.
            Err(_) => {
                let sum = &self.core.borrow().info.stats.stats.sum;
                sum.num_bytes.max(0).unsigned_abs() / sum.num_objects.max(1).unsigned_abs()
            }
        };
        turns.turn(Class::Recovery, bytes).await;
    }

    /// Recovers until nothing is missing that is to be found (`true`), or a slot is lost.
    async fn recover_reserved(self: &Rc<Pg>, generation: u64) -> bool {
        let alive = || generation == self.generation.get();
        let slots = self.host.recovery_slots().clone();
        while alive() && self.may_recover() && self.is_reserved() {
            if self.next_object().is_none() {
                if self.recovery.active.borrow().is_empty() {
                    return true;
                }
                self.recovery.changed.notified().await;
                continue;
            }
            let limits = self.host.recovery_limits();
            let mut slot = Some(slots.acquire(1).await);
            if !alive() || !self.is_reserved() {
                break;
            }
            // Other PGs have their turn after osd_recovery_max_single_start objects.
            for _ in 0..limits.single_start {
                let Some(slot) = slot.take().or_else(|| slots.try_acquire(1)) else { break };
                let Some(oid) = self.next_object() else { break };
                self.await_turn(&oid).await;
                // What is next may be another one by now.
                if !alive() || !self.is_reserved() {
                    break;
                }
                let Some(oid) = self.next_object() else { break };
                self.start_object(oid, Some(slot));
            }
        }
        // What is under way goes to its end with the slots it has.
        let idle = || self.recovery.active.borrow().is_empty();
        self.recovery.changed.until(|| !alive() || idle()).await;
        false
    }
}
