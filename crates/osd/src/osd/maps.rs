//! New OSD maps: checked, stored, then consumed by every PG, in order; and shared with whoever is
//! behind.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;

use ::maps::{Incremental, OsdMap};
use bytes::Bytes;
use denc::Denc;
use messages::{MOSDMap, Message};
use store::Transaction;
use types::{Epoch, OsdId};

use super::session::Session;
use super::{Osd, write_superblock};

/// Epochs in one message to somebody behind (osd_map_share_max_epochs).
const SHARE_MAX: Epoch = 40;
/// Maps removed at a time.
const TRIM_MAX: Epoch = 30;
/// How long after maps were asked for or came others are not asked for: they may be on their way.
const ASK_AGAIN: Duration = Duration::from_secs(1);

impl Osd {
    /// Asks the monitor for maps from `from` on (0: for the newest): at once, or if maps came or were asked for
    /// a moment ago, when none have come for another. With each question it sends all from there on, and what
    /// it was to send anyway it sends without one.
    pub(crate) fn want_maps(&self, from: Epoch) {
        let now = self.env.now();
        if self.maps_quiet_since.get().is_none_or(|since| now >= since + ASK_AGAIN) {
            return self.ask_for_maps(from);
        }
        if self.maps_wanted_later.replace(true) {
            return;
        }
        let (osd, have) = (self.rc(), self.current_map().epoch);
        self.env.go(async move {
            osd.env.sleep(ASK_AGAIN).await;
            osd.maps_wanted_later.set(false);
            if osd.current_map().epoch == have && !osd.is_stopping() {
                osd.ask_for_maps(from);
            }
        });
    }

    fn ask_for_maps(&self, from: Epoch) {
        self.maps_quiet_since.set(Some(self.env.now()));
        self.monc.subscribe_again("osdmap", u64::from(from), false);
    }

    /// The step to this map does not lead to what the monitors have, or is missing: gets the map whole. None is
    /// left out for that, or the intervals that end in it would not be known.
    fn fetch_whole(&self, epoch: Epoch) {
        if self.fetching_map.replace(true) {
            return;
        }
        let osd = self.rc();
        self.env.go(async move {
            let fetched = osd.whole_map(epoch).await;
            osd.fetching_map.set(false);
            match fetched {
                Some(full) => {
                    let fsid = osd.superblock.borrow().cluster_fsid;
                    osd.on_maps(MOSDMap {
                        fsid,
                        maps: BTreeMap::from([(epoch, full)]),
                        newest_map: epoch,
                        ..MOSDMap::default()
                    });
                    // What came of later ones could not be used.
                    osd.ask_for_maps(epoch + 1);
                }
                None => osd.monc.subscribe_later("osdmap", epoch.into(), false),
            }
        });
    }

    /// MOSDMap, of a monitor or a peer.
    pub(super) fn on_maps(self: &Rc<Osd>, m: MOSDMap) {
        let fsid = self.superblock.borrow().cluster_fsid;
        if m.fsid != fsid {
            tracing::error!("maps of another cluster ({}, ours is {fsid})", m.fsid);
            return;
        }
        self.counters.count_maps((m.maps.len() + m.incremental_maps.len()) as u64);
        // A monitor sends what was asked for, peers at most SHARE_MAX: drop what floods.
        if self.map_queue.borrow().len() >= 256 {
            self.map_queue.borrow_mut().pop_front();
        }
        self.map_queue.borrow_mut().push_back(m);
        if self.map_task.replace(true) {
            return;
        }
        let osd = self.clone();
        self.env.go(async move {
            loop {
                let next = osd.map_queue.borrow_mut().pop_front();
                let Some(m) = next else { break };
                osd.take_maps(m).await;
                if osd.is_stopping() && osd.map_queue.borrow().is_empty() {
                    break;
                }
            }
            osd.map_task.set(false);
        });
    }

    async fn take_maps(self: &Rc<Osd>, m: MOSDMap) {
        let have = self.current_map().epoch;
        let epochs = match judge(have, &m) {
            Use::Nothing => return,
            Use::AskFrom(from) => return self.want_maps(from),
            Use::These(epochs) => epochs,
        };
        if have > 0 && *epochs.start() > have + 1 {
            let first = epochs.start();
            tracing::warn!("skipping maps {}..{first}, the monitors do not have them", have + 1);
        }
        let mut t = Transaction::new();
        let mut new = Vec::new();
        let mut last = self.current_map();
        for epoch in epochs {
            let made = match (m.maps.get(&epoch), m.incremental_maps.get(&epoch)) {
                (Some(full), inc) => decode_full(full).map(|map| (map, full.clone(), inc)),
                (None, Some(inc)) => apply(&last, inc).map(|(map, full)| (map, full, Some(inc))),
                (None, None) => None,
            };
            let Some((map, full, inc)) = made else {
                // A hole, or a step that does not fit: a whole map mends it.
                tracing::warn!("osdmap {epoch} cannot be made, asking for it whole");
                match m.maps.contains_key(&epoch) {
                    // A whole one that does not decode comes again as fast as it is asked for.
                    true => self.monc.subscribe_later("osdmap", epoch.into(), false),
                    false => self.fetch_whole(epoch),
                }
                break;
            };
            let map = Rc::new(map);
            self.maps.put(&map, full, inc.cloned(), &mut t);
            last = map.clone();
            new.push(map);
        }
        if new.is_empty() {
            return;
        }
        self.note_in_superblock(&new, m.oldest_map, &mut t);
        self.counters.unanswered.begin();
        let stored = self.store.submit(t).await;
        self.counters.unanswered.end();
        if let Err(e) = stored {
            self.fail(format!("cannot store maps: {e}"));
            return;
        }
        self.maps_quiet_since.set(Some(self.env.now()));
        self.consume(&new).await;
        self.monc.got("osdmap", u64::from(self.current_map().epoch));
    }

    fn note_in_superblock(&self, new: &[Rc<OsdMap>], oldest_of_mon: Epoch, t: &mut Transaction) {
        let mut sb = self.superblock.borrow_mut();
        let (first, last) = (new[0].epoch, new[new.len() - 1].epoch);
        if sb.oldest_map == 0 || first > sb.newest_map + 1 {
            sb.oldest_map = first;
        }
        sb.newest_map = last;
        sb.current_epoch = last;
        // Maps that no PG needs and the monitors have dropped.
        let needed = self.all_pgs().iter().map(|pg| pg.oldest_epoch_needed()).min();
        let limit = oldest_of_mon.min(needed.unwrap_or(last)).min(last);
        let limit = limit.min(sb.oldest_map + TRIM_MAX);
        if limit > sb.oldest_map {
            self.maps.trim(sb.oldest_map, limit, t);
            sb.oldest_map = limit;
        }
        write_superblock(&sb, t);
    }

    /// Everybody moves on to the new maps, which are durable.
    async fn consume(self: &Rc<Osd>, new: &[Rc<OsdMap>]) {
        let old = self.current_map();
        let Some(newest) = new.last() else { return };
        *self.osdmap.borrow_mut() = newest.clone();
        self.tell_pool_options(newest);
        let mut previous = old.clone();
        for map in new {
            self.drop_down_peers(&previous, map);
            previous = map.clone();
        }
        self.check_own_state();
        if self.is_stopping() && old.epoch == 0 {
            return;
        }
        self.update_pgs(&old, new).await;
        self.pgs_epoch.set(newest.epoch);
        self.heartbeats.on_map(self, newest);
        for map in new {
            self.remote_reads.on_map(map);
        }
        self.unpark();
        self.drop_blocklisted(&old, newest);
        if self.is_active() {
            self.resend_to_mon();
        }
    }

    /// Who went down, or came up anew, has no session with us any more.
    fn drop_down_peers(&self, old: &OsdMap, new: &OsdMap) {
        for osd in old.up_osds() {
            if osd == self.whoami {
                continue;
            }
            let same = new.is_up(osd) && new.cluster_addrs_of(osd) == old.cluster_addrs_of(osd);
            if !same {
                if let Some(addrs) = old.cluster_addrs_of(osd) {
                    self.cluster.mark_down(addrs);
                }
                if let Some(addrs) = old.addrs(osd) {
                    self.objecter.mark_down(addrs);
                }
                self.peer_epochs.borrow_mut().remove(&osd);
                self.peer_connections.borrow_mut().remove(&osd);
                self.heartbeats.remove(osd);
            }
        }
    }

    /// Watches of whom the map newly blocklists end; their ops are refused when they come.
    fn drop_blocklisted(&self, old: &OsdMap, map: &OsdMap) {
        let same = old.blocklist == map.blocklist && old.range_blocklist == map.range_blocklist;
        if same || map.blocklist.is_empty() && map.range_blocklist.is_empty() {
            return;
        }
        for con in self.client.connections() {
            if con.peer_kind() == types::entity::CLIENT
                && let Some(session) = con.session::<Session>()
                && map.is_blocklisted(&con.peer_addrs())
            {
                session.client().reset();
            }
        }
        for pg in self.all_pgs() {
            pg.contexts.evict_watches(|addr| map.is_addr_blocklisted(addr));
        }
    }

    /// The maps from `from` on for somebody who has those before.
    fn maps_message(&self, from: Epoch) -> Option<MOSDMap> {
        let map = self.current_map();
        let sb = self.superblock.borrow();
        let mut message = MOSDMap {
            fsid: sb.cluster_fsid,
            oldest_map: sb.oldest_map,
            newest_map: sb.newest_map,
            ..MOSDMap::default()
        };
        let far = from == 0 || map.epoch >= from + SHARE_MAX;
        match (!far).then(|| self.maps.steps(from, map.epoch)).flatten() {
            Some(steps) => message.incremental_maps = steps,
            None => {
                let (epoch, full) = self.maps.newest_full()?;
                message.maps = BTreeMap::from([(epoch, full)]);
            }
        }
        Some(message)
    }

    /// Sends a client the maps it lacks.
    pub(crate) fn share_with_session(&self, session: &Session) {
        let newest = self.current_map().epoch;
        let has = session.epoch.get();
        if has >= newest {
            return;
        }
        session.epoch.set(newest);
        if let Some(message) = self.maps_message(if has == 0 { 0 } else { has + 1 }) {
            session.con.send(Message::encode(&message));
        }
    }

    /// The connection to an OSD, if it is up. Where it is, the map is asked once an epoch.
    pub(super) fn connection_to(&self, osd: OsdId) -> Option<msgr::Connection> {
        let map = self.osdmap.borrow();
        let known = self.peer_connections.borrow();
        if let Some((epoch, con)) = known.get(&osd)
            && *epoch == map.epoch
            && !con.is_closed()
        {
            return Some(con.clone());
        }
        drop(known);
        let addrs = map.cluster_addrs_of(osd).filter(|_| map.is_up(osd))?;
        // Another shard of a PG may be here too. A messenger has no connection to itself.
        let messenger = if osd == self.whoami { &self.objecter } else { &self.cluster };
        let con = messenger.connect_to(types::entity::OSD, addrs);
        self.peer_connections.borrow_mut().insert(osd, (map.epoch, con.clone()));
        Some(con)
    }

    /// Sends an OSD the maps it is known to lack.
    pub(super) fn share_with_peer(&self, osd: OsdId, con: &msgr::Connection) {
        let newest = self.osdmap.borrow().epoch;
        let has = self.peer_epochs.borrow().get(&osd).copied().unwrap_or(newest);
        if has == 0 || has >= newest {
            return;
        }
        self.peer_epochs.borrow_mut().insert(osd, newest);
        if let Some(message) = self.maps_message(has + 1) {
            con.send(Message::encode(&message));
        }
    }

    /// A peer has shown that it has a map.
    pub(super) fn note_peer_epoch(&self, osd: OsdId, epoch: Epoch) {
        let mut known = self.peer_epochs.borrow_mut();
        let known = known.entry(osd).or_insert(0);
        *known = epoch.max(*known);
    }
}

/// What is done with maps that came.
#[derive(Debug, PartialEq, Eq)]
enum Use {
    /// They are here.
    Nothing,
    /// There are others before them, which come first: from this one on.
    AskFrom(Epoch),
    /// They follow the newest one here, or all that there are still.
    These(RangeInclusive<Epoch>),
}

/// As `OSD::handle_osd_map` does (`src/osd/OSD.cc` at v16.2), whoever sent them and however few. `have`: the newest one here.
fn judge(have: Epoch, m: &MOSDMap) -> Use {
    let epochs = || m.maps.keys().chain(m.incremental_maps.keys()).copied();
    let (Some(first), Some(newest)) = (epochs().min(), epochs().max()) else { return Use::Nothing };
    if newest <= have {
        return Use::Nothing;
    }
    if have == 0 || first <= have + 1 {
        return Use::These(first.max(have + 1)..=newest);
    }
    if m.oldest_map <= have + 1 {
        return Use::AskFrom(have + 1);
    }
    // A map may be left out only if nobody has it any more.
    if m.oldest_map < first {
        return Use::AskFrom(m.oldest_map);
    }
    match m.maps.contains_key(&first) {
        true => Use::These(first..=newest),
        false => Use::AskFrom(0),
    }
}

fn decode_full(bytes: &Bytes) -> Option<OsdMap> {
    OsdMap::from_bytes(bytes).inspect_err(|e| tracing::error!("a full map: {e}")).ok()
}

/// The next map and its encoding, if the step leads to what its sender has.
fn apply(last: &OsdMap, bytes: &Bytes) -> Option<(OsdMap, Bytes)> {
    let inc = Incremental::from_bytes(bytes)
        .inspect_err(|e| tracing::error!("an incremental map: {e}"))
        .ok()?;
    let mut map = last.clone();
    map.apply(&inc).inspect_err(|e| tracing::error!("an incremental map: {e}")).ok()?;
    let (full, crc) = map.encode_with_crc();
    if inc.full_crc != 0 && crc != inc.full_crc {
        tracing::warn!("osdmap {}: crc {crc:#x}, the sender has {:#x}", map.epoch, inc.full_crc);
        return None;
    }
    map.crc = crc;
    Some((map, full))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The map message of somebody who has maps from `oldest` on: one whole map, then steps.
    fn message(oldest: Epoch, whole: Epoch, newest: Epoch) -> MOSDMap {
        MOSDMap {
            oldest_map: oldest,
            newest_map: newest,
            maps: BTreeMap::from([(whole, Bytes::new())]),
            incremental_maps: (whole + 1..=newest).map(|epoch| (epoch, Bytes::new())).collect(),
            ..MOSDMap::default()
        }
    }

    /// A peer that took an OSD for far behind sent it the newest map alone. The OSD went on from that one, without
    /// maps that the monitors still had, and never knew which intervals had passed in them.
    #[test]
    fn no_map_is_skipped_that_somebody_has() {
        assert_eq!(judge(100, &message(500, 1000, 1000)), Use::AskFrom(500));
        assert_eq!(judge(100, &message(500, 500, 540)), Use::These(500..=540));
        assert_eq!(judge(600, &message(500, 1000, 1000)), Use::AskFrom(601));
        assert_eq!(judge(499, &message(500, 500, 540)), Use::These(500..=540));
        assert_eq!(judge(520, &message(500, 500, 540)), Use::These(521..=540));
        assert_eq!(judge(540, &message(500, 500, 540)), Use::Nothing);
        assert_eq!(judge(540, &MOSDMap::default()), Use::Nothing);
        // Whoever has none yet needs no others.
        assert_eq!(judge(0, &message(500, 1000, 1010)), Use::These(1000..=1010));
        let mut steps = message(500, 499, 540);
        steps.maps.clear();
        assert_eq!(judge(499, &steps), Use::These(500..=540));
        assert_eq!(judge(100, &steps), Use::AskFrom(0));
    }
}
