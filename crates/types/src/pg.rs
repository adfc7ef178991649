//! Placement groups: `2.1a`, and `2.1as3` for one shard of an erasure coded one.

use core::fmt;
use core::str::FromStr;

use bstr::BString;
use denc::{Denc, Error, Reader, Writer};

use crate::hash::stable_mod;
use crate::hobject::HObject;
use crate::snap::NOSNAP;

/// A placement group. Wire: pg_t (u8 1, u64 pool, u32 seed, s32 -1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PgId {
    /// The pool.
    pub pool: u64,
    /// The number in the pool: low bits of the hashes of its objects.
    pub seed: u32,
}

/// No shard: the whole PG, as in replicated pools.
pub const NO_SHARD: i8 = -1;

/// Bits needed to write `v`.
const fn bit_len(v: u32) -> u32 {
    u32::BITS - v.leading_zeros()
}

/// The mask that [`stable_mod`] wants for `n` PGs: next power of two minus 1.
pub const fn pg_num_mask(n: u32) -> u32 {
    match n {
        0 | 1 => 0,
        _ => u32::MAX >> (n - 1).leading_zeros(),
    }
}

impl PgId {
    /// The PG `pool.seed`.
    pub const fn new(pool: u64, seed: u32) -> PgId {
        PgId { pool, seed }
    }

    /// The pool as the maps key it.
    pub fn pool_id(&self) -> i64 {
        self.pool as i64
    }

    /// The PG of the whole, unsharded kind.
    pub fn spg(self) -> SpgId {
        SpgId { pgid: self, shard: NO_SHARD }
    }

    /// Hash bits shared by all objects of this PG, when the pool has `pg_num` PGs.
    pub fn split_bits(&self, pg_num: u32) -> u32 {
        if pg_num <= 1 {
            return 0;
        }
        // With 2^(p-1) <= pg_num < 2^p the PGs that have split once more than the others, and
        // their children, need p bits, the others p-1.
        let p = bit_len(pg_num);
        let half = 1 << (p - 1);
        if self.seed % half < pg_num % half { p } else { p - 1 }
    }

    /// Whether an object belongs here, given this PG's [`PgId::split_bits`].
    pub fn contains(&self, bits: u32, object: &HObject) -> bool {
        let mask = (1_u64 << bits) as u32;
        let mask = if bits >= 32 { u32::MAX } else { mask - 1 };
        object.pool == self.pool_id() && object.hash & mask == self.seed & mask
    }

    /// The PGs that this one's objects move to when the pool grows from `old` to `new` PGs.
    pub fn children(&self, old: u32, new: u32) -> Vec<PgId> {
        if self.seed >= old || new <= old {
            return Vec::new();
        }
        let old_mask = pg_num_mask_of_bits(bit_len(old));
        (old..new)
            .filter(|&seed| stable_mod_down(seed, old, old_mask) == self.seed)
            .map(|seed| PgId { seed, ..*self })
            .collect()
    }

    /// The PG that this one came from, or merges into, when the pool has `old` PGs.
    pub fn ancestor(&self, old: u32) -> PgId {
        let mask = pg_num_mask_of_bits(bit_len(old));
        PgId { seed: stable_mod_down(self.seed, old, mask), ..*self }
    }

    /// The PG that this one split from: its seed without the highest bit.
    pub fn parent(&self) -> PgId {
        match self.seed {
            0 => *self,
            seed => PgId { seed: seed & !(1 << (bit_len(seed) - 1)), ..*self },
        }
    }

    /// Whether this PG merges into another when the pool shrinks from `old` to `new` PGs, and
    /// into which.
    pub fn merge_target(&self, old: u32, new: u32) -> Option<PgId> {
        if self.seed >= old || self.seed < new {
            return None;
        }
        let mut target = *self;
        while target.seed >= new {
            target = target.parent();
        }
        Some(target)
    }

    /// A cursor before all objects of this PG.
    pub fn first_object(&self) -> HObject {
        HObject { hash: self.seed, pool: self.pool_id(), ..HObject::default() }
    }

    /// A cursor behind all objects of this PG, in bitwise order.
    pub fn end_object(&self, pg_num: u32) -> HObject {
        let bits = self.split_bits(pg_num);
        let first = self.seed.reverse_bits();
        let last = first | u32::MAX.checked_shr(bits).unwrap_or(0);
        match last.checked_add(1) {
            None => HObject::max(),
            Some(next) => HObject {
                hash: next.reverse_bits(),
                pool: self.pool_id(),
                snap: NOSNAP,
                ..HObject::default()
            },
        }
    }

    /// The object in whose attributes and omap a store keeps this PG's own metadata: an empty
    /// name at the PG's seed.
    pub fn pgmeta(&self) -> HObject {
        HObject {
            name: BString::default(),
            hash: self.seed,
            pool: self.pool_id(),
            snap: NOSNAP,
            ..HObject::default()
        }
    }
}

const fn pg_num_mask_of_bits(bits: u32) -> u32 {
    if bits >= 32 { u32::MAX } else { (1 << bits) - 1 }
}

/// [`stable_mod`] repeated until it lands below `b`, for seeds several doublings above it.
fn stable_mod_down(x: u32, b: u32, mask: u32) -> u32 {
    stable_mod(x, b, mask)
}

impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.seed)
    }
}

/// The text is no placement group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParsePgError;

impl fmt::Display for ParsePgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a placement group of the form pool.seed")
    }
}

impl std::error::Error for ParsePgError {}

fn plain_digits(text: &str, radix: u32) -> Result<&str, ParsePgError> {
    // from_str_radix would take a sign.
    if text.chars().all(|c| c.is_digit(radix)) { Ok(text) } else { Err(ParsePgError) }
}

impl FromStr for PgId {
    type Err = ParsePgError;
    fn from_str(s: &str) -> Result<PgId, ParsePgError> {
        let (pool, seed) = s.split_once('.').ok_or(ParsePgError)?;
        Ok(PgId {
            pool: plain_digits(pool, 10)?.parse().map_err(|_| ParsePgError)?,
            seed: u32::from_str_radix(plain_digits(seed, 16)?, 16).map_err(|_| ParsePgError)?,
        })
    }
}

impl Denc for PgId {
    fn encode(&self, w: &mut Writer) {
        w.u8(1);
        w.u64(self.pool);
        w.u32(self.seed);
        w.i32(-1); // "preferred" OSD, gone since luminous
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgId, Error> {
        r.u8()?;
        let pgid = PgId { pool: r.u64()?, seed: r.u32()? };
        r.i32()?;
        Ok(pgid)
    }
}

/// A placement group or one shard of it. Wire: spg_t v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Denc)]
#[denc(v = 1, compat = 1)]
pub struct SpgId {
    /// The placement group.
    pub pgid: PgId,
    /// Position in the acting set, [`NO_SHARD`] for replicated pools.
    pub shard: i8,
}

impl Default for SpgId {
    fn default() -> SpgId {
        PgId::default().spg()
    }
}

impl SpgId {
    /// The store object with this PG's metadata.
    pub fn pgmeta(&self) -> crate::hobject::GhObject {
        crate::hobject::GhObject {
            hobj: self.pgid.pgmeta(),
            generation: crate::hobject::NO_GEN,
            shard: self.shard,
            max: false,
        }
    }
}

impl fmt::Display for SpgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pgid.fmt(f)?;
        match self.shard {
            NO_SHARD => Ok(()),
            shard => write!(f, "s{}", shard as u8),
        }
    }
}

impl FromStr for SpgId {
    type Err = ParsePgError;
    fn from_str(s: &str) -> Result<SpgId, ParsePgError> {
        match s.split_once('s') {
            None => s.parse().map(PgId::spg),
            Some((pgid, shard)) => Ok(SpgId {
                pgid: pgid.parse()?,
                shard: plain_digits(shard, 10)?.parse().map_err(|_| ParsePgError)?,
            }),
        }
    }
}

/// An OSD in its role for a PG. Wire: pg_shard_t v1 (s32 osd, s8 shard).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PgShard {
    /// The OSD, -1 when undefined.
    pub osd: i32,
    /// The shard it holds, [`NO_SHARD`] for replicated pools.
    pub shard: i8,
}

impl PgShard {
    /// No OSD at all.
    pub const UNDEFINED: PgShard = PgShard { osd: -1, shard: NO_SHARD };

    /// An OSD of a replicated pool.
    pub const fn replica(osd: i32) -> PgShard {
        PgShard { osd, shard: NO_SHARD }
    }

    /// An OSD holding one shard.
    pub const fn new(osd: i32, shard: i8) -> PgShard {
        PgShard { osd, shard }
    }
}

impl Default for PgShard {
    fn default() -> PgShard {
        PgShard::UNDEFINED
    }
}

impl fmt::Display for PgShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            PgShard { osd: -1, .. } => f.write_str("?"),
            PgShard { osd, shard: NO_SHARD } => write!(f, "{osd}"),
            PgShard { osd, shard } => write!(f, "{osd}({})", shard as u8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_forms() {
        assert_eq!(PgId::new(2, 0x1a).to_string(), "2.1a");
        assert_eq!("2.1a".parse(), Ok(PgId::new(2, 0x1a)));
        assert_eq!("2.1as3".parse(), Ok(SpgId { pgid: PgId::new(2, 0x1a), shard: 3 }));
        assert_eq!("2.1as3".parse::<SpgId>().unwrap().to_string(), "2.1as3");
        for bad in ["2", "2.", "2.g", "x.1", "2.-1", "+2.1"] {
            assert!(bad.parse::<PgId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ranges_of_all_pgs_tile_the_hash_space() {
        for pg_num in 1..70 {
            let mut at = 0_u64;
            let mut pgs: Vec<u32> = (0..pg_num).collect();
            pgs.sort_by_key(|seed| seed.reverse_bits());
            for seed in pgs {
                let pg = PgId::new(1, seed);
                assert_eq!(
                    u64::from(pg.first_object().hash.reverse_bits()),
                    at,
                    "{pg} of {pg_num}"
                );
                let end = pg.end_object(pg_num);
                at = if end.max { 1 << 32 } else { u64::from(end.hash.reverse_bits()) };
            }
            assert_eq!(at, 1 << 32);
        }
    }

    #[test]
    fn splitting_keeps_each_object_in_the_family() {
        for (old, new) in [(1, 8), (3, 4), (4, 16), (5, 13), (12, 31)] {
            for hash in (0..2000_u32).map(|i| i.wrapping_mul(0x9e37_79b9)) {
                let before = stable_mod(hash, old, pg_num_mask(old));
                let after = stable_mod(hash, new, pg_num_mask(new));
                let parent = PgId::new(1, before);
                assert!(
                    before == after || parent.children(old, new).contains(&PgId::new(1, after)),
                    "{hash:x}: {before} -> {after} ({old} to {new})"
                );
                let child = PgId::new(1, after);
                let object = HObject { hash, pool: 1, ..HObject::default() };
                assert!(child.contains(child.split_bits(new), &object));
                assert_eq!(child.merge_target(new, old).unwrap_or(child), parent);
            }
        }
    }
}
