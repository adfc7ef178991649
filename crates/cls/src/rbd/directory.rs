//! Directories: names and ids of a pool's images (`rbd_directory`) and groups
//! (`rbd_group_directory`), the ids of images by name (`rbd_id.NAME`), and the pool's namespaces
//! (`rbd_namespace`) (`src/cls/rbd/cls_rbd.cc` at v16.2).

use std::collections::BTreeMap;

use bstr::{BStr, BString};
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::keys::{self, check_exists};
use crate::{ObjectContext, argument, stored};

const NAME: &[u8] = b"name_";
const ID: &[u8] = b"id_";

/// New images may be added.
const READY: u8 = 0;
/// The directory is empty and stays so: its namespace is being removed.
const ADD_DISABLED: u8 = 1;

pub(super) async fn get_id(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    if ctx.stat().await?.size == 0 {
        return Err(Errno::ENOENT);
    }
    let id: BString = stored(&ctx.read(0, 0).await?)?;
    Ok(id.to_bytes())
}

pub(super) async fn set_id(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    check_exists(ctx).await?;
    let id: BString = argument(input)?;
    if !keys::is_id(BStr::new(&id)) {
        return Err(Errno::EINVAL);
    }
    if ctx.stat().await?.size != 0 {
        return Err(Errno::EEXIST);
    }
    ctx.write(0, id.to_bytes()).await
}

async fn add(
    ctx: &mut dyn ObjectContext,
    name: BString,
    id: BString,
    is_new_id: bool,
) -> Result<(), Errno> {
    if name.is_empty() || !keys::is_id(BStr::new(&id)) {
        return Err(Errno::EINVAL);
    }
    let (name_key, id_key) = (keys::key(NAME, &name), keys::key(ID, &id));
    if keys::find_raw(ctx, &name_key).await?.is_some() {
        return Err(Errno::EEXIST);
    }
    if is_new_id && keys::find_raw(ctx, &id_key).await?.is_some() {
        return Err(Errno::EBADF);
    }
    let vals = BTreeMap::from([(name_key, id.to_bytes()), (id_key, name.to_bytes())]);
    ctx.omap_set(vals).await
}

async fn remove(ctx: &mut dyn ObjectContext, name: &BString, id: &BString) -> Result<(), Errno> {
    let (name_key, id_key) = (keys::key(NAME, name), keys::key(ID, id));
    let stored_id: BString = keys::read(ctx, &name_key).await?;
    let stored_name: BString = keys::read(ctx, &id_key).await?;
    // A rename may have come first.
    if stored_id != *id || stored_name != *name {
        return Err(Errno::ESTALE);
    }
    ctx.omap_rm(&name_key).await?;
    ctx.omap_rm(&id_key).await
}

pub(super) async fn add_entry(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    ctx.create(false).await?;
    let (name, id): (BString, BString) = argument(input)?;
    add(ctx, name, id, true).await
}

pub(super) async fn remove_entry(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (name, id): (BString, BString) = argument(input)?;
    remove(ctx, &name, &id).await
}

pub(super) async fn rename_entry(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (from, to, id): (BString, BString, BString) = argument(input)?;
    remove(ctx, &from, &id).await?;
    // The id's old entry is still to be seen here.
    add(ctx, to, id, false).await
}

pub(super) async fn dir_get_id(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let name: BString = argument(input)?;
    let id: BString = keys::read(ctx, &keys::key(NAME, &name)).await?;
    Ok(id.to_bytes())
}

pub(super) async fn dir_get_name(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let id: BString = argument(input)?;
    let name: BString = keys::read(ctx, &keys::key(ID, &id)).await?;
    Ok(name.to_bytes())
}

/// Names and ids after a name.
pub(super) async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let (after, max): (BString, u64) = argument(input)?;
    let mut entries: BTreeMap<BString, BString> = BTreeMap::new();
    for (name, id) in keys::list(ctx, NAME, &after, max).await? {
        entries.insert(name, stored(&id)?);
    }
    Ok(entries.to_bytes())
}

pub(super) async fn state_assert(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let state: u8 = argument(input)?;
    if keys::read::<u8>(ctx, b"state").await? != state {
        return Err(Errno::ENOENT);
    }
    Ok(())
}

pub(super) async fn state_set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let state: u8 = argument(input)?;
    let exists = check_exists(ctx).await;
    if exists.is_err_and(|errno| errno != Errno::ENOENT) {
        return exists;
    }
    match state {
        READY => {}
        ADD_DISABLED => {
            exists?;
            if !keys::list(ctx, NAME, b"", 1).await?.is_empty() {
                return Err(Errno::EBUSY);
            }
        }
        _ => return Err(Errno::EINVAL),
    }
    keys::write(ctx, b"state", &state).await
}

pub(super) async fn namespace_add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let key = keys::key(NAME, &argument::<BString>(input)?);
    if keys::find_raw(ctx, &key).await?.is_some() {
        return Err(Errno::EEXIST);
    }
    keys::write_raw(ctx, &key, Bytes::new()).await
}

pub(super) async fn namespace_remove(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let key = keys::key(NAME, &argument::<BString>(input)?);
    ctx.omap_val(&key).await?;
    ctx.omap_rm(&key).await
}

pub(super) async fn namespace_list(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let (after, max): (BString, u64) = argument(input)?;
    let found = keys::list(ctx, NAME, &after, max).await?;
    let names: Vec<BString> = found.into_iter().map(|(name, _)| name).collect();
    Ok(names.to_bytes())
}
