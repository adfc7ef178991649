//! PG statistics: what OSDs report, added up for pools, OSDs and the cluster
//! (`src/mon/PGMap.cc` at v16.2).
//!
//! The manager keeps a [`PgMap`]; the monitors get its [`PgMapDigest`], which answers `status`,
//! `df` and `pg stat`.

mod df;
mod digest;
mod dump;
mod map;
mod osd_df;
mod summary;

pub use digest::{PgCount, PgMapDigest};
pub use dump::{
    OMAP_NOTE, dump_osd_stat, dump_perf_stat, dump_pg_stat, dump_pg_stat_brief, dump_pool_stat,
    dump_statfs,
};
pub use map::{DeltaSettings, PgMap, PgMapIncremental, Stuck};
pub use summary::IoSummary;

use types::osd::{OsdStat, PgStat, PoolStat, StoreStatfs};

/// Adds a PG's counts to a pool's.
pub fn add_pg(sum: &mut PoolStat, pg: &PgStat) {
    sum.stats.sum.add(&pg.stats.sum);
    sum.log_size = sum.log_size.wrapping_add(pg.log_size);
    sum.ondisk_log_size = sum.ondisk_log_size.wrapping_add(pg.ondisk_log_size);
    sum.up = sum.up.wrapping_add(pg.up.len() as i32);
    sum.acting = sum.acting.wrapping_add(pg.acting.len() as i32);
}

/// Takes a PG's counts from a pool's.
pub fn sub_pg(sum: &mut PoolStat, pg: &PgStat) {
    sum.stats.sum.sub(&pg.stats.sum);
    sum.log_size = sum.log_size.wrapping_sub(pg.log_size);
    sum.ondisk_log_size = sum.ondisk_log_size.wrapping_sub(pg.ondisk_log_size);
    sum.up = sum.up.wrapping_sub(pg.up.len() as i32);
    sum.acting = sum.acting.wrapping_sub(pg.acting.len() as i32);
}

/// Adds one OSD's statistics to a sum.
pub fn add_osd(sum: &mut OsdStat, osd: &OsdStat) {
    combine_osd(sum, osd, 1);
    sum.statfs.add(&osd.statfs);
    sum.os_alerts.extend(osd.os_alerts.clone());
}

/// Takes one OSD's statistics from a sum.
pub fn sub_osd(sum: &mut OsdStat, osd: &OsdStat) {
    combine_osd(sum, osd, -1);
    sum.statfs.sub(&osd.statfs);
    for id in osd.os_alerts.keys() {
        sum.os_alerts.remove(id);
    }
}

fn combine_osd(sum: &mut OsdStat, osd: &OsdStat, sign: i64) {
    let wide = |a: u64, b: u64| a.wrapping_add((b as i64).wrapping_mul(sign) as u64);
    let count = |a: u32, b: u32| a.wrapping_add((b as i32).wrapping_mul(sign as i32) as u32);
    let signed = |a: i32, b: i32| a.wrapping_add(b.wrapping_mul(sign as i32));
    sum.snap_trim_queue_len = signed(sum.snap_trim_queue_len, osd.snap_trim_queue_len);
    sum.num_snap_trimming = signed(sum.num_snap_trimming, osd.num_snap_trimming);
    sum.num_shards_repaired = wide(sum.num_shards_repaired, osd.num_shards_repaired);
    sum.num_pgs = count(sum.num_pgs, osd.num_pgs);
    sum.num_osds = count(sum.num_osds, osd.num_osds);
    sum.num_per_pool_osds = count(sum.num_per_pool_osds, osd.num_per_pool_osds);
    sum.num_per_pool_omap_osds = count(sum.num_per_pool_omap_osds, osd.num_per_pool_omap_osds);
    let (ours, theirs) = (&mut sum.op_queue_age_hist.counts, &osd.op_queue_age_hist.counts);
    if ours.len() < theirs.len() {
        ours.resize(theirs.len(), 0);
    }
    for (a, b) in ours.iter_mut().zip(theirs) {
        *a = signed(*a, *b);
    }
    while ours.last() == Some(&0) {
        ours.pop();
    }
    let (ours, theirs) = (&mut sum.os_perf_stat, &osd.os_perf_stat);
    ours.commit_latency_ns = wide(ours.commit_latency_ns, theirs.commit_latency_ns);
    ours.apply_latency_ns = wide(ours.apply_latency_ns, theirs.apply_latency_ns);
}

/// Bytes used by content, without what the store holds back.
pub fn used(statfs: &StoreStatfs) -> u64 {
    statfs.used_raw().wrapping_sub(statfs.internally_reserved)
}

/// Used share of the capacity.
pub fn used_raw_ratio(statfs: &StoreStatfs) -> f32 {
    if statfs.total == 0 { 0.0 } else { statfs.used_raw() as f32 / statfs.total as f32 }
}
