//! The order of answers to one client, in the simulated cluster.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use client::{IoCtx, Operation};
use serde_json::json;
use sim::{Control, DiskModel, Kill, LinkModel, World};
use simtest::{Cluster, Plan};
use types::SnapContext;

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

/// Found by `ceph_test_rados` while OSDs were killed: a rollback was answered behind a write that had been sent later.
///
/// 1. A write that goes back to a snapshot waits until the clone is recovered, the head being everywhere.
/// 2. A write of the head came, looked for others that wait for the head, found none, and was done.
#[test]
fn writes_wait_behind_one_that_waits_for_a_clone() {
    const OBJECTS: usize = 10;
    for code in [None, Some((2, 1))] {
        let world = World::new(33);
        let options = "osd_recovery_max_active = 1\nosd_recovery_sleep = 0.1\n";
        let plan = Plan { code, options: options.to_owned(), ..Plan::default() };
        let cluster = Cluster::make(&world.control(), plan);
        world.run_until(async move {
            let world = cluster.world().clone();
            let admin = cluster.start().await;
            cluster.create_pool(&admin, 1).await;
            cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
            let io = admin.io_ctx("p").await.unwrap();
            let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
            let io = io.with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
            let before = io.clone().with_snap_context(SnapContext::default());
            let append = |io: &IoCtx, n: usize, what: &'static [u8]| {
                let (io, name) = (io.clone(), format!("o{n}"));
                async move { io.append(name, Bytes::from_static(what)).await.unwrap() }
            };
            for n in 0..OBJECTS {
                append(&before, n, b"snapshot").await;
            }
            let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
            let follower = admin.osdmap().pg_to_up_acting(pgid).acting[1];
            cluster.kill_osd(u32::try_from(follower).unwrap(), Kill::PROCESS);
            for n in 0..OBJECTS {
                append(&io, n, b", and head").await;
            }
            cluster.start_osd(u32::try_from(follower).unwrap());
            cluster.wait_until_up(&admin).await;
            for n in (0..OBJECTS).rev() {
                let write = |k: usize| {
                    let (io, append) = (io.clone(), append(&io, n, b", more"));
                    async move {
                        let back = Operation::new().rollback(snap);
                        match k {
                            0 => io.operate(format!("o{n}"), back).await.unwrap().version,
                            _ => append.await,
                        }
                    }
                };
                assert_eq!(at_once(&world, (0..3).map(write)).await, [0, 1, 2], "{code:?}");
                let got = io.read(format!("o{n}"), 0, 0).await.unwrap();
                assert_eq!(got, "snapshot, more, more");
            }
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

/// Found by life 52000053: an OSD that computed for ever.
///
/// 1. A primary comes back without two clones of an object, and reads wait for them.
/// 2. Both are recovered while a read of another clone, which is there, waits for the disk.
/// 3. What waited for the one and what waited for the other was run by a task each, once the object was free and nobody
///    waited to write it: each waited to write it, and gave way to the other.
#[test]
fn what_waits_for_two_clones_of_an_object_is_run() {
    const OBJECTS: usize = 10;
    let world = World::new(35);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let io = admin.io_ctx("p").await.unwrap();
        let mut snaps = Vec::new();
        for _ in 0..3 {
            snaps.insert(0, admin.selfmanaged_snap_create(io.pool_id()).await.unwrap());
        }
        let under = |snaps: &[u64]| {
            let seq = snaps.first().copied().unwrap_or(0);
            io.clone().with_snap_context(SnapContext { seq, snaps: snaps.to_vec() })
        };
        let name = |n: usize| format!("o{n}");
        let data = |k: u8| Bytes::from(vec![k; 4096]);
        for n in 0..OBJECTS {
            under(&[]).write_full(name(n), data(1)).await.unwrap();
            under(&snaps[2..]).write_full(name(n), data(2)).await.unwrap();
        }
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let primary = admin.osdmap().pg_to_up_acting(pgid).acting[0];
        let id = u32::try_from(primary).unwrap();
        cluster.kill_osd(id, Kill::PROCESS);
        for n in 0..OBJECTS {
            under(&snaps[1..]).write_full(name(n), data(3)).await.unwrap();
            under(&snaps).write_full(name(n), data(4)).await.unwrap();
        }
        cluster.start_osd(id);
        let disk = world.disk(&format!("osd.{id}"), "/osd/block");
        disk.set_model(DiskModel { read: Duration::from_secs(1), ..DiskModel::default() });
        cluster.wait_until_up(&admin).await;
        let mut tasks = Vec::new();
        for n in 0..OBJECTS {
            for (snap, k) in [(snaps[2], 1), (snaps[1], 2), (snaps[0], 3)] {
                let (io, name, found) = (io.clone().with_snap_read(snap), name(n), data(k));
                tasks.push(world.spawn(async move {
                    assert_eq!(io.read(name, 0, 0).await.unwrap(), found);
                }));
            }
        }
        for task in tasks {
            task.await;
        }
    });
}

/// Seen by reading the code: a read could bring what a later write of the same client had written.
///
/// 1. A read waits for the disk, a write comes behind it, and nothing is heard of the other copy for so long that the
///    primary's lease runs out.
/// 2. What was read may be stale then: the read gave its place up, to be done anew, and the write was done.
#[test]
fn a_read_whose_lease_runs_out_keeps_its_place() {
    let world = World::new(34);
    let plan = Plan { osds: 2, size: 2, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let io = admin.io_ctx("p").await.unwrap();
        let old = Bytes::from(vec![1; 4096]);
        io.write("o", 0, old.clone()).await.unwrap();
        cluster.command(&admin, json!({"prefix": "osd set", "key": "nodown"})).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        let host = |osd: i32| format!("osd.{osd}");
        let (primary, other) = (host(acting[0]), host(acting[1]));
        // What was written is in the cache: it starts again.
        let id = u32::try_from(acting[0]).unwrap();
        cluster.kill_osd(id, Kill::PROCESS);
        cluster.start_osd(id);
        world.sleep(Duration::from_secs(2)).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;

        let disk = world.disk(&primary, "/osd/block");
        disk.set_model(DiskModel { read: Duration::from_secs(30), ..DiskModel::default() });
        world.partition(&primary, &other);
        let reads = io.clone();
        let read = world.spawn(async move { reads.read("o", 0, 4096).await.unwrap() });
        world.sleep(Duration::from_secs(1)).await;
        let write =
            world.spawn(async move { io.write("o", 0, vec![2; 4096].into()).await.unwrap() });
        world.sleep(Duration::from_secs(40)).await;
        world.heal();
        let (found, _) = (read.await, write.await);
        assert_eq!(found, old);
    });
}

/// An OSD that hears of a pool before the monitor tells it to make the pool's placement groups lets operations for them wait. Each
/// waited for itself: when the group was there, newer writes of an object were done before those that still slept.
#[test]
fn writes_that_wait_for_their_placement_group_stay_in_order() {
    let world = World::new(62);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        let slow = LinkModel { delay_min: Duration::from_millis(230), ..LinkModel::default() };
        world.set_link("mon.a", "osd.1", Some(slow));
        cluster.create_pool(&admin, 8).await;
        let io = admin.io_ctx("p").await.unwrap();
        let objects: Vec<_> = (0..24)
            .map(|n| {
                let (io, world) = (io.clone(), world.clone());
                world.clone().spawn(async move {
                    let writes = (0..150_u64).map(|number| {
                        let (io, world) = (io.clone(), world.clone());
                        async move {
                            world.sleep(Duration::from_millis(3 * number)).await;
                            io.write_full(format!("o{n}"), Bytes::from(number.to_string()))
                                .await
                                .unwrap();
                            number
                        }
                    });
                    assert!(at_once(&world, writes).await.is_sorted(), "o{n}");
                })
            })
            .collect();
        for object in objects {
            object.await;
        }
    });
}
