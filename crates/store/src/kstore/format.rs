//! What is in the database: keys and values (docs/format-kstore.md).
//!
//! To the keys that stores in databases share ([`keys`]) come `D`, data in stripes.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;

use crate::keyed::{self, keys};

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
    pub(super) const ALL: [Prefix; 5] =
        [Prefix::Super, Prefix::Collection, Prefix::Onode, Prefix::Data, Prefix::Omap];

    fn letter(self) -> u8 {
        match self {
            Prefix::Super => keys::SUPER,
            Prefix::Collection => keys::COLLECTION,
            Prefix::Onode => keys::ONODE,
            Prefix::Data => b'D',
            Prefix::Omap => keys::OMAP,
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

    /// Whose letter this is.
    pub(super) fn of(letter: u8) -> Option<Prefix> {
        Prefix::ALL.into_iter().find(|p| p.letter() == letter)
    }

    /// The start of its keys.
    pub(super) fn key(self) -> Vec<u8> {
        keys::prefix(self.letter())
    }
}

/// `D`, the object's number, the stripe's offset.
pub(super) fn stripe_key(nid: u64, offset: u64) -> Bytes {
    let mut key = keys::numbered(Prefix::Data.letter(), nid);
    key.extend_from_slice(&offset.to_be_bytes());
    key.into()
}

/// The store: value of [`keys::superblock_key`].
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub(super) struct Superblock {
    /// Who it belongs to.
    pub(super) uuid: [u8; 16],
    /// Stripes of new objects, in bytes.
    pub(super) stripe_len: u32,
}

/// Value of [`keys::totals_key`], written with every transaction that changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Denc)]
pub(super) struct Totals {
    /// Largest number given to an object or an omap.
    pub(super) last_nid: u64,
    /// Bytes in stripes.
    pub(super) data: u64,
}

/// An object: value of [`keys::onode_key`]. Fields as in Ceph's kstore_onode_t, and which stripes there
/// are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub(crate) struct Onode {
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
        (0..self.stripes()).filter(|&n| self.has(n)).map(|n| n * self.stripe())
    }

    /// Bytes of its stripes.
    pub(super) fn data_len(&self) -> u64 {
        self.present().map(|offset| self.stripe().min(self.size - offset)).sum()
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

impl keyed::Onode for Onode {
    fn size(&self) -> u64 {
        self.size
    }

    fn attrs(&mut self) -> &mut BTreeMap<BString, Bytes> {
        &mut self.attrs
    }

    fn omap(&mut self) -> &mut u64 {
        &mut self.omap_head
    }

    fn set_hint(&mut self, object_size: u64, write_size: u64, flags: u32) {
        self.expected_object_size = object_size;
        self.expected_write_size = write_size;
        self.alloc_hint_flags = flags;
    }
}
