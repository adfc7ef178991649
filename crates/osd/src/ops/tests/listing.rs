//! Listing a PG.

use types::osd::PgNlsResponse;
use types::osd::ops::PglsArgs;

use super::*;

async fn page(pg: &TestPg, namespace: &str, cursor: &HObject, max: u64) -> (Reply, PgNlsResponse) {
    let args = PglsArgs { count: max, start_epoch: 1 };
    let op = OsdOp::with(ops::PGNLS, args, cursor.to_bytes());
    let mut request = pg.request("", vec![op]);
    request.oid.namespace = namespace.into();
    assert!(request.info.pg_op);
    let reply = execute_pg_op(&pg.as_pg(), &request).await;
    let out = reply.ops[0].outdata.to_contiguous();
    let response = PgNlsResponse::from_bytes_exact(&out).unwrap_or_default();
    (reply, response)
}

async fn list(pg: &TestPg, namespace: &str, max: u64) -> Vec<String> {
    let mut names = Vec::new();
    let mut cursor = HObject::min();
    loop {
        let (reply, response) = page(pg, namespace, &cursor, max).await;
        assert!(response.entries.len() as u64 <= max);
        names.extend(response.entries.iter().map(|e| e.name.to_string()));
        if reply.result == 1 {
            assert_eq!(response.handle, pg.pgid().pgid.end_object(1));
            names.sort_unstable();
            return names;
        }
        assert_eq!(reply.result, 0);
        assert!(response.handle > cursor);
        cursor = response.handle;
    }
}

#[test]
fn pages_namespaces_and_clones() {
    on_pg(|pg| async move {
        let mut expected = Vec::new();
        for i in 0..23 {
            let name = format!("object{i:02}");
            pg.put(&name, b"x").await;
            expected.push(name);
        }
        let mut request = pg.request("hidden", vec![OsdOp::new(ops::CREATE)]);
        request.oid.namespace = "ns".into();
        pg.run(request).await;
        let mut request = pg.request("object00", vec![OsdOp::new(ops::CREATE)]);
        request.snapc = SnapContext { seq: 1, snaps: vec![1] };
        pg.run(request).await;
        for max in [1, 2, 7, 23, 1000] {
            assert_eq!(list(&pg, "", max).await, expected);
        }
        assert_eq!(list(&pg, "ns", 3).await, ["hidden"]);
        assert_eq!(list(&pg, "\x01", 5).await.len(), 24);
        // What is missing here is listed, what is missing as deleted is not.
        let missing = |name: &str, is_delete| MissingObject { oid: oid(name), is_delete };
        *pg.missing.borrow_mut() = vec![missing("object05", true), missing("unseen", false)];
        pg.missing.borrow_mut().sort_by(|a, b| a.oid.cmp(&b.oid));
        expected.retain(|name| name != "object05");
        expected.push("unseen".into());
        assert_eq!(list(&pg, "", 4).await, expected);
    });
}

#[test]
fn cursors_outside_the_pg_are_refused() {
    on_pg(|pg| async move {
        let other = HObject { pool: POOL - 1, ..oid("x") };
        let (reply, _) = page(&pg, "", &other, 5).await;
        assert_eq!(reply.result, Errno::EINVAL.result());
        let (reply, _) = page(&pg, "", &HObject::max(), 5).await;
        assert_eq!(reply.result, 1);
        let op = OsdOp { indata: Bytes::from_static(b"bad"), ..OsdOp::new(ops::PGNLS) };
        let reply = execute_pg_op(&pg.as_pg(), &pg.request("", vec![op])).await;
        assert_eq!(reply.result, Errno::EINVAL.result());
        let op = OsdOp::new(ops::SCRUBLS);
        let reply = execute_pg_op(&pg.as_pg(), &pg.request("", vec![op])).await;
        assert_eq!(reply.result, Errno::EINVAL.result());
    });
}

#[test]
fn filters() {
    on_pg(|pg| async move {
        for (name, value) in [("a", "1"), ("b", "2"), ("c", "1")] {
            pg.put(name, b"x").await;
            let set = OsdOp::attr(ops::SETXATTR, b"color", value.as_bytes()).unwrap();
            pg.op(name, set).await.unwrap();
        }
        pg.put("d", b"x").await;
        for kind in ["plain", "hello.hello", "nonsense", "hello.none"] {
            let mut w = denc::Writer::new();
            for word in ["pg", "filter", kind, "_color", "1"] {
                w.put(&key(word));
            }
            w.put(&HObject::min());
            let args = PglsArgs { count: 100, start_epoch: 1 };
            let op = OsdOp::with(ops::PGNLS_FILTER, args, w.into_bytes());
            let reply = execute_pg_op(&pg.as_pg(), &pg.request("", vec![op])).await;
            match kind {
                "nonsense" | "hello.none" => assert_eq!(reply.result, Errno::EINVAL.result()),
                _ => {
                    let out = reply.ops[0].outdata.to_contiguous();
                    let list = PgNlsResponse::from_bytes_exact(&out).unwrap();
                    let mut names: Vec<_> = list.entries.iter().map(|e| &e.name[..]).collect();
                    names.sort_unstable();
                    assert_eq!(names, [b"a", b"c"]);
                }
            }
        }
    });
}

/// Answers of a vector's listings had no bound: a message of a few hundred KB, with thousands of them, was answered with gigabytes.
#[test]
fn listings_of_a_vector_are_bounded_together() {
    on_pg(|pg| async move {
        pg.put("object", b"x").await;
        let args = PglsArgs { count: 10, start_epoch: 1 };
        let op = OsdOp::with(ops::PGNLS, args, HObject::min().to_bytes());
        let len = execute_pg_op(&pg.as_pg(), &pg.request("", vec![op.clone()])).await.ops[0]
            .outdata
            .len();
        pg.limits.borrow_mut().held = 2 * len as u64;
        let reply = execute_pg_op(&pg.as_pg(), &pg.request("", vec![op; 4])).await;
        assert_eq!(reply.result, Errno::EFBIG.result());
        let lens: Vec<usize> = reply.ops.iter().map(|op| op.outdata.len()).collect();
        assert_eq!(lens, [len, len, 0, 0]);
    });
}
