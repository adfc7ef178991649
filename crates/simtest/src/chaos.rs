//! Things that go wrong, from a seed: daemons fall and come back, hosts lose power, the network
//! loses, delays and cuts. Several of them at a time; at the end everything is repaired.

use std::rc::Rc;
use std::time::Duration;

use env::JoinHandle;
use sim::{Kill, LinkModel, Rng};

use crate::Cluster;

/// How much goes wrong.
#[derive(Debug, Clone, Copy)]
pub struct Mischief {
    /// For how long.
    pub time: Duration,
    /// Longest pause between two misfortunes of a kind.
    pub pause_max: Duration,
    /// Longest absence of an OSD.
    pub absence_max: Duration,
    /// Two OSDs may be away at a time: placement groups wait for one of them.
    pub two_osds: bool,
}

impl Mischief {
    /// What a seed brings: calm and wild lives.
    pub fn of(rng: &Rng) -> Mischief {
        let seconds = |low, high| rng.between(Duration::from_secs(low), Duration::from_secs(high));
        Mischief {
            time: seconds(20, 60),
            pause_max: seconds(1, 8),
            absence_max: seconds(1, 40),
            two_osds: rng.chance(0.3),
        }
    }
}

struct Inner {
    cluster: Cluster,
    rng: Rng,
    osds: u32,
    mischief: Mischief,
}

/// See the module.
#[derive(Clone)]
pub struct Chaos(Rc<Inner>);

impl Chaos {
    /// Misfortunes for a cluster of `osds`.
    pub fn new(cluster: &Cluster, rng: Rng, osds: u32, mischief: Mischief) -> Chaos {
        Chaos(Rc::new(Inner { cluster: cluster.clone(), rng, osds, mischief }))
    }

    /// Lets things go wrong until the time is over, then repairs everything.
    pub async fn run(&self) {
        let world = self.0.cluster.world().clone();
        tracing::info!("{:?}", self.0.mischief);
        let falls = if self.0.mischief.two_osds { 2 } else { 1 };
        let mut kinds: Vec<JoinHandle<()>> = Vec::new();
        for _ in 0..falls {
            let chaos = self.clone();
            kinds.push(world.spawn(async move { chaos.osds_fall().await }));
        }
        let chaos = self.clone();
        kinds.push(world.spawn(async move { chaos.the_monitor_falls().await }));
        let chaos = self.clone();
        kinds.push(world.spawn(async move { chaos.the_network_suffers().await }));
        for kind in kinds {
            kind.await;
        }
        world.set_network(LinkModel::default());
        world.heal();
        self.0.cluster.start_mon();
        for osd in 0..self.0.osds {
            self.0.cluster.start_osd(osd);
        }
    }

    /// Waits for the next misfortune of a kind; false when the time is over.
    async fn next(&self, end: Duration, pause_max: Duration) -> bool {
        let world = self.0.cluster.world().clone();
        world.sleep(self.0.rng.between(Duration::ZERO, pause_max)).await;
        world.now() < end
    }

    fn end(&self) -> Duration {
        self.0.cluster.world().now() + self.0.mischief.time
    }

    fn how(&self) -> Kill {
        if self.0.rng.chance(0.5) { Kill::PROCESS } else { Kill::POWER }
    }

    fn absence(&self) -> Duration {
        self.0.rng.between(Duration::from_millis(1), self.0.mischief.absence_max)
    }

    async fn osds_fall(&self) {
        let Inner { cluster, rng, osds, mischief } = &*self.0;
        let (world, end) = (cluster.world().clone(), self.end());
        while self.next(end, mischief.pause_max).await {
            let how = self.how();
            if rng.chance(0.1) {
                tracing::info!("{:?}: all OSDs fall: {how:?}", world.now());
                for osd in 0..*osds {
                    cluster.kill_osd(osd, how);
                }
                world.sleep(rng.between(Duration::ZERO, Duration::from_secs(5))).await;
                for osd in 0..*osds {
                    cluster.start_osd(osd);
                }
                continue;
            }
            let osd = u32::try_from(rng.below((*osds).into())).expect("few OSDs");
            let absence = self.absence();
            tracing::info!("{:?}: osd.{osd} falls: {how:?} for {absence:?}", world.now());
            cluster.kill_osd(osd, how);
            world.sleep(absence).await;
            tracing::info!("{:?}: osd.{osd} comes back", world.now());
            cluster.start_osd(osd);
        }
    }

    async fn the_monitor_falls(&self) {
        let Inner { cluster, rng, mischief, .. } = &*self.0;
        let (world, end) = (cluster.world().clone(), self.end());
        while self.next(end, mischief.pause_max * 8).await {
            let how = self.how();
            let absence = rng.between(Duration::from_millis(1), Duration::from_secs(8));
            tracing::info!("{:?}: the monitor falls: {how:?} for {absence:?}", world.now());
            world.kill("mon.a", how);
            world.sleep(absence).await;
            cluster.start_mon();
        }
    }

    async fn the_network_suffers(&self) {
        let Inner { cluster, rng, mischief, .. } = &*self.0;
        let (world, end) = (cluster.world().clone(), self.end());
        while self.next(end, mischief.pause_max * 2).await {
            let names = world.names();
            let (one, other) = (rng.pick(&names).clone(), rng.pick(&names).clone());
            let time = self.absence();
            match rng.below(4) {
                0 => {
                    let (loss, reset) = (rng.unit() * 0.05, rng.unit() * 0.005);
                    tracing::info!("{:?}: loss {loss:.3}, resets {reset:.4}", world.now());
                    world.set_network(LinkModel { loss, reset, ..LinkModel::default() });
                    world.sleep(time.min(Duration::from_secs(10))).await;
                    world.set_network(LinkModel::default());
                }
                _ if one == other => {}
                1 => {
                    tracing::info!("{:?}: {one} and {other} part for {time:?}", world.now());
                    world.partition(&one, &other);
                    world.sleep(time).await;
                    world.heal();
                }
                2 => {
                    tracing::info!("{:?}: {other} does not hear {one} for {time:?}", world.now());
                    world.block(&one, &other);
                    world.sleep(time).await;
                    world.heal();
                }
                _ => {
                    tracing::info!("{:?}: resets between {one} and {other}", world.now());
                    world.reset_connections(&one, &other);
                }
            }
        }
    }
}
