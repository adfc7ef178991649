//! Connecting: attempts with a growing pause between them, until a socket is ready or the
//! connection is somebody else's.

use core::fmt;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use types::addr::{AddrVec, EntityAddr};
use types::entity::EntityName;

use super::link::make_room;
use super::{Carrier, RECV_LEN_MIN, attach};
use crate::connection::{Connection, Phase};
use crate::control::{ClientIdent, Control, FLAG_LOSSY, Reconnect, ServerIdent};
use crate::handshake::{Handshake, HandshakeError, Step};
use crate::messenger::Shared;

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Failed {
    /// The peer has no address that can be dialled, or we have no credentials.
    Unready,
    /// The messenger is gone.
    Gone,
    Io(io::ErrorKind),
    Handshake(HandshakeError),
    /// The peer at that address is another one.
    OtherPeer(AddrVec),
    /// The peer asks for features that we lack, or the other way round.
    Features(u64),
    /// The peer's own attempt goes first.
    Wait,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Unready => f.write_str("no address or no credentials"),
            Failed::Gone => f.write_str("overtaken"),
            Failed::Io(kind) => write!(f, "{kind}"),
            Failed::Handshake(e) => write!(f, "{e}"),
            Failed::OtherPeer(addrs) => write!(f, "the peer there is {addrs}"),
            Failed::Features(bits) => write!(f, "features {bits:#x} are lacking"),
            Failed::Wait => f.write_str("the peer connects itself"),
        }
    }
}

impl From<HandshakeError> for Failed {
    fn from(e: HandshakeError) -> Failed {
        Failed::Handshake(e)
    }
}

/// Attempts until one succeeds (then reads from its socket) or the connection is taken over.
pub(super) async fn run(con: Connection) {
    let inner = &con.0;
    let generation = inner.generation.get();
    let Some((env, config)) = inner.messenger.upgrade().map(|m| (m.env.clone(), m.config.clone()))
    else {
        return;
    };
    let mut backoff = Duration::ZERO;
    let current = || inner.generation.get() == generation && inner.phase() != Phase::Closed;
    while current() {
        let outcome = env.timeout(config.ready_timeout, attempt(&con, generation)).await;
        if !current() {
            return;
        }
        let pause = match outcome {
            Ok(Ok(carrier)) => {
                let reading = attach(&con, carrier);
                if let Some(dispatcher) = inner.messenger.upgrade().and_then(|m| m.dispatcher()) {
                    dispatcher.on_connect(&con);
                }
                return reading.await;
            }
            Ok(Err(Failed::Gone)) => return,
            Ok(Err(Failed::Wait)) => {
                tracing::debug!(?con, "told to wait");
                inner.set_phase(Phase::Waiting);
                config.max_backoff
            }
            Ok(Err(failed)) => {
                tracing::debug!(?con, "cannot connect: {failed}");
                if matches!(failed, Failed::Io(io::ErrorKind::ConnectionRefused)) {
                    let dispatcher = inner.messenger.upgrade().and_then(|m| m.dispatcher());
                    if let Some(dispatcher) = dispatcher {
                        dispatcher.on_refused(&con);
                    }
                }
                backoff = if backoff.is_zero() { config.initial_backoff } else { backoff * 2 };
                backoff = backoff.min(config.max_backoff);
                backoff
            }
            Err(_) => {
                tracing::debug!(?con, "cannot connect: timed out");
                config.initial_backoff
            }
        };
        if !current() {
            return;
        }
        env.sleep(pause).await;
        if current() {
            inner.set_phase(Phase::Connecting);
        }
    }
}

/// One attempt: from the TCP connection to the session.
async fn attempt(con: &Connection, generation: u64) -> Result<Carrier, Failed> {
    let inner = &con.0;
    let messenger = inner.messenger.upgrade().ok_or(Failed::Gone)?;
    if messenger.stopped.get() {
        return Err(Failed::Gone);
    }
    let target = inner.peer.borrow().socket_addr;
    let sock = target.sock.filter(|sock| sock.port() != 0).ok_or(Failed::Unready)?;
    let auth = messenger.auth_client.borrow().clone().ok_or(Failed::Unready)?;
    let exchange = auth.connect(con).map_err(|e| Failed::Handshake(e.into()))?;
    let env = messenger.env.clone();
    let stream = env.connect(sock).await.map_err(|e| Failed::Io(e.kind()))?;
    let mut hs = Handshake::client(messenger.name.get().kind, target, exchange);
    let mut buf = BytesMut::with_capacity(RECV_LEN_MIN);
    loop {
        if !hs.out.is_empty() {
            stream.send(hs.out.take()).await.map_err(|e| Failed::Io(e.kind()))?;
        }
        let done = loop {
            match hs.step(&mut buf)? {
                Step::More => break false,
                Step::Hello(hello) => messenger.learn_addr(&hello.seen),
                Step::Authenticated => hs.send(&offer(con, &messenger, 0)),
                Step::Ident(frame) => {
                    if let Some(next) = on_answer(con, &messenger, &target, &hs, frame)? {
                        hs.send(&next);
                    } else {
                        break true;
                    }
                }
            }
        };
        if done {
            return Ok(Carrier { stream, reader: hs.reader, writer: hs.writer, out: hs.out, buf });
        }
        if hs.out.is_empty() {
            make_room(&mut buf, hs.need(), RECV_LEN_MIN);
            let result;
            (result, buf) = stream.recv(buf).await;
            if inner.generation.get() != generation {
                // The peer's own attempt came first: leave the session as it made it.
                return Err(Failed::Gone);
            }
            match result {
                Ok(0) => return Err(Failed::Io(io::ErrorKind::UnexpectedEof)),
                Ok(_) => {}
                Err(e) => return Err(Failed::Io(e.kind())),
            }
        }
    }
}

/// What we offer: a new session, or to go on with the old one.
fn offer(con: &Connection, messenger: &Rc<Shared>, global_seq_above: u64) -> Control {
    let inner = &con.0;
    let global_seq = messenger.next_global_seq(global_seq_above);
    let mut session = inner.session.borrow_mut();
    let addrs = messenger.addrs.borrow().clone();
    if session.server_cookie != 0 {
        return Control::SessionReconnect(Reconnect {
            addrs,
            client_cookie: session.client_cookie,
            server_cookie: session.server_cookie,
            global_seq,
            connect_seq: session.connect_seq,
            msg_seq: session.in_seq,
        });
    }
    let lossy = inner.policy.lossy;
    if !lossy && session.client_cookie == 0 {
        session.client_cookie = inner.env.random_u64() | 1;
    }
    Control::ClientIdent(ClientIdent {
        addrs,
        target: inner.peer.borrow().socket_addr,
        gid: messenger.name.get().num,
        global_seq,
        supported: inner.policy.features_supported,
        required: inner.policy.features_required,
        flags: if lossy { FLAG_LOSSY } else { 0 },
        cookie: session.client_cookie,
    })
}

/// The server's answer: what to send next, or `None` when the session is ready.
fn on_answer(
    con: &Connection,
    messenger: &Rc<Shared>,
    target: &EntityAddr,
    hs: &Handshake,
    frame: Control,
) -> Result<Option<Control>, Failed> {
    let inner = &con.0;
    match frame {
        Control::ServerIdent(ident) => {
            on_server_ident(con, target, hs, ident)?;
            Ok(None)
        }
        Control::SessionReconnectOk(seq) => {
            inner.session.borrow_mut().discard_up_to(seq);
            Ok(None)
        }
        Control::SessionReset { full } => {
            if full {
                inner.session.borrow_mut().reset();
                let dispatcher = messenger.dispatcher();
                if let Some(dispatcher) = dispatcher {
                    dispatcher.on_remote_reset(con);
                }
            } else {
                let mut session = inner.session.borrow_mut();
                session.server_cookie = 0;
                session.connect_seq = 0;
                session.in_seq = 0;
            }
            Ok(Some(offer(con, messenger, 0)))
        }
        Control::SessionRetry(connect_seq) => {
            inner.session.borrow_mut().connect_seq = connect_seq.saturating_add(1);
            Ok(Some(offer(con, messenger, 0)))
        }
        Control::SessionRetryGlobal(seq) => Ok(Some(offer(con, messenger, seq))),
        Control::IdentMissingFeatures(bits) => Err(Failed::Features(bits)),
        Control::Wait => Err(Failed::Wait),
        other => Err(HandshakeError::Unexpected { tag: other.tag() }.into()),
    }
}

fn on_server_ident(
    con: &Connection,
    target: &EntityAddr,
    hs: &Handshake,
    ident: ServerIdent,
) -> Result<(), Failed> {
    let inner = &con.0;
    if !ident.addrs.contains(target) {
        return Err(Failed::OtherPeer(ident.addrs));
    }
    let lacking = inner.policy.features_required & !ident.supported
        | ident.required & !inner.policy.features_supported;
    if lacking != 0 {
        return Err(Failed::Features(lacking));
    }
    {
        let mut session = inner.session.borrow_mut();
        session.begin_anew();
        session.server_cookie = ident.cookie;
        session.peer_global_seq = ident.global_seq;
    }
    inner.lossy.set(ident.flags & FLAG_LOSSY != 0);
    let mut peer = inner.peer.borrow_mut();
    peer.name = EntityName { kind: hs.peer_kind(), num: ident.gid };
    peer.addrs = ident.addrs;
    peer.features = inner.policy.features_supported & ident.supported;
    peer.global_id = hs.global_id();
    Ok(())
}

impl Shared {
    /// The peer has said how it sees us: fills in what we do not know of our own addresses.
    pub(super) fn learn_addr(&self, seen: &EntityAddr) {
        let Some(seen) = seen.sock else { return };
        let mut addrs = self.addrs.borrow_mut();
        if addrs.is_empty() {
            let sock = std::net::SocketAddr::new(seen.ip(), 0);
            *addrs = AddrVec::of(EntityAddr::any(sock, self.config.nonce));
        } else if addrs.iter().any(EntityAddr::is_blank_ip) {
            *addrs = addrs
                .iter()
                .map(|addr| match addr.sock {
                    Some(mut sock) if addr.is_blank_ip() => {
                        sock.set_ip(seen.ip());
                        EntityAddr { sock: Some(sock), ..*addr }
                    }
                    _ => *addr,
                })
                .collect();
        }
    }
}
