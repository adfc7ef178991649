//! The daemon: connections, the clock and the database around the core.

mod auth_server;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use command::{CommandMap, CommandReply};
use config::Config;
use env::Env;
use msgr::{Connection, Dispatcher, Incoming, Messenger, Policies, Policy};
use store::Kv;
use types::{EntityName, UTime, entity};

use crate::core::{Identity, LoadError, MonCore};
use crate::event::{Effect, Event, Now, Peer, SessionId};
use crate::log::{LocalLog, Log};

/// Connections are counted from here in the core, so that 0 is nobody.
type Connections = BTreeMap<SessionId, Connection>;

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
                write!(
                    f,
                    "mon.{name} is not in the monitor map, or has no v2 address there"
                )
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

pub(self) struct Shell {
    env: Env,
    conf: Rc<Config>,
    core: RefCell<MonCore>,
    log: Rc<dyn Log>,
    messenger: Messenger,
    connections: RefCell<Connections>,
    /// The wake-up now set; later ones only if sooner.
    wake_at: Cell<Option<Duration>>,
    /// Events that came while the core was stepped, or while effects were performed.
    queue: RefCell<std::collections::VecDeque<Event>>,
    stepping: Cell<bool>,
    stopped: Cell<bool>,
    /// Why the monitor stopped by itself.
    failure: RefCell<Option<String>>,
}

impl Mon {
    /// Starts the monitor of this database: recovers, commits what a new leader must, listens on
    /// its address in the monitor map.
    pub async fn start(
        env: Env,
        conf: Rc<Config>,
        kv: Rc<dyn Kv>,
        identity: Identity,
    ) -> Result<Mon, StartError> {
        let log = LocalLog::new(kv.clone()).map_err(|e| StartError::Load(e.into()))?;
        let name = identity.name.clone();
        let fill = {
            let env = env.clone();
            Box::new(move |buf: &mut [u8]| env.fill_random(buf))
        };
        let now = read_clocks(&env);
        let core =
            MonCore::load(identity, conf.clone(), kv, fill, now).map_err(StartError::Load)?;
        let rank = core.monmap().rank_of(&name);
        let own = core
            .monmap()
            .mon_info
            .get(&name)
            .map(|mon| mon.public_addrs.clone());
        let addr = own
            .as_ref()
            .and_then(|addrs| addrs.msgr2().and_then(|addr| addr.sock));
        let (Some(rank), Some(own), Some(addr)) = (rank, own, addr) else {
            return Err(StartError::NotInMap { name });
        };
        let policies = policies();
        let own_name = EntityName::mon(rank as i64);
        let messenger = Messenger::new(env.clone(), msgr::Config::new(own_name, 0, policies));
        let shell = Rc::new(Shell {
            env,
            conf,
            core: RefCell::new(core),
            log: Rc::new(log),
            messenger: messenger.clone(),
            connections: RefCell::default(),
            wake_at: Cell::new(None),
            queue: RefCell::default(),
            stepping: Cell::new(false),
            stopped: Cell::new(false),
            failure: RefCell::new(None),
        });
        // Ids and secrets first: nobody may be let in before they are committed.
        shell.flush().await;
        messenger.set_auth_server(Rc::new(auth_server::MonAuthServer {
            shell: shell.clone(),
        }));
        messenger.set_dispatcher(Rc::new(Door {
            shell: shell.clone(),
        }));
        messenger.bind(addr).map_err(|error| StartError::Bind {
            addr: addr.to_string(),
            error,
        })?;
        messenger.set_addrs(own);
        tracing::info!("mon.{name} serves on {addr}");
        Ok(Mon { shell })
    }

    /// Answers a command of the admin socket or of `ceph tell`.
    pub fn admin_command(&self, map: &CommandMap, input: Bytes) -> CommandReply {
        self.shell.core.borrow_mut().admin_command(map, input)
    }

    /// Signatures of the commands [`Mon::admin_command`] answers.
    pub fn admin_signatures(&self) -> command::CommandTable {
        crate::commands::admin_table()
    }

    /// The daemon's options.
    pub fn config(&self) -> Rc<Config> {
        self.shell.conf.clone()
    }

    /// Why the monitor stopped by itself, if it did: its database failed.
    pub fn failure(&self) -> Option<String> {
        self.shell.failure.borrow().clone()
    }

    /// Commits what is pending and ends all sessions.
    pub async fn shutdown(&self) {
        if !self.shell.stopped.get() {
            self.shell.flush().await;
        }
        self.shell.stop();
    }
}

fn read_clocks(env: &Env) -> Now {
    Now {
        wall: UTime::from_duration(env.wall_clock()),
        mono: env.now(),
    }
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
    /// An id for somebody new.
    fn new_global_id(self: &Rc<Shell>) -> Option<u64> {
        let id = self.core.borrow_mut().new_global_id();
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
            let Some(event) = self.queue.borrow_mut().pop_front() else {
                break;
            };
            let effects = self.core.borrow_mut().step(read_clocks(&self.env), event);
            self.perform(effects);
        }
        self.stepping.set(false);
    }

    /// Commits all that is pending, now.
    async fn flush(self: &Rc<Shell>) {
        for _ in 0..8 {
            let effects = self.core.borrow_mut().flush(read_clocks(&self.env));
            let mut proposed = false;
            let mut rest = Vec::new();
            for effect in effects {
                match effect {
                    Effect::Propose(batch) => {
                        proposed = true;
                        if let Err(error) = self.log.propose(batch).await {
                            self.fail(error.to_string());
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
            let effects = self
                .core
                .borrow_mut()
                .step(read_clocks(&self.env), Event::Committed);
            self.perform(effects);
        }
    }

    fn perform(self: &Rc<Shell>, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(to, message) => {
                    if let Some(con) = self.connections.borrow().get(&to) {
                        con.send(message);
                    }
                }
                Effect::Close(id) => {
                    let con = self.connections.borrow_mut().remove(&id);
                    if let Some(con) = con {
                        con.mark_down();
                    }
                }
                Effect::Propose(batch) => {
                    let shell = self.clone();
                    let commit = self.log.propose(batch);
                    self.env.spawn(Box::pin(async move {
                        match commit.await {
                            Ok(_) => shell.feed(Event::Committed),
                            Err(error) => shell.fail(error.to_string()),
                        }
                    }));
                }
                Effect::WakeAt(at) => self.wake(at),
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
    }

    fn stop(self: &Rc<Shell>) {
        self.stopped.set(true);
        self.connections.borrow_mut().clear();
        self.queue.borrow_mut().clear();
        self.messenger.shutdown();
    }
}

/// Where the messenger knocks.
struct Door {
    shell: Rc<Shell>,
}

impl Door {
    fn opened(&self, con: &Connection) {
        let Some(auth_name) = con.peer_auth_name() else {
            return;
        };
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
        self.shell
            .connections
            .borrow_mut()
            .insert(con.id(), con.clone());
        self.shell.feed(Event::Opened(con.id(), Rc::new(peer)));
    }

    fn closed(&self, con: &Connection) {
        self.shell.connections.borrow_mut().remove(&con.id());
        self.shell.feed(Event::Closed(con.id()));
    }
}

impl Dispatcher for Door {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        self.shell
            .feed(Event::Message(con.id(), incoming.into_message()));
    }

    fn on_accept(&self, con: &Connection) {
        self.opened(con);
    }

    fn on_reset(&self, con: &Connection) {
        self.closed(con);
    }

    fn on_remote_reset(&self, con: &Connection) {
        self.closed(con);
    }
}
