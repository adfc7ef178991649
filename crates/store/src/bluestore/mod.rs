//! Objects straight on a device, what is known of them in a key-value database: Ceph's BlueStore
//! (`src/os/bluestore/BlueStore.cc` at v16.2, and lee-2017's account of it).
//!
//! Data for new allocation units is written to free space before the metadata commits; parts of
//! units that are there go through the database's log and are written in place afterwards
//! ([`write`]). Extents point into blobs with checksums ([`extent_map`]), clones share blobs by
//! counted references. What waits becomes durable together ([`commit`]). Formats, crash argument and
//! causes: docs/bluestore.md.
//!
//! All that blocks runs on two threads: one applies transactions and serves reads, in the order of
//! the calls, one makes them durable.

mod alloc;
mod apply;
mod bluefs;
mod commit;
mod compression;
mod database;
mod extent_map;
mod format;
mod fsck;
mod pending;
mod pools;
mod read;
mod txn;
mod write;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use denc::Denc;
use device::{Ledger, Piece, SharedDevice, WriteCause};
use env::Env;

use self::alloc::Allocator;
use self::bluefs::{BlueFs, Role, SharedAllocator};
use self::commit::{Pending, Unfinished};
pub use self::compression::{Algorithm, Compression, Mode as CompressionMode};
pub use self::database::Database;
use self::format::{BLOCK_LEN, Deferred, LABEL_ROOM, Prefix, Superblock, Totals};
use self::pending::{Blocks, Keys, Turn};
use self::pools::{PoolSpace, Pools};
use self::txn::Txn;
use crate::blocking::Blocking;
use crate::check::check;
use crate::keyed::keys::{behind, superblock_key, totals_key};
use crate::keyed::read::View;
use crate::keyed::rounds::{Durable, Inner};
use crate::keyed::{self, decoded};
use crate::kv::{KvBatch, SharedKv, need, storage, written_counters};
use crate::{CollId, PoolOptions, StoreCounter, StoreError, Transaction};

/// How a new store is made.
#[derive(Debug, Clone, Copy)]
pub struct MkfsOptions {
    /// Who it belongs to.
    pub uuid: [u8; 16],
    /// Bytes of an allocation unit (`bluestore_min_alloc_size`): a power of two from 4 to 64 KiB.
    pub min_alloc_len: u32,
}

fn locked(alloc: &SharedAllocator) -> MutexGuard<'_, Allocator> {
    alloc.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What lives on the worker threads.
pub struct Core {
    device: SharedDevice,
    kv: SharedKv,
    superblock: Superblock,
    /// The device's space, of which BlueFS may have some. Taken after `state`, and never held
    /// while the database is asked.
    space: SharedAllocator,
    /// What the database stands on, if it is ours.
    bluefs: Option<Arc<BlueFs>>,
    compression: Compression,
    /// The same for pools that want it otherwise. Bound: the pools of the cluster.
    pools: Mutex<BTreeMap<u64, Compression>>,
    compression_counts: CompressionCounts,
    /// Bytes of the database's write buffer, and of a compaction; 0 if it is not on our devices.
    kv_buffer: u64,
    kv_compaction: u64,
    /// Bytes that it holds, when last looked, and those put into it since.
    kv_held: AtomicU64,
    kv_put: AtomicU64,
    state: Mutex<State>,
    /// Held by whoever makes things durable. Taken before `state`.
    round: Mutex<()>,
    /// Bytes put into batches, by prefix.
    put: [AtomicU64; Prefix::ALL.len()],
    transactions: AtomicU64,
    deferred_writes: AtomicU64,
}

/// As Ceph counts them.
#[derive(Debug, Default)]
struct CompressionCounts {
    /// Blobs that became shorter.
    succeeded: AtomicU64,
    /// Blobs that did not, or not enough.
    rejected: AtomicU64,
    /// Bytes written anew because little was left of what they were compressed with.
    merged: AtomicU64,
}

struct State {
    totals: Totals,
    pools: Pools,
    keys: Keys,
    blocks: Blocks,
    unfinished: Unfinished,
    /// Number of the last transaction since the mount.
    last_seq: u64,
    /// Why nothing is acknowledged any more.
    failed: Option<StoreError>,
}

impl Core {
    fn open(
        device: SharedDevice,
        database: &Database,
        compression: Compression,
    ) -> Result<Core, StoreError> {
        let label = device.read(0, BLOCK_LEN as usize)?;
        let label = Superblock::of_block(&label).ok_or(StoreError::Format("no bluestore label"))?;
        if device.len() < label.device_len {
            return Err(StoreError::Format("the device is shorter than its store"));
        }
        // It may have grown: an OSD whose database had no room left can be given some.
        let unit = u64::from(label.min_alloc_len);
        let grown = Superblock { device_len: device.len() / unit * unit, ..label };
        let opened = database.open(&device, &grown, false)?;
        let kv = opened.kv;
        let superblock = kv
            .get(&superblock_key())
            .map_err(storage)?
            .ok_or(StoreError::Format("no bluestore here: run --mkfs"))?;
        let superblock: Superblock = decoded(&superblock, "the superblock")?;
        // Which of both was told last that it has grown is one.
        if (Superblock { device_len: grown.device_len, ..superblock }) != grown
            || superblock.device_len > grown.device_len
        {
            return Err(StoreError::Format("device and database do not belong together"));
        }
        if superblock != grown || label != grown {
            let mut batch = KvBatch::new();
            batch.put(superblock_key(), grown.to_bytes());
            kv.commit(batch).map_err(storage)?;
            write_label(&device, &grown)?;
        }
        let superblock = grown;
        let totals = match kv.get(&totals_key()).map_err(storage)? {
            Some(value) => Totals::of_bytes(&value).ok_or(StoreError::Format("the totals"))?,
            None => Totals::default(),
        };
        let of = |prefix: Prefix| (prefix.key(), behind(&prefix.key()));
        let (start, end) = of(Prefix::Deferred);
        let records = kv.range(&start, &end, usize::MAX).map_err(storage)?;
        let records: Result<Vec<(Bytes, Deferred)>, StoreError> = records
            .into_iter()
            .map(|(key, value)| Ok((key, decoded(&value, "a deferred write")?)))
            .collect();
        let core = Core {
            device,
            kv,
            superblock,
            space: opened.alloc,
            bluefs: opened.bluefs,
            compression,
            pools: Mutex::default(),
            compression_counts: CompressionCounts::default(),
            kv_buffer: opened.buffer,
            kv_compaction: opened.compaction,
            kv_held: AtomicU64::new(0),
            kv_put: AtomicU64::new(0),
            state: Mutex::new(State {
                totals,
                pools: Pools::new(),
                keys: Keys::default(),
                blocks: Blocks::default(),
                unfinished: Unfinished::default(),
                last_seq: 0,
                failed: None,
            }),
            round: Mutex::new(()),
            put: Default::default(),
            transactions: AtomicU64::new(0),
            deferred_writes: AtomicU64::new(0),
        };
        core.look_at_kv()?;
        core.replay(records?)?;
        let pools = core.load_pools()?;
        core.state().pools = pools;
        Ok(core)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alloc(&self) -> MutexGuard<'_, Allocator> {
        locked(&self.space)
    }

    fn round(&self) -> MutexGuard<'_, ()> {
        self.round.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<u64, Compression>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How data is compressed in a collection.
    fn compression_in(&self, cid: &CollId) -> Compression {
        let pools = self.pools();
        let own = cid.spg().and_then(|pg| pools.get(&pg.pgid.pool));
        own.copied().unwrap_or(self.compression)
    }

    /// Bytes of an allocation unit.
    fn unit(&self) -> u64 {
        self.superblock.min_alloc_len.into()
    }

    /// Bytes kept free for transactions that need none in the end, overwrites by copies, and for
    /// the database: what it may need, and a little that only omaps may have.
    fn reserve(&self) -> u64 {
        let share = (self.superblock.device_len / 64).min(4 << 20);
        let share = share.max(4 * self.unit()) + self.kv_need() + 2 * self.kv_buffer;
        share.next_multiple_of(self.unit())
    }

    /// Bytes that must be free for the database, of this device beside its own. What it has beyond what it
    /// holds are tables of a compaction, or that one has just made needless.
    fn kv_need(&self) -> u64 {
        let Some(fs) = &self.bluefs else { return 0 };
        let spaces = [Role::Wal, Role::Db, Role::Main].map(|role| fs.space_of(role));
        let has: u64 = spaces.iter().map(|(has, _)| has).sum();
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let holds = (load(&self.kv_held) + load(&self.kv_put)).min(has);
        let need = need(self.kv_buffer, self.kv_compaction, holds, has - holds);
        let (has, all) = spaces[Role::Db as usize];
        need.saturating_sub(all.saturating_sub(has))
    }

    /// Asks the database what it holds.
    fn look_at_kv(&self) -> Result<(), StoreError> {
        if let Some(fs) = &self.bluefs {
            let held = self.kv.range_bytes(b"", b"").map_err(storage)?;
            // With its logs.
            let held = held + 2 * self.kv_buffer + fs.overhead();
            self.kv_held.store(held, Ordering::Relaxed);
            self.kv_put.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn attempt(&self, t: &Transaction) -> Result<(), StoreError> {
        let before = self.state().totals;
        let mut txn = Txn::new(self, before);
        let mut applied = keyed::apply::apply(&mut txn, t);
        if applied.is_ok() {
            applied = self.find_room(&txn, t);
        }
        let mut state = self.state();
        let mut alloc = self.alloc();
        if let Err(e) = applied {
            txn.took.iter().for_each(|run| alloc.release(run));
            return Err(e);
        }
        let freelist = alloc.apply(&txn.took, &txn.freed).map_err(|e| {
            tracing::error!(offset = e.offset, "the freelist contradicts an extent map");
            state.failed = Some(StoreError::Latched);
            StoreError::Format("the freelist contradicts an extent map")
        })?;
        drop(alloc);
        let seq = state.last_seq + 1;
        state.last_seq = seq;
        let (batch, bytes) = txn.take_batch(seq, freelist, before, &state.pools);
        state.totals = txn.totals();
        for (pool, space) in txn.pools() {
            match *space == PoolSpace::default() {
                true => state.pools.remove(pool),
                false => state.pools.insert(*pool, *space),
            };
        }
        state.keys.add(seq, &batch);
        for (is_deferred, writes) in [(false, &txn.direct), (true, &txn.deferred)] {
            for write in writes {
                state.blocks.add(Turn { seq, is_deferred }, write.offset, &write.data);
            }
        }
        state.unfinished.add(Pending {
            seq,
            batch,
            direct: std::mem::take(&mut txn.direct),
            deferred: std::mem::take(&mut txn.deferred),
            freed: std::mem::take(&mut txn.freed),
        });
        for (counter, n) in self.put.iter().zip(bytes) {
            counter.fetch_add(n, Ordering::Relaxed);
        }
        self.transactions.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether there is room for a transaction, by what the database holds now if it seems not.
    fn find_room(&self, txn: &Txn<'_>, t: &Transaction) -> Result<(), StoreError> {
        let metadata = t.metadata_bytes();
        if self.kv_put.fetch_add(metadata, Ordering::Relaxed) > self.kv_buffer / 4 {
            self.look_at_kv()?;
        }
        if self.fits(txn, t, metadata) {
            return Ok(());
        }
        self.look_at_kv()?;
        if self.fits(txn, t, metadata) { Ok(()) } else { Err(StoreError::NoSpace) }
    }

    /// Whether a transaction leaves the reserve alone, or takes no more than it frees; and what the
    /// database may need, if it adds to that.
    fn fits(&self, txn: &Txn<'_>, t: &Transaction, metadata: u64) -> bool {
        let len = |runs: &[Range<u64>]| runs.iter().map(|run| run.end - run.start).sum::<u64>();
        let (took, freed) = (len(&txn.took), len(&txn.freed));
        let (need, reserve) = (self.kv_need(), self.reserve());
        let alloc = self.alloc();
        // What waits to be free may be much: the database must not find the device full meanwhile.
        let is_waiting = alloc.waiting_len() > took;
        if is_waiting && alloc.free_len() < need {
            return false;
        }
        let used = (alloc.used_len() + alloc.lent_len() + took).saturating_sub(freed);
        match took > freed {
            // An OSD's own: maps, without which it could not go on.
            true if t.is_of_owner() => used + 2 * self.kv_buffer <= alloc.data_len(),
            true => used + reserve <= alloc.data_len(),
            // Only what shrinks may go on when the database's devices are nearly full.
            false if !t.adds_metadata() || freed > took && !t.notes_much() => true,
            false => alloc.free_len() >= need + metadata,
        }
    }

    /// The ledgers of all devices.
    fn devices(&self) -> Vec<SharedDevice> {
        let own = self.bluefs.iter().flat_map(|fs| fs.own_devices());
        std::iter::once(self.device.clone()).chain(own).collect()
    }

    /// Bytes by cause where all that is written goes to our devices.
    fn device_counters(&self) -> Vec<StoreCounter> {
        let devices = self.devices();
        let sum = |of: &dyn Fn(&Ledger) -> u64| devices.iter().map(|d| of(d.ledger())).sum();
        let counter =
            |name: &str, is_bytes, value| StoreCounter { name: name.to_owned(), is_bytes, value };
        let mut counters = Vec::new();
        for (name, cause) in [
            ("written_rocksdb_wal", WriteCause::DatabaseLog),
            ("written_rocksdb", WriteCause::DatabaseFlush),
            ("written_compaction", WriteCause::DatabaseCompaction),
            ("written_manifest", WriteCause::DatabaseManifest),
            ("written_other", WriteCause::DatabaseOther),
            ("written_bluefs_log", WriteCause::FileSystem),
        ] {
            counters.push(counter(name, true, sum(&|ledger| ledger.written(cause))));
        }
        counters.push(counter("written", true, sum(&Ledger::written_total)));
        counters.push(counter("read", true, sum(&Ledger::read)));
        counters.push(counter("syncs", false, sum(&Ledger::syncs)));
        counters
    }
}

impl Durable for Core {
    fn apply(&self, t: &Transaction) -> Result<(), StoreError> {
        if let Some(e) = &self.state().failed {
            return Err(e.clone());
        }
        let view = View::new(self, t.ops().len());
        let checked = check(t, &view);
        view.failure()?;
        checked?;
        match self.attempt(t) {
            // Space may be free but for deferred writes.
            Err(StoreError::NoSpace) if self.alloc().waiting_len() > 0 => {
                self.drain()?;
                self.attempt(t)
            }
            result => result,
        }
    }

    fn sync(&self) -> Result<(), StoreError> {
        self.commit()
    }

    fn set_pool_options(&self, pool: u64, options: &PoolOptions) {
        let wanted = self.compression.with(options);
        let mut pools = self.pools();
        match wanted == self.compression {
            true => drop(pools.remove(&pool)),
            false => drop(pools.insert(pool, wanted)),
        }
    }

    fn has_more(&self) -> bool {
        self.state().unfinished.deferred_is_due()
    }

    fn do_more(&self) -> Result<(), StoreError> {
        self.write_deferred_if_due()
    }

    fn finish(&self) -> Result<(), StoreError> {
        self.drain()
    }

    fn counters(&self) -> Vec<StoreCounter> {
        let number =
            |name: &str, is_bytes, value| StoreCounter { name: name.to_owned(), is_bytes, value };
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ledger = self.device.ledger();
        let mut counters = match &self.bluefs {
            Some(_) => self.device_counters(),
            None => written_counters(&self.kv.written()),
        };
        for counter in counters.iter_mut().filter(|_| self.bluefs.is_none()) {
            // The database's files lie beside the device.
            match counter.name.as_str() {
                "written" => counter.value += ledger.written_total(),
                "read" => counter.value += ledger.read(),
                "syncs" => counter.value += ledger.syncs(),
                _ => {}
            }
        }
        for cause in [
            WriteCause::Data,
            WriteCause::Rewrite,
            WriteCause::ZeroFill,
            WriteCause::Padding,
            WriteCause::Superblock,
        ] {
            let name = format!("written_{}", cause.name());
            let devices = self.devices();
            let written = devices.iter().map(|d| d.ledger().written(cause)).sum();
            counters.push(number(&name, true, written));
        }
        if let Some(fs) = &self.bluefs {
            let theirs = fs.counters().into_iter();
            counters.extend(theirs.map(|(name, is_bytes, n)| number(name, is_bytes, n)));
        }
        let [compressed, allocated, original] = self.state().totals.compressed;
        let counts = &self.compression_counts;
        for (name, is_bytes, value) in [
            ("compress_success_count", false, load(&counts.succeeded)),
            ("compress_rejected_count", false, load(&counts.rejected)),
            ("bluestore_compressed", true, compressed),
            ("bluestore_compressed_allocated", true, allocated),
            ("bluestore_compressed_original", true, original),
            ("bluestore_gc_merged", true, load(&counts.merged)),
        ] {
            counters.push(number(name, is_bytes, value));
        }
        // What the log's bytes are for; the rest of them is the database's framing.
        for prefix in Prefix::ALL {
            let bytes = load(&self.put[prefix as usize]);
            counters.push(number(&format!("wal_{}", prefix.name()), true, bytes));
        }
        counters.push(number("writes", false, ledger.writes()));
        counters.push(number("deferred_writes", false, load(&self.deferred_writes)));
        counters.push(number("transactions", false, load(&self.transactions)));
        counters
    }
}

/// A store on a device and a key-value database. Dropping it without
/// [`close`](crate::ObjectStore::close) is a crash as far as both are concerned.
pub type BlueStore = Blocking<Inner<Core>>;

fn write_label(device: &SharedDevice, superblock: &Superblock) -> Result<(), StoreError> {
    let label = Piece::new(superblock.to_block().into(), WriteCause::Superblock);
    device.write(0, vec![label])?;
    Ok(device.sync()?)
}

impl BlueStore {
    /// Makes an empty store on a device and in a database, which is emptied or made.
    pub async fn mkfs(
        env: &Env,
        device: SharedDevice,
        database: Database,
        options: MkfsOptions,
    ) -> Result<(), StoreError> {
        let unit = options.min_alloc_len;
        if !unit.is_power_of_two() || !(BLOCK_LEN as u32..=64 << 10).contains(&unit) {
            return Err(StoreError::Format(
                "bluestore_min_alloc_size is a power of two from 4096 to 65536",
            ));
        }
        if device.len() < LABEL_ROOM + 16 * u64::from(unit) {
            return Err(StoreError::Format("the device is too small"));
        }
        let superblock = Superblock {
            uuid: options.uuid,
            min_alloc_len: unit,
            device_len: device.len() / u64::from(unit) * u64::from(unit),
        };
        let mut salt = [0; 8];
        env.fill_random(&mut salt);
        let worker = env.workers("bluestore", 1)?;
        worker
            .run(move || {
                let opened = database.make(&device, &superblock, u64::from_le_bytes(salt))?;
                let mut batch = KvBatch::new();
                batch.delete_range(&b""[..], &b""[..]);
                batch.put(superblock_key(), superblock.to_bytes());
                opened.kv.commit(batch).map_err(storage)?;
                write_label(&device, &superblock)
            })
            .await
    }

    /// Opens the store on a device and in its database.
    pub async fn mount(
        env: Env,
        device: SharedDevice,
        database: Database,
        compression: Compression,
    ) -> Result<BlueStore, StoreError> {
        let lane = env.workers("bluestore", 1)?;
        let open = move || Core::open(device, &database, compression);
        let core = Arc::new(lane.run(open).await?);
        let sync = env.workers("bstore_kv_sync", 1)?;
        Ok(Blocking(Inner::new(env, core, lane, sync)))
    }
}

#[cfg(test)]
mod tests {
    use device::shared_memory::SharedMemoryFile;

    use super::*;
    use crate::blocking::Core as _;
    use crate::kv::RocksDbOptions;
    use crate::testing::{block_on, numbered, pg};

    /// A store of 64 MiB in memory, made and not open, and its database.
    pub(super) async fn made(env: &Env) -> (SharedDevice, Database) {
        let device = SharedDevice::new(SharedMemoryFile::new(64 << 20, 4096));
        let database = Database::BlueFs { options: RocksDbOptions::default(), db: None, wal: None };
        let options = MkfsOptions { uuid: [7; 16], min_alloc_len: 4096 };
        let made = BlueStore::mkfs(env, device.clone(), database.clone(), options);
        made.await.unwrap();
        (device, database)
    }

    #[test]
    fn pools_say_how_they_are_compressed() {
        block_on(|env| async move {
            let (device, database) = made(&env).await;
            let core = Core::open(device, &database, Compression::default()).unwrap();
            let cid = pg(0);
            let pool = cid.spg().unwrap().pgid.pool;
            let mut t = Transaction::new();
            t.mkcoll(&cid, 0);
            core.apply(&t).unwrap();
            let compressed = |n: u64| {
                let before = core.state().totals.compressed[2];
                let mut t = Transaction::new();
                t.write(&cid, &numbered(n), 0, vec![n as u8; 64 << 10]);
                core.apply(&t).unwrap();
                core.state().totals.compressed[2] - before
            };
            let force =
                PoolOptions { compression_mode: Some("force".into()), ..PoolOptions::default() };
            assert_eq!(compressed(1), 0);
            core.set_pool_options(pool + 1, &force);
            assert_eq!(compressed(2), 0);
            core.set_pool_options(pool, &force);
            assert_eq!(compressed(3), 64 << 10);
            core.set_pool_options(pool, &PoolOptions::default());
            assert_eq!(compressed(4), 0);
            core.finish().unwrap();
        });
    }

    /// Found by a test on a busy machine: a store with room for many objects failed for good, because
    /// its RocksDB had found the device full.
    ///
    /// 1. One object is overwritten again and again. What an overwrite frees waits for the round, and
    ///    for deferred writes before it.
    /// 2. As those units are no object's any more, the next overwrites were let take all that was left.
    /// 3. The database's log wanted a block.
    #[test]
    fn overwrites_leave_room_for_the_database() {
        block_on(|env| async move {
            let device = SharedDevice::new(SharedMemoryFile::new(16 << 20, 4096));
            let database =
                Database::BlueFs { options: RocksDbOptions::default(), db: None, wal: None };
            let options = MkfsOptions { uuid: [7; 16], min_alloc_len: 16 << 10 };
            let made = BlueStore::mkfs(&env, device.clone(), database.clone(), options);
            made.await.unwrap();
            let core = Core::open(device, &database, Compression::default()).unwrap();
            let mut t = Transaction::new();
            t.mkcoll(&pg(0), 0);
            core.apply(&t).unwrap();
            // No round is run but those that the lack of space asks for.
            for n in 0..40_u64 {
                let mut t = Transaction::new();
                t.write(&pg(0), &numbered(1), n % 3 * 4096, vec![n as u8; 1 << 20]);
                core.apply(&t).unwrap();
                let free = core.alloc().free_len();
                assert!(free >= core.kv_need(), "{free} bytes after write {n}");
            }
            core.finish().unwrap();
        });
    }

    /// Found by a random history whose store was slower than its calls: what had just been written could
    /// not be read, its checksum did not fit.
    ///
    /// 1. One transaction writes a part of a new unit, and into the same block once more: the first goes
    ///    to the unit's place before the metadata commits, the other into it, deferred.
    /// 2. The round that made it durable forgot the block as written, with the deferred bytes.
    /// 3. Until those were written, it was read from the device as the first write had left it.
    #[test]
    fn what_a_transaction_writes_twice_is_read_until_it_is_in_place() {
        block_on(|env| async move {
            let (device, database) = made(&env).await;
            let core = Core::open(device, &database, Compression::default()).unwrap();
            let (cid, oid) = (pg(0), numbered(1));
            let mut t = Transaction::new();
            t.mkcoll(&cid, 0);
            t.write(&cid, &oid, 0, vec![1; 100]).write(&cid, &oid, 50, vec![2; 100]);
            core.apply(&t).unwrap();
            let expected = Bytes::from([[1; 50].as_slice(), &[2; 100]].concat());
            let read = || core.read(&cid, &oid, 0, 150).map(|data| data.to_contiguous());
            assert_eq!(read(), Ok(expected.clone()));
            core.commit().unwrap();
            assert!(core.has_more());
            assert_eq!(read(), Ok(expected.clone()));
            core.do_more().unwrap();
            assert_eq!(read(), Ok(expected));
        });
    }

    /// Found by reading: a mount after a crash damaged its own database.
    ///
    /// 1. Blocks of an object are overwritten in place: deferred. The object is removed. Both are
    ///    durable, the deferred writes are not made yet, and the process is killed.
    /// 2. The mount opens RocksDB, which writes its log's contents to a table, in units that were the
    ///    object's.
    /// 3. The deferred writes were made there.
    #[test]
    fn deferred_writes_are_not_made_in_space_that_the_database_took() {
        block_on(|env| async move {
            let file = SharedMemoryFile::new(16 << 20, 4096);
            let options = RocksDbOptions {
                options: "compression=kNoCompression".into(),
                ..RocksDbOptions::default()
            };
            let database = Database::BlueFs { options, db: None, wal: None };
            let options = MkfsOptions { uuid: [7; 16], min_alloc_len: 64 << 10 };
            let device = SharedDevice::new(file.clone());
            BlueStore::mkfs(&env, device.clone(), database.clone(), options).await.unwrap();
            let core = Core::open(device, &database, Compression::default()).unwrap();
            let (cid, oid) = (pg(0), numbered(1));
            let mut t = Transaction::new();
            t.mkcoll(&cid, 0).write(&cid, &oid, 0, vec![1; 8 << 20]);
            core.apply(&t).unwrap();
            core.finish().unwrap();
            let mut overwrites = Transaction::new();
            for unit in 0..128_u64 {
                overwrites.write(&cid, &oid, unit << 16, vec![2; 4096]);
            }
            core.apply(&overwrites).unwrap();
            let mut removal = Transaction::new();
            removal.remove(&cid, &oid);
            core.apply(&removal).unwrap();
            core.commit().unwrap();
            assert!(!core.state().unfinished.is_empty());
            let mut image = file.kill_image();
            // A second crash is no worse.
            for _ in 0..2 {
                let device = SharedDevice::new(image.clone());
                let core = Core::open(device, &database, Compression::default()).unwrap();
                assert!(core.alloc().lent_len() > 0);
                let all = core.kv.range(b"", b"", usize::MAX).unwrap();
                assert!(!all.is_empty());
                image = image.kill_image();
            }
        });
    }
}
