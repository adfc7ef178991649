//! Blocks that were read, kept within a bound for who reads them next, and where readers that go
//! through an object will read soon.
//!
//! Only reads fill it: a writer pays nothing but a look at whether a block that is given back is
//! kept here, which is then forgotten; so what is kept is what the device holds. The block that goes
//! when there is no room is the next one in turn that nobody has asked for since its last turn: what
//! one pass over a large object brought in does not push out what is asked for again and again.

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;
use foldhash::fast::FixedState;

use super::format::BLOCK_LEN;
use super::onode::BlockPtr;

/// Reads longer than this are not kept: they would push out more than they are worth.
pub(super) const KEPT_READ_MAX: u64 = 128 << 10;
/// How far in front of a sequential reader blocks are fetched at most.
const AHEAD_MAX: u64 = 256 << 10;
/// Less than this is not worth it.
const AHEAD_MIN: u64 = 32 << 10;
/// Sequential readers that are known at a time. What is fetched for them takes half of the cache at
/// most, so that it is still there when they come to it.
const STREAMS: usize = 16;

#[derive(Debug)]
struct Kept {
    ptr: BlockPtr,
    bytes: Bytes,
    /// Asked for since its last turn.
    asked: bool,
}

/// A reader that goes through an object.
#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// The object.
    uid: u64,
    /// Where its last read ended.
    next: u64,
    /// Up to where has been fetched.
    ahead: u64,
}

/// The cache of a store.
#[derive(Debug, Default)]
pub(super) struct Cache {
    /// Blocks kept at most.
    max: usize,
    /// Bound: `max`.
    slots: Vec<Option<Kept>>,
    /// Slots without a block.
    empty: Vec<usize>,
    /// Whose turn it is.
    turn: usize,
    /// Slots by block.
    places: HashMap<u32, usize, FixedState>,
    /// The one that read last comes first.
    streams: [Stream; STREAMS],
    /// Bytes that were found here.
    pub(super) hit: u64,
}

impl Cache {
    /// Keeps at most so many bytes from now on. What was kept last goes first: it lies together in
    /// memory, so that the allocator can give whole pages of it back.
    pub(super) fn set_max(&mut self, bytes: u64) {
        self.max = usize::try_from(bytes / BLOCK_LEN).unwrap_or(usize::MAX);
        if self.slots.len() > self.max {
            for kept in self.slots.drain(self.max..).flatten() {
                self.places.remove(&kept.ptr.block);
            }
            self.empty.retain(|place| *place < self.max);
        }
    }

    /// Bytes kept.
    pub(super) fn len(&self) -> u64 {
        self.places.len() as u64 * BLOCK_LEN
    }

    /// What the device holds at `ptr`, if it is known.
    pub(super) fn find(&mut self, ptr: BlockPtr) -> Option<&Bytes> {
        let place = *self.places.get(&ptr.block)?;
        let kept = self.slots[place].as_mut().filter(|kept| kept.ptr.crc == ptr.crc)?;
        kept.asked = true;
        self.hit += BLOCK_LEN;
        Some(&kept.bytes)
    }

    /// Keeps a block that was read and verified.
    pub(super) fn keep(&mut self, ptr: BlockPtr, bytes: Bytes) {
        if self.max == 0 {
            return;
        }
        let place = match self.places.get(&ptr.block) {
            Some(&place) => place,
            None => self.room(),
        };
        self.places.insert(ptr.block, place);
        self.slots[place] = Some(Kept { ptr, bytes, asked: false });
    }

    /// An empty slot, made so if need be.
    fn room(&mut self) -> usize {
        if let Some(place) = self.empty.pop() {
            return place;
        }
        if self.slots.len() < self.max {
            self.slots.push(None);
            return self.slots.len() - 1;
        }
        loop {
            let place = self.turn % self.slots.len();
            self.turn = place + 1;
            match &mut self.slots[place] {
                Some(kept) if kept.asked => kept.asked = false,
                Some(kept) => {
                    self.places.remove(&kept.ptr.block);
                    return place;
                }
                None => return place,
            }
        }
    }

    /// The block is given back: it will hold something else.
    pub(super) fn forget(&mut self, block: u32) {
        if self.places.is_empty() {
            return;
        }
        if let Some(place) = self.places.remove(&block) {
            self.slots[place] = None;
            self.empty.push(place);
        }
    }

    /// Notes a read of an object of `size` bytes; what to fetch for the one that follows, if this one
    /// follows another.
    pub(super) fn ahead_of(&mut self, uid: u64, read: Range<u64>, size: u64) -> Option<Range<u64>> {
        let blocks = (self.max / (2 * STREAMS)) as u64;
        let distance = (blocks * BLOCK_LEN).min(AHEAD_MAX);
        if distance < AHEAD_MIN || read.end - read.start > distance / 2 {
            return None;
        }
        let known = |s: &Stream| s.uid == uid && s.next == read.start && s.next != 0;
        let found = self.streams.iter().position(known);
        self.streams[..=found.unwrap_or(STREAMS - 1)].rotate_right(1);
        let stream = &mut self.streams[0];
        if found.is_none() {
            *stream = Stream { uid, next: read.end, ahead: 0 };
            return None;
        }
        stream.next = read.end;
        // In long strides, not a block for each read.
        if stream.ahead >= read.end + distance / 2 {
            return None;
        }
        let fetch = stream.ahead.max(read.end)..(read.end + distance).min(size);
        stream.ahead = fetch.end;
        (!fetch.is_empty()).then_some(fetch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ptr(block: u32) -> BlockPtr {
        BlockPtr { block, crc: block ^ 77 }
    }

    fn block(n: u32) -> Bytes {
        vec![n as u8; BLOCK_LEN as usize].into()
    }

    fn cache(blocks: u64) -> Cache {
        let mut cache = Cache::default();
        cache.set_max(blocks * BLOCK_LEN);
        cache
    }

    #[test]
    fn keeps_what_is_asked_for_again_within_its_bound() {
        let mut cache = cache(4);
        cache.keep(ptr(1), block(1));
        for n in 2..100 {
            assert!(cache.find(ptr(1)) == Some(&block(1)), "before {n}");
            cache.keep(ptr(n), block(n));
            assert!(cache.len() <= 4 * BLOCK_LEN);
        }
        assert!(cache.find(ptr(2)).is_none() && cache.find(ptr(99)).is_some());
        cache.forget(1);
        cache.set_max(2 * BLOCK_LEN);
        assert!(cache.len() <= 2 * BLOCK_LEN && cache.len() > 0);
        for n in 100..110 {
            cache.keep(ptr(n), block(n));
            assert!(cache.len() <= 2 * BLOCK_LEN && cache.find(ptr(n)) == Some(&block(n)));
        }
        cache.set_max(0);
        assert!(cache.len() == 0 && cache.find(ptr(1)).is_none());
        cache.keep(ptr(1), block(1));
        assert!(cache.find(ptr(1)).is_none());
    }

    #[test]
    fn forgets_what_is_given_back() {
        let mut cache = cache(2);
        cache.keep(ptr(1), block(1));
        cache.keep(ptr(2), block(2));
        cache.forget(1);
        cache.forget(9);
        assert!(cache.find(ptr(1)).is_none());
        // Something else at the same place.
        let other = BlockPtr { block: 1, crc: 5 };
        cache.keep(other, block(3));
        assert!(cache.find(ptr(1)).is_none());
        assert!(cache.find(other) == Some(&block(3)) && cache.find(ptr(2)) == Some(&block(2)));
        assert_eq!(cache.len(), 2 * BLOCK_LEN);
    }

    #[test]
    fn fetches_ahead_of_readers_that_go_through_an_object() {
        fetches_ahead(4096, AHEAD_MAX);
        // 4 MiB of cache, as where the index is large.
        fetches_ahead(1024, AHEAD_MAX / 2);
        let mut small = cache(100);
        assert_eq!(
            (small.ahead_of(1, 0..4096, 1 << 20), small.ahead_of(1, 4096..8192, 1 << 20)),
            (None, None)
        );
    }

    fn fetches_ahead(blocks: u64, distance: u64) {
        let (mut cache, size) = (cache(blocks), 1 << 20);
        let mut fetched = 0;
        let mut fetches = 0;
        for at in (0..size).step_by(4096) {
            // Others in between, of other objects, at random places.
            assert_eq!(cache.ahead_of(2, at * 7 % size..at * 7 % size + 512, size), None);
            if let Some(range) = cache.ahead_of(1, at..at + 4096, size) {
                assert_eq!(range.start, if fetched == 0 { at + 4096 } else { fetched });
                fetched = range.end;
                fetches += 1;
            }
            assert!(at == 0 || fetched == size || fetched >= at + 4096 + distance / 2);
        }
        assert_eq!(fetched, size);
        assert!(fetches <= 2 * size / distance + 1, "{fetches}");
        // Long reads need no help.
        assert_eq!(cache.ahead_of(3, 0..distance, 1 << 22), None);
        assert_eq!(cache.ahead_of(3, distance..2 * distance, 1 << 22), None);
    }
}
