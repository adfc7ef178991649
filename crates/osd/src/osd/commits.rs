//! "It is durable here" for many writes in one message: what replicas tell a primary of ours.
//!
//! Ceph has one `MOSDRepOpReply` a write. A flush makes several writes durable at once, though, and each of
//! those messages is made, framed, summed and looked at for some fifty bytes that say something. A primary
//! says with each write that it takes them together ([`TOGETHER`]); Ceph's does not, and gets the messages
//! it knows. What one flush made durable goes in one message:
//!
//! ```text
//! u32 number | (u64 tid, spg_t pg at the primary, u32 map epoch, eversion_t last complete, i8 shard) ...
//! ```
//!
//! `tid` is the write's, `last complete` the replica's, `shard` its own. The rest is as `MOSDRepOpReply` has
//! it: the epoch tells a primary whether the answer is of its interval.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use env::sync::Notify;
use futures_util::FutureExt;
use messages::Message;
use msgr::{Connection, Incoming};
use smallvec::SmallVec;
use types::message::PRIORITY_HIGH;
use types::{EVersion, Epoch, MsgHeader, OsdId, PgShard, SpgId};

use super::Osd;
use super::dispatch::peer_osd;
use crate::pg::host::Host;
use crate::pg::replication::Submitted;

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

/// Writes of primaries that are not durable here, or not told of. Bound: what primaries have under
/// way.
#[derive(Default)]
pub(crate) struct ReplicaWrites {
    /// In the order in which the store got them, which is the order in which it makes them durable
    /// (`ObjectStore`).
    submitted: RefCell<VecDeque<Submitted>>,
    came: Notify,
    /// Durable ones, by primary.
    to_tell: RefCell<SmallVec<[(OsdId, Vec<Commit>); 2]>>,
}

impl ReplicaWrites {
    /// The OSD stops: nothing is told any more.
    pub(super) fn stop(&self) {
        self.submitted.borrow_mut().clear();
        self.came.notify_all();
    }

    /// Has a write told of when it is durable.
    pub(super) fn push(&self, write: Submitted) {
        let mut submitted = self.submitted.borrow_mut();
        submitted.push_back(write);
        if submitted.len() == 1 {
            self.came.notify_all();
        }
    }

    /// Has a primary told of a durable write, with what else the same flush has made durable.
    pub(super) fn tell_together(&self, primary: OsdId, commit: Commit) {
        let mut to_tell = self.to_tell.borrow_mut();
        match to_tell.iter_mut().find(|(osd, _)| *osd == primary) {
            Some((_, commits)) => commits.push(commit),
            None => to_tell.push((primary, vec![commit])),
        }
    }
}

/// Tells primaries of their writes as they become durable, until the OSD stops. One task for all:
/// it waits for the oldest, and finds those durable that the same flush has made so.
pub(super) async fn run(osd: Rc<Osd>) {
    let writes = &osd.replica_writes;
    while !osd.is_stopping() {
        let oldest = writes.submitted.borrow_mut().pop_front();
        let Some(mut write) = oldest else {
            osd.tell_commits();
            let came = || !writes.submitted.borrow().is_empty() || osd.is_stopping();
            writes.came.until(came).await;
            continue;
        };
        let early = env::mutant("ack-early").then_some(Ok(()));
        let result = match early.or_else(|| write.committed().now_or_never()) {
            Some(result) => result,
            None => {
                osd.tell_commits();
                write.committed().await
            }
        };
        write.tell(result);
    }
}

impl Osd {
    fn tell_commits(&self) {
        for (primary, commits) in self.replica_writes.to_tell.take() {
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
