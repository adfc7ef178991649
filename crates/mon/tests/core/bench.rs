//! A monitor's core on a bench: messages in, what it sends out, and a clock that the test moves.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use auth::cephx::{CephxClient, MonHandler, MonRules};
use auth::{AuthCapsInfo, CryptoKey, EntityAuth, Keyring};
use bytes::Bytes;
use denc::Denc;
use maps::{MonInfo, MonMap, OsdMap};
use messages::{MMonCommand, MMonCommandAck, MOSDBoot, Message, PaxosHeader};
use mon::{Effect, Event, Identity, LocalLog, Log, MonCore, Now, Peer};
use store::Kv;
use store::kv::MemKv;
use types::osd::OsdSuperblock;
use types::{AddrVec, AuthEntityName, EntityAddr, EntityName, RawMessage, UTime, Uuid, entity};

pub(crate) const FSID: &str = "01234567-89ab-cdef-0123-456789abcdef";

/// A monitor, its log, and a clock that the test moves.
pub(crate) struct Bench {
    pub(crate) core: MonCore,
    pub(crate) log: LocalLog,
    pub(crate) now: Duration,
    /// The last request's number.
    pub(crate) tid: u64,
    /// Messages sent, by session, not yet taken.
    pub(crate) sent: BTreeMap<u64, Vec<RawMessage>>,
    /// What was written of the cluster log, by file.
    pub(crate) written: BTreeMap<Option<String>, String>,
    /// Commits are not told: a proposal stays under way.
    pub(crate) holds_commits: bool,
    /// Nor is anything committed: another monitor leads by now.
    pub(crate) loses_proposals: bool,
}

/// Start of the tests' monotonic clock.
pub(crate) const START: Duration = Duration::from_secs(10_000);

pub(crate) fn clock(now: Duration) -> Now {
    Now { wall: UTime::from_duration(Duration::from_secs(1_700_000_000) + now), mono: START + now }
}

/// Settings of every test, and `more` lines.
pub(crate) fn conf(more: &str) -> Rc<config::Config> {
    let conf = config::Config::new("mon", "a");
    let text = format!("[global]\nfsid = {FSID}\nmon_allow_pool_delete = true\n{more}\n");
    assert!(conf.load_file(&config::ConfFile::parse(&text).unwrap()).is_empty());
    Rc::new(conf)
}

pub(crate) fn fill(counter: &Cell<u8>) -> impl Fn(&mut [u8]) + '_ {
    move |buf| {
        for byte in buf {
            counter.set(counter.get().wrapping_add(1));
            *byte = counter.get();
        }
    }
}

pub(crate) fn fresh_kv() -> Rc<dyn Kv> {
    kv_of(&["a"])
}

/// A database of `mon.a` among these monitors.
pub(crate) fn kv_of(mons: &[&str]) -> Rc<dyn Kv> {
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

pub(crate) fn addr(port: u16) -> EntityAddr {
    EntityAddr::msgr2(std::net::SocketAddr::from(([127, 0, 0, 1], port)), u32::from(port))
}

impl Bench {
    pub(crate) fn new(kv: Rc<dyn Kv>) -> Bench {
        Bench::with(kv, "")
    }

    /// With lines of settings.
    pub(crate) fn with(kv: Rc<dyn Kv>, settings: &str) -> Bench {
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
        let mut core =
            MonCore::load(identity, conf(settings), kv, fill, Rc::default(), start).unwrap();
        let first = core.stand_alone(start).unwrap();
        let mut bench = Bench {
            core,
            log,
            now: Duration::ZERO,
            tid: 0,
            sent: BTreeMap::new(),
            written: BTreeMap::new(),
            holds_commits: false,
            loses_proposals: false,
        };
        bench.perform(first);
        let effects = bench.core.flush(clock(bench.now));
        bench.perform(effects);
        bench
    }

    pub(crate) fn perform(&mut self, effects: Vec<Effect>) {
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
                Effect::WriteLog(file, text) => {
                    *self.written.entry(file).or_default() += &text;
                }
                Effect::Close(_)
                | Effect::WakeAt(_)
                | Effect::OwnConfig(_)
                | Effect::Done(..)
                | Effect::AskMgr(..)
                | Effect::WantIds
                | Effect::GrantIds(..) => {}
            }
        }
    }

    pub(crate) fn step(&mut self, event: Event) {
        let effects = self.core.step(clock(self.now), event);
        self.perform(effects);
    }

    /// Lets time go by, a second at a time, at least 10 ms.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now + time.max(Duration::from_millis(10));
        while self.now < end {
            self.now = (self.now + Duration::from_secs(1)).min(end);
            self.step(Event::Timer);
        }
    }

    pub(crate) fn open(&mut self, id: u64, name: EntityName, auth: &str, caps: &str, port: u16) {
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
    pub(crate) fn admin_by_key(&mut self, id: u64) -> (CephxClient, Bytes) {
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

    pub(crate) fn admin(&mut self) -> u64 {
        self.open(1, EntityName::client(4001), "client.admin", "allow *", 5001);
        1
    }

    pub(crate) fn osd(&mut self, osd: i32) -> u64 {
        let id = 100 + osd as u64;
        let caps = "allow profile osd";
        self.open(id, EntityName::osd(osd), &format!("osd.{osd}"), caps, 6800 + osd as u16);
        id
    }

    pub(crate) fn send<M: Message>(&mut self, from: u64, message: &M) {
        self.tid += 1;
        self.step(Event::Message(from, Message::encode(message).with_tid(self.tid)));
    }

    pub(crate) fn take<M: Message>(&mut self, session: u64) -> Vec<M> {
        let all = self.sent.remove(&session).unwrap_or_default();
        let (ours, rest): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|raw| raw.header.kind == M::TYPE);
        self.sent.insert(session, rest);
        ours.iter().map(|raw| <M as Message>::decode(raw).unwrap()).collect()
    }

    /// Runs a command and lets it commit.
    pub(crate) fn command(&mut self, from: u64, json: &str) -> MMonCommandAck {
        self.command_with(from, json, b"")
    }

    /// A command with input.
    pub(crate) fn command_with(&mut self, from: u64, json: &str, input: &[u8]) -> MMonCommandAck {
        self.send(
            from,
            &MMonCommand {
                fsid: FSID.parse().unwrap(),
                cmd: vec![json.into()],
                input: Bytes::copy_from_slice(input),
                ..MMonCommand::default()
            },
        );
        self.pass(Duration::ZERO);
        let mut acks = self.take::<MMonCommandAck>(from);
        assert_eq!(acks.len(), 1, "{json}");
        acks.remove(0)
    }

    pub(crate) fn out(&mut self, from: u64, json: &str) -> String {
        let ack = self.command(from, json);
        assert_eq!(ack.rc, 0, "{json}: {}", ack.outs);
        String::from_utf8(ack.outb.to_vec()).unwrap()
    }

    pub(crate) fn map(&mut self) -> OsdMap {
        let admin = if self.sent.contains_key(&1) { 1 } else { self.admin() };
        let ack = self.command(admin, r#"{"prefix":"osd getmap"}"#);
        OsdMap::from_bytes(&ack.outb).unwrap()
    }

    pub(crate) fn boot(&mut self, osd: i32) -> u64 {
        self.boot_with(osd, 0)
    }

    /// One whose store has maps up to `newest_map`.
    pub(crate) fn boot_with(&mut self, osd: i32, newest_map: u32) -> u64 {
        let session = self.osd(osd);
        let sb = OsdSuperblock {
            cluster_fsid: FSID.parse().unwrap(),
            osd_fsid: Uuid([osd as u8 + 1; 16]),
            whoami: osd,
            newest_map,
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
    pub(crate) fn three_osds(&mut self) -> Vec<u64> {
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

pub(crate) fn futures<T>(mut future: env::LocalFuture<T>) -> T {
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    match future.as_mut().poll(&mut context) {
        std::task::Poll::Ready(value) => value,
        std::task::Poll::Pending => panic!("the local log commits at once"),
    }
}

/// Numbers that follow from a seed (splitmix64).
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// A thousand lives, from the seed on that a variable of the environment names.
pub(crate) fn many(variable: &str, live: impl Fn(u64)) {
    let first = std::env::var(variable).map_or(1000, |n| n.parse().unwrap());
    for seed in first..first + 1000 {
        println!("seed {seed}");
        live(seed);
    }
}
