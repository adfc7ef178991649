//! Erasure code profiles: what operators write (`ceph osd erasure-code-profile set`), and what
//! Ceph's plugins make of it (`ErasureCodeJerasure.cc`, `ErasureCodeIsa.cc` at v16.2).

use std::collections::BTreeMap;
use std::fmt;

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
    /// Not a number.
    NotANumber(&'static str, String),
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
            BadProfile::Unsupported(key, value) => write!(
                f,
                "{key}={value} is not supported: use plugin=jerasure or plugin=isa with \
                 technique=reed_sol_van"
            ),
            BadProfile::NoTechnique(plugin, name) => {
                let known = match *plugin {
                    "isa" => "reed_sol_van,cauchy",
                    _ => {
                        "reed_sol_van, reed_sol_r6_op, cauchy_orig, cauchy_good, liberation, \
                         blaum_roth, liber8tion"
                    }
                };
                write!(
                    f,
                    "technique={name} is not a valid coding technique.  Choose one of the \
                     following: {known}"
                )
            }
            BadProfile::NotANumber(key, value) => {
                let default = if *key == "m" {
                    3
                } else if *key == "w" {
                    8
                } else {
                    7
                };
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

/// Ceph's own other techniques of jerasure, and its other plugins.
const OTHER_TECHNIQUES: &[&str] =
    &["reed_sol_r6_op", "cauchy_orig", "cauchy_good", "liberation", "blaum_roth", "liber8tion"];
const OTHER_PLUGINS: &[&str] = &["lrc", "shec", "clay"];

/// Bytes to which jerasure aligns a data chunk: w = 8 machine words of 4 bytes.
const JERASURE_WORDS_LEN: usize = 32;
/// Bytes of the longest vector jerasure may use, times w.
const JERASURE_VECTOR_LEN: usize = 128;
/// EC_ISA_ADDRESS_ALIGNMENT.
const ISA_ALIGNMENT: usize = 32;

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
        let number = |key: &'static str, default: &str| {
            let value = text(key, default);
            value.parse::<i64>().map_err(|_| BadProfile::NotANumber(key, value))
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
        let technique = match (plugin, text("technique", "reed_sol_van")) {
            (_, t) if t == "reed_sol_van" => Technique::ReedSolVan,
            (Plugin::Isa, t) if t == "cauchy" => Technique::Cauchy,
            (Plugin::Jerasure, t) if OTHER_TECHNIQUES.contains(&t.as_str()) => {
                return Err(BadProfile::Unsupported("technique", t));
            }
            (Plugin::Jerasure, t) => return Err(BadProfile::NoTechnique("jerasure", t)),
            (Plugin::Isa, t) => return Err(BadProfile::NoTechnique("isa", t)),
        };
        // Ceph puts each chunk where it says: what either system wrote the other would take for something else.
        let mapping = text("mapping", "");
        if !mapping.is_empty() {
            return Err(BadProfile::Unsupported("mapping", mapping));
        }
        let (k, m) = (number("k", "7")?, number("m", "3")?);
        let w = if plugin == Plugin::Jerasure { number("w", "8")? } else { 8 };
        if k < 2 {
            return out_of_range(format!("k={k} must be >= 2"));
        }
        if m < 1 {
            return out_of_range(format!("m={m} must be >= 1"));
        }
        if matches!(w, 16 | 32) {
            return Err(BadProfile::Unsupported("w", w.to_string()));
        }
        if w != 8 {
            return out_of_range(format!(
                "ReedSolomonVandermonde: w={w} must be one of {{8, 16, 32}} : revert to 8"
            ));
        }
        let (Ok(k), Ok(m)) = (usize::try_from(k), usize::try_from(m)) else {
            return out_of_range(format!("k={k} and m={m} are too large"));
        };
        if k.saturating_add(m) > 254 {
            return out_of_range(format!("k={k} plus m={m} must be <= 254"));
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
        let per_chunk_alignment = matches!(aligned.as_str(), "true" | "yes");
        Ok(Profile { plugin, technique, k, m, per_chunk_alignment })
    }

    /// Bytes of each chunk of an object of `len` bytes: padded as the plugin needs it.
    pub fn chunk_len(&self, len: usize) -> usize {
        match self.plugin {
            Plugin::Jerasure if !self.per_chunk_alignment => {
                len.next_multiple_of(self.k * JERASURE_WORDS_LEN) / self.k
            }
            Plugin::Jerasure => len.div_ceil(self.k).next_multiple_of(JERASURE_VECTOR_LEN),
            Plugin::Isa => len.div_ceil(self.k).next_multiple_of(ISA_ALIGNMENT),
        }
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
            ("technique=cauchy_good", "technique=cauchy_good is not supported"),
            ("technique=xx", "technique=xx is not a valid coding technique."),
            ("plugin=isa,technique=xx", "technique=xx is not a valid coding technique."),
            ("k=1,m=1", "k=1 must be >= 2"),
            ("k=3,m=0", "m=0 must be >= 1"),
            ("k=a,m=1", "could not convert k=a to int"),
            ("k=3,m=2,w=7", "ReedSolomonVandermonde: w=7 must be one of {8, 16, 32}"),
            ("k=3,m=2,w=16", "w=16 is not supported"),
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
