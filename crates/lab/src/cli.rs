//! The words of `loligo lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::LabError;

/// `loligo lab`.
#[derive(Debug, Args)]
pub struct LabArgs {
    /// The experiment.
    #[command(subcommand)]
    pub command: LabCommand,
}

/// The experiments.
#[derive(Debug, Subcommand)]
pub enum LabCommand {
    /// Bytes written for one write each: figure 4 of the paper
    Micro(MicroArgs),
    /// List the backends that experiments know
    Backends,
}

/// What all experiments are told.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Backends, with commas; all: every one this binary has (see 'lab backends')
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "all")]
    pub backend: Vec<String>,
    /// Folder of the results; an experiment that was interrupted goes on there
    #[arg(long, value_name = "DIR", default_value = "./loligo-lab")]
    pub out: PathBuf,
    /// Folder for the clusters' data; it is removed behind each [default: a temporary one]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// What lies under the OSDs' folders
    #[arg(long, value_enum, default_value = "files")]
    pub disk: DiskKind,
    /// Forget results that are there and measure all anew
    #[arg(long)]
    pub anew: bool,
}

/// Where OSDs keep their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiskKind {
    /// Files of the folder's own file system: its metadata and journal cannot be told apart
    Files,
    /// XFS on a loop device, its journal on another, both counted by the kernel (root only)
    Xfs,
}

/// `loligo lab micro`.
#[derive(Debug, Clone, Args)]
pub struct MicroArgs {
    /// What all experiments are told.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Request sizes, with commas [default: 4K to 4M, doubling]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_bytes)]
    pub sizes: Vec<u64>,
}

/// Reads `4K`, `1GiB`, `512`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = config::parse_iec(text).and_then(|n| u64::try_from(n).ok());
    bytes.filter(|n| *n > 0).ok_or_else(|| format!("{text:?} is not a size like 4K or 1G"))
}

/// Writes 4096 as `4K`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let unit = UNITS.iter().find(|(_, shift)| bytes >> shift > 0 && bytes % (1 << shift) == 0);
    unit.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

impl MicroArgs {
    /// The sizes to measure.
    pub(crate) fn request_sizes(&self) -> Result<Vec<u64>, LabError> {
        if self.sizes.is_empty() {
            return Ok((12..=22).map(|shift| 1u64 << shift).collect());
        }
        match self.sizes.iter().find(|size| **size > 4 << 20) {
            None => Ok(self.sizes.clone()),
            Some(size) => Err(LabError::new(format!(
                "--sizes {}: an object has 4M, and a request stays in one",
                bytes_text(*size)
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_written() {
        for (text, bytes) in [("4K", 4096), ("512", 512), ("4M", 4 << 20), ("1536", 1536)] {
            assert_eq!(parse_bytes(text), Ok(bytes));
            assert_eq!(bytes_text(bytes), text);
        }
        assert!(parse_bytes("0").is_err() && parse_bytes("x").is_err());
    }
}
