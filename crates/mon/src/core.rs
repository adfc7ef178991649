//! The monitor's core: all of its state, stepped by events, without I/O of its own.
//!
//! ```text
//!   event ─► handlers change the state in memory and fill the pending batch
//!                │
//!                ├─ a few ms after the first change: the batch is proposed
//!                │
//!   committed ◄──┘   then replies leave and subscribers are told
//! ```
//!
//! State in memory is ahead of the log by what is pending. Nothing that rests on it is told to
//! anybody before the commit: answers made meanwhile wait for it as well, so that what was once
//! read is never taken back. Requests that collide with a change under way are tried again after
//! the commit. A monitor that cannot commit stops.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use auth::KeyServer;
use bytes::Bytes;
use config::Config;
use maps::MonMap;
use store::{Kv, KvBatch, KvError};
use types::RawMessage;

use crate::caps::Caps;
use crate::clog::ClusterLog;
use crate::config_db::ConfigDb;
use crate::counters::{Counters, bump};
use crate::event::{Effect, Event, Now, Peer, SessionId};
use crate::health::Health;
use crate::mds::MdsService;
use crate::mgr::MgrService;
use crate::osd::OsdService;
use crate::session::Session;
use crate::standing::{Role, Standing};
use crate::stat::StatService;

/// How long a change waits for company before it is proposed.
const PROPOSE_DELAY: Duration = Duration::from_millis(3);
/// Pause between ticks.
const TICK: Duration = Duration::from_secs(1);
/// Sessions at most; more are refused. Each needs a few KiB.
const SESSIONS_MAX: usize = 20_000;
/// Messages whose changes share a proposal are longer than this by one at most: a proposal is one message
/// between monitors.
const TAKEN_BYTES_MAX: usize = 32 << 20;
/// Requests and answers that wait for a commit, at most. Beyond, requests are dropped: their
/// senders ask again when their session is reset.
const WAITING_MAX: usize = 100_000;

/// Fills a buffer with random bytes.
pub type FillRandom = Box<dyn Fn(&mut [u8])>;

/// Who the monitor is.
#[derive(Debug, Clone)]
pub struct Identity {
    /// `a` of `mon.a`.
    pub name: String,
    /// Facts about host and build, as `mon metadata` shows them.
    pub metadata: BTreeMap<String, String>,
}

/// What waits for a commit.
enum Waiting {
    Send(SessionId, RawMessage),
    Retry(SessionId, RawMessage, Option<u64>),
    Done(SessionId, u64),
}

/// The core.
pub struct MonCore {
    pub(crate) identity: Identity,
    pub(crate) conf: Rc<Config>,
    pub(crate) kv: Rc<dyn Kv>,
    pub(crate) fill: FillRandom,
    pub(crate) now: Now,
    /// Own place among the monitors.
    pub(crate) standing: Standing,
    pub(crate) sessions: BTreeMap<SessionId, Session>,

    // The services' state.
    pub(crate) monmap: MonMap,
    /// The committed monitor map: what others are told.
    pub(crate) published_monmap: MonMap,
    /// The monitor map of the proposal under way.
    pub(crate) proposed_monmap: Option<MonMap>,
    pub(crate) osd: OsdService,
    pub(crate) keys: Rc<RefCell<KeyServer>>,
    pub(crate) auth_ids: crate::auth::GlobalIds,
    pub(crate) config_db: ConfigDb,
    pub(crate) config_version: u64,
    pub(crate) config_changed: bool,
    pub(crate) clog: ClusterLog,
    pub(crate) mgr: MgrService,
    pub(crate) mds: MdsService,
    pub(crate) stat: StatService,
    pub(crate) health: Health,
    pub(crate) counters: Rc<Counters>,
    pub(crate) answered: crate::answered::Answered,
    /// The command being handled has changed something.
    pub(crate) command_changed: bool,
    pub(crate) mon_metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// config-key entries changed by the pending or proposed batch; `None` is removed.
    pub(crate) overlay: BTreeMap<String, Option<Bytes>>,
    /// Names of config-key entries changed since subscribers of `kv:` were told.
    pub(crate) kv_dirty: BTreeMap<String, Option<Bytes>>,
    pub(crate) kv_version: u64,

    // The log.
    batch: KvBatch,
    dirty_since: Option<Duration>,
    /// Of messages handled since the last proposal.
    taken_bytes: usize,
    proposing: bool,
    waiting: Vec<Waiting>,
    committing: Vec<Waiting>,
    next_tick: Duration,
    pub(crate) effects: Vec<Effect>,
    /// The request being handled, and whether it will be handled again.
    request: Option<u64>,
    retried: bool,
    /// Who is to get maps, from which epoch on, after the commit.
    pub(crate) maps_later: BTreeMap<SessionId, types::Epoch>,
}

impl MonCore {
    /// Loads the state from the database. [`crate::mkfs`] must have filled it.
    pub fn load(
        identity: Identity,
        conf: Rc<Config>,
        kv: Rc<dyn Kv>,
        fill: FillRandom,
        counters: Rc<Counters>,
        now: Now,
    ) -> Result<MonCore, LoadError> {
        let monmap = crate::monmap::load(&*kv)?;
        let mut core = MonCore {
            osd: OsdService::load(&*kv, &conf)?,
            keys: Rc::new(RefCell::new(crate::auth::load_keys(&*kv, &conf)?)),
            auth_ids: crate::auth::GlobalIds::load(&*kv)?,
            config_db: ConfigDb::default(),
            config_version: crate::layout::get_u64(&*kv, crate::layout::CONFIG, "version")?
                .unwrap_or(1),
            config_changed: true,
            clog: ClusterLog::load(&*kv)?,
            mgr: MgrService::load(&*kv)?,
            mds: MdsService::load(&*kv)?,
            stat: StatService::load(&*kv)?,
            health: Health::load(&*kv)?,
            counters,
            answered: crate::answered::Answered::load(&*kv)?,
            command_changed: false,
            mon_metadata: crate::monmap::load_metadata(&*kv)?,
            overlay: BTreeMap::new(),
            kv_dirty: BTreeMap::new(),
            kv_version: 1,
            identity,
            conf,
            kv,
            fill,
            now,
            standing: Standing::default(),
            sessions: BTreeMap::new(),
            published_monmap: monmap.clone(),
            proposed_monmap: None,
            monmap,
            batch: KvBatch::new(),
            dirty_since: None,
            taken_bytes: 0,
            proposing: false,
            waiting: Vec::new(),
            committing: Vec::new(),
            next_tick: now.mono + TICK,
            effects: Vec::new(),
            request: None,
            retried: false,
            maps_later: BTreeMap::new(),
        };
        core.load_options()?;
        Ok(core)
    }

    /// Takes one event; gives what is to be done, in order.
    pub fn step(&mut self, now: Now, event: Event) -> Vec<Effect> {
        self.now = now;
        match event {
            Event::Opened(id, peer) => self.on_opened(id, peer),
            Event::Closed(id) => self.on_closed(id),
            Event::Message(id, message) => self.on_message(id, message),
            Event::Request(id, seq, message) => self.on_request(id, seq, message),
            Event::Committed => self.on_committed(),
            Event::Timer => {}
        }
        if now.mono >= self.next_tick {
            self.next_tick = now.mono + TICK;
            self.tick();
        }
        self.finish_step()
    }

    /// Proposes what is pending now, without waiting for company. For the start and the end.
    pub fn flush(&mut self, now: Now) -> Vec<Effect> {
        self.now = now;
        if !self.proposing && self.dirty_since.is_some() {
            self.propose();
        }
        self.finish_step()
    }

    pub(crate) fn finish_step(&mut self) -> Vec<Effect> {
        if self.standing.role != Role::Leader {
            // Whoever does not lead changes nothing.
            self.batch = KvBatch::new();
            self.dirty_since = None;
        }
        if let (Some(since), false) = (self.dirty_since, self.proposing)
            && self.now.mono >= since + PROPOSE_DELAY
        {
            self.propose();
        }
        let mut wake = self.next_tick;
        if let (Some(since), false) = (self.dirty_since, self.proposing) {
            wake = wake.min(since + PROPOSE_DELAY);
        }
        if self.config_changed && !self.is_pending() {
            self.publish_config();
        }
        self.effects.push(Effect::WakeAt(wake));
        std::mem::take(&mut self.effects)
    }

    /// The pending batch, to be added to: what is in it makes the step's answers wait.
    pub(crate) fn batch(&mut self) -> &mut KvBatch {
        self.mark_dirty();
        &mut self.batch
    }

    /// There is something to commit.
    pub(crate) fn mark_dirty(&mut self) {
        self.dirty_since.get_or_insert(self.now.mono);
    }

    /// Whether the state in memory is ahead of the log.
    pub(crate) fn is_pending(&self) -> bool {
        self.proposing || self.dirty_since.is_some()
    }

    /// Sends once all that the state rests on is committed.
    pub(crate) fn send(&mut self, to: SessionId, message: RawMessage) {
        if self.standing.role != Role::Leader {
            self.effects.push(Effect::Send(to, message));
        } else if self.dirty_since.is_some() {
            self.waiting.push(Waiting::Send(to, message));
        } else if self.proposing {
            self.committing.push(Waiting::Send(to, message));
        } else {
            self.effects.push(Effect::Send(to, message));
        }
    }

    /// Sends now: for what does not rest on pending state.
    pub(crate) fn send_now(&mut self, to: SessionId, message: RawMessage) {
        self.effects.push(Effect::Send(to, message));
    }

    /// Whether a message may be handled now; else it waits for the next proposal.
    pub(crate) fn take_bytes(&mut self, len: usize) -> bool {
        let full = self.dirty_since.is_some() && self.taken_bytes > TAKEN_BYTES_MAX;
        if !full {
            self.taken_bytes += len;
        }
        !full
    }

    /// Handles a request again after the commit of what is pending.
    pub(crate) fn retry(&mut self, from: SessionId, message: RawMessage) {
        if self.waiting.len() >= WAITING_MAX {
            return;
        }
        self.retried = true;
        let again = Waiting::Retry(from, message, self.request);
        if self.dirty_since.is_none() && self.proposing {
            self.committing.push(again);
            return;
        }
        self.mark_dirty();
        self.waiting.push(again);
    }

    /// Handles a request that its monitor keeps until [`Effect::Done`].
    fn on_request(&mut self, from: SessionId, seq: u64, message: RawMessage) {
        (self.request, self.retried) = (Some(seq), false);
        self.on_message(from, message);
        self.request = None;
        if self.retried {
            return;
        }
        if self.dirty_since.is_some() {
            self.waiting.push(Waiting::Done(from, seq));
        } else if self.proposing {
            self.committing.push(Waiting::Done(from, seq));
        } else {
            self.effects.push(Effect::Done(from, seq));
        }
    }

    /// Ends a session.
    pub(crate) fn close(&mut self, id: SessionId) {
        bump(&self.counters.session_trim);
        self.effects.push(Effect::Close(id));
        self.on_closed(id);
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    fn propose(&mut self) {
        self.dirty_since = None;
        self.taken_bytes = 0;
        self.encode_fsmap();
        self.encode_osdmap();
        self.encode_mgr();
        self.encode_clog();
        self.monmap_proposed();
        self.stat.on_proposed();
        // Encoding may have marked the core dirty; it is all in this batch.
        self.dirty_since = None;
        let batch = std::mem::take(&mut self.batch);
        self.auth_ids.on_proposed();
        self.committing.append(&mut self.waiting);
        self.proposing = true;
        self.effects.push(Effect::Propose(batch));
    }

    fn on_committed(&mut self) {
        self.proposing = false;
        self.ids_committed();
        if self.dirty_since.is_none() {
            self.overlay.clear();
        }
        self.osd_committed();
        self.mgr_committed();
        self.fsmap_committed();
        self.monmap_committed();
        self.stat.on_committed();
        self.clog.on_committed();
        self.publish_maps();
        self.retry_refused_boots();
        for waiting in std::mem::take(&mut self.committing) {
            match waiting {
                Waiting::Send(to, message) => self.effects.push(Effect::Send(to, message)),
                Waiting::Retry(from, message, None) => self.on_message(from, message),
                Waiting::Retry(from, message, Some(seq)) => self.on_request(from, seq, message),
                Waiting::Done(from, seq) => self.effects.push(Effect::Done(from, seq)),
            }
        }
    }

    fn on_opened(&mut self, id: SessionId, peer: Rc<Peer>) {
        if self.sessions.len() >= SESSIONS_MAX {
            self.effects.push(Effect::Close(id));
            return;
        }
        let caps = Caps::of_peer(&peer);
        bump(&self.counters.session_add);
        self.sessions.insert(id, Session::new(id, peer, caps));
    }

    fn on_closed(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.remove(&id) {
            bump(&self.counters.session_rm);
            self.mgr_session_ended(&session);
        }
    }

    /// Forgets all that is not committed: another monitor may lead now, or did.
    pub(crate) fn forget_pending(&mut self) {
        self.batch = KvBatch::new();
        self.dirty_since = None;
        self.taken_bytes = 0;
        self.proposing = false;
        self.proposed_monmap = None;
        self.waiting.clear();
        self.committing.clear();
        self.maps_later.clear();
        self.overlay.clear();
        self.kv_dirty.clear();
        // Subscribers of `kv:` get all anew.
        self.kv_version += 2;
    }

    fn tick(&mut self) {
        if self.standing.role != Role::Leader {
            return self.tick_peon();
        }
        self.tick_auth();
        self.tick_osd();
        self.tick_mgr();
        self.watch_mds();
        self.tick_health();
    }

    /// A change of a config-key entry, for subscribers of `kv:`.
    pub(crate) fn kv_changed(&mut self, key: &str) {
        let value = self.overlay.get(key).cloned().flatten();
        self.kv_dirty.insert(key.to_string(), value);
        self.mark_dirty();
    }

    /// The monitors.
    pub fn monmap(&self) -> &MonMap {
        &self.monmap
    }

    /// The key server, shared with the authentication of connections.
    pub fn key_server(&self) -> Rc<RefCell<KeyServer>> {
        self.keys.clone()
    }

    /// Own rank: the position in the monitor map.
    pub(crate) fn rank(&self) -> i64 {
        let position = self.monmap.ranks.iter().position(|name| *name == self.identity.name);
        position.map_or(-1, |rank| rank as i64)
    }
}

/// Why a monitor cannot start from its database.
#[derive(Debug)]
pub enum LoadError {
    /// The database failed.
    Kv(KvError),
    /// There is no monitor in it: `--mkfs` was not run.
    Empty,
    /// A record does not decode.
    Decode {
        /// Which one.
        what: String,
        /// Why.
        error: denc::Error,
    },
    /// A record does not fit the ones before it.
    Inconsistent {
        /// Which one.
        what: String,
    },
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::Kv(error) => error.fmt(f),
            LoadError::Empty => {
                f.write_str("the monitor's database is empty: create it with --mkfs first")
            }
            LoadError::Decode { what, error } => write!(f, "{what} does not decode: {error}"),
            LoadError::Inconsistent { what } => {
                write!(f, "{what} does not fit the records before it")
            }
        }
    }
}

impl std::error::Error for LoadError {}

impl From<KvError> for LoadError {
    fn from(error: KvError) -> LoadError {
        LoadError::Kv(error)
    }
}
