//! The PGs of this OSD: loading, creating, splitting, removing.

use std::collections::{BTreeSet, VecDeque};
use std::rc::Rc;

use ::maps::OsdMap;
use messages::MOSDPGCreate2;
use store::{CollId, Transaction};
use types::osd::{PastIntervals, PgHistory};
use types::{Epoch, GhObject, HObject, OsdId, PgShard, SpgId, UTime};

use super::{Osd, OsdError};
use crate::pg::host::Host;
use crate::pg::peering::{PeerMessage, Peering};
use crate::pg::persist::{self, LoadError};
use crate::pg::removal::Deleted;
use crate::pg::split::spans;
use crate::pg::wire::{self, Decoded};
use crate::pg::{self, Pg};

/// What waits for a PG that is being made; bounded by the clients' throttles and peers' windows.
type Waiting = VecDeque<Box<dyn FnOnce(&Rc<Pg>)>>;

/// Messages kept for a PG that is being removed.
const REMOVING_MAX: usize = 64;

/// A PG, or the place of one that is being made or removed.
pub(crate) enum Slot {
    /// It is there.
    Ready(Rc<Pg>),
    /// Its maps are being read.
    Starting(Waiting),
    /// Its objects are being removed.
    Removing(Removing),
}

/// A copy that goes.
pub(crate) struct Removing {
    pg: Rc<Pg>,
    /// What peers say meanwhile waits (at most [`REMOVING_MAX`] messages).
    messages: Vec<(OsdId, Decoded)>,
}

impl Slot {
    pub(crate) fn ready(&self) -> Option<Rc<Pg>> {
        match self {
            Slot::Ready(pg) => Some(pg.clone()),
            Slot::Starting(_) | Slot::Removing(_) => None,
        }
    }

    /// The copy that is here, though it may be going.
    pub(super) fn copy(&self) -> Option<&Rc<Pg>> {
        match self {
            Slot::Ready(pg) | Slot::Removing(Removing { pg, .. }) => Some(pg),
            Slot::Starting(_) => None,
        }
    }

    /// Whether its objects are being removed.
    pub(super) fn is_going(&self) -> bool {
        matches!(self, Slot::Removing(_))
    }
}

/// How a PG comes into being.
struct Birth {
    epoch: Epoch,
    history: PgHistory,
    past: PastIntervals,
    /// Who has it made takes it for a copy that lacks nothing but what a log tells.
    as_whole: bool,
}

impl Osd {
    fn host(&self) -> Rc<dyn Host> {
        self.rc()
    }

    /// Reads maps and PGs at the start.
    pub(super) async fn load(self: &Rc<Osd>) -> Result<(), OsdError> {
        let newest = self.superblock.borrow().newest_map;
        if newest == 0 {
            return Ok(());
        }
        let mut pgs = Vec::new();
        for cid in self.store.collections().await? {
            let CollId::Pg(pgid) = cid else { continue };
            match persist::load(&*self.store, &cid, &pgid.pgmeta()).await {
                Ok(loaded) => pgs.push((pgid, loaded)),
                Err(LoadError::Empty) => self.remove_collection(&cid).await?,
                Err(LoadError::Store(e)) => return Err(e.into()),
                Err(LoadError::Damaged(e)) => return Err(OsdError::BadPg(pgid, e.to_string())),
            }
        }
        let mut known: BTreeSet<SpgId> = pgs.iter().map(|(pgid, _)| *pgid).collect();
        let oldest = pgs.iter().map(|(_, l)| l.epoch).min().unwrap_or(newest).min(newest);
        let mut map: Option<Rc<OsdMap>> = None;
        for epoch in oldest..=newest {
            // A hole is where the monitors had no maps for us any more.
            let Some(next) = self.maps.load(epoch).await? else { continue };
            self.merge_at_load(&next, &mut known).await?;
            for pg in self.all_pgs() {
                if pg.has_pool_in(&next) {
                    self.split_at_load(&pg, &next, &known).await?;
                    pg.advance_quietly(&next);
                }
            }
            let due: Vec<usize> =
                (0..pgs.len()).filter(|i| pgs[*i].1.epoch <= epoch).rev().collect();
            for i in due {
                let (pgid, loaded) = pgs.swap_remove(i);
                self.clean_temps(pgid).await?;
                let mut core = Peering::load(
                    PgShard::new(self.whoami, pgid.shard),
                    pgid,
                    Pg::settings(&self.config, self.pgs.borrow().len()),
                    pg::mapping_of(&next, pgid),
                    epoch,
                    loaded.info,
                    loaded.past_intervals,
                );
                core.known_since = self.superblock.borrow().oldest_map;
                core.log = loaded.log;
                core.missing = loaded.missing;
                core.assume_leases(self.env.now());
                let pg = Pg::new(self.host(), core, next.clone());
                self.pgs.borrow_mut().insert(pgid, Slot::Ready(pg));
            }
            map = Some(next);
        }
        let Some(map) = map else { return Err(OsdError::NoMap(newest)) };
        tracing::info!(
            "osd.{}: {} PGs at osdmap {}",
            self.whoami,
            self.pgs.borrow().len(),
            map.epoch
        );
        *self.osdmap.borrow_mut() = map.clone();
        self.tell_pool_options(&map);
        self.pgs_epoch.set(map.epoch);
        for pg in self.all_pgs() {
            if map.pg_exists(pg.pgid().pgid) {
                pg.begin();
            } else {
                self.remove(&pg);
            }
        }
        Ok(())
    }

    pub(super) async fn remove_collection(&self, cid: &CollId) -> Result<(), OsdError> {
        loop {
            let page = self.store.list(cid, &GhObject::min(), &GhObject::max(), 256).await?.objects;
            let mut t = Transaction::new();
            if page.is_empty() {
                t.rmcoll(cid);
                self.store.submit(t).await?;
                return Ok(());
            }
            for oid in &page {
                t.remove(cid, oid);
            }
            self.store.submit(t).await?;
        }
    }

    /// Half-received objects of our last life.
    async fn clean_temps(&self, pgid: SpgId) -> Result<(), OsdError> {
        let cid = CollId::Pg(pgid);
        let end = HObject { pool: -1, ..HObject::default() };
        let end = GhObject { shard: pgid.shard, ..GhObject::from(end) };
        let temps = self.store.list(&cid, &GhObject::min(), &end, 4096).await?.objects;
        let mut t = Transaction::new();
        for oid in temps.iter().filter(|o| o.hobj.is_temp()) {
            t.remove(&cid, oid);
        }
        if !t.is_empty() {
            self.store.submit(t).await?;
        }
        Ok(())
    }

    /// Moves all PGs to the new maps; PGs of pools that are gone go, PGs that split do.
    pub(super) async fn update_pgs(self: &Rc<Osd>, old: &Rc<OsdMap>, new: &[Rc<OsdMap>]) {
        let Some(newest) = new.last() else { return };
        let shrinking: BTreeSet<i64> =
            newest.pools.keys().copied().filter(|id| shrinks(*id, old, new)).collect();
        for id in &shrinking {
            self.advance_and_merge(*id, new).await;
        }
        for pg in self.all_pgs() {
            let pool = pg.pgid().pgid.pool_id();
            if shrinking.contains(&pool) || !self.keeps(&pg) {
                continue;
            }
            if newest.pool(pool).is_none() {
                self.remove(&pg);
                continue;
            }
            let before = old.pool(pool).map_or(0, |p| p.pg_num);
            let after = newest.pool(pool).map_or(0, |p| p.pg_num);
            if before > 0 && after > before && !pg.pgid().pgid.children(before, after).is_empty() {
                self.advance_and_split(&pg, new).await;
            } else {
                pg.advance(new);
            }
        }
    }

    /// Whether a copy is not being removed: while one PG splits, others go on.
    pub(super) fn keeps(&self, pg: &Rc<Pg>) -> bool {
        matches!(self.pgs.borrow().get(&pg.pgid()), Some(Slot::Ready(kept)) if Rc::ptr_eq(kept, pg))
    }

    /// Moves a PG to the new maps, and what splits off it on the way to those that come after.
    pub(super) async fn advance_and_split(self: &Rc<Osd>, pg: &Rc<Pg>, new: &[Rc<OsdMap>]) {
        let mut rest = vec![(pg.clone(), new)];
        while let Some((pg, new)) = rest.pop() {
            for (at, map) in new.iter().enumerate() {
                if !self.keeps(&pg) {
                    break;
                }
                let Some(made) = self.split_by(&pg, map).await else { return };
                let behind = &new[at + 1..];
                rest.extend(made.into_iter().map(|child| (child, behind)));
            }
        }
    }

    /// Moves a PG to the next map; the PGs that this map makes of it, at the same map. `None` if
    /// the OSD has failed.
    async fn split_by(self: &Rc<Osd>, pg: &Rc<Pg>, map: &Rc<OsdMap>) -> Option<Vec<Rc<Pg>>> {
        let pool = pg.pgid().pgid.pool_id();
        let (before, after) = (pg.pool().pg_num, map.pool(pool).map_or(0, |p| p.pg_num));
        let children = pg.pgid().pgid.children(before, after);
        let mut made = Vec::new();
        if before > 0 && !children.is_empty() {
            // Nothing may be under way in the parent: writes of before are in its collection.
            pg.stop_for_split();
            let shard = pg.pgid().shard;
            let absent = |child: &SpgId| !self.pgs.borrow().contains_key(child);
            let children = children.into_iter().map(|child| SpgId { pgid: child, shard });
            let children: Vec<SpgId> = children.filter(absent).collect();
            made = match pg.split(&children, after, map).await {
                Ok(made) => made,
                Err(e) => {
                    self.fail(format!("cannot split {}: {e}", pg.pgid()));
                    return None;
                }
            };
        }
        for child in &made {
            self.pgs.borrow_mut().insert(child.pgid(), Slot::Ready(child.clone()));
            child.advance(std::slice::from_ref(map));
        }
        pg.advance(std::slice::from_ref(map));
        Some(made)
    }

    /// At the start: splits a PG that the last life left unsplit.
    async fn split_at_load(
        &self,
        pg: &Rc<Pg>,
        map: &Rc<OsdMap>,
        known: &BTreeSet<SpgId>,
    ) -> Result<(), OsdError> {
        let after = map.pool(pg.pgid().pgid.pool_id()).map_or(0, |p| p.pg_num);
        let before = pg.pool().pg_num;
        if before == 0 || after <= before {
            return Ok(());
        }
        let (children, shard) = (pg.pgid().pgid.children(before, after), pg.pgid().shard);
        if children.is_empty() {
            return Ok(());
        }
        // An import beside one that has split off before left out what its collection cannot hold: what is not here
        // must not be made with a log that says it is.
        let bits = self.store.collection_bits(&CollId::Pg(pg.pgid())).await?;
        let children: Vec<SpgId> = children
            .into_iter()
            .filter(|child| spans(pg.pgid().pgid, bits, *child))
            .map(|child| SpgId { pgid: child, shard })
            .filter(|c| !known.contains(c))
            .collect();
        if children.is_empty() {
            return Ok(());
        }
        for child in pg.split(&children, after, map).await? {
            child.advance_quietly(map);
            self.pgs.borrow_mut().insert(child.pgid(), Slot::Ready(child));
        }
        Ok(())
    }

    /// Takes a copy away, in the background. If the PG comes back meanwhile, a copy is made of what is
    /// left: one that has nothing, whose objects go while it is backfilled.
    pub(super) fn remove(self: &Rc<Osd>, pg: &Rc<Pg>) {
        let pgid = pg.pgid();
        let removing = Removing { pg: pg.clone(), messages: Vec::new() };
        self.pgs.borrow_mut().insert(pgid, Slot::Removing(removing));
        let (osd, pg) = (self.clone(), pg.clone());
        self.env.go(async move {
            let ended = match pg.delete().await {
                Deleted::All => true,
                Deleted::Stopped if osd.may_be_made_of(&pg) => {
                    osd.leftovers.borrow_mut().insert(pgid, pg.clone());
                    true
                }
                // It has split or gone since it came back.
                Deleted::Stopped => pg.delete_rest().await,
                Deleted::Failed => false,
            };
            if !ended && !osd.is_stopping() {
                tracing::error!("pg {pgid}: its copy could not be removed");
            }
            let slot = osd.pgs.borrow_mut().remove(&pgid);
            if let Some(Slot::Removing(Removing { messages, .. })) = slot {
                for (from, m) in messages {
                    osd.on_peering(from, m);
                }
            }
        });
    }

    /// Whether a copy can be made of what is left of one: if its collection is for the same objects.
    fn may_be_made_of(&self, pg: &Pg) -> bool {
        let (map, pgid) = (self.current_map(), pg.pgid().pgid);
        let pg_num = map.pool(pgid.pool_id()).map(|pool| pool.pg_num);
        map.pg_exists(pgid) && pg_num.map(|n| pgid.split_bits(n)) == Some(pg.collection_bits())
    }

    /// The monitor wants PGs made.
    pub(super) fn on_create(self: &Rc<Osd>, m: MOSDPGCreate2) {
        self.monc.got("osd_pg_creates", u64::from(m.epoch));
        for (pgid, (created, stamp)) in m.pgs {
            if self.pgs.borrow().contains_key(&pgid) {
                continue;
            }
            let extra = m.pg_extra.get(&pgid);
            let birth = match extra {
                Some((history, past)) if history.epoch_created != 0 => {
                    Birth { epoch: created, history: *history, past: past.clone(), as_whole: true }
                }
                _ => Birth {
                    epoch: created,
                    history: new_history(created, stamp),
                    past: PastIntervals::default(),
                    as_whole: true,
                },
            };
            self.create(pgid, birth);
        }
    }

    /// Makes a PG as of the epoch it is known of, then brings it up to date.
    fn create(self: &Rc<Osd>, pgid: SpgId, birth: Birth) {
        let newest = self.current_map();
        if !newest.pg_exists(pgid.pgid) {
            return;
        }
        if birth.epoch >= newest.epoch
            || (birth.epoch..newest.epoch).all(|e| self.maps.cached(e).is_some())
        {
            let cached: Vec<Rc<OsdMap>> =
                (birth.epoch..newest.epoch).filter_map(|e| self.maps.cached(e)).collect();
            self.make(pgid, birth, cached, VecDeque::new());
            return;
        }
        self.pgs.borrow_mut().insert(pgid, Slot::Starting(VecDeque::new()));
        let osd = self.clone();
        self.env.go(async move {
            let mut maps = Vec::new();
            for epoch in birth.epoch..newest.epoch {
                match osd.maps.load(epoch).await {
                    Ok(Some(map)) => maps.push(map),
                    // From before our time: what the monitor said of its history stands.
                    Ok(None) => {}
                    Err(e) => return osd.fail(format!("cannot read maps: {e}")),
                }
            }
            let slot = osd.pgs.borrow_mut().remove(&pgid);
            if let Some(Slot::Starting(waiting)) = slot {
                osd.make(pgid, birth, maps, waiting);
            }
        });
    }

    fn make(
        self: &Rc<Osd>,
        pgid: SpgId,
        birth: Birth,
        mut maps: Vec<Rc<OsdMap>>,
        waiting: Waiting,
    ) {
        let newest = self.current_map();
        let left = self.leftovers.borrow_mut().remove(&pgid);
        if !newest.pg_exists(pgid.pgid) {
            // It has merged meanwhile; nothing of it that counts was here.
            if let Some(left) = left {
                let osd = self.clone();
                self.env.go(async move { osd.remove_leftover(&left).await });
            }
            return;
        }
        let left = match left {
            Some(left) if birth.as_whole || !self.may_be_made_of(&left) => {
                return self.make_anew(left, birth, maps, waiting);
            }
            left => left,
        };
        let after = maps.last().map_or(birth.epoch.saturating_sub(1), |m| m.epoch);
        maps.extend((after + 1..=newest.epoch).filter_map(|e| self.maps.cached(e)));
        if maps.last().is_none_or(|m| m.epoch < newest.epoch) {
            maps.push(newest);
        }
        maps.retain(|m| m.pg_exists(pgid.pgid));
        let Some(first) = maps.first().cloned() else { return };
        let mut core = Peering::create(
            PgShard::new(self.whoami, pgid.shard),
            pgid,
            Pg::settings(&self.config, self.pgs.borrow().len()),
            pg::mapping_of(&first, pgid),
            first.epoch,
            birth.history,
            birth.past,
        );
        if left.is_some() {
            // What is there counts for nothing.
            core.info.last_backfill = HObject::min();
        }
        let pg = Pg::new(self.host(), core, first);
        for map in &maps[1..] {
            pg.advance_quietly(map);
        }
        let mut t = Transaction::new();
        match left {
            None => pg.make_collection(&mut t),
            Some(_) => pg.make_meta(&mut t),
        }
        let committed = self.store.submit(t);
        let osd = self.clone();
        self.env.go(async move {
            if let Err(e) = committed.await {
                osd.fail(format!("cannot create pg {pgid}: {e}"));
            }
        });
        tracing::debug!("pg {pgid} created at {}", pg.epoch());
        self.pgs.borrow_mut().insert(pgid, Slot::Ready(pg.clone()));
        pg.begin();
        for with in waiting {
            with(&pg);
        }
    }

    /// Makes a PG once what is left of a copy that cannot be used is gone.
    fn make_anew(
        self: &Rc<Osd>,
        left: Rc<Pg>,
        birth: Birth,
        maps: Vec<Rc<OsdMap>>,
        waiting: Waiting,
    ) {
        let pgid = left.pgid();
        self.pgs.borrow_mut().insert(pgid, Slot::Starting(waiting));
        let osd = self.clone();
        self.env.go(async move {
            osd.remove_leftover(&left).await;
            let slot = osd.pgs.borrow_mut().remove(&pgid);
            if let Some(Slot::Starting(waiting)) = slot {
                osd.make(pgid, birth, maps, waiting);
            }
        });
    }

    async fn remove_leftover(&self, left: &Pg) {
        if !left.delete_rest().await && !self.is_stopping() {
            self.fail(format!("cannot remove what is left of pg {}", left.pgid()));
        }
    }

    /// Runs something with a PG: now, when it is made, or not at all (`false`) if it is not here.
    pub(super) fn with_pg(&self, pgid: SpgId, f: impl FnOnce(&Rc<Pg>) + 'static) -> bool {
        let pg = match self.pgs.borrow_mut().get_mut(&pgid) {
            Some(Slot::Ready(pg)) => pg.clone(),
            Some(Slot::Starting(waiting)) => {
                waiting.push_back(Box::new(f));
                return true;
            }
            Some(Slot::Removing(_)) | None => return false,
        };
        f(&pg);
        true
    }

    /// A peering message, once the map is new enough.
    pub(super) fn on_peering(self: &Rc<Osd>, from: OsdId, m: Decoded) {
        if !self.current_map().pg_exists(m.spgid.pgid) {
            return;
        }
        if let Some(Slot::Removing(removing)) = self.pgs.borrow_mut().get_mut(&m.spgid) {
            match &m.message {
                // None that counts is here: that is answered below.
                PeerMessage::Query(..) if m.from.is_some() => {}
                message => {
                    if removing.messages.len() < REMOVING_MAX {
                        if begins_anew(message) {
                            removing.pg.stop_deletion();
                        }
                        removing.messages.push((from, m));
                    }
                    return;
                }
            }
        }
        let Decoded { spgid, from: shard, epoch, query_epoch, message } = m;
        let member = shard.map(|shard| PgShard::new(from, shard));
        if !self.pgs.borrow().contains_key(&spgid) {
            // A primary's log makes a replica, a copy's report makes the primary.
            let birth = match &message {
                PeerMessage::Log(log) => Some((log.info.history, log.past_intervals.clone())),
                PeerMessage::Notify(info, past) => Some((info.history, (**past).clone())),
                _ => None,
            };
            if let Some((history, past)) = birth {
                let (epoch, as_whole) = (epoch.max(history.epoch_created), !begins_anew(&message));
                self.create(spgid, Birth { epoch, history, past, as_whole });
            }
        }
        let is_absent = || self.pgs.borrow().get(&spgid).is_none_or(Slot::is_going);
        if let PeerMessage::Query(query, _) = &message
            && is_absent()
        {
            if let Some(to) = member {
                self.answer_for_absent(to, spgid, epoch, *query);
            }
            return;
        }
        self.with_pg(spgid, move |pg| {
            // An info as well: of a stray that has undone what did not happen.
            let tells_more = matches!(
                message,
                PeerMessage::Log(_) | PeerMessage::Notify(..) | PeerMessage::Info(..)
            );
            let from = member.unwrap_or_else(|| pg.core.borrow().shard_of_sender(from));
            pg.on_peer_message(from, (epoch, query_epoch), message);
            if tells_more {
                pg.retry_unfound();
            }
        });
    }

    /// Nothing is here: the primary wants to know that.
    fn answer_for_absent(
        &self,
        to: PgShard,
        pgid: SpgId,
        query_epoch: Epoch,
        query: pg::peering::Query,
    ) {
        let mut info = Box::new(Peering::absent_info(pgid));
        if self.pgs.borrow().contains_key(&pgid) {
            // What is left of a copy that goes is still there. It must not be filled by a log: what came so would go with it.
            info.last_backfill = HObject::min();
        }
        let message = match query {
            pg::peering::Query::Info => PeerMessage::Notify(info, Box::default()),
            _ => PeerMessage::Log(Box::new(pg::peering::LogMessage {
                info: *info,
                log: Default::default(),
                missing: types::osd::PgMissing::new(),
                past_intervals: PastIntervals::default(),
                lease: None,
            })),
        };
        let epoch = self.current_map().epoch;
        let from = PgShard::new(self.whoami, pgid.shard);
        let raw = wire::encode(pgid.pgid, from, to, epoch, query_epoch, message);
        self.send_osd(to.osd, raw);
    }
}

/// Whether the message makes a copy that counts for nothing until it is backfilled, or the primary,
/// who looks at what there is.
fn begins_anew(message: &PeerMessage) -> bool {
    match message {
        PeerMessage::Log(log) => log.info.last_backfill.is_min(),
        PeerMessage::Notify(..) => true,
        _ => false,
    }
}

/// Whether a pool loses PGs somewhere between `old` and the last of `new`.
fn shrinks(id: i64, old: &OsdMap, new: &[Rc<OsdMap>]) -> bool {
    let mut before = old.pool(id).map_or(0, |pool| pool.pg_num);
    new.iter().any(|map| {
        let after = map.pool(id).map_or(before, |pool| pool.pg_num);
        std::mem::replace(&mut before, after) > after
    })
}

fn new_history(created: Epoch, stamp: UTime) -> PgHistory {
    PgHistory {
        epoch_created: created,
        epoch_pool_created: created,
        same_interval_since: created,
        same_up_since: created,
        same_primary_since: created,
        last_epoch_clean: created,
        last_scrub_stamp: stamp,
        last_deep_scrub_stamp: stamp,
        last_clean_scrub_stamp: stamp,
        ..PgHistory::default()
    }
}
