//! Random operations on images against a model in memory, on a cluster of ours whose OSDs are
//! killed meanwhile: what is read is what was written, through snapshots, clones, resizes and
//! reopening, whatever dies.
//!
//! 20,000 operations by default (2,000 without optimization), on several images beside one another, each with clones of its
//! own. `LOLIGO_FSX_OPS=1000000` for the long form, `LOLIGO_FSX_IMAGES=N` for more or fewer
//! images, `LOLIGO_FSX_SEED=N` to repeat a run (the seed is printed), `LOLIGO_FSX_KILLS=0` for no
//! deaths, `LOLIGO_FSX_FEATURES=N` for images of these features only, `LOLIGO_TEST_CONF` for a running cluster (a real Ceph too) with a pool `rbd` and no deaths.

mod cluster;
mod crash;
mod model;
mod rng;

use std::rc::Rc;
use std::time::{Duration, Instant};

use auth::Keyring;
use client::{Client, IoCtx, Options};
use config::{ConfFile, Config};
use env::real::Runtime;
use futures_util::future::join_all;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use crate::cluster::Cluster;
use crate::model::Fsx;
use crate::rng::Rng;

/// A run that takes longer than this much for each operation hangs.
const TIME_PER_OP: Duration = Duration::from_millis(60);
/// Operations when nothing else is said.
const OPS: u64 = if cfg!(debug_assertions) { 2000 } else { 20_000 };

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().expect(name))
}

/// A client of the cluster, with its pool `rbd`.
async fn connect(env: &env::Env, cluster_conf: &std::path::Path) -> (Client, IoCtx) {
    let config = Config::new("client", "admin");
    let text = std::fs::read_to_string(cluster_conf).unwrap();
    assert!(config.load_file(&ConfFile::parse(&text).unwrap()).is_empty());
    let keyring = config.str("keyring");
    let keyring = keyring.split(',').find_map(|path| std::fs::read(path.trim()).ok()).unwrap();
    let keyring = Keyring::from_file(&keyring).unwrap();
    let options = Options { follow_osdmap: true };
    let client = Client::connect(env.clone(), Rc::new(config), &keyring, options).await.unwrap();
    if client.pool_lookup("rbd").await.is_err() {
        for command in [
            r#"{"prefix":"osd pool create","pool":"rbd","pg_num":8,"pgp_num":8}"#,
            r#"{"prefix":"osd pool application enable","pool":"rbd","app":"rbd"}"#,
        ] {
            let answer = client.mon_command(command, bytes::Bytes::new()).await.unwrap();
            assert_eq!(answer.rc, 0, "{}", answer.outs);
        }
    }
    let io = client.io_ctx("rbd").await.unwrap();
    (client, io)
}

fn log() {
    let asked: Targets =
        std::env::var("LOLIGO_LOG").as_deref().unwrap_or("error").parse().expect("LOLIGO_LOG");
    let _ = tracing_subscriber::registry()
        .with(asked)
        .with(tracing_subscriber::fmt::layer())
        .try_init();
}

#[test]
fn images_hold_what_a_model_holds() {
    log();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seed = number("LOLIGO_FSX_SEED", u64::from(now.subsec_nanos()));
    let ops = number("LOLIGO_FSX_OPS", OPS);
    let images = number("LOLIGO_FSX_IMAGES", 10).max(1);
    let kills = number("LOLIGO_FSX_KILLS", 1) != 0;
    eprintln!("LOLIGO_FSX_SEED={seed} LOLIGO_FSX_OPS={ops} LOLIGO_FSX_IMAGES={images}");
    let cluster = Cluster::start();
    let conf = cluster.conf();
    let killer = kills.then(|| cluster.keep_killing(Rng::new(seed ^ 0xdead)));
    let start = Instant::now();
    let limit = Duration::from_secs(120) + TIME_PER_OP * u32::try_from(ops).unwrap_or(u32::MAX);
    Runtime::new().unwrap().block_on(|env| async move {
        let (client, io) = connect(&env, &conf).await;
        let run = |image: u64| {
            let (env, io) = (env.clone(), io.clone());
            async move {
                let mut fsx = Fsx::start(&env, io, Rng::new(seed.wrapping_add(image))).await;
                let own = ops.div_ceil(images);
                for done in 1..=own {
                    fsx.step().await;
                    // A long run says how far it is.
                    if image == 0 && done % 5000 == 0 {
                        eprintln!("{} of {ops} operations, {:?}", done * images, start.elapsed());
                    }
                }
                fsx.finish().await;
            }
        };
        let outcome = env.timeout(limit, join_all((0..images).map(run))).await;
        assert!(outcome.is_ok(), "seed {seed}: not done within {limit:?}");
        client.shutdown();
    });
    let deaths = killer.map_or(0, |killer| killer.stop());
    eprintln!("{ops} operations, {deaths} OSDs killed, {:?}", start.elapsed());
}

/// A clone cut below the overlap its snapshots still saw: a client that died between its copy-up
/// and the cut behind it left the parent's bytes where the head should have read zeros.
#[test]
fn a_clone_that_was_cut_never_shows_its_parent_again() {
    log();
    let cluster = Cluster::start();
    let conf = cluster.conf();
    Runtime::new().unwrap().block_on(|env| async move {
        let (client, io) = connect(&env, &conf).await;
        crash::run(&io).await;
        client.shutdown();
    });
}

/// What a writer had begun and not finished is brought to its end by the next one who takes the
/// lock, in the order of the journal; what was not in the journal yet is not there at all.
#[test]
fn the_journal_of_a_dead_writer_is_replayed() {
    log();
    let cluster = Cluster::start();
    let conf = cluster.conf();
    Runtime::new().unwrap().block_on(|env| async move {
        let (client, io) = connect(&env, &conf).await;
        crash::journaled(&io).await;
        client.shutdown();
    });
}
