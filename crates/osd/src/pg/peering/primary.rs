//! The primary's way from GetInfo to Active, and what it does there.

use std::collections::BTreeSet;
use std::time::Duration;

use types::osd::{ObjectStatCollection, PastIntervals, PgInfo, PgLog, PgMissing};
use types::{EVersion, HObject, PgShard, SpgId};

use super::choose::{self, Infos};
use super::view::ClusterView;
use super::{Effect, Log, LogMessage, Missing, PeerMessage, Peering, PriorSet, Query, State};

impl Peering {
    pub(super) fn start_primary(
        &mut self,
        view: &dyn ClusterView,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        self.want_up_thru(view, out);
        self.state = State::GetInfo { waiting: BTreeSet::new() };
        self.get_infos(view, now, out);
    }

    fn want_up_thru(&self, view: &dyn ClusterView, out: &mut Vec<Effect>) {
        if self.needs_up_thru(view) {
            out.push(Effect::WantUpThru(self.info.history.same_interval_since));
        }
    }

    fn needs_up_thru(&self, view: &dyn ClusterView) -> bool {
        view.up_thru(self.whoami.osd) < self.info.history.same_interval_since
            && !env::mutant("no-up-thru")
    }

    /// Asks whoever of the prior set has not been asked.
    fn get_infos(&mut self, view: &dyn ClusterView, now: Duration, out: &mut Vec<Effect>) {
        let State::GetInfo { waiting } = &mut self.state else { return };
        let mut waiting = std::mem::take(waiting);
        self.build_prior(view);
        waiting.retain(|s| self.prior.probe.contains(s));
        let ask: Vec<PgShard> = self
            .prior
            .probe
            .iter()
            .filter(|s| **s != self.whoami && view.is_up(s.osd))
            .filter(|s| !self.peer_info.contains_key(s) && !waiting.contains(s))
            .copied()
            .collect();
        for to in ask {
            let history = Box::new(self.export_history(now));
            self.send(to, PeerMessage::Query(Query::Info, history), out);
            waiting.insert(to);
        }
        let done = waiting.is_empty();
        self.state = State::GetInfo { waiting };
        if done {
            self.got_infos(now, view, out);
        }
    }

    fn build_prior(&mut self, view: &dyn ClusterView) {
        self.prior = PriorSet::build(
            &self.past_intervals,
            self.info.history.last_epoch_started,
            &self.mapping,
            &self.infos(),
            view,
        );
    }

    fn got_infos(&mut self, now: Duration, view: &dyn ClusterView, out: &mut Vec<Effect>) {
        // Whoever is up was asked, and may have nothing.
        self.build_prior(view);
        if self.prior.pg_down && !env::mutant("ignore-down") {
            self.state = State::Down;
            return;
        }
        self.get_log(now, view, out);
    }

    fn infos(&self) -> Infos {
        let mut infos = self.peer_info.clone();
        infos.insert(self.whoami, self.info.clone());
        infos
    }

    /// A Notify or an Info of a peer.
    pub(super) fn on_peer_info(
        &mut self,
        from: PgShard,
        info: PgInfo,
        past: Option<PastIntervals>,
        view: &dyn ClusterView,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        if !self.is_primary() {
            return;
        }
        if let State::Active { .. } = self.state {
            // A follower's Info reports its activation; a Notify was sent before it.
            let activated = past.is_none();
            self.on_info_while_active(from, info, activated, view, now, out);
            return;
        }
        let started_before = self.info.history.last_epoch_started;
        self.update_history(&info.history, now);
        self.note_stray(from);
        self.peer_info.insert(from, info);
        let rebuild = self.info.history.last_epoch_started > started_before;
        match &mut self.state {
            State::GetInfo { waiting } => {
                waiting.remove(&from);
                if rebuild {
                    // A newer activation makes older intervals irrelevant.
                    self.get_infos(view, now, out);
                } else if waiting.is_empty() {
                    self.got_infos(now, view, out);
                }
            }
            // Somebody may have what we lack.
            State::Incomplete => self.get_log(now, view, out),
            _ => {}
        }
    }

    fn note_stray(&mut self, from: PgShard) {
        if !self.mapping.is_up(from) && !self.mapping.is_acting(from) {
            self.strays.insert(from);
        }
    }

    fn on_info_while_active(
        &mut self,
        from: PgShard,
        info: PgInfo,
        activated: bool,
        view: &dyn ClusterView,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        if self.acting_backfill.contains(&from) {
            if !activated {
                return;
            }
            // That it activated is no activation of all: history says that from on_activated on.
            let mut history = info.history;
            history.last_epoch_started =
                history.last_epoch_started.min(self.info.history.last_epoch_started);
            history.last_interval_started =
                history.last_interval_started.min(self.info.history.last_interval_started);
            if self.info.history.merge(&history) {
                self.dirty_info = true;
            }
            // It reports that the activation is durable there.
            self.on_activated(from, view, now, out);
            return;
        }
        self.note_stray(from);
        self.peer_info.insert(from, info);
        if activated {
            self.undoing.remove(&from);
        }
        if self.is_clean() {
            self.purge_strays(out);
        }
    }

    fn get_log(&mut self, now: Duration, view: &dyn ClusterView, out: &mut Vec<Effect>) {
        let infos = self.infos();
        let auth = choose::find_best_info(&infos, self.whoami, self.mapping.redundancy);
        let choice =
            auth.and_then(|auth| Some((auth, choose::choose(&self.mapping, auth, &infos)?)));
        let Some((auth, choice)) = choice else {
            self.state = State::Incomplete;
            return;
        };
        if choice.want != self.mapping.acting {
            self.request_acting(choice.want, out);
            self.state = State::WaitActingChange;
            return;
        }
        self.want_acting.clear();
        self.acting_backfill = choice.acting_backfill;
        self.backfill_targets = choice.backfill;
        if auth == self.whoami {
            self.get_missing(None, now, view, out);
            return;
        }
        // Far enough back for every follower that can be brought up by log.
        let tail = infos[&auth].log_tail;
        let since = self
            .acting_backfill
            .iter()
            .filter_map(|s| infos.get(s))
            .map(|i| i.last_update)
            .filter(|v| *v >= tail)
            .min()
            .unwrap_or(tail)
            .min(self.info.last_update.max(tail));
        self.state = State::GetLog { from: auth };
        let history = Box::new(self.export_history(now));
        self.send(auth, PeerMessage::Query(Query::Log(since), history), out);
    }

    /// An empty pg_temp gives the PG back to its up set.
    fn request_acting(&mut self, want: Vec<i32>, out: &mut Vec<Effect>) {
        let request = if want == self.mapping.up { Vec::new() } else { want.clone() };
        self.want_acting = want;
        out.push(Effect::WantPgTemp(request));
    }

    /// A log has come that this primary asked for.
    pub(super) fn on_peer_log(
        &mut self,
        from: PgShard,
        message: LogMessage,
        view: &dyn ClusterView,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        let LogMessage { info, log, missing, .. } = message;
        match &mut self.state {
            State::GetLog { from: expected } if *expected == from => {
                if self.take_master_log(from, info, log, missing, now, out) {
                    self.get_missing(Some(from), now, view, out);
                } else {
                    self.state = State::Incomplete;
                }
            }
            State::GetMissing { waiting } if waiting.contains(&from) => {
                waiting.remove(&from);
                let done = waiting.is_empty();
                let told = info.last_update;
                self.take_replica_log(from, info, log, missing);
                // It is told when it is known who follows: followers hear it with what they are to be.
                if self.has_to_undo(from, told) {
                    self.undoing.insert(from);
                }
                if done {
                    self.got_missing(now, view, out);
                }
            }
            // Asked for because something is unfound.
            State::Active { .. } if self.queried_for_unfound.contains(&from) => {
                let told = info.last_update;
                self.take_replica_log(from, info, log, missing);
                if self.has_to_undo(from, told) && !self.acting_backfill.contains(&from) {
                    self.undoing.insert(from);
                    self.tell_to_undo(from, now, out);
                }
            }
            _ => {}
        }
    }

    /// `false` if our log does not overlap the authoritative one: the choice of the acting set sees to it.
    fn take_master_log(
        &mut self,
        from: PgShard,
        info: PgInfo,
        log: PgLog,
        missing: PgMissing,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> bool {
        let mut removed = Vec::new();
        if !self.log.merge(&info, &log, &mut self.info, &mut self.missing, &mut removed) {
            let (tail, head) = (self.log.tail(), self.log.head());
            tracing::error!(
                pg = %self.pgid, %from, "the authoritative log, {} to {}, does not overlap ours, {tail} to {head}",
                log.tail, log.head
            );
            return false;
        }
        out.extend(removed.into_iter().map(Effect::Undo));
        self.info.last_epoch_started = self.info.last_epoch_started.max(info.last_epoch_started);
        self.info.last_interval_started =
            self.info.last_interval_started.max(info.last_interval_started);
        self.update_history(&info.history, now);
        self.info.stats = info.stats.clone();
        self.update_complete_after_merge();
        self.dirty_info = true;
        self.dirty_big_info = true;
        self.peer_missing.insert(from, Missing::from_wire(missing));
        self.peer_info.insert(from, info);
        true
    }

    pub(super) fn update_complete_after_merge(&mut self) {
        self.info.last_complete = self.log.last_complete(self.info.last_update, &self.missing);
    }

    fn take_replica_log(
        &mut self,
        from: PgShard,
        mut info: PgInfo,
        log: PgLog,
        missing: PgMissing,
    ) {
        let mut missing = Missing::from_wire(missing);
        match self.forgotten_divergence(&log) {
            Some(happened) => Log::judge_peer_above(happened, &mut info, log, &mut missing),
            None => self.log.judge_peer(&mut info, log, &mut missing),
        }
        self.peer_info.insert(from, info);
        self.peer_missing.insert(from, missing);
    }

    /// Whether the log that a peer told of, up to `told`, turned out to go beyond what happened. (Copies are not
    /// undone: whoever has one of another version lacks the object.)
    fn has_to_undo(&self, peer: PgShard, told: EVersion) -> bool {
        let judged = &self.peer_info[&peer];
        self.mapping.redundancy.is_erasure()
            && judged.last_update != told
            && !judged.last_backfill.is_min()
    }

    /// One that does not follow has not heard that writes did not happen, and its shards of their objects are of no
    /// use before it has undone them. It is told up to where its log is right, whether or not that reaches ours,
    /// and reports when it is durable.
    fn tell_to_undo(&mut self, stray: PgShard, now: Duration, out: &mut Vec<Effect>) {
        let mut info = self.info_for_peer(now);
        info.last_update = self.peer_info[&stray].last_update;
        self.send(stray, PeerMessage::Info(Box::new(info), None, None), out);
    }

    /// Asks the followers for what they lack, where their infos do not tell, and `source` has not with its log.
    fn get_missing(
        &mut self,
        source: Option<PgShard>,
        now: Duration,
        view: &dyn ClusterView,
        out: &mut Vec<Effect>,
    ) {
        let mut waiting = BTreeSet::new();
        let peers: Vec<PgShard> = self.acting_backfill.iter().copied().collect();
        for peer in peers {
            if peer == self.whoami {
                continue;
            }
            let pgid = SpgId { shard: peer.shard, ..self.pgid };
            let info =
                self.peer_info.entry(peer).or_insert_with(|| PgInfo { pgid, ..PgInfo::default() });
            let complete =
                info.last_update == info.last_complete && info.last_update == self.info.last_update;
            if info.is_empty()
                || info.last_update < self.log.tail()
                || info.last_backfill.is_min()
                || complete
            {
                // Nothing, or nothing of use, or everything is there.
                self.peer_missing.insert(peer, Missing::default());
                continue;
            }
            if source == Some(peer) {
                continue;
            }
            // Divergence can only lie above the last activation that is durable on all that acted
            // and whose log the peer has. Its own may have been durable on it alone:
            //
            // 1. Two replicas write 8'11, durable on B only, and both restart.
            // 2. They activate at 10 with B's log. B makes that durable, A dies before it does.
            // 3. B dies, A comes back. Nothing was acknowledged at 10, so it goes on alone, without
            //    8'11, and writes 12'11.
            // 4. B comes back: 8'11 is below its last_epoch_started, and diverges.
            //
            // And one that it has only heard of may be newer than all it has: B as a primary that
            // asked A, which activated at 12 with others, and then let another lead.
            let durable = info.history.last_epoch_started;
            let since = EVersion { epoch: durable, version: 0 };
            let has_its_log = durable <= info.last_epoch_started && info.log_tail <= since;
            let query = if has_its_log { Query::Log(since) } else { Query::FullLog };
            let history = Box::new(self.export_history(now));
            self.send(peer, PeerMessage::Query(query, history), out);
            waiting.insert(peer);
        }
        let done = waiting.is_empty();
        self.state = State::GetMissing { waiting };
        if done {
            self.got_missing(now, view, out);
        }
    }

    fn got_missing(&mut self, now: Duration, view: &dyn ClusterView, out: &mut Vec<Effect>) {
        let waiting = self.ask_who_begins_anew(now, out);
        if !waiting.is_empty() {
            self.state = State::GetMissing { waiting };
            return;
        }
        self.postpone_who_alone_has_objects();
        self.state = State::WaitUpThru;
        self.try_activate(view, now, out);
        if self.state == State::WaitUpThru {
            self.want_up_thru(view, out);
        }
    }

    pub(super) fn try_activate(
        &mut self,
        view: &dyn ClusterView,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        if self.state == State::WaitUpThru && !self.needs_up_thru(view) {
            self.activate(view, now, out);
        }
    }

    /// Tells all followers what the PG is from now on.
    fn activate(&mut self, view: &dyn ClusterView, now: Duration, out: &mut Vec<Effect>) {
        // Below min_size nothing is acknowledged, so later intervals need not ask us: an activation
        // recorded nevertheless would hide that our newest entries may be divergent.
        if self.is_writeable() {
            self.info.last_epoch_started = self.epoch;
            self.info.last_interval_started = self.info.history.same_interval_since;
        }
        self.dirty_info = true;
        self.dirty_big_info = true;
        self.leases.forget_dead(&self.prior, view);
        self.state = State::Active { activated: BTreeSet::new(), all: false, clean: false };
        let lease = self.new_lease(now);
        let peers: Vec<PgShard> = self.acting_backfill.iter().copied().collect();
        for peer in peers {
            if peer != self.whoami {
                let message = self.activation_of(peer, Some(lease), now);
                self.send(peer, message, out);
            }
        }
        self.undoing.retain(|s| !self.acting_backfill.contains(s));
        for postponed in self.undoing.clone() {
            self.tell_to_undo(postponed, now, out);
        }
        self.peer_last_complete.insert(self.whoami, self.info.last_complete);
        out.push(Effect::Activate);
        if self.creating {
            self.creating = false;
            out.push(Effect::Created);
        }
    }

    /// What makes a peer follow; a lease if it acts.
    pub(super) fn activation_of(
        &mut self,
        peer: PgShard,
        lease: Option<super::Lease>,
        now: Duration,
    ) -> PeerMessage {
        let my_info = self.info_for_peer(now);
        let begins_anew = self.begins_anew(peer);
        let theirs = self.peer_info.entry(peer).or_default();
        if theirs.is_incomplete()
            && theirs.stats.stats.sum.num_objects >= my_info.stats.stats.sum.num_objects
        {
            // One of Ceph's takes all that writes tell for its own: how many it has is not known.
            theirs.stats.stats.sum.num_objects = 0;
        }
        let missing = self.peer_missing.entry(peer).or_default();
        let same = theirs.last_update == self.info.last_update;
        let by_log = theirs.last_update >= self.log.tail() && !theirs.last_backfill.is_min();
        if same && !theirs.is_empty() && by_log {
            self.peer_last_complete.insert(peer, theirs.last_complete);
            return PeerMessage::Info(Box::new(my_info), lease, None);
        }
        let mut message = LogMessage {
            info: my_info,
            log: PgLog::default(),
            missing: PgMissing::default(),
            past_intervals: self.past_intervals.clone(),
            lease,
        };
        if !begins_anew {
            // Up by log. A backfill that was interrupted goes on where it was.
            let theirs = self.peer_info.entry(peer).or_default();
            let missing = self.peer_missing.entry(peer).or_default();
            message.log = self.log.wire_after(theirs.last_update);
            if env::mutant("lose-last-entry") {
                message.log.log.pop_back();
            }
            for e in self.log.after(theirs.last_update) {
                if e.soid <= theirs.last_backfill {
                    missing.add_next_event(&e);
                }
            }
        } else {
            // From nothing: the log comes whole, objects by backfill. An OSD of Ceph's takes this info for its
            // own as it is.
            let pgid = SpgId { shard: peer.shard, ..self.pgid };
            *theirs = PgInfo { pgid, last_backfill: HObject::min(), ..message.info.clone() };
            theirs.stats.stats = ObjectStatCollection::default();
            missing.clear();
            message.log = self.log.wire_newest(self.settings.min_log_entries);
            theirs.log_tail = message.log.tail;
            theirs.last_complete = theirs.last_update;
            message.info = theirs.clone();
        }
        let theirs = self.peer_info.entry(peer).or_default();
        theirs.last_update = self.info.last_update;
        theirs.last_epoch_started = self.info.last_epoch_started;
        let complete = self.peer_missing[&peer].is_empty();
        theirs.last_complete = if complete { theirs.last_update } else { theirs.last_complete };
        self.peer_last_complete.insert(peer, theirs.last_complete);
        PeerMessage::Log(Box::new(message))
    }

    /// A follower (or we) made the activation durable.
    pub(super) fn on_activated(
        &mut self,
        who: PgShard,
        view: &dyn ClusterView,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        let State::Active { activated, all, .. } = &mut self.state else { return };
        if *all || !activated.insert(who) || !self.acting_backfill.is_subset(activated) {
            return;
        }
        *all = true;
        let history = &mut self.info.history;
        history.last_epoch_started = history.last_epoch_started.max(self.info.last_epoch_started);
        history.last_interval_started =
            history.last_interval_started.max(self.info.last_interval_started);
        self.dirty_info = true;
        self.leases.forget_dead(&self.prior, view);
        self.share_info(now, out);
        self.renew_lease(now, out);
        out.push(Effect::Activated);
    }

    /// Tells the followers the PG's history.
    pub(super) fn share_info(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let info = self.info_for_peer(now);
        let followers: Vec<PgShard> = self.acting_backfill.iter().copied().collect();
        for to in followers {
            if to != self.whoami {
                self.send(to, PeerMessage::Info(Box::new(info.clone()), None, None), out);
            }
        }
    }

    /// Recovery and backfill have nothing left to do: clean, or back to the up set.
    pub fn on_recovered(&mut self, now: Duration, out: &mut Vec<Effect>) {
        if !self.is_activated() || !self.is_recovered() {
            return;
        }
        let infos: Infos = self
            .infos()
            .into_iter()
            .filter(|(s, _)| self.acting_backfill.contains(s) || self.strays.contains(s))
            .collect();
        let Some(choice) = choose::choose(&self.mapping, self.whoami, &infos) else { return };
        if choice.want != self.mapping.acting {
            if self.want_acting != choice.want {
                self.request_acting(choice.want, out);
            }
            return;
        }
        let enough = self.acting_len() >= self.mapping.size as usize;
        let State::Active { clean, .. } = &mut self.state else { return };
        // The acting set may be another than the up set and still be what is best.
        if !enough || *clean {
            return;
        }
        // A clean PG forgets who served before, and so who may hold a lease from then: the next interval
        // would serve beside them.
        if self.leases.prior_until_ub > now {
            return;
        }
        *clean = true;
        let history = &mut self.info.history;
        history.last_epoch_clean = self.epoch;
        history.last_interval_clean = history.same_interval_since;
        self.past_intervals = PastIntervals::default();
        self.dirty_info = true;
        self.dirty_big_info = true;
        self.share_info(now, out);
        self.purge_strays(out);
        out.push(Effect::Clean);
    }

    /// Copies turned out to be damaged and are noted as missing: not clean before they are back.
    pub fn unclean(&mut self) {
        if let State::Active { clean, .. } = &mut self.state {
            *clean = false;
        }
    }

    /// Nobody who follows lacks anything, and all of the up set follow.
    pub fn is_recovered(&self) -> bool {
        self.missing.is_empty()
            && self.postponed().next().is_none()
            && self.acting_backfill.iter().filter(|s| **s != self.whoami).all(|s| {
                self.peer_missing.get(s).is_none_or(Missing::is_empty)
                    && self.peer_info.get(s).is_some_and(|i| i.last_backfill.is_max())
            })
    }

    /// Copies beyond the acting set are of no use any more.
    fn purge_strays(&mut self, out: &mut Vec<Effect>) {
        for stray in std::mem::take(&mut self.strays) {
            self.peer_info.remove(&stray);
            self.peer_missing.remove(&stray);
            self.undoing.remove(&stray);
            self.send(stray, PeerMessage::Remove, out);
        }
    }

    /// Who is known to have version `need` of an object, followers first. A stray whose log does not
    /// end within ours is not, before it has been asked for that log.
    pub fn sources(&self, oid: &HObject, need: EVersion) -> Vec<PgShard> {
        let followers = self.acting_backfill.iter().filter(|s| **s != self.whoami);
        let others = self.peer_info.keys().filter(|s| !self.acting_backfill.contains(s));
        let has = |s: &&PgShard| !self.undoing.contains(s) && self.has(**s, oid, need);
        followers.chain(others).filter(has).copied().collect()
    }

    /// Whether a peer has it, or will when it has undone what it is told to.
    pub(super) fn has(&self, shard: PgShard, oid: &HObject, need: EVersion) -> bool {
        let Some(info) = self.peer_info.get(&shard) else { return false };
        let known = match self.peer_missing.get(&shard) {
            Some(missing) => !missing.contains(oid),
            None => info.last_complete == info.last_update && self.log.reaches(info.last_update),
        };
        known && info.last_update >= need && *oid <= info.last_backfill
    }

    /// Something is missing that no known peer has: asks those whose missing sets are unknown.
    pub fn discover_missing(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let ask: Vec<PgShard> = self
            .peer_info
            .iter()
            .filter(|(s, i)| {
                !i.is_empty()
                    && !self.peer_missing.contains_key(s)
                    && !self.queried_for_unfound.contains(s)
            })
            .map(|(s, _)| *s)
            .collect();
        for to in ask {
            self.queried_for_unfound.insert(to);
            let history = Box::new(self.export_history(now));
            self.send(to, PeerMessage::Query(Query::FullLog, history), out);
        }
    }

    /// Who may have what is unfound: all that served since it was clean last, and all that told of
    /// themselves.
    pub fn might_have_unfound(&self) -> BTreeSet<PgShard> {
        let served = self.past_intervals.all_participants.iter();
        let mut all: BTreeSet<PgShard> = served.chain(self.peer_info.keys()).copied().collect();
        all.remove(&self.whoami);
        all
    }

    /// Whether some OSD may still turn out to have what is unfound: one that has not told what it
    /// lacks, and exists, and whose data no operator has given up
    /// (`all_unfound_are_queried_or_lost` in `src/osd/PeeringState.cc` at v16.2).
    pub fn may_find_more(&self, view: &dyn ClusterView) -> bool {
        let is_out_of_question = |s: &PgShard| {
            self.peer_missing.contains_key(s) && !self.undoing.contains(s)
                || self.peer_info.get(s).is_some_and(|i| i.is_empty() || i.dne())
                || !view.exists(s.osd)
                || view.lost_at(s.osd) > view.up_from(s.osd)
        };
        !self.might_have_unfound().iter().all(is_out_of_question)
    }

    /// The newest version that somebody has of an object of which nobody has the one that is needed
    /// (`pick_newest_available`), and who; ourselves rather than others.
    pub fn newest_available(&self, oid: &HObject) -> Option<(EVersion, PgShard)> {
        let own = self.missing.get(oid).map(|item| (item.have, self.whoami));
        let others = self.acting_backfill.iter().filter(|s| **s != self.whoami).filter_map(|s| {
            let item = self.peer_missing.get(s)?.get(oid)?;
            Some((item.have, *s))
        });
        let mut newest: Option<(EVersion, PgShard)> = None;
        for (have, who) in own.into_iter().chain(others) {
            if !have.is_zero() && newest.is_none_or(|(best, _)| have > best) {
                newest = Some((have, who));
            }
        }
        newest
    }
}
