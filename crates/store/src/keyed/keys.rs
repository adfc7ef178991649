//! Keys: a letter, a zero byte, the rest. Letters are those of Ceph's KStore and BlueStore
//! (`src/os/kstore/KStore.cc`, `src/os/bluestore/BlueStore.cc` at v16.2); each backend adds its own.

use bytes::Bytes;
use denc::Denc;
use types::hobject::GhObject;

use crate::CollId;
use crate::object_key::{COLLECTION_KEY_LEN, collection_key, parse_object, put_object};

/// Letter of the store itself.
pub(crate) const SUPER: u8 = b'S';
/// Letter of collections.
pub(crate) const COLLECTION: u8 = b'C';
/// Letter of onodes.
pub(crate) const ONODE: u8 = b'O';
/// Letter of omaps.
pub(crate) const OMAP: u8 = b'M';

/// What all keys of a letter begin with.
pub(crate) fn prefix(letter: u8) -> Vec<u8> {
    vec![letter, 0]
}

/// Letter, number.
pub(crate) fn numbered(letter: u8, number: u64) -> Vec<u8> {
    let mut key = prefix(letter);
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// The number in the key of a letter whose keys are numbers.
pub(crate) fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(2..10)?.try_into().ok()?))
}

/// The first key behind all that begin with `prefix` (which is not all 0xff).
pub(crate) fn behind(prefix: &[u8]) -> Bytes {
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
pub(crate) fn superblock_key() -> Bytes {
    [&prefix(SUPER)[..], b"super"].concat().into()
}

/// `S`: what changes with transactions.
pub(crate) fn totals_key() -> Bytes {
    [&prefix(SUPER)[..], b"totals"].concat().into()
}

/// `C`, collection.
pub(crate) fn cnode_key(cid: &CollId) -> Bytes {
    [&prefix(COLLECTION)[..], &collection_key(cid)].concat().into()
}

/// A collection: value of [`cnode_key`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Denc)]
#[denc(v = 1, compat = 1)]
pub(crate) struct Cnode {
    /// Bits of the hash that its objects share.
    pub(crate) bits: u32,
}

/// `O`, collection: what all onodes of it begin with.
pub(crate) fn onodes_of(cid: &CollId) -> Vec<u8> {
    [&prefix(ONODE)[..], &collection_key(cid)].concat()
}

/// `O`, collection, object.
pub(crate) fn onode_key(cid: &CollId, oid: &GhObject) -> Bytes {
    let mut key = onodes_of(cid);
    put_object(&mut key, oid);
    key.into()
}

/// The object of an onode's key.
pub(crate) fn object_of(key: &[u8]) -> Option<GhObject> {
    parse_object(key.get(2 + COLLECTION_KEY_LEN..)?)
}

/// `M`, the omap's number, `-`: its header.
pub(crate) fn header_key(omap: u64) -> Bytes {
    omap_key(omap, b'-', b"")
}

/// `M`, the omap's number, `.`, key.
pub(crate) fn entry_key(omap: u64, key: &[u8]) -> Bytes {
    omap_key(omap, b'.', key)
}

/// `M`, the omap's number, `~`: behind its last entry.
pub(crate) fn tail_key(omap: u64) -> Bytes {
    omap_key(omap, b'~', b"")
}

fn omap_key(omap: u64, kind: u8, rest: &[u8]) -> Bytes {
    let mut key = numbered(OMAP, omap);
    key.push(kind);
    key.extend_from_slice(rest);
    key.into()
}

/// Where an entry's own key begins in [`entry_key`].
pub(crate) const ENTRY_KEY_AT: usize = 2 + 8 + 1;
