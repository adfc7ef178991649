//! Objects as files with xattrs, and what does not fit there in the key-value store.
//!
//! ```text
//! C 00 collection[14]                   u32 bits of the hash that its objects share, place of its making
//! G 00 collection[14]                   place of the last split or merge whose objects all have guards
//! L 00 collection[14] object            u64 id of a file whose object's name is too long
//! M 00 u64 id '-'                       omap header
//! M 00 u64 id '.' key                   omap value
//! M 00 u64 id 'x' name                  an xattr that its file could not take
//! ```
//!
//! A place is a u64 entry of the journal and a u32 operation in it. An object gets an id (the xattr `user.loligo.id` of its file) with its first omap operation or
//! spilled xattr. Ids are never used twice. Writes of the key-value store are not synced here.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use types::hobject::GhObject;

use super::apply::Place;
use super::index::Tree;
use super::names::file_name;
use super::xattr::{self, ID, InlineXattrs};
use crate::kv::storage;
use crate::kv::{Direction, KvBatch, SharedKv};
use crate::object_key::{collection_key, put_object};
use crate::{CollId, StoreError};

/// Longest name of an xattr that a file takes, with our prefix.
const XATTR_NAME_MAX: usize = 200;

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The files and the key-value store.
pub(super) struct Files {
    /// `current`: one folder a collection.
    pub(super) dir: PathBuf,
    pub(super) kv: SharedKv,
    pub(super) inline: InlineXattrs,
    pub(super) split_above: usize,
    /// Commits are snapshots of all of it: nothing that is applied between two survives a crash.
    pub(super) by_snapshots: bool,
    /// A collection is changed by its lane only; the lock is for the compiler and for mounts.
    pub(super) colls: Mutex<BTreeMap<CollId, Arc<Mutex<Tree>>>>,
    /// Where in the journal each collection was made.
    pub(super) born: Mutex<BTreeMap<CollId, Place>>,
    pub(super) next_id: AtomicU64,
    /// Bytes written to files: what clients wrote, and copies for clones.
    pub(super) data: AtomicU64,
    pub(super) cloned: AtomicU64,
    /// Bytes of names and values given to the file system as attributes.
    pub(super) xattr: AtomicU64,
    pub(super) syncs: AtomicU64,
}

fn prefixed(prefix: u8, rest: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![prefix, 0];
    rest.iter().for_each(|part| key.extend_from_slice(part));
    key
}

/// A collection's value.
pub(super) fn collection_value(bits: u32, born: Place) -> Vec<u8> {
    [&bits.to_le_bytes()[..], &born.to_bytes()].concat()
}

pub(super) fn parse_collection(value: &[u8]) -> Option<(u32, Place)> {
    let (bits, born) = value.split_at_checked(4)?;
    Some((u32::from_le_bytes(bits.try_into().ok()?), Place::parse(born)?))
}

pub(super) fn guarded_key(cid: &CollId) -> Vec<u8> {
    prefixed(b'G', &[&collection_key(cid)])
}

pub(super) fn bits_key(cid: &CollId) -> Vec<u8> {
    prefixed(b'C', &[&collection_key(cid)])
}

pub(super) fn long_key(cid: &CollId, oid: &GhObject) -> Vec<u8> {
    let mut key = long_keys(cid);
    put_object(&mut key, oid);
    key
}

pub(super) fn long_keys(cid: &CollId) -> Vec<u8> {
    prefixed(b'L', &[&collection_key(cid)])
}

/// Where an entry's own key begins in [`entry_key`].
pub(super) const ENTRY_KEY_AT: usize = 2 + 8 + 1;

pub(super) fn entry_key(id: u64, kind: u8, key: &[u8]) -> Vec<u8> {
    prefixed(b'M', &[&id.to_be_bytes(), &[kind], key])
}

/// All keys of an id.
pub(super) fn keys_of(id: u64) -> (Vec<u8>, Vec<u8>) {
    let start = prefixed(b'M', &[&id.to_be_bytes()]);
    (start, prefixed(b'M', &[&(id + 1).to_be_bytes()]))
}

impl Files {
    fn tree(&self, cid: &CollId) -> Result<Arc<Mutex<Tree>>, StoreError> {
        let found = locked(&self.colls).get(cid).cloned();
        found.ok_or(StoreError::NoCollection(*cid))
    }

    pub(super) fn path(&self, cid: &CollId, oid: &GhObject) -> Result<Option<PathBuf>, StoreError> {
        Ok(locked(&*self.tree(cid)?).path(oid))
    }

    /// An object's file, if there is one.
    pub(super) fn open(&self, cid: &CollId, oid: &GhObject) -> Result<Option<File>, StoreError> {
        let Some(path) = self.path(cid, oid)? else { return Ok(None) };
        match OpenOptions::new().read(true).write(true).open(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            file => Ok(Some(file?)),
        }
    }

    /// An object's file, for a read.
    pub(super) fn existing(&self, cid: &CollId, oid: &GhObject) -> Result<File, StoreError> {
        self.open(cid, oid)?.ok_or(StoreError::NoObject)
    }

    /// An object's file, made if there is none.
    pub(super) fn create(&self, cid: &CollId, oid: &GhObject) -> Result<File, StoreError> {
        if let Some(file) = self.open(cid, oid)? {
            return Ok(file);
        }
        let path = self.new_path(cid, oid)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        locked(&*self.tree(cid)?).added(oid.hobj.hash)?;
        Ok(file)
    }

    /// Where to make an object's file.
    pub(super) fn new_path(&self, cid: &CollId, oid: &GhObject) -> Result<PathBuf, StoreError> {
        let tree = self.tree(cid)?;
        if let Some(path) = locked(&tree).path(oid) {
            return Ok(path);
        }
        let id = self.new_id();
        let mut batch = KvBatch::new();
        batch.put(long_key(cid, oid), id.to_be_bytes().to_vec());
        self.change(batch)?;
        let mut tree = locked(&tree);
        tree.long.insert(oid.clone(), id);
        tree.path(oid).ok_or(StoreError::Format("a name without a file"))
    }

    /// Notes that an object's file has come to or gone from its folder by a rename.
    pub(super) fn noted(&self, cid: &CollId, oid: &GhObject, is: bool) -> Result<(), StoreError> {
        let tree = self.tree(cid)?;
        let mut tree = locked(&tree);
        if is {
            tree.added(oid.hobj.hash)?;
            return Ok(());
        }
        tree.removed(oid.hobj.hash);
        tree.long.remove(oid);
        Ok(())
    }

    /// Deletes the key that says which file is an object's whose name is too long.
    pub(super) fn forget_id(&self, cid: &CollId, oid: &GhObject) -> Result<(), StoreError> {
        if file_name(oid).is_some() {
            return Ok(());
        }
        let mut batch = KvBatch::new();
        batch.delete(long_key(cid, oid));
        self.change(batch)
    }

    /// Removes an object with all it has.
    pub(super) fn remove(&self, cid: &CollId, oid: &GhObject) -> Result<(), StoreError> {
        let (Some(path), Some(file)) = (self.path(cid, oid)?, self.open(cid, oid)?) else {
            return Ok(());
        };
        self.clear(&file, None)?;
        std::fs::remove_file(path)?;
        self.noted(cid, oid, false)?;
        self.forget_id(cid, oid)
    }

    /// An id nobody has had.
    pub(super) fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn change(&self, batch: KvBatch) -> Result<(), StoreError> {
        self.kv.commit_later(batch).map_err(storage)
    }

    /// The id of a file's object, if it has one.
    pub(super) fn id(&self, file: &File) -> Result<Option<u64>, StoreError> {
        match xattr::get(file, ID)? {
            None => Ok(None),
            Some(value) => match <[u8; 8]>::try_from(&value[..]) {
                Ok(bytes) => Ok(Some(u64::from_le_bytes(bytes))),
                Err(_) => Err(StoreError::Format("an object's id")),
            },
        }
    }

    /// The id of a file's object, given if it has none.
    pub(super) fn give_id(&self, file: &File) -> Result<u64, StoreError> {
        if let Some(id) = self.id(file)? {
            return Ok(id);
        }
        let id = self.new_id();
        xattr::set(file, ID, &id.to_le_bytes())?;
        self.xattr.fetch_add((ID.len() + 8) as u64, Ordering::Relaxed);
        Ok(id)
    }

    /// Deletes what the key-value store has of an object: all, or one kind's entries.
    pub(super) fn clear(&self, file: &File, kinds: Option<&[u8]>) -> Result<(), StoreError> {
        let Some(id) = self.id(file)? else { return Ok(()) };
        let mut batch = KvBatch::new();
        match kinds {
            None => {
                let (start, end) = keys_of(id);
                batch.delete_range(start, end);
            }
            Some(kinds) => {
                for &kind in kinds {
                    batch.delete_range(entry_key(id, kind, b""), entry_key(id, kind + 1, b""));
                }
            }
        }
        self.change(batch)
    }

    pub(super) fn write(&self, file: &File, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        file.write_all_at(data, offset)?;
        self.data.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Makes a range zeros, growing the file if need be.
    pub(super) fn zero(&self, file: &File, offset: u64, len: u64) -> Result<(), StoreError> {
        if len == 0 {
            return Ok(());
        }
        let size = file.metadata()?.len();
        let inside = len.min(size.saturating_sub(offset));
        if inside > 0 && !xattr::punch(file, offset, inside)? {
            let zeros = vec![0; 1 << 20];
            let mut at = offset;
            while at < offset + inside {
                let n = (offset + inside - at).min(zeros.len() as u64);
                file.write_all_at(&zeros[..n as usize], at)?;
                at += n;
            }
        }
        if offset + len > size {
            file.set_len(offset + len)?;
        }
        Ok(())
    }

    /// Copies a range of one file into another; holes stay holes where the target has them.
    pub(super) fn copy(
        &self,
        from: &File,
        to: &File,
        offset: u64,
        len: u64,
        to_offset: u64,
    ) -> Result<(), StoreError> {
        let size = from.metadata()?.len();
        let end = offset.saturating_add(len).min(size);
        if offset >= end {
            return Ok(());
        }
        self.zero(to, to_offset, end - offset)?;
        let mut buf = vec![0; 1 << 20];
        for range in xattr::data_ranges(from, end)? {
            let mut at = range.start.max(offset);
            while at < range.end {
                let n = (range.end - at).min(buf.len() as u64) as usize;
                from.read_exact_at(&mut buf[..n], at)?;
                to.write_all_at(&buf[..n], at - offset + to_offset)?;
                self.cloned.fetch_add(n as u64, Ordering::Relaxed);
                at += n as u64;
            }
        }
        Ok(())
    }

    /// [`Files::copy`] within one file, whatever overlaps.
    pub(super) fn copy_within(
        &self,
        file: &File,
        offset: u64,
        len: u64,
        to_offset: u64,
    ) -> Result<(), StoreError> {
        let size = file.metadata()?.len();
        let mut data = vec![0; len.min(size.saturating_sub(offset)) as usize];
        file.read_exact_at(&mut data, offset)?;
        file.write_all_at(&data, to_offset)?;
        self.cloned.fetch_add(data.len() as u64, Ordering::Relaxed);
        Ok(())
    }

    fn inline_name(name: &[u8]) -> Vec<u8> {
        [xattr::PREFIX, name].concat()
    }

    fn fits_inline(&self, file: &File, name: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        if name.len() > XATTR_NAME_MAX || name.contains(&0) || value.len() > self.inline.len {
            return Ok(false);
        }
        let names = xattr::names(file)?;
        Ok(names.len() < self.inline.count || names.iter().any(|n| n == name))
    }

    /// Sets an xattr: on the file, or where that does not take it, in the key-value store.
    pub(super) fn set_attr(
        &self,
        file: &File,
        name: &[u8],
        value: &Bytes,
    ) -> Result<(), StoreError> {
        if self.fits_inline(file, name, value)? {
            match xattr::set(file, &Files::inline_name(name), value) {
                Ok(()) => {
                    self.xattr.fetch_add((name.len() + value.len()) as u64, Ordering::Relaxed);
                    return self.remove_spilled(file, name);
                }
                Err(e) => match e.raw_os_error() {
                    // More than this file system keeps in one inode.
                    Some(libc::ENOSPC | libc::E2BIG | libc::ERANGE) => {}
                    _ => return Err(e.into()),
                },
            }
        }
        let id = self.give_id(file)?;
        let mut batch = KvBatch::new();
        batch.put(entry_key(id, b'x', name), value.clone());
        self.change(batch)?;
        if name.len() <= XATTR_NAME_MAX && !name.contains(&0) {
            xattr::remove(file, &Files::inline_name(name))?;
        }
        Ok(())
    }

    fn remove_spilled(&self, file: &File, name: &[u8]) -> Result<(), StoreError> {
        let Some(id) = self.id(file)? else { return Ok(()) };
        let key = entry_key(id, b'x', name);
        if self.kv.get(&key).map_err(storage)?.is_none() {
            return Ok(());
        }
        let mut batch = KvBatch::new();
        batch.delete(key);
        self.change(batch)
    }

    pub(super) fn remove_attr(&self, file: &File, name: &[u8]) -> Result<(), StoreError> {
        if name.len() <= XATTR_NAME_MAX && !name.contains(&0) {
            xattr::remove(file, &Files::inline_name(name))?;
        }
        self.remove_spilled(file, name)
    }

    pub(super) fn remove_attrs(&self, file: &File) -> Result<(), StoreError> {
        for name in xattr::names(file)? {
            xattr::remove(file, &Files::inline_name(&name))?;
        }
        self.clear(file, Some(b"x"))
    }

    pub(super) fn attr(&self, file: &File, name: &[u8]) -> Result<Option<Bytes>, StoreError> {
        if name.len() <= XATTR_NAME_MAX
            && !name.contains(&0)
            && let Some(value) = xattr::get(file, &Files::inline_name(name))?
        {
            return Ok(Some(value.into()));
        }
        match self.id(file)? {
            Some(id) => self.kv.get(&entry_key(id, b'x', name)).map_err(storage),
            None => Ok(None),
        }
    }

    pub(super) fn attrs(&self, file: &File) -> Result<BTreeMap<Vec<u8>, Bytes>, StoreError> {
        let mut attrs = BTreeMap::new();
        if let Some(id) = self.id(file)? {
            let (start, end) = (entry_key(id, b'x', b""), entry_key(id, b'x' + 1, b""));
            self.kv
                .scan(&start, &end, Direction::Forwards, &mut |key, value| {
                    attrs.insert(key[ENTRY_KEY_AT..].to_vec(), Bytes::copy_from_slice(value));
                    true
                })
                .map_err(storage)?;
        }
        for name in xattr::names(file)? {
            if let Some(value) = xattr::get(file, &Files::inline_name(&name))? {
                attrs.insert(name, value.into());
            }
        }
        Ok(attrs)
    }

    /// Makes all that the key-value store was told durable.
    pub(super) fn sync_kv(&self) -> Result<(), StoreError> {
        self.kv.commit(KvBatch::new()).map_err(storage)
    }
}
