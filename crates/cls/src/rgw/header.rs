//! The header of a bucket index shard: sums over its entries, versions, the state of resharding.

use std::collections::BTreeMap;

use bstr::BString;
use denc::Denc;
use types::Errno;

use super::entry::{DirEntry, EntryMeta};
use crate::{ObjectContext, stored};

/// Sizes are rounded up to blocks of this many bytes.
const ROUND_BYTES: u64 = 4096;

/// Sums of one category. Wire: rgw_bucket_category_stats v3.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 3, compat = 2, oldest = 3)]
pub struct CategoryStats {
    /// Bytes as users count them.
    pub total_size: u64,
    /// The same, each object rounded up.
    pub total_size_rounded: u64,
    /// Objects.
    pub num_entries: u64,
    /// Bytes stored.
    pub actual_size: u64,
}

impl CategoryStats {
    /// Counts an object.
    pub(super) fn add(&mut self, meta: &EntryMeta) {
        self.num_entries = self.num_entries.wrapping_add(1);
        self.total_size = self.total_size.wrapping_add(meta.accounted_size);
        self.total_size_rounded = self.total_size_rounded.wrapping_add(rounded(meta));
        self.actual_size = self.actual_size.wrapping_add(meta.size);
    }

    /// Takes an object out.
    pub(super) fn sub(&mut self, meta: &EntryMeta) {
        self.num_entries = self.num_entries.wrapping_sub(1);
        self.total_size = self.total_size.wrapping_sub(meta.accounted_size);
        self.total_size_rounded = self.total_size_rounded.wrapping_sub(rounded(meta));
        self.actual_size = self.actual_size.wrapping_sub(meta.size);
    }

    /// Adds sums.
    pub(super) fn add_stats(&mut self, other: &CategoryStats) {
        self.total_size = self.total_size.wrapping_add(other.total_size);
        self.total_size_rounded = self.total_size_rounded.wrapping_add(other.total_size_rounded);
        self.num_entries = self.num_entries.wrapping_add(other.num_entries);
        self.actual_size = self.actual_size.wrapping_add(other.actual_size);
    }
}

fn rounded(meta: &EntryMeta) -> u64 {
    meta.accounted_size.wrapping_add(ROUND_BYTES - 1) & !(ROUND_BYTES - 1)
}

/// The state of a bucket's resharding. Wire: cls_rgw_bucket_instance_entry v1.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub struct InstanceEntry {
    /// 0 none, 1 under way, 2 done.
    pub reshard_status: u8,
    /// Id of the instance that comes.
    pub new_bucket_instance_id: BString,
    /// Its shards, -1 where none comes.
    pub num_shards: i32,
}

impl Default for InstanceEntry {
    fn default() -> InstanceEntry {
        InstanceEntry {
            reshard_status: 0,
            new_bucket_instance_id: BString::default(),
            num_shards: -1,
        }
    }
}

impl InstanceEntry {
    /// Whether the bucket is, or has been, resharded.
    pub fn is_resharding(&self) -> bool {
        self.reshard_status != 0
    }
}

/// The header. Wire: rgw_bucket_dir_header v7.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 7, compat = 2, oldest = 7)]
pub struct DirHeader {
    /// Sums by category.
    pub stats: BTreeMap<u8, CategoryStats>,
    /// After how many seconds a change under way counts as dead; 0 for the default.
    pub tag_timeout: u64,
    /// Counts writes of the header.
    pub ver: u64,
    /// The master zone's, in old multi-site setups.
    pub master_ver: u64,
    /// Highest id in the log.
    pub max_marker: BString,
    /// State of resharding.
    pub new_instance: InstanceEntry,
    /// Whether the log is stopped.
    pub syncstopped: bool,
}

impl DirHeader {
    /// The header, or an empty one.
    pub(super) async fn load(ctx: &mut dyn ObjectContext) -> Result<DirHeader, Errno> {
        let bytes = ctx.omap_header().await?;
        if bytes.is_empty() { Ok(DirHeader::default()) } else { stored(&bytes) }
    }

    /// Writes the header with the next version.
    pub(super) async fn store(&mut self, ctx: &mut dyn ObjectContext) -> Result<(), Errno> {
        self.ver = self.ver.wrapping_add(1);
        ctx.omap_set_header(self.to_bytes()).await
    }

    /// Sums of a category.
    pub(super) fn stats_of(&mut self, category: u8) -> &mut CategoryStats {
        self.stats.entry(category).or_default()
    }

    /// Takes an entry out of the sums, if it is in.
    pub(super) fn unaccount(&mut self, entry: &DirEntry) {
        if entry.exists {
            self.stats_of(entry.meta.category).sub(&entry.meta);
        }
    }
}

/// A listing's part of an index. Wire: rgw_bucket_dir v2.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 2, oldest = 2)]
pub struct Dir {
    /// The header.
    pub header: DirHeader,
    /// Entries by their keys.
    pub entries: BTreeMap<BString, DirEntry>,
}
