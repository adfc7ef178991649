//! What scrub compares.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};

use crate::hobject::HObject;
use crate::version::EVersion;

/// One copy of an object as its OSD finds it. Wire: ScrubMap::object v10/c7.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScrubObject {
    /// Bytes of content; -1 as u64 when unknown.
    pub size: u64,
    /// Deleted since the map this one amends.
    pub negative: bool,
    /// Attributes.
    pub attrs: BTreeMap<BString, Bytes>,
    /// CRC-32C of the content, from -1.
    pub digest: u32,
    /// Whether `digest` holds: deep scrub.
    pub digest_present: bool,
    /// CRC-32C of the omap, from -1.
    pub omap_digest: u32,
    /// Whether `omap_digest` holds.
    pub omap_digest_present: bool,
    /// Its metadata could not be read.
    pub stat_error: bool,
    /// Its content could not be read.
    pub read_error: bool,
    /// An erasure coded shard does not match its hash.
    pub ec_hash_mismatch: bool,
    /// An erasure coded shard does not have its size.
    pub ec_size_mismatch: bool,
    /// The omap is too large.
    pub large_omap_object_found: bool,
    /// Its keys, if so.
    pub large_omap_object_key_count: u64,
    /// Its bytes, if so.
    pub large_omap_object_value_size: u64,
    /// Bytes of omap.
    pub object_omap_bytes: u64,
    /// Keys of omap.
    pub object_omap_keys: u64,
}

impl Denc for ScrubObject {
    fn encode(&self, w: &mut Writer) {
        w.envelope(10, 7, |w| {
            w.u64(self.size);
            w.bool(self.negative);
            w.put(&self.attrs);
            w.u32(self.digest);
            w.bool(self.digest_present);
            w.u32(0); // nlinks
            w.u32(0); // snapcolls
            w.u32(self.omap_digest);
            w.bool(self.omap_digest_present);
            // The one error bit that old readers know.
            w.bool(self.read_error || self.ec_hash_mismatch || self.ec_size_mismatch);
            w.bool(self.stat_error);
            w.bool(self.read_error);
            w.bool(self.ec_hash_mismatch);
            w.bool(self.ec_size_mismatch);
            w.bool(self.large_omap_object_found);
            w.u64(self.large_omap_object_key_count);
            w.u64(self.large_omap_object_value_size);
            w.u64(self.object_omap_bytes);
            w.u64(self.object_omap_keys);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<ScrubObject, Error> {
        r.envelope("ScrubObject", 10, 10, |r, _| {
            let (size, negative) = (r.u64()?, r.bool()?);
            let attrs = r.get()?;
            let (digest, digest_present) = (r.u32()?, r.bool()?);
            r.u32()?;
            let _snapcolls: Vec<u64> = r.get()?;
            let (omap_digest, omap_digest_present) = (r.u32()?, r.bool()?);
            r.u8()?;
            Ok(ScrubObject {
                size,
                negative,
                attrs,
                digest,
                digest_present,
                omap_digest,
                omap_digest_present,
                stat_error: r.bool()?,
                read_error: r.bool()?,
                ec_hash_mismatch: r.bool()?,
                ec_size_mismatch: r.bool()?,
                large_omap_object_found: r.bool()?,
                large_omap_object_key_count: r.u64()?,
                large_omap_object_value_size: r.u64()?,
                object_omap_bytes: r.u64()?,
                object_omap_keys: r.u64()?,
            })
        })
    }
}

/// A part of a PG as one OSD finds it. Wire: ScrubMap v3/c2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScrubMap {
    /// The objects.
    pub objects: BTreeMap<HObject, ScrubObject>,
    /// Up to which version it holds.
    pub valid_through: EVersion,
    /// From which version on, if it amends another map.
    pub incr_since: EVersion,
}

impl Denc for ScrubMap {
    fn encode(&self, w: &mut Writer) {
        w.envelope(3, 2, |w| {
            w.put(&self.objects);
            w.u32(0); // attrs
            w.u32(0); // log
            w.put(&self.valid_through);
            w.put(&self.incr_since);
        });
    }
    fn decode(r: &mut Reader<'_>) -> Result<ScrubMap, Error> {
        r.envelope("ScrubMap", 3, 3, |r, _| {
            let objects = r.get()?;
            let _attrs: BTreeMap<BString, BString> = r.get()?;
            r.blob_slice()?;
            Ok(ScrubMap { objects, valid_through: r.get()?, incr_since: r.get()? })
        })
    }
}

/// Counts and checksums of a monitor's store by prefix. Wire: ScrubResult v1.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub struct ScrubResult {
    /// CRC-32C by prefix.
    pub prefix_crc: BTreeMap<BString, u32>,
    /// Keys by prefix.
    pub prefix_keys: BTreeMap<BString, u64>,
}
