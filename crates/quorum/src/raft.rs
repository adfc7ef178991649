//! A member: its role, its clock, what it stores.
//!
//! ```text
//!              promise over, no leader heard              majority would vote
//!   Follower ───────────────────────────────► Asking ─────────────────────────► Candidate
//!      ▲  ▲                                     │ leader heard                      │ majority
//!      │  └─────────────────────────────────────┘                                   ▼
//!      └───────── a newer term, or no majority answers any more ◄──────────────── Leader
//! ```
//!
//! The owner calls in with messages and at [`Raft::wake_at`]; then takes [`Raft::take_ready`],
//! makes durable what is in it, calls [`Raft::persisted`], sends, applies what
//! [`Raft::take_committed`] gives, and says so with [`Raft::applied_to`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::entry::{Base, Entry, HardState, MemberId, Members, Payload};
use crate::log::Log;
use crate::message::{Body, Envelope};
use crate::progress::Lead;

/// How long things take.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Pause between signs of life of a leader.
    pub beat: Duration,
    /// How long after a sign of life left the majority that answered it does not elect another.
    /// Shorter than `promise` by more than clocks may differ in rate within that time.
    pub lease: Duration,
    /// How long a member that heard from a leader votes for nobody else.
    pub promise: Duration,
    /// How much longer this member waits than the first one before it stands for election; makes
    /// members stand one after the other.
    pub stagger: Duration,
    /// Pause between two attempts to be elected, at least; up to twice as long.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        let ms = Duration::from_millis;
        Timing { beat: ms(150), lease: ms(700), promise: ms(900), stagger: ms(0), retry: ms(100) }
    }
}

/// What a member starts with.
#[derive(Debug, Clone)]
pub struct Start {
    /// Who it is.
    pub id: MemberId,
    /// As stored.
    pub hard: HardState,
    /// As stored.
    pub base: Base,
    /// As stored, ascending from the base.
    pub entries: Vec<Entry>,
    /// How far the state has been applied.
    pub applied: u64,
    /// Entries kept once applied; the default unless given.
    pub entries_max: Option<usize>,
    /// For the pauses that keep two candidates from getting in each other's way.
    pub seed: u64,
}

#[derive(Debug)]
pub(crate) enum Role {
    Follower,
    /// Asks whether others would vote for it: who answered, and whether in favour; whether each
    /// that answered neither leads nor is in another term.
    Asking {
        answers: BTreeMap<MemberId, bool>,
        all_quiet: bool,
    },
    Candidate {
        answers: BTreeMap<MemberId, bool>,
    },
    Leader(Lead),
}

/// What the owner has to do now.
#[derive(Debug, Default)]
pub struct Ready {
    /// To be sent; need not wait.
    pub early: Vec<Envelope>,
    /// To be stored, if given.
    pub hard: Option<HardState>,
    /// Stored entries after this place are to be removed before `append` is stored.
    pub truncate: Option<u64>,
    /// To be stored.
    pub append: Vec<Entry>,
    /// To be stored; entries up to it may be removed.
    pub base: Option<Base>,
    /// To be sent once all the above is durable.
    pub after: Vec<Envelope>,
    /// The state is to be copied from the leader: the log alone does not lead there.
    pub sync_from: Option<MemberId>,
}

impl Ready {
    /// Whether something has to be made durable.
    pub fn stores(&self) -> bool {
        let Ready { hard, truncate, append, base, .. } = self;
        hard.is_some() || truncate.is_some() || !append.is_empty() || base.is_some()
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        !self.stores() && self.early.is_empty() && self.after.is_empty() && self.sync_from.is_none()
    }
}

/// Why members cannot be changed now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeError {
    /// Another member leads.
    NotLeader,
    /// The last change, or this leader's first entry, is not committed yet.
    Busy,
    /// More than one vote would change.
    TooMuch,
}

/// See the module.
#[derive(Debug)]
pub struct Raft {
    pub(crate) id: MemberId,
    pub(crate) timing: Timing,
    pub(crate) hard: HardState,
    pub(crate) log: Log,
    /// The last entry that is durable here.
    pub(crate) durable: u64,
    pub(crate) commit: u64,
    pub(crate) applied: u64,
    pub(crate) role: Role,
    pub(crate) leader: Option<MemberId>,
    /// When a leader was last heard, or might have been in a life before.
    pub(crate) heard: Duration,
    /// When to stand for election.
    pub(crate) stand_at: Duration,
    /// Whether the state is whole: a member that copies it can follow but not lead.
    pub(crate) whole: bool,
    /// The log ends elsewhere since a copy of the state, and no leader has been told.
    end_untold: bool,
    random: u64,
    /// Elections called since that was last asked.
    pub(crate) campaigns: u64,
    pub(crate) ready: Ready,
}

impl Raft {
    /// A member that was started now.
    pub fn new(start: Start, timing: Timing, now: Duration) -> Raft {
        let log = Log::new(start.base, start.entries, start.entries_max);
        let mut raft = Raft {
            id: start.id,
            timing,
            hard: start.hard,
            durable: log.last_index(),
            commit: start.applied,
            applied: start.applied,
            log,
            role: Role::Follower,
            leader: None,
            // Before it stopped it may have heard a leader: that promise holds on.
            heard: now,
            stand_at: now + timing.stagger,
            whole: true,
            end_untold: false,
            random: start.seed | 1,
            campaigns: 0,
            ready: Ready::default(),
        };
        raft.note_time(now);
        raft
    }

    /// Lets time pass: stands for election, gives signs of life, gives up leading.
    pub fn note_time(&mut self, now: Duration) {
        match &self.role {
            Role::Leader(lead) => {
                let members = self.log.members().1;
                let heard = lead.majority_time(members, self.id, now).max(lead.since);
                if now > heard + self.timing.promise {
                    // Whoever follows us is in the minority, like us.
                    self.become_follower(now, None);
                } else if now >= lead.beat_at {
                    self.beat(now);
                }
            }
            _ if now >= self.stand_at => self.stand(now),
            _ => {}
        }
    }

    /// When [`Raft::note_time`] is next due.
    pub fn wake_at(&self) -> Duration {
        match &self.role {
            Role::Leader(lead) => lead.beat_at,
            _ => self.stand_at,
        }
    }

    /// Takes a message.
    pub fn receive(&mut self, now: Duration, message: Envelope) {
        if message.to != self.id {
            return;
        }
        let Envelope { from, term, body, .. } = message;
        match body {
            Body::PreVote { last_index, last_term } => {
                if self.leader.is_none() {
                    self.see_term(now, term);
                }
                self.on_pre_vote(now, from, last_index, last_term)
            }
            Body::PreVoteReply { fresh, promised, quiet } => {
                let quiet = quiet && term == self.hard.term;
                self.see_term(now, term);
                self.on_pre_vote_reply(now, from, fresh && !promised, fresh, quiet);
            }
            Body::Vote { last_index, last_term, clear } => {
                self.on_vote(now, from, term, (last_index, last_term), clear)
            }
            Body::VoteReply { granted } => {
                self.see_term(now, term);
                if term == self.hard.term {
                    self.on_vote_reply(now, from, granted);
                }
            }
            Body::Append { prev_index, prev_term, commit, stamp, entries } => {
                if self.follow(now, from, term) {
                    self.on_append(from, (prev_index, prev_term), commit, stamp, entries);
                }
            }
            Body::NeedSync { stamp } => {
                if self.follow(now, from, term) {
                    // Behind a copy's last piece comes what the leader says before it knows where we
                    // are now. This answer tells it; if we lack something still, it says so again.
                    if !std::mem::take(&mut self.end_untold) {
                        self.ready.sync_from = Some(from);
                    }
                    let index = self.log.last_index();
                    self.send_after(from, Body::AppendReply { ok: false, index, stamp });
                }
            }
            Body::AppendReply { ok, index, stamp } => {
                self.see_term(now, term);
                if term == self.hard.term {
                    self.on_append_reply(now, from, ok, index, stamp);
                }
            }
            Body::Transfer => {
                if term == self.hard.term && self.leader == Some(from) {
                    self.campaign(now, true);
                }
            }
        }
    }

    /// A message of the leader of `term`: whether it is to be believed.
    fn follow(&mut self, now: Duration, from: MemberId, term: u64) -> bool {
        if term < self.hard.term {
            // A leader that is over learns the term from this. The stamp stays out: it may be of a
            // life before, when its clock ran differently.
            let index = self.log.last_index();
            self.send_after(from, Body::AppendReply { ok: false, index, stamp: 0 });
            return false;
        }
        self.see_term(now, term);
        if !matches!(self.role, Role::Follower) || self.leader != Some(from) {
            debug_assert!(!matches!(self.role, Role::Leader(_)), "two leaders in term {term}");
            self.become_follower(now, Some(from));
        }
        self.heard = now;
        self.stand_at = now + self.timing.promise + self.timing.stagger;
        true
    }

    /// Moves to a newer term.
    pub(crate) fn see_term(&mut self, now: Duration, term: u64) {
        if term > self.hard.term {
            self.set_term(term, MemberId::default());
            self.become_follower(now, None);
        }
    }

    pub(crate) fn set_term(&mut self, term: u64, vote: MemberId) {
        self.hard = HardState { term, vote };
        self.ready.hard = Some(self.hard);
    }

    pub(crate) fn become_follower(&mut self, now: Duration, leader: Option<MemberId>) {
        self.role = Role::Follower;
        self.leader = leader;
        self.stand_at = self.stand_at.max(now + self.timing.stagger + self.pause());
    }

    /// A pause between attempts: `retry` to twice that.
    pub(crate) fn pause(&mut self) -> Duration {
        // xorshift64: only spreads pauses.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let spread = (self.random >> 33) as f64 / f64::from(1u32 << 31);
        self.timing.retry.mul_f64(1.0 + spread)
    }

    pub(crate) fn envelope(&self, to: MemberId, body: Body) -> Envelope {
        Envelope { from: self.id, to, term: self.hard.term, body }
    }

    pub(crate) fn send_after(&mut self, to: MemberId, body: Body) {
        let message = self.envelope(to, body);
        self.ready.after.push(message);
    }

    pub(crate) fn send_early(&mut self, to: MemberId, body: Body) {
        let message = self.envelope(to, body);
        self.ready.early.push(message);
    }

    /// Appends an entry; its place, or nothing if another member leads. It is committed when
    /// [`Raft::take_committed`] gives an entry of that place and the current term.
    pub fn propose(&mut self, data: bytes::Bytes) -> Option<u64> {
        self.is_leader().then(|| self.append_own(Payload::Data(data)))
    }

    /// Changes the members: at most one vote at a time.
    pub fn change_members(&mut self, next: Members) -> Result<u64, ChangeError> {
        let Role::Leader(lead) = &self.role else { return Err(ChangeError::NotLeader) };
        let (at, members) = self.log.members();
        if at > self.commit || self.commit < lead.first_index {
            return Err(ChangeError::Busy);
        }
        if !members.one_step_to(&next) {
            return Err(ChangeError::TooMuch);
        }
        Ok(self.append_own(Payload::Members(next)))
    }

    /// Only what may leave before anything is durable: members store an entry while we do.
    pub fn take_early(&mut self) -> Vec<Envelope> {
        std::mem::take(&mut self.ready.early)
    }

    /// What is to be done since the last time.
    pub fn take_ready(&mut self) -> Ready {
        if let Some(base) = self.log.trim_point(self.applied) {
            self.log.trim(base.clone());
            self.ready.base = Some(base);
        }
        std::mem::take(&mut self.ready)
    }

    /// All that [`Raft::take_ready`] gave is durable.
    pub fn persisted(&mut self) {
        self.durable = self.log.last_index();
        self.advance_commit();
    }

    /// How many elections this member has called since this was last called.
    pub fn take_campaigns(&mut self) -> u64 {
        std::mem::take(&mut self.campaigns)
    }

    /// Entries to apply, in order.
    pub fn take_committed(&self) -> Vec<Entry> {
        const BYTES_MAX: usize = 16 << 20;
        self.log.after(self.applied, self.commit, BYTES_MAX)
    }

    /// The state contains everything up to `index`.
    pub fn applied_to(&mut self, now: Duration, index: u64) {
        self.applied = self.applied.max(index);
        let (at, members) = self.log.members();
        if self.is_leader() && at <= self.commit && !members.is_voter(self.id) {
            // The change that took our vote is committed: others go on.
            self.become_follower(now, None);
        }
    }

    /// The state was copied: it holds everything up to `base`, and what lies behind it in part.
    /// [`Raft::set_whole`] tells when nothing is missing any more. Says whether stored entries
    /// after the base stay (else all are to be removed); `None` if the copy is of no use. Call it
    /// with nothing left to be made durable, and store `base` with the state.
    pub fn install(&mut self, base: Base) -> Option<bool> {
        if base.index < self.applied || (base.index == self.applied && self.whole) {
            return None;
        }
        self.applied = base.index;
        self.commit = self.commit.max(base.index);
        // Entries we have acknowledged may count for a majority: they are not ours to forget.
        let fits = self.log.term_at(base.index) == Some(base.term);
        match fits {
            true => self.log.trim(base),
            false => self.log.reset(base),
        }
        self.durable = self.log.last_index();
        self.end_untold = true;
        Some(fits)
    }

    /// Whether the state is whole; only then may this member lead.
    pub fn set_whole(&mut self, whole: bool) {
        self.whole = whole;
    }

    /// Other times from now on.
    pub fn set_timing(&mut self, timing: Timing) {
        self.timing = timing;
    }

    /// Gives up leading in favour of the voter that is furthest; says whom.
    pub fn hand_over(&mut self, now: Duration) -> Option<MemberId> {
        let Role::Leader(lead) = &self.role else { return None };
        let members = self.log.members().1;
        let recent = now.saturating_sub(self.timing.lease);
        let to = lead
            .others
            .iter()
            .filter(|(id, p)| members.is_voter(**id) && p.answered.is_some_and(|at| at >= recent))
            .max_by_key(|(id, p)| (p.matched, std::cmp::Reverse(**id)))
            .map(|(id, p)| (*id, p.matched));
        let (to, _) = to.filter(|(_, matched)| *matched >= self.commit)?;
        self.send_after(to, Body::Transfer);
        // From here on there is no lease of ours, whatever becomes of the message.
        self.become_follower(now, None);
        self.stand_at = now + self.timing.promise + self.timing.stagger;
        Some(to)
    }

    /// Gives up leading, even if there is nobody to hand over to.
    pub fn resign(&mut self, now: Duration) {
        if self.hand_over(now).is_none() && self.is_leader() {
            self.become_follower(now, None);
        }
    }

    /// A member has said that it will not answer any more: what it answered before says nothing of
    /// who is with us now. Its next answer does.
    pub fn forget_answers(&mut self, id: MemberId) {
        let Role::Leader(lead) = &mut self.role else { return };
        if let Some(progress) = lead.others.get_mut(&id) {
            progress.answered = None;
        }
    }

    /// Who we are.
    pub fn id(&self) -> MemberId {
        self.id
    }

    /// The newest term.
    pub fn term(&self) -> u64 {
        self.hard.term
    }

    /// Who leads, as far as is known.
    pub fn leader(&self) -> Option<MemberId> {
        self.leader
    }

    /// Whether we lead.
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader(_))
    }

    /// Whether we lead and the state holds all that was ever committed.
    pub fn leads_for_sure(&self) -> bool {
        matches!(&self.role, Role::Leader(lead) if self.applied >= lead.first_index)
    }

    /// Until when nobody else can have been elected; nothing unless we lead.
    pub fn lease_until(&self, now: Duration) -> Option<Duration> {
        let Role::Leader(lead) = &self.role else { return None };
        let time = lead.majority_time(self.log.members().1, self.id, now);
        (!time.is_zero()).then(|| time + self.timing.lease)
    }

    /// Whether the state may be read now as the newest there is.
    pub fn may_read(&self, now: Duration) -> bool {
        self.leads_for_sure() && self.lease_until(now).is_some_and(|until| now < until)
    }

    /// The members in force.
    pub fn members(&self) -> &Members {
        self.log.members().1
    }

    /// Whether a change of members is under way.
    pub fn is_changing(&self) -> bool {
        self.log.members().0 > self.commit
    }

    /// How far the log is committed, as far as is known here.
    pub fn commit(&self) -> u64 {
        self.commit
    }

    /// How far the state is.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// What stands for the entries not kept.
    pub fn base(&self) -> &Base {
        self.log.base()
    }

    /// The end of the log, and its term.
    pub fn last(&self) -> (u64, u64) {
        (self.log.last_index(), self.log.last_term())
    }

    /// A point from which a copy of the state can go on: all that is applied.
    pub fn applied_base(&self) -> Option<Base> {
        let term = self.log.term_at(self.applied)?;
        Some(Base { index: self.applied, term, members: self.log.members_at(self.applied).clone() })
    }

    /// How far a member's log agrees with ours, and when it last answered (only a leader knows).
    pub fn progress_of(&self, id: MemberId) -> Option<(u64, Option<Duration>)> {
        let Role::Leader(lead) = &self.role else { return None };
        lead.others.get(&id).map(|p| (p.matched, p.answered))
    }
}
