//! Listening sockets.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use env::sync::Notify;
use env::{Listener, LocalFuture, Stream};

use crate::process::Process;
use crate::stream::{Connection, SimStream};

/// Connections not yet accepted; further ones are refused.
const BACKLOG: usize = 512;

/// A listening socket's queue of connections.
pub(crate) struct Queue {
    pub(crate) process: Rc<Process>,
    waiting: RefCell<VecDeque<Rc<Connection>>>,
    arrived: Notify,
    closed: Cell<bool>,
}

impl Queue {
    pub(crate) fn new(process: Rc<Process>) -> Rc<Queue> {
        Rc::new(Queue {
            process,
            waiting: RefCell::default(),
            arrived: Notify::default(),
            closed: Cell::new(false),
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.closed.get() && self.process.alive.get()
    }

    /// Takes a new connection, whose second side is this process's; whether there was room.
    pub(crate) fn push(&self, connection: Rc<Connection>) -> bool {
        if !self.is_open() || self.waiting.borrow().len() >= BACKLOG {
            return false;
        }
        self.waiting.borrow_mut().push_back(connection);
        self.arrived.notify_all();
        true
    }

    /// No longer listens: connections not accepted end.
    pub(crate) fn close(&self) {
        if self.closed.replace(true) {
            return;
        }
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        for connection in waiting {
            connection.end_side(1, self.process.silent.get());
        }
        self.arrived.notify_all();
    }
}

/// What a process holds of its listening socket.
pub(crate) struct SimListener {
    pub(crate) queue: Rc<Queue>,
    pub(crate) addr: Option<SocketAddr>,
}

impl Listener for SimListener {
    fn accept(&self) -> LocalFuture<io::Result<Rc<dyn Stream>>> {
        let queue = self.queue.clone();
        Box::pin(async move {
            loop {
                if !queue.is_open() {
                    return Err(io::ErrorKind::NotConnected.into());
                }
                let connection = queue.waiting.borrow_mut().pop_front();
                if let Some(connection) = connection {
                    return Ok(Rc::new(SimStream::new(connection, 1)) as Rc<dyn Stream>);
                }
                queue.arrived.notified().await;
            }
        })
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.addr
    }
}

impl Drop for SimListener {
    fn drop(&mut self) {
        self.queue.close();
        let network = &self.queue.process.world.network;
        let mine = |queue: &Rc<Queue>| Rc::ptr_eq(queue, &self.queue);
        network.listeners.borrow_mut().retain(|_, queue| !mine(queue));
        // A unix socket's path stays, as it would on disk, and refuses connections.
    }
}
