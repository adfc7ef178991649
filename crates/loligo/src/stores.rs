//! The storage backends: making and opening the one an OSD has. Which it is stands in the file
//! `type` of its folder, as Ceph writes it; `osd_objectstore` decides for a new one.

use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use device::{BlockDevice, SharedDevice};
use env::{Env, OpenBlock};
use store::ObjectStore;
use store::bluestore::{self, Algorithm, BlueStore, Compression, CompressionMode, Database};
use store::filestore::{self, Backoff, FileStore, InlineXattrs};
use store::inkstore::{self, InkStore};
use store::kstore::{self, KStore};
use store::kv::{Engine, LevelDbOptions, NativeKv, RocksDbOptions, SharedKv, fitted};
use store::memstore::MemStore;
use types::Uuid;

use crate::failure::Failure;
use crate::layout::write_durably;
use crate::memory;

/// Backends for `--store`.
pub(crate) const STORES: [&str; 5] = ["inkstore", "bluestore", "filestore", "kstore", "memstore"];

/// Files and folders in an OSD's folder that belong to its store, of all backends.
pub(crate) const FILES: [&str; 9] = [
    "type",
    "block",
    "block.db",
    "block.wal",
    "db",
    "db.backend",
    "current",
    "journal",
    "memstore",
];

/// How long to wait for another process to let a store go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Patience {
    /// Not at all.
    None,
    /// As long as one that was killed may take to be gone.
    Some,
}

/// A store's lock: held until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: fs::File,
}

/// Takes an OSD's store for this process alone, whatever backend it is: by the file `fsid` in its
/// folder, as Ceph does.
pub(crate) fn lock(config: &Config, patience: Patience) -> Result<Lock, Failure> {
    const STEP: Duration = Duration::from_millis(100);
    let path = data_dir(config).join("fsid");
    let file = fs::File::open(&path)
        .map_err(|e| Failure::new(format!("{}: {e}; run --mkfs", path.display())))?;
    let mut tries = match patience {
        Patience::None => 1,
        Patience::Some => 50,
    };
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(fs::TryLockError::Error(e)) => return Err(failed(&path, &e)),
            Err(fs::TryLockError::WouldBlock) => tries -= 1,
        }
        if tries == 0 {
            return Err(Failure::new(format!(
                "{} runs, or something else has its store ({} is locked): stop it first",
                config.name(),
                path.display()
            )));
        }
        std::thread::sleep(STEP);
    }
}

/// Devices and files outside the OSD's folder that its store is on, or is to be on.
pub(crate) fn places_outside(config: &Config) -> Vec<PathBuf> {
    let linked = |name: &str, option: &str| match data_dir(config).join(name) {
        path if path.is_symlink() => path,
        _ => PathBuf::from(config.str(option)),
    };
    let places = match kind(config).as_str() {
        "inkstore" => vec![linked("block", "bluestore_block_path")],
        "bluestore" => vec![
            linked("block", "bluestore_block_path"),
            linked(DB.name, DB.path),
            linked(WAL.name, WAL.path),
        ],
        "filestore" => vec![journal_path(config)],
        _ => Vec::new(),
    };
    places.into_iter().filter_map(|place| outside(config, place)).collect()
}

/// A place, if it is not in the OSD's folder.
fn outside(config: &Config, place: PathBuf) -> Option<PathBuf> {
    let inside = place.as_os_str().is_empty() || place.starts_with(data_dir(config));
    match place.canonicalize() {
        Ok(real) if !real.starts_with(data_dir(config)) => Some(real),
        Err(_) if !inside => Some(place),
        _ => None,
    }
}

fn data_dir(config: &Config) -> PathBuf {
    PathBuf::from(config.str("osd_data"))
}

/// Which backend the OSD has, or is to have.
pub(crate) fn kind(config: &Config) -> String {
    match written_kind(&data_dir(config)) {
        kind if kind.is_empty() => config.str("osd_objectstore"),
        kind => kind,
    }
}

/// Which backend the OSD in a folder has; empty if there is none.
pub(crate) fn written_kind(dir: &Path) -> String {
    fs::read_to_string(dir.join("type")).unwrap_or_default().trim().to_owned()
}

/// Whether the OSD's folder holds a store.
pub(crate) fn is_made(config: &Config) -> bool {
    !written_kind(&data_dir(config)).is_empty()
}

/// Whether the store has no device.
pub(crate) fn is_in_memory(config: &Config) -> bool {
    kind(config) == "memstore"
}

/// Where a store in memory is while its OSD is stopped.
fn saved_path(config: &Config) -> PathBuf {
    data_dir(config).join("memstore")
}

/// What to look at for the devices under the store.
pub(crate) fn place(config: &Config) -> PathBuf {
    match kind(config).as_str() {
        "inkstore" | "bluestore" => block_path(config),
        _ => data_dir(config),
    }
}

fn unknown(kind: &str) -> Failure {
    Failure::new(format!("osd_objectstore={kind}: there is {}", STORES.join(", ")))
}

/// Shorter runs of free blocks than this (bytes) are not worth a request to the device.
const DISCARD_SHORTEST: u64 = 64 << 10;

/// The OSD's store, opened.
pub(crate) async fn open(env: &Env, config: &Rc<Config>) -> Result<Rc<dyn ObjectStore>, Failure> {
    open_as(env, config, &kind(config)).await
}

/// The store of an OSD that is stopped, opened to be looked at and changed.
pub(crate) async fn open_offline(
    env: &Env,
    config: &Rc<Config>,
) -> Result<Rc<dyn ObjectStore>, Failure> {
    match is_in_memory(config) {
        true => Ok(Rc::new(open_in_memory(config)?.keep_saved())),
        false => open(env, config).await,
    }
}

fn open_in_memory(config: &Config) -> Result<MemStore, Failure> {
    let path = saved_path(config);
    if !path.exists() {
        return Err(gone(config));
    }
    MemStore::open(&path, config.uint("bluestore_block_size")).map_err(|e| failed(&path, &e))
}

async fn open_as(
    env: &Env,
    config: &Rc<Config>,
    kind: &str,
) -> Result<Rc<dyn ObjectStore>, Failure> {
    let size = config.uint("bluestore_block_size");
    match kind {
        "memstore" => Ok(Rc::new(open_in_memory(config)?)),
        "inkstore" => {
            let path = block_path(config);
            let device = open_device(env, &path, None)?;
            let store =
                InkStore::mount(env.clone(), device).await.map_err(|e| failed(&path, &e))?;
            let store = Rc::new(store);
            env.go(memory::share(env.clone(), config.clone(), Rc::downgrade(&store)));
            store.set_discard(config.bool("bdev_enable_discard").then_some(DISCARD_SHORTEST));
            Ok(store)
        }
        "bluestore" => {
            let path = block_path(config);
            let device = open_shared(env, &path, None)?;
            let database = bluestore_database(env, config, false)?;
            let store = BlueStore::mount(env.clone(), device, database, compression(config)?).await;
            Ok(Rc::new(store.map_err(|e| failed(&path, &e))?))
        }
        "kstore" => {
            let path = data_dir(config).join("db");
            let kv = kstore_kv(config, &path, false)?;
            let store = KStore::mount(env.clone(), kv, size).await;
            Ok(Rc::new(store.map_err(|e| failed(&path, &e))?))
        }
        "filestore" => {
            let dir = data_dir(config);
            filestore::roll_back(&dir).map_err(|e| failed(&dir, &e))?;
            let kv = filestore_kv(config, &dir, false)?;
            let settings = filestore_settings(config, size);
            let store = FileStore::mount(env.clone(), &dir, kv, settings).await;
            Ok(Rc::new(store.map_err(|e| failed(&dir, &e))?))
        }
        kind => Err(unknown(kind)),
    }
}

/// Why an OSD whose store was in memory does not start. Were it to begin empty by itself, PGs that no other
/// OSD has would be `unknown` without a word.
fn gone(config: &Config) -> Failure {
    let (name, dir) = (config.name(), data_dir(config));
    let fsid = fs::read_to_string(dir.join("fsid")).unwrap_or_default();
    Failure::new(format!(
        "{name} was killed and had its store in memory: what it had is gone. If other OSDs have copies of it, \
         or it is not needed, let it begin empty: remove {}/type, then run 'loligo osd --mkfs --id {} \
         --osd-uuid {} -c CONF'",
        dir.display(),
        config.id(),
        fsid.trim()
    ))
}

/// Makes an empty store in the OSD's folder.
pub(crate) async fn make(env: &Env, config: &Config, osd_fsid: Uuid) -> Result<(), Failure> {
    let size = config.uint("bluestore_block_size");
    let (dir, kind) = (data_dir(config), config.str("osd_objectstore"));
    match kind.as_str() {
        "memstore" => {
            let path = saved_path(config);
            MemStore::make(&path, size).close().await.map_err(|e| failed(&path, &e))?;
        }
        "inkstore" => {
            let path = block_path(config);
            link_block(config, &path)?;
            let device = open_device(env, &path, Some(size))?;
            // Not the OSD's: a store made again for it must not know the old one's log.
            let mut uuid = [0; 16];
            env.fill_random(&mut uuid);
            let options = inkstore::MkfsOptions { uuid, log_len: None };
            InkStore::mkfs(&device, options).await.map_err(|e| failed(&path, &e))?;
        }
        "bluestore" => {
            let path = block_path(config);
            link_block(config, &path)?;
            let device = open_shared(env, &path, Some(size))?;
            let database = bluestore_database(env, config, true)?;
            let options =
                bluestore::MkfsOptions { uuid: osd_fsid.0, min_alloc_len: min_alloc_len(config) };
            BlueStore::mkfs(env, device, database, options).await.map_err(|e| failed(&path, &e))?;
        }
        "kstore" => {
            let path = dir.join("db");
            let kv = kstore_kv(config, &path, true)?;
            let stripe_len = u32::try_from(config.uint("kstore_default_stripe_size"))
                .unwrap_or(kstore::STRIPE_LEN);
            let options = kstore::MkfsOptions { uuid: osd_fsid.0, stripe_len };
            KStore::mkfs(env, kv, options).await.map_err(|e| failed(&path, &e))?;
        }
        "filestore" => {
            let by_snapshots = config.bool("filestore_btrfs_snap");
            filestore::make_current(&dir, by_snapshots).map_err(|e| failed(&dir, &e))?;
            let kv = filestore_kv(config, &dir, true)?;
            let journal = journal_path(config);
            let direct = config.bool("journal_dio");
            let len = journal_len(config, size);
            FileStore::mkfs(env, &dir, kv, osd_fsid.0, &journal, len, direct)
                .await
                .map_err(|e| failed(&journal, &e))?;
        }
        kind => return Err(unknown(kind)),
    }
    // The last: with it the store is made, and is left as it is from then on.
    write_durably(&dir.join("type"), &format!("{kind}\n"))
}

/// A store in the OSD's folder or on its device that is whole though no file `type` tells of it: which, and it, opened.
pub(crate) async fn find(
    env: &Env,
    config: &Rc<Config>,
) -> Result<Option<(&'static str, Rc<dyn ObjectStore>)>, Failure> {
    let dir = data_dir(config);
    // The device may be there without the folder that had a link to it.
    if matches!(config.str("osd_objectstore").as_str(), "inkstore" | "bluestore") {
        link_block(config, &block_path(config))?;
    }
    for kind in STORES {
        let is_there = match kind {
            "inkstore" | "bluestore" => block_path(config).exists(),
            "filestore" => dir.join("current").exists(),
            "kstore" => dir.join("db").exists(),
            _ => saved_path(config).exists(),
        };
        if !is_there {
            continue;
        }
        match open_as(env, config, kind).await {
            Ok(store) => return Ok(Some((kind, store))),
            // A folder of ours, and not somebody's device: all that is in it would be removed.
            Err(e) if matches!(kind, "filestore" | "kstore") => {
                let folder = dir.join(if kind == "kstore" { "db" } else { "current" });
                return Err(Failure::new(format!(
                    "{} may be what an OSD has that lost its file 'type', and does not open ({e}): if nothing of it is needed, remove it",
                    folder.display()
                )));
            }
            Err(_) => {}
        }
    }
    Ok(None)
}

fn failed(path: &Path, e: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{}: {e}", path.display()))
}

fn block_path(config: &Config) -> PathBuf {
    data_dir(config).join("block")
}

fn open_device(env: &Env, path: &Path, create_len: Option<u64>) -> Result<BlockDevice, Failure> {
    BlockDevice::open(env, path, OpenBlock { create_len, read_only: false })
        .map_err(|e| Failure::new(format!("cannot open {}: {e}", path.display())))
}

fn open_shared(env: &Env, path: &Path, create_len: Option<u64>) -> Result<SharedDevice, Failure> {
    SharedDevice::open(env, path, OpenBlock { create_len, read_only: false })
        .map_err(|e| Failure::new(format!("cannot open {}: {e}", path.display())))
}

/// Lets `block` be a link to the device that the options name.
fn link_block(config: &Config, path: &Path) -> Result<(), Failure> {
    link(&config.str("bluestore_block_path"), path)
}

fn link(elsewhere: &str, path: &Path) -> Result<(), Failure> {
    // Where it leads may be a file that is to be made.
    if elsewhere.is_empty() || path.exists() || path.is_symlink() {
        return Ok(());
    }
    std::os::unix::fs::symlink(elsewhere, path)
        .map_err(|e| Failure::new(format!("cannot link {} to {elsewhere}: {e}", path.display())))
}

/// `bluestore_min_alloc_size`, or what it is for solid-state devices if that is 0.
fn min_alloc_len(config: &Config) -> u32 {
    let len = match config.uint("bluestore_min_alloc_size") {
        0 => config.uint("bluestore_min_alloc_size_ssd"),
        len => len,
    };
    // One that is none of the lengths there are is refused when the store is made.
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// A device of a BlueStore's database: its name in the OSD's folder, and Ceph's options for it.
struct Beside {
    name: &'static str,
    path: &'static str,
    size: &'static str,
    create: &'static str,
}

const DB: Beside = Beside {
    name: "block.db",
    path: "bluestore_block_db_path",
    size: "bluestore_block_db_size",
    create: "bluestore_block_db_create",
};

const WAL: Beside = Beside {
    name: "block.wal",
    path: "bluestore_block_wal_path",
    size: "bluestore_block_wal_size",
    create: "bluestore_block_wal_create",
};

impl Beside {
    /// The device, if the OSD has one. When the store is made, the options say whether: by a path,
    /// to which the name becomes a link, or by leave to make a file of some size.
    fn open(
        &self,
        env: &Env,
        config: &Config,
        make: bool,
    ) -> Result<Option<SharedDevice>, Failure> {
        let path = data_dir(config).join(self.name);
        let mut create_len = None;
        if make {
            link(&config.str(self.path), &path)?;
            let size = config.uint(self.size);
            create_len = (config.bool(self.create) && size > 0).then_some(size);
        }
        match path.is_symlink() || path.exists() || create_len.is_some() {
            true => open_shared(env, &path, create_len).map(Some),
            false => Ok(None),
        }
    }
}

/// The database of a BlueStore: on BlueFS; but in a folder where it was made there (as all were once,
/// and are with `bluestore_bluefs` off).
fn bluestore_database(env: &Env, config: &Config, make: bool) -> Result<Database, Failure> {
    let mut options = config.str("bluestore_rocksdb_options");
    let annex = config.str("bluestore_rocksdb_options_annex");
    if !annex.is_empty() {
        options = format!("{options},{annex}");
    }
    let folder = data_dir(config).join("db");
    let is_folder = match make {
        true => !config.bool("bluestore_bluefs"),
        false => folder.is_dir(),
    };
    let cache_len = memory::of_metadata(config);
    if is_folder {
        return open_kv(config, &folder, "rocksdb", options, cache_len, make).map(Database::Given);
    }
    Ok(Database::BlueFs {
        options: RocksDbOptions { options, cache_len, file_system: None },
        db: DB.open(env, config, make)?,
        wal: WAL.open(env, config, make)?,
    })
}

/// Options `bluestore_compression_*`, as for solid-state devices where they are 0.
fn compression(config: &Config) -> Result<Compression, Failure> {
    let (mode, algorithm) =
        (config.str("bluestore_compression_mode"), config.str("bluestore_compression_algorithm"));
    let len = |name: &str| match config.uint(name) {
        0 => config.uint(&format!("{name}_ssd")),
        len => len,
    };
    let mode = CompressionMode::named(&mode).ok_or_else(|| {
        Failure::new(format!(
            "bluestore_compression_mode={mode}: none, passive, aggressive or force"
        ))
    })?;
    let found = Algorithm::named(&algorithm);
    let told_none = matches!(algorithm.as_str(), "" | "none");
    if found.is_none() && mode != CompressionMode::None && !told_none {
        return Err(Failure::new(format!(
            "bluestore_compression_algorithm={algorithm}: there is snappy, zlib, zstd and lz4"
        )));
    }
    Ok(Compression {
        mode,
        algorithm: found,
        required_ratio: config.float("bluestore_compression_required_ratio"),
        min_blob_len: len("bluestore_compression_min_blob_size"),
        max_blob_len: len("bluestore_compression_max_blob_size"),
    })
}

fn kstore_kv(config: &Config, path: &Path, create: bool) -> Result<SharedKv, Failure> {
    let (backend, options) = (config.str("kstore_backend"), config.str("kstore_rocksdb_options"));
    let options = options_for_size(config, options);
    open_kv(config, path, &backend, options, config.uint("rocksdb_cache_size"), create)
}

fn filestore_kv(config: &Config, dir: &Path, create: bool) -> Result<SharedKv, Failure> {
    let (backend, options) =
        (config.str("filestore_omap_backend"), config.str("filestore_rocksdb_options"));
    let cache = config.uint("rocksdb_cache_size");
    let options = options_for_size(config, options);
    open_kv(config, &dir.join("current").join("omap"), &backend, options, cache, create)
}

/// RocksDB's options, with smaller buffers for a small OSD. On others its files may be larger than the
/// OSD's size says for a while: they are on a file system, and experiments want RocksDB's own settings.
fn options_for_size(config: &Config, options: String) -> String {
    const SMALL: u64 = 1 << 30;
    let size = config.uint("bluestore_block_size");
    if size >= SMALL {
        return options;
    }
    fitted(&RocksDbOptions { options, ..RocksDbOptions::default() }, size).options.options
}

/// The journal: beside the files, unless the option names another place than Ceph's default.
fn journal_path(config: &Config) -> PathBuf {
    let option = config.str("osd_journal");
    if option.is_empty() || option.starts_with("/var/lib/ceph/osd/") {
        return data_dir(config).join("journal");
    }
    PathBuf::from(option)
}

/// `osd_journal_size` (MiB), but on a small OSD not more than a sixteenth of it.
fn journal_len(config: &Config, size: u64) -> u64 {
    const LEAST: u64 = 64 << 20;
    (config.uint("osd_journal_size") << 20).min((size / 16).max(LEAST))
}

fn filestore_settings(config: &Config, size: u64) -> filestore::Settings {
    let count = |name: &str| usize::try_from(config.uint(name)).unwrap_or(usize::MAX);
    let seconds = |name: &str| Duration::try_from_secs_f64(config.float(name)).unwrap_or_default();
    let inline = |kind: &str| {
        let or = |all: &str, of_kind: &str| match count(all) {
            0 => count(&format!("{of_kind}_{kind}")),
            all => all,
        };
        InlineXattrs {
            count: or("filestore_max_inline_xattrs", "filestore_max_inline_xattrs"),
            len: or("filestore_max_inline_xattr_size", "filestore_max_inline_xattr_size"),
        }
    };
    let queue = |max: &str, throughput: &str| Backoff {
        max: config.uint(max),
        low: config.float("filestore_queue_low_threshhold"),
        high: config.float("filestore_queue_high_threshhold"),
        high_multiple: config.float("filestore_queue_high_delay_multiple"),
        max_multiple: config.float("filestore_queue_max_delay_multiple"),
        expected_throughput: config.float(throughput),
    };
    let merge = config.str("filestore_merge_threshold").parse().unwrap_or(-10_i64);
    let split = count("filestore_split_multiple").max(1);
    filestore::Settings {
        journal: journal_path(config),
        journal_dio: config.bool("journal_dio"),
        journal_max_write_entries: count("journal_max_write_entries"),
        journal_max_write_bytes: count("journal_max_write_bytes"),
        journal_writeahead: config.bool("filestore_journal_writeahead"),
        limit: size,
        op_threads: count("filestore_op_threads").clamp(1, 64),
        min_sync_interval: seconds("filestore_min_sync_interval"),
        max_sync_interval: seconds("filestore_max_sync_interval"),
        split_above: split * usize::try_from(merge.unsigned_abs()).unwrap_or(10).max(1) * 16,
        inline_xattrs: ["xfs", "btrfs", "other"].map(inline),
        queue_ops: queue("filestore_queue_max_ops", "filestore_expected_throughput_ops"),
        queue_bytes: queue("filestore_queue_max_bytes", "filestore_expected_throughput_bytes"),
    }
}

/// Opens RocksDB or LevelDB: which of them a database is stands beside it, the option is for a new
/// one. (Both keep a file `CURRENT`, and neither reads the other's tables.)
fn open_kv(
    config: &Config,
    path: &Path,
    backend: &str,
    options: String,
    cache_len: u64,
    create: bool,
) -> Result<SharedKv, Failure> {
    let mark = path.with_extension("backend");
    let made = match create {
        true => String::new(),
        false => fs::read_to_string(&mark).unwrap_or_default(),
    };
    let backend = if made.trim().is_empty() { backend } else { made.trim() };
    let engine = match backend {
        "rocksdb" => Engine::RocksDb(RocksDbOptions { options, cache_len, file_system: None }),
        "leveldb" => Engine::LevelDb(LevelDbOptions {
            write_buffer_len: config.uint("leveldb_write_buffer_size"),
            cache_len: config.uint("leveldb_cache_size"),
            block_len: config.uint("leveldb_block_size"),
            bloom_bits: u8::try_from(config.uint("leveldb_bloom_size")).unwrap_or(u8::MAX),
            compress: config.bool("leveldb_compression"),
        }),
        other => {
            return Err(Failure::new(format!(
                "key-value backend {other}: there is rocksdb and leveldb"
            )));
        }
    };
    if create {
        write_durably(&mark, &format!("{backend}\n"))?;
    }
    let kv = NativeKv::open(path, &engine, create).map_err(|e| failed(path, &e))?;
    Ok(Arc::new(kv))
}

#[cfg(test)]
mod tests {
    use env::real::Runtime;
    use store::{CollId, Transaction};
    use types::pg::{PgId, SpgId};

    use super::*;

    /// The store's uuid was the OSD's: one made again on the device took what was left in the log there
    /// for its own.
    #[test]
    fn a_store_made_again_is_empty() {
        let dir = std::env::temp_dir().join(format!("loligo-stores-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let config = Config::new("osd", "0");
        for (name, value) in [
            ("osd_data", dir.to_str().unwrap()),
            ("osd_objectstore", "inkstore"),
            ("bluestore_block_size", "16777216"),
        ] {
            config.set(name, value, config::Source::Cmdline).unwrap();
        }
        let config = Rc::new(config);
        Runtime::new().unwrap().block_on(|env| async move {
            let fsid = Uuid::from_random([3; 16]);
            let cid = CollId::Pg(SpgId { pgid: PgId { pool: 1, seed: 0 }, shard: -1 });
            for life in 0..2 {
                make(&env, &config, fsid).await.unwrap();
                for start in 0..2 {
                    let store = open(&env, &config).await.unwrap();
                    let found = store.collections().await.unwrap();
                    assert!(
                        found.is_empty() || (life, start) == (0, 1),
                        "{life} {start}: {found:?}"
                    );
                    if (life, start) == (0, 0) {
                        let mut t = Transaction::new();
                        t.mkcoll(&cid, 0);
                        store.submit(t).await.unwrap();
                    }
                    store.close().await.unwrap();
                }
            }
        });
        fs::remove_dir_all(&dir).unwrap();
    }
}
