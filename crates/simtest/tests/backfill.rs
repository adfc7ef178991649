//! Backfill: that it ends, and does not begin anew.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sim::{Kill, World};
use simtest::{Cluster, Plan};

/// So short that whoever comes anew needs a backfill.
const SHORT_LOGS: &str = "osd_min_pg_log_entries = 3\n\
                          osd_max_pg_log_entries = 6\n\
                          osd_pg_log_trim_min = 1\n";

/// Found by a life of `cluster.rs` that came to rest with a PG in `backfilling` for ever.
///
/// 1. A PG moves to an OSD that has no copy of it; its primary is held up in peering while maps
///    that make no new interval come.
/// 2. The primary's log makes the copy, in the epoch of that message: later than the interval's
///    first, of which the copy therefore knows nothing.
/// 3. All objects are pushed. The last word, that this was all, says by the first epoch of which
///    interval it is: to the copy that was of the past, and never answered.
#[test]
fn a_copy_made_late_in_an_interval_is_backfilled() {
    let world = World::new(6);
    let options = SHORT_LOGS.to_owned();
    let plan = Plan { size: 2, min_size: 1, options, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster
            .command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1}))
            .await;
        let io = admin.io_ctx("p").await.unwrap();
        for n in 0..20 {
            io.write_full(format!("o{n}"), Bytes::from_static(b"before it moves")).await.unwrap();
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let pool = u64::try_from(io.pool_id()).unwrap();
        let acting = admin.osdmap().pg_to_up_acting(types::PgId::new(pool, 0)).acting;
        let acting_now: Vec<String> = acting.iter().map(i32::to_string).collect();
        let (stays, leaves) = (acting[0], acting[1]);
        let comes = (0..3).find(|osd| !acting.contains(osd)).unwrap();
        let affinity =
            json!({"prefix": "osd primary-affinity", "id": format!("osd.{comes}"), "weight": 0.0});
        cluster.command(&admin, affinity).await;
        world.partition(&format!("osd.{stays}"), &format!("osd.{comes}"));
        cluster.command(&admin, json!({"prefix": "osd out", "ids": [leaves.to_string()]})).await;
        // As the primary would ask for, could it ask who has what.
        let pg_temp =
            json!({"prefix": "osd pg-temp", "pgid": format!("{pool}.0"), "id": acting_now});
        cluster.command(&admin, pg_temp).await;
        for _ in 0..3 {
            cluster.command(&admin, json!({"prefix": "osd set", "key": "nodeep-scrub"})).await;
            cluster.command(&admin, json!({"prefix": "osd unset", "key": "nodeep-scrub"})).await;
        }
        world.sleep(Duration::from_millis(500)).await;
        world.heal();
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// A backfill goes on where it was when its target restarts, and when the interval changes: each
/// object is copied about once, not as often as there were interruptions.
#[test]
fn a_backfill_resumes() {
    const OBJECTS: u64 = 100;
    let world = World::new(10);
    let options = format!(
        "{SHORT_LOGS}osd_heartbeat_grace = 4\nosd_backfill_scan_max = 8\nosd_recovery_max_active = 1\n\
         osd_recovery_sleep = 0.1\nosd_min_pg_log_entries = 30\nosd_max_pg_log_entries = 40\n\
         mon_osd_min_down_reporters = 1\n"
    );
    let plan = Plan { osds: 2, size: 2, min_size: 1, options, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster
            .command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1}))
            .await;
        let affinity = json!({"prefix": "osd primary-affinity", "id": "osd.1", "weight": 0.0});
        cluster.command(&admin, affinity).await;
        let io = admin.io_ctx("p").await.unwrap();
        let content = Bytes::from_static(b"0123456789");
        io.write_full("first", content.clone()).await.unwrap();
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.kill_osd(1, Kill::PROCESS);
        for n in 0..OBJECTS - 1 {
            io.write_full(format!("o{n}"), content.clone()).await.unwrap();
        }
        // 100 objects with a rest of 0.1 s after each: 10 s in all, interrupted twice.
        for _ in 0..2 {
            cluster.start_osd(1);
            cluster.wait_until_up(&admin).await;
            world.sleep(Duration::from_secs(4)).await;
            cluster.kill_osd(1, Kill::PROCESS);
            // Until it is known to be down.
            io.write_full("first", content.clone()).await.unwrap();
        }
        cluster.start_osd(1);
        cluster.wait_until_up(&admin).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let ask = json!({"prefix": "perf dump", "format": "json"}).to_string();
        let answer = admin.osd_command(0, ask, Bytes::new()).await.unwrap();
        let json: serde_json::Value = serde_json::from_slice(&answer.outb).unwrap();
        let sent = json["osd"]["recovery_bytes"].as_u64().unwrap() / content.len() as u64;
        // What was under way when it was interrupted is sent again: a batch at most.
        assert!((OBJECTS..OBJECTS + 30).contains(&sent), "{sent} objects were sent");
        cluster.compare_replicas(&admin).await;
    });
}
