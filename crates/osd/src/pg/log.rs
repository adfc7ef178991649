//! The PG log: the last writes of a PG, in order, and what follows from comparing two of them.
//!
//! ```text
//!        tail (not in the log)                      head == info.last_update
//!          |   e    e    e    e    e    e    e    e
//!   dups --+--------------------------------------> time
//! ```
//!
//! Kept in memory, on a primary with an index by request, and as omap entries of the pgmeta object:
//! `EVersion::key_name` for an entry, `dup_...` for a request remembered after its entry was trimmed,
//! `missing/...` for the missing set (`src/osd/PGLog.cc` at v16.2).
//! Bounds: `osd_max_pg_log_entries` entries (10000) and `osd_pg_log_dups_tracked` dups (3000).

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use smallvec::SmallVec;
use types::osd::{LogOpReturn, PgInfo, PgLog, PgLogDup, PgLogEntry};
use types::{EVersion, HObject, OsdReqId};

use super::missing::Missing;
use dups::Dups;
use entries::Entries;
use requests::Requests;

mod dups;
mod entries;
mod requests;
mod rows;

/// What a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Version of its entry.
    pub version: EVersion,
    /// Version the client was told.
    pub user_version: u64,
    /// Result of the op, of one that failed.
    pub return_code: i32,
    /// What its ops returned.
    pub op_returns: Vec<LogOpReturn>,
}

/// What a change of the log asks of the store, for the same transaction, in order.
#[derive(Debug, Clone, PartialEq)]
pub enum Undo {
    /// The object's data is of no use: remove it.
    Remove(HObject),
    /// The entry did not happen: undo it as its `mod_desc` says.
    Rollback(Rc<PgLogEntry>),
    /// The entry will not be undone: what is kept for that can go.
    Trim(Rc<PgLogEntry>),
}

/// What a write changes of each kind is one, which stands in place.
pub type Few<T> = SmallVec<[T; 1]>;

#[derive(Debug, Clone, Default)]
struct Dirty {
    /// How far entries can be undone.
    bounds: bool,
    /// Everything is to be written anew.
    all: bool,
    written: Few<EVersion>,
    removed: BTreeSet<EVersion>,
    dups_written: Few<PgLogDup>,
    /// The oldest entry and the oldest dup that were trimmed.
    trimmed_from: Option<EVersion>,
    dups_trimmed_from: Option<EVersion>,
}

/// What has to be written of a log.
#[derive(Debug, Default)]
pub struct LogChanges<'a> {
    /// Remove all keys of entries and dups first.
    pub all: bool,
    /// No entry up to here can be undone, if that has to be written.
    pub can_rollback_to: Option<EVersion>,
    /// Entries to write: versions and encodings.
    pub written: Few<(EVersion, &'a [u8])>,
    /// Remove the entries from the first to the second version, before anything is written.
    pub trimmed: Option<(EVersion, EVersion)>,
    /// The same for dups.
    pub dups_trimmed: Option<(EVersion, EVersion)>,
    /// Entries to remove.
    pub removed: BTreeSet<EVersion>,
    /// Dups to write.
    pub dups_written: Few<PgLogDup>,
}

/// The log of one PG on one OSD.
#[derive(Debug, Clone, Default)]
pub struct Log {
    tail: EVersion,
    /// The tail's number is right, its epoch perhaps too new ([`Log::guess_tail`]).
    tail_is_guess: bool,
    head: EVersion,
    entries: Entries,
    dups: Dups,
    /// Made when somebody asks, which on a replica nobody does.
    by_request: OnceCell<Requests>,
    /// Entries up to here cannot be rolled back (all of them, in replicated pools), and nothing is
    /// kept for that: Ceph's `can_rollback_to` and `rollback_info_trimmed_to` in one.
    can_rollback_to: EVersion,
    /// Some entry could be undone once: the bound is kept in the store. In replicated pools never.
    undoable: bool,
    dirty: Dirty,
}

impl Log {
    /// A log read from the store or a message; nothing is dirty.
    pub fn from_wire(wire: PgLog) -> Log {
        let mut log = Log {
            tail: wire.tail,
            head: wire.head,
            can_rollback_to: wire.can_rollback_to,
            undoable: wire.can_rollback_to < wire.head,
            ..Log::default()
        };
        wire.dups.into_iter().for_each(|dup| log.dups.push(dup));
        for e in wire.log {
            log.entries.push(&e, None);
        }
        log
    }

    /// Everything before the oldest entry has been trimmed up to here.
    pub fn tail(&self) -> EVersion {
        self.tail
    }

    /// Version of the newest entry.
    pub fn head(&self) -> EVersion {
        self.head
    }

    /// Whether a log with this head may be a part of this one: so it is if its newest entry is here,
    /// or has been trimmed.
    pub fn reaches(&self, head: EVersion) -> bool {
        head <= self.tail || head == self.head || self.entries.find(head).is_some()
    }

    /// Whether these entries go on where the log ends: each newer than the one before, with the next
    /// number.
    pub fn is_continued_by(&self, entries: &[PgLogEntry]) -> bool {
        let mut last = self.head;
        entries.iter().all(|e| {
            let before = std::mem::replace(&mut last, e.version);
            last > before && before.version.checked_add(1) == Some(last.version)
        })
    }

    /// The tail was made up when the log was loaded: the entry that was trimmed last left nothing, and
    /// its number is known, but of its epoch only that it is no newer than the oldest entry's.
    pub fn guess_tail(&mut self) {
        self.tail_is_guess = true;
    }

    /// Another's log that has the number of a tail that was made up knows which entry that was: what is
    /// trimmed was on all copies.
    fn learn_tail(&mut self, auth: &PgLog) {
        if !self.tail_is_guess || auth.head >= self.tail {
            return;
        }
        let known = auth.log.iter().map(|e| e.version).chain([auth.tail]);
        if let Some(tail) = known.into_iter().find(|v| v.version == self.tail.version) {
            self.tail = tail;
            self.tail_is_guess = false;
        }
    }

    /// The store has a bound of what can be undone: it has to be kept up to date.
    pub fn keep_bounds(&mut self) {
        self.undoable = true;
    }

    /// No entry up to here can be undone.
    pub fn can_rollback_to(&self) -> EVersion {
        self.can_rollback_to
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Oldest first. Decodes each.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = PgLogEntry> {
        self.entries.iter().map(|e| e.whole())
    }

    /// Version of the entry that has `at` older ones.
    pub fn version_at(&self, at: usize) -> Option<EVersion> {
        self.entries.at(at).map(|e| e.version())
    }

    /// Dups, oldest first.
    pub fn dups(&self) -> impl Iterator<Item = PgLogDup> {
        self.dups.iter()
    }

    /// Entries of one object, newest first: looks at all.
    pub fn of_object(&self, oid: &HObject) -> impl Iterator<Item = PgLogEntry> {
        self.entries.iter().rev().filter_map(|e| e.of_object(oid))
    }

    /// Whether the object or one of its clones has an entry above a version; so it may have if
    /// entries above that have been trimmed.
    pub fn has_write_since(&self, oid: &HObject, bound: EVersion) -> bool {
        let head = oid.as_head();
        self.tail > bound
            || self
                .entries
                .iter()
                .rev()
                .take_while(|e| e.version() > bound)
                .any(|e| e.hash == head.hash && e.whole().soid.as_head() == head)
    }

    /// The newest entry of an object that changed it: looks at all.
    pub fn newest_of(&self, oid: &HObject) -> Option<PgLogEntry> {
        self.entries.iter().rev().filter(|e| !e.is_error()).find_map(|e| e.of_object(oid))
    }

    /// An interval begins: who led the PG may follow now, and be asked for no request.
    pub fn forget_index(&mut self) {
        self.by_request.take();
        self.dups.forget_index();
    }

    /// Whether a request was answered before.
    pub fn request(&self, reqid: &OsdReqId) -> Option<Answered> {
        let requests = self.by_request.get_or_init(|| Requests::of(&self.entries));
        if let Some(e) = requests.find(&self.entries, reqid) {
            let op_returns = e.says_more().then(|| e.whole().extras().op_returns.clone());
            return Some(Answered {
                version: e.version(),
                user_version: e.user_version,
                return_code: e.return_code,
                op_returns: op_returns.unwrap_or_default(),
            });
        }
        if let Some(e) = requests.find_brought(&self.entries, reqid) {
            let e = e.whole();
            let extras = e.extras();
            let extra = extras.extra_reqids.iter().position(|(r, _)| r == reqid)?;
            let code = extras.extra_reqid_return_codes.get(&(extra as u32)).copied();
            return Some(Answered {
                version: e.version,
                user_version: extras.extra_reqids[extra].1,
                return_code: code.unwrap_or(0),
                op_returns: extras.op_returns.clone(),
            });
        }
        let dup = self.dups.find(reqid)?;
        Some(Answered {
            version: dup.version,
            user_version: dup.user_version,
            return_code: dup.return_code,
            op_returns: dup.op_returns,
        })
    }

    /// Entries above `since`, oldest first. Decodes each.
    pub fn after(&self, since: EVersion) -> impl Iterator<Item = PgLogEntry> {
        self.entries.from(self.entries.count_up_to(since)).map(|e| e.whole())
    }

    /// The part above `since` as messages carry it, with the dups.
    pub fn wire_after(&self, since: EVersion) -> PgLog {
        // The tail is an entry both logs may have, or divergence would go unseen.
        let below = self.entries.count_up_to(since);
        let newest_below = below.checked_sub(1).and_then(|at| self.version_at(at));
        PgLog {
            head: self.head,
            tail: newest_below.unwrap_or(self.tail),
            can_rollback_to: self.can_rollback_to,
            rollback_info_trimmed_to: self.can_rollback_to,
            log: self.after(since).collect(),
            dups: self.dups.iter().collect(),
        }
    }

    /// All of it as messages carry it.
    pub fn wire(&self) -> PgLog {
        self.wire_after(self.tail)
    }

    /// The newest `max` entries as messages carry them; of those before the requests, as dups
    /// (`_handle_dups` in `src/osd/osd_types.cc`).
    pub fn wire_newest(&self, max: usize) -> PgLog {
        let skip = self.entries.len().saturating_sub(max);
        let newest_skipped = skip.checked_sub(1).and_then(|at| self.version_at(at));
        let mut wire = self.wire_after(newest_skipped.unwrap_or(self.tail));
        wire.dups.extend(self.entries.iter().take(skip).flat_map(|e| e.dups()));
        wire
    }

    /// Appends the next entry; neither it nor those before it can be undone.
    pub fn add(&mut self, e: &PgLogEntry) {
        self.append(e, None);
        self.cannot_be_undone();
    }

    /// The same of all entries of a write; `wire` is their list as messages carry it.
    pub fn add_all(&mut self, entries: &[PgLogEntry], wire: &[u8]) {
        match entries {
            [] => return,
            // Nearly always: what follows the count is its encoding.
            [e] => self.append(e, wire.strip_prefix(&1_u32.to_le_bytes())),
            several => several.iter().for_each(|e| self.append(e, None)),
        }
        self.cannot_be_undone();
    }

    /// Appends the next entry, which can be undone until [`Self::roll_forward`] comes to it.
    pub fn add_undoable(&mut self, e: &PgLogEntry) {
        self.append(e, None);
        self.undoable = true;
        self.dirty.bounds = true;
    }

    fn append(&mut self, e: &PgLogEntry, encoding: Option<&[u8]>) {
        debug_assert!(e.version > self.head, "{} after {}", e.version, self.head);
        self.head = e.version;
        let number = self.entries.push(e, encoding);
        if let Some(requests) = self.by_request.get_mut() {
            requests.insert(&self.entries, number);
        }
        self.dirty.written.push(e.version);
    }

    /// Of the newest entry and those before it.
    fn cannot_be_undone(&mut self) {
        self.can_rollback_to = self.head;
        self.dirty.bounds |= self.undoable;
    }

    /// No entry up to `to` will be undone: what is kept for those can go.
    pub fn roll_forward(&mut self, to: EVersion) -> Vec<Undo> {
        let to = to.min(self.head);
        if to <= self.can_rollback_to {
            return Vec::new();
        }
        let done = self.kept_up_to(to);
        self.can_rollback_to = to;
        self.dirty.bounds |= self.undoable;
        done
    }

    /// The entries up to `to` that can be undone.
    fn kept_up_to(&self, to: EVersion) -> Vec<Undo> {
        let above = self.entries.from(self.entries.count_up_to(self.can_rollback_to));
        let undoable = above.take_while(|e| e.version() <= to).filter(|e| e.can_be_undone());
        undoable.map(|e| Undo::Trim(Rc::new(e.whole()))).collect()
    }

    /// Drops entries up to `to`, remembering the requests of the newest `dups_max` dropped ones.
    /// Those that can be undone stay.
    pub fn trim(&mut self, to: EVersion, dups_max: usize) {
        let to = if self.undoable { to.min(self.can_rollback_to) } else { to };
        while let Some(e) = self.entries.oldest().filter(|e| e.version() <= to) {
            let (version, dups) = (e.version(), e.dups());
            if let Some(requests) = self.by_request.get_mut() {
                requests.remove(&self.entries, self.entries.oldest_number());
            }
            self.entries.pop();
            self.tail = version;
            self.tail_is_guess = false;
            self.dirty.trimmed_from.get_or_insert(version);
            dups.into_iter().for_each(|dup| self.remember_dup(dup));
        }
        self.tail = self.tail.max(to.min(self.head));
        while self.dups.len() > dups_max {
            if let Some(version) = self.dups.pop() {
                self.dirty.dups_trimmed_from.get_or_insert(version);
            }
        }
    }

    fn remember_dup(&mut self, dup: PgLogDup) {
        self.dirty.dups_written.push(dup.clone());
        self.dups.push(dup);
    }

    /// Takes the entries above `to` off the head, oldest first.
    fn rewind(&mut self, to: EVersion) -> Vec<Rc<PgLogEntry>> {
        let from = self.entries.count_up_to(to);
        let divergent: Vec<_> = self.entries.from(from).map(|e| Rc::new(e.whole())).collect();
        self.entries.truncate(from);
        self.head = to;
        if to < self.can_rollback_to {
            self.can_rollback_to = to;
            self.dirty.bounds |= self.undoable;
        }
        for e in &divergent {
            self.dirty.removed.insert(e.version);
        }
        if !divergent.is_empty() {
            self.by_request.take();
        }
        divergent
    }

    /// Replaces the whole log (a backfill begins).
    pub fn reset_to(&mut self, wire: PgLog) {
        let undoable = self.undoable;
        *self = Log::from_wire(wire);
        // The entries are of others: nothing is kept here to undo them.
        self.can_rollback_to = self.head;
        self.undoable = undoable;
        self.dirty.bounds = undoable;
        self.dirty.all = true;
        self.dirty.written = self.entries.iter().map(|e| e.version()).collect();
        self.dirty.dups_written = self.dups.iter().collect();
    }

    /// Whether something has to be written.
    pub fn is_dirty(&self) -> bool {
        let d = &self.dirty;
        d.all
            || d.bounds
            || !(d.written.is_empty()
                && d.removed.is_empty()
                && d.dups_written.is_empty()
                && d.trimmed_from.is_none()
                && d.dups_trimmed_from.is_none())
    }

    /// What changed since the last call. Something both written and removed is only removed.
    pub fn take_changes(&mut self) -> LogChanges<'_> {
        let dirty = std::mem::take(&mut self.dirty);
        // An entry may have been removed and then written anew under the same version (its epoch
        // differs else): the newest state decides.
        let live = |v: EVersion| self.entries.find(v);
        let oldest_dup = self.dups.oldest();
        let live_dup = |v: EVersion| oldest_dup.is_some_and(|oldest| v >= oldest);
        // Dups are never newer than the tail.
        let dups_end = oldest_dup.unwrap_or(self.tail.next());
        LogChanges {
            all: dirty.all,
            can_rollback_to: dirty.bounds.then_some(self.can_rollback_to),
            // Empty if the tail went back meanwhile.
            trimmed: dirty.trimmed_from.map(|from| (from, self.tail.next())).filter(|(a, b)| a < b),
            dups_trimmed: dirty
                .dups_trimmed_from
                .map(|from| (from, dups_end))
                .filter(|(a, b)| a < b),
            removed: dirty.removed.into_iter().filter(|v| live(*v).is_none()).collect(),
            written: dirty
                .written
                .into_iter()
                .filter_map(|v| live(v).map(|e| (v, e.encoding())))
                .collect(),
            dups_written: dirty.dups_written.into_iter().filter(|d| live_dup(d.version)).collect(),
        }
    }

    /// Makes this log follow an authoritative one: throws divergent entries out, takes its newer
    /// ones, and notes in `missing` what is not here any more or not yet. What is to be done about
    /// objects' data is added to `undo`: it belongs into the same transaction.
    ///
    /// Returns `false`, having done nothing, if the logs do not overlap (a backfill is needed).
    pub fn merge(
        &mut self,
        auth_info: &PgInfo,
        auth: &PgLog,
        info: &mut PgInfo,
        missing: &mut Missing,
        undo: &mut Vec<Undo>,
    ) -> bool {
        self.learn_tail(auth);
        if auth.head < self.tail || auth.tail > self.head {
            return false;
        }
        self.extend_tail(auth);
        if auth.head < self.head {
            self.rewind_divergent(auth.head, info, missing, undo);
        } else if auth.head > self.head {
            // The newest entry both may have: divergence begins above it.
            let mut lower = auth.tail.max(self.tail);
            if let Some(e) = auth.log.iter().rev().find(|e| e.version <= self.head) {
                lower = lower.max(e.version);
            }
            // The newer entries are of others: neither they nor those before can be undone here.
            undo.extend(self.kept_up_to(lower));
            let could_undo_from = self.can_rollback_to;
            let divergent = self.rewind(lower);
            for e in auth.log.iter().filter(|e| e.version > lower) {
                if e.soid <= info.last_backfill {
                    missing.add_next_event(e);
                }
                self.add(e);
            }
            self.head = auth.head;
            merge_divergent(self, &divergent, could_undo_from, info, missing, Some(undo));
            info.last_update = self.head;
            info.last_user_version = auth_info.last_user_version;
            info.purged_snaps = auth_info.purged_snaps.clone();
        }
        self.merge_dups(auth);
        info.log_tail = self.tail;
        true
    }

    /// Entries and dups older than ours come for free.
    fn extend_tail(&mut self, auth: &PgLog) {
        if auth.tail >= self.tail {
            return;
        }
        let mut all = Entries::default();
        for e in auth.log.iter().filter(|e| e.version <= self.tail) {
            self.dirty.written.push(e.version);
            all.push(e, None);
        }
        self.tail = auth.tail;
        if all.is_empty() {
            return;
        }
        self.entries.iter().for_each(|e| all.push_kept(e));
        self.entries = all;
        self.by_request.take();
    }

    fn merge_dups(&mut self, auth: &PgLog) {
        let newest = self.dups.newest().unwrap_or(EVersion::ZERO);
        let tail = self.tail;
        let newer: Vec<PgLogDup> =
            auth.dups.iter().filter(|d| d.version > newest && d.version <= tail).cloned().collect();
        newer.into_iter().for_each(|dup| self.remember_dup(dup));
    }

    /// Throws out the entries above `to`.
    pub fn rewind_divergent(
        &mut self,
        to: EVersion,
        info: &mut PgInfo,
        missing: &mut Missing,
        undo: &mut Vec<Undo>,
    ) {
        let could_undo_from = self.can_rollback_to;
        let divergent = self.rewind(to);
        info.last_update = to;
        info.last_complete = info.last_complete.min(to);
        merge_divergent(self, &divergent, could_undo_from, info, missing, Some(undo));
    }

    /// Finds out what a peer will lack once it follows this log: `peer_info` and `peer_missing`
    /// are changed as the peer will change its own when it merges this log.
    pub fn judge_peer(&self, peer_info: &mut PgInfo, peer_log: PgLog, peer_missing: &mut Missing) {
        if peer_log.head < self.tail || peer_log.head == self.head {
            return;
        }
        // The newest of our entries that the peer may have.
        let limit = self.tail.max(peer_log.tail);
        let common = self.entries.count_up_to(peer_log.head).checked_sub(1);
        let last_update =
            common.and_then(|at| self.version_at(at)).map_or(limit, |version| version.max(limit));
        Log::judge_peer_above(last_update, peer_info, peer_log, peer_missing);
    }

    /// Finds out what a peer will lack once it has thrown out its entries above `happened`.
    pub fn judge_peer_above(
        happened: EVersion,
        peer_info: &mut PgInfo,
        peer_log: PgLog,
        peer_missing: &mut Missing,
    ) {
        let mut theirs = Log::from_wire(peer_log);
        let could_undo_from = theirs.can_rollback_to;
        let divergent = theirs.rewind(happened);
        // Whether an object changed again in our log is seen when our newer entries are added to
        // the peer's missing set at activation; here the peer's own log decides.
        merge_divergent(&theirs, &divergent, could_undo_from, peer_info, peer_missing, None);
        peer_info.last_update = peer_info.last_update.min(happened);
        peer_info.last_complete = last_complete_of(&theirs, peer_info.last_update, peer_missing);
    }

    /// The newest version up to which nothing is missing.
    pub fn last_complete(&self, last_update: EVersion, missing: &Missing) -> EVersion {
        last_complete_of(self, last_update, missing)
    }

    /// Takes the entries of objects for which `leaves` holds into another log (a split). Both
    /// keep the bounds.
    pub fn split(&mut self, leaves: impl Fn(&HObject) -> bool) -> Log {
        let mut child = Log {
            tail: self.tail,
            head: self.head,
            can_rollback_to: self.can_rollback_to,
            undoable: self.undoable,
            ..Log::default()
        };
        child.dirty.bounds = self.undoable;
        let all = std::mem::take(&mut self.entries);
        self.by_request.take();
        for e in all.iter() {
            if leaves(&e.whole().soid) {
                self.dirty.removed.insert(e.version());
                child.dirty.written.push(e.version());
                child.entries.push_kept(e);
            } else {
                self.entries.push_kept(e);
            }
        }
        self.dups.iter().for_each(|dup| child.remember_dup(dup));
        child
    }
}

impl Log {
    /// Before a merge: all entries stand, and only their requests are remembered. Returns what is to
    /// be done with what was kept to undo them.
    pub fn retire(&mut self, dups_max: usize) -> Vec<Undo> {
        let undo = self.roll_forward(self.head);
        self.trim(self.head, dups_max);
        undo
    }

    /// Takes the requests of other logs in, all of which are [retired](Self::retire), as this one
    /// is; the log is at `last_update` then (`IndexedLog::merge_from` in `src/osd/PGLog.h`).
    pub fn merge_from(&mut self, others: &[&Log], last_update: EVersion) {
        debug_assert!(self.is_empty() && others.iter().all(|other| other.is_empty()));
        let mut dups: Vec<PgLogDup> = self.dups.iter().collect();
        dups.extend(others.iter().flat_map(|other| other.dups.iter()));
        dups.sort_by_key(|dup| dup.version);
        let undoable = self.undoable || others.iter().any(|other| other.undoable);
        *self = Log {
            tail: last_update,
            head: last_update,
            can_rollback_to: last_update,
            undoable,
            ..Log::default()
        };
        dups.iter().for_each(|dup| self.dups.push(dup.clone()));
        self.dirty =
            Dirty { all: true, bounds: undoable, dups_written: dups.into(), ..Dirty::default() };
    }
}

fn last_complete_of(log: &Log, last_update: EVersion, missing: &Missing) -> EVersion {
    let Some(need) = missing.oldest_need() else { return last_update };
    let newest_below =
        log.entries.count_below(need).checked_sub(1).and_then(|at| log.version_at(at));
    match newest_below {
        Some(version) => version.min(last_update),
        None if log.tail < need => log.tail,
        // What is needed is older than all that the log tells of.
        None => EVersion::ZERO,
    }
}

/// What becomes of objects changed by entries that never happened. `log` no longer has them.
/// Cases as in `_merge_object_divergent_entries` (`src/osd/PGLog.h`):
///
/// | the object                                   | then                                    |
/// |----------------------------------------------|-----------------------------------------|
/// | changed again in the authoritative log       | ours is useless: removed, missing from 0 |
/// | was created by the divergent entries         | removed, not missing                    |
/// | was missing, and what we have is what it was | not missing                             |
/// | was missing otherwise                        | needs what it was before                |
/// | was changed by entries that can all be undone| is what it was before                   |
/// | else                                         | removed, needs what it was before       |
///
/// Entries above `could_undo_from` can be undone, if they say how.
fn merge_divergent(
    log: &Log,
    divergent: &[Rc<PgLogEntry>],
    could_undo_from: EVersion,
    info: &PgInfo,
    missing: &mut Missing,
    mut undo: Option<&mut Vec<Undo>>,
) {
    if env::mutant("keep-divergent") {
        return;
    }
    let undoable = |e: &PgLogEntry| e.mod_desc.can_local_rollback && e.version > could_undo_from;
    let mut by_object: BTreeMap<&HObject, Vec<&Rc<PgLogEntry>>> = BTreeMap::new();
    for e in divergent.iter().filter(|e| !e.is_error()) {
        by_object.entry(&e.soid).or_default().push(e);
    }
    // Of the entries that are here only those are decoded that may be of such an object.
    let hashes: BTreeSet<u32> = by_object.keys().map(|oid| oid.hash).collect();
    let candidates = log.entries.iter().filter(|e| !e.is_error() && hashes.contains(&e.hash));
    let changed = candidates.map(|e| e.whole()).filter(|e| by_object.contains_key(&e.soid));
    let newest: BTreeMap<HObject, EVersion> = changed.map(|e| (e.soid, e.version)).collect();
    for (oid, entries) in by_object {
        if *oid > info.last_backfill {
            continue;
        }
        let first = entries[0];
        let prior = first.prior_version;
        let last_is_delete = entries.last().is_some_and(|e| e.is_delete());
        let mut remove = |needed: bool| {
            let Some(undo) = undo.as_deref_mut() else { return };
            if needed {
                undo.push(Undo::Remove(oid.clone()));
            }
            // Missing may be only what the authoritative log has made of it since.
            let kept = entries.iter().filter(|e| undoable(e));
            undo.extend(kept.map(|e| Undo::Trim((*e).clone())));
        };
        // An object that is missing or deleted here has no data of the divergent versions, but
        // perhaps of an older one: removing what is not there does nothing.
        if newest.get(oid).is_some_and(|newest| *newest >= first.version) {
            missing.revise_have(oid, EVersion::ZERO);
            remove(true);
        } else if prior.is_zero() || first.is_clone() {
            missing.remove(oid);
            remove(true);
        } else if let Some(item) = missing.get(oid) {
            if item.have == prior {
                missing.remove(oid);
            } else {
                missing.revise_need(oid, prior, false);
            }
        } else if entries.iter().all(|e| undoable(e)) {
            if let Some(undo) = undo.as_deref_mut() {
                undo.extend(entries.iter().rev().map(|e| Undo::Rollback((*e).clone())));
            }
        } else {
            remove(!last_is_delete);
            missing.add(oid, prior, EVersion::ZERO, false);
        }
    }
}

#[cfg(test)]
mod tests;
