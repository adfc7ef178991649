//! Which chunks of an object changed since the last checkpoint.

use smallvec::SmallVec;

/// Numbers of chunks, a bit each: an object of 4 MiB has 64.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ChunkSet(SmallVec<[u64; 1]>);

impl ChunkSet {
    pub(super) fn insert(&mut self, number: u32) {
        let at = number as usize / 64;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (number % 64);
    }

    /// Takes a number out; whether it was there.
    pub(super) fn take(&mut self, number: u32) -> bool {
        let Some(word) = self.0.get_mut(number as usize / 64) else { return false };
        let bit = 1 << (number % 64);
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// In order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u32> {
        let words = self.0.iter().zip((0..).step_by(64));
        words.flat_map(|(word, from)| {
            (0..64).filter(move |n| word >> n & 1 == 1).map(move |n| from + n)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use device::memory::Choices;

    use super::*;

    /// The crash suite's objects have few chunks: with every second 32 of them taken for those
    /// before, it found nothing.
    #[test]
    fn holds_what_a_tree_holds() {
        let mut choices = Choices::new(3);
        for most in [1, 40, 64, 65, 5000] {
            let (mut set, mut tree) = (ChunkSet::default(), BTreeSet::new());
            assert!(set.0.is_empty());
            for _ in 0..200 {
                let number = choices.below(most) as u32;
                set.insert(number);
                tree.insert(number);
                assert!(!set.0.is_empty() && set.iter().eq(tree.iter().copied()));
                if choices.below(4) == 0 {
                    let number = choices.below(most) as u32;
                    assert_eq!(set.take(number), tree.remove(&number));
                    assert_eq!(set.is_empty(), tree.is_empty());
                }
            }
        }
    }
}
