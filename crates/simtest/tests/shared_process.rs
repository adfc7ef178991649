//! OSDs that share a process, as with `loligo up --osds-per-process`: what they tell each other is handed over
//! within it, and they fall together. `loligo sim --short --osds-per-process 2` lives the same lives.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sim::World;
use simtest::{Cluster, Plan, Settings};

use crate::{keep_their_word, log};

/// No network between them is needed: a write that waits for all three is answered without one.
#[test]
fn writes_are_replicated_within_a_process() {
    log();
    let world = World::new(3);
    let plan = Plan { osds_per_process: 3, spare_osds: 0, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let client = cluster.start().await;
        let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8});
        cluster.command(&client, pool).await;
        cluster.wait_until_clean(&client, Duration::from_secs(60)).await;
        let world = cluster.world().clone();
        for (one, other) in [("osd.0", "osd.1"), ("osd.0", "osd.2"), ("osd.1", "osd.2")] {
            world.partition(one, other);
        }
        let io = client.io_ctx("p").await.unwrap();
        for number in 0..24 {
            let object = format!("object {number}");
            let written = io.write_full(object, Bytes::from_static(b"hello"));
            cluster.in_time(&client, "a write", Duration::from_secs(20), written).await.unwrap();
        }
        // Longer than a partner that is not heard is waited for.
        world.sleep(Duration::from_secs(40)).await;
        client.wait_for_latest_osdmap().await.unwrap();
        assert_eq!(client.osdmap().num_up_osds(), 3);
        cluster.wait_until_clean(&client, Duration::from_secs(60)).await;
        cluster.compare_replicas(&client).await;
    });
}

/// Two OSDs fall at once; where a disk fails, one of them ends and the other goes on.
#[test]
fn lives_of_osds_that_share_processes() {
    let settings = Settings { osds_per_process: Some(2), short: true, ..Settings::default() };
    // Debug builds are some twenty times slower.
    let seeds = if cfg!(debug_assertions) { 1 } else { 32 };
    keep_their_word(1..1 + seeds, &settings);
}
