//! A cluster under the virtual clock, broken in many ways. `LOLIGO_SIM_SEEDS` is the number of
//! seeds (default 2), `LOLIGO_SIM_SEED` runs one of them; a failure prints the seed.

use std::time::Duration;

use bytes::Bytes;
use serde_json::json;
use sim::World;
use simtest::{Chaos, Cluster, Load, Mischief, Plan, Workload};

fn log() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .without_time()
        .with_test_writer()
        .try_init();
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn seeds() -> Vec<u64> {
    match number("LOLIGO_SIM_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("LOLIGO_SIM_SEEDS").unwrap_or(2)).collect(),
    }
}

#[test]
fn a_monitor_answers_a_client() {
    log();
    let world = World::new(1);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        cluster.start_mon();
        let client = cluster.client("client.0").await;
        let status = cluster.command(&client, json!({"prefix": "status"})).await;
        assert!(!status.is_empty());
    });
}

#[test]
fn an_object_is_written_and_read() {
    log();
    let world = World::new(2);
    let cluster = Cluster::make(&world.control(), Plan::default());
    world.run_until(async move {
        let client = cluster.start().await;
        eprintln!("all up at {:?}", cluster.world().now());
        let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8});
        cluster.command(&client, pool).await;
        let io = client.io_ctx("p").await.unwrap();
        io.write_full("a", Bytes::from_static(b"hello")).await.unwrap();
        eprintln!("written at {:?}", cluster.world().now());
        assert_eq!(&io.read("a", 0, 0).await.unwrap()[..], b"hello");
        let dump = cluster.command(&client, json!({"prefix": "mgr dump"})).await;
        tracing::debug!("{}", String::from_utf8_lossy(&dump));
        cluster.wait_until_clean(&client, Duration::from_secs(60)).await;
        cluster.compare_replicas(&client).await;
    });
}

/// What one life of a cluster came to.
#[derive(Debug, PartialEq, Eq)]
struct Life {
    effective_writes: usize,
    operations: u64,
    time: Duration,
    trace_hash: u64,
}

/// One life of a cluster: clients work, and die, while things go wrong; then all is repaired, and
/// what was acknowledged must be there, on every replica.
fn live(seed: u64) -> Life {
    const CLIENTS: u32 = 3;
    let world = World::new(seed);
    let control = world.control();
    // Scrubs all the time: a difference between replicas leaves the PG inconsistent.
    let options = "osd_scrub_min_interval = 4\nosd_deep_scrub_interval = 8\n".to_owned();
    let plan = Plan { auth_none: seed % 4 == 0, options, ..Plan::default() };
    let osds = plan.osds;
    let cluster = Cluster::make(&control, plan);
    let (effective_writes, operations) = world.run_until(async move {
        let world = cluster.world().clone();
        let admin = cluster.start().await;
        let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8});
        cluster.command(&admin, pool).await;
        let load = Workload::new(&world, Load::default());
        for number in 0..CLIENTS {
            cluster.work(&load, &format!("client.{number}"), world.rng().fork()).await;
        }
        let rng = world.rng().fork();
        let mischief = Mischief::of(&rng);
        let chaos = Chaos::new(&cluster, rng, osds, mischief);
        let ending = world.spawn(async move { chaos.run().await });
        // One client dies in the middle of what it does, and another one takes its place.
        world.sleep(mischief.time / 2).await;
        world.kill("client.0", sim::Kill::PROCESS);
        cluster.work(&load, "client.0", world.rng().fork()).await;
        ending.await;
        tracing::info!("{:?}: all is repaired", world.now());
        cluster.wait_until_up(&admin).await;
        tracing::info!("{:?}: all OSDs are up", world.now());
        load.stop();
        let end = world.now() + Duration::from_secs(120);
        while load.running() > 0 {
            assert!(world.now() < end, "{} clients hang", load.running());
            world.sleep(Duration::from_millis(100)).await;
        }
        tracing::info!("{:?}: the clients have ended", world.now());
        cluster.wait_until_clean(&admin, Duration::from_secs(300)).await;
        tracing::info!("{:?}: all is clean", world.now());
        let io = admin.io_ctx("p").await.unwrap();
        let limit = Duration::from_secs(120);
        cluster.in_time(&admin, "reading all objects", limit, load.read_all(&io)).await;
        tracing::info!("{:?}: all objects are read", world.now());
        cluster.compare_replicas(&admin).await;
        (load.effective_writes(), load.done())
    });
    let life = Life {
        effective_writes,
        operations,
        time: world.now(),
        trace_hash: control.trace_hash(),
    };
    eprintln!("seed {seed}: {life:?}");
    life
}

#[test]
fn acknowledged_writes_survive() {
    log();
    for seed in seeds() {
        eprintln!("seed {seed}");
        live(seed);
    }
}

#[test]
fn a_seed_tells_the_whole_life() {
    log();
    assert_eq!(live(7), live(7));
}
