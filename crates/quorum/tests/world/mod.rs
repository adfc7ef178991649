//! Members under a seed: clocks that differ, a network that loses, delays, repeats and cuts off,
//! processes that die between any two steps, disks that lose what was not made durable, wiped
//! disks, members that come and go. What must hold is checked after every step.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::time::Duration;

use bytes::Bytes;
use denc::Denc;
use quorum::{Base, Entry, Envelope, HardState, MemberId, Members, Payload, Raft, Start, Timing};

const KEYS: u8 = 8;

/// xorshift64*.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// A disk's content. The state is a small map: an entry sets one key.
#[derive(Clone, Default)]
struct Disk {
    id: MemberId,
    hard: HardState,
    base: Base,
    entries: Vec<Entry>,
    state: BTreeMap<u8, u64>,
    applied: u64,
    /// The state is being copied, and is whole when this is applied.
    whole_at: u64,
    copying: bool,
}

struct Node {
    name: String,
    /// What a power loss leaves, and what the process sees.
    durable: Disk,
    disk: Disk,
    raft: Option<Raft>,
    /// Virtual time runs at this per mille here; plus an offset at each start.
    rate: u64,
    offset: Duration,
    copy: Option<Copy>,
}

/// A copy of the state under way: from whom, since when, how many keys are there.
struct Copy {
    from: MemberId,
    base: Option<Base>,
    next_key: u8,
    due: u64,
}

pub(crate) struct World {
    rng: Rng,
    now: u64,
    nodes: Vec<Node>,
    wire: BinaryHeap<Reverse<(u64, u64, usize)>>,
    letters: Vec<Option<(usize, usize, Envelope)>>,
    /// Pairs between which nothing passes, by direction.
    cut: BTreeSet<(usize, usize)>,
    loss: u64,
    /// Processes die between steps.
    risky: bool,
    next_value: u64,
    next_id: u64,
    // What must hold.
    leaders: BTreeMap<u64, MemberId>,
    applied: BTreeMap<u64, Entry>,
    acked: BTreeMap<u64, u64>,
    max_acked: u64,
    /// Proposals not acknowledged yet, by place and term, with the value.
    open: BTreeMap<(u64, u64), u64>,
    pub(crate) acks: u64,
    pub(crate) reads: u64,
    pub(crate) elections: u64,
    pub(crate) copies: u64,
}

const US: u64 = 1;
const MS: u64 = 1000 * US;

impl World {
    /// `n` members: the first founds, the others join.
    pub(crate) fn new(seed: u64, n: usize) -> World {
        let mut rng = Rng::new(seed);
        let mut world = World {
            now: 0,
            nodes: Vec::new(),
            wire: BinaryHeap::new(),
            letters: Vec::new(),
            cut: BTreeSet::new(),
            loss: rng.below(10),
            risky: false,
            next_value: 1,
            next_id: 1,
            leaders: BTreeMap::new(),
            applied: BTreeMap::new(),
            acked: BTreeMap::new(),
            max_acked: 0,
            open: BTreeMap::new(),
            acks: 0,
            reads: 0,
            elections: 0,
            copies: 0,
            rng,
        };
        for i in 0..n {
            let name = char::from(b'a' + i as u8).to_string();
            let id = world.new_id();
            let mut disk = Disk { id, ..Disk::default() };
            if i == 0 {
                disk.base = Base { index: 1, term: 1, members: Members::sole(id, &name) };
                disk.applied = 1;
            } else {
                disk.copying = true;
            }
            let rate = 970 + world.rng.below(60);
            let offset = Duration::ZERO;
            world.nodes.push(Node {
                name,
                durable: disk.clone(),
                disk,
                raft: None,
                rate,
                offset,
                copy: None,
            });
            world.start(i);
        }
        world
    }

    fn new_id(&mut self) -> MemberId {
        self.next_id += 1;
        MemberId(self.next_id)
    }

    fn clock(&self, i: usize) -> Duration {
        let node = &self.nodes[i];
        Duration::from_micros(self.now * node.rate / 1000) + node.offset
    }

    fn start(&mut self, i: usize) {
        self.nodes[i].offset = Duration::from_millis(self.rng.below(5000));
        let now = self.clock(i);
        let seed = self.rng.next();
        let node = &mut self.nodes[i];
        node.disk = node.durable.clone();
        let disk = &node.disk;
        let start = Start {
            id: disk.id,
            hard: disk.hard,
            base: disk.base.clone(),
            entries: disk.entries.clone(),
            applied: disk.applied,
            entries_max: Some(20),
            seed,
        };
        let stagger = Duration::from_millis(30 * i as u64);
        let mut raft = Raft::new(start, Timing { stagger, ..Timing::default() }, now);
        raft.set_whole(!disk.copying && disk.applied >= disk.whole_at);
        node.raft = Some(raft);
        node.copy = None;
    }

    fn kill(&mut self, i: usize) {
        self.nodes[i].raft = None;
        self.nodes[i].copy = None;
    }

    fn wipe(&mut self, i: usize) {
        self.kill(i);
        let id = self.new_id();
        self.nodes[i].durable = Disk { id, copying: true, ..Disk::default() };
    }

    fn of(&self, id: MemberId) -> Option<usize> {
        self.nodes.iter().position(|n| n.raft.is_some() && n.disk.id == id)
    }

    fn send(&mut self, from: usize, message: Envelope) {
        let Some(to) = self.of(message.to) else { return };
        let copies = if self.rng.chance(3) { 2 } else { 1 };
        for _ in 0..copies {
            if self.rng.chance(self.loss) {
                continue;
            }
            let delay = match self.loss > 0 && self.rng.chance(3) {
                true => self.rng.below(1500) * MS,
                false => 100 + self.rng.below(20) * MS,
            };
            let bytes = message.to_bytes();
            let again = Envelope::from_bytes_exact(&bytes).expect("own encoding");
            assert_eq!(again, message);
            let at = self.letters.len();
            self.letters.push(Some((from, to, again)));
            self.wire.push(Reverse((self.now + delay, at as u64, at)));
        }
    }

    /// The owner's part: store, send, apply. Dies in between at times.
    fn pump(&mut self, i: usize) {
        for _ in 0..100 {
            let now = self.clock(i);
            let Some(raft) = &mut self.nodes[i].raft else { return };
            raft.note_time(now);
            let ready = raft.take_ready();
            let nothing = ready.is_empty();
            ready.early.into_iter().for_each(|m| self.send(i, m));
            if self.risky && self.rng.below(3000) == 0 {
                return self.kill(i);
            }
            let node = &mut self.nodes[i];
            if let Some(from) = ready.sync_from
                && node.copy.is_none()
            {
                node.copy = Some(Copy { from, base: None, next_key: 0, due: self.now });
            }
            let disk = &mut node.disk;
            if let Some(hard) = ready.hard {
                disk.hard = hard;
            }
            if let Some(index) = ready.truncate {
                disk.entries.retain(|entry| entry.index <= index);
            }
            disk.entries.extend(ready.append);
            if let Some(base) = ready.base {
                disk.entries.retain(|entry| entry.index > base.index);
                disk.base = base;
            }
            if ready.hard.is_some() || !nothing {
                node.durable = node.disk.clone();
            }
            let Some(raft) = &mut node.raft else { return };
            raft.persisted();
            if self.risky && self.rng.below(3000) == 0 {
                return self.kill(i);
            }
            ready.after.into_iter().for_each(|m| self.send(i, m));
            let applied_any = self.apply(i);
            if nothing && !applied_any {
                break;
            }
        }
        self.check(i);
    }

    /// Applies without making it durable: the next durable write does.
    fn apply(&mut self, i: usize) -> bool {
        let now = self.clock(i);
        let node = &mut self.nodes[i];
        let Some(raft) = &mut node.raft else { return false };
        if node.disk.copying {
            return false;
        }
        let entries = raft.take_committed();
        let any = !entries.is_empty();
        for entry in entries {
            assert_eq!(entry.index, node.disk.applied + 1);
            if let Payload::Data(data) = &entry.payload {
                node.disk.state.insert(data[0], u64::from_le_bytes(data[1..9].try_into().unwrap()));
            }
            node.disk.applied = entry.index;
            raft.applied_to(now, entry.index);
            if node.disk.applied >= node.disk.whole_at {
                raft.set_whole(true);
            }
            let known = self.applied.entry(entry.index).or_insert_with(|| entry.clone());
            assert_eq!(*known, entry, "two members applied different entries");
            // The proposer's answer: it leads in the term of the entry.
            if raft.is_leader()
                && raft.term() == entry.term
                && let Some(value) = self.open.remove(&(entry.index, entry.term))
            {
                self.acked.insert(entry.index, value);
                self.max_acked = self.max_acked.max(entry.index);
                self.acks += 1;
            }
        }
        any
    }

    fn check(&mut self, i: usize) {
        let now = self.clock(i);
        let Some(raft) = &self.nodes[i].raft else { return };
        if raft.is_leader() {
            let known = *self.leaders.entry(raft.term()).or_insert_with(|| {
                self.elections += 1;
                raft.id()
            });
            assert_eq!(known, raft.id(), "two leaders in term {}", raft.term());
        }
        if raft.may_read(now) {
            self.reads += 1;
            assert!(raft.applied() >= self.max_acked, "a stale read in term {}", raft.term());
            // And the state is what the log says.
            if !self.rng.chance(1) {
                return;
            }
            let mut state = BTreeMap::new();
            for entry in self.applied.range(..=raft.applied()).map(|(_, e)| e) {
                if let Payload::Data(data) = &entry.payload {
                    state.insert(data[0], u64::from_le_bytes(data[1..9].try_into().unwrap()));
                }
            }
            assert_eq!(self.nodes[i].disk.state, state, "the leader's state is not its log's");
        }
    }

    /// One piece of a copy of the state, as the owner's own protocol would carry it.
    fn copy_step(&mut self, i: usize) {
        let Some(copy) = &self.nodes[i].copy else { return };
        if copy.due > self.now {
            return;
        }
        let (from, next_key) = (copy.from, copy.next_key);
        let source = self.of(from).filter(|s| !self.cut.contains(&(*s, i)));
        let Some((source, base)) = source.and_then(|s| {
            let raft = self.nodes[s].raft.as_ref()?;
            // What is applied is committed, whoever leads: a leader that needs this very member to
            // commit its first entry must be able to give.
            let whole = self.nodes[s].disk.applied >= self.nodes[s].disk.whole_at;
            (whole && raft.applied() > 0)
                .then(|| raft.applied_base())
                .flatten()
                .map(|base| (s, base))
        }) else {
            self.nodes[i].copy = None;
            return;
        };
        let piece: Vec<(u8, u64)> = self.nodes[source]
            .disk
            .state
            .range(next_key..next_key + KEYS / 4)
            .map(|(k, v)| (*k, *v))
            .collect();
        let pause = (5 + self.rng.below(200)) * MS;
        let due = self.now + pause;
        let node = &mut self.nodes[i];
        let (Some(raft), Some(copy)) = (&mut node.raft, &mut node.copy) else { return };
        if next_key == 0 {
            if base.index <= raft.applied() && !node.disk.copying {
                node.copy = None;
                return;
            }
            node.disk.copying = true;
            node.disk.state.clear();
            raft.set_whole(false);
        }
        let first = copy.base.get_or_insert_with(|| base.clone()).clone();
        node.disk.state.extend(piece);
        copy.next_key += KEYS / 4;
        copy.due = due;
        if copy.next_key >= KEYS {
            let Some(tail_stays) = raft.install(first.clone()) else {
                node.copy = None;
                return;
            };
            node.disk.copying = false;
            node.disk.whole_at = base.index;
            node.disk.applied = first.index;
            node.disk.entries.retain(|entry| tail_stays && entry.index > first.index);
            node.disk.base = first;
            raft.set_whole(node.disk.applied >= node.disk.whole_at);
            node.copy = None;
            self.copies += 1;
        }
        node.durable = node.disk.clone();
    }

    /// What a monitor's leader does about members: those who run and are not in are taken in, one
    /// step at a time.
    fn tend_members(&mut self, i: usize) {
        let Some(raft) = &self.nodes[i].raft else { return };
        if !raft.leads_for_sure() || raft.is_changing() {
            return;
        }
        let mut next = raft.members().clone();
        for (at, node) in self.nodes.iter().enumerate() {
            let id = node.disk.id;
            if at == i || node.raft.is_none() || self.cut.contains(&(at, i)) {
                continue;
            }
            match (next.0.get(&id), next.named(&node.name)) {
                (Some(member), _) if member.voter => continue,
                (Some(_), _) => {
                    let caught = raft.progress_of(id).is_some_and(|(m, _)| m + 3 >= raft.commit());
                    let whole = node.raft.as_ref().is_some_and(|r| r.applied() > 0);
                    if !caught || !whole || node.disk.copying {
                        continue;
                    }
                    next.set(id, &node.name, true);
                }
                (None, Some(old)) => drop(next.0.remove(&old)),
                (None, None) => next.set(id, &node.name, false),
            }
            break;
        }
        if next != *raft.members()
            && let Some(raft) = &mut self.nodes[i].raft
        {
            let _ = raft.change_members(next);
        }
    }

    fn propose(&mut self, i: usize) {
        let key = self.rng.below(KEYS.into()) as u8;
        let value = self.next_value;
        let now = self.clock(i);
        let Some(raft) = &mut self.nodes[i].raft else { return };
        let mut data = vec![key];
        data.extend(value.to_le_bytes());
        if let Some(index) = raft.propose(Bytes::from(data)) {
            self.next_value += 1;
            self.open.insert((index, raft.term()), value);
            raft.replicate(now);
        }
        self.pump(i);
    }

    fn misfortune(&mut self) {
        let n = self.nodes.len() as u64;
        let i = self.rng.below(n) as usize;
        match self.rng.below(12) {
            0 | 1 => self.kill(i),
            2 => {
                let dead: Vec<usize> =
                    (0..self.nodes.len()).filter(|j| self.nodes[*j].raft.is_none()).collect();
                // At most a minority forgets, and only when the others know all.
                if dead.is_empty() && self.rng.chance(30) && self.settled_without(i) {
                    self.wipe(i);
                }
            }
            3 | 4 => {
                for j in 0..self.nodes.len() {
                    if self.rng.chance(50) {
                        self.cut.insert((i, j));
                    }
                    if self.rng.chance(50) {
                        self.cut.insert((j, i));
                    }
                }
            }
            5 => {
                let now = self.clock(i);
                if let Some(raft) = &mut self.nodes[i].raft {
                    let _ = raft.hand_over(now);
                }
                self.pump(i);
            }
            6..8 => self.cut.clear(),
            8 => self.loss = self.rng.below(40),
            _ => {
                for j in 0..self.nodes.len() {
                    if self.nodes[j].raft.is_none() && self.rng.chance(70) {
                        self.start(j);
                    }
                }
            }
        }
    }

    /// Whether a majority of the voters has its memory, without this one.
    fn settled_without(&self, i: usize) -> bool {
        let now = |at| self.clock(at);
        self.nodes.iter().enumerate().any(|(at, node)| {
            let Some(raft) = &node.raft else { return false };
            let lives = |id: &MemberId| {
                self.nodes.iter().enumerate().any(|(j, n)| j != i && n.disk.id == *id)
            };
            at != i
                && raft.may_read(now(at))
                && raft.members().voters().filter(lives).count() >= raft.members().majority()
        })
    }

    fn turn(&mut self) {
        self.now += 1 + self.rng.below(3 * MS);
        while let Some(Reverse((at, _, letter))) = self.wire.peek().copied() {
            if at > self.now {
                break;
            }
            self.wire.pop();
            let Some((from, to, message)) = self.letters[letter].take() else { continue };
            if self.cut.contains(&(from, to)) {
                continue;
            }
            let now = self.clock(to);
            if let Some(raft) = &mut self.nodes[to].raft {
                raft.receive(now, message);
                self.pump(to);
            }
        }
        for i in 0..self.nodes.len() {
            let now = self.clock(i);
            let node = &mut self.nodes[i];
            let leader = node.raft.as_ref().and_then(Raft::leader);
            if let (true, None, Some(from)) = (node.disk.copying, &node.copy, leader) {
                // An earlier copy broke off: the log may be complete, the state is not.
                node.copy = Some(Copy { from, base: None, next_key: 0, due: self.now });
            }
            self.copy_step(i);
            if self.nodes[i].raft.as_ref().is_some_and(|raft| raft.wake_at() <= now) {
                self.pump(i);
            }
            self.check(i);
            if self.rng.chance(4) {
                self.tend_members(i);
                self.propose(i);
            }
        }
    }

    /// Runs with misfortunes for some virtual time.
    pub(crate) fn run(&mut self, ms: u64, misfortunes: bool) {
        let end = self.now + ms * MS;
        self.risky = misfortunes;
        while self.now < end {
            if misfortunes && self.rng.below(150) == 0 {
                self.misfortune();
            }
            self.turn();
        }
    }

    /// Everything is well again: all must agree, and writes must go through.
    pub(crate) fn settle(&mut self) {
        self.cut.clear();
        self.loss = 0;
        for i in 0..self.nodes.len() {
            if self.nodes[i].raft.is_none() {
                self.start(i);
            }
        }
        self.run(8000, false);
        let before = self.acks;
        self.run(2000, false);
        assert!(self.acks > before + 5, "no writes go through: {}", self.describe());
        let voters = self
            .nodes
            .iter()
            .filter_map(|n| n.raft.as_ref())
            .find(|raft| raft.is_leader())
            .map(|raft| raft.members().voters().count());
        assert_eq!(voters, Some(self.nodes.len()), "not all are members: {}", self.describe());
        for (index, value) in &self.acked {
            let Payload::Data(data) = &self.applied[index].payload else { panic!("no data") };
            assert_eq!(u64::from_le_bytes(data[1..9].try_into().unwrap()), *value);
        }
    }

    pub(crate) fn describe(&self) -> String {
        let lines: Vec<String> = self
            .nodes
            .iter()
            .map(|n| match &n.raft {
                None => format!("{}: dead", n.name),
                Some(r) => format!(
                    "{}: {} term {} leads {} leader {:?} last {:?} commit {} applied {} base {} \
                     copying {} members {:?}",
                    n.name,
                    r.id(),
                    r.term(),
                    r.is_leader(),
                    r.leader(),
                    r.last(),
                    r.commit(),
                    r.applied(),
                    r.base().index,
                    n.disk.copying,
                    r.members().0,
                ),
            })
            .collect();
        lines.join("\n")
    }

    /// How long after the leader's death the next write was acknowledged.
    pub(crate) fn failover(&mut self) -> Option<Duration> {
        let leader =
            self.nodes.iter().position(|n| n.raft.as_ref().is_some_and(Raft::is_leader))?;
        self.kill(leader);
        let (began, before) = (self.now, self.acks);
        while self.acks == before {
            self.turn();
            assert!(self.now < began + 10_000 * MS, "no new leader: {}", self.describe());
        }
        let took = Duration::from_micros(self.now - began);
        self.start(leader);
        Some(took)
    }
}
