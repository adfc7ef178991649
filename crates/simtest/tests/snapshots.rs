//! Snapshots while objects are on their way to an OSD.

use std::time::Duration;

use serde_json::json;
use sim::{Kill, World};
use simtest::{Cluster, Load, Plan, Workload};

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
        cluster.command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1})).await;
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
