//! A client's (or another daemon's) session at this OSD: who it is and what it may do.

use std::cell::Cell;
use std::rc::Rc;

use auth::caps::OsdCap;
use msgr::Connection;
use types::{EntityName, Epoch};

use crate::ops::watch::Client;

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
        });
        con.set_session(Some(session.clone()));
        session
    }

    /// Its side of watches.
    pub fn client(&self) -> &Rc<Client> {
        &self.client
    }
}
