//! Client ops on the primary, and writes on replicas.
//!
//! ```text
//! do_op: checks, duplicates -> place in the object's queue -> task:
//!   lock -> execute -> [sync: version, log, submit, MOSDRepOp] -> local commit -> all replicas -> reply
//! ```
//!
//! A write is answered when every OSD in `acting_backfill` has it durable. Versions are given out
//! and submitted without an await in between, commits come back in the order of submission, so
//! replies leave in the order of versions.

use std::cell::{Cell, RefCell};
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
use types::{EVersion, EntityName, Epoch, Errno, HObject, OsdReqId, PageSums, PgShard};

use super::host::LogLevel;
use super::log::Answered;
use super::persist::Keys;
use super::shards::Prepared;
use super::told_stats::{News, TAKES_ADDED};
use super::{ClientOp, Pg};
use crate::ops::{
    self, Kind, LockKind, Mutation, ObjectGuard, Overdue, PendingWrite, Reply, Request,
    object_context, watch,
};
use crate::osd::commits::{Commit, TOGETHER};
use crate::osd::fullness::Lack;
use crate::osd::perf_queries::Observed;

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
    duplicates: RefCell<Vec<Box<ClientOp>>>,
    reqid: OsdReqId,
}

impl RepOp {
    pub(super) fn take_duplicates(&self) -> Vec<Box<ClientOp>> {
        std::mem::take(&mut *self.duplicates.borrow_mut())
    }
}

/// A primary's write that this copy has given to its store, and is to tell of when it is durable.
pub struct Submitted {
    pg: Rc<Pg>,
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

impl Submitted {
    /// What the store says of it, when it does.
    pub(crate) fn committed(&mut self) -> impl Future<Output = Result<(), StoreError>> + Unpin {
        &mut self.committed
    }

    /// Tells the primary what the store said of it, unless the interval is over.
    pub(crate) fn tell(self, result: Result<(), StoreError>) {
        let Submitted { pg, from, tid, last_complete, epochs: (map_epoch, min_epoch), .. } = self;
        pg.count_commit(self.begun);
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
    /// A client's op, for this PG by the current map.
    pub fn do_op(&self, op: Box<ClientOp>) {
        let now = self.now();
        {
            let core = self.core.borrow();
            let history = &core.info.history;
            // What was sent before a split may be for a child: clients send it again.
            let since = history.same_primary_since.max(history.last_epoch_split);
            if !core.is_primary() || op.epoch < since {
                drop(core);
                self.drop_op(op);
                return;
            }
        }
        let Some(op) = self.back_off(op) else { return };
        {
            let core = self.core.borrow();
            if !core.is_active() || !core.is_readable(now) {
                drop(core);
                op.tracked.mark("waiting for active");
                self.waiting.borrow_mut().push_back(op);
                self.schedule_wake();
                return;
            }
        }
        if !self.waiting.borrow().is_empty() || self.running.get().1 > 0 {
            // Earlier ones are about to be run: this one goes behind them.
            self.retry_op(op);
            return;
        }
        let request = op.request.clone();
        if request.info.pg_op {
            self.run(run_pg_op(self.rc(), op, self.generation.get()));
            return;
        }
        let bits = self.pgid.pgid.split_bits(self.pool().pg_num);
        if !self.pgid.pgid.contains(bits, &request.oid) {
            // What would be written here nobody would find, and a split would lose.
            let text = format!("{} does not contain {}", self.pgid.pgid, request.oid);
            self.host.cluster_log(LogLevel::Warn, text);
            return;
        }
        if let Err(errno) = ops::check_request(&request, &self.host.limits()) {
            op.reply(self.epoch(), Reply::refusal(&request, errno));
            return;
        }
        if request.info.may_write() {
            if let Some(lack) = self.lack_of_room(&request) {
                op.tracked.mark("dropped: no room");
                self.host.no_room_for(&op.session, lack);
                return;
            }
            let Some(op) = self.answer_duplicate(op) else { return };
            if self.scrub.blocks(&request.oid.as_head()) {
                self.wait_for_scrub(op);
                return;
            }
            self.enqueue(op);
            return;
        }
        self.enqueue(op);
    }

    /// Why a write must not be begun. Who is full is known here before a map says so; then the
    /// pool's flag is looked at (`ops::execute`), and clients keep their writes themselves.
    fn lack_of_room(&self, request: &Request) -> Option<Lack> {
        if request.has_flag(message_flags::FULL_FORCE) {
            return None;
        }
        if self.host.is_failsafe_full() {
            return Some(Lack::Failsafe);
        }
        if !request.heeds_full() || request.has_flag(message_flags::FULL_TRY) {
            return None;
        }
        let core = self.core.borrow();
        let full = core.acting_backfill.iter().find(|s| self.host.is_full(s.osd));
        full.map(|s| Lack::Full(s.osd))
    }

    fn enqueue(&self, op: Box<ClientOp>) {
        let lock = self.contexts.lock(&op.request.oid.as_head(), LockKind::of(&op.request.info));
        let waits = !lock.is_granted();
        op.tracked.mark("queued_for_pg");
        self.run(run_op(self.rc(), op, (lock, waits), self.generation.get()));
    }

    /// Answers a request that was executed before, or lets it wait for the first one's commit.
    fn answer_duplicate(&self, op: Box<ClientOp>) -> Option<Box<ClientOp>> {
        let answered = self.core.borrow().log.request(&op.request.reqid);
        let Some(answered) = answered else { return Some(op) };
        let in_flight = self
            .repops
            .borrow()
            .values()
            .find(|r| r.version == answered.version || r.reqid == op.request.reqid)
            .cloned();
        match in_flight {
            Some(repop) => repop.duplicates.borrow_mut().push(op),
            None => self.reply_duplicate(op, &answered),
        }
        None
    }

    fn reply_duplicate(&self, op: Box<ClientOp>, answered: &Answered) {
        op.tracked.mark("duplicate");
        let reply = Reply::duplicate(
            &op.request,
            answered.version,
            answered.user_version,
            answered.return_code,
            &answered.op_returns,
        );
        op.reply(self.epoch(), reply);
    }

    fn next_version(&self) -> (EVersion, u64) {
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
        self.scrub.on_write(&soid, &stats);
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
    fn commit(&self, change: Change, prepared: Prepared) -> impl Future<Output = bool> {
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
        let all = {
            let mut waiting = repop.waiting.borrow_mut();
            waiting.retain(|shard| *shard != who);
            waiting.is_empty()
        };
        if all {
            self.repops.borrow_mut().remove(&tid);
            if self.repops.borrow().keys().next().is_none_or(|oldest| *oldest > tid) {
                self.core.borrow_mut().durable_everywhere = repop.version;
                self.committed_to(repop.version);
            }
            if let Some(done) = repop.done.take() {
                done.send(());
            }
            let duplicates = std::mem::take(&mut *repop.duplicates.borrow_mut());
            for op in duplicates {
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
            News::Whole(stats) => core.info.stats = *stats,
            News::Added(added) => {
                core.info.stats.stats.sum.add(&added);
                core.info.stats.version = m.version;
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
            pg: self.rc(),
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

    /// Parks an op until an object is recovered.
    pub(crate) fn wait_for_object(&self, oid: HObject, op: Box<ClientOp>) {
        let Some(op) = self.back_off_unfound(&oid, op) else { return };
        op.tracked.mark("waiting for missing object");
        self.waiting_for_object.borrow_mut().entry(oid.clone()).or_default().push(op);
        self.recover_first(oid);
    }

    /// An object has been recovered: runs what waited for it.
    pub(crate) fn requeue_for(&self, oid: &HObject) {
        self.release_backoffs_of(oid);
        self.contexts.end_overdue_watches(oid);
        if env::mutant("lose-waiting") {
            self.waiting_for_object.borrow_mut().remove(oid);
            return;
        }
        if !self.waiting_for_object.borrow().contains_key(oid) {
            return;
        }
        let (pg, generation, oid) = (self.rc(), self.generation.get(), oid.clone());
        if !self.requeueing.borrow_mut().insert((generation, oid.clone())) {
            return;
        }
        self.host.env().go(async move {
            // Writes in the object's queue came later: they go behind those that wait (`wait_behind`), until
            // there are none. There is an end to it, for clients have bounds; reads would come and come.
            let guard = loop {
                let guard = pg.contexts.lock(&oid.as_head(), LockKind::Write).await;
                if !guard.has_writers_waiting() {
                    break guard;
                }
            };
            pg.requeueing.borrow_mut().remove(&(generation, oid.clone()));
            if generation != pg.generation.get() {
                return;
            }
            let ops = pg.waiting_for_object.borrow_mut().remove(&oid);
            for op in ops.unwrap_or_default() {
                pg.do_op(op);
            }
            drop(guard);
        });
    }

    /// Lets a write wait behind those of its head that wait until that is recovered, if there are any.
    fn wait_behind(&self, head: &HObject, op: Box<ClientOp>) -> Option<Box<ClientOp>> {
        match self.waiting_for_object.borrow_mut().get_mut(head) {
            Some(waiting) => waiting.push(op),
            None => return Some(op),
        }
        None
    }

    pub(crate) fn count_read(&self, reply: &Reply) {
        let bytes = reply_len(reply);
        let mut core = self.core.borrow_mut();
        let sum = &mut core.info.stats.stats.sum;
        sum.num_rd += 1;
        sum.num_rd_kb += bytes.div_ceil(1024) as i64;
        self.host.counters().count_read(bytes);
    }

    /// Submits to the store and counts how long it took to be durable.
    pub(crate) fn submit_timed(
        &self,
        t: Transaction,
    ) -> impl Future<Output = Result<(), StoreError>> + 'static {
        let begun = self.host.env().recent();
        let (pg, committed) = (self.rc(), self.submit_now(t));
        async move {
            let result = committed.await;
            pg.count_commit(begun);
            result
        }
    }

    fn submit_now(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>> {
        self.host.will_write(t.data_len());
        self.host.store().submit(t)
    }

    fn count_commit(&self, begun: Duration) {
        let took = self.host.env().recent().saturating_sub(begun);
        self.host.counters().commit_latency.add(took);
    }

    /// Counts an operation for the manager's queries.
    pub(super) fn observe(&self, op: &ClientOp, read: u64, written: Option<u64>) {
        let stats = &self.host.counters().dynamic;
        if !stats.is_enabled() {
            return;
        }
        let request = &op.request;
        stats.add(&Observed {
            reqid: request.reqid,
            address: &op.session.con.peer_addrs().front(),
            osd: self.host.whoami(),
            pgid: self.pgid,
            object: &request.oid,
            read: (written.is_none() || request.info.may_read()).then_some(read),
            written,
            took: op.tracked.age(),
        });
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

    pub(crate) fn run_watch_timeout(&self, oid: HObject, cookie: u64, watcher: EntityName) {
        let (pg, generation) = (self.rc(), self.generation.get());
        let lock = self.contexts.lock(&oid.head(), LockKind::Write);
        self.host.env().go(async move {
            let guard = lock.await;
            if generation != pg.generation.get() || !pg.core.borrow().is_active() {
                return;
            }
            let overdue = watch::execute_timeout(&pg.as_ops(), guard, cookie, watcher).await;
            if generation != pg.generation.get() {
                return;
            }
            match overdue {
                Ok(Overdue::Ends(pending)) => {
                    pg.write_internally(pending).await;
                }
                Ok(Overdue::Stays) => {}
                Ok(Overdue::Blocked) => pg.recover_first(oid),
                Err(errno) => tracing::error!(pg = %pg.pgid, %oid, %errno, "a watch cannot end"),
            }
        });
    }
}

/// Bytes that a reply brings.
pub(super) fn reply_len(reply: &Reply) -> u64 {
    reply.ops.iter().map(|op| op.outdata.len() as u64).sum()
}

async fn run_pg_op(pg: Rc<Pg>, op: Box<ClientOp>, generation: u64) {
    op.tracked.mark("started");
    let reply = ops::execute_pg_op(&pg.as_ops(), &op.request).await;
    if generation != pg.generation.get() {
        pg.retry_op(op);
        return;
    }
    pg.count_read(&reply);
    pg.observe(&op, reply_len(&reply), None);
    op.reply(pg.epoch(), reply);
}

/// Runs an op once its object is its own. `waits`: it was not so when the op came.
async fn run_op(
    pg: Rc<Pg>,
    op: Box<ClientOp>,
    (lock, waits): (object_context::Lock, bool),
    generation: u64,
) {
    let guard = match lock.try_now() {
        Ok(guard) => guard,
        Err(lock) => lock.await,
    };
    if generation != pg.generation.get() {
        pg.retry_op(op);
        return;
    }
    // The same request may have run while this one waited for its turn.
    let op = if waits && op.request.info.may_write() {
        match pg.answer_duplicate(op) {
            Some(op) => op,
            None => return,
        }
    } else {
        op
    };
    let op = match op.request.info.rwordered() {
        true => match pg.wait_behind(guard.head(), op) {
            Some(op) => op,
            None => return,
        },
        false => op,
    };
    op.tracked.mark("started");
    let executed = ops::execute(&pg.as_ops(), guard, op.request.clone()).await;
    if generation != pg.generation.get() {
        pg.retry_op(op);
        return;
    }
    match executed.kind {
        Kind::Read(guard) => {
            let guard = guard.settled().await;
            if generation != pg.generation.get() {
                pg.retry_op(op);
                return;
            }
            if !pg.core.borrow().is_readable(pg.now()) {
                // The lease ran out while it was read: what was read may be stale.
                drop(guard);
                pg.waiting.borrow_mut().push_back(op);
                return;
            }
            pg.count_read(&executed.reply);
            pg.observe(&op, reply_len(&executed.reply), None);
            executed.effects.apply(&pg.as_ops(), &guard, op.session.client());
            op.reply(pg.epoch(), executed.reply);
        }
        Kind::LogError(guard) => {
            let reply = executed.reply;
            Box::pin(log_error(&pg, op, guard, reply, executed.effects)).await;
        }
        Kind::Write(pending) => run_write(&pg, op, pending).await,
        Kind::Blocked(oid) => pg.wait_for_object(oid, op),
        Kind::Dropped => pg.drop_op(op),
    }
}

async fn run_write(pg: &Rc<Pg>, op: Box<ClientOp>, pending: PendingWrite) {
    let generation = pg.generation.get();
    let prepared = match pg.prepare(&pending).await {
        _ if generation != pg.generation.get() => return pg.retry_op(op),
        Ok(prepared) => prepared,
        Err(errno) => {
            let reply = Reply::refusal(&op.request, errno);
            return op.reply(pg.epoch(), reply);
        }
    };
    let (at, last_user_version) = pg.next_version();
    let bytes = pending.data_len();
    let Mutation {
        soid, mut transaction, entries, user_version, stats, guard, effects, reply, ..
    } = pending.finish(at, last_user_version);
    transaction.set_sums(op.request.sums.clone());
    op.tracked.mark("waiting for subops");
    let change =
        Change { soid, reqid: op.request.reqid, transaction, entries, user_version, stats };
    if !pg.commit(change, prepared).await {
        pg.retry_op(op);
        return;
    }
    op.tracked.mark("commit_sent");
    pg.host.counters().count_write(bytes, op.tracked.age());
    pg.observe(&op, reply_len(&reply), Some(bytes));
    effects.apply(&pg.as_ops(), &guard, op.session.client());
    op.reply(pg.epoch(), reply);
    drop(guard);
}

async fn log_error(
    pg: &Rc<Pg>,
    op: Box<ClientOp>,
    guard: ObjectGuard,
    mut reply: Reply,
    effects: ops::Effects,
) {
    let (at, last_user_version) = pg.next_version();
    let last_update = pg.core.borrow().info.last_update;
    reply.set_logged(at, last_update, last_user_version);
    let entry = ops::error_entry(&op.request, &reply, at);
    effects.apply(&pg.as_ops(), &guard, op.session.client());
    drop(guard);
    let change = Change {
        soid: op.request.oid.clone(),
        reqid: op.request.reqid,
        transaction: Transaction::new(),
        entries: vec![entry],
        user_version: last_user_version,
        stats: ObjectStatSum::default(),
    };
    if pg.commit(change, Prepared::default()).await {
        op.reply(pg.epoch(), reply);
    } else {
        pg.retry_op(op);
    }
}

/// An errno as replies carry it.
pub fn refusal(request: &crate::ops::Request, errno: Errno) -> Reply {
    Reply::refusal(request, errno)
}
