//! Sums of products: `out[i] = c0 * in0[i] + c1 * in1[i] + ...`, the only thing encoding and
//! decoding do with bytes. Three ways, all with the same result: one instruction a product where
//! the processor has GFNI, two table look-ups in a register with AVX2, two in memory elsewhere.

use crate::field::{Field, mul8 as mul};

/// Products of one coefficient with every byte: by low and by high half of the byte.
struct Halves {
    low: [u8; 16],
    high: [u8; 16],
}

impl Halves {
    fn of(c: u8) -> Halves {
        let table = |shift: u8| core::array::from_fn(|i| mul(c, (i as u8) << shift));
        Halves { low: table(0), high: table(4) }
    }
}

/// Writes the sum to `out`.
///
/// # Panics
/// If an input is not as long as `out`, or there are not as many as coefficients.
pub(crate) fn dot(coefficients: &[u8], inputs: &[&[u8]], out: &mut [u8]) {
    assert_eq!(coefficients.len(), inputs.len());
    assert!(inputs.iter().all(|i| i.len() == out.len()), "inputs and output differ in length");
    let done = wide(coefficients, inputs, out);
    if done < out.len() {
        let halves: Vec<Halves> = coefficients.iter().map(|&c| Halves::of(c)).collect();
        tail(&halves, inputs, out, done);
    }
}

/// The sum of products of words of two or four bytes, the lowest byte first.
///
/// # Panics
/// As [`dot`].
pub(crate) fn dot_words(field: Field, coefficients: &[u32], inputs: &[&[u8]], out: &mut [u8]) {
    assert_eq!(coefficients.len(), inputs.len());
    assert!(inputs.iter().all(|i| i.len() == out.len()), "inputs and output differ in length");
    out.fill(0);
    let word_len = field.w() as usize / 8;
    for (c, input) in coefficients.iter().zip(inputs) {
        // Products with each byte in each place.
        let product = |place: usize, byte: usize| field.mul(*c, (byte as u32) << (8 * place));
        let table = |place| -> [u32; 256] { core::array::from_fn(|byte| product(place, byte)) };
        let tables: Vec<[u32; 256]> = (0..word_len).map(table).collect();
        for (to, word) in out.chunks_exact_mut(word_len).zip(input.chunks_exact(word_len)) {
            let sum = tables.iter().zip(word).fold(0, |sum, (t, byte)| sum ^ t[usize::from(*byte)]);
            to.iter_mut().zip(sum.to_le_bytes()).for_each(|(to, byte)| *to ^= byte);
        }
    }
}

/// Byte by byte, from `from` on.
fn tail(halves: &[Halves], inputs: &[&[u8]], out: &mut [u8], from: usize) {
    out[from..].fill(0);
    for (h, input) in halves.iter().zip(inputs) {
        for (o, &byte) in out[from..].iter_mut().zip(&input[from..]) {
            *o ^= h.low[usize::from(byte & 15)] ^ h.high[usize::from(byte >> 4)];
        }
    }
}

/// The part that vectors can do; bytes done.
#[cfg(target_arch = "x86_64")]
fn wide(coefficients: &[u8], inputs: &[&[u8]], out: &mut [u8]) -> usize {
    if is_x86_feature_detected!("gfni")
        && is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
    {
        let matrices: Vec<u64> = coefficients.iter().map(|&c| affine(c)).collect();
        // SAFETY: the features have just been found; `dot` checked that all slices are as long as
        // `out`.
        return unsafe { gfni(&matrices, inputs, out) };
    }
    if is_x86_feature_detected!("avx2") {
        let halves: Vec<Halves> = coefficients.iter().map(|&c| Halves::of(c)).collect();
        // SAFETY: as above.
        return unsafe { avx2(&halves, inputs, out) };
    }
    0
}

#[cfg(not(target_arch = "x86_64"))]
fn wide(_: &[u8], _: &[&[u8]], _: &mut [u8]) -> usize {
    0
}

/// Multiplication by `c` as the bit matrix of `gf2p8affineqb`: byte 7 - i is the row of bit i.
#[cfg(target_arch = "x86_64")]
fn affine(c: u8) -> u64 {
    let row = |bit: u32| (0..8).fold(0_u8, |row, j| row | (mul(c, 1 << j) >> bit & 1) << j);
    (0..8).fold(0, |matrix, bit| matrix | u64::from(row(bit)) << (8 * (7 - bit)))
}

/// # Safety
/// The processor has the features; every input is at least as long as `out`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "gfni,avx512f,avx512bw")]
unsafe fn gfni(matrices: &[u64], inputs: &[&[u8]], out: &mut [u8]) -> usize {
    use core::arch::x86_64::*;
    let mut at = 0;
    while at + 64 <= out.len() {
        let mut sum = _mm512_setzero_si512();
        for (&matrix, input) in matrices.iter().zip(inputs) {
            // SAFETY: at + 64 is within `out`, and so within the input.
            let data = unsafe { _mm512_loadu_si512(input.as_ptr().add(at).cast()) };
            let by = _mm512_set1_epi64(matrix as i64);
            sum = _mm512_xor_si512(sum, _mm512_gf2p8affine_epi64_epi8::<0>(data, by));
        }
        // SAFETY: at + 64 is within `out`.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(at).cast(), sum) };
        at += 64;
    }
    at
}

/// # Safety
/// The processor has the feature; every input is at least as long as `out`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn avx2(halves: &[Halves], inputs: &[&[u8]], out: &mut [u8]) -> usize {
    use core::arch::x86_64::*;
    let mask = _mm256_set1_epi8(15);
    let mut at = 0;
    while at + 32 <= out.len() {
        let mut sum = _mm256_setzero_si256();
        for (h, input) in halves.iter().zip(inputs) {
            // SAFETY: the tables have 16 bytes; at + 32 is within `out`, and so within the input.
            let (low, high, data) = unsafe {
                (
                    _mm256_broadcastsi128_si256(_mm_loadu_si128(h.low.as_ptr().cast())),
                    _mm256_broadcastsi128_si256(_mm_loadu_si128(h.high.as_ptr().cast())),
                    _mm256_loadu_si256(input.as_ptr().add(at).cast()),
                )
            };
            let by_low = _mm256_shuffle_epi8(low, _mm256_and_si256(data, mask));
            let upper = _mm256_and_si256(_mm256_srli_epi64::<4>(data), mask);
            let by_high = _mm256_shuffle_epi8(high, upper);
            sum = _mm256_xor_si256(sum, _mm256_xor_si256(by_low, by_high));
        }
        // SAFETY: at + 32 is within `out`.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(at).cast(), sum) };
        at += 32;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_agree() {
        let inputs: Vec<Vec<u8>> = (0..5_usize)
            .map(|j| (0..1000).map(|i| (i * 31 + j * 77 + i / 256) as u8).collect())
            .collect();
        for len in [0, 1, 31, 32, 63, 64, 65, 200, 1000] {
            let parts: Vec<&[u8]> = inputs.iter().map(|i| &i[..len]).collect();
            for c in 0..=255_u8 {
                let coefficients = [c, c.wrapping_mul(7), 1, 0, c ^ 0x55];
                let byte = |i: usize| (0..5).fold(0, |s, j| s ^ mul(coefficients[j], parts[j][i]));
                let expected: Vec<u8> = (0..len).map(byte).collect();
                let mut out = vec![0xee; len];
                dot(&coefficients, &parts, &mut out);
                assert_eq!(out, expected, "{c} {len}");
                let halves: Vec<Halves> = coefficients.iter().map(|&c| Halves::of(c)).collect();
                out.fill(0xee);
                tail(&halves, &parts, &mut out, 0);
                assert_eq!(out, expected);
                #[cfg(target_arch = "x86_64")]
                if is_x86_feature_detected!("avx2") {
                    out.fill(0xee);
                    // SAFETY: the feature is there, the lengths are equal.
                    let done = unsafe { avx2(&halves, &parts, &mut out) };
                    assert_eq!(out[..done], expected[..done]);
                }
            }
        }
    }
}
