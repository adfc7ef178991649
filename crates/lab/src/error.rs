//! Why an experiment could not be done.

use std::fmt;

/// One line that says what happened and what to do.
#[derive(Debug)]
pub struct LabError {
    line: String,
    /// It is what a backend under test did, and so can be a result.
    by_backend: bool,
}

impl LabError {
    /// With this line.
    pub fn new(line: impl Into<String>) -> LabError {
        LabError { line: line.into(), by_backend: false }
    }

    /// What a backend under test did.
    pub(crate) fn by_backend(line: impl Into<String>) -> LabError {
        LabError { line: line.into(), by_backend: true }
    }

    pub(crate) fn is_by_backend(&self) -> bool {
        self.by_backend
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.line)
    }
}

impl From<std::io::Error> for LabError {
    fn from(e: std::io::Error) -> LabError {
        LabError::new(e.to_string())
    }
}

impl From<client::ClientError> for LabError {
    fn from(e: client::ClientError) -> LabError {
        LabError::by_backend(format!("the cluster under test: {e}"))
    }
}
