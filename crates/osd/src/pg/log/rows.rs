//! Rows of one size in order: added at the end, taken from both.
//!
//! They lie in pieces of one size. The memory of a piece that has gone is the next one's, of any PG.

use std::collections::VecDeque;

/// Rows, `PIECE` of them in a piece. As many as who puts them in keeps.
#[derive(Debug, Clone)]
pub(super) struct Rows<T, const PIECE: usize> {
    /// As many as the rows need, with those that are gone of the first.
    pieces: VecDeque<Box<[T; PIECE]>>,
    /// Rows of the first piece that are gone: less than all.
    gone: usize,
    len: usize,
}

impl<T, const PIECE: usize> Default for Rows<T, PIECE> {
    fn default() -> Self {
        Rows { pieces: VecDeque::new(), gone: 0, len: 0 }
    }
}

impl<T: Copy, const PIECE: usize> Rows<T, PIECE> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn at(&self, at: usize) -> Option<&T> {
        let row = self.gone + at;
        (at < self.len).then(|| &self.pieces[row / PIECE][row % PIECE])
    }

    /// Of rows the first of which are all `before`, how many are.
    pub(super) fn partition_point(&self, before: impl Fn(&T) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low.midpoint(high);
            match self.at(middle).is_some_and(&before) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    pub(super) fn push(&mut self, row: T) {
        let end = self.gone + self.len;
        if end == self.pieces.len() * PIECE {
            self.pieces.push_back(Box::new([row; PIECE]));
        }
        self.pieces[end / PIECE][end % PIECE] = row;
        self.len += 1;
    }

    /// Takes the oldest out.
    pub(super) fn pop(&mut self) -> Option<T> {
        let row = *self.at(0)?;
        self.len -= 1;
        self.gone += 1;
        if self.gone == PIECE || self.len == 0 {
            self.pieces.pop_front();
            self.gone = 0;
        }
        Some(row)
    }

    /// Leaves the oldest `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        if self.len == 0 {
            self.gone = 0;
        }
        self.pieces.truncate((self.gone + self.len).div_ceil(PIECE));
    }

    /// Pieces of memory in use.
    #[cfg(test)]
    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;

    use super::*;

    #[test]
    fn rows_are_what_was_put_in_and_take_whole_pieces_only() {
        const PIECE: usize = 8;
        let mut choices = Choices::new(5);
        let (mut rows, mut model) = (Rows::<u64, PIECE>::default(), VecDeque::new());
        for step in 0..4000 {
            match choices.below(8) {
                0 => assert_eq!(rows.pop(), model.pop_front()),
                1 => {
                    let pops = choices.below(30);
                    (0..pops).for_each(|_| assert_eq!(rows.pop(), model.pop_front()));
                }
                2 => {
                    let len = choices.below(model.len() as u64 + 3) as usize;
                    rows.truncate(len);
                    model.truncate(len);
                }
                n => (0..n * 2).for_each(|at| {
                    rows.push(step * 100 + at);
                    model.push_back(step * 100 + at);
                }),
            }
            assert_eq!(rows.len(), model.len());
            assert!(
                (0..=rows.len())
                    .map(|at| rows.at(at))
                    .eq((0..=model.len()).map(|at| model.get(at)))
            );
            let bound = choices.below((step + 1) * 100);
            assert_eq!(
                rows.partition_point(|row| *row < bound),
                model.partition_point(|row| *row < bound)
            );
            assert!(rows.pieces() * PIECE < rows.len() + 2 * PIECE);
            assert!(rows.pieces() > 0 || rows.len() == 0);
        }
        rows.truncate(0);
        assert_eq!(rows.pieces(), 0);
    }
}
