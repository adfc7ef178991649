//! What is asked of the cores of one PG on several OSDs whose world ([`world`]) kills them, restarts
//! them and cuts them off at random: what was acknowledged is readable wherever the PG serves, of
//! its primary and of the copies, and at the end all copies are equal.

mod map;
mod world;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use types::osd::{CompactInterval, PastIntervals, PgHistory, PgInfo, PgLog, PgLogEntry};
use types::{EVersion, HObject, OsdId, PgId, PgShard};

use self::map::Map;
use self::world::{Node, World, oid};
use super::{Effect, Log, LogMessage, PeerMessage, Peering, PriorSet, Query, State};
use crate::pg::backend::Redundancy;

thread_local! {
    /// Reads that copies would have answered.
    static ANSWERS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

impl World {
    /// With shards: where the primary would read an object, those that it would ask hold the same
    /// version, if they still follow it.
    fn check_shards(&self, what: &str, o: OsdId) {
        let n = &self.nodes[&o];
        if !n.writes.is_empty() || !n.core.mapping.redundancy.is_erasure() {
            return;
        }
        for (oid, have) in n.objects.iter().filter(|(oid, _)| !n.core.missing.contains(oid)) {
            for s in n.core.sources(oid, EVersion::ZERO) {
                let Some(p) = self.nodes.get(&s.osd) else { continue };
                let since = n.core.info.history.same_interval_since;
                let same = p.core.info.history.same_interval_since == since && p.core.follows();
                if same && n.core.mapping.is_acting(s) {
                    let found = p.objects.get(oid);
                    assert_eq!(found, Some(have), "{what}: osd.{o} would read {oid} of {s}");
                }
            }
        }
    }

    /// Who would answer a read of the object beside its primary, and with which version.
    fn answers_of_copies(&self, oid: &HObject) -> Vec<(OsdId, EVersion)> {
        let may = |n: &Node| {
            !n.core.is_primary()
                && !n.core.mapping.redundancy.is_erasure()
                && n.core.may_answer_reads(self.now)
                && !n.core.log.has_write_since(oid, n.core.stable_to())
        };
        let copies = self.nodes.iter().filter(|(_, n)| may(n));
        copies.map(|(o, n)| (*o, n.objects.get(oid).copied().unwrap_or(EVersion::ZERO))).collect()
    }

    /// Copies that do not lead answer nothing but what was acknowledged last, or what all have.
    fn check_copies(&self, what: &str) {
        for (oid, acked) in &self.acked {
            let answers = self.answers_of_copies(oid);
            ANSWERS.with(|all| all.set(all.get() + answers.len() as u64));
            for (o, have) in &answers {
                let same = answers.iter().all(|(_, other)| other == have);
                assert!(
                    have >= acked && same,
                    "{what}: of {oid} osd.{o} shows {have}, {acked} was acknowledged, copies: {answers:?}"
                );
            }
        }
    }

    /// Wherever the PG serves, acknowledged writes are seen.
    fn check(&self, what: &str) {
        self.check_copies(what);
        for (o, n) in &self.nodes {
            if !self.is_serving(*o) {
                continue;
            }
            self.check_shards(what, *o);
            for (oid, version) in &self.acked {
                if n.core.missing.contains(oid) {
                    continue;
                }
                let have = n.objects.get(oid).copied().unwrap_or(EVersion::ZERO);
                assert!(
                    have >= *version,
                    "{what}: osd.{o} at e{} serves {oid} {have}, {version} was acknowledged",
                    n.map.epoch
                );
            }
        }
    }

    /// Without faults and writes.
    #[track_caller]
    fn run_until(&mut self, done: impl Fn(&World) -> bool) {
        for _ in 0..200_000 {
            if done(self) {
                return;
            }
            self.random_step(false);
        }
        panic!("it does not come to pass");
    }

    fn settle(&mut self, seed: u64) {
        self.cut_off.clear();
        for o in self.instance.keys().copied().collect::<Vec<_>>() {
            if !self.nodes.contains_key(&o) {
                self.restart(o);
            }
        }
        for _ in 0..200_000 {
            self.random_step(false);
            let clean = self.nodes.iter().any(|(o, n)| n.core.is_clean() && self.is_serving(*o));
            let quiet = self.links.values().all(VecDeque::is_empty)
                && self.nodes.values().all(|n| n.pending.is_empty() && n.writes.is_empty());
            if clean && quiet {
                self.check_equal(seed);
                return;
            }
        }
        let states: Vec<String> = self
            .nodes
            .iter()
            .map(|(o, n)| {
                format!(
                    "osd.{o} e{} {} {} missing {} {:?}",
                    n.map.epoch,
                    n.core.state().name(),
                    n.core.info,
                    n.core.missing.len(),
                    n.core.mapping
                )
            })
            .collect();
        let busy: Vec<String> = self
            .links
            .iter()
            .filter(|(_, q)| !q.is_empty())
            .map(|(k, q)| format!("{k:?} {}", q.len()))
            .collect();
        let left: Vec<String> = self
            .nodes
            .iter()
            .map(|(o, n)| {
                let w: Vec<String> =
                    n.writes.iter().map(|(v, (_, s))| format!("{v} {s:?}")).collect();
                format!("{o}: {} pending {w:?} serving {}", n.pending.len(), self.is_serving(*o))
            })
            .collect();
        panic!(
            "seed {seed}: not clean after the faults stopped:\n{}\n{busy:?}\n{left:?}",
            states.join("\n")
        );
    }

    fn check_equal(&self, seed: u64) {
        self.check("end");
        let primary = self.nodes.iter().find(|(_, n)| n.core.is_clean()).unwrap();
        for s in &primary.1.core.acting_backfill {
            let other = &self.nodes[&s.osd];
            assert_eq!(other.objects, primary.1.objects, "seed {seed}: osd.{} differs", s.osd);
            assert_eq!(other.core.log.head(), primary.1.core.log.head(), "seed {seed}");
            let entries = |n: &Node| n.core.log.iter().map(|e| e.version).collect::<Vec<_>>();
            let (a, b) = (entries(other), entries(primary.1));
            let k = a.len().min(b.len());
            assert_eq!(a[a.len() - k..], b[b.len() - k..], "seed {seed}: logs differ");
        }
    }
}

/// As many writes of other objects, one by one, as a log does not keep.
fn outgrow_log(w: &mut World, primary: i32) {
    for n in 0..20 {
        w.run_until(|w| w.is_serving(primary));
        w.write(primary, oid(1 + n % 3));
        w.run_until(|w| w.nodes[&primary].writes.is_empty());
    }
}

fn run(seed: u64, osds: i32, size: u32, min_size: u32) {
    run_with(seed, osds, size, min_size, Redundancy::Copies);
}

fn run_with(seed: u64, osds: i32, size: u32, min_size: u32, redundancy: Redundancy) {
    let mut w = World::new(seed, osds, size, min_size, redundancy);
    for _ in 0..2_500 {
        w.random_step(true);
        w.check(&format!("seed {seed}"));
    }
    w.settle(seed);
}

fn seeds() -> std::ops::Range<u64> {
    let n = std::env::var("PEERING_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(60);
    let first = std::env::var("PEERING_FIRST").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    first..first + n
}

#[test]
fn size_three_loses_nothing_and_its_copies_answer_reads() {
    ANSWERS.set(0);
    seeds().for_each(|seed| run(seed, 4, 3, 2));
    assert!(ANSWERS.get() > 1000, "copies answer {} reads", ANSWERS.get());
}

#[test]
fn size_two_loses_nothing() {
    seeds().for_each(|seed| run(seed, 3, 2, 1));
}

#[test]
fn size_three_with_one_enough_loses_nothing() {
    seeds().for_each(|seed| run(seed, 4, 3, 1));
}

#[test]
fn size_one_loses_nothing() {
    seeds().for_each(|seed| run(seed, 2, 1, 1));
}

#[test]
fn two_and_one_shards_lose_nothing() {
    seeds().for_each(|seed| run_with(seed, 6, 3, 2, Redundancy::Shards { k: 2 }));
}

#[test]
fn two_and_two_shards_lose_nothing() {
    seeds().for_each(|seed| run_with(seed, 6, 4, 3, Redundancy::Shards { k: 2 }));
}

#[test]
fn shards_that_serve_with_just_enough_lose_nothing() {
    seeds().for_each(|seed| run_with(seed, 5, 4, 2, Redundancy::Shards { k: 2 }));
}

/// All shards of a PG moved at once, to OSDs that its log could bring up from nothing, while a write
/// was on two of the three. The new primary rightly took the log of the third. The other two did not
/// act any more, so nobody told them to undo the write: they showed a version that had not happened,
/// the object could not be made of one shard, and was unfound for ever though no OSD was lost.
#[test]
fn strays_undo_a_write_that_did_not_happen_and_are_sources_then() {
    for (seed, later) in (1..=20).flat_map(|seed| [(seed, 0), (seed, 1), (seed, 3)]) {
        let mut w = World::new(seed, 6, 3, 2, Redundancy::Shards { k: 2 });
        w.run_until(|w| w.is_serving(0));
        w.write(0, oid(0));
        w.run_until(|w| w.acked.contains_key(&oid(0)));
        let acked = w.acked[&oid(0)];
        w.write(0, oid(0));
        let written = w.nodes[&0].objects[&oid(0)];
        while w.nodes[&1].objects[&oid(0)] != written {
            w.deliver(0, 1);
        }
        for o in [0, 1] {
            while !w.nodes[&o].pending.is_empty() {
                w.commit_one(o);
            }
        }
        w.new_map(|m| m.order.rotate_left(3));
        w.advance(2);
        // What else is written meanwhile comes to the strays with what they are told.
        w.run_until(|w| w.is_serving(3));
        (1..=later).for_each(|n| w.write(3, oid(n)));
        w.settle(seed);
        assert_eq!(w.nodes[&3].objects[&oid(0)], acked, "seed {seed}");
    }
}

/// An OSD alone had the newest version of an object: it served while the others were down, they took its log
/// afterwards, and it fell before they were brought the object. When it came back so much had been written that it was
/// to be backfilled from nothing. It removed what it had, and with that the last copy: the object was unfound for ever,
/// though no OSD was lost.
#[test]
fn who_alone_has_an_object_is_not_backfilled_before_it_is_elsewhere() {
    let mut seen = 0;
    for (shards, seed) in [false, true].into_iter().flat_map(|s| (1..=100).map(move |n| (s, n))) {
        let redundancy = if shards { Redundancy::Shards { k: 1 } } else { Redundancy::Copies };
        let mut w = World::new(seed, 3, 3, 1, redundancy);
        w.kill(1);
        w.kill(2);
        w.run_until(|w| w.is_serving(0) && w.nodes[&0].core.acting_len() == 1);
        w.write(0, oid(0));
        w.run_until(|w| w.acked.contains_key(&oid(0)));
        let written = w.acked[&oid(0)];
        w.restart(1);
        w.restart(2);
        let lacks = |w: &World, o: OsdId| w.nodes[&o].core.missing.contains(&oid(0));
        let has_heard = |w: &World, o: OsdId| {
            let history = w.nodes[&o].core.info.history;
            w.nodes[&o].core.follows() && history.last_epoch_started >= history.same_interval_since
        };
        w.run_until(|w| has_heard(w, 1) && has_heard(w, 2));
        if !lacks(&w, 1) || !lacks(&w, 2) {
            continue; // it was brought to one before the other had heard
        }
        w.kill(0);
        outgrow_log(&mut w, 1);
        assert!(w.nodes[&1].core.log.tail() > written, "seed {seed}: it is to be backfilled");
        w.restart(0);
        // It begins amid writes: the first that it is sent follows what it was told before.
        for n in 0..2_000 {
            w.random_step(false);
            w.write(1, oid(1 + n % 3));
        }
        w.settle(seed);
        assert_eq!(w.nodes[&0].objects.get(&oid(0)), Some(&written), "seed {seed}");
        seen += 1;
    }
    assert!(seen >= 20, "{seen} times");
}

/// Of four shards, any two of which make an object, one had been given a write that did not happen, and was away when that was decided.
/// One of the two others that had the object died, and the fourth, which had just come, had not been brought
/// its shard. When the one that had been away came back so much had been written that it was to be backfilled from
/// nothing. It was left as it was, since the object could not be made without it; but its shard was of the write that did
/// not happen, so nothing was made of it, it began anew all the same, and the object was unfound for ever, though
/// one OSD was lost of two that may be. Now it is told to undo that write.
#[test]
fn who_alone_has_a_shard_undoes_a_write_that_did_not_happen_before_it_begins_anew() {
    let mut seen = 0;
    for seed in 1..=100 {
        let mut w = World::new(seed, 4, 4, 2, Redundancy::Shards { k: 2 });
        w.kill(3);
        w.run_until(|w| w.is_serving(0) && w.nodes[&0].core.acting_len() == 3);
        w.write(0, oid(0));
        w.run_until(|w| w.acked.contains_key(&oid(0)));
        let acked = w.acked[&oid(0)];
        w.write(0, oid(0));
        let written = w.nodes[&0].objects[&oid(0)];
        while w.nodes[&1].objects[&oid(0)] != written {
            w.deliver(0, 1);
        }
        while !w.nodes[&1].pending.is_empty() {
            w.commit_one(1);
        }
        (0..3).for_each(|o| w.kill(o));
        w.restart(0);
        if w.nodes[&0].objects[&oid(0)] != acked {
            continue; // the write was on two, and it happened
        }
        w.restart(2);
        w.run_until(|w| w.is_serving(0) && w.nodes[&0].core.acting_len() == 2);
        w.restart(3);
        w.run_until(|w| w.nodes[&3].core.follows() && w.is_serving(0));
        w.kill(2);
        w.run_until(|w| w.is_serving(0) && w.nodes[&0].core.acting_len() == 2);
        if w.nodes[&3].objects.contains_key(&oid(0)) {
            continue; // it was brought its shard before that
        }
        outgrow_log(&mut w, 0);
        assert!(w.nodes[&0].core.log.tail() > written, "seed {seed}: it is to be backfilled");
        w.restart(1);
        // It begins amid writes.
        for n in 0..2_000 {
            w.random_step(false);
            w.write(0, oid(1 + n % 3));
        }
        w.run_until(|w| {
            let core = &w.nodes[&0].core;
            let follows = core.acting_backfill.iter().any(|s| s.osd == 1);
            core.is_activated() && follows && core.is_recovered()
        });
        for o in [0, 1, 3] {
            assert_eq!(w.nodes[&o].objects.get(&oid(0)), Some(&acked), "seed {seed}: osd.{o}");
        }
        w.settle(seed);
        seen += 1;
    }
    assert!(seen >= 20, "{seen} times");
}

/// A pool of 64 PGs was created, and a map without news for them came right after: replicas that
/// were made by the primary's log at the newer epoch took that log for one of an earlier interval.
/// They never followed, and the PGs stayed in "activating" for ever.
#[test]
fn a_replica_made_by_a_log_of_an_earlier_epoch_follows_it() {
    let map = |epoch| Map {
        epoch,
        size: 2,
        min_size: 1,
        order: vec![0, 1],
        up: BTreeMap::from([(0, true), (1, true)]),
        up_from: BTreeMap::from([(0, 1), (1, 1)]),
        ..Map::default()
    };
    let (made, newer) = (map(14), map(15));
    let pgid = PgId { pool: 1, seed: 0 }.spg();
    let history = PgHistory {
        epoch_created: 14,
        same_interval_since: 14,
        same_up_since: 14,
        same_primary_since: 14,
        ..PgHistory::default()
    };
    let settings = World::new(1, 2, 2, 1, Redundancy::Copies).settings;
    let mut replica = Peering::create(
        PgShard::replica(1),
        pgid,
        settings,
        made.mapping(),
        14,
        history,
        PastIntervals::default(),
    );
    let (now, mut out) = (Duration::from_secs(1), Vec::new());
    replica.advance_map(&newer, &made, newer.mapping(), now, &mut out);
    replica.act_map(&newer, now, &mut out);
    let info = PgInfo { history, last_epoch_started: 14, ..PgInfo::new(pgid) };
    let log = LogMessage {
        info,
        log: Default::default(),
        missing: types::osd::PgMissing::new(),
        past_intervals: PastIntervals::default(),
        lease: None,
    };
    let message = PeerMessage::Log(Box::new(log));
    replica.on_message(PgShard::replica(0), (14, 14), message, &newer, now, &mut out);
    assert!(replica.follows());
}

/// Of two, the first leads and both are up.
fn map_of_two(epoch: u32, order: &[OsdId]) -> Map {
    let all = |epoch| order.iter().map(move |osd| (*osd, epoch)).collect();
    Map {
        epoch,
        size: 2,
        min_size: 1,
        order: order.to_vec(),
        up: order.iter().map(|osd| (*osd, true)).collect(),
        up_from: all(1),
        up_thru: all(epoch),
        ..Map::default()
    }
}

/// A primary that was asked for its log, and let another lead: it had heard of an activation since
/// (17) that it had no part in. Its own last one, 12, had been durable on it alone, and the log that
/// was asked for began there: entries of epoch 2 that had not happened went unseen, it followed as if
/// it lacked nothing, and undid them. Objects that it had not any more were thought to be there.
#[test]
fn who_has_only_heard_of_the_last_activation_is_asked_for_all_of_its_log() {
    let map = map_of_two(20, &[0, 1]);
    let pgid = PgId { pool: 1, seed: 0 }.spg();
    let info = |head: EVersion, started: u32, heard_of: u32| {
        let history = PgHistory {
            epoch_created: 1,
            same_interval_since: 20,
            last_epoch_started: heard_of,
            ..PgHistory::default()
        };
        PgInfo {
            history,
            last_update: head,
            last_complete: head,
            last_epoch_started: started,
            ..PgInfo::new(pgid)
        }
    };
    let asked = |started: u32, heard_of: u32| {
        let head = EVersion::new(2, 26);
        let settings = World::new(1, 2, 2, 1, Redundancy::Copies).settings;
        let (me, past) = (PgShard::replica(0), PastIntervals::default());
        let own = info(head, 17, 17);
        let mut primary = Peering::load(me, pgid, settings, map.mapping(), 20, own, past);
        primary.log = Log::from_wire(PgLog { head, ..PgLog::default() });
        let (now, mut out) = (Duration::from_secs(1), Vec::new());
        primary.act_map(&map, now, &mut out);
        let theirs = Box::new(info(EVersion::new(2, 29), started, heard_of));
        let notify = PeerMessage::Notify(theirs, Box::default());
        primary.on_message(PgShard::replica(1), (20, 20), notify, &map, now, &mut out);
        let mut queries = out.iter().filter_map(|e| match e {
            Effect::Send { message: PeerMessage::Query(query, _), .. } => Some(*query),
            _ => None,
        });
        queries.next_back()
    };
    assert_eq!(asked(12, 17), Some(Query::FullLog));
    assert_eq!(asked(12, 12), Some(Query::Log(EVersion::new(12, 0))));
    assert_eq!(asked(12, 8), Some(Query::Log(EVersion::new(8, 0))));
}

/// An OSD came back when the monitors had forgotten the maps of when it left. The first one it got was in the middle of an
/// interval: counted from there, its primary had not been recorded as up in it, so it was taken for one without writes, and
/// the old copy served when those that had them were gone.
#[test]
fn an_interval_that_began_in_maps_never_seen_may_have_taken_writes() {
    let pgid = PgId { pool: 1, seed: 0 }.spg();
    let settings = || World::new(1, 2, 2, 1, Redundancy::Copies).settings;
    let load = |map: &Map| {
        let (me, info, past) = (PgShard::replica(0), PgInfo::new(pgid), PastIntervals::default());
        Peering::load(me, pgid, settings(), map.mapping(), map.epoch, info, past)
    };
    let others = |epoch: u32| {
        let mut map = map_of_two(epoch, &[1, 2]);
        map.up_from = [(1, 5), (2, 5)].into();
        map.up_thru = [(1, 8), (2, 8)].into();
        map
    };
    let goes = |core: &mut Peering, from: &Map, to: &Map| {
        core.advance_map(to, from, to.mapping(), Duration::from_secs(1), &mut Vec::new());
    };
    for (found_at, may_have) in [(11, false), (452, true)] {
        let (before, found) = (map_of_two(10, &[0, 1]), others(found_at));
        let after = map_of_two(found_at + 1, &[0]);
        let mut core = load(&before);
        goes(&mut core, &before, &found);
        // It is restarted here, or not.
        let mut again = load(&found);
        again.known_since = core.known_since;
        again.info = core.info.clone();
        for mut core in [core, again] {
            goes(&mut core, &found, &after);
            let has = core.past_intervals.intervals.iter().any(|i| i.first == found_at);
            assert_eq!(has, may_have, "{:?}", core.past_intervals);
        }
    }
}

/// A stray restarted. It told the primary of itself as soon as it had loaded its PGs, which nobody
/// listens to before the map has it up; and that it is up changes nothing of where the PG is, so it
/// was silent then. What only it had stayed unfound for up to sixteen maps.
#[test]
fn a_stray_that_comes_up_tells_the_primary_of_itself() {
    let mut down = map_of_two(20, &[0, 1, 2]);
    down.up.insert(2, false);
    let mut up = map_of_two(21, &[0, 1, 2]);
    up.up_from.insert(2, 21);
    let pgid = PgId { pool: 1, seed: 0 }.spg();
    let settings = World::new(1, 2, 2, 1, Redundancy::Copies).settings;
    let (me, info, past) = (PgShard::replica(2), PgInfo::new(pgid), PastIntervals::default());
    let mut stray = Peering::load(me, pgid, settings, down.mapping(), 20, info, past);
    let (now, mut out) = (Duration::from_secs(1), Vec::new());
    stray.act_map(&down, now, &mut out);
    stray.advance_map(&up, &down, up.mapping(), now, &mut out);
    out.clear();
    stray.act_map(&up, now, &mut out);
    let told = out.iter().filter(
        |e| matches!(e, Effect::Send { to, message: PeerMessage::Notify(..), .. } if to.osd == 0),
    );
    assert_eq!(told.count(), 1, "{out:?}");
    out.clear();
    stray.act_map(&up, now, &mut out);
    assert_eq!(out, [], "once is enough");
}

/// What a copy says in the interval that begins at 20: it was active last at `started`, and has written `head` since.
fn info_in_interval_20(started: u32, head: u64) -> PgInfo {
    let history = PgHistory {
        epoch_created: 1,
        same_interval_since: 20,
        last_epoch_started: started,
        ..PgHistory::default()
    };
    let last_update = EVersion::new(started, head);
    PgInfo {
        history,
        last_update,
        last_complete: last_update,
        last_epoch_started: started,
        ..PgInfo::new(PgId { pool: 1, seed: 0 }.spg())
    }
}

/// A pull of the interval before failed when the next one had begun, and noted there that the source lacked the object. Whoever
/// something was noted of was taken for the one whose log had come: it was not asked what it lacked, and counted as
/// complete but for that object.
#[test]
fn what_is_noted_of_a_peer_does_not_keep_it_from_being_asked() {
    let map = map_of_two(20, &[0, 1]);
    let pgid = PgId { pool: 1, seed: 0 }.spg();
    let (me, other) = (PgShard::replica(0), PgShard::replica(1));
    let settings = World::new(1, 2, 2, 1, Redundancy::Copies).settings;
    let (own, past) = (info_in_interval_20(10, 5), PastIntervals::default());
    let mut primary = Peering::load(me, pgid, settings, map.mapping(), 20, own, past);
    let (now, mut out) = (Duration::from_secs(1), Vec::new());
    primary.act_map(&map, now, &mut out);
    let noted = primary.peer_missing.entry(other).or_default();
    noted.add(&oid(1), EVersion::new(10, 4), EVersion::ZERO, false);
    let behind = PeerMessage::Notify(Box::new(info_in_interval_20(10, 3)), Box::default());
    primary.on_message(other, (20, 20), behind, &map, now, &mut out);
    assert_eq!(primary.state(), &State::GetMissing { waiting: [other].into() });
    let asked = out.iter().any(|effect| {
        let Effect::Send { to, message, .. } = effect else { return false };
        *to == other && matches!(message, PeerMessage::Query(Query::Log(_) | Query::FullLog, _))
    });
    assert!(asked);
}

/// `ceph osd blocked-by` named those alone that are to come back: for whom a PG waited that was up, and did not answer,
/// nobody could see.
#[test]
fn whoever_has_not_answered_blocks() {
    let map = map_of_two(20, &[0, 1]);
    let pgid = PgId { pool: 1, seed: 0 }.spg();
    let (me, other) = (PgShard::replica(0), PgShard::replica(1));
    let settings = || World::new(1, 2, 2, 1, Redundancy::Copies).settings;
    // Whether its log has what ours lacks.
    for (own, its) in [(5, 3), (3, 5)] {
        let (own, past) = (info_in_interval_20(10, own), PastIntervals::default());
        let mut primary = Peering::load(me, pgid, settings(), map.mapping(), 20, own, past);
        let (now, mut out) = (Duration::from_secs(1), Vec::new());
        assert!(primary.blocked_by().is_empty());
        primary.act_map(&map, now, &mut out);
        assert!(matches!(primary.state(), State::GetInfo { .. }), "{}", primary.state().name());
        assert_eq!(primary.blocked_by(), [1].into());
        let notify = PeerMessage::Notify(Box::new(info_in_interval_20(10, its)), Box::default());
        primary.on_message(other, (20, 20), notify, &map, now, &mut out);
        let state = primary.state();
        assert!(
            matches!(state, State::GetMissing { .. } | State::GetLog { .. }),
            "{}",
            state.name()
        );
        assert_eq!(primary.blocked_by(), [1].into());
    }
}

/// An OSD died that alone had acknowledged writes. What its disk held was put on another OSD, which told the primary of
/// itself and had the last word with that: it is no member, and was none. Then the operator declared the dead one lost.
/// The primary began anew in the same interval, asked those of before, and had forgotten the one who knew: the PG was
/// incomplete, though all that it lacked was up.
#[test]
fn who_told_of_itself_is_known_when_an_osd_is_declared_lost() {
    let after_it_was_lost = |stray_is_up: bool| {
        let mut map = map_of_two(20, &[0, 1]);
        map.up.extend([(2, true), (3, false)]);
        let pgid = PgId { pool: 1, seed: 0 }.spg();
        let info = info_in_interval_20;
        let (me, other, stray) = (PgShard::replica(0), PgShard::replica(1), PgShard::replica(2));
        let dead = PgShard::replica(3);
        let past = PastIntervals {
            first: 12,
            last: 19,
            all_participants: [me, other, dead].into(),
            intervals: vec![CompactInterval { first: 12, last: 19, acting: [dead].into() }],
        };
        let settings = World::new(1, 2, 2, 1, Redundancy::Copies).settings;
        let mut primary = Peering::load(me, pgid, settings, map.mapping(), 20, info(10, 3), past);
        let (now, mut out) = (Duration::from_secs(1), Vec::new());
        let tells = |info| PeerMessage::Notify(Box::new(info), Box::default());
        primary.act_map(&map, now, &mut out);
        primary.on_message(other, (20, 20), tells(info(10, 3)), &map, now, &mut out);
        primary.on_message(stray, (20, 20), tells(info(15, 5)), &map, now, &mut out);
        assert!(matches!(primary.state(), State::Down), "{}", primary.state().name());
        let mut lost = Map { epoch: 21, lost_at: [(3, 21)].into(), ..map.clone() };
        lost.up.insert(2, stray_is_up);
        primary.advance_map(&lost, &map, lost.mapping(), now, &mut out);
        primary.act_map(&lost, now, &mut out);
        primary.on_message(other, (21, 21), tells(info(10, 3)), &lost, now, &mut out);
        primary.state().clone()
    };
    let state = after_it_was_lost(true);
    assert!(matches!(state, State::GetLog { from } if from.osd == 2), "{}", state.name());
    let state = after_it_was_lost(false);
    assert!(matches!(state, State::Incomplete), "{}", state.name());
}

/// A stray had the last word: its log was to be fetched, or it was to lead. It died before, and as it is neither a member nor
/// among those of before nobody minded: the PG stayed in "peering" until something else changed.
#[test]
fn a_stray_that_is_waited_for_may_die() {
    let mut map = map_of_two(20, &[0, 1]);
    map.up.insert(2, true);
    let pgid = PgId { pool: 1, seed: 0 }.spg();
    let (me, other, stray) = (PgShard::replica(0), PgShard::replica(1), PgShard::replica(2));
    let tells = |info| PeerMessage::Notify(Box::new(info), Box::default());
    // Whether its log goes back to where those of the members end.
    for overlaps in [true, false] {
        let settings = World::new(1, 2, 2, 1, Redundancy::Copies).settings;
        let own = info_in_interval_20(10, 3);
        let past = PastIntervals::default();
        let mut primary = Peering::load(me, pgid, settings, map.mapping(), 20, own, past);
        let (now, mut out) = (Duration::from_secs(1), Vec::new());
        primary.act_map(&map, now, &mut out);
        let mut of_stray = info_in_interval_20(10, 9);
        if !overlaps {
            of_stray.log_tail = EVersion::new(of_stray.last_update.epoch, 8);
        }
        primary.on_message(stray, (20, 20), tells(of_stray), &map, now, &mut out);
        let info = info_in_interval_20(10, 3);
        primary.on_message(other, (20, 20), tells(info.clone()), &map, now, &mut out);
        let state = primary.state().clone();
        match overlaps {
            true => assert_eq!(state, State::GetLog { from: stray }),
            false => assert_eq!(state, State::WaitActingChange),
        }
        let mut next = Map { epoch: 21, ..map.clone() };
        next.up.insert(2, false);
        primary.advance_map(&next, &map, next.mapping(), now, &mut out);
        primary.act_map(&next, now, &mut out);
        primary.on_message(other, (21, 21), tells(info), &next, now, &mut out);
        let state = primary.state().clone();
        assert!(
            matches!(state, State::GetMissing { .. } | State::Active { .. }),
            "{}",
            state.name()
        );
    }
}

/// Two OSDs had acknowledged writes that the primary had not seen. One got a new disk, while the other was down for a moment:
/// that it was up counted, though it said that it had nothing, and the PG went on without those writes. When the
/// other came back it was told to undo them. (Life 52100138: of two shards and one the new disk's counted, a write that
/// had been interrupted on a single shard became what all were to have, and the object could not be made of that.)
#[test]
fn who_is_up_with_a_new_disk_has_seen_nothing() {
    let info = info_in_interval_20;
    let tells = |info| PeerMessage::Notify(Box::new(info), Box::default());
    let pgid = PgId { pool: 1, seed: 0 }.spg();
    let (me, replaced, away) = (PgShard::replica(0), PgShard::replica(1), PgShard::replica(2));
    let settings = || World::new(1, 2, 2, 1, Redundancy::Copies).settings;
    let past = PastIntervals {
        first: 12,
        last: 19,
        all_participants: [replaced, away].into(),
        intervals: vec![CompactInterval { first: 12, last: 19, acting: [replaced, away].into() }],
    };
    let mut map = map_of_two(20, &[0, 1]);
    map.up.insert(2, false);
    let asked = |answer: PgInfo| {
        let (mapping, own) = (map.mapping(), info(10, 3));
        let mut primary = Peering::load(me, pgid, settings(), mapping, 20, own, past.clone());
        let (now, mut out) = (Duration::from_secs(1), Vec::new());
        primary.act_map(&map, now, &mut out);
        primary.on_message(replaced, (20, 20), tells(answer), &map, now, &mut out);
        primary
    };
    let state = asked(info(15, 5)).state().clone();
    assert!(matches!(state, State::GetLog { from } if from == replaced), "{}", state.name());
    let then = |change: &dyn Fn(&mut Map)| {
        let mut primary = asked(Peering::absent_info(pgid));
        assert_eq!(primary.state(), &State::Down);
        assert_eq!(primary.prior().blocked_by.keys().collect::<Vec<_>>(), [&2]);
        let mut next = Map { epoch: 21, ..map.clone() };
        change(&mut next);
        let (now, mut out) = (Duration::from_secs(2), Vec::new());
        primary.advance_map(&next, &map, next.mapping(), now, &mut out);
        primary.act_map(&next, now, &mut out);
        let absent = tells(Peering::absent_info(pgid));
        primary.on_message(replaced, (21, 21), absent, &next, now, &mut out);
        primary.on_message(away, (21, 21), tells(info(15, 5)), &next, now, &mut out);
        primary.state().clone()
    };
    let state = then(&|map| {
        map.up.insert(2, true);
        map.up_from.insert(2, 21);
    });
    assert!(matches!(state, State::GetLog { from } if from == away), "{}", state.name());
    let state = then(&|map| {
        map.lost_at.insert(2, 21);
    });
    assert!(matches!(state, State::GetMissing { .. } | State::Active { .. }), "{}", state.name());
    let state = then(&|_| {});
    assert_eq!(state, State::Down);
}

/// Who leads may be the one with the new disk: it did not count itself out, and went on without what was acknowledged.
/// And who has nothing of a PG that was never active has not lost anything: a new PG of shards, whose
/// primary died while it was made, stayed down; so would an older one whose new members had not been made yet.
#[test]
fn whoever_has_nothing_has_lost_something_only_where_there_was_something() {
    let blocked = |redundancy: Redundancy, heard_of: u32, started: [Option<u32>; 2]| {
        let mut map = map_of_two(20, &[0, 1, 2]);
        (map.redundancy, map.size) = (redundancy, 3);
        map.up.insert(2, false);
        let member = |osd: OsdId| map.member(osd);
        let acting = [0, 1, 2].map(member);
        let past = PastIntervals {
            first: 12,
            last: 19,
            all_participants: acting.into(),
            intervals: vec![CompactInterval { first: 12, last: 19, acting: acting.into() }],
        };
        let info = |started: Option<u32>| {
            let pgid = PgId { pool: 1, seed: 0 }.spg();
            let Some(last_epoch_started) = started else { return Peering::absent_info(pgid) };
            let history = PgHistory { epoch_created: 1, ..PgHistory::default() };
            let last_update = EVersion::new(last_epoch_started, last_epoch_started.into());
            PgInfo { history, last_epoch_started, last_update, ..PgInfo::new(pgid) }
        };
        let infos = BTreeMap::from([0, 1].map(|o| (member(o), info(started[o as usize]))));
        PriorSet::build(&past, heard_of, &map.mapping(), &infos, &map).pg_down
    };
    let (copies, shards) = (Redundancy::Copies, Redundancy::Shards { k: 2 });
    assert!(blocked(copies, 10, [Some(0), Some(0)]), "we, and the other, have new disks");
    assert!(!blocked(copies, 10, [Some(0), Some(14)]), "the other has all");
    assert!(blocked(shards, 10, [Some(14), None]), "one shard has it");
    assert!(!blocked(shards, 10, [Some(14), Some(14)]));
    assert!(!blocked(shards, 0, [Some(0), None]), "it is new");
    assert!(!blocked(shards, 10, [Some(10), None]), "it was not active since 10");
}

/// An OSD came back after it had been declared lost, and the others had gone on from far behind it: its whole log was newer
/// than theirs ends. It was to be put back by log, refused that, and the PG hung in "activating"; where it
/// led, it went on with what had been given up.
#[test]
fn whose_log_begins_behind_the_authoritative_one_is_backfilled() {
    for redundancy in [Redundancy::Copies, Redundancy::Shards { k: 1 }] {
        let map = Map { redundancy, ..map_of_two(20, &[0, 1]) };
        let info = |tail: u64, head: u64, started: u32| PgInfo {
            log_tail: EVersion::new(4, tail),
            last_update: EVersion::new(4, head),
            last_epoch_started: started,
            ..PgInfo::new(PgId { pool: 1, seed: 0 }.spg())
        };
        let (ours, theirs) = (map.member(0), map.member(1));
        let infos = BTreeMap::from([(ours, info(10, 20, 5)), (theirs, info(0, 8, 9))]);
        let choice = super::choose::choose(&map.mapping(), theirs, &infos).unwrap();
        assert_eq!(choice.backfill, [ours].into());
        assert!(!choice.want.contains(&0), "{:?}", choice.want);
    }
}

/// As above, with a copy that a backfill had been interrupted of: it was told to go on by log where it was, refused
/// that, and the PG hung in "activating".
#[test]
fn an_interrupted_backfill_whose_log_begins_behind_the_authoritative_one_begins_anew() {
    let map = Map { pg_temp: vec![0], ..map_of_two(20, &[0, 1]) };
    let settings = World::new(1, 2, 2, 1, Redundancy::Copies).settings;
    let (now, mut out) = (Duration::from_secs(1), Vec::new());
    let core = |osd: OsdId, tail: u64, head: u64, started: u32| {
        let version = |n| EVersion::new(4, n);
        let entry = |n| PgLogEntry { soid: oid(n), version: version(n), ..PgLogEntry::default() };
        let log = (tail + 1..=head).map(entry).collect();
        let log = PgLog { tail: version(tail), head: version(head), log, ..PgLog::default() };
        let info = PgInfo { log_tail: version(tail), ..info_in_interval_20(started, head) };
        let info = PgInfo { last_update: version(head), last_complete: version(head), ..info };
        let (pgid, past) = (info.pgid, PastIntervals::default());
        let (member, settings) = (PgShard::replica(osd), settings.clone());
        let mut core = Peering::load(member, pgid, settings, map.mapping(), 20, info, past);
        core.log = Log::from_wire(log);
        core
    };
    let (mut primary, mut copy) = (core(0, 0, 8, 9), core(1, 10, 20, 5));
    copy.info.last_backfill = oid(3);
    primary.act_map(&map, now, &mut out);
    copy.act_map(&map, now, &mut out);
    while !out.is_empty() {
        for effect in std::mem::take(&mut out) {
            let Effect::Send { to, message, .. } = effect else { continue };
            let (from, core) = match to.osd {
                0 => (copy.whoami, &mut primary),
                _ => (primary.whoami, &mut copy),
            };
            core.on_message(from, (20, 20), message, &map, now, &mut out);
        }
    }
    assert!(matches!(primary.state(), State::Active { .. }), "{}", primary.state().name());
    assert!(copy.follows(), "{}", copy.state().name());
    assert!(copy.info.last_backfill.is_min());
}

/// Two had acknowledged writes. One got a new disk, and had been told what it was to be filled with; then the other went
/// away, and a third came back that had been away for long. That the new disk had been begun to be filled made it one that had
/// seen those writes; and where it led, what it knew of when the PG had been active did not count, either: the
/// PG went on without them.
#[test]
fn whose_backfill_has_only_begun_has_seen_nothing() {
    let mut map = map_of_two(20, &[0, 2]);
    map.up.insert(1, false);
    let (filled, away, old) = (PgShard::replica(0), PgShard::replica(1), PgShard::replica(2));
    let past = PastIntervals {
        first: 12,
        last: 19,
        all_participants: [filled, away].into(),
        intervals: vec![CompactInterval { first: 12, last: 19, acting: [filled, away].into() }],
    };
    let begun = PgInfo { last_backfill: HObject::min(), ..info_in_interval_20(15, 5) };
    let infos = BTreeMap::from([(filled, begun.clone()), (old, info_in_interval_20(10, 3))]);
    assert!(PriorSet::build(&past, 15, &map.mapping(), &infos, &map).pg_down);
    for me in [filled, old] {
        let best = super::choose::find_best_info(&infos, me, Redundancy::Copies);
        assert_eq!(best, None, "{me} leads");
    }
    // It was being filled before that, and the interval was none in which anything was written.
    let earlier = PgInfo { last_epoch_started: 10, ..begun };
    let infos = BTreeMap::from([(filled, earlier), (old, info_in_interval_20(10, 3))]);
    assert!(!PriorSet::build(&past, 10, &map.mapping(), &infos, &map).pg_down);
}

/// World 20432: a stray had written an object alone, and that had not happened; its log had been outrun, so nobody knew. One that
/// had been away for long had the object as it was to be. As the stray was taken for one that had it, too, the other began
/// anew at once, and the object was unfound for ever, though no OSD was lost.
#[test]
fn a_stray_that_may_have_an_object_lets_nobody_begin_anew_who_has_it() {
    let asks = |osds: &[(OsdId, u64)]| {
        let map = Map { pg_temp: vec![0], ..map_of_two(20, &[0, 1]) };
        let map = Map { up: [0, 1, 2].map(|osd| (osd, true)).into(), ..map };
        let settings = World::new(1, 2, 2, 1, Redundancy::Copies).settings;
        let (now, mut out) = (Duration::from_secs(1), Vec::new());
        let own = info_in_interval_20(9, 30);
        let tail = EVersion::new(9, 20);
        let log = PgLog { tail, head: own.last_update, ..PgLog::default() };
        let (pgid, past) = (own.pgid, PastIntervals::default());
        let (me, mapping) = (PgShard::replica(0), map.mapping());
        let mut primary = Peering::load(me, pgid, settings, mapping, 20, own, past);
        primary.info.log_tail = tail;
        primary.log = Log::from_wire(log);
        primary.missing.add(&oid(1), EVersion::new(9, 2), EVersion::ZERO, false);
        primary.act_map(&map, now, &mut out);
        for (osd, head) in osds {
            let tells =
                PeerMessage::Notify(Box::new(info_in_interval_20(9, *head)), Box::default());
            primary.on_message(PgShard::replica(*osd), (20, 20), tells, &map, now, &mut out);
        }
        let all = |e: &Effect| matches!(e, Effect::Send { to, message: PeerMessage::Query(Query::FullLog, _), .. } if to.osd == 1);
        assert!(primary.backfill_targets.contains(&PgShard::replica(1)));
        out.iter().any(all)
    };
    assert!(asks(&[(1, 18)]));
    assert!(asks(&[(2, 7), (1, 18)]));
    assert!(!asks(&[(2, 7), (1, 0)]), "it has nothing");
}
