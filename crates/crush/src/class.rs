//! Device classes: each class has a shadow of every tree, `name~class`, that holds only devices of
//! the class. Rules for a class take a shadow root. `src/crush/CrushWrapper.cc` at v16.2.
//!
//! Shadow trees are never edited: after every change they are all dropped and built anew, with the
//! ids they had, so that placement and rules stay.

use std::collections::{BTreeMap, BTreeSet};

use crate::edit::{EditError, is_valid_name};
use crate::map::{Bucket, ChooseArg, CrushMap, op};

/// Weights of shadow buckets by position, by weight set and bucket.
type ShadowWeights = BTreeMap<(i64, i32), Vec<u32>>;

impl CrushMap {
    /// The id of a class.
    pub fn class_id(&self, name: &str) -> Option<i32> {
        self.class_names.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }

    /// The class of a device.
    pub fn class_of(&self, item: i32) -> Option<&str> {
        self.class_names.get(self.classes.get(&item)?).map(String::as_str)
    }

    /// The devices of a class.
    pub fn devices_of_class(&self, class: &str) -> Vec<i32> {
        let Some(id) = self.class_id(class) else { return Vec::new() };
        self.classes.iter().filter(|(i, c)| **i >= 0 && **c == id).map(|(i, _)| *i).collect()
    }

    /// Adds a class; an existing one is no error.
    pub fn add_class(&mut self, name: &str) -> Result<i32, EditError> {
        if !is_valid_name(name) {
            return Err(EditError::InvalidName(name.to_owned()));
        }
        if let Some(id) = self.class_id(name) {
            return Ok(id);
        }
        let id = self.class_names.keys().next_back().map_or(0, |id| id + 1);
        self.class_names.insert(id, name.to_owned());
        Ok(id)
    }

    /// Gives a class another name.
    pub fn rename_class(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        let id =
            self.class_id(from).ok_or_else(|| EditError::NotFound(format!("class '{from}'")))?;
        if self.class_id(to).is_some() {
            return Err(EditError::Exists(format!("class '{to}'")));
        }
        if !is_valid_name(to) {
            return Err(EditError::InvalidName(to.to_owned()));
        }
        self.class_names.insert(id, to.to_owned());
        for (bucket, shadows) in &self.class_buckets {
            if let (Some(shadow), Some(name)) = (shadows.get(&id), self.names.get(bucket).cloned())
            {
                self.names.insert(*shadow, format!("{name}~{to}"));
            }
        }
        Ok(())
    }

    /// Sets a device's class. Whether it changed; a device of another class must lose that first.
    pub fn set_device_class(&mut self, device: i32, class: &str) -> Result<bool, EditError> {
        match self.class_of(device) {
            Some(old) if old == class => return Ok(false),
            Some(old) => {
                return Err(EditError::Busy(format!(
                    "osd.{device} has already bound to class '{old}', can not reset class to \
                     '{class}'; use 'ceph osd crush rm-device-class <id>' to remove old class first"
                )));
            }
            None => {}
        }
        let id = self.add_class(class)?;
        self.classes.insert(device, id);
        self.rebuild_shadow_trees();
        Ok(true)
    }

    /// Takes a device's class away. Whether it had one.
    pub fn remove_device_class(&mut self, device: i32) -> bool {
        let had = self.classes.remove(&device).is_some();
        if had {
            self.rebuild_shadow_trees();
        }
        had
    }

    /// A shadow bucket's bucket and class; of any other item, itself and none.
    pub fn split_id_class(&self, item: i32) -> (i32, Option<i32>) {
        let Some((name, class)) = self.name_of(item).and_then(|n| n.split_once('~')) else {
            return (item, None);
        };
        (self.id_of(name).unwrap_or(item), self.class_id(class))
    }

    /// Drops every shadow tree and builds those of today's classes, under the ids they had.
    pub fn rebuild_shadow_trees(&mut self) {
        let before = self.class_buckets.clone();
        self.drop_dead_classes();
        for root in
            self.roots(true).into_iter().filter(|id| self.is_shadow(*id)).collect::<Vec<_>>()
        {
            self.drop_shadow_tree(root);
        }
        self.class_buckets.clear();
        if self.class_names.is_empty() {
            return;
        }
        let taken: BTreeSet<i32> = before.values().flat_map(|c| c.values().copied()).collect();
        let mut weights = ShadowWeights::new();
        for root in self.roots(false) {
            for class in self.class_names.keys().copied().collect::<Vec<_>>() {
                self.clone_for_class(root, class, &before, &taken, &mut weights, 0);
            }
        }
    }

    /// Forgets classes that no device has and no rule takes.
    fn drop_dead_classes(&mut self) {
        let mut alive: BTreeSet<i32> =
            self.classes.iter().filter(|(i, _)| **i >= 0).map(|(_, c)| *c).collect();
        for step in self.rules.iter().flatten().flat_map(|r| &r.steps) {
            if step.op == op::TAKE {
                alive.extend(self.split_id_class(step.arg1).1);
            }
        }
        self.class_names.retain(|id, _| alive.contains(id));
    }

    fn drop_shadow_tree(&mut self, root: i32) {
        let Some(bucket) = self.bucket(root) else { return };
        let below: Vec<i32> = bucket.items.iter().copied().filter(|i| *i < 0).collect();
        self.drop_shadow(root);
        for child in below {
            self.drop_shadow_tree(child);
        }
    }

    fn drop_shadow(&mut self, id: i32) {
        self.drop_bucket(id);
        self.names.remove(&id);
        self.class_buckets.remove(&id);
        self.classes.remove(&id);
    }

    /// Takes the shadows of a bucket that goes away out of their parents and the map.
    pub(crate) fn drop_shadows_of(&mut self, bucket: i32) {
        for shadow in self.class_buckets.remove(&bucket).unwrap_or_default().into_values() {
            let holders: Vec<i32> =
                self.each_bucket().filter(|b| b.items.contains(&shadow)).map(|b| b.id).collect();
            for holder in holders {
                self.bucket_remove_item(holder, shadow);
            }
            self.drop_shadow(shadow);
        }
    }

    /// Builds the shadow of a bucket and of all below it; the shadow's id. A hierarchy deeper than
    /// there are buckets is a loop and ends.
    fn clone_for_class(
        &mut self,
        original: i32,
        class: i32,
        before: &BTreeMap<i32, BTreeMap<i32, i32>>,
        taken: &BTreeSet<i32>,
        weights: &mut ShadowWeights,
        depth: usize,
    ) -> Option<i32> {
        if depth > self.buckets.len() {
            return None;
        }
        let name = format!("{}~{}", self.name_of(original)?, self.class_names.get(&class)?);
        if let Some(there) = self.class_buckets.get(&original).and_then(|c| c.get(&class)) {
            return Some(*there);
        }
        let source = self.bucket(original)?.clone();
        let mut items = Vec::new();
        let mut places = Vec::new();
        for (place, (item, weight)) in source.weighted_items().into_iter().enumerate() {
            if item >= 0 {
                if self.classes.get(&item) != Some(&class) {
                    continue;
                }
                items.push((item, weight));
            } else {
                let child = self.clone_for_class(item, class, before, taken, weights, depth + 1)?;
                items.push((child, self.bucket(child)?.weight));
            }
            places.push(place);
        }
        let had = before.get(&original).and_then(|c| c.get(&class)).copied();
        let id = had.unwrap_or_else(|| self.free_shadow_id(taken));
        let version = self.tunables.straw_calc_version;
        let shadow = Bucket::new(id, source.algorithm(), source.kind, &items, version);
        self.put_bucket(Bucket { hash: source.hash, ..shadow });
        self.classes.insert(id, class);
        self.names.insert(id, name);
        self.class_buckets.entry(original).or_default().insert(class, id);
        self.clone_choose_args(original, id, &items, &places, weights);
        Some(id)
    }

    /// The highest bucket id that neither is used nor was a shadow's.
    fn free_shadow_id(&self, taken: &BTreeSet<i32>) -> i32 {
        let mut id = -1;
        while self.bucket(id).is_some() || taken.contains(&id) {
            id -= 1;
        }
        id
    }

    fn clone_choose_args(
        &mut self,
        original: i32,
        shadow: i32,
        items: &[(i32, u32)],
        places: &[usize],
        weights: &mut ShadowWeights,
    ) {
        for (set, args) in &mut self.choose_args {
            let Some(source) = args.get(&((-1 - original) as u32)) else { continue };
            let mut sums = Vec::new();
            let mut weight_set = Vec::new();
            for (position, from) in source.weight_set.iter().enumerate() {
                let weight = |(i, (item, _)): (usize, &(i32, u32))| match *item {
                    0.. => from.get(places[i]).copied().unwrap_or(0),
                    child => {
                        let below = weights.get(&(*set, child));
                        below.and_then(|w| w.get(position)).copied().unwrap_or(0)
                    }
                };
                let row: Vec<u32> = items.iter().enumerate().map(weight).collect();
                sums.push(row.iter().fold(0u32, |sum, w| sum.saturating_add(*w)));
                weight_set.push(row);
            }
            if !weight_set.is_empty() {
                weights.insert((*set, shadow), sums);
                args.insert((-1 - shadow) as u32, ChooseArg { weight_set, ids: Vec::new() });
            }
        }
    }
}
