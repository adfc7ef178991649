//! Man pages and shell completion, made from the command line's definition.

use std::fs;
use std::path::Path;

use clap::CommandFactory;

use crate::cli::Cli;
use crate::failure::Failure;
use crate::output;

/// `loligo completion SHELL`.
pub(crate) fn completion(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "loligo", &mut script);
    output::show_text(format_args!("{}", String::from_utf8_lossy(&script)));
    Ok(())
}

/// `loligo man DIR`: loligo.1, loligo-up.1, ...
pub(crate) fn man(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir)
        .map_err(|e| Failure::new(format!("cannot create {}: {e}", dir.display())))?;
    clap_mangen::generate_to(Cli::command(), dir)
        .map_err(|e| Failure::new(format!("cannot write into {}: {e}", dir.display())))
}
