//! The thread that makes transactions durable: each round serves all that waits when it begins.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use env::sync::Notify;
use env::{Env, Workers};

use super::Core;
use crate::StoreError;

/// Rounds, one after the other.
pub(super) struct Syncs {
    env: Env,
    worker: Workers,
    core: RefCell<Option<Arc<Core>>>,
    asked: Cell<u64>,
    done: Cell<u64>,
    running: Cell<bool>,
    failed: RefCell<Option<StoreError>>,
    progress: Notify,
}

impl Syncs {
    pub(super) fn new(worker: Workers, env: Env, core: Arc<Core>) -> Rc<Syncs> {
        Rc::new(Syncs {
            env,
            worker,
            core: RefCell::new(Some(core)),
            asked: Cell::new(0),
            done: Cell::new(0),
            running: Cell::new(false),
            failed: RefCell::default(),
            progress: Notify::default(),
        })
    }

    /// Completes when all that has been applied is durable.
    pub(super) async fn wait(self: Rc<Syncs>) -> Result<(), StoreError> {
        let mine = self.asked.get() + 1;
        self.asked.set(mine);
        if !self.running.replace(true) {
            self.env.go(self.clone().run());
        }
        self.progress
            .until(|| self.done.get() >= mine || self.failed.borrow().is_some())
            .await;
        match &*self.failed.borrow() {
            Some(e) if self.done.get() < mine => Err(e.clone()),
            _ => Ok(()),
        }
    }

    async fn on_core(&self, job: fn(&Core) -> Result<(), StoreError>) -> Result<(), StoreError> {
        let core = self.core.borrow().clone();
        let Some(core) = core else {
            return Err(StoreError::Closed);
        };
        let work = self.worker.run(move || {
            let result = job(&core);
            drop(core);
            result
        });
        work.await
    }

    async fn run(self: Rc<Syncs>) {
        while self.done.get() < self.asked.get() && self.failed.borrow().is_none() {
            let target = self.asked.get();
            let mut result = self.on_core(Core::sync).await;
            if result.is_ok() {
                self.done.set(target);
                self.progress.notify_all();
                result = self.on_core(Core::write_deferred_if_due).await;
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
    pub(super) async fn close(self: Rc<Syncs>, core: Arc<Core>) -> Result<(), StoreError> {
        let result = self.clone().wait().await;
        *self.core.borrow_mut() = None;
        self.progress.until(|| !self.running.get()).await;
        // The database closes here, on a thread that may block.
        let drained = self.worker.run(move || core.drain()).await;
        result.and(drained)
    }

    /// The store is gone.
    pub(super) fn forget(&self) {
        *self.core.borrow_mut() = None;
    }
}
