//! How an object lies in its chunks (`ECUtil::stripe_info_t` at v16.2): cut into stripes of k pieces,
//! piece i of each stripe one after the other in chunk i.
//!
//! ```text
//! object  | 0 | 1 | 2 | 3 | 4 | 5 |      k = 2: stripe 0 is pieces 0 and 1
//! chunk 0 | 0 | 2 | 4 |  chunk 1 | 1 | 3 | 5 |  chunk 2: parity of (0, 1), (2, 3), (4, 5)
//! ```
//!
//! The last stripe is filled up with zeros.

use std::collections::BTreeMap;

use crate::code::{Code, DecodeError};

/// The stripes of a pool's objects.
#[derive(Debug, Clone)]
pub struct Stripes {
    code: Code,
    piece_len: usize,
}

impl Stripes {
    /// Stripes of k pieces of `piece_len` bytes.
    ///
    /// # Panics
    /// If `piece_len` is 0.
    pub fn new(code: Code, piece_len: usize) -> Stripes {
        assert!(piece_len > 0, "pieces have a length");
        Stripes { code, piece_len }
    }

    /// The code.
    pub fn code(&self) -> &Code {
        &self.code
    }

    /// Bytes of a stripe's data: the pool's stripe_width.
    pub fn width(&self) -> u64 {
        (self.piece_len * self.code.k()) as u64
    }

    /// Bytes of each chunk of an object of `len` bytes.
    pub fn chunk_len(&self, len: u64) -> u64 {
        len.div_ceil(self.width()) * self.piece_len as u64
    }

    /// The stripes that a range touches, as a range of the object.
    pub fn stripe_range(&self, offset: u64, len: u64) -> (u64, u64) {
        let width = self.width();
        let start = offset / width * width;
        (start, (offset + len).next_multiple_of(width) - start)
    }

    /// Where a stripe's start lies in each chunk.
    pub fn chunk_offset(&self, stripe_start: u64) -> u64 {
        stripe_start / self.width() * self.piece_len as u64
    }

    /// The chunks of whole stripes; what is missing of the last is zeros.
    pub fn encode(&self, data: &[u8]) -> Vec<Vec<u8>> {
        let (k, piece) = (self.code.k(), self.piece_len);
        let count = data.len().div_ceil(piece * k);
        let mut chunks = vec![vec![0; count * piece]; k];
        for (i, part) in data.chunks(piece).enumerate() {
            chunks[i % k][i / k * piece..][..part.len()].copy_from_slice(part);
        }
        let parts: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
        let parity = self.code.encode(&parts);
        chunks.extend(parity);
        chunks
    }

    /// The data of whole stripes from the same part of any k chunks.
    pub fn decode(&self, available: &BTreeMap<usize, &[u8]>) -> Result<Vec<u8>, DecodeError> {
        let (k, piece) = (self.code.k(), self.piece_len);
        let wanted: Vec<usize> = (0..k).collect();
        let chunks = self.code.decode(&wanted, available)?;
        let len = chunks.values().next().map_or(0, Vec::len);
        if len % piece != 0 {
            return Err(DecodeError::NotOneStripe);
        }
        let mut data = Vec::with_capacity(len * k);
        for at in (0..len).step_by(piece) {
            for chunk in chunks.values() {
                data.extend_from_slice(&chunk[at..at + piece]);
            }
        }
        Ok(data)
    }
}
