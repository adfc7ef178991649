//! Lifecycle: the buckets that have rules, in omap by their names, and in the header how far the
//! day's round has come.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::Errno;

use super::index;
use crate::{ObjectContext, argument, stored};

/// A bucket. Wire: cls_rgw_lc_entry v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Entry {
    /// Tenant, name and instance.
    pub bucket: BString,
    /// Since when it is worked on, in seconds since 1970.
    pub start_time: u64,
    /// How far it is.
    pub status: u32,
}

/// The header. Wire: cls_rgw_lc_obj_head v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjHead {
    /// When the round began, in seconds since 1970.
    pub start_date: u64,
    /// The last bucket taken.
    pub marker: BString,
}

/// Argument of `lc_set_entry` and `lc_rm_entry`. Wire: cls_rgw_lc_set_entry_op and
/// cls_rgw_lc_rm_entry_op v2; also cls_rgw_lc_get_next_entry_ret v2. Version 1 has no start time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OneEntry {
    /// The entry.
    pub entry: Entry,
}

impl Denc for OneEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 2, |w| w.put(&self.entry));
    }

    fn decode(r: &mut Reader<'_>) -> Result<OneEntry, Error> {
        r.envelope("lc OneEntry", 2, 1, |r, v| {
            let entry = if v >= 2 { r.get()? } else { old_entry(r)? };
            Ok(OneEntry { entry })
        })
    }
}

/// A name and an int.
fn old_entry(r: &mut Reader<'_>) -> Result<Entry, Error> {
    Ok(Entry { bucket: r.get()?, start_time: 0, status: r.u32()? })
}

/// Argument of `lc_get_entry` and `lc_get_next_entry`. Wire: cls_rgw_lc_get_entry_op and
/// cls_rgw_lc_get_next_entry_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct MarkerOp {
    /// The bucket, or after which one.
    pub marker: BString,
}

/// Reply of `lc_get_entry`. Wire: cls_rgw_lc_get_entry_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetEntryRet {
    /// The entry.
    pub entry: Entry,
}

/// Argument of `lc_put_head`, wire: cls_rgw_lc_put_head_op v1; reply of `lc_get_head`, wire:
/// cls_rgw_lc_get_head_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Head {
    /// The header.
    pub head: ObjHead,
}

/// Argument of `lc_list_entries`. Wire: cls_rgw_lc_list_entries_op v3.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListOp {
    /// After this bucket.
    pub marker: BString,
    /// At most this many.
    pub max_entries: u32,
    /// Version of the caller's encoding, which the reply takes.
    pub compat_v: u8,
}

impl Denc for ListOp {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.put(&self.marker);
            w.u32(self.max_entries);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<ListOp, Error> {
        r.envelope("lc ListOp", 3, 1, |r, v| {
            Ok(ListOp { marker: r.get()?, max_entries: r.u32()?, compat_v: v })
        })
    }
}

/// Reply of `lc_list_entries`. Wire: cls_rgw_lc_list_entries_ret v3, or a map of status by bucket
/// in the version of an older caller.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListRet {
    /// In the order of their buckets.
    pub entries: Vec<Entry>,
    /// Whether there are more.
    pub is_truncated: bool,
    /// Version of the encoding.
    pub compat_v: u8,
}

impl Denc for ListRet {
    fn encode(&self, w: &mut Writer) {
        w.envelope(self.compat_v, 1, |w| {
            if self.compat_v <= 2 {
                let pair = |entry: &Entry| (entry.bucket.clone(), entry.status);
                w.put(&self.entries.iter().map(pair).collect::<BTreeMap<_, _>>());
            } else {
                w.put(&self.entries);
            }
            w.bool(self.is_truncated);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<ListRet, Error> {
        r.envelope("lc ListRet", 3, 1, |r, v| {
            let entries = if v <= 2 {
                let count = r.count(8)?;
                (0..count).map(|_| old_entry(r)).collect::<Result<_, _>>()?
            } else {
                r.get()?
            };
            let is_truncated = if v >= 2 { r.bool()? } else { false };
            Ok(ListRet { entries, is_truncated, compat_v: v })
        })
    }
}

/// A stored entry, also one from before it had a start time.
fn stored_entry(bytes: &Bytes) -> Result<Entry, Errno> {
    stored(bytes).or_else(|_| old_entry(&mut Reader::new(bytes)).map_err(|_| Errno::EIO))
}

pub(super) async fn get_entry(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: MarkerOp = argument(input)?;
    let entry = index::read(ctx, &op.marker).await?.ok_or(Errno::ENOENT)?;
    Ok(GetEntryRet { entry }.to_bytes())
}

pub(super) async fn set_entry(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let OneEntry { entry } = argument(input)?;
    index::write(ctx, entry.bucket.clone(), &entry).await
}

pub(super) async fn rm_entry(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let OneEntry { entry } = argument(input)?;
    ctx.omap_rm(&entry.bucket).await
}

pub(super) async fn get_next_entry(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let op: MarkerOp = argument(input)?;
    let (vals, _) = ctx.omap_vals(&op.marker, b"", 1).await?;
    let entry = vals.values().next().map(stored).transpose()?.unwrap_or_default();
    Ok(OneEntry { entry }.to_bytes())
}

pub(super) async fn put_head(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let Head { head } = argument(input)?;
    ctx.omap_set_header(head.to_bytes()).await
}

pub(super) async fn get_head(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<Bytes, Errno> {
    let bytes = ctx.omap_header().await?;
    let head = if bytes.is_empty() { ObjHead::default() } else { argument(&bytes)? };
    Ok(Head { head }.to_bytes())
}

pub(super) async fn list_entries(
    ctx: &mut dyn ObjectContext,
    input: &Bytes,
) -> Result<Bytes, Errno> {
    let op: ListOp = argument(input)?;
    let (vals, is_truncated) = ctx.omap_vals(&op.marker, b"", op.max_entries.into()).await?;
    let entries = vals.values().map(stored_entry).collect::<Result<_, _>>()?;
    Ok(ListRet { entries, is_truncated, compat_v: op.compat_v }.to_bytes())
}
