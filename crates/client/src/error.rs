//! Why a call fails.

use core::fmt;

use monclient::{MonError, SettingsError};
use types::Errno;

/// Said by the cluster (`Errno`), or by this side of the wire (the others).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientError {
    /// The cluster refuses or fails the request.
    Errno(Errno),
    /// The configuration does not say who we are or where the monitors are.
    Settings(SettingsError),
    /// The monitors refuse us, or the session with them has ended.
    Mon(MonError),
    /// The client was shut down before the answer came.
    Closed,
    /// An answer does not decode.
    Decode(denc::Error),
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Errno(e) => e.fmt(f),
            ClientError::Settings(e) => e.fmt(f),
            ClientError::Mon(e) => e.fmt(f),
            ClientError::Closed => f.write_str("the client was shut down"),
            ClientError::Decode(e) => write!(f, "an answer does not decode: {e}"),
        }
    }
}

impl std::error::Error for ClientError {}

impl From<denc::Error> for ClientError {
    fn from(e: denc::Error) -> ClientError {
        ClientError::Decode(e)
    }
}

impl From<Errno> for ClientError {
    fn from(e: Errno) -> ClientError {
        ClientError::Errno(e)
    }
}

impl From<MonError> for ClientError {
    fn from(e: MonError) -> ClientError {
        match e {
            MonError::Closed => ClientError::Closed,
            MonError::Decode(e) => ClientError::Decode(e),
            e => ClientError::Mon(e),
        }
    }
}
