//! Requests, from the client to whoever leads, and their answers back.
//!
//! ```text
//! client ── request ──► its monitor ── Forward ──► leader: a session that stands for the client
//!        ◄── answer ──            ◄── Route ───
//!                                 ◄── Done ────  committed: the request is forgotten
//! ```
//!
//! A monitor keeps each request until all that it led to is committed, and gives it to the next
//! leader if the last one is gone: no message is lost that its sender would not repeat. The leader
//! treats its own clients' requests the same way. It takes requests up only while it has a lease:
//! what it answers is the newest state there is.
//!
//! Subscriptions are served here, but not from less than what somebody else has been told already:
//!
//! ```text
//! client ── MMonSubscribe ──► its monitor ── ReadAt ──► leader, while it has a lease
//!                                         ◄── At ─────  how far the log is applied there
//!        ◄── maps ──          once it is applied here as far
//! ```
//!
//! Tickets and what is asked of this very monitor are served on the spot, and commands that the manager
//! answers go to it from here (`to_mgr.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use messages::{MAuth, MCommand, MGetConfig, MMonSubscribe, MPing, Message};
use msgr::{Incoming, Share};
use quorum::MemberId;
use types::RawMessage;

use super::Shell;
use crate::event::{Event, Peer, SessionId};
use crate::peer::PeerMessage;
use crate::standing::Role;

/// Requests kept, at most. Whoever sends more is disconnected: he asks another monitor.
const OPEN_MAX: usize = 20_000;
/// Sessions of other monitors' clients are numbered from here; connections never get that far.
const PROXY_FIRST: SessionId = 1 << 62;
/// Type of MMonGetMap, which has no body.
const MON_GET_MAP: u16 = 5;

struct Open {
    session: SessionId,
    message: RawMessage,
    /// Who sends more than his policy's throttles let him waits until this is answered.
    _share: Share,
    /// The present leader has it.
    sent: bool,
    /// Of a subscription: the entry that must be applied here.
    at: Option<u64>,
}

impl Open {
    fn is_subscription(&self) -> bool {
        self.message.header.kind == MMonSubscribe::TYPE
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Router {
    clients: BTreeMap<SessionId, Rc<Peer>>,
    last_seq: u64,
    /// By number: in the order they came. At most [`OPEN_MAX`].
    open: BTreeMap<u64, Open>,
    /// As leader: other monitors' clients.
    proxies: BTreeMap<SessionId, (MemberId, SessionId)>,
    proxy_of: BTreeMap<(MemberId, SessionId), SessionId>,
    last_proxy: SessionId,
    /// As leader: other monitors' requests not taken up yet; they keep them, at most [`OPEN_MAX`]
    /// each.
    incoming: VecDeque<(SessionId, u64, RawMessage)>,
    /// As leader: other monitors' subscriptions that want to know how far the log is; they keep
    /// them likewise.
    asked: VecDeque<(MemberId, u64)>,
}

/// What any monitor answers by itself.
fn is_local(kind: u16) -> bool {
    matches!(kind, MON_GET_MAP | MPing::TYPE | MAuth::TYPE | MCommand::TYPE | MGetConfig::TYPE)
}

impl Shell {
    pub(super) fn client_came(self: &Rc<Shell>, id: SessionId, peer: Rc<Peer>) {
        self.router.borrow_mut().clients.insert(id, peer.clone());
        self.feed(Event::Opened(id, peer));
    }

    pub(super) fn client_gone(self: &Rc<Shell>, id: SessionId) {
        let known = {
            let mut router = self.router.borrow_mut();
            router.open.retain(|_, open| open.session != id);
            router.clients.remove(&id).is_some()
        };
        self.to_mgr.client_gone(id);
        if known {
            if self.role() == Role::Peon {
                self.send_leader(&PeerMessage::Gone { session: id });
            }
            self.feed(Event::Closed(id));
        }
    }

    pub(super) fn on_client_message(self: &Rc<Shell>, from: SessionId, incoming: Incoming) {
        let (message, share) = incoming.into_parts();
        if message.header.kind == MCommand::TYPE && self.on_quorum_command(from, &message) {
            return;
        }
        if is_local(message.header.kind) {
            return self.feed(Event::Message(from, message));
        }
        if self.exited.get() {
            // He finds a monitor that has a leader.
            return self.close_client(from);
        }
        if self.core.borrow().as_ref().is_some_and(|core| core.is_for_mgr(&message)) {
            return self.feed(Event::Message(from, message));
        }
        let full = {
            let mut router = self.router.borrow_mut();
            if !router.clients.contains_key(&from) {
                return;
            }
            router.last_seq += 1;
            let seq = router.last_seq;
            router
                .open
                .insert(seq, Open { session: from, message, _share: share, sent: false, at: None });
            router.open.len() > OPEN_MAX
        };
        if full {
            return self.close_client(from);
        }
        self.serve_requests();
    }

    /// Gives the leader what it does not have, and subscribers what they may have.
    pub(super) fn serve_requests(self: &Rc<Shell>) {
        match self.role() {
            Role::Out => {}
            Role::Leader => {
                while self.replica.raft().may_read(self.env.now()) {
                    let asked = self.router.borrow_mut().asked.pop_front();
                    if let Some((from, seq)) = asked {
                        let index = self.replica.raft().applied();
                        self.send_peer(from, &PeerMessage::At { seq, index });
                        continue;
                    }
                    let Some((session, seq, message)) = self.next_request() else { break };
                    if message.header.kind == MMonSubscribe::TYPE {
                        self.on_done(seq);
                        self.feed(Event::Message(session, message));
                    } else {
                        self.feed(Event::Request(session, seq, message));
                    }
                }
            }
            Role::Peon => {
                self.serve_subscriptions();
                let Some(leader) = self.replica.raft().leader() else { return };
                if !self.is_connected(leader) {
                    return;
                }
                let mut forwards = Vec::new();
                {
                    let mut router = self.router.borrow_mut();
                    let Router { open, clients, .. } = &mut *router;
                    for (seq, open) in open.iter_mut().filter(|(_, open)| !open.sent) {
                        open.sent = true;
                        if open.is_subscription() {
                            forwards.push(PeerMessage::ReadAt { seq: *seq });
                            continue;
                        }
                        let Some(peer) = clients.get(&open.session) else { continue };
                        forwards.push(PeerMessage::Forward {
                            seq: *seq,
                            session: open.session,
                            peer: Box::new(Peer::clone(peer)),
                            message: open.message.clone(),
                        });
                    }
                }
                forwards.iter().for_each(|forward| self.send_peer(leader, forward));
            }
        }
    }

    /// Those that wait for nothing any more, in the order they came.
    fn serve_subscriptions(self: &Rc<Shell>) {
        let applied = self.replica.raft().applied();
        let is_due = |open: &Open| open.at.is_some_and(|at| at <= applied);
        loop {
            let due = {
                let mut router = self.router.borrow_mut();
                let first = router.open.iter().find(|(_, open)| is_due(open));
                let seq = first.map(|(seq, _)| *seq);
                seq.and_then(|seq| router.open.remove(&seq))
            };
            let Some(open) = due else { return };
            self.feed(Event::Message(open.session, open.message));
        }
    }

    /// As leader: another monitor asks how far the log is.
    pub(super) fn on_read_at(self: &Rc<Shell>, from: MemberId, seq: u64) {
        // As with requests: who does not lead is not asked for long.
        if self.replica.raft().is_leader() {
            self.router.borrow_mut().asked.push_back((from, seq));
            self.serve_requests();
        }
    }

    /// The leader says how far the log is.
    pub(super) fn on_at(self: &Rc<Shell>, seq: u64, index: u64) {
        // Sent to an earlier leader too: any of the answers will do, as each was given after the
        // question.
        if let Some(open) = self.router.borrow_mut().open.get_mut(&seq) {
            open.at = Some(index);
        }
        self.serve_requests();
    }

    fn next_request(&self) -> Option<(SessionId, u64, RawMessage)> {
        let mut router = self.router.borrow_mut();
        if let Some(first) = router.incoming.pop_front() {
            return Some(first);
        }
        let (seq, open) = router.open.iter_mut().find(|(_, open)| !open.sent)?;
        open.sent = true;
        Some((open.session, *seq, open.message.clone()))
    }

    /// There is another leader, or the way to it broke: all that is open goes out again.
    pub(super) fn unsend_requests(&self) {
        self.router.borrow_mut().open.values_mut().for_each(|open| {
            open.sent = false;
            open.at = None;
        });
    }

    /// A request of another monitor's client.
    pub(super) fn on_forward(
        self: &Rc<Shell>,
        from: MemberId,
        (seq, session): (u64, SessionId),
        peer: Peer,
        message: RawMessage,
    ) {
        if !self.replica.raft().is_leader() {
            // The sender learns who leads and sends it there. One that is elected and waits for
            // its first entry takes it: nobody would send it again.
            return;
        }
        let (proxy, new) = {
            let mut router = self.router.borrow_mut();
            match router.proxy_of.get(&(from, session)) {
                Some(proxy) => (*proxy, false),
                None => {
                    router.last_proxy = router.last_proxy.max(PROXY_FIRST) + 1;
                    let proxy = router.last_proxy;
                    router.proxies.insert(proxy, (from, session));
                    router.proxy_of.insert((from, session), proxy);
                    (proxy, true)
                }
            }
        };
        if new {
            self.feed(Event::Opened(proxy, Rc::new(peer)));
        }
        self.router.borrow_mut().incoming.push_back((proxy, seq, message));
        self.serve_requests();
    }

    /// Another monitor's client is gone.
    pub(super) fn on_gone(self: &Rc<Shell>, from: MemberId, session: SessionId) {
        let proxy = self.router.borrow().proxy_of.get(&(from, session)).copied();
        if let Some(proxy) = proxy {
            self.forget_proxy(proxy);
            self.feed(Event::Closed(proxy));
        }
    }

    fn forget_proxy(&self, proxy: SessionId) {
        let mut router = self.router.borrow_mut();
        if let Some(key) = router.proxies.remove(&proxy) {
            router.proxy_of.remove(&key);
        }
        router.incoming.retain(|(session, ..)| *session != proxy);
    }

    /// Another monitor has restarted: its clients are gone.
    pub(super) fn drop_proxies_of(self: &Rc<Shell>, member: MemberId) {
        let gone: Vec<SessionId> = {
            let router = self.router.borrow();
            router.proxies.iter().filter(|(_, (of, _))| *of == member).map(|(id, _)| *id).collect()
        };
        for proxy in gone {
            self.forget_proxy(proxy);
            self.feed(Event::Closed(proxy));
        }
    }

    /// This monitor leads no more.
    pub(super) fn drop_proxies(self: &Rc<Shell>) {
        self.router.borrow_mut().asked.clear();
        let gone: Vec<SessionId> = self.router.borrow().proxies.keys().copied().collect();
        for proxy in gone {
            self.forget_proxy(proxy);
            self.queue.borrow_mut().push_back(Event::Closed(proxy));
        }
    }

    pub(super) fn send_client(&self, to: SessionId, message: RawMessage) {
        let proxy = self.router.borrow().proxies.get(&to).copied();
        match proxy {
            Some((member, session)) => {
                self.send_peer(member, &PeerMessage::Route { session, message });
            }
            None => {
                if let Some(con) = self.connections.borrow().get(&to) {
                    con.send(message);
                }
            }
        }
    }

    pub(super) fn close_client(self: &Rc<Shell>, id: SessionId) {
        let proxy = self.router.borrow().proxies.get(&id).copied();
        if let Some((member, session)) = proxy {
            self.send_peer(member, &PeerMessage::Close { session });
            return self.forget_proxy(id);
        }
        let con = self.connections.borrow_mut().remove(&id);
        if let Some(con) = con {
            con.mark_down();
        }
        self.client_gone(id);
    }

    pub(super) fn request_done(&self, session: SessionId, seq: u64) {
        let proxy = self.router.borrow().proxies.get(&session).copied();
        match proxy {
            Some((member, _)) => self.send_peer(member, &PeerMessage::Done { seq }),
            // Another monitor's client that has gone: its number is that monitor's, and may be one of ours, too.
            None if session > PROXY_FIRST => {}
            None => self.on_done(seq),
        }
    }

    pub(super) fn on_done(&self, seq: u64) {
        self.router.borrow_mut().open.remove(&seq);
    }
}
