//! How one bucket picks one of its items for an input x and a trial r.
//!
//! `src/crush/mapper.c` at v16.2. All of it is a pure function of the bucket, x, r and the
//! choose_args: Ceph's permutation cache only saves work.

use crate::hash::{hash3, hash4};
use crate::ln::ln;
use crate::map::{Bucket, ChooseArg, Weights};

/// Picks an item of a bucket that has at least one.
///
/// `position` is the place in the result, which selects among the weight sets.
pub(crate) fn choose(
    bucket: &Bucket,
    x: u32,
    r: u32,
    arg: Option<&ChooseArg>,
    position: usize,
) -> i32 {
    match &bucket.weights {
        Weights::Uniform(_) => permute(bucket, x, r),
        Weights::List { weights, sums } => list(bucket, weights, sums, x, r),
        Weights::Tree(nodes) => tree(bucket, nodes, x, r),
        Weights::Straw { straws, .. } => straw(bucket, straws, x, r),
        Weights::Straw2(weights) => {
            let set = arg.and_then(|a| a.weight_set.get(position).or(a.weight_set.last()));
            let weights = set.unwrap_or(weights);
            let ids = arg.map(|a| &a.ids).filter(|ids| !ids.is_empty()).unwrap_or(&bucket.items);
            straw2(bucket, weights, ids, x, r)
        }
    }
}

/// The item at place r of a pseudorandom permutation of the bucket that depends on x.
pub(crate) fn permute(bucket: &Bucket, x: u32, r: u32) -> i32 {
    let n = bucket.items.len() as u32;
    let wanted = r % n;
    // Step p swaps place p with one at or behind it, so place `wanted` is final after its step.
    let mut order: Vec<u32> = (0..n).collect();
    for p in 0..=wanted.min(n.saturating_sub(2)) {
        let ahead = hash3(x, bucket.id as u32, p) % (n - p);
        order.swap(p as usize, (p + ahead) as usize);
    }
    bucket.items[order[wanted as usize] as usize]
}

fn list(bucket: &Bucket, weights: &[u32], sums: &[u32], x: u32, r: u32) -> i32 {
    let parts = bucket.items.iter().zip(weights).zip(sums);
    for ((item, weight), sum) in parts.rev() {
        let draw = u64::from(hash4(x, *item as u32, r, bucket.id as u32) & 0xffff);
        if (draw * u64::from(*sum)) >> 16 < u64::from(*weight) {
            return *item;
        }
    }
    bucket.items[0]
}

fn tree(bucket: &Bucket, nodes: &[u32], x: u32, r: u32) -> i32 {
    let weight = |node: usize| u64::from(nodes.get(node).copied().unwrap_or(0));
    let mut node = nodes.len() >> 1;
    // Leaves are the odd nodes; an inner node's height is the number of its trailing zeros.
    while node != 0 && node & 1 == 0 {
        let hash = u64::from(hash4(x, node as u32, r, bucket.id as u32));
        let draw = (hash * weight(node)) >> 32;
        let half = 1 << (node.trailing_zeros() - 1);
        let left = node - half;
        node = if draw < weight(left) { left } else { node + half };
    }
    bucket.items.get(node >> 1).copied().unwrap_or(bucket.items[0])
}

fn straw(bucket: &Bucket, straws: &[u32], x: u32, r: u32) -> i32 {
    let mut best = (bucket.items[0], 0);
    for (i, (item, straw)) in bucket.items.iter().zip(straws).enumerate() {
        let draw = u64::from(hash3(x, *item as u32, r) & 0xffff) * u64::from(*straw);
        if i == 0 || draw > best.1 {
            best = (*item, draw);
        }
    }
    best.0
}

fn straw2(bucket: &Bucket, weights: &[u32], ids: &[i32], x: u32, r: u32) -> i32 {
    let mut best = (bucket.items[0], i64::MIN);
    for ((item, id), weight) in bucket.items.iter().zip(ids).zip(weights) {
        if *weight == 0 {
            // Below every draw; the first item is the answer if all are so.
            continue;
        }
        let u = (hash3(x, *id as u32, r) & 0xffff) as u16;
        // ln is at most 2^48, so the draw is negative; the division truncates toward zero. Ceph's takes the weight for an int
        // (`generate_exponential_distribution`): one of 32,768 and more is negative there, and wins.
        let draw = (ln(u) as i64 - (1 << 48)) / i64::from(*weight as i32);
        if draw > best.1 {
            best = (*item, draw);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients sent operations to other OSDs than the cluster took for a PG's: for them the weight is negative.
    #[test]
    fn a_weight_beyond_an_int_wins() {
        let bucket = Bucket {
            id: -1,
            kind: 1,
            hash: 0,
            weight: 0,
            items: vec![0, 1],
            weights: Weights::Straw2(Vec::new()),
        };
        for x in 0..1000 {
            assert_eq!(straw2(&bucket, &[0x10_0000, 0x9000_0000], &[0, 1], x, 0), 1);
        }
    }
}
