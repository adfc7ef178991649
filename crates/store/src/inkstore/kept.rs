//! The chunks of an object as a checkpoint has to write them, while the object goes on changing.
//!
//! Only chunks that do change are put aside, each before its first change: with writes all over a large
//! device nearly every object changes while a checkpoint is written, but few chunks of each.

use super::chunk_set::ChunkSet;
use super::chunk_table::ChunkTable;
use super::onode::Chunk;

/// What a checkpoint needs of an object's chunks.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// Those that have not changed since it began.
    unchanged: ChunkSet,
    /// The others as they were, `None` if not there. Bound: as many as the object has chunks.
    changed: Vec<(u32, Option<Chunk>)>,
}

impl Kept {
    /// Nothing has changed yet.
    pub(super) fn new(needed: ChunkSet) -> Kept {
        Kept { unchanged: needed, changed: Vec::new() }
    }

    /// A chunk is about to change.
    pub(super) fn note(&mut self, number: u32, chunks: &ChunkTable) {
        if self.unchanged.take(number) {
            if self.changed.len() == self.changed.capacity() {
                // Most objects change in one or two chunks before it is their turn.
                self.changed.reserve_exact(self.changed.len() / 2 + 1);
            }
            self.changed.push((number, chunks.get(number)));
        }
    }

    /// All of them as they were, in order, of an object that has these chunks now.
    pub(super) fn for_each(
        mut self,
        chunks: &ChunkTable,
        mut put: impl FnMut(u32, Option<&Chunk>),
    ) {
        self.changed.sort_unstable_by_key(|(number, _)| *number);
        let mut changed = self.changed.iter().peekable();
        for number in self.unchanged.iter() {
            while let Some((before, chunk)) = changed.next_if(|(n, _)| *n < number) {
                put(*before, chunk.as_ref());
            }
            put(number, chunks.get(number).as_ref());
        }
        changed.for_each(|(number, chunk)| put(*number, chunk.as_ref()));
    }
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;

    use super::super::onode::{BlockPtr, CHUNK_BLOCKS};
    use super::*;

    fn first_of(number: u32) -> u64 {
        u64::from(number) * CHUNK_BLOCKS
    }

    #[test]
    fn chunks_are_as_they_were_and_few_are_put_aside() {
        let mut choices = Choices::new(4);
        for _ in 0..200 {
            let (mut chunks, mut needed, mut expected) =
                (ChunkTable::default(), ChunkSet::default(), Vec::new());
            for number in 0..150 {
                if choices.below(3) > 0 {
                    chunks.set(first_of(number), BlockPtr { block: number + 1, crc: 7 });
                }
                if choices.below(2) > 0 {
                    needed.insert(number);
                    expected.push((number, chunks.get(number)));
                }
            }
            let (mut kept, changes) = (Kept::new(needed), choices.below(40));
            for n in 0..changes {
                let number = choices.below(150) as u32;
                kept.note(number, &chunks);
                match choices.below(3) {
                    0 => {
                        for at in 0..2 {
                            chunks.set(first_of(number) + at, BlockPtr::HOLE);
                        }
                    }
                    _ => {
                        let ptr = BlockPtr { block: 1000 + n as u32, crc: 8 };
                        chunks.set(first_of(number) + 1, ptr);
                    }
                }
            }
            assert!(kept.changed.len() as u64 <= changes);
            let mut found = Vec::new();
            kept.for_each(&chunks, |number, chunk| found.push((number, chunk.copied())));
            assert_eq!(found, expected);
        }
    }
}
