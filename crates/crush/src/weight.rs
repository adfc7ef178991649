//! Changing weights: of items, up the tree, and of the weight sets beside them.
//! `src/crush/CrushWrapper.cc` at v16.2.

use crate::edit::{EditError, Location};
use crate::map::{BUCKET_WEIGHT_MAX, ChooseArg, CrushMap, DEVICE_WEIGHT_MAX};

impl CrushMap {
    pub(crate) fn bucket_add_item(&mut self, bucket: i32, item: i32, weight: u32) {
        let version = self.tunables.straw_calc_version;
        let Some(b) = self.bucket_mut(bucket) else { return };
        let mut items = b.weighted_items();
        items.push((item, weight));
        b.set_items(&items, version);
        for args in self.choose_args.values_mut() {
            if let Some(arg) = args.get_mut(&slot(bucket)) {
                arg.weight_set.iter_mut().for_each(|set| set.push(weight));
                if !arg.ids.is_empty() {
                    arg.ids.push(item);
                }
            }
        }
    }

    pub(crate) fn bucket_remove_item(&mut self, bucket: i32, item: i32) {
        let version = self.tunables.straw_calc_version;
        let Some(b) = self.bucket_mut(bucket) else { return };
        let Some(position) = b.position(item) else { return };
        let mut items = b.weighted_items();
        items.remove(position);
        b.set_items(&items, version);
        for args in self.choose_args.values_mut() {
            if let Some(arg) = args.get_mut(&slot(bucket)) {
                for set in arg.weight_set.iter_mut().filter(|set| position < set.len()) {
                    set.remove(position);
                }
                if position < arg.ids.len() {
                    arg.ids.remove(position);
                }
            }
        }
    }

    /// Makes room in every weight set for a new bucket, with its own weights.
    pub(crate) fn init_choose_args(&mut self, bucket: i32) {
        let Some(b) = self.bucket(bucket) else { return };
        let weights: Vec<u32> = b.weighted_items().iter().map(|(_, w)| *w).collect();
        if weights.is_empty() {
            return;
        }
        for args in self.choose_args.values_mut() {
            let positions = args.values().map(|a| a.weight_set.len()).max().unwrap_or(0);
            if positions > 0 {
                let weight_set = vec![weights.clone(); positions];
                args.insert(slot(bucket), ChooseArg { weight_set, ids: Vec::new() });
            }
        }
    }

    /// Sets an item's weight in one bucket, in every weight set too, and carries the sums up.
    /// How many places changed.
    pub fn adjust_item_weight_in_bucket(&mut self, item: i32, weight: u32, bucket: i32) -> usize {
        let version = self.tunables.straw_calc_version;
        let Some(b) = self.bucket_mut(bucket) else { return 0 };
        let Some(position) = b.position(item) else { return 0 };
        let mut items = b.weighted_items();
        items[position].1 = weight;
        if matches!(b.weights, crate::map::Weights::Uniform(_)) {
            items.iter_mut().for_each(|i| i.1 = weight);
        }
        b.set_items(&items, version);
        let sum = b.weight;
        let mut sums = Vec::new();
        for (id, args) in &mut self.choose_args {
            let Some(arg) = args.get_mut(&slot(bucket)) else { continue };
            for set in &mut arg.weight_set {
                if let Some(w) = set.get_mut(position) {
                    *w = weight;
                }
            }
            if !arg.weight_set.is_empty() {
                sums.push((*id, sums_of(arg)));
            }
        }
        let changed = 1 + self.propagate_weight(bucket, sum);
        for (id, sums) in sums {
            self.choose_args_adjust(id, bucket, &sums);
        }
        changed
    }

    /// Carries a bucket's new weight into the buckets that hold it, and so on up. Weight sets are
    /// left alone.
    pub(crate) fn propagate_weight(&mut self, item: i32, weight: u32) -> usize {
        let version = self.tunables.straw_calc_version;
        let mut todo = vec![(item, weight)];
        let mut changed = 0;
        // Each level is passed once per path to a root; a looped map ends at this bound.
        let bound = self.buckets.len() * self.buckets.len() + 1;
        while let Some((item, weight)) = todo.pop() {
            for b in self.buckets.iter_mut().flatten() {
                let Some(position) = b.position(item) else { continue };
                if b.item_weight(position) == weight {
                    continue;
                }
                let mut items = b.weighted_items();
                items[position].1 = weight;
                b.set_items(&items, version);
                todo.push((b.id, b.weight));
                changed += 1;
            }
            if changed > bound {
                break;
            }
        }
        changed
    }

    /// Sets an item's weights (by position) in one weight set and carries the sums up. How many
    /// buckets changed.
    pub fn choose_args_adjust(&mut self, id: i64, item: i32, weights: &[u32]) -> usize {
        let Some(args) = self.choose_args.get_mut(&id) else { return 0 };
        let mut todo = vec![(item, weights.to_vec())];
        let mut changed = 0;
        let bound = self.buckets.len() * self.buckets.len() + 1;
        while let Some((item, weights)) = todo.pop() {
            for b in self.buckets.iter().flatten() {
                let Some(position) = b.position(item) else { continue };
                let arg = args.entry(slot(b.id)).or_default();
                if arg.weight_set.is_empty() {
                    let own: Vec<u32> = b.weighted_items().iter().map(|(_, w)| *w).collect();
                    arg.weight_set = vec![own; weights.len()];
                }
                for (set, weight) in arg.weight_set.iter_mut().zip(&weights) {
                    if let Some(w) = set.get_mut(position) {
                        *w = *weight;
                    }
                }
                todo.push((b.id, sums_of(arg)));
                changed += 1;
            }
            if changed > bound {
                break;
            }
        }
        changed
    }

    /// Makes a weight set with the buckets' own weights.
    pub fn create_choose_args(&mut self, id: i64, positions: usize) -> bool {
        if self.choose_args.contains_key(&id) {
            return false;
        }
        let mut args = std::collections::BTreeMap::new();
        for b in self.buckets.iter().flatten() {
            let own: Vec<u32> = b.weighted_items().iter().map(|(_, w)| *w).collect();
            let weight_set = vec![own; positions];
            args.insert(slot(b.id), ChooseArg { weight_set, ids: Vec::new() });
        }
        self.choose_args.insert(id, args);
        true
    }

    /// Sets an item's weight everywhere. How many places changed.
    pub fn adjust_item_weight(&mut self, item: i32, weight: u32) -> Result<usize, EditError> {
        let limit = if item >= 0 { DEVICE_WEIGHT_MAX } else { BUCKET_WEIGHT_MAX };
        if weight > limit {
            return Err(EditError::BadWeight);
        }
        let holders: Vec<i32> = self
            .each_bucket()
            .filter(|b| b.items.contains(&item) && !self.is_shadow(b.id))
            .map(|b| b.id)
            .collect();
        let changed = holders
            .into_iter()
            .map(|bucket| self.adjust_item_weight_in_bucket(item, weight, bucket))
            .sum();
        self.rebuild_shadow_trees();
        Ok(changed)
    }

    /// Sets an item's weight in the buckets that `loc` names. How many places changed.
    pub fn adjust_item_weight_in_loc(
        &mut self,
        item: i32,
        weight: u32,
        loc: &Location,
    ) -> Result<usize, EditError> {
        let buckets: Vec<i32> = loc.values().filter_map(|name| self.id_of(name)).collect();
        let changed = buckets
            .into_iter()
            .map(|bucket| self.adjust_item_weight_in_bucket(item, weight, bucket))
            .sum();
        Ok(changed)
    }

    /// Sets the weight of every device below a bucket. How many devices there are.
    pub fn adjust_subtree_weight(&mut self, root: i32, weight: u32) -> Result<usize, EditError> {
        let devices = self.devices_under(root);
        let below = self.subtree(root);
        for device in &devices {
            let holders: Vec<i32> = self
                .each_bucket()
                .filter(|b| b.items.contains(device) && below.contains(&b.id))
                .map(|b| b.id)
                .collect();
            for bucket in holders {
                self.adjust_item_weight_in_bucket(*device, weight, bucket);
            }
        }
        self.rebuild_shadow_trees();
        Ok(devices.len())
    }

    /// Recomputes every bucket's weight from the devices up.
    pub fn reweight(&mut self) {
        for root in self.roots(false) {
            self.reweight_bucket(root, 0);
        }
        self.rebuild_shadow_trees();
    }

    /// The weight of a bucket, after those below it; a hierarchy deeper than there are buckets is
    /// a loop and ends.
    fn reweight_bucket(&mut self, id: i32, depth: usize) -> u32 {
        let version = self.tunables.straw_calc_version;
        let Some(b) = self.bucket(id) else { return 0 };
        let mut items = b.weighted_items();
        if depth < self.buckets.len() {
            for (item, weight) in items.iter_mut().filter(|(item, _)| *item < 0) {
                *weight = self.reweight_bucket(*item, depth + 1);
            }
        }
        let ids: Vec<i64> = self.choose_args.keys().copied().collect();
        for set in ids {
            self.reweight_choose_args(set, id, &items);
        }
        match self.bucket_mut(id) {
            Some(b) => {
                b.set_items(&items, version);
                b.weight
            }
            None => 0,
        }
    }

    /// Sums of a weight set's child buckets, taken over into their parent.
    fn reweight_choose_args(&mut self, set: i64, bucket: i32, items: &[(i32, u32)]) {
        let Some(args) = self.choose_args.get_mut(&set) else { return };
        let below: Vec<Option<Vec<u32>>> =
            items.iter().map(|(item, _)| args.get(&slot(*item)).map(sums_of)).collect();
        let Some(arg) = args.get_mut(&slot(bucket)) else { return };
        for (position, sums) in below.into_iter().enumerate() {
            let sums = sums.filter(|_| items[position].0 < 0);
            for (set, sum) in arg.weight_set.iter_mut().zip(sums.into_iter().flatten()) {
                if let Some(weight) = set.get_mut(position) {
                    *weight = sum;
                }
            }
        }
    }
}

fn slot(bucket: i32) -> u32 {
    (-1i32).wrapping_sub(bucket) as u32
}

fn sums_of(arg: &ChooseArg) -> Vec<u32> {
    let sum = |set: &Vec<u32>| set.iter().fold(0u32, |sum, w| sum.saturating_add(*w));
    arg.weight_set.iter().map(sum).collect()
}
