//! What of file systems is a matter of health (`FSMap::get_health_checks`,
//! `MDSMap::get_health_checks` and `src/messages/MMDSBeacon.h` at v16.2).

use std::collections::BTreeMap;

use maps::mdsmap::{MdsMap, mds_flags};
use maps::{HealthCheckMap, Severity};

use crate::core::MonCore;

/// What MDSs find wrong, by Ceph's number from 1 on: its code and what is said of all.
const METRICS: [(&str, &str); 14] = [
    ("MDS_TRIM", "MDSs behind on trimming"),
    ("MDS_CLIENT_RECALL", "clients failing to respond to cache pressure"),
    ("MDS_CLIENT_LATE_RELEASE", "clients failing to respond to capability release"),
    ("MDS_CLIENT_RECALL_MANY", "MDSs have many clients failing to respond to cache pressure"),
    (
        "MDS_CLIENT_LATE_RELEASE_MANY",
        "MDSs have many clients failing to respond to capability release",
    ),
    ("MDS_CLIENT_OLDEST_TID", "clients failing to advance oldest client/flush tid"),
    ("MDS_CLIENT_OLDEST_TID_MANY", "MDSs have clients failing to advance oldest client/flush tid"),
    ("MDS_DAMAGE", "MDSs report damaged metadata"),
    ("MDS_READ_ONLY", "MDSs are read only"),
    ("MDS_SLOW_REQUEST", "MDSs report slow requests"),
    ("MDS_CACHE_OVERSIZED", "MDSs report oversized cache"),
    ("MDS_SLOW_METADATA_IO", "MDSs report slow metadata IOs"),
    ("MDS_CLIENTS_LAGGY", "client(s) laggy due to laggy OSDs"),
    ("MDS_DUMMY", ""),
];

/// Findings about file systems: how many there are is told when all are counted.
struct ByFs<'a> {
    checks: &'a mut HealthCheckMap,
    /// By code: the file systems, and what follows their number.
    counted: BTreeMap<&'static str, (i64, [&'static str; 2])>,
}

impl ByFs<'_> {
    /// A finding about one file system: `1 filesystem WHAT`, `2 filesystems WHAT`, with the verb in one
    /// and in several.
    fn add(
        &mut self,
        code: &'static str,
        severity: Severity,
        what: [&'static str; 2],
        line: String,
    ) {
        self.checks.add(code, severity, "", 1).detail.push(line);
        self.counted.entry(code).or_insert((0, what)).0 += 1;
    }

    fn say_numbers(self) {
        for (code, (count, [one, several])) in self.counted {
            let text = match count {
                1 => format!("1 filesystem {one}"),
                _ => format!("{count} filesystems {several}"),
            };
            self.checks.add(code, Severity::Ok, text, 0);
        }
    }
}

fn check_fs(map: &MdsMap, found: &mut ByFs<'_>) {
    let name = &map.fs_name;
    if map.is_degraded() {
        let what = ["is degraded", "are degraded"];
        found.add("FS_DEGRADED", Severity::Warn, what, format!("fs {name} is degraded"));
    }
    let (in_, max) = (map.in_.len(), map.max_mds.max(0) as usize);
    if in_ < max {
        let what =
            ["is online with fewer MDS than max_mds", "are online with fewer MDS than max_mds"];
        let line = format!("fs {name} has {in_} MDS online, but wants {max}");
        found.add("MDS_UP_LESS_THAN_MAX", Severity::Warn, what, line);
    }
    if map.up.is_empty() && max > 0 {
        let line = format!("fs {name} is offline because no MDS is active for it.");
        found.add("MDS_ALL_DOWN", Severity::Err, ["is offline", "are offline"], line);
    }
    let ever = u32::from(map.ever_allowed_features);
    if max > 1
        && ever & mds_flags::ALLOW_SNAPS != 0
        && !map.has_flag(mds_flags::ALLOW_MULTIMDS_SNAPS)
    {
        let what =
            ["is multi-active mds with old snapshots", "are multi-active mds with old snapshots"];
        let line = "multi-active mds while there are snapshots possibly created by pre-mimic MDS";
        found.add("MULTIMDS_WITH_OLDSNAPS", Severity::Err, what, line.to_string());
    }
    if map.inline_data {
        let what = "with deprecated feature inline_data";
        let line = format!("fs {name} has deprecated feature inline_data enabled.");
        found.add("FS_INLINE_DATA_DEPRECATED", Severity::Warn, [what, what], line);
    }
}

impl MonCore {
    pub(crate) fn check_filesystems(&self, checks: &mut HealthCheckMap) {
        let map = &self.mds.published;
        let mut found = ByFs { checks, counted: BTreeMap::new() };
        let (waiting, mut lacking) = (map.standby_daemons.len(), 0);
        for fs in map.filesystems.values() {
            check_fs(&fs.mds_map, &mut found);
            // One that somebody is about to take is no matter yet.
            let failed = fs.mds_map.failed.iter();
            let stuck =
                failed.filter(|rank| map.replacement_for(fs.fscid, **rank).is_none()).count();
            if stuck > 0 {
                let plural = if stuck > 1 { "s" } else { "" };
                let line = format!("fs {} has {stuck} failed mds{plural}", fs.name());
                let what = ["has a failed mds daemon", "have a failed mds daemon"];
                found.add("FS_WITH_FAILED_MDS", Severity::Warn, what, line);
            }
            lacking = lacking.max(fs.mds_map.standbys_lacking(waiting));
        }
        found.say_numbers();
        for fs in map.filesystems.values() {
            for rank in &fs.mds_map.damaged {
                let line = format!("fs {} mds.{rank} is damaged", fs.name());
                checks.add("MDS_DAMAGE", Severity::Err, "", 1).detail.push(line);
            }
        }
        if let Some(check) = checks.checks.get_mut("MDS_DAMAGE") {
            let n = check.count;
            check.summary = format!("{n} mds daemon{} damaged", if n == 1 { "" } else { "s" });
        }
        if lacking > 0 {
            let summary = "insufficient standby MDS daemons available";
            let check = checks.add("MDS_INSUFFICIENT_STANDBY", Severity::Warn, summary, 1);
            check.detail.push(format!("have {waiting}; want {lacking} more"));
        }
        self.check_mds_metrics(checks);
    }

    /// What MDSs find wrong themselves.
    fn check_mds_metrics(&self, checks: &mut HealthCheckMap) {
        let mut lines: BTreeMap<usize, (Severity, Vec<String>)> = BTreeMap::new();
        for (gid, health) in &self.mds.health {
            let Some(info) = self.mds.published.mds(*gid) else { continue };
            for metric in &health.metrics {
                let severity = if metric.severity == 0 { Severity::Err } else { Severity::Warn };
                let mut line = format!("mds.{}(mds.{}): {}", info.name, info.rank, metric.message);
                let facts: Vec<String> =
                    metric.metadata.iter().map(|(key, value)| format!("{key}: {value}")).collect();
                if !facts.is_empty() {
                    line.push(' ');
                    line.push_str(&facts.join(", "));
                }
                let kind = usize::from(metric.kind).wrapping_sub(1);
                let entry = lines.entry(kind).or_insert((severity, Vec::new()));
                entry.0 = entry.0.min(severity);
                entry.1.push(line);
            }
        }
        for (kind, (severity, lines)) in lines {
            let (code, what) = METRICS.get(kind).copied().unwrap_or(("???", ""));
            let count = lines.len();
            let summary =
                if what.is_empty() { "???".to_string() } else { format!("{count} {what}") };
            checks.add(code, severity, summary, count as i64).detail.extend(lines);
        }
    }
}
