//! Things that go wrong, one after the other, from a seed. Never more than the cluster must stand
//! and still serve: one OSD is down at a time.

use std::time::Duration;

use sim::{Kill, LinkModel, Rng};

use crate::Cluster;

/// How much goes wrong.
#[derive(Debug, Clone, Copy)]
pub struct Mischief {
    /// For how long.
    pub time: Duration,
    /// Longest pause between two misfortunes.
    pub pause_max: Duration,
    /// Longest absence of an OSD or of the monitor.
    pub absence_max: Duration,
    /// The monitor falls, too.
    pub mon: bool,
}

impl Default for Mischief {
    fn default() -> Mischief {
        Mischief {
            time: Duration::from_secs(60),
            pause_max: Duration::from_secs(4),
            absence_max: Duration::from_secs(30),
            mon: true,
        }
    }
}

/// See the module.
pub struct Chaos {
    cluster: Cluster,
    rng: Rng,
    osds: u32,
}

impl Chaos {
    /// Misfortunes for a cluster of `osds`.
    pub fn new(cluster: &Cluster, rng: Rng, osds: u32) -> Chaos {
        Chaos { cluster: cluster.clone(), rng, osds }
    }

    /// Lets things go wrong until the time is over, then repairs everything.
    pub async fn run(&self, mischief: Mischief) {
        let world = self.cluster.world().clone();
        let end = world.now() + mischief.time;
        while world.now() < end {
            let pause = self.rng.between(Duration::ZERO, mischief.pause_max);
            world.sleep(pause).await;
            self.one(mischief).await;
        }
        world.set_network(LinkModel::default());
        world.heal();
    }

    fn how(&self) -> Kill {
        if self.rng.chance(0.5) { Kill::PROCESS } else { Kill::POWER }
    }

    async fn one(&self, mischief: Mischief) {
        let world = self.cluster.world().clone();
        let osd = u32::try_from(self.rng.below(self.osds.into())).expect("few OSDs");
        let absence = self.rng.between(Duration::from_millis(1), mischief.absence_max);
        match self.rng.below(10) {
            0..=3 => {
                let how = self.how();
                tracing::info!("{:?}: osd.{osd} falls: {how:?} for {absence:?}", world.now());
                self.cluster.kill_osd(osd, how);
                world.sleep(absence).await;
                tracing::info!("{:?}: osd.{osd} comes back", world.now());
                self.cluster.start_osd(osd);
            }
            4 => {
                // All at once.
                let how = self.how();
                tracing::info!("{:?}: all OSDs fall: {how:?}", world.now());
                for osd in 0..self.osds {
                    self.cluster.kill_osd(osd, how);
                }
                world.sleep(self.rng.between(Duration::ZERO, Duration::from_secs(5))).await;
                for osd in 0..self.osds {
                    self.cluster.start_osd(osd);
                }
            }
            5 if mischief.mon => {
                let how = self.how();
                tracing::info!("{:?}: the monitor falls: {how:?}", world.now());
                world.kill("mon.a", how);
                world.sleep(absence.min(Duration::from_secs(10))).await;
                self.cluster.start_mon();
            }
            6 => {
                let other = (osd + 1) % self.osds;
                let (one, other) = (format!("osd.{osd}"), format!("osd.{other}"));
                tracing::info!("{:?}: {one} and {other} lose their connections", world.now());
                world.reset_connections(&one, &other);
            }
            7 => {
                let names = world.names();
                let other = self.rng.pick(&names).clone();
                let one = format!("osd.{osd}");
                if one != other {
                    tracing::info!("{:?}: {one} and {other} part for {absence:?}", world.now());
                    world.partition(&one, &other);
                    world.sleep(absence).await;
                    world.heal();
                }
            }
            8 => {
                let loss = self.rng.unit() * 0.05;
                let reset = self.rng.unit() * 0.002;
                tracing::info!("{:?}: a bad network: loss {loss:.3}", world.now());
                world.set_network(LinkModel { loss, reset, ..LinkModel::default() });
                world.sleep(absence.min(Duration::from_secs(10))).await;
                world.set_network(LinkModel::default());
            }
            _ => {
                let names = world.names();
                let other = self.rng.pick(&names).clone();
                if other != format!("osd.{osd}") {
                    world.reset_connections(&format!("osd.{osd}"), &other);
                }
            }
        }
    }
}
