//! What a primary reports of its PG.

use std::collections::{BTreeMap, BTreeSet};

use denc::{Denc, Error, Reader, Writer};

use super::stat_sum::ObjectStatCollection;
use crate::ids::{Epoch, OsdId};
use crate::interval_set::IntervalSet;
use crate::pg::{PgId, PgShard};
use crate::time::UTime;
use crate::version::EVersion;

/// Wire: pg_stat_t v26/c22.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PgStat {
    /// The PG's last update.
    pub version: EVersion,
    /// Counts reports.
    pub reported_seq: u64,
    /// Epoch of the report.
    pub reported_epoch: Epoch,
    /// Bits of [`super::pg_state`].
    pub state: u64,
    /// Last report.
    pub last_fresh: UTime,
    /// Last change of the state.
    pub last_change: UTime,
    /// When it last was active.
    pub last_active: UTime,
    /// When it last was active or peered.
    pub last_peered: UTime,
    /// When it last was clean.
    pub last_clean: UTime,
    /// When it last was not stale.
    pub last_unstale: UTime,
    /// When it last was not degraded.
    pub last_undegraded: UTime,
    /// When it last was not undersized.
    pub last_fullsized: UTime,
    /// When it last became active.
    pub last_became_active: UTime,
    /// When it last became peered.
    pub last_became_peered: UTime,
    /// Version before the oldest log entry.
    pub log_start: EVersion,
    /// The same of the log on disk.
    pub ondisk_log_start: EVersion,
    /// Epoch of creation.
    pub created: Epoch,
    /// Epoch in which it last was clean.
    pub last_epoch_clean: Epoch,
    /// The PG it split from.
    pub parent: PgId,
    /// How.
    pub parent_split_bits: u32,
    /// Version at the last scrub.
    pub last_scrub: EVersion,
    /// Version at the last deep scrub.
    pub last_deep_scrub: EVersion,
    /// When the last scrub was.
    pub last_scrub_stamp: UTime,
    /// When the last deep scrub was.
    pub last_deep_scrub_stamp: UTime,
    /// When a scrub last found no error.
    pub last_clean_scrub_stamp: UTime,
    /// The counts.
    pub stats: ObjectStatCollection,
    /// Log entries.
    pub log_size: i64,
    /// Log entries on disk.
    pub ondisk_log_size: i64,
    /// Shards with nothing missing.
    pub avail_no_missing: Vec<PgShard>,
    /// Objects by the set of shards that have them.
    pub object_location_counts: BTreeMap<BTreeSet<PgShard>, i32>,
    /// Epoch of `up` and `acting`.
    pub mapping_epoch: Epoch,
    /// OSDs for whom peering waits.
    pub blocked_by: Vec<OsdId>,
    /// Snapshots purged since the last report.
    pub purged_snaps: IntervalSet,
    /// The up set.
    pub up: Vec<OsdId>,
    /// The acting set.
    pub acting: Vec<OsdId>,
    /// Its primary.
    pub up_primary: OsdId,
    /// Its primary.
    pub acting_primary: OsdId,
    /// Snapshots waiting to be trimmed.
    pub snaptrimq_len: u32,
    /// Counts are estimates, after a split.
    pub stats_invalid: bool,
    /// `num_objects_dirty` is an estimate.
    pub dirty_stats_invalid: bool,
    /// `num_objects_omap` is an estimate.
    pub omap_stats_invalid: bool,
    /// `num_objects_hit_set_archive` is an estimate.
    pub hitset_stats_invalid: bool,
    /// `num_bytes_hit_set_archive` is an estimate.
    pub hitset_bytes_stats_invalid: bool,
    /// `num_objects_pinned` is an estimate.
    pub pin_stats_invalid: bool,
    /// `num_objects_manifest` is an estimate.
    pub manifest_stats_invalid: bool,
}

impl Default for PgStat {
    fn default() -> PgStat {
        PgStat {
            version: EVersion::ZERO,
            reported_seq: 0,
            reported_epoch: 0,
            state: 0,
            last_fresh: UTime::ZERO,
            last_change: UTime::ZERO,
            last_active: UTime::ZERO,
            last_peered: UTime::ZERO,
            last_clean: UTime::ZERO,
            last_unstale: UTime::ZERO,
            last_undegraded: UTime::ZERO,
            last_fullsized: UTime::ZERO,
            last_became_active: UTime::ZERO,
            last_became_peered: UTime::ZERO,
            log_start: EVersion::ZERO,
            ondisk_log_start: EVersion::ZERO,
            created: 0,
            last_epoch_clean: 0,
            parent: PgId::default(),
            parent_split_bits: 0,
            last_scrub: EVersion::ZERO,
            last_deep_scrub: EVersion::ZERO,
            last_scrub_stamp: UTime::ZERO,
            last_deep_scrub_stamp: UTime::ZERO,
            last_clean_scrub_stamp: UTime::ZERO,
            stats: ObjectStatCollection::default(),
            log_size: 0,
            ondisk_log_size: 0,
            avail_no_missing: Vec::new(),
            object_location_counts: BTreeMap::new(),
            mapping_epoch: 0,
            blocked_by: Vec::new(),
            purged_snaps: IntervalSet::new(),
            up: Vec::new(),
            acting: Vec::new(),
            up_primary: -1,
            acting_primary: -1,
            snaptrimq_len: 0,
            stats_invalid: false,
            dirty_stats_invalid: false,
            omap_stats_invalid: false,
            hitset_stats_invalid: false,
            hitset_bytes_stats_invalid: false,
            pin_stats_invalid: false,
            manifest_stats_invalid: false,
        }
    }
}

impl PgStat {
    /// (epoch, sequence) of the report: which of two is newer.
    pub fn reported(&self) -> (Epoch, u64) {
        (self.reported_epoch, self.reported_seq)
    }
}

impl Denc for PgStat {
    fn encode(&self, w: &mut Writer) {
        w.envelope(26, 22, |w| {
            w.put(&self.version);
            w.u64(self.reported_seq);
            w.u32(self.reported_epoch);
            w.u32(self.state as u32);
            w.put(&self.log_start);
            w.put(&self.ondisk_log_start);
            w.u32(self.created);
            w.u32(self.last_epoch_clean);
            w.put(&self.parent);
            w.u32(self.parent_split_bits);
            w.put(&self.last_scrub);
            w.put(&self.last_scrub_stamp);
            w.put(&self.stats);
            w.i64(self.log_size);
            w.i64(self.ondisk_log_size);
            w.put(&self.up);
            w.put(&self.acting);
            w.put(&self.last_fresh);
            w.put(&self.last_change);
            w.put(&self.last_active);
            w.put(&self.last_clean);
            w.put(&self.last_unstale);
            w.u32(self.mapping_epoch);
            w.put(&self.last_deep_scrub);
            w.put(&self.last_deep_scrub_stamp);
            w.bool(self.stats_invalid);
            w.put(&self.last_clean_scrub_stamp);
            w.put(&self.last_became_active);
            w.bool(self.dirty_stats_invalid);
            w.i32(self.up_primary);
            w.i32(self.acting_primary);
            w.bool(self.omap_stats_invalid);
            w.bool(self.hitset_stats_invalid);
            w.put(&self.blocked_by);
            w.put(&self.last_undegraded);
            w.put(&self.last_fullsized);
            w.bool(self.hitset_bytes_stats_invalid);
            w.put(&self.last_peered);
            w.put(&self.last_became_peered);
            w.bool(self.pin_stats_invalid);
            w.u32(self.snaptrimq_len);
            w.u32((self.state >> 32) as u32);
            w.put(&self.purged_snaps);
            w.bool(self.manifest_stats_invalid);
            w.put(&self.avail_no_missing);
            w.put(&self.object_location_counts);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<PgStat, Error> {
        r.envelope("PgStat", 26, 26, |r, _| {
            let mut s = PgStat {
                version: r.get()?,
                reported_seq: r.u64()?,
                reported_epoch: r.u32()?,
                state: r.u32()?.into(),
                log_start: r.get()?,
                ondisk_log_start: r.get()?,
                created: r.u32()?,
                last_epoch_clean: r.u32()?,
                parent: r.get()?,
                parent_split_bits: r.u32()?,
                last_scrub: r.get()?,
                last_scrub_stamp: r.get()?,
                stats: r.get()?,
                log_size: r.i64()?,
                ondisk_log_size: r.i64()?,
                up: r.get()?,
                acting: r.get()?,
                last_fresh: r.get()?,
                last_change: r.get()?,
                last_active: r.get()?,
                last_clean: r.get()?,
                last_unstale: r.get()?,
                mapping_epoch: r.u32()?,
                last_deep_scrub: r.get()?,
                last_deep_scrub_stamp: r.get()?,
                stats_invalid: r.bool()?,
                last_clean_scrub_stamp: r.get()?,
                last_became_active: r.get()?,
                dirty_stats_invalid: r.bool()?,
                up_primary: r.i32()?,
                acting_primary: r.i32()?,
                omap_stats_invalid: r.bool()?,
                hitset_stats_invalid: r.bool()?,
                blocked_by: r.get()?,
                last_undegraded: r.get()?,
                last_fullsized: r.get()?,
                hitset_bytes_stats_invalid: r.bool()?,
                last_peered: r.get()?,
                last_became_peered: r.get()?,
                pin_stats_invalid: r.bool()?,
                snaptrimq_len: r.u32()?,
                ..PgStat::default()
            };
            s.state |= u64::from(r.u32()?) << 32;
            s.purged_snaps = r.get()?;
            s.manifest_stats_invalid = r.bool()?;
            s.avail_no_missing = r.get()?;
            s.object_location_counts = r.get()?;
            Ok(s)
        })
    }
}
