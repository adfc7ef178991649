//! Which blocks are free. In memory only: rebuilt at mount from what the metadata refers to.
//!
//! One bit a block (set: free) and, above each 64 words, one bit that says whether any of them is
//! not zero: 32 KiB and 0.5 KiB a GiB of device. Search goes on where the last one ended, so
//! what is written together lies together while there is room, and fills holes when there is not.

use smallvec::SmallVec;

use super::format::Extent;

/// What was taken for one purpose: mostly one extent, which stands in place.
pub(super) type Extents = SmallVec<[Extent; 1]>;

/// How many words a search for a long run looks through before it takes shorter ones.
const RUN_SEARCH_WORDS: usize = 2048;

/// The free blocks of a device.
#[derive(Debug)]
pub(super) struct Allocator {
    words: Vec<u64>,
    summary: Vec<u64>,
    blocks: u32,
    free: u32,
    cursor: u32,
}

impl Allocator {
    /// All blocks in use.
    pub(super) fn new(blocks: u32) -> Allocator {
        let words = (blocks as usize).div_ceil(64);
        Allocator {
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
            blocks,
            free: 0,
            cursor: 0,
        }
    }

    /// Number of free blocks.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    pub(super) fn is_free(&self, block: u32) -> bool {
        block < self.blocks && self.words[block as usize / 64] >> (block % 64) & 1 == 1
    }

    /// Frees a block in use.
    ///
    /// # Panics
    /// If the block is free already: two owners, sooner or later two contents.
    pub(super) fn release(&mut self, block: u32) {
        let word = block as usize / 64;
        assert!(block < self.blocks && !self.is_free(block), "block {block} freed twice");
        self.words[word] |= 1 << (block % 64);
        self.summary[word / 64] |= 1 << (word % 64);
        self.free += 1;
    }

    /// Frees blocks in use, a word at a time: at a mount that is nearly all of the device.
    ///
    /// # Panics
    /// As [`Allocator::release`].
    pub(super) fn release_extent(&mut self, extent: Extent) {
        let (mut at, end) = (extent.start, extent.end());
        assert!(end <= self.blocks, "blocks up to {end} of {}", self.blocks);
        while at < end {
            let word = at as usize / 64;
            let len = (64 - at % 64).min(end - at);
            let bits = (u64::MAX >> (64 - len)) << (at % 64);
            assert!(self.words[word] & bits == 0, "one of {len} blocks from {at} on freed twice");
            self.words[word] |= bits;
            self.summary[word / 64] |= 1 << (word % 64);
            self.free += len;
            at += len;
        }
    }

    /// Takes a free block out, for instance one found in use at mount. False if it was not free.
    pub(super) fn take(&mut self, block: u32) -> bool {
        let was_free = self.is_free(block);
        if was_free {
            let word = block as usize / 64;
            self.words[word] &= !(1 << (block % 64));
            if self.words[word] == 0 {
                self.summary[word / 64] &= !(1 << (word % 64));
            }
            self.free -= 1;
        }
        was_free
    }

    /// The first free block at or behind `from`, not wrapping.
    fn next_free(&self, from: u32) -> Option<u32> {
        if from >= self.blocks {
            return None;
        }
        let word = from as usize / 64;
        let bits = self.words[word] & (u64::MAX << (from % 64));
        if bits != 0 {
            return Some(word as u32 * 64 + bits.trailing_zeros());
        }
        let mut group = (word + 1) / 64;
        let mut mask = u64::MAX << ((word + 1) % 64);
        while group < self.summary.len() {
            let any = self.summary[group] & mask;
            if any != 0 {
                let word = group * 64 + any.trailing_zeros() as usize;
                return Some(word as u32 * 64 + self.words[word].trailing_zeros());
            }
            group += 1;
            mask = u64::MAX;
        }
        None
    }

    /// Length of the free run at `start`, at most `max`.
    fn run_len(&self, start: u32, max: u32) -> u32 {
        let mut len = 0;
        while len < max {
            let at = start + len;
            if at >= self.blocks {
                break;
            }
            let free = (!(self.words[at as usize / 64] >> (at % 64))).trailing_zeros();
            let in_word = free.min(64 - at % 64);
            len += in_word;
            if in_word < 64 - at % 64 {
                break;
            }
        }
        len.min(max)
    }

    /// Takes `count` blocks in as few extents as a short search finds; nothing if there are less.
    pub(super) fn allocate(&mut self, count: u32) -> Option<Extents> {
        if count > self.free {
            return None;
        }
        let mut extents = Extents::new();
        if count > 1
            && let Some(start) = self.find_run(count)
        {
            self.take_extent(Extent { start, len: count }, &mut extents);
            return Some(extents);
        }
        let mut left = count;
        while left > 0 {
            // There are `left` free blocks, so one is found before the cursor comes round.
            let start = self.next_free(self.cursor).or_else(|| self.next_free(0))?;
            let len = self.run_len(start, left);
            self.take_extent(Extent { start, len }, &mut extents);
            left -= len;
        }
        Some(extents)
    }

    fn take_extent(&mut self, extent: Extent, extents: &mut Extents) {
        for block in extent.start..extent.end() {
            self.take(block);
        }
        self.cursor = extent.end();
        match extents.last_mut() {
            Some(last) if last.end() == extent.start => last.len += extent.len,
            _ => extents.push(extent),
        }
    }

    /// A free run of `count` blocks near the cursor.
    fn find_run(&self, count: u32) -> Option<u32> {
        let (mut at, mut wrapped) = (self.cursor, false);
        let mut budget = RUN_SEARCH_WORDS;
        loop {
            let Some(start) = self.next_free(at) else {
                if wrapped {
                    return None;
                }
                wrapped = true;
                at = 0;
                continue;
            };
            if wrapped && start >= self.cursor {
                return None;
            }
            let len = self.run_len(start, count);
            if len == count {
                return Some(start);
            }
            at = start + len;
            budget = budget.checked_sub(1 + len as usize / 64)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;

    use super::*;

    #[test]
    fn takes_and_gives_back_everything() {
        let blocks = 64 * 64 * 2 + 77;
        let mut a = Allocator::new(blocks);
        a.release_extent(Extent { start: 0, len: blocks });
        let mut choices = Choices::new(5);
        let mut held: Vec<Extent> = Vec::new();
        let mut used = vec![false; blocks as usize];
        for _ in 0..20_000 {
            let most = if choices.below(8) == 0 { 900 } else { 4 };
            let count = 1 + choices.below(most) as u32;
            match a.allocate(count) {
                Some(extents) => {
                    assert_eq!(extents.iter().map(|e| e.len).sum::<u32>(), count);
                    for e in &extents {
                        for b in e.start..e.end() {
                            assert!(!std::mem::replace(&mut used[b as usize], true));
                        }
                    }
                    held.extend(extents);
                }
                None => assert!(count > a.free()),
            }
            while !held.is_empty() && choices.below(4) != 0 {
                let e = held.swap_remove(choices.below(held.len() as u64) as usize);
                a.release_extent(e);
                (e.start..e.end()).for_each(|b| used[b as usize] = false);
            }
            assert_eq!(a.free() as usize, used.iter().filter(|u| !**u).count());
        }
    }

    #[test]
    fn an_extent_is_its_blocks() {
        let blocks = 64 * 64 + 77;
        let mut choices = Choices::new(6);
        for _ in 0..2000 {
            let start = choices.below(blocks.into()) as u32;
            let len = choices.below(u64::from(blocks - start).min(200) + 1) as u32;
            let extent = Extent { start, len };
            let [mut one, mut each] = [(); 2].map(|()| Allocator::new(blocks));
            one.release_extent(extent);
            (start..extent.end()).for_each(|block| each.release(block));
            assert_eq!((one.words, one.summary), (each.words, each.summary));
            assert_eq!((one.free, each.free), (len, len));
        }
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn an_extent_with_a_free_block_is_not_freed() {
        let mut a = Allocator::new(1000);
        a.release(300);
        a.release_extent(Extent { start: 100, len: 300 });
    }

    #[test]
    fn sequential_while_there_is_room() {
        let mut a = Allocator::new(10_000);
        a.release_extent(Extent { start: 10, len: 9_990 });
        for i in 0..100 {
            assert_eq!(
                a.allocate(7).map(Extents::into_vec),
                Some(vec![Extent { start: 10 + 7 * i, len: 7 }])
            );
        }
    }
}
