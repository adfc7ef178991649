//! `loligo ublk`: an image as a block device of this machine's kernel, `/dev/ublkbN`, without a
//! network protocol between (docs/nbd.md).
//!
//! One thread does it all: the image's client, the ring of commands and the copies of bytes.

mod control;
mod device;
mod list;
mod queue;
mod ring;
mod wire;

use env::Env;

use super::cli::UblkArgs;
use crate::failure::Failure;
use crate::logging;

/// Runs the command.
pub(crate) fn run(args: UblkArgs) -> Result<(), Failure> {
    logging::start();
    env::real::Runtime::new()?.block_on(|env: Env| async move {
        match (&args.image, &args.stop) {
            (Some(image), _) => device::attach(&env, image, &args).await,
            (None, Some(device)) => list::stop(&env, *device, args.force).await,
            (None, None) => list::list(&env).await,
        }
    })
}

/// Reads `/dev/ublkb3`, `ublkb3` or `3`.
pub(crate) fn parse_device(text: &str) -> Result<u32, String> {
    let number = text.trim_start_matches("/dev/").trim_start_matches("ublkb");
    number.parse().map_err(|_| "write /dev/ublkbN or N".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_as_people_write_them() {
        for text in ["/dev/ublkb3", "ublkb3", "3"] {
            assert_eq!(parse_device(text), Ok(3));
        }
        assert!(parse_device("/dev/sda").is_err() && parse_device("").is_err());
    }
}
