//! Ceph's releases: numbers and names.

/// The name of a release number.
pub fn release_name(release: u8) -> &'static str {
    const NAMES: [&str; 18] = [
        "unknown",
        "argonaut",
        "bobtail",
        "cuttlefish",
        "dumpling",
        "emperor",
        "firefly",
        "giant",
        "hammer",
        "infernalis",
        "jewel",
        "kraken",
        "luminous",
        "mimic",
        "nautilus",
        "octopus",
        "pacific",
        "quincy",
    ];
    NAMES
        .get(usize::from(release))
        .copied()
        .unwrap_or("unknown")
}

/// The number of a release name; `None` for an unknown one.
pub fn release_from_name(name: &str) -> Option<u8> {
    (1..=17).find(|release| release_name(*release) == name)
}

/// The release this system is.
pub const PACIFIC: u8 = 16;
