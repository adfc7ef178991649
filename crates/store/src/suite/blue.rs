//! BlueStore as the suite makes it: on devices in memory, with a database in memory, or a RocksDB in
//! files or on BlueFS.

use std::rc::Rc;
use std::sync::Arc;

use device::SharedDevice;
use device::shared_memory::SharedMemoryFile;
use env::Env;

use super::native::engines;
use super::real::Dir;
use crate::bluestore::{BlueStore, Database, MkfsOptions};
use crate::kv::{Engine, MemKv, NativeKv, RocksDbOptions, SharedKv};
use crate::{Fsck, FsckOptions, ObjectStore, StoreError};

/// What the database stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Under {
    /// Nothing: it is in memory, and cannot be killed.
    Memory,
    /// RocksDB in the machine's files.
    Files,
    /// RocksDB on BlueFS on the store's device.
    BlueFs,
    /// RocksDB on BlueFS on devices of its own, so small that some of it spills over.
    Beside,
}

/// A store's devices: its own, and those of its database.
#[derive(Clone)]
pub(super) struct Disks {
    pub(super) block: Arc<SharedMemoryFile>,
    pub(super) db: Option<Arc<SharedMemoryFile>>,
    pub(super) wal: Option<Arc<SharedMemoryFile>>,
}

impl Disks {
    pub(super) fn new(len: u64, under: Under) -> Disks {
        let beside = |len| (under == Under::Beside).then(|| SharedMemoryFile::new(len, 4096));
        Disks {
            block: SharedMemoryFile::new(len, 4096),
            db: beside(1 << 20),
            wal: beside(512 << 10),
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Arc<SharedMemoryFile>> {
        let own = [&self.db, &self.wal].into_iter().flatten().cloned();
        std::iter::once(self.block.clone()).chain(own).collect()
    }

    /// Others with some contents of these.
    pub(super) fn image(
        &self,
        mut of: impl FnMut(&SharedMemoryFile) -> Arc<SharedMemoryFile>,
    ) -> Disks {
        Disks {
            block: of(&self.block),
            db: self.db.as_deref().map(&mut of),
            wal: self.wal.as_deref().map(&mut of),
        }
    }

    /// The database on them.
    pub(super) fn bluefs(&self) -> Database {
        let device = |file: &Arc<SharedMemoryFile>| SharedDevice::new(file.clone());
        Database::BlueFs {
            options: small(),
            db: self.db.as_ref().map(device),
            wal: self.wal.as_ref().map(device),
        }
    }
}

/// RocksDB with small buffers.
pub(super) fn small() -> RocksDbOptions {
    match engines().swap_remove(0).1 {
        Engine::RocksDb(options) => options,
        Engine::LevelDb(_) => panic!("the first is RocksDB"),
    }
}

/// A store and what it stands on.
pub(super) struct Blue {
    pub(super) store: Rc<BlueStore>,
    disks: Disks,
    under: Under,
    mem: SharedKv,
    dir: Option<Dir>,
}

/// Makes a store and opens it.
pub(super) async fn made(
    env: &Env,
    file: &Arc<SharedMemoryFile>,
    database: Database,
    unit: u32,
) -> Rc<BlueStore> {
    let options = MkfsOptions {
        uuid: [7; 16],
        min_alloc_len: unit,
    };
    let device = SharedDevice::new(file.clone());
    BlueStore::mkfs(env, device, database.clone(), options)
        .await
        .unwrap();
    mounted(env, file, database).await.unwrap()
}

pub(super) async fn mounted(
    env: &Env,
    file: &Arc<SharedMemoryFile>,
    database: Database,
) -> Result<Rc<BlueStore>, StoreError> {
    let device = SharedDevice::new(file.clone());
    Ok(Rc::new(BlueStore::mount(env.clone(), device, database).await?))
}

/// Nothing is wrong in it.
pub(super) async fn check(store: &BlueStore) {
    let deep = FsckOptions {
        deep: true,
        repair: false,
    };
    assert_eq!(store.fsck(deep).await, Ok(Fsck::default()));
}

impl Blue {
    pub(super) async fn new(env: &Env, len: u64, unit: u32, under: Under) -> Blue {
        let mut blue = Blue {
            store: spare(env).await,
            disks: Disks::new(len, under),
            under,
            mem: Arc::new(MemKv::new()),
            dir: (under == Under::Files).then(|| Dir::new("bluestore")),
        };
        blue.store = made(env, &blue.disks.block, blue.database(), unit).await;
        blue
    }

    fn database(&self) -> Database {
        match (self.under, &self.dir) {
            (Under::Files, Some(dir)) => {
                let rocks = Engine::RocksDb(small());
                let kv = NativeKv::open(&dir.0.join("db"), &rocks, true).unwrap();
                Database::Given(Arc::new(kv))
            }
            (Under::BlueFs | Under::Beside, _) => self.disks.bluefs(),
            _ => Database::Given(self.mem.clone()),
        }
    }

    /// Closes and opens again, or kills and opens again. No other reference may be left.
    pub(super) async fn reopen(&mut self, env: &Env, orderly: bool) {
        if orderly {
            self.store.close().await.unwrap();
        }
        // What the killed one still does must not reach the new one's devices.
        self.disks = self.disks.image(SharedMemoryFile::kill_image);
        self.store = spare(env).await;
        self.store = mounted(env, &self.disks.block, self.database())
            .await
            .unwrap();
    }
}

/// Some store.
async fn spare(env: &Env) -> Rc<BlueStore> {
    let file = SharedMemoryFile::new(1 << 21, 4096);
    made(env, &file, Database::Given(Arc::new(MemKv::new())), 4096).await
}
