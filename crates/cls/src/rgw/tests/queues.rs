//! Garbage, lifecycle, usage, resharding.

use bstr::BString;
use denc::Denc;
use types::{Errno, UTime};

use super::super::header::InstanceEntry;
use super::super::usage::{self, LogEntry, LogInfo, ReadRet, UsageData, User};
use super::super::{gc, lc, reshard};
use super::{NOTHING, TestObject, index};

fn garbage(tag: &str, expiration_secs: u32) -> gc::SetEntryOp {
    let info = gc::ObjInfo { tag: tag.into(), ..gc::ObjInfo::default() };
    gc::SetEntryOp { expiration_secs, info }
}

impl TestObject {
    fn garbage(&mut self, op: &gc::ListOp) -> gc::ListRet {
        self.reply("gc_list", op)
    }

    fn tags(&mut self, expired_only: bool) -> Vec<String> {
        let op = gc::ListOp { expired_only, ..gc::ListOp::default() };
        self.garbage(&op).entries.into_iter().map(|info| info.tag.to_string()).collect()
    }
}

#[test]
fn garbage_is_listed_when_its_time_has_come() {
    let mut object = TestObject::default();
    for (tag, secs) in [("t1", 10), ("t2", 5), ("t3", 7)] {
        object.rgw("gc_set_entry", &garbage(tag, secs)).unwrap();
    }
    assert_eq!(object.keys()[3], "1_01600000005.000000000");
    assert_eq!(object.tags(true), [""; 0]);
    assert_eq!(object.tags(false), ["t2", "t3", "t1"]);
    object.wait(8);
    assert_eq!(object.tags(true), ["t2", "t3"]);

    let mut op = gc::ListOp { max: 2, expired_only: false, ..gc::ListOp::default() };
    let ret = object.garbage(&op);
    assert_eq!((ret.truncated, &ret.next_marker[..]), (true, &b"1_01600000007.000000000"[..]));
    op.marker = ret.next_marker;
    let ret = object.garbage(&op);
    assert_eq!((ret.truncated, ret.entries.len(), &ret.next_marker[..]), (false, 1, &b""[..]));
}

/// A deferred chain must not be found under its old time.
#[test]
fn garbage_is_deferred_and_removed() {
    let mut object = TestObject::default();
    object.rgw("gc_set_entry", &garbage("t1", 5)).unwrap();
    let defer = |tag: &str| gc::DeferEntryOp { expiration_secs: 20, tag: tag.into() };
    object.rgw("gc_defer_entry", &defer("t1")).unwrap();
    assert_eq!(object.keys(), ["0_t1", "1_01600000020.000000000"]);
    assert_eq!(object.rgw("gc_defer_entry", &defer("t2")), Err(Errno::ENOENT));
    let remove = gc::RemoveOp { tags: vec!["t2".into(), "t1".into()] };
    object.rgw("gc_remove", &remove).unwrap();
    assert!(object.omap.is_empty());
}

#[test]
fn lifecycle_goes_from_bucket_to_bucket() {
    let mut object = TestObject::default();
    let entry = |bucket: &str, status| lc::Entry { bucket: bucket.into(), start_time: 9, status };
    for (bucket, status) in [("b1", 0), ("b2", 3)] {
        object.rgw("lc_set_entry", &lc::OneEntry { entry: entry(bucket, status) }).unwrap();
    }
    let at = |marker: &str| lc::MarkerOp { marker: marker.into() };
    let found: lc::GetEntryRet = object.reply("lc_get_entry", &at("b2"));
    assert_eq!(found.entry, entry("b2", 3));
    assert_eq!(object.rgw("lc_get_entry", &at("b3")), Err(Errno::ENOENT));
    let mut next = |marker: &str| -> lc::Entry {
        object.reply::<lc::OneEntry>("lc_get_next_entry", &at(marker)).entry
    };
    assert_eq!(next(""), entry("b1", 0));
    assert_eq!(next("b1"), entry("b2", 3));
    assert_eq!(next("b2"), lc::Entry::default());
    object.rgw("lc_rm_entry", &lc::OneEntry { entry: entry("b1", 7) }).unwrap();
    assert_eq!(object.keys(), ["b2"]);

    let head: lc::Head = object.reply("lc_get_head", &NOTHING);
    assert_eq!(head, lc::Head::default());
    let head = lc::Head { head: lc::ObjHead { start_date: 5, marker: "b2".into() } };
    object.rgw("lc_put_head", &head).unwrap();
    assert_eq!(object.reply::<lc::Head>("lc_get_head", &NOTHING), head);
}

/// An older gateway knows no start times; it gets, and may have stored, names with numbers.
#[test]
fn lifecycle_is_listed_in_the_callers_version() {
    let mut object = TestObject::default();
    let entry = lc::Entry { bucket: "b1".into(), start_time: 9, status: 2 };
    object.rgw("lc_set_entry", &lc::OneEntry { entry: entry.clone() }).unwrap();
    object.omap.insert("b2".into(), (BString::from("b2"), 3u32).to_bytes());
    let old = lc::Entry { bucket: "b2".into(), start_time: 0, status: 3 };
    for version in 1..=3u8 {
        let op = lc::ListOp { max_entries: 9, ..lc::ListOp::default() };
        let mut bytes = op.to_bytes().to_vec();
        bytes[0] = version;
        let output = object.call_as_osd("rgw", "lc_list_entries", &bytes.into()).unwrap();
        assert_eq!(output.data[0], version);
        let ret = lc::ListRet::from_bytes(&output.data).unwrap();
        let start_time = if version == 3 { 9 } else { 0 };
        assert_eq!(ret.entries, [lc::Entry { start_time, ..entry.clone() }, old.clone()]);
    }
    let set = lc::OneEntry { entry: old.clone() };
    let mut w = denc::Writer::new();
    w.envelope(1, 1, |w| w.put(&(BString::from("b2"), 3u32)));
    assert_eq!(lc::OneEntry::from_bytes_exact(&w.into_bytes()), Ok(set));
}

fn usage_of(owner: &str, payer: &str, bucket: &str, hour: u64, ops: u64) -> LogEntry {
    let data = UsageData { ops, bytes_sent: 10 * ops, ..UsageData::default() };
    LogEntry {
        owner: User::parse(owner.as_bytes()),
        payer: User::parse(payer.as_bytes()),
        bucket: bucket.into(),
        epoch: hour * 3600,
        total: data.clone(),
        by_category: [("get_obj".into(), data)].into(),
    }
}

impl TestObject {
    fn use_up(&mut self, entries: Vec<LogEntry>) {
        let info = LogInfo { entries };
        self.rgw("user_usage_log_add", &usage::AddOp { info, ..Default::default() }).unwrap();
    }

    /// User, bucket and requests.
    fn usage(&mut self, op: &usage::ReadOp) -> Vec<(String, String, u64)> {
        let ret: ReadRet = self.reply("user_usage_log_read", op);
        let sums = ret.usage.into_iter();
        sums.map(|(k, e)| (k.user.to_string(), k.bucket.to_string(), e.total.ops)).collect()
    }
}

#[test]
fn users_have_tenants_and_namespaces() {
    for text in ["id", "tenant$id", "tenant$ns$id", "$ns$id"] {
        assert_eq!(User::parse(text.as_bytes()).text(), text);
    }
    // What is empty is left out.
    assert_eq!(User::parse(b"$id").text(), "id");
    assert_eq!(User::parse(b"tenant$$id").text(), "tenant$id");
}

#[test]
fn usage_is_summed_by_user_and_bucket() {
    let mut object = TestObject::default();
    object.use_up(vec![usage_of("u", "", "b", 1, 1), usage_of("u", "", "b", 2, 10)]);
    object.use_up(vec![usage_of("u", "", "b", 1, 2), usage_of("w", "", "c", 1, 5)]);
    assert_eq!(object.keys()[0], "00000003600_u_b");
    assert_eq!(object.keys()[3], "u_00000003600_b");
    let all = usage::ReadOp { end_epoch: u64::MAX, ..Default::default() };
    let row = |user: &str, bucket: &str, ops| (user.to_owned(), bucket.to_owned(), ops);
    assert_eq!(object.usage(&all), [row("u", "b", 13), row("w", "c", 5)]);
    let of_user = usage::ReadOp { owner: "u".into(), end_epoch: 7200, ..all.clone() };
    assert_eq!(object.usage(&of_user), [row("u", "b", 3)]);
    let of_bucket = usage::ReadOp { bucket: "c".into(), ..all.clone() };
    assert_eq!(object.usage(&of_bucket), [row("w", "c", 5)]);

    let mut op = usage::ReadOp { max_entries: 1, ..all };
    let mut ops = 0;
    for page in 1.. {
        let ret: ReadRet = object.reply("user_usage_log_read", &op);
        ops += ret.usage.values().map(|entry| entry.total.ops).sum::<u64>();
        if !ret.truncated {
            // The keys by user stand behind those by time and end the listing.
            assert_eq!(page, 4);
            break;
        }
        op.iter = ret.next_iter;
    }
    assert_eq!(ops, 18);
}

#[test]
fn usage_is_trimmed_and_cleared() {
    let trim = |user: &str, end_epoch| usage::TrimOp {
        user: user.into(),
        end_epoch,
        ..usage::TrimOp::default()
    };
    let mut object = TestObject::default();
    assert_eq!(object.rgw("user_usage_log_trim", &trim("", 1)), Err(Errno::ENOENT));
    object.rgw("usage_log_clear", &NOTHING).unwrap();
    object.use_up(vec![usage_of("u", "", "b", 1, 1), usage_of("w", "", "c", 2, 5)]);
    object.rgw("user_usage_log_trim", &trim("u", u64::MAX)).unwrap();
    assert_eq!(object.keys(), ["00000007200_w_c", "w_00000007200_c"]);
    assert_eq!(object.rgw("user_usage_log_trim", &trim("", 7200)), Err(Errno::ENODATA));
    object.rgw("usage_log_clear", &NOTHING).unwrap();
    assert!(object.omap.is_empty());
}

/// Requester pays: the entry is the payer's.
#[test]
fn a_payers_usage_is_the_payers() {
    let mut object = TestObject::default();
    object.use_up(vec![usage_of("u", "p", "b", 1, 1)]);
    assert_eq!(object.keys(), ["00000003600_p_b", "p_00000003600_b"]);
    let op = usage::ReadOp { owner: "p".into(), end_epoch: u64::MAX, ..Default::default() };
    assert_eq!(object.usage(&op), [("p".to_owned(), "b".to_owned(), 1)]);
}

#[test]
fn buckets_wait_for_resharding() {
    let mut object = TestObject::default();
    let entry = |tenant: &str, name: &str| reshard::Entry {
        time: UTime::new(1, 2),
        tenant: tenant.into(),
        bucket_name: name.into(),
        bucket_id: "id".into(),
        new_num_shards: 11,
        ..reshard::Entry::default()
    };
    for (tenant, name) in [("", "b"), ("t", "b")] {
        let op = reshard::OneEntry { entry: entry(tenant, name) };
        object.rgw("reshard_add", &op).unwrap();
    }
    assert_eq!(object.keys(), [":b", "t:b"]);
    let mut list = |max, marker: &str| -> reshard::ListRet {
        object.reply("reshard_list", &reshard::ListOp { max, marker: marker.into() })
    };
    let first = list(1, "");
    assert_eq!((first.entries, first.is_truncated), (vec![entry("", "b")], true));
    let rest = list(1, ":b");
    assert_eq!((rest.entries, rest.is_truncated), (vec![entry("t", "b")], false));
    assert_eq!(list(0, "").entries, []);

    let get = reshard::OneEntry { entry: entry("t", "b") };
    assert_eq!(object.reply::<reshard::OneEntry>("reshard_get", &get), get);
    let remove = |tenant: &str, bucket_id: &str| reshard::RemoveOp {
        tenant: tenant.into(),
        bucket_name: "b".into(),
        bucket_id: bucket_id.into(),
    };
    object.rgw("reshard_remove", &remove("t", "other")).unwrap();
    assert_eq!(object.keys().len(), 2);
    object.rgw("reshard_remove", &remove("t", "id")).unwrap();
    object.rgw("reshard_remove", &remove("", "")).unwrap();
    assert_eq!(object.rgw("reshard_remove", &remove("", "")), Err(Errno::ENOENT));
    assert_eq!(object.rgw("reshard_get", &get), Err(Errno::ENOENT));
}

#[test]
fn a_bucket_under_resharding_guards_itself() {
    let mut object = index();
    let guard = reshard::GuardOp { ret_err: -2300 };
    assert_eq!(object.output("guard_bucket_resharding", &guard).unwrap().result, 0);
    let entry =
        InstanceEntry { reshard_status: 1, new_bucket_instance_id: "new".into(), num_shards: 11 };
    let state = reshard::BucketState { entry };
    object.rgw("set_bucket_resharding", &state).unwrap();
    assert_eq!(object.output("guard_bucket_resharding", &guard).unwrap().result, -2300);
    let none = reshard::NoArguments {};
    assert_eq!(object.reply::<reshard::BucketState>("get_bucket_resharding", &none), state);
    object.rgw("clear_bucket_resharding", &none).unwrap();
    assert_eq!(object.output("guard_bucket_resharding", &guard).unwrap().result, 0);
}
