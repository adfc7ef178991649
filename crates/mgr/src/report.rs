//! Reports to the monitors: sums, findings, services. One every `mgr_tick_period`, and one soon
//! after something that users wait for (a PG's state, an OSD's first report).

use std::rc::Rc;
use std::time::Duration;

use denc::Writer;
use maps::pgmap::DeltaSettings;
use messages::{LogEntry, MLog, MMonMgrReport, Message, PaxosHeader};
use types::entity::{EntityName, MGR};
use types::{AuthEntityName, UTime};

use crate::daemon::Mgr;
use crate::daemons::DaemonKey;
use crate::{autoscaler, commands, health};

/// News wait this long for others.
const GATHER: Duration = Duration::from_millis(20);

/// Runs until the manager stops.
pub(crate) async fn run(mgr: Rc<Mgr>) {
    let (mut seq, mut logged) = (0, Duration::ZERO);
    while !mgr.stopped.get() {
        let period = mgr.config.duration("mgr_tick_period");
        if mgr.env.timeout(period, mgr.report_now.notified()).await.is_ok() {
            mgr.env.sleep(GATHER).await;
        }
        if mgr.active.get() && !mgr.stopped.get() {
            if !mgr.knows_crashes.replace(true) {
                // A manager that becomes active finds what others were told.
                let of_task = mgr.clone();
                mgr.env.go(async move {
                    if commands::crash::load(&of_task).await.is_err() {
                        of_task.knows_crashes.set(false);
                    }
                });
            }
            tick(&mgr);
            mgr.pgs_told.notify_all();
            let due = mgr.env.now() >= logged + period;
            if due && log_pgmap(&mgr, seq + 1) {
                (seq, logged) = (seq + 1, mgr.env.now());
            }
        }
    }
}

/// How rates are smoothed, from the options.
pub(crate) fn smoothing(mgr: &Mgr) -> DeltaSettings {
    DeltaSettings {
        smooth_intervals: usize::try_from(mgr.config.uint("mon_stat_smooth_intervals"))
            .unwrap_or(6),
        reset_interval_secs: mgr.config.float("mon_delta_reset_interval") as u32,
    }
}

fn tick(mgr: &Mgr) {
    let now = UTime::from_duration(mgr.env.wall_clock());
    let map = mgr.osdmaps.current();
    let period = mgr.config.duration("mgr_stats_period");
    let active_for = mgr.env.now().saturating_sub(mgr.active_since.get());
    let mut cluster = mgr.cluster.borrow_mut();
    {
        let mut daemons = mgr.daemons.borrow_mut();
        // Those that another manager knew have as long to come here.
        let active_since = mgr.active_since.get();
        let heard = |key: &DaemonKey| {
            let daemon = daemons.find(&key.kind, &key.name);
            daemon.map_or(active_since, |daemon| daemon.heard.max(active_since))
        };
        let grace = mgr.config.duration("mgr_service_beacon_grace");
        for key in cluster.silent_services(heard, mgr.env.now(), grace) {
            tracing::info!("{} is gone: it has not been heard of", key.text());
            cluster.service_gone(&key.kind, &key.name, now);
            daemons.close(&key);
        }
    }
    cluster.apply(now, smoothing(mgr));
    cluster.check_ready(&map, active_for, period);
    if !cluster.ready {
        return;
    }
    let mut checks = health::of_pgs(&cluster.pg_map, &map, &mgr.config, now);
    health::of_daemons(&mgr.daemons.borrow(), &mut checks);
    autoscaler::health(mgr, &map, &cluster.pg_map, &mut checks);
    let recent = mgr.config.duration("mgr/crash/warn_recent_interval");
    commands::crash::health(&mgr.crashes.borrow(), now, recent, &mut checks);
    let mut digest = Writer::new();
    digest.put(&cluster.pg_map.digest_for(&map));
    let mut services = Writer::new();
    if cluster.service_map_dirty {
        services.put(&cluster.service_map);
    }
    let report = MMonMgrReport {
        health_checks: checks,
        service_map: services.into_bytes(),
        gid: mgr.monc.global_id(),
        pg_map_digest: digest.into_bytes(),
        progress_events: mgr.progress.borrow().for_monitors(mgr.env.wall_clock().as_secs_f64()),
        ..MMonMgrReport::default()
    };
    if mgr.monc.session().is_some() {
        mgr.monc.send(report.encode());
    }
}

/// Writes the PGs' sums into the cluster log, for who watches that they move. Whether it was sent.
fn log_pgmap(mgr: &Mgr, seq: u64) -> bool {
    let mut cluster = mgr.cluster.borrow_mut();
    if !cluster.ready || mgr.monc.session().is_none() {
        return false;
    }
    let map = mgr.osdmaps.current();
    let digest = cluster.pg_map.digest_for(&map);
    let entry = LogEntry {
        name: AuthEntityName { kind: MGR.into(), id: mgr.id().to_owned() },
        rank: EntityName { kind: MGR, num: mgr.monc.global_id() as i64 },
        addrs: mgr.messenger.addrs(),
        stamp: UTime::from_duration(mgr.env.wall_clock()),
        seq,
        prio: 0, // debug
        msg: format!("pgmap v{}: {}", cluster.pg_map.version, digest.oneline().trim_end()),
        channel: "cluster".to_owned(),
    };
    let message = MLog { paxos: PaxosHeader::default(), fsid: map.fsid, entries: vec![entry] };
    mgr.monc.send(message.encode());
    true
}
