//! BlueStore over power loss after every write and flush of the device, over rot, and over writes
//! that fail.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use device::memory::Choices;
use device::shared_memory::SharedMemoryFile;
use device::{SharedDevice, WriteCause};
use env::{AlignedBuf, Env, SharedBlockFile};
use store::bluestore::{BlueStore, Compression, Database};
use store::kv::{Kv, KvBatch, MemKv, SharedKv};
use store::{FsckOptions, ObjectStore, StoreError, Transaction};

use super::blue::{Disks, Under, check, made, mounted};
use super::common::{Model, Sizes, block_on, numbered, object, pg, transaction};

fn copy(kv: &SharedKv) -> SharedKv {
    let mut batch = KvBatch::new();
    for (key, value) in kv.range(b"", b"", usize::MAX).unwrap() {
        batch.put(key, value);
    }
    let image = MemKv::new();
    image.commit(batch).unwrap();
    Arc::new(image)
}

/// A database in memory, with what it has now; `None` for one on the devices.
fn given(kv: Option<&SharedKv>, disks: &Disks) -> Database {
    match kv {
        Some(kv) => Database::Given(copy(kv)),
        None => disks.bluefs(),
    }
}

/// Devices and database as a crash left them, and how many transactions were acknowledged and
/// submitted then.
struct Image {
    disks: Disks,
    under: Under,
    kv: Option<SharedKv>,
    acknowledged: usize,
    submitted: usize,
}

/// A database in memory has its commits when they return, so between two events of the device it
/// has one state: images at each event, and at the end, are all there are. One on BlueFS is on the
/// same devices: an image is what power loss leaves of RocksDB's and BlueFS's writes, too, those of
/// RocksDB's own threads among them. Of these images some are looked at: a RocksDB takes time.
async fn power_losses(env: Env, seed: u64, unit: u32, sizes: Sizes, steps: usize, under: Under) {
    let disks = Disks::new(24 << 20, under);
    let kv: Option<SharedKv> = match under.is_memory() {
        true => Some(Arc::new(MemKv::new())),
        false => None,
    };
    let database = match &kv {
        Some(kv) => Database::Given(kv.clone()),
        None => disks.bluefs(),
    };
    let store = made(&env, disks.device(), database, unit, under).await;
    let counts: Arc<[AtomicUsize; 2]> = Arc::default();
    let images: Arc<Mutex<Vec<Image>>> = Arc::default();
    let crashes = Arc::new(Mutex::new(Choices::new(seed ^ 0xc4a5)));
    for file in disks.all() {
        let (seen, kept, theirs) = (counts.clone(), images.clone(), kv.clone());
        let (crashes, disks) = (crashes.clone(), disks.clone());
        file.set_hook(move |_| {
            let mut crashes = crashes.lock().unwrap();
            if !under.is_memory() && crashes.below(3) != 0 {
                return;
            }
            // Threads of RocksDB's come here, too: what was acknowledged is asked before, what was
            // submitted after.
            let acknowledged = seen[0].load(Ordering::SeqCst);
            let disks = disks.image(|file| file.crash_image(&mut crashes));
            kept.lock().unwrap().push(Image {
                disks,
                under,
                kv: theirs.as_ref().map(copy),
                acknowledged,
                submitted: seen[1].load(Ordering::SeqCst),
            });
        });
    }
    let mut choices = Choices::new(seed);
    let (mut states, mut waiting) = (vec![Model::default()], VecDeque::new());
    for step in 0..steps {
        let mut model = states.last().unwrap().clone();
        let t = transaction(&mut choices, &model, sizes);
        if model.apply(&t).is_err() {
            continue;
        }
        states.push(model);
        counts[1].store(states.len() - 1, Ordering::SeqCst);
        waiting.push_back(store.submit(t));
        while waiting.len() > choices.below(1 + seed * 2) as usize {
            waiting.pop_front().unwrap().await.unwrap();
            counts[0].fetch_add(1, Ordering::SeqCst);
        }
        let taken = std::mem::take(&mut *images.lock().unwrap());
        for image in taken {
            check_image(&env, &image, &states, &format!("seed {seed} step {step}")).await;
        }
    }
    for done in waiting {
        done.await.unwrap();
    }
    check(&store).await;
    assert_eq!(states.last().unwrap().compare(&*store).await, Ok(()));
}

async fn check_image(env: &Env, image: &Image, states: &[Model], at: &str) {
    let live = match &image.kv {
        Some(kv) => Database::Given(kv.clone()),
        None => image.disks.bluefs(),
    };
    let store = mounted(env, image.disks.device(), live, image.under).await;
    let store = store.unwrap_or_else(|e| panic!("{at}: {e}"));
    check(&store).await;
    let mut found = None;
    for (n, state) in states.iter().enumerate().take(image.submitted + 1).skip(image.acknowledged) {
        if state.compare(&*store).await.is_ok() {
            found = Some(n);
        }
    }
    let (from, to) = (image.acknowledged, image.submitted);
    let found = found.unwrap_or_else(|| panic!("{at}: holds none of the states {from}..={to}"));
    if !env.random_u64().is_multiple_of(3) {
        return;
    }
    // Life goes on, and a second crash is no worse.
    let mut model = states[found].clone();
    let mut t = Transaction::new();
    t.mkcoll(&pg(100), 0).write(&pg(100), &object("after", 1), 0, vec![5; 5000]).write(
        &pg(100),
        &object("after", 1),
        100,
        vec![6; 50],
    );
    model.apply(&t).unwrap();
    store.submit(t).await.unwrap();
    let mut choices = Choices::new(found as u64);
    let again = image.disks.image(|file| file.crash_image(&mut choices));
    let database = given(image.kv.as_ref(), &again);
    let store = mounted(env, again.device(), database, image.under).await.unwrap();
    assert_eq!(model.compare(&*store).await, Ok(()), "{at}, again");
    check(&store).await;
}

#[test]
fn every_image_holds_what_was_acknowledged() {
    let sizes = Sizes { objects: 6, object_len: 90_000, write_len: 30_000 };
    for seed in 0..4 {
        let unit = [65_536, 4096, 16_384][seed as usize % 3];
        block_on(move |env| power_losses(env, seed, unit, sizes, 40, Under::Memory));
        if unit == 4096 {
            block_on(move |env| power_losses(env, seed, unit, sizes, 40, Under::Compressed));
        }
    }
}

#[test]
fn every_image_of_data_and_database_holds_what_was_acknowledged() {
    let sizes = Sizes { objects: 6, object_len: 90_000, write_len: 30_000 };
    for (seed, unit, under) in
        [(11, 4096, Under::BlueFs), (12, 65_536, Under::BlueFs), (13, 16_384, Under::Beside)]
    {
        block_on(move |env| power_losses(env, seed, unit, sizes, 40, under));
    }
}

#[test]
fn long_writes_too() {
    let sizes = Sizes { objects: 4, object_len: 500_000, write_len: 200_000 };
    block_on(move |env| power_losses(env, 2, 65_536, sizes, 12, Under::Memory));
}

/// A store with some contents, closed, and the model of them.
async fn filled(env: &Env, seed: u64, unit: u32) -> (Arc<SharedMemoryFile>, SharedKv, Model) {
    let file = SharedMemoryFile::new(24 << 20, 4096);
    let kv: SharedKv = Arc::new(MemKv::new());
    let store = made(
        env,
        SharedDevice::new(file.clone()),
        Database::Given(kv.clone()),
        unit,
        Under::Memory,
    )
    .await;
    let (mut model, mut choices) = (Model::default(), Choices::new(seed));
    for _ in 0..150 {
        let t = transaction(&mut choices, &model, Sizes::SMALL);
        if model.apply(&t).is_ok() {
            store.submit(t).await.unwrap();
        }
    }
    store.close().await.unwrap();
    (file, kv, model)
}

/// The first `len` bytes of a device that has more.
struct Part {
    file: Arc<SharedMemoryFile>,
    len: u64,
}

impl SharedBlockFile for Part {
    fn len(&self) -> u64 {
        self.len
    }
    fn block_len(&self) -> u32 {
        self.file.block_len()
    }
    fn read_at(&self, offset: u64, len: usize) -> std::io::Result<AlignedBuf> {
        self.file.read_at(offset, len)
    }
    fn write_at(&self, offset: u64, bufs: Vec<Bytes>) -> std::io::Result<()> {
        self.file.write_at(offset, bufs)
    }
    fn sync(&self) -> std::io::Result<()> {
        self.file.sync()
    }
}

/// A store whose database had filled its device could not be opened again, and giving it a larger device did not help: it
/// kept to the length it was made with.
#[test]
fn a_store_grows_with_its_device() {
    block_on(|env| async move {
        const LEN: u64 = 24 << 20;
        let file = SharedMemoryFile::new(2 * LEN, 4096);
        let device = |len| SharedDevice::new(Arc::new(Part { file: file.clone(), len }));
        let disks = Disks::new(LEN, Under::BlueFs);
        let store = made(&env, device(LEN), disks.bluefs(), 4096, Under::BlueFs).await;
        let (mut model, mut choices) = (Model::default(), Choices::new(5));
        for _ in 0..60 {
            let t = transaction(&mut choices, &model, Sizes::SMALL);
            if model.apply(&t).is_ok() {
                store.submit(t).await.unwrap();
            }
        }
        let before = store.statfs().await.unwrap();
        store.close().await.unwrap();
        for _ in 0..2 {
            let store =
                mounted(&env, device(2 * LEN), disks.bluefs(), Under::BlueFs).await.unwrap();
            let after = store.statfs().await.unwrap();
            assert_eq!(after.total, before.total + LEN);
            assert!(after.available > before.available + LEN / 2, "{after:?}");
            assert_eq!(model.compare(&*store).await, Ok(()));
            check(&store).await;
            store.close().await.unwrap();
        }
        // What it has grown to it needs.
        assert!(mounted(&env, device(LEN), disks.bluefs(), Under::BlueFs).await.is_err());
        // Only one of both superblocks was written.
        let mut old = file.read_at(0, 4096).unwrap().to_vec();
        let store = mounted(&env, device(2 * LEN), disks.bluefs(), Under::BlueFs).await.unwrap();
        store.close().await.unwrap();
        old.truncate(4096);
        assert_eq!(file.read_at(0, 4096).unwrap().to_vec(), old);
    });
}

#[test]
fn rot_is_an_error_never_wrong_data() {
    block_on(|env| async move {
        let (mut noticed, mut refused, mut harmless) = (0, 0, 0);
        for (seed, unit) in [(1, 65_536), (2, 4096)] {
            let (file, kv, model) = filled(&env, seed, unit).await;
            let (pages, mut choices) = (file.written_pages(), Choices::new(seed));
            for round in 0..200 {
                let rotten = file.kill_image();
                let page = match round {
                    0..20 => 0,
                    _ => pages[choices.below(pages.len() as u64) as usize],
                };
                let within = if page == 0 { 60 } else { 4096 };
                rotten.rot(page + choices.below(within), 1 << choices.below(8));
                let store = match mounted(
                    &env,
                    SharedDevice::new(rotten.clone()),
                    Database::Given(copy(&kv)),
                    Under::Memory,
                )
                .await
                {
                    Err(StoreError::Format(_)) => {
                        refused += 1;
                        continue;
                    }
                    other => other.unwrap(),
                };
                let errors = unreadable(&store, &model).await;
                let errors = errors.unwrap_or_else(|| panic!("seed {seed}: wrong data"));
                match errors {
                    0 => harmless += 1,
                    n => {
                        noticed += n;
                        let deep = FsckOptions { deep: true, repair: false };
                        assert!(!store.fsck(deep).await.unwrap().errors.is_empty());
                    }
                }
            }
        }
        assert!(noticed > 0 && refused > 0 && harmless > 0, "{noticed} {refused} {harmless}");
    });
}

/// How many objects cannot be read; `None` if any reads as something else.
async fn unreadable(store: &BlueStore, model: &Model) -> Option<usize> {
    let mut errors = 0;
    for (cid, (_, objects)) in &model.colls {
        for (oid, object) in objects {
            match store.read(cid, oid, 0, 0).await {
                Ok(data) if data.to_contiguous() == object.data => {}
                Err(StoreError::Checksum { .. }) => errors += 1,
                _ => return None,
            }
        }
    }
    Some(errors)
}

/// A device whose writes or flushes fail after some.
struct Failing {
    file: Arc<SharedMemoryFile>,
    writes_left: AtomicUsize,
    syncs_left: AtomicUsize,
}

fn spend(left: &AtomicUsize) -> std::io::Result<()> {
    let less = |n: usize| n.checked_sub(1);
    match left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less) {
        Ok(_) => Ok(()),
        Err(_) => Err(std::io::Error::other("fault asked for")),
    }
}

impl SharedBlockFile for Failing {
    fn len(&self) -> u64 {
        self.file.len()
    }
    fn block_len(&self) -> u32 {
        self.file.block_len()
    }
    fn read_at(&self, offset: u64, len: usize) -> std::io::Result<AlignedBuf> {
        self.file.read_at(offset, len)
    }
    fn write_at(&self, offset: u64, bufs: Vec<Bytes>) -> std::io::Result<()> {
        spend(&self.writes_left)?;
        self.file.write_at(offset, bufs)
    }
    fn sync(&self) -> std::io::Result<()> {
        spend(&self.syncs_left)?;
        self.file.sync()
    }
}

#[test]
fn a_failed_write_or_flush_latches() {
    for (writes_left, syncs_left) in (0..7).flat_map(|n| [(n, 1000), (1000, n)]) {
        block_on(move |env| async move {
            let file = SharedMemoryFile::new(16 << 20, 4096);
            let kv: SharedKv = Arc::new(MemKv::new());
            drop(
                made(
                    &env,
                    SharedDevice::new(file.clone()),
                    Database::Given(kv.clone()),
                    65_536,
                    Under::Memory,
                )
                .await,
            );
            let failing = Arc::new(Failing {
                file: file.clone(),
                writes_left: AtomicUsize::new(writes_left),
                syncs_left: AtomicUsize::new(syncs_left),
            });
            let device = SharedDevice::new(failing);
            let store = BlueStore::mount(
                env.clone(),
                device,
                Database::Given(kv.clone()),
                Compression::default(),
            )
            .await
            .unwrap();
            let (mut states, mut waiting) = (vec![Model::default()], Vec::new());
            for n in 0..40 {
                let mut t = Transaction::new();
                if n == 0 {
                    t.mkcoll(&pg(0), 0);
                }
                t.write(&pg(0), &numbered(n / 2), n * 100, vec![n as u8; 6000]);
                let mut model = states.last().unwrap().clone();
                model.apply(&t).unwrap();
                states.push(model);
                // Many rounds: every third is waited for.
                waiting.push(env.spawn_with_handle(store.submit(t)));
                if n % 3 == 0 {
                    env.sleep(std::time::Duration::from_millis(1)).await;
                }
            }
            let acknowledged = Cell::new(0);
            for (n, done) in waiting.into_iter().enumerate() {
                match done.await {
                    Ok(()) => {
                        assert_eq!(acknowledged.get(), n, "acknowledged after a failure");
                        acknowledged.set(n + 1);
                    }
                    Err(StoreError::Device(_) | StoreError::Latched) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            assert!(acknowledged.get() < 40);
            let mut t = Transaction::new();
            t.touch(&pg(0), &numbered(0));
            assert_eq!(store.submit(t).await, Err(StoreError::Latched));
            assert_eq!(store.statfs().await.map(drop), Err(StoreError::Latched));
            let image = file.crash_image(&mut Choices::new(writes_left as u64));
            let found = mounted(
                &env,
                SharedDevice::new(image.clone()),
                Database::Given(copy(&kv)),
                Under::Memory,
            )
            .await
            .unwrap();
            check(&found).await;
            let mut is_a_state = false;
            for state in &states[acknowledged.get()..] {
                is_a_state |= state.compare(&*found).await.is_ok();
            }
            assert!(is_a_state, "{writes_left} {syncs_left}");
        });
    }
}

/// Bytes the device was asked to write for a cause, and all of them.
async fn one_write(env: Env, unit: u32) -> Vec<(u64, [u64; 4])> {
    let file = SharedMemoryFile::new(24 << 20, 4096);
    let device = SharedDevice::new(file.clone());
    let kv: SharedKv = Arc::new(MemKv::new());
    drop(
        made(
            &env,
            SharedDevice::new(file.clone()),
            Database::Given(kv.clone()),
            unit,
            Under::Memory,
        )
        .await,
    );
    let start = file.bytes_written();
    let store = BlueStore::mount(env, device.clone(), Database::Given(kv), Compression::default())
        .await
        .unwrap();
    let (cid, oid) = (pg(0), object("o", 1));
    let mut t = Transaction::new();
    t.mkcoll(&cid, 0).touch(&cid, &oid);
    store.submit(t).await.unwrap();
    let wal = |counter: &str| {
        let all = store.counters();
        all.iter().find(|c| c.name == counter).unwrap().value
    };
    let mut grown = Vec::new();
    let mut last = [0; 4];
    // First, second, third with a hole, overwrite, unaligned overwrite.
    for (offset, len) in [(0, 4096), (4096, 4096), (16_384, 4096), (0, 4096), (100, 50)] {
        let mut t = Transaction::new();
        t.write(&cid, &oid, offset, vec![7; len]);
        store.submit(t).await.unwrap();
        // Deferred writes are made when there is nothing else to do; reads come behind them.
        store.statfs().await.unwrap();
        let ledger = device.ledger();
        let now = [
            ledger.written(WriteCause::Data),
            ledger.written(WriteCause::ZeroFill),
            ledger.written(WriteCause::Rewrite),
            wal("wal_deferred"),
        ];
        grown.push((offset, std::array::from_fn(|n| now[n] - last[n])));
        last = now;
    }
    store.close().await.unwrap();
    assert_eq!(file.bytes_written() - start, device.ledger().written_total());
    grown
}

#[test]
fn a_write_costs_what_the_paper_says() {
    block_on(|env| async move {
        // With units of 64 KiB the first write fills a unit with zeros, the others go through the
        // log: a record has the block, 10 bytes of key and 22 of framing.
        let wal = 4096 + 32;
        let grown = one_write(env.clone(), 65_536).await;
        assert_eq!(grown[0], (0, [4096, 61_440, 0, 0]));
        assert_eq!(grown[1], (4096, [4096, 0, 0, wal]));
        assert_eq!(grown[2], (16_384, [4096, 0, 0, wal]));
        assert_eq!(grown[3], (0, [4096, 0, 0, wal]));
        assert_eq!(grown[4], (100, [50, 0, 4046, wal]));
        // With units of 4 KiB every whole block goes to a new place.
        let grown = one_write(env, 4096).await;
        for whole in &grown[..4] {
            assert_eq!(whole.1, [4096, 0, 0, 0]);
        }
        assert_eq!(grown[4], (100, [50, 0, 4046, wal]));
    });
}
