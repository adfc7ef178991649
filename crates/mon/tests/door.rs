//! Who is let in: a monitor over sockets, and somebody who knocks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

use auth::cephx::CephxClient;
use auth::{AuthError, CryptoKey, EntityAuth, Keyring, METHOD_CEPHX, MODE_CRC, MODE_SECURE};
use bytes::Bytes;
use env::Env;
use env::real::Runtime;
use env::sync::{Sender, oneshot};
use maps::{MonInfo, MonMap};
use mon::{Identity, Mon};
use msgr::exchange::AuthorizerExchange;
use msgr::{
    AuthClient, AuthRequest, ClientExchange, Config, Connection, Dispatcher, Incoming, Messenger,
    Policies, Policy, SessionKeys,
};
use store::kv::MemKv;
use types::{AddrVec, AuthEntityName, EntityAddr, EntityName, UTime, entity};

/// Knocks with a key, or with the ticket for a service that it got for its key.
struct Knock {
    env: Env,
    client: Rc<RefCell<CephxClient>>,
    with_ticket: Option<u8>,
    answer: Answer,
}

/// Who waits for the answer: 0 when let in, else the errno of the refusal.
type Answer = Rc<RefCell<Option<Sender<i32>>>>;

impl AuthClient for Knock {
    fn connect(&self, _: &Connection) -> Result<Box<dyn ClientExchange>, AuthError> {
        let fill = |buf: &mut [u8]| self.env.fill_random(buf);
        let (env, client) = (self.env.clone(), self.client.clone());
        let with_ticket = match self.with_ticket {
            None => None,
            Some(service) => Some(AuthorizerExchange {
                authorizer: client.borrow().authorizer(service, &fill)?,
                preferred_modes: vec![MODE_SECURE],
            }),
        };
        Ok(Box::new(Knocking { env, client, with_ticket, answer: self.answer.clone() }))
    }
}

struct Knocking {
    env: Env,
    client: Rc<RefCell<CephxClient>>,
    with_ticket: Option<AuthorizerExchange>,
    answer: Answer,
}

impl ClientExchange for Knocking {
    fn request(&mut self) -> Result<AuthRequest, AuthError> {
        if let Some(authorizer) = &mut self.with_ticket {
            return authorizer.request();
        }
        let payload = self.client.borrow().start();
        Ok(AuthRequest { method: METHOD_CEPHX, preferred_modes: vec![MODE_CRC], payload })
    }

    fn on_reply_more(&mut self, payload: Bytes) -> Result<Bytes, AuthError> {
        if let Some(authorizer) = &mut self.with_ticket {
            return authorizer.on_reply_more(payload);
        }
        let fill = |buf: &mut [u8]| self.env.fill_random(buf);
        self.client.borrow().on_challenge(&payload, entity::OSD.into(), &fill)
    }

    fn on_done(&mut self, id: u64, mode: u32, payload: Bytes) -> Result<SessionKeys, AuthError> {
        self.answer.take().unwrap().send(0);
        if let Some(authorizer) = &mut self.with_ticket {
            return authorizer.on_done(id, mode, payload);
        }
        let now = UTime::from_duration(self.env.wall_clock());
        let (key, connection_secret) = self.client.borrow_mut().on_done(id, &payload, now)?;
        Ok(SessionKeys { session_key: Some(key), connection_secret })
    }

    fn on_bad_method(
        &mut self,
        _: u32,
        errno: i32,
        _: &[u32],
        _: &[u32],
    ) -> Result<AuthRequest, AuthError> {
        // Refused attempts are made again.
        if let Some(answer) = self.answer.take() {
            answer.send(errno.abs());
        }
        Err(AuthError::Refused { errno })
    }
}

struct Deaf;

impl Dispatcher for Deaf {
    fn on_message(&self, _: &Connection, _: Incoming) {}
}

/// Knocks as `name`; what the monitor answers.
async fn knock(
    env: &Env,
    name: EntityName,
    client: &Rc<RefCell<CephxClient>>,
    with_ticket: Option<u8>,
    mon: &AddrVec,
) -> i32 {
    let config = Config::new(name, 1, Policies::new(Policy::lossy_client()));
    let messenger = Messenger::new(env.clone(), config);
    let (sender, answer) = oneshot();
    messenger.set_auth_client(Rc::new(Knock {
        env: env.clone(),
        client: client.clone(),
        with_ticket,
        answer: Rc::new(RefCell::new(Some(sender))),
    }));
    messenger.set_dispatcher(Rc::new(Deaf));
    messenger.connect_to(entity::MON, mon);
    let answer = answer.await.unwrap();
    messenger.shutdown();
    answer
}

/// A port nobody listens at.
fn free_port() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

fn auth_key(name: &str) -> (AuthEntityName, CryptoKey) {
    let name: AuthEntityName = name.parse().unwrap();
    let key = CryptoKey::new([name.id.len() as u8 + 1; 16], UTime::ZERO);
    (name, key)
}

/// A monitor opened a session for whoever had a ticket for any service, with the ticket's
/// capabilities as if they were the monitor's: a client that may write objects, `osd 'allow rwx'`,
/// was master of the cluster.
#[test]
fn a_ticket_for_a_service_opens_no_session_at_a_monitor() {
    let run = |env: Env| async move {
        let addr = EntityAddr::msgr2(free_port(), 0);
        let mut monmap = MonMap { min_mon_release: 16, ..MonMap::default() };
        monmap.add(MonInfo {
            name: "a".into(),
            public_addrs: AddrVec::of(addr),
            ..MonInfo::default()
        });
        let mut keyring = Keyring::new();
        let caps = [("mon", "allow r"), ("osd", "allow rwx")];
        for name in ["mon.", "client.admin", "client.x"] {
            let (name, key) = auth_key(name);
            keyring.keys.insert(name, EntityAuth::new(key, caps));
        }
        let conf = Rc::new(config::Config::new("mon", "a"));
        let kv = Rc::new(MemKv::new());
        let fill = |buf: &mut [u8]| env.fill_random(buf);
        let now = UTime::from_duration(env.wall_clock());
        mon::mkfs(&*kv, &conf, &monmap, &keyring, now, &fill).unwrap();
        let identity = Identity { name: "a".into(), metadata: BTreeMap::new() };
        let mon = Mon::start(env.clone(), conf, kv, identity).await.unwrap();
        let at = AddrVec::of(addr);

        let (name, key) = auth_key("client.x");
        let client = Rc::new(RefCell::new(CephxClient::new(name, key)));
        let (nobody, liar) = (EntityName::client(-1), EntityName::mon(0));
        assert_eq!(knock(&env, nobody, &client, None, &at).await, 0);
        assert!(client.borrow().ticket(entity::OSD).is_some());
        for name in [nobody, liar] {
            for service in [entity::OSD, entity::AUTH] {
                assert_eq!(knock(&env, name, &client, Some(service), &at).await, 13);
            }
        }
        mon.shutdown().await;
    };
    Runtime::new().unwrap().block_on(run);
}
