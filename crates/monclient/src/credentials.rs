//! What the messenger asks when it connects or accepts: proofs from the tickets held, and checks
//! of others' tickets with the rotating secrets.

use std::rc::Rc;

use auth::cephx::Authorizer;
use auth::cephx::{ServiceHandler, ServiceStep};
use auth::{
    AuthCapsInfo, AuthError, CryptoKey, METHOD_CEPHX, METHOD_NONE, MODE_SECURE, ServiceSecrets,
};
use bytes::Bytes;
use denc::{Denc, Writer};
use msgr::{
    Accepted, AuthClient, AuthRequest, AuthServer, ClientExchange, Connection, ServerExchange,
    ServerStep, SessionKeys, Stranger,
};
use types::AuthEntityName;
use types::entity::{EntityName, MGR, MON, OSD};

use crate::MonClient;

/// First byte of a request to a monitor.
const AUTH_MODE_MON: u8 = 10;

/// See the module.
pub struct Credentials(MonClient);

impl Credentials {
    pub(crate) fn new(monc: &MonClient) -> Credentials {
        Credentials(monc.clone())
    }
}

impl core::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Credentials")
    }
}

impl AuthClient for Credentials {
    fn connect(&self, con: &Connection) -> Result<Box<dyn ClientExchange>, AuthError> {
        let monc = self.0.clone();
        let settings = &monc.0.settings;
        let own_kind = settings.name.kind_u8();
        let kind = con.peer_kind();
        if kind == MON {
            let preferred_modes = settings.mon_modes.clone();
            let method = settings.methods.first().copied().unwrap_or(METHOD_CEPHX);
            return Ok(Box::new(WithMon {
                monc,
                method,
                preferred_modes,
            }));
        }
        let preferred_modes = match kind {
            MGR => settings.mon_modes.clone(),
            k if k == own_kind => settings.cluster_modes.clone(),
            OSD if own_kind != types::entity::CLIENT => settings.cluster_modes.clone(),
            _ => settings.service_modes.clone(),
        };
        if monc.0.method.get() == METHOD_NONE {
            return Ok(Box::new(WithNobody {
                monc,
                preferred_modes,
            }));
        }
        let env = monc.0.env.clone();
        let authorizer = monc
            .0
            .cephx
            .borrow()
            .authorizer(kind, &mut |buf: &mut [u8]| env.fill_random(buf))?;
        Ok(Box::new(WithService {
            monc,
            authorizer,
            preferred_modes,
        }))
    }
}

/// An exchange with a monitor.
struct WithMon {
    monc: MonClient,
    method: u32,
    preferred_modes: Vec<u32>,
}

impl WithMon {
    fn fail(&self, error: AuthError) -> AuthError {
        *self.monc.0.last_error.borrow_mut() = Some(error.clone());
        self.monc.0.changed.notify_all();
        error
    }
}

impl ClientExchange for WithMon {
    fn request(&mut self) -> Result<AuthRequest, AuthError> {
        let payload = if self.method == METHOD_NONE {
            let mut w = Writer::new();
            w.u8(AUTH_MODE_MON);
            self.monc.0.settings.name.encode(&mut w);
            w.u64(self.monc.0.global_id.get());
            w.into_bytes()
        } else {
            self.monc.0.cephx.borrow().start()
        };
        let preferred_modes = self.preferred_modes.clone();
        Ok(AuthRequest {
            method: self.method,
            preferred_modes,
            payload,
        })
    }

    fn on_reply_more(&mut self, payload: Bytes) -> Result<Bytes, AuthError> {
        if self.method == METHOD_NONE {
            return Err(AuthError::OutOfOrder);
        }
        let env = self.monc.0.env.clone();
        self.monc.0.cephx.borrow().on_challenge(
            &payload,
            self.monc.0.settings.want,
            &mut |buf: &mut [u8]| env.fill_random(buf),
        )
    }

    fn on_done(
        &mut self,
        global_id: u64,
        _: u32,
        payload: Bytes,
    ) -> Result<SessionKeys, AuthError> {
        let inner = &self.monc.0;
        let keys = if self.method == METHOD_NONE {
            SessionKeys::default()
        } else {
            let done = inner
                .cephx
                .borrow_mut()
                .on_done(global_id, &payload, self.monc.now());
            let (session_key, connection_secret) = done.map_err(|e| self.fail(e))?;
            SessionKeys {
                session_key: Some(session_key),
                connection_secret,
            }
        };
        inner.method.set(self.method);
        inner.global_id.set(global_id);
        let own = inner.messenger.name();
        if own.kind == types::entity::CLIENT || own.kind == MGR {
            let num = i64::try_from(global_id).unwrap_or(-1);
            inner.messenger.set_name(EntityName {
                kind: own.kind,
                num,
            });
        }
        Ok(keys)
    }

    fn on_bad_method(
        &mut self,
        method: u32,
        errno: i32,
        allowed_methods: &[u32],
        _: &[u32],
    ) -> Result<AuthRequest, AuthError> {
        let other = self.monc.0.settings.methods.iter().copied().find(|m| {
            *m != method && allowed_methods.contains(m) && !allowed_methods.contains(&method)
        });
        match other {
            Some(other) => {
                self.method = other;
                self.request()
            }
            None => {
                // A ticket the monitors no longer know keeps us out: begin without it next time.
                self.monc.0.cephx.borrow_mut().forget_all();
                Err(self.fail(AuthError::Refused { errno: errno.abs() }))
            }
        }
    }
}

/// An exchange with a service, by ticket.
struct WithService {
    monc: MonClient,
    authorizer: Authorizer,
    preferred_modes: Vec<u32>,
}

impl ClientExchange for WithService {
    fn request(&mut self) -> Result<AuthRequest, AuthError> {
        Ok(AuthRequest {
            method: METHOD_CEPHX,
            preferred_modes: self.preferred_modes.clone(),
            payload: self.authorizer.request(),
        })
    }

    fn on_reply_more(&mut self, payload: Bytes) -> Result<Bytes, AuthError> {
        self.authorizer.on_challenge(&payload)
    }

    fn on_done(&mut self, _: u64, _: u32, payload: Bytes) -> Result<SessionKeys, AuthError> {
        let (session_key, connection_secret) = self.authorizer.on_done(&payload)?;
        Ok(SessionKeys {
            session_key: Some(session_key),
            connection_secret,
        })
    }

    fn on_bad_method(
        &mut self,
        _: u32,
        errno: i32,
        _: &[u32],
        _: &[u32],
    ) -> Result<AuthRequest, AuthError> {
        // The service may not know our ticket's secret (any more): get fresh ones.
        self.monc.0.cephx.borrow_mut().forget_service_tickets();
        self.monc.renew_now();
        Err(AuthError::Refused { errno: errno.abs() })
    }
}

/// An exchange without proofs.
struct WithNobody {
    monc: MonClient,
    preferred_modes: Vec<u32>,
}

impl ClientExchange for WithNobody {
    fn request(&mut self) -> Result<AuthRequest, AuthError> {
        let inner = &self.monc.0;
        Ok(AuthRequest {
            method: METHOD_NONE,
            preferred_modes: self.preferred_modes.clone(),
            payload: auth::none::authorizer(&inner.settings.name, inner.global_id.get()),
        })
    }

    fn on_reply_more(&mut self, _: Bytes) -> Result<Bytes, AuthError> {
        Err(AuthError::OutOfOrder)
    }

    fn on_done(&mut self, _: u64, _: u32, _: Bytes) -> Result<SessionKeys, AuthError> {
        Ok(SessionKeys::default())
    }
}

impl AuthServer for Credentials {
    fn allowed_methods(&self, _: u8) -> Vec<u32> {
        self.0.0.settings.methods.clone()
    }

    fn allowed_modes(&self, peer_kind: u8) -> Vec<u32> {
        let settings = &self.0.0.settings;
        if peer_kind == settings.name.kind_u8() {
            settings.cluster_modes.clone()
        } else {
            settings.accept_modes.clone()
        }
    }

    fn accept(&self, _: Stranger, method: u32) -> Result<Box<dyn ServerExchange>, AuthError> {
        let monc = self.0.clone();
        match method {
            METHOD_CEPHX => Ok(Box::new(ByTicket {
                monc,
                handler: ServiceHandler::new(),
            })),
            METHOD_NONE => Ok(Box::new(ByName)),
            method => Err(AuthError::Method { method }),
        }
    }
}

/// Somebody with a ticket.
struct ByTicket {
    monc: MonClient,
    handler: ServiceHandler,
}

struct Secrets<'a>(&'a MonClient);

impl ServiceSecrets for Secrets<'_> {
    fn service_secret(&self, service: u32, id: u64) -> Option<CryptoKey> {
        let inner = &self.0.0;
        if service != inner.settings.name.kind {
            return None;
        }
        inner.rotating.borrow().secret(id).cloned()
    }
    fn own_secret(&self, name: &AuthEntityName) -> Option<CryptoKey> {
        let settings = &self.0.0.settings;
        if *name == settings.name {
            settings.key.clone()
        } else {
            None
        }
    }
}

impl ServerExchange for ByTicket {
    fn step(&mut self, payload: Bytes, mode: u32) -> Result<ServerStep, AuthError> {
        let env = self.monc.0.env.clone();
        let step = self.handler.step(
            &payload,
            mode == MODE_SECURE,
            &Secrets(&self.monc),
            &mut |buf: &mut [u8]| env.fill_random(buf),
        );
        if let Err(AuthError::UnknownSecret { .. }) = &step {
            self.monc.renew_rotating();
        }
        match step? {
            ServiceStep::Challenge(payload) => Ok(ServerStep::More(payload)),
            ServiceStep::Done(verified) => {
                if verified.ticket.expires <= self.monc.now() {
                    return Err(AuthError::Expired);
                }
                Ok(ServerStep::Done(Box::new(Accepted {
                    reply: verified.reply,
                    global_id: verified.ticket.global_id,
                    name: verified.ticket.name,
                    caps: verified.ticket.caps,
                    keys: SessionKeys {
                        session_key: Some(verified.session_key),
                        connection_secret: verified.connection_secret,
                    },
                    state: None::<Rc<dyn std::any::Any>>,
                })))
            }
        }
    }
}

/// Somebody who is believed.
struct ByName;

impl ServerExchange for ByName {
    fn step(&mut self, payload: Bytes, _: u32) -> Result<ServerStep, AuthError> {
        let (name, global_id) = auth::none::open_authorizer(&payload)?;
        Ok(ServerStep::Done(Box::new(Accepted {
            reply: Bytes::new(),
            global_id,
            name,
            caps: AuthCapsInfo::allow_all(),
            keys: SessionKeys::default(),
            state: None,
        })))
    }
}
