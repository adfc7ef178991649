//! A pool as the OSD map holds it. Wire: pg_pool_t v29 (v30 for stretch pools), its options
//! pool_opts_t v2 (`src/osd/osd_types.cc` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use denc::{Denc, Error, Reader, Writer};
use types::{EVersion, Epoch, IntervalSet, PgId, SnapContext, SnapId, UTime};

/// Bits of [`PgPool::flags`].
pub mod pool_flags {
    #![allow(missing_docs, reason = "the names are Ceph's and say it")]
    pub const HASHPSPOOL: u64 = 1 << 0;
    pub const FULL: u64 = 1 << 1;
    pub const EC_OVERWRITES: u64 = 1 << 2;
    pub const INCOMPLETE_CLONES: u64 = 1 << 3;
    pub const NODELETE: u64 = 1 << 4;
    pub const NOPGCHANGE: u64 = 1 << 5;
    pub const NOSIZECHANGE: u64 = 1 << 6;
    pub const WRITE_FADVISE_DONTNEED: u64 = 1 << 7;
    pub const NOSCRUB: u64 = 1 << 8;
    pub const NODEEP_SCRUB: u64 = 1 << 9;
    pub const FULL_QUOTA: u64 = 1 << 10;
    pub const NEARFULL: u64 = 1 << 11;
    pub const BACKFILLFULL: u64 = 1 << 12;
    pub const SELFMANAGED_SNAPS: u64 = 1 << 13;
    pub const POOL_SNAPS: u64 = 1 << 14;
    pub const CREATING: u64 = 1 << 15;
    pub const EIO: u64 = 1 << 16;
    pub const BULK: u64 = 1 << 17;

    /// Ceph's names of the flags, in the order of their bits.
    pub const NAMES: [(u64, &str); 18] = [
        (HASHPSPOOL, "hashpspool"),
        (FULL, "full"),
        (EC_OVERWRITES, "ec_overwrites"),
        (INCOMPLETE_CLONES, "incomplete_clones"),
        (NODELETE, "nodelete"),
        (NOPGCHANGE, "nopgchange"),
        (NOSIZECHANGE, "nosizechange"),
        (WRITE_FADVISE_DONTNEED, "write_fadvise_dontneed"),
        (NOSCRUB, "noscrub"),
        (NODEEP_SCRUB, "nodeep-scrub"),
        (FULL_QUOTA, "full_quota"),
        (NEARFULL, "nearfull"),
        (BACKFILLFULL, "backfillfull"),
        (SELFMANAGED_SNAPS, "selfmanaged_snaps"),
        (POOL_SNAPS, "pool_snaps"),
        (CREATING, "creating"),
        (EIO, "eio"),
        (BULK, "bulk"),
    ];
}

/// Pool type: whole copies.
pub const TYPE_REPLICATED: u8 = 1;
/// Pool type: erasure coded.
pub const TYPE_ERASURE: u8 = 3;

/// A snapshot of a whole pool. Wire: pool_snap_info_t.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 2)]
pub struct PoolSnapInfo {
    /// Its id.
    pub snapid: SnapId,
    /// When it was taken.
    pub stamp: UTime,
    /// Its name: what bytes a client liked.
    pub name: BString,
}

/// What is known of the last PG merge. Wire: pg_merge_meta_t.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PgMergeMeta {
    /// The PG that merged away.
    pub source_pgid: PgId,
    /// Epoch both were ready.
    pub ready_epoch: Epoch,
    /// Of the ready PGs.
    pub last_epoch_started: Epoch,
    /// Of the ready PGs.
    pub last_epoch_clean: Epoch,
    /// Version of the source.
    pub source_version: EVersion,
    /// Version of the target.
    pub target_version: EVersion,
}

/// The value of a pool option.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolOpt {
    /// Kind 0.
    Str(String),
    /// Kind 1.
    Int(i64),
    /// Kind 2.
    Double(f64),
}

/// Options by key; names in [`pool_opts`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PoolOpts(pub BTreeMap<u32, PoolOpt>);

/// What kind of value a pool option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolOptKind {
    /// Text.
    Str,
    /// Integer.
    Int,
    /// Floating point.
    Double,
}

/// Pool options: names, keys, kinds.
pub mod pool_opts {
    #![allow(missing_docs, reason = "the names are Ceph's and say it")]
    use super::PoolOptKind::{self, Double, Int, Str};
    pub const SCRUB_MIN_INTERVAL: u32 = 0;
    pub const SCRUB_MAX_INTERVAL: u32 = 1;
    pub const DEEP_SCRUB_INTERVAL: u32 = 2;
    pub const RECOVERY_PRIORITY: u32 = 3;
    pub const RECOVERY_OP_PRIORITY: u32 = 4;
    pub const SCRUB_PRIORITY: u32 = 5;
    pub const COMPRESSION_MODE: u32 = 6;
    pub const COMPRESSION_ALGORITHM: u32 = 7;
    pub const COMPRESSION_REQUIRED_RATIO: u32 = 8;
    pub const COMPRESSION_MAX_BLOB_SIZE: u32 = 9;
    pub const COMPRESSION_MIN_BLOB_SIZE: u32 = 10;
    pub const CSUM_TYPE: u32 = 11;
    pub const CSUM_MAX_BLOCK: u32 = 12;
    pub const CSUM_MIN_BLOCK: u32 = 13;
    pub const FINGERPRINT_ALGORITHM: u32 = 14;
    pub const PG_NUM_MIN: u32 = 15;
    pub const TARGET_SIZE_BYTES: u32 = 16;
    pub const TARGET_SIZE_RATIO: u32 = 17;
    pub const PG_AUTOSCALE_BIAS: u32 = 18;
    pub const READ_LEASE_INTERVAL: u32 = 19;
    pub const DEDUP_TIER: u32 = 20;
    pub const DEDUP_CHUNK_ALGORITHM: u32 = 21;
    pub const DEDUP_CDC_CHUNK_SIZE: u32 = 22;
    pub const PG_NUM_MAX: u32 = 23;

    /// Every option, in the order of Ceph's names, which is also the order of dumps.
    pub const NAMES: [(&str, u32, PoolOptKind); 24] = [
        ("compression_algorithm", COMPRESSION_ALGORITHM, Str),
        ("compression_max_blob_size", COMPRESSION_MAX_BLOB_SIZE, Int),
        ("compression_min_blob_size", COMPRESSION_MIN_BLOB_SIZE, Int),
        ("compression_mode", COMPRESSION_MODE, Str),
        ("compression_required_ratio", COMPRESSION_REQUIRED_RATIO, Double),
        ("csum_max_block", CSUM_MAX_BLOCK, Int),
        ("csum_min_block", CSUM_MIN_BLOCK, Int),
        ("csum_type", CSUM_TYPE, Int),
        ("dedup_cdc_chunk_size", DEDUP_CDC_CHUNK_SIZE, Int),
        ("dedup_chunk_algorithm", DEDUP_CHUNK_ALGORITHM, Str),
        ("dedup_tier", DEDUP_TIER, Int),
        ("deep_scrub_interval", DEEP_SCRUB_INTERVAL, Double),
        ("fingerprint_algorithm", FINGERPRINT_ALGORITHM, Str),
        ("pg_autoscale_bias", PG_AUTOSCALE_BIAS, Double),
        ("pg_num_max", PG_NUM_MAX, Int),
        ("pg_num_min", PG_NUM_MIN, Int),
        ("read_lease_interval", READ_LEASE_INTERVAL, Double),
        ("recovery_op_priority", RECOVERY_OP_PRIORITY, Int),
        ("recovery_priority", RECOVERY_PRIORITY, Int),
        ("scrub_max_interval", SCRUB_MAX_INTERVAL, Double),
        ("scrub_min_interval", SCRUB_MIN_INTERVAL, Double),
        ("scrub_priority", SCRUB_PRIORITY, Int),
        ("target_size_bytes", TARGET_SIZE_BYTES, Int),
        ("target_size_ratio", TARGET_SIZE_RATIO, Double),
    ];

    /// The key and kind of a name.
    pub fn by_name(name: &str) -> Option<(u32, PoolOptKind)> {
        NAMES.iter().find(|o| o.0 == name).map(|o| (o.1, o.2))
    }
}

impl PoolOpts {
    /// An integer option.
    pub fn int(&self, key: u32) -> Option<i64> {
        match self.0.get(&key) {
            Some(PoolOpt::Int(value)) => Some(*value),
            _ => None,
        }
    }

    /// A floating-point option.
    pub fn double(&self, key: u32) -> Option<f64> {
        match self.0.get(&key) {
            Some(PoolOpt::Double(value)) => Some(*value),
            _ => None,
        }
    }

    /// A text option.
    pub fn str(&self, key: u32) -> Option<&str> {
        match self.0.get(&key) {
            Some(PoolOpt::Str(value)) => Some(value),
            _ => None,
        }
    }
}

impl Denc for PoolOpts {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.count(self.0.len());
            for (key, value) in &self.0 {
                w.u32(*key);
                match value {
                    PoolOpt::Str(text) => {
                        w.u32(0);
                        w.put(text);
                    }
                    PoolOpt::Int(number) => {
                        w.u32(1);
                        w.i64(*number);
                    }
                    PoolOpt::Double(number) => {
                        w.u32(2);
                        w.f64(*number);
                    }
                }
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("pool_opts_t", 2, 1, |r, v| {
            let mut opts = BTreeMap::new();
            for _ in 0..r.count(12)? {
                let key = r.u32()?;
                let value = match r.u32()? {
                    0 => PoolOpt::Str(r.get()?),
                    1 if v >= 2 => PoolOpt::Int(r.i64()?),
                    1 => PoolOpt::Int(r.i32()?.into()),
                    2 => PoolOpt::Double(r.f64()?),
                    kind => {
                        return Err(Error::Invalid {
                            what: "pool option kind",
                            value: kind.into(),
                        });
                    }
                };
                opts.insert(key, value);
            }
            Ok(PoolOpts(opts))
        })
    }
}

/// Parameters of hit sets, which only cache tiers have: kept as they came. Wire: HitSet::Params.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HitSetParams {
    /// 0 none, 1 explicit hash, 2 explicit object, 3 bloom.
    pub kind: u8,
    /// What follows the kind.
    pub body: bytes::Bytes,
}

impl Default for HitSetParams {
    fn default() -> HitSetParams {
        HitSetParams { kind: 0, body: bytes::Bytes::new() }
    }
}

impl Denc for HitSetParams {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u8(self.kind);
            w.raw(&self.body);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("HitSet::Params", 1, 1, |r, _| {
            Ok(HitSetParams { kind: r.u8()?, body: r.rest() })
        })
    }
}

/// A pool. Wire: pg_pool_t.
#[derive(Debug, Clone, PartialEq)]
pub struct PgPool {
    /// [`TYPE_REPLICATED`] or [`TYPE_ERASURE`].
    pub kind: u8,
    /// Copies, or chunks.
    pub size: u8,
    /// CRUSH rule.
    pub crush_rule: u8,
    /// 2: rjenkins.
    pub object_hash: u8,
    /// PGs there are.
    pub pg_num: u32,
    /// PGs placed apart.
    pub pgp_num: u32,
    /// Epoch of the last change.
    pub last_change: Epoch,
    /// Highest snapshot id given out.
    pub snap_seq: SnapId,
    /// Epoch of the last snapshot change.
    pub snap_epoch: Epoch,
    /// Pool snapshots.
    pub snaps: BTreeMap<SnapId, PoolSnapInfo>,
    /// Empty since mimic.
    pub removed_snaps: IntervalSet,
    /// Owner, always 0.
    pub auid: u64,
    /// [`pool_flags`].
    pub flags: u64,
    /// Fewest copies to serve from.
    pub min_size: u8,
    /// 0: none. Bytes.
    pub quota_max_bytes: u64,
    /// 0: none.
    pub quota_max_objects: u64,
    /// Pools that tier this one.
    pub tiers: BTreeSet<u64>,
    /// Pool this one tiers, or -1.
    pub tier_of: i64,
    /// 0 none, 1 writeback, 2 forward, 3 readonly, 4 readforward, 5 readproxy, 6 proxy.
    pub cache_mode: u8,
    /// Tier that reads go to, or -1.
    pub read_tier: i64,
    /// Tier that writes go to, or -1.
    pub write_tier: i64,
    /// Unused by any release.
    pub properties: BTreeMap<String, String>,
    /// Of cache tiers.
    pub hit_set_params: HitSetParams,
    /// Seconds.
    pub hit_set_period: u32,
    /// Hit sets kept.
    pub hit_set_count: u32,
    /// Bytes of a stripe; 0 for replicated pools.
    pub stripe_width: u32,
    /// Of cache tiers.
    pub target_max_bytes: u64,
    /// Of cache tiers.
    pub target_max_objects: u64,
    /// Millionths.
    pub cache_target_dirty_ratio_micro: u32,
    /// Millionths.
    pub cache_target_full_ratio_micro: u32,
    /// Seconds.
    pub cache_min_flush_age: u32,
    /// Seconds.
    pub cache_min_evict_age: u32,
    /// Name of the erasure code profile.
    pub erasure_code_profile: String,
    /// Epoch that made clients resend, for clients before luminous.
    pub last_force_op_resend_preluminous: Epoch,
    /// Of cache tiers.
    pub min_read_recency_for_promote: u32,
    /// Promised by who made the pool.
    pub expected_num_objects: u64,
    /// Millionths.
    pub cache_target_dirty_high_ratio_micro: u32,
    /// Of cache tiers.
    pub min_write_recency_for_promote: u32,
    /// Always true.
    pub use_gmt_hitset: bool,
    /// Read all chunks at once.
    pub fast_read: bool,
    /// Of cache tiers.
    pub hit_set_grade_decay_rate: u32,
    /// Of cache tiers.
    pub hit_set_search_last_n: u32,
    /// Options.
    pub opts: PoolOpts,
    /// Epoch that made clients resend, for clients before nautilus.
    pub last_force_op_resend_prenautilus: Epoch,
    /// Application to its key-value pairs.
    pub application_metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// When it was made.
    pub create_time: UTime,
    /// Where pg_num is heading.
    pub pg_num_target: u32,
    /// Where pgp_num is heading.
    pub pgp_num_target: u32,
    /// pg_num after the merge under way.
    pub pg_num_pending: u32,
    /// last_epoch_started at the last decrease of pg_num; kept for compatibility.
    pub pg_num_dec_last_epoch_started: Epoch,
    /// last_epoch_clean at the last decrease of pg_num; kept for compatibility.
    pub pg_num_dec_last_epoch_clean: Epoch,
    /// Epoch that made clients resend.
    pub last_force_op_resend: Epoch,
    /// 0 off, 1 warn, 2 on.
    pub pg_autoscale_mode: u8,
    /// Of the last merge.
    pub last_pg_merge_meta: PgMergeMeta,
    /// Stretch pools: buckets needed to peer; 0 for all others.
    pub peering_crush_bucket_count: u32,
    /// Stretch pools: buckets wanted.
    pub peering_crush_bucket_target: u32,
    /// Stretch pools: type of those buckets.
    pub peering_crush_bucket_barrier: u32,
    /// Stretch pools: bucket that must take part.
    pub peering_crush_mandatory_member: i32,
}

impl Default for PgPool {
    fn default() -> PgPool {
        PgPool {
            kind: 0,
            size: 0,
            crush_rule: 0,
            object_hash: 0,
            pg_num: 0,
            pgp_num: 0,
            last_change: 0,
            snap_seq: 0,
            snap_epoch: 0,
            snaps: BTreeMap::new(),
            removed_snaps: IntervalSet::new(),
            auid: 0,
            flags: 0,
            min_size: 0,
            quota_max_bytes: 0,
            quota_max_objects: 0,
            tiers: BTreeSet::new(),
            tier_of: -1,
            cache_mode: 0,
            read_tier: -1,
            write_tier: -1,
            properties: BTreeMap::new(),
            hit_set_params: HitSetParams::default(),
            hit_set_period: 0,
            hit_set_count: 0,
            stripe_width: 0,
            target_max_bytes: 0,
            target_max_objects: 0,
            cache_target_dirty_ratio_micro: 0,
            cache_target_full_ratio_micro: 0,
            cache_min_flush_age: 0,
            cache_min_evict_age: 0,
            erasure_code_profile: String::new(),
            last_force_op_resend_preluminous: 0,
            min_read_recency_for_promote: 0,
            expected_num_objects: 0,
            cache_target_dirty_high_ratio_micro: 0,
            min_write_recency_for_promote: 0,
            use_gmt_hitset: true,
            fast_read: false,
            hit_set_grade_decay_rate: 0,
            hit_set_search_last_n: 0,
            opts: PoolOpts::default(),
            last_force_op_resend_prenautilus: 0,
            application_metadata: BTreeMap::new(),
            create_time: UTime::ZERO,
            pg_num_target: 0,
            pgp_num_target: 0,
            pg_num_pending: 0,
            pg_num_dec_last_epoch_started: 0,
            pg_num_dec_last_epoch_clean: 0,
            last_force_op_resend: 0,
            pg_autoscale_mode: 0,
            last_pg_merge_meta: PgMergeMeta::default(),
            peering_crush_bucket_count: 0,
            peering_crush_bucket_target: 0,
            peering_crush_bucket_barrier: 0,
            peering_crush_mandatory_member: 0x7fff_ffff,
        }
    }
}

impl PgPool {
    /// Whether it is erasure coded.
    pub fn is_erasure(&self) -> bool {
        self.kind == TYPE_ERASURE
    }

    /// Whether it keeps whole copies.
    pub fn is_replicated(&self) -> bool {
        self.kind == TYPE_REPLICATED
    }

    /// Whether results may be shifted when one OSD is missing (replicated) or positions count.
    pub fn can_shift_osds(&self) -> bool {
        self.is_replicated()
    }

    /// Bytes to whose multiples an object may only grow: whole stripes, of an erasure coded pool
    /// without `allow_ec_overwrites`.
    pub fn append_alignment(&self) -> Option<u64> {
        let appends_only = self.is_erasure() && !self.has_flag(pool_flags::EC_OVERWRITES);
        appends_only.then_some(u64::from(self.stripe_width.max(1)))
    }

    /// Whether a flag of [`pool_flags`] is set.
    pub fn has_flag(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Whether it is a cache tier or has one.
    pub fn is_tier(&self) -> bool {
        self.tier_of >= 0
    }

    /// Whether PGs and clients follow stretch rules.
    pub fn is_stretch_pool(&self) -> bool {
        self.peering_crush_bucket_count != 0
    }

    /// Whether snapshots are made by the pool (`mksnap`), not by clients.
    pub fn is_pool_snaps_mode(&self) -> bool {
        self.has_flag(pool_flags::POOL_SNAPS)
    }

    /// The snapshot context of pool snapshots: newest first.
    pub fn snap_context(&self) -> SnapContext {
        SnapContext { seq: self.snap_seq, snaps: self.snaps.keys().rev().copied().collect() }
    }

    /// The mask for [`types::hash::stable_mod`] over pg_num.
    pub fn pg_num_mask(&self) -> u32 {
        types::pg::pg_num_mask(self.pg_num)
    }

    /// The mask for [`types::hash::stable_mod`] over pgp_num.
    pub fn pgp_num_mask(&self) -> u32 {
        types::pg::pg_num_mask(self.pgp_num)
    }

    /// The PG that a raw PG (its seed a whole hash) belongs to.
    pub fn raw_pg_to_pg(&self, raw: PgId) -> PgId {
        let seed = types::hash::stable_mod(raw.seed, self.pg_num, self.pg_num_mask());
        PgId { seed, ..raw }
    }

    /// The number CRUSH places a raw PG by.
    pub fn raw_pg_to_pps(&self, raw: PgId) -> u32 {
        let seed = types::hash::stable_mod(raw.seed, self.pgp_num, self.pgp_num_mask());
        if self.has_flag(pool_flags::HASHPSPOOL) {
            // PGs of different pools lie apart.
            crush::hash2(seed, raw.pool as u32)
        } else {
            // PGs of pool n+1 overlap those of pool n, shifted by one.
            seed.wrapping_add(raw.pool as u32)
        }
    }

    /// The flags' names, comma separated.
    pub fn flags_text(&self) -> String {
        let names = pool_flags::NAMES.iter().filter(|(bit, _)| self.flags & bit != 0);
        names.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
    }

    /// `replicated`, `erasure`, ...
    pub fn type_name(&self) -> &'static str {
        match self.kind {
            TYPE_REPLICATED => "replicated",
            TYPE_ERASURE => "erasure",
            _ => "???",
        }
    }
}

impl Denc for PgPool {
    fn encode(&self, w: &mut Writer) {
        let version = if self.is_stretch_pool() { 30 } else { 29 };
        w.envelope(version, 5, |w| {
            w.u8(self.kind);
            w.u8(self.size);
            w.u8(self.crush_rule);
            w.u8(self.object_hash);
            w.u32(self.pg_num);
            w.u32(self.pgp_num);
            w.zeros(8); // local PGs, gone since before 1.0
            w.u32(self.last_change);
            w.u64(self.snap_seq);
            w.u32(self.snap_epoch);
            w.put(&self.snaps);
            w.put(&self.removed_snaps);
            w.u64(self.auid);
            w.u64(self.flags);
            w.u32(0); // crash_replay_interval, gone
            w.u8(self.min_size);
            w.u64(self.quota_max_bytes);
            w.u64(self.quota_max_objects);
            w.put(&self.tiers);
            w.i64(self.tier_of);
            w.u8(self.cache_mode);
            w.i64(self.read_tier);
            w.i64(self.write_tier);
            w.put(&self.properties);
            w.put(&self.hit_set_params);
            w.u32(self.hit_set_period);
            w.u32(self.hit_set_count);
            w.u32(self.stripe_width);
            w.u64(self.target_max_bytes);
            w.u64(self.target_max_objects);
            w.u32(self.cache_target_dirty_ratio_micro);
            w.u32(self.cache_target_full_ratio_micro);
            w.u32(self.cache_min_flush_age);
            w.u32(self.cache_min_evict_age);
            w.put(&self.erasure_code_profile);
            w.u32(self.last_force_op_resend_preluminous);
            w.u32(self.min_read_recency_for_promote);
            w.u64(self.expected_num_objects);
            w.u32(self.cache_target_dirty_high_ratio_micro);
            w.u32(self.min_write_recency_for_promote);
            w.bool(self.use_gmt_hitset);
            w.bool(self.fast_read);
            w.u32(self.hit_set_grade_decay_rate);
            w.u32(self.hit_set_search_last_n);
            w.put(&self.opts);
            w.u32(self.last_force_op_resend_prenautilus);
            w.put(&self.application_metadata);
            w.put(&self.create_time);
            w.u32(self.pg_num_target);
            w.u32(self.pgp_num_target);
            w.u32(self.pg_num_pending);
            w.u32(self.pg_num_dec_last_epoch_started);
            w.u32(self.pg_num_dec_last_epoch_clean);
            w.u32(self.last_force_op_resend);
            w.u8(self.pg_autoscale_mode);
            w.put(&self.last_pg_merge_meta);
            if version >= 30 {
                w.u32(self.peering_crush_bucket_count);
                w.u32(self.peering_crush_bucket_target);
                w.u32(self.peering_crush_bucket_barrier);
                w.i32(self.peering_crush_mandatory_member);
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("pg_pool_t", 30, 29, |r, v| {
            let mut p = PgPool {
                kind: r.u8()?,
                size: r.u8()?,
                crush_rule: r.u8()?,
                object_hash: r.u8()?,
                pg_num: r.u32()?,
                pgp_num: r.u32()?,
                ..PgPool::default()
            };
            r.slice(8)?;
            p.last_change = r.u32()?;
            p.snap_seq = r.u64()?;
            p.snap_epoch = r.u32()?;
            p.snaps = r.get()?;
            p.removed_snaps = r.get()?;
            p.auid = r.u64()?;
            p.flags = r.u64()?;
            r.u32()?;
            p.min_size = r.u8()?;
            p.quota_max_bytes = r.u64()?;
            p.quota_max_objects = r.u64()?;
            p.tiers = r.get()?;
            p.tier_of = r.i64()?;
            p.cache_mode = r.u8()?;
            p.read_tier = r.i64()?;
            p.write_tier = r.i64()?;
            p.properties = r.get()?;
            p.hit_set_params = r.get()?;
            p.hit_set_period = r.u32()?;
            p.hit_set_count = r.u32()?;
            p.stripe_width = r.u32()?;
            p.target_max_bytes = r.u64()?;
            p.target_max_objects = r.u64()?;
            p.cache_target_dirty_ratio_micro = r.u32()?;
            p.cache_target_full_ratio_micro = r.u32()?;
            p.cache_min_flush_age = r.u32()?;
            p.cache_min_evict_age = r.u32()?;
            p.erasure_code_profile = r.get()?;
            p.last_force_op_resend_preluminous = r.u32()?;
            p.min_read_recency_for_promote = r.u32()?;
            p.expected_num_objects = r.u64()?;
            p.cache_target_dirty_high_ratio_micro = r.u32()?;
            p.min_write_recency_for_promote = r.u32()?;
            p.use_gmt_hitset = r.bool()?;
            p.fast_read = r.bool()?;
            p.hit_set_grade_decay_rate = r.u32()?;
            p.hit_set_search_last_n = r.u32()?;
            p.opts = r.get()?;
            p.last_force_op_resend_prenautilus = r.u32()?;
            p.application_metadata = r.get()?;
            p.create_time = r.get()?;
            p.pg_num_target = r.u32()?;
            p.pgp_num_target = r.u32()?;
            p.pg_num_pending = r.u32()?;
            p.pg_num_dec_last_epoch_started = r.u32()?;
            p.pg_num_dec_last_epoch_clean = r.u32()?;
            p.last_force_op_resend = r.u32()?;
            p.pg_autoscale_mode = r.u8()?;
            p.last_pg_merge_meta = r.get()?;
            if v >= 30 {
                p.peering_crush_bucket_count = r.u32()?;
                p.peering_crush_bucket_target = r.u32()?;
                p.peering_crush_bucket_barrier = r.u32()?;
                p.peering_crush_mandatory_member = r.i32()?;
            }
            Ok(p)
        })
    }
}
