//! Which OSD maps are forgotten, and what is still known of PGs then.

use std::time::Duration;

use bytes::Bytes;
use client::Client;
use denc::Denc;
use maps::OsdMap;
use osd::osd::map_store::meta_object;
use serde_json::{Value, json};
use sim::{Kill, World};
use simtest::{Cluster, Plan};
use store::{CollId, Transaction};

const OPTIONS: &str = "osd_heartbeat_grace = 6\n\
                       mgr_stats_period = 1\n\
                       mon_osd_min_down_reporters = 1\n\
                       mon_osd_down_out_interval = 0\n\
                       mon_osd_min_in_ratio = 0\n\
                       osd_beacon_report_interval = 1\n\
                       mon_min_osdmap_epochs = 10\n\
                       paxos_service_trim_min = 10\n";

async fn make_maps(cluster: &Cluster, admin: &Client) {
    for turn in 0..100 {
        let prefix = if turn % 2 == 0 { "osd set" } else { "osd unset" };
        cluster.command(admin, json!({"prefix": prefix, "key": "noscrub"})).await;
    }
    cluster.world().sleep(Duration::from_secs(30)).await;
}

async fn report(cluster: &Cluster, admin: &Client) -> Value {
    let report = cluster.command(admin, json!({"prefix": "report", "format": "json"})).await;
    serde_json::from_slice(&report).unwrap()
}

/// The epoch before which monitors have forgotten.
async fn first(cluster: &Cluster, admin: &Client) -> u64 {
    report(cluster, admin).await["osdmap_first_committed"].as_u64().unwrap()
}

/// What OSDs told was when their PGs had last become clean: while they stayed so, each map was kept, by the
/// monitors and by OSDs.
#[test]
fn maps_go_while_all_is_clean() {
    let world = World::new(3);
    let plan = Plan { options: OPTIONS.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 8).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let made = u64::from(admin.osdmap().epoch);
        make_maps(&cluster, &admin).await;
        // What is kept is told with the next maps.
        make_maps(&cluster, &admin).await;
        assert!(first(&cluster, &admin).await > made, "{} {made}", first(&cluster, &admin).await);
        let status = json!({"prefix": "status", "format": "json"}).to_string();
        let status = admin.osd_command(0, status, Bytes::new()).await.unwrap();
        let status: Value = serde_json::from_slice(&status.outb).unwrap();
        assert!(status["oldest_map"].as_u64().unwrap() > made, "{status}");
    });
}

/// All copies of a PG went out, and so nobody counted who told of it: the maps that say who had served it were
/// forgotten. An older copy that came back alone served what had been overwritten, and this went on to the
/// others when they came.
#[test]
fn pgs_that_fell_silent_keep_their_maps() {
    let world = World::new(4);
    let plan =
        Plan { osds: 6, size: 2, min_size: 1, options: OPTIONS.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster
            .command(
                &admin,
                json!({"prefix": "osd pool create", "pool": "p", "pg_num": 4, "size": 2}),
            )
            .await;
        let io = admin.io_ctx("p").await.unwrap();
        io.write_full("object", Bytes::from_static(b"old")).await.unwrap();
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let members = || {
            let map = admin.osdmap();
            let pgid = map.object_to_pg(b"object", &types::ObjectLocator::pool(io.pool_id()));
            map.pg_to_up_acting(pgid.unwrap()).acting
        };
        let leave = async |osd: i32| {
            cluster.kill_osd(osd as u32, Kill::PROCESS);
            for prefix in ["osd down", "osd out"] {
                cluster.command(&admin, json!({"prefix": prefix, "ids": [osd.to_string()]})).await;
            }
            admin.wait_for_latest_osdmap().await.unwrap();
        };
        let older = members()[0];
        leave(older).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        io.write_full("object", Bytes::from_static(b"newer")).await.unwrap();
        cluster.world().sleep(Duration::from_secs(3)).await;
        let newer = members();
        let served = u64::from(admin.osdmap().epoch);
        for osd in &newer {
            leave(*osd).await;
        }
        make_maps(&cluster, &admin).await;
        for osd in (0..6).filter(|osd| *osd != older && !newer.contains(osd)) {
            cluster.command(&admin, json!({"prefix": "osd down", "ids": [osd.to_string()]})).await;
            cluster.world().sleep(Duration::from_secs(10)).await;
        }
        make_maps(&cluster, &admin).await;
        assert!(first(&cluster, &admin).await <= served);
        for osd in std::iter::once(&older).chain(&newer) {
            cluster.start_osd(*osd as u32);
            cluster.command(&admin, json!({"prefix": "osd in", "ids": [osd.to_string()]})).await;
            cluster.world().sleep(Duration::from_secs(30)).await;
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        assert_eq!(io.read("object", 0, 0).await.unwrap(), "newer");
    });
}

/// The step from the newest map that an OSD had did not lead to what the monitors had. It asked for the newest map, did not take
/// that because there were others between, asked for those, and got nothing, as it had been sent them: it never came up.
#[test]
fn an_osd_whose_map_differs_gets_on() {
    const OSD: u32 = 2;
    let world = World::new(5);
    let plan = Plan { options: OPTIONS.to_owned(), ..Plan::default() };
    let cluster = Cluster::make(&world.control(), plan);
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 8).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        cluster.world().sleep(Duration::from_secs(30)).await;
        let ask = json!({"prefix": "status", "format": "json"}).to_string();
        let status = admin.osd_command(OSD as i32, ask, Bytes::new()).await.unwrap();
        let status: Value = serde_json::from_slice(&status.outb).unwrap();
        let newest = status["newest_map"].as_u64().unwrap();
        let full = cluster.command(&admin, json!({"prefix": "osd getmap", "epoch": newest})).await;
        let mut map = OsdMap::from_bytes(&full).unwrap();
        // No step changes that.
        map.created.sec += 1;
        let (other, _) = map.encode_with_crc();
        let oid = meta_object(format!("osdmap.{newest}"));
        let mut change = Transaction::new();
        change.remove(&CollId::Meta, &oid);
        change.write(&CollId::Meta, &oid, 0, other);
        let last_life = admin.osdmap().up_from(OSD as i32);
        cluster.change_store(OSD, change).await;
        for prefix in ["osd set", "osd unset", "osd set"] {
            cluster.command(&admin, json!({"prefix": prefix, "key": "noscrub"})).await;
        }
        cluster.start_osd(OSD);
        let reborn = cluster.wait_until_reborn(&admin, OSD, last_life);
        cluster.in_time(&admin, "the OSD", Duration::from_secs(60), reborn).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
    });
}
