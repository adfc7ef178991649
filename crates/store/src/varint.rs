//! Numbers in as few bytes as they need: seven bits a byte, least first.

/// Appends a number.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Takes bytes off the front.
pub(crate) struct Input<'a>(pub(super) &'a [u8]);

impl Input<'_> {
    pub(crate) fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_at_checked(N)?;
        self.0 = rest;
        first.try_into().ok()
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return None;
            }
            n |= bits << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    /// How many things follow: no more than there are bytes.
    pub(crate) fn count(&mut self) -> Option<u64> {
        self.varint().filter(|&n| n <= self.0.len() as u64)
    }
}
