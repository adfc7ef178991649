//! Statistics for the manager, fullness for the monitor, warnings of slow requests.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use ::maps::MgrMap;
use bytes::Bytes;
use denc::Denc;
use messages::{DaemonHealthMetric, MMgrOpen, MMgrReport, MPGStats, Message, PaxosHeader};
use msgr::Connection;
use store::Statfs;
use types::entity::MGR;
use types::osd::{ObjectStorePerfStat, OsdStat, StoreStatfs};

use super::Osd;
use crate::tell::counters;

/// News waits this long for more of it.
const SETTLE: Duration = Duration::from_millis(20);
/// Least time between two reports of all PGs, however much changes.
const PAUSE: Duration = Duration::from_millis(300);

impl Osd {
    /// Share of the device that is used, 0..1.
    pub(crate) fn used_ratio(&self) -> f64 {
        let s = self.statfs.get();
        match s.total {
            0 => 0.0,
            total => 1.0 - s.available as f64 / total as f64,
        }
    }

    pub(super) fn on_mgrmap(&self, map: MgrMap) {
        self.monc.got("mgrmap", u64::from(map.epoch));
        let changed = self.mgrmap.borrow().active_gid != map.active_gid
            || self.mgrmap.borrow().active_addrs != map.active_addrs;
        tracing::debug!(epoch = map.epoch, active = map.active_gid, "mgrmap");
        *self.mgrmap.borrow_mut() = map;
        if changed {
            if let Some(old) = self.mgr_con.take() {
                old.mark_down();
            }
            self.connect_mgr();
        }
    }

    fn connect_mgr(&self) {
        if self.is_stopping() || self.mgr_con.borrow().is_some() {
            return;
        }
        let addrs = self.mgrmap.borrow().active_addrs.clone();
        if addrs.is_empty() || self.mgrmap.borrow().active_gid == 0 {
            return;
        }
        let con = self.client.connect_to(MGR, &addrs);
        *self.mgr_con.borrow_mut() = Some(con.clone());
        let open = MMgrOpen {
            daemon_name: self.whoami.to_string(),
            service_name: String::new(),
            service: None,
            config: (self.config.set_values(), self.config.ignored()).to_bytes(),
            config_defaults: self.config.defaults().to_bytes(),
        };
        self.config_told.set(self.config.revision());
        con.send(open.encode());
        self.reporter.opened();
        self.send_report(&con);
    }

    /// A manager that has just come knows nothing, and `loligo up` waits for what it will know: it
    /// is told at once, however short ago the last report was.
    pub(super) fn on_mgr_connect(&self, con: &Connection) {
        if self.mgr_con.borrow().as_ref() == Some(con) && self.is_active() {
            self.send_pg_stats();
        }
    }

    pub(super) fn on_mgr_reset(&self, con: &Connection) {
        let ours = self.mgr_con.borrow().as_ref() == Some(con);
        if ours {
            self.mgr_con.take();
        }
    }

    /// There is news for the manager. The task that reports may be pausing, when it does not hear
    /// the call: so the news is noted, too.
    pub(super) fn report_soon(&self) {
        self.report_due.set(true);
        self.report_now.notify_all();
    }

    /// What this OSD says of itself.
    pub(crate) fn osd_stat(&self) -> OsdStat {
        let s = self.statfs.get();
        self.stat_seq.set(self.stat_seq.get() + 1);
        let up_from = self.up_epoch.get();
        let latency = self.counters.recent_commit_latency(self.env.now());
        let latency_ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        OsdStat {
            statfs: told(&s),
            hb_peers: self.heartbeats.peer_ids(),
            num_pgs: self.pgs.borrow().len() as u32,
            num_osds: 1,
            num_shards_repaired: self.counters.shards_repaired.get(),
            num_per_pool_osds: self.pool_statfs.borrow().is_some().into(),
            up_from,
            seq: u64::from(up_from) << 32 | self.stat_seq.get(),
            hb_pingtime: self.heartbeats.report(),
            // What is submitted can be read at once; Ceph tells the same time twice, too.
            os_perf_stat: ObjectStorePerfStat {
                commit_latency_ns: latency_ns,
                apply_latency_ns: latency_ns,
            },
            ..OsdStat::default()
        }
    }

    /// What pools take, of those that have PGs here; nothing if the store does not know.
    fn pool_stat(&self) -> BTreeMap<i64, StoreStatfs> {
        let known = self.pool_statfs.borrow();
        let Some(known) = &*known else { return BTreeMap::new() };
        let pools = self.all_pgs().into_iter().map(|pg| pg.pgid().pgid.pool);
        pools
            .map(|pool| {
                let space = known.get(&pool).copied().unwrap_or_default();
                (pool as i64, told(&space))
            })
            .collect()
    }

    /// Sends the statistics now; gives their number (`flush_pg_stats`).
    pub(crate) fn send_pg_stats(&self) -> u64 {
        let stat = self.osd_stat();
        let seq = stat.seq;
        let con = self.mgr_con.borrow().clone();
        if let Some(con) = con {
            let map = self.current_map();
            let pg_stat =
                self.all_pgs().iter().filter_map(|pg| Some((pg.pgid().pgid, pg.stat()?))).collect();
            let message = MPGStats {
                paxos: PaxosHeader::default(),
                fsid: map.fsid,
                osd_stat: stat,
                pg_stat,
                epoch: map.epoch,
                pool_stat: self.pool_stat(),
            };
            con.send(Message::encode(&message));
        }
        seq
    }

    /// Counters and health.
    fn send_report(&self, con: &Connection) {
        let counters = counters::counters(self, &self.statfs.get());
        let complaint = self.complaint_time();
        let (slow, oldest, _) = self.tracker.slow_ops(complaint);
        let value = (oldest.as_secs().min(u64::from(u32::MAX)) << 32) | slow as u64;
        let mut report = MMgrReport {
            daemon_name: self.whoami.to_string(),
            daemon_health_metrics: vec![
                DaemonHealthMetric { kind: 0, value: if slow > 0 { value } else { 0 } },
                DaemonHealthMetric { kind: 1, value: 0 },
            ],
            config: self.config_if_changed(),
            rest: MMgrReport::with_osd_metrics(&self.counters.dynamic.take_reports()),
            ..MMgrReport::default()
        };
        self.reporter.fill(&mut report, &counters);
        con.send(report.encode());
    }

    /// The configuration for the manager, empty if it has it.
    fn config_if_changed(&self) -> Bytes {
        let revision = self.config.revision();
        if self.config_told.replace(revision) == revision {
            return Bytes::new();
        }
        (self.config.set_values(), self.config.ignored()).to_bytes()
    }

    fn complaint_time(&self) -> Duration {
        Duration::from_secs_f64(self.config.float("osd_op_complaint_time").clamp(0.1, 1e6))
    }

    pub(super) fn warn_of_slow_ops(&self) {
        let (count, oldest, fresh) = self.tracker.slow_ops(self.complaint_time());
        if fresh.is_empty() {
            return;
        }
        tracing::warn!("{count} slow requests, oldest is {:.1} s old", oldest.as_secs_f64());
        for op in fresh.iter().take(5) {
            tracing::warn!(
                "slow request {:.1} s old: {} currently {}",
                op.age().as_secs_f64(),
                op.describe(),
                op.last_event()
            );
        }
    }
}

/// As the manager is told.
fn told(s: &Statfs) -> StoreStatfs {
    StoreStatfs {
        total: s.total,
        available: s.available,
        internally_reserved: s.internally_reserved,
        allocated: s.allocated as i64,
        data_stored: s.data_stored as i64,
        data_compressed: s.data_compressed as i64,
        data_compressed_allocated: s.data_compressed_allocated as i64,
        data_compressed_original: s.data_compressed_original as i64,
        omap_allocated: s.omap_allocated as i64,
        internal_metadata: s.internal_metadata as i64,
    }
}

/// Reports for ever.
pub(super) async fn run(osd: Rc<Osd>) {
    let now = osd.report_now.clone();
    while !osd.is_stopping() {
        if osd.report_due.get()
            || osd.env.timeout(osd.reporter.period(), now.notified()).await.is_ok()
        {
            osd.env.sleep(SETTLE).await;
        }
        osd.report_due.set(false);
        if osd.is_stopping() {
            return;
        }
        if !osd.is_active() {
            continue;
        }
        osd.connect_mgr();
        let con = osd.mgr_con.borrow().clone();
        if let Some(con) = con {
            osd.send_report(&con);
            osd.send_pg_stats();
            osd.env.sleep(PAUSE).await;
        }
    }
}
