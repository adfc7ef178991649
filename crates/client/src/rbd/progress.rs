//! How far something long has come, told to who asked for it; the answer says whether to go on.

use std::cell::Cell;

use types::Errno;

use crate::ClientError;

/// Told after each step with (done, all); false ends the work with ECANCELED, leaving what has
/// been done.
pub type OnProgress<'a> = &'a dyn Fn(u64, u64) -> bool;

/// Counts steps that may end in any order.
pub(crate) struct Progress<'a> {
    tell: OnProgress<'a>,
    done: Cell<u64>,
    all: u64,
}

/// For work that nobody watches.
pub(crate) fn unwatched(_: u64, _: u64) -> bool {
    true
}

impl<'a> Progress<'a> {
    pub(crate) fn new(tell: OnProgress<'a>, all: u64) -> Progress<'a> {
        Progress { tell, done: Cell::new(0), all }
    }

    /// One more is done.
    pub(crate) fn step(&self) -> Result<(), ClientError> {
        self.done.set(self.done.get() + 1);
        if (self.tell)(self.done.get(), self.all) { Ok(()) } else { Err(Errno::ECANCELED.into()) }
    }
}
