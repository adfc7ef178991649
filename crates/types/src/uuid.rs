//! Cluster ids and OSD ids.

use core::fmt;
use core::str::FromStr;

use denc::Denc;

/// Sixteen bytes. Wire: uuid_d.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Denc)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// All zero: not set.
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// Whether no id is set.
    pub fn is_zero(&self) -> bool {
        *self == Uuid::ZERO
    }

    /// A version 4 (random) id from random bytes.
    pub fn from_random(mut bytes: [u8; 16]) -> Uuid {
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseUuidError;

impl fmt::Display for ParseUuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a UUID")
    }
}

impl std::error::Error for ParseUuidError {}

impl FromStr for Uuid {
    type Err = ParseUuidError;
    fn from_str(s: &str) -> Result<Uuid, ParseUuidError> {
        let text = s.as_bytes();
        if text.len() != 36 {
            return Err(ParseUuidError);
        }
        let mut bytes = [0; 16];
        let mut at = 0;
        for (i, byte) in bytes.iter_mut().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                if text[at] != b'-' {
                    return Err(ParseUuidError);
                }
                at += 1;
            }
            let digit = |c: u8| char::from(c).to_digit(16).ok_or(ParseUuidError);
            *byte = (digit(text[at])? * 16 + digit(text[at + 1])?) as u8;
            at += 2;
        }
        Ok(Uuid(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_what_it_prints() {
        let id = Uuid::from_random([0xab; 16]);
        assert_eq!(id.to_string(), "abababab-abab-4bab-abab-abababababab");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("abababab-abab-4bab-abab-ababababab".parse::<Uuid>(), Err(ParseUuidError));
        assert_eq!("ababababaabab-4bab-abab-abababababa-".parse::<Uuid>(), Err(ParseUuidError));
    }
}
