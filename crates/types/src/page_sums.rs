//! Checksums of the pages of a buffer.
//!
//! A write's data is checksummed once, as it arrives. The store wants a checksum of each of its
//! blocks, each replica's frame one of all of it: both are made of the pages', without reading the
//! bytes again; and so is the frame of a reply from the checksums that the store has. (Ceph's buffers
//! remember checksums of themselves for the same reason: `buffer::raw` in `src/common/buffer.cc`.)

use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::crc::{crc32c, crc32c_reseed, crc32c_side_by_side};

/// Bytes of a page.
pub const PAGE: usize = 4096;
/// What the checksum of a page starts from: as frames' and stores' do, so that those of one page
/// are this very number.
pub const PAGE_SEED: u32 = u32::MAX;

/// How many pages are checksummed at a time where there are as many.
const SIDE_BY_SIDE: usize = 4;

/// The checksums from [`PAGE_SEED`] of the pages that `bytes` begins with; what is behind the last
/// whole page has none.
pub fn of_pages(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (pages, _) = bytes.as_chunks::<PAGE>();
    let (groups, rest) = pages.as_chunks::<SIDE_BY_SIDE>();
    let by_groups = groups.iter().flat_map(|group| crc32c_side_by_side(PAGE_SEED, group));
    by_groups.chain(rest.iter().map(|page| crc32c(PAGE_SEED, page)))
}

/// A small write's one stands in place.
type Pages = SmallVec<[u32; 4]>;

/// The checksum from `seed` of a page whose checksum is `page`.
fn from_seed(page: u32, seed: u32) -> u32 {
    crc32c_reseed(page, PAGE_SEED, seed, PAGE as u64)
}

/// Takes the checksums of the pages of some bytes while they come.
#[derive(Debug, Clone, Default)]
pub struct Summing {
    /// Place of the first byte in its page.
    offset: usize,
    /// Up to where they are taken.
    at: usize,
    len: usize,
    pages: Pages,
    /// Of all up to `at`.
    whole: u32,
}

impl Summing {
    /// Begins with `len` bytes that are to come, the first of which is at `offset` in its page; the
    /// checksum of all continues from `seed`.
    pub fn new(offset: usize, len: usize, seed: u32) -> Summing {
        let pages = Pages::with_capacity(len / PAGE);
        Summing { offset: offset % PAGE, len, pages, whole: seed, ..Summing::default() }
    }

    /// `bytes` have come, from the first on.
    pub fn go_on(&mut self, bytes: &[u8]) {
        while self.at < bytes.len() {
            let to_page = PAGE - (self.offset + self.at) % PAGE;
            if to_page == PAGE && bytes.len() - self.at >= PAGE {
                for page in of_pages(&bytes[self.at..]) {
                    self.pages.push(page);
                    self.whole = from_seed(page, self.whole);
                    self.at += PAGE;
                }
                continue;
            }
            let next = (self.at + to_page).min(self.len);
            let Some(part) = bytes.get(self.at..next) else { return };
            self.whole = crc32c(self.whole, part);
            self.at = next;
        }
    }

    /// The checksum of all.
    pub fn whole(&self) -> u32 {
        self.whole
    }

    /// The checksums of the pages that `bytes`, which are those that came, hold whole, if any.
    pub fn finish(self, bytes: Bytes) -> Option<PageSums> {
        let lead = (PAGE - self.offset) % PAGE;
        PageSums::new(bytes, lead, self.pages)
    }
}

/// The checksums of the pages that a buffer holds whole. Clones are the same ones.
#[derive(Debug, Clone)]
pub struct PageSums(Arc<Known>);

#[derive(Debug)]
struct Known {
    /// Kept, so that its addresses mean nothing else.
    bytes: Bytes,
    /// Bytes before the first whole page.
    lead: usize,
    /// At least one, from [`PAGE_SEED`].
    pages: Pages,
}

impl PageSums {
    /// Of bytes that begin with a page, whose pages have these checksums from [`PAGE_SEED`];
    /// `None` if there are none.
    pub fn of(bytes: Bytes, pages: impl Iterator<Item = u32>) -> Option<PageSums> {
        PageSums::new(bytes, 0, pages.collect())
    }

    fn new(bytes: Bytes, lead: usize, pages: Pages) -> Option<PageSums> {
        let known = Known { bytes, lead, pages };
        (!known.pages.is_empty()).then(|| PageSums(Arc::new(known)))
    }

    /// Where a part of these bytes begins in them.
    fn start_of(&self, part: &[u8]) -> Option<usize> {
        let bytes = &self.0.bytes;
        let start = (part.as_ptr() as usize).checked_sub(bytes.as_ptr() as usize)?;
        (!part.is_empty() && start + part.len() <= bytes.len()).then_some(start)
    }

    /// Bytes of a part that begins at `start` before its first whole page.
    fn to_page(&self, start: usize) -> usize {
        self.0.lead.wrapping_sub(start) % PAGE
    }

    /// Where in its page a part of these bytes begins.
    pub fn page_offset(&self, part: &[u8]) -> Option<usize> {
        let to_page = self.to_page(self.start_of(part)?);
        Some((PAGE - to_page) % PAGE)
    }

    /// Those of a copy of `part`, a part of these bytes, which is at `at` of `copy`.
    pub fn of_copy(&self, part: &[u8], copy: Bytes, at: usize) -> Option<PageSums> {
        let start = self.start_of(part)?;
        let to_page = self.to_page(start);
        let first = (start + to_page).checked_sub(self.0.lead)? / PAGE;
        let count = part.len().checked_sub(to_page)? / PAGE;
        let pages = self.0.pages.get(first..first + count)?;
        PageSums::new(copy, at + to_page, pages.into())
    }

    /// The checksum of `part` from `seed`, if it is a part of these bytes: whole pages in it are
    /// not looked at.
    pub fn crc32c(&self, seed: u32, part: &[u8]) -> Option<u32> {
        let (mut crc, mut rest, mut at) = (seed, part, self.start_of(part)?);
        while !rest.is_empty() {
            let to_page = self.to_page(at);
            let page = at.checked_sub(self.0.lead).map(|from| from / PAGE);
            let len = match page.and_then(|n| self.0.pages.get(n)) {
                Some(page) if to_page == 0 && rest.len() >= PAGE => {
                    crc = from_seed(*page, crc);
                    PAGE
                }
                _ => {
                    let len = if to_page == 0 { PAGE } else { to_page }.min(rest.len());
                    crc = crc32c(crc, &rest[..len]);
                    len
                }
            };
            rest = &rest[len..];
            at += len;
        }
        Some(crc)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some pages' bytes from `start` to `end`, which come in steps.
    fn summed(start: usize, end: usize, step: usize) -> (Bytes, Summing) {
        let bytes: Bytes = (start..end).map(|i| ((i * 37) >> 4) as u8).collect();
        let mut summing = Summing::new(start, bytes.len(), !0);
        for come in (0..bytes.len()).step_by(step).skip(1).chain([bytes.len()]) {
            summing.go_on(&bytes[..come]);
        }
        (bytes, summing)
    }

    #[test]
    fn they_are_those_of_the_bytes() {
        for (start, end) in
            [(0, 8 * PAGE), (14, 5 * PAGE), (0, PAGE), (9, 2 * PAGE + 9), (PAGE, 3 * PAGE + 1)]
        {
            for step in [1, 100, PAGE, 3 * PAGE + 5, 8 * PAGE] {
                let (bytes, summing) = summed(start, end, step);
                assert_eq!(summing.whole(), crc32c(!0, &bytes), "{start}..{end} by {step}");
                let sums = summing.finish(bytes.clone()).unwrap();
                let cuts =
                    [0, 1, 14, PAGE - start % PAGE, 2 * PAGE, 2 * PAGE - start % PAGE, bytes.len()];
                for from in cuts.into_iter().filter(|c| *c < bytes.len()) {
                    for to in cuts.into_iter().filter(|c| *c > from && *c <= bytes.len()) {
                        let part = &bytes[from..to];
                        assert_eq!(
                            sums.crc32c(7, part),
                            Some(crc32c(7, part)),
                            "{start} {from}..{to}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn copies_have_them_too() {
        let (bytes, summing) = summed(14, 5 * PAGE, PAGE);
        let sums = summing.finish(bytes.clone()).unwrap();
        let page = PAGE - 14;
        for (from, to) in
            [(0, bytes.len()), (page, page + PAGE), (9, page + PAGE), (page + 1, 3 * PAGE + 7)]
        {
            let part = &bytes[from..to];
            for at in [0, 14, PAGE, 3 * PAGE + 5] {
                let copy: Bytes = [&vec![7; at][..], part, b"behind"].concat().into();
                let known = sums.of_copy(part, copy.clone(), at).unwrap();
                assert_eq!(known.crc32c(3, &copy), Some(crc32c(3, &copy)), "{from}..{to} at {at}");
                // Of pages that begin where the part's do.
                let place = known.page_offset(&copy[at..]);
                assert_eq!(place, Some((14 + from) % PAGE), "{from}..{to} at {at}");
            }
        }
        // No page is whole, or the bytes are others.
        assert!(sums.of_copy(&bytes[1..PAGE], bytes.clone(), 0).is_none());
        assert!(sums.of_copy(&[0; PAGE], bytes.clone(), 0).is_none());
        // Nothing is known of what stands pages before what was copied.
        let copy: Bytes = [&vec![7; 3 * PAGE][..], &bytes].concat().into();
        let known = sums.of_copy(&bytes, copy.slice(..), 3 * PAGE);
        assert!(known.is_none_or(|known| known.of_copy(&copy, copy.clone(), 0).is_none()));
    }

    #[test]
    fn where_no_page_is_whole_there_are_none() {
        for (start, end) in [(4090, 4100), (5, 100), (0, PAGE - 1), (1, 2 * PAGE - 1)] {
            let (bytes, summing) = summed(start, end, 77);
            assert_eq!(summing.whole(), crc32c(!0, &bytes), "{start}..{end}");
            assert!(summing.finish(bytes).is_none(), "{start}..{end}");
        }
        assert!(PageSums::of(Bytes::from_static(b"x"), [].into_iter()).is_none());
    }

    #[test]
    fn whole_pages_are_not_looked_at_again() {
        let (bytes, mut summing) = summed(14, 4 * PAGE, 900);
        summing.pages[0] ^= 1;
        let sums = summing.finish(bytes.clone()).unwrap();
        let page = &bytes[PAGE - 14..2 * PAGE - 14];
        assert_eq!(sums.crc32c(PAGE_SEED, page), Some(crc32c(PAGE_SEED, page) ^ 1));
        let known = PageSums::of(bytes.slice(..2 * PAGE), [3, 4].into_iter()).unwrap();
        assert_eq!(known.crc32c(PAGE_SEED, &bytes[..PAGE]), Some(3));
        assert_eq!(known.crc32c(PAGE_SEED, &bytes[PAGE..2 * PAGE]), Some(4));
    }

    #[test]
    fn other_bytes_have_none() {
        let (bytes, summing) = summed(0, 4 * PAGE, PAGE);
        let sums = summing.finish(bytes.slice(..3 * PAGE)).unwrap();
        assert_eq!(sums.crc32c(0, &bytes[2 * PAGE..4 * PAGE]), None);
        assert_eq!(sums.crc32c(0, &vec![0; PAGE]), None);
        assert_eq!(sums.crc32c(0, &[]), None);
    }
}
