//! Writes: from the primary to all copies, on replicas, and back.
//!
//! ```text
//! version, log -> store, MOSDRepOp -> local commit, and all replicas' -> whoever waits
//! ```
//!
//! A write is answered when every OSD in `acting_backfill` has it durable. Versions are given out
//! and submitted without an await in between, and whoever waits is told in the order of versions,
//! also where word of a later commit comes first: replies leave in that order.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use denc::Denc;
use env::LocalFuture;
use env::sync::{Receiver, Sender, oneshot};
use futures_util::FutureExt;
use futures_util::future::{self, Either};
use messages::{MOSDRepOp, MOSDRepOpReply, Message};
use smallvec::SmallVec;
use store::{StoreError, Transaction};
use types::osd::ops::message_flags;
use types::osd::{ObjectStatSum, PgLogEntry};
use types::{EVersion, Epoch, HObject, OsdReqId, PageSums, PgShard};

use super::persist::Keys;
use super::shards::Prepared;
use super::told_stats::{News, TAKES_ADDED};
use super::{ClientOp, Pg};
use crate::ops::{PendingWrite, watch};
use crate::osd::commits::{Commit, TOGETHER};

/// Members of a PG that a write goes to.
pub(super) type Followers = SmallVec<[PgShard; 4]>;

/// A write that is not durable everywhere yet.
pub struct RepOp {
    /// Version of its last entry.
    pub version: EVersion,
    /// Who has not committed.
    waiting: RefCell<Followers>,
    done: Cell<Option<Sender<()>>>,
    /// The same request, sent again meanwhile.
    pub(super) duplicates: RefCell<Vec<Box<ClientOp>>>,
    pub(super) reqid: OsdReqId,
}

impl RepOp {
    pub(super) fn take_duplicates(&self) -> Vec<Box<ClientOp>> {
        std::mem::take(&mut *self.duplicates.borrow_mut())
    }
}

/// Takes out the writes that are durable everywhere, up to the first that is not.
fn take_done(repops: &mut BTreeMap<u64, Rc<RepOp>>) -> SmallVec<[Rc<RepOp>; 1]> {
    let mut done = SmallVec::new();
    while let Some(oldest) = repops.first_entry() {
        if !oldest.get().waiting.borrow().is_empty() {
            break;
        }
        done.push(oldest.remove());
    }
    done
}

/// A primary's write that this copy has given to its store, and is to tell of when it is durable.
pub struct Submitted {
    pg: InStore,
    generation: u64,
    begun: Duration,
    committed: LocalFuture<Result<(), StoreError>>,
    from: PgShard,
    tid: u64,
    reqid: OsdReqId,
    /// Of the map, and of the interval's beginning.
    epochs: (Epoch, Epoch),
    last_complete: EVersion,
    /// The primary takes such news of many at once.
    together: bool,
}

/// A write of a PG that the store has not answered, as long as somebody waits for that.
struct InStore(Rc<Pg>);

impl InStore {
    fn new(pg: Rc<Pg>) -> InStore {
        pg.host.counters().unanswered.begin();
        InStore(pg)
    }
}

impl Drop for InStore {
    fn drop(&mut self) {
        self.0.host.counters().unanswered.end();
    }
}

impl Submitted {
    /// What the store says of it, when it does.
    pub(crate) fn committed(&mut self) -> impl Future<Output = Result<(), StoreError>> + Unpin {
        &mut self.committed
    }

    /// Tells the primary what the store said of it, unless the interval is over.
    pub(crate) fn tell(self, result: Result<(), StoreError>) {
        let Submitted { pg, from, tid, last_complete, epochs: (map_epoch, min_epoch), .. } = self;
        let pg = &pg.0;
        let took = pg.count_commit(self.begun);
        pg.host.counters().subop_w_latency.add(took);
        if let Err(e) = result {
            return pg.host.store_failed(&e);
        }
        if self.generation != pg.generation.get() {
            return;
        }
        let pgid = pg.pgid_at(from);
        if self.together {
            let commit = Commit { tid, pgid, map_epoch, last_complete, shard: pg.whoami().shard };
            return pg.host.tell_commit(from.osd, commit);
        }
        let reply = MOSDRepOpReply {
            map_epoch,
            min_epoch,
            reqid: self.reqid,
            pgid,
            ack_type: message_flags::ONDISK as u8 | TAKES_ADDED,
            result: 0,
            last_complete_ondisk: last_complete,
            from: pg.whoami(),
        };
        pg.host.send_osd(from.osd, reply.encode().with_tid(tid));
    }
}

/// What a write needs beyond its transaction.
pub(super) struct Change {
    pub(super) soid: HObject,
    pub(super) reqid: OsdReqId,
    pub(super) transaction: Transaction,
    pub(super) entries: Vec<PgLogEntry>,
    pub(super) user_version: u64,
    pub(super) stats: ObjectStatSum,
}

impl Pg {
    pub(super) fn next_version(&self) -> (EVersion, u64) {
        let core = self.core.borrow();
        let at = EVersion::new(core.epoch, core.log.head().version + 1);
        (at, core.info.last_user_version)
    }

    /// Gives a write its versions, submits it and sends it to the replicas. The future completes
    /// when it is durable everywhere, `false` if the interval ended first.
    fn submit(&self, change: Change) -> impl Future<Output = bool> + 'static {
        let Change { soid, reqid, mut transaction, entries, user_version, stats } = change;
        let tid = self.host.next_tid();
        let version = entries.last().map_or(EVersion::ZERO, |e| e.version);
        let (followers, trim_to, min_complete) = self.note_write(&entries, user_version, &stats);
        self.scrub.on_write(&soid, &entries, &stats);
        let wire = entries.to_bytes();
        self.send_to_replicas(
            tid,
            soid,
            reqid,
            &followers,
            &mut transaction,
            (&entries, &wire, &stats),
            (trim_to, min_complete),
        );
        let all = self.expect_commits(tid, version, reqid, followers);

        let mut borrowed = self.core.borrow_mut();
        let core = &mut *borrowed;
        core.log.add_all(&entries, &wire);
        core.log.trim(trim_to, core.settings.dups_tracked);
        core.info.log_tail = core.log.tail();
        let complete = core.info.last_complete;
        let mut keys = Keys::default();
        let changes = core.log.take_changes();
        if keys.of_write(changes, &core.info, core.epoch, &self.written_counts) {
            self.written_epoch.set(core.epoch);
        }
        drop(borrowed);
        keys.add_to(&self.cid, &self.pgmeta, &mut transaction);
        self.wait_for_commits(tid, complete, self.submit_timed(transaction), all)
    }

    /// Waits until a write is durable here and with `all`; `false` as for [`Pg::submit`]. Both are
    /// waited for at once: when ours is the last to have it, the task is woken all the same, behind
    /// those of older writes whose last was another. So answers leave in the order of versions.
    pub(super) fn wait_for_commits(
        &self,
        tid: u64,
        complete: EVersion,
        committed: impl Future<Output = Result<(), StoreError>> + 'static,
        all: Receiver<()>,
    ) -> impl Future<Output = bool> + 'static {
        let pg = self.rc();
        let here = async move {
            if let Err(e) = committed.await {
                pg.host.store_failed(&e);
                return Err(());
            }
            pg.on_commit(tid, pg.whoami(), complete);
            Ok(())
        };
        future::try_join(all.map(Ok), here).map(|done| matches!(done, Ok((Ok(()), ()))))
    }

    /// Notes that a write waits for followers, and us, to have it durable.
    pub(super) fn expect_commits(
        &self,
        tid: u64,
        version: EVersion,
        reqid: OsdReqId,
        followers: Followers,
    ) -> Receiver<()> {
        let mut waiting = if env::mutant("reply-early") { Followers::new() } else { followers };
        waiting.push(self.whoami());
        let (done, all) = oneshot();
        let repop = Rc::new(RepOp {
            version,
            waiting: RefCell::new(waiting),
            done: Cell::new(Some(done)),
            duplicates: RefCell::default(),
            reqid,
        });
        self.repops.borrow_mut().insert(tid, repop);
        all
    }

    /// Commits a write as the pool's kind does. All up to the first wait is done at once: nothing
    /// may come between giving out a version and this.
    pub(super) fn commit(&self, change: Change, prepared: Prepared) -> impl Future<Output = bool> {
        match self.is_erasure() {
            true => Either::Left(Box::pin(self.commit_shards(change, prepared))),
            false => Either::Right(self.submit(change)),
        }
    }

    /// Brings info, statistics and what is known of followers up to a write.
    pub(super) fn note_write(
        &self,
        entries: &[PgLogEntry],
        user_version: u64,
        stats: &ObjectStatSum,
    ) -> (Followers, EVersion, EVersion) {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let Some(version) = entries.last().map(|e| e.version) else { return Default::default() };
        let whoami = core.whoami;
        core.info.last_update = version;
        core.info.last_user_version = core.info.last_user_version.max(user_version);
        core.info.stats.stats.sum.add(stats);
        core.info.stats.version = version;
        if core.missing.is_empty() {
            core.info.last_complete = version;
        }
        let others = core.acting_backfill.iter().filter(|shard| **shard != whoami);
        let followers: Followers = others.copied().collect();
        for f in &followers {
            if let Some(info) = core.peer_info.get_mut(f) {
                info.last_update = version;
                if core.peer_missing.get(f).is_none_or(|m| m.is_empty()) {
                    info.last_complete = version;
                }
            }
        }
        (followers, core.trim_to(), core.min_last_complete())
    }

    #[allow(clippy::too_many_arguments, reason = "one call; the fields of one message")]
    fn send_to_replicas(
        &self,
        tid: u64,
        soid: HObject,
        reqid: OsdReqId,
        followers: &[PgShard],
        transaction: &mut Transaction,
        (entries, wire, added): (&[PgLogEntry], &Bytes, &ObjectStatSum),
        (trim_to, min_complete): (EVersion, EVersion),
    ) {
        if followers.is_empty() {
            return;
        }
        let (map_epoch, min_epoch, stats) = {
            let core = self.core.borrow();
            let interval = core.last_peering_reset;
            let stats =
                self.stats_told.borrow_mut().next(interval, followers, &core.info.stats, added);
            (core.epoch, interval, stats)
        };
        let whoami = self.whoami();
        let mut message = MOSDRepOp {
            map_epoch,
            min_epoch,
            reqid,
            pgid: self.pgid,
            poid: soid,
            acks_wanted: (message_flags::ACK | message_flags::ONDISK) as u8 | TOGETHER,
            version: entries.last().map_or(EVersion::ZERO, |e| e.version),
            log_entries: wire.clone(),
            pg_stats: stats,
            pg_trim_to: trim_to,
            new_temp_oid: HObject::default(),
            discard_temp_oid: HObject::default(),
            from: whoami,
            updated_hit_set_history: None,
            min_last_complete_ondisk: min_complete,
            transaction: transaction.encoded_and_shared(),
        };
        let whole = message.encode().with_tid(tid);
        let mut log_only = None;
        for to in followers {
            let raw = if self.recovery.should_send(&self.core.borrow(), *to, &message.poid) {
                self.count_at_target(*to, added.num_objects);
                whole.clone()
            } else {
                // Backfill has not come to the object yet: the entry alone.
                self.recovery.add_written(entries);
                log_only
                    .get_or_insert_with(|| {
                        message.transaction = Transaction::new().encoded();
                        message.encode().with_tid(tid)
                    })
                    .clone()
            };
            self.host.send_osd(to.osd, raw);
        }
    }

    pub(super) fn on_commit(&self, tid: u64, who: PgShard, last_complete: EVersion) {
        {
            let mut core = self.core.borrow_mut();
            let known = core.peer_last_complete.entry(who).or_insert(EVersion::ZERO);
            *known = last_complete.max(*known);
        }
        let Some(repop) = self.repops.borrow().get(&tid).cloned() else { return };
        repop.waiting.borrow_mut().retain(|shard| *shard != who);
        let done = take_done(&mut self.repops.borrow_mut());
        for repop in done {
            self.core.borrow_mut().durable_everywhere = repop.version;
            self.committed_to(repop.version);
            if let Some(done) = repop.done.take() {
                done.send(());
            }
            for op in repop.take_duplicates() {
                let answered = self.core.borrow().log.request(&op.request.reqid);
                match answered {
                    Some(answered) => self.reply_duplicate(op, &answered),
                    None => self.drop_op(op),
                }
            }
        }
    }

    /// A replica has a write durable, and says so in a message of its own.
    pub fn on_repop_reply(&self, m: &MOSDRepOpReply, tid: u64) {
        let of_this_interval = m.map_epoch >= self.core.borrow().last_peering_reset;
        if of_this_interval && m.result != 0 {
            tracing::error!(pg = %self.pgid, from = %m.from, result = m.result, "replica failed");
            return;
        }
        let takes_added = m.ack_type & TAKES_ADDED != 0;
        self.on_answer(m.from, tid, m.map_epoch, m.last_complete_ondisk, takes_added);
    }

    /// A replica has a write durable, and says so with others. It is of our kind, then.
    pub(crate) fn on_replica_commit(&self, from: PgShard, commit: &Commit) {
        self.on_answer(from, commit.tid, commit.map_epoch, commit.last_complete, true);
    }

    fn on_answer(
        &self,
        from: PgShard,
        tid: u64,
        map_epoch: Epoch,
        last_complete: EVersion,
        takes_added: bool,
    ) {
        let interval = self.core.borrow().last_peering_reset;
        if map_epoch < interval {
            return;
        }
        if takes_added {
            self.stats_told.borrow_mut().takes_added(interval, from);
        }
        self.on_commit(tid, from, last_complete);
    }

    /// A write from the primary.
    pub fn on_repop(
        &self,
        m: &MOSDRepOp,
        sums: Option<PageSums>,
        tid: u64,
        tracked: &crate::osd::tracker::TrackedOp,
    ) {
        let (reset, follows) = {
            let core = self.core.borrow();
            (core.last_peering_reset, core.follows())
        };
        if (m.map_epoch < reset || !follows) && !env::mutant("stale-interval") {
            tracing::debug!(pg = %self.pgid, version = %m.version, "old write");
            return;
        }
        let decode = || {
            let transaction = Transaction::from_bytes(&m.transaction.to_contiguous())?;
            let entries = Vec::<PgLogEntry>::from_bytes_exact(&m.log_entries)?;
            Ok::<_, denc::Error>((transaction, entries))
        };
        let does_not_decode = |e: denc::Error| {
            tracing::error!(pg = %self.pgid, "write of the primary does not decode: {e}");
        };
        let (mut t, entries) = match decode() {
            Ok(decoded) => decoded,
            Err(e) => return does_not_decode(e),
        };
        let news = match News::decode(&m.pg_stats) {
            Ok(news) => news,
            Err(e) => return does_not_decode(e),
        };
        let takes_all = env::mutant("stale-interval") || env::mutant("replay-twice");
        if entries.is_empty() {
            tracing::error!(pg = %self.pgid, version = %m.version, "a write without an entry");
            return;
        }
        if !takes_all && !self.is_next(&entries) {
            return;
        }
        for e in &entries {
            self.contexts.forget(&e.soid);
        }
        let mut borrowed = self.core.borrow_mut();
        let core = &mut *borrowed;
        for e in &entries {
            core.info.last_user_version = core.info.last_user_version.max(e.user_version);
        }
        core.log.add_all(&entries, &m.log_entries);
        core.info.last_update = core.log.head();
        if core.missing.is_empty() {
            core.info.last_complete = core.info.last_update;
        }
        match news {
            News::Whole(stats) => core.change_stats(|known| *known = *stats),
            News::Added(added) => {
                core.change_stats(|known| {
                    known.stats.sum.add(&added);
                    known.version = m.version;
                });
            }
        }
        core.note_stable(m.min_last_complete_ondisk);
        core.log.trim(m.pg_trim_to, core.settings.dups_tracked);
        core.info.log_tail = core.log.tail();
        let complete = core.info.last_complete;
        let mut keys = Keys::default();
        let changes = core.log.take_changes();
        if keys.of_write(changes, &core.info, core.epoch, &self.written_counts) {
            self.written_epoch.set(core.epoch);
        }
        let (map_epoch, min_epoch) = (core.epoch, core.last_peering_reset);
        drop(borrowed);
        keys.add_to(&self.cid, &self.pgmeta, &mut t);
        self.map_snaps(&entries, &mut t);
        t.set_sums(sums);
        let submitted = Submitted {
            pg: InStore::new(self.rc()),
            generation: self.generation.get(),
            begun: self.host.env().recent(),
            committed: self.submit_now(t),
            from: m.from,
            tid,
            reqid: m.reqid,
            epochs: (map_epoch, min_epoch),
            last_complete: complete,
            together: m.acks_wanted & TOGETHER != 0,
        };
        tracked.mark("sub_op_started");
        self.host.tell_when_durable(submitted);
    }

    /// Whether a write of the primary follows the newest one here. Sessions between OSDs lose and
    /// repeat nothing: one that does not is proof of a fault, and to go on would make a copy that
    /// differs. This OSD goes down then.
    pub(super) fn is_next(&self, entries: &[PgLogEntry]) -> bool {
        let core = self.core.borrow();
        let is_next = core.log.is_continued_by(entries);
        if !is_next {
            let versions: Vec<String> = entries.iter().map(|e| e.version.to_string()).collect();
            let (head, came) = (core.log.head(), versions.join(", "));
            drop(core);
            self.host.give_up(format!("pg {}: write {came} came after {head}", self.pgid));
        }
        is_next
    }

    /// Writes that are not durable everywhere yet.
    pub fn writes_in_flight(&self) -> usize {
        self.repops.borrow().len()
    }

    /// Submits to the store and counts how long it took to be durable.
    pub(crate) fn submit_timed(
        &self,
        t: Transaction,
    ) -> impl Future<Output = Result<(), StoreError>> + 'static {
        let begun = self.host.env().recent();
        let (pg, committed) = (InStore::new(self.rc()), self.submit_now(t));
        async move {
            let result = committed.await;
            pg.0.count_commit(begun);
            result
        }
    }

    fn submit_now(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>> {
        self.host.will_write(t.data_len() + t.metadata_bytes());
        self.host.store().submit(t)
    }

    fn count_commit(&self, begun: Duration) -> Duration {
        let took = self.host.env().recent().saturating_sub(begun);
        self.host.counters().commit_latency.add(took);
        took
    }

    /// Submits a change that no client asked for (trimming, a watch's end) and waits for it.
    pub(crate) async fn write_internally(self: &Rc<Pg>, pending: PendingWrite) -> bool {
        let generation = self.generation.get();
        let Ok(prepared) = self.prepare(&pending).await else { return false };
        if generation != self.generation.get() {
            return false;
        }
        let (at, user_version) = self.next_version();
        let m = pending.finish(at, user_version);
        let (guard, effects) = (m.guard, m.effects);
        let change = Change {
            soid: m.soid,
            reqid: OsdReqId::default(),
            transaction: m.transaction,
            entries: m.entries,
            user_version: m.user_version,
            stats: m.stats,
        };
        let done = self.commit(change, prepared).await;
        if done {
            effects.apply(&self.as_ops(), &guard, &watch::no_client());
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by `ceph_test_rados` on BlueStore: a write was answered before an older one of the same object.
    ///
    /// 1. The store's thread applies two writes, and the task of the first is woken.
    /// 2. Before its turn the task of the second asks the store for the first time, and finds that done already.
    /// 3. So it is the first to wait for the commit of both, hears of it first, and was the first to answer.
    #[test]
    fn writes_are_done_in_the_order_of_versions() {
        let here = PgShard { osd: 0, shard: -1 };
        let repop = |tid: u64| {
            let repop = RepOp {
                version: EVersion::new(1, tid),
                waiting: RefCell::new(Followers::from_slice(&[here])),
                done: Cell::default(),
                duplicates: RefCell::default(),
                reqid: OsdReqId::default(),
            };
            (tid, Rc::new(repop))
        };
        let mut repops = BTreeMap::from([1, 2, 3].map(repop));
        let mut commit = |tid: u64| {
            repops[&tid].waiting.borrow_mut().clear();
            let versions = take_done(&mut repops).into_iter().map(|repop| repop.version.version);
            versions.collect::<Vec<_>>()
        };
        assert!(commit(2).is_empty());
        assert_eq!(commit(1), [1, 2]);
        assert_eq!(commit(3), [3]);
    }
}
