//! Snapshots while objects are on their way to an OSD.

use std::time::Duration;

use bytes::Bytes;
use client::{Client, IoCtx, Operation};
use denc::Denc;
use osd::ops::SnapMapper;
use osd::ops::object_context::SS_ATTR;
use serde_json::{Value, json};
use sim::{DiskModel, Kill, World};
use simtest::{Cluster, Load, Plan, Workload};
use store::{CollId, Transaction};
use types::osd::ops::{self, OsdOp, message_flags};
use types::osd::{ObjListSnapResponse, SnapSet};
use types::{GhObject, HObject, IntervalSet, NOSNAP, ObjectLocator, PgId, SNAPDIR, SnapContext};

/// Found by the lives of `cluster.rs`: replicas that lacked a clone.
///
/// 1. An OSD comes back after more writes than the log keeps; backfill has listed an object and
///    not pushed it yet.
/// 2. A write under a new snapshot makes a clone of that object. The OSD is sent its log entry
///    alone, as the object will come with the backfill.
/// 3. The clone was not there when the batch was listed: it was never pushed. The same happened
///    where a batch ended between an object's clones and its head.
///
/// Here clients write under ever new snapshots while each OSD in turn falls behind a log of three
/// entries.
#[test]
fn backfill_brings_clones_made_meanwhile() {
    let options = "osd_heartbeat_grace = 4\n\
                   osd_heartbeat_interval = 1\n\
                   osd_min_pg_log_entries = 3\n\
                   osd_max_pg_log_entries = 6\n\
                   osd_pg_log_trim_min = 1\n\
                   osd_backfill_scan_max = 8\n";
    let world = World::new(3);
    let plan = Plan { options: options.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster
            .command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1}))
            .await;
        let load = Load {
            clients: 4,
            objects: 10,
            slot_len: 1000,
            slots_max: 4,
            pause_max: Duration::from_millis(10),
            reads: 0.1,
            snaps: 0.2,
            pool_snaps: false,
            omap: true,
            reshapes: false,
            of_any_copy: 0.0,
            ordered: 0.0,
        };
        let load = Workload::new(&world, load);
        for number in 0..load.load().clients {
            cluster.work(&load, &format!("client.{number}"), world.rng().fork()).await;
        }
        for osd in 0..3 {
            cluster.kill_osd(osd, Kill::PROCESS);
            world.sleep(Duration::from_secs(1)).await;
            cluster.start_osd(osd);
            cluster.wait_until_up(&admin).await;
            cluster.wait_until_clean(&admin, Duration::from_secs(120)).await;
        }
        load.stop();
        while load.running() > 0 {
            world.sleep(Duration::from_millis(10)).await;
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(120)).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// Found by life 80019: what a snapshot of the pool shows changed after it had been read.
///
/// 1. A write is under way; a replica has not got it.
/// 2. The pool gets a snapshot. The write was begun before, so it belongs to what that shows.
/// 3. A client lets any copy answer its read of the snapshot, and asks that replica: it knows the
///    snapshot, has no clone, and showed the object without the write.
#[test]
fn a_snapshot_does_not_change_however_it_is_read() {
    let world = World::new(5);
    let options = "osd_heartbeat_grace = 6\nosd_heartbeat_interval = 1\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster
            .command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1}))
            .await;
        let io = admin.io_ctx("p").await.unwrap();
        // What is written last is left to the primary by itself.
        for name in ["o", "another", "and another"] {
            io.write_full(name, Bytes::from_static(b"before")).await.unwrap();
        }
        let map = cluster
            .command(
                &admin,
                json!({"prefix": "osd map", "pool": "p", "object": "o", "format": "json"}),
            )
            .await;
        let map: Value = serde_json::from_slice(&map).unwrap();
        let acting: Vec<u64> =
            map["acting"].as_array().unwrap().iter().map(|osd| osd.as_u64().unwrap()).collect();
        let host = |at: usize| format!("osd.{}", acting[at]);
        // Replicas have leases, and know the primary's clock.
        world.sleep(Duration::from_secs(12)).await;
        for replica in 1..acting.len() {
            world.block(&host(0), &host(replica));
        }
        let (of_write, env) = (io.clone(), admin.env().clone());
        let write = env.spawn_with_handle(async move {
            of_write.write_full("o", Bytes::from_static(b"after")).await
        });
        world.sleep(Duration::from_millis(100)).await;
        cluster
            .command(&admin, json!({"prefix": "osd pool mksnap", "pool": "p", "snap": "s"}))
            .await;
        world.sleep(Duration::from_millis(500)).await;
        let dump = cluster.command(&admin, json!({"prefix": "osd dump", "format": "json"})).await;
        let dump: Value = serde_json::from_slice(&dump).unwrap();
        let pool =
            dump["pools"].as_array().unwrap().iter().find(|pool| pool["pool_name"] == "p").unwrap();
        let snap = pool["pool_snaps"][0]["snapid"].as_u64().unwrap();
        let of_any = io.clone().with_snap_read(snap).with_flags(message_flags::BALANCE_READS);
        let reads: Vec<_> = (0..30)
            .map(|_| {
                let io = of_any.clone();
                env.spawn_with_handle(async move { io.read("o", 0, 0).await.unwrap() })
            })
            .collect();
        world.sleep(Duration::from_millis(500)).await;
        assert!(!write.is_finished(), "the write is under way while the snapshot is read");
        for replica in 1..acting.len() {
            world.unblock(&host(0), &host(replica));
        }
        write.await.unwrap();
        let shown = io.clone().with_snap_read(snap).read("o", 0, 0).await.unwrap();
        for read in reads {
            assert_eq!(read.await, shown);
        }
        // Written since, it has a clone, which any copy shows.
        for name in ["o", "another", "and another"] {
            io.write_full(name, Bytes::from_static(b"later")).await.unwrap();
        }
        world.sleep(Duration::from_secs(2)).await;
        for _ in 0..30 {
            assert_eq!(of_any.read("o", 0, 0).await.unwrap(), shown);
        }
    });
}

/// The chunks of a push behind the first said neither which snapshots a clone serves nor which version it is: an OSD that
/// was brought a large clone had no rows of it in its snap mapper, and kept it for ever once it led.
#[test]
fn a_clone_that_came_in_several_chunks_is_trimmed() {
    let options = "osd_heartbeat_grace = 4\n\
                   osd_heartbeat_interval = 1\n\
                   osd_recovery_max_chunk = 65536\n\
                   osd_min_pg_log_entries = 3\n\
                   osd_max_pg_log_entries = 6\n\
                   osd_pg_log_trim_min = 1\n";
    let world = World::new(22);
    let plan = Plan { options: options.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let osd = u32::try_from(admin.osdmap().pg_to_up_acting(pgid).acting[1]).unwrap();
        cluster.kill_osd(osd, Kill::PROCESS);
        let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let later = io.clone().with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
        io.write_full("o", Bytes::from(vec![1; 300_000])).await.unwrap();
        later.write_full("o", Bytes::from(vec![2; 300_000])).await.unwrap();
        for n in 0..20 {
            io.write_full(format!("o{n}"), Bytes::from_static(b"more than the log holds"))
                .await
                .unwrap();
        }
        cluster.start_osd(osd);
        cluster.wait_until_up(&admin).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        // What each store holds belongs together: the clone and its rows, too.
        cluster.compare_replicas(&admin).await;
    });
}

/// A write that goes back to a snapshot copies the clone to the head. A backfill's target has the head and not yet the
/// clone where the clone was made while the head waited for its turn: it was sent the whole write, could not do it,
/// and went down.
#[test]
fn objects_go_back_to_clones_that_backfill_has_not_brought() {
    let options = "osd_heartbeat_grace = 4\n\
                   osd_heartbeat_interval = 1\n\
                   osd_recovery_max_active = 1\n\
                   osd_recovery_sleep = 0.3\n\
                   osd_min_pg_log_entries = 3\n\
                   osd_max_pg_log_entries = 6\n\
                   osd_pg_log_trim_min = 1\n";
    let world = World::new(23);
    let plan = Plan { options: options.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let follower = admin.osdmap().pg_to_up_acting(pgid).acting[1];
        let osd = u32::try_from(follower).unwrap();
        cluster.kill_osd(osd, Kill::PROCESS);
        for n in 0..20 {
            io.write_full(format!("o{n}"), Bytes::from_static(b"more than the log holds"))
                .await
                .unwrap();
        }
        cluster.start_osd(osd);
        cluster.wait_until_up(&admin).await;
        let born = admin.osdmap().up_from(follower);
        let mut snaps = Vec::new();
        for round in 0..12_u8 {
            let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
            snaps.insert(0, snap);
            let later =
                io.clone().with_snap_context(SnapContext { seq: snap, snaps: snaps.clone() });
            for n in 0..20 {
                later.write_full(format!("o{n}"), Bytes::from(vec![round; 100])).await.unwrap();
            }
            world.sleep(Duration::from_millis(250)).await;
            for n in 0..20 {
                let back = Operation::new().rollback(snap);
                later.operate(format!("o{n}"), back).await.unwrap();
            }
            world.sleep(Duration::from_millis(250)).await;
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(200)).await;
        assert_eq!(admin.osdmap().up_from(follower), born, "osd.{osd} went down");
        cluster.compare_replicas(&admin).await;
    });
}

/// Found by `ceph_test_rados`: "found snap mapper error" in the cluster log, of rows that were right. The repair put back
/// a row of what had been trimmed.
///
/// 1. A scrub scans a clone that serves two snapshots.
/// 2. One of them is trimmed: the clone says so, and its row goes.
/// 3. The rows are compared with the clone as it was scanned.
#[test]
fn nothing_is_trimmed_while_it_is_scrubbed() {
    const OBJECTS: usize = 40;
    let world = World::new(25);
    let options = "osd_scrub_chunk_max = 5\nosd_scrub_sleep = 1\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let io = admin.io_ctx("p").await.unwrap();
        for n in 0..OBJECTS {
            io.write_full(format!("o{n}"), Bytes::from_static(b"before")).await.unwrap();
        }
        let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let later = io.clone().with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
        for n in 0..OBJECTS {
            later.write_full(format!("o{n}"), Bytes::from_static(b"after")).await.unwrap();
        }
        let until_logged = async |words: &str| {
            let log = json!({"prefix": "log last", "num": 500, "level": "debug"});
            loop {
                let lines = cluster.command(&admin, log.clone()).await;
                if String::from_utf8_lossy(&lines).contains(words) {
                    break;
                }
                world.sleep(Duration::from_millis(100)).await;
            }
        };
        let ask = json!({"prefix": "pg scrub", "pgid": format!("{}.0", io.pool_id())}).to_string();
        admin.mgr_command(ask, Bytes::new()).await.unwrap();
        until_logged("scrub starts").await;
        admin.selfmanaged_snap_remove(io.pool_id(), snap).await.unwrap();
        world.sleep(Duration::from_secs(2)).await;
        let of_all = io.clone().with_snap_read(SNAPDIR);
        let has_clone = async |n: usize| {
            let list = Operation::new().op(OsdOp::new(ops::LIST_SNAPS));
            let listed = of_all.operate(format!("o{n}"), list).await.unwrap();
            let listed: ObjListSnapResponse = listed.decode(0).unwrap();
            listed.clones.iter().any(|clone| clone.cloneid != NOSNAP)
        };
        for n in 0..OBJECTS {
            assert!(has_clone(n).await, "o{n} was trimmed");
        }
        until_logged("scrub ok").await;
        for n in 0..OBJECTS {
            while has_clone(n).await {
                world.sleep(Duration::from_millis(100)).await;
            }
        }
    });
}

/// Found by `ceph_test_rados` while `pg_num` went down: "found snap mapper error" in the cluster log, of rows that were right, and
/// rows put back of what had been trimmed.
///
/// 1. A replica has scanned clones, and compares its rows with them one after another.
/// 2. The interval ends, the scrub with it. The next one trims a snapshot of these clones.
/// 3. The replica went on, with the clones as they had been.
#[test]
fn rows_are_not_compared_with_clones_of_another_interval() {
    scrub_ends_while_a_replica_compares(false);
}

/// The same within an interval: a scrub ends, too, when an object turns out to be damaged (the PG is not clean then).
/// Ceph's replicas stop when the slot they gave is given back.
#[test]
fn rows_are_not_compared_once_the_scrub_has_ended() {
    scrub_ends_while_a_replica_compares(true);
}

/// It ends with the interval, or by damage.
fn scrub_ends_while_a_replica_compares(by_damage: bool) {
    const OBJECTS: usize = 40;
    const LIMIT: Duration = Duration::from_secs(60);
    const REPLICA: u32 = 2;
    let world = World::new(26);
    let options =
        "osd_scrub_chunk_max = 200\nosd_heartbeat_grace = 60\nmgr_stats_period = 1\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let affinity = async |osd: u32, weight: f64| {
            let ask = json!({"prefix": "osd primary-affinity", "id": osd, "weight": weight});
            cluster.command(&admin, ask).await;
        };
        affinity(REPLICA, 0.0).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        let io = admin.io_ctx("p").await.unwrap();
        for n in 0..OBJECTS {
            io.write_full(format!("o{n}"), Bytes::from_static(b"before")).await.unwrap();
        }
        let first = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let second = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let context = SnapContext { seq: second, snaps: vec![second, first] };
        let later = io.clone().with_snap_context(context);
        for n in 0..OBJECTS {
            later.write_full(format!("o{n}"), Bytes::from_static(b"after")).await.unwrap();
        }
        // Rows that are missing take a write each, and so the time in which the interval ends.
        let mut t = Transaction::new();
        t.omap_clear(&CollId::Meta, &SnapMapper::default_object());
        let last_life = admin.osdmap().up_from(REPLICA as i32);
        cluster.change_store(REPLICA, t).await;
        cluster.start_osd(REPLICA);
        cluster.wait_until_reborn(&admin, REPLICA, last_life).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        let slow = DiskModel { write: Duration::from_millis(500), ..DiskModel::default() };
        world.disk(&format!("osd.{REPLICA}"), "/osd/block").set_model(slow);
        let pgid = PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let primary = admin.osdmap().pg_to_up_acting(pgid).acting_primary;
        if by_damage {
            let primary = u32::try_from(primary).unwrap();
            cluster.slow_reads(primary, Duration::from_millis(60));
        }

        let log = async || {
            let ask = json!({"prefix": "log last", "num": 500, "level": "debug"});
            String::from_utf8(cluster.command(&admin, ask).await.to_vec()).unwrap()
        };
        let ask = json!({"prefix": "pg scrub", "pgid": format!("{}.0", io.pool_id())}).to_string();
        admin.mgr_command(ask, Bytes::new()).await.unwrap();
        while !log().await.contains("found snap mapper error") {
            world.sleep(Duration::from_millis(100)).await;
        }
        if by_damage {
            let inject = json!({"prefix": "injectdataerr", "pool": "p", "objname": "o0"});
            admin.osd_command(primary, inject.to_string(), Bytes::new()).await.unwrap();
            // It is not brought before the scrub has ended: who has it is not heard.
            let hosts = [primary, 3 - primary - REPLICA as i32].map(|osd| format!("osd.{osd}"));
            world.partition(&hosts[0], &hosts[1]);
            let of_damaged = io.clone();
            let read = world.spawn(async move { of_damaged.read("o0", 0, 0).await.unwrap() });
            // The primary's own scan goes to its end first.
            let state = async || {
                let ask = r#"{"prefix":"pg dump","dumpcontents":["pgs_brief"]}"#;
                let answer = admin.mgr_command(ask, Bytes::new()).await.unwrap();
                String::from_utf8(answer.outb.to_vec()).unwrap()
            };
            let ended = async {
                loop {
                    let state = state().await;
                    if !state.contains("+clean") && !state.contains("scrubbing") {
                        break;
                    }
                    world.sleep(Duration::from_millis(100)).await;
                }
            };
            cluster.in_time(&admin, "the end of the scrub", LIMIT, ended).await;
            world.unblock(&hosts[0], &hosts[1]);
            world.unblock(&hosts[1], &hosts[0]);
            assert_eq!(&read.await[..], b"after");
        } else {
            affinity(u32::try_from(primary).unwrap(), 0.0).await;
        }
        admin.selfmanaged_snap_remove(io.pool_id(), first).await.unwrap();
        let of_all = io.clone().with_snap_read(SNAPDIR);
        for n in 0..OBJECTS {
            loop {
                let list = Operation::new().op(OsdOp::new(ops::LIST_SNAPS));
                let listed = of_all.operate(format!("o{n}"), list).await.unwrap();
                let listed: ObjListSnapResponse = listed.decode(0).unwrap();
                if listed.clones[0].snaps == [second] {
                    break;
                }
                world.sleep(Duration::from_millis(100)).await;
            }
        }
        cluster.wait_until_clean(&admin, LIMIT).await;
        world.sleep(Duration::from_secs(30)).await;
        let leads = admin.osdmap().pg_to_up_acting(pgid).acting_primary;
        assert_eq!(leads == primary, by_damage);
        let right = format!("snaps in mapper: {{{second}}}");
        let log = log().await;
        let wrong: Vec<&str> = log.lines().filter(|line| line.contains(&right)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

/// Rows of the snap mapper went while their clones stayed, which nobody would have trimmed then.
///
/// 1. A primary writes objects under a new snapshot, and dies before others have got that: clones are made by the next
///    one. When it comes back it removes its own, and looks for what rows they have.
/// 2. Reads take their time, as on BlueStore. It finds a clone gone.
/// 3. The clone is brought, with its rows. Then the rows that were found went.
#[test]
fn rows_of_divergent_clones_go_and_those_of_clones_that_come_stay() {
    const OBJECTS: usize = 40;
    const LIMIT: Duration = Duration::from_secs(120);
    let world = World::new(28);
    let options = "osd_heartbeat_grace = 60\nosd_recovery_max_active = 3\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        let io = admin.io_ctx("p").await.unwrap();
        for n in 0..OBJECTS {
            io.write_full(format!("o{n}"), Bytes::from_static(b"before")).await.unwrap();
        }
        let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let later = io.clone().with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
        let pgid = PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        let first = u32::try_from(acting[0]).unwrap();
        for other in &acting[1..] {
            world.block(&format!("osd.{first}"), &format!("osd.{other}"));
        }
        let writes: Vec<_> = (0..OBJECTS)
            .map(|n| {
                let io = later.clone();
                admin.env().spawn_with_handle(async move {
                    io.write_full(format!("o{n}"), Bytes::from_static(b"after")).await.unwrap();
                })
            })
            .collect();
        world.sleep(Duration::from_secs(1)).await;
        cluster.kill_osd(first, Kill::PROCESS);
        cluster.command(&admin, json!({"prefix": "osd down", "ids": [first.to_string()]})).await;
        for write in writes {
            write.await;
        }
        for other in &acting[1..] {
            world.unblock(&format!("osd.{first}"), &format!("osd.{other}"));
        }
        cluster.slow_reads(first, Duration::from_millis(200));
        let last_life = admin.osdmap().up_from(acting[0]);
        cluster.start_osd(first);
        cluster.wait_until_reborn(&admin, first, last_life).await;
        world.sleep(Duration::from_secs(1)).await;
        let ask = json!({"prefix": "osd primary-affinity", "id": first, "weight": 0.0});
        cluster.command(&admin, ask).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        world.sleep(Duration::from_secs(30)).await;
        // What each store holds belongs together: clones and their rows, too.
        cluster.compare_replicas(&admin).await;
    });
}

/// A pool of one PG whose objects have a clone each, of a snapshot that has just been removed.
async fn trimmed_soon(cluster: &Cluster, admin: &Client, objects: usize) -> IoCtx {
    cluster.create_pool(admin, 1).await;
    cluster.wait_until_clean(admin, Duration::from_secs(60)).await;
    let io = admin.io_ctx("p").await.unwrap();
    let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
    let later = io.clone().with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
    for n in 0..objects {
        io.write_full(format!("o{n}"), Bytes::from_static(b"before")).await.unwrap();
        later.write_full(format!("o{n}"), Bytes::from_static(b"after")).await.unwrap();
    }
    admin.selfmanaged_snap_remove(io.pool_id(), snap).await.unwrap();
    io
}

/// The clones that are left of those.
async fn clones_of(io: &IoCtx, objects: usize) -> usize {
    let (of_all, mut clones) = (io.clone().with_snap_read(SNAPDIR), 0);
    for n in 0..objects {
        let list = Operation::new().op(OsdOp::new(ops::LIST_SNAPS));
        let listed = of_all.operate(format!("o{n}"), list).await.unwrap();
        let listed: ObjListSnapResponse = listed.decode(0).unwrap();
        clones += listed.clones.iter().filter(|clone| clone.cloneid != NOSNAP).count();
    }
    clones
}

/// nosnaptrim was looked at when trimming began, and osd_snap_trim_sleep never: whoever wanted clients to have the disks could not stop it.
#[test]
fn trimming_sleeps_and_is_stopped() {
    const OBJECTS: usize = 40;
    let world = World::new(28);
    let options = "osd_snap_trim_sleep = 2\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        let io = trimmed_soon(&cluster, &admin, OBJECTS).await;
        let clones = async || clones_of(&io, OBJECTS).await;
        world.sleep(Duration::from_secs(10)).await;
        // Two in two seconds, as Ceph trims two at once and sleeps then.
        let left = clones().await;
        assert!((OBJECTS - 12..OBJECTS - 2).contains(&left), "{left}");
        let flag = |verb: &str| json!({"prefix": format!("osd {verb}"), "key": "nosnaptrim"});
        cluster.command(&admin, flag("set")).await;
        world.sleep(Duration::from_secs(3)).await;
        let stopped_at = clones().await;
        world.sleep(Duration::from_secs(20)).await;
        assert_eq!(clones().await, stopped_at);
        cluster.command(&admin, flag("unset")).await;
        world.sleep(Duration::from_secs(60)).await;
        assert_eq!(clones().await, 0);
    });
}

/// Trimming rested between two clones while the interval ended. It noticed when it woke, and ended; but the new interval had not begun
/// another, as that one was there. Removed snapshots took their room until a map happened to come.
#[test]
fn trimming_goes_on_in_the_next_interval() {
    const OBJECTS: usize = 4;
    let world = World::new(31);
    let options = "osd_snap_trim_sleep = 20\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        let io = trimmed_soon(&cluster, &admin, OBJECTS).await;
        let clones = async || clones_of(&io, OBJECTS).await;
        while clones().await == OBJECTS {
            world.sleep(Duration::from_millis(100)).await;
        }
        let min_size =
            json!({"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "1"});
        cluster.command(&admin, min_size).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(15)).await;
        assert!(clones().await > 0, "it was over before the interval ended");
        world.sleep(Duration::from_secs(200)).await;
        assert_eq!(clones().await, 0);
    });
}

/// A clone that its head did not know of was taken for one that was gone: its rows went, the snapshot counted as trimmed, and once the
/// head had been repaired the clone stayed for ever. Nobody was told.
#[test]
fn a_clone_that_its_head_does_not_know_of_is_trimmed_after_the_repair() {
    const LIMIT: Duration = Duration::from_secs(60);
    let world = World::new(33);
    let options = "osd_heartbeat_grace = 60\nmgr_stats_period = 1\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        let flag = |verb: &str| json!({"prefix": format!("osd {verb}"), "key": "nosnaptrim"});
        cluster.command(&admin, flag("set")).await;
        let io = trimmed_soon(&cluster, &admin, 1).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        assert_eq!(clones_of(&io, 1).await, 1);
        let pgid = PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
        let head = GhObject::from(HObject::new("o0", &locator, NOSNAP));
        let list = Operation::new().op(OsdOp::new(ops::LIST_SNAPS));
        let listed = io.clone().with_snap_read(SNAPDIR).operate("o0", list).await.unwrap();
        let listed: ObjListSnapResponse = listed.decode(0).unwrap();
        let snap = listed.clones[0].cloneid;
        let right = SnapSet {
            seq: snap,
            clones: vec![snap],
            clone_overlap: [(snap, IntervalSet::new())].into(),
            clone_size: [(snap, 6)].into(),
            clone_snaps: [(snap, vec![snap])].into(),
            ..SnapSet::default()
        };
        let set_everywhere = async |set: &SnapSet| {
            for osd in cluster.members() {
                let mut t = Transaction::new();
                t.setattr(&CollId::Pg(pgid.spg()), &head, SS_ATTR, set.to_bytes());
                let last_life = admin.osdmap().up_from(i32::try_from(osd).unwrap());
                cluster.change_store(osd, t).await;
                cluster.start_osd(osd);
                cluster.wait_until_reborn(&admin, osd, last_life).await;
            }
            cluster.wait_until_clean(&admin, LIMIT).await;
        };
        let state = async || {
            let ask = json!({"prefix": "pg ls", "format": "json"}).to_string();
            let answer = admin.mgr_command(ask, Bytes::new()).await.unwrap();
            let pgs: Value = serde_json::from_slice(&answer.outb).unwrap();
            pgs["pg_stats"][0]["state"].as_str().unwrap().to_owned()
        };
        set_everywhere(&SnapSet { seq: snap, ..SnapSet::default() }).await;
        cluster.command(&admin, flag("unset")).await;
        world.sleep(Duration::from_secs(20)).await;
        let shown = state().await;
        assert!(shown.contains("snaptrim_error"), "{shown}");
        set_everywhere(&right).await;
        world.sleep(Duration::from_secs(20)).await;
        assert_eq!(clones_of(&io, 1).await, 0);
        let shown = state().await;
        assert!(!shown.contains("snaptrim"), "{shown}");
    });
}

/// What a placement group had trimmed it remembered for ever, a run of numbers for each snapshot that was ever removed: in each copy, and in
/// each report to the manager and the monitors, which grew too long to be sent.
#[test]
fn what_all_have_trimmed_is_forgotten() {
    let world = World::new(32);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 4).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let io = admin.io_ctx("p").await.unwrap();
        let purged = async || {
            let ask = json!({"prefix": "pg ls", "format": "json"}).to_string();
            let answer = admin.mgr_command(ask, Bytes::new()).await.unwrap();
            let pgs: Value = serde_json::from_slice(&answer.outb).unwrap();
            let pgs = pgs["pg_stats"].as_array().unwrap().iter();
            pgs.map(|pg| pg["purged_snaps"].as_array().unwrap().len()).collect::<Vec<_>>()
        };
        let mut most = 0;
        for _ in 0..6 {
            let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
            admin.selfmanaged_snap_remove(io.pool_id(), snap).await.unwrap();
            for _ in 0..10 {
                world.sleep(Duration::from_secs(1)).await;
                most = most.max(purged().await.into_iter().max().unwrap());
            }
        }
        assert!(most > 0, "none was seen to be trimmed");
        world.sleep(Duration::from_secs(30)).await;
        assert_eq!(purged().await, [0; 4]);
    });
}

/// A write of a part of a stripe reads the rest from other shards. Of a snapshot that was removed meanwhile, for which there was nothing to
/// trim yet, it made a clone that nobody ever trimmed.
#[test]
fn a_write_that_reads_makes_no_clone_for_a_snapshot_that_has_gone() {
    let world = World::new(33);
    let cluster = Cluster::make(&world.control(), Plan { code: Some((2, 1)), ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let io = admin.io_ctx("p").await.unwrap();
        io.write_full("o0", Bytes::from(vec![1; 16_384])).await.unwrap();
        let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let later = io.clone().with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
        let pgid = PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        for shard in &acting[1..] {
            world.partition(&format!("osd.{}", acting[0]), &format!("osd.{shard}"));
        }
        let write = world.spawn({
            let later = later.clone();
            async move { later.write("o0", 100, Bytes::from_static(b"part")).await.unwrap() }
        });
        world.sleep(Duration::from_millis(200)).await;
        admin.selfmanaged_snap_remove(io.pool_id(), snap).await.unwrap();
        world.sleep(Duration::from_secs(3)).await;
        world.heal();
        write.await;
        world.sleep(Duration::from_secs(10)).await;
        assert_eq!(clones_of(&io, 1).await, 0);
        assert_eq!(io.read("o0", 98, 8).await.unwrap(), &b"\x01\x01part\x01\x01"[..]);
        // One that is there still has its clone.
        let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let later = io.clone().with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
        later.write("o0", 100, Bytes::from_static(b"more")).await.unwrap();
        assert_eq!(clones_of(&io, 1).await, 1);
    });
}
