//! The log against a model: a copy is a log, a missing set and the versions of its objects' data.
//! Whatever two copies went through, after a merge every object is either as the authoritative
//! log says or missing in exactly that version.

use std::collections::BTreeMap;

use types::osd::LogOp;
use types::{EntityName, Epoch, NOSNAP};

use super::*;

/// A small generator of its own: the same seed gives the same run everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.roll(100) < percent
    }
}

fn oid(n: u64) -> HObject {
    HObject {
        name: format!("o{n}").into(),
        pool: 1,
        snap: NOSNAP,
        ..HObject::default()
    }
}

fn reqid(tid: u64) -> OsdReqId {
    OsdReqId {
        name: EntityName::client(1),
        tid,
        inc: 0,
    }
}

/// One copy of a PG.
#[derive(Clone, Default)]
struct Replica {
    log: Log,
    missing: Missing,
    info: PgInfo,
    /// Versions of the data that is here.
    data: BTreeMap<HObject, EVersion>,
    /// What the store holds of the log.
    stored: BTreeMap<EVersion, PgLogEntry>,
    stored_dups: BTreeMap<EVersion, PgLogDup>,
    stored_missing: BTreeMap<HObject, EVersion>,
}

/// What an object is by a history: its version, and whether it exists.
type Truth = BTreeMap<HObject, (EVersion, bool)>;

impl Replica {
    /// Writes down what changed and compares the store with the memory.
    fn persist(&mut self) {
        let changes = self.log.take_changes();
        if changes.all {
            self.stored.clear();
            self.stored_dups.clear();
        }
        for v in &changes.removed {
            self.stored.remove(v);
        }
        for e in &changes.written {
            self.stored.insert(e.version, (**e).clone());
        }
        for v in &changes.dups_removed {
            self.stored_dups.remove(v);
        }
        for d in &changes.dups_written {
            self.stored_dups.insert(d.version, (**d).clone());
        }
        for (oid, item) in self.missing.take_dirty() {
            match item {
                Some(item) => self.stored_missing.insert(oid, item.need),
                None => self.stored_missing.remove(&oid),
            };
        }
        assert!(!self.log.is_dirty() && !self.missing.is_dirty());
        let live: Vec<PgLogEntry> = self.log.iter().map(|e| (**e).clone()).collect();
        assert_eq!(self.stored.values().cloned().collect::<Vec<_>>(), live);
        let dups: Vec<PgLogDup> = self.log.dups().map(|d| (**d).clone()).collect();
        assert_eq!(self.stored_dups.values().cloned().collect::<Vec<_>>(), dups);
        let missing: BTreeMap<HObject, EVersion> = self
            .missing
            .iter()
            .map(|(oid, item)| (oid.clone(), item.need))
            .collect();
        assert_eq!(self.stored_missing, missing);
    }

    /// What a follower does with an entry: applies it, or notes that it lacks the object.
    fn follow(&mut self, e: &PgLogEntry) {
        if e.soid > self.info.last_backfill {
            // Comes by backfill.
        } else if self.missing.contains(&e.soid) {
            self.missing.add_next_event(e);
        } else if e.is_delete() {
            self.data.remove(&e.soid);
        } else {
            self.data.insert(e.soid.clone(), e.version);
        }
        self.log.add(e.clone());
        self.info.last_update = e.version;
        self.info.last_complete = self.log.last_complete(e.version, &self.missing);
    }

    /// Loses the data of an object that recovery had not brought yet.
    fn lose(&mut self, oid: &HObject, have: EVersion) {
        let Some(e) = self.log.newest_of(oid).cloned() else {
            return;
        };
        self.missing.add(oid, e.version, have, e.is_delete());
        if have.is_zero() {
            self.data.remove(oid);
        } else {
            self.data.insert(oid.clone(), have);
        }
        self.info.last_complete = self.log.last_complete(self.info.last_update, &self.missing);
    }

    fn merge(&mut self, auth: &Replica) -> bool {
        let mut removed = Vec::new();
        let (log, info) = (auth.log.wire(), &auth.info);
        let merged = self
            .log
            .merge(info, &log, &mut self.info, &mut self.missing, &mut removed);
        for oid in removed {
            self.data.remove(&oid);
        }
        merged
    }

    fn check(&self, truth: &Truth, context: &str) {
        let known = self.data.keys().chain(self.missing.iter().map(|(o, _)| o));
        for oid in known {
            assert!(truth.contains_key(oid), "{context}: {oid} is of no history");
        }
        for (oid, (version, exists)) in truth {
            let here = self.data.get(oid).copied();
            if *oid > self.info.last_backfill {
                let is_nothing = here.is_none() && !self.missing.contains(oid);
                assert!(is_nothing, "{context}: {oid} is beyond the backfill");
                continue;
            }
            match self.missing.get(oid) {
                None => assert_eq!(here, exists.then_some(*version), "{context}: {oid}"),
                Some(item) => {
                    assert_eq!(item.need, *version, "{context}: need of {oid}");
                    assert_eq!(item.is_delete, !exists, "{context}: {oid}");
                    let have = here.unwrap_or(EVersion::ZERO);
                    assert!(
                        item.have.is_zero() || item.have == have,
                        "{context}: have of {oid}"
                    );
                }
            }
        }
        for pair in self.log.entries.make_contiguous_copy().windows(2) {
            assert!(pair[0] < pair[1], "{context}: entries in order");
        }
        assert_eq!(self.info.last_update, self.log.head(), "{context}");
    }
}

trait Versions {
    fn make_contiguous_copy(&self) -> Vec<EVersion>;
}

impl Versions for VecDeque<Rc<PgLogEntry>> {
    fn make_contiguous_copy(&self) -> Vec<EVersion> {
        self.iter().map(|e| e.version).collect()
    }
}

/// Makes the next entries of a history whose truth is known: writes, deletions, clones.
fn next_entries(
    dice: &mut Dice,
    truth: &mut Truth,
    head: EVersion,
    epoch: Epoch,
) -> Vec<PgLogEntry> {
    let oid = oid(dice.roll(6));
    let (prior, exists) = truth.get(&oid).copied().unwrap_or((EVersion::ZERO, false));
    let prior = if exists { prior } else { EVersion::ZERO };
    let mut version = EVersion::new(epoch, head.version + 1);
    let mut entries = Vec::new();
    let entry = |op, soid: HObject, version: EVersion| PgLogEntry {
        op,
        soid,
        version,
        prior_version: prior,
        user_version: version.version,
        reqid: reqid(u64::from(epoch) << 32 | version.version),
        ..PgLogEntry::default()
    };
    if exists && dice.chance(20) {
        let clone = oid.with_snap(version.version);
        truth.insert(clone.clone(), (version, true));
        entries.push(entry(LogOp::CLONE, clone, version));
        version = EVersion::new(epoch, version.version + 1);
    }
    let op = if exists && dice.chance(25) {
        LogOp::DELETE
    } else {
        LogOp::MODIFY
    };
    truth.insert(oid.clone(), (version, op != LogOp::DELETE));
    entries.push(entry(op, oid, version));
    entries
}

/// Two copies with a common past, then their own ways: `ours` in epoch 2, `auth` in epoch 3.
struct Scene {
    ours: Replica,
    auth: Replica,
    truth: Truth,
}

fn scene(seed: u64) -> Scene {
    let mut dice = Dice(seed);
    let (mut ours, mut truth) = (Replica::default(), Truth::new());
    for _ in 0..=dice.roll(20) {
        for e in next_entries(&mut dice, &mut truth, ours.log.head(), 1) {
            ours.follow(&e);
        }
    }
    let mut auth = ours.clone();
    if dice.chance(30) {
        let last = oid(dice.roll(6));
        ours.data.retain(|oid, _| *oid <= last);
        ours.info.last_backfill = last;
    }
    // What recovery had not brought to ours, from before the parting: nothing, or an old version.
    for n in 0..6 {
        let oid = oid(n);
        let versions: Vec<(EVersion, bool)> = ours
            .log
            .of_object(&oid)
            .map(|e| (e.version, e.is_delete()))
            .collect();
        let older = versions.get(1).filter(|(_, deleted)| !deleted).map(|v| v.0);
        if !versions.is_empty() && oid <= ours.info.last_backfill && dice.chance(30) {
            let have = older.filter(|_| dice.chance(60)).unwrap_or(EVersion::ZERO);
            ours.lose(&oid, have);
        }
    }
    let mut own_truth = truth.clone();
    for _ in 0..dice.roll(8) {
        for e in next_entries(&mut dice, &mut own_truth, ours.log.head(), 2) {
            ours.follow(&e);
        }
    }
    for _ in 0..dice.roll(8) {
        for e in next_entries(&mut dice, &mut truth, auth.log.head(), 3) {
            auth.follow(&e);
        }
    }
    // Either may have trimmed some of the common past.
    for replica in [&mut ours, &mut auth] {
        if dice.chance(50) {
            let count = dice.roll(6) as usize;
            let to = replica
                .log
                .iter()
                .nth(count)
                .map(|e| e.version)
                .filter(|v| v.epoch == 1);
            replica.log.trim(to.unwrap_or_default(), 100);
            replica.info.log_tail = replica.log.tail();
        }
        replica.persist();
    }
    Scene { ours, auth, truth }
}

#[test]
fn a_merge_leaves_no_object_that_is_neither_right_nor_missing() {
    let mut merges = 0;
    for seed in 0..4000 {
        let Scene {
            mut ours,
            auth,
            truth,
        } = scene(seed);
        auth.check(&truth, "authority");
        if !ours.merge(&auth) {
            assert!(auth.log.head() < ours.log.tail() || auth.log.tail() > ours.log.head());
            continue;
        }
        merges += 1;
        ours.check(&truth, &format!("seed {seed}"));
        ours.persist();
        assert_eq!(ours.log.head(), auth.log.head(), "seed {seed}");
        // Where both have entries they are the same, by request too.
        let from = ours.log.tail().max(auth.log.tail());
        let versions = |log: &Log| log.after(from).map(|e| e.version).collect::<Vec<_>>();
        assert_eq!(versions(&ours.log), versions(&auth.log), "seed {seed}");
        for e in auth.log.after(from).filter(|e| e.reqid_is_indexed()) {
            assert_eq!(
                ours.log.request(&e.reqid).map(|a| a.version),
                Some(e.version)
            );
        }
        // A second merge changes nothing.
        let before = ours.data.clone();
        assert!(ours.merge(&auth));
        ours.check(&truth, &format!("seed {seed}, again"));
        assert_eq!(ours.data, before);
    }
    assert!(merges > 3000, "{merges}");
}

#[test]
fn the_primary_judges_a_peer_as_the_peer_will_judge_itself() {
    for seed in 0..4000 {
        let Scene { mut ours, auth, .. } = scene(seed);
        if ours.log.head() < auth.log.tail() || auth.log.head() < ours.log.tail() {
            continue;
        }
        let (mut info, mut missing) = (ours.info.clone(), ours.missing.clone());
        auth.log
            .judge_peer(&mut info, ours.log.wire(), &mut missing);
        let newer = auth.log.after(info.last_update);
        newer
            .filter(|e| e.soid <= info.last_backfill)
            .for_each(|e| missing.add_next_event(e));
        assert!(ours.merge(&auth));
        let needs = |m: &Missing| {
            m.iter()
                .map(|(o, i)| (o.clone(), (i.need, i.is_delete)))
                .collect::<BTreeMap<_, _>>()
        };
        assert_eq!(needs(&missing), needs(&ours.missing), "seed {seed}");
        // Thinking that the peer has an old version it has not would be harmless (objects are
        // pushed whole), thinking that it lacks nothing would not.
    }
}

#[test]
fn a_merge_after_a_restart_is_the_same_merge() {
    for seed in 0..1000 {
        let Scene { mut ours, auth, .. } = scene(seed);
        let mut restarted = ours.clone();
        let dups = ours.log.wire().dups;
        restarted.log = Log::from_wire(PgLog {
            head: ours.log.head(),
            tail: ours.log.tail(),
            log: ours.stored.values().cloned().collect(),
            dups,
            ..PgLog::default()
        });
        restarted.missing = Missing::from_wire(ours.missing.to_wire());
        assert_eq!(restarted.merge(&auth), ours.merge(&auth), "seed {seed}");
        assert_eq!(restarted.data, ours.data, "seed {seed}");
        assert_eq!(
            restarted.missing.to_wire(),
            ours.missing.to_wire(),
            "seed {seed}"
        );
        assert_eq!(restarted.info, ours.info, "seed {seed}");
        restarted.persist();
    }
}

fn history(len: u64) -> Replica {
    let mut replica = Replica::default();
    let (mut dice, mut truth) = (Dice(5), Truth::new());
    while replica.log.head().version < len {
        for e in next_entries(&mut dice, &mut truth, replica.log.head(), 1) {
            replica.follow(&e);
        }
    }
    replica
}

#[test]
fn requests_are_remembered_beyond_their_entries() {
    let mut replica = history(30);
    let version = |v| EVersion::new(1, v);
    let request = |v: u64| reqid(1 << 32 | v);
    replica.persist();
    replica.log.trim(version(20), 8);
    replica.persist();
    assert_eq!(
        (replica.log.tail(), replica.log.dups_len()),
        (version(20), 8)
    );
    let answered = |log: &Log, v: u64| log.request(&request(v));
    assert!(answered(&replica.log, 25).is_some_and(|a| a.entry.is_some() && a.user_version == 25));
    assert!(answered(&replica.log, 20).is_some_and(|a| a.dup.is_some() && a.user_version == 20));
    assert!(answered(&replica.log, 13).is_some());
    assert!(answered(&replica.log, 12).is_none(), "beyond the bound");
    assert!(answered(&replica.log, 99).is_none());
    // A copy that merges learns the requests, too.
    let mut other = Replica::default();
    let auth = Replica {
        log: Log::from_wire(replica.log.wire()),
        ..replica.clone()
    };
    assert!(!other.merge(&auth), "nothing in common");
    other.log.reset_to(auth.log.wire());
    other.persist();
    assert!(answered(&other.log, 13).is_some() && answered(&other.log, 30).is_some());
}

#[test]
fn trimming_never_goes_beyond_the_head() {
    let mut replica = history(10);
    let head = replica.log.head();
    replica.log.trim(EVersion::new(9, 99), 3);
    assert!(replica.log.is_empty());
    assert_eq!((replica.log.tail(), replica.log.head()), (head, head));
    replica.persist();
}

#[test]
fn parts_of_a_log_go_over_the_wire_with_an_entry_in_common() {
    let replica = history(20);
    let v = |n| EVersion::new(1, n);
    let part = replica.log.wire_after(v(15));
    assert_eq!((part.tail, part.head), (v(15), replica.log.head()));
    assert_eq!(part.log.front().map(|e| e.version), Some(v(16)));
    // Asked for what is after a version of another history: the tail is one we know.
    assert_eq!(
        replica.log.wire_after(EVersion::new(0, 99)).tail,
        EVersion::ZERO
    );
    let newest = replica.log.wire_newest(3);
    assert_eq!(newest.log.len(), 3);
    assert_eq!(replica.log.wire_newest(1000).log.len(), replica.log.len());
}

#[test]
fn a_split_shares_the_entries_out_and_gives_both_all_requests() {
    let mut parent = history(40);
    parent.persist();
    parent.log.trim(EVersion::new(1, 10), 100);
    parent.persist();
    let all = parent.log.len();
    let dups = parent.log.dups_len();
    let leaves = |oid: &HObject| oid.name.ends_with(b"1") || oid.name.ends_with(b"4");
    let child_log = parent.log.split(leaves);
    let mut child = Replica {
        log: child_log,
        ..Replica::default()
    };
    parent.persist();
    child.persist();
    assert_eq!(parent.log.len() + child.log.len(), all);
    assert!(parent.log.iter().all(|e| !leaves(&e.soid)));
    assert!(!child.log.is_empty() && child.log.iter().all(|e| leaves(&e.soid)));
    assert_eq!((parent.log.dups_len(), child.log.dups_len()), (dups, dups));
    assert_eq!(parent.log.head(), child.log.head());
    assert_eq!(parent.log.tail(), child.log.tail());
}

#[test]
fn last_complete_is_below_the_oldest_missing_version() {
    let mut replica = history(12);
    let v = |n| EVersion::new(1, n);
    let head = replica.log.head();
    assert_eq!(replica.log.last_complete(head, &replica.missing), head);
    let e = replica
        .log
        .iter()
        .find(|e| e.version >= v(7))
        .cloned()
        .unwrap();
    replica
        .missing
        .add(&e.soid, e.version, EVersion::ZERO, false);
    let below = v(e.version.version - 1);
    assert_eq!(replica.log.last_complete(head, &replica.missing), below);
    assert!(!replica.missing.got(&e.soid, below));
    assert!(replica.missing.got(&e.soid, e.version));
    assert_eq!(replica.log.last_complete(head, &replica.missing), head);
}
