//! How long a transaction waits because of what is queued before it: Ceph's BackoffThrottle
//! (`src/common/Throttle.cc` at v16.2).

use std::time::Duration;

/// One throttle's settings (filestore_queue_*).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// As many may be queued.
    pub max: u64,
    /// Share of `max` from which there is a delay.
    pub low: f64,
    /// Share of `max` from which the delay grows faster.
    pub high: f64,
    /// Delay at `high` in multiples of the time one takes.
    pub high_multiple: f64,
    /// Delay at `max`, likewise.
    pub max_multiple: f64,
    /// How many the disk is thought to do in a second.
    pub expected_throughput: f64,
}

impl Backoff {
    /// What one more of weight `count` waits for when `queued` are.
    pub fn delay(&self, queued: u64, count: u64) -> Duration {
        if self.max == 0 || self.expected_throughput <= 0.0 {
            return Duration::ZERO;
        }
        let share = (queued as f64 / self.max as f64).min(1.0);
        let at_high = self.high_multiple / self.expected_throughput;
        let at_max = self.max_multiple / self.expected_throughput;
        let slope = |rise: f64, run: f64| if run > 0.0 { rise / run } else { 0.0 };
        let each = if share < self.low {
            0.0
        } else if share < self.high {
            (share - self.low) * slope(at_high, self.high - self.low)
        } else {
            at_high + (share - self.high) * slope(at_max - at_high, 1.0 - self.high)
        };
        Duration::try_from_secs_f64(each * count as f64).unwrap_or_default()
    }

    /// Whether no more should be taken on until some are done.
    pub fn is_full(&self, queued: u64) -> bool {
        self.max > 0 && queued >= self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delay_begins_at_low_and_grows_faster_from_high_on() {
        let throttle = Backoff {
            max: 100,
            low: 0.3,
            high: 0.9,
            high_multiple: 2.0,
            max_multiple: 10.0,
            expected_throughput: 1000.0,
        };
        let ms = |queued| throttle.delay(queued, 1).as_secs_f64() * 1000.0;
        assert_eq!((ms(0), ms(29)), (0.0, 0.0));
        assert!((ms(60) - 1.0).abs() < 1e-3 && (ms(90) - 2.0).abs() < 1e-3);
        assert!((ms(95) - 6.0).abs() < 1e-3 && (ms(100) - 10.0).abs() < 1e-3);
        assert!(throttle.is_full(100) && !throttle.is_full(99));
        let none = Backoff { high_multiple: 0.0, max_multiple: 0.0, ..throttle };
        assert_eq!(none.delay(100, 1), Duration::ZERO);
    }
}
