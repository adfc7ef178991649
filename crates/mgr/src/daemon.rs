//! The daemon: start, dispatch, stop. What it knows lies in [`Cluster`] and [`Daemons`]; what it
//! does about it in `beacon`, `report` and `commands`.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::time::Duration;

use auth::Keyring;
use bstr::BString;
use bytes::Bytes;
use command::CommandReply;
use config::{Config, Source};
use env::sync::Notify;
use env::{Env, LocalFuture};
use maps::{MgrMap, OsdMap};
use messages::{
    MCommand, MCommandReply, MMgrClose, MMgrCommand, MMgrCommandReply, MMgrConfigure, MMgrDigest,
    MMgrMap, MMgrOpen, MMgrReport, MOSDMap, MPGStats, MServiceMap, Message,
};
use monclient::{MonClient, MonEvents, OsdMaps, Settings};
use msgr::{Connection, Dispatcher, Incoming, Messenger, Policies, Policy};
use serde_json::{Value, json};
use types::entity::{EntityName, MDS, MGR, MON, OSD};
use types::{Errno, UTime};

use crate::MgrError;
use crate::balancer::{self, Balancer};
use crate::cluster::Cluster;
use crate::commands;
use crate::counters::{Counters, bump};
use crate::daemons::{DaemonKey, Daemons};
use crate::progress::{self, Progress};
use crate::prometheus::Metadata;
use crate::rbd_support::{self, RbdSupport};
use crate::{autoscaler, beacon, pg_num, prometheus, report};

/// A running manager.
pub struct Mgr {
    pub(crate) env: Env,
    pub(crate) config: Rc<Config>,
    /// Who we are, for the clients inside.
    pub(crate) keyring: Keyring,
    pub(crate) messenger: Messenger,
    pub(crate) monc: MonClient,
    pub(crate) osdmaps: OsdMaps,
    pub(crate) mgrmap: RefCell<MgrMap>,
    pub(crate) cluster: RefCell<Cluster>,
    pub(crate) daemons: RefCell<Daemons>,
    /// This process is the active manager and serves.
    pub(crate) active: Cell<bool>,
    /// When it became so (`env.now()`).
    pub(crate) active_since: Cell<Duration>,
    /// Wakes the beacon and the report before their time.
    pub(crate) beacon_now: Notify,
    pub(crate) report_now: Notify,
    /// The statistics of PGs have been brought up to date.
    pub(crate) pgs_told: Notify,
    pub(crate) stopped: Cell<bool>,
    pub(crate) balancer: RefCell<Balancer>,
    /// Wakes the balancer before its time.
    pub(crate) balance_now: Notify,
    /// Crash reports as last read; bounded where they are kept.
    pub(crate) crashes: RefCell<commands::crash::Reports>,
    /// They have been read since this manager became the active one.
    pub(crate) knows_crashes: Cell<bool>,
    pub(crate) progress: RefCell<Progress>,
    pub(crate) rbd_support: RbdSupport,
    pub(crate) counters: Counters,
    /// What the page of metrics says of daemons' hosts.
    pub(crate) metadata: RefCell<Metadata>,
    /// Findings of health that were on the page of metrics, with their severity.
    pub(crate) checks_seen: RefCell<BTreeMap<String, String>>,
    /// Where metrics are served, while they are.
    pub(crate) prometheus_url: RefCell<Option<String>>,
    /// The session with the monitors holds it weakly.
    events: RefCell<Option<Rc<dyn MonEvents>>>,
}

impl Mgr {
    /// Starts a manager: listens, opens a session with the monitors and offers itself to them.
    /// Returns when the session is open.
    pub fn start(
        env: Env,
        config: Rc<Config>,
        keyring: Keyring,
    ) -> LocalFuture<Result<Rc<Mgr>, MgrError>> {
        Box::pin(async move {
            let settings =
                Settings::from_config(&config, Some(&keyring)).map_err(MgrError::Settings)?;
            let name = EntityName { kind: MGR, num: -1 };
            let nonce = u32::try_from(env.random_u64() >> 33).unwrap_or(1).max(1);
            let of_config = |bytes: &str, messages: &str| {
                Policy::stateless_server().throttled(config.uint(bytes), config.uint(messages))
            };
            let policies = Policies::new(of_config("mgr_client_bytes", "mgr_client_messages"))
                .with(OSD, of_config("mgr_osd_bytes", "mgr_osd_messages"))
                .with(MDS, of_config("mgr_mds_bytes", "mgr_mds_messages"))
                .with(MON, Policy::lossy_client());
            let messenger = Messenger::new(env.clone(), msgr::Config::new(name, nonce, policies));
            let monc = MonClient::new(env.clone(), messenger.clone(), settings);
            let mgr = Rc::new(Mgr {
                env: env.clone(),
                config,
                keyring,
                messenger: messenger.clone(),
                monc: monc.clone(),
                osdmaps: OsdMaps::new(),
                mgrmap: RefCell::default(),
                cluster: RefCell::default(),
                daemons: RefCell::default(),
                active: Cell::new(false),
                active_since: Cell::default(),
                beacon_now: Notify::default(),
                report_now: Notify::default(),
                pgs_told: Notify::default(),
                stopped: Cell::new(false),
                balancer: RefCell::default(),
                balance_now: Notify::default(),
                crashes: RefCell::default(),
                knows_crashes: Cell::new(false),
                progress: RefCell::default(),
                rbd_support: RbdSupport::new(),
                counters: Counters::default(),
                metadata: RefCell::default(),
                checks_seen: RefCell::default(),
                prometheus_url: RefCell::default(),
                events: RefCell::default(),
            });
            messenger.set_dispatcher(Rc::new(Dispatch(mgr.clone())));
            let weak = Rc::downgrade(&mgr);
            let reconfigure = move |_: &Config, _: &BTreeSet<String>| {
                if let Some(mgr) = weak.upgrade().filter(|mgr| mgr.active.get()) {
                    mgr.configure_all();
                }
            };
            mgr.config.observe(&["mgr_stats_period", "mgr_stats_threshold"], Rc::new(reconfigure));
            if let Err(error) = mgr.bind() {
                mgr.shutdown().await;
                return Err(MgrError::Bind(error));
            }
            for what in ["mgrmap", "osdmap", "servicemap", "mgrdigest"] {
                monc.subscribe(what, 0, 0);
            }
            let events: Rc<dyn MonEvents> = Rc::new(Events(Rc::downgrade(&mgr)));
            monc.set_events(&events);
            *mgr.events.borrow_mut() = Some(events);
            messenger.set_auth_server(monc.auth_server());
            monc.start();
            if let Err(error) = monc.authenticated().await {
                mgr.shutdown().await;
                return Err(MgrError::Mon(error));
            }
            monc.rotating_ready().await;
            env.go(beacon::run(mgr.clone()));
            env.go(report::run(mgr.clone()));
            env.go(balancer::run(mgr.clone()));
            env.go(prometheus::run(mgr.clone()));
            env.go(pg_num::run(mgr.clone()));
            env.go(autoscaler::run(mgr.clone()));
            env.go(rbd_support::run(mgr.clone()));
            env.go(progress::run(mgr.clone()));
            Ok(mgr)
        })
    }

    /// Listens on the first free port of the range.
    fn bind(&self) -> std::io::Result<()> {
        let ip = self.config.ip("public_addr").unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let port_of = |name: &str| u16::try_from(self.config.uint(name)).unwrap_or(0);
        let (min, max) = (port_of("ms_bind_port_min"), port_of("ms_bind_port_max"));
        let mut last = Err(std::io::ErrorKind::AddrNotAvailable.into());
        for port in min..=max {
            last = self.messenger.bind(SocketAddr::new(ip, port)).map(|_| ());
            match &last {
                Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {}
                _ => break,
            }
        }
        last
    }

    /// Whether it can answer: it is the active one, and knows of a cluster to answer for.
    pub(crate) fn serves(&self) -> bool {
        self.active.get() && self.osdmaps.current().epoch > 0
    }

    /// The name without `mgr.`.
    pub(crate) fn id(&self) -> &str {
        self.config.id()
    }

    /// Runs a command of the admin socket, given as JSON.
    pub fn admin_command(self: &Rc<Self>, json: String) -> LocalFuture<CommandReply> {
        let mgr = self.clone();
        Box::pin(async move { commands::tell(&mgr, &[json.into()]) })
    }

    /// Stops serving and closes all sessions.
    pub async fn shutdown(self: &Rc<Self>) {
        self.stopped.set(true);
        self.active.set(false);
        self.beacon_now.notify_all();
        self.report_now.notify_all();
        self.rbd_support.wake();
        self.monc.shutdown();
        self.messenger.shutdown();
    }

    fn on_mgrmap(self: &Rc<Self>, map: MgrMap) {
        self.monc.got("mgrmap", map.epoch.into());
        let ours = map.active_gid != 0 && map.active_gid == self.monc.global_id();
        let news = ours != self.active.get();
        let shown = map.available;
        *self.mgrmap.borrow_mut() = map;
        if news {
            tracing::info!("mgr.{} is {}", self.id(), if ours { "active" } else { "standby" });
            self.active.set(ours);
            if ours {
                self.active_since.set(self.env.now());
                self.note_osdmap(&self.osdmaps.current());
                self.configure_all();
            } else {
                // Daemons go to the new active one by themselves when this one is silent.
                self.close_daemons();
                self.cluster.borrow_mut().reset();
                // Another one goes on with these: should we be active again, they are loaded anew.
                self.knows_crashes.set(false);
                self.progress.take();
            }
        }
        if news {
            self.rbd_support.wake();
        }
        if news || (ours && !shown) {
            self.beacon_now.notify_all();
        }
    }

    /// What a map says of placement groups counts at once (`ClusterState::notify_osdmap` in
    /// `src/mgr/ClusterState.cc` at v16.2): who asks before the next report would be told that there are none.
    fn note_osdmap(&self, map: &OsdMap) {
        let now = UTime::from_duration(self.env.wall_clock());
        let mut cluster = self.cluster.borrow_mut();
        cluster.on_osdmap(map, now);
        self.daemons.borrow_mut().keep_osds(|osd| map.exists(osd));
        cluster.apply(now, report::smoothing(self));
        self.report_now.notify_all();
        if self.serves() && !self.mgrmap.borrow().available {
            self.beacon_now.notify_all();
        }
    }

    fn close_daemons(&self) {
        for con in self.messenger.connections() {
            if con.peer_kind() != MON && !con.is_loopback() {
                con.mark_down();
            }
        }
        self.daemons.borrow_mut().clear();
    }

    fn on_open(&self, con: &Connection, open: MMgrOpen) {
        let key = DaemonKey::of(con, &open.service_name, &open.daemon_name);
        tracing::debug!("{} reports", key.text());
        let now = (self.env.now(), UTime::from_duration(self.env.wall_clock()));
        if !self.daemons.borrow_mut().open(key.clone(), con, &open, now) {
            return;
        }
        con.set_session(Some(Rc::new(key)));
        if open.service.is_some() {
            self.update_service(con, &open);
        }
        // Who heard sooner than we that we are the active one is told when we hear it.
        if self.active.get() {
            self.configure(con);
        }
    }

    /// Runs a command at the monitors; its output.
    pub(crate) async fn at_monitors(
        &self,
        command: &Value,
        input: Bytes,
    ) -> Result<Bytes, CommandReply> {
        match self.monc.command(vec![command.to_string()], input).await {
            Ok(answer) if answer.rc == 0 => Ok(answer.outb),
            Ok(answer) => Err(CommandReply::error(answer.rc.abs(), answer.outs)),
            Err(error) => Err(CommandReply::error(Errno::EAGAIN.0, error.to_string())),
        }
    }

    /// Sets an option of a module (`mgr/MODULE/NAME`), or takes it away, for this manager and the next.
    pub(crate) async fn set_option(
        &self,
        name: &str,
        value: Option<String>,
    ) -> Result<(), CommandReply> {
        let command = match &value {
            Some(value) => {
                json!({"prefix": "config set", "who": "mgr", "name": name, "value": value})
            }
            None => json!({"prefix": "config rm", "who": "mgr", "name": name}),
        };
        self.at_monitors(&command, Bytes::new()).await?;
        // The monitors will say so, too; who asked must not see what was before.
        let _ = match value {
            Some(value) => self.config.set(name, &value, Source::Mon),
            None => self.config.unset(name, Source::Mon).map(drop),
        };
        Ok(())
    }

    /// Says how to report, and what OSDs shall count beside.
    fn configure(&self, con: &Connection) {
        let period = u32::try_from(self.config.uint("mgr_stats_period")).unwrap_or(5);
        let threshold = u32::try_from(self.config.uint("mgr_stats_threshold")).unwrap_or(5);
        let configure = match con.peer_kind() {
            OSD => MMgrConfigure::with_queries(period, threshold, &self.rbd_support.perf.queries()),
            _ => MMgrConfigure::plain(period, threshold),
        };
        con.send(configure.encode());
    }

    /// Tells all that report here anew.
    pub(crate) fn configure_all(&self) {
        for con in self.messenger.connections() {
            if con.session::<DaemonKey>().is_some() {
                self.configure(&con);
            }
        }
    }

    fn update_service(&self, con: &Connection, open: &MMgrOpen) {
        let now = UTime::from_duration(self.env.wall_clock());
        let mut cluster = self.cluster.borrow_mut();
        cluster.service_daemon((con.peer_global_id(), con.peer_addrs().front()), open, now);
        self.report_now.notify_all();
    }

    fn on_pg_stats(&self, con: &Connection, stats: MPGStats) {
        if con.peer_kind() != OSD {
            return;
        }
        let osd = i32::try_from(con.peer_name().num).unwrap_or(-1);
        let fsid = self.monc.fsid();
        if !fsid.is_zero() && stats.fsid != fsid {
            return;
        }
        let map = self.osdmaps.current();
        let news = self.cluster.borrow_mut().ingest(osd, &stats, &map);
        if news {
            self.report_now.notify_all();
        }
        con.send(crate::cluster::ack_of(&stats).encode());
    }
}

/// The messenger's calls.
struct Dispatch(Rc<Mgr>);

fn logged<T>(what: Result<T, denc::Error>, kind: u16) -> Option<T> {
    what.inspect_err(|error| tracing::warn!("message of type {kind:#x}: {error}")).ok()
}

impl Dispatcher for Dispatch {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        let mgr = &self.0;
        let Some(incoming) = mgr.monc.on_message(con, incoming) else { return };
        let raw = &incoming.message;
        let kind = raw.header.kind;
        match kind {
            MMgrMap::TYPE if con.peer_kind() == MON => {
                if let Some(m) = logged(MMgrMap::decode(raw), kind) {
                    mgr.on_mgrmap(m.map);
                }
            }
            MOSDMap::TYPE if con.peer_kind() == MON => {
                if let Some(m) = logged(MOSDMap::decode(raw), kind) {
                    let maps = mgr.osdmaps.take(&mgr.monc, &m, false);
                    if let Some(map) = maps.last() {
                        mgr.note_osdmap(map);
                    }
                }
            }
            MServiceMap::TYPE if con.peer_kind() == MON => {
                if let Some(m) = logged(MServiceMap::decode(raw), kind) {
                    mgr.monc.got("servicemap", m.service_map.epoch.into());
                    mgr.cluster.borrow_mut().on_service_map(m.service_map);
                }
            }
            MMgrDigest::TYPE if con.peer_kind() == MON => {
                if let Some(m) = logged(MMgrDigest::decode(raw), kind) {
                    mgr.cluster.borrow_mut().on_digest(m);
                }
            }
            MMgrOpen::TYPE => {
                if let Some(m) = logged(MMgrOpen::decode(raw), kind) {
                    mgr.on_open(con, m);
                }
            }
            MMgrReport::TYPE => {
                bump(&mgr.counters.reports);
                if let (Some(m), Some(key)) =
                    (logged(MMgrReport::decode(raw), kind), con.session::<DaemonKey>())
                {
                    let now = (mgr.env.now(), UTime::from_duration(mgr.env.wall_clock()));
                    if !mgr.daemons.borrow_mut().report(&key, &m, now) {
                        // It opens another session then (`DaemonServer::handle_report` in
                        // `src/mgr/DaemonServer.cc` at v16.2).
                        tracing::debug!("{} reports, but is not known any more", key.text());
                        con.mark_down();
                        return;
                    }
                    if let Some(reports) = logged(m.osd_metrics(), kind) {
                        mgr.rbd_support.perf.on_report(reports);
                    }
                }
            }
            MMgrClose::TYPE => {
                if let Some(key) = con.session::<DaemonKey>() {
                    mgr.daemons.borrow_mut().close(&key);
                    let now = UTime::from_duration(mgr.env.wall_clock());
                    mgr.cluster.borrow_mut().service_gone(&key.kind, &key.name, now);
                }
                // Who leaves waits for the same words, for up to a second
                // (`mgr_client_service_daemon_unregister_timeout`).
                if let Some(m) = logged(MMgrClose::decode(raw), kind) {
                    con.send(m.encode());
                }
            }
            MPGStats::TYPE if mgr.active.get() => {
                bump(&mgr.counters.pg_stats);
                if let Some(m) = logged(MPGStats::decode(raw), kind) {
                    mgr.on_pg_stats(con, m);
                }
            }
            MMgrCommand::TYPE => {
                bump(&mgr.counters.commands);
                // A standby has nothing to answer from, and there is no word for that: who asks it goes by an
                // old map, and asks again by a newer one. Ceph's listens to nobody.
                if !mgr.serves() {
                    con.mark_down();
                } else if let Some(m) = logged(MMgrCommand::decode(raw), kind) {
                    on_command(mgr.clone(), con.clone(), incoming, m.cmd, m.input);
                }
            }
            MCommand::TYPE => {
                if let Some(m) = logged(MCommand::decode(raw), kind) {
                    on_tell(mgr, con, raw.header.tid, &m.cmd);
                }
            }
            _ => tracing::debug!("{} sent a message of type {kind:#x}", con.peer_name()),
        }
    }

    fn on_connect(&self, con: &Connection) {
        self.0.monc.on_connect(con);
    }

    fn on_reset(&self, con: &Connection) {
        self.0.monc.on_reset(con);
        if let Some(key) = con.session::<DaemonKey>() {
            self.0.daemons.borrow_mut().lost(&key, con);
        }
    }
}

fn on_command(mgr: Rc<Mgr>, con: Connection, incoming: Incoming, cmd: Vec<BString>, input: Bytes) {
    let env = mgr.env.clone();
    env.go(async move {
        let tid = incoming.message.header.tid;
        let reply = commands::run(&mgr, &con, &cmd, input).await;
        let reply = MMgrCommandReply { rc: reply.rc, outs: reply.outs, outb: reply.outb };
        con.send(reply.encode().with_tid(tid));
        drop(incoming);
    });
}

fn on_tell(mgr: &Rc<Mgr>, con: &Connection, tid: u64, cmd: &[BString]) {
    let reply =
        if commands::may_tell(con) { commands::tell(mgr, cmd) } else { commands::access_denied() };
    let reply = MCommandReply { rc: reply.rc, outs: reply.outs, outb: reply.outb };
    con.send(reply.encode().with_tid(tid));
}

/// The monitor session's calls.
struct Events(Weak<Mgr>);

impl MonEvents for Events {
    fn on_session(&self, _: &Connection) {
        let Some(mgr) = self.0.upgrade() else { return };
        let num = i64::try_from(mgr.monc.global_id()).unwrap_or(-1);
        mgr.messenger.set_name(EntityName { kind: MGR, num });
        mgr.beacon_now.notify_all();
    }
    fn on_config(&self, config: BTreeMap<String, String>) {
        let Some(mgr) = self.0.upgrade() else { return };
        let ignored = mgr.config.set_mon_values(&config);
        if !ignored.is_empty() {
            tracing::debug!("options not taken: {ignored:?}");
        }
    }
}
