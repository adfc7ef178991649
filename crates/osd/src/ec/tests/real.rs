//! What a real Ceph 16.2.15 sent to shards 1 and 2 of a 2+1 pool with `allow_ec_overwrites`
//! (`real-2+1.bin`: shard, length, ECSubWrite, as often as there were writes), while `rados` did
//! the steps below. From the same logical writes come the same operations on the shards, the same
//! bytes, checksums and steps of undoing.

use std::collections::{BTreeMap, BTreeSet};

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Reader};
use store::{CollId, Op, Transaction};
use types::osd::{EcSubWrite, PgLogEntry};
use types::{GhObject, HObject, PgId};

use super::Shards;

const WRITES: &[u8] = include_bytes!("real-2+1.bin");

/// One step of `rados`.
enum Step {
    Write(u64, Bytes),
    WriteFull(Bytes),
    SetAttr(&'static str, &'static str),
    Create,
    Remove,
    Truncate(u64),
    Rollback,
    /// A write of nothing.
    Nothing,
}

fn steps() -> Vec<(&'static str, Step)> {
    let f1 = Bytes::from((0..10000_u32).map(|i| (i * 7 + i / 256) as u8).collect::<Vec<_>>());
    let f2 = Bytes::from((0..5000_u32).map(|i| (i * 3 + 5) as u8).collect::<Vec<_>>());
    let f3 = Bytes::from(vec![b'x'; 100]);
    use Step::*;
    vec![
        ("a", WriteFull(f1.clone())),
        ("a", Write(10000, f2.clone())),
        ("a", Nothing),
        ("a", SetAttr("_k1", "v1")),
        ("a", SetAttr("_k1", "v2")),
        ("a", WriteFull(f2.clone())),
        ("b", Write(0, f1.clone())),
        ("c", Create),
        ("b", Remove),
        ("a", Write(3000, f3.clone())),
        ("a", Write(8192, f1.clone())),
        ("a", Truncate(9000)),
        ("a", Truncate(20000)),
        // The first write after a snapshot: it makes a clone, too.
        ("a", Write(100, f3.clone())),
        ("a", Rollback),
        ("a", Truncate(0)),
        ("d", Write(20000, f3)),
        ("e", WriteFull(f1)),
        ("e", Write(5000, f2)),
    ]
}

/// The writes as sent: those of one version together, by shard.
fn sent() -> Vec<BTreeMap<i8, EcSubWrite>> {
    let file = Bytes::from_static(WRITES);
    let mut r = Reader::new(&file);
    let mut writes: BTreeMap<_, BTreeMap<i8, EcSubWrite>> = BTreeMap::new();
    while r.remaining() > 0 {
        let shard = r.i8().unwrap();
        let write = EcSubWrite::from_bytes(&r.blob().unwrap()).unwrap();
        if !write.log_entries.is_empty() {
            writes.entry(write.at_version).or_default().insert(shard, write);
        }
    }
    writes.into_values().collect()
}

/// Operations with the names of what they are on.
fn named(t: &Transaction) -> Vec<String> {
    let name = |op: &Op| {
        let mut text = format!("{op:?}");
        for (i, oid) in t.objects().iter().enumerate() {
            text = text.replace(&format!("oid: {i},"), &format!("oid: {oid},"));
            text = text.replace(&format!("oid: {i} }}"), &format!("oid: {oid} }}"));
            text = text.replace(&format!("to: {i},"), &format!("to: {oid},"));
            text = text.replace(&format!("to: {i} }}"), &format!("to: {oid} }}"));
        }
        text
    };
    t.ops().iter().map(name).collect()
}

/// What the interpreter sets at the end, taken from what was sent.
fn info_attrs(t: &Transaction, oid: &HObject) -> BTreeMap<BString, Bytes> {
    let mut found = BTreeMap::new();
    for op in t.ops() {
        if let Op::SetAttrs { oid: index, attrs, .. } = op
            && t.objects()[*index as usize].hobj == *oid
        {
            found.extend(attrs.iter().map(|(name, value)| (BString::from(name), value.clone())));
        }
    }
    found.retain(|name, _| name == "_" || name == "snapset");
    found
}

#[test]
fn shards_get_what_a_real_ceph_sends_them() {
    let shards = Shards::new("k=2,m=1", 4096, PgId::new(2, 0));
    let cid = CollId::Pg(PgId::new(2, 0).spg());
    let from = BTreeSet::from([1, 2]);
    let mut sizes: BTreeMap<HObject, u64> = BTreeMap::new();
    let sent = sent();
    let steps = steps();
    assert_eq!(sent.len(), steps.len());
    for (write, (name, step)) in sent.iter().zip(&steps) {
        let first = &write[&1];
        assert_eq!(write[&2].log_entries, first.log_entries);
        let (last, clones) = first.log_entries.split_last().expect("entries");
        let oid = last.soid.clone();
        assert_eq!(oid.name, *name);
        let goid = GhObject::from(oid.clone());
        let theirs = Transaction::from_bytes(&first.transaction.0).unwrap();
        let mut t = Transaction::new();
        for clone in clones {
            let copy = GhObject::from(clone.soid.clone());
            t.clone_object(&cid, &goid, &copy);
            t.setattrs(&cid, &copy, info_attrs(&theirs, &clone.soid));
            t.rmattr(&cid, &copy, "snapset");
        }
        let size = sizes.get(&oid).copied().unwrap_or(0);
        let mut new_size = size;
        match step {
            Step::Write(offset, data) => {
                t.touch(&cid, &goid).write(&cid, &goid, *offset, data.clone());
                new_size = size.max(offset + data.len() as u64);
            }
            Step::WriteFull(data) => {
                t.touch(&cid, &goid);
                if size > 0 {
                    t.truncate(&cid, &goid, 0);
                }
                t.write(&cid, &goid, 0, data.clone());
                new_size = data.len() as u64;
            }
            Step::SetAttr(name, value) => {
                t.setattr(&cid, &goid, *name, Bytes::from_static(value.as_bytes()));
            }
            Step::Create => {
                t.touch(&cid, &goid);
            }
            Step::Remove => {
                t.remove(&cid, &goid);
                new_size = 0;
            }
            Step::Truncate(to) => {
                t.truncate(&cid, &goid, *to);
                new_size = *to;
            }
            Step::Rollback => {
                let clone = sizes.keys().find(|o| o.is_snap()).expect("a clone");
                t.remove(&cid, &goid);
                t.clone_object(&cid, &GhObject::from(clone.clone()), &goid);
                new_size = sizes[clone];
            }
            Step::Nothing => {}
        }
        let attrs = info_attrs(&theirs, &oid);
        if !attrs.is_empty() {
            t.setattrs(&cid, &goid, attrs);
        }
        let mut entries: Vec<PgLogEntry> = first.log_entries.clone();
        let mut ours = shards.encode(&t, &sizes, &mut entries, &from);
        for clone in clones {
            sizes.insert(clone.soid.clone(), size);
        }
        sizes.insert(oid, new_size);
        for (ours, theirs) in entries.iter().zip(&first.log_entries) {
            assert_eq!(ours.mod_desc.steps(), theirs.mod_desc.steps(), "{}", theirs.version);
            assert_eq!(ours.mod_desc, theirs.mod_desc, "{}", theirs.version);
        }
        for (&shard, write) in write {
            let theirs = Transaction::from_bytes(&write.transaction.0).unwrap();
            assert_eq!(named(&ours[&shard]), named(&theirs), "{} shard {shard}", last.version);
            ours.insert(shard, theirs);
        }
        for (shard, t) in ours {
            shards.submit(shard, t);
        }
    }
}
