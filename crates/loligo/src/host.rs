//! Facts about this machine and this build, as `ceph mon metadata` and `ceph osd metadata` show
//! them (`src/common/util.cc`, collect_sys_info, at v16.2).

use std::collections::BTreeMap;
use std::fs;

use config::Config;

/// The value of `key` in a file of `key<sep>value` lines.
fn line_value(path: &str, key: &str, separator: char) -> Option<String> {
    fs::read_to_string(path).ok()?.lines().find_map(|line| {
        let (found, value) = line.split_once(separator)?;
        (found.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
    })
}

fn kernel(file: &str) -> String {
    let text = fs::read_to_string(format!("/proc/sys/kernel/{file}"));
    text.unwrap_or_default().trim().to_owned()
}

/// Ceph's words for host and build.
pub(crate) fn metadata(config: &Config) -> BTreeMap<String, String> {
    let os = |key| line_value("/etc/os-release", key, '=').unwrap_or_default();
    let memory = |key| {
        let text = line_value("/proc/meminfo", key, ':').unwrap_or_default();
        text.split_whitespace().next().unwrap_or("0").to_owned()
    };
    [
        ("arch", std::env::consts::ARCH.to_owned()),
        ("ceph_release", command::version::RELEASE.to_owned()),
        ("ceph_version", command::version::long()),
        ("ceph_version_short", command::version::SHORT.to_owned()),
        ("cpu", line_value("/proc/cpuinfo", "model name", ':').unwrap_or_default()),
        ("distro", os("ID")),
        ("distro_description", os("PRETTY_NAME")),
        ("distro_version", os("VERSION_ID")),
        ("hostname", config.host().to_owned()),
        ("kernel_description", kernel("version")),
        ("kernel_version", kernel("osrelease")),
        ("mem_swap_kb", memory("SwapTotal")),
        ("mem_total_kb", memory("MemTotal")),
        ("os", "Linux".to_owned()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), value))
    .collect()
}
