//! Who can reach whom: links and their faults, listening sockets, connections.
//!
//! Addresses are the world's: a host's own ones, and 127.0.0.1 and ::1, which all hosts share (so
//! that a cluster configured for one machine runs as well; faults still apply between the hosts
//! whose processes talk). Unix socket paths belong to a host.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::time::Duration;

use crate::link::LinkModel;
use crate::listener::Queue;
use crate::stream::Connection;

/// A host's index.
pub(crate) type HostId = usize;

/// State of the network. Bounds: listeners and connections as the processes open them.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) default_link: Cell<LinkModel>,
    pub(crate) links: RefCell<BTreeMap<(HostId, HostId), LinkModel>>,
    /// Directions in which nothing passes.
    pub(crate) blocked: RefCell<BTreeSet<(HostId, HostId)>>,
    pub(crate) listeners: RefCell<BTreeMap<SocketAddr, Rc<Queue>>>,
    pub(crate) unix_listeners: RefCell<BTreeMap<(HostId, PathBuf), Rc<Queue>>>,
    connections: RefCell<Vec<Weak<Connection>>>,
    next_connection: Cell<u64>,
}

impl Network {
    pub(crate) fn link(&self, from: HostId, to: HostId) -> LinkModel {
        if from == to {
            return LinkModel::LOCAL;
        }
        self.links.borrow().get(&(from, to)).copied().unwrap_or(self.default_link.get())
    }

    pub(crate) fn is_blocked(&self, from: HostId, to: HostId) -> bool {
        let blocked = self.blocked.borrow();
        !blocked.is_empty() && blocked.contains(&(from, to))
    }

    /// Forgets closed connections now and then, and keeps this one in view.
    pub(crate) fn add(&self, connection: &Rc<Connection>) {
        let mut connections = self.connections.borrow_mut();
        if connections.len() == connections.capacity() {
            connections.retain(|connection| connection.strong_count() > 0);
        }
        connections.push(Rc::downgrade(connection));
    }

    pub(crate) fn number_connection(&self) -> u64 {
        self.next_connection.replace(self.next_connection.get() + 1)
    }

    /// All connections somebody still holds, oldest first.
    pub(crate) fn connections(&self) -> Vec<Rc<Connection>> {
        self.connections.borrow().iter().filter_map(Weak::upgrade).collect()
    }

    /// Lets pass again what waited on this direction.
    pub(crate) fn unblock(&self, from: HostId, to: HostId, now: Duration) {
        if self.blocked.borrow_mut().remove(&(from, to)) {
            for connection in self.connections() {
                connection.release(from, to, now);
            }
        }
    }
}
