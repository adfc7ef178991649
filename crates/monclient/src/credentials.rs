//! How we prove who we are, to monitors and to services, and how peers prove it to us.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use auth::cephx::{CephxClient, StartRequest};
use auth::{
    AuthError, CryptoKey, METHOD_CEPHX, METHOD_NONE, MODE_SECURE, RotatingSecrets, ServiceSecrets,
};
use bytes::Bytes;
use denc::Denc;
use env::Env;
use msgr::exchange::{AuthorizerExchange, BelievingExchange, NoneExchange, ServiceExchange};
use msgr::{
    AuthClient, AuthRequest, AuthServer, ClientExchange, Connection, ServerExchange, ServerStep,
    SessionKeys, Stranger,
};
use types::entity::{self, AuthEntityName};
use types::errno::Errno;
use types::time::UTime;

use crate::client::Inner;

/// The own service's rotating secrets.
#[derive(Debug, Default)]
pub(crate) struct RotatingStore {
    pub(crate) kind: u32,
    pub(crate) secrets: RefCell<RotatingSecrets>,
}

impl ServiceSecrets for RotatingStore {
    fn service_secret(&self, service: u32, id: u64) -> Option<CryptoKey> {
        if service != self.kind {
            return None;
        }
        self.secrets.borrow().secret(id).cloned()
    }

    fn own_secret(&self, _: &AuthEntityName) -> Option<CryptoKey> {
        None
    }
}

/// Plugs into messengers for connections we make.
pub(crate) struct Prover(pub(crate) Weak<Inner>);

impl AuthClient for Prover {
    fn connect(&self, con: &Connection) -> Result<Box<dyn ClientExchange>, AuthError> {
        let inner = self.0.upgrade().ok_or(AuthError::OutOfOrder)?;
        if con.peer_kind() == entity::MON {
            return Ok(Box::new(MonExchange::new(&inner, con.id())));
        }
        let state = inner.state.borrow();
        let name = &inner.settings.name;
        let Some(cephx) = &state.cephx else {
            let payload = auth::none::authorizer(name, state.global_id);
            return Ok(Box::new(NoneExchange { payload }));
        };
        if state.used_method == Some(METHOD_NONE) {
            let payload = auth::none::authorizer(name, state.global_id);
            return Ok(Box::new(NoneExchange { payload }));
        }
        let env = inner.env.clone();
        let fill = |buf: &mut [u8]| env.fill_random(buf);
        let authorizer = cephx.authorizer(con.peer_kind(), &fill)?;
        let settings = &inner.settings;
        let modes = if con.peer_kind() == entity::MGR {
            &settings.mon_modes
        } else {
            &settings.service_modes
        };
        let exchange = AuthorizerExchange { authorizer, preferred_modes: modes.clone() };
        Ok(Box::new(WatchedExchange { exchange, kind: con.peer_kind(), inner: self.0.clone() }))
    }
}

/// An authorizer whose refusal makes us fetch a new ticket.
struct WatchedExchange {
    exchange: AuthorizerExchange,
    kind: u8,
    inner: Weak<Inner>,
}

impl ClientExchange for WatchedExchange {
    fn request(&mut self) -> Result<AuthRequest, AuthError> {
        self.exchange.request()
    }
    fn on_reply_more(&mut self, payload: Bytes) -> Result<Bytes, AuthError> {
        self.exchange.on_reply_more(payload)
    }
    fn on_done(&mut self, id: u64, mode: u32, payload: Bytes) -> Result<SessionKeys, AuthError> {
        self.exchange.on_done(id, mode, payload)
    }
    fn on_bad_method(
        &mut self,
        _: u32,
        errno: i32,
        _: &[u32],
        _: &[u32],
    ) -> Result<AuthRequest, AuthError> {
        if let Some(inner) = self.inner.upgrade() {
            inner.renew_ticket_soon(self.kind);
        }
        Err(AuthError::Refused { errno })
    }
}

/// One attempt to authenticate to one monitor. Works on a copy of what we hold: of several
/// attempts at the same time only one becomes the session, and its copy is kept.
struct MonExchange {
    inner: Weak<Inner>,
    env: Env,
    con: u64,
    name: AuthEntityName,
    cephx: Option<CephxClient>,
    global_id: u64,
    want: u32,
    methods: Vec<u32>,
    /// Index into `methods`.
    method: usize,
    modes: Vec<u32>,
}

impl MonExchange {
    fn new(inner: &Rc<Inner>, con: u64) -> MonExchange {
        let state = inner.state.borrow();
        let settings = &inner.settings;
        let methods = settings
            .methods
            .iter()
            .filter(|method| **method != METHOD_CEPHX || state.cephx.is_some())
            .copied()
            .collect();
        MonExchange {
            inner: Rc::downgrade(inner),
            env: inner.env.clone(),
            con,
            name: settings.name.clone(),
            cephx: state.cephx.clone(),
            global_id: state.global_id,
            want: settings.want_keys,
            methods,
            method: 0,
            modes: settings.mon_modes.clone(),
        }
    }

    fn now(&self) -> UTime {
        UTime::from_duration(self.env.wall_clock())
    }

    fn refused(&self, errno: i32) -> AuthError {
        if let Some(inner) = self.inner.upgrade() {
            inner.on_refusal(self.con, Errno(errno));
        }
        AuthError::Refused { errno }
    }
}

impl ClientExchange for MonExchange {
    fn request(&mut self) -> Result<AuthRequest, AuthError> {
        let Some(method) = self.methods.get(self.method).copied() else {
            return Err(self.refused(Errno::EACCES.0));
        };
        let start = StartRequest { name: self.name.clone(), global_id: self.global_id };
        let payload = start.to_bytes();
        Ok(AuthRequest { method, preferred_modes: self.modes.clone(), payload })
    }

    fn on_reply_more(&mut self, payload: Bytes) -> Result<Bytes, AuthError> {
        let env = self.env.clone();
        let fill = |buf: &mut [u8]| env.fill_random(buf);
        let cephx = self.cephx.as_ref().ok_or(AuthError::OutOfOrder)?;
        cephx.on_challenge(&payload, self.want, &fill)
    }

    fn on_done(
        &mut self,
        global_id: u64,
        mode: u32,
        payload: Bytes,
    ) -> Result<SessionKeys, AuthError> {
        let now = self.now();
        let method = self.methods.get(self.method).copied().unwrap_or(METHOD_NONE);
        let mut keys = SessionKeys::default();
        if method == METHOD_CEPHX {
            let cephx = self.cephx.as_mut().ok_or(AuthError::OutOfOrder)?;
            let (session_key, secret) = cephx.on_done(global_id, &payload, now)?;
            if mode == MODE_SECURE && secret.len() != auth::CONNECTION_SECRET_LEN {
                return Err(AuthError::Sealed);
            }
            keys = SessionKeys { session_key: Some(session_key), connection_secret: secret };
        }
        let inner = self.inner.upgrade().ok_or(AuthError::OutOfOrder)?;
        inner.on_proven(self.con, method, global_id, self.cephx.clone());
        Ok(keys)
    }

    fn on_bad_method(
        &mut self,
        _: u32,
        errno: i32,
        allowed_methods: &[u32],
        _: &[u32],
    ) -> Result<AuthRequest, AuthError> {
        // Another of our methods that it takes, else the end.
        let next = (self.method + 1..self.methods.len())
            .find(|at| allowed_methods.contains(&self.methods[*at]));
        match next {
            Some(at) => {
                self.method = at;
                self.request()
            }
            None => Err(self.refused(errno)),
        }
    }
}

/// Plugs into messengers of daemons for connections that others make.
pub(crate) struct Checker(pub(crate) Weak<Inner>);

impl AuthServer for Checker {
    fn allowed_methods(&self, _: u8) -> Vec<u32> {
        self.0.upgrade().map(|inner| inner.settings.service_methods.clone()).unwrap_or_default()
    }

    fn allowed_modes(&self, peer_kind: u8) -> Vec<u32> {
        let Some(inner) = self.0.upgrade() else { return Vec::new() };
        let settings = &inner.settings;
        if peer_kind == settings.name.kind_u8() {
            settings.cluster_modes.clone()
        } else {
            settings.accept_modes.clone()
        }
    }

    fn accept(&self, _: Stranger, method: u32) -> Result<Box<dyn ServerExchange>, AuthError> {
        let inner = self.0.upgrade().ok_or(AuthError::OutOfOrder)?;
        if method == METHOD_NONE {
            return Ok(Box::new(BelievingExchange));
        }
        let exchange = ServiceExchange::new(inner.rotating.clone(), inner.env.clone());
        Ok(Box::new(CheckedExchange { exchange, inner: self.0.clone() }))
    }
}

/// A service's exchange; a ticket sealed with a secret we have not fetched yet makes us fetch.
struct CheckedExchange {
    exchange: ServiceExchange,
    inner: Weak<Inner>,
}

impl ServerExchange for CheckedExchange {
    fn step(&mut self, payload: Bytes, mode: u32) -> Result<ServerStep, AuthError> {
        let step = self.exchange.step(payload, mode);
        if let (Err(AuthError::UnknownSecret { .. }), Some(inner)) = (&step, self.inner.upgrade()) {
            inner.fetch_rotating();
        }
        step
    }
}
