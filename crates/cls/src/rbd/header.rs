//! The image's header object: size, order, features, flags, striping and times
//! (`src/cls/rbd/cls_rbd.cc` at v16.2). Everything is an omap key of its own.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Writer};
use types::{Errno, UTime};

use super::features::{self, NOSNAP, operation};
use super::keys::{self, arguments, check_exists, optional};
use super::snapshot::{Parent, Snap};
use super::snapshots;
use crate::ObjectContext;
use crate::argument;

/// Fails with `ENOEXEC` unless the image has the features.
pub(super) async fn require(ctx: &mut dyn ObjectContext, need: u64) -> Result<(), Errno> {
    match keys::find::<u64>(ctx, b"features").await? {
        Some(features) if features & need == need => Ok(()),
        _ => Err(Errno::ENOEXEC),
    }
}

/// Sets operation features; the feature `operations` tells whether there are any.
pub(super) async fn set_operations(
    ctx: &mut dyn ObjectContext,
    wanted: u64,
    mask: u64,
) -> Result<(), Errno> {
    let old: u64 = keys::read(ctx, b"features").await?;
    let old_operations = keys::find::<u64>(ctx, b"op_features").await?.unwrap_or(0);
    let operations = old_operations & !mask | wanted & mask;
    if operations == old_operations {
        return Ok(());
    }
    let new = if operations == 0 {
        keys::remove(ctx, b"op_features").await?;
        old & !features::OPERATIONS
    } else {
        keys::write(ctx, b"op_features", &operations).await?;
        old | features::OPERATIONS
    };
    if new != old {
        keys::write(ctx, b"features", &new).await?;
    }
    Ok(())
}

pub(super) async fn create(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (size, order, bits, prefix, data_pool) = arguments(input, |r| {
        let (size, order, bits) = (r.u64()?, r.u8()?, r.u64()?);
        let prefix: BString = r.get()?;
        Ok((size, order, bits, prefix, optional::<i64>(r)?.unwrap_or(-1)))
    })?;
    if bits & !features::ALL != 0 {
        return Err(Errno::ENOSYS);
    }
    if prefix.is_empty() {
        return Err(Errno::EINVAL);
    }
    if keys::find_raw(ctx, b"object_prefix").await?.is_some() {
        return Err(Errno::EEXIST);
    }
    let has_data_pool = bits & features::DATA_POOL != 0;
    if bits & features::OPERATIONS != 0 || has_data_pool != (data_pool != -1) {
        return Err(Errno::EINVAL);
    }
    let now = ctx.now().to_bytes();
    let mut vals: BTreeMap<BString, Bytes> = BTreeMap::from([
        ("size".into(), size.to_bytes()),
        ("order".into(), order.to_bytes()),
        ("features".into(), bits.to_bytes()),
        ("object_prefix".into(), prefix.to_bytes()),
        ("snap_seq".into(), 0u64.to_bytes()),
        ("create_timestamp".into(), now.clone()),
        ("access_timestamp".into(), now.clone()),
        ("modify_timestamp".into(), now),
    ]);
    if has_data_pool {
        vals.insert("data_pool_id".into(), data_pool.to_bytes());
    }
    ctx.omap_set(vals).await
}

pub(super) async fn get_features(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let read_only = arguments(input, |r| {
        r.u64()?;
        Ok(optional::<bool>(r)?.unwrap_or(false))
    })?;
    let bits: u64 = keys::read(ctx, b"features").await?;
    let incompatible =
        if read_only { bits & features::INCOMPATIBLE } else { bits & features::RW_INCOMPATIBLE };
    Ok((bits, incompatible).to_bytes())
}

pub(super) async fn set_features(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (wanted, mask): (u64, u64) = argument(input)?;
    let old = keys::find::<u64>(ctx, b"features").await?.unwrap_or(0);
    if mask & features::INTERNAL != 0 {
        return Err(Errno::EINVAL);
    }
    // Newer clients may clear features that are not known here.
    let mask = mask & features::ALL;
    let (enabled, disabled) = (wanted & mask, !wanted & mask);
    let may_disable = features::MUTABLE | features::DISABLE_ONLY;
    if enabled & !features::MUTABLE != 0 || disabled & !may_disable != 0 {
        return Err(Errno::EINVAL);
    }
    keys::write(ctx, b"features", &(old & !mask | enabled)).await
}

pub(super) async fn get_all_features(_: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(features::ALL.to_bytes())
}

pub(super) async fn op_features_get(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<Bytes, Errno> {
    let operations = keys::find::<u64>(ctx, b"op_features").await?.unwrap_or(0);
    Ok(operations.to_bytes())
}

pub(super) async fn op_features_set(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let (wanted, mask): (u64, u64) = argument(input)?;
    if mask & !operation::ALL != 0 {
        return Err(Errno::EINVAL);
    }
    set_operations(ctx, wanted, mask).await
}

pub(super) async fn get_size(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let snap_id: u64 = argument(input)?;
    let order: u8 = keys::read(ctx, b"order").await?;
    let size: u64 = if snap_id == NOSNAP {
        keys::read(ctx, b"size").await?
    } else {
        snapshots::read(ctx, snap_id).await?.image_size
    };
    Ok((order, size).to_bytes())
}

pub(super) async fn set_size(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let size: u64 = argument(input)?;
    let old: u64 = keys::read(ctx, b"size").await?;
    keys::write(ctx, b"size", &size).await?;
    if size >= old {
        return Ok(());
    }
    let mut parent = keys::find::<Parent>(ctx, b"parent").await?.unwrap_or_default();
    if parent.exists() && parent.head_overlap.unwrap_or(0) > size {
        parent.head_overlap = Some(size);
        keys::write(ctx, b"parent", &parent).await?;
    }
    Ok(())
}

pub(super) async fn get_flags(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let snap_id: u64 = argument(input)?;
    let flags = if snap_id == NOSNAP {
        keys::find::<u64>(ctx, b"flags").await?.unwrap_or(0)
    } else {
        snapshots::read(ctx, snap_id).await?.flags
    };
    Ok(flags.to_bytes())
}

pub(super) async fn set_flags(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let (wanted, mask, snap_id) =
        arguments(input, |r| Ok((r.u64()?, r.u64()?, optional::<u64>(r)?.unwrap_or(NOSNAP))))?;
    if snap_id == NOSNAP {
        let old = keys::find::<u64>(ctx, b"flags").await?.unwrap_or(0);
        return keys::write(ctx, b"flags", &(old & !mask | wanted & mask)).await;
    }
    let old: Snap = snapshots::read(ctx, snap_id).await?;
    let flags = old.flags & !mask | wanted & mask;
    snapshots::write(ctx, Snap { flags, ..old }).await
}

pub(super) async fn get_stripe_unit_count(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<Bytes, Errno> {
    check_exists(ctx).await?;
    require(ctx, features::STRIPINGV2).await?;
    let unit = match keys::find::<u64>(ctx, b"stripe_unit").await? {
        Some(unit) => unit,
        None => object_size(ctx).await.map_err(|_| Errno::EIO)?,
    };
    let count = keys::find::<u64>(ctx, b"stripe_count").await?.unwrap_or(1);
    Ok((unit, count).to_bytes())
}

pub(super) async fn set_stripe_unit_count(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let (unit, count): (u64, u64) = argument(input)?;
    if unit == 0 || count == 0 {
        return Err(Errno::EINVAL);
    }
    check_exists(ctx).await?;
    require(ctx, features::STRIPINGV2).await?;
    if object_size(ctx).await? % unit != 0 {
        return Err(Errno::EINVAL);
    }
    keys::write(ctx, b"stripe_unit", &unit).await?;
    keys::write(ctx, b"stripe_count", &count).await
}

/// Bytes of a data object.
async fn object_size(ctx: &mut dyn ObjectContext) -> Result<u64, Errno> {
    let order: u8 = keys::read(ctx, b"order").await?;
    1u64.checked_shl(order.into()).ok_or(Errno::EIO)
}

async fn time_at(ctx: &mut dyn ObjectContext, key: &[u8]) -> Result<Bytes, Errno> {
    let time = keys::find::<UTime>(ctx, key).await?.unwrap_or_default();
    Ok(time.to_bytes())
}

pub(super) async fn get_create_timestamp(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<Bytes, Errno> {
    time_at(ctx, b"create_timestamp").await
}

pub(super) async fn get_access_timestamp(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<Bytes, Errno> {
    time_at(ctx, b"access_timestamp").await
}

pub(super) async fn get_modify_timestamp(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<Bytes, Errno> {
    time_at(ctx, b"modify_timestamp").await
}

pub(super) async fn set_access_timestamp(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<(), Errno> {
    check_exists(ctx).await?;
    let now = ctx.now();
    keys::write(ctx, b"access_timestamp", &now).await
}

pub(super) async fn set_modify_timestamp(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<(), Errno> {
    check_exists(ctx).await?;
    let now = ctx.now();
    keys::write(ctx, b"modify_timestamp", &now).await
}

pub(super) async fn get_object_prefix(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<Bytes, Errno> {
    let prefix: BString = keys::read(ctx, b"object_prefix").await?;
    Ok(prefix.to_bytes())
}

pub(super) async fn get_data_pool(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    let pool = keys::find::<i64>(ctx, b"data_pool_id").await?.unwrap_or(-1);
    Ok(pool.to_bytes())
}

/// The newest snapshot id there ever was, and the ids of all, newest first.
pub(super) async fn get_snapcontext(
    ctx: &mut dyn ObjectContext,
    _: &Bytes,
) -> Result<Bytes, Errno> {
    let mut ids = snapshots::ids(ctx).await?;
    let seq: u64 = keys::read(ctx, b"snap_seq").await?;
    ids.reverse();
    let mut w = Writer::new();
    w.u64(seq);
    w.put(&ids);
    Ok(w.into_bytes())
}
