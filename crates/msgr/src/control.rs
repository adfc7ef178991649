//! Payloads of the control frames.

use bytes::Bytes;
use denc::{Denc, Error, Reader, Writer};
use types::addr::{AddrVec, EntityAddr};
use types::time::UTime;

use crate::frame::tag;

/// Flag of idents: the session is lossy.
pub(crate) const FLAG_LOSSY: u64 = 1;

/// HELLO.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub(crate) struct Hello {
    pub(crate) kind: u8,
    /// The receiver as the sender sees it.
    pub(crate) seen: EntityAddr,
}

/// AUTH_REQUEST.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub(crate) struct AuthRequestFrame {
    pub(crate) method: u32,
    pub(crate) modes: Vec<u32>,
    pub(crate) payload: Bytes,
}

/// AUTH_BAD_METHOD.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub(crate) struct BadMethod {
    pub(crate) method: u32,
    pub(crate) result: i32,
    pub(crate) methods: Vec<u32>,
    pub(crate) modes: Vec<u32>,
}

/// AUTH_DONE.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub(crate) struct AuthDone {
    pub(crate) global_id: u64,
    pub(crate) mode: u32,
    pub(crate) payload: Bytes,
}

/// CLIENT_IDENT.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub(crate) struct ClientIdent {
    pub(crate) addrs: AddrVec,
    pub(crate) target: EntityAddr,
    pub(crate) gid: i64,
    pub(crate) global_seq: u64,
    pub(crate) supported: u64,
    pub(crate) required: u64,
    pub(crate) flags: u64,
    pub(crate) cookie: u64,
}

/// SERVER_IDENT.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub(crate) struct ServerIdent {
    pub(crate) addrs: AddrVec,
    pub(crate) gid: i64,
    pub(crate) global_seq: u64,
    pub(crate) supported: u64,
    pub(crate) required: u64,
    pub(crate) flags: u64,
    pub(crate) cookie: u64,
}

/// SESSION_RECONNECT.
#[derive(Debug, Clone, PartialEq, Eq, Denc)]
pub(crate) struct Reconnect {
    pub(crate) addrs: AddrVec,
    pub(crate) client_cookie: u64,
    pub(crate) server_cookie: u64,
    pub(crate) global_seq: u64,
    pub(crate) connect_seq: u64,
    pub(crate) msg_seq: u64,
}

/// A control frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Control {
    Hello(Hello),
    AuthRequest(AuthRequestFrame),
    AuthBadMethod(BadMethod),
    AuthReplyMore(Bytes),
    AuthRequestMore(Bytes),
    AuthDone(AuthDone),
    AuthSignature([u8; 32]),
    ClientIdent(ClientIdent),
    ServerIdent(ServerIdent),
    IdentMissingFeatures(u64),
    SessionReconnect(Reconnect),
    SessionReset { full: bool },
    SessionRetry(u64),
    SessionRetryGlobal(u64),
    SessionReconnectOk(u64),
    Wait,
    Keepalive2(UTime),
    Keepalive2Ack(UTime),
    Ack(u64),
}

impl Control {
    /// The frame's tag.
    pub(crate) fn tag(&self) -> u8 {
        match self {
            Control::Hello(_) => tag::HELLO,
            Control::AuthRequest(_) => tag::AUTH_REQUEST,
            Control::AuthBadMethod(_) => tag::AUTH_BAD_METHOD,
            Control::AuthReplyMore(_) => tag::AUTH_REPLY_MORE,
            Control::AuthRequestMore(_) => tag::AUTH_REQUEST_MORE,
            Control::AuthDone(_) => tag::AUTH_DONE,
            Control::AuthSignature(_) => tag::AUTH_SIGNATURE,
            Control::ClientIdent(_) => tag::CLIENT_IDENT,
            Control::ServerIdent(_) => tag::SERVER_IDENT,
            Control::IdentMissingFeatures(_) => tag::IDENT_MISSING_FEATURES,
            Control::SessionReconnect(_) => tag::SESSION_RECONNECT,
            Control::SessionReset { .. } => tag::SESSION_RESET,
            Control::SessionRetry(_) => tag::SESSION_RETRY,
            Control::SessionRetryGlobal(_) => tag::SESSION_RETRY_GLOBAL,
            Control::SessionReconnectOk(_) => tag::SESSION_RECONNECT_OK,
            Control::Wait => tag::WAIT,
            Control::Keepalive2(_) => tag::KEEPALIVE2,
            Control::Keepalive2Ack(_) => tag::KEEPALIVE2_ACK,
            Control::Ack(_) => tag::ACK,
        }
    }

    /// The frame's only segment.
    pub(crate) fn payload(&self) -> Vec<u8> {
        let mut w = Writer::with_capacity(64);
        match self {
            Control::Hello(frame) => frame.encode(&mut w),
            Control::AuthRequest(frame) => frame.encode(&mut w),
            Control::AuthBadMethod(frame) => frame.encode(&mut w),
            Control::AuthReplyMore(bytes) | Control::AuthRequestMore(bytes) => w.blob(bytes),
            Control::AuthDone(frame) => frame.encode(&mut w),
            Control::AuthSignature(bytes) => w.raw(bytes),
            Control::ClientIdent(frame) => frame.encode(&mut w),
            Control::ServerIdent(frame) => frame.encode(&mut w),
            Control::SessionReconnect(frame) => frame.encode(&mut w),
            Control::SessionReset { full } => w.bool(*full),
            Control::IdentMissingFeatures(n)
            | Control::SessionRetry(n)
            | Control::SessionRetryGlobal(n)
            | Control::SessionReconnectOk(n)
            | Control::Ack(n) => w.u64(*n),
            Control::Wait => {}
            Control::Keepalive2(time) | Control::Keepalive2Ack(time) => time.encode(&mut w),
        }
        w.into_vec()
    }

    /// Reads a control frame; a tag that is none is an error.
    pub(crate) fn decode(tag: u8, payload: &Bytes) -> Result<Control, Error> {
        let r = &mut Reader::new(payload);
        Ok(match tag {
            tag::HELLO => Control::Hello(r.get()?),
            tag::AUTH_REQUEST => Control::AuthRequest(r.get()?),
            tag::AUTH_BAD_METHOD => Control::AuthBadMethod(r.get()?),
            tag::AUTH_REPLY_MORE => Control::AuthReplyMore(r.blob()?),
            tag::AUTH_REQUEST_MORE => Control::AuthRequestMore(r.blob()?),
            tag::AUTH_DONE => Control::AuthDone(r.get()?),
            tag::AUTH_SIGNATURE => Control::AuthSignature(r.get()?),
            tag::CLIENT_IDENT => Control::ClientIdent(r.get()?),
            tag::SERVER_IDENT => Control::ServerIdent(r.get()?),
            tag::IDENT_MISSING_FEATURES => Control::IdentMissingFeatures(r.u64()?),
            tag::SESSION_RECONNECT => Control::SessionReconnect(r.get()?),
            tag::SESSION_RESET => Control::SessionReset { full: r.bool()? },
            tag::SESSION_RETRY => Control::SessionRetry(r.u64()?),
            tag::SESSION_RETRY_GLOBAL => Control::SessionRetryGlobal(r.u64()?),
            tag::SESSION_RECONNECT_OK => Control::SessionReconnectOk(r.u64()?),
            tag::WAIT => Control::Wait,
            tag::KEEPALIVE2 => Control::Keepalive2(r.get()?),
            tag::KEEPALIVE2_ACK => Control::Keepalive2Ack(r.get()?),
            tag::ACK => Control::Ack(r.u64()?),
            tag => {
                return Err(Error::Invalid { what: "frame tag", value: tag.into() });
            }
        })
    }
}
