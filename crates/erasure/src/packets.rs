//! Codes of packets: a chunk is cut into groups of w packets, and a packet of a parity chunk is the sum (exclusive or)
//! of packets of the data chunks, as a matrix of bits says (jerasure's `cauchy_*`, `liberation`, `blaum_roth`,
//! `liber8tion`; `jerasure_matrix_to_bitmatrix`, `liberation.c` of jerasure 2.0).
//!
//! ```text
//! chunk   | packet 0 | packet 1 | ... | packet w - 1 | packet 0 | ...
//! row     r * w + i: packet i of parity chunk r
//! column  c * w + j: packet j of data chunk c
//! ```

use crate::matrix::Matrix;

/// Bits of a row in one number.
const WORD: usize = u64::BITS as usize;

/// A matrix of bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BitMatrix {
    columns: usize,
    rows: Vec<Vec<u64>>,
}

impl BitMatrix {
    fn zero(rows: usize, columns: usize) -> BitMatrix {
        BitMatrix { columns, rows: vec![vec![0; columns.div_ceil(WORD)]; rows] }
    }

    fn at(&self, r: usize, c: usize) -> bool {
        self.rows[r][c / WORD] >> (c % WORD) & 1 != 0
    }

    fn set(&mut self, r: usize, c: usize) {
        self.rows[r][c / WORD] |= 1 << (c % WORD);
    }

    fn set_columns(&self, r: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.columns).filter(move |c| self.at(r, *c))
    }

    fn product(&self, other: &BitMatrix) -> BitMatrix {
        let mut product = BitMatrix::zero(self.rows.len(), other.columns);
        for (r, sum) in product.rows.iter_mut().enumerate() {
            self.set_columns(r).for_each(|c| add(sum, &other.rows[c]));
        }
        product
    }

    /// The inverse of a square matrix, if it has one.
    fn inverted(&self) -> Option<BitMatrix> {
        let n = self.columns;
        let mut a = self.clone();
        let mut inverse = BitMatrix::zero(n, n);
        (0..n).for_each(|i| inverse.set(i, i));
        for i in 0..n {
            let pivot = (i..n).find(|r| a.at(*r, i))?;
            for matrix in [&mut a, &mut inverse] {
                matrix.rows.swap(i, pivot);
            }
            let (row, with) = (a.rows[i].clone(), inverse.rows[i].clone());
            for r in (0..n).filter(|r| *r != i) {
                if a.at(r, i) {
                    add(&mut a.rows[r], &row);
                    add(&mut inverse.rows[r], &with);
                }
            }
        }
        Some(inverse)
    }
}

fn add(sum: &mut [u64], row: &[u64]) {
    sum.iter_mut().zip(row).for_each(|(sum, word)| *sum ^= word);
}

/// Of each of liber8tion's eight chunks: the packet that each row takes, and the row and packet of the one more
/// (Plank, "The RAID-6 Liber8Tion Code", 2009).
const LIBER8TION: [([usize; 8], Option<(usize, usize)>); 8] = [
    ([0, 1, 2, 3, 4, 5, 6, 7], None),
    ([7, 3, 0, 2, 6, 1, 5, 4], Some((4, 7))),
    ([6, 2, 4, 0, 7, 3, 1, 5], Some((1, 3))),
    ([2, 5, 7, 6, 0, 3, 4, 1], Some((5, 4))),
    ([5, 6, 1, 7, 2, 4, 3, 0], Some((2, 0))),
    ([1, 2, 3, 4, 5, 6, 7, 0], Some((7, 2))),
    ([3, 0, 6, 5, 1, 7, 4, 2], Some((6, 5))),
    ([4, 7, 1, 5, 3, 2, 0, 6], Some((3, 1))),
];

/// How packets of some chunks are made of those of k others.
#[derive(Debug, Clone)]
pub(crate) struct Packets {
    /// Of a group.
    w: usize,
    /// Bytes of one.
    len: usize,
    bits: BitMatrix,
}

impl Packets {
    /// Of a matrix of numbers: a number is the matrix of the bits of its products with 1, x, x^2, ...
    pub(crate) fn of_matrix(matrix: &Matrix, len: usize) -> Packets {
        let (field, k) = (matrix.field, matrix.columns);
        let w = field.w() as usize;
        let mut bits = BitMatrix::zero(matrix.rows() * w, k * w);
        for r in 0..matrix.rows() {
            for c in 0..k {
                for j in 0..w {
                    let product = field.mul(matrix.at(r, c), 1 << j);
                    let ones = (0..w).filter(|i| product >> i & 1 != 0);
                    ones.for_each(|i| bits.set(r * w + i, c * w + j));
                }
            }
        }
        Packets { w, len, bits }
    }

    /// Two parity chunks, the first a plain sum; `second(chunk, row)` has the packets of the other's row.
    fn raid6(
        k: usize,
        w: usize,
        len: usize,
        second: impl Fn(usize, usize) -> Vec<usize>,
    ) -> Packets {
        let mut bits = BitMatrix::zero(2 * w, k * w);
        for c in 0..k {
            for i in 0..w {
                bits.set(i, c * w + i);
                second(c, i).into_iter().for_each(|j| bits.set(w + i, c * w + j));
            }
        }
        Packets { w, len, bits }
    }

    /// Plank's Liberation codes: each chunk turned by its number, with one packet more.
    pub(crate) fn liberation(k: usize, w: usize, len: usize) -> Packets {
        Packets::raid6(k, w, len, |c, i| {
            let more = (c > 0 && i == c * ((w - 1) / 2) % w).then(|| (i + c - 1) % w);
            [(c + i) % w].into_iter().chain(more).collect()
        })
    }

    /// Blaum and Roth's: multiplication by x^chunk modulo 1 + x + ... + x^w.
    pub(crate) fn blaum_roth(k: usize, w: usize, len: usize) -> Packets {
        let p = w + 1;
        Packets::raid6(k, w, len, |c, i| match (c, i + 1) {
            (0, _) => vec![i],
            (c, l) if l != p - c => vec![(l + c) % p - 1],
            (c, _) => {
                let half = if c % 2 == 0 { c / 2 } else { p / 2 + 1 + c / 2 };
                // Where both are the same, jerasure sets it once.
                vec![c - 1, half - 1]
            }
        })
    }

    /// Plank's for w = 8.
    pub(crate) fn liber8tion(k: usize, len: usize) -> Packets {
        Packets::raid6(k, 8, len, |c, i| {
            let (packets, more) = LIBER8TION[c];
            let more = more.filter(|(row, _)| *row == i).map(|(_, packet)| packet);
            [packets[i]].into_iter().chain(more).collect()
        })
    }

    /// Bytes of a group of packets: chunks are whole groups.
    pub(crate) fn group_len(&self) -> usize {
        self.w * self.len
    }

    /// Those of data or parity chunks that `chunks` names.
    pub(crate) fn generator_rows(&self, chunks: &[usize]) -> Packets {
        let (w, columns) = (self.w, self.bits.columns);
        let mut bits = BitMatrix::zero(chunks.len() * w, columns);
        for (n, chunk) in chunks.iter().enumerate() {
            for i in 0..w {
                match (chunk * w).checked_sub(columns) {
                    None => bits.set(n * w + i, chunk * w + i),
                    Some(parity) => bits.rows[n * w + i].clone_from(&self.bits.rows[parity + i]),
                }
            }
        }
        Packets { bits, ..*self }
    }

    pub(crate) fn product(&self, other: &Packets) -> Packets {
        Packets { bits: self.bits.product(&other.bits), ..*self }
    }

    pub(crate) fn inverted(&self) -> Option<Packets> {
        Some(Packets { bits: self.bits.inverted()?, ..*self })
    }

    /// The chunks made of `inputs`, which are whole groups of one length.
    pub(crate) fn apply(&self, inputs: &[&[u8]]) -> Vec<Vec<u8>> {
        let (w, len) = (self.w, self.len);
        let chunk_len = inputs[0].len();
        let mut out = vec![vec![0; chunk_len]; self.bits.rows.len() / w];
        for r in 0..self.bits.rows.len() {
            for column in self.bits.set_columns(r) {
                let (input, from, to) = (inputs[column / w], column % w * len, r % w * len);
                for group in (0..chunk_len).step_by(w * len) {
                    let packet = &input[group + from..][..len];
                    let sum = &mut out[r / w][group + to..][..len];
                    sum.iter_mut().zip(packet).for_each(|(sum, byte)| *sum ^= byte);
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses() {
        let packets = Packets::liberation(5, 7, 1);
        let some = packets.generator_rows(&[1, 2, 4, 5, 6]);
        let back = some.inverted().expect("any k chunks give the others back");
        let unit = packets.generator_rows(&[0, 1, 2, 3, 4]);
        assert_eq!(some.product(&back).bits, unit.bits);
        assert!(packets.generator_rows(&[1, 1, 2, 3, 4]).inverted().is_none());
    }
}
