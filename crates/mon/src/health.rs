//! The cluster's health: what the monitor itself finds and what the manager reports, with mutes
//! (`src/mon/HealthMonitor.cc` and `OSDMap::check_health` at v16.2).

use std::collections::BTreeMap;
use std::fmt::Write as _;

use command::{ByteU, Formatter};
use denc::Denc;
use maps::osdmap::{osd_state, osdmap_flags};
use maps::pool::pool_flags;
use maps::{HealthCheck, HealthCheckMap, HealthMute, OsdMap, Severity};
use store::Kv;
use types::UTime;

use crate::clog::{ERROR, INFO, WARN};
use crate::core::{LoadError, MonCore};
use crate::full_ratios::out_of_order;
use crate::layout;
use crate::standing::Role;

/// State of the service.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// All findings, as of the last tick or change.
    pub(crate) checks: HealthCheckMap,
    /// What is not to be shown, by code.
    pub(crate) mutes: BTreeMap<String, HealthMute>,
    /// Summaries already logged.
    logged: BTreeMap<String, String>,
}

impl Health {
    pub(crate) fn load(kv: &dyn Kv) -> Result<Health, LoadError> {
        let mut health = Health::default();
        if let Some(bytes) = layout::get(kv, layout::HEALTH, "mutes")? {
            health.mutes = Denc::from_bytes(&bytes)
                .map_err(|error| LoadError::Decode { what: "health/mutes".into(), error })?;
        }
        Ok(health)
    }
}

/// Findings of which a leader knows only what the monitors have told it since it leads: of their clocks and
/// disks.
const TOLD_BY_MONS: [&str; 4] = ["MON_CLOCK_SKEW", "MON_DISK_BIG", "MON_DISK_CRIT", "MON_DISK_LOW"];
/// Rounds of questions after which a leader has the answers to the first.
const ROUNDS_MIN: u32 = 2;

/// Why a mute ends whatever becomes of its finding.
fn why_expired(mute: &HealthMute, now: UTime) -> Option<String> {
    let passed = !mute.ttl.is_zero() && mute.ttl <= now;
    passed.then(|| format!("passed TTL {}", mute.ttl))
}

/// Why a mute ends, with its finding as it is now.
fn why_over(mute: &HealthMute, check: Option<&HealthCheck>) -> Option<String> {
    if mute.sticky {
        return None;
    }
    let Some(check) = check else {
        return Some("health alert cleared".into());
    };
    if mute.count == 0 {
        return (mute.summary != check.summary).then(|| "summary changed".into());
    }
    let grown = check.count > mute.count;
    grown.then(|| format!("count increased from {} to {}", mute.count, check.count))
}

/// `mon.b, mon.c`.
fn mon_list(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("mon.{name}")).collect();
    names.join(", ")
}

impl MonCore {
    /// Finds out anew how the cluster is, and logs what is new.
    pub(crate) fn tick_health(&mut self) {
        self.refresh_health();
        self.expire_mutes();
        self.log_health();
    }

    pub(crate) fn refresh_health(&mut self) {
        let mut checks = HealthCheckMap::default();
        self.check_osdmap(&mut checks);
        self.check_mons(&mut checks);
        self.check_disks(&mut checks);
        self.check_mgr(&mut checks);
        self.check_filesystems(&mut checks);
        self.check_auth(&mut checks);
        checks.merge(self.stat.health.clone());
        self.health.checks = checks;
    }

    fn check_mons(&self, checks: &mut HealthCheckMap) {
        let (all, inside) = (self.monmap.size(), self.quorum_names().len());
        // A cluster being made is not ill because not all of it is there yet.
        let age = self.now.wall.since(self.monmap.created);
        let grace = self.conf.duration("mon_down_mkfs_grace");
        if self.standing.role != Role::Out && inside < all && age > grace {
            let down = all - inside;
            let check = checks.add(
                "MON_DOWN",
                Severity::Warn,
                format!("{down}/{all} mons down, quorum {}", self.quorum_names().join(",")),
                down as i64,
            );
            for name in self.out_of_quorum() {
                let Some(mon) = self.monmap.mon_info.get(name) else { continue };
                let rank = self.monmap.rank_of(name).unwrap_or(0);
                check.detail.push(format!(
                    "mon.{name} (rank {rank}) addr {} is down (out of quorum)",
                    mon.public_addrs
                ));
            }
        }
        let skewed: Vec<&str> = self
            .quorum_names()
            .into_iter()
            .filter(|name| self.clock_health(name) != "HEALTH_OK")
            .collect();
        if !skewed.is_empty() {
            let text = format!("clock skew detected on {}", mon_list(&skewed));
            let check = checks.add("MON_CLOCK_SKEW", Severity::Warn, text, skewed.len() as i64);
            for name in skewed {
                let skew = self.standing.skews.get(name).copied().unwrap_or_default();
                let max = self.conf.float("mon_clock_drift_allowed");
                check.detail.push(format!(
                    "mon.{name} clock skew {:.6}s > max {max}s (latency {:.6}s)",
                    skew.skew.abs(),
                    skew.latency
                ));
            }
        }
    }

    /// Monitors whose store's file system has little room left, or whose store takes much of it.
    fn check_disks(&self, checks: &mut HealthCheckMap) {
        let crit = self.conf.uint("mon_data_avail_crit");
        let warn = self.conf.uint("mon_data_avail_warn");
        let big = self.conf.uint("mon_data_size_warn");
        let (mut very_low, mut low, mut large) = (Vec::new(), Vec::new(), Vec::new());
        for (name, disk) in &self.standing.disks {
            let avail = disk.avail_percent;
            let text = format!("mon.{name} has {avail}% avail");
            if avail <= crit {
                very_low.push((name, text));
            } else if avail <= warn {
                low.push((name, text));
            }
            if disk.stored_bytes >= big {
                let (stored, big) = (ByteU(disk.stored_bytes), ByteU(big));
                large.push((name, format!("mon.{name} is {stored} >= mon_data_size_warn ({big})")));
            }
        }
        for (code, severity, found, what) in [
            ("MON_DISK_CRIT", Severity::Err, very_low, "very low on available space"),
            ("MON_DISK_LOW", Severity::Warn, low, "low on available space"),
            ("MON_DISK_BIG", Severity::Warn, large, "using a lot of disk space"),
        ] {
            let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
            let (mons, are) = match names.len() {
                0 => continue,
                1 => ("mon", "is"),
                _ => ("mons", "are"),
            };
            let text = format!("{mons} {} {are} {what}", names.join(","));
            let check = checks.add(code, severity, text, names.len() as i64);
            check.detail = found.into_iter().map(|(_, text)| text).collect();
        }
    }

    /// Whether a monitor's clock is near enough to the leader's.
    pub(crate) fn clock_health(&self, name: &str) -> &'static str {
        let skew = self.standing.skews.get(name).map_or(0.0, |skew| skew.skew.abs());
        match skew > self.conf.float("mon_clock_drift_allowed") {
            true => "HEALTH_WARN",
            false => "HEALTH_OK",
        }
    }

    fn check_mgr(&self, checks: &mut HealthCheckMap) {
        let map = &self.mgr.published;
        if map.available {
            return;
        }
        let since = map.active_change.max(self.monmap.created);
        let grace = self.conf.duration(if map.epoch <= 1 {
            "mon_mgr_mkfs_grace"
        } else {
            "mon_mgr_inactive_grace"
        });
        let inactive = self.now.wall.since(since);
        if inactive <= grace && (map.epoch <= 1 || map.active_gid != 0) {
            return;
        }
        checks.add("MGR_DOWN", Severity::Warn, "no active mgr", 0);
    }

    fn check_auth(&self, checks: &mut HealthCheckMap) {
        let allowed = self.conf.bool("auth_allow_insecure_global_id_reclaim");
        let warn = self.conf.bool("mon_warn_on_insecure_global_id_reclaim_allowed");
        let required = self.conf.str("auth_client_required").contains("cephx");
        if allowed && warn && required {
            let check = checks.add(
                "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED",
                Severity::Warn,
                "mon is allowing insecure global_id reclaim",
                1,
            );
            check.detail.push(format!(
                "mon.{} has auth_allow_insecure_global_id_reclaim set to true",
                self.identity.name
            ));
        }
    }

    fn check_osdmap(&self, checks: &mut HealthCheckMap) {
        let map = self.osdmap();
        check_down(&map, checks);
        let flags = map.flags
            & (osdmap_flags::PAUSERD
                | osdmap_flags::PAUSEWR
                | osdmap_flags::PAUSEREC
                | osdmap_flags::NOUP
                | osdmap_flags::NODOWN
                | osdmap_flags::NOIN
                | osdmap_flags::NOOUT
                | osdmap_flags::NOBACKFILL
                | osdmap_flags::NORECOVER
                | osdmap_flags::NOSCRUB
                | osdmap_flags::NODEEP_SCRUB
                | osdmap_flags::NOTIERAGENT
                | osdmap_flags::NOSNAPTRIM
                | osdmap_flags::NOREBALANCE);
        if flags != 0 {
            let names = osdmap_flags::names(flags).join(",");
            // Ceph counts the letters.
            let count = names.len() as i64;
            checks.add("OSDMAP_FLAGS", Severity::Warn, format!("{names} flag(s) set"), count);
        }
        check_osd_flags(&map, checks);
        check_pool_scrub_flags(&map, checks);
        self.check_fullness(&map, checks);
        self.check_pools(&map, checks);
        let wanted = self.conf.int("osd_pool_default_size");
        let osds = map.num_osds() as i64;
        if self.conf.bool("mon_warn_on_too_few_osds") && osds < wanted {
            checks.add(
                "TOO_FEW_OSDS",
                Severity::Warn,
                format!("OSD count {osds} < osd_pool_default_size {wanted}"),
                0,
            );
        }
        if self.conf.bool("mon_warn_on_legacy_crush_tunables") {
            let jewel = crush::Tunables::jewel();
            let t = &map.crush.tunables;
            if !t.same_behaviour(&jewel) && t.chooseleaf_vary_r == 0 {
                checks.add(
                    "OLD_CRUSH_TUNABLES",
                    Severity::Warn,
                    "crush map has legacy tunables",
                    0,
                );
            }
        }
        if self.conf.bool("mon_warn_on_osd_down_out_interval_zero")
            && self.conf.int("mon_osd_down_out_interval") == 0
        {
            checks.add(
                "OSD_NO_DOWN_OUT_INTERVAL",
                Severity::Warn,
                format!("mon.{} has mon_osd_down_out_interval set to 0", self.identity.name),
                0,
            );
        }
    }

    fn check_fullness(&self, map: &OsdMap, checks: &mut HealthCheckMap) {
        let detail = out_of_order(map, self.conf.float("osd_failsafe_full_ratio"));
        if !detail.is_empty() {
            let summary = "full ratio(s) out of order".to_string();
            checks.add("OSD_OUT_OF_ORDER_FULL", Severity::Err, summary, 0).detail = detail;
        }
        for (bit, code, severity, word, words) in [
            (osd_state::FULL, "OSD_FULL", Severity::Err, "full", "full"),
            (
                osd_state::BACKFILLFULL,
                "OSD_BACKFILLFULL",
                Severity::Warn,
                "backfillfull",
                "backfill full",
            ),
            (osd_state::NEARFULL, "OSD_NEARFULL", Severity::Warn, "nearfull", "near full"),
        ] {
            let osds: Vec<i32> =
                map.osds().filter(|osd| map.is_in(*osd) && map.state(*osd) & bit != 0).collect();
            if osds.is_empty() {
                continue;
            }
            let summary = format!("{} {word} osd(s)", osds.len());
            let check = checks.add(code, severity, summary, osds.len() as i64);
            check.detail.extend(osds.iter().map(|osd| format!("osd.{osd} is {words}")));
        }
    }

    fn check_pools(&self, map: &OsdMap, checks: &mut HealthCheckMap) {
        let name = |id: &i64| map.pool_names.get(id).cloned().unwrap_or_default();
        let mut full = Vec::new();
        let (mut near, mut backfill, mut single) = (Vec::new(), Vec::new(), Vec::new());
        for (id, pool) in &map.pools {
            if pool.has_flag(pool_flags::FULL_QUOTA) {
                full.push(format!("pool '{}' is full (running out of quota)", name(id)));
            } else if pool.has_flag(pool_flags::FULL) {
                full.push(format!("pool '{}' is full (no space)", name(id)));
            } else if pool.has_flag(pool_flags::BACKFILLFULL) {
                backfill.push(format!("pool '{}' is backfillfull", name(id)));
            } else if pool.has_flag(pool_flags::NEARFULL) {
                near.push(format!("pool '{}' is nearfull", name(id)));
            }
            if pool.size == 1 && self.conf.bool("mon_warn_on_pool_no_redundancy") {
                single.push(format!("pool '{}' has no replicas configured", name(id)));
            }
        }
        for (lines, code, text) in [
            (full, "POOL_FULL", "pool(s) full"),
            (backfill, "POOL_BACKFILLFULL", "pool(s) backfillfull"),
            (near, "POOL_NEARFULL", "pool(s) nearfull"),
            (single, "POOL_NO_REDUNDANCY", "pool(s) have no replicas configured"),
        ] {
            if lines.is_empty() {
                continue;
            }
            let summary = format!("{} {text}", lines.len());
            let count = lines.len() as i64;
            checks.add(code, Severity::Warn, summary, count).detail.extend(lines);
        }
    }

    /// `HealthMonitor::check_mutes`: a mute ends with its time and, unless it is sticky, when its finding goes or
    /// grows; it shrinks with it, so that what comes again is shown.
    fn expire_mutes(&mut self) {
        let now = self.now.wall;
        let checks = &self.health.checks.checks;
        // Before the others have answered a leader does not know that a finding is gone or smaller.
        let heard = self.standing.rounds >= ROUNDS_MIN;
        let (mut over, mut changed) = (Vec::new(), false);
        self.health.mutes.retain(|code, mute| {
            let known = heard || !TOLD_BY_MONS.contains(&code.as_str());
            let check = checks.get(code);
            let why = why_expired(mute, now);
            if let Some(why) = why.or_else(|| why_over(mute, check).filter(|_| known)) {
                over.push(format!("Health alert mute {code} cleared ({why})"));
                return false;
            }
            if !known {
                return true;
            }
            if let Some(check) = check.filter(|c| !mute.sticky && c.count < mute.count) {
                mute.count = check.count;
                changed = true;
            }
            true
        });
        if changed || !over.is_empty() {
            self.put_mutes();
        }
        for text in over {
            self.log_own("cluster", INFO, text);
        }
    }

    pub(crate) fn put_mutes(&mut self) {
        let bytes = self.health.mutes.to_bytes();
        self.batch().put(layout::key(layout::HEALTH, "mutes"), bytes);
    }

    fn log_health(&mut self) {
        if !self.conf.bool("mon_health_to_clog") {
            return;
        }
        let current: Vec<(String, String, Severity)> = self
            .health
            .checks
            .checks
            .iter()
            .map(|(code, check)| (code.clone(), check.summary.clone(), check.severity))
            .collect();
        for (code, summary, severity) in &current {
            let prio = if *severity == Severity::Err { ERROR } else { WARN };
            let text = match self.health.logged.get(code) {
                None => format!("Health check failed: {summary} ({code})"),
                Some(old) if old != summary => format!("Health check update: {summary} ({code})"),
                Some(_) => continue,
            };
            self.log_own("cluster", prio, text);
        }
        let gone: Vec<(String, String)> = self
            .health
            .logged
            .iter()
            .filter(|(code, _)| !self.health.checks.checks.contains_key(*code))
            .map(|(code, summary)| (code.clone(), summary.clone()))
            .collect();
        let any_gone = !gone.is_empty();
        for (code, summary) in gone {
            self.log_own("cluster", INFO, format!("Health check cleared: {code} (was: {summary})"));
        }
        if any_gone && current.is_empty() {
            self.log_own("cluster", INFO, "Cluster is now healthy");
        }
        self.health.logged = current.into_iter().map(|(c, s, _)| (c, s)).collect();
    }

    /// The worst finding that is not muted.
    pub(crate) fn health_status(&self) -> Severity {
        self.health
            .checks
            .checks
            .iter()
            .filter(|(code, _)| !self.health.mutes.contains_key(*code))
            .map(|(_, check)| check.severity)
            .min()
            .unwrap_or(Severity::Ok)
    }

    /// Members `status`, `checks` and `mutes` as an object.
    pub(crate) fn dump_health(&self, f: &mut Formatter, detail: bool) {
        f.object("health", |f| {
            f.dump_string("status", self.health_status().name());
            f.object("checks", |f| {
                for (code, check) in &self.health.checks.checks {
                    f.object(code, |f| {
                        f.dump_string("severity", check.severity.name());
                        f.object("summary", |f| {
                            f.dump_string("message", &check.summary);
                            f.dump_int("count", check.count);
                        });
                        if detail {
                            f.array("detail", |f| {
                                for line in &check.detail {
                                    f.object("detail_item", |f| f.dump_string("message", line));
                                }
                            });
                        }
                        f.dump_bool("muted", self.health.mutes.contains_key(code));
                    });
                }
            });
            f.array("mutes", |f| {
                for mute in self.health.mutes.values() {
                    f.object("mute", |f| {
                        f.dump_string("code", &mute.code);
                        if !mute.ttl.is_zero() {
                            f.dump_stream("ttl", mute.ttl);
                        }
                        f.dump_bool("sticky", mute.sticky);
                        f.dump_string("summary", &mute.summary);
                        f.dump_int("count", mute.count);
                    });
                }
            });
        });
    }

    /// The text of `health`, of `health detail`, or the part of `status`: lines divided by
    /// `separator`.
    pub(crate) fn health_text(&self, detail: bool, separator: &str) -> String {
        let mut out = self.health_status().name().to_string();
        let shown: Vec<(&String, &maps::HealthCheck)> = self
            .health
            .checks
            .checks
            .iter()
            .filter(|(code, _)| !self.health.mutes.contains_key(*code))
            .collect();
        for (i, (_, check)) in shown.iter().enumerate() {
            let between = match (i, separator) {
                (0, "; ") => " ",
                (_, separator) => separator,
            };
            let _ = write!(out, "{between}{}", check.summary);
        }
        let muted: Vec<String> = self
            .health
            .mutes
            .values()
            .map(|mute| match mute.ttl.is_zero() {
                true => mute.code.clone(),
                false => format!("{}({})", mute.code, span_text(mute.ttl.since(self.now.wall))),
            })
            .collect();
        if !muted.is_empty() {
            let between = match (shown.is_empty(), separator) {
                (true, "; ") => " ",
                (_, separator) => separator,
            };
            let _ = write!(out, "{between}(muted: {})", muted.join(" "));
        }
        out.push('\n');
        if detail {
            for (code, check) in &self.health.checks.checks {
                let mute = self.health.mutes.get(code).map_or(String::new(), |mute| {
                    let ttl = match mute.ttl.is_zero() {
                        true => String::new(),
                        false => format!(" ttl {}", span_text(mute.ttl.since(self.now.wall))),
                    };
                    let sticky = if mute.sticky { ", STICKY" } else { "" };
                    format!("(MUTED{ttl}{sticky}) ")
                });
                let level = check.severity.short_name();
                let _ = writeln!(out, "{mute}[{level}] {code}: {}", check.summary);
                for line in &check.detail {
                    let _ = writeln!(out, "    {line}");
                }
            }
        }
        out
    }
}

/// A time span in the two largest units that matter, as Ceph prints ages: `3m`, `26h`, `12d`.
pub(crate) fn span_text(span: std::time::Duration) -> String {
    let s = span.as_secs();
    match s {
        0..=119 => format!("{s}s"),
        120..=7199 => format!("{}m", s / 60),
        7200..=172_799 => format!("{}h", s / 3600),
        172_800..=1_209_599 => format!("{}d", s / 86400),
        1_209_600..=5_183_999 => format!("{}w", s / 604_800),
        5_184_000..=63_071_999 => format!("{}M", s / 2_592_000),
        _ => format!("{}y", s / 31_536_000),
    }
}

/// OSDs that are down though they are in, and whole buckets of them.
fn check_down(map: &OsdMap, checks: &mut HealthCheckMap) {
    let down: Vec<i32> = map.osds().filter(|osd| map.is_down(*osd) && map.is_in(*osd)).collect();
    if down.is_empty() {
        return;
    }
    let mut by_kind: BTreeMap<i32, Vec<(i32, usize)>> = BTreeMap::new();
    for bucket in map.crush.each_bucket() {
        if map.crush.is_shadow(bucket.id) {
            continue;
        }
        let leaves = map.crush.devices_under(bucket.id);
        let existing: Vec<i32> = leaves.into_iter().filter(|osd| map.exists(*osd)).collect();
        let all_down = !existing.is_empty()
            && existing.iter().all(|osd| map.is_down(*osd))
            && existing.iter().any(|osd| map.is_in(*osd));
        if all_down {
            by_kind.entry(bucket.kind.into()).or_default().push((bucket.id, existing.len()));
        }
    }
    for (kind, buckets) in by_kind.iter().rev() {
        let word = map.crush.types.get(kind).cloned().unwrap_or_default();
        let osds: usize = buckets.iter().map(|(_, n)| n).sum();
        let plural = if buckets.len() == 1 { "" } else { "s" };
        let summary = format!("{} {word}{plural} ({osds} osds) down", buckets.len());
        let code = format!("OSD_{}_DOWN", word.to_uppercase());
        let check = checks.add(&code, Severity::Warn, summary, buckets.len() as i64);
        for (id, n) in buckets {
            let name = map.crush.names.get(id).cloned().unwrap_or_default();
            let place = place_text(map, *id);
            check.detail.push(format!("{word} {name} ({place}) ({n} osds) is down"));
        }
    }
    let summary = format!("{} osds down", down.len());
    let check = checks.add("OSD_DOWN", Severity::Warn, summary, down.len() as i64);
    for osd in down {
        check.detail.push(format!("osd.{osd} ({}) is down", place_text(map, osd)));
    }
}

fn place_text(map: &OsdMap, item: i32) -> String {
    let mut parts: Vec<String> = map
        .crush
        .full_location(item)
        .into_iter()
        .map(|(kind, name)| format!("{kind}={name}"))
        .collect();
    parts.reverse();
    parts.join(",")
}

/// Pools that are not scrubbed because somebody said so: told, and no reason to warn.
fn check_pool_scrub_flags(map: &OsdMap, checks: &mut HealthCheckMap) {
    let mut detail = Vec::new();
    let mut set = Vec::new();
    for (flag, text) in
        [(pool_flags::NOSCRUB, "noscrub"), (pool_flags::NODEEP_SCRUB, "nodeep-scrub")]
    {
        let pools = map.pools.iter().filter(|(_, pool)| pool.flags & flag != 0);
        let names: Vec<&str> =
            pools.map(|(id, _)| map.pool_names.get(id).map_or("", String::as_str)).collect();
        if !names.is_empty() {
            set.push(text);
            detail.extend(names.iter().map(|name| format!("Pool {name} has {text} flag")));
        }
    }
    if !set.is_empty() {
        let text = format!("Some pool(s) have the {} flag(s) set", set.join(", "));
        checks.add("POOL_SCRUB_FLAGS", Severity::Ok, text, 0).detail = detail;
    }
}

fn check_osd_flags(map: &OsdMap, checks: &mut HealthCheckMap) {
    let mask = osd_state::NOUP | osd_state::NODOWN | osd_state::NOIN | osd_state::NOOUT;
    // Ceph names them in the order of their letters here.
    let names = |bits: u32| {
        let mut names = osd_state::names(bits & mask);
        names.sort_unstable();
        names.join(",")
    };
    let mut lines = Vec::new();
    for osd in map.osds() {
        if map.state(osd) & mask != 0 {
            lines.push(format!("osd.{osd} has flags {}", names(map.state(osd))));
        }
    }
    for (id, bits) in &map.crush_node_flags {
        let Some(node) = map.crush.names.get(id) else { continue };
        if bits & mask != 0 {
            let kind = map.crush.bucket(*id).map_or(0, |b| i32::from(b.kind));
            let word = map.crush.types.get(&kind).cloned().unwrap_or_default();
            lines.push(format!("{word} {node} has flags {}", names(*bits)));
        }
    }
    for (id, bits) in &map.device_class_flags {
        let Some(class) = map.crush.class_names.get(id) else { continue };
        if bits & mask != 0 {
            lines.push(format!("device class '{class}' has flags {}", names(*bits)));
        }
    }
    if !lines.is_empty() {
        let summary = format!(
            "{} OSDs or CRUSH {{nodes, device-classes}} have {{NOUP,NODOWN,NOIN,NOOUT}} flags set",
            lines.len()
        );
        let count = lines.len() as i64;
        checks.add("OSD_FLAGS", Severity::Warn, summary, count).detail.extend(lines);
    }
}
