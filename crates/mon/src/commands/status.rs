//! `status`, `health`, `versions`, `features`, `node ls` and their like.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use command::{CommandReply, Format, Formatter};
use maps::HealthMute;
use maps::osdmap::osdmap_flags;
use types::{Errno, UTime};

use super::cmd::{Cmd, CmdResult, done, fail, refuse, unhandled};
use crate::core::MonCore;
use crate::health::span_text;

/// Counts by name as an object.
pub(crate) fn dump_counts(f: &mut Formatter, name: &str, counts: &BTreeMap<String, u64>) {
    f.object(name, |f| counts.iter().for_each(|(key, n)| f.dump_unsigned(key, *n)));
}

impl MonCore {
    pub(crate) fn cmd_status(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "status" => {
                self.refresh_health();
                Ok(cmd.output(|f| self.dump_status(f), || self.status_text()))
            }
            "health" => {
                self.refresh_health();
                let detail = cmd.map.opt_string("detail")?.is_some_and(|d| d == "detail");
                Ok(cmd.output(|f| self.dump_health(f, detail), || self.health_text(detail, "; ")))
            }
            "health mute" => self.health_mute(cmd),
            "health unmute" => {
                match cmd.map.opt_string("code")? {
                    Some(code) => drop(self.health.mutes.remove(&code)),
                    None => self.health.mutes.clear(),
                }
                self.put_mutes();
                done()
            }
            "df" => self.df(cmd),
            "fsid" => {
                let fsid = self.monmap.fsid;
                Ok(cmd.output(
                    |f| f.object("fsid", |f| f.dump_stream("fsid", fsid)),
                    || fsid.to_string(),
                ))
            }
            "versions" => {
                let kinds = [
                    ("mon", self.mon_counts("ceph_version")),
                    ("mgr", self.mgr_counts("ceph_version")),
                    ("osd", self.osd_counts("ceph_version")),
                    ("mds", self.mds_counts("ceph_version")),
                ];
                let mut overall: BTreeMap<String, u64> = BTreeMap::new();
                for (_, counts) in &kinds {
                    for (version, n) in counts {
                        *overall.entry(version.clone()).or_default() += n;
                    }
                }
                Ok(cmd.structured(|f| {
                    f.object("version", |f| {
                        kinds.iter().for_each(|(kind, counts)| dump_counts(f, kind, counts));
                        dump_counts(f, "overall", &overall);
                    });
                }))
            }
            "features" => Ok(cmd.structured(|f| self.dump_feature_map(f, "features"))),
            "quorum_status" => Ok(cmd.compact(|f| self.dump_quorum_status(f))),
            "time-sync-status" => Ok(cmd.structured(|f| self.dump_time_sync(f))),
            "node ls" => self.node_ls(cmd),
            "report" => Ok(self.report(cmd)),
            "tell" => fail(Errno::EINVAL, "tell goes to the daemon itself"),
            _ => unhandled(),
        }
    }

    fn health_mute(&mut self, cmd: &Cmd) -> CmdResult {
        self.refresh_health();
        let code = cmd.string("code")?;
        let sticky = cmd.map.flag("sticky");
        let mut ttl = UTime::ZERO;
        if let Some(text) = cmd.map.opt_string("ttl")? {
            let bad = |why: &dyn std::fmt::Display| {
                refuse(Errno::EINVAL, format!("invalid duration: {text} ({why})"))
            };
            let secs = config::parse_secs(&text).map_err(|why| bad(&why))?;
            if secs == 0 {
                return Err(bad(&"timespan = 0"));
            }
            ttl = self.now.wall.plus(std::time::Duration::from_secs(secs));
        }
        // One that stays whatever becomes of the finding remembers nothing of it.
        let check = self.health.checks.checks.get(&code).filter(|_| !sticky);
        if check.is_none() && !sticky {
            return fail(Errno::ENOENT, format!("health alert {code} is not currently raised"));
        }
        let mute = HealthMute {
            code: code.clone(),
            ttl,
            sticky,
            summary: check.map(|c| c.summary.clone()).unwrap_or_default(),
            count: check.map_or(0, |c| c.count),
        };
        self.health.mutes.insert(code, mute);
        self.put_mutes();
        done()
    }

    fn dump_status(&self, f: &mut Formatter) {
        let map = self.osdmap();
        f.object("status", |f| {
            f.dump_stream("fsid", self.monmap.fsid);
            self.dump_health(f, false);
            f.dump_unsigned("election_epoch", self.election_epoch());
            self.dump_quorum(f);
            f.dump_unsigned("quorum_age", self.quorum_age());
            f.object("monmap", |f| {
                f.dump_unsigned("epoch", self.monmap.epoch);
                let release = maps::release::release_name(self.monmap.min_mon_release);
                f.dump_string("min_mon_release_name", release);
                f.dump_unsigned("num_mons", self.monmap.size() as u64);
            });
            f.object("osdmap", |f| self.dump_osd_summary(f, &map));
            f.object("pgmap", |f| self.stat.digest.dump_summary(f));
            f.object("fsmap", |f| self.mds.published.dump_summary(f));
            f.object("mgrmap", |f| {
                let mgr = &self.mgr.published;
                f.dump_bool("available", mgr.available);
                f.dump_unsigned("num_standbys", mgr.standbys.len() as u64);
                f.array("modules", |f| {
                    mgr.modules.iter().for_each(|m| f.dump_string("module", m));
                });
                f.object("services", |f| {
                    mgr.services.iter().for_each(|(name, url)| f.dump_string(name, url));
                });
            });
            f.object("servicemap", |f| self.stat.service_map.dump(f));
            f.object("progress_events", |f| {
                for (id, event) in &self.stat.progress {
                    f.object(id, |f| {
                        f.dump_string("message", &event.message);
                        f.dump_float("progress", f64::from(event.progress));
                        f.dump_bool("add_to_ceph_s", event.add_to_ceph_s);
                    });
                }
            });
        });
    }

    /// Members of `osd stat`.
    pub(crate) fn dump_osd_summary(&self, f: &mut Formatter, map: &maps::OsdMap) {
        f.dump_unsigned("epoch", map.epoch);
        f.dump_unsigned("num_osds", map.num_osds() as u64);
        f.dump_unsigned("num_up_osds", map.num_up_osds() as u64);
        f.dump_unsigned("osd_up_since", map.last_up_change.sec);
        f.dump_unsigned("num_in_osds", map.num_in_osds() as u64);
        f.dump_unsigned("osd_in_since", map.last_in_change.sec);
        f.dump_unsigned("num_remapped_pgs", num_remapped(map));
    }

    /// `3 osds: 3 up (since 3m), 3 in (since 3m)`, with the epoch if asked for; flags that users set
    /// follow on a line of their own behind `indent`.
    pub(crate) fn osd_summary_text(
        &self,
        map: &maps::OsdMap,
        with_epoch: bool,
        indent: &str,
    ) -> String {
        let age = |since: UTime| match since.is_zero() {
            true => String::new(),
            false => format!(" (since {})", span_text(self.now.wall.since(since))),
        };
        let mut out = format!(
            "{} osds: {} up{}, {} in{}",
            map.num_osds(),
            map.num_up_osds(),
            age(map.last_up_change),
            map.num_in_osds(),
            age(map.last_in_change)
        );
        if with_epoch {
            let _ = write!(out, "; epoch: e{}", map.epoch);
        }
        let remapped = num_remapped(map);
        if remapped > 0 {
            let _ = write!(out, "; {remapped} remapped pgs");
        }
        let flags = osdmap_flags::names(map.flags & !osdmap_flags::SEMIHIDDEN);
        if !flags.is_empty() {
            let _ = write!(out, "\n{indent}flags {}", flags.join(","));
        }
        out
    }

    fn status_text(&self) -> String {
        let map = self.osdmap();
        let mut out = String::new();
        let _ = writeln!(out, "  cluster:");
        let _ = writeln!(out, "    id:     {}", self.monmap.fsid);
        let health = self.health_text(false, "\n            ");
        let _ = writeln!(out, "    health: {}\n ", health.trim_end_matches('\n'));
        let _ = writeln!(out, "  services:");
        let services = self.stat.service_map.services.keys().map(String::len);
        let width = services.max().unwrap_or(0).max("osd".len()) + 1;
        let indent = " ".repeat(4 + width + 1);
        let mut rows = vec![("mon".to_string(), self.mon_summary())];
        rows.push(("mgr".to_string(), self.mgr_summary()));
        let fsmap = &self.mds.published;
        if !fsmap.filesystems.is_empty() {
            rows.push(("mds".to_string(), fsmap.daemon_summary()));
        }
        rows.push(("osd".to_string(), self.osd_summary_text(&map, false, &indent)));
        for (name, service) in &self.stat.service_map.services {
            rows.push((name.clone(), service.summary()));
        }
        for (name, text) in &rows {
            let _ = writeln!(out, "    {:width$} {text}", format!("{name}:"));
        }
        let _ = writeln!(out, " \n  data:");
        if !fsmap.filesystems.is_empty() {
            let _ = writeln!(out, "    volumes: {}", fsmap.volume_summary());
        }
        out.push_str(&self.stat.digest.summary());
        let events: Vec<&messages::ProgressEvent> =
            self.stat.progress.values().filter(|e| e.add_to_ceph_s).collect();
        if !events.is_empty() {
            let _ = writeln!(out, "\n  progress:");
            for event in events {
                let _ = writeln!(out, "    {}", event.message);
            }
        }
        out.push_str(" \n");
        out
    }

    /// `3 daemons, quorum a,b (age 5s), out of quorum: c`.
    fn mon_summary(&self) -> String {
        let (n, age) = (self.monmap.size(), span_text(self.quorum_time()));
        let mut out = format!("{n} daemons, quorum {} (age {age})", self.quorum_names().join(","));
        let outside = self.out_of_quorum();
        if !outside.is_empty() {
            let _ = write!(out, ", out of quorum: {}", outside.join(", "));
        }
        out
    }

    /// Clocks of the monitors, as the leader compared them.
    fn dump_time_sync(&self, f: &mut Formatter) {
        f.object("time_sync", |f| {
            if self.monmap.size() > 1 && !self.standing.skews.is_empty() {
                f.object("time_skew_status", |f| {
                    for name in self.quorum_names() {
                        let skew = self.standing.skews.get(name).copied().unwrap_or_default();
                        f.object(name, |f| {
                            f.dump_float("skew", skew.skew);
                            f.dump_float("latency", skew.latency);
                            f.dump_string("health", self.clock_health(name));
                        });
                    }
                });
            }
            f.object("timechecks", |f| {
                f.dump_unsigned("epoch", self.election_epoch());
                f.dump_unsigned("round", self.standing.rounds * 2);
                f.dump_string("round_status", "finished");
            });
        });
    }

    fn mgr_summary(&self) -> String {
        let map = &self.mgr.published;
        let mut out = String::new();
        if map.active_gid == 0 {
            out.push_str("no daemons active");
        } else {
            out.push_str(&map.active_name);
            let state = if map.available { "active" } else { "active, starting" };
            let _ = write!(out, "({state}");
            if !map.active_change.is_zero() {
                let since = span_text(self.now.wall.since(map.active_change));
                let _ = write!(out, ", since {since}");
            }
            out.push(')');
        }
        if map.active_gid == 0 && !map.active_change.is_zero() {
            let since = span_text(self.now.wall.since(map.active_change));
            let _ = write!(out, " (since {since})");
        }
        if !map.standbys.is_empty() {
            let names: Vec<&str> = map.standbys.values().map(|s| s.name.as_str()).collect();
            let _ = write!(out, ", standbys: {}", names.join(", "));
        }
        out
    }

    fn node_ls(&self, cmd: &Cmd) -> CmdResult {
        let kind = cmd.map.opt_string("type")?.unwrap_or_else(|| "all".to_string());
        let host = |facts: Option<&BTreeMap<String, String>>| {
            facts.and_then(|f| f.get("hostname")).cloned().unwrap_or_default()
        };
        let mut mons: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, facts) in &self.mon_metadata {
            mons.entry(host(Some(facts))).or_default().push(name.clone());
        }
        let mut osds: BTreeMap<String, Vec<i32>> = BTreeMap::new();
        let map = self.osdmap();
        for osd in map.osds() {
            if let Some(facts) = self.osd.metadata.get(&osd) {
                osds.entry(host(Some(facts))).or_default().push(osd);
            }
        }
        let mut mgrs: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in self.mgr.published.all_names() {
            mgrs.entry(host(self.mgr.metadata.get(&name))).or_default().push(name);
        }
        let mdss = self.mds_by_host();
        let names = |f: &mut Formatter, section: &str, hosts: &BTreeMap<String, Vec<String>>| {
            f.object(section, |f| {
                for (host, names) in hosts {
                    f.array(host, |f| names.iter().for_each(|n| f.dump_string("name", n)));
                }
            });
        };
        let ids = |f: &mut Formatter, section: &str| {
            f.object(section, |f| {
                for (host, ids) in &osds {
                    f.array(host, |f| ids.iter().for_each(|id| f.dump_int("id", *id)));
                }
            });
        };
        let format = if cmd.format.is_plain() { Format::JsonPretty } else { cmd.format };
        let mut f = Formatter::new(format);
        match kind.as_str() {
            "mon" => names(&mut f, "mon", &mons),
            "osd" => ids(&mut f, "osd"),
            "mgr" => names(&mut f, "mgr", &mgrs),
            "mds" => names(&mut f, "mds", &mdss),
            _ => f.object("nodes", |f| {
                names(f, "mon", &mons);
                ids(f, "osd");
                if !mdss.is_empty() {
                    names(f, "mds", &mdss);
                }
                names(f, "mgr", &mgrs);
            }),
        }
        Ok(CommandReply::formatted(f))
    }
}

/// Placement groups with a temporary acting set.
fn num_remapped(map: &maps::OsdMap) -> u64 {
    map.pg_temp.len() as u64
}
