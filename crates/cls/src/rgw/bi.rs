//! Raw entries of a bucket index, for resharding and for `radosgw-admin`: read, written, listed.
//!
//! A listing goes over four ranges: plain entries below the special keys, instances, OLHs, plain
//! entries above. It is no walk from key to key because it may be of one name only, which has a
//! piece of each range.

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::entry::DirEntry;
use super::key::{self, ObjKey};
use super::olh::OlhEntry;
use crate::{ObjectContext, argument, stored};

/// Entries of one listing.
const LIST_MAX: u32 = 1000;

/// Kind of an entry. Wire: BIIndexType: of the object or of listings.
pub const PLAIN: u8 = 1;
/// Of a version.
pub const INSTANCE: u8 = 2;
/// Of the versions of a name.
pub const OLH: u8 = 3;

/// An entry. Wire: rgw_cls_bi_entry v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct BiEntry {
    /// [`PLAIN`], [`INSTANCE`] or [`OLH`].
    pub kind: u8,
    /// Key.
    pub idx: BString,
    /// Value.
    pub data: Bytes,
}

/// Argument of `bi_get`. Wire: rgw_cls_bi_get_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetOp {
    /// The object.
    pub key: ObjKey,
    /// Which of its entries.
    pub kind: u8,
}

/// Reply of `bi_get`, wire: rgw_cls_bi_get_ret v1; argument of `bi_put`, wire: rgw_cls_bi_put_op
/// v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct OneEntry {
    /// The entry.
    pub entry: BiEntry,
}

/// Argument of `bi_list`. Wire: rgw_cls_bi_list_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListOp {
    /// At most this many, and never more than 1000.
    pub max: u32,
    /// Only this object, unless empty.
    pub name_filter: BString,
    /// After this key.
    pub marker: BString,
}

/// Reply of `bi_list`. Wire: rgw_cls_bi_list_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListRet {
    /// The entries.
    pub entries: Vec<BiEntry>,
    /// Whether there are more.
    pub is_truncated: bool,
}

pub(super) async fn get(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: GetOp = argument(input)?;
    let idx = match op.kind {
        PLAIN => op.key.name,
        INSTANCE => key::entry_key(&op.key),
        OLH => key::olh_key(&op.key.name),
        _ => return Err(Errno::EINVAL),
    };
    let data = ctx.omap_val(&idx).await?;
    Ok(OneEntry { entry: BiEntry { kind: op.kind, idx, data } }.to_bytes())
}

pub(super) async fn put(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let OneEntry { entry } = argument(input)?;
    ctx.omap_set([(entry.idx, entry.data)].into()).await
}

/// Which side of the special keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Below,
    Above,
}

/// Adds up to `max` plain entries after the marker, all or those of one name; whether there are
/// more on this side.
pub(super) async fn list_plain(
    ctx: &mut dyn ObjectContext,
    name: &BString,
    marker: &BString,
    max: u32,
    side: Side,
    entries: &mut Vec<BiEntry>,
) -> Result<bool, Errno> {
    let after = match side {
        Side::Below if *marker >= [key::SPECIAL] => return Ok(false),
        Side::Below => marker.clone(),
        Side::Above => marker.clone().max(key::SPECIAL_END.into()),
    };
    let (vals, more) = ctx.omap_vals(&after, name, max.into()).await?;
    for (idx, data) in vals {
        if side == Side::Below && idx >= [key::SPECIAL] {
            return Ok(false);
        }
        let entry: DirEntry = stored(&data)?;
        // The prefix is right, the name may be longer.
        if !name.is_empty() && entry.key.name > *name {
            return Ok(false);
        }
        entries.push(BiEntry { kind: PLAIN, idx, data });
    }
    Ok(more)
}

/// Adds up to `max` instances or OLHs after the marker, all or those of one name; whether there
/// are more.
pub(super) async fn list_special(
    ctx: &mut dyn ObjectContext,
    kind: u8,
    name: &BString,
    marker: &BString,
    max: u32,
    entries: &mut Vec<BiEntry>,
) -> Result<bool, Errno> {
    // A page before has ended among the plain keys above, and all special ones were listed.
    if key::is_plain(marker) && *marker > [key::SPECIAL] {
        return Ok(false);
    }
    let first: BString = match (kind, name.is_empty()) {
        (INSTANCE, true) => key::INSTANCE.into(),
        (INSTANCE, false) => key::instance_key(&ObjKey::of_name(name.clone())),
        (_, true) => key::OLH.into(),
        (_, false) => key::olh_key(name),
    };
    let after = if key::is_behind(marker, &first) { marker } else { &first };
    // A name's own key may be there, and a listing after a key leaves it out.
    let exact = match ctx.omap_val(after).await {
        Err(Errno::ENOENT) => None,
        other => Some(other?).filter(|_| after != marker),
    };
    let left = max.saturating_sub(u32::from(exact.is_some())).max(1);
    let (vals, more) = ctx.omap_vals(after, b"", left.into()).await?;
    let exact = exact.map(|data| (after.clone(), data));
    let end = entries.len() + max as usize;
    for (idx, data) in exact.into_iter().chain(vals) {
        let is_of_name = |other: &BString| name.is_empty() || other == name;
        let is_listed = idx.starts_with(&first)
            && match kind {
                INSTANCE => is_of_name(&stored::<DirEntry>(&data)?.key.name),
                _ => is_of_name(&stored::<OlhEntry>(&data)?.key.name),
            };
        if !is_listed {
            return Ok(false);
        }
        // One more is looked at than there is room for: else the last of a full page would hide
        // that there are others.
        if entries.len() == end {
            return Ok(true);
        }
        entries.push(BiEntry { kind, idx, data });
    }
    Ok(more)
}

pub(super) async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ListOp = argument(input)?;
    let max = op.max.min(LIST_MAX);
    let mut ret = ListRet::default();
    let (name, marker) = (&op.name_filter, &op.marker);
    let room = |entries: &Vec<BiEntry>| max - entries.len().min(max as usize) as u32;
    let entries = &mut ret.entries;
    let mut more = list_plain(ctx, name, marker, max, Side::Below, entries).await?;
    for kind in [INSTANCE, OLH] {
        if !more {
            let room = room(entries);
            more = list_special(ctx, kind, name, marker, room, entries).await?;
        }
    }
    if !more {
        let room = room(entries);
        more = list_plain(ctx, name, marker, room, Side::Above, entries).await?;
    }
    ret.is_truncated = more;
    Ok(ret.to_bytes())
}
