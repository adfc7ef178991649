//! Checksums of the pages of a long buffer.
//!
//! A 4 MiB write is checksummed as it arrives. The store wants a checksum of each of its blocks,
//! each replica's frame one of all of it: both are made of the pages', without reading the bytes
//! again. (Ceph's buffers remember checksums of themselves for the same reason: `buffer::raw` in
//! `src/common/buffer.cc`.)

use std::sync::Arc;

use bytes::Bytes;

use crate::crc::{crc32c, crc32c_combine};

/// Bytes of a page.
pub const PAGE: usize = 4096;

/// Takes the checksums of a buffer's pages while it is being filled.
#[derive(Debug, Clone, Default)]
pub struct Summing {
    /// Up to where they are taken.
    at: usize,
    pages: Vec<u32>,
    /// Of all up to `at`.
    whole: u32,
}

impl Summing {
    /// Begins at `start` of a buffer that begins a page; the checksum of all continues from `seed`.
    pub fn new(start: usize, end: usize, seed: u32) -> Summing {
        let pages = Vec::with_capacity((end / PAGE).saturating_sub(start / PAGE));
        Summing { at: start, pages, whole: seed }
    }

    /// The buffer is filled up to `filled`, of `end` bytes it will hold.
    pub fn go_on(&mut self, buf: &[u8], filled: usize, end: usize) {
        while self.at < filled {
            let next = ((self.at / PAGE + 1) * PAGE).min(end);
            if next > filled {
                return;
            }
            let part = &buf[self.at..next];
            if part.len() == PAGE {
                let page = crc32c(0, part);
                self.pages.push(page);
                self.whole = crc32c_combine(self.whole, page, PAGE as u64);
            } else {
                self.whole = crc32c(self.whole, part);
            }
            self.at = next;
        }
    }

    /// The checksum of all.
    pub fn whole(&self) -> u32 {
        self.whole
    }

    /// The checksums of the pages that `bytes`, which is what was filled, holds whole.
    pub fn finish(self, bytes: Bytes) -> PageSums {
        let lead = bytes.as_ptr().align_offset(PAGE);
        PageSums { bytes, lead, pages: self.pages.into() }
    }
}

/// The checksums of the pages that a buffer holds whole.
#[derive(Debug, Clone)]
pub struct PageSums {
    /// Kept, so that its addresses mean nothing else.
    bytes: Bytes,
    /// Bytes before the first whole page.
    lead: usize,
    /// From seed 0.
    pages: Arc<[u32]>,
}

impl PageSums {
    /// The checksum of `part` from `seed`, if it is a part of these bytes: whole pages in it are
    /// not looked at.
    pub fn crc32c(&self, seed: u32, part: &[u8]) -> Option<u32> {
        let start = (part.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        if part.is_empty() || start + part.len() > self.bytes.len() {
            return None;
        }
        let (mut crc, mut rest, mut at) = (seed, part, start);
        while !rest.is_empty() {
            let to_page = self.lead.wrapping_sub(at) % PAGE;
            let page = at.checked_sub(self.lead).map(|from| from / PAGE);
            let len = match page.and_then(|n| self.pages.get(n)) {
                Some(page) if to_page == 0 && rest.len() >= PAGE => {
                    crc = crc32c_combine(crc, *page, PAGE as u64);
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

    /// A buffer of pages, filled in steps from `start` to `end`.
    fn summed(start: usize, end: usize, step: usize) -> (Bytes, Summing) {
        #[repr(align(4096))]
        struct Pages([u8; 8 * PAGE]);
        impl AsRef<[u8]> for Pages {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let mut pages = Box::new(Pages([0; 8 * PAGE]));
        pages.0.iter_mut().enumerate().for_each(|(i, b)| *b = ((i * 37) >> 4) as u8);
        let mut summing = Summing::new(start, end, !0);
        for filled in (start..end).step_by(step).skip(1).chain([end]) {
            summing.go_on(&pages.0, filled, end);
        }
        (Bytes::from_owner(*pages).slice(start..end), summing)
    }

    #[test]
    fn they_are_those_of_the_bytes() {
        for (start, end) in [(0, 8 * PAGE), (14, 5 * PAGE), (4090, 4100), (5, 100), (PAGE, 3 * PAGE + 1)] {
            for step in [1, 100, PAGE, 3 * PAGE + 5, 8 * PAGE] {
                let (bytes, summing) = summed(start, end, step);
                assert_eq!(summing.whole(), crc32c(!0, &bytes), "{start}..{end} by {step}");
                let sums = summing.finish(bytes.clone());
                let cuts = [0, 1, 14, PAGE - start % PAGE, 2 * PAGE, 2 * PAGE - start % PAGE, bytes.len()];
                for from in cuts.into_iter().filter(|c| *c < bytes.len()) {
                    for to in cuts.into_iter().filter(|c| *c > from && *c <= bytes.len()) {
                        let part = &bytes[from..to];
                        assert_eq!(sums.crc32c(7, part), Some(crc32c(7, part)), "{start} {from}..{to}");
                    }
                }
            }
        }
    }

    #[test]
    fn whole_pages_are_not_looked_at_again() {
        let (bytes, mut summing) = summed(14, 4 * PAGE, 900);
        summing.pages.iter_mut().for_each(|page| *page ^= 1);
        let sums = summing.finish(bytes.clone());
        let page = &bytes[PAGE - 14..2 * PAGE - 14];
        assert_eq!(sums.crc32c(0, page), Some(crc32c(0, page) ^ 1));
    }

    #[test]
    fn other_bytes_have_none() {
        let (bytes, summing) = summed(0, 4 * PAGE, PAGE);
        let sums = summing.finish(bytes.slice(..3 * PAGE));
        assert_eq!(sums.crc32c(0, &bytes[2 * PAGE..4 * PAGE]), None);
        assert_eq!(sums.crc32c(0, &vec![0; PAGE]), None);
        assert_eq!(sums.crc32c(0, &[]), None);
    }
}
