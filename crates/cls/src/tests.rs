//! What each class does with its object.

use bstr::BString;
use bytes::Bytes;
use denc::{Denc, Writer};
use types::{EntityName, Errno, UTime};

use crate::testing::TestObject;
use crate::{cmpomap, journal, lock, log, otp, refcount, timeindex, user, version};

fn lock_op(kind: u8, cookie: &str, tag: &str, flags: u8) -> lock::LockOp {
    lock::LockOp {
        name: "l".into(),
        kind,
        cookie: cookie.into(),
        tag: tag.into(),
        flags,
        ..lock::LockOp::default()
    }
}

fn info(object: &mut TestObject) -> lock::LockInfo {
    let reply = object.call("lock", "get_info", &lock::GetInfoOp { name: "l".into() }).unwrap();
    lock::LockInfo::from_bytes_exact(&reply).unwrap()
}

/// Found by reading: of clients that say other ids than their keys the first page was read again and
/// again, until the OSD had no memory.
#[test]
fn a_journals_clients_are_found_by_their_keys() {
    let mut object = TestObject::default();
    object.call("journal", "create", &(24u8, 4u8, -1i64)).unwrap();
    for n in 0..600 {
        let key = format!("client_{n}");
        object.omap.insert(key.into(), journal::Client::default().to_bytes());
    }
    let client = (BString::from("new"), Bytes::from_static(b"data"));
    object.call("journal", "client_register", &client).unwrap();
    let found = object.call("journal", "get_client", &client.0).unwrap();
    assert_eq!(journal::Client::from_bytes_exact(&found).unwrap().id, "new");
}

/// A new client begins where the one that is least far is. The image's own has no id, and was left out where the listing
/// began behind the prefix of all keys: `rbd journal inspect` showed what had been committed.
#[test]
fn a_journals_client_without_an_id_counts() {
    let mut object = TestObject::default();
    object.call("journal", "create", &(24u8, 4u8, -1i64)).unwrap();
    let register = |object: &mut TestObject, id: &str| {
        object.call("journal", "client_register", &(BString::from(id), Bytes::new())).unwrap();
        let found = object.call("journal", "get_client", &BString::from(id)).unwrap();
        journal::Client::from_bytes_exact(&found).unwrap().commit_position
    };
    register(&mut object, "");
    let position = journal::ObjectPosition { object_number: 3, tag_tid: 1, entry_tid: 11 };
    let position = journal::ObjectSetPosition { object_positions: vec![position] };
    object.call("journal", "client_commit", &(BString::default(), position.clone())).unwrap();
    assert_eq!(register(&mut object, "new"), position);
}

#[test]
fn lock_exclusive_and_shared() {
    let mut object = TestObject::default();
    assert_eq!(object.call("lock", "get_info", &lock::GetInfoOp::default()), Err(Errno::ENOENT));
    let mut take = |op: lock::LockOp| object.call("lock", "lock", &op).map(|_| ());
    assert_eq!(take(lock_op(0, "c", "", 0)), Err(Errno::EINVAL));
    assert_eq!(take(lock_op(lock::EXCLUSIVE, "c", "", 3)), Err(Errno::EINVAL));
    assert_eq!(take(lock_op(lock::EXCLUSIVE, "c", "", lock::FLAG_MUST_RENEW)), Err(Errno::ENOENT));
    assert_eq!(take(lock_op(lock::EXCLUSIVE, "c", "", 0)), Ok(()));
    assert_eq!(take(lock_op(lock::EXCLUSIVE, "c", "", 0)), Err(Errno::EEXIST));
    assert_eq!(take(lock_op(lock::EXCLUSIVE, "c", "", lock::FLAG_MAY_RENEW)), Ok(()));
    assert_eq!(take(lock_op(lock::EXCLUSIVE, "d", "", 0)), Err(Errno::EBUSY));
    assert_eq!(take(lock_op(lock::SHARED, "d", "", 0)), Err(Errno::EBUSY));
    // The only holder may turn its lock into a shared one.
    assert_eq!(take(lock_op(lock::SHARED, "c", "", lock::FLAG_MUST_RENEW)), Ok(()));
    assert_eq!(take(lock_op(lock::SHARED, "d", "", 0)), Ok(()));
    assert_eq!(take(lock_op(lock::SHARED, "e", "other", 0)), Err(Errno::EBUSY));
    let now = info(&mut object);
    assert_eq!(now.lockers.len(), 2);
    assert_eq!(now.lockers.values().next().unwrap().addr.to_string(), "v1:127.0.0.1:0/77");

    let unlock = |cookie: &str| lock::UnlockOp { name: "l".into(), cookie: cookie.into() };
    object.caller = EntityName::client(9);
    assert_eq!(object.call("lock", "unlock", &unlock("c")), Err(Errno::ENOENT));
    let locker = EntityName::client(4123);
    let op = lock::BreakOp { name: "l".into(), locker, cookie: "c".into() };
    assert!(object.call("lock", "break_lock", &op).is_ok());
    object.caller = locker;
    assert!(object.call("lock", "unlock", &unlock("d")).is_ok());
    assert!(info(&mut object).lockers.is_empty());
    let locks = object.call("lock", "list_locks", &log::InfoOp {}).unwrap();
    assert_eq!(lock::ListLocksReply::from_bytes(&locks).unwrap().locks, ["l"]);
}

#[test]
fn lock_expires_and_ephemeral_ones_take_the_object_along() {
    let mut object = TestObject::default();
    let mut op = lock_op(lock::EXCLUSIVE, "c", "", 0);
    op.duration = UTime::new(10, 0);
    object.call("lock", "lock", &op).unwrap();
    object.now = object.now.plus(std::time::Duration::from_secs(11));
    assert!(info(&mut object).lockers.is_empty());
    object.call("lock", "lock", &lock_op(lock::EXCLUSIVE, "d", "", 0)).unwrap();

    let mut object = TestObject::default();
    object.call("lock", "lock", &lock_op(lock::EXCLUSIVE_EPHEMERAL, "c", "", 0)).unwrap();
    let op = lock::UnlockOp { name: "l".into(), cookie: "c".into() };
    object.call("lock", "unlock", &op).unwrap();
    assert!(!object.exists);
}

#[test]
fn lock_assert_and_set_cookie() {
    let mut object = TestObject::default();
    object.call("lock", "lock", &lock_op(lock::EXCLUSIVE, "c", "t", 0)).unwrap();
    let op = |cookie: &str, tag: &str, kind| lock::AssertOp {
        name: "l".into(),
        kind,
        cookie: cookie.into(),
        tag: tag.into(),
    };
    let mut held = |op: lock::AssertOp| object.call("lock", "assert_locked", &op).map(|_| ());
    assert_eq!(held(op("c", "t", lock::EXCLUSIVE)), Ok(()));
    assert_eq!(held(op("d", "t", lock::EXCLUSIVE)), Err(Errno::EBUSY));
    assert_eq!(held(op("c", "u", lock::EXCLUSIVE)), Err(Errno::EBUSY));
    assert_eq!(held(op("c", "t", lock::SHARED)), Err(Errno::EBUSY));
    assert_eq!(held(op("c", "t", 9)), Err(Errno::EINVAL));
    let rename = lock::SetCookieOp {
        name: "l".into(),
        kind: lock::EXCLUSIVE,
        cookie: "c".into(),
        tag: "t".into(),
        new_cookie: "d".into(),
    };
    object.call("lock", "set_cookie", &rename).unwrap();
    assert_eq!(object.call("lock", "set_cookie", &rename), Err(Errno::EBUSY));
    assert!(object.call("lock", "assert_locked", &op("d", "t", lock::EXCLUSIVE)).is_ok());
}

#[test]
fn hello_greets() {
    let mut object = TestObject::default();
    let mut call = |method: &str, input: &'static [u8]| {
        object.call_raw("hello", method, &Bytes::from_static(input))
    };
    assert_eq!(&call("say_hello", b"").unwrap().data[..], b"Hello, world!");
    assert_eq!(&call("say_hello", b"Tester").unwrap().data[..], b"Hello, Tester!");
    assert_eq!(call("say_hello", &[b'x'; 101]).unwrap_err(), Errno::EINVAL);
    assert!(call("record_hello", b"me").is_ok());
    assert_eq!(call("record_hello", b"me").unwrap_err(), Errno::EEXIST);
    assert_eq!(&call("replay", b"").unwrap().data[..], b"Hello, me!");
    assert!(call("turn_it_to_11", b"").is_ok());
    assert_eq!(&call("replay", b"").unwrap().data[..], b"HELLO, ME!");
    let output = call("write_return_data", b"").unwrap();
    assert_eq!((output.result, &output.data[..]), (42, &b"you might see this"[..]));
    let output = call("write_return_data", b"x").unwrap();
    assert_eq!((output.result, &output.data[..]), (-22, &b"too much input data!"[..]));
    assert_eq!(call("nonsense", b"").unwrap_err(), Errno::EOPNOTSUPP);
    assert_eq!(&object.attrs[bstr::BStr::new("said_by")][..], b"client.4123 127.0.0.1:0/77");
}

#[test]
fn version_conditions() {
    let mut object = TestObject::default();
    let read = object.call("version", "read", &log::InfoOp {}).unwrap();
    assert_eq!(version::ReadRet::from_bytes(&read).unwrap().objv, version::ObjVersion::default());
    object.call("version", "inc", &version::IncOp::default()).unwrap();
    let read = object.call("version", "read", &log::InfoOp {}).unwrap();
    let objv = version::ReadRet::from_bytes(&read).unwrap().objv;
    assert_eq!((objv.ver, objv.tag.len()), (2, 24));
    let cond = |ver: u64, cond: u32| {
        let ver = version::ObjVersion { ver, tag: objv.tag.clone() };
        let conds = vec![version::ObjVersionCond { ver, cond }];
        version::IncOp { conds, ..version::IncOp::default() }
    };
    for (ver, kind, holds) in
        [(2, 1, true), (3, 1, false), (1, 2, true), (2, 2, false), (2, 3, true), (3, 4, true)]
    {
        let result = object.call("version", "check_conds", &cond(ver, kind)).map(|_| ());
        assert_eq!(result, if holds { Ok(()) } else { Err(Errno::ECANCELED) });
    }
    assert_eq!(object.call("version", "inc_conds", &cond(7, 5)), Ok(Bytes::new()));
    assert_eq!(object.call("version", "inc_conds", &cond(1, 5)), Err(Errno::ECANCELED));
}

#[test]
fn refcount_removes_with_the_last() {
    let mut object = TestObject { exists: true, ..TestObject::default() };
    let op = |tag: &str| refcount::RefOp { tag: tag.into(), implicit_ref: true };
    let refs = |object: &mut TestObject| {
        let reply = object.call("refcount", "read", &refcount::ReadOp { implicit_ref: true });
        refcount::Refs::from_bytes(&reply.unwrap()).unwrap().refs
    };
    assert_eq!(refs(&mut object), [""]);
    object.call("refcount", "get", &op("a")).unwrap();
    assert_eq!(refs(&mut object), ["", "a"]);
    object.call("refcount", "put", &op("z")).unwrap();
    object.call("refcount", "put", &op("z")).unwrap();
    assert_eq!(refs(&mut object), ["a"]);
    object.call("refcount", "put", &op("a")).unwrap();
    assert!(!object.exists);
}

#[test]
fn numops_adds_and_multiplies() {
    let mut object = TestObject::default();
    let args = |key: &str, value: &str| {
        let mut w = Writer::new();
        w.put(&BString::from(key));
        w.put(&BString::from(value));
        w.into_bytes()
    };
    let mut call = |method: &str, value: &str| {
        object.call_raw("numops", method, &args("k", value)).map(|_| ())?;
        Ok::<_, Errno>(object.omap[bstr::BStr::new("k")].clone())
    };
    assert_eq!(&call("add", "5").unwrap()[..], b"5");
    assert_eq!(&call("mul", "-2.5").unwrap()[..], b"-12.5");
    assert_eq!(call("add", "x"), Err(Errno::EINVAL));
    object.omap.insert("k".into(), Bytes::from_static(b"word"));
    assert_eq!(object.call_raw("numops", "add", &args("k", "1")), Err(Errno::EBADMSG));
}

#[test]
fn log_lists_and_trims_by_time() {
    let mut object = TestObject { exists: true, ..TestObject::default() };
    let entry = |sec| log::Entry {
        section: "s".into(),
        timestamp: UTime::new(sec, 5_000),
        ..log::Entry::default()
    };
    let op = log::AddOp { entries: (1..=5).map(entry).collect(), monotonic_inc: true };
    object.call("log", "add", &op).unwrap();
    assert_eq!(object.omap.keys().next().unwrap(), "1_0000000001.000005_1.0");
    let list = |object: &mut TestObject, from, to, max| {
        let op = log::ListOp {
            from_time: UTime::new(from, 0),
            to_time: UTime::new(to, 0),
            max_entries: max,
            ..log::ListOp::default()
        };
        log::ListRet::from_bytes(&object.call("log", "list", &op).unwrap()).unwrap()
    };
    assert_eq!(list(&mut object, 0, 0, 0).entries.len(), 5);
    let part = list(&mut object, 2, 4, 0);
    assert_eq!((part.entries.len(), part.truncated), (2, false));
    let part = list(&mut object, 0, 0, 3);
    assert_eq!((part.entries.len(), part.truncated), (3, true));
    let trim = log::TrimOp { to_time: UTime::new(3, 0), ..log::TrimOp::default() };
    object.call("log", "trim", &trim).unwrap();
    assert_eq!(object.call("log", "trim", &trim), Err(Errno::ENODATA));
    assert_eq!(list(&mut object, 0, 0, 0).entries.len(), 3);
    let reply = object.call("log", "info", &log::InfoOp {}).unwrap();
    let header = log::InfoRet::from_bytes(&reply).unwrap().header;
    assert_eq!(header.max_time, UTime::new(5, 5_000));
}

#[test]
fn timeindex_lists_and_trims() {
    let mut object = TestObject { exists: true, ..TestObject::default() };
    let entry = |sec| timeindex::Entry {
        key_ts: UTime::new(sec, 7_000),
        key_ext: "word".into(),
        value: Bytes::from_static(b"v"),
    };
    let op = timeindex::AddOp { entries: (1..=4).map(entry).collect() };
    object.call("timeindex", "add", &op).unwrap();
    let op = timeindex::ListOp {
        to_time: UTime::new(3, 0),
        max_entries: 10,
        ..timeindex::ListOp::default()
    };
    let reply = object.call("timeindex", "list", &op).unwrap();
    let ret = timeindex::ListRet::from_bytes(&reply).unwrap();
    assert_eq!(ret.entries.len(), 2);
    assert_eq!(ret.entries[0].key_ts, UTime::new(1, 7));
    assert_eq!(ret.entries[0].key_ext, "word");
    let op = timeindex::TrimOp { to_time: UTime::new(3, 0), ..timeindex::TrimOp::default() };
    object.call("timeindex", "trim", &op).unwrap();
    assert_eq!(object.omap.len(), 2);
    assert_eq!(object.call("timeindex", "trim", &op), Err(Errno::ENODATA));
}

#[test]
fn user_sums_its_buckets() {
    let mut object = TestObject { exists: true, ..TestObject::default() };
    let entry = |name: &str, size| user::BucketEntry {
        bucket: user::Bucket { name: name.into(), ..user::Bucket::default() },
        size,
        count: 1,
        ..user::BucketEntry::default()
    };
    let entries = vec![entry("a", 10), entry("b", 20)];
    let op = user::SetBucketsOp { entries, add: true, time: UTime::new(5, 0) };
    object.call("user", "set_buckets_info", &op).unwrap();
    let header = |object: &mut TestObject| {
        let reply = object.call("user", "get_header", &user::GetHeaderOp {}).unwrap();
        user::GetHeaderRet::from_bytes(&reply).unwrap().header
    };
    assert_eq!(header(&mut object).stats.total_bytes, 30);
    let op = user::SetBucketsOp { entries: vec![entry("b", 5)], add: false, time: UTime::ZERO };
    object.call("user", "set_buckets_info", &op).unwrap();
    assert_eq!(header(&mut object).stats.total_bytes, 15);
    let op = user::ListBucketsOp { max_entries: 1, ..user::ListBucketsOp::default() };
    let reply = object.call("user", "list_buckets", &op).unwrap();
    let ret = user::ListBucketsRet::from_bytes(&reply).unwrap();
    assert_eq!((ret.entries.len(), ret.truncated, &ret.marker[..]), (1, true, &b"a"[..]));
    let op = user::RemoveBucketOp { bucket: entry("a", 0).bucket };
    object.call("user", "remove_bucket", &op).unwrap();
    assert_eq!(header(&mut object).stats.total_entries, 1);
    object.call("user", "reset_user_stats", &user::TimeOp::default()).unwrap();
    assert_eq!(header(&mut object).stats.total_bytes, 5);
}

fn cmp_vals(
    mode: u8,
    comparison: u8,
    values: &[(&str, Bytes)],
    default: Option<Bytes>,
) -> cmpomap::CmpValsOp {
    let values = values.iter().map(|(key, value)| (BString::from(*key), value.clone())).collect();
    cmpomap::CmpValsOp { mode, comparison, values, default_value: default }
}

/// The last step's buckets alone were the user's sums, as in 16.2: a quota of who has more than a thousand
/// was checked against the rest of them.
#[test]
fn a_users_sums_are_made_anew_in_steps() {
    let mut object = TestObject::default();
    let entry = |n: u64| user::BucketEntry {
        bucket: user::Bucket { name: format!("b{n}").into(), ..user::Bucket::default() },
        size: 10,
        count: 1,
        ..user::BucketEntry::default()
    };
    let op = user::SetBucketsOp {
        entries: (0..1001).map(entry).collect(),
        add: true,
        time: UTime::new(5, 0),
    };
    object.call("user", "set_buckets_info", &op).unwrap();
    let mut op = user::ResetStats2Op { time: UTime::new(6, 0), ..user::ResetStats2Op::default() };
    let mut steps = 0;
    loop {
        let reply = object.call("user", "reset_user_stats2", &op).unwrap();
        let ret = user::ResetStats2Ret::from_bytes_exact(&reply).unwrap();
        steps += 1;
        if !ret.truncated {
            break;
        }
        op = user::ResetStats2Op { marker: ret.marker, acc_stats: ret.acc_stats, ..op };
    }
    let reply = object.call("user", "get_header", &user::GetHeaderOp {}).unwrap();
    let stats = user::GetHeaderRet::from_bytes(&reply).unwrap().header.stats;
    assert_eq!((steps, stats.total_entries, stats.total_bytes), (2, 1001, 10_010));
}

#[test]
fn cmpomap_changes_what_matches() {
    let number = |n: u64| n.to_bytes();
    let mut object = TestObject::default();
    object.omap.insert("a".into(), number(5));
    object.omap.insert("empty".into(), Bytes::new());
    object.omap.insert("text".into(), Bytes::from_static(b"t"));
    let mut ask = |comparison, key, value: Bytes, default| {
        let op = cmp_vals(2, comparison, &[(key, value)], default);
        object.call("cmpomap", "cmp_vals", &op).map(|_| ())
    };
    for (comparison, less, same, more) in [
        (1, false, true, false),
        (2, true, false, true),
        (3, false, false, true),
        (4, false, true, true),
        (5, true, false, false),
        (6, true, true, false),
    ] {
        for (n, holds) in [(4, less), (5, same), (6, more)] {
            let expected = if holds { Ok(()) } else { Err(Errno::ECANCELED) };
            assert_eq!(ask(comparison, "a", number(n), None), expected);
        }
    }
    assert_eq!(ask(7, "a", number(1), None), Err(Errno::EINVAL));
    assert_eq!(ask(1, "empty", number(0), None), Ok(()));
    assert_eq!(ask(1, "none", number(0), None), Err(Errno::ECANCELED));
    assert_eq!(ask(1, "none", number(7), Some(number(7))), Ok(()));
    assert_eq!(ask(1, "text", number(0), None), Err(Errno::EIO));
    assert_eq!(ask(1, "a", Bytes::from_static(b"x"), None), Err(Errno::EINVAL));
    let values = [("a", number(9)), ("text", number(9)), ("none", number(9))];
    object.call("cmpomap", "cmp_set_vals", &cmp_vals(2, 3, &values, None)).unwrap();
    assert_eq!(object.omap[&BString::from("a")], number(9));
    assert_eq!(object.omap[&BString::from("text")], Bytes::from_static(b"t"));
    assert_eq!(object.omap.len(), 3);
    object.call("cmpomap", "cmp_set_vals", &cmp_vals(2, 3, &values, Some(Bytes::new()))).unwrap();
    assert_eq!(object.omap[&BString::from("none")], number(9));
    let op = cmpomap::CmpRmKeysOp {
        mode: 1,
        comparison: 1,
        values: [("text".into(), Bytes::from_static(b"t")), ("a".into(), number(1))].into(),
    };
    object.call("cmpomap", "cmp_rm_keys", &op).unwrap();
    let keys: Vec<_> = object.omap.keys().map(ToString::to_string).collect();
    assert_eq!(keys, ["a", "empty", "none"]);
    // Bytes are signed.
    let op = cmp_vals(1, 5, &[("none", Bytes::from_static(b"\xff"))], None);
    object.call("cmpomap", "cmp_vals", &op).unwrap();
}

/// RFC 6238's secret and times; what liboath makes of other texts of it.
#[test]
fn otp_takes_a_password_once() {
    let call = |object: &mut TestObject, id: &str, value: &str, token: &str| {
        let op = otp::CheckOp { id: id.into(), value: value.into(), token: token.into() };
        object.call("otp", "otp_check", &op)?;
        let reply = object.call("otp", "otp_get_result", &op).unwrap();
        Ok(otp::GetResultReply::from_bytes_exact(&reply).unwrap().result.result)
    };
    let info = |seed: &str, seed_type| otp::OtpInfo {
        kind: 2,
        id: "a".into(),
        seed: seed.into(),
        seed_type,
        step_size: 30,
        window: 2,
        ..otp::OtpInfo::default()
    };
    let set = |object: &mut TestObject, info: otp::OtpInfo| {
        object.call("otp", "otp_set", &otp::OtpEntries { entries: vec![info] }).map(|_| ())
    };
    let mut object = TestObject { now: UTime::new(59, 0), ..TestObject::default() };
    assert_eq!(call(&mut object, "a", "94287082", "t1"), Err(Errno::ENOENT));
    for (seed, seed_type) in
        [("3", 1), ("zz", 0), ("A1", 2), ("AAA", 2), ("AA=", 2), ("========", 2), ("AA========", 2)]
    {
        assert_eq!(set(&mut object, info(seed, seed_type)), Err(Errno::EINVAL), "{seed}");
    }
    set(&mut object, info("gezdgnbvgy3tqojqGEZDGNBVGY3TQOJQ", 2)).unwrap();
    set(&mut object, info("3132333435363738393031323334353637383930", 1)).unwrap();
    assert_eq!(call(&mut object, "a", "94287082", "t1"), Ok(1));
    assert_eq!(call(&mut object, "a", "94287082", "t2"), Ok(2));
    assert_eq!(call(&mut object, "a", "287082", "t3"), Ok(2));
    for value in ["12345", "123456789"] {
        assert_eq!(call(&mut object, "a", value, "t4"), Ok(2));
    }
    // The sixth within a step is not looked at.
    object.now = UTime::new(61, 0);
    assert_eq!(call(&mut object, "a", "1", "t5"), Ok(0));
    object.now = UTime::new(1_111_111_109, 0);
    assert_eq!(call(&mut object, "a", "07081804", "t6"), Ok(1));
    // Of the next step, then of the one before that.
    object.now = UTime::new(1_111_111_079, 0);
    assert_eq!(call(&mut object, "a", "07081804", "t7"), Ok(2));
    let get = |object: &mut TestObject| {
        let op = otp::GetOp { get_all: true, ..otp::GetOp::default() };
        let reply = object.call("otp", "otp_get", &op).unwrap();
        otp::OtpEntries::from_bytes_exact(&reply).unwrap().entries
    };
    assert_eq!(get(&mut object)[0].seed_bin, &b"12345678901234567890"[..]);
    set(&mut object, otp::OtpInfo { step_size: 0, ..info("00", 1) }).unwrap();
    assert_eq!(call(&mut object, "a", "123456", "t8"), Ok(2));
    object.call("otp", "otp_remove", &otp::RemoveOp { ids: vec!["a".into(), "b".into()] }).unwrap();
    assert_eq!(get(&mut object), []);
}
