//! What can be done to an OSD's store while the OSD is stopped.
//!
//! * [`fsck`]: whether what placement groups keep belongs together.
//! * [`export`], [`import`]: a placement group in a file, in the form of Ceph's
//!   `ceph-objectstore-tool` ([`pg_file`]).
//! * [`superblock`], [`stored_map`]: the OSD maps in it, of which a monitor's database is made again.
//!
//! Nobody else uses the store meanwhile; the caller sees to that.

mod check;
mod export;
mod import;
pub mod pg_file;
mod stored_maps;

use std::fmt;
use std::io;
use std::rc::Rc;

use denc::Denc;
use store::{CollId, ObjectStore, StoreError};
use types::SpgId;
use types::osd::OsdSuperblock;

pub use self::check::{FsckTally, fsck};
pub use self::export::export;
pub use self::import::import;
pub use self::stored_maps::{StoredMap, stored_map};
use crate::features;
use crate::osd::map_store::meta_object;
use crate::pg::persist::LoadError;

/// What a transfer moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// The placement group.
    pub pgid: SpgId,
    /// Objects.
    pub objects: u64,
    /// Objects of an import that belong to placement groups that are here already, split off since.
    pub skipped: u64,
    /// Bytes of data.
    pub data: u64,
    /// Entries of its log.
    pub log_entries: u64,
    /// The map it is at.
    pub epoch: types::Epoch,
}

/// Why a placement group was not exported or imported.
#[derive(Debug)]
pub enum TransferError {
    /// The store fails.
    Store(StoreError),
    /// The file cannot be read or written.
    File(io::Error),
    /// The file does not hold what it should: what, and where.
    Format(String),
    /// It is not possible as things are.
    Refused(String),
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Store(e) => write!(f, "the store: {e}"),
            TransferError::File(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                f.write_str("the file ends too early: it was cut off")
            }
            TransferError::File(e) => write!(f, "the file: {e}"),
            TransferError::Format(what) => write!(f, "no export that can be read: {what}"),
            TransferError::Refused(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for TransferError {}

impl From<StoreError> for TransferError {
    fn from(e: StoreError) -> TransferError {
        TransferError::Store(e)
    }
}

impl From<io::Error> for TransferError {
    fn from(e: io::Error) -> TransferError {
        TransferError::File(e)
    }
}

impl From<denc::Error> for TransferError {
    fn from(e: denc::Error) -> TransferError {
        TransferError::Format(e.to_string())
    }
}

fn load_error(pgid: SpgId, e: LoadError) -> TransferError {
    match e {
        LoadError::Store(e) => e.into(),
        LoadError::Empty => {
            TransferError::Refused(format!("{pgid} was never made whole: it has no info"))
        }
        LoadError::Damaged(e) => TransferError::Refused(format!("{pgid}: its own notes: {e}")),
    }
}

/// Whose store it is, and which maps are in it.
pub async fn superblock(store: &Rc<dyn ObjectStore>) -> Result<OsdSuperblock, TransferError> {
    let oid = meta_object("osd_superblock");
    match store.read(&CollId::Meta, &oid, 0, 0).await {
        Err(StoreError::NoObject | StoreError::NoCollection(_)) => {
            Err(TransferError::Refused("the store has no superblock: --mkfs did not end".into()))
        }
        bytes => {
            let superblock = OsdSuperblock::from_bytes(&bytes?.to_contiguous())?;
            match features::unknown(&superblock.compat_features) {
                None => Ok(superblock),
                Some(names) => Err(TransferError::Refused(format!(
                    "the store has features that this version does not know: {names}"
                ))),
            }
        }
    }
}

#[cfg(test)]
mod tests;
