//! The binary: command line, configuration, and the wiring of crates into daemons.

mod admin_socket;
mod block;
mod cli;
mod daemon;
mod down;
mod failure;
mod host;
mod laboratory;
mod layout;
mod logging;
mod output;
mod pages;
mod process;
mod session;
mod simulate;
mod status;
mod store_tool;
mod stores;
mod up;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};

/// A daemon allocates a few hundred times for each write; see docs/dependencies.md for what this
/// one saves.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Up(args) => up::up(&args),
        Command::Down(args) => down::down(&args),
        Command::Status(args) => status::status(&args),
        Command::Mon(args) => daemon::run("mon", &args),
        Command::Mgr(args) => daemon::run("mgr", &args),
        Command::Osd(args) => daemon::run("osd", &args),
        Command::Rbd(args) => block::rbd::run(args),
        Command::Bench(args) => block::bench::run(args),
        Command::Nbd(args) => block::nbd::run(args),
        Command::Store(args) => store_tool::run(args),
        Command::Sim(args) => simulate::simulate(&args),
        Command::Lab(args) => laboratory::run(&args),
        Command::Completion { shell } => pages::completion(shell),
        Command::Man { dir } => pages::man(&dir),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("loligo: {failure}");
            ExitCode::FAILURE
        }
    }
}
