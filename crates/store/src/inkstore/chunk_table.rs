//! Where an object's blocks are, by chunks: runs of adjacent chunks, each run in one allocation.
//!
//! An object that is written throughout is one run and has nothing beside its pointers; one with
//! holes has 32 bytes a run. What goes between two runs, or out of one, moves what lies behind it:
//! 8 KiB for an object of 4 MiB, 256 KiB for the longest that an OSD allows (`osd_max_object_size`).
//! An object of at most 8 KiB has no run at all: its two pointers stand where the table of runs would.

use super::onode::{BlockPtr, CHUNK_BLOCKS, Chunk};

/// Blocks that need no run.
const FIRST_BLOCKS: usize = 2;

/// Chunks in the order of their numbers. A chunk without blocks is not there.
#[derive(Debug, Clone)]
pub(super) enum ChunkTable {
    /// The first blocks of the first chunk, which has no others.
    First([BlockPtr; FIRST_BLOCKS]),
    Runs(Runs),
}

impl Default for ChunkTable {
    fn default() -> ChunkTable {
        ChunkTable::First([BlockPtr::HOLE; FIRST_BLOCKS])
    }
}

/// Which chunk a block is in, and where.
fn place_of(block: u64) -> (u32, usize) {
    ((block / CHUNK_BLOCKS) as u32, (block % CHUNK_BLOCKS) as usize)
}

/// The first chunk, if it has blocks.
fn first_chunk(first: &[BlockPtr]) -> Option<Chunk> {
    let mut chunk = Chunk::default();
    chunk[..first.len()].copy_from_slice(first);
    first.iter().any(|ptr| !ptr.is_hole()).then_some(chunk)
}

impl ChunkTable {
    pub(super) fn ptr(&self, block: u64) -> BlockPtr {
        match self {
            ChunkTable::First(first) => first.get(block as usize).copied().unwrap_or_default(),
            ChunkTable::Runs(runs) => {
                let (number, at) = place_of(block);
                runs.get(number).map_or(BlockPtr::HOLE, |chunk| chunk[at])
            }
        }
    }

    /// Sets a block's pointer; what it was.
    pub(super) fn set(&mut self, block: u64, ptr: BlockPtr) -> BlockPtr {
        let first = match self {
            ChunkTable::First(first) => first,
            ChunkTable::Runs(runs) => return runs.set(block, ptr),
        };
        if let Some(old) = first.get_mut(block as usize) {
            return std::mem::replace(old, ptr);
        }
        if !ptr.is_hole() {
            let mut runs = Runs::default();
            if let Some(chunk) = first_chunk(first) {
                *runs.entry(0) = chunk;
            }
            runs.set(block, ptr);
            *self = ChunkTable::Runs(runs);
        }
        BlockPtr::HOLE
    }

    pub(super) fn get(&self, number: u32) -> Option<Chunk> {
        match self {
            ChunkTable::First(first) => first_chunk(first).filter(|_| number == 0),
            ChunkTable::Runs(runs) => runs.get(number).copied(),
        }
    }

    /// Chunks with numbers not below `number`.
    pub(super) fn from(&self, number: u32) -> impl Iterator<Item = (u32, Chunk)> {
        let (first, runs) = match self {
            ChunkTable::First(_) => (self.get(number).map(|chunk| (number, chunk)), None),
            ChunkTable::Runs(runs) => (None, Some(runs)),
        };
        let of_runs = runs.into_iter().flat_map(move |runs| runs.from(number));
        first.into_iter().chain(of_runs.map(|(number, chunk)| (number, *chunk)))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Chunk)> {
        self.from(0)
    }

    pub(super) fn len(&self) -> usize {
        match self {
            ChunkTable::First(first) => first_chunk(first).map_or(0, |_| 1),
            ChunkTable::Runs(runs) => runs.0.iter().map(|run| run.chunks.len()).sum(),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = ChunkTable::default();
    }
}

/// In order; none touches the next, none is empty. Bound: as many as chunks.
#[derive(Debug, Clone, Default)]
pub(super) struct Runs(Vec<Run>);

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

impl Runs {
    /// How many runs begin at or before a chunk.
    fn runs_up_to(&self, number: u32) -> usize {
        match self.0.last() {
            Some(last) if last.first <= number => self.0.len(),
            _ => self.0.partition_point(|run| run.first <= number),
        }
    }

    /// Which run has a chunk, and where.
    fn find(&self, number: u32) -> Option<(usize, usize)> {
        let run = self.runs_up_to(number).checked_sub(1)?;
        let at = (number - self.0[run].first) as usize;
        (at < self.0[run].chunks.len()).then_some((run, at))
    }

    fn get(&self, number: u32) -> Option<&Chunk> {
        self.find(number).map(|(run, at)| &self.0[run].chunks[at])
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Chunk> {
        self.find(number).map(|(run, at)| &mut self.0[run].chunks[at])
    }

    /// The chunk, of holes if it was missing.
    fn entry(&mut self, number: u32) -> &mut Chunk {
        let (run, at) = match self.find(number) {
            Some(found) => found,
            None => self.insert(number),
        };
        &mut self.0[run].chunks[at]
    }

    /// A chunk of holes that was missing: which run has it, and where.
    fn insert(&mut self, number: u32) -> (usize, usize) {
        let next = self.runs_up_to(number);
        let follows = next > 0 && self.0[next - 1].end() == number;
        let precedes = self.0.get(next).is_some_and(|run| run.first == number + 1);
        if follows {
            let at = self.0[next - 1].chunks.len();
            self.0[next - 1].insert(at, Chunk::default());
            if precedes {
                let behind = self.0.remove(next).chunks;
                let run = &mut self.0[next - 1].chunks;
                run.reserve_exact(behind.len());
                run.extend(behind);
            }
            (next - 1, at)
        } else if precedes {
            self.0[next].first = number;
            self.0[next].insert(0, Chunk::default());
            (next, 0)
        } else {
            let run = Run { first: number, chunks: vec![Chunk::default()] };
            if self.0.is_empty() {
                self.0.reserve_exact(1);
            }
            self.0.insert(next, run);
            (next, 0)
        }
    }

    fn remove(&mut self, number: u32) {
        let Some((run, at)) = self.find(number) else { return };
        let chunks = &mut self.0[run].chunks;
        let behind = chunks.split_off(at + 1);
        chunks.pop();
        if chunks.len() < chunks.capacity() / 2 {
            chunks.shrink_to_fit();
        }
        let before_is_empty = chunks.is_empty();
        if !behind.is_empty() {
            self.0.insert(run + 1, Run { first: number + 1, chunks: behind });
        }
        if before_is_empty {
            self.0.remove(run);
        }
    }

    /// Chunks with numbers not below `number`.
    fn from(&self, number: u32) -> impl Iterator<Item = (u32, &Chunk)> {
        let run = self.runs_up_to(number).saturating_sub(1);
        self.0[run..].iter().flat_map(move |run| {
            let from = number.clamp(run.first, run.end());
            (from..).zip(&run.chunks[(from - run.first) as usize..])
        })
    }

    fn set(&mut self, block: u64, ptr: BlockPtr) -> BlockPtr {
        let (number, at) = place_of(block);
        if !ptr.is_hole() {
            return std::mem::replace(&mut self.entry(number)[at], ptr);
        }
        let Some(chunk) = self.get_mut(number) else { return BlockPtr::HOLE };
        let old = std::mem::take(&mut chunk[at]);
        if chunk.iter().all(|p| p.is_hole()) {
            self.remove(number);
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::memory::Choices;

    use super::*;

    /// Pointers in a tree, by block.
    #[derive(Default)]
    struct Tree(BTreeMap<u64, BlockPtr>);

    impl Tree {
        fn set(&mut self, block: u64, ptr: BlockPtr) -> BlockPtr {
            match ptr.is_hole() {
                true => self.0.remove(&block).unwrap_or_default(),
                false => self.0.insert(block, ptr).unwrap_or_default(),
            }
        }

        fn from(&self, number: u32) -> Vec<(u32, Chunk)> {
            let mut chunks = BTreeMap::<u32, Chunk>::new();
            for (&block, &ptr) in self.0.range(u64::from(number) * CHUNK_BLOCKS..) {
                let (number, at) = place_of(block);
                chunks.entry(number).or_default()[at] = ptr;
            }
            chunks.into_iter().collect()
        }
    }

    /// Runs join, grow at both ends, split and go, as chunks come and go by chance; small objects have none.
    #[test]
    fn holds_what_a_tree_holds() {
        let mut choices = Choices::new(5);
        for most in [1, 2, 3, 16, 40, 500, 32_000] {
            let (mut table, mut tree) = (ChunkTable::default(), Tree::default());
            for step in 1..2000 {
                // Of large tables mostly one block of a chunk, so that chunks go, too.
                let block = choices.below(most);
                let block = if most < 500 { block } else { block / 16 * 16 + block % 2 };
                let ptr = match choices.below(2) {
                    0 => BlockPtr::HOLE,
                    _ => BlockPtr { block: step, crc: block as u32 },
                };
                assert_eq!(table.set(block, ptr), tree.set(block, ptr));
                let asked = choices.below(most + 20);
                assert_eq!(table.ptr(asked), tree.0.get(&asked).copied().unwrap_or_default());
                let from = place_of(asked).0;
                let expected = tree.from(from);
                assert_eq!(table.from(from).collect::<Vec<_>>(), expected);
                let there = expected.first().filter(|(number, _)| *number == from);
                assert_eq!(table.get(from), there.map(|(_, chunk)| *chunk));
                match &table {
                    ChunkTable::First(_) => {
                        assert!(most <= 2 || tree.0.range(2..).next().is_none())
                    }
                    ChunkTable::Runs(Runs(runs)) => {
                        assert!(most > 2);
                        assert!(runs.is_sorted_by(|run, next| run.end() < next.first));
                        assert!(runs.iter().all(|run| !run.chunks.is_empty()));
                    }
                }
            }
            let all = tree.from(0);
            assert_eq!((table.len(), table.iter().collect::<Vec<_>>()), (all.len(), all));
            table.clear();
            assert_eq!((table.len(), table.iter().count()), (0, 0));
        }
    }
}
