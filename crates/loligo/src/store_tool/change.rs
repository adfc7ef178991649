//! Changes of single objects: data, xattrs, omap. Each is one transaction; what is to be removed
//! must be there.

use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;

use denc::Denc;
use store::{ObjectStore, StoreError, Transaction};
use types::osd::ObjectInfo;
use types::pg::NO_SHARD;

use super::failed;
use super::select::find;
use crate::failure::Failure;

/// The xattr that holds the object info.
const INFO: &str = "_";

/// Reads what a command is given.
fn source(file: Option<&Path>) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    match file {
        None => io::stdin().lock().read_to_end(&mut bytes).map(drop)?,
        Some(path) => {
            bytes = std::fs::read(path)
                .map_err(|e| Failure::new(format!("cannot read {}: {e}", path.display())))?;
        }
    }
    Ok(bytes)
}

async fn submit(store: &Rc<dyn ObjectStore>, t: Transaction) -> Result<(), Failure> {
    store.submit(t).await.map_err(|e| failed(&e))
}

/// Replaces an object's data. Its info is given the new size and loses the checksum of the old
/// data: an OSD that found the two at odds would call the object damaged.
pub(super) async fn set_bytes(
    store: &Rc<dyn ObjectStore>,
    object: &str,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let (cid, oid) = find(store, object).await?;
    let bytes = source(file)?;
    let size = bytes.len() as u64;
    let mut t = Transaction::new();
    t.truncate(&cid, &oid, 0);
    if !bytes.is_empty() {
        t.write(&cid, &oid, 0, bytes);
    }
    match store.getattr(&cid, &oid, INFO.as_bytes()).await {
        // A shard's size is not its object's, of which the info tells.
        Ok(_) if oid.shard != NO_SHARD => {}
        Ok(info) => {
            let mut info = ObjectInfo::from_bytes(&info).map_err(|e| {
                Failure::new(format!("the info of {object} is damaged ({e}): nothing was changed"))
            })?;
            info.size = size;
            info.clear_data_digest();
            t.setattr(&cid, &oid, INFO, info.to_bytes());
        }
        // The OSD's own objects have none.
        Err(StoreError::NoAttr) => {}
        Err(e) => return Err(failed(&e)),
    }
    submit(store, t).await
}

/// Removes an object here; other OSDs keep theirs. The snap mapper's rows of a clone are left, as
/// they would be of one that is lost: `fsck --repair` puts them right.
pub(super) async fn remove(store: &Rc<dyn ObjectStore>, object: &str) -> Result<(), Failure> {
    let (cid, oid) = find(store, object).await?;
    let mut t = Transaction::new();
    t.remove(&cid, &oid);
    submit(store, t).await
}

pub(super) async fn set_attr(
    store: &Rc<dyn ObjectStore>,
    object: &str,
    name: &str,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let (cid, oid) = find(store, object).await?;
    let mut t = Transaction::new();
    t.setattr(&cid, &oid, name, source(file)?);
    submit(store, t).await
}

pub(super) async fn rm_attr(
    store: &Rc<dyn ObjectStore>,
    object: &str,
    name: &str,
) -> Result<(), Failure> {
    let (cid, oid) = find(store, object).await?;
    match store.getattr(&cid, &oid, name.as_bytes()).await {
        Ok(_) => {}
        Err(StoreError::NoAttr) => {
            let listed = "'get-attr' without a name lists all";
            return Err(Failure::new(format!("{object} has no xattr {name}; {listed}")));
        }
        Err(e) => return Err(failed(&e)),
    }
    let mut t = Transaction::new();
    t.rmattr(&cid, &oid, name);
    submit(store, t).await
}

/// Sets a key, or, without one, the omap header.
pub(super) async fn set_omap(
    store: &Rc<dyn ObjectStore>,
    object: &str,
    key: Option<&str>,
    file: Option<&Path>,
) -> Result<(), Failure> {
    let (cid, oid) = find(store, object).await?;
    let value = source(file)?;
    let mut t = Transaction::new();
    match key {
        Some(key) => t.omap_setkeys(&cid, &oid, [(key, value.into())]),
        None => t.omap_setheader(&cid, &oid, value),
    };
    submit(store, t).await
}

pub(super) async fn rm_omap(
    store: &Rc<dyn ObjectStore>,
    object: &str,
    key: &str,
) -> Result<(), Failure> {
    let (cid, oid) = find(store, object).await?;
    let found = store.omap_values(&cid, &oid, &[key.into()]).await.map_err(|e| failed(&e))?;
    if found.is_empty() {
        let listed = "'get-omap' without a key lists all";
        return Err(Failure::new(format!("{object} has no omap key {key}; {listed}")));
    }
    let mut t = Transaction::new();
    t.omap_rmkeys(&cid, &oid, [key.into()]);
    submit(store, t).await
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use store::CollId;
    use store::memstore::MemStore;
    use types::{GhObject, HObject, NOSNAP, ObjectLocator};

    use super::*;

    /// The info of a shard took the shard's size for the object's: clients saw a part of it, and recovery brought that to
    /// other shards.
    #[test]
    fn a_shard_does_not_change_the_size_of_its_object() {
        env::real::Runtime::new().unwrap().block_on(|_| async move {
            let store: Rc<dyn ObjectStore> = Rc::new(MemStore::new(1 << 20));
            let file = std::env::temp_dir().join(format!("loligo-shard-{}", std::process::id()));
            std::fs::write(&file, [2; 5000]).unwrap();
            for (pg, shard, size) in [("2.0s1", 1, 16_384), ("2.0", NO_SHARD, 5000)] {
                let CollId::Pg(pgid) = super::super::select::pg_collection(pg).unwrap() else {
                    panic!("{pg}")
                };
                let cid = CollId::Pg(pgid);
                let locator = ObjectLocator { pool: 2, ..ObjectLocator::default() };
                let hobj = HObject::new(format!("of {pg}"), &locator, NOSNAP);
                let oid = GhObject { shard, ..GhObject::from(hobj.clone()) };
                let info = ObjectInfo { size: 16_384, ..ObjectInfo::new(hobj) };
                let mut t = Transaction::new();
                t.mkcoll(&cid, 0);
                t.write(&cid, &oid, 0, Bytes::from(vec![1; 8192]));
                t.setattr(&cid, &oid, INFO, info.to_bytes());
                store.submit(t).await.unwrap();
                set_bytes(&store, &format!("of {pg}"), Some(&file)).await.unwrap();
                let info = store.getattr(&cid, &oid, INFO.as_bytes()).await.unwrap();
                assert_eq!(ObjectInfo::from_bytes(&info).unwrap().size, size, "{pg}");
                assert_eq!(store.stat(&cid, &oid).await.unwrap().size, 5000);
            }
            std::fs::remove_file(&file).unwrap();
        });
    }
}
