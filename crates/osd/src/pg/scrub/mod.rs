//! Scrub: a PG's copies are compared, chunk by chunk (`src/osd/pg_scrubber.cc`,
//! `src/osd/scrub_machine.cc` at v16.2).
//!
//! ```text
//! asked or due -> slots here and on the replicas -> for each chunk:
//!     MOSDRepScrub -> replicas scan; we scan; a write in between? again, the chunk smaller,
//!     at last with writes held off -> compare -> keep what is wrong
//! -> counts, stamps, cluster log -> repair: bad copies are missing, recovery does the rest
//! ```
//!
//! A chunk is compared only if no write to it was logged while it was scanned: replicas get the
//! order to scan behind all earlier writes, so all scan the same version.
//!
//! * `schedule`: when. * `slots`: how many. * `scan`: what is here. * `compare`, `snapsets`: what
//!   is wrong. * `results`: kept for clients. * `primary`, `replica`, `repair`: what is done.

pub mod compare;
mod primary;
mod repair;
mod replica;
pub mod results;
mod scan;
pub mod schedule;
pub mod slots;
pub mod snapsets;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use env::sync::Sender;
use maps::osdmap::osdmap_flags;
use maps::pool::{PoolOpt, pool_flags, pool_opts};
use store::Transaction;
use types::osd::{LogOp, ObjectStatSum, PgLogEntry, ScrubMap, pg_state};
use types::{Epoch, GhObject, HObject, PgShard, UTime};

use self::scan::Chunk;
use self::schedule::{Kind, Last, Times};
use self::slots::Slot;
use super::{ClientOp, Pg};

/// Options that scrub reads.
#[derive(Debug, Clone, Copy)]
pub struct ScrubSettings {
    /// osd_max_scrubs.
    pub slots: u64,
    /// osd_scrub_chunk_max.
    pub chunk: usize,
    /// osd_scrub_max_preemptions: scans of a chunk that a write may spoil.
    pub preemptions: u32,
    /// osd_scrub_sleep, seconds between chunks.
    pub sleep_sec: f64,
    /// osd_deep_scrub_stride, bytes read at a time.
    pub stride: u64,
    /// osd_deep_scrub_keys, omap keys read at a time.
    pub omap_keys: usize,
    /// osd_deep_scrub_large_omap_object_key_threshold.
    pub large_omap_keys: u64,
    /// osd_deep_scrub_large_omap_object_value_sum_threshold.
    pub large_omap_bytes: u64,
    /// osd_max_object_size.
    pub object_size_max: u64,
    /// osd_deep_scrub_update_digest_min_age.
    pub digest_min_age_sec: u64,
    /// osd_scrub_auto_repair_num_errors.
    pub auto_repair_max: usize,
    /// osd_scrub_during_recovery: recovery of the OSD's keeps no scrub back.
    pub during_recovery: bool,
    /// osd_repair_during_recovery: it keeps no repair back that was asked for.
    pub repair_during_recovery: bool,
    /// Intervals, hours, chances; the flags are all "allowed".
    pub times: Times,
}

/// Scrubbing of one PG.
#[derive(Default)]
pub struct Scrubber {
    /// Asked for and not begun.
    wanted: Cell<Option<Kind>>,
    /// Asked for, begun and not ended.
    under_way: Cell<Option<Kind>>,
    /// A task is at it, or about to be.
    running: Cell<bool>,
    /// SCRUBBING and DEEP_SCRUB, while it scrubs.
    shown: Cell<u64>,
    /// The REPAIR state.
    repairing: Cell<bool>,
    /// The FAILED_REPAIR state.
    failed_repair: Cell<bool>,
    /// When repair is done a deep scrub is to show what is left.
    scrub_after_recovery: Cell<bool>,
    /// Writes to this chunk wait.
    blocked: RefCell<Option<Chunk>>,
    /// They wait here; bounded by the clients' throttles.
    waiting: RefCell<Vec<Box<ClientOp>>>,
    /// The chunk that is scanned, until a write to it comes. (A busy PG's log has forgotten such a write when the scan ends.)
    unwritten: RefCell<Option<Chunk>>,
    /// Everything before this has been counted.
    counted_to: RefCell<Option<HObject>>,
    /// What was counted.
    counted: RefCell<ObjectStatSum>,
    /// Found damaged, and not removed since. (A busy PG's log has forgotten the removal when the scrub ends.)
    damaged: RefCell<BTreeSet<HObject>>,
    /// Maps that replicas owe us; at most one each.
    maps: RefCell<BTreeMap<PgShard, Sender<ScrubMap>>>,
    /// Answers about slots that replicas owe us.
    grants: RefCell<BTreeMap<PgShard, Sender<bool>>>,
    /// The slot that we, as replica, hold for the primary of this interval.
    held: RefCell<Option<Slot>>,
    /// Raised when the primary begins or ends a scrub: what a replica scans for an earlier one is not asked for any more.
    session: Cell<u64>,
    /// The object with the results is there.
    has_results: Cell<bool>,
    /// 0 to 1: by how much the next scrub is put off.
    luck: Cell<Option<f64>>,
    /// When it last had a slot of its own OSD, on the clock that only goes forward.
    had_slot: Cell<Duration>,
}

impl Scrubber {
    /// Whether one runs.
    pub fn is_active(&self) -> bool {
        self.shown.get() != 0
    }

    /// Whether what is recovered is recovered because it was found damaged.
    pub(super) fn is_repairing(&self) -> bool {
        self.repairing.get()
    }

    /// The bits of the PG's state that are ours.
    pub(super) fn state_bits(&self, errors: i64) -> u64 {
        let mut bits = self.shown.get();
        if self.repairing.get() {
            bits |= pg_state::REPAIR;
        }
        if errors > 0 {
            bits |= pg_state::INCONSISTENT;
            if self.failed_repair.get() {
                bits |= pg_state::FAILED_REPAIR;
            }
        }
        bits
    }

    /// Whether a write of the object has to wait.
    pub(super) fn blocks(&self, oid: &HObject) -> bool {
        self.blocked.borrow().as_ref().is_some_and(|chunk| chunk.contains(oid))
    }

    /// A write came: a chunk it changes is scanned anew, what it removes needs no repair, and the statistics of objects that have been
    /// counted change with it.
    pub(super) fn on_write(&self, oid: &HObject, entries: &[PgLogEntry], stats: &ObjectStatSum) {
        let mut unwritten = self.unwritten.borrow_mut();
        if let Some(chunk) = &*unwritten
            && entries.iter().any(|e| e.op != LogOp::ERROR && chunk.contains(&e.soid))
        {
            *unwritten = None;
        }
        let mut damaged = self.damaged.borrow_mut();
        for e in entries.iter().filter(|e| e.is_delete()) {
            damaged.remove(&e.soid);
        }
        if self.counted_to.borrow().as_ref().is_some_and(|to| oid < to) {
            self.counted.borrow_mut().add(stats);
        }
    }
}

impl Pg {
    /// A write that has to wait until its chunk is scrubbed.
    pub(super) fn wait_for_scrub(&self, op: Box<ClientOp>) {
        op.tracked.mark("waiting for scrub");
        self.scrub.waiting.borrow_mut().push(op);
    }

    /// The interval, and the scrub in it that a replica works for.
    fn scrub_session(&self) -> (u64, u64) {
        (self.generation.get(), self.scrub.session.get())
    }

    /// Writes may go on.
    fn unblock_writes(&self) {
        self.scrub.blocked.borrow_mut().take();
        let ops = std::mem::take(&mut *self.scrub.waiting.borrow_mut());
        for op in ops {
            self.do_op(op);
        }
    }

    /// The interval ended: gives back what waited. What the last scrub found goes.
    pub(super) fn reset_scrub(&self, t: &mut Transaction) -> Vec<Box<ClientOp>> {
        self.want_again();
        let s = &self.scrub;
        s.running.set(false);
        s.shown.set(0);
        s.repairing.set(false);
        s.scrub_after_recovery.set(false);
        s.blocked.borrow_mut().take();
        s.unwritten.borrow_mut().take();
        s.counted_to.borrow_mut().take();
        s.damaged.borrow_mut().clear();
        s.maps.borrow_mut().clear();
        s.grants.borrow_mut().clear();
        s.held.borrow_mut().take();
        s.luck.set(None);
        if s.has_results.replace(false) {
            t.remove(&self.cid, &results::object_of(self.pgid));
        }
        std::mem::take(&mut *s.waiting.borrow_mut())
    }

    /// Where the last scrub of this interval left what it found.
    pub(super) fn scrub_results_object(&self) -> Option<GhObject> {
        self.scrub.has_results.get().then(|| results::object_of(self.pgid))
    }

    /// Somebody asks for a scrub (MOSDScrub2). It begins as soon as there are slots.
    pub fn request_scrub(&self, deep: bool, repair: bool) {
        if !self.core.borrow().is_primary() {
            return;
        }
        let deep = deep || repair;
        self.want(Kind { deep, repair, required: true, ..Kind::default() });
        self.maybe_scrub(&self.host.scrub_settings());
    }

    fn want_deep_scrub(&self, kind: Kind) {
        self.want(Kind { deep: true, required: true, ..kind });
    }

    /// A scrub is to be made, with what was asked for and has not begun.
    fn want(&self, kind: Kind) {
        let wanted = &self.scrub.wanted;
        wanted.set(Some(wanted.get().map_or(kind, |before| before.and(kind))));
    }

    /// A scrub stopped before its end: one that was asked for is to be made all the same. (Another primary does not know of it.)
    fn want_again(&self) {
        if let Some(kind) = self.scrub.under_way.take()
            && self.core.borrow().is_primary()
        {
            self.want(kind);
        }
    }

    /// Whether a scrub has to wait until this OSD has recovered: it holds a slot for a PG that it leads or follows in
    /// (`OSDService::is_recovery_active` in `src/osd/OSD.cc` at v16.2).
    fn recovery_goes_first(&self, settings: &ScrubSettings) -> bool {
        let recovers =
            || self.host.local_reserver().is_held() || self.host.remote_reserver().is_held();
        !settings.during_recovery && recovers()
    }

    fn times(&self, settings: &ScrubSettings) -> Times {
        let (map, pool) = (self.map.borrow().clone(), self.pool());
        let of_pool = |key: u32, default: f64| match pool.opts.0.get(&key) {
            Some(PoolOpt::Double(v)) if *v > 0.0 => *v,
            Some(PoolOpt::Int(v)) if *v > 0 => *v as f64,
            _ => default,
        };
        let forbidden =
            |map_flag: u32, pool_flag: u64| map.has_flag(map_flag) || pool.has_flag(pool_flag);
        let t = settings.times;
        Times {
            min_interval_sec: of_pool(pool_opts::SCRUB_MIN_INTERVAL, t.min_interval_sec),
            max_interval_sec: of_pool(pool_opts::SCRUB_MAX_INTERVAL, t.max_interval_sec),
            deep_interval_sec: of_pool(pool_opts::DEEP_SCRUB_INTERVAL, t.deep_interval_sec),
            allow_shallow: !forbidden(osdmap_flags::NOSCRUB, pool_flags::NOSCRUB),
            allow_deep: !forbidden(osdmap_flags::NODEEP_SCRUB, pool_flags::NODEEP_SCRUB),
            ..t
        }
    }

    fn last_scrubs(&self) -> Last {
        let core = self.core.borrow();
        Last {
            scrub: core.info.history.last_scrub_stamp,
            deep: core.info.history.last_deep_scrub_stamp,
            has_deep_errors: core.info.stats.stats.sum.num_deep_scrub_errors > 0,
            stats_invalid: core.info.stats.stats_invalid,
        }
    }

    fn chance(&self) -> f64 {
        (self.host.env().random_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Begins a scrub that was asked for or is due, if recovery lets it (`OSD::sched_scrub`). Called every second.
    pub fn maybe_scrub(&self, settings: &ScrubSettings) {
        let ready = {
            let core = self.core.borrow();
            core.is_primary() && core.is_active() && core.is_clean()
        };
        if !ready || self.scrub.running.get() || self.deleting.get() {
            return;
        }
        let kind = match self.scrub.wanted.get() {
            Some(kind) if kind.repair && settings.repair_during_recovery => kind,
            _ if self.recovery_goes_first(settings) => return,
            Some(kind) => kind,
            None => {
                let luck = self.scrub.luck.get().unwrap_or_else(|| self.chance());
                self.scrub.luck.set(Some(luck));
                let times = self.times(settings);
                let now = UTime::from_duration(self.host.env().wall_clock());
                let coin = self.chance();
                match schedule::due(&times, &self.last_scrubs(), now, luck, coin) {
                    Some(kind) => kind,
                    None => return,
                }
            }
        };
        self.scrub.running.set(true);
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(primary::run(pg, kind, generation));
    }

    /// Whose turn it is among the PGs of an OSD, the smallest first: those that somebody asked for
    /// before those that are due, then who has waited longest for a slot, refused by replicas or not,
    /// then who was scrubbed longest ago. By number alone the first ones would take every slot where
    /// intervals are short.
    pub fn scrub_turn(&self) -> (bool, Duration, UTime) {
        let s = &self.scrub;
        (s.wanted.get().is_none(), s.had_slot.get(), self.last_scrubs().scrub)
    }

    /// When the next scrub of a primary's PG is due, and from when on nothing keeps it back; both
    /// zero if one is asked for.
    pub fn scheduled_scrub(&self, settings: &ScrubSettings) -> Option<(UTime, UTime)> {
        if !self.core.borrow().is_primary() {
            return None;
        }
        if self.scrub.wanted.get().is_some() {
            return Some((UTime::ZERO, UTime::ZERO));
        }
        let luck = self.scrub.luck.get().unwrap_or_else(|| self.chance());
        self.scrub.luck.set(Some(luck));
        let times = self.times(settings);
        let last = self.last_scrubs().scrub.to_duration();
        let after = |sec: f64| {
            let wait = Duration::try_from_secs_f64(sec.max(0.0)).unwrap_or(Duration::MAX);
            UTime::from_duration(last.saturating_add(wait))
        };
        let wait = times.min_interval_sec * (1.0 + times.randomize * luck);
        Some((after(wait), after(times.max_interval_sec)))
    }

    /// Dates the last scrub, or the last deep one alone, back: by `sec` seconds, or the whole interval. The next scrub that
    /// is due is deep then.
    pub fn trigger_scrub(&self, deep: bool, sec: u64) -> UTime {
        let times = self.times(&self.host.scrub_settings());
        let interval = if deep { times.deep_interval_sec } else { times.max_interval_sec };
        let back = if sec == 0 { interval } else { sec as f64 } + 100.0;
        let back = Duration::try_from_secs_f64(back.max(0.0)).unwrap_or(Duration::MAX);
        let stamp = UTime::from_duration(self.host.env().wall_clock().saturating_sub(back));
        {
            let mut core = self.core.borrow_mut();
            let history = &mut core.info.history;
            let last = match deep {
                true => &mut history.last_deep_scrub_stamp,
                false => &mut history.last_scrub_stamp,
            };
            *last = stamp;
            core.mark_dirty_info();
        }
        self.step(|core, _, now, out| core.share_history(now, out));
        stamp
    }

    /// Repair is done, all copies are there.
    pub(super) fn scrub_on_clean(&self) {
        self.scrub.repairing.set(false);
        if self.scrub.scrub_after_recovery.replace(false) {
            self.want_deep_scrub(Kind { check_repair: true, ..Kind::default() });
            self.maybe_scrub(&self.host.scrub_settings());
        }
    }

    /// Epochs a scrub's messages carry: the map's, and the interval's.
    fn scrub_epochs(&self) -> (Epoch, Epoch) {
        self.epochs()
    }
}
