//! What the members of a PG at rest remember of its past. Each has trimmed its log when it was told to, so the tails
//! differ; what is above them must not, nor which requests are known to have been answered.

use std::collections::BTreeSet;

use types::osd::{PgInfo, PgLog, PgLogEntry};
use types::{EVersion, HObject, OsdReqId};

/// A log and what it is of.
type Kept = (PgInfo, PgLog);

/// An entry: the same on all members.
type Told<'a> = (EVersion, EVersion, &'a HObject, OsdReqId, u64);

fn told(e: &PgLogEntry) -> Told<'_> {
    (e.version, e.prior_version, &e.soid, e.reqid, e.user_version)
}

/// Where two logs of a PG do not say the same, in words.
pub(crate) fn differences(one: &Kept, other: &Kept) -> String {
    if one.0.last_update != other.0.last_update {
        return format!("newest entries {} and {}", one.0.last_update, other.0.last_update);
    }
    let tail = one.1.tail.max(other.1.tail);
    let above = |kept: &Kept| -> Vec<PgLogEntry> {
        kept.1.log.iter().filter(|e| e.version > tail).cloned().collect()
    };
    let (ours, theirs) = (above(one), above(other));
    let mut lines = unlike(ours.iter().map(told).collect(), theirs.iter().map(told).collect());
    if !has_been_split(&one.0) {
        let from = oldest_dup(&one.1).max(oldest_dup(&other.1));
        lines += &unlike(requests(&one.1, from), requests(&other.1, from));
    }
    lines
}

/// Before a split one member has had requests as dups, which both parts keep, and another one as entries, which
/// go where their objects do.
fn has_been_split(info: &PgInfo) -> bool {
    info.history.last_epoch_split > info.history.epoch_pool_created
}

/// So many dups are remembered (`osd_pg_log_dups_tracked`).
const DUPS_TRACKED: usize = 3000;

/// Where a member's memory of requests begins that has forgotten some: one that has trimmed its log further has
/// forgotten more (life 52025193).
fn oldest_dup(log: &PgLog) -> EVersion {
    let oldest = log.dups.iter().map(|dup| dup.version).min();
    oldest.filter(|_| log.dups.len() >= DUPS_TRACKED).unwrap_or_default()
}

fn requests(log: &PgLog, from: EVersion) -> BTreeSet<(EVersion, OsdReqId)> {
    let entries = log.log.iter().flat_map(|e| {
        let brought = e.extras().extra_reqids.iter().map(|(reqid, _)| *reqid);
        brought.chain([e.reqid]).map(|reqid| (e.version, reqid))
    });
    let all = entries.chain(log.dups.iter().map(|dup| (dup.version, dup.reqid)));
    all.filter(|(version, reqid)| *version >= from && *reqid != OsdReqId::default()).collect()
}

fn unlike<T: Ord + core::fmt::Debug>(one: BTreeSet<T>, other: BTreeSet<T>) -> String {
    let only = |what: Vec<&T>, who| match what.is_empty() {
        true => String::new(),
        false => format!("only the {who} has {what:?}; "),
    };
    only(one.difference(&other).collect(), "first")
        + &only(other.difference(&one).collect(), "second")
}

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use types::osd::PgLogDup;

    use super::*;

    fn entry(version: u64) -> PgLogEntry {
        PgLogEntry {
            version: EVersion::new(9, version),
            prior_version: EVersion::new(9, version - 1),
            reqid: OsdReqId { tid: version, ..OsdReqId::default() },
            ..PgLogEntry::default()
        }
    }

    /// The entries from 1 to 9, those up to `tail` as dups.
    fn kept(tail: u64) -> Kept {
        kept_of(1..=9, tail)
    }

    fn kept_of(versions: RangeInclusive<u64>, tail: u64) -> Kept {
        let (first, head) = versions.into_inner();
        let dup = |version| PgLogDup {
            version: EVersion::new(9, version),
            reqid: OsdReqId { tid: version, ..OsdReqId::default() },
            ..PgLogDup::default()
        };
        let log = PgLog {
            tail: EVersion::new(9, tail),
            head: EVersion::new(9, head),
            log: (tail + 1..=head).map(entry).collect(),
            dups: (first..=tail).map(dup).collect(),
            ..PgLog::default()
        };
        let info = PgInfo { last_update: log.head, ..PgInfo::default() };
        (info, log)
    }

    #[test]
    fn members_may_have_trimmed_more_or_less() {
        assert_eq!(differences(&kept(2), &kept(5)), "");
    }

    /// A life of 3,700 writes to one PG was taken for one that broke its word.
    #[test]
    fn members_may_have_forgotten_what_is_long_past() {
        let last = DUPS_TRACKED as u64 + 900;
        let (one, other) = (kept_of(501..=last, last - 400), kept_of(504..=last, last - 397));
        assert_eq!(differences(&one, &other), "");
        assert_eq!(differences(&other, &one), "");
        let mut damaged = kept_of(504..=last, last - 397);
        damaged.1.dups.remove(1);
        damaged.1.dups.insert(0, one.1.dups[0].clone());
        assert_ne!(differences(&one, &damaged), "");
        let lacking = kept_of(504..=last, last - 400);
        assert_ne!(differences(&one, &lacking), "", "it remembers fewer than it is to");
    }

    /// Only the newest entries were compared: what else two members remembered might differ, and what one did not
    /// know any more showed only if it led the PG and a client asked again.
    #[test]
    fn what_one_member_remembers_otherwise_is_found() {
        type Change = fn(&mut PgLog);
        let changes: [Change; 5] = [
            |log| log.log[2].prior_version = EVersion::new(9, 1),
            |log| log.log[2].soid = HObject { hash: 7, ..HObject::default() },
            |log| log.log[2].reqid.tid = 77,
            |log| drop(log.log.remove(2)),
            |log| drop(log.dups.remove(1)),
        ];
        for change in changes {
            let mut damaged = kept(4);
            change(&mut damaged.1);
            assert_ne!(differences(&kept(2), &damaged), "");
            assert_ne!(differences(&damaged, &kept(2)), "");
        }
    }

    #[test]
    fn requests_from_before_a_split_are_not_compared() {
        let mut split = kept(4);
        split.0.history.last_epoch_split = 8;
        split.1.dups.clear();
        assert_eq!(differences(&split, &kept(4)), "");
    }
}
