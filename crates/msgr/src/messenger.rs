//! The messenger: a name, addresses, and a table of connections.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use env::sync::Notify;
use env::{Env, Stream};
use types::addr::{AddrVec, EntityAddr};
use types::entity::EntityName;

use crate::auth_traits::{AuthClient, AuthServer};
use crate::connection::{Connection, Inner, Peer, Phase, Start};
use crate::dispatch::Dispatcher;
use crate::driver;
use crate::policy::Policies;

/// What a messenger is made of. Times have Ceph's defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// Own name. The number of a client is -1 until it has a global id.
    pub name: EntityName,
    /// Tells this process from the next one at the same address.
    pub nonce: u32,
    /// Treatment of peers.
    pub policies: Policies,
    /// First pause between attempts to connect (`ms_initial_backoff`).
    pub initial_backoff: Duration,
    /// Longest pause (`ms_max_backoff`).
    pub max_backoff: Duration,
    /// How long a handshake may take (`ms_connection_ready_timeout`).
    pub ready_timeout: Duration,
    /// How long a connection may be silent (`ms_connection_idle_timeout`).
    pub idle_timeout: Duration,
    /// Accepted sockets that have not finished their handshake, at most; who has waited longest makes
    /// room for one more.
    pub strangers_max: usize,
    /// Attempts to connect are numbered from here. Peers refuse a number below one they have seen
    /// from the same address and nonce: a daemon whose nonce is always the same (a monitor) begins
    /// each life with a higher one.
    pub first_global_seq: u64,
}

impl Config {
    /// Ceph's defaults.
    pub fn new(name: EntityName, nonce: u32, policies: Policies) -> Config {
        Config {
            name,
            nonce,
            policies,
            initial_backoff: Duration::from_millis(200),
            max_backoff: Duration::from_secs(15),
            ready_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(900),
            strangers_max: 4096,
            first_global_seq: 0,
        }
    }
}

pub(crate) struct Shared {
    pub(crate) env: Env,
    pub(crate) config: Config,
    pub(crate) name: Cell<EntityName>,
    pub(crate) addrs: RefCell<AddrVec>,
    pub(crate) auth_client: RefCell<Option<Rc<dyn AuthClient>>>,
    pub(crate) auth_server: RefCell<Option<Rc<dyn AuthServer>>>,
    pub(crate) dispatcher: RefCell<Option<Rc<dyn Dispatcher>>>,
    /// Sessions by the peer's entity type and addresses: the ones a peer can come back to. Anyone may
    /// say any addresses; being another kind of daemon takes its key.
    pub(crate) registered: RefCell<BTreeMap<(u8, AddrVec), Connection>>,
    /// Open connections outside the table (anonymous ones), by id.
    pub(crate) others: RefCell<BTreeMap<u64, Connection>>,
    /// Accepted sockets within their handshake (`Config::strangers_max`), in the order they came.
    pub(crate) strangers: RefCell<BTreeMap<u64, Rc<dyn Stream>>>,
    next_id: Cell<u64>,
    global_seq: Cell<u64>,
    pub(crate) stopped: Cell<bool>,
    /// Tells the tasks that accept to end, with their listeners.
    pub(crate) stop: Rc<Notify>,
}

/// A name on the network, with connections to peers. Clones are the same messenger.
#[derive(Clone)]
pub struct Messenger(pub(crate) Rc<Shared>);

impl core::fmt::Debug for Messenger {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} {}", self.0.name.get(), self.0.addrs.borrow())
    }
}

impl Messenger {
    /// A messenger that neither listens nor authenticates yet.
    pub fn new(env: Env, config: Config) -> Messenger {
        let messenger = Messenger(Rc::new(Shared {
            env,
            global_seq: Cell::new(config.first_global_seq),
            name: Cell::new(config.name),
            config,
            addrs: RefCell::default(),
            auth_client: RefCell::new(None),
            auth_server: RefCell::new(None),
            dispatcher: RefCell::new(None),
            registered: RefCell::default(),
            others: RefCell::default(),
            strangers: RefCell::default(),
            next_id: Cell::new(1),
            stopped: Cell::new(false),
            stop: Rc::default(),
        }));
        driver::spawn_idle_check(&messenger);
        messenger
    }

    /// Whom to tell. Set before `bind` and the first `connect_to`.
    pub fn set_dispatcher(&self, dispatcher: Rc<dyn Dispatcher>) {
        *self.0.dispatcher.borrow_mut() = Some(dispatcher);
    }

    /// How to prove who we are.
    pub fn set_auth_client(&self, client: Rc<dyn AuthClient>) {
        *self.0.auth_client.borrow_mut() = Some(client);
    }

    /// How peers prove who they are.
    pub fn set_auth_server(&self, server: Rc<dyn AuthServer>) {
        *self.0.auth_server.borrow_mut() = Some(server);
    }

    /// Own name.
    pub fn name(&self) -> EntityName {
        self.0.name.get()
    }

    /// Changes the own name's number (a client learns its global id, a mon its rank). Sessions
    /// already open keep the old one.
    pub fn set_name(&self, name: EntityName) {
        self.0.name.set(name);
    }

    /// Own addresses as peers are told. Empty until `bind` or the first connection of a client.
    pub fn addrs(&self) -> AddrVec {
        self.0.addrs.borrow().clone()
    }

    /// Sets what peers are told (a mon's addresses in the monmap, with its v1 address).
    pub fn set_addrs(&self, addrs: AddrVec) {
        *self.0.addrs.borrow_mut() = addrs;
    }

    /// Listens, and adds the address (with the real port) to the own ones.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<EntityAddr> {
        let listener = self.0.env.listen(addr)?;
        let bound = EntityAddr::msgr2(listener.local_addr().unwrap_or(addr), self.0.config.nonce);
        let addrs = self.addrs().iter().copied().chain([bound]).collect();
        self.set_addrs(addrs);
        driver::spawn_acceptor(self, listener);
        Ok(bound)
    }

    /// The session with the peer at these addresses: the open one, or a new one that connects now.
    /// Our own addresses give the loopback.
    pub fn connect_to(&self, peer_kind: u8, addrs: &AddrVec) -> Connection {
        if !addrs.is_empty() && *addrs == *self.0.addrs.borrow() {
            return self.loopback();
        }
        let key = (peer_kind, addrs.clone());
        if let Some(con) = self.0.registered.borrow().get(&key) {
            return con.clone();
        }
        let con = self.open(peer_kind, addrs);
        self.0.registered.borrow_mut().insert(key, con.clone());
        driver::spawn_connector(&con);
        con
    }

    /// A new session that shares nothing with another one to the same addresses (hunting for a
    /// monitor).
    pub fn connect_anonymous(&self, peer_kind: u8, addrs: &AddrVec) -> Connection {
        let con = self.open(peer_kind, addrs);
        self.0.others.borrow_mut().insert(con.id(), con.clone());
        driver::spawn_connector(&con);
        con
    }

    fn open(&self, peer_kind: u8, addrs: &AddrVec) -> Connection {
        let peer = Peer {
            name: EntityName { kind: peer_kind, num: -1 },
            addrs: addrs.clone(),
            socket_addr: addrs.msgr2().copied().unwrap_or_else(|| addrs.front()),
            ..Peer::default()
        };
        let policy = self.0.config.policies.of(peer_kind).clone();
        let start = Start { peer_kind, policy, peer, phase: Phase::Connecting, loopback: false };
        Connection::start(&self.0, self.0.new_id(), start)
    }

    /// The messenger's connection to itself: what is sent arrives at the own dispatcher.
    pub fn loopback(&self) -> Connection {
        const LOOPBACK_ID: u64 = 0;
        if let Some(con) = self.0.others.borrow().get(&LOOPBACK_ID) {
            return con.clone();
        }
        let name = self.name();
        let peer = Peer {
            name,
            addrs: self.addrs(),
            features: crate::policy::FEATURES_ALL,
            caps: auth::AuthCapsInfo::allow_all(),
            ..Peer::default()
        };
        let policy = self.0.config.policies.of(name.kind).clone();
        let start =
            Start { peer_kind: name.kind, policy, peer, phase: Phase::Ready, loopback: true };
        let con = Connection::start(&self.0, LOOPBACK_ID, start);
        self.0.others.borrow_mut().insert(LOOPBACK_ID, con.clone());
        driver::spawn_loopback(&con);
        con
    }

    /// All open connections, in the order of their ids.
    pub fn connections(&self) -> Vec<Connection> {
        self.0.connections()
    }

    /// Ends the sessions with whoever is at these addresses.
    pub fn mark_down(&self, addrs: &AddrVec) {
        let registered = self.0.registered.borrow();
        let there = registered.iter().filter(|((_, theirs), _)| theirs == addrs);
        let there: Vec<Connection> = there.map(|(_, con)| con.clone()).collect();
        drop(registered);
        there.iter().for_each(Connection::mark_down);
    }

    /// Ends all sessions; they can be opened anew.
    pub fn mark_down_all(&self) {
        self.connections().iter().for_each(Connection::mark_down);
    }

    /// Ends all sessions and stops listening.
    pub fn shutdown(&self) {
        self.0.stopped.set(true);
        self.0.stop.notify_all();
        self.mark_down_all();
        self.0.auth_client.take();
        self.0.auth_server.take();
        self.0.dispatcher.take();
    }
}

impl Shared {
    /// Nothing runs any more: everything that may hold the messenger goes, without a word to peers.
    pub(crate) fn let_go(&self) {
        self.stopped.set(true);
        let held = (self.auth_client.take(), self.auth_server.take(), self.dispatcher.take());
        let connections = (self.registered.take(), self.others.take(), self.strangers.take());
        drop((held, connections));
    }

    pub(crate) fn new_id(&self) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    /// The next number of an attempt to connect, above `at_least`.
    pub(crate) fn next_global_seq(&self, at_least: u64) -> u64 {
        let next = self.global_seq.get().max(at_least) + 1;
        self.global_seq.set(next);
        next
    }

    pub(crate) fn connections(&self) -> Vec<Connection> {
        let mut all: BTreeMap<u64, Connection> = self.others.borrow().clone();
        all.extend(self.registered.borrow().values().map(|con| (con.id(), con.clone())));
        all.into_values().collect()
    }

    /// Takes a closed connection out of the tables.
    pub(crate) fn forget(&self, con: &Inner) {
        let mut registered = self.registered.borrow_mut();
        let key = (con.peer_kind, con.peer.borrow().addrs.clone());
        if registered.get(&key).is_some_and(|c| c.0.id == con.id) {
            registered.remove(&key);
        } else {
            // A server's ident may have changed the addresses since it was registered.
            registered.retain(|_, c| c.0.id != con.id);
        }
        self.others.borrow_mut().remove(&con.id);
    }

    pub(crate) fn dispatcher(&self) -> Option<Rc<dyn Dispatcher>> {
        self.dispatcher.borrow().clone()
    }
}
