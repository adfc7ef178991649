//! Why the manager does not start.

use core::fmt;

use monclient::{MonError, SettingsError};

/// The configuration or the monitors are at fault; the manager has not been started.
#[derive(Debug)]
pub enum MgrError {
    /// The configuration does not say who we are or where the monitors are.
    Settings(SettingsError),
    /// No address to listen on is free.
    Bind(std::io::Error),
    /// The monitors refuse us.
    Mon(MonError),
}

impl fmt::Display for MgrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MgrError::Settings(e) => e.fmt(f),
            MgrError::Bind(e) => write!(f, "cannot listen: {e}"),
            MgrError::Mon(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for MgrError {}
