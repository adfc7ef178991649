//! copy-from and copy-get.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use types::osd::ObjectCopyData;
use types::osd::ops::{CopyFromArgs, op_flags};

use super::*;

fn copy_from(source: &str, args: CopyFromArgs) -> OsdOp {
    let locator = ObjectLocator { pool: POOL, ..ObjectLocator::default() };
    let mut w = denc::Writer::new();
    w.put(&key(source));
    w.put(&locator);
    OsdOp::with(ops::COPY_FROM, args, w.into_bytes())
}

fn head() -> CopyFromArgs {
    CopyFromArgs { snapid: NOSNAP, ..CopyFromArgs::default() }
}

#[test]
fn copies_data_attributes_and_omap_in_pieces() {
    on_pg(|pg| async move {
        pg.put("source", b"some longer content").await;
        pg.op("source", OsdOp::attr(ops::SETXATTR, b"x", b"1").unwrap()).await.unwrap();
        let vals: BTreeMap<BString, Bytes> =
            (0..20).map(|i| (key(&format!("k{i:02}")), Bytes::from(vec![i; 10]))).collect();
        let op = OsdOp { indata: vals.to_bytes(), ..OsdOp::new(ops::OMAPSETVALS) };
        pg.op("source", op).await.unwrap();
        let op = OsdOp { indata: Bytes::from_static(b"head"), ..OsdOp::new(ops::OMAPSETHEADER) };
        pg.op("source", op).await.unwrap();
        let version = pg.last_entry().user_version;
        for chunk in [7, 50, 8 << 20] {
            pg.limits.borrow_mut().copy_chunk = chunk;
            let name = format!("copy{chunk}");
            let reply = pg.run(pg.request(&name, vec![copy_from("source", head())])).await;
            assert_eq!((reply.result, reply.versions.on_wire().2), (0, version));
            assert_eq!(pg.get(&name).await.unwrap(), &b"some longer content"[..]);
            let attr = OsdOp::attr(ops::GETXATTR, b"x", b"").unwrap();
            assert_eq!(pg.op(&name, attr).await.unwrap(), &b"1"[..]);
            let header = pg.op(&name, OsdOp::new(ops::OMAPGETHEADER)).await.unwrap();
            assert_eq!(header, &b"head"[..]);
            let mut w = denc::Writer::new();
            w.put(&key(""));
            w.u64(100);
            w.put(&key(""));
            let op = OsdOp { indata: w.into_bytes(), ..OsdOp::new(ops::OMAPGETVALS) };
            let out = pg.op(&name, op).await.unwrap();
            let (found, _): (BTreeMap<BString, Bytes>, bool) =
                Denc::from_bytes_exact(&out).unwrap();
            assert_eq!(found, vals);
        }
        assert_eq!(pg.last_entry().extras().extra_reqids.len(), 4);
        pg.check_stats().await;
    });
}

/// Found by `ceph_test_rados`: a copy without an omap went over an object that had one, and did not say so in the log. An
/// OSD that was down meanwhile kept the omap that it had.
#[test]
fn recovery_copies_the_omap_of_a_copy_also_where_there_is_none() {
    on_pg(|pg| async move {
        pg.put("source", b"no omap").await;
        let vals = BTreeMap::from([(key("k"), Bytes::from_static(b"v"))]);
        let op = OsdOp { indata: vals.to_bytes(), ..OsdOp::new(ops::OMAPSETVALS) };
        pg.op("copy", op).await.unwrap();
        pg.op("copy", copy_from("source", head())).await.unwrap();
        assert!(pg.last_entry().clean_regions.omap_is_dirty());
    });
}

#[test]
fn copying_fails_as_it_should() {
    on_pg(|pg| async move {
        pg.put("a", b"data").await;
        assert_eq!(pg.op("b", copy_from("none", head())).await, Err(Errno::ENOENT));
        assert_eq!(pg.op("a", copy_from("a", head())).await, Err(Errno::EINVAL));
        let old = CopyFromArgs { src_version: 77, ..head() };
        assert_eq!(pg.op("b", copy_from("a", old)).await, Err(Errno::EOVERFLOW));
        assert_eq!(pg.get("b").await, Err(Errno::ENOENT));
        // What was there before is gone after a copy.
        pg.op("b", OsdOp::attr(ops::SETXATTR, b"x", b"1").unwrap()).await.unwrap();
        pg.op("b", copy_from("a", head())).await.unwrap();
        let attr = OsdOp::attr(ops::GETXATTR, b"x", b"").unwrap();
        assert_eq!(pg.op("b", attr).await, Err(Errno::ENODATA));
        pg.check_stats().await;
        // A copy of what is not there still tells who removed it.
        pg.op("a", OsdOp::new(ops::DELETE)).await.unwrap();
        let mut w = denc::Writer::new();
        w.put(&types::osd::ObjectCopyCursor::default());
        w.u64(100);
        let get = OsdOp { indata: w.into_bytes(), ..OsdOp::new(ops::COPY_GET) };
        let reply = pg.run(pg.request("a", vec![get])).await;
        assert_eq!((reply.result, reply.ops[0].rval), (-2, -2));
        let data = ObjectCopyData::from_bytes_exact(&reply.ops[0].outdata.to_contiguous());
        assert!(!data.unwrap().reqids.is_empty());
    });
}

/// All keys of a source were gathered in memory, however many there were, and were one transaction.
#[test]
fn a_copy_of_too_much_is_refused() {
    on_pg(|pg| async move {
        let keys = |n: usize| {
            let set: BTreeMap<BString, Bytes> =
                (0..n).map(|i| (format!("k{i:03}").into(), Bytes::from(vec![1; 96]))).collect();
            OsdOp { indata: set.to_bytes(), ..OsdOp::new(ops::OMAPSETVALS) }
        };
        pg.put("a", b"data").await;
        pg.op("a", keys(100)).await.unwrap();
        pg.limits.borrow_mut().copy_chunk = 1000;
        pg.limits.borrow_mut().held = 10_004;
        pg.op("b", copy_from("a", head())).await.unwrap();
        pg.op("a", keys(101)).await.unwrap();
        assert_eq!(pg.op("c", copy_from("a", head())).await, Err(Errno::EFBIG));
        assert_eq!(pg.get("c").await, Err(Errno::ENOENT));
        // Of a clone of the same object, too.
        pg.limits.borrow_mut().held = 5_000;
        let mut vector = pg.request("a", vec![OsdOp::new(ops::DELETE)]);
        vector.snapc = SnapContext { seq: 4, snaps: vec![4] };
        assert_eq!(pg.run(vector).await.result, 0);
        let clone = CopyFromArgs { snapid: 4, ..head() };
        assert_eq!(pg.op("a", copy_from("a", clone)).await, Err(Errno::EFBIG));
        pg.limits.borrow_mut().held = 11_000;
        pg.op("a", copy_from("a", clone)).await.unwrap();
        pg.check_stats().await;
    });
}

/// Each copy of a vector was held to the bound alone: a vector of thousands had the keys of thousands of copies in memory, and so had an
/// OSD whose objects had long xattrs, which did not count.
#[test]
fn copies_of_a_vector_are_bounded_together() {
    on_pg(|pg| async move {
        pg.put("a", b"data").await;
        let keys: BTreeMap<BString, Bytes> = [("key".into(), Bytes::from(vec![1; 997]))].into();
        let keys = OsdOp { indata: keys.to_bytes(), ..OsdOp::new(ops::OMAPSETVALS) };
        pg.op("a", keys).await.unwrap();
        pg.op("a", OsdOp::attr(ops::SETXATTR, b"name", &[2; 996]).unwrap()).await.unwrap();
        let copies = |n: usize| vec![copy_from("a", head()); n];
        for (held, n, fits) in [(4_007, 2, false), (4_008, 2, true), (8_015, 4, false)] {
            pg.limits.borrow_mut().held = held;
            let result = pg.run(pg.request("b", copies(n))).await.result;
            assert_eq!(result, if fits { 0 } else { Errno::EFBIG.result() }, "{n} in {held}");
        }
        pg.check_stats().await;
    });
}

/// Two objects that were copied to each other at once waited for each other for ever, each copy with its target's lock, and so did all who
/// wanted one of them.
#[test]
fn crossed_copies_end() {
    on_pg(|pg| async move {
        pg.put("a", b"one").await;
        pg.put("b", b"two").await;
        for n in 0..20 {
            let snapid = if n % 2 == 0 { NOSNAP } else { 4 };
            let mut both: Vec<OsdOp> = Vec::new();
            both.extend(["a", "b"].map(|name| copy_from(name, CopyFromArgs { snapid, ..head() })));
            let requests = [pg.request("a", both.split_off(1)), pg.request("b", both)];
            // Others wait behind them.
            let behind = pg.request("a", vec![OsdOp::new(ops::STAT)]);
            let all = requests.into_iter().chain([behind]).map(|request| pg.run(request));
            let all = pg.env().timeout(Duration::from_secs(60), join_all(all)).await;
            // Which source was read before the other copy was there is chance.
            for reply in all.expect("they end") {
                assert!([0, Errno::ERANGE.result()].contains(&reply.result), "{}", reply.result);
            }
            for name in ["a", "b"] {
                assert!([&b"one"[..], b"two"].contains(&&pg.get(name).await.unwrap()[..]));
            }
            if n == 0 {
                for name in ["a", "b"] {
                    let mut clone = pg.request(name, vec![OsdOp::new(ops::CREATE)]);
                    clone.snapc = SnapContext { seq: 4, snaps: vec![4] };
                    assert_eq!(pg.run(clone).await.result, 0);
                }
            }
        }
        pg.check_stats().await;
    });
}

/// A copy without a source was logged as a write that failed, and told the PG's last version. Ceph
/// answers it at once, whatever of the vector came before and may fail.
#[test]
fn a_copy_without_a_source_is_not_logged() {
    on_pg(|pg| async move {
        pg.put("a", b"data").await;
        let logged = pg.log.borrow().len();
        let mut copy = copy_from("none", head());
        copy.flags = op_flags::FAILOK;
        let vector = vec![OsdOp::new(ops::CREATE), copy];
        let reply = pg.run(pg.request("b", vector)).await;
        assert_eq!(reply.result, Errno::ENOENT.result());
        assert_eq!(reply.versions.on_wire(), (EVersion::ZERO, EVersion::ZERO, 0));
        assert_eq!(pg.log.borrow().len(), logged);
        assert_eq!(pg.get("b").await, Err(Errno::ENOENT));
    });
}

/// The source's lock is the one the copy holds: it must not wait for itself.
#[test]
fn a_clone_is_copied_onto_its_own_head() {
    on_pg(|pg| async move {
        pg.put("a", b"past").await;
        let snapc = SnapContext { seq: 1, snaps: vec![1] };
        let data = Bytes::from_static(b"now");
        let mut request = pg.request("a", vec![OsdOp::extent(ops::WRITEFULL, 0, 3, data)]);
        request.snapc = snapc.clone();
        pg.run(request).await;
        let past = CopyFromArgs { snapid: 1, ..CopyFromArgs::default() };
        let mut request = pg.request("a", vec![copy_from("a", past)]);
        request.snapc = snapc;
        assert_eq!(pg.run(request).await.result, 0);
        assert_eq!(pg.get("a").await.unwrap(), &b"past"[..]);
        pg.check_stats().await;
    });
}

/// A snapshot of the pool that was taken while a copy read its source was taken for one from before it: a clone was made of
/// an object that had none, and what it differed in from the copy had not been noted. Whoever recovered the clone later
/// made it of the copy's bytes.
#[test]
fn what_clones_share_with_a_copy_is_the_same_bytes_when_a_snapshot_is_taken_meanwhile() {
    on_pg(|pg| async move {
        pg.put("copy", b"OOOO").await;
        pg.put("source", b"NNNN").await;
        let reading = pg.contexts.lock(&oid("source"), LockKind::Write).await;
        let copy = pg.env().spawn_with_handle({
            let pg = pg.clone();
            async move { pg.op("copy", copy_from("source", head())).await }
        });
        pg.env().sleep(std::time::Duration::from_secs(1)).await;
        {
            let mut pool = pg.pool.borrow_mut();
            pool.flags |= maps::pool::pool_flags::POOL_SNAPS;
            pool.snap_seq = 1;
            pool.snaps.insert(1, maps::pool::PoolSnapInfo::default());
        }
        drop(reading);
        copy.await.unwrap();
        let set = || async {
            let store = pg.store();
            let set = store.getattr(&pg.coll(), &pg.goid(&oid("copy")), b"snapset").await.unwrap();
            types::osd::SnapSet::from_bytes(&set).unwrap()
        };
        for (clone, shared) in set().await.clone_overlap {
            for (offset, len) in shared.iter() {
                let read = |snap| {
                    let goid = pg.goid(&oid("copy").with_snap(snap));
                    let (store, coll) = (pg.store().clone(), pg.coll());
                    async move { store.read(&coll, &goid, offset, len).await.unwrap() }
                };
                let (of_clone, of_head) = (read(clone).await, read(NOSNAP).await);
                assert_eq!(of_clone.to_contiguous(), of_head.to_contiguous());
            }
        }
        // The snapshot was taken before the copy had ended, and has what came of it.
        pg.put("copy", b"later").await;
        assert_eq!(set().await.clones, [1]);
        let mut request = pg.request("copy", vec![OsdOp::extent(ops::READ, 0, 0, Bytes::new())]);
        request.oid.snap = 1;
        let reply = pg.run(request).await;
        assert_eq!(reply.ops[0].outdata.to_contiguous(), &b"NNNN"[..]);
        pg.check_stats().await;
    });
}
