//! GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1, as jerasure (w = 8) and ISA-L have it.

/// The polynomial's low byte.
const POLY: u8 = 0x1d;

const fn times_x(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { POLY } else { 0 }
}

/// Powers of x, twice over; and their exponents.
const TABLES: ([u8; 510], [u8; 256]) = {
    let (mut exp, mut log) = ([0; 510], [0; 256]);
    let (mut i, mut a) = (0, 1);
    while i < 255 {
        exp[i] = a;
        exp[i + 255] = a;
        log[a as usize] = i as u8;
        a = times_x(a);
        i += 1;
    }
    (exp, log)
};

/// The product.
pub(crate) const fn mul(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let (exp, log) = (&TABLES.0, &TABLES.1);
    exp[log[a as usize] as usize + log[b as usize] as usize]
}

/// The inverse of a number that is not 0.
pub(crate) const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "0 has no inverse");
    TABLES.0[255 - TABLES.1[a as usize] as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        for a in 0..=255 {
            assert_eq!(mul(a, 1), a);
            if a != 0 {
                assert_eq!(mul(a, inverse(a)), 1);
            }
            for b in 0..=255 {
                assert_eq!(mul(a, b), mul(b, a));
                // The schoolbook product.
                let (mut sum, mut power) = (0, a);
                for bit in 0..8 {
                    if b >> bit & 1 != 0 {
                        sum ^= power;
                    }
                    power = times_x(power);
                }
                assert_eq!(mul(a, b), sum);
            }
        }
    }
}
