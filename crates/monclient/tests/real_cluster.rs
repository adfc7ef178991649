//! Against real Ceph 16.2: a session with its monitor and one with its OSD. `CEPH_PEER` names the
//! folder of a running cluster (with `ceph.conf` and `keyring`); without it the tests say so and
//! pass.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use auth::Keyring;
use bytes::Bytes;
use env::Env;
use env::real::Runtime;
use env::sync::Notify;
use maps::{MonMap, OsdMap};
use messages::{MCommand, MCommandReply, MOSDMap, Message, SUBSCRIBE_ONETIME};
use monclient::{MonClient, MonEvents, Settings, parse_mon_host};
use msgr::{Config, Connection, Dispatcher, Incoming, Messenger, Policies, Policy};
use types::addr::AddrVec;
use types::entity::{EntityName, MGR, MON, OSD};
use types::message::RawMessage;

fn peer() -> Option<PathBuf> {
    let dir = std::env::var_os("CEPH_PEER").map(PathBuf::from);
    if dir.is_none() {
        eprintln!("CEPH_PEER is not set: nothing is checked");
    }
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::DEBUG)
        .with_test_writer()
        .try_init();
    dir
}

struct Owner {
    monc: MonClient,
    inbox: RefCell<Vec<RawMessage>>,
    config: RefCell<Option<BTreeMap<String, String>>>,
    log: RefCell<Vec<&'static str>>,
    changed: Notify,
}

impl Dispatcher for Owner {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        let Some(incoming) = self.monc.on_message(con, incoming) else { return };
        self.inbox.borrow_mut().push(incoming.into_message());
        self.changed.notify_all();
    }
    fn on_connect(&self, con: &Connection) {
        self.monc.on_connect(con);
    }
    fn on_reset(&self, con: &Connection) {
        self.monc.on_reset(con);
    }
    fn on_remote_reset(&self, _: &Connection) {
        self.log.borrow_mut().push("reset");
    }
}

impl MonEvents for Owner {
    fn on_session(&self, _: &Connection) {
        self.log.borrow_mut().push("session");
        self.changed.notify_all();
    }
    fn on_session_lost(&self) {
        self.log.borrow_mut().push("lost");
    }
    fn on_monmap(&self, _: &Rc<MonMap>) {
        self.log.borrow_mut().push("monmap");
    }
    fn on_config(&self, config: BTreeMap<String, String>) {
        *self.config.borrow_mut() = Some(config);
        self.changed.notify_all();
    }
}

impl Owner {
    async fn message(&self, kind: u16) -> RawMessage {
        let at = || self.inbox.borrow().iter().position(|m| m.header.kind == kind);
        self.changed.until(|| at().is_some()).await;
        let at = at().unwrap();
        self.inbox.borrow_mut().remove(at)
    }
}

fn open(
    env: &Env,
    dir: &Path,
    name: &str,
    tune: impl FnOnce(&mut Settings),
) -> (Messenger, Rc<Owner>) {
    let conf = std::fs::read_to_string(dir.join("ceph.conf")).unwrap();
    let mon_host = conf.lines().find_map(|line| line.strip_prefix("mon_host = ")).unwrap();
    let name: types::AuthEntityName = name.parse().unwrap();
    let file = if name.kind_u8() == OSD {
        dir.join(format!("osd.{}/keyring", name.id))
    } else {
        dir.join("keyring")
    };
    let keyring = Keyring::from_file(&std::fs::read(file).unwrap()).unwrap();
    let mons = parse_mon_host(mon_host).unwrap();
    let mut settings = Settings::new(name.clone(), keyring.key(&name).cloned(), mons);
    if conf.contains("auth_client_required = none") {
        settings.methods = vec![auth::METHOD_NONE];
    }
    tune(&mut settings);
    let own = EntityName { kind: if name.is_client() { 8 } else { name.kind_u8() }, num: -1 };
    let config = Config::new(own, 4242, Policies::new(Policy::lossy_client()));
    let messenger = Messenger::new(env.clone(), config);
    let monc = MonClient::new(env.clone(), messenger.clone(), settings);
    let owner = Rc::new(Owner {
        monc,
        inbox: RefCell::default(),
        config: RefCell::default(),
        log: RefCell::default(),
        changed: Notify::default(),
    });
    messenger.set_dispatcher(owner.clone());
    let events: Rc<dyn MonEvents> = owner.clone();
    owner.monc.set_events(&events);
    owner.monc.start();
    (messenger, owner)
}

fn cephx(dir: &Path) -> bool {
    let conf = std::fs::read_to_string(dir.join("ceph.conf")).unwrap();
    !conf.contains("auth_client_required = none")
}

fn run<F: Future<Output = ()> + 'static>(test: impl FnOnce(Env, PathBuf) -> F + 'static) {
    let Some(dir) = peer() else { return };
    Runtime::new().unwrap().block_on(|env| async move {
        let inner = env.clone();
        env.timeout(Duration::from_secs(40), test(inner, dir)).await.expect("in time");
    });
}

async fn talk(env: Env, dir: PathBuf, mon_modes: Vec<u32>, osd_modes: Vec<u32>) {
    let (messenger, owner) = open(&env, &dir, "client.admin", |settings| {
        settings.mon_modes = mon_modes;
        settings.service_modes = osd_modes;
    });
    let monc = &owner.monc;
    monc.authenticated().await.unwrap();
    assert!(monc.global_id() > 0);
    let monmap = monc.monmap_ready().await.unwrap();
    assert_eq!(monmap.size(), 1);
    owner.changed.until(|| owner.config.borrow().is_some()).await;

    let status = vec!["{\"prefix\": \"status\", \"format\": \"json\"}".to_owned()];
    let answer = monc.command(status, Bytes::new()).await.unwrap();
    assert_eq!(answer.rc, 0);
    assert!(answer.outb.starts_with(b"\n{\"fsid\"") || answer.outb.starts_with(b"{\"fsid\""));
    let bogus = vec!["{\"prefix\": \"no such thing\"}".to_owned()];
    assert_eq!(monc.command(bogus, Bytes::new()).await.unwrap().rc, -22);
    let told = vec!["{\"prefix\": \"mon_status\"}".to_owned()];
    assert_eq!(monc.tell("a", told, Bytes::new()).await.unwrap().rc, 0);

    let versions = monc.versions("osdmap").await.unwrap();
    assert!(versions.newest >= versions.oldest && versions.newest > 0);
    monc.subscribe("osdmap", 0, SUBSCRIBE_ONETIME);
    let map = MOSDMap::decode(&owner.message(MOSDMap::TYPE).await).unwrap();
    let (epoch, full) = map.maps.last_key_value().unwrap();
    monc.got("osdmap", u64::from(*epoch));
    let osdmap: OsdMap = denc::Denc::from_bytes(full).unwrap();
    let addrs: AddrVec = osdmap.client_addrs[0].clone();

    // The ticket opens the OSD.
    let con = messenger.connect_to(OSD, &addrs);
    let request = MCommand {
        fsid: monmap.fsid,
        cmd: vec!["{\"prefix\": \"version\"}".into()],
        input: Bytes::new(),
    };
    con.send(request.encode().with_tid(5));
    let reply = owner.message(MCommandReply::TYPE).await;
    assert_eq!(reply.header.tid, 5);
    let reply = MCommandReply::decode(&reply).unwrap();
    assert_eq!(reply.rc, 0, "{}", reply.outs);
    assert!(String::from_utf8_lossy(&reply.outb).contains("16.2"), "{:?}", reply.outb);
    assert_eq!(con.peer_name(), EntityName::osd(0));

    // Lost and found: the global id stays.
    let before = monc.global_id();
    monc.reopen();
    owner
        .changed
        .until(|| owner.log.borrow().iter().filter(|e| **e == "session").count() == 2)
        .await;
    assert_eq!(monc.global_id(), before);
    assert!(monc.versions("osdmap").await.unwrap().newest > 0);
    monc.shutdown();
    messenger.shutdown();
}

#[test]
fn client_in_secure_mode() {
    run(|env, dir| talk(env, dir, vec![2, 1], vec![2]));
}

#[test]
fn client_in_crc_mode() {
    run(|env, dir| talk(env, dir, vec![1], vec![1]));
}

#[test]
fn a_daemon_gets_rotating_secrets_and_renews_tickets() {
    run(|env, dir| async move {
        let (messenger, owner) = open(&env, &dir, "osd.0", |settings| {
            settings.want_rotating = true;
            settings.want_keys = u32::from(MON | OSD | MGR);
        });
        let monc = &owner.monc;
        monc.authenticated().await.unwrap();
        monc.rotating_ready().await;
        if cephx(&dir) {
            assert_eq!(monc.rotating_secrets().secrets.len(), 3);
            let before = monc.ticket_expires(OSD).unwrap();
            monc.refresh_tickets();
            monc.until_changed(|| monc.ticket_expires(OSD).unwrap() > before).await;
        }
        monc.shutdown();
        messenger.shutdown();
    });
}

#[test]
fn a_wrong_key_is_told() {
    run(|env, dir| async move {
        let (messenger, owner) = open(&env, &dir, "client.admin", |settings| {
            let key = auth::CryptoKey::new([1; 16], types::UTime::ZERO);
            if settings.methods == [auth::METHOD_CEPHX] {
                settings.key = Some(key);
            }
        });
        let outcome = owner.monc.authenticated().await;
        if owner.monc.global_id() == 0 {
            let refused = monclient::MonError::Refused(types::Errno::EACCES);
            assert_eq!(outcome, Err(refused));
        }
        owner.monc.shutdown();
        messenger.shutdown();
    });
}

/// Story: an OSD of ours and one of Ceph's share a lossless session; its socket breaks again and
/// again; every request must be answered, once, in the same session.
#[test]
fn a_lossless_session_with_an_osd_survives_broken_sockets() {
    run(|env, dir| async move {
        let (messenger, owner) = open(&env, &dir, "osd.0", |settings| {
            settings.want_rotating = true;
            settings.want_keys = u32::from(MON | OSD | MGR);
        });
        let monc = &owner.monc;
        monc.authenticated().await.unwrap();
        let fsid = monc.monmap_ready().await.unwrap().fsid;
        monc.subscribe("osdmap", 0, SUBSCRIBE_ONETIME);
        let map = MOSDMap::decode(&owner.message(MOSDMap::TYPE).await).unwrap();
        let osdmap: OsdMap = denc::Denc::from_bytes(map.maps.last_key_value().unwrap().1).unwrap();

        let policies = Policies::new(Policy::lossless_peer());
        let config = Config::new(EntityName::osd(7), 4243, policies);
        let cluster = Messenger::new(env.clone(), config);
        cluster.set_auth_client(monc.auth_client());
        cluster.set_auth_server(monc.auth_server());
        cluster.set_dispatcher(owner.clone());
        cluster.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let con = cluster.connect_to(OSD, &osdmap.cluster_addrs[0]);
        for tid in 1..=60 {
            let cmd = vec!["{\"prefix\": \"version\"}".into()];
            let request = MCommand { fsid, cmd, input: Bytes::new() };
            con.send(request.encode().with_tid(tid));
            match tid % 6 {
                0 => con.break_socket(),
                3 => env.sleep(Duration::from_millis(env.random_u64() % 20)).await,
                _ => {}
            }
        }
        let mut answered = Vec::new();
        while answered.len() < 60 {
            answered.push(owner.message(MCommandReply::TYPE).await.header.tid);
        }
        assert_eq!(answered, (1..=60).collect::<Vec<u64>>());
        let resets = owner.log.borrow().iter().filter(|e| **e == "reset").count();
        assert_eq!(resets, 0);
        assert!(con.is_connected());
        cluster.shutdown();
        monc.shutdown();
        messenger.shutdown();
    });
}
