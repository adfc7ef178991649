//! BlueStore as the suite makes it: on devices in memory, with a database in memory, or a RocksDB in
//! files or on BlueFS.

use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use device::SharedDevice;
use device::shared_memory::SharedMemoryFile;
use env::{AlignedBuf, Env, SharedBlockFile};
use store::bluestore::{Algorithm, BlueStore, Compression, CompressionMode, Database, MkfsOptions};
use store::kv::{Engine, KvError, MemKv, NativeKv, RocksDbOptions, SharedKv};
use store::{Fsck, FsckOptions, ObjectStore, StoreError};

use super::common::Dir;
use super::native::engines;

/// What the database stands on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Under {
    /// Nothing: it is in memory, and cannot be killed.
    Memory,
    /// The same, under a store that compresses all it can.
    Compressed,
    /// RocksDB in the machine's files.
    Files,
    /// RocksDB on BlueFS on the store's device.
    BlueFs,
    /// RocksDB on BlueFS on devices of its own, so small that some of it spills over.
    Beside,
}

impl Under {
    /// How its stores compress.
    pub(super) fn compression(self) -> Compression {
        let mode = match self {
            Under::Compressed => CompressionMode::Force,
            _ => CompressionMode::None,
        };
        Compression { mode, algorithm: Some(Algorithm::Lz4), ..Compression::default() }
    }

    /// Whether the database is in memory.
    pub(super) fn is_memory(self) -> bool {
        matches!(self, Under::Memory | Under::Compressed)
    }
}

/// A store's devices: its own, and those of its database.
#[derive(Clone)]
pub(super) struct Disks {
    pub(super) block: Arc<SharedMemoryFile>,
    pub(super) db: Option<Arc<SharedMemoryFile>>,
    pub(super) wal: Option<Arc<SharedMemoryFile>>,
    gate: Arc<Mutex<()>>,
}

/// One of several devices that lose power at one time: writes and syncs of all go one by one, so that
/// images of all of them, taken in one's hook or while the gate is held, are of one moment.
struct Gated {
    file: Arc<SharedMemoryFile>,
    gate: Arc<Mutex<()>>,
}

impl SharedBlockFile for Gated {
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
        let _gate = self.gate.lock().unwrap();
        self.file.write_at(offset, bufs)
    }
    fn sync(&self) -> std::io::Result<()> {
        let _gate = self.gate.lock().unwrap();
        self.file.sync()
    }
}

impl Disks {
    pub(super) fn new(len: u64, under: Under) -> Disks {
        let beside = |len| (under == Under::Beside).then(|| SharedMemoryFile::new(len, 4096));
        Disks {
            block: SharedMemoryFile::new(len, 4096),
            db: beside(1 << 20),
            wal: beside(512 << 10),
            gate: Arc::default(),
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
            gate: Arc::default(),
        }
    }

    fn gated(&self, file: &Arc<SharedMemoryFile>) -> SharedDevice {
        SharedDevice::new(Arc::new(Gated { file: file.clone(), gate: self.gate.clone() }))
    }

    /// The store's own.
    pub(super) fn device(&self) -> SharedDevice {
        self.gated(&self.block)
    }

    /// The database on them.
    pub(super) fn bluefs(&self) -> Database {
        let device = |file: &Arc<SharedMemoryFile>| self.gated(file);
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
    device: SharedDevice,
    database: Database,
    unit: u32,
    under: Under,
) -> Rc<BlueStore> {
    let options = MkfsOptions { uuid: [7; 16], min_alloc_len: unit };
    BlueStore::mkfs(env, device.clone(), database.clone(), options).await.unwrap();
    mounted(env, device, database, under).await.unwrap()
}

pub(super) async fn mounted(
    env: &Env,
    device: SharedDevice,
    database: Database,
    under: Under,
) -> Result<Rc<BlueStore>, StoreError> {
    let store = BlueStore::mount(env.clone(), device, database, under.compression());
    Ok(Rc::new(store.await?))
}

/// Nothing is wrong in it.
pub(super) async fn check(store: &BlueStore) {
    let deep = FsckOptions { deep: true, repair: false };
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
        blue.store = made(env, blue.disks.device(), blue.database(env).await, unit, under).await;
        blue
    }

    async fn database(&self, env: &Env) -> Database {
        match (self.under, &self.dir) {
            (Under::Files, Some(dir)) => {
                let rocks = Engine::RocksDb(small());
                loop {
                    match NativeKv::open(&dir.0.join("db"), &rocks, true) {
                        Ok(kv) => return Database::Given(Arc::new(kv)),
                        // A thread of the one that was killed has it until it has finished a round.
                        Err(KvError::Storage(e)) if e.contains("lock hold") => {
                            env.sleep(Duration::from_millis(5)).await;
                        }
                        Err(e) => panic!("{e}"),
                    }
                }
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
        let gate = self.disks.gate.clone();
        self.disks = {
            let _gate = gate.lock().unwrap();
            self.disks.image(SharedMemoryFile::kill_image)
        };
        self.store = spare(env).await;
        let database = self.database(env).await;
        self.store = mounted(env, self.disks.device(), database, self.under).await.unwrap();
    }
}

/// Some store.
async fn spare(env: &Env) -> Rc<BlueStore> {
    let device = SharedDevice::new(SharedMemoryFile::new(1 << 21, 4096));
    let database = Database::Given(Arc::new(MemKv::new()));
    made(env, device, database, 4096, Under::Memory).await
}
