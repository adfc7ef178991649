//! What objects there are and what is in them.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use denc::Denc;
use serde_json::{Value, json};
use store::transfer::{Keys, Objects};
use store::{CollId, ObjectStore, StoreError};
use types::hobject::GhObject;
use types::osd::{ObjectInfo, SnapSet};

use super::select::{Place, collection_name, describe, find, line, pg_collection};
use super::{Context, failed};
use crate::failure::Failure;
use crate::output::show;
use crate::stores;

/// Bytes of data read at a time.
const PIECE_LEN: u64 = 1 << 20;
/// Longest value that 'dump' shows whole.
const SHOWN_MAX: usize = 256;
/// Most omap keys that 'dump' shows.
const KEYS_SHOWN_MAX: usize = 1000;

/// Objects of a collection, its own note about a placement group left out, for `each`.
pub(super) async fn for_each(
    store: &Rc<dyn ObjectStore>,
    cid: &CollId,
    mut each: impl FnMut(GhObject),
) -> Result<(), Failure> {
    let mut objects = Objects::of(cid);
    loop {
        let page = objects.page(&**store).await.map_err(|e| failed(&e))?;
        if page.is_empty() {
            return Ok(());
        }
        page.into_iter().filter(|oid| !oid.is_pgmeta()).for_each(&mut each);
    }
}

async fn collections(store: &Rc<dyn ObjectStore>) -> Result<Vec<CollId>, Failure> {
    store.collections().await.map_err(|e| failed(&e))
}

/// How many objects there are, pgmeta not counted.
pub(super) async fn count(store: &Rc<dyn ObjectStore>) -> Result<u64, Failure> {
    let mut count = 0;
    for cid in collections(store).await? {
        for_each(store, &cid, |_| count += 1).await?;
    }
    Ok(count)
}

pub(super) async fn stat(context: &Context, store: &Rc<dyn ObjectStore>) -> Result<(), Failure> {
    let space = store.statfs().await.map_err(|e| failed(&e))?;
    let mut pgs = serde_json::Map::new();
    let mut meta = 0;
    for cid in collections(store).await? {
        let mut count = 0_u64;
        for_each(store, &cid, |_| count += 1).await?;
        match cid {
            CollId::Meta => meta = count,
            _ => drop(pgs.insert(collection_name(&cid), count.into())),
        }
    }
    let objects: u64 = pgs.values().filter_map(Value::as_u64).sum();
    let backend = stores::kind(&context.config);
    let path = context.config.str("osd_data");
    let value = json!({
        "osd": context.name(),
        "backend": backend,
        "path": path,
        "total": space.total,
        "available": space.available,
        "allocated": space.allocated,
        "data_stored": space.data_stored,
        "omap_allocated": space.omap_allocated,
        "internal_metadata": space.internal_metadata,
        "pgs": pgs.len(),
        "objects": objects,
        "meta_objects": meta,
        "objects_by_pg": pgs,
    });
    let mut text = format!(
        "{}: {backend} in {path}\nspace     {} bytes of {} taken by data, {} available\nmetadata  {} bytes\nholds     {objects} objects in {} placement groups, {meta} of its own",
        context.name(),
        space.allocated,
        space.total,
        space.available,
        space.internal_metadata + space.omap_allocated,
        value["pgs"],
    );
    for (pg, count) in &pgs {
        text += &format!("\n  {pg:<8} {count} objects");
    }
    context.tell(&value, &text);
    Ok(())
}

pub(super) async fn list(
    store: &Rc<dyn ObjectStore>,
    name: Option<&str>,
    pg: Option<&str>,
    meta: bool,
) -> Result<(), Failure> {
    let all = collections(store).await?;
    let wanted = match pg {
        Some(pg) => {
            let cid = pg_collection(pg)?;
            if !all.contains(&cid) {
                let all: Vec<_> = all.iter().map(collection_name).collect();
                return Err(Failure::new(format!("no {pg} here; there is {}", all.join(", "))));
            }
            vec![cid]
        }
        None => all.into_iter().filter(|cid| (*cid == CollId::Meta) == meta).collect(),
    };
    for cid in wanted {
        let shown = |oid: GhObject| {
            if name.is_none_or(|name| oid.hobj.name == name) {
                show!("{}", line(&cid, &oid));
            }
        };
        for_each(store, &cid, shown).await?;
    }
    Ok(())
}

/// Bytes as text where they are some, else in hexadecimal digits, cut.
fn value_of(bytes: &[u8]) -> Value {
    let cut = &bytes[..bytes.len().min(SHOWN_MAX)];
    let mut value = match std::str::from_utf8(cut) {
        Ok(text) if !text.chars().any(char::is_control) => json!({ "text": text }),
        _ => json!({ "hex": cut.iter().map(|b| format!("{b:02x}")).collect::<String>() }),
    };
    value["length"] = bytes.len().into();
    value
}

pub(super) async fn dump(store: &Rc<dyn ObjectStore>, object: &str) -> Result<(), Failure> {
    let (cid, oid) = find(store, object).await?;
    let value = dumped(store, (cid, oid)).await.map_err(|e| failed(&e))?;
    show!("{value:#}");
    Ok(())
}

async fn dumped(store: &Rc<dyn ObjectStore>, (cid, oid): Place) -> Result<Value, StoreError> {
    let size = store.stat(&cid, &oid).await?.size;
    let extents = store.extents(&cid, &oid, 0, size).await?;
    let extents: Vec<_> = extents
        .into_iter()
        .map(|r| json!({"offset": r.start, "length": r.end - r.start}))
        .collect();
    let mut value = describe(&cid, &oid);
    let mut attrs = serde_json::Map::new();
    for (name, bytes) in store.getattrs(&cid, &oid).await? {
        attrs.insert(name.to_string(), value_of(&bytes));
        match name.as_slice() {
            b"_" => value["info"] = info(&bytes),
            b"snapset" => value["snapset"] = snapset(&bytes),
            _ => {}
        }
    }
    let header = store.omap_header(&cid, &oid).await?;
    let (mut keys, mut omap, mut count) = (Keys::default(), serde_json::Map::new(), 0_usize);
    loop {
        let page = keys.page(&**store, &cid, &oid).await?;
        if page.entries.is_empty() {
            break;
        }
        count += page.entries.len();
        for (key, bytes) in page.entries {
            if omap.len() < KEYS_SHOWN_MAX {
                omap.insert(key.to_string(), value_of(&bytes));
            }
        }
    }
    value["size"] = size.into();
    value["extents"] = extents.into();
    value["xattrs"] = attrs.into();
    value["omap_header"] = value_of(&header);
    value["omap_keys"] = count.into();
    value["omap"] = omap.into();
    Ok(value)
}

fn info(bytes: &bytes::Bytes) -> Value {
    match ObjectInfo::from_bytes(bytes) {
        Ok(oi) => json!({
            "version": oi.version.to_string(),
            "prior_version": oi.prior_version.to_string(),
            "user_version": oi.user_version,
            "last_reqid": oi.last_reqid.to_string(),
            "size": oi.size,
            "mtime": oi.mtime.to_string(),
            "flags": oi.flags,
            "data_digest": oi.is_data_digest().then(|| format!("{:#x}", oi.data_digest)),
            "omap_digest": oi.is_omap_digest().then(|| format!("{:#x}", oi.omap_digest)),
        }),
        Err(e) => json!({ "damaged": e.to_string() }),
    }
}

fn snapset(bytes: &bytes::Bytes) -> Value {
    match SnapSet::from_bytes(bytes) {
        Ok(set) => json!({
            "seq": set.seq,
            "clones": set.clones.iter().map(|clone| json!({
                "snap": clone,
                "size": set.clone_size.get(clone),
                "snaps": set.clone_snaps.get(clone),
            })).collect::<Vec<_>>(),
        }),
        Err(e) => json!({ "damaged": e.to_string() }),
    }
}

/// Opens what a command writes to.
fn sink(file: Option<&Path>) -> Result<Box<dyn Write>, Failure> {
    Ok(match file {
        None => Box::new(io::stdout().lock()),
        Some(path) => Box::new(
            File::create(path)
                .map_err(|e| Failure::new(format!("cannot write {}: {e}", path.display())))?,
        ),
    })
}

pub(super) async fn get_bytes(
    store: &Rc<dyn ObjectStore>,
    object: &str,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let (cid, oid) = find(store, object).await?;
    let size = store.stat(&cid, &oid).await.map_err(|e| failed(&e))?.size;
    let mut out = sink(file)?;
    for at in (0..size).step_by(PIECE_LEN as usize) {
        let len = PIECE_LEN.min(size - at);
        let data = store.read(&cid, &oid, at, len).await.map_err(|e| failed(&e))?;
        for piece in data.pieces() {
            out.write_all(piece)?;
        }
    }
    Ok(out.flush()?)
}

fn write_out(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = sink(None)?;
    out.write_all(bytes)?;
    Ok(out.flush()?)
}

pub(super) async fn get_attr(
    context: &Context,
    store: &Rc<dyn ObjectStore>,
    object: &str,
    name: Option<&str>,
) -> Result<(), Failure> {
    let (cid, oid) = find(store, object).await?;
    let Some(name) = name else {
        let attrs = store.getattrs(&cid, &oid).await.map_err(|e| failed(&e))?;
        let names: Vec<_> = attrs.into_iter().map(|(name, _)| name.to_string()).collect();
        context.tell(&json!(names), &names.join("\n"));
        return Ok(());
    };
    match store.getattr(&cid, &oid, name.as_bytes()).await {
        Ok(value) => write_out(&value),
        Err(StoreError::NoAttr) => Err(Failure::new(format!(
            "{object} has no xattr {name}; without a name all are listed"
        ))),
        Err(e) => Err(failed(&e)),
    }
}

pub(super) async fn get_omap(
    context: &Context,
    store: &Rc<dyn ObjectStore>,
    object: &str,
    key: Option<&str>,
    header: bool,
) -> Result<(), Failure> {
    let (cid, oid) = find(store, object).await?;
    if header {
        let header = store.omap_header(&cid, &oid).await.map_err(|e| failed(&e))?;
        return write_out(&header);
    }
    if let Some(key) = key {
        let found = store.omap_values(&cid, &oid, &[key.into()]).await.map_err(|e| failed(&e))?;
        let none = || format!("{object} has no omap key {key}; without a key all are listed");
        let (_, value) = found.first().ok_or_else(|| Failure::new(none()))?;
        return write_out(value);
    }
    let (mut keys, mut names) = (Keys::default(), Vec::new());
    loop {
        let page = keys.page(&**store, &cid, &oid).await.map_err(|e| failed(&e))?;
        if page.entries.is_empty() {
            break;
        }
        names.extend(page.entries.into_iter().map(|(key, _)| key.to_string()));
    }
    context.tell(&json!(names), &names.join("\n"));
    Ok(())
}
