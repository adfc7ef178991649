//! From an object to its PG, and from a PG to the OSDs that should hold it (up) and that serve it
//! (acting). `src/osd/OSDMap.cc` at v16.2; clients compute the same.
//!
//! ```text
//! CRUSH -> drop OSDs that do not exist -> upmap -> drop those that are down = up
//!                                          up -> pg_temp, primary_temp = acting
//! ```

use types::{ObjectLocator, OsdId, PgId, hash};

use super::{CRUSH_ITEM_NONE, OsdMap, WEIGHT_IN};
use crate::pool::PgPool;

/// The OSDs of a PG. In erasure pools the place in a vector is the shard and holes are
/// [`CRUSH_ITEM_NONE`]; a primary is -1 when there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpActing {
    /// Who should hold it.
    pub up: Vec<OsdId>,
    /// First among them.
    pub up_primary: OsdId,
    /// Who serves it now.
    pub acting: Vec<OsdId>,
    /// Who leads them.
    pub acting_primary: OsdId,
}

impl UpActing {
    /// Of a PG that is not there.
    fn none() -> UpActing {
        UpActing { up_primary: -1, acting_primary: -1, ..UpActing::default() }
    }
}

impl OsdMap {
    /// The raw PG of an object: its seed is the whole hash. `None` when the pool does not exist.
    pub fn object_to_raw_pg(&self, name: &[u8], loc: &ObjectLocator) -> Option<PgId> {
        self.pool(loc.pool)?;
        let seed = match u32::try_from(loc.hash) {
            Ok(hash) => hash,
            Err(_) => hash::object_hash(&loc.namespace, &loc.key, name),
        };
        Some(PgId::new(loc.pool as u64, seed))
    }

    /// The PG of an object.
    pub fn object_to_pg(&self, name: &[u8], loc: &ObjectLocator) -> Option<PgId> {
        let raw = self.object_to_raw_pg(name, loc)?;
        Some(self.pool(loc.pool)?.raw_pg_to_pg(raw))
    }

    /// The PG that a raw PG belongs to.
    pub fn raw_pg_to_pg(&self, raw: PgId) -> Option<PgId> {
        Some(self.pool(raw.pool_id())?.raw_pg_to_pg(raw))
    }

    /// The OSDs of a PG, or of the PG of a raw one. All empty, primaries -1, when its pool does
    /// not exist.
    pub fn pg_to_up_acting(&self, pg: PgId) -> UpActing {
        let Some(pool) = self.pool(pg.pool_id()) else { return UpActing::none() };
        let (mut acting, mut acting_primary) = self.temp_osds(pool, pg);
        let (mut raw, pps) = self.raw_osds(pool, pg);
        self.apply_upmap(pool, pg, &mut raw);
        let mut up = self.without_down(pool, &raw);
        let up_primary = self.apply_primary_affinity(pps, pool, &mut up);
        if acting.is_empty() {
            acting = up.clone();
            if acting_primary == -1 {
                acting_primary = up_primary;
            }
        }
        UpActing { up, up_primary, acting, acting_primary }
    }

    /// The OSDs CRUSH alone gives a PG.
    pub fn pg_to_raw_osds(&self, pg: PgId) -> Vec<OsdId> {
        self.pool(pg.pool_id()).map_or_else(Vec::new, |pool| self.raw_osds(pool, pg).0)
    }

    /// The OSDs of a PG after upmap, up or not.
    pub fn pg_to_raw_upmap(&self, pg: PgId) -> Vec<OsdId> {
        let Some(pool) = self.pool(pg.pool_id()) else { return Vec::new() };
        let (mut raw, _) = self.raw_osds(pool, pg);
        self.apply_upmap(pool, pg, &mut raw);
        raw
    }

    /// The shard an OSD holds of a PG with these acting OSDs: its place in erasure pools, else
    /// [`types::pg::NO_SHARD`].
    pub fn shard_of(&self, pool: &PgPool, acting: &[OsdId], osd: OsdId) -> Option<i8> {
        let place = acting.iter().position(|o| *o == osd)?;
        if pool.is_erasure() { i8::try_from(place).ok() } else { Some(types::pg::NO_SHARD) }
    }

    fn raw_osds(&self, pool: &PgPool, pg: PgId) -> (Vec<OsdId>, u32) {
        let pps = pool.raw_pg_to_pps(pg);
        let size = usize::from(pool.size);
        let mut osds = match self.crush.find_rule(pool.crush_rule, pool.kind, pool.size) {
            Some(rule) => {
                let args = self.crush.choose_args_for(pg.pool_id());
                self.crush.do_rule(rule, pps, size, &self.osd_weight, args)
            }
            None => Vec::new(),
        };
        if pool.can_shift_osds() {
            osds.retain(|osd| self.exists(*osd));
        } else {
            for osd in osds.iter_mut().filter(|osd| !self.exists(**osd)) {
                *osd = CRUSH_ITEM_NONE;
            }
        }
        (osds, pps)
    }

    /// Whether an upmap's target is an OSD that is out: then the upmap does not count.
    fn is_upmap_target_out(&self, osd: OsdId) -> bool {
        osd != CRUSH_ITEM_NONE && (0..self.max_osd).contains(&osd) && self.weight(osd) == 0
    }

    fn apply_upmap(&self, pool: &PgPool, raw_pg: PgId, raw: &mut Vec<OsdId>) {
        let pg = pool.raw_pg_to_pg(raw_pg);
        if let Some(osds) = self.pg_upmap.get(&pg) {
            if osds.iter().any(|osd| self.is_upmap_target_out(*osd)) {
                return;
            }
            raw.clone_from(osds);
        }
        for (from, to) in self.pg_upmap_items.get(&pg).into_iter().flatten() {
            // One after the other, so a swap of two cannot be said.
            if raw.contains(to) || self.is_upmap_target_out(*to) {
                continue;
            }
            if let Some(osd) = raw.iter_mut().find(|osd| **osd == *from) {
                *osd = *to;
            }
        }
    }

    fn without_down(&self, pool: &PgPool, osds: &[OsdId]) -> Vec<OsdId> {
        if pool.can_shift_osds() {
            osds.iter().copied().filter(|osd| self.is_up(*osd)).collect()
        } else {
            let up = |osd: &OsdId| {
                if self.is_up(*osd) { *osd } else { CRUSH_ITEM_NONE }
            };
            osds.iter().map(up).collect()
        }
    }

    /// Picks the primary, moving it to the front where places do not matter.
    fn apply_primary_affinity(&self, pps: u32, pool: &PgPool, osds: &mut [OsdId]) -> OsdId {
        let there = |osd: &OsdId| *osd != CRUSH_ITEM_NONE;
        let first = osds.iter().copied().find(there).unwrap_or(-1);
        let all_willing = |osd: &OsdId| self.primary_affinity(*osd) == WEIGHT_IN;
        if osds.iter().filter(|osd| there(osd)).all(all_willing) {
            return first;
        }
        // Each refuses by chance of PG and OSD; if all do, the first is it after all.
        let refuses = |osd: OsdId| {
            let affinity = self.primary_affinity(osd);
            affinity < WEIGHT_IN && crush::hash2(pps, osd as u32) >> 16 >= affinity
        };
        let willing = osds.iter().position(|osd| there(osd) && !refuses(*osd));
        let Some(place) = willing.or_else(|| osds.iter().position(there)) else { return first };
        let primary = osds[place];
        if pool.can_shift_osds() {
            osds[..=place].rotate_right(1);
        }
        primary
    }

    fn temp_osds(&self, pool: &PgPool, pg: PgId) -> (Vec<OsdId>, OsdId) {
        let pg = pool.raw_pg_to_pg(pg);
        let osds = match self.pg_temp.get(&pg) {
            Some(osds) => self.without_down(pool, osds),
            None => Vec::new(),
        };
        let primary = match self.primary_temp.get(&pg) {
            Some(osd) => *osd,
            None => osds.iter().copied().find(|osd| *osd != CRUSH_ITEM_NONE).unwrap_or(-1),
        };
        (osds, primary)
    }
}
