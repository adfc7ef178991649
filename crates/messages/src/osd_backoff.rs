//! "Hold these ops" (61), between an OSD and a client.

use denc::{Denc, Error, Reader, Writer};
use types::{Epoch, HObject, SpgId};

/// What a backoff message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackoffOp {
    /// OSD to client: hold ops to the range.
    Block,
    /// Client to OSD: held.
    AckBlock,
    /// OSD to client: resend them.
    Unblock,
}

impl Denc for BackoffOp {
    fn encode(&self, w: &mut Writer) {
        w.u8(match self {
            BackoffOp::Block => 1,
            BackoffOp::AckBlock => 2,
            BackoffOp::Unblock => 3,
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        match r.u8()? {
            1 => Ok(BackoffOp::Block),
            2 => Ok(BackoffOp::AckBlock),
            3 => Ok(BackoffOp::Unblock),
            other => Err(Error::Invalid { what: "backoff op", value: other.into() }),
        }
    }
}

/// Type 61.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub struct MOSDBackoff {
    /// The PG.
    pub pgid: SpgId,
    /// The sender's map.
    pub map_epoch: Epoch,
    /// What to do.
    pub op: BackoffOp,
    /// Number of this backoff in the session.
    pub id: u64,
    /// First object held.
    pub begin: HObject,
    /// First object not held.
    pub end: HObject,
}
message!(MOSDBackoff, 61, 1 / 1);
