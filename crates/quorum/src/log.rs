//! The part of the log that is kept: everything after the base, in memory and (by the owner) on
//! disk.

use std::collections::VecDeque;

use crate::entry::{Base, Entry, Members, Payload};

/// Entries kept after they are applied, for members that lag: at most this many,
const ENTRIES_MAX: usize = 1000;
/// and at most this many bytes. Whoever lags further copies the state.
const BYTES_MAX: usize = 32 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    base: Base,
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Places and contents of the changes of members after the base.
    changes: Vec<(u64, Members)>,
    entries_max: usize,
}

impl Log {
    pub(crate) fn new(base: Base, entries: Vec<Entry>, entries_max: Option<usize>) -> Log {
        let mut log = Log {
            base,
            entries: VecDeque::new(),
            bytes: 0,
            changes: Vec::new(),
            entries_max: entries_max.unwrap_or(ENTRIES_MAX),
        };
        entries.into_iter().for_each(|entry| log.push(entry));
        log
    }

    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    pub(crate) fn last_index(&self) -> u64 {
        self.base.index + self.entries.len() as u64
    }

    pub(crate) fn last_term(&self) -> u64 {
        self.entries.back().map_or(self.base.term, |entry| entry.term)
    }

    /// The term at a place; `None` if nothing is known of it.
    pub(crate) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.base.index {
            return Some(self.base.term);
        }
        self.at(index).map(|entry| entry.term)
    }

    fn at(&self, index: u64) -> Option<&Entry> {
        let place = index.checked_sub(self.base.index + 1)?;
        self.entries.get(usize::try_from(place).ok()?)
    }

    pub(crate) fn push(&mut self, entry: Entry) {
        debug_assert_eq!(entry.index, self.last_index() + 1);
        if let Payload::Members(members) = &entry.payload {
            self.changes.push((entry.index, members.clone()));
        }
        self.bytes += entry.len();
        self.entries.push_back(entry);
    }

    /// Drops everything after `index`.
    pub(crate) fn truncate(&mut self, index: u64) {
        while self.last_index() > index {
            let Some(entry) = self.entries.pop_back() else { break };
            self.bytes -= entry.len();
        }
        self.changes.retain(|(at, _)| *at <= index);
    }

    /// Entries after `index`, up to about `bytes_max` bytes and `last`.
    pub(crate) fn after(&self, index: u64, last: u64, bytes_max: usize) -> Vec<Entry> {
        let skip = usize::try_from(index.saturating_sub(self.base.index)).unwrap_or(usize::MAX);
        let mut bytes = 0;
        let mut taken = Vec::new();
        for entry in self.entries.iter().skip(skip) {
            if entry.index > last || (bytes > 0 && bytes + entry.len() > bytes_max) {
                break;
            }
            bytes += entry.len();
            taken.push(entry.clone());
        }
        taken
    }

    /// The members in force, and where they were set.
    pub(crate) fn members(&self) -> (u64, &Members) {
        match self.changes.last() {
            Some((index, members)) => (*index, members),
            None => (self.base.index, &self.base.members),
        }
    }

    pub(crate) fn members_at(&self, index: u64) -> &Members {
        let before = self.changes.iter().rev().find(|(at, _)| *at <= index);
        before.map_or(&self.base.members, |(_, members)| members)
    }

    /// Where the base could be moved, if the log has become too long; half of it stays.
    pub(crate) fn trim_point(&self, applied: u64) -> Option<Base> {
        if self.entries.len() <= self.entries_max && self.bytes <= BYTES_MAX {
            return None;
        }
        let index = applied.min(self.base.index + (self.entries.len() / 2) as u64);
        if index <= self.base.index {
            return None;
        }
        let members = self.members_at(index).clone();
        Some(Base { index, term: self.term_at(index)?, members })
    }

    /// Moves the base up to what [`Log::trim_point`] gave.
    pub(crate) fn trim(&mut self, base: Base) {
        while self.entries.front().is_some_and(|entry| entry.index <= base.index) {
            if let Some(entry) = self.entries.pop_front() {
                self.bytes -= entry.len();
            }
        }
        self.changes.retain(|(at, _)| *at > base.index);
        self.base = base;
    }

    /// Begins anew at a base.
    pub(crate) fn reset(&mut self, base: Base) {
        *self = Log::new(base, Vec::new(), Some(self.entries_max));
    }

    /// The lowest place of the term that `index` has.
    pub(crate) fn start_of_term_at(&self, index: u64) -> u64 {
        let Some(term) = self.term_at(index) else { return index };
        let mut start = index;
        while start > self.base.index + 1 && self.term_at(start - 1) == Some(term) {
            start -= 1;
        }
        start
    }
}
