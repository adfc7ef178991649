//! From the leader's log to the others'.
//!
//! One message with entries at a time is under way to each member; signs of life repeat it until
//! it is answered. An entry counts as committed when a majority of the voters has it durably and it
//! is of the leader's own term; what earlier terms left is committed with it.

use std::time::Duration;

use crate::entry::{Entry, MemberId, Payload};
use crate::message::Body;
use crate::raft::{Raft, Role};

/// Bytes of entries in one message, about.
const APPEND_BYTES_MAX: usize = 4 << 20;

fn stamp_of(now: Duration) -> u64 {
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

impl Raft {
    /// Appends an entry of our own as leader; gives its place.
    pub(crate) fn append_own(&mut self, payload: Payload) -> u64 {
        let index = self.log.last_index() + 1;
        let entry = Entry { index, term: self.hard.term, payload };
        self.log.push(entry.clone());
        self.ready.append.push(entry);
        if let Role::Leader(lead) = &mut self.role {
            lead.follow_members(self.log.members().1, self.id, index - 1);
        }
        index
    }

    /// Sends each member what it lacks or has not been told, as far as nothing is under way; call
    /// after proposals, and when something was committed.
    pub fn replicate(&mut self, now: Duration) {
        let (last, commit) = (self.log.last_index(), self.commit);
        let Role::Leader(lead) = &self.role else { return };
        let due: Vec<MemberId> = lead
            .others
            .iter()
            .filter(|(_, p)| !p.awaiting && !p.needs_sync && (p.next <= last || p.told < commit))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            self.send_append(now, id);
        }
    }

    /// A sign of life for everybody.
    pub(crate) fn beat(&mut self, now: Duration) {
        let beat = self.timing.beat;
        let Role::Leader(lead) = &mut self.role else { return };
        lead.beat_at = now + beat;
        let others: Vec<MemberId> = lead.others.keys().copied().collect();
        for id in others {
            self.send_append(now, id);
        }
    }

    fn send_append(&mut self, now: Duration, to: MemberId) {
        let (base, last) = (self.log.base().index, self.log.last_index());
        let Role::Leader(lead) = &mut self.role else { return };
        let Some(progress) = lead.others.get_mut(&to) else { return };
        let prev_index = progress.next - 1;
        progress.awaiting = true;
        progress.told = self.commit;
        progress.needs_sync = prev_index < base;
        let stamp = stamp_of(now);
        if progress.needs_sync {
            return self.send_early(to, Body::NeedSync { stamp });
        }
        let body = Body::Append {
            prev_index,
            prev_term: self.log.term_at(prev_index).unwrap_or(0),
            commit: self.commit,
            stamp,
            entries: self.log.after(prev_index, last, APPEND_BYTES_MAX),
        };
        self.send_early(to, body);
    }

    pub(crate) fn on_append(
        &mut self,
        from: MemberId,
        prev: (u64, u64),
        commit: u64,
        stamp: u64,
        entries: Vec<Entry>,
    ) {
        let (prev_index, prev_term) = prev;
        let base = self.log.base().index;
        // Up to the base everything is committed, and so the same everywhere.
        let agrees = prev_index < base || self.log.term_at(prev_index) == Some(prev_term);
        if !agrees {
            let last = self.log.last_index();
            let index = match prev_index > last {
                true => last,
                false => self.log.start_of_term_at(prev_index) - 1,
            };
            return self.send_after(from, Body::AppendReply { ok: false, index, stamp });
        }
        let mut agreed = prev_index;
        for entry in entries {
            if entry.index != agreed + 1 {
                break;
            }
            agreed = entry.index;
            if entry.index <= base || self.log.term_at(entry.index) == Some(entry.term) {
                continue;
            }
            if entry.index <= self.log.last_index() {
                self.truncate(entry.index - 1);
            }
            if entry.index != self.log.last_index() + 1 {
                // We are behind the base of what was sent: ask from our end on.
                agreed = self.log.last_index();
                break;
            }
            self.log.push(entry.clone());
            self.ready.append.push(entry);
        }
        // Ours may go on behind what is known to agree: that part is not committed by this.
        self.commit = self.commit.max(commit.min(agreed));
        self.send_after(from, Body::AppendReply { ok: true, index: agreed, stamp });
    }

    fn truncate(&mut self, index: u64) {
        debug_assert!(index >= self.commit, "a committed entry is taken back");
        self.log.truncate(index);
        self.durable = self.durable.min(index);
        self.ready.append.retain(|entry| entry.index <= index);
        let before = self.ready.truncate.unwrap_or(u64::MAX);
        self.ready.truncate = Some(before.min(index));
    }

    pub(crate) fn on_append_reply(
        &mut self,
        now: Duration,
        from: MemberId,
        ok: bool,
        index: u64,
        stamp: u64,
    ) {
        let (base, last) = (self.log.base().index, self.log.last_index());
        let Role::Leader(lead) = &mut self.role else { return };
        let Some(progress) = lead.others.get_mut(&from) else { return };
        // A stamp of ours from another term of ours is older than this one began: no harm.
        let sent = Duration::from_nanos(stamp).min(now);
        if sent >= lead.since {
            progress.answered = Some(progress.answered.map_or(sent, |at| at.max(sent)));
        }
        progress.awaiting = false;
        if ok {
            progress.matched = progress.matched.max(index.min(last));
            progress.next = progress.next.max(progress.matched + 1);
            progress.needs_sync = false;
        } else {
            // One whose store is an older copy has less than it once acknowledged, and gets it again.
            progress.matched = progress.matched.min(index);
            progress.next = (index + 1).min(last + 1);
        }
        let more = progress.next <= last;
        let synced = progress.needs_sync && progress.next > base;
        let (retry, waits) = (!ok && !progress.needs_sync, progress.needs_sync && !synced);
        self.advance_commit();
        if (more || retry) && !waits {
            self.send_append(now, from);
        }
    }

    /// Commits what a majority has.
    pub(crate) fn advance_commit(&mut self) {
        let Role::Leader(lead) = &self.role else { return };
        let index = lead.majority_index(self.log.members().1, self.id, self.durable);
        if index > self.commit && self.log.term_at(index) == Some(self.hard.term) {
            self.commit = index;
        }
    }
}
