//! Slots for recovery and backfill: who waits, who goes first, who is refused.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use client::{Client, IoCtx};
use serde_json::{Value, json};
use sim::{Kill, World};
use simtest::{Cluster, Plan};

/// What each PG says of itself, by its id.
async fn states(client: &Client) -> BTreeMap<String, String> {
    let ask = json!({"prefix": "pg dump", "dumpcontents": ["pgs_brief"], "format": "json"});
    let answer = client.mgr_command(ask.to_string(), Bytes::new()).await.expect("an answer");
    let json: Value = serde_json::from_slice(&answer.outb).expect("json");
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let pgs = json["pg_stats"].as_array().cloned().unwrap_or_default();
    pgs.iter().map(|pg| (text(&pg["pgid"]), text(&pg["state"]))).collect()
}

async fn until(
    cluster: &Cluster,
    client: &Client,
    what: &str,
    holds: impl Fn(&BTreeMap<String, String>) -> bool,
) {
    for _ in 0..600 {
        if holds(&states(client).await) {
            return;
        }
        cluster.world().sleep(Duration::from_millis(200)).await;
    }
    panic!("never: {what}: {:?}", states(client).await);
}

async fn write(io: &IoCtx, objects: usize, text: &'static str) {
    for n in 0..objects {
        io.write_full(format!("o{n}"), Bytes::from_static(text.as_bytes())).await.unwrap();
    }
}

/// Two PGs of one primary have objects to recover that take long; osd_max_backfills is 1. One
/// recovers, the other waits; forced, the other takes the slot away. A change of the rest between
/// objects acts on what is under way.
#[test]
fn a_forced_pg_takes_the_slot() {
    let world = World::new(7);
    let options = "osd_heartbeat_grace = 6\nosd_recovery_max_active = 1\n\
                   mgr_stats_period = 1\n";
    let plan =
        Plan { osds: 2, size: 2, min_size: 1, options: options.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 2})).await;
        for osd in ["osd.1"] {
            let affinity = json!({"prefix": "osd primary-affinity", "id": osd, "weight": 0.0});
            cluster.command(&admin, affinity).await;
        }
        let sleep = |seconds: &str| {
            json!({"prefix": "config set", "who": "osd", "name": "osd_recovery_sleep", "value": seconds})
        };
        cluster.command(&admin, sleep("5")).await;
        let io = admin.io_ctx("p").await.unwrap();
        write(&io, 40, "before").await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.kill_osd(1, Kill::PROCESS);
        write(&io, 40, "while it is down").await;
        cluster.start_osd(1);
        cluster.wait_until_up(&admin).await;
        let count = |states: &BTreeMap<String, String>, word: &str| {
            states.values().filter(|state| state.split('+').any(|s| s == word)).count()
        };
        until(&cluster, &admin, "one recovers, one waits", |states| {
            count(states, "recovering") == 1 && count(states, "recovery_wait") == 1
        })
        .await;
        let waiting = states(&admin).await;
        let waiting = waiting.iter().find(|(_, s)| s.contains("recovery_wait")).expect("one waits");
        let pgid = waiting.0.clone();
        let force = json!({"prefix": "pg force-recovery", "pgid": [pgid]});
        let answer = admin.mgr_command(force.to_string(), Bytes::new()).await.unwrap();
        assert_eq!(answer.rc, 0, "{}", answer.outs);
        until(&cluster, &admin, "the forced one recovers, the other waits", |states| {
            let (forced, others) = (&states[&pgid], count(states, "recovery_wait"));
            forced.contains("recovering") && forced.contains("forced_recovery") && others == 1
        })
        .await;
        cluster.command(&admin, sleep("0")).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        assert_eq!(count(&states(&admin).await, "forced_recovery"), 0);
        cluster.compare_replicas(&admin).await;
    });
}

/// Found by `loligo sim --seed 20178 --faults grow,shrink,snaps,remove,osd,power,mon --short`: an object
/// that had been removed and made again held bytes and keys of before on one OSD.
///
/// 1. A backfill has pushed some objects of its batch when another placement group takes its slot.
/// 2. The batch is forgotten. Objects of it are removed, and the target, which has them but has not been
///    told that it is past them, is sent log entries alone.
/// 3. The backfill begins again behind the last batch that was finished: it lists what there is, and
///    the target keeps what there is not any more.
#[test]
fn objects_removed_while_a_backfill_waits_for_its_slot_are_removed_everywhere() {
    let world = World::new(9);
    let options = "osd_min_pg_log_entries = 3\nosd_max_pg_log_entries = 6\nosd_pg_log_trim_min = 1\n\
                   osd_heartbeat_grace = 6\nosd_recovery_max_active = 1\nmgr_stats_period = 1\n";
    let plan =
        Plan { osds: 2, size: 2, min_size: 1, options: options.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 2})).await;
        let affinity = json!({"prefix": "osd primary-affinity", "id": "osd.1", "weight": 0.0});
        cluster.command(&admin, affinity).await;
        let sleep = |seconds: &str| {
            json!({"prefix": "config set", "who": "osd", "name": "osd_recovery_sleep", "value": seconds})
        };
        cluster.command(&admin, sleep("3")).await;
        let io = admin.io_ctx("p").await.unwrap();
        io.write_full("first", Bytes::from_static(b"first")).await.unwrap();
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.kill_osd(1, Kill::PROCESS);
        write(&io, 40, "while it is down").await;
        cluster.start_osd(1);
        cluster.wait_until_up(&admin).await;
        let is = |states: &BTreeMap<String, String>, word: &str| -> Vec<String> {
            let has = |state: &String| state.split('+').any(|s| s == word);
            states.iter().filter(|(_, state)| has(state)).map(|(pgid, _)| pgid.clone()).collect()
        };
        until(&cluster, &admin, "one is backfilled, one waits", |states| {
            is(states, "backfilling").len() == 1 && is(states, "backfill_wait").len() == 1
        })
        .await;
        // Some objects are copied.
        cluster.world().sleep(Duration::from_secs(10)).await;
        let waiting = is(&states(&admin).await, "backfill_wait");
        let force = json!({"prefix": "pg force-backfill", "pgid": waiting});
        let answer = admin.mgr_command(force.to_string(), Bytes::new()).await.unwrap();
        assert_eq!(answer.rc, 0, "{}", answer.outs);
        until(&cluster, &admin, "the other one is backfilled", |states| {
            is(states, "backfilling") == waiting && is(states, "backfill_wait").len() == 1
        })
        .await;
        for n in 0..40 {
            io.remove(format!("o{n}")).await.unwrap();
        }
        cluster.command(&admin, sleep("0")).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.compare_replicas(&admin).await;
    });
}

/// A target that is past the backfillfull ratio refuses, and is asked again.
#[test]
fn a_full_target_refuses_a_backfill() {
    let world = World::new(8);
    let options = "osd_min_pg_log_entries = 3\nosd_max_pg_log_entries = 6\nosd_pg_log_trim_min = 1\n\
                   osd_backfill_retry_interval = 5\nmgr_stats_period = 1\n";
    let plan = Plan { size: 2, min_size: 1, options: options.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster
            .command(&admin, json!({"prefix": "osd pool create", "pool": "p", "pg_num": 1}))
            .await;
        let io = admin.io_ctx("p").await.unwrap();
        write(&io, 20, "to be moved").await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let ratio = |ratio: f64| json!({"prefix": "osd set-backfillfull-ratio", "ratio": ratio});
        cluster.command(&admin, ratio(0.000_001)).await;
        let pool = u64::try_from(io.pool_id()).unwrap();
        let acting = admin.osdmap().pg_to_up_acting(types::PgId::new(pool, 0)).acting;
        cluster.command(&admin, json!({"prefix": "osd out", "ids": [acting[1].to_string()]})).await;
        until(&cluster, &admin, "too full", |states| {
            states.values().all(|state| state.contains("backfill_toofull"))
        })
        .await;
        cluster.command(&admin, ratio(0.9)).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.compare_replicas(&admin).await;
    });
}
