//! What an operation waits for that nobody answers, for a client's user.

use std::fmt;
use std::time::Duration;

use types::{OsdId, SpgId};

use super::{Objecter, Op};

/// The operation that has been waiting longest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// How long.
    pub time: Duration,
    /// For what.
    pub reason: WaitReason,
}

/// What it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReason {
    /// A map that has its pool.
    Pool,
    /// An OSD that serves the placement group.
    NoOsd(SpgId),
    /// The cluster or the pool is full or paused.
    Paused,
    /// An OSD's answer.
    Answer(SpgId, OsdId),
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WaitReason::Pool => f.write_str("its pool is not in the map"),
            WaitReason::NoOsd(spg) => write!(f, "no OSD serves placement group {}", spg.pgid),
            WaitReason::Paused => f.write_str("the cluster or the pool is full or paused"),
            WaitReason::Answer(spg, osd) => {
                write!(f, "osd.{osd} has not answered for placement group {}", spg.pgid)
            }
        }
    }
}

impl Op {
    fn waits_for(&self) -> WaitReason {
        match &self.target {
            None => WaitReason::Pool,
            Some(target) if target.paused => WaitReason::Paused,
            Some(target) if target.osd < 0 => WaitReason::NoOsd(target.spg),
            Some(target) => WaitReason::Answer(target.spg, target.osd),
        }
    }
}

impl Objecter {
    /// The operation that has been waiting longest, those that keep watches aside.
    pub(crate) fn longest_wait(&self) -> Option<Waiting> {
        let ops = self.ops.borrow();
        // The first was submitted first.
        let op = ops.values().find(|op| !op.request.base.keeps_watch)?;
        let time = self.env.now().saturating_sub(op.submitted);
        Some(Waiting { time, reason: op.waits_for() })
    }
}
