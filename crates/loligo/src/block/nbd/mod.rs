//! `loligo nbd`: images as network block devices, fixed newstyle with structured replies
//! (docs/nbd.md; the protocol is NetworkBlockDevice/nbd doc/proto.md).

mod handshake;
mod incoming;
mod list;
mod server;
mod transmission;
mod wire;

use crate::failure::Failure;

use super::cli::{NbdArgs, NbdCommand};

/// Runs the command.
pub(crate) fn run(args: NbdArgs) -> Result<(), Failure> {
    match args.command {
        NbdCommand::Serve(serve) => server::run(args.cluster, serve),
        NbdCommand::List { server } => list::run(&server),
    }
}
