//! Bytes from outside that make no sense.

use bytes::Bytes;
use denc::{Denc, Error};
use types::Errno;

use super::super::CLASS;
use super::super::bi::{self, GetOp};
use super::super::key::{self, ObjKey};
use super::super::list::ListOp;
use super::super::olh::ReadLogOp;
use super::{NOTHING, TestObject, complete_op, index, object_key};
use crate::rgw::entry::ModifyOp;

/// Methods that take no argument, or a list of any length.
const WITHOUT_ARGUMENT: [&str; 8] = [
    "bucket_init_index",
    "bucket_check_index",
    "bucket_rebuild_index",
    "bi_log_resync",
    "bi_log_stop",
    "usage_log_clear",
    "lc_get_head",
    "dir_suggest_changes",
];

#[test]
fn an_argument_that_is_none_is_the_callers_fault() {
    for method in CLASS.methods {
        let mut object = TestObject { exists: true, ..TestObject::default() };
        let result = object.call_as_osd("rgw", method.name, &Bytes::new());
        if WITHOUT_ARGUMENT.contains(&method.name) {
            assert!(result.is_ok(), "{}", method.name);
        } else {
            assert_eq!(result, Err(Errno::EINVAL), "{}", method.name);
        }
        for len in 0..40 {
            let garbage = Bytes::from(vec![0xff; len]);
            let _ = object.call_as_osd("rgw", method.name, &garbage);
        }
    }
}

/// Only `bucket_list` and `bucket_complete_op` blame the caller, as in Ceph.
#[test]
fn a_stored_value_that_is_none_is_the_objects_fault() {
    let mut object = index();
    let garbage = Bytes::from_static(b"garbage");
    for key in [b"a".into(), key::olh_key(b"a"), key::instance_key(&object_key("a", ""))] {
        object.omap.insert(key, garbage.clone());
    }
    assert_eq!(object.prepare(ModifyOp::ADD, "a", "t"), Err(Errno::EIO));
    assert_eq!(object.rgw("bucket_check_index", &NOTHING), Err(Errno::EIO));
    let all = ListOp { num_entries: 9, ..ListOp::default() };
    assert_eq!(object.rgw("bucket_list", &all), Err(Errno::EINVAL));
    let olh = ReadLogOp { olh: object_key("a", ""), ..ReadLogOp::default() };
    assert_eq!(object.rgw("bucket_read_olh_log", &olh), Err(Errno::EIO));
    let raw = bi::ListOp { max: 9, ..bi::ListOp::default() };
    assert_eq!(object.rgw("bi_list", &raw), Err(Errno::EIO));
    // Raw values are passed on as they are: this is how such a one is found.
    let get = GetOp { key: object_key("a", ""), kind: bi::PLAIN };
    assert!(object.rgw("bi_get", &get).is_ok());

    object.header = garbage;
    assert_eq!(object.rgw("bucket_check_index", &NOTHING), Err(Errno::EIO));
    let change = complete_op(ModifyOp::ADD, "b", "", 0, 0);
    assert_eq!(object.complete(&change), Err(Errno::EINVAL));
}

#[test]
fn keys_of_listings_are_taken_apart() {
    for (bytes, name) in [
        (&b"plain"[..], Ok(&b"plain"[..])),
        (b"", Ok(b"")),
        (b"v\0v913\0ii1", Ok(b"v")),
        (b"v\0i", Ok(b"v")),
        (b"v\0v\0i", Err(Errno::EIO)),
        (b"v\0v9x\0i", Err(Errno::EIO)),
        (b"v\0", Err(Errno::EIO)),
    ] {
        assert_eq!(key::listed_name(bytes), name, "{bytes:?}");
    }
}

/// The higher the epoch, the earlier the key, also where its length changes.
#[test]
fn newer_versions_stand_before_older_ones() {
    let object = object_key("v", "i");
    let mut epochs: Vec<u64> =
        [4, 8, 12, 16, 32].iter().flat_map(|bits| [(1 << bits) - 1, 1 << bits]).collect();
    epochs.extend([0, 1, 2]);
    epochs.sort_unstable();
    let keys: Vec<_> = epochs.iter().map(|&epoch| key::list_key(&object, epoch)).collect();
    assert!(keys.is_sorted_by(|older, newer| older > newer), "{keys:?}");
    assert_eq!(keys[0], "v\0v915\0ii");
}

#[test]
fn encodings_that_are_too_new_are_refused() {
    let mut bytes = ObjKey::of_name("a").to_bytes().to_vec();
    (bytes[0], bytes[1]) = (9, 2);
    let refused = ObjKey::from_bytes(&bytes.into());
    assert_eq!(refused, Err(Error::Incompatible { what: "ObjKey", compat: 2, known: 1 }));
}
