//! `bucket_list`: a page of a bucket's listing.

use std::collections::BTreeMap;

use bstr::{BString, ByteSlice};
use bytes::Bytes;
use denc::Denc;
use types::Errno;

use super::entry::{DirEntry, FLAG_COMMON_PREFIX};
use super::header::{Dir, DirHeader};
use super::index;
use super::key::{self, ObjKey};
use crate::{ObjectContext, Output, argument};

/// Pages read for one listing: entries nobody sees must not keep an OSD busy for long.
const ATTEMPTS_MAX: u32 = 8;

/// Argument of `bucket_list`. Wire: rgw_cls_list_op v6.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 6, compat = 4, oldest = 4)]
pub struct ListOp {
    /// At most this many; 0 for the header alone.
    pub num_entries: u32,
    /// Only names that begin so.
    pub filter_prefix: BString,
    /// After this object.
    pub start_obj: ObjKey,
    /// Whether to show all versions and delete markers.
    #[denc(since = 5)]
    pub list_versions: bool,
    /// Names that are the same up to this, behind the prefix, are shown as one, unless empty.
    #[denc(since = 6)]
    pub delimiter: BString,
}

/// Reply of `bucket_list`. Wire: rgw_cls_list_ret v4; one of version 3 or more tells that names
/// have been put together at the delimiter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 4, compat = 2, oldest = 2)]
pub struct ListRet {
    /// Header and entries.
    pub dir: Dir,
    /// Whether there are more.
    pub is_truncated: bool,
    /// Where to go on, if there are more; there may be more where this page has none.
    #[denc(since = 4)]
    pub marker: ObjKey,
}

/// A page of plain and list entries. Special keys are left out, and what stands behind them takes
/// their place.
async fn page(
    ctx: &mut dyn ObjectContext,
    after: &[u8],
    prefix: &[u8],
    max: u64,
) -> Result<(BTreeMap<BString, Bytes>, bool), Errno> {
    let (mut vals, more) = ctx.omap_vals(after, prefix, max).await?;
    let found = vals.len();
    vals.retain(|key, _| key::is_plain(key));
    if vals.len() == found || vals.len() as u64 == max || !more {
        return Ok((vals, more));
    }
    let last = vals.keys().next_back().map_or(key::AFTER_SPECIAL, |key| key.as_slice());
    let after = last.max(key::AFTER_SPECIAL).to_vec();
    let (rest, more) = ctx.omap_vals(&after, prefix, max - vals.len() as u64).await?;
    vals.extend(rest);
    Ok((vals, more))
}

/// The key behind which a listing after an object begins.
async fn start_key(ctx: &mut dyn ObjectContext, start: &ObjKey) -> Result<BString, Errno> {
    if start.instance.is_empty() {
        return Ok(start.name.clone());
    }
    let instance_key = key::instance_key(&start.without_null());
    let entry: Option<DirEntry> = index::read(ctx, &instance_key).await?;
    Ok(match entry {
        Some(entry) => key::list_key(&entry.key, entry.versioned_epoch),
        None => key::after_name(&start.name),
    })
}

/// A listing under way.
struct Listing {
    op: ListOp,
    entries: BTreeMap<BString, DirEntry>,
    /// Where the next page begins, in keys and in names.
    after: BString,
    marker: ObjKey,
    /// The last prefix shown.
    last_prefix: BString,
}

impl Listing {
    fn is_full(&self) -> bool {
        self.entries.len() as u64 >= u64::from(self.op.num_entries)
    }

    /// Up to and with the delimiter, if a name has it behind the prefix.
    fn common_prefix<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        let (prefix_len, delimiter) = (self.op.filter_prefix.len(), &self.op.delimiter);
        if delimiter.is_empty() {
            return None;
        }
        let at = name.get(prefix_len..)?.find(delimiter)?;
        name.get(..prefix_len + at + delimiter.len())
    }

    /// Looks at one entry: whether to skip to [`Listing::after`].
    fn look_at(&mut self, index_key: &BString, entry: DirEntry) -> bool {
        self.after.clone_from(index_key);
        self.marker.clone_from(&entry.key);
        let Ok(name) = key::listed_name(index_key) else { return false };
        let is_hidden =
            !self.op.list_versions && (!entry.is_visible() || self.op.start_obj.name == name);
        if !entry.is_valid() || is_hidden {
            return false;
        }
        let Some(prefix) = self.common_prefix(name) else {
            if !self.is_full() {
                self.entries.insert(index_key.clone(), entry);
            }
            return false;
        };
        if self.last_prefix == prefix {
            return false;
        }
        self.last_prefix = prefix.into();
        if !self.is_full() {
            let key = ObjKey::of_name(prefix);
            let proxy = DirEntry { key, flags: FLAG_COMMON_PREFIX, ..DirEntry::default() };
            self.entries.insert(prefix.into(), proxy);
        }
        self.after = key::after_path(prefix);
        self.marker = ObjKey::of_name(self.after.clone());
        true
    }
}

pub(super) async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Output, Errno> {
    let op: ListOp = argument(input)?;
    let header = DirHeader::load(ctx).await?;
    if op.num_entries == 0 {
        let dir = Dir { header, ..Dir::default() };
        return Ok(ListRet { dir, ..ListRet::default() }.to_bytes().into());
    }
    // A start that cannot be read is the bucket's beginning.
    let mut after = start_key(ctx, &op.start_obj).await.unwrap_or_default();
    if !op.delimiter.is_empty() && after > op.filter_prefix && after.ends_with(&op.delimiter) {
        after = key::after_path(&after);
    }
    let mut listing = Listing {
        op,
        entries: BTreeMap::new(),
        after,
        marker: ObjKey::default(),
        last_prefix: BString::default(),
    };
    let (mut more, mut done) = (true, false);
    for _ in 0..ATTEMPTS_MAX {
        if !more || done || listing.is_full() {
            break;
        }
        let left = u64::from(listing.op.num_entries) - listing.entries.len() as u64;
        let prefix = listing.op.filter_prefix.clone();
        let after = listing.after.clone();
        let (vals, has_more) = page(ctx, &after, &prefix, left).await?;
        more = has_more;
        done = vals.is_empty();
        let mut skip_to = None;
        for (index_key, value) in vals {
            if skip_to.as_ref().is_some_and(|to| index_key < *to) {
                continue;
            }
            skip_to = None;
            let entry: DirEntry = argument(&value)?;
            if listing.look_at(&index_key, entry) {
                skip_to = Some(listing.after.clone());
            }
        }
    }
    let is_truncated = more && !done;
    let mut ret = ListRet { dir: Dir { header, entries: listing.entries }, ..ListRet::default() };
    if is_truncated {
        ret.is_truncated = true;
        ret.marker = listing.marker;
    }
    // Nothing to show, but somewhere to go on.
    let result = if is_truncated && ret.dir.entries.is_empty() { -Errno::EFBIG.0 } else { 0 };
    Ok(Output { result, data: ret.to_bytes() })
}
