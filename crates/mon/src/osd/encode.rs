//! Closing an epoch, publishing it, sending maps.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use denc::Denc;
use maps::osdmap::osdmap_flags;
use maps::{Incremental, OsdMap};
use messages::MOSDMap;
use types::Epoch;

use crate::core::MonCore;
use crate::event::SessionId;
use crate::event::wire;
use crate::layout::{self, OSDMAP};

/// Maps in one message (`osd_map_message_max`).
const MAPS_PER_MESSAGE: u32 = 40;

impl MonCore {
    /// Closes the pending epoch, if there is one, into the batch.
    pub(crate) fn encode_osdmap(&mut self) {
        if !self.osd.pending_dirty {
            return;
        }
        self.tidy_incremental();
        let (fsid, now) = (self.osd.map.fsid, self.now.wall);
        let mut inc = std::mem::replace(&mut self.osd.pending, Incremental::new(fsid, 0));
        inc.fsid = fsid;
        inc.epoch = self.osd.map.epoch + 1;
        inc.modified = now;
        inc.encode_features = types::features::ALL;
        let mut map = (*self.osd.map).clone();
        if let Err(error) = map.apply(&inc) {
            panic!("incremental {} does not apply: {error}", inc.epoch);
        }
        let (full, full_crc) = map.encode_with_crc();
        map.crc = full_crc;
        let (encoded, _) = inc.encode_with_crc(full_crc);
        let epoch = map.epoch;
        let map = Rc::new(map);

        let batch = self.batch();
        batch.put(layout::numbered(OSDMAP, "full_", epoch.into()), full.clone());
        batch.put(layout::numbered(OSDMAP, "inc_", epoch.into()), encoded.clone());
        layout::put_u64(batch, OSDMAP, "last", epoch.into());
        self.osd.full_cache.insert(epoch, full);
        self.osd.inc_cache.insert(epoch, encoded);

        self.update_creating(&inc, &map);
        self.osd.map = map;
        self.osd.pending = Incremental::new(fsid, epoch + 1);
        self.osd.pending_dirty = false;
        self.osd.next = None;
    }

    /// What Ceph adds to an incremental before it is encoded.
    fn tidy_incremental(&mut self) {
        let now = self.now.wall;
        let base = self.osd.map.clone();
        let next = self.next_map();
        let up_changed = (0..next.max_osd).any(|osd| base.is_up(osd) != next.is_up(osd));
        let in_changed = (0..next.max_osd).any(|osd| base.is_in(osd) != next.is_in(osd));
        let flags = self.fullness_flags(&next);
        let stale_temp: Vec<_> = next
            .pg_temp
            .iter()
            .filter(|(pgid, osds)| temp_is_stale(&next, **pgid, osds))
            .map(|(pgid, _)| *pgid)
            .collect();
        let stale_primary: Vec<_> = next
            .primary_temp
            .iter()
            .filter(|(pgid, osd)| primary_temp_is_stale(&next, **pgid, **osd))
            .map(|(pgid, _)| *pgid)
            .collect();
        // An exception that changes nothing, or names an OSD that is gone, has had its day; PGs that
        // are to merge must lie on the same OSDs.
        let idle = |pgid: &types::PgId| {
            !next.pg_exists(*pgid)
                || merges(&next, *pgid)
                || next.pg_to_raw_upmap(*pgid) == next.pg_to_raw_osds(*pgid)
        };
        let broken = self.broken_upmaps(&next);
        let stale = |pgid: &types::PgId| broken.contains(pgid) || idle(pgid);
        let stale_upmap: Vec<_> =
            next.pg_upmap.keys().filter(|pgid| stale(pgid)).copied().collect();
        let stale_items: Vec<_> =
            next.pg_upmap_items.keys().filter(|pgid| stale(pgid)).copied().collect();
        // An OSD that goes down is not laggy any more because of it: when it went down is noted.
        let gone: Vec<_> =
            (0..base.max_osd).filter(|osd| base.is_up(*osd) && !next.is_up(*osd)).collect();

        let inc = self.inc();
        if up_changed {
            inc.new_last_up_change = now;
        }
        if in_changed {
            inc.new_last_in_change = now;
        }
        if flags != next.flags {
            inc.new_flags = flags as i32;
        }
        for pgid in stale_temp {
            inc.new_pg_temp.insert(pgid, Vec::new());
        }
        for pgid in stale_primary {
            inc.new_primary_temp.insert(pgid, -1);
        }
        for pgid in stale_upmap {
            inc.new_pg_upmap.remove(&pgid);
            if base.pg_upmap.contains_key(&pgid) {
                inc.old_pg_upmap.insert(pgid);
            }
        }
        for pgid in stale_items {
            inc.new_pg_upmap_items.remove(&pgid);
            if base.pg_upmap_items.contains_key(&pgid) {
                inc.old_pg_upmap_items.insert(pgid);
            }
        }
        for osd in gone {
            let known = base.xinfo(osd).cloned().unwrap_or_default();
            inc.new_xinfo.entry(osd).or_insert(known).down_stamp = now;
        }
    }

    /// PGs whose exceptions put copies where the pool's rule could not: two in one failure domain, or
    /// on an OSD that was moved away, or is out (`OSDMap::check_pg_upmaps`). Looked for when something
    /// has changed that makes one so.
    fn broken_upmaps(&self, next: &OsdMap) -> BTreeSet<types::PgId> {
        let inc = &self.osd.pending;
        if inc.crush.is_empty()
            && inc.new_weight.is_empty()
            && inc.new_pools.is_empty()
            && inc.new_pg_upmap.is_empty()
            && inc.new_pg_upmap_items.is_empty()
        {
            return BTreeSet::new();
        }
        let mut rules = BTreeMap::new();
        let mut broken = |pgid: &types::PgId| {
            let Some(pool) = next.pool(pgid.pool_id()) else { return true };
            let rule = i32::from(pool.crush_rule);
            let demands =
                rules.entry(rule).or_insert_with(|| crush::Demands::of(&next.crush, rule));
            let Some(demands) = demands else { return true };
            let osds = next.pg_to_raw_upmap(*pgid);
            let whole = next.pg_upmap.get(pgid);
            whole.is_some_and(|osds| osds.len() != usize::from(pool.size))
                || !demands.allow(pool.size.into(), &osds, |osd| next.weight(osd) > 0)
        };
        let all = next.pg_upmap.keys().chain(next.pg_upmap_items.keys());
        all.filter(|pgid| broken(pgid)).copied().collect()
    }

    /// The cluster's flags with full and nearfull set as the OSDs' states say.
    fn fullness_flags(&self, next: &OsdMap) -> u32 {
        // In this release fullness is a matter of pools and OSDs; the cluster-wide flags are not
        // set any more, but cleared if an old map still has them.
        next.flags & !(osdmap_flags::FULL | osdmap_flags::NEARFULL)
    }

    /// A new leader does not know since when OSDs are down: at the latest since now.
    pub(crate) fn count_down_osds_from_now(&mut self) {
        let map = self.osd.published.clone();
        for osd in map.osds().filter(|osd| map.is_down(*osd) && map.is_in(*osd)) {
            self.osd.down_since.entry(osd).or_insert(self.now.mono);
        }
    }

    /// The proposal is committed: what is encoded is published.
    pub(crate) fn osd_committed(&mut self) {
        if self.osd.published.epoch == self.osd.map.epoch {
            return;
        }
        let old = std::mem::replace(&mut self.osd.published, self.osd.map.clone());
        let map = self.osd.published.clone();
        for osd in 0..map.max_osd {
            if map.is_up(osd) && !old.is_up(osd) {
                self.osd.down_since.remove(&osd);
                self.osd.failures.remove(&osd);
            }
            if !map.is_up(osd) {
                self.osd.failures.remove(&osd);
                self.osd.last_report.remove(&osd);
            }
            if map.is_down(osd) && map.exists(osd) && map.is_in(osd) {
                self.osd.down_since.entry(osd).or_insert(self.now.mono);
            } else {
                self.osd.down_since.remove(&osd);
            }
        }
    }

    /// An encoded full map of an epoch kept.
    pub(crate) fn full_map_bytes(&mut self, epoch: Epoch) -> Option<Bytes> {
        self.map_bytes(true, epoch)
    }

    fn map_bytes(&mut self, full: bool, epoch: Epoch) -> Option<Bytes> {
        let (cache, stem) = match full {
            true => (&mut self.osd.full_cache, "full_"),
            false => (&mut self.osd.inc_cache, "inc_"),
        };
        if let Some(bytes) = cache.get(epoch) {
            return Some(bytes);
        }
        let found = self.kv.get(&layout::numbered(OSDMAP, stem, epoch.into()));
        let bytes = found.ok().flatten()?;
        cache.insert(epoch, bytes.clone());
        Some(bytes)
    }

    /// The map of an epoch kept.
    pub(crate) fn map_of_epoch(&mut self, epoch: Epoch) -> Option<Rc<OsdMap>> {
        if epoch == self.osd.published.epoch {
            return Some(self.osd.published.clone());
        }
        if epoch > self.osd.published.epoch {
            return None;
        }
        let bytes = self.full_map_bytes(epoch)?;
        OsdMap::from_bytes(&bytes).ok().map(Rc::new)
    }

    /// A message with nothing in it but the range of epochs kept.
    pub(crate) fn osdmap_message(&self) -> MOSDMap {
        MOSDMap {
            fsid: self.monmap.fsid,
            oldest_map: self.osd.first,
            newest_map: self.osd.published.epoch,
            ..MOSDMap::default()
        }
    }

    /// The newest map, whole.
    pub(crate) fn send_full_map(&mut self, to: SessionId) {
        let epoch = self.osd.published.epoch;
        let mut m = self.osdmap_message();
        if let Some(bytes) = self.full_map_bytes(epoch) {
            m.maps.insert(epoch, bytes);
        }
        self.note_sent_map(to, epoch);
        self.send_now(to, wire(&m));
    }

    /// Steps from epoch `first` on to the newest; if the monitor does not keep that far back, the
    /// oldest map it has first. `once`: a single message.
    pub(crate) fn send_incrementals(&mut self, to: SessionId, first: Epoch, once: bool) {
        let newest = self.osd.published.epoch;
        let mut first = first.max(1);
        if let Some(session) = self.sessions.get(&to) {
            // What it was sent it has, unless it asks for that again (`subs.rs`).
            if session.osd_epoch >= first && session.osd_epoch <= newest {
                first = session.osd_epoch + 1;
            }
        }
        if first < self.osd.first || (first == self.osd.first && first > 1) {
            first = self.osd.first;
            let mut m = self.osdmap_message();
            if let Some(bytes) = self.full_map_bytes(first) {
                m.maps.insert(first, bytes);
            }
            self.note_sent_map(to, first);
            self.send_now(to, wire(&m));
            first += 1;
        }
        while first <= newest {
            let last = newest.min(first + MAPS_PER_MESSAGE - 1);
            let mut m = self.osdmap_message();
            for epoch in first..=last {
                match self.map_bytes(false, epoch) {
                    Some(bytes) => drop(m.incremental_maps.insert(epoch, bytes)),
                    None => {
                        if let Some(bytes) = self.full_map_bytes(epoch) {
                            m.maps.insert(epoch, bytes);
                        }
                    }
                }
            }
            self.note_sent_map(to, last);
            self.send_now(to, wire(&m));
            first = last + 1;
            if once {
                break;
            }
        }
    }

    /// Everything newer than what the sender of a request has.
    pub(crate) fn send_latest(&mut self, to: SessionId, start: Epoch) {
        if start == 0 { self.send_full_map(to) } else { self.send_incrementals(to, start, false) }
    }

    fn note_sent_map(&mut self, to: SessionId, epoch: Epoch) {
        if let Some(session) = self.sessions.get_mut(&to) {
            session.osd_epoch = session.osd_epoch.max(epoch);
        }
    }
}

/// Whether a PG takes part in a merge that is announced.
fn merges(map: &OsdMap, pgid: types::PgId) -> bool {
    map.pool(pgid.pool_id()).is_some_and(|pool| {
        let going = pool.pg_num_pending..pool.pg_num;
        going.into_iter().any(|seed| {
            let source = types::PgId { seed, ..pgid };
            source == pgid || source.parent() == pgid
        })
    })
}

/// A temporary primary that has lost its purpose: its PG is gone, it is down, or it leads anyway
/// (`OSDMap::clean_temps`).
fn primary_temp_is_stale(map: &OsdMap, pgid: types::PgId, osd: i32) -> bool {
    let leads_anyway = || {
        let mapping = map.pg_to_up_acting(pgid);
        mapping.acting_primary == mapping.up_primary
    };
    !map.pg_exists(pgid) || map.is_down(osd) || leads_anyway()
}

/// A temporary mapping that has lost its purpose: its PG is gone, all its OSDs are down, or it is
/// what CRUSH gives anyway.
fn temp_is_stale(map: &OsdMap, pgid: types::PgId, osds: &[i32]) -> bool {
    if !map.pg_exists(pgid) {
        return true;
    }
    if !osds.iter().any(|osd| map.is_up(*osd)) {
        return true;
    }
    let raw = map.pg_to_up_acting(pgid);
    raw.up == osds && raw.up_primary == raw.acting_primary
}
