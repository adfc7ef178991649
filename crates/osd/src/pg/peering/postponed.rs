//! Members of the up set that are to begin anew although they alone have what others lack.
//!
//! A backfill from nothing removes what its target has. But that may be all there is of an object:
//!
//! 1. A, B and C write an object. C has it durable; A and B lose power before they do.
//! 2. All come up. C has the newest log: A and B take its entries, and lack the object.
//! 3. C dies before recovery has brought it to them. A and B serve the others.
//! 4. C comes back when more has been written than a log keeps: it is to be backfilled.
//!
//! So whoever is to begin anew is asked for what it lacks, if something is unfound without it, and stays what it is,
//! outside the acting set, until what it alone has is elsewhere. Then it begins, in the same interval
//! ([`Peering::join_postponed`]). (A real Ceph has it begin anew at once.)
//!
//! In an erasure coded pool it may have to undo a write first, as a stray may: it was given one, was away when that
//! turned out not to have happened, and our log has forgotten the time.

use std::collections::BTreeSet;
use std::time::Duration;

use types::osd::PgLog;
use types::{EVersion, HObject, PgShard};

use super::{Effect, Missing, PeerMessage, Peering, Query};

impl Peering {
    /// Whether the activation tells a peer to forget what it has: its log does not overlap ours, and it is not a
    /// backfill that goes on where it was.
    pub(super) fn begins_anew(&self, peer: PgShard) -> bool {
        let Some(theirs) = self.peer_info.get(&peer) else { return true };
        let is_target = self.backfill_targets.contains(&peer);
        let says_it_is_complete = is_target && theirs.last_backfill.is_max();
        let overlaps = theirs.last_update >= self.log.tail() && theirs.log_tail <= self.log.head();
        let by_log = overlaps && !theirs.last_backfill.is_min();
        theirs.last_update != self.info.last_update && (!by_log || says_it_is_complete)
    }

    /// Of those that are to begin anew whoever has something.
    fn have_to_forget(&self) -> BTreeSet<PgShard> {
        let has_something = |s: &PgShard| {
            self.peer_info.get(s).is_some_and(|i| !i.is_empty() && !i.last_backfill.is_min())
        };
        let targets = self.backfill_targets.iter().copied();
        targets.filter(|s| has_something(s) && self.begins_anew(*s)).collect()
    }

    /// What cannot be recovered without `others`, and of these who has it.
    fn only_with<'a>(
        &'a self,
        others: &'a BTreeSet<PgShard>,
    ) -> impl Iterator<Item = Vec<PgShard>> + 'a {
        let redundancy = self.mapping.redundancy;
        // Of copies the primary recovers its own first, and gives the others theirs.
        let lacking = self.lacking().take(if redundancy.is_erasure() { usize::MAX } else { 1 });
        lacking.flat_map(Missing::iter).filter(|(_, item)| !item.is_delete).filter_map(
            move |(oid, item)| {
                let (with, without) = self.who_has(oid, item.need, others);
                (!redundancy.is_recoverable(&without)).then_some(with)
            },
        )
    }

    /// What we, and those who follow, lack.
    fn lacking(&self) -> impl Iterator<Item = &Missing> {
        let followers = self.acting_backfill.iter().filter_map(|s| self.peer_missing.get(s));
        std::iter::once(&self.missing).chain(followers)
    }

    /// Up to where the log of a peer that ours has gone beyond is right, if it tells that not all of it is: it has a
    /// write of an object that is missing, newer than the version that is needed.
    pub(super) fn forgotten_divergence(&self, theirs: &PgLog) -> Option<EVersion> {
        if theirs.head >= self.log.tail() {
            return None;
        }
        let did_not_happen = |oid: &HObject, version: EVersion| {
            let needs = self.lacking().filter_map(|missing| Some(missing.get(oid)?.need));
            // What followers need grows with our newer entries, which they are told of when they are activated.
            let is_newest = |need| self.log.newest_of(oid).is_none_or(|e| e.version <= need);
            needs.max().is_some_and(|need| !need.is_zero() && version > need && is_newest(need))
        };
        let mut happened = theirs.tail;
        for e in &theirs.log {
            if !e.is_error() && did_not_happen(&e.soid, e.version) {
                return Some(happened);
            }
            happened = e.version;
        }
        None
    }

    /// Who has the object, or will: of `others`, and beside them.
    fn who_has(
        &self,
        oid: &HObject,
        need: EVersion,
        others: &BTreeSet<PgShard>,
    ) -> (Vec<PgShard>, Vec<PgShard>) {
        let own = (!self.missing.contains(oid)).then_some(self.whoami);
        // What a stray has may be of a write that did not happen.
        let follows = |s: &PgShard| self.acting_backfill.contains(s);
        let sources = self.sources(oid, need).into_iter().filter(follows);
        let beside = own.into_iter().chain(sources);
        let with = others.iter().copied().filter(|s| self.has(*s, oid, need));
        (with.collect(), beside.filter(|s| !others.contains(s)).collect())
    }

    /// Asks those who are to begin anew what they lack, if something is unfound without them. Returns whose answers
    /// are awaited.
    pub(super) fn ask_who_begins_anew(
        &mut self,
        now: Duration,
        out: &mut Vec<Effect>,
    ) -> BTreeSet<PgShard> {
        let mut ask = self.have_to_forget();
        // Nearly always nobody; what is missing may be much.
        if ask.is_empty() || self.only_with(&ask).next().is_none() {
            return BTreeSet::new();
        }
        ask.retain(|peer| self.queried_for_unfound.insert(*peer));
        for peer in &ask {
            self.peer_missing.remove(peer);
            let history = Box::new(self.export_history(now));
            self.send(*peer, PeerMessage::Query(Query::FullLog, history), out);
        }
        ask
    }

    /// Leaves those who alone have what is missing as they are.
    pub(super) fn postpone_who_alone_has_objects(&mut self) {
        let anew = self.have_to_forget();
        if anew.is_empty() {
            return;
        }
        let postponed: BTreeSet<PgShard> = self.only_with(&anew).flatten().collect();
        for peer in postponed {
            tracing::info!(pg = %self.pgid, %peer, "is backfilled when what it alone has is recovered");
            self.acting_backfill.remove(&peer);
            self.backfill_targets.remove(&peer);
        }
    }

    /// As an active primary: members of the up set that do not follow yet.
    pub(super) fn postponed(&self) -> impl Iterator<Item = PgShard> + '_ {
        self.mapping.up_shards().filter(|s| !self.acting_backfill.contains(s))
    }

    /// Whether it is one of them.
    pub fn is_postponed(&self, shard: PgShard) -> bool {
        self.mapping.is_up(shard) && !self.acting_backfill.contains(&shard)
    }

    /// Has those begin whose objects are elsewhere now, or turned out not to be there. Returns whether somebody did:
    /// a backfill that has begun is to begin once more, for all.
    pub fn join_postponed(&mut self, now: Duration, out: &mut Vec<Effect>) -> bool {
        if !self.is_activated() {
            return false;
        }
        let postponed: BTreeSet<PgShard> = self.postponed().collect();
        if postponed.is_empty() {
            return false;
        }
        let needed: BTreeSet<PgShard> = self.only_with(&postponed).flatten().collect();
        let joining: Vec<PgShard> = postponed.difference(&needed).copied().collect();
        for peer in &joining {
            self.acting_backfill.insert(*peer);
            self.backfill_targets.insert(*peer);
            let lease = self.new_lease(now);
            let message = self.activation_of(*peer, Some(lease), now);
            out.push(Effect::Join { to: *peer, message });
        }
        !joining.is_empty()
    }
}
