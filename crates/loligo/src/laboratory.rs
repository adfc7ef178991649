//! `loligo lab`: the laboratory with this binary under test.

use std::path::Path;

use auth::Keyring;
use config::Config;
use lab::Host;
use lab::cli::LabArgs;

use crate::daemon;
use crate::failure::Failure;
use crate::output::tell_text;
use crate::stores::STORES;

/// Runs the command.
pub(crate) fn run(args: &LabArgs) -> Result<(), Failure> {
    let host = Host {
        program: std::env::current_exe()?,
        stores: STORES.to_vec(),
        load,
        tell: |line| tell_text(format_args!("{line}\n")),
    };
    lab::run(args, &host).map_err(|e| Failure::new(e.to_string()))
}

fn load(path: &Path) -> Result<(Config, Keyring), String> {
    let config = daemon::load_made("client", "admin", path, &[]).map_err(|e| e.to_string())?;
    let keyring = daemon::read_keyring(&config).map_err(|e| e.to_string())?;
    Ok((config, keyring.unwrap_or_default()))
}
