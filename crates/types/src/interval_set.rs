//! Disjoint, non-adjacent ranges of u64: removed snapshots, dirty extents, overlaps of clones.

use core::fmt;
use std::collections::BTreeMap;

use denc::{Denc, Error, Reader, Writer};

/// A set of numbers as ranges. Wire: interval_set (u32 count, then u64 start, u64 length).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct IntervalSet {
    /// Start to length; lengths are above 0, ends never pass u64::MAX.
    ranges: BTreeMap<u64, u64>,
}

impl IntervalSet {
    /// Nothing.
    pub fn new() -> IntervalSet {
        IntervalSet::default()
    }

    /// One range.
    pub fn of(start: u64, len: u64) -> IntervalSet {
        let mut set = IntervalSet::new();
        set.insert(start, len);
        set
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
        self.ranges.values().sum()
    }

    /// The ranges in order, as (start, length).
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, u64)> + '_ {
        self.ranges.iter().map(|(start, len)| (*start, *len))
    }

    /// Smallest number.
    pub fn range_start(&self) -> Option<u64> {
        self.ranges.keys().next().copied()
    }

    /// One past the largest number.
    pub fn range_end(&self) -> Option<u64> {
        self.ranges
            .iter()
            .next_back()
            .map(|(start, len)| start + len)
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// The range that starts at or before `at` and ends behind it.
    fn range_around(&self, at: u64) -> Option<(u64, u64)> {
        let (&start, &len) = self.ranges.range(..=at).next_back()?;
        (at - start < len).then_some((start, len))
    }

    /// Whether a number is in it.
    pub fn contains(&self, at: u64) -> bool {
        self.range_around(at).is_some()
    }

    /// Whether all of a range is in it; an empty range always is.
    pub fn contains_range(&self, start: u64, len: u64) -> bool {
        len == 0
            || self
                .range_around(start)
                .is_some_and(|(s, l)| len <= l - (start - s))
    }

    /// Whether any number of a range is in it.
    pub fn intersects(&self, start: u64, len: u64) -> bool {
        len != 0
            && self
                .ranges
                .range(..start.saturating_add(len))
                .next_back()
                .is_some_and(|(s, l)| s + l > start)
    }

    /// Adds a range; what is already there stays. The end is cut at u64::MAX.
    pub fn insert(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (mut from, mut end) = (start, start.saturating_add(len));
        // Swallow every range that overlaps or touches.
        while let Some((&s, &l)) = self.ranges.range(..=end).next_back() {
            if s + l < from {
                break;
            }
            self.ranges.remove(&s);
            from = from.min(s);
            end = end.max(s + l);
        }
        self.ranges.insert(from, end - from);
    }

    /// Removes a range; what is not there is no error.
    pub fn erase(&mut self, start: u64, len: u64) {
        if len == 0 {
            return;
        }
        let end = start.saturating_add(len);
        while let Some((&s, &l)) = self.ranges.range(..end).next_back() {
            if s + l <= start {
                break;
            }
            self.ranges.remove(&s);
            if s + l > end {
                self.ranges.insert(end, s + l - end);
            }
            if s < start {
                self.ranges.insert(s, start - s);
            }
        }
    }

    /// Adds all of `other`.
    pub fn union_with(&mut self, other: &IntervalSet) {
        other
            .iter()
            .for_each(|(start, len)| self.insert(start, len));
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
                both.ranges.insert(start, end - start);
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
        ranges
            .into_iter()
            .for_each(|(start, len)| set.insert(start, len));
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
        self.ranges.encode(w);
    }
    fn decode(r: &mut Reader<'_>) -> Result<IntervalSet, Error> {
        let ranges: BTreeMap<u64, u64> = r.get()?;
        let mut end = 0;
        for (i, (&start, &len)) in ranges.iter().enumerate() {
            if len == 0 || (i > 0 && start < end) {
                return Err(Error::Invalid {
                    what: "interval set",
                    value: start,
                });
            }
            end = start.checked_add(len).ok_or(Error::Invalid {
                what: "interval set end",
                value: start,
            })?;
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
            x = x
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
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
            assert_eq!(
                set.intersects(start, len),
                probe.clone().any(|n| model.contains(&n))
            );
            assert_eq!(
                set.contains_range(start, len),
                probe.clone().all(|n| model.contains(&n))
            );
            let ends: Vec<u64> = set.iter().flat_map(|(s, l)| [s, s + l]).collect();
            assert!(ends.is_sorted_by(|a, b| a < b), "{set}");
        }
        let odd: IntervalSet = (0..64).map(|i| (i * 3, 2)).collect();
        let both = set.intersection(&odd);
        assert!((0..300).all(|n| both.contains(n) == (set.contains(n) && odd.contains(n))));
        assert_eq!(format!("{:x}", IntervalSet::of(10, 16)), "[a~10]");
    }
}
