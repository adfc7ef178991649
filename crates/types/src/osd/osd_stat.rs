//! What an OSD reports of itself, and what the OSD map keeps of it.

use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};

use super::stat_sum::StoreStatfs;
use crate::ids::{Epoch, OsdId};

/// Counts by powers of two. Wire: pow2_hist_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Pow2Hist {
    /// `counts[i]` values had `i` bits.
    pub counts: Vec<i32>,
}

impl Pow2Hist {
    /// Counts a value.
    pub fn add(&mut self, value: u32) {
        let bin = (u32::BITS - value.leading_zeros()) as usize;
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] = self.counts[bin].saturating_add(1);
    }
}

/// Latencies of a store, nanoseconds. Wire: objectstore_perf_stat_t v1: two u32 of milliseconds,
/// as 16.2 sends it to its peers; v2 with u64 of nanoseconds is read too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ObjectStorePerfStat {
    /// Until durable.
    pub commit_latency_ns: u64,
    /// Until readable.
    pub apply_latency_ns: u64,
}

const NS_PER_MS: u64 = 1_000_000;

impl Denc for ObjectStorePerfStat {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.u32((self.commit_latency_ns / NS_PER_MS) as u32);
            w.u32((self.apply_latency_ns / NS_PER_MS) as u32);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<ObjectStorePerfStat, Error> {
        r.envelope("ObjectStorePerfStat", 2, 1, |r, v| {
            let mut next = || -> Result<u64, Error> {
                if v >= 2 { r.u64() } else { Ok(u64::from(r.u32()?) * NS_PER_MS) }
            };
            Ok(ObjectStorePerfStat { commit_latency_ns: next()?, apply_latency_ns: next()? })
        })
    }
}

/// Heartbeat times to one peer, microseconds: averages, least and most over 1, 5 and 15 minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
pub struct PingTimes {
    /// Unix time of the last.
    pub last_update: u32,
    /// Back interface: averages.
    pub back_pingtime: Minutes,
    /// Back interface: least.
    pub back_min: Minutes,
    /// Back interface: most.
    pub back_max: Minutes,
    /// Back interface: last.
    pub back_last: u32,
    /// Front interface: averages.
    pub front_pingtime: Minutes,
    /// Front interface: least.
    pub front_min: Minutes,
    /// Front interface: most.
    pub front_max: Minutes,
    /// Front interface: last.
    pub front_last: u32,
}

/// A number over the last 1, 5 and 15 minutes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Minutes(pub [u32; 3]);

impl Denc for Minutes {
    fn encode(&self, w: &mut Writer) {
        self.0.iter().for_each(|&value| w.u32(value));
    }
    fn decode(r: &mut Reader<'_>) -> Result<Minutes, Error> {
        Ok(Minutes([r.u32()?, r.u32()?, r.u32()?]))
    }
}

/// Wire: osd_stat_t v14/c2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OsdStat {
    /// Space.
    pub statfs: StoreStatfs,
    /// Peers it exchanges heartbeats with.
    pub hb_peers: Vec<OsdId>,
    /// Snapshots to trim.
    pub snap_trim_queue_len: i32,
    /// PGs that trim.
    pub num_snap_trimming: i32,
    /// Shards repaired.
    pub num_shards_repaired: u64,
    /// Ages of queued operations.
    pub op_queue_age_hist: Pow2Hist,
    /// Latencies.
    pub os_perf_stat: ObjectStorePerfStat,
    /// Alerts of the store by OSD: name and text.
    pub os_alerts: BTreeMap<OsdId, BTreeMap<String, String>>,
    /// Epoch in which it came up.
    pub up_from: Epoch,
    /// Number of the report: `up_from` << 32 | counter.
    pub seq: u64,
    /// PGs.
    pub num_pgs: u32,
    /// OSDs in the sum: 1.
    pub num_osds: u32,
    /// Those that count space by pool.
    pub num_per_pool_osds: u32,
    /// Those that count omap by pool.
    pub num_per_pool_omap_osds: u32,
    /// Heartbeat times by peer.
    pub hb_pingtime: BTreeMap<OsdId, PingTimes>,
}

impl Denc for OsdStat {
    fn encode(&self, w: &mut Writer) {
        w.envelope(14, 2, |w| {
            w.u64(self.statfs.kb());
            w.u64(self.statfs.kb_used_raw());
            w.u64(self.statfs.kb_avail());
            w.i32(self.snap_trim_queue_len);
            w.i32(self.num_snap_trimming);
            w.put(&self.hb_peers);
            w.u32(0); // hb_out
            w.put(&self.op_queue_age_hist);
            w.put(&self.os_perf_stat);
            w.u32(self.up_from);
            w.u64(self.seq);
            w.u32(self.num_pgs);
            w.u64(self.statfs.kb_used_data());
            w.u64(self.statfs.kb_used_omap());
            w.u64(self.statfs.kb_used_internal_metadata());
            w.put(&self.statfs);
            w.put(&self.os_alerts);
            w.u64(self.num_shards_repaired);
            w.u32(self.num_osds);
            w.u32(self.num_per_pool_osds);
            w.u32(self.num_per_pool_omap_osds);
            w.put(&self.hb_pingtime);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<OsdStat, Error> {
        r.envelope("OsdStat", 14, 14, |r, _| {
            for _ in 0..3 {
                r.u64()?; // what statfs tells again
            }
            let (snap_trim_queue_len, num_snap_trimming) = (r.i32()?, r.i32()?);
            let hb_peers = r.get()?;
            let _hb_out: Vec<OsdId> = r.get()?;
            let op_queue_age_hist = r.get()?;
            let os_perf_stat = r.get()?;
            let (up_from, seq, num_pgs) = (r.u32()?, r.u64()?, r.u32()?);
            for _ in 0..3 {
                r.u64()?;
            }
            Ok(OsdStat {
                statfs: r.get()?,
                hb_peers,
                snap_trim_queue_len,
                num_snap_trimming,
                op_queue_age_hist,
                os_perf_stat,
                up_from,
                seq,
                num_pgs,
                os_alerts: r.get()?,
                num_shards_repaired: r.u64()?,
                num_osds: r.u32()?,
                num_per_pool_osds: r.u32()?,
                num_per_pool_omap_osds: r.u32()?,
                hb_pingtime: r.get()?,
            })
        })
    }
}
