use std::collections::{BTreeMap, BTreeSet};

use denc::Denc;
use types::osd::{LogOp, PgInfo, PgLogEntry};
use types::{EVersion, EntityName, HObject, NOSNAP, OsdReqId};

use super::super::missing::Missing;
use super::{Log, LogChanges};
use crate::pg::log::Undo;

fn oid(name: &str) -> HObject {
    HObject { name: name.into(), hash: 7, pool: 1, snap: NOSNAP, ..HObject::default() }
}

fn entry(name: &str, version: (u32, u64), prior: (u32, u64)) -> PgLogEntry {
    PgLogEntry {
        op: LogOp::MODIFY,
        soid: oid(name),
        version: EVersion::new(version.0, version.1),
        prior_version: EVersion::new(prior.0, prior.1),
        reqid: OsdReqId { name: EntityName::client(1), tid: version.1, inc: 0 },
        ..PgLogEntry::default()
    }
}

fn log_of(entries: &[PgLogEntry]) -> (Log, PgInfo) {
    let mut log = Log::default();
    entries.iter().for_each(|e| log.add(e));
    let info = PgInfo { last_update: log.head(), last_complete: log.head(), ..PgInfo::default() };
    log.take_changes();
    (log, info)
}

#[test]
fn what_is_sent_begins_at_an_entry_both_logs_may_have() {
    let (log, _) = log_of(&[
        entry("a", (5, 9), (0, 0)),
        entry("b", (5, 10), (0, 0)),
        entry("a", (6, 11), (5, 9)),
    ]);
    // Asked by somebody with divergent 5'11 and 5'12.
    let wire = log.wire_after(EVersion::new(5, 12));
    assert_eq!(wire.tail, EVersion::new(5, 10));
    assert_eq!(wire.log.len(), 1);
}

/// An object was needed in the version that the log had been trimmed to: a write of it had not
/// happened. What is complete was said to reach up to there, which is all of that log, and the
/// primary took the copy for whole (the cores of `pg/peering/tests`, with many seeds).
#[test]
fn nothing_is_complete_if_something_older_than_the_log_is_missing() {
    let mut log = Log::default();
    let tail = EVersion::new(2, 1);
    let complete = |log: &Log, need: EVersion| {
        let mut missing = Missing::default();
        missing.add(&oid("a"), need, EVersion::ZERO, false);
        log.last_complete(log.head(), &missing)
    };
    log.merge_from(&[], tail);
    assert_eq!(complete(&log, tail), EVersion::ZERO);
    assert_eq!(complete(&log, EVersion::new(2, 2)), tail);
    log.add(&entry("b", (2, 2), (0, 0)));
    log.add(&entry("a", (2, 3), (2, 1)));
    assert_eq!(complete(&log, tail), EVersion::ZERO);
    assert_eq!(complete(&log, EVersion::new(2, 2)), tail);
    assert_eq!(complete(&log, EVersion::new(2, 3)), EVersion::new(2, 2));
    assert_eq!(log.last_complete(log.head(), &Missing::default()), EVersion::new(2, 3));
}

/// A replica that had missed a write took those behind it (`loligo sim --seed 4094`): its session had
/// lost one, and all that was asked of a write was that it was newer.
#[test]
fn a_log_goes_on_with_the_next_number_only() {
    let (log, _) = log_of(&[entry("a", (5, 9), (0, 0))]);
    let goes_on = |versions: &[(u32, u64)]| {
        let entries: Vec<PgLogEntry> = versions.iter().map(|v| entry("b", *v, (0, 0))).collect();
        log.is_continued_by(&entries)
    };
    for next in [&[(5, 10)][..], &[(7, 10)], &[(5, 10), (5, 11)], &[]] {
        assert!(goes_on(next), "{next:?}");
    }
    for other in [
        &[(5, 11)][..],
        &[(5, 9)],
        &[(5, 8)],
        &[(6, 9)],
        &[(4, 10)],
        &[(5, 10), (5, 12)],
        &[(5, u64::MAX)],
    ] {
        assert!(!goes_on(other), "{other:?}");
    }
}

/// Found by `loligo sim --seed 3039`: an acknowledged append was there twice.
///
/// 1. A PG's log has more entries than a copy gets that begins anew, by backfill.
/// 2. The one whose entry was left out sends its request again, and the primary has died meanwhile.
/// 3. The new copy is primary now, and knew neither the entry nor a dup of it.
#[test]
fn a_new_copy_knows_the_requests_of_entries_that_it_does_not_get() {
    let mut entries: Vec<PgLogEntry> = (1..=16).map(|v| entry("a", (5, v), (5, v - 1))).collect();
    let elsewhere = OsdReqId { name: EntityName::client(9), tid: 77, inc: 0 };
    let extras = entries[6].extras_mut();
    extras.extra_reqids.push((elsewhere, 40));
    extras.extra_reqid_return_codes.insert(0, -2);
    let (mut log, _) = log_of(&entries);
    log.trim(EVersion::new(5, 4), 3000);
    let wire = log.wire_newest(3);
    assert_eq!((wire.log.len(), wire.tail), (3, EVersion::new(5, 13)));
    let mut copy = Log::default();
    copy.reset_to(wire);
    log.trim(EVersion::new(5, 10), 3000);
    for log in [&copy, &log] {
        for e in &entries {
            assert_eq!(log.request(&e.reqid).map(|a| a.version), Some(e.version));
        }
        let answered = log.request(&elsewhere).expect("what an object brought along");
        assert_eq!((answered.user_version, answered.return_code), (40, -2));
    }
    assert_eq!(copy.take_changes().dups_written.len(), 14);
}

#[test]
fn divergent_entries_are_thrown_out_and_their_objects_wanted_as_they_were() {
    let common = [entry("a", (5, 9), (0, 0)), entry("b", (5, 10), (0, 0))];
    let (mut mine, mut info) = log_of(&[
        common[0].clone(),
        common[1].clone(),
        entry("a", (5, 11), (5, 9)),
        entry("c", (5, 12), (0, 0)),
    ]);
    let (auth, auth_info) =
        log_of(&[common[0].clone(), common[1].clone(), entry("b", (6, 11), (5, 10))]);
    let (mut missing, mut removed) = (Missing::default(), Vec::new());
    let wire = auth.wire_after(info.last_update);
    assert!(mine.merge(&auth_info, &wire, &mut info, &mut missing, &mut removed));
    assert_eq!(info.last_update, EVersion::new(6, 11));
    // a goes back to 5'9, c never was, b has to come in its new version.
    assert_eq!(missing.get(&oid("a")).map(|i| i.need), Some(EVersion::new(5, 9)));
    assert_eq!(missing.get(&oid("b")).map(|i| i.need), Some(EVersion::new(6, 11)));
    assert!(!missing.contains(&oid("c")));
    assert_eq!(removed, vec![Undo::Remove(oid("a")), Undo::Remove(oid("c"))]);
    assert!(mine.request(&entry("c", (5, 12), (0, 0)).reqid).is_none());
    let changes = mine.take_changes();
    assert_eq!(changes.removed.len(), 2);
    assert_eq!(changes.written.len(), 1);
}

#[test]
fn a_primary_knows_what_a_peer_will_lack() {
    let common = [entry("a", (5, 9), (0, 0))];
    let (peer, mut peer_info) = log_of(&[common[0].clone(), entry("a", (5, 10), (5, 9))]);
    let (mine, _) = log_of(&[common[0].clone(), entry("b", (6, 10), (0, 0))]);
    let mut missing = Missing::default();
    mine.judge_peer(&mut peer_info, peer.wire(), &mut missing);
    assert_eq!(peer_info.last_update, EVersion::new(5, 9));
    assert_eq!(missing.get(&oid("a")).map(|i| i.need), Some(EVersion::new(5, 9)));
}

#[test]
fn trimmed_requests_are_remembered_up_to_a_bound() {
    let entries: Vec<PgLogEntry> =
        (1..=10).map(|v| entry("a", (1, v), (if v > 1 { 1 } else { 0 }, v - 1))).collect();
    let (mut log, _) = log_of(&entries);
    log.trim(EVersion::new(1, 8), 3);
    assert_eq!(log.tail(), EVersion::new(1, 8));
    assert_eq!(log.len(), 2);
    assert!(log.request(&entries[7].reqid).is_some());
    assert!(log.request(&entries[5].reqid).is_some());
    assert!(log.request(&entries[4].reqid).is_none());
    let changes = log.take_changes();
    let (first, end) = (EVersion::new(1, 1), EVersion::new(1, 9));
    assert_eq!(changes.trimmed, Some((first, end)));
    assert_eq!(changes.dups_written.len(), 3, "those that stay");
}

#[test]
fn a_clone_entry_does_not_answer_for_the_request() {
    let mut clone = entry("a", (2, 1), (1, 1));
    clone.op = LogOp::CLONE;
    clone.soid.snap = 4;
    let mut head = entry("a", (2, 2), (1, 1));
    head.reqid = clone.reqid;
    head.user_version = 77;
    let (log, _) = log_of(&[clone.clone(), head]);
    assert_eq!(log.request(&clone.reqid).map(|a| a.user_version), Some(77));
}

/// What the store has of a log, by the changes that are given to it: entries as they are encoded, and
/// keys of dups.
#[derive(Default)]
struct Stored {
    entries: BTreeMap<EVersion, Vec<u8>>,
    dups: BTreeSet<EVersion>,
}

impl Stored {
    fn apply(&mut self, changes: LogChanges<'_>) {
        if changes.all {
            *self = Stored::default();
        }
        if let Some((from, to)) = changes.trimmed {
            self.entries.retain(|v, _| *v < from || *v >= to);
        }
        if let Some((from, to)) = changes.dups_trimmed {
            self.dups.retain(|v| *v < from || *v >= to);
        }
        self.entries.retain(|v, _| !changes.removed.contains(v));
        self.entries.extend(
            changes.written.iter().map(|(version, encoding)| (*version, encoding.to_vec())),
        );
        self.dups.extend(changes.dups_written.iter().map(|d| d.version));
    }
}

#[test]
fn the_store_holds_what_the_log_holds() {
    let mut random = 12345_u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (random >> 33) % n
    };
    let mut log = Log::default();
    let mut stored = Stored::default();
    let (mut epoch, mut info, mut missing) = (1, PgInfo::default(), Missing::default());
    for step in 0..5000 {
        for _ in 0..below(4) {
            let version = log.head().version + 1;
            log.add(&entry(["a", "b", "c"][below(3) as usize], (epoch, version), (0, 0)));
        }
        let at = |back: u64| {
            let v = log.head().version.saturating_sub(back);
            log.iter().find(|e| e.version.version == v).map(|e| e.version)
        };
        match below(5) {
            0 => {
                let to = at(below(12)).unwrap_or(log.tail());
                log.trim(to, below(8) as usize);
            }
            1 => {
                if let Some(to) = at(below(3)) {
                    log.rewind_divergent(to, &mut info, &mut missing, &mut Vec::new());
                    epoch += 1;
                }
            }
            2 if below(4) == 0 => log.forget_index(),
            _ => {}
        }
        if below(3) == 0 {
            // Asked now and then: the index is made of all that came before, and kept up meanwhile.
            for tid in log.head().version.saturating_sub(30)..=log.head().version + 1 {
                let of_entry = log.iter().rev().find(|e| e.reqid.tid == tid).map(|e| e.version);
                let of_dup = || log.dups().filter(|d| d.reqid.tid == tid).last().map(|d| d.version);
                let reqid = OsdReqId { tid, ..entry("", (0, 0), (0, 0)).reqid };
                assert_eq!(
                    log.request(&reqid).map(|a| a.version),
                    of_entry.or_else(of_dup),
                    "step {step}"
                );
            }
        }
        if below(3) > 0 {
            stored.apply(log.take_changes());
            let entries = log.iter().map(|e| (e.version, e.to_bytes().to_vec()));
            assert!(entries.eq(stored.entries.clone()), "step {step}");
            assert!(log.dups().map(|d| d.version).eq(stored.dups.iter().copied()), "step {step}");
        }
    }
}

/// Found by a life with an erasure coded pool: what a shard kept to undo a write stayed for ever.
///
/// 1. A shard has a write that another lacks: it did not happen, and the object is written anew.
/// 2. The shard comes back and follows the others' log. The object is missing now, by the new
///    write, and so what was kept for the old one was thought never to have been kept.
#[test]
fn what_was_kept_for_an_entry_that_did_not_happen_goes() {
    let common = entry("a", (5, 9), (0, 0));
    let undone = entry("a", (5, 10), (5, 9));
    let (mut mine, mut info) = log_of(std::slice::from_ref(&common));
    mine.add_undoable(&undone);
    info.last_update = mine.head();
    let (auth, auth_info) = log_of(&[common, entry("a", (6, 10), (5, 9))]);
    let (mut missing, mut undo) = (Missing::default(), Vec::new());
    let wire = auth.wire();
    assert!(mine.merge(&auth_info, &wire, &mut info, &mut missing, &mut undo));
    assert_eq!(missing.get(&oid("a")).map(|i| i.need), Some(EVersion::new(6, 10)));
    assert_eq!(undo, [Undo::Remove(oid("a")), Undo::Trim(std::rc::Rc::new(undone))]);
}
