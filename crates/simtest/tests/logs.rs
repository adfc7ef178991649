//! How long a PG's log gets.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use sim::{Kill, World};
use simtest::{Cluster, Plan};

/// Logs were trimmed up to where all members had everything: with one object that stayed missing (unfound, or recovery
/// held back as here) they grew with each write, for ever.
#[test]
fn what_stays_missing_does_not_keep_the_log() {
    let world = World::new(21);
    let options = "osd_min_pg_log_entries = 10\n\
                   osd_max_pg_log_entries = 20\n\
                   osd_pg_log_trim_min = 1\n\
                   osd_heartbeat_grace = 6\n";
    let plan = Plan { options: options.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        io.write_full("lacked", Bytes::from_static(b"before")).await.unwrap();
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        cluster.command(&admin, json!({"prefix": "osd set", "key": "norecover"})).await;
        let follower = u32::try_from(acting[1]).unwrap();
        cluster.kill_osd(follower, Kill::PROCESS);
        io.write_full("lacked", Bytes::from_static(b"after")).await.unwrap();
        cluster.start_osd(follower);
        cluster.wait_until_up(&admin).await;
        for n in 0..200 {
            io.write_full(format!("o{}", n % 7), Bytes::from_static(b"more")).await.unwrap();
        }
        for osd in acting {
            let ask =
                json!({"prefix": "pg", "cmd": "query", "pgid": pgid.to_string(), "format": "json"});
            let answer = admin.osd_command(osd, ask.to_string(), Bytes::new()).await.unwrap();
            let query: Value = serde_json::from_slice(&answer.outb).unwrap_or_default();
            if let Some(entries) = query["info"]["stats"]["log_size"].as_u64() {
                assert!((10..25).contains(&entries), "{entries} entries on osd.{osd}");
            }
        }
        cluster.command(&admin, json!({"prefix": "osd unset", "key": "norecover"})).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        assert_eq!(&io.read("lacked", 0, 0).await.unwrap()[..], b"after");
        cluster.compare_replicas(&admin).await;
    });
}
