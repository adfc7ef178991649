//! Class `rgw_gc`: garbage of a RADOS Gateway in the order of its coming
//! (`src/cls/rgw_gc/` at v16.2).
//!
//! A queue (class `queue`) of [`ObjInfo`]. Garbage that someone still reads is deferred: its tag
//! gets a later time in a map in the queue's head, or in an xattr where the head has no room. An
//! entry of an earlier time than its tag's is passed over.

use core::time::Duration;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::{Errno, UTime};

use crate::queue::ring::{self, Head};
use crate::queue::{self, InitOp};
use crate::registry::class_method as method;
use crate::rgw::gc::{ListOp, ListRet, ObjInfo, SetEntryOp};
use crate::{Class, Flags, ObjectContext, argument};

const ATTR: &[u8] = b"cls_queue_urgent_data";
/// Entries of a listing or a removal that says no number.
const LIST_DEFAULT: u32 = 128;
/// Bytes of deferrals in the head: `rgw_gc_max_deferred_entries_size`'s default.
const DEFERRED_LEN_MAX: u64 = 3072;

/// Argument of `rgw_gc_queue_init`. Wire: cls_rgw_gc_queue_init_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct QueueInitOp {
    /// Bytes of entries.
    pub size: u64,
    /// At most this many deferrals.
    pub num_deferred_entries: u64,
}

/// Argument of `rgw_gc_queue_remove_entries`. Wire: cls_rgw_gc_queue_remove_entries_op v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct QueueRemoveEntriesOp {
    /// Entries that were listed; with them go those before them that a listing passes over.
    pub num_entries: u64,
}

/// Argument of `rgw_gc_queue_update_entry`. Wire: cls_rgw_gc_queue_defer_entry_op v1, which is
/// cls_rgw_gc_set_entry_op's.
pub type QueueDeferEntryOp = SetEntryOp;

/// Times of deferred tags, in any order, and in the one they came in when encoded again.
pub type Deferred = Vec<(BString, UTime)>;

/// What the queue's head has of ours. Wire: cls_rgw_gc_urgent_data v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct UrgentData {
    /// Deferrals.
    pub deferred: Deferred,
    /// At most this many, with those in the xattr.
    pub num_urgent_data_entries: u32,
    /// Deferrals here.
    pub num_head_urgent_entries: u32,
    /// Deferrals in the xattr.
    pub num_xattr_urgent_entries: u32,
}

/// The class.
pub const CLASS: Class = Class {
    name: "rgw_gc",
    methods: &[
        method!("rgw_gc_queue_init", Flags::RD_WR, init),
        method!("rgw_gc_queue_enqueue", Flags::RD_WR, enqueue),
        method!("rgw_gc_queue_list_entries", Flags::RD, list_entries),
        method!("rgw_gc_queue_remove_entries", Flags::RD_WR, remove_entries),
        method!("rgw_gc_queue_update_entry", Flags::RD_WR, update_entry),
    ],
    filters: &[],
};

/// The deferrals of a queue.
struct Deferrals {
    head: UrgentData,
    xattr: Deferred,
    xattr_changed: bool,
}

impl Deferrals {
    async fn load(ctx: &mut dyn ObjectContext, head: &Head) -> Result<Deferrals, Errno> {
        let head = match &head.urgent_data {
            empty if empty.is_empty() => UrgentData::default(),
            bytes => UrgentData::from_bytes(bytes).map_err(|_| Errno::EINVAL)?,
        };
        let mut xattr = Deferred::new();
        if head.num_xattr_urgent_entries > 0 {
            match ctx.getxattr(ATTR).await {
                Ok(bytes) => xattr = Deferred::from_bytes(&bytes).map_err(|_| Errno::EINVAL)?,
                Err(Errno::ENOENT | Errno::ENODATA) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Deferrals { head, xattr, xattr_changed: false })
    }

    /// Whether an entry is to be passed over; the head's word goes before the xattr's.
    fn is_later(&self, info: &ObjInfo) -> bool {
        let mut all = self.head.deferred.iter().chain(&self.xattr);
        all.find(|(tag, _)| *tag == info.tag).is_some_and(|(_, time)| *time > info.time)
    }

    /// Defers a tag; a head that may have no more than `head_len_max` bytes leaves new ones to the
    /// xattr.
    fn defer(&mut self, tag: BString, time: UTime, head_len_max: u64) {
        if let Some((_, known)) = self.head.deferred.iter_mut().find(|(key, _)| *key == tag) {
            *known = time;
            return;
        }
        if let Some((_, known)) = self.xattr.iter_mut().find(|(key, _)| *key == tag) {
            *known = time;
            self.xattr_changed = true;
            return;
        }
        self.head.deferred.push((tag, time));
        if self.head.to_bytes().len() as u64 <= head_len_max {
            self.head.num_head_urgent_entries = self.head.num_head_urgent_entries.saturating_add(1);
            return;
        }
        self.xattr.extend(self.head.deferred.pop());
        self.xattr_changed = true;
        self.head.num_xattr_urgent_entries = self.head.num_xattr_urgent_entries.saturating_add(1);
    }

    fn is_over_limit(&self) -> bool {
        let UrgentData { num_head_urgent_entries, num_xattr_urgent_entries, .. } = self.head;
        let count = u64::from(num_head_urgent_entries) + u64::from(num_xattr_urgent_entries);
        count > u64::from(self.head.num_urgent_data_entries)
    }

    /// Forgets the deferral that an entry of this time was queued with.
    fn forget(&mut self, info: &ObjInfo) {
        let is_its = |(tag, time): &(BString, UTime)| *tag == info.tag && *time == info.time;
        if let Some(i) = self.head.deferred.iter().position(is_its) {
            self.head.deferred.remove(i);
            self.head.num_head_urgent_entries = self.head.num_head_urgent_entries.saturating_sub(1);
        } else if let Some(i) = self.xattr.iter().position(is_its) {
            self.xattr.remove(i);
            self.xattr_changed = true;
            self.head.num_xattr_urgent_entries =
                self.head.num_xattr_urgent_entries.saturating_sub(1);
        }
    }

    /// Stores the queue's head with these.
    async fn store(self, ctx: &mut dyn ObjectContext, mut head: Head) -> Result<(), Errno> {
        if self.xattr_changed {
            ctx.setxattr(ATTR, self.xattr.to_bytes()).await?;
        }
        head.urgent_data = self.head.to_bytes();
        head.store(ctx).await
    }
}

async fn init(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: QueueInitOp = argument(input)?;
    let urgent_data = UrgentData {
        num_urgent_data_entries: op.num_deferred_entries as u32,
        ..UrgentData::default()
    };
    let op = InitOp {
        queue_size: op.size,
        max_urgent_data_size: DEFERRED_LEN_MAX,
        urgent_data: urgent_data.to_bytes(),
    };
    ring::init(ctx, op).await
}

async fn enqueue(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let mut op: SetEntryOp = argument(input)?;
    op.info.time = expiry(ctx, &op);
    let mut head = Head::load(ctx).await?;
    ring::enqueue(ctx, &mut head, &[op.info.to_bytes()]).await?;
    head.store(ctx).await
}

fn expiry(ctx: &dyn ObjectContext, op: &SetEntryOp) -> UTime {
    ctx.now().plus(Duration::from_secs(op.expiration_secs.into()))
}

fn entry_info(entry: &queue::Entry) -> Result<ObjInfo, Errno> {
    ObjInfo::from_bytes(&entry.data).map_err(|_| Errno::EINVAL)
}

async fn list_entries(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<Bytes, Errno> {
    let op: ListOp = argument(input)?;
    let head = Head::load(ctx).await?;
    let deferrals = Deferrals::load(ctx, &head).await?;
    let max = if op.max == 0 { LIST_DEFAULT } else { op.max };
    let now = ctx.now();
    let mut page = queue::ListOp { max: max.into(), start_marker: op.marker };
    let mut ret = ListRet::default();
    // Those whose time has not come count, and are left out: a removal counts them as well.
    let mut count = 0;
    loop {
        let found = ring::list(ctx, &head, &page).await?;
        for entry in &found.entries {
            let info = entry_info(entry)?;
            if deferrals.is_later(&info) {
                continue;
            }
            count += 1;
            if !op.expired_only || info.time <= now {
                ret.entries.push(info);
            }
        }
        ret.truncated = found.is_truncated;
        if count >= u64::from(max) || found.entries.is_empty() || !found.is_truncated {
            if found.is_truncated {
                ret.next_marker = found.next_marker;
            }
            return Ok(ret.to_bytes());
        }
        page = queue::ListOp { max: u64::from(max) - count, start_marker: found.next_marker };
    }
}

/// Removes as many entries as a listing gave, and with them those passed over: the end is the first entry that stays.
async fn remove_entries(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: QueueRemoveEntriesOp = argument(input)?;
    let mut head = Head::load(ctx).await?;
    let mut deferrals = Deferrals::load(ctx, &head).await?;
    let max = if op.num_entries == 0 { u64::from(LIST_DEFAULT) } else { op.num_entries };
    let wanted = max.saturating_add(1);
    let mut page = queue::ListOp { max: wanted, ..queue::ListOp::default() };
    let mut count = 0;
    let end = loop {
        let found = ring::list(ctx, &head, &page).await?;
        for entry in &found.entries {
            let info = entry_info(entry)?;
            if !deferrals.is_later(&info) {
                count += 1;
                if count < wanted {
                    deferrals.forget(&info);
                }
            }
        }
        match found.entries.last() {
            None => break None,
            Some(last) if count >= wanted => break Some(last.marker.clone()),
            Some(_) if !found.is_truncated => break Some(found.next_marker),
            Some(_) => {}
        }
        page = queue::ListOp { max: wanted - count, start_marker: found.next_marker };
    };
    if let Some(end) = end {
        ring::remove(ctx, &mut head, &end).await?;
    }
    deferrals.store(ctx, head).await
}

/// Defers a tag. Ceph no longer queues its garbage again here (tracker 47866): that of an object
/// which was never removed could be collected.
async fn update_entry(ctx: &mut dyn ObjectContext, input: &Bytes) -> Result<(), Errno> {
    let op: QueueDeferEntryOp = argument(input)?;
    let time = expiry(ctx, &op);
    let head = Head::load(ctx).await?;
    let mut deferrals = Deferrals::load(ctx, &head).await?;
    deferrals.defer(op.info.tag, time, head.max_urgent_data_size);
    if deferrals.is_over_limit() {
        return Err(Errno::ENOSPC);
    }
    deferrals.store(ctx, head).await
}
