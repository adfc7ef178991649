//! What of an object a write left untouched, so that recovery need not copy it.

use core::fmt;

use denc::Denc;

use crate::interval_set::IntervalSet;

/// Most clean ranges kept; the shortest go first (osd_object_clean_region_max_num_intervals).
const MAX_INTERVALS: usize = 10;

/// Wire: ObjectCleanRegions v1.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ObjectCleanRegions {
    /// Ranges of the content that are as before.
    pub clean_offsets: IntervalSet,
    /// Whether the omap is as before.
    pub clean_omap: bool,
    /// Whether there was no object before.
    pub new_object: bool,
}

/// All clean.
impl Default for ObjectCleanRegions {
    fn default() -> ObjectCleanRegions {
        ObjectCleanRegions {
            clean_offsets: IntervalSet::of(0, u64::MAX),
            clean_omap: true,
            new_object: false,
        }
    }
}

impl ObjectCleanRegions {
    /// Nothing clean.
    pub fn fully_dirty() -> ObjectCleanRegions {
        let mut regions = ObjectCleanRegions::default();
        regions.mark_fully_dirty();
        regions
    }

    /// A range of the content changed.
    pub fn mark_data_region_dirty(&mut self, offset: u64, len: u64) {
        self.clean_offsets.erase(offset, len);
        self.trim();
    }

    /// The omap changed.
    pub fn mark_omap_dirty(&mut self) {
        self.clean_omap = false;
    }

    /// There was no object before.
    pub fn mark_object_new(&mut self) {
        self.new_object = true;
    }

    /// All changed.
    pub fn mark_fully_dirty(&mut self) {
        self.mark_data_region_dirty(0, u64::MAX);
        self.mark_omap_dirty();
        self.mark_object_new();
    }

    /// Adds a later change. `new_object` stays as it is.
    pub fn merge(&mut self, later: &ObjectCleanRegions) {
        self.clean_offsets = self.clean_offsets.intersection(&later.clean_offsets);
        self.clean_omap &= later.clean_omap;
        self.trim();
    }

    /// The ranges that changed.
    pub fn dirty_regions(&self) -> IntervalSet {
        let mut dirty = IntervalSet::of(0, u64::MAX);
        dirty.subtract(&self.clean_offsets);
        dirty
    }

    /// Whether the omap changed.
    pub fn omap_is_dirty(&self) -> bool {
        !self.clean_omap
    }

    /// Whether there was an object before.
    pub fn object_is_exist(&self) -> bool {
        !self.new_object
    }

    fn trim(&mut self) {
        while self.clean_offsets.num_intervals() > MAX_INTERVALS {
            // The first of the shortest.
            match self.clean_offsets.iter().min_by_key(|&(_, len)| len) {
                Some((start, len)) => self.clean_offsets.erase(start, len),
                None => return,
            }
        }
    }
}

impl fmt::Display for ObjectCleanRegions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "clean_offsets: {}, clean_omap: {}, new_object: {}",
            self.clean_offsets,
            u8::from(self.clean_omap),
            u8::from(self.new_object)
        )
    }
}
