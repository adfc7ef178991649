//! The order of ops on one object, and the cache of contexts.

use std::cell::RefCell;

use futures_util::FutureExt;

use super::object_context::IDLE_CONTEXTS_MAX;
use super::*;

#[test]
fn the_queue_is_first_come_first_served() {
    on_pg(|pg| async move {
        let contexts = &pg.contexts;
        let head = oid("a");
        let now = |lock: Lock| lock.try_now().ok();
        let one = now(contexts.lock(&head, LockKind::Read)).unwrap();
        let two = now(contexts.lock(&head, LockKind::Read)).unwrap();
        let writer = contexts.lock(&head, LockKind::Write);
        // A reader behind a waiting writer waits too.
        let late = contexts.lock(&head, LockKind::Read);
        let Err(writer) = writer.try_now() else { panic!("readers hold it") };
        drop(one);
        drop(two);
        let writer = now(writer).unwrap();
        let Err(late) = late.try_now() else { panic!("the writer executes") };
        let second = contexts.lock(&head, LockKind::Write);
        drop(late);
        // A writer that commits lets the next in, but no reader.
        let Err(second) = second.try_now() else { panic!("the writer executes") };
        writer.submitted();
        let second = now(second).unwrap();
        second.submitted();
        let Err(reader) = contexts.lock(&head, LockKind::Read).try_now() else {
            panic!("writes commit")
        };
        drop(writer);
        drop(second);
        drop(now(reader).unwrap());
        assert!(contexts.is_empty());
    });
}

/// Takes a request up to its submission: the guard it keeps until it is durable. The object must
/// be free for it at once.
async fn submit(pg: &TestPg, mut request: Request) -> ObjectGuard {
    request.info = OpInfo::of(&request.ops, request.flags, &ClassLists::default()).unwrap();
    let lock = pg.contexts.lock(&request.oid.head(), LockKind::of(&request));
    let guard = lock.try_now().unwrap_or_else(|_| panic!("held off"));
    let executed = execute(&pg.as_pg(), guard, Rc::new(request)).await;
    let Kind::Write(pending) = executed.kind else { panic!("a write") };
    let mutation = pending.finish(pg.next(), pg.user_version.get());
    pg.version.set(mutation.at_version.version);
    pg.user_version.set(mutation.user_version);
    pg.store.submit(mutation.transaction).await.unwrap();
    mutation.guard
}

/// The first writes of a new image waited one for another: each had its bit in the object map to
/// set, and each call of `object_map_update` was held off until the one before was durable on all
/// replicas, 120 ms for 128 of them. A call reads what those before it submitted, as a write
/// behind a write does; only who has nothing to commit waits before it tells what it saw.
#[test]
fn a_call_does_not_wait_for_the_commit_before() {
    on_pg(|pg| async move {
        let hello = |method| pg.request("a", vec![call("hello", method, b"")]);
        let created = submit(&pg, hello("record_hello")).await;
        let changed = submit(&pg, hello("turn_it_to_11")).await;

        let mut read = pg.request("a", vec![OsdOp::extent(ops::READ, 0, 0, Bytes::new())]);
        read.flags |= message_flags::RWORDERED;
        read.info = OpInfo::of(&read.ops, read.flags, &ClassLists::default()).unwrap();
        let lock = pg.contexts.lock(&read.oid.head(), LockKind::of(&read));
        let guard = lock.try_now().unwrap_or_else(|_| panic!("held off"));
        let executed = execute(&pg.as_pg(), guard, Rc::new(read)).await;
        let seen = executed.reply.ops[0].outdata.to_contiguous();
        assert_eq!(seen, &b"HELLO, WORLD!"[..]);
        let Kind::Read(guard) = executed.kind else { panic!("a read") };

        let late = pg.contexts.lock(&oid("a"), LockKind::Write);
        let settled = guard.settled();
        let mut settled = core::pin::pin!(settled);
        assert!(settled.as_mut().now_or_never().is_none());
        drop(changed);
        assert!(settled.as_mut().now_or_never().is_none());
        drop(created);
        let guard = settled.now_or_never().expect("all is durable");
        assert!(!late.is_granted());
        drop(guard);
        assert!(late.is_granted());
    });
}

#[test]
fn one_objects_ops_keep_their_order() {
    on_pg(|pg| async move {
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for i in 0..20_u8 {
            let data = Bytes::from(vec![i]);
            let op = match i % 3 {
                0 => OsdOp::extent(ops::READ, 0, 0, Bytes::new()),
                _ => OsdOp::extent(ops::APPEND, 0, 1, data),
            };
            let request = pg.request("a", vec![op]);
            let (pg, order) = (pg.clone(), order.clone());
            tasks.push(pg.env().clone().spawn_with_handle(async move {
                pg.run(request).await;
                order.borrow_mut().push(i);
            }));
        }
        for task in tasks {
            task.await;
        }
        let writes: Vec<u8> = (0..20).filter(|i| i % 3 != 0).collect();
        assert_eq!(pg.get("a").await.unwrap(), writes);
        assert_eq!(*order.borrow(), (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn idle_contexts_are_bounded() {
    on_pg(|pg| async move {
        for i in 0..IDLE_CONTEXTS_MAX + 20 {
            pg.put(&format!("o{i}"), b"x").await;
        }
        assert_eq!(pg.contexts.len(), IDLE_CONTEXTS_MAX);
        assert_eq!(pg.get("o0").await.unwrap(), &b"x"[..]);
        assert_eq!(pg.contexts.len(), IDLE_CONTEXTS_MAX);
    });
}

#[test]
fn missing_objects_block() {
    on_pg(|pg| async move {
        pg.put("a", b"x").await;
        let missing = MissingObject { oid: oid("a"), is_delete: false };
        pg.missing.borrow_mut().push(missing);
        let read = OsdOp::extent(ops::READ, 0, 0, Bytes::new());
        assert!(pg.try_run(pg.request("a", vec![read.clone()])).await.is_none());
        // A read of a snapshot was answered ENOENT while the head, which holds the snap set, was
        // still to be recovered.
        let mut of_snap = pg.request("a", vec![read]);
        of_snap.oid.snap = 1;
        assert!(pg.try_run(of_snap).await.is_none());
        pg.missing.borrow_mut().clear();
        assert_eq!(pg.get("a").await.unwrap(), &b"x"[..]);
    });
}
