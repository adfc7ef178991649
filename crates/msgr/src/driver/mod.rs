//! The tasks that move bytes. One task a socket reads (and runs the handshake before), one writes;
//! a connection without a socket has at most one task, which tries to connect.
//!
//! A task remembers the connection's generation from when it began; whoever takes the socket away
//! (`mark_down`, a newer socket, a fault seen by the other task) raises it, and the task ends at
//! its next look.

mod accept;
mod connect;
mod link;
mod within;

use std::rc::{Rc, Weak};

use bytes::BytesMut;
use env::{Listener, Stream};

use crate::connection::{Connection, Link, Phase};
use crate::dispatch::Incoming;
use crate::frame::{FrameReader, FrameWriter, SendBatch};
use crate::messenger::{Messenger, Shared};

/// Room for received bytes to begin with.
const RECV_LEN_MIN: usize = 16 << 10;
/// Room for received bytes once they come in a stream. A received message keeps its whole buffer
/// alive, so this bounds what a small one can hold.
const RECV_LEN_MAX: usize = 256 << 10;

/// Begins to connect.
pub(crate) fn spawn_connector(con: &Connection) {
    let con = con.clone();
    con.0.env.clone().go(connect::run(con));
}

/// Begins to take connections from a listener.
pub(crate) fn spawn_acceptor(messenger: &Messenger, listener: Rc<dyn Listener>) {
    let weak = Rc::downgrade(&messenger.0);
    messenger.0.env.go(accept::run(weak, listener));
}

/// Hands what is sent to oneself to the own dispatcher.
pub(crate) fn spawn_loopback(con: &Connection) {
    let con = con.clone();
    con.0.env.clone().go(async move {
        while con.0.phase() != Phase::Closed {
            let next = con.0.session.borrow_mut().pop_next(false);
            let dispatcher = con.0.messenger.upgrade().and_then(|m| m.dispatcher());
            match (next, dispatcher) {
                (Some(message), Some(dispatcher)) => {
                    let now = con.0.env.now();
                    dispatcher.on_message(&con, Incoming::unthrottled(message, now));
                }
                _ => con.0.wake.wait().await,
            }
        }
    });
}

/// Ends connections that have been silent for too long.
pub(crate) fn spawn_idle_check(messenger: &Messenger) {
    let weak = Rc::downgrade(&messenger.0);
    let env = messenger.0.env.clone();
    let idle = messenger.0.config.idle_timeout;
    let last = LastTask(weak.clone());
    messenger.0.env.go(async move {
        let _last = last;
        loop {
            env.sleep(idle / 4).await;
            let Some(messenger) = weak.upgrade() else { return };
            if messenger.stopped.get() {
                return;
            }
            let now = env.now();
            for con in messenger.connections() {
                let last = con.0.link.borrow().as_ref().map(|link| link.last_active.get());
                if last.is_some_and(|last| now.saturating_sub(last) > idle) {
                    tracing::info!(?con, "silent for too long");
                    fault(&con, con.0.generation.get());
                }
            }
        }
    });
}

/// A process whose tasks are dropped (a simulated one that is killed) answers nobody any more. Its
/// messenger lets go of the daemon then, which holds the messenger: else neither would ever go.
struct LastTask(Weak<Shared>);

impl Drop for LastTask {
    fn drop(&mut self) {
        if let Some(messenger) = self.0.upgrade() {
            messenger.let_go();
        }
    }
}

/// A socket that is ready to carry a session.
struct Carrier {
    stream: Rc<dyn Stream>,
    reader: FrameReader,
    writer: FrameWriter,
    /// Not sent yet: the last frames of the handshake.
    out: SendBatch,
    /// Received, not looked at yet.
    buf: BytesMut,
}

/// Gives a connection its socket; `run_link` does the rest.
fn attach(con: &Connection, carrier: Carrier) -> impl Future<Output = ()> + use<> {
    con.0.unlink();
    let link = Rc::new(Link {
        stream: carrier.stream,
        writer: carrier.writer.into(),
        wake: Default::default(),
        last_active: con.0.env.now().into(),
    });
    *con.0.link.borrow_mut() = Some(link.clone());
    con.0.set_phase(Phase::Ready);
    let generation = con.0.generation.get();
    con.0.env.go(link::write(con.clone(), link.clone(), carrier.out, generation));
    link::read(con.clone(), link, carrier.reader, carrier.buf, generation)
}

/// The socket of this generation broke.
///
/// | policy | what follows |
/// |---|---|
/// | lossy | closed, `on_reset` |
/// | lossless server, or lossless with nothing to send and `standby` | standby |
/// | lossless otherwise | connects again at once |
pub(crate) fn fault(con: &Connection, generation: u64) {
    let inner = &con.0;
    if inner.generation.get() != generation || inner.phase() != Phase::Ready {
        return;
    }
    if inner.lossy.get() {
        inner.close();
        let dispatcher = inner.messenger.upgrade().and_then(|m| m.dispatcher());
        if let Some(dispatcher) = dispatcher {
            dispatcher.on_reset(con);
        }
        return;
    }
    inner.unlink();
    let queued = {
        let mut session = inner.session.borrow_mut();
        session.requeue_sent();
        session.has_queued()
    };
    if inner.policy.server || (inner.policy.standby && !queued) {
        inner.set_phase(Phase::Standby);
    } else {
        inner.session.borrow_mut().connect_seq += 1;
        inner.set_phase(Phase::Connecting);
        spawn_connector(con);
    }
}
