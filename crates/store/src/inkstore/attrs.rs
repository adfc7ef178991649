//! An object's xattrs, all of them in one piece of memory.
//!
//! Most objects have two or three, which each write needs and new ones set: anything else, a tree or a table of
//! names and values, would take allocations of its own and more lines of the processor's caches.

use std::ops::Range;

use types::ahead::fetch;

/// Names and values, in the order of the names. A value of another length, and a new name, copy all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Attrs {
    /// Of each the lengths of name and value (4 bytes, little endian), name, value. Bound: what clients set
    /// (`osd_max_attr_size`, `osd_max_attr_name_len`).
    row: Box<[u8]>,
}

/// `_` and `snapset` of an object with an ordinary name.
const FETCHED: usize = 512;

/// The bytes in front of a name.
const LENGTHS: usize = 8;

/// Where one begins, and where its name and value end.
#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    name_end: usize,
    end: usize,
}

impl Attrs {
    /// What begins at a place; `None` at the end.
    fn at(&self, start: usize) -> Option<Place> {
        let (lengths, _) = self.row.get(start..)?.split_first_chunk::<LENGTHS>()?;
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| lengths[at + i])) as usize;
        let name_end = start + LENGTHS + number(0);
        Some(Place { start, name_end, end: name_end + number(4) })
    }

    fn name(&self, place: Place) -> &[u8] {
        &self.row[place.start + LENGTHS..place.name_end]
    }

    fn places(&self) -> impl Iterator<Item = Place> {
        std::iter::successors(self.at(0), |place| self.at(place.end))
    }

    /// Where a name is or else would be.
    fn find(&self, name: &[u8]) -> Result<Place, usize> {
        let mut end = 0;
        for place in self.places() {
            match self.name(place).cmp(name) {
                std::cmp::Ordering::Less => end = place.end,
                std::cmp::Ordering::Equal => return Ok(place),
                std::cmp::Ordering::Greater => break,
            }
        }
        Err(end)
    }

    /// Asks for them before they are needed, for what most objects have.
    pub(super) fn fetch(&self) {
        fetch(&self.row[..self.row.len().min(FETCHED)]);
    }

    pub(super) fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let place = self.find(name).ok()?;
        Some(&self.row[place.name_end..place.end])
    }

    /// Sets a value; the length of the one before.
    pub(super) fn set(&mut self, name: &[u8], value: &[u8]) -> Option<usize> {
        match self.find(name) {
            Ok(Place { start, name_end, end }) => {
                let old_len = end - name_end;
                if old_len == value.len() {
                    self.row[name_end..end].copy_from_slice(value);
                } else {
                    let lengths = start + LENGTHS / 2..start + LENGTHS;
                    self.row[lengths].copy_from_slice(&(value.len() as u32).to_le_bytes());
                    self.replace(name_end..end, &[value]);
                }
                Some(old_len)
            }
            Err(at) => {
                let lengths = [name, value].map(|text| (text.len() as u32).to_le_bytes());
                self.replace(at..at, &[lengths.as_flattened(), name, value]);
                None
            }
        }
    }

    /// Puts these bytes where others were.
    fn replace(&mut self, range: Range<usize>, with: &[&[u8]]) {
        let (before, behind) = (&self.row[..range.start], &self.row[range.end..]);
        let added: usize = with.iter().map(|part| part.len()).sum();
        let mut row = Vec::with_capacity(before.len() + added + behind.len());
        row.extend_from_slice(before);
        with.iter().for_each(|part| row.extend_from_slice(part));
        row.extend_from_slice(behind);
        self.row = row.into_boxed_slice();
    }

    /// Removes one; the length of its value.
    pub(super) fn remove(&mut self, name: &[u8]) -> Option<usize> {
        let Place { start, name_end, end } = self.find(name).ok()?;
        self.replace(start..end, &[]);
        Some(end - name_end)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.places().map(|place| (self.name(place), &self.row[place.name_end..place.end]))
    }

    pub(super) fn len(&self) -> usize {
        self.places().count()
    }

    /// Bytes of names and values.
    pub(super) fn cost(&self) -> usize {
        self.row.len() - self.len() * LENGTHS
    }

    pub(super) fn clear(&mut self) {
        *self = Attrs::default();
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::memory::Choices;

    use super::*;

    #[test]
    fn holds_what_a_tree_holds() {
        let mut choices = Choices::new(6);
        for most in [1, 3, 40] {
            let (mut attrs, mut tree) = (Attrs::default(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
            for step in 0..2000_u32 {
                let name = choices.below(most);
                let name = vec![b'a' + (name % 26) as u8; (name % 5) as usize];
                match choices.below(8) {
                    0..3 => {
                        let gone = tree.remove(&name).map(|value| value.len());
                        assert_eq!(attrs.remove(&name), gone);
                    }
                    _ => {
                        // As often as not of the length that the one before has.
                        let value = vec![step as u8; choices.below(3) as usize * 20];
                        let old = tree.insert(name.clone(), value.clone());
                        assert_eq!(attrs.set(&name, &value), old.map(|old| old.len()));
                    }
                }
                let expected = tree.iter().map(|(name, value)| (&name[..], &value[..]));
                assert!(attrs.iter().eq(expected.clone()));
                assert_eq!(attrs.get(&name), tree.get(&name).map(|value| &value[..]));
                assert_eq!(attrs.len(), tree.len());
                assert_eq!(attrs.cost(), expected.map(|(n, v)| n.len() + v.len()).sum::<usize>());
            }
            attrs.clear();
            assert_eq!((attrs.len(), attrs.get(b"")), (0, None));
        }
    }
}
