//! A file system's metadata servers. Wire: MDSMap v5 with extended version 16
//! (`src/mds/MDSMap.cc` at v16.2).
//!
//! A file system has ranks, from 0 on; each is held by one MDS at most. Which ones there are:
//!
//! | set | ranks |
//! |---|---|
//! | `in` | that have metadata, whether somebody holds them or not |
//! | `up` | that an MDS holds (its global id) |
//! | `failed` | of `in`, that wait for an MDS |
//! | `damaged` | of `in`, that get none until an operator says that they are repaired |
//! | `stopped` | that were in once, and start with what they left when they are needed again |

mod dump;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::osd::{CompatSet, FeatureSet};
use types::{AddrVec, Epoch, UTime};

pub use dump::CEPHFS_FEATURES;
pub use dump::{compat_text, dump_compat};
pub use state::MdsState;

/// Number of a file system, from 1 on.
pub type FsId = i32;
/// No file system.
pub const FS_NONE: FsId = -1;
/// A rank, from 0 on.
pub type Rank = i32;
/// No rank.
pub const RANK_NONE: Rank = -1;
/// Ranks of a file system at most.
pub const MAX_MDS: i64 = 256;

/// Bits of [`MdsMap::flags`].
pub mod mds_flags {
    /// No MDS gets a rank.
    pub const NOT_JOINABLE: u32 = 1 << 0;
    /// Snapshots may be made.
    pub const ALLOW_SNAPS: u32 = 1 << 1;
    /// And that by several ranks.
    pub const ALLOW_MULTIMDS_SNAPS: u32 = 1 << 4;
    /// MDSs that wait follow one that is active.
    pub const ALLOW_STANDBY_REPLAY: u32 = 1 << 5;
}

/// Version of what clients of the kernel do not read.
const EXTENDED: u16 = 16;
/// Bit of [`MdsInfo::flags`]: nothing changes the MDS's place.
const FROZEN: u64 = 1;
/// Incompatible feature that each MDS since 14.0 has.
const INLINE: (u64, &str) = (7, "mds uses inline data");

/// What a file system of 16.2 requires of its MDSs at first.
pub fn default_compat() -> CompatSet {
    CompatSet {
        incompat: FeatureSet::of(&[
            (1, "base v0.20"),
            (2, "client writeable ranges"),
            (3, "default file layouts on dirs"),
            (4, "dir inode in separate object"),
            (5, "mds uses versioned encoding"),
            (6, "dirfrag is stored in omap"),
            (8, "no anchor table"),
            (9, "file layout v2"),
            (10, "snaprealm v2"),
        ]),
        ..CompatSet::default()
    }
}

/// Adds what each MDS since 14.0 has, as Ceph does when it reads a map.
pub(crate) fn with_inline(mut compat: CompatSet) -> CompatSet {
    compat.incompat.names.entry(INLINE.0).or_insert_with(|| INLINE.1.to_string());
    compat
}

/// An MDS. Wire: MDSMap::mds_info_t v10, and v9 as 16.2.0 wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsInfo {
    /// Its global id.
    pub gid: u64,
    /// Its name, without `mds.`.
    pub name: String,
    /// The rank it holds or follows.
    pub rank: Rank,
    /// Epoch in which it got its rank.
    pub inc: i32,
    /// What it does.
    pub state: MdsState,
    /// Number of the beacon that said so.
    pub state_seq: u64,
    /// Where it listens.
    pub addrs: AddrVec,
    /// Since when it is silent; zero: it is not.
    pub laggy_since: UTime,
    /// Ranks it may hand directories to.
    pub export_targets: BTreeSet<Rank>,
    /// Its feature bits.
    pub features: u64,
    /// The file system it rather serves.
    pub join_fscid: FsId,
    /// Bit 0: frozen.
    pub flags: u64,
    /// What it can read and write; `None` in a map from before 16.2.5 (v9).
    pub compat: Option<CompatSet>,
}

impl Default for MdsInfo {
    fn default() -> MdsInfo {
        MdsInfo {
            gid: 0,
            name: String::new(),
            rank: RANK_NONE,
            inc: 0,
            state: MdsState::STANDBY,
            state_seq: 0,
            addrs: AddrVec::default(),
            laggy_since: UTime::default(),
            export_targets: BTreeSet::new(),
            features: 0,
            join_fscid: FS_NONE,
            flags: 0,
            compat: Some(with_inline(default_compat())),
        }
    }
}

impl MdsInfo {
    /// Whether it has been silent for too long.
    pub fn is_laggy(&self) -> bool {
        !self.laggy_since.is_zero()
    }

    /// Whether an operator has frozen its place.
    pub fn is_frozen(&self) -> bool {
        self.flags & FROZEN != 0
    }

    /// Freezes its place, or no more.
    pub fn freeze(&mut self, frozen: bool) {
        self.flags = if frozen { self.flags | FROZEN } else { self.flags & !FROZEN };
    }

    /// What it can read and write.
    pub fn compat(&self) -> CompatSet {
        with_inline(self.compat.clone().unwrap_or_else(default_compat))
    }
}

impl Denc for MdsInfo {
    fn encode(&self, w: &mut Writer) {
        let version = if self.compat.is_some() { 10 } else { 9 };
        w.envelope(version, 4, |w| {
            w.u64(self.gid);
            w.put(&self.name);
            w.i32(self.rank);
            w.i32(self.inc);
            w.i32(self.state.0);
            w.u64(self.state_seq);
            w.put(&self.addrs);
            w.put(&self.laggy_since);
            w.i32(RANK_NONE); // standby_for_rank
            w.blob(b""); // standby_for_name
            w.put(&self.export_targets);
            w.u64(self.features);
            w.i32(self.join_fscid);
            w.bool(false); // standby_replay
            w.u64(self.flags);
            if let Some(compat) = &self.compat {
                w.put(compat);
            }
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("mds_info_t", 10, 9, |r, v| {
            Ok(MdsInfo {
                gid: r.u64()?,
                name: r.get()?,
                rank: r.i32()?,
                inc: r.i32()?,
                state: MdsState(r.i32()?),
                state_seq: r.u64()?,
                addrs: r.get()?,
                laggy_since: r.get()?,
                export_targets: {
                    r.i32()?;
                    let _: Bytes = r.blob()?;
                    r.get()?
                },
                features: r.u64()?,
                join_fscid: r.i32()?,
                flags: {
                    r.bool()?;
                    r.u64()?
                },
                compat: if v >= 10 { Some(r.get()?) } else { None },
            })
        })
    }
}

/// The map of one file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MdsMap {
    /// Epoch of the file systems' map in which this one was changed last.
    pub epoch: Epoch,
    /// Bits of [`mds_flags`].
    pub flags: u32,
    /// Never set since 16.
    pub last_failure: Epoch,
    /// The rank that has the root directory.
    pub root: Rank,
    /// Seconds after which a silent client loses its capabilities to whoever wants them.
    pub session_timeout: u32,
    /// Seconds after which its session is ended.
    pub session_autoclose: u32,
    /// Bytes of a file at most.
    pub max_file_size: u64,
    /// Ranks wanted.
    pub max_mds: i32,
    /// The MDSs that hold or follow a rank, by global id.
    pub info: BTreeMap<u64, MdsInfo>,
    /// Pools of files; the first one has the backtraces of all.
    pub data_pools: Vec<i64>,
    /// -1.
    pub cas_pool: i64,
    /// What is required of MDSs.
    pub compat: CompatSet,
    /// Pool of directories and journals.
    pub metadata_pool: i64,
    /// When it was made.
    pub created: UTime,
    /// When this map was.
    pub modified: UTime,
    /// The rank that has the tables of snapshots.
    pub tableserver: Rank,
    /// See the module.
    pub in_: BTreeSet<Rank>,
    /// See the module.
    pub up: BTreeMap<Rank, u64>,
    /// See the module.
    pub failed: BTreeSet<Rank>,
    /// See the module.
    pub stopped: BTreeSet<Rank>,
    /// OSD map epoch by which the last MDS that failed is certainly blocklisted.
    pub last_failure_osd_epoch: Epoch,
    /// Of [`mds_flags`], what was ever set.
    pub ever_allowed_features: u8,
    /// And what somebody set.
    pub explicitly_allowed_features: u8,
    /// Whether small files are kept in their inodes.
    pub inline_data: bool,
    /// Whether it is there at all.
    pub enabled: bool,
    /// Its name.
    pub fs_name: String,
    /// See the module.
    pub damaged: BTreeSet<Rank>,
    /// Name of the object with a balancer in Lua.
    pub balancer: String,
    /// MDSs that are to wait; -1: as many as is seen fit.
    pub standby_count_wanted: i32,
    /// `max_mds` before the file system was taken down.
    pub old_max_mds: i32,
    /// Numbers of features that clients must have, a bit each, in words of 64.
    pub required_client_features: Vec<u64>,
}

impl Default for MdsMap {
    /// What a new file system begins with.
    fn default() -> MdsMap {
        MdsMap {
            epoch: 0,
            flags: mds_flags::ALLOW_SNAPS | mds_flags::ALLOW_MULTIMDS_SNAPS,
            last_failure: 0,
            root: 0,
            session_timeout: 60,
            session_autoclose: 300,
            max_file_size: 1 << 40,
            max_mds: 1,
            info: BTreeMap::new(),
            data_pools: Vec::new(),
            cas_pool: -1,
            compat: CompatSet::default(),
            metadata_pool: -1,
            created: UTime::default(),
            modified: UTime::default(),
            tableserver: 0,
            in_: BTreeSet::new(),
            up: BTreeMap::new(),
            failed: BTreeSet::new(),
            stopped: BTreeSet::new(),
            last_failure_osd_epoch: 0,
            ever_allowed_features: 0,
            explicitly_allowed_features: 0,
            inline_data: false,
            enabled: false,
            fs_name: String::new(),
            damaged: BTreeSet::new(),
            balancer: String::new(),
            standby_count_wanted: -1,
            old_max_mds: 0,
            required_client_features: Vec::new(),
        }
    }
}

impl Denc for MdsMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(5, 4, |w| {
            w.u32(self.epoch);
            w.u32(self.flags);
            w.u32(self.last_failure);
            w.i32(self.root);
            w.u32(self.session_timeout);
            w.u32(self.session_autoclose);
            w.u64(self.max_file_size);
            w.i32(self.max_mds);
            w.put(&self.info);
            w.put(&self.data_pools);
            w.i64(self.cas_pool);
            w.u16(EXTENDED);
            w.put(&self.compat);
            w.i64(self.metadata_pool);
            w.put(&self.created);
            w.put(&self.modified);
            w.i32(self.tableserver);
            w.put(&self.in_);
            // What was the ranks' incarnation once.
            w.count(self.in_.len());
            for rank in &self.in_ {
                w.i32(*rank);
                w.u32(self.epoch);
            }
            w.put(&self.up);
            w.put(&self.failed);
            w.put(&self.stopped);
            w.u32(self.last_failure_osd_epoch);
            w.u8(self.ever_allowed_features);
            w.u8(self.explicitly_allowed_features);
            w.bool(self.inline_data);
            w.bool(self.enabled);
            w.put(&self.fs_name);
            w.put(&self.damaged);
            w.put(&self.balancer);
            w.i32(self.standby_count_wanted);
            w.i32(self.old_max_mds);
            w.u8(0); // min_compat_client
            w.u32(self.required_client_features.len() as u32 * 8);
            self.required_client_features.iter().for_each(|word| w.u64(*word));
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("MDSMap", 5, 5, |r, _| {
            let mut map = MdsMap {
                epoch: r.u32()?,
                flags: r.u32()?,
                last_failure: r.u32()?,
                root: r.i32()?,
                session_timeout: r.u32()?,
                session_autoclose: r.u32()?,
                max_file_size: r.u64()?,
                max_mds: r.i32()?,
                info: r.get()?,
                data_pools: r.get()?,
                cas_pool: r.i64()?,
                ..MdsMap::default()
            };
            let extended = r.u16()?;
            if extended < EXTENDED {
                return Err(Error::TooOld {
                    what: "MDSMap",
                    version: extended as u8,
                    oldest: EXTENDED as u8,
                });
            }
            map.compat = r.get()?;
            map.metadata_pool = r.i64()?;
            map.created = r.get()?;
            map.modified = r.get()?;
            map.tableserver = r.i32()?;
            map.in_ = r.get()?;
            let _: BTreeMap<Rank, i32> = r.get()?;
            map.up = r.get()?;
            map.failed = r.get()?;
            map.stopped = r.get()?;
            map.last_failure_osd_epoch = r.u32()?;
            map.ever_allowed_features = r.u8()?;
            map.explicitly_allowed_features = r.u8()?;
            map.inline_data = r.bool()?;
            map.enabled = r.bool()?;
            map.fs_name = r.get()?;
            map.damaged = r.get()?;
            map.balancer = r.get()?;
            map.standby_count_wanted = r.i32()?;
            map.old_max_mds = r.i32()?;
            r.u8()?;
            let features: Bytes = r.blob()?;
            let words = features.chunks(8).map(|word| {
                let mut bytes = [0; 8];
                bytes[..word.len()].copy_from_slice(word);
                u64::from_le_bytes(bytes)
            });
            map.required_client_features = words.collect();
            Ok(map)
        })
    }
}

impl MdsMap {
    /// What is required of MDSs, as who reads the map sees it.
    pub fn compat(&self) -> CompatSet {
        with_inline(self.compat.clone())
    }

    /// Whether flags are set.
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears flags.
    pub fn set_flag(&mut self, flag: u32, set: bool) {
        self.flags = if set { self.flags | flag } else { self.flags & !flag };
    }

    /// Whether an MDS without a rank may get one.
    pub fn is_joinable(&self) -> bool {
        !self.has_flag(mds_flags::NOT_JOINABLE)
    }

    /// The MDS that holds a rank.
    pub fn holder(&self, rank: Rank) -> Option<&MdsInfo> {
        self.info.get(self.up.get(&rank)?)
    }

    /// The MDS that follows a rank.
    pub fn follower(&self, rank: Rank) -> Option<&MdsInfo> {
        let mut all = self.info.values();
        all.find(|info| info.rank == rank && info.state == MdsState::STANDBY_REPLAY)
    }

    /// MDSs in a state.
    pub fn count(&self, state: MdsState) -> usize {
        self.info.values().filter(|info| info.state == state).count()
    }

    /// Whether a rank is held by nobody, or by somebody who has not caught up.
    pub fn is_degraded(&self) -> bool {
        !self.failed.is_empty()
            || !self.damaged.is_empty()
            || self.info.values().any(|info| info.state.is_degraded())
    }

    /// Whether ranks may come and go.
    pub fn is_resizeable(&self) -> bool {
        let moving = [MdsState::CREATING, MdsState::STARTING, MdsState::STOPPING];
        !self.is_degraded() && moving.iter().all(|state| self.count(*state) == 0)
    }

    /// Whether an MDS that waits may follow a rank. One that is being made has no journal yet. (In Ceph it is
    /// followed, and who follows it stays there if it is never made.)
    pub fn is_followable(&self, rank: Rank) -> bool {
        let made = |info: &MdsInfo| info.state != MdsState::CREATING && !info.state.is_degraded();
        self.holder(rank).is_some_and(made) && self.follower(rank).is_none()
    }

    /// All MDSs that hold or follow a rank.
    pub(crate) fn of_rank(&self, rank: Rank) -> Vec<u64> {
        self.info.values().filter(|info| info.rank == rank).map(|info| info.gid).collect()
    }

    /// How many MDSs are to wait beyond those that do.
    pub fn standbys_lacking(&self, standbys: usize) -> usize {
        let wanted = usize::try_from(self.standby_count_wanted).unwrap_or(0);
        wanted.saturating_sub(standbys + self.count(MdsState::STANDBY_REPLAY))
    }

    /// Whether clients need a feature.
    pub fn requires(&self, feature: usize) -> bool {
        let word = self.required_client_features.get(feature / 64);
        word.is_some_and(|word| word >> (feature % 64) & 1 == 1)
    }

    /// Clients need a feature, or no more.
    pub fn require(&mut self, feature: usize, required: bool) {
        let words = &mut self.required_client_features;
        if words.len() <= feature / 64 {
            words.resize(feature / 64 + 1, 0);
        }
        let bit = 1 << (feature % 64);
        let word = &mut words[feature / 64];
        *word = if required { *word | bit } else { *word & !bit };
        while words.last() == Some(&0) {
            words.pop();
        }
    }
}
