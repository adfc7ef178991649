//! What is in the database and on the device besides data (docs/bluestore.md).
//!
//! To the keys that stores in databases share ([`keys`]) come, as in Ceph's BlueStore
//! (`src/os/bluestore/BlueStore.cc` at v16.2), `X` shared blobs, `L` deferred writes, `B` the freelist;
//! `E` is ours: extent maps in shards.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::crc::crc32c;

use crate::keyed::{self, keys};

/// Unit of device I/O and of checksums.
pub(super) const BLOCK_LEN: u64 = 4096;
/// Bytes at the device's start that hold no data: the label, and room.
pub(super) const LABEL_ROOM: u64 = 64 << 10;
/// Seed of all checksums (Ceph's -1).
pub(super) const CRC_SEED: u32 = u32::MAX;

/// Which part of the store a key belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Prefix {
    Super,
    Collection,
    Onode,
    Extents,
    Omap,
    Shared,
    Deferred,
    Freelist,
}

impl Prefix {
    pub(super) const ALL: [Prefix; 8] = [
        Prefix::Super,
        Prefix::Collection,
        Prefix::Onode,
        Prefix::Extents,
        Prefix::Omap,
        Prefix::Shared,
        Prefix::Deferred,
        Prefix::Freelist,
    ];

    fn letter(self) -> u8 {
        match self {
            Prefix::Super => keys::SUPER,
            Prefix::Collection => keys::COLLECTION,
            Prefix::Onode => keys::ONODE,
            Prefix::Extents => b'E',
            Prefix::Omap => keys::OMAP,
            Prefix::Shared => b'X',
            Prefix::Deferred => b'L',
            Prefix::Freelist => b'B',
        }
    }

    /// The name in counters.
    pub(super) fn name(self) -> &'static str {
        match self {
            Prefix::Super => "superblock",
            Prefix::Collection => "collection",
            Prefix::Onode => "onode",
            Prefix::Extents => "extents",
            Prefix::Omap => "omap",
            Prefix::Shared => "shared_blob",
            Prefix::Deferred => "deferred",
            Prefix::Freelist => "freelist",
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

    fn numbered(self, number: u64) -> Vec<u8> {
        keys::numbered(self.letter(), number)
    }
}

/// `E`, the object's number, the shard's.
pub(super) fn shard_key(nid: u64, shard: u32) -> Bytes {
    let mut key = Prefix::Extents.numbered(nid);
    key.extend_from_slice(&shard.to_be_bytes());
    key.into()
}

/// The shard's number in [`shard_key`].
pub(super) fn shard_of(key: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(key.get(10..14)?.try_into().ok()?))
}

/// `X`, the shared blob's number.
pub(super) fn shared_key(sbid: u64) -> Bytes {
    Prefix::Shared.numbered(sbid).into()
}

/// `L`, the transaction's number.
pub(super) fn deferred_key(seq: u64) -> Bytes {
    Prefix::Deferred.numbered(seq).into()
}

/// `B`, the number of the group of allocation units.
pub(super) fn freelist_key(group: u64) -> Bytes {
    Prefix::Freelist.numbered(group).into()
}

/// The store: value of [`keys::superblock_key`] and, with a checksum, the device's first block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub(super) struct Superblock {
    /// Who it belongs to.
    pub(super) uuid: [u8; 16],
    /// Bytes of an allocation unit.
    pub(super) min_alloc_len: u32,
    /// Bytes of the device that belong to the store.
    pub(super) device_len: u64,
}

/// What the device's first block begins with.
const LABEL: &[u8; 24] = b"loligo bluestore block\n\0";

impl Superblock {
    /// The device's first block: label, u32 length, superblock, u32 crc32c of what is before it.
    pub(super) fn to_block(self) -> Vec<u8> {
        let own = self.to_bytes();
        let mut block = LABEL.to_vec();
        block.extend_from_slice(&(own.len() as u32).to_le_bytes());
        block.extend_from_slice(&own);
        let crc = crc32c(CRC_SEED, &block);
        block.extend_from_slice(&crc.to_le_bytes());
        block.resize(BLOCK_LEN as usize, 0);
        block
    }

    /// The superblock of such a block.
    pub(super) fn of_block(block: &[u8]) -> Option<Superblock> {
        let rest = block.strip_prefix(LABEL)?;
        let len = u32::from_le_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let own = rest.get(4..)?.get(..len)?;
        let crc_at = LABEL.len() + 4 + len;
        let crc = block.get(crc_at..crc_at + 4)?;
        if crc != crc32c(CRC_SEED, &block[..crc_at]).to_le_bytes() {
            return None;
        }
        Superblock::from_bytes_exact(&Bytes::copy_from_slice(own)).ok()
    }
}

/// Value of [`keys::totals_key`], written with every transaction that changes it: two numbers, and three
/// more once anything has been compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Totals {
    /// Largest number given to an object, an omap or a shared blob.
    pub(super) last_id: u64,
    /// Bytes that extents map.
    pub(super) stored: u64,
    /// Of compressed data: bytes stored, bytes of their units, bytes that extents map.
    pub(super) compressed: [u64; 3],
}

impl Totals {
    pub(super) fn to_bytes(self) -> Bytes {
        let mut numbers = vec![self.last_id, self.stored];
        if self.compressed != [0; 3] {
            numbers.extend(self.compressed);
        }
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        bytes.into()
    }

    pub(super) fn of_bytes(bytes: &[u8]) -> Option<Totals> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let numbers: Vec<u64> = numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
        let (last_id, stored, compressed) = match numbers[..] {
            [last_id, stored] => (last_id, stored, [0; 3]),
            [last_id, stored, a, b, c] => (last_id, stored, [a, b, c]),
            _ => return None,
        };
        rest.is_empty().then_some(Totals { last_id, stored, compressed })
    }
}

/// An object: value of [`keys::onode_key`]. Fields as in Ceph's bluestore_onode_t; extents are in shards.
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub(crate) struct Onode {
    /// Its number: where its shards are.
    pub(super) nid: u64,
    /// Bytes.
    pub(super) size: u64,
    /// Xattrs.
    pub(super) attrs: BTreeMap<BString, Bytes>,
    /// Number of its omap, 0 if it never had one.
    pub(super) omap_head: u64,
    /// What the client expects.
    pub(super) expected_object_size: u64,
    pub(super) expected_write_size: u64,
    pub(super) alloc_hint_flags: u32,
}

/// A shared blob: how many objects refer to each of its allocation units, by device offset. Value
/// of [`shared_key`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub(super) struct SharedBlob {
    pub(super) refs: BTreeMap<u64, u32>,
}

/// Writes to be made in place once the transaction is durable: value of [`deferred_key`].
#[derive(Debug, Clone, PartialEq, Eq, Default, Denc)]
#[denc(v = 1, compat = 1)]
pub(super) struct Deferred {
    /// Whole blocks by device offset.
    pub(super) writes: BTreeMap<u64, Bytes>,
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
