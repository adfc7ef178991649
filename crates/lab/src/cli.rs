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
    /// IOPS, latency and bytes by cause under many random writes: figures 5 to 8, tables I to III
    Longterm(LongtermArgs),
    /// WAF, IOPS and latency over queue depths
    Sweep(SweepArgs),
    /// Where one write went, byte by byte, in each backend
    Explain(ExplainArgs),
    /// Make the plots and the report again from the results that are there
    Report {
        /// Folder of the results
        #[arg(long, value_name = "DIR", default_value = "./loligo-lab")]
        out: PathBuf,
    },
    /// List the backends that experiments know
    Backends,
}

/// What all experiments are told.
#[derive(Debug, Clone, Args)]
pub struct CommonArgs {
    /// Backends, with commas; all: every one this binary has (see 'lab backends')
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "all"
    )]
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

/// Which blocks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Any, each as likely as any other
    Random,
    /// Few of them often, most seldom (zipf, theta 1.1)
    Zipf,
    /// One after the other
    Sequential,
}

impl Pattern {
    /// In results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Pattern::Random => "random",
            Pattern::Zipf => "zipf",
            Pattern::Sequential => "sequential",
        }
    }
}

/// `loligo lab longterm`.
#[derive(Debug, Clone, Args)]
pub struct LongtermArgs {
    /// What all experiments are told.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Size of the image; 90 % of it are written (the paper's: 64G)
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "256M")]
    pub size: u64,
    /// Size of each OSD [default: four times the image, 1G at least]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub osd_size: Option<u64>,
    /// Bytes of a write
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4K")]
    pub bs: u64,
    /// Writes under way
    #[arg(long, value_name = "N", default_value_t = 128,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub iodepth: u32,
    /// The pattern
    #[arg(long, value_enum, default_value = "random")]
    pub rw: Pattern,
    /// Write twice the image's size first
    #[arg(long)]
    pub aged: bool,
    /// The same number gives the same offsets
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Seconds between samples
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub sample: f64,
}

impl LongtermArgs {
    /// Bytes to write.
    pub(crate) fn written(&self) -> u64 {
        self.requests() * self.bs
    }

    /// Writes to make.
    pub(crate) fn requests(&self) -> u64 {
        (self.size / 10 * 9 / self.bs).max(1)
    }

    /// Writes to make before.
    pub(crate) fn ageing(&self) -> u64 {
        if self.aged {
            self.size * 2 / self.bs
        } else {
            0
        }
    }

    /// Bytes of each OSD.
    pub(crate) fn osd_bytes(&self) -> u64 {
        self.osd_size.unwrap_or((self.size * 4).max(1 << 30))
    }

    /// What cannot be done.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        if !self.bs.is_power_of_two() || self.bs > 4 << 20 || self.bs < 512 {
            return Err(LabError::new("--bs: a power of two from 512 to 4M"));
        }
        if self.size < self.bs || self.size % self.bs != 0 {
            return Err(LabError::new("--size: a multiple of --bs"));
        }
        if !(self.sample >= 0.05) {
            return Err(LabError::new("--sample: 0.05 seconds at least"));
        }
        Ok(())
    }
}

/// `loligo lab sweep`.
#[derive(Debug, Clone, Args)]
pub struct SweepArgs {
    /// Queue depths, with commas
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "1,4,16,64,256"
    )]
    pub depths: Vec<u32>,
    /// The load; its --iodepth counts for nothing here.
    #[command(flatten)]
    pub load: LongtermArgs,
}

/// `loligo lab explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// What all experiments are told.
    #[command(flatten)]
    pub common: CommonArgs,
    /// Bytes of the write
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4K")]
    pub bs: u64,
}

/// Reads `4K`, `1GiB`, `512`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let bytes = config::parse_iec(text).and_then(|n| u64::try_from(n).ok());
    bytes
        .filter(|n| *n > 0)
        .ok_or_else(|| format!("{text:?} is not a size like 4K or 1G"))
}

/// Writes 4096 as `4K`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let unit = UNITS
        .iter()
        .find(|(_, shift)| bytes >> shift > 0 && bytes % (1 << shift) == 0);
    unit.map_or_else(
        || bytes.to_string(),
        |(unit, shift)| format!("{}{unit}", bytes >> shift),
    )
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
