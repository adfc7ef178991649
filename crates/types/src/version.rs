//! Versions of objects and log entries: `epoch'version`.

use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

use denc::Denc;

/// A version inside a PG, ordered by epoch first. Wire: eversion_t (u64 version, u32 epoch).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Denc)]
pub struct EVersion {
    /// Counts the PG's writes; never goes back within an interval.
    pub version: u64,
    /// The epoch the write happened in.
    pub epoch: u32,
}

impl EVersion {
    /// 0'0: nothing.
    pub const ZERO: EVersion = EVersion { version: 0, epoch: 0 };
    /// Above every version there can be.
    pub const MAX: EVersion = EVersion { version: u64::MAX, epoch: u32::MAX };

    /// `epoch'version`.
    pub const fn new(epoch: u32, version: u64) -> EVersion {
        EVersion { version, epoch }
    }

    /// Whether this is 0'0.
    pub fn is_zero(&self) -> bool {
        *self == EVersion::ZERO
    }

    /// The smallest version above this one of the same epoch.
    pub fn next(&self) -> EVersion {
        EVersion { version: self.version.saturating_add(1), ..*self }
    }

    /// The key under which a log entry is stored: ten digits of epoch, twenty of version, so
    /// that byte order is version order (`src/osd/osd_types.cc`, get_key_name).
    pub fn key_name(&self) -> String {
        self.key().into_iter().map(char::from).collect()
    }

    /// [`EVersion::key_name`] as bytes. Four of these are made for each write, so without the
    /// formatting machinery.
    pub fn key(&self) -> [u8; EVersion::KEY_LEN] {
        let mut digits = [b'0'; EVersion::KEY_LEN];
        digits[10] = b'.';
        put_digits(&mut digits[..10], self.epoch.into());
        put_digits(&mut digits[11..], self.version);
        digits
    }

    /// Bytes of a key.
    pub const KEY_LEN: usize = 31;
}

/// Fills the end of a text of zeros with a number.
fn put_digits(text: &mut [u8], mut number: u64) {
    for place in text.iter_mut().rev() {
        if number == 0 {
            return;
        }
        *place = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

impl Ord for EVersion {
    fn cmp(&self, other: &EVersion) -> Ordering {
        (self.epoch, self.version).cmp(&(other.epoch, other.version))
    }
}

impl PartialOrd for EVersion {
    fn partial_cmp(&self, other: &EVersion) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for EVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

impl FromStr for EVersion {
    type Err = ParseEVersionError;
    fn from_str(s: &str) -> Result<EVersion, ParseEVersionError> {
        let (epoch, version) = s.split_once('\'').ok_or(ParseEVersionError)?;
        Ok(EVersion {
            epoch: epoch.parse().map_err(|_| ParseEVersionError)?,
            version: version.parse().map_err(|_| ParseEVersionError)?,
        })
    }
}

/// The text is not `epoch'version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParseEVersionError;

impl fmt::Display for ParseEVersionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a version of the form epoch'version")
    }
}

impl std::error::Error for ParseEVersionError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_padded_with_zeros() {
        for (epoch, version) in
            [(0, 0), (5, 12), (u32::MAX, u64::MAX), (1_234_567_890, 9_876_543_210)]
        {
            assert_eq!(
                EVersion { version, epoch }.key_name(),
                format!("{epoch:010}.{version:020}")
            );
        }
    }
}
