//! Whether everything agrees: extent maps, shared blobs, freelist, totals, and data with its
//! checksums.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::extent_map::Shard;
use super::Core;
use super::format::{Onode, Prefix, SharedBlob, shard_of, shared_key};
use super::read::read_shard;
use super::txn::Txn;
use crate::keyed::keys::{behind, number_of, object_of};
use crate::keyed::{Keys, decoded};
use crate::{Fsck, FsckOptions, StoreError};

impl Core {
    fn entries(&self, prefix: Prefix) -> Result<Vec<(Bytes, Bytes)>, StoreError> {
        let mut all = Vec::new();
        let start = prefix.key();
        self.scan(&start, &behind(&start), &mut |key, value| {
            all.push((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
            true
        })?;
        Ok(all)
    }

    /// Compares all there is. Nothing is repaired: what contradicts itself may be read and copied.
    /// Bound: the memory of all onodes and units.
    pub(super) fn compare_all(&self, options: FsckOptions) -> Result<Fsck, StoreError> {
        let mut report = Fsck::default();
        let unit = self.unit();
        let mut sizes = BTreeMap::new();
        let mut omaps = BTreeSet::new();
        for (key, value) in self.entries(Prefix::Onode)? {
            if object_of(&key).is_none() {
                report.error(format!("onode key {key:?}"));
            }
            let onode: Onode = decoded(&value, "an onode")?;
            if sizes.insert(onode.nid, onode.size).is_some() {
                report.error(format!("two objects of number {}", onode.nid));
            }
            omaps.insert(onode.omap_head);
        }
        let (mut own, mut shared) = (BTreeSet::new(), BTreeMap::new());
        let mut stored = 0;
        let txn = Txn::new(self, self.state().totals);
        for (key, value) in self.entries(Prefix::Extents)? {
            let (nid, index) = (number_of(&key), shard_of(&key));
            let Some(shard) = Shard::decode(&value) else {
                report.error(format!("extent map {nid:?} {index:?} cannot be read"));
                continue;
            };
            let size = nid.and_then(|nid| sizes.get(&nid)).copied();
            let base = u64::from(index.unwrap_or(0)) * super::extent_map::SHARD_LEN;
            let end = shard.extents.last().map_or(0, |e| base + e.end());
            match size {
                None => report.error(format!("extent map of no object: {nid:?}")),
                // An extent may fill the last block.
                Some(size) if end > size.next_multiple_of(super::format::BLOCK_LEN) => {
                    report.error(format!("object {nid:?} of {size} bytes maps up to {end}"));
                }
                Some(_) => {}
            }
            stored += shard.stored();
            let mut whole = shard.clone();
            whole.release(unit, |offset, _, _| {
                report.error(format!("unit {offset:#x} is held and not referred to"));
            });
            for blob in &shard.blobs {
                for p in &blob.physical {
                    let Some(start) = p.offset else { continue };
                    for offset in (start..start + p.len).step_by(unit as usize) {
                        if blob.shared != 0 {
                            *shared.entry((blob.shared, offset)).or_insert(0_u32) += 1;
                        } else if !own.insert(offset) {
                            report.error(format!("unit {offset:#x} is two blobs'"));
                        }
                    }
                }
            }
            if options.deep
                && let Err(e) = verify(&txn, &shard)
            {
                report.error(format!("data of object {nid:?} shard {index:?}: {e}"));
            }
        }
        self.fsck_shared(&mut report, &shared, &mut own)?;
        for (key, _) in self.entries(Prefix::Omap)? {
            let omap = number_of(&key).unwrap_or(0);
            if !omaps.contains(&omap) {
                report.error(format!("omap {omap} of no object"));
            }
        }
        let (state, alloc) = (self.state(), self.alloc());
        for offset in own.iter().filter(|offset| !alloc.is_used(**offset)) {
            report.error(format!("unit {offset:#x} is used and called free"));
        }
        let allocated = own.len() as u64 * unit;
        if allocated != alloc.used_len() {
            report.error(format!(
                "{allocated} bytes are allocated, the freelist says {}",
                alloc.used_len()
            ));
        }
        if stored != state.totals.stored {
            let said = state.totals.stored;
            report.error(format!("{stored} bytes are stored, the totals say {said}"));
        }
        Ok(report)
    }

    fn fsck_shared(
        &self,
        report: &mut Fsck,
        counted: &BTreeMap<(u64, u64), u32>,
        own: &mut BTreeSet<u64>,
    ) -> Result<(), StoreError> {
        let mut said = BTreeMap::new();
        for (key, value) in self.entries(Prefix::Shared)? {
            let sbid = number_of(&key).unwrap_or(0);
            let blob: SharedBlob = decoded(&value, "a shared blob")?;
            if shared_key(sbid) != key {
                report.error(format!("shared blob key {key:?}"));
            }
            for (offset, refs) in blob.refs {
                said.insert((sbid, offset), refs);
            }
        }
        if said != *counted {
            report.error(format!("shared blobs say {said:?}, there are {counted:?}"));
        }
        for (_, offset) in counted.keys() {
            if !own.insert(*offset) {
                report.error(format!("unit {offset:#x} is two blobs'"));
            }
        }
        Ok(())
    }
}

fn verify(txn: &Txn<'_>, shard: &Shard) -> Result<(), StoreError> {
    let end = shard.extents.last().map_or(0, |e| e.end());
    read_shard(txn, shard, 0, end).map(|_| ())
}
