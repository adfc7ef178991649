//! The string hash that places objects (rjenkins; `ceph_str_hash` at v16.2).

/// Bob Jenkins' 1996 mix of three words.
#[inline]
fn mix(a: &mut u32, b: &mut u32, c: &mut u32) {
    macro_rules! line {
        ($x:ident $y:ident $z:ident, $shifted:expr) => {
            *$x = $x.wrapping_sub(*$y).wrapping_sub(*$z) ^ $shifted
        };
    }
    line!(a b c, (*c >> 13));
    line!(b c a, (*a << 8));
    line!(c a b, (*b >> 13));
    line!(a b c, (*c >> 12));
    line!(b c a, (*a << 16));
    line!(c a b, (*b >> 5));
    line!(a b c, (*c >> 3));
    line!(b c a, (*a << 10));
    line!(c a b, (*b >> 15));
}

/// Hash of a name, 32 bits.
pub fn rjenkins(name: &[u8]) -> u32 {
    let (mut a, mut b, mut c) = (0x9e37_79b9_u32, 0x9e37_79b9_u32, 0_u32);
    let (words, tail) = name.as_chunks::<12>();
    let le = |w: &[u8]| u32::from_le_bytes([w[0], w[1], w[2], w[3]]);
    for w in words {
        a = a.wrapping_add(le(&w[0..4]));
        b = b.wrapping_add(le(&w[4..8]));
        c = c.wrapping_add(le(&w[8..12]));
        mix(&mut a, &mut b, &mut c);
    }
    // The last word holds three bytes, one up: its lowest byte is for the length.
    let mut last = [0; 12];
    let head = tail.len().min(8);
    last[..head].copy_from_slice(&tail[..head]);
    last[9..9 + tail.len() - head].copy_from_slice(&tail[head..]);
    a = a.wrapping_add(le(&last[0..4]));
    b = b.wrapping_add(le(&last[4..8]));
    c = c.wrapping_add(le(&last[8..12])).wrapping_add(name.len() as u32);
    mix(&mut a, &mut b, &mut c);
    c
}

/// The placement hash of an object: its locator key if it has one, else its name, behind its
/// namespace and a unit separator when that is not empty.
pub fn object_hash(namespace: &[u8], key: &[u8], name: &[u8]) -> u32 {
    let name = if key.is_empty() { name } else { key };
    if namespace.is_empty() {
        return rjenkins(name);
    }
    let mut joined = Vec::with_capacity(namespace.len() + 1 + name.len());
    joined.extend_from_slice(namespace);
    joined.push(0x1f);
    joined.extend_from_slice(name);
    rjenkins(&joined)
}

/// `x mod b` that moves only what must when `b` grows; `mask` is the next power of two - 1.
pub const fn stable_mod(x: u32, b: u32, mask: u32) -> u32 {
    if x & mask < b { x & mask } else { x & (mask >> 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reference_values() {
        assert_eq!(rjenkins(b""), 0xbd49_d10d);
        assert_eq!(rjenkins(b"a"), 0x29ee_c818);
        assert_eq!(rjenkins(b"foo"), 0x7fc1_f406);
        assert_eq!(rjenkins(b"obj1"), 0x6cf8_deff);
        assert_eq!(rjenkins(b"rbd_directory"), 0x30a9_8c1c);
        assert_eq!(object_hash(b"ns1", b"", b"obj1"), 0xf490_d39d);
        assert_eq!(object_hash(b"ns1", b"obj1", b"x"), 0xf490_d39d);
    }
}
