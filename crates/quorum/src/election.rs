//! Elections.
//!
//! A member first asks whether it would be elected (that changes nothing anywhere), so that one
//! that was cut off does not disturb the others when it comes back. Members that heard from a
//! leader lately keep their promise to it and do not vote; leases rest on that. The promise is void
//! when there can be no lease: the leader handed over, or all members say that none of them leads
//! (`docs/quorum.md`).

use std::collections::BTreeMap;
use std::time::Duration;

use crate::entry::{MemberId, Payload};
use crate::message::Body;
use crate::progress::Lead;
use crate::raft::{Raft, Role};

impl Raft {
    /// It is time to look for another leader.
    pub(crate) fn stand(&mut self, now: Duration) {
        self.stand_at = now + self.pause();
        let members = self.log.members().1;
        if !members.is_voter(self.id) || !self.whole {
            return;
        }
        self.leader = None;
        let others: Vec<MemberId> = members.voters().filter(|id| *id != self.id).collect();
        if others.is_empty() {
            return self.campaign(now, true);
        }
        let answers = BTreeMap::from([(self.id, !self.has_promised(now))]);
        self.role = Role::Asking { answers, all_quiet: true };
        let (last_index, last_term) = self.last();
        for id in others {
            self.send_early(id, Body::PreVote { last_index, last_term });
        }
    }

    /// Whether a leader may still count on us.
    fn has_promised(&self, now: Duration) -> bool {
        now < self.heard + self.timing.promise
    }

    fn is_fresh(&self, last_index: u64, last_term: u64) -> bool {
        (last_term, last_index) >= (self.log.last_term(), self.log.last_index())
    }

    pub(crate) fn on_pre_vote(&mut self, now: Duration, from: MemberId, index: u64, term: u64) {
        // A candidate may lead in this very term yet.
        let quiet = matches!(self.role, Role::Follower | Role::Asking { .. });
        let reply = Body::PreVoteReply {
            fresh: self.is_fresh(index, term),
            promised: self.is_leader() || self.has_promised(now),
            quiet,
        };
        self.send_after(from, reply);
    }

    pub(crate) fn on_pre_vote_reply(
        &mut self,
        now: Duration,
        from: MemberId,
        yes: bool,
        fresh: bool,
        quiet: bool,
    ) {
        let members = self.log.members().1;
        let (majority, all) = (members.majority(), members.voters().count());
        if !members.is_voter(from) {
            return;
        }
        let Role::Asking { answers, all_quiet } = &mut self.role else { return };
        answers.insert(from, yes);
        // One whose log is ahead of ours would not vote for us: no use in voiding promises.
        *all_quiet &= quiet && fresh;
        let in_favour = answers.values().filter(|yes| **yes).count();
        if in_favour >= majority && answers.get(&self.id) == Some(&true) {
            self.campaign(now, false);
        } else if *all_quiet && answers.len() == all {
            self.campaign(now, true);
        }
    }

    /// Stands for election in the next term.
    pub(crate) fn campaign(&mut self, now: Duration, clear: bool) {
        if !self.whole || !self.log.members().1.is_voter(self.id) {
            return;
        }
        self.campaigns += 1;
        self.set_term(self.hard.term + 1, self.id);
        self.leader = None;
        self.stand_at = now + self.pause() + self.timing.retry;
        self.role = Role::Candidate { answers: BTreeMap::from([(self.id, true)]) };
        let (last_index, last_term) = self.last();
        let members = self.log.members().1;
        let others: Vec<MemberId> = members.voters().filter(|id| *id != self.id).collect();
        for id in others {
            self.send_after(id, Body::Vote { last_index, last_term, clear });
        }
        self.count_votes(now);
    }

    pub(crate) fn on_vote(
        &mut self,
        now: Duration,
        from: MemberId,
        term: u64,
        last: (u64, u64),
        clear: bool,
    ) {
        let leads = self.is_leader() && !clear;
        if term > self.hard.term && (leads || (self.has_promised(now) && !clear)) {
            // Not even the term is taken: the leader we promised goes on in its own.
            return;
        }
        self.see_term(now, term);
        let free = self.hard.vote == MemberId::default() || self.hard.vote == from;
        let granted = term == self.hard.term
            && free
            && self.leader.is_none()
            && self.is_fresh(last.0, last.1);
        if granted {
            self.set_term(term, from);
            self.stand_at = now + self.timing.stagger + self.timing.retry + self.pause();
        }
        self.send_after(from, Body::VoteReply { granted });
    }

    pub(crate) fn on_vote_reply(&mut self, now: Duration, from: MemberId, granted: bool) {
        if let Role::Candidate { answers } = &mut self.role {
            answers.insert(from, granted);
            self.count_votes(now);
        }
    }

    fn count_votes(&mut self, now: Duration) {
        let members = self.log.members().1;
        let Role::Candidate { answers } = &self.role else { return };
        let votes = members.voters().filter(|id| answers.get(id) == Some(&true)).count();
        if votes >= members.majority() {
            self.begin_leading(now);
        }
    }

    fn begin_leading(&mut self, now: Duration) {
        self.leader = Some(self.id);
        self.role = Role::Leader(Lead {
            others: BTreeMap::new(),
            first_index: self.log.last_index() + 1,
            since: now,
            beat_at: now,
        });
        self.append_own(Payload::Noop);
        self.beat(now);
    }
}
