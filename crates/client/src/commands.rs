//! Commands to OSDs and to the manager (`ceph tell`, `ceph pg dump`), sent again when their
//! session breaks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use bstr::BString;
use bytes::Bytes;
use env::sync::{Notify, Sender, oneshot};
use maps::MgrMap;
use messages::{MCommand, MCommandReply, MMgrCommand, MMgrCommandReply, Message};
use monclient::Answer;
use msgr::Connection;
use types::entity::MGR;
use types::{Errno, OsdId, RawMessage};

use crate::ClientError;
use crate::objecter::Objecter;
use crate::sessions::Sessions;

/// Commands under way at a time; more are refused with EAGAIN.
const COMMANDS_MAX: usize = 4096;

/// Between two connections to a manager that ends them (`mgr_connect_retry_interval`): one that is not the
/// active one any more ends all until the map is heard that says which is.
const MGR_RETRY: Duration = Duration::from_secs(1);

/// Who is to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whom {
    Osd(OsdId),
    /// A command the active manager answers for the cluster.
    Mgr,
}

struct Pending {
    whom: Whom,
    cmd: Vec<BString>,
    input: Bytes,
    /// Number of the connection it was sent on.
    con_id: Option<u64>,
    answer: Sender<Result<Answer, ClientError>>,
}

#[derive(Default)]
pub(crate) struct Commands {
    pending: RefCell<BTreeMap<u64, Pending>>,
    mgrmap: RefCell<MgrMap>,
    mgrmap_changed: Notify,
    mgr_con: RefCell<Option<Connection>>,
    /// When that was opened (`env.now()`).
    mgr_opened: Cell<Duration>,
    stopped: Cell<bool>,
}

impl Commands {
    pub(crate) fn clear(&self) {
        self.stopped.set(true);
        self.pending.borrow_mut().clear();
        self.mgrmap_changed.notify_all();
    }

    /// Commands to this OSD.
    pub(crate) fn of_osd(&self, osd: OsdId) -> Vec<u64> {
        let pending = self.pending.borrow();
        let to_it = pending.iter().filter(|(_, p)| p.whom == Whom::Osd(osd));
        to_it.map(|(tid, _)| *tid).collect()
    }

    /// Commands to OSDs whose session is not the one they were sent on.
    pub(crate) fn on_map(&self, sessions: &Sessions) -> Vec<u64> {
        let stale = |p: &Pending| match p.whom {
            Whom::Osd(osd) => p.con_id != sessions.connection(osd).map(|con| con.id()),
            Whom::Mgr => false,
        };
        let pending = self.pending.borrow();
        pending.iter().filter(|(_, p)| stale(p)).map(|(tid, _)| *tid).collect()
    }

    /// What the manager had is for the next one, or for it again.
    fn mgr_is_gone(&self) {
        let mut pending = self.pending.borrow_mut();
        pending.values_mut().filter(|p| p.whom == Whom::Mgr).for_each(|p| p.con_id = None);
    }

    fn finish(&self, tid: u64, answer: Result<Answer, ClientError>) {
        let pending = self.pending.borrow_mut().remove(&tid);
        if let Some(pending) = pending {
            pending.answer.send(answer);
        }
    }
}

impl Objecter {
    /// Runs a command there.
    pub(crate) async fn command(
        self: &Rc<Self>,
        whom: Whom,
        cmd: Vec<String>,
        input: Bytes,
    ) -> Result<Answer, ClientError> {
        let commands = &self.commands;
        if commands.pending.borrow().len() >= COMMANDS_MAX {
            return Err(Errno::EAGAIN.into());
        }
        if let Whom::Osd(osd) = whom {
            if !self.osdmaps.current().is_up(osd) {
                self.wait_for_latest_map().await?;
            }
            let map = self.osdmaps.current();
            if !map.exists(osd) {
                return Err(Errno::ENOENT.into());
            }
            if !map.is_up(osd) {
                return Err(Errno::ENXIO.into());
            }
        } else {
            let ready = || commands.mgrmap.borrow().available || commands.stopped.get();
            commands.mgrmap_changed.until(ready).await;
        }
        if self.stopped.get() {
            return Err(ClientError::Closed);
        }
        let (answer, reply) = oneshot();
        let tid = self.new_tid();
        let cmd = cmd.into_iter().map(BString::from).collect();
        let pending = Pending { whom, cmd, input, con_id: None, answer };
        commands.pending.borrow_mut().insert(tid, pending);
        self.send_command(tid);
        reply.await.unwrap_or(Err(ClientError::Closed))
    }

    pub(crate) fn send_command(self: &Rc<Self>, tid: u64) {
        let commands = &self.commands;
        let mut pending = commands.pending.borrow_mut();
        let Some(command) = pending.get_mut(&tid) else { return };
        let (fsid, cmd, input) = (self.monc.fsid(), command.cmd.clone(), command.input.clone());
        let (con, message) = match command.whom {
            Whom::Osd(osd) => {
                let map = self.osdmaps.current();
                let con = self.sessions.borrow_mut().open(osd, &map, &self.messenger);
                (con, MCommand { fsid, cmd, input }.encode())
            }
            Whom::Mgr => (self.open_mgr(), MMgrCommand { fsid, cmd, input }.encode()),
        };
        command.con_id = con.as_ref().map(Connection::id);
        let whom = command.whom;
        drop(pending);
        match con {
            Some(con) => con.send(message.with_tid(tid)),
            None if whom == Whom::Mgr => {}
            None => commands.finish(tid, Err(Errno::ENXIO.into())),
        }
    }

    fn open_mgr(&self) -> Option<Connection> {
        let commands = &self.commands;
        let map = commands.mgrmap.borrow();
        if !map.available || map.active_addrs.is_empty() {
            return None;
        }
        let mut open = commands.mgr_con.borrow_mut();
        if let Some(con) = open.as_ref().filter(|con| !con.is_closed()) {
            return Some(con.clone());
        }
        let con = self.messenger.connect_to(MGR, &map.active_addrs);
        commands.mgr_opened.set(self.env.now());
        *open = Some(con.clone());
        Some(con)
    }

    /// Another manager may be active now.
    pub(crate) fn on_mgrmap(self: &Rc<Self>, map: MgrMap) {
        let commands = &self.commands;
        let moved = map.active_addrs != commands.mgrmap.borrow().active_addrs;
        let usable = map.available;
        *commands.mgrmap.borrow_mut() = map;
        if moved {
            if let Some(con) = commands.mgr_con.borrow_mut().take() {
                con.mark_down();
            }
            // It may be a later map that says that the new one can be asked.
            commands.mgr_is_gone();
        }
        if usable {
            self.resend_to_mgr();
        }
        commands.mgrmap_changed.notify_all();
    }

    /// Sends what no connection has.
    fn resend_to_mgr(self: &Rc<Self>) {
        let tids: Vec<u64> = {
            let pending = self.commands.pending.borrow();
            let again = |p: &Pending| p.whom == Whom::Mgr && p.con_id.is_none();
            pending.iter().filter(|(_, p)| again(p)).map(|(tid, _)| *tid).collect()
        };
        for tid in tids {
            self.send_command(tid);
        }
    }

    /// The connection broke; true if it was the manager's.
    pub(crate) fn on_mgr_reset(self: &Rc<Self>, con: &Connection) -> bool {
        let ours = |open: &Connection| open.id() == con.id();
        if !self.commands.mgr_con.borrow().as_ref().is_some_and(ours) {
            return false;
        }
        self.commands.mgr_con.borrow_mut().take();
        self.commands.mgr_is_gone();
        let since = self.env.now().saturating_sub(self.commands.mgr_opened.get());
        let (objecter, wait) = (Rc::downgrade(self), MGR_RETRY.saturating_sub(since));
        let env = self.env.clone();
        self.env.go(async move {
            env.sleep(wait).await;
            if let Some(objecter) = objecter.upgrade() {
                objecter.resend_to_mgr();
            }
        });
        true
    }

    pub(crate) fn on_command_reply(&self, raw: &RawMessage) {
        let answer = match raw.header.kind {
            MCommandReply::TYPE => MCommandReply::decode(raw).map(|m| (m.rc, m.outs, m.outb)),
            _ => MMgrCommandReply::decode(raw).map(|m| (m.rc, m.outs, m.outb)),
        };
        let answer =
            answer.map(|(rc, outs, outb)| Answer { rc, outs, outb }).map_err(ClientError::Decode);
        self.commands.finish(raw.header.tid, answer);
    }
}
