//! Which allocation units are free, in memory and in the database.
//!
//! Two bitmaps. `used` is what the database says after the last transaction that was applied: its
//! words are the values of the freelist's keys. `taken` is what must not be given out: all of
//! `used`, and what was freed but may still be read after a crash, or written by a deferred write.

use std::collections::BTreeSet;
use std::ops::Range;

use bytes::Bytes;

use super::format::freelist_key;

/// Allocation units in one key of the freelist (Ceph's bluestore_freelist_blocks_per_key).
const GROUP_UNITS: u64 = 128;

/// Units by number, a bit each.
#[derive(Debug, Clone)]
struct Bits {
    words: Vec<u64>,
    count: u64,
}

impl Bits {
    fn has(&self, n: u64) -> bool {
        self.words[(n / 64) as usize] >> (n % 64) & 1 == 1
    }

    /// Whether it was not so before.
    fn put(&mut self, n: u64, is: bool) -> bool {
        let (word, bit) = (&mut self.words[(n / 64) as usize], 1 << (n % 64));
        let was = *word & bit != 0;
        match is {
            true => *word |= bit,
            false => *word &= !bit,
        }
        if was != is {
            self.count = if is { self.count + 1 } else { self.count - 1 };
        }
        was != is
    }
}

/// The allocator. Lengths and offsets are bytes, multiples of the unit.
#[derive(Debug)]
pub(super) struct Allocator {
    unit: u64,
    /// Units there are.
    units: u64,
    /// Units at the start that hold no data.
    first: u64,
    used: Bits,
    taken: Bits,
    /// Units of `taken` that BlueFS has: its log says which.
    lent: u64,
    /// Where the search goes on.
    cursor: u64,
}

/// Why units could not be marked: the database contradicts itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contradiction {
    /// Device offset.
    pub(super) offset: u64,
}

impl Allocator {
    /// All free but for `reserved` bytes at the start.
    pub(super) fn new(device_len: u64, unit: u64, reserved: u64) -> Allocator {
        let units = device_len / unit;
        let words = units.div_ceil(GROUP_UNITS) * (GROUP_UNITS / 64);
        let bits = Bits { words: vec![0; words as usize], count: 0 };
        Allocator {
            unit,
            units,
            first: reserved.div_ceil(unit).min(units),
            used: bits.clone(),
            taken: bits,
            lent: 0,
            cursor: 0,
        }
    }

    /// Takes over a value of the freelist.
    pub(super) fn load(&mut self, group: u64, value: &[u8]) -> Option<()> {
        let value: [u8; (GROUP_UNITS / 8) as usize] = value.try_into().ok()?;
        let start = group.checked_mul(GROUP_UNITS)?;
        for n in 0..GROUP_UNITS {
            if value[(n / 8) as usize] >> (n % 8) & 1 == 1 {
                let unit = start.checked_add(n)?;
                if !(self.first..self.units).contains(&unit) {
                    return None;
                }
                // BlueFS's are taken already.
                if !self.taken.put(unit, true) && !self.used.has(unit) {
                    return None;
                }
                self.used.put(unit, true);
            }
        }
        Some(())
    }

    /// Bytes that objects have.
    pub(super) fn used_len(&self) -> u64 {
        self.used.count * self.unit
    }

    /// Bytes that data may have at all.
    pub(super) fn data_len(&self) -> u64 {
        (self.units - self.first) * self.unit
    }

    /// Bytes that BlueFS has.
    pub(super) fn lent_len(&self) -> u64 {
        self.lent * self.unit
    }

    /// Bytes that can be given out now.
    pub(super) fn free_len(&self) -> u64 {
        self.data_len() - self.taken.count * self.unit
    }

    /// Bytes freed that cannot be given out yet.
    pub(super) fn waiting_len(&self) -> u64 {
        let held = self.used.count + self.lent;
        self.taken.count.saturating_sub(held) * self.unit
    }

    /// Takes `len` bytes for BlueFS.
    pub(super) fn lend(&mut self, len: u64) -> Option<Vec<Range<u64>>> {
        let runs = self.allocate(len)?;
        self.lent += len.div_ceil(self.unit);
        Some(runs)
    }

    /// Takes a run that BlueFS's log says it has. `None`: it is no run of whole units, or another
    /// has some of it.
    pub(super) fn lend_at(&mut self, run: &Range<u64>) -> Option<()> {
        let whole = run.start.is_multiple_of(self.unit) && run.end.is_multiple_of(self.unit);
        let units = run.start / self.unit..run.end / self.unit;
        if !whole || units.start < self.first || units.end > self.units {
            return None;
        }
        for n in units {
            if !self.taken.put(n, true) {
                return None;
            }
            self.lent += 1;
        }
        Some(())
    }

    /// Takes back a run that BlueFS had.
    pub(super) fn take_back(&mut self, run: &Range<u64>) {
        for n in run.start / self.unit..run.end / self.unit {
            if !self.used.has(n) && self.taken.put(n, false) {
                self.lent -= 1;
            }
        }
    }

    /// Takes `len` bytes, in as few runs as the first free places give; all or nothing.
    pub(super) fn allocate(&mut self, len: u64) -> Option<Vec<Range<u64>>> {
        let wanted = len.div_ceil(self.unit);
        if wanted > self.units - self.first - self.taken.count {
            return None;
        }
        let mut runs: Vec<Range<u64>> = Vec::new();
        let (mut left, mut at) = (wanted, self.cursor.max(self.first));
        while left > 0 {
            if at >= self.units {
                at = self.first;
            }
            if at % 64 == 0 && self.taken.words[(at / 64) as usize] == u64::MAX {
                at += 64;
                continue;
            }
            if self.taken.put(at, true) {
                match runs.last_mut() {
                    Some(last) if last.end == at => last.end += 1,
                    _ => runs.push(at..at + 1),
                }
                left -= 1;
            }
            at += 1;
        }
        self.cursor = at;
        let bytes = |run: Range<u64>| run.start * self.unit..run.end * self.unit;
        Some(runs.into_iter().map(bytes).collect())
    }

    /// Lets units be given out again.
    pub(super) fn release(&mut self, run: &Range<u64>) {
        for n in run.start / self.unit..run.end / self.unit {
            // What the database has in the meantime given to another stays.
            if !self.used.has(n) {
                self.taken.put(n, false);
            }
        }
    }

    /// Marks what a transaction took and gave up; the freelist's keys that change, with values.
    pub(super) fn apply(
        &mut self,
        took: &[Range<u64>],
        freed: &[Range<u64>],
    ) -> Result<Vec<(Bytes, Bytes)>, Contradiction> {
        let mut groups = BTreeSet::new();
        for (runs, is) in [(took, true), (freed, false)] {
            for run in runs {
                for n in run.start / self.unit..run.end / self.unit {
                    if n >= self.units || !self.used.put(n, is) {
                        return Err(Contradiction { offset: n * self.unit });
                    }
                    groups.insert(n / GROUP_UNITS);
                }
            }
        }
        Ok(groups.into_iter().map(|group| (freelist_key(group), self.value(group))).collect())
    }

    fn value(&self, group: u64) -> Bytes {
        let at = (group * GROUP_UNITS / 64) as usize;
        let words = &self.used.words[at..at + (GROUP_UNITS / 64) as usize];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        bytes.into()
    }

    /// Device offsets of the units that objects have, in order.
    pub(super) fn used_offsets(&self) -> impl Iterator<Item = u64> + '_ {
        let used = (self.first..self.units).filter(|n| self.used.has(*n));
        used.map(|n| n * self.unit)
    }

    /// Those of some units that BlueFS has. Nothing may be waiting to be free.
    pub(super) fn lent_among(&self, offsets: &BTreeSet<u64>) -> Vec<u64> {
        let is_lent = |offset: &&u64| {
            let n = *offset / self.unit;
            self.taken.has(n) && !self.used.has(n)
        };
        offsets.iter().filter(is_lent).copied().collect()
    }

    /// Marks these units as what objects have, and no others; the freelist's keys that change, with
    /// values, and what is free of what was not: to be [released](Self::release) once the keys are durable. None
    /// of them is BlueFS's, and nothing is waiting to be free.
    pub(super) fn rebuild(
        &mut self,
        offsets: &BTreeSet<u64>,
    ) -> (Vec<(Bytes, Bytes)>, Vec<Range<u64>>) {
        let (mut groups, mut freed) = (BTreeSet::new(), Vec::new());
        for n in self.first..self.units {
            let offset = n * self.unit;
            let is = offsets.contains(&offset);
            if self.used.put(n, is) {
                if is {
                    self.taken.put(n, true);
                } else {
                    freed.push(offset..offset + self.unit);
                }
                groups.insert(n / GROUP_UNITS);
            }
        }
        let keys = groups.into_iter();
        (keys.map(|group| (freelist_key(group), self.value(group))).collect(), freed)
    }

    /// Whether objects have the unit at an offset.
    pub(super) fn is_used(&self, offset: u64) -> bool {
        offset / self.unit < self.units && self.used.has(offset / self.unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_is_free_once_released_and_survives_as_bytes() {
        let mut alloc = Allocator::new(64 << 20, 65_536, 65_536);
        let all = alloc.data_len();
        let took = alloc.allocate(10 * 65_536).unwrap();
        assert_eq!(took, vec![65_536..11 * 65_536]);
        let keys = alloc.apply(&took, &[]).unwrap();
        let mut again = Allocator::new(64 << 20, 65_536, 65_536);
        for (key, value) in &keys {
            let group = crate::keyed::keys::number_of(key).unwrap();
            again.load(group, value).unwrap();
        }
        assert_eq!(again.used_len(), 10 * 65_536);
        assert!(alloc.allocate(all).is_none());
        let freed = 131_072..3 * 65_536;
        alloc.apply(&[], std::slice::from_ref(&freed)).unwrap();
        assert_eq!(alloc.waiting_len(), 65_536);
        assert!(alloc.apply(&[], std::slice::from_ref(&freed)).is_err());
        alloc.release(&freed);
        assert_eq!(alloc.free_len(), all - 9 * 65_536);
        let rest = alloc.allocate(all - 9 * 65_536).unwrap();
        // From where it was to the end, then the hole.
        assert_eq!(rest.last(), Some(&freed));
        assert_eq!(alloc.free_len(), 0);
    }

    /// A repair gave what nobody has to others before the database knew that it is free: BlueFS took it, a kill came between, and
    /// the store did not mount any more, as the unit was the database's and, said the freelist, an object's.
    #[test]
    fn what_a_repair_frees_waits_for_the_database() {
        const UNIT: u64 = 65_536;
        let mut alloc = Allocator::new(16 * UNIT, UNIT, UNIT);
        let all = alloc.allocate(alloc.data_len()).unwrap();
        alloc.apply(&all, &[]).unwrap();
        let held: BTreeSet<u64> = (1..16).map(|n| n * UNIT).filter(|at| *at != 5 * UNIT).collect();
        let (keys, freed) = alloc.rebuild(&held);
        let unit = 5 * UNIT..6 * UNIT;
        assert_eq!((keys.len(), &freed), (1, &vec![unit]));
        assert_eq!(alloc.allocate(UNIT), None);
        freed.iter().for_each(|run| alloc.release(run));
        assert_eq!(alloc.allocate(UNIT), Some(freed));
    }
}
