//! The entries of a PG's log, oldest first.
//!
//! Each write appends one and trims one that was appended thousands of writes ago and has long left
//! the processor's caches. So what that takes of an entry stands in a slot, which is one line of a
//! cache, and the whole entry is there as its encoding alone: one behind the other, in chunks that
//! are given back when the last of their entries goes. Who asks for an entry has it decoded.
//!
//! ```text
//! slots     | s | s | s | s | s | s | s |         64 bytes each
//!             |   |   |   |   |   |   |
//! chunks    | e   e   e   e    | e   e   e    |   4 KiB each; of a larger entry its own
//! ```

use std::collections::VecDeque;
use std::ops::Deref;

use bytes::Bytes;
use denc::Denc;
use smallvec::SmallVec;
use types::osd::{PgLogDup, PgLogEntry};
use types::{EVersion, EntityName, HObject, OsdReqId};

use super::rows::Rows;

/// Slots of one piece: 4 KiB, as much as a piece of dups or a chunk.
const PIECE: usize = 64;
/// Bytes of a chunk. An entry of a replicated pool takes some 250.
const CHUNK: usize = 4096;
/// Bytes that an entry takes of which no encoding is at hand; one that can be undone takes more.
const ROOM: usize = 1024;

/// [`Slot::flags`].
const IS_ERROR: u8 = 1;
const REQID_IS_INDEXED: u8 = 2;
const CAN_BE_UNDONE: u8 = 4;
const SAYS_MORE: u8 = 8;

/// What is asked of an entry that was not used for long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Slot {
    version: u64,
    /// Version the client was told.
    pub(super) user_version: u64,
    client: i64,
    tid: u64,
    epoch: u32,
    inc: i32,
    /// Result of the request.
    pub(super) return_code: i32,
    /// The object's.
    pub(super) hash: u32,
    /// Number of the chunk, where the encoding begins there, and its length.
    chunk: u32,
    begin: u32,
    len: u32,
    client_kind: u8,
    flags: u8,
}

const _: () = assert!(size_of::<Slot>() == 64);

impl Slot {
    /// Of an entry that lies nowhere yet.
    fn of(e: &PgLogEntry) -> Slot {
        let extras = e.extras();
        let says_more = !(extras.extra_reqids.is_empty() && extras.op_returns.is_empty());
        let flag = |holds: bool, flag: u8| if holds { flag } else { 0 };
        Slot {
            version: e.version.version,
            user_version: e.user_version,
            client: e.reqid.name.num,
            tid: e.reqid.tid,
            epoch: e.version.epoch,
            inc: e.reqid.inc,
            return_code: e.return_code,
            hash: e.soid.hash,
            chunk: 0,
            begin: 0,
            len: 0,
            client_kind: e.reqid.name.kind,
            flags: flag(e.is_error(), IS_ERROR)
                | flag(e.reqid_is_indexed(), REQID_IS_INDEXED)
                | flag(e.mod_desc.can_local_rollback, CAN_BE_UNDONE)
                | flag(says_more, SAYS_MORE),
        }
    }

    pub(super) fn version(&self) -> EVersion {
        EVersion::new(self.epoch, self.version)
    }

    pub(super) fn reqid(&self) -> OsdReqId {
        let name = EntityName::new(self.client_kind, self.client);
        OsdReqId { name, tid: self.tid, inc: self.inc }
    }

    pub(super) fn is_error(&self) -> bool {
        self.flags & IS_ERROR != 0
    }

    /// [`PgLogEntry::reqid_is_indexed`].
    pub(super) fn reqid_is_indexed(&self) -> bool {
        self.flags & REQID_IS_INDEXED != 0
    }

    /// Whether it says how.
    pub(super) fn can_be_undone(&self) -> bool {
        self.flags & CAN_BE_UNDONE != 0
    }

    /// Whether its ops returned something or its object brought requests along: that is asked of
    /// the entry.
    pub(super) fn says_more(&self) -> bool {
        self.flags & SAYS_MORE != 0
    }
}

/// An entry that is here: its slot, and behind that the rest.
#[derive(Clone, Copy)]
pub(super) struct Kept<'a> {
    entries: &'a Entries,
    slot: &'a Slot,
}

impl Deref for Kept<'_> {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        self.slot
    }
}

impl<'a> Kept<'a> {
    /// As it was given, or as [`PgLogEntry::encode`] has it.
    pub(super) fn encoding(&self) -> &'a [u8] {
        let (at, begin) = (self.entries.chunk_at(self.slot), self.slot.begin as usize);
        &self.entries.chunks[at][begin..begin + self.slot.len as usize]
    }

    /// The entry itself.
    pub(super) fn whole(&self) -> PgLogEntry {
        let encoding = Bytes::copy_from_slice(self.encoding());
        // It was encoded here, or decoded before it came here. If it does not decode now, memory is
        // bad or the code is, and an entry that were left out would be a write that is lost.
        PgLogEntry::from_bytes(&encoding).expect("an entry that could be decoded before")
    }

    /// The entry itself, if it is one of the object.
    pub(super) fn of_object(&self, oid: &HObject) -> Option<PgLogEntry> {
        (self.slot.hash == oid.hash).then(|| self.whole()).filter(|e| e.soid == *oid)
    }

    /// What is remembered of it when it is not in the log any more: its request, and those that its
    /// object brought from elsewhere.
    pub(super) fn dups(&self) -> SmallVec<[PgLogDup; 1]> {
        let mut own = self.slot.reqid_is_indexed().then(|| PgLogDup {
            reqid: self.slot.reqid(),
            version: self.slot.version(),
            user_version: self.slot.user_version,
            return_code: self.slot.return_code,
            op_returns: Vec::new(),
        });
        if !self.slot.says_more() {
            return own.into_iter().collect();
        }
        let e = self.whole();
        let extras = e.extras();
        if let Some(own) = &mut own {
            own.op_returns.clone_from(&extras.op_returns);
        }
        let brought =
            (0_u32..).zip(&extras.extra_reqids).map(|(at, &(reqid, user_version))| PgLogDup {
                reqid,
                version: e.version,
                user_version,
                return_code: extras.extra_reqid_return_codes.get(&at).copied().unwrap_or(0),
                op_returns: Vec::new(),
            });
        own.into_iter().chain(brought).collect()
    }
}

/// Entries in order. Each has a number, by which others may know it for as long as it is here.
/// As many as [`super::Log::trim`] leaves.
#[derive(Debug, Clone, Default)]
pub(super) struct Entries {
    slots: Rows<Slot, PIECE>,
    /// Number of the oldest. The next ones follow; behind the last number comes 0.
    first: u32,
    /// Each has its room from the beginning and does not grow. None without an entry.
    chunks: VecDeque<Vec<u8>>,
    /// Number of the oldest chunk, as with entries.
    first_chunk: u32,
}

impl Entries {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn at(&self, at: usize) -> Option<Kept<'_>> {
        self.slots.at(at).map(|slot| Kept { entries: self, slot })
    }

    pub(super) fn oldest(&self) -> Option<Kept<'_>> {
        self.at(0)
    }

    pub(super) fn newest(&self) -> Option<Kept<'_>> {
        self.at(self.len().checked_sub(1)?)
    }

    /// Number of the oldest.
    pub(super) fn oldest_number(&self) -> u32 {
        self.first
    }

    pub(super) fn by_number(&self, number: u32) -> Kept<'_> {
        let at = number.wrapping_sub(self.first) as usize;
        self.at(at).expect("the number of an entry that is here")
    }

    /// Oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = Kept<'_>> {
        self.from(0)
    }

    /// The same without the oldest `at`.
    pub(super) fn from(&self, at: usize) -> impl DoubleEndedIterator<Item = Kept<'_>> {
        (at..self.len()).filter_map(|at| self.at(at))
    }

    /// Oldest first, with their numbers.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u32, Kept<'_>)> {
        self.iter().enumerate().map(|(at, e)| (self.first.wrapping_add(at as u32), e))
    }

    /// How many are older than a version.
    pub(super) fn count_below(&self, version: EVersion) -> usize {
        self.slots.partition_point(|slot| slot.version() < version)
    }

    /// How many are of a version or older.
    pub(super) fn count_up_to(&self, version: EVersion) -> usize {
        self.slots.partition_point(|slot| slot.version() <= version)
    }

    /// The entry of a version.
    pub(super) fn find(&self, version: EVersion) -> Option<Kept<'_>> {
        let is_found = |e: &Kept<'_>| e.version() == version;
        // It is asked of the newest, and numbers have gaps only where entries went to another PG.
        let behind = self.newest()?.slot.version.checked_sub(version.version);
        let at = behind.and_then(|behind| (self.len() - 1).checked_sub(behind as usize));
        at.and_then(|at| self.at(at).filter(is_found))
            .or_else(|| self.at(self.count_below(version)).filter(is_found))
    }

    /// Adds the newest and says its number. `encoding`, if there is one already, decodes to it.
    pub(super) fn push(&mut self, e: &PgLogEntry, encoding: Option<&[u8]>) -> u32 {
        match encoding {
            Some(encoding) => {
                debug_assert!(
                    PgLogEntry::from_bytes(&Bytes::copy_from_slice(encoding))
                        .is_ok_and(|decoded| decoded.to_bytes() == e.to_bytes()),
                    "{e:?} is not {encoding:?}",
                );
                self.put(Slot::of(e), encoding)
            }
            None => self.put(Slot::of(e), &e.to_bytes_in(ROOM)),
        }
    }

    /// Adds one of others as the newest.
    pub(super) fn push_kept(&mut self, e: Kept<'_>) {
        self.put(*e.slot, e.encoding());
    }

    fn put(&mut self, slot: Slot, encoding: &[u8]) -> u32 {
        let has_room = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() >= encoding.len();
        if !self.chunks.back().is_some_and(has_room) {
            self.chunks.push_back(Vec::with_capacity(encoding.len().max(CHUNK)));
        }
        let number = self.first.wrapping_add(self.len() as u32);
        let at = self.chunks.len() - 1;
        let chunk = &mut self.chunks[at];
        self.slots.push(Slot {
            chunk: self.first_chunk.wrapping_add(at as u32),
            begin: chunk.len() as u32,
            len: encoding.len() as u32,
            ..slot
        });
        chunk.extend_from_slice(encoding);
        number
    }

    /// Takes the oldest out.
    pub(super) fn pop(&mut self) {
        if self.slots.pop().is_none() {
            return;
        }
        self.first = self.first.wrapping_add(1);
        let gone = self.slots.at(0).map_or(self.chunks.len(), |oldest| self.chunk_at(oldest));
        self.chunks.drain(..gone);
        self.first_chunk = self.first_chunk.wrapping_add(gone as u32);
    }

    /// Leaves the oldest `len`. The numbers of the others are given again.
    pub(super) fn truncate(&mut self, len: usize) {
        self.slots.truncate(len);
        let Some(newest) = self.newest().map(|e| *e.slot) else { return self.chunks.clear() };
        let at = self.chunk_at(&newest);
        self.chunks.truncate(at + 1);
        self.chunks[at].truncate((newest.begin + newest.len) as usize);
    }

    /// Where the chunk of a slot is among those that are here.
    fn chunk_at(&self, slot: &Slot) -> usize {
        slot.chunk.wrapping_sub(self.first_chunk) as usize
    }
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;
    use types::osd::{LogOp, LogOpReturn};

    use super::*;

    /// Mostly what a client's write leaves, and whatever else an entry can say.
    fn entry(version: u64, choices: &mut Choices) -> PgLogEntry {
        let mut below = |n| choices.below(n);
        let mut e = PgLogEntry {
            op: LogOp([1, 1, 1, 2, 3, 10][below(6) as usize]),
            soid: HObject {
                name: "n".repeat(below(60) as usize).into(),
                hash: below(4) as u32,
                ..HObject::default()
            },
            version: EVersion::new(3 + (version / 100) as u32, version),
            prior_version: EVersion::new(2, version / 2),
            user_version: version + below(9),
            reqid: OsdReqId {
                name: EntityName::client(4100 + below(3) as i64),
                tid: below(60),
                inc: 0,
            },
            return_code: -(below(3) as i32),
            ..PgLogEntry::default()
        };
        e.mod_desc.can_local_rollback = below(2) == 0;
        match below(24) {
            0 => e.reqid.name.num = 1 << 40,
            1 => e.reqid.name = EntityName::osd(-1),
            2 => e.reqid.inc = 3,
            3 => e.reqid = OsdReqId::default(),
            4 => {
                let brought = OsdReqId { tid: 7, ..e.reqid };
                let extras = e.extras_mut();
                extras.extra_reqids = vec![(brought, 5), (brought, 6)];
                extras.extra_reqid_return_codes.insert(1, -2);
            }
            5 => {
                let len = below(3 * CHUNK as u64) as usize;
                let outdata = Bytes::from(vec![1; len]);
                e.extras_mut().op_returns = vec![LogOpReturn { rval: 1, outdata }];
            }
            6 => e.extras_mut().snaps = vec![4_u64, 2].to_bytes(),
            _ => {}
        }
        e
    }

    /// What is to be remembered of an entry.
    fn dups_of(e: &PgLogEntry) -> Vec<PgLogDup> {
        let extras = e.extras();
        let brought =
            (0_u32..).zip(&extras.extra_reqids).map(|(at, &(reqid, user_version))| PgLogDup {
                reqid,
                version: e.version,
                user_version,
                return_code: extras.extra_reqid_return_codes.get(&at).copied().unwrap_or(0),
                op_returns: Vec::new(),
            });
        e.reqid_is_indexed().then(|| PgLogDup::of(e)).into_iter().chain(brought).collect()
    }

    fn same(kept: Kept<'_>, e: &PgLogEntry) -> bool {
        let extras = e.extras();
        let asked = (kept.version(), kept.user_version, kept.reqid(), kept.return_code, kept.hash);
        let flags = (kept.is_error(), kept.reqid_is_indexed(), kept.can_be_undone());
        let is_plain = extras.op_returns.is_empty() && extras.extra_reqids.is_empty();
        asked == (e.version, e.user_version, e.reqid, e.return_code, e.soid.hash)
            && flags == (e.is_error(), e.reqid_is_indexed(), e.mod_desc.can_local_rollback)
            && kept.says_more() != is_plain
            && kept.dups()[..] == dups_of(e)
            && kept.encoding() == &e.to_bytes()[..]
            && kept.whole() == *e
            && kept.of_object(&e.soid).as_ref() == Some(e)
            && kept.of_object(&HObject { snap: 77, ..e.soid.clone() }).is_none()
    }

    /// Bytes of chunks that no entry takes, and whether each chunk has an entry.
    fn unused(entries: &Entries) -> (usize, bool) {
        let taken: usize = entries.iter().map(|e| e.len as usize).sum();
        let all: usize = entries.chunks.iter().map(Vec::capacity).sum();
        let mut used: Vec<usize> = entries.iter().map(|e| entries.chunk_at(e.slot)).collect();
        used.dedup();
        (all - taken, used.into_iter().eq(0..entries.chunks.len()))
    }

    #[test]
    fn entries_are_what_was_put_in_wherever_they_are_taken_from() {
        let mut choices = Choices::new(17);
        // Numbers begin again while it lasts.
        let mut entries =
            Entries { first: u32::MAX - 700, first_chunk: u32::MAX - 30, ..Entries::default() };
        let (mut model, mut version) = (VecDeque::<PgLogEntry>::new(), 0);
        for step in 0..1500 {
            match choices.below(8) {
                0 => {
                    for _ in 0..choices.below(60) {
                        entries.pop();
                        model.pop_front();
                    }
                }
                1 => {
                    let len = model.len().saturating_sub(choices.below(20) as usize);
                    entries.truncate(len);
                    model.truncate(len);
                }
                2 => {
                    let mut others = Entries::default();
                    entries.iter().for_each(|e| others.push_kept(e));
                    assert!(
                        others.iter().zip(&model).all(|(kept, e)| same(kept, e)),
                        "step {step}"
                    );
                }
                n => {
                    for _ in 0..n {
                        version += 1 + choices.below(2);
                        let e = entry(version, &mut choices);
                        let encoding = (choices.below(2) == 0).then(|| e.to_bytes());
                        let number = entries.push(&e, encoding.as_deref());
                        assert_eq!(entries.by_number(number).version(), e.version);
                        model.push_back(e);
                    }
                }
            }
            assert_eq!(entries.len(), model.len());
            assert!(entries.iter().zip(&model).all(|(kept, e)| same(kept, e)), "step {step}");
            assert_eq!(entries.oldest().map(|e| e.version()), model.front().map(|e| e.version));
            assert_eq!(entries.newest().map(|e| e.version()), model.back().map(|e| e.version));
            assert!(
                entries
                    .numbered()
                    .all(|(number, e)| entries.by_number(number).version() == e.version())
            );
            let some =
                EVersion::new(3 + (version / 100) as u32, version - choices.below(50).min(version));
            assert_eq!(entries.count_below(some), model.partition_point(|e| e.version < some));
            assert_eq!(entries.count_up_to(some), model.partition_point(|e| e.version <= some));
            let found = model.iter().find(|e| e.version == some).map(|e| e.version);
            assert_eq!(entries.find(some).map(|e| e.version()), found);
            assert!(unused(&entries).1, "step {step}: a chunk without an entry");
        }
        entries.truncate(0);
        assert!(entries.is_empty() && entries.chunks.is_empty() && entries.slots.pieces() == 0);
    }

    /// What is stored of an entry, and what was sent, are the same bytes: those of a newer release too.
    #[test]
    fn an_encoding_that_was_given_stays_as_it_is() {
        let e = entry(9, &mut Choices::new(3));
        let mut encoding = e.to_bytes().to_vec();
        encoding.extend_from_slice(b"newer");
        encoding[0] += 1;
        let len = encoding.len() as u32 - 6;
        encoding[2..6].copy_from_slice(&len.to_le_bytes());
        let mut entries = Entries::default();
        entries.push(&e, Some(&encoding));
        entries.push(&entry(10, &mut Choices::new(4)), None);
        let kept = entries.oldest().expect("what was put in");
        assert_eq!(kept.encoding(), encoding);
        assert_eq!(kept.whole(), e);
    }

    /// A log of steady length takes two chunks more than its entries need, and what does not fit at
    /// the end of each.
    #[test]
    fn chunks_are_given_back() {
        let mut entries = Entries::default();
        let mut e = PgLogEntry { op: LogOp::MODIFY, ..PgLogEntry::default() };
        e.soid.name = "rbd_data.1f2e3d4c5b6a.0000000000000042".into();
        let len = e.to_bytes().len();
        for version in 1..5000 {
            e.version = EVersion::new(3, version);
            entries.push(&e, None);
            if version > 300 {
                entries.pop();
            }
            let (unused, all_used) = unused(&entries);
            assert!(all_used && unused < 2 * CHUNK + entries.chunks.len() * len, "{unused}");
        }
        assert_eq!(entries.len(), 300);
        (0..300).for_each(|_| entries.pop());
        entries.pop();
        assert!(entries.is_empty() && entries.chunks.is_empty());
    }
}
