//! Objects' names as keys of the trees in memory: Ceph's order, mostly decided without a look at
//! the name itself.
//!
//! A name is behind a pointer and compares field by field, text by text: with a million objects
//! each step down a tree is a cache miss or two. What comes first in the order (shard, pool,
//! reversed hash) fits into 16 bytes, which stand beside the pointer.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::rc::Rc;

use types::hobject::GhObject;

/// The first fields of the order as one number: of two names, that with the smaller rank comes
/// first; equal ranks decide nothing.
fn rank(oid: &GhObject) -> u128 {
    let flip_shard = oid.shard as u8 ^ 0x80;
    let flip_pool = oid.hobj.pool as u64 ^ 1 << 63;
    u128::from(oid.max) << 105
        | u128::from(flip_shard) << 97
        | u128::from(oid.hobj.max) << 96
        | u128::from(flip_pool) << 32
        | u128::from(oid.hobj.bitwise_key())
}

/// A name that is kept.
#[derive(Debug, Clone)]
pub(super) struct Name {
    /// [`rank`] in two halves: the alignment of one number would cost 8 bytes more.
    rank: [u64; 2],
    pub(super) oid: Rc<GhObject>,
}

/// A name to look up, with its rank.
struct Sought<'a> {
    rank: [u64; 2],
    oid: &'a GhObject,
}

/// What trees compare: kept and sought names alike.
pub(super) trait Ranked {
    fn rank(&self) -> [u64; 2];
    fn oid(&self) -> &GhObject;
}

fn halves(oid: &GhObject) -> [u64; 2] {
    let rank = rank(oid);
    [(rank >> 64) as u64, rank as u64]
}

impl Name {
    pub(super) fn new(oid: Rc<GhObject>) -> Name {
        Name { rank: halves(&oid), oid }
    }
}

/// Gives `found` what a tree with [`Name`]s is asked with for `oid`.
pub(super) fn seek<T>(oid: &GhObject, found: impl FnOnce(&(dyn Ranked + '_)) -> T) -> T {
    found(&Sought { rank: halves(oid), oid })
}

impl Ranked for Name {
    fn rank(&self) -> [u64; 2] {
        self.rank
    }
    fn oid(&self) -> &GhObject {
        &self.oid
    }
}

impl Ranked for Sought<'_> {
    fn rank(&self) -> [u64; 2] {
        self.rank
    }
    fn oid(&self) -> &GhObject {
        self.oid
    }
}

impl<'a> Borrow<dyn Ranked + 'a> for Name {
    fn borrow(&self) -> &(dyn Ranked + 'a) {
        self
    }
}

impl Ord for dyn Ranked + '_ {
    fn cmp(&self, other: &Self) -> Ordering {
        let ranks = self.rank().cmp(&other.rank());
        ranks.then_with(|| match std::ptr::eq(self.oid(), other.oid()) {
            true => Ordering::Equal,
            false => self.oid().cmp(other.oid()),
        })
    }
}

impl PartialOrd for dyn Ranked + '_ {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for dyn Ranked + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for dyn Ranked + '_ {}

impl Ord for Name {
    fn cmp(&self, other: &Name) -> Ordering {
        (self as &dyn Ranked).cmp(other)
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Name) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Name {}

#[cfg(test)]
mod tests {
    use types::hobject::HObject;

    use super::*;

    #[test]
    fn names_come_in_the_order_of_objects() {
        let mut all = vec![GhObject::default(), GhObject::new(HObject::max())];
        all.push(GhObject { max: true, ..GhObject::default() });
        for pool in [i64::MIN, -5, -2, 0, 1, i64::MAX] {
            for hash in [0, 1, 0x8000_0000, 0x1234_5678, u32::MAX] {
                for shard in [-128, -1, 0, 1, 127] {
                    for name in ["", "a", "b"] {
                        let hobj = HObject { pool, hash, name: name.into(), ..HObject::default() };
                        all.push(GhObject { shard, ..GhObject::new(hobj) });
                    }
                }
            }
        }
        let names: Vec<Name> = all.iter().map(|oid| Name::new(Rc::new(oid.clone()))).collect();
        for (oid, name) in all.iter().zip(&names) {
            for (other, other_name) in all.iter().zip(&names) {
                assert_eq!(oid.cmp(other), name.cmp(other_name), "{oid} and {other}");
                seek(oid, |sought| {
                    assert_eq!(sought.cmp(other_name), oid.cmp(other));
                });
            }
        }
    }
}
