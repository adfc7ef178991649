//! The store that is nothing but a key-value database: Ceph's KStore (`src/os/kstore/KStore.cc` at
//! v16.2), on RocksDB or LevelDB.
//!
//! Objects, their data in stripes, omaps, collections: each is keys and values
//! (docs/format-kstore.md). A transaction is one batch of the database, so it is there whole or not
//! at all by the database's own promise; what waits is made durable together by one sync of the
//! database's log. All that blocks runs on two threads: one applies transactions and serves
//! reads, in the order of the calls, one syncs.

mod apply;
mod format;
mod fsck;
mod read;
mod txn;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use denc::Denc;
use env::sync::Notify;
use env::{Env, LocalFuture, Workers};

use self::format::{Prefix, Superblock, Totals, superblock_key, totals_key};
use self::txn::Txn;
use crate::blocking::{Backend, Blocking, Lanes};
use crate::check::check;
use crate::kv::{KvBatch, KvError, KvWritten, SharedKv};
use crate::{StoreCounter, StoreError, Transaction};

/// How a new store is made.
#[derive(Debug, Clone, Copy)]
pub struct MkfsOptions {
    /// Who it belongs to.
    pub uuid: [u8; 16],
    /// Bytes of a stripe (`kstore_default_stripe_size`), 512 at least.
    pub stripe_len: u32,
}

/// Stripes of a store whose options do not say: Ceph's kstore_default_stripe_size.
pub const STRIPE_LEN: u32 = 65_536;

/// What is known about a database's failure in the contract's words.
pub(crate) fn storage(e: KvError) -> StoreError {
    match e {
        KvError::Corrupt(what) => {
            tracing::error!(what, "the database is damaged");
            StoreError::Checksum {
                device_offset: u64::MAX,
            }
        }
        KvError::NoSpace(what) => {
            tracing::error!(what, "the database has no space");
            StoreError::Device(std::io::ErrorKind::StorageFull)
        }
        KvError::Storage(what) => {
            tracing::error!(what, "the database failed");
            StoreError::Device(std::io::ErrorKind::Other)
        }
    }
}

fn decoded<T: Denc>(value: &Bytes, what: &'static str) -> Result<T, StoreError> {
    T::from_bytes_exact(value).map_err(|_| StoreError::Format(what))
}

/// What lives on the worker threads.
pub(crate) struct Core {
    kv: SharedKv,
    superblock: Superblock,
    /// Bytes of stripes that fit.
    limit: u64,
    totals: Mutex<Totals>,
    /// A change has failed half-way: nothing is acknowledged any more.
    failed: AtomicBool,
    /// Bytes put into batches, by prefix.
    put: [AtomicU64; Prefix::ALL.len()],
    /// Of those put as data: what clients wrote.
    client_bytes: AtomicU64,
    transactions: AtomicU64,
}

impl Core {
    fn open(kv: SharedKv, limit: u64) -> Result<Core, StoreError> {
        let superblock = kv
            .get(&superblock_key())
            .map_err(storage)?
            .ok_or(StoreError::Format("no kstore here: run --mkfs"))?;
        let superblock: Superblock = decoded(&superblock, "the superblock")?;
        let totals = match kv.get(&totals_key()).map_err(storage)? {
            Some(value) => decoded(&value, "the totals")?,
            None => Totals::default(),
        };
        Ok(Core {
            kv,
            superblock,
            limit,
            totals: Mutex::new(totals),
            failed: AtomicBool::new(false),
            put: Default::default(),
            client_bytes: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
        })
    }

    fn totals(&self) -> MutexGuard<'_, Totals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a transaction; a later [`Core::sync`] makes it durable.
    fn apply(&self, t: &Transaction) -> Result<(), StoreError> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(StoreError::Latched);
        }
        let view = read::View::new(&*self.kv, t.ops().len());
        let checked = check(t, &view);
        view.failure()?;
        checked?;
        let mut totals = self.totals();
        let mut txn = Txn::new(&*self.kv, totals.last_nid);
        apply::apply(&mut txn, t, self.superblock.stripe_len)?;
        let data = totals.data.saturating_add_signed(txn.data_delta);
        if txn.data_delta > 0 && data > self.limit {
            return Err(StoreError::NoSpace);
        }
        let after = Totals {
            last_nid: txn.last_nid,
            data,
        };
        if after != *totals {
            txn.put(totals_key(), after.to_bytes());
        }
        let client_bytes = txn.client_bytes;
        let (batch, bytes) = txn.into_batch();
        if !batch.is_empty()
            && let Err(e) = self.kv.commit_later(batch)
        {
            self.failed.store(true, Ordering::Relaxed);
            return Err(storage(e));
        }
        *totals = after;
        for (counter, n) in self.put.iter().zip(bytes) {
            counter.fetch_add(n, Ordering::Relaxed);
        }
        self.client_bytes.fetch_add(client_bytes, Ordering::Relaxed);
        self.transactions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.kv.commit(KvBatch::new()).map_err(|e| {
            self.failed.store(true, Ordering::Relaxed);
            storage(e)
        })
    }

    fn counters(&self) -> Vec<StoreCounter> {
        let number = |name: &str, is_bytes, value| StoreCounter {
            name: name.to_owned(),
            is_bytes,
            value,
        };
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut counters = written_counters(&self.kv.written());
        // What the log's bytes are for; the rest of them is the database's framing.
        let data = load(&self.put[Prefix::Data as usize]);
        let client = load(&self.client_bytes).min(data);
        counters.push(number("wal_client_data", true, client));
        counters.push(number("wal_stripe_rest", true, data - client));
        for prefix in Prefix::ALL {
            if prefix != Prefix::Data {
                let bytes = load(&self.put[prefix as usize]);
                counters.push(number(&format!("wal_{}", prefix.name()), true, bytes));
            }
        }
        counters.push(number("transactions", false, load(&self.transactions)));
        counters
    }
}

/// A database's bytes by cause as counters.
pub(crate) fn written_counters(written: &KvWritten) -> Vec<StoreCounter> {
    let causes = [
        ("written_rocksdb_wal", written.wal),
        ("written_rocksdb", written.flush),
        ("written_compaction", written.compaction),
        ("written_manifest", written.manifest),
        ("written_other", written.other),
        ("written", written.total()),
        ("read", written.read),
    ];
    let mut counters: Vec<StoreCounter> = causes
        .into_iter()
        .map(|(name, value)| StoreCounter {
            name: name.to_owned(),
            is_bytes: true,
            value,
        })
        .collect();
    counters.push(StoreCounter {
        name: "syncs".to_owned(),
        is_bytes: false,
        value: written.syncs,
    });
    counters
}

/// A store in a key-value database.
pub type KStore = Blocking<Inner>;

/// What [`KStore`] is made of.
pub struct Inner {
    lanes: Lanes<Core>,
    syncs: Rc<Syncs>,
    /// What the counters were when the store was closed.
    last_counters: RefCell<Vec<StoreCounter>>,
}

/// Syncs of the database, each for all that waits when it begins.
struct Syncs {
    env: Env,
    worker: Workers,
    core: RefCell<Option<Arc<Core>>>,
    asked: Cell<u64>,
    done: Cell<u64>,
    running: Cell<bool>,
    failed: RefCell<Option<StoreError>>,
    progress: Notify,
}

impl Syncs {
    /// Completes when all that has been applied is durable.
    async fn wait(self: Rc<Syncs>) -> Result<(), StoreError> {
        let mine = self.asked.get() + 1;
        self.asked.set(mine);
        if !self.running.replace(true) {
            self.env.go(self.clone().run());
        }
        self.progress
            .until(|| self.done.get() >= mine || self.failed.borrow().is_some())
            .await;
        match &*self.failed.borrow() {
            Some(e) if self.done.get() < mine => Err(e.clone()),
            _ => Ok(()),
        }
    }

    async fn run(self: Rc<Syncs>) {
        while self.done.get() < self.asked.get() && self.failed.borrow().is_none() {
            let target = self.asked.get();
            let Some(core) = self.core.borrow().clone() else {
                *self.failed.borrow_mut() = Some(StoreError::Closed);
                break;
            };
            let sync = self.worker.run(move || {
                let result = core.sync();
                drop(core);
                result
            });
            match sync.await {
                Ok(()) => self.done.set(target),
                Err(e) => *self.failed.borrow_mut() = Some(e),
            }
            self.progress.notify_all();
        }
        self.running.set(false);
        self.progress.notify_all();
    }
}

impl KStore {
    /// Makes an empty store in an empty database.
    pub async fn mkfs(env: &Env, kv: SharedKv, options: MkfsOptions) -> Result<(), StoreError> {
        let superblock = Superblock {
            uuid: options.uuid,
            stripe_len: options.stripe_len.max(512),
        };
        let worker = env.workers("kstore", 1)?;
        worker
            .run(move || {
                let mut batch = KvBatch::new();
                batch.delete_range(&b""[..], &b""[..]);
                batch.put(superblock_key(), superblock.to_bytes());
                kv.commit(batch).map_err(storage)
            })
            .await
    }

    /// Opens the store in a database. Stripes of up to `limit` bytes fit.
    pub async fn mount(env: Env, kv: SharedKv, limit: u64) -> Result<KStore, StoreError> {
        let lane = env.workers("kstore", 1)?;
        let core = Arc::new(lane.run(move || Core::open(kv, limit)).await?);
        let syncs = Rc::new(Syncs {
            worker: env.workers("kstore_sync", 1)?,
            env,
            core: RefCell::new(Some(core.clone())),
            asked: Cell::new(0),
            done: Cell::new(0),
            running: Cell::new(false),
            failed: RefCell::default(),
            progress: Notify::default(),
        });
        Ok(Blocking(Inner {
            lanes: Lanes::new(core, vec![lane]),
            syncs,
            last_counters: RefCell::default(),
        }))
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // A sync that runs keeps the database until it ends.
        *self.syncs.core.borrow_mut() = None;
    }
}

impl Backend for Inner {
    type Core = Core;

    fn lanes(&self) -> &Lanes<Core> {
        &self.lanes
    }

    fn submit(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>> {
        let applied = self.lanes.run(0, move |core| core.apply(&t));
        let syncs = self.syncs.clone();
        Box::pin(async move {
            applied.await?;
            syncs.wait().await
        })
    }

    fn counters(&self) -> Vec<StoreCounter> {
        match self.lanes.core() {
            Some(core) => core.counters(),
            None => self.last_counters.borrow().clone(),
        }
    }

    fn close(&self) -> LocalFuture<Result<(), StoreError>> {
        let Some(core) = self.lanes.take() else {
            return Box::pin(std::future::ready(Err(StoreError::Closed)));
        };
        *self.last_counters.borrow_mut() = core.counters();
        // What is queued comes before this.
        let drained = self.lanes.all()[0].run(|| ());
        let syncs = self.syncs.clone();
        Box::pin(async move {
            drained.await;
            let result = syncs.clone().wait().await;
            *syncs.core.borrow_mut() = None;
            syncs.progress.until(|| !syncs.running.get()).await;
            // The database closes here, on a thread that may block.
            syncs.worker.run(move || drop(core)).await;
            result
        })
    }
}
