//! How far a journal's changes have reached the image: in order, whatever the order in which
//! they get there (`src/journal/JournalMetadata.cc` at v16.2).

use std::collections::{BTreeMap, BTreeSet};

use cls::journal::{ObjectPosition, ObjectSetPosition};

/// Entries that are written or read but not all of which are done.
#[derive(Debug)]
pub(crate) struct Commits {
    splay: u64,
    position: ObjectSetPosition,
    /// By the order of the journal. As many as there are changes under way.
    pending: BTreeMap<u64, Pending>,
    next: u64,
    changed: bool,
}

#[derive(Debug)]
struct Pending {
    at: ObjectPosition,
    done: bool,
}

impl Commits {
    /// From where the last owner has come.
    pub(crate) fn new(splay: u64, position: ObjectSetPosition) -> Commits {
        Commits { splay, position, pending: BTreeMap::new(), next: 0, changed: false }
    }

    /// The next entry of the journal; its number.
    pub(crate) fn begin(&mut self, at: ObjectPosition) -> u64 {
        self.pending.insert(self.next, Pending { at, done: false });
        self.next += 1;
        self.next - 1
    }

    /// An entry went into a later object than was thought.
    pub(crate) fn moved(&mut self, number: u64, object: u64) {
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.at.object_number = object;
        }
    }

    /// An entry's change is in the image.
    pub(crate) fn done(&mut self, number: u64) {
        if let Some(pending) = self.pending.get_mut(&number) {
            pending.done = true;
        }
        let before = self.changed;
        let mut passed = Vec::new();
        while let Some(first) = self.pending.first_entry().filter(|first| first.get().done) {
            passed.push(first.remove().at);
        }
        // Newest first, one of each place in the set.
        let old = std::mem::take(&mut self.position.object_positions);
        self.changed = before || !passed.is_empty();
        let mut places = BTreeSet::new();
        self.position.object_positions = passed
            .into_iter()
            .rev()
            .chain(old)
            .filter(|at| places.insert(at.object_number % self.splay))
            .collect();
    }

    /// The position, if it has changed since it was last asked for.
    pub(crate) fn take_changed(&mut self) -> Option<ObjectSetPosition> {
        std::mem::take(&mut self.changed).then(|| self.position.clone())
    }

    /// It could not be kept.
    pub(crate) fn not_kept(&mut self) {
        self.changed = true;
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(object_number: u64, entry_tid: u64) -> ObjectPosition {
        ObjectPosition { object_number, tag_tid: 1, entry_tid }
    }

    #[test]
    fn the_position_moves_in_order_and_keeps_one_of_each_place() {
        let mut commits = Commits::new(2, ObjectSetPosition::default());
        let numbers: Vec<u64> = (0..4).map(|tid| commits.begin(at(tid % 2, tid))).collect();
        commits.done(numbers[1]);
        commits.done(numbers[2]);
        assert_eq!(commits.take_changed(), None);
        commits.done(numbers[0]);
        let position = commits.take_changed().unwrap();
        assert_eq!(position.object_positions, [at(0, 2), at(1, 1)]);
        assert_eq!(commits.take_changed(), None);
        commits.moved(numbers[3], 3);
        commits.done(numbers[3]);
        let position = commits.take_changed().unwrap();
        assert_eq!(position.object_positions, [at(3, 3), at(0, 2)]);
        assert!(!commits.is_changed());
    }
}
