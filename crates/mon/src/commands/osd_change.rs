//! `osd ...`: OSDs marked down, out, in, lost, removed; weights, ratios and limits of the map.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use command::format_stream_float;
use maps::osdmap::{WEIGHT_IN, WEIGHT_OUT, osd_state};
use types::{Errno, OsdId};

use super::cmd::{Cmd, CmdResult, Refusal, done, fail, not_yet, refuse, say};
use super::osd_query::parse_osd_id;
use crate::clog::INFO;
use crate::core::MonCore;
use crate::event::SessionId;

impl MonCore {
    pub(crate) fn cmd_osd_change(&mut self, cmd: &Cmd) -> CmdResult {
        match cmd.prefix.as_str() {
            "osd down" | "osd out" | "osd in" | "osd rm" | "osd stop" => self.osd_mark(cmd),
            "osd reweight" => {
                let osd = self.existing_osd(cmd)?;
                let weight = cmd.map.float("weight")?;
                let fixed = (weight * f64::from(WEIGHT_IN)) as u32;
                self.set_osd_weight(osd, fixed);
                let shown = format_stream_float(weight);
                say(format!("reweighted osd.{osd} to {shown} ({fixed:x})"))
            }
            "osd reweightn" => self.reweightn(cmd),
            "osd primary-affinity" => {
                let osd = self.existing_osd(cmd)?;
                let weight = cmd.map.float("weight")?;
                let fixed = (weight * f64::from(WEIGHT_IN)) as u32;
                self.inc().new_primary_affinity.insert(osd, fixed);
                let shown = format_stream_float(weight);
                // Ceph prints the numbers of its own format flags around the value.
                say(format!("set osd.{osd} primary-affinity to {shown} (8{fixed}2)"))
            }
            "osd lost" => self.osd_lost(cmd),
            "osd setmaxosd" => self.set_max_osd(cmd),
            "osd set-full-ratio" | "osd set-backfillfull-ratio" | "osd set-nearfull-ratio" => {
                let ratio = cmd.map.float("ratio")?;
                let inc = self.inc();
                match cmd.prefix.as_str() {
                    "osd set-full-ratio" => inc.new_full_ratio = ratio as f32,
                    "osd set-backfillfull-ratio" => inc.new_backfillfull_ratio = ratio as f32,
                    _ => inc.new_nearfull_ratio = ratio as f32,
                }
                say(format!("{} {}", cmd.prefix, format_stream_float(ratio)))
            }
            "osd require-osd-release" => self.require_release(cmd),
            "osd set-require-min-compat-client" => self.require_client(cmd),
            "osd new" | "osd create" | "osd destroy-actual" | "osd purge-actual"
            | "osd purge-new" => self.cmd_osd_create(cmd),
            "osd set" | "osd unset" | "osd pause" | "osd unpause" | "osd set-group"
            | "osd unset-group" => self.cmd_osd_flags(cmd),
            prefix if prefix.starts_with("osd add-no") || prefix.starts_with("osd rm-no") => {
                self.cmd_osd_flags(cmd)
            }
            _ => self.cmd_osd_misc(cmd),
        }
    }

    /// The OSD that `id` names, which must exist.
    pub(crate) fn existing_osd(&mut self, cmd: &Cmd) -> Result<OsdId, Refusal> {
        let osd = self.osd_id(cmd, "id")?;
        if !self.next_map().exists(osd) {
            return fail(Errno::ENOENT, format!("osd.{osd} does not exist"));
        }
        Ok(osd)
    }

    /// down, out, in, rm and stop of several OSDs; words about each.
    fn osd_mark(&mut self, cmd: &Cmd) -> CmdResult {
        let verb = cmd.prefix.trim_start_matches("osd ").to_string();
        let definitely_dead = cmd.map.flag("definitely_dead");
        let ids = cmd.map.strings("ids")?;
        let any = ids.first().is_some_and(|id| matches!(id.as_str(), "any" | "all" | "*"));
        let map = self.next_map();
        let mut words = String::new();
        let mut failed = None;
        // Others are done for all that.
        let known = |id: &String| match parse_osd_id(id) {
            Ok(osd) => Some(osd),
            Err(refusal) => {
                words.push_str(&refusal.text);
                failed = Some(refusal.errno);
                None
            }
        };
        let osds: Vec<OsdId> = match any {
            true => map
                .osds()
                .filter(|osd| match verb.as_str() {
                    "down" | "stop" => map.is_up(*osd),
                    "out" => map.is_in(*osd),
                    "in" => map.is_out(*osd),
                    _ => true,
                })
                .collect(),
            false => ids.iter().filter_map(known).collect(),
        };
        let mut removed = 0;
        for osd in osds {
            let map = self.next_map();
            if !map.exists(osd) {
                let _ = write!(words, "osd.{osd} does not exist. ");
                continue;
            }
            match verb.as_str() {
                "down" => {
                    if map.is_down(osd) {
                        let _ = write!(words, "osd.{osd} is already down. ");
                    } else {
                        self.mark_down(osd);
                        let _ = write!(words, "marked down osd.{osd}. ");
                    }
                    if definitely_dead {
                        let known = map.xinfo(osd).cloned().unwrap_or_default();
                        let inc = self.inc();
                        let epoch = inc.epoch;
                        inc.new_xinfo.entry(osd).or_insert(known).dead_epoch = epoch;
                    }
                }
                "stop" if map.state(osd) & osd_state::STOP != 0 => {
                    let _ = write!(words, "osd.{osd} is already stopped. ");
                }
                "stop" if map.is_down(osd) => {
                    self.set_osd_state(osd, map.state(osd) | osd_state::STOP);
                    let _ = write!(words, "stop down osd.{osd}. ");
                }
                "stop" => {
                    self.set_osd_state(osd, (map.state(osd) & !osd_state::UP) | osd_state::STOP);
                    let _ = write!(words, "stop osd.{osd}. ");
                }
                "out" if map.is_out(osd) => {
                    let _ = write!(words, "osd.{osd} is already out. ");
                }
                "out" => {
                    let weight = map.weight(osd);
                    let known = map.xinfo(osd).cloned().unwrap_or_default();
                    self.set_osd_weight(osd, WEIGHT_OUT);
                    self.inc().new_xinfo.entry(osd).or_insert(known).old_weight = weight;
                    let _ = write!(words, "marked out osd.{osd}. ");
                    self.log_marked_out(cmd.session, osd, map.is_up(osd));
                }
                "in" if map.is_in(osd) => {
                    let _ = write!(words, "osd.{osd} is already in. ");
                }
                "in" => {
                    let known = map.xinfo(osd).cloned().unwrap_or_default();
                    if known.old_weight > 0 {
                        self.set_osd_weight(osd, known.old_weight);
                        self.inc().new_xinfo.entry(osd).or_insert(known).old_weight = 0;
                    } else {
                        self.set_osd_weight(osd, WEIGHT_IN);
                    }
                    let _ = write!(words, "marked in osd.{osd}. ");
                }
                _ if map.is_up(osd) => {
                    failed = Some(Errno::EBUSY);
                    let _ = write!(words, "osd.{osd} is still up; must be down before removal. ");
                }
                _ => {
                    self.remove_osd(osd);
                    let before = if removed == 0 { "removed " } else { ", " };
                    let _ = write!(words, "{before}osd.{osd}");
                    removed += 1;
                }
            }
        }
        match failed {
            Some(errno) => fail(errno, words),
            None => say(words),
        }
    }

    /// Who took an OSD out of service, for whoever wonders later why data moves.
    fn log_marked_out(&mut self, session: SessionId, osd: OsdId, is_up: bool) {
        let Some(session) = self.sessions.get(&session) else { return };
        let who = &session.peer.auth_name;
        let how = match is_up {
            true => ", while it was still marked up".to_string(),
            false => format!(", after it was down for {} seconds", self.down_for(osd).as_secs()),
        };
        self.log_own("cluster", INFO, format!("Client {who} marked osd.{osd} out{how}"));
    }

    fn reweightn(&mut self, cmd: &Cmd) -> CmdResult {
        let text = cmd.string("weights")?;
        let bad = || refuse(Errno::EINVAL, format!("unable to parse 'weights' value '{text}'"));
        let parsed: BTreeMap<String, String> = serde_json::from_str(&text).map_err(|_| bad())?;
        let map = self.next_map();
        let mut weights = BTreeMap::new();
        for (id, weight) in parsed {
            let osd: OsdId = id.parse().map_err(|_| bad())?;
            let weight: u32 = weight.parse().map_err(|_| bad())?;
            if !map.exists(osd) {
                return fail(Errno::ENOENT, bad().text);
            }
            if weight > WEIGHT_IN {
                return Err(bad());
            }
            weights.insert(osd, weight);
        }
        for (osd, weight) in weights {
            self.set_osd_weight(osd, weight);
        }
        done()
    }

    fn osd_lost(&mut self, cmd: &Cmd) -> CmdResult {
        let osd = self.osd_id(cmd, "id")?;
        if !cmd.map.flag("yes_i_really_mean_it") {
            return fail(
                Errno::EPERM,
                "are you SURE?  this might mean real, permanent data loss.  pass --yes-i-really-mean-it if you really do.",
            );
        }
        let map = self.next_map();
        if !map.exists(osd) {
            return fail(Errno::ENOENT, format!("osd.{osd} does not exist"));
        }
        if map.is_up(osd) {
            return fail(Errno::EBUSY, format!("osd.{osd} is not down"));
        }
        let epoch = map.info(osd).map_or(0, |info| info.down_at);
        self.inc().new_lost.insert(osd, epoch);
        say(format!("marked osd lost in epoch {epoch}"))
    }

    fn set_max_osd(&mut self, cmd: &Cmd) -> CmdResult {
        let max = cmd.map.int("newmax")?;
        let limit = self.max_osd_limit();
        if max > limit {
            return fail(
                Errno::ERANGE,
                format!("cannot set max_osd to {max} which is > conf.mon_max_osd ({limit})"),
            );
        }
        let map = self.next_map();
        let Ok(max) = i32::try_from(max) else { return fail(Errno::ERANGE, "") };
        if let Some(osd) = (max.max(0)..map.max_osd).find(|osd| map.exists(*osd)) {
            return fail(
                Errno::EBUSY,
                format!(
                    "cannot shrink max_osd to {max} because osd.{osd} (and possibly others) still in use"
                ),
            );
        }
        // What is pending may name a number that goes, if only to remove its OSD.
        if max < map.max_osd && self.is_osdmap_pending() {
            return not_yet();
        }
        self.inc().new_max_osd = max;
        say(format!("set new max_osd = {max}"))
    }

    fn require_release(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("release")?;
        let map = self.next_map();
        let Some(release) = maps::release::release_number(&name) else {
            return fail(Errno::EINVAL, format!("unrecognized release {name}"));
        };
        if release < map.require_osd_release {
            return fail(
                Errno::EPERM,
                "require_osd_release cannot be lowered once it has been set",
            );
        }
        if release > map.require_osd_release {
            self.inc().new_require_osd_release = release;
        }
        done()
    }

    fn require_client(&mut self, cmd: &Cmd) -> CmdResult {
        let name = cmd.string("version")?;
        let Some(release) = maps::release::release_number(&name) else {
            return fail(Errno::EINVAL, format!("version {name} is not recognized"));
        };
        let map = self.next_map();
        let used = map.min_compat_client();
        if used > release {
            let used = maps::release::release_name(used);
            return fail(
                Errno::EPERM,
                format!(
                    "osdmap current utilizes features that require {used}; cannot set require_min_compat_client below that to {name}"
                ),
            );
        }
        if !cmd.map.flag("yes_i_really_mean_it") {
            let old = self.connected_before(release);
            if !old.is_empty() {
                let old = old.join("; ");
                return fail(
                    Errno::EPERM,
                    format!(
                        "cannot set require_min_compat_client to {name}: {old}; add --yes-i-really-mean-it to do it anyway"
                    ),
                );
            }
        }
        self.inc().new_require_min_compat_client = release;
        say(format!("set require_min_compat_client to {name}"))
    }
}
