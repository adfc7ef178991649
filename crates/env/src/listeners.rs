//! Several listeners as one.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::{Listener, LocalFuture, Stream};

type Accepted = io::Result<Rc<dyn Stream>>;

/// Takes what comes to any of its listeners, which stand for one address. Clones are the same.
#[derive(Clone)]
pub struct Listeners(Rc<Inner>);

struct Inner {
    addr: Option<SocketAddr>,
    listeners: Vec<Rc<dyn Listener>>,
    /// What has been begun of each: it must not be given up, or a connection would be lost.
    accepting: RefCell<Vec<Option<LocalFuture<Accepted>>>>,
}

impl Listeners {
    /// The address is that of the first; what has come to an earlier one is taken first.
    pub fn new(listeners: Vec<Rc<dyn Listener>>) -> Listeners {
        let addr = listeners.first().and_then(|first| first.local_addr());
        let accepting = listeners.iter().map(|_| None).collect::<Vec<_>>().into();
        Listeners(Rc::new(Inner { addr, listeners, accepting }))
    }
}

impl Inner {
    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<Accepted> {
        for (at, listener) in self.listeners.iter().enumerate() {
            let begun = self.accepting.borrow_mut()[at].take();
            let mut accepting = begun.unwrap_or_else(|| listener.accept());
            match accepting.as_mut().poll(cx) {
                Poll::Pending => self.accepting.borrow_mut()[at] = Some(accepting),
                ready => return ready,
            }
        }
        Poll::Pending
    }
}

impl Listener for Listeners {
    fn accept(&self) -> LocalFuture<Accepted> {
        let all = self.0.clone();
        Box::pin(poll_fn(move |cx| all.poll_accept(cx)))
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.0.addr
    }
}
