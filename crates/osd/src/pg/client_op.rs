//! A client's op on its way through a PG, and the reply to it.

use std::rc::Rc;

use bstr::BString;
use messages::{MOSDOpReply, Message};
use msgr::Incoming;
use types::osd::ops::message_flags;
use types::{Epoch, PgId};

use crate::ops::{Reply, Request};
use crate::osd::session::Session;
use crate::osd::tracker::TrackedOp;

/// An op that a client waits for. In a box from its beginning on: it is handed from one place to the
/// next a dozen times, and waits in several.
pub struct ClientOp {
    /// Who sent it.
    pub session: Rc<Session>,
    /// What it asks.
    pub request: Rc<Request>,
    /// The client's map.
    pub epoch: Epoch,
    /// The message's number.
    pub tid: u64,
    /// The client's count of attempts.
    pub retry_attempt: i32,
    /// The PG as the client named it.
    pub pgid: PgId,
    /// The object as the client named it.
    pub object: BString,
    /// Order of arrival at this OSD.
    pub arrival: u64,
    /// Its history.
    pub tracked: Rc<TrackedOp>,
    /// Its share of the throttles.
    pub incoming: Incoming,
}

impl ClientOp {
    /// Sends the answer.
    pub fn reply(self: Box<Self>, epoch: Epoch, reply: Reply) {
        let (bad_replay_version, replay_version, user_version) = reply.versions.on_wire();
        let mut flags = u64::from(self.request.flags);
        if reply.executed {
            flags &= !u64::from(message_flags::ONNVRAM);
            flags |= u64::from(message_flags::ACK | message_flags::ONDISK);
        }
        let message = MOSDOpReply {
            object: self.object,
            pgid: self.pgid,
            flags,
            result: reply.result,
            bad_replay_version,
            epoch,
            ops: reply.ops,
            retry_attempt: self.retry_attempt,
            replay_version,
            user_version,
        };
        self.tracked.mark("done");
        self.session.con.send(message.encode().with_tid(self.tid));
    }
}
