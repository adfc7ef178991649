//! Which objects were used: the sets a cache tier keeps, and their history in a PG. Kept as they
//! came; no tiering is done with them here.

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

use crate::hobject::HObject;
use crate::time::UTime;
use crate::version::EVersion;

/// Wire: pg_hit_set_info_t v2/c1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct PgHitSetInfo {
    /// From when.
    pub begin: UTime,
    /// Until when.
    pub end: UTime,
    /// The PG's version when it was stored.
    pub version: EVersion,
    /// Times are UTC.
    #[denc(since = 2)]
    pub using_gmt: bool,
}

/// Wire: pg_hit_set_history_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PgHitSetHistory {
    /// The PG's version when the current set was last stored.
    pub current_last_update: EVersion,
    /// Not used.
    pub current_last_stamp: UTime,
    /// Not used.
    pub current_info: UnusedHitSetInfo,
    /// Stored sets, oldest first.
    pub history: Vec<PgHitSetInfo>,
}

/// A [`PgHitSetInfo`] in a place that means nothing; Ceph fills it with its default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnusedHitSetInfo(pub PgHitSetInfo);

impl Default for UnusedHitSetInfo {
    fn default() -> UnusedHitSetInfo {
        UnusedHitSetInfo(PgHitSetInfo { using_gmt: true, ..PgHitSetInfo::default() })
    }
}

impl Denc for UnusedHitSetInfo {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.0);
    }
    fn decode(r: &mut Reader<'_>) -> Result<UnusedHitSetInfo, Error> {
        r.get().map(UnusedHitSetInfo)
    }
}

/// A Bloom filter with its parameters. Wire: bloom_filter v2/c2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 2)]
pub struct BloomFilter {
    /// Hash functions.
    pub salt_count: u64,
    /// Insertions.
    pub insert_count: u64,
    /// Expected insertions.
    pub target_element_count: u64,
    /// Seed of the hash functions.
    pub random_seed: u64,
    /// The bits.
    pub table: Bytes,
}

/// A Bloom filter that was halved a few times. Wire: compressible_bloom_filter v2/c2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 2)]
pub struct CompressibleBloomFilter {
    /// The filter.
    pub filter: BloomFilter,
    /// Sizes of the table before each halving.
    pub sizes: Vec<u64>,
}

/// Wire: BloomHitSet v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct BloomHitSet {
    /// The filter.
    pub bloom: CompressibleBloomFilter,
}

/// Wire: ExplicitHashHitSet v1. The order of the hashes is the writer's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ExplicitHashHitSet {
    /// Insertions.
    pub count: u64,
    /// Hashes of objects.
    pub hits: Vec<u32>,
}

/// Wire: ExplicitObjectHitSet v1. The order of the objects is the writer's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ExplicitObjectHitSet {
    /// Insertions.
    pub count: u64,
    /// Objects.
    pub hits: Vec<HObject>,
}

/// The kinds of hit sets.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum HitSetKind {
    /// No set.
    #[default]
    None,
    /// Hashes.
    ExplicitHash(ExplicitHashHitSet),
    /// Objects.
    ExplicitObject(ExplicitObjectHitSet),
    /// A Bloom filter.
    Bloom(BloomHitSet),
}

/// Wire: HitSet v1.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HitSet {
    /// No more insertions.
    pub sealed: bool,
    /// The set.
    pub kind: HitSetKind,
}

impl Denc for HitSet {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.bool(self.sealed);
            match &self.kind {
                HitSetKind::None => w.u8(0),
                HitSetKind::ExplicitHash(set) => {
                    w.u8(1);
                    w.put(set);
                }
                HitSetKind::ExplicitObject(set) => {
                    w.u8(2);
                    w.put(set);
                }
                HitSetKind::Bloom(set) => {
                    w.u8(3);
                    w.put(set);
                }
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<HitSet, Error> {
        r.envelope("HitSet", 1, 1, |r, _| {
            let sealed = r.bool()?;
            let kind = match r.u8()? {
                0 => HitSetKind::None,
                1 => HitSetKind::ExplicitHash(r.get()?),
                2 => HitSetKind::ExplicitObject(r.get()?),
                3 => HitSetKind::Bloom(r.get()?),
                other => return Err(unknown(other)),
            };
            Ok(HitSet { sealed, kind })
        })
    }
}

fn unknown(kind: u8) -> Error {
    Error::Invalid { what: "hit set type", value: kind.into() }
}

/// What kind of hit sets a pool keeps. Wire: HitSet::Params v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HitSetParams {
    /// None.
    #[default]
    None,
    /// Hashes.
    ExplicitHash,
    /// Objects.
    ExplicitObject,
    /// Bloom filters.
    Bloom {
        /// False positives, parts per million.
        fpp_micro: u32,
        /// Expected insertions.
        target_size: u64,
        /// Seed of the hash functions, 0 for one of the time.
        seed: u64,
    },
}

impl HitSetParams {
    /// The kind's name: `none`, `explicit_hash`, `explicit_object`, `bloom`.
    pub fn type_name(&self) -> &'static str {
        match self {
            HitSetParams::None => "none",
            HitSetParams::ExplicitHash => "explicit_hash",
            HitSetParams::ExplicitObject => "explicit_object",
            HitSetParams::Bloom { .. } => "bloom",
        }
    }
}

impl Denc for HitSetParams {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| match *self {
            HitSetParams::None => w.u8(0),
            HitSetParams::ExplicitHash => w.u8(1),
            HitSetParams::ExplicitObject => w.u8(2),
            HitSetParams::Bloom { fpp_micro, target_size, seed } => {
                w.u8(3);
                w.envelope(1, 1, |w| {
                    w.u32(fpp_micro);
                    w.u64(target_size);
                    w.u64(seed);
                });
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<HitSetParams, Error> {
        r.envelope("HitSetParams", 1, 1, |r, _| match r.u8()? {
            0 => Ok(HitSetParams::None),
            1 => Ok(HitSetParams::ExplicitHash),
            2 => Ok(HitSetParams::ExplicitObject),
            3 => r.envelope("BloomParams", 1, 1, |r, _| {
                Ok(HitSetParams::Bloom {
                    fpp_micro: r.u32()?,
                    target_size: r.u64()?,
                    seed: r.u64()?,
                })
            }),
            other => Err(unknown(other)),
        })
    }
}
