//! The coding matrices: m rows of k coefficients, which make the parity chunks of the data chunks.

use crate::field::Field;

/// A matrix by rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Matrix {
    pub(crate) field: Field,
    pub(crate) columns: usize,
    cells: Vec<u32>,
}

impl Matrix {
    fn of(field: Field, rows: usize, columns: usize, cell: impl Fn(usize, usize) -> u32) -> Matrix {
        let all = (0..rows).flat_map(|r| (0..columns).map(move |c| (r, c)));
        Matrix { field, columns, cells: all.map(|(r, c)| cell(r, c)).collect() }
    }

    fn identity(field: Field, n: usize) -> Matrix {
        Matrix::of(field, n, n, |r, c| u32::from(r == c))
    }

    pub(crate) fn rows(&self) -> usize {
        self.cells.len() / self.columns
    }

    pub(crate) fn row(&self, r: usize) -> &[u32] {
        &self.cells[r * self.columns..][..self.columns]
    }

    pub(crate) fn at(&self, r: usize, c: usize) -> u32 {
        self.cells[r * self.columns + c]
    }

    fn set(&mut self, r: usize, c: usize, value: u32) {
        self.cells[r * self.columns + c] = value;
    }

    fn swap_rows(&mut self, a: usize, b: usize) {
        for c in 0..self.columns {
            self.cells.swap(a * self.columns + c, b * self.columns + c);
        }
    }

    fn scale_row(&mut self, r: usize, by: u32) {
        for c in 0..self.columns {
            self.set(r, c, self.field.mul(self.at(r, c), by));
        }
    }

    /// Multiplies a column from row `from` on.
    fn scale_column(&mut self, c: usize, by: u32, from: usize) {
        for r in from..self.rows() {
            self.set(r, c, self.field.mul(self.at(r, c), by));
        }
    }

    /// Adds `by` times row `source` to row `to`.
    fn add_row(&mut self, to: usize, source: usize, by: u32) {
        for c in 0..self.columns {
            self.set(to, c, self.at(to, c) ^ self.field.mul(self.at(source, c), by));
        }
    }

    /// Adds `by` times column `source` to column `to`.
    fn add_column(&mut self, to: usize, source: usize, by: u32) {
        for r in 0..self.rows() {
            self.set(r, to, self.at(r, to) ^ self.field.mul(self.at(r, source), by));
        }
    }

    /// The rows of data chunks (identity) or parity chunks that `chunks` names.
    pub(crate) fn generator_rows(&self, chunks: &[usize]) -> Matrix {
        let k = self.columns;
        Matrix::of(self.field, chunks.len(), k, |i, c| match chunks[i].checked_sub(k) {
            None => u32::from(chunks[i] == c),
            Some(parity) => self.at(parity, c),
        })
    }

    pub(crate) fn product(&self, other: &Matrix) -> Matrix {
        let cell = |r: usize, c: usize| {
            (0..self.columns).fold(0, |sum, i| sum ^ self.field.mul(self.at(r, i), other.at(i, c)))
        };
        Matrix::of(self.field, self.rows(), other.columns, cell)
    }

    /// The inverse of a square matrix, if it has one.
    pub(crate) fn inverted(&self) -> Option<Matrix> {
        let n = self.columns;
        let (mut a, mut inv) = (self.clone(), Matrix::identity(self.field, n));
        for i in 0..n {
            let pivot = (i..n).find(|&r| a.at(r, i) != 0)?;
            a.swap_rows(i, pivot);
            inv.swap_rows(i, pivot);
            let by = self.field.inverse(a.at(i, i));
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

    /// jerasure's `reed_sol_van`: an extended Vandermonde matrix of k + m rows, brought
    /// by column operations to the identity on top; then columns are scaled so that the first
    /// parity row is all ones, and rows so that the first column is.
    pub(crate) fn jerasure_vandermonde(field: Field, k: usize, m: usize) -> Matrix {
        let rows = k + m;
        let mut v = Matrix::of(field, rows, k, |r, c| {
            if r == 0 {
                u32::from(c == 0)
            } else if r == rows - 1 {
                u32::from(c == k - 1)
            } else {
                (0..c).fold(1, |power, _| field.mul(power, r as u32))
            }
        });
        for i in 1..k {
            let pivot = (i..rows).find(|&r| v.at(r, i) != 0).unwrap_or(i);
            v.swap_rows(i, pivot);
            let diagonal = v.at(i, i);
            if diagonal > 1 {
                v.scale_column(i, field.inverse(diagonal), 0);
            }
            for c in (0..k).filter(|&c| c != i) {
                let by = v.at(i, c);
                v.add_column(c, i, by);
            }
        }
        for c in 0..k {
            let top = v.at(k, c);
            if top > 1 {
                v.scale_column(c, field.inverse(top), k);
            }
        }
        for r in k + 1..rows {
            let first = v.at(r, 0);
            if first > 1 {
                v.scale_row(r, field.inverse(first));
            }
        }
        Matrix::of(field, m, k, |r, c| v.at(k + r, c))
    }

    /// Row r is the powers of 2^r: ISA-L's `gf_gen_rs_matrix`, and with two rows jerasure's `reed_sol_r6_op`.
    pub(crate) fn powers(field: Field, k: usize, m: usize) -> Matrix {
        let power = |base: u32, n: usize| (0..n).fold(1, |p, _| field.mul(p, base));
        Matrix::of(field, m, k, |r, c| power(power(2, r), c))
    }

    /// ISA-L's `gf_gen_cauchy1_matrix`: 1 / (row + column), rows counted from k.
    pub(crate) fn isa_cauchy(k: usize, m: usize) -> Matrix {
        let field = Field::BYTES;
        Matrix::of(field, m, k, |r, c| field.inverse((k + r) as u32 ^ c as u32))
    }

    /// jerasure's `cauchy_orig`: 1 / (row + column), columns counted from m.
    pub(crate) fn cauchy_orig(field: Field, k: usize, m: usize) -> Matrix {
        Matrix::of(field, m, k, |r, c| field.inverse(r as u32 ^ (m + c) as u32))
    }

    /// jerasure's `cauchy_good` (`cauchy.c`): of matrices that do as well, one whose products are sums of few packets.
    pub(crate) fn cauchy_good(field: Field, k: usize, m: usize) -> Matrix {
        // Up to here jerasure has lists of the numbers with fewest ones; of w = 11 half of it.
        const LISTED_W_MAX: u32 = 11;
        const LISTED_MAX: u32 = 1023;
        let w = field.w();
        if m == 2 && w <= LISTED_W_MAX && k <= ((1 << w) - 1).min(LISTED_MAX) as usize {
            let mut numbers: Vec<u32> = (1..1 << w).collect();
            numbers.sort_by_key(|n| ones(field, *n));
            return Matrix::of(field, m, k, |r, c| if r == 0 { 1 } else { numbers[c] });
        }
        let mut matrix = Matrix::cauchy_orig(field, k, m);
        for c in 0..k {
            matrix.scale_column(c, field.inverse(matrix.at(0, c)), 0);
        }
        for r in 1..m {
            let cost = |by: u32| -> u32 {
                matrix.row(r).iter().map(|cell| ones(field, field.mul(*cell, by))).sum()
            };
            let (mut best, mut least) = (1, cost(1));
            for cell in matrix.row(r) {
                let by = field.inverse(*cell);
                let cost = cost(by);
                if cost < least {
                    (best, least) = (by, cost);
                }
            }
            matrix.scale_row(r, best);
        }
        matrix
    }
}

/// Of how many packets the product with a number is made: ones in the matrix of its bits.
fn ones(field: Field, number: u32) -> u32 {
    let columns = (0..field.w()).scan(number, |n, _| {
        let count = n.count_ones();
        *n = field.mul(*n, if field.w() == 1 { 1 } else { 2 });
        Some(count)
    });
    columns.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses() {
        let m = Matrix::jerasure_vandermonde(Field::BYTES, 4, 3);
        let part = m.generator_rows(&[1, 4, 5, 6]);
        let inverse = part.inverted().expect("any k rows are independent");
        assert_eq!(part.product(&inverse), Matrix::identity(Field::BYTES, 4));
        assert_eq!(Matrix::of(Field::BYTES, 2, 2, |_, _| 1).inverted(), None);
    }

    /// What jerasure's `cbest_4` and the beginning of its `cbest_8` say.
    #[test]
    fn numbers_with_few_ones_come_first() {
        let row = |w, k| Matrix::cauchy_good(Field::new(w), k, 2).row(1).to_vec();
        assert_eq!(row(4, 15), [1, 2, 9, 4, 8, 13, 3, 6, 12, 5, 11, 15, 10, 14, 7]);
        assert_eq!(row(8, 12), [1, 2, 142, 4, 71, 8, 70, 173, 3, 35, 143, 16]);
    }

    #[test]
    fn parity_of_one_is_a_sum() {
        for k in 2..20 {
            assert!(
                Matrix::jerasure_vandermonde(Field::BYTES, k, 1).row(0).iter().all(|&c| c == 1)
            );
        }
    }
}
