//! Where the bytes of an image lie: from ranges of the image to ranges of objects and back
//! (`src/osdc/Striper.cc` at v16.2).
//!
//! ```text
//! object sets of `count` objects; a stripe takes `unit` bytes of each object of its set in turn
//!   set 0:  obj 0: u0 u3 u6   obj 1: u1 u4 u7   obj 2: u2 u5 u8      (count 3)
//! ```
//! Without fancy striping `unit` is the object's size and `count` 1.

use std::ops::Range;

/// How an image is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Objects have 2^order bytes.
    pub(crate) order: u8,
    pub(crate) unit: u64,
    pub(crate) count: u64,
}

/// A range of an object, and where its pieces lie in the range of the image asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectExtent {
    pub(crate) object: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Offset in the range asked for, length; in the order of the object.
    pub(crate) pieces: Vec<(u64, u64)>,
}

impl Layout {
    pub(crate) fn object_size(&self) -> u64 {
        1 << self.order
    }

    fn is_plain(&self) -> bool {
        self.count == 1 || self.unit == self.object_size()
    }

    /// Objects that an image of this size may have: whole sets.
    pub(crate) fn objects(&self, size: u64) -> u64 {
        let set = self.object_size() * self.count;
        if self.count == 1 {
            return size.div_ceil(set);
        }
        let whole = size / set * self.count;
        let rest = size % set;
        whole + rest.div_ceil(self.unit).min(self.count)
    }

    /// Object and offset in it of a byte of the image.
    fn place(&self, at: u64) -> (u64, u64) {
        let block = at / self.unit;
        let stripe = block / self.count;
        let in_stripe = block % self.count;
        let per_object = self.object_size() / self.unit;
        let object = stripe / per_object * self.count + in_stripe;
        (object, stripe % per_object * self.unit + at % self.unit)
    }

    /// The objects of a range, each once, ordered by number.
    pub(crate) fn extents(&self, offset: u64, len: u64) -> Vec<ObjectExtent> {
        let mut extents: Vec<ObjectExtent> = Vec::new();
        let mut done = 0;
        while done < len {
            let at = offset + done;
            let take = (self.unit - at % self.unit).min(len - done);
            let (object, start) = self.place(at);
            match extents.iter_mut().rev().take(self.count as usize).find(|e| e.object == object) {
                Some(e) => {
                    e.len += take;
                    match e.pieces.last_mut() {
                        Some(last) if last.0 + last.1 == done => last.1 += take,
                        _ => e.pieces.push((done, take)),
                    }
                }
                None => extents.push(ObjectExtent {
                    object,
                    offset: start,
                    len: take,
                    pieces: vec![(done, take)],
                }),
            }
            done += take;
        }
        if !self.is_plain() {
            extents.sort_by_key(|e| e.object);
        }
        extents
    }

    /// The ranges of the image that a range of an object holds, in the object's order.
    pub(crate) fn image_ranges(&self, object: u64, within: Range<u64>) -> Vec<Range<u64>> {
        let per_object = self.object_size() / self.unit;
        let (set, in_stripe) = (object / self.count, object % self.count);
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let mut at = within.start;
        while at < within.end {
            let take = (self.unit - at % self.unit).min(within.end - at);
            let stripe = set * per_object + at / self.unit;
            let start = (stripe * self.count + in_stripe) * self.unit + at % self.unit;
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end += take,
                _ => ranges.push(start..start + take),
            }
            at += take;
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every byte of an image lies in one place, and back from there it is the same byte.
    #[test]
    fn there_and_back() {
        for (unit, count) in [(1 << 12, 1), (1 << 10, 3), (1 << 12, 5), (1 << 11, 1)] {
            let layout = Layout { order: 12, unit, count };
            let size = 40_000;
            let mut seen = vec![0u8; size as usize];
            for extent in layout.extents(0, size) {
                assert!(extent.object < layout.objects(size), "{layout:?} {extent:?}");
                let range = extent.offset..extent.offset + extent.len;
                let back = layout.image_ranges(extent.object, range);
                let pieces: Vec<u64> =
                    extent.pieces.iter().flat_map(|(at, len)| *at..at + len).collect();
                let ranges: Vec<u64> = back.into_iter().flatten().collect();
                assert_eq!(pieces, ranges, "{layout:?}");
                pieces.iter().for_each(|at| seen[*at as usize] += 1);
            }
            assert!(seen.iter().all(|n| *n == 1), "{layout:?}");
        }
    }

    #[test]
    fn a_plain_range_is_cut_at_objects() {
        let layout = Layout { order: 12, unit: 4096, count: 1 };
        let extents = layout.extents(4000, 5000);
        let short: Vec<_> = extents.iter().map(|e| (e.object, e.offset, e.len)).collect();
        assert_eq!(short, [(0, 4000, 96), (1, 0, 4096), (2, 0, 808)]);
        assert_eq!(extents[1].pieces, [(96, 4096)]);
        assert_eq!(layout.objects(8193), 3);
    }
}
