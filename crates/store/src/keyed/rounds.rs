//! The store around such a core: transactions are applied on one thread, in the order of the
//! calls, and made durable on another, each round for all that waits when it begins.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use env::sync::Notify;
use env::{Env, LocalFuture, Workers};

use crate::blocking::{Backend, Core, Lanes};
use crate::{PoolOptions, StoreCounter, StoreError, Transaction};

/// A core whose transactions are applied first and durable later.
pub(crate) trait Durable: Core {
    /// Applies a transaction; a later [`Durable::sync`] makes it durable.
    fn apply(&self, t: &Transaction) -> Result<(), StoreError>;
    /// Makes durable what has been applied.
    fn sync(&self) -> Result<(), StoreError>;
    /// Whether there is work to do between two rounds, for which nobody waits.
    fn has_more(&self) -> bool {
        false
    }
    /// That work.
    fn do_more(&self) -> Result<(), StoreError> {
        Ok(())
    }
    /// What is left to do before the store closes, after a last [`Durable::sync`].
    fn finish(&self) -> Result<(), StoreError> {
        Ok(())
    }
    /// [`crate::ObjectStore::set_pool_options`], on the caller's thread.
    fn set_pool_options(&self, _pool: u64, _options: &PoolOptions) {}
    /// Bytes by cause, and counts.
    fn counters(&self) -> Vec<StoreCounter>;
}

/// What such a store is made of.
pub struct Inner<C> {
    lanes: Lanes<C>,
    rounds: Rc<Rounds<C>>,
    room: Arc<Room>,
    /// What the counters were when the store was closed.
    last_counters: RefCell<Vec<StoreCounter>>,
}

/// [`crate::ObjectStore::stop_when_full`].
#[derive(Default)]
struct Room {
    stops: AtomicBool,
    lacked: AtomicBool,
}

impl Room {
    fn apply<C: Durable>(&self, core: &C, t: &Transaction) -> Result<(), StoreError> {
        if self.lacked.load(Ordering::Relaxed) {
            return Err(StoreError::Latched);
        }
        let result = core.apply(t);
        if result == Err(StoreError::NoSpace) && self.stops.load(Ordering::Relaxed) {
            self.lacked.store(true, Ordering::Relaxed);
        }
        result
    }
}

/// Rounds, one after the other.
struct Rounds<C> {
    env: Env,
    worker: Workers,
    core: RefCell<Option<Arc<C>>>,
    asked: Cell<u64>,
    done: Cell<u64>,
    running: Cell<bool>,
    failed: RefCell<Option<StoreError>>,
    progress: Notify,
}

#[allow(private_bounds, reason = "what a core is stays inside")]
impl<C: Durable> Inner<C> {
    /// A store of a core that was opened on `lane`; `sync` is the thread of rounds.
    pub(crate) fn new(env: Env, core: Arc<C>, lane: Workers, sync: Workers) -> Inner<C> {
        let rounds = Rc::new(Rounds {
            env,
            worker: sync,
            core: RefCell::new(Some(core.clone())),
            asked: Cell::new(0),
            done: Cell::new(0),
            running: Cell::new(false),
            failed: RefCell::default(),
            progress: Notify::default(),
        });
        Inner {
            lanes: Lanes::new(core, vec![lane]),
            rounds,
            room: Arc::default(),
            last_counters: RefCell::default(),
        }
    }

    #[cfg(test)]
    pub(crate) fn core(&self) -> Option<Arc<C>> {
        self.lanes.core()
    }
}

impl<C: Durable> Rounds<C> {
    /// Completes when all that has been applied is durable.
    async fn wait(self: Rc<Self>) -> Result<(), StoreError> {
        let mine = self.asked.get() + 1;
        self.asked.set(mine);
        if !self.running.replace(true) {
            self.env.go(self.clone().run());
        }
        self.progress.until(|| self.done.get() >= mine || self.failed.borrow().is_some()).await;
        match &*self.failed.borrow() {
            Some(e) if self.done.get() < mine => Err(e.clone()),
            _ => Ok(()),
        }
    }

    async fn on_core(&self, job: fn(&C) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let core = self.core.borrow().clone();
        let Some(core) = core else { return Err(StoreError::Closed) };
        let work = self.worker.run(move || {
            let result = job(&core);
            drop(core);
            result
        });
        work.await
    }

    async fn run(self: Rc<Self>) {
        while self.done.get() < self.asked.get() && self.failed.borrow().is_none() {
            let target = self.asked.get();
            let mut result = self.on_core(C::sync).await;
            if result.is_ok() {
                self.done.set(target);
                self.progress.notify_all();
                if self.core.borrow().as_ref().is_some_and(|core| core.has_more()) {
                    result = self.on_core(C::do_more).await;
                }
            }
            if let Err(e) = result {
                *self.failed.borrow_mut() = Some(e);
            }
            self.progress.notify_all();
        }
        self.running.set(false);
        self.progress.notify_all();
    }

    /// Finishes everything and lets the core go.
    async fn close(self: Rc<Self>, core: Arc<C>) -> Result<(), StoreError> {
        let result = self.clone().wait().await;
        *self.core.borrow_mut() = None;
        self.progress.until(|| !self.running.get()).await;
        // The database closes here, on a thread that may block.
        let finished = self.worker.run(move || core.finish()).await;
        result.and(finished)
    }
}

impl<C> Drop for Inner<C> {
    fn drop(&mut self) {
        // A round that runs keeps the core until it ends.
        *self.rounds.core.borrow_mut() = None;
    }
}

impl<C: Durable> Backend for Inner<C> {
    type Core = C;

    fn lanes(&self) -> &Lanes<C> {
        &self.lanes
    }

    fn submit(&self, t: Transaction) -> LocalFuture<Result<(), StoreError>> {
        let room = self.room.clone();
        let applied = self.lanes.run(0, move |core| room.apply(core, &t));
        let rounds = self.rounds.clone();
        Box::pin(async move {
            applied.await?;
            rounds.wait().await
        })
    }

    fn set_pool_options(&self, pool: u64, options: &PoolOptions) {
        if let Some(core) = self.lanes.core() {
            core.set_pool_options(pool, options);
        }
    }

    fn stop_when_full(&self) {
        self.room.stops.store(true, Ordering::Relaxed);
    }

    fn counters(&self) -> Vec<StoreCounter> {
        match self.lanes.core() {
            Some(core) => core.counters(),
            None => self.last_counters.borrow().clone(),
        }
    }

    fn close(&self) -> LocalFuture<Result<(), StoreError>> {
        let Some(core) = self.lanes.take() else {
            return Box::pin(std::future::ready(Err(StoreError::Closed)));
        };
        *self.last_counters.borrow_mut() = core.counters();
        // What is queued comes before this.
        let drained = self.lanes.all()[0].run(|| ());
        let rounds = self.rounds.clone();
        Box::pin(async move {
            drained.await;
            rounds.close(core).await
        })
    }
}
