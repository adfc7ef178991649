//! What a leader knows of the other members.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::entry::{MemberId, Members};

/// One member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// Its log agrees with ours up to here, durably.
    pub(crate) matched: u64,
    /// The next entry to send it.
    pub(crate) next: u64,
    /// How far it was told that the log is committed.
    pub(crate) told: u64,
    /// Whether an answer is awaited before more is sent.
    pub(crate) awaiting: bool,
    /// When the newest of our messages left that it has answered.
    pub(crate) answered: Option<Duration>,
    /// What it lacks is not in the log any more.
    pub(crate) needs_sync: bool,
}

/// A leader's own state.
#[derive(Debug)]
pub(crate) struct Lead {
    /// The others.
    pub(crate) others: BTreeMap<MemberId, Progress>,
    /// Place of the first entry of this term: before it is applied nothing may be read.
    pub(crate) first_index: u64,
    /// Since when.
    pub(crate) since: Duration,
    /// When the next sign of life is due.
    pub(crate) beat_at: Duration,
}

impl Lead {
    /// Adds who is new among the members and forgets who is gone.
    pub(crate) fn follow_members(&mut self, members: &Members, own: MemberId, last_index: u64) {
        self.others.retain(|id, _| members.0.contains_key(id));
        for id in members.0.keys().filter(|id| **id != own) {
            self.others.entry(*id).or_insert(Progress {
                matched: 0,
                next: last_index + 1,
                told: 0,
                awaiting: false,
                answered: None,
                needs_sync: false,
            });
        }
    }

    /// The highest place that a majority of the voters has durably; `durable` is our own.
    pub(crate) fn majority_index(&self, members: &Members, own: MemberId, durable: u64) -> u64 {
        let of = |id: MemberId| {
            if id == own { durable } else { self.others.get(&id).map_or(0, |p| p.matched) }
        };
        let mut places: Vec<u64> = members.voters().map(of).collect();
        places.sort_unstable_by(|a, b| b.cmp(a));
        places.get(members.majority() - 1).copied().unwrap_or(0)
    }

    /// The latest time at which a majority of the voters (we among them) still answered to us.
    pub(crate) fn majority_time(
        &self,
        members: &Members,
        own: MemberId,
        now: Duration,
    ) -> Duration {
        let of = |id: MemberId| {
            if id == own {
                return now;
            }
            self.others.get(&id).and_then(|p| p.answered).unwrap_or(Duration::ZERO)
        };
        let mut times: Vec<Duration> = members.voters().map(of).collect();
        times.sort_unstable_by(|a, b| b.cmp(a));
        times.get(members.majority() - 1).copied().unwrap_or(Duration::ZERO)
    }
}
