//! Lives in which the pool gets more placement groups, OSDs are removed and come back as new ones,
//! and three monitors lead, while daemons fall. `loligo sim --faults grow,remove,osd,mon --mons 3`
//! lives the same. `LOLIGO_SIM_SEEDS`, `LOLIGO_SIM_FIRST` and `LOLIGO_SIM_SEED` as in `cluster.rs`.

use simtest::{Fault, Settings, live, run};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn log() {
    let _ = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .without_time()
        .with_test_writer()
        .try_init();
}

#[test]
fn lives_with_growth_and_removal() {
    log();
    let faults = [Fault::Grow, Fault::Remove, Fault::Osd, Fault::Mon, Fault::Mgr, Fault::Admin];
    let settings = Settings { mons: Some(3), faults: Some(faults.into()), ..Settings::default() };
    if let Some(seed) = number("LOLIGO_SIM_SEED") {
        eprintln!("seed {seed}: {:?}", live(seed, &settings));
        return;
    }
    // Debug builds are some twenty times slower.
    let seeds = number("LOLIGO_SIM_SEEDS").unwrap_or(if cfg!(debug_assertions) { 1 } else { 4 });
    let first = number("LOLIGO_SIM_FIRST").unwrap_or(1);
    let sum = run(first..first + seeds, &settings, None, |seed, result| {
        if let Err(failure) = result {
            eprintln!("seed {seed}: {}", failure.what);
        }
        true
    });
    eprintln!("{} lives of {:?}, {} answers judged", sum.lives, sum.time, sum.answers);
    let seeds: Vec<u64> = sum.failures.iter().map(|failure| failure.seed).collect();
    assert!(seeds.is_empty(), "these seeds break their word: {seeds:?}");
}
