//! InkStore on real files, on every reactor this machine has.

use std::path::PathBuf;
use std::rc::Rc;

use device::BlockDevice;
use device::memory::Choices;
use env::real::{Reactors, Runtime};
use env::{Env, OpenBlock};
use store::ObjectStore;
use store::inkstore::{InkStore, MkfsOptions};
use store::kv::{Kv, KvBatch, RedbKv};

use super::common::{Dir, Model, Sizes, transaction};

async fn history(env: Env, path: PathBuf) {
    let options = OpenBlock { create_len: Some(64 << 20), read_only: false };
    let device = BlockDevice::open(&env, &path, options).unwrap();
    let mkfs = MkfsOptions { uuid: [3; 16], log_len: Some(256 << 10) };
    InkStore::mkfs(&device, mkfs).await.unwrap();
    let mut store = Rc::new(InkStore::mount(env.clone(), device).await.unwrap());
    let (mut model, mut choices) = (Model::default(), Choices::new(31));
    let sizes = Sizes { objects: 12, object_len: 400_000, write_len: 200_000 };
    for round in 0..4 {
        let mut waiting = Vec::new();
        for _ in 0..80 {
            let t = transaction(&mut choices, &model, sizes);
            if model.apply(&t).is_ok() {
                waiting.push(store.submit(t));
            }
        }
        for done in waiting {
            done.await.unwrap();
        }
        assert_eq!(model.compare(&*store).await, Ok(()), "round {round}");
        assert_eq!(store.fsck(true).await.unwrap().errors, Vec::<String>::new());
        store.close().await.unwrap();
        // The file is locked as long as a store holds it.
        drop(store);
        let device = BlockDevice::open(&env, &path, OpenBlock::default()).unwrap();
        store = Rc::new(InkStore::mount(env.clone(), device).await.unwrap());
        assert_eq!(model.compare(&*store).await, Ok(()), "reopened after round {round}");
    }
}

#[test]
fn on_real_files() {
    let dir = Dir::new("ink");
    for (name, reactor) in [("uring", Reactors::Uring), ("epoll", Reactors::Epoll)] {
        let path = dir.0.join(name);
        match Runtime::on(reactor) {
            Ok(runtime) => runtime.block_on(|env| history(env, path)),
            Err(e) => eprintln!("no {name} here: {e}"),
        }
    }
}

#[test]
fn redb_on_a_real_file() {
    let dir = Dir::new("kv");
    let path = dir.0.join("kv");
    let env = Runtime::on(Reactors::Epoll).unwrap().env();
    let mut batch = KvBatch::new();
    batch.put(&b"a"[..], &b"1"[..]).put(&b"b"[..], &b"2"[..]);
    RedbKv::open(&env, &path).unwrap().commit(batch).unwrap();
    let kv = RedbKv::open(&env, &path).unwrap();
    assert_eq!(kv.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(kv.range(b"", b"", 9).unwrap().len(), 2);
}
