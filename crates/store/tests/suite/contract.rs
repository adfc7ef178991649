//! The contract on every backend.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use bstr::BString;
use bytes::Bytes;
use device::BlockDevice;
use device::memory::{Choices, MemoryFile};
use env::Env;
use env::real::{Reactors, Runtime};
use store::filestore::FileStore;
use store::inkstore::{InkStore, MkfsOptions};
use store::kstore::{self, KStore};
use store::kv::{MemKv, NativeKv, SharedKv};
use store::memstore::MemStore;
use store::transfer::{compare, copy};
use store::{CollId, Fsck, FsckOptions, ObjectStore, StoreError, Transaction};
use types::hobject::GhObject;

use super::blue::{Blue, Under};
use super::common::{
    Dir, Model, Sizes, block_on, bytes, file_settings, list_all, numbered, object, pg, scattered,
    transaction,
};
use super::native::engines;

/// A backend on a small device.
pub(super) struct Backend {
    env: Env,
    kind: Kind,
    len: u64,
    file: Option<Rc<MemoryFile>>,
    pub(super) store: Rc<dyn ObjectStore>,
    ink: Option<Rc<InkStore>>,
    /// Of those that stand on files.
    dir: Option<Dir>,
    /// The database of one that stands on a database in memory.
    mem: Option<SharedKv>,
    blue: Option<Blue>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mem,
    Ink {
        block_len: u32,
        log_len: u64,
        delay: u32,
    },
    /// KStore on a database that cannot be killed, without threads.
    KvMem,
    /// KStore on RocksDB (0) or LevelDB (1).
    Kv(usize),
    /// FileStore with its keys in memory, without threads.
    FileMem,
    /// FileStore with its keys in RocksDB (0) or LevelDB (1).
    File(usize),
    /// BlueStore on devices in memory.
    Blue {
        unit: u32,
        under: Under,
    },
}

impl Kind {
    /// Whether it needs threads and files.
    fn is_real(self) -> bool {
        matches!(self, Kind::Kv(_) | Kind::File(_))
            || matches!(self, Kind::Blue { under, .. } if !under.is_memory())
    }
}

const KINDS: [Kind; 16] = [
    Kind::Mem,
    Kind::FileMem,
    Kind::File(0),
    Kind::File(1),
    Kind::KvMem,
    Kind::Kv(0),
    Kind::Kv(1),
    Kind::Blue { unit: 65_536, under: Under::Memory },
    Kind::Blue { unit: 4096, under: Under::Memory },
    Kind::Blue { unit: 4096, under: Under::Compressed },
    Kind::Blue { unit: 16_384, under: Under::Files },
    Kind::Blue { unit: 16_384, under: Under::BlueFs },
    Kind::Blue { unit: 4096, under: Under::Beside },
    Kind::Ink { block_len: 4096, log_len: 256 << 10, delay: 0 },
    Kind::Ink { block_len: 512, log_len: 64 << 10, delay: 3 },
    Kind::Ink { block_len: 4096, log_len: 4 << 20, delay: 1 },
];

pub(super) async fn mounted(env: &Env, file: Rc<MemoryFile>) -> Result<Rc<InkStore>, StoreError> {
    let store = InkStore::mount(env.clone(), BlockDevice::new(file)).await?;
    // Small, so that blocks come and go, but enough to fetch ahead.
    store.set_cache_size(512 << 10);
    store.set_discard(Some(1));
    Ok(Rc::new(store))
}

pub(super) async fn made(env: &Env, file: &Rc<MemoryFile>, log_len: u64) -> Rc<InkStore> {
    let options = MkfsOptions { uuid: [7; 16], log_len: Some(log_len) };
    InkStore::mkfs(&BlockDevice::new(file.clone()), options).await.unwrap();
    mounted(env, file.clone()).await.unwrap()
}

/// Stripes of the tests: small, so that objects have several.
const STRIPE_LEN: u32 = 8192;

impl Backend {
    pub(super) async fn new(env: &Env, kind: Kind, len: u64) -> Backend {
        let mut backend = Backend::empty(env, kind, len).await;
        backend.kind = kind;
        backend.len = len;
        backend
    }

    fn kv_of(dir: &Dir, engine: usize) -> SharedKv {
        let (_, engine) = engines().swap_remove(engine);
        Arc::new(NativeKv::open(&dir.0.join("kv"), &engine, true).unwrap())
    }

    async fn on_kv(env: &Env, kv: SharedKv, len: u64) -> Rc<dyn ObjectStore> {
        Rc::new(KStore::mount(env.clone(), kv, len).await.unwrap())
    }

    async fn on_files(env: &Env, dir: &Dir, kv: SharedKv, len: u64) -> Rc<dyn ObjectStore> {
        let settings = file_settings(&dir.0, len);
        Rc::new(FileStore::mount(env.clone(), &dir.0, kv, settings).await.unwrap())
    }

    async fn new_files(env: &Env, kv: impl FnOnce(&Dir) -> SharedKv, nothing: Backend) -> Backend {
        let dir = Dir::new("filestore");
        let (kv, journal) = (kv(&dir), dir.0.join("journal"));
        FileStore::mkfs(env, &dir.0, kv.clone(), [7; 16], &journal, 48 << 20, true).await.unwrap();
        let store = Backend::on_files(env, &dir, kv.clone(), nothing.len).await;
        let mem = (nothing.kind == Kind::FileMem).then_some(kv);
        Backend { store, dir: Some(dir), mem, ..nothing }
    }

    async fn empty(env: &Env, kind: Kind, len: u64) -> Backend {
        let nothing = Backend {
            env: env.clone(),
            kind,
            len,
            file: None,
            store: Rc::new(MemStore::new(len)),
            ink: None,
            dir: None,
            mem: None,
            blue: None,
        };
        let options = kstore::MkfsOptions { uuid: [7; 16], stripe_len: STRIPE_LEN };
        match kind {
            Kind::FileMem => Backend::new_files(env, |_| Arc::new(MemKv::new()), nothing).await,
            Kind::File(engine) => {
                Backend::new_files(env, |dir| Backend::kv_of(dir, engine), nothing).await
            }
            Kind::KvMem => {
                let kv: SharedKv = Arc::new(MemKv::new());
                KStore::mkfs(env, kv.clone(), options).await.unwrap();
                let store = Backend::on_kv(env, kv.clone(), len).await;
                Backend { store, mem: Some(kv), ..nothing }
            }
            Kind::Kv(engine) => {
                let dir = Dir::new("kstore");
                let kv = Backend::kv_of(&dir, engine);
                KStore::mkfs(env, kv.clone(), options).await.unwrap();
                let store = Backend::on_kv(env, kv, len).await;
                Backend { store, dir: Some(dir), ..nothing }
            }
            Kind::Blue { unit, under } => {
                let blue = Blue::new(env, len, unit, under).await;
                Backend { store: blue.store.clone(), blue: Some(blue), ..nothing }
            }
            Kind::Mem => {
                let dir = Dir::new("memstore");
                let store = Rc::new(MemStore::make(&dir.0.join("saved"), len));
                Backend { store, dir: Some(dir), ..nothing }
            }
            Kind::Ink { block_len, log_len, delay } => {
                let file = MemoryFile::new(len, block_len);
                file.set_delay(delay);
                let ink = made(env, &file, log_len).await;
                Backend { file: Some(file), store: ink.clone(), ink: Some(ink), ..nothing }
            }
        }
    }

    /// Closes and opens again, or kills and opens again; the latter does nothing to a backend that forgets.
    pub(super) async fn reopen(&mut self, orderly: bool) {
        if let (Kind::Mem, true, Some(dir)) = (self.kind, orderly, &self.dir) {
            self.store.close().await.unwrap();
            self.store = Rc::new(MemStore::open(&dir.0.join("saved"), self.len).unwrap());
            return;
        }
        if let Kind::Kv(_) | Kind::KvMem | Kind::File(_) | Kind::FileMem = self.kind {
            if orderly {
                self.store.close().await.unwrap();
            }
            // Dropped without close: neither library flushes when it closes, so this is a kill.
            self.store = Rc::new(MemStore::new(0));
            let kv = match (&self.mem, &self.dir, self.kind) {
                (_, Some(dir), Kind::Kv(engine) | Kind::File(engine)) => {
                    Backend::kv_of(dir, engine)
                }
                (mem, ..) => mem.clone().unwrap(),
            };
            if let (Some(dir), Kind::File(_) | Kind::FileMem) = (&self.dir, self.kind) {
                self.store = Backend::on_files(&self.env, dir, kv, self.len).await;
                return;
            }
            self.store = Backend::on_kv(&self.env, kv, self.len).await;
            return;
        }
        if let Some(blue) = &mut self.blue {
            self.store = Rc::new(MemStore::new(0));
            blue.reopen(&self.env, orderly).await;
            self.store = blue.store.clone();
            return;
        }
        let Some(file) = &mut self.file else { return };
        if orderly {
            self.store.close().await.unwrap();
        } else {
            *file = file.kill_image();
        }
        let ink = mounted(&self.env, file.clone()).await.unwrap();
        (self.store, self.ink) = (ink.clone(), Some(ink));
    }

    pub(super) async fn check(&self) {
        if let Some(ink) = &self.ink {
            let report = ink.fsck(true).await.unwrap();
            assert_eq!(report.errors, Vec::<String>::new());
        }
        let deep = FsckOptions { deep: true, repair: false };
        assert_eq!(self.store.fsck(deep).await, Ok(Fsck::default()), "{:?}", self.kind);
    }
}

pub(super) fn each(test: impl AsyncFn(&Env, Kind) + Copy + 'static) {
    for kind in KINDS {
        run(kind, move |env| async move { test(&env, kind).await });
    }
}

fn run<F: Future<Output = ()> + 'static>(kind: Kind, main: impl FnOnce(Env) -> F) {
    match kind.is_real() {
        true => Runtime::on(Reactors::Epoll).unwrap().block_on(main),
        false => block_on(main),
    }
}

async fn random_history(env: &Env, kind: Kind, seed: u64, steps: u64, sizes: Sizes) {
    let mut backend = Backend::new(env, kind, 64 << 20).await;
    let (mut model, mut choices) = (Model::default(), Choices::new(seed));
    let mut waiting = Vec::new();
    for step in 0..steps {
        let t = transaction(&mut choices, &model, sizes);
        let expected = model.apply(&t);
        waiting.push((backend.store.submit(t), expected, step));
        if choices.below(4) == 0 {
            for (done, expected, at) in waiting.drain(..) {
                assert_eq!(done.await, expected, "{kind:?} seed {seed} step {at}");
            }
        }
        if choices.below(8) == 0 {
            let same = model.compare(&*backend.store).await;
            assert_eq!(same, Ok(()), "{kind:?} seed {seed} step {step}");
        }
        if choices.below(60) == 0 {
            for (done, expected, at) in waiting.drain(..) {
                assert_eq!(done.await, expected, "{kind:?} seed {seed} step {at}");
            }
            backend.reopen(choices.below(2) == 0).await;
            let same = model.compare(&*backend.store).await;
            assert_eq!(same, Ok(()), "{kind:?} seed {seed} after reopening at step {step}");
        }
        if choices.below(100) == 0
            && let Some(ink) = &backend.ink
        {
            ink.checkpoint().await.unwrap();
        }
        if choices.below(50) == 0 {
            backend.check().await;
        }
    }
    for (done, expected, at) in waiting.drain(..) {
        assert_eq!(done.await, expected, "{kind:?} seed {seed} step {at}");
    }
    backend.check().await;
    backend.reopen(true).await;
    assert_eq!(model.compare(&*backend.store).await, Ok(()), "{kind:?} seed {seed} at the end");
    backend.check().await;
}

#[test]
fn random_transactions_do_what_the_model_does() {
    each(async |env, kind| {
        // Those that sync real files are slow.
        for seed in 0..if kind.is_real() { 2 } else { 6 } {
            random_history(env, kind, seed, 400, Sizes::SMALL).await;
        }
    });
}

#[test]
fn random_large_transactions_too() {
    let sizes = Sizes { objects: 6, object_len: 900_000, write_len: 400_000 };
    each(async move |env, kind| random_history(env, kind, 77, 150, sizes).await);
}

/// `STORE_SEEDS=1000..2000 cargo test -p loligo-store more_seeds -- --ignored`
#[test]
#[ignore = "long: as many seeds as STORE_SEEDS says"]
fn more_seeds() {
    let text = std::env::var("STORE_SEEDS").unwrap_or("100..200".into());
    let (from, to) = text.split_once("..").unwrap();
    let seeds: std::ops::Range<u64> = from.parse().unwrap()..to.parse().unwrap();
    for seed in seeds {
        for kind in KINDS {
            println!("seed {seed} {kind:?}");
            run(kind, move |env| async move {
                random_history(&env, kind, seed, 600, Sizes::SMALL).await;
            });
        }
    }
}

#[test]
fn ten_thousand_objects_list_in_order() {
    each(async |env, kind| {
        let mut backend = Backend::new(env, kind, 1 << 30).await;
        let cid = pg(0);
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0);
        backend.store.submit(t).await.unwrap();
        let mut waiting = Vec::new();
        for n in 0..10_000 {
            let mut t = Transaction::new();
            t.write(&cid, &numbered(n), 0, vec![n as u8; 100]);
            waiting.push(backend.store.submit(t));
        }
        for done in waiting {
            done.await.unwrap();
        }
        for _ in 0..2 {
            let listed = list_all(&*backend.store, &cid, 333).await.unwrap();
            assert_eq!(listed.len(), 10_000);
            assert!(listed.is_sorted());
            let some = &listed[5000..5010];
            let part = backend.store.list(&cid, &some[0], &some[9], 100).await.unwrap();
            assert_eq!((part.objects.as_slice(), &part.next), (&some[..9], &some[9]));
            backend.reopen(false).await;
        }
    });
}

#[test]
fn large_omaps() {
    each(async |env, kind| {
        let mut backend = Backend::new(env, kind, 256 << 20).await;
        let (cid, oid) = (pg(0), object("index", 5));
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0).touch(&cid, &oid);
        backend.store.submit(t).await.unwrap();
        let entries = |range: std::ops::Range<u32>| -> BTreeMap<BString, Bytes> {
            let entry = |n: u32| (format!("key {n:08}").into(), format!("value {n}").into());
            range.map(entry).collect()
        };
        // One transaction far longer than the log, then many small ones.
        let mut t = Transaction::new();
        t.omap_setkeys(&cid, &oid, entries(0..90_000));
        backend.store.submit(t).await.unwrap();
        for start in (90_000..100_000).step_by(500) {
            let mut t = Transaction::new();
            t.omap_setkeys(&cid, &oid, entries(start..start + 500));
            backend.store.submit(t).await.unwrap();
        }
        backend.reopen(false).await;
        let all = entries(0..100_000);
        let (mut from, mut seen) = (BString::default(), 0);
        loop {
            let store = &backend.store;
            let page = store.omap_range(&cid, &oid, &from, true, 1000, 1 << 20).await.unwrap();
            for (key, value) in &page.entries {
                assert_eq!(all.get(key), Some(value));
            }
            seen += page.entries.len();
            let Some((last, _)) = page.entries.last().filter(|_| page.more) else { break };
            from = last.clone();
        }
        assert_eq!(seen, 100_000);
        let mut t = Transaction::new();
        t.omap_rmkeyrange(&cid, &oid, "key 00000010", "key 00099990");
        backend.store.submit(t).await.unwrap();
        backend.reopen(true).await;
        let page = backend.store.omap_range(&cid, &oid, b"", false, 100, 1 << 20).await.unwrap();
        assert_eq!((page.entries.len(), page.more), (20, false));
        backend.check().await;
    });
}

#[test]
fn long_names_and_values() {
    each(async |env, kind| {
        let mut backend = Backend::new(env, kind, 64 << 20).await;
        let cid = CollId::Meta;
        let name: Vec<u8> = (0..4096_u32).map(|n| (n % 256) as u8).collect();
        let mut oid = object("", 9);
        oid.hobj.name = name.clone().into();
        oid.hobj.namespace = vec![0; 300].into();
        oid.hobj.key = vec![255; 1000].into();
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0).write(&cid, &oid, 0, &b"x"[..]);
        t.setattr(&cid, &oid, name.clone(), vec![1; 65_536]);
        let entries = [(store::Key::from(&name[..]), Bytes::from(vec![2; 1 << 20]))];
        t.omap_setkeys(&cid, &oid, entries);
        backend.store.submit(t).await.unwrap();
        for orderly in [false, true] {
            backend.reopen(orderly).await;
            let store = &backend.store;
            let listed = list_all(&**store, &cid, 10).await.unwrap();
            assert_eq!(listed, std::slice::from_ref(&oid));
            assert_eq!(store.getattr(&cid, &oid, &name).await.unwrap(), vec![1; 65_536]);
            let values = store.omap_values(&cid, &oid, &[name.clone().into()]).await.unwrap();
            assert_eq!(values[0].1, vec![2; 1 << 20]);
        }
    });
}

#[test]
fn clones_of_clones_keep_their_data() {
    each(async |env, kind| {
        let mut backend = Backend::new(env, kind, 64 << 20).await;
        let cid = pg(0);
        let mut choices = Choices::new(4);
        let mut model = Model::default();
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0).write(&cid, &numbered(0), 0, bytes(&mut choices, 300_000));
        model.apply(&t).unwrap();
        backend.store.submit(t).await.unwrap();
        for n in 1..60 {
            let (from, to) = (numbered(choices.below(n)), numbered(n));
            let at = choices.below(300_000);
            let mut t = Transaction::new();
            t.clone_object(&cid, &from, &to).write(&cid, &from, at, bytes(&mut choices, 5000));
            if n > 20 {
                t.remove(&cid, &numbered(n - 20));
                t.touch(&cid, &numbered(n - 20));
            }
            model.apply(&t).unwrap();
            backend.store.submit(t).await.unwrap();
        }
        assert_eq!(model.compare(&*backend.store).await, Ok(()));
        backend.reopen(false).await;
        assert_eq!(model.compare(&*backend.store).await, Ok(()));
        backend.check().await;
        // All gone: so is the space.
        let mut t = Transaction::new();
        (0..60).for_each(|n| {
            t.remove(&cid, &numbered(n));
        });
        backend.store.submit(t).await.unwrap();
        assert_eq!(backend.store.statfs().await.unwrap().allocated, 0);
        backend.check().await;
    });
}

/// `ceph tell osd.N compact` did nothing on stores with a database, and said that it had.
#[test]
fn a_store_is_compacted_beside_all_else() {
    each(async |env, kind| {
        let mut backend = Backend::new(env, kind, 64 << 20).await;
        let cid = pg(0);
        let (mut model, mut choices) = (Model::default(), Choices::new(7));
        let mut submit = async |store: &dyn ObjectStore, t: Transaction| {
            model.apply(&t).unwrap();
            store.submit(t).await.unwrap();
        };
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0).touch(&cid, &numbered(1));
        submit(&*backend.store, t).await;
        for _ in 0..300 {
            let mut t = Transaction::new();
            t.omap_setkeys(&cid, &numbered(1), scattered(&mut choices));
            submit(&*backend.store, t).await;
        }
        let compacted = |store: &dyn ObjectStore| {
            let counters = store.counters();
            counters.iter().find(|c| c.name == "written_compaction").map(|c| c.value)
        };
        let before = compacted(&*backend.store);
        let compaction = backend.store.compact();
        let mut t = Transaction::new();
        t.omap_setkeys(&cid, &numbered(1), scattered(&mut choices));
        submit(&*backend.store, t).await;
        compaction.await.unwrap();
        assert!(!kind.is_real() || compacted(&*backend.store) > before, "{kind:?} {before:?}");
        assert_eq!(model.compare(&*backend.store).await, Ok(()), "{kind:?}");
        backend.reopen(false).await;
        assert_eq!(model.compare(&*backend.store).await, Ok(()), "{kind:?}");
        backend.check().await;
    });
}

#[test]
fn errors_leave_no_trace() {
    each(async |env, kind| {
        let backend = Backend::new(env, kind, 16 << 20).await;
        let store = &backend.store;
        let (cid, oid) = (pg(0), object("o", 1));
        let submit = async |build: &dyn Fn(&mut Transaction) -> usize| {
            let mut t = Transaction::new();
            build(&mut t);
            store.submit(t).await
        };
        assert_eq!(
            submit(&|t| t.touch(&cid, &oid).ops().len()).await,
            Err(StoreError::NoCollection(cid))
        );
        submit(&|t| t.mkcoll(&cid, 0).touch(&cid, &oid).ops().len()).await.unwrap();
        let refused = submit(&|t| {
            t.write(&cid, &oid, 0, vec![1; 9000]).setattr(&cid, &object("p", 2), "a", &b"b"[..]);
            t.ops().len()
        })
        .await;
        assert_eq!(refused, Err(StoreError::NoObject));
        assert_eq!(store.stat(&cid, &oid).await.unwrap().size, 0);
        let refused = submit(&|t| t.mkcoll(&cid, 0).ops().len()).await;
        assert_eq!(refused, Err(StoreError::CollectionExists(cid)));
        assert_eq!(submit(&|t| t.rmcoll(&cid).ops().len()).await, Err(StoreError::NotEmpty(cid)));
        let far = submit(&|t| t.write(&cid, &oid, u64::MAX - 1, vec![1; 9]).ops().len()).await;
        assert_eq!(far, Err(StoreError::TooBig));
        assert_eq!(store.getattr(&cid, &oid, b"no").await, Err(StoreError::NoAttr));
        assert_eq!(store.stat(&cid, &object("q", 3)).await, Err(StoreError::NoObject));
        submit(&|t| t.remove(&cid, &oid).rmcoll(&cid).ops().len()).await.unwrap();
        assert_eq!(store.collections().await, Ok(Vec::new()));
        store.close().await.unwrap();
        assert_eq!(store.collections().await, Err(StoreError::Closed));
        assert_eq!(submit(&|t| t.mkcoll(&cid, 0).ops().len()).await, Err(StoreError::Closed));
        let nobody = store.list(&cid, &GhObject::min(), &GhObject::max(), 1).await;
        assert_eq!(nobody, Err(StoreError::Closed));
    });
}

/// What one backend holds goes into any other and is the same there; what differs is told.
#[test]
fn everything_of_one_store_goes_into_another() {
    each(async |env, kind| {
        let mut backend = Backend::new(env, kind, 64 << 20).await;
        let (mut model, mut choices) = (Model::default(), Choices::new(11));
        for _ in 0..120 {
            let t = transaction(&mut choices, &model, Sizes::SMALL);
            let expected = model.apply(&t);
            assert_eq!(backend.store.submit(t).await, expected);
        }
        let mut keys = Transaction::new();
        keys.mkcoll(&pg(99), 3);
        let many = (0..5000).map(|n| (format!("{n:05}"), Bytes::from(vec![n as u8; n % 50])));
        keys.touch(&pg(99), &numbered(1));
        keys.omap_setkeys(&pg(99), &numbered(1), many);
        keys.write(&pg(99), &numbered(2), 5 << 20, vec![1; 3 << 20]);
        model.apply(&keys).unwrap();
        backend.store.submit(keys).await.unwrap();
        let between = MemStore::new(1 << 30);
        let copied = copy(&*backend.store, &between, &mut |_| {}).await.unwrap();
        assert_eq!(model.compare(&between).await, Ok(()), "{kind:?}");
        let (compared, differences) =
            compare(&*backend.store, &between, &mut |_| {}).await.unwrap();
        assert_eq!((compared, differences), (copied, vec![]), "{kind:?}");
        assert!(copied.omap_keys >= 5000 && copied.data >= 3 << 20, "{copied:?}");
        // And into an empty one of this kind.
        backend = Backend::empty(env, kind, 64 << 20).await;
        copy(&between, &*backend.store, &mut |_| {}).await.unwrap();
        backend.reopen(true).await;
        if !matches!(kind, Kind::Mem) {
            assert_eq!(model.compare(&*backend.store).await, Ok(()), "{kind:?}");
        }
        let mut t = Transaction::new();
        t.setattr(&pg(99), &numbered(2), "a", &b"b"[..]);
        t.write(&pg(99), &numbered(2), (8 << 20) - 1, vec![0]);
        t.omap_setkeys(&pg(99), &numbered(1), [("04999", Bytes::new())]);
        between.submit(t).await.unwrap();
        let (_, differences) = compare(&*backend.store, &between, &mut |_| {}).await.unwrap();
        let told = |what: &str| differences.iter().any(|line| line.ends_with(what));
        assert!(told(": data") && told(": xattrs") && told(": omap"), "{kind:?} {differences:?}");
    });
}

/// `loligo store migrate` put all omap keys of an object into one transaction where their values are large: FileStore refused it, as
/// it was longer than the journal, and others held it in memory.
#[test]
fn large_values_of_an_omap_go_over_in_many_transactions() {
    block_on(|env| async move {
        let (from, cid, oid) = (MemStore::new(1 << 30), pg(0), numbered(1));
        let mut t = Transaction::new();
        t.mkcoll(&cid, 0).touch(&cid, &oid);
        let keys = (0..3000).map(|n| (format!("{n:05}"), Bytes::from(vec![n as u8; 2048])));
        t.omap_setkeys(&cid, &oid, keys);
        from.submit(t).await.unwrap();
        let dir = Dir::new("filestore-copy");
        let (kv, journal): (SharedKv, _) = (Arc::new(MemKv::new()), dir.0.join("journal"));
        FileStore::mkfs(&env, &dir.0, kv.clone(), [7; 16], &journal, 4 << 20, true).await.unwrap();
        let settings = file_settings(&dir.0, 1 << 30);
        let to = FileStore::mount(env.clone(), &dir.0, kv, settings).await.unwrap();
        let copied = copy(&from, &to, &mut |_| {}).await.unwrap();
        assert_eq!(compare(&from, &to, &mut |_| {}).await.unwrap(), (copied, vec![]));
        to.close().await.unwrap();
    });
}

/// A PG takes in another as the OSD does it: one transaction that removes the other's metadata, moves
/// its objects and writes its own. After a kill all of it is there.
#[test]
fn a_collection_takes_in_another() {
    for kind in KINDS {
        block_on(move |env| async move {
            let mut backend = Backend::new(&env, kind, 16 << 20).await;
            let (target, source) = (pg(1), pg(3));
            let meta = |cid: &CollId| match cid {
                CollId::Pg(pgid) => pgid.pgmeta(),
                _ => unreachable!(),
            };
            let mut model = Model::default();
            let mut t = Transaction::new();
            for cid in [target, source] {
                t.mkcoll(&cid, 2).touch(&cid, &meta(&cid));
                t.omap_setkeys(
                    &cid,
                    &meta(&cid),
                    BTreeMap::from([("_info", Bytes::from("of this"))]),
                );
            }
            for n in 0..40 {
                let cid = if n % 3 == 0 { source } else { target };
                t.write(&cid, &numbered(n), 0, vec![n as u8; 1000 * n as usize]);
                t.setattr(&cid, &numbered(n), "_", Bytes::from(vec![n as u8; 200]));
                t.omap_setkeys(
                    &cid,
                    &numbered(n),
                    BTreeMap::from([("key", Bytes::from(vec![n as u8; 30]))]),
                );
            }
            model.apply(&t).unwrap();
            backend.store.submit(t).await.unwrap();
            let mut t = Transaction::new();
            t.remove(&source, &meta(&source));
            t.merge_collection(&source, &target, 1);
            t.coll_set_bits(&target, 1);
            t.omap_setkeys(
                &target,
                &meta(&target),
                BTreeMap::from([("_info", Bytes::from("of both"))]),
            );
            model.apply(&t).unwrap();
            backend.store.submit(t).await.unwrap();
            assert_eq!(model.compare(&*backend.store).await, Ok(()), "{kind:?}");
            backend.reopen(false).await;
            assert_eq!(model.compare(&*backend.store).await, Ok(()), "{kind:?}");
            // What was the other's lives on, and the name is free again.
            let mut t = Transaction::new();
            t.write(&target, &numbered(3), 500, vec![9; 9000]).remove(&target, &numbered(6));
            t.mkcoll(&source, 2).touch(&source, &meta(&source));
            t.split_collection(&target, 2, 3, &source);
            model.apply(&t).unwrap();
            backend.store.submit(t).await.unwrap();
            backend.reopen(true).await;
            assert_eq!(model.compare(&*backend.store).await, Ok(()), "{kind:?}");
            backend.check().await;
        });
    }
}

/// Each write went through all objects to see whether there was room: ten times slower with 36,000 of them.
/// An OSD on memstore that was stopped and started again had nothing, and PGs that no other had were
/// `unknown` for ever.
#[test]
fn memory_is_saved_when_it_is_closed_and_only_then() {
    block_on(|_| async {
        let dir = Dir::new("memstore-saved");
        let path = dir.0.join("saved");
        assert_eq!(MemStore::make(&path, 1 << 20).close().await, Ok(()));
        let (mut model, mut choices) = (Model::default(), Choices::new(9));
        let store = MemStore::open(&path, 16 << 20).unwrap();
        for _ in 0..300 {
            let t = transaction(&mut choices, &model, Sizes::SMALL);
            if model.apply(&t).is_ok() {
                store.submit(t).await.unwrap();
            }
        }
        store.close().await.unwrap();
        // One that is only looked at may be killed.
        drop(MemStore::open(&path, 16 << 20).unwrap());
        let store = MemStore::open(&path, 16 << 20).unwrap();
        assert_eq!(model.compare(&store).await, Ok(()));
        let whole = std::fs::read(&path).unwrap();
        let mut t = Transaction::new();
        t.mkcoll(&pg(77), 0);
        // `loligo store` lost all of it when it was interrupted.
        let tool = MemStore::open(&path, 16 << 20).unwrap().keep_saved();
        tool.submit(t.clone()).await.unwrap();
        drop(tool);
        let unchanged = MemStore::open(&path, 16 << 20).unwrap();
        assert_eq!(model.compare(&unchanged).await, Ok(()));
        let tool = unchanged.keep_saved();
        tool.submit(t.clone()).await.unwrap();
        tool.close().await.unwrap();
        let changed = MemStore::open(&path, 16 << 20).unwrap();
        assert!(changed.collections().await.unwrap().contains(&pg(77)));
        // One that has changed is not what was saved.
        let mut t = Transaction::new();
        t.mkcoll(&pg(78), 0);
        store.submit(t).await.unwrap();
        drop(store);
        assert!(matches!(MemStore::open(&path, 16 << 20), Err(StoreError::Format(_))));
        // Of a damaged one nothing is believed.
        for at in (0..whole.len()).step_by(whole.len() / 50) {
            let mut damaged = whole.clone();
            damaged[at] ^= 4;
            std::fs::write(&path, &damaged).unwrap();
            assert!(MemStore::open(&path, 16 << 20).is_err(), "byte {at}");
            std::fs::write(&path, &whole[..at]).unwrap();
            assert!(MemStore::open(&path, 16 << 20).is_err(), "{at} bytes");
        }
    });
}
