//! What time does to MDSs (`MDSMonitor::tick` at v16.2).
//!
//! Each second the leader looks at all: whoever has been silent for `mds_beacon_grace` is laggy, and
//! loses its rank when another is there to take it; one that waits or follows goes at once. Ranks
//! are added while there are fewer than wanted and somebody waits, and the highest is stopped while
//! there are more. Nothing is taken from anybody while no beacon at all comes through: then it is
//! the monitors that were not there. For the same reason everybody gets
//! `mds_beacon_mon_down_grace` while a monitor is down, and after each election.

use std::time::Duration;

use maps::fsmap::Filesystem;
use maps::mdsmap::{FS_NONE, FsId, MdsState, mds_flags};

use crate::clog::{INFO, WARN};
use crate::core::MonCore;

impl MonCore {
    pub(crate) fn watch_mds(&mut self) {
        self.want_a_standby();
        self.watch_beacons();
        let all: Vec<FsId> = self.mds.map.filesystems.keys().copied().collect();
        for fscid in all {
            self.prefer_own_mds(fscid);
            self.resize_fs(fscid);
            self.fill_ranks(fscid);
        }
        self.mds.last_watch = Some(self.now.mono);
    }

    /// Where MDSs wait and nobody has said how many should, one should.
    fn want_a_standby(&mut self) {
        let waiting = self.mds.map.standby_daemons.len();
        let undecided = |fs: &&Filesystem| {
            let map = &fs.mds_map;
            map.standby_count_wanted == -1
                && map.count(MdsState::ACTIVE) > 0
                && waiting + map.count(MdsState::STANDBY_REPLAY) > 0
        };
        let found: Vec<FsId> =
            self.mds.map.filesystems.values().filter(undecided).map(|fs| fs.fscid).collect();
        for fscid in found {
            if let Some(fs) = self.change_fsmap().change_fs(fscid) {
                fs.mds_map.standby_count_wanted = 1;
            }
        }
    }

    fn watch_beacons(&mut self) {
        let (now, grace) = (self.now.mono, self.conf.duration("mds_beacon_grace"));
        let pause = self.conf.duration("mds_beacon_interval");
        let since_last = self.mds.last_watch.map_or(Duration::ZERO, |at| now.saturating_sub(at));
        let was_away = since_last > grace.saturating_sub(pause);
        let gids: Vec<u64> = self.mds.map.mds_roles.keys().copied().collect();
        self.mds.last_beacon.retain(|gid, _| gids.binary_search(gid).is_ok());
        for gid in &gids {
            // A monitor that has just begun, or stood still, gives everybody the whole time.
            let heard = self.mds.last_beacon.entry(*gid).or_insert(now);
            if was_away {
                *heard = now;
            }
        }
        let newest = self.mds.last_beacon.values().max().copied().unwrap_or_default();
        let may_replace = now.saturating_sub(newest) < pause.max(grace / 2);
        // Who is silent may talk to a monitor that is not in the quorum, or was not.
        let young = self.quorum_time() < self.conf.duration("mds_beacon_mon_down_grace");
        let grace = match young || !self.out_of_quorum().is_empty() {
            true => grace.max(self.conf.duration("mds_beacon_mon_down_grace")),
            false => grace,
        };
        let silent = |gid: &u64| {
            now.saturating_sub(self.mds.last_beacon.get(gid).copied().unwrap_or(now)) >= grace
        };
        let silent: Vec<u64> = gids.iter().copied().filter(silent).collect();
        for gid in silent {
            if self.mds.map.mds(gid).is_some_and(|info| !info.is_laggy()) {
                let wall = self.now.wall;
                if let Some(info) = self.change_fsmap().change_mds(gid) {
                    info.laggy_since = wall;
                }
            }
            if may_replace {
                self.replace_mds(gid, "because it is dead or otherwise unavailable");
            }
        }
    }

    /// Takes an MDS out if another has its rank's place from then on, or it has none.
    fn replace_mds(&mut self, gid: u64, why: &str) {
        let map = &self.mds.map;
        let Some(info) = map.mds(gid).filter(|info| !info.is_frozen()) else { return };
        let name = format!("daemon mds.{}", info.name);
        let rank = info.rank;
        if matches!(info.state, MdsState::STANDBY | MdsState::STANDBY_REPLAY) {
            self.fail_mds(gid);
        } else {
            let Some(fs) = map.fs_of(gid).filter(|fs| fs.mds_map.is_joinable()) else { return };
            let fscid = fs.fscid;
            let Some(next) = map.replacement_for(fscid, rank) else { return };
            let (next, next_name) = (next.gid, next.name.clone());
            let text =
                format!("Replacing {name} as rank {rank} with standby daemon mds.{next_name}");
            self.log_own("cluster", WARN, text);
            self.fail_mds(gid);
            self.change_fsmap().promote(next, fscid, rank);
        }
        self.log_own("cluster", INFO, format!("MDS {name} is removed {why}."));
    }

    /// An MDS that rather serves this file system takes the place of one that does not; one at a
    /// time.
    fn prefer_own_mds(&mut self, fscid: FsId) {
        let map = &self.mds.map;
        let Some(fs) = map.filesystems.get(&fscid) else { return };
        if !fs.mds_map.is_joinable() || !fs.mds_map.is_resizeable() {
            return;
        }
        for info in fs.mds_map.info.values().filter(|info| info.join_fscid != fscid) {
            let next = match info.state {
                MdsState::STANDBY_REPLAY => map.available_standby(fs),
                _ => map.replacement_for(fscid, info.rank),
            };
            let Some(next) = next else { return };
            let better = next.join_fscid == fscid
                || (info.join_fscid != FS_NONE && next.join_fscid == FS_NONE);
            if !better {
                continue;
            }
            let (gid, name) = (info.gid, info.name.clone());
            let follows = info.state == MdsState::STANDBY_REPLAY;
            let what = if follows { "standby-replay" } else { "active" };
            let text = format!(
                "Dropping low affinity {what} daemon mds.{name} in favor of higher affinity standby."
            );
            self.log_own("cluster", INFO, text);
            self.replace_mds(gid, "because another one rather serves its file system");
            return;
        }
    }

    /// One rank more or less, if there are fewer or more than wanted.
    fn resize_fs(&mut self, fscid: FsId) {
        let resizeable = |map: &maps::FsMap| {
            map.filesystems.get(&fscid).is_some_and(|fs| fs.mds_map.is_resizeable())
        };
        if !resizeable(&self.mds.published) || !resizeable(&self.mds.map) {
            return;
        }
        let map = &self.mds.map;
        let Some(fs) = map.filesystems.get(&fscid) else { return };
        let (in_, max) = (fs.mds_map.in_.len(), fs.mds_map.max_mds.max(0) as usize);
        let fs_name = fs.name().to_string();
        if in_ < max && fs.mds_map.is_joinable() {
            let rank = (0..).find(|rank| !fs.mds_map.in_.contains(rank)).unwrap_or(0);
            let Some(next) = map.replacement_for(fscid, rank) else { return };
            let gid = next.gid;
            let text = format!(
                "daemon mds.{} assigned to filesystem {fs_name} as rank {rank} (now has {} ranks)",
                next.name,
                in_ + 1
            );
            self.log_own("cluster", INFO, text);
            self.change_fsmap().promote(gid, fscid, rank);
        } else if in_ > max {
            let last = fs.mds_map.in_.last().and_then(|rank| fs.mds_map.holder(*rank));
            let Some(info) = last.filter(|info| info.state == MdsState::ACTIVE) else { return };
            let (gid, text) = (info.gid, format!("stopping daemon mds.{}", info.name));
            self.log_own("cluster", INFO, text);
            if let Some(info) = self.change_fsmap().change_mds(gid) {
                info.state = MdsState::STOPPING;
            }
        }
    }

    /// Ranks that nobody holds go to whoever waits; the others get followers, if they are to.
    pub(crate) fn fill_ranks(&mut self, fscid: FsId) {
        let Some(fs) = self.mds.map.filesystems.get(&fscid) else { return };
        if !fs.mds_map.is_joinable() {
            return;
        }
        let fs_name = fs.name().to_string();
        let failed: Vec<i32> = fs.mds_map.failed.iter().copied().collect();
        for rank in failed {
            let Some(next) = self.mds.map.replacement_for(fscid, rank) else { continue };
            let gid = next.gid;
            let text = format!(
                "Standby daemon mds.{} assigned to filesystem {fs_name} as rank {rank}",
                next.name
            );
            self.log_own("cluster", INFO, text);
            self.change_fsmap().promote(gid, fscid, rank);
        }
        loop {
            let map = &self.mds.map;
            let Some(fs) = map.filesystems.get(&fscid) else { return };
            let follows = fs.mds_map.has_flag(mds_flags::ALLOW_STANDBY_REPLAY);
            if !follows || fs.mds_map.is_degraded() {
                return;
            }
            let rank = fs.mds_map.in_.iter().copied().find(|rank| fs.mds_map.is_followable(*rank));
            let (Some(rank), Some(next)) = (rank, map.available_standby(fs)) else { return };
            let gid = next.gid;
            self.change_fsmap().assign_standby_replay(gid, fscid, rank);
        }
    }
}
