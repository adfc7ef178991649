//! Class `timeindex`: values in omap under a time and a word (`src/cls/timeindex/` at v16.2).

use std::collections::BTreeMap;

use bstr::{BString, ByteSlice};
use bytes::Bytes;
use denc::Denc;
use types::{Errno, UTime};

use crate::log::{at_or_behind, time_prefix};
use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument};

const PREFIX: &[u8] = b"1_";
/// Entries of one listing.
const LIST_MAX: u64 = 1000;
/// Entries removed at once.
const TRIM_MAX: u64 = 1000;
/// Bytes of a word that a listing gives back.
const KEY_EXT_MAX_LEN: usize = 255;

/// An entry. Wire: cls_timeindex_entry v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Entry {
    /// The time; a listing gives it to the microsecond, with the microseconds in `nsec`.
    pub key_ts: UTime,
    /// The word.
    pub key_ext: BString,
    /// The value.
    pub value: Bytes,
}

/// Argument of `add`. Wire: cls_timeindex_add_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct AddOp {
    /// What to add.
    pub entries: Vec<Entry>,
}

/// Argument of `list`. Wire: cls_timeindex_list_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListOp {
    /// From here on, when there is no marker.
    pub from_time: UTime,
    /// After this key, unless empty.
    pub marker: BString,
    /// Up to here, when not before `from_time`.
    pub to_time: UTime,
    /// At most this many.
    pub max_entries: i32,
}

/// Reply of `list`. Wire: cls_timeindex_list_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListRet {
    /// In the order of their keys.
    pub entries: Vec<Entry>,
    /// Last key listed.
    pub marker: BString,
    /// Whether there are more.
    pub truncated: bool,
}

/// Argument of `trim`. Wire: cls_timeindex_trim_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct TrimOp {
    /// From here on, when there is no `from_marker`.
    pub from_time: UTime,
    /// Up to here, when there is no `to_marker`.
    pub to_time: UTime,
    /// After this key, unless empty.
    pub from_marker: BString,
    /// Up to keys that begin with this, unless empty.
    pub to_marker: BString,
}

/// The class.
pub const CLASS: Class = Class {
    name: "timeindex",
    methods: &[
        method!("add", Flags::RD_WR, add),
        method!("list", Flags::RD, list),
        method!("trim", Flags::RD_WR, trim),
    ],
    filters: &[],
};

/// Time and word of a key, as C's `sscanf("1_%d.%d_%255s")` finds them: it stops quietly where a
/// key is none of ours.
fn parse_key(key: &[u8]) -> (UTime, BString) {
    let mut time = UTime::ZERO;
    let number = |text: &[u8]| core::str::from_utf8(text).ok()?.parse::<u32>().ok();
    let Some((sec, rest)) = key.strip_prefix(PREFIX).and_then(|k| k.split_once_str(".")) else {
        return (time, BString::default());
    };
    time.sec = number(sec).unwrap_or(0);
    let Some((usec, word)) = rest.split_once_str("_") else { return (time, BString::default()) };
    time.nsec = number(usec).unwrap_or(0);
    let word = word.trim_ascii_start();
    let end = word.iter().position(u8::is_ascii_whitespace).unwrap_or(word.len());
    (time, BString::from(&word[..end.min(KEY_EXT_MAX_LEN)]))
}

async fn add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: AddOp = argument(input)?;
    for entry in op.entries {
        let mut key = time_prefix(entry.key_ts);
        key.extend_from_slice(&entry.key_ext);
        ctx.omap_set(BTreeMap::from([(key, entry.value)])).await?;
    }
    Ok(())
}

async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ListOp = argument(input)?;
    let from = if op.marker.is_empty() { time_prefix(op.from_time) } else { op.marker };
    let end = (op.to_time >= op.from_time).then(|| time_prefix(op.to_time));
    // A negative count is a huge unsigned one in Ceph.
    let max = u64::try_from(op.max_entries).map_or(LIST_MAX, |max| max.min(LIST_MAX));
    let (vals, truncated) = ctx.omap_vals(&from, PREFIX, max).await?;
    let mut ret = ListRet { truncated, ..ListRet::default() };
    for (key, value) in vals {
        if end.as_ref().is_some_and(|end| at_or_behind(&key, end)) {
            ret.truncated = false;
            break;
        }
        let (key_ts, key_ext) = parse_key(&key);
        ret.entries.push(Entry { key_ts, key_ext, value });
        ret.marker = key;
    }
    Ok(ret.to_bytes())
}

async fn trim(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: TrimOp = argument(input)?;
    let from = if op.from_marker.is_empty() { time_prefix(op.from_time) } else { op.from_marker };
    let end = if op.to_marker.is_empty() { time_prefix(op.to_time) } else { op.to_marker };
    let (vals, _) = ctx.omap_vals(&from, PREFIX, TRIM_MAX).await?;
    let mut removed = false;
    for key in vals.keys() {
        if key[..key.len().min(end.len())] > end[..] {
            break;
        }
        ctx.omap_rm(key).await?;
        removed = true;
    }
    if removed { Ok(()) } else { Err(Errno::ENODATA) }
}
