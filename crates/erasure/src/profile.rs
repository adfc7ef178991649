//! Erasure code profiles: what operators write (`ceph osd erasure-code-profile set`), and what
//! Ceph's plugins make of it (`ErasureCodeJerasure.cc`, `ErasureCodeIsa.cc` at v16.2).

use std::collections::BTreeMap;
use std::fmt;

use crate::field::Field;

/// Who computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plugin {
    /// The default.
    Jerasure,
    /// Intel's.
    Isa,
}

/// Which matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Technique {
    /// Vandermonde.
    ReedSolVan,
    /// Cauchy (isa alone).
    Cauchy,
    /// A sum, and a sum of products with powers of 2; two parity chunks (jerasure alone, as all below).
    ReedSolR6,
    /// Cauchy, of packets.
    CauchyOrig,
    /// Cauchy, of packets, with few of them in each sum.
    CauchyGood,
    /// Plank's for a prime w; two parity chunks, of packets.
    Liberation,
    /// Blaum and Roth's for a w before a prime; likewise.
    BlaumRoth,
    /// Plank's for w = 8; likewise.
    Liber8tion,
}

impl Technique {
    /// jerasure's.
    const JERASURE: [(&str, Technique); 7] = [
        ("reed_sol_van", Technique::ReedSolVan),
        ("reed_sol_r6_op", Technique::ReedSolR6),
        ("cauchy_orig", Technique::CauchyOrig),
        ("cauchy_good", Technique::CauchyGood),
        ("liberation", Technique::Liberation),
        ("blaum_roth", Technique::BlaumRoth),
        ("liber8tion", Technique::Liber8tion),
    ];
    /// isa's.
    const ISA: [(&str, Technique); 2] =
        [("reed_sol_van", Technique::ReedSolVan), ("cauchy", Technique::Cauchy)];

    /// As profiles name it.
    pub fn name(self) -> &'static str {
        let mut all = Technique::JERASURE.iter().chain(&Technique::ISA);
        all.find(|(_, technique)| *technique == self).map_or("", |(name, _)| name)
    }

    /// Whether it is of packets.
    pub fn has_packets(self) -> bool {
        self.is_cauchy_of_packets() || self.is_minimal()
    }

    /// Whether `jerasure-per-chunk-alignment` is looked at.
    pub fn may_align_each_chunk(self) -> bool {
        self == Technique::ReedSolVan || self.is_cauchy_of_packets()
    }

    fn is_cauchy_of_packets(self) -> bool {
        matches!(self, Technique::CauchyOrig | Technique::CauchyGood)
    }

    /// Whether it is one of those with next to no sums (`ErasureCodeJerasureLiberation` and what is made of it).
    fn is_minimal(self) -> bool {
        matches!(self, Technique::Liberation | Technique::BlaumRoth | Technique::Liber8tion)
    }
}

/// A profile that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// Who computes.
    pub plugin: Plugin,
    /// Which matrix.
    pub technique: Technique,
    /// Data chunks.
    pub k: usize,
    /// Parity chunks.
    pub m: usize,
    /// Bits of a number; of techniques with packets, packets in a group.
    pub w: u32,
    /// Bytes of a packet; 0 where there are none.
    pub packet_len: usize,
    /// jerasure-per-chunk-alignment.
    pub per_chunk_alignment: bool,
}

/// Why a profile cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadProfile {
    /// There is no such plugin, in Ceph either.
    NoPlugin(String),
    /// Ceph has it, this system has not: the plugin, technique or option, and its value.
    Unsupported(&'static str, String),
    /// The technique is none of the plugin's.
    NoTechnique(&'static str, String),
    /// Not a number: the key, its value, and what it would be where nothing is told.
    NotANumber(&'static str, String, &'static str),
    /// A number that will not do, and what would.
    OutOfRange(String),
}

impl fmt::Display for BadProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadProfile::NoPlugin(name) => write!(f, "there is no erasure code plugin '{name}'"),
            BadProfile::Unsupported(key @ "mapping", value) => write!(
                f,
                "{key}={value} is not supported: leave it out; data chunks are the first, in their \
                 order, then parity"
            ),
            BadProfile::Unsupported(key, value) => {
                write!(f, "{key}={value} is not supported: use plugin=jerasure or plugin=isa")
            }
            BadProfile::NoTechnique(plugin, name) => {
                let known = match *plugin {
                    "isa" => Technique::ISA.map(|(name, _)| name).join(","),
                    _ => Technique::JERASURE.map(|(name, _)| name).join(", "),
                };
                write!(
                    f,
                    "technique={name} is not a valid coding technique.  Choose one of the \
                     following: {known}"
                )
            }
            BadProfile::NotANumber(key, value, default) => {
                write!(
                    f,
                    "could not convert {key}={value} to int because Expected option value to be \
                     integer, got '{value}', set to default {default}"
                )
            }
            BadProfile::OutOfRange(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for BadProfile {}

/// Ceph's own other plugins.
const OTHER_PLUGINS: &[&str] = &["lrc", "shec", "clay"];

/// What most techniques have where nothing is told; [`own_default`] has the others'.
const DEFAULTS: [(&str, &str); 4] = [("k", "7"), ("m", "3"), ("w", "8"), ("packetsize", "2048")];

/// Bytes of jerasure's `int`, and of the longest vector it may use.
const INT_LEN: usize = 4;
const VECTOR_LEN: usize = 16;
/// Longest group of packets; Ceph has no limit, and could not be given a chunk so large.
const GROUP_LEN_MAX: usize = 64 << 20;
/// EC_ISA_ADDRESS_ALIGNMENT.
const ISA_ALIGNMENT: usize = 32;

/// Most packets of a group of k chunks.
const BITS_MAX: i64 = 8192;

fn out_of_range<T>(what: String) -> Result<T, BadProfile> {
    Err(BadProfile::OutOfRange(what))
}

impl Profile {
    /// Reads the keys that the code depends on; others (of CRUSH) are not looked at.
    pub fn of(map: &BTreeMap<String, String>) -> Result<Profile, BadProfile> {
        let text = |key: &str, default: &str| match map.get(key) {
            Some(value) if !value.is_empty() => value.clone(),
            _ => default.to_owned(),
        };
        let name = text("plugin", "jerasure");
        let plugin = match name.as_str() {
            "jerasure" => Plugin::Jerasure,
            "isa" => Plugin::Isa,
            other if OTHER_PLUGINS.contains(&other) => {
                return Err(BadProfile::Unsupported("plugin", name));
            }
            _ => return Err(BadProfile::NoPlugin(name)),
        };
        let (known, of): (&[(&str, Technique)], _) = match plugin {
            Plugin::Jerasure => (&Technique::JERASURE, "jerasure"),
            Plugin::Isa => (&Technique::ISA, "isa"),
        };
        let name = text("technique", "reed_sol_van");
        let technique = known.iter().find(|(known, _)| **known == name);
        let (_, technique) = *technique.ok_or(BadProfile::NoTechnique(of, name))?;
        let number = |key: &'static str| {
            let usual = DEFAULTS.iter().find(|(of, _)| *of == key).map_or("", |(_, n)| *n);
            let default = own_default(technique, key).unwrap_or(usual);
            let value = text(key, default);
            value.parse::<i64>().map_err(|_| BadProfile::NotANumber(key, value, default))
        };
        // Ceph puts each chunk where it says: what either system wrote the other would take for something else.
        let mapping = text("mapping", "");
        if !mapping.is_empty() {
            return Err(BadProfile::Unsupported("mapping", mapping));
        }
        let (k, m) = (number("k")?, number("m")?);
        let w = if plugin == Plugin::Jerasure { number("w")? } else { 8 };
        let packet_len = if technique.has_packets() { number("packetsize")? } else { 0 };
        if k < 2 {
            return out_of_range(format!("k={k} must be >= 2"));
        }
        if m < 1 {
            return out_of_range(format!("m={m} must be >= 1"));
        }
        check_jerasure(technique, [k, m, w, packet_len])?;
        let (Ok(k), Ok(m), Ok(w), Ok(packet_len)) =
            (k.try_into(), m.try_into(), w.try_into(), packet_len.try_into())
        else {
            return out_of_range(format!(
                "k={k}, m={m}, w={w} or packetsize={packet_len} are too large"
            ));
        };
        let (k, m, w, packet_len): (usize, usize, u32, usize) = (k, m, w, packet_len);
        if k.saturating_add(m) > 254 {
            return out_of_range(format!("k={k} plus m={m} must be <= 254"));
        }
        if technique.is_cauchy_of_packets() && (k + m) as u64 > 1 << w {
            return out_of_range(format!(
                "k={k} plus m={m} must be <= 2^w, which is {}",
                1_u64 << w
            ));
        }
        if (plugin, technique) == (Plugin::Isa, Technique::ReedSolVan) {
            // Beyond these not every k chunks give the others back.
            if k > 32 {
                return out_of_range(format!(
                    "Vandermonde: m={m} should be less/equal than 32 : revert to k=32"
                ));
            }
            if m > 4 {
                return out_of_range(format!(
                    "Vandermonde: m={m} should be less than 5 to guarantee an MDS codec: revert to m=4"
                ));
            }
            if m == 4 && k > 21 {
                return out_of_range(format!(
                    "Vandermonde: k={k} should be less than 22 to guarantee an MDS codec with m=4: revert to k=21"
                ));
            }
        }
        let aligned = text("jerasure-per-chunk-alignment", "false");
        let per_chunk_alignment =
            technique.may_align_each_chunk() && matches!(aligned.as_str(), "true" | "yes");
        let profile = Profile { plugin, technique, k, m, w, packet_len, per_chunk_alignment };
        let group_len = packet_len * w as usize;
        if group_len > 0 && !profile.chunk_len(1).is_multiple_of(group_len) {
            return out_of_range(format!(
                "packetsize={packet_len} times w={w} must be a multiple of {VECTOR_LEN} with \
                 jerasure-per-chunk-alignment"
            ));
        }
        Ok(profile)
    }

    /// Bytes of each chunk of an object of `len` bytes: padded as the plugin needs it.
    pub fn chunk_len(&self, len: usize) -> usize {
        let (k, w) = (self.k, self.w as usize);
        // Groups of packets, or as many words as there are bits in one.
        let group_len = w * self.packet_len.max(1);
        match self.plugin {
            Plugin::Jerasure if self.per_chunk_alignment && self.technique.has_packets() => {
                len.div_ceil(k).next_multiple_of(group_len.next_multiple_of(VECTOR_LEN))
            }
            Plugin::Jerasure if self.per_chunk_alignment => {
                len.div_ceil(k).next_multiple_of(group_len * VECTOR_LEN)
            }
            Plugin::Jerasure => {
                let ints = group_len * INT_LEN;
                let aligned = ints.is_multiple_of(VECTOR_LEN);
                let unit = if aligned { ints } else { group_len * VECTOR_LEN };
                len.next_multiple_of(k * unit) / k
            }
            Plugin::Isa => len.div_ceil(k).next_multiple_of(ISA_ALIGNMENT),
        }
    }
}

/// What a technique has instead of [`DEFAULTS`].
fn own_default(technique: Technique, key: &str) -> Option<&'static str> {
    match (technique, key) {
        (Technique::ReedSolR6, "m") => Some("2"),
        (Technique::Liberation | Technique::BlaumRoth, "w") => Some("7"),
        (technique, "k" | "m") if technique.is_minimal() => Some("2"),
        _ => None,
    }
}

/// What each technique of jerasure takes of k, m, w and packetsize.
fn check_jerasure(technique: Technique, [k, m, w, packet_len]: [i64; 4]) -> Result<(), BadProfile> {
    let class = match technique {
        Technique::ReedSolR6 => "ReedSolomonRAID6",
        _ => "ReedSolomonVandermonde",
    };
    if technique == Technique::ReedSolR6 && m != 2 {
        return out_of_range(format!("{class}: m={m} must be 2 for RAID6: revert to 2"));
    }
    let name = technique.name();
    // Ceph refuses them of liber8tion alone, and could not compute the others.
    if technique.is_minimal() && m != 2 {
        return out_of_range(format!("{name}: m={m} must be 2 for {name}: revert to 2"));
    }
    if technique == Technique::Liber8tion && w != 8 {
        return out_of_range(format!("liber8tion: w={w} must be 8 for liber8tion: revert to 8"));
    }
    if !technique.has_packets() {
        return match w {
            8 | 16 | 32 => Ok(()),
            _ => out_of_range(format!("{class}: w={w} must be one of {{8, 16, 32}} : revert to 8")),
        };
    }
    let is_prime = |n: i64| n > 1 && (2..n).take_while(|d| d * d <= n).all(|d| n % d != 0);
    if technique.is_minimal() && k > w {
        return out_of_range(format!("k={k} must be less than or equal to w={w}"));
    }
    if !(2..=Field::W_MAX.into()).contains(&w) && !technique.is_minimal() {
        return out_of_range(format!("w={w} must be from 2 to {}", Field::W_MAX));
    }
    // Two chunks of parity have 254 - 2 of data at most, which w need not be beyond.
    if technique == Technique::Liberation && !(w > 2 && w <= 257 && is_prime(w)) {
        return out_of_range(format!("w={w} must be greater than two and be prime"));
    }
    // 7 was the default once.
    if technique == Technique::BlaumRoth && w != 7 && !(w > 2 && w < 257 && is_prime(w + 1)) {
        return out_of_range(format!("w={w} must be greater than two and w+1 must be prime"));
    }
    // Ceph takes it and makes chunks of which some, lost, come back from no others: with k = 3 the first and the third.
    if technique == Technique::BlaumRoth && w == 7 && k > 2 {
        return out_of_range(format!(
            "k={k} with w=7, the default, does not survive the loss of any two chunks: give w=6 or w=10"
        ));
    }
    if packet_len == 0 {
        return out_of_range(format!("packetsize={packet_len} must be set"));
    }
    let whole = technique == Technique::Liber8tion || packet_len % INT_LEN as i64 == 0;
    if technique.is_minimal() && !whole {
        return out_of_range(format!(
            "packetsize={packet_len} must be a multiple of sizeof(int) = {INT_LEN}"
        ));
    }
    // Decoding takes a matrix of all bits of k chunks.
    if k.saturating_mul(w) > BITS_MAX {
        return out_of_range(format!("k={k} times w={w} must be <= {BITS_MAX}"));
    }
    match packet_len.checked_mul(w) {
        Some(len) if (1..=GROUP_LEN_MAX as i64).contains(&len) => Ok(()),
        _ => out_of_range(format!(
            "packetsize={packet_len} times w={w} must be from 1 to {GROUP_LEN_MAX}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Profile, BadProfile> {
        let pairs = text.split(',').filter_map(|p| p.split_once('='));
        Profile::of(&pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect())
    }

    #[test]
    fn defaults_are_the_plugins() {
        let p = of("").unwrap();
        assert_eq!((p.plugin, p.k, p.m), (Plugin::Jerasure, 7, 3));
        assert_eq!(of("plugin=isa,crush-root=x,k=4").unwrap().k, 4);
        for (technique, k, m, w, packet_len) in [
            ("reed_sol_r6_op", 7, 2, 8, 0),
            ("cauchy_orig", 7, 3, 8, 2048),
            ("cauchy_good", 7, 3, 8, 2048),
            ("liberation", 2, 2, 7, 2048),
            ("blaum_roth", 2, 2, 7, 2048),
            ("liber8tion", 2, 2, 8, 2048),
        ] {
            let p = of(&format!("technique={technique}")).unwrap();
            assert_eq!((p.k, p.m, p.w, p.packet_len), (k, m, w, packet_len), "{technique}");
            assert_eq!(p.technique.name(), technique);
        }
    }

    /// `mapping=_DD` was taken and kept, and chunks lay as without it. An OSD of Ceph's in that pool puts data into
    /// shards 1 and 2: each system would have decoded the other's chunks to rubbish.
    #[test]
    fn chunks_lie_nowhere_else_than_asked() {
        for text in ["k=2,m=1,mapping=_DD", "k=2,m=1,mapping=D", "plugin=isa,k=2,m=1,mapping=DD_"] {
            let told = of(text).expect_err(text).to_string();
            let said = text.rsplit(',').next().unwrap();
            assert!(told.starts_with(&format!("{said} is not supported: leave it out")), "{told}");
        }
        assert_eq!(of("k=2,m=1,mapping=").unwrap().k, 2);
    }

    #[test]
    fn what_is_refused_and_how() {
        for (text, said) in [
            ("plugin=x", "there is no erasure code plugin 'x'"),
            ("plugin=lrc", "plugin=lrc is not supported"),
            (
                "technique=reed_sol_r6_op,m=3",
                "ReedSolomonRAID6: m=3 must be 2 for RAID6: revert to 2",
            ),
            (
                "technique=reed_sol_r6_op,m=2,w=7",
                "ReedSolomonRAID6: w=7 must be one of {8, 16, 32}",
            ),
            (
                "technique=cauchy_good,packetsize=x",
                "could not convert packetsize=x to int because Expected option value to be integer, got 'x', set to default 2048",
            ),
            ("technique=cauchy_good,packetsize=0", "packetsize=0 must be set"),
            ("technique=cauchy_good,packetsize=-8", "packetsize=-8 times w=8 must be from 1"),
            (
                "technique=cauchy_good,packetsize=9223372036854775807",
                "packetsize=9223372036854775807 times",
            ),
            ("technique=cauchy_good,w=33", "w=33 must be from 2 to 32"),
            ("technique=cauchy_good,w=-1", "w=-1 must be from 2 to 32"),
            ("technique=cauchy_orig,w=3,k=6,m=3", "k=6 plus m=3 must be <= 2^w, which is 8"),
            (
                "technique=cauchy_good,w=3,k=3,packetsize=7,jerasure-per-chunk-alignment=true",
                "packetsize=7 times w=3 must be a multiple of 16",
            ),
            ("technique=liberation,k=8", "k=8 must be less than or equal to w=7"),
            ("technique=liberation,w=8", "w=8 must be greater than two and be prime"),
            (
                "technique=liberation,w=9223372036854775807,k=3",
                "w=9223372036854775807 must be greater than two and be prime",
            ),
            ("technique=liberation,w=257,k=100", "k=100 times w=257 must be <= 8192"),
            (
                "technique=liberation,k=x",
                "could not convert k=x to int because Expected option value to be integer, got 'x', set to default 2",
            ),
            ("technique=liberation,m=3", "liberation: m=3 must be 2"),
            ("technique=liberation,packetsize=0", "packetsize=0 must be set"),
            (
                "technique=liberation,packetsize=10",
                "packetsize=10 must be a multiple of sizeof(int) = 4",
            ),
            ("technique=blaum_roth,k=3", "k=3 with w=7, the default, does not survive"),
            ("technique=blaum_roth,w=8", "w=8 must be greater than two and w+1 must be prime"),
            ("technique=blaum_roth,w=6,k=7", "k=7 must be less than or equal to w=6"),
            ("technique=liber8tion,k=9", "k=9 must be less than or equal to w=8"),
            ("technique=liber8tion,m=3", "liber8tion: m=3 must be 2 for liber8tion: revert to 2"),
            ("technique=liber8tion,w=7", "liber8tion: w=7 must be 8 for liber8tion: revert to 8"),
            ("technique=xx", "technique=xx is not a valid coding technique."),
            ("plugin=isa,technique=xx", "technique=xx is not a valid coding technique."),
            ("k=1,m=1", "k=1 must be >= 2"),
            ("k=3,m=0", "m=0 must be >= 1"),
            ("k=a,m=1", "could not convert k=a to int"),
            ("k=3,m=2,w=7", "ReedSolomonVandermonde: w=7 must be one of {8, 16, 32}"),
            ("k=250,m=10", "k=250 plus m=10 must be <= 254"),
            ("plugin=isa,k=33,m=2", "Vandermonde: m=2 should be less/equal than 32"),
            ("plugin=isa,k=22,m=4", "Vandermonde: k=22"),
            ("plugin=isa,k=4,m=5", "Vandermonde: m=5"),
        ] {
            let told = of(text).expect_err(text).to_string();
            assert!(told.starts_with(said), "{text}: {told}");
        }
    }
}
