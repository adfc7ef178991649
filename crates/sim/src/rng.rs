//! The source of every choice: xoshiro256++ seeded by splitmix64.

use std::cell::Cell;
use std::time::Duration;

/// A stream of random numbers that depends on its seed alone.
#[derive(Debug)]
pub struct Rng(Cell<[u64; 4]>);

impl Rng {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Rng {
        let mut state = seed;
        Rng(Cell::new(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(state)
        })))
    }

    /// A stream of its own, seeded from this one.
    pub fn fork(&self) -> Rng {
        Rng::new(self.next_u64())
    }

    /// The next number.
    pub fn next_u64(&self) -> u64 {
        let mut s = self.0.get();
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        self.0.set(s);
        result
    }

    /// A number less than `bound`, which is not 0.
    pub fn below(&self, bound: u64) -> u64 {
        assert!(bound > 0, "no number is less than 0");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 (in) to 1 (out).
    pub fn unit(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability.
    pub fn chance(&self, probability: f64) -> bool {
        probability > 0.0 && self.unit() < probability
    }

    /// A time from `low` (in) to `high` (out).
    pub fn between(&self, low: Duration, high: Duration) -> Duration {
        let span = high.saturating_sub(low).as_nanos() as u64;
        if span == 0 { low } else { low + Duration::from_nanos(self.below(span)) }
    }

    /// An exponentially distributed time, at most 20 times the mean.
    pub fn exponential(&self, mean: Duration) -> Duration {
        let factor = -(1.0 - self.unit()).ln();
        mean.mul_f64(factor.min(20.0))
    }

    /// One of `items`, which are not empty.
    pub fn pick<'a, T>(&self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }

    /// Fills `buf`.
    pub fn fill(&self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            chunk.copy_from_slice(&self.next_u64().to_le_bytes()[..chunk.len()]);
        }
    }
}

/// Splitmix64's output function: scatters a counter over all 64 bits.
pub(crate) fn mix(value: u64) -> u64 {
    let z = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
