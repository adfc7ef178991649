//! A counted bound with waiters in order of arrival.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// At most `max` units are out at a time, any number if it is 0. A single request above `max` is granted when nothing
/// else is out, so that one large message cannot block for ever.
#[derive(Debug)]
pub struct Throttle {
    max: u64,
    out: Cell<u64>,
    next_ticket: Cell<u64>,
    /// One entry for each connection that waits: bounded by the connections.
    waiting: RefCell<BTreeMap<u64, Waker>>,
}

impl Throttle {
    /// A bound of `max` units.
    pub fn new(max: u64) -> Rc<Throttle> {
        Rc::new(Throttle {
            max,
            out: Cell::new(0),
            next_ticket: Cell::new(0),
            waiting: RefCell::default(),
        })
    }

    /// Units that are out.
    pub fn current(&self) -> u64 {
        self.out.get()
    }

    /// The bound.
    pub fn max(&self) -> u64 {
        self.max
    }

    fn fits(&self, units: u64) -> bool {
        let out = self.out.get();
        self.max == 0 || out == 0 || out.saturating_add(units) <= self.max
    }

    /// Takes units if they are free and nobody waits.
    pub fn try_take(self: &Rc<Throttle>, units: u64) -> Option<Permit> {
        (self.waiting.borrow().is_empty() && self.fits(units)).then(|| self.grant(units))
    }

    fn grant(self: &Rc<Throttle>, units: u64) -> Permit {
        self.out.set(self.out.get() + units);
        Permit { throttle: self.clone(), units }
    }

    /// Takes units, waiting in line until they are free.
    pub async fn take(self: &Rc<Throttle>, units: u64) -> Permit {
        if let Some(permit) = self.try_take(units) {
            return permit;
        }
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        let place = Place { throttle: self, ticket };
        poll_fn(|cx| {
            let mut waiting = self.waiting.borrow_mut();
            let first = waiting.keys().next().is_none_or(|first| *first >= ticket);
            if first && self.fits(units) {
                return Poll::Ready(());
            }
            waiting.insert(ticket, cx.waker().clone());
            Poll::Pending
        })
        .await;
        let permit = self.grant(units);
        drop(place);
        permit
    }

    fn wake_first(&self) {
        if let Some(waker) = self.waiting.borrow().values().next() {
            waker.wake_by_ref();
        }
    }
}

/// A place in the line, given up when its future is dropped.
struct Place<'a> {
    throttle: &'a Throttle,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.throttle.waiting.borrow_mut().remove(&self.ticket);
        self.throttle.wake_first();
    }
}

/// Units taken; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    throttle: Rc<Throttle>,
    units: u64,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.throttle.out.set(self.throttle.out.get() - self.units);
        self.throttle.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `osd_client_message_cap = 0` let one message in at a time; in Ceph it is no bound.
    #[test]
    fn none_is_no_bound() {
        let taken = |max| {
            let throttle = Throttle::new(max);
            let first = throttle.try_take(7);
            (first.is_some(), throttle.try_take(7).is_some())
        };
        assert_eq!(taken(0), (true, true));
        assert_eq!(taken(13), (true, false));
    }
}
