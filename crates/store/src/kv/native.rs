//! RocksDB and LevelDB: Debian's libraries behind one C++ face of ours (`native/engine.h`).
//!
//! Every byte either writes is counted by the kind of the file it goes to, in a file system laid
//! under it: write-ahead log, tables of flushes, tables of compactions, manifest. RocksDB can be
//! given another file system than the machine's ([`FileSystem`]), over which the counting one
//! lies just the same.
//!
//! Calls block and may come from any thread. The libraries run threads of their own for flushes
//! and compactions.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::{NonNull, null, null_mut};

use bytes::Bytes;

use super::{Direction, Kv, KvBatch, KvError, KvOp, KvWritten, Visit, is_empty_range, level_log};

/// `loligo::Engine`.
#[repr(C)]
struct RawEngine {
    _opaque: [u8; 0],
}

/// `leveldb::FileLock`.
#[repr(C)]
struct RawLock {
    _opaque: [u8; 0],
}

/// `loligo::Op`.
#[repr(C)]
struct RawOp {
    op: u32,
    key_len: u32,
    value_len: u64,
    key: *const u8,
    value: *const u8,
}

type RawVisit = unsafe extern "C" fn(*mut c_void, *const u8, usize, *const u8, usize) -> c_int;

unsafe extern "C" {
    fn loligo_rocks_open(
        path: *const c_char,
        options: *const c_char,
        cache_len: u64,
        mode: c_int,
        file_system: *const c_void,
        out: *mut *mut RawEngine,
        error: *mut *mut c_char,
    ) -> c_int;
    fn loligo_level_open(
        path: *const c_char,
        write_buffer_len: u64,
        cache_len: u64,
        block_len: u64,
        bloom_bits: c_int,
        compress: c_int,
        create: c_int,
        out: *mut *mut RawEngine,
        error: *mut *mut c_char,
    ) -> c_int;
    fn loligo_level_lock(
        path: *const c_char,
        out: *mut *mut RawLock,
        error: *mut *mut c_char,
    ) -> c_int;
    fn loligo_level_unlock(lock: *mut RawLock);
    fn loligo_kv_get(
        db: *mut RawEngine,
        key: *const u8,
        len: usize,
        visit: RawVisit,
        context: *mut c_void,
        error: *mut *mut c_char,
    ) -> c_int;
    fn loligo_kv_scan(
        db: *mut RawEngine,
        start: *const u8,
        start_len: usize,
        end: *const u8,
        end_len: usize,
        backwards: c_int,
        visit: RawVisit,
        context: *mut c_void,
        error: *mut *mut c_char,
    ) -> c_int;
    fn loligo_kv_write(
        db: *mut RawEngine,
        ops: *const RawOp,
        count: usize,
        sync: c_int,
        error: *mut *mut c_char,
    ) -> c_int;
    fn loligo_kv_compact(db: *mut RawEngine, error: *mut *mut c_char) -> c_int;
    fn loligo_kv_range_bytes(
        db: *mut RawEngine,
        start: *const u8,
        start_len: usize,
        end: *const u8,
        end_len: usize,
        out: *mut u64,
        error: *mut *mut c_char,
    ) -> c_int;
    fn loligo_kv_reclaim(db: *mut RawEngine);
    fn loligo_kv_counters(db: *mut RawEngine, out: *mut u64);
    fn loligo_kv_close(db: *mut RawEngine);
    fn loligo_kv_free_error(error: *mut c_char);
}

/// `loligo::kLook`; 0 is to open, 1 to create.
const MODE_LOOK: c_int = 2;

/// Length of `loligo::Counter`'s array.
const COUNTERS: usize = 7;

/// Which library, and how it is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// RocksDB.
    RocksDb(RocksDbOptions),
    /// LevelDB.
    LevelDb(LevelDbOptions),
}

/// RocksDB's settings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RocksDbOptions {
    /// As Ceph writes them: `compression=kNoCompression,max_background_jobs=2`. RocksDB's own
    /// names.
    pub options: String,
    /// Cache of table blocks in bytes; 0 for RocksDB's own (8 MiB).
    pub cache_len: u64,
    /// Where its files are; the machine's if `None`.
    pub file_system: Option<FileSystem>,
}

/// LevelDB's settings. A length of 0 is LevelDB's own default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LevelDbOptions {
    /// Bytes in memory before they become a table (4 MiB by default).
    pub write_buffer_len: u64,
    /// Cache of table blocks in bytes (8 MiB by default).
    pub cache_len: u64,
    /// Bytes of a table's block (4 KiB by default).
    pub block_len: u64,
    /// Bits a key of the Bloom filters; 0 for none.
    pub bloom_bits: u8,
    /// Compress with snappy.
    pub compress: bool,
}

/// A file system for RocksDB that is not the machine's: a `std::shared_ptr<rocksdb::FileSystem>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem(NonNull<c_void>);

// SAFETY: RocksDB demands of its file systems that all calls may come from any thread, and
// `FileSystem::from_raw` that this is one.
unsafe impl Send for FileSystem {}
// SAFETY: as above.
unsafe impl Sync for FileSystem {}

impl FileSystem {
    /// Takes a pointer to a `std::shared_ptr<rocksdb::FileSystem>`, made by C++ of ours. Opening a
    /// database copies the shared pointer; the caller keeps this one.
    ///
    /// # Safety
    /// The pointer must be one until the last clone of this has been used to open a database.
    pub unsafe fn from_raw(shared_ptr: NonNull<c_void>) -> FileSystem {
        FileSystem(shared_ptr)
    }
}

/// An open database.
pub struct NativeKv {
    raw: NonNull<RawEngine>,
    /// Where its files are, if the machine's file system has them.
    dir: Option<PathBuf>,
}

// SAFETY: both libraries allow all calls made here from any thread at any time, but for closing,
// which needs the only reference.
unsafe impl Send for NativeKv {}
// SAFETY: as above.
unsafe impl Sync for NativeKv {}

impl fmt::Debug for NativeKv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NativeKv({:?})", self.dir)
    }
}

impl NativeKv {
    /// Opens the database in a directory; with `create` it is made if there is none.
    pub fn open(path: &Path, engine: &Engine, create: bool) -> Result<NativeKv, KvError> {
        NativeKv::open_as(path, engine, create.into())
    }

    /// Opens a RocksDB without changing anything: what its log holds is only in memory. Writing
    /// fails.
    pub fn look(path: &Path, options: RocksDbOptions) -> Result<NativeKv, KvError> {
        NativeKv::open_as(path, &Engine::RocksDb(options), MODE_LOOK)
    }

    fn open_as(path: &Path, engine: &Engine, mode: c_int) -> Result<NativeKv, KvError> {
        let text = |bytes: &[u8]| {
            CString::new(bytes).map_err(|_| KvError::Storage("a zero byte in a path".into()))
        };
        let c_path = text(path.as_os_str().as_bytes())?;
        if matches!(engine, Engine::LevelDb(_)) && path.join("CURRENT").exists() {
            let _lock = LevelLock::take(&c_path)?;
            level_log::cut_torn(path).map_err(|e| KvError::Storage(e.to_string()))?;
        }
        let (mut raw, mut error) = (null_mut(), null_mut());
        let mut dir = Some(path.to_owned());
        let outcome = match engine {
            Engine::RocksDb(rocks) => {
                // RocksDB separates by semicolons, Ceph by commas.
                let options = text(separated(&rocks.options).as_bytes())?;
                let file_system = rocks.file_system.as_ref();
                if file_system.is_some() {
                    dir = None;
                }
                let file_system = file_system.map_or(null(), |fs| fs.0.as_ptr().cast_const());
                // SAFETY: the strings and places live through the call; the file system is one by
                // `FileSystem::from_raw`.
                unsafe {
                    loligo_rocks_open(
                        c_path.as_ptr(),
                        options.as_ptr(),
                        rocks.cache_len,
                        mode,
                        file_system,
                        &raw mut raw,
                        &raw mut error,
                    )
                }
            }
            // SAFETY: the string and the places live through the call.
            Engine::LevelDb(level) => unsafe {
                loligo_level_open(
                    c_path.as_ptr(),
                    level.write_buffer_len,
                    level.cache_len,
                    level.block_len,
                    level.bloom_bits.into(),
                    level.compress.into(),
                    mode,
                    &raw mut raw,
                    &raw mut error,
                )
            },
        };
        told(outcome, error)?;
        let raw = NonNull::new(raw).ok_or_else(|| KvError::Storage("no database".into()))?;
        Ok(NativeKv { raw, dir })
    }

    fn write(&self, batch: &KvBatch, sync: bool) -> Result<(), KvError> {
        let mut ops = Vec::with_capacity(batch.ops.len());
        for op in &batch.ops {
            let (op, key, value): (u32, &[u8], &[u8]) = match op {
                KvOp::Put(key, value) => (0, key, value),
                KvOp::Delete(key) => (1, key, b""),
                KvOp::DeleteRange(start, end) if is_empty_range(start, end) => continue,
                KvOp::DeleteRange(start, end) => (2, start, end),
            };
            let key_len = u32::try_from(key.len())
                .map_err(|_| KvError::Storage("a key of 4 GiB or more".into()))?;
            let value_len = value.len() as u64;
            ops.push(RawOp { op, key_len, value_len, key: key.as_ptr(), value: value.as_ptr() });
        }
        let mut error = null_mut();
        // SAFETY: the operations point into the batch, which lives through the call.
        let outcome = unsafe {
            loligo_kv_write(self.raw.as_ptr(), ops.as_ptr(), ops.len(), sync.into(), &raw mut error)
        };
        told(outcome, error)
    }
}

impl Drop for NativeKv {
    fn drop(&mut self) {
        // SAFETY: the only reference, so no call is under way and none will come.
        unsafe { loligo_kv_close(self.raw.as_ptr()) }
    }
}

/// A LevelDB that nobody has open, and nobody opens.
struct LevelLock(NonNull<RawLock>);

impl LevelLock {
    fn take(path: &CStr) -> Result<LevelLock, KvError> {
        let (mut lock, mut error) = (null_mut(), null_mut());
        // SAFETY: the string and the places live through the call.
        let outcome = unsafe { loligo_level_lock(path.as_ptr(), &raw mut lock, &raw mut error) };
        told(outcome, error)?;
        NonNull::new(lock).map(LevelLock).ok_or_else(|| KvError::Storage("no lock".into()))
    }
}

impl Drop for LevelLock {
    fn drop(&mut self) {
        // SAFETY: taken above, and given back once.
        unsafe { loligo_level_unlock(self.0.as_ptr()) }
    }
}

/// Commas outside of braces as semicolons.
fn separated(options: &str) -> String {
    let mut depth = 0_u32;
    let change = |c: char| match c {
        '{' => {
            depth += 1;
            c
        }
        '}' => {
            depth = depth.saturating_sub(1);
            c
        }
        ',' if depth == 0 => ';',
        _ => c,
    };
    options.chars().map(change).collect()
}

/// An outcome as `engine.h` numbers them, and its text.
fn told(outcome: c_int, error: *mut c_char) -> Result<(), KvError> {
    let mut text = String::new();
    if !error.is_null() {
        // SAFETY: C++ gave a C string of its own, to be freed here.
        unsafe {
            text = CStr::from_ptr(error).to_string_lossy().into_owned();
            loligo_kv_free_error(error);
        }
    }
    match outcome {
        0 => Ok(()),
        2 => Err(KvError::Corrupt(text)),
        3 => Err(KvError::NoSpace(text)),
        _ => Err(KvError::Storage(text)),
    }
}

/// A slice of C++'s, perhaps without a pointer.
///
/// # Safety
/// `len` bytes at `data` must be readable for `'a`.
unsafe fn slice<'a>(data: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the caller.
    unsafe { std::slice::from_raw_parts(data, len) }
}

/// Calls the [`Visit`] that `context` points to.
unsafe extern "C" fn visit_raw(
    context: *mut c_void,
    key: *const u8,
    key_len: usize,
    value: *const u8,
    value_len: usize,
) -> c_int {
    // SAFETY: `context` is what `get` and `scan` below passed, alive until their call returns;
    // the slices are the library's for the time of this call.
    let (visit, key, value) = unsafe {
        let visit = &mut *context.cast::<Visit<'_>>();
        (visit, slice(key, key_len), slice(value, value_len))
    };
    visit(key, value).into()
}

impl Kv for NativeKv {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>, KvError> {
        let (mut found, mut error) = (None, null_mut());
        let mut take = |_: &[u8], value: &[u8]| {
            found = Some(Bytes::copy_from_slice(value));
            true
        };
        let mut visit: Visit<'_> = &mut take;
        // SAFETY: key, visitor and place live through the call.
        let outcome = unsafe {
            loligo_kv_get(
                self.raw.as_ptr(),
                key.as_ptr(),
                key.len(),
                visit_raw,
                (&raw mut visit).cast(),
                &raw mut error,
            )
        };
        told(outcome, error)?;
        Ok(found)
    }

    fn scan(
        &self,
        start: &[u8],
        end: &[u8],
        direction: Direction,
        mut visit: Visit<'_>,
    ) -> Result<(), KvError> {
        if is_empty_range(start, end) {
            return Ok(());
        }
        let mut error = null_mut();
        // SAFETY: bounds, visitor and place live through the call.
        let outcome = unsafe {
            loligo_kv_scan(
                self.raw.as_ptr(),
                start.as_ptr(),
                start.len(),
                end.as_ptr(),
                end.len(),
                (direction == Direction::Backwards).into(),
                visit_raw,
                (&raw mut visit).cast(),
                &raw mut error,
            )
        };
        told(outcome, error)
    }

    fn commit(&self, batch: KvBatch) -> Result<(), KvError> {
        self.write(&batch, true)
    }

    fn commit_later(&self, batch: KvBatch) -> Result<(), KvError> {
        self.write(&batch, false)
    }

    fn stored_bytes(&self) -> Result<u64, KvError> {
        let Some(dir) = &self.dir else { return Ok(0) };
        let failed = |e: std::io::Error| KvError::Storage(e.to_string());
        let mut total = 0;
        for entry in std::fs::read_dir(dir).map_err(failed)? {
            // A file may go between being listed and being asked.
            if let Ok(metadata) = entry.map_err(failed)?.metadata() {
                total += metadata.len();
            }
        }
        Ok(total)
    }

    fn range_bytes(&self, start: &[u8], end: &[u8]) -> Result<u64, KvError> {
        if is_empty_range(start, end) {
            return Ok(0);
        }
        let (mut bytes, mut error) = (0, null_mut());
        // SAFETY: bounds and places live through the call.
        let outcome = unsafe {
            loligo_kv_range_bytes(
                self.raw.as_ptr(),
                start.as_ptr(),
                start.len(),
                end.as_ptr(),
                end.len(),
                &raw mut bytes,
                &raw mut error,
            )
        };
        told(outcome, error)?;
        Ok(bytes)
    }

    fn file_system_free(&self) -> Result<Option<u64>, KvError> {
        let Some(dir) = &self.dir else { return Ok(None) };
        let failed = |e: std::io::Error| KvError::Storage(e.to_string());
        let path = CString::new(dir.as_os_str().as_bytes())
            .map_err(|_| KvError::Storage("a zero byte in a path".into()))?;
        // SAFETY: all zeros is a value of this plain struct.
        let mut stat: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: the path and the place live through the call.
        if unsafe { libc::statvfs(path.as_ptr(), &raw mut stat) } != 0 {
            return Err(failed(std::io::Error::last_os_error()));
        }
        Ok(Some(stat.f_bavail * stat.f_frsize))
    }

    fn reclaim(&self) {
        // SAFETY: the database is open as long as `self` is.
        unsafe { loligo_kv_reclaim(self.raw.as_ptr()) }
    }

    fn compact(&self) -> Result<(), KvError> {
        let mut error = null_mut();
        // SAFETY: the place lives through the call.
        let outcome = unsafe { loligo_kv_compact(self.raw.as_ptr(), &raw mut error) };
        told(outcome, error)
    }

    fn written(&self) -> KvWritten {
        let mut of = [0; COUNTERS];
        // SAFETY: the array is as long as `loligo::Counter`'s.
        unsafe { loligo_kv_counters(self.raw.as_ptr(), of.as_mut_ptr()) };
        let [wal, flush, compaction, manifest, other, read, syncs] = of;
        KvWritten { wal, flush, compaction, manifest, other, read, syncs }
    }
}
