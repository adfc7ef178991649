//! What lives on the threads: the journal's queue, what is durable, what is applied, reads.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::bufferlist::BufferList;
use types::hobject::GhObject;

use super::apply::{Place, apply};
use super::checkpoint::Checkpoints;
use super::commit::CommitFile;
use super::files::{ENTRY_KEY_AT, Files, entry_key, keys_of, locked, long_keys, parse_collection};
use super::index::Tree;
use super::journal::{Counts, Entry, Journal};
use super::state::Names;
use super::{Settings, xattr};
use crate::blocking::{self, PageWanted};
use crate::check::check;
use crate::kv::storage;
use crate::kv::{Direction, Kv, KvBatch, SharedKv};
use crate::object_key::{parse_collection_key, parse_object};
use crate::room::{Found, Growth, Room, TIGHT_SHARE, Taken, beyond_need};
use crate::{
    CollId, Fsck, FsckOptions, Listing, ObjectStat, OmapPage, Statfs, StoreError, Transaction,
};

/// How far entries have come.
#[derive(Debug, Default)]
struct Progress {
    durable: u64,
    /// All entries up to here are applied, and these further ones.
    applied: u64,
    applied_ahead: BTreeSet<u64>,
    /// The last entry whose application has begun.
    begun: u64,
    /// Entries behind this one wait: a snapshot is being taken.
    stop_behind: Option<u64>,
    failed: bool,
}

/// A transaction that was taken on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accepted {
    pub(super) seq: u64,
    /// Bytes of the entry.
    pub(super) len: u64,
    taken: Taken,
}

#[derive(Default)]
struct Queue {
    /// Entries the journal does not have yet, in order. Bound: the callers' own, and the throttle.
    entries: VecDeque<Entry>,
    next_seq: u64,
}

pub(crate) struct Core {
    pub(super) files: Files,
    pub(super) settings: Settings,
    root: File,
    /// Snapshots, where commits are such.
    checkpoints: Option<Checkpoints>,
    names: Mutex<Names>,
    /// Taken after `names`.
    room: Room,
    queue: Mutex<Queue>,
    journal: Mutex<Journal>,
    commit: Mutex<CommitFile>,
    journal_counts: Arc<Counts>,
    commit_written: Arc<AtomicU64>,
    progress: Mutex<Progress>,
    changed: Condvar,
    failed: AtomicBool,
    pub(super) stops_when_full: AtomicBool,
    /// Bytes of the longest entry.
    entry_max: usize,
    pub(super) half_full: AtomicBool,
    pub(super) queued_ops: AtomicU64,
    pub(super) queued_bytes: AtomicU64,
    /// What they will take.
    queued_room: [AtomicU64; 2],
    pub(super) commits: AtomicU64,
    pub(super) snapshots: AtomicU64,
    /// Operations until the next one fails as if the process were killed there: for tests.
    #[cfg(test)]
    pub(super) ops_left: AtomicU64,
}

/// About what a store's database takes.
fn database_bytes(kv: &SharedKv) -> Result<u64, StoreError> {
    kv.range_bytes(b"", b"").map_err(storage)
}

/// Long names of a collection and their ids.
pub(super) fn long_names(
    kv: &SharedKv,
    cid: &CollId,
) -> Result<BTreeMap<GhObject, u64>, StoreError> {
    let (mut found, mut bad) = (BTreeMap::new(), false);
    let start = long_keys(cid);
    kv.scan(&start, &behind(&start), Direction::Forwards, &mut |key, value| {
        match (parse_object(&key[start.len()..]), <[u8; 8]>::try_from(value)) {
            (Some(oid), Ok(id)) => drop(found.insert(oid, u64::from_be_bytes(id))),
            _ => bad = true,
        }
        !bad
    })
    .map_err(storage)?;
    if bad { Err(StoreError::Format("a long name's key")) } else { Ok(found) }
}

/// The first key behind all that begin with `prefix`, which does not end in 0xff bytes only.
fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end
}

/// Collections, their bits and where they were made.
fn collections(kv: &SharedKv) -> Result<BTreeMap<CollId, (u32, Place)>, StoreError> {
    let (mut found, mut bad) = (BTreeMap::new(), false);
    kv.scan(b"C\0", b"C\x01", Direction::Forwards, &mut |key, value| {
        match (parse_collection_key(&key[2..]), parse_collection(value)) {
            (Some(cid), Some(what)) => drop(found.insert(cid, what)),
            _ => bad = true,
        }
        !bad
    })
    .map_err(storage)?;
    if bad { Err(StoreError::Format("a collection's key")) } else { Ok(found) }
}

impl Core {
    /// Opens the store: what the journal holds is applied, everything is made durable, names are read.
    pub(super) fn open(dir: &Path, kv: SharedKv, settings: Settings) -> Result<Core, StoreError> {
        let current = dir.join("current");
        let mut commit = CommitFile::open(&current.join("commit_op_seq"))?;
        let root = File::open(&current)?;
        let (kind, _, _) = xattr::file_system(&root)?;
        let checkpoints = Checkpoints::of(dir)?;
        commit.mounts += 1;
        let committed = commit.seq;
        commit.write(committed)?;
        let files = Files {
            dir: current,
            kv,
            inline: settings.inline(kind),
            split_above: settings.split_above,
            by_snapshots: checkpoints.is_some(),
            colls: Mutex::default(),
            born: Mutex::default(),
            // 2^40 ids a mount: none is given twice.
            next_id: AtomicU64::new(commit.mounts << 40),
            data: AtomicU64::new(0),
            cloned: AtomicU64::new(0),
            xattr: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        };
        for (cid, (_, born)) in &collections(&files.kv)? {
            locked(&files.born).insert(*cid, *born);
            let long = long_names(&files.kv, cid)?;
            let path = files.dir.join(cid.to_string());
            let tree = Tree::load(path, files.split_above, long, |_, _| Ok(()))?;
            locked(&files.colls).insert(*cid, Arc::new(Mutex::new(tree)));
        }
        let mut last = committed;
        let replay = |seq, payload: Bytes| {
            let t = Transaction::from_bytes_exact(&payload)
                .map_err(|_| StoreError::Format("an entry of the journal"))?;
            last = seq;
            apply(&files, &t, seq, true)
        };
        let uuid = commit.uuid;
        let mut journal =
            Journal::open(&settings.journal, uuid, committed, settings.journal_dio, replay)?;
        if last > committed {
            tracing::info!(entries = last - committed, "journal replayed");
        }
        let names = names_of(&files)?;
        files.sync_kv()?;
        xattr::sync_file_system(&root)?;
        commit.write(last)?;
        // Before the journal lets go of what was replayed.
        if let Some(checkpoints) = &checkpoints {
            checkpoints.take(commit.generation)?;
            checkpoints.forget_old()?;
        }
        journal.begin_epoch(last)?;
        let entry_max = journal.entry_max();
        let room = Room::new(settings.limit, names.data + database_bytes(&files.kv)?);
        let next_seq = journal.next_seq().max(last + 1);
        let progress = Progress {
            durable: next_seq - 1,
            applied: next_seq - 1,
            begun: next_seq - 1,
            ..Progress::default()
        };
        Ok(Core {
            files,
            settings,
            root,
            checkpoints,
            room,
            names: Mutex::new(names),
            queue: Mutex::new(Queue { entries: VecDeque::new(), next_seq }),
            journal_counts: journal.counts.clone(),
            commit_written: commit.written.clone(),
            journal: Mutex::new(journal),
            commit: Mutex::new(commit),
            progress: Mutex::new(progress),
            changed: Condvar::new(),
            failed: AtomicBool::new(false),
            stops_when_full: AtomicBool::new(false),
            entry_max,
            half_full: AtomicBool::new(false),
            queued_ops: AtomicU64::new(0),
            queued_bytes: AtomicU64::new(0),
            queued_room: Default::default(),
            commits: AtomicU64::new(0),
            snapshots: AtomicU64::new(0),
            #[cfg(test)]
            ops_left: AtomicU64::new(u64::MAX),
        })
    }

    /// Takes a transaction on: its effect on names is seen at once, and there is room for it on the
    /// file system.
    pub(super) fn take_on(&self, t: &mut Transaction) -> Result<Accepted, StoreError> {
        self.refuse_if_failed()?;
        let mut names = locked(&self.names);
        check(t, &*names)?;
        let (grown, metadata) = (names.growth(t), t.metadata_bytes());
        let growth = match grown > 0 {
            true if t.is_of_owner() => Growth::Metadata,
            true => Growth::Data,
            false if t.adds_metadata() => Growth::Metadata,
            false => Growth::Nothing,
        };
        // Data over data takes none, but for what btrfs copies.
        let taken = Taken { database: metadata, files: grown + metadata };
        if !self.room.take(names.data + grown, taken, growth, || self.look())? {
            if self.stops_when_full.load(Ordering::Relaxed) {
                self.fail();
            }
            return Err(StoreError::NoSpace);
        }
        let long = t.to_bytes().len();
        if long > self.entry_max {
            tracing::error!(bytes = long, "longer than the journal: raise osd_journal_size");
            return Err(StoreError::TooBig);
        }
        names.apply(t);
        let payload = t.to_bytes();
        let len = payload.len() as u64;
        let mut queue = locked(&self.queue);
        let seq = queue.next_seq;
        queue.next_seq += 1;
        queue.entries.push_back((seq, payload));
        self.queued_ops.fetch_add(1, Ordering::Relaxed);
        self.queued_bytes.fetch_add(len, Ordering::Relaxed);
        for (queued, bytes) in self.queued_room.iter().zip([taken.database, taken.files]) {
            queued.fetch_add(bytes, Ordering::Relaxed);
        }
        Ok(Accepted { seq, len, taken })
    }

    /// What the database takes, and what the file system has left.
    fn found(&self) -> Result<Found, StoreError> {
        let (_, _, free) = xattr::file_system(&self.root)?;
        let database = database_bytes(&self.files.kv)?;
        let free = free.saturating_sub(self.journal_holes()?);
        Ok(Found { database, free: beyond_need(free, database) })
    }

    /// Bytes of the same file system that the journal will take when it is written there.
    fn journal_holes(&self) -> Result<u64, StoreError> {
        let (journal, root) = (std::fs::metadata(&self.settings.journal)?, self.root.metadata()?);
        Ok(match journal.dev() == root.dev() {
            true => journal.len().saturating_sub(journal.blocks() * 512),
            false => 0,
        })
    }

    /// What there is, and what transactions will take that are not applied yet. The latter first, so that what is
    /// applied in between counts twice rather than not at all.
    fn look(&self) -> Result<(Found, Taken), StoreError> {
        let [database, files] = [0, 1].map(|n| self.queued_room[n].load(Ordering::Relaxed));
        Ok((self.found()?, Taken { database, files }))
    }

    fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
        locked(&self.progress).failed = true;
        self.changed.notify_all();
    }

    fn refuse_if_failed(&self) -> Result<(), StoreError> {
        if self.failed.load(Ordering::Relaxed) { Err(StoreError::Latched) } else { Ok(()) }
    }

    /// An object's file, for reading. After a failure it may lack what was answered already.
    fn existing(&self, cid: &CollId, oid: &GhObject) -> Result<File, StoreError> {
        self.refuse_if_failed()?;
        self.files.existing(cid, oid)
    }

    /// Writes entries to the journal, all that wait together, until `seq` is durable.
    pub(super) fn journal_up_to(&self, seq: u64) -> Result<(), StoreError> {
        loop {
            {
                let progress = locked(&self.progress);
                if progress.durable >= seq {
                    return Ok(());
                }
                if progress.failed {
                    return Err(StoreError::Latched);
                }
            }
            let mut journal = locked(&self.journal);
            let batch = self.next_batch(&journal);
            if batch.is_empty() {
                // Full: everything it holds goes to the files first.
                drop(journal);
                self.wait_applied()?;
                self.commit()?;
                continue;
            }
            let last = batch.last().map_or(seq, |(seq, _)| *seq);
            if let Err(e) = journal.write(&batch) {
                drop(journal);
                tracing::error!(error = %e, "the journal failed");
                self.fail();
                return Err(e.into());
            }
            self.half_full.store(journal.half_full(), Ordering::Relaxed);
            drop(journal);
            let durable = &mut locked(&self.progress).durable;
            // A snapshot may have been faster.
            *durable = last.max(*durable);
            self.changed.notify_all();
        }
    }

    /// Entries that fit, as many as one write may have.
    fn next_batch(&self, journal: &Journal) -> Vec<Entry> {
        let mut queue = locked(&self.queue);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while let Some((_, payload)) = queue.entries.front() {
            bytes += payload.len();
            let more = batch.is_empty()
                || (batch.len() < self.settings.journal_max_write_entries
                    && bytes <= self.settings.journal_max_write_bytes);
            if !more {
                break;
            }
            batch.extend(queue.entries.pop_front());
            if !journal.fits(&batch)
                && let Some(entry) = batch.pop()
            {
                queue.entries.push_front(entry);
                break;
            }
        }
        batch
    }

    /// Waits until all that is durable is applied.
    fn wait_applied(&self) -> Result<(), StoreError> {
        let mut progress = locked(&self.progress);
        while progress.applied < progress.durable && !progress.failed {
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        if progress.failed { Err(StoreError::Latched) } else { Ok(()) }
    }

    /// Whether entries are applied while the journal is being written.
    fn is_parallel(&self) -> bool {
        self.checkpoints.is_some() && !self.settings.journal_writeahead
    }

    /// Applies an entry once it is durable, or may be without.
    pub(super) fn apply_when_durable(
        &self,
        accepted: Accepted,
        t: &Transaction,
    ) -> Result<(), StoreError> {
        let Accepted { seq, len, taken } = accepted;
        let mut progress = locked(&self.progress);
        let must_wait = |progress: &Progress| {
            let is_stopped = progress.stop_behind.is_some_and(|last| seq > last);
            is_stopped || (!self.is_parallel() && progress.durable < seq)
        };
        while must_wait(&progress) && !progress.failed {
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        if progress.failed {
            return Err(StoreError::Latched);
        }
        progress.begun = progress.begun.max(seq);
        drop(progress);
        if let Err(e) = self.apply_now(t, seq) {
            tracing::error!(error = %e, seq, "cannot apply a transaction; the journal keeps it");
            self.fail();
            return Err(e);
        }
        self.queued_ops.fetch_sub(1, Ordering::Relaxed);
        self.queued_bytes.fetch_sub(len, Ordering::Relaxed);
        for (queued, bytes) in self.queued_room.iter().zip([taken.database, taken.files]) {
            queued.fetch_sub(bytes, Ordering::Relaxed);
        }
        let mut progress = locked(&self.progress);
        progress.applied_ahead.insert(seq);
        while let Some(next) =
            Some(progress.applied + 1).filter(|n| progress.applied_ahead.remove(n))
        {
            progress.applied = next;
        }
        drop(progress);
        self.changed.notify_all();
        Ok(())
    }

    #[cfg(not(test))]
    fn apply_now(&self, t: &Transaction, seq: u64) -> Result<(), StoreError> {
        apply(&self.files, t, seq, false)
    }

    /// With the kill that a test asked for.
    #[cfg(test)]
    fn apply_now(&self, t: &Transaction, seq: u64) -> Result<(), StoreError> {
        let left = self.ops_left.load(Ordering::Relaxed);
        if left == u64::MAX {
            return apply(&self.files, t, seq, false);
        }
        super::apply::apply_some(&self.files, t, seq, &self.ops_left)
    }

    /// Makes the files durable as far as they are applied, and gives the journal's entries up.
    pub(super) fn commit(&self) -> Result<(), StoreError> {
        self.commit_if(false)
    }

    /// The same, with what no transaction did, too.
    fn commit_if(&self, always: bool) -> Result<(), StoreError> {
        let mut commit = locked(&self.commit);
        if let Some(checkpoints) = &self.checkpoints {
            return self.snapshot(checkpoints, &mut commit, always).inspect_err(|e| {
                tracing::error!(error = %e, "cannot take a snapshot");
                self.fail();
            });
        }
        let target = locked(&self.progress).applied;
        self.refuse_if_failed()?;
        if target == commit.seq {
            return Ok(());
        }
        let mut done = || -> Result<(), StoreError> {
            self.files.sync_kv()?;
            xattr::sync_file_system(&self.root)?;
            self.files.syncs.fetch_add(2, Ordering::Relaxed);
            commit.write(target)?;
            let mut journal = locked(&self.journal);
            journal.trim(target)?;
            self.half_full.store(journal.half_full(), Ordering::Relaxed);
            self.commits.fetch_add(1, Ordering::Relaxed);
            Ok(())
        };
        done().inspect_err(|e| {
            tracing::error!(error = %e, "cannot sync the file system");
            self.fail();
        })
    }

    /// A commit that is a snapshot. Everything whose application has begun is in it, whether the
    /// journal has it yet or not; nothing else begins meanwhile. No entry waits for one behind it: each
    /// lane has its entries in order, so those up to the last that has begun all come to their end.
    fn snapshot(
        &self,
        checkpoints: &Checkpoints,
        commit: &mut CommitFile,
        always: bool,
    ) -> Result<(), StoreError> {
        let mut progress = locked(&self.progress);
        let target = progress.begun;
        progress.stop_behind = Some(target);
        while progress.applied < target && !progress.failed {
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        let failed = progress.failed;
        drop(progress);
        let mut taken = || -> Result<bool, StoreError> {
            if failed {
                return Err(StoreError::Latched);
            }
            if target == commit.seq && !always {
                return Ok(false);
            }
            self.files.sync_kv()?;
            commit.write(target)?;
            checkpoints.take(commit.generation)?;
            Ok(true)
        };
        let taken = taken();
        locked(&self.progress).stop_behind = None;
        self.changed.notify_all();
        if !taken? {
            return Ok(());
        }
        self.files.syncs.fetch_add(2, Ordering::Relaxed);
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.snapshots.fetch_add(1, Ordering::Relaxed);
        let mut journal = locked(&self.journal);
        // What the journal does not have yet it need not have any more.
        locked(&self.queue).entries.retain(|(seq, _)| *seq > target);
        journal.trim(target)?;
        self.half_full.store(journal.half_full(), Ordering::Relaxed);
        drop(journal);
        let mut progress = locked(&self.progress);
        progress.durable = progress.durable.max(target);
        drop(progress);
        self.changed.notify_all();
        Ok(checkpoints.forget_old()?)
    }

    /// Bytes of the journal's entries, of its headers, its writes, of commit_op_seq.
    pub(super) fn journal_written(&self) -> [u64; 4] {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        [
            of(&self.journal_counts.entries),
            of(&self.journal_counts.headers),
            of(&self.journal_counts.writes),
            of(&self.commit_written),
        ]
    }

    #[cfg(test)]
    pub(super) fn folders(&self, cid: &CollId) -> usize {
        let tree = locked(&self.files.colls).get(cid).cloned();
        tree.map_or(0, |tree| locked(&tree).folders())
    }
}

/// Reads all names from the folders; deletes what belongs to no object (any more). Where it cannot be
/// read what belongs to an object nothing is deleted.
fn names_of(files: &Files) -> Result<Names, StoreError> {
    let mut names = Names::default();
    let (mut ids, mut unread) = (BTreeSet::new(), 0);
    for (cid, (bits, _)) in collections(&files.kv)? {
        let coll = names.colls.entry(cid).or_default();
        coll.bits = bits;
        let mut data = 0;
        let path = files.dir.join(cid.to_string());
        let long = long_names(&files.kv, &cid)?;
        let tree = Tree::load(path, files.split_above, long, |oid, path| {
            let file = File::open(path)?;
            let size = file.metadata()?.len();
            data += size;
            coll.objects.insert(oid.clone(), size);
            match files.id(&file) {
                Ok(id) => ids.extend(id),
                Err(error) => {
                    unread += 1;
                    tracing::error!(%oid, %error, "its id cannot be read: its omap is out of reach");
                }
            }
            Ok(())
        })?;
        names.data += data;
        locked(&files.colls).insert(cid, Arc::new(Mutex::new(tree)));
    }
    if unread > 0 {
        return Ok(names);
    }
    // Ids whose objects went while the key-value store had not yet heard of it.
    let mut from = 0;
    while let Some((key, _)) =
        files.kv.range(&entry_key(from, 0, b""), b"N", 1).map_err(storage)?.pop()
    {
        let Some(id) = key.get(2..10).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes)
        else {
            return Err(StoreError::Format("an omap's key"));
        };
        if !ids.contains(&id) {
            let (start, end) = keys_of(id);
            let mut batch = KvBatch::new();
            batch.delete_range(start, end);
            files.change(batch)?;
        }
        let Some(next) = id.checked_add(1) else { break };
        from = next;
    }
    Ok(names)
}

impl blocking::Core for Core {
    fn collections(&self) -> Result<Vec<CollId>, StoreError> {
        Ok(locked(&self.names).colls.keys().copied().collect())
    }

    fn collection_bits(&self, cid: &CollId) -> Result<u32, StoreError> {
        Ok(locked(&self.names).coll(cid)?.bits)
    }

    fn list(
        &self,
        cid: &CollId,
        start: &GhObject,
        end: &GhObject,
        max: usize,
    ) -> Result<Listing, StoreError> {
        locked(&self.names).list(cid, start, end, max)
    }

    fn stat(&self, cid: &CollId, oid: &GhObject) -> Result<ObjectStat, StoreError> {
        let size = self.existing(cid, oid)?.metadata()?.len();
        Ok(ObjectStat { size })
    }

    fn read(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> Result<BufferList, StoreError> {
        use std::os::unix::fs::FileExt;
        let file = self.existing(cid, oid)?;
        let size = file.metadata()?.len();
        let len = if len == 0 { u64::MAX } else { len };
        let mut data = vec![0; len.min(size.saturating_sub(offset)) as usize];
        file.read_exact_at(&mut data, offset)?;
        let mut list = BufferList::new();
        list.push(data.into());
        Ok(list)
    }

    fn extents(
        &self,
        cid: &CollId,
        oid: &GhObject,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Range<u64>>, StoreError> {
        let file = self.existing(cid, oid)?;
        let end = offset.saturating_add(len).min(file.metadata()?.len());
        let ranges = xattr::data_ranges(&file, end)?;
        let cut = ranges.into_iter().map(|r| r.start.max(offset)..r.end.min(end));
        Ok(cut.filter(|r| r.start < r.end).collect())
    }

    fn getattr(&self, cid: &CollId, oid: &GhObject, name: &[u8]) -> Result<Bytes, StoreError> {
        let file = self.existing(cid, oid)?;
        self.files.attr(&file, name)?.ok_or(StoreError::NoAttr)
    }

    fn getattrs(&self, cid: &CollId, oid: &GhObject) -> Result<Vec<(BString, Bytes)>, StoreError> {
        let file = self.existing(cid, oid)?;
        let attrs = self.files.attrs(&file)?;
        Ok(attrs.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }

    fn omap_header(&self, cid: &CollId, oid: &GhObject) -> Result<Bytes, StoreError> {
        let file = self.existing(cid, oid)?;
        let Some(id) = self.files.id(&file)? else { return Ok(Bytes::new()) };
        let header = self.files.kv.get(&entry_key(id, b'-', b"")).map_err(storage)?;
        Ok(header.unwrap_or_default())
    }

    fn omap_values(
        &self,
        cid: &CollId,
        oid: &GhObject,
        keys: &[BString],
    ) -> Result<Vec<(BString, Bytes)>, StoreError> {
        let file = self.existing(cid, oid)?;
        let Some(id) = self.files.id(&file)? else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for key in keys {
            if let Some(value) = self.files.kv.get(&entry_key(id, b'.', key)).map_err(storage)? {
                found.push((key.clone(), value));
            }
        }
        Ok(found)
    }

    fn omap_range(
        &self,
        cid: &CollId,
        oid: &GhObject,
        wanted: &PageWanted,
    ) -> Result<OmapPage, StoreError> {
        let file = self.existing(cid, oid)?;
        let (mut page, mut bytes) = (OmapPage::default(), 0);
        let Some(id) = self.files.id(&file)? else { return Ok(page) };
        let (from, end) = (entry_key(id, b'.', &wanted.from), entry_key(id, b'.' + 1, b""));
        self.files
            .kv
            .scan(&from, &end, Direction::Forwards, &mut |key, value| {
                let key = &key[ENTRY_KEY_AT..];
                if wanted.after && key == wanted.from {
                    return true;
                }
                wanted.add(&mut page, &mut bytes, key, value)
            })
            .map_err(storage)?;
        Ok(page)
    }

    fn fsck(&self, options: FsckOptions) -> Result<Fsck, StoreError> {
        let names = locked(&self.names);
        let report = super::fsck::check(&self.files, &names, options)?;
        drop(names);
        if report.repaired > 0 && self.checkpoints.is_some() {
            self.commit_if(true)?;
        }
        Ok(report)
    }

    fn kv(&self) -> &dyn Kv {
        &*self.files.kv
    }

    fn statfs(&self) -> Result<Statfs, StoreError> {
        self.refuse_if_failed()?;
        let (_, size, _) = xattr::file_system(&self.root)?;
        let total = self.settings.limit.min(size);
        let (found, queued) = self.look()?;
        let names = locked(&self.names);
        let data = names.data;
        let available = self.room.measure(found, queued, data).min(total);
        drop(names);
        if available < total / TIGHT_SHARE {
            self.files.kv.reclaim();
        }
        Ok(Statfs {
            total,
            available,
            allocated: data,
            data_stored: data,
            // But for xattrs that files have no room for, omaps are what the database is for.
            omap_allocated: found.database,
            ..Statfs::default()
        })
    }
}
