//! The OSD maps that an OSD has: what a monitor's database is made of again when there is none left
//! (`update_osdmap` in `src/tools/rebuild_mondb.cc` at v16.2).

use std::rc::Rc;

use bytes::Bytes;
use store::{CollId, ObjectStore, StoreError};
use types::{Epoch, GhObject};

use super::TransferError;
use crate::osd::map_store::{full_object, inc_object};

/// A map as an OSD has it.
#[derive(Debug, Clone)]
pub struct StoredMap {
    /// `OSDMap`, encoded.
    pub full: Bytes,
    /// `OSDMap::Incremental` that led to it, encoded; nothing where the OSD was sent the whole map.
    pub incremental: Option<Bytes>,
}

/// A map, if the OSD has it.
pub async fn stored_map(
    store: &Rc<dyn ObjectStore>,
    epoch: Epoch,
) -> Result<Option<StoredMap>, TransferError> {
    let Some(full) = read(store, &full_object(epoch)).await? else { return Ok(None) };
    Ok(Some(StoredMap { full, incremental: read(store, &inc_object(epoch)).await? }))
}

async fn read(store: &Rc<dyn ObjectStore>, oid: &GhObject) -> Result<Option<Bytes>, TransferError> {
    match store.read(&CollId::Meta, oid, 0, 0).await {
        Err(StoreError::NoObject) => Ok(None),
        bytes => Ok(Some(bytes?.to_contiguous())),
    }
}
