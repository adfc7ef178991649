//! Class `log`: time-ordered entries in omap, and a header with the newest
//! (`src/cls/log/` at v16.2).
//!
//! Keys are `1_SECONDS.MICROSECONDS_UNIQUE`, so that their order is the order of time.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::{Errno, UTime};

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument, stored};

const PREFIX: &str = "1_";
/// Entries of one listing.
const LIST_MAX: u64 = 1000;

/// An entry. Wire: cls_log_entry v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct Entry {
    /// First word, the client's own.
    pub section: BString,
    /// Second word, the client's own.
    pub name: BString,
    /// When.
    pub timestamp: UTime,
    /// What.
    pub data: Bytes,
    /// Its key; given by the class when empty.
    #[denc(since = 2)]
    pub id: BString,
}

/// The header. Wire: cls_log_header v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Header {
    /// Largest key ever written.
    pub max_marker: BString,
    /// Latest time ever written.
    pub max_time: UTime,
}

/// Argument of `add`. Wire: cls_log_add_op v2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AddOp {
    /// What to add.
    pub entries: Vec<Entry>,
    /// Whether an entry older than the newest takes the newest's time in its key.
    pub monotonic_inc: bool,
}

impl Denc for AddOp {
    fn encode(&self, w: &mut Writer) {
        w.envelope(2, 1, |w| {
            w.put(&self.entries);
            w.bool(self.monotonic_inc);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<AddOp, Error> {
        r.envelope("AddOp", 2, 1, |r, v| {
            let entries = r.get()?;
            Ok(AddOp { entries, monotonic_inc: v < 2 || r.bool()? })
        })
    }
}

/// Argument of `list`. Wire: cls_log_list_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListOp {
    /// From here on, when there is no marker.
    pub from_time: UTime,
    /// After this key, unless empty.
    pub marker: BString,
    /// Up to here, when both times are set and in order.
    pub to_time: UTime,
    /// At most this many; 0 for as many as allowed.
    pub max_entries: i32,
}

/// Reply of `list`. Wire: cls_log_list_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListRet {
    /// In the order of their keys.
    pub entries: Vec<Entry>,
    /// Last key looked at.
    pub marker: BString,
    /// Whether there are more.
    pub truncated: bool,
}

/// Argument of `trim`. Wire: cls_log_trim_op v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct TrimOp {
    /// From here on, when there is no `from_marker`.
    pub from_time: UTime,
    /// Up to and with here, when there is no `to_marker`.
    pub to_time: UTime,
    /// After this key, unless empty.
    #[denc(since = 2)]
    pub from_marker: BString,
    /// Up to and with this key, unless empty.
    #[denc(since = 2)]
    pub to_marker: BString,
}

/// Argument of `info`. Wire: cls_log_info_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct InfoOp {}

/// Reply of `info`. Wire: cls_log_info_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct InfoRet {
    /// The header.
    pub header: Header,
}

/// The class.
pub const CLASS: Class = Class {
    name: "log",
    methods: &[
        method!("add", Flags::RD_WR, add),
        method!("list", Flags::RD, list),
        method!("trim", Flags::RD_WR, trim),
        method!("info", Flags::RD, info),
    ],
    filters: &[],
};

/// What keys of that time begin with; also `timeindex`'s.
pub(crate) fn time_prefix(time: UTime) -> BString {
    BString::from(format!("{PREFIX}{:010}.{:06}_", time.sec, time.nsec / 1000))
}

/// Whether a key is at or behind a boundary prefix.
pub(crate) fn at_or_behind(key: &[u8], boundary: &[u8]) -> bool {
    key[..key.len().min(boundary.len())] >= *boundary
}

async fn load_header(ctx: &mut dyn ObjectContext) -> Result<Header, Errno> {
    let bytes = ctx.omap_header().await?;
    // A header that cannot be read counts as none.
    Ok(stored(&bytes).unwrap_or_default())
}

async fn add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: AddOp = argument(input)?;
    let mut header = load_header(ctx).await?;
    for mut entry in op.entries {
        let mut time = entry.timestamp;
        if op.monotonic_inc && time < header.max_time {
            time = header.max_time;
        } else if time > header.max_time {
            header.max_time = time;
        }
        if entry.id.is_empty() {
            entry.id = time_prefix(time);
            entry.id.extend_from_slice(ctx.subop_version().as_bytes());
        }
        if entry.id > header.max_marker {
            header.max_marker = entry.id.clone();
        }
        let value = entry.to_bytes();
        ctx.omap_set(BTreeMap::from([(entry.id, value)])).await?;
    }
    ctx.omap_set_header(header.to_bytes()).await
}

async fn list(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ListOp = argument(input)?;
    let from = if op.marker.is_empty() { time_prefix(op.from_time) } else { op.marker };
    let end =
        (!op.from_time.is_zero() && op.to_time >= op.from_time).then(|| time_prefix(op.to_time));
    let max = match u64::try_from(op.max_entries) {
        Ok(max @ 1..=LIST_MAX) => max,
        _ => LIST_MAX,
    };
    let (vals, truncated) = ctx.omap_vals(&from, PREFIX.as_bytes(), max).await?;
    let mut ret = ListRet { truncated, ..ListRet::default() };
    for (key, value) in vals {
        let is_past_end = end.as_ref().is_some_and(|end| at_or_behind(&key, end));
        ret.marker = key;
        if is_past_end {
            ret.truncated = false;
            break;
        }
        if let Ok(entry) = stored(&value) {
            ret.entries.push(entry);
        }
    }
    Ok(ret.to_bytes())
}

async fn trim(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: TrimOp = argument(input)?;
    let from = if op.from_marker.is_empty() { time_prefix(op.from_time) } else { op.from_marker };
    let end = if op.to_marker.is_empty() {
        time_prefix(op.to_time.plus(core::time::Duration::from_micros(1)))
    } else {
        let mut end = op.to_marker;
        end.push(0);
        end
    };
    let (keys, _) = ctx.omap_keys(&from, 1).await?;
    match keys.first() {
        Some(first) if end >= *first => ctx.omap_rm_range(first, &end).await,
        _ => Err(Errno::ENODATA),
    }
}

async fn info(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let InfoOp {} = argument(input)?;
    Ok(InfoRet { header: load_header(ctx).await? }.to_bytes())
}
