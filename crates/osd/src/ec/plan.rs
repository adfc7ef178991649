//! Which stripes a write reads first: those it changes in part (`ECTransaction::get_write_plan` in
//! `src/osd/ECTransaction.h` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use types::HObject;

use super::object_op::{ObjectOp, ObjectOps};
use crate::pg::backend::Ranges;

/// The stripes of each object that all of a transaction changes in part. `size` tells sizes before.
pub(super) fn reads_of_ops(
    ops: &ObjectOps,
    width: u64,
    size: &dyn Fn(&HObject) -> u64,
) -> BTreeMap<HObject, Ranges> {
    let mut stripes: BTreeMap<HObject, BTreeSet<u64>> = BTreeMap::new();
    for (oid, op) in &ops.objects {
        let Some(base) = op.base(oid) else { continue };
        let partial = partial_stripes(op, width, size(base));
        if !partial.is_empty() {
            stripes.entry(base.clone()).or_default().extend(partial);
        }
    }
    stripes.into_iter().map(|(oid, starts)| (oid, ranges(&starts, width))).collect()
}

/// Offsets of the stripes of an object of `size` bytes that an op changes in part, and that have
/// something which stays.
pub(super) fn partial_stripes(op: &ObjectOp, width: u64, size: u64) -> BTreeSet<u64> {
    let mut end = size.next_multiple_of(width);
    let mut partial = BTreeSet::new();
    if let Some((least, _)) = op.truncate
        && least < end
    {
        if !least.is_multiple_of(width) {
            partial.insert(least / width * width);
        }
        end = least.next_multiple_of(width);
    }
    for (offset, len) in op.data.ranges() {
        let last = offset + len;
        if !offset.is_multiple_of(width) {
            partial.insert(offset / width * width);
        }
        if !last.is_multiple_of(width) {
            partial.insert(last / width * width);
        }
    }
    partial.retain(|&start| start < end);
    partial
}

fn ranges(starts: &BTreeSet<u64>, width: u64) -> Ranges {
    let mut ranges = Ranges::new();
    for &start in starts {
        match ranges.last_mut() {
            Some((offset, len)) if *offset + *len == start => *len += width,
            _ => ranges.push((start, width)),
        }
    }
    ranges
}
