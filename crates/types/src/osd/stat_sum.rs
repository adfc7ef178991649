//! Counts of objects, bytes and operations that PGs keep and add up.

use denc::Denc;

/// How many counts there are.
const STAT_SUM_FIELDS: usize = 40;

macro_rules! stat_sum {
    ($($(#[$doc:meta])* $field:ident: $kind:ident,)*) => {
        /// Wire: object_stat_sum_t v20/c14, fields in wire order.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
        #[denc(v = 20, compat = 14, oldest = 20)]
        pub struct ObjectStatSum {
            $($(#[$doc])* pub $field: $kind,)*
        }

        impl ObjectStatSum {
            /// Adds another's counts.
            pub fn add(&mut self, other: &ObjectStatSum) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }

            /// Takes another's counts away.
            pub fn sub(&mut self, other: &ObjectStatSum) {
                $(self.$field = self.$field.wrapping_sub(other.$field);)*
            }

            /// All counts, in wire order.
            pub fn fields(&self) -> [i64; STAT_SUM_FIELDS] {
                [$(self.$field.into(),)*]
            }

            /// Of all counts, in wire order.
            pub fn of_fields(fields: [i64; STAT_SUM_FIELDS]) -> ObjectStatSum {
                let [$($field,)*] = fields;
                ObjectStatSum { $($field: $field as $kind,)* }
            }

            /// The same share of each count: `value * part / whole`, as floor of a split PG's.
            pub fn for_each_field(&mut self, mut change: impl FnMut(i64) -> i64) {
                $(self.$field = change(self.$field.into()) as $kind;)*
            }
        }
    };
}

stat_sum! {
    /// Bytes of content.
    num_bytes: i64,
    /// Objects, clones among them.
    num_objects: i64,
    /// Clones.
    num_object_clones: i64,
    /// Objects times the copies there should be.
    num_object_copies: i64,
    /// Objects the primary lacks.
    num_objects_missing_on_primary: i64,
    /// Copies that should be and are not.
    num_objects_degraded: i64,
    /// Objects with no known good copy.
    num_objects_unfound: i64,
    /// Reads.
    num_rd: i64,
    /// KiB read.
    num_rd_kb: i64,
    /// Writes.
    num_wr: i64,
    /// KiB written.
    num_wr_kb: i64,
    /// Shallow and deep errors.
    num_scrub_errors: i64,
    /// Objects recovered.
    num_objects_recovered: i64,
    /// Bytes recovered.
    num_bytes_recovered: i64,
    /// Omap keys recovered.
    num_keys_recovered: i64,
    /// Errors of shallow scrub.
    num_shallow_scrub_errors: i64,
    /// Errors of deep scrub.
    num_deep_scrub_errors: i64,
    /// Objects with the dirty flag.
    num_objects_dirty: i64,
    /// Whiteouts.
    num_whiteouts: i64,
    /// Objects with omap.
    num_objects_omap: i64,
    /// Hit sets stored as objects.
    num_objects_hit_set_archive: i64,
    /// Copies on OSDs where they should not stay.
    num_objects_misplaced: i64,
    /// Bytes of stored hit sets.
    num_bytes_hit_set_archive: i64,
    /// Flushes.
    num_flush: i64,
    /// KiB flushed.
    num_flush_kb: i64,
    /// Evictions.
    num_evict: i64,
    /// KiB evicted.
    num_evict_kb: i64,
    /// Promotions.
    num_promote: i64,
    /// 1 while flushing fast.
    num_flush_mode_high: i32,
    /// 1 while flushing.
    num_flush_mode_low: i32,
    /// 1 while evicting.
    num_evict_mode_some: i32,
    /// 1 while evicting everything.
    num_evict_mode_full: i32,
    /// Pinned objects.
    num_objects_pinned: i64,
    /// Objects missing on the shard that reports.
    num_objects_missing: i64,
    /// Snap sets of before luminous.
    num_legacy_snapsets: i64,
    /// Objects with too much omap.
    num_large_omap_objects: i64,
    /// Objects with a manifest.
    num_objects_manifest: i64,
    /// Bytes of omap, as the last deep scrub found.
    num_omap_bytes: i64,
    /// Keys of omap, as the last deep scrub found.
    num_omap_keys: i64,
    /// Objects repaired.
    num_objects_repaired: i64,
}

impl ObjectStatSum {
    /// Names and values in the order of Ceph's JSON.
    pub fn dump_fields(&self) -> [(&'static str, i64); 40] {
        [
            ("num_bytes", self.num_bytes),
            ("num_objects", self.num_objects),
            ("num_object_clones", self.num_object_clones),
            ("num_object_copies", self.num_object_copies),
            ("num_objects_missing_on_primary", self.num_objects_missing_on_primary),
            ("num_objects_missing", self.num_objects_missing),
            ("num_objects_degraded", self.num_objects_degraded),
            ("num_objects_misplaced", self.num_objects_misplaced),
            ("num_objects_unfound", self.num_objects_unfound),
            ("num_objects_dirty", self.num_objects_dirty),
            ("num_whiteouts", self.num_whiteouts),
            ("num_read", self.num_rd),
            ("num_read_kb", self.num_rd_kb),
            ("num_write", self.num_wr),
            ("num_write_kb", self.num_wr_kb),
            ("num_scrub_errors", self.num_scrub_errors),
            ("num_shallow_scrub_errors", self.num_shallow_scrub_errors),
            ("num_deep_scrub_errors", self.num_deep_scrub_errors),
            ("num_objects_recovered", self.num_objects_recovered),
            ("num_bytes_recovered", self.num_bytes_recovered),
            ("num_keys_recovered", self.num_keys_recovered),
            ("num_objects_omap", self.num_objects_omap),
            ("num_objects_hit_set_archive", self.num_objects_hit_set_archive),
            ("num_bytes_hit_set_archive", self.num_bytes_hit_set_archive),
            ("num_flush", self.num_flush),
            ("num_flush_kb", self.num_flush_kb),
            ("num_evict", self.num_evict),
            ("num_evict_kb", self.num_evict_kb),
            ("num_promote", self.num_promote),
            ("num_flush_mode_high", self.num_flush_mode_high.into()),
            ("num_flush_mode_low", self.num_flush_mode_low.into()),
            ("num_evict_mode_some", self.num_evict_mode_some.into()),
            ("num_evict_mode_full", self.num_evict_mode_full.into()),
            ("num_objects_pinned", self.num_objects_pinned),
            ("num_legacy_snapsets", self.num_legacy_snapsets),
            ("num_large_omap_objects", self.num_large_omap_objects),
            ("num_objects_manifest", self.num_objects_manifest),
            ("num_omap_bytes", self.num_omap_bytes),
            ("num_omap_keys", self.num_omap_keys),
            ("num_objects_repaired", self.num_objects_repaired),
        ]
    }

    /// Whether all counts are 0.
    pub fn is_zero(&self) -> bool {
        *self == ObjectStatSum::default()
    }
}

/// Wire: object_stat_collection_t v2/c2: the sum and an empty map of categories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
#[denc(v = 2, compat = 2, oldest = 2)]
pub struct ObjectStatCollection {
    /// The counts.
    pub sum: ObjectStatSum,
    /// Not used: an empty map.
    pub categories: u32,
}

/// Space of a store, bytes. Wire: store_statfs_t v1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct StoreStatfs {
    /// Capacity.
    pub total: u64,
    /// Free.
    pub available: u64,
    /// Held back by the store.
    pub internally_reserved: u64,
    /// Allocated for content.
    pub allocated: i64,
    /// Content as clients see it.
    pub data_stored: i64,
    /// Compressed content.
    pub data_compressed: i64,
    /// Allocated for it.
    pub data_compressed_allocated: i64,
    /// What it was before.
    pub data_compressed_original: i64,
    /// Allocated for omap.
    pub omap_allocated: i64,
    /// Allocated for the store's own metadata.
    pub internal_metadata: i64,
}

impl StoreStatfs {
    /// Capacity, KiB.
    pub fn kb(&self) -> u64 {
        self.total >> 10
    }
    /// Free, KiB.
    pub fn kb_avail(&self) -> u64 {
        self.available >> 10
    }
    /// Not free.
    pub fn used_raw(&self) -> u64 {
        self.total.wrapping_sub(self.available)
    }
    /// Not free, KiB.
    pub fn kb_used_raw(&self) -> u64 {
        self.used_raw() >> 10
    }
    /// Used for content, KiB.
    pub fn kb_used_data(&self) -> u64 {
        self.allocated as u64 >> 10
    }
    /// Used for omap, KiB.
    pub fn kb_used_omap(&self) -> u64 {
        self.omap_allocated as u64 >> 10
    }
    /// Used for the store's own metadata, KiB.
    pub fn kb_used_internal_metadata(&self) -> u64 {
        self.internal_metadata as u64 >> 10
    }

    /// Adds another store's.
    pub fn add(&mut self, other: &StoreStatfs) {
        self.total = self.total.wrapping_add(other.total);
        self.available = self.available.wrapping_add(other.available);
        self.internally_reserved = self.internally_reserved.wrapping_add(other.internally_reserved);
        self.allocated = self.allocated.wrapping_add(other.allocated);
        self.data_stored = self.data_stored.wrapping_add(other.data_stored);
        self.data_compressed = self.data_compressed.wrapping_add(other.data_compressed);
        self.data_compressed_allocated =
            self.data_compressed_allocated.wrapping_add(other.data_compressed_allocated);
        self.data_compressed_original =
            self.data_compressed_original.wrapping_add(other.data_compressed_original);
        self.omap_allocated = self.omap_allocated.wrapping_add(other.omap_allocated);
        self.internal_metadata = self.internal_metadata.wrapping_add(other.internal_metadata);
    }

    /// Takes another store's away.
    pub fn sub(&mut self, other: &StoreStatfs) {
        self.total = self.total.wrapping_sub(other.total);
        self.available = self.available.wrapping_sub(other.available);
        self.internally_reserved = self.internally_reserved.wrapping_sub(other.internally_reserved);
        self.allocated = self.allocated.wrapping_sub(other.allocated);
        self.data_stored = self.data_stored.wrapping_sub(other.data_stored);
        self.data_compressed = self.data_compressed.wrapping_sub(other.data_compressed);
        self.data_compressed_allocated =
            self.data_compressed_allocated.wrapping_sub(other.data_compressed_allocated);
        self.data_compressed_original =
            self.data_compressed_original.wrapping_sub(other.data_compressed_original);
        self.omap_allocated = self.omap_allocated.wrapping_sub(other.omap_allocated);
        self.internal_metadata = self.internal_metadata.wrapping_sub(other.internal_metadata);
    }
}

/// A pool's counts. Wire: pool_stat_t v7/c5.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
#[denc(v = 7, compat = 5, oldest = 7)]
pub struct PoolStat {
    /// The counts.
    pub stats: ObjectStatCollection,
    /// Log entries in memory.
    pub log_size: i64,
    /// Log entries on disk.
    pub ondisk_log_size: i64,
    /// Sum of the sizes of its PGs' up sets.
    pub up: i32,
    /// Sum of the sizes of its PGs' acting sets.
    pub acting: i32,
    /// Space, where stores count it by pool.
    pub store_stats: StoreStatfs,
    /// Stores that do.
    pub num_store_stats: i32,
}
