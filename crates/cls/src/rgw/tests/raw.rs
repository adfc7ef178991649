//! Raw entries, the check of an index, and methods on heads.

use bstr::BString;
use denc::Denc;
use types::{Errno, UTime};

use super::super::bi::{self, BiEntry, GetOp, ListOp, ListRet, OneEntry};
use super::super::check::CheckRet;
use super::super::entry::DirEntry;
use super::super::index::UpdateStatsOp;
use super::super::link::LinkOp;
use super::super::object::{CheckAttrsPrefixOp, CheckMtimeOp, RemoveOp, StorePgVerOp};
use super::{NOTHING, TestObject, index, meta, object_key};

/// Plain names on both sides of the special keys, and one with two versions.
fn bucket() -> TestObject {
    let mut object = index();
    let names = ["a", "b", "é", "ü", "v", "v", "v1"];
    for (name, instance) in names.into_iter().zip(["", "", "", "", "i1", "i2", ""]) {
        object.add(object_key(name, instance), 10);
        if !instance.is_empty() {
            let key = object_key(name, instance);
            object.rgw("bucket_link_olh", &LinkOp { key, ..LinkOp::default() }).unwrap();
        }
    }
    object.rgw("bi_log_stop", &NOTHING).unwrap();
    object
}

impl TestObject {
    fn all_raw(&mut self, name: &str, max: u32) -> Vec<BiEntry> {
        let mut op = ListOp { max, name_filter: name.into(), ..ListOp::default() };
        let mut entries = Vec::new();
        loop {
            let ret: ListRet = self.reply("bi_list", &op);
            assert!(ret.entries.len() <= max as usize);
            entries.extend(ret.entries);
            if !ret.is_truncated {
                return entries;
            }
            op.marker =
                entries.last().expect("a page that has a next one has an entry").idx.clone();
        }
    }
}

/// All but the log, whatever the pages; the order is that of the ranges. A page that ended among names
/// like "é" had all versions listed again after it, for ever where they filled a page, as in 16.2: such a
/// bucket was resharded without end.
#[test]
fn raw_entries_are_listed_once_each() {
    let mut object = bucket();
    let whole = object.all_raw("", 1000);
    let kinds: Vec<u8> = whole.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [1, 1, 1, 1, 1, 1, bi::INSTANCE, bi::INSTANCE, bi::OLH, 1, 1]);
    let of_v = object.all_raw("v", 1000);
    assert_eq!(of_v.len(), 6);
    for max in 1..12 {
        assert_eq!(object.all_raw("", max), whole, "pages of {max}");
        assert_eq!(object.all_raw("v", max), of_v, "pages of {max}");
    }
    assert_eq!(object.all_raw("é", 10).len(), 1);
    assert_eq!(object.all_raw("none", 10), []);
}

/// Resharding reads an index so and writes it so into others.
#[test]
fn raw_entries_make_the_same_index() {
    let mut object = bucket();
    let mut copy = index();
    for entry in object.all_raw("", 3) {
        copy.rgw("bi_put", &OneEntry { entry }).unwrap();
    }
    let log = |key: &BString, _: &mut _| !key.starts_with(super::super::key::LOG);
    object.omap.retain(log);
    assert_eq!(copy.omap, object.omap);
}

#[test]
fn raw_entries_are_read_by_their_kind() {
    let mut object = bucket();
    let mut idx = |name: &str, instance: &str, kind| {
        let op = GetOp { key: object_key(name, instance), kind };
        let output = object.rgw("bi_get", &op)?;
        Ok(OneEntry::from_bytes_exact(&output).unwrap().entry.idx)
    };
    assert_eq!(idx("a", "", bi::PLAIN), Ok("a".into()));
    assert_eq!(idx("v", "i1", bi::PLAIN), Ok("v".into()));
    assert_eq!(idx("v", "i1", bi::INSTANCE), Ok(BString::from(b"\x801000_v\0ii1")));
    assert_eq!(idx("v", "i1", bi::OLH), Ok(BString::from(b"\x801001_v")));
    assert_eq!(idx("a", "", bi::OLH), Err(Errno::ENOENT));
    assert_eq!(idx("a", "", 0), Err(Errno::EINVAL));
    assert_eq!(idx("a", "", 4), Err(Errno::EINVAL));
}

/// A version counts by its own entry, not by that of listings.
#[test]
fn an_index_is_counted_from_its_entries() {
    let mut object = bucket();
    let right = object.sums();
    assert_eq!(right.num_entries, 7);
    let wrong = UpdateStatsOp { absolute: true, stats: [(1, Default::default())].into() };
    object.rgw("bucket_update_stats", &wrong).unwrap();
    let ret: CheckRet = object.reply("bucket_check_index", &NOTHING);
    assert_eq!(ret.existing_header, object.index_header());
    assert_eq!(ret.calculated_header.stats[&1], right);
    assert!(ret.calculated_header.syncstopped);
    object.rgw("bucket_rebuild_index", &NOTHING).unwrap();
    assert_eq!(object.sums(), right);
    assert_eq!(object.index_header().ver, ret.existing_header.ver + 1);
}

#[test]
fn a_count_goes_over_many_pages() {
    let mut object = index();
    for n in 0..2500 {
        let entry = DirEntry { exists: true, meta: meta(1), ..DirEntry::default() };
        for name in [format!("a{n}"), format!("é{n}")] {
            object.omap.insert(name.into(), entry.to_bytes());
        }
    }
    let ret: CheckRet = object.reply("bucket_check_index", &NOTHING);
    assert_eq!(ret.calculated_header.stats[&1].num_entries, 5000);
}

#[test]
fn a_removal_keeps_xattrs_by_their_prefixes() {
    let head = || {
        let mut object = TestObject { data: b"data".to_vec(), ..TestObject::default() };
        for attr in ["user.rgw.acl", "user.rgw.olh.1", "user.rgw.olh.2"] {
            let op = StorePgVerOp { attr: attr.into() };
            object.rgw("obj_store_pg_ver", &op).unwrap();
        }
        object
    };
    let remove = |prefixes: &[&str]| RemoveOp {
        keep_attr_prefixes: prefixes.iter().map(|&prefix| prefix.into()).collect(),
    };
    let mut object = head();
    assert_eq!(object.attrs[&BString::from("user.rgw.acl")], 1u64.to_bytes());
    object.rgw("obj_remove", &remove(&["user.rgw.olh."])).unwrap();
    assert!(object.exists && object.data.is_empty());
    assert_eq!(object.attrs.len(), 2);
    for prefixes in [&[][..], &["other"]] {
        let mut object = head();
        object.rgw("obj_remove", &remove(prefixes)).unwrap();
        assert!(!object.exists);
        assert_eq!(object.rgw("obj_remove", &remove(prefixes)), Err(Errno::ENOENT));
    }
}

#[test]
fn guards_look_at_xattrs_and_mtime() {
    let mut object = TestObject::default();
    let attrs = |object: &mut TestObject, prefix: &str, fail_if_exist| {
        let op = CheckAttrsPrefixOp { check_prefix: prefix.into(), fail_if_exist };
        object.rgw("obj_check_attrs_prefix", &op).map(|_| ())
    };
    assert_eq!(attrs(&mut object, "user", true), Ok(()));
    object.rgw("obj_store_pg_ver", &StorePgVerOp { attr: "user.x".into() }).unwrap();
    assert_eq!(attrs(&mut object, "user", true), Err(Errno::ECANCELED));
    assert_eq!(attrs(&mut object, "user", false), Ok(()));
    assert_eq!(attrs(&mut object, "user.y", false), Err(Errno::ECANCELED));
    assert_eq!(attrs(&mut object, "", true), Err(Errno::EINVAL));

    object.now = UTime::new(100, 5);
    // Whether mtime 100.000000005 passes against times of a nanosecond and a second around it.
    let table: [(u8, [bool; 4]); 5] = [
        (0, [false, true, true, false]),
        (1, [false, false, false, true]),
        (2, [false, true, true, true]),
        (3, [true, false, false, false]),
        (4, [true, true, true, false]),
    ];
    for (kind, expected) in table {
        let times = [(99, 5), (100, 4), (100, 6), (101, 5)].map(|(s, ns)| UTime::new(s, ns));
        let passed = times.map(|mtime| {
            let op = CheckMtimeOp { mtime, kind, high_precision_time: false };
            object.rgw("obj_check_mtime", &op).is_ok()
        });
        assert_eq!(passed, expected, "kind {kind}");
    }
    let exact = CheckMtimeOp { mtime: UTime::new(100, 4), kind: 3, high_precision_time: true };
    assert!(object.rgw("obj_check_mtime", &exact).is_ok());
    let unknown = CheckMtimeOp { kind: 5, ..exact };
    assert_eq!(object.rgw("obj_check_mtime", &unknown), Err(Errno::EINVAL));
}
