//! Random transactions.

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use device::memory::Choices;
use store::{CollId, Transaction};
use types::hobject::{GhObject, HObject};
use types::pg::{PgId, SpgId};

use super::model::Model;

/// How big things get.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) objects: u64,
    pub(crate) object_len: u64,
    pub(crate) write_len: u64,
}

impl Sizes {
    pub(crate) const SMALL: Sizes = Sizes { objects: 12, object_len: 40_000, write_len: 14_000 };
}

pub(crate) fn pg(seed: u32) -> CollId {
    CollId::Pg(SpgId { pgid: PgId { pool: 1, seed }, shard: -1 })
}

pub(crate) fn object(name: &str, hash: u32) -> GhObject {
    GhObject::new(HObject {
        name: name.into(),
        hash,
        pool: 1,
        snap: u64::MAX - 1,
        ..HObject::default()
    })
}

pub(crate) fn numbered(n: u64) -> GhObject {
    let mut oid = object(&format!("object {n}"), (n as u32).wrapping_mul(0x9e37_79b9));
    match n % 5 {
        0 => oid.hobj.snap = n,
        1 => oid.hobj.namespace = "space".into(),
        2 => oid.hobj.key = "key".into(),
        3 => oid.generation = n,
        _ => {}
    }
    oid
}

pub(crate) fn bytes(choices: &mut Choices, len: u64) -> Bytes {
    let seed = choices.below(u64::MAX);
    let mut own = Choices::new(seed);
    let mut out = Vec::with_capacity(len as usize + 8);
    while (out.len() as u64) < len {
        out.extend_from_slice(&own.below(u64::MAX).to_le_bytes());
    }
    out.truncate(len as usize);
    out.into()
}

/// An offset or length: often aligned, often small.
fn extent(choices: &mut Choices, max: u64) -> u64 {
    let value = choices.below(max + 1);
    match choices.below(4) {
        0 => value / 4096 * 4096,
        1 => value / 512,
        _ => value,
    }
}

/// A transaction that the model can apply, or sometimes one that it must refuse.
pub(crate) fn transaction(choices: &mut Choices, model: &Model, sizes: Sizes) -> Transaction {
    let mut t = Transaction::new();
    let cids: Vec<CollId> = model.colls.keys().copied().collect();
    if cids.is_empty() || (cids.len() < 3 && choices.below(40) == 0) {
        let free = (0..8).map(pg).find(|c| !model.colls.contains_key(c)).unwrap();
        t.mkcoll(&free, 3);
        return t;
    }
    let cid = cids[choices.below(cids.len() as u64) as usize];
    if choices.below(100) == 0 {
        collections(choices, &mut t, &cids, cid);
        return t;
    }
    for _ in 0..=choices.below(4) {
        let oid = numbered(choices.below(sizes.objects));
        operation(choices, &mut t, &cids, cid, &oid, sizes);
    }
    t
}

fn collections(choices: &mut Choices, t: &mut Transaction, cids: &[CollId], cid: CollId) {
    let other = cids[choices.below(cids.len() as u64) as usize];
    match choices.below(4) {
        0 if other != cid => {
            t.split_collection(&cid, 4, choices.below(16) as u32, &other);
        }
        1 if other != cid => {
            t.merge_collection(&cid, &other, 2);
        }
        2 => {
            t.rmcoll(&cid);
        }
        _ => {
            t.coll_set_bits(&cid, choices.below(9) as u32);
        }
    }
}

fn operation(
    choices: &mut Choices,
    t: &mut Transaction,
    cids: &[CollId],
    cid: CollId,
    oid: &GhObject,
    sizes: Sizes,
) {
    let other = numbered(choices.below(sizes.objects));
    let name = |choices: &mut Choices| BString::from(format!("name {}", choices.below(6)));
    let key = |choices: &mut Choices| BString::from(format!("key {:05}", choices.below(40)));
    let offset = extent(choices, sizes.object_len);
    let len = extent(choices, sizes.write_len);
    let small = choices.below(300);
    match choices.below(24) {
        0..=6 => {
            let data = bytes(choices, len);
            t.write(&cid, oid, offset, data);
        }
        7 => {
            t.zero(&cid, oid, offset, len);
        }
        8 => {
            t.touch(&cid, oid).truncate(&cid, oid, offset);
        }
        9 => {
            t.remove(&cid, oid);
        }
        10 | 11 => {
            let value = bytes(choices, small);
            t.touch(&cid, oid).setattr(&cid, oid, name(choices), value);
        }
        12 => {
            t.touch(&cid, oid).rmattr(&cid, oid, name(choices));
        }
        13..=15 => {
            let n = choices.below(5);
            let entries: BTreeMap<_, _> =
                (0..n).map(|_| (key(choices), bytes(choices, small))).collect();
            t.touch(&cid, oid).omap_setkeys(&cid, oid, entries);
        }
        16 => {
            let keys: BTreeSet<_> = (0..3).map(|_| key(choices)).collect();
            t.touch(&cid, oid).omap_rmkeys(&cid, oid, keys);
        }
        17 => {
            t.touch(&cid, oid).omap_rmkeyrange(&cid, oid, key(choices), key(choices));
        }
        18 => {
            let header = bytes(choices, small);
            t.touch(&cid, oid).omap_setheader(&cid, oid, header);
        }
        19 => {
            t.touch(&cid, oid).clone_object(&cid, oid, &other);
        }
        20 => {
            let to_offset = extent(choices, sizes.object_len);
            t.touch(&cid, oid).clone_range(&cid, oid, &other, offset, len, to_offset);
        }
        21 => {
            t.try_rename(&cid, oid, &other);
        }
        22 => {
            let to = cids[choices.below(cids.len() as u64) as usize];
            t.coll_move_rename(&cid, oid, &to, &other);
        }
        _ => match choices.below(4) {
            0 => {
                t.omap_clear(&cid, oid);
            }
            1 => {
                t.rmattrs(&cid, oid);
            }
            2 => {
                t.set_alloc_hint(&cid, oid, small, len, 1);
            }
            // Refused unless the object is there.
            _ => {
                t.setattr(&cid, oid, "x", &b"y"[..]);
            }
        },
    }
}

/// Keys of an omap in no order, so that compactions meet all of it, each with a value.
pub(crate) fn scattered(choices: &mut Choices) -> BTreeMap<BString, Bytes> {
    let entry = |choices: &mut Choices| {
        let value = vec![choices.below(256) as u8; 200 + choices.below(3000) as usize];
        (format!("{:016x}", choices.below(u64::MAX)).into(), value.into())
    };
    (0..16).map(|_| entry(choices)).collect()
}
