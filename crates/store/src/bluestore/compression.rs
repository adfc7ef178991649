//! Compression of blobs: whether, with what, and whether it pays (Ceph's `_choose_write_options` and
//! `_do_alloc_write` in `src/os/bluestore/BlueStore.cc` at v16.2). Pure.

use std::io::{Read, Write};

use bytes::Bytes;

use crate::PoolOptions;

/// What data is compressed with. The numbers, in blobs, are Ceph's (`Compressor.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Fast, little memory.
    Snappy = 1,
    /// Known everywhere.
    Zlib = 2,
    /// Shorter, slower.
    Zstd = 3,
    /// The fastest to decompress.
    Lz4 = 4,
}

impl Algorithm {
    const ALL: [Algorithm; 4] =
        [Algorithm::Snappy, Algorithm::Zlib, Algorithm::Zstd, Algorithm::Lz4];

    /// That of a name in `bluestore_compression_algorithm`.
    pub fn named(name: &str) -> Option<Algorithm> {
        Some(match name {
            "snappy" => Algorithm::Snappy,
            "zlib" => Algorithm::Zlib,
            "zstd" => Algorithm::Zstd,
            "lz4" => Algorithm::Lz4,
            _ => return None,
        })
    }

    pub(super) fn numbered(n: u64) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|a| *a as u64 == n)
    }

    fn compress(self, data: &[u8]) -> Option<Vec<u8>> {
        match self {
            Algorithm::Snappy => snap::raw::Encoder::new().compress_vec(data).ok(),
            Algorithm::Zlib => {
                let level = flate2::Compression::new(ZLIB_LEVEL);
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(data).ok()?;
                encoder.finish().ok()
            }
            Algorithm::Zstd => zstd::bulk::compress(data, ZSTD_LEVEL).ok(),
            Algorithm::Lz4 => Some(lz4_flex::block::compress(data)),
        }
    }

    /// What was compressed, if it is `len` bytes long. Takes no more memory than that.
    pub(super) fn decompress(self, data: &[u8], len: usize) -> Option<Bytes> {
        let out = match self {
            Algorithm::Snappy => {
                if snap::raw::decompress_len(data).ok()? != len {
                    return None;
                }
                snap::raw::Decoder::new().decompress_vec(data).ok()?
            }
            Algorithm::Zlib => {
                // A byte more than there may be, to see that there is none.
                let mut out = Vec::with_capacity(len + 1);
                let decoder = flate2::read::DeflateDecoder::new(data);
                decoder.take(len as u64 + 1).read_to_end(&mut out).ok()?;
                out
            }
            Algorithm::Zstd => zstd::bulk::decompress(data, len).ok()?,
            Algorithm::Lz4 => lz4_flex::block::decompress(data, len).ok()?,
        };
        (out.len() == len).then(|| out.into())
    }
}

/// Ceph's compressor_zlib_level.
const ZLIB_LEVEL: u32 = 5;
/// Ceph's compressor_zstd_level.
const ZSTD_LEVEL: i32 = 1;

/// What is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Nothing.
    #[default]
    None,
    /// What clients call compressible.
    Passive,
    /// What they do not call incompressible.
    Aggressive,
    /// Everything.
    Force,
}

impl Mode {
    /// That of a name in `bluestore_compression_mode`.
    pub fn named(name: &str) -> Option<Mode> {
        Some(match name {
            "none" => Mode::None,
            "passive" => Mode::Passive,
            "aggressive" => Mode::Aggressive,
            "force" => Mode::Force,
            _ => return None,
        })
    }
}

/// Options `bluestore_compression_*`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Compression {
    /// What is compressed.
    pub mode: Mode,
    /// With what; `None`: nothing is compressed.
    pub algorithm: Option<Algorithm>,
    /// What is not at most this part of what it was stays as it is.
    pub required_ratio: f64,
    /// Bytes that are compressed together.
    pub min_blob_len: u64,
    /// The same where clients say that they read and write from end to end.
    pub max_blob_len: u64,
}

impl Default for Compression {
    /// Ceph's, for solid-state devices: nothing.
    fn default() -> Compression {
        Compression {
            mode: Mode::None,
            algorithm: Some(Algorithm::Snappy),
            required_ratio: 0.875,
            min_blob_len: 8 << 10,
            max_blob_len: 64 << 10,
        }
    }
}

/// Flags of `set-alloc-hint` (`CEPH_OSD_ALLOC_HINT_FLAG_*`, `src/include/rados.h`).
mod hint {
    pub(super) const SEQUENTIAL_READ: u32 = 4;
    pub(super) const RANDOM_READ: u32 = 8;
    pub(super) const RANDOM_WRITE: u32 = 2;
    pub(super) const APPEND_ONLY: u32 = 16;
    pub(super) const IMMUTABLE: u32 = 32;
    pub(super) const COMPRESSIBLE: u32 = 256;
    pub(super) const INCOMPRESSIBLE: u32 = 512;
}

/// How an object's data is compressed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Plan {
    algorithm: Algorithm,
    required_ratio: f64,
    /// Bytes compressed together: whole units, two at least.
    pub(super) blob_len: u64,
    unit: u64,
}

impl Compression {
    /// These with what a pool wants in their place. With an algorithm nobody knows ("none" is one)
    /// nothing is compressed, as in Ceph.
    pub(super) fn with(self, pool: &PoolOptions) -> Compression {
        let mode = pool.compression_mode.as_deref().and_then(Mode::named);
        let algorithm = pool.compression_algorithm.as_deref().map(Algorithm::named);
        Compression {
            mode: mode.unwrap_or(self.mode),
            algorithm: algorithm.unwrap_or(self.algorithm),
            required_ratio: pool.compression_required_ratio.unwrap_or(self.required_ratio),
            min_blob_len: pool.compression_min_blob_len.unwrap_or(self.min_blob_len),
            max_blob_len: pool.compression_max_blob_len.unwrap_or(self.max_blob_len),
        }
    }

    /// How an object with these hints is compressed, if it is. No blob is longer than `most`.
    pub(super) fn plan(&self, hints: u32, unit: u64, most: u64) -> Option<Plan> {
        let has = |flag: u32| hints & flag != 0;
        let wanted = match self.mode {
            Mode::None => false,
            Mode::Passive => has(hint::COMPRESSIBLE),
            Mode::Aggressive => !has(hint::INCOMPRESSIBLE),
            Mode::Force => true,
        };
        let algorithm = self.algorithm.filter(|_| wanted)?;
        let from_end_to_end = has(hint::SEQUENTIAL_READ)
            && !has(hint::RANDOM_READ)
            && has(hint::APPEND_ONLY | hint::IMMUTABLE)
            && !has(hint::RANDOM_WRITE);
        let blob_len = match from_end_to_end {
            true => self.max_blob_len,
            false => self.min_blob_len,
        };
        let blob_len = blob_len / unit * unit;
        Some(Plan {
            algorithm,
            required_ratio: self.required_ratio,
            blob_len: blob_len.clamp(2 * unit, most.max(2 * unit)),
            unit,
        })
    }
}

/// Data that was compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Compressed {
    pub(super) algorithm: Algorithm,
    /// Bytes stored.
    pub(super) stored_len: u64,
    /// Bytes that they were.
    pub(super) len: u64,
}

impl Plan {
    /// Data in fewer units than it would take, if it can be.
    pub(super) fn compress(&self, data: &[u8]) -> Option<(Compressed, Vec<u8>)> {
        let len = data.len() as u64;
        let short = self.algorithm.compress(data)?;
        let stored_len = short.len() as u64;
        let units = |len: u64| len.next_multiple_of(self.unit);
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a blob's length, and a part of it"
        )]
        let most = (len as f64 * self.required_ratio.clamp(0.0, 1.0)) as u64;
        let pays = units(stored_len) <= units(most) && units(stored_len) < len;
        let compressed = Compressed { algorithm: self.algorithm, stored_len, len };
        pays.then_some((compressed, short))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_gives_back_what_it_got_or_nothing() {
        let data: Vec<u8> = (0..65_536_u32).map(|n| (n / 100) as u8).collect();
        for algorithm in Algorithm::ALL {
            let short = algorithm.compress(&data).unwrap();
            assert!(short.len() < 20_000, "{algorithm:?}");
            let again = algorithm.decompress(&short, data.len()).unwrap();
            assert!(again == data);
            assert_eq!(algorithm.decompress(&short, data.len() - 1), None);
            assert_eq!(algorithm.decompress(&short, data.len() + 1), None);
            for at in (0..short.len()).step_by(97) {
                let mut bad = short.clone();
                bad[at] ^= 0x11;
                if let Some(found) = algorithm.decompress(&bad, data.len()) {
                    assert_eq!(found.len(), data.len());
                }
                assert_eq!(algorithm.decompress(&short[..at], data.len()), None);
            }
        }
    }

    #[test]
    fn a_pool_says_what_it_says_and_leaves_the_rest() {
        let store = Compression { mode: Mode::Passive, ..Compression::default() };
        assert_eq!(store.with(&PoolOptions::default()), store);
        let pool = PoolOptions {
            compression_mode: Some("force".into()),
            compression_algorithm: Some("zlib".into()),
            compression_min_blob_len: Some(32 << 10),
            ..PoolOptions::default()
        };
        let own = store.with(&pool);
        assert_eq!((own.mode, own.algorithm), (Mode::Force, Some(Algorithm::Zlib)));
        assert_eq!((own.min_blob_len, own.max_blob_len), (32 << 10, store.max_blob_len));
        assert_eq!(own.required_ratio, store.required_ratio);
        assert_eq!(own.plan(0, 4096, 65_536).unwrap().blob_len, 32 << 10);
        let none = PoolOptions { compression_algorithm: Some("none".into()), ..pool };
        assert_eq!(store.with(&none).plan(256, 4096, 65_536), None);
    }

    #[test]
    fn modes_hints_and_lengths_decide() {
        let with = |mode| Compression { mode, ..Compression::default() };
        let is = |mode, hints| with(mode).plan(hints, 4096, 65_536).is_some();
        assert!(!is(Mode::None, 256) && !is(Mode::Passive, 0) && is(Mode::Passive, 256));
        assert!(is(Mode::Aggressive, 0) && !is(Mode::Aggressive, 512) && is(Mode::Force, 512));
        let len = |hints, unit| {
            let plan = with(Mode::Force).plan(hints, unit, 65_536);
            plan.unwrap().blob_len
        };
        assert_eq!((len(0, 4096), len(4 | 16, 4096), len(4 | 16 | 8, 4096)), (8192, 65_536, 8192));
        assert_eq!(len(0, 65_536), 131_072);
        let plan = with(Mode::Force).plan(4 | 16, 4096, 65_536).unwrap();
        let mut choices = device::memory::Choices::new(3);
        let random: Vec<u8> = (0..65_536).map(|_| choices.below(256) as u8).collect();
        let mut half = random.clone();
        half[32_768..].fill(0);
        assert!(plan.compress(&half).is_some());
        assert!(plan.compress(&random).is_none());
    }
}
