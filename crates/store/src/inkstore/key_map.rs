//! Omap keys in order: chunks of entries, and where the last ones were found.
//!
//! A PG's log appends one key behind the last, drops one in front and changes one that it changed a
//! moment ago, with long names that differ in their last letters. So a place is looked for where the
//! last two were before it is searched for, found once and then used for the old value, the value
//! before and the new one. What it leaves behind can be packed ([`Row`]) until it goes.

use std::borrow::Cow;
use std::cell::Cell;
use std::mem;

use bstr::{BStr, BString};
use bytes::Bytes;

use super::changed_keys::ChangedKeys;
use super::packed::Row;

/// Entries of a chunk at most. More would move more bytes when a key goes in between, fewer make
/// the table of chunks longer.
const CHUNK_MAX: usize = 64;

/// Adjacent entries, never none.
#[derive(Debug, Clone)]
enum Chunk {
    Open(Vec<(BString, Bytes)>),
    Packed(Row),
}

impl Chunk {
    fn first(&self) -> &BString {
        match self {
            Chunk::Open(entries) => &entries[0].0,
            Chunk::Packed(row) => &row.first,
        }
    }

    /// The entries, to be looked at.
    fn look(&self) -> Cow<'_, [(BString, Bytes)]> {
        match self {
            Chunk::Open(entries) => Cow::Borrowed(entries),
            Chunk::Packed(row) => Cow::Owned(row.entries()),
        }
    }

    /// The entries, to be changed.
    fn open(&mut self) -> &mut Vec<(BString, Bytes)> {
        if let Chunk::Packed(row) = self {
            *self = Chunk::Open(row.entries());
        }
        match self {
            Chunk::Open(entries) => entries,
            Chunk::Packed(_) => unreachable!("just opened"),
        }
    }
}

/// Keys and values in the order of the keys.
#[derive(Debug, Clone, Default)]
pub(super) struct KeyMap {
    /// None is empty.
    chunks: Vec<Chunk>,
    /// Where the last two keys were looked for.
    recent: Cell<[Hint; 2]>,
}

/// Where a key was. It may be of no chunk at all by now.
#[derive(Debug, Clone, Copy, Default)]
struct Hint {
    chunk: u32,
    at: u32,
}

impl Hint {
    fn of(chunk: usize, at: usize) -> Hint {
        Hint { chunk: chunk as u32, at: at as u32 }
    }

    fn place(self) -> (usize, usize) {
        (self.chunk as usize, self.at as usize)
    }
}

/// Where a key is or would be, until the next change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    chunk: usize,
    at: usize,
    pub(super) found: bool,
}

/// The entries of a packed chunk that was looked at last, while nothing changes.
#[derive(Debug, Default)]
pub(super) struct Looked(Option<(usize, Vec<(BString, Bytes)>)>);

/// Where a key is among entries, or would be.
fn seek(entries: &[(BString, Bytes)], key: &BStr) -> Result<usize, usize> {
    // A log's next key goes behind the last, its oldest is the first: then the names in between,
    // each somewhere else in memory, need not be looked at.
    match (entries.first(), entries.last()) {
        (_, Some((last, _))) if last < key => Err(entries.len()),
        (Some((first, _)), _) if first >= key => {
            if first == key {
                Ok(0)
            } else {
                Err(0)
            }
        }
        _ => entries.binary_search_by(|(k, _)| BStr::new(k).cmp(key)),
    }
}

impl KeyMap {
    /// About how large it is: in chunks of at most [`CHUNK_MAX`] keys.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// How many of its chunks have keys in ranges of these.
    pub(super) fn chunks_with(&self, changed: &ChangedKeys) -> usize {
        let (mut count, mut counted) = (0, 0);
        for (first, end) in changed.iter() {
            let until = end.map_or_else(|| self.chunk_of(first), |end| self.chunk_of(end)) + 1;
            let from = self.chunk_of(first).max(counted);
            count += until.saturating_sub(from);
            counted = counted.max(until);
        }
        count
    }

    pub(super) fn clear(&mut self) {
        *self = KeyMap::default();
    }

    /// Whether a key that is there must be in this chunk.
    fn holds(&self, chunk: usize, key: &BStr) -> bool {
        let begins_after = |chunk: usize| self.chunks.get(chunk).is_none_or(|c| c.first() > key);
        !begins_after(chunk) && begins_after(chunk + 1)
    }

    fn chunk_of(&self, key: &BStr) -> usize {
        let recent = self.recent.get();
        let mut chunks = recent.iter().map(|hint| hint.place().0);
        if let Some(chunk) = chunks.find(|&chunk| self.holds(chunk, key)) {
            return chunk;
        }
        // Keys before all others go to the first.
        let chunk = self.chunks.partition_point(|c| c.first() <= key).saturating_sub(1);
        self.recent.set([Hint::of(chunk, 0), recent[0]]);
        chunk
    }

    /// The place of a key that is where it was the last time.
    fn found_again(&self, key: &BStr) -> Option<Place> {
        let is_there = |&(chunk, at): &(usize, usize)| match self.chunks.get(chunk) {
            Some(Chunk::Open(entries)) => entries.get(at).is_some_and(|(k, _)| k == key),
            _ => false,
        };
        let (chunk, at) = self.recent.get().into_iter().map(Hint::place).find(is_there)?;
        Some(Place { chunk, at, found: true })
    }

    /// The place of a key that is to be changed.
    pub(super) fn find(&mut self, key: &BStr) -> Place {
        if let Some(place) = self.found_again(key) {
            return place;
        }
        let chunk = self.chunk_of(key);
        if let Some(Chunk::Packed(row)) = self.chunks.get(chunk)
            && row.last().is_some_and(|(last, _)| last < key)
        {
            return Place { chunk, at: row.len(), found: false };
        }
        let entries = self.chunks.get_mut(chunk).map_or(&[][..], |c| &c.open()[..]);
        let (at, found) = match seek(entries, key) {
            Ok(at) => (at, true),
            Err(at) => (at, false),
        };
        let mut hints = self.recent.get_mut().iter_mut();
        if let Some(hint) = hints.find(|hint| hint.place().0 == chunk) {
            *hint = Hint::of(chunk, at);
        }
        Place { chunk, at, found }
    }

    /// The key itself and its value or, if it is not there, those of the greatest smaller one.
    pub(super) fn at_or_before(&self, place: Place) -> Option<(&BStr, &[u8])> {
        let Place { chunk, at, found } = place;
        match self.chunks.get(chunk)? {
            // Only a key before all others is before all of its chunk, and `find` has opened that.
            Chunk::Open(entries) => {
                let (key, value) = entries.get(at.checked_sub(usize::from(!found))?)?;
                Some((key.as_ref(), value))
            }
            Chunk::Packed(row) => row.last(),
        }
    }

    pub(super) fn get(&self, key: &BStr) -> Option<Cow<'_, Bytes>> {
        match self.chunks.get(self.chunk_of(key))? {
            Chunk::Open(entries) => seek(entries, key).ok().map(|at| Cow::Borrowed(&entries[at].1)),
            Chunk::Packed(row) => {
                let mut entries = row.entries();
                seek(&entries, key).ok().map(|at| Cow::Owned(entries.swap_remove(at).1))
            }
        }
    }

    /// As `get`, for a row of keys in order.
    pub(super) fn get_next<'a>(&'a self, key: &BStr, looked: &'a mut Looked) -> Option<&'a Bytes> {
        let chunk = self.chunk_of(key);
        let entries = match self.chunks.get(chunk)? {
            Chunk::Open(entries) => entries,
            Chunk::Packed(row) => {
                if looked.0.as_ref().is_none_or(|(of, _)| *of != chunk) {
                    looked.0 = Some((chunk, row.entries()));
                }
                &looked.0.as_ref()?.1
            }
        };
        seek(entries, key).ok().map(|at| &entries[at].1)
    }

    pub(super) fn contains(&self, key: &BStr) -> bool {
        self.get(key).is_some()
    }

    /// Sets the value of a key whose place was found; the length of the old one. `packs`: entries
    /// that a row of new ones has left behind are packed, and new ones as they come.
    pub(super) fn put(
        &mut self,
        place: Place,
        key: &BStr,
        value: &[u8],
        packs: bool,
    ) -> Option<usize> {
        let Place { chunk, at, found } = place;
        if !found {
            self.insert_at(place, key, value, packs);
            return None;
        }
        let place = &mut self.chunks[chunk].open()[at].1;
        let old = mem::take(place);
        let old_len = old.len();
        // Mostly as long as the new one, and nobody else's.
        *place = match old.try_into_mut() {
            Ok(mut old) if old_len == value.len() => {
                old.copy_from_slice(value);
                old.freeze()
            }
            _ => Bytes::copy_from_slice(value),
        };
        Some(old_len)
    }

    pub(super) fn insert(&mut self, key: &BStr, value: &[u8], packs: bool) -> Option<usize> {
        let place = self.find(key);
        self.put(place, key, value, packs)
    }

    /// Adds a key at the place that was found for it.
    fn insert_at(&mut self, place: Place, key: &BStr, value: &[u8], packs: bool) {
        let Place { chunk, at, .. } = place;
        let new = |key: &BStr| (key.to_owned(), Bytes::copy_from_slice(value));
        let entries = match self.chunks.get_mut(chunk) {
            None => return self.chunks.push(Chunk::Open(vec![new(key)])),
            // Behind its last, or `find` had opened it.
            Some(Chunk::Packed(row)) => {
                if row.len() < CHUNK_MAX {
                    row.push(key, value);
                } else {
                    row.seal();
                    self.chunks.insert(chunk + 1, Chunk::Packed(Row::begin(key, value)));
                }
                return;
            }
            Some(Chunk::Open(entries)) => entries,
        };
        if entries.len() < CHUNK_MAX {
            entries.insert(at, new(key));
            return;
        }
        if packs && at == CHUNK_MAX {
            self.chunks[chunk] = Chunk::Packed(Row::of(entries));
            self.chunks.insert(chunk + 1, Chunk::Packed(Row::begin(key, value)));
            return;
        }
        // Full: cut where the key goes if that is near the end, since the next one probably goes
        // behind it, and in the middle else.
        let cut = if at > CHUNK_MAX * 3 / 4 { at } else { CHUNK_MAX / 2 };
        let mut behind = entries.split_off(cut);
        let (part, at) = match at <= cut && at < CHUNK_MAX {
            true => (entries, at),
            false => (&mut behind, at - cut),
        };
        part.insert(at, new(key));
        self.chunks.insert(chunk + 1, Chunk::Open(behind));
    }

    pub(super) fn remove(&mut self, key: &BStr) -> Option<(BString, Bytes)> {
        let Place { chunk, at, found } = self.find(key);
        if !found {
            return None;
        }
        let entries = self.chunks[chunk].open();
        let removed = entries.remove(at);
        if entries.is_empty() {
            self.chunks.remove(chunk);
        }
        Some(removed)
    }

    /// Takes the keys from `first` on and before `last` out. The bytes of keys and values; `None`
    /// if there was none.
    pub(super) fn remove_range(&mut self, first: &BStr, last: &BStr) -> Option<usize> {
        if first >= last || self.chunks.is_empty() {
            return None;
        }
        let mut removed = None;
        let mut note = |weight: usize| *removed.get_or_insert(0) += weight;
        let from = self.chunk_of(first);
        let mut emptied = from..from;
        for at in from..self.chunks.len() {
            if self.chunks[at].first() >= last {
                break;
            }
            let whole = self.chunks[at].first() >= first
                && self.chunks.get(at + 1).is_some_and(|next| next.first() <= last);
            if let (true, Chunk::Packed(row)) = (whole, &self.chunks[at]) {
                note(row.weight);
                emptied.end = at + 1;
                continue;
            }
            if let Chunk::Packed(row) = &mut self.chunks[at]
                && row.first >= first
            {
                row.drop_before(last).into_iter().for_each(&mut note);
                if !row.is_empty() {
                    break;
                }
                emptied.end = at + 1;
                continue;
            }
            let entries = self.chunks[at].open();
            // Usually a key or two go: those are nearer than the middle.
            let begin = match at == from {
                true => seek(entries, first).unwrap_or_else(|at| at),
                false => 0,
            };
            let gone = entries[begin..].iter().take_while(|(key, _)| key < last).count();
            let gone = entries.drain(begin..begin + gone);
            gone.for_each(|(key, value)| note(key.len() + value.len()));
            match entries.is_empty() {
                true => emptied.end = at + 1,
                // Of the first, others stay in front.
                false if at == from => emptied = at + 1..at + 1,
                false => break,
            }
        }
        self.chunks.drain(emptied);
        removed
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Cow<'_, BString>, Cow<'_, Bytes>)> {
        self.chunks.iter().flat_map(|chunk| entries_of(chunk, 0))
    }

    /// Entries from a key on, or behind it.
    pub(super) fn from(
        &self,
        key: &BStr,
        after: bool,
    ) -> impl Iterator<Item = (Cow<'_, BString>, Cow<'_, Bytes>)> {
        let chunk = self.chunk_of(key);
        let skip = self.chunks.get(chunk).map_or(0, |chunk| match seek(&chunk.look(), key) {
            Ok(at) => at + usize::from(after),
            Err(at) => at,
        });
        let chunks = self.chunks.get(chunk..).unwrap_or_default();
        chunks
            .iter()
            .enumerate()
            .flat_map(move |(n, chunk)| entries_of(chunk, if n == 0 { skip } else { 0 }))
    }
}

type Entries<'a> = Box<dyn Iterator<Item = (Cow<'a, BString>, Cow<'a, Bytes>)> + 'a>;

/// The entries of a chunk but for the first ones.
fn entries_of(chunk: &Chunk, skip: usize) -> Entries<'_> {
    match chunk {
        Chunk::Open(entries) => {
            let rest = entries.iter().skip(skip);
            Box::new(rest.map(|(key, value)| (Cow::Borrowed(key), Cow::Borrowed(value))))
        }
        Chunk::Packed(row) => {
            let rest = row.entries().into_iter().skip(skip);
            Box::new(rest.map(|(key, value)| (Cow::Owned(key), Cow::Owned(value))))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use device::memory::Choices;

    use super::*;

    fn value(round: u64) -> Bytes {
        format!("what was put in in round {round:06}").into()
    }

    fn compare(map: &KeyMap, tree: &BTreeMap<BString, Bytes>) {
        let found = map.iter().map(|(key, value)| (key.into_owned(), value.into_owned()));
        assert!(found.eq(tree.iter().map(|(key, value)| (key.clone(), value.clone()))));
        let mut looked = Looked::default();
        for (key, value) in tree {
            assert_eq!(map.get_next(BStr::new(key), &mut looked), Some(value));
        }
        assert!(map.chunks.iter().all(|c| (1..=CHUNK_MAX).contains(&c.look().len())));
    }

    fn packed(map: &KeyMap) -> usize {
        map.chunks.iter().filter(|chunk| matches!(chunk, Chunk::Packed(_))).count()
    }

    /// `packs`: now and then keys are put in one behind the other.
    fn lives(seed: u64, packs: bool) {
        let mut choices = Choices::new(seed);
        let (mut map, mut tree) = (KeyMap::default(), BTreeMap::<BString, Bytes>::new());
        let (mut most_packed, mut number) = (0, 0);
        for round in 0..40_000_u64 {
            // Now and then one that was looked for a moment ago.
            if choices.below(3) > 0 {
                number = choices.below(2000);
            }
            let key = BString::from(format!("{number:04}"));
            let key = BStr::new(&key);
            match choices.below(20) {
                0..=9 => {
                    let place = map.find(key);
                    let before = tree.range(..=key.to_owned()).next_back();
                    let before = before.map(|(key, value)| (BStr::new(&**key), &value[..]));
                    assert_eq!(map.at_or_before(place), before);
                    let old = map.put(place, key, &value(round), packs);
                    assert_eq!(old, tree.insert(key.to_owned(), value(round)).map(|v| v.len()));
                }
                10..=13 => {
                    assert_eq!(map.remove(key).map(|(_, v)| v), tree.remove(key));
                }
                14 => {
                    let other = BString::from(format!("{:04}", choices.below(2000)));
                    if choices.below(4) == 0 && key < BStr::new(&other) {
                        let gone: Vec<_> = tree
                            .range(key.to_owned()..other.clone())
                            .map(|(key, value)| (key.clone(), value.len()))
                            .collect();
                        for (gone, _) in &gone {
                            tree.remove(gone);
                        }
                        let weight = gone.iter().map(|(key, len)| key.len() + len).sum();
                        let removed = (!gone.is_empty()).then_some(weight);
                        assert_eq!(map.remove_range(key, BStr::new(&other)), removed);
                        compare(&map, &tree);
                    }
                }
                15 => {
                    let after = choices.below(2) == 0;
                    let range = tree.range(key.to_owned()..).filter(|(k, _)| !after || *k != key);
                    let found = map
                        .from(key, after)
                        .map(|(key, value)| (key.into_owned(), value.into_owned()));
                    assert!(found.eq(range.map(|(key, value)| (key.clone(), value.clone()))));
                }
                16 if packs && choices.below(40) == 0 => {
                    for n in 0..300 {
                        let next = BString::from(format!("{key}{n:03}"));
                        let old = map.insert(BStr::new(&next), &value(round + n), true);
                        assert_eq!(old, tree.insert(next, value(round + n)).map(|v| v.len()));
                    }
                    most_packed = most_packed.max(packed(&map));
                }
                _ => {
                    assert_eq!(map.get(key).as_deref(), tree.get(key));
                    assert_eq!(map.contains(key), tree.contains_key(key));
                }
            }
        }
        compare(&map, &tree);
        assert_eq!(most_packed > 3, packs);
        map.clear();
        assert!(map.chunks() == 0 && map.remove_range("".into(), "9".into()).is_none());
    }

    #[test]
    fn does_what_a_tree_does() {
        lives(7, false);
        lives(8, true);
    }

    /// One that is replaced by one as long is overwritten where it is, unless somebody else has it.
    #[test]
    fn a_value_that_was_given_out_stays() {
        let mut map = KeyMap::default();
        map.insert("k".into(), b"before", false);
        let given = map.get("k".into()).unwrap().into_owned();
        assert_eq!(map.insert("k".into(), b"after!", false), Some(6));
        assert_eq!(
            (&given[..], &map.get("k".into()).unwrap()[..]),
            (&b"before"[..], &b"after!"[..])
        );
        drop(given);
        assert_eq!(map.insert("k".into(), b"longer!", false), Some(6));
        assert_eq!(&map.get("k".into()).unwrap()[..], b"longer!");
    }

    /// A PG's log took 400 bytes an entry and 230 a remembered request, most of an OSD's memory.
    #[test]
    fn a_log_keeps_its_chunks_full_and_packed() {
        let mut map = KeyMap::default();
        for key in ["_epoch", "_fastinfo", "_info"] {
            map.insert(key.into(), &value(0), true);
        }
        for version in 0..5000_u64 {
            map.insert(BStr::new(&format!("0000000012.{version:020}")), &value(version), true);
            if version >= 1000 {
                let first = format!("0000000012.{:020}", version - 1000);
                assert!(map.remove(BStr::new(&first)).is_some());
            }
            assert!(map.insert("_fastinfo".into(), &value(version), true).is_some());
        }
        assert!(map.chunks.len() < 1003 / CHUNK_MAX + 4, "{}", map.chunks.len());
        assert!(packed(&map) + 4 >= map.chunks.len(), "{}", packed(&map));
    }
}
