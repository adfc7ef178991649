//! The objecter: keeps every operation until it is answered, and sends it again whenever the one
//! who should answer may have changed (a new map, a broken connection, the end of a backoff).
//!
//! ```text
//! submit -> waits for budget -> has a target? --no--> homeless (a new map decides)
//!                                   | yes
//!                                   v
//!     paused or backed off <--> sent to the primary -> answered
//! ```
//!
//! An operation keeps its number (tid) over all attempts, by which OSDs know one they have done
//! already. Operations are (re)sent in the order of their numbers.

mod waiting;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use env::Env;
use env::sync::{Notify, Permit, Semaphore, Sender, oneshot};
use maps::OsdMap;
use messages::{BackoffOp, MOSDBackoff, MOSDMap, MOSDOp, MOSDOpReply, Message, SUBSCRIBE_ONETIME};
use monclient::{MonClient, OsdMaps};
use msgr::{Connection, Messenger};
use types::osd::ops::{OsdOp, message_flags};
use types::{
    Errno, HObject, NOSNAP, OsdId, OsdReqId, RawMessage, SnapContext, SnapId, UTime, features,
};

pub use self::waiting::{WaitReason, Waiting};
use crate::ClientError;
use crate::commands::Commands;
use crate::operation::{OpOutcome, Operation, Outcome};
use crate::sessions::Sessions;
use crate::target::{Base, Target, calc_target};
use crate::watch::Lingers;

/// Operations under way at a time (`objecter_inflight_ops`).
const INFLIGHT_OPS_MAX: u64 = 1024;
/// Bytes they carry (`objecter_inflight_op_bytes`).
const INFLIGHT_BYTES_MAX: u64 = 100 << 20;
/// How often unanswered operations are looked at (`objecter_tick_interval`).
const TICK: Duration = Duration::from_secs(5);
/// An operation unanswered for this long makes us ask for a newer map (`objecter_timeout`).
const LAGGY: Duration = Duration::from_secs(10);

/// What is to be done, to which object, under which snapshots.
pub(crate) struct Request {
    pub(crate) base: Base,
    pub(crate) ops: Vec<OsdOp>,
    pub(crate) snapid: SnapId,
    pub(crate) snapc: SnapContext,
}

/// An operation under way.
struct Op {
    request: Request,
    mtime: UTime,
    target: Option<Target>,
    submitted: Duration,
    /// Times sent.
    attempts: i32,
    /// Where it was sent last, unless that session is gone.
    session: Option<OsdId>,
    sent: Duration,
    checking_pool: bool,
    answer: Sender<Result<Outcome, ClientError>>,
    _budget: Option<[Permit; 2]>,
}

pub(crate) struct Objecter {
    pub(crate) env: Env,
    pub(crate) messenger: Messenger,
    pub(crate) monc: MonClient,
    pub(crate) osdmaps: OsdMaps,
    /// Stays subscribed to the OSD map.
    follows: bool,
    pub(crate) sessions: RefCell<Sessions>,
    pub(crate) commands: Commands,
    pub(crate) lingers: Lingers,
    /// Bound: [`INFLIGHT_OPS_MAX`], and one for each watch and each notify that came.
    ops: RefCell<BTreeMap<u64, Op>>,
    next_tid: Cell<u64>,
    map_changed: Notify,
    budget_ops: Semaphore,
    budget_bytes: Semaphore,
    pub(crate) stopped: Cell<bool>,
}

impl Objecter {
    pub(crate) fn new(
        env: Env,
        messenger: Messenger,
        monc: MonClient,
        follows: bool,
    ) -> Rc<Objecter> {
        Rc::new(Objecter {
            env,
            messenger,
            monc,
            osdmaps: OsdMaps::new(),
            follows,
            sessions: RefCell::default(),
            commands: Commands::default(),
            lingers: Lingers::default(),
            ops: RefCell::default(),
            next_tid: Cell::new(1),
            map_changed: Notify::default(),
            budget_ops: Semaphore::new(INFLIGHT_OPS_MAX),
            budget_bytes: Semaphore::new(INFLIGHT_BYTES_MAX),
            stopped: Cell::new(false),
        })
    }

    /// Looks after unanswered operations until the end.
    pub(crate) fn start(self: &Rc<Self>) {
        let objecter = self.clone();
        self.env.go(async move {
            while !objecter.stopped.get() {
                objecter.env.sleep(TICK).await;
                objecter.tick();
            }
        });
    }

    /// Gives everything up.
    pub(crate) fn stop(&self) {
        self.stopped.set(true);
        let ops = std::mem::take(&mut *self.ops.borrow_mut());
        for op in ops.into_values() {
            op.answer.send(Err(ClientError::Closed));
        }
        self.commands.clear();
        self.lingers.clear();
        self.map_changed.notify_all();
    }

    pub(crate) fn new_tid(&self) -> u64 {
        let tid = self.next_tid.get();
        self.next_tid.set(tid + 1);
        tid
    }

    fn now(&self) -> UTime {
        UTime::from_duration(self.env.wall_clock())
    }

    /// Does it, however often the map changes meanwhile.
    pub(crate) async fn submit(
        self: &Rc<Self>,
        mut request: Request,
    ) -> Result<Outcome, ClientError> {
        if request.base.flags & message_flags::BALANCE_READS != 0 {
            request.base.copy = self.env.random_u64();
        }
        // Watches do not wait behind operations that nobody answers.
        let budget = match request.base.keeps_watch {
            true => None,
            false => {
                let bytes: u64 = request.ops.iter().map(cost_of).sum();
                let one = self.budget_ops.acquire(1).await;
                Some([one, self.budget_bytes.acquire(bytes.max(1)).await])
            }
        };
        if self.stopped.get() {
            return Err(ClientError::Closed);
        }
        let (answer, reply) = oneshot();
        let is_write = request.base.flags & message_flags::WRITE != 0;
        let now = self.env.now();
        let op = Op {
            submitted: now,
            target: calc_target(&self.osdmaps.current(), &request.base),
            request,
            mtime: if is_write { self.now() } else { UTime::ZERO },
            attempts: 0,
            session: None,
            sent: now,
            checking_pool: false,
            answer,
            _budget: budget,
        };
        let tid = self.new_tid();
        self.ops.borrow_mut().insert(tid, op);
        self.send_op(tid);
        reply.await.unwrap_or(Err(ClientError::Closed))
    }

    /// Sends an operation to where it belongs now, if it may go.
    fn send_op(self: &Rc<Self>, tid: u64) {
        let mut ops = self.ops.borrow_mut();
        let Some(op) = ops.get_mut(&tid) else { return };
        op.session = None;
        let Some(target) = op.target.clone() else {
            if !std::mem::replace(&mut op.checking_pool, true) {
                drop(ops);
                self.check_pool(tid);
            }
            return;
        };
        if target.osd < 0 || target.paused {
            drop(ops);
            self.want_map(false);
            return;
        }
        let map = self.osdmaps.current();
        let Some(con) = self.sessions.borrow_mut().open(target.osd, &map, &self.messenger) else {
            drop(ops);
            self.want_map(false);
            return;
        };
        op.session = Some(target.osd);
        let object = hobject_of(&op.request, target.hash);
        if self.sessions.borrow().is_backed_off(target.osd, &target.spg, &object) {
            return;
        }
        tracing::debug!(tid, osd = target.osd, pg = %target.spg, attempt = op.attempts, "op");
        op.sent = self.env.now();
        let message = message_of(op, &target, map.epoch);
        op.attempts += 1;
        drop(ops);
        con.send(message.with_tid(tid));
    }

    /// Takes an answer.
    pub(crate) fn on_reply(self: &Rc<Self>, con: &Connection, raw: &RawMessage) {
        let tid = raw.header.tid;
        let mut ops = self.ops.borrow_mut();
        let Some(op) = ops.get_mut(&tid) else { return };
        let from_session =
            op.session.is_some_and(|osd| self.sessions.borrow().is_current(osd, con));
        if !from_session {
            return;
        }
        let reply = match MOSDOpReply::decode(raw) {
            Ok(reply) => reply,
            // Another answer would be no better.
            Err(error) => {
                let Some(op) = ops.remove(&tid) else { return };
                drop(ops);
                tracing::warn!("an answer does not decode: {error}");
                op.answer.send(Err(ClientError::Decode(error)));
                return;
            }
        };
        let of_attempt = reply.retry_attempt < 0 || reply.retry_attempt == op.attempts - 1;
        if !of_attempt {
            return;
        }
        if reply.result == Errno::EAGAIN.result() {
            // Asked of a replica that cannot answer, or a primary that has changed.
            op.request.base.flags &=
                !(message_flags::BALANCE_READS | message_flags::LOCALIZE_READS);
            op.target = calc_target(&self.osdmaps.current(), &op.request.base);
            drop(ops);
            self.send_op(tid);
            return;
        }
        let Some(op) = ops.remove(&tid) else { return };
        drop(ops);
        op.answer.send(outcome_of(reply));
    }

    /// Takes maps; what they change about operations under way is acted on.
    pub(crate) fn on_osd_map(self: &Rc<Self>, message: &MOSDMap) {
        let mut before = self.osdmaps.epoch();
        let maps = self.osdmaps.take(&self.monc, message, !self.follows);
        if maps.is_empty() {
            return;
        }
        let mut resend = BTreeSet::new();
        for map in &maps {
            // In a map that we have not seen the PG may have been elsewhere, and who has it again has dropped
            // what it was asked.
            let skipped = before != 0 && map.epoch > before + 1;
            self.retarget(map, skipped, &mut resend);
            self.lingers.on_map(map, skipped);
            before = map.epoch;
        }
        for tid in resend {
            self.send_op(tid);
        }
        let stale = self.commands.on_map(&self.sessions.borrow());
        for tid in stale {
            self.send_command(tid);
        }
        self.map_changed.notify_all();
        if self.ops.borrow().values().any(Op::waits_for_map) {
            self.want_map(false);
        }
    }

    fn retarget(&self, map: &OsdMap, skipped: bool, resend: &mut BTreeSet<u64>) {
        let gone = self.sessions.borrow_mut().close_stale(map);
        for (tid, op) in self.ops.borrow_mut().iter_mut() {
            let target = calc_target(map, &op.request.base);
            let lost = op.session.is_some_and(|osd| gone.contains(&osd));
            if lost {
                op.session = None;
            }
            let same = match (&op.target, &target) {
                // What may not go now, but went before, is not asked again: the OSD may have done it, and its
                // answer counts. When the pause ends it goes again, for the OSD may have dropped it, too.
                (Some(old), Some(new)) => {
                    let asks_again = !new.paused && (old.paused || skipped);
                    old.interval == new.interval && old.osd == new.osd && !asks_again
                }
                _ => false,
            };
            if lost || !same || op.session.is_none() {
                op.session = None;
                resend.insert(*tid);
            }
            op.target = target;
        }
    }

    /// A session broke: everything in it goes again.
    pub(crate) fn on_reset(self: &Rc<Self>, con: &Connection) {
        let Some(osd) = self.sessions.borrow_mut().reset(con) else { return };
        self.want_map(true);
        let lost: Vec<u64> = {
            let ops = self.ops.borrow();
            ops.iter().filter(|(_, op)| op.session == Some(osd)).map(|(tid, _)| *tid).collect()
        };
        for tid in lost {
            self.send_op(tid);
        }
        self.lingers.on_reset(osd);
        for tid in self.commands.of_osd(osd) {
            self.send_command(tid);
        }
    }

    /// Nobody listens there.
    pub(crate) fn on_refused(&self, con: &Connection) {
        if self.sessions.borrow().osd_of(con).is_some() {
            self.want_map(true);
        }
    }

    /// Holds or resumes operations to a range of objects.
    pub(crate) fn on_backoff(self: &Rc<Self>, con: &Connection, message: &MOSDBackoff) {
        let Some(osd) = self.sessions.borrow().osd_of(con) else { return };
        match message.op {
            BackoffOp::Block => {
                self.sessions.borrow_mut().back_off(osd, message);
                let ack = MOSDBackoff {
                    op: BackoffOp::AckBlock,
                    map_epoch: self.osdmaps.epoch(),
                    ..message.clone()
                };
                con.send(ack.encode());
            }
            BackoffOp::Unblock => {
                let Some((begin, end)) = self.sessions.borrow_mut().resume(osd, message) else {
                    return;
                };
                let held: Vec<u64> = {
                    let in_range = |op: &Op| {
                        op.target.as_ref().is_some_and(|t| {
                            let object = hobject_of(&op.request, t.hash);
                            let within = object == begin || object > begin && object < end;
                            t.spg == message.pgid && within
                        })
                    };
                    let ops = self.ops.borrow();
                    let here = |op: &Op| op.session == Some(osd) && in_range(op);
                    ops.iter().filter(|(_, op)| here(op)).map(|(tid, _)| *tid).collect()
                };
                for tid in held {
                    self.send_op(tid);
                }
            }
            BackoffOp::AckBlock => {}
        }
    }

    /// Asks for the next map; `once`, or until operations no longer wait for one.
    fn want_map(&self, once: bool) {
        let waiting = self.ops.borrow().values().any(Op::waits_for_map);
        let start = self.osdmaps.epoch() + 1;
        let once = once && !waiting && !self.follows;
        let flags = if once { SUBSCRIBE_ONETIME } else { 0 };
        self.monc.subscribe("osdmap", start.into(), flags);
    }

    fn tick(self: &Rc<Self>) {
        let now = self.env.now();
        let laggy: BTreeSet<OsdId> = {
            let ops = self.ops.borrow();
            let late = ops.values().filter(|op| now.saturating_sub(op.sent) > LAGGY);
            late.filter_map(|op| op.session).collect()
        };
        if !laggy.is_empty() || self.ops.borrow().values().any(Op::waits_for_map) {
            self.want_map(true);
        }
        for osd in laggy {
            if let Some(con) = self.sessions.borrow().connection(osd) {
                con.send_keepalive();
            }
        }
    }

    /// Waits until the map has at least this epoch.
    pub(crate) async fn wait_for_epoch(&self, epoch: u32) {
        while self.osdmaps.epoch() < epoch && !self.stopped.get() {
            self.want_map(true);
            self.map_changed.notified().await;
        }
    }

    /// Waits until the map is as new as the monitors' is now.
    pub(crate) async fn wait_for_latest_map(&self) -> Result<(), ClientError> {
        let newest = self.monc.versions("osdmap").await?.newest;
        self.wait_for_epoch(u32::try_from(newest).unwrap_or(u32::MAX)).await;
        if self.stopped.get() { Err(ClientError::Closed) } else { Ok(()) }
    }

    /// The pool of an operation is not in the map: fails it unless a newer map has the pool.
    fn check_pool(self: &Rc<Self>, tid: u64) {
        let objecter = self.clone();
        self.env.go(async move {
            let _ = objecter.wait_for_latest_map().await;
            let mut ops = objecter.ops.borrow_mut();
            let Some(op) = ops.get_mut(&tid) else { return };
            op.checking_pool = false;
            if op.target.is_none()
                && let Some(op) = ops.remove(&tid)
            {
                drop(ops);
                op.answer.send(Err(Errno::ENOENT.into()));
            }
        });
    }
}

impl Op {
    fn waits_for_map(&self) -> bool {
        self.session.is_none() || self.target.as_ref().is_some_and(|target| target.paused)
    }
}

/// Bytes an op moves, for the budget.
fn cost_of(op: &OsdOp) -> u64 {
    let reads = if op.code == types::osd::ops::READ { op.args.extent().length } else { 0 };
    op.indata.len() as u64 + reads
}

/// The object that backoffs speak of: the head, whatever snapshot of it is read.
fn hobject_of(request: &Request, hash: u32) -> HObject {
    let base = &request.base;
    let key =
        if base.locator.key == base.object { BString::default() } else { base.locator.key.clone() };
    HObject {
        key,
        name: base.object.clone(),
        snap: NOSNAP,
        hash,
        max: false,
        namespace: base.locator.namespace.clone(),
        pool: base.locator.pool,
    }
}

fn message_of(op: &Op, target: &Target, epoch: u32) -> RawMessage {
    let request = &op.request;
    let retry = if op.attempts > 0 { message_flags::RETRY } else { 0 };
    MOSDOp {
        pgid: target.spg,
        hash: target.hash,
        epoch,
        flags: request.base.flags
            | message_flags::ONDISK
            | message_flags::KNOWN_REDIR
            | message_flags::SUPPORTSPOOLEIO
            | retry,
        reqid: OsdReqId::default(),
        client_inc: 0,
        mtime: op.mtime,
        locator: request.base.locator.clone(),
        object: request.base.object.clone(),
        ops: request.ops.clone(),
        snapid: request.snapid,
        snap_seq: request.snapc.seq,
        snaps: request.snapc.snaps.clone(),
        retry_attempt: op.attempts,
        features: features::ALL,
    }
    .encode()
}

fn outcome_of(reply: MOSDOpReply) -> Result<Outcome, ClientError> {
    if let Some(errno) = Errno::from_result(reply.result) {
        return Err(errno.into());
    }
    let each = |op: OsdOp| OpOutcome { rval: op.rval, data: op.outdata.to_contiguous() };
    Ok(Outcome {
        result: reply.result,
        ops: reply.ops.into_iter().map(each).collect(),
        version: reply.user_version,
    })
}

/// An operation as a request.
pub(crate) fn request_of(
    base: Base,
    operation: Operation,
    snapid: SnapId,
    snapc: SnapContext,
) -> Result<Request, ClientError> {
    // A message counts its ops in 16 bits.
    if operation.invalid || operation.ops.len() > usize::from(u16::MAX) {
        return Err(Errno::EINVAL.into());
    }
    Ok(Request { base, ops: operation.ops, snapid, snapc })
}

#[cfg(test)]
mod tests;
