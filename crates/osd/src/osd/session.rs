//! A client's (or another daemon's) session at this OSD: who it is and what it may do.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use auth::caps::OsdCap;
use messages::{BackoffOp, MOSDBackoff, Message};
use msgr::Connection;
use types::features::SERVER_LUMINOUS;
use types::{EntityName, Epoch, HObject, SpgId};

use crate::ops::watch::Client;

/// Backoffs of one session at a time; beyond them ops wait here.
const BACKOFFS_MAX: usize = 65536;

/// A backoff as the session knows it.
struct Backoff {
    id: u64,
    end: HObject,
    /// The client knows of it.
    acked: bool,
    /// It is over, but the client may not have known of it when it sent what comes now.
    released: bool,
}

/// Kept in the connection's slot from its first message on.
pub struct Session {
    /// Its connection.
    pub con: Connection,
    /// Who it is.
    pub name: EntityName,
    /// What it may do.
    pub caps: OsdCap,
    client: Rc<Client>,
    /// The newest map it is known to have.
    pub epoch: Cell<Epoch>,
    /// By PG and first object; ranges do not overlap, but for single objects beside their PG.
    backoffs: RefCell<BTreeMap<(SpgId, HObject), Backoff>>,
    last_backoff: Cell<u64>,
}

impl Session {
    /// The session of a connection.
    pub fn of(con: &Connection) -> Rc<Session> {
        if let Some(session) = con.session::<Session>() {
            return session;
        }
        let info = con.peer_caps();
        let caps = if info.allow_all {
            OsdCap::allow_all()
        } else {
            info.text().ok().and_then(|t| OsdCap::parse(&t).ok()).unwrap_or_default()
        };
        let name = con.peer_name();
        let addr = con.peer_addrs().front();
        let session = Rc::new(Session {
            con: con.clone(),
            name,
            caps,
            client: Client::new(name, addr, Box::new(con.clone())),
            epoch: Cell::new(0),
            backoffs: RefCell::default(),
            last_backoff: Cell::new(0),
        });
        con.set_session(Some(session.clone()));
        session
    }

    /// Whether the client has been told to keep ops of this object.
    pub(crate) fn is_backed_off(&self, pg: SpgId, oid: &HObject) -> bool {
        let backoffs = self.backoffs.borrow();
        // The bound below is a copy of the name, and nearly always nothing is kept.
        if backoffs.is_empty() {
            return false;
        }
        backoffs
            .range(..=(pg, oid.clone()))
            .next_back()
            .is_some_and(|((of, begin), b)| *of == pg && (begin == oid || *oid < b.end))
    }

    /// Tells the client to keep ops of the objects from `begin` to before `end` (or of one object,
    /// both). `None` if it does not understand that, or has too many.
    pub(crate) fn back_off(
        &self,
        pg: SpgId,
        epoch: Epoch,
        begin: &HObject,
        end: &HObject,
    ) -> Option<u64> {
        let mut backoffs = self.backoffs.borrow_mut();
        if self.con.features() & SERVER_LUMINOUS != SERVER_LUMINOUS
            || backoffs.len() >= BACKOFFS_MAX
        {
            return None;
        }
        let id = self.last_backoff.get() + 1;
        self.last_backoff.set(id);
        let backoff = Backoff { id, end: end.clone(), acked: false, released: false };
        backoffs.insert((pg, begin.clone()), backoff);
        self.say(BackoffOp::Block, pg, epoch, id, begin, end);
        Some(id)
    }

    /// Tells the client to send what it kept.
    pub(crate) fn release(&self, pg: SpgId, epoch: Epoch, begin: &HObject, id: u64) {
        let key = (pg, begin.clone());
        let mut backoffs = self.backoffs.borrow_mut();
        let Some(b) = backoffs.get_mut(&key).filter(|b| b.id == id && !b.released) else { return };
        b.released = true;
        self.say(BackoffOp::Unblock, pg, epoch, id, begin, &b.end);
        if b.acked {
            backoffs.remove(&key);
        }
    }

    /// The client keeps what it was told to.
    pub(crate) fn on_backoff(&self, m: &MOSDBackoff) {
        let key = (m.pgid, m.begin.clone());
        let mut backoffs = self.backoffs.borrow_mut();
        if let Some(b) = backoffs.get_mut(&key).filter(|b| b.id == m.id) {
            b.acked = true;
            if b.released {
                backoffs.remove(&key);
            }
        }
    }

    fn say(
        &self,
        op: BackoffOp,
        pgid: SpgId,
        map_epoch: Epoch,
        id: u64,
        begin: &HObject,
        end: &HObject,
    ) {
        let (begin, end) = (begin.clone(), end.clone());
        self.con.send(MOSDBackoff { pgid, map_epoch, op, id, begin, end }.encode());
    }

    /// Its side of watches.
    pub fn client(&self) -> &Rc<Client> {
        &self.client
    }
}
