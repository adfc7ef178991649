//! A scrub from its slots to its end, on the primary.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use env::sync::oneshot;
use messages::{MOSDRepScrub, MOSDScrubReserve, Message, ScrubReserveOp};
use store::{StoreError, Transaction};
use types::osd::{ScrubMap, pg_state};
use types::{HObject, PgShard, SpgId, UTime};

use super::compare::{self, Findings, Maps, Rules};
use super::scan::Chunk;
use super::schedule::Kind;
use super::slots::Slot;
use super::{ScrubSettings, snapsets};
use crate::ops::{LockKind, digests};
use crate::osd::mclock::Class;
use crate::pg::Pg;
use crate::pg::host::LogLevel;

/// A replica that does not answer for so long is not asked any more.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// Fewest objects of a chunk that writes have made smaller.
const CHUNK_MIN: usize = 3;

/// Why a scrub ends early.
enum Stopped {
    /// The interval, the PG or the OSD ended.
    Interval,
    /// No slot here or there: later.
    NoSlot,
    /// Flags forbid it now.
    Forbidden,
    /// A replica does not answer.
    NoAnswer,
    /// The store cannot list objects.
    Store(StoreError),
}

/// All that a scrub found.
#[derive(Default)]
struct Total {
    findings: Findings,
    omap_bytes: u64,
    omap_keys: u64,
    large_omaps: i64,
}

/// The slots of a scrub; replicas are told when it ends.
struct Slots {
    pg: Rc<Pg>,
    peers: Vec<PgShard>,
    generation: u64,
    _own: Slot,
}

impl Drop for Slots {
    fn drop(&mut self) {
        if self.generation != self.pg.generation.get() {
            // A new interval: the replicas have given their slots back by themselves.
            return;
        }
        for peer in std::mem::take(&mut self.peers) {
            self.pg.send_reserve(peer, ScrubReserveOp::Release);
        }
    }
}

/// The task of one scrub.
pub(super) async fn run(pg: Rc<Pg>, kind: Kind, generation: u64) {
    let ended = pg.scrub(kind, generation).await;
    if generation != pg.generation.get() {
        return;
    }
    let s = &pg.scrub;
    s.shown.set(0);
    s.counted_to.borrow_mut().take();
    s.damaged.borrow_mut().clear();
    s.maps.borrow_mut().clear();
    s.grants.borrow_mut().clear();
    s.running.set(false);
    match ended {
        Ok(()) => s.under_way.set(None),
        // A damaged object that a client reads is fetched anew at once: until that is done the PG is not clean.
        Err(_) => pg.want_again(),
    }
    pg.unblock_writes();
    pg.maybe_trim_snaps();
    match ended {
        Ok(()) | Err(Stopped::Interval | Stopped::NoSlot) => {}
        Err(Stopped::Forbidden) => tracing::info!(pg = %pg.pgid, "scrub stopped: forbidden"),
        Err(Stopped::NoAnswer) => tracing::warn!(pg = %pg.pgid, "scrub: a replica is silent"),
        Err(Stopped::Store(e)) => pg.host.store_failed(&e),
    }
    pg.update_stamps();
    pg.host.publish_stats();
}

impl Pg {
    fn alive(&self, generation: u64) -> Result<(), Stopped> {
        match generation == self.generation.get() && self.core.borrow().is_clean() {
            true => Ok(()),
            false => Err(Stopped::Interval),
        }
    }

    fn followers(&self) -> Vec<PgShard> {
        let core = self.core.borrow();
        core.acting_backfill.iter().copied().filter(|s| *s != core.whoami).collect()
    }

    pub(super) fn send_reserve(&self, to: PgShard, kind: ScrubReserveOp) {
        let (map_epoch, _) = self.scrub_epochs();
        let pgid = SpgId { pgid: self.pgid.pgid, shard: to.shard };
        let from = self.core.borrow().whoami;
        let message = MOSDScrubReserve { pgid, map_epoch, kind, from };
        self.host.send_osd(to.osd, Message::encode(&message));
    }

    async fn reserve(self: &Rc<Self>, max: u64) -> Result<Slots, Stopped> {
        let own = self.host.scrub_slots().try_take(max, false).ok_or(Stopped::NoSlot)?;
        self.scrub.had_slot.set(self.host.env().now());
        let peers = self.followers();
        let mut answers = Vec::new();
        for peer in &peers {
            let (grant, granted) = oneshot();
            self.scrub.grants.borrow_mut().insert(*peer, grant);
            self.send_reserve(*peer, ScrubReserveOp::Request);
            answers.push(granted);
        }
        // Dropped on every way out: then all are released.
        let slots = Slots { pg: self.clone(), peers, generation: self.generation.get(), _own: own };
        for answer in answers {
            match self.host.env().timeout(ANSWER_MAX, answer).await {
                Ok(Ok(true)) => {}
                Ok(Ok(false)) => return Err(Stopped::NoSlot),
                Ok(Err(_)) => return Err(Stopped::Interval),
                Err(_) => return Err(Stopped::NoAnswer),
            }
        }
        Ok(slots)
    }

    async fn scrub(self: &Rc<Self>, mut kind: Kind, generation: u64) -> Result<(), Stopped> {
        let settings = self.host.scrub_settings();
        let slots = self.reserve(settings.slots).await?;
        self.alive(generation)?;
        // What was asked for while we waited counts too.
        if let Some(wanted) = self.scrub.wanted.take() {
            kind = wanted;
        }
        let s = &self.scrub;
        s.under_way.set(kind.required.then_some(kind));
        let deep = if kind.deep { pg_state::DEEP_SCRUB } else { 0 };
        s.shown.set(pg_state::SCRUBBING | deep);
        s.repairing.set(kind.repair);
        s.luck.set(None);
        self.update_stamps();
        self.host.publish_stats();
        let mode = kind.word();
        self.log_line(LogLevel::Debug, format!("{} {mode} starts", self.pgid.pgid));
        s.has_results.set(true);
        self.submit_results(self.clear_results()).await;
        *s.counted.borrow_mut() = Default::default();
        s.damaged.borrow_mut().clear();

        let mut total = Total::default();
        let mut start = HObject::min();
        *s.counted_to.borrow_mut() = Some(start.clone());
        loop {
            self.alive(generation)?;
            self.check_allowed(&kind, &settings)?;
            let (chunk, maps) = self.scan_all(&start, &kind, &settings, generation).await?;
            // From here to the counts nothing awaits: no write comes between.
            let rules = self.rules(&kind, &settings);
            let found = compare::compare(&maps, &rules);
            let best = authoritative(&maps, &found, self.core.borrow().whoami);
            let hit_sets = self.host.limits().hit_set_namespace.clone();
            let stored = |size| rules.stored_size(size);
            let sets = snapsets::check(mode, self.pgid, &hit_sets, &stored, &best.objects);
            s.counted.borrow_mut().add(&sets.stats);
            *s.counted_to.borrow_mut() = Some(chunk.end.clone());
            s.damaged.borrow_mut().extend(found.good.keys().cloned());
            self.unblock_writes();

            self.count_omaps(&maps, &mut total);
            for line in found.log.iter().chain(&sets.log) {
                self.log_line(LogLevel::Error, line.clone());
            }
            self.check_snap_mapper(&best).await;
            if !kind.repair && !kind.auto_repair {
                let rows = self.add_results(&found.objects, &sets.objects);
                self.submit_results(rows).await;
            }
            self.alive(generation)?;
            self.record_digests(&found, generation).await?;
            merge(&mut total.findings, found, sets.errors);
            if chunk.end.is_max() {
                break;
            }
            start = chunk.end;
            self.host.turns().turn(Class::BestEffort, 0).await;
            match settings.sleep_sec {
                sec if sec > 0.0 => {
                    self.host.env().sleep(Duration::from_secs_f64(sec.min(60.0))).await;
                }
                _ => env::yield_now().await,
            }
        }
        self.alive(generation)?;
        let ended = self.finish_scrub(kind, &settings, total).await;
        drop(slots);
        ended
    }

    fn log_line(&self, level: LogLevel, text: String) {
        self.host.cluster_log(level, text);
    }

    async fn submit_results(&self, t: Transaction) {
        if t.is_empty() {
            return;
        }
        if let Err(e) = self.host.store().submit(t).await {
            self.host.store_failed(&e);
        }
    }

    fn check_allowed(&self, kind: &Kind, settings: &ScrubSettings) -> Result<(), Stopped> {
        let times = self.times(settings);
        let allowed = if kind.deep { times.allow_deep } else { times.allow_shallow };
        match kind.required || allowed {
            true => Ok(()),
            false => Err(Stopped::Forbidden),
        }
    }

    fn rules(&self, kind: &Kind, settings: &ScrubSettings) -> Rules {
        Rules {
            pgid: self.pgid,
            primary: self.core.borrow().whoami,
            repair: kind.repair || kind.auto_repair,
            object_size_max: settings.object_size_max,
            digest_min_age_sec: settings.digest_min_age_sec,
            now: UTime::from_duration(self.host.env().wall_clock()),
            stripe: self.codec().map(|codec| {
                let width = codec.stripe_width();
                (width, codec.chunk_len(width))
            }),
        }
    }

    /// Scans the next chunk here and on the replicas, until no write has come between.
    async fn scan_all(
        self: &Rc<Self>,
        start: &HObject,
        kind: &Kind,
        settings: &ScrubSettings,
        generation: u64,
    ) -> Result<(Chunk, Maps), Stopped> {
        let mut size = settings.chunk.max(CHUNK_MIN);
        let mut preempted = 0;
        loop {
            // Writes that wait for a chunk wait for all of it: of a smaller one, newer writes would pass them.
            let blocked = self.scrub.blocked.borrow().clone();
            let chunk = match blocked {
                Some(chunk) => chunk,
                None => self.next_chunk(start, size).await.map_err(Stopped::Store)?,
            };
            self.alive(generation)?;
            if preempted >= settings.preemptions {
                *self.scrub.blocked.borrow_mut() = Some(chunk.clone());
            }
            *self.scrub.unwritten.borrow_mut() = Some(chunk.clone());
            let mut answers = Vec::new();
            for peer in self.followers() {
                let (done, map) = oneshot();
                self.scrub.maps.borrow_mut().insert(peer, done);
                self.send_scrub(peer, &chunk, kind.deep, preempted < settings.preemptions);
                answers.push((peer, map));
            }
            let own = self.scan(&chunk, kind.deep, settings).await.map_err(Stopped::Store)?;
            self.alive(generation)?;
            let mut maps: Maps = BTreeMap::from([(self.core.borrow().whoami, own)]);
            for (peer, answer) in answers {
                // A deep scan of large objects may take long: only the interval ends the wait.
                let map = answer.await.map_err(|_| Stopped::Interval)?;
                maps.insert(peer, map);
            }
            self.alive(generation)?;
            if self.scrub.unwritten.take().is_some() {
                return Ok((chunk, maps));
            }
            preempted += 1;
            size = (size / 2).max(CHUNK_MIN);
        }
    }

    fn send_scrub(&self, to: PgShard, chunk: &Chunk, deep: bool, allow_preemption: bool) {
        let (map_epoch, min_epoch) = self.scrub_epochs();
        let message = MOSDRepScrub {
            pgid: SpgId { pgid: self.pgid.pgid, shard: to.shard },
            scrub_from: Default::default(),
            scrub_to: self.core.borrow().info.last_update,
            map_epoch,
            start: chunk.start.clone(),
            end: chunk.end.clone(),
            deep,
            min_epoch,
            allow_preemption,
            priority: 0,
            high_priority: false,
        };
        self.host.send_osd(to.osd, Message::encode(&message));
    }

    fn count_omaps(&self, maps: &Maps, total: &mut Total) {
        let whoami = self.core.borrow().whoami;
        let Some(own) = maps.get(&whoami) else { return };
        for (oid, object) in &own.objects {
            total.omap_bytes += object.object_omap_bytes;
            total.omap_keys += object.object_omap_keys;
            if object.large_omap_object_found {
                total.large_omaps += 1;
                let pg = self.pgid.pgid;
                let text = format!(
                    "Large omap object found. Object: {oid} PG: {}.{:x} ({pg}) Key count: {} Size \
                     (bytes): {}",
                    pg.pool,
                    oid.hash,
                    object.large_omap_object_key_count,
                    object.large_omap_object_value_size
                );
                self.log_line(LogLevel::Warn, text);
            }
        }
    }

    /// Writes the digests that were found into object infos.
    async fn record_digests(
        self: &Rc<Self>,
        found: &Findings,
        generation: u64,
    ) -> Result<(), Stopped> {
        for (oid, digests) in &found.digests {
            let guard = self.contexts.lock(&oid.head(), LockKind::Write).await;
            self.alive(generation)?;
            let pending = digests::record(&self.as_ops(), guard, oid, digests).await;
            self.alive(generation)?;
            if let Ok(Some(pending)) = pending {
                // If it is not written, and that is not the interval's end, the object does without.
                self.write_internally(pending).await;
                self.alive(generation)?;
            }
        }
        Ok(())
    }

    async fn finish_scrub(
        self: &Rc<Self>,
        kind: Kind,
        settings: &ScrubSettings,
        total: Total,
    ) -> Result<(), Stopped> {
        let found = total.findings;
        let damaged = found.good.len();
        let mut repair = kind.repair || kind.auto_repair;
        if kind.auto_repair && damaged > settings.auto_repair_max {
            repair = false;
        }
        let again = kind.deep_on_error && damaged > 0 && damaged <= settings.auto_repair_max;
        let (mut shallow, mut deep) = (found.shallow_errors, found.deep_errors);
        let mut fixed = 0;
        let mode = kind.word();
        let pgid = self.pgid.pgid;
        if !self.check_stats(mode, repair) {
            shallow += 1;
            fixed += u32::from(repair);
        }
        if damaged > 0 {
            let (missing, wrong) = (found.missing.len(), found.inconsistent.len());
            let text = format!("{pgid} {mode} {missing} missing, {wrong} inconsistent objects");
            self.log_line(LogLevel::Error, text);
        }
        let repairing = repair && damaged > 0;
        if repairing {
            self.scrub.repairing.set(true);
            fixed += self.mark_damaged(&found).await.ok_or(Stopped::Interval)?;
        }
        let errors = shallow + deep;
        let mut text = match errors {
            0 => format!("{pgid} {mode} ok"),
            n => format!("{pgid} {mode} {n} errors"),
        };
        let known_deep = self.core.borrow().info.stats.stats.sum.num_deep_scrub_errors;
        if !kind.deep && known_deep > 0 {
            text += &format!(" ( {known_deep} remaining deep scrub error details lost)");
        }
        if repair {
            text += &format!(", {fixed} fixed");
        }
        self.log_line(if errors > 0 { LogLevel::Error } else { LogLevel::Debug }, text);
        if repair && errors > 0 {
            if fixed == errors {
                (shallow, deep) = (0, 0);
            } else if repairing {
                // Which errors were repaired only another scrub can tell.
                self.scrub.scrub_after_recovery.set(true);
            } else {
                self.scrub.failed_repair.set(true);
            }
        }
        let now = UTime::from_duration(self.host.env().wall_clock());
        let mut t = Transaction::new();
        {
            let mut core = self.core.borrow_mut();
            let last_update = core.info.last_update;
            let history = &mut core.info.history;
            history.last_scrub = last_update;
            history.last_scrub_stamp = now;
            if kind.deep {
                history.last_deep_scrub = last_update;
                history.last_deep_scrub_stamp = now;
            }
            if shallow == 0 && (deep == 0 || !kind.deep) {
                history.last_clean_scrub_stamp = now;
            }
            let sum = &mut core.info.stats.stats.sum;
            sum.num_shallow_scrub_errors = shallow.into();
            if kind.deep {
                sum.num_deep_scrub_errors = deep.into();
                sum.num_large_omap_objects = total.large_omaps;
                sum.num_omap_bytes = total.omap_bytes as i64;
                sum.num_omap_keys = total.omap_keys as i64;
            }
            sum.num_scrub_errors = sum.num_shallow_scrub_errors + sum.num_deep_scrub_errors;
            let left = sum.num_scrub_errors;
            if kind.check_repair && left > 0 {
                self.scrub.failed_repair.set(true);
            }
            if left == 0 {
                self.scrub.failed_repair.set(false);
            }
            core.mark_dirty_info();
        }
        self.write_dirty(&mut t);
        if let Err(e) = self.host.store().submit(t).await {
            return Err(Stopped::Store(e));
        }
        self.step(|core, _, now, out| core.share_history(now, out));
        if !repairing {
            self.scrub.repairing.set(false);
        }
        if again {
            self.want_deep_scrub(Kind { auto_repair: true, ..Kind::default() });
        }
        if repairing {
            self.begin_repair();
        }
        Ok(())
    }

    /// Compares the PG's statistics with what was counted; `false` if they were wrong. A repair,
    /// or a PG that does not know its statistics, takes over what was counted.
    fn check_stats(&self, mode: &str, repair: bool) -> bool {
        let counted = *self.scrub.counted.borrow();
        let mut core = self.core.borrow_mut();
        let flags_known = {
            let stats = &core.info.stats;
            !stats.dirty_stats_invalid && !stats.omap_stats_invalid
        };
        let stats = &mut core.info.stats;
        let is_invalid = stats.stats_invalid;
        let sum = &mut stats.stats.sum;
        let known = *sum;
        let pairs = |s: &types::osd::ObjectStatSum| {
            [
                s.num_objects,
                s.num_object_clones,
                if flags_known { s.num_objects_dirty } else { 0 },
                if flags_known { s.num_objects_omap } else { 0 },
                s.num_objects_pinned,
                s.num_objects_hit_set_archive,
                s.num_whiteouts,
                s.num_bytes,
                s.num_objects_manifest,
                s.num_bytes_hit_set_archive,
            ]
        };
        let right = pairs(&counted) == pairs(&known);
        if right && !is_invalid {
            return true;
        }
        if repair || is_invalid {
            sum.num_objects = counted.num_objects;
            sum.num_object_clones = counted.num_object_clones;
            sum.num_objects_dirty = counted.num_objects_dirty;
            sum.num_objects_omap = counted.num_objects_omap;
            sum.num_objects_pinned = counted.num_objects_pinned;
            sum.num_objects_hit_set_archive = counted.num_objects_hit_set_archive;
            sum.num_whiteouts = counted.num_whiteouts;
            sum.num_bytes = counted.num_bytes;
            sum.num_objects_manifest = counted.num_objects_manifest;
            sum.num_bytes_hit_set_archive = counted.num_bytes_hit_set_archive;
            stats.stats_invalid = false;
        }
        drop(core);
        if is_invalid {
            return true;
        }
        let both = |name: &str, n: i64, known: i64| format!("{n}/{known} {name}");
        let list = [
            both("objects", counted.num_objects, known.num_objects),
            both("clones", counted.num_object_clones, known.num_object_clones),
            both("dirty", counted.num_objects_dirty, known.num_objects_dirty),
            both("omap", counted.num_objects_omap, known.num_objects_omap),
            both("pinned", counted.num_objects_pinned, known.num_objects_pinned),
            both(
                "hit_set_archive",
                counted.num_objects_hit_set_archive,
                known.num_objects_hit_set_archive,
            ),
            both("whiteouts", counted.num_whiteouts, known.num_whiteouts),
            both("bytes", counted.num_bytes, known.num_bytes),
            both("manifest objects", counted.num_objects_manifest, known.num_objects_manifest),
            both(
                "hit_set_archive bytes",
                counted.num_bytes_hit_set_archive,
                known.num_bytes_hit_set_archive,
            ),
        ];
        let text = format!("{} {mode} : stat mismatch, got {}.", self.pgid, list.join(", "));
        self.log_line(LogLevel::Error, text);
        false
    }
}

/// The primary's map, with the good copies of what is damaged.
fn authoritative(maps: &Maps, found: &Findings, whoami: PgShard) -> ScrubMap {
    let mut best = maps.get(&whoami).cloned().unwrap_or_default();
    for (oid, good) in &found.good {
        let from = good.shards.last().and_then(|shard| maps.get(shard));
        if let Some(object) = from.and_then(|map| map.objects.get(oid)) {
            best.objects.insert(oid.clone(), object.clone());
        }
    }
    best
}

/// Adds what a chunk showed; the log lines and reports have gone where they go.
fn merge(total: &mut Findings, chunk: Findings, snapset_errors: u32) {
    total.shallow_errors += chunk.shallow_errors + snapset_errors;
    total.deep_errors += chunk.deep_errors;
    total.missing.extend(chunk.missing);
    total.inconsistent.extend(chunk.inconsistent);
    total.good.extend(chunk.good);
}
