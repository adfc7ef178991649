//! Who reports to this manager, and what: configuration, counters, health.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use config::Config;
use denc::Reader;
use messages::{DaemonHealthMetric, MMgrOpen, MMgrReport, PerfCounterType};
use msgr::Connection;
use types::{OsdId, UTime};

/// Daemons kept, and counters of each; more are not taken. An OSD of Ceph has about 400 counters.
const DAEMONS_MAX: usize = 16384;
const COUNTERS_MAX: usize = 4096;

/// Type bits of a counter.
pub(crate) const LONGRUNAVG: u8 = 4;

/// A daemon: `osd`, `0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DaemonKey {
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl DaemonKey {
    /// By what it said when it opened its session.
    pub(crate) fn of(con: &Connection, service: &str, name: &str) -> DaemonKey {
        let kind = if service.is_empty() {
            types::entity::kind_name(con.peer_kind()).to_owned()
        } else {
            service.to_owned()
        };
        DaemonKey { kind, name: name.to_owned() }
    }

    /// `osd.0`.
    pub(crate) fn text(&self) -> String {
        format!("{}.{}", self.kind, self.name)
    }
}

/// A counter's value at a time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) value: u64,
    /// Number of values summed in `value`, for averages.
    pub(crate) count: u64,
}

/// A counter with its last two samples.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counter {
    pub(crate) kind: PerfCounterType,
    pub(crate) last: Sample,
    pub(crate) before: Sample,
}

impl Counter {
    /// Growth a second between the last two samples.
    pub(crate) fn rate(&self) -> u64 {
        let time = self.last.at.saturating_sub(self.before.at).as_secs_f64();
        if time <= 0.0 || self.before.at.is_zero() {
            return 0;
        }
        (self.last.value.saturating_sub(self.before.value) as f64 / time) as u64
    }
}

/// What one daemon told.
#[derive(Debug, Default)]
pub(crate) struct Daemon {
    /// The session that told it; another one replaces it.
    con_id: u64,
    pub(crate) counters: BTreeMap<String, Counter>,
    pub(crate) health: Vec<DaemonHealthMetric>,
    /// Option to (source to value).
    pub(crate) config: BTreeMap<String, BTreeMap<i32, String>>,
    /// Option to default.
    pub(crate) config_defaults: BTreeMap<String, String>,
    /// What a service's daemon says of itself, since when, and when it was last heard of.
    pub(crate) status: BTreeMap<String, String>,
    pub(crate) status_since: UTime,
    pub(crate) last_beacon: UTime,
    /// The same by a clock that nobody sets (`env.now()`): silence is measured by it.
    pub(crate) heard: Duration,
}

/// All that report.
#[derive(Debug, Default)]
pub(crate) struct Daemons {
    by_key: BTreeMap<DaemonKey, Daemon>,
}

fn config_of(bytes: &Bytes) -> Option<BTreeMap<String, BTreeMap<i32, String>>> {
    if bytes.is_empty() { None } else { Reader::new(bytes).get().ok() }
}

impl Daemons {
    /// Whether it is taken.
    pub(crate) fn open(
        &mut self,
        key: DaemonKey,
        con: &Connection,
        open: &MMgrOpen,
        (now, wall): (Duration, UTime),
    ) -> bool {
        if self.by_key.len() >= DAEMONS_MAX && !self.by_key.contains_key(&key) {
            tracing::warn!("too many daemons, {} is not taken", key.text());
            return false;
        }
        let defaults = &open.config_defaults;
        let daemon = Daemon {
            con_id: con.id(),
            config: config_of(&open.config).unwrap_or_default(),
            config_defaults: Reader::new(defaults).get().unwrap_or_default(),
            status: open.service.as_ref().map(|(_, status)| status.clone()).unwrap_or_default(),
            status_since: wall,
            last_beacon: wall,
            heard: now,
            ..Daemon::default()
        };
        self.by_key.insert(key, daemon);
        true
    }

    /// Whether the daemon is known. One that has been forgotten must open its session anew: a report
    /// alone says neither who it is nor which counters the values are of.
    pub(crate) fn report(
        &mut self,
        key: &DaemonKey,
        report: &MMgrReport,
        (now, wall): (Duration, UTime),
    ) -> bool {
        let Some(daemon) = self.by_key.get_mut(key) else { return false };
        (daemon.last_beacon, daemon.heard) = (wall, now);
        if let Some(status) = &report.daemon_status {
            daemon.status.clone_from(status);
            daemon.status_since = wall;
        }
        for kind in &report.declare_types {
            if daemon.counters.len() < COUNTERS_MAX || daemon.counters.contains_key(&kind.path) {
                let counter = Counter { kind: kind.clone(), ..Counter::default() };
                daemon.counters.insert(kind.path.clone(), counter);
            }
        }
        for path in &report.undeclare_types {
            daemon.counters.remove(path);
        }
        if let Err(error) = daemon.take_values(&report.packed, now) {
            tracing::debug!("counters of {}: {error}", key.text());
        }
        daemon.health.clone_from(&report.daemon_health_metrics);
        if let Some(config) = config_of(&report.config) {
            daemon.config = config;
        }
        true
    }

    pub(crate) fn close(&mut self, key: &DaemonKey) {
        self.by_key.remove(key);
    }

    /// The session broke: what it told is kept until another session replaces it, but its health
    /// no longer counts.
    pub(crate) fn lost(&mut self, key: &DaemonKey, con: &Connection) {
        if let Some(daemon) = self.by_key.get_mut(key).filter(|d| d.con_id == con.id()) {
            daemon.health.clear();
        }
    }

    /// OSDs that are not in the map any more tell nothing of the cluster.
    pub(crate) fn keep_osds(&mut self, exists: impl Fn(OsdId) -> bool) {
        self.by_key.retain(|key, _| key.kind != "osd" || key.name.parse().is_ok_and(&exists));
    }

    pub(crate) fn clear(&mut self) {
        self.by_key.clear();
    }

    pub(crate) fn find(&self, kind: &str, name: &str) -> Option<&Daemon> {
        self.by_key.get(&DaemonKey { kind: kind.to_owned(), name: name.to_owned() })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&DaemonKey, &Daemon)> {
        self.by_key.iter()
    }
}

impl Daemon {
    /// What this very process would tell of its configuration.
    pub(crate) fn of_config(config: &Config) -> Daemon {
        Daemon {
            config: config.set_values(),
            config_defaults: config.defaults(),
            ..Daemon::default()
        }
    }

    /// Values come in the order of the paths, in an envelope.
    fn take_values(&mut self, packed: &Bytes, now: Duration) -> Result<(), denc::Error> {
        if packed.is_empty() {
            return Ok(());
        }
        let counters = &mut self.counters;
        Reader::new(packed).envelope("perf counters", 1, 1, |r, _| {
            for counter in counters.values_mut() {
                let value = r.u64()?;
                let mut count = 0;
                if counter.kind.kind & LONGRUNAVG != 0 {
                    count = r.u64()?;
                    r.u64()?; // the count again, written after the value
                }
                counter.before = counter.last;
                counter.last = Sample { at: now, value, count };
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters of OSDs that had been purged stayed on the page of metrics, as they were last, until another manager
    /// took over.
    #[test]
    fn what_purged_osds_told_is_forgotten() {
        let mut daemons = Daemons::default();
        for (kind, name) in [("osd", "0"), ("osd", "1"), ("rbd-mirror", "1"), ("mgr", "x")] {
            let key = DaemonKey { kind: kind.to_owned(), name: name.to_owned() };
            daemons.by_key.insert(key, Daemon::default());
        }
        daemons.keep_osds(|osd| osd == 0);
        let left: Vec<String> = daemons.iter().map(|(key, _)| key.text()).collect();
        assert_eq!(left, ["mgr.x", "osd.0", "rbd-mirror.1"]);
    }
}
