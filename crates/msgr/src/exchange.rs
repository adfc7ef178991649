//! Ready-made exchanges: a service's side and its clients' side, cephx and none. What is special
//! to monitors (handing out tickets) is the monitors' own.

use std::rc::Rc;

use auth::cephx::{Authorizer, ServiceHandler, ServiceStep};
use auth::{AuthCapsInfo, AuthError, METHOD_CEPHX, METHOD_NONE, MODE_SECURE, ServiceSecrets, none};
use bytes::Bytes;
use env::Env;

use crate::auth_traits::{
    Accepted, AuthRequest, ClientExchange, ServerExchange, ServerStep, SessionKeys,
};

/// Client of a service, with a ticket.
#[derive(Debug)]
pub struct AuthorizerExchange {
    /// Made from the ticket.
    pub authorizer: Authorizer,
    /// `auth::MODE_*`, best first.
    pub preferred_modes: Vec<u32>,
}

impl ClientExchange for AuthorizerExchange {
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
        Ok(SessionKeys { session_key: Some(session_key), connection_secret })
    }
}

/// Client of anybody, believed.
#[derive(Debug)]
pub struct NoneExchange {
    /// `auth::none::authorizer` for services, an encoded `auth::cephx::StartRequest` for monitors.
    pub payload: Bytes,
}

impl ClientExchange for NoneExchange {
    fn request(&mut self) -> Result<AuthRequest, AuthError> {
        Ok(AuthRequest {
            method: METHOD_NONE,
            preferred_modes: vec![auth::MODE_CRC],
            payload: self.payload.clone(),
        })
    }

    fn on_reply_more(&mut self, _: Bytes) -> Result<Bytes, AuthError> {
        Err(AuthError::OutOfOrder)
    }

    fn on_done(&mut self, _: u64, _: u32, _: Bytes) -> Result<SessionKeys, AuthError> {
        Ok(SessionKeys::default())
    }
}

/// A service that opens tickets with its secrets.
pub struct ServiceExchange {
    handler: ServiceHandler,
    secrets: Rc<dyn ServiceSecrets>,
    env: Env,
}

impl ServiceExchange {
    /// The service's side of one handshake.
    pub fn new(secrets: Rc<dyn ServiceSecrets>, env: Env) -> ServiceExchange {
        ServiceExchange { handler: ServiceHandler::new(), secrets, env }
    }
}

impl ServerExchange for ServiceExchange {
    fn step(&mut self, payload: Bytes, mode: u32) -> Result<ServerStep, AuthError> {
        let fill = |buf: &mut [u8]| self.env.fill_random(buf);
        let secure = mode == MODE_SECURE;
        match self.handler.step(&payload, secure, &*self.secrets, &fill)? {
            ServiceStep::Challenge(payload) => Ok(ServerStep::More(payload)),
            ServiceStep::Done(verified) => Ok(ServerStep::Done(Box::new(Accepted {
                reply: verified.reply,
                global_id: verified.ticket.global_id,
                name: verified.ticket.name,
                caps: verified.ticket.caps,
                keys: SessionKeys {
                    session_key: Some(verified.session_key),
                    connection_secret: verified.connection_secret,
                },
                state: None,
            }))),
        }
    }
}

/// A service that believes everybody, in crc mode (there is no key to seal with).
#[derive(Debug)]
pub struct BelievingExchange;

impl ServerExchange for BelievingExchange {
    fn step(&mut self, payload: Bytes, mode: u32) -> Result<ServerStep, AuthError> {
        if mode == MODE_SECURE {
            return Err(AuthError::Method { method: METHOD_NONE });
        }
        let (name, global_id) = none::open_authorizer(&payload)?;
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
