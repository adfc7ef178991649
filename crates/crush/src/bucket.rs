//! Changing what a bucket holds: each change rebuilds what its algorithm keeps.
//! `src/crush/builder.c` at v16.2.

use crate::map::{Algorithm, Bucket, Weights};

impl Bucket {
    /// A bucket of these items and weights. A uniform bucket takes the first weight for all.
    pub fn new(
        id: i32,
        alg: Algorithm,
        kind: u16,
        items: &[(i32, u32)],
        straw_calc_version: u8,
    ) -> Bucket {
        let weights = Weights::Straw2(Vec::new());
        let mut bucket = Bucket { id, kind, hash: 0, weight: 0, items: Vec::new(), weights };
        bucket.fill(alg, items, straw_calc_version);
        bucket
    }

    /// The items and their weights.
    pub fn weighted_items(&self) -> Vec<(i32, u32)> {
        self.items.iter().enumerate().map(|(i, item)| (*item, self.item_weight(i))).collect()
    }

    /// Where an item stands.
    pub fn position(&self, item: i32) -> Option<usize> {
        self.items.iter().position(|i| *i == item)
    }

    pub(crate) fn set_items(&mut self, items: &[(i32, u32)], straw_calc_version: u8) {
        self.fill(self.algorithm(), items, straw_calc_version);
    }

    fn fill(&mut self, alg: Algorithm, items: &[(i32, u32)], straw_calc_version: u8) {
        self.items = items.iter().map(|(item, _)| *item).collect();
        let weights: Vec<u32> = items.iter().map(|(_, weight)| *weight).collect();
        let sum = |weights: &[u32]| weights.iter().fold(0u32, |sum, w| sum.saturating_add(*w));
        self.weight = sum(&weights);
        self.weights = match alg {
            Algorithm::Uniform => {
                let weight = weights.first().copied().unwrap_or(0);
                self.weight = weight.saturating_mul(weights.len() as u32);
                Weights::Uniform(weight)
            }
            Algorithm::List => {
                let sums = (1..=weights.len()).map(|n| sum(&weights[..n])).collect();
                Weights::List { weights, sums }
            }
            Algorithm::Tree => Weights::Tree(tree_nodes(&weights)),
            Algorithm::Straw => {
                let straws = straws(&weights, straw_calc_version);
                Weights::Straw { weights, straws }
            }
            Algorithm::Straw2 => Weights::Straw2(weights),
        };
    }
}

/// The weights of a tree's nodes: item i at node 2i+1, each inner node the sum of what is below.
fn tree_nodes(weights: &[u32]) -> Vec<u32> {
    if weights.is_empty() {
        return Vec::new();
    }
    let depth = 1 + (usize::BITS - (weights.len() - 1).leading_zeros());
    let mut nodes = vec![0u32; 1 << depth];
    for (i, weight) in weights.iter().enumerate() {
        let mut node = 2 * i + 1;
        nodes[node] = *weight;
        for _ in 1..depth {
            let height = node.trailing_zeros();
            let right = node & (1 << (height + 1)) != 0;
            node = if right { node - (1 << height) } else { node + (1 << height) };
            nodes[node] = nodes[node].saturating_add(*weight);
        }
    }
    nodes
}

/// The lengths of straws: lighter items get shorter ones, so that the odds of the longest come
/// out as the weights. Version 0 miscounts what is left where weights are equal or zero; maps that
/// have it keep it, as a change moves data.
fn straws(weights: &[u32], version: u8) -> Vec<u32> {
    let n = weights.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by_key(|i| weights[*i]);
    let mut straws = vec![0; n];
    let mut left = n as u32;
    let (mut straw, mut below, mut last) = (1.0f64, 0.0f64, 0.0f64);
    let mut i = 0;
    while i < n {
        let weight = weights[order[i]];
        if weight == 0 {
            i += 1;
            if version > 0 {
                left -= 1;
            }
            continue;
        }
        straws[order[i]] = (straw * 65536.0) as u32;
        i += 1;
        if i == n {
            break;
        }
        let next = weights[order[i]];
        if version == 0 && next == weight {
            continue;
        }
        below += (f64::from(weight) - last) * f64::from(left);
        if version == 0 {
            let equal = order[i..].iter().take_while(|j| weights[**j] == next).count();
            left = left.saturating_sub(equal as u32);
        } else {
            left -= 1;
        }
        let above = f64::from(left.wrapping_mul(next - weight));
        let odds = below / (below + above);
        straw *= (1.0 / odds).powf(1.0 / f64::from(left));
        last = f64::from(weight);
    }
    straws
}
