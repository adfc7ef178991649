//! The mapper: runs a rule for an input x and gives the list of items it picks.
//!
//! Bit-exact with `src/crush/mapper.c` at v16.2, tunables of every age included. It relies on
//! nothing about the map but what decoding checks: dangling ids, empty buckets and loops in the
//! hierarchy end a descent without a result.

use crate::choose::{choose, permute};
use crate::hash::hash2;
use crate::map::{Bucket, ChooseArgs, CrushMap, ITEM_NONE, ITEM_UNDEF, Weights, op};

impl CrushMap {
    /// Runs rule `rule` for input `x`.
    ///
    /// `size` is the most items wanted, `weights` the in/out weight of each device (0x10000: in,
    /// 0 or missing: out), `choose_args` the set that applies ([`CrushMap::choose_args_for`]).
    /// A `firstn` rule may give fewer items; an `indep` rule has [`ITEM_NONE`] for holes. An
    /// unknown rule gives none.
    pub fn do_rule(
        &self,
        rule: i32,
        x: u32,
        size: usize,
        weights: &[u32],
        choose_args: Option<&ChooseArgs>,
    ) -> Vec<i32> {
        let Some(rule) = self.rule(rule) else { return Vec::new() };
        let t = &self.tunables;
        let mut run = Run {
            map: self,
            x,
            weights,
            choose_args,
            tries: t.choose_total_tries.wrapping_add(1),
            leaf_tries: 0,
            local_tries: t.choose_local_tries,
            local_fallback_tries: t.choose_local_fallback_tries,
            vary_r: t.chooseleaf_vary_r.into(),
            stable: t.chooseleaf_stable != 0,
        };
        let mut result = Vec::with_capacity(size);
        let mut working: Vec<i32> = Vec::new();
        for step in &rule.steps {
            let positive = u32::try_from(step.arg1).ok().filter(|n| *n > 0);
            let natural = u32::try_from(step.arg1).ok();
            match step.op {
                op::TAKE => {
                    let device = (0..self.max_devices).contains(&step.arg1);
                    if device || self.bucket(step.arg1).is_some() {
                        working = vec![step.arg1];
                    }
                }
                op::SET_CHOOSE_TRIES => run.tries = positive.unwrap_or(run.tries),
                op::SET_CHOOSELEAF_TRIES => run.leaf_tries = positive.unwrap_or(run.leaf_tries),
                op::SET_CHOOSE_LOCAL_TRIES => {
                    run.local_tries = natural.unwrap_or(run.local_tries);
                }
                op::SET_CHOOSE_LOCAL_FALLBACK_TRIES => {
                    run.local_fallback_tries = natural.unwrap_or(run.local_fallback_tries);
                }
                op::SET_CHOOSELEAF_VARY_R => run.vary_r = natural.unwrap_or(run.vary_r),
                op::SET_CHOOSELEAF_STABLE => run.stable = natural.map_or(run.stable, |n| n != 0),
                op::CHOOSE_FIRSTN
                | op::CHOOSE_INDEP
                | op::CHOOSELEAF_FIRSTN
                | op::CHOOSELEAF_INDEP
                    if !working.is_empty() =>
                {
                    working = run.step(step.op, step.arg1, step.arg2, &working, size);
                }
                op::EMIT => {
                    let room = size - result.len();
                    result.extend(working.drain(..).take(room));
                }
                _ => {}
            }
        }
        result
    }
}

/// One execution of a rule: its input and the settings its steps may change.
struct Run<'a> {
    map: &'a CrushMap,
    x: u32,
    weights: &'a [u32],
    choose_args: Option<&'a ChooseArgs>,
    tries: u32,
    leaf_tries: u32,
    local_tries: u32,
    local_fallback_tries: u32,
    vary_r: u32,
    stable: bool,
}

/// What a search is for.
#[derive(Clone, Copy)]
struct Goal {
    /// How many replicas the step asks for.
    numrep: i32,
    /// The type wanted.
    kind: i32,
    /// Descents before giving a replica up.
    tries: u32,
    /// The trial number of the search this one is nested in.
    parent_r: u32,
}

/// Where a descent ended.
enum Descent {
    /// At an item of the wanted type.
    Item(i32),
    /// At an empty bucket.
    Empty,
    /// At an item that can lead nowhere.
    DeadEnd,
}

impl Run<'_> {
    /// A choose step over the working list.
    fn step(&self, op: u32, arg1: i32, kind: i32, working: &[i32], size: usize) -> Vec<i32> {
        let leaf = matches!(op, op::CHOOSELEAF_FIRSTN | op::CHOOSELEAF_INDEP);
        let firstn = matches!(op, op::CHOOSE_FIRSTN | op::CHOOSELEAF_FIRSTN);
        let wanted = i32::try_from(size).unwrap_or(i32::MAX);
        let numrep = if arg1 > 0 { arg1 } else { arg1.saturating_add(wanted) };
        let mut out = Vec::new();
        if numrep <= 0 {
            return out;
        }
        for item in working {
            let Some(bucket) = self.map.bucket(*item) else { continue };
            let goal = Goal { numrep, kind, tries: self.tries, parent_r: 0 };
            let room = size - out.len();
            let (mut chosen, mut leaves) = (Vec::new(), Vec::new());
            if firstn {
                let leaf_tries = match self.leaf_tries {
                    0 if self.map.tunables.chooseleaf_descend_once != 0 => 1,
                    0 => self.tries,
                    tries => tries,
                };
                let into = leaf.then_some((&mut leaves, leaf_tries));
                self.firstn(bucket, goal, room, &mut chosen, into);
                leaves.truncate(chosen.len());
            } else {
                let n = room.min(numrep as usize);
                chosen.resize(n, ITEM_UNDEF);
                leaves.resize(n, ITEM_UNDEF);
                let into = leaf.then_some((&mut leaves[..], self.leaf_tries.max(1)));
                self.indep(bucket, goal, &mut chosen, 0, into);
            }
            out.extend(if leaf { leaves } else { chosen });
        }
        out
    }

    fn is_out(&self, device: i32) -> bool {
        match usize::try_from(device).ok().and_then(|d| self.weights.get(d)) {
            None | Some(0) => true,
            Some(weight) if *weight >= 0x10000 => false,
            Some(weight) => hash2(self.x, device as u32) & 0xffff >= *weight,
        }
    }

    fn choose(&self, bucket: &Bucket, r: u32, position: usize) -> i32 {
        let arg = self.choose_args.and_then(|args| args.get(&((-1 - bucket.id) as u32)));
        choose(bucket, self.x, r, arg, position)
    }

    /// The type of an item; `None` for one that cannot exist.
    fn kind(&self, item: i32) -> Option<i32> {
        if item >= self.map.max_devices {
            None
        } else if item >= 0 {
            Some(0)
        } else {
            self.map.bucket(item).map(|b| b.kind.into())
        }
    }

    /// Picks up to `room` distinct items below `bucket`, appending to `out`; with `leaf`, also a
    /// device below each (its vector is as long as `out`), in so many tries.
    fn firstn(
        &self,
        bucket: &Bucket,
        goal: Goal,
        room: usize,
        out: &mut Vec<i32>,
        mut leaf: Option<(&mut Vec<i32>, u32)>,
    ) {
        let end = out.len() + room;
        let first = if self.stable { 0 } else { out.len() as i32 };
        for rep in first..goal.numrep {
            if out.len() >= end {
                break;
            }
            if let Some(item) = self.firstn_one(bucket, rep, goal, out, &mut leaf) {
                out.push(item);
            }
        }
    }

    /// Picks the item of one replica, or gives it up.
    fn firstn_one(
        &self,
        top: &Bucket,
        rep: i32,
        goal: Goal,
        out: &[i32],
        leaf: &mut Option<(&mut Vec<i32>, u32)>,
    ) -> Option<i32> {
        let mut ftotal = 0u32;
        // Each round is a descent from the top.
        loop {
            let mut bucket = top;
            let mut flocal = 0u32;
            let mut depth = 0;
            // Each round is a choice in one bucket.
            let retry_descent = loop {
                let r = (rep as u32).wrapping_add(goal.parent_r).wrapping_add(ftotal);
                let mut collide = false;
                let reject = if bucket.items.is_empty() {
                    true
                } else {
                    let half = (bucket.items.len() >> 1) as u32;
                    let fallback = self.local_fallback_tries;
                    let item = if fallback > 0 && flocal >= half && flocal > fallback {
                        permute(bucket, self.x, r)
                    } else {
                        self.choose(bucket, r, out.len())
                    };
                    let kind = self.kind(item)?;
                    if kind != goal.kind {
                        bucket = self.map.bucket(item)?;
                        depth += 1;
                        if depth > self.map.buckets.len() {
                            return None;
                        }
                        continue;
                    }
                    collide = out.contains(&item);
                    let reject = !collide
                        && (!self.firstn_leaf(item, r, out.len(), leaf)
                            || (kind == 0 && self.is_out(item)));
                    if !collide && !reject {
                        return Some(item);
                    }
                    reject
                };
                debug_assert!(reject || collide);
                ftotal += 1;
                flocal += 1;
                let size = bucket.items.len() as u32;
                let retry_bucket = (collide && flocal <= self.local_tries)
                    || (self.local_fallback_tries > 0
                        && flocal <= size.saturating_add(self.local_fallback_tries));
                if !retry_bucket {
                    break ftotal < goal.tries;
                }
            };
            if !retry_descent {
                return None;
            }
        }
    }

    /// Finds the device for an item chosen at `position`; whether there is one, or none is asked.
    fn firstn_leaf(
        &self,
        item: i32,
        r: u32,
        position: usize,
        leaf: &mut Option<(&mut Vec<i32>, u32)>,
    ) -> bool {
        let Some((leaves, tries)) = leaf else { return true };
        debug_assert!(leaves.len() >= position);
        leaves.truncate(position);
        if item >= 0 {
            leaves.push(item);
            return true;
        }
        let Some(bucket) = self.map.bucket(item) else { return false };
        let parent_r = if self.vary_r == 0 { 0 } else { r >> (self.vary_r - 1).min(31) };
        let numrep = if self.stable { 1 } else { position as i32 + 1 };
        let goal = Goal { numrep, kind: 0, tries: *tries, parent_r };
        self.firstn(bucket, goal, 1, leaves, None);
        leaves.len() > position
    }

    /// Picks an item for each undefined place of `out`, whose first place is position `base` of
    /// the result; with `leaf`, also a device below each, in so many tries.
    fn indep(
        &self,
        top: &Bucket,
        goal: Goal,
        out: &mut [i32],
        base: usize,
        mut leaf: Option<(&mut [i32], u32)>,
    ) {
        for ftotal in 0..goal.tries {
            if !out.contains(&ITEM_UNDEF) {
                break;
            }
            for place in 0..out.len() {
                if out[place] != ITEM_UNDEF {
                    continue;
                }
                let rep = (base + place) as u32;
                match self.indep_descend(top, goal, rep, ftotal, base) {
                    (Descent::DeadEnd, _) => {
                        out[place] = ITEM_NONE;
                        if let Some((leaves, _)) = &mut leaf {
                            leaves[place] = ITEM_NONE;
                        }
                    }
                    (Descent::Item(item), r) if !out.contains(&item) => {
                        if let Some((leaves, tries)) = &mut leaf {
                            leaves[place] = self.indep_leaf(item, goal.numrep, *tries, rep, r);
                            if leaves[place] == ITEM_NONE {
                                continue;
                            }
                        }
                        if item < 0 || !self.is_out(item) {
                            out[place] = item;
                        }
                    }
                    (Descent::Empty | Descent::Item(_), _) => {}
                }
            }
        }
        let close = |item: &mut i32| {
            if *item == ITEM_UNDEF {
                *item = ITEM_NONE;
            }
        };
        out.iter_mut().for_each(close);
        if let Some((leaves, _)) = leaf {
            leaves.iter_mut().for_each(close);
        }
    }

    /// The device for an item chosen at position `rep` with trial `r`, or [`ITEM_NONE`].
    fn indep_leaf(&self, item: i32, numrep: i32, tries: u32, rep: u32, r: u32) -> i32 {
        if item >= 0 {
            return item;
        }
        let Some(bucket) = self.map.bucket(item) else { return ITEM_NONE };
        let mut out = [ITEM_UNDEF];
        let goal = Goal { numrep, kind: 0, tries, parent_r: r };
        self.indep(bucket, goal, &mut out, rep as usize, None);
        out[0]
    }

    /// One descent for position `rep`; also the trial number of its last choice.
    fn indep_descend(
        &self,
        top: &Bucket,
        goal: Goal,
        rep: u32,
        ftotal: u32,
        base: usize,
    ) -> (Descent, u32) {
        let mut bucket = top;
        let numrep = goal.numrep as u32;
        for _ in 0..=self.map.buckets.len() {
            // A uniform bucket whose size is a multiple of numrep would see the same few places
            // again and again with a stride of numrep.
            let uniform = matches!(bucket.weights, Weights::Uniform(_));
            let aligned = uniform && (bucket.items.len() as u32).is_multiple_of(numrep);
            let stride = if aligned { numrep.wrapping_add(1) } else { numrep };
            let r = rep.wrapping_add(goal.parent_r).wrapping_add(stride.wrapping_mul(ftotal));
            if bucket.items.is_empty() {
                return (Descent::Empty, r);
            }
            let item = self.choose(bucket, r, base);
            match self.kind(item) {
                None => return (Descent::DeadEnd, r),
                Some(kind) if kind == goal.kind => return (Descent::Item(item), r),
                Some(_) => match self.map.bucket(item) {
                    Some(next) => bucket = next,
                    None => return (Descent::DeadEnd, r),
                },
            }
        }
        (Descent::DeadEnd, 0)
    }
}
