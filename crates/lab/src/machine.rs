//! The machine sheet: what the numbers were measured on.

use std::fs;

use serde_json::{Value, json};

fn field(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Processor, memory, kernel, the file system and device under `data`.
pub(crate) fn sheet(data: &std::path::Path) -> Value {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpus = std::thread::available_parallelism().map_or(0, |n| n.get());
    let mounts = read("/proc/self/mountinfo");
    let place = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    // The mount with the longest path that holds the folder: fields 5 (path), then after " - "
    // the file system and its device.
    let mount = mounts
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let path = left.split(' ').nth(4)?;
            place.starts_with(path).then_some((path, right))
        })
        .max_by_key(|(path, _)| path.len());
    let (file_system, device) = mount
        .and_then(|(_, right)| {
            let mut words = right.split(' ');
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        })
        .unwrap_or_default();
    json!({
        "processor": field(&read("/proc/cpuinfo"), "model name"),
        "processors": cpus,
        "memory": field(&read("/proc/meminfo"), "MemTotal"),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "file_system": file_system,
        "device": device,
        "loligo": env!("CARGO_PKG_VERSION"),
    })
}
