//! Things that go wrong, from a seed: daemons fall and come back, hosts lose power, the network
//! loses, delays and cuts, disks slow down and fail, clocks jump, operators move data. Several of
//! them at a time; at the end everything is repaired.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::Client;
use env::JoinHandle;
use serde_json::{Value, json};
use sim::{Control, DiskFaults, DiskModel, Kill, LinkModel, Rng};

use crate::aimed::{Aim, Scene};
use crate::{Cluster, Cut, Settings, Workload, diary, operator};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// OSD processes end and come back.
    Osd,
    /// Hosts lose power: writes that were not flushed are lost, torn or reordered.
    Power,
    /// The monitor's process ends and comes back.
    Mon,
    /// The manager's process ends and comes back.
    Mgr,
    /// Messages are lost and sent again later, connections are reset at any byte.
    Loss,
    /// Hosts do not hear each other, in one or both directions.
    Partition,
    /// Links become slow.
    Slow,
    /// Disks become slow, and answer EIO.
    Disk,
    /// Clocks are wrong and run at different speeds.
    Clock,
    /// OSDs are marked out and in, down, and given other weights; one is added.
    Admin,
    /// At the end a disk rots or misplaces writes, and is replaced.
    Rot,
    /// Several things go wrong in the order and at the moments that matter (`aimed.rs`).
    /// Seldom.
    Aimed,
    /// The pool gets more placement groups.
    Grow,
    /// OSDs are emptied, removed and made anew.
    Remove,
    /// Snapshots are the pool's, made and removed meanwhile.
    Snaps,
    /// Where the pool grows it shrinks, too.
    Shrink,
    /// Processes stand still for a while.
    Freeze,
}

impl Fault {
    /// All kinds with their names.
    pub const ALL: [(Fault, &'static str); 17] = [
        (Fault::Osd, "osd"),
        (Fault::Power, "power"),
        (Fault::Mon, "mon"),
        (Fault::Mgr, "mgr"),
        (Fault::Loss, "loss"),
        (Fault::Partition, "partition"),
        (Fault::Slow, "slow"),
        (Fault::Disk, "disk"),
        (Fault::Clock, "clock"),
        (Fault::Admin, "admin"),
        (Fault::Rot, "rot"),
        (Fault::Aimed, "aimed"),
        (Fault::Grow, "grow"),
        (Fault::Remove, "remove"),
        (Fault::Snaps, "snaps"),
        (Fault::Shrink, "shrink"),
        (Fault::Freeze, "freeze"),
    ];

    /// How likely a life has it if nothing was asked for; `rebuilt`: it is one of those in which
    /// the cluster and its pool change their shape.
    fn odds(self, rebuilt: bool) -> f64 {
        match self {
            Fault::Aimed => 0.12,
            // Added by the seed (`life.rs`).
            Fault::Freeze => 0.0,
            Fault::Grow | Fault::Remove | Fault::Snaps | Fault::Shrink if !rebuilt => 0.0,
            _ => 0.6,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Fault::ALL.iter().find(|(fault, _)| *fault == self).map_or("", |(_, name)| name)
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Fault> {
        Fault::ALL.iter().find(|(_, known)| *known == name).map(|(fault, _)| *fault)
    }
}

/// How much goes wrong.
#[derive(Debug, Clone)]
pub struct Mischief {
    /// What.
    pub faults: BTreeSet<Fault>,
    /// For how long.
    pub time: Duration,
    /// Longest pause between two misfortunes of a kind.
    pub pause_max: Duration,
    /// Longest absence of an OSD.
    pub absence_max: Duration,
    /// Nothing but this is aimed at, again and again.
    pub aim: Option<Aim>,
    /// So many OSDs may be away at a time: placement groups wait for one of them.
    pub falls: u64,
    /// The network when nothing is wrong with it.
    pub network: LinkModel,
    /// The OSDs' disks when nothing is wrong with them.
    pub disks: DiskModel,
}

impl Mischief {
    /// What a seed brings, of the faults allowed: calm lives, wild ones, and dense ones in which
    /// one thing is aimed at. On slow networks and disks more is under way when something happens.
    /// Short lives are for suites.
    pub fn of(rng: &Rng, settings: &Settings) -> Mischief {
        let Settings { short, aim, .. } = settings;
        let (allowed, is_asked) = (settings.allowed(), settings.faults.is_some());
        let seconds = |low, high| rng.between(Duration::from_secs(low), Duration::from_secs(high));
        let (time, absences) = match *short {
            true => (seconds(4, 12), [1, 4, 8]),
            false => (seconds(10, 40), [1, 8, 30]),
        };
        let dense_odds = if is_asked { 0.4 } else { 0.15 };
        let dense = (allowed.contains(&Fault::Aimed) && rng.chance(dense_odds)) || aim.is_some();
        // Not in others: they take longer, and hide what the other kinds do.
        let rebuilt = !is_asked && !settings.erasure && rng.chance(0.2);
        let odds = |fault: Fault| if is_asked { 0.6 } else { fault.odds(rebuilt) };
        let mut faults: BTreeSet<Fault> =
            allowed.into_iter().filter(|fault| rng.chance(odds(*fault))).collect();
        if dense {
            faults.retain(|fault| matches!(fault, Fault::Rot | Fault::Snaps));
            faults.insert(Fault::Aimed);
        }
        Mischief {
            faults,
            aim: dense.then(|| aim.unwrap_or_else(|| Aim::of(rng))),
            time,
            pause_max: if dense { seconds(0, 2) } else { seconds(1, 8) },
            absence_max: Duration::from_secs(*rng.pick(&absences)),
            falls: *rng.pick(&[1, 1, 2]),
            network: LinkModel {
                delay_mean: Duration::from_micros(*rng.pick(&[50, 50, 50, 1000, 10_000])),
                ..LinkModel::default()
            },
            disks: DiskModel {
                slowness: *rng.pick(&[1.0, 1.0, 1.0, 20.0, 200.0]),
                ..DiskModel::default()
            },
        }
    }
}

struct Inner {
    cluster: Cluster,
    admin: Client,
    load: Workload,
    mischief: Mischief,
    cut: Cut,
    end: Duration,
}

/// See the module.
#[derive(Clone)]
pub struct Chaos {
    inner: Rc<Inner>,
    rng: Rc<Rng>,
}

impl Chaos {
    /// Misfortunes for a cluster and who works with it, from now on.
    pub(crate) fn new(
        cluster: &Cluster,
        admin: &Client,
        load: &Workload,
        rng: Rng,
        mischief: Mischief,
        cut: &Cut,
    ) -> Chaos {
        let end = cluster.world().now() + mischief.time;
        let inner = Inner {
            cluster: cluster.clone(),
            admin: admin.clone(),
            load: load.clone(),
            mischief,
            cut: cut.clone(),
            end,
        };
        Chaos { inner: Rc::new(inner), rng: Rc::new(rng) }
    }

    /// Lets things go wrong until the time is over, then repairs everything.
    pub async fn run(&self) {
        let world = self.world().clone();
        tracing::info!("{:?}", self.inner.mischief);
        let mut kinds: Vec<JoinHandle<()>> = Vec::new();
        for kind in self.inner.mischief.faults.iter().copied() {
            let lines = if kind == Fault::Osd { self.inner.mischief.falls } else { 1 };
            for line in 0..lines {
                let chaos = self.clone();
                kinds.push(world.spawn(async move { chaos.goes_on(kind, line).await }));
            }
        }
        for kind in kinds {
            kind.await;
        }
        self.repair();
    }

    async fn goes_on(&self, kind: Fault, line: u64) {
        let (world, Mischief { pause_max, .. }) = (self.world().clone(), &self.inner.mischief);
        let pause_max = match kind {
            Fault::Mon | Fault::Mgr => *pause_max * 6,
            Fault::Power | Fault::Partition | Fault::Loss | Fault::Slow => *pause_max * 2,
            _ => *pause_max,
        };
        for number in 1_u64.. {
            world.sleep(self.rng.between(Duration::ZERO, pause_max)).await;
            if world.now() >= self.inner.end {
                return;
            }
            // One is for the end, the others are part of what happens beside them.
            if matches!(kind, Fault::Rot | Fault::Snaps | Fault::Shrink) {
                return;
            }
            let name = format!("{}-{line}-{number}", kind.name());
            if !self.inner.cut.skips(&name) {
                diary::fault(&world, &name);
                self.happens(kind).await;
                diary::fault_ends(&world, &name);
            }
        }
    }

    async fn happens(&self, kind: Fault) {
        match kind {
            Fault::Osd => self.an_osd_falls().await,
            Fault::Power => self.power_fails().await,
            Fault::Mon => self.the_monitor_falls().await,
            Fault::Mgr => self.the_manager_falls().await,
            Fault::Loss => self.messages_are_lost().await,
            Fault::Partition => self.hosts_part().await,
            Fault::Slow => self.a_link_slows_down().await,
            Fault::Disk => self.a_disk_suffers().await,
            Fault::Clock => self.a_clock_jumps(),
            Fault::Admin => self.an_operator_acts().await,
            Fault::Rot | Fault::Snaps | Fault::Shrink => {}
            Fault::Aimed => {
                let Inner { cluster, admin, load, mischief, .. } = &*self.inner;
                let scene = Scene { cluster, admin, load, rng: &self.rng, mischief };
                scene.strike().await;
            }
            Fault::Grow => {
                let Inner { cluster, admin, mischief, .. } = &*self.inner;
                let shrinks = mischief.faults.contains(&Fault::Shrink);
                operator::grow(cluster, admin, &self.rng, shrinks).await;
            }
            Fault::Remove => self.an_osd_is_removed().await,
            Fault::Freeze => self.a_process_stands_still().await,
        }
    }

    fn world(&self) -> &Control {
        self.inner.cluster.world()
    }

    fn repair(&self) {
        let (world, cluster) = (self.world(), &self.inner.cluster);
        world.set_network(self.inner.mischief.network);
        let names = world.names();
        for from in &names {
            for to in &names {
                world.set_link(from, to, None);
            }
        }
        world.heal();
        for osd in cluster.members() {
            cluster.disk(osd).set_faults(DiskFaults::default());
            cluster.disk(osd).set_model(self.inner.mischief.disks);
        }
        cluster.start_mon();
        cluster.start_mgr();
        for osd in cluster.members() {
            cluster.start_osd(osd);
        }
    }

    fn how(&self) -> Kill {
        let power = self.inner.mischief.faults.contains(&Fault::Power);
        if power && self.rng.chance(0.5) { Kill::POWER } else { Kill::PROCESS }
    }

    fn absence(&self) -> Duration {
        self.rng.between(Duration::from_millis(1), self.inner.mischief.absence_max)
    }

    fn some_osd(&self) -> u32 {
        *self.rng.pick(&self.inner.cluster.members())
    }

    async fn an_osd_falls(&self) {
        let (world, cluster) = (self.world(), &self.inner.cluster);
        let (how, osd, absence) = (self.how(), self.some_osd(), self.absence());
        diary::note(world, format!("osd.{osd} falls: {how:?} for {absence:?}"));
        cluster.kill_osd(osd, how);
        world.sleep(absence).await;
        diary::note(world, format!("osd.{osd} comes back"));
        cluster.start_osd(osd);
    }

    /// Of all OSDs, or of some, at once.
    async fn power_fails(&self) {
        let (world, cluster, rng) = (self.world(), &self.inner.cluster, &self.rng);
        let share = *rng.pick(&[0.5, 1.0]);
        let fallen: Vec<u32> =
            cluster.members().into_iter().filter(|_| rng.chance(share)).collect();
        diary::note(world, format!("{fallen:?} lose power"));
        for osd in &fallen {
            cluster.kill_osd(*osd, Kill::POWER);
        }
        let absence_max = self.inner.mischief.absence_max / 4;
        for osd in fallen {
            world.sleep(rng.between(Duration::ZERO, absence_max)).await;
            cluster.start_osd(osd);
        }
    }

    async fn the_monitor_falls(&self) {
        let (world, how) = (self.world(), self.how());
        let absence = self.rng.between(Duration::from_millis(1), Duration::from_secs(8));
        let names = self.inner.cluster.mon_names();
        // With one there is nothing to choose.
        let name = if names.len() > 1 { *self.rng.pick(names) } else { names[0] };
        diary::note(world, format!("mon.{name} falls: {how:?} for {absence:?}"));
        self.inner.cluster.kill_mon(name, how);
        world.sleep(absence).await;
        self.inner.cluster.start_mon();
    }

    async fn the_manager_falls(&self) {
        let world = self.world();
        diary::note(world, "the manager falls".to_owned());
        world.kill("mgr.x", Kill::PROCESS);
        world.sleep(self.rng.between(Duration::ZERO, Duration::from_secs(4))).await;
        self.inner.cluster.start_mgr();
    }

    async fn messages_are_lost(&self) {
        let (world, rng) = (self.world(), &self.rng);
        let (loss, reset) = (rng.unit() * 0.05, rng.unit() * *rng.pick(&[0.0, 0.005, 0.03]));
        let delay_mean = Duration::from_micros(rng.below(3000));
        diary::note(world, format!("loss {loss:.3}, resets {reset:.4}, {delay_mean:?}"));
        world.set_network(LinkModel { loss, reset, delay_mean, ..LinkModel::default() });
        world.sleep(self.absence().min(Duration::from_secs(10))).await;
        world.set_network(self.inner.mischief.network);
    }

    async fn hosts_part(&self) {
        let (world, rng, time) = (self.world(), &self.rng, self.absence());
        let names = world.names();
        let (one, other) = (rng.pick(&names).clone(), rng.pick(&names).clone());
        match rng.below(5) {
            0 => {
                // From its peers and the monitor, and not from clients: what it serves grows old.
                let osd = format!("osd.{}", self.some_osd());
                diary::note(world, format!("{osd} is heard by clients only for {time:?}"));
                for name in names.iter().filter(|n| **n != osd && !n.starts_with("client")) {
                    world.partition(&osd, name);
                }
                // Some clients hear nobody else: they do not learn of another primary.
                for client in names.iter().filter(|n| n.starts_with("client.") && rng.chance(0.5)) {
                    for name in names.iter().filter(|n| **n != osd && !n.starts_with("client")) {
                        world.partition(client, name);
                    }
                }
            }
            _ if one == other => return,
            1 | 2 => {
                diary::note(world, format!("{one} and {other} part for {time:?}"));
                world.partition(&one, &other);
            }
            3 => {
                diary::note(world, format!("{other} does not hear {one} for {time:?}"));
                world.block(&one, &other);
            }
            _ => {
                diary::note(world, format!("resets between {one} and {other}"));
                world.reset_connections(&one, &other);
                return;
            }
        }
        world.sleep(time).await;
        world.heal();
    }

    async fn a_link_slows_down(&self) {
        let (world, rng) = (self.world(), &self.rng);
        let names = world.names();
        let (one, other) = (rng.pick(&names).clone(), rng.pick(&names).clone());
        let model = LinkModel {
            delay_min: rng.between(Duration::ZERO, Duration::from_millis(100)),
            delay_mean: rng.between(Duration::ZERO, Duration::from_millis(50)),
            bytes_per_second: *rng.pick(&[100_000, 1_000_000]),
            ..LinkModel::default()
        };
        diary::note(world, format!("slow from {one} to {other}: {model:?}"));
        world.set_link(&one, &other, Some(model));
        world.sleep(self.absence()).await;
        world.set_link(&one, &other, None);
    }

    async fn a_disk_suffers(&self) {
        let (world, rng, osd) = (self.world(), &self.rng, self.some_osd());
        let sound = self.inner.mischief.disks;
        match rng.below(3) {
            0 => {
                let odds = *rng.pick(&[0.001, 0.05]);
                let faults = DiskFaults { write: odds, sync: odds, ..DiskFaults::default() };
                diary::note(world, format!("disk of osd.{osd}: {faults:?}"));
                self.inner.cluster.disk(osd).set_faults(faults);
            }
            1 => {
                let slowness = *rng.pick(&[10.0, 200.0, 2000.0]);
                diary::note(world, format!("disk of osd.{osd}: {slowness} times slower"));
                self.inner.cluster.disk(osd).set_model(DiskModel { slowness, ..sound });
            }
            _ => {
                let jitter_mean = *rng.pick(&[Duration::from_millis(1), Duration::from_millis(30)]);
                let model = DiskModel { jitter_mean, bytes_per_second: 20_000_000, ..sound };
                self.inner.cluster.disk(osd).set_model(model);
            }
        }
        world.sleep(self.absence()).await;
        self.inner.cluster.disk(osd).set_faults(DiskFaults::default());
        self.inner.cluster.disk(osd).set_model(sound);
        // A store stops at the first error; somebody starts it again.
        self.inner.cluster.start_osd(osd);
    }

    /// A little: tickets must stay valid, and leases rest on clocks of about equal speed.
    fn a_clock_jumps(&self) {
        let (world, rng) = (self.world(), &self.rng);
        let name = rng.pick(&world.names()).clone();
        let nanos = rng.below(2_000_000_000) as i64 - 1_000_000_000;
        let drift_ppm = rng.below(400) as i32 - 200;
        diary::note(world, format!("clock of {name}: {nanos} ns ahead, {drift_ppm} ppm"));
        world.set_clock(&name, nanos, drift_ppm);
    }

    async fn an_operator_acts(&self) {
        let (world, rng, cluster) = (self.world(), &self.rng, &self.inner.cluster);
        let osd = self.some_osd();
        let ids = [osd.to_string()];
        let json = match (rng.below(7), cluster.next_osd()) {
            (0, Some(next)) => {
                diary::note(world, format!("osd.{next} is added"));
                return cluster.add_osd(&self.inner.admin, next).await;
            }
            (0 | 1, _) => json!({"prefix": "osd down", "ids": ids}),
            (2, _) => json!({"prefix": "osd reweight", "id": osd, "weight": rng.unit()}),
            (3, _) => json!({"prefix": "osd primary-affinity", "id": osd, "weight": rng.unit()}),
            _ => {
                self.order(json!({"prefix": "osd out", "ids": ids})).await;
                world.sleep(self.absence()).await;
                json!({"prefix": "osd in", "ids": ids})
            }
        };
        self.order(json).await;
    }

    /// Most often an OSD; not the operator, who is awaited.
    async fn a_process_stands_still(&self) {
        let (world, cluster, rng) = (self.world(), &self.inner.cluster, &self.rng);
        let time = match rng.below(3) {
            0 => rng.between(Duration::ZERO, Duration::from_millis(500)),
            _ => self.absence(),
        };
        if rng.chance(0.7) {
            let osd = self.some_osd();
            diary::note(world, format!("osd.{osd} stands still for {time:?}"));
            cluster.freeze_osd(osd);
            world.sleep(time).await;
            return cluster.thaw_osd(osd);
        }
        let others = world.names().into_iter();
        let others: Vec<String> =
            others.filter(|n| !n.starts_with("osd.") && n != "client.admin").collect();
        let name = rng.pick(&others);
        diary::note(world, format!("{name} stands still for {time:?}"));
        world.freeze(name);
        world.sleep(time).await;
        world.thaw(name);
    }

    /// One at a time, and never below the number of copies.
    async fn an_osd_is_removed(&self) {
        let Inner { cluster, admin, end, .. } = &*self.inner;
        if cluster.members().len() > cluster.plan.members_min() {
            operator::remove(cluster, admin, &self.rng, self.some_osd(), *end).await;
        }
    }

    async fn order(&self, json: Value) {
        diary::note(self.world(), format!("{json}"));
        let answer = self.inner.admin.mon_command(json.to_string(), Bytes::new()).await;
        let answer = answer.expect("the monitor answers");
        // It may have been removed meanwhile.
        let is_gone = answer.rc == -2 && self.inner.mischief.faults.contains(&Fault::Remove);
        assert!(answer.rc == 0 || is_gone, "{json}: {}", answer.outs);
    }

    /// After the end: all OSDs in again, with the weights they had.
    pub async fn undo_orders(&self) {
        if !self.inner.mischief.faults.contains(&Fault::Admin) {
            return;
        }
        for osd in self.inner.cluster.members() {
            let ids = [osd.to_string()];
            self.order(json!({"prefix": "osd in", "ids": ids})).await;
            self.order(json!({"prefix": "osd reweight", "id": osd, "weight": 1.0})).await;
            let prefix = "osd primary-affinity";
            self.order(json!({"prefix": prefix, "id": osd, "weight": 1.0})).await;
        }
    }
}
