//! The other monitors: connections to them, who is in the quorum, whose clock is off, and who is
//! a member of the log.
//!
//! The monitor map says which monitors there shall be. The leader makes the log's members follow:
//! one that is new gets the state, then the log, and counts once it has caught up; one that came
//! back without its database is another member of the same name, and the old one goes first.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use command::{CommandMap, CommandReply};
use maps::MonMap;
use messages::{MCommand, MCommandReply, Message};
use msgr::Connection;
use msgr::frame::FRONT_MAX;
use quorum::MemberId;
use types::{EntityName, RawMessage, entity};

use super::{Shell, timing_of};
use crate::event::SessionId;
use crate::peer::{PeerMessage, View};
use crate::replica::Piece;
use crate::standing::{Disk, Role, Skew, Standing};

/// A connection over which nothing has come for so long leads nowhere, though nobody has said so:
/// greetings come more often.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How often the other monitors are looked after.
const TEND: Duration = Duration::from_millis(250);
/// Pause between greetings, and between views that say nothing new.
const HELLO: Duration = Duration::from_secs(1);
/// A monitor that has not answered for so long is out of the quorum.
const QUORUM_GRACE: Duration = Duration::from_secs(2);
/// Pause between comparisons of clocks.
const TIMECHECK: Duration = Duration::from_secs(5);
/// After so long without a quorum, clients are sent to look for another monitor.
const CLIENTS_PATIENCE: Duration = Duration::from_secs(4);
/// Entries a new member may lag behind when it begins to count.
const LAG_MAX: u64 = 16;

/// Why a monitor ends that is not to be one any more.
const REMOVED: &str =
    "it was removed from the monitor map, and its data is of no use any more: remove its folder";

struct Known {
    name: String,
    con: Connection,
    metadata: BTreeMap<String, String>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Peers {
    /// Who has greeted us, at most as many as there are monitors; a newer life of the same name
    /// replaces the one before.
    known: BTreeMap<MemberId, Known>,
    /// When something last came over a connection, by its id. Of open connections only.
    heard: BTreeMap<u64, Duration>,
    hello_at: Duration,
    timecheck_at: Duration,
    view_at: Duration,
    skews: BTreeMap<String, Skew>,
    disks: BTreeMap<String, Disk>,
    rounds: u32,
}

/// Looks after the other monitors until this one stops.
pub(super) async fn tend(shell: Rc<Shell>) {
    while !shell.stopped.get() {
        shell.meet_peers();
        shell.tend_quorum();
        shell.follow_mgr();
        let out = shell.out_since.get();
        // One that was told to be out keeps those who want no more of it than it has.
        if !shell.exited.get()
            && out.is_some_and(|since| shell.env.now() > since + CLIENTS_PATIENCE)
        {
            shell.drop_clients();
        }
        if shell.replica.copy_due() {
            shell.wake_pump();
        }
        shell.env.sleep(TEND).await;
    }
}

impl Shell {
    /// Connections to all monitors of the map, and greetings now and then.
    fn meet_peers(self: &Rc<Shell>) {
        let monmap = self.monmap.borrow().clone();
        let now = self.env.now();
        let greet = {
            let mut peers = self.peers.borrow_mut();
            let due = now >= peers.hello_at;
            if due {
                peers.hello_at = now + HELLO;
            }
            due
        };
        for (name, mon) in &monmap.mon_info {
            if *name == self.identity.name || mon.public_addrs.msgr2().is_none() {
                continue;
            }
            let con = self.messenger.connect_to(entity::MON, &mon.public_addrs);
            if !con.is_connected() {
                self.peers.borrow_mut().heard.remove(&con.id());
                if con.is_standby() {
                    // Its socket broke with nothing on the way, perhaps for the other one, too: who has
                    // something to say to a monitor waits for a connection, so nobody would make one.
                    con.send(self.hello().wire());
                }
                continue;
            }
            let heard = *self.peers.borrow_mut().heard.entry(con.id()).or_insert(now);
            if now > heard + SILENCE_MAX {
                // The session goes on over another socket.
                tracing::info!("nothing comes from mon.{name} any more");
                self.peers.borrow_mut().heard.insert(con.id(), now);
                con.break_socket();
            } else if greet {
                con.send(self.hello().wire());
            }
        }
    }

    fn hello(&self) -> PeerMessage {
        let metadata = match &*self.core.borrow() {
            Some(core) => core.own_metadata(),
            None => self.identity.metadata.clone(),
        };
        let name = self.identity.name.clone();
        PeerMessage::Hello { id: self.replica.raft().id(), name, metadata }
    }

    /// Tells all monitors connected who we are.
    pub(super) fn greet_peers(&self) {
        let cons: Vec<Connection> =
            self.peers.borrow().known.values().map(|known| known.con.clone()).collect();
        for con in cons.iter().filter(|con| con.is_connected()) {
            con.send(self.hello().wire());
        }
    }

    pub(super) fn peer_connected(self: &Rc<Shell>, con: &Connection) {
        con.send(self.hello().wire());
        // What was under way when the last connection broke may be lost.
        let of_leader = self.replica.raft().leader().is_some_and(|id| {
            self.peers.borrow().known.get(&id).is_some_and(|known| known.con == *con)
        });
        if of_leader {
            self.unsend_requests();
        }
        self.wake_pump();
    }

    pub(super) fn peer_lost(self: &Rc<Shell>, con: &Connection) {
        self.peers.borrow_mut().heard.remove(&con.id());
        let whose: Vec<MemberId> = {
            let peers = self.peers.borrow();
            let of_con = peers.known.iter().filter(|(_, known)| known.con == *con);
            of_con.map(|(id, _)| *id).collect()
        };
        for id in whose {
            self.drop_proxies_of(id);
            if self.replica.raft().leader() == Some(id) {
                self.unsend_requests();
            }
        }
    }

    pub(super) fn is_connected(&self, id: MemberId) -> bool {
        self.peers.borrow().known.get(&id).is_some_and(|known| known.con.is_connected())
    }

    pub(super) fn name_of(&self, id: MemberId) -> Option<String> {
        let raft = self.replica.raft();
        raft.members().0.get(&id).map(|member| member.name.clone())
    }

    pub(super) fn send_peer(&self, to: MemberId, message: &PeerMessage) {
        if let Some(known) = self.peers.borrow().known.get(&to) {
            let wire = message.wire();
            // It would be sent again for ever: the other side takes no such frame.
            if wire.front.len() > FRONT_MAX as usize {
                let len = wire.front.len();
                return tracing::warn!("{len} bytes are more than monitors send each other");
            }
            known.con.send(wire);
        }
    }

    pub(super) fn send_leader(&self, message: &PeerMessage) {
        let leader = self.replica.raft().leader();
        if let Some(leader) = leader {
            self.send_peer(leader, message);
        }
    }

    /// A message of another monitor.
    pub(super) fn on_peer_message(self: &Rc<Shell>, con: &Connection, raw: &RawMessage) {
        if self.stopped.get() {
            return;
        }
        self.peers.borrow_mut().heard.insert(con.id(), self.env.now());
        let message = match PeerMessage::read(raw) {
            Ok(message) => message,
            Err(error) => {
                tracing::warn!("a message of another monitor does not decode: {error}");
                return con.mark_down();
            }
        };
        match message {
            PeerMessage::Hello { id, name, metadata } => self.on_hello(con, id, name, metadata),
            PeerMessage::Removed { epoch } => self.on_removed(epoch),
            message => self.on_message_of(con, message),
        }
    }

    fn on_message_of(self: &Rc<Shell>, con: &Connection, message: PeerMessage) {
        let from = {
            let peers = self.peers.borrow();
            peers.known.iter().find(|(_, known)| known.con == *con).map(|(id, _)| *id)
        };
        let Some(from) = from else { return };
        self.on_known_peer(from, message);
    }

    /// Who was taken out of the map is no member any more, and does not get the entry that says so.
    fn tell_if_removed(&self, con: &Connection, name: &str) {
        let map = self.monmap.borrow();
        if !map.mon_info.contains_key(name) {
            con.send(PeerMessage::Removed { epoch: map.epoch }.wire());
        }
    }

    /// By the word of one whose map may be older than ours: then we have been added since.
    fn on_removed(self: &Rc<Shell>, epoch: u32) {
        if epoch > self.monmap.borrow().epoch {
            self.fail(REMOVED.to_owned());
        }
    }

    fn on_hello(
        self: &Rc<Shell>,
        con: &Connection,
        id: MemberId,
        name: String,
        metadata: BTreeMap<String, String>,
    ) {
        self.tell_if_removed(con, &name);
        let before = {
            let mut peers = self.peers.borrow_mut();
            peers.known.retain(|other, known| known.name != name || *other == id);
            peers.known.insert(id, Known { name, con: con.clone(), metadata })
        };
        let known = before.as_ref().is_some_and(|before| before.con == *con);
        if before.is_some() && !known {
            // It may have restarted, at another address, of which the connection of before does not tell. Its sessions
            // have the numbers of other clients' then, who must not be served with their names.
            self.drop_proxies_of(id);
        }
        if !known {
            if self.replica.raft().leader() == Some(id) {
                self.unsend_requests();
            }
            self.wake_pump();
        }
    }

    fn on_known_peer(self: &Rc<Shell>, from: MemberId, message: PeerMessage) {
        match message {
            PeerMessage::Log(envelope) => {
                if !self.exited.get() && envelope.from == from {
                    self.replica.receive(self.env.now(), envelope);
                    self.wake_pump();
                }
            }
            PeerMessage::CopyGet { after } => match self.replica.piece(after) {
                Ok(Some(Piece { after, entries, base, last })) => {
                    self.send_peer(from, &PeerMessage::CopyPiece { after, entries, base, last });
                }
                Ok(None) => {}
                Err(error) => self.fail(error.to_string()),
            },
            PeerMessage::CopyPiece { after, entries, base, last } => {
                let piece = Piece { after, entries, base, last };
                match self.replica.take_piece(from, piece) {
                    // At once: until the pump comes to it, the core would serve what was before.
                    Ok(true) => self.drop_core(),
                    Ok(false) => {}
                    Err(error) => return self.fail(error.to_string()),
                }
                self.wake_pump();
            }
            PeerMessage::Forward { seq, session, peer, message } => {
                self.on_forward(from, (seq, session), *peer, message);
            }
            PeerMessage::Gone { session } => self.on_gone(from, session),
            // What a leader says counts only while it is ours: a request has been sent again else.
            PeerMessage::Route { session, message } => {
                if self.leads_us(from) {
                    self.send_client(session, message);
                }
            }
            PeerMessage::Close { session } => {
                if self.leads_us(from) {
                    self.close_client(session);
                }
            }
            PeerMessage::Done { seq } => {
                if self.leads_us(from) {
                    self.on_done(seq);
                }
            }
            PeerMessage::ReadAt { seq } => self.on_read_at(from, seq),
            PeerMessage::At { seq, index } => {
                if self.leads_us(from) {
                    self.on_at(seq, index);
                }
            }
            PeerMessage::WantIds => {
                if self.role() == Role::Leader {
                    let done = self.with_core(|core, now| Ok(core.on_want_ids(now, from.0)));
                    debug_assert!(done.is_ok());
                }
            }
            PeerMessage::Ids { from, to } => {
                if let Some(core) = &mut *self.core.borrow_mut() {
                    core.take_ids((from, to));
                }
            }
            PeerMessage::View(view) => self.on_view(from, view),
            PeerMessage::TimePing { stamp } => {
                let wall = u64::try_from(self.env.wall_clock().as_nanos()).unwrap_or(u64::MAX);
                self.send_peer(from, &PeerMessage::TimePong { stamp, wall });
                if let Some(disk) = self.own_disk() {
                    self.send_peer(from, &PeerMessage::Disk(disk));
                }
            }
            PeerMessage::Disk(disk) => {
                let mut peers = self.peers.borrow_mut();
                if let Some(name) = peers.known.get(&from).map(|known| known.name.clone()) {
                    peers.disks.insert(name, disk);
                }
            }
            PeerMessage::TimePong { stamp, wall } => self.on_time(from, stamp, wall),
            PeerMessage::Left => self.on_left(from),
            PeerMessage::Hello { .. } | PeerMessage::Removed { .. } => {}
        }
    }

    /// Another monitor is out of the quorum from now on, and not only when it has not answered for
    /// a while.
    fn on_left(self: &Rc<Shell>, from: MemberId) {
        self.replica.raft_mut().forget_answers(from);
        // It sends its clients away without a word for each.
        self.drop_proxies_of(from);
        self.tend_quorum();
    }

    /// Tells all monitors connected that this one takes no part any more.
    pub(super) fn say_left(&self) {
        let peers = self.peers.borrow();
        for known in peers.known.values().filter(|known| known.con.is_connected()) {
            known.con.send(PeerMessage::Left.wire());
        }
    }

    fn leads_us(&self, id: MemberId) -> bool {
        self.replica.raft().leader() == Some(id)
    }

    /// As leader: voters that answered lately.
    pub(super) fn members_heard(&self) -> BTreeSet<String> {
        let now = self.env.now();
        let raft = self.replica.raft();
        let inside = raft.members().0.iter().filter(|(id, member)| {
            let heard = raft.progress_of(**id).and_then(|(_, answered)| answered);
            let lately = heard.is_some_and(|at| now < at + QUORUM_GRACE);
            member.voter && (lately || **id == raft.id())
        });
        inside.map(|(_, member)| member.name.clone()).collect()
    }

    /// Who begins to lead asks for clocks and disks anew: what it knows is of when it led before.
    pub(super) fn begin_rounds(&self) {
        let mut peers = self.peers.borrow_mut();
        (peers.rounds, peers.timecheck_at) = (0, Duration::ZERO);
        peers.skews.clear();
        peers.disks.clear();
    }

    /// As leader: keeps the members and everybody's view up to date.
    fn tend_quorum(self: &Rc<Shell>) {
        if self.role() != Role::Leader {
            return;
        }
        self.tend_members();
        self.note_metadata();
        let now = self.env.now();
        let quorum = self.members_heard();
        let timecheck = {
            let mut peers = self.peers.borrow_mut();
            peers.skews.retain(|name, _| quorum.contains(name));
            peers.disks.retain(|name, _| quorum.contains(name));
            let due = now >= peers.timecheck_at;
            if due {
                peers.timecheck_at = now + TIMECHECK;
                peers.rounds += 1;
                let own = self.own_disk().map(|disk| (self.identity.name.clone(), disk));
                peers.disks.extend(own);
            }
            due
        };
        let ids: Vec<MemberId> = self.peers.borrow().known.keys().copied().collect();
        if timecheck {
            let stamp = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
            for id in ids.iter().filter(|id| self.is_connected(**id)) {
                self.send_peer(*id, &PeerMessage::TimePing { stamp });
            }
        }
        let Some(before) = self.core.borrow().as_ref().map(|core| core.standing().clone()) else {
            return;
        };
        let (skews, disks, rounds) = {
            let peers = self.peers.borrow();
            (peers.skews.clone(), peers.disks.clone(), peers.rounds)
        };
        let since = if before.quorum == quorum { before.since } else { now };
        let news = before.quorum != quorum || before.skews != skews;
        let standing = Standing { quorum, since, skews, disks, rounds, ..before };
        let view = View {
            term: u64::from(standing.epoch / 2),
            quorum: standing.quorum.clone(),
            age_ms: u64::try_from((now - since).as_millis()).unwrap_or(u64::MAX),
            skews: standing
                .skews
                .iter()
                .map(|(name, s)| {
                    (name.clone(), ((s.skew * 1e6) as i64, (s.latency.max(0.0) * 1e6) as u64))
                })
                .collect(),
            rounds,
        };
        if let Err(error) = self.with_core(|core, now| core.stand(now, standing)) {
            return self.fail(error.to_string());
        }
        if news || now >= self.peers.borrow().view_at {
            self.peers.borrow_mut().view_at = now + HELLO;
            for id in ids.iter().filter(|id| self.is_connected(**id)) {
                self.send_peer(*id, &PeerMessage::View(view.clone()));
            }
        }
    }

    /// As leader: facts about the others go into the log.
    fn note_metadata(self: &Rc<Shell>) {
        let facts: Vec<(String, BTreeMap<String, String>)> = {
            let peers = self.peers.borrow();
            let known = peers.known.values().filter(|known| known.con.is_connected());
            known.map(|known| (known.name.clone(), known.metadata.clone())).collect()
        };
        let monmap = self.monmap.borrow().clone();
        for (name, facts) in facts {
            if monmap.mon_info.contains_key(&name) && facts.contains_key("addrs") {
                let done =
                    self.with_core(|core, now| Ok(core.on_mon_metadata(now, name.clone(), facts)));
                debug_assert!(done.is_ok());
            }
        }
    }

    fn on_view(self: &Rc<Shell>, from: MemberId, view: View) {
        if self.role() != Role::Peon || !self.leads_us(from) {
            return;
        }
        let Some(before) = self.core.borrow().as_ref().map(|core| core.standing().clone()) else {
            return;
        };
        if u64::from(before.epoch / 2) != view.term {
            return;
        }
        let skews = view
            .skews
            .into_iter()
            .map(|(name, (skew, latency))| {
                (name, Skew { skew: skew as f64 / 1e6, latency: latency as f64 / 1e6 })
            })
            .collect();
        let since = self.env.now().saturating_sub(Duration::from_millis(view.age_ms));
        let (quorum, rounds) = (view.quorum, view.rounds);
        let standing = Standing { quorum, since, skews, rounds, ..before };
        if let Err(error) = self.with_core(|core, now| core.stand(now, standing)) {
            self.fail(error.to_string());
        }
    }

    fn on_time(self: &Rc<Shell>, from: MemberId, stamp: u64, wall: u64) {
        let now = self.env.now();
        let latency = now.saturating_sub(Duration::from_nanos(stamp)).as_secs_f64();
        let own = self.env.wall_clock().as_secs_f64();
        let theirs = Duration::from_nanos(wall).as_secs_f64();
        let mut skew = theirs + latency / 2.0 - own;
        if skew.abs() <= latency {
            // Not to be told from the time the messages took.
            skew = 0.0;
        }
        let Some(name) = self.peers.borrow().known.get(&from).map(|k| k.name.clone()) else {
            return;
        };
        self.peers.borrow_mut().skews.insert(name, Skew { skew, latency });
    }

    /// As leader: makes the members of the log follow the monitor map, one step at a time.
    pub(super) fn tend_members(self: &Rc<Shell>) {
        let now = self.env.now();
        let monmap = self.monmap.borrow().clone();
        let next = {
            let raft = self.replica.raft();
            if !raft.leads_for_sure() || raft.is_changing() {
                return;
            }
            let mut next = raft.members().clone();
            let gone = next
                .0
                .iter()
                .find(|(id, m)| !monmap.mon_info.contains_key(&m.name) && **id != raft.id())
                .map(|(id, _)| *id);
            if let Some(gone) = gone {
                next.0.remove(&gone);
                Some(next)
            } else {
                let peers = self.peers.borrow();
                let mut found = None;
                for (id, known) in &peers.known {
                    if !monmap.mon_info.contains_key(&known.name) || !known.con.is_connected() {
                        continue;
                    }
                    match (next.0.get(id), next.named(&known.name)) {
                        (Some(member), _) if member.voter => continue,
                        (Some(_), _) => {
                            let caught = raft.progress_of(*id).is_some_and(|(matched, heard)| {
                                matched + LAG_MAX >= raft.commit()
                                    && heard.is_some_and(|at| now < at + HELLO)
                            });
                            if !caught {
                                continue;
                            }
                            next.set(*id, &known.name, true);
                        }
                        // A life that is over: its promises and its vote end with it.
                        (None, Some(old)) => drop(next.0.remove(&old)),
                        (None, None) => next.set(*id, &known.name, false),
                    }
                    found = Some(next);
                    break;
                }
                found
            }
        };
        if let Some(next) = next {
            tracing::info!("members of the log: {:?}", next.0);
            if self.replica.raft_mut().change_members(next).is_ok() {
                self.wake_pump();
            }
        }
    }

    /// The core's monitor map may be another one now.
    pub(super) fn note_monmap(self: &Rc<Shell>) {
        let newest = {
            let core = self.core.borrow();
            let Some(core) = &*core else { return };
            if core.committed_monmap_epoch() == self.monmap.borrow().epoch {
                return;
            }
            crate::monmap::load(&*self.kv)
        };
        match newest {
            Ok(map) => self.take_monmap(&map),
            Err(error) => self.fail(error.to_string()),
        }
    }

    pub(super) fn take_monmap(self: &Rc<Shell>, map: &MonMap) {
        let before = self.monmap.replace(Rc::new(map.clone()));
        for (name, mon) in &before.mon_info {
            if map.mon_info.get(name).map(|m| &m.public_addrs) != Some(&mon.public_addrs)
                && *name != self.identity.name
            {
                self.messenger.mark_down(&mon.public_addrs);
            }
        }
        match map.rank_of(&self.identity.name) {
            Some(rank) => {
                self.messenger.set_name(EntityName::mon(rank as i64));
                self.replica.raft_mut().set_timing(timing_of(rank));
            }
            None => {
                let shell = self.clone();
                self.env.go(async move {
                    // Whoever asked for it is told first, and somebody else leads.
                    shell.env.sleep(Duration::from_millis(300)).await;
                    shell.hand_over().await;
                    shell.fail(REMOVED.to_owned());
                });
            }
        }
        self.wake_pump();
    }

    /// `ceph tell mon.X quorum enter|exit`: the only commands to a monitor that are not its
    /// core's. Says whether it was one.
    pub(super) fn on_quorum_command(self: &Rc<Shell>, from: SessionId, raw: &RawMessage) -> bool {
        let Ok(command) = <MCommand as Message>::decode(raw) else { return false };
        let Ok(map) = CommandMap::parse(&command.cmd) else { return false };
        if !matches!(map.prefix(), "quorum enter" | "quorum exit") {
            return false;
        }
        let allowed = match &*self.core.borrow() {
            Some(core) => core.may_tell(from),
            None => false,
        };
        let reply = match allowed {
            true => self.admin_command(&map, command.input),
            false => CommandReply::error(types::Errno::EACCES.0, "access denied"),
        };
        let answer = MCommandReply { rc: reply.rc, outs: reply.outs, outb: reply.outb };
        self.send_client(from, Message::encode(&answer).with_tid(raw.header.tid));
        true
    }
}
