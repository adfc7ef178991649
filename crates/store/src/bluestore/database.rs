//! The database under a store: one that is given, or RocksDB on BlueFS.

use std::sync::{Arc, Mutex};

use device::SharedDevice;

use super::alloc::Allocator;
use super::bluefs::{BlueFs, FsError, Mode, Place, Places, Role, SharedAllocator, open_rocksdb};
use super::format::{LABEL_ROOM, Prefix, Superblock};
use crate::StoreError;
use crate::keyed::keys::{behind, number_of};
use crate::kv::{Direction, Kv, RocksDbOptions, SharedKv, storage};

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
    /// Bytes that it may need at once: of the main device if it has no other, and at all.
    pub(super) reserve: u64,
    pub(super) headroom: u64,
}

/// RocksDB's write buffer unless it is set.
const WRITE_BUFFER_LEN: u64 = 64 << 20;
/// Smallest write buffer that a device's size asks for.
const WRITE_BUFFER_LEN_MIN: u64 = 1 << 20;

/// The value of a setting in RocksDB's options.
fn setting(options: &str, name: &str) -> Option<u64> {
    let value = options.split([',', ';']).find_map(|part| {
        let (key, value) = part.split_once('=')?;
        (key.trim() == name).then(|| value.trim())
    });
    value?.parse().ok()
}

/// Settings for a database that may have a 32nd of `len` bytes for each write buffer, and the
/// length of a buffer.
fn fitted(given: &RocksDbOptions, len: u64) -> (RocksDbOptions, u64) {
    let wanted = setting(&given.options, "write_buffer_size").unwrap_or(WRITE_BUFFER_LEN);
    let most = (len / 32).max(WRITE_BUFFER_LEN_MIN);
    if wanted <= most {
        return (given.clone(), wanted);
    }
    let mut fitted = given.clone();
    // Of a setting that comes twice the latter holds. Compactions must find room, too.
    if !fitted.options.is_empty() {
        fitted.options.push(',');
    }
    fitted.options += &format!(
        "write_buffer_size={most},target_file_size_base={most},max_bytes_for_level_base={}",
        4 * most
    );
    (fitted, most)
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
            return Ok(Opened { kv: kv.clone(), alloc, bluefs: None, reserve: 0, headroom: 0 });
        };
        let Database::BlueFs { options, db, .. } = self else {
            return Err(StoreError::Format("no database"));
        };
        let len = db.as_ref().map_or(device.len(), SharedDevice::len);
        let (options, buffer) = fitted(options, len);
        let fs = Arc::new(BlueFs::mount(places, superblock.uuid).map_err(failed)?);
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
        Ok(Opened {
            kv: Arc::new(kv),
            alloc,
            bluefs: Some(fs),
            // Also where it has a device of its own: what that has no room for is spilled here.
            reserve: 2 * buffer,
            headroom: buffer,
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_fit_the_device() {
        let given = RocksDbOptions {
            options: "compression=kNoCompression,write_buffer_size=268435456".into(),
            ..RocksDbOptions::default()
        };
        assert_eq!(fitted(&given, 100 << 30), (given.clone(), 256 << 20));
        let (small, len) = fitted(&given, 1 << 30);
        assert_eq!(len, 32 << 20);
        assert!(small.options.contains(",write_buffer_size=33554432,"));
        assert_eq!(fitted(&given, 1 << 20).1, 1 << 20);
        assert_eq!(fitted(&RocksDbOptions::default(), 100 << 30).1, 64 << 20);
    }
}
