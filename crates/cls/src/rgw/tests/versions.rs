//! Versions: which is the current one, where its entries are.

use types::{Errno, UTime};

use super::super::bilog;
use super::super::entry::{
    DirEntry, FLAG_CURRENT, FLAG_DELETE_MARKER, FLAG_VER, FLAG_VER_MARKER, ModifyOp,
};
use super::super::key;
use super::super::link::{LinkOp, UnlinkOp};
use super::super::olh::{
    ClearOp, LINK_OLH, OlhEntry, REMOVE_INSTANCE, ReadLogOp, ReadLogRet, TrimLogOp, UNLINK_OLH,
};
use super::{TestObject, index, meta, object_key};
use denc::Denc;

fn link_op(instance: &str) -> LinkOp {
    LinkOp { key: object_key("v", instance), olh_tag: "head".into(), ..LinkOp::default() }
}

fn delete_op(instance: &str) -> LinkOp {
    LinkOp { delete_marker: true, meta: meta(0), ..link_op(instance) }
}

impl TestObject {
    fn link(&mut self, op: &LinkOp) -> Result<(), Errno> {
        self.rgw("bucket_link_olh", op).map(|_| ())
    }

    /// A new version, as a gateway puts it.
    fn put(&mut self, instance: &str) {
        self.add(object_key("v", instance), 10);
        self.link(&link_op(instance)).unwrap();
    }

    fn unlink(&mut self, instance: &str) -> Result<(), Errno> {
        let key = object_key("v", instance);
        let op = UnlinkOp { key, olh_tag: "head".into(), ..UnlinkOp::default() };
        self.rgw("bucket_unlink_instance", &op).map(|_| ())
    }

    fn olh(&self) -> OlhEntry {
        OlhEntry::from_bytes_exact(&self.omap[&key::olh_key(b"v")]).unwrap()
    }

    fn instance(&self, instance: &str) -> DirEntry {
        self.entry(&key::instance_key(&object_key("v", instance))).unwrap()
    }

    /// The steps of the OLH's log since an epoch.
    fn steps(&mut self, ver_marker: u64) -> Vec<(u64, u8, String)> {
        let olh = object_key("v", "");
        let op = ReadLogOp { olh, ver_marker, olh_tag: "head".into() };
        let ret: ReadLogRet = self.reply("bucket_read_olh_log", &op);
        let steps = ret.log.into_values().flatten();
        steps.map(|step| (step.epoch, step.op, step.key.instance.to_string())).collect()
    }
}

#[test]
fn the_newest_version_is_the_current_one_and_first() {
    let mut object = index();
    assert_eq!(object.link(&link_op("i1")), Err(Errno::ENOENT));
    object.put("i1");
    object.put("i2");
    let keys = ["v", "v.v912.ii2", "v.v913.ii1", "#1000_v.ii1", "#1000_v.ii2", "#1001_v"];
    assert_eq!(object.keys(), keys);
    assert_eq!(object.entry(b"v").unwrap().flags, FLAG_VER_MARKER);
    assert_eq!(object.instance("i1").flags, FLAG_VER);
    assert_eq!(object.instance("i2").flags, FLAG_VER | FLAG_CURRENT);
    assert_eq!((object.olh().key, object.olh().epoch), (object_key("v", "i2"), 3));
    let steps = [(2, LINK_OLH, "i1".to_owned()), (3, LINK_OLH, "i2".to_owned())];
    assert_eq!(object.steps(0), steps);
    assert_eq!(object.steps(2), steps[1..]);
}

/// What was put before the bucket had versions is the null version from then on.
#[test]
fn a_plain_entry_becomes_the_null_version() {
    let mut object = index();
    object.add(object_key("v", ""), 10);
    object.put("i1");
    let keys = ["v", "v.v913.ii1", "v.v914.i", "#1000_v.i", "#1000_v.ii1", "#1001_v"];
    assert_eq!(object.keys(), keys);
    assert_eq!((object.instance("").flags, object.instance("").versioned_epoch), (FLAG_VER, 1));
    object.unlink("null").unwrap();
    assert_eq!(object.olh().key, object_key("v", "i1"));
    assert_eq!(object.steps(2), [(3, REMOVE_INSTANCE, "null".to_owned())]);
    assert!(!object.keys().contains(&"v.v914.i".to_owned()));
}

/// A null delete marker has a key of its own: the null version's object is removed only later.
#[test]
fn the_null_delete_marker_stands_beside_the_null_version() {
    let mut object = index();
    object.add(object_key("v", ""), 10);
    object.link(&delete_op("")).unwrap();
    assert_eq!(object.keys(), ["v", "v.v913.i", "#1000_v.i", "#1000_v.i.d", "#1001_v"]);
    let marker = object.entry(b"v\0v913\0i").unwrap();
    assert_eq!(marker.flags, FLAG_VER | FLAG_CURRENT | FLAG_DELETE_MARKER);
    assert_eq!(marker.tag, "delete-marker");
    let steps = [(2, LINK_OLH, String::new()), (2, REMOVE_INSTANCE, String::new())];
    assert_eq!(object.steps(0), steps);
    object.unlink("").unwrap();
    assert!(!object.keys().contains(&"#1000_v.i.d".to_owned()));
}

#[test]
fn one_delete_marker_on_top_is_enough() {
    let mut object = index();
    object.put("i1");
    object.link(&delete_op("d1")).unwrap();
    assert!(object.olh().delete_marker);
    assert_eq!(object.link(&delete_op("d2")), Err(Errno::ENOENT));
    object.put("i2");
    object.link(&delete_op("d2")).unwrap();
}

/// The next version becomes the current one where it stands: it has not become newer.
#[test]
fn the_next_version_takes_over_at_its_place() {
    let mut object = index();
    for instance in ["i1", "i2"] {
        object.put(instance);
    }
    object.link(&delete_op("d1")).unwrap();
    object.unlink("d1").unwrap();
    let keys = ["v", "v.v912.ii2", "v.v913.ii1", "#1000_v.ii1", "#1000_v.ii2", "#1001_v"];
    assert_eq!(object.keys(), keys);
    assert_eq!(object.instance("i2").flags, FLAG_VER | FLAG_CURRENT);
    assert_eq!(object.instance("i2").versioned_epoch, 3);
    assert_eq!((object.olh().epoch, object.olh().delete_marker), (5, false));
    // Of the marker there is nothing to remove but its entry.
    assert_eq!(object.steps(4), [(5, LINK_OLH, "i2".to_owned())]);
    // A version that is gone already is no error.
    object.unlink("d1").unwrap();
    assert_eq!(object.olh().epoch, 5);
}

#[test]
fn the_last_version_takes_the_olh_with_it() {
    let mut object = index();
    object.put("i1");
    object.unlink("i1").unwrap();
    let olh = object.olh();
    assert!(olh.pending_removal && !olh.exists);
    assert_eq!(olh.key, object_key("v", ""));
    let steps = [(3, UNLINK_OLH, String::new()), (3, REMOVE_INSTANCE, "i1".to_owned())];
    assert_eq!(object.steps(2), steps);

    let clear = |tag: &str| ClearOp { key: object_key("v", ""), olh_tag: tag.into() };
    assert_eq!(object.rgw("bucket_clear_olh", &clear("other")), Err(Errno::ECANCELED));
    object.rgw("bucket_clear_olh", &clear("head")).unwrap();
    // The gateway completes the removal of the instance's entry.
    assert_eq!(object.keys(), ["#1000_v.ii1"]);
}

#[test]
fn another_head_is_refused_until_this_one_goes() {
    let mut object = index();
    object.put("i1");
    object.add(object_key("v", "i2"), 10);
    let other = LinkOp { olh_tag: "new".into(), ..link_op("i2") };
    assert_eq!(object.link(&other), Err(Errno::ECANCELED));
    object.unlink("i1").unwrap();
    object.link(&other).unwrap();
    assert_eq!((object.olh().tag, object.olh().pending_removal), ("new".into(), false));
}

/// Other zones say the epoch: what comes late is put at its place and changes nothing else.
#[test]
fn an_old_epoch_does_not_become_the_current_one() {
    let mut object = index();
    for (instance, olh_epoch) in [("i1", 20), ("i2", 10)] {
        object.add(object_key("v", instance), 10);
        object.link(&LinkOp { olh_epoch, ..link_op(instance) }).unwrap();
    }
    assert_eq!((object.olh().key, object.olh().epoch), (object_key("v", "i1"), 20));
    assert_eq!(object.keys()[1..3], ["v.v8235.ii1", "v.v905.ii2"]);
    assert_eq!(object.instance("i2").flags, FLAG_VER);
    // Of one epoch the instance that sorts first wins, in every zone.
    for (instance, winner) in [("i3", "i1"), ("i0", "i0")] {
        object.add(object_key("v", instance), 10);
        object.link(&LinkOp { olh_epoch: 20, ..link_op(instance) }).unwrap();
        assert_eq!(object.olh().key, object_key("v", winner));
    }
}

#[test]
fn a_version_that_is_younger_stays() {
    let mut object = index();
    object.add(object_key("v", "i1"), 10);
    let unmod_since = UTime::new(0, 1);
    let op = LinkOp { unmod_since, ..link_op("i1") };
    // Both times are cut to the second: 0 is not before 0.
    object.link(&op).unwrap();
    assert!(!object.omap.contains_key(&key::olh_key(b"v")));
    object.link(&LinkOp { high_precision_time: true, ..op }).unwrap();
    assert!(object.omap.contains_key(&key::olh_key(b"v")));
}

#[test]
fn the_olhs_log_is_trimmed() {
    let mut object = index();
    for instance in ["i1", "i2", "i3"] {
        object.put(instance);
    }
    let trim = |ver, tag: &str, instance: &str| TrimLogOp {
        olh: object_key("v", instance),
        ver,
        olh_tag: tag.into(),
    };
    let mut call = |op: TrimLogOp| object.rgw("bucket_trim_olh_log", &op).map(|_| ());
    assert_eq!(call(trim(3, "other", "")), Err(Errno::ECANCELED));
    assert_eq!(call(trim(3, "head", "i1")), Err(Errno::EINVAL));
    call(trim(3, "head", "")).unwrap();
    assert_eq!(object.steps(0), [(4, LINK_OLH, "i3".to_owned())]);
    assert_eq!(object.steps(u64::MAX), []);
}

#[test]
fn versions_are_logged_with_their_epochs() {
    let mut object = index();
    object.add(object_key("v", "i1"), 10);
    object.link(&LinkOp { log_op: true, ..link_op("i1") }).unwrap();
    let mut marker = LinkOp { log_op: true, ..delete_op("d1") };
    marker.meta.owner = "someone".into();
    object.link(&marker).unwrap();
    let all = bilog::ListOp { max: 9, ..bilog::ListOp::default() };
    let ret: bilog::ListRet = object.reply("bi_log_list", &all);
    let said: Vec<_> = ret.entries.iter().map(|e| (e.op, e.ver.epoch, &e.owner[..])).collect();
    let expected: [(_, _, &[u8]); 2] =
        [(ModifyOp::LINK_OLH, 2, b""), (ModifyOp::LINK_OLH_DM, 3, b"someone")];
    assert_eq!(said, expected);
    assert!(ret.entries.iter().all(|e| e.bilog_flags == bilog::FLAG_VERSIONED_OP));
}
