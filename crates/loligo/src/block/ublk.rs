//! `loligo ublk`: what to do where one would attach an image through the kernel's ublk driver
//! (`Documentation/block/ublk.rst` of Linux 6.0 and later). Images are served over NBD only: a
//! driver for ublk is not written until it can be run on a kernel that has it.

use std::path::Path;

use super::cli::UblkArgs;
use crate::failure::Failure;

/// Where the driver is asked for devices.
const CONTROL: &str = "/dev/ublk-control";

/// Runs the command: it says why it cannot, and what does.
pub(crate) fn run(args: &UblkArgs) -> Result<(), Failure> {
    Err(Failure::new(advice(&args.image.to_string(), Path::new(CONTROL).exists())))
}

fn advice(image: &str, has_driver: bool) -> String {
    let why = match has_driver {
        true => format!("this kernel has ublk ({CONTROL}), but this release does not serve it yet"),
        false => format!(
            "this kernel has no ublk: {CONTROL} is missing (it comes with `modprobe ublk_drv` on \
             Linux 6.0 or later built with CONFIG_BLK_DEV_UBLK)"
        ),
    };
    format!(
        "{why}. As a block device over NBD: `loligo nbd serve {image} --socket /tmp/image.sock`, then \
         `nbd-client -unix /tmp/image.sock /dev/nbd0` or `qemu-nbd`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_names_what_is_missing_and_what_works() {
        let missing = advice("rbd/image", false);
        assert!(missing.contains("modprobe ublk_drv") && missing.contains("Linux 6.0"), "{missing}");
        for said in [missing, advice("rbd/image", true)] {
            assert!(said.contains("loligo nbd serve rbd/image "), "{said}");
        }
    }
}
