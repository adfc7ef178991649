//! Sessions between our own messengers, over real sockets and within a thread.

mod common;

use std::cell::Cell;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use common::{localhost, node, raw, until};
use env::Env;
use env::real::Runtime;
use env::within::Within;
use msgr::{Policies, Policy, Throttle};
use types::addr::{AddrVec, EntityAddr};
use types::entity::{CLIENT, EntityName, MGR, OSD};

fn over_sockets<F: Future<Output = ()> + 'static>(test: impl FnOnce(Env) -> F) {
    Runtime::new().unwrap().block_on(test);
}

/// Over sockets, then as daemons that share a thread do without.
fn run<F: Future<Output = ()> + 'static>(test: impl Fn(Env) -> F) {
    over_sockets(&test);
    let runtime = Runtime::new().unwrap();
    let env = runtime.tenants(&Within::default()).env(NonZeroU32::MIN);
    runtime.block_on(move |_| test(env));
}

fn osd_policies() -> Policies {
    Policies::new(Policy::stateless_registered_server()).with(OSD, Policy::lossless_peer())
}

fn client_policies() -> Policies {
    Policies::new(Policy::lossy_client())
}

async fn exchange(env: Env, modes: Option<Vec<u32>>) {
    let (server, seen) = node(&env, EntityName::osd(0), osd_policies(), modes.clone());
    seen.answer.set(true);
    server.bind(localhost()).unwrap();
    let (client, got) = node(&env, EntityName::client(-1), client_policies(), modes);
    let con = client.connect_to(OSD, &server.addrs());
    let sizes = [0, 1, 47, 48, 49, 2047, 2048, 4096, 65_535, 1 << 20, 5 << 20];
    let content = |len: usize| (0..len).map(|i| (i * 7 + len) as u8).collect::<Vec<u8>>();
    for (i, len) in sizes.iter().enumerate() {
        let mut m = raw(42, i as u64, &content(len / 3));
        m.data.push(Bytes::from(content(*len)));
        m.data.push(Bytes::from_static(b"tail"));
        con.send(m);
    }
    until(&env, "all answers", || got.count.get() == sizes.len()).await;
    for (i, len) in sizes.iter().enumerate() {
        let m = seen.messages.borrow()[i].clone();
        assert_eq!((m.header.tid, m.header.seq), (i as u64, i as u64 + 1));
        assert_eq!(m.front, content(len / 3));
        let mut want = content(*len);
        want.extend_from_slice(b"tail");
        assert_eq!(m.data.to_contiguous(), want);
        assert_eq!(got.messages.borrow()[i].data.to_contiguous(), want);
    }
    assert_eq!(seen.events(), ["accept client.?"]);
    assert_eq!(got.events(), ["connect osd.0"]);
    assert_eq!(con.peer_name(), EntityName::osd(0));
    assert!(client.connect_to(OSD, &server.addrs()) == con);
    // A sign of life.
    con.send_keepalive();
    until(&env, "keepalive", || con.last_keepalive_ack().is_some()).await;
    // The end of one side is a reset of the other.
    con.mark_down();
    until(&env, "reset", || seen.events().len() == 2).await;
    assert_eq!(seen.events()[1], "reset client.?");
    assert!(client.connections().is_empty());
    server.shutdown();
    client.shutdown();
}

#[test]
fn messages_of_all_sizes_in_crc_mode_without_keys() {
    run(|env| exchange(env, None));
}

#[test]
fn messages_of_all_sizes_in_crc_mode() {
    run(|env| exchange(env, Some(vec![auth::MODE_CRC, auth::MODE_SECURE])));
}

#[test]
fn messages_of_all_sizes_in_secure_mode() {
    run(|env| exchange(env, Some(vec![auth::MODE_SECURE])));
}

#[test]
fn who_says_it_is_a_daemon_needs_a_daemons_key() {
    run(|env| async move {
        let modes = Some(vec![auth::MODE_CRC]);
        let (server, seen) = node(&env, EntityName::osd(0), osd_policies(), modes.clone());
        server.bind(localhost()).unwrap();
        // Its name is client.5, its HELLO says OSD.
        let (liar, got) = node(&env, EntityName::client(5), client_policies(), modes);
        liar.set_name(EntityName::osd(5));
        liar.connect_to(OSD, &server.addrs()).send(raw(1, 1, b""));
        env.sleep(Duration::from_millis(300)).await;
        assert_eq!(seen.count.get(), 0);
        assert!(seen.events().is_empty() && got.events().is_empty());
        server.shutdown();
        liar.shutdown();
    });
}

#[test]
fn refused_then_served() {
    run(|env| async move {
        let (probe, _) = node(&env, EntityName::osd(9), osd_policies(), None);
        let free = probe.bind(localhost()).unwrap();
        probe.shutdown();
        env.sleep(Duration::from_millis(20)).await;
        let (client, got) = node(&env, EntityName::client(1), client_policies(), None);
        let target = AddrVec::of(EntityAddr { nonce: 0, ..free });
        let con = client.connect_to(OSD, &target);
        con.send(raw(42, 7, b"x"));
        until(&env, "refused", || got.events().iter().any(|e| e == "refused osd.?")).await;
        let (server, seen) = node(&env, EntityName::osd(1), osd_policies(), None);
        server.bind(free.sock.unwrap()).unwrap();
        server.set_addrs(target);
        until(&env, "message", || seen.count.get() == 1).await;
        assert_eq!(seen.tids(), [7]);
        server.shutdown();
        client.shutdown();
    });
}

#[test]
fn throttles_hold_the_sender_back_and_let_go() {
    run(|env| async move {
        let policy = Policy::stateless_registered_server().throttled(1 << 20, 4);
        let messages = policy.throttle_messages.clone().unwrap();
        let (server, seen) = node(&env, EntityName::osd(0), Policies::new(policy), None);
        seen.hold.set(true);
        server.bind(localhost()).unwrap();
        let (client, _) = node(&env, EntityName::client(1), client_policies(), None);
        let con = client.connect_to(OSD, &server.addrs());
        for tid in 0..10 {
            con.send(raw(42, tid, &[1; 100]));
        }
        until(&env, "four", || seen.count.get() == 4).await;
        env.sleep(Duration::from_millis(100)).await;
        assert_eq!((seen.count.get(), messages.current()), (4, 4));
        drop(seen.held.borrow_mut().remove(0));
        until(&env, "five", || seen.count.get() == 5).await;
        seen.hold.set(false);
        drop(seen.held.take());
        until(&env, "ten", || seen.count.get() == 10).await;
        assert_eq!(messages.current(), 0);
        server.shutdown();
        client.shutdown();
    });
}

#[test]
fn higher_priority_leaves_first_and_loopback_delivers() {
    run(|env| async move {
        let (server, seen) = node(&env, EntityName::osd(0), osd_policies(), None);
        server.bind(localhost()).unwrap();
        let (client, got) = node(&env, EntityName::client(1), client_policies(), None);
        let con = client.connect_to(OSD, &server.addrs());
        con.send(raw(1, 1, b"").with_priority(63));
        con.send(raw(1, 2, b"").with_priority(196));
        con.send(raw(1, 3, b"").with_priority(63));
        until(&env, "three", || seen.count.get() == 3).await;
        assert_eq!(seen.tids(), [2, 1, 3]);
        client.loopback().send(raw(1, 9, b""));
        until(&env, "own", || got.tids() == [9]).await;
        // Whoever had delivered once slept on: this one never came.
        client.loopback().send(raw(1, 10, b""));
        until(&env, "own again", || got.tids() == [9, 10]).await;
        assert!(server.connect_to(OSD, &server.addrs()).is_loopback());
        server.shutdown();
        client.shutdown();
    });
}

/// A TCP proxy that cuts its connections after `cut_after` bytes in both directions together, and
/// counts how often it did.
fn cutting_proxy(
    env: &Env,
    target: std::net::SocketAddr,
    cut_after: Rc<Cell<u64>>,
    cuts: Rc<Cell<u32>>,
) -> EntityAddr {
    let listener = env.listen(localhost()).unwrap();
    let addr = listener.local_addr().unwrap();
    let outer = env.clone();
    env.go(async move {
        while let Ok(client) = listener.accept().await {
            let Ok(server) = outer.connect(target).await else { continue };
            for (from, to) in [(client.clone(), server.clone()), (server, client)] {
                let (budget, cuts) = (cut_after.clone(), cuts.clone());
                outer.go(async move {
                    loop {
                        let (n, buf) = from.recv(BytesMut::with_capacity(4096)).await;
                        let n = n.unwrap_or(0) as u64;
                        let left = budget.get();
                        let pass = n.min(left) as usize;
                        budget.set(if left == u64::MAX { left } else { left - pass as u64 });
                        let over = pass < n as usize;
                        cuts.set(cuts.get() + u32::from(over));
                        let cut = n == 0 || over;
                        if pass > 0 && to.send(vec![buf.freeze().slice(..pass)]).await.is_err()
                            || cut
                        {
                            from.close();
                            to.close();
                            return;
                        }
                    }
                });
            }
        }
    });
    EntityAddr::msgr2(addr, 0)
}

/// Story: the socket between two OSDs breaks at every possible place; each message must arrive
/// once and in order. (The cuts came after a time once; a slow machine had sent nothing by then.)
#[test]
fn lossless_sessions_survive_cut_connections() {
    over_sockets(|env| async move {
        for modes in [None, Some(vec![auth::MODE_SECURE])] {
            let (a, seen_a) = node(&env, EntityName::osd(0), osd_policies(), modes.clone());
            let (b, seen_b) = node(&env, EntityName::osd(1), osd_policies(), modes);
            let cut = Rc::new(Cell::new(u64::MAX));
            let cuts = Rc::new(Cell::new(0));
            // Both: after a cut either side may be the one that connects.
            for node in [&a, &b] {
                let real = node.bind(localhost()).unwrap().sock.unwrap();
                let proxy = cutting_proxy(&env, real, cut.clone(), cuts.clone());
                node.set_addrs(AddrVec::of(proxy));
            }
            let con = a.connect_to(OSD, &b.addrs());
            let total = 400;
            for tid in 1..=total {
                con.send(raw(1, tid, &[tid as u8; 900]));
                if tid % 3 == 0
                    && let Some(back) = b.connections().first()
                {
                    back.send(raw(1, 1000 + tid, b"back"));
                }
                if tid % 40 == 0 {
                    // What was queued since the last pause is longer than this.
                    cut.set(env.random_u64() % 9000);
                    let before = cuts.get();
                    until(&env, "a cut", || cuts.get() > before).await;
                    cut.set(u64::MAX);
                }
                // Every other cut meets a session that stands, the others its reconnect.
                if tid % 80 == 0 {
                    until(&env, "a session again", || seen_b.count.get() >= tid as usize).await;
                }
            }
            until(&env, "all", || seen_b.count.get() >= total as usize).await;
            assert_eq!(seen_b.tids(), (1..=total).collect::<Vec<_>>());
            let back = seen_a.tids();
            assert!(back.is_sorted() && !back.is_empty(), "{back:?}");
            // Connected or accepted, and again; no "reset".
            assert!(seen_a.events().len() > 2, "{:?}", seen_a.events());
            assert!(!seen_a.events().iter().any(|e| e.contains("reset")));
            assert!(!seen_b.events().iter().any(|e| e.contains("reset")));
            a.shutdown();
            b.shutdown();
        }
    });
}

/// The same of what is handed over within a thread, which breaks between two turns of a task.
#[test]
fn lossless_sessions_survive_broken_passages() {
    run(|env| async move {
        let (a, seen_a) = node(&env, EntityName::osd(0), osd_policies(), None);
        let (b, seen_b) = node(&env, EntityName::osd(1), osd_policies(), None);
        a.bind(localhost()).unwrap();
        b.bind(localhost()).unwrap();
        let con = a.connect_to(OSD, &b.addrs());
        let total = 2000;
        for tid in 1..=total {
            con.send(raw(1, tid, &[tid as u8; 900]));
            let back = b.connections().first().cloned();
            if let Some(back) = &back {
                back.send(raw(1, 10_000 + tid, b"back"));
            }
            for _ in 0..env.random_u64() % 6 {
                env::yield_now().await;
            }
            if tid % 50 == 0 {
                until(&env, "a session", || con.is_connected()).await;
                for _ in 0..env.random_u64() % 6 {
                    env::yield_now().await;
                }
                let before = seen_a.events().len();
                back.filter(|_| tid % 100 == 0).unwrap_or_else(|| con.clone()).break_socket();
                // The next break is of the next session: a turn of the reactor is longer than all
                // these messages. (The other end's may be of the session before: nothing breaks.)
                let noticed = async {
                    while seen_a.events().len() == before {
                        env::yield_now().await;
                    }
                };
                let _ = env.timeout(Duration::from_millis(50), noticed).await;
            }
        }
        until(&env, "all", || seen_b.count.get() >= total as usize).await;
        assert_eq!(seen_b.tids(), (1..=total).collect::<Vec<_>>());
        let sent_back = |tids: &[u64]| {
            tids.is_sorted_by(|a, b| a < b) && tids.last() == Some(&(10_000 + total))
        };
        until(&env, "all back", || sent_back(&seen_a.tids())).await;
        assert!(seen_a.events().len() > 10, "{:?}", seen_a.events());
        assert!(!seen_a.events().iter().chain(&seen_b.events()).any(|e| e.contains("reset")));
        a.shutdown();
        b.shutdown();
    });
}

/// Who is told by a throttle to wait takes no more from a peer of its thread than what is handed over at once.
#[test]
fn nobody_hands_over_more_than_is_taken() {
    let runtime = Runtime::new().unwrap();
    let env = runtime.tenants(&Within::default()).env(NonZeroU32::MIN);
    runtime.block_on(move |_| async move {
        let throttle = Throttle::new(1);
        let slow = Policy { throttle_messages: Some(throttle), ..Policy::lossless_peer() };
        let (server, seen) = node(&env, EntityName::osd(0), Policies::new(slow), None);
        seen.hold.set(true);
        server.bind(localhost()).unwrap();
        let (a, _) = node(&env, EntityName::osd(1), osd_policies(), None);
        let con = a.connect_to(OSD, &server.addrs());
        for tid in 1..=3000 {
            con.send(raw(1, tid, b"x"));
        }
        until(&env, "the first", || seen.count.get() == 1).await;
        env.sleep(Duration::from_millis(100)).await;
        assert_eq!(seen.count.get(), 1);
        // One batch is being looked at, one waits; what was taken is acknowledged with it, or not yet.
        let sent = con.unacknowledged();
        assert!(sent <= 3 * 256, "{sent}");
        seen.hold.set(false);
        seen.held.borrow_mut().clear();
        until(&env, "all", || seen.count.get() == 3000).await;
        server.shutdown();
        a.shutdown();
    });
}

/// Story: two OSDs connect to each other at the same moment; one session must result, and both
/// sides' messages arrive once.
#[test]
fn connect_races_end_in_one_session() {
    run(|env| async move {
        for _ in 0..20 {
            let (a, seen_a) = node(&env, EntityName::osd(0), osd_policies(), None);
            let (b, seen_b) = node(&env, EntityName::osd(1), osd_policies(), None);
            a.bind(localhost()).unwrap();
            b.bind(localhost()).unwrap();
            let (to_b, to_a) = (a.connect_to(OSD, &b.addrs()), b.connect_to(OSD, &a.addrs()));
            for tid in 1..=20 {
                to_b.send(raw(1, tid, b"x"));
                to_a.send(raw(1, tid, b"y"));
            }
            until(&env, "both", || seen_a.count.get() >= 20 && seen_b.count.get() >= 20).await;
            env.sleep(Duration::from_millis(20)).await;
            let want: Vec<u64> = (1..=20).collect();
            assert_eq!((seen_a.tids(), seen_b.tids()), (want.clone(), want));
            assert_eq!((a.connections().len(), b.connections().len()), (1, 1));
            a.shutdown();
            b.shutdown();
        }
    });
}

/// Story: an OSD restarts at the same address with another nonce; then a peer with resetcheck
/// restarts at the very same address and nonce, and must be noticed.
#[test]
fn a_restarted_peer_is_noticed() {
    run(|env| async move {
        let policies = || Policies::new(Policy::lossless_peer_reuse());
        let (a, seen_a) = node(&env, EntityName::mon(0), policies(), None);
        a.bind(localhost()).unwrap();
        let (b, _) = node(&env, EntityName::mon(1), policies(), None);
        b.bind(localhost()).unwrap();
        let b_addrs = b.addrs();
        b.connect_to(types::entity::MON, &a.addrs()).send(raw(1, 1, b""));
        until(&env, "first", || seen_a.count.get() == 1).await;
        b.shutdown();
        env.sleep(Duration::from_millis(30)).await;
        let (b, _) = node(&env, EntityName::mon(1), policies(), None);
        b.set_addrs(b_addrs);
        b.connect_to(types::entity::MON, &a.addrs()).send(raw(1, 2, b""));
        until(&env, "second", || seen_a.count.get() == 2).await;
        assert!(
            seen_a.events().contains(&"remote reset mon.1".to_owned()),
            "{:?}",
            seen_a.events()
        );
        a.shutdown();
        b.shutdown();
    });
}

/// Story: a message waits for a throttle when its sender restarts. It was for the session that is over: handed on in the
/// new one, it would also have that one's first messages taken for ones that were had before.
#[test]
fn what_waited_for_a_throttle_ends_with_its_session() {
    run(|env| async move {
        let slow =
            Policy { throttle_messages: Some(Throttle::new(1)), ..Policy::lossless_peer_reuse() };
        let (a, seen_a) = node(&env, EntityName::mon(0), Policies::new(slow), None);
        seen_a.hold.set(true);
        a.bind(localhost()).unwrap();
        let (b, _) =
            node(&env, EntityName::mon(1), Policies::new(Policy::lossless_peer_reuse()), None);
        b.bind(localhost()).unwrap();
        let b_addrs = b.addrs();
        let con = b.connect_to(types::entity::MON, &a.addrs());
        for tid in 1..=3 {
            con.send(raw(1, tid, b"before"));
        }
        until(&env, "the first", || seen_a.count.get() == 1).await;
        env.sleep(Duration::from_millis(30)).await;
        b.shutdown();
        env.sleep(Duration::from_millis(30)).await;
        let (b, _) =
            node(&env, EntityName::mon(1), Policies::new(Policy::lossless_peer_reuse()), None);
        b.set_addrs(b_addrs);
        let con = b.connect_to(types::entity::MON, &a.addrs());
        for tid in 11..=13 {
            con.send(raw(1, tid, b"after"));
        }
        until(&env, "a new session", || seen_a.events().iter().any(|e| e.contains("remote reset")))
            .await;
        seen_a.hold.set(false);
        seen_a.held.borrow_mut().clear();
        until(&env, "the new ones", || seen_a.count.get() >= 4).await;
        env.sleep(Duration::from_millis(30)).await;
        assert_eq!(seen_a.tids(), [11, 12, 13]);
        a.shutdown();
        b.shutdown();
    });
}

#[test]
fn clients_kind_is_kept() {
    run(|env| async move {
        let (server, _seen) = node(&env, EntityName::osd(0), osd_policies(), None);
        server.bind(localhost()).unwrap();
        let (client, _) = node(&env, EntityName::client(4123), client_policies(), None);
        client.connect_to(OSD, &server.addrs());
        until(&env, "accepted", || server.connections().len() == 1).await;
        let con = &server.connections()[0];
        assert_eq!(con.peer_kind(), CLIENT);
        assert_eq!(con.peer_name(), EntityName::client(4123));
        assert_eq!(con.peer_global_id(), 77);
        assert!(con.peer_caps().allow_all);
        assert_eq!(con.features(), msgr::FEATURES_ALL);
        server.shutdown();
        client.shutdown();
    });
}

/// Found by reading: sessions were known by the addresses that a peer says it has. A client that said
/// a manager's had the OSD end its session with the manager, and got what was sent to that.
#[test]
fn a_client_with_a_managers_addresses_is_no_manager() {
    run(|env| async move {
        let policies = Policies::new(Policy::stateless_server());
        let (manager, heard) = node(&env, EntityName::mgr(1), policies, None);
        manager.bind(localhost()).unwrap();
        let policies = osd_policies().with(MGR, Policy::lossy_client());
        let (server, seen) = node(&env, EntityName::osd(0), policies, None);
        server.bind(localhost()).unwrap();
        let con = server.connect_to(MGR, &manager.addrs());
        until(&env, "the manager", || con.is_connected()).await;
        let (client, _) = node(&env, EntityName::client(1), client_policies(), None);
        client.set_addrs(manager.addrs());
        client.connect_to(OSD, &server.addrs()).send(raw(1, 1, b""));
        until(&env, "the client", || seen.count.get() == 1).await;
        assert!(con.is_connected() && con.peer_name() == EntityName::mgr(1));
        assert!(!seen.events().iter().any(|e| e.starts_with("reset")), "{:?}", seen.events());

        // Nor when the client was first.
        con.mark_down();
        let con = server.connect_to(MGR, &manager.addrs());
        assert_eq!(con.peer_kind(), MGR);
        con.send(raw(1, 2, b""));
        until(&env, "the manager again", || heard.tids() == [2]).await;
        for messenger in [manager, server, client] {
            messenger.shutdown();
        }
    });
}

/// Found by reading: an address with a port that a client said it has was where it was, for `network`
/// in its caps.
#[test]
fn a_client_is_where_its_socket_is() {
    run(|env| async move {
        let (server, seen) = node(&env, EntityName::osd(0), osd_policies(), None);
        server.bind(localhost()).unwrap();
        let (client, _) = node(&env, EntityName::client(1), client_policies(), None);
        client.set_addrs(AddrVec::of("v2:10.1.2.3:6800/5".parse().unwrap()));
        client.connect_to(OSD, &server.addrs()).send(raw(1, 1, b""));
        until(&env, "the client", || seen.count.get() == 1).await;
        let con = &server.connections()[0];
        assert_eq!(con.peer_addrs(), client.addrs());
        assert_eq!(con.peer_socket_addr().sock.unwrap().ip(), localhost().ip());
        server.shutdown();
        client.shutdown();
    });
}

#[test]
fn shutting_down_frees_the_port() {
    run(|env| async move {
        let (first, _) = node(&env, EntityName::osd(0), osd_policies(), None);
        let addr = first.bind(localhost()).unwrap().sock.unwrap();
        first.shutdown();
        env.sleep(Duration::from_millis(20)).await;
        assert!(env.connect(addr).await.is_err());
        let (second, _) = node(&env, EntityName::osd(0), osd_policies(), None);
        assert_eq!(second.bind(addr).unwrap().sock, Some(addr));
        second.shutdown();
    });
}
