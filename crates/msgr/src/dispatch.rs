//! What a messenger tells its owner.

use std::time::Duration;

use types::message::RawMessage;

use crate::{Connection, throttle::Permit};

/// A message that has arrived. Dropping it gives its share of the throttles back: keep it as long
/// as the message is being worked on.
#[derive(Debug)]
pub struct Incoming {
    /// Header and segments; slices of the receive buffer.
    pub message: RawMessage,
    /// When its first byte was seen (`env.now()`).
    pub received: Duration,
    /// Shares of the policy's throttles (bytes, messages).
    pub(crate) permits: [Option<Permit>; 2],
}

/// A message's share of its sender's throttles.
#[derive(Debug)]
pub struct Share {
    _permits: [Option<Permit>; 2],
}

impl Incoming {
    /// A message with no throttle behind it (sent to oneself, or made by a test).
    pub fn unthrottled(message: RawMessage, received: Duration) -> Incoming {
        Incoming { message, received, permits: [None, None] }
    }

    /// The message, and its share of the throttles, which is given back when that is dropped.
    pub fn into_parts(self) -> (RawMessage, Share) {
        (self.message, Share { _permits: self.permits })
    }

    /// The message alone; its share of the throttles is given back now.
    pub fn into_message(self) -> RawMessage {
        drop(self.permits);
        self.message
    }
}

/// Told what happens on connections, in order for each of them, from the connection's own task:
/// return soon, and spawn what takes time. No connection is borrowed during a call, so all of
/// `Connection`'s functions may be called from inside.
pub trait Dispatcher {
    /// A message has arrived.
    fn on_message(&self, con: &Connection, incoming: Incoming);
    /// A peer has connected (its session is ready; caps and names are known).
    fn on_accept(&self, con: &Connection) {
        let _ = con;
    }
    /// Our connection to a peer is ready (again).
    fn on_connect(&self, con: &Connection) {
        let _ = con;
    }
    /// A lossy session broke: the connection is of no more use.
    fn on_reset(&self, con: &Connection) {
        let _ = con;
    }
    /// The peer of a lossless session restarted: what we had queued for it is gone.
    fn on_remote_reset(&self, con: &Connection) {
        let _ = con;
    }
    /// Nobody listens at the peer's address. Attempts go on unless the connection is marked down.
    fn on_refused(&self, con: &Connection) {
        let _ = con;
    }
}
