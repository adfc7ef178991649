use types::osd::{LogOp, PgInfo, PgLogEntry};
use types::{EVersion, EntityName, HObject, NOSNAP, OsdReqId};

use super::super::missing::Missing;
use crate::pg::log::Undo;
use super::Log;

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
    entries.iter().for_each(|e| log.add(e.clone()));
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
    assert_eq!(changes.removed.len(), 8);
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
