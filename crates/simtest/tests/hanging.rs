//! A disk that hangs: it neither does what it is told nor fails.

use std::time::Duration;

use bytes::Bytes;
use sim::{DiskFaults, World};
use simtest::{Cluster, Plan};

/// An OSD whose disk hung answered heartbeats as if nothing were the matter: nobody reported it, and all writes of its
/// placement groups waited for ever.
#[test]
fn an_osd_whose_disk_hangs_is_marked_down() {
    let world = World::new(41);
    let options = "osd_heartbeat_grace = 6\n\
                   mon_osd_min_down_reporters = 1\n\
                   osd_op_thread_timeout = 5\n\
                   osd_op_thread_suicide_timeout = 40\n";
    let plan = Plan { options: options.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let io = admin.io_ctx("p").await.unwrap();
        io.write_full("object", Bytes::from_static(b"before")).await.unwrap();
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let replica = admin.osdmap().pg_to_up_acting(pgid).acting[1];
        // It is to give up in the end.
        let disk = cluster.broken_disk(u32::try_from(replica).unwrap());
        disk.set_faults(DiskFaults { hangs: true, ..DiskFaults::default() });
        let write = io.write_full("object", Bytes::from_static(b"after"));
        let limit = Duration::from_secs(60);
        cluster.in_time(&admin, "a write beside a disk that hangs", limit, write).await.unwrap();
        admin.wait_for_latest_osdmap().await.unwrap();
        assert!(admin.osdmap().is_down(replica));
        let host = format!("osd.{replica}");
        assert!(world.is_running(&host));
        world.sleep(Duration::from_secs(60)).await;
        assert!(!world.is_running(&host), "it waits for its disk still");
    });
}
