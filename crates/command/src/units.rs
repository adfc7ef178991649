//! Counts with units, as Ceph shortens them (`byte_u_t` and `si_u_t` of
//! `src/include/types.h` at v16.2).

use std::fmt;

/// A byte count: `512 B`, `1.5 KiB`, `10 GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteU(pub u64);

/// A plain count: `512`, `1.50k`, `10M`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SiU(pub u64);

impl fmt::Display for ByteU {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_bytes(self.0))
    }
}

impl fmt::Display for SiU {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_si(self.0))
    }
}

/// A byte count in binary units.
pub fn format_bytes(v: u64) -> String {
    shorten(v, 1024, &[" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"])
}

/// A count in decimal units.
pub fn format_si(v: u64) -> String {
    shorten(v, 1000, &["", "k", "M", "G", "T", "P", "E"])
}

/// An exact multiple of a unit has no fraction; anything else has as many decimals (2, 1 or 0)
/// as keep the text within 7 characters.
fn shorten(v: u64, base: u64, units: &[&str]) -> String {
    let (mut n, mut unit_value, mut index) = (v, 1u64, 0);
    while n >= base && index + 1 < units.len() {
        n /= base;
        unit_value *= base;
        index += 1;
    }
    let unit = units[index];
    if index == 0 || v.is_multiple_of(unit_value) {
        return format!("{n}{unit}");
    }
    let value = v as f64 / unit_value as f64;
    for decimals in [2, 1] {
        let text = format!("{value:.decimals$}{unit}");
        if text.len() <= 7 {
            return text;
        }
    }
    format!("{value:.0}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_counts_as_ceph_prints_them() {
        assert_eq!(format_bytes(0), "0 B");
        assert_eq!(format_bytes(3221225472), "3 GiB");
        assert_eq!(format_bytes(3220681849), "3.0 GiB");
        assert_eq!(format_bytes(543623), "531 KiB");
        assert_eq!(format_bytes(90000), "88 KiB");
        assert_eq!(format_bytes(10000), "9.8 KiB");
        assert_eq!(format_si(10), "10");
        assert_eq!(format_si(1234), "1.23k");
        assert_eq!(format_si(2000), "2k");
        assert_eq!(format_si(128530), "128.53k");
    }
}
