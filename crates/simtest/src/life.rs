//! One life of a cluster, from its seed: clients work, and die, while things go wrong; then all
//! is repaired, and what was acknowledged must be there, on every replica.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use sim::{Control, DiskFaults, Kill, Rng, World};

use crate::audit::Audit;
use crate::{Aim, Chaos, Cluster, Cut, Fault, Load, Mischief, Plan, Workload, diary, pool_snaps};

/// What may differ from what the seed says.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// OSDs; by the seed if not given.
    pub osds: Option<u32>,
    /// Monitors; by the seed if not given.
    pub mons: Option<u32>,
    /// OSDs that share a process; by the seed if not given.
    pub osds_per_process: Option<u32>,
    /// Kinds of faults that may happen; if not given all.
    pub faults: Option<BTreeSet<Fault>>,
    /// The clients' pool is erasure coded.
    pub erasure: bool,
    /// What each read of an OSD's store takes at most, beyond what its disk takes; nothing if not given.
    pub reads_take: Duration,
    /// Less goes wrong, for less time: many such lives fit into a suite.
    pub short: bool,
    /// Nothing but this is aimed at; by the seed if not given.
    pub aim: Option<Aim>,
    /// What is left out.
    pub cut: Cut,
    /// The bug planted on purpose (`env::MUTANTS`), in builds that have them.
    pub mutant: &'static str,
}

impl Settings {
    /// Kinds of faults that may happen.
    pub(crate) fn allowed(&self) -> BTreeSet<Fault> {
        let all = || Fault::ALL.iter().map(|(fault, _)| *fault).collect();
        self.faults.clone().unwrap_or_else(all)
    }
}

/// What a life came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    /// Reads answered, each judged.
    pub reads: u64,
    /// Writes answered.
    pub writes: u64,
    /// Answers that could not be judged.
    pub unclear: u64,
    /// Times the daemons' states were audited.
    pub audits: u64,
    /// Messages, disk operations, kills...
    pub events: u64,
    /// How long it took, in its own time.
    pub time: Duration,
    /// Sums up all that happened: the same seed gives the same.
    pub trace_hash: u64,
}

/// Bounds of what must come true once nothing goes wrong any more.
const ENDED: Duration = Duration::from_secs(300);
const ANSWERED: Duration = Duration::from_secs(120);
const CLEAN: Duration = Duration::from_secs(300);
const READ: Duration = Duration::from_secs(240);

/// In one life of four OSDs share processes. Chosen apart from all else: what a seed meant before stays.
fn osds_per_process(seed: u64) -> u32 {
    let rng = Rng::new(!seed);
    if rng.chance(0.25) { *rng.pick(&[2, 2, 3]) } else { 1 }
}

/// In one life of four processes stand still. Chosen apart, too.
fn freezes(seed: u64) -> bool {
    Rng::new(seed.rotate_left(32)).chance(0.25)
}

/// In every other life clients cut objects, punch holes, remove keys and go back to snapshots. Chosen apart, too.
fn reshapes(seed: u64) -> bool {
    Rng::new(seed.rotate_left(16)).chance(0.5)
}

fn plan_of(rng: &Rng, settings: &Settings) -> Plan {
    let usual: &[u32] = if settings.erasure { &[3, 4, 5, 6] } else { &[3, 3, 3, 4, 5] };
    let osds = settings.osds.unwrap_or(*rng.pick(usual));
    let (size, min_size) = *rng.pick(&[(3, 2), (3, 2), (3, 2), (2, 1), (2, 2), (3, 1)]);
    let grace = *rng.pick(&[4, 6, 10, 20]);
    let log = *rng.pick(&[3, 20, 100, 250]);
    let options = format!(
        "osd_heartbeat_grace = {grace}\n\
         osd_heartbeat_interval = {}\n\
         mon_osd_min_down_reporters = {}\n\
         mon_osd_down_out_interval = {}\n\
         osd_min_pg_log_entries = {log}\n\
         osd_max_pg_log_entries = {}\n\
         osd_pg_log_trim_min = {}\n\
         osd_pg_log_dups_tracked = 3000\n\
         mgr_stats_period = 1\n\
         osd_max_markdown_count = 1000000\n\
         osd_scrub_min_interval = {}\n\
         osd_deep_scrub_interval = {}\n",
        1 + grace / 6,
        rng.pick(&[1, 2]),
        rng.pick(&[10, 30, 600]),
        log * 2,
        rng.pick(&[1, 10]),
        // Scrubs all the time: a difference between replicas leaves the PG inconsistent.
        rng.pick(&[4, 30, 86400]),
        rng.pick(&[8, 60]),
    );
    let auth_none = rng.chance(0.25);
    let codes: &[(u32, u32)] = &[(2, 1), (2, 2), (3, 1), (3, 2), (4, 2)];
    let code = settings.erasure.then(|| {
        let fit: Vec<(u32, u32)> = codes.iter().copied().filter(|(k, m)| k + m <= osds).collect();
        *rng.pick(&fit)
    });
    let mons = settings.mons.unwrap_or_else(|| *rng.pick(&[1, 1, 1, 1, 3]));
    let size = size.min(osds);
    let reads_take = settings.reads_take;
    Plan { osds, mons, size, min_size, options, auth_none, code, reads_take, ..Plan::default() }
}

/// Lives the life of a seed. Panics when the cluster breaks its word.
pub fn live(seed: u64, settings: &Settings) -> Life {
    #[cfg(feature = "mutants")]
    env::choose_mutant(settings.mutant);
    let world = World::new(seed);
    let control = world.control();
    let rng = control.rng().fork();
    let osds_per_process = settings.osds_per_process.unwrap_or_else(|| osds_per_process(seed));
    let plan = Plan { osds_per_process, ..plan_of(&rng, settings) };
    tracing::info!("seed {seed}: {plan:?}");
    let mut mischief = Mischief::of(&rng, settings);
    if settings.faults.is_none() && mischief.aim.is_none() && freezes(seed) {
        mischief.faults.insert(Fault::Freeze);
    }
    settings.cut.apply_to_mischief(&mut mischief);
    diary::kinds(&mischief.faults);
    for _ in 0..settings.cut.again {
        control.rng().next_u64();
    }
    control.set_network(mischief.network);
    control.set_default_disk_model(mischief.disks);
    let cluster = Cluster::make(&control, plan);
    let cut = settings.cut.clone();
    let inside = cluster.clone();
    let (workload, audit) = world.run_until(async move {
        let begun = Begun::new(inside, &rng, &mischief, &cut, reshapes(seed)).await;
        begun.suffer(rng.fork(), &mischief, &cut).await;
        begun.settle(&rng, &mischief).await
    });
    let (reads, writes) = workload.answered();
    let life = Life {
        reads,
        writes,
        unclear: workload.unclear(),
        audits: audit.rounds(),
        events: control.events(),
        time: world.now(),
        trace_hash: control.trace_hash(),
    };
    drop(world);
    cluster.abandon();
    life
}

/// A cluster with clients at work.
struct Begun {
    cluster: Cluster,
    world: Control,
    admin: Client,
    load: Workload,
    audit: Audit,
}

impl Begun {
    async fn new(
        cluster: Cluster,
        rng: &Rng,
        mischief: &Mischief,
        cut: &Cut,
        reshapes: bool,
    ) -> Begun {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        let pg_num = *rng.pick(&[1, 4, 8]);
        cluster.create_pool(&admin, pg_num).await;
        let mut load = Load::of(rng);
        (load.omap, load.reshapes) = (cluster.plan.code.is_none(), reshapes);
        if mischief.aim.is_some() {
            load.crowd();
        }
        if mischief.faults.contains(&Fault::Snaps) {
            (load.pool_snaps, load.snaps) = (true, 0.0);
        }
        cut.apply_to_load(&mut load);
        let load = Workload::new(&world, load);
        tracing::info!("{:?}: {:?}", world.now(), load.load());
        for number in 0..load.load().clients {
            cluster.work(&load, &format!("client.{number}"), world.rng().fork()).await;
        }
        if load.load().pool_snaps {
            let snaps =
                pool_snaps::run(cluster.clone(), admin.clone(), load.clone(), world.rng().fork());
            world.spawn(snaps);
        }
        let audit = Audit::default();
        let begun = Begun { cluster, world, admin, load, audit };
        begun.watch();
        begun
    }

    /// Audits the daemons, again and again, until the world ends.
    fn watch(&self) {
        let (cluster, world, audit) =
            (self.cluster.clone(), self.world.clone(), self.audit.clone());
        let clients = [self.admin.clone()];
        self.world.spawn(async move {
            loop {
                let pause = world.rng().between(Duration::ZERO, Duration::from_millis(500));
                world.sleep(pause).await;
                audit.look(&cluster, &clients);
            }
        });
    }

    /// Lets things go wrong. One client dies in the middle of what it does, and another one takes
    /// its place.
    async fn suffer(&self, rng: Rng, mischief: &Mischief, cut: &Cut) {
        let half = mischief.time / 2;
        let Begun { cluster, admin, load, .. } = self;
        let chaos = Chaos::new(cluster, admin, load, rng, mischief.clone(), cut);
        let ending = {
            let chaos = chaos.clone();
            self.world.spawn(async move { chaos.run().await })
        };
        self.world.sleep(half).await;
        self.world.kill("client.0", Kill::PROCESS);
        self.cluster.work(&self.load, "client.0", self.world.rng().fork()).await;
        // Operators wait for monitors' answers as long as it takes.
        let limit = mischief.time + ENDED;
        self.cluster.in_time(admin, "what operators are about", limit, ending).await;
        diary::note(&self.world, "all is repaired".to_owned());
        self.cluster.wait_until_up(&self.admin).await;
        diary::note(&self.world, "all OSDs are up".to_owned());
        chaos.undo_orders().await;
    }

    /// Everything must come to rest, and be there.
    async fn settle(self, rng: &Rng, mischief: &Mischief) -> (Workload, Audit) {
        // It looks a minute after its manager's start, and would move what is compared (life 71511).
        let off = self.admin.mgr_command(r#"{"prefix":"balancer off"}"#, Bytes::new());
        let off = self.world.node("client.admin").timeout(CLEAN, off).await;
        let off = off.expect("in time").expect("the manager answers");
        assert_eq!(off.rc, 0, "balancer off: {}", off.outs);
        self.cluster.wait_until_clean(&self.admin, CLEAN).await;
        diary::note(&self.world, "all is clean".to_owned());
        if mischief.faults.contains(&Fault::Rot) {
            self.a_disk_rots(rng, mischief.aim.is_some()).await;
        }
        self.load.stop();
        let ended = async {
            while self.load.running() > 0 {
                self.world.sleep(Duration::from_millis(100)).await;
            }
        };
        self.cluster.in_time(&self.admin, "the clients' last operations", ANSWERED, ended).await;
        diary::note(&self.world, "the clients have ended".to_owned());
        let io = self.admin.io_ctx("p").await.expect("the pool");
        let all = self.load.read_all(&io);
        self.cluster.in_time(&self.admin, "reading all objects", READ, all).await;
        diary::note(&self.world, "all objects are read".to_owned());
        self.cluster.wait_until_clean(&self.admin, CLEAN).await;
        // The op of a client that is gone may still wait for a slow disk (short life 1060).
        self.quiet("ops of clients that are gone").await;
        self.cluster.deep_scrub_all(&self.admin, CLEAN).await;
        // So may digests that the scrubs recorded, and the trimming of a snapshot.
        self.quiet("what the daemons write by themselves").await;
        self.audit.nothing_left(&self.cluster);
        self.audit.same_logs(&self.cluster, &self.admin);
        self.cluster.compare_replicas(&self.admin).await;
        (self.load, self.audit)
    }

    /// Waits until no OSD has an operation under way.
    async fn quiet(&self, what: &str) {
        let quiet = async {
            while self.audit.are_ops_under_way(&self.cluster) {
                self.world.sleep(Duration::from_millis(100)).await;
            }
        };
        self.cluster.in_time(&self.admin, what, ANSWERED, quiet).await;
    }

    /// A disk loses bits or misplaces writes while its OSD is in use: nobody may be told wrong
    /// data, nor EIO, as the others have all of it. Then it is replaced, and gets everything from them.
    async fn a_disk_rots(&self, rng: &Rng, aimed: bool) {
        let osd = *rng.pick(&self.cluster.members());
        let seconds = Duration::from_secs;
        let disk = self.cluster.broken_disk(osd);
        if aimed && rng.chance(0.4) {
            // Started anew, its store has nothing in memory.
            self.cluster.kill_osd(osd, Kill::PROCESS);
            self.cluster.start_osd(osd);
            self.cluster.wait_until_up(&self.admin).await;
            diary::note(&self.world, format!("disk of osd.{osd} garbles what is read"));
            let garble = *rng.pick(&[0.05, 0.5]);
            disk.set_faults(DiskFaults { garble, ..DiskFaults::default() });
        } else if rng.chance(0.5) {
            let restarts = rng.chance(0.7);
            if restarts {
                self.cluster.kill_osd(osd, Kill::PROCESS);
            }
            let count = 1 + rng.below(40) as usize;
            let places = disk.rot(count);
            diary::note(&self.world, format!("disk of osd.{osd} rots at {places:x?}"));
            if restarts {
                self.cluster.start_osd(osd);
            }
        } else {
            diary::note(&self.world, format!("disk of osd.{osd} misplaces writes"));
            disk.set_faults(DiskFaults { misdirect: 0.05, ..DiskFaults::default() });
        }
        self.world.sleep(rng.between(seconds(1), seconds(10))).await;
        if rng.chance(0.5) {
            self.cluster.kill_osd(osd, Kill::PROCESS);
            self.cluster.start_osd(osd);
            self.world.sleep(rng.between(seconds(1), seconds(5))).await;
        }
        diary::note(&self.world, format!("the disk of osd.{osd} is replaced"));
        let last_life = self.admin.osdmap().up_from(osd as i32);
        self.cluster.replace_disk(osd);
        self.cluster.wait_until_reborn(&self.admin, osd, last_life).await;
        self.cluster.wait_until_mended(&self.admin, CLEAN).await;
        diary::note(&self.world, "all is clean again".to_owned());
    }
}
