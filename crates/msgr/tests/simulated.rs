//! Lossless sessions between three OSDs in a simulated network that cuts, stalls and heals: each
//! message arrives once and in order, whatever the seed.

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use common::{Recorder, node, raw, until};
use env::Env;
use msgr::{Messenger, Policies, Policy};
use sim::World;
use types::addr::AddrVec;
use types::entity::{EntityName, OSD};

const NAMES: [&str; 3] = ["osd.0", "osd.1", "osd.2"];
const MESSAGES: u64 = 120;

fn osd(
    world: &World,
    id: usize,
    policy: &Policy,
    modes: Option<Vec<u32>>,
) -> (Env, Messenger, Rc<Recorder>) {
    let env = world.node(NAMES[id]);
    let name = EntityName::osd(id as i32);
    let (messenger, recorder) = node(&env, name, Policies::new(policy.clone()), modes);
    let ip = world.ip(NAMES[id]);
    messenger.bind(std::net::SocketAddr::new(ip, 6800)).unwrap();
    (env, messenger, recorder)
}

/// The run's trace, and how often a connection was made.
fn cut_and_heal(seed: u64) -> (u64, usize) {
    let world = World::new(seed);
    let control = world.control();
    let modes = if seed.is_multiple_of(3) { Some(vec![auth::MODE_SECURE]) } else { None };
    let policy = Policy::lossless_peer();
    let osds: Vec<_> = (0..3).map(|id| osd(&world, id, &policy, modes.clone())).collect();
    let addrs: Vec<AddrVec> = osds.iter().map(|(_, m, _)| m.addrs()).collect();
    let sent_all = Rc::new(Cell::new(0));
    for (id, (env, messenger, _)) in osds.iter().enumerate() {
        for (to, addrs) in addrs.iter().enumerate().filter(|(to, _)| *to != id) {
            let (env, messenger, addrs) = (env.clone(), messenger.clone(), addrs.clone());
            let sent_all = sent_all.clone();
            env.clone().go(async move {
                for n in 1..=MESSAGES {
                    // tid says from whom and which.
                    let tid = (id as u64 * 10 + to as u64) * 1_000_000 + n;
                    let size = (env.random_u64() % 3000) as usize;
                    messenger.connect_to(OSD, &addrs).send(raw(1, tid, &vec![7; size]));
                    env.sleep(Duration::from_millis(env.random_u64() % 60)).await;
                }
                sent_all.set(sent_all.get() + 1);
            });
        }
    }
    let all = sent_all.clone();
    let faults = control.clone();
    world.run_until(async move {
        while all.get() < 6 {
            faults.sleep(Duration::from_millis(faults.rng().below(250))).await;
            let one = NAMES[faults.rng().below(3) as usize];
            let other = NAMES[faults.rng().below(3) as usize];
            match faults.rng().below(6) {
                0..=2 => {
                    faults.reset_connections(one, other);
                }
                3 => faults.partition(one, other),
                4 => faults.isolate(one),
                _ => faults.heal(),
            }
        }
        faults.heal();
    });
    let recorders: Vec<_> = osds.iter().map(|(_, _, r)| r.clone()).collect();
    let env = osds[0].0.clone();
    let wanted = recorders.clone();
    world.run_until(async move {
        let env2 = env.clone();
        let done = || wanted.iter().all(|r| r.count.get() >= 2 * MESSAGES as usize);
        let waited = env.timeout(Duration::from_secs(300), async move {
            until_slow(&env2, done).await;
        });
        assert!(waited.await.is_ok(), "messages are missing");
    });
    for (to, recorder) in recorders.iter().enumerate() {
        for from in (0..3).filter(|from| *from != to) {
            let base = (from as u64 * 10 + to as u64) * 1_000_000;
            let got: Vec<u64> = recorder
                .tids()
                .iter()
                .filter(|t| **t / 1_000_000 * 1_000_000 == base)
                .map(|t| t - base)
                .collect();
            assert_eq!(got, (1..=MESSAGES).collect::<Vec<_>>(), "from {from} to {to}");
        }
        assert!(!recorder.events().iter().any(|e| e.contains("reset")));
    }
    for (_, messenger, _) in &osds {
        messenger.shutdown();
    }
    let made = |r: &Rc<Recorder>| r.events().iter().filter(|e| e.starts_with("connect")).count();
    (world.control().trace_hash(), recorders.iter().map(made).sum())
}

async fn until_slow(env: &Env, mut done: impl FnMut() -> bool) {
    while !done() {
        env.sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn messages_arrive_once_and_in_order_whatever_is_cut() {
    let mut connections = 0;
    for seed in 0..40 {
        println!("seed {seed}");
        connections += cut_and_heal(seed).1;
    }
    // The faults did something: three pairs would need three connections a seed.
    assert!(connections > 40 * 3 * 3, "{connections}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in [3, 4] {
        assert_eq!(cut_and_heal(seed), cut_and_heal(seed));
    }
}

/// Story: a peer that noticed its own restart connects anew while the other side still has
/// messages queued for its former self; those must not be delivered to the new one.
#[test]
fn a_restarted_peer_gets_nothing_that_was_meant_for_its_former_self() {
    let world = World::new(11);
    let control = world.control();
    let policy = Policy::lossless_peer_reuse();
    let (env, a, _) = osd(&world, 0, &policy, None);
    let (_, b, seen_b) = osd(&world, 1, &policy, None);
    let to = b.addrs();
    let sender = a.clone();
    let first = seen_b.clone();
    let env2 = env.clone();
    world.run_until(async move {
        sender.connect_to(OSD, &to).send(raw(1, 1, b""));
        until(&env2, "first", || first.count.get() == 1).await;
    });
    control.kill("osd.1", sim::Kill::PROCESS);
    let sender = a.clone();
    let to = b.addrs();
    world.run_until(async move { sender.connect_to(OSD, &to).send(raw(1, 2, b"for the dead")) });
    drop(b);
    world.run_for(Duration::from_secs(2));
    let (env_b, b, seen_b) = osd(&world, 1, &policy, None);
    let from = a.addrs();
    let seen = seen_b.clone();
    world.run_until(async move {
        b.connect_to(OSD, &from).send(raw(1, 3, b"hello"));
        env_b.sleep(Duration::from_secs(20)).await;
    });
    assert_eq!(seen.tids(), Vec::<u64>::new());
}

/// What a peer has received is not acknowledged by itself while an answer may tell it, and not left
/// unacknowledged either: the sender keeps it until then.
#[test]
fn what_came_is_acknowledged_with_an_answer_or_soon_or_when_it_is_much() {
    let world = World::new(3);
    let policy = Policy::lossless_peer();
    let (env, a, of_a) = osd(&world, 0, &policy, None);
    let (_, b, of_b) = osd(&world, 1, &policy, None);
    let (to_b, to_a) = (b.addrs(), a.addrs());
    world.run_until(async move {
        let rest = |ms| env.sleep(Duration::from_millis(ms));
        let con = a.connect_to(OSD, &to_b);
        let back = || b.connect_to(OSD, &to_a);
        con.send(raw(1, 1, b"first"));
        until_slow(&env, || of_b.count.get() == 1).await;
        rest(200).await;
        assert_eq!(con.unacknowledged(), 0, "by itself");

        con.send(raw(1, 2, b"asks"));
        rest(10).await;
        assert_eq!((of_b.count.get(), con.unacknowledged()), (2, 1), "not yet");
        back().send(raw(1, 3, b"answers"));
        rest(10).await;
        assert_eq!((of_a.count.get(), con.unacknowledged()), (1, 0), "with the answer");
        rest(200).await;
        assert_eq!(back().unacknowledged(), 0, "the answer, too");

        con.send(raw(1, 4, &[7; 80_000]));
        rest(10).await;
        assert_eq!((of_b.count.get(), con.unacknowledged()), (3, 0), "many bytes");
        (0..64).for_each(|n| con.send(raw(1, 5 + n, b"one of many")));
        rest(10).await;
        assert_eq!((of_b.count.get(), con.unacknowledged()), (67, 0), "many messages");
        a.shutdown();
        b.shutdown();
    });
}
