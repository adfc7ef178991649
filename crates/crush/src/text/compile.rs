//! From text to a map: `crushtool -c`.

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use super::{CHOOSE_STEPS, SET_STEPS};
use crate::edit::is_valid_name;
use crate::map::{
    Algorithm, BUCKET_WEIGHT_MAX, Bucket, ChooseArg, CrushMap, RULE_ERASURE, RULE_REPLICATED,
    RULES_MAX, Rule, Step, Tunables, op,
};

/// Highest bucket slot and device id a text may ask for.
const ID_MAX: i32 = 1 << 20;

/// What is wrong with a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Problem {
    /// Something else should stand there.
    Expected(&'static str),
    /// A name or id that was given before.
    Taken,
    /// A name that was not given before.
    Undefined,
    /// A number out of its range.
    OutOfRange,
    /// Items of a uniform bucket with different weights.
    NotUniform,
    /// A bucket behind a rule.
    BucketAfterRule,
}

/// Where a text is wrong, and what is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompileError {
    /// Line, from 1.
    pub line: usize,
    /// The word there; empty at the end.
    pub word: String,
    /// What is wrong.
    pub problem: Problem,
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: '{}': ", self.line, self.word)?;
        match self.problem {
            Problem::Expected(what) => write!(f, "expected {what}"),
            Problem::Taken => f.write_str("already defined"),
            Problem::Undefined => f.write_str("not defined"),
            Problem::OutOfRange => f.write_str("out of range"),
            Problem::NotUniform => f.write_str("items of a uniform bucket must weigh the same"),
            Problem::BucketAfterRule => f.write_str("buckets must be defined before rules"),
        }
    }
}

impl std::error::Error for CompileError {}

/// The words of a text, read one after the other.
struct Words<'a> {
    words: Vec<(usize, &'a str)>,
    at: usize,
}

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Words<'a> {
        let mut words = Vec::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or("");
            for word in line.split_whitespace() {
                let mut rest = word;
                while let Some(i) = rest.find(['{', '}', '[', ']']) {
                    if i > 0 {
                        words.push((n + 1, &rest[..i]));
                    }
                    words.push((n + 1, &rest[i..=i]));
                    rest = &rest[i + 1..];
                }
                if !rest.is_empty() {
                    words.push((n + 1, rest));
                }
            }
        }
        Words { words, at: 0 }
    }

    fn peek(&self) -> &'a str {
        self.words.get(self.at).map_or("", |w| w.1)
    }

    fn next(&mut self) -> &'a str {
        let word = self.peek();
        self.at += 1;
        word
    }

    /// An error at the word last read.
    fn error(&self, problem: Problem) -> CompileError {
        let at = self.at.saturating_sub(1);
        let last = self.words.last().map_or(1, |w| w.0);
        let (line, word) = self.words.get(at).copied().unwrap_or((last, ""));
        CompileError { line, word: word.to_owned(), problem }
    }

    fn expect(&mut self, word: &'static str) -> Result<(), CompileError> {
        if self.next() == word { Ok(()) } else { Err(self.error(Problem::Expected(word))) }
    }

    /// Takes the word if it is next.
    fn take(&mut self, word: &str) -> bool {
        let there = self.peek() == word;
        self.at += usize::from(there);
        there
    }

    fn name(&mut self) -> Result<&'a str, CompileError> {
        let word = self.next();
        if is_valid_name(word) { Ok(word) } else { Err(self.error(Problem::Expected("a name"))) }
    }

    fn number<T: std::str::FromStr>(&mut self) -> Result<T, CompileError> {
        self.next().parse().map_err(|_| self.error(Problem::Expected("a number")))
    }

    fn weight(&mut self) -> Result<u32, CompileError> {
        // Single precision, as crushtool reads it.
        let weight: f32 = self.number()?;
        let fixed = weight * 65536.0;
        if (0.0..=BUCKET_WEIGHT_MAX as f32).contains(&fixed) {
            Ok(fixed as u32)
        } else {
            Err(self.error(Problem::OutOfRange))
        }
    }
}

/// A map under construction.
struct Compiler<'a> {
    words: Words<'a>,
    map: CrushMap,
    /// Weights of the buckets so far, for items without one.
    bucket_weights: BTreeMap<i32, u32>,
    /// Bucket ids that the text names anywhere.
    named_ids: BTreeSet<i32>,
    saw_rule: bool,
}

impl CrushMap {
    /// Reads a text.
    pub fn compile(text: &str) -> Result<CrushMap, CompileError> {
        let words = Words::new(text);
        let named_ids = words
            .words
            .windows(2)
            .filter(|pair| pair[0].1 == "id")
            .filter_map(|pair| pair[1].1.parse().ok())
            .collect();
        let mut compiler = Compiler {
            words,
            map: CrushMap { tunables: Tunables::argonaut(), ..CrushMap::default() },
            bucket_weights: BTreeMap::new(),
            named_ids,
            saw_rule: false,
        };
        while !compiler.words.peek().is_empty() {
            compiler.section()?;
        }
        let mut map = compiler.map;
        if !compiler.saw_rule {
            map.rebuild_shadow_trees();
        }
        map.count_devices();
        Ok(map)
    }
}

impl Compiler<'_> {
    fn section(&mut self) -> Result<(), CompileError> {
        match self.words.next() {
            "tunable" => {
                let name = self.words.next();
                let named = self.words.error(Problem::Undefined);
                let value = self.words.number()?;
                if self.map.set_tunable(name, value) { Ok(()) } else { Err(named) }
            }
            "device" => self.device(),
            "type" => {
                let id = self.words.number()?;
                let name = self.words.name()?;
                self.map.types.insert(id, name.to_owned());
                Ok(())
            }
            "rule" => self.rule(),
            "choose_args" => self.choose_args(),
            kind => {
                let Some(kind) = self.map.type_id(kind).filter(|kind| *kind != 0) else {
                    return Err(self.words.error(Problem::Expected("a section or a bucket type")));
                };
                if self.saw_rule {
                    return Err(self.words.error(Problem::BucketAfterRule));
                }
                self.bucket(kind as u16)
            }
        }
    }

    fn device(&mut self) -> Result<(), CompileError> {
        let id: i32 = self.words.number()?;
        if !(0..ID_MAX).contains(&id) {
            return Err(self.words.error(Problem::OutOfRange));
        }
        let name = self.words.name()?;
        if self.map.id_of(name).is_some() || self.map.names.contains_key(&id) {
            return Err(self.words.error(Problem::Taken));
        }
        self.map.names.insert(id, name.to_owned());
        if self.words.take("class") {
            let class = self.class()?;
            self.map.classes.insert(id, class);
        }
        Ok(())
    }

    fn class(&mut self) -> Result<i32, CompileError> {
        let name = self.words.name()?;
        self.map.add_class(name).map_err(|_| self.words.error(Problem::Expected("a class")))
    }

    fn bucket(&mut self, kind: u16) -> Result<(), CompileError> {
        let name = self.words.name()?;
        if self.map.id_of(name).is_some() {
            return Err(self.words.error(Problem::Taken));
        }
        self.words.expect("{")?;
        let (mut id, mut alg, mut hash) = (None, None, 0);
        let mut shadows = BTreeMap::new();
        let mut items: Vec<(i32, u32, Option<usize>)> = Vec::new();
        while !self.words.take("}") {
            match self.words.next() {
                "id" => {
                    let number: i32 = self.words.number()?;
                    let free = self.map.bucket(number).is_none();
                    if !(-ID_MAX..0).contains(&number) || !free {
                        return Err(self.words.error(Problem::OutOfRange));
                    }
                    if self.words.take("class") {
                        shadows.insert(self.class()?, number);
                    } else {
                        id = Some(number);
                    }
                }
                "alg" => {
                    alg = Algorithm::from_name(self.words.next());
                    if alg.is_none() {
                        return Err(self.words.error(Problem::Expected("an algorithm")));
                    }
                }
                "hash" => {
                    hash = match self.words.next() {
                        "rjenkins1" => 0,
                        number => number
                            .parse()
                            .map_err(|_| self.words.error(Problem::Expected("a hash")))?,
                    };
                }
                "item" => items.push(self.item()?),
                _ => return Err(self.words.error(Problem::Expected("id, alg, hash or item"))),
            }
        }
        let alg = alg.ok_or_else(|| self.words.error(Problem::Expected("alg")))?;
        let items = self.placed(items)?;
        if alg == Algorithm::Uniform && items.iter().any(|item| item.1 != items[0].1) {
            return Err(self.words.error(Problem::NotUniform));
        }
        let id = id.unwrap_or_else(|| {
            let used = |id: &i32| self.named_ids.contains(id) || self.map.bucket(*id).is_some();
            (1..).map(|n| -n).find(|id| !used(id)).unwrap_or(-ID_MAX)
        });
        let version = self.map.tunables.straw_calc_version;
        let bucket = Bucket { hash, ..Bucket::new(id, alg, kind, &items, version) };
        self.bucket_weights.insert(id, bucket.weight);
        self.map.put_bucket(bucket);
        self.map.names.insert(id, name.to_owned());
        if !shadows.is_empty() {
            self.map.class_buckets.insert(id, shadows);
        }
        Ok(())
    }

    fn item(&mut self) -> Result<(i32, u32, Option<usize>), CompileError> {
        let name = self.words.name()?;
        let item = self.map.id_of(name).ok_or_else(|| self.words.error(Problem::Undefined))?;
        let mut weight = self.bucket_weights.get(&item).copied().unwrap_or(0x10000);
        let mut place = None;
        loop {
            if self.words.take("weight") {
                weight = self.words.weight()?;
            } else if self.words.take("pos") {
                place = Some(self.words.number()?);
            } else {
                return Ok((item, weight, place));
            }
        }
    }

    /// Items in their places: those that name one, and the others between them in their order.
    fn placed(
        &self,
        items: Vec<(i32, u32, Option<usize>)>,
    ) -> Result<Vec<(i32, u32)>, CompileError> {
        let mut places: Vec<Option<(i32, u32)>> = vec![None; items.len()];
        let (named, others): (Vec<_>, Vec<_>) = items.into_iter().partition(|i| i.2.is_some());
        for (item, weight, place) in named {
            match place.and_then(|place| places.get_mut(place)) {
                Some(slot @ None) => *slot = Some((item, weight)),
                _ => return Err(self.words.error(Problem::OutOfRange)),
            }
        }
        let mut others = others.into_iter().map(|(item, weight, _)| (item, weight));
        Ok(places.into_iter().filter_map(|slot| slot.or_else(|| others.next())).collect())
    }

    fn rule(&mut self) -> Result<(), CompileError> {
        if !self.saw_rule {
            // Rules may take shadow buckets.
            self.saw_rule = true;
            self.map.rebuild_shadow_trees();
        }
        let name = match self.words.peek() {
            "{" => None,
            _ => Some(self.words.name()?.to_owned()),
        };
        if name.as_deref().is_some_and(|name| self.map.rule_id(name).is_some()) {
            return Err(self.words.error(Problem::Taken));
        }
        self.words.expect("{")?;
        let mut id = None;
        let mut rule =
            Rule { ruleset: 0, kind: RULE_REPLICATED, min_size: 0, max_size: 0, steps: Vec::new() };
        while !self.words.take("}") {
            match self.words.next() {
                "id" | "ruleset" => id = Some(self.words.number::<u8>()?),
                "type" => {
                    rule.kind = match self.words.next() {
                        "replicated" => RULE_REPLICATED,
                        "erasure" => RULE_ERASURE,
                        number => number
                            .parse()
                            .map_err(|_| self.words.error(Problem::Expected("a rule type")))?,
                    };
                }
                "min_size" => rule.min_size = self.words.number()?,
                "max_size" => rule.max_size = self.words.number()?,
                "step" => {
                    let step = self.step()?;
                    rule.steps.push(step);
                }
                _ => return Err(self.words.error(Problem::Expected("a member of a rule"))),
            }
        }
        let slot = match id {
            Some(id) => usize::from(id),
            None => self.map.rules.iter().position(Option::is_none).unwrap_or(self.map.rules.len()),
        };
        if slot >= RULES_MAX {
            return Err(self.words.error(Problem::OutOfRange));
        }
        if self.map.rules.len() <= slot {
            self.map.rules.resize(slot + 1, None);
        }
        if self.map.rules[slot].is_some() {
            return Err(self.words.error(Problem::Taken));
        }
        rule.ruleset = slot as u8;
        self.map.rules[slot] = Some(rule);
        self.map.rule_names.extend(name.map(|name| (slot as i32, name)));
        Ok(())
    }

    fn step(&mut self) -> Result<Step, CompileError> {
        let word = self.words.next();
        if let Some((_, number)) = SET_STEPS.iter().find(|(name, _)| *name == word) {
            return Ok(Step::new(*number, self.words.number()?, 0));
        }
        match word {
            "noop" => Ok(Step::new(op::NOOP, 0, 0)),
            "emit" => Ok(Step::new(op::EMIT, 0, 0)),
            "take" => {
                let name = self.words.name()?;
                let mut item =
                    self.map.id_of(name).ok_or_else(|| self.words.error(Problem::Undefined))?;
                if self.words.take("class") {
                    let class = self.words.name()?;
                    let class = self.map.class_id(class);
                    let shadows = self.map.class_buckets.get(&item);
                    item = class
                        .and_then(|class| shadows?.get(&class).copied())
                        .ok_or_else(|| self.words.error(Problem::Undefined))?;
                }
                Ok(Step::new(op::TAKE, item, 0))
            }
            "choose" | "chooseleaf" => {
                let mode = self.words.next();
                let (_, _, number) = CHOOSE_STEPS
                    .iter()
                    .find(|(name, m, _)| *name == word && *m == mode)
                    .ok_or_else(|| self.words.error(Problem::Expected("firstn or indep")))?;
                let n = self.words.number()?;
                self.words.expect("type")?;
                let kind = self.map.type_id(self.words.next());
                let kind = kind.ok_or_else(|| self.words.error(Problem::Undefined))?;
                Ok(Step::new(*number, n, kind))
            }
            _ => Err(self.words.error(Problem::Expected("a step"))),
        }
    }

    fn choose_args(&mut self) -> Result<(), CompileError> {
        // Signed, or the same bits without the sign.
        let word = self.words.next();
        let id = word.parse::<i64>().or_else(|_| word.parse::<u64>().map(|id| id as i64));
        let id = id.map_err(|_| self.words.error(Problem::Expected("a number")))?;
        self.words.expect("{")?;
        let mut args = BTreeMap::new();
        while !self.words.take("}") {
            self.words.expect("{")?;
            let mut bucket = None;
            let mut arg = ChooseArg::default();
            while !self.words.take("}") {
                match self.words.next() {
                    "bucket_id" => bucket = Some(self.words.number::<i32>()?),
                    "weight_set" => {
                        self.words.expect("[")?;
                        while !self.words.take("]") {
                            self.words.expect("[")?;
                            let mut set = Vec::new();
                            while !self.words.take("]") {
                                set.push(self.words.weight()?);
                            }
                            arg.weight_set.push(set);
                        }
                    }
                    "ids" => {
                        self.words.expect("[")?;
                        while !self.words.take("]") {
                            arg.ids.push(self.words.number()?);
                        }
                    }
                    _ => return Err(self.words.error(Problem::Expected("bucket_id"))),
                }
            }
            let size = bucket.and_then(|id| self.map.bucket(id)).map(|b| (b.id, b.items.len()));
            let (id, size) = size.ok_or_else(|| self.words.error(Problem::Undefined))?;
            let fits = arg.weight_set.iter().all(|set| set.len() == size)
                && (arg.ids.is_empty() || arg.ids.len() == size);
            if !fits {
                return Err(self.words.error(Problem::OutOfRange));
            }
            args.insert((-1 - id) as u32, arg);
        }
        if self.map.choose_args.insert(id, args).is_some() {
            return Err(self.words.error(Problem::Taken));
        }
        Ok(())
    }
}
