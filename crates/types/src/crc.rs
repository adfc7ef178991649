//! crc32c as Ceph computes it: Castagnoli, reflected, any start value, no final inversion.
//!
//! Without the inversions the checksum is linear, so checksums of pieces join without their
//! bytes: crc(seed, A|B) = advance(crc(seed, A), len B) ^ crc(0, B).

use crc_fast::{CrcAlgorithm, Digest};

/// Castagnoli, reflected.
const POLY: u32 = 0x82f6_3b78;

/// Up to so many bytes the processor's own instruction is the faster way.
#[cfg(target_arch = "x86_64")]
const SHORT_MAX: usize = 256;

/// Checksum of `data`, continuing from `seed` (Ceph starts from -1 or 0).
#[inline]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if data.len() <= SHORT_MAX && is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { short(seed, data) };
    }
    long(seed, data)
}

/// Of headers and epilogues, a dozen in each message: what `crc-fast` sets up for one takes several
/// times as long as the few bytes themselves.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn short(seed: u32, data: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = data.as_chunks::<8>();
    let start = u64::from(seed);
    let crc = words.iter().fold(start, |crc, word| _mm_crc32_u64(crc, u64::from_le_bytes(*word)));
    rest.iter().fold(crc as u32, |crc, byte| _mm_crc32_u8(crc, *byte))
}

fn long(seed: u32, data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, seed.into());
    digest.update(data);
    !(digest.finalize() as u32)
}

/// The checksum after `len` zero bytes: a few multiplications, whatever `len` is.
pub fn crc32c_zeros(seed: u32, len: u64) -> u32 {
    if seed == 0 {
        return 0;
    }
    let mut crc = seed;
    let mut rest = len;
    while rest != 0 {
        crc = multiply(POWERS[rest.trailing_zeros() as usize], crc);
        rest &= rest - 1;
    }
    crc
}

/// The checksum of two pieces: `left` with any seed, `right` with seed 0 over `right_len` bytes.
pub fn crc32c_combine(left: u32, right: u32, right_len: u64) -> u32 {
    crc32c_zeros(left, right_len) ^ right
}

/// What a checksum taken from `seed` would be from `new_seed`, over the same `len` bytes.
pub fn crc32c_reseed(crc: u32, seed: u32, new_seed: u32, len: u64) -> u32 {
    crc ^ crc32c_zeros(seed ^ new_seed, len)
}

/// Product of two polynomials modulo POLY; bit 31 is x^0.
const fn multiply(mut a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    while a != 0 {
        if a & 1 << 31 != 0 {
            product ^= b;
        }
        a <<= 1;
        b = if b & 1 != 0 { b >> 1 ^ POLY } else { b >> 1 };
    }
    product
}

/// x^(8 * 2^k) for each k: the operator "2^k zero bytes".
static POWERS: [u32; 64] = {
    let mut powers = [0; 64];
    let mut power = 1 << 23; // x^8
    let mut k = 0;
    while k < 64 {
        powers[k] = power;
        power = multiply(power, power);
        k += 1;
    }
    powers
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_values() {
        assert_eq!(crc32c(0, b"123456789"), 0x58e3_fa20);
        assert_eq!(crc32c(!0, b"123456789"), 0x1cf9_6d7c);
        assert_eq!(crc32c(7, b""), 7);
    }

    /// Both ways, from every start and for every length about the bound.
    #[test]
    fn short_and_long_agree() {
        let data: Vec<u8> = (0..300_u32).map(|i| ((i * 37) >> 2) as u8).collect();
        for len in 0..data.len() {
            let part = &data[data.len() - len..];
            assert_eq!(crc32c(!0, part), long(!0, part), "{len}");
            assert_eq!(crc32c(77, part), long(77, part), "{len}");
        }
    }

    #[test]
    fn pieces_join() {
        let data: Vec<u8> = (0..5000_u32).map(|i| ((i * 31) >> 3) as u8).collect();
        for cut in [0, 1, 7, 4096, 4999, 5000] {
            let (a, b) = data.split_at(cut);
            let joined = crc32c_combine(crc32c(!0, a), crc32c(0, b), b.len() as u64);
            assert_eq!(joined, crc32c(!0, &data));
        }
        for len in [0, 1, 3, 4096, 65536, 70000] {
            assert_eq!(crc32c_zeros(0x1234_5678, len as u64), crc32c(0x1234_5678, &vec![0; len]));
        }
        assert_eq!(crc32c_reseed(crc32c(5, &data), 5, !0, 5000), crc32c(!0, &data));
    }
}
