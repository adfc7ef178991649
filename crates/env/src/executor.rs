//! The executor of one thread: a task slab and a first-in-first-out run queue.
//!
//! Both drivers use it. Wakers may be used and dropped on any thread (as [`std::task::Waker`]
//! demands): they push the task's key to a locked queue and, from a foreign thread, call the
//! driver's `notify`. Order of wake-ups is order of polls, so a driver whose events are
//! deterministic runs deterministically. A task has an owner (a simulated node), by which it can
//! be dropped.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use crate::LocalFuture;

thread_local! {
    static RUNNING: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Owner of the task that this thread polls.
pub fn running_owner() -> Option<u32> {
    RUNNING.try_with(Cell::get).ok().flatten()
}

/// Runs tasks of one thread. A clone is another handle to the same executor.
#[derive(Clone)]
pub struct Executor(Rc<Inner>);

struct Inner {
    slots: RefCell<Vec<Slot>>,
    free: RefCell<Vec<u32>>,
    ready: Arc<Ready>,
    closed: Cell<bool>,
}

/// One place in the slab. Its generation grows when a task leaves, so that a late wake-up of the
/// old task does not poll a new one.
struct Slot {
    generation: u32,
    owner: u32,
    state: State,
    /// Of the task before, for the next one: nobody else has it.
    spare: Option<(Arc<TaskWake>, Waker)>,
}

enum State {
    Free,
    Waiting(Task),
    /// Taken out to be polled.
    Polled,
    /// Dropped by its owner's end while being polled.
    Doomed,
}

struct Task {
    future: LocalFuture<()>,
    wake: Arc<TaskWake>,
    waker: Waker,
}

/// The run queue, shared with wakers on any thread. Bound: one entry per live task and one per
/// dropped task whose wake-up is still queued.
struct Ready {
    queue: Mutex<VecDeque<(u32, u32)>>,
    home: usize,
    notify: Option<Box<dyn Fn() + Send + Sync>>,
}

struct TaskWake {
    ready: Arc<Ready>,
    index: u32,
    /// Changes only while nobody but the slot has it.
    generation: AtomicU32,
    queued: AtomicBool,
}

impl Executor {
    /// An executor without tasks. `notify` is called when a foreign thread has woken a task, to
    /// get this thread out of its wait.
    pub fn new(notify: Option<Box<dyn Fn() + Send + Sync>>) -> Executor {
        Executor(Rc::new(Inner {
            slots: RefCell::default(),
            free: RefCell::default(),
            ready: Arc::new(Ready { queue: Mutex::default(), home: thread_mark(), notify }),
            closed: Cell::new(false),
        }))
    }

    /// Adds a task; it is polled first when its turn in the queue comes. After [`Executor::close`]
    /// the task is dropped instead.
    pub fn spawn(&self, owner: u32, future: LocalFuture<()>) {
        if self.0.closed.get() {
            return;
        }
        let mut slots = self.0.slots.borrow_mut();
        let index = self.0.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(Slot { generation: 0, owner, state: State::Free, spare: None });
            u32::try_from(slots.len() - 1).expect("fewer than 2^32 tasks")
        });
        let slot = &mut slots[index as usize];
        let (wake, waker) = match slot.spare.take() {
            Some((wake, waker)) => {
                wake.generation.store(slot.generation, Ordering::Relaxed);
                wake.queued.store(false, Ordering::Relaxed);
                (wake, waker)
            }
            None => {
                let wake = Arc::new(TaskWake {
                    ready: self.0.ready.clone(),
                    index,
                    generation: AtomicU32::new(slot.generation),
                    queued: AtomicBool::new(false),
                });
                (wake.clone(), Waker::from(wake))
            }
        };
        slot.owner = owner;
        slot.state = State::Waiting(Task { future, wake, waker });
        let Slot { state: State::Waiting(task), .. } = slot else { return };
        task.waker.wake_by_ref();
    }

    /// Whether a task waits to be polled.
    pub fn has_ready(&self) -> bool {
        !self.0.ready.lock().is_empty()
    }

    /// Tasks that have not ended.
    pub fn task_count(&self) -> usize {
        self.0.slots.borrow().len() - self.0.free.borrow().len()
    }

    /// Polls woken tasks in order, at most `budget` of them; says how many.
    pub fn run_ready(&self, budget: usize) -> usize {
        for ran in 0..budget {
            let Some((index, generation)) = self.0.ready.lock().pop_front() else { return ran };
            self.poll(index, generation);
        }
        budget
    }

    fn poll(&self, index: u32, generation: u32) {
        let (mut task, owner) = {
            let mut slots = self.0.slots.borrow_mut();
            let slot = &mut slots[index as usize];
            if slot.generation != generation {
                return;
            }
            match std::mem::replace(&mut slot.state, State::Polled) {
                State::Waiting(task) => (task, slot.owner),
                other => {
                    slot.state = other;
                    return;
                }
            }
        };
        task.wake.queued.store(false, Ordering::Release);
        let outer = RUNNING.replace(Some(owner));
        let poll = task.future.as_mut().poll(&mut Context::from_waker(&task.waker));
        RUNNING.set(outer);
        let mut slots = self.0.slots.borrow_mut();
        let slot = &mut slots[index as usize];
        if poll.is_pending() && matches!(slot.state, State::Polled) {
            slot.state = State::Waiting(task);
            return;
        }
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        drop(slots);
        // With nothing borrowed: dropping what a task holds may wake and spawn others.
        let Task { future, wake, waker } = task;
        drop(future);
        // Ours and that of our waker: no other waker is left that a new task's number would make
        // wake the wrong one.
        if Arc::strong_count(&wake) == 2 {
            self.0.slots.borrow_mut()[index as usize].spare = Some((wake, waker));
        }
        self.0.free.borrow_mut().push(index);
    }

    /// Drops the tasks of `owner`, in slab order; the one being polled is dropped after its poll.
    pub fn drop_owned_by(&self, owner: u32) {
        self.drop_where(|slot| slot.owner == owner);
    }

    /// Drops all tasks and refuses new ones.
    pub fn close(&self) {
        self.0.closed.set(true);
        self.drop_where(|_| true);
    }

    fn drop_where(&self, chosen: impl Fn(&Slot) -> bool) {
        let mut doomed = Vec::new();
        for (index, slot) in self.0.slots.borrow_mut().iter_mut().enumerate() {
            if !chosen(slot) {
                continue;
            }
            match std::mem::replace(&mut slot.state, State::Free) {
                State::Free => {}
                State::Polled | State::Doomed => slot.state = State::Doomed,
                State::Waiting(task) => {
                    slot.generation = slot.generation.wrapping_add(1);
                    self.0.free.borrow_mut().push(index as u32);
                    doomed.push(task);
                }
            }
        }
        drop(doomed);
    }
}

impl core::fmt::Debug for Executor {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Executor({} tasks)", self.task_count())
    }
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, VecDeque<(u32, u32)>> {
        // No code that can panic runs under the lock, so a poisoned one is still consistent.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for TaskWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.queued.swap(true, Ordering::AcqRel) {
            return;
        }
        let generation = self.generation.load(Ordering::Relaxed);
        self.ready.lock().push_back((self.index, generation));
        if self.ready.home != thread_mark()
            && let Some(notify) = &self.ready.notify
        {
            notify();
        }
    }
}

/// A number that differs between live threads, cheaper than `thread::current().id()`.
fn thread_mark() -> usize {
    thread_local!(static MARK: u8 = const { 0 });
    MARK.try_with(|mark| std::ptr::from_ref(mark) as usize).unwrap_or(0)
}

/// Awaits a task's value. Dropping it leaves the task running. If the task is dropped unfinished
/// (its node was killed), the handle stays pending for ever.
pub struct JoinHandle<T>(Rc<RefCell<Outcome<T>>>);

enum Outcome<T> {
    Running(Option<Waker>),
    Done(T),
    Taken,
}

impl<T: 'static> JoinHandle<T> {
    /// The handle and the task that feeds it.
    pub fn pair(
        task: impl Future<Output = T> + 'static,
    ) -> (JoinHandle<T>, impl Future<Output = ()> + 'static) {
        let outcome = Rc::new(RefCell::new(Outcome::Running(None)));
        let handle = JoinHandle(outcome.clone());
        let feeding = async move {
            let value = task.await;
            let before = outcome.replace(Outcome::Done(value));
            if let Outcome::Running(Some(waker)) = before {
                waker.wake();
            }
        };
        (handle, feeding)
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        !matches!(*self.0.borrow(), Outcome::Running(_))
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut outcome = self.0.borrow_mut();
        if let Outcome::Running(waker) = &mut *outcome {
            *waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        match std::mem::replace(&mut *outcome, Outcome::Taken) {
            Outcome::Done(value) => Poll::Ready(value),
            _ => panic!("JoinHandle polled after its value was taken"),
        }
    }
}

impl<T> core::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("JoinHandle")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::yield_now;

    #[test]
    fn tasks_run_in_the_order_they_were_woken() {
        let executor = Executor::new(None);
        let seen = Rc::new(RefCell::new(Vec::new()));
        for task in 0..3 {
            let seen = seen.clone();
            executor.spawn(
                0,
                Box::pin(async move {
                    for round in 0..2 {
                        seen.borrow_mut().push((round, task));
                        yield_now().await;
                    }
                }),
            );
        }
        while executor.run_ready(1) > 0 {}
        assert_eq!(*seen.borrow(), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        assert_eq!(executor.task_count(), 0);
    }

    #[test]
    fn an_owner_s_tasks_go_even_while_one_of_them_runs() {
        let executor = Executor::new(None);
        let alive = Rc::new(());
        for owner in [1, 2, 1] {
            let (executor_, alive) = (executor.clone(), alive.clone());
            executor.spawn(
                owner,
                Box::pin(async move {
                    let _alive = alive;
                    executor_.drop_owned_by(1);
                    std::future::pending::<()>().await;
                }),
            );
        }
        executor.run_ready(100);
        assert_eq!(executor.task_count(), 1);
        assert_eq!(Rc::strong_count(&alive), 2);
        executor.close();
        executor.spawn(0, Box::pin(async {}));
        assert_eq!((executor.task_count(), Rc::strong_count(&alive)), (0, 1));
    }

    #[test]
    fn a_waker_that_outlives_its_task_wakes_no_later_one() {
        let executor = Executor::new(None);
        let kept = Rc::new(RefCell::new(None));
        let keep = kept.clone();
        let first = std::future::poll_fn(move |cx| {
            *keep.borrow_mut() = Some(cx.waker().clone());
            Poll::Ready(())
        });
        executor.spawn(0, Box::pin(first));
        executor.run_ready(10);
        // In the place that the first has left.
        let polls = Rc::new(Cell::new(0));
        let count = polls.clone();
        let second = std::future::poll_fn(move |_| {
            count.set(count.get() + 1);
            Poll::<()>::Pending
        });
        executor.spawn(0, Box::pin(second));
        executor.run_ready(10);
        kept.borrow_mut().take().unwrap().wake();
        executor.run_ready(10);
        assert_eq!(polls.get(), 1);
    }

    #[test]
    fn a_foreign_thread_s_wake_notifies() {
        let notified = Arc::new(AtomicBool::new(false));
        let flag = notified.clone();
        let executor = Executor::new(Some(Box::new(move || flag.store(true, Ordering::SeqCst))));
        let (send, receive) = std::sync::mpsc::channel();
        let mut first = true;
        let task = std::future::poll_fn(move |cx| {
            if std::mem::replace(&mut first, false) {
                send.send(cx.waker().clone()).unwrap();
                return Poll::Pending;
            }
            Poll::Ready(())
        });
        let (handle, task) = JoinHandle::pair(task);
        executor.spawn(0, Box::pin(task));
        executor.run_ready(10);
        assert!(!notified.load(Ordering::SeqCst));
        std::thread::spawn(move || receive.recv().unwrap().wake()).join().unwrap();
        assert!(notified.load(Ordering::SeqCst));
        executor.run_ready(10);
        assert!(handle.is_finished());
    }
}
