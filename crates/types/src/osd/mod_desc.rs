//! How a log entry can be undone (erasure coded pools).

use std::collections::BTreeMap;
use std::collections::BTreeSet;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

use crate::snap::SnapId;

/// One step of undoing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RollbackOp {
    /// Truncate to this size.
    Append(u64),
    /// Put these attributes back; `None` removes.
    SetAttrs(BTreeMap<BString, Option<Bytes>>),
    /// Bring back the object kept under this generation.
    Delete(u64),
    /// Remove the object.
    Create,
    /// Put the clone's snapshots back.
    UpdateSnaps(BTreeSet<SnapId>),
    /// As `Delete`, if there is one.
    TryDelete(u64),
    /// Put these ranges back from the object kept under a generation.
    RollbackExtents(u64, Vec<(u64, u64)>),
}

/// Wire: ObjectModDesc v1 or v2, both versions as the steps need.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectModDesc {
    /// Whether the entry can be undone.
    pub can_local_rollback: bool,
    /// Whether no more steps are needed.
    pub rollback_info_completed: bool,
    /// The steps, encoded.
    pub ops: Bytes,
    /// Version a reader must know: 2 with `RollbackExtents`.
    pub max_required_version: u8,
}

impl Default for ObjectModDesc {
    fn default() -> ObjectModDesc {
        ObjectModDesc {
            can_local_rollback: true,
            rollback_info_completed: false,
            ops: Bytes::new(),
            max_required_version: 1,
        }
    }
}

impl ObjectModDesc {
    /// An entry that cannot be undone, as all of replicated pools.
    pub fn unrollbackable() -> ObjectModDesc {
        ObjectModDesc { can_local_rollback: false, ..ObjectModDesc::default() }
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.can_local_rollback && self.ops.is_empty()
    }

    /// Adds a step, unless the entry cannot be undone or is complete; whether it was added.
    pub fn push(&mut self, op: &RollbackOp) -> bool {
        if !self.can_local_rollback || self.rollback_info_completed {
            return false;
        }
        let version = if matches!(op, RollbackOp::RollbackExtents(..)) { 2 } else { 1 };
        self.max_required_version = self.max_required_version.max(version);
        let mut w = Writer::new();
        w.raw(&self.ops);
        w.envelope(version, version, |w| match op {
            RollbackOp::Append(size) => {
                w.u8(1);
                w.u64(*size);
            }
            RollbackOp::SetAttrs(attrs) => {
                w.u8(2);
                w.put(attrs);
            }
            RollbackOp::Delete(generation) => {
                w.u8(3);
                w.u64(*generation);
            }
            RollbackOp::Create => w.u8(4),
            RollbackOp::UpdateSnaps(snaps) => {
                w.u8(5);
                w.put(snaps);
            }
            RollbackOp::TryDelete(generation) => {
                w.u8(6);
                w.u64(*generation);
            }
            RollbackOp::RollbackExtents(generation, extents) => {
                w.u8(7);
                w.u64(*generation);
                w.put(extents);
            }
        });
        self.ops = w.into_bytes();
        self.rollback_info_completed =
            matches!(op, RollbackOp::Delete(_) | RollbackOp::TryDelete(_) | RollbackOp::Create);
        true
    }

    /// The steps, in the order they were added.
    pub fn steps(&self) -> Result<Vec<RollbackOp>, Error> {
        let mut r = Reader::new(&self.ops);
        let mut steps = Vec::new();
        while r.remaining() > 0 {
            steps.push(r.envelope("RollbackOp", 2, 1, |r, _| {
                Ok(match r.u8()? {
                    1 => RollbackOp::Append(r.u64()?),
                    2 => RollbackOp::SetAttrs(r.get()?),
                    3 => RollbackOp::Delete(r.u64()?),
                    4 => RollbackOp::Create,
                    5 => RollbackOp::UpdateSnaps(r.get()?),
                    6 => RollbackOp::TryDelete(r.u64()?),
                    7 => RollbackOp::RollbackExtents(r.u64()?, r.get()?),
                    other => {
                        let value = other.into();
                        return Err(Error::Invalid { what: "rollback step", value });
                    }
                })
            })?);
        }
        Ok(steps)
    }
}

impl Denc for ObjectModDesc {
    fn encode(&self, w: &mut Writer) {
        w.envelope(self.max_required_version, self.max_required_version, |w| {
            w.bool(self.can_local_rollback);
            w.bool(self.rollback_info_completed);
            w.blob(&self.ops);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<ObjectModDesc, Error> {
        r.envelope("ObjectModDesc", 2, 1, |r, version| {
            Ok(ObjectModDesc {
                max_required_version: version.min(2),
                can_local_rollback: r.bool()?,
                rollback_info_completed: r.bool()?,
                ops: r.blob()?,
            })
        })
    }
}
