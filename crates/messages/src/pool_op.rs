//! Pool and snapshot operations that librados sends as messages of their own (49, 48).

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Uuid;

use crate::PaxosHeader;

/// `op` of [`MPoolOp`].
#[allow(non_snake_case, reason = "a list of numbers")]
pub mod PoolOpCode {
    /// Create a pool named `name`.
    pub const CREATE: u32 = 0x01;
    /// Delete the pool.
    pub const DELETE: u32 = 0x02;
    /// Change the owner (never used now).
    pub const AUID_CHANGE: u32 = 0x03;
    /// Create a pool snapshot named `name`.
    pub const CREATE_SNAP: u32 = 0x11;
    /// Delete the pool snapshot `name`.
    pub const DELETE_SNAP: u32 = 0x12;
    /// A new id for a snapshot that the client manages.
    pub const CREATE_UNMANAGED_SNAP: u32 = 0x21;
    /// Such an id is no longer used.
    pub const DELETE_UNMANAGED_SNAP: u32 = 0x22;
}

/// Type 49.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MPoolOp {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// The pool, 0 for a new one.
    pub pool: u32,
    /// See [`PoolOpCode`].
    pub op: u32,
    /// Always 0.
    pub auid: u64,
    /// The snapshot.
    pub snapid: u64,
    /// Name of the pool or snapshot: what bytes the client likes.
    pub name: BString,
    /// Always 0.
    pub pad: u8,
    /// CRUSH rule of a new pool, -1 for the default.
    pub crush_rule: i16,
}
message!(MPoolOp, 49, 4 / 2);

/// Type 48.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
pub struct MPoolOpReply {
    /// See [`PaxosHeader`].
    pub paxos: PaxosHeader,
    /// The cluster.
    pub fsid: Uuid,
    /// 0 or a negative errno.
    pub reply_code: i32,
    /// OSD map that shows the change.
    pub epoch: u32,
    /// A new snapshot id, encoded.
    pub response_data: Option<Bytes>,
}
message!(MPoolOpReply, 48, 1 / 1);
