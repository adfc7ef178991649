//! What clients must know to follow the map.

use crush::{CrushMap, DEFAULT_CHOOSE_ARGS, Weights, op};
use types::features;

use super::{OsdMap, WEIGHT_IN};
use crate::pool::{PgPool, pool_flags};

/// Feature bits that a CRUSH map needs of clients.
pub fn crush_features(crush: &CrushMap) -> u64 {
    let t = &crush.tunables;
    let mut bits = 0;
    if (t.choose_local_tries, t.choose_local_fallback_tries, t.choose_total_tries) != (2, 5, 19) {
        bits |= features::CRUSH_TUNABLES;
    }
    if t.chooseleaf_descend_once != 0 {
        bits |= features::CRUSH_TUNABLES2;
    }
    if t.chooseleaf_vary_r != 0 || has_steps(crush, &[op::SET_CHOOSELEAF_VARY_R]) {
        bits |= features::CRUSH_TUNABLES3;
    }
    if t.chooseleaf_stable != 0 || has_steps(crush, &[op::SET_CHOOSELEAF_STABLE]) {
        bits |= features::CRUSH_TUNABLES5;
    }
    if crush.each_bucket().any(|b| matches!(b.weights, Weights::Straw2(_))) {
        bits |= features::CRUSH_V4;
    }
    if has_incompatible_choose_args(crush) {
        bits |= features::CRUSH_CHOOSE_ARGS;
    }
    bits
}

/// Whether a rule has one of these steps.
pub fn has_steps(crush: &CrushMap, ops: &[u32]) -> bool {
    crush.rules.iter().flatten().flat_map(|rule| &rule.steps).any(|s| ops.contains(&s.op))
}

/// Whether weight sets say more than plain weights in their place would.
fn has_incompatible_choose_args(crush: &CrushMap) -> bool {
    match crush.choose_args.len() {
        0 => false,
        1 => match crush.choose_args.get(&DEFAULT_CHOOSE_ARGS) {
            None => true,
            Some(args) => args.values().any(|arg| {
                let given = !arg.weight_set.is_empty() || !arg.ids.is_empty();
                given && (arg.weight_set.len() != 1 || !arg.ids.is_empty())
            }),
        },
        _ => true,
    }
}

impl OsdMap {
    /// The oldest release whose clients can follow this map, by number.
    pub fn min_compat_client(&self) -> u8 {
        let bits = crush_features(&self.crush);
        let has = |bit: u64| bits & bit == bit;
        let upmap = !self.pg_upmap.is_empty() || !self.pg_upmap_items.is_empty();
        let affinity = self.osd_primary_affinity.iter().any(|a| *a != WEIGHT_IN);
        let any_pool = |wanted: &dyn Fn(&PgPool) -> bool| self.pools.values().any(wanted);
        let caches = any_pool(&|p| !p.tiers.is_empty() || p.is_tier());
        if upmap || has(features::CRUSH_CHOOSE_ARGS) {
            12
        } else if has(features::CRUSH_TUNABLES5) {
            10
        } else if has(features::CRUSH_V4) {
            8
        } else if affinity || has(features::CRUSH_TUNABLES3) || caches {
            6
        } else if has(features::CRUSH_TUNABLES2)
            || any_pool(&|p| p.has_flag(pool_flags::HASHPSPOOL))
        {
            4
        } else {
            1
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::pool::TYPE_ERASURE;

    /// An erasure coded pool asked for firefly (of daemons it does, of clients not: `OSDMap::get_features` at v16.2), and one
    /// with hashpspool, in another place, for bobtail: what osdmaptool calls dumpling.
    #[test]
    fn what_clients_need_is_counted_once() {
        let mut map = OsdMap::default();
        let mut crush = CrushMap::default();
        crush.tunables.chooseleaf_descend_once = 1;
        (crush.tunables.chooseleaf_vary_r, crush.tunables.chooseleaf_stable) = (0, 0);
        map.crush = Arc::new(crush);
        let pool =
            PgPool { flags: pool_flags::HASHPSPOOL, kind: TYPE_ERASURE, ..PgPool::default() };
        map.pools.insert(1, pool);
        assert_eq!(map.min_compat_client(), 4);
        map.osd_primary_affinity = vec![WEIGHT_IN / 2];
        assert_eq!(map.min_compat_client(), 6);
    }
}
