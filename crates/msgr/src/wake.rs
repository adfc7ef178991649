//! A flag one task sleeps on.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Set by anyone, awaited by one task at a time.
#[derive(Debug, Default)]
pub(crate) struct Wake {
    set: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Wake {
    /// Sets the flag and wakes the sleeper.
    pub(crate) fn wake(&self) {
        if self.set.replace(true) {
            return;
        }
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Waits for the flag and takes it down.
    pub(crate) async fn wait(&self) {
        poll_fn(|cx| {
            if self.set.replace(false) {
                return Poll::Ready(());
            }
            *self.waker.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
