//! Bytes of an object by offset: what a write puts where, later pieces over earlier ones.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Pieces that do not overlap, by offset.
#[derive(Debug, Clone, Default)]
pub(super) struct Extents {
    pieces: BTreeMap<u64, Bytes>,
}

impl Extents {
    /// Ranges, in order: (offset, length). Neighbours may touch.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.pieces.iter().map(|(&at, data)| (at, data.len() as u64))
    }

    /// Pieces in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Bytes)> + '_ {
        self.pieces.iter().map(|(&at, data)| (at, data))
    }

    /// Puts bytes, over what was there.
    pub(super) fn insert(&mut self, offset: u64, data: Bytes) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        self.cut(offset, end);
        self.pieces.insert(offset, data);
    }

    /// Puts zeros where there is nothing yet.
    pub(super) fn fill(&mut self, offset: u64, end: u64) {
        let mut at = offset;
        let mut gaps = Vec::new();
        let before =
            self.pieces.range(..offset).next_back().map(|(&at, data)| at + data.len() as u64);
        at = at.max(before.unwrap_or(0));
        for (&start, data) in self.pieces.range(offset..end) {
            if start > at {
                gaps.push((at, start));
            }
            at = at.max(start + data.len() as u64);
        }
        if at < end {
            gaps.push((at, end));
        }
        for (start, end) in gaps {
            self.pieces.insert(start, zeros(end - start));
        }
    }

    /// Takes away everything from `offset` on.
    pub(super) fn truncate(&mut self, offset: u64) {
        self.cut(offset, u64::MAX);
    }

    /// Takes `start..end` away.
    fn cut(&mut self, start: u64, end: u64) {
        let from = self.pieces.range(..start).next_back().map_or(start, |(&at, _)| at);
        let touched: Vec<u64> = self.pieces.range(from..end).map(|(&at, _)| at).collect();
        for at in touched {
            let Some(data) = self.pieces.remove(&at) else { continue };
            let last = at + data.len() as u64;
            if at < start {
                let keep = (start - at).min(data.len() as u64) as usize;
                self.pieces.insert(at, data.slice(..keep));
            }
            if last > end {
                self.pieces.insert(end, data.slice((end - at) as usize..));
            }
        }
    }

    /// What lies in `start..end`, touching pieces made one: (offset, bytes).
    pub(super) fn joined(&self, start: u64, end: u64) -> Vec<(u64, Bytes)> {
        let mut runs: Vec<(u64, Vec<Bytes>, u64)> = Vec::new();
        for (&at, data) in &self.pieces {
            let last = at + data.len() as u64;
            if last <= start || at >= end {
                continue;
            }
            let (from, to) = (at.max(start), last.min(end));
            let part = data.slice((from - at) as usize..(to - at) as usize);
            match runs.last_mut() {
                Some((_, parts, run_end)) if *run_end == from => {
                    parts.push(part);
                    *run_end = to;
                }
                _ => runs.push((from, vec![part], to)),
            }
        }
        runs.into_iter()
            .map(|(at, mut parts, _)| match parts.len() {
                1 => (at, parts.remove(0)),
                _ => (at, Bytes::from(parts.concat())),
            })
            .collect()
    }
}

/// So many zeros.
pub(super) fn zeros(len: u64) -> Bytes {
    Bytes::from(vec![0; usize::try_from(len).unwrap_or(usize::MAX)])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(e: &Extents) -> Vec<(u64, Vec<u8>)> {
        e.joined(0, u64::MAX).into_iter().map(|(at, b)| (at, b.to_vec())).collect()
    }

    #[test]
    fn later_pieces_lie_over_earlier_ones() {
        let mut e = Extents::default();
        e.insert(10, Bytes::from_static(b"aaaaaaaaaa"));
        e.insert(12, Bytes::from_static(b"bb"));
        assert_eq!(all(&e), [(10, b"aabbaaaaaa".to_vec())]);
        e.insert(5, Bytes::from_static(b"cccccc"));
        assert_eq!(all(&e), [(5, b"ccccccabbaaaaaa".to_vec())]);
        e.truncate(13);
        assert_eq!(all(&e), [(5, b"ccccccab".to_vec())]);
        e.insert(20, Bytes::from_static(b"d"));
        e.fill(0, 22);
        assert_eq!(all(&e), [(0, b"\0\0\0\0\0ccccccab\0\0\0\0\0\0\0d\0".to_vec())]);
        assert_eq!(e.joined(6, 12), [(6, Bytes::from_static(b"cccccca").slice(1..))]);
    }
}
