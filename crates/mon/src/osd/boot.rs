//! OSDs that come up, and what they ask of the map afterwards.

use maps::OsdMap;
use maps::osdmap::{WEIGHT_IN, osd_state, osdmap_flags};
use messages::{MOSDAlive, MOSDBoot, MOSDFull, MOSDPGTemp};
use types::{Epoch, OsdId};

use crate::clog::{DEBUG, ERROR, INFO};
use crate::core::MonCore;
use crate::event::SessionId;
use crate::layout::{self, OSD_METADATA};
use denc::Denc as _;

/// What becomes of a boot message.
enum Boot {
    /// It may come up.
    Accept,
    /// It is up as it says.
    Already,
    /// Its map is too old, or it may not come up now: it gets the newest maps.
    Refuse,
    /// noup is set: it gets the newest maps, and is looked at again when the flag is cleared.
    NotNow,
    /// Nothing is answered.
    Ignore,
    /// An earlier run of it is still up: that goes down first.
    DownFirst,
    /// A change of it is under way.
    Wait,
}

impl MonCore {
    pub(crate) fn on_boot(&mut self, from: SessionId, raw: &types::RawMessage, m: MOSDBoot) {
        let Some(osd) = self.osd_of_session(from) else { return };
        let current: Epoch = m.sb.current_epoch;
        match self.check_boot(from, osd, &m) {
            Boot::Ignore => {}
            Boot::NotNow => {
                self.osd.refused_boots.insert(osd, (from, raw.clone()));
                self.send_latest_after_commit(from, current + 1);
            }
            Boot::Already | Boot::Refuse => self.send_latest_after_commit(from, current + 1),
            Boot::Wait => self.retry(from, raw.clone()),
            Boot::DownFirst => {
                self.mark_down(osd);
                // A store has one process at a time: the one before has ended.
                self.mark_dead(osd);
                self.retry(from, raw.clone());
            }
            Boot::Accept => {
                self.mark_up(from, osd, m);
                // Subscribers hear of the new epoch; the OSD itself may not have subscribed yet.
                self.send_latest_after_commit(from, current + 1);
            }
        }
    }

    fn check_boot(&mut self, from: SessionId, osd: OsdId, m: &MOSDBoot) -> Boot {
        let Some(peer) = self.sessions.get(&from).map(|s| s.peer.clone()) else {
            return Boot::Ignore;
        };
        if m.sb.cluster_fsid != self.monmap.fsid || peer.addrs.is_empty() || osd < 0 {
            return Boot::Ignore;
        }
        let max = self.max_osd_limit();
        if i64::from(osd) >= max {
            return Boot::Ignore;
        }
        let map = self.next_map();
        if map.exists(osd) {
            let uuid = map.uuid(osd);
            if !uuid.is_zero() && uuid != m.sb.osd_fsid {
                let text = format!(
                    "osd.{osd} boots with store {} but the map has {uuid}: refused",
                    m.sb.osd_fsid
                );
                self.log_own("cluster", crate::clog::WARN, text);
                return Boot::Ignore;
            }
        }
        let same_addrs = map.addrs(osd).is_some_and(|addrs| *addrs == peer.addrs);
        if map.is_up(osd) && same_addrs {
            if self.pending_inc().new_up_client.contains_key(&osd) {
                return Boot::Already;
            }
            return Boot::Already;
        }
        if map.exists(osd) && same_addrs && map.up_from(osd) > m.paxos.version as Epoch {
            // Sent before it went down in a later epoch.
            return Boot::Refuse;
        }
        if !self.can_mark_up(&map, osd) {
            return Boot::NotNow;
        }
        if map.is_up(osd) {
            if self.pending_inc().new_up_client.contains_key(&osd) {
                return Boot::Wait;
            }
            return Boot::DownFirst;
        }
        if self.pending_inc().new_state.get(&osd).is_some_and(|bits| bits & osd_state::UP != 0) {
            // It goes down with the pending epoch; it comes up with the next.
            return Boot::Wait;
        }
        Boot::Accept
    }

    fn can_mark_up(&mut self, map: &OsdMap, osd: OsdId) -> bool {
        !map.has_flag(osdmap_flags::NOUP) && self.osd_flags(osd) & osd_state::NOUP == 0
    }

    /// Whether flags allow to mark it in.
    pub(crate) fn can_mark_in(&mut self, map: &OsdMap, osd: OsdId) -> bool {
        !map.has_flag(osdmap_flags::NOIN) && self.osd_flags(osd) & osd_state::NOIN == 0
    }

    /// After a commit: OSDs that waited for noup to be cleared may try.
    pub(crate) fn retry_refused_boots(&mut self) {
        if self.osd.refused_boots.is_empty() {
            return;
        }
        let map = self.osdmap();
        let waiting: Vec<OsdId> = self.osd.refused_boots.keys().copied().collect();
        for osd in waiting {
            if map.is_up(osd) {
                self.osd.refused_boots.remove(&osd);
            } else if self.can_mark_up(&map, osd)
                && let Some((from, raw)) = self.osd.refused_boots.remove(&osd)
            {
                self.on_message(from, raw);
            }
        }
    }

    fn mark_up(&mut self, from: SessionId, osd: OsdId, m: MOSDBoot) {
        let map = self.next_map();
        let Some(peer) = self.sessions.get(&from).map(|s| s.peer.clone()) else { return };
        let state = if map.exists(osd) { map.state(osd) } else { osd_state::NEW };
        let info = map.info(osd).copied().unwrap_or_default();
        let mut xinfo = map.xinfo(osd).cloned().unwrap_or_default();
        self.adjust_laggy(&mut xinfo, m.boot_epoch);
        xinfo.features = if m.osd_features != 0 { m.osd_features } else { peer.features };

        let auto_in = self.conf.bool("mon_osd_auto_mark_in")
            || (state & osd_state::AUTOOUT != 0 && self.conf.bool("mon_osd_auto_mark_auto_out_in"))
            || (state & osd_state::NEW != 0 && self.conf.bool("mon_osd_auto_mark_new_in"));
        let mut weight = None;
        // One that is in and new is weighed, too: with that it is not new any more. (One that stayed so
        // was marked in again when it had been marked out and came back, and `purge-new` took it.)
        let is_new = state & osd_state::NEW != 0;
        if auto_in && self.can_mark_in(&map, osd) && (map.is_out(osd) || is_new) {
            weight = Some(if xinfo.old_weight > 0 { xinfo.old_weight } else { WEIGHT_IN });
            xinfo.old_weight = 0;
        }
        if let Some(weight) = weight {
            self.set_osd_weight(osd, weight);
        }
        let epoch = self.osd.map.epoch;
        let superblock = &m.sb;
        let newest = superblock.newest_map;
        let inc = self.inc();
        if osd >= map.max_osd {
            inc.new_max_osd = osd + 1;
        }
        inc.new_up_client.insert(osd, peer.addrs.clone());
        inc.new_up_cluster.insert(osd, m.cluster_addrs);
        inc.new_hb_back_up.insert(osd, m.hb_back_addrs);
        inc.new_hb_front_up.insert(osd, m.hb_front_addrs);
        if !map.exists(osd) || map.uuid(osd) != superblock.osd_fsid {
            inc.new_uuid.insert(osd, superblock.osd_fsid);
        }
        if newest == 0 && map.exists(osd) && info.up_from > info.lost_at {
            // An empty store under a known id: what it had is gone.
            inc.new_lost.insert(osd, epoch);
        }
        let mounted = (superblock.mounted, superblock.clean_thru);
        if mounted > (info.last_clean_begin, info.last_clean_end) {
            inc.new_last_clean_interval.insert(osd, mounted);
        }
        inc.new_xinfo.insert(osd, xinfo);
        self.osd.failures.remove(&osd);
        self.osd.last_report.insert(osd, (self.now.mono, std::time::Duration::ZERO));
        self.set_osd_metadata(osd, m.metadata);
        let text = format!("osd.{osd} {} boot", peer.addrs);
        self.log_own("cluster", INFO, text);
        if newest > epoch {
            let text = format!(
                "osd.{osd} knows OSD map {newest}, of monitors that are lost: the newest here is {epoch}"
            );
            self.log_own("cluster", ERROR, text);
        }
    }

    /// A flapping OSD earns a longer grace, a steady one loses it.
    fn adjust_laggy(&self, x: &mut maps::OsdXinfo, boot_epoch: Epoch) {
        let weight = self.conf.float("mon_osd_laggy_weight");
        if boot_epoch == 0 {
            x.laggy_probability *= (1.0 - weight) as f32;
            x.laggy_interval = (f64::from(x.laggy_interval) * (1.0 - weight)) as u32;
            return;
        }
        if x.down_stamp.is_zero() {
            return;
        }
        let max = self.conf.float("mon_osd_laggy_max_interval");
        let interval = self.now.wall.since(x.down_stamp).as_secs_f64().min(max);
        x.laggy_interval =
            (interval * weight + f64::from(x.laggy_interval) * (1.0 - weight)) as u32;
        x.laggy_probability = (weight + f64::from(x.laggy_probability) * (1.0 - weight)) as f32;
    }

    /// Replaces what is known of an OSD's host and build.
    pub(crate) fn set_osd_metadata(
        &mut self,
        osd: OsdId,
        metadata: std::collections::BTreeMap<String, String>,
    ) {
        let bytes = metadata.to_bytes();
        self.batch().put(layout::key(OSD_METADATA, &osd.to_string()), bytes);
        self.osd.metadata.insert(osd, metadata);
    }

    pub(crate) fn remove_osd_metadata(&mut self, osd: OsdId) {
        self.batch().delete(layout::key(OSD_METADATA, &osd.to_string()));
        self.osd.metadata.remove(&osd);
    }

    pub(crate) fn on_alive(&mut self, from: SessionId, m: MOSDAlive) {
        let Some(osd) = self.osd_of_session(from) else { return };
        let map = self.next_map();
        if !self.speaks_for(from, osd, &map) {
            self.send_latest_after_commit(from, m.paxos.version as Epoch + 1);
            return;
        }
        let up_thru = map.info(osd).map_or(0, |info| info.up_thru);
        if up_thru < m.want {
            // As far as the OSD's own map reaches, so that it need not ask soon again.
            let to = m.want.max(m.paxos.version as Epoch);
            self.inc().new_up_thru.insert(osd, to);
        }
        self.send_latest_after_commit(from, m.paxos.version as Epoch + 1);
    }

    pub(crate) fn on_pg_temp(&mut self, from: SessionId, m: MOSDPGTemp) {
        let Some(osd) = self.osd_of_session(from) else { return };
        let map = self.next_map();
        if !self.speaks_for(from, osd, &map) {
            return;
        }
        // Of two wishes for a placement group the one is newer whose sender leads it in the map that the
        // pending one follows; who led it before speaks of an interval that is over.
        let base = self.osd.map.clone();
        let mut changed = false;
        for (pgid, want) in &m.pg_temp {
            if !map.pg_exists(*pgid) {
                continue;
            }
            if !m.forced && base.pg_to_up_acting(*pgid).acting_primary != osd {
                continue;
            }
            let have = map.pg_temp.get(pgid).map_or(&[][..], Vec::as_slice);
            if have == want && !map.primary_temp.contains_key(pgid) {
                continue;
            }
            let ended = m.map_epoch < self.pool_last_change(&map, pgid.pool_id());
            if !m.forced && !want.is_empty() && ended {
                continue;
            }
            if want.iter().any(|osd| *osd != crush::ITEM_NONE && !map.exists(*osd)) {
                continue;
            }
            self.inc().new_pg_temp.insert(*pgid, want.clone());
            // As in Ceph: who is chosen to lead was chosen of others.
            self.inc().new_primary_temp.insert(*pgid, -1);
            changed = true;
        }
        if changed {
            let thru = m.map_epoch;
            if map.info(osd).is_some_and(|info| info.up_thru < thru) {
                self.inc().new_up_thru.insert(osd, thru);
            }
        }
        self.send_latest_after_commit(from, m.map_epoch + 1);
    }

    fn pool_last_change(&self, map: &OsdMap, pool: i64) -> Epoch {
        map.pool(pool).map_or(0, |p| p.last_force_op_resend.min(p.last_change))
    }

    pub(crate) fn on_full(&mut self, from: SessionId, m: MOSDFull) {
        let Some(osd) = self.osd_of_session(from) else { return };
        let map = self.next_map();
        if !self.speaks_for(from, osd, &map) {
            return;
        }
        let mask = osd_state::FULL | osd_state::BACKFILLFULL | osd_state::NEARFULL;
        let toggled = (map.state(osd) ^ m.state) & mask;
        if toggled != 0 {
            self.set_osd_state(osd, map.state(osd) ^ toggled);
            let names = osd_state::names(m.state & mask).join(",");
            self.log_own("cluster", DEBUG, format!("osd.{osd} is {names}"));
        }
    }

    /// The newest maps, once what is pending is committed.
    pub(crate) fn send_latest_after_commit(&mut self, to: SessionId, start: Epoch) {
        if self.is_pending() {
            self.send_map_later(to, start);
        } else {
            self.send_latest(to, start);
        }
    }
}
