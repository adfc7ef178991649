//! A store in memory as a file: written when the store is closed, read when it is opened again
//! (docs/format-memstore.md). It is gone from the first change on, so that none is ever taken for newer than it is.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use denc::Denc;
use types::crc::crc32c;
use types::hobject::GhObject;

use super::State;
use super::object::Object;
use crate::check::check;
use crate::{CollId, StoreError, Transaction};

const MAGIC: &[u8; 16] = b"LOLIMEMSTORE 1\n\0";
/// About the most data and keys in one record.
const RECORD_LEN: u64 = 1 << 20;
/// More than any record has.
const RECORD_LEN_MAX: u32 = 1 << 30;
const DAMAGED: StoreError = StoreError::Format("what the memstore saved is damaged");

/// Where a store is saved.
#[derive(Debug)]
pub(super) struct Saved {
    path: PathBuf,
    /// Whether the file is what the store is.
    is_there: bool,
    /// Whether an outdated file stays until there is another.
    keeps: bool,
}

impl Saved {
    /// What will be saved there when the store is closed.
    pub(super) fn at(path: &Path) -> Saved {
        Saved { path: path.to_owned(), is_there: false, keeps: false }
    }

    /// Reads a store into an empty one.
    pub(super) fn load(path: &Path, state: &mut State) -> Result<Saved, StoreError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(StoreError::Format("no memstore was saved here"));
            }
            Err(e) => return Err(e.into()),
        };
        let mut file = BufReader::new(file);
        let mut magic = [0; MAGIC.len()];
        read_exact(&mut file, &mut magic)?;
        if magic != *MAGIC {
            return Err(DAMAGED);
        }
        while let Some(t) = record(&mut file)? {
            check(&t, &*state)?;
            for op in t.ops() {
                state.apply(&t, op);
            }
        }
        state.used = state.all();
        Ok(Saved { path: path.to_owned(), is_there: true, keeps: false })
    }

    /// What is there stays until the store is closed, whatever changes.
    pub(super) fn keep(&mut self) {
        self.keeps = true;
    }

    /// The store is about to change.
    pub(super) fn outdate(&mut self) -> io::Result<()> {
        if self.is_there && !self.keeps {
            fs::remove_file(&self.path)?;
            // Or a power loss has it there again.
            self.sync_dir()?;
        }
        self.is_there = false;
        Ok(())
    }

    /// Writes what the store is.
    pub(super) fn save(&mut self, state: &State) -> io::Result<()> {
        if self.is_there {
            return Ok(());
        }
        let unfinished = self.path.with_extension("new");
        let mut file = BufWriter::new(File::create(&unfinished)?);
        file.write_all(MAGIC)?;
        for (cid, coll) in &state.colls {
            let mut t = Transaction::new();
            t.mkcoll(cid, coll.bits);
            write_record(&mut file, &t)?;
            for (oid, object) in &coll.objects {
                save_object(&mut file, cid, oid, object)?;
            }
        }
        // The end: without it something is missing.
        file.write_all(&0_u32.to_le_bytes())?;
        file.into_inner()?.sync_all()?;
        fs::rename(&unfinished, &self.path)?;
        self.sync_dir()?;
        self.is_there = true;
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.path.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
    }
}

fn save_object(
    file: &mut impl Write,
    cid: &CollId,
    oid: &GhObject,
    object: &Object,
) -> io::Result<()> {
    let mut t = Transaction::new();
    t.touch(cid, oid);
    if object.size > 0 {
        t.truncate(cid, oid, object.size);
    }
    for (name, value) in &object.attrs {
        t.setattr(cid, oid, name.clone(), value.clone());
    }
    if !object.omap_header.is_empty() {
        t.omap_setheader(cid, oid, object.omap_header.clone());
    }
    let mut len = 0;
    for (key, value) in &object.omap {
        t.omap_setkeys(cid, oid, [(key.clone(), value.clone())]);
        len += (key.len() + value.len()) as u64;
        if len >= RECORD_LEN {
            write_record(file, &t)?;
            (t, len) = (Transaction::new(), 0);
        }
    }
    for range in object.extents(0, object.size) {
        for offset in range.clone().step_by(RECORD_LEN as usize) {
            let piece = RECORD_LEN.min(range.end - offset);
            t.write(cid, oid, offset, object.read(offset, piece));
            write_record(file, &t)?;
            t = Transaction::new();
        }
    }
    if t.is_empty() { Ok(()) } else { write_record(file, &t) }
}

fn write_record(file: &mut impl Write, t: &Transaction) -> io::Result<()> {
    let payload = t.to_bytes();
    let len = u32::try_from(payload.len()).map_err(io::Error::other)?;
    file.write_all(&len.to_le_bytes())?;
    file.write_all(&crc32c(u32::MAX, &payload).to_le_bytes())?;
    file.write_all(&payload)
}

/// The next record; `None` at the end.
fn record(file: &mut impl Read) -> Result<Option<Transaction>, StoreError> {
    let mut number = || -> Result<u32, StoreError> {
        let mut bytes = [0; 4];
        read_exact(file, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    };
    let len = number()?;
    if len == 0 {
        return Ok(None);
    }
    let crc = number()?;
    if len > RECORD_LEN_MAX {
        return Err(DAMAGED);
    }
    let mut payload = Vec::new();
    file.take(len.into()).read_to_end(&mut payload)?;
    if payload.len() != len as usize || crc32c(u32::MAX, &payload) != crc {
        return Err(DAMAGED);
    }
    Transaction::from_bytes_exact(&Bytes::from(payload)).map(Some).map_err(|_| DAMAGED)
}

fn read_exact(file: &mut impl Read, bytes: &mut [u8]) -> Result<(), StoreError> {
    file.read_exact(bytes).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => DAMAGED,
        _ => e.into(),
    })
}
