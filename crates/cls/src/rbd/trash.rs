//! The pool's trash, `rbd_trash` (`src/cls/rbd/cls_rbd.cc` at v16.2).

use std::collections::BTreeMap;

use bstr::{BStr, BString};
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::group_spec::TrashImageSpec;
use super::keys::{self, arguments};
use crate::{ObjectContext, argument, stored};

const PREFIX: &[u8] = b"id_";

pub(super) async fn add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    ctx.create(false).await?;
    let (id, spec): (BString, TrashImageSpec) = argument(input)?;
    if !keys::is_id(BStr::new(&id)) {
        return Err(Errno::EINVAL);
    }
    let key = keys::key(PREFIX, &id);
    if keys::find::<TrashImageSpec>(ctx, &key).await?.is_some() {
        return Err(Errno::EEXIST);
    }
    keys::write(ctx, &key, &spec).await
}

pub(super) async fn remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let key = keys::key(PREFIX, &argument::<BString>(input)?);
    ctx.omap_val(&key).await?;
    ctx.omap_rm(&key).await
}

pub(super) async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let (after, max): (BString, u64) = argument(input)?;
    let mut images: BTreeMap<BString, TrashImageSpec> = BTreeMap::new();
    for (id, spec) in keys::list(ctx, PREFIX, &after, max).await? {
        images.insert(id, stored(&spec)?);
    }
    Ok(images.to_bytes())
}

pub(super) async fn get(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    ctx.omap_val(&keys::key(PREFIX, &argument::<BString>(input)?)).await
}

pub(super) async fn state_set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (id, state, expected) = arguments(input, |r| Ok((r.get::<BString>()?, r.u8()?, r.u8()?)))?;
    let key = keys::key(PREFIX, &id);
    let spec: TrashImageSpec = keys::read(ctx, &key).await?;
    if spec.state == expected {
        keys::write(ctx, &key, &TrashImageSpec { state, ..spec }).await
    } else if spec.state == state {
        Ok(())
    } else {
        Err(Errno::ESTALE)
    }
}
