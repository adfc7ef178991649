//! A load: numbers of blocks in a pattern, and lanes that write them, each waiting for its answer
//! before the next. A block is a part of an image, a key of an omap, or an object that comes and
//! goes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::rbd::Image;
use client::{ClientError, IoCtx};
use env::Env;

use crate::cli::Pattern;
use crate::micro::noise;
use crate::{Histogram, LabError};

/// Contents that writes take in turn: no two neighbours are the same, none can be compressed.
const CONTENTS: u64 = 64;
/// What a zipf pattern's exponent is: the fio man page's example.
const ZIPF_THETA: f64 = 1.1;

/// Numbers of blocks, the same for the same seed.
#[derive(Debug)]
pub(crate) struct Offsets {
    pattern: Pattern,
    state: u64,
    blocks: u64,
    next: u64,
    /// For zipf: the sum of all blocks' weights.
    zipf_sum: f64,
}

impl Offsets {
    /// Of `blocks` blocks.
    pub(crate) fn new(pattern: Pattern, seed: u64, blocks: u64) -> Offsets {
        let zipf_sum = match pattern {
            // The integral of x^-theta from 1 to blocks + 1.
            Pattern::Zipf => zipf_integral(blocks.max(1) as f64 + 1.0),
            _ => 0.0,
        };
        Offsets { pattern, state: seed, blocks: blocks.max(1), next: 0, zipf_sum }
    }

    /// splitmix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The next block.
    pub(crate) fn next(&mut self) -> u64 {
        match self.pattern {
            Pattern::Sequential => {
                let next = self.next;
                self.next = (next + 1) % self.blocks;
                next
            }
            Pattern::Random | Pattern::Omap | Pattern::Delete => self.random() % self.blocks,
            Pattern::Zipf => {
                let share = (self.random() >> 11) as f64 / (1u64 << 53) as f64;
                // The rank whose integral is that share; ranks are spread over the image.
                let power = 1.0 - ZIPF_THETA;
                let rank = (1.0 + share * self.zipf_sum * power).powf(1.0 / power) - 1.0;
                let rank = (rank as u64).min(self.blocks - 1);
                rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % self.blocks
            }
        }
    }
}

fn zipf_integral(end: f64) -> f64 {
    let power = 1.0 - ZIPF_THETA;
    (end.powf(power) - 1.0) / power
}

/// What a load writes into.
#[derive(Clone)]
pub(crate) enum Target {
    /// An image's blocks, in place.
    Image(Image),
    /// Keys of omaps: a block is one key's value.
    Omap(IoCtx),
    /// Whole objects: one that is there is removed, one that is not is written.
    Objects(IoCtx),
}

/// Keys of one object in [`Target::Omap`]: as many as a bucket's index has under Ceph's S3 gateway
/// before it grows (`rgw_max_objs_per_shard` is 100,000) would make small runs one object.
const KEYS_PER_OBJECT: u64 = 1024;

impl Target {
    /// One request. `is_there` says whether [`Target::Objects`] has the block's object.
    async fn request(
        &self,
        block: u64,
        bs: u64,
        content: Bytes,
        is_there: bool,
    ) -> Result<(), ClientError> {
        match self {
            Target::Image(image) => image.write(block * bs, content).await.map(drop),
            Target::Omap(io) => {
                let object = format!("omap.{:08}", block / KEYS_PER_OBJECT);
                let key = format!("key.{:08}", block % KEYS_PER_OBJECT);
                let values = BTreeMap::from([(key.into(), content)]);
                io.omap_set(object, &values).await
            }
            Target::Objects(io) => {
                let object = format!("object.{block:012}");
                match is_there {
                    true => io.remove(object).await,
                    false => io.write_full(object, content).await.map(drop),
                }
            }
        }
    }
}

/// A load that all lanes share.
#[derive(Clone)]
pub(crate) struct Load(Rc<Inner>);

struct Inner {
    env: Env,
    bs: u64,
    offsets: RefCell<Offsets>,
    requests: u64,
    begun: Cell<u64>,
    done: Cell<u64>,
    contents: Vec<Bytes>,
    /// Bytes of the writes that were answered; removals have none.
    bytes: Cell<u64>,
    /// When the last answer came.
    ended: Cell<Duration>,
    latencies: RefCell<Histogram>,
    /// A bit for each block that is there; bound: the blocks of the load.
    written: RefCell<Vec<u64>>,
    failed: Cell<bool>,
}

impl Load {
    /// `requests` writes of `bs` bytes.
    pub(crate) fn new(env: &Env, bs: u64, offsets: Offsets, requests: u64) -> Load {
        let words = offsets.blocks.div_ceil(64) as usize;
        Load(Rc::new(Inner {
            env: env.clone(),
            bs,
            offsets: RefCell::new(offsets),
            requests,
            begun: Cell::new(0),
            done: Cell::new(0),
            bytes: Cell::new(0),
            ended: Cell::new(env.now()),
            contents: (1..=CONTENTS).map(|seed| noise(seed, bs)).collect(),
            latencies: RefCell::default(),
            written: RefCell::new(vec![0; words]),
            failed: Cell::new(false),
        }))
    }

    /// Makes requests until all have been begun by some lane.
    pub(crate) async fn lane(self, target: Target) -> Result<(), LabError> {
        let load = &*self.0;
        while load.begun.get() < load.requests && !load.failed.get() {
            let number = load.begun.get();
            load.begun.set(number + 1);
            let block = load.offsets.borrow_mut().next();
            let content = load.contents[(number % CONTENTS) as usize].clone();
            // Decided and noted before it is sent: requests for one object are carried out in the
            // order of their sending.
            let is_there = load.note(block, matches!(target, Target::Objects(_)));
            let begin = load.env.now();
            if let Err(e) = target.request(block, load.bs, content, is_there).await {
                load.failed.set(true);
                return Err(LabError::by_backend(format!("block {block} of the load: {e}")));
            }
            let now = load.env.now();
            load.ended.set(now);
            let took = (now - begin).as_nanos();
            load.latencies.borrow_mut().add(u64::try_from(took).unwrap_or(u64::MAX));
            let removed = is_there && matches!(target, Target::Objects(_));
            load.bytes.set(load.bytes.get() + if removed { 0 } else { load.bs });
            load.done.set(load.done.get() + 1);
        }
        Ok(())
    }

    /// Requests to be made.
    pub(crate) fn requests(&self) -> u64 {
        self.0.requests
    }

    /// Requests that were answered.
    pub(crate) fn done(&self) -> u64 {
        self.0.done.get()
    }

    /// Bytes that they wrote.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.bytes.get()
    }

    /// When the last answer came.
    pub(crate) fn ended(&self) -> Duration {
        self.0.ended.get()
    }

    /// Blocks that are there.
    pub(crate) fn touched(&self) -> u64 {
        self.0.written.borrow().iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// How long they took.
    pub(crate) fn latencies(&self) -> Histogram {
        self.0.latencies.borrow().clone()
    }
}

impl Inner {
    /// Whether a block is there; afterwards it is, or, where requests take turns, the other way.
    fn note(&self, block: u64, in_turns: bool) -> bool {
        let word = &mut self.written.borrow_mut()[(block / 64) as usize];
        let bit = 1 << (block % 64);
        let was = *word & bit != 0;
        match in_turns && was {
            true => *word &= !bit,
            false => *word |= bit,
        }
        was
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_inside_and_are_what_they_say() {
        const BLOCKS: u64 = 1000;
        let counts = |pattern| {
            let mut offsets = Offsets::new(pattern, 7, BLOCKS);
            let mut counts = vec![0u32; BLOCKS as usize];
            (0..100_000).for_each(|_| counts[offsets.next() as usize] += 1);
            counts.sort_unstable();
            counts
        };
        let random = counts(Pattern::Random);
        assert!(random[0] > 50 && random[999] < 160, "{} to {}", random[0], random[999]);
        assert_eq!(counts(Pattern::Sequential), vec![100; 1000]);
        let zipf = counts(Pattern::Zipf);
        let top: u32 = zipf[900..].iter().sum();
        assert!(top > 60_000, "a tenth of the blocks got {top} of 100000 writes");
    }
}
