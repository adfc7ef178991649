//! Snap trimming: clones of removed snapshots go, one at a time, as writes (`SnapTrimmer` in
//! `src/osd/PrimaryLogPG.cc`). One task a PG, with a pause between clones. None while the PG is
//! scrubbed: what the scan found of a clone is compared with its rows of the mapper afterwards.

use std::rc::Rc;
use std::time::Duration;

use maps::osdmap::osdmap_flags;
use types::{Errno, HObject, IntervalSet, SnapId};

use super::Pg;
use crate::ops::{LockKind, snap_trim};

/// Clones asked of the mapper at a time.
const BATCH: usize = 16;
/// Pause between clones: clients go first.
const PAUSE: Duration = Duration::from_millis(2);

/// Runs of trimmed snapshots that are remembered behind the queue: a client that has not heard yet may
/// name them for a while, and nobody would trim what is cloned for them. Ceph remembers none
/// (`PrimaryLogPG::on_active_advmap`); all of them would be more with each that is removed.
const REMEMBERED: usize = 64;

/// Of the snapshots that a PG has trimmed those that may be named still.
fn remembered(purged: &IntervalSet, queue: &IntervalSet) -> IntervalSet {
    let mut kept = purged.intersection(queue);
    let runs = purged.iter().count();
    for (start, len) in purged.iter().skip(runs.saturating_sub(REMEMBERED)) {
        kept.insert(start, len);
    }
    kept
}

/// How trimming ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trimmed {
    /// Nothing is left to trim.
    All,
    /// Something else has its turn first.
    NotNow,
    /// A clone cannot be trimmed before it is repaired.
    Error,
}

impl Pg {
    /// Removed snapshots that this PG has not trimmed.
    pub(crate) fn snaps_to_trim(&self) -> IntervalSet {
        let mut queue = self.removed_snaps();
        queue.subtract(&self.core.borrow().info.purged_snaps);
        queue
    }

    /// Removed snapshots that some PG of the pool may not have trimmed.
    pub(crate) fn removed_snaps(&self) -> IntervalSet {
        let pool = self.pgid.pgid.pool_id();
        self.map.borrow().removed_snaps_queue.get(&pool).cloned().unwrap_or_default()
    }

    /// Snapshots that all PGs have trimmed leave the queue, and are forgotten in time.
    fn forget_purged_snaps(&self) {
        let purged = self.core.borrow().info.purged_snaps.clone();
        let kept = remembered(&purged, &self.removed_snaps());
        if kept == purged {
            return;
        }
        self.step(|core, _, now, out| {
            core.info.purged_snaps = kept;
            core.mark_dirty_big_info();
            core.share_history(now, out);
        });
    }

    /// Whether a clone may be trimmed now (`SnapTrimmer::can_trim`).
    fn may_trim(&self) -> bool {
        let is_forbidden = self.map.borrow().has_flag(osdmap_flags::NOSNAPTRIM);
        let is_going = self.deleting.get() || self.splitting.get();
        !is_forbidden && !is_going && self.core.borrow().is_clean() && !self.scrub.is_active()
    }

    /// Starts trimming if there is something to trim and nothing against it.
    pub(crate) fn maybe_trim_snaps(&self) {
        if self.snap_trimming.get() || !self.may_trim() || self.is_premerge() {
            return;
        }
        self.forget_purged_snaps();
        if self.snaps_to_trim().is_empty() {
            self.snap_trim_error.set(false);
            return;
        }
        self.snap_trimming.set(true);
        let (pg, generation) = (self.rc(), self.generation.get());
        self.host.env().go(async move {
            let ended = pg.trim_snaps(generation).await;
            pg.snap_trimming.set(false);
            if generation == pg.generation.get() {
                pg.note_trim_error(ended);
            } else {
                // The next interval did not begin: this one had not ended yet.
                pg.maybe_trim_snaps();
            }
        });
    }

    /// Users see whether trimming waits for a repair. It is tried again with the next map and after the next
    /// scrub: an error stays shown until that has gone well.
    fn note_trim_error(&self, ended: Trimmed) {
        let is_error = match ended {
            Trimmed::All => false,
            Trimmed::NotNow => self.snap_trim_error.get(),
            Trimmed::Error => true,
        };
        if self.snap_trim_error.replace(is_error) != is_error {
            self.update_stamps();
        }
    }

    async fn trim_snaps(self: &Rc<Pg>, generation: u64) -> Trimmed {
        loop {
            let Some(snap) = self.snaps_to_trim().range_start() else { return Trimmed::All };
            let trimmed = self.trim_snap(snap, generation).await;
            if trimmed != Trimmed::All {
                return trimmed;
            }
            // Done with this one: remembered with the next write of the info.
            let mut t = store::Transaction::new();
            {
                let mut core = self.core.borrow_mut();
                core.info.purged_snaps.insert(snap, 1);
                core.mark_dirty_big_info();
            }
            self.write_dirty(&mut t);
            if let Err(e) = self.host.store().submit(t).await {
                self.host.store_failed(&e);
                return Trimmed::NotNow;
            }
            self.step(|core, _, now, out| core.share_history(now, out));
        }
    }

    async fn trim_snap(self: &Rc<Pg>, snap: SnapId, generation: u64) -> Trimmed {
        let bits = self.pgid.pgid.split_bits(self.pool().pg_num);
        loop {
            let found =
                self.host.snap_mapper().objects_to_trim(self.pgid.pgid, bits, snap, BATCH).await;
            if generation != self.generation.get() {
                return Trimmed::NotNow;
            }
            let objects: Vec<HObject> = match found {
                Ok(objects) => objects,
                Err(e) => {
                    self.host.store_failed(&e);
                    return Trimmed::NotNow;
                }
            };
            if objects.is_empty() {
                return Trimmed::All;
            }
            let (mut progressed, mut is_error) = (false, false);
            for oid in objects {
                let guard = self.contexts.lock(&oid.head(), LockKind::Write).await;
                if generation != self.generation.get() || !self.may_trim() {
                    return Trimmed::NotNow;
                }
                let trim = snap_trim::trim_object(&self.as_ops(), guard, &oid, snap).await;
                if generation != self.generation.get() || self.scrub.is_active() {
                    return Trimmed::NotNow;
                }
                match trim {
                    Ok(pending) => {
                        if !self.write_internally(pending).await {
                            return Trimmed::NotNow;
                        }
                        progressed = true;
                    }
                    Err(Errno::ENOENT) => {
                        // A row for a clone that is not there: the row goes.
                        tracing::debug!(pg = %self.pgid, %oid, "nothing to trim");
                        let mapper = self.host.snap_mapper();
                        let removed = mapper.remove_of_gone(&oid, async { true }).await;
                        if generation != self.generation.get() {
                            return Trimmed::NotNow;
                        }
                        progressed |= removed.is_ok_and(|removed| removed);
                    }
                    Err(errno) => {
                        tracing::warn!(pg = %self.pgid, %oid, %errno, "cannot be trimmed yet");
                        // Another copy of it or of its head is being fetched: its turn comes when
                        // the PG is clean again.
                        if !self.core.borrow().is_clean() {
                            return Trimmed::NotNow;
                        }
                        is_error = true;
                    }
                }
                self.host.env().sleep(self.host.snap_trim_sleep().max(PAUSE)).await;
            }
            // Its rows stay, or nobody would trim it once its head is repaired. The snapshot is not done with before.
            if is_error {
                return Trimmed::Error;
            }
            if !progressed {
                return Trimmed::NotNow;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a placement group had trimmed it remembered for ever: a run of numbers in each copy for each snapshot that was ever removed.
    #[test]
    fn few_trimmed_snapshots_are_remembered() {
        let runs = |numbers: &mut dyn Iterator<Item = u64>| {
            let mut set = IntervalSet::new();
            numbers.for_each(|n| set.insert(2 * n, 1));
            set
        };
        let few = runs(&mut (1..=64));
        assert_eq!(remembered(&few, &IntervalSet::new()), few);
        let all = runs(&mut (1..=1000));
        assert_eq!(remembered(&all, &IntervalSet::new()), runs(&mut (937..=1000)));
        // What is in the queue must be known as trimmed.
        let queue = runs(&mut [3, 2000].into_iter());
        assert_eq!(remembered(&all, &queue), runs(&mut [3].into_iter().chain(937..=1000)));
    }
}
