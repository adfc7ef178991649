//! Which omap keys changed since the last checkpoint.
//!
//! A PG's log turns over between two checkpoints: thousands of keys come behind the last one and as
//! many go in front. Ranges say so in a few keys of their own: what is between the bounds of one may
//! differ from what older checkpoints hold, so all of it is written anew. A key set or removed by
//! itself, as in other omaps, is a range of one.

use std::collections::BTreeMap;
use std::ops::Bound::{self, Included, Unbounded};

use bstr::{BStr, BString};

/// Ranges of keys, apart from each other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ChangedKeys {
    /// First key, and the end, which does not belong to it; none: the key alone. Bound: as many as
    /// keys changed. In memory of its own when there are some: of most objects there never are.
    ranges: Option<Box<Ranges>>,
}

type Ranges = BTreeMap<BString, Option<BString>>;

/// Up to so many ranges are looked at one by one.
const FEW: usize = 6;

/// Whether a range whose first key is not greater has this key, too.
fn holds(first: &BString, end: &Option<BString>, key: &BStr) -> bool {
    match end {
        Some(end) => key < end,
        None => first == key,
    }
}

/// Whether a key is not greater than another. Mostly their first letters say so: those of a log's entries,
/// of its info and of what it remembers differ.
fn is_up_to(first: &BString, key: &BStr) -> bool {
    match (first.first(), key.first()) {
        (Some(a), Some(b)) if a != b => a < b,
        _ => &***first <= key,
    }
}

fn up_to(key: &BStr) -> (Bound<&BStr>, Bound<&BStr>) {
    (Unbounded, Included(key))
}

impl ChangedKeys {
    pub(super) fn clear(&mut self) {
        self.ranges = None;
    }

    /// First key and end, in order; without an end the key alone.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&BStr, Option<&BStr>)> {
        let ranges = self.ranges.iter().flat_map(|ranges| ranges.iter());
        ranges.map(|(first, end)| (first.as_ref(), end.as_deref().map(BStr::new)))
    }

    /// The key got a value. `before`: itself if it had one, else the greatest smaller key there is.
    pub(super) fn note_set(&mut self, key: &BStr, before: Option<&BStr>) {
        let ranges = self.ranges.get_or_insert_default();
        // A log has few ranges: to look at them takes less than to find the way to one.
        let near = match ranges.len() {
            ..=FEW => ranges.iter_mut().rev().find(|(first, _)| is_up_to(first, key)),
            _ => ranges.range_mut::<BStr, _>(up_to(key)).next_back(),
        };
        let Some((first, end)) = near else {
            ranges.insert(key.to_owned(), None);
            return;
        };
        if holds(first, end, key) {
            return;
        }
        // Nothing stands between the range and the key: the range reaches farther now.
        if before.is_none_or(|before| before < first || holds(first, end, before)) {
            let end = end.get_or_insert_default();
            end.clear();
            end.extend_from_slice(key);
            end.push(0);
        } else {
            ranges.insert(key.to_owned(), None);
        }
    }

    pub(super) fn note_removed(&mut self, key: &BStr) {
        let ranges = self.ranges.get_or_insert_default();
        let near = ranges.range::<BStr, _>(up_to(key)).next_back();
        if !near.is_some_and(|(first, end)| holds(first, end, key)) {
            ranges.insert(key.to_owned(), None);
        }
    }

    /// Keys from `first` on and before `end` are gone.
    pub(super) fn note_range_removed(&mut self, first: &BStr, end: &BStr) {
        let ranges = self.ranges.get_or_insert_default();
        let (mut begin, mut until) = (first.to_owned(), end.to_owned());
        if let Some((before, end)) = ranges.range::<BStr, _>(up_to(first)).next_back()
            && end.as_ref().is_some_and(|end| end >= first)
        {
            begin = before.clone();
        }
        while let Some((next, _)) =
            ranges.range::<BStr, _>((Included(BStr::new(&begin)), Unbounded)).next()
            && *next <= until
        {
            let mut next = next.clone();
            let end = ranges.remove(&next).flatten().unwrap_or_else(|| {
                next.push(0);
                next
            });
            until = until.max(end);
        }
        ranges.insert(begin, Some(until));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use device::memory::Choices;

    use super::*;

    fn of(changed: &ChangedKeys) -> &Ranges {
        static NONE: Ranges = Ranges::new();
        changed.ranges.as_deref().unwrap_or(&NONE)
    }

    fn name(n: u64) -> BString {
        format!("{n:04}").into()
    }

    /// Whatever happens to keys, those that changed are in a range; and what happens to a log makes
    /// no more ranges than it has ends.
    #[test]
    fn what_changed_is_in_a_range_and_a_log_makes_few() {
        for seed in 0..200 {
            let mut choices = Choices::new(seed);
            let mut keys: BTreeSet<BString> = (0..300).map(|_| name(choices.below(1000))).collect();
            let (mut changed, mut ranges) = (BTreeSet::new(), ChangedKeys::default());
            for _ in 0..1 + choices.below(300) {
                let key = name(choices.below(1000));
                match choices.below(4) {
                    0 | 1 => {
                        let before =
                            keys.range(..=key.clone()).next_back().map(|k| BStr::new(&**k));
                        ranges.note_set(BStr::new(&key), before);
                        keys.insert(key.clone());
                        changed.insert(key);
                    }
                    2 if keys.remove(&key) => {
                        ranges.note_removed(BStr::new(&key));
                        changed.insert(key);
                    }
                    _ => {
                        let end = name(choices.below(1000).min(999));
                        if key >= end {
                            continue;
                        }
                        let gone: Vec<_> = keys.range(key.clone()..end.clone()).cloned().collect();
                        if !gone.is_empty() {
                            ranges.note_range_removed(BStr::new(&key), BStr::new(&end));
                        }
                        for key in gone {
                            keys.remove(&key);
                            changed.insert(key);
                        }
                    }
                }
                for key in &changed {
                    let mut all = of(&ranges).iter();
                    assert!(
                        all.any(|(first, end)| first <= key && holds(first, end, BStr::new(key))),
                        "{key} of {ranges:?}"
                    );
                }
                let pairs = of(&ranges).iter().zip(of(&ranges).keys().skip(1));
                for ((first, end), next) in pairs {
                    assert!(!holds(first, end, BStr::new(next)), "{ranges:?}");
                }
            }
        }
        let mut ranges = ChangedKeys::default();
        for n in 0..1000 {
            ranges.note_set(BStr::new(&name(1000 + n)), Some(BStr::new(&name(999 + n))));
            ranges.note_set("_info".into(), Some("_info".into()));
            if n % 50 == 49 {
                ranges.note_range_removed(BStr::new(&name(n - 49)), BStr::new(&name(n + 1)));
            }
        }
        assert_eq!(of(&ranges).len(), 2, "{ranges:?}");
    }
}
