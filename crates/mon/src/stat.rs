//! What the manager reports: usage, placement groups, services, progress, findings
//! (`src/mon/MgrStatMonitor.cc` at v16.2).

use std::collections::BTreeMap;

use denc::Denc;
use maps::{HealthCheckMap, PgMapDigest, ServiceMap};
use messages::{MMonMgrReport, ProgressEvent};
use store::Kv;
use types::osd::PoolStat;

use crate::core::{LoadError, MonCore};
use crate::event::SessionId;
use crate::layout::{self, MGRSTAT};

/// State of the service.
#[derive(Debug, Default)]
pub(crate) struct StatService {
    pub(crate) version: u64,
    pub(crate) digest: PgMapDigest,
    pub(crate) service_map: ServiceMap,
    /// The committed service map: what subscribers are told.
    pub(crate) published: ServiceMap,
    /// The service map of the proposal under way.
    proposed: Option<ServiceMap>,
    pub(crate) progress: BTreeMap<String, ProgressEvent>,
    pub(crate) health: HealthCheckMap,
    /// Whether there has been a report since the start.
    pub(crate) fresh: bool,
}

/// Usage of the cluster or of one pool.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) kb: u64,
    pub(crate) kb_used: u64,
    pub(crate) kb_avail: u64,
    pub(crate) num_objects: u64,
}

impl StatService {
    pub(crate) fn load(kv: &dyn Kv) -> Result<StatService, LoadError> {
        let mut stat = StatService::default();
        let decode = |what: &str, error| LoadError::Decode { what: what.to_string(), error };
        stat.version = layout::get_u64(kv, MGRSTAT, "version")?.unwrap_or(0);
        if let Some(bytes) = layout::get(kv, MGRSTAT, "digest")? {
            stat.digest = Denc::from_bytes(&bytes).map_err(|e| decode("mgrstat/digest", e))?;
        }
        if let Some(bytes) = layout::get(kv, MGRSTAT, "service_map")? {
            stat.service_map =
                Denc::from_bytes(&bytes).map_err(|e| decode("mgrstat/service_map", e))?;
            stat.published = stat.service_map.clone();
        }
        if let Some(bytes) = layout::get(kv, MGRSTAT, "health")? {
            stat.health = Denc::from_bytes(&bytes).map_err(|e| decode("mgrstat/health", e))?;
        }
        Ok(stat)
    }

    /// A proposal begins: what it has of the service map is told when it is committed.
    pub(crate) fn on_proposed(&mut self) {
        let changed = self.service_map != self.published;
        self.proposed = changed.then(|| self.service_map.clone());
    }

    /// The proposal is committed: its map is published, not what has changed since.
    pub(crate) fn on_committed(&mut self) {
        if let Some(map) = self.proposed.take() {
            self.published = map;
        }
    }

    /// Bytes and objects stored in a pool.
    pub(crate) fn pool_sum(&self, id: i64) -> (u64, u64) {
        let natural = |n: i64| u64::try_from(n).unwrap_or(0);
        self.pool_stat(id)
            .map(|p| (natural(p.stats.sum.num_bytes), natural(p.stats.sum.num_objects)))
            .unwrap_or_default()
    }

    /// Statistics of a pool.
    pub(crate) fn pool_stat(&self, id: i64) -> Option<PoolStat> {
        self.digest.pg_pool_sum.get(&i32::try_from(id).ok()?).cloned()
    }

    /// Whether every OSD accounts for omap by pool.
    pub(crate) fn per_pool_omap(&self) -> bool {
        self.digest.osd_sum.num_osds > 0
            && self.digest.osd_sum.num_osds == self.digest.osd_sum.num_per_pool_osds
    }
}

impl MonCore {
    pub(crate) fn on_mgr_report(&mut self, from: SessionId, m: MMonMgrReport) {
        let Some(session) = self.sessions.get(&from) else { return };
        let peer = &session.peer;
        if !session.caps.allows(peer, "mgr", "x") && !session.caps.allows(peer, "mgr", "w") {
            return;
        }
        // A manager that was replaced may not know it yet.
        if m.gid != 0 && m.gid != self.mgr.map.active_gid {
            return;
        }
        let digest = match m.pg_map_digest.is_empty() {
            true => None,
            false => match PgMapDigest::from_bytes(&m.pg_map_digest) {
                Ok(digest) => Some(digest),
                Err(error) => {
                    tracing::warn!("the manager's digest does not decode: {error}");
                    return;
                }
            },
        };
        let service_map = match m.service_map.is_empty() {
            true => None,
            // An old one that comes late is not kept either.
            false => ServiceMap::from_bytes(&m.service_map)
                .ok()
                .filter(|map| map.epoch >= self.stat.service_map.epoch),
        };
        self.stat.version += 1;
        self.stat.fresh = true;
        let version = self.stat.version;
        let health = m.health_checks.to_bytes();
        let batch = self.batch();
        layout::put_u64(batch, MGRSTAT, "version", version);
        batch.put(layout::key(MGRSTAT, "health"), health);
        if digest.is_some() {
            batch.put(layout::key(MGRSTAT, "digest"), m.pg_map_digest.clone());
        }
        if service_map.is_some() {
            batch.put(layout::key(MGRSTAT, "service_map"), m.service_map.clone());
        }
        self.stat.health = m.health_checks;
        self.stat.progress = m.progress_events;
        if let Some(digest) = digest {
            for (pool, purged) in &digest.purged_snaps {
                self.osd.purged_snaps.entry(*pool).or_default().union_with(purged);
            }
            self.stat.digest = digest;
        }
        if let Some(map) = service_map {
            self.stat.service_map = map;
        }
    }

    /// Usage of the cluster, or of a pool as a file system on it would see it.
    pub(crate) fn statfs(&self, pool: Option<i64>) -> Usage {
        let digest = &self.stat.digest;
        let sum = &digest.osd_sum.statfs;
        let kb = |bytes: u64| bytes >> 10;
        if let Some(id) = pool {
            let (bytes, objects) = self.stat.pool_sum(id);
            let avail = crate::commands::pool_avail(self, id);
            return Usage {
                kb: (avail + bytes) >> 10,
                kb_used: bytes >> 10,
                kb_avail: avail >> 10,
                num_objects: objects,
            };
        }
        Usage {
            kb: kb(sum.total),
            kb_used: kb(sum.total.saturating_sub(sum.available)),
            kb_avail: kb(sum.available),
            num_objects: u64::try_from(digest.pg_sum.stats.sum.num_objects).unwrap_or(0),
        }
    }
}
