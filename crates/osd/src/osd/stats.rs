//! Counters of an OSD, for `perf dump` and reports to the manager.

use std::cell::Cell;
use std::time::Duration;

use perf::{Axis, Histogram, Times};

use super::hang::Unanswered;
use super::perf_queries::DynamicPerfStats;

/// What is counted of client ops of a kind.
#[derive(Debug, Default)]
pub struct OpCounters {
    /// Answered.
    pub count: Cell<u64>,
    /// Bytes that clients sent to be written.
    pub in_bytes: Cell<u64>,
    /// Bytes that the answers brought.
    pub out_bytes: Cell<u64>,
    /// Sums of times, from arrival on to the answer: at hot places they stand here as nanoseconds.
    latency: Cell<u64>,
    process: Cell<u64>,
    prepare: Cell<u64>,
}

/// A client op that is answered.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Served {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) in_bytes: u64,
    pub(crate) out_bytes: u64,
    pub(crate) times: OpTimes,
}

/// How long an op took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct OpTimes {
    /// From its arrival on.
    pub(crate) latency: Duration,
    /// From when its object was its own.
    pub(crate) process: Duration,
    /// From then to when its result was known: a write was about to be submitted.
    pub(crate) prepare: Duration,
}

fn nanos(d: Duration) -> u64 {
    d.as_secs() * 1_000_000_000 + u64::from(d.subsec_nanos())
}

impl OpCounters {
    fn add(&self, op: &Served) {
        bump(&self.count, 1);
        bump(&self.in_bytes, op.in_bytes);
        bump(&self.out_bytes, op.out_bytes);
        bump(&self.latency, nanos(op.times.latency));
        bump(&self.process, nanos(op.times.process));
        bump(&self.prepare, nanos(op.times.prepare));
    }

    fn reset(&self) {
        let all = [&self.count, &self.in_bytes, &self.out_bytes];
        let times = [&self.latency, &self.process, &self.prepare];
        all.into_iter().chain(times).for_each(|cell| cell.set(0));
    }

    fn times(&self, sum: &Cell<u64>) -> (u64, Duration) {
        (self.count.get(), Duration::from_nanos(sum.get()))
    }

    /// How many, and their time from arrival to the answer in all.
    pub(crate) fn latency(&self) -> (u64, Duration) {
        self.times(&self.latency)
    }

    /// The same from when their objects were their own.
    pub(crate) fn process(&self) -> (u64, Duration) {
        self.times(&self.process)
    }

    /// The same from then until their results were known.
    pub(crate) fn prepare(&self) -> (u64, Duration) {
        self.times(&self.prepare)
    }
}

/// Ops by how long they took and how many bytes they brought.
#[derive(Debug)]
pub struct BySize(Histogram);

impl Default for BySize {
    fn default() -> BySize {
        // Ceph counts nanoseconds on this axis, whatever its name says: so do we, for tools that know.
        let latency = Axis { name: "Latency (usec)", quant_size: 100_000 };
        BySize(Histogram::new([latency, Axis { name: "Request size (bytes)", quant_size: 512 }]))
    }
}

impl BySize {
    fn add(&self, op: &Served, bytes: u64) {
        self.0.add(nanos(op.times.latency), bytes);
    }

    /// What is counted.
    pub(crate) fn histogram(&self) -> &Histogram {
        &self.0
    }
}

/// What an OSD counts. Names as in Ceph's `perf dump` ("osd.op_w" ...).
#[derive(Debug, Default)]
pub struct Counters {
    /// Client ops that only read.
    pub op_r: OpCounters,
    /// Client ops that only write.
    pub op_w: OpCounters,
    /// Client ops that do both.
    pub op_rw: OpCounters,
    /// Client ops that only read, by bytes read.
    pub r_out: BySize,
    /// Client ops that only write, by bytes written.
    pub w_in: BySize,
    /// Client ops that do both, by bytes written.
    pub rw_in: BySize,
    /// The same, by bytes read.
    pub rw_out: BySize,
    /// Writes to the store, until they are durable.
    pub commit_latency: Times,
    /// What the store has not answered.
    pub(crate) unanswered: Unanswered,
    commit_shown: Cell<Shown>,
    /// Writes of primaries that have come here.
    pub subop_w: Cell<u64>,
    /// Bytes of them.
    pub subop_w_in_bytes: Cell<u64>,
    /// Until they are durable here.
    pub subop_w_latency: Times,
    /// Messages with pieces of objects from others that recover, and their bytes.
    pub subop_push: Cell<u64>,
    /// See above.
    pub subop_push_in_bytes: Cell<u64>,
    /// Messages that ask us for pieces of objects.
    pub subop_pull: Cell<u64>,
    /// Objects recovered.
    pub recovery_ops: Cell<u64>,
    /// Bytes of them.
    pub recovery_bytes: Cell<u64>,
    /// Copies repaired here since the start; `perf reset` leaves them (`osd_stat_t::num_shards_repaired`).
    pub shards_repaired: Cell<u64>,
    /// OSD maps received.
    pub map_messages: Cell<u64>,
    /// Map epochs in them.
    pub map_message_epochs: Cell<u64>,
    /// What the manager asks for beside.
    pub dynamic: DynamicPerfStats,
}

fn bump(cell: &Cell<u64>, by: u64) {
    cell.set(cell.get() + by);
}

/// An average as it was last shown, and what it was made of.
#[derive(Debug, Clone, Copy, Default)]
struct Shown {
    at: Duration,
    count: u64,
    sum: Duration,
    average: Duration,
}

/// Averages are of at least so long.
const SHOWN_FOR: Duration = Duration::from_secs(1);

impl Counters {
    /// How long writes to the store took of late, on the average; zero if there were none.
    pub(crate) fn recent_commit_latency(&self, now: Duration) -> Duration {
        let (before, latency) = (self.commit_shown.get(), &self.commit_latency);
        if now < before.at + SHOWN_FOR {
            return before.average;
        }
        let (count, sum) = (latency.count(), latency.sum());
        // Less than before: somebody has reset the counters.
        let new = count.checked_sub(before.count).unwrap_or(count);
        let took = sum.checked_sub(before.sum).unwrap_or(sum);
        let average = took.checked_div(u32::try_from(new).unwrap_or(u32::MAX)).unwrap_or_default();
        self.commit_shown.set(Shown { at: now, count, sum, average });
        average
    }

    /// A client's op is answered.
    pub(crate) fn count_op(&self, op: &Served) {
        match (op.reads, op.writes) {
            (true, true) => {
                self.op_rw.add(op);
                self.rw_in.add(op, op.in_bytes);
                self.rw_out.add(op, op.out_bytes);
            }
            (false, true) => {
                self.op_w.add(op);
                self.w_in.add(op, op.in_bytes);
            }
            (_, false) => {
                self.op_r.add(op);
                self.r_out.add(op, op.out_bytes);
            }
        }
    }

    pub(crate) fn count_subop(&self, bytes: u64) {
        bump(&self.subop_w, 1);
        bump(&self.subop_w_in_bytes, bytes);
    }

    pub(crate) fn count_push(&self, bytes: u64) {
        bump(&self.subop_push, 1);
        bump(&self.subop_push_in_bytes, bytes);
    }

    pub(crate) fn count_pull(&self) {
        bump(&self.subop_pull, 1);
    }

    /// A piece of an object was recovered, with which it is `complete` or not: objects are counted, not pieces.
    pub(crate) fn count_recovered(&self, bytes: u64, complete: bool) {
        bump(&self.recovery_ops, u64::from(complete));
        bump(&self.recovery_bytes, bytes);
    }

    pub(crate) fn count_repaired(&self) {
        bump(&self.shards_repaired, 1);
    }

    pub(crate) fn count_maps(&self, epochs: u64) {
        bump(&self.map_messages, 1);
        bump(&self.map_message_epochs, epochs);
    }

    /// Starts from zero (`perf reset`).
    pub fn reset(&self) {
        [&self.op_r, &self.op_w, &self.op_rw].into_iter().for_each(OpCounters::reset);
        let histograms = [&self.r_out, &self.w_in, &self.rw_in, &self.rw_out];
        histograms.into_iter().for_each(|by_size| by_size.0.reset());
        self.commit_latency.reset();
        self.subop_w_latency.reset();
        let cells = [&self.subop_w, &self.subop_w_in_bytes, &self.subop_pull];
        let pushes = [&self.subop_push, &self.subop_push_in_bytes];
        cells.into_iter().chain(pushes).for_each(|cell| cell.set(0));
        self.recovery_ops.set(0);
        self.recovery_bytes.set(0);
        self.map_messages.set(0);
        self.map_message_epochs.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `recovery_ops` of `perf dump` counted pieces: the slower recovery went beside clients, the more objects it seemed to recover.
    #[test]
    fn recovered_objects_are_counted_once() {
        let counters = Counters::default();
        counters.count_recovered(1 << 20, false);
        counters.count_recovered(1 << 20, false);
        counters.count_recovered(1 << 20, true);
        assert_eq!((counters.recovery_ops.get(), counters.recovery_bytes.get()), (1, 3 << 20));
    }

    #[test]
    fn a_stores_latency_is_that_of_late() {
        let counters = Counters::default();
        let at = Duration::from_secs;
        assert_eq!(counters.recent_commit_latency(at(10)), Duration::ZERO);
        counters.commit_latency.add(Duration::from_millis(4));
        counters.commit_latency.add(Duration::from_millis(8));
        assert_eq!(counters.recent_commit_latency(at(15)), Duration::from_millis(6));
        assert_eq!(counters.recent_commit_latency(at(15)), Duration::from_millis(6));
        counters.commit_latency.add(Duration::from_millis(100));
        assert_eq!(counters.recent_commit_latency(at(20)), Duration::from_millis(100));
        assert_eq!(counters.recent_commit_latency(at(25)), Duration::ZERO);
        counters.reset();
        counters.commit_latency.add(Duration::from_millis(3));
        assert_eq!(counters.recent_commit_latency(at(30)), Duration::from_millis(3));
    }
}
