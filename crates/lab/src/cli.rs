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
    /// WAF, IOPS, latency, CPU and memory over queue depths, request sizes or patterns
    Sweep(SweepArgs),
    /// The same loads on a real Ceph and on ours, on the same kind of devices (root only)
    Compare(CompareArgs),
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

impl LabCommand {
    /// What an experiment with clusters is told.
    pub(crate) fn common(&self) -> Option<&CommonArgs> {
        match self {
            LabCommand::Micro(args) => Some(&args.common),
            LabCommand::Longterm(args) => Some(&args.common),
            LabCommand::Sweep(args) => Some(&args.load.common),
            LabCommand::Compare(args) => Some(&args.load.common),
            LabCommand::Explain(args) => Some(&args.common),
            LabCommand::Report { .. } | LabCommand::Backends => None,
        }
    }
}

impl CommonArgs {
    /// The folder for clusters, from the root on: links to devices in it are followed from
    /// elsewhere.
    pub(crate) fn data(&self) -> PathBuf {
        let data = self.data.clone().unwrap_or_else(std::env::temp_dir);
        std::path::absolute(&data).unwrap_or(data)
    }
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
    /// What XFS's journal is written in, with --disk xfs: 4K to 256K, as mkfs.xfs chooses 4K on
    /// drives with sectors of 4 KiB [default: sectors of 512 bytes]
    #[arg(long, value_name = "SIZE", value_parser = parse_log_unit)]
    pub log_unit: Option<u64>,
    /// Options of the daemons, after those a backend is made with; given again for each
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<String>,
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
    /// Clusters at a time: bytes are counted, not time, and most of each cluster's is waiting
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=16))]
    pub jobs: u32,
}

/// Which blocks are written, and what a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// Any, each as likely as any other
    Random,
    /// Few of them often, most seldom (zipf, theta 1.1)
    Zipf,
    /// One after the other
    Sequential,
    /// Values of omap keys at random, instead of an image's blocks
    Omap,
    /// Small objects at random: one that is not there is written, one that is there is removed
    Delete,
}

impl Pattern {
    /// In results.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Pattern::Random => "random",
            Pattern::Zipf => "zipf",
            Pattern::Sequential => "sequential",
            Pattern::Omap => "omap",
            Pattern::Delete => "delete",
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
    /// Overwrite the image at random first, until twice the size of an OSD has been written to each
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
    /// Bytes to write, if every request writes.
    pub(crate) fn written(&self) -> u64 {
        self.requests() * self.bs
    }

    /// Writes to make.
    pub(crate) fn requests(&self) -> u64 {
        (self.size / 10 * 9 / self.bs).max(1)
    }

    /// Writes to make before.
    pub(crate) fn ageing(&self) -> u64 {
        if self.aged { self.osd_bytes() * 2 / self.ageing_bs() } else { 0 }
    }

    /// Bytes of each of those.
    pub(crate) fn ageing_bs(&self) -> u64 {
        self.bs.max(4096)
    }

    /// Blocks that the load chooses from. Objects that come and go are few, so that each is
    /// written and removed several times.
    pub(crate) fn blocks(&self) -> u64 {
        match self.rw {
            Pattern::Delete => (self.requests() / 8).max(1),
            _ => self.size / self.bs,
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
        if self.rw == Pattern::Omap && self.bs > 64 << 10 {
            return Err(LabError::new("--rw omap: values of 64K at most (--bs)"));
        }
        if self.size < self.bs || !self.size.is_multiple_of(self.bs) {
            return Err(LabError::new("--size: a multiple of --bs"));
        }
        if !(0.05..=86400.0).contains(&self.sample) {
            return Err(LabError::new("--sample: 0.05 seconds at least, 86400 at most"));
        }
        Ok(())
    }
}

/// `loligo lab sweep`.
#[derive(Debug, Clone, Args)]
pub struct SweepArgs {
    /// Queue depths, with commas [default, if nothing else is swept: 1,4,16,64,256]
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depths: Vec<u32>,
    /// Request sizes, with commas, 512 to 4M
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_bytes)]
    pub sizes: Vec<u64>,
    /// Patterns, with commas
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    pub patterns: Vec<Pattern>,
    /// The load of which one thing at a time is changed.
    #[command(flatten)]
    pub load: LongtermArgs,
}

/// `loligo lab compare`.
#[derive(Debug, Clone, Args)]
pub struct CompareArgs {
    /// Also on FileStore, BlueStore and KStore of the Ceph that is installed here
    #[arg(long)]
    pub with_ceph: bool,
    /// Request sizes of single writes, with commas, up to 4M
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_bytes,
          default_value = "4K,64K,1M,4M")]
    pub sizes: Vec<u64>,
    /// The load of many writes; devices are loop devices whatever --disk says.
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
    config::parse_bytes(text)
        .filter(|n| *n > 0)
        .ok_or_else(|| format!("{text:?} is not a size like 4K or 1G"))
}

/// Reads a stripe unit of XFS's journal: what mkfs.xfs takes for blocks of 4 KiB.
fn parse_log_unit(text: &str) -> Result<u64, String> {
    let is_unit = |n: &u64| n.is_power_of_two() && (4 << 10..=256 << 10).contains(n);
    let unit = parse_bytes(text)?;
    Some(unit).filter(is_unit).ok_or_else(|| format!("{text}: a power of two from 4K to 256K"))
}

/// Writes 4096 as `4K`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("T", 40), ("G", 30), ("M", 20), ("K", 10)];
    let unit =
        UNITS.iter().find(|(_, shift)| bytes >> shift > 0 && bytes.is_multiple_of(1 << shift));
    unit.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// Sizes of single writes that stay in an object; if none are given those of the paper.
pub(crate) fn request_sizes(sizes: &[u64]) -> Result<Vec<u64>, LabError> {
    if sizes.is_empty() {
        return Ok((12..=22).map(|shift| 1u64 << shift).collect());
    }
    match sizes.iter().find(|size| **size > 4 << 20) {
        None => Ok(sizes.to_vec()),
        Some(size) => Err(LabError::new(format!(
            "--sizes {}: an object has 4M, and a request stays in one",
            bytes_text(*size)
        ))),
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

    /// `--sample inf` panicked when the first sample was due.
    #[test]
    fn samples_are_as_far_apart_as_a_clock_can_say() {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: LongtermArgs,
        }
        let check = |sample: &str| {
            let line: Line = clap::Parser::try_parse_from(["lab", "--sample", sample]).unwrap();
            line.args.check().is_ok()
        };
        assert!(check("0.05") && check("86400"));
        assert!(!check("inf") && !check("1e300") && !check("nan") && !check("0"));
    }
}
