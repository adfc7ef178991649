//! Resharding of buckets: the queue of those that shall be, and the mark in an index's header that
//! keeps writers off meanwhile.

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::{Errno, UTime};

use super::header::{DirHeader, InstanceEntry};
use super::index;
use crate::{ObjectContext, Output, argument, stored};

/// Entries of one listing.
const LIST_MAX: u32 = 1000;

/// A bucket that shall be resharded. Wire: cls_rgw_reshard_entry v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Entry {
    /// Since when.
    pub time: UTime,
    /// Tenant of the bucket.
    pub tenant: BString,
    /// Its name.
    pub bucket_name: BString,
    /// Its instance.
    pub bucket_id: BString,
    /// The instance that comes.
    pub new_instance_id: BString,
    /// Shards it has.
    pub old_num_shards: u32,
    /// Shards it shall have.
    pub new_num_shards: u32,
}

/// Argument of `reshard_add` and `reshard_get`. Wire: cls_rgw_reshard_add_op and
/// cls_rgw_reshard_get_op v1; also cls_rgw_reshard_get_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct OneEntry {
    /// The entry.
    pub entry: Entry,
}

/// Argument of `reshard_list`. Wire: cls_rgw_reshard_list_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListOp {
    /// At most this many, and never more than 1000.
    pub max: u32,
    /// After this key.
    pub marker: BString,
}

/// Reply of `reshard_list`. Wire: cls_rgw_reshard_list_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListRet {
    /// In the order of their keys.
    pub entries: Vec<Entry>,
    /// Whether there are more.
    pub is_truncated: bool,
}

/// Argument of `reshard_remove`. Wire: cls_rgw_reshard_remove_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct RemoveOp {
    /// Tenant of the bucket.
    pub tenant: BString,
    /// Its name.
    pub bucket_name: BString,
    /// Its instance; empty for any. Of another the entry stays.
    pub bucket_id: BString,
}

/// Argument of `set_bucket_resharding`, wire: cls_rgw_set_bucket_resharding_op v1; reply of
/// `get_bucket_resharding`, wire: cls_rgw_get_bucket_resharding_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct BucketState {
    /// The state.
    pub entry: InstanceEntry,
}

/// Argument of `clear_bucket_resharding` and `get_bucket_resharding`. Wire:
/// cls_rgw_clear_bucket_resharding_op and cls_rgw_get_bucket_resharding_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct NoArguments {}

/// Argument of `guard_bucket_resharding`. Wire: cls_rgw_guard_bucket_resharding_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GuardOp {
    /// The result while the bucket is resharded.
    pub ret_err: i32,
}

fn key(tenant: &[u8], bucket_name: &[u8]) -> BString {
    [tenant, b":", bucket_name].concat().into()
}

pub(super) async fn add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let OneEntry { entry } = argument(input)?;
    index::write(ctx, key(&entry.tenant, &entry.bucket_name), &entry).await
}

pub(super) async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ListOp = argument(input)?;
    let max = if op.max == 0 { LIST_MAX } else { op.max.min(LIST_MAX) };
    let (vals, is_truncated) = ctx.omap_vals(&op.marker, b"", max.into()).await?;
    // With a count of 0 a page is read and none of it shown.
    let entries = vals.values().take(op.max as usize).map(stored).collect::<Result<_, _>>()?;
    Ok(ListRet { entries, is_truncated }.to_bytes())
}

pub(super) async fn get(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let OneEntry { entry } = argument(input)?;
    let entry = index::read(ctx, &key(&entry.tenant, &entry.bucket_name)).await?;
    Ok(OneEntry { entry: entry.ok_or(Errno::ENOENT)? }.to_bytes())
}

pub(super) async fn remove(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: RemoveOp = argument(input)?;
    let key = key(&op.tenant, &op.bucket_name);
    let entry: Entry = index::read(ctx, &key).await?.ok_or(Errno::ENOENT)?;
    if !op.bucket_id.is_empty() && entry.bucket_id != op.bucket_id {
        return Ok(());
    }
    // The entry was there a moment ago.
    let _ = ctx.omap_rm(&key).await;
    Ok(())
}

pub(super) async fn set_bucket(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: BucketState = argument(input)?;
    let mut header = DirHeader::load(ctx).await?;
    header.new_instance = op.entry;
    header.store(ctx).await
}

pub(super) async fn clear_bucket(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let NoArguments {} = argument(input)?;
    let mut header = DirHeader::load(ctx).await?;
    // The number of shards stays, as in Ceph; nobody asks for it any more.
    let num_shards = header.new_instance.num_shards;
    header.new_instance = InstanceEntry { num_shards, ..InstanceEntry::default() };
    header.store(ctx).await
}

pub(super) async fn guard_bucket(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Output, Errno> {
    let op: GuardOp = argument(input)?;
    let header = DirHeader::load(ctx).await?;
    let result = if header.new_instance.is_resharding() { op.ret_err } else { 0 };
    Ok(Output { result, data: Bytes::new() })
}

pub(super) async fn get_bucket(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let NoArguments {} = argument(input)?;
    Ok(BucketState { entry: DirHeader::load(ctx).await?.new_instance }.to_bytes())
}
