//! The checks of simulated lives: what they must find.

use std::time::Duration;

use bytes::Bytes;
use client::{Client, IoCtx};
use sim::{DiskFaults, Kill, World};
use simtest::{Cluster, Plan};
use store::{CollId, Transaction};
use types::{GhObject, HObject, NOSNAP, ObjectLocator, PgId};

const LIMIT: Duration = Duration::from_secs(60);

/// A cluster at rest with one object in one placement group.
async fn with_object(cluster: &Cluster) -> (Client, IoCtx) {
    let admin = cluster.start().await;
    cluster.create_pool(&admin, 1).await;
    let io = admin.io_ctx("p").await.unwrap();
    io.write_full("o", Bytes::from_static(b"content")).await.unwrap();
    io.setxattr("o", "value", b"as it was written").await.unwrap();
    cluster.wait_until_clean(&admin, LIMIT).await;
    (admin, io)
}

/// The values of attributes were not compared, but those of the object's info: a copy with another snapset, or with
/// what a client had set long ago, was the same.
#[test]
#[should_panic(expected = "differ")]
fn an_attribute_that_one_copy_has_otherwise_is_found() {
    let world = World::new(1);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let (admin, io) = with_object(&cluster).await;
        let pgid = PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let map = admin.osdmap();
        let follows = map.pg_to_up_acting(pgid).acting[1];
        let last_life = map.up_from(follows);
        let follows = u32::try_from(follows).unwrap();
        let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
        let oid = GhObject::from(HObject::new("o", &locator, NOSNAP));
        let mut change = Transaction::new();
        change.setattr(&CollId::Pg(pgid.spg()), &oid, "_value", Bytes::from_static(b"as it was"));
        cluster.change_store(follows, change).await;
        cluster.start_osd(follows);
        cluster.wait_until_reborn(&admin, follows, last_life).await;
        cluster.wait_until_clean(&admin, LIMIT).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// An OSD whose disk had answered EIO once might fail for whatever reason until the end of its life.
#[test]
#[should_panic(expected = "osd.0 fails")]
fn an_error_of_a_disk_excuses_no_later_failure() {
    let world = World::new(2);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let (admin, io) = with_object(&cluster).await;
        let world = cluster.world().clone();
        let disk = world.disk("osd.0", "/osd/block");
        disk.set_faults(DiskFaults { write: 1.0, ..DiskFaults::default() });
        let write = io.write_full("o", Bytes::from_static(b"more"));
        // It fails, and is excused; the others answer.
        cluster.in_time(&admin, "a write", LIMIT, write).await.unwrap();
        assert!(!world.is_running("osd.0") && disk.errors() > 0);
        disk.set_faults(DiskFaults::default());
        cluster.start_osd(0);
        cluster.wait_until_up(&admin).await;
        cluster.kill_osd(0, Kill::PROCESS);
        for place in 0..256 {
            disk.flip_bit(place * 4096 + 100, 1);
        }
        cluster.start_osd(0);
        world.sleep(LIMIT).await;
    });
}
