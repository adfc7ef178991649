//! The CRUSH map as data: buckets, rules, names, tunables, device classes, choose_args.
//!
//! Devices have ids from 0, buckets negative ones: bucket `-1-i` stands in slot `i`. Weights are
//! 16.16 fixed point. What each field means to placement is in [`crate::mapper`]; its bytes are in
//! [`crate::wire`].

use std::collections::BTreeMap;

/// No item: a hole in the result of an `indep` rule.
pub const ITEM_NONE: i32 = 0x7fff_ffff;
/// A position not yet chosen; never leaves the mapper.
pub const ITEM_UNDEF: i32 = 0x7fff_fffe;
/// The choose_args that apply to every pool without its own.
pub const DEFAULT_CHOOSE_ARGS: i64 = -1;
/// Most rules a map may hold.
pub const RULES_MAX: usize = 256;
/// Highest weight of one device: 10 000 in 16.16.
pub const DEVICE_WEIGHT_MAX: u32 = 100 * 0x10000 * 100;
/// Highest weight of a bucket: 65 535 in 16.16.
pub const BUCKET_WEIGHT_MAX: u32 = 65535 * 0x10000;

/// How a bucket chooses among its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// All items of one weight; a permutation.
    Uniform = 1,
    /// A linked list, cheap to grow.
    List = 2,
    /// A weighted binary tree.
    Tree = 3,
    /// Longest straw with precomputed lengths.
    Straw = 4,
    /// Longest straw, each item on its own weight alone.
    Straw2 = 5,
}

impl Algorithm {
    /// From its number on the wire.
    pub fn from_number(number: u32) -> Option<Algorithm> {
        Some(match number {
            1 => Algorithm::Uniform,
            2 => Algorithm::List,
            3 => Algorithm::Tree,
            4 => Algorithm::Straw,
            5 => Algorithm::Straw2,
            _ => return None,
        })
    }

    /// Ceph's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Uniform => "uniform",
            Algorithm::List => "list",
            Algorithm::Tree => "tree",
            Algorithm::Straw => "straw",
            Algorithm::Straw2 => "straw2",
        }
    }

    /// From Ceph's name of it.
    pub fn from_name(name: &str) -> Option<Algorithm> {
        (1..=5).filter_map(Algorithm::from_number).find(|a| a.name() == name)
    }
}

/// The weights of a bucket's items, kept as its algorithm needs them. Vectors are as long as the
/// bucket's items (the mapper bears shorter ones, as bytes from outside may have them).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Weights {
    /// The one weight of every item.
    Uniform(u32),
    /// Weights, and the sums of the weights up to each.
    List {
        /// By item.
        weights: Vec<u32>,
        /// Sum of the weights of this item and those before it.
        sums: Vec<u32>,
    },
    /// Weights of the nodes of a binary tree; item i is node 2i+1, node 0 unused.
    Tree(Vec<u32>),
    /// Weights and straw lengths.
    Straw {
        /// By item.
        weights: Vec<u32>,
        /// Scaling of each item's straw, 16.16.
        straws: Vec<u32>,
    },
    /// Weights.
    Straw2(Vec<u32>),
}

/// An inner node of the hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// Negative.
    pub id: i32,
    /// Type number (host, rack, ...), never 0.
    pub kind: u16,
    /// Hash function; 0, rjenkins1, is the only one there is.
    pub hash: u8,
    /// Sum of the items' weights, 16.16.
    pub weight: u32,
    /// Devices (>= 0) and buckets (< 0).
    pub items: Vec<i32>,
    /// The items' weights.
    pub weights: Weights,
}

/// What one step of a rule does; the numbers are those of the wire.
pub mod op {
    #![allow(missing_docs, reason = "the names are Ceph's and say it")]
    pub const NOOP: u32 = 0;
    pub const TAKE: u32 = 1;
    pub const CHOOSE_FIRSTN: u32 = 2;
    pub const CHOOSE_INDEP: u32 = 3;
    pub const EMIT: u32 = 4;
    pub const CHOOSELEAF_FIRSTN: u32 = 6;
    pub const CHOOSELEAF_INDEP: u32 = 7;
    pub const SET_CHOOSE_TRIES: u32 = 8;
    pub const SET_CHOOSELEAF_TRIES: u32 = 9;
    pub const SET_CHOOSE_LOCAL_TRIES: u32 = 10;
    pub const SET_CHOOSE_LOCAL_FALLBACK_TRIES: u32 = 11;
    pub const SET_CHOOSELEAF_VARY_R: u32 = 12;
    pub const SET_CHOOSELEAF_STABLE: u32 = 13;
}

/// One step of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// One of [`op`]; unknown ones do nothing.
    pub op: u32,
    /// The item taken, the count chosen, or the value set.
    pub arg1: i32,
    /// The type chosen.
    pub arg2: i32,
}

impl Step {
    /// A step.
    pub fn new(op: u32, arg1: i32, arg2: i32) -> Step {
        Step { op, arg1, arg2 }
    }
}

/// A placement rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Equal to the rule's slot since luminous.
    pub ruleset: u8,
    /// 1 replicated, 3 erasure: the pool types.
    pub kind: u8,
    /// Smallest pool size it is for.
    pub min_size: u8,
    /// Largest pool size it is for.
    pub max_size: u8,
    /// What it does.
    pub steps: Vec<Step>,
}

/// Rule (and pool) type replicated.
pub const RULE_REPLICATED: u8 = 1;
/// Rule (and pool) type erasure.
pub const RULE_ERASURE: u8 = 3;

/// Behaviours that changed over Ceph's life; clients and servers must agree on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunables {
    /// Retries in the same bucket after a collision.
    pub choose_local_tries: u32,
    /// Retries in the same bucket by permutation.
    pub choose_local_fallback_tries: u32,
    /// Descents from the top before giving up, less one.
    pub choose_total_tries: u32,
    /// 1: the leaf below a chosen bucket is tried once, not choose_total_tries times.
    pub chooseleaf_descend_once: u32,
    /// Above 0: the leaf search starts from r >> (vary_r - 1), not 0.
    pub chooseleaf_vary_r: u8,
    /// How straw lengths are computed: 0 or 1.
    pub straw_calc_version: u8,
    /// Bit per algorithm that the monitors may use for new buckets.
    pub allowed_bucket_algs: u32,
    /// 1: the leaf of a replica does not depend on its position.
    pub chooseleaf_stable: u8,
}

/// uniform, list, straw.
pub const LEGACY_ALLOWED_BUCKET_ALGS: u32 = 0x16;
/// uniform, list, straw, straw2.
pub const HAMMER_ALLOWED_BUCKET_ALGS: u32 = 0x36;

impl Tunables {
    /// The profile `argonaut`, also what a map without tunables has.
    pub fn argonaut() -> Tunables {
        Tunables {
            choose_local_tries: 2,
            choose_local_fallback_tries: 5,
            choose_total_tries: 19,
            chooseleaf_descend_once: 0,
            chooseleaf_vary_r: 0,
            straw_calc_version: 0,
            allowed_bucket_algs: LEGACY_ALLOWED_BUCKET_ALGS,
            chooseleaf_stable: 0,
        }
    }

    /// The profile `bobtail`.
    pub fn bobtail() -> Tunables {
        Tunables {
            choose_local_tries: 0,
            choose_local_fallback_tries: 0,
            choose_total_tries: 50,
            chooseleaf_descend_once: 1,
            ..Tunables::argonaut()
        }
    }

    /// The profile `firefly`.
    pub fn firefly() -> Tunables {
        Tunables { chooseleaf_vary_r: 1, ..Tunables::bobtail() }
    }

    /// The profile `hammer`.
    pub fn hammer() -> Tunables {
        Tunables { allowed_bucket_algs: HAMMER_ALLOWED_BUCKET_ALGS, ..Tunables::firefly() }
    }

    /// The profile `jewel`: optimal and default in 16.2.
    pub fn jewel() -> Tunables {
        Tunables { chooseleaf_stable: 1, ..Tunables::hammer() }
    }

    /// What a fresh cluster has: `jewel` with straw_calc_version 1.
    pub fn fresh() -> Tunables {
        Tunables { straw_calc_version: 1, ..Tunables::jewel() }
    }

    /// Whether the placement behaviours (not straw_calc_version) are those of `profile`.
    pub fn same_behaviour(&self, profile: &Tunables) -> bool {
        Tunables { straw_calc_version: 0, ..self.clone() }
            == Tunables { straw_calc_version: 0, ..profile.clone() }
    }
}

impl Default for Tunables {
    fn default() -> Tunables {
        Tunables::fresh()
    }
}

/// Replacement weights and ids of one bucket's items, for some pools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ChooseArg {
    /// Weights by replica position (the last serves all further ones), then by item; empty: the
    /// bucket's own.
    pub weight_set: Vec<Vec<u32>>,
    /// What is hashed instead of the items' ids; empty: the ids.
    pub ids: Vec<i32>,
}

/// choose_args of one set: by bucket slot (`-1-id`).
pub type ChooseArgs = BTreeMap<u32, ChooseArg>;

/// A CRUSH map. Wire: CrushWrapper.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CrushMap {
    /// Slot i holds bucket -1-i. Grows in powers of two from 8, as Ceph's does: its length is on
    /// the wire.
    pub buckets: Vec<Option<Bucket>>,
    /// By rule id.
    pub rules: Vec<Option<Rule>>,
    /// One above the highest device id.
    pub max_devices: i32,
    /// Bucket types; 0 is the device.
    pub types: BTreeMap<i32, String>,
    /// Names of devices, buckets and shadow buckets (`name~class`).
    pub names: BTreeMap<i32, String>,
    /// Names of rules.
    pub rule_names: BTreeMap<i32, String>,
    /// Behaviours.
    pub tunables: Tunables,
    /// Device to class.
    pub classes: BTreeMap<i32, i32>,
    /// Class to its name.
    pub class_names: BTreeMap<i32, String>,
    /// Bucket to class to shadow bucket.
    pub class_buckets: BTreeMap<i32, BTreeMap<i32, i32>>,
    /// By pool id, or [`DEFAULT_CHOOSE_ARGS`].
    pub choose_args: BTreeMap<i64, ChooseArgs>,
}

impl CrushMap {
    /// The bucket of an id.
    #[inline]
    pub fn bucket(&self, id: i32) -> Option<&Bucket> {
        if id >= 0 {
            return None;
        }
        self.buckets.get((-1 - id) as usize)?.as_ref()
    }

    /// The bucket of an id, to change.
    pub fn bucket_mut(&mut self, id: i32) -> Option<&mut Bucket> {
        if id >= 0 {
            return None;
        }
        self.buckets.get_mut((-1 - id) as usize)?.as_mut()
    }

    /// Every bucket, slot by slot (from id -1 downwards).
    pub fn each_bucket(&self) -> impl Iterator<Item = &Bucket> {
        self.buckets.iter().flatten()
    }

    /// The rule of an id.
    pub fn rule(&self, id: i32) -> Option<&Rule> {
        self.rules.get(usize::try_from(id).ok()?)?.as_ref()
    }

    /// The rule for pools that name `ruleset`, of that type and size.
    pub fn find_rule(&self, ruleset: u8, kind: u8, size: u8) -> Option<i32> {
        let fits = |rule: &Rule| {
            rule.ruleset == ruleset
                && rule.kind == kind
                && (rule.min_size..=rule.max_size).contains(&size)
        };
        let slot = self.rules.iter().position(|slot| slot.as_ref().is_some_and(fits))?;
        i32::try_from(slot).ok()
    }

    /// The choose_args a pool uses: its own, else the default set, else none.
    pub fn choose_args_for(&self, pool: i64) -> Option<&ChooseArgs> {
        self.choose_args.get(&pool).or_else(|| self.choose_args.get(&DEFAULT_CHOOSE_ARGS))
    }
}

impl Bucket {
    /// Which algorithm chooses.
    pub fn algorithm(&self) -> Algorithm {
        match self.weights {
            Weights::Uniform(_) => Algorithm::Uniform,
            Weights::List { .. } => Algorithm::List,
            Weights::Tree(_) => Algorithm::Tree,
            Weights::Straw { .. } => Algorithm::Straw,
            Weights::Straw2(_) => Algorithm::Straw2,
        }
    }

    /// The weight of the item at `position`, 16.16; 0 beyond the end.
    pub fn item_weight(&self, position: usize) -> u32 {
        let at = |v: &[u32], i: usize| v.get(i).copied().unwrap_or(0);
        match &self.weights {
            Weights::Uniform(weight) if position < self.items.len() => *weight,
            Weights::Uniform(_) => 0,
            Weights::List { weights, .. }
            | Weights::Straw { weights, .. }
            | Weights::Straw2(weights) => at(weights, position),
            Weights::Tree(nodes) => at(nodes, 2 * position + 1),
        }
    }
}
