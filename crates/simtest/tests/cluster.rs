//! A cluster under the virtual clock, broken in many ways, in short lives. `LOLIGO_SIM_SEEDS` is
//! the number of seeds (default 1,000, from `LOLIGO_SIM_FIRST`, default 1001, on), `LOLIGO_SIM_SEED`
//! runs one of them; a failure prints the seed and the history that shows it. `loligo sim --short`
//! lives the same lives.

use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::json;
use sim::World;
use simtest::{Cluster, Plan, Settings, live};

use crate::{keep_their_word, log, number};

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
        let pool = json!({"prefix": "osd pool create", "pool": "p", "pg_num": 8});
        cluster.command(&client, pool).await;
        let io = client.io_ctx("p").await.unwrap();
        io.write_full("a", Bytes::from_static(b"hello")).await.unwrap();
        assert_eq!(&io.read("a", 0, 0).await.unwrap()[..], b"hello");
        cluster.wait_until_clean(&client, Duration::from_secs(60)).await;
        cluster.compare_replicas(&client).await;
    });
}

/// `./scripts/test lives` lives a thousand from the same seed on, by the binary.
#[test]
fn lives_of_many_seeds() {
    log();
    if let Some(seed) = number("LOLIGO_SIM_SEED") {
        eprintln!("seed {seed}: {:?}", live(seed, &short()));
        return;
    }
    lives(seeds());
}

fn short() -> Settings {
    Settings { short: true, ..Settings::default() }
}

fn seeds() -> Range<u64> {
    // Debug builds are some twenty times slower.
    let few = if cfg!(debug_assertions) { 4 } else { 50 };
    let first = number("LOLIGO_SIM_FIRST").unwrap_or(1001);
    first..first + number("LOLIGO_SIM_SEEDS").unwrap_or(few)
}

fn lives(seeds: Range<u64>) {
    let begun = Instant::now();
    let sum = keep_their_word(seeds, &short());
    let speed = sum.time.as_secs_f64() / begun.elapsed().as_secs_f64();
    eprintln!(
        "{} lives of {:?} in {:?} ({speed:.0} times faster than real), {} answers judged, \
         {} unclear, {} events",
        sum.lives,
        sum.time,
        begun.elapsed(),
        sum.answers,
        sum.unclear,
        sum.events
    );
    assert!(sum.is_clear(), "too much is unclear");
}

/// InkStore has metadata in memory, and answers at once. On the other stores anything may happen while the OSD waits
/// for what it reads.
#[test]
fn lives_on_stores_that_read() {
    log();
    for erasure in [false, true] {
        let reads_take = Duration::from_millis(number("LOLIGO_SIM_READS_MS").unwrap_or(5));
        let settings = Settings { erasure, reads_take, ..short() };
        if let Some(seed) = number("LOLIGO_SIM_SEED") {
            eprintln!("seed {seed}: {:?}", live(seed, &settings));
            continue;
        }
        let few = if cfg!(debug_assertions) { 1 } else { 8 };
        let first = number("LOLIGO_SIM_FIRST").unwrap_or(1001);
        let seeds = first..first + number("LOLIGO_SIM_SEEDS").unwrap_or(few);
        keep_their_word(seeds, &settings);
    }
}

/// Found by such a life: a shard whose damage a read had met was noted as missing in version 0'0, where the log did not
/// name the object any more.
#[test]
fn a_damaged_shard_is_missing_in_the_version_it_has() {
    log();
    let reads_take = Duration::from_millis(5);
    live(52042, &Settings { erasure: true, reads_take, ..short() });
}

#[test]
fn a_seed_tells_the_whole_life() {
    log();
    for seed in [7, 8] {
        let settings = Settings::default();
        assert_eq!(live(seed, &settings), live(seed, &settings));
    }
}
