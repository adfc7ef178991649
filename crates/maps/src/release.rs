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
    NAMES.get(usize::from(release)).copied().unwrap_or("unknown")
}

/// The number of a release's name; none of those after [`PACIFIC`], whose promises nobody here keeps.
pub fn release_number(name: &str) -> Option<u8> {
    (1..=PACIFIC).find(|number| release_name(*number) == name)
}

/// The release this system is.
pub const PACIFIC: u8 = 16;
