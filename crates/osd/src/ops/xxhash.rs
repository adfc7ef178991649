//! XXH32 and XXH64, for the checksum op. The algorithm: https://github.com/Cyan4973/xxHash,
//! doc/xxhash_spec.md.

const P32: [u32; 5] = [0x9E37_79B1, 0x85EB_CA77, 0xC2B2_AE3D, 0x27D4_EB2F, 0x1656_67B1];
const P64: [u64; 5] = [
    0x9E37_79B1_85EB_CA87,
    0xC2B2_AE3D_27D4_EB4F,
    0x1656_67B1_9E37_79F9,
    0x85EB_CA77_C2B2_AE63,
    0x27D4_EB2F_1656_67C5,
];

fn word32(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[..4]);
    u32::from_le_bytes(word)
}

fn word64(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[..8]);
    u64::from_le_bytes(word)
}

/// The 32-bit hash.
pub(super) fn xxh32(data: &[u8], seed: u32) -> u32 {
    let round = |acc: u32, lane: u32| {
        acc.wrapping_add(lane.wrapping_mul(P32[1])).rotate_left(13).wrapping_mul(P32[0])
    };
    let (stripes, mut tail) = data.split_at(data.len() / 16 * 16);
    let mut acc = if stripes.is_empty() {
        seed.wrapping_add(P32[4])
    } else {
        let mut lanes = [
            seed.wrapping_add(P32[0]).wrapping_add(P32[1]),
            seed.wrapping_add(P32[1]),
            seed,
            seed.wrapping_sub(P32[0]),
        ];
        for stripe in stripes.chunks_exact(16) {
            for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(4)) {
                *lane = round(*lane, word32(word));
            }
        }
        let turns = [1, 7, 12, 18];
        lanes
            .iter()
            .zip(turns)
            .fold(0_u32, |sum, (lane, turn)| sum.wrapping_add(lane.rotate_left(turn)))
    };
    acc = acc.wrapping_add(data.len() as u32);
    while tail.len() >= 4 {
        acc = acc.wrapping_add(word32(tail).wrapping_mul(P32[2])).rotate_left(17);
        acc = acc.wrapping_mul(P32[3]);
        tail = &tail[4..];
    }
    for &byte in tail {
        acc = acc.wrapping_add(u32::from(byte).wrapping_mul(P32[4])).rotate_left(11);
        acc = acc.wrapping_mul(P32[0]);
    }
    acc = (acc ^ acc >> 15).wrapping_mul(P32[1]);
    acc = (acc ^ acc >> 13).wrapping_mul(P32[2]);
    acc ^ acc >> 16
}

/// The 64-bit hash.
pub(super) fn xxh64(data: &[u8], seed: u64) -> u64 {
    let round = |acc: u64, lane: u64| {
        acc.wrapping_add(lane.wrapping_mul(P64[1])).rotate_left(31).wrapping_mul(P64[0])
    };
    let (stripes, mut tail) = data.split_at(data.len() / 32 * 32);
    let mut acc = if stripes.is_empty() {
        seed.wrapping_add(P64[4])
    } else {
        let mut lanes = [
            seed.wrapping_add(P64[0]).wrapping_add(P64[1]),
            seed.wrapping_add(P64[1]),
            seed,
            seed.wrapping_sub(P64[0]),
        ];
        for stripe in stripes.chunks_exact(32) {
            for (lane, word) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
                *lane = round(*lane, word64(word));
            }
        }
        let turns = [1, 7, 12, 18];
        let sum = lanes
            .iter()
            .zip(turns)
            .fold(0_u64, |sum, (lane, turn)| sum.wrapping_add(lane.rotate_left(turn)));
        lanes.iter().fold(sum, |acc, &lane| {
            (acc ^ round(0, lane)).wrapping_mul(P64[0]).wrapping_add(P64[3])
        })
    };
    acc = acc.wrapping_add(data.len() as u64);
    while tail.len() >= 8 {
        acc = (acc ^ round(0, word64(tail))).rotate_left(27).wrapping_mul(P64[0]);
        acc = acc.wrapping_add(P64[3]);
        tail = &tail[8..];
    }
    if tail.len() >= 4 {
        acc = (acc ^ u64::from(word32(tail)).wrapping_mul(P64[0])).rotate_left(23);
        acc = acc.wrapping_mul(P64[1]).wrapping_add(P64[2]);
        tail = &tail[4..];
    }
    for &byte in tail {
        acc = (acc ^ u64::from(byte).wrapping_mul(P64[4])).rotate_left(11).wrapping_mul(P64[0]);
    }
    acc = (acc ^ acc >> 33).wrapping_mul(P64[1]);
    acc = (acc ^ acc >> 29).wrapping_mul(P64[2]);
    acc ^ acc >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the specification's reference implementation.
    #[test]
    fn known_values() {
        assert_eq!(xxh32(b"", 0), 0x02CC_5D05);
        assert_eq!(xxh32(b"a", 0), 0x550D_7456);
        assert_eq!(xxh32(b"abc", 0), 0x32D1_53FF);
        assert_eq!(xxh64(b"", 0), 0xEF46_DB37_51D8_E999);
        assert_eq!(xxh64(b"a", 0), 0xD24E_C4F1_A98C_6E5B);
        assert_eq!(xxh64(b"abc", 0), 0x44BC_2CF5_AD77_0999);
        let long = b"Nobody inspects the spammish repetition";
        assert_eq!(xxh32(long, 0), 0xE229_3B2F);
        assert_eq!(xxh64(long, 0), 0xFBCE_A83C_8A37_8BF1);
    }
}
