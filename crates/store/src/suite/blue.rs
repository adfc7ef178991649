//! BlueStore as the suite makes it: a device in memory, a database in memory or RocksDB in files.

use std::rc::Rc;
use std::sync::Arc;

use device::SharedDevice;
use device::shared_memory::SharedMemoryFile;
use env::Env;

use super::native::engines;
use super::real::Dir;
use crate::bluestore::{BlueStore, MkfsOptions};
use crate::kv::{MemKv, NativeKv, SharedKv};
use crate::{Fsck, FsckOptions, ObjectStore, StoreError};

/// A store and what it stands on.
pub(super) struct Blue {
    pub(super) store: Rc<BlueStore>,
    file: Arc<SharedMemoryFile>,
    database: Database,
}

enum Database {
    /// It cannot be killed.
    Memory(SharedKv),
    Files(Dir),
}

impl Database {
    fn open(&self) -> SharedKv {
        match self {
            Database::Memory(kv) => kv.clone(),
            Database::Files(dir) => {
                let (_, rocks) = engines().swap_remove(0);
                Arc::new(NativeKv::open(&dir.0.join("db"), &rocks, true).unwrap())
            }
        }
    }
}

/// Makes a store and opens it.
pub(super) async fn made(
    env: &Env,
    file: &Arc<SharedMemoryFile>,
    kv: SharedKv,
    unit: u32,
) -> Rc<BlueStore> {
    let options = MkfsOptions {
        uuid: [7; 16],
        min_alloc_len: unit,
    };
    let device = SharedDevice::new(file.clone());
    BlueStore::mkfs(env, device, kv.clone(), options)
        .await
        .unwrap();
    mounted(env, file, kv).await.unwrap()
}

pub(super) async fn mounted(
    env: &Env,
    file: &Arc<SharedMemoryFile>,
    kv: SharedKv,
) -> Result<Rc<BlueStore>, StoreError> {
    let device = SharedDevice::new(file.clone());
    Ok(Rc::new(BlueStore::mount(env.clone(), device, kv).await?))
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
    pub(super) async fn new(env: &Env, len: u64, unit: u32, rocks: bool) -> Blue {
        let file = SharedMemoryFile::new(len, 4096);
        let database = match rocks {
            true => Database::Files(Dir::new("bluestore")),
            false => Database::Memory(Arc::new(MemKv::new())),
        };
        let store = made(env, &file, database.open(), unit).await;
        Blue {
            store,
            file,
            database,
        }
    }

    /// Closes and opens again, or kills and opens again. No other reference may be left.
    pub(super) async fn reopen(&mut self, env: &Env, orderly: bool) {
        if orderly {
            self.store.close().await.unwrap();
        }
        // What the killed one still does must not reach the new one's device.
        self.file = self.file.kill_image();
        let spare = SharedMemoryFile::new(1 << 21, 4096);
        self.store = made(env, &spare, Arc::new(MemKv::new()), 4096).await;
        self.store = mounted(env, &self.file, self.database.open())
            .await
            .unwrap();
    }
}
