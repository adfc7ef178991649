//! The seam between a PG and how it stores.
//!
//! A PG's ops make one logical [`Transaction`] and log entries; what a pool's kind makes of them is
//! behind this seam:
//!
//! | | replicas | shards |
//! |---|---|---|
//! | write | the transaction itself to every follower (MOSDRepOp) | one transaction a shard (MOSDECSubOpWrite), entries that can be undone |
//! | read | the own copy | any k shards (MOSDECSubOpRead), decoded |
//! | recover | the whole object from any one copy | k shards' chunks, the lacking ones computed |
//! | scrub | copies compared | each shard against the hash info |
//! | an acknowledged write is on | every one that acted: one survivor tells | every one that acted: k survivors tell |
//!
//! The mathematics and the planning of shards is [`ShardCodec`]: pure functions, no I/O, no time.
//! The PG does the I/O between its steps:
//!
//! ```text
//! execute ops (logical transaction, under the object's write lock)
//!   -> reads_of_write            which whole stripes must be read first
//!   -> read from k shards        (async; the only await)
//!   -> version given, entries made
//!   -> encode_write              a transaction a shard, rollback steps into the entries
//!   -> log, submit, send         (sync, in the order of versions)
//! ```
//!
//! Names in shard transactions: collection `CollId::Pg(SpgId { pgid, shard })`, objects
//! `GhObject { hobj, generation, shard }` with `NO_GEN` for the object itself and
//! `entry.version.version` as generation for what an entry keeps to be undone
//! (`src/osd/ECTransaction.cc` at v16.2). Offsets in them are of the shard's chunk. All attributes
//! are on every shard; omap does not exist in erasure coded pools.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bstr::BString;
use bytes::Bytes;
use erasure::Profile;
use maps::{OsdMap, PgPool};
use store::Transaction;
use types::osd::PgLogEntry;
use types::{Errno, HObject, PgId, PgShard};

use crate::ec::Codec;

/// How many of a PG's shards make its objects whole (`IsPGRecoverablePredicate` and
/// `IsPGReadablePredicate` in `src/osd/PGBackend.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Redundancy {
    /// Any one copy.
    #[default]
    Copies,
    /// Any `k` different shards.
    Shards {
        /// Data chunks.
        k: usize,
    },
}

impl Redundancy {
    /// Whether positions of the acting set are shards.
    pub fn is_erasure(&self) -> bool {
        matches!(self, Redundancy::Shards { .. })
    }

    /// Whether objects that are on `have` can be read and recovered. (All our codes are MDS: which
    /// shards does not matter.)
    pub fn is_recoverable<'a>(&self, have: impl IntoIterator<Item = &'a PgShard>) -> bool {
        match self {
            Redundancy::Copies => have.into_iter().next().is_some(),
            Redundancy::Shards { k } => {
                let shards: BTreeSet<i8> = have.into_iter().map(|s| s.shard).collect();
                shards.len() >= *k
            }
        }
    }

    /// The member of a set of OSDs at `position`.
    pub fn shard_at(&self, position: usize, osd: i32) -> PgShard {
        match self {
            Redundancy::Copies => PgShard::replica(osd),
            Redundancy::Shards { .. } => {
                PgShard::new(osd, i8::try_from(position).unwrap_or(i8::MAX))
            }
        }
    }
}

/// How a pool keeps its objects. Of an erasure coded pool whose profile the map does not have (or
/// that names a code we do not know) all shards are wanted: none is given up.
pub fn redundancy(map: &OsdMap, pool: &PgPool) -> Redundancy {
    if !pool.is_erasure() {
        return Redundancy::Copies;
    }
    let k = profile_of(map, pool).map_or(usize::from(pool.size), |profile| profile.k);
    Redundancy::Shards { k }
}

fn profile_of(map: &OsdMap, pool: &PgPool) -> Option<Profile> {
    let keys = map.erasure_code_profiles.get(&pool.erasure_code_profile)?;
    Profile::of(keys).ok()
}

/// What knows the shards of a pool; `None` of replicated pools.
pub fn codec(map: &OsdMap, pool: &PgPool) -> Option<Rc<dyn ShardCodec>> {
    if !pool.is_erasure() {
        return None;
    }
    let profile = map.erasure_code_profiles.get(&pool.erasure_code_profile)?;
    match Codec::of(profile, pool.stripe_width.into()) {
        Ok(codec) => Some(Rc::new(codec)),
        Err(e) => {
            tracing::error!("profile {}: {e}", pool.erasure_code_profile);
            None
        }
    }
}

/// An object as it is on the shards before a write.
#[derive(Debug, Clone, Default)]
pub struct ObjectBefore {
    /// Whether it exists.
    pub exists: bool,
    /// Its logical size, as the object info says.
    pub size: u64,
    /// All its attributes as stored (`_`, `snapset`, `hinfo_key`, clients' with their prefix).
    pub attrs: BTreeMap<BString, Bytes>,
}

/// Logical ranges of an object, whole stripes: (offset, length).
pub type Ranges = Vec<(u64, u64)>;

/// Which part of its chunk each of some shards is read in: (offset, length), the same for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardReads {
    /// Which shards.
    pub shards: BTreeSet<i8>,
    /// Offset in the chunk, a multiple of the piece's length.
    pub offset: u64,
    /// Bytes, a multiple of the piece's length.
    pub len: u64,
}

/// What knows a pool's code and the layout of its shards; no I/O. Shards are numbered from 0, as
/// positions of the acting set.
pub trait ShardCodec {
    /// Data chunks.
    fn k(&self) -> usize;
    /// Parity chunks.
    fn m(&self) -> usize;
    /// Bytes of a stripe's data (`pg_pool_t::stripe_width`).
    fn stripe_width(&self) -> u64;
    /// Bytes of a shard's chunk of an object of `size` bytes.
    fn chunk_len(&self, size: u64) -> u64;

    /// What of which objects a write has to read first, partial stripes that are overwritten or
    /// extended. `transaction` is the logical one (objects without shard); `size` tells sizes
    /// before. Called under the objects' write locks, before the write has a version.
    ///
    /// An op of the transaction that shards cannot do (omap) is an error.
    fn reads_of_write(
        &self,
        transaction: &Transaction,
        size: &dyn Fn(&HObject) -> u64,
    ) -> Result<BTreeMap<HObject, Ranges>, Errno>;

    /// A transaction for each of the k + m shards (shard to transaction), with what is needed to
    /// undo each entry put into its `mod_desc`, and what has to be kept for that kept under the
    /// entry's generation. `read` holds, for each range that [`Self::reads_of_write`] asked for, its
    /// bytes (zeros beyond the end). `before` holds all objects the transaction changes or clones
    /// from.
    fn encode_write(
        &self,
        pgid: PgId,
        transaction: &Transaction,
        before: &BTreeMap<HObject, ObjectBefore>,
        read: &BTreeMap<HObject, Vec<(u64, Bytes)>>,
        entries: &mut [PgLogEntry],
    ) -> Result<BTreeMap<i8, Transaction>, Errno>;

    /// How to read the logical range from the shards that are there: the data shards where all
    /// are, else any k. `None`: too few. `available` is in the order of preference of
    /// `BTreeSet`; a read that failed on one shard is planned again without it.
    fn plan_read(&self, offset: u64, len: u64, available: &BTreeSet<i8>) -> Option<ShardReads>;

    /// The bytes of the range (`offset`, `len` as given to [`Self::plan_read`]) out of what the
    /// shards gave. Chunks of unequal length (an object's end) are taken as filled up with zeros.
    fn decode_read(
        &self,
        offset: u64,
        len: u64,
        chunks: &BTreeMap<i8, Bytes>,
    ) -> Result<Bytes, Errno>;

    /// The same part of the chunks of `wanted` shards, out of that part of any k others.
    fn rebuild(
        &self,
        wanted: &BTreeSet<i8>,
        chunks: &BTreeMap<i8, Bytes>,
    ) -> Result<BTreeMap<i8, Bytes>, Errno>;
}
