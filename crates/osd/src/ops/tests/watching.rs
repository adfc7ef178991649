//! Watch and notify.

use std::time::Duration;

use messages::NotifyOpcode;
use types::osd::ObjListWatchResponse;
use types::osd::ops::{NotifyArgs, WatchArgs, watch_op};

use denc::Writer;

use super::*;

fn watch(op: u8, cookie: u64) -> OsdOp {
    OsdOp::with(ops::WATCH, WatchArgs { cookie, op, ..WatchArgs::default() }, Bytes::new())
}

fn notify(cookie: u64, timeout: u32) -> OsdOp {
    let mut w = Writer::new();
    w.u32(1);
    w.u32(timeout);
    w.blob(b"hello");
    OsdOp::with(ops::NOTIFY, NotifyArgs { cookie }, w.into_bytes())
}

fn ack(id: u64, cookie: u64, reply: &[u8]) -> OsdOp {
    let mut w = Writer::new();
    w.u64(id);
    w.u64(cookie);
    w.blob(reply);
    OsdOp { indata: w.into_bytes(), ..OsdOp::new(ops::NOTIFY_ACK) }
}

async fn send(pg: &TestPg, from: &TestClient, op: OsdOp) -> i32 {
    pg.run(pg.request_of(&from.client, "a", vec![op])).await.result
}

async fn watchers(pg: &TestPg) -> Vec<(EntityName, u64, u32)> {
    let out = pg.op("a", OsdOp::new(ops::LIST_WATCHERS)).await.unwrap();
    let list = ObjListWatchResponse::from_bytes_exact(&out).unwrap();
    list.entries.iter().map(|w| (w.name, w.cookie, w.timeout_seconds)).collect()
}

#[test]
fn notify_reaches_watchers_and_collects_replies() {
    on_pg(|pg| async move {
        let (one, two, notifier) = (client(1), client(2), client(3));
        assert_eq!(send(&pg, &one, watch(watch_op::WATCH, 11)).await, Errno::ENOENT.result());
        pg.put("a", b"data").await;
        let before = pg.last_entry().user_version;
        assert_eq!(send(&pg, &one, watch(watch_op::WATCH, 11)).await, 0);
        assert_eq!(send(&pg, &two, watch(watch_op::WATCH, 22)).await, 0);
        // Watches are logged, but are no change that clients see.
        assert_eq!((last_op(&pg), pg.last_entry().user_version), (LogOp::MODIFY, before));
        let expected = [(EntityName::client(1), 11, 30), (EntityName::client(2), 22, 30)];
        assert_eq!(watchers(&pg).await, expected);

        let reply = pg.run(pg.request_of(&notifier.client, "a", vec![notify(33, 5)])).await;
        let id = u64::from_bytes_exact(&reply.ops[0].outdata.to_contiguous()).unwrap();
        let told = one.inbox.borrow()[0].clone();
        assert_eq!((told.opcode, told.cookie, told.notify_id), (NotifyOpcode::Notify, 11, id));
        assert_eq!((&told.payload[..], told.notifier_gid), (&b"hello"[..], 3));
        assert_eq!(two.inbox.borrow()[0].cookie, 22);
        assert!(notifier.inbox.borrow().is_empty());
        assert_eq!(send(&pg, &one, ack(id, 11, b"yes")).await, 0);
        assert_eq!(send(&pg, &two, ack(id, 99, b"not mine")).await, 0);
        assert!(notifier.inbox.borrow().is_empty());
        assert_eq!(send(&pg, &two, ack(id, 22, b"")).await, 0);
        let done = notifier.inbox.borrow()[0].clone();
        assert_eq!((done.opcode, done.cookie, done.return_code), (NotifyOpcode::Complete, 33, 0));
        type Answers = (Vec<((u64, u64), Bytes)>, Vec<(u64, u64)>);
        let (replies, missed): Answers = Denc::from_bytes_exact(&done.replies).unwrap();
        let expected = [((1, 11), Bytes::from_static(b"yes")), ((2, 22), Bytes::new())];
        assert_eq!((replies, missed), (expected.to_vec(), vec![]));
    });
}

#[test]
fn notify_times_out_and_completes_without_watchers() {
    on_pg(|pg| async move {
        let (watcher, notifier) = (client(1), client(3));
        pg.put("a", b"data").await;
        assert_eq!(send(&pg, &notifier, notify(1, 5)).await, 0);
        assert_eq!(notifier.inbox.borrow()[0].opcode, NotifyOpcode::Complete);
        send(&pg, &watcher, watch(watch_op::WATCH, 11)).await;
        send(&pg, &notifier, notify(2, 5)).await;
        pg.env().sleep(Duration::from_secs(4)).await;
        assert_eq!(notifier.inbox.borrow().len(), 1);
        pg.env().sleep(Duration::from_secs(2)).await;
        let done = notifier.inbox.borrow()[1].clone();
        assert_eq!((done.cookie, done.return_code), (2, Errno::ETIMEDOUT.result()));
        type Answers = (Vec<((u64, u64), Bytes)>, Vec<(u64, u64)>);
        let (replies, missed): Answers = Denc::from_bytes_exact(&done.replies).unwrap();
        assert_eq!((replies, missed), (vec![], vec![(1, 11)]));
        // An answer that comes too late is nothing.
        let id = watcher.inbox.borrow()[0].notify_id;
        assert_eq!(send(&pg, &watcher, ack(id, 11, b"")).await, 0);
        assert_eq!(notifier.inbox.borrow().len(), 2);
    });
}

#[test]
fn watches_time_out_unless_pinged_or_reconnected() {
    on_pg(|pg| async move {
        let (one, other) = (client(1), client(1));
        pg.put("a", b"data").await;
        send(&pg, &one, watch(watch_op::WATCH, 11)).await;
        for _ in 0..6 {
            pg.env().sleep(Duration::from_secs(20)).await;
            let reply =
                pg.run(pg.request_of(&one.client, "a", vec![watch(watch_op::PING, 11)])).await;
            assert_eq!((reply.result, reply.versions.on_wire().1), (0, EVersion::ZERO));
        }
        assert_eq!(watchers(&pg).await.len(), 1);
        one.client.reset();
        assert_eq!(send(&pg, &one, watch(watch_op::PING, 11)).await, Errno::ETIMEDOUT.result());
        pg.env().sleep(Duration::from_secs(20)).await;
        assert_eq!(send(&pg, &other, watch(watch_op::RECONNECT, 11)).await, 0);
        pg.env().sleep(Duration::from_secs(20)).await;
        assert_eq!(send(&pg, &other, watch(watch_op::PING, 11)).await, 0);
        // Silent for its timeout: gone, and told so.
        pg.env().sleep(Duration::from_secs(31)).await;
        assert!(watchers(&pg).await.is_empty());
        assert_eq!(other.inbox.borrow()[0].opcode, NotifyOpcode::Disconnect);
        assert_eq!(last_op(&pg), LogOp::MODIFY);
        assert_eq!(send(&pg, &other, watch(watch_op::PING, 11)).await, Errno::ENOTCONN.result());
        let reconnect = watch(watch_op::RECONNECT, 11);
        assert_eq!(send(&pg, &other, reconnect).await, Errno::ENOTCONN.result());
    });
}

#[test]
fn watches_survive_a_change_of_primary() {
    on_pg(|pg| async move {
        let watcher = client(1);
        pg.put("a", b"data").await;
        send(&pg, &watcher, watch(watch_op::WATCH, 11)).await;
        pg.contexts.clear();
        assert_eq!(watchers(&pg).await.len(), 1);
        assert_eq!(send(&pg, &watcher, watch(watch_op::PING, 11)).await, Errno::ETIMEDOUT.result());
        assert_eq!(send(&pg, &watcher, watch(watch_op::RECONNECT, 11)).await, 0);
        assert_eq!(send(&pg, &watcher, watch(watch_op::PING, 11)).await, 0);
        pg.contexts.clear();
        // The new primary has only to load the object to know that it must wait.
        assert_eq!(watchers(&pg).await.len(), 1);
        pg.env().sleep(Duration::from_secs(31)).await;
        assert!(watchers(&pg).await.is_empty());
    });
}

/// A primary whose own copy could not be read fetched another one, and forgot whoever watched the
/// object: the next ping was refused, and librados tells its user that the watch is lost.
#[test]
fn watches_survive_recovery_of_their_object() {
    on_pg(|pg| async move {
        let (one, two) = (client(1), client(2));
        pg.put("a", b"data").await;
        send(&pg, &one, watch(watch_op::WATCH, 11)).await;
        pg.contexts.forget(&oid("a"));
        assert_eq!(send(&pg, &one, watch(watch_op::PING, 11)).await, 0);
        // A watch that the recovered copy does not have is none.
        let mut t = Transaction::new();
        let without = pg.store().getattr(&pg.coll(), &pg.goid(&oid("a")), b"_").await.unwrap();
        send(&pg, &two, watch(watch_op::WATCH, 22)).await;
        t.setattr(&pg.coll(), &pg.goid(&oid("a")), "_", without);
        pg.store().submit(t).await.unwrap();
        pg.contexts.forget(&oid("a"));
        send(&pg, &client(3), notify(33, 5)).await;
        assert_eq!(one.inbox.borrow()[0].opcode, NotifyOpcode::Notify);
        assert!(two.inbox.borrow().is_empty());
        let ping = watch(watch_op::PING, 22);
        assert_eq!(send(&pg, &two, ping).await, Errno::ENOTCONN.result());
    });
}

/// A watch that timed out while its object was to be fetched from elsewhere was taken out of the
/// copy that could not be read, or, if the object info was what could not be read, never ended.
#[test]
fn watches_of_missing_objects_end_when_these_are_recovered() {
    on_pg(|pg| async move {
        let watcher = client(1);
        pg.put("a", b"data").await;
        send(&pg, &watcher, watch(watch_op::WATCH, 11)).await;
        let before = pg.log.borrow().len();
        watcher.client.reset();
        pg.missing.borrow_mut().push(MissingObject { oid: oid("a"), is_delete: false });
        pg.env().sleep(Duration::from_secs(31)).await;
        assert_eq!(pg.log.borrow().len(), before);
        pg.missing.borrow_mut().clear();
        pg.contexts.forget(&oid("a"));
        pg.contexts.end_overdue_watches(&oid("a"));
        pg.env().sleep(Duration::from_secs(1)).await;
        assert_eq!(pg.log.borrow().len(), before + 1);
        assert!(watchers(&pg).await.is_empty());
    });
}

#[test]
fn unwatch_and_deletion_end_watches() {
    on_pg(|pg| async move {
        let (one, two, notifier) = (client(1), client(2), client(3));
        pg.put("a", b"data").await;
        send(&pg, &one, watch(watch_op::WATCH, 11)).await;
        send(&pg, &two, watch(watch_op::WATCH, 22)).await;
        send(&pg, &notifier, notify(1, 30)).await;
        assert_eq!(send(&pg, &one, watch(watch_op::UNWATCH, 11)).await, 0);
        assert_eq!(one.inbox.borrow().len(), 1);
        assert_eq!(watchers(&pg).await.len(), 1);
        // The notify waits for the other still.
        assert!(notifier.inbox.borrow().is_empty());
        pg.op("a", OsdOp::new(ops::DELETE)).await.unwrap();
        assert_eq!(two.inbox.borrow()[1].opcode, NotifyOpcode::Disconnect);
        assert_eq!(notifier.inbox.borrow()[0].opcode, NotifyOpcode::Complete);
    });
}

#[test]
fn blocklisted_watchers_are_evicted() {
    on_pg(|pg| async move {
        let (watcher, notifier) = (client(1), client(3));
        pg.put("a", b"data").await;
        send(&pg, &watcher, watch(watch_op::WATCH, 11)).await;
        pg.contexts.evict_watches(|_| false);
        assert_eq!(watchers(&pg).await.len(), 1);
        send(&pg, &notifier, notify(1, 30)).await;
        pg.contexts.evict_watches(|addr| *addr == watcher.client.addr());
        pg.env().sleep(Duration::from_secs(1)).await;
        assert!(watchers(&pg).await.is_empty());
        assert_eq!(notifier.inbox.borrow()[0].return_code, 0);
    });
}

/// A client asked for a watch, lost its connection before the write was done, and asked again on the next one: that changed nothing and was
/// answered before the first was done, which then had the watch told on the connection that was gone. Pings went on, and every notify was lost.
#[test]
fn a_watch_is_not_told_on_a_connection_that_is_gone() {
    on_pg(|pg| async move {
        let (before, now, notifier) = (client(1), client(1), client(3));
        pg.put("a", b"data").await;
        assert_eq!(send(&pg, &now, watch(watch_op::WATCH, 11)).await, 0);
        before.client.end();
        assert_eq!(send(&pg, &before, watch(watch_op::WATCH, 11)).await, 0);
        send(&pg, &notifier, notify(1, 30)).await;
        assert_eq!(now.inbox.borrow().len(), 1);
        assert!(before.inbox.borrow().is_empty());
        // Where nobody came again it has its time, and ends.
        assert_eq!(send(&pg, &before, watch(watch_op::WATCH, 22)).await, 0);
        assert_eq!(send(&pg, &now, watch(watch_op::PING, 22)).await, Errno::ETIMEDOUT.result());
        pg.env().sleep(Duration::from_secs(20)).await;
        assert_eq!(send(&pg, &now, watch(watch_op::PING, 11)).await, 0);
        pg.env().sleep(Duration::from_secs(11)).await;
        assert_eq!(watchers(&pg).await, [(EntityName::client(1), 11, 30)]);
    });
}

/// A map shut a client out, and then its object was loaded by a new primary: the watch was there for its whole time, and notifies waited for it.
#[test]
fn watches_of_blocklisted_clients_end_when_they_are_loaded() {
    on_pg(|pg| async move {
        let (shut_out, other) = (client(1), client(2));
        pg.put("a", b"data").await;
        for (client, cookie) in [(&shut_out, 11), (&other, 22)] {
            send(&pg, client, watch(watch_op::WATCH, cookie)).await;
        }
        pg.contexts.clear();
        watchers(&pg).await;
        pg.env().sleep(Duration::from_secs(1)).await;
        assert_eq!(watchers(&pg).await.len(), 2);
        pg.contexts.clear();
        pg.blocklist.borrow_mut().push(shut_out.client.addr());
        watchers(&pg).await;
        pg.env().sleep(Duration::from_secs(1)).await;
        assert_eq!(watchers(&pg).await, []);
    });
}

/// The notifier chooses the time to wait for answers: a task waited it out, an hour say, and held the watches, though all had answered
/// at once. Whoever notified often filled the OSD's memory.
#[test]
fn nothing_is_left_of_notifies_that_have_ended() {
    on_pg(|pg| async move {
        let (watcher, notifier) = (client(1), client(3));
        pg.put("a", b"data").await;
        send(&pg, &watcher, watch(watch_op::WATCH, 11)).await;
        let watches = {
            let guard = pg.contexts.lock(&oid("a"), LockKind::Read).await;
            guard.slot.watches.borrow().values().cloned().collect::<Vec<_>>()
        };
        let held = || (Rc::strong_count(&watches[0]), Rc::weak_count(&watches[0]));
        let before = held();
        for n in 0..8 {
            send(&pg, &notifier, notify(n, 3600)).await;
            let id = watcher.inbox.borrow().last().unwrap().notify_id;
            send(&pg, &watcher, ack(id, 11, b"")).await;
        }
        assert_eq!(notifier.inbox.borrow().len(), 8);
        pg.env().sleep(Duration::from_secs(1)).await;
        assert_eq!(held(), before);
    });
}

/// Who may only write watched, and heard what others notified of. As Ceph, each watch is a read, pings too.
#[test]
fn who_watches_needs_the_right_to_read() {
    for op in [watch_op::WATCH, watch_op::PING, watch_op::UNWATCH] {
        let info = OpInfo::of(&[watch(op, 1)], 0, &ClassLists::default()).unwrap();
        assert!(info.rights().read, "{op}");
        assert_eq!(info.rights().write, op != watch_op::PING);
    }
}

/// A whiteout can be watched. When its last clone was trimmed it went, and the watch stayed, even when it had timed out, as the object knew
/// nothing of it: once there was an object of that name again, each notify waited for who could not answer.
#[test]
fn watches_end_with_the_whiteout_they_are_of() {
    for is_trimmed in [true, false] {
        on_pg(move |pg| async move {
            let (watcher, notifier) = (client(1), client(3));
            let write = async |op: OsdOp| {
                let mut request = pg.request("a", vec![op]);
                request.snapc = SnapContext { seq: 1, snaps: vec![1] };
                assert_eq!(pg.run(request).await.result, 0);
            };
            pg.put("a", b"data").await;
            write(OsdOp::new(ops::DELETE)).await;
            assert_eq!(send(&pg, &watcher, watch(watch_op::WATCH, 11)).await, 0);
            if is_trimmed {
                pg.removed_snaps.borrow_mut().push(1);
                let guard = pg.contexts.lock(&oid("a"), LockKind::Write).await;
                let clone = oid("a").with_snap(1);
                let trim = snap_trim::trim_object(&pg.as_pg(), guard, &clone, 1).await;
                pg.commit(trim.ok().unwrap(), &watch::no_client()).await;
            } else {
                // The object forgets it in another way, say with a version that is gone.
                let guard = pg.contexts.lock(&oid("a"), LockKind::Write).await;
                let head = guard.head_context(&pg.as_pg()).await.unwrap();
                head.obs.borrow_mut().oi.watchers.clear();
                drop(guard);
                pg.env().sleep(Duration::from_secs(40)).await;
            }
            assert_eq!(watcher.inbox.borrow()[0].opcode, NotifyOpcode::Disconnect);
            pg.put("a", b"data").await;
            send(&pg, &notifier, notify(1, 30)).await;
            assert_eq!(notifier.inbox.borrow()[0].opcode, NotifyOpcode::Complete);
        });
    }
}
