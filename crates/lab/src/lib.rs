//! The laboratory: experiments on whole clusters that reproduce the tables and figures of
//! "Understanding Write Behaviors of Storage Backends in Ceph Object Store" (Lee et al.,
//! MSST 2017; "the paper" everywhere here) and go on where it ends.
//!
//! An experiment makes fresh clusters with `loligo up`, writes through the own client, reads the
//! stores' byte ledgers (`perf dump`) before and after, and keeps every finished piece in a file
//! at once, so that an interrupted run goes on where it stopped. `docs/lab.md` is the manual.
//!
//! Owns: the experiments, the sorting of bytes into the paper's causes, results as JSON and CSV,
//! plots and the report. Relies on: the binary to start clusters and to read a configuration
//! ([`Host`]); the `client` crate for everything said to a cluster.

mod backend;
mod causes;
mod cell;
mod ceph;
pub mod cli;
mod cluster;
mod compare;
mod disk;
mod ending;
mod error;
mod explain;
mod histogram;
mod load;
mod longterm;
mod look;
mod machine;
mod micro;
mod paper;
mod plot;
mod progress;
mod report;
mod results;
mod sweep;
mod table;
mod usage;

use std::path::{Path, PathBuf};

use auth::Keyring;
use config::Config;

pub use error::LabError;
pub use histogram::Histogram;

/// What the laboratory needs of the binary it is part of.
#[derive(Debug, Clone)]
pub struct Host {
    /// The binary itself, for `up` and `down`.
    pub program: PathBuf,
    /// What `up --store` accepts.
    pub stores: Vec<&'static str>,
    /// Reads a configuration for client.admin, and its keyring.
    pub load: fn(&Path) -> Result<(Config, Keyring), String>,
    /// Where text for the user goes: a line each.
    pub tell: fn(&str),
}

/// `loligo lab`.
pub fn run(args: &cli::LabArgs, host: &Host) -> Result<(), LabError> {
    if let Some(common) = args.command.common() {
        ending::prepare(&common.data(), host)?;
    }
    match &args.command {
        cli::LabCommand::Micro(args) => micro::run(args, host),
        cli::LabCommand::Longterm(args) => {
            args.check()?;
            longterm::run(args, host)
        }
        cli::LabCommand::Sweep(args) => {
            args.load.check()?;
            sweep::run(args, host)
        }
        cli::LabCommand::Compare(args) => {
            args.load.check()?;
            compare::run(args, host)
        }
        cli::LabCommand::Explain(args) => explain::run(args, host),
        cli::LabCommand::Report { out } => report::write(out, host),
        cli::LabCommand::Backends => {
            backend::all(host).iter().for_each(|b| (host.tell)(&b.line()));
            Ok(())
        }
    }
}
