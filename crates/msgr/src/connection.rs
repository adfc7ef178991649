//! A session with one peer, over as many sockets as it takes.
//!
//! ```text
//!             connect_to                 accepted socket
//!                 v                            v
//!            Connecting --ready-------------> Ready
//!              ^  ^  |                         |  socket broke:
//!   send, WAIT |  |  +--WAIT--> Waiting        |    lossy ---------------> Closed (on_reset)
//!   timed out  |  +----timer-------+           |    lossless, queued ----> Connecting
//!              +------ Standby <---------------+    lossless, idle/server> Standby
//!            mark_down, from anywhere: Closed
//! ```
//!
//! The only assignments of `phase` are in this file and go through [`Inner::set_phase`].

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use auth::AuthCapsInfo;
use env::{Env, Stream};
use types::addr::{AddrVec, EntityAddr};
use types::entity::{AuthEntityName, EntityName};
use types::message::RawMessage;
use types::time::UTime;

use crate::driver;
use crate::frame::FrameWriter;
use crate::messenger::Shared;
use crate::policy::Policy;
use crate::session::Session;
use crate::wake::Wake;

/// Bytes that may wait for a peer of a lossy session that does not read. Above that the session is
/// reset. Lossless sessions are bounded by what their owner has in flight.
pub(crate) const LOSSY_QUEUE_BYTES_MAX: usize = 1 << 30;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// A task of ours tries to connect.
    Connecting,
    /// The peer told us to wait for its own attempt.
    Waiting,
    /// A socket carries the session.
    Ready,
    /// No socket and nothing to send, or the peer is the one who connects.
    Standby,
    /// Over.
    Closed,
}

/// A socket that carries a session.
pub(crate) struct Link {
    pub(crate) stream: Rc<dyn Stream>,
    pub(crate) writer: RefCell<FrameWriter>,
    /// Something waits to be written.
    pub(crate) wake: Wake,
    /// When bytes last came.
    pub(crate) last_active: Cell<Duration>,
}

/// What is known of the peer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    pub(crate) name: EntityName,
    pub(crate) addrs: AddrVec,
    /// The address we dial, or the one the peer's socket has.
    pub(crate) socket_addr: EntityAddr,
    pub(crate) global_id: u64,
    pub(crate) auth_name: Option<AuthEntityName>,
    pub(crate) caps: AuthCapsInfo,
    pub(crate) features: u64,
    pub(crate) auth_state: Option<Rc<dyn Any>>,
}

pub(crate) struct Inner {
    pub(crate) id: u64,
    pub(crate) env: Env,
    pub(crate) messenger: Weak<Shared>,
    pub(crate) peer_kind: u8,
    pub(crate) policy: Policy,
    /// The policy's, or what the server said.
    pub(crate) lossy: Cell<bool>,
    pub(crate) loopback: bool,
    pub(crate) peer: RefCell<Peer>,
    pub(crate) session: RefCell<Session>,
    phase: Cell<Phase>,
    /// Raised with each change of socket or owner: a task that finds another number than the one
    /// it began with has been overtaken and ends.
    pub(crate) generation: Cell<u64>,
    pub(crate) link: RefCell<Option<Rc<Link>>>,
    /// Wakes whoever runs the connection while there is no link (connector, loopback).
    pub(crate) wake: Wake,
    pub(crate) want_keepalive: Cell<bool>,
    /// The peer is to be told at once of what has come, on a lossless session.
    pub(crate) want_ack: Cell<bool>,
    /// A task waits for the moment when that is due.
    pub(crate) ack_timer: Cell<bool>,
    pub(crate) keepalive_to_ack: Cell<Option<UTime>>,
    pub(crate) last_keepalive: Cell<Option<Duration>>,
    pub(crate) last_keepalive_ack: Cell<Option<Duration>>,
    slot: RefCell<Option<Rc<dyn Any>>>,
}

/// A session with one peer. Clones are the same session.
#[derive(Clone)]
pub struct Connection(pub(crate) Rc<Inner>);

impl PartialEq for Connection {
    fn eq(&self, other: &Connection) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Connection {}

impl core::fmt::Debug for Connection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let peer = self.0.peer.borrow();
        write!(f, "#{} {} {} {:?}", self.0.id, peer.name, peer.addrs, self.0.phase.get())
    }
}

/// What a new connection begins with.
pub(crate) struct Start {
    pub(crate) peer_kind: u8,
    pub(crate) policy: Policy,
    pub(crate) peer: Peer,
    pub(crate) phase: Phase,
    pub(crate) loopback: bool,
}

impl Connection {
    pub(crate) fn start(messenger: &Rc<Shared>, id: u64, start: Start) -> Connection {
        Connection(Rc::new(Inner {
            id,
            env: messenger.env.clone(),
            messenger: Rc::downgrade(messenger),
            peer_kind: start.peer_kind,
            lossy: Cell::new(start.policy.lossy),
            policy: start.policy,
            loopback: start.loopback,
            peer: RefCell::new(start.peer),
            session: RefCell::default(),
            phase: Cell::new(start.phase),
            generation: Cell::new(0),
            link: RefCell::new(None),
            wake: Wake::default(),
            want_keepalive: Cell::new(false),
            want_ack: Cell::new(false),
            ack_timer: Cell::new(false),
            keepalive_to_ack: Cell::new(None),
            last_keepalive: Cell::new(None),
            last_keepalive_ack: Cell::new(None),
            slot: RefCell::new(None),
        }))
    }

    /// Number of this connection within its messenger: stable order, good for logs.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// Queues a message. It leaves in order within its priority; on a lossless session it arrives
    /// once whatever happens to sockets, on a lossy one it is lost with the connection. On a
    /// closed connection it is dropped.
    pub fn send(&self, message: RawMessage) {
        let inner = &self.0;
        if inner.phase.get() == Phase::Closed {
            return;
        }
        inner.session.borrow_mut().push(message);
        match inner.phase.get() {
            _ if inner.loopback => inner.wake.wake(),
            Phase::Ready => inner.wake_link(),
            Phase::Standby if !inner.policy.server => {
                inner.set_phase(Phase::Connecting);
                inner.session.borrow_mut().connect_seq += 1;
                driver::spawn_connector(self);
            }
            _ => {}
        }
        if inner.lossy.get() && inner.session.borrow().queued_bytes() > LOSSY_QUEUE_BYTES_MAX {
            tracing::info!(con = ?self, "peer does not read, resetting");
            // Not from here: the sender may be in the midst of something.
            let (con, generation) = (self.clone(), inner.generation.get());
            inner.env.go(async move { driver::fault(&con, generation) });
        }
    }

    /// Asks the peer for a sign of life (KEEPALIVE2).
    pub fn send_keepalive(&self) {
        self.0.want_keepalive.set(true);
        self.0.wake_link();
    }

    /// The peer's name for this session.
    pub fn peer_name(&self) -> EntityName {
        self.0.peer.borrow().name
    }

    /// The peer's entity type.
    pub fn peer_kind(&self) -> u8 {
        self.0.peer_kind
    }

    /// All addresses the peer says it has.
    pub fn peer_addrs(&self) -> AddrVec {
        self.0.peer.borrow().addrs.clone()
    }

    /// The address of the peer's end: what we dial, or what its socket shows.
    pub fn peer_socket_addr(&self) -> EntityAddr {
        self.0.peer.borrow().socket_addr
    }

    /// The peer's global id (accepted connections).
    pub fn peer_global_id(&self) -> u64 {
        self.0.peer.borrow().global_id
    }

    /// The entity the peer proved to be (accepted connections).
    pub fn peer_auth_name(&self) -> Option<AuthEntityName> {
        self.0.peer.borrow().auth_name.clone()
    }

    /// What the peer may do here (accepted connections).
    pub fn peer_caps(&self) -> AuthCapsInfo {
        self.0.peer.borrow().caps.clone()
    }

    /// What the accepting daemon left at authentication (`Accepted::state`).
    pub fn auth_state(&self) -> Option<Rc<dyn Any>> {
        self.0.peer.borrow().auth_state.clone()
    }

    /// Feature bits both sides have.
    pub fn features(&self) -> u64 {
        self.0.peer.borrow().features
    }

    /// Whether a socket carries the session right now.
    pub fn is_connected(&self) -> bool {
        self.0.phase.get() == Phase::Ready
    }

    /// Whether nobody here tries to get a socket: what is sent would begin that.
    pub fn is_standby(&self) -> bool {
        self.0.phase.get() == Phase::Standby
    }

    /// Whether the session is over.
    pub fn is_closed(&self) -> bool {
        self.0.phase.get() == Phase::Closed
    }

    /// Messages kept because the peer has not acknowledged them (lossless sessions).
    pub fn unacknowledged(&self) -> usize {
        self.0.session.borrow().unacknowledged()
    }

    /// Whether this is the messenger's connection to itself.
    pub fn is_loopback(&self) -> bool {
        self.0.loopback
    }

    /// When the peer last answered a keepalive (`env.now()`).
    pub fn last_keepalive_ack(&self) -> Option<Duration> {
        self.0.last_keepalive_ack.get()
    }

    /// When the peer last sent a keepalive (`env.now()`).
    pub fn last_keepalive(&self) -> Option<Duration> {
        self.0.last_keepalive.get()
    }

    /// Ends the session now: what is queued is dropped, the dispatcher is not told.
    pub fn mark_down(&self) {
        self.0.close();
    }

    /// Breaks the socket as a fault of the network would (`ms_inject_socket_failures`): a lossless
    /// session goes on over another one, a lossy one is reset.
    pub fn break_socket(&self) {
        if let Some(link) = &*self.0.link.borrow() {
            link.stream.close();
        }
    }

    /// Puts the daemon's state of this session here (one value, replaced).
    pub fn set_session(&self, value: Option<Rc<dyn Any>>) {
        let old = self.0.slot.replace(value);
        drop(old);
    }

    /// The value put by `set_session`, if it is of this type.
    pub fn session<T: 'static>(&self) -> Option<Rc<T>> {
        self.0.slot.borrow().clone()?.downcast().ok()
    }
}

impl Inner {
    pub(crate) fn phase(&self) -> Phase {
        self.phase.get()
    }

    /// The one place where the phase changes.
    pub(crate) fn set_phase(&self, to: Phase) {
        let from = self.phase.get();
        debug_assert!(from != Phase::Closed || to == Phase::Closed, "{from:?} to {to:?}");
        self.phase.set(to);
    }

    pub(crate) fn wake_link(&self) {
        if let Some(link) = &*self.link.borrow() {
            link.wake.wake();
        }
    }

    /// Takes the socket away, if there is one: its tasks end, later ones do not see theirs.
    pub(crate) fn unlink(&self) {
        self.generation.set(self.generation.get() + 1);
        let link = self.link.borrow_mut().take();
        if let Some(link) = link {
            link.stream.close();
            link.wake.wake();
        }
        self.wake.wake();
    }

    /// Ends the session and forgets it in the messenger.
    pub(crate) fn close(&self) {
        if self.phase.get() == Phase::Closed {
            return;
        }
        self.set_phase(Phase::Closed);
        self.unlink();
        *self.session.borrow_mut() = Session::default();
        if let Some(messenger) = self.messenger.upgrade() {
            messenger.forget(self);
        }
    }
}
