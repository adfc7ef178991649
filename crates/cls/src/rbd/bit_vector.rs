//! The object map: two bits for each data object (`src/common/bit_vector.hpp` at v16.2).
//!
//! ```text
//! u32 14 | v1 { u64 objects } | bytes, four objects each, the first in the high bits
//! | u32 length | u32 crc of the header | u32 blocks | u32 crc of each 4096-byte block
//! ```
//!
//! Without checksums the part behind the bytes has length 0.

use denc::{Denc, Error, Reader, Writer};
use types::crc::crc32c;

/// Bytes a checksum covers.
pub(super) const BLOCK: usize = 4096;
/// Bytes before the data.
pub(super) const HEADER_LEN: usize = 18;

/// The object does not exist.
pub const NONEXISTENT: u8 = 0;
/// The object exists and has changed since the last snapshot.
pub const EXISTS: u8 = 1;
/// The object is being removed.
pub const PENDING: u8 = 2;
/// The object exists as in the last snapshot.
pub const EXISTS_CLEAN: u8 = 3;

/// Values of two bits. Wire: ceph::BitVector<2>.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitVector {
    len: u64,
    data: Vec<u8>,
    /// Whether the encoding has checksums.
    pub crc_enabled: bool,
}

impl Default for BitVector {
    fn default() -> BitVector {
        BitVector { len: 0, data: Vec::new(), crc_enabled: true }
    }
}

/// Bytes that hold `len` values.
pub(super) fn byte_len(len: u64) -> u64 {
    len.div_ceil(4)
}

/// The value at `index` of bytes.
pub(super) fn value_at(data: &[u8], index: usize) -> u8 {
    data[index / 4] >> shift(index) & 3
}

/// Sets the value at `index` of bytes.
pub(super) fn put_value(data: &mut [u8], index: usize, value: u8) {
    let byte = &mut data[index / 4];
    *byte = *byte & !(3 << shift(index)) | (value & 3) << shift(index);
}

fn shift(index: usize) -> usize {
    (3 - index % 4) * 2
}

/// The header's envelope, which its checksum covers.
fn header(len: u64) -> bytes::Bytes {
    let mut w = Writer::with_capacity(HEADER_LEN);
    w.envelope(1, 1, |w| w.u64(len));
    w.into_bytes()
}

/// Reads the header's blob: the number of values and the checksum it should have.
pub(super) fn decode_header(r: &mut Reader<'_>) -> Result<(u64, u32), Error> {
    let blob = r.blob()?;
    let len = Reader::new(&blob).envelope("BitVector", 1, 1, |r, _| r.u64())?;
    Ok((len, crc32c(0, &blob)))
}

impl BitVector {
    /// Number of values.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The value at `index`.
    ///
    /// # Panics
    /// If `index` is not below [`BitVector::len`].
    pub fn get(&self, index: u64) -> u8 {
        value_at(&self.data, index as usize)
    }

    /// Sets the value at `index`.
    ///
    /// # Panics
    /// If `index` is not below [`BitVector::len`].
    pub fn set(&mut self, index: u64, value: u8) {
        put_value(&mut self.data, index as usize, value);
    }

    /// Cuts, or grows with a value: by bytes, as a map may have very many values.
    pub fn resize(&mut self, len: u64, value: u8) {
        let old = self.len;
        self.data.resize(byte_len(len) as usize, (value & 3) * 0b0101_0101);
        self.len = len;
        if old < len {
            (old..old.next_multiple_of(4).min(len)).for_each(|index| self.set(index, value));
            // What no value has is zero.
            (len..len.next_multiple_of(4)).for_each(|index| self.set(index, 0));
        }
    }
}

impl Denc for BitVector {
    fn encode(&self, w: &mut Writer) {
        let header = header(self.len);
        w.blob(&header);
        w.raw(&self.data);
        w.counted(|w| {
            if self.crc_enabled {
                w.u32(crc32c(0, &header));
                w.count(self.data.len().div_ceil(BLOCK));
                self.data.chunks(BLOCK).for_each(|block| w.u32(crc32c(0, block)));
            }
        });
    }

    fn decode(r: &mut Reader<'_>) -> Result<BitVector, Error> {
        let (len, header_crc) = decode_header(r)?;
        let need = usize::try_from(byte_len(len)).unwrap_or(usize::MAX);
        let data = r.slice(need)?.to_vec();
        let footer = r.blob()?;
        let mut r = Reader::new(&footer);
        let crc_enabled = !footer.is_empty();
        if crc_enabled {
            check_crc(r.u32()?, header_crc)?;
            r.u32()?;
            if r.remaining() / 4 != data.len().div_ceil(BLOCK) {
                return Err(Error::Invalid {
                    what: "BitVector checksums",
                    value: r.remaining() as u64 / 4,
                });
            }
            for block in data.chunks(BLOCK) {
                check_crc(r.u32()?, crc32c(0, block))?;
            }
        }
        Ok(BitVector { len, data, crc_enabled })
    }
}

fn check_crc(stored: u32, computed: u32) -> Result<(), Error> {
    if stored == computed {
        return Ok(());
    }
    Err(Error::Invalid { what: "BitVector checksum", value: stored.into() })
}
