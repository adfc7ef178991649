//! Objects as files: Ceph's FileStore (`src/os/filestore` at v16.2).
//!
//! An object is a file of a local file system, its xattrs are the file's, what does not fit there
//! and its omap are in RocksDB or LevelDB. No file system makes several changes at once, so every
//! transaction goes into a write-ahead journal first and is answered when it is durable there;
//! worker threads apply it to the files; every few seconds everything is synced and the journal cut.
//! After a crash the journal is applied again (`apply.rs` says why that is right). Formats and
//! crash argument: docs/format-filestore.md.
//!
//! On btrfs the sync is a snapshot (`checkpoint.rs`), a mount begins with the newest, and so
//! transactions are applied while the journal is being written, as in Ceph; elsewhere after.

mod apply;
mod checkpoint;
mod commit;
mod core;
#[cfg(test)]
mod crash_tests;
mod files;
mod fsck;
mod index;
mod journal;
mod names;
mod state;
mod throttle;
mod xattr;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use env::sync::Notify;
use env::{Env, LocalFuture, Workers};

use self::checkpoint::Checkpoints;
pub use self::checkpoint::{make_current, roll_back};
use self::commit::CommitFile;
use self::core::Accepted;
pub(crate) use self::core::Core;
use self::files::locked;
use self::journal::Journal;
pub use self::throttle::Backoff;
pub use self::xattr::{FileSystemKind, InlineXattrs};
use crate::blocking::{Backend, Blocking, Lanes};
use crate::kv::{KvBatch, SharedKv};
use crate::kv::{storage, written_counters};
use crate::{StoreCounter, StoreError, Transaction};

/// How a store runs. Names are those of Ceph's options.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The journal's file or device (`osd_journal`).
    pub journal: PathBuf,
    /// Write it past the page cache where that can be done (`journal_dio`).
    pub journal_dio: bool,
    /// Most entries and bytes in one write of it.
    pub journal_max_write_entries: usize,
    #[allow(missing_docs, reason = "said above")]
    pub journal_max_write_bytes: usize,
    /// Apply nothing before the journal has it, on btrfs, too (`filestore_journal_writeahead`).
    pub journal_writeahead: bool,
    /// Bytes of objects that fit.
    pub limit: u64,
    /// Threads that apply transactions (`filestore_op_threads`).
    pub op_threads: usize,
    /// Time between two syncs (`filestore_min_sync_interval`, `_max_`).
    pub min_sync_interval: Duration,
    #[allow(missing_docs, reason = "said above")]
    pub max_sync_interval: Duration,
    /// A folder with more files is split: Ceph's
    /// `filestore_split_multiple * abs(filestore_merge_threshold) * 16`.
    pub split_above: usize,
    /// What the file system takes as attributes, by its kind: xfs, btrfs, others.
    pub inline_xattrs: [InlineXattrs; 3],
    /// Transactions and bytes that may wait to be applied.
    pub queue_ops: Backoff,
    #[allow(missing_docs, reason = "said above")]
    pub queue_bytes: Backoff,
}

impl Settings {
    /// Ceph's defaults, for a journal somewhere.
    pub fn new(journal: PathBuf, limit: u64) -> Settings {
        let queue_ops = Backoff {
            max: 50,
            low: 0.3,
            high: 0.9,
            high_multiple: 0.0,
            max_multiple: 0.0,
            expected_throughput: 200.0,
        };
        Settings {
            journal,
            journal_dio: true,
            journal_max_write_entries: 100,
            journal_max_write_bytes: 10 << 20,
            journal_writeahead: false,
            limit,
            op_threads: 2,
            min_sync_interval: Duration::from_millis(10),
            max_sync_interval: Duration::from_secs(5),
            split_above: 320,
            inline_xattrs: [(10, 65_536), (10, 2048), (2, 512)]
                .map(|(count, len)| InlineXattrs { count, len }),
            queue_bytes: Backoff { max: 100 << 20, expected_throughput: 200e6, ..queue_ops },
            queue_ops,
        }
    }

    fn inline(&self, kind: FileSystemKind) -> InlineXattrs {
        self.inline_xattrs[match kind {
            FileSystemKind::Xfs => 0,
            FileSystemKind::Btrfs => 1,
            FileSystemKind::Other => 2,
        }]
    }
}

/// A store in the files of a folder. Dropping it without [`crate::ObjectStore::close`] is a crash as
/// far as its files are concerned.
pub type FileStore = Blocking<Inner>;

/// What [`FileStore`] is made of.
pub struct Inner {
    lanes: Lanes<Core>,
    journal: Workers,
    syncer: Rc<Syncer>,
    last_counters: RefCell<Vec<StoreCounter>>,
}

/// Syncs the file system from time to time.
struct Syncer {
    env: Env,
    worker: Workers,
    core: RefCell<Option<Arc<Core>>>,
    wanted: Notify,
    closing: Cell<bool>,
    running: Cell<bool>,
    ended: Notify,
    min: Duration,
    max: Duration,
}

impl Syncer {
    async fn commit(&self) -> Result<(), StoreError> {
        let Some(core) = self.core.borrow().clone() else { return Err(StoreError::Closed) };
        let commit = self.worker.run(move || {
            let result = core.commit();
            drop(core);
            result
        });
        commit.await
    }

    async fn run(self: Rc<Syncer>) {
        while !self.closing.get() {
            let _ = self.env.timeout(self.max, self.wanted.notified()).await;
            if self.closing.get() {
                break;
            }
            let _ = self.env.timeout(self.min, self.closed()).await;
            if self.closing.get() || self.commit().await.is_err() {
                break;
            }
        }
        self.running.set(false);
        self.ended.notify_all();
    }

    async fn closed(&self) {
        self.wanted.until(|| self.closing.get()).await;
    }
}

/// Jobs of several lanes that must be one: the first does it, the others wait.
#[derive(Default)]
struct Gate {
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    /// Waits at the gate; with `others` the job is done once they have come.
    fn pass(&self, job: Option<(usize, &dyn Fn())>) {
        let mut state = locked(&self.state);
        let wait =
            |state| self.changed.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner);
        match job {
            Some((others, job)) => {
                while state.0 < others {
                    state = wait(state);
                }
                drop(state);
                job();
                locked(&self.state).1 = true;
                self.changed.notify_all();
            }
            None => {
                state.0 += 1;
                self.changed.notify_all();
                while !state.1 {
                    state = wait(state);
                }
            }
        }
    }
}

impl FileStore {
    /// Makes an empty store in a folder, with a journal of `journal_len` bytes and an empty key-value
    /// store. Before the latter is opened [`make_current`] is to be called: the folder may have been another
    /// store's, and the database may lie in `current`.
    pub async fn mkfs(
        env: &Env,
        dir: &Path,
        kv: SharedKv,
        uuid: [u8; 16],
        journal: &Path,
        journal_len: u64,
        direct: bool,
    ) -> Result<(), StoreError> {
        let (dir, journal) = (dir.to_owned(), journal.to_owned());
        let worker = env.workers("filestore", 1)?;
        let make = move || -> Result<(), StoreError> {
            let current = dir.join("current");
            std::fs::create_dir_all(&current)?;
            let mut batch = KvBatch::new();
            batch.delete_range(&b""[..], &b""[..]);
            kv.commit(batch).map_err(storage)?;
            Journal::create(&journal, uuid, journal_len, 1, direct)?;
            let generation = CommitFile::create(&current.join("commit_op_seq"), uuid)?;
            let root = std::fs::File::open(&current)?;
            kv.commit(KvBatch::new()).map_err(storage)?;
            xattr::sync_file_system(&root)?;
            if let Some(checkpoints) = Checkpoints::of_new(&dir)? {
                checkpoints.take(generation)?;
            }
            Ok(())
        };
        worker.run(make).await
    }

    /// Opens the store in a folder; applies what its journal holds. Before the key-value store is
    /// opened [`roll_back`] is to be called.
    pub async fn mount(
        env: Env,
        dir: &Path,
        kv: SharedKv,
        settings: Settings,
    ) -> Result<FileStore, StoreError> {
        let (threads, dir) = (settings.op_threads.max(1), dir.to_owned());
        let (min, max) = (settings.min_sync_interval, settings.max_sync_interval);
        let worker = env.workers("filestore_sync", 1)?;
        let core = Arc::new(worker.run(move || Core::open(&dir, kv, settings)).await?);
        let mut lanes = Vec::new();
        // Where there are no threads, one lane has all.
        while lanes.len() < if worker.thread_count() == 0 { 1 } else { threads } {
            lanes.push(env.workers("filestore_op", 1)?);
        }
        let syncer = Rc::new(Syncer {
            worker,
            core: RefCell::new(Some(core.clone())),
            wanted: Notify::default(),
            closing: Cell::new(false),
            running: Cell::new(true),
            ended: Notify::default(),
            min,
            max,
            env: env.clone(),
        });
        env.go(syncer.clone().run());
        Ok(Blocking(Inner {
            lanes: Lanes::new(core, lanes),
            journal: env.workers("filestore_jrnl", 1)?,
            syncer,
            last_counters: RefCell::default(),
        }))
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> Option<Arc<Core>> {
        self.0.lanes.core()
    }

    /// Lets the process "die" after so many further operations have been applied.
    #[cfg(test)]
    pub(crate) fn die_after(&self, ops: u64) {
        if let Some(core) = self.core() {
            core.ops_left.store(ops, Ordering::Relaxed);
        }
    }

    /// How many folders a collection has.
    #[cfg(test)]
    pub(crate) fn folders(&self, cid: &crate::CollId) -> usize {
        self.core().map_or(0, |core| core.folders(cid))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.syncer.closing.set(true);
        *self.syncer.core.borrow_mut() = None;
        self.syncer.wanted.notify_all();
    }
}

impl Inner {
    /// Hands a transaction to the lanes of its collections.
    fn apply_in_lanes(
        &self,
        core: Arc<Core>,
        accepted: Accepted,
        t: Transaction,
    ) -> LocalFuture<Result<(), StoreError>> {
        let mut wanted: Vec<usize> =
            t.collections().iter().map(|cid| self.lanes.lane_of(cid)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let first = wanted.first().copied().unwrap_or(0);
        let others = wanted.get(1..).unwrap_or_default().to_vec();
        let all = self.lanes.all();
        if others.is_empty() {
            return Box::pin(all[first].run(move || {
                let result = core.apply_when_durable(accepted, &t);
                drop(core);
                result
            }));
        }
        let gate = Arc::new(Gate::default());
        for &lane in &others {
            let gate = gate.clone();
            drop(all[lane].run(move || gate.pass(None)));
        }
        let count = others.len();
        Box::pin(all[first].run(move || {
            let result = Mutex::new(Ok(()));
            gate.pass(Some((count, &|| {
                *locked(&result) = core.apply_when_durable(accepted, &t);
            })));
            drop(core);
            let result = result.into_inner();
            result.unwrap_or_else(std::sync::PoisonError::into_inner)
        }))
    }
}

impl Backend for Inner {
    type Core = Core;
    const NAMES_IN_MEMORY: bool = true;

    fn lanes(&self) -> &Lanes<Core> {
        &self.lanes
    }

    fn submit(&self, mut t: Transaction) -> LocalFuture<Result<(), StoreError>> {
        let Some(core) = self.lanes.core() else {
            return Box::pin(std::future::ready(Err(StoreError::Closed)));
        };
        let (ops, bytes) =
            (core.queued_ops.load(Ordering::Relaxed), core.queued_bytes.load(Ordering::Relaxed));
        let accepted = match core.take_on(&mut t) {
            Ok(taken) => taken,
            Err(e) => return Box::pin(std::future::ready(Err(e))),
        };
        let settings = &core.settings;
        let full = settings.queue_ops.is_full(ops) || settings.queue_bytes.is_full(bytes);
        let delay =
            settings.queue_ops.delay(ops, 1) + settings.queue_bytes.delay(bytes, accepted.len);
        let theirs = core.clone();
        let journaled = self.journal.run(move || {
            let result = theirs.journal_up_to(accepted.seq);
            drop(theirs);
            result
        });
        let applied = self.apply_in_lanes(core.clone(), accepted, t);
        let half_full = Rc::downgrade(&self.syncer);
        let core = Arc::downgrade(&core);
        Box::pin(async move {
            journaled.await?;
            if let (Some(syncer), Some(core)) = (half_full.upgrade(), core.upgrade()) {
                if core.half_full.load(Ordering::Relaxed) {
                    syncer.wanted.notify_all();
                }
                if !delay.is_zero() {
                    let env = syncer.env.clone();
                    drop((syncer, core));
                    env.sleep(delay).await;
                }
            }
            // Durable it is; but who fills the queue waits until there is room.
            if full {
                let _ = applied.await;
            }
            Ok(())
        })
    }

    fn stop_when_full(&self) {
        if let Some(core) = self.lanes.core() {
            core.stops_when_full.store(true, Ordering::Relaxed);
        }
    }

    fn counters(&self) -> Vec<StoreCounter> {
        match self.lanes.core() {
            Some(core) => counters(&core),
            None => self.last_counters.borrow().clone(),
        }
    }

    fn close(&self) -> LocalFuture<Result<(), StoreError>> {
        let Some(core) = self.lanes.take() else {
            return Box::pin(std::future::ready(Err(StoreError::Closed)));
        };
        // What is queued comes before these.
        let mut drained = vec![Box::pin(self.journal.run(|| ())) as LocalFuture<()>];
        for lane in self.lanes.all() {
            drained.push(Box::pin(lane.run(|| ())));
        }
        let syncer = self.syncer.clone();
        // The counters hold references no longer than this call.
        *self.last_counters.borrow_mut() = counters(&core);
        Box::pin(async move {
            for lane in drained {
                lane.await;
            }
            let result = syncer.commit().await;
            syncer.closing.set(true);
            syncer.wanted.notify_all();
            syncer.ended.until(|| !syncer.running.get()).await;
            *syncer.core.borrow_mut() = None;
            // Files and database close here, on a thread that may block.
            syncer.worker.run(move || drop(core)).await;
            result
        })
    }
}

fn counters(core: &Core) -> Vec<StoreCounter> {
    let number =
        |name: &str, is_bytes, value| StoreCounter { name: name.to_owned(), is_bytes, value };
    let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
    let [entries, headers, writes, commit] = core.journal_written();
    let (data, cloned) = (of(&core.files.data), of(&core.files.cloned));
    let kv = core.files.kv.written();
    let mut all: Vec<StoreCounter> = written_counters(&kv)
        .into_iter()
        .filter(|c| c.name != "written" && c.name != "syncs")
        .collect();
    all.extend([
        number("written_journal", true, entries),
        number("written_journal_header", true, headers),
        number("written_data", true, data),
        number("written_clone", true, cloned),
        number("written_superblock", true, commit),
        number("written", true, kv.total() + entries + headers + data + cloned + commit),
        // Where the file system puts these is its own affair.
        number("xattr_bytes", true, of(&core.files.xattr)),
        number("journal_writes", false, writes),
        number("commits", false, of(&core.commits)),
        number("snapshots", false, of(&core.snapshots)),
        number("syncs", false, kv.syncs + of(&core.files.syncs) + writes),
        number("queued_ops", false, of(&core.queued_ops)),
        number("queued_bytes", true, of(&core.queued_bytes)),
    ]);
    all
}
