//! copy-from where source and copy have different primaries.

use std::time::Duration;

use bytes::Bytes;
use client::{Client, IoCtx, Operation};
use denc::Writer;
use serde_json::json;
use sim::{Kill, World};
use simtest::{Cluster, Plan};
use store::Transaction;
use types::osd::ObjListSnapResponse;
use types::osd::ops::{self, CopyFromArgs, OsdOp};
use types::{HObject, NOSNAP, ObjectLocator, PgId, SNAPDIR, SnapContext};

fn copy_of(io: &IoCtx, source: &str) -> Operation {
    copy_at(io, source, NOSNAP)
}

fn copy_at(io: &IoCtx, source: &str, snapid: u64) -> Operation {
    let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
    let mut w = Writer::new();
    w.put(&bstr::BString::from(source));
    w.put(&locator);
    let args = CopyFromArgs { snapid, ..CopyFromArgs::default() };
    Operation::new().op(OsdOp::with(ops::COPY_FROM, args, w.into_bytes()))
}

/// `rados cp t t2` failed with EPERM, or never ended: the primary of the copy read the source over
/// the session between the OSDs. Where this side had opened that session, the source knew no
/// rights of ours and refused; where the source was at a newer map it told nobody and waited to
/// be asked again.
///
/// Here each of 30 objects is copied to another name, in all directions between three OSDs, while
/// one of them dies and comes back.
#[test]
fn objects_are_copied_between_all_osds_while_one_dies() {
    const OBJECTS: usize = 30;
    let world = World::new(11);
    let options = "osd_heartbeat_grace = 6\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let client = cluster.start().await;
        let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 16});
        cluster.command(&client, pool).await;
        let io = client.io_ctx("p").await.unwrap();
        let data = |n: usize| Bytes::from(format!("content of {n}"));
        for n in 0..OBJECTS {
            io.write_full(format!("o{n}"), data(n)).await.unwrap();
        }
        for n in 0..OBJECTS {
            match n {
                10 => cluster.kill_osd(1, Kill::PROCESS),
                20 => cluster.start_osd(1),
                _ => {}
            }
            let copy = io.operate(format!("c{n}"), copy_of(&io, &format!("o{n}")));
            let limit = Duration::from_secs(60);
            cluster.in_time(&client, &format!("copy {n}"), limit, copy).await.unwrap();
            assert_eq!(io.read(format!("c{n}"), 0, 0).await.unwrap(), data(n));
        }
        cluster.wait_until_up(&client).await;
        cluster.wait_until_clean(&client, Duration::from_secs(120)).await;
        cluster.compare_replicas(&client).await;
    });
}

/// Found by `ceph_test_rados` while OSDs were killed: a copy never ended, and the backfill behind it.
///
/// 1. The source's PG cannot serve. Its primary tells the OSD that makes the copy so, as it tells any client, and drops
///    the read.
/// 2. That OSD did not say that it knew: all that it asked of that PG later, when it could serve again, was
///    taken for something sent before, and dropped.
#[test]
fn copies_go_on_when_their_source_can_be_read_again() {
    const OBJECTS: usize = 24;
    let world = World::new(13);
    let options = "osd_heartbeat_grace = 6\n".to_owned();
    let plan = Plan { osds: 5, options, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let client = cluster.start().await;
        cluster.create_pool(&client, 16).await;
        let min_size =
            json!({"prefix": "osd pool set", "pool": "p", "var": "min_size", "val": "3"});
        cluster.command(&client, min_size).await;
        cluster.wait_until_clean(&client, Duration::from_secs(60)).await;
        let io = client.io_ctx("p").await.unwrap();
        let data = |n: usize| Bytes::from(format!("content of {n}"));
        for n in 0..OBJECTS {
            io.write_full(format!("o{n}"), data(n)).await.unwrap();
        }
        cluster.kill_osd(1, Kill::PROCESS);
        world.sleep(Duration::from_secs(10)).await;
        let copy = |n: usize| {
            let io = io.clone();
            let copy = async move {
                io.operate(format!("c{n}"), copy_of(&io, &format!("o{n}"))).await.unwrap();
            };
            world.spawn(copy)
        };
        let copies: Vec<_> = (0..OBJECTS).map(copy).collect();
        world.sleep(Duration::from_secs(2)).await;
        cluster.start_osd(1);
        for (n, copy) in copies.into_iter().enumerate() {
            cluster.in_time(&client, &format!("copy {n}"), Duration::from_secs(60), copy).await;
            assert_eq!(io.read(format!("c{n}"), 0, 0).await.unwrap(), data(n));
        }
    });
}

/// `rados cp` in an erasure coded pool never ended: its source was asked for as in a replicated pool, of a
/// PG without a shard, and no OSD has one such. Found by Ceph's `ceph_test_rados`.
#[test]
fn objects_of_an_erasure_coded_pool_are_copied() {
    let world = World::new(12);
    let cluster = Cluster::make(&world.control(), Plan { code: Some((2, 1)), ..Plan::default() });
    world.run_until(async move {
        let client = cluster.start().await;
        cluster.create_pool(&client, 8).await;
        let io = client.io_ctx("p").await.unwrap();
        for n in 0..8 {
            let data = Bytes::from(vec![n; 10_000]);
            io.write_full(format!("o{n}"), data.clone()).await.unwrap();
            let copy = io.operate(format!("c{n}"), copy_of(&io, &format!("o{n}")));
            let limit = Duration::from_secs(60);
            cluster.in_time(&client, &format!("copy {n}"), limit, copy).await.unwrap();
            assert_eq!(io.read(format!("c{n}"), 0, 0).await.unwrap(), data);
        }
    });
}

/// Two objects that different OSDs lead, the names of those, the second's first.
async fn led_apart(admin: &Client, io: &IoCtx) -> ([String; 2], [String; 2]) {
    let map = admin.osdmap();
    let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
    let leads = |name: &String| {
        let pgid = map.object_to_pg(name.as_bytes(), &locator).unwrap();
        map.pg_to_up_acting(map.raw_pg_to_pg(pgid).unwrap()).acting_primary
    };
    let mut names = (0..).map(|n| format!("o{n}"));
    let source = names.next().unwrap();
    let target = names.find(|name| leads(name) != leads(&source)).unwrap();
    for name in [&source, &target] {
        io.write_full(name.clone(), Bytes::from_static(b"before")).await.unwrap();
    }
    let osds = [&target, &source].map(|name| format!("osd.{}", leads(name)));
    ([source, target], osds)
}

/// What a copy-from clones was decided before it read its source. Of a snapshot that was removed meanwhile, for which there was nothing
/// to trim yet, it made a clone that nobody ever trimmed.
#[test]
fn a_copy_makes_no_clone_for_a_snapshot_that_has_gone() {
    let world = World::new(29);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 8).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let io = admin.io_ctx("p").await.unwrap();
        let ([source, target], [from, to]) = led_apart(&admin, &io).await;
        let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let later = io.clone().with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
        world.block(&from, &to);
        let copy = world.spawn({
            let (target, op) = (target.clone(), copy_of(&io, &source));
            async move { later.operate(target, op).await.unwrap() }
        });
        world.sleep(Duration::from_millis(200)).await;
        admin.selfmanaged_snap_remove(io.pool_id(), snap).await.unwrap();
        world.sleep(Duration::from_secs(3)).await;
        world.unblock(&from, &to);
        copy.await;
        world.sleep(Duration::from_secs(10)).await;
        let list = Operation::new().op(OsdOp::new(ops::LIST_SNAPS));
        let listed = io.clone().with_snap_read(SNAPDIR).operate(target, list).await.unwrap();
        let listed: ObjListSnapResponse = listed.decode(0).unwrap();
        assert!(listed.clones.iter().all(|clone| clone.cloneid == NOSNAP), "{listed:?}");
    });
}

/// Whether a client is fenced off was asked when its write came, and never again: one that waited for its turn, or for recovery, was
/// done after the client's successor had read what was there, and answered with success.
#[test]
fn what_a_blocklisted_client_left_waiting_is_refused() {
    let world = World::new(30);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 8).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let io = admin.io_ctx("p").await.unwrap();
        let ([source, target], [from, to]) = led_apart(&admin, &io).await;
        let client = cluster.client("client.1").await;
        let fenced = client.io_ctx("p").await.unwrap();
        world.block(&from, &to);
        let copy = world.spawn({
            let (io, target, op) = (io.clone(), target.clone(), copy_of(&io, &source));
            async move { io.operate(target, op).await.unwrap() }
        });
        world.sleep(Duration::from_millis(100)).await;
        // It waits for the object.
        let write = world.spawn({
            let target = target.clone();
            async move { fenced.write_full(target, Bytes::from_static(b"late")).await }
        });
        world.sleep(Duration::from_millis(100)).await;
        let addr = client.addrs().iter().next().unwrap().to_string();
        let fence = json!({"prefix": "osd blocklist", "blocklistop": "add", "addr": addr});
        cluster.command(&admin, fence).await;
        world.sleep(Duration::from_secs(2)).await;
        world.unblock(&from, &to);
        copy.await;
        assert!(write.await.is_err());
        assert_eq!(&io.read(target, 0, 0).await.unwrap()[..], b"before");
    });
}

/// Two objects that were copied to each other at once waited for each other for ever: each copy held its target, of which the other was made.
#[test]
fn objects_that_are_copied_to_each_other_do_not_wait_for_each_other() {
    let world = World::new(6);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let client = cluster.start().await;
        cluster.create_pool(&client, 8).await;
        let io = client.io_ctx("p").await.unwrap();
        for n in 0..16 {
            io.write_full(format!("o{n}"), Bytes::from(vec![n; 100])).await.unwrap();
        }
        let limit = Duration::from_secs(60);
        for n in (0..16).step_by(2) {
            let (one, other) = (format!("o{n}"), format!("o{}", n + 1));
            let there = io.operate(one.clone(), copy_of(&io, &other));
            let back = io.operate(other.clone(), copy_of(&io, &one));
            let both = futures_util::future::join(there, back);
            let (there, back) = cluster.in_time(&client, &one, limit, both).await;
            // A source that has changed since its copy began is refused; that needs two pieces.
            assert!(there.is_ok() && back.is_ok(), "{:?} {:?}", there.err(), back.err());
        }
    });
}

/// An object was copied from its own clone, and the primary's copy of that clone could not be read: the head was thrown out as damaged and
/// fetched from elsewhere, the clone stayed as it was, and the client got EIO.
#[test]
fn a_damaged_clone_is_repaired_and_then_copied_onto_its_head() {
    const LEN: usize = 16_384;
    let world = World::new(34);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let past: Bytes = (0..LEN).map(|n| (n * n / 7) as u8).collect();
        io.write_full("o", past.clone()).await.unwrap();
        let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
        let io = io.with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
        io.write_full("o", Bytes::from(vec![1; LEN])).await.unwrap();
        let limit = Duration::from_secs(60);
        cluster.wait_until_clean(&admin, limit).await;
        let pgid = PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let primary = admin.osdmap().pg_to_up_acting(pgid).acting_primary;
        let last_life = admin.osdmap().up_from(primary);
        let primary = u32::try_from(primary).unwrap();
        // A process that has it in no cache.
        cluster.change_store(primary, Transaction::new()).await;
        let disk = cluster.broken_disk(primary);
        let mut places = (0..1 << 18).map(|block| block * 4096);
        let place = places.find(|at| disk.peek(*at, LEN) == past).expect("it is on the disk");
        disk.flip_bit(place + 5000, 3);
        cluster.start_osd(primary);
        cluster.wait_until_reborn(&admin, primary, last_life).await;
        cluster.wait_until_clean(&admin, limit).await;
        let copy = io.operate("o", copy_at(&io, "o", snap));
        cluster.in_time(&admin, "the copy", limit, copy).await.unwrap();
        assert_eq!(io.read("o", 0, 0).await.unwrap(), past);
        let log = json!({"prefix": "log last", "num": 500, "level": "debug"});
        let log = String::from_utf8(cluster.command(&admin, log).await.to_vec()).unwrap();
        let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
        let is_missing = |snap| {
            let oid = HObject::new("o", &locator, snap);
            log.contains(&format!("missing primary copy of {oid},"))
        };
        assert!(is_missing(snap) && !is_missing(NOSNAP), "{log}");
    });
}
