//! The daemon: owns the PGs of one OSD, its messengers, its session with the monitor, its maps.
//!
//! ```text
//! start: load superblock, maps, PGs -> authenticate -> crush location -> preboot (catch up with
//!        maps) -> MOSDBoot -> a map shows us up: active (serve, heartbeats, reports)
//! ```

mod boot;
mod caps;
mod clog;
pub mod commits;
mod dispatch;
pub mod fullness;
mod hang;
mod heartbeat;
mod host_impl;
pub mod map_store;
mod maps;
pub mod mclock;
mod merges;
pub mod pace;
pub mod perf_queries;
mod pgs;
mod pool_options;
mod remote_read;
mod report;
pub mod session;
pub mod state_times;
pub mod stats;
pub mod tracker;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::time::Duration;

use ::maps::{MgrMap, OsdMap};
use auth::Keyring;
use command::CommandReply;
use config::Config;
use denc::Denc;
use env::sync::{Notify, Semaphore};
use env::{Env, LocalFuture};
use monclient::{MonClient, MonEvents, Settings};
use msgr::{Connection, Incoming, Messenger, Policies, Policy};
use store::injected::InjectedErrors;
use store::{CollId, ObjectStore, PoolOptions, PoolStatfs, Statfs, StoreError, Transaction};
use types::entity::{EntityName, MGR, MON, OSD};
use types::osd::OsdSuperblock;
use types::{Epoch, OsdId, SpgId, Uuid};

use self::map_store::{MapStore, meta_object};
use self::stats::Counters;
use self::tracker::Tracker;
use crate::features;
use crate::ops::snap_mapper::SnapMapper;
use crate::ops::{ClassLists, Limits};
use crate::pg::Pg;
use crate::pg::reserver::{Reserver, Stand};
use crate::pg::scrub::slots::ScrubSlots;

const SUPERBLOCK: &str = "osd_superblock";

/// What a new OSD is made with.
#[derive(Debug, Clone, Copy)]
pub struct MkfsOptions {
    /// Its number.
    pub whoami: i32,
    /// The cluster it belongs to.
    pub cluster_fsid: Uuid,
    /// Its own identity, as told to `osd new`.
    pub osd_fsid: Uuid,
}

/// Why an OSD does not start.
#[derive(Debug)]
pub enum OsdError {
    /// The store fails; nothing more can be done with it.
    Store(StoreError),
    /// The store holds no OSD: run `--mkfs`.
    NoSuperblock,
    /// What the store says of itself cannot be read.
    BadSuperblock(denc::Error),
    /// The store was written to by who knows more: the names of that.
    UnknownFeatures(String),
    /// The store belongs to another OSD.
    WrongOsd {
        /// The number in the superblock.
        found: i32,
        /// The number asked for.
        expected: i32,
    },
    /// The store belongs to an OSD of another cluster, of this fsid.
    WrongCluster(Uuid),
    /// A map that a PG needs is not in the store.
    NoMap(Epoch),
    /// A PG's own records are damaged.
    BadPg(SpgId, String),
    /// An address cannot be listened on.
    Bind(std::io::Error),
    /// The monitor could not be reached or refused us, or the options do not say who it is.
    Monitor(String),
}

impl From<StoreError> for OsdError {
    fn from(e: StoreError) -> OsdError {
        OsdError::Store(e)
    }
}

impl core::fmt::Display for OsdError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            OsdError::Store(e) => write!(f, "store: {e}"),
            OsdError::NoSuperblock => f.write_str("the store holds no OSD yet (run with --mkfs)"),
            OsdError::BadSuperblock(e) => write!(f, "superblock: {e}"),
            OsdError::UnknownFeatures(names) => {
                write!(
                    f,
                    "the store has features that this version does not know: {names} (start the version that wrote it)"
                )
            }
            OsdError::WrongOsd { found, expected } => {
                write!(f, "the store belongs to osd.{found}, not to osd.{expected}")
            }
            OsdError::WrongCluster(fsid) => write!(f, "the store belongs to the cluster {fsid}"),
            OsdError::NoMap(epoch) => write!(f, "the store lacks osdmap {epoch}"),
            OsdError::BadPg(pg, why) => write!(f, "pg {pg}: {why}"),
            OsdError::Bind(e) => write!(f, "cannot listen: {e}"),
            OsdError::Monitor(e) => write!(f, "monitor: {e}"),
        }
    }
}

impl std::error::Error for OsdError {}

/// Where the OSD stands with the monitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootState {
    /// Nothing told yet.
    Initializing,
    /// Catches up with maps.
    Preboot,
    /// MOSDBoot is sent.
    Booting,
    /// The map shows us up.
    Active,
    /// Going down.
    Stopping,
}

impl BootState {
    /// As `status` says it.
    pub fn name(self) -> &'static str {
        match self {
            BootState::Initializing => "initializing",
            BootState::Preboot => "preboot",
            BootState::Booting => "booting",
            BootState::Active => "active",
            BootState::Stopping => "stopping",
        }
    }
}

/// A running OSD.
pub struct Osd {
    pub(crate) me: Weak<Osd>,
    pub(crate) env: Env,
    pub(crate) config: Rc<Config>,
    pub(crate) store: Rc<dyn ObjectStore>,
    /// The same, where objects can be made unreadable.
    pub(crate) injected: Rc<InjectedErrors>,
    pub(crate) whoami: OsdId,
    pub(crate) client: Messenger,
    pub(crate) cluster: Messenger,
    pub(crate) hb_front: Messenger,
    pub(crate) hb_back: Messenger,
    pub(crate) hb_client: Messenger,
    /// Reads of objects on other OSDs.
    pub(crate) objecter: Messenger,
    pub(crate) monc: MonClient,
    pub(crate) superblock: RefCell<OsdSuperblock>,
    pub(crate) maps: MapStore,
    pub(crate) osdmap: RefCell<Rc<OsdMap>>,
    /// What the store was told of pools that have options for it. Bound: the pools of the map.
    pool_options: RefCell<BTreeMap<u64, PoolOptions>>,
    /// The map that all PGs have come to; messages of later ones wait.
    pub(crate) pgs_epoch: Cell<Epoch>,
    pub(crate) state: Cell<BootState>,
    pub(crate) boot_epoch: Cell<Epoch>,
    pub(crate) up_epoch: Cell<Epoch>,
    pub(crate) pgs: RefCell<BTreeMap<SpgId, pgs::Slot>>,
    /// Copies whose removal was stopped because the PG came back: until it is made in what is left.
    leftovers: RefCell<BTreeMap<SpgId, Rc<Pg>>>,
    pub(crate) waiting_for_map: RefCell<BTreeMap<Epoch, VecDeque<dispatch::Parked>>>,
    map_queue: RefCell<VecDeque<messages::MOSDMap>>,
    map_task: Cell<bool>,
    /// When maps last came or were asked for.
    maps_quiet_since: Cell<Option<Duration>>,
    /// They are to be asked for in a moment, if none come.
    maps_wanted_later: Cell<bool>,
    /// A map is being fetched whole.
    fetching_map: Cell<bool>,
    pub(crate) peer_epochs: RefCell<BTreeMap<OsdId, Epoch>>,
    /// Connections to OSDs that are up in the map of the epoch beside them. Bound: the OSDs of the map.
    peer_connections: RefCell<BTreeMap<OsdId, (Epoch, Connection)>>,
    pub(crate) heartbeats: heartbeat::Heartbeats,
    markdowns: RefCell<boot::Markdowns>,
    up_thru_wanted: Cell<Epoch>,
    pg_temp_wanted: RefCell<BTreeMap<SpgId, Vec<OsdId>>>,
    /// What is told of PGs that are to merge.
    merges: merges::Merges,
    pub(crate) mgrmap: RefCell<MgrMap>,
    pub(crate) mgr_con: RefCell<Option<Connection>>,
    pub(crate) report_now: Rc<Notify>,
    /// Revision of the configuration that the manager has.
    pub(crate) config_told: Cell<u64>,
    /// How the manager wants counters.
    reporter: perf::Reporter,
    /// There is news since the last report.
    pub(crate) report_due: Cell<bool>,
    pub(crate) stat_seq: Cell<u64>,
    pub(crate) limits: RefCell<Rc<Limits>>,
    pub(crate) snap_mapper: SnapMapper,
    pub(crate) counters: Counters,
    pub(crate) tracker: Rc<Tracker>,
    pub(crate) recovery_slots: Semaphore,
    pub(crate) turns: Rc<mclock::Turns>,
    pub(crate) pace: pace::Pace,
    pub(crate) local_reserver: Reserver,
    pub(crate) remote_reserver: Reserver,
    pub(crate) scrub_slots: ScrubSlots,
    clog: clog::ClusterLog,
    pub(crate) statfs: Cell<Statfs>,
    room: fullness::Room,
    /// The store is being asked how full it is, once a second.
    measures_room: Cell<bool>,
    /// What pools take, if the store knows.
    pool_statfs: RefCell<Option<PoolStatfs>>,
    /// osd_failsafe_full_ratio.
    pub(crate) failsafe_ratio: Cell<f64>,
    injected_fullness: fullness::InjectedFullness,
    /// PGs that there were when they were told their settings.
    pgs_configured: Cell<usize>,
    pub(crate) state_times: state_times::StateTimes,
    pub(crate) arrivals: Cell<u64>,
    /// Ops for PGs of ours that are not there yet, in the order they came in. Bound: the clients' throttles.
    uncreated: RefCell<BTreeMap<SpgId, Vec<(Connection, Incoming)>>>,
    next_tid: Cell<u64>,
    pub(crate) remote_reads: remote_read::RemoteReads,
    replica_writes: commits::ReplicaWrites,
    failure: RefCell<Option<String>>,
    failed: Notify,
    events: RefCell<Option<Rc<dyn MonEvents>>>,
}

impl Osd {
    /// Makes an empty, mounted store into an OSD's: superblock and meta collection. If it is that
    /// OSD's, it stays as it is.
    pub async fn mkfs(store: &Rc<dyn ObjectStore>, options: MkfsOptions) -> Result<(), OsdError> {
        match read_superblock(store).await {
            Ok(sb) if sb.cluster_fsid != options.cluster_fsid => {
                return Err(OsdError::WrongCluster(sb.cluster_fsid));
            }
            Ok(sb) if sb.whoami != options.whoami => {
                let (found, expected) = (sb.whoami, options.whoami);
                return Err(OsdError::WrongOsd { found, expected });
            }
            Err(OsdError::NoSuperblock) => {}
            found => return found.map(|_| ()),
        }
        let sb = OsdSuperblock {
            cluster_fsid: options.cluster_fsid,
            osd_fsid: options.osd_fsid,
            whoami: options.whoami,
            compat_features: features::compat_features(),
            ..OsdSuperblock::default()
        };
        let mut t = Transaction::new();
        if !store.collections().await?.contains(&CollId::Meta) {
            t.mkcoll(&CollId::Meta, 0);
        }
        write_superblock(&sb, &mut t);
        let mapper = SnapMapper::new(store.clone(), CollId::Meta, SnapMapper::default_object());
        mapper.create(&mut t);
        store.submit(t).await?;
        Ok(())
    }

    /// Starts an OSD on a mounted store: loads maps and PGs, listens, authenticates, and boots in
    /// the background. Returns once it listens and the monitor knows it authenticated.
    /// `keyring` must hold `osd.<id>`'s key (unless auth is none).
    pub fn start(
        env: Env,
        config: Rc<Config>,
        keyring: Keyring,
        store: Rc<dyn ObjectStore>,
    ) -> LocalFuture<Result<Rc<Osd>, OsdError>> {
        Box::pin(async move {
            let mut superblock = read_superblock(&store).await?;
            if let Some(names) = features::unknown(&superblock.compat_features) {
                return Err(OsdError::UnknownFeatures(names));
            }
            superblock.compat_features = features::compat_features();
            let expected: i32 = config.id().parse().unwrap_or(-1);
            if superblock.whoami != expected {
                return Err(OsdError::WrongOsd { found: superblock.whoami, expected });
            }
            let settings = Settings::from_config(&config, Some(&keyring))
                .map_err(|e| OsdError::Monitor(e.to_string()))?;
            let osd = Osd::assemble(env.clone(), config, store, superblock, settings);
            osd.store.stop_when_full();
            osd.statfs.set(osd.store.statfs().await?);
            osd.pool_statfs.replace(osd.store.pool_statfs().await?);
            osd.snap_mapper.take_over().await?;
            osd.load().await?;
            if let Err(e) = osd.listen() {
                osd.stop_io();
                return Err(OsdError::Bind(e));
            }
            osd.monc.start();
            if let Err(e) = osd.monc.authenticated().await {
                osd.stop_io();
                return Err(OsdError::Monitor(e.to_string()));
            }
            osd.monc.rotating_ready().await;
            env.go(boot::run(osd.clone()));
            env.go(heartbeat::run(osd.clone()));
            env.go(report::run(osd.clone()));
            env.go(commits::run(osd.clone()));
            env.go(boot::tick(osd.clone()));
            Ok(osd)
        })
    }

    fn assemble(
        env: Env,
        config: Rc<Config>,
        store: Rc<dyn ObjectStore>,
        superblock: OsdSuperblock,
        settings: Settings,
    ) -> Rc<Osd> {
        let whoami = superblock.whoami;
        let injected = Rc::new(InjectedErrors::new(store));
        let store: Rc<dyn ObjectStore> = injected.clone();
        let nonce = u32::try_from(env.random_u64() >> 33).unwrap_or(1).max(1);
        let name = EntityName::osd(whoami);
        let messenger =
            |policies| Messenger::new(env.clone(), msgr::Config::new(name, nonce, policies));
        let of_clients = Policy::stateless_registered_server().throttled(
            config.uint("osd_client_message_size_cap"),
            config.uint("osd_client_message_cap"),
        );
        let client = messenger(
            Policies::new(of_clients)
                .with(MON, Policy::lossy_client())
                .with(MGR, Policy::lossy_client())
                .with(OSD, Policy::stateless_server()),
        );
        let cluster =
            messenger(Policies::new(Policy::stateless_server()).with(OSD, Policy::lossless_peer()));
        let hb_server = || messenger(Policies::new(Policy::stateless_server()));
        let (hb_front, hb_back) = (hb_server(), hb_server());
        let hb_client = messenger(Policies::new(Policy::lossy_client()));
        let objecter = messenger(Policies::new(Policy::lossy_client()));
        let monc = MonClient::new(env.clone(), client.clone(), settings);
        let tracker = Tracker::new(env.clone());
        let osd = Rc::new_cyclic(|me: &Weak<Osd>| Osd {
            me: me.clone(),
            whoami,
            maps: MapStore::new(store.clone()),
            snap_mapper: SnapMapper::new(store.clone(), CollId::Meta, SnapMapper::default_object()),
            osdmap: RefCell::default(),
            pool_options: RefCell::default(),
            pgs_epoch: Cell::new(0),
            superblock: RefCell::new(superblock),
            state: Cell::new(BootState::Initializing),
            boot_epoch: Cell::new(0),
            up_epoch: Cell::new(0),
            pgs: RefCell::default(),
            leftovers: RefCell::default(),
            waiting_for_map: RefCell::default(),
            map_queue: RefCell::default(),
            map_task: Cell::new(false),
            maps_quiet_since: Cell::default(),
            maps_wanted_later: Cell::default(),
            fetching_map: Cell::default(),
            peer_epochs: RefCell::default(),
            peer_connections: RefCell::default(),
            heartbeats: heartbeat::Heartbeats::default(),
            markdowns: RefCell::default(),
            up_thru_wanted: Cell::new(0),
            pg_temp_wanted: RefCell::default(),
            merges: merges::Merges::default(),
            mgrmap: RefCell::default(),
            mgr_con: RefCell::default(),
            report_now: Rc::default(),
            config_told: Cell::new(0),
            reporter: perf::Reporter::default(),
            report_due: Cell::new(false),
            stat_seq: Cell::new(0),
            limits: RefCell::default(),
            counters: Counters::default(),
            tracker,
            recovery_slots: Semaphore::new(1),
            turns: mclock::Turns::new(env.clone(), &config),
            pace: pace::Pace::new(env.clone()),
            local_reserver: Reserver::default(),
            remote_reserver: Reserver::default(),
            scrub_slots: ScrubSlots::default(),
            clog: clog::ClusterLog::default(),
            statfs: Cell::default(),
            room: fullness::Room::default(),
            measures_room: Cell::default(),
            pool_statfs: RefCell::default(),
            failsafe_ratio: Cell::new(1.0),
            injected_fullness: fullness::InjectedFullness::default(),
            pgs_configured: Cell::new(0),
            state_times: state_times::StateTimes::default(),
            arrivals: Cell::new(0),
            uncreated: RefCell::default(),
            next_tid: Cell::new(1),
            remote_reads: remote_read::RemoteReads::default(),
            replica_writes: commits::ReplicaWrites::default(),
            failure: RefCell::default(),
            failed: Notify::default(),
            events: RefCell::default(),
            env,
            config,
            store,
            injected,
            client,
            cluster,
            hb_front,
            hb_back,
            hb_client,
            objecter,
            monc,
        });
        osd.apply_config();
        for (messenger, role) in [
            (&osd.client, dispatch::Role::Client),
            (&osd.cluster, dispatch::Role::Cluster),
            (&osd.hb_front, dispatch::Role::HeartbeatServer),
            (&osd.hb_back, dispatch::Role::HeartbeatServer),
            (&osd.hb_client, dispatch::Role::HeartbeatClient),
            (&osd.objecter, dispatch::Role::Objecter),
        ] {
            messenger.set_dispatcher(Rc::new(dispatch::Dispatch::new(&osd, role)));
            messenger.set_auth_client(osd.monc.auth_client());
            messenger.set_auth_server(osd.monc.auth_server());
        }
        let events: Rc<dyn MonEvents> = Rc::new(boot::Events(osd.me.clone()));
        osd.monc.set_events(&events);
        *osd.events.borrow_mut() = Some(events);
        osd
    }

    /// Takes over the options that may change while running.
    pub(crate) fn apply_config(&self) {
        let c = &self.config;
        let defaults = Limits::default();
        let classes =
            ClassLists::new(&c.str("osd_class_load_list"), &c.str("osd_class_default_list"));
        *self.limits.borrow_mut() = Rc::new(Limits {
            classes,
            object_size: c.uint("osd_max_object_size"),
            object_name_len: c.uint("osd_max_object_name_len") as usize,
            namespace_len: c.uint("osd_max_object_namespace_len") as usize,
            attr_name_len: c.uint("osd_max_attr_name_len") as usize,
            attr_size: c.uint("osd_max_attr_size"),
            write_size: c.uint("osd_max_write_size") << 20,
            omap_entries: c.uint("osd_max_omap_entries_per_request"),
            omap_bytes: c.uint("osd_max_omap_bytes_per_request"),
            write_op_reply_len: c.uint("osd_max_write_op_reply_len") as usize,
            pgls: c.uint("osd_max_pgls"),
            watch_timeout_sec: c.uint("osd_client_watch_timeout") as u32,
            notify_timeout_sec: c.uint("osd_default_notify_timeout") as u32,
            copy_chunk: c.uint("osd_copyfrom_max_chunk"),
            skip_data_digest: c.bool("osd_skip_data_digest"),
            ..defaults
        });
        self.limit_reservers();
        self.turns.configure(c);
        self.recovery_slots.set_total(self.recovery_max_active());
        self.failsafe_ratio.set(c.float("osd_failsafe_full_ratio"));
        self.tracker.set_history_size(c.uint("osd_op_history_size") as usize);
        let slow = c.float("osd_op_history_slow_op_threshold");
        self.tracker.slow_threshold.set(Duration::from_secs_f64(slow.clamp(0.0, 1e6)));
        self.configure_pgs();
    }

    /// Tells the PGs their settings, some of which depend on how many they are.
    pub(crate) fn configure_pgs(&self) {
        let count = self.pgs.borrow().len();
        self.pgs_configured.set(count);
        for pg in self.all_pgs() {
            pg.configure(&self.config, count);
        }
    }

    /// Objects that this OSD recovers at a time. All our devices call themselves ssd.
    pub(crate) fn recovery_max_active(&self) -> u64 {
        let active = match self.config.uint("osd_recovery_max_active") {
            0 => self.config.uint("osd_recovery_max_active_ssd"),
            n => n,
        };
        active.max(1)
    }

    pub(crate) fn limit_reservers(&self) {
        let max = self.config.uint("osd_max_backfills") as usize;
        let least = u32::try_from(self.config.int("osd_min_recovery_priority")).unwrap_or(0);
        self.local_reserver.set_limits(max, least);
        self.remote_reserver.set_limits(max, least);
    }

    /// Listens on four ports of the range, and tells nobody yet.
    fn listen(&self) -> std::io::Result<()> {
        let public = self.config.ip("public_addr").unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let cluster = self.config.ip("cluster_addr").unwrap_or(public);
        for (messenger, ip) in [
            (&self.client, public),
            (&self.cluster, cluster),
            (&self.hb_back, cluster),
            (&self.hb_front, public),
        ] {
            self.bind_in_range(messenger, ip)?;
        }
        Ok(())
    }

    fn bind_in_range(&self, messenger: &Messenger, ip: IpAddr) -> std::io::Result<()> {
        let port_of = |name: &str| u16::try_from(self.config.uint(name)).unwrap_or(0);
        let mut last = Err(std::io::ErrorKind::AddrNotAvailable.into());
        for port in port_of("ms_bind_port_min")..=port_of("ms_bind_port_max") {
            last = messenger.bind(SocketAddr::new(ip, port)).map(|_| ());
            match &last {
                Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {}
                _ => break,
            }
        }
        last
    }

    pub(crate) fn rc(&self) -> Rc<Osd> {
        // Only ever reached through an Rc.
        self.me.upgrade().expect("an OSD in use is alive")
    }

    /// The newest map.
    pub fn current_map(&self) -> Rc<OsdMap> {
        self.osdmap.borrow().clone()
    }

    /// The PGs here, in order.
    pub fn all_pgs(&self) -> Vec<Rc<Pg>> {
        self.pgs.borrow().values().filter_map(pgs::Slot::ready).collect()
    }

    /// And those that are being removed.
    pub(crate) fn all_copies(&self) -> Vec<Rc<Pg>> {
        self.pgs.borrow().values().filter_map(pgs::Slot::copy).cloned().collect()
    }

    pub(crate) fn set_state(&self, state: BootState) {
        if self.state.get() != state {
            tracing::info!("osd.{} is {}", self.whoami, state.name());
            self.state.set(state);
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.state.get() == BootState::Active
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.state.get() == BootState::Stopping
    }

    /// Ends the OSD for a reason that it cannot help.
    pub(crate) fn fail(&self, reason: String) {
        if self.failure.borrow().is_some() || self.is_stopping() {
            return;
        }
        tracing::error!("osd.{} goes down: {reason}", self.whoami);
        *self.failure.borrow_mut() = Some(reason);
        self.stop_io();
        self.failed.notify_all();
    }

    fn stop_io(&self) {
        self.set_state(BootState::Stopping);
        for m in [&self.hb_client, &self.hb_front, &self.hb_back, &self.cluster, &self.objecter] {
            m.shutdown();
        }
        self.monc.shutdown();
        self.client.shutdown();
        self.events.borrow_mut().take();
        for pg in self.all_pgs() {
            pg.stop();
        }
        self.pgs.borrow_mut().clear();
        self.replica_writes.stop();
    }

    /// A command from the admin socket: the JSON text of an object with "prefix".
    pub fn admin_command(self: &Rc<Self>, json: String) -> LocalFuture<CommandReply> {
        crate::tell::run(self.clone(), vec![json.into()], bytes::Bytes::new(), true)
    }

    /// Clean stop: tells the monitor, stops taking ops, closes the store. An error if that does not close: what a
    /// store in memory had is gone then.
    pub async fn shutdown(self: &Rc<Self>) -> Result<(), OsdError> {
        if self.is_active() {
            self.say_goodbye().await;
        }
        self.stop_io();
        Ok(self.store.close().await?)
    }

    /// Lets go of the PGs, which hold the OSD: for whoever ends its tasks without a word to it, as a
    /// simulated kill does.
    pub fn abandon(&self) {
        self.pgs.borrow_mut().clear();
        self.waiting_for_map.borrow_mut().clear();
        self.map_queue.borrow_mut().clear();
        self.events.borrow_mut().take();
    }

    /// Every PG as it is now, what does not hold among it; and how many client ops are under way.
    pub fn audit(&self) -> (Vec<crate::pg::PgAudit>, Vec<String>) {
        (self.all_pgs().iter().map(|pg| pg.audit()).collect(), self.tracker.describe_live())
    }

    /// Slots for recovery and backfill: of PGs led here, of PGs followed in.
    pub fn reservations(&self) -> [Vec<(SpgId, u32, Stand)>; 2] {
        [self.local_reserver.all(), self.remote_reserver.all()]
    }

    /// Completes when the OSD has to go down (store failure, fsid mismatch), with the reason.
    pub fn failed(self: &Rc<Self>) -> LocalFuture<String> {
        let osd = self.clone();
        Box::pin(async move {
            osd.failed.until(|| osd.failure.borrow().is_some()).await;
            osd.failure.borrow().clone().unwrap_or_default()
        })
    }

    /// OSDs that act with us in some PG.
    pub(crate) fn pg_peers(&self) -> BTreeSet<OsdId> {
        let mut peers = BTreeSet::new();
        for pg in self.all_pgs() {
            let core = pg.core.borrow();
            peers.extend(core.mapping.up.iter().chain(&core.mapping.acting).copied());
            peers.extend(core.prior().probe.iter().map(|s| s.osd));
        }
        peers.remove(&self.whoami);
        peers
    }
}

pub(crate) fn write_superblock(sb: &OsdSuperblock, t: &mut Transaction) {
    let oid = meta_object(SUPERBLOCK);
    let bytes = sb.to_bytes();
    t.touch(&CollId::Meta, &oid);
    t.truncate(&CollId::Meta, &oid, 0);
    t.write(&CollId::Meta, &oid, 0, bytes);
}

async fn read_superblock(store: &Rc<dyn ObjectStore>) -> Result<OsdSuperblock, OsdError> {
    let read = store.read(&CollId::Meta, &meta_object(SUPERBLOCK), 0, 0).await;
    let bytes = match read {
        Err(StoreError::NoObject | StoreError::NoCollection(_)) => {
            return Err(OsdError::NoSuperblock);
        }
        bytes => bytes?.to_contiguous(),
    };
    OsdSuperblock::from_bytes(&bytes).map_err(OsdError::BadSuperblock)
}
