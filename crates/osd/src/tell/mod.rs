//! Commands to this OSD: `ceph tell osd.N`, `ceph daemon`, `ceph pg ID ...`.

use std::rc::Rc;

use bytes::Bytes;
use command::{CommandMap, CommandReply};
use env::LocalFuture;
use types::Errno;

use crate::osd::Osd;

/// The release whose protocol and commands are spoken.
pub const VERSION: &str = "16.2.15";

/// As `ceph version` prints it.
pub fn version_text() -> String {
    format!("ceph version {VERSION} (loligo {}) pacific (stable)", env!("CARGO_PKG_VERSION"))
}

/// Runs a command given as JSON. `admin`: from the admin socket.
pub fn run(
    osd: Rc<Osd>,
    cmd: Vec<String>,
    input: Bytes,
    admin: bool,
) -> LocalFuture<CommandReply> {
    let _ = (&osd, input, admin);
    let map = match CommandMap::parse(&cmd) {
        Ok(map) => map,
        Err(e) => {
            let reply = CommandReply::error(Errno::EINVAL.0, format!("{e:?}"));
            return Box::pin(async move { reply });
        }
    };
    if let Some(reply) = config::admin_command(&osd.config, &map) {
        return Box::pin(async move { reply });
    }
    Box::pin(async move { CommandReply::error(Errno::EINVAL.0, "no valid command found") })
}
