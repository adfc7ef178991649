//! Names of objects as bytes whose order is the objects' order: what key-value stores sort by.
//!
//! ```text
//! u8 shard + 128 | u8 max | u64 pool + 2^63 | u32 hash, bits reversed | namespace
//!   | key, or name if there is none | '=' , or '<' or '>' and the name | u64 snap | key
//!   | u64 generation
//! ```
//!
//! Numbers are big-endian. Texts end in `00 01`, a zero byte in them is `00 FF`. The sign says
//! where the name is relative to the key, so that the name is written once where both are one
//! (the way of Ceph's KStore and BlueStore, `src/os/kstore/KStore.cc` at v16.2; the bytes differ).

use std::cmp::Ordering;

use bstr::BString;
use types::hobject::{GhObject, HObject};
use types::pg::{PgId, SpgId};

use crate::CollId;

/// Length of [`collection_key`].
pub(crate) const COLLECTION_KEY_LEN: usize = 14;

/// A collection as so many bytes. Their order is of no use.
pub(crate) fn collection_key(cid: &CollId) -> [u8; COLLECTION_KEY_LEN] {
    let mut key = [0; COLLECTION_KEY_LEN];
    key[0] = match cid {
        CollId::Meta => 0,
        CollId::Pg(_) => 1,
        CollId::PgTemp(_) => 2,
    };
    if let Some(SpgId { pgid, shard }) = cid.spg() {
        key[1..9].copy_from_slice(&pgid.pool.to_be_bytes());
        key[9..13].copy_from_slice(&pgid.seed.to_be_bytes());
        key[13] = shard as u8;
    }
    key
}

/// The collection of such bytes.
pub(crate) fn parse_collection_key(key: &[u8]) -> Option<CollId> {
    let key: [u8; COLLECTION_KEY_LEN] = key.try_into().ok()?;
    let pool = u64::from_be_bytes(key[1..9].try_into().ok()?);
    let seed = u32::from_be_bytes(key[9..13].try_into().ok()?);
    let pg = SpgId { pgid: PgId { pool, seed }, shard: key[13] as i8 };
    match key[0] {
        0 => Some(CollId::Meta),
        1 => Some(CollId::Pg(pg)),
        2 => Some(CollId::PgTemp(pg)),
        _ => None,
    }
}

/// Appends a text so that order is kept and its end is found.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    for &byte in text {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 1]);
}

/// Appends an object's name. [`GhObject::max`] has none: it is behind all.
pub(crate) fn put_object(out: &mut Vec<u8>, oid: &GhObject) {
    let hobj = &oid.hobj;
    out.push((oid.shard as u8) ^ 0x80);
    out.push(hobj.max.into());
    out.extend_from_slice(&((hobj.pool as u64) ^ (1 << 63)).to_be_bytes());
    out.extend_from_slice(&hobj.bitwise_key().to_be_bytes());
    put_text(out, &hobj.namespace);
    let effective = hobj.effective_key();
    put_text(out, effective);
    match hobj.name.as_slice().cmp(effective) {
        Ordering::Equal => out.push(b'='),
        Ordering::Less => {
            out.push(b'<');
            put_text(out, &hobj.name);
        }
        Ordering::Greater => {
            out.push(b'>');
            put_text(out, &hobj.name);
        }
    }
    out.extend_from_slice(&hobj.snap.to_be_bytes());
    put_text(out, &hobj.key);
    out.extend_from_slice(&oid.generation.to_be_bytes());
}

/// Takes bytes off the front.
struct Parts<'a>(&'a [u8]);

impl<'a> Parts<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_at_checked(N)?;
        self.0 = rest;
        first.try_into().ok()
    }

    fn text(&mut self) -> Option<BString> {
        let mut text = Vec::new();
        loop {
            match self.take::<1>()? {
                [0] => match self.take::<1>()? {
                    [0xff] => text.push(0),
                    [1] => return Some(text.into()),
                    _ => return None,
                },
                [byte] => text.push(byte),
            }
        }
    }
}

/// The object of [`put_object`]'s bytes.
pub(crate) fn parse_object(key: &[u8]) -> Option<GhObject> {
    let mut parts = Parts(key);
    let shard = (parts.take::<1>()?[0] ^ 0x80) as i8;
    let max = parts.take::<1>()?[0] != 0;
    let pool = (u64::from_be_bytes(parts.take()?) ^ (1 << 63)) as i64;
    let reversed = u32::from_be_bytes(parts.take()?);
    let namespace = parts.text()?;
    let effective = parts.text()?;
    let name = match parts.take::<1>()?[0] {
        b'=' => effective,
        b'<' | b'>' => parts.text()?,
        _ => return None,
    };
    let snap = u64::from_be_bytes(parts.take()?);
    let key = parts.text()?;
    let generation = u64::from_be_bytes(parts.take()?);
    if !parts.0.is_empty() {
        return None;
    }
    let hash = reversed.reverse_bits();
    let hobj = HObject { key, name, snap, hash, max, namespace, pool };
    Some(GhObject { hobj, generation, shard, max: false })
}

#[cfg(test)]
mod tests {
    use device::memory::Choices;

    use super::*;

    fn random(choices: &mut Choices) -> GhObject {
        let text = |choices: &mut Choices| -> BString {
            let len = choices.below(4);
            let byte = |choices: &mut Choices| [0, 1, b'a', 0xff][choices.below(4) as usize];
            (0..len).map(|_| byte(choices)).collect::<Vec<u8>>().into()
        };
        let mut oid = GhObject::new(HObject {
            key: text(choices),
            name: text(choices),
            snap: choices.below(3),
            hash: choices.below(3) as u32,
            max: false,
            namespace: text(choices),
            pool: choices.below(3) as i64 - 1,
        });
        oid.shard = choices.below(3) as i8 - 1;
        oid.generation = u64::MAX - choices.below(2);
        oid
    }

    #[test]
    fn keys_sort_as_objects_and_give_them_back() {
        let mut choices = Choices::new(1);
        let key = |oid: &GhObject| {
            let mut key = Vec::new();
            put_object(&mut key, oid);
            key
        };
        for _ in 0..20_000 {
            let (a, b) = (random(&mut choices), random(&mut choices));
            assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b), "{a:?} {b:?}");
            assert_eq!(parse_object(&key(&a)), Some(a));
        }
        for cut in 0..key(&random(&mut choices)).len() {
            let mut short = key(&random(&mut choices));
            short.truncate(cut);
            assert!(parse_object(&short).is_none_or(|o| key(&o) == short));
        }
        for cid in [CollId::Meta, CollId::Pg(SpgId { pgid: PgId { pool: 9, seed: 3 }, shard: -1 })]
        {
            assert_eq!(parse_collection_key(&collection_key(&cid)), Some(cid));
        }
    }
}
