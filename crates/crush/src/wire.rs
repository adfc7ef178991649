//! The map's bytes: CrushWrapper (`src/crush/CrushWrapper.cc` at v16.2: encode, decode).
//!
//! ```text
//! u32 magic | s32 buckets | u32 rules | s32 devices
//! bucket slots: u32 alg (0: empty) [s32 id, u16 type, u8 alg, u8 hash, u32 weight, items, ...]
//! rule slots:   u32 there [u32 length, u8 ruleset, u8 type, u8 min, u8 max, steps]
//! names of types, items, rules
//! tunables | classes | choose_args        each only if bytes remain; always written
//! ```
//!
//! There is no envelope: the blob that holds the map says where it ends.

use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};

use crate::map::{
    Algorithm, Bucket, ChooseArg, ChooseArgs, CrushMap, Rule, Step, Tunables, Weights,
};

const MAGIC: u32 = 0x0001_0000;

impl Denc for CrushMap {
    fn encode(&self, w: &mut Writer) {
        w.u32(MAGIC);
        w.count(self.buckets.len());
        w.count(self.rules.len());
        w.i32(self.max_devices);
        for slot in &self.buckets {
            match slot {
                None => w.u32(0),
                Some(bucket) => encode_bucket(bucket, w),
            }
        }
        for slot in &self.rules {
            w.u32(u32::from(slot.is_some()));
            if let Some(rule) = slot {
                encode_rule(rule, w);
            }
        }
        w.put(&self.types);
        w.put(&self.names);
        w.put(&self.rule_names);
        let t = &self.tunables;
        w.u32(t.choose_local_tries);
        w.u32(t.choose_local_fallback_tries);
        w.u32(t.choose_total_tries);
        w.u32(t.chooseleaf_descend_once);
        w.u8(t.chooseleaf_vary_r);
        w.u8(t.straw_calc_version);
        w.u32(t.allowed_bucket_algs);
        w.u8(t.chooseleaf_stable);
        w.put(&self.classes);
        w.put(&self.class_names);
        w.put(&self.class_buckets);
        w.count(self.choose_args.len());
        for (id, args) in &self.choose_args {
            w.i64(*id);
            encode_choose_args(args, w);
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Error> {
        let magic = r.u32()?;
        if magic != MAGIC {
            return Err(Error::Invalid { what: "CrushWrapper magic", value: magic.into() });
        }
        // Each slot takes at least four bytes, so the counts are bounded by the bytes left.
        let buckets = r.count(4)?;
        let rules = r.count(0)?;
        // Counted below.
        let _max_devices = r.i32()?;
        let mut map = CrushMap { tunables: Tunables::argonaut(), ..Default::default() };
        for slot in 0..buckets {
            map.buckets.push(decode_bucket(slot, r)?);
        }
        for _ in 0..rules {
            map.rules.push(if r.u32()? != 0 { Some(decode_rule(r)?) } else { None });
        }
        map.types = r.get()?;
        map.names = r.get()?;
        map.rule_names = r.get()?;
        decode_tail(&mut map, r)?;
        map.count_devices();
        Ok(map)
    }
}

/// What releases after argonaut appended, each part there only if bytes remain.
fn decode_tail(map: &mut CrushMap, r: &mut Reader<'_>) -> Result<(), Error> {
    let t = &mut map.tunables;
    if r.remaining() > 0 {
        t.choose_local_tries = r.u32()?;
        t.choose_local_fallback_tries = r.u32()?;
        t.choose_total_tries = r.u32()?;
    }
    if r.remaining() > 0 {
        t.chooseleaf_descend_once = r.u32()?;
    }
    if r.remaining() > 0 {
        t.chooseleaf_vary_r = r.u8()?;
    }
    if r.remaining() > 0 {
        t.straw_calc_version = r.u8()?;
    }
    if r.remaining() > 0 {
        t.allowed_bucket_algs = r.u32()?;
    }
    if r.remaining() > 0 {
        t.chooseleaf_stable = r.u8()?;
    }
    if r.remaining() > 0 {
        map.classes = r.get()?;
        map.class_names = r.get()?;
        map.class_buckets = r.get()?;
    }
    if r.remaining() > 0 {
        for _ in 0..r.count(12)? {
            let id = r.i64()?;
            let args = decode_choose_args(map, r)?;
            map.choose_args.insert(id, args);
        }
    }
    Ok(())
}

fn encode_bucket(bucket: &Bucket, w: &mut Writer) {
    let alg = bucket.algorithm() as u32;
    w.u32(alg);
    w.i32(bucket.id);
    w.u16(bucket.kind);
    w.u8(alg as u8);
    w.u8(bucket.hash);
    w.u32(bucket.weight);
    w.put(&bucket.items);
    let pairs = |w: &mut Writer, a: &[u32], b: &[u32]| {
        for (a, b) in a.iter().zip(b) {
            w.u32(*a);
            w.u32(*b);
        }
    };
    match &bucket.weights {
        Weights::Uniform(weight) => w.u32(*weight),
        Weights::List { weights, sums } => pairs(w, weights, sums),
        Weights::Straw { weights, straws } => pairs(w, weights, straws),
        Weights::Tree(nodes) => {
            // One byte on the wire: 128 items and more do not survive it, in Ceph as here.
            w.u8(nodes.len() as u8);
            nodes.iter().take(nodes.len() & 0xff).for_each(|node| w.u32(*node));
        }
        Weights::Straw2(weights) => weights.iter().for_each(|weight| w.u32(*weight)),
    }
}

fn decode_bucket(slot: usize, r: &mut Reader<'_>) -> Result<Option<Bucket>, Error> {
    let number = r.u32()?;
    if number == 0 {
        return Ok(None);
    }
    let invalid = |what, value| Error::Invalid { what, value };
    let alg = Algorithm::from_number(number).ok_or(invalid("bucket algorithm", number.into()))?;
    let id = r.i32()?;
    if i64::from(id) != -1 - slot as i64 {
        return Err(invalid("bucket id", id as u32 as u64));
    }
    let kind = r.u16()?;
    let again = r.u8()?;
    if u32::from(again) != number {
        return Err(invalid("bucket algorithm", again.into()));
    }
    let hash = r.u8()?;
    let weight = r.u32()?;
    let items: Vec<i32> = r.get()?;
    let n = items.len();
    let words = |r: &mut Reader<'_>, n: usize| (0..n).map(|_| r.u32()).collect::<Result<_, _>>();
    let pairs = |r: &mut Reader<'_>| -> Result<(Vec<u32>, Vec<u32>), Error> {
        (0..n).map(|_| Ok((r.u32()?, r.u32()?))).collect()
    };
    let weights = match alg {
        Algorithm::Uniform => Weights::Uniform(r.u32()?),
        Algorithm::List => {
            let (weights, sums) = pairs(r)?;
            Weights::List { weights, sums }
        }
        Algorithm::Straw => {
            let (weights, straws) = pairs(r)?;
            Weights::Straw { weights, straws }
        }
        Algorithm::Tree => {
            let nodes = r.u8()?;
            Weights::Tree(words(r, nodes.into())?)
        }
        Algorithm::Straw2 => Weights::Straw2(words(r, n)?),
    };
    Ok(Some(Bucket { id, kind, hash, weight, items, weights }))
}

fn encode_rule(rule: &Rule, w: &mut Writer) {
    w.count(rule.steps.len());
    w.u8(rule.ruleset);
    w.u8(rule.kind);
    w.u8(rule.min_size);
    w.u8(rule.max_size);
    for step in &rule.steps {
        w.u32(step.op);
        w.i32(step.arg1);
        w.i32(step.arg2);
    }
}

fn decode_rule(r: &mut Reader<'_>) -> Result<Rule, Error> {
    let steps = r.count(12)?;
    let (ruleset, kind, min_size, max_size) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?);
    let steps = (0..steps)
        .map(|_| Ok(Step { op: r.u32()?, arg1: r.i32()?, arg2: r.i32()? }))
        .collect::<Result<_, Error>>()?;
    Ok(Rule { ruleset, kind, min_size, max_size, steps })
}

fn encode_choose_args(args: &ChooseArgs, w: &mut Writer) {
    let given = |arg: &&ChooseArg| !(arg.weight_set.is_empty() && arg.ids.is_empty());
    w.count(args.values().filter(given).count());
    for (slot, arg) in args.iter().filter(|(_, arg)| given(arg)) {
        w.u32(*slot);
        w.put(&arg.weight_set);
        w.put(&arg.ids);
    }
}

fn decode_choose_args(map: &CrushMap, r: &mut Reader<'_>) -> Result<ChooseArgs, Error> {
    let mut args = BTreeMap::new();
    for _ in 0..r.count(12)? {
        let slot = r.u32()?;
        let Some(bucket) = map.buckets.get(slot as usize).and_then(Option::as_ref) else {
            return Err(Error::Invalid { what: "choose_args bucket", value: slot.into() });
        };
        let arg = ChooseArg { weight_set: r.get()?, ids: r.get()? };
        let lengths = arg.weight_set.iter().map(Vec::len);
        let ids = (!arg.ids.is_empty()).then_some(arg.ids.len());
        if let Some(wrong) = lengths.chain(ids).find(|n| *n != bucket.items.len()) {
            return Err(Error::Invalid { what: "choose_args length", value: wrong as u64 });
        }
        args.insert(slot, arg);
    }
    Ok(args)
}
