//! Waiting on one another within a thread: one value ([`oneshot`]), an event ([`Notify`]), a
//! bounded budget ([`Semaphore`]).
//!
//! All are single-threaded, wake in the order in which tasks began to wait, and need no driver.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A place for one value from one task to another.
pub fn oneshot<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Rc::new(RefCell::new(Slot { value: None, waker: None, sender_lives: true }));
    (Sender(slot.clone()), Receiver(slot))
}

/// Gives the value; dropping it instead tells the receiver [`Dropped`].
#[derive(Debug)]
pub struct Sender<T>(Rc<RefCell<Slot<T>>>);

/// Awaits the value.
#[derive(Debug)]
pub struct Receiver<T>(Rc<RefCell<Slot<T>>>);

/// The sender went away without a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped;

#[derive(Debug)]
struct Slot<T> {
    value: Option<T>,
    waker: Option<Waker>,
    sender_lives: bool,
}

impl<T> Sender<T> {
    /// Hands the value over; lost if the receiver is gone.
    pub fn send(self, value: T) {
        self.0.borrow_mut().value = Some(value);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let waker = {
            let mut slot = self.0.borrow_mut();
            slot.sender_lives = false;
            slot.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Result<T, Dropped>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut slot = self.0.borrow_mut();
        match slot.value.take() {
            Some(value) => Poll::Ready(Ok(value)),
            None if !slot.sender_lives => Poll::Ready(Err(Dropped)),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// Tasks in the order in which they began to wait. Bound: one entry per waiting future.
#[derive(Debug, Default)]
struct Waiters {
    wakers: RefCell<BTreeMap<u64, Waker>>,
    sequence: Cell<u64>,
}

/// A place in [`Waiters`], given up on drop.
struct Place<'a> {
    waiters: &'a Waiters,
    ticket: Option<u64>,
}

impl Waiters {
    fn place(&self) -> Place<'_> {
        Place { waiters: self, ticket: None }
    }

    fn wake_all(&self) {
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        for waker in wakers.into_values() {
            waker.wake();
        }
    }

    fn wake_first(&self) {
        let waker = self.wakers.borrow().first_key_value().map(|(_, waker)| waker.clone());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Place<'_> {
    fn wait(&mut self, cx: &Context<'_>) {
        let ticket = *self.ticket.get_or_insert_with(|| {
            let ticket = self.waiters.sequence.get();
            self.waiters.sequence.set(ticket + 1);
            ticket
        });
        self.waiters.wakers.borrow_mut().insert(ticket, cx.waker().clone());
    }

    /// Whether nobody began to wait before.
    fn is_first(&self) -> bool {
        match (self.waiters.wakers.borrow().first_key_value(), self.ticket) {
            (None, _) => true,
            (Some((first, _)), ticket) => Some(*first) == ticket,
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let waker = self.waiters.wakers.borrow_mut().remove(&ticket);
            drop(waker);
        }
    }
}

/// An event that happens again and again.
#[derive(Debug, Default)]
pub struct Notify {
    waiters: Waiters,
    happened: Cell<u64>,
}

impl Notify {
    /// Wakes all that wait now.
    pub fn notify_all(&self) {
        self.happened.set(self.happened.get() + 1);
        self.waiters.wake_all();
    }

    /// Completes at the first [`Notify::notify_all`] after this call (not after the first poll).
    pub fn notified(&self) -> impl Future<Output = ()> + '_ {
        let before = self.happened.get();
        let mut place = self.waiters.place();
        poll_fn(move |cx| {
            if self.happened.get() != before {
                return Poll::Ready(());
            }
            place.wait(cx);
            Poll::Pending
        })
    }

    /// Waits until `condition` holds, trying it now and after each event. The place in the order of those who wait
    /// stays the same however many events do not bring it.
    pub async fn until(&self, mut condition: impl FnMut() -> bool) {
        let mut place = self.waiters.place();
        let tried = poll_fn(|cx| {
            if condition() {
                return Poll::Ready(());
            }
            place.wait(cx);
            Poll::Pending
        });
        tried.await;
    }
}

/// A budget of permits (bytes, operations), given out in the order of asking.
#[derive(Debug, Clone)]
pub struct Semaphore(Rc<Budget>);

#[derive(Debug)]
struct Budget {
    total: Cell<u64>,
    taken: Cell<u64>,
    waiters: Waiters,
}

impl Budget {
    fn take(&self, count: u64) -> bool {
        let fits = self.taken.get() + count <= self.total.get();
        if fits {
            self.taken.set(self.taken.get() + count);
        }
        fits
    }
}

/// Permits taken from a [`Semaphore`]; they return on drop.
#[derive(Debug)]
pub struct Permit {
    budget: Rc<Budget>,
    count: u64,
}

impl Semaphore {
    /// A budget of `total` permits.
    pub fn new(total: u64) -> Semaphore {
        Semaphore(Rc::new(Budget {
            total: Cell::new(total),
            taken: Cell::new(0),
            waiters: Waiters::default(),
        }))
    }

    /// Permits not taken.
    pub fn free(&self) -> u64 {
        self.0.total.get().saturating_sub(self.0.taken.get())
    }

    /// Changes the budget. What is taken beyond a smaller one returns as it returns.
    pub fn set_total(&self, total: u64) {
        if self.0.total.replace(total) < total {
            self.0.waiters.wake_first();
        }
    }

    /// Takes `count` permits when they are free and those who asked before have theirs. A count
    /// above the total is given when all others have returned, as the total.
    pub async fn acquire(&self, count: u64) -> Permit {
        // Also of one who is woken and gives up.
        let _next = WakeNext(&self.0.waiters);
        let mut place = self.0.waiters.place();
        poll_fn(|cx| {
            let count = count.min(self.0.total.get());
            if place.is_first() && self.0.take(count) {
                return Poll::Ready(Permit { budget: self.0.clone(), count });
            }
            place.wait(cx);
            Poll::Pending
        })
        .await
    }

    /// Takes `count` permits if they are free and nobody waits.
    pub fn try_acquire(&self, count: u64) -> Option<Permit> {
        let count = count.min(self.0.total.get());
        if !self.0.waiters.wakers.borrow().is_empty() || !self.0.take(count) {
            return None;
        }
        Some(Permit { budget: self.0.clone(), count })
    }
}

/// Wakes who is first when it goes: what is left may be enough for the next.
struct WakeNext<'a>(&'a Waiters);

impl Drop for WakeNext<'_> {
    fn drop(&mut self) {
        self.0.wake_first();
    }
}

impl Permit {
    /// How many permits these are.
    pub fn count(&self) -> u64 {
        self.count
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.taken.set(self.budget.taken.get() - self.count);
        self.budget.waiters.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Executor;

    fn run(executor: &Executor) {
        while executor.run_ready(64) > 0 {}
    }

    #[test]
    fn a_value_or_the_sender_s_end_arrives() {
        let executor = Executor::new(None);
        let seen = Rc::new(RefCell::new(Vec::new()));
        let (send, receive) = oneshot();
        let (lost, nothing) = oneshot::<u32>();
        let out = seen.clone();
        executor.spawn(
            0,
            Box::pin(async move {
                let first = receive.await;
                out.borrow_mut().push(first);
                let second = nothing.await;
                out.borrow_mut().push(second);
            }),
        );
        run(&executor);
        send.send(7);
        run(&executor);
        drop(lost);
        run(&executor);
        assert_eq!(*seen.borrow(), [Ok(7), Err(Dropped)]);
    }

    #[test]
    fn an_event_between_asking_and_waiting_is_not_lost() {
        let executor = Executor::new(None);
        let notify = Rc::new(Notify::default());
        let done = Rc::new(Cell::new(0));
        for _ in 0..2 {
            let (notify, done) = (notify.clone(), done.clone());
            executor.spawn(
                0,
                Box::pin(async move {
                    let event = notify.notified();
                    notify.notify_all();
                    event.await;
                    done.set(done.get() + 1);
                    notify.notified().await;
                    done.set(done.get() + 10);
                }),
            );
        }
        run(&executor);
        assert_eq!(done.get(), 12, "the second task's event ends the first's second wait");
        notify.notify_all();
        run(&executor);
        assert_eq!(done.get(), 22);
    }

    /// Found by `ceph_test_rados` on BlueStore, as writes of an object answered in another order.
    ///
    /// 1. A write waits for the round after the one that runs.
    /// 2. That ends and wakes it, and before its task has its turn another write begins to wait.
    /// 3. The next round makes both durable. The task had gone to the end of those who wait.
    #[test]
    fn who_waited_first_has_the_first_turn_after_any_number_of_events() {
        let executor = Executor::new(None);
        let notify = Rc::new(Notify::default());
        let rounds = Rc::new(Cell::new(0));
        let order = Rc::new(RefCell::new(Vec::new()));
        let wait = |name: &'static str| {
            let (notify, rounds, order) = (notify.clone(), rounds.clone(), order.clone());
            executor.spawn(
                0,
                Box::pin(async move {
                    notify.until(|| rounds.get() == 2).await;
                    order.borrow_mut().push(name);
                }),
            );
        };
        let end_round = || {
            rounds.set(rounds.get() + 1);
            notify.notify_all();
        };
        wait("first");
        run(&executor);
        wait("second");
        end_round();
        run(&executor);
        end_round();
        run(&executor);
        assert_eq!(*order.borrow(), ["first", "second"]);
    }

    #[test]
    fn permits_are_given_in_order_and_waiting_can_be_given_up() {
        let executor = Executor::new(None);
        let budget = Semaphore::new(10);
        let held = budget.try_acquire(8).unwrap();
        let order = Rc::new(RefCell::new(Vec::new()));
        for count in [50, 1, 2] {
            let (budget, order) = (budget.clone(), order.clone());
            executor.spawn(
                count as u32,
                Box::pin(async move {
                    let permit = budget.acquire(count).await;
                    order.borrow_mut().push(permit.count());
                }),
            );
        }
        run(&executor);
        assert!(order.borrow().is_empty(), "the big one is first in line");
        assert!(budget.try_acquire(1).is_none());
        executor.drop_owned_by(50);
        drop(held);
        run(&executor);
        assert_eq!(*order.borrow(), [1, 2]);
        assert_eq!(budget.free(), 10);
    }

    /// Who was woken, and gave up before it looked, took the wake-up with it: the next waited for ever for what was free.
    #[test]
    fn who_gives_up_when_woken_wakes_the_next() {
        let executor = Executor::new(None);
        let budget = Semaphore::new(1);
        let held = budget.try_acquire(1).unwrap();
        let permits = Rc::new(Cell::new(0));
        for owner in [1, 2] {
            let (budget, permits) = (budget.clone(), permits.clone());
            executor.spawn(
                owner,
                Box::pin(async move {
                    drop(budget.acquire(1).await);
                    permits.set(permits.get() + 1);
                }),
            );
        }
        run(&executor);
        drop(held);
        executor.drop_owned_by(1);
        run(&executor);
        assert_eq!(permits.get(), 1);
    }
}
