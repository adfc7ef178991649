//! What a PG writes about itself: omap keys of its pgmeta object (`src/osd/osd_types.h`,
//! `src/osd/PGLog.cc` at v16.2).
//!
//! ```text
//! _infover   u8 10              _epoch     u32, the map the PG is at
//! _info      pg_info_t          _fastinfo  pg_fast_info_t, newer than _info while it exists
//! _biginfo   past intervals, purged snaps
//! 0000000005.00000000000000000012   a log entry: blob, crc32c
//! dup_0000000005.00000000000000000012   a request of a trimmed entry (and +, of a merged PG)
//! missing/OBJECT                    (object, item)
//! can_rollback_to   eversion_t: no log entry up to it can be undone (erasure coded pools)
//! ```

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Reader, Writer};
use store::{CollId, Key, ObjectStore, StoreError, Transaction};
use types::crc::crc32c;
use types::osd::{
    ObjectStatSum, PastIntervals, PgFastInfo, PgInfo, PgLog, PgLogDup, PgLogEntry, PgMissing,
    PgMissingItem,
};
use types::{EVersion, Epoch, GhObject, HObject};

use super::log::{Few, Log, LogChanges};
use super::missing::Missing;

const INFOVER: &str = "_infover";
const INFO: &str = "_info";
const BIGINFO: &str = "_biginfo";
const FASTINFO: &str = "_fastinfo";
const EPOCH: &str = "_epoch";
const CAN_ROLLBACK_TO: &str = "can_rollback_to";
const MISSING_PREFIX: &str = "missing/";
const DUP_PREFIX: &str = "dup_";
const INFO_VERSION: u8 = 10;
/// Bytes that what a write changes takes: an entry, the fast info, a dup.
const ROOM: usize = 768;
/// Entries read at a time when a PG is loaded, and their bytes.
const PAGE_MAX: usize = 2048;
const PAGE_BYTES_MAX: usize = 4 << 20;

/// The counts that the fast info does not hold.
pub fn slow_counts(info: &PgInfo) -> ObjectStatSum {
    ObjectStatSum {
        num_bytes: 0,
        num_objects: 0,
        num_object_copies: 0,
        num_rd: 0,
        num_rd_kb: 0,
        num_wr: 0,
        num_wr_kb: 0,
        num_objects_dirty: 0,
        ..info.stats.stats.sum
    }
}

/// Keys to set and to remove, for one transaction.
#[derive(Debug, Default)]
pub struct Keys {
    /// From the first key to before the second; removed before anything is set.
    ranges: Vec<(BString, BString)>,
    /// Where the value lies in `values`. In no order; of a key that is there twice the later one
    /// counts.
    set: Vec<(Key, Range<usize>)>,
    /// All values, one behind the other.
    values: Writer,
    remove: BTreeSet<BString>,
    /// The whole info is among what is set.
    whole_info: bool,
    /// Some key was not greater than the one before it.
    disorder: bool,
}

impl Keys {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.remove.is_empty() && self.ranges.is_empty()
    }

    /// The keys to be set.
    #[cfg(test)]
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.set.iter().map(|(key, _)| key)
    }

    fn put(&mut self, key: impl Into<Key>, value: impl FnOnce(&mut Writer)) {
        if self.set.is_empty() {
            self.values = Writer::with_capacity(ROOM);
        }
        let begin = self.values.len();
        value(&mut self.values);
        let key = key.into();
        self.disorder |= self.set.last().is_some_and(|(last, _)| *last >= key);
        self.set.push((key, begin..self.values.len()));
    }

    /// The whole info; past intervals too if they changed.
    pub fn info(&mut self, info: &PgInfo, past: Option<&PastIntervals>, epoch: Epoch) {
        self.whole_info = true;
        self.put(INFO, |w| w.put(info));
        self.put(EPOCH, |w| w.put(&epoch));
        self.put(INFOVER, |w| w.u8(INFO_VERSION));
        self.set.retain(|(key, _)| **key != FASTINFO);
        // It would be taken for newer than the info if that went back.
        self.remove.insert(FASTINFO.into());
        if let Some(past) = past {
            self.put(BIGINFO, |w| {
                w.put(past);
                w.put(&info.purged_snaps);
            });
        }
    }

    /// What a write changes of the info: the fast part, if that is all, else the whole. `written`
    /// are the slow counts that the store has; `true` if the whole info is written.
    pub fn info_of_write(
        &mut self,
        info: &PgInfo,
        epoch: Epoch,
        written: &RefCell<ObjectStatSum>,
    ) -> bool {
        let now = slow_counts(info);
        let whole = *written.borrow() != now;
        if whole {
            written.replace(now);
            self.info(info, None, epoch);
        } else if !self.whole_info {
            self.put(FASTINFO, |w| w.put(&PgFastInfo::of(info)));
        }
        whole
    }

    /// What a write changed, in the order of the keys: of the log, and of the info as
    /// [`Keys::info_of_write`] has it.
    pub fn of_write(
        &mut self,
        mut changes: LogChanges<'_>,
        info: &PgInfo,
        epoch: Epoch,
        written: &RefCell<ObjectStatSum>,
    ) -> bool {
        let dups = std::mem::take(&mut changes.dups_written);
        self.log_of_write(changes);
        let whole = self.info_of_write(info, epoch, written);
        self.dups(dups);
        whole
    }

    /// What changed in the log.
    pub fn log(&mut self, mut changes: LogChanges<'_>) {
        let dups = std::mem::take(&mut changes.dups_written);
        self.log_of_write(changes);
        self.dups(dups);
    }

    /// What a write changed in the log, but for its dups.
    fn log_of_write(&mut self, changes: LogChanges<'_>) {
        if let Some(bound) = changes.can_rollback_to {
            self.put(CAN_ROLLBACK_TO, |w| w.put(&bound));
        }
        let key = |v: &EVersion| BString::from(v.key());
        self.ranges.extend(changes.trimmed.map(|(from, to)| (key(&from), key(&to))));
        let dup = |v: &EVersion| BString::from(&dup_key(v));
        self.ranges.extend(changes.dups_trimmed.map(|(from, to)| (dup(&from), dup(&to))));
        self.remove.extend(changes.removed.iter().map(key));
        for (version, encoding) in changes.written {
            self.put(version.key(), |w| put_entry(w, encoding));
        }
    }

    /// Requests to be remembered.
    fn dups(&mut self, dups: Few<PgLogDup>) {
        for dup in dups {
            // PGs that merged have had the same versions: the keys of the second begin alike, so
            // that trimming finds them. Such dups follow each other.
            let mut key = dup_key(&dup.version);
            if let Some((last, _)) = self.set.last()
                && last.starts_with(key.as_ref())
            {
                key = last.clone();
                key.extend(b"+");
            }
            self.put(key, |w| w.put(&dup));
        }
    }

    /// What changed in the missing set.
    pub fn missing(&mut self, changes: Vec<(HObject, Option<PgMissingItem>)>) {
        for (oid, item) in changes {
            let key = format!("{MISSING_PREFIX}{oid}");
            match item {
                Some(item) => {
                    self.put(key, |w| {
                        w.put(&oid);
                        w.put(&item);
                    });
                }
                None => {
                    self.remove.insert(key.into());
                }
            }
        }
    }

    /// Appends the changes to a transaction.
    pub fn add_to(self, cid: &CollId, pgmeta: &GhObject, t: &mut Transaction) {
        for (from, to) in self.ranges {
            t.omap_rmkeyrange(cid, pgmeta, from, to);
        }
        if !self.remove.is_empty() {
            t.omap_rmkeys(cid, pgmeta, self.remove);
        }
        if !self.set.is_empty() {
            let mut set = self.set;
            if self.disorder {
                // Of equal keys the later comes first, and stays.
                set.reverse();
                set.sort_by(|(a, _), (b, _)| a.cmp(b));
                set.dedup_by(|(a, _), (b, _)| a == b);
            }
            let values = self.values.into_bytes();
            let set = set.into_iter().map(|(key, value)| (key, values.slice(value)));
            t.omap_setkeys(cid, pgmeta, set);
        }
    }
}

/// The key of a request that is remembered.
fn dup_key(v: &EVersion) -> Key {
    let mut key = Key::from(DUP_PREFIX);
    key.extend(&v.key());
    key
}

/// Removes all keys of the log (it is written anew).
pub fn clear_log(cid: &CollId, pgmeta: &GhObject, t: &mut Transaction) {
    t.omap_rmkeyrange(cid, pgmeta, "0", ":");
    t.omap_rmkeyrange(cid, pgmeta, DUP_PREFIX, "dup`");
}

fn put_entry(w: &mut Writer, encoding: &[u8]) {
    w.blob(encoding);
    w.u32(crc32c(0, encoding));
}

fn decode_entry(value: &Bytes) -> Result<PgLogEntry, denc::Error> {
    let mut r = Reader::new(value);
    let body = r.blob()?;
    let crc = r.u32()?;
    if crc32c(0, &body) != crc {
        return Err(denc::Error::Invalid { what: "PG log entry crc", value: crc.into() });
    }
    PgLogEntry::from_bytes(&body)
}

/// A PG as it was written.
pub struct Loaded {
    /// The info.
    pub info: PgInfo,
    /// Intervals since the PG was clean.
    pub past_intervals: PastIntervals,
    /// The map it was at.
    pub epoch: Epoch,
    /// Its log.
    pub log: Log,
    /// Its missing set.
    pub missing: Missing,
}

/// Why a PG cannot be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The store fails.
    Store(StoreError),
    /// The PG was created, but its first transaction is not there: it can be removed.
    Empty,
    /// Something does not decode.
    Damaged(denc::Error),
}

impl From<StoreError> for LoadError {
    fn from(e: StoreError) -> LoadError {
        LoadError::Store(e)
    }
}

impl From<denc::Error> for LoadError {
    fn from(e: denc::Error) -> LoadError {
        LoadError::Damaged(e)
    }
}

/// Reads a PG.
pub async fn load(
    store: &dyn ObjectStore,
    cid: &CollId,
    pgmeta: &GhObject,
) -> Result<Loaded, LoadError> {
    let (mut info, mut fast, mut past) = (None, None, PastIntervals::default());
    let mut epoch = 0;
    let mut log = PgLog::default();
    let mut missing = PgMissing::new();
    let (mut purged, mut can_rollback_to) = (None, None);
    let mut from = BString::default();
    let mut after = false;
    loop {
        let page = match store.omap_range(cid, pgmeta, &from, after, PAGE_MAX, PAGE_BYTES_MAX).await
        {
            Err(StoreError::NoObject) => return Err(LoadError::Empty),
            page => page?,
        };
        for (key, value) in &page.entries {
            let mut r = Reader::new(value);
            match key.as_slice() {
                b"_info" => info = Some(PgInfo::from_bytes(value)?),
                b"_fastinfo" => fast = Some(PgFastInfo::from_bytes(value)?),
                b"_epoch" => epoch = r.u32()?,
                b"_biginfo" => {
                    past = r.get()?;
                    purged = Some(r.get()?);
                }
                b"can_rollback_to" => can_rollback_to = Some(EVersion::from_bytes(value)?),
                k if k.starts_with(MISSING_PREFIX.as_bytes()) => {
                    let oid: HObject = r.get()?;
                    missing.add(oid, r.get()?);
                }
                k if k.starts_with(DUP_PREFIX.as_bytes()) => {
                    log.dups.push_back(PgLogDup::from_bytes(value)?);
                }
                k if k.first().is_some_and(u8::is_ascii_digit) => {
                    log.log.push_back(decode_entry(value)?);
                }
                _ => {}
            }
        }
        let Some((last, _)) = page.entries.last() else { break };
        if !page.more {
            break;
        }
        from = last.clone();
        after = true;
    }
    let mut info = info.ok_or(LoadError::Empty)?;
    if let Some(purged) = purged {
        info.purged_snaps = purged;
    }
    if let Some(fast) = fast {
        fast.try_apply_to(&mut info);
    }
    log.head = info.last_update;
    // Entries are trimmed without writing the whole info.
    let oldest = log.log.front().map(|e| e.version);
    log.tail = info.log_tail;
    if let Some(newest_dup) = log.dups.back().map(|d| d.version)
        && oldest.is_none_or(|oldest| newest_dup < oldest)
    {
        log.tail = log.tail.max(newest_dup);
    }
    let known = log.tail;
    log.tail = known.max(trimmed_to(oldest, known));
    let is_guess = log.tail != known;
    info.log_tail = log.tail;
    log.can_rollback_to = can_rollback_to.map_or(log.head, |bound| log.head.min(bound));
    let mut log = Log::from_wire(log);
    if is_guess {
        log.guess_tail();
    }
    if can_rollback_to.is_some() {
        log.keep_bounds();
    }
    Ok(Loaded { info, past_intervals: past, epoch, log, missing: Missing::from_wire(missing) })
}

/// How far a log was trimmed at least, by its oldest entry. Entries without a request (of clones that
/// were made or trimmed) leave no dup, and versions have no gaps but where entries went to another PG
/// in a split: then the log reaches less far than it could, which costs a backfill at most. A log without
/// entries became so in a split, a merge, when it was rewound or replaced, which all write the whole info
/// (writes alone leave the last one, which not all copies have yet): its tail is known.
fn trimmed_to(oldest: Option<EVersion>, tail: EVersion) -> EVersion {
    match oldest {
        Some(oldest) if oldest.version > tail.version + 1 => {
            EVersion::new(oldest.epoch, oldest.version - 1)
        }
        _ => tail,
    }
}

#[cfg(test)]
mod tests {
    use sim::World;
    use store::memstore::MemStore;
    use types::osd::LogOp;
    use types::{EntityName, OsdReqId, PgId, SpgId};

    use super::*;

    /// A store with a PG that has these keys.
    async fn stored(pgid: SpgId, keys: Keys) -> MemStore {
        let (cid, pgmeta) = (CollId::Pg(pgid), pgid.pgmeta());
        let store = MemStore::new(1 << 20);
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0);
        t.touch(&cid, &pgmeta);
        keys.add_to(&cid, &pgmeta, &mut t);
        store.submit(t).await.unwrap();
        store
    }

    /// Found by `loligo sim --seed 2516`: a clone that one copy lacked for ever.
    ///
    /// 1. The last entry that was trimmed from the log is that of a clone. It has no request, so
    ///    nothing is left of it; the whole info, which says how far the log reaches, is not written.
    /// 2. The OSD restarts. The newest dup is of the entry before the clone's: the log claims to
    ///    reach back to there.
    /// 3. Another, that has all but the clone, is brought up by this log, which does not name it.
    #[test]
    fn a_log_does_not_reach_back_over_a_trimmed_entry_without_a_request() {
        World::new(1).run_until(async move {
            let entry = |version, is_clone| PgLogEntry {
                op: if is_clone { LogOp::CLONE } else { LogOp::MODIFY },
                version: EVersion::new(4, version),
                reqid: match is_clone {
                    true => OsdReqId::default(),
                    false => OsdReqId { name: EntityName::client(1), tid: version, inc: 0 },
                },
                ..PgLogEntry::default()
            };
            let spgid = PgId::new(1, 0).spg();
            let mut log = Log::default();
            let mut info = PgInfo { pgid: spgid, ..PgInfo::default() };
            let mut keys = Keys::default();
            keys.info(&info, None, 4);
            for (version, is_clone) in [(1, false), (2, true), (3, false), (4, false)] {
                log.add(&entry(version, is_clone));
            }
            info.last_update = log.head();
            log.trim(EVersion::new(4, 2), 100);
            keys.log(log.take_changes());
            keys.put(FASTINFO, |w| w.put(&PgFastInfo::of(&info)));
            let store = stored(spgid, keys).await;
            let loaded = load(&store, &CollId::Pg(spgid), &spgid.pgmeta()).await.unwrap();
            assert_eq!(loaded.log.tail(), EVersion::new(4, 2));
            assert_eq!(loaded.info.log_tail, EVersion::new(4, 2));
        });
    }

    /// Found by `loligo sim --seed 50891`: a PG that stayed in activating for ever.
    ///
    /// 1. A copy leads its PG in epoch 33, trims its log up to entry 25'13, which has no request, writes
    ///    33'14, which no other copy gets, and dies.
    /// 2. The others go on without it. It starts again: of the last entry trimmed it knows the number, and
    ///    takes the log to reach back to 33'13.
    /// 3. The primary's log, all of it trimmed, ends with 25'13: before 33'13, so the copy took it for one
    ///    that does not reach its own, and did not follow.
    #[test]
    fn a_log_whose_tail_is_made_up_follows_one_that_ends_there() {
        World::new(1).run_until(async move {
            let spgid = PgId::new(1, 0).spg();
            let mut log = Log::default();
            let mut info = PgInfo { pgid: spgid, ..PgInfo::default() };
            let mut keys = Keys::default();
            keys.info(&info, None, 33);
            for (epoch, version, op) in [(25, 13, LogOp::CLONE), (33, 14, LogOp::MODIFY)] {
                let soid = HObject { name: "object".into(), ..HObject::default() };
                log.add(&PgLogEntry {
                    op,
                    soid,
                    version: EVersion::new(epoch, version),
                    ..PgLogEntry::default()
                });
            }
            info.last_update = log.head();
            info.last_backfill = HObject::max();
            log.trim(EVersion::new(25, 13), 100);
            keys.info(&info, None, 33);
            keys.log(log.take_changes());
            let store = stored(spgid, keys).await;
            let auth_of = |tail: EVersion| PgLog { tail, head: tail, ..PgLog::default() };
            for (tail, follows) in [(EVersion::new(25, 13), true), (EVersion::new(25, 12), false)] {
                let mut loaded = load(&store, &CollId::Pg(spgid), &spgid.pgmeta()).await.unwrap();
                assert_eq!(loaded.log.tail(), EVersion::new(33, 13));
                let (mut info, mut undo) = (loaded.info.clone(), Vec::new());
                let auth = auth_of(tail);
                let merged = loaded.log.merge(
                    &info.clone(),
                    &auth,
                    &mut info,
                    &mut loaded.missing,
                    &mut undo,
                );
                assert_eq!(merged, follows);
                if follows {
                    assert_eq!((loaded.log.tail(), loaded.log.head()), (tail, tail));
                    assert_eq!(loaded.log.len(), 0);
                }
            }
        });
    }

    /// Found by a simulated life (short, 1929): a PG that stayed in activating for ever.
    ///
    /// 1. A copy leads its PG and writes up to 45'241, of which another copy has what comes up to 45'235.
    ///    The PG splits; none of the entries that are left is of the child, whose logs have none.
    /// 2. The copy starts again, and takes the child's log, which has no entries, to be trimmed up to 45'241.
    /// 3. The other leads. Its log ends with 45'235, before what the copy's claims to reach: the copy did
    ///    not follow.
    #[test]
    fn a_log_without_entries_reaches_as_far_as_its_info_says() {
        World::new(1).run_until(async move {
            let spgid = PgId::new(1, 5).spg();
            let at = |version| EVersion::new(45, version);
            let mut keys = Keys::default();
            let info = PgInfo {
                pgid: spgid,
                last_update: at(241),
                log_tail: at(218),
                last_backfill: HObject::max(),
                ..PgInfo::default()
            };
            keys.info(&info, None, 50);
            let store = stored(spgid, keys).await;
            let mut loaded = load(&store, &CollId::Pg(spgid), &spgid.pgmeta()).await.unwrap();
            assert_eq!((loaded.log.tail(), loaded.info.log_tail), (at(218), at(218)));
            let auth = PgLog { tail: at(218), head: at(235), ..PgLog::default() };
            let (mut info, mut undo) = (loaded.info.clone(), Vec::new());
            let auth_info = PgInfo { last_update: at(235), ..info.clone() };
            assert!(loaded.log.merge(&auth_info, &auth, &mut info, &mut loaded.missing, &mut undo));
            assert_eq!((info.last_update, loaded.log.head()), (at(235), at(235)));
            assert!(loaded.missing.is_empty() && undo.is_empty());
        });
    }

    /// What a write's list of entries says is what is stored, whether it is taken from there or, of a
    /// list of several, encoded.
    #[test]
    fn entries_as_sent_are_stored_as_if_encoded() {
        for count in 1..4 {
            let entries: Vec<PgLogEntry> = (1..=count)
                .map(|version| PgLogEntry {
                    version: EVersion::new(4, version),
                    user_version: 70 + version,
                    ..PgLogEntry::default()
                })
                .collect();
            let stored = |add: &dyn Fn(&mut Log)| {
                let mut log = Log::default();
                add(&mut log);
                let mut keys = Keys::default();
                keys.log_of_write(log.take_changes());
                let values = keys.values.into_bytes();
                keys.set
                    .into_iter()
                    .map(|(_, at)| decode_entry(&values.slice(at)).unwrap())
                    .collect::<Vec<_>>()
            };
            assert_eq!(stored(&|log| log.add_all(&entries, &entries.to_bytes())), entries);
            assert_eq!(stored(&|log| entries.iter().for_each(|e| log.add(e))), entries);
        }
    }

    /// Scrub under the simulator's kills found PGs with two objects with omap that said they had
    /// none: writes wrote the fast info alone, which does not hold that count, and a restart lost
    /// it (and clones, whiteouts, scrub errors).
    #[test]
    fn counts_beyond_the_fast_info_are_written() {
        let mut info = PgInfo::default();
        let written = RefCell::new(slow_counts(&info));
        let write = |info: &PgInfo| {
            let mut keys = Keys::default();
            let whole = keys.info_of_write(info, 3, &written);
            assert_eq!(whole, keys.set.iter().any(|(key, _)| **key == INFO));
            assert_eq!(whole, !keys.set.iter().any(|(key, _)| **key == FASTINFO));
            whole
        };
        info.stats.stats.sum.num_objects = 1;
        assert!(!write(&info));
        info.stats.stats.sum.num_objects_omap = 1;
        assert!(write(&info));
        info.stats.stats.sum.num_wr = 7;
        assert!(!write(&info));
        info.stats.stats.sum.num_object_clones = 1;
        assert!(write(&info));
    }
}
