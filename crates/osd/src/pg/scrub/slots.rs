//! How many scrubs an OSD takes part in at a time, as primary or replica (osd_max_scrubs).

use std::cell::Cell;
use std::rc::Rc;

/// The slots of an OSD.
#[derive(Debug, Clone, Default)]
pub struct ScrubSlots(Rc<Cell<u64>>);

/// One slot; given back when dropped.
#[derive(Debug)]
pub struct Slot(Rc<Cell<u64>>);

impl ScrubSlots {
    /// A slot, if fewer than `max` are taken.
    pub fn try_take(&self, max: u64) -> Option<Slot> {
        let taken = self.0.get();
        if taken >= max {
            return None;
        }
        self.0.set(taken + 1);
        Some(Slot(self.0.clone()))
    }

    /// Slots taken.
    pub fn taken(&self) -> u64 {
        self.0.get()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back() {
        let slots = ScrubSlots::default();
        let first = slots.try_take(1);
        assert!(first.is_some() && slots.try_take(1).is_none());
        assert!(slots.try_take(2).is_some());
        drop(first);
        assert_eq!(slots.taken(), 0);
    }
}
