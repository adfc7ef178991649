//! Object classes on a PG.

use cls::lock::{EXCLUSIVE, LockOp};

use super::*;

async fn run(pg: &TestPg, op: OsdOp, flags: u32) -> Reply {
    let mut request = pg.request("a", vec![op]);
    request.flags |= flags;
    request.info = OpInfo::of(&request.ops, request.flags, &ClassLists::default()).unwrap();
    pg.run(request).await
}

#[test]
fn methods_read_and_write() {
    on_pg(|pg| async move {
        let reply = run(&pg, call("hello", "say_hello", b""), 0).await;
        // The object need not be there for a method that does not look, but reads want one.
        assert_eq!(reply.result, Errno::ENOENT.result());
        assert_eq!(run(&pg, call("hello", "record_hello", b"me"), 0).await.result, 0);
        assert_eq!(pg.get("a").await.unwrap(), &b"Hello, me!"[..]);
        let reply = run(&pg, call("hello", "replay", b""), 0).await;
        assert_eq!(reply.ops[0].outdata.to_contiguous(), &b"Hello, me!"[..]);
        assert_eq!(run(&pg, call("hello", "record_hello", b""), 0).await.result, -17);
        assert_eq!(run(&pg, call("hello", "turn_it_to_11", b""), 0).await.result, 0);
        assert_eq!(pg.get("a").await.unwrap(), &b"HELLO, ME!"[..]);
        // Methods that do more than they say.
        assert_eq!(run(&pg, call("hello", "bad_reader", b""), 0).await.result, -5);
        assert_eq!(run(&pg, call("hello", "bad_writer", b"x"), 0).await.result, -5);
        assert_eq!(pg.get("a").await.unwrap(), &b"HELLO, ME!"[..]);
    });
}

#[test]
fn writes_return_data_only_when_asked() {
    on_pg(|pg| async move {
        let reply = run(&pg, call("hello", "write_return_data", b""), 0).await;
        assert_eq!((reply.result, reply.ops[0].outdata.len()), (0, 0));
        assert_eq!(pg.last_entry().return_code, 0);
        let returnvec = message_flags::RETURNVEC;
        let reply = run(&pg, call("hello", "write_return_data", b""), returnvec).await;
        assert_eq!((reply.result, reply.ops[0].rval), (42, 42));
        assert_eq!(reply.ops[0].outdata.to_contiguous(), &b"you might see this"[..]);
        assert_eq!(pg.last_entry().return_code, 42);
        assert_eq!(pg.last_entry().extras().op_returns[0].outdata, &b"you might see this"[..]);
        let reply = run(&pg, call("hello", "write_too_much_return_data", b""), returnvec).await;
        assert_eq!(reply.result, Errno::EOVERFLOW.result());
        assert_eq!((reply.ops[0].rval, reply.ops[0].outdata.len()), (-75, 0));
        let reply = run(&pg, call("hello", "write_return_data", b"x"), returnvec).await;
        assert_eq!(reply.result, -22);
        assert_eq!(reply.ops[0].outdata.to_contiguous(), &b"too much input data!"[..]);
    });
}

#[test]
fn locks_over_the_interpreter() {
    on_pg(|pg| async move {
        let op = LockOp { name: "l".into(), kind: EXCLUSIVE, ..LockOp::default() };
        let lock = || call("lock", "lock", &op.to_bytes());
        assert_eq!(run(&pg, lock(), 0).await.result, 0);
        assert_eq!(run(&pg, lock(), 0).await.result, Errno::EEXIST.result());
        let other = client(5);
        let reply = pg.run(pg.request_of(&other.client, "a", vec![lock()])).await;
        assert_eq!(reply.result, Errno::EBUSY.result());
        assert_eq!(last_op(&pg), LogOp::ERROR);
        // The attribute is a client's.
        let attr = OsdOp::attr(ops::GETXATTR, b"lock.l", b"").unwrap();
        assert!(pg.op("a", attr).await.is_ok());
        let request = pg.request("a", vec![lock()]);
        let rights = request.info.rights();
        assert!(!rights.write && rights.classes[0].write && rights.classes[0].read);
        assert_eq!(LockKind::of(&request), LockKind::Write);
    });
}

/// A client with `profile rbd pool=images` could not unprotect a snapshot: looking for clones calls
/// a method on `rbd_children` of every pool, for which the profile grants `class-read` and nothing
/// else, and the call's own mode bit was taken for a read of the object.
#[test]
fn a_call_that_reads_needs_no_right_to_read() {
    let info = OpInfo::of(&[call("rbd", "get_children", b"")], 0, &ClassLists::default()).unwrap();
    let rights = info.rights();
    assert!(!rights.read && !rights.write && rights.classes[0].read);
    assert!(info.may_read() && !info.may_write());
    let both = [call("rbd", "get_children", b""), OsdOp::attr(ops::GETXATTR, b"a", b"").unwrap()];
    assert!(OpInfo::of(&both, 0, &ClassLists::default()).unwrap().rights().read);
}

#[test]
fn malformed_calls_are_refused() {
    on_pg(|pg| async move {
        let mut op = call("lock", "lock", b"garbage");
        assert_eq!(run(&pg, op.clone(), 0).await.result, Errno::EINVAL.result());
        op.indata.truncate(5);
        assert_eq!(OpInfo::of(&[op], 0, &ClassLists::default()), Err(Errno::EINVAL));
    });
}

/// As real Ceph does (asked with these vectors): what a vector has written so far shows in
/// existence and size alone.
#[test]
fn methods_see_the_object_as_it_was_before_the_vector() {
    on_pg(|pg| async move {
        let vector = |ops: Vec<OsdOp>| {
            let pg = pg.clone();
            async move { pg.run(pg.request("a", ops)).await }
        };
        let whole = |data: &'static [u8]| {
            OsdOp::extent(ops::WRITEFULL, 0, data.len() as u64, Bytes::from_static(data))
        };
        let louder = || call("hello", "turn_it_to_11", b"");
        assert_eq!(vector(vec![whole(b"hello"), louder()]).await.result, Errno::ENOENT.result());
        pg.put("a", b"aaa").await;
        assert_eq!(vector(vec![whole(b"hello world"), louder()]).await.result, 0);
        assert_eq!(pg.get("a").await.unwrap(), &b"AAA"[..]);

        let add = || {
            let args = (key("k"), key("5")).to_bytes();
            call("numops", "add", &args)
        };
        let value = |pg: Rc<TestPg>| async move {
            let keys = vec![key("k")].to_bytes();
            let op = OsdOp { indata: keys, ..OsdOp::new(ops::OMAPGETVALSBYKEYS) };
            let out = pg.op("a", op).await.unwrap();
            let vals: Vec<(BString, BString)> = Denc::from_bytes_exact(&out).unwrap();
            vals[0].1.to_string()
        };
        vector(vec![add(), add()]).await;
        assert_eq!(value(pg.clone()).await, "5");
        vector(vec![add(), add()]).await;
        assert_eq!(value(pg.clone()).await, "10");

        let op = LockOp { name: "l".into(), kind: EXCLUSIVE, ..LockOp::default() }.to_bytes();
        let twice = vec![call("lock", "lock", &op), call("lock", "lock", &op)];
        assert_eq!(vector(twice).await.result, 0);
        // Deleting what this vector has deleted fails, and so the vector does.
        let twice = vec![OsdOp::new(ops::DELETE), OsdOp::new(ops::DELETE)];
        assert_eq!(vector(twice).await.result, Errno::ENOENT.result());
        assert!(pg.get("a").await.is_ok());
        pg.check_stats().await;
    });
}

/// Keys of the log class tell the op and the step within it, as real Ceph's do.
#[test]
fn log_keys_are_unique() {
    on_pg(|pg| async move {
        let entry = cls::log::Entry { timestamp: UTime::new(5, 7000), ..Default::default() };
        let add = cls::log::AddOp { entries: vec![entry.clone(), entry], monotonic_inc: true };
        let add = || call("log", "add", &add.to_bytes());
        pg.op("a", add()).await.unwrap();
        let hint = OsdOp::new(ops::SETALLOCHINT);
        pg.run(pg.request("a", vec![hint, add()])).await;
        let mut w = denc::Writer::new();
        w.put(&key(""));
        w.u64(10);
        let op = OsdOp { indata: w.into_bytes(), ..OsdOp::new(ops::OMAPGETKEYS) };
        let out = pg.op("a", op).await.unwrap();
        let (keys, _): (Vec<String>, bool) = Denc::from_bytes_exact(&out).unwrap();
        let time = "1_0000000005.000007_";
        assert_eq!(keys, ["0.1", "0.2", "1.2", "1.3"].map(|id| format!("{time}{id}")));
    });
}

/// The lists were constants: with `osd_class_load_list = *`, as Ceph's own suites have it, a class
/// that does not exist still was EPERM (`LibRadosCls.DNE`), and no list could be shortened.
#[test]
fn class_lists_are_the_configurations() {
    let errno = |class: &str, lists: &ClassLists| {
        OpInfo::of(&[call(class, "none", b"")], 0, lists).unwrap_err()
    };
    let all = ClassLists::new("*", "lock");
    assert_eq!(errno("none", &all), Errno::EOPNOTSUPP);
    let few = ClassLists::new(" hello  lock ", "hello");
    assert_eq!(errno("none", &few), Errno::EPERM);
    assert_eq!(errno("version", &few), Errno::EPERM);
    assert_eq!(errno("hello", &few), Errno::EOPNOTSUPP);
    let calls = [call("hello", "say_hello", b""), call("lock", "get_info", b"")];
    let info = OpInfo::of(&calls, 0, &few).unwrap();
    assert!(info.classes[0].allowed && !info.classes[1].allowed);
}

/// A class method took its caller's name from the request's identity, which clients may fill in: one took another's lock away.
#[test]
fn the_caller_of_a_method_is_who_sent_it() {
    on_pg(|pg| async move {
        let forged = |num: i64, op: OsdOp| {
            let mut request = pg.request_of(&client(num).client, "a", vec![op]);
            request.reqid.name = EntityName::client(1);
            request
        };
        let lock = LockOp { kind: EXCLUSIVE, name: "lock".into(), ..LockOp::default() };
        let lock = || call("lock", "lock", &lock.to_bytes());
        assert_eq!(pg.run(forged(1, lock())).await.result, 0);
        assert_eq!(pg.run(forged(2, lock())).await.result, Errno::EBUSY.result());
    });
}
