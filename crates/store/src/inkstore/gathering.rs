//! For how many transactions the next batch waits, and how long.
//!
//! With many in flight, those who were answered by a batch soon send again, one after the other:
//! taking the first of them at once would spend a write and a flush on it alone while the others
//! wait for that. So a batch waits for as many as there were before. The figures behind the
//! constants: docs/performance.md, "Batches that wait to be full" and what follows it.

use std::time::Duration;

/// Of the transactions that were in flight, the share in percent a batch waits for: one part of
/// them is sent and computed while the other is flushed. With 90, OSDs in one process and their
/// client waited for each other in turn (5 to 10 % of the IOPS).
const PERCENT: u64 = 40;
/// No batch waits for fewer transactions than this: with 4 in flight waiting costs more (7 % of
/// the IOPS) than the flushes that it spares, with 8 it gains. (Where it is 6, 16 in flight that
/// have once come apart stay so.)
const MIN: u64 = 4;
/// No batch waits for longer than the last one took, nor than this ([`FEW_TIMES`] as long for a
/// few).
const MAX: Duration = Duration::from_millis(2);
/// Where no more than this many are there, a write and a flush are much of what each of them costs.
/// More of them are waited for, and longer, so that all of them are answered together, then send
/// again together and need no waiting. With more in flight one part of them is computed while the
/// other is flushed: with 64 and 128 such patience cost up to 10 % of the IOPS.
const FEW: u64 = 24;
/// Of a few, the share in percent a batch waits for.
const FEW_PERCENT: u64 = 95;
/// For a few, a batch waits so many times as long.
const FEW_TIMES: u32 = 4;
/// The few are together when no more than one in so many came while the others were written. Who
/// sends when it likes, not when it is answered, is never together with others, and would only
/// wait.
const APART: u64 = 6;
/// After so many batches one behind the other that were not full, or had the few apart, a few are
/// waited for like many ...
const TRIES: u32 = 3;
/// ... until the batch whose number is the next multiple of this.
const TRY_AGAIN: u64 = 64;

/// What the batches so far say of how long to wait with the next one.
#[derive(Default)]
pub(super) struct Gathering {
    /// Transactions to wait for; 0: do not wait.
    pub transactions: u64,
    /// For no longer than this.
    pub time: Duration,
    /// Batches, one behind the other, that waited and did not have the few together.
    in_vain: u32,
}

/// A batch that has been written.
pub(super) struct Ended {
    /// Its number.
    pub seq: u64,
    /// Whether it had as many transactions as it waited for.
    pub full: bool,
    /// Its transactions.
    pub taken: u64,
    /// Those that have come since it was closed.
    pub waiting: u64,
    /// From closing it until it was durable.
    pub took: Duration,
}

impl Gathering {
    /// Learns from a batch what the next one waits for.
    pub(super) fn after(&mut self, batch: Ended) {
        let together = batch.full && batch.waiting * APART <= batch.taken;
        self.in_vain = match together || batch.seq.is_multiple_of(TRY_AGAIN) {
            true => 0,
            false => self.in_vain.saturating_add(1),
        };
        let there = batch.taken + batch.waiting;
        let (percent, times) = match there <= FEW && self.in_vain < TRIES {
            true => (FEW_PERCENT, FEW_TIMES),
            false => (PERCENT, 1),
        };
        let expected = there * percent / 100;
        self.transactions = if expected >= MIN { expected } else { 0 };
        self.time = batch.took.min(MAX) * times;
    }
}
