//! A session with the monitors, for daemons and clients: finds a monitor that answers, proves who
//! we are, keeps tickets and rotating secrets fresh, keeps subscriptions, and sends commands again
//! after a change of monitor (`src/mon/MonClient.cc` at v16.2).
//!
//! It owns everything about authentication of its messenger: it is the messenger's `AuthClient`
//! (tickets for the monitors' peers) and, for daemons, its `AuthServer` (opens tickets of others
//! with the rotating secrets). Its owner remains the messenger's dispatcher and passes on what
//! concerns monitors: [`MonClient::on_message`], [`MonClient::on_connection`].

mod credentials;
mod osd_maps;
mod session;
mod settings;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use auth::cephx::CephxClient;
use auth::{AuthError, RotatingSecrets};
use bytes::Bytes;
use env::Env;
use env::sync::{Notify, Sender, oneshot};
use maps::MonMap;
use messages::{
    MConfig, MMonCommand, MMonCommandAck, MMonGetVersion, MMonGetVersionReply, MMonMap,
    MMonSubscribe, Message, SUBSCRIBE_ONETIME, SubscribeItem,
};
use msgr::{Connection, Incoming, Messenger};
use types::entity::MON;
use types::{AddrVec, AuthEntityName, RawMessage, UTime, Uuid};

pub use credentials::Credentials;
pub use osd_maps::OsdMaps;
pub use settings::{Settings, SettingsError, parse_mon_host};

/// Commands and version questions under way at a time; more are refused with EAGAIN.
pub const REQUESTS_MAX: usize = 4096;

/// What the owner is told. Calls come from inside message dispatch: return soon.
pub trait MonEvents {
    /// A session with a monitor is open (again); subscriptions and requests have been resent.
    fn on_session(&self) {}
    /// The monitors' configuration for us.
    fn on_config(&self, config: BTreeMap<String, String>) {
        let _ = config;
    }
    /// The encoded monmap.
    fn on_monmap(&self, monmap: Bytes) {
        let _ = monmap;
    }
}

/// An answer to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandAnswer {
    /// 0 or a negative errno.
    pub rc: i32,
    /// Status text.
    pub outs: String,
    /// Output.
    pub outb: Bytes,
    /// Version of the map that shows the command's effect.
    pub version: u64,
}

struct PendingCommand {
    cmd: Vec<String>,
    input: Bytes,
    answer: Sender<CommandAnswer>,
}

struct PendingVersion {
    what: String,
    answer: Sender<(u64, u64)>,
}

struct Inner {
    env: Env,
    messenger: Messenger,
    settings: Settings,
    events: RefCell<Option<Rc<dyn MonEvents>>>,
    cephx: RefCell<CephxClient>,
    rotating: RefCell<RotatingSecrets>,
    /// The method the monitors took last.
    method: Cell<u32>,
    global_id: Cell<u64>,
    fsid: Cell<Uuid>,
    monmap_epoch: Cell<u32>,
    mons: RefCell<Vec<AddrVec>>,
    /// The connection that is being tried or used.
    trying: RefCell<Option<Connection>>,
    open: Cell<bool>,
    stopped: Cell<bool>,
    last_error: RefCell<Option<AuthError>>,
    changed: Notify,
    /// One entry a map: a dozen names exist.
    wanted: RefCell<BTreeMap<String, SubscribeItem>>,
    commands: RefCell<BTreeMap<u64, PendingCommand>>,
    versions: RefCell<BTreeMap<u64, PendingVersion>>,
    next_tid: Cell<u64>,
}

/// See the crate's documentation. Clones are the same session.
#[derive(Clone)]
pub struct MonClient(Rc<Inner>);

impl core::fmt::Debug for MonClient {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "MonClient of {}", self.0.settings.name)
    }
}

impl MonClient {
    /// Takes charge of the messenger's authentication. Nothing is sent before [`MonClient::start`].
    pub fn new(env: Env, messenger: Messenger, settings: Settings) -> MonClient {
        let key = settings.key.clone().unwrap_or_default();
        let inner = Inner {
            cephx: RefCell::new(CephxClient::new(settings.name.clone(), key)),
            mons: RefCell::new(settings.mon_host.clone()),
            method: Cell::new(
                settings
                    .methods
                    .first()
                    .copied()
                    .unwrap_or(auth::METHOD_CEPHX),
            ),
            env,
            messenger: messenger.clone(),
            settings,
            events: RefCell::default(),
            rotating: RefCell::default(),
            global_id: Cell::default(),
            fsid: Cell::default(),
            monmap_epoch: Cell::default(),
            trying: RefCell::default(),
            open: Cell::default(),
            stopped: Cell::default(),
            last_error: RefCell::default(),
            changed: Notify::default(),
            wanted: RefCell::default(),
            commands: RefCell::default(),
            versions: RefCell::default(),
            next_tid: Cell::new(1),
        };
        let monc = MonClient(Rc::new(inner));
        let credentials = Rc::new(Credentials::new(&monc));
        messenger.set_auth_client(credentials.clone());
        if monc.0.settings.is_service {
            messenger.set_auth_server(credentials);
        }
        monc
    }

    /// Looks for a monitor, from now until [`MonClient::stop`].
    pub fn start(&self, events: Rc<dyn MonEvents>) {
        *self.0.events.borrow_mut() = Some(events);
        self.0.env.go(session::hunt(self.clone()));
        self.0.env.go(session::keep_fresh(self.clone()));
    }

    /// Ends the session; requests under way get no answer.
    pub fn stop(&self) {
        self.0.stopped.set(true);
        if let Some(con) = self.0.trying.borrow_mut().take() {
            con.mark_down();
        }
        self.0.open.set(false);
        self.0.commands.borrow_mut().clear();
        self.0.versions.borrow_mut().clear();
        self.0.events.borrow_mut().take();
        self.0.changed.notify_all();
    }

    /// Completes when a session is open; for a service, when it has its rotating secrets, too.
    /// Fails at once when the monitors refuse us.
    pub async fn authenticated(&self) -> Result<(), AuthError> {
        loop {
            if self.is_open() && (!self.needs_rotating() || self.has_rotating()) {
                return Ok(());
            }
            if let Some(error) = self.refusal() {
                return Err(error);
            }
            self.0.changed.notified().await;
        }
    }

    fn refusal(&self) -> Option<AuthError> {
        self.0.last_error.borrow().clone().filter(|e| {
            matches!(
                e,
                AuthError::Refused { .. } | AuthError::Sealed | AuthError::Method { .. }
            )
        })
    }

    /// Why the last attempt failed.
    pub fn last_error(&self) -> Option<AuthError> {
        self.0.last_error.borrow().clone()
    }

    /// Whether a monitor is connected.
    pub fn is_open(&self) -> bool {
        self.0.open.get()
    }

    /// Our number in the cluster, 0 before the first session.
    pub fn global_id(&self) -> u64 {
        self.0.global_id.get()
    }

    /// Our name.
    pub fn name(&self) -> &AuthEntityName {
        &self.0.settings.name
    }

    /// The cluster, once [`MonClient::set_fsid`] has said it.
    pub fn fsid(&self) -> Uuid {
        self.0.fsid.get()
    }

    /// Commands and questions carry this.
    pub fn set_fsid(&self, fsid: Uuid) {
        self.0.fsid.set(fsid);
    }

    /// Replaces the monitors to try (from a new monmap).
    pub fn set_mons(&self, mons: Vec<AddrVec>, epoch: u32) {
        self.0.monmap_epoch.set(epoch);
        if !mons.is_empty() {
            *self.0.mons.borrow_mut() = mons;
        }
    }

    /// Sends a message to the monitor in session; dropped when there is none (daemons repeat what
    /// matters in [`MonEvents::on_session`]).
    pub fn send(&self, message: RawMessage) {
        if let (true, Some(con)) = (self.is_open(), self.0.trying.borrow().as_ref()) {
            con.send(message);
        }
    }

    /// Subscribes: `start` is the first version wanted (0: whatever is current).
    pub fn subscribe(&self, what: &str, start: u64, onetime: bool) {
        let flags = if onetime { SUBSCRIBE_ONETIME } else { 0 };
        let item = SubscribeItem { start, flags };
        let old = self.0.wanted.borrow_mut().insert(what.to_owned(), item);
        if old != Some(item) {
            self.send_subscriptions([(what.to_owned(), item)].into());
        }
    }

    /// As [`MonClient::subscribe`], and asks even if the same was asked for before.
    pub fn subscribe_again(&self, what: &str, start: u64, onetime: bool) {
        self.0.wanted.borrow_mut().remove(what);
        self.subscribe(what, start, onetime);
    }

    /// A version has come: later sessions ask for what follows it.
    pub fn got(&self, what: &str, version: u64) {
        let mut wanted = self.0.wanted.borrow_mut();
        if let Some(item) = wanted.get_mut(what) {
            if item.flags & SUBSCRIBE_ONETIME != 0 {
                if version >= item.start {
                    wanted.remove(what);
                }
            } else {
                item.start = version + 1;
            }
        }
    }

    fn send_subscriptions(&self, what: BTreeMap<String, SubscribeItem>) {
        if !what.is_empty() {
            let hostname = self.0.settings.hostname.clone();
            self.send(MMonSubscribe { what, hostname }.encode());
        }
    }

    fn new_tid(&self) -> u64 {
        let tid = self.0.next_tid.get();
        self.0.next_tid.set(tid + 1);
        tid
    }

    /// Runs a command at the monitors; `None` when the session was stopped first or too many are
    /// under way.
    pub async fn command(&self, cmd: Vec<String>, input: Bytes) -> Option<CommandAnswer> {
        if self.0.commands.borrow().len() >= REQUESTS_MAX || self.0.stopped.get() {
            return None;
        }
        let tid = self.new_tid();
        let (answer, reply) = oneshot();
        self.0
            .commands
            .borrow_mut()
            .insert(tid, PendingCommand { cmd, input, answer });
        self.send_command(tid);
        reply.await.ok()
    }

    fn send_command(&self, tid: u64) {
        let message = self
            .0
            .commands
            .borrow()
            .get(&tid)
            .map(|pending| MMonCommand {
                fsid: self.0.fsid.get(),
                cmd: pending.cmd.clone(),
                input: pending.input.clone(),
                ..MMonCommand::default()
            });
        if let Some(message) = message {
            self.send(message.encode().with_tid(tid));
        }
    }

    /// The newest and the oldest version of a map at the monitors.
    pub async fn map_version(&self, what: &str) -> Option<(u64, u64)> {
        if self.0.versions.borrow().len() >= REQUESTS_MAX || self.0.stopped.get() {
            return None;
        }
        let tid = self.new_tid();
        let (answer, reply) = oneshot();
        self.0.versions.borrow_mut().insert(
            tid,
            PendingVersion {
                what: what.to_owned(),
                answer,
            },
        );
        self.send_version(tid);
        reply.await.ok()
    }

    fn send_version(&self, tid: u64) {
        let message = self
            .0
            .versions
            .borrow()
            .get(&tid)
            .map(|pending| MMonGetVersion {
                handle: tid,
                what: pending.what.clone(),
            });
        if let Some(message) = message {
            self.send(message.encode());
        }
    }

    fn events(&self) -> Option<Rc<dyn MonEvents>> {
        self.0.events.borrow().clone()
    }

    fn now(&self) -> UTime {
        UTime::from_duration(self.0.env.wall_clock())
    }

    /// Pass every message here first: what belongs to the monitor session is taken.
    pub fn on_message(&self, con: &Connection, incoming: Incoming) -> Option<Incoming> {
        if con.peer_kind() != MON {
            return Some(incoming);
        }
        let raw = &incoming.message;
        let taken = match raw.header.kind {
            MMonCommandAck::TYPE => {
                MMonCommandAck::decode(raw).map(|m| self.on_command_ack(raw, m))
            }
            MMonGetVersionReply::TYPE => MMonGetVersionReply::decode(raw).map(|m| {
                if let Some(pending) = self.0.versions.borrow_mut().remove(&m.handle) {
                    pending.answer.send((m.version, m.oldest_version));
                }
            }),
            MConfig::TYPE => MConfig::decode(raw).map(|m| {
                if let Some(events) = self.events() {
                    events.on_config(m.config);
                }
            }),
            MMonMap::TYPE => MMonMap::decode(raw).map(|m| {
                self.on_monmap(&m.monmap);
                if let Some(events) = self.events() {
                    events.on_monmap(m.monmap);
                }
            }),
            messages::MAuthReply::TYPE => {
                messages::MAuthReply::decode(raw).map(|m| self.on_auth_reply(&m))
            }
            messages::MMonSubscribeAck::TYPE => Ok(()),
            _ => return Some(incoming),
        };
        if let Err(error) = taken {
            tracing::warn!("monitor message of type {}: {error}", raw.header.kind);
        }
        None
    }

    fn on_monmap(&self, bytes: &Bytes) {
        match <MonMap as denc::Denc>::from_bytes(bytes) {
            Ok(map) => {
                self.set_fsid(map.fsid);
                self.got("monmap", map.epoch.into());
                let v2 = map.mon_info.values().filter_map(|m| m.public_addrs.msgr2());
                self.set_mons(v2.map(|addr| AddrVec::of(*addr)).collect(), map.epoch);
                self.0.changed.notify_all();
            }
            Err(error) => tracing::warn!("a monmap does not decode: {error}"),
        }
    }

    fn on_command_ack(&self, raw: &RawMessage, ack: MMonCommandAck) {
        if let Some(pending) = self.0.commands.borrow_mut().remove(&raw.header.tid) {
            pending.answer.send(CommandAnswer {
                rc: ack.rc,
                outs: ack.outs,
                outb: ack.outb,
                version: ack.paxos.version,
            });
        }
    }

    /// Pass `on_connect`, `on_reset` and `on_refused` of the messenger here; true when the
    /// connection is this session's.
    pub fn on_connection(&self, con: &Connection) -> bool {
        let ours = self
            .0
            .trying
            .borrow()
            .as_ref()
            .is_some_and(|c| c.id() == con.id());
        if ours {
            self.0.changed.notify_all();
        }
        ours
    }

    /// How long one monitor gets to answer before the next is tried (`mon_client_hunt_interval`).
    pub const HUNT_INTERVAL: Duration = Duration::from_secs(3);
}
