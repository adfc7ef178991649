//! The usage log: who moved how many bytes in which hour, in omap by time and by user.
//!
//! ```text
//! epoch_user_bucket
//! user_epoch_bucket         epoch: eleven digits, seconds since 1970 of the hour's beginning
//! ```

use std::collections::BTreeMap;

use bstr::{BString, ByteSlice};
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::Errno;

use super::index;
use crate::{ObjectContext, argument};

/// Entries of one page, if the caller does not care.
const READ_DEFAULT: u32 = 1000;
/// Entries looked at by one trim.
const TRIM_MAX: u32 = 1000;

/// Sums. Wire: rgw_usage_data v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct UsageData {
    /// Bytes to clients.
    pub bytes_sent: u64,
    /// Bytes from clients.
    pub bytes_received: u64,
    /// Requests.
    pub ops: u64,
    /// Those that went well.
    pub successful_ops: u64,
}

impl UsageData {
    fn add(&mut self, other: &UsageData) {
        self.bytes_sent = self.bytes_sent.wrapping_add(other.bytes_sent);
        self.bytes_received = self.bytes_received.wrapping_add(other.bytes_received);
        self.ops = self.ops.wrapping_add(other.ops);
        self.successful_ops = self.successful_ops.wrapping_add(other.successful_ops);
    }
}

/// A user: `id`, `tenant$id` or `tenant$namespace$id`. Wire: rgw_user's text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// Tenant.
    pub tenant: BString,
    /// Namespace.
    pub ns: BString,
    /// Id.
    pub id: BString,
}

impl User {
    /// The parts of a user's text.
    pub fn parse(text: &[u8]) -> User {
        let Some((tenant, rest)) = text.split_once_str(b"$") else {
            return User { id: text.into(), ..User::default() };
        };
        let (ns, id) = rest.split_once_str(b"$").unwrap_or((b"", rest));
        User { tenant: tenant.into(), ns: ns.into(), id: id.into() }
    }

    /// The text, without what is empty.
    pub fn text(&self) -> BString {
        let User { tenant, ns, id } = self;
        match (tenant.is_empty(), ns.is_empty()) {
            (true, true) => id.clone(),
            (false, true) => [tenant, b"$".as_slice(), id].concat().into(),
            (_, false) => [tenant, b"$".as_slice(), ns, b"$", id].concat().into(),
        }
    }
}

impl Denc for User {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.text());
    }

    fn decode(r: &mut Reader<'_>) -> Result<User, Error> {
        Ok(User::parse(r.blob_slice()?))
    }
}

/// A bucket's usage in one hour. Wire: rgw_usage_log_entry v3.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogEntry {
    /// The bucket's owner.
    pub owner: User,
    /// Who pays, if not the owner.
    pub payer: User,
    /// The bucket.
    pub bucket: BString,
    /// The hour, in seconds since 1970.
    pub epoch: u64,
    /// Sums over all categories.
    pub total: UsageData,
    /// Sums by category, as `put_obj`.
    pub by_category: BTreeMap<BString, UsageData>,
}

impl Denc for LogEntry {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 1, |w| {
            w.put(&self.owner);
            w.put(&self.bucket);
            w.u64(self.epoch);
            w.u64(self.total.bytes_sent);
            w.u64(self.total.bytes_received);
            w.u64(self.total.ops);
            w.u64(self.total.successful_ops);
            w.put(&self.by_category);
            w.put(&self.payer);
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<LogEntry, Error> {
        r.envelope("usage LogEntry", 3, 2, |r, v| {
            let mut e = LogEntry { owner: r.get()?, bucket: r.get()?, ..LogEntry::default() };
            e.epoch = r.u64()?;
            e.total.bytes_sent = r.u64()?;
            e.total.bytes_received = r.u64()?;
            e.total.ops = r.u64()?;
            e.total.successful_ops = r.u64()?;
            e.by_category = r.get()?;
            if v >= 3 {
                e.payer = r.get()?;
            }
            Ok(e)
        })
    }
}

impl LogEntry {
    fn who(&self) -> &User {
        if self.payer.id.is_empty() { &self.owner } else { &self.payer }
    }

    /// Adds another's sums; one without an owner becomes the other.
    fn aggregate(&mut self, other: &LogEntry) {
        if self.owner.id.is_empty() {
            self.owner = other.owner.clone();
            self.bucket = other.bucket.clone();
            self.epoch = other.epoch;
            self.payer = other.payer.clone();
        }
        for (category, data) in &other.by_category {
            self.by_category.entry(category.clone()).or_default().add(data);
            self.total.add(data);
        }
    }

    fn keys(&self, user: &User) -> [BString; 2] {
        let (user, epoch) = (user.text(), format!("{:011}", self.epoch));
        [(epoch.as_bytes(), &user[..]), (&user, epoch.as_bytes())]
            .map(|(first, second)| [first, second, &self.bucket].join(&b'_').into())
    }
}

/// Usage of several buckets. Wire: rgw_usage_log_info v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct LogInfo {
    /// The entries.
    pub entries: Vec<LogEntry>,
}

/// Argument of `user_usage_log_add`. Wire: rgw_cls_usage_log_add_op v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct AddOp {
    /// What to add.
    pub info: LogInfo,
    /// Whose, which the entries say themselves.
    #[denc(since = 2)]
    pub user: User,
}

/// Argument of `user_usage_log_read`. Wire: rgw_cls_usage_log_read_op v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 1)]
pub struct ReadOp {
    /// From this hour on.
    pub start_epoch: u64,
    /// Before this one.
    pub end_epoch: u64,
    /// Only this user's, unless empty.
    pub owner: BString,
    /// After this key, unless empty.
    pub iter: BString,
    /// At most so many entries are looked at, 0 for 1000.
    pub max_entries: u32,
    /// Only this bucket's, unless empty.
    #[denc(since = 2)]
    pub bucket: BString,
}

/// Reply of `user_usage_log_read`. Wire: rgw_cls_usage_log_read_ret v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ReadRet {
    /// Sums over the hours, by user and bucket.
    pub usage: BTreeMap<UserBucket, LogEntry>,
    /// Whether there are more.
    pub truncated: bool,
    /// Where to go on, if there are more.
    pub next_iter: BString,
}

/// A user's bucket. Wire: rgw_user_bucket v1.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct UserBucket {
    /// The user.
    pub user: BString,
    /// The bucket.
    pub bucket: BString,
}

/// Argument of `user_usage_log_trim`. Wire: rgw_cls_usage_log_trim_op v3.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 3, compat = 2, oldest = 2)]
pub struct TrimOp {
    /// From this hour on.
    pub start_epoch: u64,
    /// Before this one.
    pub end_epoch: u64,
    /// Only this user's, unless empty.
    pub user: BString,
    /// Only this bucket's, unless empty.
    #[denc(since = 3)]
    pub bucket: BString,
}

pub(super) async fn add(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: AddOp = argument(input)?;
    for mut entry in op.info.entries {
        let [by_time, by_user] = entry.keys(entry.who());
        match ctx.omap_val(&by_time).await {
            Ok(bytes) => entry.aggregate(&argument(&bytes)?),
            Err(Errno::ENOENT) => {}
            Err(_) => return Err(Errno::EINVAL),
        }
        index::write(ctx, by_time, &entry).await?;
        index::write(ctx, by_user, &entry).await?;
    }
    Ok(())
}

/// Which entries are wanted.
struct Range<'a> {
    start: u64,
    end: u64,
    user: &'a BString,
    bucket: &'a BString,
}

/// One page of a range.
#[derive(Default)]
struct Page {
    entries: Vec<LogEntry>,
    /// The last key looked at.
    last: BString,
    truncated: bool,
}

async fn page(
    ctx: &mut dyn ObjectContext,
    range: &Range<'_>,
    after: &BString,
    max: u32,
) -> Result<Page, Errno> {
    let by_user = !range.user.is_empty();
    let start = format!("{:011}", range.start);
    let after = match (after.is_empty(), by_user) {
        (false, _) => after.clone(),
        (true, true) => [range.user, b"_".as_slice(), start.as_bytes(), b"_"].concat().into(),
        (true, false) => start.into(),
    };
    let user_prefix = [range.user, b"_".as_slice()].concat();
    let end_key = format!("{:011}", range.end);
    let (vals, truncated) = ctx.omap_vals(&after, b"", max.into()).await?;
    let mut page = Page { truncated, last: after, ..Page::default() };
    for (key, value) in vals {
        let is_past = match by_user {
            true => !key.starts_with(&user_prefix),
            false => key[..] >= *end_key.as_bytes(),
        };
        page.last = key;
        if is_past {
            page.truncated = false;
            break;
        }
        let entry: LogEntry = argument(&value)?;
        if !range.bucket.is_empty() && *range.bucket != entry.bucket || entry.epoch < range.start {
            continue;
        }
        if entry.epoch >= range.end {
            page.truncated = false;
            break;
        }
        page.entries.push(entry);
    }
    Ok(page)
}

pub(super) async fn read(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ReadOp = argument(input)?;
    let max = if op.max_entries == 0 { READ_DEFAULT } else { op.max_entries };
    let (start, end) = (op.start_epoch, op.end_epoch);
    let range = Range { start, end, user: &op.owner, bucket: &op.bucket };
    let page = page(ctx, &range, &op.iter, max).await?;
    let mut ret = ReadRet { truncated: page.truncated, ..ReadRet::default() };
    for entry in page.entries {
        let key = UserBucket { user: entry.who().text(), bucket: entry.bucket.clone() };
        ret.usage.entry(key).or_default().aggregate(&entry);
    }
    if page.truncated {
        ret.next_iter = page.last;
    }
    Ok(ret.to_bytes())
}

pub(super) async fn trim(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    // The object must be there.
    ctx.stat().await?;
    let op: TrimOp = argument(input)?;
    let (start, end) = (op.start_epoch, op.end_epoch);
    let range = Range { start, end, user: &op.user, bucket: &op.bucket };
    let page = page(ctx, &range, &BString::default(), TRIM_MAX).await?;
    for entry in &page.entries {
        // Not the payer's: what was written for one stays (as in Ceph).
        for key in entry.keys(&entry.owner) {
            ctx.omap_rm(&key).await?;
        }
    }
    if page.entries.is_empty() && !page.truncated { Err(Errno::ENODATA) } else { Ok(()) }
}

pub(super) async fn clear(ctx: &mut dyn ObjectContext, _input: &Bytes) -> Result<(), Errno> {
    match ctx.omap_clear().await {
        Err(Errno::ENOENT) => Ok(()),
        other => other,
    }
}
