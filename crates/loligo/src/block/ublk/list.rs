//! `loligo ublk --list` and `--stop`: the devices that the kernel has, whoever serves them.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use env::Env;

use super::control::Control;
use super::wire::{SECTOR, state};
use crate::block::spec::bytes_text;
use crate::failure::Failure;
use crate::output::show;

/// Commands at a time.
const COMMANDS: usize = 8;
/// How long a server gets to let its device go.
const PATIENCE: Duration = Duration::from_secs(60);

/// Shows all devices.
pub(super) async fn list(env: &Env) -> Result<(), Failure> {
    let control = Control::open(env, COMMANDS, "").await?;
    show!(
        "{:<14} {:>10}  {:<8} {:>6} {:>5}  SERVED BY",
        "DEVICE",
        "SIZE",
        "STATE",
        "QUEUES",
        "DEPTH"
    );
    for device in devices(Path::new("/dev"))? {
        // One that goes meanwhile is not shown.
        let Ok(info) = control.info(device).await else { continue };
        let size = control.sectors(device).await.map_or(0, |sectors| sectors * SECTOR);
        let (state, server) = match info.state {
            state::DEAD => ("dead", "nobody: `loligo ublk --stop` removes it".to_owned()),
            state::LIVE => ("live", server(info.pid)),
            state::QUIESCED => ("quiesced", "nobody: its server has died".to_owned()),
            _ => ("failing", "nobody: its server has died".to_owned()),
        };
        show!(
            "{:<14} {:>10}  {state:<8} {:>6} {:>5}  {server}",
            format!("/dev/ublkb{device}"),
            bytes_text(size),
            info.queues,
            info.depth
        );
    }
    Ok(())
}

/// Numbers of the devices there are, from the names of their doors for servers.
fn devices(dev: &Path) -> io::Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dev)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("ublkc"));
        found.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    found.sort_unstable();
    Ok(found)
}

/// A process by its number and command line.
fn server(pid: i32) -> String {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let command = String::from_utf8_lossy(&command).replace('\0', " ");
    format!("{pid} {}", command.trim_end())
}

/// Stops a device and removes it; its server ends by itself.
pub(super) async fn stop(env: &Env, device: u32, force: bool) -> Result<(), Failure> {
    let control = Control::open(env, COMMANDS, "").await?;
    let path = format!("/dev/ublkb{device}");
    let info = control.info(device).await.map_err(|e| match e.raw_os_error() {
        Some(libc::ENODEV) => Failure::new(format!("there is no {path}; `loligo ublk --list`")),
        Some(libc::EPERM | libc::EACCES) => Failure::new(format!("{path}: {e}: run this as root")),
        _ => Failure::new(format!("{path}: {e}")),
    })?;
    if info.state == state::LIVE && !force && is_used(&path) {
        return Err(Failure::new(format!(
            "{path} is in use (a file system?): unmount it first, or --force"
        )));
    }
    let stopping = async {
        control.stop(device).await?;
        control.remove(device).await
    };
    match env.timeout(PATIENCE, stopping).await {
        Ok(result) => result.map_err(|e| Failure::new(format!("{path}: {e}"))),
        Err(_) => Err(Failure::new(format!(
            "{path} is not gone after {} s: somebody has it open still, or its server waits for the \
             cluster ({})",
            PATIENCE.as_secs(),
            server(info.pid)
        ))),
    }
}

/// Whether somebody keeps the device to himself, as a mounted file system does.
fn is_used(path: &str) -> bool {
    let exclusive = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path);
    exclusive.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_name_in_order() {
        let dir = std::env::temp_dir().join(format!("loligo-ublk-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for name in ["ublkc10", "ublkc2", "ublkb2", "ublk-control", "ublkcx", "null"] {
            fs::write(dir.join(name), "").unwrap();
        }
        let found = devices(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found.unwrap(), [2, 10]);
    }
}
