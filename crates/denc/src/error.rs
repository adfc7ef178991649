//! What can be wrong with bytes from outside.

use core::fmt;

/// The sender is at fault; the message, connection or operation that carried the bytes fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Fewer bytes left than the value needs.
    Truncated {
        /// Bytes the value needs.
        need: usize,
        /// Bytes there are.
        have: usize,
    },
    /// The encoding asks for a newer reader than this one.
    Incompatible {
        /// Name of the struct.
        what: &'static str,
        /// Oldest reader version that may read it.
        compat: u8,
        /// What this reader knows.
        known: u8,
    },
    /// The encoding is older than any this reader accepts.
    TooOld {
        /// Name of the struct.
        what: &'static str,
        /// Version found.
        version: u8,
        /// Oldest version read.
        oldest: u8,
    },
    /// A field holds a value its type does not have.
    Invalid {
        /// Name of the struct or field.
        what: &'static str,
        /// The value, as a number.
        value: u64,
    },
    /// A string is not UTF-8 where Ceph's is text.
    NotUtf8,
    /// Bytes left behind a value that should have filled its buffer.
    TrailingBytes {
        /// How many.
        left: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Truncated { need, have } => {
                write!(f, "truncated: need {need} bytes, have {have}")
            }
            Error::Incompatible { what, compat, known } => {
                write!(f, "{what} needs a reader of version {compat}, this one knows {known}")
            }
            Error::TooOld { what, version, oldest } => {
                write!(f, "{what} has version {version}, older than the oldest read, {oldest}")
            }
            Error::Invalid { what, value } => write!(f, "{what} cannot be {value:#x}"),
            Error::NotUtf8 => write!(f, "a text is not UTF-8"),
            Error::TrailingBytes { left } => write!(f, "{left} bytes follow the value"),
        }
    }
}

impl std::error::Error for Error {}
