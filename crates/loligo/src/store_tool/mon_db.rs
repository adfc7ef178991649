//! `loligo store update-mon-db`: the part of one OSD in a monitor's database that is made anew.

use std::path::Path;
use std::rc::Rc;

use auth::EntityAuth;
use mon::{CollectError, Collected, OsdPart};
use osd::offline::{TransferError, stored_map, superblock};
use serde_json::json;
use store::ObjectStore;
use types::{AuthEntityName, OsdId, entity};

use super::{Context, progress_of};
use crate::daemon::read_keyring;
use crate::failure::Failure;
use crate::mon_store::open_private_kv;

/// What the monitors give an OSD to do its work with (`update_auth` in `src/tools/rebuild_mondb.cc` at v16.2);
/// its own file has but the key.
const CAPS: [(&str, &str); 3] =
    [("mgr", "allow profile osd"), ("mon", "allow profile osd"), ("osd", "allow *")];

pub(super) async fn update(
    context: &Context,
    store: &Rc<dyn ObjectStore>,
    file: &Path,
) -> Result<(), Failure> {
    let name = context.name();
    let of_store = |e: TransferError| Failure::new(format!("{name}: {e}"));
    let of_file = |e: CollectError| Failure::new(format!("{}: {e}", file.display()));
    let superblock = superblock(store).await.map_err(of_store)?;
    let (osd, oldest, newest) = (superblock.whoami, superblock.oldest_map, superblock.newest_map);
    if newest == 0 {
        return Err(Failure::new(format!("{name} has no OSD map: it was never started")));
    }
    let collected = Collected::new(open_private_kv(&context.env, file)?);
    // Of all maps that both have, the last one tells whether all were the same.
    let common = collected.newest().map_err(of_file)?.map_or(newest, |last| last.min(newest));
    let missing =
        |epoch| Failure::new(format!("{name}: map {epoch} is missing (loligo store fsck)"));
    if common >= oldest {
        let map = stored_map(store, common).await.map_err(of_store)?;
        let full = map.ok_or_else(|| missing(common))?.full;
        collected.check(superblock.cluster_fsid, common, &full).map_err(of_file)?;
    }
    let bar = progress_of("collecting", u64::from(newest - oldest) + 1, "maps");
    let mut added = 0;
    for epoch in oldest..=newest {
        if !collected.has_map(epoch).map_err(of_file)? {
            let map = stored_map(store, epoch).await.map_err(of_store)?;
            let map = map.ok_or_else(|| missing(epoch))?;
            collected.put_map(epoch, map.full, map.incremental).map_err(of_file)?;
            added += 1;
        }
        bar.inc(1);
    }
    let auth = own_auth(context, osd)?;
    let keyed = auth.is_some();
    collected.put_osd(&OsdPart { osd, newest, auth }).map_err(of_file)?;
    bar.finish_and_clear();
    let value = json!({
        "osd": name,
        "file": file.display().to_string(),
        "oldest_map": oldest,
        "newest_map": newest,
        "added": added,
        "key": keyed,
    });
    let key = if keyed { "its key" } else { "no key" };
    let text = format!("{name}: maps {oldest} to {newest}, {added} of them new, and {key}");
    context.tell_change(&value, &text);
    Ok(())
}

fn own_auth(context: &Context, osd: OsdId) -> Result<Option<EntityAuth>, Failure> {
    let keyring = read_keyring(&context.config)?.unwrap_or_default();
    let key = keyring.key(&AuthEntityName::new(entity::OSD, osd.to_string())).cloned();
    Ok(key.map(|key| EntityAuth::new(key, CAPS)))
}
