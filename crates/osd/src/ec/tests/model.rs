//! Random writes of random profiles, with shards lost, read, undone and let go: what is read is
//! what a plain model holds, and what is undone leaves no trace.

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use store::{CollId, Transaction};
use types::hobject::NO_GEN;
use types::osd::{LogOp, PgLogEntry};
use types::{EVersion, GhObject, HObject, NOSNAP, PgId, crc};

use super::super::encode::at;
use super::super::hash_info::{HINFO_KEY, Verdict, judge};
use super::{Shards, Stored};
use crate::pg::backend::ShardCodec;
use crate::pg::rollback::ShardPlace;

const OBJECTS: [&str; 3] = ["a", "b", "c"];

struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}

#[derive(Clone, Default, PartialEq, Debug)]
struct Object {
    data: Vec<u8>,
    attrs: BTreeMap<BString, Bytes>,
}

type Model = BTreeMap<HObject, Object>;

struct World {
    rng: Rng,
    shards: Shards,
    width: u64,
    model: Model,
    version: u64,
    snap: u64,
    /// Entries that can be undone, with the model and the shards before each.
    undoable: Vec<(PgLogEntry, Model, Vec<BTreeMap<GhObject, Stored>>)>,
    undone: usize,
}

fn head(name: &str) -> HObject {
    HObject { name: name.into(), pool: 1, snap: NOSNAP, ..HObject::default() }
}

impl World {
    fn new(seed: u64) -> World {
        let profiles = [
            "k=2,m=1",
            "k=4,m=2",
            "k=3,m=2",
            "plugin=isa,k=4,m=2",
            "plugin=isa,k=3,m=1",
            "plugin=isa,technique=cauchy,k=3,m=3",
            "technique=reed_sol_r6_op,k=3,m=2",
            "technique=cauchy_good,k=3,m=2,packetsize=1",
        ];
        let mut rng = Rng(seed);
        let profile = profiles[rng.below(profiles.len() as u64) as usize];
        let piece = 32 << rng.below(3);
        let shards = Shards::new(profile, piece, PgId::new(1, 0));
        let width = shards.codec.stripe_width();
        World {
            rng,
            shards,
            width,
            model: Model::new(),
            version: 0,
            snap: 0,
            undoable: Vec::new(),
            undone: 0,
        }
    }

    /// At least k shards.
    fn some_shards(&mut self) -> BTreeSet<i8> {
        let mut there = self.shards.all();
        for _ in 0..self.rng.below(self.shards.codec.m() as u64 + 1) {
            let gone = self.rng.below(self.shards.codec.shards() as u64) as i8;
            there.remove(&gone);
        }
        there
    }

    /// One op vector on one object, as the interpreter makes them: to the model and as a
    /// transaction.
    fn write(&mut self) {
        let name = OBJECTS[self.rng.below(OBJECTS.len() as u64) as usize];
        let oid = head(name);
        let goid = GhObject::from(oid.clone());
        let cid = CollId::Pg(PgId::new(1, 0).spg());
        let before = self.model.clone();
        let sizes = before.iter().map(|(o, x)| (o.clone(), x.data.len() as u64)).collect();
        let mut t = Transaction::new();
        let mut entries = Vec::new();
        self.version += 1;
        if self.rng.below(6) == 0
            && let Some(object) = before.get(&oid)
        {
            self.snap += 1;
            let clone = oid.with_snap(self.snap);
            let goid_of_clone = GhObject::from(clone.clone());
            t.clone_object(&cid, &goid, &goid_of_clone);
            t.setattr(&cid, &goid_of_clone, "_", Bytes::from(vec![self.version as u8]));
            t.rmattr(&cid, &goid_of_clone, "snapset");
            let mut copy = object.clone();
            copy.attrs.insert("_".into(), Bytes::from(vec![self.version as u8]));
            copy.attrs.remove(&BString::from("snapset"));
            self.model.insert(clone.clone(), copy);
            entries.push(entry(LogOp::CLONE, &clone, self.version));
            self.version += 1;
        }
        for _ in 0..1 + self.rng.below(3) {
            self.step(&mut t, &cid, &oid, &before);
        }
        let op = if self.model.contains_key(&oid) { LogOp::MODIFY } else { LogOp::DELETE };
        if let Some(object) = self.model.get_mut(&oid) {
            let attrs: BTreeMap<BString, Bytes> = [
                ("_".into(), Bytes::from(self.version.to_le_bytes().to_vec())),
                ("snapset".into(), Bytes::from_static(b"set")),
            ]
            .into();
            object.attrs.extend(attrs.clone());
            t.setattrs(&cid, &goid, attrs);
        }
        entries.push(entry(op, &oid, self.version));
        let from = self.some_shards();
        let stored: Vec<_> = self.shards.all().iter().map(|&s| self.shards.stored(s)).collect();
        let by_shard = self.shards.encode(&t, &sizes, &mut entries, &from);
        for (shard, t) in by_shard {
            self.shards.submit(shard, t);
        }
        let (first, more) = entries.split_first().expect("one entry");
        self.undoable.push((first.clone(), before, stored));
        for e in more {
            // Undone together: the state between two entries of a write was never there.
            self.undoable.push((e.clone(), Model::new(), Vec::new()));
        }
    }

    fn step(&mut self, t: &mut Transaction, cid: &CollId, oid: &HObject, before: &Model) {
        let goid = GhObject::from(oid.clone());
        let size = self.model.get(oid).map_or(0, |o| o.data.len() as u64);
        let width = self.width;
        // Ends and beginnings of stripes more often than other places.
        let place = |rng: &mut Rng, max: u64| {
            let at = rng.below(max + 1);
            if rng.below(3) == 0 { at / width * width } else { at }
        };
        let rng = &mut self.rng;
        match rng.below(12) {
            0 => {
                t.remove(cid, &goid);
                self.model.remove(oid);
                if rng.below(2) == 0 {
                    t.touch(cid, &goid);
                    self.model.insert(oid.clone(), Object::default());
                }
            }
            1 => {
                let clones: Vec<&HObject> =
                    before.keys().filter(|o| o.is_snap() && o.head() == *oid).collect();
                if clones.is_empty() {
                    return;
                }
                let source = clones[rng.below(clones.len() as u64) as usize];
                t.remove(cid, &goid);
                t.clone_object(cid, &GhObject::from(source.clone()), &goid);
                self.model.insert(oid.clone(), before[source].clone());
            }
            kind => {
                t.touch(cid, &goid);
                let object = self.model.entry(oid.clone()).or_default();
                match kind {
                    2 => {
                        let data = {
                            let len = 1 + rng.below(2 * width);
                            rng.bytes(len)
                        };
                        t.truncate(cid, &goid, 0);
                        t.write(cid, &goid, 0, data.clone());
                        object.data = data;
                    }
                    3 | 4 => {
                        let to = place(rng, size + 2 * width);
                        t.truncate(cid, &goid, to);
                        object.data.resize(to as usize, 0);
                    }
                    5 if size > 0 => {
                        let from = place(rng, size - 1);
                        let len = 1 + rng.below(size - from);
                        t.zero(cid, &goid, from, len);
                        object.data[from as usize..(from + len) as usize].fill(0);
                    }
                    6 => {
                        let name: BString = format!("_k{}", rng.below(3)).into();
                        let value = Bytes::from(rng.bytes(3));
                        t.setattr(cid, &goid, name.clone(), value.clone());
                        object.attrs.insert(name, value);
                    }
                    7 => {
                        let name: BString = format!("_k{}", rng.below(3)).into();
                        t.rmattr(cid, &goid, name.clone());
                        object.attrs.remove(&name);
                    }
                    8 | 9 => {
                        // An append.
                        let len = 1 + place(rng, 2 * width);
                        let data = rng.bytes(len);
                        t.write(cid, &goid, size, data.clone());
                        object.data.extend_from_slice(&data);
                    }
                    _ => {
                        let from = place(rng, size + width);
                        let len = 1 + place(rng, 2 * width);
                        let data = rng.bytes(len);
                        t.write(cid, &goid, from, data.clone());
                        let end = (from + len) as usize;
                        if object.data.len() < end {
                            object.data.resize(end, 0);
                        }
                        object.data[from as usize..end].copy_from_slice(&data);
                    }
                }
            }
        }
    }

    fn each_place(&self, f: impl Fn(&ShardPlace<'_>, &mut Transaction)) {
        let chunk_len = |size| self.shards.codec.chunk_len(size);
        for shard in self.shards.all() {
            let cid = self.shards.cid(shard);
            let place = ShardPlace { cid: &cid, shard, chunk_len: &chunk_len };
            let mut t = Transaction::new();
            f(&place, &mut t);
            self.shards.submit(shard, t);
        }
    }

    /// Undoes the newest writes: all is as it was.
    fn undo(&mut self) {
        let count = 1 + self.rng.below(3);
        for _ in 0..count {
            let Some((entry, mut model, mut stored)) = self.undoable.pop() else { return };
            self.each_place(|place, t| place.undo(&entry, t));
            while stored.is_empty() {
                let (entry, m, s) = self.undoable.pop().expect("a write has a first entry");
                self.each_place(|place, t| place.undo(&entry, t));
                (model, stored) = (m, s);
            }
            self.model = model;
            for (shard, before) in stored.iter().enumerate() {
                let after = self.shards.stored(shard as i8);
                assert_eq!(after, *before, "shard {shard} after undoing {entry:?}");
            }
            self.undone += 1;
        }
    }

    /// Oldest entries can be undone no more.
    fn roll_forward(&mut self) {
        let count = self.rng.below(self.undoable.len() as u64 + 1) as usize;
        let whole = (0..=count)
            .rev()
            .find(|&n| self.undoable.get(n).is_none_or(|(_, _, stored)| !stored.is_empty()));
        let trimmed: Vec<_> = self.undoable.drain(..whole.unwrap_or(0)).collect();
        for (entry, ..) in trimmed {
            self.each_place(|place, t| place.trim(&entry, t));
        }
        // What was remembered of the others still has what is gone now.
        let kept: Vec<BTreeSet<GhObject>> = self
            .shards
            .all()
            .iter()
            .map(|&s| self.shards.stored(s).into_keys().collect())
            .collect();
        let versions: BTreeSet<u64> =
            self.undoable.iter().map(|(e, ..)| e.version.version).collect();
        for (_, _, stored) in &mut self.undoable {
            for (objects, kept) in stored.iter_mut().zip(&kept) {
                objects.retain(|oid, _| {
                    oid.generation == NO_GEN
                        || kept.contains(oid)
                        || versions.contains(&oid.generation)
                });
            }
        }
    }

    fn check(&mut self) {
        let objects: Vec<(HObject, Object)> =
            self.model.iter().map(|(o, x)| (o.clone(), x.clone())).collect();
        for (oid, object) in objects {
            let size = object.data.len() as u64;
            let there = self.some_shards();
            let from = self.rng.below(size);
            let len = self.rng.below(size - from + 1);
            let read = self.shards.read(&oid, from, len, &there);
            assert_eq!(read, object.data[from as usize..(from + len) as usize], "{oid} {from}");
            let whole = self.shards.read(&oid, 0, size, &there);
            assert_eq!(whole, object.data, "{oid} of {there:?}");
            self.check_shards(&oid, &object, &there);
        }
        let names: BTreeSet<&HObject> = self.model.keys().collect();
        for shard in self.shards.all() {
            let stored = self.shards.stored(shard);
            let live = stored.keys().filter(|o| o.generation == NO_GEN).map(|o| &o.hobj);
            assert_eq!(live.collect::<BTreeSet<_>>(), names, "shard {shard}");
            if self.undoable.is_empty() {
                assert!(stored.keys().all(|o| o.generation == NO_GEN), "nothing is left behind");
            }
        }
    }

    /// Lengths, attributes, checksums, and what lost shards would be made of.
    fn check_shards(&self, oid: &HObject, object: &Object, there: &BTreeSet<i8>) {
        let codec = &self.shards.codec;
        let chunk = |s: i8| self.shards.chunk(s, oid, 0, 0);
        let expected = codec.chunk_len(object.data.len() as u64);
        for shard in self.shards.all() {
            let data = chunk(shard);
            assert_eq!(data.len() as u64, expected, "{oid} shard {shard}");
            let mut attrs = self.shards.attrs(shard, &at(oid, NO_GEN, shard)).unwrap();
            let crc = crc::crc32c(u32::MAX, &data);
            match judge(&attrs, shard as usize, expected, crc) {
                Verdict::Good { .. } => {
                    let damaged = judge(&attrs, shard as usize, expected, crc ^ 1);
                    assert_eq!(damaged, Verdict::Hash);
                }
                told => assert_eq!(told, Verdict::Unknown, "{oid} shard {shard}"),
            }
            assert!(attrs.remove(HINFO_KEY).is_some());
            assert_eq!(attrs, object.attrs, "{oid} shard {shard}");
        }
        let lost: BTreeSet<i8> = self.shards.all().difference(there).copied().collect();
        let chunks = there.iter().map(|&s| (s, chunk(s))).collect();
        for (shard, rebuilt) in codec.rebuild(&lost, &chunks).unwrap() {
            assert_eq!(rebuilt, chunk(shard), "{oid} shard {shard} of {there:?}");
        }
    }
}

fn entry(op: LogOp, oid: &HObject, version: u64) -> PgLogEntry {
    PgLogEntry {
        op,
        soid: oid.clone(),
        version: EVersion::new(7, version),
        ..PgLogEntry::default()
    }
}

#[test]
fn shards_hold_what_was_written_and_undone_writes_leave_no_trace() {
    let mut undone = 0;
    for seed in 0..150 {
        let mut world = World::new(seed);
        for _ in 0..25 {
            world.write();
            match world.rng.below(5) {
                0 => world.undo(),
                1 => world.roll_forward(),
                _ => {}
            }
            world.check();
        }
        undone += world.undone;
    }
    assert!(undone > 500, "{undone} writes undone");
}
