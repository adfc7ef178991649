//! The daemon: connections, the clock, the database and the other monitors around the core.
//!
//! | file | what |
//! |---|---|
//! | `auth_server.rs` | who connects, and how this monitor proves itself to others |
//! | `pump.rs` | the replicated log: stores, sends, applies; takes over and gives up leading |
//! | `peers.rs` | the other monitors: connections, who is in the quorum, clocks, membership |
//! | `router.rs` | requests: kept until they are done with, handed to whoever leads |
//! | `to_mgr.rs` | the session with the manager: commands that it answers |
//! | `report.rs` | what it is told of this monitor |

mod auth_server;
mod peers;
mod pump;
mod report;
mod router;
mod to_mgr;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use auth::KeyServer;
use bytes::Bytes;
use command::{CommandMap, CommandReply};
use config::Config;
use env::sync::Notify;
use env::{Env, LocalFuture};
use maps::MonMap;
use messages::{MMonCommand, MMonCommandAck, Message};
use msgr::{Connection, Dispatcher, Incoming, Messenger, Policies, Policy};
use quorum::Timing;
use store::Kv;
use types::{EntityName, Errno, RawMessage, UTime, entity};

use crate::core::{Identity, LoadError, MonCore};
use crate::counters::Counters;
use crate::event::{Effect, Event, Now, Peer, SessionId};
use crate::log::{Log, LogError};
use crate::replica::Replica;
use crate::standing::{Disk, Role};
use peers::Peers;
use router::Router;
use to_mgr::ToMgr;

/// Connections are counted from here in the core, so that 0 is nobody.
type Connections = BTreeMap<SessionId, Connection>;

/// Longest message taken of who is no monitor: what is done with it has to fit messages between monitors.
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// Longest pause between attempts to reach another monitor.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How much later than the first each further monitor stands for election.
const STAGGER: Duration = Duration::from_millis(60);

/// Why a monitor does not start.
#[derive(Debug)]
pub enum StartError {
    /// Its database is empty or damaged.
    Load(LoadError),
    /// It is not in the monitor map, or has no address there.
    NotInMap {
        /// The name looked for.
        name: String,
    },
    /// It cannot listen.
    Bind {
        /// Where.
        addr: String,
        /// Why.
        error: io::Error,
    },
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Load(error) => error.fmt(f),
            StartError::NotInMap { name } => {
                write!(f, "mon.{name} is not in the monitor map, or has no v2 address there")
            }
            StartError::Bind { addr, error } => write!(f, "cannot listen on {addr}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// A running monitor. Clones are the same one.
#[derive(Clone)]
pub struct Mon {
    shell: Rc<Shell>,
}

struct Shell {
    env: Env,
    conf: Rc<Config>,
    kv: Rc<dyn Kv>,
    identity: Identity,
    counters: Rc<Counters>,
    /// Nothing while the state is being copied from another monitor.
    core: RefCell<Option<MonCore>>,
    replica: Rc<Replica>,
    /// Keys while there is no core.
    first_keys: RefCell<Rc<RefCell<KeyServer>>>,
    /// The newest monitor map, core or not.
    monmap: RefCell<Rc<MonMap>>,
    messenger: Messenger,
    connections: RefCell<Connections>,
    router: RefCell<Router>,
    peers: RefCell<Peers>,
    to_mgr: ToMgr,
    /// The log has something to do.
    pump: Notify,
    pump_due: Cell<bool>,
    /// The wake-up now set; later ones only if sooner.
    wake_at: Cell<Option<Duration>>,
    /// Events that came while the core was stepped, or while effects were performed.
    queue: RefCell<VecDeque<Event>>,
    stepping: Cell<bool>,
    stopped: Cell<bool>,
    /// Since when this monitor is in no quorum.
    out_since: Cell<Option<Duration>>,
    /// An operator wants it out of the quorum.
    exited: Cell<bool>,
    /// Why the monitor stopped by itself.
    failure: RefCell<Option<String>>,
    failed: Notify,
    disk_probe: RefCell<Option<DiskProbe>>,
    log_writer: RefCell<Option<LogWriter>>,
}

/// See [`Mon::watch_disk`].
type DiskProbe = Box<dyn Fn() -> Option<Disk>>;
/// See [`Mon::write_log`].
type LogWriter = Box<dyn Fn(Option<&str>, &str)>;

impl Mon {
    /// Starts the monitor of this database: listens on its address in the monitor map and looks
    /// for the others. One that is alone serves when this returns.
    pub fn start(
        env: Env,
        conf: Rc<Config>,
        kv: Rc<dyn Kv>,
        identity: Identity,
    ) -> LocalFuture<Result<Mon, StartError>> {
        Box::pin(async move {
            let load = StartError::Load;
            let name = identity.name.clone();
            let fill = |buf: &mut [u8]| env.fill_random(buf);
            if crate::sync::erase_if_forced(&*kv, &fill).map_err(load)? {
                tracing::warn!("the database is erased, as sync_force asked; another's is copied");
            }
            let monmap = crate::monmap::load(&*kv).map_err(load)?;
            let rank = monmap.rank_of(&name);
            let own = monmap.mon_info.get(&name).map(|mon| mon.public_addrs.clone());
            let addr = own.as_ref().and_then(|addrs| addrs.msgr2().and_then(|addr| addr.sock));
            let (Some(rank), Some(own), Some(addr)) = (rank, own, addr) else {
                return Err(StartError::NotInMap { name });
            };
            let random = {
                let env = env.clone();
                move || env.random_u64()
            };
            let timing = timing_of(rank);
            let counters = Rc::<Counters>::default();
            let replica = Replica::open(kv.clone(), &name, timing, env.now(), &random)
                .map_err(|e| load(e.into()))?;
            let keys = crate::auth::load_keys(&*kv, &conf).map_err(load)?;
            let own_name = EntityName::mon(rank as i64);
            let mut settings = msgr::Config::new(own_name, 0, policies());
            settings.max_backoff = BACKOFF_MAX;
            let wall_ms = env.wall_clock().as_millis();
            settings.first_global_seq = u64::try_from(wall_ms).unwrap_or(0);
            let messenger = Messenger::new(env.clone(), settings);
            let to_mgr = ToMgr::new(&env, own_name);
            let shell = Rc::new(Shell {
                out_since: Cell::new(Some(env.now())),
                env,
                conf,
                kv,
                identity,
                counters,
                core: RefCell::new(None),
                replica: Rc::new(replica),
                first_keys: RefCell::new(Rc::new(RefCell::new(keys))),
                monmap: RefCell::new(Rc::new(monmap)),
                messenger: messenger.clone(),
                connections: RefCell::default(),
                router: RefCell::default(),
                peers: RefCell::default(),
                to_mgr,
                pump: Notify::default(),
                pump_due: Cell::new(true),
                wake_at: Cell::new(None),
                queue: RefCell::default(),
                stepping: Cell::new(false),
                stopped: Cell::new(false),
                exited: Cell::new(false),
                failure: RefCell::new(None),
                failed: Notify::default(),
                disk_probe: RefCell::default(),
                log_writer: RefCell::default(),
            });
            messenger.set_auth_server(Rc::new(auth_server::MonAuthServer { shell: shell.clone() }));
            messenger.set_auth_client(Rc::new(auth_server::MonAuthClient { shell: shell.clone() }));
            messenger.set_dispatcher(Rc::new(Door { shell: shell.clone() }));
            ToMgr::start(&shell);
            // One that is alone leads now. Ids and secrets first: nobody may be let in before they are
            // committed.
            shell.load_core().map_err(load)?;
            shell.run_log().map_err(load)?;
            if shell.role() == Role::Leader {
                shell.flush().await;
            }
            messenger
                .bind(addr)
                .map_err(|error| StartError::Bind { addr: addr.to_string(), error })?;
            messenger.set_addrs(own);
            shell.env.go(pump::run(shell.clone()));
            shell.env.go(peers::tend(shell.clone()));
            shell.env.go(report::run(shell.clone()));
            tracing::info!("mon.{name} serves on {addr}");
            Ok(Mon { shell })
        })
    }

    /// Answers a command of the admin socket or of `ceph tell`.
    pub fn admin_command(&self, map: &CommandMap, input: Bytes) -> CommandReply {
        self.shell.admin_command(map, input)
    }

    /// Signatures of the commands [`Mon::admin_command`] answers.
    pub fn admin_signatures(&self) -> command::CommandTable {
        crate::commands::admin_table()
    }

    /// The daemon's options.
    pub fn config(&self) -> Rc<Config> {
        self.shell.conf.clone()
    }

    /// Why the monitor stopped by itself, if it did: its database failed, or it was removed.
    pub fn failure(&self) -> Option<String> {
        self.shell.failure.borrow().clone()
    }

    /// How to learn now and then what the store takes and its file system has left: of a store in
    /// memory there is nothing to learn.
    pub fn watch_disk(&self, probe: impl Fn() -> Option<Disk> + 'static) {
        *self.shell.disk_probe.borrow_mut() = Some(Box::new(probe));
    }

    /// How lines of the cluster log are appended to a file, or written to standard error: nobody does without.
    pub fn write_log(&self, append: impl Fn(Option<&str>, &str) + 'static) {
        *self.shell.log_writer.borrow_mut() = Some(Box::new(append));
    }

    /// Completes when the monitor has stopped by itself.
    pub async fn failed(&self) -> String {
        let failure = || self.shell.failure.borrow().clone();
        self.shell.failed.until(|| failure().is_some()).await;
        failure().unwrap_or_default()
    }

    /// Commits what is pending, lets another monitor lead, and ends all sessions.
    pub async fn shutdown(&self) {
        if !self.shell.stopped.get() {
            self.shell.flush().await;
            self.shell.hand_over().await;
        }
        self.shell.stop();
    }
}

impl Shell {
    fn own_disk(&self) -> Option<Disk> {
        self.disk_probe.borrow().as_ref().and_then(|probe| probe())
    }
}

fn read_clocks(env: &Env) -> Now {
    Now { wall: UTime::from_duration(env.wall_clock()), mono: env.now() }
}

fn timing_of(rank: usize) -> Timing {
    let rank = u32::try_from(rank).unwrap_or(0).min(16);
    Timing { stagger: STAGGER * rank, ..Timing::default() }
}

/// Daemons and clients reach a monitor over lossy sessions; they connect, it does not.
fn policies() -> Policies {
    let server = Policy::stateless_server();
    Policies::new(server.clone())
        .with(entity::MON, Policy::lossless_peer_reuse())
        .with(entity::OSD, server.clone().throttled(400 << 20, 100_000))
        .with(entity::CLIENT, server.throttled(100 << 20, 100_000))
}

impl Shell {
    /// Reads the state, if there is a whole one.
    fn load_core(self: &Rc<Shell>) -> Result<(), LoadError> {
        if self.core.borrow().is_some() || !self.replica.is_whole() {
            return Ok(());
        }
        let env = self.env.clone();
        let fill = Box::new(move |buf: &mut [u8]| env.fill_random(buf));
        let (identity, conf) = (self.identity.clone(), self.conf.clone());
        let (counters, now) = (self.counters.clone(), read_clocks(&self.env));
        let core = MonCore::load(identity, conf, self.kv.clone(), fill, counters, now)?;
        self.take_monmap(core.monmap());
        *self.core.borrow_mut() = Some(core);
        Ok(())
    }

    /// The core goes: its state is replaced by another monitor's.
    fn drop_core(self: &Rc<Shell>) {
        if self.core.borrow().is_none() {
            return;
        }
        // While there is a core there is a leader to be told that its clients' sessions end.
        self.drop_clients();
        *self.core.borrow_mut() = None;
        if let Ok(keys) = crate::auth::load_keys(&*self.kv, &self.conf) {
            *self.first_keys.borrow_mut() = Rc::new(RefCell::new(keys));
        }
    }

    /// Ends the sessions of all clients: they find a monitor that can serve them.
    fn drop_clients(self: &Rc<Shell>) {
        let all = std::mem::take(&mut *self.connections.borrow_mut());
        for (id, con) in all {
            con.mark_down();
            self.client_gone(id);
        }
    }

    /// The keys by which peers are judged.
    fn keys(&self) -> Rc<RefCell<KeyServer>> {
        match &*self.core.borrow() {
            Some(core) => core.key_server(),
            None => self.first_keys.borrow().clone(),
        }
    }

    fn role(&self) -> Role {
        self.core.borrow().as_ref().map_or(Role::Out, MonCore::role)
    }

    /// Whether a client that knocks now has prospects here: a monitor cut off from the others has
    /// nothing to offer. One that an operator took out of the quorum still tells how it is; who wants
    /// more is sent away by his first request (`router.rs`).
    fn admits_clients(&self) -> bool {
        const PATIENCE: Duration = Duration::from_secs(4);
        let now = self.env.now();
        let lately = self.out_since.get().is_none_or(|since| now < since + PATIENCE);
        let core = self.core.borrow();
        (lately || self.exited.get()) && core.as_ref().is_some_and(MonCore::has_global_ids)
    }

    /// An id for somebody new.
    fn new_global_id(self: &Rc<Shell>) -> Option<u64> {
        let id = self.core.borrow_mut().as_mut()?.new_global_id();
        // Giving out an id may have made a reservation due.
        self.feed(Event::Timer);
        id
    }

    /// Steps the core and performs what it wants; events that come meanwhile follow.
    fn feed(self: &Rc<Shell>, event: Event) {
        if self.stopped.get() {
            return;
        }
        self.queue.borrow_mut().push_back(event);
        if self.stepping.replace(true) {
            return;
        }
        loop {
            let Some(event) = self.queue.borrow_mut().pop_front() else { break };
            let now = read_clocks(&self.env);
            let effects = match &mut *self.core.borrow_mut() {
                Some(core) => core.step(now, event),
                None => Vec::new(),
            };
            self.perform(effects);
        }
        self.stepping.set(false);
    }

    /// Commits all that is pending, now.
    async fn flush(self: &Rc<Shell>) {
        const PATIENCE: Duration = Duration::from_secs(2);
        for _ in 0..8 {
            let now = read_clocks(&self.env);
            let effects = match &mut *self.core.borrow_mut() {
                Some(core) if core.role() == Role::Leader => core.flush(now),
                _ => return,
            };
            let mut proposed = false;
            let mut rest = Vec::new();
            for effect in effects {
                match effect {
                    Effect::Propose(batch) => {
                        proposed = true;
                        let commit = self.replica.propose(batch);
                        if let Err(error) = self.run_log() {
                            return self.fail(error.to_string());
                        }
                        if !matches!(self.env.timeout(PATIENCE, commit).await, Ok(Ok(_))) {
                            return;
                        }
                    }
                    other => rest.push(other),
                }
            }
            self.perform(rest);
            if !proposed {
                return;
            }
            self.feed(Event::Committed);
        }
    }

    fn perform(self: &Rc<Shell>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(to, message) => self.send_client(to, message),
                Effect::Close(id) => self.close_client(id),
                Effect::Done(session, seq) => self.request_done(session, seq),
                Effect::Propose(batch) => {
                    let shell = self.clone();
                    let term = self.standing_term();
                    let commit = self.replica.propose(batch);
                    self.wake_pump();
                    self.env.spawn(Box::pin(async move {
                        match commit.await {
                            // A leader that was another meanwhile has forgotten the batch.
                            Ok(_) if shell.standing_term() != term => {}
                            Ok(_) => shell.feed(Event::Committed),
                            // The core hears of it by its new place.
                            Err(LogError::NotLeader) => {}
                            Err(error) => shell.fail(error.to_string()),
                        }
                    }));
                }
                Effect::AskMgr(session, tid, command) => self.ask_mgr(session, tid, command),
                Effect::WantIds => self.send_leader(&crate::peer::PeerMessage::WantIds),
                Effect::GrantIds(whom, (from, to)) => {
                    self.send_peer(
                        quorum::MemberId(whom),
                        &crate::peer::PeerMessage::Ids { from, to },
                    );
                }
                Effect::WakeAt(at) => self.wake(at),
                Effect::WriteLog(file, text) => {
                    if let Some(append) = &*self.log_writer.borrow() {
                        append(file.as_deref(), &text);
                    }
                }
                Effect::OwnConfig(settings) => {
                    for name in self.conf.set_mon_values(&settings) {
                        tracing::debug!("option {name} from the monitors is not taken");
                    }
                }
            }
        }
    }

    fn wake(self: &Rc<Shell>, at: Duration) {
        if self.wake_at.get().is_some_and(|set| set <= at) {
            return;
        }
        self.wake_at.set(Some(at));
        let shell = self.clone();
        self.env.spawn(Box::pin(async move {
            shell.env.sleep_until(at).await;
            // A sooner one may have been set since; then this one is over.
            if shell.wake_at.get() == Some(at) {
                shell.wake_at.set(None);
                shell.feed(Event::Timer);
            }
        }));
    }

    fn fail(self: &Rc<Shell>, why: String) {
        tracing::error!("the monitor stops: {why}");
        *self.failure.borrow_mut() = Some(why);
        self.stop();
        self.failed.notify_all();
    }

    fn stop(self: &Rc<Shell>) {
        self.stopped.set(true);
        self.connections.borrow_mut().clear();
        self.queue.borrow_mut().clear();
        self.messenger.shutdown();
        self.to_mgr.stop();
        self.pump.notify_all();
    }

    fn admin_command(self: &Rc<Shell>, map: &CommandMap, input: Bytes) -> CommandReply {
        match map.prefix() {
            "quorum exit" => {
                // Alone it would be no quorum: as Ceph's, it wins its election all the same.
                let core = self.core.borrow();
                let is_alone = core.as_ref().is_some_and(|core| core.monmap.size() == 1);
                drop(core);
                if !is_alone {
                    self.set_exited(true);
                }
                return CommandReply::text("stopped responding to quorum, initiated new election");
            }
            "quorum enter" => {
                self.set_exited(false);
                return CommandReply::text("started responding to quorum, initiated new election");
            }
            _ => {}
        }
        match &mut *self.core.borrow_mut() {
            Some(core) => core.admin_command(map, input),
            None => CommandReply::error(
                Errno::EAGAIN.0,
                "this monitor copies its state from another one (synchronizing)",
            ),
        }
    }
}

/// Where the messenger knocks.
struct Door {
    shell: Rc<Shell>,
}

impl Door {
    fn is_mon(con: &Connection) -> bool {
        con.peer_kind() == entity::MON
    }

    /// Whether a connection that says it is a monitor's is one: accepted ones have proved it.
    fn may_be_mon(con: &Connection) -> bool {
        con.peer_auth_name().is_none_or(|name| name.kind_u8() == entity::MON && name.id.is_empty())
    }

    fn opened(&self, con: &Connection) {
        if Door::is_mon(con) {
            match Door::may_be_mon(con) {
                true => self.shell.peer_connected(con),
                false => con.mark_down(),
            }
            return;
        }
        let Some(auth_name) = con.peer_auth_name() else { return };
        if self.shell.core.borrow().is_none() {
            return con.mark_down();
        }
        let peer = Peer {
            name: con.peer_name(),
            auth_name,
            caps: con.peer_caps(),
            global_id: con.peer_global_id(),
            addrs: con.peer_addrs(),
            socket_addr: con.peer_socket_addr(),
            features: con.features(),
            handshake: con.auth_state().and_then(|state| state.downcast().ok()),
        };
        self.shell.connections.borrow_mut().insert(con.id(), con.clone());
        self.shell.client_came(con.id(), Rc::new(peer));
    }

    fn closed(&self, con: &Connection) {
        if Door::is_mon(con) {
            return self.shell.peer_lost(con);
        }
        self.shell.connections.borrow_mut().remove(&con.id());
        self.shell.client_gone(con.id());
    }
}

/// The answer to a command that is longer than [`REQUEST_BYTES_MAX`]; of other messages there is none.
fn too_long(message: &RawMessage, len: usize) -> Option<RawMessage> {
    if message.header.kind != MMonCommand::TYPE {
        return None;
    }
    let cmd = MMonCommand::decode(message).ok()?.cmd;
    let outs = format!("{len} bytes with the input are too long: {REQUEST_BYTES_MAX} at most");
    let ack = MMonCommandAck { rc: -Errno::EFBIG.0, outs, cmd, ..MMonCommandAck::default() };
    Some(ack.encode().with_tid(message.header.tid))
}

impl Dispatcher for Door {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        if Door::is_mon(con) {
            if Door::may_be_mon(con) {
                self.shell.on_peer_message(con, &incoming.into_message());
            }
            return;
        }
        let len = incoming.message.payload_len();
        if len <= REQUEST_BYTES_MAX {
            return self.shell.on_client_message(con.id(), incoming);
        }
        match too_long(&incoming.message, len) {
            Some(answer) => {
                con.send(answer);
            }
            None => {
                tracing::warn!("{con:?}: a message of {len} bytes is more than monitors take");
                con.mark_down();
                self.closed(con);
            }
        }
    }

    fn on_accept(&self, con: &Connection) {
        self.opened(con);
    }

    fn on_connect(&self, con: &Connection) {
        self.opened(con);
    }

    fn on_reset(&self, con: &Connection) {
        self.closed(con);
    }

    fn on_remote_reset(&self, con: &Connection) {
        self.closed(con);
    }
}
