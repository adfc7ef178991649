//! Writes on shards against a plain model, and against what a real Ceph put on its shards.

mod model;
mod real;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use store::memstore::MemStore;
use store::{CollId, ObjectStore, Transaction};
use types::hobject::NO_GEN;
use types::osd::mod_desc::RollbackOp;
use types::osd::{LogOp, PgLogEntry, SnapSet};
use types::{EVersion, GhObject, HObject, NOSNAP, PgId, SpgId};

use super::Codec;
use super::encode::at;
use crate::pg::backend::{ObjectBefore, ShardCodec};

/// An object of one shard: data and attributes.
type Stored = (Bytes, BTreeMap<BString, Bytes>);

/// The value of a future that has nothing to wait for.
fn ready<T>(future: impl Future<Output = T>) -> T {
    let mut cx = Context::from_waker(Waker::noop());
    match pin!(future).poll(&mut cx) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("a memory store waits for nothing"),
    }
}

/// The shards of a PG, each in a store of its own.
struct Shards {
    codec: Codec,
    pgid: PgId,
    stores: Vec<MemStore>,
}

impl Shards {
    fn new(profile: &str, piece: u64, pgid: PgId) -> Shards {
        let pairs = profile.split(',').filter_map(|p| p.split_once('='));
        let profile: BTreeMap<_, _> = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        let k: u64 = profile["k"].parse().unwrap();
        let codec = Codec::of(&profile, k * piece).unwrap();
        let stores = (0..codec.shards()).map(|_| MemStore::new(1 << 30)).collect();
        let shards = Shards { codec, pgid, stores };
        for shard in shards.all() {
            let mut t = Transaction::new();
            t.mkcoll(&shards.cid(shard), 0);
            shards.submit(shard, t);
        }
        shards
    }

    fn all(&self) -> BTreeSet<i8> {
        (0..self.codec.shards() as i8).collect()
    }

    fn cid(&self, shard: i8) -> CollId {
        CollId::Pg(SpgId { pgid: self.pgid, shard })
    }

    fn submit(&self, shard: i8, t: Transaction) {
        let done = ready(self.stores[shard as usize].submit(t.clone()));
        done.unwrap_or_else(|e| panic!("shard {shard}: {e:?} {t:?}"));
    }

    fn attrs(&self, shard: i8, oid: &GhObject) -> Option<BTreeMap<BString, Bytes>> {
        let found = ready(self.stores[shard as usize].getattrs(&self.cid(shard), oid));
        Some(found.ok()?.into_iter().collect())
    }

    /// A part of a chunk, as far as there is one.
    fn chunk(&self, shard: i8, oid: &HObject, offset: u64, len: u64) -> Bytes {
        let oid = at(oid, NO_GEN, shard);
        let read = ready(self.stores[shard as usize].read(&self.cid(shard), &oid, offset, len));
        read.map(|data| data.to_contiguous()).unwrap_or_default()
    }

    /// A range of an object out of those shards.
    fn read(&self, oid: &HObject, offset: u64, len: u64, from: &BTreeSet<i8>) -> Bytes {
        let plan = self.codec.plan_read(offset, len, from).expect("enough shards");
        assert!(plan.shards.is_subset(from) && plan.shards.len() <= self.codec.k());
        let chunks =
            plan.shards.iter().map(|&s| (s, self.chunk(s, oid, plan.offset, plan.len))).collect();
        self.codec.decode_read(offset, len, &chunks).unwrap()
    }

    /// The transactions of a write, with everything it reads taken from those shards.
    fn encode(
        &self,
        t: &Transaction,
        sizes: &BTreeMap<HObject, u64>,
        entries: &mut [PgLogEntry],
        from: &BTreeSet<i8>,
    ) -> BTreeMap<i8, Transaction> {
        let size = |oid: &HObject| sizes.get(oid).copied().unwrap_or(0);
        let reads = self.codec.reads_of_write(t, &size).unwrap();
        let mut read = BTreeMap::new();
        for (oid, ranges) in reads {
            let pieces: Vec<(u64, Bytes)> = ranges
                .into_iter()
                .map(|(offset, len)| (offset, self.read(&oid, offset, len, from)))
                .collect();
            read.insert(oid, pieces);
        }
        let shard = *from.first().expect("a shard");
        let mut before = BTreeMap::new();
        for oid in t.objects().iter().map(|o| &o.hobj) {
            let attrs = self.attrs(shard, &at(oid, NO_GEN, shard));
            let object = ObjectBefore {
                exists: attrs.is_some(),
                size: size(oid),
                attrs: attrs.unwrap_or_default(),
            };
            before.insert(oid.clone(), object);
        }
        self.codec.encode_write(self.pgid, t, &before, &read, entries).unwrap()
    }

    /// Everything that is on a shard.
    fn stored(&self, shard: i8) -> BTreeMap<GhObject, Stored> {
        let cid = self.cid(shard);
        let store = &self.stores[shard as usize];
        let all = ready(store.list(&cid, &GhObject::min(), &GhObject::max(), 1 << 20)).unwrap();
        all.objects
            .into_iter()
            .map(|oid| {
                let data = ready(store.read(&cid, &oid, 0, 0)).unwrap().to_contiguous();
                let attrs = self.attrs(shard, &oid).unwrap();
                (oid, (data, attrs))
            })
            .collect()
    }
}

/// Found by `ceph_test_rados` while OSDs were killed: "found snap mapper error" in the cluster log, no rows on any shard of a
/// clone that is there; without the scrub it had never been trimmed.
///
/// 1. The last snapshot of a clone is trimmed: the clone goes, and its rows.
/// 2. Not all shards have that when the interval ends, and it is undone. The clone came back without its rows.
#[test]
fn a_clone_that_comes_back_serves_its_snapshots_again() {
    let shards = Shards::new("k=2,m=1", 4096, PgId::new(2, 0));
    let head = HObject { name: "o".into(), pool: 2, snap: NOSNAP, ..HObject::default() };
    let clone = head.with_snap(4);
    let clone_snaps = BTreeMap::from([(4, vec![4, 3])]);
    let set = SnapSet { seq: 4, clones: vec![4], clone_snaps, ..SnapSet::default() };
    let attrs = BTreeMap::from([(BString::from("snapset"), set.to_bytes())]);
    let before = BTreeMap::from([
        (head, ObjectBefore { exists: true, size: 0, attrs }),
        (clone.clone(), ObjectBefore { exists: true, size: 0, attrs: BTreeMap::new() }),
    ]);
    let mut t = Transaction::new();
    t.remove(&CollId::Pg(shards.pgid.spg()), &GhObject::from(clone.clone()));
    let version = EVersion::new(1, 5);
    let mut entries =
        [PgLogEntry { op: LogOp::DELETE, soid: clone, version, ..PgLogEntry::default() }];
    shards.codec.encode_write(shards.pgid, &t, &before, &BTreeMap::new(), &mut entries).unwrap();
    let steps = entries[0].mod_desc.steps().unwrap();
    assert!(steps.contains(&RollbackOp::UpdateSnaps(BTreeSet::from([3, 4]))), "{steps:?}");
}
