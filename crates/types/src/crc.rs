//! crc32c as Ceph computes it: Castagnoli, reflected, any start value, no final inversion.
//!
//! Without the inversions the checksum is linear, so checksums of pieces join without their
//! bytes: crc(seed, A|B) = advance(crc(seed, A), len B) ^ crc(0, B).

use crc_fast::{CrcAlgorithm, Digest};

#[cfg(target_arch = "x86_64")]
use crate::ahead::fetch_line;

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
    #[cfg(target_arch = "x86_64")]
    if data.len() == BLOCK
        && let Ok(quarters) = data.as_chunks().0.try_into()
    {
        return by_quarters(seed, quarters);
    }
    long(seed, data)
}

/// What is checksummed most: a block of a store, what a client writes at random.
const BLOCK: usize = 4096;

/// Side by side and joined: half of what `crc-fast` takes.
#[cfg(target_arch = "x86_64")]
fn by_quarters(seed: u32, quarters: &[[u8; BLOCK / 4]; 4]) -> u32 {
    if !is_x86_feature_detected!("sse4.2") {
        return long(seed, quarters.as_flattened());
    }
    // SAFETY: the processor has the instruction.
    let [first, rest @ ..] = unsafe { side_by_side::<_, _, false>(0, quarters) };
    let first = first ^ crc32c_zeros(seed, BLOCK as u64 / 4);
    rest.into_iter().fold(first, |crc, next| crc32c_combine(crc, next, BLOCK as u64 / 4))
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

/// The checksums from `seed` of `N` parts of `LEN` bytes (a multiple of 64), one behind the other.
///
/// Side by side, as each step of the processor's instruction has to wait for the one before, and
/// as memory that has left the caches is fetched of all parts at once: of pages of 4 KiB one by one
/// `crc-fast` does 5 GB/s in such memory on an EPYC, four at a time do 14 (23 instead of 8 to 13 in
/// memory that is near).
#[inline]
pub fn crc32c_side_by_side<const N: usize, const LEN: usize>(
    seed: u32,
    parts: &[[u8; LEN]; N],
) -> [u32; N] {
    const { assert!(LEN.is_multiple_of(LINE)) };
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { side_by_side::<_, _, true>(seed, parts) };
    }
    parts.each_ref().map(|part| long(seed, part))
}

/// What memory is fetched by.
const LINE: usize = 64;

/// `AHEAD`: what is behind them is likely to be asked for next, so it is fetched meanwhile; nothing
/// happens where there is no such memory.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn side_by_side<const N: usize, const LEN: usize, const AHEAD: bool>(
    seed: u32,
    parts: &[[u8; LEN]; N],
) -> [u32; N] {
    use std::arch::x86_64::_mm_crc32_u64;
    let mut crcs = [u64::from(seed); N];
    for at in (0..LEN).step_by(LINE) {
        for part in parts.iter().filter(|_| AHEAD) {
            fetch_line(part.as_ptr().wrapping_add(N * LEN + at));
        }
        for word in (at..at + LINE).step_by(8) {
            for (crc, part) in crcs.iter_mut().zip(parts) {
                let bytes = part[word..].first_chunk().expect("LEN is a multiple of eight");
                *crc = _mm_crc32_u64(*crc, u64::from_le_bytes(*bytes));
            }
        }
    }
    crcs.map(|crc| crc as u32)
}

fn long(seed: u32, data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, seed.into());
    digest.update(data);
    !(digest.finalize() as u32)
}

/// The checksum after `len` zero bytes: a few multiplications, whatever `len` is.
#[inline]
pub fn crc32c_zeros(seed: u32, len: u64) -> u32 {
    if seed == 0 {
        return 0;
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.2") && is_x86_feature_detected!("pclmulqdq") {
        // SAFETY: the processor has the instructions.
        return unsafe { zeros_by_instruction(seed, len) };
    }
    zeros(seed, len)
}

fn zeros(seed: u32, len: u64) -> u32 {
    ones(len).fold(seed, |crc, bit| multiply(POWERS[bit], crc))
}

/// A product without carries has 63 bits, of which the highest is x^0; the instruction for
/// checksums takes it for 64 and appends 32 zeros, so what it gives is the product's times x^33:
/// the factors are less by as much.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2,pclmulqdq")]
fn zeros_by_instruction(seed: u32, len: u64) -> u32 {
    use std::arch::x86_64::{
        _mm_clmulepi64_si128, _mm_crc32_u64, _mm_cvtsi64_si128, _mm_cvtsi128_si64,
    };
    ones(len).fold(seed, |crc, bit| {
        let factor = _mm_cvtsi64_si128(i64::from(LESSER_POWERS[bit]));
        let product = _mm_clmulepi64_si128::<0>(factor, _mm_cvtsi64_si128(i64::from(crc)));
        _mm_crc32_u64(0, _mm_cvtsi128_si64(product) as u64) as u32
    })
}

/// The places of a number's ones, from the lowest on.
fn ones(number: u64) -> impl Iterator<Item = usize> {
    let rest = std::iter::successors(Some(number), |rest| Some(rest & rest.wrapping_sub(1)));
    rest.take_while(|rest| *rest != 0).map(|rest| rest.trailing_zeros() as usize)
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

/// The same times x^-33.
#[cfg(target_arch = "x86_64")]
static LESSER_POWERS: [u32; 64] = {
    let mut powers = [0; 64];
    let mut k = 0;
    while k < 64 {
        powers[k] = POWERS[k];
        let mut times = 0;
        while times < 33 {
            powers[k] = divide_by_x(powers[k]);
            times += 1;
        }
        k += 1;
    }
    powers
};

/// The polynomial whose product with x this one is: POLY, whose own x^0 is one, is added where it
/// makes this one's x^0 nothing.
#[cfg(target_arch = "x86_64")]
const fn divide_by_x(a: u32) -> u32 {
    // POLY leaves out x^32, which becomes x^31.
    if a >> 31 == 1 { (a ^ POLY) << 1 | 1 } else { a << 1 }
}

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
    fn a_block_by_quarters_and_at_once() {
        let data: Vec<u8> = (0..BLOCK as u32).map(|i| ((i * 37) >> 2) as u8).collect();
        for seed in [0, 77, !0] {
            assert_eq!(crc32c(seed, &data), long(seed, &data));
        }
    }

    #[test]
    fn side_by_side_as_each_alone() {
        let mut parts = [[0; 192]; 5];
        for (n, part) in parts.iter_mut().enumerate() {
            part.iter_mut()
                .enumerate()
                .for_each(|(i, byte)| *byte = ((i * 37 + n * 91) >> 1) as u8);
        }
        for seed in [0, 77, !0] {
            let alone = parts.each_ref().map(|part| crc32c(seed, part));
            assert_eq!(crc32c_side_by_side(seed, &parts), alone);
        }
    }

    #[test]
    fn zeros_by_multiplication_and_by_instruction() {
        for len in (0..64).map(|bit| 1 << bit).chain([0, 3, 4095, 4096, 123_456_789, u64::MAX]) {
            for seed in [1, 0x8000_0000, 0x1234_5678, !0] {
                assert_eq!(crc32c_zeros(seed, len), zeros(seed, len), "{seed:#x} {len}");
            }
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
