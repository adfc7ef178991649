//! Every class argument, reply and stored struct of Ceph's public object corpus at 16.2.0 decodes,
//! re-encodes byte for byte, and survives truncation. The corpus lies beside the repository; without
//! it the test has nothing to do.

use std::path::PathBuf;

use bytes::Bytes;
use cls::{journal, lock, log, rbd, refcount, timeindex, user, version};
use denc::Denc;

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus/16.2.0")
}

/// How many objects of that type returned byte for byte.
fn check<T: Denc>(name: &str) -> usize {
    let Ok(files) = std::fs::read_dir(corpus().join(name)) else {
        return 0;
    };
    let mut checked = 0;
    for file in files {
        let path = file.unwrap().path();
        let bytes = Bytes::from(std::fs::read(&path).unwrap());
        let value =
            T::from_bytes_exact(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(value.to_bytes(), bytes, "{}", path.display());
        for len in 0..bytes.len() {
            let _ = T::from_bytes(&bytes.slice(..len));
        }
        checked += 1;
    }
    checked
}

#[test]
fn corpus_returns_byte_for_byte() {
    let checked = [
        (
            "cls_lock_lock_op",
            check::<lock::LockOp>("cls_lock_lock_op"),
        ),
        (
            "cls_lock_unlock_op",
            check::<lock::UnlockOp>("cls_lock_unlock_op"),
        ),
        (
            "cls_lock_break_op",
            check::<lock::BreakOp>("cls_lock_break_op"),
        ),
        (
            "cls_lock_get_info_op",
            check::<lock::GetInfoOp>("cls_lock_get_info_op"),
        ),
        (
            "cls_lock_get_info_reply",
            check::<lock::LockInfo>("cls_lock_get_info_reply"),
        ),
        (
            "cls_lock_list_locks_reply",
            check::<lock::ListLocksReply>("cls_lock_list_locks_reply"),
        ),
        (
            "cls_lock_assert_op",
            check::<lock::AssertOp>("cls_lock_assert_op"),
        ),
        (
            "cls_lock_set_cookie_op",
            check::<lock::SetCookieOp>("cls_lock_set_cookie_op"),
        ),
        (
            "lock_info_t",
            check::<lock::LockInfo>("rados::cls::lock::lock_info_t"),
        ),
        (
            "locker_id_t",
            check::<lock::LockerId>("rados::cls::lock::locker_id_t"),
        ),
        (
            "locker_info_t",
            check::<lock::LockerInfo>("rados::cls::lock::locker_info_t"),
        ),
        (
            "cls_version_set_op",
            check::<version::SetOp>("cls_version_set_op"),
        ),
        (
            "cls_version_inc_op",
            check::<version::IncOp>("cls_version_inc_op"),
        ),
        (
            "cls_version_check_op",
            check::<version::CheckOp>("cls_version_check_op"),
        ),
        (
            "cls_version_read_ret",
            check::<version::ReadRet>("cls_version_read_ret"),
        ),
        ("obj_version", check::<version::ObjVersion>("obj_version")),
        (
            "obj_version_cond",
            check::<version::ObjVersionCond>("obj_version_cond"),
        ),
        (
            "cls_refcount_get_op",
            check::<refcount::RefOp>("cls_refcount_get_op"),
        ),
        (
            "cls_refcount_put_op",
            check::<refcount::RefOp>("cls_refcount_put_op"),
        ),
        (
            "cls_refcount_set_op",
            check::<refcount::Refs>("cls_refcount_set_op"),
        ),
        (
            "cls_refcount_read_op",
            check::<refcount::ReadOp>("cls_refcount_read_op"),
        ),
        (
            "cls_refcount_read_ret",
            check::<refcount::Refs>("cls_refcount_read_ret"),
        ),
        (
            "obj_refcount",
            check::<refcount::ObjRefcount>("obj_refcount"),
        ),
        ("cls_log_add_op", check::<log::AddOp>("cls_log_add_op")),
        ("cls_log_entry", check::<log::Entry>("cls_log_entry")),
        ("cls_log_header", check::<log::Header>("cls_log_header")),
        ("cls_log_info_op", check::<log::InfoOp>("cls_log_info_op")),
        ("cls_log_list_op", check::<log::ListOp>("cls_log_list_op")),
        (
            "cls_log_list_ret",
            check::<log::ListRet>("cls_log_list_ret"),
        ),
        ("cls_log_trim_op", check::<log::TrimOp>("cls_log_trim_op")),
        (
            "cls_timeindex_entry",
            check::<timeindex::Entry>("cls_timeindex_entry"),
        ),
        (
            "cls_timeindex_list_op",
            check::<timeindex::ListOp>("cls_timeindex_list_op"),
        ),
        (
            "cls_timeindex_list_ret",
            check::<timeindex::ListRet>("cls_timeindex_list_ret"),
        ),
        ("cls_user_bucket", check::<user::Bucket>("cls_user_bucket")),
        (
            "cls_user_bucket_entry",
            check::<user::BucketEntry>("cls_user_bucket_entry"),
        ),
        (
            "cls_user_complete_stats_sync_op",
            check::<user::TimeOp>("cls_user_complete_stats_sync_op"),
        ),
        (
            "cls_user_get_header_op",
            check::<user::GetHeaderOp>("cls_user_get_header_op"),
        ),
        (
            "cls_user_get_header_ret",
            check::<user::GetHeaderRet>("cls_user_get_header_ret"),
        ),
        ("cls_user_header", check::<user::Header>("cls_user_header")),
        (
            "cls_user_list_buckets_op",
            check::<user::ListBucketsOp>("cls_user_list_buckets_op"),
        ),
        (
            "cls_user_list_buckets_ret",
            check::<user::ListBucketsRet>("cls_user_list_buckets_ret"),
        ),
        (
            "cls_user_remove_bucket_op",
            check::<user::RemoveBucketOp>("cls_user_remove_bucket_op"),
        ),
        (
            "cls_user_set_buckets_op",
            check::<user::SetBucketsOp>("cls_user_set_buckets_op"),
        ),
        ("cls_user_stats", check::<user::Stats>("cls_user_stats")),
        (
            "cls::rbd::ChildImageSpec",
            check::<rbd::snapshot::ChildImageSpec>("cls::rbd::ChildImageSpec"),
        ),
        (
            "cls::rbd::GroupImageSpec",
            check::<rbd::GroupImageSpec>("cls::rbd::GroupImageSpec"),
        ),
        (
            "cls::rbd::GroupImageStatus",
            check::<rbd::GroupImageStatus>("cls::rbd::GroupImageStatus"),
        ),
        (
            "cls::rbd::GroupSnapshot",
            check::<rbd::GroupSnapshot>("cls::rbd::GroupSnapshot"),
        ),
        (
            "cls::rbd::GroupSpec",
            check::<rbd::GroupSpec>("cls::rbd::GroupSpec"),
        ),
        (
            "cls::rbd::ImageSnapshotSpec",
            check::<rbd::ImageSnapshotSpec>("cls::rbd::ImageSnapshotSpec"),
        ),
        (
            "cls::rbd::MigrationSpec",
            check::<rbd::snapshot::MigrationSpec>("cls::rbd::MigrationSpec"),
        ),
        (
            "cls::rbd::MirrorImage",
            check::<rbd::mirror_status::MirrorImage>("cls::rbd::MirrorImage"),
        ),
        (
            "cls::rbd::MirrorImageMap",
            check::<rbd::mirror_status::MirrorImageMap>("cls::rbd::MirrorImageMap"),
        ),
        (
            "cls::rbd::MirrorImageSiteStatus",
            check::<rbd::mirror_status::MirrorImageSiteStatus>("cls::rbd::MirrorImageSiteStatus"),
        ),
        (
            "cls::rbd::MirrorImageSiteStatusOnDisk",
            check::<rbd::mirror_status::StoredSiteStatus>("cls::rbd::MirrorImageSiteStatusOnDisk"),
        ),
        (
            "cls::rbd::MirrorImageStatus",
            check::<rbd::mirror_status::MirrorImageStatus>("cls::rbd::MirrorImageStatus"),
        ),
        (
            "cls::rbd::MirrorPeer",
            check::<rbd::mirror_status::MirrorPeer>("cls::rbd::MirrorPeer"),
        ),
        (
            "cls::rbd::ParentImageSpec",
            check::<rbd::snapshot::ParentImageSpec>("cls::rbd::ParentImageSpec"),
        ),
        (
            "cls::rbd::SnapshotInfo",
            check::<rbd::snapshot::SnapshotInfo>("cls::rbd::SnapshotInfo"),
        ),
        (
            "cls::rbd::SnapshotNamespace",
            check::<rbd::snapshot::SnapshotNamespace>("cls::rbd::SnapshotNamespace"),
        ),
        (
            "cls_rbd_parent",
            check::<rbd::snapshot::Parent>("cls_rbd_parent"),
        ),
        ("cls_rbd_snap", check::<rbd::snapshot::Snap>("cls_rbd_snap")),
        (
            "ceph::BitVector<2>",
            check::<rbd::BitVector>("ceph::BitVector<2>"),
        ),
        ("BitVector<2>", check::<rbd::BitVector>("BitVector<2>")),
        (
            "TrashImageSpec",
            check::<rbd::TrashImageSpec>("TrashImageSpec"),
        ),
        (
            "cls::journal::Client",
            check::<journal::Client>("cls::journal::Client"),
        ),
        (
            "cls::journal::ObjectPosition",
            check::<journal::ObjectPosition>("cls::journal::ObjectPosition"),
        ),
        (
            "cls::journal::ObjectSetPosition",
            check::<journal::ObjectSetPosition>("cls::journal::ObjectSetPosition"),
        ),
        (
            "cls::journal::Tag",
            check::<journal::Tag>("cls::journal::Tag"),
        ),
    ];
    if !corpus().is_dir() {
        return;
    }
    for (name, count) in checked {
        println!("{name}: {count}");
        assert!(count > 0, "{name} is not in the corpus");
    }
    println!(
        "{} types, {} objects",
        checked.len(),
        checked.iter().map(|c| c.1).sum::<usize>()
    );
}
