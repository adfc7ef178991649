//! The step from one map to the next. Wire: OSDMap::Incremental.
//!
//! ```text
//! v8/c7 { client part v8/c1 | osd part v9/c1 (v10, v11 as in full maps) | u32 crc | u32 full_crc }
//! ```
//!
//! `crc` covers every byte but its own four, so it covers `full_crc`, the crc of the map that
//! results. Who makes a step applies it, encodes the result and then encodes the step with the
//! result's crc.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::crc::crc32c;
use types::{AddrVec, EntityAddr, Epoch, IntervalSet, OsdId, PgId, UTime, Uuid};

use super::OsdXinfo;
use crate::pool::PgPool;

/// The new state of stretch mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StretchChange {
    /// Whether it is on.
    pub enabled: bool,
    /// Sites.
    pub bucket_count: u32,
    /// Sites that are left when degraded.
    pub degraded: u32,
    /// Whether a site is coming back.
    pub recovering: u32,
    /// Type of the sites' bucket.
    pub bucket: i32,
}

/// A step to epoch `epoch`. The default changes nothing.
#[derive(Debug, Clone, PartialEq)]
pub struct Incremental {
    /// The cluster.
    pub fsid: Uuid,
    /// The map this leads to.
    pub epoch: Epoch,
    /// When it was made.
    pub modified: UTime,
    /// -1: no change.
    pub new_pool_max: i64,
    /// -1: no change.
    pub new_flags: i32,
    /// A whole encoded map instead of a step; empty: none.
    pub fullmap: Bytes,
    /// An encoded CRUSH map; empty: no change.
    pub crush: Bytes,
    /// -1: no change.
    pub new_max_osd: i32,
    /// Pools made or replaced.
    pub new_pools: BTreeMap<i64, PgPool>,
    /// Pools named.
    pub new_pool_names: BTreeMap<i64, String>,
    /// Pools removed.
    pub old_pools: BTreeSet<i64>,
    /// OSDs that come up, with their client addresses.
    pub new_up_client: BTreeMap<OsdId, AddrVec>,
    /// Bits to flip in the state; 0 means up.
    pub new_state: BTreeMap<OsdId, u32>,
    /// In/out weights.
    pub new_weight: BTreeMap<OsdId, u32>,
    /// Temporary sets; empty: removed.
    pub new_pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// Temporary primaries; -1: removed.
    pub new_primary_temp: BTreeMap<PgId, OsdId>,
    /// Primary affinities.
    pub new_primary_affinity: BTreeMap<OsdId, u32>,
    /// Profiles made or replaced.
    pub new_erasure_code_profiles: BTreeMap<String, BTreeMap<String, String>>,
    /// Profiles removed.
    pub old_erasure_code_profiles: Vec<String>,
    /// Upmaps set.
    pub new_pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    /// Upmaps removed.
    pub old_pg_upmap: BTreeSet<PgId>,
    /// Upmap items set.
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Upmap items removed.
    pub old_pg_upmap_items: BTreeSet<PgId>,
    /// Snapshots removed.
    pub new_removed_snaps: BTreeMap<i64, IntervalSet>,
    /// Snapshots purged.
    pub new_purged_snaps: BTreeMap<i64, IntervalSet>,
    /// Zero: no change.
    pub new_last_up_change: UTime,
    /// Zero: no change.
    pub new_last_in_change: UTime,
    /// Heartbeat addresses, back network, of OSDs that come up.
    pub new_hb_back_up: BTreeMap<OsdId, AddrVec>,
    /// OSDs known alive in an epoch.
    pub new_up_thru: BTreeMap<OsdId, Epoch>,
    /// Last interval of a clean end.
    pub new_last_clean_interval: BTreeMap<OsdId, (Epoch, Epoch)>,
    /// OSDs whose data is lost.
    pub new_lost: BTreeMap<OsdId, Epoch>,
    /// Addresses barred.
    pub new_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Addresses no longer barred.
    pub old_blocklist: Vec<EntityAddr>,
    /// Cluster addresses of OSDs that come up.
    pub new_up_cluster: BTreeMap<OsdId, AddrVec>,
    /// Never used by any release.
    pub cluster_snapshot: String,
    /// Store identities.
    pub new_uuid: BTreeMap<OsdId, Uuid>,
    /// More about OSDs.
    pub new_xinfo: BTreeMap<OsdId, OsdXinfo>,
    /// Heartbeat addresses, front network, of OSDs that come up.
    pub new_hb_front_up: BTreeMap<OsdId, AddrVec>,
    /// Feature bits the resulting map is encoded with.
    pub encode_features: u64,
    /// Below 0: no change.
    pub new_nearfull_ratio: f32,
    /// Below 0: no change.
    pub new_full_ratio: f32,
    /// Below 0: no change.
    pub new_backfillfull_ratio: f32,
    /// 255: no change.
    pub new_require_min_compat_client: u8,
    /// 255: no change.
    pub new_require_osd_release: u8,
    /// Flags by CRUSH node; 0: removed.
    pub new_crush_node_flags: BTreeMap<i32, u32>,
    /// Flags by device class; 0: removed.
    pub new_device_class_flags: BTreeMap<i32, u32>,
    /// Stretch mode's new state.
    pub stretch: Option<StretchChange>,
    /// Ranges of addresses barred.
    pub new_range_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Ranges of addresses no longer barred.
    pub old_range_blocklist: Vec<EntityAddr>,
    /// Whether this was decoded and so has checksums.
    pub have_crc: bool,
    /// Checksum of the encoding this was decoded from.
    pub inc_crc: u32,
    /// Checksum of the map that results.
    pub full_crc: u32,
}

impl Default for Incremental {
    fn default() -> Incremental {
        Incremental {
            fsid: Uuid::ZERO,
            epoch: 0,
            modified: UTime::ZERO,
            new_pool_max: -1,
            new_flags: -1,
            fullmap: Bytes::new(),
            crush: Bytes::new(),
            new_max_osd: -1,
            new_pools: BTreeMap::new(),
            new_pool_names: BTreeMap::new(),
            old_pools: BTreeSet::new(),
            new_up_client: BTreeMap::new(),
            new_state: BTreeMap::new(),
            new_weight: BTreeMap::new(),
            new_pg_temp: BTreeMap::new(),
            new_primary_temp: BTreeMap::new(),
            new_primary_affinity: BTreeMap::new(),
            new_erasure_code_profiles: BTreeMap::new(),
            old_erasure_code_profiles: Vec::new(),
            new_pg_upmap: BTreeMap::new(),
            old_pg_upmap: BTreeSet::new(),
            new_pg_upmap_items: BTreeMap::new(),
            old_pg_upmap_items: BTreeSet::new(),
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            new_last_up_change: UTime::ZERO,
            new_last_in_change: UTime::ZERO,
            new_hb_back_up: BTreeMap::new(),
            new_up_thru: BTreeMap::new(),
            new_last_clean_interval: BTreeMap::new(),
            new_lost: BTreeMap::new(),
            new_blocklist: BTreeMap::new(),
            old_blocklist: Vec::new(),
            new_up_cluster: BTreeMap::new(),
            cluster_snapshot: String::new(),
            new_uuid: BTreeMap::new(),
            new_xinfo: BTreeMap::new(),
            new_hb_front_up: BTreeMap::new(),
            encode_features: 0,
            new_nearfull_ratio: -1.0,
            new_full_ratio: -1.0,
            new_backfillfull_ratio: -1.0,
            new_require_min_compat_client: 255,
            new_require_osd_release: 255,
            new_crush_node_flags: BTreeMap::new(),
            new_device_class_flags: BTreeMap::new(),
            stretch: None,
            new_range_blocklist: BTreeMap::new(),
            old_range_blocklist: Vec::new(),
            have_crc: false,
            inc_crc: 0,
            full_crc: 0,
        }
    }
}

impl Incremental {
    /// A step to `epoch` that changes nothing yet.
    pub fn new(fsid: Uuid, epoch: Epoch) -> Incremental {
        Incremental { fsid, epoch, ..Incremental::default() }
    }

    /// The step's bytes when the resulting map has checksum `full_crc`; also its own checksum.
    pub fn encode_with_crc(&self, full_crc: u32) -> (Bytes, u32) {
        let mut w = Writer::new();
        let crc = self.encode_into(&mut w, full_crc);
        (w.into_bytes(), crc)
    }

    fn encode_into(&self, w: &mut Writer, full_crc: u32) -> u32 {
        let start = w.len();
        w.envelope(8, 7, |w| {
            w.envelope(8, 1, |w| self.encode_client(w));
            w.envelope(self.osd_part_version(), 1, |w| self.encode_osd(w));
            w.u32(0);
            w.u32(full_crc);
        });
        let at = w.len() - 8;
        let crc = crc32c(u32::MAX, &w.as_slice()[start..at]);
        let crc = crc32c(crc, &w.as_slice()[at + 4..]);
        w.as_mut_slice()[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// The oldest version that says all there is to say.
    fn osd_part_version(&self) -> u8 {
        let ranges = !self.new_range_blocklist.is_empty() || !self.old_range_blocklist.is_empty();
        match (ranges, self.stretch.is_some()) {
            (true, _) => 11,
            (false, true) => 10,
            (false, false) => 9,
        }
    }

    fn encode_client(&self, w: &mut Writer) {
        w.put(&self.fsid);
        w.u32(self.epoch);
        w.put(&self.modified);
        w.i64(self.new_pool_max);
        w.i32(self.new_flags);
        w.put(&self.fullmap);
        w.put(&self.crush);
        w.i32(self.new_max_osd);
        w.put(&self.new_pools);
        w.put(&self.new_pool_names);
        w.put(&self.old_pools);
        w.put(&self.new_up_client);
        w.put(&self.new_state);
        w.put(&self.new_weight);
        w.put(&self.new_pg_temp);
        w.put(&self.new_primary_temp);
        w.put(&self.new_primary_affinity);
        w.put(&self.new_erasure_code_profiles);
        w.put(&self.old_erasure_code_profiles);
        w.put(&self.new_pg_upmap);
        w.put(&self.old_pg_upmap);
        w.put(&self.new_pg_upmap_items);
        w.put(&self.old_pg_upmap_items);
        w.put(&self.new_removed_snaps);
        w.put(&self.new_purged_snaps);
        w.put(&self.new_last_up_change);
        w.put(&self.new_last_in_change);
    }

    fn encode_osd(&self, w: &mut Writer) {
        w.put(&self.new_hb_back_up);
        w.put(&self.new_up_thru);
        w.put(&self.new_last_clean_interval);
        w.put(&self.new_lost);
        w.put(&self.new_blocklist);
        w.put(&self.old_blocklist);
        w.put(&self.new_up_cluster);
        w.put(&self.cluster_snapshot);
        w.put(&self.new_uuid);
        w.put(&self.new_xinfo);
        w.put(&self.new_hb_front_up);
        w.u64(self.encode_features);
        w.f32(self.new_nearfull_ratio);
        w.f32(self.new_full_ratio);
        w.f32(self.new_backfillfull_ratio);
        w.u8(self.new_require_min_compat_client);
        w.u8(self.new_require_osd_release);
        w.put(&self.new_crush_node_flags);
        w.put(&self.new_device_class_flags);
        if self.osd_part_version() >= 10 {
            let stretch = self.stretch.unwrap_or_default();
            w.bool(self.stretch.is_some());
            w.u32(stretch.bucket_count);
            w.u32(stretch.degraded);
            w.u32(stretch.recovering);
            w.i32(stretch.bucket);
            w.bool(stretch.enabled);
        }
        if self.osd_part_version() >= 11 {
            w.put(&self.new_range_blocklist);
            w.put(&self.old_range_blocklist);
        }
    }

    fn decode_client(&mut self, r: &mut Reader<'_>) -> Result<(), Error> {
        self.fsid = r.get()?;
        self.epoch = r.u32()?;
        self.modified = r.get()?;
        self.new_pool_max = r.i64()?;
        self.new_flags = r.i32()?;
        self.fullmap = r.get()?;
        self.crush = r.get()?;
        self.new_max_osd = r.i32()?;
        self.new_pools = r.get()?;
        self.new_pool_names = r.get()?;
        self.old_pools = r.get()?;
        self.new_up_client = r.get()?;
        self.new_state = r.get()?;
        self.new_weight = r.get()?;
        self.new_pg_temp = r.get()?;
        self.new_primary_temp = r.get()?;
        self.new_primary_affinity = r.get()?;
        self.new_erasure_code_profiles = r.get()?;
        self.old_erasure_code_profiles = r.get()?;
        self.new_pg_upmap = r.get()?;
        self.old_pg_upmap = r.get()?;
        self.new_pg_upmap_items = r.get()?;
        self.old_pg_upmap_items = r.get()?;
        self.new_removed_snaps = r.get()?;
        self.new_purged_snaps = r.get()?;
        self.new_last_up_change = r.get()?;
        self.new_last_in_change = r.get()?;
        Ok(())
    }

    fn decode_osd(&mut self, r: &mut Reader<'_>, v: u8) -> Result<(), Error> {
        self.new_hb_back_up = r.get()?;
        self.new_up_thru = r.get()?;
        self.new_last_clean_interval = r.get()?;
        self.new_lost = r.get()?;
        self.new_blocklist = r.get()?;
        self.old_blocklist = r.get()?;
        self.new_up_cluster = r.get()?;
        self.cluster_snapshot = r.get()?;
        self.new_uuid = r.get()?;
        self.new_xinfo = r.get()?;
        self.new_hb_front_up = r.get()?;
        self.encode_features = r.u64()?;
        self.new_nearfull_ratio = r.f32()?;
        self.new_full_ratio = r.f32()?;
        self.new_backfillfull_ratio = r.f32()?;
        self.new_require_min_compat_client = r.u8()?;
        self.new_require_osd_release = r.u8()?;
        self.new_crush_node_flags = r.get()?;
        self.new_device_class_flags = r.get()?;
        if v >= 10 {
            let change = r.bool()?;
            let mut stretch = StretchChange {
                bucket_count: r.u32()?,
                degraded: r.u32()?,
                recovering: r.u32()?,
                bucket: r.i32()?,
                enabled: false,
            };
            stretch.enabled = r.bool()?;
            self.stretch = change.then_some(stretch);
        }
        if v >= 11 {
            self.new_range_blocklist = r.get()?;
            self.old_range_blocklist = r.get()?;
        }
        Ok(())
    }
}

impl Denc for Incremental {
    /// With the `full_crc` it has; see [`Incremental::encode_with_crc`].
    fn encode(&self, w: &mut Writer) {
        self.encode_into(w, self.full_crc);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("OSDMap::Incremental", 8, 8, |r, _| {
            let mut inc = Incremental::default();
            r.envelope("OSDMap::Incremental client part", 8, 8, |r, _| inc.decode_client(r))?;
            r.envelope("OSDMap::Incremental osd part", 11, 9, |r, v| inc.decode_osd(r, v))?;
            inc.have_crc = true;
            inc.inc_crc = r.u32()?;
            inc.full_crc = r.u32()?;
            Ok(inc)
        })
    }
}
