//! Metadata of images and pools: keys `metadata_NAME` with values as they are
//! (`src/cls/rbd/cls_rbd.cc` at v16.2).

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::keys;
use crate::{ObjectContext, argument};

const PREFIX: &[u8] = b"metadata_";

pub(super) async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let (after, max): (BString, u64) = argument(input)?;
    let max = if max == 0 { keys::PAGE } else { max };
    let found: BTreeMap<BString, Bytes> =
        keys::list(ctx, PREFIX, &after, max).await?.into_iter().collect();
    Ok(found.to_bytes())
}

pub(super) async fn set(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let values: BTreeMap<BString, Bytes> = argument(input)?;
    let values = values.into_iter().map(|(name, value)| (keys::key(PREFIX, &name), value));
    ctx.omap_set(values.collect()).await
}

pub(super) async fn remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let name: BString = argument(input)?;
    ctx.omap_rm(&keys::key(PREFIX, &name)).await
}

pub(super) async fn get(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let name: BString = argument(input)?;
    let value = ctx.omap_val(&keys::key(PREFIX, &name)).await?;
    Ok(value.to_bytes())
}
