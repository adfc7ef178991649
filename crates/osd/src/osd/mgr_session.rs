//! The session with the active manager: opened when a map names one, statistics and counters in
//! the rhythm it asks for (`src/mgr/MgrClient.cc` at v16.2).

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use env::Env;
use env::sync::Notify;
use maps::MgrMap;
use messages::{MMgrClose, MMgrConfigure, MMgrOpen, MMgrReport, MPGStats, Message};
use msgr::{Connection, Messenger};
use types::AddrVec;
use types::entity::MGR;

/// Between two attempts to reach a manager (`mgr_connect_retry_interval`).
const RETRY: Duration = Duration::from_secs(1);
/// After a change worth telling, this long is waited for more of them.
const SETTLE: Duration = Duration::from_millis(20);

/// What is reported.
pub trait Source {
    /// The first message of a session.
    fn open(&self) -> MMgrOpen;
    /// Counters; `first` when the manager knows none of their types yet.
    fn report(&self, first: bool) -> MMgrReport;
    /// Statistics; `None` while there are none.
    fn pg_stats(&self) -> Option<MPGStats>;
}

/// See the module.
pub struct MgrSession {
    env: Env,
    messenger: Messenger,
    source: Weak<dyn Source>,
    /// The active manager's addresses, empty when there is none.
    active: RefCell<AddrVec>,
    con: RefCell<Option<Connection>>,
    /// Rhythm the manager asked for; zero before it did.
    period: Cell<Duration>,
    reported: Cell<bool>,
    soon: Notify,
    stopped: Cell<bool>,
}

impl MgrSession {
    /// A session of `source`; nothing is sent before a map names a manager.
    pub fn start(env: Env, messenger: Messenger, source: Weak<dyn Source>) -> Rc<MgrSession> {
        let session = Rc::new(MgrSession {
            env: env.clone(),
            messenger,
            source,
            active: RefCell::default(),
            con: RefCell::default(),
            period: Cell::default(),
            reported: Cell::default(),
            soon: Notify::default(),
            stopped: Cell::default(),
        });
        env.go(session.clone().run());
        session
    }

    /// A new map of managers.
    pub fn on_map(&self, map: &MgrMap) {
        let addrs = if map.available { map.active_addrs.clone() } else { AddrVec::default() };
        if *self.active.borrow() != addrs {
            *self.active.borrow_mut() = addrs;
            self.disconnect();
            self.connect();
        }
    }

    fn disconnect(&self) {
        if let Some(con) = self.con.borrow_mut().take() {
            con.mark_down();
        }
        self.period.set(Duration::ZERO);
        self.reported.set(false);
    }

    fn connect(&self) {
        let addrs = self.active.borrow().clone();
        let Some(source) = self.source.upgrade().filter(|_| !addrs.is_empty()) else { return };
        if self.stopped.get() {
            return;
        }
        let con = self.messenger.connect_to(MGR, &addrs);
        con.send(source.open().encode());
        *self.con.borrow_mut() = Some(con);
    }

    /// The manager says how to report. True if the connection is this session's.
    pub fn on_configure(&self, con: &Connection, configure: &MMgrConfigure) -> bool {
        if self.con.borrow().as_ref() != Some(con) {
            return false;
        }
        self.period.set(Duration::from_secs(configure.stats_period.max(1).into()));
        self.soon.notify_all();
        true
    }

    /// The connection broke. True if it was this session's.
    pub fn on_reset(self: &Rc<Self>, con: &Connection) -> bool {
        if self.con.borrow().as_ref() != Some(con) {
            return false;
        }
        self.disconnect();
        let session = self.clone();
        self.env.go(async move {
            session.env.sleep(RETRY).await;
            if session.con.borrow().is_none() {
                session.connect();
            }
        });
        true
    }

    /// Something changed that a user would like to see now rather than at the next report.
    pub fn report_soon(&self) {
        self.soon.notify_all();
    }

    fn report(&self) {
        let Some(source) = self.source.upgrade() else { return };
        let con = self.con.borrow().clone();
        let Some(con) = con.filter(|_| self.period.get() > Duration::ZERO) else { return };
        con.send(source.report(!self.reported.replace(true)).encode());
        if let Some(stats) = source.pg_stats() {
            con.send(stats.encode());
        }
    }

    async fn run(self: Rc<Self>) {
        while !self.stopped.get() {
            let period = self.period.get();
            let wait = if period.is_zero() { RETRY } else { period };
            if self.env.timeout(wait, self.soon.notified()).await.is_ok() {
                self.env.sleep(SETTLE).await;
            }
            self.report();
        }
    }

    /// Says goodbye.
    pub fn stop(&self, name: &str) {
        self.stopped.set(true);
        if let Some(con) = self.con.borrow().as_ref() {
            let close = MMgrClose { daemon_name: name.to_owned(), ..MMgrClose::default() };
            con.send(close.encode());
        }
        self.soon.notify_all();
    }
}
