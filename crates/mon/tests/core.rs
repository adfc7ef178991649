//! The core without a daemon around it: events in, effects out, over a database in memory.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use auth::cephx::{CephxClient, MonHandler, MonRules};
use auth::{AuthCapsInfo, CryptoKey, EntityAuth, Keyring, METHOD_CEPHX};
use bytes::Bytes;
use denc::Denc;
use maps::{MonInfo, MonMap, OsdMap};
use messages::{
    MAuth, MAuthReply, MConfig, MMgrBeacon, MMgrMap, MMonCommand, MMonCommandAck, MMonSubscribe,
    MOSDAlive, MOSDBeacon, MOSDBoot, MOSDFailure, MOSDMap, MOSDMarkMeDead, MOSDPGCreate2,
    MOSDPGCreated, MPoolOp, MPoolOpReply, Message, PaxosHeader, PoolOpCode, SubscribeItem,
};
use mon::{Effect, Event, Identity, LocalLog, Log, MonCore, Now, Peer};
use store::Kv;
use store::kv::MemKv;
use types::osd::OsdSuperblock;
use types::{AddrVec, AuthEntityName, EntityAddr, EntityName, RawMessage, UTime, Uuid, entity};

const FSID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// A monitor, its log, and a clock that the test moves.
struct Bench {
    core: MonCore,
    log: LocalLog,
    now: Duration,
    /// The last request's number.
    tid: u64,
    /// Messages sent, by session, not yet taken.
    sent: BTreeMap<u64, Vec<RawMessage>>,
    /// Commits are not told: a proposal stays under way.
    holds_commits: bool,
    /// Nor is anything committed: another monitor leads by now.
    loses_proposals: bool,
}

/// Start of the tests' monotonic clock.
const START: Duration = Duration::from_secs(10_000);

fn clock(now: Duration) -> Now {
    Now { wall: UTime::from_duration(Duration::from_secs(1_700_000_000) + now), mono: START + now }
}

/// Settings of every test, and `more` lines.
fn conf(more: &str) -> Rc<config::Config> {
    let conf = config::Config::new("mon", "a");
    let text = format!("[global]\nfsid = {FSID}\nmon_allow_pool_delete = true\n{more}\n");
    assert!(conf.load_file(&config::ConfFile::parse(&text).unwrap()).is_empty());
    Rc::new(conf)
}

fn fill(counter: &Cell<u8>) -> impl Fn(&mut [u8]) + '_ {
    move |buf| {
        for byte in buf {
            counter.set(counter.get().wrapping_add(1));
            *byte = counter.get();
        }
    }
}

fn fresh_kv() -> Rc<dyn Kv> {
    kv_of(&["a"])
}

/// A database of `mon.a` among these monitors.
fn kv_of(mons: &[&str]) -> Rc<dyn Kv> {
    let kv = Rc::new(MemKv::new());
    let now = clock(Duration::ZERO).wall;
    let counter = Cell::new(0);
    let fill = fill(&counter);
    let mut keyring = Keyring::new();
    for (kind, id) in [(entity::MON, ""), (entity::CLIENT, "admin")] {
        let auth = EntityAuth::new(CryptoKey::generate(&fill, now), [("mon", "allow *")]);
        keyring.keys.insert(AuthEntityName::new(kind, id), auth);
    }
    let mut monmap = MonMap {
        fsid: FSID.parse().unwrap(),
        created: now,
        last_changed: now,
        min_mon_release: 16,
        ..MonMap::default()
    };
    for (port, name) in (3300..).zip(mons) {
        monmap.add(MonInfo {
            name: (*name).into(),
            public_addrs: AddrVec::of(addr(port)),
            ..MonInfo::default()
        });
    }
    mon::mkfs(&*kv, &conf(""), &monmap, &keyring, now, &fill).unwrap();
    kv
}

fn addr(port: u16) -> EntityAddr {
    EntityAddr::msgr2(std::net::SocketAddr::from(([127, 0, 0, 1], port)), u32::from(port))
}

impl Bench {
    fn new(kv: Rc<dyn Kv>) -> Bench {
        Bench::with(kv, "")
    }

    /// With lines of settings.
    fn with(kv: Rc<dyn Kv>, settings: &str) -> Bench {
        let identity = Identity { name: "a".into(), metadata: BTreeMap::new() };
        let log = LocalLog::new(kv.clone()).unwrap();
        let counter = Cell::new(7u8);
        let fill = Box::new(move |buf: &mut [u8]| {
            for byte in buf {
                counter.set(counter.get().wrapping_add(1));
                *byte = counter.get();
            }
        });
        let start = clock(Duration::ZERO);
        let mut core = MonCore::load(identity, conf(settings), kv, fill, start).unwrap();
        let first = core.stand_alone(start).unwrap();
        let mut bench = Bench {
            core,
            log,
            now: Duration::ZERO,
            tid: 0,
            sent: BTreeMap::new(),
            holds_commits: false,
            loses_proposals: false,
        };
        bench.perform(first);
        let effects = bench.core.flush(clock(bench.now));
        bench.perform(effects);
        bench
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Send(to, message) => self.sent.entry(to).or_default().push(message),
                Effect::Propose(_) if self.loses_proposals => {}
                Effect::Propose(batch) => {
                    // The local log commits at once.
                    let done = self.log.propose(batch);
                    futures(done).unwrap();
                    if self.holds_commits {
                        continue;
                    }
                    let effects = self.core.step(clock(self.now), Event::Committed);
                    self.perform(effects);
                }
                Effect::Close(_)
                | Effect::WakeAt(_)
                | Effect::OwnConfig(_)
                | Effect::Done(..)
                | Effect::WantIds
                | Effect::GrantIds(..) => {}
            }
        }
    }

    fn step(&mut self, event: Event) {
        let effects = self.core.step(clock(self.now), event);
        self.perform(effects);
    }

    /// Lets time go by, a second at a time, at least 10 ms.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time.max(Duration::from_millis(10));
        while self.now < end {
            self.now = (self.now + Duration::from_secs(1)).min(end);
            self.step(Event::Timer);
        }
    }

    fn open(&mut self, id: u64, name: EntityName, auth: &str, caps: &str, port: u16) {
        let peer = Peer {
            name,
            auth_name: auth.parse().unwrap(),
            caps: AuthCapsInfo::from_text(caps),
            global_id: 4000 + id,
            addrs: AddrVec::of(addr(port)),
            socket_addr: addr(port),
            features: types::features::ALL,
            handshake: None,
        };
        self.step(Event::Opened(id, Rc::new(peer)));
    }

    /// Lets `client.admin` in by its key; its side of the handshake and the monitor's challenge.
    fn admin_by_key(&mut self, id: u64) -> (CephxClient, Bytes) {
        let name: AuthEntityName = "client.admin".parse().unwrap();
        let counter = Cell::new(50);
        let fill = fill(&counter);
        let keys = self.core.key_server();
        let keys = keys.borrow();
        let key = keys.auth(&name).unwrap().key.clone();
        let mut client = CephxClient::new(name.clone(), key);
        let (handshake, challenge) = MonHandler::start(name.clone(), 4200, true, &fill);
        let proof = client.on_challenge(&challenge, u32::from(entity::OSD), &fill).unwrap();
        let now = clock(self.now).wall;
        let rules = MonRules { keys: &keys, now, fill: &fill, allow_insecure_reclaim: false };
        let done = handshake.authenticate(&proof, false, &rules).unwrap();
        client.on_done(4200, &done.reply, now).unwrap();
        drop(keys);
        let peer = Peer {
            name: EntityName::client(4200),
            auth_name: name,
            caps: done.caps,
            global_id: 4200,
            addrs: AddrVec::of(addr(5001)),
            socket_addr: addr(5001),
            features: types::features::ALL,
            handshake: Some(Rc::new(handshake)),
        };
        self.step(Event::Opened(id, Rc::new(peer)));
        (client, challenge)
    }

    fn admin(&mut self) -> u64 {
        self.open(1, EntityName::client(4001), "client.admin", "allow *", 5001);
        1
    }

    fn osd(&mut self, osd: i32) -> u64 {
        let id = 100 + osd as u64;
        let caps = "allow profile osd";
        self.open(id, EntityName::osd(osd), &format!("osd.{osd}"), caps, 6800 + osd as u16);
        id
    }

    fn send<M: Message>(&mut self, from: u64, message: &M) {
        self.tid += 1;
        self.step(Event::Message(from, Message::encode(message).with_tid(self.tid)));
    }

    fn take<M: Message>(&mut self, session: u64) -> Vec<M> {
        let all = self.sent.remove(&session).unwrap_or_default();
        let (ours, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|raw| raw.header.kind == M::TYPE);
        self.sent.insert(session, rest);
        ours.iter().map(|raw| <M as Message>::decode(raw).unwrap()).collect()
    }

    /// Runs a command and lets it commit.
    fn command(&mut self, from: u64, json: &str) -> MMonCommandAck {
        self.send(
            from,
            &MMonCommand {
                fsid: FSID.parse().unwrap(),
                cmd: vec![json.to_string()],
                ..MMonCommand::default()
            },
        );
        self.pass(Duration::ZERO);
        let mut acks = self.take::<MMonCommandAck>(from);
        assert_eq!(acks.len(), 1, "{json}");
        acks.remove(0)
    }

    fn out(&mut self, from: u64, json: &str) -> String {
        let ack = self.command(from, json);
        assert_eq!(ack.rc, 0, "{json}: {}", ack.outs);
        String::from_utf8(ack.outb.to_vec()).unwrap()
    }

    fn map(&mut self) -> OsdMap {
        let admin = if self.sent.contains_key(&1) { 1 } else { self.admin() };
        let ack = self.command(admin, r#"{"prefix":"osd getmap"}"#);
        OsdMap::from_bytes(&ack.outb).unwrap()
    }

    fn boot(&mut self, osd: i32) -> u64 {
        let session = self.osd(osd);
        let sb = OsdSuperblock {
            cluster_fsid: FSID.parse().unwrap(),
            osd_fsid: Uuid([osd as u8 + 1; 16]),
            whoami: osd,
            ..OsdSuperblock::default()
        };
        self.send(
            session,
            &MOSDBoot {
                // It has seen every map so far.
                paxos: PaxosHeader::at(1000),
                sb,
                hb_back_addrs: AddrVec::of(addr(7000 + osd as u16)),
                cluster_addrs: AddrVec::of(addr(7100 + osd as u16)),
                boot_epoch: 0,
                hb_front_addrs: AddrVec::of(addr(7200 + osd as u16)),
                metadata: BTreeMap::from([("hostname".to_string(), "h".to_string())]),
                osd_features: 0,
            },
        );
        self.pass(Duration::ZERO);
        session
    }

    /// Three OSDs in the tree and up.
    fn three_osds(&mut self) -> Vec<u64> {
        let admin = self.admin();
        (0..3)
            .map(|osd| {
                self.command(admin, r#"{"prefix":"osd create"}"#);
                let class = format!(
                    r#"{{"prefix":"osd crush set-device-class","class":"ssd","ids":["{osd}"]}}"#
                );
                self.command(admin, &class);
                let place = format!(
                    r#"{{"prefix":"osd crush create-or-move","id":{osd},"weight":1.0,"args":["host=h{osd}","root=default"]}}"#
                );
                assert_eq!(self.command(admin, &place).rc, 0);
                self.boot(osd)
            })
            .collect()
    }
}

fn futures<T>(mut future: env::LocalFuture<T>) -> T {
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the local log commits at once"),
    }
}

#[test]
fn osds_boot_and_the_map_says_so() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let map = b.map();
    assert_eq!((map.num_osds(), map.num_up_osds(), map.num_in_osds()), (3, 3, 3));
    assert_eq!(map.crush.class_of(2), Some("ssd"));
    assert_eq!(map.uuid(1), Uuid([2; 16]));
}

#[test]
fn nothing_is_answered_before_it_is_committed() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let create = MMonCommand {
        fsid: FSID.parse().unwrap(),
        cmd: vec![r#"{"prefix":"osd pool create","pool":"p"}"#.into()],
        ..MMonCommand::default()
    };
    b.send(admin, &create);
    // Once more: it is there already, in memory, and that waits as well.
    b.send(admin, &create);
    assert!(b.take::<MMonCommandAck>(admin).is_empty());
    b.pass(Duration::ZERO);
    let acks = b.take::<MMonCommandAck>(admin);
    assert_eq!(acks.len(), 2);
    assert_eq!(acks[0].outs, "pool 'p' created");
    assert_eq!(acks[1].outs, "pool 'p' already exists");
    assert_eq!(b.out(admin, r#"{"prefix":"osd pool ls"}"#), "p\n");
}

/// The manager map was shown as it was in memory when a proposal was committed, with what had changed
/// while that was under way: under an epoch of which the database, and the next leader, had another map.
#[test]
fn a_manager_map_is_shown_as_it_was_committed() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let what = BTreeMap::from([("mgrmap".to_string(), SubscribeItem { start: 0, flags: 0 })]);
    b.send(admin, &MMonSubscribe { what, hostname: "h".into() });
    let before = b.take::<MMgrMap>(admin).pop().unwrap().map;
    assert_eq!(before.active_gid, 0);
    b.open(2, EntityName::new(entity::MGR, 4002), "mgr.x", "allow profile mgr", 5002);
    let beacon = |available| MMgrBeacon {
        gid: 4002,
        name: "x".into(),
        fsid: FSID.parse().unwrap(),
        available,
        ..MMgrBeacon::default()
    };
    b.holds_commits = true;
    b.send(2, &beacon(false));
    b.pass(Duration::ZERO);
    b.send(2, &beacon(true));
    assert!(b.take::<MMgrMap>(admin).is_empty(), "nothing is committed");
    b.holds_commits = false;
    b.step(Event::Committed);
    let shown: Vec<_> = b.take::<MMgrMap>(admin).into_iter().map(|m| m.map).collect();
    let said: Vec<_> = shown.iter().map(|m| (m.epoch, m.active_gid, m.available)).collect();
    assert_eq!(said, [(before.epoch + 1, 4002, false)]);
    b.pass(Duration::ZERO);
    let shown = b.take::<MMgrMap>(admin).pop().unwrap().map;
    assert_eq!((shown.epoch, shown.available), (before.epoch + 2, true));
}

#[test]
fn requests_that_arrive_together_share_an_epoch() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let before = b.map().epoch;
    for name in ["a", "b", "c"] {
        b.send(
            admin,
            &MMonCommand {
                fsid: FSID.parse().unwrap(),
                cmd: vec![format!(r#"{{"prefix":"osd pool create","pool":"{name}"}}"#)],
                ..MMonCommand::default()
            },
        );
    }
    b.pass(Duration::ZERO);
    b.take::<MMonCommandAck>(admin);
    let map = b.map();
    assert_eq!(map.epoch, before + 1);
    assert_eq!(map.pool_names.values().collect::<Vec<_>>(), ["a", "b", "c"]);
}

/// A simulated life in which an OSD never came back: `osd new` and `osd in` shared an epoch, whose
/// weight made the OSD exist and whose flips, counted without the weight, made it cease to.
#[test]
fn an_osd_may_change_more_than_once_in_an_epoch() {
    const MAYBE: [&str; 9] = [
        r#"{"prefix":"osd new","uuid":"11111111-1111-1111-1111-000000000005","id":5}"#,
        r#"{"prefix":"osd new","uuid":"11111111-1111-1111-1111-000000000000","id":0}"#,
        r#"{"prefix":"osd in","ids":["0","5"]}"#,
        r#"{"prefix":"osd out","ids":["0","5"]}"#,
        r#"{"prefix":"osd reweight","id":5,"weight":0.5}"#,
        r#"{"prefix":"osd rm","ids":["5"]}"#,
        r#"{"prefix":"osd purge-actual","id":0,"yes_i_really_mean_it":true}"#,
        r#"{"prefix":"osd destroy-actual","id":0,"yes_i_really_mean_it":true}"#,
        r#"{"prefix":"osd set-group","flags":"noup","who":["0","5"]}"#,
    ];
    let (new, purge) = (MAYBE[1], MAYBE[6]);
    assert!(new.contains("osd new") && purge.contains("osd purge"));
    let outcome = |commands: &[&str], together: bool| {
        let mut b = Bench::new(fresh_kv());
        b.three_osds();
        b.command(1, r#"{"prefix":"osd down","ids":["0"]}"#);
        let before = b.map().epoch;
        for json in commands {
            let cmd = vec![(*json).to_owned()];
            b.send(1, &MMonCommand { fsid: FSID.parse().unwrap(), cmd, ..MMonCommand::default() });
            if !together {
                b.pass(Duration::ZERO);
            }
        }
        for _ in commands {
            b.pass(Duration::ZERO);
        }
        let mut answers = b.take::<MMonCommandAck>(1);
        answers.sort_by_key(|ack| commands.iter().position(|c| *c == ack.cmd[0]));
        let answers: Vec<_> = answers.into_iter().map(|ack| (ack.cmd, ack.rc)).collect();
        let map = b.map();
        let osds: Vec<_> = map.osds().map(|osd| (osd, map.state(osd), map.weight(osd))).collect();
        (map.epoch - before, answers, osds)
    };
    let (mut shared, all) = (0, MAYBE.len());
    for number in 0..all * all * all {
        let three = [number / all / all, number / all % all, number % all];
        let commands = three.map(|which| MAYBE[which]);
        if commands.starts_with(&[purge, new]) {
            // A number is free again with the next epoch: `osd new` waits, and what follows does not.
            continue;
        }
        let (epochs, answers, osds) = outcome(&commands, true);
        shared += u32::from(epochs == 1);
        let (_, answers_apart, osds_apart) = outcome(&commands, false);
        assert_eq!((answers, osds), (answers_apart, osds_apart), "{commands:#?}");
    }
    assert!(shared > 400, "{shared}");
}

/// A leader died after it had committed a command and before its answer left: the client's monitor
/// sent the command to the next leader, which made a second OSD.
#[test]
fn a_command_sent_again_is_not_done_again() {
    let kv = fresh_kv();
    let mut b = Bench::new(kv.clone());
    let admin = b.admin();
    let create = r#"{"prefix":"osd create"}"#;
    let first = b.command(admin, create);
    let mut next = Bench::new(kv);
    let admin = next.admin();
    next.tid = b.tid - 1;
    let again = next.command(admin, create);
    assert_eq!(again.outb, first.outb);
    assert_eq!(next.map().num_osds(), 1);
    assert_ne!(next.command(admin, create).outb, first.outb);
}

#[test]
fn state_survives_a_restart() {
    let kv = fresh_kv();
    let mut b = Bench::new(kv.clone());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    b.out(1, r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"4"}"#);
    b.out(1, r#"{"prefix":"config-key set","key":"k","val":"v"}"#);
    let key = b.out(1, r#"{"prefix":"auth get-or-create-key","entity":"client.x"}"#);
    let map = b.map();
    drop(b);
    let mut b = Bench::new(kv);
    let admin = b.admin();
    assert_eq!(b.map(), map);
    assert_eq!(
        b.out(admin, r#"{"prefix":"config get","who":"osd.1","key":"osd_max_backfills"}"#),
        "4\n"
    );
    assert_eq!(b.out(admin, r#"{"prefix":"config-key get","key":"k"}"#), "v");
    assert_eq!(b.out(admin, r#"{"prefix":"auth print-key","entity":"client.x"}"#), key);
}

#[test]
fn steps_of_the_map_lead_to_its_checksum() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let watcher = 50;
    b.open(watcher, EntityName::client(4050), "client.w", "allow r", 5050);
    let item = SubscribeItem { start: 1, flags: 0 };
    let what = BTreeMap::from([("osdmap".to_string(), item)]);
    b.send(watcher, &MMonSubscribe { what, hostname: String::new() });
    b.out(1, r#"{"prefix":"osd pool create","pool":"p"}"#);
    b.out(1, r#"{"prefix":"osd out","ids":["1"]}"#);
    let mut map: Option<OsdMap> = None;
    for message in b.take::<MOSDMap>(watcher) {
        for bytes in message.maps.values() {
            map = Some(OsdMap::from_bytes(bytes).unwrap());
        }
        for bytes in message.incremental_maps.values() {
            let inc = maps::Incremental::from_bytes(bytes).unwrap();
            let next = map.get_or_insert_with(OsdMap::default);
            next.apply(&inc).unwrap();
            let (_, crc) = next.encode_with_crc();
            assert_eq!(crc, inc.full_crc, "epoch {}", inc.epoch);
        }
    }
    let map = map.unwrap();
    assert!(map.is_out(1) && map.lookup_pool("p").is_some());
}

#[test]
fn primaries_are_told_to_make_placement_groups_until_they_have() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    for session in &osds {
        let item = SubscribeItem { start: 0, flags: 0 };
        let what = BTreeMap::from([("osd_pg_creates".to_string(), item)]);
        b.send(*session, &MMonSubscribe { what, hostname: "h".into() });
    }
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":16}"#);
    let pool = b.map().lookup_pool("p").unwrap();
    let mut made = 0;
    for session in &osds {
        for create in b.take::<MOSDPGCreate2>(*session) {
            for pgid in create.pgs.keys() {
                made += 1;
                b.send(*session, &MOSDPGCreated { paxos: PaxosHeader::at(0), pgid: pgid.pgid });
            }
        }
    }
    assert_eq!(made, 16);
    assert!(b.map().pool(pool).unwrap().has_flag(maps::pool::pool_flags::CREATING));
    b.pass(Duration::from_secs(2));
    assert!(!b.map().pool(pool).unwrap().has_flag(maps::pool::pool_flags::CREATING));
}

fn failure(target: i32, flags: u8, failed_for: i32) -> MOSDFailure {
    MOSDFailure {
        paxos: PaxosHeader::at(0),
        fsid: FSID.parse().unwrap(),
        target_osd: target,
        target_addrs: AddrVec::of(addr(6800 + target as u16)),
        epoch: 1,
        flags,
        failed_for,
    }
}

#[test]
fn a_refused_connection_is_believed_at_once_silence_needs_two_reporters() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.send(osds[0], &failure(2, messages::FAILURE_FAILED, 30));
    b.pass(Duration::from_secs(1));
    assert!(b.map().is_up(2));
    b.send(osds[1], &failure(2, messages::FAILURE_FAILED, 30));
    b.pass(Duration::from_secs(1));
    assert!(b.map().is_down(2));
    b.send(osds[0], &failure(1, messages::FAILURE_FAILED | messages::FAILURE_IMMEDIATE, 0));
    b.pass(Duration::ZERO);
    assert!(b.map().is_down(1));
}

/// Whether one more may go out was asked of what would be left: of three OSDs none ever went, with
/// Ceph's 0.75 (`mon_osd_min_in_ratio`). Ceph asks how many are in before.
#[test]
fn an_osd_that_stays_down_goes_out_and_comes_back_in() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.send(osds[0], &failure(2, messages::FAILURE_FAILED | messages::FAILURE_IMMEDIATE, 0));
    b.pass(Duration::from_secs(300));
    // The others are alive, as their beacons would say.
    assert!(b.map().is_in(2));
    b.pass(Duration::from_secs(310));
    assert!(b.map().is_out(2));
    b.send(osds[0], &failure(1, messages::FAILURE_FAILED | messages::FAILURE_IMMEDIATE, 0));
    b.pass(Duration::from_secs(620));
    assert!(b.map().is_down(1) && b.map().is_in(1), "two of three are fewer than 0.75");
    b.step(Event::Closed(102));
    b.boot(2);
    let map = b.map();
    assert!(map.is_up(2) && map.is_in(2));
}

/// The share of OSDs that are up (`mon_osd_min_up_ratio`, 0.3) likewise counts before one goes down:
/// the last one of three never did.
#[test]
fn the_last_silent_osd_goes_down_too() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.pass(Duration::from_secs(1000));
    assert_eq!(b.map().num_up_osds(), 0);
}

/// While a placement group was being made, only its epoch kept maps from being forgotten: the maps
/// that all other placement groups still needed went.
#[test]
fn making_a_pool_forgets_no_maps_of_others() {
    let settings =
        "mon_min_osdmap_epochs = 5\npaxos_service_trim_min = 1\nmon_osd_report_timeout = 9000";
    let mut b = Bench::with(fresh_kv(), settings);
    let osds = b.three_osds();
    for session in &osds {
        let item = SubscribeItem { start: 0, flags: 0 };
        let what = BTreeMap::from([("osd_pg_creates".to_string(), item)]);
        b.send(*session, &MMonSubscribe { what, hostname: "h".into() });
    }
    let created = |b: &mut Bench| {
        for session in &osds {
            for create in b.take::<MOSDPGCreate2>(*session) {
                for pgid in create.pgs.keys() {
                    let pgid = pgid.pgid;
                    b.send(*session, &MOSDPGCreated { paxos: PaxosHeader::at(0), pgid });
                }
            }
        }
        b.pass(Duration::from_secs(10));
    };
    let first = |b: &mut Bench| {
        let report: serde_json::Value =
            serde_json::from_str(&b.out(1, r#"{"prefix":"report"}"#)).unwrap();
        report["osdmap_first_committed"].as_u64().unwrap()
    };
    b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8}"#);
    created(&mut b);
    let needed = b.map().epoch;
    for session in &osds {
        let beacon = MOSDBeacon {
            paxos: PaxosHeader::at(needed.into()),
            pgs: Vec::new(),
            min_last_epoch_clean: needed,
            last_purged_snaps_scrub: UTime::ZERO,
            osd_beacon_report_interval: 9000,
        };
        b.send(*session, &beacon);
    }
    for _ in 0..10 {
        b.out(1, r#"{"prefix":"osd set","key":"noout"}"#);
        b.out(1, r#"{"prefix":"osd unset","key":"noout"}"#);
    }
    b.pass(Duration::from_secs(10));
    assert!((2..=u64::from(needed)).contains(&first(&mut b)));
    b.out(1, r#"{"prefix":"osd pool create","pool":"q","pg_num":8}"#);
    for _ in 0..10 {
        b.out(1, r#"{"prefix":"osd set","key":"noout"}"#);
        b.out(1, r#"{"prefix":"osd unset","key":"noout"}"#);
    }
    b.pass(Duration::from_secs(10));
    assert!(first(&mut b) <= u64::from(needed), "{} {needed}", first(&mut b));
}

/// An exception from CRUSH stayed when the OSD it names was moved next to another copy, or out of the
/// rule's tree: Ceph drops such, ours went on putting two copies into one host.
#[test]
fn upmaps_go_when_the_tree_no_longer_allows_them() {
    for there in ["host=h%,root=default", "host=far,root=other"] {
        let mut b = Bench::new(fresh_kv());
        b.three_osds();
        b.out(1, r#"{"prefix":"osd pool create","pool":"p","pg_num":8,"size":2}"#);
        let map = b.map();
        let pgid = types::PgId::new(map.lookup_pool("p").unwrap() as u64, 0);
        let up = map.pg_to_up_acting(pgid).up;
        let third = (0..3).find(|osd| !up.contains(osd)).unwrap();
        let upmap = format!(
            r#"{{"prefix":"osd pg-upmap-items","pgid":"{pgid}","id":[{},{third}]}}"#,
            up[0]
        );
        assert_eq!(b.command(1, &upmap).rc, 0);
        assert_eq!(b.map().pg_to_up_acting(pgid).up, [third, up[1]]);
        b.out(1, r#"{"prefix":"osd reweight","id":0,"weight":0.9}"#);
        assert!(b.map().pg_upmap_items.contains_key(&pgid), "it is as good as before");
        let there: Vec<_> =
            there.replace('%', &up[1].to_string()).split(',').map(|w| format!("\"{w}\"")).collect();
        let there = there.join(",");
        b.out(
            1,
            &format!(r#"{{"prefix":"osd crush set","id":{third},"weight":1.0,"args":[{there}]}}"#),
        );
        assert!(!b.map().pg_upmap_items.contains_key(&pgid), "{there}");
        let now = b.map().pg_to_up_acting(pgid).up;
        assert!(!(now.contains(&third) && now.contains(&up[1])), "{there}: {now:?}");
    }
}

/// Two ways in which an OSD that is gone was still named in an epoch with fewer OSDs, which then did
/// not apply: removed and cut off at once, and "I am dead" from one long removed. Each monitor in turn
/// panicked.
#[test]
fn epochs_with_fewer_osds_name_none_that_are_gone() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    b.out(1, r#"{"prefix":"osd down","ids":["2"]}"#);
    for json in [
        r#"{"prefix":"osd purge-actual","id":2,"yes_i_really_mean_it":true}"#,
        r#"{"prefix":"osd setmaxosd","newmax":2}"#,
    ] {
        let cmd = vec![json.to_owned()];
        b.send(1, &MMonCommand { fsid: FSID.parse().unwrap(), cmd, ..MMonCommand::default() });
    }
    b.pass(Duration::from_secs(2));
    let answers = b.take::<MMonCommandAck>(1);
    assert!(answers.len() == 2 && answers.iter().all(|ack| ack.rc == 0), "{answers:?}");
    assert_eq!(b.map().max_osd, 2);
    let (fsid, epoch) = (FSID.parse().unwrap(), b.map().epoch);
    let paxos = PaxosHeader::at(0);
    b.send(osds[2], &MOSDMarkMeDead { paxos, fsid, target_osd: 2, epoch });
    b.pass(Duration::from_secs(2));
    assert_eq!(b.map().epoch, epoch);
}

/// A time so far away that no clock can tell it made whichever monitor led panic, one after the other.
#[test]
fn an_alert_may_be_muted_for_longer_than_time_lasts() {
    let mut b = Bench::new(fresh_kv());
    b.admin();
    let mute =
        format!(r#"{{"prefix":"health mute","code":"X","ttl":"{}","sticky":true}}"#, u64::MAX);
    assert_eq!(b.command(1, &mute).rc, 0);
}

/// A map with a loop, or with so many tries that no PG is ever placed, was taken, and whoever got it
/// hung: the monitors too.
#[test]
fn a_crush_map_that_nobody_can_follow_is_refused() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let mut crush = (*b.map().crush).clone();
    let set = |b: &mut Bench, crush: &crush::CrushMap| {
        let (fsid, cmd) = (FSID.parse().unwrap(), r#"{"prefix":"osd setcrushmap"}"#.to_owned());
        let command = MMonCommand { fsid, cmd: vec![cmd], ..MMonCommand::default() };
        b.tid += 1;
        let mut raw = Message::encode(&command).with_tid(b.tid);
        raw.data.push(crush.to_bytes());
        b.step(Event::Message(1, raw));
        b.pass(Duration::ZERO);
        b.take::<MMonCommandAck>(1).remove(0)
    };
    assert_eq!(set(&mut b, &crush).rc, 0);
    crush.tunables.choose_total_tries = 20_000;
    let refused = set(&mut b, &crush);
    let text = "crushmap is refused: 20000 tries are more than 10000";
    assert_eq!((refused.rc, refused.outs.as_str()), (-22, text));
    assert_ne!(b.map().crush.tunables.choose_total_tries, 20_000);
}

/// A monitor whose leader was gone sent its clients' pool operations to the next one, and clients were
/// told of errors: that what they had just made was there already.
#[test]
fn pool_operations_may_be_repeated() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let op = |b: &mut Bench, pool: u32, op: u32, name: &str| {
        let (fsid, name) = (FSID.parse().unwrap(), name.to_owned());
        b.send(1, &MPoolOp { fsid, pool, op, name, crush_rule: -1, ..MPoolOp::default() });
        b.pass(Duration::ZERO);
        b.take::<MPoolOpReply>(1).remove(0).reply_code
    };
    for _ in 0..2 {
        assert_eq!(op(&mut b, 0, PoolOpCode::CREATE, "p"), 0);
    }
    let pool = b.map().lookup_pool("p").unwrap() as u32;
    for (code, snaps) in [(PoolOpCode::CREATE_SNAP, 1), (PoolOpCode::DELETE_SNAP, 0)] {
        for _ in 0..2 {
            assert_eq!(op(&mut b, pool, code, "s"), 0);
            assert_eq!(b.map().pool(pool.into()).unwrap().snaps.len(), snaps);
        }
    }
    for _ in 0..2 {
        assert_eq!(op(&mut b, pool, PoolOpCode::DELETE, ""), 0);
        assert!(b.map().pool(pool.into()).is_none());
    }
    assert_eq!(op(&mut b, pool, PoolOpCode::CREATE_SNAP, "s"), -2);
    // Snapshots of the pool and snapshots of clients still exclude each other.
    assert_eq!(op(&mut b, 0, PoolOpCode::CREATE, "q"), 0);
    let pool = b.map().lookup_pool("q").unwrap() as u32;
    assert_eq!(op(&mut b, pool, PoolOpCode::CREATE_UNMANAGED_SNAP, ""), 0);
    assert_eq!(op(&mut b, pool, PoolOpCode::DELETE_SNAP, "s"), -22);
}

/// A pool took any rule: an erasure coded one over a rule for replicas had holes for good where the
/// rule moves copies up.
#[test]
fn a_pools_rule_is_of_its_type() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let create = |b: &mut Bench, name: &str, kind: &str, rule: &str| {
        let json = format!(
            r#"{{"prefix":"osd pool create","pool":"{name}","pg_num":8,"pgp_num":8,"pool_type":"{kind}"{rule}}}"#
        );
        let ack = b.command(1, &json);
        (ack.rc, ack.outs)
    };
    let replicated = r#","erasure_code_profile":"default","rule":"replicated_rule""#;
    let mismatch = |rule: u8| (-22, format!("crush rule {rule} type does not match pool"));
    assert_eq!(create(&mut b, "e", "erasure", replicated), mismatch(0));
    assert_eq!(create(&mut b, "e", "erasure", "").0, 0);
    let rule = b.map().pool(1).unwrap().crush_rule;
    assert_eq!(create(&mut b, "r", "replicated", r#","rule":"erasure-code""#), mismatch(rule));
}

/// A leader that had been replaced applied the next one's entries onto what it had proposed itself,
/// and showed its subscribers an OSD map that was never committed.
#[test]
fn a_deposed_leader_shows_no_map_that_was_not_committed() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let what = BTreeMap::from([("osdmap".to_string(), SubscribeItem { start: 0, flags: 0 })]);
    b.send(1, &MMonSubscribe { what, hostname: "h".into() });
    let before = b.map().epoch;
    b.take::<MOSDMap>(1);
    b.loses_proposals = true;
    let cmd = vec![r#"{"prefix":"osd set","key":"noout"}"#.to_owned()];
    b.send(1, &MMonCommand { fsid: FSID.parse().unwrap(), cmd, ..MMonCommand::default() });
    b.pass(Duration::from_secs(1));
    let effects = b.core.applied(clock(b.now), &store::KvBatch::new()).unwrap();
    b.perform(effects);
    assert!(b.take::<MOSDMap>(1).is_empty(), "only epoch {before} is committed");
}

/// `sync_force` looked for one other monitor in the quorum. One of three is not enough for the new
/// member that comes back: the cluster had no quorum any more.
#[test]
fn sync_force_needs_a_majority_of_others() {
    let answer = |others: &[&str]| {
        let mut b = Bench::new(kv_of(&["a", "b", "c"]));
        let quorum = others.iter().map(|name| (*name).to_owned()).chain(["a".to_owned()]);
        let standing = mon::Standing { quorum: quorum.collect(), ..b.core.standing().clone() };
        let effects = b.core.stand(clock(b.now), standing).unwrap();
        b.perform(effects);
        let json = r#"{"prefix":"sync_force","validate":"--yes-i-really-mean-it"}"#;
        let map = command::CommandMap::parse(&[json.to_owned()]).unwrap();
        b.core.admin_command(&map, Bytes::new()).rc
    };
    assert_eq!(answer(&["b"]), -16);
    assert_eq!(answer(&["b", "c"]), 0);
}

#[test]
fn up_thru_grows_as_asked() {
    let mut b = Bench::new(fresh_kv());
    let osds = b.three_osds();
    let epoch = b.map().epoch;
    b.send(osds[0], &MOSDAlive { paxos: PaxosHeader::at(epoch.into()), want: epoch });
    b.pass(Duration::ZERO);
    assert!(b.map().info(0).unwrap().up_thru >= epoch);
}

#[test]
fn snapshot_ids_of_clients_grow_and_exclude_pool_snapshots() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    b.out(1, r#"{"prefix":"osd pool create","pool":"p"}"#);
    let pool = b.map().lookup_pool("p").unwrap() as u32;
    let op = |b: &mut Bench, op: u32, snapid: u64| {
        b.send(
            1,
            &MPoolOp {
                fsid: FSID.parse().unwrap(),
                pool,
                op,
                snapid,
                name: "s".into(),
                ..MPoolOp::default()
            },
        );
        b.pass(Duration::ZERO);
        b.take::<MPoolOpReply>(1).remove(0)
    };
    // A pool that `rados cppool` filled knows no snapshots of clients: `rbd snap rm` there was told
    // EINVAL, which is for pools with snapshots of their own.
    assert_eq!(op(&mut b, PoolOpCode::DELETE_UNMANAGED_SNAP, 1).reply_code, -95);
    let first = op(&mut b, PoolOpCode::CREATE_UNMANAGED_SNAP, 0);
    assert_eq!(first.reply_code, 0);
    assert_eq!(first.response_data.as_deref(), Some(&2u64.to_le_bytes()[..]));
    let second = op(&mut b, PoolOpCode::CREATE_UNMANAGED_SNAP, 0);
    assert_eq!(second.response_data.as_deref(), Some(&3u64.to_le_bytes()[..]));
    assert_eq!(op(&mut b, PoolOpCode::CREATE_SNAP, 0).reply_code, -22);
    assert_eq!(op(&mut b, PoolOpCode::DELETE_UNMANAGED_SNAP, 2).reply_code, 0);
    let map = b.map();
    assert!(map.removed_snaps_queue[&i64::from(pool)].contains(2));
}

#[test]
fn capabilities_bound_what_commands_do() {
    let mut b = Bench::new(fresh_kv());
    b.open(60, EntityName::client(4060), "client.ro", "allow r", 5060);
    let denied = b.command(60, r#"{"prefix":"osd pool create","pool":"p"}"#);
    assert_eq!((denied.rc, denied.outs.as_str()), (-13, "access denied"));
    assert_eq!(b.command(60, r#"{"prefix":"osd dump"}"#).rc, 0);
    assert_eq!(b.command(60, r#"{"prefix":"auth ls"}"#).rc, -13);
    assert_eq!(b.command(60, r#"{"prefix":"config-key get","key":"k"}"#).rc, -13);
}

#[test]
fn nonsense_gets_einval() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    for (json, text) in [
        (r#"{"prefix":"no such thing"}"#, "command not known"),
        (r#"{"x":1}"#, "command prefix not found"),
        (r#"{"prefix":""}"#, "command prefix must not be empty"),
        (r#"{"prefix":"osd find"}"#, "bad or missing field 'id'"),
    ] {
        let ack = b.command(admin, json);
        assert_eq!((ack.rc, ack.outs.as_str()), (-22, text), "{json}");
    }
    assert_eq!(b.command(admin, "{").rc, -22);
}

/// `osd create` answered EEXIST for an id in use, and took ids without a uuid.
#[test]
fn osd_create_looks_at_ids_only_with_a_uuid() {
    let mut b = Bench::new(fresh_kv());
    b.three_osds();
    let create = |b: &mut Bench, rest: &str| {
        let ack = b.command(1, &format!(r#"{{"prefix":"osd create"{rest}}}"#));
        (ack.rc, String::from_utf8_lossy(&ack.outb).trim().to_string())
    };
    let uuid = |n: u32| format!(r#","uuid":"11111111-1111-1111-1111-{n:012}""#);
    let with = |n: u32, id: u32| format!(r#"{},"id":{id}"#, uuid(n));
    assert_eq!(create(&mut b, &with(7, 0)).0, -22);
    assert_eq!(create(&mut b, r#","id":9"#), (0, "3".to_string()));
    assert_eq!(create(&mut b, &with(7, 5)), (0, "5".to_string()));
    assert_eq!(create(&mut b, &with(7, 5)), (0, "5".to_string()));
    assert_eq!(create(&mut b, &uuid(7)), (0, "5".to_string()));
    assert_eq!(create(&mut b, &with(7, 6)).0, -17);
    assert_eq!(create(&mut b, &uuid(8)), (0, "4".to_string()));
}

/// What Ceph's own suite of the command line asks for and did not get.
#[test]
fn flags_features_and_deprecated_commands() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    // Targets that are nothing at all were taken with a word and no error.
    let ack = b.command(admin, r#"{"prefix":"osd add-noup","ids":["797er"]}"#);
    let words = "unable to parse osd id or crush node or device class: \"797er\". ";
    assert_eq!((ack.rc, ack.outs.as_str()), (-22, words));
    let ack = b.command(admin, r#"{"prefix":"osd add-noup","ids":["77","797er"]}"#);
    assert_eq!(ack.rc, 0, "{}", ack.outs);
    let ack = b.command(admin, r#"{"prefix":"osd rm-noup","ids":["1234567"]}"#);
    assert_eq!(ack.rc, -22);

    // Flags of a bucket outlived it, and health warned of nothing.
    let out = |b: &mut Bench, json: &str| b.out(admin, json);
    out(&mut b, r#"{"prefix":"osd crush add-bucket","name":"foo","type":"host"}"#);
    out(&mut b, r#"{"prefix":"osd add-noup","ids":["foo"]}"#);
    assert_eq!(b.map().crush_node_flags.len(), 1);
    out(&mut b, r#"{"prefix":"osd crush rm","name":"foo"}"#);
    assert!(b.map().crush_node_flags.is_empty());

    // An OSD cannot be up and destroyed: the tree was printed all the same.
    for (states, rc) in [(r#""up","in""#, 0), (r#""up","destroyed""#, -22), (r#""in","out""#, -22)]
    {
        let ack = b.command(admin, &format!(r#"{{"prefix":"osd tree","states":[{states}]}}"#));
        assert_eq!(ack.rc, rc, "{states}");
    }
    let profile = |key: &str| {
        format!(r#"{{"prefix":"osd erasure-code-profile set","name":"e","profile":["{key}=osd"]}}"#)
    };
    let ack = b.command(admin, &profile("ruleset-failure-domain"));
    assert_eq!(ack.rc, -22);
    assert!(ack.outs.ends_with("try 'crush-failure-domain' instead"), "{}", ack.outs);
    assert_eq!(b.command(admin, &profile("crush-failure-domain")).rc, 0);

    let set = |name: &str, sure: &str| {
        format!(r#"{{"prefix":"mon feature set","feature_name":"{name}"{sure}}}"#)
    };
    let sure = r#","yes_i_really_mean_it":true"#;
    assert_eq!(b.command(admin, &set("abcd", sure)).rc, -2);
    assert_eq!(b.command(admin, &set("kraken", "")).rc, -1);
    let ack = b.command(admin, &set("kraken", sure));
    assert_eq!((ack.rc, ack.outs.as_str()), (0, "setting feature 'mon_feature_t([kraken])'"));

    let list = r#"{"prefix":"config-key list"}"#;
    assert_eq!(b.command(admin, list).rc, 0);
    let inject = |word: &str| format!(r#"{{"prefix":"injectargs","injected_args":["--{word}"]}}"#);
    b.out(admin, &inject("mon-debug-deprecated-as-obsolete"));
    let ack = b.command(admin, list);
    assert_eq!(ack.rc, -95);
    assert!(ack.outs.starts_with("command is obsolete"), "{}", ack.outs);
    b.out(admin, &inject("no-mon-debug-deprecated-as-obsolete"));
    assert_eq!(b.command(admin, list).rc, 0);
}

#[test]
fn options_reach_who_subscribed_and_only_when_they_change() {
    let mut b = Bench::new(fresh_kv());
    b.admin();
    let osd = b.osd(0);
    let what = BTreeMap::from([("config".to_string(), SubscribeItem { start: 0, flags: 0 })]);
    b.send(osd, &MMonSubscribe { what, hostname: "h".into() });
    assert_eq!(b.take::<MConfig>(osd).len(), 1);
    b.out(1, r#"{"prefix":"config set","who":"osd","name":"osd_max_backfills","value":"4"}"#);
    let sent = b.take::<MConfig>(osd);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].config["osd_max_backfills"], "4");
    b.out(1, r#"{"prefix":"config set","who":"mgr","name":"mgr_tick_period","value":"4"}"#);
    assert!(b.take::<MConfig>(osd).is_empty());
}

#[test]
fn bytes_that_are_no_message_end_the_session() {
    let mut b = Bench::new(fresh_kv());
    let admin = b.admin();
    let good = Message::encode(&MMonCommand {
        fsid: FSID.parse().unwrap(),
        cmd: vec![r#"{"prefix":"fsid"}"#.into()],
        ..MMonCommand::default()
    });
    for len in 0..good.front.len() {
        let mut cut = good.clone();
        cut.front = good.front.slice(..len);
        b.step(Event::Message(admin, cut));
        b.admin();
    }
    let mut wild = good.clone();
    wild.front = Bytes::from(vec![0xff; 200]);
    for kind in 0..0x800u16 {
        wild.header.kind = kind;
        b.step(Event::Message(admin, wild.clone()));
        b.admin();
    }
    assert_eq!(b.out(1, r#"{"prefix":"fsid"}"#), FSID);
}

/// A librados client renews its auth ticket inside the session, proving its key again with the
/// handshake's challenge. The monitor had forgotten the handshake, refused, and the client lost its
/// session every 12 hours.
#[test]
fn an_auth_ticket_is_renewed_in_the_session() {
    let mut bench = Bench::new(fresh_kv());
    let (mut client, challenge) = bench.admin_by_key(9);
    let before = client.ticket(entity::AUTH).unwrap().session_key.clone();
    bench.pass(Duration::from_secs(60));
    let counter = Cell::new(99);
    let keys = u32::from(entity::OSD);
    let payload = client.on_challenge(&challenge, keys, &fill(&counter)).unwrap();
    bench.send(9, &MAuth { protocol: METHOD_CEPHX, payload, ..MAuth::default() });
    let replies: Vec<MAuthReply> = bench.take(9);
    assert_eq!(replies.len(), 1);
    assert_eq!(replies[0].result, 0, "{}", replies[0].message);
    client.on_done(4200, &replies[0].payload, clock(bench.now).wall).unwrap();
    assert_ne!(client.ticket(entity::AUTH).unwrap().session_key, before);
}
