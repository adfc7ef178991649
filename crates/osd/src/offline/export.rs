//! A placement group into a file.

use std::io::Write;
use std::rc::Rc;

use bytes::Bytes;
use denc::Denc;
use store::transfer::{Keys, Objects};
use store::{CollId, ObjectStore, StoreError};
use types::osd::ObjectInfo;
use types::{GhObject, SpgId};

use super::pg_file::{Data, Kind, ObjectBegin, One, PgBegin, PgFileWriter, PgMetadata};
use super::{Moved, TransferError, load_error, superblock};
use crate::ops::object_context::OI_ATTR;
use crate::osd::map_store::meta_object;
use crate::pg::persist;

/// Bytes of a DATA section.
const PIECE_LEN: u64 = 1 << 20;

/// Writes a placement group; `told` hears how many objects are written. What it hands back says
/// what was moved, and gives the writer back to be synced.
pub async fn export<W: Write>(
    store: &Rc<dyn ObjectStore>,
    pgid: SpgId,
    out: W,
    told: &mut dyn FnMut(u64),
) -> Result<(Moved, W), TransferError> {
    let cid = CollId::Pg(pgid);
    let superblock = superblock(store).await?;
    if !store.collections().await?.contains(&cid) {
        return Err(TransferError::Refused(format!("there is no {pgid} here")));
    }
    let loaded = persist::load(&**store, &cid, &pgid.pgmeta()).await;
    let loaded = loaded.map_err(|e| load_error(pgid, e))?;
    let map = meta_object(format!("osdmap.{}", loaded.epoch));
    let osdmap = match store.read(&CollId::Meta, &map, 0, 0).await {
        Err(StoreError::NoObject) => {
            let epoch = loaded.epoch;
            return Err(TransferError::Refused(format!("{pgid} is at map {epoch}, which is gone")));
        }
        map => map?.to_contiguous(),
    };
    let mut moved = Moved {
        pgid,
        objects: 0,
        skipped: 0,
        data: 0,
        log_entries: loaded.log.len() as u64,
        epoch: loaded.epoch,
    };
    let mut file = PgFileWriter::new(out)?;
    file.section(Kind::PgBegin, &PgBegin { pgid, superblock })?;
    let metadata = PgMetadata {
        epoch: loaded.epoch,
        info: loaded.info,
        log: loaded.log.wire(),
        past_intervals: loaded.past_intervals,
        osdmap,
        missing: loaded.missing.to_wire(),
    };
    file.section(Kind::PgMetadata, &metadata)?;
    let mut objects = Objects::of(&cid);
    loop {
        let page = objects.page(&**store).await?;
        if page.is_empty() {
            break;
        }
        for oid in page.iter().filter(|oid| !oid.is_pgmeta() && !oid.hobj.is_temp()) {
            moved.objects += 1;
            moved.data += export_object(store, &cid, oid, &mut file).await?;
            told(moved.objects);
        }
    }
    file.mark(Kind::PgEnd)?;
    Ok((moved, file.into_inner()))
}

async fn export_object<W: Write>(
    store: &Rc<dyn ObjectStore>,
    cid: &CollId,
    oid: &GhObject,
    file: &mut PgFileWriter<W>,
) -> Result<u64, TransferError> {
    let attrs = store.getattrs(cid, oid).await?;
    let info = attrs.iter().find(|(name, _)| name == OI_ATTR);
    let info = match info {
        Some((_, bytes)) => ObjectInfo::from_bytes(bytes)
            .map_err(|e| TransferError::Refused(format!("{oid}: its object info: {e}")))?,
        // What is kept to undo a write has none.
        None => ObjectInfo::new(oid.hobj.clone()),
    };
    file.section(Kind::ObjectBegin, &ObjectBegin { oid: oid.clone(), info })?;
    let size = store.stat(cid, oid).await?.size;
    let (mut data, mut end) = (0, 0);
    for range in store.extents(cid, oid, 0, size).await? {
        end = range.end;
        let mut at = range.start;
        while at < range.end {
            let len = PIECE_LEN.min(range.end - at);
            let bytes = store.read(cid, oid, at, len).await?.to_contiguous();
            data += bytes.len() as u64;
            file.section(Kind::Data, &Data { offset: at, bytes })?;
            at += len;
        }
    }
    if end < size {
        // The size is told by the last byte only.
        let bytes = Bytes::from_static(&[0]);
        file.section(Kind::Data, &Data { offset: size - 1, bytes })?;
    }
    file.section(
        Kind::Attrs,
        &One(attrs.into_iter().collect::<std::collections::BTreeMap<_, _>>()),
    )?;
    let header = store.omap_header(cid, oid).await?;
    if !header.is_empty() {
        file.section(Kind::OmapHeader, &One(header))?;
    }
    let mut keys = Keys::default();
    loop {
        let page = keys.page(&**store, cid, oid).await?;
        if page.entries.is_empty() {
            break;
        }
        let entries: std::collections::BTreeMap<_, _> = page.entries.into_iter().collect();
        file.section(Kind::Omap, &One(entries))?;
    }
    file.mark(Kind::ObjectEnd)?;
    Ok(data)
}
