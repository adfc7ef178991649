//! A PG as one of its members has it.

use core::fmt;

use denc::{Denc, Error, Reader, Writer};

use super::hit_set::PgHitSetHistory;
use super::pg_history::PgHistory;
use super::pg_stat::PgStat;
use crate::hobject::HObject;
use crate::ids::Epoch;
use crate::interval_set::IntervalSet;
use crate::pg::SpgId;
use crate::time::UTime;
use crate::version::EVersion;

/// Wire: pg_info_t v32/c26.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgInfo {
    /// The PG.
    pub pgid: SpgId,
    /// Newest log entry.
    pub last_update: EVersion,
    /// Up to here no object is missing.
    pub last_complete: EVersion,
    /// Epoch in which this member last went active.
    pub last_epoch_started: Epoch,
    /// First epoch of that interval.
    pub last_interval_started: Epoch,
    /// Newest version clients saw.
    pub last_user_version: u64,
    /// Version before the oldest log entry.
    pub log_tail: EVersion,
    /// Objects before this are complete; [`HObject::max`] when backfill is done.
    pub last_backfill: HObject,
    /// Snapshots whose clones are trimmed.
    pub purged_snaps: IntervalSet,
    /// The last report.
    pub stats: PgStat,
    /// The history.
    pub history: PgHistory,
    /// Hit sets.
    pub hit_set: PgHitSetHistory,
}

impl Default for PgInfo {
    fn default() -> PgInfo {
        PgInfo::new(SpgId::default())
    }
}

impl PgInfo {
    /// What is known of a PG that has nothing.
    pub fn new(pgid: SpgId) -> PgInfo {
        PgInfo {
            pgid,
            last_update: EVersion::ZERO,
            last_complete: EVersion::ZERO,
            last_epoch_started: 0,
            last_interval_started: 0,
            last_user_version: 0,
            log_tail: EVersion::ZERO,
            last_backfill: HObject::max(),
            purged_snaps: IntervalSet::new(),
            stats: PgStat::default(),
            history: PgHistory::default(),
            hit_set: PgHitSetHistory::default(),
        }
    }

    /// Whether it never had a write.
    pub fn is_empty(&self) -> bool {
        self.last_update.version == 0
    }

    /// Whether it does not exist here.
    pub fn dne(&self) -> bool {
        self.history.epoch_created == 0
    }

    /// Whether backfill is not done.
    pub fn is_incomplete(&self) -> bool {
        !self.last_backfill.is_max()
    }
}

impl Denc for PgInfo {
    fn encode(&self, w: &mut Writer) {
        w.envelope(32, 26, |w| {
            w.put(&self.pgid.pgid);
            w.put(&self.last_update);
            w.put(&self.last_complete);
            w.put(&self.log_tail);
            w.put(&HObject::default()); // last_backfill in the order of old
            w.put(&self.stats);
            w.put(&self.history);
            w.put(&self.purged_snaps);
            w.u32(self.last_epoch_started);
            w.u64(self.last_user_version);
            w.put(&self.hit_set);
            w.i8(self.pgid.shard);
            w.put(&self.last_backfill);
            w.bool(true); // last_backfill is in bitwise order
            w.u32(self.last_interval_started);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgInfo, Error> {
        r.envelope("PgInfo", 32, 32, |r, _| {
            let mut info = PgInfo::new(SpgId { pgid: r.get()?, ..SpgId::default() });
            info.last_update = r.get()?;
            info.last_complete = r.get()?;
            info.log_tail = r.get()?;
            let _nibblewise: HObject = r.get()?;
            info.stats = r.get()?;
            info.history = r.get()?;
            info.purged_snaps = r.get()?;
            info.last_epoch_started = r.u32()?;
            info.last_user_version = r.u64()?;
            info.hit_set = r.get()?;
            info.pgid.shard = r.i8()?;
            info.last_backfill = r.get()?;
            r.u8()?;
            info.last_interval_started = r.u32()?;
            Ok(info)
        })
    }
}

/// As Ceph's logs print it.
impl fmt::Display for PgInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.pgid)?;
        if self.dne() {
            return f.write_str(" DNE)");
        }
        if self.is_empty() {
            f.write_str(" empty")?;
        } else {
            write!(f, " v {}", self.last_update)?;
            if self.last_complete != self.last_update {
                write!(f, " lc {}", self.last_complete)?;
            }
            write!(f, " ({},{}]", self.log_tail, self.last_update)?;
        }
        if self.is_incomplete() {
            write!(f, " lb {}", self.last_backfill)?;
        }
        write!(
            f,
            " local-lis/les={}/{} n={}",
            self.last_interval_started, self.last_epoch_started, self.stats.stats.sum.num_objects
        )?;
        let h = &self.history;
        write!(
            f,
            " ec={}/{} lis/c={}/{} les/c/f={}/{}/{} sis={}",
            h.epoch_created,
            h.epoch_pool_created,
            h.last_interval_started,
            h.last_interval_clean,
            h.last_epoch_started,
            h.last_epoch_clean,
            h.last_epoch_marked_full,
            h.same_interval_since
        )?;
        f.write_str(")")
    }
}

/// What a write changes in a [`PgInfo`], stored instead of all of it. Wire: pg_fast_info_t v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct PgFastInfo {
    /// As in [`PgInfo`].
    pub last_update: EVersion,
    /// As in [`PgInfo`].
    pub last_complete: EVersion,
    /// As in [`PgInfo`].
    pub last_user_version: u64,
    /// As in [`PgStat`].
    pub version: EVersion,
    /// As in [`PgStat`].
    pub reported_seq: u64,
    /// As in [`PgStat`].
    pub last_fresh: UTime,
    /// As in [`PgStat`].
    pub last_active: UTime,
    /// As in [`PgStat`].
    pub last_peered: UTime,
    /// As in [`PgStat`].
    pub last_clean: UTime,
    /// As in [`PgStat`].
    pub last_unstale: UTime,
    /// As in [`PgStat`].
    pub last_undegraded: UTime,
    /// As in [`PgStat`].
    pub last_fullsized: UTime,
    /// As in [`PgStat`]; the log on disk has the same.
    pub log_size: i64,
    /// As in the counts.
    pub num_bytes: i64,
    /// As in the counts.
    pub num_objects: i64,
    /// As in the counts.
    pub num_object_copies: i64,
    /// As in the counts.
    pub num_rd: i64,
    /// As in the counts.
    pub num_rd_kb: i64,
    /// As in the counts.
    pub num_wr: i64,
    /// As in the counts.
    pub num_wr_kb: i64,
    /// As in the counts.
    pub num_objects_dirty: i64,
}

impl PgFastInfo {
    /// The part of `info` that is here.
    pub fn of(info: &PgInfo) -> PgFastInfo {
        let (stats, sum) = (&info.stats, &info.stats.stats.sum);
        PgFastInfo {
            last_update: info.last_update,
            last_complete: info.last_complete,
            last_user_version: info.last_user_version,
            version: stats.version,
            reported_seq: stats.reported_seq,
            last_fresh: stats.last_fresh,
            last_active: stats.last_active,
            last_peered: stats.last_peered,
            last_clean: stats.last_clean,
            last_unstale: stats.last_unstale,
            last_undegraded: stats.last_undegraded,
            last_fullsized: stats.last_fullsized,
            log_size: stats.log_size,
            num_bytes: sum.num_bytes,
            num_objects: sum.num_objects,
            num_object_copies: sum.num_object_copies,
            num_rd: sum.num_rd,
            num_rd_kb: sum.num_rd_kb,
            num_wr: sum.num_wr,
            num_wr_kb: sum.num_wr_kb,
            num_objects_dirty: sum.num_objects_dirty,
        }
    }

    /// Brings `info` up to date; false, and nothing done, if it is as new already.
    pub fn try_apply_to(&self, info: &mut PgInfo) -> bool {
        if self.last_update <= info.last_update {
            return false;
        }
        info.last_update = self.last_update;
        info.last_complete = self.last_complete;
        info.last_user_version = self.last_user_version;
        let stats = &mut info.stats;
        stats.version = self.version;
        stats.reported_seq = self.reported_seq;
        stats.last_fresh = self.last_fresh;
        stats.last_active = self.last_active;
        stats.last_peered = self.last_peered;
        stats.last_clean = self.last_clean;
        stats.last_unstale = self.last_unstale;
        stats.last_undegraded = self.last_undegraded;
        stats.last_fullsized = self.last_fullsized;
        stats.log_size = self.log_size;
        stats.ondisk_log_size = self.log_size;
        let sum = &mut stats.stats.sum;
        sum.num_bytes = self.num_bytes;
        sum.num_objects = self.num_objects;
        sum.num_object_copies = self.num_object_copies;
        sum.num_rd = self.num_rd;
        sum.num_rd_kb = self.num_rd_kb;
        sum.num_wr = self.num_wr;
        sum.num_wr_kb = self.num_wr_kb;
        sum.num_objects_dirty = self.num_objects_dirty;
        true
    }
}
