//! Latencies as a histogram of relative precision: 64 buckets for each doubling, so a value is
//! told within 1.6 %; 4096 counters hold anything from 1 ns to centuries.

/// Buckets of one doubling.
const SUB: u64 = 64;
const SUB_BITS: u32 = SUB.ilog2();
/// Counters: 64-bit values have at most 58 doublings above the first 64 values.
const BUCKETS: usize = (SUB as usize) * 59;

/// Counts of nanoseconds.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u128,
    sum_squares: f64,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            counts: vec![0; BUCKETS],
            count: 0,
            sum: 0,
            sum_squares: 0.0,
            min: u64::MAX,
            max: 0,
        }
    }
}

fn bucket_of(value: u64) -> usize {
    if value < SUB {
        return value as usize;
    }
    let shift = value.ilog2() - SUB_BITS;
    (u64::from(shift + 1) * SUB + (value >> shift) - SUB) as usize
}

/// The middle of a bucket.
fn value_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < SUB {
        return bucket;
    }
    let shift = bucket / SUB - 1;
    ((bucket % SUB + SUB) << shift) + (1 << shift) / 2
}

impl Histogram {
    /// Counts one value.
    pub fn add(&mut self, nanoseconds: u64) {
        self.counts[bucket_of(nanoseconds)] += 1;
        self.count += 1;
        self.sum += u128::from(nanoseconds);
        self.sum_squares += (nanoseconds as f64).powi(2);
        self.min = self.min.min(nanoseconds);
        self.max = self.max.max(nanoseconds);
    }

    /// Adds another histogram's values.
    pub fn merge(&mut self, other: &Histogram) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.count += other.count;
        self.sum += other.sum;
        self.sum_squares += other.sum_squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The smallest, 0 of none.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// The average, 0 of none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// The sample's standard deviation.
    pub fn deviation(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        let n = self.count as f64;
        ((self.sum_squares - n * self.mean().powi(2)) / (n - 1.0)).max(0.0).sqrt()
    }

    /// What `percent` of the values do not exceed.
    pub fn percentile(&self, percent: f64) -> u64 {
        let rank = (self.count as f64 * percent / 100.0).ceil().max(1.0) as u64;
        if rank >= self.count {
            return self.max;
        }
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return value_of(bucket).clamp(self.min(), self.max);
            }
        }
        self.max
    }

    /// Counts by doubling: upper bound (exclusive) and count, from the first to the last that
    /// has any.
    pub fn doublings(&self) -> Vec<(u64, u64)> {
        let mut by_doubling = std::collections::BTreeMap::new();
        for (bucket, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let power = value_of(bucket).max(1).ilog2();
            *by_doubling.entry(power).or_insert(0) += count;
        }
        let first = by_doubling.keys().next().copied();
        let last = by_doubling.keys().next_back().copied();
        let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
        let count = |power| by_doubling.get(&power).copied().unwrap_or(0);
        (first..=last).map(|power| (2 << power, count(power))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_their_precision() {
        let mut histogram = Histogram::default();
        (1..=100_000u64).for_each(|n| histogram.add(n * 1000));
        for percent in [1.0, 50.0, 95.0, 99.0, 99.9] {
            let wanted = percent * 1_000_000.0;
            let found = histogram.percentile(percent) as f64;
            assert!((found / wanted - 1.0).abs() < 0.016, "{percent}: {found}");
        }
        assert_eq!(
            (histogram.min(), histogram.max(), histogram.count()),
            (1000, 100_000_000, 100_000)
        );
        assert!((histogram.mean() - 50_000_500.0).abs() < 1.0);
        assert_eq!(histogram.doublings().iter().map(|d| d.1).sum::<u64>(), 100_000);
        histogram.add(u64::MAX);
        histogram.add(0);
        assert_eq!(histogram.percentile(100.0), u64::MAX);
    }
}
