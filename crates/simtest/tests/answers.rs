//! The order of answers to one client, in the simulated cluster.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::IoCtx;
use serde_json::json;
use sim::{Control, World};
use simtest::{Cluster, Plan};

/// Runs tasks side by side; says in which order they ended.
async fn at_once<T: Future<Output = u64> + 'static>(
    world: &Control,
    tasks: impl Iterator<Item = T>,
) -> Vec<usize> {
    let ended = Rc::new(RefCell::new(Vec::new()));
    let spawn = |(n, task): (usize, T)| {
        let ended = ended.clone();
        world.spawn(async move {
            task.await;
            ended.borrow_mut().push(n);
        })
    };
    for task in tasks.enumerate().map(spawn).collect::<Vec<_>>() {
        task.await;
    }
    ended.take()
}

/// Found by Ceph's `ceph_test_rados`, which has several writes of an object under way and gives up when
/// they are answered in another order.
///
/// 1. One flush makes two writes durable on the primary, and their tasks are woken. That of the first
///    notes it, and waits for the replicas.
/// 2. The replicas' word of both comes. The first write is whole, and its task is woken again, behind the
///    second's.
/// 3. The second's task notes that the primary has it, which was all that it still waited for, and answered
///    at once.
#[test]
fn writes_of_an_object_are_answered_in_their_order() {
    const WRITES: usize = 6;
    for code in [None, Some((2, 1))] {
        let world = World::new(31);
        let cluster = Cluster::make(&world.control(), Plan { code, ..Plan::default() });
        world.run_until(async move {
            let world = cluster.world().clone();
            let admin = cluster.start().await;
            cluster.create_pool(&admin, 1).await;
            cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
            let io = admin.io_ctx("p").await.unwrap();
            for _ in 0..100 {
                let write = |n: usize| {
                    let (io, data) = (io.clone(), vec![1; 4096 << (2 * (n % 3))]);
                    async move { io.write("o", (n * 65_536) as u64, data.into()).await.unwrap() }
                };
                let answered = at_once(&world, (0..WRITES).map(write)).await;
                assert_eq!(answered, (0..WRITES).collect::<Vec<_>>(), "{code:?}");
            }
        });
    }
}

/// Found by `ceph_test_rados` while OSDs came and went: the first of several appends was done last.
///
/// 1. An interval ends, and what runs is to run again. The first append waits for the store meanwhile.
/// 2. The next interval serves before that: the appends behind it are sent again, or wait here, and run.
/// 3. The store answers, and the first append is run, too.
///
/// Or it waits for the object's recovery, which ends while later ones have their turn: it got behind them.
#[test]
fn what_an_interval_interrupts_is_run_in_its_order() {
    for code in [None, Some((2, 1))] {
        let world = World::new(32);
        let cluster =
            Cluster::make(&world.control(), Plan { code, osds: 4, size: 2, ..Plan::default() });
        world.run_until(async move {
            let world = cluster.world().clone();
            let admin = cluster.start().await;
            cluster.create_pool(&admin, 1).await;
            cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
            let io = admin.io_ctx("p").await.unwrap();
            let stop = Rc::new(Cell::new(false));
            let appends = world.spawn(append_until(world.clone(), io, stop.clone()));
            for n in 0..24 {
                let what = if n % 2 == 0 { "osd out" } else { "osd in" };
                let osd = (n / 2 % 4).to_string();
                cluster.command(&admin, json!({"prefix": what, "ids": [osd]})).await;
                world.sleep(Duration::from_millis(300)).await;
            }
            stop.set(true);
            appends.await;
        });
    }
}

/// Appends several pieces at a time and looks at what comes of it.
async fn append_until(world: Control, io: IoCtx, stop: Rc<Cell<bool>>) {
    const PIECE: usize = 8192;
    while !stop.get() {
        let append = |n: u8| {
            let io = io.clone();
            async move { io.append("o", Bytes::from(vec![n; PIECE])).await.unwrap() }
        };
        at_once(&world, (0..6).map(append)).await;
        let got = io.read("o", 0, 0).await.unwrap();
        let order: Vec<u8> = got.chunks(PIECE).map(|piece| piece[0]).collect();
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
        io.remove("o").await.unwrap();
    }
}
