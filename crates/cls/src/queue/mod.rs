//! Class `queue`: a ring of entries in an object's data (`src/cls/queue/` at v16.2).
//!
//! The ring itself is in [`ring`]; `rgw_gc` and `2pc_queue` keep theirs with it and have a map of
//! their own in its head.

pub mod ring;
#[cfg(test)]
mod tests;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument};
use ring::Head;

/// Argument of `queue_init`. Wire: cls_queue_init_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct InitOp {
    /// Bytes of entries and what surrounds them.
    pub queue_size: u64,
    /// Bytes the user's own data in the head may have.
    pub max_urgent_data_size: u64,
    /// That data.
    pub urgent_data: Bytes,
}

/// Argument of `queue_enqueue`. Wire: cls_queue_enqueue_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct EnqueueOp {
    /// The entries.
    pub data: Vec<Bytes>,
}

/// Argument of `queue_list_entries`. Wire: cls_queue_list_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListOp {
    /// At most this many.
    pub max: u64,
    /// From this entry on; the oldest when empty.
    pub start_marker: BString,
}

/// An entry. Wire: cls_queue_entry v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Entry {
    /// What was queued.
    pub data: Bytes,
    /// Where it is.
    pub marker: BString,
}

/// Reply of `queue_list_entries`. Wire: cls_queue_list_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListRet {
    /// Whether there are more.
    pub is_truncated: bool,
    /// Where the next listing starts.
    pub next_marker: BString,
    /// The oldest first.
    pub entries: Vec<Entry>,
}

/// Argument of `queue_remove_entries`. Wire: cls_queue_remove_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct RemoveOp {
    /// Up to this entry, which stays.
    pub end_marker: BString,
}

/// Reply of `queue_get_capacity`. Wire: cls_queue_get_capacity_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetCapacityRet {
    /// Bytes of entries and what surrounds them.
    pub queue_capacity: u64,
}

/// The class.
pub const CLASS: Class = Class {
    name: "queue",
    methods: &[
        method!("queue_init", Flags::RD_WR, init),
        method!("queue_get_capacity", Flags::RD, get_capacity),
        method!("queue_enqueue", Flags::RD_WR, enqueue),
        method!("queue_list_entries", Flags::RD, list_entries),
        method!("queue_remove_entries", Flags::RD_WR, remove_entries),
    ],
    filters: &[],
};

async fn init(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    ring::init(ctx, argument(input)?).await
}

/// Also `2pc_queue_get_capacity`.
pub(crate) async fn get_capacity(ctx: &mut dyn ObjectContext, _: &Bytes) -> Result<Bytes, Errno> {
    Ok(GetCapacityRet { queue_capacity: Head::load(ctx).await?.capacity() }.to_bytes())
}

async fn enqueue(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: EnqueueOp = argument(input)?;
    let mut head = Head::load(ctx).await?;
    ring::enqueue(ctx, &mut head, &op.data).await?;
    head.store(ctx).await
}

/// Also `2pc_queue_list_entries`.
pub(crate) async fn list_entries(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let op: ListOp = argument(input)?;
    let head = Head::load(ctx).await?;
    Ok(ring::list(ctx, &head, &op).await?.to_bytes())
}

/// Also `2pc_queue_remove_entries`.
pub(crate) async fn remove_entries(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<(), Errno> {
    let op: RemoveOp = argument(input)?;
    let mut head = Head::load(ctx).await?;
    ring::remove(ctx, &mut head, &op.end_marker).await?;
    head.store(ctx).await
}
