//! What is known of the cluster: statistics by PG and OSD, the services, the monitors' findings
//! (`src/mgr/ClusterState.cc`, `PGMapUpdater` of `src/mon/PGMap.cc` at v16.2).
//!
//! Reports and maps change the pending step only; [`Cluster::apply`] makes it the next version, at
//! every tick and soon after something that users wait for.

use std::collections::BTreeSet;
use std::time::Duration;

use maps::pgmap::{DeltaSettings, PgMap, PgMapIncremental};
use maps::{OsdMap, ServiceMap};
use messages::{MMgrDigest, MMgrOpen, MPGStats, MPGStatsAck};
use types::osd::{OsdStat, PgStat, pg_state};
use types::{EntityAddr, OsdId, PgId, UTime};

use crate::daemons::DaemonKey;

/// After this many report periods what OSDs have not told is no longer waited for.
const READY_AFTER_PERIODS: u32 = 4;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) pg_map: PgMap,
    /// One entry at most for each PG and OSD.
    pending: PgMapIncremental,
    pub(crate) service_map: ServiceMap,
    /// Newer than what the monitors have.
    pub(crate) service_map_dirty: bool,
    /// As the monitors published it last.
    published_services: ServiceMap,
    pub(crate) digest: MMgrDigest,
    reported: BTreeSet<OsdId>,
    /// Every OSD that is up has reported (or it took too long): the sums may be shown.
    pub(crate) ready: bool,
}

/// What is taken in from a report.
pub(crate) fn ack_of(stats: &MPGStats) -> MPGStatsAck {
    let seen = |(pgid, stat): (&PgId, &PgStat)| (*pgid, (stat.reported_seq, stat.reported_epoch));
    MPGStatsAck { pg_stat: stats.pg_stat.iter().map(seen).collect(), ..MPGStatsAck::default() }
}

impl Cluster {
    fn stat_of(&self, pgid: PgId) -> Option<&PgStat> {
        self.pending.pg_stat_updates.get(&pgid).or_else(|| self.pg_map.pg_stat.get(&pgid))
    }

    /// Takes an OSD's report; true when it changes what the monitors should know at once.
    pub(crate) fn ingest(&mut self, osd: OsdId, stats: &MPGStats, map: &OsdMap) -> bool {
        if !map.exists(osd) {
            return false;
        }
        let mut changed = self.reported.insert(osd);
        let stat = if map.is_in(osd) { stats.osd_stat.clone() } else { of_out(&stats.osd_stat) };
        self.pending.osd_stat_rm.remove(&osd);
        self.pending.osd_stat_updates.insert(osd, stat);
        for (pool, statfs) in &stats.pool_stat {
            if map.pool(*pool).is_some() {
                self.pending.pool_statfs_updates.insert((*pool, osd), *statfs);
            }
        }
        for (pgid, stat) in &stats.pg_stat {
            if !map.pg_exists(*pgid) {
                continue;
            }
            let old = self.stat_of(*pgid);
            if old.is_some_and(|old| old.reported() > stat.reported()) {
                continue;
            }
            changed |= old.is_none_or(|old| old.state != stat.state);
            self.pending.pg_remove.remove(pgid);
            self.pending.pg_stat_updates.insert(*pgid, stat.clone());
        }
        changed
    }

    /// New PGs are unknown until somebody reports them; those of gone pools are forgotten, and so
    /// are OSDs that are gone; the space of those that are out does not count; PGs whose primary is
    /// down are stale.
    pub(crate) fn on_osdmap(&mut self, map: &OsdMap, now: UTime) {
        let pending = &mut self.pending;
        let gone = |pgid: &PgId| !map.pg_exists(*pgid);
        pending.pg_stat_updates.retain(|pgid, _| !gone(pgid));
        pending.pg_remove.extend(self.pg_map.pg_stat.keys().filter(|pgid| gone(pgid)));
        pending.osd_stat_updates.retain(|osd, _| map.exists(*osd));
        for (osd, stat) in &self.pg_map.osd_stat {
            if !map.exists(*osd) {
                pending.osd_stat_rm.insert(*osd);
            } else if map.is_out(*osd) && *stat != of_out(stat) {
                pending.osd_stat_updates.entry(*osd).or_insert_with(|| stat.clone());
            }
        }
        for (_, stat) in pending.osd_stat_updates.iter_mut().filter(|(osd, _)| map.is_out(**osd)) {
            *stat = of_out(stat);
        }
        self.reported.retain(|osd| map.is_up(*osd));
        for (id, pool) in &map.pools {
            let known = self.pg_map.digest.num_pg_by_pool.get(id).copied().unwrap_or(0);
            if known == i64::from(pool.pg_num) {
                continue;
            }
            for seed in 0..pool.pg_num {
                let pgid = PgId::new(*id as u64, seed);
                if self.pg_map.pg_stat.contains_key(&pgid) {
                    continue;
                }
                self.pending.pg_remove.remove(&pgid);
                self.pending
                    .pg_stat_updates
                    .entry(pgid)
                    .or_insert_with(|| unknown_since(map.modified));
            }
        }
        self.mark_stale(map, now);
    }

    fn mark_stale(&mut self, map: &OsdMap, now: UTime) {
        let stale = |stat: &PgStat| {
            stat.state & pg_state::STALE == 0
                && stat.acting_primary >= 0
                && map.is_down(stat.acting_primary)
        };
        let mark = |stat: &mut PgStat| {
            stat.state |= pg_state::STALE;
            stat.last_unstale = now;
        };
        for stat in self.pending.pg_stat_updates.values_mut().filter(|stat| stale(stat)) {
            mark(stat);
        }
        for (pgid, stat) in self.pg_map.pg_stat.iter().filter(|(_, stat)| stale(stat)) {
            let gone = self.pending.pg_remove.contains(pgid);
            if !gone && !self.pending.pg_stat_updates.contains_key(pgid) {
                let mut stat = stat.clone();
                mark(&mut stat);
                self.pending.pg_stat_updates.insert(*pgid, stat);
            }
        }
    }

    /// Makes what is pending the next version.
    pub(crate) fn apply(&mut self, now: UTime, settings: DeltaSettings) {
        let mut step = std::mem::take(&mut self.pending);
        step.stamp = now;
        self.pg_map.apply(&step, settings);
    }

    /// Whether the sums are worth telling; `active_for`: how long this manager has been active.
    pub(crate) fn check_ready(&mut self, map: &OsdMap, active_for: Duration, period: Duration) {
        let all = map.epoch != 0 && map.up_osds().all(|osd| self.reported.contains(&osd));
        self.ready |= all || active_for > period * READY_AFTER_PERIODS;
    }

    /// How many PGs the map has, and how many of them are known to serve: active by a report made
    /// in the present lives of the OSDs that hold them.
    pub(crate) fn serving_pgs(&self, map: &OsdMap) -> (u64, u64) {
        let total = map.pools.values().map(|pool| u64::from(pool.pg_num)).sum();
        let serves = |(pgid, stat): &(&PgId, &PgStat)| {
            map.pg_exists(**pgid)
                && stat.state & pg_state::ACTIVE != 0
                && stat.state & pg_state::STALE == 0
                && stat.acting.iter().all(|osd| {
                    // What is nobody's (an erasure-coded PG's gap) has no life to wait for.
                    *osd < 0
                        || !map.exists(*osd)
                        || map.is_up(*osd) && stat.reported_epoch >= map.up_from(*osd)
                })
        };
        (total, self.pg_map.pg_stat.iter().filter(serves).count() as u64)
    }

    /// Everything reported to this process is forgotten: it is no longer the active manager.
    pub(crate) fn reset(&mut self) {
        // What the monitors were not told is told again by who is there.
        let published = std::mem::take(&mut self.published_services);
        *self = Cluster {
            service_map: published.clone(),
            published_services: published,
            ..Cluster::default()
        };
    }

    /// The monitors have published a map. What has changed here since it was told them is not in it:
    /// then ours stays, as the next one (`DaemonServer::got_service_map` in
    /// `src/mgr/DaemonServer.cc` at v16.2).
    pub(crate) fn on_service_map(&mut self, map: ServiceMap) {
        self.published_services.clone_from(&map);
        let ours = &mut self.service_map;
        // What has never been told does not count for a manager that is not the active one any more.
        if self.service_map_dirty && map.epoch < ours.epoch {
            return;
        }
        if self.service_map_dirty && map.services != ours.services {
            ours.epoch = map.epoch + 1;
        } else {
            *ours = map;
            self.service_map_dirty = false;
        }
    }

    pub(crate) fn on_digest(&mut self, digest: MMgrDigest) {
        self.digest = digest;
    }

    /// Each change is a map of its own: the monitors may have been told the one before already.
    fn service_map_changes(&mut self, now: UTime) -> &mut ServiceMap {
        self.service_map_dirty = true;
        self.service_map.epoch += 1;
        self.service_map.modified = now;
        &mut self.service_map
    }

    /// A service's daemon has come, or opens another session: it began when its `gid` was new.
    pub(crate) fn service_daemon(
        &mut self,
        (gid, addr): (u64, EntityAddr),
        open: &MMgrOpen,
        now: UTime,
    ) {
        let Some((metadata, _)) = &open.service else { return };
        let known = self.service_map.services.get(&open.service_name);
        let known = known.and_then(|service| service.daemons.get(&open.daemon_name));
        let known = known.filter(|daemon| daemon.gid == gid);
        if known.is_some_and(|daemon| daemon.addr == addr && daemon.metadata == *metadata) {
            return;
        }
        let began = known.map(|daemon| (daemon.start_epoch, daemon.start_stamp));
        let map = self.service_map_changes(now);
        let (start_epoch, start_stamp) = began.unwrap_or((map.epoch, now));
        let service = map.services.entry(open.service_name.clone()).or_default();
        let daemon = service.daemons.entry(open.daemon_name.clone()).or_default();
        (daemon.gid, daemon.addr) = (gid, addr);
        (daemon.start_epoch, daemon.start_stamp) = (start_epoch, start_stamp);
        daemon.metadata.clone_from(metadata);
    }

    /// Daemons of services that have not been heard of for longer than `grace`: gone without a goodbye.
    /// `heard`: when one was last heard of; by `env.now()`, as the time of day may be set.
    pub(crate) fn silent_services(
        &self,
        heard: impl Fn(&DaemonKey) -> Duration,
        now: Duration,
        grace: Duration,
    ) -> Vec<DaemonKey> {
        let all = self.service_map.services.iter().flat_map(|(kind, service)| {
            let key = |name: &String| DaemonKey { kind: kind.clone(), name: name.clone() };
            service.daemons.keys().map(key)
        });
        all.filter(|key| now.saturating_sub(heard(key)) > grace).collect()
    }

    /// A service's daemon says goodbye.
    pub(crate) fn service_gone(&mut self, service: &str, daemon: &str, now: UTime) {
        let services = &mut self.service_map.services;
        let Some(entry) = services.get_mut(service) else { return };
        if entry.daemons.remove(daemon).is_none() {
            return;
        }
        if entry.daemons.is_empty() {
            services.remove(service);
        }
        self.service_map_changes(now);
    }
}

/// What counts of an OSD that is out: its space is not the cluster's any more, but which report was
/// taken in and how many PGs it still stores is asked for until it is gone.
fn of_out(stat: &OsdStat) -> OsdStat {
    OsdStat { seq: stat.seq, num_pgs: stat.num_pgs, ..OsdStat::default() }
}

fn unknown_since(stamp: UTime) -> PgStat {
    PgStat {
        last_fresh: stamp,
        last_active: stamp,
        last_change: stamp,
        last_peered: stamp,
        last_clean: stamp,
        last_unstale: stamp,
        last_undegraded: stamp,
        last_fullsized: stamp,
        last_scrub_stamp: stamp,
        last_deep_scrub_stamp: stamp,
        last_clean_scrub_stamp: stamp,
        ..PgStat::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use maps::osdmap::{WEIGHT_IN, osd_state};
    use maps::servicemap::{Service, ServiceDaemon};

    use super::*;

    /// An OSD that was out but up was forgotten with every map and counted in full with its next report:
    /// `ceph df` changed its total every few seconds.
    #[test]
    fn space_of_osds_that_are_out_does_not_count() {
        let mut map = OsdMap { epoch: 1, ..OsdMap::default() };
        map.set_max_osd(2);
        for osd in 0..2 {
            map.osd_state[osd] = osd_state::EXISTS | osd_state::UP;
            map.osd_weight[osd] = WEIGHT_IN;
        }
        let mut cluster = Cluster::default();
        let settings = DeltaSettings { smooth_intervals: 2, reset_interval_secs: 10 };
        let report = |seq: u64| {
            let mut osd_stat = OsdStat { seq, num_pgs: 7, num_osds: 1, ..OsdStat::default() };
            osd_stat.statfs.total = 1 << 30;
            MPGStats { osd_stat, ..MPGStats::default() }
        };
        let mut step = |map: &OsdMap, seq: Option<u64>| {
            match seq {
                Some(seq) => {
                    (0..2).for_each(|osd| _ = cluster.ingest(osd, &report(seq), map));
                }
                None => cluster.on_osdmap(map, UTime::default()),
            }
            cluster.apply(UTime::default(), settings);
            let sum = &cluster.pg_map.digest.osd_sum;
            let seq = |osd: OsdId| cluster.pg_map.osd_stat.get(&osd).map(|s| (s.seq, s.num_pgs));
            (sum.statfs.total >> 30, sum.num_osds, seq(1))
        };
        assert_eq!(step(&map, Some(1)), (2, 2, Some((1, 7))));
        map.osd_weight[1] = 0;
        assert_eq!(step(&map, None), (1, 1, Some((1, 7))));
        assert_eq!(step(&map, Some(2)), (1, 1, Some((2, 7))));
        assert_eq!(step(&map, None), (1, 1, Some((2, 7))));
        map.osd_weight[1] = WEIGHT_IN;
        assert_eq!(step(&map, Some(3)), (2, 2, Some((3, 7))));
        map.osd_state[1] = 0;
        assert_eq!(step(&map, None), (1, 1, None));
    }

    /// `mgr_service_beacon_grace` had no effect: a mirror daemon that was killed stood in `ceph -s` for ever.
    #[test]
    fn a_service_that_is_silent_is_gone() {
        let mut cluster = Cluster::default();
        let names = ["alive", "dead"];
        let daemons = names.map(|name| (name.to_owned(), ServiceDaemon::default())).into();
        let service = Service { daemons, ..Service::default() };
        cluster.service_map.services.insert("rbd-mirror".to_owned(), service);
        let at = Duration::from_secs;
        let heard = |key: &DaemonKey| if key.name == "dead" { at(1000) } else { at(1030) };
        let grace = Duration::from_secs(60);
        let mut silent = |now: u64| {
            let silent = cluster.silent_services(heard, at(now), grace);
            let stamp = UTime::default();
            silent.iter().for_each(|key| cluster.service_gone(&key.kind, &key.name, stamp));
            silent.iter().map(DaemonKey::text).collect::<Vec<_>>()
        };
        assert!(silent(1060).is_empty());
        assert_eq!(silent(1061), ["rbd-mirror.dead"]);
        assert!(silent(1062).is_empty());
        let left = &cluster.service_map.services["rbd-mirror"].daemons;
        assert_eq!(left.keys().collect::<Vec<_>>(), ["alive"]);
        assert!(cluster.service_map_dirty);
    }

    /// A gateway whose session is opened.
    fn gateway(name: &str, version: &str) -> MMgrOpen {
        let metadata = BTreeMap::from([("version".to_owned(), version.to_owned())]);
        MMgrOpen {
            daemon_name: name.to_owned(),
            service_name: "rgw".to_owned(),
            service: Some((metadata, BTreeMap::new())),
            ..MMgrOpen::default()
        }
    }

    fn gateways(map: &ServiceMap) -> Vec<&str> {
        let service = map.services.get("rgw");
        service.map_or(Vec::new(), |of| of.daemons.keys().map(String::as_str).collect())
    }

    /// A gateway that came after the monitors had been told of another one, and before they had published that, was
    /// lost with the published map: it stood in no `ceph -s` until it opened another session.
    #[test]
    fn a_service_that_comes_between_a_report_and_its_map_stays() {
        let mut cluster = Cluster::default();
        let now = UTime::default();
        let addr = EntityAddr::default();
        cluster.on_service_map(ServiceMap { epoch: 5, ..ServiceMap::default() });
        cluster.service_daemon((1, addr), &gateway("a", ""), now);
        let told = cluster.service_map.clone();
        cluster.service_daemon((2, addr), &gateway("b", ""), now);
        cluster.on_service_map(told.clone());
        assert_eq!(gateways(&cluster.service_map), ["a", "b"]);
        assert!(cluster.service_map_dirty && cluster.service_map.epoch > told.epoch);
        // Nor by what the manager before this one had told last.
        let late = ServiceMap { epoch: cluster.service_map.epoch, ..told };
        cluster.on_service_map(late.clone());
        assert_eq!(gateways(&cluster.service_map), ["a", "b"]);
        assert!(cluster.service_map_dirty && cluster.service_map.epoch > late.epoch);
        let told = cluster.service_map.clone();
        cluster.on_service_map(told);
        assert!(!cluster.service_map_dirty);
        // Of another manager.
        cluster.on_service_map(ServiceMap { epoch: 20, ..ServiceMap::default() });
        assert_eq!((gateways(&cluster.service_map), cluster.service_map.epoch), (vec![], 20));
        // Who was not told of before another manager became active, and came back.
        cluster.service_daemon((1, addr), &gateway("a", ""), now);
        cluster.reset();
        cluster.service_daemon((1, addr), &gateway("a", ""), now);
        assert!(cluster.service_map_dirty && cluster.service_map.epoch > 20);
    }

    /// A gateway's time of start was that of its last session: a manager that was restarted made all of them young.
    #[test]
    fn a_service_begins_once() {
        let mut cluster = Cluster::default();
        let at = |sec: u32| UTime { sec, nsec: 0 };
        let addr = EntityAddr::default();
        let mut opens = |gid: u64, version: &str, now: u32| {
            cluster.service_daemon((gid, addr), &gateway("a", version), at(now));
            let daemon = &cluster.service_map.services["rgw"].daemons["a"];
            let of_it = (daemon.start_epoch, daemon.start_stamp.sec);
            (of_it, cluster.service_map.epoch, daemon.metadata["version"].clone())
        };
        assert_eq!(opens(7, "1", 100), ((1, 100), 1, "1".to_owned()));
        assert_eq!(opens(7, "1", 200), ((1, 100), 1, "1".to_owned()));
        assert_eq!(opens(7, "2", 300), ((1, 100), 2, "2".to_owned()));
        assert_eq!(opens(8, "2", 400), ((3, 400), 3, "2".to_owned()));
    }
}
