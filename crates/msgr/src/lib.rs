//! Messenger v2.1 as Ceph 16.2 speaks it: framed, authenticated, optionally encrypted sessions.
//!
//! * [`frame`]: bytes to frames and back, pure.
//! * `handshake`: from the banner to the ident, as a state machine over frames, both roles, pure.
//! * `session`: sequence numbers and queues that outlive a socket, pure.
//! * `resolve`: what a server does with an ident when it knows the peer already, pure.
//! * `driver`: the tasks that move bytes between sockets (through `env`) and the above.
//!
//! Payloads are opaque: no message type is known here. Order: messages of one priority arrive in
//! the order they were sent, on one session; nothing is promised between sessions.

mod auth_traits;
mod connection;
mod control;
mod dispatch;
mod driver;
pub mod exchange;
pub mod frame;
mod handshake;
mod messenger;
mod policy;
mod resolve;
mod session;
mod throttle;
mod wake;

pub use auth_traits::{
    Accepted, AuthClient, AuthRequest, AuthServer, ClientExchange, ServerExchange, ServerStep,
    SessionKeys, Stranger,
};
pub use connection::Connection;
pub use dispatch::{Dispatcher, Incoming, Share};
pub use messenger::{Config, Messenger};
pub use policy::{FEATURES_ALL, Policies, Policy};
pub use throttle::{Permit, Throttle};
