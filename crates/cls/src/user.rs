//! Class `user`: the buckets of an S3 user in omap and their sums in the header
//! (`src/cls/user/` at v16.2).

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::{Errno, UTime};

use crate::registry::class_method as method;
use crate::{Class, Flags, ObjectContext, argument, stored};

/// Buckets of one listing, and of one step of a sum.
const LIST_MAX: u64 = 1000;

/// A bucket. Wire: cls_user_bucket v9 with a placement, v7 without.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Bucket {
    /// Name, the key of the entry.
    pub name: BString,
    /// What its objects' names begin with.
    pub marker: BString,
    /// Id of the instance.
    pub bucket_id: BString,
    /// Placement target; empty in old buckets, which name their pools.
    pub placement_id: BString,
    /// Pool of the data, in old buckets.
    pub data_pool: BString,
    /// Pool of the index, in old buckets.
    pub index_pool: BString,
    /// Pool of the multipart data, in old buckets.
    pub data_extra_pool: BString,
}

impl Denc for Bucket {
    fn encode(&self, w: &mut Writer) {
        if self.placement_id.is_empty() {
            w.envelope(7, 3, |w| {
                w.put(&self.name);
                w.put(&self.data_pool);
                w.put(&self.marker);
                w.put(&self.bucket_id);
                w.put(&self.index_pool);
                w.put(&self.data_extra_pool);
            });
        } else {
            w.envelope(9, 8, |w| {
                w.put(&self.name);
                w.put(&self.marker);
                w.put(&self.bucket_id);
                w.put(&self.placement_id);
            });
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Bucket, Error> {
        r.envelope("Bucket", 8, 4, |r, v| {
            let mut b = Bucket { name: r.get()?, ..Bucket::default() };
            if v < 8 {
                b.data_pool = r.get()?;
            }
            b.marker = r.get()?;
            b.bucket_id = r.get()?;
            if v < 8 {
                b.index_pool = if v >= 5 { r.get()? } else { b.data_pool.clone() };
                if v >= 7 {
                    b.data_extra_pool = r.get()?;
                }
            } else {
                b.placement_id = r.get()?;
                if v == 8 && b.placement_id.is_empty() {
                    b.data_pool = r.get()?;
                    b.index_pool = r.get()?;
                    b.data_extra_pool = r.get()?;
                }
            }
            Ok(b)
        })
    }
}

/// A bucket and its figures. Wire: cls_user_bucket_entry v9.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BucketEntry {
    /// The bucket.
    pub bucket: Bucket,
    /// Bytes.
    pub size: u64,
    /// Bytes, each object rounded up.
    pub size_rounded: u64,
    /// When it was made.
    pub creation_time: UTime,
    /// Objects.
    pub count: u64,
    /// Whether the header's sums hold it.
    pub user_stats_sync: bool,
}

impl Denc for BucketEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(9, 5, |w| {
            w.u32(0); // the name, before the bucket had it
            w.u64(self.size);
            w.u32(self.creation_time.sec);
            w.u64(self.count);
            w.put(&self.bucket);
            w.u64(self.size_rounded);
            w.bool(self.user_stats_sync);
            w.put(&self.creation_time);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<BucketEntry, Error> {
        r.envelope("BucketEntry", 9, 5, |r, v| {
            r.blob_slice()?;
            let mut e = BucketEntry { size: r.u64()?, ..BucketEntry::default() };
            e.creation_time.sec = r.u32()?;
            e.count = r.u64()?;
            e.bucket = r.get()?;
            e.size_rounded = r.u64()?;
            if v >= 6 {
                e.user_stats_sync = r.bool()?;
            }
            if v >= 7 {
                e.creation_time = r.get()?;
            }
            if v == 8 {
                r.blob_slice()?;
            }
            Ok(e)
        })
    }
}

/// Sums over buckets. Wire: cls_user_stats v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Stats {
    /// Objects.
    pub total_entries: u64,
    /// Bytes.
    pub total_bytes: u64,
    /// Bytes, each object rounded up.
    pub total_bytes_rounded: u64,
}

impl Stats {
    fn add(&mut self, e: &BucketEntry) {
        self.total_entries = self.total_entries.wrapping_add(e.count);
        self.total_bytes = self.total_bytes.wrapping_add(e.size);
        self.total_bytes_rounded = self.total_bytes_rounded.wrapping_add(e.size_rounded);
    }

    fn sub(&mut self, e: &BucketEntry) {
        self.total_entries = self.total_entries.wrapping_sub(e.count);
        self.total_bytes = self.total_bytes.wrapping_sub(e.size);
        self.total_bytes_rounded = self.total_bytes_rounded.wrapping_sub(e.size_rounded);
    }
}

/// The header. Wire: cls_user_header v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct Header {
    /// Sums.
    pub stats: Stats,
    /// When all buckets were last summed up.
    pub last_stats_sync: UTime,
    /// When the sums last changed.
    pub last_stats_update: UTime,
}

/// Argument of `set_buckets_info`. Wire: cls_user_set_buckets_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct SetBucketsOp {
    /// The buckets.
    pub entries: Vec<BucketEntry>,
    /// Whether to make entries for those that have none.
    pub add: bool,
    /// Now, for the header.
    pub time: UTime,
}

/// Argument of `remove_bucket`. Wire: cls_user_remove_bucket_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct RemoveBucketOp {
    /// The bucket.
    pub bucket: Bucket,
}

/// Argument of `list_buckets`. Wire: cls_user_list_buckets_op v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct ListBucketsOp {
    /// After this name.
    pub marker: BString,
    /// At most this many.
    pub max_entries: i32,
    /// Up to this name, unless empty.
    #[denc(since = 2)]
    pub end_marker: BString,
}

/// Reply of `list_buckets`. Wire: cls_user_list_buckets_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ListBucketsRet {
    /// In the order of their names.
    pub entries: Vec<BucketEntry>,
    /// Where to go on; empty when that was all.
    pub marker: BString,
    /// Whether there are more.
    pub truncated: bool,
}

/// Argument of `get_header`. Wire: cls_user_get_header_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetHeaderOp {}

/// Reply of `get_header`. Wire: cls_user_get_header_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct GetHeaderRet {
    /// The header.
    pub header: Header,
}

/// Argument of `complete_stats_sync` and `reset_user_stats`. Wire:
/// cls_user_complete_stats_sync_op v1, cls_user_reset_stats_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct TimeOp {
    /// Now, for the header.
    pub time: UTime,
}

/// Argument of `reset_user_stats2`. Wire: cls_user_reset_stats2_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ResetStats2Op {
    /// Now, for the header.
    pub time: UTime,
    /// Where the last call stopped.
    pub marker: BString,
    /// The sums so far.
    pub acc_stats: Stats,
}

/// Reply of `reset_user_stats2`. Wire: cls_user_reset_stats2_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ResetStats2Ret {
    /// Where to go on.
    pub marker: BString,
    /// The sums up to here.
    pub acc_stats: Stats,
    /// Whether there is a next step.
    pub truncated: bool,
}

/// The class.
pub const CLASS: Class = Class {
    name: "user",
    methods: &[
        method!("set_buckets_info", Flags::RD_WR, set_buckets_info),
        method!("complete_stats_sync", Flags::RD_WR, complete_stats_sync),
        method!("remove_bucket", Flags::RD_WR, remove_bucket),
        method!("list_buckets", Flags::RD, list_buckets),
        method!("get_header", Flags::RD, get_header),
        method!("reset_user_stats", Flags::RD_WR, reset_user_stats),
        method!("reset_user_stats2", Flags::RD_WR, reset_user_stats2),
    ],
    filters: &[],
};

async fn load_header(ctx: &mut dyn ObjectContext) -> Result<Header, Errno> {
    let bytes = ctx.omap_header().await?;
    if bytes.is_empty() { Ok(Header::default()) } else { stored(&bytes) }
}

async fn store_header(ctx: &mut dyn ObjectContext, header: &Header) -> Result<(), Errno> {
    ctx.omap_set_header(header.to_bytes()).await
}

/// The entry of a bucket, if it has one.
async fn load_entry(
    ctx: &mut dyn ObjectContext,
    name: &BString,
) -> Result<Option<BucketEntry>, Errno> {
    if name.is_empty() {
        return Err(Errno::EINVAL);
    }
    match ctx.omap_val(name).await {
        Err(Errno::ENOENT) => Ok(None),
        other => stored(&other?).map(Some),
    }
}

async fn set_buckets_info(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: SetBucketsOp = argument(input)?;
    let mut header = load_header(ctx).await?;
    for update in op.entries {
        let key = update.bucket.name.clone();
        let mut entry = match load_entry(ctx, &key).await? {
            Some(mut entry) => {
                if op.add {
                    // The bucket may have been resharded or made anew.
                    entry.bucket.bucket_id = update.bucket.bucket_id.clone();
                    entry.creation_time = update.creation_time;
                }
                entry
            }
            None if op.add => update.clone(),
            None => continue,
        };
        if entry.user_stats_sync {
            header.stats.sub(&entry);
        }
        if !op.add {
            entry.size = update.size;
            entry.size_rounded = update.size_rounded;
            entry.count = update.count;
        }
        entry.user_stats_sync = true;
        ctx.omap_set(BTreeMap::from([(key, entry.to_bytes())])).await?;
        header.stats.add(&entry);
    }
    header.last_stats_update = header.last_stats_update.max(op.time);
    store_header(ctx, &header).await
}

async fn complete_stats_sync(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: TimeOp = argument(input)?;
    let mut header = load_header(ctx).await?;
    header.last_stats_sync = header.last_stats_sync.max(op.time);
    store_header(ctx, &header).await
}

async fn remove_bucket(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: RemoveBucketOp = argument(input)?;
    let mut header = load_header(ctx).await?;
    let Some(entry) = load_entry(ctx, &op.bucket.name).await? else { return Ok(()) };
    ctx.omap_rm(&op.bucket.name).await?;
    if !entry.user_stats_sync {
        return Ok(());
    }
    header.stats.sub(&entry);
    store_header(ctx, &header).await
}

async fn list_buckets(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ListBucketsOp = argument(input)?;
    // A negative count is a huge unsigned one in Ceph.
    let max = u64::try_from(op.max_entries).map_or(LIST_MAX, |max| max.min(LIST_MAX));
    let (vals, truncated) = ctx.omap_vals(&op.marker, b"", max).await?;
    let mut ret = ListBucketsRet { truncated, ..ListBucketsRet::default() };
    let mut marker = BString::default();
    for (key, value) in vals {
        let is_past_end = !op.end_marker.is_empty() && op.end_marker <= key;
        marker = key;
        if is_past_end {
            ret.truncated = false;
            break;
        }
        if let Ok(entry) = stored(&value) {
            ret.entries.push(entry);
        }
    }
    if ret.truncated {
        ret.marker = marker;
    }
    Ok(ret.to_bytes())
}

async fn get_header(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let GetHeaderOp {} = argument(input)?;
    Ok(GetHeaderRet { header: load_header(ctx).await? }.to_bytes())
}

/// Adds one step's entries to `stats`; the last key of the step and whether there are more.
async fn sum_step(
    ctx: &mut dyn ObjectContext,
    after: &BString,
    stats: &mut Stats,
) -> Result<(Option<BString>, bool), Errno> {
    let (vals, more) = ctx.omap_vals(after, b"", LIST_MAX).await?;
    for value in vals.values() {
        stats.add(&stored(value)?);
    }
    Ok((vals.into_keys().next_back(), more))
}

async fn reset_user_stats(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: TimeOp = argument(input)?;
    let mut header = Header { last_stats_update: op.time, ..Header::default() };
    let mut after = BString::default();
    loop {
        let (last, more) = sum_step(ctx, &after, &mut header.stats).await?;
        match last {
            Some(last) if more => after = last,
            _ => break,
        }
    }
    store_header(ctx, &header).await
}

async fn reset_user_stats2(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ResetStats2Op = argument(input)?;
    // 16.2 leaves out what the steps before have summed: the header then had the last step's buckets alone.
    let mut ret = ResetStats2Ret { acc_stats: op.acc_stats, ..ResetStats2Ret::default() };
    let (last, more) = sum_step(ctx, &op.marker, &mut ret.acc_stats).await?;
    ret.truncated = more;
    ret.marker = last.unwrap_or_default();
    if !more {
        let header = Header {
            stats: ret.acc_stats.clone(),
            last_stats_update: op.time,
            ..Header::default()
        };
        store_header(ctx, &header).await?;
    }
    Ok(ret.to_bytes())
}
