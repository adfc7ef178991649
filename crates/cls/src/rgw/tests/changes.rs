//! Changes of an index: prepared, completed, suggested; the log.

use bytes::Bytes;
use denc::{Reader, Writer};
use types::Errno;

use super::super::bilog::{self, LogEntry};
use super::super::entry::{DirEntry, ModifyOp};
use super::super::header::CategoryStats;
use super::super::index::{CompleteOp, PrepareOp, TagTimeoutOp, UpdateStatsOp};
use super::super::{packed, suggest};
use super::{NOTHING, TestObject, complete_op, index, meta, object_key};

const ADD: ModifyOp = ModifyOp::ADD;
const DEL: ModifyOp = ModifyOp::DEL;
const CANCEL: ModifyOp = ModifyOp::CANCEL;

fn log_of(object: &mut TestObject) -> Vec<LogEntry> {
    let all = bilog::ListOp { max: 1000, ..bilog::ListOp::default() };
    object.reply::<bilog::ListRet>("bi_log_list", &all).entries
}

/// The object's entry as a listing tells it, and what to do with it.
fn suggestion(object: &TestObject, name: &str, op: u8) -> Bytes {
    let mut w = Writer::new();
    w.u8(op);
    let entry = object.entry(name.as_bytes()).unwrap();
    w.put(&DirEntry { exists: true, meta: meta(5), ..entry });
    w.into_bytes()
}

#[test]
fn an_index_is_made_once() {
    let mut object = index();
    let golden = "07023000000000000000000000000000000001000000000000000000000000000000000000000\
                  101090000000000000000ffffffff00";
    let header: String = object.header.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(header, golden);
    assert_eq!(object.rgw("bucket_init_index", &NOTHING), Err(Errno::EINVAL));
    object.rgw("bucket_set_tag_timeout", &TagTimeoutOp { tag_timeout: 60 }).unwrap();
    assert_eq!((object.index_header().tag_timeout, object.index_header().ver), (60, 2));
}

#[test]
fn numbers_are_as_short_as_they_can_be() {
    let lens = [(0, 1), (0x7f, 1), (0x80, 2), (0xff, 2), (0x100, 3), (0xffff, 3)];
    // Two bytes for 0x10000, as Ceph writes it, would read as 0.
    let wide = [(0x1_0000, 5), (0x100_0000, 5), (0x100_0001, 9), (u64::MAX, 9)];
    for (value, len) in lens.into_iter().chain(wide) {
        let mut w = Writer::new();
        packed::put(&mut w, value);
        let bytes = w.into_bytes();
        assert_eq!(bytes.len(), len, "{value:#x}");
        assert_eq!(packed::get(&mut Reader::new(&bytes)), Ok(value));
    }
    assert!(packed::get(&mut Reader::new(&Bytes::from_static(&[0x83, 0, 0, 0]))).is_err());
}

#[test]
fn an_object_is_counted_once() {
    let mut object = index();
    let no_tag = PrepareOp { key: object_key("a", ""), ..PrepareOp::default() };
    assert_eq!(object.rgw("bucket_prepare_op", &no_tag), Err(Errno::EINVAL));
    object.prepare(ADD, "a", "t1").unwrap();
    assert_eq!(object.sums(), CategoryStats::default());
    assert!(!object.entry(b"a").unwrap().exists);

    let unknown = complete_op(ADD, "a", "t2", 1, 5000);
    assert_eq!(object.complete(&unknown), Err(Errno::EINVAL));
    object.complete(&complete_op(ADD, "a", "t1", 1, 5000)).unwrap();
    let one = CategoryStats {
        total_size: 5000,
        total_size_rounded: 8192,
        num_entries: 1,
        actual_size: 5000,
    };
    assert_eq!(object.sums(), one);
    assert_eq!(object.entry(b"a").unwrap().tag, "t1");

    object.complete(&complete_op(ADD, "a", "", 2, 4096)).unwrap();
    assert_eq!((object.sums().num_entries, object.sums().total_size_rounded), (1, 4096));
    object.complete(&complete_op(DEL, "a", "", 3, 0)).unwrap();
    assert_eq!(object.sums(), CategoryStats::default());
    assert!(object.omap.is_empty());
}

/// An entry with changes under way stays when the object is removed, and goes with the last of them.
#[test]
fn an_entry_stays_for_its_changes() {
    let mut object = index();
    object.complete(&complete_op(ADD, "a", "", 0, 10)).unwrap();
    for tag in ["t1", "t1", "t2"] {
        object.prepare(ADD, "a", tag).unwrap();
    }
    assert_eq!(object.entry(b"a").unwrap().pending.len(), 3);
    object.complete(&complete_op(DEL, "a", "t1", 2, 0)).unwrap();
    let entry = object.entry(b"a").unwrap();
    assert_eq!((entry.exists, entry.pending.len()), (false, 2));
    object.complete(&complete_op(CANCEL, "a", "t2", 0, 0)).unwrap();
    assert_eq!(object.entry(b"a").unwrap().pending.len(), 1);
    object.complete(&complete_op(CANCEL, "a", "t1", 0, 0)).unwrap();
    assert!(object.entry(b"a").is_none());
}

/// Of two racing writes the one that reaches the index last may be the older.
#[test]
fn an_older_version_of_the_same_pool_changes_nothing() {
    let mut object = index();
    let mut add = |pool, epoch, size| {
        object.prepare(ADD, "a", "t").unwrap();
        let mut op = complete_op(ADD, "a", "t", epoch, size);
        op.ver.pool = pool;
        object.complete(&op).unwrap();
        object.sums().total_size
    };
    assert_eq!(add(7, 5, 10), 10);
    assert_eq!(add(7, 4, 99), 10);
    // The entry has the refused version now, as in Ceph.
    assert_eq!(add(7, 4, 99), 10);
    assert_eq!(add(7, 5, 99), 99);
    assert_eq!(add(8, 4, 98), 98);
    // Without a version there is nothing to compare.
    assert_eq!(add(8, 0, 7), 7);
}

/// Without an entry, as nothing was prepared, the version is compared with itself.
#[test]
fn a_change_with_a_version_is_to_be_prepared() {
    let mut object = index();
    object.complete(&complete_op(ADD, "a", "", 5, 10)).unwrap();
    assert!(object.omap.is_empty());
    object.complete(&complete_op(ADD, "a", "", 0, 10)).unwrap();
    assert_eq!(object.sums().num_entries, 1);
}

#[test]
fn changes_are_logged_in_order() {
    let mut object = index();
    let logged = |op, name| CompleteOp { log_op: true, ..complete_op(op, name, "", 0, 1) };
    // The removal of what is not there is none.
    object.complete(&logged(DEL, "a")).unwrap();
    object.complete(&logged(ADD, "a")).unwrap();
    object.complete(&logged(ADD, "b")).unwrap();
    let ids: Vec<_> = log_of(&mut object).into_iter().map(|entry| entry.id).collect();
    assert_eq!(ids, ["00000000002.1.1", "00000000003.1.3"]);
    assert_eq!(object.index_header().max_marker, "00000000003.1.3");

    // A stopped log takes one entry more, which says so.
    object.rgw("bi_log_stop", &NOTHING).unwrap();
    object.complete(&logged(ADD, "c")).unwrap();
    object.rgw("bi_log_resync", &NOTHING).unwrap();
    let ops: Vec<_> = log_of(&mut object).into_iter().map(|entry| entry.op).collect();
    assert_eq!(ops, [ADD, ADD, ModifyOp::SYNCSTOP, ModifyOp::RESYNC]);

    let trim =
        |from: &str, to: &str| bilog::TrimOp { start_marker: from.into(), end_marker: to.into() };
    object.rgw("bi_log_trim", &trim("", "00000000002.1.1")).unwrap();
    assert_eq!(log_of(&mut object).len(), 3);
    let again = object.rgw("bi_log_trim", &trim("", "00000000002.1.1"));
    assert_eq!(again, Err(Errno::ENODATA));
    object.rgw("bi_log_trim", &trim("", "")).unwrap();
    assert!(log_of(&mut object).is_empty());
    assert_eq!(object.keys(), ["a", "b", "c"]);
}

/// A multipart upload's parts go when it is completed: each has a log entry under a version of its
/// own, since all are written in one step.
#[test]
fn entries_removed_besides_are_logged_too() {
    let mut object = index();
    object.add(object_key("part", ""), 10);
    let mut op = CompleteOp { log_op: true, ..complete_op(ADD, "a", "", 0, 30) };
    op.remove_objs = vec![object_key("none", ""), object_key("part", "")];
    object.complete(&op).unwrap();
    assert_eq!((object.sums().num_entries, object.sums().total_size), (1, 30));
    let entries = log_of(&mut object);
    let said: Vec<_> = entries.iter().map(|e| (e.op, e.index_ver, e.object.to_string())).collect();
    assert_eq!(said, [(ADD, 2, "a".to_owned()), (DEL, 3, "part".to_owned())]);
    assert_eq!(object.index_header().ver, 4);
}

#[test]
fn sums_are_set_or_added_to() {
    let mut object = index();
    let one = CategoryStats { num_entries: 1, actual_size: 5, ..CategoryStats::default() };
    let mut op = UpdateStatsOp { absolute: false, stats: [(1, one.clone())].into() };
    for _ in 0..2 {
        object.rgw("bucket_update_stats", &op).unwrap();
    }
    assert_eq!((object.sums().num_entries, object.sums().actual_size), (2, 10));
    op.absolute = true;
    object.rgw("bucket_update_stats", &op).unwrap();
    assert_eq!(object.sums(), one);
}

#[test]
fn a_suggestion_waits_for_changes_under_way() {
    let mut object = index();
    object.prepare(ADD, "a", "t1").unwrap();
    let update = suggestion(&object, "a", suggest::UPDATE);
    let suggest = |object: &mut TestObject, bytes: &Bytes| {
        object.call_as_osd("rgw", "dir_suggest_changes", bytes).map(|_| ())
    };
    suggest(&mut object, &update).unwrap();
    assert_eq!(object.sums().num_entries, 0);
    object.wait(120);
    suggest(&mut object, &update).unwrap();
    assert_eq!(object.sums().num_entries, 0);
    object.wait(1);
    suggest(&mut object, &update).unwrap();
    assert_eq!(object.sums().num_entries, 1);

    // One that was thought of before the entry's last change is not taken.
    object.complete(&CompleteOp { meta: meta(9), ..complete_op(ADD, "a", "", 0, 9) }).unwrap();
    suggest(&mut object, &update).unwrap();
    assert_eq!(object.sums().total_size, 9);

    let remove = suggestion(&object, "a", suggest::REMOVE | suggest::LOG_OP);
    suggest(&mut object, &remove).unwrap();
    assert_eq!(object.sums(), CategoryStats::default());
    assert_eq!(log_of(&mut object).len(), 1);
    // It is gone.
    suggest(&mut object, &remove).unwrap();
    assert_eq!(log_of(&mut object).len(), 1);
    assert_eq!(suggest(&mut object, &remove.slice(..9)), Err(Errno::EINVAL));
}

#[test]
fn the_header_says_how_long_changes_live() {
    let mut object = index();
    object.rgw("bucket_set_tag_timeout", &TagTimeoutOp { tag_timeout: 5 }).unwrap();
    object.prepare(ADD, "a", "t1").unwrap();
    let update = suggestion(&object, "a", suggest::UPDATE);
    object.wait(6);
    object.call_as_osd("rgw", "dir_suggest_changes", &update).unwrap();
    assert!(object.entry(b"a").unwrap().exists);
}
