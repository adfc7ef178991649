//! Changing the hierarchy: what `ceph osd crush ...` does to the map.
//! `src/crush/CrushWrapper.cc` at v16.2.
//!
//! Every change keeps three things true: a bucket's weight is the sum of its items', the weight
//! sets follow, and the shadow trees of device classes mirror the real ones ([`crate::class`]).
//! An operation that fails may leave names or empty buckets behind: work on a copy.

use core::fmt;
use std::collections::BTreeMap;

use crate::map::{
    Algorithm, BUCKET_WEIGHT_MAX, Bucket, CrushMap, DEVICE_WEIGHT_MAX, Rule, Tunables, op,
};

/// A place: type name to bucket name, as `root=default host=a`.
pub type Location = BTreeMap<String, String>;

/// Why a change is refused; the operator is at fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditError {
    /// A name has characters it may not have (EINVAL).
    InvalidName(String),
    /// No such bucket, device, class or rule (ENOENT).
    NotFound(String),
    /// The name is taken, or the item is there already (EEXIST).
    Exists(String),
    /// The bucket still holds items (ENOTEMPTY).
    NotEmpty(String),
    /// A rule takes it, or it is bound to something else (EBUSY).
    Busy(String),
    /// The place names no bucket, or one of another type, or would make a loop (EINVAL).
    BadLocation,
    /// A weight is out of range (EINVAL), or too large for a bucket (EOVERFLOW).
    BadWeight,
    /// The item is of the wrong kind: a device for a bucket or the reverse (EINVAL).
    WrongKind(String),
    /// There is no type of that name (EINVAL).
    UnknownType(String),
    /// There is no room for another rule (ENOSPC).
    TooManyRules,
}

impl fmt::Display for EditError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EditError::InvalidName(name) => write!(f, "invalid name '{name}'"),
            EditError::NotFound(what) => write!(f, "{what} does not exist"),
            EditError::Exists(what) => write!(f, "{what} already exists"),
            EditError::NotEmpty(what) => write!(f, "{what} is not empty"),
            EditError::Busy(what) => write!(f, "{what}"),
            EditError::BadLocation => write!(f, "invalid location"),
            EditError::BadWeight => write!(f, "invalid weight"),
            EditError::WrongKind(what) => write!(f, "{what} is of the wrong kind"),
            EditError::UnknownType(name) => write!(f, "unknown type {name}"),
            EditError::TooManyRules => write!(f, "no more rules"),
        }
    }
}

impl std::error::Error for EditError {}

/// The types of a fresh map, by number.
pub const DEFAULT_TYPES: [&str; 12] = [
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

/// Bytes of a name of an item, type, class or rule.
const NAME_LEN_MAX: usize = 4096;

/// Whether a name of an item, type, class or rule may be used: letters, digits, `_`, `-`, `.`; not too many of
/// them, as every map has all names.
pub fn is_valid_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    (1..=NAME_LEN_MAX).contains(&name.len()) && name.chars().all(fine)
}

/// A weight in 16.16; `None` if negative, not a number or too large.
pub fn fixed_weight(weight: f64) -> Option<u32> {
    let fixed = weight * 65536.0;
    // What is no int is refused, as in Ceph (`validate_weightf`): choosing takes it for one.
    let fixed = if fixed >= 0.0 { fixed } else { return None };
    (fixed <= f64::from(i32::MAX)).then_some(fixed as u32)
}

impl CrushMap {
    /// The map of a fresh cluster: types, an empty root `default`, optimal tunables, no rule.
    pub fn fresh() -> CrushMap {
        let mut map = CrushMap { tunables: Tunables::fresh(), ..CrushMap::default() };
        for (n, name) in DEFAULT_TYPES.iter().enumerate() {
            map.types.insert(n as i32, (*name).to_owned());
        }
        let root = map.add_bucket(map.default_algorithm(), 11, &[]);
        map.names.insert(root, "default".to_owned());
        map
    }

    /// Counts devices anew, those in a bucket and those with a name: what is decoded or compiled says
    /// more or fewer (`CrushWrapper::finalize` at v16.2).
    pub(crate) fn count_devices(&mut self) {
        let placed = self.each_bucket().flat_map(|bucket| &bucket.items).max();
        let highest = placed.max(self.names.keys().next_back()).map_or(-1, |id| (*id).max(-1));
        self.max_devices = highest.saturating_add(1);
    }

    /// The algorithm of new buckets: the best that the tunables allow.
    pub fn default_algorithm(&self) -> Algorithm {
        use Algorithm::{List, Straw, Straw2, Tree, Uniform};
        let allowed = |a: &Algorithm| self.tunables.allowed_bucket_algs & (1 << *a as u32) != 0;
        [Straw2, Straw, Tree, List, Uniform].into_iter().find(allowed).unwrap_or(Straw2)
    }

    // Names.

    /// The id of a name.
    pub fn id_of(&self, name: &str) -> Option<i32> {
        self.names.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }

    /// The name of an item.
    pub fn name_of(&self, item: i32) -> Option<&str> {
        self.names.get(&item).map(String::as_str)
    }

    /// The number of a type's name.
    pub fn type_id(&self, name: &str) -> Option<i32> {
        self.types.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }

    /// The name of a bucket's type; of devices, that of type 0.
    pub fn type_name_of(&self, item: i32) -> Option<&str> {
        let kind = if item >= 0 { 0 } else { i32::from(self.bucket(item)?.kind) };
        self.types.get(&kind).map(String::as_str)
    }

    // Structure.

    /// Whether some bucket holds the item.
    pub fn is_linked(&self, item: i32) -> bool {
        self.each_bucket().any(|b| b.items.contains(&item))
    }

    /// Whether an item exists: a bucket, or a device that some bucket holds or that has a name.
    pub fn item_exists(&self, item: i32) -> bool {
        if item < 0 { self.bucket(item).is_some() } else { self.names.contains_key(&item) }
    }

    /// Whether an item is a shadow bucket.
    pub fn is_shadow(&self, item: i32) -> bool {
        self.name_of(item).is_some_and(|name| name.contains('~'))
    }

    /// Buckets that no bucket holds, ascending by id.
    pub fn roots(&self, with_shadows: bool) -> Vec<i32> {
        let held: std::collections::BTreeSet<i32> =
            self.each_bucket().flat_map(|b| b.items.iter().copied()).collect();
        let mut roots: Vec<i32> = self
            .each_bucket()
            .map(|b| b.id)
            .filter(|id| !held.contains(id) && (with_shadows || !self.is_shadow(*id)))
            .collect();
        roots.sort_unstable();
        roots
    }

    /// Whether `item` is `root` or below it.
    pub fn subtree_contains(&self, root: i32, item: i32) -> bool {
        self.subtree(root).contains(&item)
    }

    /// `root` and all below it, each once.
    pub fn subtree(&self, root: i32) -> std::collections::BTreeSet<i32> {
        let mut seen = std::collections::BTreeSet::new();
        let mut todo = vec![root];
        while let Some(item) = todo.pop() {
            if seen.insert(item) {
                todo.extend(self.bucket(item).into_iter().flat_map(|b| b.items.iter()));
            }
        }
        seen
    }

    /// The devices below `root`.
    pub fn devices_under(&self, root: i32) -> Vec<i32> {
        self.subtree(root).into_iter().filter(|item| *item >= 0).collect()
    }

    /// The bucket that holds an item; shadow buckets do not count.
    pub fn parent_of(&self, item: i32) -> Option<i32> {
        let holds = |b: &&Bucket| b.items.contains(&item) && !self.is_shadow(b.id);
        self.each_bucket().find(holds).map(|b| b.id)
    }

    /// The buckets above an item, nearest first: type name and bucket name.
    pub fn full_location(&self, item: i32) -> Vec<(String, String)> {
        let mut path = Vec::new();
        let mut at = item;
        while let Some(parent) = self.parent_of(at) {
            let kind = self.type_name_of(parent).unwrap_or_default().to_owned();
            path.push((kind, self.name_of(parent).unwrap_or_default().to_owned()));
            at = parent;
            if path.len() > self.buckets.len() {
                break;
            }
        }
        path
    }

    /// The ancestor of a type.
    pub fn parent_of_type(&self, item: i32, kind: i32) -> Option<i32> {
        let mut at = item;
        for _ in 0..=self.buckets.len() {
            at = self.parent_of(at)?;
            if i32::from(self.bucket(at)?.kind) == kind {
                return Some(at);
            }
        }
        None
    }

    /// The weight of an item where it is first held; a root's own weight.
    pub fn weight_of(&self, item: i32) -> Option<u32> {
        for bucket in self.each_bucket().filter(|b| !self.is_shadow(b.id)) {
            if let Some(i) = bucket.position(item) {
                return Some(bucket.item_weight(i));
            }
        }
        self.bucket(item).map(|b| b.weight)
    }

    /// Adds a bucket with the lowest free id; it has no name yet.
    pub fn add_bucket(&mut self, alg: Algorithm, kind: u16, items: &[(i32, u32)]) -> i32 {
        let free = self.buckets.iter().position(Option::is_none).unwrap_or(self.buckets.len());
        let id = -1 - free as i32;
        let bucket = Bucket::new(id, alg, kind, items, self.tunables.straw_calc_version);
        self.put_bucket(bucket);
        self.init_choose_args(id);
        id
    }

    /// Puts a bucket into its slot, growing the slots as Ceph's builder does.
    pub(crate) fn put_bucket(&mut self, bucket: Bucket) {
        let slot = (-1 - bucket.id) as usize;
        while self.buckets.len() <= slot {
            let len = if self.buckets.is_empty() { 8 } else { 2 * self.buckets.len() };
            self.buckets.resize(len, None);
        }
        self.buckets[slot] = Some(bucket);
    }

    pub(crate) fn drop_bucket(&mut self, id: i32) {
        if let Some(slot) = self.buckets.get_mut((-1 - id) as usize) {
            *slot = None;
        }
        for args in self.choose_args.values_mut() {
            args.remove(&((-1 - id) as u32));
        }
    }

    /// Adds a named bucket that holds nothing.
    pub fn add_named_bucket(&mut self, name: &str, kind: &str) -> Result<i32, EditError> {
        if !is_valid_name(name) {
            return Err(EditError::InvalidName(name.to_owned()));
        }
        if self.id_of(name).is_some() {
            return Err(EditError::Exists(format!("bucket '{name}'")));
        }
        let number = self.type_id(kind).ok_or_else(|| EditError::UnknownType(kind.to_owned()))?;
        if number == 0 {
            return Err(EditError::WrongKind(format!("type '{kind}'")));
        }
        let id = self.add_bucket(self.default_algorithm(), number as u16, &[]);
        self.names.insert(id, name.to_owned());
        Ok(id)
    }

    /// Whether an item is held right where `loc` says, and with what weight there.
    pub fn check_item_loc(&self, item: i32, loc: &Location) -> Option<u32> {
        let nearest = self.types.iter().filter(|(n, _)| **n != 0).find_map(|(_, t)| loc.get(t))?;
        let bucket = self.bucket(self.id_of(nearest)?)?;
        Some(bucket.item_weight(bucket.position(item)?))
    }

    /// Puts an item below the buckets of `loc`, making those that are missing, nearest first up
    /// to the first that is there.
    pub fn insert_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        loc: &Location,
    ) -> Result<(), EditError> {
        check_location(loc)?;
        if !is_valid_name(name) {
            return Err(EditError::InvalidName(name.to_owned()));
        }
        if weight > DEVICE_WEIGHT_MAX && item >= 0 || weight > BUCKET_WEIGHT_MAX {
            return Err(EditError::BadWeight);
        }
        match self.id_of(name) {
            Some(id) if id != item => return Err(EditError::Exists(format!("item '{name}'"))),
            Some(_) => {}
            None => {
                self.names.insert(item, name.to_owned());
            }
        }
        let mut at = item;
        let types: Vec<(i32, String)> = self.types.clone().into_iter().collect();
        for (kind, type_name) in types {
            let Some(bucket_name) = loc.get(&type_name).filter(|_| kind != 0) else { continue };
            let Some(id) = self.id_of(bucket_name) else {
                let alg = self.default_algorithm();
                let id = self.add_bucket(alg, kind as u16, &[(at, 0)]);
                self.names.insert(id, bucket_name.clone());
                at = id;
                continue;
            };
            let Some(bucket) = self.bucket(id) else { return Err(EditError::BadLocation) };
            if i32::from(bucket.kind) != kind || self.subtree_contains(at, id) {
                return Err(EditError::BadLocation);
            }
            if bucket.items.contains(&at) {
                return Err(EditError::Exists(format!("item '{name}' in '{bucket_name}'")));
            }
            self.bucket_add_item(id, at, 0);
            break;
        }
        if self.adjust_item_weight_in_loc(item, weight, loc)? == 0 {
            return Err(EditError::BadLocation);
        }
        self.max_devices = self.max_devices.max(item.saturating_add(1));
        self.rebuild_shadow_trees();
        Ok(())
    }

    /// Puts an item to `loc` unless it is there: a device that exists keeps its weight. Whether
    /// anything changed. What a booting OSD asks for.
    pub fn create_or_move_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        loc: &Location,
    ) -> Result<bool, EditError> {
        check_location(loc)?;
        if self.check_item_loc(item, loc).is_some() {
            return Ok(false);
        }
        let mut weight = weight;
        if self.is_linked(item) {
            weight = self.weight_of(item).unwrap_or(weight);
            self.unlink_everywhere(item);
        }
        self.insert_item(item, weight, name, loc)?;
        Ok(true)
    }

    /// Puts an item to `loc` with that weight and name, wherever it was. Whether anything changed.
    pub fn update_item(
        &mut self,
        item: i32,
        weight: u32,
        name: &str,
        loc: &Location,
    ) -> Result<bool, EditError> {
        check_location(loc)?;
        if let Some(old) = self.check_item_loc(item, loc) {
            let mut changed = false;
            if old != weight {
                self.adjust_item_weight_in_loc(item, weight, loc)?;
                changed = true;
            }
            if self.name_of(item) != Some(name) {
                self.names.insert(item, name.to_owned());
                changed = true;
            }
            if changed {
                self.rebuild_shadow_trees();
            }
            return Ok(changed);
        }
        if self.is_linked(item) {
            self.unlink_everywhere(item);
        }
        self.insert_item(item, weight, name, loc)?;
        Ok(true)
    }

    /// Moves a bucket with all below it.
    pub fn move_bucket(&mut self, id: i32, loc: &Location) -> Result<(), EditError> {
        let Some(weight) = self.bucket(id).map(|b| b.weight) else {
            return Err(EditError::NotFound(format!("bucket {id}")));
        };
        let name = self.name_of(id).unwrap_or_default().to_owned();
        if let Some(parent) = self.parent_of(id) {
            self.adjust_item_weight_in_bucket(id, 0, parent);
            self.bucket_remove_item(parent, id);
        }
        self.insert_item(id, weight, &name, loc)
    }

    /// Puts a bucket at a further place.
    pub fn link_bucket(&mut self, id: i32, loc: &Location) -> Result<(), EditError> {
        let Some(weight) = self.bucket(id).map(|b| b.weight) else {
            return Err(EditError::NotFound(format!("bucket {id}")));
        };
        let name = self.name_of(id).unwrap_or_default().to_owned();
        self.insert_item(id, weight, &name, loc)
    }

    /// Removes an item wherever it is held (or, with `ancestor`, only below that), and unless
    /// `unlink_only` or still held, the item itself.
    pub fn remove_item(
        &mut self,
        item: i32,
        ancestor: Option<i32>,
        unlink_only: bool,
    ) -> Result<(), EditError> {
        let name = || self.name_of(item).unwrap_or_default().to_owned();
        if item < 0 && !unlink_only {
            if self.bucket(item).is_some_and(|b| !b.items.is_empty()) {
                return Err(EditError::NotEmpty(format!("bucket '{}'", name())));
            }
            if self.is_in_use(item) {
                return Err(EditError::Busy(format!("bucket '{}' is used by a rule", name())));
            }
        }
        let below = ancestor.map(|root| self.subtree(root));
        let holders: Vec<i32> = self
            .each_bucket()
            .filter(|b| b.items.contains(&item) && !self.is_shadow(b.id))
            .map(|b| b.id)
            .filter(|id| below.as_ref().is_none_or(|set| set.contains(id)))
            .collect();
        let known = self.item_exists(item);
        if holders.is_empty() && (!known || ancestor.is_some()) {
            return Err(EditError::NotFound(format!("item '{}'", name())));
        }
        for bucket in holders {
            self.adjust_item_weight_in_bucket(item, 0, bucket);
            self.bucket_remove_item(bucket, item);
        }
        self.remove_last_instance(item, unlink_only);
        self.rebuild_shadow_trees();
        Ok(())
    }

    fn unlink_everywhere(&mut self, item: i32) {
        let holders: Vec<i32> = self
            .each_bucket()
            .filter(|b| b.items.contains(&item) && !self.is_shadow(b.id))
            .map(|b| b.id)
            .collect();
        for bucket in holders {
            self.adjust_item_weight_in_bucket(item, 0, bucket);
            self.bucket_remove_item(bucket, item);
        }
        self.rebuild_shadow_trees();
    }

    fn remove_last_instance(&mut self, item: i32, unlink_only: bool) {
        let held = |b: &Bucket| b.items.contains(&item) && !self.is_shadow(b.id);
        if self.each_bucket().any(held) || (item < 0 && self.is_in_use(item)) {
            return;
        }
        if item < 0 && !unlink_only {
            self.drop_shadows_of(item);
            self.drop_bucket(item);
        }
        if !unlink_only {
            self.names.remove(&item);
            if item >= 0 {
                self.classes.remove(&item);
            }
        }
    }

    /// Whether a rule takes the bucket or one of its shadows.
    pub fn is_in_use(&self, bucket: i32) -> bool {
        let shadows = self.class_buckets.get(&bucket);
        let taken = |item: i32| {
            item == bucket || shadows.is_some_and(|s| s.values().any(|shadow| *shadow == item))
        };
        let rules = self.rules.iter().flatten();
        rules.flat_map(|r| &r.steps).any(|s| s.op == op::TAKE && taken(s.arg1))
    }

    /// Gives a bucket another name.
    pub fn rename_bucket(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        let id =
            self.id_of(from).ok_or_else(|| EditError::NotFound(format!("srcname '{from}'")))?;
        if self.id_of(to).is_some() {
            return Err(EditError::Exists(format!("dstname '{to}'")));
        }
        if id >= 0 || self.is_shadow(id) {
            return Err(EditError::WrongKind(format!("srcname '{from}'")));
        }
        if !is_valid_name(to) {
            return Err(EditError::InvalidName(to.to_owned()));
        }
        self.names.insert(id, to.to_owned());
        for (class, shadow) in self.class_buckets.get(&id).cloned().unwrap_or_default() {
            let class = self.class_names.get(&class).cloned().unwrap_or_default();
            self.names.insert(shadow, format!("{to}~{class}"));
        }
        Ok(())
    }

    /// Exchanges what two buckets hold, and their names.
    pub fn swap_buckets(&mut self, a: i32, b: i32) -> Result<(), EditError> {
        let missing = |id: i32| EditError::NotFound(format!("bucket {id}"));
        let of_a = self.bucket(a).ok_or_else(|| missing(a))?.weighted_items();
        let of_b = self.bucket(b).ok_or_else(|| missing(b))?.weighted_items();
        // What a shadow holds follows from its bucket and is gone with the next change. (`ceph` refuses such a name itself.)
        if let Some(shadow) = [a, b].into_iter().find(|id| self.is_shadow(*id)) {
            let name = self.name_of(shadow).unwrap_or_default();
            return Err(EditError::WrongKind(format!("bucket '{name}'")));
        }
        if self.subtree_contains(a, b) || self.subtree_contains(b, a) {
            return Err(EditError::BadLocation);
        }
        for (bucket, old, new) in [(a, &of_a, &of_b), (b, &of_b, &of_a)] {
            for (item, _) in old {
                self.bucket_remove_item(bucket, *item);
            }
            for (item, weight) in new {
                self.bucket_add_item(bucket, *item, *weight);
            }
        }
        for id in [a, b] {
            let weight = self.bucket(id).map_or(0, |bucket| bucket.weight);
            self.propagate_weight(id, weight);
        }
        let (name_a, name_b) = (self.names.remove(&a), self.names.remove(&b));
        self.names.extend(name_b.map(|name| (a, name)));
        self.names.extend(name_a.map(|name| (b, name)));
        self.rebuild_shadow_trees();
        Ok(())
    }

    // Rules.

    /// The id of a rule's name.
    pub fn rule_id(&self, name: &str) -> Option<i32> {
        self.rule_names.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }

    /// Adds a rule in the lowest free slot, its ruleset the slot.
    pub fn add_rule(&mut self, name: &str, mut rule: Rule) -> Result<i32, EditError> {
        if !is_valid_name(name) {
            return Err(EditError::InvalidName(name.to_owned()));
        }
        if self.rule_id(name).is_some() {
            return Err(EditError::Exists(format!("rule {name}")));
        }
        let used =
            |slot: usize| self.rules.iter().flatten().any(|r| usize::from(r.ruleset) == slot);
        let free = |slot: &usize| self.rules.get(*slot).is_none_or(Option::is_none) && !used(*slot);
        let slot = (0..crate::map::RULES_MAX).find(free).ok_or(EditError::TooManyRules)?;
        if self.rules.len() <= slot {
            self.rules.resize(slot + 1, None);
        }
        rule.ruleset = slot as u8;
        self.rules[slot] = Some(rule);
        self.rule_names.insert(slot as i32, name.to_owned());
        Ok(slot as i32)
    }

    /// Adds the rule that spreads over buckets of one type (empty: over devices) below a root.
    ///
    /// `firstn` rules are for pools of 1 to 10 copies, `indep` ones for 3 to 20 chunks.
    pub fn add_simple_rule(
        &mut self,
        name: &str,
        root: &str,
        failure_domain: &str,
        class: &str,
        firstn: bool,
        kind: u8,
    ) -> Result<i32, EditError> {
        use crate::map::Step;
        let mut root_id =
            self.id_of(root).ok_or_else(|| EditError::NotFound(format!("root item {root}")))?;
        let domain = match failure_domain {
            "" => 0,
            name => self.type_id(name).ok_or_else(|| EditError::UnknownType(name.to_owned()))?,
        };
        if !class.is_empty() {
            let class_id = self
                .class_id(class)
                .ok_or_else(|| EditError::NotFound(format!("device class {class}")))?;
            let shadow = self.class_buckets.get(&root_id).and_then(|c| c.get(&class_id)).copied();
            root_id = shadow.ok_or_else(|| {
                EditError::NotFound(format!("root item {root} has no devices with class {class};"))
            })?;
        }
        let mut steps = Vec::new();
        if !firstn {
            steps.push(Step::new(op::SET_CHOOSELEAF_TRIES, 5, 0));
            steps.push(Step::new(op::SET_CHOOSE_TRIES, 100, 0));
        }
        steps.push(Step::new(op::TAKE, root_id, 0));
        let choose = match (domain, firstn) {
            (0, true) => op::CHOOSE_FIRSTN,
            (0, false) => op::CHOOSE_INDEP,
            (_, true) => op::CHOOSELEAF_FIRSTN,
            (_, false) => op::CHOOSELEAF_INDEP,
        };
        steps.push(Step::new(choose, 0, domain));
        steps.push(Step::new(op::EMIT, 0, 0));
        let (min_size, max_size) = if firstn { (1, 10) } else { (3, 20) };
        self.add_rule(name, Rule { ruleset: 0, kind, min_size, max_size, steps })
    }

    /// Removes a rule.
    pub fn remove_rule(&mut self, id: i32) -> Result<(), EditError> {
        match usize::try_from(id).ok().and_then(|slot| self.rules.get_mut(slot)) {
            Some(slot) if slot.is_some() => *slot = None,
            _ => return Err(EditError::NotFound(format!("rule {id}"))),
        }
        self.rule_names.remove(&id);
        self.rebuild_shadow_trees();
        Ok(())
    }

    /// Gives a rule another name.
    pub fn rename_rule(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        let id = self.rule_id(from).ok_or_else(|| EditError::NotFound(format!("rule {from}")))?;
        if self.rule_id(to).is_some() {
            return Err(EditError::Exists(format!("rule {to}")));
        }
        if !is_valid_name(to) {
            return Err(EditError::InvalidName(to.to_owned()));
        }
        self.rule_names.insert(id, to.to_owned());
        Ok(())
    }

    /// What share of a rule's data each device gets: for each bucket the rule takes, the weights
    /// below it as fractions of their sum. In single precision, as Ceph computes space from it.
    pub fn rule_weights(&self, rule: i32) -> BTreeMap<i32, f32> {
        let mut shares: BTreeMap<i32, f32> = BTreeMap::new();
        let Some(rule) = self.rule(rule) else { return shares };
        for step in rule.steps.iter().filter(|s| s.op == op::TAKE) {
            let (below, sum) = if step.arg1 >= 0 {
                (BTreeMap::from([(step.arg1, 1.0)]), 1.0)
            } else {
                self.device_weights_under(step.arg1)
            };
            for (device, weight) in &below {
                *shares.entry(*device).or_default() += *weight / sum;
            }
        }
        shares
    }

    /// The weights of the devices below a bucket, level by level, and their sum.
    pub fn device_weights_under(&self, root: i32) -> (BTreeMap<i32, f32>, f32) {
        let (mut weights, mut sum) = (BTreeMap::new(), 0.0);
        let mut todo = std::collections::VecDeque::from([root]);
        let mut seen = std::collections::BTreeSet::new();
        while let Some(bucket) = todo.pop_front() {
            if !seen.insert(bucket) {
                continue;
            }
            for (item, weight) in
                self.bucket(bucket).map(Bucket::weighted_items).unwrap_or_default()
            {
                if item >= 0 {
                    weights.insert(item, weight as f32);
                    sum += weight as f32;
                } else {
                    todo.push_back(item);
                }
            }
        }
        (weights, sum)
    }
}

/// Refuses a place with names that could not be given.
fn check_location(loc: &Location) -> Result<(), EditError> {
    for name in loc.keys().chain(loc.values()) {
        if !is_valid_name(name) {
            return Err(EditError::InvalidName(name.clone()));
        }
    }
    Ok(())
}
