//! Facts about this machine and this build, as `ceph mon metadata` and `ceph osd metadata` show
//! them (`src/common/util.cc`, collect_sys_info, at v16.2).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use config::Config;
use types::UTime;

use crate::stores;

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

/// Names in the environment of a container, and the facts they give.
const CONTAINER: [(&str, &str); 4] = [
    ("CONTAINER_NAME", "container_name"),
    ("CONTAINER_IMAGE", "container_image"),
    ("POD_NAME", "pod_name"),
    ("POD_NAMESPACE", "pod_namespace"),
];

/// The block device under a path: its name (`sda`, not the partition), if the kernel names one.
fn device_under(path: &Path) -> Option<String> {
    let stat = fs::metadata(path).ok()?;
    let number = if stat.file_type().is_block_device() { stat.rdev() } else { stat.dev() };
    let (major, minor) = (libc::major(number), libc::minor(number));
    let entry = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    let disk = if entry.join("partition").exists() { entry.parent()?.to_owned() } else { entry };
    Some(disk.file_name()?.to_str()?.to_owned())
}

/// `MODEL_SERIAL` of a device as udev knows it.
fn device_id(device: &str) -> Option<String> {
    let number = fs::read_to_string(format!("/sys/block/{device}/dev")).ok()?;
    let database = format!("/run/udev/data/b{}", number.trim());
    let of = |key| line_value(&database, key, '=').filter(|value| !value.is_empty());
    let serial = of("E:ID_SERIAL_SHORT");
    match (of("E:ID_VENDOR"), of("E:ID_MODEL"), serial) {
        (Some(vendor), Some(model), Some(serial)) => Some(format!("{vendor}_{model}_{serial}")),
        (None, Some(model), Some(serial)) => Some(format!("{model}_{serial}")),
        _ => of("E:ID_SERIAL"),
    }
}

/// Where a device is plugged in: its link in `/dev/disk/by-path`.
fn device_path(device: &str) -> Option<String> {
    let mut links: Vec<PathBuf> =
        fs::read_dir("/dev/disk/by-path").ok()?.filter_map(|e| Some(e.ok()?.path())).collect();
    links.sort();
    let leads_there = |link: &PathBuf| {
        fs::canonicalize(link).is_ok_and(|to| to.file_name().is_some_and(|name| name == device))
    };
    links.into_iter().find(leads_there).map(|link| link.display().to_string())
}

/// The devices that hold a daemon's data.
fn devices(path: &Path) -> [(&'static str, String); 3] {
    let device = device_under(path);
    let with = |of: fn(&str) -> Option<String>| {
        let found = device.as_deref().and_then(|d| Some(format!("{d}={}", of(d)?)));
        found.unwrap_or_default()
    };
    [
        ("device_ids", with(device_id)),
        ("device_paths", with(device_path)),
        ("devices", device.clone().unwrap_or_default()),
    ]
}

/// What is written beside a new OSD's store for [`facts`] to find again.
pub(crate) fn birth_facts(now: UTime) -> [(&'static str, String); 2] {
    [
        ("ceph_version_when_created", command::version::long()),
        ("created_at", now.gmtime().to_string()),
    ]
}

/// Ceph's words for host and build, and for the devices of the daemon's data.
pub(crate) fn facts(config: &Config) -> BTreeMap<String, String> {
    let os = |key| line_value("/etc/os-release", key, '=').unwrap_or_default();
    let memory = |key| {
        let text = line_value("/proc/meminfo", key, ':').unwrap_or_default();
        text.split_whitespace().next().unwrap_or("0").to_owned()
    };
    let mut all = vec![
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
    ];
    all.extend(CONTAINER.iter().filter_map(|(key, fact)| Some((*fact, std::env::var(key).ok()?))));
    match config.kind() {
        "mon" => {
            all.extend(devices(Path::new(&config.str("mon_data"))));
            // Of messenger frames: they are never compressed.
            all.push(("compression_algorithms", "none".to_owned()));
        }
        "osd" => all.extend(of_osd(config)),
        _ => {}
    }
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn of_osd(config: &Config) -> Vec<(&'static str, String)> {
    let data = PathBuf::from(config.str("osd_data"));
    let mut all: Vec<(&str, String)> = ["ceph_version_when_created", "created_at"]
        .into_iter()
        .map(|fact| (fact, fs::read_to_string(data.join(fact)).unwrap_or_default()))
        .map(|(fact, text)| (fact, text.trim().to_owned()))
        .collect();
    // Which interfaces have our addresses, and which processor they hang on, is not looked up.
    all.extend([
        ("back_iface", String::new()),
        ("front_iface", String::new()),
        ("network_numa_unknown_ifaces", "back_iface,front_iface".to_owned()),
    ]);
    if stores::is_in_memory(config) {
        all.extend(["device_ids", "device_paths", "devices"].map(|fact| (fact, String::new())));
    } else {
        all.extend(devices(&stores::place(config)));
    }
    all
}
