//! `loligo down`: stops the daemons of a cluster's folder. Their data stays.

use crate::cli::DirArgs;
use crate::failure::Failure;
use crate::layout::Layout;
use crate::output::tell;
use crate::process;

/// Runs the command.
pub(crate) fn down(args: &DirArgs) -> Result<(), Failure> {
    let layout = Layout::open(&args.dir)?;
    let _lock = layout.lock()?;
    if layout.read_conf()?.is_none() {
        return Err(Failure::new(format!("{} holds no cluster", layout.dir().display())));
    }
    let stopped = process::stop_all(&layout);
    if stopped.names.is_empty() {
        tell!("nothing was running in {}", layout.dir().display());
    } else {
        tell!("stopped {}", stopped.names.join(", "));
    }
    stopped.well()
}
