//! The file systems and all metadata servers. Wire: FSMap v7 (`src/mds/FSMap.cc` at v16.2).

mod change;
mod dump;

use std::collections::{BTreeMap, BTreeSet};

use denc::{Denc, Error, Reader, Writer};
use types::Epoch;
use types::osd::CompatSet;

use crate::mdsmap::{FS_NONE, FsId, MdsInfo, MdsMap, MdsState, Rank, default_compat};

/// A cluster that a file system is copied to. Wire: MirrorInfo's Peer v1 with its ClusterInfo v1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct MirrorPeer {
    /// Its number, a UUID.
    pub uuid: String,
    /// Who asks there.
    pub client_name: String,
    /// The cluster's name.
    pub cluster_name: String,
    /// The file system there.
    pub fs_name: String,
}

impl Denc for MirrorPeer {
    fn encode(&self, w: &mut Writer) {
        w.envelope(1, 1, |w| {
            w.put(&self.uuid);
            w.envelope(1, 1, |w| {
                w.put(&self.client_name);
                w.put(&self.cluster_name);
                w.put(&self.fs_name);
            });
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("Peer", 1, 1, |r, _| {
            let uuid = r.get()?;
            r.envelope("ClusterInfo", 1, 1, |r, _| {
                Ok(MirrorPeer {
                    uuid,
                    client_name: r.get()?,
                    cluster_name: r.get()?,
                    fs_name: r.get()?,
                })
            })
        })
    }
}

/// Whether and where to a file system is copied. Wire: MirrorInfo v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct MirrorInfo {
    /// Whether.
    pub mirrored: bool,
    /// Where to.
    pub peers: BTreeSet<MirrorPeer>,
}

/// A file system. Wire: Filesystem v2, and v1 as 16.1 wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filesystem {
    /// Its number.
    pub fscid: FsId,
    /// Its MDSs.
    pub mds_map: MdsMap,
    /// Copies elsewhere; `None` in a map that does not say (v1).
    pub mirror_info: Option<MirrorInfo>,
}

impl Denc for Filesystem {
    fn encode(&self, w: &mut Writer) {
        let version = if self.mirror_info.is_some() { 2 } else { 1 };
        w.envelope(version, 1, |w| {
            w.i32(self.fscid);
            w.blob(&self.mds_map.to_bytes());
            if let Some(info) = &self.mirror_info {
                w.put(info);
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("Filesystem", 2, 1, |r, v| {
            Ok(Filesystem {
                fscid: r.i32()?,
                mds_map: MdsMap::from_bytes(&r.blob()?)?,
                mirror_info: if v >= 2 { Some(r.get()?) } else { None },
            })
        })
    }
}

impl Filesystem {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.mds_map.fs_name
    }

    /// Whether an MDS that can do more may take a rank: it is then required of all.
    pub fn is_upgradeable(&self) -> bool {
        let map = &self.mds_map;
        let follows = map.has_flag(crate::mdsmap::mds_flags::ALLOW_STANDBY_REPLAY);
        let lone = map.in_.len() == 1 && map.in_.contains(&0) && map.up.is_empty();
        !follows && (map.in_.is_empty() || lone)
    }
}

/// The map of the file systems.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsMap {
    /// This map's number.
    pub epoch: Epoch,
    /// Id of the next file system.
    pub next_filesystem_id: u64,
    /// File system of clients that name none, -1: none.
    pub legacy_client_fscid: FsId,
    /// What new file systems require.
    pub default_compat: CompatSet,
    /// Whether there may be several.
    pub enable_multiple: bool,
    /// File systems by number.
    pub filesystems: BTreeMap<FsId, Filesystem>,
    /// MDS global id to its file system, -1: waits.
    pub mds_roles: BTreeMap<u64, FsId>,
    /// MDSs that wait.
    pub standby_daemons: BTreeMap<u64, MdsInfo>,
    /// Epoch each was last changed in.
    pub standby_epochs: BTreeMap<u64, Epoch>,
    /// Whether there ever could be several.
    pub ever_enabled_multiple: bool,
}

impl Default for FsMap {
    /// No file system: the first map of a fresh cluster.
    fn default() -> FsMap {
        FsMap {
            epoch: 1,
            next_filesystem_id: 1,
            legacy_client_fscid: FS_NONE,
            default_compat: default_compat(),
            enable_multiple: true,
            filesystems: BTreeMap::new(),
            mds_roles: BTreeMap::new(),
            standby_daemons: BTreeMap::new(),
            standby_epochs: BTreeMap::new(),
            ever_enabled_multiple: true,
        }
    }
}

impl Denc for FsMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(7, 6, |w| {
            w.u32(self.epoch);
            w.u64(self.next_filesystem_id);
            w.i32(self.legacy_client_fscid);
            w.put(&self.default_compat);
            w.bool(self.enable_multiple);
            w.count(self.filesystems.len());
            self.filesystems.values().for_each(|fs| w.put(fs));
            w.put(&self.mds_roles);
            w.put(&self.standby_daemons);
            w.put(&self.standby_epochs);
            w.bool(self.ever_enabled_multiple);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("FSMap", 7, 7, |r, _| {
            Ok(FsMap {
                epoch: r.u32()?,
                next_filesystem_id: r.u64()?,
                legacy_client_fscid: r.i32()?,
                default_compat: r.get()?,
                enable_multiple: r.bool()?,
                filesystems: {
                    let list: Vec<Filesystem> = r.get()?;
                    list.into_iter().map(|fs| (fs.fscid, fs)).collect()
                },
                mds_roles: r.get()?,
                standby_daemons: r.get()?,
                standby_epochs: r.get()?,
                ever_enabled_multiple: r.bool()?,
            })
        })
    }
}

impl FsMap {
    /// The file system of a name.
    pub fn by_name(&self, name: &str) -> Option<&Filesystem> {
        self.filesystems.values().find(|fs| fs.name() == name)
    }

    /// The MDS of a global id.
    pub fn mds(&self, gid: u64) -> Option<&MdsInfo> {
        match *self.mds_roles.get(&gid)? {
            FS_NONE => self.standby_daemons.get(&gid),
            fscid => self.filesystems.get(&fscid)?.mds_map.info.get(&gid),
        }
    }

    /// All MDSs, by global id.
    pub fn all_mds(&self) -> impl Iterator<Item = &MdsInfo> {
        self.mds_roles.keys().filter_map(|gid| self.mds(*gid))
    }

    /// The MDS of a name; of several the one that began last.
    pub fn mds_by_name(&self, name: &str) -> Option<&MdsInfo> {
        let named = self.all_mds().filter(|info| info.name == name);
        named.max_by_key(|info| info.gid)
    }

    /// The file system that an MDS serves or follows.
    pub fn fs_of(&self, gid: u64) -> Option<&Filesystem> {
        self.filesystems.get(self.mds_roles.get(&gid)?)
    }

    /// Epoch of the map that an MDS is to have seen.
    pub fn epoch_for(&self, gid: u64) -> Option<Epoch> {
        match self.fs_of(gid) {
            Some(fs) => Some(fs.mds_map.epoch),
            None => self.standby_epochs.get(&gid).copied(),
        }
    }

    /// Whether a pool is one of a file system's, and of which.
    pub fn pool_user(&self, pool: i64) -> Option<&Filesystem> {
        let uses = |fs: &&Filesystem| {
            fs.mds_map.metadata_pool == pool || fs.mds_map.data_pools.contains(&pool)
        };
        self.filesystems.values().find(uses)
    }

    /// The MDS that waits and is the best one for a file system: one that rather serves it, else one
    /// that does not care, else any.
    pub fn available_standby(&self, fs: &Filesystem) -> Option<&MdsInfo> {
        let upgradeable = fs.is_upgradeable();
        let mut best = None;
        for info in self.standby_daemons.values() {
            let compat = info.compat();
            if info.is_laggy()
                || info.is_frozen()
                || !compat.lacks(&fs.mds_map.compat).is_empty()
                || (!upgradeable && !fs.mds_map.compat.lacks(&compat).is_empty())
            {
                continue;
            }
            match info.join_fscid {
                id if id == fs.fscid => return Some(info),
                FS_NONE => best = Some(info),
                _ => best = best.or(Some(info)),
            }
        }
        best
    }

    /// The MDS that is to take a rank over: its follower, else one that waits.
    pub fn replacement_for(&self, fscid: FsId, rank: Rank) -> Option<&MdsInfo> {
        let fs = self.filesystems.get(&fscid)?;
        match fs.mds_map.follower(rank) {
            Some(info) if info.is_frozen() => None,
            Some(info) if info.compat().lacks(&fs.mds_map.compat).is_empty() => Some(info),
            _ => self.available_standby(fs),
        }
    }

    /// Whether a file system is degraded.
    pub fn is_any_degraded(&self) -> bool {
        self.filesystems.values().any(|fs| fs.mds_map.is_degraded())
    }

    /// Whether an MDS follows a rank.
    pub fn is_standby_replay(&self, gid: u64) -> bool {
        self.mds(gid).is_some_and(|info| info.state == MdsState::STANDBY_REPLAY)
    }
}
