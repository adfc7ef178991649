//! The page of metrics, in Prometheus' text form.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use command::{Format, Formatter};
use maps::osdmap::{WEIGHT_IN, osdmap_flags};
use maps::pool::pool_opts;
use maps::release::PACIFIC;
use maps::{MgrMap, OsdMap, PgPool, ServiceMap};
use messages::DaemonHealthMetric;
use serde_json::Value;
use types::OsdId;
use types::osd::pg_state;

use crate::cluster::Cluster;
use crate::daemon::Mgr;
use crate::daemons::DaemonKey;
use crate::prometheus::{Metadata, counters, ip_of};

/// Flags that have a metric of their own.
const FLAGS: u32 = osdmap_flags::NOUP
    | osdmap_flags::NODOWN
    | osdmap_flags::NOOUT
    | osdmap_flags::NOIN
    | osdmap_flags::NOBACKFILL
    | osdmap_flags::NOREBALANCE
    | osdmap_flags::NORECOVER
    | osdmap_flags::NOSCRUB
    | osdmap_flags::NODEEP_SCRUB;

/// One metric with its samples.
struct Metric {
    kind: &'static str,
    help: String,
    samples: Vec<String>,
}

/// All metrics, by name.
#[derive(Default)]
pub(super) struct Page {
    metrics: BTreeMap<String, Metric>,
}

/// A name as Prometheus wants it: letters, digits, underscores, colons (`promethize` of Ceph's
/// module).
fn clean(name: &str) -> String {
    let name = name.replace("::", "_").replace('+', "_plus");
    let name = name.strip_suffix('-').map_or(name.clone(), |start| format!("{start}_minus"));
    let fits = |c: char| c.is_ascii_alphanumeric() || c == ':';
    name.chars().map(|c| if fits(c) { c } else { '_' }).collect()
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

impl Page {
    pub(super) fn add(
        &mut self,
        kind: &'static str,
        name: &str,
        help: &str,
        labels: &[(&str, &str)],
        value: f64,
    ) {
        let name = format!("ceph_{}", clean(name));
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}=\"{}\"", escaped(value))).collect();
        let labels =
            if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let metric = self.metrics.entry(name.clone()).or_insert_with(|| Metric {
            kind,
            help: help.to_owned(),
            samples: Vec::new(),
        });
        metric.samples.push(format!("{name}{labels} {value:?}"));
    }

    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        for (name, metric) in &self.metrics {
            let help = metric.help.replace('\n', " ");
            let _ = writeln!(out, "\n# HELP {name} {help}\n# TYPE {name} {}", metric.kind);
            for sample in &metric.samples {
                let _ = writeln!(out, "{sample}");
            }
        }
        out
    }
}

/// The whole page.
pub(super) fn page(mgr: &Mgr) -> String {
    let mut page = Page::default();
    let map = mgr.osdmaps.current();
    let mut cluster = mgr.cluster.borrow_mut();
    let metadata = mgr.metadata.borrow();
    let health = parsed(&cluster.digest.health_json);
    of_checks(&mut page, &health, &mut mgr.checks_seen.borrow_mut());
    of_monitors(&mut page, &cluster, &metadata);
    of_managers(&mut page, &mgr.mgrmap.borrow(), &metadata);
    of_osds(&mut page, &map, &cluster, &metadata);
    of_pgs(&mut page, &map, &cluster);
    of_space(&mut page, &map, &mut cluster);
    of_recovery(&mut page, &map, &cluster);
    of_file_systems(&mut page, &metadata);
    of_services(&mut page, &cluster.service_map);
    for (key, daemon) in mgr.daemons.borrow().iter() {
        of_health(&mut page, key, &daemon.health);
        daemon
            .counters
            .iter()
            .for_each(|(path, counter)| counters::add(&mut page, key, path, counter));
    }
    let daemons = mgr.daemons.borrow();
    let told = daemons.iter().flat_map(|(_, daemon)| &daemon.health);
    let slow: u64 =
        told.filter(|m| m.kind == SLOW_OPS).map(|metric| metric.value & 0xffff_ffff).sum();
    page.add("gauge", "healthcheck_slow_ops", "Slow requests of all daemons", &[], slow as f64);
    page.text()
}

fn parsed(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_default()
}

/// The state of health, and each finding by itself. `seen`: those that this manager has shown, with
/// their severity; one that is over stays on the page as 0, so that its end is seen.
fn of_checks(page: &mut Page, health: &Value, seen: &mut BTreeMap<String, String>) {
    let status = match health["status"].as_str() {
        Some("HEALTH_OK") => 0.0,
        Some("HEALTH_WARN") => 1.0,
        _ => 2.0,
    };
    page.add("untyped", "health_status", "Cluster health: 0 ok, 1 warn, 2 error", &[], status);
    let checks = health["checks"].as_object();
    for (name, check) in checks.into_iter().flatten() {
        let severity = check["severity"].as_str().unwrap_or_default();
        seen.insert(name.clone(), severity.to_owned());
    }
    for (name, severity) in &*seen {
        let active = checks.is_some_and(|checks| checks.contains_key(name));
        let labels = [("name", name.as_str()), ("severity", severity.as_str())];
        let help = "Findings of health: 1 while there, 0 when over";
        page.add("gauge", "health_detail", help, &labels, if active { 1.0 } else { 0.0 });
    }
}

fn of_monitors(page: &mut Page, cluster: &Cluster, metadata: &Metadata) {
    let status = parsed(&cluster.digest.mon_status_json);
    let quorum: Vec<u64> =
        status["quorum"].as_array().into_iter().flatten().filter_map(Value::as_u64).collect();
    for mon in status["monmap"]["mons"].as_array().into_iter().flatten() {
        let name = format!("mon.{}", mon["name"].as_str().unwrap_or_default());
        let rank = mon["rank"].as_u64().unwrap_or(0);
        let inside = if quorum.contains(&rank) { 1.0 } else { 0.0 };
        let daemon = [("ceph_daemon", name.as_str())];
        page.add(
            "gauge",
            "mon_quorum_status",
            "Whether the monitor is in the quorum",
            &daemon,
            inside,
        );
        let address = mon["public_addr"].as_str().unwrap_or_default();
        let rank = rank.to_string();
        let labels = [
            ("ceph_daemon", name.as_str()),
            ("hostname", metadata.get(&name, "hostname")),
            ("public_addr", ip_of(address)),
            ("rank", rank.as_str()),
            ("ceph_version", metadata.get(&name, "ceph_version")),
        ];
        page.add("untyped", "mon_metadata", "The monitor's metadata", &labels, 1.0);
    }
}

/// File systems and MDSs, those that stand by too, which are of file system -1.
fn of_file_systems(page: &mut Page, metadata: &Metadata) {
    fn list<'a>(of: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
        of[key].as_array().into_iter().flatten()
    }
    let mut of_mds = |fs_id: &str, info: &Value| {
        let name = format!("mds.{}", info["name"].as_str().unwrap_or_default());
        let rank = info["rank"].to_string();
        let labels = [
            ("ceph_daemon", name.as_str()),
            ("fs_id", fs_id),
            ("hostname", metadata.get(&name, "hostname")),
            ("public_addr", info["addr"].as_str().unwrap_or_default()),
            ("rank", rank.as_str()),
            ("ceph_version", metadata.get(&name, "ceph_version")),
        ];
        page.add("untyped", "mds_metadata", "The MDS's metadata", &labels, 1.0);
    };
    list(&metadata.fsmap, "standbys").for_each(|info| of_mds("-1", info));
    for fs in list(&metadata.fsmap, "filesystems") {
        let infos = fs["mdsmap"]["info"].as_object().into_iter().flatten();
        infos.for_each(|(_, info)| of_mds(&fs["id"].to_string(), info));
    }
    for fs in list(&metadata.fsmap, "filesystems") {
        let map = &fs["mdsmap"];
        let data_pools: Vec<String> = list(map, "data_pools").map(Value::to_string).collect();
        let labels = [
            ("data_pools", &*data_pools.join(",")),
            ("fs_id", &fs["id"].to_string()),
            ("metadata_pool", &map["metadata_pool"].to_string()),
            ("name", map["fs_name"].as_str().unwrap_or_default()),
        ];
        page.add("untyped", "fs_metadata", "The file system's metadata", &labels, 1.0);
    }
}

/// All managers, the active one and those that stand by; the modules.
fn of_managers(page: &mut Page, map: &MgrMap, metadata: &Metadata) {
    let standbys = map.standbys.values().map(|standby| (standby.name.as_str(), 0.0));
    let active = (!map.active_name.is_empty()).then_some((map.active_name.as_str(), 1.0));
    for (id, is_active) in standbys.chain(active) {
        let name = format!("mgr.{id}");
        let labels = [
            ("ceph_daemon", name.as_str()),
            ("hostname", metadata.get(&name, "hostname")),
            ("ceph_version", metadata.get(&name, "ceph_version")),
        ];
        page.add("gauge", "mgr_metadata", "The manager's metadata", &labels, 1.0);
        let help = "Whether the manager is active";
        page.add("gauge", "mgr_status", help, &labels[..1], is_active);
    }
    let always = map.always_on(PACIFIC.into());
    for module in &map.available_modules {
        let labels = [("name", module.name.as_str())];
        let status = match (always.contains(&module.name), map.modules.contains(&module.name)) {
            (true, _) => 2.0,
            (false, true) => 1.0,
            (false, false) => 0.0,
        };
        let help = "The module: 0 disabled, 1 enabled, 2 always on";
        page.add("gauge", "mgr_module_status", help, &labels, status);
        let can_run = if module.can_run { 1.0 } else { 0.0 };
        page.add("gauge", "mgr_module_can_run", "Whether the module can run", &labels, can_run);
    }
}

/// Gateways and mirrors, by what they say of themselves.
fn of_services(page: &mut Page, map: &ServiceMap) {
    let all = map.services.iter().flat_map(|(kind, service)| {
        service.daemons.iter().map(move |(name, daemon)| (kind.as_str(), name, &daemon.metadata))
    });
    for (kind, name, facts) in all {
        let fact = |name: &str| facts.get(name).map_or("", String::as_str);
        let id = if kind == "rgw" { fact("id") } else { name };
        let daemon = format!("{kind}.{id}");
        match kind {
            "rgw" => {
                let labels = [
                    ("ceph_daemon", daemon.as_str()),
                    ("hostname", fact("hostname")),
                    ("ceph_version", fact("ceph_version")),
                    ("instance_id", name),
                ];
                page.add("untyped", "rgw_metadata", "The gateway's metadata", &labels, 1.0);
            }
            "rbd-mirror" => {
                let labels = [
                    ("ceph_daemon", daemon.as_str()),
                    ("id", fact("id")),
                    ("instance_id", fact("instance_id")),
                    ("hostname", fact("hostname")),
                    ("ceph_version", fact("ceph_version")),
                ];
                page.add("untyped", "rbd_mirror_metadata", "The mirror's metadata", &labels, 1.0);
            }
            _ => {}
        }
    }
}

/// Kind of a daemon's health metric: its slow requests, their number in the low half.
const SLOW_OPS: u8 = 0;

/// What daemons say of their health.
fn of_health(page: &mut Page, key: &DaemonKey, health: &[DaemonHealthMetric]) {
    let name = key.text();
    for metric in health {
        let (kind, value) = match metric.kind {
            SLOW_OPS => ("SLOW_OPS", metric.value & 0xffff_ffff),
            _ => ("PENDING_CREATING_PGS", metric.value),
        };
        let labels = [("type", kind), ("ceph_daemon", name.as_str())];
        let help = "What the daemon says of its health";
        page.add("gauge", "daemon_health_metrics", help, &labels, value as f64);
    }
}

fn of_osds(page: &mut Page, map: &OsdMap, cluster: &Cluster, metadata: &Metadata) {
    for osd in map.osds() {
        let name = format!("osd.{osd}");
        let daemon = [("ceph_daemon", name.as_str())];
        let flag = |holds: bool| if holds { 1.0 } else { 0.0 };
        page.add("untyped", "osd_up", "Whether the OSD is up", &daemon, flag(map.is_up(osd)));
        page.add("untyped", "osd_in", "Whether the OSD is in", &daemon, flag(map.is_in(osd)));
        let weight = f64::from(map.weight(osd)) / f64::from(WEIGHT_IN);
        page.add("untyped", "osd_weight", "The OSD's reweight", &daemon, weight);
        let address = map.addrs(osd).map(|addrs| addrs.front().sockaddr_text().to_string());
        let host = metadata.get(&name, "hostname");
        let labels = [
            ("back_iface", metadata.get(&name, "back_iface")),
            ("ceph_daemon", name.as_str()),
            ("cluster_addr", metadata.address(&name, "back_addr")),
            ("device_class", map.crush.class_of(osd).unwrap_or_default()),
            ("front_iface", metadata.get(&name, "front_iface")),
            ("hostname", host),
            ("objectstore", metadata.get(&name, "osd_objectstore")),
            ("public_addr", ip_of(address.as_deref().unwrap_or_default())),
            ("ceph_version", metadata.get(&name, "ceph_version")),
        ];
        page.add("untyped", "osd_metadata", "The OSD's metadata", &labels, 1.0);
        if let Some(stat) = cluster.pg_map.osd_stat.get(&osd) {
            const NANOS_PER_MS: u64 = 1_000_000;
            let perf = &stat.os_perf_stat;
            let latencies = [
                ("osd_commit_latency_ms", "Time until a write is durable", perf.commit_latency_ns),
                ("osd_apply_latency_ms", "Time until a write can be read", perf.apply_latency_ns),
            ];
            for (name, help, nanos) in latencies {
                page.add("gauge", name, help, &daemon, (nanos / NANOS_PER_MS) as f64);
            }
            let bytes = [
                ("osd_stat_bytes", "Size of the store", stat.statfs.total),
                ("osd_stat_bytes_used", "Used space", stat.statfs.used_raw()),
            ];
            for (name, help, value) in bytes {
                page.add("gauge", name, help, &daemon, value as f64);
            }
        }
    }
    of_disks(page, map.osds(), metadata);
    for (bit, name) in osdmap_flags::NAMES.iter().filter(|(bit, _)| FLAGS & bit != 0) {
        let value = if map.has_flag(*bit) { 1.0 } else { 0.0 };
        page.add(
            "untyped",
            &format!("osd_flag_{}", name.replace('-', "_")),
            "The flag is set",
            &[],
            value,
        );
    }
}

/// Which OSD uses which device of which host: node_exporter's metrics are joined by it. Of several OSDs
/// on a device those that are read have one sample.
fn of_disks(page: &mut Page, osds: impl Iterator<Item = OsdId>, metadata: &Metadata) {
    let mut by_device: BTreeMap<(&str, String), Vec<String>> = BTreeMap::new();
    for osd in osds {
        let name = format!("osd.{osd}");
        let fact = |field: &str| metadata.get(&name, field);
        let known = |field| Some(fact(field)).filter(|told| !told.is_empty()).unwrap_or("N/A");
        let (host, devices) = (fact("hostname"), fact("devices"));
        let wal = match fact("osd_objectstore") {
            "filestore" => fact("osd_journal"),
            _ => fact("bluefs_wal_dev_node"),
        };
        for device in devices.split(',').filter(|device| !device.is_empty() && !host.is_empty()) {
            let device = format!("/dev/{device}");
            let labels = [
                ("ceph_daemon", name.as_str()),
                ("device", device.as_str()),
                ("db_device", fact("bluefs_db_dev_node")),
                ("wal_device", wal),
                ("instance", host),
                ("devices", known("devices")),
                ("device_ids", known("device_ids")),
            ];
            page.add("untyped", "disk_occupation", "The OSD uses the device", &labels, 1.0);
            by_device.entry((host, device)).or_default().push(name.clone());
        }
    }
    for ((host, device), osds) in by_device {
        let osds = osds.join(", ");
        let labels = [("ceph_daemon", osds.as_str()), ("device", &device), ("instance", host)];
        page.add("untyped", "disk_occupation_human", "The same, to be read", &labels, 1.0);
    }
}

fn of_pgs(page: &mut Page, map: &OsdMap, cluster: &Cluster) {
    // By pool and name of a state; every name that occurs gets a value for every pool.
    let mut counts: BTreeMap<(i64, String), f64> = BTreeMap::new();
    let known = pg_state::state_string(u64::MAX);
    let names: Vec<String> = known.split('+').chain(["unknown"]).map(str::to_owned).collect();
    for id in map.pools.keys() {
        for name in &names {
            counts.insert((*id, name.clone()), 0.0);
        }
    }
    for (pgid, stat) in &cluster.pg_map.pg_stat {
        for name in pg_state::state_string(stat.state).split('+') {
            *counts.entry((pgid.pool_id(), name.to_owned())).or_default() += 1.0;
        }
    }
    for ((pool, name), count) in counts {
        let pool = pool.to_string();
        let metric = format!("pg_{}", name.replace('-', "_"));
        page.add(
            "gauge",
            &metric,
            &format!("PGs {name} of the pool"),
            &[("pool_id", &pool)],
            count,
        );
    }
    for (id, pool) in &map.pools {
        let labels = [("pool_id", &*id.to_string())];
        page.add("gauge", "pg_total", "PGs of the pool", &labels, f64::from(pool.pg_num));
    }
    let sum = &cluster.pg_map.digest.pg_sum.stats.sum;
    for (name, value) in [
        ("num_objects_degraded", sum.num_objects_degraded),
        ("num_objects_misplaced", sum.num_objects_misplaced),
        ("num_objects_unfound", sum.num_objects_unfound),
    ] {
        page.add("gauge", name, "Copies in that state", &[], value as f64);
    }
}

fn of_space(page: &mut Page, map: &OsdMap, cluster: &mut Cluster) {
    let mut f = Formatter::new(Format::Json);
    f.object("df", |f| cluster.pg_map.digest_for(map).dump_df(map, true, f));
    let df: Value = serde_json::from_str(&f.finish()).unwrap_or_default();
    for (name, help) in [
        ("total_bytes", "Size of all stores"),
        ("total_used_bytes", "Used space"),
        ("total_used_raw_bytes", "Used space, with what stores use themselves"),
    ] {
        let value = df["stats"][name].as_f64().unwrap_or(0.0);
        page.add("gauge", &format!("cluster_{name}"), help, &[], value);
    }
    const OF_POOLS: [&str; 16] = [
        "max_avail",
        "avail_raw",
        "stored",
        "stored_raw",
        "objects",
        "dirty",
        "quota_bytes",
        "quota_objects",
        "rd",
        "rd_bytes",
        "wr",
        "wr_bytes",
        "compress_bytes_used",
        "compress_under_bytes",
        "percent_used",
        "bytes_used",
    ];
    for pool in df["pools"].as_array().into_iter().flatten() {
        let id = pool["id"].as_i64().unwrap_or(0);
        let of = map.pool(id).map(|pool| about(map, pool)).unwrap_or_default();
        let id = id.to_string();
        let labels = [
            ("pool_id", id.as_str()),
            ("name", pool["name"].as_str().unwrap_or_default()),
            ("type", of.kind),
            ("description", of.description.as_str()),
            ("compression_mode", of.compression_mode),
        ];
        page.add("untyped", "pool_metadata", "What the pool is", &labels, 1.0);
        for metric in OF_POOLS {
            let Some(value) = pool["stats"][metric].as_f64() else { continue };
            let grows = ["rd", "rd_bytes", "wr", "wr_bytes"].contains(&metric);
            let kind = if grows { "counter" } else { "gauge" };
            let help = format!("{metric} of the pool, as ceph df has it");
            page.add(kind, &format!("pool_{metric}"), &help, &labels[..1], value);
        }
    }
}

/// What labels tell of a pool.
#[derive(Debug, Default)]
struct About<'a> {
    kind: &'static str,
    description: String,
    compression_mode: &'a str,
}

fn about<'a>(map: &OsdMap, pool: &'a PgPool) -> About<'a> {
    let description = if pool.is_erasure() {
        let profile = map.erasure_code_profiles.get(&pool.erasure_code_profile);
        let chunks = profile.and_then(|of| Some((of.get("k")?, of.get("m")?)));
        chunks.map_or("ec:unknown".to_owned(), |(k, m)| format!("ec:{k}+{m}"))
    } else {
        format!("replica:{}", pool.size)
    };
    let mode = pool_opts::by_name("compression_mode").and_then(|(key, _)| pool.opts.str(key));
    About {
        kind: if pool.is_erasure() { "erasure" } else { "replicated" },
        description,
        compression_mode: mode.unwrap_or("none"),
    }
}

/// What recovery has done in pools, and does now.
fn of_recovery(page: &mut Page, map: &OsdMap, cluster: &Cluster) {
    let digest = &cluster.pg_map.digest;
    for id in map.pools.keys() {
        let mut f = Formatter::new(Format::Json);
        digest.dump_pool_io(map, *id, &mut f);
        let now: Value = serde_json::from_str(&f.finish()).unwrap_or_default();
        let labels = [("pool_id", &*id.to_string())];
        for of in ["objects", "bytes", "keys"] {
            let name = format!("recovering_{of}_per_sec");
            let rate = now["recovery_rate"][&name].as_f64().unwrap_or(0.0);
            let help = format!("{of} that are recovered in a second");
            page.add("gauge", &format!("pool_{name}"), &help, &labels, rate);
        }
        let sum = i32::try_from(*id)
            .ok()
            .and_then(|id| digest.pg_pool_sum.get(&id))
            .map(|pool| pool.stats.sum)
            .unwrap_or_default();
        for (name, help, value) in [
            ("pool_num_objects_recovered", "Objects recovered", sum.num_objects_recovered),
            ("pool_num_bytes_recovered", "Bytes recovered", sum.num_bytes_recovered),
        ] {
            page.add("counter", name, help, &labels, value as f64);
        }
        // Alone in this spelling, as in Ceph.
        let labels = [("poolid", labels[0].1)];
        let value = sum.num_objects_repaired as f64;
        page.add("counter", "pool_objects_repaired", "Objects repaired", &labels, value);
    }
}

#[cfg(test)]
mod tests {
    use maps::mgrmap::StandbyInfo;
    use maps::pool::PoolOpt;
    use maps::servicemap::{Service, ServiceDaemon};
    use serde_json::json;

    use super::*;

    /// What a part of the page says.
    fn samples(fill: impl FnOnce(&mut Page)) -> Vec<String> {
        let mut page = Page::default();
        fill(&mut page);
        let text = page.text();
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    /// `-` became `_minus_` wherever it was: `ceph_throttle_minus_...` is in no dashboard.
    #[test]
    fn names_are_those_of_ceph() {
        for (name, shown) in [
            ("throttle-msgr.get", "throttle_msgr_get"),
            ("a+b", "a_plusb"),
            ("wal-", "wal_minus"),
            ("a::b", "a_b"),
            ("a b/c", "a_b_c"),
        ] {
            assert_eq!(clean(name), shown);
        }
    }

    /// Two OSDs on one device had two samples of `ceph_disk_occupation_human` for it: who joined by it was told that
    /// it matches many to many.
    #[test]
    fn a_device_of_several_osds_is_shown_once() {
        let mut metadata = Metadata::default();
        for osd in [0, 1] {
            metadata.tell(
                &format!("osd.{osd}"),
                json!({
                    "hostname": "h", "devices": "sda", "device_ids": "sda=DISK",
                }),
            );
        }
        metadata.tell(
            "osd.2",
            json!({"hostname": "h", "devices": "sdb", "bluefs_db_dev_node": "/dev/nvme0n1"}),
        );
        metadata.tell("osd.3", json!({"hostname": "h", "devices": ""}));
        let page = samples(|page| of_disks(page, 0..4, &metadata));
        let shared = r#"device="/dev/sda",db_device="",wal_device="",instance="h",devices="sda",device_ids="sda=DISK""#;
        let expected = [
            format!("ceph_disk_occupation{{ceph_daemon=\"osd.0\",{shared}}} 1.0"),
            format!("ceph_disk_occupation{{ceph_daemon=\"osd.1\",{shared}}} 1.0"),
            r#"ceph_disk_occupation{ceph_daemon="osd.2",device="/dev/sdb",db_device="/dev/nvme0n1",wal_device="",instance="h",devices="sdb",device_ids="N/A"} 1.0"#.to_owned(),
            r#"ceph_disk_occupation_human{ceph_daemon="osd.0, osd.1",device="/dev/sda",instance="h"} 1.0"#.to_owned(),
            r#"ceph_disk_occupation_human{ceph_daemon="osd.2",device="/dev/sdb",instance="h"} 1.0"#.to_owned(),
        ];
        assert_eq!(page, expected);
    }

    #[test]
    fn file_systems_and_all_mdss_are_shown() {
        let mut metadata = Metadata::default();
        metadata.tell("mds.a", json!({"hostname": "h", "ceph_version": "v"}));
        metadata.fsmap = json!({
            "standbys": [{"name": "b", "rank": -1, "addr": "1.1.1.1:6801/2"}],
            "filesystems": [{"id": 1, "mdsmap": {
                "fs_name": "cephfs", "metadata_pool": 2, "data_pools": [3, 5],
                "info": {"gid_4107": {"name": "a", "rank": 0, "addr": "1.1.1.1:6800/1"}},
            }}],
        });
        assert_eq!(
            samples(|page| of_file_systems(page, &metadata)),
            [
                r#"ceph_fs_metadata{data_pools="3,5",fs_id="1",metadata_pool="2",name="cephfs"} 1.0"#,
                r#"ceph_mds_metadata{ceph_daemon="mds.b",fs_id="-1",hostname="",public_addr="1.1.1.1:6801/2",rank="-1",ceph_version=""} 1.0"#,
                r#"ceph_mds_metadata{ceph_daemon="mds.a",fs_id="1",hostname="h",public_addr="1.1.1.1:6800/1",rank="0",ceph_version="v"} 1.0"#,
            ]
        );
    }

    /// Managers that stand by were not on the page: nobody was told that there is none to take over.
    #[test]
    fn managers_that_stand_by_are_shown() {
        let standby = StandbyInfo { gid: 2, name: "y".to_owned(), ..StandbyInfo::default() };
        let map = MgrMap {
            active_name: "x".to_owned(),
            standbys: [(2, standby)].into(),
            ..MgrMap::default()
        };
        let mut metadata = Metadata::default();
        metadata.tell("mgr.y", json!({"hostname": "h", "ceph_version": "v"}));
        assert_eq!(
            samples(|page| of_managers(page, &map, &metadata)),
            [
                r#"ceph_mgr_metadata{ceph_daemon="mgr.y",hostname="h",ceph_version="v"} 1.0"#,
                r#"ceph_mgr_metadata{ceph_daemon="mgr.x",hostname="",ceph_version=""} 1.0"#,
                r#"ceph_mgr_status{ceph_daemon="mgr.y"} 0.0"#,
                r#"ceph_mgr_status{ceph_daemon="mgr.x"} 1.0"#,
            ]
        );
    }

    /// Gateways and mirrors were not on the page, only their counters.
    #[test]
    fn gateways_and_mirrors_are_shown() {
        let facts = [("id", "a"), ("hostname", "h"), ("ceph_version", "v"), ("instance_id", "9")];
        let metadata = facts.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let daemon = ServiceDaemon { metadata, ..ServiceDaemon::default() };
        let daemons = BTreeMap::from([("4242".to_owned(), daemon)]);
        let service = Service { daemons, ..Service::default() };
        let kinds = ["rgw", "rbd-mirror", "other"].map(str::to_owned);
        let services = kinds.map(|kind| (kind, service.clone())).into();
        let map = ServiceMap { services, ..ServiceMap::default() };
        assert_eq!(
            samples(|page| of_services(page, &map)),
            [
                r#"ceph_rbd_mirror_metadata{ceph_daemon="rbd-mirror.4242",id="a",instance_id="9",hostname="h",ceph_version="v"} 1.0"#,
                r#"ceph_rgw_metadata{ceph_daemon="rgw.a",hostname="h",ceph_version="v",instance_id="4242"} 1.0"#,
            ]
        );
    }

    /// Dashboards of Ceph show what pools are: `type`, `description` and `compression_mode` were missing.
    #[test]
    fn pools_tell_what_they_are() {
        let mut map = OsdMap::default();
        let profile = [("k", "4"), ("m", "2")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        map.erasure_code_profiles.insert("wide".to_owned(), profile.into());
        let mut replicated = PgPool { kind: 1, size: 3, ..PgPool::default() };
        let (mode, _) = pool_opts::by_name("compression_mode").unwrap();
        replicated.opts.0.insert(mode, PoolOpt::Str("force".to_owned()));
        let of = |pool: &PgPool| {
            let about = about(&map, pool);
            format!("{} {} {}", about.kind, about.description, about.compression_mode)
        };
        assert_eq!(of(&replicated), "replicated replica:3 force");
        let mut coded = PgPool { kind: 3, size: 6, ..PgPool::default() };
        assert_eq!(of(&coded), "erasure ec:unknown none");
        coded.erasure_code_profile = "wide".to_owned();
        assert_eq!(of(&coded), "erasure ec:4+2 none");
    }

    /// Alerts of Ceph's own rules on single findings (`ceph_health_detail{name="OSD_DOWN"}`) never came.
    #[test]
    fn each_finding_has_a_sample_and_keeps_it_when_it_is_over() {
        let mut seen = BTreeMap::new();
        let mut samples = |health: Value| {
            let mut page = Page::default();
            of_checks(&mut page, &health, &mut seen);
            let text = page.text();
            let lines = text.lines().filter(|line| line.starts_with("ceph_health_detail"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(samples(json!({"status": "HEALTH_OK", "checks": {}})).is_empty());
        let checks = json!({"OSD_DOWN": {"severity": "HEALTH_WARN"}, "PG_AVAILABILITY": {}});
        let both = samples(json!({"status": "HEALTH_WARN", "checks": checks}));
        let down = r#"ceph_health_detail{name="OSD_DOWN",severity="HEALTH_WARN"}"#;
        assert_eq!(both[0], format!("{down} 1.0"));
        assert_eq!(both.len(), 2);
        let over = samples(json!({"status": "HEALTH_OK", "checks": {}}));
        assert_eq!((over[0].clone(), over.len()), (format!("{down} 0.0"), 2));
    }
}
