//! The client: hunts for a monitor, keeps one session, loses it, hunts again.
//!
//! ```text
//! hunting: up to `hunt_parallel` connections in random order --first ready--> session
//! session: subscriptions renewed, requests sent (again)      --reset, silence--> hunting
//! ```
//!
//! Facts: src/mon/MonClient.cc at v16.2.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::{Rc, Weak};
use std::time::Duration;

use auth::cephx::CephxClient;
use auth::{METHOD_CEPHX, RotatingSecrets};
use denc::Denc;
use env::Env;
use env::sync::Notify;
use maps::MonMap;
use messages::{MAuth, MMonSubscribe, Message};
use msgr::{AuthClient, AuthServer, Connection, Messenger};
use types::addr::{AddrVec, EntityAddr};
use types::entity::{self, EntityName};
use types::errno::Errno;
use types::message::RawMessage;
use types::time::UTime;

use crate::credentials::{Checker, Prover, RotatingStore};
use crate::requests::Requests;
use crate::settings::Settings;
use crate::subs::Subs;

/// Messages kept while there is no session; beyond that the oldest is dropped.
const QUEUE_MAX: usize = 10_000;
/// Pause before others are tried when no attempt is left.
const HUNT_PAUSE: Duration = Duration::from_millis(100);
/// Pause before a map is asked for again that did not decode.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Pause between two requests for rotating secrets.
const ROTATING_PAUSE: Duration = Duration::from_secs(1);

/// Told what the monitors say. Called from the connection's task: return soon.
pub trait MonEvents {
    /// A session is open (again). Subscriptions and commands have been sent (again) already; other
    /// requests that were open are the owner's to send again.
    fn on_session(&self, con: &Connection) {
        let _ = con;
    }
    /// The session broke; another one is being looked for.
    fn on_session_lost(&self) {}
    /// A newer monmap.
    fn on_monmap(&self, monmap: &Rc<MonMap>) {
        let _ = monmap;
    }
    /// Our options as the monitors have them: all that differ from the defaults.
    fn on_config(&self, config: BTreeMap<String, String>) {
        let _ = config;
    }
}

/// Why something asked of the monitors will not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MonError {
    /// The monitors do not accept our name and key.
    Refused(Errno),
    /// The answer does not decode.
    Decode(denc::Error),
    /// The client was shut down.
    Closed,
    /// There is no such monitor.
    NoSuchMon,
}

impl core::fmt::Display for MonError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            MonError::Refused(errno) => write!(f, "the monitors refuse us: {errno:?}"),
            MonError::Decode(error) => write!(f, "an answer does not decode: {error}"),
            MonError::Closed => f.write_str("shut down"),
            MonError::NoSuchMon => f.write_str("no such monitor"),
        }
    }
}

impl std::error::Error for MonError {}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) monmap: Option<Rc<MonMap>>,
    /// The session.
    pub(crate) active: Option<Connection>,
    /// Attempts; at most `hunt_parallel`.
    hunting: Vec<Connection>,
    /// What attempts have gained that are authenticated and not ready yet, by connection.
    proven: BTreeMap<u64, Proven>,
    pub(crate) cephx: Option<CephxClient>,
    pub(crate) used_method: Option<u32>,
    pub(crate) global_id: u64,
    pub(crate) subs: Subs,
    /// Maps that are asked for again after a pause.
    wanted_later: BTreeSet<&'static str>,
    pub(crate) requests: Requests,
    /// Messages sent before there was a session; at most [`QUEUE_MAX`].
    queue: VecDeque<RawMessage>,
    refusal: Option<Errno>,
    /// Refused in this hunt, without anything of before that might have been why.
    refused_as_new: bool,
    /// A monitor of this hunt refused us; others have not answered yet.
    hunt_refusal: Option<Errno>,
    last_rotating_request: Option<Duration>,
    /// Services whose ticket was refused (bits).
    stale_tickets: u32,
    session_since: Duration,
    /// The session's monitor has said something but about tickets.
    pub(crate) heard: bool,
}

struct Proven {
    method: u32,
    global_id: u64,
    cephx: Option<CephxClient>,
}

pub(crate) struct Inner {
    pub(crate) env: Env,
    pub(crate) messenger: Messenger,
    pub(crate) settings: Settings,
    events: RefCell<Option<Weak<dyn MonEvents>>>,
    pub(crate) state: RefCell<State>,
    pub(crate) rotating: Rc<RotatingStore>,
    /// Something that somebody may wait for has changed.
    pub(crate) changed: Notify,
    pub(crate) stopped: Cell<bool>,
}

/// A session with the monitors. Clones are the same one.
#[derive(Clone)]
pub struct MonClient(pub(crate) Rc<Inner>);

impl core::fmt::Debug for MonClient {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "MonClient({})", self.0.settings.name)
    }
}

impl MonClient {
    /// A client that uses this messenger for its session; begin with [`MonClient::start`]. The
    /// messenger's dispatcher must pass on what it is told (see the crate's head).
    pub fn new(env: Env, messenger: Messenger, settings: Settings) -> MonClient {
        let cephx = settings.key.clone().map(|key| CephxClient::new(settings.name.clone(), key));
        let rotating = RotatingStore { kind: settings.name.kind, ..RotatingStore::default() };
        let state = State { cephx, ..State::default() };
        MonClient(Rc::new(Inner {
            env,
            messenger,
            settings,
            events: RefCell::new(None),
            state: RefCell::new(state),
            rotating: Rc::new(rotating),
            changed: Notify::default(),
            stopped: Cell::new(false),
        }))
    }

    /// Whom to tell. Held weakly.
    pub fn set_events(&self, events: &Rc<dyn MonEvents>) {
        *self.0.events.borrow_mut() = Some(Rc::downgrade(events));
    }

    /// For `Messenger::set_auth_client`, of each messenger of this process.
    pub fn auth_client(&self) -> Rc<dyn AuthClient> {
        Rc::new(Prover(Rc::downgrade(&self.0)))
    }

    /// For `Messenger::set_auth_server`, of a daemon's messengers.
    pub fn auth_server(&self) -> Rc<dyn AuthServer> {
        Rc::new(Checker(Rc::downgrade(&self.0)))
    }

    /// Begins to look for a monitor, and goes on for ever.
    pub fn start(&self) {
        self.0.messenger.set_auth_client(self.auth_client());
        self.0.state.borrow_mut().subs.want("config", 0, 0);
        self.0.state.borrow_mut().subs.want("monmap", 0, 0);
        self.0.env.go(hunt(self.0.clone()));
        self.0.env.go(tick(self.0.clone()));
    }

    /// Ends everything: open requests fail.
    pub fn shutdown(&self) {
        self.0.stopped.set(true);
        let (cons, requests) = {
            let mut state = self.0.state.borrow_mut();
            let mut cons = core::mem::take(&mut state.hunting);
            cons.extend(state.active.take());
            (cons, core::mem::take(&mut state.requests))
        };
        cons.iter().for_each(Connection::mark_down);
        drop(requests);
        self.0.changed.notify_all();
    }

    /// Completes when the first session is open; fails when the monitors refuse us.
    pub async fn authenticated(&self) -> Result<(), MonError> {
        self.0
            .changed
            .until(|| {
                let state = self.0.state.borrow();
                state.active.is_some() || state.refusal.is_some() || self.0.stopped.get()
            })
            .await;
        let state = self.0.state.borrow();
        match (&state.active, state.refusal) {
            (Some(_), _) => Ok(()),
            (None, Some(errno)) => Err(MonError::Refused(errno)),
            (None, None) => Err(MonError::Closed),
        }
    }

    /// Completes when the own service's rotating secrets are here: from then on peers with tickets
    /// can connect.
    pub async fn rotating_ready(&self) {
        let ready = || !self.0.rotating.secrets.borrow().secrets.is_empty();
        let believed =
            || self.0.state.borrow().used_method.is_some_and(|method| method != METHOD_CEPHX);
        self.0.changed.until(|| ready() || believed() || self.0.stopped.get()).await;
    }

    /// Completes when there is a monmap.
    pub async fn monmap_ready(&self) -> Result<Rc<MonMap>, MonError> {
        let have = || self.0.state.borrow().monmap.clone();
        self.0.changed.until(|| have().is_some() || self.0.stopped.get()).await;
        have().ok_or(MonError::Closed)
    }

    /// The newest monmap seen.
    pub fn monmap(&self) -> Option<Rc<MonMap>> {
        self.0.state.borrow().monmap.clone()
    }

    /// Our number in the cluster; 0 before the first session.
    pub fn global_id(&self) -> u64 {
        self.0.state.borrow().global_id
    }

    /// The own service's rotating secrets.
    pub fn rotating_secrets(&self) -> RotatingSecrets {
        self.0.rotating.secrets.borrow().clone()
    }

    /// When the ticket for a service ends.
    pub fn ticket_expires(&self, service: u8) -> Option<UTime> {
        Some(self.0.state.borrow().cephx.as_ref()?.ticket(service)?.expires)
    }

    /// Renews all service tickets now, as after a change of caps.
    pub fn refresh_tickets(&self) {
        self.0.state.borrow_mut().stale_tickets = self.0.settings.want_keys;
        self.0.changed.notify_all();
    }

    /// Completes when `condition` holds; looked at whenever something of this client changes.
    pub async fn until_changed(&self, condition: impl FnMut() -> bool) {
        self.0.changed.until(condition).await;
    }

    /// The session's connection.
    pub fn session(&self) -> Option<Connection> {
        self.0.state.borrow().active.clone()
    }

    /// Wants a map from version `start` on (0: whatever is current, whole). `flags`:
    /// `messages::SUBSCRIBE_ONETIME` or 0. Sent at once, and again in each new session.
    pub fn subscribe(&self, what: &str, start: u64, flags: u8) {
        let news = self.0.state.borrow_mut().subs.want(what, start, flags);
        if news {
            self.0.send_subs();
        }
    }

    /// Wants a map from version `start` on, told to the monitor even if it has heard the same
    /// wish: what it sent then could not be used.
    pub fn subscribe_again(&self, what: &str, start: u64, once: bool) {
        let flags = if once { messages::SUBSCRIBE_ONETIME } else { 0 };
        self.unsubscribe(what);
        self.subscribe(what, start, flags);
    }

    /// The same after a pause: what came does not decode, and what comes next will hardly be better. Once in
    /// it, however often it is called.
    pub fn subscribe_later(&self, what: &'static str, start: u64, once: bool) {
        if !self.0.state.borrow_mut().wanted_later.insert(what) {
            return;
        }
        let monc = self.clone();
        self.0.env.go(async move {
            monc.0.env.sleep(AGAIN_AFTER).await;
            monc.0.state.borrow_mut().wanted_later.remove(what);
            if !monc.0.stopped.get() {
                monc.subscribe_again(what, start, once);
            }
        });
    }

    /// Does not want a map any more. (A monitor forgets at the end of the session.)
    pub fn unsubscribe(&self, what: &str) {
        self.0.state.borrow_mut().subs.unwant(what);
    }

    /// Version `have` of a map has come: the next session asks from the one after. Call it for
    /// every map that the owner handles itself.
    pub fn got(&self, what: &str, have: u64) {
        self.0.state.borrow_mut().subs.got(what, have);
    }

    /// Sends a message to the monitor; kept until there is a session, not sent again in a later
    /// one.
    pub fn send(&self, message: RawMessage) {
        let mut state = self.0.state.borrow_mut();
        match &state.active {
            Some(con) => con.send(message),
            None => {
                if state.queue.len() >= QUEUE_MAX {
                    state.queue.pop_front();
                }
                state.queue.push_back(message);
            }
        }
    }

    /// Gives the session up and looks for another monitor.
    pub fn reopen(&self) {
        let active = self.0.state.borrow().active.clone();
        if let Some(con) = active {
            con.mark_down();
            self.0.on_lost(&con);
        }
    }

    /// To be called from `Dispatcher::on_connect`.
    pub fn on_connect(&self, con: &Connection) {
        if con.peer_kind() == entity::MON {
            self.0.on_ready(con);
        }
    }

    /// To be called from `Dispatcher::on_reset`.
    pub fn on_reset(&self, con: &Connection) {
        if con.peer_kind() == entity::MON {
            self.0.on_lost(con);
        }
    }
}

impl Inner {
    pub(crate) fn events(&self) -> Option<Rc<dyn MonEvents>> {
        self.events.borrow().as_ref()?.upgrade()
    }

    fn now_utime(&self) -> UTime {
        UTime::from_duration(self.env.wall_clock())
    }

    /// An attempt is authenticated: what it gained is kept until its connection is ready.
    pub(crate) fn on_proven(
        &self,
        con: u64,
        method: u32,
        global_id: u64,
        cephx: Option<CephxClient>,
    ) {
        let mut state = self.state.borrow_mut();
        if state.hunting.iter().any(|c| c.id() == con) {
            state.proven.insert(con, Proven { method, global_id, cephx });
        }
    }

    /// A monitor refuses us. Others may know us already, or still: only when no attempt is left is
    /// it final. What a monitor gave us before may be why: the next attempt goes without.
    pub(crate) fn on_refusal(&self, con: u64, errno: Errno) {
        let mut state = self.state.borrow_mut();
        tracing::warn!("{}: refused by a monitor: {errno:?}", self.settings.name);
        if state.active.is_some() {
            // Not the session's affair: one monitor does not know us (any more).
            return;
        }
        let Some(at) = state.hunting.iter().position(|c| c.id() == con) else { return };
        let refused = state.hunting.remove(at);
        if !state.hunting.is_empty() {
            state.hunt_refusal = Some(errno);
        } else {
            state.hunt_refusal = None;
            state.refusal = Some(errno);
            if let Some(cephx) = &mut state.cephx {
                cephx.forget_all();
            }
            state.refused_as_new = core::mem::take(&mut state.global_id) == 0;
        }
        drop(state);
        // It would ask that monitor again and again, and be let in when nobody waits for it any more.
        refused.mark_down();
        self.changed.notify_all();
    }

    /// A connection to a monitor is ready: the first one of a hunt becomes the session.
    fn on_ready(self: &Rc<Inner>, con: &Connection) {
        let losers = {
            let mut state = self.state.borrow_mut();
            let Some(at) = state.hunting.iter().position(|c| c == con) else {
                // A connection opened for one monitor's own ear.
                return state.requests.on_ready(con);
            };
            state.hunting.remove(at);
            let losers = core::mem::take(&mut state.hunting);
            let proven = core::mem::take(&mut state.proven).remove(&con.id());
            if let Some(proven) = proven {
                state.used_method = Some(proven.method);
                state.global_id = proven.global_id;
                state.cephx = proven.cephx;
            }
            (state.refusal, state.hunt_refusal) = (None, None);
            state.active = Some(con.clone());
            state.session_since = self.env.now();
            state.heard = false;
            state.subs.restart();
            losers
        };
        losers.iter().for_each(Connection::mark_down);
        let global_id = self.state.borrow().global_id;
        let name = self.messenger.name();
        if name.kind == entity::CLIENT || name.kind == entity::MGR {
            let num = i64::try_from(global_id).unwrap_or(-1);
            self.messenger.set_name(EntityName { kind: name.kind, num });
        }
        tracing::debug!("session with {con:?}, global id {global_id}");
        self.send_subs();
        {
            let mut state = self.state.borrow_mut();
            let queued = core::mem::take(&mut state.queue);
            queued.into_iter().for_each(|message| con.send(message));
            state.requests.resend(con);
        }
        if self.settings.want_rotating {
            self.state.borrow_mut().last_rotating_request = None;
            self.check_rotating();
        }
        self.changed.notify_all();
        if let Some(events) = self.events() {
            events.on_session(con);
        }
    }

    /// A connection to a monitor is gone.
    fn on_lost(self: &Rc<Inner>, con: &Connection) {
        let (was_session, was_attempt) = {
            let mut state = self.state.borrow_mut();
            let attempts = state.hunting.len();
            state.hunting.retain(|c| c != con);
            state.proven.remove(&con.id());
            state.requests.drop_for(con);
            let was_session = state.active.as_ref() == Some(con);
            if was_session {
                state.active = None;
            }
            (was_session, state.hunting.len() < attempts)
        };
        if was_attempt {
            // Where nobody listens it would go on by itself, beside those of the next hunt.
            con.mark_down();
        }
        self.changed.notify_all();
        if was_session {
            tracing::info!("lost the session with {con:?}");
            if let Some(events) = self.events() {
                events.on_session_lost();
            }
        }
    }

    /// Tells the session what is wanted and not told yet.
    pub(crate) fn send_subs(&self) {
        let mut state = self.state.borrow_mut();
        let Some(con) = state.active.clone() else { return };
        let what = state.subs.take_new();
        if !what.is_empty() {
            let hostname = self.settings.hostname.clone();
            con.send(Message::encode(&MMonSubscribe { what, hostname }));
        }
    }

    fn send_auth(&self, payload: bytes::Bytes) {
        let state = self.state.borrow();
        let Some(con) = &state.active else { return };
        let monmap_epoch = state.monmap.as_ref().map_or(0, |map| map.epoch);
        let request = MAuth { protocol: METHOD_CEPHX, payload, monmap_epoch, ..MAuth::default() };
        con.send(Message::encode(&request));
    }

    /// Asks for the rotating secrets unless that was done a moment ago.
    pub(crate) fn fetch_rotating(&self) {
        let now = self.env.now();
        {
            let mut state = self.state.borrow_mut();
            let cephx = state.used_method == Some(METHOD_CEPHX) && state.active.is_some();
            let just = state.last_rotating_request.is_some_and(|at| now < at + ROTATING_PAUSE);
            if !cephx || just {
                return;
            }
            state.last_rotating_request = Some(now);
        }
        self.send_auth(CephxClient::rotating_request());
    }

    /// Asks for the rotating secrets if the current one is over.
    fn check_rotating(&self) {
        let patience = self.settings.rotating_patience;
        let due = self.rotating.secrets.borrow().need_new(self.now_utime().minus(patience));
        if self.settings.want_rotating && due {
            self.fetch_rotating();
        }
    }

    /// A service refused our ticket.
    pub(crate) fn renew_ticket_soon(self: &Rc<Inner>, service: u8) {
        self.state.borrow_mut().stale_tickets |= u32::from(service);
        self.changed.notify_all();
    }

    /// Renews the tickets that are due.
    fn check_tickets(self: &Rc<Inner>) {
        let now = self.now_utime();
        let env = self.env.clone();
        let fill = |buf: &mut [u8]| env.fill_random(buf);
        let want = self.settings.want_keys & !u32::from(entity::AUTH);
        let mut anew = false;
        let request = {
            let mut state = self.state.borrow_mut();
            let stale = core::mem::take(&mut state.stale_tickets);
            if state.active.is_none() || state.used_method != Some(METHOD_CEPHX) {
                return;
            }
            let Some(cephx) = &state.cephx else { return };
            let need = cephx.needs(want, now) | (stale & want);
            anew |= cephx.must_authenticate(now);
            if need == 0 { None } else { cephx.renew_request(need, &fill).ok() }
        };
        if anew {
            // The auth ticket itself is at its end: a new handshake gives another one.
            MonClient(self.clone()).reopen();
        } else if let Some(request) = request {
            self.send_auth(request);
        }
    }

    /// An answer to one of our MAuth.
    pub(crate) fn on_auth_reply(&self, payload: &bytes::Bytes) {
        let now = self.now_utime();
        let outcome = {
            let mut state = self.state.borrow_mut();
            let Some(cephx) = &mut state.cephx else { return };
            cephx.on_reply(payload, now)
        };
        match outcome {
            Ok(Some(secrets)) => {
                tracing::debug!("rotating secrets up to {}", secrets.max_ver);
                *self.rotating.secrets.borrow_mut() = secrets;
            }
            Ok(None) => {}
            Err(e) => tracing::warn!("an answer to a request for tickets: {e}"),
        }
        self.changed.notify_all();
    }

    /// A monmap has come.
    pub(crate) fn on_monmap(&self, bytes: &bytes::Bytes) {
        let monmap = match MonMap::from_bytes(bytes) {
            Ok(monmap) => Rc::new(monmap),
            Err(e) => return tracing::warn!("a monmap does not decode: {e}"),
        };
        {
            let mut state = self.state.borrow_mut();
            state.subs.got("monmap", monmap.epoch.into());
            if state.monmap.as_ref().is_some_and(|old| old.epoch >= monmap.epoch) {
                return;
            }
            state.monmap = Some(monmap.clone());
        }
        self.changed.notify_all();
        if let Some(events) = self.events() {
            events.on_monmap(&monmap);
        }
    }

    /// Monitors to try, best priority first, else in random order.
    fn candidates(&self) -> Vec<AddrVec> {
        let state = self.state.borrow();
        let mut mons: Vec<(u16, u64, AddrVec)> = match &state.monmap {
            Some(map) if map.size() > 0 => map
                .mon_info
                .values()
                .map(|mon| (mon.priority, self.env.random_u64(), mon.public_addrs.clone()))
                .collect(),
            _ => {
                let mons = self.settings.mons.iter();
                mons.map(|addrs| (0, self.env.random_u64(), addrs.clone())).collect()
            }
        };
        mons.retain(|(_, _, addrs)| addrs.msgr2().is_some());
        mons.sort();
        mons.into_iter().map(|(_, _, addrs)| addrs).collect()
    }
}

/// Looks for a monitor whenever there is no session. One that let us in and sent us away without a word
/// (it is out of the quorum) is not tried again before the others were and the time of a round is over.
async fn hunt(inner: Rc<Inner>) {
    let mut factor = 1.0_f64;
    let mut round_end = inner.env.now();
    // Bound: the monitors there are.
    let mut silent: Vec<EntityAddr> = Vec::new();
    while !inner.stopped.get() {
        let active = inner.state.borrow().active.clone();
        if let Some(con) = active {
            let lost = || inner.state.borrow().active.is_none() || inner.stopped.get();
            inner.changed.until(lost).await;
            if inner.state.borrow().heard {
                factor = 1.0;
                silent.clear();
            } else {
                silent.push(con.peer_socket_addr());
            }
            continue;
        }
        let mut mons = inner.candidates();
        mons.retain(|addrs| addrs.msgr2().is_some_and(|addr| !silent.contains(addr)));
        for addrs in mons.iter().take(inner.settings.hunt_parallel.max(1)) {
            let con = inner.messenger.connect_anonymous(entity::MON, addrs);
            inner.state.borrow_mut().hunting.push(con);
        }
        if !mons.is_empty() {
            round_end = inner.env.now() + inner.settings.hunt_interval.mul_f64(factor);
            factor = (factor * inner.settings.hunt_backoff).min(10.0);
        }
        let left = || round_end.saturating_sub(inner.env.now());
        let found = || inner.state.borrow().active.is_some() || inner.stopped.get();
        let over = || found() || inner.state.borrow().hunting.is_empty();
        let _ = inner.env.timeout(left(), inner.changed.until(over)).await;
        if !found() && over() {
            // All of them sent us away at once: they are about to find a leader, perhaps. Who does not know us will
            // not soon.
            let unknown = core::mem::take(&mut inner.state.borrow_mut().refused_as_new);
            let pause = if silent.is_empty() && !unknown { HUNT_PAUSE } else { left() };
            let _ = inner.env.timeout(pause, inner.changed.until(|| inner.stopped.get())).await;
        }
        if !found() {
            silent.clear();
            let tried = {
                let mut state = inner.state.borrow_mut();
                state.proven.clear();
                // Who did not answer will not say otherwise.
                state.refusal = state.refusal.or(state.hunt_refusal.take());
                core::mem::take(&mut state.hunting)
            };
            tried.iter().for_each(Connection::mark_down);
            inner.changed.notify_all();
        }
    }
}

/// Signs of life, tickets, rotating secrets.
async fn tick(inner: Rc<Inner>) {
    while !inner.stopped.get() {
        let stale = || inner.state.borrow().stale_tickets != 0 || inner.stopped.get();
        let waited = inner.changed.until(stale);
        let lacking = inner.settings.want_rotating
            && inner.state.borrow().used_method == Some(METHOD_CEPHX)
            && inner.rotating.secrets.borrow().secrets.is_empty();
        let pause = if lacking { ROTATING_PAUSE } else { inner.settings.ping_interval };
        let _ = inner.env.timeout(pause, waited).await;
        if inner.stopped.get() {
            return;
        }
        let (active, since) = {
            let state = inner.state.borrow();
            (state.active.clone(), state.session_since)
        };
        let Some(con) = active else {
            // Nothing to renew with: forget refusals, the next session renews what is due.
            inner.state.borrow_mut().stale_tickets = 0;
            continue;
        };
        let last = con.last_keepalive_ack().unwrap_or(since).max(since);
        if inner.env.now().saturating_sub(last) > inner.settings.ping_timeout {
            tracing::info!("no sign of life from {con:?}");
            MonClient(inner.clone()).reopen();
            continue;
        }
        con.send_keepalive();
        inner.check_rotating();
        inner.check_tickets();
    }
}
