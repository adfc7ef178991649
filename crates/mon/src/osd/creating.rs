//! Placement groups being created: those of new pools that no OSD has reported as made.
//!
//! Each waits with the set of OSDs it maps to, and with the history of earlier sets, so that an
//! OSD which makes it late knows that others may have made it before. Primaries that subscribe
//! `osd_pg_creates` are sent theirs whenever their mapping changes.

use std::collections::{BTreeMap, VecDeque};

use denc::Denc;
use maps::pool::pool_flags;
use maps::{Incremental, OsdMap};
use messages::{MOSDPGCreate2, MOSDPGCreated};
use store::Kv;
use types::osd::past_intervals::{PastIntervals, PgInterval};
use types::osd::pg_history::PgHistory;
use types::{Epoch, OsdId, PgId, SpgId, UTime};

use crate::core::{LoadError, MonCore};
use crate::event::SessionId;
use crate::event::wire;
use crate::layout::{self, OSD_CREATING};

/// One placement group that waits.
#[derive(Debug, Clone, PartialEq, Default, Denc)]
#[denc(v = 1, compat = 1)]
struct Creating {
    create_epoch: Epoch,
    create_stamp: UTime,
    /// Epoch since which the OSDs below are its.
    mapped_epoch: Epoch,
    up: Vec<OsdId>,
    up_primary: OsdId,
    acting: Vec<OsdId>,
    acting_primary: OsdId,
    history: PgHistory,
    past_intervals: PastIntervals,
}

/// Placement groups of one pool whose turn has not come.
#[derive(Debug, Clone, PartialEq, Default, Denc)]
#[denc(v = 1, compat = 1)]
struct Queued {
    pool: i64,
    created: Epoch,
    stamp: UTime,
    start: u32,
    end: u32,
}

/// State of the service.
#[derive(Debug, Clone, PartialEq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub(crate) struct CreatingPgs {
    last_scan_epoch: Epoch,
    /// At most `mon_osd_max_creating_pgs`.
    pgs: BTreeMap<PgId, Creating>,
    queue: Vec<Queued>,
}

impl CreatingPgs {
    pub(crate) fn load(kv: &dyn Kv) -> Result<CreatingPgs, LoadError> {
        match layout::get(kv, OSD_CREATING, "creating")? {
            Some(bytes) => CreatingPgs::from_bytes(&bytes)
                .map_err(|error| LoadError::Decode { what: "creating pgs".into(), error }),
            None => Ok(CreatingPgs::default()),
        }
    }

    pub(crate) fn is_creating_any(&self) -> bool {
        !self.pgs.is_empty() || !self.queue.is_empty()
    }

    pub(crate) fn is_creating_pool(&self, pool: i64) -> bool {
        self.pgs.keys().any(|pgid| pgid.pool_id() == pool)
            || self.queue.iter().any(|q| q.pool == pool)
    }
}

impl MonCore {
    /// Brings the list to a new epoch: `map` results from `inc`.
    pub(crate) fn update_creating(&mut self, inc: &Incremental, map: &OsdMap) {
        let before = self.osd.creating.clone();
        let old = self.osd.map.clone();
        let max = self.conf.uint("mon_osd_max_creating_pgs") as usize;
        let creating = &mut self.osd.creating;
        creating.pgs.retain(|pgid, _| map.pg_exists(*pgid));
        creating.queue.retain(|q| map.pool(q.pool).is_some());
        for (id, pool) in &inc.new_pools {
            if old.pool(*id).is_none() {
                creating.queue.push(Queued {
                    pool: *id,
                    created: inc.epoch,
                    stamp: inc.modified,
                    start: 0,
                    end: pool.pg_num,
                });
            }
        }
        fill_from_queue(creating, map, max);
        for (pgid, pg) in &mut creating.pgs {
            remap(*pgid, pg, &old, map);
        }
        creating.last_scan_epoch = inc.epoch;
        let changed = creating.pgs != before.pgs || creating.queue != before.queue;
        if changed {
            self.put_creating();
        }
    }

    fn put_creating(&mut self) {
        let bytes = self.osd.creating.to_bytes();
        self.batch().put(layout::key(OSD_CREATING, "creating"), bytes);
    }

    /// A primary has made a placement group.
    pub(crate) fn on_pg_created(&mut self, from: SessionId, m: MOSDPGCreated) {
        let Some(osd) = self.osd_of_session(from) else { return };
        let Some(pg) = self.osd.creating.pgs.get(&m.pgid) else { return };
        if pg.acting_primary != osd || !self.speaks_for(from, osd, &self.osdmap()) {
            return;
        }
        self.osd.creating.pgs.remove(&m.pgid);
        self.put_creating();
        if !self.osd.creating.queue.is_empty() {
            // The next ones are told with an epoch of their own: their primaries have asked for what comes after this one.
            self.inc();
        }
        self.clear_creating_flags();
    }

    /// A pool all of whose placement groups are made is no longer being created.
    pub(crate) fn clear_creating_flags(&mut self) {
        let map = self.next_map();
        let ready: Vec<i64> = map
            .pools
            .iter()
            .filter(|(id, pool)| {
                pool.has_flag(pool_flags::CREATING)
                    && self.osd.map.pool(**id).is_some()
                    && !self.osd.creating.is_creating_pool(**id)
            })
            .map(|(id, _)| *id)
            .collect();
        for id in ready {
            if let Some(mut pool) = self.pool_to_change(id) {
                pool.flags &= !pool_flags::CREATING;
                self.put_pool(id, pool);
            }
        }
    }

    pub(crate) fn tick_creating(&mut self) {
        self.clear_creating_flags();
    }

    /// Sends an OSD those of its placement groups whose mapping is of epoch `next` or newer; gives
    /// the epoch to go on from.
    pub(crate) fn send_pg_creates(&mut self, to: SessionId, next: Epoch) -> Epoch {
        let Some(osd) = self.osd_of_session(to) else { return next };
        let map = self.osd.published.clone();
        let mut m =
            MOSDPGCreate2 { epoch: map.epoch, pgs: BTreeMap::new(), pg_extra: BTreeMap::new() };
        let mut last = next.saturating_sub(1);
        for (pgid, pg) in &self.osd.creating.pgs {
            if pg.acting_primary != osd || pg.mapped_epoch < next || pg.mapped_epoch > map.epoch {
                continue;
            }
            let Some(pool) = map.pool(pgid.pool_id()) else { continue };
            let shard = map.shard_of(pool, &pg.acting, osd).unwrap_or(types::pg::NO_SHARD);
            let spgid = SpgId { pgid: *pgid, shard };
            m.pgs.insert(spgid, (pg.create_epoch, pg.create_stamp));
            m.pg_extra.insert(spgid, (pg.history, pg.past_intervals.clone()));
            last = last.max(pg.mapped_epoch);
        }
        if !m.pgs.is_empty() {
            self.send_now(to, wire(&m));
        }
        last + 1
    }

    /// Makes a placement group that exists anew, empty: with the next epoch, as its primary may have been told what is
    /// created in this one.
    pub(crate) fn force_create_pg(&mut self, pgid: PgId) {
        let pg = new_creating(self.osd.map.epoch, self.now.wall);
        self.osd.creating.pgs.insert(pgid, pg);
        self.put_creating();
        self.inc();
    }
}

fn new_creating(epoch: Epoch, stamp: UTime) -> Creating {
    let history = PgHistory {
        epoch_created: epoch,
        epoch_pool_created: epoch,
        same_interval_since: epoch,
        same_up_since: epoch,
        same_primary_since: epoch,
        last_scrub_stamp: stamp,
        last_deep_scrub_stamp: stamp,
        last_clean_scrub_stamp: stamp,
        ..PgHistory::default()
    };
    Creating {
        create_epoch: epoch,
        create_stamp: stamp,
        mapped_epoch: 0,
        up_primary: -1,
        acting_primary: -1,
        history,
        ..Creating::default()
    }
}

fn fill_from_queue(creating: &mut CreatingPgs, map: &OsdMap, max: usize) {
    let mut queue: VecDeque<Queued> = std::mem::take(&mut creating.queue).into();
    while creating.pgs.len() < max {
        let Some(mut front) = queue.pop_front() else { break };
        let Ok(pool) = u64::try_from(front.pool) else { continue };
        while front.start < front.end && creating.pgs.len() < max {
            let pgid = PgId::new(pool, front.start);
            let mut pg = new_creating(front.created, front.stamp);
            // It has its first mapping at once; intervals before are unknown to everybody.
            remap(pgid, &mut pg, map, map);
            creating.pgs.insert(pgid, pg);
            front.start += 1;
        }
        if front.start < front.end {
            queue.push_front(front);
        }
    }
    creating.queue = queue.into();
}

/// Takes the mapping of `map` over; if it is another one than in `old`, the interval that ended is
/// recorded.
fn remap(pgid: PgId, pg: &mut Creating, old: &OsdMap, map: &OsdMap) {
    let now = map.pg_to_up_acting(pgid);
    let same = now.up == pg.up
        && now.acting == pg.acting
        && now.up_primary == pg.up_primary
        && now.acting_primary == pg.acting_primary;
    if same && pg.mapped_epoch != 0 {
        return;
    }
    if pg.mapped_epoch != 0 {
        let Some(pool) = map.pool(pgid.pool_id()) else { return };
        let first = pg.history.same_interval_since;
        let alive = pg.acting.iter().filter(|osd| **osd != crush::ITEM_NONE).count();
        let led = pg.acting_primary >= 0
            && alive >= usize::from(pool.min_size)
            && old
                .info(pg.acting_primary)
                .is_some_and(|info| info.up_from <= first && info.up_thru >= first);
        pg.past_intervals.add_interval(
            pool.is_erasure(),
            &PgInterval {
                first,
                last: map.epoch.saturating_sub(1),
                up: pg.up.clone(),
                acting: pg.acting.clone(),
                maybe_went_rw: led,
                primary: pg.acting_primary,
                up_primary: pg.up_primary,
            },
        );
        pg.history.same_interval_since = map.epoch;
        if now.up != pg.up {
            pg.history.same_up_since = map.epoch;
        }
        if now.acting_primary != pg.acting_primary {
            pg.history.same_primary_since = map.epoch;
        }
    }
    pg.mapped_epoch = map.epoch.max(1);
    pg.up = now.up;
    pg.up_primary = now.up_primary;
    pg.acting = now.acting;
    pg.acting_primary = now.acting_primary;
}
