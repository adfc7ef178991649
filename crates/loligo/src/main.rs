//! The binary: command line, configuration, and the wiring of crates into daemons.

mod addresses;
mod admin_socket;
mod allocator;
mod block;
mod cli;
mod code;
mod crush_location;
mod daemon;
mod down;
mod environment;
mod failure;
mod guests;
mod host;
mod household;
mod laboratory;
mod layout;
mod logging;
mod memory;
mod mon_store;
mod monmap;
mod output;
mod pages;
mod process;
mod session;
mod simulate;
mod start;
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
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Keeps the allocator from being given memory in pieces of 2 MiB, of which an idle daemon uses a
/// tenth: 10 MiB of each daemon's 38 MiB were that. Daemons that this process starts inherit it.
fn without_huge_pages() {
    // SAFETY: the call takes numbers only. An old kernel refuses, which costs memory, nothing else.
    unsafe {
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
}

fn main() -> ExitCode {
    without_huge_pages();
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Up(args) => up::up(&args),
        Command::Down(args) => down::down(&args),
        Command::Status(args) => status::status(&args),
        Command::Mon(args) => monmap::run(&args),
        Command::Mgr(args) => daemon::run_one("mgr", &args.id, &args.start, &args.start.set),
        Command::Osd(args) => daemon::run_osds(&args),
        Command::Rbd(args) => block::rbd::run(args),
        Command::Bench(args) => block::bench::run(args),
        Command::Nbd(args) => block::nbd::run(args),
        Command::Ublk(args) => block::ublk::run(args),
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
