//! Hunting in a simulated network: three monitors that believe everybody, of which one after the
//! other dies, falls silent or leaves the quorum; the client must find another one and finish what it asked for.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use auth::cephx::StartRequest;
use auth::{AuthCapsInfo, AuthError, METHOD_NONE};
use bytes::Bytes;
use denc::Denc;
use env::Env;
use maps::{MonInfo, MonMap};
use messages::{
    MMonCommand, MMonCommandAck, MMonGetVersion, MMonGetVersionReply, MMonMap, MMonSubscribe,
    MOSDMap, Message,
};
use monclient::{MonClient, MonError, OsdMaps, Settings};
use msgr::{
    Accepted, AuthServer, Config, Connection, Dispatcher, Incoming, Messenger, Policies, Policy,
    ServerExchange, ServerStep, SessionKeys, Stranger,
};
use sim::{Control, Kill, World};
use types::addr::{AddrVec, EntityAddr};
use types::entity::EntityName;
use types::{AuthEntityName, RawMessage, Uuid};

const MONS: [&str; 3] = ["mon.0", "mon.1", "mon.2"];

/// A command whose answer does not decode.
const GARBLED: &str = "garbled";

/// Whoever comes, with the next id, or nobody while the ids are `REFUSES`.
struct Believes(Rc<Cell<u64>>);
struct Step(Rc<Cell<u64>>);

const REFUSES: u64 = u64::MAX;

impl AuthServer for Believes {
    fn allowed_methods(&self, _: u8) -> Vec<u32> {
        vec![METHOD_NONE]
    }
    fn accept(&self, _: Stranger, _: u32) -> Result<Box<dyn ServerExchange>, AuthError> {
        Ok(Box::new(Step(self.0.clone())))
    }
}

impl ServerExchange for Step {
    fn step(&mut self, payload: Bytes, _: u32) -> Result<ServerStep, AuthError> {
        let start = StartRequest::from_bytes(&payload)?;
        if self.0.get() == REFUSES {
            return Err(AuthError::UnknownEntity);
        }
        let global_id = if start.global_id == 0 {
            self.0.set(self.0.get() + 1);
            self.0.get()
        } else {
            start.global_id
        };
        Ok(ServerStep::Done(Box::new(Accepted {
            reply: Bytes::new(),
            global_id,
            name: start.name,
            caps: AuthCapsInfo::allow_all(),
            keys: SessionKeys::default(),
            state: None,
        })))
    }
}

/// Answers after a while, so that requests are open when it dies.
struct Mon {
    env: Env,
    monmap: Bytes,
    subscribed: Rc<RefCell<Vec<String>>>,
    exited: Rc<Cell<bool>>,
}

impl Dispatcher for Mon {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        let raw = incoming.into_message();
        if self.exited.get() {
            return con.mark_down();
        }
        let tid = raw.header.tid;
        let answer = match raw.header.kind {
            MMonSubscribe::TYPE => {
                let wish = <MMonSubscribe as Message>::decode(&raw).unwrap();
                self.subscribed.borrow_mut().extend(wish.what.keys().cloned());
                Message::encode(&MMonMap { monmap: self.monmap.clone() })
            }
            MMonCommand::TYPE => {
                let outs = MMonCommand::decode(&raw).unwrap().cmd[0].to_string();
                self.subscribed.borrow_mut().push(outs.clone());
                let garbled = outs == GARBLED;
                let ack = MMonCommandAck { outs, ..MMonCommandAck::default() }.encode();
                if garbled { RawMessage { front: Bytes::new(), ..ack } } else { ack }
            }
            MMonGetVersion::TYPE => {
                let asked = <MMonGetVersion as Message>::decode(&raw).unwrap();
                let (version, oldest_version) = (9, 1);
                let handle = asked.handle;
                Message::encode(&MMonGetVersionReply { handle, version, oldest_version })
            }
            _ => return,
        };
        let (env, con) = (self.env.clone(), con.clone());
        self.env.go(async move {
            env.sleep(Duration::from_millis(200)).await;
            con.send(answer.with_tid(tid));
        });
    }
}

fn addrs(world: &Control) -> Vec<AddrVec> {
    let of = |name: &&str| AddrVec::of(EntityAddr::msgr2(SocketAddr::new(world.ip(name), 3300), 0));
    MONS.iter().map(of).collect()
}

/// Gives what makes it leave the quorum.
fn start_mon(
    world: &Control,
    id: usize,
    ids: &Rc<Cell<u64>>,
    wishes: &Rc<RefCell<Vec<String>>>,
) -> Rc<Cell<bool>> {
    let env = world.node(MONS[id]);
    let mut monmap = MonMap { fsid: Uuid([1; 16]), epoch: 1, ..MonMap::default() };
    for (name, public_addrs) in ["a", "b", "c"].iter().zip(addrs(world)) {
        let name = (*name).to_owned();
        monmap.add(MonInfo { name, public_addrs, ..MonInfo::default() });
    }
    let config =
        Config::new(EntityName::mon(id as i64), 0, Policies::new(Policy::stateless_server()));
    let messenger = Messenger::new(env.clone(), config);
    messenger.set_auth_server(Rc::new(Believes(ids.clone())));
    let (subscribed, exited) = (wishes.clone(), Rc::new(Cell::new(false)));
    messenger.set_dispatcher(Rc::new(Mon {
        env: env.clone(),
        monmap: monmap.to_bytes(),
        subscribed,
        exited: exited.clone(),
    }));
    messenger.bind(SocketAddr::new(world.ip(MONS[id]), 3300)).unwrap();
    // Lives as long as its process.
    env.go(async move {
        let _messenger = messenger;
        core::future::pending::<()>().await;
    });
    exited
}

/// The client's, and how many sessions it had.
struct Owner(MonClient, Cell<u32>);

impl Dispatcher for Owner {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        drop(self.0.on_message(con, incoming));
    }
    fn on_connect(&self, con: &Connection) {
        self.0.on_connect(con);
        self.1.set(self.1.get() + u32::from(self.0.session().as_ref() == Some(con)));
    }
    fn on_reset(&self, con: &Connection) {
        self.0.on_reset(con);
    }
    // As OSDs do.
    fn on_refused(&self, con: &Connection) {
        self.0.on_reset(con);
    }
}

/// All of them, at first in the quorum.
struct Mons {
    ids: Rc<Cell<u64>>,
    wishes: Rc<RefCell<Vec<String>>>,
    exited: Vec<Rc<Cell<bool>>>,
}

fn start_mons(world: &World) -> Mons {
    let control = world.control();
    MONS.iter().for_each(|name| drop(world.node(name)));
    let (ids, wishes) = (Rc::new(Cell::new(4000)), Rc::new(RefCell::new(Vec::new())));
    let start = |(id, name): (usize, &&str)| {
        control.kill(name, Kill::PROCESS);
        start_mon(&control, id, &ids, &wishes)
    };
    let exited = MONS.iter().enumerate().map(start).collect();
    Mons { ids, wishes, exited }
}

fn start_client(world: &World, seed: u64) -> (Env, Messenger, MonClient, Rc<Owner>) {
    let env = world.node("client");
    let config = Config::new(EntityName::client(-1), 5, Policies::new(Policy::lossy_client()));
    let messenger = Messenger::new(env.clone(), config);
    // It knows one of them; the monmap tells the others.
    let first = addrs(&world.control())[seed as usize % 3].clone();
    let settings = Settings::new(AuthEntityName::new(8, "x"), None, vec![first]);
    let monc = MonClient::new(env.clone(), messenger.clone(), settings);
    let owner = Rc::new(Owner(monc.clone(), Cell::new(0)));
    messenger.set_dispatcher(owner.clone());
    monc.start();
    (env, messenger, monc, owner)
}

fn lose_monitors(seed: u64, how: Kill) {
    let world = World::new(seed);
    let control = world.control();
    let Mons { ids, wishes, .. } = start_mons(&world);
    let (env, messenger, monc, _) = start_client(&world, seed);
    let begun = monc.clone();
    world.run_until(async move {
        begun.authenticated().await.unwrap();
        begun.monmap_ready().await.unwrap();
    });
    let global_id = monc.global_id();
    assert_eq!(global_id, 4001);
    monc.subscribe("osdmap", 7, 0);
    for round in 0..6 {
        let asked = (0..3).map(|i| {
            let monc = monc.clone();
            env.spawn_with_handle(async move {
                let text = format!("command {round} {i}");
                let answer = monc.command(vec![text.clone()], Bytes::new()).await.unwrap();
                assert_eq!(answer.outs, text);
                let versions = monc.versions("osdmap").await.unwrap();
                assert_eq!((versions.newest, versions.oldest), (9, 1));
            })
        });
        let asked: Vec<_> = asked.collect();
        world.run_for(Duration::from_millis(control.rng().below(300)));
        // The monitor of the session goes away.
        let at = monc.session().map(|con| con.peer_addrs());
        let lost = at.and_then(|at| addrs(&control).iter().position(|addrs| *addrs == at));
        if let Some(lost) = lost {
            control.kill(MONS[lost], how);
        }
        world.run_until(async move {
            for one in asked {
                one.await;
            }
        });
        assert_eq!(monc.global_id(), global_id);
        if let Some(lost) = lost {
            let now = monc.session().unwrap().peer_addrs();
            assert_ne!(now, addrs(&control)[lost]);
            start_mon(&control, lost, &ids, &wishes);
        }
    }
    let told = wishes.borrow().iter().filter(|what| *what == "osdmap").count();
    assert!(told > 3, "each session is told what is wanted: {told}");
    monc.shutdown();
    messenger.shutdown();
}

#[test]
fn a_killed_monitor_is_replaced() {
    (0..12).for_each(|seed| lose_monitors(seed, Kill::PROCESS));
}

#[test]
fn a_silent_monitor_is_replaced() {
    (20..26).for_each(|seed| lose_monitors(seed, Kill::POWER));
}

/// Who asked was told that the client had been shut down when the answer did not decode.
#[test]
fn an_answer_that_does_not_decode_is_told_as_that() {
    let world = World::new(1);
    start_mons(&world);
    let (_, messenger, monc, _) = start_client(&world, 1);
    let asks = monc.clone();
    world.run_until(async move {
        for (command, decodes) in [(GARBLED, false), ("a good one", true)] {
            let answer = asks.command(vec![command.to_owned()], Bytes::new()).await;
            assert_eq!(answer.is_ok(), decodes, "{answer:?}");
            assert!(decodes || matches!(answer, Err(MonError::Decode(_))), "{answer:?}");
        }
    });
    monc.shutdown();
    messenger.shutdown();
}

/// Who asks each few seconds and waits for so long only left all its requests behind while there was no monitor; the next one got
/// all of them.
#[test]
fn what_nobody_waits_for_is_not_asked() {
    let world = World::new(3);
    let Mons { ids, wishes, .. } = start_mons(&world);
    let (env, messenger, monc, _) = start_client(&world, 3);
    let begun = monc.clone();
    world.run_until(async move { drop(begun.monmap_ready().await.unwrap()) });
    let control = world.control();
    MONS.iter().for_each(|name| control.kill(name, Kill::POWER));
    let asks = monc.clone();
    world.run_until(async move {
        for _ in 0..20 {
            let lost = asks.command(vec!["left".to_owned()], Bytes::new());
            assert!(env.timeout(Duration::from_secs(1), lost).await.is_err());
        }
    });
    for id in 0..MONS.len() {
        start_mon(&control, id, &ids, &wishes);
    }
    let asks = monc.clone();
    world.run_until(async move {
        asks.command(vec!["asked".to_owned()], Bytes::new()).await.unwrap();
    });
    let count = |what: &str| wishes.borrow().iter().filter(|wish| *wish == what).count();
    assert_eq!((count("left"), count("asked")), (0, 1));
    monc.shutdown();
    messenger.shutdown();
}

/// A monitor gives its newest whole map as often as it is asked. Whoever could not decode it asked for it again as soon as
/// it came, for as long as that map was the newest.
#[test]
fn a_map_that_does_not_decode_is_asked_for_again_after_a_pause() {
    let world = World::new(1);
    let Mons { wishes, .. } = start_mons(&world);
    let (_, messenger, monc, _) = start_client(&world, 1);
    let begun = monc.clone();
    world.run_until(async move { drop(begun.monmap_ready().await) });
    let maps = OsdMaps::new();
    let bad = MOSDMap {
        fsid: monc.fsid(),
        maps: [(3, Bytes::from_static(b"no map"))].into(),
        oldest_map: 1,
        newest_map: 3,
        ..MOSDMap::default()
    };
    let wished = || wishes.borrow().iter().filter(|what| *what == "osdmap").count();
    for seconds in 1..=4 {
        for _ in 0..100 {
            assert!(maps.take(&monc, &bad, false).is_empty());
        }
        world.run_for(Duration::from_secs(2));
        assert_eq!(wished(), seconds);
    }
    monc.shutdown();
    messenger.shutdown();
}

/// Monitors that were told to leave the quorum let clients in and send each away at its first word. Clients
/// came back at once, some hundred times a second.
#[test]
fn monitors_out_of_the_quorum_are_left_in_peace() {
    for seed in 0..6 {
        let world = World::new(seed);
        let Mons { exited, .. } = start_mons(&world);
        let (_, messenger, monc, owner) = start_client(&world, seed);
        let begun = monc.clone();
        world.run_until(async move { drop(begun.monmap_ready().await) });
        let leave = |out: &[usize]| (0..3).for_each(|id| exited[id].set(out.contains(&id)));
        let asks = |monc: &MonClient| {
            let asked = monc.clone();
            let answered =
                async move { asked.command(vec!["x".to_owned()], Bytes::new()).await.unwrap() };
            world.run_until(async move { drop(answered.await) });
        };
        // One or two of them cost no time: the others are tried at once.
        for out in [vec![0], vec![1, 2], vec![0, 2]] {
            leave(&out);
            let before = world.control().now();
            asks(&monc);
            assert!(world.control().now() - before < Duration::from_secs(1), "without {out:?}");
        }
        leave(&[0, 1, 2]);
        monc.reopen();
        owner.1.set(0);
        world.run_for(Duration::from_secs(600));
        // A round of all three each thirty seconds, and more of them at first.
        assert!((20 * 3..40 * 3).contains(&owner.1.get()), "{} sessions", owner.1.get());
        leave(&[1]);
        asks(&monc);
        monc.shutdown();
        messenger.shutdown();
    }
}

/// Where nobody listened, as where a monitor is stopped, each attempt of a hunt went on by itself when the next hunt began: an
/// OSD without its monitor had thousands of connections after some minutes, which all came in when it was back.
#[test]
fn attempts_end_with_their_hunt() {
    let world = World::new(7);
    let control = world.control();
    let Mons { ids, wishes, .. } = start_mons(&world);
    let (_, messenger, monc, _) = start_client(&world, 7);
    let begun = monc.clone();
    world.run_until(async move { drop(begun.monmap_ready().await) });
    MONS.iter().for_each(|name| control.kill(name, Kill::PROCESS));
    world.run_for(Duration::from_secs(60));
    assert!(messenger.connections().len() <= 3, "{:?}", messenger.connections());
    (0..3).for_each(|id| drop(start_mon(&control, id, &ids, &wishes)));
    world.run_for(Duration::from_secs(60));
    assert_eq!(messenger.connections().len(), 1);
    assert!(monc.session().is_some());
    monc.shutdown();
    messenger.shutdown();
}

/// The same where a key had been taken away: thirty more connections a second, each of which asked again and again.
#[test]
fn attempts_that_are_refused_end() {
    let world = World::new(8);
    let Mons { ids, .. } = start_mons(&world);
    let (_, messenger, monc, owner) = start_client(&world, 8);
    let begun = monc.clone();
    world.run_until(async move { drop(begun.monmap_ready().await) });
    let known = ids.replace(REFUSES);
    monc.reopen();
    world.run_for(Duration::from_secs(60));
    assert!(monc.session().is_none());
    assert!(messenger.connections().len() <= 3, "{:?}", messenger.connections());
    ids.set(known);
    owner.1.set(0);
    world.run_for(Duration::from_secs(60));
    assert_eq!((messenger.connections().len(), owner.1.get()), (1, 1));
    monc.shutdown();
    messenger.shutdown();
}
