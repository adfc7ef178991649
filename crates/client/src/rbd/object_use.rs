//! Which objects are written now: a removal is alone with its object, else the object map could
//! say "gone" of what another write has just made.
//!
//! Turns are given in the order of asking. Who came while another waits to be alone would else keep it waiting for
//! as long as there are writes. So nobody who is with an object may ask for it, or for another one, before it leaves.

use std::cell::RefCell;
use std::collections::BTreeMap;

use env::sync::{Permit, Semaphore};

/// Turns of one object: writers take one, who is alone takes all.
const ALL: u64 = u32::MAX as u64;

/// See the module. Bound: the image's writes under way.
#[derive(Default)]
pub(crate) struct ObjectUse(RefCell<BTreeMap<u64, Turns>>);

struct Turns {
    turns: Semaphore,
    /// Those who are with the object, and those who wait.
    users: usize,
}

/// With an object, or on the way to it.
pub(crate) struct Using<'a> {
    of: &'a ObjectUse,
    object: u64,
    turn: Option<Permit>,
}

impl ObjectUse {
    pub(crate) async fn enter(&self, object: u64, alone: bool) -> Using<'_> {
        let turns = {
            let mut all = self.0.borrow_mut();
            let new = || Turns { turns: Semaphore::new(ALL), users: 0 };
            let of_object = all.entry(object).or_insert_with(new);
            of_object.users += 1;
            of_object.turns.clone()
        };
        // Made before the wait: who gives up waiting is counted no more.
        let mut using = Using { of: self, object, turn: None };
        using.turn = Some(turns.acquire(if alone { ALL } else { 1 }).await);
        using
    }
}

impl Drop for Using<'_> {
    fn drop(&mut self) {
        self.turn.take();
        let mut all = self.of.0.borrow_mut();
        if let Some(of_object) = all.get_mut(&self.object) {
            of_object.users -= 1;
            if of_object.users == 0 {
                all.remove(&self.object);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Found by reading: flattening never came to its end where an object was written all the time by writes
    /// that overlap. Each found another one there and went in, and the copy waited until there was none.
    #[test]
    fn who_comes_later_does_not_keep_a_removal_waiting() {
        let objects = ObjectUse::default();
        let first = objects.enter(7, false).now_or_never().unwrap();
        let second = objects.enter(7, false).now_or_never().unwrap();
        let mut removal = Box::pin(objects.enter(7, true));
        assert!(removal.as_mut().now_or_never().is_none());
        let mut later = Box::pin(objects.enter(7, false));
        assert!(later.as_mut().now_or_never().is_none());
        assert!(objects.enter(8, true).now_or_never().is_some());
        drop((first, second));
        let alone = removal.now_or_never().unwrap();
        assert!(later.as_mut().now_or_never().is_none());
        drop(alone);
        drop(later.now_or_never().unwrap());
        assert!(objects.0.borrow().is_empty());
    }

    #[test]
    fn who_gives_up_waiting_keeps_nobody_waiting() {
        let objects = ObjectUse::default();
        let first = objects.enter(7, false).now_or_never().unwrap();
        let mut removal = Box::pin(objects.enter(7, true));
        assert!(removal.as_mut().now_or_never().is_none());
        drop(removal);
        drop(objects.enter(7, false).now_or_never().unwrap());
        drop(first);
        assert!(objects.0.borrow().is_empty());
    }
}
