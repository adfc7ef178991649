//! KStore over power loss and rot. What a power loss leaves of a database is its log cut or torn
//! somewhere behind the last sync: the store holds the effects of a prefix of the transactions, of
//! all acknowledged ones at least.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use device::memory::Choices;
use env::Env;
use env::real::{Reactors, Runtime};
use store::kstore::{KStore, MkfsOptions};
use store::kv::{Engine, LevelDbOptions, NativeKv, RocksDbOptions, SharedKv};
use store::{ObjectStore, StoreError};

use super::common::{Dir, Model, Sizes, transaction};
use super::native::{copy_dir, engines};

fn opened(path: &Path, engine: &Engine) -> Result<SharedKv, store::KvError> {
    Ok(Arc::new(NativeKv::open(path, engine, true)?))
}

async fn mounted(env: &Env, kv: SharedKv) -> Result<Rc<KStore>, StoreError> {
    Ok(Rc::new(KStore::mount(env.clone(), kv, 64 << 20).await?))
}

/// With buffers so large that nothing is flushed: the log holds all.
fn unflushed() -> [(&'static str, Engine); 2] {
    [
        ("rocksdb", Engine::RocksDb(RocksDbOptions::default())),
        ("leveldb", Engine::LevelDb(LevelDbOptions::default())),
    ]
}

/// The database's newest log and its length.
fn log_of(dir: &Path) -> (PathBuf, u64) {
    let logs = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let log = logs.filter(|p| p.extension().is_some_and(|e| e == "log")).max().unwrap();
    let len = fs::metadata(&log).unwrap().len();
    (log, len)
}

/// What a power loss makes of a log of `len` bytes: it ends somewhere behind what was synced, a page there
/// may not have been written, and bits of one may be any.
fn tear(log: &Path, synced: u64, len: u64, choices: &mut Choices) {
    let file = OpenOptions::new().write(true).open(log).unwrap();
    let end = synced + choices.below(len - synced + 1);
    let how = choices.below(4);
    if how == 0 {
        file.set_len(end).unwrap();
    }
    if how == 0 || end == len {
        return;
    }
    let page = end / 4096 * 4096;
    let lost = page.max(synced)..(page + 4096).min(len);
    match how {
        1 => file.write_all_at(&[choices.below(256) as u8], end).unwrap(),
        _ => {
            let zeros = vec![0; (lost.end - lost.start) as usize];
            file.write_all_at(&zeros, lost.start).unwrap();
        }
    }
}

async fn power_losses(env: Env, name: &'static str, engine: Engine, seed: u64) {
    let dir = Dir::new(&format!("kstore-crash-{name}"));
    let path = dir.0.join("kv");
    let kv = opened(&path, &engine).unwrap();
    let options = MkfsOptions { uuid: [1; 16], stripe_len: 4096 };
    KStore::mkfs(&env, kv.clone(), options).await.unwrap();
    let store = mounted(&env, kv).await.unwrap();
    let (mut choices, mut states) = (Choices::new(seed), vec![Model::default()]);
    let (mut acknowledged, mut waiting) = (0, VecDeque::new());
    // How long the log was when nothing waited, and how many transactions it then held.
    let mut synced = (log_of(&path).1, 0);
    for step in 0..60 {
        let mut model = states.last().unwrap().clone();
        let t = transaction(&mut choices, &model, Sizes::SMALL);
        if model.apply(&t).is_err() {
            continue;
        }
        states.push(model);
        waiting.push_back(store.submit(t));
        while waiting.len() > choices.below(4) as usize {
            waiting.pop_front().unwrap().await.unwrap();
            acknowledged += 1;
            if waiting.is_empty() {
                synced = (log_of(&path).1, acknowledged);
            }
        }
        if !waiting.is_empty() && choices.below(3) != 0 {
            continue;
        }
        let image = dir.0.join(format!("image {step}"));
        // Reads come behind all that was submitted: the log is at rest then.
        store.statfs().await.unwrap();
        copy_dir(&path, &image);
        let (log, len) = log_of(&image);
        let (durable, least) = synced;
        tear(&log, durable, len, &mut choices);
        let found = mounted(&env, opened(&image, &engine).unwrap()).await.unwrap();
        let mut matching = None;
        for n in (least..states.len()).rev() {
            if states[n].compare(&*found).await.is_ok() {
                matching = Some(n);
                break;
            }
        }
        let n = matching.unwrap_or_else(|| panic!("{name} seed {seed} step {step}: no state"));
        assert!(n >= least, "{name} seed {seed} step {step}: {n} of {acknowledged}");
        drop(found);
        fs::remove_dir_all(&image).unwrap();
    }
    for done in waiting {
        done.await.unwrap();
    }
}

/// Found by reading: a page of the log that had not been written made LevelDB refuse the whole database, or, where
/// a record began with it, leave out what was in it and take what came behind.
#[test]
fn a_log_torn_behind_the_last_sync_holds_a_prefix() {
    for (name, engine) in unflushed() {
        for seed in 0..3 {
            let engine = engine.clone();
            let runtime = Runtime::on(Reactors::Epoll).unwrap();
            runtime.block_on(move |env| power_losses(env, name, engine, seed));
        }
    }
}

/// How many objects cannot be read; `None` if any reads as something else.
async fn unreadable(store: &dyn ObjectStore, model: &Model) -> Option<usize> {
    let mut errors = 0;
    for (cid, (_, objects)) in &model.colls {
        for (oid, object) in objects {
            match store.read(cid, oid, 0, 0).await {
                Ok(data) if data.to_contiguous() == object.data => {}
                Err(
                    StoreError::Checksum { .. } | StoreError::Device(_) | StoreError::Format(_),
                ) => errors += 1,
                _ => return None,
            }
        }
    }
    Some(errors)
}

async fn rot(env: Env, name: &'static str, engine: Engine) {
    let dir = Dir::new(&format!("kstore-rot-{name}"));
    let path = dir.0.join("kv");
    let kv = opened(&path, &engine).unwrap();
    let options = MkfsOptions { uuid: [1; 16], stripe_len: 4096 };
    KStore::mkfs(&env, kv.clone(), options).await.unwrap();
    let store = mounted(&env, kv.clone()).await.unwrap();
    let (mut model, mut choices) = (Model::default(), Choices::new(9));
    for _ in 0..150 {
        let t = transaction(&mut choices, &model, Sizes::SMALL);
        if model.apply(&t).is_ok() {
            store.submit(t).await.unwrap();
        }
    }
    store.close().await.unwrap();
    kv.compact().unwrap();
    drop((store, kv));
    let tables: Vec<_> = fs::read_dir(&path)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "sst" || e == "ldb"))
        .collect();
    let mut noticed = 0;
    for round in 0..40 {
        let table = &tables[choices.below(tables.len() as u64) as usize];
        let whole = fs::read(table).unwrap();
        let mut rotten = whole.clone();
        rotten[choices.below(whole.len() as u64) as usize] ^= 1 << choices.below(8);
        fs::write(table, &rotten).unwrap();
        let store = match opened(&path, &engine) {
            Ok(kv) => mounted(&env, kv).await,
            Err(_) => Err(StoreError::Format("not opened")),
        };
        match store {
            Err(_) => noticed += 1,
            Ok(store) => {
                let errors = unreadable(&*store, &model).await;
                noticed += errors.unwrap_or_else(|| panic!("{name} {round}: wrong data"));
            }
        }
        fs::write(table, &whole).unwrap();
    }
    assert!(noticed > 0, "{name}: no damage was ever noticed");
}

#[test]
fn rot_in_tables_is_an_error_never_wrong_data() {
    for (name, engine) in engines() {
        let runtime = Runtime::on(Reactors::Epoll).unwrap();
        runtime.block_on(move |env| rot(env, name, engine));
    }
}

#[test]
fn every_byte_put_into_the_log_has_a_cause() {
    for (name, engine) in unflushed() {
        let runtime = Runtime::on(Reactors::Epoll).unwrap();
        runtime.block_on(move |env| async move {
            let dir = Dir::new(&format!("kstore-bytes-{name}"));
            let kv = opened(&dir.0.join("kv"), &engine).unwrap();
            let options = MkfsOptions { uuid: [1; 16], stripe_len: 4096 };
            KStore::mkfs(&env, kv.clone(), options).await.unwrap();
            let store = mounted(&env, kv).await.unwrap();
            let mut t = store::Transaction::new();
            let (cid, oid) = (super::common::pg(0), super::common::object("o", 1));
            t.mkcoll(&cid, 0).touch(&cid, &oid);
            store.submit(t).await.unwrap();
            let before = store.counters();
            // 10,000 bytes at 1,000: three stripes, of which two are rewritten in part.
            let mut t = store::Transaction::new();
            t.write(&cid, &oid, 1000, vec![1; 10_000]);
            store.submit(t).await.unwrap();
            let grown = |counter: &str| {
                let of = |all: &[store::StoreCounter]| {
                    all.iter().find(|c| c.name == counter).unwrap().value
                };
                of(&store.counters()) - of(&before)
            };
            assert_eq!(grown("wal_client_data"), 10_000, "{name}");
            // The 1,000 zeros before, and three keys.
            assert_eq!(grown("wal_stripe_rest"), 1000 + 3 * 18, "{name}");
            let causes = ["wal_client_data", "wal_stripe_rest", "wal_onode", "wal_superblock"];
            let put: u64 = causes.iter().map(|c| grown(c)).sum();
            let wal = grown("written_rocksdb_wal");
            assert!(wal > put && wal < put + 200, "{name}: {wal} for {put}");
            assert_eq!(grown("written"), wal, "{name}");
        });
    }
}
