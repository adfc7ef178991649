//! Where an object's blocks are, by chunks: runs of adjacent chunks, each run in one allocation.
//!
//! An object that is written throughout is one run and has nothing beside its pointers; one with
//! holes has 32 bytes a run. What goes between two runs, or out of one, moves what lies behind it:
//! 8 KiB for an object of 4 MiB, 256 KiB for the longest that an OSD allows (`osd_max_object_size`).

use super::onode::Chunk;

/// Chunks in the order of their numbers.
#[derive(Debug, Clone, Default)]
pub(super) struct ChunkTable {
    /// In order; none touches the next, none is empty. Bound: as many as chunks.
    runs: Vec<Run>,
}

#[derive(Debug, Clone)]
struct Run {
    /// Number of the first chunk.
    first: u32,
    chunks: Vec<Chunk>,
}

impl Run {
    /// The number behind the last chunk.
    fn end(&self) -> u32 {
        self.first + self.chunks.len() as u32
    }

    /// Puts a chunk in, with little room to spare: most runs become as long as an object can be, and stay.
    fn insert(&mut self, at: usize, chunk: Chunk) {
        if self.chunks.len() == self.chunks.capacity() {
            self.chunks.reserve_exact((self.chunks.len() / 8).max(1));
        }
        self.chunks.insert(at, chunk);
    }
}

impl ChunkTable {
    /// How many runs begin at or before a chunk.
    fn runs_up_to(&self, number: u32) -> usize {
        match self.runs.last() {
            Some(last) if last.first <= number => self.runs.len(),
            _ => self.runs.partition_point(|run| run.first <= number),
        }
    }

    /// Which run has a chunk, and where.
    fn find(&self, number: u32) -> Option<(usize, usize)> {
        let run = self.runs_up_to(number).checked_sub(1)?;
        let at = (number - self.runs[run].first) as usize;
        (at < self.runs[run].chunks.len()).then_some((run, at))
    }

    pub(super) fn get(&self, number: u32) -> Option<&Chunk> {
        self.find(number).map(|(run, at)| &self.runs[run].chunks[at])
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Chunk> {
        self.find(number).map(|(run, at)| &mut self.runs[run].chunks[at])
    }

    /// The chunk, of holes if it was missing.
    pub(super) fn entry(&mut self, number: u32) -> &mut Chunk {
        let (run, at) = match self.find(number) {
            Some(found) => found,
            None => self.insert(number),
        };
        &mut self.runs[run].chunks[at]
    }

    /// A chunk of holes that was missing: which run has it, and where.
    fn insert(&mut self, number: u32) -> (usize, usize) {
        let next = self.runs_up_to(number);
        let follows = next > 0 && self.runs[next - 1].end() == number;
        let precedes = self.runs.get(next).is_some_and(|run| run.first == number + 1);
        if follows {
            let at = self.runs[next - 1].chunks.len();
            self.runs[next - 1].insert(at, Chunk::default());
            if precedes {
                let behind = self.runs.remove(next).chunks;
                let run = &mut self.runs[next - 1].chunks;
                run.reserve_exact(behind.len());
                run.extend(behind);
            }
            (next - 1, at)
        } else if precedes {
            self.runs[next].first = number;
            self.runs[next].insert(0, Chunk::default());
            (next, 0)
        } else {
            let run = Run { first: number, chunks: vec![Chunk::default()] };
            if self.runs.is_empty() {
                self.runs.reserve_exact(1);
            }
            self.runs.insert(next, run);
            (next, 0)
        }
    }

    pub(super) fn remove(&mut self, number: u32) {
        let Some((run, at)) = self.find(number) else { return };
        let chunks = &mut self.runs[run].chunks;
        let behind = chunks.split_off(at + 1);
        chunks.pop();
        if chunks.len() < chunks.capacity() / 2 {
            chunks.shrink_to_fit();
        }
        let before_is_empty = chunks.is_empty();
        if !behind.is_empty() {
            self.runs.insert(run + 1, Run { first: number + 1, chunks: behind });
        }
        if before_is_empty {
            self.runs.remove(run);
        }
    }

    /// Chunks with numbers not below `number`.
    pub(super) fn from(&self, number: u32) -> impl Iterator<Item = (u32, &Chunk)> {
        let run = self.runs_up_to(number).saturating_sub(1);
        self.runs[run..].iter().flat_map(move |run| {
            let from = number.clamp(run.first, run.end());
            (from..).zip(&run.chunks[(from - run.first) as usize..])
        })
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Chunk)> {
        self.from(0)
    }

    pub(super) fn len(&self) -> usize {
        self.runs.iter().map(|run| run.chunks.len()).sum()
    }

    pub(super) fn clear(&mut self) {
        self.runs = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::memory::Choices;

    use super::super::onode::BlockPtr;
    use super::*;

    /// Runs join, grow at both ends, split and go, as chunks come and go by chance.
    #[test]
    fn holds_what_a_tree_holds() {
        let mut choices = Choices::new(5);
        for most in [1, 4, 30, 2000] {
            let (mut table, mut tree) = (ChunkTable::default(), BTreeMap::<u32, Chunk>::new());
            for step in 1..3000 {
                let number = choices.below(most) as u32;
                if choices.below(2) == 0 {
                    table.remove(number);
                    tree.remove(&number);
                } else {
                    for chunk in [table.entry(number), tree.entry(number).or_default()] {
                        chunk[number as usize % 16] = BlockPtr { block: step, crc: number };
                    }
                }
                let from = choices.below(most + 2) as u32;
                assert!(table.from(from).eq(tree.range(from..).map(|(&n, chunk)| (n, chunk))));
                assert!(
                    table.get(from) == tree.get(&from)
                        && table.get_mut(from) == tree.get_mut(&from)
                );
                assert_eq!(table.len(), tree.len());
                assert!(table.runs.is_sorted_by(|run, next| run.end() < next.first));
                assert!(table.runs.iter().all(|run| !run.chunks.is_empty()));
            }
            assert!(table.iter().eq(tree.iter().map(|(&n, chunk)| (n, chunk))));
            table.clear();
            assert_eq!((table.len(), table.iter().count()), (0, 0));
        }
    }
}
