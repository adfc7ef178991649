//! Daemons that report to the manager: gateways, mirrors and the like. Wire: ServiceMap v1
//! (`src/mgr/ServiceMap.h` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use command::Formatter;
use denc::Denc;
use types::{EntityAddr, Epoch, UTime};

/// One daemon.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct ServiceDaemon {
    /// Its global id.
    pub gid: u64,
    /// Where it is.
    pub addr: EntityAddr,
    /// Epoch it began in.
    pub start_epoch: Epoch,
    /// When it began.
    pub start_stamp: UTime,
    /// What it says of itself.
    pub metadata: BTreeMap<String, String>,
    /// What it is doing.
    #[denc(since = 2)]
    pub task_status: BTreeMap<String, String>,
}

/// The daemons of one service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Service {
    /// By name.
    pub daemons: BTreeMap<String, ServiceDaemon>,
    /// One line; empty: see [`Service::summary`].
    pub summary: String,
}

/// All services.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ServiceMap {
    /// This map's number.
    pub epoch: Epoch,
    /// When it changed.
    pub modified: UTime,
    /// By name: rgw, rbd-mirror, ...
    pub services: BTreeMap<String, Service>,
}

impl ServiceMap {
    /// The members of `service dump -f json`.
    pub fn dump(&self, f: &mut Formatter) {
        f.dump_unsigned("epoch", self.epoch);
        f.dump_stream("modified", self.modified);
        f.object("services", |f| {
            for (name, service) in &self.services {
                f.object(name, |f| service.dump(f));
            }
        });
    }
}

impl Service {
    /// What `ceph -s` says of it: how many daemons are active, on how many hosts and for how many zones, with
    /// Ceph's plural, which it has whatever the number (`Service::get_summary` in `src/mgr/ServiceMap.h` at v16.2).
    pub fn summary(&self) -> String {
        if !self.summary.is_empty() {
            return self.summary.clone();
        }
        let count = self.daemons.len();
        if count == 0 {
            return "no daemons active".to_owned();
        }
        let last_first = self.daemons.values().rev();
        let kind = last_first.filter_map(|daemon| daemon.metadata.get("daemon_type")).next();
        let kind = kind.map_or("daemon", String::as_str);
        let groups: Vec<String> = [("host", "hostname"), ("zone", "zone_id")]
            .into_iter()
            .filter_map(|(group, key)| {
                let of = self.daemons.values().filter_map(|daemon| daemon.metadata.get(key));
                let of: BTreeSet<&String> = of.collect();
                (!of.is_empty()).then(|| format!("{} {group}s", of.len()))
            })
            .collect();
        let plural = if count > 1 { "s" } else { "" };
        let groups = match groups.is_empty() {
            true => String::new(),
            false => format!(" ({})", groups.join(", ")),
        };
        format!("{count} {kind}{plural} active{groups}")
    }

    fn dump(&self, f: &mut Formatter) {
        f.object("daemons", |f| {
            f.dump_string("summary", &self.summary);
            for (name, daemon) in &self.daemons {
                f.object(name, |f| {
                    f.dump_unsigned("start_epoch", daemon.start_epoch);
                    f.dump_stream("start_stamp", daemon.start_stamp);
                    f.dump_unsigned("gid", daemon.gid);
                    f.dump_stream("addr", daemon.addr.legacy_text());
                    let map = |f: &mut Formatter, key: &str, map: &BTreeMap<String, String>| {
                        f.object(key, |f| map.iter().for_each(|(k, v)| f.dump_string(k, v)));
                    };
                    map(f, "metadata", &daemon.metadata);
                    map(f, "task_status", &daemon.task_status);
                });
            }
        });
    }
}
