//! The driver's side door: devices are made, started, stopped and removed by commands to
//! `/dev/ublk-control`. Errors say what to do.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::rc::Rc;

use env::Env;

use super::ring::{Ring, outcome};
use super::wire::{self, CONTROL_PATH, DeviceInfo, INFO_LEN, PARAMS_LEN, Params, feature, op};
use crate::failure::Failure;

/// Any number for a new device.
pub(super) const ANY_DEVICE: u32 = u32::MAX;

/// The control device.
#[derive(Clone)]
pub(super) struct Control {
    pub(super) ring: Rc<Ring>,
    file: Rc<dyn AsRawFd>,
}

impl Control {
    /// Opens it, for `commands` at a time; fails where the kernel's driver is missing or too old.
    /// `instead` says what else would do.
    pub(super) async fn open(
        env: &Env,
        commands: usize,
        instead: &str,
    ) -> Result<Control, Failure> {
        let file = open_control(Path::new(CONTROL_PATH))
            .map_err(|e| Failure::new(format!("{}{instead}", why_not(&e))))?;
        let ring = Ring::new(env, commands).map_err(|e| {
            Failure::new(format!(
                "io_uring is refused here ({e}), and ublk needs it: see the sysctl \
                 kernel.io_uring_disabled and what a container forbids{instead}"
            ))
        })?;
        let control = Control { ring, file: Rc::new(file) };
        let needed = feature::IOCTL_ENCODE | feature::USER_COPY;
        if control.features().await.is_none_or(|found| found & needed != needed) {
            return Err(Failure::new(format!(
                "this kernel's ublk is older than Linux 6.5, which is needed{instead}"
            )));
        }
        Ok(control)
    }

    async fn command(
        &self,
        op: u32,
        device: u32,
        buffer: &[u8],
        data: u64,
    ) -> (io::Result<()>, Box<[u8]>) {
        let fill = |buffer: &mut [u8]| wire::control(device, buffer, data);
        let (result, buffer) = self.ring.command(self.file.clone(), op, buffer.into(), fill).await;
        (outcome(result), buffer)
    }

    /// What the driver can do; `None` where it does not say.
    async fn features(&self) -> Option<u64> {
        let (result, buffer) = self.command(op::GET_FEATURES, ANY_DEVICE, &[0; 8], 0).await;
        result.ok()?;
        Some(u64::from_ne_bytes(buffer[..].try_into().ok()?))
    }

    /// Makes a device; what became of the wishes.
    pub(super) async fn add(&self, wanted: &DeviceInfo) -> io::Result<DeviceInfo> {
        let (result, buffer) = self.command(op::ADD_DEV, wanted.device, &wanted.encode(), 0).await;
        result.and_then(|()| info(&buffer))
    }

    pub(super) async fn set_params(&self, device: u32, params: &Params) -> io::Result<()> {
        self.command(op::SET_PARAMS, device, &params.encode(), 0).await.0
    }

    /// Shows the device; ends when all of its tags wait for requests and the kernel has looked
    /// for partitions.
    pub(super) async fn start(&self, device: u32) -> io::Result<()> {
        self.command(op::START_DEV, device, &[], std::process::id().into()).await.0
    }

    /// Takes the device away from its users: the kernel writes what it still holds, and then
    /// gives all commands of its queues back.
    pub(super) async fn stop(&self, device: u32) -> io::Result<()> {
        self.command(op::STOP_DEV, device, &[], 0).await.0
    }

    /// Removes the device; ends when nobody has it open any more. No harm if it is gone already.
    pub(super) async fn remove(&self, device: u32) -> io::Result<()> {
        match self.command(op::DEL_DEV, device, &[], 0).await.0 {
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Ok(()),
            result => result,
        }
    }

    pub(super) async fn info(&self, device: u32) -> io::Result<DeviceInfo> {
        let (result, buffer) = self.command(op::GET_DEV_INFO, device, &[0; INFO_LEN], 0).await;
        result.and_then(|()| info(&buffer))
    }

    /// Its size in sectors.
    pub(super) async fn sectors(&self, device: u32) -> io::Result<u64> {
        let mut ask = [0; PARAMS_LEN];
        ask[..4].copy_from_slice(&(PARAMS_LEN as u32).to_ne_bytes());
        let (result, buffer) = self.command(op::GET_PARAMS, device, &ask, 0).await;
        result?;
        let params = buffer[..].try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(wire::sectors_of(params))
    }
}

fn info(buffer: &[u8]) -> io::Result<DeviceInfo> {
    let bytes: &[u8; INFO_LEN] = buffer.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
    Ok(DeviceInfo::decode(bytes))
}

fn open_control(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_CLOEXEC).open(path)
}

/// Why the driver cannot be asked.
fn why_not(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!(
            "this kernel has no ublk: {CONTROL_PATH} is missing (it comes with `modprobe ublk_drv` \
             on Linux 6.5 or later built with CONFIG_BLK_DEV_UBLK)"
        ),
        io::ErrorKind::PermissionDenied => {
            format!("{CONTROL_PATH} may not be opened: run this as root")
        }
        _ => format!("{CONTROL_PATH} cannot be opened: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        let missing = open_control(Path::new("/nonexistent/ublk-control")).unwrap_err();
        let said = why_not(&missing);
        assert!(said.contains("modprobe ublk_drv") && said.contains("Linux 6.5"), "{said}");
        let said = why_not(&io::ErrorKind::PermissionDenied.into());
        assert!(said.contains("as root"), "{said}");
    }
}
