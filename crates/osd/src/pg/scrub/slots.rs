//! How many scrubs an OSD takes part in at a time, as primary or replica (osd_max_scrubs).

use std::cell::Cell;
use std::rc::Rc;

/// Slots taken: as primary, for other primaries.
#[derive(Debug, Default)]
struct Taken {
    local: Cell<u64>,
    remote: Cell<u64>,
}

/// The slots of an OSD.
#[derive(Debug, Clone, Default)]
pub struct ScrubSlots(Rc<Taken>);

/// One slot; given back when dropped.
#[derive(Debug)]
pub struct Slot {
    slots: Rc<Taken>,
    remote: bool,
}

impl ScrubSlots {
    /// A slot, if fewer than `max` are taken; `remote` if it is for another primary.
    pub fn try_take(&self, max: u64, remote: bool) -> Option<Slot> {
        let (local, others) = self.taken();
        if local + others >= max {
            return None;
        }
        let slots = self.0.clone();
        let count = if remote { &slots.remote } else { &slots.local };
        count.set(count.get() + 1);
        Some(Slot { slots, remote })
    }

    /// Slots taken as primary, and for other primaries.
    pub fn taken(&self) -> (u64, u64) {
        (self.0.local.get(), self.0.remote.get())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let count = if self.remote { &self.slots.remote } else { &self.slots.local };
        count.set(count.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_come_back() {
        let slots = ScrubSlots::default();
        let first = slots.try_take(1, false);
        assert!(first.is_some() && slots.try_take(1, true).is_none());
        let second = slots.try_take(2, true);
        assert_eq!(slots.taken(), (1, 1));
        drop(first);
        assert_eq!(slots.taken(), (0, 1));
        drop(second);
        assert_eq!(slots.taken(), (0, 0));
    }
}
