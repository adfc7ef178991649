//! The peering core's words as Ceph's messages, both ways.

use messages::{
    MOSDPGInfo2, MOSDPGLease, MOSDPGLeaseAck, MOSDPGLog, MOSDPGNotify, MOSDPGNotify2, MOSDPGQuery2,
    MOSDPGRemove, Message,
};
use types::osd::{PgLease, PgLeaseAck, PgNotify, PgQuery, PgQueryType};
use types::time::Span;
use types::{EVersion, Epoch, PgId, PgShard, RawMessage, SpgId};

use super::peering::{Lease, LeaseAck, LogMessage, PeerMessage, Query};

fn lease_out(lease: Lease) -> PgLease {
    PgLease {
        readable_until: Span::from_duration(lease.readable_until),
        readable_until_ub: Span::from_duration(lease.readable_until_ub),
        interval: Span::from_duration(lease.interval),
    }
}

fn lease_in(lease: PgLease) -> Lease {
    Lease {
        readable_until: lease.readable_until.to_duration(),
        readable_until_ub: lease.readable_until_ub.to_duration(),
        interval: lease.interval.to_duration(),
        readable_until_here: None,
    }
}

fn ack_out(ack: LeaseAck) -> PgLeaseAck {
    PgLeaseAck { readable_until_ub: Span::from_duration(ack.readable_until_ub) }
}

fn ack_in(ack: PgLeaseAck) -> LeaseAck {
    LeaseAck { readable_until_ub: ack.readable_until_ub.to_duration() }
}

/// The message of one member of a PG for another. `epoch` is the sender's, `query_epoch` that of
/// the query answered.
pub fn encode(
    pgid: PgId,
    from: PgShard,
    to: PgShard,
    epoch: Epoch,
    query_epoch: Epoch,
    message: PeerMessage,
) -> RawMessage {
    let spgid = SpgId { pgid, shard: to.shard };
    match message {
        PeerMessage::Query(query, history) => {
            let (kind, since) = match query {
                Query::Info => (PgQueryType::Info, EVersion::ZERO),
                Query::Log(since) => (PgQueryType::Log, since),
                Query::FullLog => (PgQueryType::FullLog, EVersion::ZERO),
            };
            let query = PgQuery {
                kind,
                since,
                history: *history,
                epoch_sent: epoch,
                to: to.shard,
                from: from.shard,
            };
            MOSDPGQuery2 { spgid, query }.encode()
        }
        PeerMessage::Notify(info, past_intervals) => {
            let notify = PgNotify {
                query_epoch,
                epoch_sent: epoch,
                info: *info,
                to: to.shard,
                from: from.shard,
                past_intervals: *past_intervals,
            };
            MOSDPGNotify2 { spgid, notify }.encode()
        }
        PeerMessage::Info(info, lease, ack) => MOSDPGInfo2 {
            spgid,
            epoch_sent: epoch,
            min_epoch: query_epoch,
            info: *info,
            lease: lease.map(lease_out),
            lease_ack: ack.map(ack_out),
        }
        .encode(),
        PeerMessage::Log(log) => {
            let LogMessage { info, log, missing, past_intervals, lease } = *log;
            MOSDPGLog {
                epoch,
                query_epoch,
                to: to.shard,
                from: from.shard,
                info,
                log,
                missing,
                past_intervals,
                lease: lease.map(lease_out),
            }
            .encode()
        }
        PeerMessage::Lease(lease) => MOSDPGLease { epoch, spgid, lease: lease_out(lease) }.encode(),
        PeerMessage::LeaseAck(ack) => {
            MOSDPGLeaseAck { epoch, spgid, lease_ack: ack_out(ack) }.encode()
        }
        PeerMessage::Remove => MOSDPGRemove { epoch, pgs: vec![spgid] }.encode(),
    }
}

/// A peering message and the PG it is for.
#[derive(Debug)]
pub struct Decoded {
    /// The PG, with the receiver's shard.
    pub spgid: SpgId,
    /// The sender's shard, where the message says it.
    pub from: Option<i8>,
    /// The sender's epoch.
    pub epoch: Epoch,
    /// The epoch of the query it answers.
    pub query_epoch: Epoch,
    /// What it says.
    pub message: PeerMessage,
}

/// Whether a message type is one of peering.
pub fn is_peering(kind: u16) -> bool {
    matches!(
        kind,
        MOSDPGQuery2::TYPE
            | MOSDPGNotify2::TYPE
            | MOSDPGNotify::TYPE
            | MOSDPGInfo2::TYPE
            | MOSDPGLog::TYPE
            | MOSDPGLease::TYPE
            | MOSDPGLeaseAck::TYPE
            | MOSDPGRemove::TYPE
    )
}

fn notified(spgid: SpgId, notify: PgNotify) -> Decoded {
    let message = PeerMessage::Notify(Box::new(notify.info), Box::new(notify.past_intervals));
    let (epoch, query_epoch) = (notify.epoch_sent, notify.query_epoch);
    Decoded { spgid, from: Some(notify.from), epoch, query_epoch, message }
}

/// Reads a peering message; some name several PGs.
pub fn decode(raw: &RawMessage) -> Result<Vec<Decoded>, denc::Error> {
    let one = |spgid, from, epoch, query_epoch, message| {
        vec![Decoded { spgid, from, epoch, query_epoch, message }]
    };
    Ok(match raw.header.kind {
        MOSDPGQuery2::TYPE => {
            let m = MOSDPGQuery2::decode(raw)?;
            let query = match m.query.kind {
                PgQueryType::Info => Query::Info,
                PgQueryType::Log | PgQueryType::Missing => Query::Log(m.query.since),
                PgQueryType::FullLog => Query::FullLog,
            };
            let epoch = m.query.epoch_sent;
            let message = PeerMessage::Query(query, Box::new(m.query.history));
            one(m.spgid, Some(m.query.from), epoch, epoch, message)
        }
        MOSDPGNotify2::TYPE => {
            let m = MOSDPGNotify2::decode(raw)?;
            vec![notified(m.spgid, m.notify)]
        }
        MOSDPGNotify::TYPE => {
            let of = |notify: &PgNotify| SpgId { pgid: notify.info.pgid.pgid, shard: notify.to };
            let m = MOSDPGNotify::decode(raw)?;
            m.notifies.into_iter().map(|notify| notified(of(&notify), notify)).collect()
        }
        MOSDPGInfo2::TYPE => {
            let m = MOSDPGInfo2::decode(raw)?;
            let from = Some(m.info.pgid.shard);
            let message =
                PeerMessage::Info(Box::new(m.info), m.lease.map(lease_in), m.lease_ack.map(ack_in));
            one(m.spgid, from, m.epoch_sent, m.min_epoch, message)
        }
        MOSDPGLog::TYPE => {
            let m = MOSDPGLog::decode(raw)?;
            let spgid = m.spgid();
            let (from, epoch, query_epoch) = (Some(m.from), m.epoch, m.query_epoch);
            let message = PeerMessage::Log(Box::new(LogMessage {
                info: m.info,
                log: m.log,
                missing: m.missing,
                past_intervals: m.past_intervals,
                lease: m.lease.map(lease_in),
            }));
            one(spgid, from, epoch, query_epoch, message)
        }
        MOSDPGLease::TYPE => {
            let m = MOSDPGLease::decode(raw)?;
            one(m.spgid, None, m.epoch, m.epoch, PeerMessage::Lease(lease_in(m.lease)))
        }
        MOSDPGLeaseAck::TYPE => {
            let m = MOSDPGLeaseAck::decode(raw)?;
            let message = PeerMessage::LeaseAck(ack_in(m.lease_ack));
            one(m.spgid, None, m.epoch, m.epoch, message)
        }
        MOSDPGRemove::TYPE => {
            let m = MOSDPGRemove::decode(raw)?;
            let epoch = m.epoch;
            let remove = |spgid| Decoded {
                spgid,
                from: None,
                epoch,
                query_epoch: epoch,
                message: PeerMessage::Remove,
            };
            m.pgs.into_iter().map(remove).collect()
        }
        _ => Vec::new(),
    })
}
