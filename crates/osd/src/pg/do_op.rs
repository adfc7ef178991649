//! Client ops on the primary.
//!
//! ```text
//! do_op: checks, duplicates -> place in the object's queue -> task:
//!   lock -> execute -> answer, or version and commit (`replication`) -> reply
//! ```

use std::rc::Rc;
use std::time::Duration;

use store::Transaction;
use types::osd::ObjectStatSum;
use types::osd::ops::message_flags;
use types::{EntityName, Epoch, Errno, HObject};

use super::host::LogLevel;
use super::log::Answered;
use super::replication::Change;
use super::shards::Prepared;
use super::{ClientOp, Pg};
use crate::ops::{
    self, Kind, LockKind, Mutation, ObjectGuard, Overdue, PendingWrite, Reply, Request,
    object_context, watch,
};
use crate::osd::fullness::Lack;
use crate::osd::perf_queries::Observed;
use crate::osd::stats::{OpTimes, Served};

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
        let Some(op) = self.refuse_blocklisted(op) else { return };
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

    /// Answers a client that may not talk any more. Asked each time an op is run again: what still waited here when the client was
    /// fenced off would overwrite what its successor has written.
    fn refuse_blocklisted(&self, op: Box<ClientOp>) -> Option<Box<ClientOp>> {
        let map = self.map.borrow();
        if !map.has_blocklist() || !map.is_blocklisted(&op.session.con.peer_addrs()) {
            return Some(op);
        }
        let refusal = Reply::refusal(&op.request, Errno::EBLOCKLISTED);
        op.reply(map.epoch, refusal);
        None
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
        let lock = self.contexts.lock(&op.request.oid.as_head(), LockKind::of(&op.request));
        let waits = !lock.is_granted();
        op.tracked.mark("queued_for_pg");
        self.run(run_op(self.rc(), op, (lock, waits), self.generation.get()));
    }

    /// Answers a request that was executed before, or lets it wait for the first one's commit.
    pub(super) fn answer_duplicate(&self, op: Box<ClientOp>) -> Option<Box<ClientOp>> {
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

    pub(super) fn reply_duplicate(&self, op: Box<ClientOp>, answered: &Answered) {
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
        let (pg, generation) = (self.rc(), self.generation.get());
        let key = (generation, oid.head());
        // One for the head and its clones: two would each give way to the other for ever.
        let mut requeueing = self.requeueing.borrow_mut();
        let recovered = requeueing.entry(key.clone()).or_default();
        let is_under_way = !recovered.is_empty();
        recovered.insert(oid.clone());
        if is_under_way {
            return;
        }
        drop(requeueing);
        self.host.env().go(async move {
            // Writes in the object's queue came later: they go behind those that wait (`wait_behind`), until
            // there are none. There is an end to it, for clients have bounds; reads would come and come.
            let guard = loop {
                let guard = pg.contexts.lock(&key.1, LockKind::Write).await;
                if generation != pg.generation.get() || !guard.has_writers_waiting() {
                    break guard;
                }
            };
            let recovered = pg.requeueing.borrow_mut().remove(&key).unwrap_or_default();
            if generation != pg.generation.get() {
                return;
            }
            for oid in recovered {
                let ops = pg.waiting_for_object.borrow_mut().remove(&oid);
                for op in ops.unwrap_or_default() {
                    pg.do_op(op);
                }
            }
            drop(guard);
        });
    }

    /// Lets a write wait behind those of its object that wait until something is recovered, if there are any:
    /// the head, or a clone that one goes back to (`PrimaryLogPG::objects_blocked_on_degraded_snap`).
    fn wait_behind(&self, head: &HObject, op: Box<ClientOp>) -> Option<Box<ClientOp>> {
        let mut waiting = self.waiting_for_object.borrow_mut();
        let mut of_object =
            waiting.range_mut(..=head).rev().take_while(|(oid, _)| oid.same_object(head));
        match of_object.find(|(_, ops)| ops.iter().any(|op| op.request.info.rwordered())) {
            Some((_, ops)) => ops.push(op),
            None => return Some(op),
        }
        None
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

    /// Counts a read; `begun`: when its object was its own.
    fn count_read(&self, op: &ClientOp, begun: Duration, reply: &Reply) {
        let bytes = reply_len(reply);
        let mut core = self.core.borrow_mut();
        let sum = &mut core.info.stats.stats.sum;
        sum.num_rd += 1;
        sum.num_rd_kb += bytes.div_ceil(1024) as i64;
        drop(core);
        self.count_read_here(op, begun, bytes);
    }

    /// The same of a read that a copy which does not lead answers: the PG's statistics are the primary's.
    pub(super) fn count_read_here(&self, op: &ClientOp, begun: Duration, bytes: u64) {
        let process = self.host.env().recent().saturating_sub(begun);
        let times = OpTimes { latency: op.tracked.age(), process, prepare: process };
        let read = Served { reads: true, out_bytes: bytes, times, ..Served::default() };
        self.host.counters().count_op(&read);
        self.observe(op, bytes, None);
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
}

/// Bytes that a reply brings.
pub(super) fn reply_len(reply: &Reply) -> u64 {
    reply.ops.iter().map(|op| op.outdata.len() as u64).sum()
}

async fn run_pg_op(pg: Rc<Pg>, op: Box<ClientOp>, generation: u64) {
    op.tracked.mark("started");
    let begun = pg.host.env().recent();
    let reply = ops::execute_pg_op(&pg.as_ops(), &op.request).await;
    if generation != pg.generation.get() {
        pg.retry_op(op);
        return;
    }
    pg.count_read(&op, begun, &reply);
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
    let op = if waits {
        let Some(op) = pg.refuse_blocklisted(op) else { return };
        // The same request may have run while this one waited for its turn.
        let op = if op.request.info.may_write() { pg.answer_duplicate(op) } else { Some(op) };
        let Some(op) = op else { return };
        op
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
    let begun = pg.host.env().recent();
    let (mut op, mut guard) = (op, guard);
    // Once, unless a snapshot of a write is removed meanwhile.
    loop {
        let epoch = pg.epoch();
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
                if !pg.is_serving() {
                    // The lease ran out while it was read: what was read may be stale, unless we get another one in
                    // this interval. Until then it keeps its place before the object's later writes.
                    let over = || generation != pg.generation.get();
                    pg.serves.until(|| over() || pg.is_serving()).await;
                    if over() {
                        pg.retry_op(op);
                        return;
                    }
                }
                pg.count_read(&op, begun, &executed.reply);
                executed.effects.apply(&pg.as_ops(), &guard, op.session.client());
                op.reply(pg.epoch(), executed.reply);
            }
            Kind::LogError(guard) => {
                let reply = executed.reply;
                Box::pin(log_error(&pg, op, guard, reply, executed.effects)).await;
            }
            Kind::Write(pending) => {
                match run_write(&pg, op, pending, (begun, epoch)).await {
                    None => return,
                    Some(again) => (op, guard) = again,
                }
                continue;
            }
            Kind::Blocked(oid) => pg.wait_for_object(oid, op),
            Kind::Dropped => pg.drop_op(op),
        }
        return;
    }
}

/// Commits a write that was executed under `epoch`, or gives it back: it is to be executed again.
async fn run_write(
    pg: &Rc<Pg>,
    op: Box<ClientOp>,
    mut pending: PendingWrite,
    (begun, epoch): (Duration, Epoch),
) -> Option<(Box<ClientOp>, ObjectGuard)> {
    let generation = pg.generation.get();
    let prepared = match pg.prepare(&pending).await {
        _ if generation != pg.generation.get() => {
            pg.retry_op(op);
            return None;
        }
        Ok(prepared) => prepared,
        Err(errno) => {
            let reply = Reply::refusal(&op.request, errno);
            op.reply(pg.epoch(), reply);
            return None;
        }
    };
    if pg.epoch() != epoch {
        match pending.unless_snaps_removed(&pg.as_ops()) {
            Ok(still) => pending = still,
            Err(guard) => return Some((op, guard)),
        }
    }
    let (at, last_user_version) = pg.next_version();
    let bytes = pending.data_len();
    let Mutation {
        soid, mut transaction, entries, user_version, stats, guard, effects, reply, ..
    } = pending.finish(at, last_user_version);
    transaction.set_sums(op.request.sums.clone());
    op.tracked.mark("waiting for subops");
    let prepare = pg.host.env().recent().saturating_sub(begun);
    let change =
        Change { soid, reqid: op.request.reqid, transaction, entries, user_version, stats };
    if !pg.commit(change, prepared).await {
        pg.retry_op(op);
        return None;
    }
    op.tracked.mark("commit_sent");
    let process = pg.host.env().recent().saturating_sub(begun);
    let out_bytes = reply_len(&reply);
    pg.host.counters().count_op(&Served {
        reads: op.request.info.may_read(),
        writes: true,
        in_bytes: bytes,
        out_bytes,
        times: OpTimes { latency: op.tracked.age(), process, prepare },
    });
    pg.observe(&op, out_bytes, Some(bytes));
    effects.apply(&pg.as_ops(), &guard, op.session.client());
    op.reply(pg.epoch(), reply);
    drop(guard);
    None
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
