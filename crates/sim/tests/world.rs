//! The world itself: reproducible runs, virtual time, ends.

use std::cell::Cell;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use env::{AlignedBuf, OpenBlock};
use sim::{Kill, LinkModel, World};

const SECOND: Duration = Duration::from_secs(1);

/// Servers that write what they are sent to a disk, clients that send and retry, and a task that
/// kills, cuts and heals. What happened, in a number.
fn mixed_run(seed: u64) -> (u64, u64) {
    let world = World::new(seed);
    world.set_network(LinkModel { loss: 0.01, reset: 0.002, ..LinkModel::default() });
    let servers = ["a", "b", "c"];
    fn serve(control: &sim::Control, name: &str) {
        let env = control.node(name);
        let listener = env.listen(SocketAddr::new(control.ip(name), 6800)).unwrap();
        let options = OpenBlock { create_len: Some(1 << 20), read_only: false };
        let file = env.open_block("/data".as_ref(), options).unwrap();
        env.clone().go(async move {
            while let Ok(stream) = listener.accept().await {
                let file = file.clone();
                env.go(async move {
                    loop {
                        let (got, buf) = stream.recv(BytesMut::with_capacity(4096)).await;
                        if got.unwrap_or(0) == 0 {
                            return;
                        }
                        let mut data = AlignedBuf::zeroed(4096);
                        data[..buf.len()].copy_from_slice(&buf);
                        let at = u64::from(buf[0]) * 4096;
                        file.write_at(at, vec![data.freeze()]).await.unwrap();
                        file.sync().await.unwrap();
                        if stream.send(vec![buf.freeze()]).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
    }
    for name in servers {
        serve(&world.control(), name);
    }
    for client in 0..4u8 {
        let env = world.node(&format!("client{client}"));
        let addrs = servers.map(|name| SocketAddr::new(world.ip(name), 6800));
        env.clone().go(async move {
            loop {
                let addr = addrs[env.random_u64() as usize % 3];
                let Ok(stream) = env.connect(addr).await else {
                    env.sleep(SECOND).await;
                    continue;
                };
                for round in 0..20 {
                    let message = vec![client * 20 + round; 1 + env.random_u64() as usize % 4000];
                    if stream.send(vec![message.into()]).await.is_err() {
                        break;
                    }
                    let answer = stream.recv(BytesMut::with_capacity(4096));
                    match env.timeout(SECOND, answer).await {
                        Ok((Ok(got), _)) if got > 0 => {}
                        _ => break,
                    }
                    env.sleep(SECOND / 50).await;
                }
            }
        });
    }
    let control = world.control();
    world.run_until(async move {
        for _ in 0..20 {
            let rng = control.rng();
            control.sleep(rng.between(SECOND / 10, 3 * SECOND)).await;
            let name = servers[rng.below(3) as usize];
            match rng.below(4) {
                0 => control.partition(name, "client1"),
                1 => control.heal(),
                2 => {
                    control.kill(name, Kill::POWER);
                    control.sleep(SECOND / 2).await;
                    serve(&control, name);
                }
                _ => {
                    control.kill(name, Kill::PROCESS);
                    serve(&control, name);
                }
            }
        }
    });
    assert!(world.events() > 1000);
    (world.trace_hash(), world.events())
}

#[test]
fn equal_seeds_give_equal_runs_and_others_do_not() {
    let runs: Vec<_> = (0..5).map(|seed| (mixed_run(seed), mixed_run(seed))).collect();
    for (index, (first, second)) in runs.iter().enumerate() {
        assert_eq!(first, second, "seed {index}");
        assert!(runs[..index].iter().all(|(other, _)| other != first));
    }
}

#[test]
fn idle_time_costs_next_to_nothing() {
    let world = World::new(1);
    for node in 0..5 {
        let env = world.node(&format!("osd.{node}"));
        env.clone().go(async move {
            loop {
                env.sleep(SECOND).await;
            }
        });
    }
    let start = Instant::now();
    world.run_for(3600 * SECOND);
    // Usually 0.1 s.
    assert!(start.elapsed() < 600 * SECOND, "not even six times faster than real time");
    assert_eq!(world.now(), 3600 * SECOND);
}

#[test]
fn a_kill_drops_the_tasks_and_a_new_process_starts_afresh() {
    let world = World::new(2);
    let held = Rc::new(Cell::new(0));
    let env = world.node("osd.0");
    let counting = held.clone();
    env.clone().go(async move {
        loop {
            counting.set(counting.get() + 1);
            env.sleep(SECOND).await;
        }
    });
    world.run_for(10 * SECOND + SECOND / 2);
    assert_eq!(held.get(), 11);
    world.kill("osd.0", Kill::PROCESS);
    assert_eq!(Rc::strong_count(&held), 1);
    let control = world.control();
    let done = world.run_until(async move {
        let env = control.node("osd.0");
        let ending = env.spawn_with_handle(env.termination());
        control.sleep(SECOND).await;
        assert!(!ending.is_finished());
        control.terminate("osd.0");
        ending.await;
        control.spawn(async { 7 }).await
    });
    assert_eq!(done, 7);
}

#[test]
fn what_can_never_end_is_told_with_its_seed() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let world = World::new(4711);
        world.run_until(std::future::pending::<()>());
    }));
    std::panic::set_hook(hook);
    let message = *outcome.unwrap_err().downcast::<String>().unwrap();
    assert!(message.contains("deadlock") && message.contains("4711"), "{message}");
}

/// No process was ever late: whatever stops a real one (a signal, swapping, the pause of a virtual machine) did not happen.
#[test]
fn a_process_that_stands_still_does_nothing_until_it_goes_on() {
    let world = World::new(9);
    let control = world.control();
    let addr = SocketAddr::new(world.ip("server"), 6800);
    let server = world.node("server");
    let listener = server.listen(addr).unwrap();
    let (ticks, last) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(Duration::ZERO)));
    server.clone().go({
        let (ticks, control, server) = (ticks.clone(), control.clone(), server.clone());
        async move {
            loop {
                server.sleep(SECOND).await;
                ticks.set(ticks.get() + 1);
                assert!(!(3..60).contains(&control.now().as_secs()), "it stands still");
            }
        }
    });
    server.clone().go(async move {
        let stream = listener.accept().await.unwrap();
        loop {
            let (got, buf) = stream.recv(BytesMut::with_capacity(16)).await;
            if got.unwrap_or(0) == 0 || stream.send(vec![buf.freeze()]).await.is_err() {
                return;
            }
        }
    });
    let client = world.node("client");
    client.clone().go({
        let (control, last) = (control.clone(), last.clone());
        async move {
            let stream = client.connect(addr).await.unwrap();
            loop {
                stream.send(vec!["ping".into()]).await.unwrap();
                let (got, _) = stream.recv(BytesMut::with_capacity(16)).await;
                assert_eq!(got.unwrap(), 4, "its connections stay");
                last.set(control.now());
                client.sleep(SECOND / 10).await;
            }
        }
    });
    world.run_for(SECOND * 5 / 2);
    assert_eq!(ticks.get(), 2);
    control.freeze("server");
    world.run_for(SECOND * 60 - SECOND * 5 / 2);
    assert!(last.get() < SECOND * 3);
    assert_eq!(ticks.get(), 2);
    control.thaw("server");
    world.run_for(SECOND * 5 / 2);
    assert_eq!(ticks.get(), 5, "its timer ended long ago, and was set anew");
    assert!(last.get() > SECOND * 62);
    control.freeze("server");
    world.kill("server", Kill::PROCESS);
    assert!(!world.is_running("server"));
}
