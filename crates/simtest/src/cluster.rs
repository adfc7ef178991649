//! Building, starting, killing and asking a cluster.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::path::Path;
use std::rc::{Rc, Weak};
use std::time::Duration;

use auth::Keyring;
use bytes::Bytes;
use client::{Client, Options};
use config::{ConfFile, Config};
use device::BlockDevice;
use env::{Env, OpenBlock};
use maps::MonMap;
use serde_json::json;
use sim::{Control, Kill, Rng};
use store::inkstore::{self, InkStore};
use store::kv::RedbKv;
use store::memstore::MemStore;
use store::{Kv, ObjectStore, StoreError, Transaction};
use types::{Errno, PgId, SpgId, UTime, Uuid};

use crate::slow_reads::SlowReads;
use crate::{Workload, diary, keys, mons, replicas};

pub(crate) const MON_PORT: u16 = 3300;
pub(crate) const MON_DB: &str = "/mon/store.redb";
const OSD_BLOCK: &str = "/osd/block";

/// What to build.
#[derive(Debug, Clone)]
pub struct Plan {
    /// OSDs.
    pub osds: u32,
    /// Bytes of each OSD's disk.
    pub disk_len: u64,
    /// Keep data in memory: killed OSDs lose it.
    pub memstore: bool,
    /// Lines added to `[global]`.
    pub options: String,
    /// Without proofs and tickets.
    pub auth_none: bool,
    /// Monitors: mon.a, mon.b, ...; up to seven.
    pub mons: u32,
    /// Copies of an object.
    pub size: u32,
    /// Copies without which nothing is written or read.
    pub min_size: u32,
    /// OSDs that may be added.
    pub spare_osds: u32,
    /// Data and parity chunks, if the clients' pool is erasure coded.
    pub code: Option<(u32, u32)>,
    /// OSDs that share a process, as with `loligo up --osds-per-process`: they talk within it, and fall
    /// and come back together.
    pub osds_per_process: u32,
    /// What each read of an OSD's store takes at most, beyond what its disk takes.
    pub reads_take: Duration,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            osds: 3,
            disk_len: 256 << 20,
            memstore: false,
            options: String::new(),
            auth_none: false,
            mons: 1,
            size: 3,
            min_size: 2,
            spare_osds: 1,
            code: None,
            osds_per_process: 1,
            reads_take: Duration::ZERO,
        }
    }
}

impl Plan {
    /// The OSDs of the process that an OSD is in.
    fn process_of(&self, osd: u32) -> std::ops::Range<u32> {
        let first = osd - osd % self.osds_per_process;
        first..(first + self.osds_per_process).min(self.osds + self.spare_osds)
    }

    /// OSDs that the clients' pool cannot do without.
    pub(crate) fn members_min(&self) -> usize {
        self.code.map_or(self.size, |(k, m)| k + m) as usize
    }
}

/// See the module. Clones are the same cluster.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) world: Control,
    pub(crate) plan: Rc<Plan>,
    conf: Rc<String>,
    pub(crate) keyring: Rc<Keyring>,
    fsid: Uuid,
    /// The process on the monitor's host is the monitor, not what made its database.
    mon_runs: Rc<Cell<bool>>,
    /// The same of the other monitors: those that have been started.
    pub(crate) mons_started: Rc<RefCell<BTreeSet<String>>>,
    /// OSDs that belong to it.
    members: Rc<RefCell<BTreeSet<u32>>>,
    /// Numbers between an OSD that has been removed and the new one.
    vacant: Rc<RefCell<BTreeSet<u32>>>,
    /// OSDs whose stores are being made: one that ends meanwhile is made again.
    unmade: Rc<RefCell<BTreeSet<u32>>>,
    /// Those that run, for audits.
    running: Rc<RefCell<BTreeMap<u32, Weak<osd::Osd>>>>,
    /// OSDs whose disks lost or lose what was written: these may fail.
    excused: Rc<RefCell<BTreeSet<u32>>>,
    /// How long reads of OSDs' stores take at most, beyond what their disks take.
    reads_take: Rc<RefCell<BTreeMap<u32, Rc<Cell<Duration>>>>>,
}

/// The host of an OSD.
fn host_of(osd: u32) -> String {
    format!("osd.{osd}")
}

/// An OSD's identity, the same in every run.
fn osd_fsid(osd: u32) -> Uuid {
    let mut bytes = [0x4c; 16];
    bytes[12..].copy_from_slice(&osd.to_be_bytes());
    Uuid::from_random(bytes)
}

impl Cluster {
    /// Makes the monitor's database; nothing runs yet.
    pub fn make(world: &Control, plan: Plan) -> Cluster {
        let env = world.node("mon.a");
        let mut id = [0; 16];
        env.fill_random(&mut id);
        let fsid = Uuid::from_random(id);
        let method = if plan.auth_none { "none" } else { "cephx" };
        let conf = format!(
            "[global]\n\
             fsid = {fsid}\n\
             mon_host = {}\n\
             auth_cluster_required = {method}\n\
             auth_service_required = {method}\n\
             auth_client_required = {method}\n\
             osd_crush_chooseleaf_type = 0\n\
             osd_pool_default_size = {}\n\
             osd_pool_default_min_size = {}\n\
             osd_pool_default_pg_num = 8\n\
             osd_pool_default_pg_autoscale_mode = off\n\
             mon_allow_pool_delete = true\n\
             {}\n",
            mons::hosts(world, plan.mons),
            plan.size,
            plan.min_size,
            plan.options
        );
        let keyring = keys::keyring(&env, plan.osds + plan.spare_osds);
        if plan.osds_per_process > 1 {
            let all = (0..plan.osds + plan.spare_osds).map(host_of).collect::<Vec<_>>();
            for process in all.chunks(plan.osds_per_process as usize) {
                world.share_process(process);
            }
        }
        let cluster = Cluster {
            world: world.clone(),
            plan: Rc::new(plan),
            conf: Rc::new(conf),
            keyring: Rc::new(keyring),
            fsid,
            mon_runs: Rc::default(),
            mons_started: Rc::default(),
            members: Rc::default(),
            vacant: Rc::default(),
            unmade: Rc::default(),
            running: Rc::default(),
            excused: Rc::default(),
            reads_take: Rc::default(),
        };
        cluster.mkfs_mon(&env);
        cluster
    }

    /// What a daemon or a client on that host reads.
    pub fn config(&self, kind: &str, id: &str, host: &str) -> Rc<Config> {
        let config = Config::new(kind, id).with_identity("ceph", host, 1);
        let file = ConfFile::parse(&self.conf).expect("a good configuration");
        let bad = config.load_file(&file);
        assert!(bad.is_empty(), "{bad:?}");
        if kind != "client" {
            let ip = self.world.ip(host).to_string();
            config.set("public_addr", &ip, config::Source::File).expect("an address");
        }
        Rc::new(config)
    }

    fn mkfs_mon(&self, env: &Env) {
        let now = UTime::from_duration(env.wall_clock());
        let kv = RedbKv::open(env, Path::new(MON_DB)).expect("a database");
        let mut monmap = MonMap {
            fsid: self.fsid,
            epoch: 1,
            last_changed: now,
            created: now,
            min_mon_release: 16,
            persistent_features: maps::monmap::MonFeatures { bits: 255 },
            ..MonMap::default()
        };
        mons::add_all(&self.world, self.plan.mons, &mut monmap);
        let config = self.config("mon", "a", "mon.a");
        let fill = &mut |buf: &mut [u8]| env.fill_random(buf);
        mon::mkfs(&kv, &config, &monmap, &self.keyring, now, fill).expect("mkfs of the monitor");
        self.mkfs_joining(&monmap);
    }

    /// Starts the monitors that do not run.
    pub fn start_mon(&self) {
        self.start_joined();
        if self.mon_runs.replace(true) && self.world.is_running("mon.a") {
            return;
        }
        let env = self.world.node("mon.a");
        let config = self.config("mon", "a", "mon.a");
        env.clone().go(async move {
            let kv: Rc<dyn Kv> =
                Rc::new(RedbKv::open(&env, Path::new(MON_DB)).expect("the monitor's database"));
            let metadata = BTreeMap::from([("hostname".to_owned(), "mon.a".to_owned())]);
            let identity = mon::Identity { name: "a".to_owned(), metadata };
            let mon = mon::Mon::start(env.clone(), config, kv, identity).await;
            let mon = mon.expect("the monitor starts");
            pending::<()>().await;
            drop(mon);
        });
    }

    /// Starts the manager.
    pub fn start_mgr(&self) {
        self.start_mgr_as("x", Keyring::clone(&self.keyring));
    }

    /// Starts a manager of that name, with its key.
    pub fn start_mgr_as(&self, id: &'static str, keyring: Keyring) {
        let host = format!("mgr.{id}");
        if self.world.is_running(&host) {
            return;
        }
        let env = self.world.node(&host);
        let config = self.config("mgr", id, &host);
        env.clone().go(async move {
            let mgr = mgr::Mgr::start(env.clone(), config, keyring).await;
            let mgr = mgr.expect("the manager starts");
            pending::<()>().await;
            drop(mgr);
        });
    }

    async fn store(
        plan: &Plan,
        env: &Env,
        make: Option<Uuid>,
    ) -> Result<Rc<dyn ObjectStore>, StoreError> {
        if plan.memstore {
            return Ok(Rc::new(MemStore::new(plan.disk_len)));
        }
        let create_len = make.map(|_| plan.disk_len);
        let options = OpenBlock { create_len, read_only: false };
        let device = BlockDevice::open(env, Path::new(OSD_BLOCK), options)?;
        if let Some(uuid) = make {
            let options = inkstore::MkfsOptions { uuid: uuid.0, log_len: None };
            InkStore::mkfs(&device, options).await?;
        }
        let store = InkStore::mount(env.clone(), device).await?;
        store.set_cache_size(1 << 20);
        store.set_discard(Some(16 << 10));
        Ok(Rc::new(store))
    }

    /// Makes an OSD's store and starts it. The monitors must know it (`osd new`).
    pub fn make_osd(&self, osd: u32) {
        self.members.borrow_mut().insert(osd);
        self.unmade.borrow_mut().insert(osd);
        self.run_osd(osd, true);
    }

    /// Starts an OSD that has been made, and those of its process, unless they run.
    pub fn start_osd(&self, osd: u32) {
        for osd in self.plan.process_of(osd) {
            self.start_one(osd);
        }
    }

    fn start_one(&self, osd: u32) {
        let belongs = self.members.borrow().contains(&osd);
        if belongs && !self.world.is_running(&host_of(osd)) {
            let unmade = self.unmade.borrow().contains(&osd);
            if unmade {
                self.world.remove_disk(&host_of(osd), OSD_BLOCK);
            }
            self.run_osd(osd, self.plan.memstore || unmade);
        }
    }

    /// The OSDs that belong to the cluster, running or not.
    pub fn members(&self) -> Vec<u32> {
        self.members.borrow().iter().copied().collect()
    }

    /// The number of an OSD to be added, if there may be one more.
    pub(crate) fn next_osd(&self) -> Option<u32> {
        let (members, vacant) = (self.members.borrow(), self.vacant.borrow());
        let last = members.iter().chain(vacant.iter()).max();
        last.map(|last| last + 1).filter(|next| *next < self.osds_max())
    }

    /// One more than the highest number an OSD may have.
    pub fn osds_max(&self) -> u32 {
        self.plan.osds + self.plan.spare_osds
    }

    /// The OSDs that run.
    pub(crate) fn running_osds(&self) -> Vec<(u32, Rc<osd::Osd>)> {
        let running = self.running.borrow();
        running.iter().filter_map(|(id, osd)| Some((*id, osd.upgrade()?))).collect()
    }

    /// The disk of an OSD. Whatever it does wrong from now on, until it is replaced, excuses the OSD's failing.
    /// A disk that says what it did wrong (EIO) needs no such excuse: the process that it said it to may fail.
    pub fn broken_disk(&self, osd: u32) -> sim::Disk {
        self.excused.borrow_mut().insert(osd);
        self.world.disk(&host_of(osd), OSD_BLOCK)
    }

    /// From now on each read of an OSD's store takes up to so long (`slow_reads.rs`).
    pub fn slow_reads(&self, osd: u32, most: Duration) {
        self.reads_take(osd).set(most);
    }

    fn reads_take(&self, osd: u32) -> Rc<Cell<Duration>> {
        let reads_take = &mut *self.reads_take.borrow_mut();
        reads_take.entry(osd).or_insert_with(|| Rc::new(Cell::new(self.plan.reads_take))).clone()
    }

    /// Members of a PG that may be away while it serves.
    pub(crate) fn spare_copies(&self) -> usize {
        let Plan { size, min_size, code, .. } = &*self.plan;
        let spare = code.map_or(size.saturating_sub(*min_size), |(_, m)| m.saturating_sub(1));
        spare as usize
    }

    /// The disk of an OSD.
    pub(crate) fn disk(&self, osd: u32) -> sim::Disk {
        self.world.disk(&host_of(osd), OSD_BLOCK)
    }

    /// How often its disk answered EIO so far.
    fn disk_errors(&self, osd: u32) -> u64 {
        if self.plan.memstore { 0 } else { self.disk(osd).errors() }
    }

    /// Gives an OSD a new, empty disk.
    pub fn replace_disk(&self, osd: u32) {
        self.kill_osd(osd, Kill::PROCESS);
        self.world.remove_disk(&host_of(osd), OSD_BLOCK);
        self.excused.borrow_mut().remove(&osd);
        self.make_osd(osd);
        self.start_osd(osd);
    }

    fn run_osd(&self, id: u32, make: bool) {
        let host = host_of(id);
        let env = self.world.node(&host);
        let cluster = self.clone();
        let errors_before = if make { 0 } else { self.disk_errors(id) };
        env.clone().go(async move {
            let why = match cluster.be_osd(&env, id, &host, make).await {
                Ok(osd) => osd.failed().await,
                Err(why) => why,
            };
            let is_told = cluster.disk_errors(id) > errors_before;
            assert!(is_told || cluster.excused.borrow().contains(&id), "{host} fails: {why}");
            tracing::info!("{host} fails: {why}");
            let world = cluster.world.clone();
            cluster.world.spawn(async move {
                cluster.running.borrow_mut().remove(&id);
                world.kill(&host, Kill::PROCESS);
            });
        });
    }

    async fn be_osd(
        &self,
        env: &Env,
        id: u32,
        host: &str,
        make: bool,
    ) -> Result<Rc<osd::Osd>, String> {
        let (uuid, text) = (osd_fsid(id), |error: StoreError| format!("the store: {error:?}"));
        let config = self.config("osd", &id.to_string(), host);
        let store = Cluster::store(&self.plan, env, make.then_some(uuid)).await.map_err(text)?;
        if make {
            let whoami = i32::try_from(id).expect("few OSDs");
            let options = osd::MkfsOptions { whoami, cluster_fsid: self.fsid, osd_fsid: uuid };
            osd::Osd::mkfs(&store, options).await.map_err(|error| error.to_string())?;
            self.unmade.borrow_mut().remove(&id);
        }
        let store: Rc<dyn ObjectStore> =
            Rc::new(SlowReads::new(store, env.clone(), self.reads_take(id)));
        let keyring = Keyring::clone(&self.keyring);
        let osd = osd::Osd::start(env.clone(), config, keyring, store).await;
        let osd = osd.map_err(|error| format!("it does not start: {error}"))?;
        self.running.borrow_mut().insert(id, Rc::downgrade(&osd));
        Ok(osd)
    }

    /// Starts everything for the first time; returns when all OSDs are up.
    pub async fn start(&self) -> Client {
        self.start_mon();
        self.start_mgr();
        let client = self.client("client.admin").await;
        for osd in 0..self.plan.osds {
            self.add_osd(&client, osd).await;
        }
        self.wait_until_up(&client).await;
        client
    }

    /// Tells the monitors of a new OSD, makes and starts it.
    pub async fn add_osd(&self, client: &Client, osd: u32) {
        let uuid = osd_fsid(osd).to_string();
        let new = serde_json::json!({"prefix": "osd new", "uuid": uuid, "id": osd});
        let answer = client.mon_command(new.to_string(), Bytes::from_static(b"{}")).await;
        let answer = answer.expect("the monitor answers");
        assert_eq!(answer.rc, 0, "osd new: {}", answer.outs);
        self.make_osd(osd);
    }

    /// Takes an OSD that holds nothing any more out of the cluster.
    pub async fn remove_osd(&self, client: &Client, osd: u32) {
        self.members.borrow_mut().remove(&osd);
        self.vacant.borrow_mut().insert(osd);
        self.kill_osd(osd, Kill::PROCESS);
        self.start_osd(osd);
        let down = json!({"prefix": "osd down", "ids": [osd.to_string()]});
        let purge = json!({"prefix": "osd purge-actual", "id": osd, "yes_i_really_mean_it": true});
        loop {
            self.command(client, down.clone()).await;
            let answer = client.mon_command(purge.to_string(), Bytes::new()).await;
            let answer = answer.expect("the monitor answers");
            if answer.rc == 0 {
                return;
            }
            // What it said of itself before it fell can come behind the order (life 70264): a
            // monitor that was away passes it on. It cannot say it again.
            assert_eq!(answer.rc, Errno::EBUSY.result(), "{purge}: {}", answer.outs);
        }
    }

    /// Brings back the number of an OSD that has been removed: with its key, and an empty disk.
    pub async fn renew_osd(&self, client: &Client, osd: u32) {
        let name = types::entity::AuthEntityName::new(types::entity::OSD, osd.to_string());
        let key = self.keyring.keys[&name].key.to_base64();
        let new = json!({"prefix": "osd new", "uuid": osd_fsid(osd).to_string(), "id": osd});
        let secrets = json!({"cephx_secret": key}).to_string();
        let answer = client.mon_command(new.to_string(), Bytes::from(secrets)).await;
        let answer = answer.expect("the monitor answers");
        assert_eq!(answer.rc, 0, "osd new: {}", answer.outs);
        self.vacant.borrow_mut().remove(&osd);
        self.replace_disk(osd);
    }

    /// Waits until every OSD is up in the map.
    pub async fn wait_until_up(&self, client: &Client) {
        const LIMIT: Duration = Duration::from_secs(300);
        let end = self.world.now() + LIMIT;
        while client.osdmap().num_up_osds() < self.members().len() {
            for osd in self.members() {
                self.start_osd(osd);
            }
            assert!(self.world.now() < end, "not all OSDs are up after {LIMIT:?}");
            self.world.sleep(Duration::from_millis(100)).await;
            client.wait_for_latest_osdmap().await.expect("the monitor answers");
        }
    }

    /// Waits until an OSD is up in another life than the one that began in epoch `last_life`, and so are
    /// all others. Before that the map, and the manager, may still speak of that life: short life
    /// 800560 of an erasure coded pool took what it saw for the new disk's, and its last scrub saw
    /// what one of the old disk had found.
    pub async fn wait_until_reborn(&self, client: &Client, osd: u32, last_life: u32) {
        let world = self.world().clone();
        let reborn = async {
            while client.osdmap().up_from(osd as i32) <= last_life {
                self.start_osd(osd);
                world.sleep(Duration::from_millis(100)).await;
                client.wait_for_latest_osdmap().await.expect("the monitor answers");
            }
        };
        self.in_time(client, "a life on a new disk", Duration::from_secs(300), reborn).await;
        self.wait_until_up(client).await;
    }

    /// Everybody's keys.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// A client on a host of its own.
    pub async fn client(&self, host: &str) -> Client {
        let env = self.world.node(host);
        let config = self.config("client", "admin", host);
        let keyring = Keyring::clone(&self.keyring);
        let inside = env.clone();
        let handle = env.spawn_with_handle(async move {
            let options = Options { follow_osdmap: true };
            Client::connect(inside, config, &keyring, options).await
        });
        handle.await.expect("the client connects")
    }

    /// Makes the clients' pool.
    pub async fn create_pool(&self, admin: &Client, pg_num: u32) {
        let Some((k, m)) = self.plan.code else {
            let pool = json!({
                "prefix": "osd pool create", "pool": "p", "pg_num": pg_num, "autoscale_mode": "off",
            });
            self.command(admin, pool).await;
            return;
        };
        self.create_coded_pool(admin, pg_num, &[&format!("k={k}"), &format!("m={m}")]).await;
    }

    /// Makes the clients' pool with an erasure code of which `keys` tell.
    pub async fn create_coded_pool(&self, admin: &Client, pg_num: u32, keys: &[&str]) {
        let keys = [keys, &["crush-failure-domain=osd"]].concat();
        let profile =
            json!({"prefix": "osd erasure-code-profile set", "name": "e", "profile": keys});
        self.command(admin, profile).await;
        let pool = json!({
            "prefix": "osd pool create", "pool": "p", "pg_num": pg_num, "pool_type": "erasure",
            "erasure_code_profile": "e", "autoscale_mode": "off",
        });
        self.command(admin, pool).await;
        let overwrites = json!({
            "prefix": "osd pool set", "pool": "p", "var": "allow_ec_overwrites", "val": "true",
        });
        self.command(admin, overwrites).await;
    }

    /// Starts a client of the workload on a host.
    pub async fn work(&self, load: &Workload, host: &str, rng: Rng) {
        let client = self.client(host).await;
        let io = client.io_ctx("p").await.expect("the pool");
        load.spawn(&self.world.node(host), host, io, rng);
    }

    /// Runs a command at the monitors; its output.
    pub async fn command(&self, client: &Client, json: serde_json::Value) -> Bytes {
        let answer = client.mon_command(json.to_string(), Bytes::new()).await;
        let answer = answer.expect("the monitor answers");
        assert_eq!(answer.rc, 0, "{json}: {}", answer.outs);
        answer.outb
    }

    /// Ends an OSD's process, with all that are in it.
    pub fn kill_osd(&self, osd: u32, how: Kill) {
        for osd in self.plan.process_of(osd) {
            self.kill_one(osd, how);
        }
    }

    fn kill_one(&self, osd: u32, how: Kill) {
        let running = self.running.borrow_mut().remove(&osd);
        self.world.kill(&host_of(osd), how);
        if let Some(osd) = running.and_then(|osd| osd.upgrade()) {
            osd.abandon();
        }
    }

    /// Lets an OSD's process stand still until [`Cluster::thaw_osd`].
    pub fn freeze_osd(&self, osd: u32) {
        self.plan.process_of(osd).for_each(|osd| self.world.freeze(&host_of(osd)));
    }

    /// Lets it go on.
    pub fn thaw_osd(&self, osd: u32) {
        self.plan.process_of(osd).for_each(|osd| self.world.thaw(&host_of(osd)));
    }

    /// The world has ended: what its OSDs hold is let go.
    pub(crate) fn abandon(&self) {
        for osd in std::mem::take(&mut *self.running.borrow_mut()).into_values() {
            if let Some(osd) = osd.upgrade() {
                osd.abandon();
            }
        }
    }

    /// Awaits `task`; if it takes longer than `limit`, prints what the OSDs are busy with and panics.
    pub async fn in_time<T>(
        &self,
        client: &Client,
        what: &str,
        limit: Duration,
        task: impl Future<Output = T>,
    ) -> T {
        if let Ok(value) = self.world.node("client.admin").timeout(limit, task).await {
            return value;
        }
        self.explain(client).await;
        panic!("{what}: not done after {limit:?}");
    }

    /// Prints what the OSDs are busy with. Not in a life that is written down: it has been printed
    /// when the life was found, and making it smaller would print it again and again.
    async fn explain(&self, client: &Client) {
        if diary::is_kept() {
            return;
        }
        let env = self.world.node("client.admin");
        for (id, osd) in self.running_osds() {
            for pg in osd.audit().0 {
                eprintln!(
                    "osd.{id} {} epoch {} ops {}: {}",
                    pg.pgid, pg.epoch, pg.in_flight, pg.about
                );
            }
        }
        for osd in self.members() {
            for command in ["status", "dump_ops_in_flight"] {
                let json = serde_json::json!({"prefix": command, "format": "json"}).to_string();
                let osd = i32::try_from(osd).expect("few OSDs");
                let answer = client.osd_command(osd, json, Bytes::new());
                let text = match env.timeout(Duration::from_secs(5), answer).await {
                    Ok(Ok(answer)) => String::from_utf8_lossy(&answer.outb).into_owned(),
                    other => format!("{other:?}"),
                };
                eprintln!("osd.{osd} {command}: {text}");
            }
        }
        let map = client.osdmap();
        let up: Vec<i32> = map.up_osds().collect();
        eprintln!("osdmap {} up {up:?}", map.epoch);
        let pgs = client
            .mgr_command(r#"{"prefix":"pg dump","dumpcontents":["pgs_brief"]}"#, Bytes::new());
        if let Ok(Ok(answer)) = env.timeout(Duration::from_secs(5), pgs).await {
            eprintln!("{}", String::from_utf8_lossy(&answer.outb));
        }
    }

    /// Ends an OSD and changes its store behind its back.
    pub async fn change_store(&self, osd: u32, change: Transaction) {
        self.kill_osd(osd, Kill::PROCESS);
        let host = host_of(osd);
        let env = self.world.node(&host);
        let (plan, inside) = (self.plan.clone(), env.clone());
        let changed = env.spawn_with_handle(async move {
            let store = Cluster::store(&plan, &inside, None).await.expect("the store mounts");
            store.submit(change).await.expect("the store takes it");
        });
        changed.await;
        self.world.kill(&host, Kill::PROCESS);
    }

    /// Ends all OSDs and compares what their stores hold, PG by PG; panics where they differ, and where
    /// what one holds does not belong together.
    pub async fn compare_replicas(&self, client: &Client) {
        let map = client.osdmap();
        let mut stores = BTreeMap::new();
        for osd in self.members() {
            self.kill_osd(osd, Kill::PROCESS);
            let env = self.world.node(&host_of(osd));
            let plan = self.plan.clone();
            let inside = env.clone();
            let contents = env.spawn_with_handle(async move {
                let store = Cluster::store(&plan, &inside, None).await.expect("the store mounts");
                let wrong = replicas::wrong_in_store(&store).await;
                assert!(wrong.is_empty(), "osd.{osd}: {wrong:#?}");
                replicas::contents(&*store).await
            });
            stores.insert(i32::try_from(osd).expect("few OSDs"), contents.await);
        }
        for (id, pool) in &map.pools {
            for seed in 0..pool.pg_num {
                let pgid = PgId::new(*id as u64, seed);
                let acting = map.pg_to_up_acting(pgid).acting;
                if pool.is_erasure() {
                    let shards = acting.iter().zip(0i8..).map(|(osd, shard)| {
                        let held = stores.get(osd).and_then(|pgs| pgs.get(&SpgId { pgid, shard }));
                        held.unwrap_or_else(|| {
                            panic!("pg {pgid} on {acting:?}: osd.{osd} has no shard {shard}")
                        })
                    });
                    let profile = &map.erasure_code_profiles[&pool.erasure_code_profile];
                    let wrong = replicas::wrong_in_shards(&shards.collect::<Vec<_>>(), profile);
                    assert!(wrong.is_empty(), "pg {pgid} on {acting:?}:\n{wrong}");
                    continue;
                }
                let mut of_pg = acting.iter().map(|osd| (osd, stores[osd].get(&pgid.spg())));
                let Some((first, expected)) = of_pg.next() else { continue };
                for (osd, found) in of_pg {
                    let differences = replicas::differences(expected, found);
                    assert!(
                        differences.is_empty(),
                        "pg {pgid}: osd.{first} and osd.{osd} differ:\n{differences}"
                    );
                }
            }
        }
    }

    /// Waits until every PG is active and clean, as the manager sees it; panics after `limit`.
    pub async fn wait_until_clean(&self, client: &Client, limit: Duration) {
        let end = self.world.now() + limit;
        let ask = r#"{"prefix":"pg stat","format":"json"}"#;
        loop {
            let env = self.world.node("client.admin");
            let answer = env.timeout(limit, client.mgr_command(ask, Bytes::new())).await;
            let answer = answer.expect("in time").expect("the manager answers");
            let json: serde_json::Value = serde_json::from_slice(&answer.outb).unwrap_or_default();
            let summary = &json["pg_summary"];
            let states = summary["num_pg_by_state"].as_array().cloned().unwrap_or_default();
            // Scrubs come and go; one that finds something says "inconsistent".
            let clean = |state: &serde_json::Value| {
                let name = state["name"].as_str().unwrap_or_default();
                name.replace("+scrubbing", "").replace("+deep", "") == "active+clean"
            };
            if json["pg_ready"] == true && !states.is_empty() && states.iter().all(clean) {
                return;
            }
            if self.world.now() >= end {
                self.explain(client).await;
                panic!("not clean after {limit:?}: {summary}");
            }
            self.world.sleep(Duration::from_secs(1)).await;
        }
    }

    /// The simulated world.
    pub fn world(&self) -> &Control {
        &self.world
    }
}
