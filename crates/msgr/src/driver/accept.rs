//! Accepting: the handshake's server side, and what its ident does to the table of sessions.

use core::fmt;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::task::Poll;
use std::time::Duration;

use auth::AuthCapsInfo;
use bytes::BytesMut;
use env::{Listener, Stream};
use types::addr::{AddrVec, EntityAddr};
use types::entity::EntityName;

use super::link::make_room;
use super::{Carrier, RECV_LEN_MIN, attach};
use crate::auth_traits::Accepted;
use crate::connection::{Connection, Peer, Phase, Start};
use crate::control::{ClientIdent, Control, FLAG_LOSSY, Reconnect, ServerIdent};
use crate::handshake::{Handshake, HandshakeError, Step};
use crate::messenger::Shared;
use crate::policy::Policy;
use crate::resolve::{Existing, OnIdent, OnReconnect};

/// Takes connections as long as the messenger lives and was not shut down.
pub(super) async fn run(messenger: Weak<Shared>, listener: Rc<dyn Listener>) {
    loop {
        let current = messenger.upgrade().filter(|shared| !shared.stopped.get());
        let Some(stop) = current.map(|shared| shared.stop.clone()) else { return };
        let mut accept = listener.accept();
        let mut stopped = pin!(stop.notified());
        let accepted = poll_fn(|cx| match accept.as_mut().poll(cx) {
            Poll::Ready(accepted) => Poll::Ready(Some(accepted)),
            Poll::Pending => stopped.as_mut().poll(cx).map(|()| None),
        })
        .await;
        let Some(accepted) = accepted else { return };
        let Some(shared) = messenger.upgrade() else { return };
        if shared.stopped.get() {
            return;
        }
        match accepted {
            Ok(stream) => {
                let place = take_place(&shared, &stream);
                shared.env.clone().go(stranger(shared, stream, place));
            }
            Err(e) => {
                // Out of file descriptors, or the peer is gone already: others may do better.
                tracing::warn!("accept: {e}");
                let pause = shared.env.sleep(Duration::from_millis(50));
                drop(shared);
                pause.await;
            }
        }
    }
}

/// A new socket's place among the strangers. Where all are taken, the oldest goes: who means it is
/// done in milliseconds, so who holds all places could otherwise keep everybody else out.
fn take_place(shared: &Shared, stream: &Rc<dyn Stream>) -> u64 {
    let mut strangers = shared.strangers.borrow_mut();
    if strangers.len() >= shared.config.strangers_max
        && let Some((_, oldest)) = strangers.pop_first()
    {
        tracing::warn!(from = ?oldest.peer_addr(), "too many unfinished handshakes, closing the oldest");
        oldest.close();
    }
    let place = shared.new_id();
    strangers.insert(place, stream.clone());
    place
}

/// Why a stranger did not become a peer.
#[derive(Debug)]
enum Failed {
    Io(io::ErrorKind),
    Handshake(HandshakeError),
    /// It looks for somebody else, or says no address.
    Target(EntityAddr),
    /// An attempt older than one already seen.
    Stale,
    /// It was told to wait for our own attempt.
    Wait,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failed::Io(kind) => write!(f, "{kind}"),
            Failed::Handshake(e) => write!(f, "{e}"),
            Failed::Target(addr) => write!(f, "it looks for {addr}"),
            Failed::Stale => f.write_str("a newer attempt of the peer was seen"),
            Failed::Wait => f.write_str("our own attempt goes first"),
        }
    }
}

impl From<HandshakeError> for Failed {
    fn from(e: HandshakeError) -> Failed {
        Failed::Handshake(e)
    }
}

/// One accepted socket: its handshake, then its session.
async fn stranger(messenger: Rc<Shared>, stream: Rc<dyn Stream>, place: u64) {
    let from = stream.peer_addr();
    let timeout = messenger.config.ready_timeout;
    let outcome = messenger.env.timeout(timeout, handshake(&messenger, stream.clone())).await;
    messenger.strangers.borrow_mut().remove(&place);
    match outcome {
        Ok(Ok((con, carrier))) => {
            let reading = attach(&con, carrier);
            if let Some(dispatcher) = messenger.dispatcher() {
                dispatcher.on_accept(&con);
            }
            drop(messenger);
            reading.await;
        }
        Ok(Err(Failed::Wait | Failed::Io(_))) => stream.close(),
        Ok(Err(failed)) => {
            tracing::info!(?from, "refusing a connection: {failed}");
            stream.close();
        }
        Err(_) => {
            tracing::info!(?from, "refusing a connection: timed out");
            stream.close();
        }
    }
}

async fn handshake(
    messenger: &Rc<Shared>,
    stream: Rc<dyn Stream>,
) -> Result<(Connection, Carrier), Failed> {
    let auth = messenger
        .auth_server
        .borrow()
        .clone()
        .ok_or(Failed::Io(io::ErrorKind::ConnectionRefused))?;
    let peer = EntityAddr {
        sock: stream.peer_addr(),
        ..EntityAddr::msgr2(std::net::SocketAddr::from(([0, 0, 0, 0], 0)), 0)
    };
    let mut hs = Handshake::server(messenger.name.get().kind, peer, auth);
    let mut buf = BytesMut::with_capacity(RECV_LEN_MIN);
    let mut accepted: Option<Box<Accepted>> = None;
    loop {
        let con = loop {
            match hs.step(&mut buf)? {
                Step::More => break None,
                Step::Hello(_) => {}
                Step::Authenticated => accepted = hs.take_accepted(),
                Step::Ident(frame) => {
                    let Some(who) = accepted.as_deref() else {
                        return Err(HandshakeError::Unexpected { tag: frame.tag() }.into());
                    };
                    let peer_kind = hs.peer_kind();
                    let stranger = Known { messenger, peer_kind, socket_addr: peer, who };
                    let answer = stranger.on_ident(frame)?;
                    hs.send(&answer.frame);
                    if answer.con.is_some() || matches!(answer.frame, Control::Wait) {
                        break Some(answer);
                    }
                }
            }
        };
        match con {
            Some(Answer { con: Some(con), .. }) => {
                let carrier =
                    Carrier { stream, reader: hs.reader, writer: hs.writer, out: hs.out, buf };
                return Ok((con, carrier));
            }
            Some(_) => {
                // Told to wait: our own attempt will replace this socket.
                let _ = stream.send(hs.out.take()).await;
                return Err(Failed::Wait);
            }
            None => {}
        }
        if !hs.out.is_empty() {
            stream.send(hs.out.take()).await.map_err(|e| Failed::Io(e.kind()))?;
        }
        make_room(&mut buf, hs.need(), RECV_LEN_MIN);
        let result;
        (result, buf) = stream.recv(buf).await;
        match result {
            Ok(0) => return Err(Failed::Io(io::ErrorKind::UnexpectedEof)),
            Ok(_) => {}
            Err(e) => return Err(Failed::Io(e.kind())),
        }
    }
}

/// What to answer to an ident, and the session that the socket carries from now on.
struct Answer {
    frame: Control,
    con: Option<Connection>,
}

impl Answer {
    fn only(frame: Control) -> Answer {
        Answer { frame, con: None }
    }
}

/// A peer that is authenticated.
struct Known<'a> {
    messenger: &'a Rc<Shared>,
    peer_kind: u8,
    socket_addr: EntityAddr,
    who: &'a Accepted,
}

impl Known<'_> {
    fn on_ident(&self, frame: Control) -> Result<Answer, Failed> {
        match frame {
            Control::ClientIdent(ident) => self.on_client_ident(ident),
            Control::SessionReconnect(offer) => self.on_reconnect(offer),
            other => Err(HandshakeError::Unexpected { tag: other.tag() }.into()),
        }
    }

    fn policy(&self) -> &Policy {
        self.messenger.config.policies.of(self.peer_kind)
    }

    fn existing(&self, addrs: &AddrVec) -> Option<(Connection, Existing)> {
        let key = (self.peer_kind, addrs.clone());
        let con = self.messenger.registered.borrow().get(&key).cloned()?;
        let v2 = |addrs: &AddrVec| addrs.msgr2().copied().unwrap_or_else(|| addrs.front());
        let inner = &con.0;
        let session = inner.session.borrow();
        let existing = Existing {
            phase: inner.phase(),
            lossy: inner.lossy.get(),
            server: inner.policy.server,
            resetcheck: inner.policy.resetcheck,
            client_cookie: session.client_cookie,
            server_cookie: session.server_cookie,
            connect_seq: session.connect_seq,
            peer_global_seq: session.peer_global_seq,
            peer_in_seq: session.peer_in_seq,
            peer: v2(addrs),
            own: v2(&self.messenger.addrs.borrow()),
        };
        drop(session);
        (existing.phase != Phase::Closed).then_some((con, existing))
    }

    fn on_client_ident(&self, ident: ClientIdent) -> Result<Answer, Failed> {
        self.messenger.learn_addr(&ident.target);
        let is_us = self.messenger.addrs.borrow().contains(&ident.target);
        if ident.addrs.is_empty() || !is_us {
            return Err(Failed::Target(ident.target));
        }
        let policy = self.policy();
        let lacking = policy.features_required & !ident.supported;
        if lacking != 0 {
            tracing::info!(from = %self.socket_addr, "peer lacks features {lacking:#x}");
            return Ok(Answer::only(Control::IdentMissingFeatures(lacking)));
        }
        if policy.lossy && policy.server && !policy.register_lossy_clients {
            return Ok(self.begin(&ident, None));
        }
        let Some((con, existing)) = self.existing(&ident.addrs) else {
            return Ok(self.begin(&ident, None));
        };
        let dispatcher = self.messenger.dispatcher();
        match existing.on_ident(ident.cookie, ident.global_seq) {
            OnIdent::Stale => Err(Failed::Stale),
            OnIdent::Wait => {
                con.send_keepalive();
                Ok(Answer::only(Control::Wait))
            }
            OnIdent::Replace => {
                con.0.close();
                if let Some(dispatcher) = dispatcher {
                    dispatcher.on_reset(&con);
                }
                Ok(self.begin(&ident, None))
            }
            OnIdent::ResetAndTakeOver => {
                if con.0.policy.resetcheck {
                    con.0.session.borrow_mut().reset();
                    if let Some(dispatcher) = dispatcher {
                        dispatcher.on_remote_reset(&con);
                    }
                }
                Ok(self.begin(&ident, Some(con)))
            }
            OnIdent::TakeOver => Ok(self.begin(&ident, Some(con))),
        }
    }

    /// A session from its first message on, in a new connection or an old one.
    fn begin(&self, ident: &ClientIdent, old: Option<Connection>) -> Answer {
        let policy = self.policy();
        let features = policy.features_supported & ident.supported;
        let name = EntityName { kind: self.peer_kind, num: ident.gid };
        let peer = self.peer(name, ident.addrs.clone(), features);
        let con = match old {
            Some(con) => {
                con.0.unlink();
                *con.0.peer.borrow_mut() = peer;
                con
            }
            None => {
                let start = Start {
                    peer_kind: self.peer_kind,
                    policy: policy.clone(),
                    peer,
                    phase: Phase::Standby,
                    loopback: false,
                };
                let con = Connection::start(self.messenger, self.messenger.new_id(), start);
                if policy.lossy && !policy.register_lossy_clients {
                    self.messenger.others.borrow_mut().insert(con.id(), con.clone());
                } else {
                    let mut registered = self.messenger.registered.borrow_mut();
                    registered.insert((self.peer_kind, ident.addrs.clone()), con.clone());
                }
                con
            }
        };
        let lossy = policy.lossy;
        con.0.lossy.set(lossy);
        let cookie = if lossy { 0 } else { self.messenger.env.random_u64() | 1 };
        {
            let mut session = con.0.session.borrow_mut();
            session.begin_anew();
            session.client_cookie = ident.cookie;
            session.server_cookie = cookie;
            session.connect_seq = 0;
            session.peer_global_seq = ident.global_seq;
        }
        let frame = Control::ServerIdent(ServerIdent {
            addrs: self.messenger.addrs.borrow().clone(),
            gid: self.messenger.name.get().num,
            global_seq: self.messenger.next_global_seq(0),
            supported: policy.features_supported,
            required: policy.features_required,
            flags: if lossy { FLAG_LOSSY } else { 0 },
            cookie,
        });
        Answer { frame, con: Some(con) }
    }

    fn peer(&self, name: EntityName, addrs: AddrVec, features: u64) -> Peer {
        let ip = |addr: &EntityAddr| addr.sock.map(|sock| sock.ip().to_canonical());
        // Whom we never connect to has the IP that its socket shows: `network` in caps is about that.
        let is_true =
            |addr: &EntityAddr| !self.policy().server || ip(addr) == ip(&self.socket_addr);
        let dial = addrs.msgr2().copied().filter(|addr| addr.port() != 0 && is_true(addr));
        Peer {
            name,
            addrs,
            socket_addr: dial.unwrap_or(self.socket_addr),
            global_id: self.who.global_id,
            auth_name: Some(self.who.name.clone()),
            caps: AuthCapsInfo { ..self.who.caps.clone() },
            features,
            auth_state: self.who.state.clone(),
        }
    }

    fn on_reconnect(&self, offer: Reconnect) -> Result<Answer, Failed> {
        if offer.addrs.is_empty() {
            return Err(Failed::Target(self.socket_addr));
        }
        let Some((con, existing)) = self.existing(&offer.addrs) else {
            return Ok(Answer::only(Control::SessionReset { full: true }));
        };
        Ok(match existing.on_reconnect(&offer) {
            OnReconnect::Stale => return Err(Failed::Stale),
            OnReconnect::Reset { full } => Answer::only(Control::SessionReset { full }),
            OnReconnect::Retry(seq) => Answer::only(Control::SessionRetry(seq)),
            OnReconnect::RetryGlobal(seq) => Answer::only(Control::SessionRetryGlobal(seq)),
            OnReconnect::Wait => Answer::only(Control::Wait),
            OnReconnect::TakeOver => {
                con.0.unlink();
                let mut session = con.0.session.borrow_mut();
                session.connect_seq = offer.connect_seq;
                session.peer_global_seq = offer.global_seq;
                session.discard_up_to(offer.msg_seq);
                let frame = Control::SessionReconnectOk(session.in_seq);
                drop(session);
                let mut peer = con.0.peer.borrow_mut();
                let (name, features) = (peer.name, peer.features);
                *peer = self.peer(name, offer.addrs, features);
                drop(peer);
                Answer { frame, con: Some(con) }
            }
        })
    }
}
