//! Snapshots: clones, reads of the past, rollback, whiteouts, trimming.

use types::osd::ObjListSnapResponse;
use types::osd::ops::SnapArgs;
use types::{GhObject, SNAPDIR};

use super::*;

/// The snap context of snapshots 1..=n.
fn snapc(n: u64) -> SnapContext {
    SnapContext { seq: n, snaps: (1..=n).rev().collect() }
}

async fn write_at(pg: &TestPg, n: u64, op: OsdOp) -> Reply {
    let mut request = pg.request("a", vec![op]);
    request.snapc = snapc(n);
    pg.run(request).await
}

fn full(data: &'static [u8]) -> OsdOp {
    OsdOp::extent(ops::WRITEFULL, 0, data.len() as u64, Bytes::from_static(data))
}

async fn get_at(pg: &TestPg, snap: u64) -> Result<Bytes, Errno> {
    let mut request = pg.request("a", vec![OsdOp::extent(ops::READ, 0, 0, Bytes::new())]);
    request.oid.snap = snap;
    let reply = pg.run(request).await;
    match Errno::from_result(reply.result) {
        Some(errno) => Err(errno),
        None => Ok(reply.ops[0].outdata.to_contiguous()),
    }
}

async fn list(pg: &TestPg) -> ObjListSnapResponse {
    let mut request = pg.request("a", vec![OsdOp::new(ops::LIST_SNAPS)]);
    request.oid.snap = SNAPDIR;
    let reply = pg.run(request).await;
    assert_eq!(reply.result, 0);
    ObjListSnapResponse::from_bytes_exact(&reply.ops[0].outdata.to_contiguous()).unwrap()
}

fn rollback(snapid: u64) -> OsdOp {
    OsdOp::with(ops::ROLLBACK, SnapArgs { snapid }, Bytes::new())
}

#[test]
fn writes_clone_and_snapshots_are_read() {
    on_pg(|pg| async move {
        write_at(&pg, 0, full(b"zero")).await;
        // Snapshots 1 and 2 are taken before the next write.
        write_at(&pg, 2, OsdOp::extent(ops::WRITE, 1, 1, Bytes::from_static(b"X"))).await;
        let log = pg.log.borrow().clone();
        assert_eq!(
            log.iter().map(|e| e.op).collect::<Vec<_>>(),
            [LogOp::MODIFY, LogOp::CLONE, LogOp::MODIFY]
        );
        assert_eq!(log[1].decoded_snaps().unwrap(), [2, 1]);
        assert_eq!(log[2].prior_version, log[0].version);
        write_at(&pg, 2, full(b"two!")).await;
        write_at(&pg, 3, full(b"three")).await;
        assert_eq!(get_at(&pg, 1).await.unwrap(), &b"zero"[..]);
        assert_eq!(get_at(&pg, 2).await.unwrap(), &b"zero"[..]);
        assert_eq!(get_at(&pg, 3).await.unwrap(), &b"two!"[..]);
        assert_eq!(get_at(&pg, 4).await.unwrap(), &b"three"[..]);
        assert_eq!(pg.get("a").await.unwrap(), &b"three"[..]);
        let clones = list(&pg).await;
        assert_eq!(clones.seq, 3);
        let found: Vec<_> =
            clones.clones.iter().map(|c| (c.cloneid, c.snaps.clone(), c.size)).collect();
        assert_eq!(found, [(2, vec![1, 2], 4), (3, vec![3], 4), (NOSNAP, vec![], 5)]);
        // What has been overwritten whole shares nothing.
        assert!(clones.clones.iter().all(|c| c.overlap.is_empty()));
        pg.check_stats().await;

        let mut request = pg.request("a", vec![full(b"no")]);
        request.oid.snap = 2;
        assert_eq!(pg.run(request).await.result, Errno::EINVAL.result());
        let mut request = pg.request("a", vec![OsdOp::extent(ops::READ, 0, 0, Bytes::new())]);
        request.oid.snap = SNAPDIR;
        assert_eq!(pg.run(request).await.result, Errno::EINVAL.result());
        assert_eq!(pg.op("a", OsdOp::new(ops::LIST_SNAPS)).await, Err(Errno::EINVAL));
        // After a restart everything comes back from the store.
        pg.contexts.clear();
        assert_eq!(get_at(&pg, 1).await.unwrap(), &b"zero"[..]);
        assert_eq!(list(&pg).await, clones);
    });
}

#[test]
fn overlap_follows_writes() {
    on_pg(|pg| async move {
        write_at(&pg, 0, full(b"0123456789")).await;
        write_at(&pg, 1, OsdOp::extent(ops::WRITE, 2, 3, Bytes::from_static(b"abc"))).await;
        let clones = list(&pg).await;
        assert_eq!(clones.clones[0].overlap, [(0, 2), (5, 5)]);
        pg.check_stats().await;
        write_at(&pg, 1, OsdOp::extent(ops::TRUNCATE, 8, 0, Bytes::new())).await;
        assert_eq!(list(&pg).await.clones[0].overlap, [(0, 2), (5, 3)]);
        write_at(&pg, 1, OsdOp::extent(ops::ZERO, 0, 1, Bytes::new())).await;
        assert_eq!(list(&pg).await.clones[0].overlap, [(1, 1), (5, 3)]);
        pg.check_stats().await;
    });
}

#[test]
fn a_new_object_has_no_past() {
    on_pg(|pg| async move {
        write_at(&pg, 5, full(b"five")).await;
        assert_eq!(last_op(&pg), LogOp::MODIFY);
        assert_eq!(list(&pg).await.clones.len(), 1);
        // Snapshot 5 was taken before it was made, as the head's snap set tells.
        assert_eq!(get_at(&pg, 5).await, Err(Errno::ENOENT));
        assert_eq!(get_at(&pg, 6).await.unwrap(), &b"five"[..]);
    });
}

#[test]
fn deletion_leaves_a_whiteout_for_clones() {
    on_pg(|pg| async move {
        write_at(&pg, 0, full(b"zero")).await;
        write_at(&pg, 1, OsdOp::new(ops::DELETE)).await;
        assert_eq!(last_op(&pg), LogOp::MODIFY);
        assert_eq!(pg.get("a").await, Err(Errno::ENOENT));
        assert_eq!(get_at(&pg, 1).await.unwrap(), &b"zero"[..]);
        assert_eq!(get_at(&pg, 2).await, Err(Errno::ENOENT));
        assert_eq!(list(&pg).await.clones.len(), 1);
        assert_eq!(pg.op("a", OsdOp::new(ops::DELETE)).await, Err(Errno::ENOENT));
        assert_eq!(pg.stats.borrow().num_whiteouts, 1);
        pg.check_stats().await;
        // It can be made again, exclusively.
        let mut create = OsdOp::new(ops::CREATE);
        create.flags = types::osd::ops::op_flags::EXCL;
        assert_eq!(write_at(&pg, 1, create).await.result, 0);
        assert_eq!(pg.get("a").await.unwrap(), &b""[..]);
        write_at(&pg, 1, full(b"again")).await;
        assert_eq!(get_at(&pg, 1).await.unwrap(), &b"zero"[..]);
        pg.check_stats().await;
    });
}

#[test]
fn rollback_restores_and_deletes() {
    on_pg(|pg| async move {
        write_at(&pg, 0, full(b"zero")).await;
        write_at(&pg, 0, OsdOp::attr(ops::SETXATTR, b"x", b"old").unwrap()).await;
        write_at(&pg, 1, full(b"longer now")).await;
        write_at(&pg, 1, OsdOp::attr(ops::SETXATTR, b"x", b"new").unwrap()).await;
        assert_eq!(write_at(&pg, 1, rollback(1)).await.result, 0);
        assert_eq!(pg.get("a").await.unwrap(), &b"zero"[..]);
        let attr = OsdOp::attr(ops::GETXATTR, b"x", b"").unwrap();
        assert_eq!(pg.op("a", attr).await.unwrap(), &b"old"[..]);
        pg.check_stats().await;
        // Rolled back and snapshotted at once: the head is cloned first.
        write_at(&pg, 1, full(b"third")).await;
        write_at(&pg, 2, rollback(1)).await;
        assert_eq!(pg.get("a").await.unwrap(), &b"zero"[..]);
        assert_eq!(get_at(&pg, 2).await.unwrap(), &b"third"[..]);
        pg.check_stats().await;
        // A deleted head comes back.
        write_at(&pg, 2, OsdOp::new(ops::DELETE)).await;
        write_at(&pg, 2, rollback(2)).await;
        assert_eq!(pg.get("a").await.unwrap(), &b"third"[..]);
        pg.check_stats().await;
        // To a snapshot in which it did not exist.
        let mut request = pg.request("b", vec![full(b"b")]);
        request.snapc = snapc(3);
        pg.run(request).await;
        let mut request = pg.request("b", vec![rollback(1)]);
        request.snapc = snapc(3);
        assert_eq!(pg.run(request).await.result, 0);
        assert_eq!(pg.get("b").await, Err(Errno::ENOENT));
        // To a snapshot since which nothing has changed.
        assert_eq!(write_at(&pg, 9, rollback(9)).await.result, 0);
        pg.check_stats().await;
    });
}

/// A rollback to the head removed what the vector had made before it.
#[test]
fn a_rollback_to_the_head_changes_nothing() {
    on_pg(|pg| async move {
        let vector = vec![full(b"new"), rollback(NOSNAP)];
        assert_eq!(pg.run(pg.request("a", vector)).await.result, 0);
        assert_eq!(pg.get("a").await.unwrap(), &b"new"[..]);
        let reply = pg.run(pg.request("none", vec![rollback(NOSNAP)])).await;
        assert_eq!((reply.result, pg.get("none").await), (0, Err(Errno::ENOENT)));
        pg.check_stats().await;
    });
}

// Who copies an image with its snapshots asserts before each of them that the object knows no later one. One that had been removed
// knew none, though its clones were there.
#[test]
fn a_removed_object_with_clones_knows_its_newest_snapshot() {
    on_pg(|pg| async move {
        let asserts =
            |seq: u64, expected: u8| call("rbd", "assert_snapc_seq", &(seq, expected).to_bytes());
        // Nothing is there: any snapshot is newer.
        assert_eq!(write_at(&pg, 0, asserts(1, 0)).await.result, 0);
        assert_eq!(write_at(&pg, 0, asserts(1, 1)).await.result, Errno::ERANGE.result());
        write_at(&pg, 0, full(b"zero")).await;
        write_at(&pg, 2, OsdOp::new(ops::DELETE)).await;
        assert_eq!(get_at(&pg, NOSNAP).await, Err(Errno::ENOENT));
        assert_eq!(write_at(&pg, 2, asserts(2, 0)).await.result, Errno::ERANGE.result());
        assert_eq!(write_at(&pg, 2, asserts(2, 1)).await.result, 0);
        assert_eq!(write_at(&pg, 2, asserts(3, 0)).await.result, 0);
    });
}

// An image of format 1 that migrates has another text in its header. Its last byte, a zero in both, was written, too, and told as one
// that differs from the snapshot before.
#[test]
fn a_migration_changes_only_the_text_of_an_old_header() {
    on_pg(|pg| async move {
        let mut header = vec![0; 112];
        let text = b"<<< Rados Block Device Image >>>\n";
        header[..text.len()].copy_from_slice(text);
        write_at(&pg, 0, OsdOp::extent(ops::WRITEFULL, 0, 112, header.into())).await;
        let spec = cls::rbd::snapshot::MigrationSpec { header_type: 1, ..Default::default() };
        let set = call("rbd", "migration_set", &spec.to_bytes());
        assert_eq!(write_at(&pg, 1, set).await.result, 0);
        assert_eq!(list(&pg).await.clones[0].overlap, [(33, 79)]);
        let remove = call("rbd", "migration_remove", b"");
        assert_eq!(write_at(&pg, 2, remove).await.result, 0);
        assert_eq!(list(&pg).await.clones[1].overlap, [(33, 79)]);
    });
}

#[test]
fn pool_snapshots_and_contexts_of_clients() {
    on_pg(|pg| async move {
        pg.put("a", b"zero").await;
        {
            let mut pool = pg.pool.borrow_mut();
            pool.flags |= maps::pool::pool_flags::POOL_SNAPS;
            pool.snap_seq = 1;
            pool.snaps.insert(1, maps::pool::PoolSnapInfo::default());
        }
        // The client's own context does not count.
        write_at(&pg, 7, full(b"one")).await;
        assert_eq!(get_at(&pg, 1).await.unwrap(), &b"zero"[..]);
        assert_eq!(list(&pg).await.seq, 1);
        pg.pool.borrow_mut().flags = 0;
        let mut request = pg.request("a", vec![full(b"x")]);
        request.snapc = SnapContext { seq: 2, snaps: vec![1, 2] };
        assert_eq!(pg.run(request).await.result, Errno::EINVAL.result());
        write_at(&pg, 3, full(b"three")).await;
        let mut request = pg.request("a", vec![full(b"x")]);
        request.snapc = snapc(2);
        request.flags |= message_flags::ORDERSNAP;
        assert_eq!(pg.run(request).await.result, Errno::EOLDSNAPC.result());
        // A context that still names a removed snapshot makes no clone for it.
        pg.removed_snaps.borrow_mut().push(4);
        write_at(&pg, 4, full(b"four")).await;
        assert_eq!(last_op(&pg), LogOp::MODIFY);
        assert!(list(&pg).await.clones.iter().all(|clone| clone.cloneid != 4));
        pg.check_stats().await;
    });
}

async fn trim(pg: &TestPg, snap: u64) -> usize {
    pg.removed_snaps.borrow_mut().push(snap);
    let pgid = pg.pgid().pgid;
    let mut trimmed = 0;
    loop {
        let oids = pg.mapper.objects_to_trim(pgid, 0, snap, 2).await.unwrap();
        let Some(oid) = oids.first() else { return trimmed };
        let guard = pg.contexts.lock(&oid.head(), LockKind::Write).await;
        let pending = snap_trim::trim_object(&pg.as_pg(), guard, oid, snap).await;
        pg.commit(pending.ok().unwrap(), &watch::no_client()).await;
        trimmed += 1;
    }
}

#[test]
fn trimming_removes_clones_and_whiteouts() {
    on_pg(|pg| async move {
        write_at(&pg, 0, full(b"0123456789")).await;
        write_at(&pg, 2, OsdOp::extent(ops::WRITE, 0, 1, Bytes::from_static(b"a"))).await;
        write_at(&pg, 3, OsdOp::extent(ops::WRITE, 5, 1, Bytes::from_static(b"b"))).await;
        write_at(&pg, 3, OsdOp::new(ops::DELETE)).await;
        let clone = oid("a").with_snap(2);
        assert_eq!(pg.mapper.snaps(&clone).await.unwrap().len(), 2);
        assert_eq!(trim(&pg, 1).await, 1);
        assert_eq!(list(&pg).await.clones[0].snaps, [2]);
        assert_eq!(get_at(&pg, 1).await, Err(Errno::ENOENT));
        assert_eq!(get_at(&pg, 2).await.unwrap(), &b"0123456789"[..]);
        pg.check_stats().await;
        // The newer clone goes: the older one shares with the head what both shared.
        assert_eq!(trim(&pg, 3).await, 1);
        assert_eq!(get_at(&pg, 2).await.unwrap(), &b"0123456789"[..]);
        pg.check_stats().await;
        // The last clone takes the whiteout along.
        assert_eq!(trim(&pg, 2).await, 1);
        pg.check_stats().await;
        assert_eq!(pg.stats.borrow().num_objects, 0);
        let left = pg.store.stat(&pg.coll(), &GhObject::from(oid("a"))).await;
        assert_eq!(left, Err(store::StoreError::NoObject));
        assert!(pg.mapper.snaps(&clone).await.unwrap().is_empty());
        assert_eq!(get_at(&pg, 2).await, Err(Errno::ENOENT));
    });
}

#[test]
fn many_random_snapshots_stay_consistent() {
    on_pg(|pg| async move {
        // Each snapshot's content as it must be read, and the head's.
        let mut past: Vec<(u64, Option<Vec<u8>>)> = Vec::new();
        let mut head: Option<Vec<u8>> = None;
        let mut seed = 1_u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        let mut newest = 0;
        for step in 0..400 {
            match random(10) {
                0 => {
                    newest += 1;
                    past.push((newest, head.clone()));
                }
                1 if !past.is_empty() => {
                    let (snap, _) = past.remove(random(past.len() as u64) as usize);
                    trim(&pg, snap).await;
                }
                2 => {
                    write_past(&pg, &past, newest, OsdOp::new(ops::DELETE)).await;
                    head = None;
                }
                3 if !past.is_empty() => {
                    let (snap, content) = past[random(past.len() as u64) as usize].clone();
                    write_past(&pg, &past, newest, rollback(snap)).await;
                    head = content;
                }
                4 => {
                    let size = random(40);
                    let op = OsdOp::extent(ops::TRUNCATE, size, 0, Bytes::new());
                    write_past(&pg, &past, newest, op).await;
                    if let Some(head) = &mut head {
                        head.resize(size as usize, 0);
                    }
                }
                _ => {
                    let (offset, len) = (random(30), 1 + random(10));
                    let data = vec![step as u8; len as usize];
                    let op = OsdOp::extent(ops::WRITE, offset, len, data.clone().into());
                    write_past(&pg, &past, newest, op).await;
                    let content = head.get_or_insert_default();
                    let end = (offset + len) as usize;
                    content.resize(content.len().max(end), 0);
                    content[offset as usize..end].copy_from_slice(&data);
                }
            }
            if random(20) == 0 {
                pg.contexts.clear();
            }
            pg.check_stats().await;
            let read = |content: &Option<Vec<u8>>| match content {
                Some(content) => Ok(Bytes::from(content.clone())),
                None => Err(Errno::ENOENT),
            };
            assert_eq!(pg.get("a").await, read(&head), "step {step}");
            for (snap, content) in &past {
                assert_eq!(get_at(&pg, *snap).await, read(content), "step {step} snap {snap}");
            }
        }
    });
}

async fn write_past(pg: &TestPg, past: &[(u64, Option<Vec<u8>>)], newest: u64, op: OsdOp) {
    let mut request = pg.request("a", vec![op]);
    request.snapc =
        SnapContext { seq: newest, snaps: past.iter().rev().map(|(snap, _)| *snap).collect() };
    pg.run(request).await;
}

/// The mapper's object had a name of its own: a real OSD that followed one of ours on BlueStore did not find it, and ended.
/// OSDs made before that was found keep their rows.
#[test]
fn the_mappers_object_is_cephs() {
    on_pg(|pg| async move {
        // `ceph-objectstore-tool --op meta-list` of a 16.2 OSD has this hash.
        let object = SnapMapper::default_object();
        assert_eq!(object.to_string(), "#-1:c0371625:::snapmapper:0#");
        let mut old = object.clone();
        old.hobj.hash = 0;
        let of_old = SnapMapper::new(pg.store.clone(), CollId::Meta, old);
        let mut t = Transaction::new();
        t.remove(&CollId::Meta, &object);
        of_old.create(&mut t);
        let clone = oid("a").with_snap(2);
        of_old.add(&clone, [2].into(), &mut t);
        pg.store.submit(t).await.unwrap();
        for _ in 0..2 {
            pg.mapper.take_over().await.unwrap();
            assert_eq!(pg.mapper.snaps(&clone).await.unwrap(), [2].into());
        }
    });
}

/// A row of the snap mapper for a snapshot that the clone does not serve stayed when that snapshot was trimmed: the same clone
/// was found and written again without end.
#[test]
fn rows_of_snapshots_that_a_clone_does_not_serve_go_when_trimmed() {
    on_pg(|pg| async move {
        write_at(&pg, 0, full(b"zero")).await;
        write_at(&pg, 1, full(b"one")).await;
        let clone = oid("a").with_snap(1);
        let mut t = Transaction::new();
        pg.mapper.add(&clone, [1, 7].into(), &mut t);
        pg.store().submit(t).await.unwrap();
        pg.removed_snaps.borrow_mut().push(7);
        for left in [1, 0] {
            let found = pg.mapper.objects_to_trim(pg.pgid().pgid, 0, 7, 2).await.unwrap();
            assert_eq!(found.len(), left);
            if left > 0 {
                let guard = pg.contexts.lock(&oid("a"), LockKind::Write).await;
                let trim = snap_trim::trim_object(&pg.as_pg(), guard, &clone, 7).await;
                pg.commit(trim.ok().unwrap(), &watch::no_client()).await;
            }
        }
        assert_eq!(pg.mapper.snaps(&clone).await.unwrap(), [1].into());
        assert_eq!(list(&pg).await.clones[0].snaps, [1]);
        assert_eq!(get_at(&pg, 1).await.unwrap(), &b"zero"[..]);
        pg.check_stats().await;
    });
}
