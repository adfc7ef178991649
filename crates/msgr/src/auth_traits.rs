//! How authentication plugs into the handshake. The messenger carries opaque payloads; an exchange
//! object of each attempt holds what the method needs between its steps.

use std::any::Any;
use std::rc::Rc;

use auth::{AuthCapsInfo, AuthError, CryptoKey};
use bytes::Bytes;
use types::entity::AuthEntityName;

use crate::Connection;

/// The connecting side's choice of method and credentials.
pub trait AuthClient {
    /// Begins an exchange for one attempt of `con` to connect. An error fails the attempt (it is
    /// tried again after the backoff), for example when no ticket for the service is held yet.
    fn connect(&self, con: &Connection) -> Result<Box<dyn ClientExchange>, AuthError>;
}

/// What AUTH_REQUEST carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthRequest {
    /// `auth::METHOD_*`.
    pub method: u32,
    /// `auth::MODE_*`, best first.
    pub preferred_modes: Vec<u32>,
    /// The method's first payload.
    pub payload: Bytes,
}

/// The connecting side of one exchange.
pub trait ClientExchange {
    /// The first request.
    fn request(&mut self) -> Result<AuthRequest, AuthError>;
    /// AUTH_REPLY_MORE has come: the payload of AUTH_REQUEST_MORE.
    fn on_reply_more(&mut self, payload: Bytes) -> Result<Bytes, AuthError>;
    /// AUTH_DONE has come.
    fn on_done(
        &mut self,
        global_id: u64,
        mode: u32,
        payload: Bytes,
    ) -> Result<SessionKeys, AuthError>;
    /// AUTH_BAD_METHOD has come: another request to try, or the error that ends the attempt.
    /// `errno` is positive.
    fn on_bad_method(
        &mut self,
        method: u32,
        errno: i32,
        allowed_methods: &[u32],
        allowed_modes: &[u32],
    ) -> Result<AuthRequest, AuthError> {
        let _ = (method, allowed_methods, allowed_modes);
        Err(AuthError::Refused { errno })
    }
}

/// What both sides share after authentication.
#[derive(Debug, Clone, Default)]
pub struct SessionKeys {
    /// Signs what was exchanged before; `None` with method none.
    pub session_key: Option<CryptoKey>,
    /// 64 bytes in secure mode, else empty.
    pub connection_secret: Bytes,
}

/// Who connects, as far as it is known before it proved anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stranger {
    /// Entity type it says it has.
    pub kind: u8,
    /// Where it connects from (`None` when not a TCP peer).
    pub from: Option<std::net::SocketAddr>,
}

/// The accepting side's policy.
pub trait AuthServer {
    /// Methods a peer of this kind may use (`auth::METHOD_*`).
    fn allowed_methods(&self, peer_kind: u8) -> Vec<u32>;
    /// Modes a peer of this kind may use (`auth::MODE_*`); the first one in the *peer's* order is
    /// taken.
    fn allowed_modes(&self, peer_kind: u8) -> Vec<u32> {
        let _ = peer_kind;
        vec![auth::MODE_CRC, auth::MODE_SECURE]
    }
    /// Whether anybody of that kind is let in at all now; else the socket is closed without a word,
    /// as if nobody were there.
    fn admits(&self, stranger: Stranger) -> bool {
        let _ = stranger;
        true
    }
    /// Begins an exchange with somebody who connects, by a method that was allowed.
    fn accept(&self, stranger: Stranger, method: u32)
    -> Result<Box<dyn ServerExchange>, AuthError>;
}

/// The accepting side of one exchange.
pub trait ServerExchange {
    /// AUTH_REQUEST (first) or AUTH_REQUEST_MORE (later) has come. `mode` is the connection mode
    /// chosen. An error is answered by AUTH_BAD_METHOD; the peer may begin again.
    fn step(&mut self, payload: Bytes, mode: u32) -> Result<ServerStep, AuthError>;
}

/// What the accepting side answers.
#[derive(Debug)]
pub enum ServerStep {
    /// AUTH_REPLY_MORE.
    More(Bytes),
    /// AUTH_DONE.
    Done(Box<Accepted>),
}

/// Somebody is who he says.
#[derive(Debug, Clone)]
pub struct Accepted {
    /// Payload of AUTH_DONE.
    pub reply: Bytes,
    /// The entity's number in this cluster.
    pub global_id: u64,
    /// The entity.
    pub name: AuthEntityName,
    /// What it may do here.
    pub caps: AuthCapsInfo,
    /// Keys of the connection.
    pub keys: SessionKeys,
    /// What the accepting daemon wants to find again at the connection (`Connection::auth_state`).
    pub state: Option<Rc<dyn Any>>,
}
