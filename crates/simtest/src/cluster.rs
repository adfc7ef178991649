//! Building, starting, killing and asking a cluster.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use auth::Keyring;
use bytes::Bytes;
use client::{Client, Options};
use config::{ConfFile, Config};
use device::BlockDevice;
use env::{Env, OpenBlock};
use maps::MonMap;
use sim::{Control, Kill, Rng};
use store::inkstore::{self, InkStore};
use store::kv::RedbKv;
use store::memstore::MemStore;
use store::{Kv, ObjectStore};
use types::{PgId, UTime, Uuid};

use crate::{Workload, keys, mons, replicas};

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
        }
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
             osd_pool_default_size = 3\n\
             osd_pool_default_min_size = 2\n\
             osd_pool_default_pg_num = 8\n\
             osd_pool_default_pg_autoscale_mode = off\n\
             mon_allow_pool_delete = true\n\
             {}\n",
            mons::hosts(world, plan.mons),
            plan.options
        );
        let keyring = keys::keyring(&env, plan.osds);
        let cluster = Cluster {
            world: world.clone(),
            plan: Rc::new(plan),
            conf: Rc::new(conf),
            keyring: Rc::new(keyring),
            fsid,
            mon_runs: Rc::default(),
            mons_started: Rc::default(),
        };
        cluster.mkfs_mon(&env);
        cluster
    }

    pub(crate) fn config(&self, kind: &str, id: &str, host: &str) -> Rc<Config> {
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
        let env = self.world.node("mgr.x");
        let config = self.config("mgr", "x", "mgr.x");
        let keyring = Keyring::clone(&self.keyring);
        env.clone().go(async move {
            let mgr = mgr::Mgr::start(env.clone(), config, keyring).await;
            let mgr = mgr.expect("the manager starts");
            pending::<()>().await;
            drop(mgr);
        });
    }

    async fn store(plan: &Plan, env: &Env, make: Option<Uuid>) -> Rc<dyn ObjectStore> {
        if plan.memstore {
            return Rc::new(MemStore::new(plan.disk_len));
        }
        let create_len = make.map(|_| plan.disk_len);
        let options = OpenBlock { create_len, read_only: false };
        let device = BlockDevice::open(env, Path::new(OSD_BLOCK), options).expect("a device");
        if let Some(uuid) = make {
            let options = inkstore::MkfsOptions { uuid: uuid.0, log_len: None };
            InkStore::mkfs(&device, options).await.expect("mkfs of the store");
        }
        Rc::new(InkStore::mount(env.clone(), device).await.expect("the store mounts"))
    }

    /// Makes an OSD's store and starts it. The monitors must know it (`osd new`).
    pub fn make_osd(&self, osd: u32) {
        self.run_osd(osd, true);
    }

    /// Starts an OSD that has been made, unless it runs.
    pub fn start_osd(&self, osd: u32) {
        if !self.world.is_running(&format!("osd.{osd}")) {
            self.run_osd(osd, self.plan.memstore);
        }
    }

    fn run_osd(&self, osd: u32, make: bool) {
        let host = format!("osd.{osd}");
        let env = self.world.node(&host);
        let config = self.config("osd", &osd.to_string(), &host);
        let keyring = Keyring::clone(&self.keyring);
        let (plan, cluster_fsid) = (self.plan.clone(), self.fsid);
        env.clone().go(async move {
            let uuid = osd_fsid(osd);
            let store = Cluster::store(&plan, &env, make.then_some(uuid)).await;
            if make {
                let whoami = i32::try_from(osd).expect("few OSDs");
                let options = osd::MkfsOptions { whoami, cluster_fsid, osd_fsid: uuid };
                osd::Osd::mkfs(&env, &store, options).await.expect("mkfs of the OSD");
            }
            let osd = osd::Osd::start(env.clone(), config, keyring, store).await;
            let osd = match osd {
                Ok(osd) => osd,
                Err(error) => panic!("{host} does not start: {error}"),
            };
            let why = osd.failed().await;
            panic!("{host} fails: {why}");
        });
    }

    /// Starts everything for the first time; returns when all OSDs are up.
    pub async fn start(&self) -> Client {
        self.start_mon();
        self.start_mgr();
        let client = self.client("client.admin").await;
        for osd in 0..self.plan.osds {
            let new = serde_json::json!({
                "prefix": "osd new", "uuid": osd_fsid(osd).to_string(), "id": osd,
            });
            let secret = serde_json::json!({});
            let answer = client
                .mon_command(new.to_string(), Bytes::from(secret.to_string()))
                .await
                .expect("the monitor answers");
            assert_eq!(answer.rc, 0, "osd new: {}", answer.outs);
            self.make_osd(osd);
        }
        self.wait_until_up(&client).await;
        client
    }

    /// Waits until every OSD is up in the map.
    pub async fn wait_until_up(&self, client: &Client) {
        const LIMIT: Duration = Duration::from_secs(300);
        let (wanted, end) = (self.plan.osds as usize, self.world.now() + LIMIT);
        while client.osdmap().num_up_osds() < wanted {
            assert!(self.world.now() < end, "not all OSDs are up after {LIMIT:?}");
            self.world.sleep(Duration::from_millis(100)).await;
            client.wait_for_latest_osdmap().await.expect("the monitor answers");
        }
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

    /// Starts a client of the workload on a host.
    pub async fn work(&self, load: &Workload, host: &str, rng: Rng) {
        let client = self.client(host).await;
        let io = client.io_ctx("p").await.expect("the pool");
        load.spawn(&self.world.node(host), io, rng);
    }

    /// Runs a command at the monitors; its output.
    pub async fn command(&self, client: &Client, json: serde_json::Value) -> Bytes {
        let answer = client.mon_command(json.to_string(), Bytes::new()).await;
        let answer = answer.expect("the monitor answers");
        assert_eq!(answer.rc, 0, "{json}: {}", answer.outs);
        answer.outb
    }

    /// Ends an OSD's process.
    pub fn kill_osd(&self, osd: u32, how: Kill) {
        self.world.kill(&format!("osd.{osd}"), how);
    }

    /// Awaits `task`; if it takes longer than `limit`, prints what the OSDs are busy with and panics.
    pub async fn in_time<T>(
        &self,
        client: &Client,
        what: &str,
        limit: Duration,
        task: impl Future<Output = T>,
    ) -> T {
        let env = self.world.node("client.admin");
        if let Ok(value) = env.timeout(limit, task).await {
            return value;
        }
        for osd in 0..self.plan.osds {
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
        let pgs = client.mgr_command(r#"{"prefix":"pg dump","dumpcontents":["pgs_brief"]}"#, Bytes::new());
        if let Ok(Ok(answer)) = env.timeout(Duration::from_secs(5), pgs).await {
            eprintln!("{}", String::from_utf8_lossy(&answer.outb));
        }
        panic!("{what}: not done after {limit:?}");
    }

    /// Ends all OSDs and compares what their stores hold, PG by PG; panics where they differ.
    pub async fn compare_replicas(&self, client: &Client) {
        let map = client.osdmap();
        let mut stores = BTreeMap::new();
        for osd in 0..self.plan.osds {
            self.kill_osd(osd, Kill::PROCESS);
            let env = self.world.node(&format!("osd.{osd}"));
            let plan = self.plan.clone();
            let inside = env.clone();
            let contents = env.spawn_with_handle(async move {
                let store = Cluster::store(&plan, &inside, None).await;
                replicas::contents(&*store).await
            });
            stores.insert(i32::try_from(osd).expect("few OSDs"), contents.await);
        }
        for (id, pool) in &map.pools {
            for seed in 0..pool.pg_num {
                let pgid = PgId::new(*id as u64, seed);
                let acting = map.pg_to_up_acting(pgid).acting;
                let mut of_pg = acting.iter().map(|osd| (osd, stores[osd].get(&pgid)));
                let Some((first, expected)) = of_pg.next() else { continue };
                for (osd, found) in of_pg {
                    assert_eq!(expected, found, "pg {pgid}: osd.{first} and osd.{osd} differ");
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
            assert!(self.world.now() < end, "not clean after {limit:?}: {summary}");
            self.world.sleep(Duration::from_secs(1)).await;
        }
    }

    /// The simulated world.
    pub fn world(&self) -> &Control {
        &self.world
    }
}
