//! Where an object's file is: a collection's tree of folders, split by the hash.
//!
//! As in Ceph's HashIndex (`src/os/filestore/HashIndex.cc` at v16.2) a folder `DIR_B` holds what has
//! the nibble B of the hash, from the least on; an object is in the deepest folder of its hash that
//! there is. A folder that gets more files than the threshold is split by the next nibble.
//! Which folders there are, and how many files each has, is in memory, found at mount.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use types::hobject::GhObject;

use super::names::{Named, file_name, long_file_name, parse};

/// Nibbles of a hash.
const DEPTH_MAX: usize = 8;

/// A collection's folders.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
    /// Files in each folder, by the nibbles that lead to it.
    dirs: BTreeMap<Vec<u8>, usize>,
    /// Ids of objects whose names are too long for files.
    pub(super) long: BTreeMap<GhObject, u64>,
    /// A folder with more files is split.
    split_above: usize,
}

fn nibble(hash: u32, depth: usize) -> u8 {
    (hash >> (4 * depth) & 0xf) as u8
}

impl Tree {
    /// Finds the folders of a collection and its objects; makes the root if there is none. Files in
    /// folders above where they belong (a split that was cut off) are moved down.
    pub(super) fn load(
        root: PathBuf,
        split_above: usize,
        long: BTreeMap<GhObject, u64>,
        mut found: impl FnMut(&GhObject, &Path) -> io::Result<()>,
    ) -> io::Result<Tree> {
        fs::create_dir_all(&root)?;
        let mut tree = Tree { root, dirs: BTreeMap::from([(Vec::new(), 0)]), long, split_above };
        let by_id: BTreeMap<u64, GhObject> =
            tree.long.iter().map(|(oid, id)| (*id, oid.clone())).collect();
        let mut files = Vec::new();
        let mut todo = vec![Vec::new()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(tree.dir_path(&dir))? {
                let name = entry?.file_name().into_vec();
                if let Some(digit) = name.strip_prefix(b"DIR_") {
                    let digit = std::str::from_utf8(digit).ok();
                    if let Some(digit) = digit.and_then(|d| u8::from_str_radix(d, 16).ok()) {
                        let mut below = dir.clone();
                        below.push(digit);
                        tree.dirs.insert(below.clone(), 0);
                        todo.push(below);
                    }
                } else {
                    files.push((dir.clone(), name));
                }
            }
        }
        for (dir, name) in files {
            let at = tree.dir_path(&dir).join(OsStr::from_bytes(&name));
            let oid = match parse(&name) {
                Some(Named::Object(oid)) => oid,
                Some(Named::Long(id)) if by_id.contains_key(&id) => by_id[&id].clone(),
                // Its key was lost with the last seconds: the journal makes both again.
                Some(Named::Long(_)) => {
                    fs::remove_file(at)?;
                    continue;
                }
                // Not ours.
                None => continue,
            };
            let home = tree.dir_of(oid.hobj.hash);
            let path = tree.dir_path(&home).join(OsStr::from_bytes(&name));
            if home != dir {
                fs::rename(&at, &path)?;
            }
            *tree.dirs.entry(home).or_default() += 1;
            found(&oid, &path)?;
        }
        Ok(tree)
    }

    /// The collection's folder.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn dir_path(&self, dir: &[u8]) -> PathBuf {
        let mut path = self.root.clone();
        dir.iter().for_each(|digit| path.push(format!("DIR_{digit:X}")));
        path
    }

    /// The deepest folder for a hash.
    fn dir_of(&self, hash: u32) -> Vec<u8> {
        let mut dir = Vec::new();
        while dir.len() < DEPTH_MAX {
            dir.push(nibble(hash, dir.len()));
            if !self.dirs.contains_key(&dir) {
                dir.pop();
                break;
            }
        }
        dir
    }

    /// Where an object's file is or would be; `None` if its name is too long and it has no id.
    pub(super) fn path(&self, oid: &GhObject) -> Option<PathBuf> {
        let name = match file_name(oid) {
            Some(name) => name,
            None => long_file_name(oid, *self.long.get(oid)?),
        };
        let dir = self.dir_path(&self.dir_of(oid.hobj.hash));
        Some(dir.join(OsStr::from_bytes(&name)))
    }

    /// Notes a new file; splits its folder if that has become too full. Returns whether it did.
    pub(super) fn added(&mut self, hash: u32) -> io::Result<bool> {
        let dir = self.dir_of(hash);
        let count = self.dirs.entry(dir.clone()).or_default();
        *count += 1;
        if *count <= self.split_above || dir.len() >= DEPTH_MAX {
            return Ok(false);
        }
        self.split(&dir)?;
        Ok(true)
    }

    /// Notes that a file is gone.
    pub(super) fn removed(&mut self, hash: u32) {
        let dir = self.dir_of(hash);
        let count = self.dirs.entry(dir).or_default();
        *count = count.saturating_sub(1);
    }

    fn split(&mut self, dir: &[u8]) -> io::Result<()> {
        let from = self.dir_path(dir);
        let hashes: BTreeMap<u64, u32> =
            self.long.iter().map(|(oid, id)| (*id, oid.hobj.hash)).collect();
        let mut left = 0;
        for entry in fs::read_dir(&from)? {
            let name = entry?.file_name();
            let hash = match parse(name.as_bytes()) {
                Some(Named::Object(oid)) => oid.hobj.hash,
                Some(Named::Long(id)) if hashes.contains_key(&id) => hashes[&id],
                _ => continue,
            };
            let mut below = dir.to_vec();
            below.push(nibble(hash, dir.len()));
            let to = self.dir_path(&below);
            if !self.dirs.contains_key(&below) {
                match fs::create_dir(&to) {
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                    made => made?,
                }
                self.dirs.insert(below.clone(), 0);
            }
            match fs::rename(from.join(&name), to.join(&name)) {
                Ok(()) => *self.dirs.entry(below).or_default() += 1,
                // Gone meanwhile: a listing may show what was moved already.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) => {
                    left += 1;
                    tracing::error!(error = %e, ?name, "cannot move a file down");
                }
            }
        }
        self.dirs.insert(dir.to_vec(), left);
        if left == 0 { Ok(()) } else { Err(io::ErrorKind::Other.into()) }
    }

    /// The objects whose files there are, in no order.
    pub(super) fn objects(&self) -> io::Result<Vec<GhObject>> {
        let by_id: BTreeMap<u64, &GhObject> =
            self.long.iter().map(|(oid, id)| (*id, oid)).collect();
        let mut objects = Vec::new();
        for dir in self.dirs.keys() {
            for entry in fs::read_dir(self.dir_path(dir))? {
                match parse(entry?.file_name().as_bytes()) {
                    Some(Named::Object(oid)) => objects.push(oid),
                    Some(Named::Long(id)) => objects.extend(by_id.get(&id).map(|o| (*o).clone())),
                    None => {}
                }
            }
        }
        Ok(objects)
    }

    /// How many folders there are.
    #[cfg(test)]
    pub(super) fn folders(&self) -> usize {
        self.dirs.len()
    }
}
