//! Cores of one PG on several OSDs, connected by a network that delays, under a monitor that
//! changes maps; OSDs are killed, restarted and cut off at random. What was acknowledged must be
//! readable wherever the PG serves, and at the end all copies are equal.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use types::osd::{PastIntervals, PgHistory, PgInfo, PgLogEntry};
use types::osd::LogOp;
use types::ids::OSD_NONE;
use types::{EVersion, Epoch, HObject, NOSNAP, OsdId, PgId, PgShard, SpgId};

use super::*;
use crate::pg::backend::Redundancy;

const LEASE: Duration = Duration::from_secs(16);

#[derive(Clone, Debug, Default)]
struct Map {
    epoch: Epoch,
    up: BTreeMap<OsdId, bool>,
    up_from: BTreeMap<OsdId, Epoch>,
    up_thru: BTreeMap<OsdId, Epoch>,
    dead: BTreeMap<OsdId, Epoch>,
    pg_temp: Vec<OsdId>,
    order: Vec<OsdId>,
    size: u32,
    min_size: u32,
    /// Copies, or shards: then each OSD has one of its own, by its number.
    redundancy: Redundancy,
}

impl Map {
    fn member(&self, o: OsdId) -> PgShard {
        self.redundancy.shard_at((o as u32 % self.size) as usize, o)
    }

    fn mapping(&self) -> Mapping {
        let is_up = |o: &OsdId| self.up.get(o).copied().unwrap_or(false);
        if self.redundancy.is_erasure() {
            return self.mapping_of_shards(is_up);
        }
        let up: Vec<OsdId> =
            self.order.iter().copied().filter(is_up).take(self.size as usize).collect();
        let temp: Vec<OsdId> = self.pg_temp.iter().copied().filter(is_up).collect();
        let acting = if temp.is_empty() { up.clone() } else { temp };
        Mapping {
            up_primary: up.first().copied().unwrap_or(-1),
            acting_primary: acting.first().copied().unwrap_or(-1),
            up,
            acting,
            size: self.size,
            min_size: self.min_size,
            pg_num: 1,
            pg_num_pending: 1,
            resend_epoch: 0,
            redundancy: Redundancy::Copies,
        }
    }

    fn mapping_of_shards(&self, is_up: impl Fn(&OsdId) -> bool) -> Mapping {
        let place = |at: u32| {
            let mut able = self.order.iter().filter(|o| **o as u32 % self.size == at);
            able.find(|o| is_up(o)).copied().unwrap_or(OSD_NONE)
        };
        let up: Vec<OsdId> = (0..self.size).map(place).collect();
        let hole = |o: &OsdId| if is_up(o) { *o } else { OSD_NONE };
        let temp: Vec<OsdId> = self.pg_temp.iter().map(hole).collect();
        let acting = if temp.iter().all(|o| *o == OSD_NONE) { up.clone() } else { temp };
        let first = |set: &[OsdId]| set.iter().find(|o| **o != OSD_NONE).copied().unwrap_or(-1);
        Mapping {
            up_primary: first(&up),
            acting_primary: first(&acting),
            up,
            acting,
            size: self.size,
            min_size: self.min_size,
            pg_num: 1,
            pg_num_pending: 1,
            resend_epoch: 0,
            redundancy: self.redundancy,
        }
    }
}

impl ClusterView for Map {
    fn epoch(&self) -> Epoch {
        self.epoch
    }
    fn exists(&self, osd: OsdId) -> bool {
        self.up.contains_key(&osd)
    }
    fn is_up(&self, osd: OsdId) -> bool {
        self.up.get(&osd).copied().unwrap_or(false)
    }
    fn up_from(&self, osd: OsdId) -> Epoch {
        self.up_from.get(&osd).copied().unwrap_or(0)
    }
    fn up_thru(&self, osd: OsdId) -> Epoch {
        self.up_thru.get(&osd).copied().unwrap_or(0)
    }
    fn lost_at(&self, _: OsdId) -> Epoch {
        0
    }
    fn is_dead(&self, osd: OsdId) -> bool {
        self.dead.get(&osd).copied().unwrap_or(0) > self.up_from(osd)
    }
}

/// What is on a disk.
#[derive(Clone)]
struct Disk {
    epoch: Epoch,
    info: PgInfo,
    past: PastIntervals,
    log: Log,
    missing: Missing,
    objects: BTreeMap<HObject, EVersion>,
}

enum OnCommit {
    Activated(Epoch),
    AckWrite { to: OsdId, interval: Epoch, version: EVersion, complete: EVersion },
    OwnWrite { interval: Epoch, version: EVersion, complete: EVersion },
    Send { to: OsdId, packet: Packet },
}

struct Node {
    core: Peering,
    map: Rc<Map>,
    objects: BTreeMap<HObject, EVersion>,
    /// Submitted and not durable yet.
    pending: VecDeque<(Disk, Vec<OnCommit>)>,
    /// Writes of this primary that wait for followers.
    writes: BTreeMap<EVersion, (HObject, BTreeSet<PgShard>)>,
}

enum Packet {
    Peer { epochs: (Epoch, Epoch), message: PeerMessage },
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
    Ack { interval: Epoch, version: EVersion, complete: EVersion },
}

struct World {
    rng: u64,
    now: Duration,
    maps: Vec<Rc<Map>>,
    disks: BTreeMap<OsdId, Disk>,
    nodes: BTreeMap<OsdId, Node>,
    instance: BTreeMap<OsdId, u64>,
    cut_off: BTreeSet<OsdId>,
    /// (from, to) -> packets with the instances of both ends.
    links: BTreeMap<(OsdId, OsdId), VecDeque<(u64, u64, Packet)>>,
    acked: BTreeMap<HObject, EVersion>,
    settings: Settings,
}

thread_local! {
    /// Reads that copies would have answered.
    static ANSWERS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn oid(n: u64) -> HObject {
    HObject { name: format!("o{n}").into(), hash: n as u32 * 7919, pool: 1, snap: NOSNAP, ..HObject::default() }
}

impl World {
    fn new(seed: u64, osds: i32, size: u32, min_size: u32, redundancy: Redundancy) -> World {
        let settings = Settings {
            min_log_entries: 4,
            max_log_entries: 12,
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
        let mut commit = Vec::new();
        let mut changes = Vec::new();
        {
            let n = self.nodes.get_mut(&o).unwrap();
            for e in effects {
                match e {
                    Effect::Send { to, query_epoch, message } => {
                        sends.push((to.osd, (n.core.epoch, query_epoch), message));
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
        for (to, epochs, message) in sends {
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

    fn new_map(&mut self, f: impl FnOnce(&mut Map)) {
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
    fn advance(&mut self, o: OsdId) {
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

    fn kill(&mut self, o: OsdId) {
        let n = self.nodes.remove(&o).unwrap();
        // Some of what was submitted may have become durable, in order.
        let keep = self.random(n.pending.len() as u64 + 1) as usize;
        if let Some((disk, _)) = n.pending.into_iter().take(keep).next_back() {
            self.disks.insert(o, disk);
        }
        *self.instance.get_mut(&o).unwrap() += 1;
        self.cut_off.remove(&o);
    }

    fn restart(&mut self, o: OsdId) {
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

    fn deliver(&mut self, from: OsdId, to: OsdId) {
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
            Packet::Write {
                interval, entry, whole, trim_to, roll_forward_to, stable, ..
            } => {
                let n = self.nodes.get_mut(&to).unwrap();
                if interval < n.core.last_peering_reset || !n.core.follows() {
                    return;
                }
                let version = entry.version;
                if whole {
                    n.objects.insert(entry.soid.clone(), version);
                }
                if whole && n.core.mapping.redundancy.is_erasure() {
                    n.core.log.add_undoable(entry);
                } else {
                    n.core.log.add(entry);
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
            let (oid, _) = n.writes.remove(&version).unwrap();
            let newest = self.acked.entry(oid).or_insert(version);
            *newest = version.max(*newest);
        }
    }

    fn commit_one(&mut self, o: OsdId) {
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

    fn is_serving(&self, o: OsdId) -> bool {
        self.nodes
            .get(&o)
            .is_some_and(|n| n.core.is_active() && n.core.is_readable(self.now))
    }

    fn write(&mut self, o: OsdId) {
        if !self.is_serving(o) {
            return;
        }
        let oid = oid(self.random(6));
        let n = self.nodes.get_mut(&o).unwrap();
        let degraded = n.core.missing.contains(&oid)
            || n.core.acting_backfill.iter().any(|s| {
                n.core.peer_missing.get(s).is_some_and(|m| m.contains(&oid))
            });
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
            n.core.log.add_undoable(entry.clone());
            n.core.log.roll_forward(roll_forward_to);
        } else {
            n.core.log.add(entry.clone());
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
            let p = Packet::Write {
                interval,
                epoch,
                entry,
                whole,
                trim_to,
                roll_forward_to,
                stable,
            };
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
        let interval = n.core.last_peering_reset;
        // A peer follows if it is in the same interval.
        let follows = |w: &World, s: OsdId| {
            !w.cut_off.contains(&s)
                && !w.cut_off.contains(&o)
                && w.nodes.get(&s).is_some_and(|p| {
                    p.core.last_peering_reset <= interval && p.map.epoch >= interval
                })
        };
        let mine = n.core.missing.iter().next().map(|(oid, i)| (oid.clone(), i.need));
        if let Some((oid, need)) = mine {
            let sources: Vec<PgShard> = n.core.sources(&oid, need);
            let sources: Vec<PgShard> =
                sources.into_iter().filter(|s| follows(self, s.osd)).collect();
            let enough = self.is_enough(o, &oid, need, &sources);
            for s in sources.into_iter().take(usize::from(enough)) {
                let found = self.nodes[&s.osd].objects.get(&oid).copied();
                let copies = !self.maps[0].redundancy.is_erasure();
                assert!(!copies || found == Some(need), "osd.{} should have {oid}", s.osd);
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
        let peers: Vec<PgShard> =
            n.core.acting_backfill.iter().filter(|s| s.osd != o).copied().collect();
        for s in peers {
            let since = self.nodes[&o].core.info.history.same_interval_since;
            let exact = self.nodes.get(&s.osd).is_some_and(|p| {
                p.core.info.history.same_interval_since == since && p.core.follows()
            });
            if !exact || !follows(self, s.osd) {
                continue;
            }
            let n = &self.nodes[&o];
            let item = n.core.peer_missing.get(&s).and_then(|m| m.iter().next());
            if let Some((oid, item)) = item.map(|(o, i)| (o.clone(), i.clone())) {
                let have = n.objects[&oid];
                assert!(have >= item.need);
                let mut sources: Vec<PgShard> = n.core.sources(&oid, have);
                sources.retain(|s| follows(self, s.osd));
                sources.push(n.core.whoami);
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

    /// Whether an object can be made out of these members. Those that follow must have it as the
    /// primary thinks; others are looked at.
    fn is_enough(&self, o: OsdId, oid: &HObject, need: EVersion, members: &[PgShard]) -> bool {
        let core = &self.nodes[&o].core;
        let sound = members.iter().filter(|s| {
            let found = self.nodes.get(&s.osd).and_then(|p| p.objects.get(oid).copied());
            let acts = core.mapping.is_acting(**s) && s.osd != o;
            assert!(!acts || found == Some(need), "{s} should have {oid} {need}: {found:?}");
            found == Some(need)
        });
        core.mapping.redundancy.is_recoverable(sound)
    }

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

    /// Wherever the PG serves, acknowledged writes are seen.
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

    fn random_step(&mut self, faults: bool) {
        let osds: Vec<OsdId> = self.instance.keys().copied().collect();
        let o = osds[self.random(osds.len() as u64) as usize];
        let p = osds[self.random(osds.len() as u64) as usize];
        let pause = self.random(60);
        self.now += Duration::from_millis(pause);
        match self.random(100) {
            0..=44 => self.deliver(o, p),
            45..=59 => self.commit_one(o),
            60..=69 => {
                if self.nodes.contains_key(&o) && !self.cut_off.contains(&o) {
                    self.advance(o);
                }
            }
            70..=84 if faults => self.write(o),
            85..=93 => self.recover(o),
            94..=95 => {
                if self.nodes.contains_key(&o) {
                    self.step_core(o, |core, _, now, out| core.renew_lease(now, out));
                }
            }
            96 => self.monitor(),
            97 if faults && self.random(3) == 0 => self.fault(),
            _ => {}
        }
    }

    fn settle(&mut self, seed: u64) {
        self.cut_off.clear();
        for o in self.instance.keys().copied().collect::<Vec<_>>() {
            if !self.nodes.contains_key(&o) {
                self.restart(o);
            }
        }
        for _ in 0..20_000 {
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
