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

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use denc::Denc;
use env::Env;

use self::format::{Prefix, Superblock, Totals};
use self::txn::Txn;
use crate::blocking::Blocking;
use crate::check::check;
use crate::keyed::keys::{behind, superblock_key, totals_key};
use crate::keyed::read::View;
use crate::keyed::rounds::{Durable, Inner};
use crate::keyed::{self, decoded};
use crate::kv::{Kv, KvBatch, SharedKv, storage, written_counters};
use crate::room::{Found, Growth, Room, Taken, file_system_room};
use crate::{Op, StoreCounter, StoreError, Transaction};

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

/// What lives on the worker threads.
pub struct Core {
    kv: SharedKv,
    superblock: Superblock,
    /// Its size in bytes.
    limit: u64,
    room: Room,
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
        let used = totals.data + besides_data(&*kv)?;
        Ok(Core {
            kv,
            superblock,
            limit,
            room: Room::new(limit, used),
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

    /// What the database takes besides data, and what its file system has left. Data counts as what
    /// objects have: what was written over it stays only until the database compacts.
    fn found(&self) -> Result<Found, StoreError> {
        Ok(Found { database: besides_data(&*self.kv)?, free: file_system_room(&*self.kv)? })
    }
}

/// About how many bytes of a database are no stripes.
fn besides_data(kv: &dyn Kv) -> Result<u64, StoreError> {
    let data = Prefix::Data.key();
    let before = kv.range_bytes(b"", &data).map_err(storage)?;
    Ok(before + kv.range_bytes(&behind(&data), b"").map_err(storage)?)
}

impl Durable for Core {
    fn apply(&self, t: &Transaction) -> Result<(), StoreError> {
        if self.failed.load(Ordering::Relaxed) {
            return Err(StoreError::Latched);
        }
        let view = View::new(self, t.ops().len());
        let checked = check(t, &view);
        view.failure()?;
        checked?;
        let mut totals = self.totals();
        let mut txn = Txn::new(self, self.superblock.stripe_len, totals.last_nid);
        keyed::apply::apply(&mut txn, t)?;
        let data = totals.data.saturating_add_signed(txn.data_delta);
        let after = Totals { last_nid: txn.last_nid, data };
        if after != *totals {
            txn.changes.put(totals_key(), after.to_bytes());
        }
        let mut bytes = [0; Prefix::ALL.len()];
        let batch = txn.changes.take_batch(&mut |letter, len| {
            if let Some(prefix) = Prefix::of(letter) {
                bytes[prefix as usize] += len;
            }
        });
        let all = bytes.iter().sum::<u64>();
        let taken = Taken { database: all - bytes[Prefix::Data as usize], files: all };
        let growth = match txn.data_delta > 0 {
            true if t.is_of_owner() => Growth::Metadata,
            true => Growth::Data,
            false if t.adds_metadata() => Growth::Metadata,
            false => Growth::Nothing,
        };
        let look = || self.found().map(|found| (found, Taken::default()));
        if !self.room.take(data, taken, growth, look)? {
            return Err(StoreError::NoSpace);
        }
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
        let written = t.ops().iter().map(|op| match op {
            Op::Write { data, .. } => data.len() as u64,
            _ => 0,
        });
        self.client_bytes.fetch_add(written.sum::<u64>(), Ordering::Relaxed);
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
        let number =
            |name: &str, is_bytes, value| StoreCounter { name: name.to_owned(), is_bytes, value };
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

/// A store in a key-value database.
pub type KStore = Blocking<Inner<Core>>;

impl KStore {
    /// Makes an empty store in an empty database.
    pub async fn mkfs(env: &Env, kv: SharedKv, options: MkfsOptions) -> Result<(), StoreError> {
        let superblock = Superblock { uuid: options.uuid, stripe_len: options.stripe_len.max(512) };
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

    /// Opens the store in a database, of `limit` bytes.
    pub async fn mount(env: Env, kv: SharedKv, limit: u64) -> Result<KStore, StoreError> {
        let lane = env.workers("kstore", 1)?;
        let core = Arc::new(lane.run(move || Core::open(kv, limit)).await?);
        let sync = env.workers("kstore_sync", 1)?;
        Ok(Blocking(Inner::new(env, core, lane, sync)))
    }
}
