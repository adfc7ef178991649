//! The active manager, as this monitor's: reports (`report.rs`), and commands that it answers and a client asks of a monitor: they go on to the active manager, and
//! its answer goes back (`src/mon/Monitor.cc` at v16.2: C_MgrProxyCommand). `rbd mirror pool status` asks so.
//!
//! Nothing of it is in the log: whoever loses its monitor asks another one, and what a manager did not
//! answer before it fell silent is asked of the next.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use command::CommandReply;
use messages::{
    MMgrCommand, MMgrCommandReply, MMgrConfigure, MMonCommand, MMonCommandAck, Message, PaxosHeader,
};
use msgr::{Connection, Dispatcher, Incoming, Messenger, Policies, Policy};
use types::{AddrVec, EntityName, Errno, entity};

use super::{Shell, auth_server};
use crate::event::{SessionId, wire};

struct Asked {
    session: SessionId,
    /// The client's number for it.
    tid: u64,
    command: MMonCommand,
}

/// See the module.
pub(super) struct ToMgr {
    messenger: Messenger,
    /// The active manager, as it was when something was last sent.
    con: RefCell<Option<(AddrVec, Connection)>>,
    /// By the number they have on the way to the manager. Bound: `mon_mgr_proxy_client_bytes_ratio` of
    /// `mon_client_bytes` in all.
    asked: RefCell<BTreeMap<u64, Asked>>,
    last_tid: Cell<u64>,
    pub(super) reporter: perf::Reporter,
    /// The revision of our options it was last told.
    pub(super) config_told: Cell<u64>,
}

/// What a command counts for.
fn size(command: &MMonCommand) -> usize {
    command.input.len() + command.cmd.iter().map(|part| part.len()).sum::<usize>()
}

impl ToMgr {
    /// A monitor is its manager's client by a messenger of its own: to whom it serves it is no client.
    pub(super) fn new(env: &env::Env, own_name: EntityName) -> ToMgr {
        let policies = Policies::new(Policy::lossy_client());
        let nonce = env.random_u64() as u32;
        let settings = msgr::Config::new(own_name, nonce, policies);
        ToMgr {
            messenger: Messenger::new(env.clone(), settings),
            con: RefCell::default(),
            asked: RefCell::default(),
            last_tid: Cell::new(0),
            reporter: perf::Reporter::default(),
            config_told: Cell::new(0),
        }
    }

    pub(super) fn start(shell: &Rc<Shell>) {
        let messenger = &shell.to_mgr.messenger;
        messenger.set_auth_client(Rc::new(auth_server::MonAuthClient { shell: shell.clone() }));
        messenger.set_dispatcher(Rc::new(Answers { shell: shell.clone() }));
    }

    pub(super) fn stop(&self) {
        self.asked.borrow_mut().clear();
        self.con.borrow_mut().take();
        self.messenger.shutdown();
    }

    /// To the manager that was active when last looked.
    pub(super) fn connection(&self) -> Option<Connection> {
        self.con.borrow().as_ref().map(|(_, con)| con.clone())
    }

    /// Nobody waits for these any more.
    pub(super) fn client_gone(&self, session: SessionId) {
        self.asked.borrow_mut().retain(|_, asked| asked.session != session);
    }
}

impl Shell {
    /// Asks the manager, now or when there is one.
    pub(super) fn ask_mgr(&self, session: SessionId, tid: u64, command: MMonCommand) {
        let under_way: usize = self.to_mgr.asked.borrow().values().map(|a| size(&a.command)).sum();
        let share = self.conf.float("mon_mgr_proxy_client_bytes_ratio");
        let max = self.conf.uint("mon_client_bytes") as f64 * share;
        let asked = Asked { session, tid, command };
        if (under_way + size(&asked.command)) as f64 > max {
            let full = CommandReply::error(Errno::EAGAIN.0, "hit limit on proxied mgr commands");
            return self.answer_asked(asked, full);
        }
        let number = self.to_mgr.last_tid.get() + 1;
        self.to_mgr.last_tid.set(number);
        self.to_mgr.asked.borrow_mut().insert(number, asked);
        if !self.follow_mgr()
            && let Some((_, con)) = &*self.to_mgr.con.borrow()
        {
            self.send_asked(con, number);
        }
    }

    /// Opens a session with the manager that is active now, if it is another one or the connection broke,
    /// and sends it all that is not answered; whether it was so.
    pub(super) fn follow_mgr(&self) -> bool {
        let to_mgr = &self.to_mgr;
        let Some(addrs) = self.core.borrow().as_ref().and_then(|core| core.active_mgr()) else {
            return false;
        };
        if let Some((at, con)) = &*to_mgr.con.borrow()
            && *at == addrs
            && !con.is_closed()
        {
            return false;
        }
        let con = to_mgr.messenger.connect_to(entity::MGR, &addrs);
        let before = to_mgr.con.borrow_mut().replace((addrs, con.clone()));
        if let Some((_, before)) = before.filter(|(_, before)| *before != con) {
            before.mark_down();
        }
        self.open_reports(&con);
        let numbers: Vec<u64> = to_mgr.asked.borrow().keys().copied().collect();
        numbers.into_iter().for_each(|number| self.send_asked(&con, number));
        true
    }

    fn send_asked(&self, con: &Connection, number: u64) {
        if let Some(asked) = self.to_mgr.asked.borrow().get(&number) {
            let MMonCommand { fsid, cmd, input, .. } = asked.command.clone();
            con.send(MMgrCommand { fsid, cmd, input }.encode().with_tid(number));
        }
    }

    fn answer_asked(&self, asked: Asked, reply: CommandReply) {
        let ack = MMonCommandAck {
            paxos: PaxosHeader::at(0),
            rc: reply.rc,
            outs: reply.outs,
            cmd: asked.command.cmd,
            outb: reply.outb,
        };
        self.send_client(asked.session, wire(&ack).with_tid(asked.tid));
    }
}

/// What comes from the manager.
struct Answers {
    shell: Rc<Shell>,
}

impl Dispatcher for Answers {
    fn on_message(&self, _: &Connection, incoming: Incoming) {
        let raw = incoming.into_message();
        match raw.header.kind {
            MMgrCommandReply::TYPE => {}
            MMgrConfigure::TYPE => {
                if let Ok(configure) = MMgrConfigure::decode(&raw) {
                    self.shell.to_mgr.reporter.configure(&configure);
                }
                return;
            }
            _ => return,
        }
        let asked = self.shell.to_mgr.asked.borrow_mut().remove(&raw.header.tid);
        let Some(asked) = asked else { return };
        let reply = match MMgrCommandReply::decode(&raw) {
            Ok(m) => CommandReply { rc: m.rc, outs: m.outs, outb: m.outb },
            Err(e) => CommandReply::error(
                Errno::EIO.0,
                format!("the manager's answer does not decode: {e}"),
            ),
        };
        self.shell.answer_asked(asked, reply);
    }

    fn on_reset(&self, con: &Connection) {
        let mut open = self.shell.to_mgr.con.borrow_mut();
        if open.as_ref().is_some_and(|(_, open)| open == con) {
            *open = None;
        }
    }
}
