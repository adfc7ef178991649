//! Every PG's and OSD's last report, the sums over them kept along, and the changes of the sums
//! that tell rates. Wire: PGMap v8.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crush::CrushMap;
use denc::{Denc, Error, Reader, Writer};
use types::osd::pg_state;
use types::osd::{OsdStat, PgStat, PoolStat, StoreStatfs};
use types::{Epoch, OsdId, PgId, UTime};

use super::{PgMapDigest, add_osd, add_pg, sub_osd, sub_pg};
use crate::OsdMap;

/// What changes between two versions.
#[derive(Debug, Clone, Default)]
pub struct PgMapIncremental {
    /// When.
    pub stamp: UTime,
    /// New reports of PGs.
    pub pg_stat_updates: BTreeMap<PgId, PgStat>,
    /// New reports of OSDs.
    pub osd_stat_updates: BTreeMap<OsdId, OsdStat>,
    /// New space by pool and OSD.
    pub pool_statfs_updates: BTreeMap<(i64, OsdId), StoreStatfs>,
    /// OSDs forgotten.
    pub osd_stat_rm: BTreeSet<OsdId>,
    /// PGs forgotten.
    pub pg_remove: BTreeSet<PgId>,
    /// 0: no change.
    pub osdmap_epoch: Epoch,
}

/// How rates are smoothed.
#[derive(Debug, Clone, Copy)]
pub struct DeltaSettings {
    /// Changes added up for a rate (mon_stat_smooth_intervals).
    pub smooth_intervals: usize,
    /// Seconds; a change of a pool counts for at most twice that (mon_delta_reset_interval).
    pub reset_interval_secs: u32,
}

impl Default for DeltaSettings {
    fn default() -> DeltaSettings {
        DeltaSettings { smooth_intervals: 6, reset_interval_secs: 10 }
    }
}

/// States a PG may be stuck in; several may be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stuck {
    /// Not active.
    Inactive,
    /// Not clean.
    Unclean,
    /// Too few copies.
    Degraded,
    /// Too few OSDs.
    Undersized,
    /// Not reported.
    Stale,
    /// Peering.
    Peering,
}

/// All that is known of the PGs.
#[derive(Debug, Clone, Default)]
pub struct PgMap {
    /// Counts the changes.
    pub version: u64,
    /// When the last change was.
    pub stamp: UTime,
    /// OSD map of the last change.
    pub last_osdmap_epoch: Epoch,
    /// Not used since luminous.
    pub last_pg_scan: Epoch,
    /// By PG.
    pub pg_stat: BTreeMap<PgId, PgStat>,
    /// By OSD.
    pub osd_stat: BTreeMap<OsdId, OsdStat>,
    /// Space by pool and OSD.
    pub pool_statfs: BTreeMap<(i64, OsdId), StoreStatfs>,
    /// The sums.
    pub digest: PgMapDigest,
    /// PGs by OSD, acting or up.
    pub pg_by_osd: BTreeMap<OsdId, BTreeSet<PgId>>,
    /// How many PGs each OSD blocks.
    pub blocked_by_sum: BTreeMap<OsdId, i32>,
    /// Changes of the sum; at most smooth_intervals of them.
    pg_sum_deltas: VecDeque<(PoolStat, UTime)>,
    /// Changes of the pools' sums; at most smooth_intervals each.
    per_pool_sum_deltas: BTreeMap<i64, VecDeque<(PoolStat, UTime)>>,
}

impl PgMap {
    /// Takes in new reports.
    pub fn apply(&mut self, inc: &PgMapIncremental, settings: DeltaSettings) {
        self.version += 1;
        let old_sum = self.digest.pg_sum;
        let old_pools = self.digest.pg_pool_sum.clone();

        for (pg, stat) in &inc.pg_stat_updates {
            if let Some(old) = self.pg_stat.insert(*pg, stat.clone()) {
                self.drop_pg(*pg, &old);
            }
            self.count_pg(*pg, stat);
        }
        for ((pool, osd), statfs) in &inc.pool_statfs_updates {
            let Some(sum) = self.digest.pg_pool_sum.get_mut(&(*pool as i32)) else { continue };
            if let Some(old) = self.pool_statfs.insert((*pool, *osd), *statfs) {
                sum.store_stats.sub(&old);
                sum.num_store_stats -= 1;
            }
            sum.store_stats.add(statfs);
            sum.num_store_stats += 1;
        }
        for (osd, stat) in &inc.osd_stat_updates {
            if let Some(old) = self.osd_stat.insert(*osd, stat.clone()) {
                self.drop_osd(*osd, &old);
            }
            self.count_osd(*osd, stat);
        }
        let mut emptied = BTreeSet::new();
        for pg in &inc.pg_remove {
            if let Some(old) = self.pg_stat.remove(pg) {
                self.drop_pg(*pg, &old);
                if !self.digest.num_pg_by_pool.contains_key(&pg.pool_id()) {
                    emptied.insert(pg.pool_id());
                }
            }
        }
        for osd in &inc.osd_stat_rm {
            self.forget_osd(*osd);
        }

        // Not while there was nothing to compare with.
        if !self.stamp.is_zero() && !old_sum.stats.sum.is_zero() {
            let took = UTime::from_duration(inc.stamp.since(self.stamp));
            self.push_delta(&old_sum, took, settings);
        }
        self.stamp = inc.stamp;
        for (pool, old) in &old_pools {
            self.push_pool_delta(i64::from(*pool), old, inc.stamp, settings);
        }
        for pool in emptied {
            self.forget_pool(pool);
        }
        if inc.osdmap_epoch != 0 {
            self.last_osdmap_epoch = inc.osdmap_epoch;
        }
    }

    /// Recomputes every sum.
    fn recount(&mut self) {
        let (pgs, osds) = (std::mem::take(&mut self.pg_stat), std::mem::take(&mut self.osd_stat));
        pgs.iter().for_each(|(pg, stat)| self.count_pg(*pg, stat));
        osds.iter().for_each(|(osd, stat)| self.count_osd(*osd, stat));
        (self.pg_stat, self.osd_stat) = (pgs, osds);
        for ((pool, _), statfs) in &self.pool_statfs {
            let sum = self.digest.pg_pool_sum.entry(*pool as i32).or_default();
            sum.store_stats.add(statfs);
            sum.num_store_stats += 1;
        }
    }

    fn count_pg(&mut self, pg: PgId, stat: &PgStat) {
        let d = &mut self.digest;
        add_pg(&mut d.pg_sum, stat);
        add_pg(d.pg_pool_sum.entry(pg.pool as i32).or_default(), stat);
        d.num_pg += 1;
        *d.num_pg_by_state.entry(stat.state).or_default() += 1;
        *d.num_pg_by_pool.entry(pg.pool_id()).or_default() += 1;
        d.num_pg_active += i64::from(stat.state & pg_state::ACTIVE != 0);
        d.num_pg_unknown += i64::from(stat.state == 0);
        for osd in &stat.blocked_by {
            *self.blocked_by_sum.entry(*osd).or_default() += 1;
        }
        for osd in &stat.acting {
            self.pg_by_osd.entry(*osd).or_default().insert(pg);
            d.num_pg_by_osd.entry(*osd).or_default().acting += 1;
        }
        for osd in &stat.up {
            if self.pg_by_osd.entry(*osd).or_default().insert(pg) {
                d.num_pg_by_osd.entry(*osd).or_default().up_not_acting += 1;
            }
        }
        if stat.up_primary >= 0 {
            d.num_pg_by_osd.entry(stat.up_primary).or_default().primary += 1;
        }
    }

    fn drop_pg(&mut self, pg: PgId, stat: &PgStat) {
        let d = &mut self.digest;
        sub_pg(&mut d.pg_sum, stat);
        if let Some(sum) = d.pg_pool_sum.get_mut(&(pg.pool as i32)) {
            sub_pg(sum, stat);
        }
        d.num_pg -= 1;
        take_one(&mut d.num_pg_by_state, stat.state);
        if let Some(n) = d.num_pg_by_pool.get_mut(&pg.pool_id()) {
            *n -= 1;
            if *n == 0 {
                d.num_pg_by_pool.remove(&pg.pool_id());
            }
        }
        d.num_pg_active -= i64::from(stat.state & pg_state::ACTIVE != 0);
        d.num_pg_unknown -= i64::from(stat.state == 0);
        for osd in &stat.blocked_by {
            take_one(&mut self.blocked_by_sum, *osd);
        }
        for osd in stat.acting.iter().chain(&stat.up) {
            if let Some(pgs) = self.pg_by_osd.get_mut(osd) {
                pgs.remove(&pg);
                if pgs.is_empty() {
                    self.pg_by_osd.remove(osd);
                }
            }
        }
        for osd in &stat.acting {
            if let Some(count) = d.num_pg_by_osd.get_mut(osd) {
                count.acting = (count.acting - 1).max(0);
            }
        }
        for osd in stat.up.iter().filter(|osd| !stat.acting.contains(osd)) {
            if let Some(count) = d.num_pg_by_osd.get_mut(osd) {
                count.up_not_acting = (count.up_not_acting - 1).max(0);
            }
        }
        if let Some(count) = d.num_pg_by_osd.get_mut(&stat.up_primary) {
            count.primary = (count.primary - 1).max(0);
        }
    }

    fn count_osd(&mut self, osd: OsdId, stat: &OsdStat) {
        let d = &mut self.digest;
        d.num_osd += 1;
        add_osd(&mut d.osd_sum, stat);
        let Ok(i) = usize::try_from(osd) else { return };
        if d.osd_last_seq.len() <= i {
            d.osd_last_seq.resize(i + 1, 0);
        }
        d.osd_last_seq[i] = stat.seq;
    }

    fn drop_osd(&mut self, osd: OsdId, stat: &OsdStat) {
        let d = &mut self.digest;
        d.num_osd -= 1;
        sub_osd(&mut d.osd_sum, stat);
        let i = usize::try_from(osd).unwrap_or(usize::MAX);
        if let Some(seq) = d.osd_last_seq.get_mut(i) {
            *seq = 0;
        }
    }

    fn forget_osd(&mut self, osd: OsdId) {
        if let Some(old) = self.osd_stat.remove(&osd) {
            self.drop_osd(osd, &old);
        }
        let sums = &mut self.digest.pg_pool_sum;
        self.pool_statfs.retain(|(pool, of), statfs| {
            if *of == osd
                && let Some(sum) = sums.get_mut(&(*pool as i32))
            {
                sum.store_stats.sub(statfs);
                sum.num_store_stats -= 1;
            }
            *of != osd
        });
    }

    fn forget_pool(&mut self, pool: i64) {
        let d = &mut self.digest;
        d.pg_pool_sum.remove(&(pool as i32));
        d.num_pg_by_pool.remove(&pool);
        d.per_pool_sum_delta.remove(&pool);
        d.per_pool_sum_deltas_stamps.remove(&pool);
        self.per_pool_sum_deltas.remove(&pool);
        self.pool_statfs.retain(|(of, _), _| *of != pool);
    }

    fn push_delta(&mut self, old: &PoolStat, took: UTime, settings: DeltaSettings) {
        let d = &mut self.digest;
        let mut change = d.pg_sum;
        change.stats.sum.sub(&old.stats.sum);
        self.pg_sum_deltas.push_back((change, took));
        d.pg_sum_delta.stats.sum.add(&change.stats.sum);
        d.stamp_delta = d.stamp_delta.plus(took.to_duration());
        while self.pg_sum_deltas.len() > settings.smooth_intervals {
            let Some((change, took)) = self.pg_sum_deltas.pop_front() else { break };
            d.pg_sum_delta.stats.sum.sub(&change.stats.sum);
            d.stamp_delta = d.stamp_delta.minus(took.to_duration());
        }
    }

    fn push_pool_delta(&mut self, pool: i64, old: &PoolStat, now: UTime, settings: DeltaSettings) {
        let d = &mut self.digest;
        let current = d.pg_pool_sum.get(&(pool as i32)).copied().unwrap_or_default();
        let (sum, last) = d.per_pool_sum_delta.entry(pool).or_default();
        let total = d.per_pool_sum_deltas_stamps.entry(pool).or_default();
        let most = Duration::from_secs(2 * u64::from(settings.reset_interval_secs));
        let took = UTime::from_duration(now.since(*last).min(most));
        *last = now;
        let list = self.per_pool_sum_deltas.entry(pool).or_default();
        if !old.stats.sum.is_zero() {
            let mut change = current;
            change.stats.sum.sub(&old.stats.sum);
            sum.stats.sum.add(&change.stats.sum);
            *total = total.plus(took.to_duration());
            list.push_back((change, took));
        }
        while list.len() > settings.smooth_intervals {
            let Some((change, took)) = list.pop_front() else { break };
            sum.stats.sum.sub(&change.stats.sum);
            *total = total.minus(took.to_duration());
        }
    }

    /// Raw bytes that may still be written by a rule before the first of its OSDs is full; -1
    /// when none of them has reported.
    pub fn rule_avail(&self, osdmap: &OsdMap, rule: i32) -> i64 {
        let weights = osdmap.crush.rule_weights(rule);
        if weights.is_empty() {
            return 0;
        }
        let mut least: Option<i64> = None;
        for (osd, share) in weights {
            let Some(stat) = self.osd_stat.get(&osd) else { continue };
            if stat.statfs.total == 0 || share == 0.0 {
                continue;
            }
            let unusable = stat.statfs.kb() as f64 * (1.0 - f64::from(osdmap.full_ratio));
            let avail = (stat.statfs.kb_avail() as f64 - unusable).max(0.0) * 1024.0;
            let projected = (avail / f64::from(share)) as i64;
            least = Some(least.map_or(projected, |least| least.min(projected)));
        }
        least.unwrap_or(-1)
    }

    /// The digest, with what it takes from the OSD map brought up to date.
    pub fn digest_for(&mut self, osdmap: &OsdMap) -> PgMapDigest {
        let mut by_rule = BTreeMap::new();
        for (id, pool) in &osdmap.pools {
            if self.digest.pg_pool_sum.contains_key(&(*id as i32)) {
                let rule = i32::from(pool.crush_rule);
                by_rule.entry(rule).or_insert_with(|| self.rule_avail(osdmap, rule));
            }
        }
        self.digest.avail_space_by_rule = by_rule;
        self.sum_by_class(&osdmap.crush);
        self.intersect_purged_snaps();
        self.digest.clone()
    }

    fn sum_by_class(&mut self, crush: &CrushMap) {
        let mut sums: BTreeMap<String, OsdStat> = BTreeMap::new();
        for (osd, stat) in &self.osd_stat {
            if let Some(class) = crush.class_of(*osd) {
                add_osd(sums.entry(class.to_owned()).or_default(), stat);
            }
        }
        self.digest.osd_sum_by_class = sums;
    }

    fn intersect_purged_snaps(&mut self) {
        let mut unknown = BTreeSet::new();
        let purged = &mut self.digest.purged_snaps;
        purged.clear();
        for (pg, stat) in &self.pg_stat {
            let pool = pg.pool_id();
            if stat.state == 0 {
                unknown.insert(pool);
            }
            match purged.get_mut(&pool) {
                Some(snaps) => *snaps = snaps.intersection(&stat.purged_snaps),
                None => {
                    purged.insert(pool, stat.purged_snaps.clone());
                }
            }
        }
        purged.retain(|pool, _| !unknown.contains(pool));
    }

    /// PGs that have been in one of these states since before `cutoff`.
    pub fn stuck(&self, kinds: &[Stuck], cutoff: UTime) -> BTreeSet<PgId> {
        let since = |stat: &PgStat, kind: Stuck| {
            let is = |bit: u64| stat.state & bit != 0;
            match kind {
                Stuck::Inactive if !is(pg_state::ACTIVE) => Some(stat.last_active),
                Stuck::Unclean if !is(pg_state::CLEAN) => Some(stat.last_clean),
                Stuck::Degraded if is(pg_state::DEGRADED) => Some(stat.last_undegraded),
                Stuck::Undersized if is(pg_state::UNDERSIZED) => Some(stat.last_fullsized),
                Stuck::Stale if is(pg_state::STALE) => Some(stat.last_unstale),
                Stuck::Peering if is(pg_state::PEERING) => {
                    Some(stat.last_active.max(stat.last_peered))
                }
                _ => None,
            }
        };
        let stuck = |stat: &PgStat| {
            kinds.iter().any(|kind| since(stat, *kind).is_some_and(|since| since < cutoff))
        };
        self.pg_stat.iter().filter(|(_, stat)| stuck(stat)).map(|(pg, _)| *pg).collect()
    }

    /// How many PGs an OSD has to do with, by its role.
    pub fn num_pg_of(&self, osd: OsdId) -> super::PgCount {
        self.digest.num_pg_by_osd.get(&osd).copied().unwrap_or_default()
    }
}

fn take_one<K: Ord>(counts: &mut BTreeMap<K, i32>, key: K) {
    if let Some(n) = counts.get_mut(&key) {
        *n -= 1;
        if *n <= 0 {
            counts.remove(&key);
        }
    }
}

impl Denc for PgMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(8, 8, |w| {
            w.u64(self.version);
            w.put(&self.pg_stat);
            w.put(&self.osd_stat);
            w.u32(self.last_osdmap_epoch);
            w.u32(self.last_pg_scan);
            w.put(&self.stamp);
            w.put(&self.pool_statfs);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        r.envelope("PGMap", 8, 8, |r, _| {
            let mut map = PgMap {
                version: r.u64()?,
                pg_stat: r.get()?,
                osd_stat: r.get()?,
                last_osdmap_epoch: r.u32()?,
                last_pg_scan: r.u32()?,
                stamp: r.get()?,
                pool_statfs: r.get()?,
                ..PgMap::default()
            };
            map.recount();
            Ok(map)
        })
    }
}
