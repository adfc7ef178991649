//! "It is durable here" for many writes in one message: what replicas tell a primary of ours.
//!
//! Ceph has one `MOSDRepOpReply` a write. A flush makes several writes durable at once, though, and each of
//! those messages is made, framed, summed and looked at for some fifty bytes that say something. A primary
//! says with each write that it takes them together ([`TOGETHER`]); Ceph's does not, and gets the messages
//! it knows. What became durable in one turn of the reactor goes in one message:
//!
//! ```text
//! u32 number | (u64 tid, spg_t pg at the primary, u32 map epoch, eversion_t last complete, i8 shard) ...
//! ```
//!
//! `tid` is the write's, `last complete` the replica's, `shard` its own. The rest is as `MOSDRepOpReply` has
//! it: the epoch tells a primary whether the answer is of its interval.

use std::cell::RefCell;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use messages::Message;
use msgr::{Connection, Incoming};
use smallvec::SmallVec;
use types::message::PRIORITY_HIGH;
use types::{EVersion, Epoch, MsgHeader, OsdId, PgShard, SpgId};

use super::Osd;
use super::dispatch::peer_osd;
use crate::pg::host::Host;

/// In the `acks_wanted` of `MOSDRepOp`, which Ceph's replicas do not look at: who sends it takes
/// [`Commits`].
pub(crate) const TOGETHER: u8 = 0x80;

/// One write that is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
pub struct Commit {
    /// The write.
    pub(crate) tid: u64,
    /// The PG, with the primary's shard.
    pub(crate) pgid: SpgId,
    /// The replica's map.
    pub(crate) map_epoch: Epoch,
    /// The replica has everything up to this.
    pub(crate) last_complete: EVersion,
    /// The replica's shard.
    pub(crate) shard: i8,
}

/// Type 0x4c50, outside the range Ceph uses.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Commits(Vec<Commit>);

/// The type of the message.
pub(super) const TYPE: u16 = Commits::TYPE;

impl Message for Commits {
    const TYPE: u16 = 0x4c50;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = PRIORITY_HIGH;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.0);
    }

    fn decode_front(r: &mut Reader<'_>, _: &MsgHeader, _: &Bytes) -> Result<Self, Error> {
        r.get().map(Commits)
    }
}

/// What is to be told at the end of this turn, by primary. Bound: the writes under way.
#[derive(Default)]
pub(crate) struct ToTell(RefCell<SmallVec<[(OsdId, Vec<Commit>); 2]>>);

impl Osd {
    /// Tells a primary of a durable write, with what else becomes durable in this turn.
    pub(super) fn tell_together(&self, primary: OsdId, commit: Commit) {
        let mut to_tell = self.commits_to_tell.0.borrow_mut();
        if to_tell.is_empty() {
            // Behind all tasks that the same flush has woken.
            let osd = self.rc();
            self.env.go(async move { osd.tell_commits() });
        }
        match to_tell.iter_mut().find(|(osd, _)| *osd == primary) {
            Some((_, commits)) => commits.push(commit),
            None => to_tell.push((primary, vec![commit])),
        }
    }

    fn tell_commits(&self) {
        for (primary, commits) in self.commits_to_tell.0.take() {
            self.send_osd(primary, Commits(commits).encode());
        }
    }

    /// A replica has writes durable.
    pub(super) fn on_commits(&self, con: &Connection, incoming: Incoming) -> Result<(), Error> {
        let Commits(commits) = Commits::decode(&incoming.message)?;
        let epoch = commits.iter().map(|c| c.map_epoch).max().unwrap_or(0);
        if self.too_new(epoch) {
            self.park(epoch, con, incoming);
            return Ok(());
        }
        let from = peer_osd(con);
        self.note_peer_epoch(from, epoch);
        for commit in commits {
            let from = PgShard::new(from, commit.shard);
            self.with_pg(commit.pgid, move |pg| {
                if !pg.is_splitting() {
                    pg.on_replica_commit(from, &commit);
                }
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::PgId;

    #[test]
    fn many_come_as_they_went() {
        let commit = |n: u64| Commit {
            tid: n,
            pgid: SpgId { pgid: PgId::new(3, n as u32), shard: -1 },
            map_epoch: 17,
            last_complete: EVersion::new(16, n + 1),
            shard: -1,
        };
        let sent = Commits((0..40).map(commit).collect());
        let raw = sent.encode();
        assert_eq!(raw.front.len(), 4 + 40 * (8 + 24 + 4 + 12 + 1));
        assert_eq!(Commits::decode(&raw), Ok(sent));
        // Whatever a stranger sends is an error, not a panic.
        for len in 0..raw.front.len() {
            let cut = types::RawMessage { front: raw.front.slice(..len), ..raw.clone() };
            assert!(Commits::decode(&cut).is_err(), "{len}");
        }
    }
}
