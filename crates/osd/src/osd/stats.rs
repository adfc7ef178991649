//! Counters of an OSD, for `perf dump` and reports to the manager.

use std::cell::Cell;
use std::time::Duration;

use super::perf_queries::DynamicPerfStats;

/// A sum of times with their number.
#[derive(Debug, Default)]
pub struct Latency {
    count: Cell<u64>,
    sum: Cell<Duration>,
}

impl Latency {
    /// One more.
    pub fn add(&self, d: Duration) {
        self.count.set(self.count.get() + 1);
        self.sum.set(self.sum.get() + d);
    }

    fn reset(&self) {
        self.count.set(0);
        self.sum.set(Duration::ZERO);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// Their sum.
    pub fn sum(&self) -> Duration {
        self.sum.get()
    }
}

/// What an OSD counts. Names as in Ceph's `perf dump` ("osd.op_w" ...).
#[derive(Debug, Default)]
pub struct Counters {
    /// Client ops answered.
    pub op: Cell<u64>,
    /// Writes answered.
    pub op_w: Cell<u64>,
    /// Bytes written by clients.
    pub op_in_bytes: Cell<u64>,
    /// Reads answered.
    pub op_r: Cell<u64>,
    /// Bytes read by clients.
    pub op_out_bytes: Cell<u64>,
    /// Writes, from arrival to durable everywhere.
    pub op_w_latency: Latency,
    /// Writes to the store, until they are durable.
    pub commit_latency: Latency,
    commit_shown: Cell<Shown>,
    /// Writes of primaries applied here.
    pub subop_w: Cell<u64>,
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

    pub(crate) fn count_read(&self, bytes: u64) {
        bump(&self.op, 1);
        bump(&self.op_r, 1);
        bump(&self.op_out_bytes, bytes);
    }

    pub(crate) fn count_write(&self, bytes: u64, took: Duration) {
        bump(&self.op, 1);
        bump(&self.op_w, 1);
        bump(&self.op_in_bytes, bytes);
        self.op_w_latency.add(took);
    }

    pub(crate) fn count_subop(&self) {
        bump(&self.subop_w, 1);
    }

    pub(crate) fn count_recovered(&self, bytes: u64) {
        bump(&self.recovery_ops, 1);
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
        self.op.set(0);
        self.op_w.set(0);
        self.op_in_bytes.set(0);
        self.op_r.set(0);
        self.op_out_bytes.set(0);
        self.op_w_latency.reset();
        self.commit_latency.reset();
        self.subop_w.set(0);
        self.recovery_ops.set(0);
        self.recovery_bytes.set(0);
        self.map_messages.set(0);
        self.map_message_epochs.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
