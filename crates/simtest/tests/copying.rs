//! copy-from where source and copy have different primaries.

use std::time::Duration;

use bytes::Bytes;
use client::{IoCtx, Operation};
use denc::Writer;
use serde_json::json;
use sim::{Kill, World};
use simtest::{Cluster, Plan};
use types::osd::ops::{self, CopyFromArgs, OsdOp};
use types::{NOSNAP, ObjectLocator};

fn copy_of(io: &IoCtx, source: &str) -> Operation {
    let locator = ObjectLocator { pool: io.pool_id(), ..ObjectLocator::default() };
    let mut w = Writer::new();
    w.put(&bstr::BString::from(source));
    w.put(&locator);
    let args = CopyFromArgs { snapid: NOSNAP, ..CopyFromArgs::default() };
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
