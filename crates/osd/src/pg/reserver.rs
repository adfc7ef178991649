//! Slots for recovery and backfill, given out by priority; a higher one takes a slot from a lower
//! (`src/common/AsyncReserver.h` at v16.2).
//!
//! An OSD has two: one for PGs that it leads, one for PGs that it follows in. Each gives out
//! osd_max_backfills slots. [`Queue`] decides, [`Reservation`] is what a PG holds.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use env::sync::Notify;
use types::SpgId;

/// Who waits and who holds, without anybody to tell it to. Bound: one place a PG.
#[derive(Debug, Default)]
pub struct Queue {
    max: usize,
    min_priority: u32,
    next: u64,
    /// Highest priority first, then in the order of asking.
    waiting: BTreeMap<(Reverse<u32>, u64), ()>,
    /// Priority by ticket.
    granted: BTreeMap<u64, u32>,
}

/// What became of a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// It has a slot.
    Granted(u64),
    /// Its slot went to a higher priority.
    Preempted(u64),
}

impl Queue {
    /// Waits for a slot; the ticket.
    pub fn request(&mut self, priority: u32) -> u64 {
        self.next += 1;
        self.waiting.insert((Reverse(priority), self.next), ());
        self.next
    }

    /// Waits or holds no more.
    pub fn cancel(&mut self, ticket: u64) {
        self.granted.remove(&ticket);
        self.waiting.retain(|(_, number), ()| *number != ticket);
    }

    /// Changes the number of slots (osd_max_backfills), and the priority below which nothing is
    /// granted (osd_recovery_priority_min).
    pub fn set_limits(&mut self, max: usize, min_priority: u32) {
        self.max = max;
        self.min_priority = min_priority;
    }

    /// Gives out what is free, or held by less.
    pub fn settle(&mut self) -> Vec<Word> {
        let mut words = Vec::new();
        while let Some((&(Reverse(priority), ticket), ())) = self.waiting.first_key_value() {
            if priority < self.min_priority || self.max == 0 {
                break;
            }
            if self.granted.len() >= self.max {
                // The newest of the lowest.
                let least = self.granted.iter().min_by_key(|(t, p)| (**p, Reverse(**t)));
                match least.map(|(t, p)| (*t, *p)) {
                    Some((least, held)) if held < priority => {
                        self.granted.remove(&least);
                        words.push(Word::Preempted(least));
                    }
                    _ => break,
                }
                continue;
            }
            self.waiting.pop_first();
            self.granted.insert(ticket, priority);
            words.push(Word::Granted(ticket));
        }
        words
    }
}

/// Where a reservation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stand {
    /// No slot yet.
    Waiting,
    /// It holds one.
    Granted,
    /// It held one.
    Preempted,
}

#[derive(Debug)]
struct Ticket {
    item: SpgId,
    priority: u32,
    stand: Cell<Stand>,
    changed: Rc<Notify>,
}

#[derive(Debug, Default)]
struct Shared {
    queue: RefCell<Queue>,
    tickets: RefCell<BTreeMap<u64, Rc<Ticket>>>,
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Reserver(Rc<Shared>);

/// A slot, or a place in the queue for one; given up on drop.
#[derive(Debug)]
pub struct Reservation {
    shared: Rc<Shared>,
    number: u64,
    ticket: Rc<Ticket>,
}

impl Reserver {
    /// Asks for a slot; `changed` hears when the reservation's stand changes.
    pub fn request(&self, item: SpgId, priority: u32, changed: Rc<Notify>) -> Reservation {
        let stand = Cell::new(Stand::Waiting);
        let ticket = Rc::new(Ticket { item, priority, stand, changed });
        let number = self.0.queue.borrow_mut().request(priority);
        self.0.tickets.borrow_mut().insert(number, ticket.clone());
        self.0.settle();
        Reservation { shared: self.0.clone(), number, ticket }
    }

    /// See [`Queue::set_limits`].
    pub fn set_limits(&self, max: usize, min_priority: u32) {
        self.0.queue.borrow_mut().set_limits(max, min_priority);
        self.0.settle();
    }

    /// Whether a slot is given out.
    pub fn is_held(&self) -> bool {
        !self.0.queue.borrow().granted.is_empty()
    }

    /// Who has asked: PG, priority, stand.
    pub fn all(&self) -> Vec<(SpgId, u32, Stand)> {
        let tickets = self.0.tickets.borrow();
        tickets.values().map(|t| (t.item, t.priority, t.stand.get())).collect()
    }
}

impl Shared {
    fn settle(&self) {
        let words = self.queue.borrow_mut().settle();
        for word in words {
            let (number, stand) = match word {
                Word::Granted(number) => (number, Stand::Granted),
                Word::Preempted(number) => (number, Stand::Preempted),
            };
            let ticket = self.tickets.borrow().get(&number).cloned();
            if let Some(ticket) = ticket {
                ticket.stand.set(stand);
                ticket.changed.notify_all();
            }
        }
    }
}

impl Reservation {
    /// Where it stands.
    pub fn stand(&self) -> Stand {
        self.ticket.stand.get()
    }

    /// Whether this is what is heard of when its stand changes.
    pub fn tells(&self, who: &Rc<Notify>) -> bool {
        Rc::ptr_eq(&self.ticket.changed, who)
    }

    /// Leaves the queue as if the slot had been lost.
    pub fn give_up(&self) {
        self.shared.queue.borrow_mut().cancel(self.number);
        self.ticket.stand.set(Stand::Preempted);
        self.ticket.changed.notify_all();
        self.shared.settle();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // Whoever watches it ends.
        self.ticket.changed.notify_all();
        self.shared.tickets.borrow_mut().remove(&self.number);
        self.shared.queue.borrow_mut().cancel(self.number);
        self.shared.settle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_priorities_go_first_and_take_slots_away() {
        let mut queue = Queue::default();
        queue.set_limits(1, 0);
        let misplaced = queue.request(100);
        assert_eq!(queue.settle(), [Word::Granted(misplaced)]);
        let later = queue.request(100);
        assert_eq!(queue.settle(), [], "an equal does not");
        let degraded = queue.request(140);
        assert_eq!(queue.settle(), [Word::Preempted(misplaced), Word::Granted(degraded)]);
        let again = queue.request(100);
        queue.cancel(degraded);
        assert_eq!(queue.settle(), [Word::Granted(later)], "in the order of asking");
        queue.cancel(later);
        assert_eq!(queue.settle(), [Word::Granted(again)]);
    }

    #[test]
    fn limits_change_while_it_runs() {
        let mut queue = Queue::default();
        queue.set_limits(1, 0);
        let (a, b, c) = (queue.request(5), queue.request(5), queue.request(1));
        assert_eq!(queue.settle(), [Word::Granted(a)]);
        queue.set_limits(3, 3);
        assert_eq!(queue.settle(), [Word::Granted(b)], "the third is below the least");
        queue.set_limits(1, 0);
        assert_eq!(queue.settle(), [], "nobody loses what he has to a lower number of slots");
        queue.cancel(a);
        queue.cancel(b);
        assert_eq!(queue.settle(), [Word::Granted(c)]);
    }

    #[test]
    fn a_dropped_reservation_goes_to_the_next() {
        let (reserver, changed) = (Reserver::default(), Rc::new(Notify::default()));
        reserver.set_limits(1, 0);
        let pg = |seed| types::PgId::new(1, seed).spg();
        let first = reserver.request(pg(0), 100, changed.clone());
        let second = reserver.request(pg(1), 100, changed.clone());
        assert_eq!((first.stand(), second.stand()), (Stand::Granted, Stand::Waiting));
        drop(first);
        assert_eq!(second.stand(), Stand::Granted);
        let third = reserver.request(pg(2), 180, changed);
        assert_eq!((second.stand(), third.stand()), (Stand::Preempted, Stand::Granted));
        assert_eq!(reserver.all().len(), 2);
    }
}
