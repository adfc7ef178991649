//! The OSD map: which OSDs exist, where they are, which are up and in; pools; placement
//! exceptions; the CRUSH map. Wire: OSDMap (`src/osd/OSDMap.cc` at v16.2).
//!
//! [`OsdMap`] is one epoch, [`Incremental`] the step to the next; applying the steps gives maps
//! whose encodings are byte for byte Ceph's, which the checksums in both rely on.

mod apply;
mod compat;
pub(crate) mod dump;
mod incremental;
mod placement;
mod print;
pub(crate) mod tree;
mod wire;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crush::CrushMap;
use denc::{Denc, Error, Reader, Writer};
use types::{AddrVec, EntityAddr, Epoch, IntervalSet, OsdId, PgId, UTime, Uuid};

pub use apply::{ApplyError, MAX_OSD_MAX};
pub use compat::{crush_features, has_steps};
pub use dump::{dump_addr, dump_addrvec};
pub use incremental::{Incremental, StretchChange};
pub use placement::UpActing;
pub use print::osd_list;
pub use tree::{TreeFilter, crush_tree, dump_crush_tree, weight_set_name};

use crate::pool::PgPool;

/// The weight of an OSD that is in, and the primary affinity of one without its own.
pub const WEIGHT_IN: u32 = 0x10000;
/// The weight of an OSD that is out.
pub const WEIGHT_OUT: u32 = 0;
/// No device: a hole in the placement of an erasure PG.
pub const CRUSH_ITEM_NONE: OsdId = crush::ITEM_NONE;

/// Bits of [`OsdMap::osd_state`].
pub mod osd_state {
    #![allow(missing_docs, reason = "the names are Ceph's and say it")]
    pub const EXISTS: u32 = 1 << 0;
    pub const UP: u32 = 1 << 1;
    pub const AUTOOUT: u32 = 1 << 2;
    pub const NEW: u32 = 1 << 3;
    pub const FULL: u32 = 1 << 4;
    pub const NEARFULL: u32 = 1 << 5;
    pub const BACKFILLFULL: u32 = 1 << 6;
    pub const DESTROYED: u32 = 1 << 7;
    pub const NOUP: u32 = 1 << 8;
    pub const NODOWN: u32 = 1 << 9;
    pub const NOIN: u32 = 1 << 10;
    pub const NOOUT: u32 = 1 << 11;
    pub const STOP: u32 = 1 << 12;

    /// Ceph's names of the bits, in their order.
    pub const NAMES: [(u32, &str); 13] = [
        (EXISTS, "exists"),
        (UP, "up"),
        (AUTOOUT, "autoout"),
        (NEW, "new"),
        (FULL, "full"),
        (NEARFULL, "nearfull"),
        (BACKFILLFULL, "backfillfull"),
        (DESTROYED, "destroyed"),
        (NOUP, "noup"),
        (NODOWN, "nodown"),
        (NOIN, "noin"),
        (NOOUT, "noout"),
        (STOP, "stop"),
    ];

    /// The names of the set bits, in the order of the bits.
    pub fn names(state: u32) -> Vec<&'static str> {
        NAMES.iter().filter(|(bit, _)| state & bit != 0).map(|(_, name)| *name).collect()
    }
}

/// Bits of [`OsdMap::flags`].
pub mod osdmap_flags {
    #![allow(missing_docs, reason = "the names are Ceph's and say it")]
    pub const NEARFULL: u32 = 1 << 0;
    pub const FULL: u32 = 1 << 1;
    pub const PAUSERD: u32 = 1 << 2;
    pub const PAUSEWR: u32 = 1 << 3;
    pub const PAUSEREC: u32 = 1 << 4;
    pub const NOUP: u32 = 1 << 5;
    pub const NODOWN: u32 = 1 << 6;
    pub const NOOUT: u32 = 1 << 7;
    pub const NOIN: u32 = 1 << 8;
    pub const NOBACKFILL: u32 = 1 << 9;
    pub const NORECOVER: u32 = 1 << 10;
    pub const NOSCRUB: u32 = 1 << 11;
    pub const NODEEP_SCRUB: u32 = 1 << 12;
    pub const NOTIERAGENT: u32 = 1 << 13;
    pub const NOREBALANCE: u32 = 1 << 14;
    pub const SORTBITWISE: u32 = 1 << 15;
    pub const REQUIRE_JEWEL: u32 = 1 << 16;
    pub const REQUIRE_KRAKEN: u32 = 1 << 17;
    pub const REQUIRE_LUMINOUS: u32 = 1 << 18;
    pub const RECOVERY_DELETES: u32 = 1 << 19;
    pub const PURGED_SNAPDIRS: u32 = 1 << 20;
    pub const NOSNAPTRIM: u32 = 1 << 21;
    pub const PGLOG_HARDLIMIT: u32 = 1 << 22;

    /// Those that every cluster has: summaries leave them out (CEPH_OSDMAP_SEMIHIDDEN_FLAGS).
    pub const SEMIHIDDEN: u32 = REQUIRE_JEWEL
        | REQUIRE_KRAKEN
        | REQUIRE_LUMINOUS
        | RECOVERY_DELETES
        | SORTBITWISE
        | PURGED_SNAPDIRS
        | PGLOG_HARDLIMIT;

    /// Ceph's names of the flags, in the order it prints them.
    pub const NAMES: [(u32, &str); 23] = [
        (NEARFULL, "nearfull"),
        (FULL, "full"),
        (PAUSERD, "pauserd"),
        (PAUSEWR, "pausewr"),
        (PAUSEREC, "pauserec"),
        (NOUP, "noup"),
        (NODOWN, "nodown"),
        (NOOUT, "noout"),
        (NOIN, "noin"),
        (NOBACKFILL, "nobackfill"),
        (NOREBALANCE, "norebalance"),
        (NORECOVER, "norecover"),
        (NOSCRUB, "noscrub"),
        (NODEEP_SCRUB, "nodeep-scrub"),
        (NOTIERAGENT, "notieragent"),
        (NOSNAPTRIM, "nosnaptrim"),
        (SORTBITWISE, "sortbitwise"),
        (REQUIRE_JEWEL, "require_jewel_osds"),
        (REQUIRE_KRAKEN, "require_kraken_osds"),
        (REQUIRE_LUMINOUS, "require_luminous_osds"),
        (RECOVERY_DELETES, "recovery_deletes"),
        (PURGED_SNAPDIRS, "purged_snapdirs"),
        (PGLOG_HARDLIMIT, "pglog_hardlimit"),
    ];

    /// The names of the set flags, in printing order.
    pub fn names(flags: u32) -> Vec<&'static str> {
        NAMES.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| *name).collect()
    }
}

/// The epochs of one OSD's life. Wire: osd_info_t, a bare version byte 1 and no length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OsdInfo {
    /// Last interval it ended cleanly: first epoch.
    pub last_clean_begin: Epoch,
    /// Last interval it ended cleanly: last epoch.
    pub last_clean_end: Epoch,
    /// Epoch it came up.
    pub up_from: Epoch,
    /// Epoch it is known to have been alive in, asked by PGs before they serve.
    pub up_thru: Epoch,
    /// Epoch it went down.
    pub down_at: Epoch,
    /// Epoch its data was declared lost.
    pub lost_at: Epoch,
}

impl Denc for OsdInfo {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u32(self.last_clean_begin);
        w.u32(self.last_clean_end);
        w.u32(self.up_from);
        w.u32(self.up_thru);
        w.u32(self.down_at);
        w.u32(self.lost_at);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.u8()?;
        Ok(OsdInfo {
            last_clean_begin: r.u32()?,
            last_clean_end: r.u32()?,
            up_from: r.u32()?,
            up_thru: r.u32()?,
            down_at: r.u32()?,
            lost_at: r.u32()?,
        })
    }
}

/// More about one OSD, which clients need not know. Wire: osd_xinfo_t v4.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OsdXinfo {
    /// When it last went down.
    pub down_stamp: UTime,
    /// How likely a down report was mere slowness: 0 to 1.
    pub laggy_probability: f32,
    /// Seconds such a slowness lasted.
    pub laggy_interval: u32,
    /// Feature bits it announced.
    pub features: u64,
    /// Weight before it was marked out.
    pub old_weight: u32,
    /// When it last checked for leftovers of purged snapshots.
    pub last_purged_snaps_scrub: UTime,
    /// Epoch since which it is certainly dead.
    pub dead_epoch: Epoch,
}

impl Denc for OsdXinfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.put(&self.down_stamp);
            // In single precision the factor is 2^32, so a probability of 1 wraps to 0, as Ceph's
            // does.
            w.u32((self.laggy_probability * u32::MAX as f32) as u64 as u32);
            w.u32(self.laggy_interval);
            w.u64(self.features);
            w.u32(self.old_weight);
            w.put(&self.last_purged_snaps_scrub);
            w.u32(self.dead_epoch);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("osd_xinfo_t", 4, 4, |r, _| {
            Ok(OsdXinfo {
                down_stamp: r.get()?,
                laggy_probability: r.u32()? as f32 / u32::MAX as f32,
                laggy_interval: r.u32()?,
                features: r.u64()?,
                old_weight: r.u32()?,
                last_purged_snaps_scrub: r.get()?,
                dead_epoch: r.u32()?,
            })
        })
    }
}

/// One epoch of the map.
///
/// The vectors indexed by OSD id are all [`OsdMap::max_osd`] long, `osd_primary_affinity` may
/// instead be empty (all [`WEIGHT_IN`]). Copies share the CRUSH map.
#[derive(Debug, Clone, PartialEq)]
pub struct OsdMap {
    /// The cluster.
    pub fsid: Uuid,
    /// This map's number.
    pub epoch: Epoch,
    /// When the cluster was made.
    pub created: UTime,
    /// When this epoch was made.
    pub modified: UTime,
    /// Pools by id.
    pub pools: BTreeMap<i64, PgPool>,
    /// Names of pools.
    pub pool_names: BTreeMap<i64, String>,
    /// Highest pool id ever given out.
    pub pool_max: i32,
    /// [`osdmap_flags`].
    pub flags: u32,
    /// One above the highest OSD id.
    pub max_osd: i32,
    /// [`osd_state`] of each OSD.
    pub osd_state: Vec<u32>,
    /// In/out weight of each OSD, 0x10000 is in.
    pub osd_weight: Vec<u32>,
    /// Where clients reach each OSD.
    pub client_addrs: Vec<AddrVec>,
    /// PGs that others than CRUSH's choice serve for now.
    pub pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// PGs with another primary for now.
    pub primary_temp: BTreeMap<PgId, OsdId>,
    /// How willing each OSD is to be primary; empty: all fully.
    pub osd_primary_affinity: Vec<u32>,
    /// Where data goes.
    pub crush: Arc<CrushMap>,
    /// Erasure code profiles.
    pub erasure_code_profiles: BTreeMap<String, BTreeMap<String, String>>,
    /// PGs with a whole other set of OSDs.
    pub pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    /// PGs with some OSDs replaced: (from, to).
    pub pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Counts changes of `crush`.
    pub crush_version: i32,
    /// Snapshots removed in this epoch.
    pub new_removed_snaps: BTreeMap<i64, IntervalSet>,
    /// Snapshots purged in this epoch.
    pub new_purged_snaps: BTreeMap<i64, IntervalSet>,
    /// When an OSD last came up or went down.
    pub last_up_change: UTime,
    /// When an OSD last went in or out.
    pub last_in_change: UTime,
    /// Where OSDs send heartbeats to each OSD, back network.
    pub hb_back_addrs: Vec<AddrVec>,
    /// Epochs of each OSD.
    pub osd_info: Vec<OsdInfo>,
    /// Addresses that may not talk, until when.
    pub blocklist: BTreeMap<EntityAddr, UTime>,
    /// Where OSDs reach each OSD.
    pub cluster_addrs: Vec<AddrVec>,
    /// Never used by any release.
    pub cluster_snapshot_epoch: Epoch,
    /// Never used by any release.
    pub cluster_snapshot: String,
    /// Identity of each OSD's store.
    pub osd_uuid: Vec<Uuid>,
    /// More about each OSD.
    pub osd_xinfo: Vec<OsdXinfo>,
    /// Where OSDs send heartbeats to each OSD, front network.
    pub hb_front_addrs: Vec<AddrVec>,
    /// Fraction used at which an OSD is nearly full.
    pub nearfull_ratio: f32,
    /// Fraction used at which an OSD takes no more writes.
    pub full_ratio: f32,
    /// Fraction used at which an OSD takes no more backfill.
    pub backfillfull_ratio: f32,
    /// Oldest client release the map's features allow to be required.
    pub require_min_compat_client: u8,
    /// Oldest OSD release that may join.
    pub require_osd_release: u8,
    /// Snapshots removed and not yet purged.
    pub removed_snaps_queue: BTreeMap<i64, IntervalSet>,
    /// noup, nodown, noin, noout by CRUSH node.
    pub crush_node_flags: BTreeMap<i32, u32>,
    /// noup, nodown, noin, noout by device class.
    pub device_class_flags: BTreeMap<i32, u32>,
    /// Whether two sites are treated specially.
    pub stretch_mode_enabled: bool,
    /// Sites.
    pub stretch_bucket_count: u32,
    /// Sites that are left when degraded.
    pub degraded_stretch_mode: u32,
    /// Whether a site is coming back.
    pub recovering_stretch_mode: u32,
    /// Type of the sites' bucket.
    pub stretch_mode_bucket: i32,
    /// Ranges of addresses (type cidr) that may not talk, until when.
    pub range_blocklist: BTreeMap<EntityAddr, UTime>,
    /// Checksum found in the encoding this was decoded from; 0 for a map never encoded.
    pub crc: u32,
}

impl Default for OsdMap {
    fn default() -> OsdMap {
        OsdMap {
            fsid: Uuid::ZERO,
            epoch: 0,
            created: UTime::ZERO,
            modified: UTime::ZERO,
            pools: BTreeMap::new(),
            pool_names: BTreeMap::new(),
            pool_max: 0,
            flags: 0,
            max_osd: 0,
            osd_state: Vec::new(),
            osd_weight: Vec::new(),
            client_addrs: Vec::new(),
            pg_temp: BTreeMap::new(),
            primary_temp: BTreeMap::new(),
            osd_primary_affinity: Vec::new(),
            crush: Arc::new(CrushMap::default()),
            erasure_code_profiles: BTreeMap::new(),
            pg_upmap: BTreeMap::new(),
            pg_upmap_items: BTreeMap::new(),
            crush_version: 1,
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            last_up_change: UTime::ZERO,
            last_in_change: UTime::ZERO,
            hb_back_addrs: Vec::new(),
            osd_info: Vec::new(),
            blocklist: BTreeMap::new(),
            cluster_addrs: Vec::new(),
            cluster_snapshot_epoch: 0,
            cluster_snapshot: String::new(),
            osd_uuid: Vec::new(),
            osd_xinfo: Vec::new(),
            hb_front_addrs: Vec::new(),
            nearfull_ratio: 0.0,
            full_ratio: 0.0,
            backfillfull_ratio: 0.0,
            require_min_compat_client: 0,
            require_osd_release: 0,
            removed_snaps_queue: BTreeMap::new(),
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
            stretch_mode_enabled: false,
            stretch_bucket_count: 0,
            degraded_stretch_mode: 0,
            recovering_stretch_mode: 0,
            stretch_mode_bucket: 0,
            range_blocklist: BTreeMap::new(),
            crc: 0,
        }
    }
}

impl OsdMap {
    fn index(&self, osd: OsdId) -> Option<usize> {
        usize::try_from(osd).ok().filter(|i| *i < self.osd_state.len())
    }

    /// The [`osd_state`] bits of an OSD, 0 for one beyond the map.
    pub fn state(&self, osd: OsdId) -> u32 {
        self.index(osd).map_or(0, |i| self.osd_state[i])
    }

    /// Whether the OSD exists.
    pub fn exists(&self, osd: OsdId) -> bool {
        self.state(osd) & osd_state::EXISTS != 0
    }

    /// Whether the OSD exists and is up.
    pub fn is_up(&self, osd: OsdId) -> bool {
        let both = osd_state::EXISTS | osd_state::UP;
        self.state(osd) & both == both
    }

    /// Whether the OSD is not up.
    pub fn is_down(&self, osd: OsdId) -> bool {
        !self.is_up(osd)
    }

    /// Whether its store was destroyed, its id kept.
    pub fn is_destroyed(&self, osd: OsdId) -> bool {
        self.exists(osd) && self.state(osd) & osd_state::DESTROYED != 0
    }

    /// The in/out weight, 16.16; 0 beyond the map.
    pub fn weight(&self, osd: OsdId) -> u32 {
        self.index(osd).and_then(|i| self.osd_weight.get(i)).copied().unwrap_or(WEIGHT_OUT)
    }

    /// Whether the OSD is out: does not exist or has weight 0.
    pub fn is_out(&self, osd: OsdId) -> bool {
        !self.exists(osd) || self.weight(osd) == WEIGHT_OUT
    }

    /// Whether the OSD is in.
    pub fn is_in(&self, osd: OsdId) -> bool {
        !self.is_out(osd)
    }

    /// The primary affinity, 16.16.
    pub fn primary_affinity(&self, osd: OsdId) -> u32 {
        let i = usize::try_from(osd).unwrap_or(usize::MAX);
        self.osd_primary_affinity.get(i).copied().unwrap_or(WEIGHT_IN)
    }

    /// Where clients reach the OSD.
    pub fn addrs(&self, osd: OsdId) -> Option<&AddrVec> {
        self.client_addrs.get(usize::try_from(osd).ok()?)
    }

    /// Where other OSDs reach the OSD.
    pub fn cluster_addrs_of(&self, osd: OsdId) -> Option<&AddrVec> {
        self.cluster_addrs.get(usize::try_from(osd).ok()?)
    }

    /// Where heartbeats go: back and front network.
    pub fn hb_addrs_of(&self, osd: OsdId) -> Option<(&AddrVec, &AddrVec)> {
        let i = usize::try_from(osd).ok()?;
        Some((self.hb_back_addrs.get(i)?, self.hb_front_addrs.get(i)?))
    }

    /// Epochs of the OSD's life.
    pub fn info(&self, osd: OsdId) -> Option<&OsdInfo> {
        self.osd_info.get(usize::try_from(osd).ok()?)
    }

    /// More about the OSD.
    pub fn xinfo(&self, osd: OsdId) -> Option<&OsdXinfo> {
        self.osd_xinfo.get(usize::try_from(osd).ok()?)
    }

    /// Epoch the OSD came up.
    pub fn up_from(&self, osd: OsdId) -> Epoch {
        self.info(osd).map_or(0, |i| i.up_from)
    }

    /// Identity of the OSD's store.
    pub fn uuid(&self, osd: OsdId) -> Uuid {
        let i = usize::try_from(osd).unwrap_or(usize::MAX);
        self.osd_uuid.get(i).copied().unwrap_or(Uuid::ZERO)
    }

    /// The OSD of a store.
    pub fn identify_osd(&self, uuid: Uuid) -> Option<OsdId> {
        (0..self.max_osd).find(|osd| self.exists(*osd) && self.uuid(*osd) == uuid)
    }

    /// Every OSD that exists, ascending.
    pub fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        (0..self.max_osd).filter(|osd| self.exists(*osd))
    }

    /// Every OSD that is up, ascending.
    pub fn up_osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        (0..self.max_osd).filter(|osd| self.is_up(*osd))
    }

    /// How many OSDs exist.
    pub fn num_osds(&self) -> usize {
        self.osds().count()
    }

    /// How many OSDs are up.
    pub fn num_up_osds(&self) -> usize {
        self.up_osds().count()
    }

    /// How many OSDs are in.
    pub fn num_in_osds(&self) -> usize {
        self.osds().filter(|osd| self.is_in(*osd)).count()
    }

    /// A pool.
    pub fn pool(&self, id: i64) -> Option<&PgPool> {
        self.pools.get(&id)
    }

    /// The id of a pool's name.
    pub fn lookup_pool(&self, name: &str) -> Option<i64> {
        self.pool_names.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }

    /// Whether a flag of [`osdmap_flags`] is set.
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Whether anybody may not talk.
    pub fn has_blocklist(&self) -> bool {
        !self.blocklist.is_empty() || !self.range_blocklist.is_empty()
    }

    /// Whether a client or daemon with these addresses may not talk. Monitors take entries out
    /// when their time is over, so the times do not matter here.
    pub fn is_blocklisted(&self, addrs: &AddrVec) -> bool {
        addrs.iter().any(|a| self.is_addr_blocklisted(a))
    }

    /// Whether an address, or every process at its IP, may not talk.
    pub fn is_addr_blocklisted(&self, addr: &EntityAddr) -> bool {
        if !self.has_blocklist() {
            return false;
        }
        let mut addr = addr.as_any();
        if self.blocklist.contains_key(&addr) {
            return true;
        }
        // Port 0 and nonce 0: the whole host.
        addr.nonce = 0;
        if let Some(sock) = &mut addr.sock {
            sock.set_port(0);
        }
        self.blocklist.contains_key(&addr)
            || self.range_blocklist.keys().any(|range| in_range(range, &addr))
    }

    /// Whether the PG's pool exists and has that many PGs.
    pub fn pg_exists(&self, pgid: PgId) -> bool {
        self.pool(pgid.pool_id()).is_some_and(|p| pgid.seed < p.pg_num)
    }

    /// Sets how many OSD ids there are; OSDs beyond are forgotten.
    pub fn set_max_osd(&mut self, n: i32) {
        let len = n.max(0) as usize;
        self.max_osd = n;
        self.osd_state.resize(len, 0);
        self.osd_weight.resize(len, 0);
        self.client_addrs.resize(len, AddrVec::default());
        self.cluster_addrs.resize(len, AddrVec::default());
        self.hb_back_addrs.resize(len, AddrVec::default());
        self.hb_front_addrs.resize(len, AddrVec::default());
        self.osd_info.resize(len, OsdInfo::default());
        self.osd_xinfo.resize(len, OsdXinfo::default());
        self.osd_uuid.resize(len, Uuid::ZERO);
        if !self.osd_primary_affinity.is_empty() {
            self.osd_primary_affinity.resize(len, WEIGHT_IN);
        }
    }
}

/// Whether an address lies in a range: same family, and the same first bits, as many as the
/// range's nonce says.
fn in_range(range: &EntityAddr, addr: &EntityAddr) -> bool {
    let bits = range.nonce;
    match (range.ip(), addr.ip()) {
        (Some(IpAddr::V4(range)), Some(IpAddr::V4(addr))) => {
            let differing = range.to_bits() ^ addr.to_bits();
            differing.leading_zeros() >= bits.min(32)
        }
        (Some(IpAddr::V6(range)), Some(IpAddr::V6(addr))) => {
            let differing = range.to_bits() ^ addr.to_bits();
            differing.leading_zeros() >= bits.min(128)
        }
        _ => false,
    }
}
