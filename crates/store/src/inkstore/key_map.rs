//! Omap keys in order: chunks of entries, and where the last ones were found.
//!
//! A PG's log appends one key behind the last, drops one in front and changes one that it changed a
//! moment ago, with long names that differ in their last letters. So a place is looked for where the
//! last two were before it is searched for, found once and then used for the old value, the value
//! before and the new one.

use std::cell::Cell;
use std::mem;

use bstr::{BStr, BString};

/// Entries of a chunk at most. More would move more bytes when a key goes in between, fewer make
/// the table of chunks longer.
const CHUNK_MAX: usize = 64;

/// Keys and values in the order of the keys.
#[derive(Debug, Clone)]
pub(super) struct KeyMap<V> {
    /// None is empty.
    chunks: Vec<Vec<(BString, V)>>,
    /// Where the last two keys were looked for. Only hints: they may be of no chunk at all.
    recent: Cell<[usize; 2]>,
}

/// Where a key is or would be, until the next change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    chunk: usize,
    at: usize,
    pub(super) found: bool,
}

impl<V> Default for KeyMap<V> {
    fn default() -> Self {
        KeyMap { chunks: Vec::new(), recent: Cell::new([0; 2]) }
    }
}

impl<V> KeyMap<V> {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn clear(&mut self) {
        *self = KeyMap::default();
    }

    /// Whether a key that is there must be in this chunk.
    fn holds(&self, chunk: usize, key: &BStr) -> bool {
        let begins_after = |chunk: usize| self.chunks.get(chunk).is_none_or(|c| c[0].0 > key);
        !begins_after(chunk) && begins_after(chunk + 1)
    }

    fn chunk_of(&self, key: &BStr) -> usize {
        let recent = self.recent.get();
        if let Some(&chunk) = recent.iter().find(|&&chunk| self.holds(chunk, key)) {
            return chunk;
        }
        // Keys before all others go to the first.
        let chunk = self.chunks.partition_point(|c| c[0].0 <= key).saturating_sub(1);
        self.recent.set([chunk, recent[0]]);
        chunk
    }

    pub(super) fn find(&self, key: &BStr) -> Place {
        let chunk = self.chunk_of(key);
        let entries = self.chunks.get(chunk).map_or(&[][..], |c| c);
        // A log's next key goes behind the last, its oldest is the first: then the names in between,
        // each somewhere else in memory, need not be looked at.
        let (at, found) = match (entries.first(), entries.last()) {
            (_, Some((last, _))) if last < key => (entries.len(), false),
            (Some((first, _)), _) if first >= key => (0, first == key),
            _ => match entries.binary_search_by(|(k, _)| BStr::new(k).cmp(key)) {
                Ok(at) => (at, true),
                Err(at) => (at, false),
            },
        };
        Place { chunk, at, found }
    }

    /// The value of the key itself or, if it is not there, of the greatest smaller one.
    pub(super) fn at_or_before(&self, place: Place) -> Option<&V> {
        let Place { chunk, at, found } = place;
        let before = match at.checked_sub(usize::from(!found)) {
            Some(at) => self.chunks.get(chunk)?.get(at),
            None => self.chunks.get(chunk.checked_sub(1)?)?.last(),
        };
        before.map(|(_, value)| value)
    }

    pub(super) fn get(&self, key: &BStr) -> Option<&V> {
        let place = self.find(key);
        place.found.then(|| &self.chunks[place.chunk][place.at].1)
    }

    pub(super) fn contains(&self, key: &BStr) -> bool {
        self.find(key).found
    }

    /// Sets the value of a key whose place was found; the old one.
    pub(super) fn put(&mut self, place: Place, key: &BStr, value: V) -> Option<V> {
        if place.found {
            return Some(mem::replace(&mut self.chunks[place.chunk][place.at].1, value));
        }
        self.insert_at(place, key.to_owned(), value);
        None
    }

    pub(super) fn insert(&mut self, key: BString, value: V) -> Option<V> {
        let place = self.find(BStr::new(&key));
        if place.found {
            return Some(mem::replace(&mut self.chunks[place.chunk][place.at].1, value));
        }
        self.insert_at(place, key, value);
        None
    }

    fn insert_at(&mut self, place: Place, key: BString, value: V) {
        let Place { chunk, at, .. } = place;
        let Some(entries) = self.chunks.get_mut(chunk) else {
            self.chunks.push(vec![(key, value)]);
            return;
        };
        if entries.len() < CHUNK_MAX {
            entries.insert(at, (key, value));
            return;
        }
        // Full: cut where the key goes if that is near the end, since the next one probably goes
        // behind it, and in the middle else.
        let cut = if at > CHUNK_MAX * 3 / 4 { at } else { CHUNK_MAX / 2 };
        let mut behind = entries.split_off(cut);
        if at < CHUNK_MAX {
            let (part, at) = if at <= cut { (entries, at) } else { (&mut behind, at - cut) };
            part.insert(at, (key, value));
        } else {
            behind.push((key, value));
        }
        self.chunks.insert(chunk + 1, behind);
    }

    pub(super) fn remove(&mut self, key: &BStr) -> Option<(BString, V)> {
        let Place { chunk, at, found } = self.find(key);
        if !found {
            return None;
        }
        let removed = self.chunks[chunk].remove(at);
        if self.chunks[chunk].is_empty() {
            self.chunks.remove(chunk);
        }
        Some(removed)
    }

    /// Takes the keys from `first` on and before `last` out.
    pub(super) fn remove_range(&mut self, first: &BStr, last: &BStr) -> Vec<(BString, V)> {
        if first >= last {
            return Vec::new();
        }
        let from = self.find(first);
        let mut begin = from.at;
        let mut removed = Vec::new();
        let mut emptied = 0;
        for entries in self.chunks.iter_mut().skip(from.chunk) {
            // Usually a key or two go: those are nearer than the middle.
            let gone = entries[begin..].iter().take_while(|(key, _)| key < last).count();
            let all = begin + gone == entries.len();
            removed.extend(entries.drain(begin..begin + gone));
            emptied += usize::from(entries.is_empty());
            begin = 0;
            if !all {
                break;
            }
        }
        if emptied > 0 {
            self.chunks.retain(|entries| !entries.is_empty());
        }
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&BString, &V)> {
        self.chunks.iter().flatten().map(|(key, value)| (key, value))
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &BString> {
        self.iter().map(|(key, _)| key)
    }

    /// Entries from a key on, or behind it.
    pub(super) fn from(&self, key: &BStr, after: bool) -> impl Iterator<Item = (&BString, &V)> {
        let Place { chunk, at, found } = self.find(key);
        let skip = at + usize::from(found && after);
        let chunks = self.chunks.get(chunk..).unwrap_or_default();
        chunks.iter().flatten().skip(skip).map(|(key, value)| (key, value))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::memory::Choices;

    use super::*;

    fn compare(map: &KeyMap<u64>, tree: &BTreeMap<BString, u64>) {
        assert!(map.iter().eq(tree.iter()));
        assert!(map.chunks.iter().all(|c| (1..=CHUNK_MAX).contains(&c.len())));
    }

    #[test]
    fn does_what_a_tree_does() {
        let mut choices = Choices::new(7);
        let (mut map, mut tree) = (KeyMap::default(), BTreeMap::new());
        for round in 0..60_000_u64 {
            let key = BString::from(format!("{:04}", choices.below(2000)));
            let key = BStr::new(&key);
            match choices.below(20) {
                0..=9 => {
                    let place = map.find(key);
                    let before = tree.range(..=key.to_owned()).next_back().map(|(_, v)| v);
                    assert_eq!(map.at_or_before(place), before);
                    assert_eq!(map.put(place, key, round), tree.insert(key.to_owned(), round));
                }
                10..=13 => {
                    assert_eq!(map.remove(key).map(|(_, v)| v), tree.remove(key));
                }
                14 => {
                    let other = BString::from(format!("{:04}", choices.below(2000)));
                    if choices.below(4) == 0 && key < BStr::new(&other) {
                        let gone: Vec<_> =
                            tree.range(key.to_owned()..other.clone()).map(|(k, v)| (k.clone(), *v)).collect();
                        for (gone, _) in &gone {
                            tree.remove(gone);
                        }
                        assert_eq!(map.remove_range(key, BStr::new(&other)), gone);
                        compare(&map, &tree);
                    }
                }
                15 => {
                    let after = choices.below(2) == 0;
                    let range = tree.range(key.to_owned()..).filter(|(k, _)| !after || *k != key);
                    assert!(map.from(key, after).eq(range));
                }
                _ => {
                    assert_eq!(map.get(key), tree.get(key));
                    assert_eq!(map.contains(key), tree.contains_key(key));
                }
            }
        }
        compare(&map, &tree);
        map.clear();
        assert!(map.is_empty() && map.remove_range("".into(), "9".into()).is_empty());
    }

    #[test]
    fn a_log_keeps_its_chunks_full() {
        let mut map = KeyMap::default();
        for key in ["_epoch", "_fastinfo", "_info"] {
            map.insert(key.into(), 0);
        }
        for version in 0..5000_u64 {
            map.insert(format!("0000000012.{version:020}").into(), version);
            if version >= 1000 {
                let first = format!("0000000012.{:020}", version - 1000);
                assert!(map.remove(BStr::new(&first)).is_some());
            }
            assert_eq!(map.insert("_fastinfo".into(), version).is_some(), true);
        }
        assert!(map.chunks.len() < 1003 / CHUNK_MAX + 4, "{}", map.chunks.len());
    }
}
