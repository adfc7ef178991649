//! A placement group on one OSD: the driver around the peering core.
//!
//! Owns the collection, the core ([`peering::Peering`]), object contexts and queues of ops. All
//! changes of the core go through [`Pg::step`], which performs the effects: what the core says is
//! dirty is written in one transaction, then messages leave.
//!
//! Order: a PG's transactions are submitted in the order of their log entries, from
//! `replication.rs`, with no await between giving out a version and submitting.

mod audit;
pub mod backend;
pub mod backfill;
mod backfill_scan;
mod backoff;
mod client_op;
mod do_op;
mod extents;
mod fast_read;
pub mod host;
pub mod log;
mod log_update;
pub(crate) mod merge;
pub mod missing;
pub mod peering;
pub mod persist;
mod pull;
mod push;
pub mod query;
pub mod recovery;
pub(crate) mod removal;
mod replica_read;
pub mod replication;
pub mod reserve;
pub mod reserver;
pub(crate) mod rollback;
pub mod scrub;
mod services;
mod shard_recovery;
mod shards;
mod snap_rows;
mod snap_trim;
pub(crate) mod split;
pub(crate) mod state_history;
pub mod stats;
mod told_stats;
pub mod wire;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use env::sync::Notify;
use futures_util::FutureExt;
use maps::{OsdMap, PgPool};
use store::{CollId, Transaction};
use types::osd::{ObjectStatSum, PgLogEntry};
use types::{Epoch, GhObject, HObject, OsdId, PgShard, SpgId, UTime};

use self::backend::{Redundancy, ShardCodec};
use self::host::Host;
use self::log::Undo;
use self::peering::{Effect, Mapping, PeerMessage, Peering, Settings};
use self::persist::Keys;
use crate::ops::ObjectContexts;

pub use audit::PgAudit;
pub use client_op::ClientOp;

/// A PG of this OSD.
pub struct Pg {
    pub(crate) pgid: SpgId,
    pub(crate) cid: CollId,
    pub(crate) pgmeta: GhObject,
    pub(crate) host: Rc<dyn Host>,
    pub(crate) core: RefCell<Peering>,
    pub(crate) map: RefCell<Rc<OsdMap>>,
    pool: RefCell<Rc<PgPool>>,
    codec: RefCell<Option<Rc<dyn ShardCodec>>>,
    pub(crate) contexts: Rc<ObjectContexts>,
    me: Weak<Pg>,
    /// Raised at each new interval (and removal): tasks that began before end.
    pub(crate) generation: Cell<u64>,
    /// Writes under way, in the order of their versions. Bounded by the clients' throttles.
    repops: RefCell<BTreeMap<u64, Rc<replication::RepOp>>>,
    /// Ops that wait for the PG to be active, or readable; bounded likewise.
    waiting: RefCell<VecDeque<Box<ClientOp>>>,
    /// The PG serves again, or its interval has ended.
    serves: Notify,
    /// Clients' ops that run and began in this interval, and in earlier ones. None of this interval
    /// begins before the latter are back in `waiting`: they came first.
    running: Cell<(usize, usize)>,
    /// Told at each new interval.
    interval_ended: Notify,
    /// Backoffs asked of clients.
    backoffs: RefCell<Vec<backoff::Asked>>,
    /// Ops that wait for an object to be recovered.
    waiting_for_object: RefCell<BTreeMap<HObject, Vec<Box<ClientOp>>>>,
    /// Heads and clones that are recovered and whose ops are about to be run, by generation and head.
    requeueing: RefCell<BTreeMap<(u64, HObject), BTreeSet<HObject>>>,
    pub(crate) recovery: recovery::Recovery,
    pub(crate) reservations: reserve::Reservations,
    pub(crate) scrub: scrub::Scrubber,
    pub(crate) shards: shards::Shards,
    notify_counter: Cell<u32>,
    pub(crate) snap_trimming: Cell<bool>,
    /// Trimming found a clone that it cannot trim before somebody repairs it.
    pub(crate) snap_trim_error: Cell<bool>,
    wake_scheduled: Cell<bool>,
    requeue_scheduled: Cell<bool>,
    /// The peering state, since when, and the steps taken in it.
    in_state: Cell<(&'static str, Duration, u64)>,
    pub(crate) states: RefCell<state_history::StateHistory>,
    splitting: Cell<bool>,
    /// The copy is being removed.
    pub(crate) deleting: Cell<bool>,
    /// The PG came back while its copy was deleted.
    deletion_stopped: Cell<bool>,
    /// The epoch in the store: maps from there on must be kept.
    written_epoch: Cell<Epoch>,
    /// The counts in the store that writes do not write each time.
    written_counts: RefCell<ObjectStatSum>,
    /// What the replicas know of the statistics.
    stats_told: RefCell<told_stats::Told>,
    /// The monitor has not been seen to know that this new PG exists.
    created_unconfirmed: Cell<bool>,
}

/// Epochs a PG's record may lag behind.
const EPOCH_LAG_MAX: Epoch = 20;

/// Where a map puts a PG; one that it does not have yet is where the PG is that it splits from.
pub fn mapping_of(map: &OsdMap, pgid: SpgId) -> Mapping {
    let ua = map.pg_to_up_acting(map.raw_pg_to_pg(pgid.pgid).unwrap_or(pgid.pgid));
    let pool = map.pool(pgid.pgid.pool_id());
    Mapping {
        up: ua.up,
        up_primary: ua.up_primary,
        acting: ua.acting,
        acting_primary: ua.acting_primary,
        size: pool.map_or(0, |p| p.size.into()),
        min_size: pool.map_or(0, |p| p.min_size.into()),
        pg_num: pool.map_or(0, |p| p.pg_num),
        pg_num_pending: pool.map_or(0, |p| p.pg_num_pending),
        resend_epoch: pool.map_or(0, |p| p.last_force_op_resend),
        redundancy: pool.map_or(Redundancy::Copies, |p| backend::redundancy(map, p)),
    }
}

impl Pg {
    /// A PG around a core that was loaded or created at `map`.
    pub fn new(host: Rc<dyn Host>, core: Peering, map: Rc<OsdMap>) -> Rc<Pg> {
        let (pgid, written_epoch) = (core.pgid, core.epoch);
        let written_counts = RefCell::new(persist::slow_counts(&core.info));
        let pool = map.pool(pgid.pgid.pool_id()).cloned().unwrap_or_default();
        Rc::new_cyclic(|me| Pg {
            pgid,
            cid: CollId::Pg(pgid),
            pgmeta: pgid.pgmeta(),
            host,
            core: RefCell::new(core),
            codec: RefCell::new(backend::codec(&map, &pool)),
            pool: RefCell::new(Rc::new(pool)),
            map: RefCell::new(map),
            contexts: ObjectContexts::new(),
            me: me.clone(),
            generation: Cell::new(1),
            repops: RefCell::default(),
            waiting: RefCell::default(),
            serves: Notify::default(),
            running: Cell::default(),
            interval_ended: Notify::default(),
            backoffs: RefCell::default(),
            waiting_for_object: RefCell::default(),
            requeueing: RefCell::default(),
            recovery: recovery::Recovery::default(),
            reservations: reserve::Reservations::default(),
            scrub: scrub::Scrubber::default(),
            shards: shards::Shards::default(),
            notify_counter: Cell::new(0),
            snap_trimming: Cell::new(false),
            snap_trim_error: Cell::new(false),
            wake_scheduled: Cell::new(false),
            requeue_scheduled: Cell::new(false),
            in_state: Cell::new(("", Duration::ZERO, 0)),
            states: RefCell::default(),
            splitting: Cell::new(false),
            deleting: Cell::new(false),
            deletion_stopped: Cell::new(false),
            written_epoch: Cell::new(written_epoch),
            written_counts,
            stats_told: RefCell::default(),
            created_unconfirmed: Cell::new(false),
        })
    }

    /// Creates the collection of a PG that is new here, with its first info.
    pub fn make_collection(&self, t: &mut Transaction) {
        t.mkcoll(&self.cid, self.collection_bits());
        self.make_meta(t);
    }

    /// The same in the collection of a copy that was not removed to the end.
    pub(crate) fn make_meta(&self, t: &mut Transaction) {
        t.touch(&self.cid, &self.pgmeta);
        self.write_dirty(t);
    }

    pub(crate) fn rc(&self) -> Rc<Pg> {
        // A PG is only ever reached through an Rc; the weak reference is that one's.
        self.me.upgrade().expect("a PG in use is alive")
    }

    /// The PG as the op interpreter knows it.
    pub(crate) fn as_ops(&self) -> Rc<dyn crate::ops::Pg> {
        self.rc()
    }

    pub(crate) fn pool(&self) -> Rc<PgPool> {
        self.pool.borrow().clone()
    }

    pub(crate) fn now(&self) -> Duration {
        self.host.env().now()
    }

    /// We, as a member of the PG.
    pub(crate) fn whoami(&self) -> PgShard {
        PgShard::new(self.host.whoami(), self.pgid.shard)
    }

    /// The PG as another member knows it: what messages to it name.
    pub(crate) fn pgid_at(&self, member: PgShard) -> SpgId {
        SpgId { pgid: self.pgid.pgid, shard: member.shard }
    }

    /// The name of an object of the PG in the store.
    pub(crate) fn goid(&self, oid: &HObject) -> GhObject {
        GhObject { shard: self.pgid.shard, ..GhObject::from(oid.clone()) }
    }

    /// What knows the shards of an erasure coded pool.
    pub(crate) fn codec(&self) -> Option<Rc<dyn ShardCodec>> {
        self.codec.borrow().clone()
    }

    /// The epoch the PG is at.
    pub fn epoch(&self) -> Epoch {
        self.core.borrow().epoch
    }

    /// The PG.
    pub fn pgid(&self) -> SpgId {
        self.pgid
    }

    /// The OSD that leads it, by the map that the PG has.
    pub(crate) fn leader(&self) -> Option<OsdId> {
        self.core.borrow().primary().map(|shard| shard.osd)
    }

    /// Brings the PG up to the newest of `maps`, which follow each other from its own epoch on.
    pub fn advance(&self, maps: &[Rc<OsdMap>]) {
        if self.deleting.get() {
            return;
        }
        self.splitting.set(false);
        let now = self.now();
        let mut out = Vec::new();
        for map in maps {
            let last = self.map.borrow().clone();
            if map.epoch <= last.epoch {
                continue;
            }
            let Some(pool) = map.pool(self.pgid.pgid.pool_id()) else {
                // The pool is gone: the OSD removes the PG.
                self.map.replace(map.clone());
                continue;
            };
            let unchanged =
                map.epoch != last.epoch && last.pool(self.pgid.pgid.pool_id()) == Some(pool);
            if !unchanged {
                *self.pool.borrow_mut() = Rc::new(pool.clone());
                *self.codec.borrow_mut() = backend::codec(map, pool);
            }
            let mapping = mapping_of(map, self.pgid);
            self.core.borrow_mut().advance_map(&**map, &*last, mapping, now, &mut out);
            self.map.replace(map.clone());
            self.fail_pulls_from_down(map);
        }
        let map = self.map.borrow().clone();
        if map.epoch > self.written_epoch.get() + EPOCH_LAG_MAX {
            self.core.borrow_mut().mark_dirty_info();
        }
        if let Some(pool) = map.pool(self.pgid.pgid.pool_id())
            && !pool.has_flag(maps::pool::pool_flags::CREATING)
        {
            self.created_unconfirmed.set(false);
        }
        self.core.borrow_mut().act_map(&*map, now, &mut out);
        self.perform(out, Transaction::new());
        self.requeue_waiting();
        self.kick_recovery();
        self.recover_if_room();
        self.maybe_trim_snaps();
    }

    /// A map of the past, on the way to the present: nothing is done about it.
    pub(crate) fn advance_quietly(&self, map: &Rc<OsdMap>) {
        let last = self.map.borrow().clone();
        let Some(pool) = map.pool(self.pgid.pgid.pool_id()) else { return };
        if map.epoch <= last.epoch {
            return;
        }
        *self.pool.borrow_mut() = Rc::new(pool.clone());
        *self.codec.borrow_mut() = backend::codec(map, pool);
        let mapping = mapping_of(map, self.pgid);
        let mut out = Vec::new();
        self.core.borrow_mut().advance_map(&**map, &*last, mapping, self.now(), &mut out);
        self.map.replace(map.clone());
    }

    pub(crate) fn has_pool_in(&self, map: &OsdMap) -> bool {
        map.pool(self.pgid.pgid.pool_id()).is_some()
    }

    /// The oldest map that the PG would need after a restart.
    pub(crate) fn oldest_epoch_needed(&self) -> Epoch {
        self.written_epoch.get().min(self.epoch())
    }

    pub(crate) fn creation_unconfirmed(&self) -> bool {
        self.created_unconfirmed.get() && self.core.borrow().is_primary()
    }

    /// The OSD goes down: tasks end, references go.
    pub(crate) fn stop(&self) {
        self.deleting.set(true);
        self.on_interval_change();
    }

    /// First step of a PG that has just been loaded or created.
    pub fn begin(&self) {
        self.step(|core, map, now, out| core.act_map(map, now, out));
    }

    /// Changes the core and does what comes of it. Nothing while the PG splits: its log has been
    /// shared out, and who asks for it, in the interval that is over, would take it for a whole one.
    pub(crate) fn step(
        &self,
        change: impl FnOnce(&mut Peering, &OsdMap, Duration, &mut Vec<Effect>),
    ) {
        if self.deleting.get() || self.splitting.get() {
            return;
        }
        let mut out = Vec::new();
        let map = self.map.borrow().clone();
        change(&mut self.core.borrow_mut(), &map, self.now(), &mut out);
        self.perform(out, Transaction::new());
    }

    /// A peering message.
    pub fn on_peer_message(&self, from: PgShard, epochs: (Epoch, Epoch), mut message: PeerMessage) {
        if let Some(lease) = message.lease_mut() {
            lease.readable_until_here = self.host.moment_of(from.osd, lease.readable_until);
        }
        let was_readable = self.is_serving();
        self.step(|core, map, now, out| core.on_message(from, epochs, message, map, now, out));
        if !was_readable && self.is_serving() {
            self.requeue_waiting();
        }
    }

    fn is_serving(&self) -> bool {
        let core = self.core.borrow();
        core.is_active() && core.is_readable(self.now())
    }

    /// Appends what is dirty of info, log and missing set to a transaction.
    pub(crate) fn write_dirty(&self, t: &mut Transaction) {
        let mut core = self.core.borrow_mut();
        let mut keys = Keys::default();
        if core.log.is_dirty() {
            let changes = core.log.take_changes();
            if changes.all {
                persist::clear_log(&self.cid, &self.pgmeta, t);
            }
            keys.log(changes);
        }
        if core.missing.is_dirty() {
            let changes = core.missing.take_dirty();
            keys.missing(changes);
        }
        let dirty = core.take_dirty();
        if dirty.info || dirty.big_info {
            let past = dirty.big_info.then_some(&core.past_intervals);
            keys.info(&core.info, past, core.epoch);
            self.written_counts.replace(persist::slow_counts(&core.info));
            self.written_epoch.set(core.epoch);
        }
        keys.add_to(&self.cid, &self.pgmeta, t);
    }

    /// Counts the step just taken, and the change of state it may have brought.
    fn count_step(&self) {
        let name = {
            let core = self.core.borrow();
            let (name, interval) = (core.state().name(), core.info.history.same_interval_since);
            let now = || UTime::from_duration(self.host.env().wall_clock());
            self.states.borrow_mut().step(name, interval, core.epoch, now);
            name
        };
        let (was, since, steps) = self.in_state.get();
        if name == was {
            self.in_state.set((was, since, steps + 1));
            return;
        }
        let now = self.now();
        if !was.is_empty() {
            self.host.pg_left(was, now.saturating_sub(since), steps);
        }
        self.host.pg_entered(name);
        self.in_state.set((name, now, 1));
    }

    fn perform(&self, effects: Vec<Effect>, mut t: Transaction) {
        self.count_step();
        let mut messages = Vec::new();
        let (mut activate, mut activated, mut clean) = (false, false, false);
        let mut remove_above = None;
        let (mut removed, mut undone) = (Vec::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::Send { to, query_epoch, message } => {
                    messages.push((to, query_epoch, message));
                }
                Effect::Join { to, message } => {
                    let raw = self.peer_message(to, self.epoch(), message);
                    self.host.send_osd(to.osd, raw);
                }
                Effect::Undo(Undo::Remove(oid)) => {
                    t.remove(&self.cid, &self.goid(&oid));
                    self.contexts.forget(&oid);
                    removed.push(oid);
                }
                Effect::Undo(Undo::Rollback(e)) => {
                    self.undo_entry(&e, &mut t);
                    self.contexts.forget(&e.soid);
                    undone.push(e);
                }
                Effect::Undo(Undo::Trim(e)) => self.trim_entry(&e, &mut t),
                Effect::RemoveAbove(oid) => remove_above = Some(oid),
                Effect::IntervalChanged => self.on_interval_change(),
                Effect::WantUpThru(epoch) => self.host.want_up_thru(epoch),
                Effect::WantPgTemp(acting) => self.host.want_pg_temp(self.pgid, acting),
                Effect::Activate => activate = true,
                Effect::Activated => activated = true,
                Effect::Clean => clean = true,
                Effect::Created => {
                    self.created_unconfirmed.set(true);
                    self.host.pg_created(self.pgid.pgid);
                }
                Effect::RemovePg => self.host.remove_pg(self.pgid),
            }
        }
        self.update_stamps();
        self.write_dirty(&mut t);
        let mut later = Vec::new();
        for (to, query_epoch, message) in messages {
            let promises = message.is_promise() && !env::mutant("promise-early");
            let raw = self.peer_message(to, query_epoch, message);
            if promises {
                later.push((to, raw));
            } else {
                self.host.send_osd(to.osd, raw);
            }
        }
        if !later.is_empty() && t.is_empty() {
            // Waits for what was submitted before.
            t.touch(&self.cid, &self.pgmeta);
        }
        let committed = (!t.is_empty()).then(|| self.host.store().submit(t));
        if committed.is_some() || activate {
            self.watch_commit(committed, activate, remove_above, (removed, undone), later);
        }
        if activated {
            self.host.forget_pg_temp(self.pgid);
            self.on_active();
            self.merge_on_activated();
        }
        if clean {
            self.merge_on_clean();
            self.scrub_on_clean();
            self.maybe_trim_snaps();
        }
        self.back_off_waiting();
    }

    fn watch_commit(
        &self,
        committed: Option<env::LocalFuture<Result<(), store::StoreError>>>,
        activate: bool,
        remove_above: Option<HObject>,
        (removed, undone): (Vec<HObject>, Vec<Rc<PgLogEntry>>),
        messages: Vec<(PgShard, types::RawMessage)>,
    ) {
        let pg = self.rc();
        let (generation, interval) = (self.generation.get(), self.core.borrow().last_peering_reset);
        if remove_above.is_some() {
            self.recovery.emptying.set(true);
        }
        self.host.env().go(async move {
            if let Some(committed) = committed
                && !env::mutant("promise-early")
                && let Err(e) = committed.await
            {
                pg.host.store_failed(&e);
                return;
            }
            for (to, raw) in messages {
                pg.host.send_osd(to.osd, raw);
            }
            pg.unmap_snaps(&removed).await;
            pg.put_snaps_back(&undone).await;
            if activate && generation == pg.generation.get() {
                pg.step(|core, map, now, out| {
                    core.on_activate_committed(interval, map, now, out);
                });
            }
            if let Some(above) = remove_above
                && pg.remove_objects(&above, generation).await
            {
                pg.recovery.emptying.set(false);
                pg.recovery.changed.notify_all();
            }
        });
    }

    fn on_interval_change(&self) {
        self.generation.set(self.generation.get() + 1);
        let (running, earlier) = self.running.get();
        self.running.set((0, running + earlier));
        self.snap_trim_error.set(false);
        self.interval_ended.notify_all();
        self.serves.notify_all();
        self.contexts.clear();
        self.release_backoffs();
        let mut ops: Vec<Box<ClientOp>> = Vec::new();
        for repop in std::mem::take(&mut *self.repops.borrow_mut()).into_values() {
            ops.extend(repop.take_duplicates());
        }
        self.reservations.reset();
        self.recovery.reset();
        self.shards.reset();
        let mut t = Transaction::new();
        ops.extend(self.reset_scrub(&mut t));
        self.drop_temps(&mut t);
        if !t.is_empty() {
            // Durable or not does not matter: they are looked for at the next start.
            drop(self.host.store().submit(t));
        }
        self.host.forget_pg_temp(self.pgid);
        self.host.clear_ready_to_merge(self.pgid);
        for waiting in std::mem::take(&mut *self.waiting_for_object.borrow_mut()).into_values() {
            ops.extend(waiting);
        }
        ops.extend(self.waiting.borrow_mut().drain(..));
        for op in ops {
            self.retry_op(op);
        }
    }

    /// The interval ended under an op. Clients send again what another primary should have got,
    /// and only that; for the rest it is ours to run again (a write that got into the log is then
    /// found there).
    pub(crate) fn retry_op(&self, op: Box<ClientOp>) {
        let ours = {
            let core = self.core.borrow();
            let since = core.info.history.same_primary_since;
            core.is_primary() && op.epoch >= since && !self.deleting.get()
        };
        if !ours {
            self.drop_op(op);
            return;
        }
        op.tracked.mark("requeued: new interval");
        let mut waiting = self.waiting.borrow_mut();
        let at = waiting.partition_point(|other| other.arrival < op.arrival);
        waiting.insert(at, op);
        drop(waiting);
        if self.is_serving() {
            self.schedule_requeue();
        }
    }

    /// Runs a client's op.
    fn run(&self, op: impl Future<Output = ()> + 'static) {
        let (running, earlier) = self.running.get();
        self.running.set((running + 1, earlier));
        let (pg, generation) = (self.rc(), self.generation.get());
        // Not in an `async` block, which would have room for the op twice: where it is caught, and where it is awaited.
        self.host.env().go(op.map(move |()| {
            let (running, earlier) = pg.running.get();
            if generation == pg.generation.get() {
                pg.running.set((running - 1, earlier));
                return;
            }
            pg.running.set((running, earlier - 1));
            if earlier == 1 {
                pg.requeue_waiting();
            }
        }));
    }

    /// Runs waiting ops in a moment (not from inside an op).
    fn schedule_requeue(&self) {
        if self.requeue_scheduled.replace(true) {
            return;
        }
        let pg = self.rc();
        self.host.env().go(async move {
            pg.requeue_scheduled.set(false);
            pg.requeue_waiting();
        });
    }

    /// The client will send again: it gets the maps that tell it so.
    pub(crate) fn drop_op(&self, op: Box<ClientOp>) {
        tracing::debug!(pg = %self.pgid, epoch = op.epoch, at = self.epoch(), "op dropped");
        self.host.share_maps(&op.session);
        op.tracked.mark("dropped: new interval");
    }

    fn on_active(&self) {
        let (active, last_update) = {
            let core = self.core.borrow();
            (core.is_active(), core.info.last_update)
        };
        if active {
            self.release_backoffs();
            // All that act have the log, and the activation is recorded: it stands.
            self.committed_to(last_update);
        }
        self.requeue_waiting();
        self.kick_recovery();
        self.maybe_trim_snaps();
    }

    /// Runs what waited for the PG to serve.
    pub(crate) fn requeue_waiting(&self) {
        if self.is_serving() {
            self.serves.notify_all();
        }
        if self.waiting.borrow().is_empty() {
            return;
        }
        if !self.is_serving() {
            self.back_off_waiting();
            self.schedule_wake();
            return;
        }
        if self.running.get().1 > 0 {
            return; // the last of them comes here again
        }
        let ops = std::mem::take(&mut *self.waiting.borrow_mut());
        for op in ops {
            self.do_op(op);
        }
    }

    /// Time has to pass (leases of an earlier interval) before ops run and the PG is clean: look again then.
    pub(crate) fn schedule_wake(&self) {
        let now = self.now();
        let until = {
            let core = self.core.borrow();
            if !core.is_activated() {
                return;
            }
            core.wait_until(now)
        };
        let Some(until) = until else { return };
        if self.wake_scheduled.replace(true) {
            return;
        }
        let pg = self.rc();
        let env = self.host.env().clone();
        self.host.env().go(async move {
            env.sleep_until(until).await;
            pg.wake_scheduled.set(false);
            pg.requeue_waiting();
            pg.kick_recovery();
        });
    }

    /// Whether this primary would serve, had its lease not run out.
    pub fn is_laggy(&self) -> bool {
        self.core.borrow().is_laggy(self.now())
    }

    /// Called every half lease: an active primary gives its replicas a new one.
    pub fn renew_lease(&self) {
        if self.core.borrow().is_activated() {
            self.step(|core, _, now, out| core.renew_lease(now, out));
            self.requeue_waiting();
        }
    }

    /// Settings of the core from the configuration; `pgs`: PGs that the OSD has.
    pub fn settings(config: &config::Config, pgs: usize) -> Settings {
        let lease = config.uint("osd_heartbeat_grace") as f64
            * config.float("osd_pool_default_read_lease_ratio");
        Settings {
            min_log_entries: config.uint("osd_min_pg_log_entries") as usize,
            max_log_entries: config.uint("osd_max_pg_log_entries") as usize,
            log_entries: log_entries(config, pgs),
            dups_tracked: config.uint("osd_pg_log_dups_tracked") as usize,
            trim_min: config.uint("osd_pg_log_trim_min") as usize,
            read_lease: Duration::from_secs_f64(lease.clamp(0.1, 600.0)),
        }
    }

    /// Takes what has changed since. PGs of an OSD that started kept as long logs as it is by default, whatever
    /// monitors said: their configuration comes later. Leases stay: what others wait for was told with them.
    pub(crate) fn configure(&self, config: &config::Config, pgs: usize) {
        let settings = &mut self.core.borrow_mut().settings;
        *settings = Settings { read_lease: settings.read_lease, ..Pg::settings(config, pgs) };
    }

    fn peer_message(
        &self,
        to: PgShard,
        query_epoch: Epoch,
        message: PeerMessage,
    ) -> types::RawMessage {
        wire::encode(self.pgid.pgid, self.whoami(), to, self.epoch(), query_epoch, message)
    }
}

/// Entries that the log of a PG that lacks nothing is trimmed to, where the OSD has `pgs` of them: its share of
/// osd_target_pg_log_entries_per_osd (`OSDService::get_target_pg_log_entries` in `src/osd/OSD.cc`), if somebody has set
/// that. The default, of which an OSD with few PGs would keep 10,000 entries for each, would take more memory than all
/// else does.
fn log_entries(config: &config::Config, pgs: usize) -> usize {
    const TARGET: &str = "osd_target_pg_log_entries_per_osd";
    let least = config.uint("osd_min_pg_log_entries") as usize;
    let most = config.uint("osd_max_pg_log_entries") as usize;
    let target = config.uint(TARGET) as usize;
    let is_told = config.source(TARGET).is_some_and(|s| s != config::Source::Default);
    match target.checked_div(pgs) {
        Some(share) if is_told && target > 0 => share.min(most).max(least),
        _ => least,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// osd_target_pg_log_entries_per_osd was not read.
    #[test]
    fn logs_share_what_an_osd_is_told_to_aim_at() {
        let config = config::Config::new("osd", "0");
        let set = |name, value| config.set(name, value, config::Source::File).unwrap();
        assert_eq!(log_entries(&config, 4), 250);
        set("osd_target_pg_log_entries_per_osd", "4000");
        assert_eq!(log_entries(&config, 4), 1000);
        assert_eq!(log_entries(&config, 100), 250);
        assert_eq!(log_entries(&config, 0), 250);
        set("osd_max_pg_log_entries", "600");
        assert_eq!(log_entries(&config, 4), 600);
        set("osd_min_pg_log_entries", "700");
        assert_eq!(log_entries(&config, 4), 700);
        set("osd_target_pg_log_entries_per_osd", "0");
        set("osd_min_pg_log_entries", "3");
        assert_eq!(log_entries(&config, 4), 3);
    }
}
