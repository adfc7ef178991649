//! A row of omap entries as few bytes: those of a PG's log and what is remembered of its requests,
//! which are written one after the other, much alike, and not looked at again before they go.
//!
//! ```text
//! entry: u8 bytes shared with the key before | varint n | n more bytes of the key | value
//! value: varint 2 len | bytes
//!        varint 2 len + 1 | a bit for each eight bytes | those that differ from the value before
//! ```
//! In memory only. A log entry of 250 bytes takes about 90, a request of 60 about 30.

use std::rc::Rc;

use bstr::{BStr, BString};
use bytes::Bytes;

use super::rec::common_prefix;

/// Bytes compared at once.
const WORD: usize = 8;

/// Appends a value; `before` is the value before it in the row, or empty.
fn pack(value: &[u8], before: &[u8], out: &mut Vec<u8>) {
    if before.len() != value.len() || before.is_empty() {
        put_varint(out, value.len() << 1);
        out.extend_from_slice(value);
        return;
    }
    put_varint(out, value.len() << 1 | 1);
    let bits_at = out.len();
    out.resize(bits_at + bits_len(value.len()), 0);
    let (words, rest) = value.as_chunks::<WORD>();
    let (olds, old_rest) = before.as_chunks::<WORD>();
    for (i, (word, old)) in words.iter().zip(olds).enumerate() {
        if u64::from_ne_bytes(*word) != u64::from_ne_bytes(*old) {
            out[bits_at + i / 8] |= 1 << (i % 8);
            out.extend_from_slice(word);
        }
    }
    if rest != old_rest {
        let i = value.len() / WORD;
        out[bits_at + i / 8] |= 1 << (i % 8);
        out.extend_from_slice(rest);
    }
}

/// Takes a value from the front.
fn unpack(bytes: &mut &[u8], before: Option<&Bytes>) -> Bytes {
    let tagged = take_varint(bytes);
    let len = tagged >> 1;
    let Some(before) = before.filter(|_| tagged & 1 == 1) else {
        return Bytes::copy_from_slice(split(bytes, len));
    };
    let bits = split(bytes, bits_len(len));
    let mut value = before.to_vec();
    for i in changed(bits) {
        let word = i * WORD..len.min((i + 1) * WORD);
        let taken = split(bytes, word.len());
        value[word].copy_from_slice(taken);
    }
    value.into()
}

/// Leaves a value out; its length.
fn pass(bytes: &mut &[u8]) -> usize {
    let tagged = take_varint(bytes);
    let len = tagged >> 1;
    if tagged & 1 == 0 {
        split(bytes, len);
        return len;
    }
    let bits = split(bytes, bits_len(len));
    let words: usize = changed(bits).map(|i| len.min((i + 1) * WORD) - i * WORD).sum();
    split(bytes, words);
    len
}

/// Bytes that hold a bit for each word of a value.
fn bits_len(len: usize) -> usize {
    len.div_ceil(WORD).div_ceil(8)
}

/// Which bits are set.
fn changed(bits: &[u8]) -> impl Iterator<Item = usize> {
    bits.iter().enumerate().flat_map(|(at, &byte)| {
        (0..8).filter(move |bit| byte >> bit & 1 == 1).map(move |bit| at * 8 + bit)
    })
}

fn put_varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn take_varint(bytes: &mut &[u8]) -> usize {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = split(bytes, 1)[0];
        value |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return value;
        }
        shift += 7;
    }
}

/// Takes bytes from the front. There are as many: rows are made and read here alone.
fn split<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    taken
}

/// Entries in the order of their keys. Others can come behind the last one until it is sealed, and go
/// in front; to change one in between, the row is unpacked.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// Of those that are left.
    pub(super) first: BString,
    /// Entries in `bytes`, and how many of the first of them are gone.
    count: usize,
    gone: usize,
    /// Bytes of the keys and values that are left, as they are.
    pub(super) weight: usize,
    /// Shared with copies of the row, until it grows.
    bytes: Rc<Vec<u8>>,
    /// Key and value of the last entry; none: sealed.
    last: Option<Box<(BString, Vec<u8>)>>,
}

impl Row {
    /// A row of one, which can grow.
    pub(super) fn begin(key: &BStr, value: &[u8]) -> Row {
        let mut row = Row {
            first: key.to_owned(),
            count: 0,
            gone: 0,
            weight: 0,
            bytes: Rc::default(),
            last: Some(Box::default()),
        };
        row.push(key, value);
        row
    }

    /// Packs entries, of which there is one at least; sealed.
    pub(super) fn of(entries: &[(BString, Bytes)]) -> Row {
        let ((first, value), rest) = entries.split_first().expect("a chunk has an entry");
        let mut row = Row::begin(first.as_ref(), value);
        for (key, value) in rest {
            row.push(key.as_ref(), value);
        }
        row.seal();
        row
    }

    /// Entries, with those that are gone.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Whether all are gone.
    pub(super) fn is_empty(&self) -> bool {
        self.gone == self.count
    }

    /// The last entry, if others can come behind it.
    pub(super) fn last(&self) -> Option<(&BStr, &[u8])> {
        self.last.as_deref().map(|(key, value)| (key.as_ref(), &value[..]))
    }

    /// Adds an entry behind the last one. On a sealed row nothing happens.
    pub(super) fn push(&mut self, key: &BStr, value: &[u8]) {
        let Some((last_key, last_value)) = self.last.as_deref_mut() else { return };
        let shared = common_prefix(last_key, key).min(u8::MAX.into());
        let bytes = Rc::make_mut(&mut self.bytes);
        bytes.push(shared as u8);
        put_varint(bytes, key.len() - shared);
        bytes.extend_from_slice(&key[shared..]);
        pack(value, last_value, bytes);
        last_key.truncate(shared);
        last_key.extend_from_slice(&key[shared..]);
        last_value.clear();
        last_value.extend_from_slice(value);
        self.count += 1;
        self.weight += key.len() + value.len();
    }

    /// None comes behind the last any more.
    pub(super) fn seal(&mut self) {
        self.last = None;
        Rc::make_mut(&mut self.bytes).shrink_to_fit();
    }

    /// The entries as they were.
    pub(super) fn entries(&self) -> Vec<(BString, Bytes)> {
        let mut bytes = &self.bytes[..];
        let mut entries: Vec<(BString, Bytes)> = Vec::with_capacity(self.count);
        let mut key = Vec::new();
        for _ in 0..self.count {
            take_key(&mut bytes, &mut key);
            let value = unpack(&mut bytes, entries.last().map(|(_, value)| value));
            entries.push((key.as_slice().into(), value));
        }
        entries.drain(..self.gone);
        entries
    }

    /// Takes the first entries out, up to a key. Bytes of keys and values; `None` if there was none.
    pub(super) fn drop_before(&mut self, end: &BStr) -> Option<usize> {
        let mut bytes = &self.bytes[..];
        let (mut key, mut dropped) = (Vec::new(), None);
        for n in 0..self.count {
            take_key(&mut bytes, &mut key);
            if n >= self.gone && BStr::new(&key) >= end {
                self.first = key.into();
                break;
            }
            let len = pass(&mut bytes);
            if n >= self.gone {
                *dropped.get_or_insert(0) += key.len() + len;
                self.gone += 1;
            }
        }
        self.weight -= dropped.unwrap_or(0);
        dropped
    }
}

/// Makes a key of the one before it.
fn take_key(bytes: &mut &[u8], key: &mut Vec<u8>) {
    key.truncate(split(bytes, 1)[0].into());
    let rest = take_varint(bytes);
    key.extend_from_slice(split(bytes, rest));
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;

    use super::*;

    #[test]
    fn entries_come_out_as_they_went_in() {
        let mut choices = Choices::new(5);
        for _ in 0..300 {
            let mut value: Vec<u8> = Vec::new();
            let mut key = vec![b'k'; choices.below(600) as usize];
            let mut entries: Vec<(BString, Bytes)> = Vec::new();
            for n in 0..1 + choices.below(64) {
                if choices.below(8) == 0 {
                    value = (0..choices.below(400)).map(|_| choices.below(256) as u8).collect();
                } else if !value.is_empty() {
                    let at = choices.below(value.len() as u64) as usize;
                    value[at] = value[at].wrapping_add(1);
                }
                if choices.below(8) == 0 {
                    key.push(b'l');
                }
                let mut name = key.clone();
                name.extend_from_slice(format!("{n:05}").as_bytes());
                entries.push((name.into(), value.clone().into()));
            }
            let row = Row::of(&entries);
            assert_eq!(row.entries(), entries);
            assert_eq!(row.first, entries[0].0);
            let weight = |entries: &[(BString, Bytes)]| -> usize {
                entries.iter().map(|(k, v)| k.len() + v.len()).sum()
            };
            assert_eq!(row.weight, weight(&entries));
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            let mut row = Row::begin(BStr::new(&entries[0].0), &entries[0].1);
            let (mut at, mut gone) = (1, 0);
            while gone < entries.len() {
                if at < entries.len() && choices.below(3) > 0 {
                    assert_eq!(row.last().map(|(key, _)| key), Some(BStr::new(&entries[at - 1].0)));
                    row.push(BStr::new(&entries[at].0), &entries[at].1);
                    at += 1;
                } else {
                    let end = entries[choices.below(at as u64) as usize].0.clone();
                    let to = entries[..at].partition_point(|(key, _)| *key < end).max(gone);
                    let to = if at == entries.len() && choices.below(4) == 0 { at } else { to };
                    let end = entries.get(to).map_or_else(|| "~".into(), |(key, _)| key.clone());
                    let dropped = (to > gone).then(|| weight(&entries[gone..to]));
                    assert_eq!(row.drop_before(BStr::new(&end)), dropped);
                    gone = to;
                }
                assert_eq!(row.entries(), entries[gone..at]);
                assert_eq!((row.weight, row.is_empty()), (weight(&entries[gone..at]), gone == at));
                assert!(row.is_empty() || row.first == entries[gone].0);
            }
        }
    }

    /// What the bound on an OSD's memory rests on.
    #[test]
    fn a_log_takes_a_third() {
        let entries: Vec<(BString, Bytes)> = (0..64_u64)
            .map(|n| {
                let mut value = vec![7; 250];
                for at in [8, 80, 120, 200, 240] {
                    value[at..at + 4]
                        .copy_from_slice(&(n as u32).wrapping_mul(2_654_435_761).to_le_bytes());
                }
                (format!("0000000012.{n:020}").into(), value.into())
            })
            .collect();
        let row = Row::of(&entries);
        assert!(row.bytes.len() < entries.len() * (31 + 250) / 3, "{}", row.bytes.len());
    }
}
