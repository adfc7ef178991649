//! An OSD that the map had down while it lived.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sim::World;
use simtest::{Aim, Cluster, Plan, Settings, live};
use types::PgId;

/// Found by `loligo sim --aim island --short`, seed 11: a PG that stayed in GetInfo for ever.
///
/// 1. An OSD is cut off from the others and marked down. When it hears them again, its sockets are
///    reset, and it connects anew to another OSD, before it knows of the map in which it is down.
/// 2. Then it learns of that map, and drops all its sessions; to the other OSD this one stays open,
///    waiting for a new socket.
/// 3. It is up again, at the same address. The other one, now a primary, asks it for its copy of a PG:
///    in the open session, which the OSD no longer knows. The session is reset, and the question is
///    lost.
///
/// Ceph's OSDs bind anew when they were wrongly marked down; ours change their nonce.
#[test]
fn what_a_peer_asks_of_an_osd_that_comes_back_is_not_lost() {
    let seeds = if cfg!(debug_assertions) { 11..12 } else { 11..16 };
    for seed in seeds {
        live(seed, &Settings { aim: Some(Aim::Island), short: true, ..Settings::default() });
    }
}

/// Found by `loligo sim --seed 52002023`: a read that no order explains.
///
/// 1. An OSD that leads a PG hears nobody any more but a client that reads from it, and serves that client until its
///    lease is over.
/// 2. It is marked down and out. The next primary knows of the lease and waits; meanwhile the PG is recovered
///    elsewhere, and clean.
/// 3. A clean PG forgets who served before. In the interval after that nobody was left who could hold a lease, so it
///    was taken for over, and the PG served while the first one still did.
#[test]
fn a_clean_pg_remembers_leases_of_before() {
    let world = World::new(36);
    let cluster = Cluster::make(&world.control(), Plan { osds: 4, size: 2, ..Plan::default() });
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 1).await;
        let io = admin.io_ctx("p").await.unwrap();
        io.write_full("o", Bytes::from_static(b"before")).await.unwrap();
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let (reader, host) = (cluster.client("client.island").await, world.node("client.island"));
        let island = reader.io_ctx("p").await.unwrap();
        island.read("o", 0, 0).await.unwrap();
        let pgid = PgId::new(u64::try_from(io.pool_id()).unwrap(), 0);
        let first = admin.osdmap().pg_to_up_acting(pgid).acting_primary;
        let osd = format!("osd.{first}");
        for name in world.names().iter().filter(|name| **name != osd && *name != "client.island") {
            world.partition(&osd, name);
            world.partition("client.island", name);
        }
        for what in ["osd down", "osd out"] {
            let command = json!({"prefix": what, "ids": [first.to_string()]});
            cluster.command(&admin, command).await;
        }
        // It takes no second to bring one object to another OSD.
        world.sleep(Duration::from_secs(2)).await;
        let second = admin.osdmap().pg_to_up_acting(pgid).acting_primary;
        assert_ne!(second, first);
        let down = json!({"prefix": "osd down", "ids": [second.to_string()]});
        cluster.command(&admin, down).await;
        io.write_full("o", Bytes::from_static(b"after")).await.unwrap();
        // The OSD that is cut off answers, or nobody does.
        let read = host.timeout(Duration::from_secs(1), island.read("o", 0, 0)).await;
        if let Ok(read) = read {
            assert_eq!(&read.unwrap()[..], b"after");
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
    });
}

/// What the fix of that rests on.
#[test]
fn who_was_wrongly_down_comes_back_at_another_cluster_address() {
    let world = World::new(3);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let admin = cluster.start().await;
        cluster.create_pool(&admin, 4).await;
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let before = admin.osdmap();
        cluster.command(&admin, json!({"prefix": "osd down", "ids": ["1"]})).await;
        while admin.osdmap().epoch == before.epoch || !admin.osdmap().is_up(1) {
            cluster.world().sleep(Duration::from_millis(100)).await;
            cluster.wait_until_up(&admin).await;
        }
        cluster.wait_until_clean(&admin, Duration::from_secs(60)).await;
        let after = admin.osdmap();
        assert_ne!(after.cluster_addrs_of(1), before.cluster_addrs_of(1));
        assert_eq!(after.addrs(1), before.addrs(1));
        assert_eq!(after.cluster_addrs_of(0), before.cluster_addrs_of(0));
    });
}

/// `ceph osd stop` stopped no OSD: the map said that it was down and to stop, and it booted again, up and to stop
/// (`qa/standalone/osd/osd-markdown.sh`, `TEST_osd_stop`).
#[test]
fn who_is_told_to_stop_stays_down_until_it_is_started() {
    let world = World::new(27);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        // It is to end.
        cluster.broken_disk(0);
        cluster.command(&admin, json!({"prefix": "osd stop", "ids": ["0"]})).await;
        world.sleep(Duration::from_secs(30)).await;
        admin.wait_for_latest_osdmap().await.unwrap();
        assert!(admin.osdmap().is_down(0));
        cluster.wait_until_up(&admin).await;
        let stop = maps::osdmap::osd_state::STOP;
        assert_eq!(admin.osdmap().state(0) & stop, 0);
    });
}
