//! Backfill: that it ends, and does not begin anew.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};
use sim::{Kill, World};
use simtest::{Cluster, Plan};
use types::{PgId, SnapContext};

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

/// A backfill that was gone on with in another interval counted from nothing: what had been copied was degraded, or
/// misplaced, again (`ceph -s`), and the progress went back. Ceph's targets know how many objects they have.
#[test]
fn what_was_copied_in_another_interval_is_not_degraded() {
    const OBJECTS: i64 = 60;
    const BATCH: i64 = 8;
    const LIMIT: Duration = Duration::from_secs(120);
    let world = World::new(29);
    let options = format!(
        "{SHORT_LOGS}osd_backfill_scan_max = {BATCH}\nosd_recovery_max_active = 1\n\
         osd_recovery_sleep = 0.2\nmgr_stats_period = 1\n"
    );
    let plan = Plan { options, ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        let pgid = types::PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
        let target = u32::try_from(acting[2]).unwrap();
        cluster.kill_osd(target, Kill::PROCESS);
        cluster
            .command(&admin, json!({"prefix": "osd down", "ids": [acting[2].to_string()]}))
            .await;
        for n in 0..OBJECTS {
            io.write_full(format!("o{n}"), Bytes::from_static(b"content")).await.unwrap();
        }
        cluster.start_osd(target);
        cluster.wait_until_up(&admin).await;
        // Of the PG as its primary reports it: state, copies that lack, epoch of its interval.
        let told = async || {
            let ask = r#"{"prefix":"pg dump","dumpcontents":["pgs"],"format":"json"}"#;
            let answer = admin.mgr_command(ask, Bytes::new()).await.unwrap();
            let dump: Value = serde_json::from_slice(&answer.outb).unwrap();
            let pgs = dump["pg_stats"].as_array().unwrap().clone();
            let pg = pgs.into_iter().find(|pg| pg["pgid"] == pgid.to_string()).unwrap();
            let number = |v: &Value| v.as_i64().unwrap();
            (
                pg["state"].as_str().unwrap().to_owned(),
                number(&pg["stat_sum"]["num_objects_degraded"]),
                number(&pg["mapping_epoch"]),
            )
        };
        let until = async |is_so: &dyn Fn(&(String, i64, i64)) -> bool| {
            let come = async {
                loop {
                    let now = told().await;
                    if is_so(&now) {
                        return now;
                    }
                    world.sleep(Duration::from_millis(200)).await;
                }
            };
            cluster.in_time(&admin, "what is reported", LIMIT, come).await
        };
        let backfills = |state: &str| state.contains("backfilling");
        let (_, before, interval) =
            until(&|(state, lacks, _)| backfills(state) && *lacks < OBJECTS / 2).await;
        // Writes of what the target has and has not.
        for n in 0..OBJECTS / 2 {
            io.write_full(format!("o{n}"), Bytes::from_static(b"other")).await.unwrap();
        }
        let affinity = json!({"prefix": "osd primary-affinity", "id": acting[0], "weight": 0.0});
        cluster.command(&admin, affinity).await;
        let (state, after, _) = until(&|(state, _, now)| backfills(state) && *now > interval).await;
        assert_ne!(admin.osdmap().pg_to_up_acting(pgid).acting_primary, acting[0]);
        // What was copied of the last batch is copied again.
        assert!(after <= before + BATCH, "{state}: {before} and then {after} objects lack");
        cluster.wait_until_clean(&admin, LIMIT).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// A PG came back to an OSD that was still removing its copy, which takes minutes on a large one (`osd out`, clean, `osd in`): it served
/// nobody until that had ended. What is left of the copy counts as nothing now, and goes while the PG serves and is backfilled.
#[test]
fn a_pg_that_comes_back_does_not_wait_for_its_copys_removal() {
    const OBJECTS: usize = 400;
    const WHOLE_LOGS: &str = "osd_min_pg_log_entries = 3000\nosd_max_pg_log_entries = 3000\n";
    for seed in 36..44 {
        let world = World::new(seed);
        // What a log could fill is backfilled, too: what came by it went with the rest.
        let options = if seed < 40 { SHORT_LOGS } else { WHOLE_LOGS }.to_owned();
        let plan = Plan { size: 2, min_size: 1, options, ..Plan::default() };
        let cluster = Cluster::make(&world.control(), plan);
        world.run_until(async move {
            let world = cluster.world().clone();
            let admin = cluster.start().await;
            cluster.create_pool(&admin, 1).await;
            let io = admin.io_ctx("p").await.unwrap();
            let name = |n: usize| format!("o{n}");
            for n in 0..OBJECTS {
                io.write_full(name(n), Bytes::from_static(b"old")).await.unwrap();
            }
            let snap = admin.selfmanaged_snap_create(io.pool_id()).await.unwrap();
            let later = io.clone().with_snap_context(SnapContext { seq: snap, snaps: vec![snap] });
            for n in 0..OBJECTS / 4 {
                later.write_full(name(n), Bytes::from_static(b"newer")).await.unwrap();
            }
            let limit = Duration::from_secs(60);
            cluster.wait_until_clean(&admin, limit).await;
            let pgid = PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
            let acting = admin.osdmap().pg_to_up_acting(pgid).acting;
            // The primary or the other.
            let leaves = acting[usize::try_from(seed % 2).unwrap()];
            let leaver = u32::try_from(leaves).unwrap();
            let ids = json!([leaves.to_string()]);
            cluster.command(&admin, json!({"prefix": "osd out", "ids": ids})).await;
            let removing = async || {
                let ask = json!({"prefix": "perf dump", "format": "json"}).to_string();
                let answer = admin.osd_command(leaves, ask, Bytes::new()).await.unwrap();
                let json: Value = serde_json::from_slice(&answer.outb).unwrap();
                json["osd"]["numpg_removing"].as_u64().unwrap()
            };
            // Eight batches, and the listing of each takes a second or so.
            cluster.slow_reads(leaver, Duration::from_secs(2));
            let begins = async {
                while removing().await == 0 {
                    world.sleep(Duration::from_millis(20)).await;
                }
            };
            cluster.in_time(&admin, "the copy goes", limit, begins).await;
            cluster.command(&admin, json!({"prefix": "osd in", "ids": ids})).await;
            let write = later.write_full(name(0), Bytes::from_static(b"newest"));
            cluster.in_time(&admin, "a write", Duration::from_secs(4), write).await.unwrap();
            for n in 0..OBJECTS / 4 {
                later.write_full(name(n), Bytes::from_static(b"newest")).await.unwrap();
            }
            cluster.slow_reads(leaver, Duration::ZERO);
            cluster.wait_until_clean(&admin, limit).await;
            assert_eq!(admin.osdmap().pg_to_up_acting(pgid).acting, acting);
            let stays = acting.iter().find(|osd| **osd != leaves).unwrap();
            cluster.kill_osd(u32::try_from(*stays).unwrap(), Kill::PROCESS);
            for n in 0..OBJECTS {
                let read = cluster.in_time(&admin, "a read", limit, io.read(name(n), 0, 0)).await;
                let content: &[u8] = if n < OBJECTS / 4 { b"newest" } else { b"old" };
                assert_eq!(read.unwrap(), content, "{n}");
            }
            cluster.start_osd(u32::try_from(*stays).unwrap());
            cluster.wait_until_up(&admin).await;
            cluster.wait_until_clean(&admin, limit).await;
            admin.selfmanaged_snap_remove(io.pool_id(), snap).await.unwrap();
            world.sleep(Duration::from_secs(30)).await;
            cluster.compare_replicas(&admin).await;
        });
    }
}
