//! A cluster under the virtual clock, broken in many ways. `LOLIGO_SIM_SEEDS` is the number of
//! seeds, `LOLIGO_SIM_SEED` runs one of them; a failure prints the seed.

use std::time::Duration;

use bytes::Bytes;
use sim::World;
use simtest::{Cluster, Plan};

fn log() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .without_time()
        .with_test_writer()
        .try_init();
}

#[test]
fn a_monitor_answers_a_client() {
    log();
    let world = World::new(1);
    let cluster = Cluster::make(&world.control(), Plan::default());
    let end = cluster.clone();
    world.run_until(async move {
        cluster.start_mon();
        let client = cluster.client("client.admin").await;
        let status = cluster.command(&client, serde_json::json!({"prefix": "status"})).await;
        assert!(!status.is_empty());
    });
    drop(end);
}

#[test]
fn an_object_is_written_and_read() {
    log();
    let world = World::new(2);
    let cluster = Cluster::make(&world.control(), Plan::default());
    let began = world.now();
    world.run_until(async move {
        let client = cluster.start().await;
        tracing::info!("all up at {:?}", cluster.world().now());
        cluster
            .command(&client, serde_json::json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8}))
            .await;
        let io = client.io_ctx("p").await.unwrap();
        io.write_full("a", Bytes::from_static(b"hello")).await.unwrap();
        tracing::info!("written at {:?}", cluster.world().now());
        assert_eq!(&io.read("a", 0, 0).await.unwrap()[..], b"hello");
        cluster.world().sleep(Duration::from_secs(20)).await;
        let status = cluster.command(&client, serde_json::json!({"prefix": "status"})).await;
        eprintln!("{}", String::from_utf8_lossy(&status));
    });
    eprintln!("{:?}", world.now() - began);
}
