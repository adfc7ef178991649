//! Ceph's own tools against our messenger and our cephx: a monitor that knows nothing but what a
//! client asks at its start, and an OSD that opens tickets and answers `tell`. `CEPH_TOOLS=1` says that `ceph` and `rados` are installed; without it
//! the test says so and passes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use auth::cephx::{MonHandler, MonRules, StartRequest};
use auth::{
    AuthCapsInfo, AuthError, CryptoKey, EntityAuth, KeyIncrement, KeyServer, Keyring, METHOD_CEPHX,
    METHOD_NONE, MODE_CRC, MODE_SECURE,
};
use bstr::ByteSlice;
use bytes::Bytes;
use denc::Denc;
use env::Env;
use env::real::Runtime;
use maps::osdmap::osd_state;
use maps::{MgrMap, MonInfo, MonMap, OsdInfo, OsdMap, OsdXinfo};
use messages::{
    MCommand, MCommandReply, MConfig, MMgrMap, MMonCommand, MMonCommandAck, MMonGetMap,
    MMonGetVersion, MMonGetVersionReply, MMonMap, MMonSubscribe, MOSDMap, MPing, Message,
};
use msgr::exchange::{BelievingExchange, ServiceExchange};
use msgr::{
    Accepted, AuthServer, Config, Connection, Dispatcher, Incoming, Messenger, Policies, Policy,
    ServerExchange, ServerStep, SessionKeys, Stranger,
};
use types::addr::AddrVec;
use types::entity::EntityName;
use types::{AuthEntityName, UTime, Uuid};

const FSID: Uuid = Uuid([7; 16]);

struct MonAuth {
    env: Env,
    keys: KeyServer,
    methods: Vec<u32>,
    modes: Vec<u32>,
    next_id: Rc<Cell<u64>>,
}

struct Exchange {
    auth: Rc<MonAuth>,
    method: u32,
    handler: Option<MonHandler>,
}

struct Shared(Rc<MonAuth>);

impl AuthServer for Shared {
    fn allowed_methods(&self, _: u8) -> Vec<u32> {
        self.0.methods.clone()
    }
    fn allowed_modes(&self, _: u8) -> Vec<u32> {
        self.0.modes.clone()
    }
    fn accept(&self, _: Stranger, method: u32) -> Result<Box<dyn ServerExchange>, AuthError> {
        Ok(Box::new(Exchange { auth: self.0.clone(), method, handler: None }))
    }
}

impl ServerExchange for Exchange {
    fn step(&mut self, payload: Bytes, mode: u32) -> Result<ServerStep, AuthError> {
        let env = self.auth.env.clone();
        let fill = |buf: &mut [u8]| env.fill_random(buf);
        let Some(handler) = &self.handler else {
            let start = StartRequest::from_bytes(&payload)?;
            let new = start.global_id == 0;
            let id = if new { self.auth.next_id.get() } else { start.global_id };
            self.auth.next_id.set(id.max(self.auth.next_id.get()) + 1);
            if self.method == METHOD_NONE {
                return Ok(ServerStep::Done(Box::new(Accepted {
                    reply: Bytes::new(),
                    global_id: id,
                    name: start.name,
                    caps: AuthCapsInfo::allow_all(),
                    keys: SessionKeys::default(),
                    state: None,
                })));
            }
            let (handler, challenge) = MonHandler::start(start.name, id, new, &fill);
            self.handler = Some(handler);
            return Ok(ServerStep::More(challenge));
        };
        let now = UTime::from_duration(env.wall_clock());
        let rules =
            MonRules { keys: &self.auth.keys, now, fill: &fill, allow_insecure_reclaim: false };
        let done = handler.authenticate(&payload, mode == MODE_SECURE, &rules)?;
        Ok(ServerStep::Done(Box::new(Accepted {
            reply: done.reply,
            global_id: handler.global_id(),
            name: handler.name().clone(),
            caps: done.caps,
            keys: SessionKeys {
                session_key: Some(done.session_key),
                connection_secret: done.connection_secret,
            },
            state: None,
        })))
    }
}

struct ByTicket {
    env: Env,
    keys: Rc<KeyServer>,
    method: u32,
}

impl AuthServer for ByTicket {
    fn allowed_methods(&self, _: u8) -> Vec<u32> {
        vec![self.method]
    }
    fn accept(&self, _: Stranger, method: u32) -> Result<Box<dyn ServerExchange>, AuthError> {
        Ok(if method == METHOD_NONE {
            Box::new(BelievingExchange)
        } else {
            Box::new(ServiceExchange::new(self.keys.clone(), self.env.clone()))
        })
    }
}

/// Answers `tell`.
struct Osd;

impl Dispatcher for Osd {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        let raw = incoming.into_message();
        if raw.header.kind != MCommand::TYPE {
            return;
        }
        let name = con.peer_auth_name().unwrap().to_string();
        let command = MCommand::decode(&raw).unwrap();
        let outb = if command.cmd[0].contains_str("get_command_descriptions") {
            Bytes::from_static(DESCRIPTIONS)
        } else {
            Bytes::from(format!("{name} {}\n", con.peer_caps().text().unwrap()))
        };
        let reply = MCommandReply { outb, ..MCommandReply::default() };
        con.send(reply.encode().with_tid(raw.header.tid));
    }
}

const DESCRIPTIONS: &[u8] = br#"{"cmd000": {"sig": ["version"], "help": "h", "module": "mon",
    "perm": "r", "flags": 0}, "cmd001": {"sig": ["fsid"], "help": "h", "module": "mon",
    "perm": "r", "flags": 0}}"#;

struct Mon {
    monmap: Bytes,
    osd: AddrVec,
    sessions: Cell<usize>,
    ids: std::cell::RefCell<Vec<u64>>,
}

impl Dispatcher for Mon {
    fn on_accept(&self, con: &Connection) {
        self.sessions.set(self.sessions.get() + 1);
        self.ids.borrow_mut().push(con.peer_global_id());
    }
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        let raw = incoming.into_message();
        let tid = raw.header.tid;
        let monmap = || Message::encode(&MMonMap { monmap: self.monmap.clone() });
        match raw.header.kind {
            MMonGetMap::TYPE => con.send(monmap()),
            MPing::TYPE => {
                let text = Some("{\"health\": {\"status\": \"HEALTH_OK\"}}".to_owned());
                con.send(Message::encode(&MPing { text }));
            }
            MMonSubscribe::TYPE => {
                for what in <MMonSubscribe as Message>::decode(&raw).unwrap().what.keys() {
                    match what.as_str() {
                        "monmap" => con.send(monmap()),
                        "config" => con.send(Message::encode(&MConfig::default())),
                        "mgrmap" => con.send(Message::encode(&MMgrMap { map: MgrMap::default() })),
                        "osdmap" => {
                            let map = osdmap(&self.osd);
                            let maps = BTreeMap::from([(1, map.encode_with_crc().0)]);
                            con.send(Message::encode(&MOSDMap {
                                fsid: FSID,
                                maps,
                                oldest_map: 1,
                                newest_map: 1,
                                ..MOSDMap::default()
                            }));
                        }
                        other => panic!("subscribed to {other}"),
                    }
                }
            }
            MMonCommand::TYPE => {
                let cmd = MMonCommand::decode(&raw).unwrap().cmd;
                let outb = if cmd[0].contains_str("get_command_descriptions") {
                    Bytes::from_static(DESCRIPTIONS)
                } else {
                    Bytes::from_static(b"the answer\n")
                };
                let ack = MMonCommandAck { cmd, outb, ..MMonCommandAck::default() };
                con.send(Message::encode(&ack).with_tid(tid));
            }
            MMonGetVersion::TYPE => {
                let asked = <MMonGetVersion as Message>::decode(&raw).unwrap();
                con.send(Message::encode(&MMonGetVersionReply {
                    handle: asked.handle,
                    version: 1,
                    oldest_version: 1,
                }));
            }
            kind => eprintln!("message of type {kind}"),
        }
    }
}

/// A map with one OSD, up and in, and no pool.
fn osdmap(addrs: &AddrVec) -> OsdMap {
    OsdMap {
        fsid: FSID,
        epoch: 1,
        max_osd: 1,
        osd_state: vec![osd_state::EXISTS | osd_state::UP],
        osd_weight: vec![0x10000],
        client_addrs: vec![addrs.clone()],
        cluster_addrs: vec![addrs.clone()],
        hb_back_addrs: vec![addrs.clone()],
        hb_front_addrs: vec![addrs.clone()],
        osd_info: vec![OsdInfo::default()],
        osd_xinfo: vec![OsdXinfo::default()],
        osd_uuid: vec![FSID],
        require_osd_release: 16,
        ..OsdMap::default()
    }
}

/// A monitor, and tools run against it while it serves; what each printed.
fn serve(methods: Vec<u32>, modes: Vec<u32>, extra: &str, tools: &[&[&str]]) -> Vec<String> {
    let dir = std::env::temp_dir().join(format!("tools-{}-{}", std::process::id(), extra.len()));
    std::fs::create_dir_all(&dir).unwrap();
    let name: AuthEntityName = "client.admin".parse().unwrap();
    let key = CryptoKey::new([42; 16], UTime::new(1, 2));
    let auth = EntityAuth::new(key, [("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *")]);
    let mut keyring = Keyring::new();
    keyring.keys.insert(name.clone(), auth.clone());
    std::fs::write(dir.join("keyring"), keyring.to_text()).unwrap();
    let extra = extra.to_owned();
    let tools: Vec<Vec<String>> =
        tools.iter().map(|t| t.iter().map(|s| (*s).to_owned()).collect()).collect();
    Runtime::new().unwrap().block_on(move |env| async move {
        let mut keys = KeyServer::default();
        let now = UTime::from_duration(env.wall_clock());
        let rotated = {
            let env = env.clone();
            keys.rotation_due(now, &move |buf: &mut [u8]| env.fill_random(buf)).unwrap()
        };
        keys.data.apply(&KeyIncrement::SetRotating(rotated)).unwrap();
        keys.data.apply(&KeyIncrement::Add(name, auth)).unwrap();
        let secrets = keys.clone();
        let next_id = Rc::new(Cell::new(4100));
        let auth =
            Rc::new(MonAuth { env: env.clone(), keys, methods: methods.clone(), modes, next_id });
        let policy = Policy::stateless_server().requiring(types::features::REQUIRED_OF_CLIENT);
        let config = Config::new(EntityName::mon(0), 0, Policies::new(policy));
        let messenger = Messenger::new(env.clone(), config);
        messenger.set_auth_server(Rc::new(Shared(auth)));
        let addr = messenger.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mut monmap = MonMap { fsid: FSID, epoch: 1, min_mon_release: 16, ..MonMap::default() };
        monmap.strategy = 1;
        monmap.add(MonInfo {
            name: "a".to_owned(),
            public_addrs: AddrVec::of(addr),
            ..MonInfo::default()
        });
        let policy = Policy::stateless_registered_server()
            .requiring(types::features::REQUIRED_OF_CLIENT)
            .throttled(500 << 20, 256);
        let config = Config::new(EntityName::osd(0), 4711, Policies::new(policy));
        let osd = Messenger::new(env.clone(), config);
        osd.set_auth_server(Rc::new(ByTicket {
            env: env.clone(),
            keys: Rc::new(secrets),
            method: methods[0],
        }));
        osd.set_dispatcher(Rc::new(Osd));
        osd.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let mon = Rc::new(Mon {
            monmap: monmap.to_bytes(),
            osd: osd.addrs(),
            sessions: Cell::new(0),
            ids: Default::default(),
        });
        messenger.set_dispatcher(mon.clone());
        let required = if methods == [METHOD_NONE] { "none" } else { "cephx" };
        let conf = format!(
            "[global]\nfsid = {FSID}\nmon_host = [v2:127.0.0.1:{}]\nkeyring = {}/keyring\n\
             auth_cluster_required = {required}\nauth_service_required = {required}\n\
             auth_client_required = {required}\nadmin_socket =\nlog_file =\n{extra}\n",
            addr.port(),
            dir.display(),
        );
        let path = dir.join("ceph.conf");
        std::fs::write(&path, conf).unwrap();
        let mut printed = Vec::new();
        for tool in tools {
            let path = path.clone();
            let (tell, told) = std::sync::mpsc::channel();
            let run = tool.clone();
            std::thread::spawn(move || {
                let out = Command::new("timeout")
                    .args(["15", &run[0], "-c"])
                    .arg(path)
                    .args(&run[1..])
                    .output()
                    .unwrap();
                tell.send(out).unwrap();
            });
            let out = loop {
                if let Ok(out) = told.try_recv() {
                    break out;
                }
                env.sleep(Duration::from_millis(10)).await;
            };
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            let errors = String::from_utf8_lossy(&out.stderr).into_owned();
            assert!(out.status.success(), "{tool:?}: {:?}\n{text}\n{errors}", out.status);
            printed.push(text);
        }
        assert!(mon.sessions.get() > 0);
        messenger.shutdown();
        osd.shutdown();
        let _ = std::fs::remove_dir_all(&dir);
        printed
    })
}

fn tools_exist() -> bool {
    let set = std::env::var_os("CEPH_TOOLS").is_some();
    if !set {
        eprintln!("CEPH_TOOLS is not set: nothing is checked");
    }
    set
}

const TOOLS: [&[&str]; 4] = [
    &["ceph", "ping", "mon.a"],
    &["ceph", "--connect-timeout", "10", "fsid"],
    &["rados", "lspools"],
    &["ceph", "--connect-timeout", "10", "tell", "osd.0", "version"],
];

fn check(printed: &[String]) {
    assert!(printed[0].contains("HEALTH_OK"), "{printed:?}");
    assert!(printed[1].contains("the answer"), "{printed:?}");
    assert_eq!(printed[2], "");
    assert!(printed[3].starts_with("client.admin"), "{printed:?}");
}

#[test]
fn cephx_in_secure_mode() {
    if tools_exist() {
        check(&serve(vec![METHOD_CEPHX], vec![MODE_SECURE], "", &TOOLS));
    }
}

#[test]
fn cephx_in_crc_mode() {
    if tools_exist() {
        check(&serve(
            vec![METHOD_CEPHX],
            vec![MODE_CRC, MODE_SECURE],
            "ms_mon_client_mode = crc\nms_client_mode = secure",
            &TOOLS,
        ));
    }
}

#[test]
fn no_authentication() {
    if tools_exist() {
        check(&serve(vec![METHOD_NONE], vec![MODE_CRC, MODE_SECURE], " ", &TOOLS));
    }
}
