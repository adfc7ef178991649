//! Ceph's own encodings of transactions decode and encode to the same bytes; nothing truncated or
//! damaged gets past the decoder by panicking.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use denc::Denc;
use store::{CollId, Op, Transaction};
use types::PageSums;
use types::crc::crc32c;
use types::hobject::{GhObject, HObject};

#[test]
fn golden_encodings() {
    corpus::check_all! {
        "ObjectStore::Transaction" => Transaction,
        "coll_t" => CollId,
    }
}

/// A transaction that was cut is refused, wherever it was cut.
#[test]
fn cut_transactions_are_refused() {
    for (path, bytes) in corpus::objects("ObjectStore::Transaction") {
        for len in 0..bytes.len() {
            assert!(
                Transaction::from_bytes_exact(&bytes.slice(..len)).is_err(),
                "{} cut at {len}",
                path.display()
            );
        }
    }
}

/// One of each operation.
pub fn all_ops() -> Transaction {
    let pg = CollId::Pg("2.1a".parse().unwrap());
    let child = CollId::Pg("2.5a".parse().unwrap());
    let object = |name: &str, hash| {
        GhObject::new(HObject { name: name.into(), hash, pool: 2, ..HObject::default() })
    };
    let (a, b) = (object("a", 0x1a), object("b", 0x3a));
    let map: BTreeMap<_, _> = [("k1", "v1"), ("k2", "")].map(|(k, v)| (k, Bytes::from(v))).into();
    let mut t = Transaction::new();
    t.mkcoll(&pg, 4).mkcoll(&CollId::Meta, 0).coll_hint(&pg, 1, &b"hint"[..]);
    t.touch(&pg, &a).create(&pg, &b).write(&pg, &a, 10, &b"data"[..]);
    t.write(&pg, &a, 1 << 33, vec![7; 9000]).zero(&pg, &a, 3, 5).truncate(&pg, &a, 77);
    t.setattr(&pg, &a, "_", &b"x"[..]).setattrs(&pg, &a, map.clone()).rmattr(&pg, &a, "_");
    t.rmattrs(&pg, &a).clone_object(&pg, &a, &b).clone_range(&pg, &a, &b, 1, 2, 3);
    t.omap_setkeys(&pg, &a, map).omap_rmkeys(&pg, &a, BTreeSet::from(["k1".into()]));
    t.omap_rmkeyrange(&pg, &a, "a", "b").omap_setheader(&pg, &a, &b"h"[..]).omap_clear(&pg, &a);
    t.coll_move_rename(&pg, &a, &CollId::Meta, &b).try_rename(&pg, &b, &a);
    t.set_alloc_hint(&pg, &a, 4 << 20, 4096, 3).coll_set_bits(&pg, 5).mkcoll(&child, 7);
    t.split_collection(&pg, 7, 0x5a, &child).merge_collection(&child, &pg, 6);
    t.remove(&pg, &b).rmcoll(&pg).add_fadvise_flags(0x20);
    t
}

#[test]
fn every_op_returns() {
    let t = all_ops();
    let bytes = t.to_bytes();
    let back = Transaction::from_bytes_exact(&bytes).unwrap();
    assert_eq!(back, t);
    assert_eq!(back.to_bytes(), bytes);
    for len in 0..bytes.len() {
        assert!(Transaction::from_bytes_exact(&bytes.slice(..len)).is_err());
    }
}

/// Long data goes into an encoding by reference, and a receiver that does as it is told finds it at
/// the beginning of a page.
#[test]
fn long_data_is_not_copied() {
    let long: Vec<Bytes> = [200_000, 64 << 10].map(|len| vec![len as u8; len].into()).into();
    let mut t = all_ops();
    let (cid, oid) = (t.collections()[0], t.objects()[0].clone());
    for data in &long {
        t.write(&cid, &oid, 8192, data.clone());
        t.setattr(&cid, &oid, "_", &b"behind"[..]);
    }
    let encoded = t.encoded();
    assert_eq!(encoded.to_contiguous(), t.to_bytes());
    assert!(Transaction::from_bytes_exact(&encoded.to_contiguous()).unwrap() == t);
    for data in &long {
        assert!(
            encoded.pieces().iter().any(|p| p.as_ptr() == data.as_ptr() && p.len() == data.len())
        );
    }
    let before =
        encoded.pieces().iter().map(Bytes::len).take_while(|len| *len < 200_000).sum::<usize>();
    assert_eq!((before + usize::from(encoded.page_offset())) % 4096, 0);
    assert_eq!(all_ops().encoded().pieces().len(), 1);
}

/// Short data is copied, and what is known of it with it: nobody reads it again for a checksum, and
/// a receiver takes that of the data's own pages.
#[test]
fn short_data_keeps_its_checksums() {
    let data: Bytes = (0..9000_u32).map(|i| ((i * 7) >> 3) as u8).collect();
    let encoded = |t: &Transaction, sums| {
        let mut t = t.clone();
        t.set_sums(sums);
        t.encoded()
    };
    let (cid, oid) = (CollId::Meta, GhObject::new(HObject::default()));
    for before in [0, 3] {
        let mut t = Transaction::new();
        for len in 0..before {
            t.setattr(&cid, &oid, "_", vec![1; len]);
        }
        t.write(&cid, &oid, 8192, data.clone()).setattr(&cid, &oid, "_", &b"behind"[..]);
        let crc = t.encoded().crc32c(1);
        let known = |flip| data.chunks(4096).take(2).map(move |page| crc32c(u32::MAX, page) ^ flip);
        let right = encoded(&t, PageSums::of(data.clone(), known(0)));
        assert_eq!((right.crc32c(1), right.pieces().len()), (crc, 1));
        assert!(encoded(&t, PageSums::of(data.clone(), known(1))).crc32c(1) != crc);
        let at = right.to_contiguous().windows(9000).position(|part| part == data).unwrap();
        assert_eq!((at + usize::from(right.page_offset())) % 4096, 0);
    }
}

/// Data of a page or more is copied once: to where a device takes it, in the encoding that goes to others, from where the
/// transaction has it then, too.
#[test]
fn data_is_in_its_encoding_where_a_device_takes_it() {
    let (cid, oid) = (CollId::Meta, GhObject::new(HObject::default()));
    for len in [4096, 8192, 9000, 60 << 10] {
        // A part of what was received, which begins no page.
        let received: Bytes = (0..len + 77).map(|i| ((i * 7) >> 3) as u8).collect();
        let data = received.slice(77..);
        let known = data.chunks_exact(4096).map(|page| crc32c(u32::MAX, page));
        let mut t = Transaction::new();
        t.setattr(&cid, &oid, "_", &b"before"[..]).write(&cid, &oid, 8192, data.clone()).setattr(
            &cid,
            &oid,
            "_",
            &b"behind"[..],
        );
        t.set_sums(PageSums::of(data.clone(), known));
        let before = t.clone();
        let encoded = t.encoded_and_shared();
        assert!(t == before && encoded == before.encoded());
        let [all] = encoded.pieces() else { panic!("{} pieces", encoded.pieces().len()) };
        let Some(Op::Write { data: moved, .. }) =
            t.ops().iter().find(|op| matches!(op, Op::Write { .. }))
        else {
            panic!()
        };
        assert!(all.as_ptr_range().contains(&moved.as_ptr()));
        assert_eq!(moved.as_ptr() as usize % 4096, 0);
        // What was received can be given up; its checksums are known of the copy.
        drop((before, data));
        assert!(received.is_unique());
        let sums = encoded.sums().unwrap();
        assert_eq!(sums.crc32c(5, &moved[..4096]), Some(crc32c(5, &moved[..4096])));
    }
    // Short data stays where it is, long data goes by reference.
    for len in [100, 4095, 64 << 10] {
        let data: Bytes = vec![3; len].into();
        let mut t = Transaction::new();
        t.write(&cid, &oid, 0, data.clone());
        t.encoded_and_shared();
        assert!(
            matches!(t.ops(), [Op::Write { data: kept, .. }] if kept.as_ptr() == data.as_ptr())
        );
    }
}

#[test]
fn append_renumbers() {
    let mut whole = all_ops();
    let mut more = Transaction::new();
    let other = CollId::Pg("9.0".parse().unwrap());
    let objects: Vec<GhObject> = (0..100_u32)
        .map(|i| {
            GhObject::new(HObject { name: i.to_string().into(), hash: i, ..HObject::default() })
        })
        .collect();
    for object in objects.iter().chain(&objects) {
        more.touch(&other, object);
    }
    assert_eq!(more.objects().len(), 100);
    let before = whole.ops().len();
    whole.append(more);
    let Op::Touch { cid, oid } = whole.ops()[before + 150] else { panic!() };
    assert_eq!(whole.collections()[cid as usize], other);
    assert_eq!(whole.objects()[oid as usize], objects[50]);
    assert_eq!(Transaction::from_bytes_exact(&whole.to_bytes()).unwrap(), whole);
}
