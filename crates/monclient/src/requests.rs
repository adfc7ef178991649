//! Requests with one answer each: commands, versions, and what is told to one monitor.

use std::collections::BTreeMap;

use bstr::BString;
use bytes::Bytes;
use env::sync::{Receiver, Sender, oneshot};
use messages::{
    MCommand, MCommandReply, MMonCommand, MMonCommandAck, MMonGetVersion, MMonGetVersionReply,
    MPoolOp, MPoolOpReply, Message,
};
use msgr::Connection;
use types::entity;
use types::message::RawMessage;
use types::uuid::Uuid;

use crate::client::{MonClient, MonError};

/// What a command gives.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answer {
    /// 0 or a negative errno.
    pub rc: i32,
    /// Status text.
    pub outs: String,
    /// Output.
    pub outb: Bytes,
}

/// Newest and oldest version of a map that the monitors have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Versions {
    /// Newest.
    pub newest: u64,
    /// Oldest.
    pub oldest: u64,
}

/// What an asker waits for: the answer, or that it does not decode.
type Asker<T> = Sender<Result<T, denc::Error>>;

/// Open requests, by tid. Bounded by their askers, who each await one.
#[derive(Default)]
pub(crate) struct Requests {
    last_tid: u64,
    commands: BTreeMap<u64, (RawMessage, Asker<Answer>)>,
    versions: BTreeMap<u64, (RawMessage, Asker<Versions>)>,
    pool_ops: BTreeMap<u64, (RawMessage, Asker<MPoolOpReply>)>,
    /// Told to one monitor, over a connection of its own.
    told: BTreeMap<u64, Told>,
}

struct Told {
    con: Connection,
    /// Until the connection is ready.
    message: Option<RawMessage>,
    sender: Asker<Answer>,
}

impl Requests {
    fn next_tid(&mut self) -> u64 {
        self.last_tid += 1;
        self.last_tid
    }

    /// A new session: all that is open goes out again, in order.
    pub(crate) fn resend(&self, con: &Connection) {
        self.commands.values().for_each(|(message, _)| con.send(message.clone()));
        self.versions.values().for_each(|(message, _)| con.send(message.clone()));
        self.pool_ops.values().for_each(|(message, _)| con.send(message.clone()));
    }

    /// A connection of its own is ready.
    pub(crate) fn on_ready(&mut self, con: &Connection) {
        for told in self.told.values_mut().filter(|told| told.con == *con) {
            if let Some(message) = told.message.take() {
                con.send(message);
            }
        }
    }

    /// A connection of its own is gone: its requests fail.
    pub(crate) fn drop_for(&mut self, con: &Connection) {
        self.told.retain(|_, told| told.con != *con);
    }
}

/// A request whose asker waits. Who waits no longer is not asked for: what lies here is sent again with each session.
struct Open<'a> {
    client: &'a MonClient,
    tid: u64,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let forgotten = {
            let requests = &mut self.client.0.state.borrow_mut().requests;
            let (command, version) =
                (requests.commands.remove(&self.tid), requests.versions.remove(&self.tid));
            (command, version, requests.pool_ops.remove(&self.tid))
        };
        // While nobody looks into the state.
        drop(forgotten);
    }
}

/// Waits for the answer; who asks is not told more than is true: the client is closed only if nobody answers.
async fn answered<T>(receiver: Receiver<Result<T, denc::Error>>) -> Result<T, MonError> {
    match receiver.await {
        Ok(answer) => answer.map_err(MonError::Decode),
        Err(_) => Err(MonError::Closed),
    }
}

impl MonClient {
    /// The cluster; zero before the first monmap.
    pub fn fsid(&self) -> Uuid {
        self.monmap().map(|map| map.fsid).unwrap_or_default()
    }

    /// Runs a command (one JSON text) at the monitors. Sent again when the session breaks; waits
    /// for ever if there is no monitor: put a timeout around it where that matters.
    pub async fn command(&self, cmd: Vec<String>, input: Bytes) -> Result<Answer, MonError> {
        // A command without the cluster's id is refused.
        self.monmap_ready().await?;
        let (sender, receiver) = oneshot();
        let tid = {
            let fsid = self.fsid();
            let mut state = self.0.state.borrow_mut();
            let tid = state.requests.next_tid();
            let cmd = cmd.into_iter().map(BString::from).collect();
            let request = MMonCommand { fsid, cmd, input, ..MMonCommand::default() };
            let message = request.encode().with_tid(tid);
            if let Some(con) = &state.active {
                con.send(message.clone());
            }
            state.requests.commands.insert(tid, (message, sender));
            tid
        };
        let _open = Open { client: self, tid };
        answered(receiver).await
    }

    /// Runs a command at one monitor, named by name or rank (`tell mon.a`).
    pub async fn tell(
        &self,
        mon: &str,
        cmd: Vec<String>,
        input: Bytes,
    ) -> Result<Answer, MonError> {
        let map = self.monmap_ready().await?;
        let by_rank = mon.parse().ok().and_then(|rank| map.by_rank(rank));
        let info = map.mon_info.get(mon).or(by_rank).ok_or(MonError::NoSuchMon)?;
        let (sender, receiver) = oneshot();
        let con = {
            let con = self.0.messenger.connect_anonymous(entity::MON, &info.public_addrs);
            let mut state = self.0.state.borrow_mut();
            let tid = state.requests.next_tid();
            let cmd = cmd.into_iter().map(BString::from).collect();
            let request = MCommand { fsid: map.fsid, cmd, input };
            let message = Some(request.encode().with_tid(tid));
            state.requests.told.insert(tid, Told { con: con.clone(), message, sender });
            con
        };
        let answer = answered(receiver).await;
        con.mark_down();
        answer
    }

    /// Which versions of a map (`osdmap`, ...) the monitors have.
    pub async fn versions(&self, what: &str) -> Result<Versions, MonError> {
        let (sender, receiver) = oneshot();
        let tid = {
            let mut state = self.0.state.borrow_mut();
            let handle = state.requests.next_tid();
            let request = MMonGetVersion { handle, what: what.to_owned() };
            let message = request.encode().with_tid(handle);
            if let Some(con) = &state.active {
                con.send(message.clone());
            }
            state.requests.versions.insert(handle, (message, sender));
            handle
        };
        let _open = Open { client: self, tid };
        answered(receiver).await
    }

    /// An operation on a pool's snapshots (`librados` sends these beside commands). Its effect
    /// may come twice when the session breaks, as with Ceph's own clients.
    pub async fn pool_op(&self, op: MPoolOp) -> Result<MPoolOpReply, MonError> {
        self.monmap_ready().await?;
        let (sender, receiver) = oneshot();
        let tid = {
            let fsid = self.fsid();
            let mut state = self.0.state.borrow_mut();
            let tid = state.requests.next_tid();
            let message = MPoolOp { fsid, ..op }.encode().with_tid(tid);
            if let Some(con) = &state.active {
                con.send(message.clone());
            }
            state.requests.pool_ops.insert(tid, (message, sender));
            tid
        };
        let _open = Open { client: self, tid };
        answered(receiver).await
    }

    pub(crate) fn on_pool_op_reply(&self, raw: &RawMessage) {
        let tid = raw.header.tid;
        let open = self.0.state.borrow_mut().requests.pool_ops.remove(&tid);
        let Some((_, sender)) = open else { return };
        sender.send(MPoolOpReply::decode(raw));
    }

    pub(crate) fn on_command_ack(&self, raw: &RawMessage) {
        let open = self.0.state.borrow_mut().requests.commands.remove(&raw.header.tid);
        let Some((_, sender)) = open else { return };
        let ack = MMonCommandAck::decode(raw);
        sender.send(ack.map(|ack| Answer { rc: ack.rc, outs: ack.outs, outb: ack.outb }));
    }

    pub(crate) fn on_version_reply(&self, raw: &RawMessage) {
        let reply = MMonGetVersionReply::decode(raw);
        // We ask with the handle for tid.
        let handle = reply.as_ref().map_or(raw.header.tid, |reply| reply.handle);
        let open = self.0.state.borrow_mut().requests.versions.remove(&handle);
        if let Some((_, sender)) = open {
            let versions =
                |m: MMonGetVersionReply| Versions { newest: m.version, oldest: m.oldest_version };
            sender.send(reply.map(versions));
        }
    }

    /// An answer to something told to one monitor; whether it was ours.
    pub(crate) fn on_told_reply(&self, con: &Connection, raw: &RawMessage) -> bool {
        let open = {
            let told = &mut self.0.state.borrow_mut().requests.told;
            if told.get(&raw.header.tid).is_none_or(|told| told.con != *con) {
                return false;
            }
            told.remove(&raw.header.tid)
        };
        let Some(told) = open else { return false };
        let reply = MCommandReply::decode(raw);
        told.sender.send(reply.map(|m| Answer { rc: m.rc, outs: m.outs, outb: m.outb }));
        true
    }
}
