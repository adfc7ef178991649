//! OSDs that go down: what peers report, what they say themselves, and silence.
//!
//! A report from a peer whose connection was refused is believed at once. Others are believed
//! when enough reporters from different parts of the CRUSH tree agree for longer than the grace.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use maps::OsdMap;
use maps::osdmap::osd_state;
use messages::{
    FAILURE_FAILED, FAILURE_IMMEDIATE, MOSDBeacon, MOSDFailure, MOSDMarkMeDead, MOSDMarkMeDown,
};
use types::{AddrVec, Epoch, OsdId, RawMessage};

use crate::clog::{INFO, WARN};
use crate::core::MonCore;
use crate::event::SessionId;
use crate::event::wire;

/// Reports about one OSD, by reporter.
#[derive(Debug, Default)]
pub(crate) struct FailureReports {
    reporters: BTreeMap<OsdId, Report>,
}

#[derive(Debug, Clone, Copy)]
struct Report {
    /// Since when the OSD has failed.
    since: Duration,
    /// When the reporter said so last: ours say it every few seconds, Ceph's once.
    heard: Duration,
}

impl MonCore {
    pub(crate) fn on_osd_failure(&mut self, from: SessionId, raw: &RawMessage, m: MOSDFailure) {
        let Some(reporter) = self.osd_of_session(from) else { return };
        let map = self.next_map();
        let target = m.target_osd;
        let epoch = m.epoch;
        if m.fsid != self.monmap.fsid || !self.speaks_for(from, reporter, &map) {
            self.send_latest_of(from, epoch);
            return;
        }
        // The report may be about an earlier run of the OSD: with other addresses, or with the same, by
        // who has not heard yet that it came up again.
        let about_this_run = map.is_up(target)
            && map.up_from(target) <= epoch
            && map.addrs(target).is_some_and(|addrs| addrs.shares_any(&m.target_addrs));
        if !about_this_run {
            self.send_latest_of(from, epoch);
            return;
        }
        if m.flags & FAILURE_FAILED == 0 {
            if let Some(reports) = self.osd.failures.get_mut(&target) {
                reports.reporters.remove(&reporter);
                let addrs = map.addrs(target).map(ToString::to_string).unwrap_or_default();
                let text =
                    format!("osd.{target} {addrs} failure report canceled by osd.{reporter}");
                self.log_own("cluster", crate::clog::DEBUG, text);
            }
            return;
        }
        if !self.can_mark_down(target) {
            return;
        }
        if m.flags & FAILURE_IMMEDIATE != 0 {
            let by = format!(
                "osd.{target} failed ({}) (connection refused reported by osd.{reporter})",
                self.crush_path_text(target)
            );
            self.log_own("cluster", INFO, by);
            self.mark_down(target);
            // Nobody listens: the process has ended, and with it its leases.
            self.mark_dead(target);
            return;
        }
        let failed_for = Duration::from_secs(u64::try_from(m.failed_for).unwrap_or(0));
        let since = self.now.mono.saturating_sub(failed_for);
        let reports = self.osd.failures.entry(target).or_default();
        let heard = self.now.mono;
        let report = reports.reporters.entry(reporter).or_insert(Report { since, heard });
        *report = Report { since: report.since.min(since), heard };
        let text = format!("osd.{target} reported failed by osd.{reporter}");
        self.log_own("cluster", crate::clog::DEBUG, text);
        self.check_failure(target);
        let _ = raw;
    }

    /// Marks an OSD down if its reports suffice.
    pub(crate) fn check_failure(&mut self, target: OsdId) -> bool {
        let map = self.next_map();
        if !map.is_up(target) {
            self.osd.failures.remove(&target);
            return false;
        }
        let grace = self.failure_grace(target);
        let level = self.conf.str("mon_osd_reporter_subtree_level");
        let needed = self.conf.uint("mon_osd_min_down_reporters") as usize;
        let Some(reports) = self.osd.failures.get_mut(&target) else { return false };
        reports.reporters.retain(|reporter, _| map.is_up(*reporter));
        let failed_since = reports.reporters.values().map(|report| report.since).max();
        let reporters: Vec<OsdId> = reports.reporters.keys().copied().collect();
        let Some(failed_since) = failed_since else { return false };
        let failed_for = self.now.mono.saturating_sub(failed_since);
        let mut subtrees = BTreeSet::new();
        for reporter in &reporters {
            let location = self.crush_location(*reporter);
            let name = location.iter().find(|(kind, _)| *kind == level).map(|(_, name)| name);
            subtrees.insert(name.cloned().unwrap_or_else(|| format!("osd.{reporter}")));
        }
        if failed_for < grace || subtrees.len() < needed.max(1) {
            return false;
        }
        if !self.can_mark_down(target) {
            return false;
        }
        let text = format!(
            "osd.{target} failed ({}) ({} reporters from different {level} after {:.6} >= grace {:.6})",
            self.crush_path_text(target),
            subtrees.len(),
            failed_for.as_secs_f64(),
            grace.as_secs_f64()
        );
        self.log_own("cluster", INFO, text);
        self.mark_down(target);
        true
    }

    /// Reports that have not sufficed and were not repeated for long are forgotten: somebody has failed to take his back,
    /// and the next one of another would suffice with it (`OSDMonitor::is_failure_stale`).
    fn forget_stale_reports(&mut self, target: OsdId) {
        let grace = self.conf.duration("osd_heartbeat_grace");
        let stale = grace + self.conf.duration("osd_heartbeat_stale");
        let now = self.now.mono;
        let Some(reports) = self.osd.failures.get_mut(&target) else { return };
        reports.reporters.retain(|_, report| now.saturating_sub(report.heard) < stale);
        if reports.reporters.is_empty() {
            self.osd.failures.remove(&target);
        }
    }

    /// How long reports must last: the heartbeat grace, longer for an OSD known to be laggy.
    fn failure_grace(&self, target: OsdId) -> Duration {
        let mut grace = self.conf.float("osd_heartbeat_grace");
        if self.conf.bool("mon_osd_adjust_heartbeat_grace")
            && let Some(x) = self.osd.map.xinfo(target)
        {
            let halflife = self.conf.float("mon_osd_laggy_halflife").max(1.0);
            let down_for = self.now.wall.since(x.down_stamp).as_secs_f64();
            let decay = (down_for * -(2f64.ln()) / halflife).exp();
            grace += decay * f64::from(x.laggy_interval) * f64::from(x.laggy_probability);
        }
        Duration::try_from_secs_f64(grace).unwrap_or_default()
    }

    /// Toggles an OSD that is up to down.
    pub(crate) fn mark_down(&mut self, osd: OsdId) {
        let state = self.osd_state(osd);
        self.set_osd_state(osd, state & !osd_state::UP);
        self.osd.failures.remove(&osd);
    }

    /// Its process has ended: nobody need wait for the leases it had.
    pub(crate) fn mark_dead(&mut self, osd: OsdId) {
        let known = self.next_map().xinfo(osd).cloned().unwrap_or_default();
        let inc = self.inc();
        let epoch = inc.epoch;
        inc.new_xinfo.entry(osd).or_insert(known).dead_epoch = epoch;
    }

    /// Whether flags and the share of OSDs that are up allow to mark it down: the share before, as
    /// Ceph has it (`OSDMonitor::can_mark_down`).
    pub(crate) fn can_mark_down(&mut self, osd: OsdId) -> bool {
        let map = self.next_map();
        if map.has_flag(maps::osdmap::osdmap_flags::NODOWN)
            || self.osd_flags(osd) & osd_state::NODOWN != 0
        {
            return false;
        }
        let total = map.num_osds();
        if total == 0 {
            return false;
        }
        let up = map.num_up_osds() as f64 / total as f64;
        up >= self.conf.float("mon_osd_min_up_ratio")
    }

    /// An OSD that stops in order.
    pub(crate) fn on_mark_me_down(&mut self, from: SessionId, raw: &RawMessage, m: MOSDMarkMeDown) {
        let Some(osd) = self.osd_of_session(from) else { return };
        if m.fsid != self.monmap.fsid || osd != m.target_osd {
            return;
        }
        let map = self.next_map();
        let current =
            map.is_up(osd) && map.addrs(osd).is_some_and(|addrs| addrs.shares_any(&m.target_addrs));
        if current && self.can_mark_down(osd) {
            let how = if m.down_and_dead { "down and dead" } else { "down" };
            self.log_own("cluster", INFO, format!("osd.{osd} marked itself {how}"));
            self.mark_down(osd);
            if m.down_and_dead {
                self.mark_dead(osd);
            }
        }
        if m.request_ack {
            // The same message is the acknowledgement; it leaves after the commit.
            let ack = MOSDMarkMeDown { request_ack: false, ..m };
            self.send(from, wire(&ack).with_tid(raw.header.tid));
        }
    }

    /// An OSD that is certainly dead: others need not wait for its leases.
    pub(crate) fn on_mark_me_dead(&mut self, from: SessionId, m: MOSDMarkMeDead) {
        let Some(osd) = self.osd_of_session(from) else { return };
        let map = self.next_map();
        if m.fsid != self.monmap.fsid || osd != m.target_osd {
            return;
        }
        if !map.exists(osd) || map.is_up(osd) {
            return;
        }
        let known = map.xinfo(osd).cloned().unwrap_or_default();
        if known.dead_epoch >= m.epoch {
            return;
        }
        let inc = self.inc();
        let x = inc.new_xinfo.entry(osd).or_insert(known);
        x.dead_epoch = m.epoch;
    }

    pub(crate) fn on_beacon(&mut self, from: SessionId, m: MOSDBeacon) {
        let Some(osd) = self.osd_of_session(from) else { return };
        let map = self.osdmap();
        if !self.speaks_for(from, osd, &map) {
            if !map.is_up(osd) {
                self.send_latest(from, m.paxos.version as Epoch + 1);
            }
            return;
        }
        let interval =
            Duration::from_secs(u64::try_from(m.osd_beacon_report_interval).unwrap_or(0));
        self.osd.last_report.insert(osd, (self.now.mono, interval));
        self.osd.clean_epochs.report(osd, &m, &map);
        let known = map.xinfo(osd).cloned().unwrap_or_default();
        if known.last_purged_snaps_scrub != m.last_purged_snaps_scrub {
            let inc = self.inc();
            let x = inc.new_xinfo.entry(osd).or_insert(known);
            x.last_purged_snaps_scrub = m.last_purged_snaps_scrub;
        }
    }

    /// Marks down OSDs that were not heard of for too long, and looks at reports again whose
    /// grace may have passed.
    pub(crate) fn tick_failures(&mut self) {
        let map = self.osdmap();
        let timeout = self.conf.duration("mon_osd_report_timeout");
        for osd in map.up_osds().collect::<Vec<_>>() {
            // A monitor that has just begun gives everybody the whole time.
            let now = self.now.mono;
            let (heard, interval) = *self.osd.last_report.entry(osd).or_insert((now, timeout));
            if now.saturating_sub(heard) > timeout.max(interval) && self.can_mark_down(osd) {
                let silent = now.saturating_sub(heard).as_secs();
                let text = format!("osd.{osd} marked down after no beacon for {silent} seconds");
                self.log_own("cluster", WARN, text);
                self.mark_down(osd);
            }
        }
        for target in self.osd.failures.keys().copied().collect::<Vec<_>>() {
            if !self.check_failure(target) {
                self.forget_stale_reports(target);
            }
        }
    }

    /// The newest maps for a sender whose map is old.
    fn send_latest_of(&mut self, to: SessionId, epoch: Epoch) {
        if epoch < self.osd.published.epoch {
            self.send_incrementals(to, epoch + 1, false);
        }
    }

    /// The OSD behind a session, if it is one and may act as one.
    pub(crate) fn osd_of_session(&self, id: SessionId) -> Option<OsdId> {
        let session = self.sessions.get(&id)?;
        if !session.peer.name.is_osd() || !session.caps.allows(&session.peer, "osd", "x") {
            return None;
        }
        OsdId::try_from(session.peer.name.num).ok()
    }

    /// Whether a session is of that run of an OSD that the map has up: what an earlier run said may come
    /// late.
    pub(crate) fn speaks_for(&self, session: SessionId, osd: OsdId, map: &OsdMap) -> bool {
        let Some(session) = self.sessions.get(&session) else { return false };
        let is_of = |addrs: &AddrVec| addrs.shares_any(&session.peer.addrs);
        map.is_up(osd) && map.addrs(osd).is_some_and(is_of)
    }

    /// noup, nodown, noin, noout of an OSD: its own, its buckets' and its class's.
    pub(crate) fn osd_flags(&mut self, osd: OsdId) -> u32 {
        let map = self.next_map();
        let mut flags = map.state(osd);
        if let Some(class) = map.crush.classes.get(&osd) {
            flags |= map.device_class_flags.get(class).copied().unwrap_or(0);
        }
        let mut node = osd;
        for _ in 0..32 {
            flags |= map.crush_node_flags.get(&node).copied().unwrap_or(0);
            let parent = map.crush.each_bucket().find(|b| b.items.contains(&node)).map(|b| b.id);
            match parent {
                Some(parent) => node = parent,
                None => break,
            }
        }
        flags
    }

    /// `root=default,host=a`, for the log.
    fn crush_path_text(&self, osd: OsdId) -> String {
        let mut parts: Vec<String> = self
            .crush_location(osd)
            .into_iter()
            .map(|(kind, name)| format!("{kind}={name}"))
            .collect();
        parts.reverse();
        parts.join(",")
    }
}
