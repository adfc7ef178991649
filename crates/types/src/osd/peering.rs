//! What members of a PG tell and ask each other while they agree on its history.

use denc::{Denc, Error, Reader, Writer};

use super::past_intervals::PastIntervals;
use super::pg_history::PgHistory;
use super::pg_info::PgInfo;
use crate::ids::Epoch;
use crate::pg::{NO_SHARD, PgId};
use crate::time::Span;
use crate::version::EVersion;

/// A member's state. Wire: pg_notify_t v3/c2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgNotify {
    /// Epoch of the query that this answers.
    pub query_epoch: Epoch,
    /// Epoch when sent.
    pub epoch_sent: Epoch,
    /// The member's state.
    pub info: PgInfo,
    /// The receiver's shard.
    pub to: i8,
    /// The sender's shard.
    pub from: i8,
    /// The sender's past intervals.
    pub past_intervals: PastIntervals,
}

impl Default for PgNotify {
    fn default() -> PgNotify {
        PgNotify {
            query_epoch: 0,
            epoch_sent: 0,
            info: PgInfo::default(),
            to: NO_SHARD,
            from: NO_SHARD,
            past_intervals: PastIntervals::default(),
        }
    }
}

impl Denc for PgNotify {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            w.u32(self.query_epoch);
            w.u32(self.epoch_sent);
            w.put(&self.info);
            w.i8(self.to);
            w.i8(self.from);
            w.put(&self.past_intervals);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgNotify, Error> {
        r.envelope("PgNotify", 3, 3, |r, _| {
            Ok(PgNotify {
                query_epoch: r.u32()?,
                epoch_sent: r.u32()?,
                info: r.get()?,
                to: r.i8()?,
                from: r.i8()?,
                past_intervals: r.get()?,
            })
        })
    }
}

/// What a query asks for. Wire: s32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PgQueryType {
    /// The info.
    Info,
    /// The log from `since` on, and what is missing.
    Log,
    /// The last part of the log, and what is missing.
    Missing,
    /// The whole log, and what is missing.
    FullLog,
}

impl PgQueryType {
    /// The name as Ceph prints it.
    pub fn name(self) -> &'static str {
        match self {
            PgQueryType::Info => "info",
            PgQueryType::Log => "log",
            PgQueryType::Missing => "missing",
            PgQueryType::FullLog => "fulllog",
        }
    }
}

impl Denc for PgQueryType {
    fn encode(&self, w: &mut Writer) {
        w.i32(match self {
            PgQueryType::Info => 0,
            PgQueryType::Log => 1,
            PgQueryType::Missing => 4,
            PgQueryType::FullLog => 5,
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgQueryType, Error> {
        match r.i32()? {
            0 => Ok(PgQueryType::Info),
            1 => Ok(PgQueryType::Log),
            4 => Ok(PgQueryType::Missing),
            5 => Ok(PgQueryType::FullLog),
            other => Err(Error::Invalid { what: "PG query type", value: other as u32 as u64 }),
        }
    }
}

/// Wire: pg_query_t v3/c3.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 3, compat = 3, oldest = 3)]
pub struct PgQuery {
    /// What it asks for.
    pub kind: PgQueryType,
    /// [`PgQueryType::Log`]: from where.
    pub since: EVersion,
    /// The history as the asker knows it.
    pub history: PgHistory,
    /// Epoch when sent.
    pub epoch_sent: Epoch,
    /// The receiver's shard.
    pub to: i8,
    /// The sender's shard.
    pub from: i8,
}

/// What a primary tells its replicas of read leases; points are of the receiver's clock as the
/// sender knows it. Wire: pg_lease_t v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PgLease {
    /// The PG is readable until then.
    pub readable_until: Span,
    /// No one serves reads after then.
    pub readable_until_ub: Span,
    /// Length of a lease.
    pub interval: Span,
}

/// Wire: pg_lease_ack_t v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PgLeaseAck {
    /// The bound that is acknowledged.
    pub readable_until_ub: Span,
}

/// Wire: pg_create_t v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PgCreate {
    /// Epoch of creation.
    pub created: Epoch,
    /// The PG to split from.
    pub parent: PgId,
    /// How.
    pub split_bits: i32,
}
