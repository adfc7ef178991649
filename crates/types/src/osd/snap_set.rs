//! Which clones an object has (attribute `snapset` of its head).

use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};

use crate::interval_set::IntervalSet;
use crate::snap::SnapId;

/// Wire: SnapSet v3/c2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SnapSet {
    /// Newest snapshot the head has seen.
    pub seq: SnapId,
    /// The snapshots of the last write's context, as releases before octopus kept them; empty.
    pub legacy_snaps: Vec<SnapId>,
    /// Clone ids, oldest first. A clone's id is the newest snapshot it serves.
    pub clones: Vec<SnapId>,
    /// For each clone, the ranges it shares with the next newer clone or the head.
    pub clone_overlap: BTreeMap<SnapId, IntervalSet>,
    /// Size of each clone.
    pub clone_size: BTreeMap<SnapId, u64>,
    /// Snapshots each clone serves, newest first.
    pub clone_snaps: BTreeMap<SnapId, Vec<SnapId>>,
}

impl SnapSet {
    /// Bytes only this clone holds: its size less what it shares.
    pub fn clone_bytes(&self, clone: SnapId) -> u64 {
        let size = self.clone_size.get(&clone).copied().unwrap_or(0);
        let shared = self.clone_overlap.get(&clone).map_or(0, IntervalSet::size);
        size.saturating_sub(shared)
    }
}

impl Denc for SnapSet {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            w.u64(self.seq);
            w.bool(true); // head_exists
            w.put(&self.legacy_snaps);
            w.put(&self.clones);
            w.put(&self.clone_overlap);
            w.put(&self.clone_size);
            w.put(&self.clone_snaps);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<SnapSet, Error> {
        r.envelope("SnapSet", 3, 3, |r, _| {
            let seq = r.u64()?;
            r.u8()?;
            Ok(SnapSet {
                seq,
                legacy_snaps: r.get()?,
                clones: r.get()?,
                clone_overlap: r.get()?,
                clone_size: r.get()?,
                clone_snaps: r.get()?,
            })
        })
    }
}
