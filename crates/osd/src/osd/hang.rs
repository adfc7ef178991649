//! Whether the store still answers: a device may hang, where it neither does what it is told nor fails.
//!
//! Writes are counted when the store gets them and when it has answered, which takes no look at the clock. Once a
//! second somebody looks: if what had been given at an earlier look is still not answered, the store has been silent
//! since then at least. Writes alone are counted: those are answered in order, and what is asked of memory is answered
//! whatever the device does.

use std::cell::Cell;
use std::time::Duration;

/// What counts at most as the time between two looks: while the process was stopped the store was, too.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// What the store was given and has not answered.
#[derive(Debug, Default)]
pub(crate) struct Unanswered {
    given: Cell<u64>,
    answered: Cell<u64>,
    /// What had been given at a look at which all of an earlier one was answered.
    marked: Cell<u64>,
    last_look: Cell<Duration>,
    silent: Cell<Duration>,
}

impl Unanswered {
    /// The store is given a write.
    pub(crate) fn begin(&self) {
        self.given.set(self.given.get() + 1);
    }

    /// It has answered, or nobody waits for that any more.
    pub(crate) fn end(&self) {
        self.answered.set(self.answered.get() + 1);
    }

    /// Looks; for how long at least the store has left something unanswered. (It answers in order: who counts need
    /// not know which.)
    pub(crate) fn look(&self, now: Duration) -> Duration {
        let since = now.saturating_sub(self.last_look.replace(now)).min(LOOK_MAX);
        if self.answered.get() >= self.marked.get() {
            self.marked.set(self.given.get());
            self.silent.set(Duration::ZERO);
        } else {
            self.silent.set(self.silent.get() + since);
        }
        self.silent()
    }

    /// The same as of the last look.
    pub(crate) fn silent(&self) -> Duration {
        self.silent.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_silent_from_what_it_has_not_answered_on() {
        let at = Duration::from_secs;
        let store = Unanswered::default();
        assert_eq!(store.look(at(100)), Duration::ZERO);
        assert_eq!(store.look(at(101)), Duration::ZERO);
        store.begin();
        store.begin();
        assert_eq!(store.look(at(102)), Duration::ZERO);
        assert_eq!(store.look(at(103)), at(1));
        store.end();
        store.begin();
        assert_eq!(store.look(at(104)), at(2));
        // All is answered that there was at the first of these looks, and another is not.
        store.end();
        assert_eq!(store.look(at(105)), Duration::ZERO);
        assert_eq!(store.look(at(106)), at(1));
        // The process was stopped.
        assert_eq!(store.look(at(1000)), at(3));
        store.end();
        assert_eq!(store.look(at(1001)), Duration::ZERO);
        assert_eq!(store.look(at(1002)), Duration::ZERO);
    }
}
