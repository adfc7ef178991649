//! Pending sleeps of one thread, earliest first; ties in the order they were first polled.
//!
//! Bound: one entry per live [`LocalFuture`] of a sleep; dropping it removes the entry at once, so
//! timeouts that never fire leave nothing behind.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::LocalFuture;

/// The sleeps of one driver.
#[derive(Debug, Default)]
pub struct Timers {
    pending: RefCell<BTreeMap<(Duration, u64), Waker>>,
    sequence: Cell<u64>,
    /// The time of the last [`Timers::fire`].
    now: Cell<Duration>,
}

struct Sleep {
    timers: Rc<Timers>,
    deadline: Duration,
    /// The entry's key once it was first polled.
    key: Option<(Duration, u64)>,
}

impl Timers {
    /// Completes at the first [`Timers::fire`] whose time is at least `deadline`.
    pub fn sleep_until(self: &Rc<Self>, deadline: Duration) -> LocalFuture<()> {
        Box::pin(Sleep { timers: self.clone(), deadline, key: None })
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Duration> {
        self.pending.borrow().first_key_value().map(|((deadline, _), _)| *deadline)
    }

    /// Wakes all sleeps whose deadline is not after `now`, in order.
    pub fn fire(&self, now: Duration) {
        self.now.set(now);
        loop {
            let waker = {
                let mut pending = self.pending.borrow_mut();
                match pending.first_entry() {
                    Some(entry) if entry.key().0 <= now => entry.remove(),
                    _ => return,
                }
            };
            waker.wake();
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let timers = self.timers.clone();
        let mut pending = timers.pending.borrow_mut();
        match self.key {
            Some(key) => match pending.get_mut(&key) {
                Some(waker) => waker.clone_from(cx.waker()),
                None => return Poll::Ready(()),
            },
            None if self.deadline <= timers.now.get() => return Poll::Ready(()),
            None => {
                let key = (self.deadline, timers.sequence.get());
                timers.sequence.set(key.1 + 1);
                pending.insert(key, cx.waker().clone());
                self.key = Some(key);
            }
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = self.timers.pending.borrow_mut().remove(&key);
            drop(waker);
        }
    }
}
