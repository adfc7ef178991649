//! A running hash of what happened, by which two runs are compared.

use std::cell::Cell;
use std::time::Duration;

use crate::rng::mix;

#[derive(Debug)]
pub(crate) struct Trace {
    hash: Cell<u64>,
    events: Cell<u64>,
    verbose: bool,
}

impl Trace {
    pub(crate) fn new() -> Trace {
        let verbose = std::env::var_os("LOLIGO_SIM_TRACE").is_some_and(|value| value != "0");
        Trace { hash: Cell::new(0), events: Cell::new(0), verbose }
    }

    /// Notes an event with two numbers that say which.
    pub(crate) fn record(&self, now: Duration, what: &'static str, one: u64, other: u64) {
        if self.verbose {
            eprintln!("{:>16.6} {what} {one} {other:#x}", now.as_secs_f64());
        }
        let mut hash = self.hash.get();
        for part in [now.as_nanos() as u64, fold(what.as_bytes()), one, other] {
            hash = mix(hash ^ part).wrapping_add(part);
        }
        self.hash.set(hash);
        self.events.set(self.events.get() + 1);
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.get()
    }
}

/// A number that depends on length and beginning of `data` (all of it would cost too much in
/// builds without optimisation).
pub(crate) fn fold(data: &[u8]) -> u64 {
    data[..data.len().min(64)].chunks(8).fold(data.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(hash ^ u64::from_le_bytes(word))
    })
}
