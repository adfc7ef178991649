//! One object in memory: sparse pages, xattrs, omap.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Range;

use bstr::BString;
use bytes::Bytes;

use crate::{OmapPage, Op};

/// Unit in which data takes memory.
pub(super) const PAGE_LEN: u64 = 4096;

#[derive(Debug, Clone, Default)]
pub(super) struct Object {
    pub(super) size: u64,
    /// By page number; bytes behind `size` are zero.
    pages: BTreeMap<u64, Vec<u8>>,
    pub(super) attrs: BTreeMap<BString, Bytes>,
    pub(super) omap: BTreeMap<BString, Bytes>,
    pub(super) omap_header: Bytes,
}

/// The pieces of `offset..offset + len` by page: page number, range in the page.
fn pieces(offset: u64, len: u64) -> impl Iterator<Item = (u64, Range<usize>)> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let (page, from) = (at / PAGE_LEN, at % PAGE_LEN);
        let to = PAGE_LEN.min(from + end - at);
        at += to - from;
        Some((page, from as usize..to as usize))
    })
}

impl Object {
    pub(super) fn apply(&mut self, op: &Op) {
        match op {
            Op::Write { offset, data, .. } => self.write(*offset, data),
            Op::Zero { offset, len, .. } => self.zero(*offset, *len),
            Op::Truncate { size, .. } => {
                if *size < self.size {
                    self.punch(*size, self.size - *size);
                }
                self.size = *size;
            }
            Op::SetAttr { name, value, .. } => {
                self.attrs.insert(name.clone(), value.clone());
            }
            Op::SetAttrs { attrs, .. } => {
                self.attrs.extend(attrs.iter().map(|(k, v)| (k.into(), v.clone())));
            }
            Op::RmAttr { name, .. } => {
                self.attrs.remove(name);
            }
            Op::RmAttrs { .. } => self.attrs.clear(),
            Op::OmapClear { .. } => {
                self.omap.clear();
                self.omap_header = Bytes::new();
            }
            Op::OmapSetKeys { entries, .. } => {
                self.omap.extend(entries.iter().map(|(k, v)| (k.into(), v.clone())));
            }
            Op::OmapRmKeys { keys, .. } => {
                for key in keys {
                    self.omap.remove(key);
                }
            }
            Op::OmapRmKeyRange { first, last, .. } if first < last => {
                let mut rest = self.omap.split_off(first);
                self.omap.append(&mut rest.split_off(last));
            }
            Op::OmapSetHeader { header, .. } => self.omap_header = header.clone(),
            // The others are not about one object's contents.
            _ => {}
        }
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut at = 0;
        for (page, range) in pieces(offset, data.len() as u64) {
            let len = range.len();
            let bytes = self.pages.entry(page).or_insert_with(|| vec![0; PAGE_LEN as usize]);
            bytes[range].copy_from_slice(&data[at..at + len]);
            at += len;
        }
        if !data.is_empty() {
            self.size = self.size.max(offset + data.len() as u64);
        }
    }

    fn zero(&mut self, offset: u64, len: u64) {
        self.punch(offset, len);
        if len > 0 {
            self.size = self.size.max(offset + len);
        }
    }

    fn punch(&mut self, offset: u64, len: u64) {
        let end = offset + len;
        let touched: Vec<u64> =
            self.pages.range(offset / PAGE_LEN..end.div_ceil(PAGE_LEN)).map(|(&p, _)| p).collect();
        for page in touched {
            let (from, to) = (offset.max(page * PAGE_LEN), end.min((page + 1) * PAGE_LEN));
            if to - from == PAGE_LEN {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                bytes[(from % PAGE_LEN) as usize..][..(to - from) as usize].fill(0);
            }
        }
    }

    /// The bytes of the range that lie before the end.
    pub(super) fn read(&self, offset: u64, len: u64) -> Vec<u8> {
        let len = len.min(self.size.saturating_sub(offset));
        let mut data = Vec::with_capacity(len as usize);
        for (page, range) in pieces(offset, len) {
            match self.pages.get(&page) {
                Some(bytes) => data.extend_from_slice(&bytes[range]),
                None => data.resize(data.len() + range.len(), 0),
            }
        }
        data
    }

    pub(super) fn extents(&self, offset: u64, len: u64) -> Vec<Range<u64>> {
        let end = offset.saturating_add(len).min(self.size);
        let mut out: Vec<Range<u64>> = Vec::new();
        if offset >= end {
            return out;
        }
        for &page in self.pages.range(offset / PAGE_LEN..end.div_ceil(PAGE_LEN)).map(|(p, _)| p) {
            let range = offset.max(page * PAGE_LEN)..end.min((page + 1) * PAGE_LEN);
            match out.last_mut() {
                Some(last) if last.end == range.start => last.end = range.end,
                _ => out.push(range),
            }
        }
        out
    }

    /// How many pages a write would add.
    pub(super) fn missing_pages(&self, offset: u64, len: u64) -> u64 {
        pieces(offset, len).filter(|(page, _)| !self.pages.contains_key(page)).count() as u64
    }

    pub(super) fn pages_len(&self) -> u64 {
        self.pages.len() as u64 * PAGE_LEN
    }

    pub(super) fn omap_len(&self) -> u64 {
        let entries: usize = self.omap.iter().map(|(k, v)| k.len() + v.len()).sum();
        (entries + self.omap_header.len()) as u64
    }

    pub(super) fn allocated(&self) -> u64 {
        let attrs: usize = self.attrs.iter().map(|(k, v)| k.len() + v.len()).sum();
        self.pages_len() + self.omap_len() + attrs as u64
    }
}

/// The first part of entries, as [`crate::ObjectStore::omap_range`] asks.
pub(crate) fn omap_page(
    entries: impl Iterator<Item = (impl Borrow<BString>, impl Borrow<Bytes>)>,
    max_entries: usize,
    max_bytes: usize,
) -> OmapPage {
    let mut page = OmapPage::default();
    let mut bytes = 0;
    for (key, value) in entries {
        let (key, value) = (key.borrow(), value.borrow());
        bytes += key.len() + value.len();
        let full = page.entries.len() >= max_entries;
        if full || (bytes > max_bytes && !page.entries.is_empty()) {
            page.more = true;
            break;
        }
        page.entries.push((key.clone(), value.clone()));
    }
    page
}
