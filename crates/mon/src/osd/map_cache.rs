//! Encoded maps of recent epochs, so that many subscribers cost one read. Full maps and incrementals have a
//! cache each: what subscribers ask for is above all the newest incrementals, and full maps must not push
//! them out.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::Epoch;

/// Maps cached of each kind.
const MAPS_MAX: usize = 500;

/// Maps of one kind, the newest [`MAPS_MAX`] of those that were put in.
#[derive(Debug, Default)]
pub(super) struct MapCache(BTreeMap<Epoch, Bytes>);

impl MapCache {
    pub(super) fn insert(&mut self, epoch: Epoch, bytes: Bytes) {
        self.0.insert(epoch, bytes);
        if self.0.len() > MAPS_MAX {
            self.0.pop_first();
        }
    }

    pub(super) fn get(&self, epoch: Epoch) -> Option<Bytes> {
        self.0.get(&epoch).cloned()
    }

    /// Maps of before `first` are not kept any more.
    pub(super) fn forget_before(&mut self, first: Epoch) {
        self.0 = self.0.split_off(&first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_maps_are_kept_whatever_was_read_last() {
        let most = MAPS_MAX as Epoch;
        let mut cache = MapCache::default();
        for epoch in 1..=2 * most {
            cache.insert(epoch, Bytes::new());
        }
        cache.insert(1, Bytes::new());
        assert_eq!(cache.0.len(), MAPS_MAX);
        assert!(cache.get(most).is_none() && cache.get(most + 1).is_some());
        cache.forget_before(2 * most);
        assert!(cache.get(2 * most - 1).is_none() && cache.get(2 * most).is_some());
    }
}
