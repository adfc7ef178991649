//! Disjoint, non-adjacent ranges of u64: removed snapshots, dirty extents, overlaps of clones.

use core::fmt;
use core::ops::Range;

use denc::{Denc, Error, Reader, Writer};
use smallvec::{SmallVec, smallvec};

/// A set of numbers as ranges. Wire: interval_set (u32 count, then u64 start, u64 length).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct IntervalSet {
    /// Start and length, in order; lengths are above 0, ends never pass u64::MAX. Most sets are what
    /// one write leaves clean of an object, in the entries of PGs' logs: two ranges.
    ranges: SmallVec<[(u64, u64); 2]>,
}

impl IntervalSet {
    /// Nothing.
    pub fn new() -> IntervalSet {
        IntervalSet::default()
    }

    /// One range.
    pub fn of(start: u64, len: u64) -> IntervalSet {
        match len {
            0 => IntervalSet::new(),
            len => IntervalSet { ranges: smallvec![(start, len.min(u64::MAX - start))] },
        }
    }

    /// Whether there is no number in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of ranges.
    pub fn num_intervals(&self) -> usize {
        self.ranges.len()
    }

    /// How many numbers are in it.
    pub fn size(&self) -> u64 {
        self.ranges.iter().map(|(_, len)| len).sum()
    }

    /// The ranges in order, as (start, length).
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().copied()
    }

    /// Smallest number.
    pub fn range_start(&self) -> Option<u64> {
        self.ranges.first().map(|(start, _)| *start)
    }

    /// One past the largest number.
    pub fn range_end(&self) -> Option<u64> {
        self.ranges.last().map(|(start, len)| start + len)
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The range that starts at or before `at` and ends behind it.
    fn range_around(&self, at: u64) -> Option<(u64, u64)> {
        let behind = self.ranges.partition_point(|&(start, _)| start <= at);
        let (start, len) = self.ranges[behind.checked_sub(1)?];
        (at - start < len).then_some((start, len))
    }

    /// Places of the ranges that have numbers from `start` on and before `end`.
    fn overlapped(&self, start: u64, end: u64) -> Range<usize> {
        let from = self.ranges.partition_point(|&(s, l)| s + l <= start);
        from..self.ranges.partition_point(|&(s, _)| s < end).max(from)
    }

    /// Whether a number is in it.
    pub fn contains(&self, at: u64) -> bool {
        self.range_around(at).is_some()
    }

    /// Whether all of a range is in it; an empty range always is.
    pub fn contains_range(&self, start: u64, len: u64) -> bool {
        len == 0 || self.range_around(start).is_some_and(|(s, l)| len <= l - (start - s))
    }

    /// Whether any number of a range is in it.
    pub fn intersects(&self, start: u64, len: u64) -> bool {
        len != 0 && !self.overlapped(start, start.saturating_add(len)).is_empty()
    }

    /// Adds a range; what is already there stays. The end is cut at u64::MAX.
    pub fn insert(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = start.saturating_add(len);
        // What overlaps or touches becomes one with it.
        let from = self.ranges.partition_point(|&(s, l)| s + l < start);
        let to = self.ranges.partition_point(|&(s, _)| s <= end);
        if from == to {
            return self.ranges.insert(from, (start, end - start));
        }
        let (last_start, last_len) = self.ranges[to - 1];
        let first = &mut self.ranges[from];
        let (start, end) = (start.min(first.0), end.max(last_start + last_len));
        *first = (start, end - start);
        self.ranges.drain(from + 1..to);
    }

    /// Removes a range; what is not there is no error.
    pub fn erase(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = start.saturating_add(len);
        let gone = self.overlapped(start, end);
        let hit = &self.ranges[gone.clone()];
        let (Some(&(first, _)), Some(&(last, len))) = (hit.first(), hit.last()) else { return };
        let before = (first < start).then(|| (first, start - first));
        let behind = (last + len > end).then(|| (end, last + len - end));
        let at = gone.start;
        self.ranges.drain(gone);
        self.ranges.insert_many(at, before.into_iter().chain(behind));
    }

    /// Adds all of `other`.
    pub fn union_with(&mut self, other: &IntervalSet) {
        other.iter().for_each(|(start, len)| self.insert(start, len));
    }

    /// Removes all of `other`.
    pub fn subtract(&mut self, other: &IntervalSet) {
        other.iter().for_each(|(start, len)| self.erase(start, len));
    }

    /// What is in both.
    pub fn intersection(&self, other: &IntervalSet) -> IntervalSet {
        let mut both = IntervalSet::new();
        let (mut a, mut b) = (self.iter().peekable(), other.iter().peekable());
        while let (Some(&(s, l)), Some(&(t, m))) = (a.peek(), b.peek()) {
            let (start, end) = (s.max(t), (s + l).min(t + m));
            if start < end {
                both.ranges.push((start, end - start));
            }
            if s + l < t + m {
                a.next();
            } else {
                b.next();
            }
        }
        both
    }
}

impl FromIterator<(u64, u64)> for IntervalSet {
    fn from_iter<I: IntoIterator<Item = (u64, u64)>>(ranges: I) -> IntervalSet {
        let mut set = IntervalSet::new();
        ranges.into_iter().for_each(|(start, len)| set.insert(start, len));
        set
    }
}

/// `[1~2,5~3]`, numbers in decimal; `{:x}` for snap ids, which Ceph prints in hexadecimal.
impl fmt::Display for IntervalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_with(f, |f, (start, len)| write!(f, "{start}~{len}"))
    }
}

impl fmt::LowerHex for IntervalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_with(f, |f, (start, len)| write!(f, "{start:x}~{len:x}"))
    }
}

impl IntervalSet {
    fn write_with(
        &self,
        f: &mut fmt::Formatter<'_>,
        one: impl Fn(&mut fmt::Formatter<'_>, (u64, u64)) -> fmt::Result,
    ) -> fmt::Result {
        f.write_str("[")?;
        for (i, range) in self.iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            one(f, range)?;
        }
        f.write_str("]")
    }
}

impl Denc for IntervalSet {
    fn encode(&self, w: &mut Writer) {
        w.count(self.ranges.len());
        for (start, len) in self.iter() {
            w.u64(start);
            w.u64(len);
        }
    }
    fn decode(r: &mut Reader<'_>) -> Result<IntervalSet, Error> {
        let count = r.count(16)?;
        let mut ranges = SmallVec::with_capacity(count);
        let mut end = 0;
        for _ in 0..count {
            let (start, len) = (r.u64()?, r.u64()?);
            if len == 0 || start < end {
                return Err(Error::Invalid { what: "interval set", value: start });
            }
            end = start
                .checked_add(len)
                .ok_or(Error::Invalid { what: "interval set end", value: start })?;
            ranges.push((start, len));
        }
        Ok(IntervalSet { ranges })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_a_set_of_numbers() {
        let mut set = IntervalSet::new();
        let mut model = std::collections::BTreeSet::new();
        let mut x = 12345_u64;
        for _ in 0..4000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (start, len) = (x >> 33 & 127, x >> 50 & 15);
            if x >> 63 == 0 {
                set.insert(start, len);
                model.extend(start..start + len);
            } else {
                set.erase(start, len);
                (start..start + len).for_each(|n| {
                    model.remove(&n);
                });
            }
            assert_eq!(set.size(), model.len() as u64);
            assert_eq!(set.contains(start), model.contains(&start));
            let probe = start..start + len;
            assert_eq!(set.intersects(start, len), probe.clone().any(|n| model.contains(&n)));
            assert_eq!(set.contains_range(start, len), probe.clone().all(|n| model.contains(&n)));
            let ends: Vec<u64> = set.iter().flat_map(|(s, l)| [s, s + l]).collect();
            assert!(ends.is_sorted_by(|a, b| a < b), "{set}");
        }
        let odd: IntervalSet = (0..64).map(|i| (i * 3, 2)).collect();
        let both = set.intersection(&odd);
        assert!((0..300).all(|n| both.contains(n) == (set.contains(n) && odd.contains(n))));
        assert_eq!(format!("{:x}", IntervalSet::of(10, 16)), "[a~10]");
    }
}
