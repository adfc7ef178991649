//! A world for PGs' cores: OSDs with disks that make durable what was submitted some time later and
//! in order, a network that delays, a monitor that notices who is gone, and faults. Chance decides
//! what happens next, by the seed. Writes and recovery are modelled as far as peering depends on
//! them: an object is its version.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use types::osd::{LogOp, PastIntervals, PgHistory, PgInfo, PgLogEntry};
use types::{EVersion, Epoch, HObject, NOSNAP, OsdId, PgId, PgShard, SpgId};

use super::super::{ClusterView, Effect, Log, Missing, PeerMessage, Peering, Settings, Undo};
use super::map::Map;
use crate::pg::backend::Redundancy;

const LEASE: Duration = Duration::from_secs(16);

/// What is on a disk.
#[derive(Clone)]
pub(super) struct Disk {
    epoch: Epoch,
    info: PgInfo,
    past: PastIntervals,
    log: Log,
    missing: Missing,
    objects: BTreeMap<HObject, EVersion>,
}

#[expect(clippy::large_enum_variant, reason = "a few, in a test")]
pub(super) enum OnCommit {
    Activated(Epoch),
    AckWrite { to: OsdId, interval: Epoch, version: EVersion, complete: EVersion },
    OwnWrite { interval: Epoch, version: EVersion, complete: EVersion },
    Send { to: OsdId, packet: Packet },
}

pub(super) struct Node {
    pub(super) core: Peering,
    pub(super) map: Rc<Map>,
    pub(super) objects: BTreeMap<HObject, EVersion>,
    /// Submitted and not durable yet.
    pub(super) pending: VecDeque<(Disk, Vec<OnCommit>)>,
    /// Writes of this primary that wait for followers.
    pub(super) writes: BTreeMap<EVersion, (HObject, BTreeSet<PgShard>)>,
}

#[expect(clippy::large_enum_variant, reason = "a few, in a test")]
pub(super) enum Packet {
    Peer {
        epochs: (Epoch, Epoch),
        message: PeerMessage,
    },
    Write {
        interval: Epoch,
        epoch: Epoch,
        entry: PgLogEntry,
        whole: bool,
        trim_to: EVersion,
        roll_forward_to: EVersion,
        /// All members have all writes up to here.
        stable: EVersion,
    },
    Ack {
        interval: Epoch,
        version: EVersion,
        complete: EVersion,
    },
}

pub(super) struct World {
    seed: u64,
    rng: u64,
    pub(super) now: Duration,
    maps: Vec<Rc<Map>>,
    disks: BTreeMap<OsdId, Disk>,
    pub(super) nodes: BTreeMap<OsdId, Node>,
    pub(super) instance: BTreeMap<OsdId, u64>,
    pub(super) cut_off: BTreeSet<OsdId>,
    /// (from, to) -> packets with the instances of both ends.
    pub(super) links: BTreeMap<(OsdId, OsdId), VecDeque<(u64, u64, Packet)>>,
    pub(super) acked: BTreeMap<HObject, EVersion>,
    pub(super) settings: Settings,
}

pub(super) fn oid(n: u64) -> HObject {
    HObject {
        name: format!("o{n}").into(),
        hash: n as u32 * 7919,
        pool: 1,
        snap: NOSNAP,
        ..HObject::default()
    }
}

/// An OSD of Ceph's takes the info that its backfill begins with for its own as it is. The primary's shard stood in
/// it: as the word of that shard it did not count that the target was active, and the PG never was.
fn check_backfill_info(to: PgShard, message: &PeerMessage) {
    if let PeerMessage::Log(log) = message
        && log.info.last_backfill.is_min()
    {
        assert_eq!(log.info.pgid.shard, to.shard, "for {to}");
    }
}

impl World {
    pub(super) fn new(
        seed: u64,
        osds: i32,
        size: u32,
        min_size: u32,
        redundancy: Redundancy,
    ) -> World {
        let settings = Settings {
            min_log_entries: 4,
            max_log_entries: 12,
            log_entries: 4,
            dups_tracked: 4,
            trim_min: 1,
            read_lease: LEASE,
        };
        let order = (0..osds).collect();
        let mut map = Map { epoch: 1, size, min_size, order, redundancy, ..Map::default() };
        for o in 0..osds {
            map.up.insert(o, true);
            map.up_from.insert(o, 1);
        }
        let mut w = World {
            seed,
            rng: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            now: Duration::from_secs(100),
            maps: vec![Rc::new(map)],
            disks: BTreeMap::new(),
            nodes: BTreeMap::new(),
            instance: BTreeMap::new(),
            cut_off: BTreeSet::new(),
            links: BTreeMap::new(),
            acked: BTreeMap::new(),
            settings,
        };
        let mapping = w.maps[0].mapping();
        let history = PgHistory {
            epoch_created: 1,
            same_interval_since: 1,
            same_up_since: 1,
            same_primary_since: 1,
            last_epoch_clean: 1,
            ..PgHistory::default()
        };
        for o in 0..osds {
            w.instance.insert(o, 1);
            let member = w.maps[0].member(o);
            let core = Peering::create(
                member,
                SpgId { pgid: PgId::new(1, 0), shard: member.shard },
                w.settings.clone(),
                mapping.clone(),
                1,
                history,
                PastIntervals::default(),
            );
            let node = Node {
                core,
                map: w.maps[0].clone(),
                objects: BTreeMap::new(),
                pending: VecDeque::new(),
                writes: BTreeMap::new(),
            };
            w.nodes.insert(o, node);
            let disk = w.snapshot(o);
            w.disks.insert(o, disk);
        }
        for o in 0..osds {
            w.step_core(o, |core, map, now, out| core.act_map(map, now, out));
        }
        w
    }

    fn random(&mut self, n: u64) -> u64 {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        self.rng % n
    }

    fn snapshot(&self, o: OsdId) -> Disk {
        let n = &self.nodes[&o];
        Disk {
            epoch: n.core.epoch,
            info: n.core.info.clone(),
            past: n.core.past_intervals.clone(),
            log: n.core.log.clone(),
            missing: n.core.missing.clone(),
            objects: n.objects.clone(),
        }
    }

    fn step_core(
        &mut self,
        o: OsdId,
        f: impl FnOnce(&mut Peering, &dyn ClusterView, Duration, &mut Vec<Effect>),
    ) {
        let now = self.now;
        let mut out = Vec::new();
        let n = self.nodes.get_mut(&o).unwrap();
        let map = n.map.clone();
        f(&mut n.core, &*map, now, &mut out);
        self.perform(o, out);
    }

    fn perform(&mut self, o: OsdId, effects: Vec<Effect>) {
        let mut sends = Vec::new();
        let mut joins = Vec::new();
        let mut commit = Vec::new();
        let mut changes = Vec::new();
        {
            let n = self.nodes.get_mut(&o).unwrap();
            for e in effects {
                match e {
                    Effect::Send { to, query_epoch, message } => {
                        check_backfill_info(to, &message);
                        sends.push((to.osd, (n.core.epoch, query_epoch), message));
                    }
                    Effect::Join { to, message } => {
                        check_backfill_info(to, &message);
                        joins.push((to.osd, (n.core.epoch, n.core.epoch), message));
                    }
                    Effect::Undo(Undo::Remove(oid)) => {
                        n.objects.remove(&oid);
                    }
                    Effect::Undo(Undo::Rollback(e)) => {
                        let undone = n.objects.remove(&e.soid);
                        assert_eq!(undone, Some(e.version), "osd.{o} undoes {}", e.soid);
                        if !e.prior_version.is_zero() {
                            n.objects.insert(e.soid.clone(), e.prior_version);
                        }
                    }
                    Effect::Undo(Undo::Trim(_)) => {}
                    Effect::RemoveAbove(from) => n.objects.retain(|oid, _| *oid <= from),
                    Effect::IntervalChanged => n.writes.clear(),
                    Effect::Activate => {
                        commit.push(OnCommit::Activated(n.core.last_peering_reset));
                    }
                    Effect::WantUpThru(e) => changes.push((Some(e), None)),
                    Effect::WantPgTemp(t) => changes.push((None, Some(t))),
                    Effect::Activated | Effect::Clean | Effect::Created => {}
                    Effect::RemovePg => {}
                }
            }
            sends.retain(|(to, epochs, message)| {
                if message.is_promise() {
                    let packet = Packet::Peer { epochs: *epochs, message: message.clone() };
                    commit.push(OnCommit::Send { to: *to, packet });
                }
                !message.is_promise()
            });
            let info = n.core.take_dirty();
            let dirty = info.info || n.core.log.is_dirty() || n.core.missing.is_dirty();
            n.core.log.take_changes();
            n.core.missing.take_dirty();
            if dirty || !commit.is_empty() {
                let disk = self.snapshot(o);
                self.nodes.get_mut(&o).unwrap().pending.push_back((disk, commit));
            }
        }
        for (to, epochs, message) in sends.into_iter().chain(joins) {
            self.send(o, to, Packet::Peer { epochs, message });
        }
        if !self.cut_off.contains(&o) {
            for (up_thru, temp) in changes {
                self.new_map(|m| {
                    if let Some(e) = up_thru {
                        m.up_thru.insert(o, e);
                    }
                    if let Some(t) = temp {
                        m.pg_temp = t;
                    }
                });
            }
        }
    }

    pub(super) fn new_map(&mut self, f: impl FnOnce(&mut Map)) {
        let mut m = (**self.maps.last().unwrap()).clone();
        m.epoch += 1;
        f(&mut m);
        self.maps.push(Rc::new(m));
    }

    fn send(&mut self, from: OsdId, to: OsdId, p: Packet) {
        let ends = (self.instance[&from], self.instance[&to]);
        self.links.entry((from, to)).or_default().push_back((ends.0, ends.1, p));
    }

    /// One map further, on one node.
    pub(super) fn advance(&mut self, o: OsdId) {
        let now = self.now;
        let n = self.nodes.get_mut(&o).unwrap();
        let next = n.map.epoch + 1;
        let Some(map) = self.maps.get(next as usize - 1).cloned() else { return };
        let mut out = Vec::new();
        n.core.advance_map(&*map, &*n.map, map.mapping(), now, &mut out);
        n.map = map.clone();
        n.core.act_map(&*map, now, &mut out);
        self.perform(o, out);
    }

    pub(super) fn kill(&mut self, o: OsdId) {
        let n = self.nodes.remove(&o).unwrap();
        // Some of what was submitted may have become durable, in order.
        let keep = self.random(n.pending.len() as u64 + 1) as usize;
        if let Some((disk, _)) = n.pending.into_iter().take(keep).next_back() {
            self.disks.insert(o, disk);
        }
        *self.instance.get_mut(&o).unwrap() += 1;
        self.cut_off.remove(&o);
    }

    pub(super) fn restart(&mut self, o: OsdId) {
        let disk = self.disks[&o].clone();
        let map = self.maps[disk.epoch as usize - 1].clone();
        let member = map.member(o);
        let mut core = Peering::load(
            member,
            SpgId { pgid: PgId::new(1, 0), shard: member.shard },
            self.settings.clone(),
            map.mapping(),
            disk.epoch,
            disk.info,
            disk.past,
        );
        core.log = disk.log;
        core.missing = disk.missing;
        core.assume_leases(self.now);
        let node = Node {
            core,
            map,
            objects: disk.objects,
            pending: VecDeque::new(),
            writes: BTreeMap::new(),
        };
        self.nodes.insert(o, node);
        let newest = self.maps.len();
        let now = self.now;
        // Catches up quietly before it boots.
        let n = self.nodes.get_mut(&o).unwrap();
        let mut out = Vec::new();
        while (n.map.epoch as usize) < newest {
            let map = self.maps[n.map.epoch as usize].clone();
            n.core.advance_map(&*map, &*n.map, map.mapping(), now, &mut out);
            n.map = map;
        }
        // A monitor marks the old life down before it takes the new one up.
        if self.maps.last().unwrap().is_up(o) {
            self.new_map(|m| {
                m.up.insert(o, false);
                m.dead.insert(o, m.epoch);
            });
        }
        self.new_map(|m| {
            m.up.insert(o, true);
            m.up_from.insert(o, m.epoch);
        });
    }

    pub(super) fn deliver(&mut self, from: OsdId, to: OsdId) {
        if self.cut_off.contains(&from) || self.cut_off.contains(&to) {
            return;
        }
        let Some(queue) = self.links.get_mut(&(from, to)) else { return };
        let Some((a, b, _)) = queue.front() else { return };
        if *b != self.instance[&to] || *a != self.instance[&from] {
            queue.pop_front();
            return;
        }
        let Some(n) = self.nodes.get(&to) else { return };
        let epoch = match &queue.front().unwrap().2 {
            Packet::Peer { epochs, .. } => epochs.0,
            Packet::Write { epoch, .. } => *epoch,
            Packet::Ack { .. } => 0,
        };
        if epoch > n.map.epoch {
            self.advance(to);
            return;
        }
        let (_, _, packet) = self.links.get_mut(&(from, to)).unwrap().pop_front().unwrap();
        match packet {
            Packet::Peer { epochs, mut message } => {
                if let Some(lease) = message.lease_mut() {
                    // All have the same clock here.
                    lease.readable_until_here = Some(lease.readable_until);
                }
                let member = self.maps[0].member(from);
                self.step_core(to, |core, map, now, out| {
                    core.on_message(member, epochs, message, map, now, out);
                });
            }
            Packet::Write { interval, entry, whole, trim_to, roll_forward_to, stable, .. } => {
                let n = self.nodes.get_mut(&to).unwrap();
                if interval < n.core.last_peering_reset || !n.core.follows() {
                    return;
                }
                let version = entry.version;
                let is_next = n.core.log.is_continued_by(std::slice::from_ref(&entry));
                assert!(is_next, "osd.{to}: {version} after {}", n.core.log.head());
                if whole {
                    n.objects.insert(entry.soid.clone(), version);
                }
                if whole && n.core.mapping.redundancy.is_erasure() {
                    n.core.log.add_undoable(&entry);
                } else {
                    n.core.log.add(&entry);
                }
                n.core.log.roll_forward(roll_forward_to);
                n.core.note_stable(stable);
                n.core.info.last_update = version;
                if n.core.missing.is_empty() {
                    n.core.info.last_complete = version;
                }
                n.core.log.trim(trim_to, 4);
                n.core.info.log_tail = n.core.log.tail();
                let disk = self.snapshot(to);
                let complete = self.nodes[&to].core.info.last_complete;
                let ack = OnCommit::AckWrite { to: from, interval, version, complete };
                self.nodes.get_mut(&to).unwrap().pending.push_back((disk, vec![ack]));
            }
            Packet::Ack { interval, version, complete } => {
                self.on_ack(to, from, interval, version, complete);
            }
        }
    }

    fn on_ack(
        &mut self,
        o: OsdId,
        from: OsdId,
        interval: Epoch,
        version: EVersion,
        complete: EVersion,
    ) {
        let member = self.maps[0].member(from);
        let Some(n) = self.nodes.get_mut(&o) else { return };
        if interval != n.core.last_peering_reset {
            return;
        }
        n.core.peer_last_complete.insert(member, complete);
        let Some((_, waiting)) = n.writes.get_mut(&version) else { return };
        waiting.remove(&member);
        if waiting.is_empty() {
            let oid = n.writes[&version].0.clone();
            while let Some(first) = n.writes.first_entry()
                && first.get().1.is_empty()
            {
                n.core.durable_everywhere = *first.key();
                first.remove();
            }
            let newest = self.acked.entry(oid).or_insert(version);
            *newest = version.max(*newest);
        }
    }

    pub(super) fn commit_one(&mut self, o: OsdId) {
        let Some(n) = self.nodes.get_mut(&o) else { return };
        let Some((disk, actions)) = n.pending.pop_front() else { return };
        self.disks.insert(o, disk);
        for a in actions {
            match a {
                OnCommit::Activated(interval) => self.step_core(o, |core, map, now, out| {
                    core.on_activate_committed(interval, map, now, out);
                }),
                OnCommit::AckWrite { to, interval, version, complete } => {
                    self.send(o, to, Packet::Ack { interval, version, complete });
                }
                OnCommit::OwnWrite { interval, version, complete } => {
                    self.on_ack(o, o, interval, version, complete);
                }
                OnCommit::Send { to, packet } => self.send(o, to, packet),
            }
        }
    }

    pub(super) fn is_serving(&self, o: OsdId) -> bool {
        self.nodes.get(&o).is_some_and(|n| n.core.is_active() && n.core.is_readable(self.now))
    }

    pub(super) fn write(&mut self, o: OsdId, oid: HObject) {
        if !self.is_serving(o) {
            return;
        }
        let n = self.nodes.get_mut(&o).unwrap();
        let degraded = n.core.missing.contains(&oid)
            || n.core
                .acting_backfill
                .iter()
                .any(|s| n.core.peer_missing.get(s).is_some_and(|m| m.contains(&oid)));
        if degraded {
            return;
        }
        let version = EVersion::new(n.core.epoch, n.core.log.head().version + 1);
        let entry = PgLogEntry {
            op: LogOp::MODIFY,
            soid: oid.clone(),
            version,
            prior_version: n.objects.get(&oid).copied().unwrap_or(EVersion::ZERO),
            ..PgLogEntry::default()
        };
        n.objects.insert(oid.clone(), version);
        // What came before the oldest write under way is on all that act.
        let roll_forward_to = match n.writes.keys().next() {
            Some(v) => EVersion::new(v.epoch, v.version - 1),
            None => n.core.log.head(),
        };
        if n.core.mapping.redundancy.is_erasure() {
            n.core.log.add_undoable(&entry);
            n.core.log.roll_forward(roll_forward_to);
        } else {
            n.core.log.add(&entry);
        }
        n.core.info.last_update = version;
        if n.core.missing.is_empty() {
            n.core.info.last_complete = version;
        }
        let me = n.core.whoami;
        let followers = n.core.acting_backfill.clone();
        let mut sends = Vec::new();
        for f in followers.iter().filter(|f| **f != me) {
            let info = n.core.peer_info.get_mut(f).unwrap();
            info.last_update = version;
            let whole = oid <= info.last_backfill;
            if n.core.peer_missing.get(f).is_none_or(Missing::is_empty) {
                info.last_complete = version;
            }
            sends.push((f.osd, whole));
        }
        let (trim_to, stable) = (n.core.trim_to(), n.core.min_last_complete());
        n.core.log.trim(trim_to, 4);
        n.core.info.log_tail = n.core.log.tail();
        n.writes.insert(version, (oid, followers));
        let (interval, epoch) = (n.core.last_peering_reset, n.core.epoch);
        let disk = self.snapshot(o);
        let complete = self.nodes[&o].core.info.last_complete;
        let own = OnCommit::OwnWrite { interval, version, complete };
        self.nodes.get_mut(&o).unwrap().pending.push_back((disk, vec![own]));
        for (to, whole) in sends {
            let entry = entry.clone();
            let p =
                Packet::Write { interval, epoch, entry, whole, trim_to, roll_forward_to, stable };
            self.send(o, to, p);
        }
    }

    /// Moves one object (or backfills one target) in one step; what it takes from a source must
    /// be what the primary thinks is there.
    fn recover(&mut self, o: OsdId) {
        let Some(n) = self.nodes.get(&o) else { return };
        if !n.core.is_activated() {
            return;
        }
        let since = n.core.info.history.same_interval_since;
        // Those that are there, in the same interval.
        let is_near = |w: &World, s: OsdId| {
            !w.cut_off.contains(&s)
                && !w.cut_off.contains(&o)
                && w.nodes.get(&s).is_some_and(|p| p.core.info.history.same_interval_since == since)
        };
        let mine = n.core.missing.iter().next().map(|(oid, i)| (oid.clone(), i.need));
        if let Some((oid, need)) = mine {
            let sources: Vec<PgShard> = n.core.sources(&oid, need);
            let sources: Vec<PgShard> =
                sources.into_iter().filter(|s| is_near(self, s.osd)).collect();
            if self.is_told_what_strays_lack(o, &oid, need, &sources) {
                return;
            }
            // One object a step.
            if self.is_enough(o, &oid, need, &sources) {
                let n = self.nodes.get_mut(&o).unwrap();
                n.objects.insert(oid.clone(), need);
                n.core.missing.got(&oid, need);
                n.core.update_last_complete();
                let disk = self.snapshot(o);
                self.nodes.get_mut(&o).unwrap().pending.push_back((disk, Vec::new()));
                return;
            }
            self.step_core(o, |core, _, now, out| core.discover_missing(now, out));
            return;
        }
        self.step_core(o, |core, _, now, out| {
            core.join_postponed(now, out);
        });
        let n = &self.nodes[&o];
        let peers: Vec<PgShard> =
            n.core.acting_backfill.iter().filter(|s| s.osd != o).copied().collect();
        for s in peers {
            if !is_near(self, s.osd) || !self.nodes[&s.osd].core.follows() {
                continue;
            }
            let n = &self.nodes[&o];
            let item = n.core.peer_missing.get(&s).and_then(|m| m.iter().next());
            if let Some((oid, item)) = item.map(|(o, i)| (o.clone(), i.clone())) {
                let have = n.objects[&oid];
                assert!(have >= item.need);
                let mut sources: Vec<PgShard> = n.core.sources(&oid, have);
                sources.retain(|s| is_near(self, s.osd));
                if self.is_told_what_strays_lack(o, &oid, have, &sources) {
                    return;
                }
                sources.push(self.nodes[&o].core.whoami);
                if !self.is_enough(o, &oid, have, &sources) {
                    self.step_core(o, |core, _, now, out| core.discover_missing(now, out));
                    continue;
                }
                let p = self.nodes.get_mut(&s.osd).unwrap();
                p.objects.insert(oid.clone(), have);
                p.core.missing.got(&oid, have);
                p.core.update_last_complete();
                let disk = self.snapshot(s.osd);
                self.nodes.get_mut(&s.osd).unwrap().pending.push_back((disk, Vec::new()));
                let core = &mut self.nodes.get_mut(&o).unwrap().core;
                core.peer_missing.get_mut(&s).unwrap().remove(&oid);
                return;
            }
            let incomplete = n.core.peer_info[&s].is_incomplete();
            // Nothing may be on its way that is not whole.
            let quiet = n.writes.is_empty();
            if incomplete && quiet {
                if !self.can_all_be_made(o) {
                    self.step_core(o, |core, _, now, out| core.discover_missing(now, out));
                    continue;
                }
                let objects = n.objects.clone();
                let p = self.nodes.get_mut(&s.osd).unwrap();
                p.objects = objects;
                p.core.info.last_backfill = HObject::max();
                let disk = self.snapshot(s.osd);
                self.disks.insert(s.osd, disk);
                self.nodes.get_mut(&s.osd).unwrap().pending.clear();
                let core = &mut self.nodes.get_mut(&o).unwrap().core;
                core.peer_info.get_mut(&s).unwrap().last_backfill = HObject::max();
                return;
            }
        }
        if self.nodes[&o].core.is_recovered() {
            self.step_core(o, |core, _, now, out| core.on_recovered(now, out));
        }
    }

    /// A stray's log that ends before ours need not tell that what it has is of another version: the primary hears that
    /// when it asks for the object (`pull.rs`, `shard_recovery.rs`).
    fn is_told_what_strays_lack(
        &mut self,
        o: OsdId,
        oid: &HObject,
        need: EVersion,
        sources: &[PgShard],
    ) -> bool {
        let has = |s: &PgShard| self.nodes[&s.osd].objects.get(oid) == Some(&need);
        let follows = |s: &PgShard| self.nodes[&o].core.acting_backfill.contains(s);
        let lacks = |s: &&PgShard| !follows(s) && !has(s);
        let Some(stray) = sources.iter().find(lacks).copied() else { return false };
        let core = &mut self.nodes.get_mut(&o).unwrap().core;
        core.peer_missing.entry(stray).or_default().add(oid, need, EVersion::ZERO, false);
        true
    }

    /// Whether an object can be made out of these members, which must have it as the primary thinks.
    fn is_enough(&self, o: OsdId, oid: &HObject, need: EVersion, members: &[PgShard]) -> bool {
        let core = &self.nodes[&o].core;
        for s in members.iter().filter(|s| s.osd != o) {
            let found = self.nodes.get(&s.osd).and_then(|p| p.objects.get(oid).copied());
            let seed = self.seed;
            assert_eq!(found, Some(need), "seed {seed}: what {s} should have of {oid}");
        }
        core.mapping.redundancy.is_recoverable(members)
    }

    /// Whether all that the primary has can be made for somebody else.
    fn can_all_be_made(&self, o: OsdId) -> bool {
        let n = &self.nodes[&o];
        n.objects.iter().all(|(oid, have)| {
            let mut members = n.core.sources(oid, *have);
            members.retain(|s| {
                self.nodes.get(&s.osd).is_some_and(|p| p.objects.get(oid) == Some(have))
            });
            members.push(n.core.whoami);
            n.core.mapping.redundancy.is_recoverable(&members)
        })
    }

    fn fault(&mut self) {
        let osds: Vec<OsdId> = self.instance.keys().copied().collect();
        let o = osds[self.random(osds.len() as u64) as usize];
        let alive = self.nodes.contains_key(&o);
        let map = self.maps.last().unwrap().clone();
        match self.random(10) {
            0..=2 if alive => self.kill(o),
            3 => {
                for o in osds {
                    if self.nodes.contains_key(&o) {
                        self.kill(o);
                    }
                }
            }
            4 if alive => {
                self.cut_off.insert(o);
            }
            5 => self.cut_off.clear(),
            6 | 7 if !alive => self.restart(o),
            8 if alive && map.is_up(o) && self.random(4) == 0 => {
                // Marked out and in: the order of preference changes.
                let k = self.random(osds.len() as u64) as usize;
                self.new_map(|m| m.order.rotate_left(k));
            }
            // All places change at once.
            9 => self.new_map(|m| m.order.rotate_left(m.size as usize)),
            _ => {}
        }
    }

    /// The monitor notices who is gone, and who is wrongly marked down.
    fn monitor(&mut self) {
        let map = self.maps.last().unwrap().clone();
        for o in self.instance.keys().copied().collect::<Vec<_>>() {
            let alive = self.nodes.contains_key(&o);
            let cut = self.cut_off.contains(&o);
            if map.is_up(o) && !alive {
                self.new_map(|m| {
                    m.up.insert(o, false);
                    m.dead.insert(o, m.epoch);
                });
            } else if map.is_up(o) && cut {
                self.new_map(|m| {
                    m.up.insert(o, false);
                });
            } else if !map.is_up(o) && alive && !cut && self.nodes[&o].map.epoch >= map.epoch {
                self.new_map(|m| {
                    m.up.insert(o, true);
                    m.up_from.insert(o, m.epoch);
                });
            }
        }
    }

    pub(super) fn random_step(&mut self, faults: bool) {
        let osds: Vec<OsdId> = self.instance.keys().copied().collect();
        let o = osds[self.random(osds.len() as u64) as usize];
        let p = osds[self.random(osds.len() as u64) as usize];
        let pause = self.random(60);
        self.now += Duration::from_millis(pause);
        match self.random(100) {
            0..=44 => self.deliver(o, p),
            45..=59 => self.commit_one(o),
            60..=69 if self.nodes.contains_key(&o) && !self.cut_off.contains(&o) => {
                self.advance(o);
            }
            70..=84 if faults => {
                let oid = oid(self.random(6));
                self.write(o, oid);
            }
            85..=93 => self.recover(o),
            94..=95 if self.nodes.contains_key(&o) => {
                self.step_core(o, |core, _, now, out| core.renew_lease(now, out));
            }
            96 => self.monitor(),
            97 if faults && self.random(3) == 0 => self.fault(),
            _ => {}
        }
    }
}
