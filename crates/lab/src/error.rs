//! Why an experiment could not be done.

use std::fmt;

/// One line that says what happened and what to do.
#[derive(Debug)]
pub struct LabError(String);

impl LabError {
    /// With this line.
    pub fn new(line: impl Into<String>) -> LabError {
        LabError(line.into())
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<std::io::Error> for LabError {
    fn from(e: std::io::Error) -> LabError {
        LabError(e.to_string())
    }
}

impl From<client::ClientError> for LabError {
    fn from(e: client::ClientError) -> LabError {
        LabError(format!("the cluster under test: {e}"))
    }
}
