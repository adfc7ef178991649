//! RocksDB's side of BlueFS: the functions that `kv/native/bluefs.cc` calls.
//!
//! C++ holds three kinds of pointers, each a box of ours that it gives back exactly once: the file
//! system, writers, readers. Calls come from RocksDB's threads; no panic goes back across
//! ([`guarded`]): it would be a failed device.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

use device::WriteCause;

use super::file::{Reader, Writer};
use super::{BlueFs, FsError};
use crate::kv::{Engine, FileSystem, KvError, NativeKv, RocksDbOptions};

/// How a database is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Mode {
    /// It is made if there is none.
    Create,
    /// It must be there.
    Open,
    /// It must be there, and nothing is written.
    Look,
}

/// Where the database is in the file system; Ceph's name.
const DB_PATH: &str = "db";

/// Opens the RocksDB that is in a BlueFS.
pub(in super::super) fn open_rocksdb(
    fs: &Arc<BlueFs>,
    options: &RocksDbOptions,
    mode: Mode,
) -> Result<NativeKv, KvError> {
    let raw = Box::into_raw(Box::new(fs.clone()));
    // SAFETY: `CALLS` is laid out as the other side's `Calls`; `raw` is a box of the type that the
    // functions in it expect, and C++ drops it once, by `drop_fs`.
    let shared = unsafe { loligo_bluefs_new(raw.cast(), (&raw const CALLS).cast()) };
    let Some(shared) = NonNull::new(shared) else {
        return Err(KvError::Storage("no file system".into()));
    };
    let options = RocksDbOptions {
        // SAFETY: it was made above and is deleted below, after the opening.
        file_system: Some(unsafe { FileSystem::from_raw(shared) }),
        ..options.clone()
    };
    let path = Path::new(DB_PATH);
    let opened = match mode {
        Mode::Look => NativeKv::look(path, options),
        mode => NativeKv::open(path, &Engine::RocksDb(options), mode == Mode::Create),
    };
    // SAFETY: it is ours since `loligo_bluefs_new`, and nobody has it after this; an open database
    // has a copy.
    unsafe { loligo_bluefs_delete(shared.as_ptr()) };
    opened
}

unsafe extern "C" {
    fn loligo_bluefs_new(fs: *mut c_void, calls: *const c_void) -> *mut c_void;
    fn loligo_bluefs_delete(shared_ptr: *mut c_void);
}

type Path8 = *const u8;
type AddName = unsafe extern "C" fn(*mut c_void, *const c_char, usize);

/// `loligo::Calls`, in its order.
#[repr(C)]
struct Calls {
    drop: unsafe extern "C" fn(*mut c_void),
    create: unsafe extern "C" fn(*mut c_void, Path8, usize, c_int, *mut *mut c_void) -> c_int,
    append: unsafe extern "C" fn(*mut c_void, *const u8, usize) -> c_int,
    sync: unsafe extern "C" fn(*mut c_void) -> c_int,
    written: unsafe extern "C" fn(*mut c_void) -> u64,
    drop_writer: unsafe extern "C" fn(*mut c_void),
    open: unsafe extern "C" fn(*mut c_void, Path8, usize, *mut *mut c_void) -> c_int,
    read: unsafe extern "C" fn(*mut c_void, u64, usize, *mut u8, *mut usize) -> c_int,
    drop_reader: unsafe extern "C" fn(*mut c_void),
    kind: unsafe extern "C" fn(*mut c_void, Path8, usize) -> c_int,
    size: unsafe extern "C" fn(*mut c_void, Path8, usize, *mut u64) -> c_int,
    children: unsafe extern "C" fn(*mut c_void, Path8, usize, AddName, *mut c_void) -> c_int,
    make_dir: unsafe extern "C" fn(*mut c_void, Path8, usize) -> c_int,
    remove_dir: unsafe extern "C" fn(*mut c_void, Path8, usize) -> c_int,
    remove: unsafe extern "C" fn(*mut c_void, Path8, usize) -> c_int,
    rename: unsafe extern "C" fn(*mut c_void, Path8, usize, Path8, usize) -> c_int,
    sync_names: unsafe extern "C" fn(*mut c_void) -> c_int,
    lock: unsafe extern "C" fn(*mut c_void, Path8, usize) -> c_int,
    unlock: unsafe extern "C" fn(*mut c_void, Path8, usize),
    free_len: unsafe extern "C" fn(*mut c_void) -> u64,
}

static CALLS: Calls = Calls {
    drop: drop_fs,
    create,
    append,
    sync,
    written,
    drop_writer,
    open,
    read,
    drop_reader,
    kind,
    size,
    children,
    make_dir,
    remove_dir,
    remove,
    rename,
    sync_names,
    lock,
    unlock,
    free_len,
};

const DONE: c_int = 0;
const BROKEN: c_int = 3;

/// `loligo::Answer`.
fn answer(result: Result<(), FsError>) -> c_int {
    match result {
        Ok(()) => DONE,
        Err(FsError::NotFound) => 1,
        Err(FsError::NoSpace) => 2,
        Err(e @ FsError::Device(_)) => {
            tracing::error!(error = %e, "bluefs");
            BROKEN
        }
        Err(FsError::Exists) => 4,
        Err(e @ FsError::Corrupt(_)) => {
            tracing::error!(error = %e, "bluefs");
            5
        }
    }
}

/// What `call` returns, or `else_` if it panics.
fn guarded<T>(else_: T, call: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(else_)
}

fn done(call: impl FnOnce() -> Result<(), FsError>) -> c_int {
    guarded(BROKEN, || answer(call()))
}

/// The file system of a pointer that C++ has.
///
/// # Safety
/// It must be one that [`open_rocksdb`] gave, and not yet dropped.
unsafe fn fs_of<'a>(fs: *mut c_void) -> &'a Arc<BlueFs> {
    // SAFETY: by the caller; it is only ever shared.
    unsafe { &*fs.cast::<Arc<BlueFs>>() }
}

/// A path's bytes.
///
/// # Safety
/// `len` bytes at `path` must be readable for `'a`.
unsafe fn bytes_of<'a>(path: *const u8, len: usize) -> &'a [u8] {
    if len == 0 {
        return &[];
    }
    // SAFETY: by the caller.
    unsafe { std::slice::from_raw_parts(path, len) }
}

unsafe extern "C" fn drop_fs(fs: *mut c_void) {
    // SAFETY: C++ gives back the box of `open_rocksdb`, once, when nothing uses it any more.
    let fs = unsafe { Box::from_raw(fs.cast::<Arc<BlueFs>>()) };
    guarded((), || drop(fs));
}

/// `loligo::Counter` as what the device is told, and whether the file is a write-ahead log.
fn cause_of(counter: c_int) -> (WriteCause, bool) {
    match counter {
        0 => (WriteCause::DatabaseLog, true),
        1 => (WriteCause::DatabaseFlush, false),
        2 => (WriteCause::DatabaseCompaction, false),
        3 => (WriteCause::DatabaseManifest, false),
        _ => (WriteCause::DatabaseOther, false),
    }
}

unsafe extern "C" fn create(
    fs: *mut c_void,
    path: *const u8,
    len: usize,
    counter: c_int,
    out: *mut *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: the file system's pointer and a path of C++'s, for this call.
        let (fs, path) = unsafe { (fs_of(fs), bytes_of(path, len)) };
        let (cause, framed) = cause_of(counter);
        let writer = Box::new(fs.create(path, framed, cause)?);
        // SAFETY: `out` is a place of the caller's; it gives the box back by `drop_writer`.
        unsafe { *out = Box::into_raw(writer).cast() };
        Ok(())
    })
}

unsafe extern "C" fn append(writer: *mut c_void, data: *const u8, len: usize) -> c_int {
    done(|| {
        // SAFETY: a box of `create`'s that has not been given back, only ever shared; the bytes are
        // the caller's for this call.
        let (writer, data) = unsafe { (&*writer.cast::<Writer>(), bytes_of(data, len)) };
        writer.append(data)
    })
}

unsafe extern "C" fn sync(writer: *mut c_void) -> c_int {
    // SAFETY: as in `append`.
    done(|| unsafe { &*writer.cast::<Writer>() }.sync())
}

unsafe extern "C" fn written(writer: *mut c_void) -> u64 {
    // SAFETY: as in `append`.
    guarded(0, || unsafe { &*writer.cast::<Writer>() }.size())
}

unsafe extern "C" fn drop_writer(writer: *mut c_void) {
    // SAFETY: C++ gives back a box of `create`'s, once.
    let writer = unsafe { Box::from_raw(writer.cast::<Writer>()) };
    guarded((), || drop(writer));
}

unsafe extern "C" fn open(
    fs: *mut c_void,
    path: *const u8,
    len: usize,
    out: *mut *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: the file system's pointer and a path of C++'s, for this call.
        let (fs, path) = unsafe { (fs_of(fs), bytes_of(path, len)) };
        let reader = Box::new(fs.open(path)?);
        // SAFETY: `out` is a place of the caller's; it gives the box back by `drop_reader`.
        unsafe { *out = Box::into_raw(reader).cast() };
        Ok(())
    })
}

unsafe extern "C" fn read(
    reader: *mut c_void,
    offset: u64,
    len: usize,
    out: *mut u8,
    count: *mut usize,
) -> c_int {
    done(|| {
        // SAFETY: a box of `open`'s that has not been given back, only ever shared.
        let reader = unsafe { &*reader.cast::<Reader>() };
        let mut none = [];
        let out = match len {
            0 => &mut none[..],
            // SAFETY: RocksDB's scratch has `len` bytes, which are this call's alone. They may be
            // uninitialised: all that are told to be there are written before they are read.
            len => unsafe {
                out.write_bytes(0, len);
                std::slice::from_raw_parts_mut(out, len)
            },
        };
        let done = reader.read(offset, out)?;
        // SAFETY: a place of the caller's.
        unsafe { *count = done };
        Ok(())
    })
}

unsafe extern "C" fn drop_reader(reader: *mut c_void) {
    // SAFETY: C++ gives back a box of `open`'s, once.
    let reader = unsafe { Box::from_raw(reader.cast::<Reader>()) };
    guarded((), || drop(reader));
}

unsafe extern "C" fn kind(fs: *mut c_void, path: *const u8, len: usize) -> c_int {
    guarded(0, || {
        // SAFETY: the file system's pointer and a path of C++'s, for this call.
        let (fs, path) = unsafe { (fs_of(fs), bytes_of(path, len)) };
        match (fs.is_file(path), fs.is_dir(path)) {
            (true, _) => 1,
            (_, true) => 2,
            _ => 0,
        }
    })
}

unsafe extern "C" fn size(fs: *mut c_void, path: *const u8, len: usize, out: *mut u64) -> c_int {
    done(|| {
        // SAFETY: the file system's pointer and a path of C++'s, for this call.
        let (fs, path) = unsafe { (fs_of(fs), bytes_of(path, len)) };
        let size = fs.size(path)?;
        // SAFETY: a place of the caller's.
        unsafe { *out = size };
        Ok(())
    })
}

unsafe extern "C" fn children(
    fs: *mut c_void,
    path: *const u8,
    len: usize,
    name: AddName,
    context: *mut c_void,
) -> c_int {
    done(|| {
        // SAFETY: the file system's pointer and a path of C++'s, for this call.
        let (fs, path) = unsafe { (fs_of(fs), bytes_of(path, len)) };
        for child in fs.children(path)? {
            // SAFETY: the function and its context are the caller's; it copies the name.
            unsafe { name(context, child.as_ptr().cast(), child.len()) };
        }
        Ok(())
    })
}

unsafe extern "C" fn make_dir(fs: *mut c_void, path: *const u8, len: usize) -> c_int {
    // SAFETY: the file system's pointer and a path of C++'s, for this call.
    done(|| unsafe { fs_of(fs).make_dir(bytes_of(path, len)) })
}

unsafe extern "C" fn remove_dir(fs: *mut c_void, path: *const u8, len: usize) -> c_int {
    // SAFETY: the file system's pointer and a path of C++'s, for this call.
    done(|| unsafe { fs_of(fs).remove_dir(bytes_of(path, len)) })
}

unsafe extern "C" fn remove(fs: *mut c_void, path: *const u8, len: usize) -> c_int {
    // SAFETY: the file system's pointer and a path of C++'s, for this call.
    done(|| unsafe { fs_of(fs).remove(bytes_of(path, len)) })
}

unsafe extern "C" fn rename(
    fs: *mut c_void,
    from: *const u8,
    from_len: usize,
    to: *const u8,
    to_len: usize,
) -> c_int {
    done(|| {
        // SAFETY: the file system's pointer and two paths of C++'s, for this call.
        let (fs, from, to) = unsafe { (fs_of(fs), bytes_of(from, from_len), bytes_of(to, to_len)) };
        fs.rename(from, to)
    })
}

unsafe extern "C" fn sync_names(fs: *mut c_void) -> c_int {
    // SAFETY: the file system's pointer.
    done(|| unsafe { fs_of(fs) }.sync_names())
}

unsafe extern "C" fn lock(fs: *mut c_void, path: *const u8, len: usize) -> c_int {
    // SAFETY: the file system's pointer and a path of C++'s, for this call.
    done(|| unsafe { fs_of(fs).lock(bytes_of(path, len)) })
}

unsafe extern "C" fn unlock(fs: *mut c_void, path: *const u8, len: usize) {
    // SAFETY: the file system's pointer and a path of C++'s, for this call.
    guarded((), || unsafe { fs_of(fs).unlock(bytes_of(path, len)) });
}

unsafe extern "C" fn free_len(fs: *mut c_void) -> u64 {
    // SAFETY: the file system's pointer.
    guarded(0, || unsafe { fs_of(fs) }.free_len())
}
