//! Renewals inside an open session: MAuth and its reply (docs: cephx, section on renewal).

use bytes::Bytes;
use denc::Denc;

use crate::PaxosHeader;

/// Type 17: a request of the authentication protocol.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MAuth {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// 1 none, 2 cephx.
    pub protocol: u32,
    /// The protocol's request.
    pub payload: Bytes,
    /// Epoch of the sender's monmap.
    pub monmap_epoch: u32,
}
message!(MAuth, 17, 1 / 1);

/// Type 18: its answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MAuthReply {
    /// 1 none, 2 cephx.
    pub protocol: u32,
    /// 0 or a negative errno.
    pub result: i32,
    /// The client's number.
    pub global_id: u64,
    /// The protocol's answer.
    pub payload: Bytes,
    /// Why it failed.
    pub message: String,
}
message!(MAuthReply, 18, 1 / 1);
