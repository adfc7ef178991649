//! Tests of the class against an object in memory.

use bstr::BString;
use bytes::Bytes;
use denc::Denc;
use types::{AddrType, EntityAddr, EntityName, Errno};

use super::features::{self, NOSNAP};
use super::mirror_status::{MirrorImage, MirrorImageSiteStatus, MirrorImageStatus};
use super::snapshot::{ChildImageSpec, ParentImageSpec, SnapshotInfo, SnapshotNamespace};
use super::*;
use crate::testing::TestObject;

/// No arguments.
const NOTHING: [u8; 0] = [];

fn text(text: &str) -> BString {
    text.into()
}

/// An image of 10 MiB with objects of 4 MiB.
fn image(bits: u64) -> TestObject {
    let mut object = TestObject::default();
    let create = ((10u64 << 20, 22u8), (bits, text("rbd_data.1")));
    object.call("rbd", "create", &create).unwrap();
    object
}

impl TestObject {
    fn rbd(&mut self, method: &str, input: &impl Denc) -> Result<Bytes, Errno> {
        self.call("rbd", method, input)
    }

    fn ask<T: Denc>(&mut self, method: &str, input: &impl Denc) -> T {
        let output = self.rbd(method, input).unwrap();
        T::from_bytes_exact(&output).unwrap()
    }
}

#[test]
fn an_image_is_created_once_and_with_known_features() {
    let mut object = image(features::LAYERING);
    let again = ((1u64, 22u8), (1u64, text("rbd_data.1")));
    assert_eq!(object.rbd("create", &again), Err(Errno::EEXIST));
    assert_eq!(object.ask::<(u8, u64)>("get_size", &NOSNAP), (22, 10 << 20));
    assert_eq!(object.ask::<(u64, u64)>("get_features", &NOSNAP), (1, 1));
    assert_eq!(object.ask::<i64>("get_data_pool", &NOTHING), -1);

    let mut object = TestObject::default();
    let unknown = ((1u64, 22u8), (1u64 << 40, text("p")));
    assert_eq!(object.rbd("create", &unknown), Err(Errno::ENOSYS));
    let no_pool = ((1u64, 22u8), (features::DATA_POOL, text("p")));
    assert_eq!(object.rbd("create", &no_pool), Err(Errno::EINVAL));
}

#[test]
fn only_mutable_features_change() {
    let mut object = image(features::LAYERING | features::DEEP_FLATTEN);
    let on = |bits: u64| (bits, bits);
    let off = |bits: u64| (0u64, bits);
    object.rbd("set_features", &on(features::EXCLUSIVE_LOCK)).unwrap();
    object.rbd("set_features", &off(features::DEEP_FLATTEN)).unwrap();
    for refused in [on(features::DEEP_FLATTEN), off(features::LAYERING), on(features::OPERATIONS)] {
        assert_eq!(object.rbd("set_features", &refused), Err(Errno::EINVAL));
    }
    let bits: (u64, u64) = object.ask("get_features", &NOSNAP);
    assert_eq!(bits.0, features::LAYERING | features::EXCLUSIVE_LOCK);
}

#[test]
fn snapshots_have_names_limits_and_an_order() {
    let mut object = image(features::LAYERING);
    object.rbd("snapshot_add", &(text("a"), 3u64)).unwrap();
    assert_eq!(object.rbd("snapshot_add", &(text("b"), 2u64)), Err(Errno::ESTALE));
    assert_eq!(object.rbd("snapshot_add", &(text("a"), 4u64)), Err(Errno::EEXIST));
    object.rbd("set_size", &(5u64 << 20)).unwrap();
    object.rbd("snapshot_add", &(text("b"), 10u64)).unwrap();
    let context: (u64, Vec<u64>) = object.ask("get_snapcontext", &NOTHING);
    assert_eq!(context, (10, vec![10, 3]));
    assert_eq!(object.ask::<(u8, u64)>("get_size", &3u64).1, 10 << 20);

    object.rbd("snapshot_set_limit", &2u64).unwrap();
    assert_eq!(object.rbd("snapshot_set_limit", &1u64), Err(Errno::ERANGE));
    assert_eq!(object.rbd("snapshot_add", &(text("c"), 11u64)), Err(Errno::EDQUOT));
    assert_eq!(object.rbd("snapshot_rename", &(3u64, text("b"))), Err(Errno::EEXIST));
    object.rbd("snapshot_rename", &(3u64, text("z"))).unwrap();

    object.rbd("set_protection_status", &(3u64, features::PROTECTED)).unwrap();
    assert_eq!(object.rbd("snapshot_remove", &3u64), Err(Errno::EBUSY));
    object.rbd("set_protection_status", &(3u64, features::UNPROTECTED)).unwrap();
    object.rbd("snapshot_remove", &3u64).unwrap();
    assert_eq!(object.rbd("snapshot_remove", &3u64), Err(Errno::ENOENT));
}

#[test]
fn children_keep_a_snapshot_and_its_trash_shows_in_the_features() {
    let mut object = image(features::LAYERING);
    object.rbd("snapshot_add", &(text("a"), 3u64)).unwrap();
    let child = ChildImageSpec { pool_id: 2, image_id: "c".into(), ..ChildImageSpec::default() };
    object.rbd("child_attach", &(3u64, child.clone())).unwrap();
    assert_eq!(object.rbd("child_attach", &(3u64, child.clone())), Err(Errno::EEXIST));
    assert_eq!(object.rbd("snapshot_remove", &3u64), Err(Errno::EBUSY));
    object.rbd("snapshot_trash_add", &3u64).unwrap();
    let info: SnapshotInfo = object.ask("snapshot_get", &3u64);
    assert!(info.namespace.is_trash() && info.name.len() == 36);
    let in_use = features::operation::CLONE_PARENT | features::operation::SNAP_TRASH;
    assert_eq!(object.ask::<u64>("op_features_get", &NOTHING), in_use);
    let bits: (u64, u64) = object.ask("get_features", &NOSNAP);
    assert_eq!(bits.0, features::LAYERING | features::OPERATIONS);

    object.rbd("child_detach", &(3u64, child)).unwrap();
    object.rbd("snapshot_remove", &3u64).unwrap();
    assert_eq!(object.ask::<u64>("op_features_get", &NOTHING), 0);
    let bits: (u64, u64) = object.ask("get_features", &NOSNAP);
    assert_eq!(bits.0, features::LAYERING);
}

#[test]
fn a_parent_stays_for_the_snapshots_that_lie_on_it() {
    let parent = ParentImageSpec {
        pool_id: 1,
        image_id: "p".into(),
        snap_id: 4,
        ..ParentImageSpec::default()
    };
    let mut object = image(features::LAYERING);
    object.rbd("parent_attach", &(parent.clone(), 99u64 << 20)).unwrap();
    let overlap: Option<u64> = object.ask("parent_overlap_get", &NOSNAP);
    assert_eq!(overlap, Some(10 << 20));
    object.rbd("snapshot_add", &(text("a"), 3u64)).unwrap();
    object.rbd("set_size", &(1u64 << 20)).unwrap();
    object.rbd("parent_detach", &NOTHING).unwrap();
    assert_eq!(object.ask::<ParentImageSpec>("parent_get", &NOTHING), parent);
    assert_eq!(object.ask::<Option<u64>>("parent_overlap_get", &NOSNAP), None);
    assert_eq!(object.ask::<Option<u64>>("parent_overlap_get", &3u64), Some(10 << 20));
    object.rbd("snapshot_remove", &3u64).unwrap();
    assert!(!object.ask::<ParentImageSpec>("parent_get", &NOTHING).exists());
}

#[test]
fn the_object_map_changes_in_place_and_keeps_its_checksums() {
    let mut object = TestObject::default();
    object.rbd("object_map_resize", &(40_000u64, NONEXISTENT)).unwrap();
    let update =
        |first: u64, end: u64, new: u8, current: Option<u8>| ((first, end), (new, current));
    object.rbd("object_map_update", &update(16_000, 17_000, EXISTS, None)).unwrap();
    object.rbd("object_map_update", &update(0, 2, EXISTS, Some(NONEXISTENT))).unwrap();
    object.rbd("object_map_update", &update(0, 9, PENDING, Some(EXISTS_CLEAN))).unwrap();
    let whole = Bytes::from(object.data.clone());
    let map = BitVector::from_bytes_exact(&whole).unwrap();
    let states: Vec<u8> = [0, 1, 2, 15_999, 16_000, 16_999, 17_000].map(|i| map.get(i)).into();
    assert_eq!(states, [1, 1, 0, 0, 1, 1, 0]);
    assert!(map.crc_enabled);

    assert_eq!(object.rbd("object_map_resize", &(16_500u64, NONEXISTENT)), Err(Errno::ESTALE));
    object.rbd("object_map_resize", &(17_000u64, EXISTS)).unwrap_err();
    let out_of_range = update(39_999, 40_001, EXISTS, None);
    assert_eq!(object.rbd("object_map_update", &out_of_range), Err(Errno::ERANGE));

    object.rbd("object_map_snap_add", &NOTHING).unwrap();
    let clean: BitVector = object.ask("object_map_load", &NOTHING);
    assert!(clean.get(0) == EXISTS_CLEAN && !clean.crc_enabled);
    object.rbd("object_map_snap_remove", &map).unwrap();
    let map: BitVector = object.ask("object_map_load", &NOTHING);
    assert_eq!(map.get(0), EXISTS);

    object.data[18 + 4_000] ^= 1;
    let damaged = update(16_000, 16_001, NONEXISTENT, None);
    assert_eq!(object.rbd("object_map_update", &damaged), Err(Errno::EINVAL));
}

#[test]
fn a_directory_knows_names_and_ids() {
    let mut object = TestObject::default();
    object.rbd("dir_add_image", &(text("b"), text("1"))).unwrap();
    object.rbd("dir_add_image", &(text("a"), text("2"))).unwrap();
    assert_eq!(object.rbd("dir_add_image", &(text("a"), text("3"))), Err(Errno::EEXIST));
    assert_eq!(object.rbd("dir_add_image", &(text("c"), text("2"))), Err(Errno::EBADF));
    assert_eq!(object.rbd("dir_add_image", &(text("c"), text("x/y"))), Err(Errno::EINVAL));
    let names: Vec<(BString, BString)> = object.ask("dir_list", &(text(""), 9u64));
    assert_eq!(names, [(text("a"), text("2")), (text("b"), text("1"))]);
    assert_eq!(object.rbd("dir_remove_image", &(text("a"), text("1"))), Err(Errno::ESTALE));
    assert_eq!(object.rbd("dir_state_set", &1u8), Err(Errno::EBUSY));
    object.rbd("dir_remove_image", &(text("a"), text("2"))).unwrap();
    object.rbd("dir_remove_image", &(text("b"), text("1"))).unwrap();
    object.rbd("dir_state_set", &1u8).unwrap();
    assert_eq!(object.rbd("dir_state_assert", &0u8), Err(Errno::ENOENT));
}

#[test]
fn snapshots_of_format_1_lie_in_the_header() {
    let mut object = TestObject::default();
    let mut header = old_format::TEXT.to_vec();
    header.resize(80, 0);
    header.extend_from_slice(&(7u64 << 20).to_le_bytes());
    header.resize(112, 0);
    object.write_all(header);
    object.rbd("snap_add", &(text("one"), 4u64)).unwrap();
    object.rbd("snap_add", &(text("two"), 9u64)).unwrap();
    assert_eq!(object.rbd("snap_add", &(text("two"), 10u64)), Err(Errno::EEXIST));
    assert_eq!(object.rbd("snap_add", &(text("old"), 3u64)), Err(Errno::ESTALE));
    object.rbd("snap_rename", &(4u64, text("uno"))).unwrap();
    type Listed = (u64, Vec<(u64, u64, BString)>);
    let listed: Listed = object.ask("snap_list", &NOTHING);
    let size = 7u64 << 20;
    assert_eq!(listed, (9, vec![(9, size, text("two")), (4, size, text("uno"))]));
    object.rbd("snap_remove", &text("two")).unwrap();
    assert_eq!(object.rbd("snap_remove", &text("two")), Err(Errno::ENOENT));
    assert_eq!(object.data.len(), 112 + 16 + 4);
}

impl TestObject {
    fn write_all(&mut self, data: Vec<u8>) {
        self.data = data;
        self.exists = true;
    }
}

#[test]
fn sparsify_gives_back_whole_chunks_of_zeros() {
    let mut object = TestObject::default();
    let mut data = vec![0; 40];
    data[9] = 1;
    data[33] = 1;
    object.write_all(data.clone());
    object.rbd("sparsify", &(8u64, false)).unwrap();
    assert_eq!(object.data, data);
    object.write_all(vec![0; 40]);
    object.rbd("sparsify", &(8u64, false)).unwrap();
    assert!(object.exists && object.data.is_empty());
    object.rbd("sparsify", &(8u64, true)).unwrap();
    assert!(!object.exists);
}

/// Found by reading: one small message, `sparsify` by single bytes, made tens of millions of writes of
/// one object.
#[test]
fn sparsify_makes_no_more_runs_than_chunks_are_worth() {
    let data: Vec<u8> = (0..4 << 20).map(|n| n as u8 & 1).collect();
    assert!(data::runs(&data, data::chunk_len(data.len(), 1)).len() <= data::CHUNKS_MAX);
    // What librbd asks for is done.
    assert_eq!(data::chunk_len(128 << 20, 4096), 4096);
    assert_eq!(data::chunk_len(40, 8), 8);
}

/// Maps grow by whole bytes, to what they would be value by value.
#[test]
fn a_map_grows_with_a_value() {
    for (old, new) in (0..10).flat_map(|old| (0..30).map(move |new| (old, new))) {
        let (mut map, mut expected) = (BitVector::default(), BitVector::default());
        map.resize(old, EXISTS);
        map.resize(new, PENDING);
        expected.resize(old, NONEXISTENT);
        (0..old).for_each(|index| expected.set(index, EXISTS));
        expected.resize(new, NONEXISTENT);
        (old..new).for_each(|index| expected.set(index, PENDING));
        assert_eq!(map, expected, "{old} {new}");
    }
}

#[test]
fn a_mirror_status_is_up_while_its_origin_watches() {
    let mut object = TestObject::default();
    object.rbd("mirror_uuid_set", &text("own")).unwrap();
    object.rbd("mirror_mode_set", &mirror_status::mode::IMAGE).unwrap();
    let mirrored = MirrorImage {
        global_image_id: "g".into(),
        state: mirror_status::image_state::ENABLED,
        mode: 1,
    };
    object.rbd("mirror_image_set", &(text("i"), mirrored)).unwrap();
    let status = MirrorImageSiteStatus { state: 4, ..MirrorImageSiteStatus::default() };
    object.rbd("mirror_image_status_set", &(text("g"), status)).unwrap();
    let told: MirrorImageStatus = object.ask("mirror_image_status_get", &text("g"));
    assert!(!told.local().unwrap().up);
    let counts: Vec<(u8, i32)> = object.ask("mirror_image_status_get_summary", &NOTHING);
    assert_eq!(counts, [(0, 1)]);

    let addr = EntityAddr::parse("v2:127.0.0.1:0/77", AddrType::Any).unwrap();
    object.watchers = vec![(EntityName::client(4123), addr)];
    let told: MirrorImageStatus = object.ask("mirror_image_status_get", &text("g"));
    assert!(told.local().unwrap().up);
    let counts: Vec<(u8, i32)> = object.ask("mirror_image_status_get_summary", &NOTHING);
    assert_eq!(counts, [(4, 1)]);
    assert_eq!(object.rbd("mirror_image_remove", &text("i")), Err(Errno::EBUSY));
}

// rbd-mirror tells a status now and then. One told after the image was not mirrored any more stayed for ever: nothing but the image's
// removal takes it away, and that had been.
#[test]
fn a_status_of_an_image_that_is_not_mirrored_is_not_kept() {
    use mirror_status::image_state::{DISABLING, ENABLED};
    let mut object = TestObject::default();
    let status =
        (text("g"), MirrorImageSiteStatus { state: 4, ..MirrorImageSiteStatus::default() });
    object.rbd("mirror_image_status_set", &status).unwrap();
    assert_eq!(object.rbd("mirror_image_status_get", &text("g")), Err(Errno::ENOENT));

    let image = |state| (text("i"), MirrorImage { global_image_id: "g".into(), state, mode: 1 });
    object.rbd("mirror_image_set", &image(ENABLED)).unwrap();
    object.rbd("mirror_image_set", &image(DISABLING)).unwrap();
    object.rbd("mirror_image_status_set", &status).unwrap();
    assert_eq!(object.rbd("mirror_image_status_get", &text("g")), Err(Errno::ENOENT));

    object.rbd("mirror_image_set", &image(ENABLED)).unwrap();
    object.rbd("mirror_image_status_set", &status).unwrap();
    assert!(object.rbd("mirror_image_status_get", &text("g")).is_ok());
}

#[test]
fn group_snapshots_have_unique_names() {
    let mut object = TestObject::default();
    let snap = |id: &str, state: u8| GroupSnapshot {
        id: id.into(),
        name: "s".into(),
        state,
        snaps: Vec::new(),
    };
    object.rbd("group_snap_set", &snap("1", 0)).unwrap();
    assert_eq!(object.rbd("group_snap_set", &snap("1", 0)), Err(Errno::EEXIST));
    object.rbd("group_snap_set", &snap("1", 1)).unwrap();
    assert_eq!(object.rbd("group_snap_set", &snap("2", 0)), Err(Errno::EEXIST));
    let all: Vec<GroupSnapshot> = object.ask("group_snap_list", &(snap("", 0), 9u64));
    assert_eq!(all, [snap("1", 1)]);
}

#[test]
fn methods_refuse_bytes_that_are_no_arguments() {
    for method in CLASS.methods {
        for len in [1, 3, 7] {
            let mut object = image(features::LAYERING);
            let _ = object.call_raw("rbd", method.name, &Bytes::from(vec![0xff; len]));
        }
    }
}

#[test]
fn unknown_namespaces_are_refused() {
    let mut object = image(features::LAYERING);
    let unknown = (text("a"), 3u64, SnapshotNamespace::Unknown(9));
    assert_eq!(object.rbd("snapshot_add", &unknown), Err(Errno::EINVAL));
}

/// Ceph's own class test found it: the last peer was unlinked from a snapshot that had a newer one
/// behind it, where 16.2 asks the client to remove the snapshot instead.
#[test]
fn the_last_peer_of_an_old_mirror_snapshot_is_not_unlinked() {
    let mut object = image(features::LAYERING);
    let mirror = |peers: &[&str]| {
        SnapshotNamespace::Mirror(snapshot::MirrorSnapshot {
            mirror_peer_uuids: peers.iter().map(|peer| text(peer)).collect(),
            ..snapshot::MirrorSnapshot::default()
        })
    };
    object.rbd("snapshot_add", &(text("a"), 1u64, mirror(&["p", "q"]))).unwrap();
    object.rbd("snapshot_add", &(text("b"), 2u64, mirror(&["p"]))).unwrap();
    let unlink = "mirror_image_snapshot_unlink_peer";
    object.rbd(unlink, &(1u64, text("p"))).unwrap();
    assert_eq!(object.rbd(unlink, &(1u64, text("p"))), Err(Errno::ENOENT));
    assert_eq!(object.rbd(unlink, &(1u64, text("q"))), Err(Errno::ERESTART));
    object.rbd(unlink, &(2u64, text("p"))).unwrap();
}
