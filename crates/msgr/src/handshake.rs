//! From the banner to the ident, as a state machine over received bytes. No I/O: what is to be
//! sent gathers in a batch.
//!
//! ```text
//! client                                   server
//!   Banner ------------ banner ----------- Banner
//!   Hello  ------------ HELLO ------------ Hello
//!   AuthReply <-------- AUTH_REQUEST ----- AuthRequest
//!             AUTH_REPLY_MORE / AUTH_REQUEST_MORE, AUTH_BAD_METHOD, AUTH_DONE
//!   Signature --------- AUTH_SIGNATURE --- Signature
//!   Ident  (idents are handed to the driver: they need the table of sessions)
//! ```
//!
//! States are named after what is awaited. AUTH_SIGNATURE is an HMAC over all bytes its sender
//! received before AUTH_DONE was sent, so that nobody can have changed what was negotiated.

use core::fmt;
use std::rc::Rc;

use auth::{AuthError, CryptoKey, METHOD_NONE, MODE_CRC, MODE_SECURE};
use bytes::{Bytes, BytesMut};
use ring::hmac;
use types::addr::EntityAddr;
use types::entity;
use types::errno::Errno;

use crate::auth_traits::{
    Accepted, AuthRequest, AuthServer, ClientExchange, ServerExchange, ServerStep, SessionKeys,
    Stranger,
};
use crate::control::{AuthDone, AuthRequestFrame, BadMethod, Control, Hello};
use crate::frame::{FrameError, FrameReader, FrameWriter, SendBatch, rx_tx_streams};

const BANNER: &[u8; 8] = b"ceph v2\n";
const BANNER_LEN: usize = 8 + 2 + 16;
/// Protocol feature: frames of revision 1.
const REVISION_1: u64 = 1;
/// Rounds of authentication a peer may take before it is given up.
const ROUNDS_MAX: u32 = 16;
/// Bytes a peer may send before AUTH_DONE: tickets are a few kB each.
const RECEIVED_MAX: usize = 64 << 10;

/// Why a handshake ended without a session.
#[derive(Debug)]
pub(crate) enum HandshakeError {
    /// Not this protocol, or a revision of it that is not spoken here.
    Banner,
    Frame(FrameError),
    Decode(denc::Error),
    /// A frame that does not belong here.
    Unexpected {
        tag: u8,
    },
    Auth(AuthError),
    /// The signature does not fit: somebody changed what was exchanged, or has another key.
    Signature,
    TooManyRounds,
    /// More than [`RECEIVED_MAX`] came before AUTH_DONE.
    TooLong,
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandshakeError::Banner => f.write_str("not messenger v2.1"),
            HandshakeError::Frame(e) => write!(f, "{e}"),
            HandshakeError::Decode(e) => write!(f, "{e}"),
            HandshakeError::Unexpected { tag } => write!(f, "unexpected frame, tag {tag}"),
            HandshakeError::Auth(e) => write!(f, "authentication: {e}"),
            HandshakeError::Signature => f.write_str("wrong signature"),
            HandshakeError::TooManyRounds => f.write_str("too many rounds of authentication"),
            HandshakeError::TooLong => f.write_str("too much before the end of authentication"),
        }
    }
}

impl From<FrameError> for HandshakeError {
    fn from(e: FrameError) -> HandshakeError {
        HandshakeError::Frame(e)
    }
}

impl From<denc::Error> for HandshakeError {
    fn from(e: denc::Error) -> HandshakeError {
        HandshakeError::Decode(e)
    }
}

impl From<AuthError> for HandshakeError {
    fn from(e: AuthError) -> HandshakeError {
        HandshakeError::Auth(e)
    }
}

/// What is awaited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Banner,
    Hello,
    /// Client: AUTH_REPLY_MORE, AUTH_BAD_METHOD or AUTH_DONE.
    AuthReply,
    /// Server: AUTH_REQUEST.
    AuthRequest,
    /// Server: AUTH_REQUEST_MORE.
    AuthMore,
    Signature,
    Ident,
}

/// The side one is on, with what authenticates it.
enum Role {
    Client { exchange: Box<dyn ClientExchange> },
    Server { auth: Rc<dyn AuthServer>, exchange: Option<Box<dyn ServerExchange>>, mode: u32 },
}

/// How far a call got.
#[derive(Debug)]
pub(crate) enum Step {
    /// All bytes are used up.
    More,
    /// The peer has introduced itself.
    Hello(Hello),
    /// Both are authenticated: a client sends its ident now.
    Authenticated,
    /// A frame of the ident phase.
    Ident(Control),
}

/// One handshake.
pub(crate) struct Handshake {
    role: Role,
    state: State,
    pub(crate) reader: FrameReader,
    pub(crate) writer: FrameWriter,
    /// What is to be sent.
    pub(crate) out: SendBatch,
    own_kind: u8,
    /// The peer as its socket shows it.
    peer: EntityAddr,
    peer_kind: u8,
    /// All bytes received and sent before AUTH_DONE; bounded by `RECEIVED_MAX`, and by `ROUNDS_MAX`
    /// answers.
    received: Vec<u8>,
    sent: Vec<u8>,
    rounds: u32,
    session_key: Option<CryptoKey>,
    accepted: Option<Box<Accepted>>,
    global_id: u64,
}

impl Handshake {
    /// The connecting side.
    pub(crate) fn client(
        own_kind: u8,
        peer: EntityAddr,
        exchange: Box<dyn ClientExchange>,
    ) -> Handshake {
        Handshake::start(Role::Client { exchange }, own_kind, peer)
    }

    /// The accepting side.
    pub(crate) fn server(own_kind: u8, peer: EntityAddr, auth: Rc<dyn AuthServer>) -> Handshake {
        Handshake::start(Role::Server { auth, exchange: None, mode: 0 }, own_kind, peer)
    }

    fn start(role: Role, own_kind: u8, peer: EntityAddr) -> Handshake {
        let mut hs = Handshake {
            role,
            state: State::Banner,
            reader: FrameReader::new(),
            writer: FrameWriter::new(),
            out: SendBatch::new(),
            own_kind,
            peer,
            peer_kind: entity::ANY,
            received: Vec::new(),
            sent: Vec::new(),
            rounds: 0,
            session_key: None,
            accepted: None,
            global_id: 0,
        };
        let mut banner = BANNER.to_vec();
        banner.extend_from_slice(&16_u16.to_le_bytes());
        banner.extend_from_slice(&REVISION_1.to_le_bytes());
        banner.extend_from_slice(&0_u64.to_le_bytes());
        hs.out.copy(&banner);
        hs.sent.extend_from_slice(&banner);
        hs
    }

    /// Entity type the peer says it has.
    pub(crate) fn peer_kind(&self) -> u8 {
        self.peer_kind
    }

    /// Who was accepted (server side, once authenticated).
    pub(crate) fn take_accepted(&mut self) -> Option<Box<Accepted>> {
        self.accepted.take()
    }

    /// The global id AUTH_DONE told (client side).
    pub(crate) fn global_id(&self) -> u64 {
        self.global_id
    }

    /// Puts a frame into the batch.
    pub(crate) fn send(&mut self, frame: &Control) {
        let mut bytes = SendBatch::new();
        self.writer.control(frame.tag(), &frame.payload(), &mut bytes);
        let bytes = bytes.to_vec();
        if !matches!(self.state, State::Signature | State::Ident) {
            self.sent.extend_from_slice(&bytes);
        }
        self.out.copy(&bytes);
    }

    /// Takes the next thing off `buf`. Call again until it says [`Step::More`].
    pub(crate) fn step(&mut self, buf: &mut BytesMut) -> Result<Step, HandshakeError> {
        loop {
            if self.state == State::Banner {
                if !self.on_banner(buf)? {
                    return Ok(Step::More);
                }
                continue;
            }
            let logged = !matches!(self.state, State::Signature | State::Ident);
            let before = if logged { Bytes::copy_from_slice(buf) } else { Bytes::new() };
            // Control frames have one segment. What has more may be aborted by its sender: it would
            // be skipped, and grow what is kept for the signature without counting as a round.
            if let Some(p) = self.reader.preamble(buf)?
                && p.segments > 1
            {
                return Err(HandshakeError::Unexpected { tag: p.tag });
            }
            let frame = self.reader.next(buf)?;
            if logged {
                self.received.extend_from_slice(&before[..before.len() - buf.len()]);
                if self.received.len() > RECEIVED_MAX {
                    return Err(HandshakeError::TooLong);
                }
            }
            let Some(frame) = frame else { return Ok(Step::More) };
            let frame = Control::decode(frame.tag, frame.payload())?;
            if let Some(step) = self.on_frame(frame)? {
                return Ok(step);
            }
        }
    }

    /// Bytes that the buffer must hold before [`Handshake::step`] gets on.
    pub(crate) fn need(&self) -> usize {
        if self.state == State::Banner { BANNER_LEN } else { self.reader.need() }
    }

    fn on_banner(&mut self, buf: &mut BytesMut) -> Result<bool, HandshakeError> {
        let known = buf.len().min(BANNER.len());
        if buf[..known] != BANNER[..known] {
            return Err(HandshakeError::Banner);
        }
        if buf.len() < 10 {
            return Ok(false);
        }
        let len = usize::from(u16::from_le_bytes([buf[8], buf[9]]));
        if !(16..=256).contains(&len) {
            return Err(HandshakeError::Banner);
        }
        if buf.len() < 10 + len {
            return Ok(false);
        }
        let banner = buf.split_to(10 + len);
        self.received.extend_from_slice(&banner);
        let u64_at = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&banner[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (supported, required) = (u64_at(10), u64_at(18));
        if supported & REVISION_1 == 0 || required & !REVISION_1 != 0 {
            return Err(HandshakeError::Banner);
        }
        self.state = State::Hello;
        self.send(&Control::Hello(Hello { kind: self.own_kind, seen: self.peer }));
        Ok(true)
    }

    fn on_frame(&mut self, frame: Control) -> Result<Option<Step>, HandshakeError> {
        let tag = frame.tag();
        match (self.state, frame) {
            (State::Hello, Control::Hello(hello)) => {
                self.peer_kind = hello.kind;
                self.state = match &mut self.role {
                    Role::Server { .. } => State::AuthRequest,
                    Role::Client { exchange } => {
                        let request = exchange.request()?;
                        self.send_request(request);
                        State::AuthReply
                    }
                };
                Ok(Some(Step::Hello(hello)))
            }
            (State::AuthReply, Control::AuthReplyMore(payload)) => {
                self.count_round()?;
                let more = self.exchange()?.on_reply_more(payload)?;
                self.send(&Control::AuthRequestMore(more));
                Ok(None)
            }
            (State::AuthReply, Control::AuthBadMethod(bad)) => {
                self.count_round()?;
                let errno = bad.result.saturating_neg();
                let exchange = self.exchange()?;
                let again = exchange.on_bad_method(bad.method, errno, &bad.methods, &bad.modes)?;
                self.send_request(again);
                Ok(None)
            }
            (State::AuthReply, Control::AuthDone(done)) => {
                self.global_id = done.global_id;
                let keys = self.exchange()?.on_done(done.global_id, done.mode, done.payload)?;
                self.authenticated(done.mode, keys)?;
                Ok(None)
            }
            (State::AuthRequest, Control::AuthRequest(request)) => {
                self.count_round()?;
                self.on_auth_request(request)?;
                Ok(None)
            }
            (State::AuthMore, Control::AuthRequestMore(payload)) => {
                self.count_round()?;
                self.on_auth_payload(payload, None)?;
                Ok(None)
            }
            (State::Signature, Control::AuthSignature(signature)) => {
                self.check_signature(&signature)?;
                self.state = State::Ident;
                (self.received, self.sent) = (Vec::new(), Vec::new());
                Ok(Some(Step::Authenticated))
            }
            (State::Ident, frame) => Ok(Some(Step::Ident(frame))),
            _ => Err(HandshakeError::Unexpected { tag }),
        }
    }

    fn count_round(&mut self) -> Result<(), HandshakeError> {
        self.rounds += 1;
        if self.rounds > ROUNDS_MAX { Err(HandshakeError::TooManyRounds) } else { Ok(()) }
    }

    fn exchange(&mut self) -> Result<&mut Box<dyn ClientExchange>, HandshakeError> {
        match &mut self.role {
            Role::Client { exchange } => Ok(exchange),
            Role::Server { .. } => Err(HandshakeError::Auth(AuthError::OutOfOrder)),
        }
    }

    fn send_request(&mut self, request: AuthRequest) {
        self.send(&Control::AuthRequest(AuthRequestFrame {
            method: request.method,
            modes: request.preferred_modes,
            payload: request.payload,
        }));
    }

    /// Server: picks mode and exchange, or tells what would be allowed.
    fn on_auth_request(&mut self, request: AuthRequestFrame) -> Result<(), HandshakeError> {
        let kind = self.peer_kind;
        let from = self.peer.sock;
        let Role::Server { auth, exchange, mode } = &mut self.role else {
            return Err(HandshakeError::Auth(AuthError::OutOfOrder));
        };
        if !auth.admits(Stranger { kind, from }) {
            return Err(HandshakeError::Auth(AuthError::Refused { errno: Errno::EAGAIN.0 }));
        }
        let (methods, modes) = (auth.allowed_methods(kind), auth.allowed_modes(kind));
        // Without a key there is nothing to seal with (src/auth/AuthServer.h: pick_con_mode).
        let chosen = match request.method {
            METHOD_NONE => Some(MODE_CRC),
            _ => request.modes.iter().find(|mode| modes.contains(mode)).copied(),
        };
        let begun = match chosen {
            Some(chosen) if methods.contains(&request.method) => {
                *mode = chosen;
                auth.accept(Stranger { kind, from }, request.method)
            }
            _ => Err(AuthError::Method { method: request.method }),
        };
        match begun {
            Ok(begun) => {
                *exchange = Some(begun);
                self.on_auth_payload(request.payload, Some(request.method))
            }
            Err(e) => {
                self.refuse(request.method, &e);
                Ok(())
            }
        }
    }

    fn refuse(&mut self, method: u32, e: &AuthError) {
        let Role::Server { auth, exchange, .. } = &mut self.role else { return };
        tracing::info!(target: "auth", peer = %self.peer, "refused: {e}");
        *exchange = None;
        let errno = match e {
            AuthError::Method { .. } => Errno::EOPNOTSUPP,
            _ => Errno::EACCES,
        };
        let bad = BadMethod {
            method,
            result: -errno.0,
            methods: auth.allowed_methods(self.peer_kind),
            modes: auth.allowed_modes(self.peer_kind),
        };
        self.state = State::AuthRequest;
        self.send(&Control::AuthBadMethod(bad));
    }

    /// Server: one step of the exchange.
    fn on_auth_payload(
        &mut self,
        payload: Bytes,
        method: Option<u32>,
    ) -> Result<(), HandshakeError> {
        let Role::Server { exchange: Some(exchange), mode, .. } = &mut self.role else {
            return Err(HandshakeError::Auth(AuthError::OutOfOrder));
        };
        let mode = *mode;
        match exchange.step(payload, mode).and_then(|step| self.check_kind(step)) {
            Ok(ServerStep::More(payload)) => {
                self.state = State::AuthMore;
                self.send(&Control::AuthReplyMore(payload));
            }
            Ok(ServerStep::Done(accepted)) => {
                // The signature covers what came before AUTH_DONE was sent.
                self.send(&Control::AuthDone(AuthDone {
                    global_id: accepted.global_id,
                    mode,
                    payload: accepted.reply.clone(),
                }));
                let keys = accepted.keys.clone();
                self.accepted = Some(accepted);
                self.authenticated(mode, keys)?;
            }
            Err(e) => self.refuse(method.unwrap_or(auth::METHOD_CEPHX), &e),
        }
        Ok(())
    }

    /// Who says it is a daemon must have a daemon's key: other daemons trust its messages. (The
    /// other way round is usual: clients inside a manager have the manager's key.)
    fn check_kind(&self, step: ServerStep) -> Result<ServerStep, AuthError> {
        let ServerStep::Done(accepted) = &step else { return Ok(step) };
        let believed = accepted.keys.session_key.is_none();
        let same = accepted.name.kind == u32::from(self.peer_kind);
        if believed || same || self.peer_kind == entity::CLIENT {
            Ok(step)
        } else {
            Err(AuthError::BadProof)
        }
    }

    /// Both sides know the keys: from here on frames are sealed if the mode says so.
    fn authenticated(&mut self, mode: u32, keys: SessionKeys) -> Result<(), HandshakeError> {
        let (mut rx, mut tx) = (None, None);
        if mode == MODE_SECURE {
            let is_server = matches!(self.role, Role::Server { .. });
            let (r, t) = rx_tx_streams(&keys.connection_secret, is_server)?;
            (rx, tx) = (Some(r), Some(t));
        }
        self.session_key = keys.session_key;
        self.state = State::Signature;
        let signature = self.sign(&self.received);
        self.reader.authenticated(rx);
        self.writer.authenticated(tx);
        self.send(&Control::AuthSignature(signature));
        Ok(())
    }

    fn sign(&self, over: &[u8]) -> [u8; 32] {
        sign(self.session_key.as_ref(), over)
    }

    fn check_signature(&self, got: &[u8; 32]) -> Result<(), HandshakeError> {
        let holds = is_signature(self.session_key.as_ref(), &self.sent, got);
        if holds { Ok(()) } else { Err(HandshakeError::Signature) }
    }
}

fn signing_key(key: Option<&CryptoKey>) -> Option<hmac::Key> {
    Some(hmac::Key::new(hmac::HMAC_SHA256, key?.secret()?))
}

/// Zeros without a secret.
fn sign(key: Option<&CryptoKey>, over: &[u8]) -> [u8; 32] {
    let mut signature = [0; 32];
    if let Some(key) = signing_key(key) {
        signature.copy_from_slice(hmac::sign(&key, over).as_ref());
    }
    signature
}

fn is_signature(key: Option<&CryptoKey>, over: &[u8], got: &[u8; 32]) -> bool {
    match signing_key(key) {
        Some(key) => hmac::verify(&key, over, got).is_ok(),
        None => *got == [0; 32],
    }
}

#[cfg(test)]
mod tests {
    use types::time::UTime;

    use super::*;
    use crate::frame::{EPILOGUE_LEN, LATE_ABORTED, Segment, tag};

    /// Lets nobody in.
    struct Closed;

    impl AuthServer for Closed {
        fn allowed_methods(&self, _: u8) -> Vec<u32> {
            Vec::new()
        }
        fn accept(&self, _: Stranger, method: u32) -> Result<Box<dyn ServerExchange>, AuthError> {
            Err(AuthError::Method { method })
        }
    }

    /// A server that awaits AUTH_REQUEST.
    fn greeted() -> Handshake {
        let mut hs = Handshake::server(entity::OSD, EntityAddr::default(), Rc::new(Closed));
        let mut client = Handshake::server(entity::CLIENT, EntityAddr::default(), Rc::new(Closed));
        client.send(&Control::Hello(Hello { kind: entity::CLIENT, seen: EntityAddr::default() }));
        let mut buf = BytesMut::from(&client.out.to_vec()[..]);
        assert!(matches!(hs.step(&mut buf), Ok(Step::Hello(_))));
        hs
    }

    /// Found by reading: frames that their sender aborts were skipped, and kept for the signature. A
    /// stranger had a daemon's memory filled with them.
    #[test]
    fn frames_of_several_segments_end_a_handshake() {
        let mut hs = greeted();
        let (front, none) = (Bytes::from(vec![7; 4096]), Bytes::new());
        let rest = [Segment::from(&front), Segment::from(&none), Segment::from(&none)];
        let mut out = SendBatch::new();
        FrameWriter::new().frame(tag::MESSAGE, b"header", rest, &mut out);
        let mut aborted = out.to_vec();
        let status = aborted.len() - EPILOGUE_LEN;
        aborted[status] = LATE_ABORTED;
        let before = hs.received.len();
        let refused = hs.step(&mut BytesMut::from(&aborted[..]));
        assert!(matches!(refused, Err(HandshakeError::Unexpected { tag: tag::MESSAGE })));
        assert_eq!(hs.received.len(), before);
    }

    /// All bytes before AUTH_DONE are kept: few rounds of long frames are too much, too.
    #[test]
    fn what_is_kept_for_the_signature_is_bounded() {
        let mut hs = greeted();
        let request = Control::AuthRequest(AuthRequestFrame {
            method: auth::METHOD_CEPHX,
            modes: vec![MODE_CRC],
            payload: vec![7; 60 << 10].into(),
        });
        let mut out = SendBatch::new();
        FrameWriter::new().control(request.tag(), &request.payload(), &mut out);
        let request = out.to_vec();
        let ended = (0..ROUNDS_MAX).find_map(|_| hs.step(&mut BytesMut::from(&request[..])).err());
        assert!(matches!(ended, Some(HandshakeError::TooLong)), "{ended:?}");
        assert!(hs.received.len() <= RECEIVED_MAX + request.len());
    }

    /// With the check left out all else passed.
    #[test]
    fn only_what_the_same_key_signs_of_the_same_bytes_is_a_signature() {
        let keys = [[7; 16], [8; 16]].map(|secret| CryptoKey::new(secret, UTime::ZERO));
        let signed = sign(Some(&keys[0]), b"banner");
        assert!(is_signature(Some(&keys[0]), b"banner", &signed));
        assert!(!is_signature(Some(&keys[1]), b"banner", &signed));
        assert!(!is_signature(Some(&keys[0]), b"another", &signed));
        assert!(!is_signature(Some(&keys[0]), b"banner", &[0; 32]));
        assert!(is_signature(None, b"banner", &[0; 32]));
        assert!(!is_signature(None, b"banner", &signed));
    }
}
