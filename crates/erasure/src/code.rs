//! A code: chunks to chunks. Chunks 0 to k - 1 are data, k to k + m - 1 parity.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::field::Field;
use crate::kernel::{dot, dot_words};
use crate::matrix::Matrix;
use crate::packets::Packets;
use crate::profile::{Plugin, Profile, Technique};

/// One code.
#[derive(Debug, Clone)]
pub struct Code {
    k: usize,
    m: usize,
    coding: Rows,
}

/// How some chunks are made of k others.
#[derive(Debug, Clone)]
enum Rows {
    /// Sums of products of words.
    Words(Matrix),
    /// Sums of packets.
    Packets(Packets),
}

impl Rows {
    /// Those of data or parity chunks that `chunks` names.
    fn generator_rows(&self, chunks: &[usize]) -> Rows {
        match self {
            Rows::Words(matrix) => Rows::Words(matrix.generator_rows(chunks)),
            Rows::Packets(packets) => Rows::Packets(packets.generator_rows(chunks)),
        }
    }

    /// The same of what `back` makes the k chunks of, if those make all.
    fn over(&self, back: &Rows) -> Option<Rows> {
        match (self, back) {
            (Rows::Words(rows), Rows::Words(back)) => {
                Some(Rows::Words(rows.product(&back.inverted()?)))
            }
            (Rows::Packets(rows), Rows::Packets(back)) => {
                Some(Rows::Packets(rows.product(&back.inverted()?)))
            }
            _ => None,
        }
    }

    /// Chunks are whole numbers of so many bytes.
    fn unit(&self) -> usize {
        match self {
            Rows::Words(matrix) => matrix.field.w() as usize / 8,
            Rows::Packets(packets) => packets.group_len(),
        }
    }

    fn apply(&self, inputs: &[&[u8]]) -> Vec<Vec<u8>> {
        let matrix = match self {
            Rows::Packets(packets) => return packets.apply(inputs),
            Rows::Words(matrix) => matrix,
        };
        let row = |r| {
            let (row, mut out) = (matrix.row(r), vec![0; inputs[0].len()]);
            match matrix.field {
                Field::BYTES => {
                    let bytes: Vec<u8> = row.iter().map(|cell| *cell as u8).collect();
                    dot(&bytes, inputs, &mut out);
                }
                field => dot_words(field, row, inputs, &mut out),
            }
            out
        };
        (0..matrix.rows()).map(row).collect()
    }
}

/// Why chunks cannot be computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// Fewer than k chunks are there (EIO).
    TooFew {
        /// Chunks there are.
        available: usize,
        /// Chunks it takes.
        needed: usize,
    },
    /// Chunks of one stripe differ in length or are no whole packets, or one is numbered k + m or more: the
    /// caller's fault.
    NotOneStripe,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::TooFew { available, needed } => {
                write!(f, "only {available} chunks of {needed} that are needed")
            }
            DecodeError::NotOneStripe => f.write_str("chunks that do not belong together"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Code {
    /// The code of a profile.
    pub fn new(profile: &Profile) -> Code {
        let (k, m, w, len) = (profile.k, profile.m, profile.w, profile.packet_len);
        // Packets need none, and may be more of a group than a number has bits.
        let field = || Field::new(w);
        let coding = match (profile.plugin, profile.technique) {
            // isa sums one parity chunk up, whatever the matrix.
            (Plugin::Isa, _) if m == 1 => Rows::Words(Matrix::powers(field(), k, m)),
            (Plugin::Isa, Technique::Cauchy) => Rows::Words(Matrix::isa_cauchy(k, m)),
            (Plugin::Isa, _) | (_, Technique::ReedSolR6) => {
                Rows::Words(Matrix::powers(field(), k, m))
            }
            (_, Technique::ReedSolVan | Technique::Cauchy) => {
                Rows::Words(Matrix::jerasure_vandermonde(field(), k, m))
            }
            (_, Technique::CauchyOrig) => {
                Rows::Packets(Packets::of_matrix(&Matrix::cauchy_orig(field(), k, m), len))
            }
            (_, Technique::CauchyGood) => {
                Rows::Packets(Packets::of_matrix(&Matrix::cauchy_good(field(), k, m), len))
            }
            (_, Technique::Liberation) => Rows::Packets(Packets::liberation(k, w as usize, len)),
            (_, Technique::BlaumRoth) => Rows::Packets(Packets::blaum_roth(k, w as usize, len)),
            (_, Technique::Liber8tion) => Rows::Packets(Packets::liber8tion(k, len)),
        };
        Code { k, m, coding }
    }

    /// Data chunks.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Parity chunks.
    pub fn m(&self) -> usize {
        self.m
    }

    /// The parity chunks of k data chunks of one length.
    ///
    /// # Panics
    /// If there are not k, they differ in length, or are no whole words or packets.
    pub fn encode(&self, data: &[&[u8]]) -> Vec<Vec<u8>> {
        assert_eq!(data.len(), self.k, "one chunk for each column");
        assert!(data[0].len().is_multiple_of(self.coding.unit()), "chunks are whole packets");
        self.coding.apply(data)
    }

    /// Which chunks to read to have those wanted: they themselves if all are there, else the first
    /// k of those that are. `None` if there are too few.
    pub fn minimum_to_decode(
        &self,
        wanted: &BTreeSet<usize>,
        available: &BTreeSet<usize>,
    ) -> Option<BTreeSet<usize>> {
        if wanted.is_subset(available) {
            return Some(wanted.clone());
        }
        let first: BTreeSet<usize> = available.iter().copied().take(self.k).collect();
        (first.len() == self.k).then_some(first)
    }

    /// The wanted chunks, from any k others (more are not looked at, unless they are wanted).
    pub fn decode(
        &self,
        wanted: &[usize],
        available: &BTreeMap<usize, &[u8]>,
    ) -> Result<BTreeMap<usize, Vec<u8>>, DecodeError> {
        let len = available.values().next().map_or(0, |chunk| chunk.len());
        let is_one = |(&i, chunk): (&usize, &&[u8])| i < self.k + self.m && chunk.len() == len;
        let whole = len.is_multiple_of(self.coding.unit());
        if !whole || !available.iter().all(is_one) || wanted.iter().any(|&i| i >= self.k + self.m) {
            return Err(DecodeError::NotOneStripe);
        }
        let mut found = BTreeMap::new();
        let mut lost = Vec::new();
        for &i in wanted {
            match available.get(&i) {
                Some(chunk) => {
                    found.insert(i, chunk.to_vec());
                }
                None => lost.push(i),
            }
        }
        if lost.is_empty() {
            return Ok(found);
        }
        let sources: Vec<usize> = available.keys().copied().take(self.k).collect();
        let too_few = DecodeError::TooFew { available: sources.len(), needed: self.k };
        if sources.len() < self.k {
            return Err(too_few);
        }
        // Every k rows of these matrices are independent.
        let rows = self.coding.generator_rows(&lost).over(&self.coding.generator_rows(&sources));
        let inputs: Vec<&[u8]> = sources.iter().map(|i| available[i]).collect();
        found.extend(lost.into_iter().zip(rows.ok_or(too_few)?.apply(&inputs)));
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(text: &str) -> Profile {
        let pairs = text.split(',').filter_map(|p| p.split_once('='));
        Profile::of(&pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect()).unwrap()
    }

    fn code(text: &str) -> Code {
        Code::new(&profile(text))
    }

    #[test]
    fn any_k_chunks_will_do() {
        for text in [
            "plugin=jerasure,k=4,m=3",
            "plugin=isa,k=4,m=3",
            "plugin=isa,technique=cauchy,k=5,m=4",
            "plugin=jerasure,k=2,m=1",
            "plugin=jerasure,k=4,m=3,w=16",
            "plugin=jerasure,k=4,m=3,w=32",
            "technique=reed_sol_r6_op,k=5,m=2",
            "technique=cauchy_orig,k=4,m=3,w=5,packetsize=4",
            "technique=cauchy_good,k=4,m=3,w=5,packetsize=4",
            "technique=cauchy_good,k=6,m=2,packetsize=2",
            "technique=liberation,k=5,m=2,packetsize=4",
            "technique=blaum_roth,k=5,m=2,w=6,packetsize=4",
            "technique=liber8tion,k=8,m=2,packetsize=1",
            "technique=liberation,k=2,m=2,w=37,packetsize=4",
            "technique=blaum_roth,k=2,m=2,w=36,packetsize=4",
            "technique=blaum_roth,k=2,m=2,packetsize=4",
        ] {
            let (code, chunk_len) = (code(text), profile(text).chunk_len(1));
            let (k, n) = (code.k(), code.k() + code.m());
            let data: Vec<Vec<u8>> = (0..k)
                .map(|j| (0..chunk_len).map(|i| (i * 13 + j * 101 + 5) as u8).collect())
                .collect();
            let parts: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
            let parity = code.encode(&parts);
            let all: Vec<&[u8]> =
                parts.iter().copied().chain(parity.iter().map(Vec::as_slice)).collect();
            for mask in 0_u32..1 << n {
                let there: BTreeMap<usize, &[u8]> =
                    (0..n).filter(|i| mask >> i & 1 != 0).map(|i| (i, all[i])).collect();
                let wanted: Vec<usize> = (0..n).collect();
                match code.decode(&wanted, &there) {
                    Ok(found) => {
                        assert!(there.len() >= k);
                        assert!(found.iter().all(|(&i, chunk)| chunk == all[i]), "{mask:#b}");
                    }
                    Err(e) => {
                        let available = there.len();
                        assert!(available < k, "{text}: {mask:#b}");
                        assert_eq!(e, DecodeError::TooFew { available, needed: k });
                    }
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let code = code("plugin=jerasure,k=2,m=1");
        let chunks: [(usize, &[u8]); 2] = [(0, b"ab"), (1, b"c")];
        assert_eq!(code.decode(&[2], &chunks.into()), Err(DecodeError::NotOneStripe));
        let chunks: [(usize, &[u8]); 2] = [(0, b"ab"), (9, b"cd")];
        assert_eq!(code.decode(&[2], &chunks.into()), Err(DecodeError::NotOneStripe));
        assert!(code.decode(&[3], &BTreeMap::new()).is_err());
    }

    #[test]
    fn reads_take_as_few_as_they_can() {
        let code = code("plugin=jerasure,k=2,m=2");
        let min = |wanted: &[usize], there: &[usize]| {
            let set = |s: &[usize]| s.iter().copied().collect::<BTreeSet<_>>();
            code.minimum_to_decode(&set(wanted), &set(there))
                .map(|s| s.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(min(&[1], &[0, 1, 2, 3]), Some(vec![1]));
        assert_eq!(min(&[0, 1], &[1, 2, 3]), Some(vec![1, 2]));
        assert_eq!(min(&[0], &[3]), None);
    }
}
