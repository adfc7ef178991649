//! What an OSD does that does not lead: it tells what it has, and follows.

use std::time::Duration;

use types::osd::PgInfo;
use types::{EVersion, PgShard};

use super::{Effect, Lease, LogMessage, Missing, PeerMessage, Peering, Query, State};

impl Peering {
    /// A copy that is not told to be anything reports to the primary.
    pub(super) fn notify_primary(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let Some(to) = self.primary() else { return };
        if to == self.whoami {
            return;
        }
        let notify = PeerMessage::Notify(
            Box::new(self.info_for_peer(now)),
            Box::new(self.past_intervals.clone()),
        );
        self.send(to, notify, out);
        self.reported_at = self.epoch;
    }

    /// A primary asks. `epoch` is the one it asked in: the answer is for that.
    pub(super) fn on_query(
        &mut self,
        from: PgShard,
        epoch: u32,
        query: Query,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        let message = match query {
            Query::Info => PeerMessage::Notify(
                Box::new(self.info_for_peer(now)),
                Box::new(self.past_intervals.clone()),
            ),
            Query::Log(_) | Query::FullLog => PeerMessage::Log(Box::new(LogMessage {
                info: self.info_for_peer(now),
                log: match query {
                    Query::Log(since) if since >= self.log.tail() => self.log.wire_after(since),
                    _ => self.log.wire(),
                },
                missing: self.missing.to_wire(),
                past_intervals: self.past_intervals.clone(),
                lease: None,
            })),
        };
        out.push(Effect::Send { to: from, query_epoch: epoch, message });
    }

    /// The primary's log: what we are from now on.
    pub(super) fn on_primary_log(
        &mut self,
        from: PgShard,
        message: LogMessage,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        if self.primary() != Some(from) {
            return;
        }
        let LogMessage { info, log, lease, .. } = message;
        match self.state {
            // Of one that was to undo something before it begins anew.
            State::ReplicaActive if info.last_backfill.is_min() => {}
            State::ReplicaActive => {
                // Entries about objects given up for lost.
                self.follow_log(&info, &log, out);
                return;
            }
            State::Stray => {}
            _ => return,
        }
        if info.last_backfill.is_min() {
            // All objects will come by backfill: what is here is of no use.
            let history = self.info.history;
            self.info = PgInfo { pgid: self.pgid, history, ..info.clone() };
            self.log.reset_to(log);
            self.info.log_tail = self.log.tail();
            self.info.last_complete = self.info.last_update;
            self.missing.clear();
        } else if !self.follow_log(&info, &log, out) {
            let (tail, head) = (self.log.tail(), self.log.head());
            tracing::warn!(
                pg = %self.pgid, %from, last_update = %self.info.last_update,
                "log of the primary, {} to {}, does not reach ours, {tail} to {head}", log.tail, log.head
            );
            return;
        }
        self.follow(&info, lease, now, out);
    }

    fn follow_log(
        &mut self,
        info: &PgInfo,
        log: &types::osd::PgLog,
        out: &mut Vec<Effect>,
    ) -> bool {
        let mut removed = Vec::new();
        let merged = self.log.merge(info, log, &mut self.info, &mut self.missing, &mut removed);
        out.extend(removed.into_iter().map(Effect::Undo));
        self.update_complete_after_merge();
        self.dirty_info = true;
        self.dirty_big_info = true;
        merged
    }

    /// The primary's info: an activation without a log, or news of the history.
    pub(super) fn on_primary_info(
        &mut self,
        from: PgShard,
        info: PgInfo,
        lease: Option<Lease>,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        if self.primary() != Some(from) {
            return;
        }
        match self.state {
            State::Stray => {
                if info.last_update < self.info.last_update {
                    let mut removed = Vec::new();
                    self.log.rewind_divergent(
                        info.last_update,
                        &mut self.info,
                        &mut self.missing,
                        &mut removed,
                    );
                    out.extend(removed.into_iter().map(Effect::Undo));
                    self.update_complete_after_merge();
                }
                if info.last_update != self.info.last_update {
                    tracing::warn!(pg = %self.pgid, %from, "activation beyond our log");
                    return;
                }
                self.follow(&info, lease, now, out);
            }
            State::ReplicaActive => {
                self.update_history(&info.history, now);
                if info.purged_snaps != self.info.purged_snaps {
                    self.info.purged_snaps = info.purged_snaps;
                    self.mark_dirty_big_info();
                }
                if let Some(lease) = lease {
                    let ack = self.take_lease(lease, now);
                    self.send(from, PeerMessage::LeaseAck(ack), out);
                }
            }
            _ => {}
        }
    }

    fn follow(
        &mut self,
        primary: &PgInfo,
        lease: Option<Lease>,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        self.update_history(&primary.history, now);
        // A backfill target has not seen all writes; and a primary below min_size records none.
        if self.is_acting() && self.info.last_epoch_started < primary.last_epoch_started {
            self.info.last_epoch_started = primary.last_epoch_started;
            self.info.last_interval_started = self.info.history.same_interval_since;
        }
        self.change_stats(|stats| *stats = primary.stats.clone());
        self.dirty_info = true;
        self.dirty_big_info = true;
        self.state = State::ReplicaActive;
        self.followed_from = self.info.last_update;
        if self.info.is_incomplete() {
            // What is there is of an earlier attempt, and may be old.
            out.push(Effect::RemoveAbove(self.info.last_backfill.clone()));
        }
        if let Some(lease) = lease {
            let ack = self.take_lease(lease, now);
            if let Some(to) = self.primary() {
                self.send(to, PeerMessage::LeaseAck(ack), out);
            }
        }
        out.push(Effect::Activate);
    }

    /// The activation is durable here: the primary may count on it.
    pub(super) fn report_activated(&mut self, now: Duration, out: &mut Vec<Effect>) {
        let Some(to) = self.primary() else { return };
        let mut info = self.info_for_peer(now);
        info.history.last_epoch_started =
            info.history.last_epoch_started.max(info.last_epoch_started);
        info.history.last_interval_started =
            info.history.last_interval_started.max(info.last_interval_started);
        self.send(to, PeerMessage::Info(Box::new(info), None, None), out);
    }

    /// The primary of a clean PG says that this copy is not needed.
    pub(super) fn on_remove(&mut self, from: PgShard, out: &mut Vec<Effect>) {
        if self.primary() == Some(from) && !self.is_member() {
            out.push(Effect::RemovePg);
        }
    }

    /// For a PG that does not exist here: what a query for its info is answered.
    pub fn absent_info(pgid: types::SpgId) -> PgInfo {
        PgInfo { pgid, last_backfill: types::HObject::max(), ..PgInfo::default() }
    }

    /// Whether a message of the primary makes this copy more than a stray.
    pub fn follows(&self) -> bool {
        self.state == State::ReplicaActive
    }

    /// Whether this copy, which does not lead, may answer reads: it has every object, and the
    /// primary serves, by a lease that holds here too (`PrimaryLogPG::do_op` and `check_laggy`,
    /// `src/osd/PrimaryLogPG.cc` at v16.2). Of objects that have been written since
    /// [`Peering::stable_to`] it knows nothing certain.
    pub fn may_answer_reads(&self, now: Duration) -> bool {
        self.follows()
            && self.is_acting()
            && self.is_writeable()
            && !self.info.is_incomplete()
            && self.missing.is_empty()
            && self.pending_merge().is_none()
            && self.is_readable(now)
    }

    /// The primary says that all members have all writes up to here.
    pub fn note_stable(&mut self, to: EVersion) {
        self.stable_by_primary = self.stable_by_primary.max(to);
    }

    /// As a follower: every member has all writes up to here, none will be undone. What an interval
    /// begins with is so when all have activated, which the history tells.
    pub fn stable_to(&self) -> EVersion {
        let history = &self.info.history;
        match history.last_epoch_started >= history.same_interval_since {
            true => self.stable_by_primary.max(self.followed_from),
            false => self.stable_by_primary,
        }
    }

    /// Drops what of the missing set is beyond a split.
    pub fn retain_missing(&mut self, keep: impl FnMut(&types::HObject) -> bool) {
        let mut missing: Missing = std::mem::take(&mut self.missing);
        missing.retain(keep);
        self.missing = missing;
    }

    /// Whether the OSD is in the up or the acting set.
    pub(super) fn is_member(&self) -> bool {
        self.is_up() || self.is_acting()
    }

    /// Whether the OSD is in the up set.
    pub fn is_up(&self) -> bool {
        self.mapping.is_up(self.whoami)
    }
}
