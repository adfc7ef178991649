//! All tests in the simulated world, as one program: `cargo test --release -p loligo-simtest NAME` runs
//! those of a file (`cluster::`) or one of them. `RUST_LOG` says what is printed of what daemons say.

mod backfill;
mod cluster;
mod copying;
mod damaged_infos;
mod extents;
mod full;
mod growth;
mod mclock;
mod quorum;
mod recovery_sleep;
mod rejoin;
mod reports;
mod reservations;
mod resets;
mod scrubs;
mod shards;
mod snapshots;
mod unfound;

/// Prints what daemons say, if `RUST_LOG` asks for it and the test fails.
fn log() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .without_time()
        .with_test_writer()
        .try_init();
}

/// A number in the environment.
fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}
