//! What is in the database: keys and values (docs/format-kstore.md).
//!
//! Prefixes are those of Ceph's KStore (`src/os/kstore/KStore.cc` at v16.2): `S` the store, `C`
//! collections, `O` onodes, `D` data in stripes, `M` omaps. A key is prefix, zero byte, rest.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::hobject::GhObject;

use crate::CollId;
use crate::object_key::{COLLECTION_KEY_LEN, collection_key, parse_object, put_object};

/// Which part of the store a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    Super,
    Collection,
    Onode,
    Data,
    Omap,
}

impl Prefix {
    pub(super) const ALL: [Prefix; 5] = [
        Prefix::Super,
        Prefix::Collection,
        Prefix::Onode,
        Prefix::Data,
        Prefix::Omap,
    ];

    fn byte(self) -> u8 {
        match self {
            Prefix::Super => b'S',
            Prefix::Collection => b'C',
            Prefix::Onode => b'O',
            Prefix::Data => b'D',
            Prefix::Omap => b'M',
        }
    }

    /// The name in counters.
    pub(super) fn name(self) -> &'static str {
        match self {
            Prefix::Super => "superblock",
            Prefix::Collection => "collection",
            Prefix::Onode => "onode",
            Prefix::Data => "data",
            Prefix::Omap => "omap",
        }
    }

    /// Whose key this is.
    pub(super) fn of(key: &[u8]) -> Option<Prefix> {
        Prefix::ALL
            .into_iter()
            .find(|prefix| key.first() == Some(&prefix.byte()))
    }

    /// The start of its keys.
    pub(super) fn key(self) -> Vec<u8> {
        vec![self.byte(), 0]
    }
}

/// The first key behind all that begin with `prefix` (which is not all 0xff).
pub(super) fn behind(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            break;
        }
    }
    end.into()
}

/// `S`: what the store is.
pub(super) fn superblock_key() -> Bytes {
    let mut key = Prefix::Super.key();
    key.extend_from_slice(b"super");
    key.into()
}

/// `S`: what changes with every transaction.
pub(super) fn totals_key() -> Bytes {
    let mut key = Prefix::Super.key();
    key.extend_from_slice(b"totals");
    key.into()
}

/// `C`, collection.
pub(super) fn cnode_key(cid: &CollId) -> Bytes {
    let mut key = Prefix::Collection.key();
    key.extend_from_slice(&collection_key(cid));
    key.into()
}

/// `O`, collection: what all onodes of it begin with.
pub(super) fn onodes_of(cid: &CollId) -> Vec<u8> {
    let mut key = Prefix::Onode.key();
    key.extend_from_slice(&collection_key(cid));
    key
}

/// `O`, collection, object.
pub(super) fn onode_key(cid: &CollId, oid: &GhObject) -> Bytes {
    let mut key = onodes_of(cid);
    put_object(&mut key, oid);
    key.into()
}

/// The object of an onode's key.
pub(super) fn object_of(key: &[u8]) -> Option<GhObject> {
    parse_object(key.get(2 + COLLECTION_KEY_LEN..)?)
}

/// `D`, the object's number, the stripe's offset.
pub(super) fn stripe_key(nid: u64, offset: u64) -> Bytes {
    let mut key = Prefix::Data.key();
    key.extend_from_slice(&nid.to_be_bytes());
    key.extend_from_slice(&offset.to_be_bytes());
    key.into()
}

/// `M`, the omap's number, `-`: its header.
pub(super) fn header_key(omap: u64) -> Bytes {
    omap_key(omap, b'-', b"")
}

/// `M`, the omap's number, `.`, key.
pub(super) fn entry_key(omap: u64, key: &[u8]) -> Bytes {
    omap_key(omap, b'.', key)
}

/// `M`, the omap's number, `~`: behind its last entry.
pub(super) fn tail_key(omap: u64) -> Bytes {
    omap_key(omap, b'~', b"")
}

fn omap_key(omap: u64, kind: u8, rest: &[u8]) -> Bytes {
    let mut key = Prefix::Omap.key();
    key.extend_from_slice(&omap.to_be_bytes());
    key.push(kind);
    key.extend_from_slice(rest);
    key.into()
}

/// Where an entry's own key begins in [`entry_key`].
pub(super) const ENTRY_KEY_AT: usize = 2 + 8 + 1;

/// The store: value of [`superblock_key`].
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub(super) struct Superblock {
    /// Who it belongs to.
    pub(super) uuid: [u8; 16],
    /// Stripes of new objects, in bytes.
    pub(super) stripe_len: u32,
}

/// Value of [`totals_key`], written with every transaction that changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
pub(super) struct Totals {
    /// Largest number given to an object or an omap.
    pub(super) last_nid: u64,
    /// Bytes in stripes.
    pub(super) data: u64,
}

/// A collection: value of [`cnode_key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub(super) struct Cnode {
    /// Bits of the hash that its objects share.
    pub(super) bits: u32,
}

/// An object: value of [`onode_key`]. Fields as in Ceph's kstore_onode_t, and which stripes there
/// are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub(super) struct Onode {
    /// Its number: where its stripes are.
    pub(super) nid: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Xattrs.
    pub(super) attrs: BTreeMap<BString, Bytes>,
    /// Number of its omap, 0 if it never had one.
    pub(super) omap_head: u64,
    /// Bytes of a stripe.
    pub(super) stripe_size: u32,
    /// What the client expects.
    pub(super) expected_object_size: u64,
    pub(super) expected_write_size: u64,
    pub(super) alloc_hint_flags: u32,
    /// A bit for each stripe that is not there (reads as zeros), least first; bits that are not
    /// there are 0, so an object without holes has none.
    pub(super) holes: Bytes,
}

impl Onode {
    fn stripe(&self) -> u64 {
        u64::from(self.stripe_size.max(1))
    }

    /// How many stripes its size spans.
    pub(super) fn stripes(&self) -> u64 {
        self.size.div_ceil(self.stripe())
    }

    /// Whether a stripe is there.
    pub(super) fn has(&self, stripe: u64) -> bool {
        let byte = self.holes.get((stripe / 8) as usize).copied().unwrap_or(0);
        stripe < self.stripes() && byte >> (stripe % 8) & 1 == 0
    }

    /// Offsets of the stripes that are there.
    pub(super) fn present(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.stripes())
            .filter(|&n| self.has(n))
            .map(|n| n * self.stripe())
    }

    /// Bytes of its stripes.
    pub(super) fn data_len(&self) -> u64 {
        self.present()
            .map(|offset| self.stripe().min(self.size - offset))
            .sum()
    }

    /// Says which stripes are there, the size being what it is.
    pub(super) fn set_present(&mut self, present: impl Fn(u64) -> bool) {
        let count = self.stripes();
        let mut holes = Vec::new();
        for n in (0..count).filter(|&n| !present(n)) {
            let at = (n / 8) as usize;
            if holes.len() <= at {
                holes.resize(at + 1, 0_u8);
            }
            holes[at] |= 1 << (n % 8);
        }
        self.holes = holes.into();
    }
}
