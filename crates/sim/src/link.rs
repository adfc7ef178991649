//! How a network link behaves, without its state.

use std::time::Duration;

use crate::rng::Rng;

/// First retransmission timeout of TCP on Linux for short round trips.
const RETRANSMIT_FIRST: Duration = Duration::from_millis(200);

/// Behaviour of the link from one host to another. Streams stay in order: a message never
/// overtakes an earlier one of its connection.
#[derive(Debug, Clone, Copy)]
pub struct LinkModel {
    /// Least time a message takes.
    pub delay_min: Duration,
    /// Mean of what is added to it (exponentially distributed).
    pub delay_mean: Duration,
    /// Throughput of one connection in bytes a second.
    pub bytes_per_second: u64,
    /// Probability that a message is lost and sent again, 200 ms later at first, then doubling.
    pub loss: f64,
    /// Probability that a message is answered by a reset of its connection.
    pub reset: f64,
}

impl Default for LinkModel {
    /// A 10 Gbit/s network without faults.
    fn default() -> LinkModel {
        LinkModel {
            delay_min: Duration::from_micros(30),
            delay_mean: Duration::from_micros(50),
            bytes_per_second: 1_250_000_000,
            loss: 0.0,
            reset: 0.0,
        }
    }
}

impl LinkModel {
    /// Within a host.
    pub(crate) const LOCAL: LinkModel = LinkModel {
        delay_min: Duration::from_micros(5),
        delay_mean: Duration::from_micros(5),
        bytes_per_second: 4_000_000_000,
        loss: 0.0,
        reset: 0.0,
    };

    /// Time for a message to arrive, apart from its length.
    pub(crate) fn delay(&self, rng: &Rng) -> Duration {
        let mut delay = self.delay_min + rng.exponential(self.delay_mean);
        let mut retransmit = RETRANSMIT_FIRST;
        // Bounded, so that even a loss of 1 is a delay.
        for _ in 0..6 {
            if !rng.chance(self.loss) {
                break;
            }
            delay += retransmit;
            retransmit *= 2;
        }
        delay
    }

    /// Time that `len` bytes occupy the link.
    pub(crate) fn transfer(&self, len: usize) -> Duration {
        let nanos = len as u128 * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        Duration::from_nanos(nanos as u64)
    }
}
