//! Monitors beside the first: made to join it, started, killed, wiped.

use std::collections::BTreeMap;
use std::future::pending;
use std::path::Path;
use std::rc::Rc;

use maps::{MonInfo, MonMap};
use sim::{Control, Kill};
use store::Kv;
use store::kv::RedbKv;
use types::{AddrVec, EntityAddr};

use crate::Cluster;
use crate::cluster::{MON_DB, MON_PORT};

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

fn names(mons: u32) -> &'static [&'static str] {
    &NAMES[..mons as usize]
}

fn host(name: &str) -> String {
    format!("mon.{name}")
}

/// `mon_host` of a cluster.
pub(crate) fn hosts(world: &Control, mons: u32) -> String {
    let one = |name: &&str| format!("[v2:{}:{MON_PORT}]", world.ip(&host(name)));
    names(mons).iter().map(one).collect::<Vec<_>>().join(",")
}

/// Adds all monitors to the first map.
pub(crate) fn add_all(world: &Control, mons: u32, monmap: &mut MonMap) {
    for name in names(mons) {
        let addr = EntityAddr::msgr2((world.ip(&host(name)), MON_PORT).into(), 0);
        monmap.add(MonInfo {
            name: (*name).to_owned(),
            public_addrs: AddrVec::of(addr),
            ..MonInfo::default()
        });
    }
}

impl Cluster {
    /// Names of the monitors.
    pub fn mon_names(&self) -> &'static [&'static str] {
        names(self.plan.mons)
    }

    /// Databases of all monitors but the first.
    pub(crate) fn mkfs_joining(&self, monmap: &MonMap) {
        for name in &self.mon_names()[1..] {
            self.mkfs_one(name, monmap);
        }
    }

    fn mkfs_one(&self, name: &str, monmap: &MonMap) {
        let env = self.world.node(&host(name));
        let kv = RedbKv::open(&env, Path::new(MON_DB)).expect("a database");
        let fill = &mut |buf: &mut [u8]| env.fill_random(buf);
        mon::mkfs_joining(&kv, monmap, &self.keyring, fill).expect("mkfs of a monitor that joins");
    }

    /// Starts the monitors but the first, unless they run.
    pub(crate) fn start_joined(&self) {
        for name in &self.mon_names()[1..] {
            let host = host(name);
            let started = !self.mons_started.borrow_mut().insert(host.clone());
            if started && self.world.is_running(&host) {
                continue;
            }
            let env = self.world.node(&host);
            let config = self.config("mon", name, &host);
            env.clone().go(async move {
                let kv: Rc<dyn Kv> =
                    Rc::new(RedbKv::open(&env, Path::new(MON_DB)).expect("a monitor's database"));
                let metadata = BTreeMap::from([("hostname".to_owned(), host)]);
                let identity = mon::Identity { name: (*name).to_owned(), metadata };
                let mon = mon::Mon::start(env.clone(), config, kv, identity).await;
                let mon = mon.expect("a monitor starts");
                pending::<()>().await;
                drop(mon);
            });
        }
    }

    /// Ends a monitor's process.
    pub fn kill_mon(&self, name: &str, how: Kill) {
        self.world.kill(&host(name), how);
    }
}
