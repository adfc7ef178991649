//! Peering: how the OSDs of a PG agree on what was written and who serves it, as a state machine
//! without I/O. States and events bear the names of `src/osd/PeeringState.cc` (v16.2).
//!
//! ```text
//! Initial --load/create--> Reset <------- new interval, or the prior set changed -------+
//!                            | ActMap                                                    |
//!            we lead?  +-----+------ else ------------+                                  |
//!                      v                              v                                  |
//!  Primary        GetInfo -> Down (blocked)          Stray --Notify to the primary       |
//!                      v                              |                                  |
//!                   GetLog -> Incomplete              | Log or Info of the primary       |
//!                      |   -> WaitActingChange        v                                  |
//!                      v         (pg_temp asked)  ReplicaActive --Info when committed--> |
//!                 GetMissing                                                             |
//!                      v                                                                 |
//!                 WaitUpThru                                                             |
//!                      v                                                                 |
//!                 Active { Activating -> all replicas committed -> writes flow } --------+
//! ```
//!
//! Why no acknowledged write is lost: a write is acknowledged when all of the acting set have it
//! durable, with its log entry. An interval can only have acknowledged writes if its primary was
//! recorded in `up_thru` first. So peering asks, for each past interval that may have been
//! active, at least one survivor (`prior_set`), takes the newest log among those that know of the
//! newest activation (`choose`), and nothing is served before all of the new acting set have made
//! the result durable.
//!
//! What the owner must do with [`Effect`]s: write what [`Peering::take_dirty`] says in one
//! transaction with the removals, submit it, and send the messages (promises when it is durable,
//! [`PeerMessage::is_promise`]); tell
//! [`Peering::on_activate_committed`] when that transaction is durable, if `Activate` was among
//! the effects.

mod choose;
mod history;
mod intervals;
mod lease;
mod merge;
mod postponed;
mod primary;
mod prior_set;
mod replica;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use types::osd::{PastIntervals, PgHistory, PgInfo, PgLog, PgMissing, PgStat};
use types::{EVersion, Epoch, HObject, OsdId, PgShard, SpgId};

use super::log::{Log, Undo};
use super::missing::Missing;

pub use choose::Choice;
pub use intervals::is_new_interval;
pub use lease::{Lease, LeaseAck};
pub use prior_set::PriorSet;
pub use view::{ClusterView, Mapping, MergeRole};

/// Where a PG's peering stands on this OSD.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Not begun.
    Initial,
    /// Between two intervals.
    Reset,
    /// Primary: asks the prior set for infos.
    GetInfo {
        /// Have not answered.
        waiting: BTreeSet<PgShard>,
    },
    /// Primary: acknowledged writes may be on OSDs that are down.
    Down,
    /// Primary: fetches the authoritative log.
    GetLog {
        /// From whom.
        from: PgShard,
    },
    /// Primary: nobody has a complete copy.
    Incomplete,
    /// Primary: the monitor has been asked for another acting set.
    WaitActingChange,
    /// Primary: fetches logs and missing sets of the replicas.
    GetMissing {
        /// Have not answered.
        waiting: BTreeSet<PgShard>,
    },
    /// Primary: the monitor must record that we are up.
    WaitUpThru,
    /// Primary: leads. Serves once all are activated.
    Active {
        /// Replicas (and we) that have made the activation durable.
        activated: BTreeSet<PgShard>,
        /// All have.
        all: bool,
        /// Nothing is left to recover.
        clean: bool,
    },
    /// Not the primary and not (yet) told to be a replica.
    Stray,
    /// A replica or backfill target of the current interval, or a stray that the primary has told to
    /// undo what did not happen.
    ReplicaActive,
}

impl State {
    /// The name as Ceph prints it.
    pub fn name(&self) -> &'static str {
        match self {
            State::Initial => "Initial",
            State::Reset => "Reset",
            State::GetInfo { .. } => "Started/Primary/Peering/GetInfo",
            State::Down => "Started/Primary/Peering/Down",
            State::GetLog { .. } => "Started/Primary/Peering/GetLog",
            State::Incomplete => "Started/Primary/Peering/Incomplete",
            State::WaitActingChange => "Started/Primary/WaitActingChange",
            State::GetMissing { .. } => "Started/Primary/Peering/GetMissing",
            State::WaitUpThru => "Started/Primary/Peering/WaitUpThru",
            State::Active { all: false, .. } => "Started/Primary/Active/Activating",
            State::Active { clean: true, .. } => "Started/Primary/Active/Clean",
            State::Active { .. } => "Started/Primary/Active/Recovering",
            State::Stray => "Started/Stray",
            State::ReplicaActive => "Started/ReplicaActive",
        }
    }
}

/// What a query asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Query {
    /// The info.
    Info,
    /// The log above a version, and the missing set.
    Log(EVersion),
    /// All of the log, and the missing set.
    FullLog,
}

/// What OSDs tell each other to peer. The owner translates to and from MOSDPGQuery2, Notify2,
/// Info2, Log, Lease, LeaseAck and Remove.
#[derive(Debug, Clone, PartialEq)]
pub enum PeerMessage {
    /// MOSDPGQuery2.
    Query(Query, Box<PgHistory>),
    /// MOSDPGNotify2.
    Notify(Box<PgInfo>, Box<PastIntervals>),
    /// MOSDPGInfo2.
    Info(Box<PgInfo>, Option<Lease>, Option<LeaseAck>),
    /// MOSDPGLog.
    Log(Box<LogMessage>),
    /// MOSDPGLease.
    Lease(Lease),
    /// MOSDPGLeaseAck.
    LeaseAck(LeaseAck),
    /// MOSDPGRemove.
    Remove,
}

impl PeerMessage {
    /// The lease that it brings.
    pub fn lease_mut(&mut self) -> Option<&mut Lease> {
        match self {
            PeerMessage::Lease(lease) => Some(lease),
            PeerMessage::Info(_, lease, _) => lease.as_mut(),
            PeerMessage::Log(log) => log.lease.as_mut(),
            _ => None,
        }
    }

    /// Whether it tells what this copy has. Such a message must not leave before all of that is
    /// durable, or this can happen:
    ///
    /// 1. A primary writes o2 as 3'11; nobody has it durable.
    /// 2. An interval change; its log, with 3'11, is sent to a new replica, which makes the log
    ///    durable and lacks o2.
    /// 3. All lose power. The replica knows the newer activation, so its log is authoritative: it
    ///    wants o2 at 3'11, which no disk has. What was acknowledged of o2 is unfound.
    pub fn is_promise(&self) -> bool {
        matches!(self, PeerMessage::Notify(..) | PeerMessage::Info(..) | PeerMessage::Log(_))
    }
}

/// Body of MOSDPGLog.
#[derive(Debug, Clone, PartialEq)]
pub struct LogMessage {
    /// The sender's info, or what the receiver's is to be (a backfill begins).
    pub info: PgInfo,
    /// The log or a part of it.
    pub log: PgLog,
    /// The sender's missing set.
    pub missing: PgMissing,
    /// The sender's past intervals.
    pub past_intervals: PastIntervals,
    /// A lease that comes with the activation.
    pub lease: Option<Lease>,
}

/// What the owner has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Send this; a promise after the transaction is durable.
    Send {
        /// To whom.
        to: PgShard,
        /// The epoch of the query that is answered, or the own one.
        query_epoch: Epoch,
        /// What.
        message: PeerMessage,
    },
    /// Has somebody follow while writes are under way: to be sent at once, before the next of them. Nothing in it is a
    /// promise: what is not durable yet the receiver knows of as of any write.
    Join {
        /// Whom.
        to: PgShard,
        /// The activation.
        message: PeerMessage,
    },
    /// The data of a write that did not happen: undo or remove it.
    Undo(Undo),
    /// Remove all objects above this one: they come by backfill.
    RemoveAbove(HObject),
    /// A new interval: drop what is in flight.
    IntervalChanged,
    /// The monitor must record us as up through this epoch.
    WantUpThru(Epoch),
    /// Ask the monitor for this acting set (empty: the up set).
    WantPgTemp(Vec<OsdId>),
    /// Tell `on_activate_committed` when the transaction is durable.
    Activate,
    /// All replicas are activated: ops may run, recovery may begin.
    Activated,
    /// The primary became clean.
    Clean,
    /// A new PG exists: tell the monitor.
    Created,
    /// The primary says: remove this copy.
    RemovePg,
}

/// Bounds and times from the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// osd_min_pg_log_entries.
    pub min_log_entries: usize,
    /// osd_max_pg_log_entries.
    pub max_log_entries: usize,
    /// What the log of a PG that lacks nothing is trimmed to.
    pub log_entries: usize,
    /// osd_pg_log_dups_tracked.
    pub dups_tracked: usize,
    /// osd_pg_log_trim_min: each trimming has a cost of its own, not one entry at a time.
    pub trim_min: usize,
    /// osd_heartbeat_grace times osd_pool_default_read_lease_ratio.
    pub read_lease: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            min_log_entries: 250,
            max_log_entries: 10_000,
            log_entries: 250,
            dups_tracked: 3000,
            trim_min: 100,
            read_lease: Duration::from_secs(16),
        }
    }
}

/// One PG's peering on one OSD.
pub struct Peering {
    /// This OSD.
    pub whoami: PgShard,
    /// The PG.
    pub pgid: SpgId,
    /// Limits.
    pub settings: Settings,
    /// State of this copy.
    pub info: PgInfo,
    /// Its log.
    pub log: Log,
    /// What it lacks.
    pub missing: Missing,
    /// Intervals since it was last clean.
    pub past_intervals: PastIntervals,
    /// Where the current map puts it.
    pub mapping: Mapping,
    /// The current map.
    pub epoch: Epoch,
    /// The first map since the last one that the monitors did not have for us any more, if there is one.
    pub known_since: Epoch,
    /// Messages about earlier epochs are of the past.
    pub last_peering_reset: Epoch,
    state: State,
    prior: PriorSet,
    /// What peers said of themselves, kept up to date while they follow us.
    pub peer_info: BTreeMap<PgShard, PgInfo>,
    /// What peers lack (those whose missing set is known).
    pub peer_missing: BTreeMap<PgShard, Missing>,
    /// Copies that are neither up nor acting.
    pub strays: BTreeSet<PgShard>,
    /// Who follows in this interval: acting and backfill targets, we among them.
    pub acting_backfill: BTreeSet<PgShard>,
    /// Who gets all objects.
    pub backfill_targets: BTreeSet<PgShard>,
    want_acting: Vec<OsdId>,
    /// How far each follower's copy is complete and durable.
    pub peer_last_complete: BTreeMap<PgShard, EVersion>,
    /// As the primary: all followers have the log up to here durable, as far as writes of this interval told.
    pub durable_everywhere: EVersion,
    leases: lease::Leases,
    /// As a follower: the primary's word up to where all members have all writes
    /// (`min_last_complete_ondisk`).
    stable_by_primary: EVersion,
    /// As a follower: the log's head when the interval's activation came.
    followed_from: EVersion,
    /// The epoch in which this copy told the primary of itself last.
    reported_at: Epoch,
    pub(super) queried_for_unfound: BTreeSet<PgShard>,
    /// Strays, and postponed members, that are told to undo writes and have not reported it: no sources.
    pub(super) undoing: BTreeSet<PgShard>,
    dirty_info: bool,
    dirty_big_info: bool,
    creating: bool,
}

/// What [`Peering::take_dirty`] found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct DirtyInfo {
    /// The info.
    pub info: bool,
    /// Past intervals and purged snaps too.
    pub big_info: bool,
}

impl Peering {
    /// A PG that is new on this OSD. `past` is empty for a new PG of a new pool.
    pub fn create(
        whoami: PgShard,
        pgid: SpgId,
        settings: Settings,
        mapping: Mapping,
        epoch: Epoch,
        history: PgHistory,
        past: PastIntervals,
    ) -> Peering {
        let mut info = PgInfo { history, ..PgInfo::new(pgid) };
        if history.last_epoch_started == 0 {
            // Nobody has scrubbed it yet: the stamp is that of its creation, from which health counts
            // how long it has not come to act.
            let created = history.last_clean_scrub_stamp;
            let stats = &mut info.stats;
            (stats.last_active, stats.last_peered, stats.last_clean) = (created, created, created);
        }
        let mut pg = Peering::load(whoami, pgid, settings, mapping, epoch, info, past);
        // The copy is made in the middle of an interval: what peers say as of its beginning is of
        // this one.
        pg.last_peering_reset = match pg.info.history.same_interval_since {
            0 => epoch,
            since => since.min(epoch),
        };
        pg.creating = pg.info.history.last_epoch_started == 0 && pg.is_primary();
        pg.dirty_info = true;
        pg.dirty_big_info = true;
        pg
    }

    /// A PG from the store, at the epoch it was written in. Log and missing set are put in by the
    /// owner.
    pub fn load(
        whoami: PgShard,
        pgid: SpgId,
        settings: Settings,
        mapping: Mapping,
        epoch: Epoch,
        info: PgInfo,
        past_intervals: PastIntervals,
    ) -> Peering {
        Peering {
            whoami,
            pgid,
            settings,
            info,
            log: Log::default(),
            missing: Missing::default(),
            past_intervals,
            mapping,
            epoch,
            known_since: 0,
            last_peering_reset: epoch,
            state: State::Initial,
            prior: PriorSet::default(),
            peer_info: BTreeMap::new(),
            peer_missing: BTreeMap::new(),
            strays: BTreeSet::new(),
            acting_backfill: BTreeSet::new(),
            backfill_targets: BTreeSet::new(),
            want_acting: Vec::new(),
            peer_last_complete: BTreeMap::new(),
            durable_everywhere: EVersion::ZERO,
            leases: lease::Leases::default(),
            stable_by_primary: EVersion::ZERO,
            followed_from: EVersion::ZERO,
            reported_at: 0,
            queried_for_unfound: BTreeSet::new(),
            undoing: BTreeSet::new(),
            dirty_info: false,
            dirty_big_info: false,
            creating: false,
        }
    }

    /// After a restart: what leases we gave before is not known any more.
    pub fn assume_leases(&mut self, now: Duration) {
        self.leases.prior_until_ub = now + self.settings.read_lease;
    }

    /// Where it stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The prior set of the interval.
    pub fn prior(&self) -> &PriorSet {
        &self.prior
    }

    /// Whether this OSD leads the PG in the current map.
    pub fn is_primary(&self) -> bool {
        self.primary() == Some(self.whoami)
    }

    /// Whether this OSD is in the acting set.
    pub fn is_acting(&self) -> bool {
        self.mapping.is_acting(self.whoami)
    }

    /// The leader.
    pub fn primary(&self) -> Option<PgShard> {
        self.mapping.primary()
    }

    /// The shard of an OSD that sent a message which does not say it (leases, removals): of those
    /// that may send one, the leader first.
    pub fn shard_of_sender(&self, osd: OsdId) -> PgShard {
        let mut members = self.primary().into_iter().chain(self.mapping.acting_shards());
        members.find(|s| s.osd == osd).unwrap_or(PgShard::replica(osd))
    }

    /// Whether this primary has activated with all its replicas.
    pub fn is_activated(&self) -> bool {
        matches!(self.state, State::Active { all: true, .. })
    }

    /// Whether enough replicas act for ops to be served.
    pub fn is_active(&self) -> bool {
        self.is_activated()
            && (self.is_writeable() || env::mutant("skip-min-size"))
            && self.pending_merge().is_none()
    }

    /// What the PG does in a merge that the map announces: until it is done nothing is served.
    pub fn pending_merge(&self) -> Option<MergeRole> {
        self.mapping.pending_merge(self.pgid.pgid)
    }

    /// Whether nothing is left to recover and all wanted replicas are there.
    pub fn is_clean(&self) -> bool {
        matches!(self.state, State::Active { clean: true, .. })
    }

    /// The epoch up to which nobody needs a map for this PG's sake, as its primary sees it
    /// (`pg_stat_t::get_effective_last_epoch_clean` in `src/osd/osd_types.h` at v16.2).
    pub fn effective_last_epoch_clean(&self) -> Epoch {
        if self.is_clean() { self.epoch } else { self.info.history.last_epoch_clean }
    }

    /// Number of OSDs in the acting set.
    pub fn acting_len(&self) -> usize {
        self.mapping.acting_shards().count()
    }

    /// What of the info has to be written.
    pub fn take_dirty(&mut self) -> DirtyInfo {
        DirtyInfo {
            info: std::mem::take(&mut self.dirty_info),
            big_info: std::mem::take(&mut self.dirty_big_info),
        }
    }

    /// Purged snaps have changed.
    pub fn mark_dirty_big_info(&mut self) {
        self.dirty_info = true;
        self.dirty_big_info = true;
    }

    /// Tells the followers what the primary's info says.
    pub fn share_history(&mut self, now: Duration, out: &mut Vec<Effect>) {
        if self.is_activated() {
            self.share_info(now, out);
        }
    }

    /// The info has changed.
    pub fn mark_dirty_info(&mut self) {
        self.dirty_info = true;
    }

    /// A map's state changed `last` to `view`. Call for each epoch in turn, then `act_map`.
    pub fn advance_map(
        &mut self,
        view: &dyn ClusterView,
        last: &dyn ClusterView,
        mapping: Mapping,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        self.epoch = view.epoch();
        if view.epoch() > last.epoch() + 1 {
            self.known_since = view.epoch();
        }
        if is_new_interval(self.pgid.pgid, &self.mapping, &mapping) {
            self.start_interval(view, last, mapping, now, out);
            return;
        }
        self.forget_down_peers(view);
        if self.is_peering() && (self.prior.affected_by(view) || self.waits_for_down(view)) {
            // Strays told of themselves once in this interval, and are not among those that are asked.
            let strays = std::mem::take(&mut self.strays);
            let mut infos = std::mem::take(&mut self.peer_info);
            infos.retain(|shard, _| strays.contains(shard));
            self.restart_peering(out);
            self.strays = strays;
            self.peer_info = infos;
        }
    }

    /// Primary and not active yet.
    pub fn is_peering(&self) -> bool {
        matches!(
            self.state,
            State::GetInfo { .. }
                | State::Down
                | State::GetLog { .. }
                | State::Incomplete
                | State::WaitActingChange
                | State::GetMissing { .. }
                | State::WaitUpThru
        )
    }

    /// Whether whom the acting set is to have, or who is to give its log, is down. That may be a stray, of whom
    /// neither the prior set nor the mapping knows (`WaitActingChange::react`, `GetLog::react` in
    /// `src/osd/PeeringState.cc`).
    fn waits_for_down(&self, view: &dyn ClusterView) -> bool {
        match &self.state {
            State::WaitActingChange => {
                let mut wanted =
                    self.want_acting.iter().filter(|osd| **osd != types::ids::OSD_NONE);
                wanted.any(|osd| !view.is_up(*osd))
            }
            State::GetLog { from } => !view.is_up(from.osd),
            _ => false,
        }
    }

    /// For whom peering waits: who has not answered, or has to come back.
    pub fn blocked_by(&self) -> BTreeSet<OsdId> {
        match &self.state {
            State::GetInfo { waiting } | State::GetMissing { waiting } => {
                waiting.iter().map(|shard| shard.osd).collect()
            }
            State::GetLog { from } => [from.osd].into(),
            _ => self.prior.blocked_by.keys().copied().collect(),
        }
    }

    fn forget_down_peers(&mut self, view: &dyn ClusterView) {
        let gone: Vec<PgShard> = self
            .peer_info
            .keys()
            .filter(|s| !view.is_up(s.osd) && !self.acting_backfill.contains(s))
            .copied()
            .collect();
        for shard in gone {
            self.peer_info.remove(&shard);
            self.peer_missing.remove(&shard);
            self.strays.remove(&shard);
            self.queried_for_unfound.remove(&shard);
            self.undoing.remove(&shard);
        }
        self.strays.retain(|s| view.is_up(s.osd));
    }

    fn start_interval(
        &mut self,
        view: &dyn ClusterView,
        last: &dyn ClusterView,
        mapping: Mapping,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        let old = std::mem::replace(&mut self.mapping, mapping);
        let past = &mut self.past_intervals;
        intervals::record_interval(past, &self.info.history, &old, last, self.known_since);
        let new = &self.mapping;
        let history = &mut self.info.history;
        history.same_interval_since = self.epoch;
        if old.up != new.up || old.up_primary != new.up_primary {
            history.same_up_since = self.epoch;
        }
        if old.acting_primary != new.acting_primary {
            history.same_primary_since = self.epoch;
        }
        let _ = view;
        self.leases.end_interval(now);
        if !self.is_primary() {
            self.log.forget_index();
        }
        self.dirty_info = true;
        self.dirty_big_info = true;
        self.restart_peering(out);
    }

    fn restart_peering(&mut self, out: &mut Vec<Effect>) {
        self.last_peering_reset = self.epoch;
        self.state = State::Reset;
        self.prior = PriorSet::default();
        self.peer_info.clear();
        self.peer_missing.clear();
        self.strays.clear();
        self.acting_backfill.clear();
        self.backfill_targets.clear();
        self.want_acting.clear();
        self.peer_last_complete.clear();
        self.durable_everywhere = EVersion::ZERO;
        self.stable_by_primary = EVersion::ZERO;
        self.followed_from = EVersion::ZERO;
        self.queried_for_unfound.clear();
        self.undoing.clear();
        out.push(Effect::IntervalChanged);
    }

    /// All maps up to `view` have been advanced through.
    pub fn act_map(&mut self, view: &dyn ClusterView, now: Duration, out: &mut Vec<Effect>) {
        match self.state {
            // `last_peering_reset` stays at the epoch the copy was made in: the message that made it
            // was sent then, and may come when maps without a new interval have passed.
            State::Initial | State::Reset => {
                if self.is_primary() {
                    self.start_primary(view, now, out);
                } else {
                    self.state = State::Stray;
                    self.notify_primary(now, out);
                }
            }
            State::WaitUpThru => self.try_activate(view, now, out),
            State::Stray if self.is_report_due(view) => self.notify_primary(now, out),
            // One that had to undo something is a stray all the same.
            State::ReplicaActive if !self.is_member() && self.is_report_due(view) => {
                self.notify_primary(now, out);
            }
            _ => {}
        }
        if self.is_activated() {
            self.leases.forget_dead(&self.prior, view);
        }
    }

    /// Whether a stray has to report again: the map may have told the primary that it forgot us, and
    /// what was said before the OSD came up (no interval begins with that for a stray) nobody took.
    fn is_report_due(&self, view: &dyn ClusterView) -> bool {
        view.epoch().is_multiple_of(STRAY_NOTIFY_EPOCHS)
            || self.reported_at < view.up_from(self.whoami.osd)
    }

    /// Whether this primary's own activation was recorded: it had enough members to serve.
    fn is_writeable(&self) -> bool {
        self.acting_len() >= self.mapping.min_size.max(1) as usize
    }

    /// A message has come that was sent in `epoch_sent` as an answer to one of `query_epoch`. The
    /// map must be at `epoch_sent` at least.
    pub fn on_message(
        &mut self,
        from: PgShard,
        (epoch_sent, query_epoch): (Epoch, Epoch),
        message: PeerMessage,
        view: &dyn ClusterView,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        let stale = epoch_sent < self.last_peering_reset || query_epoch < self.last_peering_reset;
        if stale && !env::mutant("stale-peering") {
            tracing::debug!(pg = %self.pgid, %from, epoch_sent, query_epoch, "old message");
            return;
        }
        if epoch_sent < view.up_from(from.osd) || !view.is_up(from.osd) {
            return;
        }
        match message {
            PeerMessage::Query(query, _) => self.on_query(from, epoch_sent, query, now, out),
            PeerMessage::Notify(info, past) => {
                self.on_peer_info(from, *info, Some(*past), view, now, out);
            }
            PeerMessage::Info(info, lease, ack) => {
                if self.is_primary() {
                    if let Some(ack) = ack {
                        self.on_lease_ack(from, ack);
                    }
                    self.on_peer_info(from, *info, None, view, now, out);
                } else {
                    self.on_primary_info(from, *info, lease, now, out);
                }
            }
            PeerMessage::Log(log) => {
                if self.is_primary() {
                    self.on_peer_log(from, *log, view, now, out);
                } else {
                    self.on_primary_log(from, *log, now, out);
                }
            }
            PeerMessage::Lease(lease) => self.on_lease(from, lease, now, out),
            PeerMessage::LeaseAck(ack) => self.on_lease_ack(from, ack),
            PeerMessage::Remove => self.on_remove(from, out),
        }
    }

    /// The transaction with the activation is durable. `interval` is the `last_peering_reset` it
    /// was submitted in.
    pub fn on_activate_committed(
        &mut self,
        interval: Epoch,
        view: &dyn ClusterView,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        if interval != self.last_peering_reset {
            return;
        }
        match self.state {
            State::Active { .. } => self.on_activated(self.whoami, view, now, out),
            State::ReplicaActive => self.report_activated(now, out),
            _ => {}
        }
    }

    fn send(&self, to: PgShard, message: PeerMessage, out: &mut Vec<Effect>) {
        out.push(Effect::Send { to, query_epoch: self.epoch, message });
    }

    /// The info as peers get it: what remains of leases is a span from now.
    fn info_for_peer(&self, now: Duration) -> PgInfo {
        let mut info = self.info.clone();
        self.leases.export(&mut info.history, now);
        info
    }

    fn export_history(&self, now: Duration) -> PgHistory {
        let mut history = self.info.history;
        self.leases.export(&mut history, now);
        history
    }

    /// `pg_log_entry` versions that every follower has complete: entries up to it may be trimmed.
    pub fn min_last_complete(&self) -> EVersion {
        self.acting_backfill
            .iter()
            .map(|s| self.peer_last_complete.get(s).copied().unwrap_or(EVersion::ZERO))
            .min()
            .unwrap_or(EVersion::ZERO)
    }

    /// Up to where the log is to be trimmed now.
    pub fn trim_to(&self) -> EVersion {
        let degraded = !self.missing.is_empty()
            || !self.backfill_targets.is_empty()
            || self.peer_missing.values().any(|m| !m.is_empty())
            || self.acting_len() < self.mapping.size as usize;
        let s = &self.settings;
        let target = if degraded { s.max_log_entries } else { s.log_entries };
        let excess = self.log.len().saturating_sub(target);
        if excess < s.trim_min.max(1) {
            return self.log.tail();
        }
        let first = |entries: usize| {
            entries.checked_sub(1).and_then(|last| self.log.version_at(last)).unwrap_or_default()
        };
        // What is missing is known beside the log, too: that it stays missing (unfound, or recovery is held
        // back) must not make the log longer for ever.
        let beyond_all = self.log.len().saturating_sub(s.max_log_entries);
        let hard = first(beyond_all).min(self.durable_everywhere);
        first(excess).min(self.min_last_complete()).max(hard).max(self.log.tail())
    }

    /// Changes the statistics as the primary does. A copy that is backfilled keeps the number of objects that it was told
    /// it has (`BackfillOp::Progress`): whoever leads next knows by it how many it lacks.
    pub fn change_stats(&mut self, change: impl FnOnce(&mut PgStat)) {
        let told = self.info.stats.stats.sum.num_objects;
        change(&mut self.info.stats);
        if self.info.is_incomplete() {
            let is_empty = self.info.last_backfill.is_min();
            self.info.stats.stats.sum.num_objects = if is_empty { 0 } else { told };
        }
    }

    /// Something that was here turned out not to be: whoever leads next is told that something is missing.
    pub fn lower_last_complete(&mut self) {
        self.info.last_complete = self.log.last_complete(self.info.last_update, &self.missing);
    }

    /// Recomputes `last_complete` after something was recovered.
    pub fn update_last_complete(&mut self) {
        let complete = self.log.last_complete(self.info.last_update, &self.missing);
        if complete > self.info.last_complete || self.missing.is_empty() {
            self.info.last_complete = complete;
        }
    }
}

/// A stray copy reports again each so many epochs.
const STRAY_NOTIFY_EPOCHS: Epoch = 16;
