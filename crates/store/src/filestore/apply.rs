//! What each operation does to files and keys, and how it can be done again.
//!
//! After a crash the journal is applied from the last sync on, over files that may hold any part of
//! what follows. Operations on one object alone can be done again in order: the end is the same. Those
//! that read another object (clones) or move it (renames, splits) cannot, since that other object may
//! already be as it was later. So they leave a *guard* on what they made: the place in the journal up
//! to which the object is durable, written after the object itself is. While the journal is
//! replayed, an operation at or before an object's guard is left out (the way of Ceph's FileStore,
//! `_set_replay_guard` in `src/os/filestore/FileStore.cc` at v16.2).

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use types::hobject::GhObject;

use super::files::{
    ENTRY_KEY_AT, Files, bits_key, collection_value, entry_key, guarded_key, keys_of, locked,
};
use super::index::Tree;
use super::names::file_name;
use super::xattr::{self, GUARD};
use crate::check::split_moves;
use crate::kv::storage;
use crate::kv::{Direction, KvBatch};
use crate::{CollId, Op, StoreError, Transaction};

/// A place in the journal: an entry and an operation in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) seq: u64,
    pub(super) op: u32,
}

impl Place {
    /// As it is stored.
    pub(super) fn to_bytes(self) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&self.seq.to_le_bytes());
        bytes[8..].copy_from_slice(&self.op.to_le_bytes());
        bytes
    }

    pub(super) fn parse(bytes: &[u8]) -> Option<Place> {
        let (seq, op) = bytes.split_at_checked(8)?;
        let seq = u64::from_le_bytes(seq.try_into().ok()?);
        Some(Place { seq, op: u32::from_le_bytes(op.try_into().ok()?) })
    }
}

/// Where an object is and where it goes.
type Move<'a> = ((&'a CollId, &'a GhObject), (&'a CollId, &'a GhObject));

/// Applies a transaction, or does it again.
pub(super) fn apply(
    files: &Files,
    t: &Transaction,
    seq: u64,
    replaying: bool,
) -> Result<(), StoreError> {
    for (n, op) in t.ops().iter().enumerate() {
        let place = Place { seq, op: n as u32 };
        let done = Step { files, t, place, replaying }.step(op);
        match done {
            // What is not there (any more) is removed or moved further on.
            Err(StoreError::NoObject | StoreError::NoCollection(_)) if replaying => {}
            done => done?,
        }
    }
    Ok(())
}

/// Applies operations until a test's count of them is used up; there the process "dies".
#[cfg(test)]
pub(super) fn apply_some(
    files: &Files,
    t: &Transaction,
    seq: u64,
    left: &std::sync::atomic::AtomicU64,
) -> Result<(), StoreError> {
    for (n, op) in t.ops().iter().enumerate() {
        if left.load(Ordering::Relaxed) == 0 {
            return Err(StoreError::Latched);
        }
        left.fetch_sub(1, Ordering::Relaxed);
        let place = Place { seq, op: n as u32 };
        Step { files, t, place, replaying: false }.step(op)?;
    }
    Ok(())
}

struct Step<'a> {
    files: &'a Files,
    t: &'a Transaction,
    place: Place,
    replaying: bool,
}

impl Step<'_> {
    fn cid(&self, index: u32) -> CollId {
        self.t.collections()[index as usize]
    }

    fn oid(&self, index: u32) -> &GhObject {
        &self.t.objects()[index as usize]
    }

    fn guard(&self, file: &File) -> Result<Option<Place>, StoreError> {
        let Some(value) = xattr::get(file, GUARD)? else { return Ok(None) };
        Place::parse(&value).map(Some).ok_or(StoreError::Format("an object's guard"))
    }

    /// Whether a replay finds this operation done, and durable, on an object.
    fn is_done(&self, file: &File) -> Result<bool, StoreError> {
        Ok(self.replaying && self.guard(file)? >= Some(self.place))
    }

    fn put_guard(&self, file: &File) -> Result<(), StoreError> {
        let value = self.place.to_bytes();
        xattr::set(file, GUARD, &value)?;
        self.files.xattr.fetch_add((GUARD.len() + value.len()) as u64, Ordering::Relaxed);
        Ok(())
    }

    /// Makes an object durable as it is and says so.
    fn set_guard(&self, file: &File) -> Result<(), StoreError> {
        if self.files.by_snapshots {
            // A replay begins where nothing of this is there.
            return self.put_guard(file);
        }
        file.sync_all()?;
        self.files.sync_kv()?;
        self.put_guard(file)?;
        file.sync_all()?;
        self.files.syncs.fetch_add(2, Ordering::Relaxed);
        Ok(())
    }

    /// Changes an object that exists.
    fn change(
        &self,
        (cid, oid): (u32, u32),
        change: impl FnOnce(&File) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        match self.files.open(&self.cid(cid), self.oid(oid))? {
            Some(file) if !self.is_done(&file)? => change(&file),
            _ => Ok(()),
        }
    }

    /// Changes an object, which is made if there is none.
    fn make(
        &self,
        (cid, oid): (u32, u32),
        change: impl FnOnce(&File) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let file = self.files.create(&self.cid(cid), self.oid(oid))?;
        match self.is_done(&file)? {
            true => Ok(()),
            false => change(&file),
        }
    }

    /// Whether a replay finds a collection that was made after this operation: what this one was
    /// about is long gone.
    fn is_later(&self, cid: &CollId) -> bool {
        self.replaying && locked(&self.files.born).get(cid) > Some(&self.place)
    }

    /// Whether there is a collection to move things to.
    fn is_there(&self, cid: &CollId) -> bool {
        locked(&self.files.colls).contains_key(cid) && !self.is_later(cid)
    }

    fn step(&self, op: &Op) -> Result<(), StoreError> {
        let files = self.files;
        if self.replaying
            && let Some(cid) = op.collection()
            && self.is_later(&self.cid(cid))
        {
            // What it did to another collection it does.
            if let Op::SplitCollection { to_cid, bits, .. }
            | Op::MergeCollection { to_cid, bits, .. } = *op
            {
                return self.set_bits(&self.cid(to_cid), bits);
            }
            return Ok(());
        }
        match op {
            Op::Nop | Op::CollHint { .. } | Op::SetAllocHint { .. } => Ok(()),
            &Op::Touch { cid, oid } | &Op::Create { cid, oid } => self.make((cid, oid), |_| Ok(())),
            Op::Write { cid, oid, offset, data } => {
                self.make((*cid, *oid), |file| files.write(file, *offset, data))
            }
            &Op::Zero { cid, oid, offset, len } => {
                self.make((cid, oid), |file| files.zero(file, offset, len))
            }
            &Op::Truncate { cid, oid, size } => {
                self.change((cid, oid), |file| Ok(file.set_len(size)?))
            }
            &Op::Remove { cid, oid } => {
                let (cid, oid) = (self.cid(cid), self.oid(oid));
                match files.open(&cid, oid)? {
                    Some(file) if !self.is_done(&file)? => files.remove(&cid, oid),
                    _ => Ok(()),
                }
            }
            Op::SetAttr { cid, oid, name, value } => {
                self.change((*cid, *oid), |file| files.set_attr(file, name, value))
            }
            Op::SetAttrs { cid, oid, attrs } => self.change((*cid, *oid), |file| {
                attrs.iter().try_for_each(|(name, value)| files.set_attr(file, name, value))
            }),
            Op::RmAttr { cid, oid, name } => {
                self.change((*cid, *oid), |file| files.remove_attr(file, name))
            }
            &Op::RmAttrs { cid, oid } => self.change((cid, oid), |file| files.remove_attrs(file)),
            &Op::OmapClear { cid, oid } => {
                self.change((cid, oid), |file| files.clear(file, Some(b"-.")))
            }
            Op::OmapSetKeys { cid, oid, entries } => self.change((*cid, *oid), |file| {
                let id = files.give_id(file)?;
                let mut batch = KvBatch::new();
                for (key, value) in entries {
                    batch.put(entry_key(id, b'.', key), value.clone());
                }
                files.change(batch)
            }),
            Op::OmapRmKeys { cid, oid, keys } => self.change((*cid, *oid), |file| {
                let Some(id) = files.id(file)? else { return Ok(()) };
                let mut batch = KvBatch::new();
                for key in keys {
                    batch.delete(entry_key(id, b'.', key));
                }
                files.change(batch)
            }),
            Op::OmapRmKeyRange { cid, oid, first, last } => self.change((*cid, *oid), |file| {
                let Some(id) = files.id(file)?.filter(|_| first < last) else { return Ok(()) };
                let mut batch = KvBatch::new();
                batch.delete_range(entry_key(id, b'.', first), entry_key(id, b'.', last));
                files.change(batch)
            }),
            Op::OmapSetHeader { cid, oid, header } => self.change((*cid, *oid), |file| {
                let id = files.give_id(file)?;
                let mut batch = KvBatch::new();
                batch.put(entry_key(id, b'-', b""), header.clone());
                files.change(batch)
            }),
            &Op::Clone { cid, oid, to } => self.clone(&self.cid(cid), self.oid(oid), self.oid(to)),
            &Op::CloneRange { cid, oid, to, offset, len, to_offset } => {
                let cid = self.cid(cid);
                let from = files.existing(&cid, self.oid(oid))?;
                let target = files.create(&cid, self.oid(to))?;
                if self.is_done(&target)? {
                    return Ok(());
                }
                if oid == to {
                    files.copy_within(&target, offset, len, to_offset)?;
                } else {
                    files.copy(&from, &target, offset, len, to_offset)?;
                }
                self.set_guard(&target)
            }
            &Op::CollMoveRename { cid, oid, to_cid, to } => {
                let (from, target) = (self.cid(cid), self.cid(to_cid));
                self.rename((&from, self.oid(oid)), (&target, self.oid(to)))
            }
            &Op::TryRename { cid, oid, to } => {
                let cid = self.cid(cid);
                self.rename((&cid, self.oid(oid)), (&cid, self.oid(to)))
            }
            &Op::MkColl { cid, bits } => {
                let cid = self.cid(cid);
                if locked(&files.colls).contains_key(&cid) {
                    // A replay finds it.
                    return self.set_bits(&cid, bits);
                }
                locked(&files.born).insert(cid, self.place);
                self.set_bits(&cid, bits)?;
                files.sync_kv()?;
                {
                    let root = files.dir.join(cid.to_string());
                    let tree =
                        Tree::load(root, files.split_above, Default::default(), |_, _| Ok(()))?;
                    locked(&files.colls).insert(cid, Arc::new(Mutex::new(tree)));
                }
                Ok(())
            }
            &Op::CollSetBits { cid, bits } => self.set_bits(&self.cid(cid), bits),
            &Op::RmColl { cid } => self.remove_collection(&self.cid(cid)),
            &Op::SplitCollection { cid, bits, rem, to_cid } => {
                let (cid, to_cid) = (self.cid(cid), self.cid(to_cid));
                self.move_objects(&cid, &to_cid, |oid| split_moves(oid, bits, rem))?;
                self.set_bits(&cid, bits)?;
                self.set_bits(&to_cid, bits)
            }
            &Op::MergeCollection { cid, to_cid, bits } => {
                let (cid, to_cid) = (self.cid(cid), self.cid(to_cid));
                self.move_objects(&cid, &to_cid, |_| true)?;
                self.remove_collection(&cid)?;
                self.set_bits(&to_cid, bits)
            }
        }
    }

    fn set_bits(&self, cid: &CollId, bits: u32) -> Result<(), StoreError> {
        let born = locked(&self.files.born).get(cid).copied();
        let Some(born) = born.filter(|_| !self.is_later(cid)) else { return Ok(()) };
        let mut batch = KvBatch::new();
        batch.put(bits_key(cid), collection_value(bits, born));
        self.files.change(batch)
    }

    fn remove_collection(&self, cid: &CollId) -> Result<(), StoreError> {
        locked(&self.files.born).remove(cid);
        let tree = locked(&self.files.colls).remove(cid);
        if let Some(tree) = tree {
            // A replay may have left objects here that were removed later the first time.
            for oid in locked(&tree).objects()? {
                tracing::debug!(%oid, "goes with its collection");
            }
            std::fs::remove_dir_all(locked(&tree).root())?;
        }
        // The key goes when the folder has gone for good, and what has left it is elsewhere for good:
        // without a key nobody looks into a folder that comes back, and a collection of the same
        // name would begin with what is in it.
        if !self.files.by_snapshots {
            xattr::sync_file_system(&std::fs::File::open(&self.files.dir)?)?;
        }
        let mut batch = KvBatch::new();
        batch.delete(bits_key(cid));
        self.files.change(batch)
    }

    fn clone(&self, cid: &CollId, oid: &GhObject, to: &GhObject) -> Result<(), StoreError> {
        if oid == to {
            return Ok(());
        }
        let files = self.files;
        let from = files.existing(cid, oid)?;
        if let Some(old) = files.open(cid, to)? {
            if self.is_done(&old)? {
                return Ok(());
            }
            files.remove(cid, to)?;
        }
        let copy = files.create(cid, to)?;
        let size = from.metadata()?.len();
        copy.set_len(size)?;
        files.copy(&from, &copy, 0, size, 0)?;
        for (name, value) in files.attrs(&from)? {
            files.set_attr(&copy, &name, &value)?;
        }
        if let Some(id) = files.id(&from)? {
            let target = files.give_id(&copy)?;
            let mut batch = KvBatch::new();
            let (start, end) = keys_of(id);
            files
                .kv
                .scan(&start, &end, Direction::Forwards, &mut |key, value| {
                    let kind = key[ENTRY_KEY_AT - 1];
                    // Xattrs have been set above.
                    if kind != b'x' {
                        batch.put(entry_key(target, kind, &key[ENTRY_KEY_AT..]), value.to_vec());
                    }
                    true
                })
                .map_err(storage)?;
            files.change(batch)?;
        }
        self.set_guard(&copy)
    }

    fn rename(
        &self,
        (cid, oid): (&CollId, &GhObject),
        (to_cid, to): (&CollId, &GhObject),
    ) -> Result<(), StoreError> {
        if (cid, oid) == (to_cid, to) {
            return Ok(());
        }
        let Some(file) = self.files.open(cid, oid)? else { return Ok(()) };
        if self.moved_before(&file, (cid, oid), (to_cid, to))? {
            return Ok(());
        }
        if self.guard(&file)? != Some(self.place) {
            self.set_guard(&file)?;
        }
        self.move_files(&[((cid, oid), (to_cid, to))])
    }

    /// Whether a replay finds an object moved already; what the replay made in its old place goes.
    fn moved_before(
        &self,
        file: &File,
        (cid, oid): (&CollId, &GhObject),
        (to_cid, to): (&CollId, &GhObject),
    ) -> Result<bool, StoreError> {
        if !self.replaying {
            return Ok(false);
        }
        match self.guard(file)? {
            // Made here after the move.
            Some(guard) if guard > self.place => return Ok(true),
            // The crash came between guard and move.
            Some(guard) if guard == self.place && self.is_there(to_cid) => return Ok(false),
            _ => {}
        }
        if !self.is_there(to_cid) {
            // It went with the collection it was moved to.
            self.files.remove(cid, oid)?;
            return Ok(true);
        }
        match self.files.open(to_cid, to)? {
            Some(moved) if self.is_done(&moved)? => {
                self.files.remove(cid, oid)?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Renames objects' files. One that has a long name is its object's by a key only, and is removed
    /// at mount without: a new name's key is durable before the file system can make the rename so,
    /// an old name's goes after.
    fn move_files(&self, moves: &[Move<'_>]) -> Result<(), StoreError> {
        let files = self.files;
        let is_long = |oid: &GhObject| file_name(oid).is_none();
        for (_, (cid, oid)) in moves {
            files.remove(cid, oid)?;
            files.new_path(cid, oid)?;
        }
        if !files.by_snapshots && moves.iter().any(|(_, (_, to))| is_long(to)) {
            files.sync_kv()?;
        }
        let mut folders = BTreeSet::new();
        for ((cid, oid), (to_cid, to)) in moves {
            let from = files.path(cid, oid)?.ok_or(StoreError::NoObject)?;
            let path = files.new_path(to_cid, to)?;
            std::fs::rename(from, &path)?;
            if is_long(oid) && !files.by_snapshots {
                folders.extend(path.parent().map(Path::to_owned));
            }
            files.noted(cid, oid, false)?;
            files.noted(to_cid, to, true)?;
        }
        for folder in &folders {
            File::open(folder)?.sync_all()?;
            files.syncs.fetch_add(1, Ordering::Relaxed);
        }
        moves.iter().try_for_each(|((cid, oid), _)| files.forget_id(cid, oid))
    }

    /// Moves objects to another collection, with two syncs for all of them.
    fn move_objects(
        &self,
        from: &CollId,
        to: &CollId,
        moves: impl Fn(&GhObject) -> bool,
    ) -> Result<(), StoreError> {
        let files = self.files;
        let tree = locked(&files.colls).get(from).cloned();
        let Some(tree) = tree else { return Ok(()) };
        let objects = locked(&tree).objects()?;
        let root = File::open(&files.dir)?;
        let sync = || -> Result<(), StoreError> {
            files.sync_kv()?;
            files.syncs.fetch_add(1, Ordering::Relaxed);
            Ok(xattr::sync_file_system(&root)?)
        };
        // Once all that is to be moved has its guard, a replay moves nothing else: there may be
        // objects that came later.
        let guarded = files.kv.get(&guarded_key(from)).map_err(storage)?;
        let guarded = guarded.and_then(|value| Place::parse(&value)) >= Some(self.place);
        let mut moved = Vec::new();
        for oid in objects.into_iter().filter(moves) {
            let Some(file) = files.open(from, &oid)? else { continue };
            if self.replaying && guarded {
                match self.guard(&file)? {
                    Some(guard) if guard == self.place => {}
                    Some(guard) if guard > self.place => continue,
                    // The replay made it, or later operations did and will again.
                    _ => {
                        files.remove(from, &oid)?;
                        continue;
                    }
                }
            }
            if !self.moved_before(&file, (from, &oid), (to, &oid))? {
                moved.push(oid);
            }
        }
        if !guarded {
            sync()?;
            for oid in &moved {
                if let Some(file) = files.open(from, oid)? {
                    self.put_guard(&file)?;
                }
            }
            sync()?;
            let mut batch = KvBatch::new();
            batch.put(guarded_key(from), self.place.to_bytes().to_vec());
            files.change(batch)?;
            files.sync_kv()?;
        }
        let moves: Vec<Move<'_>> = moved.iter().map(|oid| ((from, oid), (to, oid))).collect();
        self.move_files(&moves)
    }
}
