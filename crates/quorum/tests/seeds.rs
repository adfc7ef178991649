//! The log under thousands of short seeded runs (`QUORUM_SEEDS=N`, `QUORUM_FIRST=S`).

mod world;

use std::time::Duration;

use world::{Rng, World};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// No two leaders in a term, no two different entries in a place, no acknowledged entry lost, no
/// stale read under a lease, and when all is well again everybody is a member and writes go on.
#[test]
fn misfortunes_lose_nothing() {
    let (first, count) = (number("QUORUM_FIRST", 1), number("QUORUM_SEEDS", 60));
    let mut sums = [0; 4];
    for seed in first..first + count {
        let outcome = std::panic::catch_unwind(|| {
            let n = [1, 3, 3, 3, 5, 7][Rng::new(seed ^ 0x5eed).below(6) as usize];
            let mut world = World::new(seed, n);
            world.run(4000, false);
            world.run(20_000, true);
            world.settle();
            [world.acks, world.reads, world.elections, world.copies]
        });
        match outcome {
            Ok(of_seed) => sums.iter_mut().zip(of_seed).for_each(|(sum, n)| *sum += n),
            Err(panic) => {
                eprintln!("seed {seed}: QUORUM_FIRST={seed} QUORUM_SEEDS=1 repeats it");
                std::panic::resume_unwind(panic);
            }
        }
    }
    let [acks, reads, elections, copies] = sums;
    println!("{count} seeds: {acks} writes, {reads} reads, {elections} elections, {copies} copies");
    assert!(acks > 100 * count && reads > 100 * count && elections > count && copies > count);
}

/// The death of a leader stops writes for less than two seconds (a quiet network, three members).
#[test]
fn a_leader_is_replaced_within_two_seconds() {
    for seed in 1..20 {
        let mut world = World::new(seed, 3);
        world.run(4000, false);
        world.settle();
        let took = world.failover().expect("there is a leader");
        assert!(took < Duration::from_millis(1800), "seed {seed}: {took:?}");
    }
}
