//! Changes to a CRUSH map: items and buckets added, moved, weighed and removed; device classes
//! with their shadow trees; rules (`src/crush/CrushWrapper.cc` and `builder.c` at v16.2).
//!
//! A shadow bucket `name~class` mirrors a bucket with the devices of one class alone. After every
//! change of the tree the shadow trees are made anew; buckets keep the ids their shadows had.

use std::collections::{BTreeMap, BTreeSet};

use crush::{Bucket, CrushMap, Rule, Step, Tunables, Weights, op};

/// A place in the tree: bucket type to bucket name.
pub(crate) type Location = BTreeMap<String, String>;

/// Why a change is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EditError {
    /// A name has letters it may not have (EINVAL).
    BadName,
    /// A bucket type is unknown, or the place makes no sense (EINVAL).
    BadLocation,
    /// A bucket would be inside itself (EINVAL).
    Loop,
    /// The item is not there (ENOENT).
    NoItem,
    /// The bucket still has items (ENOTEMPTY).
    NotEmpty,
    /// A rule takes the item (EBUSY).
    InUse,
    /// There is one already (EEXIST).
    Exists,
    /// No id is left (ENOSPC).
    Full,
}

/// Depth of a tree at most: guards against loops in maps from outside.
const DEPTH_MAX: usize = 64;

/// Fixed point, 16.16.
pub(crate) fn fixed(weight: f64) -> u32 {
    (weight * 65536.0) as u32
}

/// Whether the name may be given to an item.
pub(crate) fn is_valid_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

/// The id of a named item.
pub(crate) fn id_of(map: &CrushMap, name: &str) -> Option<i32> {
    map.names
        .iter()
        .find(|(_, n)| *n == name)
        .map(|(id, _)| *id)
}

/// The number of a bucket type.
pub(crate) fn type_id(map: &CrushMap, name: &str) -> Option<i32> {
    map.types
        .iter()
        .find(|(_, n)| *n == name)
        .map(|(id, _)| *id)
}

/// The number of a device class.
pub(crate) fn class_id(map: &CrushMap, name: &str) -> Option<i32> {
    map.class_names
        .iter()
        .find(|(_, n)| *n == name)
        .map(|(id, _)| *id)
}

/// The class of a device, by name.
pub(crate) fn class_of(map: &CrushMap, item: i32) -> Option<&str> {
    map.class_names
        .get(map.classes.get(&item)?)
        .map(String::as_str)
}

/// Whether the bucket mirrors another for a device class.
pub(crate) fn is_shadow(map: &CrushMap, id: i32) -> bool {
    id < 0 && map.names.get(&id).is_some_and(|name| name.contains('~'))
}

/// The bucket that holds an item, shadow trees left aside.
pub(crate) fn parent_of(map: &CrushMap, item: i32) -> Option<i32> {
    let shadow = is_shadow(map, item);
    map.each_bucket()
        .find(|b| b.items.contains(&item) && (shadow || !is_shadow(map, b.id)))
        .map(|b| b.id)
}

/// Types and names of what is above an item, the nearest first.
pub(crate) fn location_of(map: &CrushMap, item: i32) -> Vec<(String, String)> {
    let mut location = Vec::new();
    let mut node = item;
    while let Some(parent) = parent_of(map, node) {
        if location.len() >= DEPTH_MAX {
            break;
        }
        let kind = map.bucket(parent).map_or(0, |b| i32::from(b.kind));
        location.push((
            map.types.get(&kind).cloned().unwrap_or_default(),
            map.names.get(&parent).cloned().unwrap_or_default(),
        ));
        node = parent;
    }
    location
}

/// All devices below a node, itself if it is one.
pub(crate) fn leaves(map: &CrushMap, node: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut left = vec![node];
    while let Some(node) = left.pop() {
        if node >= 0 {
            found.insert(node);
        } else if seen.insert(node) {
            left.extend(
                map.bucket(node)
                    .into_iter()
                    .flat_map(|b| b.items.iter().copied()),
            );
        }
    }
    found
}

/// Buckets that are in no other one; shadow trees as well if asked for.
pub(crate) fn roots(map: &CrushMap, shadows: bool) -> Vec<i32> {
    let inner: BTreeSet<i32> = map
        .each_bucket()
        .flat_map(|b| b.items.iter().copied())
        .filter(|i| *i < 0)
        .collect();
    let mut roots: Vec<i32> = map
        .each_bucket()
        .map(|b| b.id)
        .filter(|id| !inner.contains(id) && (shadows || !is_shadow(map, *id)))
        .collect();
    roots.sort_unstable();
    roots
}

/// Whether `item` is `node` or below it.
pub(crate) fn subtree_contains(map: &CrushMap, node: i32, item: i32) -> bool {
    contains(map, node, item, 0)
}

fn contains(map: &CrushMap, node: i32, item: i32, depth: usize) -> bool {
    node == item
        || depth < DEPTH_MAX
            && map.bucket(node).is_some_and(|b| {
                b.items
                    .iter()
                    .any(|child| contains(map, *child, item, depth + 1))
            })
}

/// The weight an item has where it is (0 if it is nowhere).
pub(crate) fn item_weight(map: &CrushMap, item: i32) -> u32 {
    let Some(bucket) = parent_of(map, item).and_then(|id| map.bucket(id)) else {
        return 0;
    };
    let position = bucket.items.iter().position(|i| *i == item);
    position.map_or(0, |p| bucket.item_weight(p))
}

/// The weight an item has at a place, if it is there.
pub(crate) fn item_weight_at(map: &CrushMap, item: i32, location: &Location) -> Option<u32> {
    let bucket = map.each_bucket().find(|b| {
        let kind = map.types.get(&i32::from(b.kind));
        let name = map.names.get(&b.id);
        b.items.contains(&item)
            && kind.is_some_and(|kind| location.get(kind) == name)
            && name.is_some()
    })?;
    bucket
        .items
        .iter()
        .position(|i| *i == item)
        .map(|p| bucket.item_weight(p))
}

fn weights(bucket: &Bucket) -> Vec<u32> {
    (0..bucket.items.len())
        .map(|p| bucket.item_weight(p))
        .collect()
}

/// Gives a bucket its items' weights. Trees and straws, which no map made since jewel has, become
/// straw2.
fn set_weights(bucket: &mut Bucket, new: Vec<u32>) {
    bucket.weight = new.iter().fold(0u32, |sum, w| sum.saturating_add(*w));
    bucket.weights = match &bucket.weights {
        Weights::Uniform(_) => Weights::Uniform(new.first().copied().unwrap_or(0)),
        Weights::List { .. } => {
            let mut sum = 0u32;
            let sums = new
                .iter()
                .map(|w| {
                    sum = sum.saturating_add(*w);
                    sum
                })
                .collect();
            Weights::List { weights: new, sums }
        }
        _ => Weights::Straw2(new),
    };
}

/// The first free bucket id, below those reserved.
fn new_bucket_id(map: &CrushMap, reserved: &BTreeSet<i32>) -> i32 {
    let mut id = -1;
    while map.bucket(id).is_some() || reserved.contains(&id) {
        id -= 1;
    }
    id
}

fn put_bucket(map: &mut CrushMap, bucket: Bucket) {
    let slot = (-1 - bucket.id) as usize;
    if slot >= map.buckets.len() {
        let mut len = map.buckets.len().max(8);
        while len <= slot {
            len *= 2;
        }
        map.buckets.resize(len, None);
    }
    map.buckets[slot] = Some(bucket);
}

fn drop_bucket(map: &mut CrushMap, id: i32) {
    if let Some(slot) = map.buckets.get_mut((-1 - id) as usize) {
        *slot = None;
    }
    for args in map.choose_args.values_mut() {
        args.remove(&((-1 - id) as u32));
    }
}

/// Adds an empty straw2 bucket.
pub(crate) fn add_bucket(map: &mut CrushMap, name: &str, kind: i32) -> Result<i32, EditError> {
    if !is_valid_name(name) {
        return Err(EditError::BadName);
    }
    if id_of(map, name).is_some() {
        return Err(EditError::Exists);
    }
    let id = new_bucket_id(map, &BTreeSet::new());
    put_bucket(
        map,
        Bucket {
            id,
            kind: kind as u16,
            hash: 0,
            weight: 0,
            items: Vec::new(),
            weights: Weights::Straw2(Vec::new()),
        },
    );
    map.names.insert(id, name.to_string());
    rebuild_shadows(map);
    Ok(id)
}

fn bucket_add_item(map: &mut CrushMap, bucket: i32, item: i32, weight: u32) {
    let positions: Vec<i64> = map.choose_args.keys().copied().collect();
    let Some(b) = map.bucket_mut(bucket) else {
        return;
    };
    let mut new = weights(b);
    b.items.push(item);
    new.push(weight);
    set_weights(b, new);
    for set in positions {
        let Some(args) = map.choose_args.get_mut(&set) else {
            continue;
        };
        if let Some(arg) = args.get_mut(&((-1 - bucket) as u32)) {
            arg.weight_set.iter_mut().for_each(|w| w.push(weight));
            if !arg.ids.is_empty() {
                arg.ids.push(item);
            }
        }
    }
}

fn bucket_remove_item(map: &mut CrushMap, bucket: i32, item: i32) -> Option<u32> {
    let b = map.bucket_mut(bucket)?;
    let position = b.items.iter().position(|i| *i == item)?;
    let mut new = weights(b);
    b.items.remove(position);
    let old = new.remove(position);
    set_weights(b, new);
    for args in map.choose_args.values_mut() {
        if let Some(arg) = args.get_mut(&((-1 - bucket) as u32)) {
            for set in &mut arg.weight_set {
                if position < set.len() {
                    set.remove(position);
                }
            }
            if position < arg.ids.len() {
                arg.ids.remove(position);
            }
        }
    }
    Some(old)
}

/// Sets an item's weight in one bucket and passes the difference on upwards.
fn set_weight_in(map: &mut CrushMap, bucket: i32, item: i32, weight: u32, depth: usize) {
    let Some(b) = map.bucket_mut(bucket) else {
        return;
    };
    let Some(position) = b.items.iter().position(|i| *i == item) else {
        return;
    };
    let mut new = weights(b);
    new[position] = weight;
    set_weights(b, new);
    let sum = b.weight;
    if depth < DEPTH_MAX {
        for parent in parents(map, bucket) {
            set_weight_in(map, parent, bucket, sum, depth + 1);
        }
    }
}

fn parents(map: &CrushMap, item: i32) -> Vec<i32> {
    map.each_bucket()
        .filter(|b| b.items.contains(&item))
        .map(|b| b.id)
        .collect()
}

/// Passes a bucket's weight on upwards.
fn settle(map: &mut CrushMap, bucket: i32) {
    let Some(sum) = map.bucket(bucket).map(|b| b.weight) else {
        return;
    };
    for parent in parents(map, bucket) {
        set_weight_in(map, parent, bucket, sum, 0);
    }
}

/// Puts an item at a place; buckets of the place that are missing are made, as far up as there is
/// one that exists.
pub(crate) fn insert_item(
    map: &mut CrushMap,
    item: i32,
    weight: u32,
    name: &str,
    location: &Location,
) -> Result<(), EditError> {
    if !is_valid_name(name) || !location.values().all(|n| is_valid_name(n)) {
        return Err(EditError::BadName);
    }
    if location.keys().any(|kind| type_id(map, kind).is_none()) {
        return Err(EditError::BadLocation);
    }
    map.names.insert(item, name.to_string());
    if item >= 0 {
        map.max_devices = map.max_devices.max(item + 1);
    }
    let levels: Vec<(i32, String)> = map
        .types
        .iter()
        .filter(|(id, _)| **id > 0)
        .map(|(id, n)| (*id, n.clone()))
        .collect();
    let mut current = item;
    let mut placed = false;
    for (kind, level) in levels {
        let Some(bucket_name) = location.get(&level) else {
            continue;
        };
        match id_of(map, bucket_name) {
            None => {
                let id = new_bucket_id(map, &BTreeSet::new());
                let below = if current == item {
                    weight
                } else {
                    bucket_weight(map, current)
                };
                put_bucket(
                    map,
                    Bucket {
                        id,
                        kind: kind as u16,
                        hash: 0,
                        weight: below,
                        items: vec![current],
                        weights: Weights::Straw2(vec![below]),
                    },
                );
                map.names.insert(id, bucket_name.clone());
                current = id;
                placed = true;
            }
            Some(id) => {
                let Some(bucket) = map.bucket(id) else {
                    return Err(EditError::BadLocation);
                };
                if i32::from(bucket.kind) != kind {
                    return Err(EditError::BadLocation);
                }
                if subtree_contains(map, current, id) {
                    return Err(EditError::Loop);
                }
                if !bucket.items.contains(&current) {
                    let below = if current == item {
                        weight
                    } else {
                        bucket_weight(map, current)
                    };
                    bucket_add_item(map, id, current, below);
                    settle(map, id);
                }
                placed = true;
                break;
            }
        }
    }
    if !placed {
        return Err(EditError::BadLocation);
    }
    rebuild_shadows(map);
    Ok(())
}

fn bucket_weight(map: &CrushMap, item: i32) -> u32 {
    map.bucket(item).map_or(0, |b| b.weight)
}

/// Whether the item is directly in the lowest bucket the place names.
pub(crate) fn is_at(map: &CrushMap, item: i32, location: &Location) -> bool {
    for level in map
        .types
        .iter()
        .filter(|(id, _)| **id > 0)
        .map(|(_, name)| name)
    {
        let Some(name) = location.get(level) else {
            continue;
        };
        return id_of(map, name)
            .and_then(|id| map.bucket(id))
            .is_some_and(|b| b.items.contains(&item));
    }
    false
}

/// Takes an item out of every bucket and out of the map. `unlink_only`: buckets stay.
pub(crate) fn remove_item(
    map: &mut CrushMap,
    item: i32,
    ancestor: Option<i32>,
    unlink_only: bool,
) -> Result<(), EditError> {
    if let Some(bucket) = map.bucket(item) {
        if !bucket.items.is_empty() && !unlink_only {
            return Err(EditError::NotEmpty);
        }
        if !unlink_only && is_taken(map, item) {
            return Err(EditError::InUse);
        }
    }
    let holders: Vec<i32> = parents(map, item)
        .into_iter()
        .filter(|id| !is_shadow(map, *id) || is_shadow(map, item))
        .filter(|id| ancestor.is_none_or(|a| subtree_contains(map, a, *id)))
        .collect();
    if ancestor.is_some() && holders.is_empty() {
        return Err(EditError::NoItem);
    }
    for holder in holders {
        bucket_remove_item(map, holder, item);
        settle(map, holder);
    }
    let elsewhere = parents(map, item).into_iter().any(|id| !is_shadow(map, id));
    if !elsewhere && !(unlink_only && item < 0) {
        if item < 0 {
            let shadows: Vec<i32> = map
                .class_buckets
                .remove(&item)
                .unwrap_or_default()
                .into_values()
                .collect();
            for shadow in shadows {
                forget_bucket(map, shadow);
            }
            drop_bucket(map, item);
            map.names.remove(&item);
        } else {
            map.classes.remove(&item);
            map.names.remove(&item);
        }
    }
    rebuild_shadows(map);
    Ok(())
}

fn forget_bucket(map: &mut CrushMap, id: i32) {
    for holder in parents(map, id) {
        bucket_remove_item(map, holder, id);
    }
    drop_bucket(map, id);
    map.names.remove(&id);
    map.classes.remove(&id);
}

/// Whether a rule begins at the item or at one of its shadows.
pub(crate) fn is_taken(map: &CrushMap, item: i32) -> bool {
    let shadows = map.class_buckets.get(&item);
    map.rules
        .iter()
        .flatten()
        .flat_map(|rule| &rule.steps)
        .any(|step| {
            step.op == op::TAKE
                && (step.arg1 == item
                    || shadows.is_some_and(|s| s.values().any(|shadow| *shadow == step.arg1)))
        })
}

/// Moves a bucket to a place.
pub(crate) fn move_bucket(
    map: &mut CrushMap,
    id: i32,
    location: &Location,
) -> Result<(), EditError> {
    let name = map.names.get(&id).cloned().ok_or(EditError::NoItem)?;
    let weight = bucket_weight(map, id);
    let lowest = map
        .types
        .iter()
        .filter(|(t, _)| **t > 0)
        .find_map(|(_, n)| location.get(n));
    if let Some(target) = lowest.and_then(|name| id_of(map, name)) {
        if subtree_contains(map, id, target) {
            return Err(EditError::Loop);
        }
    }
    for holder in parents(map, id) {
        bucket_remove_item(map, holder, id);
        settle(map, holder);
    }
    insert_item(map, id, weight, &name, location)
}

/// Puts a bucket at one more place.
pub(crate) fn link_bucket(
    map: &mut CrushMap,
    id: i32,
    location: &Location,
) -> Result<(), EditError> {
    let name = map.names.get(&id).cloned().ok_or(EditError::NoItem)?;
    insert_item(map, id, bucket_weight(map, id), &name, location)
}

/// Sets an item's weight wherever it is; says how many places that were.
pub(crate) fn adjust_weight(map: &mut CrushMap, item: i32, weight: u32) -> usize {
    let holders: Vec<i32> = parents(map, item)
        .into_iter()
        .filter(|id| !is_shadow(map, *id))
        .collect();
    for holder in &holders {
        set_weight_in(map, *holder, item, weight, 0);
    }
    rebuild_shadows(map);
    holders.len()
}

/// Sets the weight of every device below a bucket.
pub(crate) fn adjust_subtree(map: &mut CrushMap, node: i32, weight: u32) {
    for leaf in leaves(map, node) {
        let holders: Vec<i32> = parents(map, leaf)
            .into_iter()
            .filter(|id| !is_shadow(map, *id) && subtree_contains(map, node, *id))
            .collect();
        for holder in holders {
            set_weight_in(map, holder, leaf, weight, 0);
        }
    }
    rebuild_shadows(map);
}

/// Sums every bucket anew from the devices up.
pub(crate) fn reweight_all(map: &mut CrushMap) {
    for root in roots(map, false) {
        reweight_bucket(map, root, 0);
    }
    rebuild_shadows(map);
}

fn reweight_bucket(map: &mut CrushMap, id: i32, depth: usize) -> u32 {
    let Some(bucket) = map.bucket(id).cloned() else {
        return 0;
    };
    if depth >= DEPTH_MAX {
        return bucket.weight;
    }
    let mut new = weights(&bucket);
    for (position, item) in bucket.items.iter().enumerate() {
        if *item < 0 {
            new[position] = reweight_bucket(map, *item, depth + 1);
        }
    }
    match map.bucket_mut(id) {
        Some(bucket) => {
            set_weights(bucket, new);
            bucket.weight
        }
        None => 0,
    }
}

/// Exchanges the contents of two buckets.
pub(crate) fn swap_buckets(map: &mut CrushMap, a: i32, b: i32) -> Result<(), EditError> {
    if subtree_contains(map, a, b) || subtree_contains(map, b, a) {
        return Err(EditError::Loop);
    }
    let (Some(x), Some(y)) = (map.bucket(a).cloned(), map.bucket(b).cloned()) else {
        return Err(EditError::NoItem);
    };
    let contents = |bucket: &Bucket| -> Vec<(i32, u32)> {
        bucket.items.iter().copied().zip(weights(bucket)).collect()
    };
    for (id, from) in [(a, contents(&y)), (b, contents(&x))] {
        let old: Vec<i32> = map.bucket(id).map(|b| b.items.clone()).unwrap_or_default();
        for item in old {
            bucket_remove_item(map, id, item);
        }
        for (item, weight) in from {
            bucket_add_item(map, id, item, weight);
        }
        settle(map, id);
    }
    rebuild_shadows(map);
    Ok(())
}

/// The number of a class, made if need be.
pub(crate) fn class_id_or_new(map: &mut CrushMap, name: &str) -> i32 {
    if let Some(id) = class_id(map, name) {
        return id;
    }
    let mut id = 0;
    while map.class_names.contains_key(&id) {
        id += 1;
    }
    map.class_names.insert(id, name.to_string());
    id
}

/// Gives a device a class, or none.
pub(crate) fn set_class(map: &mut CrushMap, device: i32, class: Option<&str>) {
    match class {
        Some(name) => {
            let id = class_id_or_new(map, name);
            map.classes.insert(device, id);
        }
        None => drop(map.classes.remove(&device)),
    }
    rebuild_shadows(map);
}

/// Makes the shadow trees anew. Each shadow keeps its id; classes and buckets that are gone lose
/// theirs. Shadows that a rule begins at stay even when their class has no device left.
pub(crate) fn rebuild_shadows(map: &mut CrushMap) {
    let old = std::mem::take(&mut map.class_buckets);
    let old_args = std::mem::take(&mut map.choose_args);
    let shadows: Vec<i32> = map
        .each_bucket()
        .map(|b| b.id)
        .filter(|id| is_shadow(map, *id))
        .collect();
    for id in &shadows {
        if let Some(slot) = map.buckets.get_mut((-1 - id) as usize) {
            *slot = None;
        }
        map.names.remove(id);
        map.classes.remove(id);
    }
    map.choose_args = old_args;
    let reserved: BTreeSet<i32> = old.values().flat_map(|by| by.values().copied()).collect();
    let mut used = reserved.clone();
    let classes: Vec<i32> = map.class_names.keys().copied().collect();
    for root in roots(map, false) {
        for class in &classes {
            clone_for_class(map, root, *class, &old, &mut used, 0);
        }
    }
    // Weight-sets of buckets that are gone.
    let alive: BTreeSet<u32> = map.each_bucket().map(|b| (-1 - b.id) as u32).collect();
    for args in map.choose_args.values_mut() {
        args.retain(|slot, _| alive.contains(slot));
    }
}

fn clone_for_class(
    map: &mut CrushMap,
    id: i32,
    class: i32,
    old: &BTreeMap<i32, BTreeMap<i32, i32>>,
    used: &mut BTreeSet<i32>,
    depth: usize,
) -> Option<i32> {
    let class_name = map.class_names.get(&class)?;
    let name = format!("{}~{class_name}", map.names.get(&id)?);
    if let Some(done) = map.class_buckets.get(&id).and_then(|by| by.get(&class)) {
        return Some(*done);
    }
    let original = map.bucket(id)?.clone();
    if depth >= DEPTH_MAX {
        return None;
    }
    let (mut items, mut new, mut positions) = (Vec::new(), Vec::new(), Vec::new());
    for (position, (item, weight)) in original
        .items
        .iter()
        .copied()
        .zip(weights(&original))
        .enumerate()
    {
        if item >= 0 {
            if map.classes.get(&item) == Some(&class) {
                items.push(item);
                new.push(weight);
                positions.push(position);
            }
        } else if let Some(child) = clone_for_class(map, item, class, old, used, depth + 1) {
            items.push(child);
            new.push(bucket_weight(map, child));
            positions.push(position);
        }
    }
    let kept = old.get(&id).and_then(|by| by.get(&class)).copied();
    let clone = kept.unwrap_or_else(|| new_bucket_id(map, used));
    used.insert(clone);
    let mut bucket = Bucket {
        id: clone,
        items,
        ..original.clone()
    };
    set_weights(&mut bucket, new);
    put_bucket(map, bucket);
    map.names.insert(clone, name);
    map.classes.insert(clone, class);
    map.class_buckets
        .entry(id)
        .or_default()
        .insert(class, clone);
    // The shadow's weight-sets are those of the original at the items it has.
    for args in map.choose_args.values_mut() {
        let Some(arg) = args.get(&((-1 - id) as u32)).cloned() else {
            continue;
        };
        let pick = |set: &Vec<u32>| -> Vec<u32> {
            positions
                .iter()
                .map(|p| set.get(*p).copied().unwrap_or(0))
                .collect()
        };
        let weight_set = arg.weight_set.iter().map(pick).collect();
        args.insert(
            (-1 - clone) as u32,
            crush::ChooseArg {
                weight_set,
                ids: Vec::new(),
            },
        );
    }
    Some(clone)
}

/// A free rule number.
fn new_rule_id(map: &CrushMap) -> Option<usize> {
    (0..crush::RULES_MAX.min(255)).find(|i| map.rules.get(*i).is_none_or(Option::is_none))
}

/// What a new rule is to do.
#[derive(Debug, Clone)]
pub(crate) struct NewRule<'a> {
    pub(crate) name: &'a str,
    /// Bucket to begin at.
    pub(crate) root: &'a str,
    /// Bucket type to spread over; empty for devices.
    pub(crate) failure_domain: &'a str,
    /// Device class, or empty.
    pub(crate) class: &'a str,
    /// `firstn` or not (`indep`).
    pub(crate) firstn: bool,
    /// [`crush::RULE_REPLICATED`] or [`crush::RULE_ERASURE`].
    pub(crate) kind: u8,
}

/// Adds a rule; the error is the text for the user and whether it is EINVAL (else ENOENT).
pub(crate) fn add_rule(map: &mut CrushMap, new: &NewRule<'_>) -> Result<i32, (String, bool)> {
    let Some(mut root) = id_of(map, new.root) else {
        return Err((format!("root item {} does not exist", new.root), false));
    };
    let mut kind = 0;
    if !new.failure_domain.is_empty() {
        kind = type_id(map, new.failure_domain)
            .ok_or_else(|| (format!("unknown type {}", new.failure_domain), true))?;
    }
    if !new.class.is_empty() {
        let class = class_id(map, new.class)
            .ok_or_else(|| (format!("device class {} does not exist", new.class), true))?;
        root = map
            .class_buckets
            .get(&root)
            .and_then(|by| by.get(&class))
            .copied()
            .ok_or_else(|| {
                (
                    format!("root {} has no devices with class {}", new.root, new.class),
                    true,
                )
            })?;
    }
    let Some(id) = new_rule_id(map) else {
        return Err(("too many rules".to_string(), true));
    };
    let replicated = new.kind == crush::RULE_REPLICATED;
    let mut steps = Vec::new();
    if !new.firstn {
        steps.push(Step::new(op::SET_CHOOSELEAF_TRIES, 5, 0));
        steps.push(Step::new(op::SET_CHOOSE_TRIES, 100, 0));
    }
    steps.push(Step::new(op::TAKE, root, 0));
    let choose = match (kind > 0, new.firstn) {
        (true, true) => op::CHOOSELEAF_FIRSTN,
        (true, false) => op::CHOOSELEAF_INDEP,
        (false, true) => op::CHOOSE_FIRSTN,
        (false, false) => op::CHOOSE_INDEP,
    };
    steps.push(Step::new(choose, 0, kind));
    steps.push(Step::new(op::EMIT, 0, 0));
    let rule = Rule {
        ruleset: id as u8,
        kind: new.kind,
        min_size: if replicated { 1 } else { 3 },
        max_size: if replicated { 10 } else { 20 },
        steps,
    };
    put_rule(map, id, rule);
    map.rule_names.insert(id as i32, new.name.to_string());
    Ok(id as i32)
}

fn put_rule(map: &mut CrushMap, id: usize, rule: Rule) {
    if id >= map.rules.len() {
        map.rules.resize(id + 1, None);
    }
    map.rules[id] = Some(rule);
}

/// The number of a named rule.
pub(crate) fn rule_id(map: &CrushMap, name: &str) -> Option<i32> {
    map.rule_names
        .iter()
        .find(|(_, n)| *n == name)
        .map(|(id, _)| *id)
}

/// Removes a rule.
pub(crate) fn remove_rule(map: &mut CrushMap, id: i32) {
    if let Some(slot) = usize::try_from(id).ok().and_then(|i| map.rules.get_mut(i)) {
        *slot = None;
    }
    map.rule_names.remove(&id);
}

/// The map of a new cluster: the root `default`, Ceph's bucket types, one replicated rule.
pub(crate) fn initial_map(chooseleaf_type: i32) -> CrushMap {
    let mut map = CrushMap {
        tunables: Tunables::fresh(),
        ..CrushMap::default()
    };
    let types = [
        "osd",
        "host",
        "chassis",
        "rack",
        "row",
        "pdu",
        "pod",
        "room",
        "datacenter",
        "zone",
        "region",
        "root",
    ];
    for (id, name) in types.iter().enumerate() {
        map.types.insert(id as i32, (*name).to_string());
    }
    // "default" is a name any map may have.
    let added = add_bucket(&mut map, "default", 11);
    debug_assert!(added.is_ok());
    let domain = map.types.get(&chooseleaf_type).cloned().unwrap_or_default();
    let rule = NewRule {
        name: "replicated_rule",
        root: "default",
        failure_domain: if chooseleaf_type == 0 { "" } else { &domain },
        class: "",
        firstn: true,
        kind: crush::RULE_REPLICATED,
    };
    let added = add_rule(&mut map, &rule);
    debug_assert!(added.is_ok());
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pairs: &[(&str, &str)]) -> Location {
        pairs
            .iter()
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .collect()
    }

    fn three_osds() -> CrushMap {
        let mut map = initial_map(1);
        for osd in 0..3 {
            set_class(&mut map, osd, Some("hdd"));
            let at = place(&[("root", "default"), ("host", "vm")]);
            insert_item(&mut map, osd, 65, &format!("osd.{osd}"), &at).unwrap();
        }
        map
    }

    #[test]
    fn booting_osds_get_the_ids_a_real_cluster_gives() {
        let map = three_osds();
        assert_eq!(map.names[&-1], "default");
        assert_eq!(map.names[&-2], "default~hdd");
        assert_eq!(map.names[&-3], "vm");
        assert_eq!(map.names[&-4], "vm~hdd");
        assert_eq!(map.bucket(-1).unwrap().weight, 195);
        assert_eq!(map.bucket(-2).unwrap().weight, 195);
        assert_eq!(map.bucket(-4).unwrap().items, [0, 1, 2]);
    }

    #[test]
    fn weights_follow_every_change() {
        let mut map = three_osds();
        adjust_weight(&mut map, 1, 1000);
        assert_eq!(map.bucket(-1).unwrap().weight, 1130);
        assert_eq!(map.bucket(-2).unwrap().weight, 1130);
        remove_item(&mut map, 1, None, false).unwrap();
        assert_eq!(map.bucket(-1).unwrap().weight, 130);
        assert_eq!(
            remove_item(&mut map, -3, None, false),
            Err(EditError::NotEmpty)
        );
        let at = place(&[("rack", "r"), ("root", "default")]);
        move_bucket(&mut map, -3, &at).unwrap();
        assert_eq!(location_of(&map, 0).len(), 3);
        assert_eq!(map.bucket(-1).unwrap().weight, 130);
        assert_eq!(
            move_bucket(&mut map, -1, &place(&[("host", "vm")])),
            Err(EditError::Loop)
        );
    }
}
