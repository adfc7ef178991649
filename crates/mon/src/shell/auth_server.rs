//! The monitor's side of authentication: who connects, and with which key.

use std::cell::RefCell;
use std::rc::Rc;

use auth::caps::MonCap;
use auth::cephx::{
    MonHandler, MonRules, ServiceHandler, ServiceStep, StartRequest, mon_authorizer,
};
use auth::{
    AuthCapsInfo, AuthError, KeyServer, METHOD_CEPHX, METHOD_NONE, MODE_CRC, MODE_SECURE,
    MonSecrets,
};
use bytes::Bytes;
use config::Config;
use denc::Denc;
use env::Env;
use msgr::exchange::{AuthorizerExchange, NoneExchange};
use msgr::{
    Accepted, AuthClient, AuthServer, ClientExchange, Connection, ServerExchange, ServerStep,
    SessionKeys, Stranger,
};
use types::{AuthEntityName, UTime, entity};

use super::Shell;

/// Lets peers in by the keys of the key server.
pub(super) struct MonAuthServer {
    pub(super) shell: Rc<Shell>,
}

impl AuthServer for MonAuthServer {
    fn allowed_methods(&self, peer_kind: u8) -> Vec<u32> {
        // What clients themselves require is no business of a monitor's.
        let option = match peer_kind {
            entity::MON | entity::MGR => "auth_cluster_required",
            _ => "auth_service_required",
        };
        let mut value = self.shell.conf.str("auth_supported");
        if value.trim().is_empty() {
            value = self.shell.conf.str(option);
        }
        methods(&value)
    }

    fn allowed_modes(&self, peer_kind: u8) -> Vec<u32> {
        let option = match peer_kind {
            entity::MON | entity::MGR => "ms_mon_cluster_mode",
            _ => "ms_mon_service_mode",
        };
        let value = self.shell.conf.str(option);
        let modes: Vec<u32> = value
            .split([' ', ',', ';'])
            .filter_map(|word| match word {
                "crc" => Some(MODE_CRC),
                "secure" => Some(MODE_SECURE),
                _ => None,
            })
            .collect();
        if modes.is_empty() { vec![MODE_SECURE, MODE_CRC] } else { modes }
    }

    fn admits(&self, stranger: Stranger) -> bool {
        stranger.kind == entity::MON || self.shell.admits_clients()
    }

    fn accept(
        &self,
        stranger: Stranger,
        method: u32,
    ) -> Result<Box<dyn ServerExchange>, AuthError> {
        let state = match method {
            METHOD_NONE | METHOD_CEPHX => State::Start,
            _ => return Err(AuthError::Method { method }),
        };
        let (shell, keys) = (self.shell.clone(), self.shell.keys());
        Ok(Box::new(Exchange { shell, keys, method, peer_kind: stranger.kind, state }))
    }
}

/// Proves to other monitors and to managers that this is a monitor: with a ticket it makes itself.
pub(super) struct MonAuthClient {
    pub(super) shell: Rc<Shell>,
}

impl AuthClient for MonAuthClient {
    fn connect(&self, con: &Connection) -> Result<Box<dyn ClientExchange>, AuthError> {
        let shell = &self.shell;
        let name = AuthEntityName::new(entity::MON, "");
        let modes = MonAuthServer { shell: shell.clone() }.allowed_modes(entity::MON);
        let allowed = MonAuthServer { shell: shell.clone() }.allowed_methods(entity::MON);
        if !allowed.contains(&METHOD_CEPHX) {
            // Not 0: a number of its own is of no use to a monitor.
            let start = StartRequest { name, global_id: 1 };
            return Ok(Box::new(NoneExchange { payload: start.to_bytes() }));
        }
        let env = &shell.env;
        let fill = |buf: &mut [u8]| env.fill_random(buf);
        let keys = shell.keys();
        let authorizer = mon_authorizer(&keys.borrow(), con.peer_kind(), wall(env), &fill)?;
        Ok(Box::new(AuthorizerExchange { authorizer, preferred_modes: modes }))
    }
}

/// The methods a setting names.
fn methods(value: &str) -> Vec<u32> {
    value
        .split([' ', ',', ';'])
        .filter_map(|word| match word.trim() {
            "cephx" => Some(METHOD_CEPHX),
            "none" => Some(METHOD_NONE),
            _ => None,
        })
        .collect()
}

enum State {
    Start,
    /// A client's proof is awaited.
    Proof(MonHandler),
    /// A monitor's authorizer.
    Authorizer(ServiceHandler),
    Over,
}

struct Exchange {
    shell: Rc<Shell>,
    keys: Rc<RefCell<KeyServer>>,
    method: u32,
    peer_kind: u8,
    state: State,
}

impl ServerExchange for Exchange {
    fn step(&mut self, payload: Bytes, mode: u32) -> Result<ServerStep, AuthError> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Start if StartRequest::is_one(&payload) => self.start(&payload),
            // Everybody else proves his own key.
            State::Start if self.method == METHOD_CEPHX && self.peer_kind == entity::MON => {
                self.authorizer(ServiceHandler::new(), payload, mode)
            }
            State::Start => Err(AuthError::OutOfOrder),
            State::Proof(handler) => self.prove(handler, &payload, mode),
            State::Authorizer(handler) => self.authorizer(handler, payload, mode),
            State::Over => Err(AuthError::OutOfOrder),
        }
    }
}

impl Exchange {
    fn start(&mut self, payload: &Bytes) -> Result<ServerStep, AuthError> {
        let request = StartRequest::from_bytes(payload)?;
        let new = request.global_id == 0;
        let global_id = match new {
            // While ids are being reserved, the peer is sent away to come again.
            true => self.shell.new_global_id().ok_or(AuthError::Refused { errno: 11 })?,
            false => request.global_id,
        };
        if self.method == METHOD_NONE {
            return Ok(ServerStep::Done(Box::new(Accepted {
                reply: Bytes::new(),
                global_id,
                name: request.name,
                caps: AuthCapsInfo::allow_all(),
                keys: SessionKeys::default(),
                state: None,
            })));
        }
        let env = &self.shell.env;
        let fill = |buf: &mut [u8]| env.fill_random(buf);
        let (handler, challenge) = MonHandler::start(request.name, global_id, new, &fill);
        self.state = State::Proof(handler);
        Ok(ServerStep::More(challenge))
    }

    fn prove(
        &mut self,
        handler: MonHandler,
        payload: &Bytes,
        mode: u32,
    ) -> Result<ServerStep, AuthError> {
        let env = &self.shell.env;
        let fill = |buf: &mut [u8]| env.fill_random(buf);
        let keys = self.keys.borrow();
        let rules = MonRules {
            keys: &keys,
            now: wall(env),
            fill: &fill,
            allow_insecure_reclaim: insecure_reclaim(&self.shell.conf),
        };
        let done = handler.authenticate(payload, mode == MODE_SECURE, &rules)?;
        // Who may do nothing here is told so at once; else it would wait in vain for maps.
        let rights = MonCap::parse(&done.caps.text()?).unwrap_or_default();
        if !done.caps.allow_all && rights.grants.is_empty() {
            return Err(AuthError::Refused { errno: 13 });
        }
        Ok(ServerStep::Done(Box::new(Accepted {
            reply: done.reply,
            global_id: handler.global_id(),
            name: handler.name().clone(),
            caps: done.caps,
            keys: SessionKeys {
                session_key: Some(done.session_key),
                connection_secret: done.connection_secret,
            },
            // Tickets are renewed in the session with the same challenge.
            state: Some(Rc::new(handler)),
        })))
    }

    fn authorizer(
        &mut self,
        mut handler: ServiceHandler,
        payload: Bytes,
        mode: u32,
    ) -> Result<ServerStep, AuthError> {
        let env = &self.shell.env;
        let fill = |buf: &mut [u8]| env.fill_random(buf);
        let keys = self.keys.borrow();
        match handler.step(&payload, mode == MODE_SECURE, &MonSecrets(&keys), &fill)? {
            ServiceStep::Challenge(challenge) => {
                drop(keys);
                self.state = State::Authorizer(handler);
                Ok(ServerStep::More(challenge))
            }
            ServiceStep::Done(verified) => Ok(ServerStep::Done(Box::new(Accepted {
                reply: verified.reply,
                global_id: verified.ticket.global_id,
                name: verified.ticket.name.clone(),
                caps: verified.ticket.caps.clone(),
                keys: SessionKeys {
                    session_key: Some(verified.session_key),
                    connection_secret: verified.connection_secret,
                },
                state: None,
            }))),
        }
    }
}

fn insecure_reclaim(conf: &Config) -> bool {
    conf.bool("auth_allow_insecure_global_id_reclaim")
}

fn wall(env: &Env) -> UTime {
    UTime::from_duration(env.wall_clock())
}
