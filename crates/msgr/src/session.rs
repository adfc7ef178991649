//! What outlives one socket: cookies, sequence numbers, the messages not yet sent or acknowledged.
//! Pure; see `connection.rs` for who drives it.
//!
//! ```text
//! queue --pop_next--> sent --on_ack--> dropped
//!   ^                  |
//!   +---- requeue -----+      (the socket broke and the session is lossless)
//! ```
//!
//! Sequence numbers (one per message and direction, from 1) let the receiver of a resent message
//! drop what it has already had (src/msg/async/ProtocolV2.cc at v16.2).

use std::collections::{BTreeMap, VecDeque};

use types::message::RawMessage;

/// So many bytes, or messages, may have come before the peer is told of them at once, and not with what is
/// sent to it next: it keeps them until then.
const UNTOLD_BYTES_MAX: usize = 64 << 10;
const UNTOLD_MESSAGES_MAX: u64 = 64;

/// Messages and numbers of one session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// Chosen by the side that connects; 0 on lossy sessions.
    pub(crate) client_cookie: u64,
    /// Chosen by the side that accepts; 0 on lossy sessions and before the first ident.
    pub(crate) server_cookie: u64,
    /// Raised by the connecting side at each attempt after the first.
    pub(crate) connect_seq: u64,
    /// The peer messenger's count of connection attempts, as of this session's last one.
    pub(crate) peer_global_seq: u64,
    /// Number of the last message sent.
    pub(crate) out_seq: u64,
    /// Number of the last message received.
    pub(crate) in_seq: u64,
    /// What the peer has been told of `in_seq`.
    pub(crate) acked_seq: u64,
    /// Bytes of the messages that have come since.
    untold_bytes: usize,
    /// What the peer has told of its own: it has had our messages up to this number.
    pub(crate) peer_in_seq: u64,
    /// Messages that never left, by priority, highest first out. Bounded by what the owner has in
    /// flight: requests of its own, or answers to requests let in by the policy's throttles. A
    /// priority once used keeps its (empty) place: there are a handful.
    queue: BTreeMap<u16, VecDeque<RawMessage>>,
    /// Sent on a broken socket, to be sent again before all others, in order.
    requeued: VecDeque<RawMessage>,
    /// Sent and not acknowledged; empty on lossy sessions.
    sent: VecDeque<RawMessage>,
    queued_bytes: usize,
}

impl Session {
    /// Queues a message behind those of its priority.
    pub(crate) fn push(&mut self, message: RawMessage) {
        self.queued_bytes += wire_len(&message);
        self.queue.entry(message.header.priority).or_default().push_back(message);
    }

    /// Whether anything waits to be sent.
    pub(crate) fn has_queued(&self) -> bool {
        !self.requeued.is_empty() || self.queue.values().any(|lane| !lane.is_empty())
    }

    /// Bytes that wait to be sent.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// The next message to put on the wire, numbered; kept for a resend if `lossless`.
    pub(crate) fn pop_next(&mut self, lossless: bool) -> Option<RawMessage> {
        let mut message = match self.requeued.pop_front() {
            Some(message) => message,
            None => self.queue.values_mut().rev().find_map(VecDeque::pop_front)?,
        };
        self.queued_bytes -= wire_len(&message);
        self.out_seq += 1;
        message.header.seq = self.out_seq;
        message.header.ack_seq = self.tell();
        if lossless && !env::mutant("no-replay") {
            self.sent.push_back(message.clone());
        }
        Some(message)
    }

    /// The peer has had all messages up to `seq`.
    pub(crate) fn on_ack(&mut self, seq: u64) {
        self.peer_in_seq = self.peer_in_seq.max(seq.min(self.out_seq));
        while self.sent.front().is_some_and(|m| m.header.seq <= seq) {
            self.sent.pop_front();
        }
    }

    /// A message numbered `seq`, of so many bytes, has come; whether it is new.
    pub(crate) fn accept_seq(&mut self, seq: u64, bytes: usize) -> bool {
        let new = seq > self.in_seq || env::mutant("replay-twice");
        if new {
            self.in_seq = seq;
            self.untold_bytes += bytes;
        }
        new
    }

    /// The socket broke: what was not acknowledged is to be sent again.
    pub(crate) fn requeue_sent(&mut self) {
        if let Some(first) = self.sent.front() {
            self.out_seq = first.header.seq - 1;
        }
        while let Some(message) = self.sent.pop_back() {
            self.queued_bytes += wire_len(&message);
            self.requeued.push_front(message);
        }
    }

    /// After a reconnect: the peer has had all up to `seq`, the rest goes out again.
    pub(crate) fn discard_up_to(&mut self, seq: u64) {
        self.requeue_sent();
        let had = if env::mutant("replay-twice") { 0 } else { seq };
        while self.requeued.front().is_some_and(|m| m.header.seq <= had) {
            if let Some(message) = self.requeued.pop_front() {
                self.queued_bytes -= wire_len(&message);
            }
        }
        self.out_seq = match self.requeued.front() {
            Some(first) => first.header.seq - 1,
            None => seq,
        };
    }

    /// A new session with the same peer, keeping what waits to be sent.
    pub(crate) fn begin_anew(&mut self) {
        self.requeue_sent();
        self.in_seq = 0;
        self.acked_seq = 0;
        self.untold_bytes = 0;
        self.peer_in_seq = 0;
        self.out_seq = 0;
    }

    /// The peer lost its state: nothing of ours that waited makes sense to it.
    pub(crate) fn reset(&mut self) {
        *self = Session::default();
    }

    /// Whether something has come that the peer was not told of.
    pub(crate) fn owes_ack(&self) -> bool {
        self.in_seq > self.acked_seq
    }

    /// Whether there is so much of it that the peer should be told now.
    pub(crate) fn owes_much(&self) -> bool {
        self.owes_ack()
            && (self.untold_bytes >= UNTOLD_BYTES_MAX
                || self.in_seq - self.acked_seq >= UNTOLD_MESSAGES_MAX)
    }

    /// Messages sent of which the peer has not said that it has them.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.sent.len()
    }

    /// What the peer is being told: the number of the last message that has come.
    pub(crate) fn tell(&mut self) -> u64 {
        self.untold_bytes = 0;
        self.acked_seq = self.in_seq;
        self.in_seq
    }
}

fn wire_len(m: &RawMessage) -> usize {
    m.front.len() + m.middle.len() + m.data.len()
}
