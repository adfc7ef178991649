//! Read leases: why a primary that was cut off serves no stale reads.
//!
//! A primary may serve while every replica has promised, within the last `read_lease`, not to
//! follow another primary before the lease is over. Times on the wire are the primary's clock,
//! which replicas only give back; a replica measures the span from when the lease came, which is
//! after it was given. So with clocks of equal speed the primary stops first.
//!
//! A new primary serves nothing before the leases of the interval before are over, unless their
//! holders are known to have ended, or have themselves joined the new interval.
//!
//! A replica may serve reads for as long as the primary may, by the primary's own word: it turns
//! `readable_until` into a time of its own clock, by what heartbeats tell of the primary's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use types::osd::PgHistory;
use types::time::Span;
use types::{OsdId, PgShard};

use super::{ClusterView, Effect, PeerMessage, Peering, PriorSet};

/// Longest lease believed.
const LEASE_MAX: Duration = Duration::from_secs(600);

/// What the primary gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// It serves until then at least (its clock).
    pub readable_until: Duration,
    /// It may serve until then, if all confirm (its clock).
    pub readable_until_ub: Duration,
    /// Span of the lease.
    pub interval: Duration,
    /// `readable_until` by the receiver's clock, or earlier; not on the wire.
    pub readable_until_here: Option<Duration>,
}

impl Lease {
    /// For how long clocks are trusted less than they say: they may not run equally fast.
    fn margin(&self) -> Duration {
        self.interval / 100
    }
}

/// What a replica gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseAck {
    /// The primary's own word.
    pub readable_until_ub: Duration,
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Until when we serve: as primary, or reads beside it. Own clock.
    until: Duration,
    /// Until when the primary (we, or the one we follow) may think it serves. Own clock.
    until_ub: Duration,
    /// Until when a primary of an earlier interval may think so. Own clock.
    pub(super) prior_until_ub: Duration,
    acked: BTreeMap<PgShard, Duration>,
}

impl Leases {
    pub(super) fn end_interval(&mut self, now: Duration) {
        self.prior_until_ub = self.prior_until_ub.max(self.until_ub);
        if self.prior_until_ub <= now {
            self.prior_until_ub = Duration::ZERO;
        }
        self.until = Duration::ZERO;
        self.until_ub = Duration::ZERO;
        self.acked.clear();
    }

    /// An OSD confirms a lease. It does not say for which of its shards, so each answer is taken for the first
    /// that has not confirmed as much (`PeeringState::proc_lease_ack`).
    fn note_ack(&mut self, followers: &BTreeSet<PgShard>, from: OsdId, until: Duration) {
        for shard in followers.iter().filter(|shard| shard.osd == from) {
            let known = self.acked.entry(*shard).or_default();
            if until > *known {
                *known = until;
                return;
            }
        }
    }

    /// Objects come from another PG: whoever may serve them there, may.
    fn inherit(&mut self, from: &Leases) {
        self.until_ub = self.until_ub.max(from.until_ub);
        self.prior_until_ub = self.prior_until_ub.max(from.prior_until_ub);
    }

    pub(super) fn export(&self, history: &mut PgHistory, now: Duration) {
        let left = self.prior_until_ub.saturating_sub(now);
        history.prior_readable_until_ub = Span::from_duration(left);
    }

    pub(super) fn import(&mut self, history: &PgHistory, now: Duration) {
        if !history.prior_readable_until_ub.is_zero() {
            // Nobody gives leases longer than this: a wrong clock must not stop us for ever.
            let left = history.prior_readable_until_ub.to_duration().min(LEASE_MAX);
            let until = now + left;
            self.prior_until_ub = self.prior_until_ub.max(until);
        }
    }

    /// Holders of earlier leases that are not down have joined this interval; those that are down
    /// matter unless they are dead.
    pub(super) fn forget_dead(&mut self, prior: &PriorSet, view: &dyn ClusterView) {
        if prior.down.iter().all(|osd| view.is_dead(*osd) || view.is_up(*osd)) {
            self.prior_until_ub = Duration::ZERO;
        }
    }
}

impl Peering {
    /// Takes over what leases are known of a PG that this one gets objects of, by a split or a merge:
    /// they count in the interval that begins with it.
    pub(crate) fn inherit_leases(&mut self, from: &Peering) {
        self.leases.inherit(&from.leases);
    }

    /// Until when ops must wait for leases of an earlier interval.
    pub fn wait_until(&self, now: Duration) -> Option<Duration> {
        let until = self.leases.prior_until_ub;
        (until > now).then_some(until)
    }

    /// Whether leases let us serve now.
    pub fn is_readable(&self, now: Duration) -> bool {
        env::mutant("serve-after-lease")
            || now < self.leases.until && self.wait_until(now).is_none()
    }

    /// Whether nothing but its own lease keeps this primary from serving.
    pub fn is_laggy(&self, now: Duration) -> bool {
        self.is_activated() && self.wait_until(now).is_none() && now >= self.leases.until
    }

    /// Until when this primary may serve.
    pub fn readable_until(&self) -> Duration {
        self.leases.until
    }

    fn followers(&self) -> BTreeSet<PgShard> {
        self.mapping.acting_shards().collect()
    }

    pub(super) fn new_lease(&mut self, now: Duration) -> Lease {
        let interval = self.settings.read_lease;
        self.leases.until_ub = now + interval;
        self.leases.acked.insert(self.whoami, self.leases.until_ub);
        self.update_readable();
        Lease {
            readable_until: self.leases.until,
            readable_until_ub: self.leases.until_ub,
            interval,
            readable_until_here: None,
        }
    }

    /// Gives the replicas a new lease: call every half `read_lease` on an activated primary.
    pub fn renew_lease(&mut self, now: Duration, out: &mut Vec<Effect>) {
        if !self.is_activated() {
            return;
        }
        let lease = self.new_lease(now);
        for to in self.followers() {
            if to != self.whoami {
                self.send(to, PeerMessage::Lease(lease), out);
            }
        }
    }

    /// As a replica: takes a lease and gives back what the primary wants to hear.
    pub(super) fn take_lease(&mut self, lease: Lease, now: Duration) -> LeaseAck {
        self.leases.until_ub = self.leases.until_ub.max(now + lease.interval);
        if let Some(until) = lease.readable_until_here {
            let until = until.saturating_sub(lease.margin());
            self.leases.until = self.leases.until.max(until);
        }
        LeaseAck { readable_until_ub: lease.readable_until_ub }
    }

    pub(super) fn on_lease(
        &mut self,
        from: PgShard,
        lease: Lease,
        now: Duration,
        out: &mut Vec<Effect>,
    ) {
        if self.is_primary() || self.primary() != Some(from) {
            return;
        }
        let ack = self.take_lease(lease, now);
        self.send(from, PeerMessage::LeaseAck(ack), out);
    }

    pub(super) fn on_lease_ack(&mut self, from: PgShard, ack: LeaseAck) {
        // A replica gives back only what we gave; never believe more.
        let until = ack.readable_until_ub.min(self.leases.until_ub);
        self.leases.note_ack(&self.followers(), from.osd, until);
        self.update_readable();
    }

    fn update_readable(&mut self) {
        let until = self
            .followers()
            .iter()
            .map(|s| self.leases.acked.get(s).copied().unwrap_or_default())
            .min();
        self.leases.until = until.unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An OSD that has two shards of a PG, as two OSDs out of four are taken out, answers for each. Both answers
    /// were taken for the first shard's: the PG was laggy, and served nobody.
    #[test]
    fn each_shard_of_an_osd_confirms() {
        let shards = [PgShard::new(0, 0), PgShard::new(1, 1), PgShard::new(1, 2)];
        let followers = BTreeSet::from(shards);
        let mut leases = Leases::default();
        for until in [1, 2].map(Duration::from_secs) {
            leases.note_ack(&followers, 1, until);
            assert_ne!(leases.acked.get(&shards[2]), Some(&until));
            leases.note_ack(&followers, 1, until);
            assert_eq!(leases.acked.get(&shards[2]), Some(&until));
        }
        assert_eq!(leases.acked.get(&shards[0]), None);
    }
}
