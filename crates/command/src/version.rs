//! Which release we speak as: clients compare these words.

/// The release whose protocol is spoken.
pub const SHORT: &str = "16.2.15";
/// Its name.
pub const RELEASE: &str = "pacific";

/// What is built here, in the place of Ceph's commit and as long as one.
pub fn build() -> String {
    format!("{:0<40}", concat!("loligo", env!("CARGO_PKG_VERSION")).replace('.', ""))
}

/// What `ceph version` prints for a daemon.
pub fn long() -> String {
    format!("ceph version {SHORT} ({}) {RELEASE} (stable)", build())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// There stood `(loligo 0.1.0)`, and ceph_exporter, which looks for one word of forty letters and digits, told no
    /// daemon's version.
    #[test]
    fn a_version_looks_like_cephs() {
        let version = long();
        let words: Vec<&str> = version.split(' ').collect();
        let ["ceph", "version", SHORT, build, RELEASE, "(stable)"] = words[..] else {
            panic!("{words:?}")
        };
        let build = build.strip_prefix('(').and_then(|build| build.strip_suffix(')')).unwrap();
        assert!(build.len() == 40 && build.bytes().all(|b| b.is_ascii_alphanumeric()), "{build}");
    }
}
