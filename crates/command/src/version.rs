//! Which release we speak as: clients compare these words.

/// The release whose protocol is spoken.
pub const SHORT: &str = "16.2.15";
/// Its name.
pub const RELEASE: &str = "pacific";

/// What is built here.
pub const BUILD: &str = concat!("loligo ", env!("CARGO_PKG_VERSION"));

/// What `ceph version` prints for a daemon.
pub fn long() -> String {
    format!("ceph version {SHORT} ({BUILD}) {RELEASE} (stable)")
}
