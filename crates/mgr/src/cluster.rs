//! What is known of the cluster: statistics by PG and OSD, maps, the monitors' findings.

use std::collections::BTreeMap;

use maps::{OsdMap, ServiceMap};
use messages::{MMgrDigest, MMgrOpen, MPGStats, MPGStatsAck};
use types::osd::{OsdStat, PgStat};
use types::{PgId, UTime};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    pub(crate) pg_stat: BTreeMap<PgId, PgStat>,
    pub(crate) osd_stat: BTreeMap<i32, OsdStat>,
    pub(crate) service_map: ServiceMap,
    pub(crate) digest: MMgrDigest,
}

/// What is taken in from a report.
pub(crate) fn ack_of(stats: &MPGStats) -> MPGStatsAck {
    let seen = |(pgid, stat): (&PgId, &PgStat)| (*pgid, (stat.reported_seq, stat.reported_epoch));
    MPGStatsAck { pg_stat: stats.pg_stat.iter().map(seen).collect(), ..MPGStatsAck::default() }
}

impl Cluster {
    /// Takes an OSD's report; true when it changes what the monitors should know at once.
    pub(crate) fn ingest(&mut self, osd: i32, stats: &MPGStats, map: &OsdMap, _: UTime) -> bool {
        let new_osd = self.osd_stat.insert(osd, stats.osd_stat.clone()).is_none();
        let mut changed = new_osd;
        for (pgid, stat) in &stats.pg_stat {
            if map.epoch != 0 && !map.pg_exists(*pgid) {
                continue;
            }
            let old = self.pg_stat.get(pgid);
            if old.is_some_and(|old| old.reported() > stat.reported()) {
                continue;
            }
            changed |= old.is_none_or(|old| old.state != stat.state);
            self.pg_stat.insert(*pgid, stat.clone());
        }
        changed
    }

    pub(crate) fn on_osdmap(&mut self, map: &OsdMap) {
        self.pg_stat.retain(|pgid, _| map.pg_exists(*pgid));
        self.osd_stat.retain(|osd, _| map.exists(*osd));
    }

    pub(crate) fn on_service_map(&mut self, map: ServiceMap) {
        if map.epoch > self.service_map.epoch {
            self.service_map = map;
        }
    }

    pub(crate) fn on_digest(&mut self, digest: MMgrDigest) {
        self.digest = digest;
    }

    pub(crate) fn service_daemon(&mut self, gid: u64, open: &MMgrOpen, now: UTime) {
        let Some((metadata, _)) = &open.service else { return };
        let map = &mut self.service_map;
        map.epoch += 1;
        map.modified = now;
        let service = map.services.entry(open.service_name.clone()).or_default();
        let daemon = service.daemons.entry(open.daemon_name.clone()).or_default();
        daemon.gid = gid;
        daemon.start_epoch = map.epoch;
        daemon.start_stamp = now;
        daemon.metadata.clone_from(metadata);
    }
}
