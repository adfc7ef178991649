//! Applying a step to a map: `OSDMap::apply_incremental`. The result encodes to Ceph's very bytes.

use core::fmt;
use std::sync::Arc;

use crush::CrushMap;
use denc::Denc;
use types::{AddrVec, Epoch, OsdId, Uuid};

use super::{Incremental, OsdInfo, OsdMap, OsdXinfo, WEIGHT_IN, osd_state, osdmap_flags};

/// Releases by number, as far as maps depend on them.
const KRAKEN: u8 = 11;
const JEWEL: u8 = 10;
const LUMINOUS: u8 = 12;
const NAUTILUS: u8 = 14;

const LEGACY_REQUIRE_FLAGS: u32 =
    osdmap_flags::REQUIRE_JEWEL | osdmap_flags::REQUIRE_KRAKEN | osdmap_flags::REQUIRE_LUMINOUS;

/// Most OSD ids a map is made to have room for: far above any cluster, far below memory.
pub const MAX_OSD_MAX: i32 = 1 << 20;

/// Why a step does not fit a map. The step's sender is at fault; the map is unchanged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyError {
    /// It is of another cluster.
    WrongCluster {
        /// The map's cluster.
        expected: Uuid,
        /// The step's.
        got: Uuid,
    },
    /// It does not lead from the map's epoch to the next.
    WrongEpoch {
        /// The epoch that follows the map's.
        expected: Epoch,
        /// The step's.
        got: Epoch,
    },
    /// It names an OSD that the map has no room for.
    BadOsd {
        /// The id.
        osd: OsdId,
        /// Ids there is room for.
        max_osd: i32,
    },
    /// A map inside it is damaged.
    Decode(denc::Error),
}

impl fmt::Display for ApplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ApplyError::WrongCluster { expected, got } => {
                write!(f, "step of cluster {got} to a map of {expected}")
            }
            ApplyError::WrongEpoch { expected, got } => {
                write!(f, "step to epoch {got} where {expected} follows")
            }
            ApplyError::BadOsd { osd, max_osd } => {
                write!(f, "step names osd.{osd}, max_osd is {max_osd}")
            }
            ApplyError::Decode(e) => write!(f, "map inside a step: {e}"),
        }
    }
}

impl std::error::Error for ApplyError {}

impl From<denc::Error> for ApplyError {
    fn from(e: denc::Error) -> ApplyError {
        ApplyError::Decode(e)
    }
}

impl OsdMap {
    /// Turns this map into the one of the step's epoch.
    pub fn apply(&mut self, inc: &Incremental) -> Result<(), ApplyError> {
        if inc.epoch != 1 && inc.fsid != self.fsid {
            return Err(ApplyError::WrongCluster { expected: self.fsid, got: inc.fsid });
        }
        if inc.epoch != self.epoch.wrapping_add(1) {
            return Err(ApplyError::WrongEpoch { expected: self.epoch + 1, got: inc.epoch });
        }
        if !inc.fullmap.is_empty() {
            *self = OsdMap::from_bytes(&inc.fullmap)?;
            return Ok(());
        }
        let crush = match inc.crush.is_empty() {
            true => None,
            false => Some(Arc::new(CrushMap::from_bytes(&inc.crush)?)),
        };
        check_osds(inc, if inc.new_max_osd >= 0 { inc.new_max_osd } else { self.max_osd })?;

        self.fsid = inc.fsid;
        self.epoch = inc.epoch;
        self.modified = inc.modified;
        self.crc = 0;
        self.apply_flags(inc);
        if inc.new_max_osd >= 0 {
            self.set_max_osd(inc.new_max_osd);
        }
        self.apply_pools(inc);
        if !inc.new_last_up_change.is_zero() {
            self.last_up_change = inc.new_last_up_change;
        }
        if !inc.new_last_in_change.is_zero() {
            self.last_in_change = inc.new_last_in_change;
        }
        self.apply_osds(inc);
        self.apply_placement(inc);
        self.apply_cluster(inc);
        // After everything else: the version counts only under the release then required.
        if let Some(crush) = crush {
            self.crush = crush;
            if self.require_osd_release >= LUMINOUS {
                self.crush_version = self.crush_version.wrapping_add(1);
            }
            let classes = &self.crush.class_names;
            self.device_class_flags.retain(|class, _| classes.contains_key(class));
        }
        Ok(())
    }

    fn apply_flags(&mut self, inc: &Incremental) {
        if inc.new_flags >= 0 {
            self.flags = inc.new_flags as u32;
            if self.has_flag(osdmap_flags::REQUIRE_KRAKEN) {
                self.require_osd_release = self.require_osd_release.max(KRAKEN);
            } else if self.has_flag(osdmap_flags::REQUIRE_JEWEL) {
                self.require_osd_release = self.require_osd_release.max(JEWEL);
            }
        }
    }

    fn apply_pools(&mut self, inc: &Incremental) {
        if inc.new_pool_max != -1 {
            self.pool_max = inc.new_pool_max as i32;
        }
        for (id, pool) in &inc.new_pools {
            let mut pool = pool.clone();
            pool.last_change = inc.epoch;
            self.pools.insert(*id, pool);
        }
        self.new_removed_snaps = inc.new_removed_snaps.clone();
        self.new_purged_snaps = inc.new_purged_snaps.clone();
        for (pool, snaps) in &inc.new_removed_snaps {
            self.removed_snaps_queue.entry(*pool).or_default().union_with(snaps);
        }
        for (pool, snaps) in &inc.new_purged_snaps {
            if let Some(queue) = self.removed_snaps_queue.get_mut(pool) {
                let purged = queue.intersection(snaps);
                queue.subtract(&purged);
                if queue.is_empty() {
                    self.removed_snaps_queue.remove(pool);
                }
            }
        }
        self.pool_names.extend(inc.new_pool_names.clone());
        for pool in &inc.old_pools {
            self.pools.remove(pool);
            self.pool_names.remove(pool);
        }
    }

    fn set_primary_affinity(&mut self, osd: usize, affinity: u32) {
        if self.osd_primary_affinity.is_empty() {
            self.osd_primary_affinity = vec![WEIGHT_IN; self.osd_state.len()];
        }
        if let Some(slot) = self.osd_primary_affinity.get_mut(osd) {
            *slot = affinity;
        }
    }

    /// What happens to OSDs; [`check_osds`] has passed, so every id is in range.
    fn apply_osds(&mut self, inc: &Incremental) {
        for (osd, weight) in by_index(&inc.new_weight) {
            self.osd_weight[osd] = *weight;
            if *weight != 0 {
                self.osd_state[osd] |= osd_state::EXISTS;
                self.osd_state[osd] &= !(osd_state::AUTOOUT | osd_state::NEW);
                self.osd_xinfo[osd].old_weight = 0;
            }
        }
        for (osd, affinity) in by_index(&inc.new_primary_affinity) {
            self.set_primary_affinity(osd, *affinity);
        }
        for profile in &inc.old_erasure_code_profiles {
            self.erasure_code_profiles.remove(profile);
        }
        self.erasure_code_profiles.extend(inc.new_erasure_code_profiles.clone());
        for (osd, flips) in by_index(&inc.new_state) {
            let flips = if *flips == 0 { osd_state::UP } else { *flips };
            let both = self.osd_state[osd] & flips;
            if both & osd_state::UP != 0 {
                self.osd_info[osd].down_at = inc.epoch;
                self.osd_xinfo[osd].down_stamp = inc.modified;
            }
            if both & osd_state::EXISTS != 0 {
                self.forget_osd(osd);
            } else {
                self.osd_state[osd] ^= flips;
            }
        }
        for (osd, addrs) in by_index(&inc.new_up_client) {
            self.osd_state[osd] |= osd_state::EXISTS | osd_state::UP;
            self.osd_state[osd] &= !osd_state::STOP;
            let id = osd as i32;
            self.client_addrs[osd] = addrs.clone();
            self.hb_back_addrs[osd] = inc.new_hb_back_up.get(&id).cloned().unwrap_or_default();
            self.hb_front_addrs[osd] = inc.new_hb_front_up.get(&id).cloned().unwrap_or_default();
            self.osd_info[osd].up_from = inc.epoch;
        }
        for (osd, addrs) in by_index(&inc.new_up_cluster) {
            self.cluster_addrs[osd] = addrs.clone();
        }
        for (osd, epoch) in by_index(&inc.new_up_thru) {
            self.osd_info[osd].up_thru = *epoch;
        }
        for (osd, (begin, end)) in by_index(&inc.new_last_clean_interval) {
            self.osd_info[osd].last_clean_begin = *begin;
            self.osd_info[osd].last_clean_end = *end;
        }
        for (osd, epoch) in by_index(&inc.new_lost) {
            self.osd_info[osd].lost_at = *epoch;
        }
        for (osd, xinfo) in by_index(&inc.new_xinfo) {
            self.osd_xinfo[osd] = xinfo.clone();
        }
        for (osd, uuid) in by_index(&inc.new_uuid) {
            self.osd_uuid[osd] = *uuid;
        }
    }

    /// An OSD ceases to exist.
    fn forget_osd(&mut self, osd: usize) {
        self.osd_uuid[osd] = Uuid::ZERO;
        self.osd_info[osd] = OsdInfo::default();
        self.osd_xinfo[osd] = OsdXinfo::default();
        self.set_primary_affinity(osd, WEIGHT_IN);
        self.client_addrs[osd] = AddrVec::default();
        self.cluster_addrs[osd] = AddrVec::default();
        self.hb_front_addrs[osd] = AddrVec::default();
        self.hb_back_addrs[osd] = AddrVec::default();
        self.osd_state[osd] = 0;
    }

    fn apply_placement(&mut self, inc: &Incremental) {
        for (pg, osds) in &inc.new_pg_temp {
            if osds.is_empty() {
                self.pg_temp.remove(pg);
            } else {
                self.pg_temp.insert(*pg, osds.clone());
            }
        }
        for (pg, osd) in &inc.new_primary_temp {
            if *osd == -1 {
                self.primary_temp.remove(pg);
            } else {
                self.primary_temp.insert(*pg, *osd);
            }
        }
        self.pg_upmap.extend(inc.new_pg_upmap.clone());
        for pg in &inc.old_pg_upmap {
            self.pg_upmap.remove(pg);
        }
        self.pg_upmap_items.extend(inc.new_pg_upmap_items.clone());
        for pg in &inc.old_pg_upmap_items {
            self.pg_upmap_items.remove(pg);
        }
    }

    fn apply_cluster(&mut self, inc: &Incremental) {
        for (addr, until) in &inc.new_blocklist {
            // An entry that is there keeps its time.
            self.blocklist.entry(*addr).or_insert(*until);
        }
        for addr in &inc.old_blocklist {
            self.blocklist.remove(addr);
        }
        for (range, until) in &inc.new_range_blocklist {
            self.range_blocklist.entry(*range).or_insert(*until);
        }
        for range in &inc.old_range_blocklist {
            self.range_blocklist.remove(range);
        }
        for (node, flags) in &inc.new_crush_node_flags {
            set_or_remove(&mut self.crush_node_flags, *node, *flags);
        }
        for (class, flags) in &inc.new_device_class_flags {
            set_or_remove(&mut self.device_class_flags, *class, *flags);
        }
        self.cluster_snapshot_epoch = if inc.cluster_snapshot.is_empty() { 0 } else { inc.epoch };
        self.cluster_snapshot = inc.cluster_snapshot.clone();
        for (ratio, new) in [
            (&mut self.nearfull_ratio, inc.new_nearfull_ratio),
            (&mut self.backfillfull_ratio, inc.new_backfillfull_ratio),
            (&mut self.full_ratio, inc.new_full_ratio),
        ] {
            if new >= 0.0 {
                *ratio = new;
            }
        }
        if inc.new_require_min_compat_client != 255 && inc.new_require_min_compat_client > 0 {
            self.require_min_compat_client = inc.new_require_min_compat_client;
        }
        if inc.new_require_osd_release != 255 {
            self.require_osd_release = inc.new_require_osd_release;
            if self.require_osd_release >= LUMINOUS {
                self.flags &= !LEGACY_REQUIRE_FLAGS;
                self.flags |= osdmap_flags::RECOVERY_DELETES;
            }
            if self.require_osd_release >= NAUTILUS {
                self.flags |= osdmap_flags::PGLOG_HARDLIMIT;
            }
        }
        if let Some(stretch) = &inc.stretch {
            self.stretch_mode_enabled = stretch.enabled;
            self.stretch_bucket_count = stretch.bucket_count;
            self.degraded_stretch_mode = stretch.degraded;
            self.recovering_stretch_mode = stretch.recovering;
            self.stretch_mode_bucket = stretch.bucket;
        }
    }
}

fn set_or_remove(map: &mut std::collections::BTreeMap<i32, u32>, key: i32, flags: u32) {
    if flags == 0 {
        map.remove(&key);
    } else {
        map.insert(key, flags);
    }
}

/// The entries of a map by OSD id, the id as an index.
fn by_index<V>(
    map: &std::collections::BTreeMap<OsdId, V>,
) -> impl Iterator<Item = (usize, &V)> + '_ {
    map.iter().filter_map(|(osd, value)| Some((usize::try_from(*osd).ok()?, value)))
}

/// Refuses a step that names OSDs beyond max_osd.
fn check_osds(inc: &Incremental, max_osd: i32) -> Result<(), ApplyError> {
    if max_osd > MAX_OSD_MAX {
        return Err(ApplyError::BadOsd { osd: max_osd, max_osd: MAX_OSD_MAX });
    }
    let ids = (inc.new_weight.keys())
        .chain(inc.new_primary_affinity.keys())
        .chain(inc.new_state.keys())
        .chain(inc.new_up_client.keys())
        .chain(inc.new_up_cluster.keys())
        .chain(inc.new_up_thru.keys())
        .chain(inc.new_last_clean_interval.keys())
        .chain(inc.new_lost.keys())
        .chain(inc.new_xinfo.keys())
        .chain(inc.new_uuid.keys());
    match ids.copied().find(|osd| !(0..max_osd).contains(osd)) {
        Some(osd) => Err(ApplyError::BadOsd { osd, max_osd }),
        None => Ok(()),
    }
}
