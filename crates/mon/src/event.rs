//! What the core is told, and what it wants done.

use std::rc::Rc;
use std::time::Duration;

use auth::AuthCapsInfo;
use auth::cephx::MonHandler;
use messages::{MMonCommand, Message};
use store::KvBatch;
use types::{AddrVec, AuthEntityName, EntityAddr, EntityName, RawMessage, UTime};

/// Number of a connection, for as long as it is open.
pub type SessionId = u64;

/// The two clocks, read once a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Time of day.
    pub wall: UTime,
    /// Time since some start; never goes back.
    pub mono: Duration,
}

/// Who has connected.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its name in messages.
    pub name: EntityName,
    /// The entity it proved to be.
    pub auth_name: AuthEntityName,
    /// What it may do at a monitor.
    pub caps: AuthCapsInfo,
    /// Its number in the cluster.
    pub global_id: u64,
    /// Addresses it says it has.
    pub addrs: AddrVec,
    /// The address its socket shows.
    pub socket_addr: EntityAddr,
    /// Feature bits of the connection.
    pub features: u64,
    /// The handshake that let it in; it goes on inside the session, when tickets are renewed.
    /// `None`: it showed a ticket, or there is no authentication.
    pub handshake: Option<Rc<MonHandler>>,
}

/// Something has happened.
#[derive(Debug)]
pub enum Event {
    /// A connection is ready.
    Opened(SessionId, Rc<Peer>),
    /// A connection is gone.
    Closed(SessionId),
    /// A message has come.
    Message(SessionId, RawMessage),
    /// A message has come that is kept, under this number, until [`Effect::Done`] says that all
    /// it led to is committed: should this monitor cease to lead, the next one gets it.
    Request(SessionId, u64, RawMessage),
    /// The batch proposed last is committed.
    Committed,
    /// The time that [`Effect::WakeAt`] named has come.
    Timer,
}

/// Something is to be done.
#[derive(Debug)]
pub enum Effect {
    /// Send a message.
    Send(SessionId, RawMessage),
    /// End a connection.
    Close(SessionId),
    /// Commit a batch, then tell by [`Event::Committed`].
    Propose(KvBatch),
    /// A request is done with.
    Done(SessionId, u64),
    /// Ask the leader for numbers for clients: few are left.
    WantIds,
    /// Tell a monitor that it may give out these numbers (first, end).
    GrantIds(u64, (u64, u64)),
    /// Tell by [`Event::Timer`] at this time (of [`Now::mono`]), instead of any time named before.
    WakeAt(Duration),
    /// Ask the manager what a client (the session, its number for the command) asks here.
    AskMgr(SessionId, u64, MMonCommand),
    /// Replace the values which the monitor's own options have from the configuration database.
    OwnConfig(std::collections::BTreeMap<String, String>),
    /// Append committed lines of the cluster log to the file of this path; without one, to standard error.
    WriteLog(Option<String>, String),
}

/// A message ready to send.
pub(crate) fn wire<M: Message>(message: &M) -> RawMessage {
    Message::encode(message)
}

/// Reads a message.
pub(crate) fn read<M: Message>(raw: &RawMessage) -> Result<M, denc::Error> {
    <M as Message>::decode(raw)
}
