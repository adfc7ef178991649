//! Connections between simulated hosts: order, ends, resets, silence, partitions.

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use env::{Env, Stream};
use sim::{Kill, LinkModel, World};

const SECOND: Duration = Duration::from_secs(1);

async fn recv_exactly(stream: &Rc<dyn Stream>, len: usize) -> io::Result<BytesMut> {
    let mut all = BytesMut::with_capacity(len);
    while all.len() < len {
        let (received, buf) = stream.recv(all).await;
        all = buf;
        if received? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(all)
}

async fn recv_some(stream: &Rc<dyn Stream>) -> io::Result<Bytes> {
    let (received, buf) = stream.recv(BytesMut::with_capacity(65536)).await;
    received.map(|_| buf.freeze())
}

/// Starts an echo server on the host.
fn serve(env: &Env, addr: SocketAddr) {
    let listener = env.listen(addr).unwrap();
    let server = env.clone();
    env.go(async move {
        while let Ok(stream) = listener.accept().await {
            server.go(async move {
                loop {
                    match recv_some(&stream).await {
                        Ok(data) if !data.is_empty() => {
                            if stream.send(vec![data]).await.is_err() {
                                return;
                            }
                        }
                        _ => return,
                    }
                }
            });
        }
    });
}

fn address(world: &World, name: &str) -> SocketAddr {
    SocketAddr::new(world.ip(name), 6800)
}

#[test]
fn bytes_come_back_whole_and_in_order() {
    let world = World::new(1);
    let addr = address(&world, "server");
    serve(&world.node("server"), addr);
    let client = world.node("client");
    world.run_until(async move {
        let stream = client.connect(addr).await.unwrap();
        assert_eq!(stream.peer_addr(), Some(addr));
        let data: Bytes = (0..10_000_000u32).map(|i| (i >> 4) as u8).collect::<Vec<_>>().into();
        let sending = client.spawn_with_handle({
            let (stream, data) = (stream.clone(), data.clone());
            async move { stream.send(vec![Bytes::new(), data.slice(..7), data.slice(7..)]).await }
        });
        let back = recv_exactly(&stream, data.len()).await.unwrap();
        sending.await.unwrap();
        assert!(back == data);
    });
    assert!(world.now() > Duration::from_millis(8), "10 MB take their time");
}

#[test]
fn loopback_is_shared_and_ports_are_chosen() {
    let world = World::new(2);
    let server = world.node("server");
    let listener = server.listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = listener.local_addr().unwrap();
    assert_ne!(addr.port(), 0);
    let any = server.listen("0.0.0.0:80".parse().unwrap()).unwrap();
    assert_eq!(any.local_addr().unwrap().ip(), world.ip("server"));
    assert!(server.listen(addr).is_err());
    assert!(server.listen("10.9.9.9:1".parse().unwrap()).is_err());
    let client = world.node("client");
    world.run_until(async move {
        let near = client.connect(addr).await.unwrap();
        let far = listener.accept().await.unwrap();
        assert_eq!((near.local_addr(), near.peer_addr()), (far.peer_addr(), far.local_addr()));
        drop(listener);
        let refused = client.connect(addr).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        // The accepted connection outlives its listener.
        near.send(vec!["x".into()]).await.unwrap();
        assert_eq!(recv_exactly(&far, 1).await.unwrap(), "x");
        // What was sent before the end is still read, then the end.
        far.send(vec!["last".into()]).await.unwrap();
        drop(far);
        assert_eq!(recv_exactly(&near, 4).await.unwrap(), "last");
        assert_eq!(recv_some(&near).await.unwrap(), "");
        assert!(near.send(vec!["y".into()]).await.is_err());
    });
}

#[test]
fn a_killed_process_ends_its_connections_and_refuses() {
    let world = World::new(3);
    let addr = address(&world, "server");
    serve(&world.node("server"), addr);
    let (client, control) = (world.node("client"), world.control());
    world.run_until(async move {
        let stream = client.connect(addr).await.unwrap();
        stream.send(vec!["hello".into()]).await.unwrap();
        recv_exactly(&stream, 5).await.unwrap();
        control.kill("server", Kill::PROCESS);
        assert!(!control.is_running("server"));
        assert!(recv_some(&stream).await.unwrap_or_default().is_empty());
        let refused = client.connect(addr).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        serve(&control.node("server"), addr);
        client.connect(addr).await.unwrap();
    });
    assert!(world.now() < SECOND);
}

#[test]
fn a_host_without_power_is_silent_until_it_is_back() {
    let world = World::new(4);
    let addr = address(&world, "server");
    serve(&world.node("server"), addr);
    let (client, control) = (world.node("client"), world.control());
    world.run_until(async move {
        let [idle, busy] =
            [client.connect(addr).await.unwrap(), client.connect(addr).await.unwrap()];
        control.kill("server", Kill::POWER);
        let nothing = client.timeout(60 * SECOND, recv_some(&idle)).await;
        assert!(nothing.is_err());
        busy.send(vec!["into the void".into()]).await.unwrap();
        let trying = client.spawn_with_handle({
            let client = client.clone();
            async move { client.connect(addr).await }
        });
        client.sleep(10 * SECOND).await;
        assert!(!trying.is_finished());
        serve(&control.node("server"), addr);
        trying.await.unwrap();
        // What was sent is sent again and answered by a reset; who sends later learns it then.
        let reset = client.timeout(5 * SECOND, recv_some(&busy)).await.unwrap();
        assert_eq!(reset.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        let nothing = client.timeout(60 * SECOND, recv_some(&idle)).await;
        assert!(nothing.is_err());
        idle.send(vec!["hello?".into()]).await.unwrap();
        assert!(client.timeout(5 * SECOND, recv_some(&idle)).await.unwrap().is_err());

        control.kill("server", Kill::POWER);
        let start = client.now();
        let error = client.connect(addr).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(client.now() - start > 120 * SECOND);
    });
}

#[test]
fn a_partition_holds_back_one_direction() {
    let world = World::new(5);
    let addr = address(&world, "server");
    let listener = world.node("server").listen(addr).unwrap();
    let (client, control) = (world.node("client"), world.control());
    world.run_until(async move {
        let near = client.connect(addr).await.unwrap();
        let far = listener.accept().await.unwrap();
        control.block("client", "server");
        near.send(vec!["held ".into()]).await.unwrap();
        near.send(vec!["back".into()]).await.unwrap();
        far.send(vec!["passes".into()]).await.unwrap();
        assert_eq!(recv_exactly(&near, 6).await.unwrap(), "passes");
        let held = client.timeout(100 * SECOND, recv_some(&far)).await;
        assert!(held.is_err());
        control.heal();
        assert_eq!(recv_exactly(&far, 9).await.unwrap(), "held back");

        control.isolate("server");
        near.send(vec!["then closed".into()]).await.unwrap();
        drop(near);
        assert!(client.timeout(SECOND, recv_some(&far)).await.is_err());
        control.heal();
        assert_eq!(recv_exactly(&far, 11).await.unwrap(), "then closed");
        assert_eq!(recv_some(&far).await.unwrap(), "");
    });
}

#[test]
fn resets_reach_both_sides() {
    let world = World::new(6);
    let addr = address(&world, "server");
    let listener = world.node("server").listen(addr).unwrap();
    let (client, control) = (world.node("client"), world.control());
    world.run_until(async move {
        let near = client.connect(addr).await.unwrap();
        let far = listener.accept().await.unwrap();
        let reading = client.spawn_with_handle({
            let near = near.clone();
            async move { recv_some(&near).await }
        });
        client.sleep(SECOND).await;
        assert_eq!(control.reset_connections("server", "client"), 1);
        assert_eq!(reading.await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
        assert!(recv_some(&far).await.is_err());
        assert!(near.send(vec!["x".into()]).await.is_err());
        // A sender that waits for room learns of it as well.
        let near = client.connect(addr).await.unwrap();
        let _far = listener.accept().await.unwrap();
        let sending =
            client.spawn_with_handle(async move { near.send(vec![vec![0; 8 << 20].into()]).await });
        client.sleep(SECOND).await;
        assert!(!sending.is_finished());
        control.reset_connections("server", "client");
        assert!(sending.await.is_err());
    });
}

#[test]
fn a_lossy_link_is_slow_and_may_reset() {
    let world = World::new(7);
    let addr = address(&world, "server");
    serve(&world.node("server"), addr);
    let lossy = LinkModel { loss: 0.5, ..LinkModel::default() };
    world.set_link("client", "server", Some(lossy));
    let client = world.node("client");
    let stream = world.run_until(async move {
        let stream = client.connect(addr).await.unwrap();
        for _ in 0..100 {
            stream.send(vec!["ping".into()]).await.unwrap();
            recv_exactly(&stream, 4).await.unwrap();
        }
        stream
    });
    assert!(world.now() > 10 * SECOND && world.now() < 100 * SECOND, "{world:?}");
    world.set_network(LinkModel { reset: 1.0, ..LinkModel::default() });
    world.run_until(async move {
        stream.send(vec!["ping".into()]).await.unwrap();
        let mut left = recv_some(&stream).await;
        while left.as_ref().is_ok_and(|data| !data.is_empty()) {
            left = recv_some(&stream).await;
        }
        assert!(left.is_err());
    });
}

#[test]
fn unix_sockets_stay_within_a_host() {
    let world = World::new(8);
    let path = Path::new("/run/daemon.asok");
    let (daemon, other) = (world.node("one"), world.node("two"));
    let listener = daemon.listen_unix(path).unwrap();
    assert!(daemon.listen_unix(path).is_err());
    let control = world.control();
    world.run_until(async move {
        assert_eq!(other.connect_unix(path).await.err().unwrap().kind(), io::ErrorKind::NotFound);
        let near = daemon.connect_unix(path).await.unwrap();
        let far = listener.accept().await.unwrap();
        near.send(vec!["status".into()]).await.unwrap();
        assert_eq!(recv_exactly(&far, 6).await.unwrap(), "status");
        control.kill("one", Kill::PROCESS);
        let daemon = control.node("one");
        let refused = daemon.connect_unix(path).await.err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        daemon.listen_unix(path).unwrap();
    });
}

#[test]
fn clocks_differ_between_hosts() {
    let world = World::new(9);
    world.set_clock("fast", 5_000_000_000, 1000);
    let (fast, right) = (world.node("fast"), world.node("right"));
    assert_eq!(fast.wall_clock() - right.wall_clock(), 5 * SECOND);
    assert_ne!(fast.now(), right.now());
    let log = Rc::new(RefCell::new(Vec::new()));
    for (name, env) in [("fast", fast.clone()), ("right", right.clone())] {
        let log = log.clone();
        env.clone().go(async move {
            let start = env.now();
            env.sleep(1000 * SECOND).await;
            assert!(env.now() >= start + 1000 * SECOND);
            log.borrow_mut().push(name);
        });
    }
    world.run_for(Duration::from_millis(999_500));
    assert_eq!(*log.borrow(), ["fast"]);
    world.run_for(SECOND);
    assert_eq!(*log.borrow(), ["fast", "right"]);
}

/// As daemons of one process, which no network parts; and a process that has ended leaves nothing to the next.
#[test]
fn what_shares_a_process_talks_within_it() {
    let world = World::new(12);
    world.share_process(&["server".to_owned(), "friend".to_owned()]);
    let addr = SocketAddr::new(world.ip("server"), 7000);
    serve(&world.node("server"), addr);
    let control = world.control();
    let stranger = world.node("stranger");
    world.run_until(async move {
        control.isolate("server");
        let begun = control.now();
        let stream = control.node("friend").connect(addr).await.unwrap();
        assert!(stream.passage().is_some(), "values can be handed over");
        stream.send(vec![Bytes::from_static(b"hello")]).await.unwrap();
        assert_eq!(&recv_exactly(&stream, 5).await.unwrap()[..], b"hello");
        assert_eq!(control.now(), begun, "at once");
        assert!(stranger.timeout(SECOND, stranger.connect(addr)).await.is_err());

        control.kill("server", Kill::PROCESS);
        assert_eq!(recv_some(&stream).await.unwrap(), Bytes::new(), "the other one has ended");
        control.kill("friend", Kill::PROCESS);
        control.heal();
        let friend = control.node("friend");
        assert!(friend.connect(addr).await.is_err(), "nobody listens now");
    });
}
