//! GF(2^w): numbers of w bits that are added by exclusive or, as jerasure (any w up to 32) and ISA-L (w = 8) have them.

/// The polynomials, as gf-complete has them: what x^w is (`gf_wgen.c`, `gf_w8.c`, `gf_w16.c`, `gf_w32.c`).
const POLYNOMIALS: [u32; 33] = [
    0, 0x1, 0x3, 0x3, 0x3, 0x5, 0x3, 0x9, 0x1d, 0x11, 0x9, 0x5, 0x53, 0x1b, 0x443, 0x3, 0x100b,
    0x9, 0x81, 0x27, 0x9, 0x5, 0x3, 0x21, 0x87, 0x9, 0x47, 0x27, 0x9, 0x5, 0x80_0007, 0x9,
    0x40_0007,
];

/// Powers of x in GF(2^8), twice over; and their exponents.
const TABLES: ([u8; 510], [u8; 256]) = {
    let (mut exp, mut log) = ([0; 510], [0; 256]);
    let (mut i, mut a) = (0, 1);
    while i < 255 {
        exp[i] = a;
        exp[i + 255] = a;
        log[a as usize] = i as u8;
        a = times_x(a as u32, 8) as u8;
        i += 1;
    }
    (exp, log)
};

const fn times_x(a: u32, w: u32) -> u32 {
    let over = a >> (w - 1) & 1 != 0;
    let mask = u32::MAX >> (32 - w);
    (a << 1) & mask ^ if over { POLYNOMIALS[w as usize] } else { 0 }
}

/// The product in GF(2^8).
pub(crate) const fn mul8(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let (exp, log) = (&TABLES.0, &TABLES.1);
    exp[log[a as usize] as usize + log[b as usize] as usize]
}

/// One of the fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    w: u32,
}

impl Field {
    /// Of the bytes.
    pub(crate) const BYTES: Field = Field { w: 8 };
    /// Most bits of a number.
    pub(crate) const W_MAX: u32 = 32;

    /// # Panics
    /// If there are no bits, or more than [`Field::W_MAX`].
    pub(crate) fn new(w: u32) -> Field {
        assert!((1..=Field::W_MAX).contains(&w), "1 to 32 bits");
        Field { w }
    }

    /// Bits of a number.
    pub(crate) fn w(self) -> u32 {
        self.w
    }

    /// The product.
    pub(crate) fn mul(self, a: u32, b: u32) -> u32 {
        if self.w == 8 {
            return mul8(a as u8, b as u8).into();
        }
        let (mut sum, mut power, mut rest) = (0, a, b);
        while rest != 0 {
            sum ^= if rest & 1 != 0 { power } else { 0 };
            power = times_x(power, self.w);
            rest >>= 1;
        }
        sum
    }

    /// The inverse of a number that is not 0.
    pub(crate) fn inverse(self, a: u32) -> u32 {
        assert!(a != 0, "0 has no inverse");
        // a^(2^w - 2), the product of all squares of squares but a itself.
        let (mut product, mut square) = (1, a);
        for _ in 1..self.w {
            square = self.mul(square, square);
            product = self.mul(product, square);
        }
        product
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_fields() {
        for w in 1..=Field::W_MAX {
            let field = Field::new(w);
            let mask = u32::MAX >> (32 - w);
            let numbers = (0..60_u32).map(|i| (i ^ i.wrapping_mul(0x9e37_79b1)) & mask);
            let numbers: Vec<u32> = numbers.filter(|n| *n != 0).collect();
            for &a in &numbers {
                assert_eq!(field.mul(a, 1), a);
                assert_eq!(field.mul(a, field.inverse(a)), 1, "{a} in GF(2^{w})");
                for &b in &numbers {
                    assert_eq!(field.mul(a, b), field.mul(b, a));
                    assert_eq!(field.mul(a ^ 1, b), field.mul(a, b) ^ b);
                }
            }
        }
    }

    #[test]
    fn bytes_have_tables() {
        for a in 0..=255_u8 {
            for b in 0..=255_u8 {
                // The schoolbook product.
                let (mut sum, mut power) = (0, u32::from(a));
                for bit in 0..8 {
                    if b >> bit & 1 != 0 {
                        sum ^= power;
                    }
                    power = times_x(power, 8);
                }
                assert_eq!(u32::from(mul8(a, b)), sum);
            }
        }
    }
}
