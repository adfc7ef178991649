//! osd_recovery_sleep.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sim::{Kill, World};
use simtest::{Cluster, Plan};

/// The option was known and did nothing. With one object at a time and 1 s of rest after each, 20
/// objects take 19 s at least; without, hardly any time.
fn recovery_of_20_objects(sleep: &str) -> Duration {
    let world = World::new(5);
    let options = format!(
        "osd_heartbeat_grace = 6\nosd_recovery_max_active = 1\nosd_recovery_max_active_ssd = 1\n\
         osd_recovery_sleep = {sleep}\n"
    );
    let cluster = Cluster::make(&world.control(), Plan { options, ..Plan::default() });
    world.run_until(async move {
        let client = cluster.start().await;
        let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1});
        cluster.command(&client, pool).await;
        let io = client.io_ctx("p").await.unwrap();
        cluster.kill_osd(2, Kill::PROCESS);
        for n in 0..20 {
            io.write_full(format!("o{n}"), Bytes::from_static(b"while it is down")).await.unwrap();
        }
        cluster.start_osd(2);
        cluster.wait_until_up(&client).await;
        let began = cluster.world().now();
        cluster.wait_until_clean(&client, Duration::from_secs(120)).await;
        cluster.compare_replicas(&client).await;
        cluster.world().now() - began
    })
}

#[test]
fn recovery_rests_between_objects() {
    assert!(recovery_of_20_objects("0") < Duration::from_secs(15));
    assert!(recovery_of_20_objects("1") > Duration::from_secs(18));
}
