//! The coding matrices: m rows of k coefficients, which make the parity chunks of the data chunks.

use crate::field::{inverse, mul};

/// A matrix by rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub(crate) columns: usize,
    cells: Vec<u8>,
}

impl Matrix {
    fn of(rows: usize, columns: usize, cell: impl Fn(usize, usize) -> u8) -> Matrix {
        let all = (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c)));
        Matrix { columns, cells: all.map(|(r, c)| cell(r, c)).collect() }
    }

    fn identity(n: usize) -> Matrix {
        Matrix::of(n, n, |r, c| u8::from(r == c))
    }

    fn rows(&self) -> usize {
        self.cells.len() / self.columns
    }

    pub(crate) fn row(&self, r: usize) -> &[u8] {
        &self.cells[r * self.columns..][..self.columns]
    }

    fn at(&self, r: usize, c: usize) -> u8 {
        self.cells[r * self.columns + c]
    }

    fn set(&mut self, r: usize, c: usize, value: u8) {
        self.cells[r * self.columns + c] = value;
    }

    fn swap_rows(&mut self, a: usize, b: usize) {
        for c in 0..self.columns {
            self.cells.swap(a * self.columns + c, b * self.columns + c);
        }
    }

    fn scale_row(&mut self, r: usize, by: u8) {
        for c in 0..self.columns {
            self.set(r, c, mul(self.at(r, c), by));
        }
    }

    /// Multiplies a column from row `from` on.
    fn scale_column(&mut self, c: usize, by: u8, from: usize) {
        for r in from..self.rows() {
            self.set(r, c, mul(self.at(r, c), by));
        }
    }

    /// Adds `by` times row `source` to row `to`.
    fn add_row(&mut self, to: usize, source: usize, by: u8) {
        for c in 0..self.columns {
            self.set(to, c, self.at(to, c) ^ mul(self.at(source, c), by));
        }
    }

    /// Adds `by` times column `source` to column `to`.
    fn add_column(&mut self, to: usize, source: usize, by: u8) {
        for r in 0..self.rows() {
            self.set(r, to, self.at(r, to) ^ mul(self.at(r, source), by));
        }
    }

    /// The rows of data chunks (identity) or parity chunks that `chunks` names.
    pub(crate) fn generator_rows(&self, chunks: &[usize]) -> Matrix {
        let k = self.columns;
        Matrix::of(chunks.len(), k, |i, c| match chunks[i].checked_sub(k) {
            None => u8::from(chunks[i] == c),
            Some(parity) => self.at(parity, c),
        })
    }

    pub(crate) fn product(&self, other: &Matrix) -> Matrix {
        let cell = |r: usize, c: usize| {
            (0..self.columns).fold(0, |sum, i| sum ^ mul(self.at(r, i), other.at(i, c)))
        };
        Matrix::of(self.rows(), other.columns, cell)
    }

    /// The inverse of a square matrix, if it has one.
    pub(crate) fn inverted(&self) -> Option<Matrix> {
        let n = self.columns;
        let (mut a, mut inv) = (self.clone(), Matrix::identity(n));
        for i in 0..n {
            let pivot = (i..n).find(|&r| a.at(r, i) != 0)?;
            a.swap_rows(i, pivot);
            inv.swap_rows(i, pivot);
            let by = inverse(a.at(i, i));
            a.scale_row(i, by);
            inv.scale_row(i, by);
            for r in (0..n).filter(|&r| r != i) {
                let by = a.at(r, i);
                a.add_row(r, i, by);
                inv.add_row(r, i, by);
            }
        }
        Some(inv)
    }

    /// jerasure's `reed_sol_van` for w = 8: an extended Vandermonde matrix of k + m rows, brought
    /// by column operations to the identity on top; then columns are scaled so that the first
    /// parity row is all ones, and rows so that the first column is.
    pub(crate) fn jerasure_vandermonde(k: usize, m: usize) -> Matrix {
        let rows = k + m;
        let mut v = Matrix::of(rows, k, |r, c| {
            if r == 0 {
                u8::from(c == 0)
            } else if r == rows - 1 {
                u8::from(c == k - 1)
            } else {
                (0..c).fold(1, |power, _| mul(power, r as u8))
            }
        });
        for i in 1..k {
            let pivot = (i..rows).find(|&r| v.at(r, i) != 0).unwrap_or(i);
            v.swap_rows(i, pivot);
            let diagonal = v.at(i, i);
            if diagonal > 1 {
                v.scale_column(i, inverse(diagonal), 0);
            }
            for c in (0..k).filter(|&c| c != i) {
                let by = v.at(i, c);
                v.add_column(c, i, by);
            }
        }
        for c in 0..k {
            let top = v.at(k, c);
            if top > 1 {
                v.scale_column(c, inverse(top), k);
            }
        }
        for r in k + 1..rows {
            let first = v.at(r, 0);
            if first > 1 {
                v.scale_row(r, inverse(first));
            }
        }
        Matrix::of(m, k, |r, c| v.at(k + r, c))
    }

    /// ISA-L's `gf_gen_rs_matrix`: row r is the powers of 2^r.
    pub(crate) fn isa_vandermonde(k: usize, m: usize) -> Matrix {
        let power = |base: u8, n: usize| (0..n).fold(1, |p, _| mul(p, base));
        Matrix::of(m, k, |r, c| power(power(2, r), c))
    }

    /// ISA-L's `gf_gen_cauchy1_matrix`: 1 / (row + column), rows counted from k.
    pub(crate) fn isa_cauchy(k: usize, m: usize) -> Matrix {
        Matrix::of(m, k, |r, c| inverse((k + r) as u8 ^ c as u8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses() {
        let m = Matrix::jerasure_vandermonde(4, 3);
        let part = m.generator_rows(&[1, 4, 5, 6]);
        let inverse = part.inverted().expect("any k rows are independent");
        assert_eq!(part.product(&inverse), Matrix::identity(4));
        assert_eq!(Matrix::of(2, 2, |_, _| 1).inverted(), None);
    }

    #[test]
    fn parity_of_one_is_a_sum() {
        for k in 2..20 {
            assert!(Matrix::jerasure_vandermonde(k, 1).row(0).iter().all(|&c| c == 1));
        }
    }
}
