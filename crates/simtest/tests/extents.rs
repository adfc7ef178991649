//! Recovery piece by piece: of a partially written object what was written, and what cannot be read is fetched elsewhere.

use std::time::Duration;

use bytes::Bytes;
use client::Client;
use serde_json::{Value, json};
use sim::{Kill, World};
use simtest::{Cluster, Plan};

const OBJECT: usize = 4 << 20;

/// Bytes that these OSDs have recovered since they started.
async fn recovered(client: &Client, osds: &[i32]) -> u64 {
    let mut sum = 0;
    for osd in osds {
        let ask = json!({"prefix": "perf dump", "format": "json"}).to_string();
        let answer = client.osd_command(*osd, ask, Bytes::new()).await.expect("an answer");
        let json: Value = serde_json::from_slice(&answer.outb).expect("json");
        sum += json["osd"]["recovery_bytes"].as_u64().expect("a number");
    }
    sum
}

/// A replica is away while a few blocks of a 4 MiB object change, then the primary is: pushes and
/// pulls carry these blocks, not 4 MiB. Under a new snapshot the clone comes out of what the replica
/// has, too.
#[test]
fn recovery_sends_what_changed() {
    let world = World::new(9);
    let options = "osd_heartbeat_grace = 6\nmgr_stats_period = 1\n".to_owned();
    let plan = Plan { osds: 2, size: 2, min_size: 1, options, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster
            .command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1}))
            .await;
        let io = admin.io_ctx("p").await.unwrap();
        io.write_full("o", Bytes::from(vec![1; OBJECT])).await.unwrap();
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let pool = u64::try_from(io.pool_id()).unwrap();
        let acting = admin.osdmap().pg_to_up_acting(types::PgId::new(pool, 0)).acting;
        for (round, osd) in [acting[1], acting[0], acting[1]].into_iter().enumerate() {
            let other = acting.iter().copied().find(|o| *o != osd).unwrap();
            let osd = u32::try_from(osd).unwrap();
            cluster.kill_osd(osd, Kill::PROCESS);
            if round == 2 {
                let snap = json!({"prefix": "osd pool mksnap", "pool": "p", "snap": "s"});
                cluster.command(&admin, snap).await;
                admin.wait_for_latest_osdmap().await.unwrap();
            }
            let byte = 2 + round as u8;
            for block in [3_u64, 400, 900] {
                io.write("o", block * 4096, Bytes::from(vec![byte; 4096])).await.unwrap();
            }
            let before = recovered(&admin, &[other]).await;
            cluster.start_osd(osd);
            cluster.wait_until_up(&admin).await;
            cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
            let sent = recovered(&admin, &acting).await - before;
            // Three blocks; with the snapshot, also those that the clone had in their place.
            let most = if round == 2 { 2 * 3 * 4096 } else { 3 * 4096 };
            assert!((1..=most).contains(&sent), "round {round}: {sent} bytes for {most} at most");
        }
        let mut expected = vec![1; OBJECT];
        for block in [3, 400, 900] {
            expected[block * 4096..(block + 1) * 4096].fill(4);
        }
        assert_eq!(&io.read("o", 0, 0).await.unwrap()[..], &expected[..]);
        cluster.compare_replicas(&admin).await;
    });
}

/// An object is on its way to its primary, piece by piece, when its source cannot read it any more: another copy is asked
/// for all of it.
#[test]
fn a_source_that_fails_halfway_is_left() {
    let world = World::new(26);
    let options = "osd_heartbeat_grace = 6\nosd_recovery_max_chunk = 65536\n".to_owned();
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        cluster.command(&admin, json!({"prefix": "osd set", "key": "norecover"})).await;
        let primary = u32::try_from(acting[0]).unwrap();
        cluster.kill_osd(primary, Kill::PROCESS);
        let content = Bytes::from(vec![7; 3 * OBJECT]);
        io.write_full("o", content.clone()).await.unwrap();
        cluster.start_osd(primary);
        cluster.wait_until_up(&admin).await;
        cluster.command(&admin, json!({"prefix": "osd unset", "key": "norecover"})).await;
        while recovered(&admin, &acting[..1]).await < 1 << 18 {
            world.sleep(Duration::from_micros(200)).await;
        }
        // The first that is asked.
        let source = acting[1].min(acting[2]);
        let ask = json!({"prefix": "injectdataerr", "pool": "p", "objname": "o"}).to_string();
        admin.osd_command(source, ask, Bytes::new()).await.unwrap();
        assert!(recovered(&admin, &acting[..1]).await < 3 * OBJECT as u64, "it was under way");
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        assert_eq!(io.read("o", 0, 0).await.unwrap(), content);
        cluster.compare_replicas(&admin).await;
    });
}
