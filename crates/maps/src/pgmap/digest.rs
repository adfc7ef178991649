//! The sums without the single PGs and OSDs. Wire: PGMapDigest v4.
//!
//! Ceph writes its hash tables in their order; this writes the same entries sorted by key.

use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};
use types::osd::{OsdStat, PoolStat};
use types::{IntervalSet, OsdId, UTime};

/// How many PGs an OSD has to do with. Wire: PGMapDigest::pg_count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
pub struct PgCount {
    /// It serves.
    pub acting: i32,
    /// It should have and does not serve.
    pub up_not_acting: i32,
    /// It leads.
    pub primary: i32,
}

/// The sums.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PgMapDigest {
    /// PGs.
    pub num_pg: i64,
    /// PGs that serve.
    pub num_pg_active: i64,
    /// PGs that nobody reported yet.
    pub num_pg_unknown: i64,
    /// OSDs that reported.
    pub num_osd: i64,
    /// By pool.
    pub pg_pool_sum: BTreeMap<i32, PoolStat>,
    /// Of all pools.
    pub pg_sum: PoolStat,
    /// Of all OSDs.
    pub osd_sum: OsdStat,
    /// PGs by state.
    pub num_pg_by_state: BTreeMap<u64, i32>,
    /// PGs by OSD.
    pub num_pg_by_osd: BTreeMap<OsdId, PgCount>,
    /// PGs by pool.
    pub num_pg_by_pool: BTreeMap<i64, i64>,
    /// Number of the last report of each OSD.
    pub osd_last_seq: Vec<u64>,
    /// Change of each pool's sum, and when it was last taken.
    pub per_pool_sum_delta: BTreeMap<i64, (PoolStat, UTime)>,
    /// The time each of those changes took.
    pub per_pool_sum_deltas_stamps: BTreeMap<i64, UTime>,
    /// Change of the sum.
    pub pg_sum_delta: PoolStat,
    /// The time it took.
    pub stamp_delta: UTime,
    /// Raw bytes that may still be written by each CRUSH rule; negative: not known.
    pub avail_space_by_rule: BTreeMap<i32, i64>,
    /// Snapshots that every PG of a pool has purged.
    pub purged_snaps: BTreeMap<i64, IntervalSet>,
    /// By device class.
    pub osd_sum_by_class: BTreeMap<String, OsdStat>,
}

impl PgMapDigest {
    /// Whether every store counts space by pool.
    pub fn use_per_pool_stats(&self) -> bool {
        self.osd_sum.num_osds == self.osd_sum.num_per_pool_osds
    }

    /// Whether every store counts omap by pool.
    pub fn use_per_pool_omap_stats(&self) -> bool {
        self.osd_sum.num_osds == self.osd_sum.num_per_pool_omap_osds
    }

    /// Number of the last report of an OSD, 0 if there is none.
    pub fn last_seq(&self, osd: OsdId) -> u64 {
        usize::try_from(osd).ok().and_then(|i| self.osd_last_seq.get(i)).copied().unwrap_or(0)
    }
}

impl Denc for PgMapDigest {
    fn encode(&self, w: &mut Writer) {
        w.envelope(4, 1, |w| {
            w.i64(self.num_pg);
            w.i64(self.num_pg_active);
            w.i64(self.num_pg_unknown);
            w.i64(self.num_osd);
            w.put(&self.pg_pool_sum);
            w.put(&self.pg_sum);
            w.put(&self.osd_sum);
            w.put(&self.num_pg_by_state);
            w.put(&self.num_pg_by_osd);
            w.put(&self.num_pg_by_pool);
            w.put(&self.osd_last_seq);
            w.put(&self.per_pool_sum_delta);
            w.put(&self.per_pool_sum_deltas_stamps);
            w.put(&self.pg_sum_delta);
            w.put(&self.stamp_delta);
            w.put(&self.avail_space_by_rule);
            w.put(&self.purged_snaps);
            w.put(&self.osd_sum_by_class);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("PGMapDigest", 4, 4, |r, _| {
            Ok(PgMapDigest {
                num_pg: r.i64()?,
                num_pg_active: r.i64()?,
                num_pg_unknown: r.i64()?,
                num_osd: r.i64()?,
                pg_pool_sum: r.get()?,
                pg_sum: r.get()?,
                osd_sum: r.get()?,
                num_pg_by_state: r.get()?,
                num_pg_by_osd: r.get()?,
                num_pg_by_pool: r.get()?,
                osd_last_seq: r.get()?,
                per_pool_sum_delta: r.get()?,
                per_pool_sum_deltas_stamps: r.get()?,
                pg_sum_delta: r.get()?,
                stamp_delta: r.get()?,
                avail_space_by_rule: r.get()?,
                purged_snaps: r.get()?,
                osd_sum_by_class: r.get()?,
            })
        })
    }
}
