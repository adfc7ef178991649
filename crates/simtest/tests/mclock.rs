//! osd_op_queue = mclock_scheduler: recovery beside clients.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sim::{Control, Kill, World};
use simtest::{Cluster, Plan};

const OBJECTS: usize = 24;
const OBJECT: usize = 1 << 20;

async fn write_forever(world: Control, io: client::IoCtx) {
    for n in 0_u64.. {
        io.write(format!("small{n}"), 0, Bytes::from(vec![7; 4096])).await.unwrap();
        world.sleep(Duration::from_millis(5)).await;
    }
}

/// How long recovery of 24 MiB to one of three OSDs takes, beside clients' writes or alone. (Time
/// is the simulation's.)
fn recovery(beside_clients: bool) -> Duration {
    let world = World::new(11);
    // An object of 1 MiB costs about 230 operations: one a second is reserved, four are the limit.
    let options = "osd_op_queue = mclock_scheduler\nosd_mclock_max_capacity_iops_ssd = 1000\n\
                   osd_heartbeat_grace = 6\nmgr_stats_period = 1\n";
    let plan = Plan { options: options.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster
            .command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 4}))
            .await;
        let io = admin.io_ctx("p").await.unwrap();
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.kill_osd(2, Kill::PROCESS);
        for n in 0..OBJECTS {
            io.write_full(format!("big{n}"), Bytes::from(vec![n as u8; OBJECT])).await.unwrap();
        }
        if beside_clients {
            let small = cluster.client("client.1").await.io_ctx("p").await.unwrap();
            world.spawn(write_forever(world.clone(), small));
        }
        cluster.start_osd(2);
        cluster.wait_until_up(&admin).await;
        let began = world.now();
        cluster.wait_until_clean(&admin, Duration::from_secs(120)).await;
        world.now() - began
    })
}

#[test]
fn recovery_leaves_the_disk_to_clients() {
    let (alone, beside) = (recovery(false), recovery(true));
    assert!(alone <= Duration::from_secs(12), "alone at its limit: {alone:?}");
    assert!(beside >= alone * 3 / 2, "alone {alone:?}, beside clients {beside:?}");
    assert!(beside <= Duration::from_secs(40), "its reservation: {beside:?}");
}
