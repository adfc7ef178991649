//! A code: chunks to chunks. Chunks 0 to k - 1 are data, k to k + m - 1 parity.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::kernel::dot;
use crate::matrix::Matrix;
use crate::profile::{Plugin, Profile, Technique};

/// One code.
#[derive(Debug, Clone)]
pub struct Code {
    k: usize,
    m: usize,
    coding: Matrix,
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
    /// Chunks of one stripe differ in length, or one is numbered k + m or more: the caller's
    /// fault.
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
        let (k, m) = (profile.k, profile.m);
        let coding = match (profile.plugin, profile.technique) {
            // isa sums one parity chunk up, whatever the matrix.
            (Plugin::Isa, _) if m == 1 => Matrix::isa_vandermonde(k, m),
            (Plugin::Jerasure, _) => Matrix::jerasure_vandermonde(k, m),
            (Plugin::Isa, Technique::Cauchy) => Matrix::isa_cauchy(k, m),
            (Plugin::Isa, Technique::ReedSolVan) => Matrix::isa_vandermonde(k, m),
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
    /// If there are not k, or they differ in length.
    pub fn encode(&self, data: &[&[u8]]) -> Vec<Vec<u8>> {
        assert_eq!(data.len(), self.k, "one chunk for each column");
        let len = data[0].len();
        let parity = |r| {
            let mut out = vec![0; len];
            dot(self.coding.row(r), data, &mut out);
            out
        };
        (0..self.m).map(parity).collect()
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
        if !available.iter().all(is_one) || wanted.iter().any(|&i| i >= self.k + self.m) {
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
        let back = self.coding.generator_rows(&sources).inverted().ok_or(too_few)?;
        let rows = self.coding.generator_rows(&lost).product(&back);
        let inputs: Vec<&[u8]> = sources.iter().map(|i| available[i]).collect();
        for (r, &i) in lost.iter().enumerate() {
            let mut out = vec![0; len];
            dot(rows.row(r), &inputs, &mut out);
            found.insert(i, out);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Code {
        let pairs = text.split(',').filter_map(|p| p.split_once('='));
        let map = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        Code::new(&Profile::of(&map).unwrap())
    }

    #[test]
    fn any_k_chunks_will_do() {
        for text in [
            "plugin=jerasure,k=4,m=3",
            "plugin=isa,k=4,m=3",
            "plugin=isa,technique=cauchy,k=5,m=4",
            "plugin=jerasure,k=2,m=1",
        ] {
            let code = code(text);
            let (k, n) = (code.k(), code.k() + code.m());
            let data: Vec<Vec<u8>> =
                (0..k).map(|j| (0..100).map(|i| (i * 13 + j * 101 + 5) as u8).collect()).collect();
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
