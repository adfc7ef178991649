//! How MDSs come to ranks and lose them (`FSMap::promote`, `erase`, `stop` and their like at
//! v16.2). Each change notes its epoch in the file system's map, or in that of the MDS that waits:
//! `epoch` is that of the map to be.

use types::{Epoch, UTime};

use super::{Filesystem, FsMap, MirrorInfo};
use crate::mdsmap::{FS_NONE, FsId, MdsInfo, MdsMap, MdsState, RANK_NONE, Rank};

impl FsMap {
    /// Makes a file system of pools that exist. With `recover` its first rank counts as lost: an
    /// MDS reads what is there instead of making it.
    pub fn create_filesystem(
        &mut self,
        name: &str,
        pools: (i64, i64),
        fscid: Option<FsId>,
        recover: bool,
        now: UTime,
    ) -> FsId {
        let (metadata_pool, data_pool) = pools;
        let mut mds_map = MdsMap {
            epoch: self.epoch,
            fs_name: name.to_string(),
            data_pools: vec![data_pool],
            metadata_pool,
            compat: crate::mdsmap::with_inline(self.default_compat.clone()),
            created: now,
            modified: now,
            enabled: true,
            ..MdsMap::default()
        };
        if recover {
            mds_map.in_.insert(0);
            mds_map.failed.insert(0);
            mds_map.set_flag(crate::mdsmap::mds_flags::NOT_JOINABLE, true);
        }
        let fscid = fscid.unwrap_or_else(|| {
            let next = self.next_filesystem_id as FsId;
            self.next_filesystem_id += 1;
            next
        });
        self.next_filesystem_id = self.next_filesystem_id.max(fscid as u64 + 1);
        let fs = Filesystem { fscid, mds_map, mirror_info: Some(MirrorInfo::default()) };
        self.filesystems.insert(fscid, fs);
        if self.filesystems.len() == 1 {
            self.legacy_client_fscid = fscid;
        }
        fscid
    }

    /// A file system to begin anew on its pools: its first rank counts as lost, all others as
    /// stopped.
    pub fn reset_filesystem(&mut self, fscid: FsId, now: UTime) {
        let (epoch, compat) = (self.epoch, self.default_compat.clone());
        let Some(fs) = self.filesystems.get_mut(&fscid) else { return };
        let old = &fs.mds_map;
        let mut stopped = &old.stopped | &old.in_;
        stopped.remove(&0);
        fs.mds_map = MdsMap {
            epoch,
            in_: [0].into(),
            failed: [0].into(),
            stopped,
            inline_data: old.inline_data,
            data_pools: old.data_pools.clone(),
            metadata_pool: old.metadata_pool,
            cas_pool: old.cas_pool,
            fs_name: old.fs_name.clone(),
            compat: crate::mdsmap::with_inline(compat),
            created: now,
            modified: now,
            standby_count_wanted: old.standby_count_wanted,
            // Whoever gets the rank still waits until the last holder can write no more. (Ceph forgets it.)
            last_failure_osd_epoch: old.last_failure_osd_epoch,
            enabled: true,
            ..MdsMap::default()
        };
    }

    /// A file system, to be changed.
    pub fn change_fs(&mut self, fscid: FsId) -> Option<&mut Filesystem> {
        let epoch = self.epoch;
        let fs = self.filesystems.get_mut(&fscid)?;
        fs.mds_map.epoch = epoch;
        Some(fs)
    }

    /// An MDS, to be changed.
    pub fn change_mds(&mut self, gid: u64) -> Option<&mut MdsInfo> {
        match *self.mds_roles.get(&gid)? {
            FS_NONE => {
                self.standby_epochs.insert(gid, self.epoch);
                self.standby_daemons.get_mut(&gid)
            }
            fscid => self.change_fs(fscid)?.mds_map.info.get_mut(&gid),
        }
    }

    /// An MDS that has begun: it waits.
    pub fn insert(&mut self, info: MdsInfo) {
        self.mds_roles.insert(info.gid, FS_NONE);
        self.standby_epochs.insert(info.gid, self.epoch);
        self.standby_daemons.insert(info.gid, info);
    }

    /// Takes an MDS that waits out of those that do.
    fn take_standby(&mut self, gid: u64) -> Option<MdsInfo> {
        self.standby_epochs.remove(&gid);
        self.standby_daemons.remove(&gid)
    }

    /// Gives a rank to an MDS that waits or follows it. It begins with what has become of the rank:
    /// stopped, never there, or lost.
    pub fn promote(&mut self, gid: u64, fscid: FsId, rank: Rank) {
        let (epoch, standby) = (self.epoch, self.take_standby(gid));
        let Some(fs) = self.filesystems.get_mut(&fscid) else { return };
        let upgradeable = fs.is_upgradeable();
        let map = &mut fs.mds_map;
        map.epoch = epoch;
        if let Some(info) = standby {
            map.info.insert(gid, info);
        }
        let Some(info) = map.info.get_mut(&gid) else { return };
        info.state = if map.stopped.remove(&rank) {
            MdsState::STARTING
        } else if !map.in_.contains(&rank) {
            MdsState::CREATING
        } else {
            map.failed.remove(&rank);
            MdsState::REPLAY
        };
        info.rank = rank;
        info.inc = epoch as i32;
        let compat = info.compat();
        if upgradeable {
            map.compat.incompat.names.extend(compat.incompat.names);
            map.compat.compat.names.extend(compat.compat.names);
            map.compat.ro_compat.names.extend(compat.ro_compat.names);
        }
        map.in_.insert(rank);
        map.up.insert(rank, gid);
        self.mds_roles.insert(gid, fscid);
    }

    /// Makes an MDS that waits follow a rank.
    pub fn assign_standby_replay(&mut self, gid: u64, fscid: FsId, rank: Rank) {
        let Some(mut info) = self.take_standby(gid) else { return };
        info.rank = rank;
        info.state = MdsState::STANDBY_REPLAY;
        if let Some(fs) = self.change_fs(fscid) {
            fs.mds_map.info.insert(gid, info);
            self.mds_roles.insert(gid, fscid);
        }
    }

    /// An MDS is gone; its rank waits for another. `blocked_in`: the OSD map's epoch from which on it
    /// cannot write, 0 where it need not be blocked.
    pub fn erase(&mut self, gid: u64, blocked_in: Epoch) {
        let Some(fscid) = self.mds_roles.remove(&gid) else { return };
        if fscid == FS_NONE {
            self.take_standby(gid);
            return;
        }
        let Some(fs) = self.change_fs(fscid) else { return };
        let map = &mut fs.mds_map;
        let Some(info) = map.info.remove(&gid) else { return };
        let mut followers = Vec::new();
        if info.state != MdsState::STANDBY_REPLAY {
            if info.state == MdsState::CREATING {
                // Not even made: whoever gets it next makes it, and there is nothing to follow.
                map.in_.remove(&info.rank);
                followers = map.of_rank(info.rank);
            } else {
                map.failed.insert(info.rank);
            }
            map.up.remove(&info.rank);
        }
        // One that need not be blocked does not undo that another was: whoever takes that one's rank waits for
        // this map of the OSDs. (Ceph forgets it.)
        map.last_failure_osd_epoch = map.last_failure_osd_epoch.max(blocked_in);
        followers.iter().for_each(|gid| self.erase(*gid, 0));
    }

    /// An MDS has found its rank's metadata damaged: nobody gets it until it is repaired.
    pub fn damaged(&mut self, gid: u64, blocked_in: Epoch) {
        let Some((fscid, rank)) = self.fs_of(gid).map(|fs| (fs.fscid, fs.mds_map.info[&gid].rank))
        else {
            return;
        };
        self.erase(gid, blocked_in);
        if let Some(fs) = self.change_fs(fscid) {
            fs.mds_map.failed.remove(&rank);
            fs.mds_map.damaged.insert(rank);
        }
    }

    /// A damaged rank may be held again; whether it was damaged.
    pub fn undamaged(&mut self, fscid: FsId, rank: Rank) -> bool {
        let damaged = |fs: &Filesystem| fs.mds_map.damaged.contains(&rank);
        if !self.filesystems.get(&fscid).is_some_and(damaged) {
            return false;
        }
        if let Some(fs) = self.change_fs(fscid) {
            fs.mds_map.damaged.remove(&rank);
            fs.mds_map.failed.insert(rank);
        }
        true
    }

    /// An MDS has handed its rank's directories over: the rank is stopped. Gives the MDSs that
    /// followed it, which are gone with it.
    pub fn stop(&mut self, gid: u64) -> Vec<u64> {
        let Some(fscid) = self.fs_of(gid).map(|fs| fs.fscid) else { return Vec::new() };
        let Some(fs) = self.change_fs(fscid) else { return Vec::new() };
        let map = &mut fs.mds_map;
        let Some(info) = map.info.remove(&gid) else { return Vec::new() };
        map.up.remove(&info.rank);
        map.in_.remove(&info.rank);
        map.stopped.insert(info.rank);
        let followers = map.of_rank(info.rank);
        self.mds_roles.remove(&gid);
        followers.iter().for_each(|gid| self.erase(*gid, 0));
        followers
    }

    /// Pools that are there no more are no pools of files.
    pub fn forget_pools(&mut self, exists: impl Fn(i64) -> bool) {
        for fs in self.filesystems.values_mut() {
            fs.mds_map.data_pools.retain(|pool| exists(*pool));
        }
    }

    /// What of `in`, `up`, `failed` and the MDSs' states contradicts itself; `None`: nothing.
    pub fn insane(&self) -> Option<String> {
        for (fscid, fs) in &self.filesystems {
            let map = &fs.mds_map;
            for (gid, info) in &map.info {
                let held = map.up.get(&info.rank) == Some(gid);
                let follows = info.state == MdsState::STANDBY_REPLAY;
                if info.rank == RANK_NONE || self.mds_roles.get(gid) != Some(fscid) {
                    return Some(format!("mds.{gid} has no rank or role in file system {fscid}"));
                }
                if !follows && (!held || map.failed.contains(&info.rank)) {
                    return Some(format!(
                        "rank {} of file system {fscid} is not mds.{gid}'s",
                        info.rank
                    ));
                }
            }
            for (rank, gid) in &map.up {
                if !map.in_.contains(rank) || !map.info.contains_key(gid) {
                    return Some(format!("rank {rank} of file system {fscid} is up and not in"));
                }
            }
        }
        for (gid, fscid) in &self.mds_roles {
            let waits =
                self.standby_daemons.contains_key(gid) && self.standby_epochs.contains_key(gid);
            if self.mds(*gid).is_none() || (*fscid == FS_NONE) != waits {
                return Some(format!("mds.{gid} is in no place, or in two"));
            }
        }
        None
    }
}
