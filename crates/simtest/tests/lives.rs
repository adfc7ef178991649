//! All tests in the simulated world, as one program: `cargo test --release -p loligo-simtest NAME` runs
//! those of a file (`cluster::`) or one of them. `RUST_LOG` says what is printed of what daemons say.

mod answers;
mod backfill;
mod checks;
mod cluster;
mod copying;
mod damaged_infos;
mod extents;
mod frozen;
mod full;
mod growth;
mod hanging;
mod images;
mod logs;
mod mclock;
mod nonsense;
mod old_maps;
mod quorum;
mod raw_client;
mod recovery_sleep;
mod rejoin;
mod reports;
mod reservations;
mod resets;
mod scrubs;
mod services;
mod shards;
mod shared_process;
mod snapshots;
mod unfound;

use std::ops::Range;

use simtest::{Settings, Sum, run};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

/// Prints what daemons say, if `RUST_LOG` asks for it and the test fails.
fn log() {
    let asked: Targets =
        std::env::var("RUST_LOG").as_deref().unwrap_or("error").parse().expect("RUST_LOG");
    let lines = tracing_subscriber::fmt::layer().without_time().with_test_writer();
    let _ = tracing_subscriber::registry().with(asked).with(lines).try_init();
}

/// Lives the lives of these seeds; none may break its word.
fn keep_their_word(seeds: Range<u64>, settings: &Settings) -> Sum {
    let sum = run(seeds, settings, None, |seed, result| {
        if let Err(failure) = result {
            eprintln!("seed {seed}: {}", failure.what);
        }
        true
    });
    let failed: Vec<u64> = sum.failures.iter().map(|failure| failure.seed).collect();
    assert!(failed.is_empty(), "these seeds break their word: {failed:?}");
    sum
}

/// A number in the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Cargo finds no test by itself here: a file that is not named above would never run.
#[test]
fn every_file_is_named() {
    let named = include_str!("lives.rs");
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".rs") else { continue };
        assert!(
            name == "lives" || named.contains(&format!("\nmod {name};\n")),
            "tests/{name}.rs: no `mod {name};` in lives.rs"
        );
    }
}
