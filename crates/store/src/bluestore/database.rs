//! The database under a store: one that is given, or RocksDB on BlueFS.

use std::sync::{Arc, Mutex};

use device::SharedDevice;

use super::alloc::Allocator;
use super::bluefs::{BlueFs, FsError, Mode, Place, Places, Role, SharedAllocator, open_rocksdb};
use super::format::{LABEL_ROOM, Prefix, Superblock};
use crate::StoreError;
use crate::keyed::keys::{behind, number_of};
use crate::kv::{Direction, Fitted, Kv, RocksDbOptions, SharedKv, fitted, need, storage};

/// Where a store's database is.
#[derive(Clone)]
pub enum Database {
    /// Somewhere else: in the machine's file system, or in memory.
    Given(SharedKv),
    /// RocksDB on BlueFS, on the store's own device, or on others as far as they are there.
    BlueFs {
        /// RocksDB's settings. Buffers are made smaller for a small device.
        options: RocksDbOptions,
        /// `block.db`.
        db: Option<SharedDevice>,
        /// `block.wal`.
        wal: Option<SharedDevice>,
    },
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Database::Given(_) => f.write_str("Given"),
            Database::BlueFs { db, wal, .. } => write!(f, "BlueFs({db:?}, {wal:?})"),
        }
    }
}

/// A database that is open, and the space that it shares with data.
pub(super) struct Opened {
    pub(super) kv: SharedKv,
    pub(super) alloc: SharedAllocator,
    pub(super) bluefs: Option<Arc<BlueFs>>,
    /// Bytes of its write buffer, and of a compaction; 0 if it is not on our devices.
    pub(super) buffer: u64,
    pub(super) compaction: u64,
}

fn failed(e: FsError) -> StoreError {
    tracing::error!(error = %e, "bluefs cannot be opened");
    match e {
        FsError::Device(kind) => StoreError::Device(kind),
        FsError::Corrupt(what) => StoreError::Format(what),
        FsError::NoSpace => StoreError::Format("the device is too small for its database"),
        FsError::NotFound | FsError::Exists => StoreError::Format("bluefs holds no database"),
    }
}

impl Database {
    /// Makes an empty one for a store. `salt` is another each time.
    pub(super) fn make(
        &self,
        device: &SharedDevice,
        superblock: &Superblock,
        salt: u64,
    ) -> Result<Opened, StoreError> {
        if let Some(places) = self.places(device, &space(superblock)) {
            BlueFs::mkfs(&places, superblock.uuid, salt).map_err(failed)?;
        }
        self.open(device, superblock, true)
    }

    /// Opens it.
    pub(super) fn open(
        &self,
        device: &SharedDevice,
        superblock: &Superblock,
        create: bool,
    ) -> Result<Opened, StoreError> {
        let alloc = space(superblock);
        let Some(places) = self.places(device, &alloc) else {
            let Database::Given(kv) = self else { return Err(StoreError::Format("no database")) };
            if !create {
                load(&**kv, &alloc)?;
            }
            return Ok(Opened { kv: kv.clone(), alloc, bluefs: None, buffer: 0, compaction: 0 });
        };
        let Database::BlueFs { options, db, .. } = self else {
            return Err(StoreError::Format("no database"));
        };
        let len = db.as_ref().map_or(device.len(), SharedDevice::len);
        let Fitted { options, buffer, compaction } = fitted(options, len);
        let fs = Arc::new(BlueFs::mount(places, superblock.uuid).map_err(failed)?);
        fs.keep(need(buffer, 0, 0, 0));
        let mode = match create {
            true => Mode::Create,
            false => {
                // Opening it for writing may need space: what data has must be known before.
                let look = open_rocksdb(&fs, &options, Mode::Look).map_err(storage)?;
                load(&look, &alloc)?;
                Mode::Open
            }
        };
        let kv = open_rocksdb(&fs, &options, mode).map_err(storage)?;
        Ok(Opened { kv: Arc::new(kv), alloc, bluefs: Some(fs), buffer, compaction })
    }

    /// BlueFS's devices, if it is under the database.
    fn places(&self, device: &SharedDevice, alloc: &SharedAllocator) -> Option<Places> {
        let Database::BlueFs { db, wal, .. } = self else { return None };
        let mut places: Places = [None, None, None];
        places[Role::Wal as usize] = wal.clone().map(Place::own);
        places[Role::Db as usize] = db.clone().map(Place::own);
        places[Role::Main as usize] = Some(Place { device: device.clone(), space: alloc.clone() });
        Some(places)
    }
}

/// All free.
fn space(superblock: &Superblock) -> SharedAllocator {
    let unit = superblock.min_alloc_len.into();
    let alloc = Allocator::new(superblock.device_len, unit, LABEL_ROOM);
    Arc::new(Mutex::new(alloc))
}

/// Reads the freelist.
fn load(kv: &dyn Kv, alloc: &SharedAllocator) -> Result<(), StoreError> {
    let start = Prefix::Freelist.key();
    let mut sound = Some(());
    kv.scan(&start, &behind(&start), Direction::Forwards, &mut |key, value| {
        let mut alloc = super::locked(alloc);
        sound = number_of(key).and_then(|group| alloc.load(group, value));
        sound.is_some()
    })
    .map_err(storage)?;
    sound.ok_or(StoreError::Format("the freelist"))
}
