//! What the tests share: messengers that believe each other, or share one ticket, and a
//! dispatcher that records.
#![allow(dead_code, unreachable_pub, reason = "each test uses its part")]

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use auth::cephx::Authorizer;
use auth::{
    AuthCapsInfo, AuthError, AuthTicket, CryptoKey, METHOD_CEPHX, METHOD_NONE, ServiceSecrets,
    ServiceTicketInfo, TicketBlob,
};
use bytes::Bytes;
use denc::Denc;
use env::Env;
use msgr::exchange::{AuthorizerExchange, BelievingExchange, NoneExchange, ServiceExchange};
use msgr::{
    AuthClient, AuthServer, ClientExchange, Config, Connection, Dispatcher, Incoming, Messenger,
    Policies, ServerExchange, Stranger,
};
use types::UTime;
use types::addr::AddrVec;
use types::entity::{AuthEntityName, EntityName};
use types::message::{MsgHeader, RawMessage};

/// How test messengers authenticate.
pub struct TestAuth {
    pub env: Env,
    pub name: AuthEntityName,
    /// `None`: method none; else cephx in these modes.
    pub modes: Option<Vec<u32>>,
}

const SERVICE_SECRET: [u8; 16] = *b"a service secret";

struct OneSecret;

impl ServiceSecrets for OneSecret {
    fn service_secret(&self, _: u32, id: u64) -> Option<CryptoKey> {
        (id == 3).then(|| CryptoKey::new(SERVICE_SECRET, UTime::ZERO))
    }
    fn own_secret(&self, _: &AuthEntityName) -> Option<CryptoKey> {
        None
    }
}

impl AuthClient for TestAuth {
    fn connect(&self, con: &Connection) -> Result<Box<dyn ClientExchange>, AuthError> {
        let Some(modes) = &self.modes else {
            let payload = auth::none::authorizer(&self.name, 77);
            return Ok(Box::new(NoneExchange { payload }));
        };
        let session_key = CryptoKey::new([9; 16], UTime::ZERO);
        let info = ServiceTicketInfo {
            ticket: AuthTicket {
                name: self.name.clone(),
                global_id: 77,
                created: UTime::ZERO,
                expires: UTime::ZERO,
                caps: AuthCapsInfo::from_text("allow rw"),
                flags: 0,
            },
            session_key: session_key.clone(),
        };
        let secret = CryptoKey::new(SERVICE_SECRET, UTime::ZERO);
        let blob = TicketBlob { secret_id: 3, blob: secret.seal(|w| info.encode(w)) };
        let service = u32::from(con.peer_kind());
        let nonce = self.env.random_u64();
        Ok(Box::new(AuthorizerExchange {
            authorizer: Authorizer::new(77, service, &blob, session_key, nonce),
            preferred_modes: modes.clone(),
        }))
    }
}

impl AuthServer for TestAuth {
    fn allowed_methods(&self, _: u8) -> Vec<u32> {
        vec![if self.modes.is_some() { METHOD_CEPHX } else { METHOD_NONE }]
    }
    fn accept(&self, _: Stranger, method: u32) -> Result<Box<dyn ServerExchange>, AuthError> {
        Ok(if method == METHOD_NONE {
            Box::new(BelievingExchange)
        } else {
            Box::new(ServiceExchange::new(Rc::new(OneSecret), self.env.clone()))
        })
    }
}

/// Records what happens; answers a message of type 42 with one of type 43.
#[derive(Default)]
pub struct Recorder {
    pub messages: RefCell<Vec<RawMessage>>,
    pub events: RefCell<Vec<String>>,
    pub count: Cell<usize>,
    pub keep: Cell<bool>,
    pub answer: Cell<bool>,
    pub held: RefCell<Vec<Incoming>>,
    pub hold: Cell<bool>,
}

impl Recorder {
    pub fn new() -> Rc<Recorder> {
        let recorder = Recorder::default();
        recorder.keep.set(true);
        Rc::new(recorder)
    }
    fn event(&self, what: &str, con: &Connection) {
        self.events.borrow_mut().push(format!("{what} {}", con.peer_name()));
    }
    pub fn events(&self) -> Vec<String> {
        self.events.borrow().clone()
    }
    pub fn tids(&self) -> Vec<u64> {
        self.messages.borrow().iter().map(|m| m.header.tid).collect()
    }
}

impl Dispatcher for Recorder {
    fn on_message(&self, con: &Connection, incoming: Incoming) {
        self.count.set(self.count.get() + 1);
        if self.hold.get() {
            self.held.borrow_mut().push(incoming);
            return;
        }
        let message = incoming.into_message();
        if self.answer.get() {
            let mut reply = raw(43, message.header.tid, b"answer");
            reply.data = message.data.clone();
            con.send(reply);
        }
        if self.keep.get() {
            self.messages.borrow_mut().push(message);
        }
    }
    fn on_accept(&self, con: &Connection) {
        self.event("accept", con);
    }
    fn on_connect(&self, con: &Connection) {
        self.event("connect", con);
    }
    fn on_reset(&self, con: &Connection) {
        self.event("reset", con);
    }
    fn on_remote_reset(&self, con: &Connection) {
        self.event("remote reset", con);
    }
    fn on_refused(&self, con: &Connection) {
        self.event("refused", con);
    }
}

pub fn raw(kind: u16, tid: u64, front: &[u8]) -> RawMessage {
    RawMessage {
        header: MsgHeader {
            kind,
            tid,
            priority: 127,
            version: 1,
            compat_version: 1,
            flags: 3,
            ..MsgHeader::default()
        },
        front: Bytes::copy_from_slice(front),
        ..RawMessage::default()
    }
}

pub fn localhost() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A messenger with a recorder.
pub fn node(
    env: &Env,
    name: EntityName,
    policies: Policies,
    modes: Option<Vec<u32>>,
) -> (Messenger, Rc<Recorder>) {
    let mut config = Config::new(name, (env.random_u64() >> 33) as u32, policies);
    config.initial_backoff = Duration::from_millis(20);
    config.max_backoff = Duration::from_millis(300);
    node_of(env, config, modes)
}

/// A messenger of these settings with a recorder.
pub fn node_of(env: &Env, config: Config, modes: Option<Vec<u32>>) -> (Messenger, Rc<Recorder>) {
    let name = config.name;
    let messenger = Messenger::new(env.clone(), config);
    let id = name.num.to_string();
    let auth =
        Rc::new(TestAuth { env: env.clone(), name: AuthEntityName::new(name.kind, id), modes });
    let recorder = Recorder::new();
    messenger.set_auth_client(auth.clone());
    messenger.set_auth_server(auth);
    messenger.set_dispatcher(recorder.clone());
    (messenger, recorder)
}

pub fn addrs(messenger: &Messenger) -> AddrVec {
    messenger.addrs()
}

/// Waits until `done` holds; panics with `what` after ten seconds.
pub async fn until(env: &Env, what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        env.sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}
